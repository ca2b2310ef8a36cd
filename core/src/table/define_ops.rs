//! Layer 2: the macros that compile a generic body for each instruction set.

/// The struct of function pointers that [`define_ops!`] fills.
macro_rules! define_table {
    (
        {}
        slots {
            $($slot:ident {
                when: $when:meta,
                ops: $ops:tt,
                named: $named:ident,
                args: ($($arg:ident: $ty:ty),*) -> $ret:ty,
                body: $($body:ident)::+,
            })*
        }
        of_formats $of_formats:tt
        int8 $int8:tt
    ) => {
        /// Kernels of one instruction set for one storage type; every field is one indirect call.
        pub struct Table<E> {
            /// The part that matrix products use.
            pub(crate) products: Products,
            /// The functions of each format.
            pub(crate) formats: &'static Formats,
            // Nobody reads the slots of `gemm`, `merge`, `finish` and `pack_b`: `products` has their wrappers.
            $(#[cfg($when)] #[allow(dead_code)] pub(crate) $slot: unsafe fn($($ty),*) -> $ret,)*
        }
    };
}

/// Wraps every body of the enumeration for one instruction set, and collects the wrappers in that
/// set's [`Table`](crate::table::Table).
///
/// A body is an `#[inline(always)]` generic function; inlined into its wrapper it is compiled with
/// the wrapper's target features: for each storage type, or once if the row is `gemm`, `widened`, `f32` or `shared`.
macro_rules! define_ops {
    (
        { isa: $isa:ident, module: $module:ident, tile: $tile:literal, skinny: $skinny:literal, attribute: $attr:meta }
        slots {
            $($slot:ident {
                when: $when:meta,
                ops: $ops:tt,
                named: $named:ident,
                args: ($($arg:ident: $ty:ty),*) -> $ret:ty,
                body: $($body:ident)::+,
            })*
        }
        of_formats $of_formats:tt
        int8 $int8:tt
    ) => {
        pub(crate) mod $module {
            use super::*;
            use crate::isa::{$isa, InstructionSet};
            use crate::vector::Prim;
            $(#[cfg($when)] define_ops! { @$named $isa #[$attr] $slot($($arg: $ty),*) -> $ret { $($body)::+ } })*
            pub(super) const fn table<E: Element>() -> Table<E>
            where
                $isa: Prim<E>,
            {
                Table {
                    products: Products {
                        level: IsaLevel::$isa,
                        baseline: const {
                            &Micro {
                                name: match E::TYPE {
                                    ElementType::F32 => kernel_name!(gemm "gemm" "f32" $tile $skinny $module),
                                    ElementType::F16 => kernel_name!(gemm "gemm" "f16" $tile $skinny $module),
                                    _ => kernel_name!(gemm "gemm" "bf16" $tile $skinny $module),
                                },
                                id: None,
                                storage: E::TYPE,
                                level: IsaLevel::$isa,
                                requires: IsaLevel::$isa.requires(),
                                a: Panel { element: PanelType::F32, width: $isa::TILE.rows, kr: 1 },
                                b: Panel { element: PanelType::F32, width: $isa::TILE.cols, kr: 1 },
                                depth: 1,
                                edges: Edges::Driver,
                                strides: false,
                                run: MicroFn::Compiled(gemm),
                                around: None,
                            }
                            .checked()
                        },
                        helpers: Helpers { pack_a: pack_b::<E>, pack_b: pack_b::<E>, merge, finish },
                    },
                    formats: &formats::$module::FORMATS,
                    $(#[cfg($when)] $slot: define_ops!(@instance $named $slot)),*
                }
            }
        }
    };
    // A body that is the same for every storage type is compiled once.
    (@shared $isa:ident #[$attr:meta] $slot:ident($($arg:ident: $ty:ty),*) -> $ret:ty { $($body:ident)::+ }) => {
        #[$attr]
        pub(crate) unsafe fn $slot($($arg: $ty),*) -> $ret {
            // SAFETY: the caller keeps the body's contract and vouches for the CPU.
            unsafe { crate::ops::$($body)::+::<$isa>($($arg),*) }
        }
    };
    (@gemm $($wrapper:tt)*) => { define_ops! { @shared $($wrapper)* } };
    (@widened $($wrapper:tt)*) => { define_ops! { @shared $($wrapper)* } };
    (@f32 $($wrapper:tt)*) => { define_ops! { @shared $($wrapper)* } };
    (@instance shared $slot:ident) => { $slot };
    (@instance gemm $slot:ident) => { $slot };
    (@instance widened $slot:ident) => { $slot };
    (@instance f32 $slot:ident) => { $slot };
    (@instance $named:ident $slot:ident) => { $slot::<E> };
    (@$named:ident $isa:ident #[$attr:meta] $slot:ident($($arg:ident: $ty:ty),*) -> $ret:ty { $($body:ident)::+ }) => {
        #[$attr]
        pub(crate) unsafe fn $slot<E: Element>($($arg: $ty),*) -> $ret
        where
            $isa: Prim<E>,
        {
            // SAFETY: the caller keeps the body's contract and vouches for the CPU.
            unsafe { crate::ops::$($body)::+::<E, $isa>($($arg),*) }
        }
    };
}

/// The same for int8, whose only operators are matrix products.
macro_rules! define_int8 {
    ({} isa: $isa:ident, module: $module:ident, tile: $tile:literal, skinny: $skinny:literal, attribute: $attr:meta) => {
        pub(super) mod $module {
            use super::*;
            use crate::isa::{$isa, InstructionSet};
            use crate::ops::int8;
            define_int8! { @$attr
                gemm(t: &MicroArgs) => int8::tile::<$isa>(t);
                pack(g: &PackArgs) => int8::pack(g, crate::table::$module::pack_b::<f32>);
                merge(m: &MergeArgs) => int8::merge(m);
                finish(f: &FinishArgs) => int8::finish(f);
            }
            const TILE: Tile = $isa::TILE;
            const BASELINE: Micro = Micro {
                name: int8_name!("gemm" $tile $module),
                id: None,
                storage: ElementType::I8,
                level: IsaLevel::$isa,
                requires: IsaLevel::$isa.requires(),
                a: Panel { element: PanelType::I8, width: TILE.rows, kr: 1 },
                b: Panel { element: PanelType::I8, width: TILE.cols, kr: 1 },
                depth: 1,
                edges: Edges::Driver,
                strides: false,
                run: MicroFn::Compiled(gemm),
                around: None,
            }
            .checked();
            pub(in crate::table) static TABLE: Products = Products {
                level: IsaLevel::$isa,
                baseline: &BASELINE,
                helpers: Helpers { pack_a: pack, pack_b: pack, merge, finish },
            };
        }
    };
    (@$attr:meta $($name:ident($arg:ident: $ty:ty) => $body:expr;)*) => {
        $(
            #[$attr]
            unsafe fn $name($arg: $ty) {
                // SAFETY: the caller keeps the body's contract and vouches for the CPU.
                unsafe { $body }
            }
        )*
    };
}
