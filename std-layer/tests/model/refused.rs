//! Models that are refused: the error names the key or the tensor, and what would have been right.

use super::*;

#[test]
fn what_is_not_supported_is_named() {
    for name in ["mamba", "bloom", "mpt", ""] {
        let mut draft = Draft::of("llama");
        draft.set("general.architecture", Value::String(name));
        let text = refused(&draft).to_string();
        assert!(
            text.contains(&format!("{name:?}"))
                && text.ends_with("bert, nomic-bert, modern-bert, jina-bert-v2"),
            "{text}"
        );
    }
    let mut draft = Draft::of("gemma3");
    draft.set("gemma3.expert_count", Value::U32(8));
    assert_eq!(bad_value(&draft).0, "gemma3.expert_count");
    let mut draft = Draft::of("qwen3");
    for (kind, pooling) in
        [(0, None), (1, Some(Pooling::Mean)), (2, Some(Pooling::First)), (3, Some(Pooling::Last))]
    {
        draft.set("qwen3.pooling_type", Value::U32(kind));
        assert_eq!(config(&draft).pooling, pooling);
    }
    draft.set("qwen3.pooling_type", Value::U32(5));
    assert_eq!(bad_value(&draft).0, "qwen3.pooling_type");
    let mut draft = Draft::of("qwen3moe");
    draft.set("qwen3moe.expert_gating_func", Value::U32(2));
    assert_eq!(bad_value(&draft).2, "1, softmax");
    // A llama is a mixture if it says so, and each of its experts is as wide as it says.
    let mut draft = Draft::of("llama");
    draft.set("llama.expert_count", Value::U32(0));
    assert_eq!(config(&draft).experts, None);
    draft.set("llama.expert_count", Value::U32(8));
    assert!(matches!(refused(&draft), ModelError::MissingKey { key } if key == "llama.expert_used_count"));
    draft.set("llama.expert_used_count", Value::U32(2));
    match refused(&draft) {
        ModelError::MissingTensor { name, expected, .. } => {
            assert_eq!((&*name, expected), ("blk.0.ffn_gate_inp.weight", vec![32, 8]));
        }
        other => panic!("{other}"),
    }
    draft.set("llama.attention.causal", Value::Bool(false));
    assert_eq!(bad_value(&draft).0, "llama.attention.causal");
}

