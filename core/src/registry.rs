//! The kernel table: every operator x storage type x instruction set that this build contains.

use crate::caps::IsaLevel;
use crate::element::ElementType;
use crate::quant::QuantFormat;

/// One kernel. Its name is its registry row, its test and its benchmark.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct KernelInfo {
    /// Unique name: `<op>_<types>__<isa>`, see SPEC/02.
    pub name: &'static str,
    /// The public operator it implements.
    pub op: Op,
    /// Storage type of its operands.
    pub element: ElementType,
    /// Format of its quantised operand, if it has one.
    pub format: Option<QuantFormat>,
    /// Instruction set it is written for.
    pub level: IsaLevel,
}

macro_rules! define_op_enum {
    ({ $($format_op:ident = $format_name:literal)* } $($slot:ident {
        ops: [$($op:ident = $name:literal),*],
        named: $named:ident,
        args: $args:tt -> $ret:ty,
        body: $($body:ident)::+,
    })*) => {
        /// A public operator: a method of [`Kernels`](crate::Kernels) (or of a plan) with the same name.
        #[allow(missing_docs)] // The methods carry the documentation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Op {
            $($($op,)*)*
            $($format_op,)*
        }

        impl Op {
            /// Every operator.
            pub const ALL: &'static [Self] = &[$($(Self::$op,)*)* $(Self::$format_op,)*];

            /// The method's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $($(Self::$op => $name,)*)*
                    $(Self::$format_op => $format_name,)*
                }
            }

            /// The operator with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|op| op.name() == name)
            }
        }
    };
}
macro_rules! with_format_ops {
    ({} $($slot:ident {
        op: $op:ident = $name:literal,
        named: $named:tt,
        args: $args:tt -> $ret:ty,
        body: $($body:ident)::+,
    })*) => {
        expand_all_ops! { define_op_enum! { $($op = $name)* } }
    };
}
expand_all_format_ops! { with_format_ops! {} }

macro_rules! kernel_name {
    (storage $op:literal $e:literal $tile:literal $isa:ident) => {
        concat!($op, "_", $e, "__", stringify!($isa))
    };
    (gemm $op:literal $e:literal $tile:literal $isa:ident) => {
        concat!($op, "_f32_", $e, "_", $e, "_", $tile, "__", stringify!($isa))
    };
}

macro_rules! rows {
    (
        { $e:ident $text:literal $isa:ident $module:ident $tile:literal }
        $($slot:ident {
            ops: [$($op:ident = $name:literal),*],
            named: $named:ident,
            args: $args:tt -> $ret:ty,
            body: $($body:ident)::+,
        })*
    ) => {
        &[$($(KernelInfo {
            name: kernel_name!($named $name $text $tile $module),
            op: Op::$op,
            element: ElementType::$e,
            format: None,
            level: IsaLevel::$isa,
        }),*),*]
    };
}
macro_rules! rows_of_format {
    (
        { $e:ident $text:literal $isa:ident $module:ident $field:ident $format:ident }
        $($slot:ident {
            op: $op:ident = $name:literal,
            named: ($before:literal, $after:literal),
            args: $args:tt -> $ret:ty,
            body: $($body:ident)::+,
        })*
    ) => {
        &[$(KernelInfo {
            name: concat!(
                $name, "_", $before, $text, "_", stringify!($field), $after, "__", stringify!($module)
            ),
            op: Op::$op,
            element: ElementType::$e,
            format: Some(QuantFormat::$format),
            level: IsaLevel::$isa,
        }),*]
    };
}
macro_rules! rows_of_formats {
    (
        { $e:ident $text:literal $isa:ident $module:ident }
        $($field:ident = $name:ident: $file:ident, gguf $gguf:literal, $what:literal;)*
    ) => {
        &[$(expand_all_format_ops! { rows_of_format! { $e $text $isa $module $field $name } }),*]
    };
}
macro_rules! isa_rows {
    ({} isa: $isa:ident, module: $module:ident, tile: $tile:literal, attribute: $attr:meta) => {
        mod $module {
            use super::*;
            pub(super) const ROWS: [&[&[KernelInfo]]; 4] = [
                &[
                    expand_all_ops! { rows! { F32 "f32" $isa $module $tile } },
                    expand_all_ops! { rows! { F16 "f16" $isa $module $tile } },
                    expand_all_ops! { rows! { Bf16 "bf16" $isa $module $tile } },
                ],
                expand_all_formats! { rows_of_formats! { F32 "f32" $isa $module } },
                expand_all_formats! { rows_of_formats! { F16 "f16" $isa $module } },
                expand_all_formats! { rows_of_formats! { Bf16 "bf16" $isa $module } },
            ];
        }
    };
}
expand_all_isas! { isa_rows! {} }

/// Every kernel of this build, instruction sets best first.
pub fn kernels() -> impl Iterator<Item = &'static KernelInfo> {
    let sets: &'static [[&[&[KernelInfo]]; 4]] = const {
        &[
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
            avx512::ROWS,
            #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
            avx2::ROWS,
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            neon::ROWS,
            scalar::ROWS,
        ]
    };
    sets.iter().flatten().copied().flatten().copied().flatten()
}
