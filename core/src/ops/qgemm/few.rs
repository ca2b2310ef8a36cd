//! Products of packed weights with a few rows of exact activations: panels are unpacked piece by piece, into the
//! first-level cache, and multiplied from there.

use super::tile::{Kind, PanelQArgs, PanelRoom};
use super::{QgemmPlan, FEW_EXACT};
use crate::arrays::Each;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::qpack::PackedQ;
use crate::quant::packed::{ROWS, STEP, STEPS, UNIT};
use crate::scratch::{Scratch, ScratchReq};
use crate::vector::Prim;
use crate::view::{MatMut, MatRef};

/// Columns of a panel that are unpacked at a time, in whole units: their codes take half of a first-level cache.
const PIECE: usize = 4 * UNIT;

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
/// As there, for these rows.
#[inline(always)]
unsafe fn rows<E: Element, P: Prim<E> + Prim<f32>, const M: usize>(a: &FewArgs<E>, first: usize) -> usize {
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

impl<E: Element> QgemmPlan<E> {
    /// Memory for a piece.
    pub(super) fn scratch_few(&self) -> Result<ScratchReq, KernelError> {
        ScratchReq::array::<u8>(self.panel_of(self.k.min(PIECE))?.bytes())
    }

    /// The product with packed weights, for at most [`FEW_EXACT`] rows of activations.
    pub(super) fn few_packed(
        &self,
        mut y: MatMut<'_, f32>,
        w: PackedQ<'_>,
        x: MatRef<'_, E>,
        bias: Option<&[f32]>,
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        // Plain floating point is taken in place.
        let Some(packing) = w.packing() else { return Ok(()) };
        let size = self.panel_of(self.k.min(PIECE))?;
        let to = size.at(scratch.take::<u8>(size.bytes())?.as_mut_ptr(), 0);
        let (strides, y) = ([y.row_stride(), y.col_stride()], y.as_mut_ptr());
        let panel_bytes = packing.panel_bytes(self.k).unwrap_or(0);
        for panel in 0..self.n.div_ceil(ROWS) {
            let mut sums = [[0f32; ROWS]; FEW_EXACT];
            for first in (0..self.k).step_by(PIECE) {
                let at = panel * panel_bytes + first / UNIT * packing.unit_bytes(STEPS);
                let steps = (self.k - first).min(PIECE) / STEP;
                // SAFETY: the panel is one of the weights, whose shape was checked, and so was that of the activations, of
                // which there are not more rows than sums; there is room for a piece; the instruction set is present.
                unsafe {
                    (self.kernels.table.qgemm_q)(&PanelQArgs { packing, w: w.as_ptr().add(at), steps, to });
                    (self.kernels.table.qgemm_few)(&FewArgs {
                        kind: self.kind(),
                        steps,
                        from: to,
                        rows: self.m.min(FEW_EXACT),
                        x: x.as_ptr().add(first),
                        stride: x.row_stride(),
                        sums: sums.as_mut_ptr(),
                    });
                }
            }
            let cols = (self.n - panel * ROWS).min(ROWS);
            for (m, sums) in sums.iter().enumerate().take(self.m) {
                for (r, &sum) in sums.iter().enumerate().take(cols) {
                    // SAFETY: rows and columns of the view.
                    unsafe { *y.add(m * strides[0] + (panel * ROWS + r) * strides[1]) = sum };
                }
            }
        }
        // SAFETY: the elements of the view, which is exclusive; the bias has one for each column.
        unsafe { self.finish(y, strides, [self.m, self.n], bias.map(<[f32]>::as_ptr)) };
        Ok(())
    }
}
