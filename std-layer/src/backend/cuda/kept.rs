//! What layers keep of sequences in the memory of a GPU.

use gllm_kernels_core::KernelError;

use crate::cuda::{Buffer, CudaError, KvCache, Stream};

/// What a layer keeps of sequences, in pages.
#[derive(Debug)]
pub(super) enum LayerCache {
    /// Keys and values of positions.
    Positions(KvCache),
    /// States, one behind the other.
    States(Buffer<f32>),
    /// Nothing: it attends to what another layer has, or not at all.
    Nothing,
}

impl LayerCache {
    pub(super) fn kv(&self) -> Result<&KvCache, CudaError> {
        match self {
            Self::Positions(cache) => Ok(cache),
            _ => Err(Self::other("a layer with keys and values")),
        }
    }

    pub(super) fn kv_mut(&mut self) -> Result<&mut KvCache, CudaError> {
        match self {
            Self::Positions(cache) => Ok(cache),
            _ => Err(Self::other("a layer with keys and values")),
        }
    }

    pub(super) fn states_mut(&mut self) -> Result<&mut Buffer<f32>, CudaError> {
        match self {
            Self::States(states) => Ok(states),
            _ => Err(Self::other("a recurrent layer")),
        }
    }

    fn other(expected: &'static str) -> CudaError {
        CudaError::Kernel(KernelError::BadParameter { arg: "cache", expected })
    }

    /// Copies a page, of which there are `pages`.
    pub(super) fn copy_page(
        &mut self,
        stream: &Stream,
        [from, to]: [u32; 2],
        pages: usize,
    ) -> Result<(), CudaError> {
        match self {
            Self::Nothing => Ok(()),
            Self::Positions(cache) => cache.copy_page(stream, from, to),
            Self::States(states) => {
                let len = states.len() / pages.max(1);
                let [from, to] = [from, to].map(|page| page as usize * len);
                // SAFETY: the states are borrowed exclusively, and two pages do not overlap.
                let mut page = unsafe { states.shared_range_mut(to..to + len)? };
                page.copy_from(stream, states.range(from..from + len)?)
            }
        }
    }
}
