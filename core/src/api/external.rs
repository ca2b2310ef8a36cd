//! Operators on the formats of other checkpoints.

use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::external::{output, ColumnsArgs, ExternalArgs, Inputs};
use crate::ops::external::{AwqRef, Fp8Ref, GptqRef, SqueezeLlmRef};
use crate::table::Kernels;
use crate::view::MatMut;

mod sealed {
    pub trait Sealed {}
}

/// A view of a matrix in the format of another checkpoint. The trait is sealed.
pub trait External: sealed::Sealed + Copy + Send + Sync {
    /// Whether a row of the decoded matrix has all weights of an output (`outputs x inputs`); if not, it has those of
    /// an input (`inputs x outputs`).
    const BY_OUTPUT: bool;
    /// A range of outputs may begin at multiples of this.
    const OUTPUT_MULTIPLE: usize;
    /// Rows of `W`.
    fn outputs(&self) -> usize;
    /// Columns of `W`.
    fn inputs(&self) -> usize;
    /// Bytes that a product reads.
    fn size(&self) -> usize;
    /// Outputs `start .. start + len`.
    ///
    /// # Errors
    /// Those of the view's own `output_range`.
    fn output_range(self, start: usize, len: usize) -> Result<Self, KernelError>;
    /// Calls the format's method `dequant_..` of [`Kernels`].
    ///
    /// # Errors
    /// Those of that method.
    fn dequant_with<E: Element>(self, k: &Kernels<E>, y: MatMut<'_, E>) -> Result<(), KernelError>;
    /// Calls the format's method `qgemv_..` of [`Kernels`].
    ///
    /// # Errors
    /// Those of that method.
    fn qgemv_with<E: Element>(self, k: &Kernels<E>, x: &[E], y: &mut [f32]) -> Result<(), KernelError>;
}

/// Emits the implementation of [`External`] and the methods of [`Kernels`] for each format, whose documentation is
/// given.
macro_rules! external {
    ($(
        $view:ident {
            by_output: $by_output:literal, step: $step:literal,
            $(#[$dequant_doc:meta])*
            $dequant:ident,
            $(#[$qgemv_doc:meta])*
            $qgemv:ident($kind:ident),
        }
    )*) => {
        $(
            impl sealed::Sealed for $view<'_> {}
            impl External for $view<'_> {
                const BY_OUTPUT: bool = $by_output;
                const OUTPUT_MULTIPLE: usize = $step;
                fn outputs(&self) -> usize {
                    self.outputs()
                }
                fn inputs(&self) -> usize {
                    self.inputs()
                }
                fn size(&self) -> usize {
                    self.size()
                }
                fn output_range(self, start: usize, len: usize) -> Result<Self, KernelError> {
                    self.output_range(start, len)
                }
                fn dequant_with<E: Element>(
                    self,
                    k: &Kernels<E>,
                    y: MatMut<'_, E>,
                ) -> Result<(), KernelError> {
                    k.$dequant(self, y)
                }
                fn qgemv_with<E: Element>(
                    self,
                    k: &Kernels<E>,
                    x: &[E],
                    y: &mut [f32],
                ) -> Result<(), KernelError> {
                    k.$qgemv(self, x, y)
                }
            }
        )*

        /// # Weights in the layouts of other checkpoints
        ///
        /// Weights decode to f32, bit for bit what the reference computes, and are narrowed once. For some of the
        /// outputs use the view's `output_range`.
        ///
        /// Products take the activations as they are; products and sums are in f32. The order in which an output's
        /// terms are added depends on nothing but the number of inputs and which of them share a scale, so splitting
        /// the outputs (over threads, say) changes no bit. In the errors of products, `u` is 2^-24 and `S` the sum of
        /// the terms' magnitudes.
        impl<E: Element> Kernels<E> {$(
            $(#[$dequant_doc])*
            ///
            /// # Errors
            /// `DimMismatch` unless `y` has this shape; `BadValue` if its rows are not contiguous.
            pub fn $dequant(&self, w: $view<'_>, mut y: MatMut<'_, E>) -> Result<(), KernelError> {
                let (outputs, inputs) = (w.outputs(), w.inputs());
                let (rows, cols) = if $by_output { (outputs, inputs) } else { (inputs, outputs) };
                output(&y, rows, cols)?;
                if y.is_empty() {
                    return Ok(());
                }
                let args = ExternalArgs {
                    w,
                    x: core::ptr::null(),
                    y: core::ptr::null_mut(),
                    row_stride: y.row_stride(),
                    access: self.access(rows.saturating_mul(cols)),
                    out: y.as_mut_ptr(),
                };
                // SAFETY: a view has all its weights; `y` is exclusive and has room for them; the table's
                // instruction set is present.
                unsafe { (self.table.$dequant)(&args) };
                Ok(())
            }

            $(#[$qgemv_doc])*
            ///
            /// # Errors
            /// `WrongLength` unless `x` has `inputs` and `y` has `outputs` elements.
            pub fn $qgemv(&self, w: $view<'_>, x: &[E], y: &mut [f32]) -> Result<(), KernelError> {
                check::len("x", x.len(), w.inputs())?;
                check::len("y", y.len(), w.outputs())?;
                let args = external!(@args $kind self, w, x, y);
                // SAFETY: a view has all its weights; `x` and `y` were measured, and `y` is exclusive; the
                // table's instruction set is present.
                unsafe { (self.table.$qgemv)(&args) };
                Ok(())
            }
        )*}
    };
    // Activations of their own type.
    (@args typed $k:ident, $w:ident, $x:ident, $y:ident) => {
        ExternalArgs {
            w: $w,
            x: $x.as_ptr(),
            y: $y.as_mut_ptr(),
            out: core::ptr::null_mut(),
            row_stride: 0,
            access: $k.access_inplace(),
        }
    };
    // Activations that are widened first.
    (@args widened $k:ident, $w:ident, $x:ident, $y:ident) => {
        ColumnsArgs {
            w: $w,
            x: Inputs { x: $x.as_ptr().cast(), size: size_of::<E>(), widen: $k.table.widen },
            y: $y.as_mut_ptr(),
        }
    };
}
#[cfg(feature = "external")]
external! {
    Fp8Ref {
        by_output: true, step: 1,
        /// Decodes FP8 weights: `y[n, k] = w[n, k]`, `outputs x inputs`.
        dequant_fp8,
        /// FP8 matrix times vector: `y_n = sum_k w[n, k] * x_k`. The numbers of a tile's row are summed before the
        /// sum is scaled. The error is at most `(inputs / 16 + tiles + 32) * u * S`, where an output has `tiles`
        /// scales.
        qgemv_fp8(typed),
    }
    AwqRef {
        by_output: false, step: 8,
        /// Decodes AWQ weights: `y[k, n] = w[n, k]`, `inputs x outputs`, as in the file.
        dequant_awq,
        /// AWQ matrix times vector: `y_n = sum_k w[n, k] * x_k`. Integers of eight inputs, less their zero point,
        /// are summed before the sum is scaled. The error is at most `(inputs / 8 + groups * 8 + 8) * u * S`.
        qgemv_awq(widened),
    }
    GptqRef {
        by_output: false, step: 32,
        /// Decodes GPTQ weights: `y[k, n] = w[n, k]`, `inputs x outputs`, as in the file.
        dequant_gptq,
        /// GPTQ matrix times vector: `y_n = sum_k w[n, k] * x_k`. Integers of 32 inputs, less their zero point, are
        /// summed before the sum is scaled; where these inputs belong to several groups, each is scaled first, which is
        /// quick with up to 128 groups. The error is at most `(inputs / 32 + 16) * u * S`; with more than 128 groups,
        /// in any order, it is `(inputs + 2) * u * S`.
        qgemv_gptq(widened),
    }
    SqueezeLlmRef {
        by_output: true, step: 1,
        /// Decodes SqueezeLLM weights: `y[n, k] = w[n, k]`, `outputs x inputs`.
        dequant_squeezellm,
        /// SqueezeLLM matrix times vector: `y_n = sum_k w[n, k] * x_k`. Outliers are added last. The error is at most
        /// `(inputs / 256 + outliers + 80) * u * S`, where an output has `outliers` of them, and `S` counts the
        /// table's weights and the outliers apart.
        qgemv_squeezellm(typed),
    }
}
