//! OpenBLAS.

use std::ffi::{c_char, CStr};
use std::path::Path;

use gllm_kernels_core::ElementType;

use super::cblas::{gemm, gemv, rows};
use super::check::Check;
use super::library::{Known, Library};
use super::{Peer, Row};
use crate::error::Outcome;

static KNOWN: Known = Known {
    name: "openblas",
    files: &["libopenblas.so.0", "libopenblas.so", "libscipy_openblas.so", "libopenblas.dylib"],
    packages: &["scipy_openblas32/lib"],
    install: "pip install scipy-openblas32 (or, on Debian and Ubuntu, apt-get install libopenblas0-pthread)",
    prefixes: &["", "scipy_"],
    has: "openblas_set_num_threads",
    // Idle threads look for work during 2^20 clock cycles.
    environment: &[("OPENBLAS_THREAD_TIMEOUT", "20")],
};

/// OpenBLAS.
pub struct OpenBlas {
    library: &'static Library,
}

impl Peer for OpenBlas {
    const NAME: &'static str = KNOWN.name;

    /// It has no packed matrices: `gemm_prepacked` is compared with its plain product.
    const ROWS: &'static [Row<Self>] = rows! {
        "gemm" F32 "cblas_sgemm" gemm::<f32, _>, Check::Product;
        "gemm_bt" F32 "cblas_sgemm" gemm::<f32, _>, Check::Product;
        "gemm_prepacked" F32 "cblas_sgemm" gemm::<f32, _>, Check::Product;
        "gemv" F32 "cblas_sgemv" gemv, Check::Product;
    };

    fn open(library: Option<&Path>) -> Outcome<&'static Self> {
        Ok(Box::leak(Box::new(Self { library: Library::open(&KNOWN, library)? })))
    }

    fn version(&self) -> String {
        type Function = unsafe extern "C" fn() -> *const c_char;
        // SAFETY: the function's prototype.
        match unsafe { self.library.function::<Function>("openblas_get_config") } {
            // SAFETY: it returns a string for ever; the last words are the processor it picked kernels for.
            Ok(config) => self.library.describe(&unsafe { CStr::from_ptr(config()) }.to_string_lossy()),
            Err(_) => self.library.describe(""),
        }
    }

    fn set_threads(&self, threads: usize) -> Outcome {
        self.library.set_threads("openblas_set_num_threads", "openblas_get_num_threads", threads)
    }
}
