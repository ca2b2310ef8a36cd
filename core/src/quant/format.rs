//! The formats as run-time values.

use core::fmt;

use crate::element::ElementType;
use crate::error::KernelError;
use crate::ops::floats;
use crate::quant::Format;

macro_rules! define_formats {
    (
        { $($float_field:ident = $float:ident: gguf $float_gguf:literal, $float_what:literal;)* }
        $($field:ident = $name:ident: $module:ident, gguf $gguf:literal, $what:literal;)*
    ) => {
        /// A format of weights: of quantised ones, or plain floating point of 16 bits.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[non_exhaustive]
        pub enum QuantFormat {
            $(#[doc = $what] $name,)*
            $(#[doc = $float_what] $float,)*
        }

        impl QuantFormat {
            /// Every format.
            pub const ALL: &'static [Self] = &[$(Self::$name,)* $(Self::$float),*];

            /// Lower-case name, as in kernel names: `q4_0`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($field),)*
                    $(Self::$float => stringify!($float_field),)*
                }
            }

            /// The type number that GGUF files use.
            pub const fn gguf_type(self) -> u32 {
                match self {
                    $(Self::$name => $gguf,)*
                    $(Self::$float => $float_gguf,)*
                }
            }

            /// The format with this GGUF type number.
            ///
            /// # Errors
            /// `UnknownFormat`.
            pub const fn from_gguf(number: u32) -> Result<Self, KernelError> {
                match number {
                    $($gguf => Ok(Self::$name),)*
                    $($float_gguf => Ok(Self::$float),)*
                    _ => Err(KernelError::UnknownFormat(number)),
                }
            }

            /// The type of the weights, if they are plain floating point: then a block is one of them.
            pub const fn element(self) -> Option<ElementType> {
                match self {
                    $(Self::$float => Some(ElementType::$float),)*
                    _ => None,
                }
            }

            /// Elements per block.
            pub const fn block_len(self) -> usize {
                match self {
                    $(Self::$name => super::$module::$name::LEN,)*
                    $(Self::$float => 1,)*
                }
            }

            /// Bytes per block.
            pub const fn block_bytes(self) -> usize {
                match self {
                    $(Self::$name => size_of::<<super::$module::$name as Format>::Block>(),)*
                    $(Self::$float => floats::SIZE,)*
                }
            }

            /// Elements that share a scale: 16 or 32; 1 of plain floating point, which is its own scale. Where a format shares one
            /// among more, it is repeated.
            pub const fn group_len(self) -> usize {
                match self {
                    $(Self::$name => super::$module::$name::GROUP,)*
                    $(Self::$float => 1,)*
                }
            }

            /// Whether groups have an offset beside their scale.
            pub const fn has_offsets(self) -> bool {
                match self {
                    $(Self::$name => super::$module::$name::OFFSETS,)*
                    $(Self::$float => false,)*
                }
            }
        }

        // What the kernels rely on.
        $(const _: () = {
            type F = super::$module::$name;
            assert!(super::TILE % F::LEN == 0 && F::LEN % super::PART == 0);
            assert!(F::GROUP == super::MIN_GROUP || F::GROUP == super::PART);
        };)*
    };
}
expand_blocks_and_floats! { define_formats! }

impl QuantFormat {
    /// The format with this [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.name() == name)
    }

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

impl fmt::Display for QuantFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
