//! The driver, its devices, and contexts on them.

use std::ffi::{c_char, c_int, CStr};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use super::error::{Capability, CudaError, CudaVersion};
use super::geometry::Limits;
use super::lifetime::{self, Resource};
use super::sys::{self, attribute, Api, Functions, Handle};

/// The oldest CUDA version that a driver may support, and the first driver that does. Drivers load machine code that any
/// compiler of their own major version made, and the kernels' compiler is 12.9.
const NEED: CudaVersion = CudaVersion(12000);
const NEED_DRIVER: u32 = 525;
/// From which compute capability on kernels can wait for those before them, and from which CUDA version on recordings can have such kernels.
const OVERLAPS: (Capability, CudaVersion) = (Capability(90), CudaVersion(12030));

/// A driver, opened: NVIDIA's, or what does the same on GPUs of others.
#[derive(Clone)]
pub struct Driver {
    f: Arc<dyn Api>,
    version: CudaVersion,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Driver {
    /// The name of the driver's library.
    pub const LIBRARY: &'static str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

    /// Opens the driver that the system finds.
    ///
    /// # Errors
    /// `NoDriver`, `MissingFunction`, `DriverTooOld`, `NoDevice` (some drivers say it here), `Driver`.
    pub fn open() -> Result<Self, CudaError> {
        Self::open_at(Path::new(Self::LIBRARY))
    }

    /// Opens the driver's library at `path`.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_at(path: &Path) -> Result<Self, CudaError> {
        Self::start(Arc::new(Functions::open(path)?))
    }

    /// Initialises a driver.
    pub(crate) fn start(f: Arc<dyn Api>) -> Result<Self, CudaError> {
        let mut version = 0;
        // SAFETY: may be called before anything else; writes one number.
        f.check("cuDriverGetVersion", unsafe { f.driver_version(&mut version) })?;
        let have = CudaVersion(version);
        if have < NEED {
            return Err(CudaError::DriverTooOld { have, need: NEED, driver: NEED_DRIVER });
        }
        // SAFETY: may be called any number of times.
        match unsafe { f.init(0) } {
            sys::NO_DEVICE => return Err(CudaError::NoDevice),
            code => f.check("cuInit", code)?,
        }
        Ok(Self { f, version: have })
    }

    /// The newest CUDA version that the driver knows.
    pub fn version(&self) -> CudaVersion {
        self.version
    }

    /// How many GPUs there are.
    ///
    /// # Errors
    /// `Driver`.
    pub fn device_count(&self) -> Result<usize, CudaError> {
        let mut count = 0;
        // SAFETY: the driver is initialised; writes one number.
        match unsafe { self.f.device_count(&mut count) } {
            sys::NO_DEVICE => Ok(0),
            code => self.f.check("cuDeviceGetCount", code).map(|()| usize::try_from(count).unwrap_or(0)),
        }
    }

    /// GPU `index`, counted from 0.
    ///
    /// # Errors
    /// `NoDevice`, `NoSuchDevice`, `Driver`.
    pub fn device(&self, index: usize) -> Result<Device, CudaError> {
        let count = self.device_count()?;
        if count == 0 {
            return Err(CudaError::NoDevice);
        }
        let ordinal = c_int::try_from(index).ok().filter(|_| index < count);
        let ordinal = ordinal.ok_or(CudaError::NoSuchDevice { index, count })?;
        let f = &self.f;
        let mut raw = 0;
        // SAFETY: the driver is initialised; writes one number.
        f.check("cuDeviceGet", unsafe { f.device_get(&mut raw, ordinal) })?;
        let mut name = [0 as c_char; 256];
        // SAFETY: there are 256 bytes, of which the last stays 0.
        f.check("cuDeviceGetName", unsafe { f.device_name(name.as_mut_ptr(), 255, raw) })?;
        let mut memory = 0;
        // SAFETY: writes one number.
        f.check("cuDeviceTotalMem", unsafe { f.device_memory(&mut memory, raw) })?;
        let get = |what| {
            let mut value = 0;
            // SAFETY: writes one number.
            f.check("cuDeviceGetAttribute", unsafe { f.device_attribute(&mut value, what, raw) })?;
            Ok::<u32, CudaError>(u32::try_from(value).unwrap_or(0))
        };
        let [x, y, z] = attribute::MAX_GRID;
        Ok(Device {
            driver: self.clone(),
            raw,
            // SAFETY: ends with a 0 at the latest at its last byte.
            name: unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned(),
            memory,
            capability: Capability(get(attribute::MAJOR)? * 10 + get(attribute::MINOR)?),
            multiprocessors: get(attribute::MULTIPROCESSORS)?,
            l2: get(attribute::L2_BYTES)? as usize,
            limits: Limits {
                grid: [get(x)?, get(y)?, get(z)?],
                threads: get(attribute::MAX_THREADS)?,
                shared: get(attribute::SHARED_OPTIN)?,
            },
        })
    }
}

/// A GPU, and what matters about it.
#[derive(Clone, Debug)]
pub struct Device {
    driver: Driver,
    raw: c_int,
    name: String,
    memory: usize,
    capability: Capability,
    multiprocessors: u32,
    l2: usize,
    pub(super) limits: Limits,
}

