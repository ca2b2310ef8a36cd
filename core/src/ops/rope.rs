//! Rotary position embedding (RoPE).

use core::f64::consts::TAU;

use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::isa::machine::{fence, prefetch, LINE, PAGE};
use crate::ops::engine::Access;
use crate::ops::rows::load;
use crate::vector::Prim;

/// Which two elements of a head form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopePairing {
    /// `(2i, 2i + 1)`: the original (Su et al. 2021), Llama's own weights, GPT-J, GGUF `NORM`.
    Adjacent,
    /// `(i, i + rot_dim / 2)`: GPT-NeoX, Hugging Face, GGUF `NEOX`.
    HalfSplit,
}

/// The shape of one token's queries or keys, and how they are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RopeShape {
    /// Heads of a token, one behind the other.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements of a head that are rotated, an even number; those behind are copied.
    pub rot_dim: usize,
    /// Which elements form a pair.
    pub pairing: RopePairing,
}

impl RopeShape {
    /// The number of tokens in `x` elements, once everything that fits or not has been checked.
    pub(crate) fn check(self, x: usize, cos: usize, sin: usize) -> Result<usize, KernelError> {
        let Self { heads, head_dim, rot_dim, .. } = self;
        if !rot_dim.is_multiple_of(2) || rot_dim > head_dim {
            return Err(KernelError::BadValue {
                arg: "rot_dim",
                got: rot_dim,
                expected: "an even number, at most head_dim",
            });
        }
        let token =
            heads.checked_mul(head_dim).ok_or(KernelError::SizeOverflow { what: "heads * head_dim" })?;
        let tokens = check::rows("x", x, "heads * head_dim", token)?;
        // No overflow: at most x elements, unless there are no heads, and then no tokens.
        let angles = tokens * (rot_dim / 2);
        check::len("cos", cos, angles)?;
        check::len("sin", sin, angles)?;
        Ok(tokens)
    }
}

/// Bytes of heads that are collected at most before they bypass the cache.
const BUFFER: usize = 8192;

/// Parts of a token that are walked side by side: more pages in flight.
const PARTS_SIDE_BY_SIDE: usize = 4;

/// Stores a vector, with `STREAM` past the cache.
///
/// # Safety
/// The contract of [`Prim::store`] or [`Prim::stream`].
#[inline(always)]
unsafe fn put<E: Element, P: Prim<E>, const STREAM: bool>(p: *mut E, v: P::V) {
    // SAFETY: the caller's contract.
    unsafe {
        if STREAM {
            P::stream(p, v)
        } else {
            P::store(p, v)
        }
    }
}

/// Rotates `len` (or with `FULL` a vector of) pairs. With `STREAM`, full vectors go past the cache.
///
/// # Safety
/// The pairs exist at `x` and `y`, equal or apart; `cos`, `sin` have as many; with `STREAM` both outputs are
/// aligned to vectors; the instruction set is present.
#[inline(always)]
unsafe fn pairs<E: Element, P: Prim<E> + Prim<f32>, const FULL: bool, const STREAM: bool>(
    [first, second]: [usize; 2],
    [cos, sin]: [*const f32; 2],
    adjacent: bool,
    x: *const E,
    y: *mut E,
    len: usize,
) {
    // SAFETY: the caller's contract. Adjacent pairs fill two vectors, the second one perhaps in part.
    unsafe {
        let lanes =
            if adjacent { [(2 * len).min(P::LANES), (2 * len).saturating_sub(P::LANES)] } else { [len; 2] };
        let mut a = load::<E, P, FULL>(x.add(first), lanes[0]);
        let mut b = load::<E, P, FULL>(x.add(second), lanes[1]);
        if adjacent {
            (a, b) = P::unzip(a, b);
        }
        let (c, s) = (load::<f32, P, FULL>(cos, len), load::<f32, P, FULL>(sin, len));
        let mut p = P::fnma(b, s, P::mul(a, c));
        let mut q = P::fma(a, s, P::mul(b, c));
        if adjacent {
            (p, q) = P::zip(p, q);
        }
        if FULL {
            put::<E, P, STREAM>(y.add(first), p);
            put::<E, P, STREAM>(y.add(second), q);
        } else {
            <P as Prim<E>>::store_n(y.add(first), p, lanes[0]);
            <P as Prim<E>>::store_n(y.add(second), q, lanes[1]);
        }
    }
}

