//! Latent attention, of whose matrix of keys and values GGUF files have two.

use gllm_kernels_std::core::QuantFormat;
use gllm_kernels_std::model::{Model, Scoring};

use super::folder::{config, Dense, Folder};
use super::quantised::{fp8, matrices};
use super::refused::changed_configurations;
use super::tiny::Tiny;
use super::{assert_alike, logits, numbers};

/// The matrices of a layer's latent attention as checkpoints have them; those of the usual names are not among them.
pub fn tensors(layer: &gllm_kernels_std::model::LayerWeights<'_>, at: &str) -> Vec<Dense> {
    let latent = layer.latent.as_ref().unwrap();
    let norm = |name: &str, x: &[f32]| Dense::floats(&format!("{at}.{name}.weight"), &[x.len()], x);
    let matrix = |name: &str, w: gllm_kernels_std::model::Matrix<'_>| {
        Dense::stored(&format!("{at}.{name}.weight"), w.format(), &[w.rows(), w.cols()], &numbers(w))
    };
    let mut all = vec![matrix("kv_a_proj_with_mqa", layer.k), norm("kv_a_layernorm", &latent.norm)];
    match (latent.query, &latent.query_norm) {
        (Some(query), Some(x)) => {
            all.extend([matrix("q_a_proj", layer.q), norm("q_a_layernorm", x), matrix("q_b_proj", query)]);
        }
        _ => all.push(matrix("q_proj", layer.q)),
    }
    // Of each head the rows of keys, which GGUF files have as columns, and those of values.
    let (mut both, mut rows) = (Vec::new(), 0);
    for (keys, values) in latent.keys.iter().zip(&latent.values) {
        let (x, plain) = (numbers(*keys), keys.cols());
        both.extend((0..plain).flat_map(|p| x.iter().skip(p).step_by(plain)));
        both.extend(numbers(*values));
        rows += plain + values.rows();
    }
    let name = format!("{at}.kv_b_proj.weight");
    all.push(Dense::stored(&name, latent.keys[0].format(), &[rows, latent.norm.len()], &both));
    all
}

/// What the configuration of such a model has beside what others have.
pub fn own_keys(tiny: &Tiny) -> String {
    let query = if tiny.architecture == "mistral4" { "null" } else { "64" };
    let parts = if tiny.architecture == "mistral4" {
        ""
    } else {
        r#","scoring_func":"sigmoid","topk_method":"noaux_tc""#
    };
    format!(
        r#","q_lora_rank":{query},"kv_lora_rank":64,"qk_nope_head_dim":32,"qk_rope_head_dim":16,"v_head_dim":24,"rope_interleave":true{parts}"#
    )
}

fn tiny() -> Tiny {
    Tiny { experts_scale: 1.0, ..Tiny::new("deepseek2", None) }
}

/// A model whose configuration is changed.
fn opened(what: &str, changes: &[(&str, &str)]) -> Model<'static> {
    let tiny = tiny();
    let folder = Folder::new(what);
    let mut json = config(&tiny);
    for (from, to) in changes {
        assert!(json.contains(from), "{from}");
        json = json.replacen(from, to, 1);
    }
    folder.config(&json);
    folder.tensors(&Dense::of(&tiny, &tiny.open()), 1);
    Model::open(folder.path()).unwrap_or_else(|e| panic!("{what}: {e}"))
}

