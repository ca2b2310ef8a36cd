//! The next token from scores, on the GPU.

use super::check::{area, bad, same_len, small};
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
    history: Address,
    token: Address,
    work: Address,
    counters: Address,
    bias_tokens: Address,
    bias: Address,
    seed: u64,
    vocabulary: u32,
    history_len: u32,
    top_k: u32,
    ty: u32,
    biases: u32,
    last_n: u32,
    temperature: f32,
    top_p: f32,
    min_p: f32,
    repetition: f32,
    frequency: f32,
    presence: f32,
}
// SAFETY: as in sampling.cu.
unsafe impl Arguments for SampleArgs {}

/// Room for the scores of rows while they are worked on, and what is added to scores.
#[derive(Debug)]
pub struct SamplingRoom {
    work: Buffer<f32>,
    list: Vec<(u32, f32)>,
    bias: Option<(Buffer<u32>, Buffer<f32>)>,
}

impl SamplingRoom {
    /// Room for up to `rows` rows of `vocabulary` scores.
    ///
    /// # Errors
    /// `OutOfMemory`, `Kernel(SizeOverflow)`, `Driver`.
    pub fn new(context: &Context, rows: usize, vocabulary: usize) -> Result<Self, CudaError> {
        let work = Buffer::new(context, area("scores", &[rows, vocabulary])?)?;
        Ok(Self { work, list: Vec::new(), bias: None })
    }

    /// Brings [`Sampling::logit_bias`] to the GPU, for as many tokens as are chosen with it.
    ///
    /// # Errors
    /// `OutOfMemory`, `OtherContext`, `Driver`.
    pub fn set_bias(&mut self, stream: &Stream, list: &[(u32, f32)]) -> Result<(), CudaError> {
        self.work.context().same(stream.context())?;
        let (tokens, values): (Vec<u32>, Vec<f32>) = list.iter().copied().unzip();
        self.bias = Some((Buffer::from_slice(stream, &tokens)?, Buffer::from_slice(stream, &values)?));
        self.list = list.to_vec();
        Ok(())
    }
}

/// What is wrong with the parameters.
fn refused(error: SamplingError) -> CudaError {
    match error {
        SamplingError::BadParameter { name, expected, .. } => bad(name, expected),
        SamplingError::BadBias { .. } => bad("logit_bias", "tokens of the vocabulary"),
        SamplingError::BadVocabulary(_) => bad("vocabulary", "at most 2^24 tokens"),
    }
}

impl Ops {
    fn scores<T: Float>(&self, x: View<'_, T>, tokens: &ViewMut<'_, u32>) -> Result<SampleArgs, CudaError> {
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
            bias_tokens: 0,
            bias: 0,
            seed: 0,
            vocabulary: small("vocabulary", vocabulary)?,
            history_len: 0,
            top_k: 0,
            ty: type_number(T::TYPE),
            biases: 0,
            last_n: 0,
            temperature: 0.0,
            top_p: 1.0,
            min_p: 0.0,
            repetition: 1.0,
            frequency: 0.0,
            presence: 0.0,
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
        tokens: impl Into<ViewMut<'a, u32>>,
    ) -> Result<(), CudaError> {
        let tokens = tokens.into();
        let args = self.scores(x.into(), &tokens)?;
        let geometry = geometry::argmax(tokens.len());
        // SAFETY: checked above.
        unsafe { self.loader.launch((File::sampling, Name("argmax", "", "")), stream, geometry, &args) }
    }

    /// One token for each row of scores: that which [`sample`](crate::model::sample) chooses. The random number of row `r` depends on the
    /// seed, `counters[r]` and `r` alone: whoever counts on the GPU can capture the launch. `history` has as many tokens for each row;
    /// those beyond the vocabulary count as none. A `logit_bias` must have been given to the room before.
    ///
    /// # Errors
    /// `Kernel` if a parameter cannot be (see [`Sampling::check`]); `WrongSize` unless sizes fit together; `OtherContext`, `Launch`.
    pub fn sample<'a, T: Float>(
        &self,
        stream: &Stream,
        sampling: &Sampling,
        x: impl Into<View<'a, T>>,
        (history, counters): (Option<View<'_, u32>>, View<'_, u64>),
        (room, tokens): (&mut SamplingRoom, impl Into<ViewMut<'a, u32>>),
    ) -> Result<(), CudaError> {
        let tokens = tokens.into();
        let args = self.scores(x.into(), &tokens)?;
        sampling.check(args.vocabulary as usize).map_err(refused)?;
        let bias = match &room.bias {
            _ if sampling.logit_bias.is_empty() => None,
            // Bit by bit, so that not even zeros differ in their sign.
            Some(bias) if same_list(&room.list, &sampling.logit_bias) => Some(bias),
            _ => return Err(bad("logit_bias", "what the room was given")),
        };
        let rows = tokens.len();
        same_len("counters", counters.len(), rows)?;
        let scores = rows * args.vocabulary as usize;
        if room.work.len() < scores {
            return Err(CudaError::WrongSize { arg: "room", need: scores, got: room.work.len() });
        }
        let history_len = match history.filter(|_| sampling.penalises()) {
            Some(h) => {
                self.here(h.context())?;
                same_len("history", h.len() / rows * rows, h.len())?;
                h.len() / rows
            }
            None => 0,
        };
        self.here(counters.context())?;
        self.here(room.work.context())?;
        let args = SampleArgs {
            history: history.map_or(0, |h| h.address()),
            work: room.work.address(),
            counters: counters.address(),
            bias_tokens: bias.map_or(0, |b| b.0.address()),
            bias: bias.map_or(0, |b| b.1.address()),
            seed: sampling.seed,
            history_len: small("history", history_len)?,
            top_k: small("top_k", sampling.top_k.min(scores))?,
            biases: small("logit_bias", sampling.logit_bias.len())?,
            last_n: small("last_n", sampling.last_n.min(history_len))?,
            temperature: sampling.temperature,
            top_p: sampling.top_p,
            min_p: sampling.min_p,
            repetition: sampling.repetition,
            frequency: sampling.frequency,
            presence: sampling.presence,
            ..args
        };
        let geometry = geometry::sample(rows);
        // SAFETY: checked above; the history is checked by the kernel.
        unsafe { self.loader.launch((File::sampling, Name("sample", "", "")), stream, geometry, &args) }
    }
}

fn same_list(a: &[(u32, f32)], b: &[(u32, f32)]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a.0, a.1.to_bits()) == (b.0, b.1.to_bits()))
}

pub(super) fn list(to: &mut dyn FnMut(File, Name, usize)) {
    for name in ["argmax", "sample"] {
        to(File::sampling, Name(name, "", ""), size_of::<SampleArgs>());
    }
}
