//! Tables of the kernels in assembly: microkernels of matrix products, and tiers of kernels for quantised products.

use core::fmt;

use crate::args::micro::*;
use crate::args::unpacker::InPlace;
use crate::caps::{Features, IsaLevel};
use crate::isa::machine::Assembly;
use crate::ops::qgemm::tile::QTileArgs;
use crate::ops::qgemv_packed::PanelArgs;
use crate::quant::QuantFormat;

macro_rules! micros {
    ($($name:ident {
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
        kernels_in_assembly! {
            $(
                #[link_name = symbol!(stringify!($name))]
                fn $name(args: *const MicroArgs);
            )*
        }

        /// The index of each microkernel in the enumeration.
        #[allow(non_camel_case_types, dead_code)] // They are named like kernels; not every target has some.
        enum MicroIndex {
            $($name),*
        }

        /// Which microkernel is which.
        #[allow(non_upper_case_globals)] // They are named like kernels.
        pub(crate) mod micro_id {
            $(pub(crate) const $name: super::MicroId = super::MicroId(super::MicroIndex::$name as u16);)*
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
            run: MicroFn::Asm($name),
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
pub(crate) type PanelFn = Assembly<PanelArgs>;

/// A microkernel of `qgemm`.
pub(crate) type TileFn = Assembly<QTileArgs>;

/// For a number of rows of activations its microkernels.
pub(crate) type TileFns = &'static [(usize, &'static [TileFn])];

/// Kernels in assembly for products with quantised weights in integers.
pub(crate) struct Tier {
    pub(crate) id: TierId,
    pub(crate) level: IsaLevel,
    /// The features that the CPU must have.
    pub(crate) requires: Features,
    /// Rows of activations that a kernel for packed weights takes at most.
    pub(crate) batch: usize,
    /// Those for packed weights: of every format, for every number of rows of activations.
    pub(crate) packed: TierKernels,
    /// Those for weights in place, unless the level's own are as good.
    pub(crate) in_place: Option<&'static InPlace>,
    /// Those for many rows of activations.
    pub(crate) qgemm: Tiles,
    /// Rows of activations up to which `qgemv_q8` is faster than unpacking weights in place: in blocks of less than 256, in
    /// such blocks, and in any with groups of 16 or with one scale.
    pub(crate) few: [usize; 3],
    /// Rows of activations up to which kernels for packed weights are faster than unpacking panels for tiles: with codes in
    /// one plane of bits, and in two planes, which these kernels unpack again for every [`batch`](Self::batch) of rows.
    pub(crate) few_packed: [usize; 2],
}

/// Microkernels of `qgemm`, for products in integers of many rows of activations.
pub(crate) struct Tiles {
    /// Whether they take codes with a bias.
    pub(crate) unsigned: bool,
    /// Whether they take two panels of weights side by side.
    pub(crate) two_panels: bool,
    /// For a number of rows of activations those of each [`PanelKind`](crate::ops::qgemm::tile::PanelKind). Numbers fall, to 1.
    pub(crate) kernels: TileFns,
    /// Kernels for codes that are [narrow](crate::quant::packed::Packing::narrow), if there are any: of each kind; then those
    /// that sum half a group, without offsets and with them.
    pub(crate) narrow: TileFns,
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tier({:?})", self.id)
    }
}

macro_rules! define_tier_kernels {
    ({} floats $floats:tt $($(#[$on:meta])* $field:ident = $name:ident: $module:ident, gguf $gguf:literal, $what:literal;)*) => {
        /// Of each format those for one row of activations, for two, ..
        pub(crate) struct TierKernels {
            $($(#[$on])* pub(crate) $field: &'static [PanelFn],)*
        }

        impl Tier {
            /// The kernels of a format, by the number of rows of activations less one.
            pub(crate) fn of(&self, format: QuantFormat) -> &'static [PanelFn] {
                match format {
                    $($(#[$on])* QuantFormat::$name => self.packed.$field,)*
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
    ({ $tier:ident $batch:tt } floats $floats:tt $($(#[$on:meta])* $field:ident = $name:ident: $module:ident, gguf $gguf:literal, $what:literal;)*) => {
        TierKernels { $($(#[$on])* $field: tier_kernels!(@$batch $field $tier),)* }
    };
    (@2 $field:ident $tier:ident) => {
        tier_kernels!(@$field $tier, one "1", two "2")
    };
    (@4 $field:ident $tier:ident) => {
        tier_kernels!(@$field $tier, one "1", two "2", three "3", four "4")
    };
    (@$field:ident $tier:ident, $($kernel:ident $batch:literal),*) => {{
        kernels_in_assembly! {
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
    (@narrow $tier:ident $width:ident $($height:literal)+) => {
        qgemm_kernels!(
            $tier $width $($height)+ => [n32 "n32", n16 "n16", n32m "n32m", n16m "n16m", h32 "h32", h32m "h32m"]
        )
    };
    (@$codes:ident $tier:ident $width:ident $($height:literal)+) => { &[] };
    ($tier:ident $width:ident $($height:literal)+ => $kinds:tt) => {
        &[$(($height, qgemm_kernels!(@$tier $height $width $kinds))),+]
    };
    (@$tier:ident $height:literal $width:ident [$($kernel:ident $kind:literal),*]) => {{
        kernels_in_assembly! {
            $(
                #[link_name = symbol!(concat!("qgemm_f32_q8_", $kind, "_", $height, stringify!($width), "__", stringify!($tier)))]
                fn $kernel(args: *const QTileArgs);
            )*
        }
        &[$($kernel),*]
    }};
}

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
    ({} $($tier:ident {
        isa: $isa:ident,
        requires: [$($feature:ident),*],
        batch: $batch:tt,
        single: $single:tt,
        in_place: [$($engine:ident: $features:literal)?],
        qgemm: [$codes:ident $width:ident $($heights:literal)+],
        few: $few:tt,
        few_packed: $few_packed:tt,
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
            packed: expand_all_formats! { tier_kernels! { $tier $batch } },
            in_place: in_place!($($engine)?),
            qgemm: Tiles {
                unsigned: qgemm_kernels!(@$codes),
                two_panels: qgemm_kernels!(@$width),
                kernels: qgemm_kernels!(
                    $tier $width $($heights)+ => [g32 "g32", g16 "g16", g32m "g32m", g16m "g16m"]
                ),
                narrow: qgemm_kernels!(@$codes $tier $width $($heights)+),
            },
            few: $few,
            few_packed: $few_packed,
        }),*];

        // Every number of rows is a sum of heights.
        const _: () = {
            let mut i = 0;
            while i < TIERS.len() {
                let kernels = TIERS[i].qgemm.kernels;
                assert!(kernels[kernels.len() - 1].0 == 1);
                i += 1;
            }
        };
    };
}
expand_all_tiers! { tiers! {} }
