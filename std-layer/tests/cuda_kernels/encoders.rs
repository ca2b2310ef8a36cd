//! Encoders, compared with the CPU's exact results.

use gllm_kernels_std::backend::{CudaBackend, KvType};
use gllm_kernels_std::core::QuantFormat;

use super::models::in_turn;
use super::{brief, context, some_of, text, trial, Trials};

#[path = "../encoder/alike.rs"]
mod alike;
use alike::small::Small;
use alike::{exact_rows, fast_rows, long_text, parts, refusals, OWN, PARTS, POOLINGS};

fn gpu() -> Result<CudaBackend, String> {
    CudaBackend::with_context(context()).map_err(text)
}

pub fn trials(trials: &mut Trials) {
    // Emulators are slow: there, a platform with another one's sources takes each architecture in one format, and models take turns with poolings and caches.
    let [bert, nomic, jina] = [Small::BERT, Small::NOMIC, Small::JINA];
    let few = [
        Small { format: Some(QuantFormat::Q8_0), ..bert },
        Small { format: Some(QuantFormat::F16), ..nomic },
        jina,
    ];
    let all = if brief() { few.to_vec() } else { Small::all().collect() };
    for (turn, small) in all.into_iter().enumerate() {
        let format = small.format.map_or("f32", QuantFormat::name);
        let fused = if small.fused { "_fused" } else { "" };
        let name = format!("{}_{format}_{}_heads{fused}", small.architecture, small.heads);
        let poolings = move || in_turn(POOLINGS, turn + turn / 3).collect::<Vec<_>>();
        let exact = move || exact_rows(small, &gpu()?, &poolings(), 0);
        trials.push(trial(format!("encoder_exact_{name}"), exact));
        let kinds = [KvType::F16, KvType::Bf16, KvType::F32, KvType::Q8_0];
        let fast = move || fast_rows(small, &gpu()?, in_turn(kinds, turn), &poolings());
        trials.push(trial(format!("encoder_fast_{name}"), fast));
    }
    trials.push(trial("encoder_long_text", move || long_text(jina, &gpu()?)));
    for (small, own) in some_of(OWN, 3) {
        let parts = move || {
            let gpu = gpu()?;
            parts(small, &gpu, &PARTS)?;
            parts(small, &gpu, own)
        };
        trials.push(trial(format!("encoder_parts_{}", small.architecture), parts));
    }
    trials.push(trial("encoder_refusals", || refusals(gpu)));
}
