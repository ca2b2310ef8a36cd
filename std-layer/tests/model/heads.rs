//! Heads and networks that differ from layer to layer, embeddings for each layer, and experts with norms of their own, as Gemma 4 has them.

use gllm_kernels_std::core::{Kernels, QuantFormat};
use gllm_kernels_std::gguf::{GgmlType, Value, ValueType};
use gllm_kernels_std::model::{Experts, KvHeads, Matrix, Model, ModelError, Scoring, Shared};

use super::draft::Draft;
use super::{bad_value, config, refused};

const KV_HEADS: &str = "gemma4.attention.head_count_kv";
const SHARED: &str = "gemma4.attention.shared_kv_layers";

/// Layers with a window have their own heads; numbers that cannot be are refused with their keys.
#[test]
fn heads_of_layers() {
    let draft = Draft::of("gemma4");
    let c = config(&draft);
    let of = |count, dim| KvHeads { count, dim };
    assert_eq!([0, 5, 6].map(|layer| c.heads_of(layer)), [of(4, 8), of(2, 16), of(4, 8)]);
    assert_eq!([4, 5].map(|layer| c.queries_of(layer)), [32, 64]);
    let with = |counts: &[u32]| {
        let mut draft = Draft::of("gemma4");
        let counts: Vec<_> = counts.iter().map(|&n| Value::U32(n)).collect();
        draft.set_array(KV_HEADS, ValueType::U32, &counts);
        bad_value(&draft).0
    };
    // Too few, not the same for all layers with a window, none, and no divisor of the heads.
    for counts in [&[4; 6][..], &[4, 4, 4, 4, 4, 2, 2], &[4, 4, 4, 4, 4, 0, 4], &[3, 3, 3, 3, 3, 2, 3]] {
        assert_eq!(with(counts), KV_HEADS, "{counts:?}");
    }
    for (key, n) in [("attention.key_length_swa", 7), ("attention.value_length_swa", 6)] {
        let (mut draft, key) = (Draft::of("gemma4"), format!("gemma4.{key}"));
        draft.set(&key, Value::U32(n));
        assert_eq!(bad_value(&draft).0, key);
    }
    let mut draft = Draft::of("gemma4");
    draft.set("gemma4.rope.dimension_count_swa", Value::U32(10));
    assert_eq!(bad_value(&draft).0, "gemma4.rope.dimension_count_swa");
    // Of layers with a window, none has keys for values.
    let mut draft = Draft::of("gemma4");
    draft.tensors.retain(|tensor| tensor.name != "blk.3.attn_v.weight");
    assert!(
        matches!(refused(&draft), ModelError::MissingTensor { name, .. } if name == "blk.3.attn_v.weight")
    );
    // Heads of all layers may be alike: four of 8 elements here. Those with a window still have values.
    let mut draft = Draft::of("gemma4");
    draft.set_array(KV_HEADS, ValueType::U32, &[Value::U32(4); 7]);
    for key in ["key_length", "value_length"] {
        draft.set(&format!("gemma4.attention.{key}"), Value::U32(8));
    }
    for (name, n) in [("q", 32), ("k", 32), ("q_norm", 8), ("k_norm", 8)] {
        let tensor =
            draft.tensors.iter_mut().find(|t| t.name == format!("blk.5.attn_{name}.weight")).unwrap();
        *tensor.dims.last_mut().unwrap() = n;
    }
    let output = draft.tensors.iter_mut().find(|t| t.name == "blk.5.attn_output.weight").unwrap();
    output.dims[0] = 32;
    let c = config(&draft);
    assert_eq!((c.local_heads, [0, 5].map(|layer| c.heads_of(layer))), (None, [of(4, 8); 2]));
    let bytes = draft.bytes();
    let model = Model::from_bytes(&bytes).unwrap();
    let w = model.weights().unwrap();
    assert_eq!(
        [4, 5].map(|layer: usize| w.layers[layer].v.format() == w.layers[layer].k.format()),
        [false, true]
    );
    // Other architectures know nothing of this.
    let mut draft = Draft::of("llama");
    draft.set_array("llama.attention.head_count_kv", ValueType::U32, &[Value::U32(2); 7]);
    assert_eq!(bad_value(&draft).0, "llama.attention.head_count_kv");
}

