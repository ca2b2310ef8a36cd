//! Real models, where `ci/setup` has fetched them, and what the exact reference makes of them: `golden.json`.

use std::io::Write;
use std::path::PathBuf;

use gllm_kernels_std::model::Model;
use serde_json::Value;

const MODELS: [&str; 2] = ["smollm2-135m-instruct-q4_1", "gemma-3-270m-q4_k_m"];

const SMALL: [&str; 99] = [
    "llama",
    "llama-tied",
    "llama-factors",
    "llama-linear",
    "llama-yarn",
    "mistral",
    "qwen2",
    "qwen3",
    "mixtral",
    "qwen2moe",
    "qwen3moe",
    "gemma3",
    "qwen3-ranker",
    "gpt-oss",
    "gemma",
    "gemma2",
    "gemma4",
    "gemma4-e",
    "gemma4-moe",
    "phi3",
    "phi3-short",
    "smollm3",
    "granite",
    "granitemoe",
    "granitemoe-shared",
    "glm4moe",
    "ernie4_5-moe",
    "bailingmoe2",
    "dots1",
    "minimax-m2",
    "bailingmoe",
    "deepseek2-lite",
    "deepseek2",
    "mistral4",
    "mistral3",
    "minicpm",
    "chatglm",
    "glm4",
    "ernie4_5",
    "seed_oss",
    "internlm2",
    "exaone",
    "exaone4",
    "exaone4-full",
    "olmo2",
    "olmo3",
    "olmoe",
    "cohere2",
    "command-r",
    "command-r-plus",
    "stablelm-12b",
    "hunyuan-dense",
    "hunyuan-moe",
    "starcoder2",
    "stablelm",
    "nemotron",
    "arcee",
    "gptneox",
    "gptneox-sums",
    "falcon",
    "falcon-40b",
    "phi2",
    "jais2",
    "gpt2",
    "starcoder",
    "deepseek",
    "deepseek2-best",
    "qwen2vl",
    "qwen3vl",
    "qwen3vlmoe",
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "lfm2",
    "lfm2moe",
    "granitehybrid",
    "granitehybrid-dense",
    "nemotron_h",
    "nemotron_h_moe",
    "llama4",
    "qwen",
    "baichuan",
    "baichuan-13b",
    "xverse",
    "orion",
    "olmo",
    "apertus",
    "solar-open",
    "exaone-moe",
    "afmoe",
    "youtu",
    "falcon-h1",
    "falcon-h1-normed",
    "mamba2",
    "phimoe",
    "minicpm3",
    "deci",
    "deci-heads",
    "gemma3n",
];

/// A position's largest logits, the logarithm of the sum of all exponentials, and the KL divergence of llama.cpp.
#[allow(dead_code)] // Not every program reads all of it.
pub struct Row {
    pub top: Vec<(usize, f64)>,
    pub lse: f64,
    pub kl: f64,
}

/// A prompt, and what the exact reference makes of it.
pub struct Golden {
    pub tokens: Vec<u32>,
    pub rows: Vec<Row>,
    /// The tokens that follow, and by how much each is ahead.
    pub greedy: Vec<(u32, f64)>,
}

pub fn golden(model: &str) -> Vec<Golden> {
    let all: Value = serde_json::from_str(include_str!("../data/golden.json")).unwrap();
    let numbers = |v: &Value| v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
    let prompt = |p: &Value| Golden {
        tokens: numbers(&p["tokens"]).into_iter().map(|t| t as u32).collect(),
        rows: p["top"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row.as_array().unwrap().iter().map(numbers).map(|t| (t[0] as usize, t[1])).collect())
            .zip(numbers(&p["lse"]))
            .zip(numbers(&p["kl_llama_cpp"]))
            .map(|((top, lse), kl)| Row { top, lse, kl })
            .collect(),
        greedy: numbers(&p["greedy"]).into_iter().map(|t| t as u32).zip(numbers(&p["margin"])).collect(),
    };
    all[model].as_array().unwrap().iter().map(prompt).collect()
}

/// Not by a macro, whose output is shown of tests that fail.
pub fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// The models that are there; what is missing is said.
pub fn models() -> Vec<(&'static str, Model<'static>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/ci/models");
    let mut all = Vec::new();
    for name in MODELS {
        let path = folder.join(format!("{name}.gguf"));
        if path.exists() {
            all.push((name, Model::open(&path).unwrap()));
        } else {
            say(format_args!("SKIPPED: {} is missing (ci/setup fetches it)", path.display()));
        }
    }
    all
}

/// A small model, and what the exact reference makes of it.
pub struct Small {
    pub model: Model<'static>,
    pub tokens: Vec<u32>,
    pub logits: Vec<f64>,
    /// Of a model that ranks texts.
    pub score: Option<f64>,
}

/// The small models that `ci/make-model.py --tests` writes; what is missing is said.
pub fn small() -> impl Iterator<Item = (&'static str, Small)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/ci/models");
    SMALL.into_iter().filter_map(move |name| {
        let path = folder.join(format!("tiny-{name}.gguf"));
        let Ok(truth) = std::fs::read_to_string(path.with_extension("json")) else {
            say(format_args!("SKIPPED: {} is missing (ci/setup writes it)", path.display()));
            return None;
        };
        let truth: Value = serde_json::from_str(&truth).unwrap();
        let numbers =
            |v: &Value| v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
        let tokens = numbers(&truth["tokens"]).into_iter().map(|t| t as u32).collect();
        let logits = truth["logits"].as_array().unwrap().iter().flat_map(numbers).collect();
        let model = Model::open(&path).unwrap();
        Some((name, Small { model, tokens, logits, score: truth["score"].as_f64() }))
    })
}
