//! GPUs of AMD's, through the HSA runtime of ROCm alone. This module implements the functions of CUDA's driver with that runtime,
//! so that everything above the driver is shared with [`cuda`](crate::cuda).
//!
//! None of it has run on a GPU yet. The tests run it on an emulated runtime.

mod device;
mod driver;
mod hsa;
mod queue;
mod state;

use std::path::Path;
use std::sync::Arc;

use crate::cuda::{CudaError, Driver};

/// The name of the runtime's library.
pub const LIBRARY: &str = "libhsa-runtime64.so.1";

/// Opens the runtime that the system finds.
///
/// # Errors
/// `NoRuntime`, `MissingFunction`, `NoDevice`, `Driver`.
pub fn open() -> Result<Driver, CudaError> {
    open_at(Path::new(LIBRARY))
}

/// Opens the runtime's library at `path`.
///
/// # Errors
/// Those of [`open`].
pub fn open_at(path: &Path) -> Result<Driver, CudaError> {
    Driver::start(Arc::new(state::Hsa::open(path)?))
}