/// The last layers may attend to what others have.
#[test]
fn layers_without_keys() {
    let mut draft = Draft::of("gemma4");
    draft.set(SHARED, Value::U32(1));
    // Matrices that the model was trained with, but does not use.
    let bytes = draft.bytes();
    let unused = ["blk.6.attn_k.weight", "blk.6.attn_v.weight", "blk.6.attn_k_norm.weight"];
    assert_eq!(Model::from_bytes(&bytes).unwrap().unused(), unused);
    draft.tensor("blk.6.attn_k.bias", &[32], GgmlType::F32);
    assert!(refused(&draft).to_string().contains("blk.6.attn_k.bias"));
    draft.tensors.retain(|tensor| {
        !["attn_k", "attn_v"].iter().any(|name| tensor.name.starts_with(&format!("blk.6.{name}")))
    });
    let bytes = draft.bytes();
    let model = Model::from_bytes(&bytes).unwrap();
    let (c, w) = (model.config(), model.weights().unwrap());
    assert_eq!([4, 5, 6].map(|layer: usize| c.layer[layer].keys_of), [None, None, Some(4)]);
    let layer = &w.layers[6];
    assert_eq!([layer.q, layer.k, layer.v].map(|matrix| matrix.rows()), [32, 0, 0]);
    assert_eq!((layer.q_norm.as_ref().map(Vec::len), &layer.k_norm, &layer.v_norm), (Some(8), &None, &None));
    // All of them, or the only one without a window.
    for n in [7, 2] {
        draft.set(SHARED, Value::U32(n));
        assert_eq!(bad_value(&draft).0, SHARED);
    }
}

/// Embeddings for each layer, and networks of different widths.
#[test]
fn sizes_of_single_layers() {
    let mut draft = Draft::of("gemma4");
    draft.set("gemma4.embedding_length_per_layer_input", Value::U32(4));
    assert!(matches!(refused(&draft), ModelError::MissingTensor { .. }));
    draft.tensor("per_layer_token_embd.weight", &[28, 24], GgmlType::F16);
    draft.tensor("per_layer_model_proj.weight", &[32, 28], GgmlType::F32);
    draft.tensor("per_layer_proj_norm.weight", &[4], GgmlType::F32).fill = 2.0;
    for layer in 0..7 {
        draft.tensor(&format!("blk.{layer}.inp_gate.weight"), &[32, 4], GgmlType::Q8_0);
        draft.tensor(&format!("blk.{layer}.proj.weight"), &[4, 32], GgmlType::F32);
        draft.tensor(&format!("blk.{layer}.post_norm.weight"), &[32], GgmlType::F32).fill = 3.0;
    }
    let scale = draft.tensors.iter_mut().find(|tensor| tensor.name == "blk.2.layer_output_scale.weight");
    scale.unwrap().fill = 0.5;
    let bytes = draft.bytes();
    let model = Model::from_bytes(&bytes).unwrap();
    let w = model.weights().unwrap();
    assert_eq!((model.config().per_layer, model.config().layer[2].scale), (Some(4), Some(0.5)));
    assert_eq!(w.per_layer.unwrap().norm, [2.0 * std::f32::consts::FRAC_1_SQRT_2; 4]);
    let last = |layer: usize| w.layers[layer].per_layer.as_ref().unwrap().post_norm[0];
    assert_eq!((last(1), last(2)), (3.0, 1.5));
    assert_eq!(w.layers[2].post_ffn_norm.as_ref().unwrap()[0], 1.0);

    let widths = |n: &[u32]| {
        let mut draft = Draft::of("gemma4");
        let n: Vec<_> = n.iter().map(|&n| Value::U32(n)).collect();
        draft.set_array("gemma4.feed_forward_length", ValueType::U32, &n);
        draft
    };
    let c = config(&widths(&[64; 7]));
    assert_eq!((c.intermediate, c.most_between(), c.between(6)), (64, 64, 64));
    for n in [&[64; 6][..], &[64, 64, 64, 64, 64, 64, 0]] {
        assert_eq!(bad_value(&widths(n)).0, "gemma4.feed_forward_length");
    }
    assert!(matches!(refused(&widths(&[64, 64, 64, 96, 64, 64, 64])), ModelError::WrongShape { .. }));
}

