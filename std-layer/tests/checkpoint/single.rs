//! What configurations and tensors of single architectures mean.

use gllm_kernels_std::model::Model;

use super::folder::{config, Dense, Folder};
use super::refused::changed_configurations;
use super::tiny::Tiny;
use super::{assert_alike, logits};

/// Layers of K-EXAONE that guess more tokens are left out, and a pattern of windows in letters is none without a list of layers.
#[test]
fn predictors_of_exaone() {
    let tiny = Tiny { experts_scale: 1.0, ..Tiny::new("exaone-moe", None) };
    let gguf = tiny.open();
    let folder = Folder::new("predictors of exaone");
    folder.config(&config(&tiny).replace(r#""n_group""#, r#""num_nextn_predict_layers":1,"n_group""#));
    let mut tensors = Dense::of(&tiny, &gguf);
    tensors.push(Dense::floats("mtp.layers.0.input_layernorm.weight", &[2], &[1.0, 2.0]));
    folder.tensors(&tensors, 1);
    let model = Model::open(folder.path()).unwrap();
    assert_alike(&logits(&model), &logits(&gguf), "predictors of exaone");
    changed_configurations(&tiny, &[(r#""layer_types""#, r#""kinds""#, &["sliding_window_pattern", "LG"])]);
}

/// Embeddings of Trinity have a factor if the configuration says so; scores of experts are always divided by their sum.
#[test]
fn trinity() {
    let tiny = Tiny { experts_scale: 1.0, ..Tiny::new("afmoe", None) };
    let folder = Folder::new("trinity");
    folder.tensors(&Dense::of(&tiny, &tiny.open()), 1);
    let opened = |scaled: &str| {
        folder.config(&config(&tiny).replace(r#""mup_enabled":true"#, scaled));
        Model::open(folder.path()).unwrap()
    };
    for (said, scale) in [(r#""mup_enabled":true"#, 8.0), (r#""mup_enabled":false"#, 1.0), (r#""a":1"#, 1.0)]
    {
        let model = opened(said);
        let experts = model.config().experts.unwrap();
        assert_eq!((model.config().embedding_scale, experts.normalised), (scale, true), "{said}");
    }
    changed_configurations(
        &tiny,
        &[
            (r#""route_norm":true"#, r#""route_norm":false"#, &["route_norm", "false"]),
            (r#""score_func":"sigmoid""#, r#""score_func":"softmax""#, &["score_func", "softmax"]),
            (r#""mup_enabled":true"#, r#""mup_enabled":1"#, &["mup_enabled", "1"]),
            (r#""sliding_window":24,"#, "", &["afmoe.attention.sliding_window"]),
        ],
    );
}

/// The activation's numbers are tensors of each layer, of which none may be missing; two of them are those of all models.
#[test]
fn numbers_of_activations() {
    type Change = fn(&mut Vec<Dense>);
    let tiny = Tiny::new("apertus", None);
    let gguf = tiny.open();
    let said = |change: Change| {
        let folder = Folder::new("numbers of activations");
        folder.config(&config(&tiny));
        let mut tensors = Dense::of(&tiny, &gguf);
        change(&mut tensors);
        folder.tensors(&tensors, 1);
        Model::open(folder.path()).map(|_| ()).expect_err("a number of an activation").to_string()
    };
    fn number<'a>(all: &'a mut [Dense], end: &str) -> &'a mut Dense {
        all.iter_mut().find(|tensor| tensor.name.ends_with(end)).unwrap()
    }
    let cases: [(Change, &str); 5] = [
        (
            |all| all.retain(|tensor| !tensor.name.ends_with("1.mlp.act_fn.alpha_p")),
            "layer 1 has no mlp.act_fn.alpha_p",
        ),
        (|all| all.retain(|tensor| !tensor.name.ends_with("2.mlp.act_fn.alpha_n")), "xielu.alpha_n"),
        (|all| number(all, "0.mlp.act_fn.beta").bytes = 0.75f32.to_le_bytes().to_vec(), "xielu.beta"),
        (|all| number(all, "0.mlp.act_fn.eps").bytes = 0.5f32.to_le_bytes().to_vec(), "xielu.eps"),
        (
            |all| {
                *number(all, "0.mlp.act_fn.alpha_p") =
                    Dense::floats("model.layers.0.mlp.act_fn.alpha_p", &[2], &[1.0; 2])
            },
            "model.layers.0.mlp.act_fn.alpha_p has 8 bytes",
        ),
    ];
    for (change, words) in cases {
        let said = said(change);
        assert!(said.contains(words), "{words}: {said}");
    }
    changed_configurations(
        &tiny,
        &[
            (r#""hidden_act":"xielu""#, r#""hidden_act":"silu""#, &["hidden_act", "silu", "xielu"]),
            (r#""rope_scaling":{"rope_type":"default"}"#, r#""rope_scaling":null"#, &["rope_parameters"]),
        ],
    );
}
