// Layers that have something else than attention, as checkpoints have them.

use gllm_kernels_std::model::{
    Config, LayerWeights, LinearAttention, Matrix, Model, Recurrence, RecurrentWeights, Rule,
    ShortConvolution,
};

use super::folder::{config, Dense, Folder};
use super::refused::changed_configurations;
use super::tiny::Tiny;
use super::{assert_alike, logits, numbers};

/// The tensors of a layer in place of attention, and what their names begin with.
pub fn tensors(
    config: &Config,
    layer: &LayerWeights<'_>,
    recurrent: &RecurrentWeights<'_>,
    at: &dyn Fn(&str) -> String,
) -> Vec<Dense> {
    match config.recurrence {
        Some(Recurrence::Linear(of)) if of.rule == Rule::StateSpace => {
            state_space(&of, layer, recurrent, &at("linear_attn"))
        }
        Some(Recurrence::Linear(of)) => linear_attention(config, &of, layer, recurrent, &at("linear_attn")),
        Some(Recurrence::Convolution(of)) => convolution(&of, layer, recurrent, &at("conv")),
        _ => panic!("another recurrence"),
    }
}

fn convolution(
    of: &ShortConvolution,
    layer: &LayerWeights<'_>,
    recurrent: &RecurrentWeights<'_>,
    at: &str,
) -> Vec<Dense> {
    let inputs = [layer.q, layer.k, layer.v];
    let x: Vec<f32> = inputs.iter().flat_map(|&w| numbers(w)).collect();
    let stored = |name: &str, rows: usize, x: &[f32]| {
        Dense::stored(&format!("{at}.{name}.weight"), layer.q.format(), &[rows, of.channels], x)
    };
    let taps = by_channel(&recurrent.convolution, of.taps);
    vec![
        stored("in_proj", 3 * of.channels, &x),
        stored("out_proj", of.channels, &numbers(layer.output)),
        Dense::floats(&format!("{at}.conv.weight"), &[of.channels, 1, of.taps], &taps),
    ]
}

/// A state space, whose channels are values, keys and queries, in this order.
fn state_space(
    of: &LinearAttention,
    layer: &LayerWeights<'_>,
    recurrent: &RecurrentWeights<'_>,
    at: &str,
) -> Vec<Dense> {
    let linear = recurrent.linear.as_ref().unwrap();
    let inputs = [linear.gates, layer.v, layer.k, layer.q, linear.decays[0]];
    let x: Vec<f32> = inputs.iter().flat_map(|&w| numbers(w)).collect();
    let matrix = |name: &str, w: Matrix<'_>, rows: usize, x: &[f32]| {
        Dense::stored(&format!("{at}.{name}.weight"), w.format(), &[rows, w.cols()], x)
    };
    let vector = |name: &str, x: &[f32]| Dense::floats(&format!("{at}.{name}"), &[x.len()], x);
    let keys = of.key_heads * of.key_size;
    let in_file = |x: &[f32], each: usize| {
        [&x[2 * keys * each..], &x[keys * each..2 * keys * each], &x[..keys * each]].concat()
    };
    let taps = in_file(&by_channel(&recurrent.convolution, of.taps), of.taps);
    let rates: Vec<f32> = linear.rate.iter().map(|rate| (-rate).ln()).collect();
    let mut all = vec![
        matrix("in_proj", layer.q, inputs.iter().map(Matrix::rows).sum(), &x),
        matrix("out_proj", layer.output, layer.output.rows(), &numbers(layer.output)),
        Dense::floats(&format!("{at}.conv1d.weight"), &[of.channels(), 1, of.taps], &taps),
        vector("conv1d.bias", &in_file(recurrent.convolution_bias.as_ref().unwrap(), 1)),
        vector("dt_bias", &linear.decay_bias),
        vector("A_log", &rates),
        vector("D", linear.skip.as_ref().unwrap()),
    ];
    all.extend(of.normed.then(|| vector("norm.weight", &linear.norm)));
    all
}

/// The taps of each channel side by side.
fn by_channel(by_tap: &[f32], taps: usize) -> Vec<f32> {
    let channels = by_tap.len() / taps;
    (0..channels).flat_map(|c| (0..taps).map(move |t| by_tap[t * channels + c])).collect()
}

