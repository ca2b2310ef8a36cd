//! A short causal convolution of each channel.

use crate::ops::abreast::Abreast;
use crate::ops::math;
use crate::vector::Prim;
use crate::view::MatRef;

/// What a convolution does with the inputs of a channel.
#[derive(Clone, Copy, Debug)]
pub struct ConvFilter<'a> {
    /// A row for each tap, with a column for each channel.
    pub w: MatRef<'a, f32>,
    /// What is added to the sums of each channel, if anything is.
    pub bias: Option<&'a [f32]>,
    /// Whether outputs are SiLU of the sums, and not the sums themselves.
    pub silu: bool,
}

/// The arguments of [`causal_conv1d`]. Rows are tokens, or taps; strides count elements from one row to the next.
pub struct CausalConvArgs {
    pub(crate) tokens: usize,
    pub(crate) channels: usize,
    pub(crate) taps: usize,
    /// The inputs before the first token: one row fewer than there are taps.
    pub(crate) state: (*mut f32, usize),
    pub(crate) x: (*const f32, usize),
    pub(crate) w: (*const f32, usize),
    /// A number for each channel; null if nothing is added.
    pub(crate) bias: *const f32,
    /// Whether outputs are SiLU of sums.
    pub(crate) silu: bool,
    pub(crate) y: (*mut f32, usize),
}

/// Channels that go through all tokens before the next ones begin. Their inputs and weights, a KiB for each tap, are in L1 when they are
/// read again.
const CHANNELS: usize = 256;

/// Vectors that are computed side by side: SiLU is a long chain of operations.
const VECTORS: usize = 4;

impl CausalConvArgs {
    /// Row `n` of the inputs, of which the first ones are those of the state.
    ///
    /// # Safety
    /// It exists.
    #[inline(always)]
    unsafe fn input(&self, n: usize) -> *const f32 {
        let before = self.taps - 1;
        // SAFETY: the caller's contract.
        unsafe {
            if n < before {
                self.state.0.add(n * self.state.1)
            } else {
                self.x.0.add((n - before) * self.x.1)
            }
        }
    }

    /// The outputs of token `t` for `N` vectors of channels from `c` on, or for those of a vector that are left unless `FULL`.
    ///
    /// # Safety
    /// These channels exist; the contract of [`causal_conv1d`].
    #[inline(always)]
    unsafe fn outputs<P: Prim<f32>, const N: usize, const FULL: bool>(&self, t: usize, c: usize) {
        let left = self.channels - c;
        // SAFETY: the caller's contract; taps are those of `w`, and inputs those of the state or at most that of token `t`.
        unsafe {
            let mut sums = [P::splat(0.0); N];
            if !self.bias.is_null() {
                for (i, sum) in sums.iter_mut().enumerate() {
                    let bias = self.bias.add(c + i * P::LANES);
                    *sum = if FULL { P::load(bias) } else { P::load_n(bias, left) };
                }
            }
            for j in 0..self.taps {
                let (x, w) = (self.input(t + j).add(c), self.w.0.add(j * self.w.1 + c));
                for (i, sum) in sums.iter_mut().enumerate() {
                    let at = i * P::LANES;
                    *sum = if FULL {
                        P::fma(P::load(w.add(at)), P::load(x.add(at)), *sum)
                    } else {
                        P::fma(P::load_n(w.add(at), left), P::load_n(x.add(at), left), *sum)
                    };
                }
            }
            let outputs = if self.silu { math::silu::<Abreast<P, N>>(sums) } else { sums };
            for (i, &output) in outputs.iter().enumerate() {
                let y = self.y.0.add(t * self.y.1 + c + i * P::LANES);
                if FULL {
                    P::store(y, output);
                } else {
                    P::store_n(y, output, left);
                }
            }
        }
    }
}

/// The convolution. Then the state has the inputs before the next token.
///
/// # Safety
/// The operands that the arguments name exist, and no output is an input; there are taps; the CPU has the instruction set.
#[inline(always)]
pub(crate) unsafe fn causal_conv1d<P: Prim<f32>>(a: &CausalConvArgs) {
    for from in (0..a.channels).step_by(CHANNELS) {
        let end = from + CHANNELS.min(a.channels - from);
        for t in 0..a.tokens {
            let mut c = from;
            // SAFETY: channels are below the end, tokens below their number; the caller's contract.
            unsafe {
                while end - c >= VECTORS * P::LANES {
                    a.outputs::<P, VECTORS, true>(t, c);
                    c += VECTORS * P::LANES;
                }
                while end - c >= P::LANES {
                    a.outputs::<P, 1, true>(t, c);
                    c += P::LANES;
                }
                if c < end {
                    a.outputs::<P, 1, false>(t, c);
                }
            }
        }
    }
    for row in 0..a.taps - 1 {
        // SAFETY: the rows exist, and those that are read are others: there is a token.
        unsafe {
            let from = a.input(row + a.tokens);
            from.copy_to_nonoverlapping(a.state.0.add(row * a.state.1), a.channels);
        }
    }
}
