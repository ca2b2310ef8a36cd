//! Compiled kernels, loaded and started.

use std::ffi::{c_int, c_void, CString};
use std::fmt;
use std::io::Read;
use std::ptr::null_mut;
use std::sync::Arc;

use lzma_rust2::LzmaReader;

use super::driver::Context;
use super::error::{Capability, CudaError};
use super::geometry::Geometry;
use super::lifetime::Resource;
use super::stream::Stream;
use super::sys::{self, Handle};

/// Types that kernels take as their one argument.
///
/// # Safety
/// `repr(C)`, and the same as the kernel's in C; tests compare the sizes.
pub(super) unsafe trait Arguments: Copy {}

struct Loaded {
    context: Context,
    raw: Handle,
}

// SAFETY: the driver's functions may be called from any thread; the handle is never changed.
unsafe impl Send for Loaded {}
// SAFETY: the driver's functions may be called from several threads at once; the handle is never changed.
unsafe impl Sync for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        // Loaded by `Module::load`; functions, streams with work and recordings hold references.
        self.context.release(Resource::Module(self.raw));
    }
}

/// A file of kernels on the GPU.
#[derive(Clone)]
pub(super) struct Module(Arc<Loaded>);

impl PartialEq for Module {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Module {
    /// Loads a cubin.
    pub(super) fn load(context: &Context, cubin: &[u8]) -> Result<Self, CudaError> {
        let f = context.enter()?;
        let mut raw = null_mut();
        // SAFETY: an ELF file that was compiled for this GPU; writes one handle.
        match unsafe { f.module_load(&mut raw, cubin) } {
            sys::OUT_OF_MEMORY => {
                let free = context.memory().ok().map(|m| m.0);
                return Err(CudaError::OutOfMemory { asked: cubin.len(), free });
            }
            code => f.check("cuModuleLoadData", code)?,
        }
        Ok(Self(Arc::new(Loaded { context: context.clone(), raw })))
    }

    /// The kernel of this name.
    pub(super) fn function(&self, name: &str) -> Result<Function, CudaError> {
        let f = self.0.context.enter()?;
        let mut raw = null_mut();
        let c_name = CString::new(name).unwrap_or_default();
        // SAFETY: the module exists; writes one handle.
        let code = unsafe { f.module_function(&mut raw, self.0.raw, c_name.as_ptr()) };
        if code != sys::SUCCESS {
            return Err(CudaError::Launch { kernel: name.into(), why: f.code(code) });
        }
        Ok(Function { module: self.clone(), raw, name: name.into() })
    }
}

/// Bytes of shared memory that a block gets without being asked for specially.
const PLAIN_SHARED: usize = 48 << 10;

/// A kernel.
pub(super) struct Function {
    module: Module,
    raw: Handle,
    name: Arc<str>,
}

// SAFETY: the driver's functions may be called from any thread; the handle is never changed.
unsafe impl Send for Function {}
// SAFETY: the driver's functions may be called from several threads at once; the handle is never changed.
unsafe impl Sync for Function {}

impl Function {
    /// Allows launches with up to `shared` bytes of shared memory.
    fn allow_shared(&self, shared: usize) -> Result<(), CudaError> {
        let f = self.module.0.context.enter()?;
        let bytes = c_int::try_from(shared).unwrap_or(c_int::MAX);
        // SAFETY: the function exists.
        f.check("cuFuncSetAttribute", unsafe { f.function_set(self.raw, sys::MAX_DYNAMIC_SHARED, bytes) })
    }

    /// Queues a launch. No blocks are no launch.
    ///
    /// # Safety
    /// The kernel takes an `A`, whose addresses and sizes stay true until it is done.
    pub(super) unsafe fn launch<A: Arguments>(
        &self,
        stream: &Stream,
        geometry: Geometry,
        args: &A,
    ) -> Result<(), CudaError> {
        let context = &self.module.0.context;
        context.same(stream.context())?;
        let ([x, y, z], threads, bytes) = geometry.within(&self.name, &context.device().limits)?;
        if x == 0 || y == 0 || z == 0 {
            return Ok(());
        }
        if geometry.shared > PLAIN_SHARED {
            self.allow_shared(geometry.shared)?;
        }
        let f = context.enter()?;
        let argument = (std::ptr::from_ref(args).cast::<c_void>(), size_of::<A>());
        // SAFETY: the caller vouches for the argument.
        let code = unsafe { f.launch(self.raw, [x, y, z], threads, bytes, stream.next(), argument) };
        if code != sys::SUCCESS {
            return Err(CudaError::Launch { kernel: self.name.to_string(), why: f.code(code) });
        }
        stream.starts(Some(&self.name), |modules| modules.add(&self.module));
        Ok(())
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({})", self.name)
    }
}

/// Unpacks a file of an embedded archive, which has of each its length, in 4 bytes, and itself.
pub(crate) fn inflate(packed: &[u8], member: usize, capability: Capability) -> Result<Vec<u8>, CudaError> {
    let mut archive = Vec::new();
    let damaged = || CudaError::DamagedKernels { capability };
    let read = LzmaReader::new_mem_limit(packed, u32::MAX, None);
    read.and_then(|mut reader| reader.read_to_end(&mut archive)).map_err(|_| damaged())?;
    let mut rest = &archive[..];
    for before in (0..=member).rev() {
        let (length, files) = rest.split_first_chunk().ok_or_else(damaged)?;
        let (file, behind) =
            files.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(damaged)?;
        if before == 0 {
            return Ok(file.to_vec());
        }
        rest = behind;
    }
    Err(damaged())
}