#[test]
fn mixtures_that_lie() {
    for (name, key, value, with, expected) in [
        ("glm4moe", "expert_gating_func", 3, None, "1, softmax, 2, sigmoid, or 3"),
        ("glm4moe", "expert_gating_func", 4, None, "1, softmax, 2, sigmoid, or 3"),
        ("dots1", "leading_dense_block_count", 7, None, "below the 7 layers"),
        ("dots1", "expert_used_count", 5, None, "at most the 4 experts"),
        ("ernie4_5-moe", "interleave_moe_layer_step", 8, None, "one of the 7 layers has experts"),
        ("glm4moe", "nextn_predict_layers", 7, None, "below the 7 layers"),
        ("bailingmoe", "expert_shared_count", 1 << 30, None, "at most 2147483647 / 32"),
        ("bailingmoe2", "expert_group_count", 3, None, "a divisor of the 4 experts that is at most half"),
        ("bailingmoe2", "expert_group_count", 4, None, "a divisor of the 4 experts that is at most half"),
        ("bailingmoe2", "expert_group_used_count", 3, Some(2), "at most the 2 groups"),
        ("bailingmoe2", "expert_used_count", 3, Some(2), "at most the 2 experts of 1 groups"),
        ("deepseek2", "expert_group_counted", 3, Some(2), "1 or 2"),
    ] {
        let mut draft = Draft::of(name);
        if let Some(groups) = with {
            draft.set(&format!("{name}.expert_group_count"), Value::U32(groups));
            draft.set(&format!("{name}.expert_group_used_count"), Value::U32(1));
        }
        let key = format!("{name}.{key}");
        draft.set(&key, Value::U32(value));
        let (named, found, text) = bad_value(&draft);
        assert_eq!((named, found), (key, value.to_string()));
        assert!(text.contains(expected), "{text}");
    }
    let mut draft = Draft::of("bailingmoe2");
    draft.set("bailingmoe2.expert_group_count", Value::U32(2));
    let key = "bailingmoe2.expert_group_used_count";
    assert!(matches!(refused(&draft), ModelError::MissingKey { key: named } if named == key));
    // A layer without experts has a network of its own; what is added to scores has a number for each; and all layers have it, or none.
    for (tensor, dims, shape) in [
        ("blk.0.ffn_up.weight", None, vec![32, 64]),
        ("blk.3.ffn_up_shexp.weight", None, vec![32, 32]),
        ("blk.3.exp_probs_b.bias", None, vec![4]),
        ("blk.3.exp_probs_b.bias", Some(vec![5]), vec![4]),
        ("blk.0.ffn_down.weight", Some(vec![32, 32]), vec![64, 32]),
        ("blk.1.ffn_down_shexp.weight", Some(vec![64, 32]), vec![32, 32]),
    ] {
        let mut draft = Draft::of("glm4moe");
        let at = draft.tensors.iter().position(|t| t.name == tensor).unwrap();
        match &dims {
            Some(dims) => draft.tensors[at].dims.clone_from(dims),
            None => drop(draft.tensors.remove(at)),
        }
        match refused(&draft) {
            ModelError::MissingTensor { name, expected, .. } => {
                assert_eq!((&*name, expected, dims), (tensor, shape, None));
            }
            ModelError::WrongShape { name, found, expected } => {
                assert_eq!((&*name, Some(found), expected), (tensor, dims, shape));
            }
            other => panic!("{other}"),
        }
    }
    // What belongs to the other kind of layer would not take part.
    for tensor in ["blk.0.exp_probs_b.bias", "blk.0.ffn_gate_inp.weight", "blk.1.ffn_up.weight"] {
        let mut draft = Draft::of("dots1");
        draft.tensor(tensor, &[4], GgmlType::F32);
        let text = refused(&draft).to_string();
        assert!(text.contains(tensor) && text.contains("dots1"), "{text}");
    }
}

#[test]
fn latent_attention_that_lies() {
    for (key, value, expected) in [
        ("attention.key_length_mla", 8, "above the 8 elements that are rotated"),
        ("attention.key_length_mla", 1 << 30, "at most 2147483647 / 4 heads"),
        ("attention.value_length_mla", 1 << 30, "at most 2147483647 / 4 heads"),
        ("attention.kv_lora_rank", 1 << 30, "at most 2147483647 / 4 heads"),
        ("attention.key_length", 42, "40, elements of a cached row of rank 32"),
        ("attention.value_length", 40, "32, elements of a cached row of rank 32"),
        ("attention.head_count_kv", 2, "1"),
        ("rope.dimension_count", 7, "39, elements of a cached row"),
    ] {
        let (mut draft, key) = (Draft::of("deepseek2"), format!("deepseek2.{key}"));
        draft.set(&key, Value::U32(value));
        let (named, found, text) = bad_value(&draft);
        if key.ends_with("dimension_count") {
            assert_eq!((&*named, &*found), ("deepseek2.attention.key_length", "40"));
        } else {
            assert_eq!((named, found), (key, value.to_string()));
        }
        assert!(text.contains(expected), "{text}");
    }
    for key in ["kv_lora_rank", "key_length_mla", "value_length_mla", "key_length", "value_length"] {
        let (mut draft, key) = (Draft::of("deepseek2"), format!("deepseek2.attention.{key}"));
        draft.remove(&key);
        assert!(matches!(refused(&draft), ModelError::MissingKey { key: named } if named == key));
    }
    // Longer texts need the number that scores depend on.
    let mut draft = Draft::of("deepseek2");
    draft.set("deepseek2.rope.scaling.type", Value::String("yarn"));
    draft.set("deepseek2.rope.scaling.factor", Value::F32(40.0));
    let key = "deepseek2.rope.scaling.yarn_log_multiplier";
    assert!(matches!(refused(&draft), ModelError::MissingKey { key: named } if named == key));
    draft.set(key, Value::F32(0.1));
    let factor = 0.1 * 40f64.ln() + 1.0;
    assert!((f64::from(config(&draft).attention_scale) / (factor * factor / 4.0) - 1.0).abs() < 1e-6);
    // Parts that others have would not take part.
    let mut draft = Draft::of("deepseek2");
    draft.set("deepseek2.attn_logit_softcapping", Value::F32(30.0));
    assert_eq!(bad_value(&draft).0, "deepseek2.attn_logit_softcapping");
    for (tensor, dims) in
        [("attn_q.bias", &[64][..]), ("attn_qkv.weight", &[32, 144]), ("attn_k.weight", &[32, 40])]
    {
        let mut draft = Draft::of("deepseek2");
        draft.tensor(&format!("blk.0.{tensor}"), dims, GgmlType::F32);
        let text = refused(&draft).to_string();
        assert!(text.contains(tensor) && text.contains("would not take part"), "{text}");
    }
    // Older files have keys and values in one matrix.
    let mut draft = Draft::of("deepseek2");
    draft.tensors.retain(|t| !t.name.contains("attn_k_b") && !t.name.contains("attn_v_b"));
    (0..7).for_each(|i| {
        draft.tensor(&format!("blk.{i}.attn_kv_b.weight"), &[32, 64], GgmlType::F32);
    });
    let text = refused(&draft).to_string();
    assert!(text.contains("blk.0.attn_kv_b.weight") && text.contains("a new conversion"), "{text}");
}

