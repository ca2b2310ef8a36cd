//! The next token from scores, and how probable tokens are, on the GPU.

use super::check::{area, bad, rows as whole_rows, same_len, small};
use super::driver::Context;
use super::error::CudaError;
use super::geometry;
use super::kernels::{type_number, File, Name};
use super::memory::{Buffer, View, ViewMut};
use super::module::Arguments;
use super::stream::Stream;
use super::sys::Address;
use super::{Float, Ops};
use crate::model::{Sampling, SamplingError};

#[derive(Clone, Copy)]
#[repr(C)]
struct SampleArgs {
    scores: Address,
    token: Address,
    ways: Address,
    bias_tokens: Address,
    bias_values: Address,
    history: Address,
    history_lengths: Address,
    work: Address,
    tokens: Address,
    parts: Address,
    counters: Address,
    tops: Address,
    vocabulary: u32,
    history_room: u32,
    ty: u32,
    alike: u32,
}
// SAFETY: as in sampling.cu.
unsafe impl Arguments for SampleArgs {}

#[derive(Clone, Copy)]
#[repr(C)]
struct LogProbabilitiesArgs {
    x: Address,
    rows: Address,
    tokens: Address,
    y: Address,
    count: u32,
    vocabulary: u32,
}
// SAFETY: as in sampling.cu.
unsafe impl Arguments for LogProbabilitiesArgs {}

impl From<SamplingError> for CudaError {
    fn from(error: SamplingError) -> Self {
        match error {
            SamplingError::BadParameter { name, expected, .. } => bad(name, expected),
            SamplingError::BadBias { .. } => bad("logit_bias", "tokens of the vocabulary"),
            SamplingError::BadVocabulary(_) => bad("vocabulary", "1 to 2^24 tokens"),
        }
    }
}

/// Words of a row's parameters: `Way` in sampling.cu.
const WORDS: usize = 12;

/// How the tokens of rows are chosen, on the GPU: each row has parameters of its own.
#[derive(Debug)]
pub struct SamplingTable {
    vocabulary: usize,
    ways: Buffer<u32>,
    bias_tokens: Buffer<u32>,
    bias_values: Buffer<f32>,
}

impl SamplingTable {
    /// A row for each of `all`, and room for `biases` biases of all rows together.
    ///
    /// # Errors
    /// Those of [`set`](Self::set); `OutOfMemory`.
    pub fn new(
        stream: &Stream,
        vocabulary: usize,
        all: &[Sampling],
        biases: usize,
    ) -> Result<Self, CudaError> {
        let context = stream.context();
        let mut table = Self {
            vocabulary,
            ways: Buffer::new(context, area("parameters", &[all.len(), WORDS])?)?,
            bias_tokens: Buffer::new(context, biases)?,
            bias_values: Buffer::new(context, biases)?,
        };
        table.set(stream, all)?;
        Ok(table)
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.ways.len() / WORDS
    }

    /// Replaces the parameters. Waits for the stream.
    ///
    /// # Errors
    /// `Kernel` if one of them cannot be; `WrongSize` if these are another number of rows, or more biases than there is room for;
    /// `OtherContext`, `Driver`.
    pub fn set(&mut self, stream: &Stream, all: &[Sampling]) -> Result<(), CudaError> {
        same_len("sampling", all.len(), self.rows())?;
        let (mut ways, mut tokens, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for sampling in all {
            sampling.check(self.vocabulary)?;
            let mut biases = sampling.logit_bias.clone();
            // Those of one token stay in their order.
            biases.sort_by_key(|bias| bias.0);
            let counted = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            let Sampling { repetition, frequency, presence, temperature, top_p, min_p, .. } = *sampling;
            ways.extend([sampling.seed as u32, (sampling.seed >> 32) as u32]);
            ways.extend([sampling.top_k, sampling.last_n, tokens.len(), biases.len()].map(counted));
            ways.extend([repetition, frequency, presence, temperature, top_p, min_p].map(f32::to_bits));
            tokens.extend(biases.iter().map(|bias| bias.0));
            values.extend(biases.iter().map(|bias| bias.1));
        }
        let n = tokens.len();
        if n > self.bias_tokens.len() {
            return Err(CudaError::WrongSize { arg: "biases", need: n, got: self.bias_tokens.len() });
        }
        self.bias_tokens.range_mut(0..n)?.upload(stream, &tokens)?;
        self.bias_values.range_mut(0..n)?.upload(stream, &values)?;
        self.ways.upload(stream, &ways)
    }
}

/// The tokens of each row so far, in room for as many in each row.
#[derive(Clone, Copy, Debug)]
pub struct History<'a> {
    /// Row after row.
    pub tokens: View<'a, u32>,
    /// How many each row has.
    pub lengths: View<'a, u32>,
}

