//! The GGUF reader on arbitrary bytes: parse, then use everything a parsed file offers.
//!
//! `cargo +nightly fuzz run gguf fuzz/corpus/gguf std-layer/tests/data`
#![no_main]

use std::hint::black_box;

use gllm_kernels_std::core::{bf16, f16};
use gllm_kernels_std::gguf::{Gguf, GgufError, Value};
use libfuzzer_sys::fuzz_target;

fn touch(value: Value<'_>) -> usize {
    match value {
        Value::Array(array) => array.iter().map(touch).sum::<usize>(),
        other => other.as_str().map_or(1, str::len),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let file = match Gguf::from_bytes(bytes) {
        Ok(file) => file,
        Err(GgufError::Invalid { offset, field, problem }) => {
            assert!(offset <= bytes.len() as u64);
            black_box(format!("{field} {problem}"));
            return;
        }
        Err(other) => panic!("{other}: nothing was opened"),
    };
    let mut count = 0;
    for (key, value) in file.metadata() {
        black_box(touch(value));
        assert_eq!(file.get(key).map(|v| v.value_type()), Some(value.value_type()));
        count += 1;
    }
    assert_eq!(count, file.metadata_len());
    for tensor in file.tensors() {
        assert_eq!(file.tensor(tensor.name()).map(|t| t.file_offset()), Some(tensor.file_offset()));
        assert_eq!(tensor.data().map(|d| d.len() as u64), tensor.size());
        if let Some(data) = tensor.data() {
            black_box(data.iter().fold(0u8, |a, &b| a ^ b));
        }
        black_box((tensor.as_slice::<f32>(), tensor.as_slice::<f16>(), tensor.as_slice::<bf16>()));
        if let Ok(w) = tensor.as_quant_ref() {
            assert_eq!(Some(w.as_bytes()), tensor.data());
        }
        black_box(format!("{tensor:?} {:?}", tensor.rows()));
    }
});
