//! 64 codes in a register, for products with weights in place: AVX-512.
//!
//! Bits of codes need not be moved to the bottom of their bytes where products of unsigned bytes are summed in 32 bits:
//! what a step's codes are too large by, a power of two, is taken back by their groups' scales
//! ([`Packing::shifts`](crate::quant::packed::Packing::shifts)).

use core::arch::x86_64::*;

use crate::arrays::Each;
use crate::isa::Avx512;
use crate::quant::bytes::{Bytes, Codes};
use crate::quant::dots::{halves, part};
use crate::quant::packed::{Pack, STEP, STEPS};
use crate::quant::Unpack;

/// 64 bytes.
#[derive(Clone, Copy)]
pub(crate) struct WideBytes(pub(crate) __m512i);

/// How codes of 64 columns are unpacked.
///
/// # Safety
/// That of [`Unpack`].
pub(crate) unsafe trait Wide<F: Pack>: Unpack<F, Codes = <Avx512 as Codes>::Bytes> {
    /// Whether there are 64 codes in a register, not 32: where factors change within 32 columns, which then takes one
    /// permutation for 64, or where it takes fewer instructions for other reasons.
    const WIDE: bool = halves::<F>();
    /// Codes from column `i` of a unit, with [`Packing::bias`](crate::quant::packed::Packing::bias) added and shifted left by
    /// their step's [`Packing::shifts`](crate::quant::packed::Packing::shifts).
    #[inline(always)]
    unsafe fn wide(unit: *const F::Block, i: usize, ready: &Self::Ready) -> WideBytes {
        // SAFETY: the caller's contract.
        unsafe {
            let low = _mm512_castsi256_si512(biased::<F, Self>(unit, i, ready));
            WideBytes(if Self::WIDE {
                _mm512_inserti64x4::<1>(low, biased::<F, Self>(unit, i + STEP, ready))
            } else {
                low
            })
        }
    }
}

/// [`part`], with the bias added.
///
/// # Safety
/// That of [`part`].
#[inline(always)]
unsafe fn biased<F: Pack, P: Unpack<F, Codes = <Avx512 as Codes>::Bytes>>(
    unit: *const F::Block,
    i: usize,
    ready: &P::Ready,
) -> __m256i {
    let bias = F::PACKING.bias();
    // SAFETY: the caller's contract.
    unsafe {
        let codes = part::<F, P>(unit, i, ready);
        if bias == 0 { codes } else { codes.add(Bytes::splat(bias)) }.register()
    }
}

/// The shifts of the two steps from column `i` of a unit.
#[inline(always)]
pub(crate) fn shifts<F: Pack>(i: usize) -> [usize; 2] {
    [0, 1].each(|k| F::PACKING.shifts[(i / STEP + k) % STEPS])
}

/// Every byte of the first half, and of the second one.
#[inline(always)]
unsafe fn each([low, high]: [u8; 2]) -> __m512i {
    let [low, high] = [low, high].each(|x| i64::from_ne_bytes([x; 8]));
    // SAFETY: the caller vouches for AVX-512.
    unsafe { _mm512_setr_epi64(low, low, low, low, high, high, high, high) }
}

// Two numbers stand for the halves.
impl WideBytes {
    /// 64 bytes at `p`.
    #[inline(always)]
    pub(crate) unsafe fn load(p: *const u8) -> Self {
        // SAFETY: the caller vouches for the bytes and the instruction set; so below.
        unsafe { Self(_mm512_loadu_si512(p.cast())) }
    }
    /// 32 bytes at `p`, twice.
    #[inline(always)]
    pub(crate) unsafe fn twice(p: *const u8) -> Self {
        // SAFETY: as above.
        unsafe { Self(_mm512_broadcast_i64x4(_mm256_loadu_si256(p.cast()))) }
    }
    /// The `n` bits from bit `from` of each byte, at `to`.
    #[inline(always)]
    pub(crate) unsafe fn field(self, from: [usize; 2], to: [usize; 2], n: u32) -> Self {
        let [low, high] = [0, 1].each(|k: usize| (from[k] as i32 - to[k] as i32) & 31);
        let mask = to.each(|to| (((1u32 << n) - 1) << to) as u8);
        // SAFETY: as above.
        unsafe {
            // Words are rotated as a whole: what comes from neighbours is masked out.
            let by = _mm512_setr_epi32(
                low, low, low, low, low, low, low, low, high, high, high, high, high, high, high, high,
            );
            Self(_mm512_and_si512(_mm512_rorv_epi32(self.0, by), each(mask)))
        }
    }
    /// `self | other`
    #[inline(always)]
    pub(crate) unsafe fn or(self, other: Self) -> Self {
        // SAFETY: as above.
        unsafe { Self(_mm512_or_si512(self.0, other.0)) }
    }
}
