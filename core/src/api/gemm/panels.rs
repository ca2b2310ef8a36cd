//! Products whose operands are brought into panels beforehand. This serves callers that make `B` part by part, as decoding of
//! quantised weights does, and multiply the same `A` with each part.

use super::{GemmPlan, Source};
use crate::args::micro::Panel;
use crate::element::Operand;
use crate::error::KernelError;
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

    /// Room for a block of `B`.
    pub(crate) fn block_b(&self) -> ScratchReq {
        self.blocks.b
    }

    /// Room for the panels of all of `A`: for [`pack_a`](Self::pack_a).
    pub(crate) fn panels_a(&self) -> Result<ScratchReq, KernelError> {
        self.panels(self.kernels.micro.a, self.m)
    }

    /// Room for the panels of all of `B`: for [`pack_b`](Self::pack_b).
    pub(crate) fn panels_b(&self) -> Result<ScratchReq, KernelError> {
        self.panels(self.kernels.micro.b, self.n)
    }

    fn panels(&self, panel: Panel, len: usize) -> Result<ScratchReq, KernelError> {
        let overflow = KernelError::SizeOverflow { what: "scratch size" };
        let depth = self.k.checked_next_multiple_of(self.kernels.micro.depth).ok_or(overflow)?;
        let each = depth.saturating_mul(panel.element.size()).saturating_add(panel.tail());
        let len = len.checked_next_multiple_of(panel.width).ok_or(overflow)?;
        ScratchReq::array::<u8>(len.checked_mul(each).ok_or(overflow)?)
    }

    /// Brings all of `A` into panels at `to`, unless tiles read it where it is.
    ///
    /// # Safety
    /// `A` has the plan's shape; there is room for [`panels_a`](Self::panels_a).
    pub(crate) unsafe fn pack_a(&self, a: MatRef<'_, E>, to: *mut u8) -> Source<'static> {
        let micro = self.kernels.micro;
        let source = self.blocks.left(micro, [self.m, self.k], Strided::of(a), to);
        let Source::Pack(matrix, dst) = source else { return source };
        let args = self.pack_args(self.m, matrix, micro.a, dst);
        // SAFETY: the caller's contract; the microkernel was chosen by what the CPU has.
        unsafe { (self.kernels.helpers().pack_a)(&args) };
        Source::Panels(dst)
    }

    /// Brings all of `B` into panels at `to`; `bt` is its transpose.
    ///
    /// # Safety
    /// `bt` has the plan's shape, `n x k`; there is room for [`panels_b`](Self::panels_b).
    pub(crate) unsafe fn pack_b(&self, bt: MatRef<'_, E>, to: *mut u8) {
        let args = self.pack_args(bt.rows(), Strided::of(bt), self.kernels.micro.b, to);
        // SAFETY: the caller's contract; the microkernel was chosen by what the CPU has.
        unsafe { (self.kernels.helpers().pack_b)(&args) };
    }

    fn pack_args(&self, len: usize, from: Strided, panel: Panel, dst: *mut u8) -> PackArgs {
        let depth = self.k.checked_next_multiple_of(self.kernels.micro.depth).unwrap_or(self.k);
        let Strided { ptr: src, across, along } = from;
        let reading = Reading::of(self.kernels.caps().prefetcher());
        PackArgs { len, k: self.k, depth, src, across, along, panel, dst, reading }
    }

    /// The product of the result of [`pack_a`](Self::pack_a) and panels of all of `B`. It uses the microkernel for any size.
    ///
    /// # Safety
    /// The panels exist, and are those of this plan.
    pub(crate) unsafe fn run_sources(
        &self,
        mut c: MatMut<'_, E::Sum>,
        a: Source<'_>,
        b: Source<'_>,
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
        unsafe { self.loops(&mut c, a, b, bias).run() };
    }
}
