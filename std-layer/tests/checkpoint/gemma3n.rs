//! Gemma 3n: several residual streams, and tokens without embeddings of their own.

use gllm_kernels_std::model::Model;

use super::folder::{config, Dense, Folder};
use super::gemma4::{matrix, vector};
use super::refused::{changed_configurations, Change};
use super::tiny::Tiny;
use super::{assert_alike, logits};

/// What models with several streams have; weights contain factors that checkpoints have apart.
pub fn tensors(gguf: &Model<'_>) -> Vec<Dense> {
    let (weights, mut all) = (gguf.weights().unwrap(), Vec::new());
    let Some(of) = &weights.streams else { return all };
    for (name, matrices) in [("altup_projections", &of.split), ("altup_unembed_projections", &of.merge)] {
        let each = matrices.iter().enumerate();
        all.extend(each.map(|(i, &w)| matrix(format!("model.{name}.{i}"), w)));
    }
    let hidden = gguf.config().hidden;
    for (l, layer) in weights.layers.iter().enumerate() {
        let (of, at) = (layer.streams.as_ref().unwrap(), |name: &str| format!("model.layers.{l}.{name}"));
        let count = of.router.len() / hidden;
        let small = |name: &str, shape: [usize; 2], x: &[f32]| Dense::floats(&at(name), &shape, x);
        // The weights of the norm in front of the router are in the router: here, they are twos.
        let router: Vec<f32> = of.router.iter().map(|x| x * hidden as f32 / 2.0).collect();
        all.push(small("altup.modality_router.weight", [count, hidden], &router));
        all.push(vector(at("altup.router_norm.weight"), &vec![2.0; hidden], 1.0));
        all.push(small("altup.prediction_coefs.weight", [count * count, count], &of.predict));
        all.push(small("altup.correction_coefs.weight", [count, count], &of.correct));
        all.push(vector(at("altup.correct_output_scale"), &of.scale, 1.0));
        let [left, right] = of.low_rank;
        all.push(matrix(at("laurel.linear_left"), left));
        all.push(matrix(at("laurel.linear_right"), right));
        let root = std::f32::consts::SQRT_2;
        all.push(vector(at("laurel.post_laurel_norm.weight"), &of.post_norm, root));
    }
    all
}

/// What the configuration of such a model has beside what others have. Parts of gates are those whose normal deviates the file has: 0 and 1.
pub fn keys(tiny: &Tiny) -> String {
    let kinds: Vec<_> =
        (0..tiny.layers).map(|l| ["\"sliding_attention\"", "\"full_attention\""][l % 2]).collect();
    format!(
        r#","sliding_window":{},"layer_types":[{}],"rope_local_base_freq":10000,"num_kv_shared_layers":{},"hidden_size_per_layer_input":{},"vocab_size_per_layer_input":{},"altup_num_inputs":3,"altup_active_idx":0,"altup_correct_scale":true,"altup_coef_clip":120.0,"laurel_rank":32,"activation_sparsity_pattern":[0.5,0.0,0.8413447460685429,0.0],"final_logit_softcapping":3.0"#,
        tiny.window,
        kinds.join(","),
        tiny.layers - 2,
        tiny.per_layer,
        tiny.per_layer_vocabulary()
    )
}

/// Tokens behind those that have embeddings of their own have the first token's.
#[test]
fn tokens_without_embeddings() {
    const OWN: usize = 50;
    let tiny = Tiny::new("gemma3n", None);
    let gguf = tiny.open();
    let [whole, cut] = [false, true].map(|cut| {
        let folder = Folder::new(&format!("gemma3n, cut: {cut}"));
        let mut tensors = Dense::of(&tiny, &gguf);
        let table = tensors.iter_mut().find(|t| t.name == "model.embed_tokens_per_layer.weight").unwrap();
        let row = table.bytes.len() / tiny.per_layer_vocabulary();
        if cut {
            table.bytes.truncate(OWN * row);
            table.shape[0] = OWN;
        } else {
            let first = table.bytes[..row].to_vec();
            table.bytes[OWN * row..].chunks_exact_mut(row).for_each(|to| to.copy_from_slice(&first));
        }
        let says = |n: usize| format!(r#""vocab_size_per_layer_input":{n}"#);
        let whole = tiny.per_layer_vocabulary();
        let own = if cut { OWN } else { whole };
        folder.config(&config(&tiny).replace(&says(whole), &says(own)));
        folder.tensors(&tensors, 1);
        let model = Model::open(folder.path()).unwrap();
        assert_eq!(model.config().per_layer_vocabulary, own);
        logits(&model)
    });
    assert_eq!(whole, cut);
    assert!(whole != logits(&gguf));
}

/// The configuration of a model that understands images and sounds, too, has the part for texts in it.
#[test]
fn part_for_texts() {
    let tiny = Tiny::new("gemma3n", None);
    let gguf = tiny.open();
    let folder = Folder::new("gemma3n, part for texts");
    folder.config(&format!(r#"{{"model_type":"gemma3n","text_config":{}}}"#, config(&tiny)));
    let mut tensors = Dense::of(&tiny, &gguf);
    tensors.iter_mut().for_each(|t| t.name = t.name.replacen("model.", "model.language_model.", 1));
    for name in ["model.vision_tower.x", "model.audio_tower.x", "model.embed_vision.x", "model.embed_audio.x"]
    {
        tensors.push(Dense::floats(name, &[1], &[1.0]));
    }
    folder.tensors(&tensors, 2);
    assert_alike(&logits(&Model::open(folder.path()).unwrap()), &logits(&gguf), "the part for texts");
}

#[test]
fn refused() {
    let cases: &[Change] = &[
        (r#","altup_num_inputs":3"#, "", &["altup_num_inputs is missing"]),
        (r#""altup_num_inputs":3"#, r#""altup_num_inputs":4"#, &["modality_router", "[64, 3]", "[64, 4]"]),
        (r#""altup_active_idx":0"#, r#""altup_active_idx":1"#, &["altup.active_idx", "1"]),
        (
            r#""altup_correct_scale":true"#,
            r#""altup_correct_scale":false"#,
            &["altup_correct_scale", "false"],
        ),
        (r#","num_kv_shared_layers":2"#, "", &["num_kv_shared_layers is missing"]),
        (r#""num_kv_shared_layers":2"#, r#""num_kv_shared_layers":4"#, &["shared_kv_layers", "4"]),
        (r#""rope_theta":100000,"#, "", &["rope_parameters is missing"]),
        (r#"[96,96,192,192]"#, r#"[96,96,192]"#, &["feed_forward_length", "4 layers"]),
        (r#"[96,96,192,192]"#, r#"[96,96,192,-1]"#, &["intermediate_size", "2^32"]),
        (r#"[96,96,192,192]"#, r#"96"#, &["2.mlp.gate_proj", "[64, 192]", "[64, 96]"]),
        (r#"[0.5,0.0,"#, r#"[0.5,"#, &["activation_sparsity_scale", "4 layers"]),
        (r#"[0.5,0.0,"#, r#"[0.5,1.0,"#, &["activation_sparsity_pattern", "below 1"]),
        (r#"[0.5,0.0,"#, r#"[0.5,null,"#, &["activation_sparsity_pattern"]),
        (r#""activation_sparsity_pattern""#, r#""x""#, &["activation_sparsity_pattern is missing"]),
        (
            r#""vocab_size_per_layer_input":90"#,
            r#""vocab_size_per_layer_input":89"#,
            &["embed_tokens_per_layer", "89", "90"],
        ),
    ];
    changed_configurations(&Tiny::new("gemma3n", None), cases);
}
