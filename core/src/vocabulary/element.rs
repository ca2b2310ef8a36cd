//! Storage types. Arithmetic on f32, f16 and bf16 is in f32. Matrices of i8 can only be multiplied, with arithmetic in
//! i32.

use core::fmt;

pub use half::{bf16, f16};

/// A storage type as a run-time value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ElementType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    Bf16,
    /// Two's complement of 8 bits, for matrix products alone.
    I8,
}

impl ElementType {
    /// Every element type.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Bf16, Self::I8];

    /// The types of [`Element`], in the order kernel tables list them.
    pub const FLOATS: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// Lower-case name as used in kernel names: `f32`, `f16`, `bf16`, `i8`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I8 => "i8",
        }
    }

    /// Whether it is a type of [`Element`].
    pub(crate) const fn is_float(self) -> bool {
        !matches!(self, Self::I8)
    }

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::I8 => 1,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
    impl Sealed for i8 {}
}

/// A type that matrices to be multiplied can have. Sealed: implemented for every [`Element`] and for [`i8`].
pub trait Operand: Copy + Default + PartialEq + Send + Sync + fmt::Debug + sealed::Sealed + 'static {
    /// The type as a value.
    const TYPE: ElementType;
    /// Zero.
    const ZERO: Self;
    /// The type of the product's elements: [`f32`], or [`i32`] for [`i8`].
    type Sum: Copy + Default + PartialEq + Send + Sync + fmt::Debug + 'static;
}

/// A storage type of vectors and matrices. Sealed: implemented for [`f32`], [`struct@f16`] and [`bf16`].
///
/// Narrowing rounds to nearest, ties to even; widening is exact; a NaN stays a NaN.
pub trait Element: Operand<Sum = f32> {
    /// Widens to f32; exact.
    fn to_f32(self) -> f32;
    /// Narrows from f32, round to nearest even.
    fn from_f32(x: f32) -> Self;
}

macro_rules! operands {
    ($($t:ident = $ty:ident, $zero:expr, $sum:ident;)*) => {$(
        impl Operand for $t {
            const TYPE: ElementType = ElementType::$ty;
            const ZERO: Self = $zero;
            type Sum = $sum;
        }
    )*};
}
operands! {
    f32 = F32, 0.0, f32;
    f16 = F16, f16::ZERO, f32;
    bf16 = Bf16, bf16::ZERO, f32;
    i8 = I8, 0, i32;
}

impl Element for f32 {
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
    ($($t:ident)*) => {$(
        impl Element for $t {
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
half_element! { f16 bf16 }
