//! The commands that run models, on a small model that is written here.

mod command;

use std::path::{Path, PathBuf};
use std::process::Command;

use command::{command, gllm_bench, json};
use gllm_kernels_core::{Kernels, QuantFormat};
use gllm_kernels_std::gguf::{GgmlType, Value as Meta, ValueType, Writer};

/// Fails with this code, one line on standard error that has all these words, and nothing on standard output.
fn refused(args: &[&str], code: i32, words: &[&str]) {
    let output = gllm_bench(args);
    let text = String::from_utf8(output.stderr).expect("messages are UTF-8");
    assert_eq!((output.status.code(), &*output.stdout), (Some(code), &b""[..]), "{args:?}: {text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{args:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{args:?}: no `{word}` in {text}");
    }
}

/// A file in the build's folder for temporary files, which is removed in the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id())))
    }

    fn text(&self) -> &str {
        self.0.to_str().expect("the path is UTF-8")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The logits in a file.
fn numbers(file: &Temporary) -> Vec<f32> {
    let bytes = std::fs::read(&file.0).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Tokens of the model: three marks, and a token for each byte.
const VOCABULARY: u64 = 3 + 256;

/// A llama of one layer, whose text ends with `end`.
fn write_model(path: &Path, end: u32) {
    write(path, end, &Kind::default());
}

/// What a model is made for.
#[derive(Default)]
struct Kind<'a> {
    /// Of a classifier: there is one instead of the output matrix.
    labels: &'a [&'a str],
    /// Tokens beside those that every model has.
    words: &'a [&'a str],
    /// In which form it reads a query and a document.
    template: Option<&'a str>,
    /// Tokens of a text; a million, if there is no number.
    context: Option<u32>,
}

/// A llama of one layer.
fn write(path: &Path, end: u32, kind: &Kind<'_>) {
    let &Kind { labels, words, template, context } = kind;
    let vocabulary = VOCABULARY + words.len() as u64;
    let mut writer = Writer::new();
    writer.set("general.architecture", Meta::String("llama")).unwrap();
    for (key, value) in [
        ("block_count", 1),
        ("embedding_length", 64),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("attention.key_length", 16),
        ("attention.value_length", 16),
        ("feed_forward_length", 128),
        ("context_length", context.unwrap_or(1 << 20)),
        ("vocab_size", vocabulary as u32),
    ] {
        writer.set(&format!("llama.{key}"), Meta::U32(value)).unwrap();
    }
    writer.set("llama.attention.layer_norm_rms_epsilon", Meta::F32(1e-5)).unwrap();
    writer.set("tokenizer.ggml.model", Meta::String("llama")).unwrap();
    let bytes: Vec<String> = (0..=255u8).map(|b| format!("<0x{b:02X}>")).collect();
    let tokens =
        ["<unk>", "<s>", "</s>"].into_iter().chain(bytes.iter().map(|b| &**b)).chain(words.iter().copied());
    writer.set_array("tokenizer.ggml.tokens", ValueType::String, tokens.map(Meta::String)).unwrap();
    let scores = (0..vocabulary).map(|i| Meta::F32(-(i as f32)));
    writer.set_array("tokenizer.ggml.scores", ValueType::F32, scores).unwrap();
    let kinds = [2, 3, 3].into_iter().chain([6; 256]).chain(words.iter().map(|_| 1));
    writer.set_array("tokenizer.ggml.token_type", ValueType::I32, kinds.map(Meta::I32)).unwrap();
    writer.set("tokenizer.ggml.bos_token_id", Meta::U32(1)).unwrap();
    writer.set("tokenizer.ggml.eos_token_id", Meta::U32(end)).unwrap();
    let mut output = ("output.weight", vocabulary);
    if !labels.is_empty() {
        output = ("cls.output.weight", labels.len() as u64);
        writer.set("llama.pooling_type", Meta::U32(4)).unwrap();
        let labels = labels.iter().map(|label| Meta::String(label));
        writer.set_array("llama.classifier.output_labels", ValueType::String, labels).unwrap();
    }
    if let Some(template) = template {
        writer.set("tokenizer.chat_template.rerank", Meta::String(template)).unwrap();
    }

    let layer = [("attn_q", 64, 64), ("attn_k", 64, 32), ("attn_v", 64, 32), ("attn_output", 64, 64)];
    let feed_forward = [("ffn_gate", 64, 128), ("ffn_up", 64, 128), ("ffn_down", 128, 64)];
    let mut tensors: Vec<(String, [u64; 2])> = layer
        .iter()
        .chain(&feed_forward)
        .map(|&(name, cols, rows)| (format!("blk.0.{name}.weight"), [cols, rows]))
        .collect();
    tensors.extend(
        [("token_embd.weight", vocabulary), output].map(|(name, rows)| (name.to_owned(), [64, rows])),
    );
    let norms = ["blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"];
    for (name, dims) in &tensors {
        writer.add_tensor(name, dims, GgmlType::Q8_0).unwrap();
    }
    for name in norms {
        writer.add_tensor(name, &[64], GgmlType::F32).unwrap();
    }
    let mut file = writer.create(path, true).unwrap();
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    for (_, [cols, rows]) in &tensors {
        let weights: Vec<f32> = (0..cols * rows).map(|_| 0.3 * random()).collect();
        let mut encoded = vec![0; QuantFormat::Q8_0.row_bytes(weights.len()).unwrap()];
        Kernels::detect().quantize(QuantFormat::Q8_0, &weights, None, &mut encoded).unwrap();
        file.write(&encoded).unwrap();
    }
    for _ in norms {
        file.write(&1f32.to_le_bytes().repeat(64)).unwrap();
    }
    file.finish().unwrap();
}

