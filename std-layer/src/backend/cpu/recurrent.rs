//! Recurrent layers on the CPU: the convolution, and of linear attention the gated delta rule. [`Recurrence`] has the formulas.

use gllm_kernels_core::{ConvFilter, DeltaGates, KernelError, Kernels, MatMut, MatRef};

use super::rows::{sigmoid, Rows};
use super::shares::TokenRun;
use super::team::Memory;
use crate::backend::tensors::{LinearVectors, RecurrentVectors};
use crate::model::{LinearAttention, Recurrence, Rule};

/// Tokens of a chunk that are multiplied by gates at a time.
const TOKENS: usize = 32;
/// About how many channels a chunk of the convolution has.
const CHANNELS: usize = 512;

/// What a recurrent layer computes in a step.
#[derive(Debug)]
pub(super) struct Recurrent {
    pub(super) of: Recurrence,
    pub(super) vectors: *const RecurrentVectors<Vec<f32>>,
    pub(super) eps: f32,
    pub(super) runs: Vec<TokenRun>,
    /// The state of each run's sequence: [`Recurrence::state`] numbers.
    pub(super) states: Vec<*mut f32>,
    /// Products of the layer's matrices.
    pub(super) from: Rows,
    /// Channels behind the convolution, if something follows it; of queries and keys, normed.
    pub(super) convolved: Rows,
    /// Results.
    pub(super) to: Rows,
}

impl Recurrent {
    /// Channels that a chunk of the convolution has: whole heads, where heads are normed.
    fn channels_of_chunk(&self) -> usize {
        match self.of {
            Recurrence::Linear(of) if of.normed_heads() > 0 => (CHANNELS / of.key_size).max(1) * of.key_size,
            _ => CHANNELS,
        }
    }

    fn convolution_chunks(&self) -> usize {
        self.of.channels().div_ceil(self.channels_of_chunk())
    }

    /// Chunks of the convolution.
    pub(super) fn chunks_to_convolve(&self) -> usize {
        self.runs.len() * self.convolution_chunks()
    }

    /// Chunks of linear attention behind it: a head of values of a run.
    pub(super) fn chunks_to_attend(&self) -> usize {
        match self.of {
            Recurrence::Linear(of) => self.runs.len() * of.value_heads,
            Recurrence::Convolution(_) => 0,
        }
    }

