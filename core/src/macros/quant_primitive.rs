//! Layer 3: one table per block format.

/// Emits a format's marker type, its [`Format`](crate::quant::Format) (the scalar decode: the
/// specification) and its [`Unpack`](crate::quant::Unpack) for every SIMD instruction set of the
/// target. No row has a default, so a table with a missing row does not compile.
macro_rules! quant_primitive {
    (
        format: $name:ident,
        block: $block:ident,
        len: $len:literal,
        group: $group:literal,
        scalar: {
            scale($scale_b:ident, $scale_g:ident) => $scale:expr,
            value($value_b:ident, $value_i:ident) => $value:expr,
        },
        simd: {
            scales<$p:ident>($first:ident, $n:ident, $out:ident) => $scales:expr,
            avx512($avx512_b:ident, $avx512_i:ident) => $avx512:expr,
            avx2($avx2_b:ident, $avx2_i:ident) => $avx2:expr,
            neon($neon_b:ident, $neon_i:ident) => $neon:expr,
        }
    ) => {
        #[doc = concat!("[`QuantFormat::", stringify!($name), "`](crate::QuantFormat).")]
        pub(crate) struct $name;

        impl crate::quant::Format for $name {
            type Block = $block;
            const LEN: usize = $len;
            const GROUP: usize = $group;
            #[inline(always)]
            fn scale($scale_b: &$block, $scale_g: usize) -> f32 { $scale }
            #[inline(always)]
            fn value($value_b: &$block, $value_i: usize) -> f32 { $value }
        }

        // One expansion per instruction set of the target; the rows of others are dropped.
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        quant_primitive! { @unpack Avx512 $name $block ($p $first $n $out => $scales) ($avx512_b $avx512_i => $avx512) }
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        quant_primitive! { @unpack Avx2 $name $block ($p $first $n $out => $scales) ($avx2_b $avx2_i => $avx2) }
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        quant_primitive! { @unpack Neon $name $block ($p $first $n $out => $scales) ($neon_b $neon_i => $neon) }
    };
    (
        @unpack $isa:ident $name:ident $block:ident
        ($p:ident $first:ident $n:ident $out:ident => $scales:expr)
        ($b:ident $i:ident => $unpack:expr)
    ) => {
        const _: () = {
            use crate::isa::$isa;
            use crate::quant::widen::*;
            type $p = $isa;
            // SAFETY: every body keeps to the blocks that the trait's contract names.
            unsafe impl crate::quant::Unpack<$name> for $isa {
                #[inline(always)]
                unsafe fn scales($first: *const $block, $n: usize, $out: *mut f32) {
                    // SAFETY: the caller's contract; so below.
                    unsafe { $scales }
                }
                #[inline(always)]
                unsafe fn unpack($b: *const $block, $i: usize) -> <$isa as crate::isa::Vector>::V {
                    // SAFETY: as above.
                    unsafe { $unpack }
                }
            }
        };
    };
}
