//! Dense weights times few vectors.

use gllm_kernels_core::KernelError;

use super::check::{aligned, area, same_len, small};
use super::error::CudaError;
use super::geometry;
use super::kernels::{type_number, File, Name, TYPES};
use super::memory::{View, ViewMut};
use super::module::Arguments;
use super::quant::width;
use super::segments::Segments;
use super::stream::Stream;
use super::sys::Address;
use super::{Float, Ops};

#[derive(Clone, Copy)]
#[repr(C)]
struct GemvArgs {
    w: Address,
    x: Address,
    y: Address,
    segments: Address,
    rows: u32,
    cols: u32,
    batch: u32,
    ty: u32,
    single: u32,
}
// SAFETY: as in gemv.cu.
unsafe impl Arguments for GemvArgs {}

/// How many vectors the kernels are compiled for.
const WIDTHS: [(usize, &str); 4] = super::quant::INTEGER_WIDTHS;

impl Ops {
    /// `Y = X W^T` for few vectors, eight at a time: `x` is `m x k`, `w` is `n x k`, `y` is `m x n`, all by rows. Products and sums are in
    /// f32, and do not depend on `m`.
    ///
    /// # Errors
    /// `Kernel` unless `x` has rows of `k`, a multiple of 8; `WrongSize` unless `w` and `y` have their sizes; `Misaligned` unless
    /// `w` and `x` start at multiples of 16 bytes; `OtherContext`, `Launch`.
    pub fn gemv<'a, T: Float, U: Float>(
        &self,
        stream: &Stream,
        shape: (usize, usize),
        w: impl Into<View<'a, T>>,
        x: View<'_, f32>,
        y: impl Into<ViewMut<'a, U>>,
    ) -> Result<(), CudaError> {
        self.gemv_of(stream, shape, (w.into(), None), x, y.into())
    }

    /// [`gemv`](Self::gemv), or with several matrices of that shape.
    ///
    /// # Errors
    /// Those of [`gemv`](Self::gemv).
    pub(crate) fn gemv_of<T: Float, U: Float>(
        &self,
        stream: &Stream,
        (n, k): (usize, usize),
        (w, segments): (View<'_, T>, Option<Segments<'_>>),
        x: View<'_, f32>,
        y: ViewMut<'_, U>,
    ) -> Result<(), CudaError> {
        // 16 bytes at a time.
        if k == 0 || !k.is_multiple_of(8) {
            return Err(KernelError::NotBlockMultiple { cols: k, block: 8 }.into());
        }
        let m = super::check::rows(x.len(), k)?;
        let spread = self.spread(segments, (m, n, y.len()))?;
        same_len("w", w.len(), area("elements of w", &[spread.matrices, n, k])?)?;
        same_len("y", y.len(), area("elements of y", &[spread.rows, n])?)?;
        for context in [w.context(), x.context(), y.context()] {
            self.here(context)?;
        }
        aligned("w", w.address())?;
        aligned("x", x.address())?;
        let args = GemvArgs {
            w: w.address(),
            x: x.address(),
            y: y.address(),
            segments: spread.table,
            rows: small("n", n)?,
            cols: small("k", k)?,
            batch: small("batch", spread.rows)?,
            ty: type_number(U::TYPE),
            single: spread.single,
        };
        let (width, suffix) = width(&WIDTHS, segments.map_or(m, |segments| segments.most));
        let blocks = spread.blocks.unwrap_or(m.div_ceil(width));
        let kernel = (File::gemv, Name("gemv", T::TYPE.name(), suffix));
        // SAFETY: the arguments were checked; segments are of rows and matrices that exist.
        unsafe { self.loader.launch(kernel, stream, geometry::gemv(n, width, blocks), &args) }
    }
}

pub(super) fn list(to: &mut dyn FnMut(File, Name, usize)) {
    for ty in TYPES {
        for (_, n) in WIDTHS {
            to(File::gemv, Name("gemv", ty, n), size_of::<GemvArgs>());
        }
    }
}
