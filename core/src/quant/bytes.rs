//! Vectors of 32 bytes. The SIMD half of each format's table (layer 3) is written with their operations.

use crate::arrays::{from_fn, Each};
use crate::element::f16;
use crate::quant::blocks::{Block, Half};
use crate::quant::packed::GROUPS;
use crate::vector::{Prim, Vector};

/// 32 bytes. Operations do the same to each of them, and arithmetic wraps.
///
/// # Safety
/// Every method requires that the CPU has the instruction set; those that take a pointer, what
/// they say of it. Nothing else is touched.
pub(crate) unsafe trait Bytes: Copy {
    /// 32 bytes at `p`.
    unsafe fn load(p: *const u8) -> Self;
    /// 16 bytes at `p`, twice.
    unsafe fn load_twice(p: *const u8) -> Self;
    /// 8 bytes at `p`, each four times.
    unsafe fn load_four_times(p: *const u8) -> Self;
    /// `x` in every byte.
    unsafe fn splat(x: u8) -> Self;
    /// Four groups of eight bytes, in memory order.
    unsafe fn words64(w: [u64; 4]) -> Self;
    /// Eight groups of four bytes, in memory order.
    unsafe fn words32(w: [u32; 8]) -> Self;
    /// 0xff for every bit that is set, 0 for the others; the lowest bit comes first.
    unsafe fn mask(bits: u32) -> Self;
    /// `self & other`
    unsafe fn and(self, other: Self) -> Self;
    /// `self | other`
    unsafe fn or(self, other: Self) -> Self;
    /// `self ^ other`
    unsafe fn xor(self, other: Self) -> Self;
    /// `self + other`
    unsafe fn add(self, other: Self) -> Self;
    /// `self - other`
    unsafe fn sub(self, other: Self) -> Self;
    /// `self * other`
    unsafe fn mul(self, other: Self) -> Self;
    /// 0xff where `self >= other` as unsigned numbers, else 0.
    unsafe fn at_least(self, other: Self) -> Self;
    /// Every byte shifted right by `n < 8`.
    unsafe fn shr(self, n: u32) -> Self;
    /// Every byte shifted left by `n < 8`.
    unsafe fn shl(self, n: u32) -> Self;
    /// The low halves of the first 16 bytes, then the high halves of the last 16.
    unsafe fn nibbles(self) -> Self;
    /// `table[byte]` for bytes below 16.
    unsafe fn lookup(self, table: &[i8; 16]) -> Self;
    /// Of four groups of eight bytes, the two in the middle change places.
    unsafe fn swap_middle(self) -> Self;
    /// Writes the 32 bytes to `p`.
    unsafe fn store(self, p: *mut i8);

    /// Writes eight numbers to `out`: their low bytes are at `low`, the `BITS` above those follow each other in `high`.
    unsafe fn indices<const BITS: u32>(low: *const u8, high: u32, out: *mut u32);

    /// The same as [`indices`](Self::indices) with 3 bits, and with a fourth one: where that is set `negative` gets
    /// 0xffff_ffff, else 0.
    unsafe fn signed_indices(low: *const u8, high: u32, out: *mut u32, negative: *mut u32);
    /// Four numbers of 0 or 0xffff_ffff at `p`, eight bytes each.
    unsafe fn spread(p: *const u32) -> Self;

    /// The bits of `self` below `n`.
    #[inline(always)]
    unsafe fn low(self, n: u32) -> Self {
        // SAFETY: registers only.
        unsafe { self.and(Self::splat((1 << n) - 1)) }
    }
    /// Bits `from .. from + n` of each byte, at `to`.
    #[inline(always)]
    unsafe fn field(self, from: u32, n: u32, to: u32) -> Self {
        // SAFETY: registers only.
        unsafe {
            let moved = if from > to { self.shr(from - to) } else { self.shl(to - from) };
            moved.and(Self::splat((((1 << n) - 1) << to) as u8))
        }
    }
    /// `self - x`
    #[inline(always)]
    unsafe fn minus(self, x: u8) -> Self {
        // SAFETY: registers only.
        unsafe { self.sub(Self::splat(x)) }
    }
    /// `-self` where a bit of `bits` is set, `self` elsewhere; the lowest bit comes first. Nothing is negative before.
    #[inline(always)]
    unsafe fn negate(self, bits: u32) -> Self {
        // SAFETY: registers only.
        unsafe {
            let mask = Self::mask(bits);
            self.xor(mask).sub(mask)
        }
    }
}

/// The way from codes to f32.
///
/// # Safety
/// The contract of [`Bytes`].
pub(crate) unsafe trait Widen: Vector {
    /// `LANES` signed bytes at `p` as f32; exact.
    unsafe fn widen(p: *const i8) -> Self::V;
    /// Of `LANES` groups of four signed bytes at `p`, the first bytes as f32, the second, the third and the fourth; exact.
    unsafe fn widen_fours(p: *const i8) -> [Self::V; 4];
}

/// Tables of 16 codes.
///
/// # Safety
/// The contract of [`Bytes`].
pub(crate) unsafe trait Lookup: Vector {
    /// Replaces each of `n` bytes below 16 at `p` by the table's, `n` being a multiple of 32.
    unsafe fn look_up(table: &[i8; 16], p: *mut u8, n: usize);
}

