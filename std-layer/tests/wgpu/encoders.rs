//! Encoders, compared with the CPU's exact results.

use gllm_kernels_std::backend::{KvType, WgpuBackend};
use gllm_kernels_std::core::QuantFormat;
use gllm_kernels_std::model::{Options, Pooling};

use super::{backend, golden, options};

#[path = "../encoder/alike.rs"]
mod alike;
use alike::small::{tokens, Small};
use alike::{distance, exact_rows, fast_rows, long_text, parts, refusals, Loaded, OWN, PARTS, POOLINGS};

/// Rows up to which products are computed in another way: longer texts have the same bits beside others and alone.
const FEW: usize = 8;

#[test]
fn exact_embeddings_are_the_cpus() {
    let Some(backend) = backend() else { return };
    for (turn, small) in Small::all().enumerate() {
        exact_rows(small, &backend, &[POOLINGS[turn % 3]], FEW).unwrap();
    }
    long_text(Small::JINA, &backend).unwrap();
}

#[test]
fn embeddings_with_every_cache() {
    let Some(backend) = backend() else { return };
    for (turn, small) in Small::all().take(6).enumerate() {
        let kinds = [KvType::F16, KvType::Bf16, KvType::F32].into_iter();
        fast_rows(small, &backend, kinds, &[POOLINGS[turn % 3]]).unwrap();
    }
}

#[test]
fn every_part_of_an_encoder_counts() {
    let Some(backend) = backend() else { return };
    for (small, own) in OWN {
        parts(small, &backend, &PARTS).unwrap();
        parts(small, &backend, own).unwrap();
    }
}

#[test]
fn what_encoders_cannot_do_is_refused() {
    if backend().is_some() {
        refusals(|| Ok(backend().expect("the adapter of before"))).unwrap();
    }
}

/// Activations that are rounded to 8 bits in steps of one row, and to f16 in those of many, turn rows a little.
#[test]
fn rounding_turns_rows_a_little() {
    let Some(plain) = backend() else { return };
    let in_f16 = WgpuBackend::with_f16(plain.adapter());
    let in_f16 = in_f16.map_err(|why| golden::say(format_args!("SKIPPED: {why}"))).ok();
    let all = tokens(40);
    let ways = [Some((&plain, &all[5..6])), in_f16.as_ref().map(|backend| (backend, &all[..]))];
    for small in Small::all().filter(|small| small.format == Some(QuantFormat::Q8_0)) {
        let model = small.open();
        for (backend, text) in ways.into_iter().flatten() {
            let fast = Options { cache: options().cache, ..Options::default() };
            let [exact, fast] = [options(), fast].map(|options| {
                let mut loaded = Loaded::of(backend, &model, &options).unwrap();
                loaded.rows(&[text], Pooling::Mean).unwrap().swap_remove(0)
            });
            let far = distance(&exact, &fast);
            assert!(far > 1e-5 && far < 3e-2, "{small:?}, {} tokens: {far}", text.len());
        }
    }
}
