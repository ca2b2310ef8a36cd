//! 64 bytes in a register, for products with weights in place.

use core::arch::x86_64::*;

use crate::arrays::Each;
use crate::isa::avx512::bytes::Avx512Bytes;
use crate::isa::Avx512;
use crate::quant::bytes::Bytes;
use crate::quant::dots::part;
use crate::quant::packed::{Pack, STEP_COLS};
use crate::quant::wide::{Wide, WideBytes};
use crate::quant::Unpack;

/// 64 codes from column `i` of a unit, as [`Wide::wide`] has them.
///
/// # Safety
/// The contract of [`Unpack`].
#[inline(always)]
pub(super) unsafe fn codes<F: Wide>(
    unit: *const F::Block,
    i: usize,
    ready: &<Avx512 as Unpack<F>>::Ready,
) -> __m512i
where
    Avx512: Unpack<F, Codes = Avx512Bytes>,
{
    // SAFETY: the caller's contract.
    unsafe {
        if let Some(Wide512(codes)) = F::wide(&*unit, i) {
            return codes;
        }
        let low = _mm512_castsi256_si512(biased::<F>(unit, i, ready));
        _mm512_inserti64x4::<1>(low, biased::<F>(unit, i + STEP_COLS, ready))
    }
}

/// [`part`], with the bias added.
///
/// # Safety
/// The contract of [`part`].
#[inline(always)]
unsafe fn biased<F: Pack>(unit: *const F::Block, i: usize, ready: &<Avx512 as Unpack<F>>::Ready) -> __m256i
where
    Avx512: Unpack<F, Codes = Avx512Bytes>,
{
    let bias = F::PACKING.bias();
    // SAFETY: the caller's contract.
    unsafe {
        let codes = part::<F, Avx512>(unit, i, ready);
        if bias == 0 { codes } else { codes.add(Avx512Bytes::splat(bias)) }.register()
    }
}

/// 64 bytes.
#[derive(Clone, Copy)]
struct Wide512(__m512i);

/// Every byte of the first half, and of the second one.
#[inline(always)]
unsafe fn each([low, high]: [u8; 2]) -> __m512i {
    let [low, high] = [low, high].each(|x| i64::from_ne_bytes([x; 8]));
    // SAFETY: the caller vouches for AVX-512.
    unsafe { _mm512_setr_epi64(low, low, low, low, high, high, high, high) }
}

// SAFETY: registers, or the bytes that the caller vouches for.
unsafe impl WideBytes for Wide512 {
    #[inline(always)]
    unsafe fn load(p: *const u8) -> Self {
        // SAFETY: the caller vouches for the bytes and the instruction set.
        unsafe { Self(_mm512_loadu_si512(p.cast())) }
    }
    #[inline(always)]
    unsafe fn twice(p: *const u8) -> Self {
        // SAFETY: the caller vouches for the bytes and the instruction set.
        unsafe { Self(_mm512_broadcast_i64x4(_mm256_loadu_si256(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn field(self, from: [usize; 2], to: [usize; 2], n: u32) -> Self {
        let [low, high] = [0, 1].each(|k: usize| (from[k] as i32 - to[k] as i32) & 31);
        let mask = to.each(|to| (((1u32 << n) - 1) << to) as u8);
        // SAFETY: the caller vouches for the bytes and the instruction set.
        unsafe {
            // Words are rotated as a whole: what comes from neighbours is masked out.
            let by = _mm512_setr_epi32(
                low, low, low, low, low, low, low, low, high, high, high, high, high, high, high, high,
            );
            Self(_mm512_and_si512(_mm512_rorv_epi32(self.0, by), each(mask)))
        }
    }
    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: the caller vouches for the bytes and the instruction set.
        unsafe { Self(_mm512_or_si512(self.0, other.0)) }
    }
}
