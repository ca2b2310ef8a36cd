//! Encoders: BERT, Nomic and Jina.

use gllm_kernels_std::model::{Matrix, Model, NormWeights, Pooling};

use super::exact::{exact, generator};
use super::folder::{config as config_of, Dense, Folder};
use super::small::{tokens, Small, CONTEXT, HIDDEN};
use super::tiny::Tiny;
use super::{assert_alike, numbers};

const INTERMEDIATE: usize = 128;

/// The tensors of a model that was written as a GGUF file, as a checkpoint has them.
fn tensors(small: &Small, gguf: &Model<'_>) -> Vec<Dense> {
    let weights = gguf.weights().unwrap();
    let (nomic, jina) = (small.architecture == "nomic-bert", small.architecture == "jina-bert-v2");
    let mut all = Vec::new();
    let matrix = |name: &str, parts: &[Matrix<'_>]| {
        let x: Vec<f32> = parts.iter().flat_map(|&w| numbers(w)).collect();
        let (cols, name) = (parts[0].cols(), format!("{name}.weight"));
        Dense::stored(&name, parts[0].format(), &[x.len() / cols, cols], &x)
    };
    let vector = |name: &str, x: &[f32]| Dense::floats(name, &[x.len()], x);
    let norm = |name: &str, of: &Option<NormWeights>| {
        let of = of.as_ref().unwrap();
        [vector(&format!("{name}.weight"), &of.weight), vector(&format!("{name}.bias"), &of.bias)]
    };
    all.push(matrix("embeddings.word_embeddings", &[weights.embedding]));
    all.extend(weights.positions.map(|w| matrix("embeddings.position_embeddings", &[w])));
    all.extend(weights.token_types.map(|w| matrix("embeddings.token_type_embeddings", &[w])));
    all.extend(norm(if nomic { "emb_ln" } else { "embeddings.LayerNorm" }, &weights.embedding_norm));
    for (l, layer) in weights.layers.iter().enumerate() {
        let at = |name: &str| match nomic {
            true => format!("encoder.layers.{l}.{name}"),
            false => format!("encoder.layer.{l}.{name}"),
        };
        let [out, down, behind, last] = match small.architecture {
            "nomic-bert" => ["attn.out_proj", "mlp.fc2", "norm1", "norm2"],
            "jina-bert-v2" => {
                ["attention.output.dense", "mlp.wo", "attention.output.LayerNorm", "mlp.layernorm"]
            }
            _ => ["attention.output.dense", "output.dense", "attention.output.LayerNorm", "output.LayerNorm"],
        };
        if nomic {
            all.push(matrix(&at("attn.Wqkv"), &[layer.q, layer.k, layer.v]));
        } else {
            for (name, w, bias) in [
                ("query", layer.q, &layer.q_bias),
                ("key", layer.k, &layer.k_bias),
                ("value", layer.v, &layer.v_bias),
            ] {
                let name = at(&format!("attention.self.{name}"));
                all.extend([matrix(&name, &[w]), vector(&format!("{name}.bias"), bias.as_ref().unwrap())]);
            }
        }
        let network = layer.feed_forward.as_ref().unwrap();
        match network.gate {
            Some(gate) if jina => all.push(matrix(&at("mlp.gated_layers"), &[gate, network.up])),
            Some(gate) => {
                all.extend([matrix(&at("mlp.fc12"), &[gate]), matrix(&at("mlp.fc11"), &[network.up])])
            }
            None => all.push(matrix(&at("intermediate.dense"), &[network.up])),
        }
        all.extend([matrix(&at(out), &[layer.output]), matrix(&at(down), &[network.down])]);
        for (name, x) in
            [(out, &layer.output_bias), ("intermediate.dense", &layer.up_bias), (down, &layer.down_bias)]
        {
            all.extend(x.iter().map(|x| vector(&at(&format!("{name}.bias")), x)));
        }
        all.extend(norm(&at(behind), &layer.attention_sum_norm));
        all.extend(norm(&at(last), &layer.ffn_sum_norm));
    }
    all
}

