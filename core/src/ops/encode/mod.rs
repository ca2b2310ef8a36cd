//! Encoders, compiled for every instruction set. Each format says how it encodes a block, with the searches of
//! [`quant::encode`](crate::quant::encode).

mod bytes;
mod measure;

use crate::element::Element;
use crate::quant::encode::{Encode, Encoder};
use crate::quant::{formats, QuantFormat};
pub(crate) use measure::Isa;

macro_rules! encoders {
    ({} floats $floats:tt $($(#[$on:meta])* $field:ident = $name:ident: $module:ident, gguf $gguf:literal, $what:literal;)*) => {
        /// The encoder of a format, if there is one.
        pub(crate) fn encoder<E: Element>(format: QuantFormat) -> Option<Encoder<Isa, E>> {
            match format {
                $($(#[$on])* QuantFormat::$name => formats::$name::encoder(),)*
                // Plain floating point has no blocks, and E4M3 is made from checkpoints in FP8 alone.
                QuantFormat::F16 | QuantFormat::Bf16 | QuantFormat::E4m3 => None,
            }
        }
    };
}
expand_all_formats! { encoders! {} }
