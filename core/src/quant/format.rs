//! The lengths of each format's blocks, in weights and in bytes.

use crate::error::KernelError;
use crate::format::QuantFormat;
use crate::quant::Format;

macro_rules! define_sizes {
    (
        {}
        floats { $($float_field:ident = $float:ident: $float_len:literal in $float_bytes:literal, gguf $float_gguf:literal, $float_what:literal;)* }
        $($(#[$on:meta])* $field:ident = $name:ident: $module:ident, gguf $gguf:literal, $what:literal;)*
    ) => {
        impl QuantFormat {
            /// Elements per block.
            pub const fn block_len(self) -> usize {
                match self {
                    $($(#[$on])* Self::$name => super::$module::$name::LEN,)*
                    $(Self::$float => $float_len,)*
                }
            }

            /// Bytes per block.
            pub const fn block_bytes(self) -> usize {
                match self {
                    $($(#[$on])* Self::$name => size_of::<<super::$module::$name as Format>::Block>(),)*
                    $(Self::$float => $float_bytes,)*
                }
            }

            /// Elements that share a scale: 16 or 32; 1 of floating point, which is its own scale. Where a format shares one
            /// among more, it is repeated.
            pub const fn group_len(self) -> usize {
                match self {
                    $($(#[$on])* Self::$name => super::$module::$name::GROUP,)*
                    $(Self::$float => 1,)*
                }
            }

            /// Whether groups have an offset beside their scale.
            pub const fn has_offsets(self) -> bool {
                match self {
                    $($(#[$on])* Self::$name => super::$module::$name::OFFSETS,)*
                    $(Self::$float => false,)*
                }
            }
        }

        // The kernels rely on this.
        $($(#[$on])* const _: () = {
            type F = super::$module::$name;
            assert!(super::SUPER_BLOCK % F::LEN == 0 && F::LEN % super::PART == 0);
            assert!(F::GROUP == super::MIN_GROUP || F::GROUP == super::PART);
        };)*
    };
}
expand_all_formats! { define_sizes! {} }

impl QuantFormat {
    /// Bytes of a row of `cols` elements.
    ///
    /// # Errors
    /// `NotBlockMultiple` if the row is not made of whole blocks, `SizeOverflow`.
    pub const fn row_bytes(self, cols: usize) -> Result<usize, KernelError> {
        let block = self.block_len();
        if !cols.is_multiple_of(block) {
            return Err(KernelError::NotBlockMultiple { cols, block });
        }
        match (cols / block).checked_mul(self.block_bytes()) {
            Some(bytes) => Ok(bytes),
            None => Err(KernelError::SizeOverflow { what: "bytes of a quantised row" }),
        }
    }
}
