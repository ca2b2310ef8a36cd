//! The next token from scores, on the GPU.

use super::check::{area, bad, same_len, small};
use super::driver::Context;
use super::error::CudaError;
use super::geometry;
use super::kernels::{type_number, File, Name};
use super::memory::{Buffer, View};
use super::module::Arguments;
use super::stream::Stream;
use super::sys::Address;
use super::{Float, Ops};

#[derive(Clone, Copy)]
#[repr(C)]
struct SampleArgs {
    scores: Address,
    history: Address,
    token: Address,
    work: Address,
    counters: Address,
    seed: u64,
    vocabulary: u32,
    history_len: u32,
    top_k: u32,
    ty: u32,
    temperature: f32,
    top_p: f32,
    min_p: f32,
    repetition: f32,
}
// SAFETY: as in sampling.cu.
unsafe impl Arguments for SampleArgs {}

/// How a token is chosen; in this order. What equals the last token that `top_k` or `top_p` lets pass, passes too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Scores of tokens in the history are divided by this if they are positive, else multiplied; 1 changes nothing.
    pub repetition: f32,
    /// Scores are divided by this; 0 takes the largest score.
    pub temperature: f32,
    /// Only so many of the largest scores; 0 is all.
    pub top_k: usize,
    /// Of these, only the largest whose probabilities add up to this; 1 is all.
    pub top_p: f32,
    /// Only those at least this times as probable as the first; 0 is all.
    pub min_p: f32,
    /// Key of the random numbers (Philox 4x32-10).
    pub seed: u64,
}

impl Default for Sampling {
    /// Whatever comes, as probable as it is.
    fn default() -> Self {
        Self { repetition: 1.0, temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 }
    }
}

/// Room for the scores of rows while they are worked on.
#[derive(Debug)]
pub struct SamplingRoom(Buffer<f32>);

impl SamplingRoom {
    /// Room for up to `rows` rows of `vocabulary` scores.
    ///
    /// # Errors
    /// `OutOfMemory`, `Kernel(SizeOverflow)`, `Driver`.
    pub fn new(context: &Context, rows: usize, vocabulary: usize) -> Result<Self, CudaError> {
        Ok(Self(Buffer::new(context, area("scores", &[rows, vocabulary])?)?))
    }
}

impl Ops {
    fn scores<T: Float>(&self, x: View<'_, T>, tokens: &Buffer<u32>) -> Result<SampleArgs, CudaError> {
        let rows = tokens.len();
        let vocabulary = x.len().checked_div(rows).unwrap_or(0);
        if rows == 0 || vocabulary == 0 {
            return Err(bad("x", "at least a score for each of the tokens"));
        }
        same_len("x", x.len(), rows * vocabulary)?;
        self.here(x.context())?;
        self.here(tokens.context())?;
        Ok(SampleArgs {
            scores: x.address(),
            history: 0,
            token: tokens.address(),
            work: 0,
            counters: 0,
            seed: 0,
            vocabulary: small("vocabulary", vocabulary)?,
            history_len: 0,
            top_k: 0,
            ty: type_number(T::TYPE),
            temperature: 0.0,
            top_p: 1.0,
            min_p: 0.0,
            repetition: 1.0,
        })
    }

    /// The largest score of each row, and of equal ones the first. NaN is the lowest.
    ///
    /// # Errors
    /// `Kernel`, `WrongSize` unless `x` has as many scores, at least one, for each of `tokens`; `OtherContext`, `Launch`.
    pub fn argmax<'a, T: Float>(
        &self,
        stream: &Stream,
        x: impl Into<View<'a, T>>,
        tokens: &mut Buffer<u32>,
    ) -> Result<(), CudaError> {
        let args = self.scores(x.into(), tokens)?;
        let geometry = geometry::argmax(tokens.len());
        // SAFETY: checked above.
        unsafe { self.loader.launch((File::sampling, Name("argmax", "", "")), stream, geometry, &args) }
    }

    /// One token for each row of scores, by chance. The random number of row `r` depends on the seed, `counters[r]` and `r`
    /// alone: whoever counts on the GPU can capture the launch. `history` has as many tokens for each row; those beyond the
    /// vocabulary count as none.
    ///
    /// # Errors
    /// `Kernel` if a parameter is none: `repetition` positive, `temperature` not negative, `top_p` above 0, `min_p` in 0 to 1, or
    /// more of the vocabulary than 2^24 tokens; `WrongSize` unless sizes fit together; `OtherContext`, `Launch`.
    pub fn sample<'a, T: Float>(
        &self,
        stream: &Stream,
        sampling: Sampling,
        x: impl Into<View<'a, T>>,
        (history, counters): (Option<View<'_, u32>>, View<'_, u64>),
        (room, tokens): (&mut SamplingRoom, &mut Buffer<u32>),
    ) -> Result<(), CudaError> {
        let args = self.scores(x.into(), tokens)?;
        let Sampling { repetition, temperature, top_k, top_p, min_p, seed } = sampling;
        if !(repetition > 0.0 && repetition.is_finite()) {
            return Err(bad("repetition", "positive and finite"));
        }
        if !(temperature >= 0.0 && temperature.is_finite()) {
            return Err(bad("temperature", "not negative, and finite"));
        }
        if !(top_p > 0.0 && (0.0..=1.0).contains(&min_p)) {
            return Err(bad("top_p, min_p", "top_p above 0, min_p in 0 to 1"));
        }
        if args.vocabulary > 1 << 24 {
            return Err(bad("vocabulary", "at most 2^24 tokens"));
        }
        let rows = tokens.len();
        same_len("counters", counters.len(), rows)?;
        let scores = rows * args.vocabulary as usize;
        if room.0.len() < scores {
            return Err(CudaError::WrongSize { arg: "room", need: scores, got: room.0.len() });
        }
        let history_len = match history {
            Some(h) => {
                self.here(h.context())?;
                same_len("history", h.len() / rows * rows, h.len())?;
                h.len() / rows
            }
            None => 0,
        };
        self.here(counters.context())?;
        self.here(room.0.context())?;
        let args = SampleArgs {
            history: history.map_or(0, |h| h.address()),
            work: room.0.address(),
            counters: counters.address(),
            seed,
            history_len: small("history", history_len)?,
            top_k: small("top_k", top_k.min(scores))?,
            temperature,
            top_p,
            min_p,
            repetition,
            ..args
        };
        let geometry = geometry::sample(rows);
        // SAFETY: checked above; the history is checked by the kernel.
        unsafe { self.loader.launch((File::sampling, Name("sample", "", "")), stream, geometry, &args) }
    }
}

pub(super) fn list(to: &mut dyn FnMut(File, Name, usize)) {
    for name in ["argmax", "sample"] {
        to(File::sampling, Name(name, "", ""), size_of::<SampleArgs>());
    }
}
