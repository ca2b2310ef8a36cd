//! Every kernel that there is: the files of operators list theirs.

use super::error::{Capability, CudaError};
use super::kernels::{File, Name};
use super::Ops;

/// A kernel of the catalogue, for tests: its file, name, and the bytes of its arguments.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Listed {
    pub file: &'static str,
    pub name: String,
    pub arguments: usize,
}

/// Tells files, names and bytes of arguments of all kernels for GPUs of this compute capability.
fn list(capability: Capability, to: &mut dyn FnMut(File, Name, usize)) {
    super::elementwise::list(to);
    super::rows::list(to);
    super::quant::list(capability, to);
    super::grouped::list(to);
    super::linear::list(to);
    super::attention::list(capability, to);
    super::prefill::list(capability, to);
    super::sampling::list(to);
    super::gemm::list(to);
    super::gemv::list(to);
    super::decoder::list(to);
    super::latent::list(capability, to);
    super::experts::list(to);
}

impl Ops {
    /// Loads every kernel now; otherwise the first launch of one loads the file that it is in. Recordings can then begin with any.
    ///
    /// # Errors
    /// `OutOfMemory`, `Driver`, `Launch` with the name of a kernel that is missing, `DamagedKernels`.
    pub fn load(&self) -> Result<(), CudaError> {
        let mut all = Vec::new();
        list(self.loader.capability(), &mut |file, name, _| all.push((file, name)));
        all.into_iter().try_for_each(|(file, name)| self.loader.load(file, name))
    }
}

/// Every kernel that can be launched on GPUs of this compute capability.
#[doc(hidden)]
pub fn catalogue(capability: Capability) -> Vec<Listed> {
    let mut all = Vec::new();
    list(capability, &mut |file, name, arguments| {
        all.push(Listed { file: file.name(), name: name.join(), arguments });
    });
    all
}
