//! Activations, element by element.

use crate::element::Element;
use crate::ops::engine::{map, Access, Function};
use crate::ops::math;
use crate::vector::{Prim, Vector};

/// One activation: a [`Function`] and its kernel body.
macro_rules! activation {
    ($(
        $name:ident, $ty:ident: |$isa:ident, $x:ident| $value:expr;
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
            pub(crate) unsafe fn $name<E: Element, P: Prim<E>>(n: usize, x: *const E, y: *mut E, access: Access) {
                // SAFETY: the caller's contract is the engine's.
                unsafe { map::<E, P, _, 1, 4>($ty, n, [x], y, access) }
            }
        )*
    };
}

activation! {
    relu, Relu: |P, x| P::max(x, P::splat(0.0));
    exp, Exp: |P, x| math::exp::<P>(x);
    tanh, Tanh: |P, x| math::tanh::<P>(x);
    silu, Silu: |P, x| math::silu::<P>(x);
    gelu, Gelu: |P, x| math::gelu::<P>(x);
    gelu_tanh, GeluTanh: |P, x| math::gelu_tanh::<P>(x);
}

/// One gated activation: a [`Function`] of gate and other input, and its kernel body.
macro_rules! gated {
    ($(
        $name:ident, $ty:ident: $activation:ident;
    )*) => {
        $(
            #[derive(Clone, Copy)]
            struct $ty;
            impl Function<2> for $ty {
                #[inline(always)]
                unsafe fn eval<P: Vector>(self, [gate, up]: [P::V; 2]) -> P::V {
                    // SAFETY: the caller vouches for the instruction set.
                    unsafe { P::mul(math::$activation::<P>(gate), up) }
                }
            }

            /// # Safety
            /// `n` elements at every pointer; an input equals `y` or lies apart; the instruction set is present.
            #[inline(always)]
            pub(crate) unsafe fn $name<E: Element, P: Prim<E>>(
                n: usize,
                gate: *const E,
                up: *const E,
                y: *mut E,
                access: Access,
            ) {
                // SAFETY: the caller's contract is the engine's.
                unsafe { map::<E, P, _, 2, 4>($ty, n, [gate, up], y, access) }
            }
        )*
    };
}

gated! {
    swiglu, Swiglu: silu;
    geglu, Geglu: gelu_tanh;
}
