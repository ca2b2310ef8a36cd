//! What several architectures have and others do not: mixtures of DeepSeek's kind, models that rank texts, factors of sums and scores, parallel layers.

use gllm_kernels_std::gguf::{GgmlType, Value, ValueType};
use gllm_kernels_std::model::{Classifier, Groups, Layer, Model, ModelError, Recurrence, Rule, Scoring};

use super::draft::{Draft, Tensor};
use super::{bad_value, config, refused};

/// Mixtures of DeepSeek's kind: which layers have experts, what scores are, and which experts may be taken.
#[test]
fn mixtures_of_deepseeks_kind() {
    let with = |name: &'static str, pairs: &[(&str, u32)]| {
        let mut draft = Draft::of(name);
        for (key, value) in pairs {
            draft.set(&format!("{name}.{key}"), Value::U32(*value));
        }
        draft
    };
    let experts = |draft: &Draft| config(draft).experts.unwrap();
    for (kind, want) in
        [(0, (Scoring::Sigmoid, false)), (1, (Scoring::Softmax, false)), (2, (Scoring::Sigmoid, false))]
    {
        let found = experts(&with("glm4moe", &[("expert_gating_func", kind)]));
        assert_eq!((found.scoring, found.normalised), want);
    }
    // The softmax of the experts that are taken, where nothing but that decides which ones are.
    let found = experts(&with("bailingmoe", &[("expert_gating_func", 3)]));
    assert_eq!((found.scoring, found.normalised), (Scoring::Softmax, true));
    let mut draft = with("glm4moe", &[]);
    draft.set("glm4moe.expert_weights_scale", Value::F32(2.5));
    draft.set("glm4moe.expert_weights_norm", Value::Bool(true));
    assert_eq!((experts(&draft).scale, experts(&draft).normalised), (2.5, true));
    // Groups to which nothing is limited are none.
    for (groups, taken, want) in
        [(0, 0, None), (1, 1, None), (2, 2, None), (2, 1, Some(Groups { count: 2, used: 1, counted: 2 }))]
    {
        let draft =
            with("bailingmoe2", &[("expert_group_count", groups), ("expert_group_used_count", taken)]);
        assert_eq!(experts(&draft).groups, want);
    }
    let draft = with(
        "deepseek2",
        &[("expert_group_count", 2), ("expert_group_used_count", 1), ("expert_group_counted", 1)],
    );
    assert_eq!(experts(&draft).groups, Some(Groups { count: 2, used: 1, counted: 1 }));
    // The last layers guess more tokens.
    let mut draft = with("glm4moe", &[("nextn_predict_layers", 2)]);
    draft.tensor("blk.6.nextn.enorm.weight", &[32], GgmlType::F32);
    assert_eq!((config(&draft).layers, config(&draft).layer.len()), (5, 5));
    draft.tensor("blk.4.nextn.enorm.weight", &[32], GgmlType::F32);
    assert!(
        matches!(refused(&draft), ModelError::BadTensor { name, .. } if name == "blk.4.nextn.enorm.weight")
    );
    // Norms of heads, of those that have them.
    let mut draft = with("glm4moe", &[]);
    for layer in 0..7 {
        for name in ["q", "k"] {
            draft.tensor(&format!("blk.{layer}.attn_{name}_norm.weight"), &[16], GgmlType::F32);
        }
    }
    assert!(config(&draft).qk_norm);
    // Two layers with experts, four without, and what else they need.
    let mut draft =
        with("ernie4_5-moe", &[("interleave_moe_layer_step", 3), ("leading_dense_block_count", 0)]);
    draft.tensors.retain(|t| !t.name.starts_with("blk."));
    let own = |layer: usize| if (layer + 1).is_multiple_of(3) { (1, layer) } else { (0, layer) };
    for (like, layer) in (0..7).map(own) {
        let of = Draft::of("ernie4_5-moe").tensors.into_iter();
        let (from, to) = (format!("blk.{like}."), format!("blk.{layer}."));
        draft.tensors.extend(of.filter_map(|t| {
            t.name.strip_prefix(&*from).map(|end| format!("{to}{end}")).map(|name| Tensor { name, ..t })
        }));
    }
    let mixtures: Vec<_> = config(&draft).layer.iter().map(|layer| layer.experts).collect();
    assert_eq!(mixtures, [false, false, true, false, false, true, false]);
}

