//! How integers are packed into words by the formats that store a row for each input: AWQ, GPTQ, SqueezeLLM.
//!
//! To convert an integer to f32, its bits are put into the mantissa of a power of two that is so large that the lowest bit of
//! its mantissa is worth 1. Subtracting this power of two plus the zero point gives the difference, exactly.

use super::grouped::{GptqZeros, Grouped};
use super::{eight, UNPACKED};
use crate::element::f16;
use crate::quant::lanes::Lanes;
use crate::vector::Prim;

/// Vectors of outputs in a vector of words, at most.
pub(super) const VECTORS: usize = 8;

/// How integers lie in words.
pub(super) trait Layout: Copy {
    /// Bits of an integer.
    const BITS: u32;
    /// Vectors of outputs in a vector of words: 1 or 8.
    const VECTORS: usize;

    /// Where integer `t` of the inputs that are read together lies, in vector `v`: the row of words, counted
    /// from the first of these inputs, and the bit, from which on it may reach into the next row.
    fn place(t: usize, v: usize) -> (usize, u32);

    /// Writes the zero points of group `group`, and its scales, for `range = (from, n)`: `n` outputs, in
    /// vectors ordered as the words' are, `n` rounded up to whole ones.
    ///
    /// # Safety
    /// The group and the outputs exist; `from` is a multiple of 32; there is room; the instruction set.
    unsafe fn group<P: Lanes>(
        self,
        w: &Grouped<'_>,
        group: usize,
        range: (usize, usize),
        to: (*mut f32, *mut f32),
    );
}

/// [`AwqRef`](super::AwqRef).
#[derive(Clone, Copy)]
pub(super) struct Awq;

/// Eights of consecutive outputs, an output to a vector, in the order of [`AwqRef`](super::AwqRef)'s bits.
#[inline(always)]
unsafe fn split<P: Lanes>(c: [P::V; VECTORS]) -> [P::V; VECTORS] {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let (a, b) = (P::unzip(c[0], c[1]), P::unzip(c[2], c[3]));
        let (c, d) = (P::unzip(c[4], c[5]), P::unzip(c[6], c[7]));
        let ([e0, e4], [e2, e6]) = quarters::<P>([a.0, b.0, c.0, d.0]);
        let ([e1, e5], [e3, e7]) = quarters::<P>([a.1, b.1, c.1, d.1]);
        [e0, e2, e4, e6, e1, e3, e5, e7]
    }
}

/// Lanes `4 i` and `4 i + 2` of four vectors; `4 i + 1` and `4 i + 3`.
#[inline(always)]
unsafe fn quarters<P: Lanes>(p: [P::V; 4]) -> ([P::V; 2], [P::V; 2]) {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let (a, b) = (P::unzip(p[0], p[1]), P::unzip(p[2], p[3]));
        let (even, odd) = (P::unzip(a.0, b.0), P::unzip(a.1, b.1));
        ([even.0, even.1], [odd.0, odd.1])
    }
}

/// The inverse of [`split`].
#[inline(always)]
pub(super) unsafe fn join<P: Lanes>(v: [P::V; VECTORS]) -> [P::V; VECTORS] {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let [e0, e2, e4, e6, e1, e3, e5, e7] = v;
        let (even, odd) = (whole::<P>([e0, e4], [e2, e6]), whole::<P>([e1, e5], [e3, e7]));
        let mut all = [even[0]; VECTORS];
        for i in 0..VECTORS / 2 {
            (all[2 * i], all[2 * i + 1]) = P::zip(even[i], odd[i]);
        }
        all
    }
}

/// The inverse of [`quarters`].
#[inline(always)]
unsafe fn whole<P: Lanes>(even: [P::V; 2], odd: [P::V; 2]) -> [P::V; 4] {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let (a, b) = (P::zip(even[0], even[1]), P::zip(odd[0], odd[1]));
        let (low, high) = (P::zip(a.0, b.0), P::zip(a.1, b.1));
        [low.0, low.1, high.0, high.1]
    }
}

impl Layout for Awq {
    const BITS: u32 = 4;
    const VECTORS: usize = VECTORS;

    #[inline(always)]
    fn place(t: usize, v: usize) -> (usize, u32) {
        (t, 4 * v as u32)
    }

    #[inline(always)]
    unsafe fn group<P: Lanes>(
        self,
        w: &Grouped<'_>,
        group: usize,
        (from, n): (usize, usize),
        (zeros, scales): (*mut f32, *mut f32),
    ) {
        // SAFETY: outputs and words are bounded by n.
        unsafe {
            let (words, halves) = (w.zeros(group).add(from / 8), w.scales(group).add(from));
            let mut at = 0;
            while at < n {
                let z = some_words::<P>(words.add(at / 8), (n - at).div_ceil(8));
                let mut s = [P::splat(0.0); VECTORS];
                for (v, s) in s.iter_mut().enumerate() {
                    let left = (n - at).saturating_sub(v * P::LANES).min(P::LANES);
                    *s = <P as Prim<f16>>::load_n(halves.add(at).wrapping_add(v * P::LANES), left);
                }
                for (v, &s) in split::<P>(s).iter().enumerate() {
                    let to = at + v * P::LANES;
                    <P as Prim<f32>>::store(zeros.add(to), integer::<P>(P::shr(z, 4 * v as u32), 4));
                    <P as Prim<f32>>::store(scales.add(to), s);
                }
                at += VECTORS * P::LANES;
            }
        }
    }
}

