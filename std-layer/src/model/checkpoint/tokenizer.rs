//! A checkpoint's `tokenizer.json` as the metadata of a tokenizer that GGUF files have.
//!
//! WordPiece, unigram models and both kinds of byte pair encoding are translated: over bytes (GPT-2, Llama 3, Qwen, Mistral from NeMo on), and over characters with bytes as a fallback, which SentencePiece
//! makes (Llama 2, Mistral, Gemma). What is not known is passed on by its name, so that a model without a tokenizer can be used, and whoever
//! needs the tokenizer is told what is not supported.

use std::collections::HashMap;

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use serde_json::Value as Json;

use crate::gguf::{Value, ValueType, Writer};

/// Most tokens that a vocabulary may have.
const MOST: usize = 1 << 22;

/// `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

const CONTRACTIONS: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|";
const LETTERS: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|";
const REST: &str = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Marks belong to letters.
const LETTERS_AND_MARKS: &str = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|";
const REST_WITHOUT_MARKS: &str = r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Ends of lines are words of their own.
const REST_OF_LINES: &str = r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Words are capitals and small letters, in this order.
const WORD: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+";
const CAPITALS: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*";
const CONTRACTED: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
const REST_WITH_SLASHES: &str = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK_CODER: [&str; 4] =
    ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+"];

const DEEPSEEK_V3: [&str; 3] = [
    r"\p{N}{1,3}",
    "[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];
/// Of Jais 2: as many spaces as a power of two are a word.
const REST_BY_POWERS: &str = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
/// Of Ling and Ring.
const BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";

/// K-EXAONE's, behind contractions.
const EXAONE_MOE: &str = r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";

/// The objects of a part of a pipeline: itself, or those that a sequence lists under `list`.
fn parts<'j>(of: &'j Json, list: &str) -> Vec<&'j Json> {
    match of.get(list).and_then(Json::as_array) {
        Some(all) => all.iter().collect(),
        None => vec![of],
    }
}

fn is(of: &Json, kind: &str) -> bool {
    of.get("type").and_then(Json::as_str) == Some(kind)
}

fn flag(of: &Json, key: &str) -> bool {
    of.get(key).and_then(Json::as_bool) == Some(true)
}

/// The name in `tokenizer.ggml.pre` of how text over bytes is cut into words, or the regular expression if it has none.
fn rule(file: &Json, whole_words: bool) -> String {
    let steps = parts(&file["pre_tokenizer"], "pretokenizers");
    let expressions = steps.iter().filter(|step| is(step, "Split"));
    let expressions: Vec<&str> = expressions
        .map(|step| match (step["pattern"]["Regex"].as_str(), flag(step, "invert"), &step["behavior"]) {
            (Some(expression), false, behavior) if behavior == "Isolated" => expression,
            (Some(_), true, _) => "an inverted expression",
            (Some(_), ..) => "an expression whose matches are not words",
            _ => "a separator",
        })
        .collect();
    let digits = steps.iter().any(|step| is(step, "Digits") && flag(step, "individual_digits"));
    let gpt2 = steps.iter().any(|step| is(step, "ByteLevel") && step["use_regex"] != Json::Bool(false));
    let tiktoken = |digits: &str| [CONTRACTIONS, LETTERS, digits, REST].concat();
    let qwen35 = [CONTRACTIONS, LETTERS_AND_MARKS, r"\p{N}", REST_WITHOUT_MARKS].concat();
    let jais2 = [CONTRACTIONS, LETTERS, r"\p{N}{1,3}", REST_BY_POWERS].concat();
    let seed = [CONTRACTIONS, LETTERS, r"\p{N}{1}", REST_OF_LINES].concat();
    let exaone = [CONTRACTIONS, EXAONE_MOE].concat();
    let capitals = |contracted: &str, digits: &str| {
        [WORD, contracted, "|", CAPITALS, contracted, "|", digits, REST_WITH_SLASHES].concat()
    };
    match (&expressions[..], digits, gpt2, whole_words) {
        ([], true, true, false) => "smollm".to_owned(),
        ([], false, true, false) => "gpt-2".to_owned(),
        ([one], false, false, true) if *one == tiktoken(r"\p{N}{1,3}") => "llama-bpe".to_owned(),
        ([one], false, false, false) if *one == tiktoken(r"\p{N}{1,3}") => "dbrx".to_owned(),
        ([one], false, false, false) if *one == tiktoken(r"\p{N}") => "qwen2".to_owned(),
        ([one], false, false, false) if *one == qwen35 => "qwen35".to_owned(),
        ([one], false, false, false) if *one == jais2 => "jais-2".to_owned(),
        ([one], false, false, false) if *one == seed => "seed-coder".to_owned(),
        ([one], false, false, false) if *one == capitals(CONTRACTED, r"\p{N}{1,3}") => "gpt-4o".to_owned(),
        ([one], false, false, true) if *one == capitals("", r"\p{N}") => "tekken".to_owned(),
        (all, true, false, false) if *all == DEEPSEEK_CODER => "deepseek-coder".to_owned(),
        (all, false, false, false) if *all == DEEPSEEK_V3 => "deepseek-v3".to_owned(),
        ([one], false, false, false) if *one == BAILING => "bailingmoe2".to_owned(),
        ([one], false, false, false) if *one == exaone => "exaone-moe".to_owned(),
        _ => {
            let digits = if digits { "one digit, " } else { "" };
            let gpt2 = if gpt2 { "GPT-2's words, " } else { "" };
            let whole = if whole_words { "whole words, " } else { "" };
            format!("{digits}{gpt2}{whole}{}", expressions.join(", "))
        }
    }
}