/// One head: rotates its first `rot` elements, copies the others.
///
/// # Safety
/// `dim` elements at `x` and `y`, equal or apart; `rot / 2` at `cos`, `sin`; with `STREAM`, `y`, `rot / 2` and
/// `dim` are multiples of a vector; the instruction set is present.
#[inline(always)]
unsafe fn head<E: Element, P: Prim<E> + Prim<f32>, const STREAM: bool>(
    adjacent: bool,
    [rot, dim]: [usize; 2],
    [cos, sin]: [*const f32; 2],
    x: *const E,
    y: *mut E,
) {
    let half = rot / 2;
    let mut i = 0;
    // SAFETY: the caller's contract; every index is bounded by the loop conditions.
    unsafe {
        while half - i >= P::LANES {
            let at = if adjacent { [2 * i, 2 * i + P::LANES] } else { [i, i + half] };
            // The next page, which the hardware prefetcher does not reach.
            prefetch(x.wrapping_add(at[0] + PAGE / size_of::<E>()));
            prefetch(x.wrapping_add(at[1] + PAGE / size_of::<E>()));
            pairs::<E, P, true, STREAM>(at, [cos.add(i), sin.add(i)], adjacent, x, y, 0);
            i += P::LANES;
        }
        if i < half {
            let second = if adjacent { (2 * i + P::LANES).min(rot) } else { i + half };
            let at = [if adjacent { 2 * i } else { i }, second];
            pairs::<E, P, false, false>(at, [cos.add(i), sin.add(i)], adjacent, x, y, half - i);
        }
        if !core::ptr::eq(x, y) {
            let mut i = rot;
            while dim - i >= P::LANES {
                put::<E, P, STREAM>(y.add(i), <P as Prim<E>>::load(x.add(i)));
                i += P::LANES;
            }
            if i < dim {
                <P as Prim<E>>::store_n(y.add(i), <P as Prim<E>>::load_n(x.add(i), dim - i), dim - i);
            }
        }
    }
}

/// Copies `n` elements past the cache.
///
/// # Safety
/// `n` elements at `x` and `y`, apart; the instruction set is present.
#[inline(always)]
unsafe fn stream<E: Element, P: Prim<E>>(n: usize, x: *const E, y: *mut E) {
    // SAFETY: the caller's contract; every index is bounded by the loop conditions.
    unsafe {
        let head = ((y as usize).wrapping_neg() % LINE / size_of::<E>()).min(n);
        let mut i = 0;
        while i < head {
            let len = P::LANES.min(head - i);
            P::store_n(y.add(i), P::load_n(x.add(i), len), len);
            i += len;
        }
        while n - i >= P::LANES {
            P::stream(y.add(i), P::load(x.add(i)));
            i += P::LANES;
        }
        P::store_n(y.add(i), P::load_n(x.add(i), n - i), n - i);
    }
}

/// # Safety
/// `tokens * heads * head_dim` elements at `x` and `y`, equal or apart; `tokens * rot_dim / 2` at
/// `cos`, `sin`; `rot_dim` even and at most `head_dim`; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn rope<E: Element, P: Prim<E> + Prim<f32>>(
    shape: RopeShape,
    tokens: usize,
    cos_sin: [*const f32; 2],
    x: *const E,
    y: *mut E,
    access: Access,
) {
    // SAFETY: the caller's contract.
    unsafe {
        match shape.pairing {
            RopePairing::Adjacent => rotate::<E, P>(true, shape, tokens, cos_sin, x, y, access),
            RopePairing::HalfSplit => rotate::<E, P>(false, shape, tokens, cos_sin, x, y, access),
        }
    }
}

