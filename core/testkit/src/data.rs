//! Deterministic test data and sizes.

use fastrand::Rng;
use gllm_kernels_core::{Element, IsaLevel, Kernels, Prefetcher, Prefetches};

/// A source of numbers that is the same in every run.
pub struct Source(Rng);

impl Source {
    /// A stream of its own per seed.
    pub fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// An index below `n` (0 for `n == 0`).
    pub fn below(&mut self, n: usize) -> usize {
        self.0.usize(0..n.max(1))
    }

    /// One number, nearly normally distributed: the sum of eight that are uniform. Under emulation logarithms and
    /// cosines would take longer than what is tested.
    pub fn normal(&mut self) -> f32 {
        /// The deviation of eight numbers in 0 .. 1 is the root of 8 / 12.
        const SCALE: f64 = 1.224_744_871_391_589 / 4_294_967_296.0;
        let eight = (0..4).map(|_| self.0.u64(..)).map(|two| (two >> 32) + (two & 0xffff_ffff));
        ((eight.sum::<u64>() as f64 - 4.0 * 4_294_967_295.0) * SCALE) as f32
    }

    /// Normally distributed with deviation 1, the mass of a layer's activations.
    pub fn normals<E: Element>(&mut self, n: usize) -> Vec<E> {
        (0..n).map(|_| E::from_f32(self.normal())).collect()
    }

    /// Uniform in `low .. high`.
    pub fn uniform<E: Element>(&mut self, n: usize, low: f32, high: f32) -> Vec<E> {
        (0..n).map(|_| E::from_f32(low + (high - low) * self.0.f32())).collect()
    }

    /// Finite values of any sign and exponent, denormals included.
    pub fn wide<E: Element>(&mut self, n: usize) -> Vec<E> {
        let mut next = || loop {
            let x = self.pattern::<E>();
            if x.to_f32().is_finite() {
                return x;
            }
        };
        (0..n).map(|_| next()).collect()
    }

    /// One bit pattern among all there are, NaNs and infinities included.
    pub fn pattern<E: Element>(&mut self) -> E {
        if size_of::<E>() == 2 {
            pattern16(self.0.u16(..))
        } else {
            E::from_f32(f32::from_bits(self.0.u32(..)))
        }
    }

    /// Whole numbers in `-max ..= max`. Their sums are exact in f32, in any order, up to 2^24: whatever
    /// is left out or counted twice shows.
    pub fn whole<E: Element>(&mut self, n: usize, max: i32) -> Vec<E> {
        (0..n).map(|_| E::from_f32(self.0.i32(-max..=max) as f32)).collect()
    }
}

/// The f16 or bf16 value with these bits.
fn pattern16<E: Element>(bits: u16) -> E {
    assert_eq!(size_of::<E>(), 2);
    // SAFETY: `Element` is sealed; its types of two bytes are valid for every bit pattern.
    unsafe { std::mem::transmute_copy(&bits) }
}

/// Every value of a 16-bit storage type; `None` for f32.
pub fn every_pattern<E: Element>() -> Option<Vec<E>> {
    (size_of::<E>() == 2).then(|| (0..=u16::MAX).map(pattern16).collect())
}

/// Zeros, ones, infinities, NaN, the edges of the range and of the denormals, in every sign.
pub fn specials<E: Element>() -> Vec<E> {
    let magnitudes = [
        0.0,
        1.0,
        0.5,
        1.5,
        2.0,
        3.0,
        f32::from_bits(0x3f7f_ffff),
        f32::from_bits(0x3f80_0001),
        65504.0,
        65520.0,
        6.103_515_6e-5,
        5.960_464_5e-8,
        f32::MAX,
        f32::MIN_POSITIVE,
        f32::from_bits(1),
        f32::from_bits(0x007f_ffff),
        f32::from_bits(0x0000_8000),
        f32::INFINITY,
        f32::NAN,
    ];
    magnitudes.into_iter().flat_map(|m| [E::from_f32(m), E::from_f32(-m)]).collect()
}

/// Levels that this machine has and this build has kernels for, best first.
pub fn levels() -> Vec<IsaLevel> {
    IsaLevel::ALL.into_iter().filter(|&l| Kernels::<f32>::forced(l).is_ok()).collect()
}

/// Vector lengths: all up to two registers and a bit, around every unroll factor, primes.
pub fn lengths(level: IsaLevel) -> Vec<usize> {
    let lanes = level.lanes();
    let mut n: Vec<usize> = (0..=2 * lanes + 1).collect();
    for unrolled in [4 * lanes, 8 * lanes, 16 * lanes] {
        n.extend([unrolled - 1, unrolled, unrolled + 1]);
    }
    n.extend([127, 509, 1021, 4099]);
    n.sort_unstable();
    n.dedup();
    n
}

/// A length for which operands exceed 1 MiB, so that pages are walked side by side, with a remainder
/// that takes every other path too.
pub fn long<E: Element>() -> usize {
    (1 << 20) / size_of::<E>() + 12_345
}

/// The same kernels for both ways of walking large operands.
pub fn both_walks<E: Element>(k: &Kernels<E>) -> [Kernels<E>; 2] {
    [Prefetcher::PerPage, Prefetcher::Sequential(Prefetches::IntoL1)]
        .map(|p| Kernels::with(k.caps().with_prefetcher(p)))
}