/// Room for the scores of rows while they are worked on.
#[derive(Debug)]
pub struct SamplingRoom {
    /// Scores; candidates' scores or weights.
    work: Buffer<f32>,
    /// Candidates.
    tokens: Buffer<u32>,
    /// `Part` in sampling.cu, of each part of a row.
    parts: Buffer<u64>,
    /// The largest score of each tile of a row, and where it is.
    tops: Buffer<u32>,
}

impl SamplingRoom {
    /// Room for up to `rows` rows of `vocabulary` scores.
    ///
    /// # Errors
    /// `OutOfMemory`, `Kernel(SizeOverflow)`, `Driver`.
    pub fn new(context: &Context, rows: usize, vocabulary: usize) -> Result<Self, CudaError> {
        let [scores, parts, tops] = Self::sizes(rows, vocabulary)?;
        Ok(Self {
            work: Buffer::new(context, scores)?,
            tokens: Buffer::new(context, scores)?,
            parts: Buffer::new(context, parts)?,
            tops: Buffer::new(context, tops)?,
        })
    }

    /// Elements of `work` and `tokens`, of `parts`, and of `tops`.
    fn sizes(rows: usize, vocabulary: usize) -> Result<[usize; 3], CudaError> {
        let pairs = |each| area("scores", &[2, rows, vocabulary.div_ceil(each)]);
        let scores = area("scores", &[rows, vocabulary])?;
        Ok([scores, pairs(geometry::SCORES_OF_BLOCK)?, pairs(geometry::SCORES_OF_WARP)?])
    }

    /// `Ok` if rows that have so many scores find room.
    fn check(&self, rows: usize, vocabulary: usize) -> Result<(), CudaError> {
        let have = [self.work.len(), self.parts.len(), self.tops.len()];
        for (need, got) in Self::sizes(rows, vocabulary)?.into_iter().zip(have) {
            if got < need {
                return Err(CudaError::WrongSize { arg: "room", need, got });
            }
        }
        Ok(())
    }
}

impl Ops {
    fn scores<T: Float>(
        &self,
        x: View<'_, T>,
        room: &SamplingRoom,
        tokens: &ViewMut<'_, u32>,
    ) -> Result<SampleArgs, CudaError> {
        let rows = tokens.len();
        let vocabulary = x.len().checked_div(rows).unwrap_or(0);
        if rows == 0 || vocabulary == 0 {
            return Err(bad("x", "at least a score for each of the tokens"));
        }
        same_len("x", x.len(), rows * vocabulary)?;
        self.here(x.context())?;
        self.here(tokens.context())?;
        self.here(room.work.context())?;
        Ok(SampleArgs {
            scores: x.address(),
            token: tokens.address(),
            ways: 0,
            bias_tokens: 0,
            bias_values: 0,
            history: 0,
            history_lengths: 0,
            work: room.work.address(),
            tokens: room.tokens.address(),
            parts: room.parts.address(),
            counters: 0,
            tops: room.tops.address(),
            vocabulary: small("vocabulary", vocabulary)?,
            history_room: 0,
            ty: type_number(T::TYPE),
            alike: 0,
        })
    }

    /// The largest score of each row, and of equal ones the first. NaN is the lowest.
    ///
    /// # Errors
    /// `Kernel`, `WrongSize` unless `x` has as many scores, at least one, for each of `tokens`, and the room is large enough; `OtherContext`,
    /// `Launch`.
    pub fn argmax<'a, T: Float>(
        &self,
        stream: &Stream,
        x: impl Into<View<'a, T>>,
        (room, tokens): (&mut SamplingRoom, impl Into<ViewMut<'a, u32>>),
    ) -> Result<(), CudaError> {
        let tokens = tokens.into();
        let args = self.scores(x.into(), room, &tokens)?;
        room.check(tokens.len(), args.vocabulary as usize)?;
        // SAFETY: the arguments were checked; without ways none of the others is read.
        unsafe { self.launch_sampling(stream, tokens.len(), &args) }
    }

    /// Queues what chooses a token of each row.
    ///
    /// # Safety
    /// The arguments are those of that many rows.
    unsafe fn launch_sampling(
        &self,
        stream: &Stream,
        rows: usize,
        args: &SampleArgs,
    ) -> Result<(), CudaError> {
        let (parts, whole) = (geometry::sample(rows, args.vocabulary as usize), geometry::sample(rows, 1));
        let all = [("sample_tops", parts), ("sample_candidates", parts), ("sample", whole)];
        // The largest needs no candidates.
        for (name, geometry) in all.into_iter().filter(|all| args.ways != 0 || all.0 != "sample_candidates") {
            // SAFETY: the caller's contract.
            unsafe { self.loader.launch((File::sampling, Name(name, "", "")), stream, geometry, args)? };
        }
        Ok(())
    }