/// What ranks texts has a classifier in place of the output matrix, and nothing else in front of it.
#[test]
fn models_that_rank_texts() {
    let mut draft = Draft::of("qwen3");
    draft.set("qwen3.pooling_type", Value::U32(4));
    let missing = |draft: &Draft| match refused(draft) {
        ModelError::MissingTensor { name, expected, .. } => (name, expected),
        other => panic!("{other}"),
    };
    assert_eq!(missing(&draft), ("cls.output.weight".to_owned(), vec![32, 1]));
    let labels = [Value::String("yes"), Value::String("no")];
    draft.set_array("qwen3.classifier.output_labels", ValueType::String, &labels);
    assert_eq!(missing(&draft), ("cls.output.weight".to_owned(), vec![32, 2]));
    draft.tensor("cls.output.weight", &[32, 2], GgmlType::F16);
    let c = config(&draft);
    assert_eq!((c.classifier.clone(), c.logits()), (Some(Classifier { labels: 2, bias: None }), 2));
    assert_eq!((c.pooling, c.tied_embeddings), (None, false));
    let bytes = draft.bytes();
    let model = Model::from_bytes(&bytes).unwrap();
    let weights = model.weights().unwrap();
    assert_eq!((weights.output.rows(), weights.embedding.rows()), (2, 24));
    assert_eq!(model.unused(), ["output.weight"]);
    // Other files with such a tensor make nothing of it.
    let mut other = draft.clone();
    other.set("qwen3.pooling_type", Value::U32(3));
    assert_eq!((config(&other).classifier, config(&other).logits()), (None, 24));

    draft.tensor("cls.output.bias", &[3], GgmlType::F32);
    match refused(&draft) {
        ModelError::WrongShape { name, found, expected } => {
            assert_eq!((&*name, found, expected), ("cls.output.bias", vec![3], vec![2]));
        }
        other => panic!("{other}"),
    }
    draft.tensors.last_mut().unwrap().dims = vec![2];
    assert_eq!(config(&draft).classifier.unwrap().bias, Some(vec![1.0; 2]));
    draft.tensor("cls.weight", &[32, 32], GgmlType::F32);
    assert!(matches!(refused(&draft), ModelError::BadTensor { name, .. } if name == "cls.weight"));
    let many = [Value::String(""); 25];
    draft.set_array("qwen3.classifier.output_labels", ValueType::String, &many);
    assert_eq!(bad_value(&draft).0, "qwen3.classifier.output_labels");
}

/// The largest models of two families scale scores by the width of the model, and no key says so: one has 46 layers, the other 62.
#[test]
fn scores_of_the_largest_gemmas() {
    for (name, layers) in [("gemma2", 46), ("gemma3", 62)] {
        for (layers, of) in [(layers, 32 / 4), (layers - 1, 16), (layers + 1, 16)] {
            let mut draft = Draft::with_layers(name, layers);
            assert_eq!(config(&draft).attention_scale, 1.0 / (of as f32).sqrt(), "{name}, {layers} layers");
            draft.set(&format!("{name}.attention.scale"), Value::F32(0.5));
            assert_eq!(config(&draft).attention_scale, 0.5);
        }
    }
}

/// What is added to the residual stream has a factor: the stream is kept divided by it.
#[test]
fn factors_of_sums() {
    let mut draft = Draft::of("granite");
    let keys = [("embedding_scale", 12.0), ("residual_scale", 0.25), ("logit_scale", 8.0)];
    for (key, x) in keys {
        draft.set(&format!("granite.{key}"), Value::F32(x));
    }
    let c = config(&draft);
    assert_eq!((c.embedding_scale, c.logit_scale, c.norm_eps), (48.0, 0.125, 16.0 * 1e-5f32));
    let bytes = draft.bytes();
    let model = Model::from_bytes(&bytes).unwrap();
    let norm = model.weights().unwrap().output_norm.unwrap();
    draft.set("granite.logit_scale", Value::F32(1.0));
    let bytes = draft.bytes();
    let plain = Model::from_bytes(&bytes).unwrap();
    let plain = plain.weights().unwrap().output_norm.unwrap();
    assert!(plain[0] != 0.0 && norm.iter().zip(&plain).all(|(x, y)| *x == y / 8.0));
    for tiny in [1e-30, 1e30] {
        draft.set("granite.residual_scale", Value::F32(tiny));
        assert_eq!(bad_value(&draft).0, "granite.residual_scale");
    }
    draft.set("granite.residual_scale", Value::F32(f32::NAN));
    assert_eq!(bad_value(&draft).0, "granite.residual_scale");
}