/// [`GptqRef`](super::GptqRef).
#[derive(Clone, Copy)]
pub(super) struct Gptq<const BITS: u32>(pub(super) GptqZeros);

impl<const BITS: u32> Gptq<BITS> {
    /// Lowest bits of the integers in eight of them.
    const ONES: u32 = {
        let (mut ones, mut i) = (0, 0);
        while i < 32 / BITS && i < 8 {
            ones |= 1 << (BITS * i);
            i += 1;
        }
        ones
    };

    /// Adds 1 to each integer, the largest becoming 0.
    #[inline(always)]
    fn plus_one(eight: u32) -> u32 {
        let top = Self::ONES << (BITS - 1);
        ((eight & !top).wrapping_add(Self::ONES)) ^ (eight & top)
    }
}

impl<const BITS: u32> Layout for Gptq<BITS> {
    const BITS: u32 = BITS;
    const VECTORS: usize = 1;

    #[inline(always)]
    fn place(t: usize, _: usize) -> (usize, u32) {
        let bit = t as u32 * BITS;
        ((bit / 32) as usize, bit % 32)
    }

    #[inline(always)]
    unsafe fn group<P: Lanes>(
        self,
        w: &Grouped<'_>,
        group: usize,
        (from, n): (usize, usize),
        (zeros, scales): (*mut f32, *mut f32),
    ) {
        let per_word = if BITS == 8 { 4 } else { 8 };
        // SAFETY: outputs and words are bounded by n.
        unsafe {
            let (words, halves) = (w.zeros(group).add(from / 32 * BITS as usize), w.scales(group).add(from));
            let mut at = 0;
            while at < n {
                // 16 outputs, in eights or fours.
                let mut codes = [0u32; 4];
                for (i, codes) in codes.iter_mut().enumerate().take(UNPACKED / per_word) {
                    if at + i * per_word < n {
                        *codes = eight::<BITS>(at / per_word + i, |word| *words.add(word));
                        if self.0 == GptqZeros::V1 {
                            *codes = Self::plus_one(*codes);
                        }
                    }
                }
                let codes = P::codes::<BITS>(codes);
                for (v, &code) in codes.iter().enumerate().take(UNPACKED / P::LANES) {
                    let to = at + v * P::LANES;
                    let left = n.saturating_sub(to).min(P::LANES);
                    <P as Prim<f32>>::store(zeros.add(to), integer::<P>(code, BITS));
                    let s = <P as Prim<f16>>::load_n(halves.wrapping_add(to), left);
                    <P as Prim<f32>>::store(scales.add(to), s);
                }
                at += UNPACKED;
            }
        }
    }
}

/// The first `n` of `LANES` words, and zeros.
///
/// # Safety
/// They exist; the instruction set.
#[inline(always)]
pub(super) unsafe fn some_words<P: Lanes>(p: *const u32, n: usize) -> P::I {
    // SAFETY: the caller's contract; 16 words are enough for every instruction set.
    unsafe {
        if n >= P::LANES {
            return P::words(p);
        }
        let mut words = [0u32; UNPACKED];
        for (i, w) in words.iter_mut().enumerate().take(n) {
            *w = *p.add(i);
        }
        P::words(words.as_ptr())
    }
}

/// The integer of `bits` bits at the lower end of words.
///
/// # Safety
/// The instruction set.
#[inline(always)]
pub(super) unsafe fn integer<P: Lanes>(w: P::I, bits: u32) -> P::V {
    // SAFETY: the caller's contract.
    unsafe { P::sub(P::mantissa(w, (1 << bits) - 1, one_at(0)), P::splat(f32::from_bits(one_at(0)))) }
}

/// The bits of the power of two of whose mantissa bit `bit` counts 1.
#[inline(always)]
const fn one_at(bit: u32) -> u32 {
    (127 + 23 - bit) << 23
}

/// The words at `low` from bit `bit` on, those at `high` above them.
///
/// # Safety
/// The instruction set.
#[inline(always)]
pub(super) unsafe fn from_bit<P: Lanes, L: Layout>(low: P::I, high: P::I, bit: u32) -> P::I {
    // SAFETY: the caller's contract.
    unsafe {
        let low = P::shr(low, bit);
        if bit + L::BITS > 32 {
            P::or(low, P::shl(high, 32 - bit))
        } else {
            low
        }
    }
}

/// The integer at bit `bit` of words, less its zero point. It is shifted if it has to be: as little as
/// possible, and alike for many.
///
/// # Safety
/// The instruction set.
#[inline(always)]
pub(super) unsafe fn centred<P: Lanes, L: Layout>(low: P::I, high: P::I, bit: u32, zero: P::V) -> P::V {
    let above = if L::BITS == 8 { 16 } else { 12 };
    // SAFETY: the caller's contract.
    unsafe {
        let (w, bit) = if bit + L::BITS > 32 {
            (from_bit::<P, L>(low, high, bit), 0)
        } else {
            let by = bit % L::BITS + if bit + L::BITS > 23 { above } else { 0 };
            (P::shr(low, by), bit - by)
        };
        let q = P::mantissa(w, ((1 << L::BITS) - 1) << bit, one_at(bit));
        P::sub(q, P::add(zero, P::splat(f32::from_bits(one_at(bit)))))
    }
}