/// Experts beside the usual network, each with norms of its own; gate and up of an expert may be one tensor.
#[test]
fn experts_with_norms() {
    let with = |fused: bool, factors: bool| {
        let mut draft = Draft::of("gemma4");
        for (key, n) in [("expert_count", 4), ("expert_used_count", 2), ("expert_feed_forward_length", 32)] {
            draft.set(&format!("gemma4.{key}"), Value::U32(n));
        }
        for layer in 0..7 {
            let mut own = |name: &str, dims: &[u64], of, fill| {
                draft.tensor(&format!("blk.{layer}.{name}"), dims, of).fill = fill;
            };
            own("ffn_gate_inp.weight", &[32, 4], GgmlType::F32, 1.0);
            own("ffn_gate_inp.scale", &[32], GgmlType::F32, 3.0);
            for name in ["pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"] {
                own(&format!("{name}.weight"), &[32], GgmlType::F32, 1.0);
            }
            if fused {
                own("ffn_gate_up_exps.weight", &[32, 64, 4], GgmlType::Q8_0, 1.0);
            } else {
                own("ffn_gate_exps.weight", &[32, 32, 4], GgmlType::Q8_0, 1.0);
                own("ffn_up_exps.weight", &[32, 32, 4], GgmlType::Q8_0, 1.0);
            }
            own("ffn_down_exps.weight", &[32, 32, 4], GgmlType::Q8_0, 1.0);
            if factors {
                own("ffn_down_exps.scale", &[4], GgmlType::F32, 2.0);
            }
        }
        draft
    };
    for (fused, factors) in [(true, true), (false, false)] {
        let bytes = with(fused, factors).bytes();
        let model = Model::from_bytes(&bytes).unwrap();
        let expected = Experts {
            count: 4,
            used: 2,
            intermediate: 32,
            scoring: Scoring::Softmax,
            selection_bias: false,
            groups: None,
            normalised: true,
            biases: false,
            scaled_inputs: false,
            scale: 1.0,
            factors,
            normed: true,
            shared: Some(Shared { intermediate: 64, gated: false }),
        };
        assert_eq!(model.config().experts, Some(expected));
        assert!(model.unused().is_empty());
        let w = model.weights().unwrap();
        let layer = &w.layers[3];
        let of = layer.experts.as_ref().unwrap();
        assert_eq!(of.norms.as_ref().unwrap().router, [3.0 * (1.0 / 32f32.sqrt()); 32]);
        assert_eq!(of.factors, factors.then(|| vec![2.0; 4]));
        let shapes = of.matrices().map(|matrix| (matrix.rows(), matrix.cols()));
        assert!(shapes.eq([(32, 32); 12]));
        assert_eq!(layer.feed_forward.unwrap().down.cols(), 64);
    }
    let mut draft = with(true, true);
    draft.tensors.retain(|tensor| tensor.name != "blk.6.pre_ffw_norm_2.weight");
    assert!(
        matches!(refused(&draft), ModelError::MissingTensor { name, .. } if name.contains("blk.6.pre_ffw"))
    );
}

