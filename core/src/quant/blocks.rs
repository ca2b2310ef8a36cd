//! Block layouts, as they lie in memory and in GGUF files. All are little-endian byte arrays of
//! alignment 1, so a block may start at any address.

use crate::element::f16;

/// A little-endian f16 at any address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Half(pub [u8; 2]);

impl Half {
    /// The number.
    #[inline(always)]
    pub fn get(self) -> f16 {
        f16::from_le_bytes(self.0)
    }
}

/// Types that any bytes of the right number are a valid value of.
///
/// # Safety
/// `repr(C)` or `repr(transparent)` of bytes only: alignment 1, no padding, no invalid bit patterns.
pub(crate) unsafe trait Block: Copy + 'static {}

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
        unsafe impl Block for $name {}
    )*};
}

blocks! {
    /// Q4_0: 32 weights of 4 bits, `w = (q - 8) * d`.
    BlockQ4_0: 18 bytes {
        /// Scale.
        d: Half,
        /// Element `i < 16` in the low half of byte `i`, element `i + 16` in its high half.
        qs: [u8; 16],
    }
    /// Q8_0: 32 weights of 8 bits, `w = q * d`.
    BlockQ8_0: 34 bytes {
        /// Scale.
        d: Half,
        /// Two's complement integers, in order.
        qs: [u8; 32],
    }
}
