//! How the next token is chosen from logits.

/// How the next token is chosen from logits.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Added to the logits of these tokens, in front of everything else.
    pub logit_bias: Vec<(u32, f32)>,
    /// How many of the last tokens of the history the three penalties look at; 0 is none, `usize::MAX` all.
    pub last_n: usize,
    /// Logits of tokens in the history are divided by this if they are positive, else multiplied; 1 changes nothing.
    pub repetition: f32,
    /// Subtracted from the logit of a token in the history, as often as it occurs there.
    pub frequency: f32,
    /// Subtracted once from the logit of a token in the history.
    pub presence: f32,
    /// Logits are divided by this; 0 takes the largest.
    pub temperature: f32,
    /// Only so many of the largest logits; 0 is all.
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
        Self {
            logit_bias: Vec::new(),
            last_n: usize::MAX,
            repetition: 1.0,
            frequency: 0.0,
            presence: 0.0,
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
        }
    }
}

impl Sampling {
    /// The largest logit, and of equal ones the first.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }
}