/// A pair of symbols that are merged: a list of two, or a text with a space between them.
fn pair(merge: &Json) -> Option<(&str, &str)> {
    match merge.as_array() {
        Some(both) => Some((both.first()?.as_str()?, both.get(1).filter(|_| both.len() == 2)?.as_str()?)),
        None => merge.as_str()?.split_once(' '),
    }
}

/// Texts and kinds of tokens by their ids, of those below `limit`: later ones do not belong to the model.
fn vocabulary(file: &Json, limit: Option<usize>) -> Result<(Vec<String>, Vec<Kind>), String> {
    let all = file["model"]["vocab"].as_object().ok_or("model.vocab is no object")?;
    let unknown = file["model"]["unk_token"].as_str();
    let mut tokens: Vec<(u64, &str, Kind)> = Vec::with_capacity(all.len());
    for (text, id) in all {
        let id = id.as_u64().ok_or_else(|| format!("the id of the token {text:?} is {id}"))?;
        let is_byte = text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
        let kind = match (Some(&**text) == unknown, is_byte) {
            (true, _) => Kind::Unknown,
            (false, true) => Kind::Byte,
            (false, false) => Kind::Normal,
        };
        tokens.push((id, text, kind));
    }
    for added in file["added_tokens"].as_array().map_or(&[][..], |all| all) {
        let (id, text) = (added["id"].as_u64(), added["content"].as_str());
        let (Some(id), Some(text)) = (id, text) else {
            return Err(format!(
                "an added token has the id {} and the content {}",
                added["id"], added["content"]
            ));
        };
        let kind = if flag(added, "special") { Kind::Control } else { Kind::UserDefined };
        tokens.push((id, text, if Some(text) == unknown { Kind::Unknown } else { kind }));
    }
    let limit = limit.unwrap_or(tokens.len()).min(MOST) as u64;
    tokens.retain(|&(id, ..)| id < limit);
    let len = tokens.iter().map(|&(id, ..)| id as usize + 1).max().unwrap_or(0);
    // Ids without a token have texts that nobody writes.
    let mut texts: Vec<String> = (0..len).map(|id| format!("[PAD{id}]")).collect();
    let mut kinds = vec![Kind::Unused; len];
    for (id, text, kind) in tokens {
        text.clone_into(&mut texts[id as usize]);
        kinds[id as usize] = kind;
    }
    Ok((texts, kinds))
}

/// A token's score is minus the place of the first pair that becomes it: SentencePiece merges the pair whose token has the highest score. No
/// pair becomes the others.
fn scores(tokens: &[String], merges: &[(&str, &str)]) -> Vec<f32> {
    let mut first: HashMap<String, usize> = HashMap::with_capacity(merges.len());
    for (place, (left, right)) in merges.iter().enumerate() {
        first.entry(format!("{left}{right}")).or_insert(place);
    }
    let place = |text: &String| first.get(text).copied().unwrap_or(merges.len());
    tokens.iter().map(|text| -(place(text) as f32)).collect()
}

/// What is put before and behind every text: whether there is something, and the token that is.
fn marks(file: &Json) -> [Option<u32>; 2] {
    let steps = parts(&file["post_processor"], "processors");
    let pairs = ["BertProcessing", "RobertaProcessing"];
    if let Some(step) = steps.iter().find(|step| pairs.iter().any(|kind| is(step, kind))) {
        return ["cls", "sep"].map(|key| u32::try_from(step[key][1].as_u64()?).ok());
    }
    let Some(template) = steps.into_iter().find(|step| is(step, "TemplateProcessing")) else {
        return [None; 2];
    };
    let single = template["single"].as_array().map_or(&[][..], |all| all);
    let token = |part: Option<&Json>| {
        let name = part?["SpecialToken"]["id"].as_str()?;
        let id = template["special_tokens"][name]["ids"].get(0)?.as_u64()?;
        u32::try_from(id).ok()
    };
    [token(single.first()), token(single.last())]
}

