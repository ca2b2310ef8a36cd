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
            /// The generic microkernel.
            pub(crate) baseline: Micro,
            pub(crate) formats: crate::quant::dispatch::Formats<E>,
            // `gemm` is called through `baseline`.
            $(#[allow(dead_code)] pub(crate) $slot: unsafe fn($($ty),*) -> $ret,)*
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
        { isa: $isa:ident, module: $module:ident, tile: $tile:literal, attribute: $attr:meta }
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
                let tile = const { Tile::of(<$isa as crate::isa::Vector>::LANES) };
                Table {
                    level: IsaLevel::$isa,
                    baseline: Micro {
                        name: E::TYPE.pick([
                            kernel_name!(gemm "gemm" "f32" $tile $module),
                            kernel_name!(gemm "gemm" "f16" $tile $module),
                            kernel_name!(gemm "gemm" "bf16" $tile $module),
                        ]),
                        storage: E::TYPE,
                        level: IsaLevel::$isa,
                        requires: IsaLevel::$isa.requires(),
                        a: Panel { element: PanelType::F32, width: tile.rows, kr: 1 },
                        b: Panel { element: PanelType::F32, width: tile.cols, kr: 1 },
                        depth: 1,
                        edges: Edges::Driver,
                        run: Run::Compiled(gemm::<E>),
                        around: None,
                    },
                    formats: crate::quant::dispatch::$module::formats::<E>(),
                    $($slot: $slot::<E>),*
                }
            }
        }
    };
}
