//! Linear attention on the CPU: the convolution, and the gated delta rule. [`LinearAttention`] has the formulas.

use gllm_kernels_core::{DeltaGates, KernelError, Kernels, MatMut, MatRef};

use super::attention::TokenRun;
use super::rows::{sigmoid, Rows};
use super::team::Memory;
use crate::backend::tensors::LinearVectors;
use crate::model::LinearAttention;

/// Tokens of a chunk whose results are normed and gated at a time.
const TOKENS: usize = 32;
/// About how many channels a chunk of the convolution has.
const CHANNELS: usize = 512;

/// The linear attention of a layer in a step.
#[derive(Debug)]
pub(super) struct Linear {
    pub(super) of: LinearAttention,
    pub(super) vectors: *const LinearVectors<Vec<f32>>,
    pub(super) eps: f32,
    pub(super) runs: Vec<TokenRun>,
    /// The state of each run's sequence: [`LinearAttention::state`] numbers.
    pub(super) states: Vec<*mut f32>,
    /// Products of the layer's matrices.
    pub(super) from: Rows,
    /// Channels behind the convolution; of queries and keys, normed.
    pub(super) convolved: Rows,
    /// Results.
    pub(super) to: Rows,
}

impl Linear {
    /// Heads of channels that a chunk of the convolution has.
    fn heads_of_chunk(&self) -> usize {
        (CHANNELS / self.of.size).max(1)
    }

    fn convolution_chunks(&self) -> usize {
        (2 * self.of.key_heads + self.of.value_heads).div_ceil(self.heads_of_chunk())
    }

    /// Chunks of the convolution.
    pub(super) fn chunks_to_convolve(&self) -> usize {
        self.runs.len() * self.convolution_chunks()
    }

    /// Chunks of the rule: a head of values of a run.
    pub(super) fn chunks_to_attend(&self) -> usize {
        self.runs.len() * self.of.value_heads
    }

    /// Does a chunk of the convolution: some heads of channels of a run, of which those of queries and keys are normed.
    ///
    /// # Safety
    /// What the fields name exists; nobody else uses these channels of the run's rows and of its state.
    pub(super) unsafe fn convolve(&self, k: &Kernels<f32>, chunk: usize) -> Result<(), KernelError> {
        let LinearAttention { key_heads, value_heads, size, taps, .. } = self.of;
        let (run, part) = (chunk / self.convolution_chunks(), chunk % self.convolution_chunks());
        let first = part * self.heads_of_chunk();
        let heads = self.heads_of_chunk().min(2 * key_heads + value_heads - first);
        let (at, n, channels) = (first * size, heads * size, self.of.channels());
        let TokenRun { row, tokens, first: position, .. } = self.runs[run];
        // SAFETY: the caller's contract.
        unsafe {
            let state = self.states[run].add(at);
            if position == 0 {
                (0..taps - 1)
                    .for_each(|tap| std::slice::from_raw_parts_mut(state.add(tap * channels), n).fill(0.0));
            }
            let before = MatMut::from_raw_parts(state, [taps - 1, n], [channels, 1]);
            let x =
                MatRef::with_strides(&self.from.get(row..row + tokens)[at..], tokens, n, self.from.width, 1)?;
            let vectors = &*self.vectors;
            let w = MatRef::with_strides(&vectors.convolution[at..], taps, n, channels, 1)?;
            let y = self.convolved.ptr.add(row * self.convolved.width + at);
            let y = MatMut::from_raw_parts(y, [tokens, n], [self.convolved.width, 1]);
            k.causal_conv1d_silu(before, x, w, y)?;
            // Of a head `x`, `x / sqrt(|x|^2 + eps)` is its RMS norm with the weight `1 / sqrt(size)`. The scores' factor goes with the queries.
            let root = (size as f32).sqrt();
            for head in first..(first + heads).min(2 * key_heads) {
                let weight = if head < key_heads { 1.0 / size as f32 } else { 1.0 / root };
                for token in row..row + tokens {
                    let at = self.convolved.ptr.add(token * self.convolved.width + head * size);
                    let x = std::slice::from_raw_parts_mut(at, size);
                    k.rms_norm_inplace(None, self.eps / size as f32, x)?;
                    k.vec_scale_inplace(weight, x)?;
                }
            }
        }
        Ok(())
    }

    /// Does a chunk of the rule: all tokens of a run, for a head of values.
    ///
    /// # Safety
    /// What the fields name exists, and the convolution is complete; nobody else uses the head's part of the run's state, of its gates and of its results.
    pub(super) unsafe fn attend(
        &self,
        k: &Kernels<f32>,
        chunk: usize,
        memory: &mut Memory,
    ) -> Result<(), KernelError> {
        let LinearAttention { key_heads, value_heads, size, taps, .. } = self.of;
        let (run, head) = (chunk / value_heads, chunk % value_heads);
        let (channels, of_key) = (self.of.channels(), self.of.key_head(head));
        let TokenRun { row, tokens, first: position, .. } = self.runs[run];
        let mut room = memory.take_products(TOKENS * size);
        // SAFETY: the caller's contract.
        let done = (0..tokens).step_by(TOKENS).try_for_each(|first| unsafe {
            let vectors = &*self.vectors;
            let state = self.states[run].add((taps - 1) * channels + head * size * size);
            if position + first == 0 {
                std::slice::from_raw_parts_mut(state, size * size).fill(0.0);
            }
            let state = MatMut::from_raw_parts(state, [size, size], [size, 1]);
            let (n, first) = (TOKENS.min(tokens - first), row + first);
            let (mut decay, mut beta) = ([0.0; TOKENS], [0.0; TOKENS]);
            let numbers = self.of.decay_of(head).map(|at| channels + self.of.values() + at);
            for (t, (decay, beta)) in decay.iter_mut().zip(&mut beta).enumerate().take(n) {
                let [b, a] = numbers.map(|at| *self.from.ptr.add((first + t) * self.from.width + at));
                *beta = sigmoid(b);
                *decay = (vectors.rate[head] * softplus(a + vectors.decay_bias[head])).exp();
            }
            let gates = DeltaGates { decay: &decay[..n], beta: &beta[..n] };
            let all = self.convolved.get(first..first + n);
            let of =
                |head: usize| MatRef::with_strides(&all[head * size..], n, size, self.convolved.width, 1);
            let (q, key, v) = (of(of_key)?, of(key_heads + of_key)?, of(2 * key_heads + head)?);
            let y = &mut room[..n * size];
            k.gated_delta_rule(state, q, key, v, gates, MatMut::new(y, n, size)?)?;
            for (t, y) in y.chunks_exact_mut(size).enumerate() {
                k.rms_norm_inplace(Some(&vectors.norm), self.eps, y)?;
                let [z, to] = [(self.from, channels), (self.to, 0)]
                    .map(|(rows, at)| rows.ptr.add((first + t) * rows.width + at + head * size));
                let gates = std::slice::from_raw_parts(z, size);
                k.swiglu(gates, y, std::slice::from_raw_parts_mut(to, size))?;
            }
            Ok(())
        });
        memory.keep_products(room);
        done
    }
}

/// `ln(1 + exp(x))`. Far from 0 it is `x` to all digits.
fn softplus(x: f32) -> f32 {
    if x > 20.0 {
        x
    } else {
        x.exp().ln_1p()
    }
}