    /// Does a chunk of the convolution: some channels of a run. Of linear attention, queries and keys are normed; without it, these are the layer's results.
    ///
    /// # Safety
    /// What the fields name exists; nobody else uses these channels of the run's rows and of its state.
    pub(super) unsafe fn convolve(
        &self,
        k: &Kernels<f32>,
        chunk: usize,
        memory: &mut Memory,
    ) -> Result<(), KernelError> {
        let (run, part) = (chunk / self.convolution_chunks(), chunk % self.convolution_chunks());
        let (taps, channels, at) = (self.of.taps(), self.of.channels(), part * self.channels_of_chunk());
        let n = self.channels_of_chunk().min(channels - at);
        let TokenRun { row, tokens, first: position, .. } = self.runs[run];
        // SAFETY: the caller's contract.
        unsafe {
            let state = self.states[run].add(at);
            if position == 0 {
                (0..taps - 1)
                    .for_each(|tap| std::slice::from_raw_parts_mut(state.add(tap * channels), n).fill(0.0));
            }
            let before = || MatMut::from_raw_parts(state, [taps - 1, n], [channels, 1]);
            let vectors = &*self.vectors;
            let w = MatRef::with_strides(&vectors.convolution[at..], taps, n, channels, 1)?;
            let Recurrence::Linear(of) = self.of else {
                let mut room = memory.take_numbers(TOKENS * n);
                let row_of = |rows: Rows, row: usize, at: usize| rows.ptr.add(row * rows.width + at);
                let done = (0..tokens).step_by(TOKENS).try_for_each(|first| {
                    let (tokens, row) = (TOKENS.min(tokens - first), row + first);
                    let input =
                        |row, i| std::slice::from_raw_parts(row_of(self.from, row, i * channels + at), n);
                    for (t, x) in room.chunks_exact_mut(n).enumerate().take(tokens) {
                        k.vec_mul(input(row + t, 0), input(row + t, 2), x)?;
                    }
                    let y = MatMut::from_raw_parts(row_of(self.to, row, at), [tokens, n], [self.to.width, 1]);
                    let filter = ConvFilter { w, bias: None, silu: false };
                    k.causal_conv1d(before(), MatRef::new(&room, tokens, n)?, filter, y)?;
                    (row..row + tokens).try_for_each(|row| {
                        let y = std::slice::from_raw_parts_mut(row_of(self.to, row, at), n);
                        k.vec_mul_inplace(input(row, 1), y)
                    })
                });
                memory.keep_numbers(room);
                return done;
            };
            let x =
                MatRef::with_strides(&self.from.get(row..row + tokens)[at..], tokens, n, self.from.width, 1)?;
            let y = self.convolved.ptr.add(row * self.convolved.width + at);
            let y = MatMut::from_raw_parts(y, [tokens, n], [self.convolved.width, 1]);
            let bias = vectors.convolution_bias.as_ref().map(|bias| &bias[at..at + n]);
            k.causal_conv1d(before(), x, ConvFilter { w, bias, silu: true }, y)?;
            // Of a head `x`, `x / sqrt(|x|^2 + eps)` is its RMS norm with the weight `1 / sqrt(size)`. The scores' factor goes with the queries.
            let (size, normed) = (of.key_size, of.normed_heads());
            let root = (size as f32).sqrt();
            for head in (at / size)..((at + n) / size).min(2 * normed) {
                let weight = if head < normed { 1.0 / size as f32 } else { 1.0 / root };
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

    /// Does a chunk of linear attention: all tokens of a run, for a head of values.
    ///
    /// # Safety
    /// What the fields name exists, and the convolution is complete; nobody else uses the head's part of the run's state, of its gates and of its results.
    pub(super) unsafe fn attend(
        &self,
        k: &Kernels<f32>,
        chunk: usize,
        memory: &mut Memory,
    ) -> Result<(), KernelError> {
        let (Recurrence::Linear(of), taps) = (self.of, self.of.taps()) else { return Ok(()) };
        let LinearAttention { rule, key_heads, value_heads, key_size, value_size, .. } = of;
        let (run, head) = (chunk / value_heads, chunk % value_heads);
        let (channels, of_key, keys) = (of.channels(), of.key_head(head), key_heads * key_size);
        // SAFETY: the caller's contract.
        let vectors = unsafe { (*self.vectors).linear.as_ref() };
        let Some(vectors): Option<&LinearVectors<_>> = vectors else { return Ok(()) };
        let TokenRun { row, tokens, first: position, .. } = self.runs[run];
        let mut room = memory.take_numbers(TOKENS * value_size);
        // SAFETY: the caller's contract.
        let done = (0..tokens).step_by(TOKENS).try_for_each(|first| unsafe {
            let state = self.states[run].add((taps - 1) * channels + head * value_size * key_size);
            if position + first == 0 {
                std::slice::from_raw_parts_mut(state, value_size * key_size).fill(0.0);
            }
            let state = MatMut::from_raw_parts(state, [value_size, key_size], [key_size, 1]);
            let (n, first) = (TOKENS.min(tokens - first), row + first);
            let (mut decay, mut beta) = ([0.0; TOKENS], [0.0; TOKENS]);
            let (of_b, of_a) = of.numbers_of(head);
            let number = |row: usize, at: usize| {
                *self.from.ptr.add(row * self.from.width + channels + of.values() + at)
            };
            for (t, (decay, beta)) in decay.iter_mut().zip(&mut beta).enumerate().take(n) {
                let length = softplus(number(first + t, of_a) + vectors.decay_bias[head]);
                *beta = of_b.map_or(length, |b| sigmoid(number(first + t, b)));
                *decay = (vectors.rate[head] * length).exp();
            }
            let gates =
                DeltaGates { decay: &decay[..n], beta: &beta[..n], corrected: rule != Rule::StateSpace };
            let all = self.convolved.get(first..first + n);
            let part =
                |at: usize, size: usize| MatRef::with_strides(&all[at..], n, size, self.convolved.width, 1);
            let (q, key) = (part(of_key * key_size, key_size)?, part(keys + of_key * key_size, key_size)?);
            let at_value = 2 * keys + head * value_size;
            let y = &mut room[..n * value_size];
            k.gated_delta_rule(
                state,
                q,
                key,
                part(at_value, value_size)?,
                gates,
                MatMut::new(y, n, value_size)?,
            )?;
            for (t, y) in y.chunks_exact_mut(value_size).enumerate() {
                match &vectors.skip {
                    Some(skip) => {
                        let v = &all[t * self.convolved.width + at_value..][..value_size];
                        k.vec_axpy(skip[head], v, y)?;
                    }
                    None => k.rms_norm_inplace(Some(&vectors.norm), self.eps, y)?,
                }
                let [z, to] = [(self.from, channels), (self.to, 0)]
                    .map(|(rows, at)| rows.ptr.add((first + t) * rows.width + at + head * value_size));
                let gates = std::slice::from_raw_parts(z, value_size);
                k.swiglu(gates, y, std::slice::from_raw_parts_mut(to, value_size))?;
            }
            Ok(())
        });
        memory.keep_numbers(room);
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
