//! Unigram language models of SentencePiece: of all ways to cut a text into tokens, the one whose scores have the largest sum (Viterbi's algorithm).
//!
//! Text is normalised first, by a map that comes with the vocabulary: of what the text goes on with, the longest entry is replaced. SentencePiece and
//! llama.cpp do the same. Hugging Face's `tokenizers` look up what is read as one character instead (a grapheme), which differs for some
//! sequences of marks.

use std::collections::HashSet;

use gllm_kernels_std::gguf::ValueType;

use super::spm::SPACE;
use super::{array, flag, integers, token, Metadata, TokenKind, TokenizerError, Vocabulary, SCORES, TYPES};

const CHARSMAP: &str = "tokenizer.ggml.precompiled_charsmap";
/// The number of tokens that the model does not use, in `tokenizer.ggml.token_type`.
const UNUSED: i64 = 5;
/// By how much what is unknown is worse than the worst token.
const PENALTY: f64 = 10.0;

pub(super) struct Ugm<'a> {
    /// The tokens that text is cut into, sorted: their texts, ids and scores.
    tokens: Vec<(&'a str, u32, f64)>,
    unknown: (u32, f64),
    map: Charsmap,
    /// Whether text begins with a space that is not there.
    adds_space: bool,
    /// Whether several spaces are one, and those at the ends none.
    merges_spaces: bool,
}

impl<'a> Ugm<'a> {
    pub(super) fn new(file: Metadata<'_, 'a>, vocabulary: &Vocabulary<'a>) -> Result<Self, TokenizerError> {
        let scores = array(file, SCORES, ValueType::F32, "a list of f32")?;
        let len = vocabulary.text.len();
        if scores.len() != len {
            return Err(TokenizerError::Lengths { key: SCORES, got: scores.len(), tokens: len });
        }
        let unused: HashSet<usize> = match file(TYPES) {
            None => HashSet::new(),
            Some(_) => {
                integers(file, TYPES)?.enumerate().filter(|&(_, of)| of == UNUSED).map(|(i, _)| i).collect()
            }
        };
        let score =
            |v: gllm_kernels_std::gguf::Value<'_>| v.as_f64().filter(|s| s.is_finite()).unwrap_or(-1e9);
        let all = vocabulary.text.iter().zip(&vocabulary.kind).zip(scores.iter().map(score)).enumerate();
        let mut worst = 0f64;
        let mut tokens = Vec::with_capacity(len);
        for (id, ((&text, &kind), score)) in all {
            if kind == TokenKind::Normal && !text.is_empty() {
                worst = if unused.contains(&id) { worst } else { worst.min(score) };
                tokens.push((text, id as u32, score));
            }
        }
        // Of equal texts the last one counts.
        tokens.sort_by_key(|&(text, id, _)| (text, std::cmp::Reverse(id)));
        tokens.dedup_by_key(|token| token.0);
        const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";
        let unknown = token(file, UNKNOWN, len)?.unwrap_or(2);
        if unknown as usize >= len {
            return Err(TokenizerError::NoSuchToken { key: UNKNOWN, id: unknown.into(), tokens: len });
        }
        Ok(Self {
            tokens,
            unknown: (unknown, worst - PENALTY),
            map: Charsmap::new(file)?,
            adds_space: flag(file, "tokenizer.ggml.add_space_prefix", true)?,
            merges_spaces: flag(file, "tokenizer.ggml.remove_extra_whitespaces", false)?,
        })
    }

