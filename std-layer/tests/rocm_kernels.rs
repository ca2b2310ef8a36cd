//! Kernels that are other ones on GPUs of AMD's than on NVIDIA's, and whole models, compared with the core and with f64: on an emulated HSA
//! runtime; or every kernel, on the GPU of this machine, with `GLLM_TEST_CUDA=gpu`.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod cuda;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "cuda_kernels/suite.rs"]
mod suite;

/// The emulated runtime, and how runtimes are opened.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod platform {
    use gllm_kernels_std::cuda::{CudaError, Driver};
    use gllm_kernels_std::rocm;

    pub use crate::cuda::rocm_emulator as emulator;

    /// Whether most of the kernels are those of another platform, which tests them.
    pub const SHARES_SOURCES: bool = true;

    pub fn real() -> Result<Driver, CudaError> {
        rocm::open()
    }
    pub fn emulated() -> Result<Driver, CudaError> {
        rocm::open_at(emulator())
    }
}

/// The emulator switches stacks by instructions of x86-64.
fn main() {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    suite::main();
}