impl Device {
    /// Whether kernels may start before those before them are done.
    pub(super) fn overlaps(&self) -> bool {
        let (capability, version) = OVERLAPS;
        !self.capability.is_gfx() && self.capability >= capability && self.driver.version >= version
    }

    /// What its maker calls it.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.memory
    }
    /// The compute capability.
    pub fn capability(&self) -> Capability {
        self.capability
    }
    /// Of a GPU of AMD's, the one that the files for it were compiled for, if there are any.
    pub(super) fn family(&self) -> Option<Capability> {
        self.driver.f.family(self.capability)
    }
    /// Multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }
    /// Bytes of the L2 cache.
    pub fn l2(&self) -> usize {
        self.l2
    }

    /// The primary context of the device, which libraries in a process share.
    ///
    /// # Errors
    /// `OutOfMemory`, `Driver`.
    pub fn context(&self) -> Result<Context, CudaError> {
        let f = &self.driver.f;
        let mut raw = null_mut();
        // SAFETY: the device exists; writes one handle.
        let code = unsafe { f.context_retain(&mut raw, self.raw) };
        if code == sys::OUT_OF_MEMORY {
            return Err(CudaError::OutOfMemory { asked: 0, free: Some(0) });
        }
        f.check("cuDevicePrimaryCtxRetain", code)?;
        let [uploaded, downloaded] = [0, 0].map(AtomicU64::new);
        Ok(Context(Arc::new(Inner { device: self.clone(), raw, uploaded, downloaded })))
    }
}

struct Inner {
    device: Device,
    raw: Handle,
    uploaded: AtomicU64,
    downloaded: AtomicU64,
}

// SAFETY: the driver's functions may be called from any thread; the handle is never changed.
unsafe impl Send for Inner {}
// SAFETY: the driver's functions may be called from several threads at once; the handle is never changed.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: retained once by `Device::context`; whatever lives in it holds a reference to this.
        unsafe { self.device.driver.f.context_release(self.device.raw) };
    }
}

/// A context on a device: what buffers, streams and kernels live in.
///
/// Contexts are equal if they are the same one of the driver's: clones are, and all that [`Device::context`] gives for
/// one device. What belongs to equal contexts can be used together.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.0.device.name).finish()
    }
}

impl PartialEq for Context {
    fn eq(&self, other: &Self) -> bool {
        // Both are retained, so the driver has not given the handle of one to the other.
        self.0.raw == other.0.raw
    }
}

impl Eq for Context {}

/// Bytes that went between the host's memory and the GPU's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// From host to GPU.
    pub uploaded: u64,
    /// From GPU to host.
    pub downloaded: u64,
}

impl Context {
    /// Its device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Bytes copied so far, of buffers that were made with this value or a clone of it.
    pub fn transfers(&self) -> Transfers {
        Transfers { uploaded: self.0.uploaded.load(Relaxed), downloaded: self.0.downloaded.load(Relaxed) }
    }

    /// Bytes of GPU memory: free, and all there are.
    ///
    /// # Errors
    /// `Driver`.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        let f = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two numbers.
        f.check("cuMemGetInfo", unsafe { f.memory_info(&mut free, &mut total) })?;
        Ok((free, total))
    }

    /// Waits for everything that was started in this context.
    ///
    /// # Errors
    /// `Driver`: also those of kernels that failed; [`Stream::wait`](super::Stream::wait) names them.
    pub fn wait(&self) -> Result<(), CudaError> {
        let f = self.enter()?;
        // SAFETY: the context is current.
        f.check("cuCtxSynchronize", unsafe { f.context_wait() })
    }

    /// The functions, with this context current on this thread as long as the answer exists.
    pub(super) fn enter(&self) -> Result<Current<'_>, CudaError> {
        let f = &*self.0.device.driver.f;
        // SAFETY: the context is retained.
        f.check("cuCtxPushCurrent", unsafe { f.context_push(self.0.raw) })?;
        Ok(Current { f, thread: PhantomData })
    }

    /// Releases something of this context: now, or when this thread has ended its recordings, as the driver refuses it
    /// during one. There is no one to tell of an error.
    pub(super) fn release(&self, resource: Resource) {
        if let Some(resource) = lifetime::defer(self, resource) {
            if let Ok(f) = self.enter() {
                resource.release(&*f);
            }
        }
    }

    /// `Ok` if they are the same context.
    pub(super) fn same(&self, other: &Self) -> Result<(), CudaError> {
        if self == other {
            Ok(())
        } else {
            Err(CudaError::OtherContext)
        }
    }

    pub(super) fn count_upload(&self, bytes: usize) {
        self.0.uploaded.fetch_add(bytes as u64, Relaxed);
    }
    pub(super) fn count_download(&self, bytes: usize) {
        self.0.downloaded.fetch_add(bytes as u64, Relaxed);
    }
}

/// The driver's functions while a context is current on this thread. Afterwards the one that the caller had is again.
pub(super) struct Current<'a> {
    f: &'a (dyn Api + 'static),
    /// It has to be dropped on the thread that made it.
    thread: PhantomData<*const ()>,
}

impl Deref for Current<'_> {
    type Target = dyn Api;
    fn deref(&self) -> &(dyn Api + 'static) {
        self.f
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut ours = null_mut();
        // SAFETY: takes off what `Context::enter` put on this thread's stack of contexts; writes one handle.
        unsafe { self.f.context_pop(&mut ours) };
    }
}
