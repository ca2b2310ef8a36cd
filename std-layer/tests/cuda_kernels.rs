//! Every CUDA kernel, compared with the core and with f64: on an emulated driver, or on the GPU of this machine with
//! `GLLM_TEST_CUDA=gpu`.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod cuda;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "cuda_kernels/suite.rs"]
mod suite;

/// The emulated driver, and how drivers are opened.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod platform {
    use gllm_kernels_std::cuda::{CudaError, Driver};

    use crate::cuda::Fake;

    /// How many kinds of GPUs are emulated, what is behind the names of their trials, and the emulators: with `wgmma` and without.
    pub const KINDS: usize = 2;
    pub fn suffix(kind: usize) -> String {
        if kind == 0 {
            String::new()
        } else {
            "_sm_100".to_owned()
        }
    }
    pub fn emulator(_: usize) -> &'static std::path::Path {
        crate::cuda::emulator()
    }

    /// Whether most of the kernels are those of another platform, which tests them.
    pub const SHARES_SOURCES: bool = false;

    pub fn real() -> Result<Driver, CudaError> {
        Driver::open()
    }
    pub fn emulated(kind: usize) -> Result<Driver, CudaError> {
        match kind {
            0 => Driver::open_at(emulator(0)),
            // The copy's file is not needed once it is open.
            _ => Driver::open_at(&Fake::new(&[("capability", 100)]).path),
        }
    }
}

/// The emulator switches stacks by instructions of x86-64.
fn main() {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    suite::main();
}