/// Gates that a file has in a matrix of their own are behind the queries of each head; if both are not stored alike, in f16.
#[test]
fn gates_behind_queries() {
    for of in [GgmlType::Q8_0, GgmlType::F32] {
        let mut draft = Draft::of("afmoe");
        for tensor in draft.tensors.iter_mut().filter(|tensor| tensor.name.ends_with("attn_gate.weight")) {
            (tensor.of, tensor.fill) = (of, 0.0);
        }
        let bytes = draft.bytes();
        let model = Model::from_bytes(&bytes).unwrap();
        model.verify().unwrap();
        let format = (of == GgmlType::Q8_0).then_some(QuantFormat::F16);
        for layer in &model.weights().unwrap().layers {
            assert_eq!((layer.q.rows(), layer.q.cols(), layer.q.format()), (128, 32, format));
            // Queries are ones, and gates zeros.
            let Matrix::Quantised(w) = layer.q else { continue };
            let mut numbers = [f32::NAN; 128 * 32];
            Kernels::<f32>::detect().dequant(w, &mut numbers).unwrap();
            for (head, numbers) in numbers.chunks_exact(16 * 32).enumerate() {
                let want = if head % 2 == 0 { 1.0 } else { 0.0 };
                assert!(numbers.iter().all(|&x| x == want), "{head}");
            }
        }
    }
    let refusal = |change: fn(&mut Draft)| {
        let mut draft = Draft::of("afmoe");
        change(&mut draft);
        refused(&draft).to_string()
    };
    let missing = refusal(|draft| draft.tensors.retain(|tensor| tensor.name != "blk.2.attn_gate.weight"));
    assert!(missing.contains("blk.2.attn_gate.weight"), "{missing}");
    let other = refusal(|draft| _ = draft.tensor("blk.1.attn_q_and_gate.weight", &[32, 128], GgmlType::F32));
    assert!(other.contains("blk.1.attn_q_and_gate.weight"), "{other}");
}

/// Of DeciLM's layers some have other heads of keys than others, other networks, or neither.
#[test]
fn layers_that_differ() {
    let with = |heads: &[u32], keys: &[u32], widths: &[u32]| {
        let mut draft = Draft::of("deci");
        let all = [
            ("attention.head_count", heads),
            ("attention.head_count_kv", keys),
            ("feed_forward_length", widths),
        ];
        for (key, numbers) in all {
            let numbers: Vec<_> = numbers.iter().map(|&n| Value::U32(n)).collect();
            draft.set_array(&format!("deci.{key}"), ValueType::U32, &numbers);
        }
        draft.tensors.retain_mut(|tensor| {
            let Some((number, role)) = tensor.name.strip_prefix("blk.").and_then(|n| n.split_once('.'))
            else {
                return true;
            };
            let layer: usize = number.parse().unwrap();
            let width = u64::from(widths[layer]);
            match role {
                "attn_k.weight" | "attn_v.weight" => tensor.dims[1] = 16 * u64::from(keys[layer]),
                "ffn_gate.weight" | "ffn_up.weight" => tensor.dims[1] = width,
                "ffn_down.weight" => tensor.dims[0] = width,
                _ => {}
            }
            if role.starts_with("ffn_") {
                width > 0
            } else {
                heads[layer] > 0
            }
        });
        draft
    };
    let (heads, keys, widths) = ([4, 4, 0, 0, 4, 4, 0], [2, 1, 2, 0, 4, 2, 0], [64, 32, 96, 0, 0, 64, 32]);
    let bytes = with(&heads, &keys, &widths).bytes();
    let model = Model::from_bytes(&bytes).unwrap();
    assert!(model.unused().is_empty());
    let (c, w) = (model.config(), model.weights().unwrap());
    // The fourth layer has nothing, so it is none.
    let found: Vec<_> = c
        .layer
        .iter()
        .map(|l| (l.without_attention, l.kv_heads, l.without_network, l.intermediate))
        .collect();
    assert_eq!(
        found,
        [
            (false, None, false, None),
            (false, Some(1), false, Some(32)),
            (true, None, false, Some(96)),
            (false, Some(4), true, None),
            (false, None, false, None),
            (true, None, false, Some(32)),
        ]
    );
    let heads_of = |count| KvHeads { count, dim: 16 };
    assert_eq!(c.kinds(), [(None, heads_of(2)), (None, heads_of(1)), (None, heads_of(4))]);
    let shapes: Vec<_> = w.layers.iter().map(|l| [l.q, l.k, l.output].map(|m| m.rows())).collect();
    assert_eq!(shapes, [[64, 32, 32], [64, 16, 32], [0; 3], [64, 64, 32], [64, 32, 32], [0; 3]]);
    let between: Vec<_> = w.layers.iter().map(|l| l.feed_forward.map(|n| n.up.rows())).collect();
    assert_eq!(between, [Some(64), Some(32), Some(96), None, Some(64), Some(32)]);
    // What is not there, but is said to be, and what cannot be.
    let refused_for = |heads: &[u32], keys: &[u32], widths: &[u32]| bad_value(&with(heads, keys, widths));
    let mut linear = keys;
    linear[0] = 0;
    let (key, _, text) = refused_for(&heads, &linear, &widths);
    assert_eq!(key, "deci.attention.head_count_kv");
    assert!(text.contains("linear layers in place of attention are not supported"), "{text}");
    let mut odd = keys;
    odd[1] = 3;
    assert_eq!(refused_for(&heads, &odd, &widths).2, "a divisor of the 4 heads");
    let mut fewer = heads;
    fewer[5] = 2;
    assert_eq!(refused_for(&fewer, &keys, &widths).2, "0 or the 4 heads of other layers");
    assert_eq!(refused_for(&[0; 7], &keys, &widths).0, "deci.attention.head_count");
    assert_eq!(refused_for(&heads, &keys, &[0; 7]).0, "deci.feed_forward_length");
    let mut draft = with(&heads, &keys, &widths);
    draft.set_array("deci.attention.head_count_kv", ValueType::U32, &[Value::U32(2); 6]);
    assert_eq!(bad_value(&draft).1, "an array of 6 u32");
    draft.set("deci.attention.head_count_kv", Value::U32(1 << 31));
    assert_eq!(bad_value(&draft).1, "2147483648");
}

