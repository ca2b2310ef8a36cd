//! Products in bf16 of activations of another type, which are rounded first.

use super::{Precision, QgemmPlan, QuantWeights, ROUNDED_ROWS};
use crate::check;
use crate::element::{bf16, Element, ElementType};
use crate::error::KernelError;
use crate::ops::unquantised::UnquantisedEncodeArgs;
use crate::scratch::{Scratch, ScratchReq};
use crate::table::Kernels;
use crate::view::{MatMut, MatRef};

impl<E: Element> Kernels<E> {
    /// Rounds activations to bf16, to nearest even: `y` gets the rows of `x`, one behind the other.
    ///
    /// # Errors
    /// `WrongLength` unless `y` has as many elements as `x`, `BadValue` if the columns of `x` are not contiguous.
    pub(super) fn round_bf16(&self, x: MatRef<'_, E>, y: &mut [bf16]) -> Result<(), KernelError> {
        let (rows, cols) = (x.rows(), x.cols());
        check::contiguous("x.col_stride()", x.col_stride(), x.cols())?;
        check::len("y", y.len(), rows.saturating_mul(cols))?;
        if y.is_empty() {
            return Ok(());
        }
        for row in 0..rows {
            let (x, w) = (
                x.as_ptr().wrapping_add(row.wrapping_mul(x.row_stride())),
                y.as_mut_ptr().wrapping_add(row * cols),
            );
            let args = UnquantisedEncodeArgs { to: ElementType::Bf16, n: cols, x, w: w.cast() };
            // SAFETY: a row of the view, room for it; the table's instruction set is present.
            unsafe { (self.table.float_encode)(&args) };
        }
        if cfg!(target_endian = "big") {
            y.iter_mut().for_each(|y| *y = bf16::from_le_bytes(y.to_ne_bytes()));
        }
        Ok(())
    }
}

impl<E: Element> QgemmPlan<E> {
    /// The plan that multiplies activations once they are rounded to bf16.
    pub(super) fn in_bf16(self) -> QgemmPlan<bf16> {
        let Self { kernels, format, m, n, k, activation, whole, packed, op, .. } = self;
        let (kernels, precision) = (kernels.of(), Precision::Exact);
        QgemmPlan { kernels, format, m, n, k, precision, activation, whole, packed, op }
    }

    /// The plan for as many rows as are rounded at a time.
    fn block(&self) -> QgemmPlan<bf16> {
        self.resized(self.m.min(ROUNDED_ROWS), self.n).in_bf16()
    }

    pub(super) fn scratch_bf16(&self) -> Result<ScratchReq, KernelError> {
        let plan = self.block();
        let overflow = KernelError::SizeOverflow { what: "scratch size" };
        ScratchReq::array::<bf16>(plan.m.checked_mul(self.k).ok_or(overflow)?)?.and(plan.scratch_exact()?)
    }

    pub(super) fn rounded(
        &self,
        mut y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: MatRef<'_, E>,
        bias: Option<&[f32]>,
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        let plan = self.block();
        let room = scratch.take::<bf16>(plan.m.saturating_mul(self.k))?;
        let rest = scratch.take::<u8>(plan.scratch_exact()?.size())?;
        let mut first = 0;
        while first < self.m {
            let rows = plan.m.min(self.m - first);
            let (part, below) = y.split_rows(rows)?;
            y = below;
            let room = room.get_mut(..rows * self.k).unwrap_or(&mut []);
            self.kernels.round_bf16(x.row_range(first, rows)?, room)?;
            let x = MatRef::new(room, rows, self.k)?;
            plan.resized(rows, self.n).exact(part, w, x, bias, Scratch::new(rest))?;
            first += rows;
        }
        Ok(())
    }
}
