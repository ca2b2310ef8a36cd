//! Products of weights decoded to the type of the activations.

use core::ptr::NonNull;

use super::tile::{DecodePanelArgs, PanelRoom, Unsorted};
use super::{QgemmPlan, QuantWeights, FEW_EXACT};
use crate::dispatch::StorePolicy;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::gemm::GemmPlan;
use crate::quant::packed::{ROWS, STEP};
use crate::scratch::{Scratch, ScratchReq};
use crate::view::{MatMut, MatRef};

/// Columns of `Y` that are computed at a time: so many that packing the activations for each such block costs little, and so
/// few that the decoded weights stay in L3.
const COLUMNS: usize = 16 * ROWS;

impl<E: Element> QgemmPlan<E> {
    /// The dense product of some columns. It takes the way that the whole product takes, however wide that is.
    fn dense(&self, m: usize, n: usize) -> Result<GemmPlan<E>, KernelError> {
        let plan = self.kernels.gemm_plan(self.whole, COLUMNS, self.k)?.resized(m, n)?;
        Ok(self.activation.into_iter().fold(plan, GemmPlan::activation))
    }

    /// Columns of a block.
    fn columns(&self) -> usize {
        self.n.next_multiple_of(ROWS).min(COLUMNS)
    }

    pub(super) fn scratch_exact(&self) -> Result<ScratchReq, KernelError> {
        let overflow = KernelError::SizeOverflow { what: "scratch size" };
        let decoded = self.k.checked_mul(self.columns()).ok_or(overflow)?;
        let panel = ScratchReq::array::<u8>(self.panel()?.bytes())?;
        let dense = self.dense(self.m, self.columns())?.scratch()?;
        ScratchReq::array::<E>(decoded)?.and(panel)?.and(ScratchReq::array::<Unsorted>(1)?)?.and(dense)
    }

    pub(super) fn exact(
        &self,
        y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: MatRef<'_, E>,
        bias: Option<&[f32]>,
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        let floats = self.format.element().is_some();
        let w = match w {
            QuantWeights::Packed(w) if floats => QuantWeights::InPlace(w.floats()?),
            w => w,
        };
        if let (QuantWeights::InPlace(w), true) = (w, self.whole <= FEW_EXACT) {
            let (mut y, size) = (y, [self.m, self.n]);
            let (strides, p) = ([y.row_stride(), y.col_stride()], y.as_mut_ptr());
            self.kernels.qgemv_rows(w, x, y)?;
            // SAFETY: the elements of the view, which is exclusive; the bias has one for each column.
            unsafe { self.finish(p, strides, size, bias.map(<[f32]>::as_ptr)) };
            return Ok(());
        }
        let (size, columns) = (self.panel()?, self.columns());
        let decoded = scratch.take::<u8>(self.k.saturating_mul(columns).saturating_mul(size_of::<E>()))?;
        // Nothing is at an address that suits no more than bytes.
        let nothing = NonNull::<E>::dangling().as_ptr();
        let decoded = if decoded.is_empty() { nothing } else { decoded.as_mut_ptr().cast() };
        let room = size.at(scratch.take::<u8>(size.bytes())?.as_mut_ptr(), 0);
        let unsorted = scratch.take::<u8>(size_of::<Unsorted>())?.as_mut_ptr().cast::<Unsorted>();
        let memory = scratch.take::<u8>(self.dense(self.m, columns)?.scratch()?.size())?;
        let mut rest = y.t();
        let mut first = 0;
        while first < self.n {
            let cols = (self.n - first).min(columns);
            // SAFETY: there is room for as many elements, which are bits of any kind.
            let block = unsafe { core::slice::from_raw_parts_mut(decoded, self.k * columns) };
            let at = match w {
                // Rows of weights are those of a transposed matrix.
                QuantWeights::InPlace(w) if floats => {
                    let block = block.get_mut(..self.k * cols).unwrap_or(&mut []);
                    self.kernels
                        .with_stores(StorePolicy::Cached)
                        .dequant(w.row_range(first, cols)?, block)?;
                    [1, self.k]
                }
                _ => [columns, 1],
            };
            for p in 0..if floats { 0 } else { cols.div_ceil(ROWS) } {
                // SAFETY: the panel is one of the weights, and there is room for it and what it is decoded to.
                unsafe {
                    self.unpack(w, first / ROWS + p, unsorted, room);
                    self.decode(room, decoded.add(p * ROWS), columns);
                }
            }
            let (part, right) = rest.split_rows(cols)?;
            rest = right;
            // SAFETY: as above.
            let b = unsafe { core::slice::from_raw_parts(decoded.cast_const(), self.k * columns) };
            let b = MatRef::with_strides(b, self.k, cols, at[0], at[1])?;
            let plan = self.dense(self.m, cols)?;
            match bias.and_then(|bias| bias.get(first..first + cols)) {
                Some(bias) => plan.run_bias(part.t(), x, b, bias, Scratch::new(memory))?,
                None => plan.run(part.t(), x, b, Scratch::new(memory))?,
            }
            first += cols;
        }
        Ok(())
    }

    /// Decodes a panel to 16 columns of a matrix.
    ///
    /// # Safety
    /// The panel, and room for `k` rows `stride` apart.
    unsafe fn decode(&self, from: PanelRoom, dst: *mut E, stride: usize) {
        let args = DecodePanelArgs { kind: self.kind(), steps: self.k / STEP, from, dst, stride };
        // SAFETY: the caller's contract; the table's instruction set is present.
        unsafe { (self.kernels.table.qgemm_exact)(&args) };
    }
}
