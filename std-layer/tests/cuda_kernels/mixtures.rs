//! Models with mixtures of experts.

use gllm_kernels_std::backend::{CpuBackend, CudaBackend};
use gllm_kernels_std::core::QuantFormat;
use gllm_kernels_std::model::{Config, ExpertWeights, Gate, HostWeights, Options};

use super::tiny::{oracle, Tiny};
use super::{context, divergence, exact, on_cpu, on_gpu, run, same, text, tokens, Outcome};

/// Attention with sinks, and experts with biases and clamped gates: all of them used, so that rounding does not decide which ones are.
fn with_sinks() -> impl Iterator<Item = Tiny> {
    let of = |format| Tiny { experts: Some((3, 3)), ..Tiny::new("gpt-oss", format) };
    let heads = Tiny { head_dim: 36, heads: 8, ..of(None) };
    [of(None), of(Some(QuantFormat::Mxfp4)), of(Some(QuantFormat::Q8_0)), heads].into_iter()
}

/// Logits are those of the model without rounding, too, and each part that few architectures have matters.
pub(super) fn parts_of_gpt_oss() -> Outcome {
    let model = Tiny { layers: 2, ..Tiny::new("gpt-oss", None) }.open();
    let (config, tokens) = (model.config(), tokens(40, 97));
    let gpu = CudaBackend::with_context(context()).map_err(text)?;
    let weights = || model.weights().map_err(text);
    let got = run(&gpu, weights()?, config, &tokens).map_err(text)?;
    let want: Vec<f32> =
        oracle(config, &weights()?, &tokens).into_iter().flatten().map(|x| x as f32).collect();
    same("gpt-oss in f64", &want, &got)?;
    type Change = fn(&mut Config, &mut HostWeights<'_>);
    let without: [(&str, Change); 6] = [
        ("sinks", |_, weights| weights.layers[1].sinks = None),
        ("the bias of the output matrix", |_, weights| weights.layers[1].output_bias = None),
        ("the bias of the router", |_, weights| experts_of(weights).router_bias = None),
        ("biases of gates", |_, weights| biases_of(weights)[0].fill(0.0)),
        ("biases of down", |_, weights| biases_of(weights)[2].fill(0.0)),
        ("clamped gates", |config, _| config.gate = Gate::Silu),
    ];
    let cpu = CpuBackend::new(1).map_err(text)?;
    for (what, change) in without {
        let (mut config, mut weights) = (config.clone(), weights()?);
        change(&mut config, &mut weights);
        let other = run(&gpu, weights.clone(), &config, &tokens).map_err(text)?;
        if same("", &got, &other).is_ok() {
            return Err(format!("{what}: nothing changes"));
        }
        let want = run(&cpu, weights, &config, &tokens).map_err(text)?;
        same(&format!("without {what}"), &want, &other)?;
    }
    Ok(())
}

fn experts_of<'a, 'b>(weights: &'b mut HostWeights<'a>) -> &'b mut ExpertWeights<'a> {
    weights.layers[1].experts.as_mut().expect("experts")
}

fn biases_of<'a>(weights: &'a mut HostWeights<'_>) -> &'a mut [Vec<f32>; 3] {
    experts_of(weights).biases.as_mut().expect("biases of experts")
}

/// Mixtures whose experts are chosen in every way: more experts than a warp has lanes, and more used than that; one of many, and all; and experts
/// that all rows choose, as the router finds all alike: others have none then.
fn odd_mixtures() -> impl Iterator<Item = Tiny> {
    let of = |experts, format| Tiny { experts: Some(experts), layers: 1, ..Tiny::new("qwen3moe", format) };
    let alike = |tiny| Tiny { router_scale: 0.0, ..tiny };
    let blocks = Some(QuantFormat::Q8_0);
    [
        of((70, 40), None),
        of((33, 1), blocks),
        of((1, 1), Some(QuantFormat::Q4_1)),
        of((5, 5), Some(QuantFormat::Bf16)),
        alike(of((9, 2), blocks)),
        // Rows and blocks of weights that begin anywhere.
        Tiny { hidden: 256, heads: 8, intermediate: 256, ..alike(of((4, 3), Some(QuantFormat::Q6K))) },
    ]
    .into_iter()
}

/// Every mixture: groups of experts that are as good as their best one, too.
pub(super) fn mixtures() -> impl Iterator<Item = Tiny> {
    let all = Tiny::mixtures().chain(odd_mixtures()).chain(with_sinks());
    all.chain(Tiny::latent()).chain([Tiny { layers: 2, ..Tiny::with_best_of_groups() }])
}

/// More rows than blocks of products take, all of which go through the same experts, on tensor cores with blocks of many rows and of few.
pub(super) fn many_rows_of_an_expert(format: Option<QuantFormat>) -> Outcome {
    for (experts, chunk) in [((8, 2), 512), ((8, 1), 100)] {
        let like = Tiny::new("llama", format);
        let tiny =
            Tiny { experts: Some(experts), router_scale: 0.0, layers: 1, heads: 2, kv_heads: 1, ..like };
        let model = tiny.open();
        let tokens = tokens(300, tiny.vocabulary);
        let want = on_cpu(&model)?.logits(&tokens).map_err(text)?;
        let options = |how: Options| Options { chunk: Some(chunk), max_tokens: Some(512), ..how };
        let exact = on_gpu(&model, options(exact()))?.logits(&tokens).map_err(text)?;
        same(&format!("{tiny:?}, chunks of {chunk}"), &want, &exact)?;
        let fast = on_gpu(&model, options(Options::default()))?.logits(&tokens).map_err(text)?;
        let mean = divergence(&want, &fast, tiny.vocabulary);
        let near = mean < 4e-3;
        if !near {
            return Err(format!("{tiny:?}, chunks of {chunk}: KL divergence {mean}"));
        }
    }
    Ok(())
}

/// A router whose scores are no numbers chooses some experts, and does no harm.
pub(super) fn routers_that_overflow() -> Outcome {
    let tiny = Tiny { router_scale: 3e38, ..Tiny::new("qwen3moe", None) };
    let model = tiny.open();
    let logits = on_gpu(&model, exact())?.logits(&tokens(40, tiny.vocabulary)).map_err(text)?;
    match logits.iter().any(|x| x.is_nan()) {
        true => Ok(()),
        false => Err("scores were numbers".to_owned()),
    }
}