    /// The text as the vocabulary has it.
    fn normalised(&self, text: &str) -> String {
        let mut to = String::with_capacity(text.len() + 3);
        let mut in_word = false;
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let (own, new) = self.map.entry(rest).unwrap_or((first.len_utf8(), &rest[..first.len_utf8()]));
            for c in new.chars() {
                match c {
                    ' ' if self.merges_spaces => {}
                    ' ' => to.push(SPACE),
                    c => {
                        if !in_word && (self.merges_spaces || self.adds_space && to.is_empty()) {
                            to.push(SPACE);
                        }
                        to.push(c);
                    }
                }
                in_word = c != ' ';
            }
            rest = &rest[own..];
        }
        to
    }

    /// Calls `each` with every token that the text begins with: how long it is, its id and its score.
    fn beginnings(&self, text: &str, mut each: impl FnMut(usize, u32, f64)) {
        let mut some = &self.tokens[..];
        for (at, &byte) in text.as_bytes().iter().enumerate() {
            // Those that have what is before `at` in common, and this byte, too.
            let of = |token: &(&str, u32, f64)| token.0.as_bytes().get(at).copied();
            some = &some[some.partition_point(|token| of(token) < Some(byte))..];
            some = &some[..some.partition_point(|token| of(token) == Some(byte))];
            match some.first() {
                None => return,
                Some(&(own, id, score)) if own.len() == at + 1 => each(at + 1, id, score),
                _ => {}
            }
        }
    }

    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) {
        let text = self.normalised(text);
        // Of what ends behind each byte, the best sum of scores, and where its last token begins, and which that is.
        let mut best = vec![(f64::NEG_INFINITY, 0, self.unknown.0); text.len() + 1];
        best[0].0 = 0.0;
        for (start, c) in text.char_indices() {
            let (sum, mut known) = (best[start].0, false);
            let mut offer = |len: usize, id, score: f64| {
                if sum + score > best[start + len].0 {
                    best[start + len] = (sum + score, start, id);
                }
            };
            self.beginnings(&text[start..], |len, id, score| {
                known |= len == c.len_utf8();
                offer(len, id, score);
            });
            if !known {
                offer(c.len_utf8(), self.unknown.0, self.unknown.1);
            }
        }
        let (first, mut end) = (out.len(), text.len());
        while end > 0 {
            let (_, start, id) = best[end];
            // What is unknown is one token, however long it is.
            if id != self.unknown.0 || out[first..].last() != Some(&id) {
                out.push(id);
            }
            end = start;
        }
        out[first..].reverse();
    }
}

/// What parts of a text are replaced by: a trie as a double array of words of 32 bits, and texts that end with a zero. (Kanda et al., "Compressed double-array
/// tries for string dictionaries supporting fast lookup", 2017.) A map that is damaged replaces nothing where it is.
#[derive(Default)]
struct Charsmap {
    trie: Vec<u32>,
    texts: Vec<u8>,
}

impl Charsmap {
    fn new(file: Metadata<'_, '_>) -> Result<Self, TokenizerError> {
        let Some(value) = file(CHARSMAP) else { return Ok(Self::default()) };
        let bad = TokenizerError::Metadata {
            key: CHARSMAP,
            expected: "a list of bytes that begins with the length of its trie",
        };
        let Some(bytes) =
            value.as_array().filter(|a| [ValueType::U8, ValueType::I8].contains(&a.element_type()))
        else {
            return Err(bad);
        };
        let bytes: Vec<u8> = bytes.iter().map(|v| v.as_i64().unwrap_or(0) as u8).collect();
        let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let Some((len, rest)) = bytes.split_at_checked(4) else { return Err(bad) };
        let Some((trie, texts)) = rest.split_at_checked(word(len) as usize) else { return Err(bad) };
        Ok(Self { trie: trie.chunks_exact(4).map(word).collect(), texts: texts.to_vec() })
    }

    /// The longest entry that a text begins with: how long it is, and what stands in its place.
    fn entry(&self, text: &str) -> Option<(usize, &str)> {
        /// Where a node's children are, from it.
        fn base(node: u32) -> u32 {
            (node >> 10) << ((node & 1 << 9) >> 6)
        }
        let node = |at: u32| self.trie.get(at as usize).copied();
        let mut at = base(node(0)?);
        let mut found = None;
        for (i, &byte) in text.as_bytes().iter().enumerate() {
            at ^= u32::from(byte);
            let Some(own) = node(at).filter(|own| byte != 0 && own & (1 << 31 | 0xff) == u32::from(byte))
            else {
                break;
            };
            at ^= base(own);
            if own & 1 << 8 != 0 && text.is_char_boundary(i + 1) {
                found = node(at).map(|value| (i + 1, (value & !(1 << 31)) as usize)).or(found);
            }
        }
        let (len, start) = found?;
        let text = self.texts.get(start..)?.split(|&b| b == 0).next()?;
        Some((len, std::str::from_utf8(text).ok()?))
    }
}
