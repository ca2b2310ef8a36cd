//! WordPiece, as BERT has it: text is cleaned and cut into words, and each word into the longest tokens, from left to right.
//!
//! What counts is what the models were trained with, Hugging Face's `BertNormalizer` and `BertPreTokenizer`. llama.cpp does the same but for a few
//! characters: of those that decompose it keeps the first part alone, which loses vowels of Korean; it removes marks of all kinds instead of those
//! without a width; it takes vertical tabs and form feeds for spaces, and cuts words of any length.

use fancy_regex::Regex;
use unicode_normalization::UnicodeNormalization;

use super::{flag, not_cut, token, Metadata, TokenizerError, Vocabulary, BOS};

/// Stands before the first token of a word in vocabularies; those that continue one have nothing in its place.
const WORD: char = '\u{2581}';

/// Words with more characters are not cut.
const LONGEST_WORD: usize = 100;

/// What is a word by itself: marks of punctuation, ASCII symbols, and Chinese characters.
const ALONE: &str = concat!(
    r"\p{P}$+<=>^`|~\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{20000}-\x{2a6df}\x{2a700}-\x{2b73f}\x{2b740}-\x{2b81f}",
    r"\x{2b920}-\x{2ceaf}\x{f900}-\x{faff}\x{2f800}-\x{2fa1f}"
);

pub(super) struct Wpm {
    words: Regex,
    /// What is removed first: what controls, has no meaning, or could not be read.
    controls: Regex,
    /// Accents, once characters are decomposed.
    accents: Regex,
    lowercase: bool,
    strips_accents: bool,
    unknown: u32,
    /// What stands at the beginning and at the end of a text.
    pub(super) marks: [u32; 2],
}

impl Wpm {
    pub(super) fn new(file: Metadata<'_, '_>, tokens: usize) -> Result<Self, TokenizerError> {
        // Older files have BERT's own tokens, and do not number them.
        let mark = |keys: &[&'static str], own: u32| {
            for &key in keys {
                if let Some(id) = token(file, key, tokens)? {
                    return Ok(id);
                }
            }
            match (own as usize) < tokens {
                true => Ok(own),
                false => Err(TokenizerError::NoSuchToken { key: keys[0], id: own.into(), tokens }),
            }
        };
        let regex = |rule: &str| Regex::new(rule).map_err(not_cut);
        let lowercase = flag(file, "tokenizer.ggml.normalizer.lowercase", true)?;
        Ok(Self {
            words: regex(&format!(r"[{ALONE}]|[^\s{ALONE}]+"))?,
            controls: regex(r"[\p{C}\x{fffd}&&[^\t\n\r]]")?,
            accents: regex(r"\p{Mn}")?,
            lowercase,
            strips_accents: flag(file, "tokenizer.ggml.normalizer.strip_accents", lowercase)?,
            unknown: mark(&["tokenizer.ggml.unknown_token_id"], 100)?,
            marks: [
                mark(&[BOS, "tokenizer.ggml.cls_token_id"], 101)?,
                mark(&["tokenizer.ggml.seperator_token_id", "tokenizer.ggml.eos_token_id"], 102)?,
            ],
        })
    }

    /// The text as the vocabulary has it: without controls, accents and capitals.
    fn clean(&self, text: &str) -> String {
        let mut text = self.controls.replace_all(text, "").into_owned();
        if self.strips_accents {
            let parts: String = text.nfd().collect();
            text = self.accents.replace_all(&parts, "").into_owned();
        }
        if self.lowercase {
            // Character by character: the form of a sigma does not depend on its place.
            text = text.chars().flat_map(char::to_lowercase).collect();
        }
        text
    }

    pub(super) fn encode(
        &self,
        vocabulary: &Vocabulary<'_>,
        text: &str,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let text = self.clean(text);
        for word in self.words.find_iter(&text) {
            let word = word.map_err(not_cut)?.as_str();
            let start = out.len();
            if word.chars().count() > LONGEST_WORD || !cut(vocabulary, word, out) {
                out.truncate(start);
                out.push(self.unknown);
            }
        }
        Ok(())
    }
}

/// Cuts a word into tokens, and says whether it can be.
fn cut(vocabulary: &Vocabulary<'_>, word: &str, out: &mut Vec<u32>) -> bool {
    let word = format!("{WORD}{word}");
    let mut rest = &word[..];
    while !rest.is_empty() {
        let ends = rest.char_indices().map(|(at, c)| at + c.len_utf8()).rev();
        let longest = ends.filter_map(|end| Some((vocabulary.id(&rest[..end])?, end))).next();
        let Some((id, end)) = longest else { return false };
        out.push(id);
        rest = &rest[end..];
    }
    true
}
