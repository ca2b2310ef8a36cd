//! Tokens and their probabilities from logits, on the device.

use wgpu::{Buffer, BufferUsages, CommandEncoder};

use super::device::Gpu;
use super::mirror::Mirror;
use super::shaders::Shader;
use super::WgpuLogits;
use crate::backend::{BackendError, SampleRow};
use crate::model::Sampling;

/// Words that say how the token of a row is chosen: the constants in `sample.wgsl`.
const WORDS: usize = 16;
const COUNTER: usize = 0;
const PENALISES: usize = 5;
const LENGTH: usize = 6;

/// How rows are sampled, and what comes of it. It grows with the largest call so far.
#[derive(Debug)]
pub(super) struct Sampler {
    rows: usize,
    /// Room for the history of a row, and for its biases.
    history: usize,
    biases: usize,
    /// [`WORDS`] for each row, then histories, then biases.
    ways: Mirror,
    tokens: Buffer,
    /// Memory that can be mapped.
    results: Buffer,
    /// A copy of the logits of a part.
    work: Option<Buffer>,
}

/// Whether a row's token is the largest logit as it is.
fn is_greedy(sampling: &Sampling) -> bool {
    sampling.temperature == 0.0 && sampling.logit_bias.is_empty() && !sampling.penalises()
}

impl Sampler {
    fn new(gpu: &Gpu, [rows, history, biases]: [usize; 3]) -> Result<Self, BackendError> {
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        Ok(Self {
            rows,
            history,
            biases,
            ways: Mirror::new(gpu, "what sampling needs", rows * (WORDS + history + 2 * biases))?,
            tokens: gpu.storage("tokens", 4 * rows as u64)?,
            results: gpu.buffer("tokens", 4 * rows as u64, usage)?,
            work: None,
        })
    }

