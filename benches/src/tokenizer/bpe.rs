//! Byte-level BPE: a regular expression cuts text into words; in each, written with a printable character for every byte, the pair
//! of neighbours that comes first in the list of merges is merged first. Gemma 4 has such merges of text as it is, with a mark for each space, and without words.

use std::cmp::Reverse;
use std::collections::HashMap;

use fancy_regex::Regex;
use gllm_kernels_std::gguf::ValueType;

use super::merge::merge;
use super::spm::{marked, spell};
use super::{array, not_cut, string, Metadata, TokenizerError, Vocabulary, MERGES, PRE};

/// How a family of models cuts text into words.
struct Rule {
    /// Names in `tokenizer.ggml.pre`.
    names: &'static [&'static str],
    /// Applied one after the other: each cuts what the one before has left into its matches and what lies between them.
    words: &'static [&'static str],
    /// Whether a word that is a token is not cut any further, whatever the merges say.
    whole_words: bool,
    /// Whether text begins with a mark unless the metadata say otherwise.
    adds_bos: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
/// `$digits` belong together, and so do `$letters`, and `$others`, which are neither of these.
macro_rules! tiktoken {
    ($digits:literal) => {
        tiktoken!($digits, r" ?[^\s\p{L}\p{N}]+[\r\n]*")
    };
    ($digits:literal, $others:literal) => {
        tiktoken!(r"\p{L}+", $digits, $others)
    };
    ($letters:literal, $digits:literal, $others:literal) => {
        concat!(
            r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?",
            $letters,
            "|",
            $digits,
            "|",
            $others,
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}

/// What texts are cut into where a word is capitals and small letters, in this order: `$contracted` may follow a word and belongs to it, and
/// `$digits` belong together.
macro_rules! capitals_then_small {
    ($contracted:literal, $digits:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $contracted,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $contracted,
            "|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
}
const O200K: &str = capitals_then_small!("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}");
const TEKKEN: &str = capitals_then_small!("", r"\p{N}");

const RULES: &[Rule] = &[
    Rule {
        names: &["default"],
        words: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        whole_words: false,
        adds_bos: false,
    },
    Rule {
        names: &["gpt-2", "mpt", "olmo", "phi-2", "mellum", "trillion"],
        words: &[GPT2],
        whole_words: false,
        adds_bos: false,
    },
    Rule {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        words: &[r"\p{N}", GPT2],
        whole_words: false,
        adds_bos: false,
    },
    Rule {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0", "lfm2"],
        words: &[tiktoken!(r"\p{N}{1,3}")],
        whole_words: true,
        adds_bos: true,
    },
    Rule {
        names: &["dbrx", "smaug-bpe", "chatglm-bpe"],
        words: &[tiktoken!(r"\p{N}{1,3}")],
        whole_words: false,
        adds_bos: false,
    },
    Rule { names: &["glm4"], words: &[tiktoken!(r"\p{N}{1,3}")], whole_words: true, adds_bos: false },
    Rule {
        names: &["seed-coder"],
        words: &[tiktoken!(r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+")],
        whole_words: false,
        adds_bos: false,
    },
    Rule {
        // Ling's and Ring's have `\s*[\r\n]` at the end, which takes the same.
        names: &[
            "qwen2",
            "deepseek-r1-qwen",
            "stablelm2",
            "kormo",
            "megrez",
            "bailingmoe",
            "bailingmoe2",
            "hunyuan",
        ],
        words: &[tiktoken!(r"\p{N}")],
        whole_words: false,
        adds_bos: false,
    },
    // Marks belong to letters.
    Rule {
        names: &["qwen35"],
        words: &[tiktoken!(r"[\p{L}\p{M}]+", r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*")],
        whole_words: false,
        adds_bos: false,
    },
    Rule { names: &["gpt-4o", "llama4", "minimax-m2"], words: &[O200K], whole_words: false, adds_bos: false },
    // Mistral's vocabulary from NeMo on.
    Rule { names: &["tekken"], words: &[TEKKEN], whole_words: true, adds_bos: true },
    Rule {
        names: &["deepseek-v3"],
        words: &[
            r"\p{N}{1,3}",
            "[\u{4e00}-\u{9fa5}\u{3040}-\u{30ff}]+",
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
        ],
        whole_words: false,
        adds_bos: false,
    },
    Rule {
        names: &["deepseek-coder"],
        words: &[
            "[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            "[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+",
            r"\p{N}",
        ],
        whole_words: false,
        adds_bos: false,
    },
];

/// What texts of Gemma 4 are cut into: lines and the ends between them.
const LINES: Rule = Rule { names: &[GEMMA4], words: &[r"\n+"], whole_words: false, adds_bos: true };
/// The kind of tokenizer, and the rule by which it cuts text.
pub(super) const GEMMA4: &str = "gemma4";

pub(super) struct Bpe<'a> {
    /// Whether text stays as it is, with a mark for each space. Then tokens of bytes are written as numbers.
    pub(super) plain: bool,
    words: Vec<Regex>,
    whole_words: bool,
    /// Positions in the list of merges.
    ranks: HashMap<(&'a str, &'a str), usize>,
}

impl<'a> Bpe<'a> {
    /// The second result says whether text begins with a mark unless the metadata say otherwise.
    pub(super) fn new(file: Metadata<'_, 'a>, model: &str) -> Result<(Self, bool), TokenizerError> {
        let plain = model == GEMMA4;
        let name = match (plain, file(PRE)) {
            (true, _) => GEMMA4,
            (false, Some(_)) => string(file, PRE)?,
            (false, None) => "default",
        };
        let known = || RULES.iter().chain(plain.then_some(&LINES));
        let Some(rule) = known().find(|rule| rule.names.contains(&name)) else {
            let known = known().flat_map(|rule| rule.names).copied().collect();
            return Err(TokenizerError::Unknown { key: PRE, name: name.to_owned(), known });
        };
        let merges = array(file, MERGES, ValueType::String, "a list of strings")?;
        let mut ranks = HashMap::with_capacity(merges.len());
        for (rank, merge) in merges.iter().enumerate() {
            let pair = merge.as_str().and_then(|pair| {
                // The left one has at least a character; no character in a vocabulary is a space.
                let space = pair.char_indices().skip(1).find(|&(_, c)| c == ' ')?.0;
                Some((&pair[..space], &pair[space + 1..]))
            });
            let pair = pair.ok_or(TokenizerError::Metadata {
                key: MERGES,
                expected: "a list of pairs with a space between them",
            })?;
            ranks.entry(pair).or_insert(rank);
        }
        let words =
            rule.words.iter().map(|word| Regex::new(word).map_err(not_cut)).collect::<Result<_, _>>()?;
        Ok((Self { plain, words, whole_words: rule.whole_words, ranks }, rule.adds_bos))
    }

    pub(super) fn encode(
        &self,
        vocabulary: &Vocabulary<'_>,
        text: &str,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut missing = None;
        for word in self.words(text)? {
            let word = if self.plain { marked(word.chars()) } else { word.bytes().map(char_of).collect() };
            // Several ends of lines may be one token that nothing is merged to.
            let whole = self.whole_words || self.plain && word.starts_with('\n');
            if let Some(id) = vocabulary.id(&word).filter(|_| whole) {
                out.push(id);
                continue;
            }
            let priority = |pair: &str, len| self.ranks.get(&pair.split_at(len)).map(|&rank| Reverse(rank));
            merge(&word, priority, |piece| match vocabulary.id(piece) {
                Some(id) => out.push(id),
                None if self.plain => missing = spell(vocabulary, piece, out).or(missing),
                // As in llama.cpp, a character that is no token is left out.
                None => out.extend(piece.chars().filter_map(|c| vocabulary.id(c.encode_utf8(&mut [0; 4])))),
            });
        }
        missing.map_or(Ok(()), |byte| Err(TokenizerError::NoByte(byte)))
    }

    /// The words of a text.
    fn words<'t>(&self, whole: &'t str) -> Result<Vec<&'t str>, TokenizerError> {
        let mut words = vec![whole];
        for rule in &self.words {
            let mut next = Vec::with_capacity(2 * words.len());
            for word in words {
                let mut from = 0;
                for found in rule.find_iter(word) {
                    let found = found.map_err(not_cut)?;
                    next.extend(
                        [&word[from..found.start()], found.as_str()].into_iter().filter(|w| !w.is_empty()),
                    );
                    from = found.end();
                }
                next.extend(Some(&word[from..]).filter(|w| !w.is_empty()));
            }
            words = next;
        }
        Ok(words)
    }
}

/// Whether a byte stands for itself: the printable characters of Latin-1 but the soft hyphen.
fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The character that a byte is written as: itself, if it is printable; the others are numbered from U+0100.
pub(super) fn char_of(byte: u8) -> char {
    if is_printable(byte) {
        byte as char
    } else {
        let before = (0..byte).filter(|&b| !is_printable(b)).count() as u32;
        char::from_u32(0x100 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
    }
}

/// What a token stands for. Characters that stand for no byte are themselves.
pub(super) fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte_of(c) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}

/// The inverse of [`char_of`].
fn byte_of(c: char) -> Option<u8> {
    match u8::try_from(c as u32) {
        Ok(byte) => Some(byte).filter(|&b| is_printable(b)),
        Err(_) => {
            let number = (c as u32).checked_sub(0x100)? as usize;
            (0..=u8::MAX).filter(|&b| !is_printable(b)).nth(number)
        }
    }
}
