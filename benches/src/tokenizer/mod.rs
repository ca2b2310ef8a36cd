//! Text to token ids and back, with the vocabulary that a GGUF file holds.
//!
//! Four families of tokenizers cover the supported architectures: byte-level BPE (`tokenizer.ggml.model` = `gpt2`: Llama 3,
//! Qwen, SmolLM; `gemma4`, without the coding of bytes) in `bpe.rs`, and SentencePiece BPE (`llama`: Llama 2, Mistral, Gemma) in `spm.rs`, WordPiece (`bert`:
//! encoders) in `wpm.rs`, and unigram models of SentencePiece (`t5`: XLM-RoBERTa) in `ugm.rs`. The first two merge neighbouring symbols, the best pair first; they differ in how text is cut up before and in what makes
//! a pair good. The third takes the longest tokens from left to right, and the last one the tokens that are most probable together.
//!
//! The results are those of llama.cpp, token by token; `wpm.rs` says where they are not. No crate reads a tokenizer from GGUF; those that read
//! `tokenizer.json` want merges that SentencePiece vocabularies in GGUF do not have.

mod bpe;
mod merge;
mod spm;
#[cfg(test)]
mod tests;
mod ugm;
mod words;
#[cfg(test)]
mod words_tests;
mod wpm;
#[cfg(test)]
mod wpm_tests;

use std::collections::HashMap;
use std::fmt;

use gllm_kernels_std::gguf::{Array, Value, ValueType};

/// What a token stands for, by the numbers in `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenKind {
    /// A piece of text.
    Normal,
    /// A mark for the model such as the end of a text: it is not part of the text.
    Control,
    /// Text that is always one token.
    UserDefined,
    /// A single byte, written `<0x0A>`.
    Byte,
}

/// Why there is no tokenizer, or why it cannot encode a text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The file lacks a metadata value, or it has another type.
    Metadata {
        /// Its key.
        key: &'static str,
        /// What is expected there.
        expected: &'static str,
    },
    /// Lists that describe the same tokens have different lengths.
    Lengths {
        /// The list's key.
        key: &'static str,
        /// Its length.
        got: usize,
        /// The number of tokens.
        tokens: usize,
    },
    /// A token id that is not in the vocabulary.
    NoSuchToken {
        /// Where it stands.
        key: &'static str,
        /// The id.
        id: u64,
        /// The number of tokens.
        tokens: usize,
    },
    /// The kind of tokenizer (`tokenizer.ggml.model`) or the rule by which it cuts text (`tokenizer.ggml.pre`) is not known.
    Unknown {
        /// The key.
        key: &'static str,
        /// The name that is not known.
        name: String,
        /// The names that are.
        known: Vec<&'static str>,
    },
    /// The vocabulary has no token for a byte of the text.
    NoByte(u8),
    /// The text is too complicated for the rule that cuts it up.
    Text(String),
}

impl fmt::Display for TokenizerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metadata { key, expected } => {
                write!(f, "the file's tokenizer cannot be used: {key} is not {expected}")
            }
            Self::Lengths { key, got, tokens } => {
                write!(f, "the file's tokenizer cannot be used: {key} has {got} values for {tokens} tokens")
            }
            Self::NoSuchToken { key, id, tokens } => {
                write!(f, "the file's tokenizer cannot be used: {key} is {id}, but there are {tokens} tokens")
            }
            Self::Unknown { key, name, known } => {
                write!(f, "{key} = {name:?} is not supported; supported are {}", known.join(", "))
            }
            Self::NoByte(byte) => write!(f, "the vocabulary has no token for the byte 0x{byte:02x}"),
            Self::Text(why) => write!(f, "the text cannot be cut into words: {why}"),
        }
    }
}

impl std::error::Error for TokenizerError {}

const MODEL: &str = "tokenizer.ggml.model";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";
const PRE: &str = "tokenizer.ggml.pre";
const BOS: &str = "tokenizer.ggml.bos_token_id";
const EOS: &str = "tokenizer.ggml.eos_token_id";

