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
    // Every byte of every matrix is in the file, or was made of some of it: f16 of less than two bits at most, twice.
    let touch = |m: Matrix<'_>| {
        assert!(m.bytes() <= 32 * bytes.len());
        if let Matrix::Quantised(w) = m {
            black_box(w.as_bytes().iter().fold(0u8, |a, &b| a ^ b));
        }
    };
    let table = |m: Matrix<'_>, rows: usize| {
        assert_eq!((m.rows(), m.cols()), (rows, config.hidden));
        touch(m);
    };
    table(weights.embedding, config.vocabulary);
    table(weights.output, config.classifier.as_ref().map_or(config.vocabulary, |of| of.labels));
    weights.positions.into_iter().for_each(|m| table(m, config.context));
    weights.token_types.into_iter().for_each(|m| table(m, config.token_types));
    for l in &weights.layers {
        [l.q, l.k, l.v, l.output].into_iter().for_each(touch);
        l.feed_forward.iter().flat_map(|network| network.matrices()).for_each(touch);
        if let (Some(weights), Some(e)) = (&l.experts, config.experts) {
            table(weights.router, e.count);
            assert_eq!(weights.each.len(), e.count);
            weights.matrices().for_each(touch);
        }
        if let Some(of) = &l.latent {
            of.query.iter().chain(&of.keys).chain(&of.values).copied().for_each(touch);
        }
        let norms = l.attention_norm.iter().chain(&l.ffn_norm);
        let both =
            l.attention_sum_norm.iter().chain(&l.ffn_sum_norm).flat_map(|norm| [&norm.weight, &norm.bias]);
        assert!(norms.chain(both).flatten().all(|x| x.is_finite()));
    }
    black_box(model.unused());
});