/// Linear attention, whose heads of values follow each other where they belong to the same head of keys.
fn linear_attention(
    config: &Config,
    of: &LinearAttention,
    layer: &LayerWeights<'_>,
    recurrent: &RecurrentWeights<'_>,
    at: &str,
) -> Vec<Dense> {
    let linear = recurrent.linear.as_ref().unwrap();
    let each = of.value_heads / of.key_heads;
    // The heads of values in this order, in pieces of `len`.
    let grouped = |x: &[f32], len: usize| {
        let head = |h: usize| if of.tiled { h % each * of.key_heads + h / each } else { h };
        (0..of.value_heads).flat_map(|h| x[head(h) * len..][..len].to_vec()).collect::<Vec<_>>()
    };
    let matrix = |name: &str, w: Matrix<'_>, rows: usize, x: Vec<f32>| {
        Dense::stored(&format!("{at}.{name}.weight"), w.format(), &[rows, w.cols()], &x)
    };
    let vector = |name: &str, x: Vec<f32>| Dense::floats(&format!("{at}.{name}"), &[x.len()], &x);
    let hidden = config.hidden;
    let rows = |w: Matrix<'_>, size: usize| grouped(&numbers(w), size * hidden);
    let qkv = [numbers(layer.q), numbers(layer.k), rows(layer.v, of.key_size)].concat();
    let taps = by_channel(&recurrent.convolution, of.taps);
    let (of_keys, of_values) = taps.split_at(2 * of.key_heads * of.key_size * of.taps);
    let taps = [of_keys, &grouped(of_values, of.key_size * of.taps)].concat();
    let output = numbers(layer.output);
    let output = output.chunks(of.values()).flat_map(|row| grouped(row, of.key_size)).collect();
    let z = rows(linear.gates, of.key_size);
    let inputs = match linear.decays[..] {
        [b, a] => vec![
            matrix("in_proj_qkv", layer.q, of.channels(), qkv),
            matrix("in_proj_z", linear.gates, of.values(), z),
            matrix("in_proj_b", b, of.value_heads, rows(b, 1)),
            matrix("in_proj_a", a, of.value_heads, rows(a, 1)),
        ],
        // All of what belongs to a head of keys stands together.
        _ => {
            let (keys, len) = (of.key_heads * of.key_size * hidden, of.key_size * hidden);
            let of_head = |h: usize| {
                let of_values = h * each * len..(h + 1) * each * len;
                let v = of_values.start + 2 * keys..of_values.end + 2 * keys;
                [&qkv[h * len..][..len], &qkv[keys + h * len..][..len], &qkv[v], &z[of_values]].concat()
            };
            let qkvz: Vec<f32> = (0..of.key_heads).flat_map(of_head).collect();
            let ba = linear.decays[0];
            vec![
                matrix("in_proj_qkvz", layer.q, of.channels() + of.values(), qkvz),
                matrix("in_proj_ba", ba, ba.rows(), numbers(ba)),
            ]
        }
    };
    let others = [
        Dense::floats(&format!("{at}.conv1d.weight"), &[of.channels(), 1, of.taps], &taps),
        vector("dt_bias", grouped(&linear.decay_bias, 1)),
        vector("A_log", grouped(&linear.rate, 1).into_iter().map(|rate| (-rate).ln()).collect()),
        vector("norm.weight", linear.norm.clone()),
        matrix("out_proj", layer.output, hidden, output),
    ];
    inputs.into_iter().chain(others).collect()
}

#[test]
fn refused() {
    changed_configurations(
        &Tiny::new("granitehybrid", None),
        &[
            (r#""mamba_n_heads":6"#, r#""mamba_n_heads":5"#, &["time_step_rank", "5", "2 heads"]),
            (
                r#""mamba_n_heads":6"#,
                r#""mamba_n_heads":8"#,
                &["linear_attn.in_proj", "[64, 326]", "[64, 392]"],
            ),
            (r#""mamba_d_head":16"#, r#""mamba_d_head":"auto""#, &["inner_size", "128", "6 heads"]),
            (r#","mamba_d_state":32"#, "", &["mamba_d_state is missing"]),
            (r#""mamba_n_groups":2"#, r#""mamba_n_groups":0"#, &["group_count", "0"]),
            (r#""mamba_d_conv":4"#, r#""mamba_d_conv":1"#, &["conv_kernel", "1", "2 to 8"]),
            ("[0.0,Infinity]", "[0.1,Infinity]", &["time_step_limit", "0.1"]),
            ("[0.0,Infinity]", "[0.0,8.0]", &["time_step_limit", "8.0"]),
            (r#""nope""#, r#""alibi""#, &["position_embedding_type", "alibi"]),
            (r#""attention","mamba"]"#, r#""attention"]"#, &["num_hidden_layers", "3", "2 layers"]),
            (r#""attention","mamba"]"#, r#""attention","mlp"]"#, &["layer_types", "networks"]),
            (r#""attention","mamba"]"#, r#""attention","conv"]"#, &["layer_types", "conv"]),
            (r#""layer_types""#, r#""types""#, &["neither", "layer_types"]),
            (
                r#""num_local_experts":0"#,
                r#""num_local_experts":4,"num_experts_per_tok":2"#,
                &["mlp.gate", "missing"],
            ),
        ],
    );
    let pattern = r#""hybrid_override_pattern":"M-*-M""#;
    changed_configurations(
        &Tiny::new("nemotron_h", None),
        &[
            (pattern, r#""hybrid_override_pattern":"M-*-Q""#, &["hybrid_override_pattern", "Q"]),
            (pattern, r#""hybrid_override_pattern":"M-*-""#, &["num_hidden_layers", "5", "4"]),
            (pattern, r#""hybrid_override_pattern":"MM*-M""#, &["1.linear_attn.in_proj", "missing"]),
            (pattern, r#""hybrid_override_pattern":"M-*EM""#, &["moe_intermediate_size"]),
            (pattern, r#""hybrid_override_pattern":"-M*-M""#, &["feed_forward_length"]),
            (r#""mlp_hidden_act":"relu2""#, r#""mlp_hidden_act":"silu""#, &["mlp_hidden_act", "silu"]),
            (r#""mamba_hidden_act":"silu""#, r#""mamba_hidden_act":"gelu""#, &["mamba_hidden_act", "gelu"]),
            (r#""mamba_hidden_act":"silu""#, r#""moe_latent_size":32"#, &["moe_latent_size", "32"]),
        ],
    );
}

/// Which layers have attention may be said by a period.
#[test]
fn periods() {
    let tiny = Tiny { experts_scale: 1.0, ..Tiny::new("qwen3next", None) };
    let gguf = tiny.open();
    let folder = Folder::new("periods");
    let kinds = r#""layer_types":["linear_attention","full_attention","linear_attention"]"#;
    assert!(config(&tiny).contains(kinds));
    folder.config(&config(&tiny).replace(kinds, r#""full_attention_interval":2"#));
    folder.tensors(&Dense::of(&tiny, &gguf), 1);
    let model = Model::open(folder.path()).unwrap();
    assert_alike(&logits(&model), &logits(&gguf), "periods");
}
