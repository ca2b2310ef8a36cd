//! Tokens are chosen on the GPU, which knows parameters, histories and counters from the tokens before.

use super::Gpu;
use crate::backend::{BackendError, SampleRow};
use crate::cuda::decoder::Record;
use crate::cuda::{Buffer, CudaError, History, SamplingRoom, SamplingTable, View, ViewMut};
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
    /// Histories without the tokens that a step took before the host knew them, and which step this is.
    ahead: Option<(u64, Vec<Vec<u32>>)>,
}

/// Where chosen tokens go, and what they change.
#[derive(Debug)]
pub(super) struct To<'a> {
    pub(super) tokens: ViewMut<'a, u32>,
    /// Tokens that end a text, and the sequence of each row.
    pub(super) ends: Option<(View<'a, u32>, ViewMut<'a, u32>)>,
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
            ahead: None,
        })
    }

    /// What samples these rows.
    fn take(
        kept: &mut Option<Self>,
        gpu: &Gpu,
        vocabulary: usize,
        rows: &[SampleRow<'_>],
    ) -> Result<Self, BackendError> {
        for row in rows {
            row.sampling.check(vocabulary)?;
        }
        let biases: usize = rows.iter().map(|row| row.sampling.logit_bias.len()).sum();
        let fits = |s: &Self| s.vocabulary == vocabulary && s.ways.len() == rows.len() && s.biases >= biases;
        match kept.take().filter(fits) {
            Some(sampler) => Ok(sampler),
            None => Ok(Self::new(gpu, vocabulary, rows, biases)?),
        }
    }

    /// A token for each row of logits.
    pub(super) fn sample(
        kept: &mut Option<Self>,
        gpu: &Gpu,
        (logits, vocabulary): (View<'_, f32>, usize),
        rows: &[SampleRow<'_>],
    ) -> Result<Vec<u32>, BackendError> {
        // What fails on the way may have changed some of what is known: then nothing is.
        let mut sampler = Self::take(kept, gpu, vocabulary, rows)?;
        let mut room = std::mem::replace(&mut sampler.tokens, Buffer::new(gpu.stream.context(), 0)?);
        let to = To { tokens: room.view_mut(), ends: None };
        gpu.stream.overlap(|| sampler.choose(gpu, logits, rows, to))?;
        let tokens = room.to_vec(&gpu.stream)?;
        sampler.tokens = room;
        sampler.known.iter_mut().zip(&tokens).for_each(|(known, &token)| known.push(token));
        *kept = Some(sampler);
        Ok(tokens)
    }

    /// Queues the choice of a token for each row of logits, which step `step` takes from where they are.
    pub(super) fn sample_ahead(
        kept: &mut Option<Self>,
        gpu: &Gpu,
        (logits, vocabulary): (View<'_, f32>, usize),
        rows: &[SampleRow<'_>],
        (step, to): (u64, To<'_>),
    ) -> Result<(), BackendError> {
        let mut sampler = Self::take(kept, gpu, vocabulary, rows)?;
        gpu.stream.overlap(|| sampler.choose(gpu, logits, rows, to))?;
        sampler.ahead = Some((step, std::mem::take(&mut sampler.known)));
        *kept = Some(sampler);
        Ok(())
    }

    /// The host knows the tokens that a step took.
    pub(super) fn settle(&mut self, step: u64, tokens: &[u32]) {
        let Some((_, mut known)) = self.ahead.take_if(|ahead| ahead.0 == step) else { return };
        known.iter_mut().zip(tokens).for_each(|(known, &token)| known.push(token));
        self.known = known;
    }

    /// Queues the choice of a token for each row. What is known afterwards lacks these tokens.
    fn choose(
        &mut self,
        gpu: &Gpu,
        logits: View<'_, f32>,
        rows: &[SampleRow<'_>],
        mut to: To<'_>,
    ) -> Result<(), BackendError> {
        let (ops, stream) = (&gpu.ops, &gpu.stream);
        // Histories there are longer than what is known, if tokens have been chosen that nobody has read.
        self.ahead = None;
        let plain = |row: &SampleRow<'_>| {
            let s = row.sampling;
            s.temperature == 0.0 && s.logit_bias.is_empty() && !s.penalises()
        };
        if rows.iter().all(plain) {
            ops.argmax(stream, logits, (&mut self.room, to.tokens.reborrow()))?;
            if to.ends.is_some() {
                ops.decoder_record(
                    stream,
                    to.tokens.view(),
                    Record { ends: to.ends.take(), ..Record::default() },
                )?;
            }
            // What is there stays as it is, but these tokens are not among it.
            self.known.clear();
            return Ok(());
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
        ops.sample_alike(stream, &self.table, logits, from, (&mut self.room, to.tokens.reborrow()))?;
        let record = Record {
            histories: penalised.then(|| (self.history.view_mut(), self.lengths.view_mut())),
            counters: Some(self.counters.view_mut()),
            ends: to.ends,
        };
        ops.decoder_record(stream, to.tokens.view(), record)?;
        self.known_counters.iter_mut().for_each(|counter| *counter += 1);
        if !penalised {
            // Histories there lack what was chosen.
            self.known.clear();
        }
        Ok(())
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
