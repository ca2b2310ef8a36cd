//! How much scratch memory a product needs.

use super::GemmPlan;
use crate::args::micro::MAX_SIDE;
use crate::element::Operand;
use crate::error::KernelError;
use crate::ops::loops::blocks::BlockSizes;
use crate::ops::skinny;
use crate::scratch::ScratchReq;

impl<E: Operand> GemmPlan<E> {
    /// Scratch memory for [`run`](Self::run) with `B` as a matrix. See [`scratch_packed`](Self::scratch_packed) for `B`
    /// in packed form.
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub fn scratch(&self) -> Result<ScratchReq, KernelError> {
        let [rows, cols] = self.whole;
        // A vector that is not contiguous is copied.
        let vector = if rows == 1 || cols == 1 {
            let len = self.k.max(self.m.max(self.n)).min(self.k.saturating_mul(self.m.max(self.n)));
            ScratchReq::array::<f32>(len)?
        } else {
            ScratchReq::EMPTY
        };
        if rows == 1 && E::TYPE.is_float() {
            return Ok(vector);
        }
        let room = |blocks: BlockSizes| blocks.a.and(blocks.sums)?.and(blocks.b);
        let (straight, turned) = (room(self.blocks)?, room(self.turned)?);
        let direct = if E::TYPE.is_float() { [vector, self.skinny()?] } else { [ScratchReq::EMPTY; 2] };
        let larger = |a: ScratchReq, b: ScratchReq| if a.size() < b.size() { b } else { a };
        Ok([turned].into_iter().chain(direct).fold(straight, larger))
    }

    /// Scratch memory for [`run`](Self::run) with `B` from [`Kernels::pack_b`](crate::Kernels::pack_b), which needs no
    /// room for a block of `B`.
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub fn scratch_packed(&self) -> Result<ScratchReq, KernelError> {
        if E::TYPE.is_float() && skinny::serves_panels(self.kernels.micro, self.whole[0]) {
            return self.skinny();
        }
        self.blocks.a.and(self.blocks.sums)
    }

    /// Scratch memory of a skinny product.
    fn skinny(&self) -> Result<ScratchReq, KernelError> {
        if self.whole[0] > skinny::MAX_ROWS {
            return Ok(ScratchReq::EMPTY);
        }
        skinny::scratch(self.m, self.n, self.k)
    }

    /// An upper bound of [`scratch`](Self::scratch) for this shape on every CPU, for sizing static
    /// memory at compile time.
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub const fn scratch_bound(m: usize, n: usize, k: usize) -> Result<ScratchReq, KernelError> {
        /// A block is larger than the matrix by less than a tile.
        const TILE: usize = MAX_SIDE;
        let overflow = Err(KernelError::SizeOverflow { what: "scratch size" });
        let few = skinny::scratch(m, n, k);
        let (Some(m), Some(n), Some(k)) =
            (m.checked_add(TILE), n.checked_add(TILE), k.checked_next_multiple_of(TILE))
        else {
            return overflow;
        };
        let (Some(a), Some(b)) = (m.checked_mul(k), n.checked_mul(k)) else {
            return overflow;
        };
        match (ScratchReq::array::<f32>(a), ScratchReq::array::<f32>(b), few) {
            (Ok(a), Ok(b), Ok(few)) => match a.and(b) {
                Ok(many) if many.size() < few.size() => Ok(few),
                many => many,
            },
            _ => overflow,
        }
    }
}
