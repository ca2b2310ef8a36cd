//! Models from files: configurations, weights, and files that lie.

#[path = "model/draft.rs"]
mod draft;
#[path = "model/encoders.rs"]
mod encoders;
#[path = "model/files.rs"]
mod files;
#[path = "model/heads.rs"]
mod heads;
#[path = "model/kinds.rs"]
mod kinds;
#[path = "model/memory.rs"]
mod memory;
#[path = "model/positions.rs"]
mod positions;
#[path = "model/refused.rs"]
mod refused;
#[path = "model/streams.rs"]
mod streams;

use std::io::Write;
use std::path::Path;

use draft::{
    architectures, has_network_layers, has_positions, has_residual_norms, has_spaces, has_whole_norms,
    is_deepseek, is_encoder, is_hybrid, is_latent, is_lfm2, is_mixture, is_space, layer_norms, Draft,
};
use gllm_kernels_std::core::{QuantFormat, RopePairing, RopeScaling};
use gllm_kernels_std::gguf::{GgmlType, Gguf, Value, ValueType};
use gllm_kernels_std::model::{
    Architecture, Config, Experts, Gate, KvHeads, LatentAttention, Layer, LinearAttention, Matrix, Model,
    ModelError, Norm, NormWeights, Pooling, Recurrence, Rope, Rule, Scoring, Shared, ShortConvolution,
};
use gllm_kernels_std::AlignedVec;

/// The error that a draft is refused with.
fn refused(draft: &Draft) -> ModelError {
    let bytes = draft.bytes();
    match Model::from_bytes(&bytes) {
        Err(error) => error,
        Ok(_) => panic!("not refused"),
    }
}

fn config(draft: &Draft) -> Config {
    let bytes = draft.bytes();
    let model = Model::from_bytes(&bytes).unwrap_or_else(|e| panic!("{e}"));
    model.config().clone()
}

/// The windows that layers have, each once.
fn windows(config: &Config) -> Vec<Option<usize>> {
    config.kinds().into_iter().map(|(window, _)| window).collect()
}

/// Key, value and text of a refused value.
fn bad_value(draft: &Draft) -> (String, String, String) {
    match refused(draft) {
        ModelError::BadValue { key, value, expected } => (key, value, expected),
        other => panic!("{other}"),
    }
}

