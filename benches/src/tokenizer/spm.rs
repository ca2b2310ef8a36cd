//! SentencePiece BPE: of all pairs of neighbours whose joint text is a token, the one with the highest score is merged first.

use std::cmp::Ordering;

use gllm_kernels_std::gguf::ValueType;

use super::merge::merge;
use super::{array, flag, same_length, Metadata, TokenizerError, Vocabulary, SCORES};

/// Stands for a space in vocabularies.
pub(super) const SPACE: char = '\u{2581}';

pub(super) struct Spm {
    scores: Vec<Score>,
    /// Whether text begins with a space that is not there.
    adds_space: bool,
}

/// A finite or infinite score; NaN is the lowest.
#[derive(Clone, Copy, PartialEq)]
struct Score(f32);

impl Eq for Score {}
impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Spm {
    pub(super) fn new(file: Metadata<'_, '_>, tokens: usize) -> Result<Self, TokenizerError> {
        let scores = array(file, SCORES, ValueType::F32, "a list of f32")?.iter();
        let scores = scores.map(|v| v.as_f64().filter(|s| !s.is_nan()).unwrap_or(f64::NEG_INFINITY));
        // Zeros of both signs are the same score.
        let scores = same_length(SCORES, tokens, scores.map(|s| Score(s as f32 + 0.0)).collect())?;
        Ok(Self { scores, adds_space: flag(file, "tokenizer.ggml.add_space_prefix", true)? })
    }

    pub(super) fn encode(
        &self,
        vocabulary: &Vocabulary<'_>,
        text: &str,
        after_special: bool,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let prefix = if self.adds_space && after_special { " " } else { "" };
        let text = marked(prefix.chars().chain(text.chars()));
        let priority = |pair: &str, _| vocabulary.id(pair).map(|id| self.scores[id as usize]);
        let mut missing = None;
        merge(&text, priority, |piece| match vocabulary.id(piece) {
            Some(id) => out.push(id),
            // Only single characters can be missing.
            None => missing = spell(vocabulary, piece, out).or(missing),
        });
        missing.map_or(Ok(()), |byte| Err(TokenizerError::NoByte(byte)))
    }
}

/// Text with marks for spaces.
pub(super) fn marked(text: impl Iterator<Item = char>) -> String {
    text.map(|c| if c == ' ' { SPACE } else { c }).collect()
}

/// Writes a text byte by byte; a byte that has no token is left out, and is the result.
pub(super) fn spell(vocabulary: &Vocabulary<'_>, text: &str, out: &mut Vec<u32>) -> Option<u8> {
    let mut missing = None;
    for &byte in text.as_bytes() {
        match vocabulary.id(&format!("<0x{byte:02X}>")) {
            Some(id) => out.push(id),
            None => missing = Some(byte),
        }
    }
    missing
}

/// What a token stands for.
pub(super) fn bytes(text: &str) -> Vec<u8> {
    text.replace(SPACE, " ").into_bytes()
}
