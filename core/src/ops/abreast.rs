//! Functions of several registers at a time.

use core::marker::PhantomData;

use crate::arrays::from_fn;
use crate::vector::Arithmetic;

/// Registers whose functions are computed abreast. With more their chains would need more registers than there are.
pub(crate) const CHAINS: usize = 4;

/// `K` registers of an instruction set, on which each operation is done in turn.
///
/// A function of one register is a chain of operations that wait for each other. The compiler leaves the chains of several registers
/// behind each other, and a CPU whose schedulers are full of operations that wait does not reach the next chain. Abreast,
/// neighbouring operations belong to different chains.
#[derive(Clone, Copy)]
pub(crate) struct Abreast<P, const K: usize>(PhantomData<P>);

/// An operation on each of the registers.
macro_rules! abreast {
    ($($name:ident($($arg:ident),*);)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: Self::V),*) -> Self::V {
            // SAFETY: the caller vouches for the instruction set.
            from_fn(|k| unsafe { P::$name($($arg[k]),*) })
        }
    )*};
}

// SAFETY: the contract is that of `P`.
unsafe impl<P: Arithmetic, const K: usize> Arithmetic for Abreast<P, K> {
    type V = [P::V; K];

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { [P::splat(x); K] }
    }
    abreast! {
        add(a, b);
        sub(a, b);
        mul(a, b);
        div(a, b);
        fma(a, b, c);
        fnma(a, b, c);
        min(a, b);
        max(a, b);
        copysign(m, s);
        round(a);
        scale2(a, power);
        select_lt(a, b, x, y);
    }
}
