//! The kernels of every format, per instruction set: the part of a
//! [`Table`](crate::dispatch::Table) that is chosen by format.

use crate::element::Element;
use crate::ops::engine::Access;
use crate::quant::{Format, QuantFormat};

macro_rules! define_slots {
    ({} $($slot:ident {
        op: $op:ident = $name:literal,
        named: $named:tt,
        args: ($($arg:ident: $ty:ty),*) -> $ret:ty,
        body: $($body:ident)::+,
    })*) => {
        /// Kernels of one format, for one instruction set and one storage type.
        pub struct FormatOps<E> {
            $(pub(crate) $slot: unsafe fn($($ty),*) -> $ret,)*
        }
    };
}
expand_all_format_ops! { define_slots! {} }

macro_rules! define_formats {
    ({} $($field:ident = $name:ident: $module:ident, gguf $gguf:literal, $what:literal;)*) => {
        /// One [`FormatOps`] per format.
        pub struct Formats<E> {
            $($field: FormatOps<E>,)*
        }

        impl<E> Formats<E> {
            /// The kernels of `format`.
            pub(crate) fn of(&self, format: QuantFormat) -> &FormatOps<E> {
                match format {
                    $(QuantFormat::$name => &self.$field,)*
                }
            }
        }
    };
}
expand_all_formats! { define_formats! {} }

macro_rules! fill {
    ({ $e:ident } $($field:ident = $name:ident: $module:ident, gguf $gguf:literal, $what:literal;)*) => {
        Formats { $($field: ops::<$e, crate::quant::$module::$name>(),)* }
    };
}

macro_rules! define_wrappers {
    (
        { isa: $isa:ident, module: $module:ident, attribute: $attr:meta }
        $($slot:ident {
            op: $op:ident = $name:literal,
            named: $named:tt,
            args: ($($arg:ident: $ty:ty),*) -> $ret:ty,
            body: $($body:ident)::+,
        })*
    ) => {
        pub(crate) mod $module {
            use super::*;
            use crate::isa::{Prim, $isa};
            use crate::quant::Unpack;
            $(
                #[$attr]
                unsafe fn $slot<E: Element, F: Format>($($arg: $ty),*) -> $ret
                where
                    $isa: Prim<E> + Unpack<F>,
                {
                    // SAFETY: the caller keeps the body's contract and vouches for the CPU.
                    unsafe { crate::ops::$($body)::+::<E, F, $isa>($($arg),*) }
                }
            )*
            const fn ops<E: Element, F: Format>() -> FormatOps<E>
            where
                $isa: Prim<E> + Unpack<F>,
            {
                FormatOps { $($slot: $slot::<E, F>),* }
            }
            pub(crate) const fn formats<E: Element>() -> Formats<E>
            where
                $isa: Prim<E>,
            {
                expand_all_formats! { fill! { E } }
            }
        }
    };
}
macro_rules! wrap {
    ({} isa: $isa:ident, module: $module:ident, tile: $tile:literal, attribute: $attr:meta) => {
        expand_all_format_ops! { define_wrappers! { isa: $isa, module: $module, attribute: $attr } }
    };
}
expand_all_isas! { wrap! {} }
