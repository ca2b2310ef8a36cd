//! The registry: a row for each kernel that this build contains, that is for each combination of an operator, a storage type
//! or format, and an instruction set.

use crate::args::micro::{Micro, MicroId};
use crate::caps::{Features, IsaLevel};
use crate::element::ElementType;
use crate::quant::QuantFormat;
#[allow(unused_imports)] // Not every target has microkernels.
use crate::table::kernels::micro_id;
use crate::table::kernels::{Tier, TierId};

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
    /// The features that the CPU must have, the level's included.
    pub requires: Features,
    /// The kernel that does the work, if several rows share it.
    pub(crate) work: Option<Work>,
}

/// A kernel that several rows of the registry share: a microkernel, or a tier of kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// The name of the kernel, or of the set of kernels.
    name: &'static str,
    id: WorkId,
}

/// The identity of such a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkId {
    /// The generic microkernel of the level, for this storage type.
    Baseline,
    /// A microkernel in assembly.
    #[allow(dead_code)] // Not every target has one.
    Micro(MicroId),
    /// Kernels for products in integers.
    #[allow(dead_code)] // Not every target has them.
    Tier(TierId),
}

impl KernelInfo {
    /// The name of the kernel that does the work: that of the row, or that of the kernel that several rows share.
    pub fn kernel(&self) -> &'static str {
        self.work.map_or(self.name, |work| work.name)
    }

    /// Whether `micro` is the microkernel of this row.
    pub(crate) fn is_done_by(&self, micro: &Micro) -> bool {
        let id = micro.id.map_or(WorkId::Baseline, WorkId::Micro);
        self.is(id) && (self.element, self.level) == (micro.storage, micro.level)
    }

    /// Whether this row is one of the tier's.
    pub(crate) fn is_done_by_tier(&self, tier: Option<&Tier>) -> bool {
        tier.is_some_and(|tier| self.is(WorkId::Tier(tier.id)))
    }

    /// Whether it does the work.
    fn is(&self, id: WorkId) -> bool {
        self.work.is_some_and(|work| work.id == id)
    }
}

macro_rules! define_op_enum {
    (
        {}
        slots {
            $($slot:ident {
                when: $when:meta,
                ops: [$($op:ident = $name:literal),*],
                named: $named:ident,
                args: $args:tt -> $ret:ty,
                body: $($body:ident)::+,
            })*
        }
        of_formats {
            stored: [$($stored:ident = $stored_name:literal $stored_blocks:tt $stored_floats:tt),*],
            any: [$($any:ident = $any_name:literal $any_blocks:tt $any_floats:tt),*],
        }
        int8 $int8:tt
    ) => {
        /// A public operator: a method of [`Kernels`](crate::Kernels) (or of a plan) with the same name.
        #[allow(missing_docs)] // The methods carry the documentation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[non_exhaustive]
        pub enum Op {
            $($(#[cfg($when)] $op,)*)*
            $($stored,)*
            $($any,)*
        }

        impl Op {
            /// Every operator.
            pub const ALL: &'static [Self] = &[$($(#[cfg($when)] Self::$op,)*)* $(Self::$stored,)* $(Self::$any,)*];

            /// The method's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $($(#[cfg($when)] Self::$op => $name,)*)*
                    $(Self::$stored => $stored_name,)*
                    $(Self::$any => $any_name,)*
                }
            }

            /// The operator with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|op| op.name() == name)
            }
        }
    };
}
expand_all_ops! { define_op_enum! {} }