/// The kinds of tokenizers, as `tokenizer.ggml.model` names them.
const KINDS: [&str; 5] = ["gpt2", "llama", "bert", "t5", words::GEMMA4];

/// Marks after which models say nothing more, beside those that the metadata name.
const ENDS: [&str; 9] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "</s>",
];

/// The values of a file's metadata, by key.
type Metadata<'m, 'a> = &'m dyn Fn(&str) -> Option<Value<'a>>;

/// The tokenizer of a GGUF file.
pub struct Tokenizer<'a> {
    vocabulary: Vocabulary<'a>,
    /// Tokens that are found in text before anything else, the longest first.
    special: Vec<u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    family: Family<'a>,
}

enum Family<'a> {
    Bpe(bpe::Bpe<'a>),
    Spm(spm::Spm),
    Wpm(Box<wpm::Wpm>),
    Ugm(ugm::Ugm<'a>),
}

/// The tokens.
struct Vocabulary<'a> {
    text: Vec<&'a str>,
    kind: Vec<TokenKind>,
    ids: HashMap<&'a str, u32>,
}

impl Vocabulary<'_> {
    fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }
}

impl<'a> Tokenizer<'a> {
    /// The tokenizer that a file's metadata describe; `metadata` yields the value of a key.
    ///
    /// # Errors
    /// [`TokenizerError`] if there is none, or not one of a known kind.
    pub fn new(metadata: impl Fn(&str) -> Option<Value<'a>>) -> Result<Self, TokenizerError> {
        let file: Metadata<'_, 'a> = &metadata;
        let model = string(file, MODEL)?;
        let unknown =
            || TokenizerError::Unknown { key: MODEL, name: model.to_owned(), known: KINDS.to_vec() };
        // Other tokenizers may not have what follows.
        if !KINDS.contains(&model) {
            return Err(unknown());
        }
        let text: Vec<&str> = array(file, TOKENS, ValueType::String, "a list of strings")?
            .iter()
            .filter_map(|v| v.as_str())
            .collect();
        let kind = match file(TYPES) {
            None => vec![TokenKind::Normal; text.len()],
            Some(_) => same_length(TYPES, text.len(), integers(file, TYPES)?.map(kind_of).collect())?,
        };
        let mut ids = HashMap::with_capacity(text.len());
        for (id, &text) in text.iter().enumerate() {
            // Of equal texts llama.cpp takes the last.
            ids.insert(text, id as u32);
        }
        let vocabulary = Vocabulary { text, kind, ids };
        let mut special: Vec<u32> = (0..vocabulary.text.len() as u32)
            .filter(|&id| {
                let text = vocabulary.text[id as usize];
                !text.is_empty()
                    && matches!(vocabulary.kind[id as usize], TokenKind::Control | TokenKind::UserDefined)
            })
            .collect();
        special.sort_by_key(|&id| std::cmp::Reverse(vocabulary.text[id as usize].len()));

        let (family, adds_bos) = match model {
            "gpt2" | words::GEMMA4 => {
                let (bpe, adds_bos) = bpe::Bpe::new(file, model)?;
                (Family::Bpe(bpe), adds_bos)
            }
            "llama" => (Family::Spm(spm::Spm::new(file, vocabulary.text.len())?), true),
            "bert" => (Family::Wpm(Box::new(wpm::Wpm::new(file, vocabulary.text.len())?)), true),
            "t5" => (Family::Ugm(ugm::Ugm::new(file, &vocabulary)?), false),
            _ => return Err(unknown()),
        };
        // The first files of Gemma 4 say that there is none.
        let adds_bos = flag(file, "tokenizer.ggml.add_bos_token", adds_bos)? || model == words::GEMMA4;
        let adds_eos = flag(file, "tokenizer.ggml.add_eos_token", false)?;
        let bos = token(file, BOS, vocabulary.text.len())?.filter(|_| adds_bos);
        let eos = token(file, EOS, vocabulary.text.len())?.filter(|_| adds_eos);
        let (bos, eos) = match &family {
            // Such texts have both marks, and files have names of their own for them.
            Family::Wpm(wpm) => (Some(wpm.marks[0]), Some(wpm.marks[1])),
            _ => (bos, eos),
        };
        Ok(Self { vocabulary, special, bos, eos, family })
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.vocabulary.text.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tokens of `text`, with the marks at its beginning and end that the model asks for. Marks that are spelled out in
    /// the text, such as `<|im_start|>`, become the tokens that they name.
    ///
    /// # Errors
    /// [`TokenizerError::NoByte`] and [`TokenizerError::Text`].
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let text = self.encode_bare(text)?;
        Ok(self.bos.into_iter().chain(text).chain(self.eos).collect())
    }

