//! Tokens are chosen on the GPU, which knows parameters, histories and counters from the tokens before.

use super::Gpu;
use crate::backend::{BackendError, SampleRow};
use crate::cuda::{Buffer, CudaError, History, SamplingRoom, SamplingTable, View};
use crate::model::Sampling;

/// What rows were sampled with last, and what of it is on the GPU.
#[derive(Debug)]
pub(super) struct Sampler {
    vocabulary: usize,
    ways: Vec<Sampling>,
    biases: usize,
    table: SamplingTable,
    room: SamplingRoom,
    tokens: Buffer<u32>,
    /// Tokens so far, in room for as many in each row: here, and there.
    known: Vec<Vec<u32>>,
    history: Buffer<u32>,
    each: usize,
    lengths: Buffer<u32>,
    known_counters: Vec<u64>,
    counters: Buffer<u64>,
}

/// Tokens that a history has room for beside those that it has.
const SPARE_TOKENS: usize = 256;

impl Sampler {
    fn new(gpu: &Gpu, vocabulary: usize, rows: &[SampleRow<'_>], biases: usize) -> Result<Self, CudaError> {
        let (context, n) = (gpu.stream.context(), rows.len());
        let ways: Vec<Sampling> = rows.iter().map(|row| row.sampling.clone()).collect();
        Ok(Self {
            vocabulary,
            table: SamplingTable::new(&gpu.stream, vocabulary, &ways, biases)?,
            ways,
            biases,
            room: SamplingRoom::new(context, n, vocabulary)?,
            tokens: Buffer::new(context, n)?,
            known: Vec::new(),
            history: Buffer::new(context, 0)?,
            each: 0,
            lengths: Buffer::new(context, n)?,
            known_counters: Vec::new(),
            counters: Buffer::new(context, n)?,
        })
    }

    /// A token for each row of logits.
    pub(super) fn sample(
        kept: &mut Option<Self>,
        gpu: &Gpu,
        (logits, vocabulary): (View<'_, f32>, usize),
        rows: &[SampleRow<'_>],
    ) -> Result<Vec<u32>, BackendError> {
        for row in rows {
            row.sampling.check(vocabulary)?;
        }
        let biases: usize = rows.iter().map(|row| row.sampling.logit_bias.len()).sum();
        let fits = |s: &Self| s.vocabulary == vocabulary && s.ways.len() == rows.len() && s.biases >= biases;
        // What fails on the way may have changed some of what is known: then nothing is.
        let mut sampler = match kept.take().filter(fits) {
            Some(sampler) => sampler,
            None => Self::new(gpu, vocabulary, rows, biases)?,
        };
        let tokens = sampler.choose(gpu, logits, rows)?;
        *kept = Some(sampler);
        Ok(tokens)
    }

    fn choose(
        &mut self,
        gpu: &Gpu,
        logits: View<'_, f32>,
        rows: &[SampleRow<'_>],
    ) -> Result<Vec<u32>, BackendError> {
        let (ops, stream) = (&gpu.ops, &gpu.stream);
        let plain = |row: &SampleRow<'_>| {
            let s = row.sampling;
            s.temperature == 0.0 && s.logit_bias.is_empty() && !s.penalises()
        };
        if rows.iter().all(plain) {
            ops.argmax(stream, logits, &mut self.tokens)?;
            return Ok(self.tokens.to_vec(stream)?);
        }
        if !self.ways.iter().zip(rows).all(|(way, row)| way == row.sampling) {
            self.ways = rows.iter().map(|row| row.sampling.clone()).collect();
            self.table.set(stream, &self.ways)?;
        }
        let penalised = rows.iter().any(|row| row.sampling.penalises());
        if penalised {
            self.know(gpu, rows)?;
        }
        if !self.known_counters.iter().copied().eq(rows.iter().map(|row| row.counter)) {
            self.known_counters = rows.iter().map(|row| row.counter).collect();
            self.counters.upload(stream, &self.known_counters)?;
        }
        let history =
            penalised.then(|| History { tokens: self.history.view(), lengths: self.lengths.view() });
        let from = (history, self.counters.view());
        ops.sample_alike(stream, &self.table, logits, from, (&mut self.room, self.tokens.view_mut()))?;
        let histories = (self.history.view_mut(), self.lengths.view_mut());
        ops.decoder_record(stream, self.tokens.view(), histories, self.counters.view_mut())?;
        let tokens = self.tokens.to_vec(stream)?;
        self.known_counters.iter_mut().for_each(|counter| *counter += 1);
        if penalised {
            self.known.iter_mut().zip(&tokens).for_each(|(known, &token)| known.push(token));
        } else {
            // Lengths have been counted, but nothing has been written.
            self.known.clear();
        }
        Ok(tokens)
    }

    /// Brings histories to the GPU, as far as they are not there.
    fn know(&mut self, gpu: &Gpu, rows: &[SampleRow<'_>]) -> Result<(), CudaError> {
        let stream = &gpu.stream;
        let longest = rows.iter().map(|row| row.history.len()).max().unwrap_or(0);
        if longest >= self.each {
            self.each = (longest + SPARE_TOKENS).next_power_of_two();
            self.history = Buffer::new(stream.context(), self.each * rows.len())?;
            self.known.clear();
        }
        let fresh = self.known.is_empty();
        self.known.resize(rows.len(), Vec::new());
        let mut changed = fresh;
        for (r, (known, row)) in self.known.iter_mut().zip(rows).enumerate() {
            let same = known.iter().zip(row.history).take_while(|(a, b)| a == b).count();
            if same < row.history.len() {
                let at = r * self.each;
                let new = &row.history[same..];
                self.history.range_mut(at + same..at + row.history.len())?.upload(stream, new)?;
            }
            changed |= known.len() != row.history.len();
            known.truncate(same);
            known.extend_from_slice(&row.history[same..]);
        }
        if changed {
            let lengths: Vec<u32> = self.known.iter().map(|known| known.len() as u32).collect();
            self.lengths.upload(stream, &lengths)?;
        }
        Ok(())
    }
}