/// Whether texts of SentencePiece's kind begin with a space that is not there.
fn adds_space(file: &Json) -> bool {
    let metaspace = |step: &&Json| {
        let never = step["prepend_scheme"] == "never" || step["add_prefix_space"] == Json::Bool(false);
        is(step, "Metaspace") && !never
    };
    parts(&file["normalizer"], "normalizers").iter().any(|step| is(step, "Prepend"))
        || parts(&file["pre_tokenizer"], "pretokenizers").iter().any(metaspace)
}

/// The metadata, with what they are called in messages.
struct Target<'w>(&'w mut Writer);

impl Target<'_> {
    fn set(&mut self, key: &str, value: Value<'_>) -> Result<(), String> {
        self.0.set(&format!("tokenizer.ggml.{key}"), value).map_err(|e| e.to_string())
    }

    fn list<'v>(
        &mut self,
        key: &str,
        of: ValueType,
        items: impl Iterator<Item = Value<'v>>,
    ) -> Result<(), String> {
        self.0.set_array(&format!("tokenizer.ggml.{key}"), of, items).map_err(|e| e.to_string())
    }

    /// What is put before and behind every text.
    fn marks(&mut self, file: &Json) -> Result<(), String> {
        for (name, mark) in ["bos", "eos"].into_iter().zip(marks(file)) {
            self.set(&format!("add_{name}_token"), Value::Bool(mark.is_some()))?;
            if let Some(mark) = mark {
                self.set(&format!("{name}_token_id"), Value::U32(mark))?;
            }
        }
        Ok(())
    }
}

/// The same of WordPiece. GGUF files mark the tokens that begin a word, and `tokenizer.json` those that do not.
fn word_piece(file: &Json, limit: Option<usize>, mut to: Target<'_>) -> Result<(), String> {
    to.set("model", Value::String("bert"))?;
    let (texts, kinds) = vocabulary(file, limit)?;
    let marked = |(text, &kind): (&String, &Kind)| match text.strip_prefix("##") {
        _ if kind != Kind::Normal || text.starts_with('[') && text.ends_with(']') => text.clone(),
        Some(rest) => rest.to_owned(),
        None => format!("\u{2581}{text}"),
    };
    let tokens: Vec<String> = texts.iter().zip(&kinds).map(marked).collect();
    to.list("tokens", ValueType::String, tokens.iter().map(|text| Value::String(text)))?;
    to.list("token_type", ValueType::I32, kinds.iter().map(|&kind| Value::I32(kind as i32)))?;
    let steps = parts(&file["normalizer"], "normalizers");
    let normalizer = steps.into_iter().find(|step| is(step, "BertNormalizer")).unwrap_or(&Json::Null);
    let lowercase = flag(normalizer, "lowercase");
    to.set("normalizer.lowercase", Value::Bool(lowercase))?;
    // Nothing said means as with capitals.
    let accents = normalizer["strip_accents"].as_bool().unwrap_or(lowercase);
    to.set("normalizer.strip_accents", Value::Bool(accents))?;
    let unknown = file["model"]["unk_token"].as_str();
    let unknown = texts.iter().position(|text| Some(&**text) == unknown).map(|id| id as u32);
    let [first, last] = marks(file);
    for (key, token) in [("unknown_token_id", unknown), ("cls_token_id", first), ("seperator_token_id", last)]
    {
        if let Some(token) = token {
            to.set(key, Value::U32(token))?;
        }
    }
    Ok(())
}

