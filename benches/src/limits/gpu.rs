//! The bandwidth of a GPU's memory.

use gllm_kernels_std::backend::AnyBackend;
use gllm_kernels_std::cuda::{Buffer, Context, CudaError, Event, Stream};

/// Bytes that are copied: several times the largest cache of a GPU.
const BYTES: usize = 512 << 20;

/// Copies that are timed; the best one counts.
const TURNS: usize = 8;

/// What a GPU's memory moves by copying, in bytes a second, those that are read and those that are written; `None` for backends on which nobody can tell, and if there is no
/// room for copies.
///
/// # Errors
/// Those of the GPU.
pub fn bandwidth(backend: &AnyBackend) -> Result<Option<f64>, CudaError> {
    let context = match backend {
        AnyBackend::Cuda(backend) => backend.context(),
        #[cfg(feature = "rocm")]
        AnyBackend::Rocm(backend) => backend.context(),
        _ => return Ok(None),
    };
    match copy(context) {
        Err(CudaError::OutOfMemory { .. }) => Ok(None),
        speed => speed.map(Some),
    }
}

fn copy(context: &Context) -> Result<f64, CudaError> {
    let stream = Stream::new(context)?;
    let (from, mut to) = (Buffer::<u8>::new(context, BYTES)?, Buffer::<u8>::new(context, BYTES)?);
    let mut best = f64::INFINITY;
    for _ in 0..TURNS {
        let (before, after) = (Event::new(context)?, Event::new(context)?);
        before.record(&stream)?;
        to.copy_from(&stream, &from)?;
        after.record(&stream)?;
        stream.wait()?;
        best = best.min(f64::from(after.ms_since(&before)?) / 1e3);
    }
    Ok(2.0 * BYTES as f64 / best)
}