/// # Safety
/// The contract of [`rope`]; `adjacent` as the shape says.
#[inline(always)]
unsafe fn rotate<E: Element, P: Prim<E> + Prim<f32>>(
    adjacent: bool,
    shape: RopeShape,
    tokens: usize,
    [cos, sin]: [*const f32; 2],
    x: *const E,
    y: *mut E,
    access: Access,
) {
    let RopeShape { heads, head_dim, rot_dim, .. } = shape;
    if tokens == 0 {
        // Of no tokens there may be any number of heads: nothing below may calculate with it.
        return;
    }
    let dims = [rot_dim, head_dim];
    let bytes = head_dim.saturating_mul(size_of::<E>());
    let streamed = P::STREAMS && access.streamed;
    let vector = P::LANES * size_of::<E>();
    // Heads of whole vectors leave as they are computed. Others are collected: their ends share lines, and such
    // a line costs as much as many others.
    let direct = streamed
        && bytes.is_multiple_of(vector)
        && (rot_dim / 2).is_multiple_of(P::LANES)
        && (y as usize).is_multiple_of(vector);
    let staged = streamed && !direct && (1..=BUFFER).contains(&bytes);
    let group = if staged { BUFFER / bytes.max(1) } else { 1 };
    let parts = if access.side_by_side { PARTS_SIDE_BY_SIDE } else { 1 };
    let part = heads.div_ceil(parts).next_multiple_of(group);
    let mut buffer = [core::mem::MaybeUninit::<u64>::uninit(); BUFFER / 8];
    let buffer: *mut E = buffer.as_mut_ptr().cast();
    // SAFETY: the caller's contract; all offsets are those of existing heads; `direct` as `STREAM` demands.
    unsafe {
        for t in 0..tokens {
            let cos_sin = [cos.add(t * (rot_dim / 2)), sin.add(t * (rot_dim / 2))];
            let at = t * heads * head_dim;
            let (x, y) = (x.add(at), y.add(at));
            let mut first = 0;
            while first < part {
                let mut h = first;
                while h < heads {
                    let n = group.min(heads - h);
                    let (x, y) = (x.add(h * head_dim), y.add(h * head_dim));
                    if direct {
                        head::<E, P, true>(adjacent, dims, cos_sin, x, y);
                    } else {
                        let to = if staged { buffer } else { y };
                        for g in 0..n {
                            let at = g * head_dim;
                            head::<E, P, false>(adjacent, dims, cos_sin, x.add(at), to.add(at));
                        }
                        if staged {
                            stream::<E, P>(n * head_dim, buffer, y);
                        }
                    }
                    h += part;
                }
                first += group;
            }
        }
        if streamed {
            fence();
        }
    }
}

/// How frequencies are changed to reach past the context length of the training.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// Frequencies as the model was trained with.
    #[default]
    None,
    /// Position interpolation: `f / factor`. (Chen et al. 2023, arXiv:2306.15595.)
    Linear {
        /// New context length over the trained one.
        factor: f64,
    },
    /// YaRN: interpolates low frequencies, keeps high ones, blends between. A pair `i` turns
    /// `original_context * f_i / 2 pi` times within the trained context; with `low`, `high` the (real) `i` of
    /// `beta_fast` and `beta_slow` turns, rounded down and up and kept within `0 ..= rot_dim - 1`,
    /// and `ramp = clamp((i - low) / (high - low), 0, 1)`: `f * (1 - ramp) + f / factor * ramp`.
    /// (Peng et al. 2023, arXiv:2309.00071, section 3.2, with the rounding of its reference code.)
    Yarn {
        /// New context length over the trained one.
        factor: f64,
        /// Turns above which frequencies are kept; usually 32.
        beta_fast: f64,
        /// Turns below which frequencies are interpolated; usually 1.
        beta_slow: f64,
        /// Context length of the training.
        original_context: f64,
    },
    /// Llama 3.1: with `turns = original_context * f / 2 pi` and
    /// `keep = clamp((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0, 1)`:
    /// `f * keep + f / factor * (1 - keep)`. (Meta's model code, `apply_scaling`.)
    Llama3 {
        /// New context length over the trained one; 8 in Llama 3.1.
        factor: f64,
        /// Turns up to which frequencies are divided; 1 in Llama 3.1.
        low_freq_factor: f64,
        /// Turns from which frequencies are kept; 4 in Llama 3.1.
        high_freq_factor: f64,
        /// Context length of the training; 8192 in Llama 3.1.
        original_context: f64,
    },
}