#[test]
fn every_architecture_has_its_configuration() {
    for &architecture in Architecture::ALL.iter().filter(|of| !has_spaces(of.name())) {
        let name = architecture.name();
        let c = config(&Draft::of(name));
        let sizes =
            (c.vocabulary, c.hidden, c.layers, c.heads, c.kv_heads, c.head_dim, c.intermediate, c.context);
        let gpt_oss = name == "gpt-oss";
        let (mixture, deepseek) = (is_mixture(name), is_deepseek(name));
        let llama4 = name == "llama4";
        let dense = if mixture && !deepseek && !llama4 { 0 } else { 64 };
        let (kv_heads, head_dim) = if is_latent(name) { (1, 40) } else { (2, 16) };
        assert_eq!(sizes, (24, 32, 7, 4, kv_heads, head_dim, dense, 128), "{name}");
        let query_rank = (name != "mistral4").then_some(24);
        let latent = LatentAttention { query_rank, rank: 32, plain: 8, rotated: 8, values: 8 };
        assert_eq!(c.latent_attention, is_latent(name).then_some(latent));
        let (is, lfm2) = (|names: &[&str]| names.contains(&name), is_lfm2(name));
        let experts = Experts {
            count: 4,
            used: 2,
            intermediate: 32,
            scoring: match name {
                "glm4moe" | "bailingmoe2" | "dots1" | "minimax-m2" | "lfm2moe" | "deepseek2"
                | "nemotron_h_moe" | "llama4" | "exaone-moe" | "afmoe" => Scoring::Sigmoid,
                "phimoe" => Scoring::SparseMixer,
                _ => Scoring::Softmax,
            },
            selection_bias: is(&["minimax-m2", "nemotron_h_moe"])
                || deepseek && !is(&["bailingmoe", "deepseek", "mistral4"]),
            groups: None,
            normalised: is(&["ernie4_5-moe", "lfm2moe"])
                || !deepseek && !is(&["qwen2moe", "olmoe", "llama4", "phimoe"]),
            biases: gpt_oss,
            scaled_inputs: llama4,
            scale: 1.0,
            factors: false,
            normed: false,
            shared: match name {
                "qwen2moe" | "qwen35moe" | "qwen3next" => Some(Shared { intermediate: 64, gated: true }),
                "lfm2moe" => None,
                "nemotron_h_moe" | "llama4" => Some(Shared { intermediate: 32, gated: false }),
                _ => deepseek.then_some(Shared { intermediate: 32, gated: false }),
            },
        };
        assert_eq!(c.experts, mixture.then_some(experts));
        let all: Vec<_> = c.layer.iter().map(|layer| layer.experts).collect();
        let networks: Vec<_> = (0..7).map(|i| !has_network_layers(name) || i % 3 != 1).collect();
        let found: Vec<_> = c.layer.iter().map(|layer| !layer.without_network).collect();
        assert_eq!(found, networks);
        let has = |(i, network): (usize, bool)| {
            mixture && network && !(deepseek && i == 0) && !(llama4 && i % 2 == 0)
        };
        assert_eq!(all, networks.into_iter().enumerate().map(has).collect::<Vec<_>>());
        let gemma4 = name == "gemma4";
        let (gemma3n, unscaled) = (name == "gemma3n", is(&["gemma3n", "gemma4"]));
        assert_eq!((c.architecture, c.attention_scale), (architecture, if unscaled { 1.0 } else { 0.25 }));
        let local_heads = gemma4.then_some(KvHeads { count: 4, dim: 8 });
        assert_eq!((c.local_heads, c.value_norm, c.values_are_keys), (local_heads, unscaled, gemma4));
        if name.starts_with("minicpm") {
            // Where files do not say them, factors follow from 7 layers and a width of 32.
            let [added, logits] = [1.4f64 / 7f64.sqrt(), 256.0 / 32.0];
            assert_eq!((c.embedding_scale, c.logit_scale), ((12.0 / added) as f32, logits as f32));
            assert_eq!(c.norm_eps, (f64::from(1e-5f32) / (added * added)) as f32);
        } else {
            assert_eq!(c.norm_eps, 1e-5);
        }
        assert_eq!((c.attention_softcap, c.logit_softcap), (None, gemma3n.then_some(30.0)));
        let gemma = name.starts_with("gemma");
        if !name.starts_with("minicpm") {
            assert_eq!(c.embedding_scale, if gemma || name == "afmoe" { 32f32.sqrt() } else { 1.0 });
            assert_eq!(c.logit_scale, 1.0);
        }
        let gate = match name {
            "gemma" | "gemma2" | "gemma3" | "gemma3n" | "gemma-embedding" | "gemma4" => Gate::GeluTanh,
            "gpt-oss" => Gate::ClampedSwiglu,
            "starcoder2" | "phi2" | "gpt2" | "starcoder" => Gate::GeluTanh,
            "bert" | "jina-bert-v2" | "modern-bert" | "gptneox" | "falcon" => Gate::Gelu,
            "apertus" => Gate::Xielu,
            "nemotron" | "arcee" | "jais2" | "nemotron_h" | "nemotron_h_moe" => Gate::ReluSquared,
            _ => Gate::Silu,
        };
        assert_eq!(c.gate, gate);
        let positions = has_positions(name);
        let (encoder, bert, jina) = (is_encoder(name), name == "bert", name == "jina-bert-v2");
        let (layer_norms, norm_biases) = layer_norms(name);
        let kind = if layer_norms { Norm::Layer } else { Norm::Rms };
        let (residual_norms, modern) = (has_residual_norms(name), name == "modern-bert");
        assert_eq!((c.causal, c.residual_norms, c.norm), (!encoder, residual_norms, kind));
        assert_eq!((c.embedding_norm, c.dense), (residual_norms || modern, None));
        let input_norms = !residual_norms && !is(&["exaone4", "olmo2"]);
        assert_eq!((c.norm_biases, c.input_norms), (norm_biases, input_norms), "{name}");
        let shared_norm = is(&["cohere2", "command-r", "falcon", "phi2"]);
        assert_eq!((c.parallel, c.shared_norm), (shared_norm || name == "gptneox", shared_norm), "{name}");
        assert_eq!(
            (c.position_embeddings, c.token_types),
            (bert || positions, if residual_norms { 2 } else { 0 })
        );
        let biased = positions || is(&["starcoder2", "gptneox", "phi2", "jais2"]);
        assert_eq!(c.longest, if llama4 { Some(8191) } else { positions.then_some(128) });
        assert_eq!(c.output_bias, is(&["phi2", "phimoe"]));
        let gated = !bert
            && !biased
            && !is(&["falcon", "nemotron", "arcee", "nemotron_h", "nemotron_h_moe", "apertus"]);
        assert_eq!((c.gated, c.up_bias, c.down_bias), (gated, bert || biased, bert || jina || biased));
        assert_eq!((c.alibi, c.logits()), (jina.then_some(8.0), if encoder { 0 } else { 24 }));
        assert_eq!(
            (c.attention_sinks, c.attention_output_bias),
            (gpt_oss, gpt_oss || bert || jina || biased || name == "phimoe")
        );
        let qk_norm = has_whole_norms(name)
            || name.starts_with("qwen3")
            || lfm2
            || llama4
            || is(&["apertus", "gemma3", "gemma-embedding", "gemma4", "exaone4", "bailingmoe2", "dots1"])
            || is(&["hunyuan-dense", "hunyuan-moe", "exaone-moe", "afmoe", "gemma3n"]);
        let post_norms = is(&[
            "gemma2",
            "gemma3",
            "gemma3n",
            "gemma-embedding",
            "gemma4",
            "glm4",
            "exaone4",
            "olmo2",
            "afmoe",
        ]);
        assert_eq!((c.qk_norm, c.post_norms), (qk_norm, post_norms));
        assert_eq!(c.qk_norm_whole, has_whole_norms(name));
        let behind = name.starts_with("hunyuan") || llama4;
        let each = is(&["command-r", "cohere2", "stablelm"]);
        assert_eq!((c.qk_norm_behind, c.qk_norm_each), (behind, each));
        let attention_bias = biased
            || name.starts_with("qwen2")
            || is(&["gpt-oss", "seed_oss", "chatglm", "bert", "jina-bert-v2", "qwen", "phimoe"]);
        assert_eq!((c.attention_bias, c.tied_embeddings), (attention_bias, gemma || encoder));
        let hybrid = is_hybrid(name);
        let (tiled, decay_heads) = if name == "qwen3next" { (false, 2) } else { (true, 4) };
        let (rule, tiled) = match is_space(name) {
            true => (Rule::StateSpace, false),
            false => (Rule::Delta { decay_heads }, tiled),
        };
        let (key_heads, value_heads, key_size, value_size, taps) = (2, 4, 8, 8, 4);
        let normed = true;
        let linear =
            LinearAttention { rule, key_heads, value_heads, key_size, value_size, taps, tiled, normed };
        let recurrence = match lfm2 {
            true => Some(Recurrence::Convolution(ShortConvolution { channels: 32, taps: 3 })),
            false => (hybrid || is_space(name)).then_some(Recurrence::Linear(linear)),
        };
        assert_eq!((c.attention_gates, c.recurrence), (hybrid || name == "afmoe", recurrence));
        let most = recurrence.is_some();
        let recurrent: Vec<_> = c.layer.iter().map(|layer| layer.recurrent).collect();
        assert_eq!(recurrent, [most, most, most, false, most, most, most]);
        let neighbours = is(&[
            "llama",
            "deci",
            "mistral3",
            "smollm3",
            "granite",
            "granitemoe",
            "granitehybrid",
            "minicpm",
            "chatglm",
            "glm4",
            "ernie4_5",
            "ernie4_5-moe",
            "bailingmoe",
            "deepseek",
            "internlm2",
            "cohere2",
            "command-r",
            "arcee",
            "deepseek2",
            "mistral4",
            "llama4",
            "baichuan",
            "xverse",
            "olmo",
        ]);
        let pairing = if neighbours { RopePairing::Adjacent } else { RopePairing::HalfSplit };
        let rope = |theta| Rope {
            theta,
            dims: match () {
                () if bert || jina || positions || has_network_layers(name) => 0,
                () if is_latent(name) => 8,
                () => 16,
            },
            pairing,
            scaling: RopeScaling::None,
            factors: None,
            attention_factor: (behind || is_latent(name)).then_some(1.0),
        };
        if name == "gemma3" {
            assert_eq!(c.ropes, [rope(1e6), rope(1e4)]);
            let global = Layer::default();
            let local = Layer { window: Some(8), rope: 1, ..global };
            assert_eq!(c.layer, [local, local, local, local, local, global, local]);
            assert_eq!(windows(&c), [Some(8), None]);
        } else if gemma3n {
            // Where files do not say it, 5 % of the gates of the first layers count.
            assert_eq!(c.ropes, [rope(1e6), rope(1e4)]);
            let global = Layer { sparsity: Some(1.644_853_6), ..Layer::default() };
            let local = Layer { window: Some(8), rope: 1, ..global };
            assert_eq!(c.layer, [local, local, local, local, global, local, local]);
        } else if gemma4 {
            assert_eq!(c.ropes, [rope(1e6), Rope { dims: 8, ..rope(1e4) }]);
            let global = Layer { scale: Some(1.0), ..Layer::default() };
            let local = Layer { window: Some(8), rope: 1, ..global };
            assert_eq!(c.layer, [local, local, local, local, local, global, local]);
        } else if name == "gemma-embedding" || modern {
            // Half a window on each side; of each period the last layer sees all, or the first.
            assert_eq!(c.ropes, [rope(1e6), rope(1e4)]);
            let sees_all = |i: usize| if modern { i.is_multiple_of(3) } else { i == 5 };
            let local = Layer { window: Some(5), rope: 1, ..Layer::default() };
            let layers: Vec<_> = (0..7).map(|i| if sees_all(i) { Layer::default() } else { local }).collect();
            assert_eq!(c.layer, layers);
        } else if is(&["smollm3", "llama4"]) {
            assert_eq!(c.ropes, [rope(1e6), Rope { dims: 0, ..rope(1e6) }]);
            let ropes: Vec<_> = c.layer.iter().map(|layer| layer.rope).collect();
            assert_eq!(ropes, [0, 0, 0, 1, 0, 0, 0]);
        } else if is(&["exaone4", "exaone-moe", "afmoe", "cohere2"]) {
            // What sees all is not rotated.
            assert_eq!(c.ropes, [rope(1e6), Rope { dims: 0, ..rope(1e6) }]);
            let layers: Vec<_> = c.layer.iter().map(|layer| (layer.window, layer.rope)).collect();
            let (local, global) = ((Some(8), 0), (None, 1));
            assert_eq!(layers, [local, local, local, global, local, local, local]);
        } else if name == "olmo2" {
            assert_eq!(c.ropes, [rope(1e6)]);
            let windows: Vec<_> = c.layer.iter().map(|layer| layer.window.is_some()).collect();
            assert_eq!(windows, [true, true, true, false, true, true, true]);
        } else if is(&["phi3", "phimoe"]) {
            assert_eq!(c.ropes, [rope(1e6)]);
            assert_eq!(c.layer, [Layer { window: Some(8), experts: mixture, ..Layer::default() }; 7]);
        } else if gpt_oss || name == "gemma2" {
            // Every second layer sees all, and all rotate alike.
            assert_eq!(c.ropes, [rope(1e6)]);
            let windows = c.layer.iter().map(|layer| (layer.window, layer.rope)).collect::<Vec<_>>();
            let (local, global) = ((Some(8), 0), (None, 0));
            assert_eq!(windows, [local, global, local, global, local, global, local]);
        } else {
            assert_eq!(c.ropes, [rope(1e6)]);
            assert!(c.layer.iter().all(|layer| layer.rope == 0));
            assert_eq!(windows(&c), [None]);
        }
    }
}

