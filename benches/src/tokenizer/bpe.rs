//! Byte-level BPE: a regular expression cuts text into words; in each, written with a printable character for every byte, the pair
//! of neighbours that comes first in the list of merges is merged first. Gemma 4 has such merges of text as it is, with a mark for each space, and without words.

use std::cmp::Reverse;
use std::collections::HashMap;

use fancy_regex::Regex;
use gllm_kernels_std::gguf::ValueType;

use super::merge::merge;
use super::spm::{marked, spell};
use super::words::{GEMMA4, LINES, RULES};
use super::{array, not_cut, string, Metadata, TokenizerError, Vocabulary, MERGES, PRE};

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
