//! Storage types: f32, f16 and bf16. All arithmetic is in f32.

use core::fmt;

pub use half::{bf16, f16};

/// A storage type as a run-time value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElementType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    Bf16,
}

impl ElementType {
    /// Every element type, in the order kernel tables list them.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// Lower-case name as used in kernel names: `f32`, `f16`, `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// What belongs to this type, of a list in the order of [`ALL`](Self::ALL).
    pub(crate) const fn pick<T: Copy>(self, [f32, f16, bf16]: [T; 3]) -> T {
        match self {
            Self::F32 => f32,
            Self::F16 => f16,
            Self::Bf16 => bf16,
        }
    }

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A storage type of vectors and matrices. Sealed: implemented for [`f32`], [`struct@f16`] and [`bf16`].
///
/// Narrowing rounds to nearest, ties to even; widening is exact; a NaN stays a NaN.
pub trait Element:
    Copy + Default + PartialEq + Send + Sync + fmt::Debug + crate::dispatch::Tables + 'static
{
    /// The type as a value.
    const TYPE: ElementType;
    /// Zero.
    const ZERO: Self;
    /// Widens to f32; exact.
    fn to_f32(self) -> f32;
    /// Narrows from f32, round to nearest even.
    fn from_f32(x: f32) -> Self;
}

impl Element for f32 {
    const TYPE: ElementType = ElementType::F32;
    const ZERO: Self = 0.0;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        x
    }
}

macro_rules! half_element {
    ($($t:ident = $ty:ident;)*) => {$(
        impl Element for $t {
            const TYPE: ElementType = ElementType::$ty;
            const ZERO: Self = $t::ZERO;
            #[inline(always)]
            fn to_f32(self) -> f32 {
                $t::to_f32(self)
            }
            #[inline(always)]
            fn from_f32(x: f32) -> Self {
                $t::from_f32(x)
            }
        }
    )*};
}
half_element! { f16 = F16; bf16 = Bf16; }