#[test]
fn texts_have_embeddings() {
    let model = Temporary::new("embedding.gguf");
    write_model(&model.0, 2);
    let long = "long ".repeat(200);
    let args =
        ["embed", model.text(), "--pooling", "mean", "--text", "a", "--text", &long, "--text", "a", "--json"];
    let all = json(&args);
    let rows: Vec<Vec<f64>> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect())
        .collect();
    assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [64; 3]);
    assert_eq!((all[1]["text"].as_str(), all[1]["tokens"].as_u64() > Some(512)), (Some(&*long), true));
    let product = |a: usize, b: usize| rows[a].iter().zip(&rows[b]).map(|(a, b)| a * b).sum::<f64>();
    assert!((product(0, 0) - 1.0).abs() < 1e-5 && (product(0, 2) - 1.0).abs() < 1e-3 && product(0, 1) < 0.99);
}

#[test]
fn texts_are_ranked() {
    let (model, lines) = (Temporary::new("ranker.gguf"), Temporary::new("documents.txt"));
    write(&model.0, 2, &Kind { labels: &["yes", "no"], ..Kind::default() });
    let rerank = ["rerank", model.text(), "--query", "q", "--json"];
    let texts = ["--text", "a", "--text", "another", "--text", "a"];
    let scores = |more: &[&str]| -> Vec<(u64, f64)> {
        let all = json(&[&rerank, more].concat());
        let each = all.as_array().unwrap().iter();
        each.map(|one| (one["index"].as_u64().unwrap(), one["score"].as_f64().unwrap())).collect()
    };
    let given = scores(&[&texts[..], &["--in-order"]].concat());
    assert_eq!(given.iter().map(|one| one.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(given.iter().all(|one| one.1 > 0.0 && one.1 < 1.0));
    assert!((given[0].1 - given[2].1).abs() < 1e-3 && given[0].1 != given[1].1, "{given:?}");
    let sorted = scores(&texts);
    assert!(sorted.is_sorted_by(|a, b| a.1 >= b.1), "{sorted:?}");
    std::fs::write(&lines.0, "another\n\na\n").unwrap();
    let both = scores(&["--text", "a", "--documents", lines.text(), "--in-order"]);
    assert_eq!(both.len(), 3);
    assert!((both[1].1 - given[1].1).abs() < 1e-3, "{both:?}, {given:?}");
    refused(&rerank, 2, &["--text", "--documents"]);
    refused(&[&rerank[..], &["--documents", "/no/such/file"]].concat(), 1, &["/no/such/file"]);
    // A model with neither a classifier nor the words.
    write_model(&model.0, 2);
    refused(&[&rerank[..], &texts].concat(), 1, &["classifier", "yes"]);
}

/// Perplexity is that of the logits, in whole pieces and in a short one.
#[test]
fn texts_are_foreseen() {
    let (model, out) = (Temporary::new("foreseen.gguf"), Temporary::new("foreseen.logits"));
    let file = Temporary::new("foreseen.txt");
    write_model(&model.0, 2);
    let text = "a cat, a kitten and a dog";
    let tokenized = json(&["tokenize", model.text(), "--text", text, "--json"]);
    let ids: Vec<u32> = tokenized.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
    std::fs::write(&file.0, text).unwrap();
    let exact = ["perplexity", model.text(), "--precision", "exact", "--json"];
    // The logarithms of probabilities of the last tokens of a piece, by its logits.
    let by_logits = |piece: &[u32], skipped: usize| -> Vec<f64> {
        let list = piece.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let logits = ["logits", model.text(), "--precision", "exact", "--tokens", &list, "--out", out.text()];
        assert!(gllm_bench(&logits).status.success());
        let logits = numbers(&out);
        let rows = logits.chunks(logits.len() / piece.len()).zip(&piece[1..]).skip(skipped);
        rows.map(|(row, &token)| {
            let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
            f64::from(row[token as usize]) - sum.ln()
        })
        .collect()
    };
    let judge = |found: &serde_json::Value, want: &[f64], pieces: u64| {
        let mean = want.iter().sum::<f64>() / want.len() as f64;
        let got = |key: &str| found[key].as_f64().unwrap();
        assert!((got("log_probability") - mean).abs() < 1e-5, "{found}, {mean}");
        assert!((got("perplexity") - (-mean).exp()).abs() < 1e-4 * got("perplexity"), "{found}");
        assert!(got("standard_error") > 0.0);
        let counts = ["judged", "pieces"].map(|key| found[key].as_u64().unwrap());
        assert_eq!(counts, [want.len() as u64, pieces]);
    };
    judge(&json(&[&exact[..], &["--text", text]].concat()), &by_logits(&ids, 0), 1);
    let bare = &ids[usize::from(ids[0] == 1)..];
    let begin = &ids[..ids.len() - bare.len()];
    let pieces: Vec<Vec<u32>> =
        bare.chunks_exact(8 - begin.len()).map(|piece| [begin, piece].concat()).collect();
    assert!(pieces.len() > 1);
    let want: Vec<f64> = pieces.iter().flat_map(|piece| by_logits(piece, 4)).collect();
    let by_file = [&exact[..], &["--file", file.text(), "--context", "8"]].concat();
    judge(&json(&by_file), &want, pieces.len() as u64);
    let fast = json(&["perplexity", model.text(), "--text", text, "--json"]);
    let mean = by_logits(&ids, 0).iter().sum::<f64>() / (ids.len() - 1) as f64;
    assert!((fast["log_probability"].as_f64().unwrap() - mean).abs() < 1e-2, "{fast}, {mean}");
    refused(&[&exact[..], &["--text", text, "--context", "1"]].concat(), 2, &["--context 1"]);
    refused(&[&exact[..], &["--file", "/no/such/file"]].concat(), 1, &["/no/such/file"]);
    refused(&[&exact[..], &["--text", ""]].concat(), 2, &["too short"]);
}

/// Of a model without a classifier, a score is how much more probable "yes" is than "no".
#[test]
fn texts_are_ranked_by_yes_and_no() {
    let (model, out) = (Temporary::new("yes.gguf"), Temporary::new("yes.logits"));
    let kind = Kind { words: &["yes", "no"], template: Some("{query}|{document}"), ..Kind::default() };
    write(&model.0, 2, &kind);
    let all = json(&["rerank", model.text(), "--query", "q", "--text", "a", "--json"]);
    let (score, tokens) = (all[0]["score"].as_f64().unwrap(), all[0]["tokens"].as_u64().unwrap());
    let tokenized = json(&["tokenize", model.text(), "--text", "q|a", "--json"]);
    let mut ids: Vec<u64> = tokenized.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    // The mark that a text begins with is not part of a form.
    if ids[0] == 1 {
        ids.remove(0);
    }
    assert_eq!(ids.len() as u64, tokens);
    let ids = ids.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    assert!(gllm_bench(&["logits", model.text(), "--tokens", &ids, "--out", out.text()]).status.success());
    let logits = numbers(&out);
    // The words are the last two tokens.
    let [yes, no] = [2, 1].map(|from_the_end| f64::from(logits[logits.len() - from_the_end]));
    let want = 1.0 / (1.0 + (no - yes).exp());
    assert!((score - want).abs() < 1e-4, "{score} instead of {want}");
}

/// The form in which a model reads a query and a document: its own, another one's, and none that is too long for it.
#[test]
fn forms_of_texts_to_rank() {
    let model = Temporary::new("forms.gguf");
    let rerank = ["rerank", model.text(), "--query", "q", "--text", "a", "--json"];
    let tokens = |more: &[&str]| json(&[&rerank, more].concat())[0]["tokens"].as_u64().unwrap();
    let labels = &["yes", "no"][..];
    let write =
        |template, context| write(&model.0, 2, &Kind { labels, template, context, ..Kind::default() });
    write(Some("{query}|{document}"), None);
    let own = tokens(&[]);
    assert!((3..9).contains(&own), "{own}");
    let other = tokens(&["--instruction", "ab"]);
    assert!(other > 100 && tokens(&["--instruction", "abcd"]) == other + 2);
    write(Some("{query}"), None);
    refused(&rerank, 1, &["tokenizer.chat_template.rerank", "{document}", "--instruction"]);
    assert_eq!(tokens(&["--instruction", "ab"]), other);
    write(None, Some(100));
    refused(&rerank, 2, &["document 1", "100"]);
    write(Some("{query}|{document}"), Some(own as u32));
    assert_eq!(tokens(&[]), own);
}

/// The ids that follow token 1.
fn generated(model: &Temporary, more: &[&str]) -> Vec<u64> {
    let args = ["generate", model.text(), "--tokens", "1", "-n", "24", "--greedy", "--json"];
    let ids = json(&[&args[..], more].concat());
    ids.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

#[test]
fn a_text_ends_unless_told_otherwise() {
    let model = Temporary::new("ends.gguf");
    write_model(&model.0, 2);
    let all = generated(&model, &["--ignore-end"]);
    assert_eq!(all.len(), 24);
    // The first token that occurs late, as the one that ends a text.
    let at = (1..24).find(|&i| !all[..i].contains(&all[i])).unwrap();
    write_model(&model.0, all[at] as u32);
    assert_eq!(generated(&model, &[]), all[..=at]);
    assert_eq!(generated(&model, &["--ignore-end"]), all);
    assert_eq!(generated(&model, &["--threads", "1", "--ignore-end"]), all);
}

#[test]
fn speeds_are_measured() {
    let (model, page) = (Temporary::new("speeds.gguf"), Temporary::new("speeds.html"));
    write_model(&model.0, 2);
    let mut args = vec!["model", model.text(), "--prompt", "20", "--depth", "0,70", "--sequences", "1,3"];
    args.extend(["-n", "4", "--threads", "1,2", "--repeat", "1", "--json", "--html", page.text()]);
    let report = json(&args);
    assert_eq!((&report["architecture"], report["file"].as_str()), (&"llama".into(), Some(model.text())));
    assert!(report["weight_bytes"].as_u64().unwrap() > 40_000 && report["machine"]["cores"].is_u64());
    let rows = report["rows"].as_array().unwrap();
    let cases: Vec<_> = rows
        .iter()
        .map(|row| ["tokens", "depth", "sequences", "threads"].map(|key| row[key].as_u64().unwrap()))
        .collect();
    let on = |t| [[20, 0, 1, t], [4, 0, 1, t], [4, 0, 3, t], [4, 70, 1, t], [4, 70, 3, t]];
    assert_eq!(cases, [on(1), on(2)].concat());
    for row in rows {
        assert!(row["tokens_per_second"].as_f64().unwrap() > 0.0 && row["load_seconds"].is_f64());
        let operations = row["operations"].as_array().unwrap();
        let sum: f64 = operations.iter().map(|operation| operation[1].as_f64().unwrap()).sum();
        assert!((sum - 100.0).abs() < 0.1, "{operations:?}");
        for name in ["qkv", "attention", "gate, up", "logits", "between steps"] {
            assert!(operations.iter().any(|operation| operation[0] == name), "{name}: {operations:?}");
        }
        let share = row["phase"] == "generate";
        assert!(row["efficiency"].is_f64() == share && row["bytes_per_token"].is_u64() == share);
    }
    // Sequences share the weights, but not what the cache holds.
    let bytes = |i: usize| rows[i]["bytes_per_token"].as_u64().unwrap();
    let weights = report["weight_bytes"].as_u64().unwrap();
    assert_eq!((bytes(1) - weights, bytes(3) - weights), (bytes(2) - weights / 3, bytes(4) - weights / 3));
    let page = std::fs::read_to_string(&page.0).unwrap();
    for words in
        ["<!doctype html>", "gllm-bench model", "a token of each of 3 sequences behind 70, 2 threads"]
    {
        assert!(page.contains(words), "{words}");
    }
    for outside in ["http://", "https://", "src=", "@import", "url(", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn kernels_can_be_restricted() {
    let (model, out) = (Temporary::new("restricted.gguf"), Temporary::new("restricted.logits"));
    write_model(&model.0, 2);
    let machine = |more: &[&str]| {
        let args =
            ["model", model.text(), "--prompt", "20", "--depth", "0", "-n", "1", "--threads", "1", "--json"];
        json(&[&args[..], more].concat())["machine"].take()
    };
    assert_eq!(machine(&["--isa", "scalar"])["isa"], "scalar");
    let all = machine(&[]);
    let best = all["isa"].as_str().unwrap();
    let feature = all["features"][0].as_str().unwrap();
    let less = machine(&["--without", feature]);
    assert!(!less["features"].as_array().unwrap().contains(&feature.into()), "{feature}: {less}");
    // Other kernels form sums in another order.
    let logits = |more: &[&str]| {
        let args = ["logits", model.text(), "--tokens", "1,5,9", "--precision", "exact", "--out", out.text()];
        assert!(gllm_bench(&[&args[..], more].concat()).status.success());
        numbers(&out)
    };
    let (free, scalar) = (logits(&[]), logits(&["--isa", "scalar"]));
    assert_eq!(logits(&["--isa", best]), free);
    assert!(best == "scalar" || free != scalar);
    assert!(free.iter().zip(&scalar).all(|(a, b)| (a - b).abs() < 1e-3));
    assert_eq!(generated(&model, &["--isa", "scalar", "--ignore-end"]).len(), 24);
    for command in
        [&["model"][..], &["generate", "--tokens", "1"], &["logits", "--tokens", "1", "--out", out.text()]]
    {
        refused(&[command, &[model.text(), "--isa", "sse9"]].concat(), 2, &["sse9", "scalar"]);
        refused(&[command, &[model.text(), "--without", "fma9"]].concat(), 2, &["fma9"]);
    }
}

/// An interrupt ends the text where it is: what was written is complete, speeds are told, and the exit code is 0.
#[cfg(unix)]
#[test]
fn an_interrupt_ends_a_text() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::Stdio;

    let model = Temporary::new("interrupt.gguf");
    write_model(&model.0, 2);
    let args = ["generate", model.text(), "--prompt", "abc", "-n", "1000000", "--seed", "1", "--ignore-end"];
    let mut child =
        command().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it was built");
    let mut out = BufReader::new(child.stdout.take().unwrap());
    // It has begun to generate.
    let mut begun = [0; 16];
    out.read_exact(&mut begun).unwrap();
    assert!(begun.starts_with(b"abc"));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("there is a shell").success());
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    let notes: Vec<String> =
        BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{notes:?}");
    assert_eq!(rest.last(), Some(&b'\n'));
    let text = [&begun[..], &rest].concat();
    assert!(text.len() < 1_000_000 && String::from_utf8(text).is_ok());
    for words in ["load ", "prompt ", "generate ", "interrupted"] {
        assert!(notes.iter().any(|note| note.contains(words)), "{words}: {notes:?}");
    }
}

#[test]
fn mistakes_are_told_in_one_line() {
    let model = Temporary::new("mistakes.gguf");
    write_model(&model.0, 2);
    let (text, folder) = (Temporary::new("text.gguf"), env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&text.0, "A text, and no model.").unwrap();
    let other = Temporary::new("other.gguf");
    let mut writer = Writer::new();
    writer.set("general.architecture", Meta::String("clip")).unwrap();
    writer.create(&other.0, true).unwrap().finish().unwrap();
    let adapter = Temporary::new("adapter.gguf");
    let mut writer = Writer::new();
    writer.set("general.type", Meta::String("adapter")).unwrap();
    writer.create(&adapter.0, true).unwrap().finish().unwrap();
    for (command, more) in [
        ("generate", &["--prompt", "a"][..]),
        ("model", &[]),
        ("tokenize", &["--text", "a"]),
        ("logits", &["--tokens", "1", "--out", "/no/such/folder/logits"]),
        ("embed", &["--text", "a", "--pooling", "last"]),
        ("rerank", &["--query", "q", "--text", "a"]),
        ("perplexity", &["--text", "a"]),
    ] {
        let run = |file, words: &[&str]| refused(&[&[command, file], more].concat(), 1, words);
        run("/no/such/model.gguf", &["/no/such/model.gguf", "No such file"]);
        run(folder, &[folder, "config.json", "checkpoint"]);
        run(text.text(), &[text.text(), "GGUF"]);
        run(other.text(), &["clip", "llama", "gemma3"]);
        run(adapter.text(), &["general.architecture"]);
    }
    refused(&["embed", model.text(), "--text", "a"], 2, &["--pooling"]);
    let generate = ["generate", model.text()];
    let refuse = |more: &[&str], code, words: &[&str]| refused(&[&generate, more].concat(), code, words);
    refuse(&["--tokens", "1,259", "--json"], 2, &["259"]);
    refuse(&["--prompt", "a", "--temperature=-1"], 2, &["temperature", "-1"]);
    refuse(&["--prompt", "a", "--threads", "0"], 2, &["`0`"]);
    refused(&["model", model.text(), "--prompt", "0"], 2, &["0"]);
    refused(&["model", model.text(), "--sequences", "0"], 2, &["0"]);
    refused(
        &["model", model.text(), "--html", "/no/such/folder/page.html"],
        1,
        &["/no/such/folder/page.html"],
    );
    refused(
        &["logits", model.text(), "--tokens", "1", "--out", "/no/such/folder/x"],
        1,
        &["/no/such/folder/x"],
    );
}

/// A small BERT of `ci/make-model.py --tests`: texts have embeddings, and nothing else.
#[test]
fn encoders_make_embeddings() {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("../target"), PathBuf::from);
    let path = target.join("ci/models/tiny-bert.gguf");
    let Some(model) = path.to_str().filter(|_| path.exists()) else {
        eprintln!("SKIPPED: {} is missing (ci/setup writes it)", path.display());
        return;
    };
    let tokens = json(&["tokenize", model, "--text", "The Lázy dogs jumped!", "--json"]);
    let tokens: Vec<u64> = tokens.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    assert_eq!((tokens[0], tokens[tokens.len() - 1], tokens.len()), (2, 3, 9), "{tokens:?}");
    let same = ["--text", "the lazy dogs jumped !", "--text", "The Lázy dogs jumped!", "--text", "a fox"];
    let rows = json(&[&["embed", model, "--json", "--precision", "exact"], &same[..]].concat());
    let row = |i: usize| {
        let row = rows[i]["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap());
        row.collect::<Vec<_>>()
    };
    assert_eq!((&rows[0]["tokens"], &rows[1]["tokens"], row(0).len()), (&9.into(), &9.into(), 64));
    assert_eq!(row(0), row(1));
    assert!(row(0) != row(2) && (row(0).iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-5);
    let out = Temporary::new("encoder.logits");
    // Drivers of GPUs that are looked for may say something, too.
    let cpu = ["--backend", "cpu"];
    let logits = ["logits", model, "--tokens", "5,6", "--out", out.text()];
    refused(&[&logits[..], &cpu].concat(), 1, &["logits of an encoder"]);
    // The prompt has been shown by then.
    let output = gllm_bench(&["generate", model, "--prompt", "a", "-n", "4"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("logits of an encoder"));
    // What there are embeddings of positions for.
    let long = "a ".repeat(63);
    refused(&[&["embed", model, "--text", &long], &cpu[..]].concat(), 1, &["65 tokens", "64"]);
}