/// The generic microkernel, if the rows of an operator are named like its.
macro_rules! baseline {
    (gemm $text:literal $tile:literal $skinny:literal $module:ident) => {
        Some(Work {
            name: kernel_name!(gemm "gemm" $text $tile $skinny $module),
            id: WorkId::Baseline,
        })
    };
    ($named:ident $($name:tt)*) => {
        None
    };
}
/// The rows of slots, for a storage type.
macro_rules! rows_of_slots {
    (
        { $e:ident $text:literal $isa:ident $module:ident $tile:literal $skinny:literal }
        slots {
            $($slot:ident {
                when: $when:meta,
                ops: [$($op:ident = $name:literal),*],
                named: $named:ident,
                args: $args:tt -> $ret:ty,
                body: $($body:ident)::+,
            })*
        }
        of_formats $of_formats:tt
        int8 $int8:tt
    ) => {
        &[$(#[cfg($when)] rows_of_slots! {
            @$named { $e $text $isa $module $tile $skinny } $($op = $name)*
        }),*]
    };
    (@f32 { F16 $($of:tt)* } $($op:tt)*) => {
        &[]
    };
    (@f32 { Bf16 $($of:tt)* } $($op:tt)*) => {
        &[]
    };
    (
        @$named:ident
        { $e:ident $text:literal $isa:ident $module:ident $tile:literal $skinny:literal }
        $($op:ident = $name:literal)*
    ) => {
        &[$(KernelInfo {
            name: kernel_name!($named $name $text $tile $skinny $module),
            op: Op::$op,
            element: ElementType::$e,
            format: None,
            level: IsaLevel::$isa,
            requires: IsaLevel::$isa.requires(),
            work: baseline!($named $text $tile $skinny $module),
        }),*]
    };
}
/// The rows of int8.
macro_rules! rows_of_int8 {
    (
        { $isa:ident $module:ident $tile:literal }
        slots $slots:tt
        of_formats $of_formats:tt
        int8 {
            products: [$($op:ident = $name:literal),*],
            packing: $pack:ident = $pack_name:literal,
        }
    ) => {
        &[
            &[$(KernelInfo {
                name: int8_name!($name $tile $module),
                op: Op::$op,
                element: ElementType::I8,
                format: None,
                level: IsaLevel::$isa,
                requires: IsaLevel::$isa.requires(),
                work: Some(Work { name: int8_name!("gemm" $tile $module), id: WorkId::Baseline }),
            }),*],
            &[KernelInfo {
                name: concat!($pack_name, "_i8__", stringify!($module)),
                op: Op::$pack,
                element: ElementType::I8,
                format: None,
                level: IsaLevel::$isa,
                requires: IsaLevel::$isa.requires(),
                work: None,
            }],
        ]
    };
}
/// The rows of an operator with quantised weights, for a storage type.
macro_rules! rows_of_op {
    (
        {
            $op:ident $e:ident $isa:ident
            blocks: $before:expr, $after:expr;
            floats: $before_float:expr, $after_float:expr;
        }
        floats { $($float_field:ident = $float:ident: $float_len:literal in $float_bytes:literal, gguf $float_gguf:literal, $float_what:literal;)* }
        $($(#[$on:meta])* $field:ident = $name:ident: $file:ident, gguf $gguf:literal, $what:literal;)*
    ) => {
        &[
            $($(#[$on])* rows_of_op!(@$op $e $isa $name, concat!($before, stringify!($field), $after)),)*
            $(rows_of_op!(@$op $e $isa $float, concat!($before_float, stringify!($float_field), $after_float))),*
        ]
    };
    (@$op:ident $e:ident $isa:ident $format:ident, $name:expr) => {
        KernelInfo {
            name: $name,
            op: Op::$op,
            element: ElementType::$e,
            format: Some(QuantFormat::$format),
            level: IsaLevel::$isa,
            requires: IsaLevel::$isa.requires(),
            work: None,
        }
    };
}
/// The rows of all operators with quantised weights: for a storage type those that have rows for each, without one the others.
macro_rules! rows_of_formats {
    (
        { $isa:ident $module:ident $($e:ident $text:literal)? }
        slots $slots:tt
        of_formats { stored: $stored:tt, any: $any:tt, }
        int8 $int8:tt
    ) => {
        rows_of_formats! { @$isa $module $($e $text $stored)? $any }
    };
    (@$isa:ident $module:ident $e:ident $text:literal $stored:tt $any:tt) => {
        rows_of_formats! { @$stored $e $isa $module concat!($text, "_") }
    };
    (@$isa:ident $module:ident $any:tt) => {
        rows_of_formats! { @$any F32 $isa $module "" }
    };
    (
        @[$($op:ident = $name:literal ($before:literal, $after:literal) ($before_float:literal, $after_float:literal)),*]
        $e:ident $isa:ident $module:ident $storage:expr
    ) => {
        &[$(expand_all_formats! { rows_of_op! {
            $op $e $isa
            blocks: concat!($name, "_", $before, $storage), concat!($after, "__", stringify!($module));
            floats: concat!($name, "_", $before_float, $storage), concat!($after_float, "__", stringify!($module));
        } }),*]
    };
}
macro_rules! isa_rows {
    ({} isa: $isa:ident, module: $module:ident, tile: $tile:literal, skinny: $skinny:literal, attribute: $attr:meta) => {
        mod $module {
            use super::*;
            pub(super) const ROWS: [&[&[KernelInfo]]; 8] = [
                expand_all_ops! { rows_of_slots! { F32 "f32" $isa $module $tile $skinny } },
                expand_all_ops! { rows_of_slots! { F16 "f16" $isa $module $tile $skinny } },
                expand_all_ops! { rows_of_slots! { Bf16 "bf16" $isa $module $tile $skinny } },
                expand_all_ops! { rows_of_int8! { $isa $module $tile } },
                expand_all_ops! { rows_of_formats! { $isa $module F32 "f32" } },
                expand_all_ops! { rows_of_formats! { $isa $module F16 "f16" } },
                expand_all_ops! { rows_of_formats! { $isa $module Bf16 "bf16" } },
                expand_all_ops! { rows_of_formats! { $isa $module } },
            ];
        }
    };
}
expand_all_isas! { isa_rows! {} }

#[allow(unused_macros)] // Not every target has microkernels.
/// The rows of a microkernel: one for each operator of the slot `gemm`, or one for each product of int8.
macro_rules! rows_of_micro {
    (
        { I8 $micro:tt }
        slots $slots:tt
        of_formats $of_formats:tt
        int8 {
            products: [$($op:ident = $name:literal),*],
            packing: $pack:ident = $pack_name:literal,
        }
    ) => {
        &[rows_of_micro! { @gemm I8 $micro $($op = $name)* }]
    };
    (
        { $storage:ident $micro:tt }
        slots {
            $($slot:ident {
                when: $when:meta,
                ops: [$($op:ident = $name:literal),*],
                named: $named:ident,
                args: $args:tt -> $ret:ty,
                body: $($body:ident)::+,
            })*
        }
        of_formats $of_formats:tt
        int8 $int8:tt
    ) => {
        &[$(#[cfg($when)] rows_of_micro! { @$named $storage $micro $($op = $name)* }),*]
    };
    (@gemm $storage:ident { $kernel:ident $tail:literal $isa:ident $requires:tt } $($op:ident = $name:literal)*) => {
        &[$(KernelInfo {
            name: concat!($name, $tail),
            op: Op::$op,
            element: ElementType::$storage,
            format: None,
            level: IsaLevel::$isa,
            requires: $requires,
            work: Some(Work { name: concat!("gemm", $tail), id: WorkId::Micro(micro_id::$kernel) }),
        }),*]
    };
    (@$named:ident $storage:ident $micro:tt $($op:ident = $name:literal)*) => {
        &[]
    };
}
macro_rules! rows_of_micros {
    ($($kernel:ident {
        tail: $tail:literal,
        storage: $storage:ident,
        isa: $isa:ident,
        requires: [$($feature:ident),*],
        micro: $micro:tt,
    })*) => {
        const MICRO_ROWS: &[&[&[KernelInfo]]] = &[
            $(expand_all_ops! { rows_of_micro! {
                $storage { $kernel $tail $isa (IsaLevel::$isa.requires()$(.union(Features::$feature))*) }
            } }),*
        ];
    };
}
expand_all_micros! { rows_of_micros! }

macro_rules! rows_of_tiers {
    ({} $($tier:ident {
        isa: $isa:ident,
        requires: $requires:tt,
        batch: $batch:tt,
        single: $single:tt,
        in_place: [$($engine:ident: $features:literal)?],
        qgemm: [$codes:ident $width:ident $height:literal $($lower:literal)*],
        few: $few:tt,
        few_packed: $few_packed:tt,
    })*) => {
        const TIER_ROWS: &[&[KernelInfo]] = &[$(
            expand_all_formats! { rows_of_tier! {
                QgemvPacked $tier "qgemv_packed_f32_q8_" concat!("_16x", stringify!($batch), "__", stringify!($tier)),
                $isa (tier_requires!($isa $requires))
            } },
            $(expand_all_formats! { rows_of_tier! {
                QgemvQ8 $tier "qgemv_q8_f32_q8_" concat!("_1x4__", stringify!($tier)),
                $isa (tier_requires!($isa $requires, $engine))
            } },)?
            expand_all_formats! { rows_of_tier! {
                Qgemm $tier "qgemm_f32_q8_" concat!("_", $height, stringify!($width), "__", stringify!($tier)),
                $isa (tier_requires!($isa $requires))
            } },
        )*];
    };
}
#[allow(unused_macros)] // Not every target has tiers.
/// The features that a tier requires. The engine, if given, is ignored: the caller repeats over it.
macro_rules! tier_requires {
    ($isa:ident [$($feature:ident),*] $(, $engine:ident)?) => {
        IsaLevel::$isa.requires()$(.union(Features::$feature))*
    };
}
#[allow(unused_macros)] // Not every target has kernels of this kind.
macro_rules! rows_of_tier {
    (
        { $op:ident $tier:ident $before:literal $after:expr, $isa:ident $requires:tt }
        floats $floats:tt
        $($(#[$on:meta])* $field:ident = $name:ident: $file:ident, gguf $gguf:literal, $what:literal;)*
    ) => {
        &[$($(#[$on])* KernelInfo {
            name: concat!($before, stringify!($field), $after),
            op: Op::$op,
            element: ElementType::F32,
            format: Some(QuantFormat::$name),
            level: IsaLevel::$isa,
            requires: $requires,
            work: Some(Work {
                name: rows_of_tier!(@$op $before stringify!($field), $after),
                id: WorkId::Tier(TierId::$tier),
            }),
        }),*]
    };
    // Those of `qgemm` serve all formats.
    (@Qgemm $before:literal $field:expr, $after:expr) => {
        concat!($before, "groups", $after)
    };
    (@$op:ident $before:literal $field:expr, $after:expr) => {
        concat!($before, $field, $after)
    };
}
expand_all_tiers! { rows_of_tiers! {} }

macro_rules! rows_of_level {
    (
        { $level:ident }
        isa: $isa:ident, module: $module:ident, tile: $tile:literal, skinny: $skinny:literal, attribute: $attr:meta
    ) => {
        if $level == IsaLevel::$isa {
            return &$module::ROWS;
        }
    };
}
/// The rows of an instruction set, if this build has it.
fn rows_of_level(level: IsaLevel) -> &'static [&'static [&'static [KernelInfo]]] {
    expand_all_isas! { rows_of_level! { level } }
    &[]
}

/// Every kernel of this build: microkernels in assembly, then the instruction sets, best first.
pub fn kernels() -> impl Iterator<Item = &'static KernelInfo> + Clone {
    let micros = MICRO_ROWS.iter().copied().flatten().copied().flatten();
    let sets = IsaLevel::ALL.into_iter().flat_map(rows_of_level);
    micros.chain(TIER_ROWS.iter().copied().flatten()).chain(sets.copied().flatten().copied().flatten())
}
