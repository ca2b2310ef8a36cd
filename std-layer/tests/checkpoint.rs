//! Checkpoints of Hugging Face's library: small ones are written here, opened as models, and compared with GGUF files of the same numbers.

#[path = "checkpoint/codes.rs"]
mod codes;
#[path = "checkpoint/encoders.rs"]
mod encoders;
#[path = "decoder/exact.rs"]
mod exact;
#[path = "checkpoint/factors.rs"]
mod factors;
#[path = "checkpoint/folder.rs"]
mod folder;
#[path = "checkpoint/gemma3n.rs"]
mod gemma3n;
#[path = "checkpoint/gemma4.rs"]
mod gemma4;
#[path = "checkpoint/gpt_oss.rs"]
mod gpt_oss;
#[path = "checkpoint/hostile.rs"]
mod hostile;
#[path = "checkpoint/latent.rs"]
mod latent;
#[path = "checkpoint/own.rs"]
mod own;
#[path = "checkpoint/quantised.rs"]
mod quantised;
#[path = "checkpoint/recurrent.rs"]
mod recurrent;
#[path = "checkpoint/refused.rs"]
mod refused;
#[path = "checkpoint/scaled.rs"]
mod scaled;
#[path = "checkpoint/single.rs"]
mod single;
#[path = "encoder/small.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod small;
#[path = "decoder/tiny.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod tiny;
#[path = "checkpoint/uneven.rs"]
mod uneven;

use exact::{exact, generator};
use folder::{config, Dense, Folder};
use gllm_kernels_std::core::QuantFormat;
use gllm_kernels_std::model::{Matrix, Model, Pooling};
use gllm_testkit::effort;
use tiny::Tiny;

/// Exact logits behind each of some tokens; of encoders their row.
fn logits(model: &Model<'_>) -> Vec<f32> {
    let tokens: Vec<u32> = (0..60u32).map(|i| (i * i + 7 * i) % 97).collect();
    let mut generator = generator(model, 2, exact());
    match model.config().causal {
        true => generator.logits(&tokens).unwrap(),
        false => generator.embed(&[&tokens], Pooling::Mean).unwrap().remove(0),
    }
}

fn assert_alike(got: &[f32], want: &[f32], what: &str) {
    let scale = want.iter().fold(1f32, |m, x| m.max(x.abs()));
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= 3e-5 * scale, "{what}: logit {i} is {got} instead of {want}");
    }
}

/// Small models without experts, and with them: Mixtral, Qwen's, with one expert, too, gpt-oss, and those of DeepSeek's kind. No configuration has a factor for what experts give.
fn all() -> Vec<Tiny> {
    let dense = [
        "llama",
        "qwen2",
        "qwen3",
        "gemma3",
        "gemma",
        "gemma2",
        "phi3",
        "smollm3",
        "granite",
        "minicpm",
        "chatglm",
        "glm4",
        "ernie4_5",
        "seed_oss",
        "exaone4",
        "olmo2",
        "cohere2",
        "command-r",
        "starcoder2",
        "stablelm",
        "nemotron",
        "hunyuan-dense",
        "arcee",
        "qwen35",
        "lfm2",
        "granitehybrid",
        "nemotron_h",
        "falcon-h1",
        "mamba2",
        "internlm2",
        "exaone",
        "phi2",
        "jais2",
        "falcon",
        "qwen",
        "xverse",
        "orion",
        "olmo",
        "apertus",
        "mistral3",
        "gemma3n",
    ]
    .map(|name| Tiny::new(name, None));
    let mixtures = [
        Tiny { experts: Some((8, 2)), ..dense[0] },
        Tiny::new("qwen2moe", None),
        Tiny::new("qwen3moe", None),
        Tiny { experts: Some((1, 1)), ..Tiny::new("qwen3moe", None) },
        Tiny::new("gpt-oss", None),
        Tiny::new("glm4moe", None),
        Tiny::solar_open(),
        Tiny::new("exaone-moe", None),
        Tiny::new("afmoe", None),
        Tiny::new("ernie4_5-moe", None),
        Tiny::new("dots1", None),
        Tiny::new("olmoe", None),
        Tiny::new("deepseek2", None),
        Tiny::youtu(),
        Tiny::new("minicpm3", None),
        Tiny::new("phimoe", None),
        Tiny::new("mistral4", None),
        Tiny::new("qwen3next", None),
        Tiny::new("qwen35moe", None),
        Tiny::new("qwen3vlmoe", None),
        Tiny::new("lfm2moe", None),
        Tiny::new("minimax-m2", None),
        Tiny::new("hunyuan-moe", None),
        Tiny::new("granitemoe", None),
        Tiny::new("nemotron_h_moe", None),
        Tiny::new("bailingmoe", None),
        Tiny::new("deepseek", None),
        Tiny::new("bailingmoe2", None),
        Tiny::new("llama4", None),
        gemma4::tiny(),
        Tiny::with_per_layer(),
        Tiny { layers: 4, ..Tiny::with_normed_experts() },
    ];
    let uneven = Tiny { intermediate: 256, ..Tiny::new("deci", None) };
    // Heads of NeoX have keys of their own, and those of Falcon 7B share one.
    let heads = [("gptneox", 4), ("falcon", 1), ("gpt2", 4), ("starcoder", 1)]
        .map(|(name, kv_heads)| Tiny { kv_heads, ..Tiny::new(name, None) });
    let encoders = Tiny::encoders().filter(|tiny| tiny.format.is_none());
    dense
        .into_iter()
        .chain(heads)
        .chain(encoders)
        .chain([uneven])
        .chain(mixtures.map(|tiny| Tiny { experts_scale: 1.0, ..tiny }))
        .collect()
}