const SIZES: [&str; 9] = [
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "vocab_size",
];

/// Sizes of attention and networks say nothing where there are neither.
fn is_unread(name: &str, key: &str) -> bool {
    let of_layers =
        key.starts_with("attention.") && !key.ends_with("epsilon") || key == "feed_forward_length";
    name == "mamba2" && of_layers || name == "minicpm3" && key == "attention.head_count_kv"
}

#[test]
fn keys_that_are_needed_are_named() {
    for name in architectures() {
        let needed = ["block_count", "context_length", "embedding_length", "feed_forward_length"];
        let epsilon = if layer_norms(name).0 { "" } else { "rms_" };
        let more = ["attention.head_count".to_owned(), format!("attention.layer_norm_{epsilon}epsilon")];
        for key in needed
            .into_iter()
            .map(str::to_owned)
            .chain(more)
            .filter(|key| !is_unread(name, key))
            .map(|k| format!("{name}.{k}"))
            .chain(["general.architecture".to_owned()])
            .chain(is_mixture(name).then(|| format!("{name}.expert_count")))
            .chain(is_mixture(name).then(|| format!("{name}.expert_used_count")))
            .chain(["gpt-oss", "cohere2"].contains(&name).then(|| format!("{name}.attention.sliding_window")))
            .chain(has_residual_norms(name).then(|| "tokenizer.ggml.token_type_count".to_owned()))
        {
            let mut draft = Draft::of(name);
            draft.remove(&key);
            match refused(&draft) {
                ModelError::MissingKey { key: named } => assert_eq!(named, key),
                other => panic!("{key}: {other}"),
            }
        }
    }
}

/// Every size with values of every kind: an error that names the key and the value.
#[test]
fn sizes_that_cannot_be_are_named() {
    let wrong = [
        (Value::U32(0), "0"),
        (Value::I32(-1), "-1"),
        (Value::U64(u64::MAX), "18446744073709551615"),
        (Value::U32(1 << 31), "2147483648"),
        (Value::F32(4.0), "4"),
        (Value::Bool(true), "true"),
        (Value::String("4"), "\"4\""),
    ];
    for name in architectures() {
        // Layers of DeciLM may differ in these.
        let uneven = ["attention.head_count", "attention.head_count_kv", "feed_forward_length"];
        let read = |key: &&&str| !(is_unread(name, key) || name == "deci" && uneven.contains(key));
        for key in SIZES.iter().filter(read).map(|k| format!("{name}.{k}")) {
            for (value, shown) in wrong {
                let mut draft = Draft::of(name);
                draft.set(&key, value);
                let (named, value, expected) = bad_value(&draft);
                assert_eq!((&named, &*value), (&key, shown));
                assert!(expected.contains("one integer from 1 to"), "{expected}");
            }
            // Layers may differ in these.
            let [heads, widths] = ["head_count_kv", "feed_forward_length"].map(|of| key.ends_with(of));
            let gemma = ["gemma3n", "gemma4"].contains(&name);
            let some_attend = is_lfm2(name) || is_space(name) || gemma;
            if !(some_attend && heads || (has_network_layers(name) || gemma) && widths) {
                let mut draft = Draft::of(name);
                draft.set_array(&key, ValueType::U32, &[Value::U32(4); 7]);
                assert_eq!(bad_value(&draft).1, "an array of 7 u32");
            }
            // A size that is possible, but is not that of the tensors, nor fits the others.
            for n in [i32::MAX as u32, 3] {
                let mut draft = Draft::of(name);
                draft.set(&key, Value::U32(n));
                if !key.ends_with("context_length") {
                    refused(&draft);
                }
            }
        }
    }
}

