//! How families of models cut text: `tests/data/words.json` holds a small vocabulary whose merges span words, texts, and what llama.cpp 0.5.0
//! makes of each with the rule of each name. It cuts differently from the models' own tokenizers where these know capitals and small letters (`gpt-4o`,
//! `llama4`, `minimax-m2`, `kanana2`, `tekken`, `kimi-k2`, `youtu`, `tiny_aya`, `granite-embed-multi-97m`): of those, and of `jais-2`, `exaone-moe` and `afmoe`, the file has what Hugging Face's `tokenizers` 0.23
//! makes with the models' expressions.

use gllm_kernels_std::gguf::{Value, ValueType};
use serde_json::Value as Json;

use super::tests::{file, strings};
use super::words::RULES;
use super::*;

fn list(of: &Json) -> Vec<&str> {
    of.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

#[test]
fn words_are_those_of_others() {
    let golden: Json = serde_json::from_str(include_str!("../../tests/data/words.json")).unwrap();
    let (tokens, merges, texts) = (list(&golden["tokens"]), list(&golden["merges"]), list(&golden["texts"]));
    let mut names = Vec::new();
    let mut wrong = Vec::new();
    for rule in golden["rules"].as_array().unwrap() {
        for name in list(&rule["names"]) {
            names.push(name);
            let file = file(&format!("words-{name}"), |w| {
                w.set(MODEL, Value::String("gpt2")).unwrap();
                w.set(PRE, Value::String(name)).unwrap();
                strings(w, TOKENS, &tokens);
                w.set_array(TYPES, ValueType::I32, tokens.iter().map(|_| Value::I32(1))).unwrap();
                strings(w, MERGES, &merges);
                w.set("tokenizer.ggml.add_bos_token", Value::Bool(false)).unwrap();
            });
            let tokenizer = Tokenizer::new(|key| file.get(key)).unwrap();
            for (text, want) in texts.iter().zip(rule["ids"].as_array().unwrap()) {
                let want = want.as_array().unwrap().iter().map(|id| tokens[id.as_u64().unwrap() as usize]);
                let got = tokenizer.encode(text).unwrap();
                let got: Vec<_> = got.iter().map(|&id| tokenizer.text(id)).collect();
                if let Some(at) = got.iter().copied().zip(want.clone()).position(|(got, want)| got != want) {
                    let want: Vec<_> = want.skip(at).take(8).collect();
                    wrong.push(format!(
                        "{name}: {text:?}: {:?} instead of {want:?}",
                        &got[at..got.len().min(at + 8)]
                    ));
                } else if got.len() != want.len() {
                    wrong.push(format!("{name}: {text:?}: {} tokens instead of {}", got.len(), want.len()));
                }
            }
        }
    }
    for name in RULES.iter().flat_map(|rule| rule.names) {
        assert!(names.contains(name), "what others make of text with {name} is not in the file");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
