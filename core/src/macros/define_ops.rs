//! Layer 2: from a generic body to one function per instruction set.

/// The struct of function pointers that [`define_ops!`] fills.
macro_rules! define_table {
    ({} $($slot:ident {
        ops: $ops:tt,
        named: $named:ident,
        args: ($($arg:ident: $ty:ty),*) -> $ret:ty,
        body: $($body:ident)::+,
    })*) => {
        /// Kernels of one instruction set for one storage type; every field is one indirect call.
        pub struct Table<E> {
            pub(crate) level: IsaLevel,
            pub(crate) tile: crate::ops::tile::Tile,
            pub(crate) formats: crate::quant::dispatch::Formats<E>,
            $(pub(crate) $slot: unsafe fn($($ty),*) -> $ret,)*
        }
    };
}

/// Wraps every body of the enumeration for one instruction set, and collects the wrappers in that
/// set's [`Table`](crate::dispatch::Table).
///
/// A body is an `#[inline(always)]` generic function; inlined into its wrapper it is compiled with
/// the wrapper's target features.
macro_rules! define_ops {
    (
        { isa: $isa:ident, module: $module:ident, attribute: $attr:meta }
        $($slot:ident {
            ops: $ops:tt,
            named: $named:ident,
            args: ($($arg:ident: $ty:ty),*) -> $ret:ty,
            body: $($body:ident)::+,
        })*
    ) => {
        mod $module {
            use super::*;
            use crate::isa::{Prim, $isa};
            $(
                #[$attr]
                pub(super) unsafe fn $slot<E: Element>($($arg: $ty),*) -> $ret
                where
                    $isa: Prim<E>,
                {
                    // SAFETY: the caller keeps the body's contract and vouches for the CPU.
                    unsafe { crate::ops::$($body)::+::<E, $isa>($($arg),*) }
                }
            )*
            pub(super) const fn table<E: Element>() -> Table<E>
            where
                $isa: Prim<E>,
            {
                Table {
                    level: IsaLevel::$isa, tile: crate::ops::tile::Tile::of(<$isa as crate::isa::Vector>::LANES),
                    formats: crate::quant::dispatch::$module::formats::<E>(),
                    $($slot: $slot::<E>),*
                }
            }
        }
    };
}
