//! Texts that become rows.

use gllm_kernels_std::backend::{Backend, BackendError, CpuBackend, Outputs, Run, Topology};
use gllm_kernels_std::core::QuantFormat;
use gllm_kernels_std::model::{Generator, Options, Pooling};

use super::tiny::{embedding, oracle, Tiny};
use super::{backend, options, tokens};

/// Rows of texts, in one step and in several, are those of the oracle and the CPU.
#[test]
fn texts_become_rows() {
    let decoders = ["qwen3", "qwen2moe"].map(|name| Tiny::new(name, Some(QuantFormat::Q8_0)));
    for tiny in decoders.into_iter().chain(Tiny::encoders()) {
        let model = tiny.open();
        let weights = model.weights().unwrap();
        let all = tokens(60, tiny.vocabulary);
        let texts = [&all[..17], &all[5..6], &all[20..60], &all[1..2]];
        for pooling in [Pooling::Mean, Pooling::First, Pooling::Last] {
            let Some(backend) = backend() else { return };
            let mut g = Generator::new(backend, &model, Options { chunk: Some(50), ..options() }).unwrap();
            let rows = g.embed(&texts, pooling).unwrap();
            let mut cpu = Generator::new(CpuBackend::new(2).unwrap(), &model, options()).unwrap();
            let of_cpu = cpu.embed(&texts, pooling).unwrap();
            for (i, (row, cpu)) in rows.iter().zip(&of_cpu).enumerate() {
                let want = embedding(model.config(), &weights, texts[i], pooling);
                for ((x, &y), &cpu) in want.iter().zip(row).zip(cpu) {
                    let y = f64::from(y);
                    assert!((x - y).abs() < 2e-5, "{tiny:?}, {pooling:?}, text {i}: {y} instead of {x}");
                    assert!((f64::from(cpu) - y).abs() < 2e-5, "{tiny:?}, {pooling:?}, text {i}: {y}, {cpu}");
                }
            }
            if !model.config().causal {
                continue;
            }
            // A prompt behind it has logits again.
            let logits = g.logits(&all[..17]).unwrap();
            let want = oracle(model.config(), &weights, &all[..17]);
            let near = |(want, &got): (&f64, &f32)| (want - f64::from(got)).abs() <= 1e-3;
            assert!(want.iter().flatten().zip(&logits).all(near), "{tiny:?}, {pooling:?}");
        }
    }
}

/// A text of which no row is asked for cannot be pooled, and changes nothing.
#[test]
fn texts_without_rows_are_refused() {
    let Some(backend) = backend() else { return };
    let model = Tiny::new("qwen3", None).open();
    let (config, options) = (model.config(), options());
    let weights = backend.upload_generator_weights(config, &model.weights().unwrap(), &mut |_| ()).unwrap();
    let mut kv = backend.alloc_kv_cache(64, config, &options.cache).unwrap();
    let sequence = backend.create_sequence(&mut kv);
    let mut embed = |outputs| {
        let topology = Topology { runs: vec![Run { sequence, tokens: 2, outputs }] };
        let how = &options.forward;
        backend.embedding_forward_gpu_pure(&[1, 2], &topology, &weights, &mut kv, how, Pooling::Mean)
    };
    let refused = embed(Outputs::None);
    assert!(matches!(refused, Err(BackendError::Tokens(_))), "{refused:?}");
    assert_eq!(embed(Outputs::All).unwrap().rows(), 1);
    assert_eq!(backend.pages(&kv).positions(sequence), Ok(2));
}
