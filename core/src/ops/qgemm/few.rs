//! Products of packed weights with a few rows of exact activations: panels are unpacked piece by piece, into the
//! first-level cache, and multiplied from there.

use super::tile::{Kind, PanelRoom};
use crate::arrays::Each;
use crate::element::Element;
use crate::quant::packed::{ROWS, STEP, UNIT};
use crate::vector::Prim;

/// Columns of a panel that are unpacked at a time, in whole units: their codes take half of a first-level cache.
pub(crate) const UNPACKED_COLUMNS: usize = 4 * UNIT;

/// What [`few`] works on: some columns of an unpacked panel, with signed codes, and rows of activations.
pub struct FewArgs<E> {
    pub(crate) kind: Kind,
    pub(crate) steps: usize,
    pub(crate) from: PanelRoom,
    pub(crate) rows: usize,
    pub(crate) x: *const E,
    /// Elements from one row of activations to the next.
    pub(crate) stride: usize,
    /// For each row of activations 16 sums, to which products are added.
    pub(crate) sums: *mut [f32; ROWS],
}

/// Adds the products of some columns of a panel: a group is summed before it is scaled, as in
/// [`qgemv`](crate::ops::qgemv::qgemv).
///
/// # Safety
/// What the arguments name exists; the instruction set.
#[inline(always)]
pub(crate) unsafe fn few<E: Element, P: Prim<E> + Prim<f32>>(a: &FewArgs<E>) {
    let mut m = 0;
    while m < a.rows {
        // SAFETY: the caller's contract; so many rows are left.
        unsafe {
            m += match a.rows - m {
                1 => rows::<E, P, 1>(a, m),
                2 => rows::<E, P, 2>(a, m),
                3 => rows::<E, P, 3>(a, m),
                _ => rows::<E, P, 4>(a, m),
            };
        }
    }
}

/// [`few`] for `M` rows of activations, from row `first`. Returns how many that are.
///
/// # Safety
/// The contract of [`few`], for these rows.
#[inline(always)]
pub(crate) unsafe fn rows<E: Element, P: Prim<E> + Prim<f32>, const M: usize>(
    a: &FewArgs<E>,
    first: usize,
) -> usize {
    let groups = a.kind.groups();
    let cells = STEP / 4 / groups;
    let sums = a.sums.wrapping_add(first).cast::<[[f32; ROWS]; M]>();
    // SAFETY: the caller's contract; steps, groups and cells are within the panel and the rows.
    unsafe {
        for g in 0..a.steps * groups {
            let (mut x, mut all) = ([[0f32; STEP]; M], [0f32; M]);
            for m in 0..M {
                let (from, mut sum) = (a.x.add((first + m) * a.stride + g * cells * 4), P::splat(0.0));
                for c in (0..cells * 4).step_by(P::LANES) {
                    let v = <P as Prim<E>>::load(from.add(c));
                    sum = P::add(sum, v);
                    <P as Prim<f32>>::store(x[m].as_mut_ptr().add(c), v);
                }
                all[m] = if a.kind.offsets { P::reduce_sum(sum) } else { 0.0 };
            }
            for i in (0..ROWS).step_by(P::LANES) {
                let at = |p: *const f32| <P as Prim<f32>>::load(p.add(g * ROWS + i));
                // Two sums, so that additions wait less for each other.
                let mut of_group = [[P::splat(0.0); 2]; M];
                for cell in 0..cells {
                    // From the first row of this vector on; what is behind it is not used, and the codes are followed by scales.
                    let words = a.from.codes.cast::<u32>().add((g * cells + cell) * ROWS + i);
                    let words = (*words.cast::<[u32; ROWS]>()).each(u32::from_le);
                    for t in 0..4 {
                        // Shifts, as the compiler takes bytes out of registers one by one.
                        let codes = words.each(|w| ((w << (24 - 8 * t)) as i32 >> 24) as f32);
                        let codes = <P as Prim<f32>>::load(codes.as_ptr());
                        for (of_group, x) in of_group.iter_mut().zip(&x) {
                            let sum = &mut of_group[t % 2];
                            *sum = P::fma(codes, P::splat(x[(4 * cell + t) % STEP]), *sum);
                        }
                    }
                }
                let scales = at(a.from.scales);
                for (m, [even, odd]) in of_group.into_iter().enumerate() {
                    let to = (*sums)[m].as_mut_ptr().add(i);
                    let mut sum = P::fma(P::add(even, odd), scales, <P as Prim<f32>>::load(to));
                    if a.kind.offsets {
                        sum = P::fma(at(a.from.offsets), P::splat(all[m]), sum);
                    }
                    <P as Prim<f32>>::store(to, sum);
                }
            }
        }
    }
    M
}
