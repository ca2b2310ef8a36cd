//! Every CUDA kernel, compared with the core and with f64: on an emulated driver, or on the GPU of this machine with
//! `GLLM_TEST_CUDA=gpu`.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod cuda;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "cuda_kernels/suite.rs"]
mod suite;

/// The emulator switches stacks by instructions of x86-64.
fn main() {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    suite::main();
}