/// Heads of keys of each layer: as many numbers as layers, alike where they are not 0, and one at least that is not.
#[test]
fn heads_of_layers() {
    let of = |counts: &[u64]| {
        let mut draft = Draft::of("lfm2");
        let counts: Vec<_> = counts.iter().map(|&n| Value::U64(n)).collect();
        draft.set_array("lfm2.attention.head_count_kv", ValueType::U64, &counts);
        draft
    };
    for wrong in [&[2; 6][..], &[0; 7], &[2, 0, 0, 4, 0, 0, 0], &[1 << 31; 7], &[u64::MAX, 0, 0, 2, 0, 0, 0]]
    {
        let (key, value, expected) = bad_value(&of(wrong));
        let array = format!("an array of {} u64", wrong.len());
        assert_eq!((&*key, value), ("lfm2.attention.head_count_kv", array));
        assert!(expected.contains("for each of the 7 layers, 0 or that of all others"), "{expected}");
    }
    // The layers are others than the tensors'.
    refused(&of(&[2; 7]));
    let mut draft = Draft::of("lfm2");
    draft.set("lfm2.shortconv.l_cache", Value::U32(9));
    assert_eq!(bad_value(&draft), ("lfm2.shortconv.l_cache".to_owned(), "9".to_owned(), "2 to 8".to_owned()));
    let mut draft = Draft::of("lfm2");
    draft.set("lfm2.attention.sliding_window", Value::U32(64));
    assert_eq!(bad_value(&draft).0, "lfm2.attention.sliding_window");
}

#[test]
fn numbers_that_cannot_be_are_named() {
    let wrong = [f32::NAN, f32::INFINITY, -1.0, -0.0];
    for key in
        ["attention.layer_norm_rms_epsilon", "rope.freq_base", "attention.scale", "rope.scaling.factor"]
    {
        let key = format!("llama.{key}");
        for x in wrong {
            // Zero means none, where there can be none.
            if x == 0.0 && (key.ends_with("scale") || key.ends_with("factor")) {
                continue;
            }
            let mut draft = Draft::of("llama");
            draft.set(&key, Value::F32(x));
            assert_eq!(bad_value(&draft).0, key, "{x}");
        }
        for value in [Value::String("x"), Value::U32(7), Value::F64(1e300)] {
            let mut draft = Draft::of("llama");
            draft.set(&key, value);
            if !(key.ends_with("freq_base") && value == Value::F64(1e300)) {
                assert_eq!(bad_value(&draft).0, key, "{value:?}");
            }
        }
    }
}