/// MiniCPM 3 has the matrices of keys and values in one, which is taken apart: of each head the rows of keys become columns.
#[test]
fn keys_and_values_in_one() {
    let mut draft = Draft::of("minicpm3");
    for tensor in draft.tensors.iter_mut().filter(|tensor| tensor.name.ends_with("attn_kv_b.weight")) {
        tensor.of = GgmlType::F32;
    }
    let bytes = draft.bytes();
    let model = Model::from_bytes(&bytes).unwrap();
    assert!(model.unused().is_empty());
    let w = model.weights().unwrap();
    for layer in &w.layers {
        let latent = layer.latent.as_ref().unwrap();
        for (all, shape) in [(&latent.keys, (32, 8)), (&latent.values, (8, 32))] {
            assert_eq!(all.iter().map(|m| (m.rows(), m.cols())).collect::<Vec<_>>(), [shape; 4]);
            assert!(all.iter().all(|m| m.format().is_none()));
        }
    }
    // Results of heads may have another length than a part of the model's width.
    let mut draft = Draft::of("minicpm3");
    draft.set("minicpm3.attention.value_length", Value::U32(4));
    draft.tensors.iter_mut().filter(|t| t.name.contains("attn_kv_b")).for_each(|t| t.dims[1] = 48);
    draft.tensors.iter_mut().filter(|t| t.name.contains("attn_output")).for_each(|t| {
        (t.dims[0], t.of) = (16, GgmlType::F32);
    });
    assert_eq!(config(&draft).latent_attention.unwrap().values, 4);
    // What is made is there already; sizes that cannot be.
    let mut draft = Draft::of("minicpm3");
    draft.tensor("blk.2.attn_v_b.weight", &[32, 8, 4], GgmlType::F32);
    assert!(refused(&draft).to_string().contains("blk.2.attn_v_b.weight"));
    let mut draft = Draft::of("minicpm3");
    draft.set("minicpm3.attention.key_length", Value::U32(8));
    assert_eq!(bad_value(&draft).2, "above the 8 elements that are rotated");
    draft.set("minicpm3.attention.key_length", Value::U32(16));
    draft.set("minicpm3.attention.kv_lora_rank", Value::U32(31));
    assert!(bad_value(&draft).2.contains("even with 8"));
}
