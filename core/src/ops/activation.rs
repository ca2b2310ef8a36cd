//! Activations, element by element.

use crate::dispatch::Kernels;
use crate::element::Element;
use crate::error::KernelError;
use crate::isa::{Prim, Vector};
use crate::ops::check;
use crate::ops::engine::{map, Function, Stores};
use crate::ops::math;

/// One activation: a [`Function`], its kernel body, its method and its in-place method.
macro_rules! activation {
    ($(
        $(#[$doc:meta])*
        $name:ident, $inplace:ident, $ty:ident: |$isa:ident, $x:ident| $value:expr;
    )*) => {
        $(
            #[derive(Clone, Copy)]
            struct $ty;
            impl Function<1> for $ty {
                #[inline(always)]
                unsafe fn eval<$isa: Vector>(self, [$x]: [$isa::V; 1]) -> $isa::V {
                    // SAFETY: the caller vouches for the instruction set.
                    unsafe { $value }
                }
            }

            /// # Safety
            /// `n` elements at both pointers, equal or apart; the instruction set is present.
            #[inline(always)]
            pub(crate) unsafe fn $name<E: Element, P: Prim<E>>(n: usize, x: *const E, y: *mut E, stores: Stores) {
                // SAFETY: the caller's contract is the engine's.
                unsafe { map::<E, P, _, 1, 4>($ty, n, [x], y, stores) }
            }
        )*

        /// # Activations
        ///
        /// Elements are widened to f32, computed, and narrowed once.
        impl<E: Element> Kernels<E> {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// `ShortSlice` unless both have the same length.
                pub fn $name(&self, x: &[E], y: &mut [E]) -> Result<(), KernelError> {
                    check::len("y", y.len(), x.len())?;
                    let n = x.len();
                    // SAFETY: equal lengths; `y` is exclusive; the instruction set is present.
                    unsafe { (self.table.$name)(n, x.as_ptr(), y.as_mut_ptr(), self.stores(n)) };
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
                    unsafe { (self.table.$name)(x.len(), p, p, Stores::Cached) };
                    Ok(())
                }
            )*
        }
    };
}

activation! {
    /// `y_i = max(x_i, 0)`; a NaN gives 0.
    relu, relu_inplace, Relu: |P, x| P::max(x, P::splat(0.0));

    /// `y_i = e^(x_i)`, within 2 ulp; overflows to inf, underflows through the denormals to 0;
    /// -inf gives 0, NaN stays NaN.
    exp, exp_inplace, Exp: |P, x| math::exp::<P>(x);
}