    /// The same, without marks at the beginning and the end.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn encode_bare(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut out = Vec::with_capacity(text.len() / 3);
        let mut after_special = true;
        for part in self.parts(text) {
            match part {
                Part::Special(id) => out.push(id),
                Part::Text(text) => match &self.family {
                    Family::Bpe(bpe) => bpe.encode(&self.vocabulary, text, &mut out)?,
                    Family::Spm(spm) => spm.encode(&self.vocabulary, text, after_special, &mut out)?,
                    Family::Wpm(wpm) => wpm.encode(&self.vocabulary, text, &mut out)?,
                    Family::Ugm(ugm) => ugm.encode(text, &mut out),
                },
            }
            after_special = matches!(part, Part::Special(_));
        }
        Ok(out)
    }

    /// The token that is written like this in the vocabulary.
    pub fn id(&self, text: &str) -> Option<u32> {
        self.vocabulary.id(text)
    }

    /// How `token` is written in the vocabulary; empty for ids that do not exist.
    pub fn text(&self, token: u32) -> &'a str {
        self.vocabulary.text.get(token as usize).copied().unwrap_or("")
    }

    /// The bytes that `token` stands for: none for marks and for ids that do not exist. A character may be spread over several
    /// tokens.
    pub fn bytes(&self, token: u32) -> Vec<u8> {
        let at = token as usize;
        let (Some(&text), Some(&kind)) = (self.vocabulary.text.get(at), self.vocabulary.kind.get(at)) else {
            return Vec::new();
        };
        match kind {
            TokenKind::Control => Vec::new(),
            TokenKind::UserDefined => text.as_bytes().to_vec(),
            TokenKind::Byte => byte_of(text).into_iter().collect(),
            TokenKind::Normal => match &self.family {
                Family::Bpe(bpe) if !bpe.plain => bpe::bytes(text),
                _ => spm::bytes(text),
            },
        }
    }

    /// Tokens after which a model has said everything, as far as their texts tell.
    pub fn ends(&self) -> Vec<u32> {
        let ids = ENDS.iter().filter_map(|text| self.vocabulary.id(text));
        ids.filter(|&id| self.vocabulary.kind[id as usize] == TokenKind::Control).collect()
    }

    /// Cuts marks out of a text: everywhere the longest one first, then the next one in what is left.
    fn parts<'t>(&self, text: &'t str) -> Vec<Part<'t>> {
        let mut parts = if text.is_empty() { Vec::new() } else { vec![Part::Text(text)] };
        for &id in &self.special {
            let mark = self.vocabulary.text[id as usize];
            if !text.contains(mark) {
                continue;
            }
            let mut next = Vec::with_capacity(parts.len() + 2);
            for part in parts {
                let Part::Text(mut rest) = part else {
                    next.push(part);
                    continue;
                };
                while let Some((before, after)) = rest.split_once(mark) {
                    if !before.is_empty() {
                        next.push(Part::Text(before));
                    }
                    next.push(Part::Special(id));
                    rest = after;
                }
                if !rest.is_empty() {
                    next.push(Part::Text(rest));
                }
            }
            parts = next;
        }
        parts
    }
}

