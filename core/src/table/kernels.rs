//! The kernels in assembly.

use core::fmt;

use crate::args::micro::*;
use crate::args::unpacker::InPlace;
use crate::caps::{Features, IsaLevel};
use crate::ops::qgemm::tile::QTileArgs;
use crate::ops::qgemv_packed::PanelArgs;
use crate::quant::QuantFormat;

macro_rules! micros {
    ({ $abi:literal } $($name:ident {
        tail: $tail:literal,
        storage: $storage:ident,
        isa: $isa:ident,
        requires: [$($feature:ident),*],
        micro: {
            tile: $mr:literal x $nr:literal,
            a: $a:ident / $a_kr:literal,
            b: $b:ident / $b_kr:literal,
            depth: $depth:literal,
            edges: $edges:ident,
            strides: $strides:literal,
            around: $around:expr
        },
    })*) => {
        extern $abi {
            $(
                #[link_name = symbol!(stringify!($name))]
                fn $name(args: *const MicroArgs);
            )*
        }

        /// The places of microkernels in their enumeration.
        #[allow(non_camel_case_types, dead_code)] // They are named like kernels; not every target has some.
        enum Place {
            $($name),*
        }

        /// Which microkernel is which.
        #[allow(non_upper_case_globals)] // They are named like kernels.
        pub(crate) mod micro_id {
            $(pub(crate) const $name: super::MicroId = super::MicroId(super::Place::$name as u16);)*
        }

        /// Every microkernel in assembly; of those for one storage type and level, the best first.
        pub(crate) static MICROS: &[Micro] = &[$(Micro {
            name: concat!("gemm", $tail),
            id: Some(micro_id::$name),
            storage: crate::element::ElementType::$storage,
            level: IsaLevel::$isa,
            requires: IsaLevel::$isa.requires()$(.union(Features::$feature))*,
            a: Panel { element: PanelType::$a, width: $mr, kr: $a_kr },
            b: Panel { element: PanelType::$b, width: $nr, kr: $b_kr },
            depth: $depth,
            edges: Edges::$edges,
            strides: $strides,
            run: Run::Asm($name),
            around: $around,
        }.checked()),*];

        // The entry agrees with itself.
        $(const _: () = assert!(
            crate::tile::same(stringify!($name), concat!("gemm", $tail))
                && crate::tile::Tile { rows: $mr, cols: $nr }.is_in($tail)
        );)*
    };
}
expand_all_micros! { micros! }

/// A kernel for one panel of packed weights.
#[cfg(target_arch = "x86_64")]
pub(crate) type PanelFn = unsafe extern "sysv64" fn(*const PanelArgs);
/// A kernel for one panel of packed weights.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) type PanelFn = unsafe extern "C" fn(*const PanelArgs);

/// Kernels for products in integers. Those for packed weights are in assembly: of every format, for every number of rows
/// of activations.
pub(crate) struct Tier {
    pub(crate) id: TierId,
    pub(crate) level: IsaLevel,
    /// What the CPU must have.
    pub(crate) requires: Features,
    /// Rows of activations that a kernel takes at most.
    pub(crate) batch: usize,
    pub(crate) kernels: TierKernels,
    /// Those for weights in place, unless the level's own are as good.
    pub(crate) in_place: Option<&'static InPlace>,
}

/// A microkernel of `qgemm`.
#[cfg(target_arch = "x86_64")]
pub(crate) type TileFn = unsafe extern "sysv64" fn(*const QTileArgs);
/// A microkernel of `qgemm`.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) type TileFn = unsafe extern "C" fn(*const QTileArgs);

/// Microkernels of `qgemm`, for products in integers of many rows of activations.
pub(crate) struct QgemmTier {
    pub(crate) id: TierId,
    pub(crate) level: IsaLevel,
    /// What the CPU must have.
    pub(crate) requires: Features,
    /// Whether they take codes with a bias.
    pub(crate) unsigned: bool,
    /// Whether they take two panels of weights side by side.
    pub(crate) two_panels: bool,
    /// For a number of rows of activations those of each [`PanelKind`](crate::ops::qgemm::tile::PanelKind). Numbers fall, to 1.
    pub(crate) kernels: &'static [(usize, [TileFn; 4])],
    /// Kernels for codes that are [narrow](crate::quant::packed::Packing::narrow), if there are any.
    pub(crate) narrow: &'static [(usize, [TileFn; 4])],
    /// Rows of activations up to which `qgemv_q8` is faster than unpacking weights in place: in blocks of less than 256, in
    /// such blocks, and in any with groups of 16 or with one scale.
    pub(crate) few: [usize; 3],
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tier({:?})", self.id)
    }
}

impl fmt::Debug for QgemmTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QgemmTier({:?})", self.id)
    }
}

