//! Checkpoints from arbitrary bytes: all weights of whatever opens, and the rows of codes with scales.
//!
//! `cargo +nightly fuzz run safetensors fuzz/corpus/safetensors`
#![no_main]

use std::hint::black_box;

use gllm_kernels_std::safetensors::{Checkpoint, Quantisation, View};
use gllm_kernels_std::AlignedVec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let aligned = AlignedVec::from_slice(bytes);
    let checkpoint = match Checkpoint::from_bytes(&aligned, Quantisation::default()) {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            black_box(error.to_string());
            return;
        }
    };
    for weight in checkpoint.weights() {
        assert!(weight.bytes <= 16 * bytes.len() as u64);
        let Ok(View::Codes(codes)) = &weight.view else { continue };
        assert_eq!(weight.shape, [codes.outputs(), codes.inputs()]);
        // A matrix without outputs may have any number of inputs.
        for output in 0..codes.outputs() {
            let mut row = vec![0.0; codes.inputs()];
            codes.row(output, &mut row).expect("it is there");
            black_box(row);
        }
    }
});