/// The positions that a table is made for.
#[derive(Clone, Copy, Debug)]
pub enum RopePositions<'a> {
    /// Consecutive ones: `start + t` for token `t`.
    From(usize),
    /// Any: one for each token.
    Each(&'a [u32]),
}

/// Rotation frequencies: `f_i = theta^(-2i / rot_dim) / factors_i`, then scaled.
///
/// ```
/// # use gllm_kernels_core::{RopeFreqs, RopePositions, RopeScaling};
/// let freqs = RopeFreqs { theta: 10_000.0, rot_dim: 4, ..RopeFreqs::default() };
/// let (mut cos, mut sin) = ([0.0; 4], [0.0; 4]); // two tokens
/// freqs.table(RopePositions::From(0), &mut cos, &mut sin)?;
/// assert_eq!(cos, [1.0, 1.0, 1f64.cos() as f32, 0.01f64.cos() as f32]);
/// # Ok::<(), gllm_kernels_core::KernelError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeFreqs<'a> {
    /// Base of the frequencies; 10000 in the original.
    pub theta: f64,
    /// Elements of a head that are rotated, an even number.
    pub rot_dim: usize,
    /// Scaling towards longer contexts.
    pub scaling: RopeScaling,
    /// A divisor for every frequency (LongRoPE's factors, GGUF's `rope_freqs`): `rot_dim / 2` values.
    pub factors: Option<&'a [f32]>,
    /// Factor of all cosines and sines (HF `attention_factor`). `None`: 1, and for YaRN with a
    /// `factor` above 1 its `0.1 ln(factor) + 1`.
    pub attention_factor: Option<f64>,
}

impl Default for RopeFreqs<'_> {
    /// `theta` 10000, 128 dimensions, no scaling.
    fn default() -> Self {
        Self {
            theta: 10_000.0,
            rot_dim: 128,
            scaling: RopeScaling::None,
            factors: None,
            attention_factor: None,
        }
    }
}

/// `value` if it is positive and finite.
fn positive(arg: &'static str, value: f64) -> Result<f64, KernelError> {
    if value > 0.0 && value < f64::INFINITY {
        Ok(value)
    } else {
        Err(KernelError::BadParameter { arg, expected: "a positive, finite number" })
    }
}

/// [`RopeScaling`] made ready: a frequency is blended from itself and its `1 / factor`.
#[derive(Clone, Copy)]
struct Blend {
    factor: f64,
    /// What the blend depends on is 0 here ..
    from: f64,
    /// .. and grows by this.
    slope: f64,
    /// The blend goes by the pair's turns within this context, or else by its index.
    context: Option<f64>,
}

impl Blend {
    /// The blend that has the same factor for all frequencies.
    const fn constant(factor: f64) -> Self {
        Self { factor, from: 0.0, slope: 0.0, context: None }
    }

    fn apply(self, i: usize, f: f64) -> f64 {
        let at = match self.context {
            Some(context) => context * f / TAU,
            None => i as f64,
        };
        let keep = ((at - self.from) * self.slope).clamp(0.0, 1.0);
        f * keep + f / self.factor * (1.0 - keep)
    }
}