/// The same of unigram models. What is not known of how texts are prepared takes the place of the tokenizer's name.
fn unigram(file: &Json, limit: Option<usize>, mut to: Target<'_>) -> Result<(), String> {
    const NORMALIZERS: [&str; 4] = ["Precompiled", "Replace", "Strip", "Sequence"];
    const SPACES: [&str; 3] = ["WhitespaceSplit", "Metaspace", "Sequence"];
    let normalizers = parts(&file["normalizer"], "normalizers");
    let spaces = parts(&file["pre_tokenizer"], "pretokenizers");
    let of_spaces = |step: &&&Json| step["pattern"]["Regex"] == " {2,}";
    let unknown = |steps: &[&Json], known: &[&str]| {
        let other = steps.iter().filter_map(|step| step["type"].as_str()).find(|kind| !known.contains(kind));
        other.map(|kind| format!("unigram model with {kind}"))
    };
    let replaces = normalizers.iter().filter(|step| is(step, "Replace"));
    let other = match replaces.clone().find(|step| !of_spaces(step)) {
        Some(step) => Some(format!("unigram model with the pattern {}", step["pattern"])),
        None if flag(&file["model"], "byte_fallback") => Some("unigram model with bytes".to_owned()),
        None => unknown(&normalizers, &NORMALIZERS).or_else(|| unknown(&spaces, &SPACES)),
    };
    if let Some(other) = other {
        return to.set("model", Value::String(&other));
    }
    to.set("model", Value::String("t5"))?;
    let all = file["model"]["vocab"].as_array().ok_or("model.vocab is no list")?;
    let mut texts = Vec::with_capacity(all.len());
    let mut scores = Vec::with_capacity(all.len());
    for (id, token) in all.iter().enumerate().take(limit.unwrap_or(MOST).min(MOST)) {
        let (Some(text), Some(score)) = (token[0].as_str(), token[1].as_f64()) else {
            return Err(format!(
                "model.vocab has {token} as the token {id}: it must be a text and its score"
            ));
        };
        texts.push(text.to_owned());
        scores.push(score as f32);
    }
    let mut kinds = vec![Kind::Normal; texts.len()];
    for added in file["added_tokens"].as_array().map_or(&[][..], |all| all) {
        let id = added["id"].as_u64().and_then(|id| usize::try_from(id).ok());
        if let Some(kind) = id.and_then(|id| kinds.get_mut(id)) {
            *kind = if flag(added, "special") { Kind::Control } else { Kind::UserDefined };
        }
    }
    if let Some(unknown) = file["model"]["unk_id"].as_u64().and_then(|id| u32::try_from(id).ok()) {
        to.set("unknown_token_id", Value::U32(unknown))?;
        kinds.get_mut(unknown as usize).into_iter().for_each(|kind| *kind = Kind::Unknown);
    }
    to.list("tokens", ValueType::String, texts.iter().map(|text| Value::String(text)))?;
    to.list("scores", ValueType::F32, scores.into_iter().map(Value::F32))?;
    to.list("token_type", ValueType::I32, kinds.iter().map(|&kind| Value::I32(kind as i32)))?;
    if let Some(step) = normalizers.iter().find(|step| is(step, "Precompiled")) {
        let map = step["precompiled_charsmap"].as_str().and_then(|text| STANDARD.decode(text).ok());
        let map = map.ok_or("normalizer.precompiled_charsmap is no text in base 64")?;
        to.list("precompiled_charsmap", ValueType::U8, map.into_iter().map(Value::U8))?;
    }
    to.set("add_space_prefix", Value::Bool(adds_space(file)))?;
    let merges = replaces.count() > 0 || spaces.iter().any(|step| is(step, "WhitespaceSplit"));
    to.set("remove_extra_whitespaces", Value::Bool(merges))?;
    to.marks(file)
}

/// Sets the metadata of a tokenizer; tokens from `limit` on do not belong to the model.
///
/// # Errors
/// A reason, with the name of a value.
pub(super) fn metadata(file: &Json, limit: Option<usize>, writer: &mut Writer) -> Result<(), String> {
    let mut to = Target(writer);
    let model = &file["model"];
    let merges = model["merges"].as_array();
    // Old files have no type.
    let kind = model["type"].as_str().or(merges.map(|_| "BPE")).unwrap_or("nothing");
    let bytes = parts(&file["pre_tokenizer"], "pretokenizers").iter().any(|step| is(step, "ByteLevel"));
    let name = match (kind, bytes, flag(model, "byte_fallback")) {
        ("BPE", true, _) => "gpt2",
        ("BPE", false, true) => "llama",
        ("BPE", false, false) => "BPE over characters, without bytes",
        ("WordPiece", ..) if model["continuing_subword_prefix"] == "##" => {
            return word_piece(file, limit, to)
        }
        ("Unigram", ..) => return unigram(file, limit, to),
        (kind, ..) => return to.set("model", Value::String(kind)),
    };
    to.set("model", Value::String(name))?;
    let merges: Option<Vec<_>> = merges.ok_or("model.merges is no list")?.iter().map(pair).collect();
    let merges = merges.ok_or("model.merges has something that is no pair")?;
    let (texts, kinds) = vocabulary(file, limit)?;
    if bytes {
        to.set("pre", Value::String(&rule(file, flag(model, "ignore_merges"))))?;
        let merges: Vec<String> = merges.iter().map(|(left, right)| format!("{left} {right}")).collect();
        to.list("merges", ValueType::String, merges.iter().map(|merge| Value::String(merge)))?;
    } else {
        to.set("add_space_prefix", Value::Bool(adds_space(file)))?;
        to.list("scores", ValueType::F32, scores(&texts, &merges).into_iter().map(Value::F32))?;
    }
    to.list("tokens", ValueType::String, texts.iter().map(|text| Value::String(text)))?;
    to.list("token_type", ValueType::I32, kinds.iter().map(|&kind| Value::I32(kind as i32)))?;
    to.marks(file)
}