#[test]
fn weights_have_the_shapes_of_the_configuration() {
    for name in architectures().filter(|name| !has_spaces(name)) {
        let bytes = Draft::of(name).bytes();
        let model = Model::from_bytes(&bytes).unwrap();
        assert!(model.unused().is_empty(), "{:?}", model.unused());
        let (c, w) = (model.config(), model.weights().unwrap());
        assert_eq!((w.embedding.rows(), w.embedding.cols(), w.embedding.bytes()), (24, 32, 24 * 34));
        let normed = c.residual_norms;
        let len = |v: &Option<Vec<f32>>| v.as_ref().map(Vec::len);
        let only = |has: bool, n: usize| has.then_some(n);
        let both = |v: &Option<NormWeights>| v.as_ref().map(|norm| (norm.weight.len(), norm.bias.len()));
        assert_eq!((w.output.rows(), w.output.cols(), len(&w.output_norm)), (24, 32, only(!normed, 32)));
        let table = |m: &Option<Matrix<'_>>| m.as_ref().map(|m| (m.rows(), m.cols()));
        assert_eq!(table(&w.positions), c.position_embeddings.then_some((128, 32)));
        assert_eq!(table(&w.token_types), normed.then_some((2, 32)));
        assert_eq!(both(&w.embedding_norm), c.embedding_norm.then_some((32, 32)));
        assert_eq!(w.layers.len(), 7);
        for (i, l) in w.layers.iter().enumerate() {
            let shape = |m: Matrix<'_>| (m.rows(), m.cols());
            let inputs = [l.q, l.k, l.v, l.output].map(shape);
            let linear = c.layer[i].recurrent && !is_lfm2(name);
            let convolves = c.layer[i].recurrent && is_lfm2(name);
            if convolves {
                assert_eq!(inputs, [(32, 32); 4]);
            } else if linear {
                assert_eq!(inputs, [(16, 32), (16, 32), (32, 32), (32, 32)]);
            } else if let Some(of) = &l.latent {
                let twice = name != "mistral4";
                assert_eq!(inputs, [(if twice { 24 } else { 64 }, 32), (40, 32), (0, 32), (32, 32)]);
                assert_eq!(
                    (of.query.map(shape), of.query_norm.as_ref().map(Vec::len)),
                    (twice.then_some((64, 24)), only(twice, 24))
                );
                let heads =
                    [&of.keys, &of.values].map(|all| all.iter().map(|&m| shape(m)).collect::<Vec<_>>());
                assert_eq!((of.norm.len(), heads), (32, [vec![(32, 8); 4], vec![(8, 32); 4]]));
            } else {
                let mixed = 4 * c.heads_of(i).dim;
                let queries = if c.attention_gates { 2 * mixed } else { mixed };
                assert_eq!(inputs, [(queries, 32), (32, 32), (32, 32), (32, mixed)]);
            }
            let channels = l.recurrent.as_ref().map(|of| of.convolution.len());
            assert_eq!(channels, only(convolves, 3 * 32).or(only(linear, 4 * 64)));
            let of_linear = l.recurrent.as_ref().and_then(|of| of.linear.as_ref()).map(|of| {
                let decays = of.decays.iter().map(|&m| shape(m)).collect::<Vec<_>>();
                let lens = [&of.decay_bias, &of.rate, &of.norm].map(Vec::len);
                (shape(of.gates), decays, lens)
            });
            let space = is_space(name);
            let decays = match name {
                "qwen3next" => vec![(8, 32)],
                _ if space => vec![(4, 32)],
                _ => vec![(4, 32); 2],
            };
            let behind = l.recurrent.as_ref().map(|of| (len(&of.convolution_bias), of.linear.as_ref()));
            let skip = behind.and_then(|(bias, linear)| Some((bias, len(&linear?.skip))));
            assert_eq!(skip, linear.then_some((only(space, 64), only(space, 4))));
            assert_eq!(of_linear, linear.then_some(((32, 32), decays, [4, 4, if space { 32 } else { 8 }])));
            let dense = l.feed_forward.map(|of| (of.gate.map(shape), [of.up, of.down].map(shape)));
            let n = c.between(i);
            let gate = c.gated.then_some((n, 32));
            assert_eq!(dense, (n > 0).then_some((gate, [(n, 32), (32, n)])));
            assert_eq!([&l.up_bias, &l.down_bias].map(len), [only(c.up_bias, 64), only(c.down_bias, 32)]);
            assert_eq!([&l.attention_sum_norm, &l.ffn_sum_norm].map(both), [normed.then_some((32, 32)); 2]);
            let experts = l.experts.as_ref();
            let experts = experts.map(|of| (shape(of.router), of.matrices().map(shape).collect::<Vec<_>>()));
            assert_eq!(
                experts,
                c.layer[i].experts.then(|| ((4, 32), vec![(32, 32); if c.gated { 12 } else { 8 }]))
            );
            let selection = l.experts.as_ref().and_then(|of| of.selection_bias.as_ref()).map(Vec::len);
            assert_eq!(selection, only(l.experts.is_some() && c.experts.unwrap().selection_bias, 4));
            let own = c.input_norms && !c.shared_norm && !c.layer[i].without_network;
            assert_eq!(
                [&l.attention_norm, &l.ffn_norm].map(len),
                [only(c.norms_input(i), 32), only(own, 32)]
            );
            // Without biases, they are zeros.
            let centred = c.norm == Norm::Layer && !normed;
            assert_eq!(len(&l.attention_norm_bias), only(centred && c.norms_input(i), 32));
            assert_eq!(len(&l.ffn_norm_bias), only(centred && own, 32));
            // What is not rotated has no norm without weights.
            let still = c.qk_norm_unweighted && c.layer[i].rope == 1;
            let of_heads = if c.qk_norm_whole { [64, 32] } else { [c.heads_of(i).dim; 2] };
            assert_eq!(
                [&l.q_norm, &l.k_norm].map(len),
                of_heads.map(|n| only(c.qk_norm && !c.layer[i].recurrent && !still, n))
            );
            let bias = c.attention_bias;
            assert_eq!(
                [&l.q_bias, &l.k_bias, &l.v_bias].map(len),
                [only(bias, 64), only(bias, 32), only(bias, 32)]
            );
            assert_eq!([&l.post_attention_norm, &l.post_ffn_norm].map(len), [only(c.post_norms, 32); 2]);
            let sinks = c.attention_sinks;
            let output_bias = c.attention_output_bias;
            assert_eq!([&l.output_bias, &l.sinks].map(len), [only(output_bias, 32), only(sinks, 4)]);
            let biases = l.experts.as_ref().and_then(|e| Some((e.router_bias.as_ref()?, e.biases.as_ref()?)));
            let lens = biases.map(|(router, each)| (router.len(), each.each_ref().map(Vec::len)));
            assert_eq!(lens, sinks.then_some((4, [128; 3])));
        }
    }
}