#[test]
fn sizes_that_do_not_fit_each_other_are_named() {
    let of = |key: &str, value| {
        let mut draft = Draft::of("qwen3");
        draft.set(&format!("qwen3.{key}"), Value::U32(value));
        bad_value(&draft)
    };
    assert_eq!(of("attention.head_count_kv", 3).2, "a divisor of the 4 heads");
    assert_eq!(of("attention.key_length", 15).2, "even");
    assert_eq!(of("attention.value_length", 8).2, "the length of keys, 16");
    assert_eq!(of("rope.dimension_count", 18).2, "even and at most the head's 16");
    assert_eq!(of("rope.dimension_count", 7).2, "even and at most the head's 16");
    assert_eq!(of("attention.head_count", 1 << 30).2, "at most 2147483647 / 16");
    let (_, value, expected) = of("block_count", 1 << 30);
    assert_eq!((&*value, &*expected), ("1073741824", "what the 80 tensors of the file suffice for"));

    for (value, expected) in
        [(5, "at most the 4 experts"), (0, "one integer from 1 to 2147483647, the same for all layers")]
    {
        let mut draft = Draft::of("qwen2moe");
        draft.set("qwen2moe.expert_used_count", Value::U32(value));
        assert_eq!(bad_value(&draft).2, expected);
    }
    let mut draft = Draft::of("qwen3moe");
    draft.set("qwen3moe.feed_forward_length", Value::U32(1));
    assert_eq!(bad_value(&draft).2, "at least the 2 experts used");
    let mut draft = Draft::of("llama");
    draft.remove("llama.attention.key_length");
    draft.set("llama.attention.head_count", Value::U32(5));
    draft.set("llama.attention.head_count_kv", Value::U32(5));
    assert_eq!(bad_value(&draft).2, "a divisor of the embedding length 32");
    for key in ["bos", "eos", "eot", "eom"] {
        let mut draft = Draft::of("llama");
        draft.set(&format!("tokenizer.ggml.{key}_token_id"), Value::U32(24));
        assert_eq!(bad_value(&draft).2, "a token below the vocabulary's 24");
    }
    let mut draft = Draft::of("llama");
    draft.set_array("tokenizer.ggml.tokens", ValueType::String, &[Value::String("x"); 25]);
    assert_eq!(bad_value(&draft).2, "at most the vocabulary's 24");
}

#[test]
fn every_tensor_is_needed_once_and_in_its_shape() {
    for architecture in architectures() {
        let whole = Draft::of(architecture);
        for i in 0..whole.tensors.len() {
            let tensor = whole.tensors[i].clone();
            // Without it: tied embeddings, no token types, or an error.
            let mut draft = whole.clone();
            draft.tensors.remove(i);
            if tensor.name == "output.weight" {
                assert!(config(&draft).tied_embeddings);
            } else if tensor.name == "token_types.weight" && architecture != "jina-bert-v2" {
                assert_eq!(config(&draft).token_types, 0);
            } else {
                match refused(&draft) {
                    ModelError::MissingTensor { name, expected, hf } => {
                        assert_eq!((name, expected), (tensor.name.clone(), tensor.dims.clone()));
                        let begin = if has_residual_norms(architecture) { "e" } else { "model." };
                        let outside = ["output.bias", "position_embd.weight", "token_embd_norm.weight"];
                        let outside = outside.contains(&&*tensor.name);
                        assert!(hf.starts_with(begin) || outside, "{hf}");
                    }
                    // Biases are there if the first is.
                    ModelError::BadTensor { .. } if tensor.name == "blk.0.attn_q.bias" => {}
                    // So are factors of layers, and such norms: without the first one layers are parallel.
                    ModelError::BadTensor { .. }
                        if [
                            ("gemma4", "blk.0.layer_output_scale.weight"),
                            ("stablelm", "blk.0.ffn_norm.weight"),
                        ]
                        .contains(&(architecture, &*tensor.name)) => {}
                    // Nothing else says how wide these matrices are.
                    ModelError::BadTensor { name, .. } if tensor.name == "blk.0.laurel_l.weight" => {
                        assert_eq!(name, tensor.name);
                    }
                    // Nothing else says how many tokens there are.
                    ModelError::BadTensor { name, .. } if config(&whole).tied_embeddings => {
                        assert_eq!((&*name, &*tensor.name), ("token_embd.weight", "token_embd.weight"));
                    }
                    other => panic!("{}: {other}", tensor.name),
                }
            }
            // With a row more, and with a dimension more.
            for change in [0, 1] {
                let mut draft = whole.clone();
                // How many rows it has, is for the embedding to say where nothing else has as many.
                if change == 0 && tensor.name == "token_embd.weight" && config(&whole).tied_embeddings {
                    continue;
                }
                match change {
                    0 => *draft.tensors[i].dims.last_mut().unwrap() += 32,
                    _ => draft.tensors[i].dims.push(2),
                }
                match refused(&draft) {
                    ModelError::WrongShape { name, found, expected } => {
                        // The vocabulary is what the embedding says, and a rank what the first matrix of two does.
                        let by_it = [
                            ("token_embd.weight", "output.weight"),
                            ("blk.0.laurel_l.weight", "blk.0.laurel_r.weight"),
                        ];
                        let by_it = by_it.contains(&(&*tensor.name, &*name));
                        assert!(name == tensor.name || by_it, "{name} instead of {}", tensor.name);
                        assert_ne!(found, expected);
                    }
                    other => panic!("{}: {other}", tensor.name),
                }
            }
            // Of a type that no kernel computes with.
            let mut draft = whole.clone();
            draft.tensors[i].of = GgmlType::I32;
            match refused(&draft) {
                ModelError::BadTensor { name, problem } => {
                    assert_eq!(name, tensor.name);
                    assert!(problem.contains("I32"), "{problem}");
                }
                other => panic!("{}: {other}", tensor.name),
            }
            // A vector with numbers that are none.
            if tensor.dims.len() == 1 {
                let mut draft = whole.clone();
                draft.tensors[i].fill = f32::NAN;
                let text = refused(&draft).to_string();
                assert_eq!(text, format!("the tensor {:?} has NaN at element 0", tensor.name));
            }
        }
    }
}

