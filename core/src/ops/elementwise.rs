//! Activation functions, element by element.

use core::marker::PhantomData;

use crate::element::Element;
use crate::ops::engine::{map, Access, Function};
use crate::ops::{math, short};
use crate::vector::{Arithmetic, Prim};

/// Whether results are rounded to 16 bits, so that the functions of [`short`] are exact enough.
const fn narrow<E>() -> bool {
    size_of::<E>() == 2
}

/// [`map`] with as many vectors at a time as pay for functions that take many operations each: with 32 registers eight of those
/// that are short.
///
/// # Safety
/// The contract of [`map`].
#[inline(always)]
unsafe fn deep<E: Element, P: Prim<E>, F: Function<ARITY>, const ARITY: usize>(
    f: F,
    n: usize,
    x: [*const E; ARITY],
    y: *mut E,
    access: Access,
) {
    // SAFETY: the caller's contract.
    unsafe {
        if const { narrow::<E>() && P::LANES == 16 } {
            map::<E, P, F, ARITY, 8>(f, n, x, y, access);
        } else {
            map::<E, P, F, ARITY, 4>(f, n, x, y, access);
        }
    }
}

#[derive(Clone, Copy)]
struct Relu;
impl Function<1> for Relu {
    #[inline(always)]
    unsafe fn eval<P: Arithmetic>(self, [x]: [P::V; 1]) -> P::V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { P::max(x, P::splat(0.0)) }
    }
}

/// # Safety
/// `n` elements at both pointers, equal or apart; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn relu<E: Element, P: Prim<E>>(n: usize, x: *const E, y: *mut E, access: Access) {
    // SAFETY: the caller's contract is the engine's.
    unsafe { map::<E, P, _, 1, 4>(Relu, n, [x], y, access) }
}

/// One activation: a [`Function`] and its kernel body.
macro_rules! activation {
    ($(
        $name:ident, $ty:ident;
    )*) => {
        $(
            #[derive(Clone, Copy)]
            struct $ty<E>(PhantomData<E>);
            impl<E: Element> Function<1> for $ty<E> {
                #[inline(always)]
                unsafe fn eval<P: Arithmetic>(self, [x]: [P::V; 1]) -> P::V {
                    // SAFETY: the caller vouches for the instruction set.
                    unsafe {
                        if const { narrow::<E>() } {
                            short::$name::<P>(x)
                        } else {
                            math::$name::<P>(x)
                        }
                    }
                }
            }

            /// # Safety
            /// `n` elements at both pointers, equal or apart; the instruction set is present.
            #[inline(always)]
            pub(crate) unsafe fn $name<E: Element, P: Prim<E>>(n: usize, x: *const E, y: *mut E, access: Access) {
                // SAFETY: the caller's contract is the engine's.
                unsafe { deep::<E, P, _, 1>($ty(PhantomData::<E>), n, [x], y, access) }
            }
        )*
    };
}

activation! {
    exp, Exp;
    tanh, Tanh;
    silu, Silu;
    gelu, Gelu;
    gelu_tanh, GeluTanh;
}

/// One gated activation: a [`Function`] of gate and other input, and its kernel body.
macro_rules! gated {
    ($(
        $name:ident, $ty:ident: $activation:ident;
    )*) => {
        $(
            #[derive(Clone, Copy)]
            struct $ty<E>(PhantomData<E>);
            impl<E: Element> Function<2> for $ty<E> {
                #[inline(always)]
                unsafe fn eval<P: Arithmetic>(self, [gate, up]: [P::V; 2]) -> P::V {
                    // SAFETY: the caller vouches for the instruction set.
                    unsafe { P::mul($activation(PhantomData::<E>).eval::<P>([gate]), up) }
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
                unsafe { deep::<E, P, _, 2>($ty(PhantomData::<E>), n, [gate, up], y, access) }
            }
        )*
    };
}

gated! {
    swiglu, Swiglu: Silu;
    geglu, Geglu: GeluTanh;
}
