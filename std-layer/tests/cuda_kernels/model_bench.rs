//! How fast whole models run: the shape of an 8B Llama with random weights, made here.

use std::path::PathBuf;
use std::time::Instant;

use gllm_kernels_std::backend::{
    Backend, CacheOptions, CudaBackend, ForwardConfig, Outputs, Run, SampleRow, Topology,
};
use gllm_kernels_std::core::{Kernels, QuantFormat};
use gllm_kernels_std::gguf::{GgmlType, Value, Writer};
use gllm_kernels_std::model::{Generator, Model, Options, Sampling, SequenceId};

use super::{context, source, text, Outcome};

const HIDDEN: usize = 4096;
const INTERMEDIATE: usize = 14336;
const LAYERS: usize = 32;
const HEADS: usize = 32;
const KV_HEADS: usize = 8;
const VOCABULARY: usize = 128_256;

/// What a tensor is stored as: a name, which layer it is in, and whether that has the finer format of the two.
type Recipe = fn(&str, usize) -> (QuantFormat, GgmlType);

/// As llama.cpp mixes formats: values, the end of the feed-forward network of half of the layers, and the output are finer.
fn q4_k_m(name: &str, layer: usize) -> (QuantFormat, GgmlType) {
    let more = !(LAYERS / 8..LAYERS - LAYERS / 8).contains(&layer) || layer % 3 == 2;
    if name == "output" || (more && (name == "attn_v" || name == "ffn_down")) {
        (QuantFormat::Q6K, GgmlType::Q6_K)
    } else {
        (QuantFormat::Q4K, GgmlType::Q4_K)
    }
}

fn f16(_: &str, _: usize) -> (QuantFormat, GgmlType) {
    (QuantFormat::F16, GgmlType::F16)
}

/// Rows that are made; the matrices repeat them.
const MADE: usize = 64;

/// Writes the model to a temporary file, which is gone when the model is.
fn model(recipe: Recipe) -> Result<Model<'static>, String> {
    let path: PathBuf = std::env::temp_dir().join(format!("gllm-bench-{}.gguf", std::process::id()));
    let mut writer = Writer::new();
    let mut set = |key: &str, value: Value<'_>| writer.set(key, value).map_err(text);
    set("general.architecture", Value::String("llama"))?;
    for (key, value) in [
        ("block_count", LAYERS),
        ("embedding_length", HIDDEN),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", KV_HEADS),
        ("feed_forward_length", INTERMEDIATE),
        ("context_length", 8192),
        ("vocab_size", VOCABULARY),
    ] {
        set(&format!("llama.{key}"), Value::U32(value as u32))?;
    }
    set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5))?;
    set("llama.rope.freq_base", Value::F32(500_000.0))?;
    let kv = HIDDEN / HEADS * KV_HEADS;
    let mut tensors: Vec<(String, &str, usize, [usize; 2])> = vec![
        ("token_embd".into(), "token_embd", 0, [HIDDEN, VOCABULARY]),
        ("output".into(), "output", 0, [HIDDEN, VOCABULARY]),
        ("output_norm".into(), "norm", 0, [HIDDEN, 1]),
    ];
    for l in 0..LAYERS {
        for (name, role, dims) in [
            ("attn_norm", "norm", [HIDDEN, 1]),
            ("attn_q", "attn_q", [HIDDEN, HIDDEN]),
            ("attn_k", "attn_k", [HIDDEN, kv]),
            ("attn_v", "attn_v", [HIDDEN, kv]),
            ("attn_output", "attn_output", [HIDDEN, HIDDEN]),
            ("ffn_norm", "norm", [HIDDEN, 1]),
            ("ffn_gate", "ffn_gate", [HIDDEN, INTERMEDIATE]),
            ("ffn_up", "ffn_up", [HIDDEN, INTERMEDIATE]),
            ("ffn_down", "ffn_down", [INTERMEDIATE, HIDDEN]),
        ] {
            tensors.push((format!("blk.{l}.{name}"), role, l, dims));
        }
    }
    for (name, role, layer, [cols, rows]) in &tensors {
        let name = format!("{name}.weight");
        if *role == "norm" {
            writer.add_tensor(&name, &[*cols as u64], GgmlType::F32).map_err(text)?;
        } else {
            let dims = [*cols as u64, *rows as u64];
            writer.add_tensor(&name, &dims, recipe(role, *layer).1).map_err(text)?;
        }
    }
    let mut file = writer.create(&path, true).map_err(text)?;
    let (kernels, mut source) = (Kernels::<f32>::detect(), source("model"));
    for (_, role, layer, [cols, rows]) in &tensors {
        if *role == "norm" {
            file.write(&vec![1f32.to_le_bytes(); *cols].concat()).map_err(text)?;
            continue;
        }
        let format = recipe(role, *layer).0;
        let scale = 1.0 / (*cols as f32).sqrt();
        let numbers: Vec<f32> = source.uniform(MADE * cols, -scale, scale);
        let mut bytes = vec![0; format.row_bytes(*cols).map_err(text)? * MADE];
        kernels.quantize(format, &numbers, None, &mut bytes).map_err(text)?;
        // All sizes are multiples of what is made.
        for _ in 0..rows / MADE {
            file.write(&bytes).map_err(text)?;
        }
    }
    file.finish().map_err(text)?;
    let model = Model::open(&path).map_err(text);
    // The mapping stays.
    std::fs::remove_file(&path).map_err(text)?;
    model
}