/// Encoders with properties of decoders, or of other encoders.
#[test]
fn encoders_that_are_not_supported_are_named() {
    for name in architectures().filter(|name| is_encoder(name)) {
        let with = |key: &str, value| {
            let mut draft = Draft::of(name);
            draft.set(&format!("{name}.{key}"), value);
            draft
        };
        let (key, _, expected) = bad_value(&with("attention.causal", Value::Bool(true)));
        assert_eq!((key, expected.starts_with("false")), (format!("{name}.attention.causal"), true));
        let (key, _, expected) = bad_value(&with("pooling_type", Value::U32(4)));
        assert_eq!((key, expected.contains("encoders")), (format!("{name}.pooling_type"), true));
        assert_eq!(bad_value(&with("expert_count", Value::U32(4))).0, format!("{name}.expert_count"));
        // What is not said is no reason to refuse a file.
        let mut draft = Draft::of(name);
        draft.remove(&format!("{name}.attention.causal"));
        assert!(!config(&draft).causal);
        let others = match has_residual_norms(name) {
            true => ["blk.0.attn_q_norm.weight", "blk.3.attn_norm_2.weight", "blk.6.attn_norm.weight"],
            false => ["blk.0.attn_sinks.weight", "blk.3.attn_norm_2.weight", "blk.6.attn_output_norm.weight"],
        };
        for tensor in others {
            let mut draft = Draft::of(name);
            draft.tensor(tensor, &[32], GgmlType::F32);
            let text = refused(&draft).to_string();
            assert!(text.contains(tensor) && text.contains(name), "{text}");
        }
    }
    // Gate and up in two tensors, as some files have them.
    let mut draft = Draft::of("jina-bert-v2");
    for tensor in &mut draft.tensors {
        if tensor.name.ends_with("ffn_up.weight") {
            tensor.dims = vec![32, 64];
        }
    }
    assert!(matches!(refused(&draft), ModelError::WrongShape { .. }));
    (0..7).for_each(|i| {
        draft.tensor(&format!("blk.{i}.ffn_gate.weight"), &[32, 64], GgmlType::Q8_0);
    });
    assert!(config(&draft).gated);
}

#[test]
fn tensors_without_use_are_listed_or_refused() {
    let mut draft = Draft::of("llama");
    draft.tensor("mm.projector.weight", &[3], GgmlType::F32);
    draft.tensor("blk.0.attn_rot_embd", &[3], GgmlType::F32);
    let bytes = draft.bytes();
    let model = Model::from_bytes(&bytes).unwrap();
    assert_eq!(model.unused(), ["mm.projector.weight", "blk.0.attn_rot_embd"]);
    for name in ["blk.3.attn_output.bias", "blk.7.attn_norm.weight", "blk.0.attn_q_norm.weight"] {
        let mut draft = Draft::of("llama");
        draft.tensor(name, &[32], GgmlType::F32);
        let text = refused(&draft).to_string();
        assert!(text.contains(name) && text.contains("llama with 7 layers"), "{text}");
    }
}