// SAFETY: reads and writes the bytes, as the contract allows.
unsafe impl<P: SimdUnpack> Lookup for P {
    #[inline(always)]
    unsafe fn look_up(table: &[i8; 16], p: *mut u8, n: usize) {
        for i in (0..n).step_by(32) {
            // SAFETY: the caller vouches for `n` bytes, which are taken 32 at a time, and for the instruction set.
            unsafe { P::Bytes::load(p.add(i)).lookup(table).store(p.add(i).cast()) };
        }
    }
}

/// An instruction set that the rows of layer 3 are compiled for.
///
/// # Safety
/// The contract of [`Bytes`].
pub(crate) unsafe trait SimdUnpack: Widen + Prim<f16> + Prim<f32> {
    /// 32 bytes.
    type Bytes: Bytes;
    /// The number.
    unsafe fn half(h: Half) -> f32;
    /// The 8 scales of Q4_K and Q5_K, and their 8 minima.
    unsafe fn scales_and_minima(packed: &[u8; 12]) -> [i8; 16];
    /// The 16 scales of Q3_K.
    unsafe fn six_bits(packed: &[u8; 12]) -> [i8; 16];
    /// The 8 scales of IQ4_XS, and nothing that matters: low bits, high bits.
    unsafe fn split_six_bits(low: [u8; 4], high: u16) -> [i8; 16];
    /// The 16 factors of IQ1_M: twice three bits, plus 1; of each word of 16 bits four.
    unsafe fn three_bits(words: u64) -> [i8; 16];
    /// Writes eight numbers to `out`.
    unsafe fn halves(h: [Half; 8], out: *mut f32);
    /// Writes [`e8m0_half`](crate::quant::codebooks::e8m0_half) of eight numbers to `out`.
    unsafe fn e8m0(e: [u8; 8], out: *mut f32);
    /// Writes [`ue4m3_half`](crate::quant::codebooks::ue4m3_half) of eight numbers to `out`.
    unsafe fn ue4m3(d: [u8; 8], out: *mut f32);
}

/// The scales of blocks with one f16 each, eight at a time.
///
/// # Safety
/// `n` blocks at `first`, room for `n` f32 at `out`, the instruction set.
#[inline(always)]
pub(super) unsafe fn halves<P: SimdUnpack, B: Block>(
    first: *const B,
    n: usize,
    out: *mut f32,
    scale: impl Fn(&B) -> Half,
) {
    let mut k = 0;
    // SAFETY: everything is below n, and the caller vouches for n blocks.
    unsafe {
        while n - k >= 8 {
            P::halves(from_fn(|i| scale(&*first.add(k + i))), out.add(k));
            k += 8;
        }
        while k < n {
            *out.add(k) = P::half(scale(&*first.add(k)));
            k += 1;
        }
    }
}

/// The scales of blocks with `N` bytes each, which `convert` turns into numbers, eight at a time.
///
/// # Safety
/// `n` blocks at `first`, room for `n * N` f32 at `out`, the contract of `convert`.
#[inline(always)]
pub(super) unsafe fn converted<B: Block, const N: usize>(
    first: *const B,
    n: usize,
    out: *mut f32,
    scales: impl Fn(&B) -> [u8; N],
    convert: unsafe fn([u8; 8], *mut f32),
) {
    let (at_once, mut k) = (const { 8 / N }, 0);
    // SAFETY: everything is below n, and the caller vouches for n blocks.
    unsafe {
        while k < n {
            let there = (n - k).min(at_once);
            let all = from_fn(|i| if i / N < there { scales(&*first.add(k + i / N))[i % N] } else { 0 });
            if there == at_once {
                convert(all, out.add(k * N));
            } else {
                let mut last = [0.0; 8];
                convert(all, last.as_mut_ptr());
                core::ptr::copy_nonoverlapping(last.as_ptr(), out.add(k * N), there * N);
            }
            k += there;
        }
    }
}

/// The `N` scales of each block, one by one.
///
/// # Safety
/// `n` blocks at `first`, room for `n * N` f32 at `out`.
#[inline(always)]
pub(super) unsafe fn each<B: Block, const N: usize>(
    first: *const B,
    n: usize,
    out: *mut f32,
    scales: impl Fn(&B) -> [f32; N],
) {
    for k in 0..n {
        // SAFETY: k < n, and the caller vouches for n blocks and their scales.
        unsafe { *out.add(k * N).cast::<[f32; N]>() = scales(&*first.add(k)) };
    }
}

/// `factors`, and zeros.
#[inline(always)]
pub(super) fn sixteen<const N: usize>(factors: [i8; N]) -> [i8; GROUPS] {
    from_fn(|g| if g < N { factors[g % N] } else { 0 })
}

/// The scales (or offsets) of blocks whose groups have integer factors of a common one: `d * factors[g]`.
///
/// # Safety
/// The contract of [`each`].
#[inline(always)]
pub(super) unsafe fn factored<B: Block, const N: usize>(
    first: *const B,
    n: usize,
    out: *mut f32,
    parts: impl Fn(&B) -> (f32, [i8; N]),
) {
    // SAFETY: the caller's contract.
    unsafe {
        each(first, n, out, |b| {
            let (d, factors) = parts(b);
            factors.each(|f| d * f32::from(f))
        });
    }
}
