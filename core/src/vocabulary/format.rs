//! The formats of weights as run-time values.

use core::fmt;

use crate::element::ElementType;
use crate::error::KernelError;

macro_rules! define_formats {
    (
        {}
        floats { $($float_field:ident = $float:ident: $float_len:literal in $float_bytes:literal, gguf $float_gguf:literal, $float_what:literal;)* }
        $($(#[$on:meta])* $field:ident = $name:ident: $module:ident, gguf $gguf:literal, $what:literal;)*
    ) => {
        /// A format of weights: of quantised ones, or floating point of 16 or 8 bits.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[non_exhaustive]
        pub enum QuantFormat {
            $($(#[$on])* #[doc = $what] $name,)*
            $(#[doc = $float_what] $float,)*
        }

        impl QuantFormat {
            /// Every format.
            pub const ALL: &'static [Self] = &[$($(#[$on])* Self::$name,)* $(Self::$float),*];

            /// Lower-case name, as in kernel names: `q4_0`.
            pub const fn name(self) -> &'static str {
                match self {
                    $($(#[$on])* Self::$name => stringify!($field),)*
                    $(Self::$float => stringify!($float_field),)*
                }
            }

            /// The type number that GGUF files use; 1000 and more are of this library alone.
            pub const fn gguf_type(self) -> u32 {
                match self {
                    $($(#[$on])* Self::$name => $gguf,)*
                    $(Self::$float => $float_gguf,)*
                }
            }

            /// The format with this GGUF type number.
            ///
            /// # Errors
            /// `UnknownFormat`.
            pub const fn from_gguf(number: u32) -> Result<Self, KernelError> {
                match number {
                    $($(#[$on])* $gguf => Ok(Self::$name),)*
                    $($float_gguf => Ok(Self::$float),)*
                    _ => Err(KernelError::UnknownFormat(number)),
                }
            }

            /// Whether weights are multiplied as the floating-point numbers that they are, and not as integers with scales.
            pub const fn is_float(self) -> bool {
                match self {
                    $(Self::$float => true,)*
                    _ => false,
                }
            }
        }
    };
}
expand_all_formats! { define_formats! {} }

impl QuantFormat {
    /// The type of the weights, if they are plain floating point: then a block is one of them.
    pub const fn element(self) -> Option<ElementType> {
        match self {
            Self::F16 => Some(ElementType::F16),
            Self::Bf16 => Some(ElementType::Bf16),
            _ => None,
        }
    }

    /// The format with this [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.name() == name)
    }
}

impl fmt::Display for QuantFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
