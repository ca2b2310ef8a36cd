//! Products of packed weights with a few rows of exact activations: panels are unpacked piece by piece, into the
//! first-level cache, and multiplied from there.

use super::tile::{PanelKind, PanelRoom};
use crate::arrays::{from_fn, Each};
use crate::element::{Element, ElementType};
use crate::quant::bytes::Widen;
use crate::quant::packed::{PANEL_ROWS, STEP_COLS, UNIT_COLS};
use crate::vector::Prim;

/// Columns of a panel that are unpacked at a time, in whole units: their codes take half of a first-level cache.
pub(crate) const UNPACKED_COLUMNS: usize = 4 * UNIT_COLS;

/// What [`few`] works on: some columns of an unpacked panel, with signed codes, and rows of activations.
pub struct FewArgs<E> {
    pub(crate) kind: PanelKind,
    pub(crate) steps: usize,
    pub(crate) from: PanelRoom,
    pub(crate) rows: usize,
    pub(crate) x: *const E,
    /// Elements from one row of activations to the next.
    pub(crate) stride: usize,
    /// For each row of activations 16 sums, to which products are added.
    pub(crate) sums: *mut [f32; PANEL_ROWS],
}

/// Adds the products of some columns of a panel: a group is summed before it is scaled, as in
/// [`qgemv`](crate::ops::qgemv::qgemv).
///
/// # Safety
/// What the arguments name exists; the instruction set.
#[inline(always)]
pub(crate) unsafe fn few<E: Element, P: Prim<E> + Prim<f32> + Widen>(a: &FewArgs<E>) {
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

/// [`few`] for `M` rows of activations, from row `first`. Returns `M`.
///
/// Loops use counters: iterators over slices may not be inlined, and then sums cannot stay in registers.
///
/// # Safety
/// The contract of [`few`], for these rows.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
pub(crate) unsafe fn rows<E: Element, P: Prim<E> + Prim<f32> + Widen, const M: usize>(
    a: &FewArgs<E>,
    first: usize,
) -> usize {
    // Vectors of a panel's rows that are multiplied side by side. With `M` rows of activations they have up to four pairs of
    // sums: enough that additions do not wait for each other, and half of the smallest register file.
    let vectors = const { min(PANEL_ROWS / P::LANES, 4 / M) };
    let groups = a.kind.groups();
    let cols = STEP_COLS / groups;
    let mut converted = [[0f32; STEP_COLS]; M];
    // SAFETY: the caller's contract; steps, groups and columns are within the panel and the rows.
    unsafe {
        for g in 0..a.steps * groups {
            let row = from_fn::<_, M>(|m| a.x.add((first + m) * a.stride + g * cols));
            let (mut x, mut all) = (row.each(<*const E>::cast::<f32>), [P::splat(0.0); M]);
            if a.kind.offsets || E::TYPE != ElementType::F32 {
                for m in 0..M {
                    let to = converted[m].as_mut_ptr();
                    let mut sum = P::splat(0.0);
                    for c in (0..cols).step_by(P::LANES) {
                        let v = <P as Prim<E>>::load(row[m].add(c));
                        sum = P::add(sum, v);
                        if E::TYPE != ElementType::F32 {
                            <P as Prim<f32>>::store(to.add(c), v);
                            x[m] = to;
                        }
                    }
                    if a.kind.offsets {
                        all[m] = P::splat(P::reduce_sum(sum));
                    }
                }
            }
            for i in (0..PANEL_ROWS).step_by(vectors * P::LANES) {
                let mut sums = [[[P::splat(0.0); 2]; M]; 4];
                for c in (0..cols).step_by(4) {
                    let codes = a.from.codes.add((g * cols + c) * PANEL_ROWS + 4 * i).cast::<i8>();
                    for v in 0..vectors {
                        let codes = P::widen_fours(codes.add(4 * v * P::LANES));
                        for t in 0..4 {
                            for m in 0..M {
                                sums[v][m][t % 2] =
                                    P::fma(codes[t], P::splat(*x[m].add(c + t)), sums[v][m][t % 2]);
                            }
                        }
                    }
                }
                for v in 0..vectors {
                    let row = i + v * P::LANES;
                    let at = |p: *const f32| <P as Prim<f32>>::load(p.add(g * PANEL_ROWS + row));
                    let scales = at(a.from.scales);
                    for m in 0..M {
                        let to = a.sums.add(first + m).cast::<f32>().add(row);
                        let [even, odd] = sums[v][m];
                        let mut sum = P::fma(P::add(even, odd), scales, <P as Prim<f32>>::load(to));
                        if a.kind.offsets {
                            sum = P::fma(at(a.from.offsets), all[m], sum);
                        }
                        <P as Prim<f32>>::store(to, sum);
                    }
                }
            }
        }
    }
    M
}

/// The smaller number.
const fn min(a: usize, b: usize) -> usize {
    if a < b {
        a
    } else {
        b
    }
}