#[test]
fn tokens_that_begin_and_end_texts() {
    let mut draft = Draft::of("llama");
    let texts: Vec<_> = (0..24).map(|i| Value::String(["x", "<|im_end|>", "<end_of_turn>"][i % 3])).collect();
    draft.set_array("tokenizer.ggml.tokens", ValueType::String, &texts);
    // Only those that are special.
    let types: Vec<_> = (0..24).map(|i| Value::I32([1, 1, 3, 4][i % 4])).collect();
    draft.set_array("tokenizer.ggml.token_type", ValueType::I32, &types);
    draft.set("tokenizer.ggml.eos_token_id", Value::U32(7));
    draft.set("tokenizer.ggml.bos_token_id", Value::U32(1));
    assert_eq!(config(&draft).stop_tokens, [2, 7, 10, 11, 14, 19, 22, 23]);
    // Where turns end with `<|return|>` or `<|call|>`, `<|end|>` ends a message alone.
    let stops = |texts: [&'static str; 3]| {
        let mut draft = Draft::of("gpt-oss");
        let texts = texts.map(Value::String);
        draft.set_array("tokenizer.ggml.tokens", ValueType::String, &texts);
        draft.set_array("tokenizer.ggml.token_type", ValueType::I32, &[Value::I32(3); 3]);
        config(&draft).stop_tokens
    };
    assert_eq!(stops(["<|end|>", "<|return|>", "<|call|>"]), [1, 2]);
    assert_eq!(stops(["<|end|>", "<|return|>", "x"]), [0, 1]);
    let mut bos = |pairs: &[(&str, Value<'static>)]| {
        pairs.iter().for_each(|(key, value)| draft.set(&format!("tokenizer.ggml.{key}"), *value));
        config(&draft).bos
    };
    assert_eq!(bos(&[]), None);
    assert_eq!(bos(&[("model", Value::String("llama"))]), Some(1));
    assert_eq!(bos(&[("model", Value::String("gpt2"))]), None);
    assert_eq!(bos(&[("pre", Value::String("llama-bpe"))]), Some(1));
    assert_eq!(bos(&[("pre", Value::String("falcon-h1"))]), Some(1));
    assert_eq!(bos(&[("add_bos_token", Value::Bool(false))]), None);
    assert_eq!(bos(&[("model", Value::String("none")), ("add_bos_token", Value::Bool(true))]), Some(1));
}

/// Weights that are no numbers: found by decoding all of them, wherever they are.
#[test]
fn weights_that_are_not_finite_are_found() {
    let draft = Draft::of("llama");
    let clean = draft.bytes();
    Model::from_bytes(&clean).unwrap().verify().unwrap();
    let file = Gguf::from_bytes(&clean).unwrap();
    // The scale of a block (f16, in front of it), and a number itself: in the last row, from the column that begins a block.
    for (name, scale, place) in [
        ("token_embd.weight", 2, "row 23, column 0"),
        ("blk.6.ffn_down.weight", 2, "row 31, column 32"),
        ("blk.3.attn_output.weight", 2, "row 31, column 32"),
        ("blk.2.attn_k.weight", 2, "row 31, column 31"),
        ("blk.5.attn_v.weight", 2, "row 31, column 31"),
        ("blk.4.attn_q.weight", 4, "element 2047"),
    ] {
        let tensor = file.tensor(name).unwrap();
        let block = tensor.ggml_type().layout().unwrap().bytes as u64;
        let at = (tensor.file_offset() + tensor.size().unwrap() - block) as usize;
        let mut bytes = AlignedVec::from_slice(&clean);
        bytes[at..at + scale].fill(0xff);
        let error = Model::from_bytes(&bytes).unwrap().verify().unwrap_err().to_string();
        assert!(error.contains(name) && error.ends_with(place), "{error}");
    }
}

/// The two real models that `ci/setup` fetches.
#[test]
fn real_models_have_their_configuration() {
    let path = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/ci/models").join(name);
    let smollm = "smollm2-135m-instruct-q4_1.gguf";
    let gemma = "gemma-3-270m-q4_k_m.gguf";
    let rope = |theta, dims, pairing| {
        let (scaling, factors, attention_factor) = (RopeScaling::None, None, None);
        Rope { theta, dims, pairing, scaling, factors, attention_factor }
    };
    for name in [smollm, gemma] {
        let path = path(name);
        if !path.exists() {
            // Not by a macro, whose output is shown of tests that fail.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {name} is missing (ci/setup fetches it)");
            continue;
        }
        let model = Model::open(path).unwrap_or_else(|e| panic!("{e}"));
        assert!(model.unused().is_empty());
        let c = model.config();
        let sizes =
            (c.vocabulary, c.hidden, c.layers, c.heads, c.kv_heads, c.head_dim, c.intermediate, c.context);
        let weights = model.weights().unwrap();
        let bytes: usize =
            weights.layers.iter().map(|l| l.q.bytes() + l.feed_forward.unwrap().down.bytes()).sum();
        if name == smollm {
            assert_eq!(sizes, (49152, 576, 30, 9, 3, 64, 1536, 8192));
            assert_eq!((c.architecture, c.gate, c.norm_eps), (Architecture::Llama, Gate::Silu, 1e-5));
            assert_eq!((c.embedding_scale, c.attention_scale), (1.0, 0.125));
            assert_eq!(
                (c.qk_norm, c.post_norms, c.attention_bias, c.tied_embeddings),
                (false, false, false, true)
            );
            assert_eq!(c.ropes, [rope(1e5, 64, RopePairing::Adjacent)]);
            assert_eq!(c.layer, [Layer::default(); 30]);
            // <|endoftext|> and <|im_end|>
            assert_eq!((&c.stop_tokens[..], c.bos), (&[0, 2][..], None));
            assert_eq!(bytes, 30 * (576 * 576 + 576 * 1536) / 32 * 20);
        } else {
            assert_eq!(sizes, (262_144, 640, 18, 4, 1, 256, 2048, 32768));
            assert_eq!((c.architecture, c.gate, c.norm_eps), (Architecture::Gemma3, Gate::GeluTanh, 1e-6));
            assert_eq!((c.embedding_scale, c.attention_scale), (640f32.sqrt(), 1.0 / 16.0));
            assert_eq!(
                (c.qk_norm, c.post_norms, c.attention_bias, c.tied_embeddings),
                (true, true, false, true)
            );
            let half = RopePairing::HalfSplit;
            assert_eq!(c.ropes, [rope(1e6, 256, half), rope(1e4, 256, half)]);
            let globals: Vec<usize> = (0..18).filter(|&i| c.layer[i].window.is_none()).collect();
            assert_eq!(globals, [5, 11, 17]);
            assert!(c.layer.iter().all(|l| l.rope == usize::from(l.window == Some(512))));
            // <eos> and <end_of_turn>
            assert_eq!((&c.stop_tokens[..], c.bos), (&[1, 106][..], Some(2)));
            assert_eq!(weights.output.format(), QuantFormat::from_name("q8_0"));
        }
    }
}
