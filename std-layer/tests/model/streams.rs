//! Several residual streams, as Gemma 3n has them.

use gllm_kernels_std::gguf::{GgmlType, Value, ValueType};
use gllm_kernels_std::model::{Model, ModelError, Streams};

use super::draft::Draft;
use super::{bad_value, config, refused};

/// What a draft of so many layers has for four streams, with 8 numbers between the matrices beside attention, and for embeddings of 4 elements for each layer.
pub fn add(d: &mut Draft, layers: u32) {
    use GgmlType as T;
    d.set("gemma3n.embedding_length_per_layer_input", Value::U32(4));
    d.tensor("altup_proj.weight", &[32, 32, 3], T::F16);
    d.tensor("altup_unembd_proj.weight", &[32, 32, 3], T::Q8_0);
    let all = u64::from(4 * layers);
    d.tensor("per_layer_token_embd.weight", &[all, 24], T::F16);
    d.tensor("per_layer_model_proj.weight", &[32, all], T::F32);
    d.tensor("per_layer_proj_norm.weight", &[4], T::F32);
    for layer in 0..layers {
        let mut own = |name: &str, dims: &[u64], of| {
            d.tensor(&format!("blk.{layer}.{name}.weight"), dims, of);
        };
        own("inp_gate", &[32, 4], T::Q8_0);
        own("proj", &[4, 32], T::F32);
        own("post_norm", &[32], T::F32);
        own("altup_router", &[32, 4], T::F32);
        own("altup_router_norm", &[32], T::F32);
        own("altup_predict_coef", &[4, 16], T::F16);
        own("altup_correct_coef", &[4, 4], T::F32);
        own("altup_correct_scale", &[32], T::F32);
        own("laurel_l", &[32, 8], T::Q8_0);
        own("laurel_r", &[8, 32], T::F16);
        own("laurel_post_norm", &[32], T::F32);
    }
}

/// The streams, and weights that contain factors.
#[test]
fn weights_of_streams() {
    let mut draft = Draft::of("gemma3n");
    for (name, fill) in [("router", 3.0), ("router_norm", 2.0), ("predict_coef", 5.0)] {
        let name = format!("blk.1.altup_{name}.weight");
        let tensor = draft.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
        (tensor.of, tensor.fill) = (GgmlType::F32, fill);
    }
    let bytes = draft.bytes();
    let model = Model::from_bytes(&bytes).unwrap();
    model.verify().unwrap();
    let (c, w) = (model.config(), model.weights().unwrap());
    let Streams { count, rank, .. } = c.streams.unwrap();
    assert_eq!((count, rank, c.per_layer, c.per_layer_vocabulary), (4, 8, Some(4), 24));
    let of = w.streams.unwrap();
    for (matrices, bytes) in [(of.split, 2 * 32 * 32), (of.merge, 34 * 32)] {
        assert_eq!(matrices.len(), 3);
        assert!(matrices.iter().all(|m| (m.rows(), m.cols(), m.bytes()) == (32, 32, bytes)));
    }
    let layer = &w.layers[1];
    let of = layer.streams.as_ref().unwrap();
    assert_eq!((&of.router[..], &of.predict[..]), (&[6.0 / 32.0; 4 * 32][..], &[5.0; 64][..]));
    assert_eq!((&of.correct[..], &of.scale[..]), (&[1.0; 16][..], &[1.0; 32][..]));
    assert_eq!(of.low_rank.map(|m| (m.rows(), m.cols())), [(8, 32), (32, 8)]);
    let root = [std::f32::consts::FRAC_1_SQRT_2; 32];
    assert_eq!((&of.post_norm[..], layer.post_attention_norm.as_deref()), (&root[..], Some(&root[..])));
    assert_eq!(layer.post_ffn_norm.as_deref(), Some(&[1.0; 32][..]));
}

/// How many gates count in each layer, and what else a file may say.
#[test]
fn values_of_streams() {
    const SPARSITY: &str = "gemma3n.activation_sparsity_scale";
    let with = |numbers: &[f32]| {
        let mut draft = Draft::of("gemma3n");
        let numbers: Vec<_> = numbers.iter().map(|&x| Value::F32(x)).collect();
        draft.set_array(SPARSITY, ValueType::F32, &numbers);
        draft
    };
    let none = f32::NEG_INFINITY;
    let found: Vec<_> =
        config(&with(&[1.5, none, -0.5, 0.0, none, 1.0, none])).layer.iter().map(|l| l.sparsity).collect();
    assert_eq!(found, [Some(1.5), None, Some(-0.5), Some(0.0), None, Some(1.0), None]);
    for wrong in [&[1.5; 6][..], &[1.5, 1.5, 1.5, f32::NAN, 1.5, 1.5, 1.5], &[f32::INFINITY; 7]] {
        let (key, _, expected) = bad_value(&with(wrong));
        assert!(key == SPARSITY && expected.contains("each of the 7 layers"), "{expected}");
    }
    // Models of more layers are dense behind the tenth.
    let layers = config(&Draft::with_layers("gemma3n", 12)).layer;
    assert_eq!(layers.iter().filter(|layer| layer.sparsity.is_some()).count(), 10);

    let set = |key: &str, n: u32| {
        let mut draft = Draft::of("gemma3n");
        draft.set(&format!("gemma3n.{key}"), Value::U32(n));
        draft
    };
    for (key, n) in [("altup.num_inputs", 1), ("altup.num_inputs", 9), ("altup.active_idx", 1)] {
        assert_eq!(bad_value(&set(key, n)).0, format!("gemma3n.{key}"));
    }
    assert!(matches!(refused(&set("altup.num_inputs", 3)), ModelError::WrongShape { .. }));
    assert_eq!(config(&set("altup.active_idx", 0)).streams.unwrap().count, 4);
    // Some tokens have no embeddings of their own.
    let mut draft = set("vocab_size_per_layer_input", 20);
    let table = draft.tensors.iter_mut().find(|tensor| tensor.name == "per_layer_token_embd.weight");
    table.unwrap().dims[1] = 20;
    assert_eq!(config(&draft).per_layer_vocabulary, 20);
    let mut draft = Draft::of("gemma3n");
    draft.remove("gemma3n.embedding_length_per_layer_input");
    assert!(matches!(refused(&draft), ModelError::MissingKey { key } if key.ends_with("per_layer_input")));
    // What Gemma 4 has would not be computed.
    let mut draft = Draft::of("gemma3n");
    draft.tensor("blk.2.layer_output_scale.weight", &[1], GgmlType::F32);
    assert!(refused(&draft).to_string().contains("blk.2.layer_output_scale"));
    draft = Draft::of("gemma3n");
    draft.tensors.retain(|tensor| tensor.name != "blk.4.attn_v.weight");
    assert!(matches!(refused(&draft), ModelError::MissingTensor { .. }));
    // Of layers that attend to others' keys, files have those that they do not use.
    let model = set("attention.shared_kv_layers", 2).bytes();
    let model = Model::from_bytes(&model).unwrap();
    assert_eq!(model.config().layer[6].keys_of, Some(3));
    assert_eq!(model.unused().len(), 6);
    // A cap that is 0 is none.
    let mut draft = Draft::of("gemma3n");
    draft.set("gemma3n.final_logit_softcapping", Value::F32(0.0));
    assert_eq!(config(&draft).logit_softcap, None);
}
