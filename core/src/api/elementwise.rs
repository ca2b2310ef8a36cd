//! Activation functions, element by element.

use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::table::Kernels;

/// The method of an activation, and its in-place method.
macro_rules! activation {
    ($(
        $(#[$doc:meta])*
        $name:ident, $inplace:ident;
    )*) => {
        /// # Activations
        ///
        /// Elements are widened to f32, computed, and narrowed once. Bounds in ulp of f32 hold for f32. For f16 and bf16 the
        /// relative error before the result is narrowed is below 9e-5, so that it is within 0.69 ulp of f16 or 0.53 of bf16.
        impl<E: Element> Kernels<E> {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// `WrongLength` unless both have the same length.
                pub fn $name(&self, x: &[E], y: &mut [E]) -> Result<(), KernelError> {
                    check::len("y", y.len(), x.len())?;
                    let n = x.len();
                    // SAFETY: equal lengths; `y` is exclusive; the instruction set is present.
                    unsafe { (self.table.$name)(n, x.as_ptr(), y.as_mut_ptr(), self.access(n)) };
                    Ok(())
                }

                $(#[$doc])*
                /// In place.
                ///
                /// # Errors
                /// None today.
                pub fn $inplace(&self, x: &mut [E]) -> Result<(), KernelError> {
                    let p = x.as_mut_ptr();
                    // SAFETY: the input is the output; the instruction set is present.
                    unsafe { (self.table.$name)(x.len(), p, p, self.access_inplace()) };
                    Ok(())
                }
            )*
        }
    };
}

activation! {
    /// `y_i = max(x_i, 0)`; a NaN gives 0.
    relu, relu_inplace;

    /// `y_i = e^(x_i)`, within 1.02 ulp of f32; overflows to inf above 88.72, underflows through the
    /// denormals to 0 below -103.97. inf stays, -inf gives 0, +-0 gives 1, NaN stays NaN.
    exp, exp_inplace;

    /// `y_i = tanh(x_i)`, within 2.6 ulp of f32. +-0 and denormals stay, +-inf gives +-1, NaN stays NaN.
    tanh, tanh_inplace;

    /// `y_i = x_i / (1 + e^(-x_i))`, within 2.4 ulp of f32, denormal results included. +-0 stays, inf stays,
    /// -inf gives -0, as do finite inputs whose result underflows; NaN stays NaN. (SiLU: Hendrycks and
    /// Gimpel, *Gaussian Error Linear Units*, 2016; also called Swish.)
    silu, silu_inplace;

    /// `y_i = x_i Phi(x_i)` with the normal distribution function `Phi(x) = erfc(-x / sqrt(2)) / 2`, within
    /// 3.7 ulp of f32, denormal results included. +-0 stays, inf stays, -inf gives -0, as do finite inputs
    /// whose result underflows; NaN stays NaN. (Hendrycks and Gimpel, *Gaussian Error Linear Units*, 2016.)
    gelu, gelu_inplace;

    /// `y_i = x_i / 2 (1 + tanh(sqrt(2 / pi) (x_i + 0.044715 x_i^3)))`, the approximation of [`gelu`](Self::gelu) that
    /// many models are trained with, within 2.4 ulp of f32 of this formula, denormal results included. Special inputs
    /// give what they give with [`gelu`](Self::gelu). (Hendrycks and Gimpel, 2016.)
    gelu_tanh, gelu_tanh_inplace;
}

/// The method of a gated activation, and its in-place method.
macro_rules! gated {
    ($(
        $(#[$doc:meta])*
        $name:ident, $inplace:ident: $short:literal;
    )*) => {
        /// # Gated activations
        impl<E: Element> Kernels<E> {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// `WrongLength` unless all have the same length.
                pub fn $name(&self, gate: &[E], up: &[E], y: &mut [E]) -> Result<(), KernelError> {
                    check::len("up", up.len(), gate.len())?;
                    check::len("y", y.len(), gate.len())?;
                    let n = gate.len();
                    // SAFETY: equal lengths; `y` is exclusive; the instruction set is present.
                    unsafe { (self.table.$name)(n, gate.as_ptr(), up.as_ptr(), y.as_mut_ptr(), self.access(n)) };
                    Ok(())
                }

                #[doc = $short]
                ///
                /// # Errors
                /// `WrongLength` unless both have the same length.
                pub fn $inplace(&self, gate: &mut [E], up: &[E]) -> Result<(), KernelError> {
                    check::len("up", up.len(), gate.len())?;
                    let p = gate.as_mut_ptr();
                    // SAFETY: equal lengths; the first input is the output; the instruction set is present.
                    unsafe { (self.table.$name)(up.len(), p, up.as_ptr(), p, self.access_inplace()) };
                    Ok(())
                }
            )*
        }
    };
}

gated! {
    /// `y_i = silu(gate_i) up_i`: [`silu`](Self::silu) in f32, then one multiplication. (SwiGLU: Shazeer, *GLU Variants Improve Transformer*, 2020).
    swiglu, swiglu_inplace: "`gate_i = silu(gate_i) up_i`";

    /// `y_i = gelu_tanh(gate_i) up_i`: [`gelu_tanh`](Self::gelu_tanh) in f32, then one multiplication. (GEGLU: Shazeer, *GLU Variants Improve Transformer*,
    /// 2020; with this approximation: Gemma.)
    geglu, geglu_inplace: "`gate_i = gelu_tanh(gate_i) up_i`";
}