/// A part of a text.
enum Part<'t> {
    Text(&'t str),
    Special(u32),
}

/// Token bytes as they arrive, whole characters as they leave.
#[derive(Debug, Default)]
pub struct TextStream(Vec<u8>);

impl TextStream {
    /// Adds a token's bytes and returns the characters that are complete. Bytes that are not UTF-8 become U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.0.extend_from_slice(bytes);
        let mut out = String::new();
        loop {
            match std::str::from_utf8(&self.0) {
                Ok(text) => {
                    out.push_str(text);
                    self.0.clear();
                    return out;
                }
                Err(e) => {
                    let valid = e.valid_up_to();
                    out.push_str(&String::from_utf8_lossy(&self.0[..valid]));
                    let Some(bad) = e.error_len() else {
                        self.0.drain(..valid);
                        return out;
                    };
                    out.push('\u{fffd}');
                    self.0.drain(..valid + bad);
                }
            }
        }
    }

    /// What is left: a character that never became complete is U+FFFD.
    pub fn finish(self) -> &'static str {
        if self.0.is_empty() {
            ""
        } else {
            "\u{fffd}"
        }
    }
}

/// The byte that a text such as `<0x0A>` names.
fn byte_of(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(hex, 16).ok().filter(|_| hex.len() == 2)
}

fn kind_of(number: i64) -> TokenKind {
    match number {
        // 2 is the token for what is unknown: a mark, too.
        2 | 3 => TokenKind::Control,
        4 => TokenKind::UserDefined,
        6 => TokenKind::Byte,
        _ => TokenKind::Normal,
    }
}

fn string<'a>(file: Metadata<'_, 'a>, key: &'static str) -> Result<&'a str, TokenizerError> {
    file(key).and_then(|v| v.as_str()).ok_or(TokenizerError::Metadata { key, expected: "a string" })
}

fn not_cut(error: fancy_regex::Error) -> TokenizerError {
    TokenizerError::Text(error.to_string())
}

fn flag(file: Metadata<'_, '_>, key: &'static str, default: bool) -> Result<bool, TokenizerError> {
    match file(key) {
        None => Ok(default),
        Some(v) => v.as_bool().ok_or(TokenizerError::Metadata { key, expected: "true or false" }),
    }
}

fn token(file: Metadata<'_, '_>, key: &'static str, tokens: usize) -> Result<Option<u32>, TokenizerError> {
    let Some(value) = file(key) else { return Ok(None) };
    let id = value.as_u64().ok_or(TokenizerError::Metadata { key, expected: "a token id" })?;
    match u32::try_from(id) {
        Ok(small) if (small as usize) < tokens => Ok(Some(small)),
        _ => Err(TokenizerError::NoSuchToken { key, id, tokens }),
    }
}

fn array<'a>(
    file: Metadata<'_, 'a>,
    key: &'static str,
    of: ValueType,
    expected: &'static str,
) -> Result<Array<'a>, TokenizerError> {
    let array = file(key).and_then(|v| v.as_array()).filter(|a| a.element_type() == of);
    array.ok_or(TokenizerError::Metadata { key, expected })
}

fn integers<'a>(
    file: Metadata<'_, 'a>,
    key: &'static str,
) -> Result<impl Iterator<Item = i64> + use<'a>, TokenizerError> {
    let expected = "a list of integers";
    let array = file(key).and_then(|v| v.as_array()).ok_or(TokenizerError::Metadata { key, expected })?;
    match array.element_type() {
        ValueType::I32 | ValueType::U32 => Ok(array.iter().map(|v: Value<'_>| v.as_i64().unwrap_or(0))),
        _ => Err(TokenizerError::Metadata { key, expected }),
    }
}

fn same_length<T>(key: &'static str, tokens: usize, list: Vec<T>) -> Result<Vec<T>, TokenizerError> {
    if list.len() == tokens {
        Ok(list)
    } else {
        Err(TokenizerError::Lengths { key, got: list.len(), tokens })
    }
}
