//! WordPiece: small vocabularies, and what Hugging Face's `tokenizers` makes of texts with them (`tests/data/wordpiece.json`).

use gllm_kernels_std::gguf::{Gguf, Value, ValueType, Writer};

use super::tests::{file, strings};
use super::*;

const VECTORS: &str = include_str!("../../tests/data/wordpiece.json");
const MIXED: &str = include_str!("../../tests/data/mixed.txt");

/// A GGUF file with these tokens, written as `vocab.txt` has them; those in brackets are marks.
fn words(name: &str, tokens: &[&str], more: impl FnOnce(&mut Writer)) -> Gguf<'static> {
    let is_mark = |token: &str| token.starts_with('[') && token.ends_with(']') && token.len() > 2;
    let own: Vec<String> = tokens
        .iter()
        .map(|token| match token.strip_prefix("##") {
            Some(rest) => rest.to_owned(),
            None if is_mark(token) => (*token).to_owned(),
            None => format!("\u{2581}{token}"),
        })
        .collect();
    file(name, |w| {
        w.set(MODEL, Value::String("bert")).unwrap();
        strings(w, TOKENS, &own.iter().map(|t| &**t).collect::<Vec<_>>());
        let kinds = tokens.iter().map(|t| Value::I32(if is_mark(t) { 3 } else { 1 }));
        w.set_array(TYPES, ValueType::I32, kinds).unwrap();
        for (key, id) in [("unknown", 1), ("cls", 2), ("seperator", 3)] {
            w.set(&format!("tokenizer.ggml.{key}_token_id"), Value::U32(id)).unwrap();
        }
        more(w);
    })
}

/// Characters of a word that is cut.
const LONGEST: usize = 100;

const FEW: [&str; 14] = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", "una", "##ff", "!", "a", "##a",
    "straße",
];

#[test]
fn the_longest_tokens_are_taken() {
    let file = words("longest", &FEW, |_| ());
    let tokenizer = Tokenizer::new(|key| file.get(key)).unwrap();
    let bare = |text: &str| tokenizer.encode_bare(text).unwrap();
    // Greedily: `una`, `ff`, `able`, and not `un`, `aff`, `able`.
    assert_eq!(bare("unaffable"), [8, 9, 7]);
    assert_eq!(tokenizer.encode("UNAFFABLE!").unwrap(), [2, 8, 9, 7, 10, 3]);
    // A word of which a part is not known is unknown as a whole.
    assert_eq!(bare("unaffablex a"), [1, 11]);
    assert_eq!(bare("a[MASK]a"), [11, 4, 11]);
    assert_eq!(bare("á\u{301} Å  \t\n"), [11, 11]);
    let long = "a".repeat(LONGEST);
    assert_eq!(bare(&long).len(), LONGEST);
    assert_eq!(bare(&format!("{long}a")), [1]);
    assert_eq!(tokenizer.encode("").unwrap(), [2, 3]);
    let text: Vec<u8> = bare("a unaffable!").into_iter().flat_map(|id| tokenizer.bytes(id)).collect();
    assert_eq!(String::from_utf8(text).unwrap(), " a unaffable !");
}

#[test]
fn vocabularies_may_have_capitals() {
    let file = words("capitals", &FEW, |w| {
        w.set("tokenizer.ggml.normalizer.lowercase", Value::Bool(false)).unwrap()
    });
    let tokenizer = Tokenizer::new(|key| file.get(key)).unwrap();
    assert_eq!(tokenizer.encode_bare("A a á straße").unwrap(), [1, 11, 1, 13]);
}

/// Files that do not number the marks mean those of BERT.
#[test]
fn marks_have_numbers() {
    let many: Vec<String> = (0..103).map(|i| format!("word{i}")).collect();
    let many: Vec<&str> = many.iter().map(|w| &**w).collect();
    let with = |name: &str, tokens: &[&str]| {
        file(name, |w| {
            w.set(MODEL, Value::String("bert")).unwrap();
            strings(w, TOKENS, tokens);
        })
    };
    let file = with("numbers", &many);
    assert_eq!(Tokenizer::new(|key| file.get(key)).unwrap().encode("x").unwrap(), [101, 100, 102]);
    let file = with("few", &many[..102]);
    let refused = Tokenizer::new(|key| file.get(key)).err();
    let key = "tokenizer.ggml.seperator_token_id";
    assert_eq!(refused, Some(TokenizerError::NoSuchToken { key, id: 102, tokens: 102 }));
}

#[test]
fn tokens_are_those_of_tokenizers() {
    let all: serde_json::Value = serde_json::from_str(VECTORS).unwrap();
    for (name, lowercase) in [("uncased", true), ("cased", false)] {
        let of = &all[name];
        let tokens: Vec<&str> =
            of["tokens"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
        let file = words(name, &tokens, |w| {
            w.set("tokenizer.ggml.normalizer.lowercase", Value::Bool(lowercase)).unwrap();
        });
        let tokenizer = Tokenizer::new(|key| file.get(key)).unwrap();
        for case in of["texts"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap_or(MIXED);
            let want: Vec<u64> =
                case["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
            let got = tokenizer.encode(text).unwrap();
            let show = |ids: &mut dyn Iterator<Item = u32>| {
                ids.map(|id| tokenizer.text(id).to_owned()).collect::<Vec<_>>()
            };
            let want = show(&mut want.into_iter().map(|id| id as u32));
            assert_eq!(show(&mut got.iter().copied()), want, "{name}: {text:?}");
        }
    }
}
