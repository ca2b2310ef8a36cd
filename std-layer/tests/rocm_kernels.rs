//! Kernels that are other ones on GPUs of AMD's than on NVIDIA's, and whole models, compared with the core and with f64: on emulated HSA
//! runtimes with a GPU of each family; or every kernel, on the GPU of this machine, with `GLLM_TEST_CUDA=gpu`.

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

    use crate::cuda::{rocm_emulator, Controls, GFX};

    /// How many kinds of GPUs are emulated, what is behind the names of their trials, and the emulators.
    pub const KINDS: usize = GFX.len();
    pub fn suffix(kind: usize) -> String {
        format!("_gfx{:x}", GFX[kind])
    }
    pub fn emulator(kind: usize) -> &'static std::path::Path {
        rocm_emulator(GFX[kind])
    }

    /// Whether most of the kernels are those of another platform, which tests them.
    pub const SHARES_SOURCES: bool = true;

    pub fn real() -> Result<Driver, CudaError> {
        rocm::open()
    }
    pub fn emulated(kind: usize) -> Result<Driver, CudaError> {
        Controls::of(emulator(kind)).set("gfx", GFX[kind]);
        rocm::open_at(emulator(kind))
    }
}

/// The emulator switches stacks by instructions of x86-64.
fn main() {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    suite::main();
}
