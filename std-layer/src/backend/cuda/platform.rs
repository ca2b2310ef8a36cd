//! Whose GPUs there are, and how their drivers are reached.

use std::fmt;

use crate::cuda::{CudaError, Driver};

/// Whose GPUs a backend finds.
pub trait Platform: Send + Sync + fmt::Debug + 'static {
    /// Opens the driver that reaches them.
    ///
    /// # Errors
    /// Those of [`Driver::open`].
    fn driver() -> Result<Driver, CudaError>;
}

/// GPUs of NVIDIA's, by CUDA's driver.
#[derive(Debug)]
pub enum Nvidia {}

impl Platform for Nvidia {
    fn driver() -> Result<Driver, CudaError> {
        Driver::open()
    }
}

/// GPUs of AMD's, by ROCm's runtime.
#[cfg(feature = "rocm")]
#[derive(Debug)]
pub enum Amd {}

#[cfg(feature = "rocm")]
impl Platform for Amd {
    fn driver() -> Result<Driver, CudaError> {
        crate::rocm::open()
    }
}
