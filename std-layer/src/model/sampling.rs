//! How the next token is chosen from logits. This is the definition: GPUs choose the same token from the same logits and seed.
//!
//! In this order, with `n` logits `l` and every operation on them rounded to f32 by itself:
//! 1. **Bias.** `l[t] += bias` for each pair of the list.
//! 2. **Penalties**, for each token that occurs `c > 0` times among the last `last_n` of the history: `l[t] = l[t] / repetition` if
//!    `l[t] > 0`, else `l[t] * repetition`; then `l[t] -= c * frequency + presence`.
//! 3. **The best** is the largest logit, and of equal ones the first; NaN is the lowest. With a temperature of 0 it is chosen.
//! 4. **Top-k.** Logits below the `top_k`-th largest weigh nothing. The others weigh `w[t] = 2^((l[t] - best) * (log2(e) / temperature))`,
//!    so that the best weighs 1; NaN, and what would weigh less than 2^-40, weighs nothing. The power of two is computed by
//!    multiplications and additions that are rounded one by one, so that every machine gets the same bits.
//! 5. **Top-p.** Probabilities are integers: `u[t] = floor(w[t] * 2^39)`, so that sums do not depend on their order. `p` is the largest weight
//!    such that all tokens that weigh as much or more have `floor(sum(u) * top_p)` together. Those that weigh less are out.
//! 6. **Min-p.** Tokens that weigh less than `min_p` are out.
//! 7. **Chance.** Of those left, the token on which `floor(sum(u) * r / 2^24)` falls, in the order of tokens; `r` are the upper 24 bits of the
//!    first word of Philox 4x32-10 with the seed as its key, and the counter and the row as its counter.
//!
//! Ties stay together: what equals the last one that top-k or top-p lets pass, passes, too.

use std::fmt;

/// How the next token is chosen from logits; fields in the order in which they take effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Added to the logits of these tokens. Minus infinity forbids one.
    pub logit_bias: Vec<(u32, f32)>,
    /// How many of the last tokens of the history the three penalties look at; `usize::MAX` is all.
    pub last_n: usize,
    /// Logits of tokens in the history are divided by this if they are positive, else multiplied; 1 changes nothing.
    pub repetition: f32,
    /// Subtracted from the logit of a token in the history, as often as it occurs there.
    pub frequency: f32,
    /// Subtracted once from the logit of a token in the history.
    pub presence: f32,
    /// Logits are divided by this; 0 takes the largest.
    pub temperature: f32,
    /// Only this many of the largest logits are considered; 0 stands for all.
    pub top_k: usize,
    /// Of these, only the largest whose probabilities add up to this; 1 is all.
    pub top_p: f32,
    /// Only those at least this times as probable as the first; 0 is all.
    pub min_p: f32,
    /// Key of the random numbers.
    pub seed: u64,
}

impl Default for Sampling {
    /// Any token, with the probability that the model gives it.
    fn default() -> Self {
        Self {
            logit_bias: Vec::new(),
            last_n: usize::MAX,
            repetition: 1.0,
            frequency: 0.0,
            presence: 0.0,
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
        }
    }
}

/// Why no token can be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SamplingError {
    /// A parameter that cannot be.
    BadParameter {
        /// Its name in [`Sampling`].
        name: &'static str,
        /// The value that it has.
        value: f32,
        /// The values that are allowed.
        expected: &'static str,
    },
    /// A bias for a token that does not exist.
    BadBias {
        /// The token.
        token: u32,
        /// Number of logits.
        vocabulary: usize,
    },
    /// No logits, or more than 2^24: sums of probabilities have 64 bits.
    BadVocabulary(usize),
}

impl fmt::Display for SamplingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadParameter { name, value, expected } => {
                write!(f, "{name} is {value}: it must be {expected}")
            }
            Self::BadBias { token, vocabulary } => {
                write!(f, "logit_bias has token {token}, but there are {vocabulary}")
            }
            Self::BadVocabulary(n) => write!(f, "{n} logits: there must be 1 to 2^24"),
        }
    }
}

impl std::error::Error for SamplingError {}

/// The most logits of a row.
pub(crate) const MAX_VOCABULARY: usize = 1 << 24;

