// A model on the CPU, as exact as it gets.

use gllm_kernels_std::backend::{CacheOptions, CpuBackend, ForwardConfig, KvType};
use gllm_kernels_std::core::Precision;
use gllm_kernels_std::model::{Generator, Model, Options};

/// Everything in f32.
pub fn exact() -> Options {
    let forward = ForwardConfig { precision: Precision::Exact, ..ForwardConfig::default() };
    let cache = CacheOptions { kind: KvType::F32, sequences: 8, ..CacheOptions::default() };
    Options { forward, cache, max_tokens: Some(2048), ..Options::default() }
}

/// A model that is ready to run.
pub fn generator(model: &Model<'_>, threads: usize, options: Options) -> Generator<CpuBackend> {
    Generator::new(CpuBackend::new(threads).unwrap(), model, options).unwrap()
}
