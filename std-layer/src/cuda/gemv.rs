//! Dense weights times few vectors.

use gllm_kernels_core::KernelError;

use super::error::CudaError;
use super::kernels::{type_number, File, Name, TYPES};
use super::memory::{View, ViewMut};
use super::module::Arguments;
use super::stream::Stream;
use super::sys::Address;
use super::{Float, Ops};
use crate::gpu::check::{aligned, area, bad, same_len, small};
use crate::gpu::geometry;

#[derive(Clone, Copy)]
#[repr(C)]
struct GemvArgs {
    w: Address,
    x: Address,
    y: Address,
    rows: u32,
    cols: u32,
    batch: u32,
    ty: u32,
}
// SAFETY: as in gemv.cu.
unsafe impl Arguments for GemvArgs {}

/// How many vectors the kernels are compiled for.
const WIDTHS: [(usize, &str); 4] = [(1, "n1"), (2, "n2"), (4, "n4"), (8, "n8")];

impl Ops {
    /// `Y = X W^T` for one to eight vectors: `x` is `m x k`, `w` is `n x k`, `y` is `m x n`, all by rows. Products and sums are in f32, and
    /// do not depend on `m`.
    ///
    /// # Errors
    /// `Kernel` unless `x` has 1 to 8 rows of `k`, a multiple of 8; `WrongSize` unless `w` and `y` have their sizes; `Misaligned` unless
    /// `w` and `x` start at multiples of 16 bytes; `OtherContext`, `Launch`.
    pub fn gemv<'a, T: Float, U: Float>(
        &self,
        stream: &Stream,
        (n, k): (usize, usize),
        w: impl Into<View<'a, T>>,
        x: View<'_, f32>,
        y: impl Into<ViewMut<'a, U>>,
    ) -> Result<(), CudaError> {
        let (w, y) = (w.into(), y.into());
        // 16 bytes at a time.
        if k == 0 || !k.is_multiple_of(8) {
            return Err(KernelError::NotBlockMultiple { cols: k, block: 8 }.into());
        }
        let batch = crate::gpu::check::rows(x.len(), k)?;
        if !(1..=8).contains(&batch) {
            return Err(bad("x", "1 to 8 vectors"));
        }
        same_len("w", w.len(), area("elements of w", &[n, k])?)?;
        same_len("y", y.len(), area("elements of y", &[batch, n])?)?;
        for context in [w.context(), x.context(), y.context()] {
            self.here(context)?;
        }
        aligned("w", w.address())?;
        aligned("x", x.address())?;
        let args = GemvArgs {
            w: w.address(),
            x: x.address(),
            y: y.address(),
            rows: small("n", n)?,
            cols: small("k", k)?,
            batch: small("batch", batch)?,
            ty: type_number(U::TYPE),
        };
        let (width, suffix) = WIDTHS.into_iter().find(|w| w.0 >= batch).unwrap_or((8, "n8"));
        let kernel = (File::gemv, Name("gemv", T::TYPE.name(), suffix));
        // SAFETY: the arguments were checked.
        unsafe { self.loader.launch(kernel, stream, geometry::gemv(n, width), &args) }
    }
}

pub(super) fn list(to: &mut dyn FnMut(File, Name, usize)) {
    for ty in TYPES {
        for (_, n) in WIDTHS {
            to(File::gemv, Name("gemv", ty, n), size_of::<GemvArgs>());
        }
    }
}