impl Sampling {
    /// The largest logit, and of equal ones the first.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Whether all parameters can be, for a vocabulary of this size.
    ///
    /// # Errors
    /// [`SamplingError`]: the first one that cannot.
    pub fn check(&self, vocabulary: usize) -> Result<(), SamplingError> {
        if !(1..=MAX_VOCABULARY).contains(&vocabulary) {
            return Err(SamplingError::BadVocabulary(vocabulary));
        }
        let positive = |x: f32| x > 0.0 && x.is_finite();
        let rules: [(&str, f32, bool, &str); 6] = [
            ("repetition", self.repetition, positive(self.repetition), "positive and finite"),
            ("frequency", self.frequency, self.frequency.is_finite(), "finite"),
            ("presence", self.presence, self.presence.is_finite(), "finite"),
            (
                "temperature",
                self.temperature,
                self.temperature == 0.0 || positive(self.temperature),
                "0, or positive and finite",
            ),
            ("top_p", self.top_p, self.top_p > 0.0, "above 0"),
            ("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "in 0 to 1"),
        ];
        for (name, value, fits, expected) in rules {
            if !fits {
                return Err(SamplingError::BadParameter { name, value, expected });
            }
        }
        for &(token, value) in &self.logit_bias {
            if token as usize >= vocabulary {
                return Err(SamplingError::BadBias { token, vocabulary });
            }
            if value.is_nan() {
                return Err(SamplingError::BadParameter { name: "logit_bias", value, expected: "a number" });
            }
        }
        Ok(())
    }

    /// Whether the history matters.
    pub(crate) fn penalises(&self) -> bool {
        self.last_n > 0 && (self.repetition != 1.0 || self.frequency != 0.0 || self.presence != 0.0)
    }
}

/// The first word of Philox 4x32-10 (Salmon et al., 2011).
fn philox(counter: u64, row: u32, key: u64) -> u32 {
    let mut c = [counter as u32, (counter >> 32) as u32, row, 0];
    let mut k = [key as u32, (key >> 32) as u32];
    for _ in 0..10 {
        let (a, b) = (0xd251_1f53 * u64::from(c[0]), 0xcd9e_8d57 * u64::from(c[2]));
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(0x9e37_79b9), k[1].wrapping_add(0xbb67_ae85)];
    }
    c[0]
}

/// Numbers in the order of floats, NaN lowest.
fn key(x: f32) -> i32 {
    let bits = x.to_bits() as i32;
    // Negative floats go down as their other bits go up.
    let key = bits ^ (((bits >> 31) as u32) >> 1) as i32;
    if x.is_nan() {
        i32::MIN
    } else {
        key
    }
}

/// `2^x` for `x` in -40 to 0, within 1 ulp: `2^f` of the fraction that rounding leaves, by a polynomial.
fn exp2(x: f32) -> f32 {
    // Adding it rounds to whole numbers, which stand in the lowest bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    let sum = x + ROUND;
    let f = x - (sum - ROUND);
    let mut p = 1.533_536_2e-4;
    for c in [1.339_887_4e-3, 9.618_437e-3, 5.550_332_4e-2, 2.402_264_8e-1, 6.931_472e-1, 1.0] {
        p = p * f + c;
    }
    let exponent = sum.to_bits().wrapping_sub(ROUND.to_bits()) << 23;
    f32::from_bits(p.to_bits().wrapping_add(exponent))
}

/// The integer that a token of this weight adds to sums.
fn units(weight: f32) -> u64 {
    let [high, low] = high_and_low(weight);
    (u64::from(high) << 23) + u64::from(low)
}

/// A weight's units above 2^23 and below: each is exact, and vectors of 32 bits hold them.
fn high_and_low(weight: f32) -> [u32; 2] {
    // Of anything else than a weight, the units are none. (The compiler needs no other check to convert in vectors.)
    let scaled = if weight > 0.0 && weight <= 1.0 { weight * 65_536.0 } else { 0.0 };
    // SAFETY: it is in 0 to 65536.
    let high: i32 = unsafe { scaled.to_int_unchecked() };
    // SAFETY: what is behind the point, times 2^23, is below 2^23.
    let low: i32 = unsafe { ((scaled - high as f32) * 8_388_608.0).to_int_unchecked() };
    [high as u32, low as u32]
}

