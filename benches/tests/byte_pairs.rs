//! The tokenizers of checkpoints (`tokenizer.json`), small ones of each kind: what Hugging Face's `tokenizers` 0.23 makes of texts with them
//! is in `data/byte_pairs.json` and `data/unigram.json`, whose last text is the beginning of `data/mixed.txt`.

use std::fs;
use std::path::{Path, PathBuf};

use gllm_bench::model;
use serde_json::{json, Value as Json};

const MIXED: &str = include_str!("data/mixed.txt");
/// Characters of it.
const BEGINNING: usize = 400;

/// A small checkpoint with a tokenizer, in a folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, tokenizer: &Json) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let vocabulary = &tokenizer["model"]["vocab"];
        let tokens = vocabulary.as_object().map_or(0, |all| all.len());
        let tokens = vocabulary.as_array().map_or(tokens + 8, |all| all.len());
        let config = json!({
            "model_type": "llama", "hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": WIDTH,
            "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "vocab_size": tokens, "tie_word_embeddings": true
        });
        fs::write(folder.join("config.json"), config.to_string()).unwrap();
        fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
        fs::write(folder.join("model.safetensors"), weights(tokens)).unwrap();
        Self(folder)
    }
}

/// Numbers of a token.
const WIDTH: usize = 64;

/// A file with zeros as the weights of a layer.
fn weights(tokens: usize) -> Vec<u8> {
    let matrix =
        ["self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down"];
    let matrix = matrix.map(|name| (format!("layers.0.{name}_proj"), vec![WIDTH, WIDTH]));
    let norm = ["layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"];
    let norm = norm.map(|name| (name.to_owned(), vec![WIDTH]));
    let embedding = ("embed_tokens".to_owned(), vec![tokens, WIDTH]);
    let mut end = 0;
    let entries = matrix.into_iter().chain(norm).chain([embedding]).map(|(name, shape)| {
        let from = end;
        end += 4 * shape.iter().product::<usize>();
        (format!("model.{name}.weight"), json!({"dtype": "F32", "shape": shape, "data_offsets": [from, end]}))
    });
    let mut header = Json::Object(entries.collect()).to_string();
    header += &" ".repeat(header.len().wrapping_neg() % 8);
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; end]].concat()
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn tokens_are_those_of_tokenizers() {
    for text in [include_str!("data/byte_pairs.json"), include_str!("data/unigram.json")] {
        tokens_of(&serde_json::from_str(text).unwrap());
    }
}

fn tokens_of(all: &Json) {
    let beginning: String = MIXED.chars().take(BEGINNING).collect();
    for of in all["tokenizers"].as_array().unwrap() {
        let name = of["name"].as_str().unwrap();
        let folder = Folder::new(name, &of["tokenizer"]);
        let model = model::open(&folder.0).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let tokenizer = model::tokenizer(&model).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        for (text, want) in all["texts"].as_array().unwrap().iter().zip(of["ids"].as_array().unwrap()) {
            // Without tokens where llama.cpp, and this tokenizer, put a space that Hugging Face's `Metaspace` does not.
            let Some(want) = want.as_array() else { continue };
            let text = text.as_str().unwrap_or(&beginning);
            let show = |ids: &[u32]| ids.iter().map(|&id| tokenizer.text(id).to_owned()).collect::<Vec<_>>();
            let want: Vec<u32> = want.iter().map(|id| id.as_u64().unwrap() as u32).collect();
            let got = tokenizer.encode(text).unwrap();
            assert_eq!(show(&got), show(&want), "{name}: {text:?}");
            assert_eq!(got, want, "{name}: {text:?}");
        }
    }
}

/// What is not supported is told to whoever needs a tokenizer, and to nobody else.
#[test]
fn what_is_not_supported_is_named() {
    let all: Json = serde_json::from_str(include_str!("data/byte_pairs.json")).unwrap();
    let of = |name: &str| {
        let all = all["tokenizers"].as_array().unwrap();
        all.iter().find(|t| t["name"] == name).unwrap()["tokenizer"].clone()
    };
    let refused = |what: &str, tokenizer: Json| {
        let folder = Folder::new(what, &tokenizer);
        let model = model::open(&folder.0).unwrap_or_else(|e| panic!("{what}: {e:?}"));
        let Err(said) = model::tokenizer(&model) else { panic!("{what}: not refused") };
        format!("{said:?}")
    };
    let unigrams: Json = serde_json::from_str(include_str!("data/unigram.json")).unwrap();
    let unigram = |change: &dyn Fn(&mut Json)| {
        let mut file = unigrams["tokenizers"][1]["tokenizer"].clone();
        change(&mut file);
        file
    };
    let said = refused(
        "lowercase",
        unigram(&|file| file["normalizer"]["normalizers"][1]["type"] = "Lowercase".into()),
    );
    assert!(said.contains("unigram model with Lowercase") && said.contains("llama"), "{said}");
    let pattern = "/normalizer/normalizers/2/pattern/Regex";
    let said = refused("pattern", unigram(&|file| *file.pointer_mut(pattern).unwrap() = "a".into()));
    assert!(said.contains("unigram model with the pattern"), "{said}");
    let said = refused("unigram bytes", unigram(&|file| file["model"]["byte_fallback"] = true.into()));
    assert!(said.contains("unigram model with bytes"), "{said}");
    let mut file = of("qwen2");
    file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "[a-z]+".into();
    let said = refused("expression", file);
    assert!(said.contains("[a-z]+") && said.contains("qwen2"), "{said}");
    let mut file = of("qwen2");
    file["pre_tokenizer"]["pretokenizers"][0]["invert"] = true.into();
    let said = refused("inverted", file);
    assert!(said.contains("inverted"), "{said}");
    let mut file = of("llama2");
    file["model"]["byte_fallback"] = false.into();
    let said = refused("no bytes", file);
    assert!(said.contains("without bytes"), "{said}");
}
