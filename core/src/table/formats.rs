//! The functions of each format, compiled for each instruction set.

use crate::args::unpacker::{Made, Q8Args, Unpacked, Unpacker};
use crate::ops::qgemv_q8;
use crate::quant::dots::Dots;
use crate::quant::packed::{Pack, Parts};
use crate::quant::{QuantFormat, SUPER_BLOCK};

/// # Safety
/// A block at `w`.
unsafe fn parts<F: Pack>(w: *const u8, g: usize) -> Parts {
    // SAFETY: the caller vouches for the block; any bytes are one, at any address.
    F::parts(unsafe { &*w.cast() }, g)
}

macro_rules! define_formats {
    (
        {}
        floats { $($float_field:ident = $float:ident: $float_len:literal in $float_bytes:literal, gguf $float_gguf:literal, $float_what:literal;)* }
        $($(#[$on:meta])* $field:ident = $name:ident: $module:ident, gguf $gguf:literal, $what:literal;)*
    ) => {
        /// One [`Unpacker`] per format.
        pub struct Formats {
            $($(#[$on])* $field: Unpacker,)*
        }

        impl Formats {
            /// The functions of `format`.
            pub(crate) fn of(&self, format: QuantFormat) -> Made<'_> {
                match format {
                    $($(#[$on])* QuantFormat::$name => Made::Blocks(&self.$field),)*
                    $(QuantFormat::$float => Made::Floats(QuantFormat::$float),)*
                }
            }
        }
    };
}
expand_all_formats! { define_formats! {} }

/// `in_place::<F>()`: [`qgemv_q8`](crate::ops::qgemv_q8::qgemv_q8) of a format. The walk for blocks of another length is not
/// compiled.
macro_rules! define_qgemv_q8 {
    ($engine:ident, $attr:meta) => {
        #[$attr]
        unsafe fn qgemv_q8_short<F: Pack>(g: &Q8Args)
        where
            $engine: Dots<F>,
        {
            // SAFETY: the caller keeps the body's contract and vouches for the CPU.
            unsafe { qgemv_q8::qgemv_q8::<F, $engine, qgemv_q8::SmallBlocks>(g) }
        }
        #[$attr]
        unsafe fn qgemv_q8_long<F: Pack>(g: &Q8Args)
        where
            $engine: Dots<F>,
        {
            // SAFETY: the caller keeps the body's contract and vouches for the CPU.
            unsafe { qgemv_q8::qgemv_q8::<F, $engine, qgemv_q8::SuperBlocks>(g) }
        }
        pub(super) const fn in_place<F: Pack>() -> unsafe fn(&Q8Args)
        where
            $engine: Dots<F>,
        {
            if F::LEN == SUPER_BLOCK {
                qgemv_q8_long::<F>
            } else {
                qgemv_q8_short::<F>
            }
        }
    };
}

/// The products in place of an instruction set. AVX-512 without VNNI shares the code of AVX2: the algorithm is the same, on
/// registers of 256 bits.
macro_rules! engine {
    (Avx512, $attr:meta) => {
        use super::avx2::in_place;
        use crate::isa::Avx2 as Engine;
    };
    ($isa:ident, $attr:meta) => {
        use crate::isa::$isa as Engine;
        define_qgemv_q8! { $isa, $attr }
    };
}

macro_rules! fill {
    ({} floats $floats:tt $($(#[$on:meta])* $field:ident = $name:ident: $module:ident, gguf $gguf:literal, $what:literal;)*) => {
        Formats { $($(#[$on])* $field: unpacker::<crate::quant::$module::$name>(),)* }
    };
}

macro_rules! define_wrappers {
    ({} isa: $isa:ident, module: $module:ident, tile: $tile:literal, skinny: $skinny:literal, attribute: $attr:meta) => {
        pub(crate) mod $module {
            use super::*;
            use crate::isa::$isa;
            use crate::quant::Unpack;

            #[$attr]
            unsafe fn unpack<F: Pack>(n: usize, w: *const u8, out: &Unpacked)
            where
                $isa: Unpack<F>,
            {
                // SAFETY: the caller keeps the body's contract and vouches for the CPU.
                unsafe { crate::ops::unpack::unpack::<F, $isa>(n, w, out) }
            }
            #[$attr]
            unsafe fn scales<F: Pack>(n: usize, w: *const u8, out: &Unpacked)
            where
                $isa: Unpack<F>,
            {
                // SAFETY: the caller keeps the body's contract and vouches for the CPU.
                unsafe { crate::ops::unpack::scales::<F, $isa>(n, w, out) }
            }
            engine! { $isa, $attr }
            const fn unpacker<F: Pack>() -> Unpacker
            where
                $isa: Unpack<F>,
                Engine: Dots<F>,
            {
                Unpacker {
                    unpack: unpack::<F>,
                    scales: scales::<F>,
                    qgemv_q8: in_place::<F>(),
                    len: F::LEN,
                    bytes: size_of::<F::Block>(),
                    group: F::GROUP,
                    offsets: F::OFFSETS,
                    packing: &F::PACKING,
                    parts: parts::<F>,
                }
            }
            pub(crate) static FORMATS: Formats = expand_all_formats! { fill! {} };
        }
    };
}
expand_all_isas! { define_wrappers! {} }

macro_rules! define_in_place {
    ({} $($tier:ident {
        isa: $isa:ident,
        requires: $requires:tt,
        batch: $batch:tt,
        single: $single:tt,
        in_place: [$($engine:ident: $features:literal)?],
        qgemm: $qgemm:tt,
        few: $few:tt,
        few_packed: $few_packed:tt,
    })*) => {$($(
        const _: () = {
            use crate::isa::$engine;

            define_qgemv_q8! { $engine, target_feature(enable = $features) }
            impl $engine {
                /// Of every format.
                pub(crate) const IN_PLACE: &'static crate::args::unpacker::InPlace = &expand_all_formats! { fill_in_place! {} };
            }
        };
    )?)*};
}
#[allow(unused_macros)] // Not every target has tiers.
macro_rules! fill_in_place {
    ({} floats $floats:tt $($(#[$on:meta])* $field:ident = $name:ident: $module:ident, gguf $gguf:literal, $what:literal;)*) => {
        [$($(#[$on])* in_place::<crate::quant::$module::$name>()),*]
    };
}
expand_all_tiers! { define_in_place! {} }
