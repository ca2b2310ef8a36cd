//! Block layouts, as they lie in memory and in GGUF files. Each is declared in the file of its family. All are little-endian byte arrays of
//! alignment 1, so a block may start at any address, and all bytes are a valid block.
//!
//! The documentation of each block says what its weights are. There, `i` counts the weights of a block
//! from 0, `/` on indices rounds down, bit 0 is the lowest, and formulas are evaluated in f32 from left
//! to right. A product of scale, group scale and integer has at most 24 significant bits, so it is
//! exact, and a weight with a minimum is rounded once, by the last addition or subtraction: fused with
//! the multiplication or not makes no difference. What the order of multiplications decides is the
//! sign of a zero. (Exceptions: the scale of [`BlockQ8K`] is f32, so its product is rounded; weights
//! of [`BlockMxfp4`] may overflow to infinity.)

use crate::element::f16;

/// Types that any bytes of the right number are a valid value of.
///
/// # Safety
/// `repr(C)` or `repr(transparent)` of bytes only: alignment 1, no padding, no invalid bit patterns.
pub(crate) unsafe trait Block: Copy + 'static {}

macro_rules! scalars {
    ($($name:ident: $bytes:literal bytes, $ty:ident;)*) => {$(
        #[doc = concat!("A little-endian ", stringify!($ty), " at any address.")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $name(pub [u8; $bytes]);

        impl $name {
            /// The number.
            #[inline(always)]
            pub const fn get(self) -> $ty {
                $ty::from_le_bytes(self.0)
            }
            /// The bytes of `x`.
            #[inline(always)]
            pub const fn new(x: $ty) -> Self {
                Self(x.to_le_bytes())
            }
        }
    )*};
}
scalars! {
    Half: 2 bytes, f16;
    Single: 4 bytes, f32;
    I16: 2 bytes, i16;
    U16: 2 bytes, u16;
    U32: 4 bytes, u32;
}

macro_rules! blocks {
    ($($(#[$doc:meta])* $name:ident: $bytes:literal bytes { $($(#[$field_doc:meta])* $field:ident: $ty:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
        }
        const _: () = assert!(size_of::<$name>() == $bytes && align_of::<$name>() == 1);
        // SAFETY: every field is made of bytes, as the assertion's alignment confirms.
        unsafe impl crate::quant::blocks::Block for $name {}
    )*};
}

pub use super::{e4m3::*, iq::*, k::*, legacy::*, mx::*, ternary::*};