/// Whether a model's layers are parallel, and what is refused of models that have more than this.
#[test]
fn parallel_layers() {
    let mut draft = Draft::of("gptneox");
    for parallel in [true, false] {
        draft.set("gptneox.use_parallel_residual", Value::Bool(parallel));
        assert_eq!(config(&draft).parallel, parallel);
    }
    draft.set("gptneox.use_parallel_residual", Value::U32(2));
    assert_eq!(bad_value(&draft).0, "gptneox.use_parallel_residual");
    let mut draft = Draft::of("command-r");
    assert_eq!(config(&draft).logit_scale, 1.0);
    draft.set("command-r.logit_scale", Value::F32(0.0625));
    assert_eq!(config(&draft).logit_scale, 0.0625);
    // Norms of heads in Command R+ and StableLM 2 12B, of which the second is parallel.
    for (name, parallel) in [("command-r", true), ("stablelm", true), ("stablelm", false)] {
        let mut draft = Draft::of(name);
        for layer in 0..7 {
            draft.tensor(&format!("blk.{layer}.attn_q_norm.weight"), &[16, 4], GgmlType::F32);
            draft.tensor(&format!("blk.{layer}.attn_k_norm.weight"), &[16, 2], GgmlType::F32);
        }
        draft.tensors.retain(|tensor| !(parallel && tensor.name.contains("ffn_norm")));
        let bytes = draft.bytes();
        let model = Model::from_bytes(&bytes).unwrap();
        let c = model.config();
        assert_eq!((c.qk_norm, c.parallel, c.shared_norm), (true, parallel, parallel), "{name}");
        let layer = &model.weights().unwrap().layers[6];
        assert_eq!([&layer.q_norm, &layer.k_norm].map(|of| of.as_ref().unwrap().len()), [64, 32]);
        draft.tensors.retain(|tensor| tensor.name != "blk.3.attn_k_norm.weight");
        let said = refused(&draft).to_string();
        assert!(said.contains("blk.3.attn_k_norm.weight"), "{said}");
    }
    // A second norm in Falcon 40B.
    let mut draft = Draft::of("falcon");
    for layer in 0..7 {
        draft.tensor(&format!("blk.{layer}.attn_norm_2.weight"), &[32], GgmlType::F32).fill = 2.0;
        draft.tensor(&format!("blk.{layer}.attn_norm_2.bias"), &[32], GgmlType::F32);
    }
    let bytes = draft.bytes();
    let model = Model::from_bytes(&bytes).unwrap();
    assert_eq!((model.config().parallel, model.config().shared_norm), (true, false));
    // That of attention is the second one.
    let layer = &model.weights().unwrap().layers[6];
    assert_eq!([&layer.attention_norm, &layer.ffn_norm].map(|of| of.as_ref().unwrap()[0]), [2.0, 1.0]);
    draft.tensors.retain(|tensor| tensor.name != "blk.3.attn_norm_2.weight");
    let said = refused(&draft).to_string();
    assert!(said.contains("blk.3.attn_norm_2.weight"), "{said}");
}

#[test]
fn state_spaces_in_every_layer() {
    for (name, each) in [("falcon-h1", 2), ("mamba2", 1)] {
        let beside = name == "falcon-h1";
        let mut draft = Draft::of(name);
        if !beside {
            // As files have them that say what is not there.
            ["attention.head_count", "feed_forward_length"]
                .iter()
                .for_each(|key| draft.set(&format!("mamba2.{key}"), Value::U32(0)));
        }
        let bytes = draft.bytes();
        let model = Model::from_bytes(&bytes).unwrap();
        let (c, w) = (model.config(), model.weights().unwrap());
        let kind = |l: &Layer| [l.recurrent, l.without_network, l.joined];
        let kinds: Vec<_> = c.layer.iter().map(kind).collect();
        let of_layer = if beside { vec![[true; 3], [false; 3]] } else { vec![[true, true, false]] };
        assert_eq!(kinds, of_layer.repeat(7), "{name}");
        assert_eq!(c.kinds().len(), usize::from(beside));
        assert_eq!(
            (c.layers, w.layers.len(), c.most_between()),
            (7 * each, 7 * each, if beside { 64 } else { 0 })
        );
        let Some(Recurrence::Linear(of)) = c.recurrence else { panic!("{name}: {:?}", c.recurrence) };
        assert_eq!((of.rule, of.normed, of.values()), (Rule::StateSpace, !beside, 32));
        // Without norms, those that backends compute change nothing.
        let x = [3.0f32, -4e5, 1e-9, 0.0];
        for layer in w.layers.iter().step_by(each) {
            let norm = &layer.recurrent.as_ref().unwrap().linear.as_ref().unwrap().norm;
            assert_eq!(norm.len(), 32);
            let mean = x.iter().map(|x| x * x).sum::<f32>() / 4.0;
            let normed = x.map(|x| x * (1.0 / (mean + c.state_eps).sqrt()) * norm[0]);
            assert_eq!(normed == x, beside, "{name}");
        }
        let attention = w.layers.iter().filter(|layer| layer.recurrent.is_none()).count();
        assert_eq!(attention, if beside { 7 } else { 0 });
    }
    // A norm that one layer lacks is missing, whatever the others have.
    let mut draft = Draft::of("falcon-h1");
    draft.tensor("blk.0.ssm_norm.weight", &[16, 2], GgmlType::F32);
    assert!(
        matches!(refused(&draft), ModelError::MissingTensor { name, .. } if name == "blk.1.ssm_norm.weight")
    );
}