/// The units of a block's tokens that weigh at least `floor`.
fn sum_units(block: &[f32], floor: f32) -> u64 {
    let (mut high, mut low) = (0, 0);
    for &weight in block {
        let [h, l] = high_and_low(if weight >= floor { weight } else { 0.0 });
        (high, low) = (high + h, low + l);
    }
    (u64::from(high) << 23) + u64::from(low)
}

/// `floor(all * share / 2^24)`.
fn share_of(all: u64, share: u32) -> u64 {
    (all >> 24) * u64::from(share) + (((all & 0xff_ffff) * u64::from(share)) >> 24)
}

/// Logits are gone through in blocks: what a block's largest logit, or its sum, says spares looking at the others. The halves of a
/// block's units add up to 32 bits at most.
const BLOCK: usize = 256;

/// Chooses a token; the module's text says how. The logits are left in an unspecified state.
///
/// `counter` says which random number it is, e.g. the position of the token in its sequence, and `row` which of the sequences: no two
/// choices with the same seed should have both in common. Tokens of the history that are not in the vocabulary are ignored.
///
/// # Errors
/// Those of [`Sampling::check`].
///
/// ```
/// use gllm_kernels_std::model::{sample, Sampling};
///
/// let logits = [0.5, 2.0, -1.0];
/// assert_eq!(sample(&mut logits.clone(), &[], 0, 0, &Sampling::greedy())?, 1);
/// let sampling = Sampling { temperature: 0.8, top_k: 2, seed: 7, ..Sampling::default() };
/// assert!(sample(&mut logits.clone(), &[], 0, 0, &sampling)? < 2);
/// # Ok::<(), gllm_kernels_std::model::SamplingError>(())
/// ```
pub fn sample(
    logits: &mut [f32],
    history: &[u32],
    counter: u64,
    row: u32,
    sampling: &Sampling,
) -> Result<u32, SamplingError> {
    sampling.check(logits.len())?;
    for &(token, bias) in &sampling.logit_bias {
        logits[token as usize] += bias;
    }
    if sampling.penalises() {
        penalise(logits, history, sampling);
    }
    let tops: Vec<i32> =
        logits.chunks(BLOCK).map(|b| b.iter().fold(i32::MIN, |top, &x| top.max(key(x)))).collect();
    let best = first_of(logits, &tops);
    if sampling.temperature == 0.0 {
        return Ok(best as u32);
    }

    let least = match sampling.top_k {
        k if k == 0 || k >= logits.len() => i32::MIN,
        k => kth_largest(logits, &tops, k),
    };
    let mut sums = weigh(logits, &tops, least, logits[best], std::f32::consts::LOG2_E / sampling.temperature);
    let mut floor = sampling.min_p;
    if sampling.top_p < 1.0 {
        let all = sums.iter().sum();
        let goal = share_of(all, (sampling.top_p * 16_777_216.0) as u32).max(1);
        floor = floor.max(weight_of(logits, &sums, goal));
    }
    if floor > 0.0 {
        for (block, sum) in logits.chunks(BLOCK).zip(&mut sums).filter(|(_, sum)| **sum > 0) {
            *sum = sum_units(block, floor);
        }
    }
    let all = sums.iter().sum();
    let mut goal = share_of(all, philox(counter, row, sampling.seed) >> 8);
    for (i, (block, sum)) in logits.chunks(BLOCK).zip(sums).enumerate() {
        if goal < sum {
            for (j, &weight) in block.iter().enumerate().filter(|w| *w.1 >= floor) {
                if goal < units(weight) {
                    return Ok((i * BLOCK + j) as u32);
                }
                goal -= units(weight);
            }
        }
        goal -= sum;
    }
    // Nothing weighs anything, not even the best: all are NaN.
    Ok(best as u32)
}

fn penalise(logits: &mut [f32], history: &[u32], sampling: &Sampling) {
    let mut tokens = history[history.len().saturating_sub(sampling.last_n)..].to_vec();
    tokens.sort_unstable();
    for run in tokens.chunk_by(|a, b| a == b) {
        let Some(x) = logits.get_mut(run[0] as usize) else { continue };
        *x = if *x > 0.0 { *x / sampling.repetition } else { *x * sampling.repetition };
        *x -= run.len() as f32 * sampling.frequency + sampling.presence;
    }
}