    /// One with room for these rows, and for some more.
    pub(super) fn with_room(
        there: Option<Self>,
        gpu: &Gpu,
        rows: &[SampleRow<'_>],
    ) -> Result<Self, BackendError> {
        let most = |of: fn(&SampleRow<'_>) -> usize| rows.iter().map(of).max().unwrap_or(0);
        let history = most(|row| if row.sampling.penalises() { row.history.len() + 1 } else { 0 });
        let biases = most(|row| row.sampling.logit_bias.len());
        let old = there.as_ref().map_or([1, 0, 0], |s| [s.rows, s.history, s.biases]);
        match there {
            Some(there) if rows.len() <= old[0] && history <= old[1] && biases <= old[2] => Ok(there),
            _ => {
                let larger = |old: usize, new: usize| if new <= old { old } else { new.next_power_of_two() };
                let room = [(0, rows.len()), (1, history), (2, biases)].map(|(i, new)| larger(old[i], new));
                Self::new(gpu, room)
            }
        }
    }

    /// Tells the device how rows are sampled.
    fn set(&mut self, gpu: &Gpu, rows: &[SampleRow<'_>]) -> Result<(), BackendError> {
        let mut words = self.ways.words().to_vec();
        for (i, row) in rows.iter().enumerate() {
            let Sampling { seed, top_k, repetition, frequency, presence, temperature, top_p, min_p, .. } =
                *row.sampling;
            let counted = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            let penalises = row.sampling.penalises();
            let history = if penalises { row.history } else { &[] };
            let mut biases = row.sampling.logit_bias.clone();
            // Those of one token stay in their order.
            biases.sort_by_key(|bias| bias.0);
            let by = if temperature == 0.0 { 0.0 } else { std::f32::consts::LOG2_E / temperature };
            let share = if top_p < 1.0 { (top_p * 16_777_216.0) as u32 } else { u32::MAX };
            let way: [u32; WORDS] = [
                row.counter as u32,
                (row.counter >> 32) as u32,
                seed as u32,
                (seed >> 32) as u32,
                counted(top_k),
                penalises.into(),
                counted(history.len()),
                counted(row.sampling.last_n),
                repetition.to_bits(),
                frequency.to_bits(),
                presence.to_bits(),
                by.to_bits(),
                share,
                min_p.to_bits(),
                counted(biases.len()),
                0,
            ];
            words[i * WORDS..(i + 1) * WORDS].copy_from_slice(&way);
            words[self.history_at() + i * self.history..][..history.len()].copy_from_slice(history);
            let at = self.biases_at() + i * 2 * self.biases;
            for (to, (token, value)) in words[at..].chunks_exact_mut(2).zip(biases) {
                to.copy_from_slice(&[token, value.to_bits()]);
            }
        }
        self.ways.set(gpu, &words)
    }

    fn history_at(&self) -> usize {
        self.rows * WORDS
    }

    fn biases_at(&self) -> usize {
        self.rows * (WORDS + self.history)
    }

    /// The tokens of all rows: the end of a step.
    pub(super) fn sample(
        &mut self,
        gpu: &Gpu,
        mut encoder: CommandEncoder,
        logits: &WgpuLogits,
        rows: &[SampleRow<'_>],
    ) -> Result<Vec<u32>, BackendError> {
        let greedy = rows.iter().all(|row| is_greedy(row.sampling));
        let vocabulary = logits.vocabulary;
        let (shader, number) = if greedy { (Shader::Argmax, 2) } else { (Shader::Sample, 2) };
        if !greedy {
            self.set(gpu, rows)?;
            let bytes = 4 * (logits.parts().map(|part| part.1).max().unwrap_or(0) * vocabulary) as u64;
            if self.work.as_ref().is_none_or(|work| work.size() < bytes) {
                self.work = Some(gpu.storage("logits that are sampled", bytes)?);
            }
        }
        let pipeline = gpu.pipeline(shader)?;
        let mut row = 0;
        for (part, n) in logits.parts() {
            let all = [row, self.history_at(), self.history, self.biases_at(), self.biases];
            let constants: Vec<u32> = [vocabulary]
                .into_iter()
                .chain(all)
                .map(|n| n as u32)
                .take(if greedy { 2 } else { 6 })
                .collect();
            let mut buffers = vec![(0, part), (1, &self.tokens)];
            if let Some(work) = self.work.as_ref().filter(|_| !greedy) {
                buffers.extend([(3, &self.ways.buffer), (4, work)]);
            }
            let bound = gpu.bind(&pipeline, &buffers, (number, &constants))?;
            let descriptor = wgpu::ComputePassDescriptor { label: Some("sampling"), timestamp_writes: None };
            let mut pass = encoder.begin_compute_pass(&descriptor);
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &bound, &[]);
            pass.dispatch_workgroups(n as u32, 1, 1);
            row += n;
        }
        encoder.copy_buffer_to_buffer(&self.tokens, 0, &self.results, 0, 4 * row as u64);
        gpu.submit(encoder)?;
        let tokens = gpu.read(&self.results, row as u64)?;
        if !greedy {
            self.advance(&tokens);
        }
        Ok(tokens)
    }

    /// Changes the copy as the shader has changed what is on the device: counters go on, and histories have another token.
    fn advance(&mut self, tokens: &[u32]) {
        let (history_at, history) = (self.history_at(), self.history);
        let words = self.ways.words_mut();
        for (i, &token) in tokens.iter().enumerate() {
            let way = i * WORDS;
            let (low, carry) = words[way + COUNTER].overflowing_add(1);
            words[way + COUNTER] = low;
            words[way + COUNTER + 1] = words[way + COUNTER + 1].wrapping_add(carry.into());
            let length = words[way + LENGTH] as usize;
            if words[way + PENALISES] != 0 && length < history {
                words[history_at + i * history + length] = token;
                words[way + LENGTH] += 1;
            }
        }
    }
}

/// The logarithms of the probabilities of tokens, each with its row: the end of a step.
pub(super) fn log_probabilities(
    gpu: &Gpu,
    mut encoder: CommandEncoder,
    logits: &WgpuLogits,
    chosen: &[(usize, u32)],
) -> Result<Vec<f32>, BackendError> {
    // Pairs of a part side by side: the row in it, the token, and where the result goes.
    let (mut pairs, mut parts, mut end) = (Vec::new(), Vec::new(), 0);
    for (part, rows) in logits.parts() {
        let (start, own) = (pairs.len(), end..end + rows);
        let of_part = chosen.iter().zip(0..).filter(|((row, _), _)| own.contains(row));
        pairs.extend(of_part.map(|(&(row, token), to)| [(row - own.start) as u32, token, to]));
        parts.push((part, start..pairs.len()));
        end += rows;
    }
    let bytes = 4 * chosen.len() as u64;
    let pairs = gpu.constant("tokens with their rows", pairs.as_flattened(), BufferUsages::STORAGE)?;
    let there = gpu.storage("probabilities", bytes)?;
    let here = gpu.buffer("probabilities", bytes, BufferUsages::MAP_READ | BufferUsages::COPY_DST)?;
    let (pipeline, most) = (gpu.pipeline(Shader::LogProbabilities)?, gpu.groups() as usize);
    for (part, own) in parts {
        for first in own.clone().step_by(most) {
            let constants = [logits.vocabulary as u32, first as u32];
            let bound = gpu.bind(&pipeline, &[(0, part), (1, &there), (3, &pairs)], (2, &constants))?;
            let descriptor =
                wgpu::ComputePassDescriptor { label: Some("probabilities"), timestamp_writes: None };
            let mut pass = encoder.begin_compute_pass(&descriptor);
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &bound, &[]);
            pass.dispatch_workgroups((own.end - first).min(most) as u32, 1, 1);
        }
    }
    encoder.copy_buffer_to_buffer(&there, 0, &here, 0, bytes);
    gpu.submit(encoder)?;
    Ok(gpu.read(&here, chosen.len() as u64)?.into_iter().map(f32::from_bits).collect())
}