/// The logits of a checkpoint are those of the GGUF file with the same numbers: for each architecture and type, in one file and in several.
#[test]
fn logits_are_those_of_gguf_files() {
    // On an emulator, which is slow, a few of them: what files say is read by the same code everywhere.
    for tiny in all().into_iter().step_by(if effort() == 1 { 4 } else { 1 }) {
        let blocks = (tiny.architecture == "gpt-oss").then_some(Some(QuantFormat::Mxfp4));
        for format in [None, Some(QuantFormat::F16), Some(QuantFormat::Bf16)].into_iter().chain(blocks) {
            let tiny = Tiny { format, ..tiny };
            let gguf = tiny.open();
            let want = logits(&gguf);
            for shards in [1, 3] {
                let what = format!("{}, {:?}, {format:?}, {shards} files", tiny.architecture, tiny.experts);
                let folder = Folder::new(&what);
                folder.config(&config(&tiny));
                folder.tensors(&Dense::of(&tiny, &gguf), shards);
                encoders::dense(&folder, &gguf);
                let model = Model::open(folder.path()).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_alike(&logits(&model), &want, &what);
                assert_eq!(model.unused(), [""; 0], "{what}");
                model.verify().unwrap();
                // Matrices are as they were stored: blocks are experts' alone.
                let weights = model.weights().unwrap();
                for matrix in weights.layers[1].experts.iter().flat_map(|experts| experts.matrices()) {
                    assert_eq!(matrix.format(), format, "{what}");
                }
                let dense = if Some(format) == blocks { Some(QuantFormat::Bf16) } else { format };
                assert_eq!(weights.layers[0].q.format(), dense, "{what}");
            }
        }
    }
}