impl RopeFreqs<'_> {
    fn blend(&self) -> Result<Blend, KernelError> {
        match self.scaling {
            RopeScaling::None => Ok(Blend::constant(1.0)),
            RopeScaling::Linear { factor } => Ok(Blend::constant(positive("factor", factor)?)),
            RopeScaling::Yarn { factor, beta_fast, beta_slow, original_context } => {
                let context = positive("original_context", original_context)?;
                let last = self.rot_dim.saturating_sub(1) as f64;
                // theta^(-2i / rot_dim) * context = 2 pi * turns, solved for i.
                let place = |turns: f64| {
                    let ln_theta = libm::log(self.theta);
                    self.rot_dim as f64 * libm::log(context / (turns * TAU)) / (2.0 * ln_theta)
                };
                let low = libm::floor(place(positive("beta_fast", beta_fast)?)).max(0.0).min(last);
                let high = libm::ceil(place(positive("beta_slow", beta_slow)?)).max(0.0).min(last);
                // Equal ends make a step; kept apart as in the reference code.
                let width = if low == high { 0.001 } else { high - low };
                let factor = positive("factor", factor)?;
                Ok(Blend { factor, from: low + width, slope: -1.0 / width, context: None })
            }
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                let factor = positive("factor", factor)?;
                let from = positive("low_freq_factor", low_freq_factor)?;
                let to = positive("high_freq_factor", high_freq_factor)?;
                if to <= from {
                    let expected = "above low_freq_factor";
                    return Err(KernelError::BadParameter { arg: "high_freq_factor", expected });
                }
                let context = Some(positive("original_context", original_context)?);
                Ok(Blend { factor, from, slope: 1.0 / (to - from), context })
            }
        }
    }

    fn magnitude(&self) -> f64 {
        match (self.attention_factor, self.scaling) {
            (Some(m), _) => m,
            (None, RopeScaling::Yarn { factor, .. }) if factor > 1.0 => 0.1 * libm::log(factor) + 1.0,
            _ => 1.0,
        }
    }

    /// Fills `cos[t * rot_dim / 2 + i] = m cos(p_t f_i)`, and `sin` in the same way, for the position `p_t` of every
    /// token `t` and every pair `i`; `m` is the attention factor. Angles are computed in f64.
    ///
    /// # Errors
    /// `WrongLength` unless `cos` and `sin` have the same length, `rot_dim / 2` for every position;
    /// `NotWhole` if that is no whole number of tokens; `BadValue` if `rot_dim` is odd; `BadParameter` if `theta`
    /// is not above 1 and finite, the attention factor is not finite, or a factor, a divisor or a
    /// context length is not positive and finite.
    pub fn table(
        &self,
        positions: RopePositions<'_>,
        cos: &mut [f32],
        sin: &mut [f32],
    ) -> Result<(), KernelError> {
        let half = self.rot_dim / 2;
        if !self.rot_dim.is_multiple_of(2) {
            return Err(KernelError::BadValue {
                arg: "rot_dim",
                got: self.rot_dim,
                expected: "an even number",
            });
        }
        if !(self.theta > 1.0 && self.theta < f64::INFINITY) {
            return Err(KernelError::BadParameter { arg: "theta", expected: "above 1 and finite" });
        }
        let m = self.magnitude();
        if !m.is_finite() {
            return Err(KernelError::BadParameter { arg: "attention_factor", expected: "finite" });
        }
        let blend = self.blend()?;
        check::len("sin", sin.len(), cos.len())?;
        let tokens = check::rows("cos", cos.len(), "rot_dim / 2", half)?;
        if let RopePositions::Each(p) = positions {
            check::len("positions", p.len(), tokens)?;
        }
        if let Some(factors) = self.factors {
            check::len("factors", factors.len(), half)?;
            for &f in factors {
                positive("factors", f64::from(f))?;
            }
        }
        if tokens == 0 {
            // Whatever rot_dim is, an absurd one included.
            return Ok(());
        }
        let step = -2.0 * libm::log(self.theta) / self.rot_dim as f64;
        for i in 0..half {
            let divisor = self.factors.and_then(|f| f.get(i)).map_or(1.0, |&f| f64::from(f));
            let f = blend.apply(i, libm::exp(i as f64 * step) / divisor);
            let column = cos.iter_mut().zip(sin.iter_mut()).skip(i).step_by(half);
            for (t, (cos, sin)) in column.enumerate() {
                let p = match positions {
                    RopePositions::From(start) => start as f64 + t as f64,
                    RopePositions::Each(p) => p.get(t).map_or(0.0, |&p| f64::from(p)),
                };
                let (s, c) = libm::sincos(p * f);
                (*cos, *sin) = ((c * m) as f32, (s * m) as f32);
            }
        }
        Ok(())
    }
}
