//! `gllm-bench quantize`: what it writes, and what it refuses.

use std::path::Path;

use gllm_kernels_core::{bf16, f16, Kernels, QuantFormat};
use gllm_kernels_std::gguf::{GgmlType, Gguf, Value as Meta, ValueType, Writer};

use super::{gllm_bench, json, refused, stdout, temporary};

/// Numbers of either sign, always the same.
fn weights(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 2_654_435_761 % 10_007) as f32 - 5003.0) / 7001.0).collect()
}

/// A small model: every kind of tensor that `quantize` treats in a way of its own.
fn model(path: &Path) {
    let f32s = |n| weights(n).iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let f16s = |n| weights(n).iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect::<Vec<u8>>();
    let bf16s = |n| weights(n).iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect::<Vec<u8>>();
    let tensors: [(&str, &[u64], GgmlType, Vec<u8>); 10] = [
        ("token_embd.weight", &[256, 8], GgmlType::F32, f32s(2048)),
        ("blk.0.attn_norm.weight", &[256], GgmlType::F32, f32s(256)),
        ("blk.0.attn_q.weight", &[256, 4], GgmlType::F16, f16s(1024)),
        ("blk.0.ffn_down.weight", &[96, 5], GgmlType::BF16, bf16s(480)),
        ("blk.0.ffn_odd.weight", &[40, 3], GgmlType::F32, f32s(120)),
        ("blk.0.ffn_up.weight", &[512, 2, 2], GgmlType::Q8_0, encoded(QuantFormat::Q8_0, &weights(2048))),
        ("blk.0.ffn_gate_inp.weight", &[256, 2], GgmlType::F32, f32s(512)),
        ("blk.0.ids", &[3, 2], GgmlType::I8, vec![1, 2, 3, 4, 5, 6]),
        ("empty.weight", &[256, 0], GgmlType::F32, vec![]),
        ("output.weight", &[256, 8], GgmlType::F32, f32s(2048)),
    ];
    let mut writer = Writer::new();
    writer.set("general.architecture", Meta::String("llama")).unwrap();
    writer.set("general.alignment", Meta::U32(64)).unwrap();
    writer.set("general.file_type", Meta::U32(1)).unwrap();
    writer.set_array("tokenizer.ggml.tokens", ValueType::String, ["a", "ß"].map(Meta::String)).unwrap();
    for (name, dims, of, _) in &tensors {
        writer.add_tensor(name, dims, *of).unwrap();
    }
    let mut file = writer.create(path, true).unwrap();
    tensors.iter().try_for_each(|(.., data)| file.write(data)).unwrap();
    file.finish().unwrap();
}

fn encoded(format: QuantFormat, x: &[f32]) -> Vec<u8> {
    let mut out = vec![0; format.row_bytes(x.len()).unwrap()];
    Kernels::detect().quantize(format, x, None, &mut out).unwrap();
    out
}