/// Where the largest logit first occurs; `tops` are the largest of each block.
fn first_of(logits: &[f32], tops: &[i32]) -> usize {
    let top = tops.iter().copied().fold(i32::MIN, i32::max);
    let block = tops.iter().position(|&t| t == top).unwrap_or(0) * BLOCK;
    block + logits[block..].iter().position(|&x| key(x) == top).unwrap_or(0)
}

/// The key of the `k`-th largest logit, `k` from 1 to their number.
fn kth_largest(logits: &[f32], tops: &[i32], k: usize) -> i32 {
    let kth = |keys: &mut [i32]| *keys.select_nth_unstable_by(k - 1, |a, b| b.cmp(a)).1;
    // As many blocks have one as large as this, so the k-th of all is no smaller.
    let at_least = if k <= tops.len() { kth(&mut tops.to_vec()) } else { i32::MIN };
    let blocks = logits.chunks(BLOCK).zip(tops).filter(|(_, &top)| top >= at_least);
    let mut keys: Vec<i32> =
        blocks.flat_map(|(block, _)| block.iter().map(|&x| key(x)).filter(|&k| k >= at_least)).collect();
    kth(&mut keys)
}

/// Replaces logits by weights; the sums of blocks, in units. Blocks without any weight keep their logits, and have a sum of 0.
fn weigh(logits: &mut [f32], tops: &[i32], least: i32, top: f32, by: f32) -> Vec<u64> {
    let weigh_block = |(block, &largest): (&mut [f32], &i32)| {
        if largest < least {
            return 0;
        }
        for x in block.iter_mut() {
            let d = (*x - top) * by;
            let weight = exp2(if d >= -40.0 { d } else { -40.0 });
            let weight = if d >= -40.0 { weight } else { 0.0 };
            // The difference of two infinities is none.
            let weight = if *x == top { 1.0 } else { weight };
            *x = if key(*x) >= least { weight } else { 0.0 };
        }
        sum_units(block, 0.0)
    };
    logits.chunks_mut(BLOCK).zip(tops).map(weigh_block).collect()
}

/// The largest weight such that all that weigh as much or more have `goal` units together, which is not 0; 0 if there are not so many.
fn weight_of(weights: &[f32], sums: &[u64], goal: u64) -> f32 {
    // Few tokens usually have most of the weight; where they do not, all are looked at.
    const WORTH_COUNTING: f32 = 1.0 / 16384.0;
    // By exponent and three bits of the mantissa, from 2^-40 to 1.
    const SHIFT: u32 = 20;
    const LOWEST: u32 = (127 - 40) << 3;
    const BINS: usize = (40 << 3) + 1;
    let bin = |w: f32| (w.to_bits() >> SHIFT).saturating_sub(LOWEST) as usize;
    let blocks =
        || weights.chunks(BLOCK).zip(sums).filter(|(_, &sum)| sum > 0).flat_map(|(b, _)| b.chunks(16));
    for least in [WORTH_COUNTING, f32::MIN_POSITIVE] {
        let at_least = |w: &f32| *w >= least;
        let heavy = || blocks().filter(|few| few.iter().fold(false, |any, w| any | at_least(w)));
        let mut bins = [0; BINS];
        for w in heavy().flatten().copied().filter(at_least) {
            bins[bin(w)] += units(w);
        }
        let mut above = 0;
        let reaches = |units: u64, above: &mut u64| {
            *above += units;
            *above >= goal
        };
        let Some(last) = (0..BINS).rev().find(|&b| reaches(bins[b], &mut above)) else { continue };
        above -= bins[last];
        let mut candidates: Vec<f32> = heavy().flatten().copied().filter(|&w| bin(w) == last).collect();
        candidates.sort_unstable_by(|a, b| b.total_cmp(a));
        return candidates.into_iter().find(|&w| reaches(units(w), &mut above)).unwrap_or(0.0);
    }
    0.0
}

#[cfg(test)]
#[path = "sampling_tests.rs"]
mod tests;
