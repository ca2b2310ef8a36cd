//! Packing of a matrix `B` once, for many products.

use crate::element::Operand;
use crate::error::KernelError;
use crate::ops::pack::{PackArgs, PackedB, PanelLayout, Reading};
use crate::table::Kernels;
use crate::view::MatRef;

/// # Packed weights
///
/// A matrix `B` that many products share (a layer's weights) is brought into panel order once, at load
/// time; [`GemmPlan::run`](crate::GemmPlan::run) then only packs `A`.
impl<E: Operand> Kernels<E> {
    /// Bytes of the buffer that [`pack_b`](Self::pack_b) needs for a `k x n` matrix, wherever the buffer
    /// starts.
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub fn packed_b_size(&self, k: usize, n: usize) -> Result<usize, KernelError> {
        PanelLayout::of(self.micro).header(k, n)?.size()
    }

    /// Packs `B` (`k x n`, any strides; for weights stored as `n x k` pass [`b.t()`](MatRef::t)) for
    /// these kernels. f16 and bf16 stay 16 bits wide where a kernel can widen them as fast as it multiplies.
    ///
    /// # Errors
    /// `ShortSlice` if `buf` has less than [`packed_b_size`](Self::packed_b_size) bytes, `SizeOverflow`.
    pub fn pack_b<'a>(&self, b: MatRef<'_, E>, buf: &'a mut [u8]) -> Result<PackedB<'a>, KernelError> {
        let (k, n, kind) = (b.rows(), b.cols(), PanelLayout::of(self.micro));
        let panels = kind.header(k, n)?.write(buf)?;
        if panels.is_empty() {
            return PackedB::open(buf, kind, k, n);
        }
        let dst = panels.as_mut_ptr();
        let args = PackArgs {
            len: n,
            k,
            // No overflow: the size that was checked is larger.
            depth: k.checked_next_multiple_of(kind.depth).unwrap_or(k),
            src: b.as_ptr().cast(),
            across: b.col_stride().wrapping_mul(size_of::<E>()),
            along: b.row_stride().wrapping_mul(size_of::<E>()),
            panel: kind.panel,
            dst,
            reading: Reading::of(self.caps().prefetcher()),
        };
        // SAFETY: the view covers every element; there is room for
        // all panels, which start aligned; the instruction set is present.
        unsafe { (self.helpers().pack_b)(&args) };
        PackedB::open(buf, kind, k, n)
    }

    /// Opens a buffer that [`pack_b`](Self::pack_b) has filled from a `k x n` matrix, now or in another
    /// process.
    ///
    /// # Errors
    /// `WrongPacking` if the header is damaged, or is another version's, storage type's or instruction
    /// set's; `DimMismatch` if it is another shape's; `ShortSlice` if bytes are missing; `BadParameter` if the bytes have moved by
    /// something else than a multiple of 4.
    pub fn packed_b<'a>(&self, buf: &'a [u8], k: usize, n: usize) -> Result<PackedB<'a>, KernelError> {
        PackedB::open(buf, PanelLayout::of(self.micro), k, n)
    }
}