macro_rules! define_tier_kernels {
    ({} $($(#[$on:meta])* $field:ident = $name:ident: $module:ident, gguf $gguf:literal, $what:literal;)*) => {
        /// Of each format those for one row of activations, for two, ..
        pub(crate) struct TierKernels {
            $($(#[$on])* pub(crate) $field: &'static [PanelFn],)*
        }

        impl Tier {
            /// The kernels of a format, by the number of rows of activations less one.
            pub(crate) fn of(&self, format: QuantFormat) -> &'static [PanelFn] {
                match format {
                    $($(#[$on])* QuantFormat::$name => self.kernels.$field,)*
                    // Plain floating point has no integers.
                    _ => &[],
                }
            }
        }
    };
}
expand_all_formats! { define_tier_kernels! {} }

#[allow(unused_macros)] // Not every target has tiers.
macro_rules! tier_kernels {
    ({ $abi:literal $tier:ident $batch:tt } $($(#[$on:meta])* $field:ident = $name:ident: $module:ident, gguf $gguf:literal, $what:literal;)*) => {
        TierKernels { $($(#[$on])* $field: tier_kernels!(@$batch $abi $field $tier),)* }
    };
    (@2 $abi:literal $field:ident $tier:ident) => {
        tier_kernels!(@$abi $field $tier, one "1", two "2")
    };
    (@4 $abi:literal $field:ident $tier:ident) => {
        tier_kernels!(@$abi $field $tier, one "1", two "2", three "3", four "4")
    };
    (@$abi:literal $field:ident $tier:ident, $($kernel:ident $batch:literal),*) => {{
        extern $abi {
            $(
                #[link_name = symbol!(
                    concat!("qgemv_packed_f32_q8_", stringify!($field), "_16x", $batch, "__", stringify!($tier))
                )]
                fn $kernel(args: *const PanelArgs);
            )*
        }
        &[$($kernel),*]
    }};
}

#[allow(unused_macros)] // Not every target has kernels of this kind.
/// Whether microkernels take unsigned codes, whether they take two panels, those for narrow codes; and microkernels.
macro_rules! qgemm_kernels {
    (@unsigned) => { true };
    (@signed) => { false };
    (@narrow) => { false };
    (@x16) => { false };
    (@x32) => { true };
    (@narrow $abi:literal $tier:ident $width:ident $($height:literal)+) => {
        qgemm_kernels!($abi $tier $width $($height)+ => [n32 "n32", n16 "n16", n32m "n32m", n16m "n16m"])
    };
    (@$codes:ident $abi:literal $($rest:tt)+) => { &[] };
    ($abi:literal $tier:ident $width:ident $($height:literal)+ => $kinds:tt) => {
        &[$(($height, qgemm_kernels!(@$abi $tier $height $width $kinds))),+]
    };
    (@$abi:literal $tier:ident $height:literal $width:ident [$($kernel:ident $kind:literal),*]) => {{
        extern $abi {
            $(
                #[link_name = symbol!(concat!("qgemm_f32_q8_", $kind, "_", $height, stringify!($width), "__", stringify!($tier)))]
                fn $kernel(args: *const QTileArgs);
            )*
        }
        [$($kernel),*]
    }};
}

macro_rules! qgemms {
    ({ $abi:literal } $($tier:ident {
        isa: $isa:ident,
        requires: [$($feature:ident),*],
        kernels: [$codes:ident $width:ident $($heights:literal)+],
        few: $few:tt
    })*) => {
        /// All of them, the best first.
        pub(crate) static QGEMMS: &[QgemmTier] = &[$(QgemmTier {
            id: TierId::$tier,
            level: IsaLevel::$isa,
            requires: IsaLevel::$isa.requires()$(.union(Features::$feature))*,
            unsigned: qgemm_kernels!(@$codes),
            two_panels: qgemm_kernels!(@$width),
            kernels: qgemm_kernels!(
                $abi $tier $width $($heights)+ => [g32 "g32", g16 "g16", g32m "g32m", g16m "g16m"]
            ),
            narrow: qgemm_kernels!(@$codes $abi $tier $width $($heights)+),
            few: $few,
        }),*];

        // Every number of rows is a sum of heights.
        const _: () = {
            let mut i = 0;
            while i < QGEMMS.len() {
                assert!(QGEMMS[i].kernels[QGEMMS[i].kernels.len() - 1].0 == 1);
                i += 1;
            }
        };
    };
}
expand_all_qgemms! { qgemms! }

#[allow(unused_macros)] // Not every target has kernels of this kind.
macro_rules! in_place {
    () => {
        None
    };
    ($engine:ident) => {
        Some(crate::isa::$engine::IN_PLACE)
    };
}

macro_rules! tiers {
    ({ $abi:literal } $($tier:ident {
        isa: $isa:ident,
        requires: [$($feature:ident),*],
        batch: $batch:tt,
        in_place: [$($engine:ident: $features:literal)?]
    })*) => {
        /// Which tier is which. Names of kernels end in that.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum TierId {
            $($tier),*
        }

        /// All of them, the best first.
        pub(crate) static TIERS: &[Tier] = &[$(Tier {
            id: TierId::$tier,
            level: IsaLevel::$isa,
            requires: IsaLevel::$isa.requires()$(.union(Features::$feature))*,
            batch: $batch,
            kernels: expand_all_formats! { tier_kernels! { $abi $tier $batch } },
            in_place: in_place!($($engine)?),
        }),*];
    };
}
expand_all_tiers! { tiers! }
