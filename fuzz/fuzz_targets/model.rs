//! Models from arbitrary bytes: metadata, names, shapes and vectors of whatever opens.
//!
//! `cargo +nightly fuzz run model fuzz/corpus/model FOLDER` (small models as seeds: `ci/make-model.py --tests FOLDER`)
#![no_main]

use std::hint::black_box;

use gllm_kernels_std::model::{Matrix, Model};
use gllm_kernels_std::AlignedVec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let aligned = AlignedVec::from_slice(bytes);
    let model = match Model::from_bytes(&aligned) {
        Ok(model) => model,
        Err(error) => {
            black_box(error.to_string());
            return;
        }
    };
    let (config, weights) = (model.config(), model.weights().expect("it was checked"));
    assert!(config.layers == config.layer.len() && config.layers == weights.layers.len());
    assert!(config.layer.iter().all(|l| l.rope < config.ropes.len() && l.window != Some(0)));
    assert!(config.heads % config.kv_heads == 0 && config.head_dim % 2 == 0);
    let below = |t: &u32| (*t as usize) < config.vocabulary;
    assert!(config.stop_tokens.iter().all(below) && config.bos.iter().all(below));
    let (mut cos, mut sin) = (vec![0.0; config.head_dim], vec![0.0; config.head_dim]);
    for rope in config.ropes.iter().filter(|rope| rope.dims > 0) {
        let half = rope.dims / 2;
        let positions = gllm_kernels_std::core::RopePositions::From(config.context - 1);
        rope.freqs()
            .table(positions, &mut cos[..half], &mut sin[..half])
            .expect("frequencies that were checked");
    }
    // Every byte of every matrix is in the file.
    let touch = |m: Matrix<'_>, rows: usize, cols: usize| {
        assert_eq!((m.rows(), m.cols()), (rows, cols));
        assert!(m.bytes() <= bytes.len());
        if let Matrix::Quantised(w) = m {
            black_box(w.as_bytes().iter().fold(0u8, |a, &b| a ^ b));
        }
    };
    touch(weights.embedding, config.vocabulary, config.hidden);
    touch(weights.output, config.vocabulary, config.hidden);
    if let Some(table) = weights.positions {
        touch(table, config.context, config.hidden);
    }
    if let Some(table) = weights.token_types {
        touch(table, config.token_types, config.hidden);
    }
    for l in &weights.layers {
        let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        touch(l.q, queries, config.hidden);
        touch(l.k, keys, config.hidden);
        touch(l.v, keys, config.hidden);
        touch(l.output, config.hidden, queries);
        if let Some(network) = l.feed_forward {
            if let Some(gate) = network.gate {
                touch(gate, config.intermediate, config.hidden);
            }
            touch(network.up, config.intermediate, config.hidden);
            touch(network.down, config.hidden, config.intermediate);
        }
        if let (Some(weights), Some(e)) = (&l.experts, config.experts) {
            touch(weights.router, e.count, config.hidden);
            assert_eq!(weights.each.len(), e.count);
            for network in &weights.each {
                touch(network.gate, e.intermediate, config.hidden);
                touch(network.up, e.intermediate, config.hidden);
                touch(network.down, config.hidden, e.intermediate);
            }
        }
        let norms = l.attention_norm.iter().chain(&l.ffn_norm);
        let both = l.attention_sum_norm.iter().chain(&l.ffn_sum_norm).flat_map(|norm| [&norm.weight, &norm.bias]);
        assert!(norms.chain(both).flatten().all(|x| x.is_finite()));
    }
    black_box(model.unused());
});