/// Tokens a second of `n` sequences that go on together, behind `behind` tokens each.
fn decode(g: &mut Generator<CudaBackend>, n: usize, behind: usize, steps: usize) -> Result<f64, String> {
    let sampling = Sampling::greedy();
    let mut sequences: Vec<SequenceId> = Vec::new();
    for i in 0..n {
        let sequence = g.create();
        let prompt: Vec<u32> = (0..behind as u32).map(|t| (t * 37 + i as u32) % 1000).collect();
        g.extend(sequence, &prompt, Outputs::None).map_err(text)?;
        sequences.push(sequence);
    }
    let run = |&sequence: &SequenceId| Run { sequence, tokens: 1, outputs: Outputs::Last };
    let topology = Topology { runs: sequences.iter().map(run).collect() };
    let rows = vec![SampleRow { sampling: &sampling, history: &[], counter: 0 }; n];
    let mut tokens = vec![1; n];
    // The first steps are recorded.
    let mut begin = Instant::now();
    for step in 0..steps + 4 {
        if step == 4 {
            begin = Instant::now();
        }
        let logits = g.forward(&tokens, &topology).map_err(text)?;
        tokens = g.backend().sample_from_tensor(&logits, &rows).map_err(text)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    for sequence in sequences {
        g.remove(sequence).map_err(text)?;
    }
    Ok((steps * n) as f64 / seconds)
}

/// Tokens a second of one text behind `behind` tokens, each step of which starts before the token in front of it is known here.
fn generate(g: &mut Generator<CudaBackend>, behind: usize, steps: usize) -> Result<f64, String> {
    let prompt: Vec<u32> = (0..behind as u32).map(|t| t * 37 % 1000).collect();
    let mut tokens = g.generate(&prompt, Sampling::greedy()).map_err(text)?.ignore_end();
    let mut next = || tokens.next().ok_or("a text that ends")?.map_err(text);
    // The first steps are recorded.
    (0..4).try_for_each(|_| next().map(drop))?;
    let begin = Instant::now();
    (0..steps).try_for_each(|_| next().map(drop))?;
    Ok(steps as f64 / begin.elapsed().as_secs_f64())
}

/// Generation of a text, and at 1, 16 and 64 sequences, prompts of 512 and 4096 tokens; `copy` is the speed of copying in GB/s.
pub fn main(copy: f64) -> Outcome {
    let recipes: [(&str, Recipe); 2] = [("Q4_K_M", q4_k_m), ("F16", f16)];
    for (name, recipe) in recipes {
        let model = model(recipe)?;
        let cache = CacheOptions { sequences: 64, ..CacheOptions::default() };
        let options =
            Options { max_tokens: Some(16384), cache, forward: ForwardConfig::default(), chunk: None };
        let begin = Instant::now();
        let backend = CudaBackend::with_context(context()).map_err(text)?;
        let mut g = Generator::new(backend, &model, options).map_err(text)?;
        println!("8B {name}: loaded in {:.1} s", begin.elapsed().as_secs_f64());
        let read = g.weights().bytes();
        println!("8B {name}, a text {:>20.1} tokens/s", generate(&mut g, 128, 64)?);
        for n in [1, 16, 64] {
            let speed = decode(&mut g, n, 128, 64)?;
            // Weights are read once a step, whatever number of sequences there is.
            let share = read as f64 * speed / n as f64 / 1e9 / copy;
            println!(
                "8B {name}, {n:>2} sequences {speed:>10.1} tokens/s, {:>5.1} % of copying",
                100.0 * share
            );
        }
        for n in [512, 4096] {
            let prompt: Vec<u32> = (0..n).map(|t| (t * 37 % 1000) as u32).collect();
            g.read_prompt(&prompt).map_err(text)?;
            g.backend().context().wait().map_err(text)?;
            let begin = Instant::now();
            g.read_prompt(&prompt).map_err(text)?;
            g.backend().context().wait().map_err(text)?;
            println!(
                "8B {name}, prompt of {n:>4} {:>10.1} tokens/s",
                n as f64 / begin.elapsed().as_secs_f64()
            );
        }
    }
    Ok(())
}