#[test]
fn quantize_writes_a_model() {
    let (input, output) = (temporary("model.gguf"), temporary("q4_k.gguf"));
    let (from, to) = (input.to_str().unwrap(), output.to_str().unwrap());
    model(&input);
    let report = json(&["quantize", from, to, "--format", "q4_k", "--threads", "2", "--json"]);
    let (before, after) = (Gguf::read(&input).unwrap(), Gguf::read(&output).unwrap());

    // What each tensor is encoded from: what is stored, decoded.
    let halves: Vec<f32> = weights(1024).iter().map(|&x| f16::from_f32(x).to_f32()).collect();
    let brains: Vec<f32> = weights(480).iter().map(|&x| bf16::from_f32(x).to_f32()).collect();
    let mut decoded = vec![0.0; 2048];
    let up = before.tensor("blk.0.ffn_up.weight").unwrap().as_quant_ref().unwrap();
    Kernels::detect().dequant(up, &mut decoded).unwrap();
    let odd: Vec<u8> = weights(120).iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect();
    let expected = [
        ("token_embd.weight", "Q4_K", Some(encoded(QuantFormat::Q4K, &weights(2048))), None),
        ("blk.0.attn_norm.weight", "F32", None, Some("vector")),
        ("blk.0.attn_q.weight", "Q4_K", Some(encoded(QuantFormat::Q4K, &halves)), None),
        ("blk.0.ffn_down.weight", "Q5_0", Some(encoded(QuantFormat::Q5_0, &brains)), Some("rows of 96")),
        ("blk.0.ffn_odd.weight", "F16", Some(odd), Some("rows of 40")),
        ("blk.0.ffn_up.weight", "Q4_K", Some(encoded(QuantFormat::Q4K, &decoded)), None),
        ("blk.0.ffn_gate_inp.weight", "F32", None, Some("sensitive")),
        ("blk.0.ids", "I8", None, Some("not weights")),
        ("empty.weight", "F32", None, Some("vector")),
        ("output.weight", "Q6_K", Some(encoded(QuantFormat::Q6K, &weights(2048))), Some("output")),
    ];
    assert_eq!(after.tensors_len(), expected.len());
    for ((t, row), (name, of, data, note)) in
        after.tensors().zip(report["tensors"].as_array().unwrap()).zip(expected)
    {
        let old = before.tensor(name).unwrap();
        assert_eq!((t.name(), &*t.ggml_type().to_string(), t.dims()), (name, of, old.dims()));
        assert!(t.data() == Some(data.as_deref().unwrap_or(old.data().unwrap())), "{name}");
        assert_eq!((row["name"].as_str(), row["to"].as_str()), (Some(name), Some(of)));
        assert_eq!(row["bytes_to"].as_u64(), t.size(), "{name}");
        match (row["note"].as_str(), note) {
            (Some(text), Some(word)) => assert!(text.contains(word), "{name}: {text}"),
            (got, want) => assert_eq!(got, want, "{name}"),
        }
    }
    assert_eq!((report["decoded"].as_u64(), report["not_finite"].as_u64()), (Some(1), Some(0)));
    assert_eq!(report["bytes_to"].as_u64(), Some(after.file_size()));

    // Metadata is as it was, but for the two that tell the format.
    assert_eq!((after.alignment(), after.metadata_len()), (64, before.metadata_len() + 1));
    for (key, value) in before.metadata().filter(|(key, _)| *key != "general.file_type") {
        assert_eq!(after.get(key), Some(value), "{key}");
    }
    assert_eq!(after.get("general.file_type"), Some(Meta::U32(14)));
    assert_eq!(after.get("general.quantization_version"), Some(Meta::U32(2)));

    // Once more: nothing is overwritten without being told so, the input never.
    let again = ["quantize", from, to, "--format", "mxfp4"];
    assert!(refused(&again, 1).contains("--force"));
    let forced = gllm_bench(&[&again[..], &["--force"]].concat());
    assert!(forced.status.success());
    let text = stdout(&forced);
    for words in ["MXFP4", "kept: a vector", "rows of 40", "quantised already: decoded first"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let link = temporary("link.gguf");
    std::fs::hard_link(&input, &link).unwrap();
    for same in [from, link.to_str().unwrap()] {
        let text = refused(&["quantize", from, same, "--format", "q4_k", "--force"], 1);
        assert!(text.contains("same file"), "{text}");
    }
    assert!(refused(&["quantize", from, to, "--format", "q4_q"], 2).contains("q4_k"));
    assert!(refused(&["quantize", from, to, "--format", "iq2_xs"], 2).contains("cannot be encoded"));
    assert!(refused(&["quantize", to, "/no/such/folder/x.gguf", "--format", "q4_k"], 1).contains("/no/such"));
    for path in [input, output, link] {
        std::fs::remove_file(path).unwrap();
    }
}

/// A model whose embeddings are its output.
#[test]
fn tied_embeddings_are_the_output() {
    let (input, output) = (temporary("tied.gguf"), temporary("tied-out.gguf"));
    for (format, wanted) in
        [("q4_0", "Q6_K"), ("tq2_0", "Q6_K"), ("q8_0", "Q8_0"), ("mxfp4", "Q8_0"), ("bf16", "BF16")]
    {
        let mut writer = Writer::new();
        writer.add_tensor("token_embd.weight", &[256, 2], GgmlType::F32).unwrap();
        let mut file = writer.create(&input, true).unwrap();
        file.write(&weights(512).iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
        file.finish().unwrap();
        let args =
            ["quantize", input.to_str().unwrap(), output.to_str().unwrap(), "--format", format, "--force"];
        assert!(gllm_bench(&args).status.success(), "{format}");
        let written = Gguf::read(&output).unwrap();
        assert_eq!(written.tensors().next().unwrap().ggml_type().to_string(), wanted, "{format}");
    }
    for path in [input, output] {
        std::fs::remove_file(path).unwrap();
    }
}