/// What configurations say of scores, groups, layers and positions.
#[test]
fn configurations() {
    let usual = opened("latent", &[]);
    let experts = usual.config().experts.unwrap();
    let groups = experts.groups.unwrap();
    assert_eq!((groups.count, groups.used, experts.scoring), (4, 2, Scoring::Sigmoid));
    assert_eq!(groups.counted, 2);
    let other = [
        (r#""scoring_func":"sigmoid""#, r#""scoring_func":"softmax""#),
        (r#""topk_method":"noaux_tc""#, r#""topk_method":"greedy""#),
        (r#""first_k_dense_replace":1,"#, r#""mlp_layer_types":["dense","sparse","sparse"],"#),
        (r#""model_type":"deepseek_v3""#, r#""model_type":"kimi_k2""#),
        (r#""routed_scaling_factor":1.0"#, r#""routed_scaling_factor":2.5"#),
    ];
    let experts = opened("latent, others", &other).config().experts.unwrap();
    assert_eq!((experts.groups, experts.scoring, experts.scale), (None, Scoring::Softmax, 2.5));

    // Scores have the square of YaRN's logarithm, and angles nothing; layers behind the model's do not count.
    let yarn = r#""rope_scaling":{"type":"yarn","factor":40,"original_max_position_embeddings":64,"beta_fast":32,"beta_slow":1,"mscale":0.707,"mscale_all_dim":0.707}"#;
    let yarn = opened("latent, YaRN", &[(r#""rope_scaling":null"#, yarn)]);
    let factor = (0.0707 * 40f64.ln() + 1.0).powi(2);
    let scale = usual.config().attention_scale as f64;
    assert!((f64::from(yarn.config().attention_scale) / scale - factor).abs() < 1e-6);
    assert_eq!(yarn.config().ropes[0].attention_factor, Some(1.0));
}

/// In DeepSeek V2 a group of experts is as good as its best one.
#[test]
fn best_of_groups() {
    let best = opened("latent, best of groups", &[(r#""noaux_tc""#, r#""group_limited_greedy""#)]);
    assert_eq!(best.config().experts.unwrap().groups.unwrap().counted, 1);
    let gguf = Tiny { experts_scale: 1.0, ..Tiny::with_best_of_groups() }.open();
    assert_alike(&logits(&best), &logits(&gguf), "best of groups");
    let usual = logits(&tiny().open());
    assert!(logits(&best).iter().zip(&usual).any(|(a, b)| (a - b).abs() > 1e-2));
}

/// Layers behind the model's, which guess more tokens, are left out, whatever they have.
#[test]
fn layers_that_guess() {
    let tiny = tiny();
    let gguf = tiny.open();
    let folder = Folder::new("layers that guess");
    folder.config(&config(&tiny).replace(r#""n_group""#, r#""num_nextn_predict_layers":1,"n_group""#));
    let mut tensors = Dense::of(&tiny, &gguf);
    tensors.push(Dense::floats("model.layers.3.self_attn.kv_b_proj.weight", &[3, 2], &[0.0; 6]));
    tensors.push(Dense::words("model.layers.3.eh_proj.weight", &[1], &[7]));
    folder.tensors(&tensors, 1);
    let model = Model::open(folder.path()).unwrap();
    assert_alike(&logits(&model), &logits(&gguf), "layers that guess");
    assert_eq!(model.unused(), [""; 0]);
}

/// Matrices in FP8, of which tiles have scales: those of a model are the numbers that the file means, in blocks of E4M3 where tiles
/// allow it, and else in f16.
#[test]
fn fp8_tiles() {
    for (architecture, hidden, tile) in [
        ("deepseek2", 256, [128, 128]),
        ("deepseek2", 160, [128, 128]),
        ("deepseek2", 160, [32, 16]),
        ("mistral4", 256, [32, 16]),
    ] {
        let tiny = Tiny { experts_scale: 1.0, hidden, ..Tiny::new(architecture, None) };
        let gguf = tiny.open();
        let (mut of_fp8, mut plain) = (Vec::new(), Vec::new());
        for tensor in Dense::of(&tiny, &gguf) {
            let matrix = tensor.shape.len() > 1 && tensor.name.contains(".layers.");
            match matrix && !tensor.name.ends_with("mlp.gate.weight") {
                true => {
                    let (parts, numbers) = fp8(&tensor, tile);
                    of_fp8.extend(parts);
                    plain.push(Dense::halves(&tensor.name, &tensor.shape, &numbers));
                }
                false => {
                    of_fp8.push(tensor.clone());
                    plain.push(tensor);
                }
            }
        }
        let what = format!("{architecture} in FP8, {hidden} inputs, tiles of {tile:?}");
        let json = config(&tiny);
        let quantisation =
            format!(r#","quantization_config":{{"quant_method":"fp8","weight_block_size":{tile:?}}}}}"#);
        let open = |what: &str, tensors: &[Dense], shards: usize| {
            let folder = Folder::new(what);
            folder.config(&format!("{}{quantisation}", json.strip_suffix('}').unwrap()));
            folder.tensors(tensors, shards);
            Model::open(folder.path()).unwrap_or_else(|e| panic!("{what}: {e}"))
        };
        let stored = open(&format!("{what}, stored"), &of_fp8, 1);
        let weights = stored.weights().unwrap();
        let matrices = weights.layers.iter().flat_map(matrices).map(|(_, w)| w);
        let blocks = matrices.filter(|w| w.format() == Some(QuantFormat::E4m3)).map(|w| w.cols());
        let blocks: Vec<usize> = blocks.collect();
        assert_eq!(blocks.contains(&256), hidden == 256 && tile == [128, 128], "{what}: {blocks:?}");
        assert!(tile == [128, 128] || blocks.is_empty(), "{what}: {blocks:?}");
        let want = logits(&open(&format!("{what}, plain"), &plain, 1));
        // Scales may be in another file than what they belong to.
        for shards in [1, 7] {
            assert_alike(&logits(&open(&format!("{what} {shards}"), &of_fp8, shards)), &want, &what);
        }
    }
}

#[test]
fn refused() {
    let yarn = |mscale: &str| {
        format!(
            r#""rope_scaling":{{"type":"yarn","factor":40,"original_max_position_embeddings":64{mscale}}}"#
        )
    };
    let (without, unequal) = (yarn(""), yarn(r#","mscale":1.0,"mscale_all_dim":0.5"#));
    let leak = |text: String| -> &'static str { text.leak() };
    changed_configurations(
        &tiny(),
        &[
            (r#","kv_lora_rank":64"#, "", &["kv_lora_rank is missing"]),
            (r#""kv_lora_rank":64"#, r#""kv_lora_rank":0"#, &["kv_lora_rank", "0"]),
            (r#""kv_lora_rank":64"#, r#""kv_lora_rank":4294967295"#, &["4294967295 + 16"]),
            (r#""kv_lora_rank":64"#, r#""kv_lora_rank":32"#, &["kv_a_proj_with_mqa", "[64, 80]", "[64, 48]"]),
            (r#""qk_nope_head_dim":32"#, r#""qk_nope_head_dim":30"#, &["kv_b_proj", "[64, 224]", "216"]),
            (r#""qk_nope_head_dim":32"#, r#""qk_nope_head_dim":0"#, &["kv_b_proj", "[64, 224]", "96"]),
            (
                r#""qk_nope_head_dim":32,"qk_rope_head_dim":16,"v_head_dim":24"#,
                r#""qk_nope_head_dim":56,"qk_rope_head_dim":16,"v_head_dim":0"#,
                &["kv_b_proj", "56 and 0 rows"],
            ),
            (r#""qk_rope_head_dim":16"#, r#""qk_rope_head_dim":15"#, &["key_length", "79"]),
            (r#""q_lora_rank":64"#, r#""q_lora_rank":null"#, &["q_proj", "missing"]),
            (r#""rope_interleave":true"#, r#""rope_interleave":false"#, &["rope_interleave", "false"]),
            (
                r#""rope_interleave":true"#,
                r#""partial_rotary_factor":0.5"#,
                &["partial_rotary_factor", "0.5", "16", "48"],
            ),
            (r#""rope_interleave":true"#, r#""moe_layer_freq":2"#, &["moe_layer_freq", "2"]),
            (r#""sigmoid""#, r#""sqrtsoftplus""#, &["scoring_func", "sqrtsoftplus"]),
            (r#""noaux_tc""#, r#""any""#, &["topk_method", "any", "group_limited_greedy"]),
            (r#""norm_topk_prob":true,"#, "", &["norm_topk_prob is missing"]),
            (
                r#""model_type":"deepseek_v3""#,
                r#""model_type":"deepseek_v2""#,
                &["norm_topk_prob", "deepseek_v2"],
            ),
            (
                r#""first_k_dense_replace":1"#,
                r#""mlp_layer_types":["dense","sparse","dense"]"#,
                &["mlp_layer_types", "dense", "behind sparse"],
            ),
            (r#""rope_scaling":null"#, leak(without), &["mscale", "1.36"]),
            (r#""rope_scaling":null"#, leak(unequal), &["mscale", "1.15"]),
        ],
    );
}

/// How text is cut into words has a name.
#[test]
fn words() {
    let tiny = tiny();
    let split = |regex: &str| {
        let regex = regex.replace('\\', r"\\").replace('"', r#"\""#);
        format!(r#"{{"type":"Split","pattern":{{"Regex":"{regex}"}},"behavior":"Isolated","invert":false}}"#)
    };
    let deepseek: &[&str] = &[
        r"\p{N}{1,3}",
        "[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+",
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
    ];
    let exaone = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
    let folder = Folder::new("words");
    folder.config(&config(&tiny));
    folder.tensors(&Dense::of(&tiny, &tiny.open()), 1);
    for (steps, name) in [(deepseek, "deepseek-v3"), (&[exaone], "exaone-moe")] {
        let steps: Vec<_> = steps.iter().map(|step| split(step)).collect();
        folder.file(
            "tokenizer.json",
            format!(
                r#"{{"pre_tokenizer":{{"type":"Sequence","pretokenizers":[{},{{"type":"ByteLevel","use_regex":false}}]}},"model":{{"type":"BPE","vocab":{{"a":0,"b":1,"ab":2}},"merges":["a b"]}}}}"#,
                steps.join(",")
            ),
        );
        let model = Model::open(folder.path()).unwrap();
        assert_eq!(model.metadata("tokenizer.ggml.pre").unwrap().as_str(), Some(name));
    }
}