fn config(small: &Small) -> String {
    let heads = small.heads;
    match small.architecture {
        "nomic-bert" => format!(
            r#"{{"model_type":"nomic_bert","n_layer":3,"n_head":{heads},"n_embd":{HIDDEN},"n_inner":{INTERMEDIATE},"n_positions":{CONTEXT},"vocab_size":97,"layer_norm_epsilon":1e-5,"type_vocab_size":2,"rotary_emb_base":1000,"rotary_emb_fraction":1.0,"activation_function":"swiglu","prenorm":false,"rotary_scaling_factor":null}}"#
        ),
        name => format!(
            r#"{{"model_type":"bert","num_hidden_layers":3,"num_attention_heads":{heads},"hidden_size":{HIDDEN},"intermediate_size":{INTERMEDIATE},"max_position_embeddings":{CONTEXT},"vocab_size":97,"layer_norm_eps":1e-5,"type_vocab_size":2,"hidden_act":"gelu",{}}}"#,
            match name {
                "bert" => r#""position_embedding_type":"absolute""#,
                _ => r#""position_embedding_type":"alibi","feed_forward_type":"geglu""#,
            }
        ),
    }
}

/// Writes the matrices that texts are multiplied with behind pooling, if the model has them, as sentence-transformers does.
pub fn dense(folder: &Folder, gguf: &Model<'_>) {
    let matrices = gguf.weights().unwrap().dense;
    let mut modules =
        vec![r#"{"type":"a.Transformer","path":""},{"type":"a.Pooling","path":"1_Pooling"}"#.to_owned()];
    for (i, matrix) in matrices.iter().enumerate() {
        let name = format!("{}_Dense", i + 2);
        std::fs::create_dir_all(folder.path().join(&name)).unwrap();
        let [rows, cols] = [matrix.rows(), matrix.cols()];
        let json = format!(
            r#"{{"in_features":{cols},"out_features":{rows},"bias":false,"activation_function":"torch.nn.modules.linear.Identity"}}"#
        );
        folder.file(&format!("{name}/config.json"), json);
        let stored = Dense::stored("linear.weight", matrix.format(), &[rows, cols], &numbers(*matrix));
        folder.file(&format!("{name}/model.safetensors"), super::folder::file(&[stored]));
        modules.push(format!(r#"{{"type":"b.Dense","path":{name:?}}}"#));
    }
    if !matrices.is_empty() {
        folder.file("modules.json", format!("[{}]", modules.join(",")));
    }
}

/// A folder of such a model, in which names begin with `prefix`.
fn folder(what: &str, small: &Small, gguf: &Model<'_>, prefix: &str, pooling: &str) -> Folder {
    let folder = Folder::new(&format!("{} {what}", small.architecture));
    folder.config(&config(small));
    let mut all = tensors(small, gguf);
    all.iter_mut().for_each(|tensor| tensor.name = format!("{prefix}{}", tensor.name));
    // What others compute, and what is computed anew.
    all.push(Dense::floats("pooler.dense.weight", &[1, 1], &[1.0]));
    all.push(Dense {
        name: "embeddings.position_ids".to_owned(),
        dtype: "I64",
        shape: vec![1, 2],
        bytes: vec![0; 16],
    });
    folder.tensors(&all, 1);
    std::fs::create_dir_all(folder.path().join("1_Pooling")).unwrap();
    folder.file("1_Pooling/config.json", format!(r#"{{"word_embedding_dimension":96,{pooling}}}"#));
    folder
}

const MEAN: &str = r#""pooling_mode_mean_tokens":true,"pooling_mode_cls_token":false"#;

/// Embeddings are those of the GGUF file with the same numbers.
#[test]
fn embeddings() {
    let embed = |model: &Model<'_>| {
        let pooling = model.config().pooling.unwrap();
        generator(model, 2, exact()).embed(&[&tokens(70)], pooling).unwrap().remove(0)
    };
    for small in [Small::BERT, Small::NOMIC, Small::JINA] {
        let gguf = small.open();
        for prefix in ["", "bert."] {
            let folder = folder(prefix, &small, &gguf, prefix, MEAN);
            folder.file(
                "modules.json",
                r#"[{"type":"sentence_transformers.models.Transformer"},{"type":"a.b.Pooling"}]"#,
            );
            let model = Model::open(folder.path()).unwrap_or_else(|e| panic!("{}: {e}", small.architecture));
            assert_alike(&embed(&model), &embed(&gguf), small.architecture);
            assert_eq!(model.unused(), ["pooler.dense.weight"]);
            model.verify().unwrap();
        }
    }
}

/// XLM-RoBERTa is BERT whose positions begin behind the number of the token that fills texts up.
#[test]
fn positions_that_begin_later() {
    let small = Small::BERT;
    let gguf = small.open();
    let embed = |model: &Model<'_>| {
        generator(model, 2, exact()).embed(&[&tokens(70)], Pooling::Mean).unwrap().remove(0)
    };
    let own = |skipped: usize| format!(r#""model_type":"xlm-roberta","pad_token_id":{}"#, skipped - 1);
    let with = |skipped: usize, rows: usize| {
        let json = config(&small).replace(r#""model_type":"bert""#, &own(skipped));
        json.replace(
            &format!(r#""max_position_embeddings":{CONTEXT}"#),
            &format!(r#""max_position_embeddings":{rows}"#),
        )
    };
    for (skipped, shards) in [(2, 1), (5, 3)] {
        let folder = folder(&format!("roberta {skipped}"), &small, &gguf, "roberta.", MEAN);
        folder.config(&with(skipped, CONTEXT + skipped));
        let mut all = tensors(&small, &gguf);
        for tensor in &mut all {
            tensor.name = format!("roberta.{}", tensor.name);
            if tensor.name.ends_with("position_embeddings.weight") {
                tensor.shape[0] += skipped;
                tensor.bytes.splice(..0, vec![0x7e; 4 * HIDDEN * skipped]);
            }
        }
        std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
        folder.tensors(&all, shards);
        let model = Model::open(folder.path()).unwrap_or_else(|e| panic!("{skipped}: {e}"));
        assert_eq!(model.config().context, CONTEXT);
        assert_alike(&embed(&model), &embed(&gguf), "positions");
        // As many as there are rows, and more.
        for (rows, says) in [(CONTEXT, "[96, 600]"), (skipped, "the first")] {
            folder.config(&with(skipped, rows));
            let said = Model::open(folder.path()).map(|_| ()).expect_err(says).to_string();
            assert!(said.contains(says) && said.contains("position"), "{said}");
        }
    }
}

/// Which rows become an embedding, and tokens of WordPiece.
#[test]
fn files_beside() {
    let small = Small::BERT;
    let gguf = small.open();
    for (key, kind) in [("cls_token", Pooling::First), ("lasttoken", Pooling::Last)] {
        let folder = folder(key, &small, &gguf, "", &format!(r#""pooling_mode_{key}":true"#));
        folder.file(
            "tokenizer.json",
            r###"{"added_tokens":[{"id":1,"content":"[CLS]","special":true},{"id":2,"content":"[SEP]","special":true}],
            "normalizer":{"type":"BertNormalizer","lowercase":false,"strip_accents":null},
            "post_processor":{"type":"BertProcessing","sep":["[SEP]",2],"cls":["[CLS]",1]},
            "model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","vocab":{"[UNK]":0,"[CLS]":1,"[SEP]":2,"a":3,"##b":4,"[unused1]":5}}}"###,
        );
        let model = Model::open(folder.path()).unwrap();
        assert_eq!(model.config().pooling, Some(kind));
        let of = |key: &str| model.metadata(&format!("tokenizer.ggml.{key}")).unwrap();
        let texts: Vec<_> =
            of("tokens").as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect();
        assert_eq!(texts, ["[UNK]", "[CLS]", "[SEP]", "\u{2581}a", "b", "[unused1]"]);
        assert_eq!(of("model").as_str(), Some("bert"));
        for (key, id) in [("unknown_token_id", 0), ("cls_token_id", 1), ("seperator_token_id", 2)] {
            assert_eq!(of(key).as_u64(), Some(id), "{key}");
        }
        for key in ["lowercase", "strip_accents"] {
            assert_eq!(of(&format!("normalizer.{key}")).as_bool(), Some(false), "{key}");
        }
    }
}

#[test]
fn refused() {
    let cases: &[(Small, &str, &str, &[&str])] = &[
        (Small::BERT, r#""absolute""#, r#""relative_key""#, &["position_embedding_type", "relative_key"]),
        (Small::BERT, r#""gelu""#, r#""relu""#, &["hidden_act", "relu"]),
        (
            Small::BERT,
            r#""type_vocab_size":2"#,
            r#""type_vocab_size":3"#,
            &["token_type_embeddings", "[96, 2]", "[96, 3]"],
        ),
        (Small::JINA, r#""geglu""#, r#""reglu""#, &["feed_forward_type", "reglu"]),
        (Small::NOMIC, r#""swiglu""#, r#""gelu""#, &["activation_function", "gelu"]),
        (Small::NOMIC, r#""prenorm":false"#, r#""prenorm":true"#, &["prenorm", "true"]),
        (
            Small::NOMIC,
            r#""rotary_scaling_factor":null"#,
            r#""rotary_scaling_factor":2"#,
            &["rotary_scaling_factor", "2"],
        ),
    ];
    for (small, from, to, says) in cases {
        let folder = folder(to, small, &small.open(), "", MEAN);
        assert!(config(small).contains(from), "{from}");
        folder.config(&config(small).replacen(from, to, 1));
        let said = Model::open(folder.path()).map(|_| ()).expect_err(to).to_string();
        assert!(says.iter().all(|word| said.contains(word)), "{to}: {said}");
    }
    let (small, gguf) = (Small::BERT, Small::BERT.open());
    for (pooling, says) in [
        (r#""pooling_mode_max_tokens":true"#, "pooling_mode_max_tokens"),
        (r#""pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true"#, "one mode"),
        (r#""pooling_mode_cls_token":false"#, "one mode"),
    ] {
        let folder = folder(says, &small, &gguf, "", pooling);
        let said = Model::open(folder.path()).map(|_| ()).expect_err(pooling).to_string();
        assert!(said.contains(says) && said.contains("1_Pooling"), "{pooling}: {said}");
    }
    let folder = folder("modules", &small, &gguf, "", MEAN);
    for (path, says) in [("a_Dense", "1 modules Dense"), ("../a", "\"../a\""), ("", "\"\"")] {
        folder.file(
            "modules.json",
            format!(r#"[{{"type":"sentence_transformers.models.Dense","path":{path:?}}}]"#),
        );
        let said = Model::open(folder.path()).map(|_| ()).expect_err("modules").to_string();
        assert!(said.contains("modules.json") && said.contains(says), "{said}");
    }
    folder.file("modules.json", r#"[{"type":"sentence_transformers.models.LSTM"}]"#);
    let said = Model::open(folder.path()).map(|_| ()).expect_err("modules").to_string();
    assert!(said.contains("modules.json") && said.contains("LSTM"), "{said}");
}

/// Matrices behind pooling that are not what they have to be.
#[test]
fn refused_matrices_behind_pooling() {
    let tiny = Tiny::encoders().find(|tiny| tiny.architecture == "gemma-embedding").unwrap();
    let gguf = tiny.open();
    let folder = Folder::new("behind pooling");
    folder.config(&config_of(&tiny));
    folder.tensors(&Dense::of(&tiny, &gguf), 1);
    dense(&folder, &gguf);
    Model::open(folder.path()).unwrap();
    let json = std::fs::read_to_string(folder.path().join("2_Dense/config.json")).unwrap();
    for (from, to, says) in [
        ("Identity", "Tanh", &["2_Dense", "activation_function", "Tanh"][..]),
        (r#""bias":false"#, r#""bias":true"#, &["2_Dense", "bias is true"]),
        (r#""out_features":48"#, r#""out_features":-1"#, &["2_Dense", "out_features is -1"]),
        (r#""out_features":48"#, r#""out_features":0"#, &["dense_2_feat_out", "0"]),
        (r#""out_features":48"#, r#""out_features":96"#, &["dense.0.weight", "[64, 48]", "[64, 96]"]),
    ] {
        assert!(json.contains(from), "{json}");
        folder.file("2_Dense/config.json", json.replace(from, to));
        let said = Model::open(folder.path()).map(|_| ()).expect_err(to).to_string();
        assert!(says.iter().all(|word| said.contains(word)), "{to}: {said}");
    }
    folder.file("2_Dense/config.json", &json);
    folder.file("3_Dense/model.safetensors", super::folder::file(&[Dense::floats("other", &[1], &[1.0])]));
    let said = Model::open(folder.path()).map(|_| ()).expect_err("names").to_string();
    assert!(said.contains("3_Dense") && said.contains("linear.weight"), "{said}");
}
