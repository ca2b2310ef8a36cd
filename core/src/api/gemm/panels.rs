//! Products whose operands are brought into panels beforehand. This serves callers that make `B` part by part, as decoding of
//! quantised weights does, and multiply the same `A` with each part.

use super::{GemmPlan, Source};
use crate::args::micro::Micro;
use crate::element::Operand;
use crate::error::KernelError;
use crate::ops::loops::blocks::BlockSizes;
use crate::ops::loops::operands::Strided;
use crate::ops::pack::{PackArgs, Reading};
use crate::scratch::ScratchReq;
use crate::view::{MatMut, MatRef};

impl<E: Operand> GemmPlan<E> {
    /// The plan for a `B` whose blocks are made when they are needed ([`Source::Made`]). Blocks have a multiple of
    /// `unit` steps, which is a power of two, and a multiple of `columns` columns; the last ones may have fewer.
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub(crate) fn making(self, columns: usize, unit: usize) -> Result<Self, KernelError> {
        let kernels = self.kernels;
        let shape = [self.n, self.k];
        let blocks = self.blocks.made(kernels.micro, kernels.caps().caches(), shape, [columns, unit])?;
        Ok(Self { blocks, ..self })
    }

    /// Steps of a block, at most.
    pub(crate) fn depth(&self) -> usize {
        self.blocks.kc
    }

    /// The plan for fewer rows, with the same blocks.
    pub(crate) fn for_rows(self, m: usize) -> Self {
        Self { m, ..self }
    }

    /// Room for the panels of all of `A` ([`pack_a`](Self::pack_a)), for a block of `B`, and for the sums that are kept between blocks
    /// of the depth.
    pub(crate) fn rooms(&self) -> Result<[ScratchReq; 3], KernelError> {
        let BlockSizes { a, b, sums, .. } = self.blocks;
        let Micro { a: panel, depth, around, .. } = *self.kernels.micro;
        if around.is_some() {
            return Ok([a, b, sums]);
        }
        let overflow = KernelError::SizeOverflow { what: "scratch size" };
        let depth = self.k.checked_next_multiple_of(depth).ok_or(overflow)?;
        let each = depth.saturating_mul(panel.element.size()).saturating_add(panel.tail());
        let len = self.m.checked_next_multiple_of(panel.width).ok_or(overflow)?;
        Ok([ScratchReq::array::<u8>(len.checked_mul(each).ok_or(overflow)?)?, b, sums])
    }

    /// Brings all of `A` into panels at `to`, unless tiles read it where it is, or the loops pack it once themselves.
    ///
    /// # Safety
    /// `A` has the plan's shape; there is room for its panels.
    pub(crate) unsafe fn pack_a(&self, a: MatRef<'_, E>, to: *mut u8) -> Source<'static> {
        let micro = self.kernels.micro;
        let source = self.blocks.left(micro, [self.m, self.k], Strided::of(a), to);
        let Source::Pack(Strided { ptr: src, across, along }, dst) = source else { return source };
        if micro.around.is_some() {
            return source;
        }
        let depth = self.k.checked_next_multiple_of(micro.depth).unwrap_or(self.k);
        let (len, k, panel, reading) =
            (self.m, self.k, micro.a, Reading::of(self.kernels.caps().prefetcher()));
        let args = PackArgs { len, k, depth, src, across, along, panel, dst, reading };
        // SAFETY: the caller's contract; the microkernel was chosen by what the CPU has.
        unsafe { (self.kernels.helpers().pack_a)(&args) };
        Source::Panels(dst)
    }

    /// The product of the result of [`pack_a`](Self::pack_a) and panels of all of `B`. It uses the microkernel for any size.
    ///
    /// # Safety
    /// The panels exist, and are those of this plan; there is room for the sums.
    pub(crate) unsafe fn run_sources(
        &self,
        mut c: MatMut<'_, E::Sum>,
        a: Source<'_>,
        b: Source<'_>,
        sums: *mut u8,
        bias: Option<&[E::Sum]>,
    ) {
        if self.m == 0 || self.n == 0 {
            return;
        }
        if self.k == 0 {
            self.scale_c(&mut c, bias);
            // SAFETY: the elements of the view, which is exclusive; the instruction set is present.
            return unsafe { self.finish(&mut c).run() };
        }
        // SAFETY: the caller's contract.
        unsafe { self.loops(&mut c, a, b, sums, bias).run() };
    }
}
