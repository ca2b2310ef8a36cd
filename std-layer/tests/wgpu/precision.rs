//! Activations that are rounded to 8 bits or to f16.

use gllm_kernels_std::backend::{Backend, ForwardConfig, Outputs, WgpuAdapter, WgpuBackend};
use gllm_kernels_std::core::Precision;
use gllm_kernels_std::model::{Generator, Options};

use super::tiny::{divergence, oracle, Tiny};
use super::{backend, golden, options, tokens, with_sinks};

/// Token by token, with what experts multiply rounded to 8 bits: logits diverge from the oracle's by no more than the CPU's may. All experts
/// are used, as rounding decides between two that score nearly alike.
#[test]
fn experts_with_rounded_activations() {
    let has_codes = |tiny: &Tiny| tiny.format.is_some_and(|format| !format.is_float());
    let all = Tiny::mixtures().chain(with_sinks()).chain(Tiny::hybrids());
    for tiny in all.filter(has_codes) {
        let Some(backend) = backend() else { return };
        let tiny = Tiny { experts: tiny.experts.map(|(count, _)| (count, count)), ..tiny };
        let model = tiny.open();
        let tokens = tokens(40, tiny.vocabulary);
        let want = oracle(model.config(), &model.weights().unwrap(), &tokens);
        let forward = ForwardConfig::default();
        let mut g = Generator::new(backend, &model, Options { forward, ..options() }).unwrap();
        let sequence = g.create();
        let of_token = |(token, want): (&u32, &Vec<f64>)| {
            let logits = g.extend(sequence, &[*token], Outputs::Last).unwrap();
            divergence(want, &g.backend().read_logits(&logits).unwrap())
        };
        let mean = tokens.iter().zip(&want).map(of_token).sum::<f64>() / want.len() as f64;
        // Rounding is there, but not more of it.
        assert!(mean > 1e-7 && mean < 4e-3, "{tiny:?}: KL divergence {mean}");
    }
}

/// Prompts in f16: logits diverge from the oracle's a little, weights in f32 and `Exact` aside, where they are the same with f16 and without.
#[test]
fn prompts_in_f16() {
    let mixtures = Tiny::mixtures().chain(with_sinks());
    let mixtures = mixtures.map(|tiny| Tiny { experts: tiny.experts.map(|(n, _)| (n, n)), ..tiny });
    for tiny in Tiny::all().into_iter().chain(mixtures) {
        let Some(adapter) = WgpuAdapter::all().into_iter().next() else { return };
        let model = tiny.open();
        let tokens = tokens(40, tiny.vocabulary);
        let logits = |backend, precision| {
            let forward = ForwardConfig { precision, ..ForwardConfig::default() };
            let mut g = Generator::new(backend, &model, Options { forward, ..options() }).unwrap();
            g.logits(&tokens).unwrap()
        };
        let in_f16 = |precision| match WgpuBackend::with_f16(&adapter) {
            Ok(backend) => Some(logits(backend, precision)),
            Err(why) => {
                golden::say(format_args!("SKIPPED: {why}"));
                None
            }
        };
        let exact = logits(WgpuBackend::on(&adapter).unwrap(), Precision::Exact);
        let (Some(same), Some(got)) = (in_f16(Precision::Exact), in_f16(Precision::Integer)) else { return };
        assert!(exact == same, "{tiny:?}");
        let want = oracle(model.config(), &model.weights().unwrap(), &tokens);
        let of_row = |(want, got): (&Vec<f64>, &[f32])| divergence(want, got);
        let mean = want.iter().zip(got.chunks(want[0].len())).map(of_row).sum::<f64>() / want.len() as f64;
        // Rounding is there, but not more of it.
        assert!((got == exact) == tiny.format.is_none() && mean < 1e-3, "{tiny:?}: KL divergence {mean}");
    }
}