    /// One token for each row of scores, by chance: the one that [`model::sample`](crate::model::sample) chooses from them as f32 with row
    /// `r` of `table`, its history and `counters[r]`. Whoever counts on the GPU can capture the launch.
    ///
    /// # Errors
    /// `Kernel` without scores; `WrongSize` unless the table has a row for each of `tokens` and its vocabulary is that of `x`, there are
    /// as many counters and lengths, and the room is large enough; `OtherContext`, `Launch`.
    pub fn sample<'a, T: Float>(
        &self,
        stream: &Stream,
        table: &SamplingTable,
        x: impl Into<View<'a, T>>,
        from: (Option<History<'_>>, View<'_, u64>),
        (room, tokens): (&mut SamplingRoom, impl Into<ViewMut<'a, u32>>),
    ) -> Result<(), CudaError> {
        self.choose(stream, (table, false), x.into(), from, (room, tokens.into()))
    }

    /// [`sample`](Self::sample) with the random numbers of row 0 for each row: a sequence then has the same ones in any
    /// row.
    ///
    /// # Errors
    /// Those of [`sample`](Self::sample).
    pub(crate) fn sample_alike<T: Float>(
        &self,
        stream: &Stream,
        table: &SamplingTable,
        x: View<'_, T>,
        from: (Option<History<'_>>, View<'_, u64>),
        to: (&mut SamplingRoom, ViewMut<'_, u32>),
    ) -> Result<(), CudaError> {
        self.choose(stream, (table, true), x, from, to)
    }

    fn choose<T: Float>(
        &self,
        stream: &Stream,
        (table, alike): (&SamplingTable, bool),
        x: View<'_, T>,
        (history, counters): (Option<History<'_>>, View<'_, u64>),
        (room, tokens): (&mut SamplingRoom, ViewMut<'_, u32>),
    ) -> Result<(), CudaError> {
        let args = self.scores(x, room, &tokens)?;
        let rows = tokens.len();
        same_len("table", table.rows(), rows)?;
        same_len("vocabulary", args.vocabulary as usize, table.vocabulary)?;
        same_len("counters", counters.len(), rows)?;
        room.check(rows, table.vocabulary)?;
        self.here(table.ways.context())?;
        self.here(counters.context())?;
        let mut history_room = 0;
        if let Some(History { tokens, lengths }) = history {
            self.here(tokens.context())?;
            self.here(lengths.context())?;
            same_len("lengths", lengths.len(), rows)?;
            history_room = tokens.len() / rows;
            same_len("history", tokens.len(), history_room * rows)?;
        }
        let args = SampleArgs {
            ways: table.ways.address(),
            bias_tokens: table.bias_tokens.address(),
            bias_values: table.bias_values.address(),
            history: history.map_or(0, |h| h.tokens.address()),
            history_lengths: history.map_or(0, |h| h.lengths.address()),
            counters: counters.address(),
            history_room: small("history", history_room)?,
            alike: alike.into(),
            ..args
        };
        // SAFETY: the arguments were checked; biases by `SamplingTable::set`, the history by the kernel.
        unsafe { self.launch_sampling(stream, rows, &args) }
    }

    /// Of rows of `vocabulary` scores `y_i = x[r, t] - ln(sum over u of exp(x[r, u]))`, with row `r = rows[i]` and token `t = tokens[i]`, which may
    /// occur more than once. -inf counts as 0, and gives -inf if it is the token's. NaN for a row with a NaN or +inf, or of -inf alone, and for a
    /// row or a token that does not exist.
    ///
    /// # Errors
    /// `WrongSize` unless there are as many rows and tokens as elements of `y`; `Kernel` if `x` has no whole rows; `OtherContext`,
    /// `Launch`.
    pub fn log_probabilities<'a>(
        &self,
        stream: &Stream,
        (x, vocabulary): (impl Into<View<'a, f32>>, usize),
        (rows, tokens): (View<'_, u32>, View<'_, u32>),
        y: impl Into<ViewMut<'a, f32>>,
    ) -> Result<(), CudaError> {
        let (x, y) = (x.into(), y.into());
        let count = whole_rows(x.len(), vocabulary)?;
        same_len("rows", rows.len(), y.len())?;
        same_len("tokens", tokens.len(), y.len())?;
        self.here(x.context())?;
        self.here(rows.context())?;
        self.here(tokens.context())?;
        self.here(y.context())?;
        let args = LogProbabilitiesArgs {
            x: x.address(),
            rows: rows.address(),
            tokens: tokens.address(),
            y: y.address(),
            count: small("rows of x", count)?,
            vocabulary: small("vocabulary", vocabulary)?,
        };
        let (kernel, geometry) = (Name("log_probabilities", "", ""), geometry::log_probabilities(y.len()));
        // SAFETY: the arguments were checked; rows and tokens are checked by the kernel.
        unsafe { self.loader.launch((File::sampling, kernel), stream, geometry, &args) }
    }
}

pub(super) fn list(to: &mut dyn FnMut(File, Name, usize)) {
    for name in ["sample_tops", "sample_candidates", "sample"] {
        to(File::sampling, Name(name, "", ""), size_of::<SampleArgs>());
    }
    to(File::sampling, Name("log_probabilities", "", ""), size_of::<LogProbabilitiesArgs>());
}