/// Of models that understand images, too, the part for texts is opened, wherever its configuration stands and whatever its tensors are called.
#[test]
fn parts_for_texts() {
    // The architecture, `model_type`, what names of tensors begin with and those of the output matrix, and whether the configuration stands in another one.
    let all = [
        ("gemma3", "gemma3_text", ["language_model.model.", ""], true),
        ("llama", "llama", ["model.text_model.", "lm_head."], true),
        ("llama", "ministral3", ["language_model.model.", "language_model.lm_head."], true),
        ("qwen3", "qwen3_vl_text", ["model.language_model.", "lm_head."], true),
        ("qwen2", "qwen2_5_vl", ["model.", "lm_head."], false),
    ];
    for (architecture, kind, [model, output], nested) in all {
        let tiny = Tiny::new(architecture, None);
        let gguf = tiny.open();
        let mut tensors = Dense::of(&tiny, &gguf);
        for tensor in &mut tensors {
            let name = tensor.name.replacen("model.", model, 1);
            tensor.name = name.replacen("lm_head.", output, 1);
        }
        for name in ["vision_tower.a.weight", "model.visual.layers.0.mlp.weight", "multi_modal_projector.b"] {
            tensors.push(Dense::floats(name, &[2], &[1.0, 2.0]));
        }
        let sections = r#""rope_scaling":{"type":"mrope","mrope_section":[4,6,6]}"#;
        let text = config(&tiny).replace(r#""rope_scaling":null"#, sections);
        let (from, _) = text.split_once(',').unwrap();
        let text = text.replacen(from, &format!(r#"{{"model_type":"{kind}""#), 1);
        let folder = Folder::new(kind);
        folder.config(&match nested {
            true => format!(
                r#"{{"model_type":"whole","text_config":{text},"vision_config":{{"hidden_size":7}}}}"#
            ),
            false => text.clone(),
        });
        folder.tensors(&tensors, 2);
        let opened = Model::open(folder.path()).unwrap_or_else(|e| panic!("{kind}: {e}"));
        assert_alike(&logits(&opened), &logits(&gguf), kind);
        assert_eq!(opened.unused(), [""; 0], "{kind}");
    }
}

/// What Gemma's configuration does not say is what Hugging Face's library assumes, and newer ones have parameters of rotation for both kinds of layers.
#[test]
fn what_gemmas_configurations_say() {
    let tiny = Tiny::new("gemma3", None);
    let folder = Folder::new("gemma3 usual");
    let mut text = config(&tiny);
    for key in [r#""rms_norm_eps":1e-5,"#, r#""rope_theta":100000,"#, r#","rope_local_base_freq":10000"#] {
        assert!(text.contains(key), "{key}");
        text = text.replacen(key, "", 1);
    }
    folder.config(&format!(r#"{{"text_config":{text},"eos_token_id":[1,6]}}"#));
    folder.tensors(&Dense::of(&tiny, &tiny.open()), 1);
    let opened = Model::open(folder.path()).unwrap();
    let c = opened.config();
    assert_eq!((c.norm_eps, c.ropes[0].theta, c.ropes[1].theta), (1e-6, 1e6, 1e4));
    assert_eq!(c.stop_tokens, [1, 6]);
    let both = r#""rope_parameters":{"full_attention":{"rope_type":"linear","factor":8.0,"rope_theta":5e6},"sliding_attention":{"rope_type":"default","rope_theta":20000.0}}"#;
    folder.config(&config(&tiny).replacen(r#""rope_scaling":null"#, both, 1).replacen(
        r#","rope_local_base_freq":10000"#,
        "",
        1,
    ));
    let opened = Model::open(folder.path()).unwrap();
    let ropes = &opened.config().ropes;
    use gllm_kernels_std::core::RopeScaling;
    assert_eq!((ropes[0].theta, ropes[0].scaling), (5e6, RopeScaling::Linear { factor: 8.0 }));
    assert_eq!((ropes[1].theta, ropes[1].scaling), (2e4, RopeScaling::None));
}

/// A model is opened by its folder, its configuration, or one of its files.
#[test]
fn every_file_names_the_folder() {
    let tiny = Tiny::new("llama", None);
    let gguf = tiny.open();
    let folder = Folder::new("names");
    folder.config(&config(&tiny));
    folder.tensors(&Dense::of(&tiny, &gguf), 2);
    for name in ["", "config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json"] {
        let model = Model::open(folder.path().join(name)).unwrap_or_else(|e| panic!("{name:?}: {e}"));
        assert_eq!(model.config().hidden, tiny.hidden);
    }
}

/// Scaled positions are those of the metadata that say the same.
#[test]
fn scaled_positions() {
    let tiny = Tiny::new("llama", None);
    let gguf = tiny.open();
    let tensors = Dense::of(&tiny, &gguf);
    let opened = |scaling: &str| {
        let folder = Folder::new(scaling);
        folder.config(
            &config(&tiny).replace(r#""rope_scaling":null"#, &format!(r#""rope_scaling":{scaling}"#)),
        );
        folder.tensors(&tensors, 1);
        Model::open(folder.path()).unwrap_or_else(|e| panic!("{scaling}: {e}"))
    };
    use gllm_kernels_std::core::RopeScaling;
    let linear = opened(r#"{"rope_type":"linear","factor":4.0}"#);
    assert_eq!(linear.config().ropes[0].scaling, RopeScaling::Linear { factor: 4.0 });
    assert_eq!(opened(r#"{"rope_type":"default"}"#).config().ropes[0].scaling, RopeScaling::None);

    let yarn =
        opened(r#"{"type":"yarn","factor":4.0,"original_max_position_embeddings":2048,"beta_fast":16}"#);
    let (factor, beta_fast, beta_slow, original_context) = (4.0, 16.0, 1.0, 2048.0);
    let scaling = RopeScaling::Yarn { factor, beta_fast, beta_slow, original_context };
    assert_eq!((yarn.config().ropes[0].scaling, yarn.config().context), (scaling, 8192));

    // DeepSeek's two factors of YaRN's logarithm.
    let both = opened(
        r#"{"type":"yarn","factor":4.0,"original_max_position_embeddings":2048,"mscale":1,"mscale_all_dim":0.5}"#,
    );
    let want = (0.1 * 4f64.ln() + 1.0) / (0.05 * 4f64.ln() + 1.0);
    assert!((both.config().ropes[0].attention_factor.unwrap() - want).abs() < 1e-6);

    // Llama 3.1: waves shorter than 512 / 4 positions stay, those longer than 512 are divided by 8, those between are interpolated.
    let llama3 = opened(
        r#"{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":512}"#,
    );
    let factors = llama3.config().ropes[0].factors.clone().unwrap();
    assert_eq!(factors.len(), tiny.head_dim / 2);
    for (i, factor) in factors.iter().enumerate() {
        let wave = std::f64::consts::TAU * 100_000f64.powf(i as f64 / 16.0);
        let want = match wave {
            short if short < 128.0 => 1.0,
            long if long > 512.0 => 8.0,
            wave => 1.0 / ((1.0 - (512.0 / wave - 1.0) / 3.0) / 8.0 + (512.0 / wave - 1.0) / 3.0),
        };
        assert!((f64::from(*factor) - want).abs() < 1e-5, "factor {i} is {factor} instead of {want}");
    }
    assert!(factors.iter().any(|f| *f > 1.0 && *f < 8.0));
    // What positions are divided by changes logits.
    let plain = logits(&gguf);
    assert!(logits(&llama3).iter().zip(&plain).any(|(a, b)| (a - b).abs() > 1e-3));
}

/// Windows, tokens, and numbers that only configurations have.
#[test]
fn configurations() {
    let tiny = Tiny::new("gemma3", None);
    let gguf = tiny.open();
    let folder = Folder::new("configurations");
    let json = config(&tiny).replace(
        r#""sliding_window_pattern":6"#,
        r#""layer_types":["sliding_attention","full_attention","sliding_attention"],"final_logit_softcapping":30.0,"eos_token_id":[1,50]"#,
    );
    folder.config(&json);
    folder.file("tokenizer_config.json", r#"{"add_bos_token":true}"#);
    folder.tensors(&Dense::of(&tiny, &gguf), 1);
    let model = Model::open(folder.path()).unwrap();
    let found = model.config();
    let windows: Vec<_> = found.layer.iter().map(|layer| layer.window).collect();
    assert_eq!(windows, [Some(24), None, Some(24)]);
    assert_eq!((found.logit_softcap, &found.stop_tokens[..], found.bos), (Some(30.0), &[1, 50][..], Some(2)));
    assert!((found.attention_scale - 0.176_776_7).abs() < 1e-7, "{}", found.attention_scale);

    // Generation has a file of its own, which counts first.
    folder.file("generation_config.json", r#"{"eos_token_id":7,"bos_token_id":3}"#);
    let model = Model::open(folder.path()).unwrap();
    assert_eq!((&model.config().stop_tokens[..], model.config().bos), (&[7][..], Some(3)));

    // Mistral's window ends the context, as all layers have it.
    let tiny = Tiny::new("llama", None);
    let gguf = tiny.open();
    let folder = Folder::new("mistral");
    let json =
        config(&tiny).replace(r#""model_type":"llama""#, r#""model_type":"mistral","sliding_window":1024"#);
    folder.config(&json);
    folder.tensors(&Dense::of(&tiny, &gguf), 1);
    assert_eq!(Model::open(folder.path()).unwrap().config().context, 1024);
}

/// Whether scores of experts are divided by their sum: as Qwen's configurations say, not if they say nothing; always in Mixtral.
#[test]
fn scores_of_experts() {
    let tiny = Tiny::new("qwen3moe", None);
    let gguf = tiny.open();
    let folder = Folder::new("scores");
    folder.tensors(&Dense::of(&tiny, &gguf), 1);
    for (said, normalised) in
        [(r#""norm_topk_prob":true,"#, true), (r#""norm_topk_prob":false,"#, false), ("", false)]
    {
        folder.config(&config(&tiny).replace(r#""norm_topk_prob":true,"#, said));
        let experts = Model::open(folder.path()).unwrap().config().experts.unwrap();
        assert_eq!((experts.normalised, experts.count, experts.used), (normalised, 6, 3), "{said}");
        assert_eq!((experts.intermediate, experts.scale, experts.biases), (96, 1.0, false), "{said}");
    }
    let tiny = Tiny { experts: Some((8, 2)), ..Tiny::new("llama", None) };
    let gguf = tiny.open();
    let folder = Folder::new("scores of Mixtral");
    folder.tensors(&Dense::of(&tiny, &gguf), 1);
    folder.config(&config(&tiny));
    let experts = Model::open(folder.path()).unwrap().config().experts.unwrap();
    assert_eq!((experts.normalised, experts.count, experts.used, experts.intermediate), (true, 8, 2, 96));
}

/// All numbers of a matrix.
fn numbers(matrix: Matrix<'_>) -> Vec<f32> {
    use gllm_kernels_std::core::Kernels;
    let mut y = vec![f32::NAN; matrix.rows() * matrix.cols()];
    match matrix {
        Matrix::Quantised(w) => Kernels::<f32>::detect().dequant(w, &mut y).unwrap(),
        // SAFETY: elements of the view.
        Matrix::F32(w) => y.iter_mut().enumerate().for_each(|(i, y)| unsafe {
            *y = *w.as_ptr().add(i / w.cols() * w.row_stride() + i % w.cols());
        }),
    }
    y
}
