//! The functions of the CUDA Driver API that are used, found when the program runs.

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::ptr::null;

use libloading::Library;

use super::error::{CudaError, DriverCode};

/// An opaque thing of the driver's.
pub(super) type Handle = *mut c_void;
/// An address on a GPU.
pub(super) type Address = u64;

pub(super) const SUCCESS: c_int = 0;
pub(super) const OUT_OF_MEMORY: c_int = 2;
pub(super) const NO_DEVICE: c_int = 100;
pub(super) const NOT_READY: c_int = 600;

/// Attributes of a device.
pub(super) mod attribute {
    use std::ffi::c_int;
    pub(in super::super) const MAX_THREADS: c_int = 1;
    pub(in super::super) const MAX_GRID: [c_int; 3] = [5, 6, 7];
    pub(in super::super) const MULTIPROCESSORS: c_int = 16;
    pub(in super::super) const L2_BYTES: c_int = 38;
    pub(in super::super) const MAJOR: c_int = 75;
    pub(in super::super) const MINOR: c_int = 76;
    pub(in super::super) const SHARED_OPTIN: c_int = 97;
}

/// The attribute of a function: bytes of shared memory that a launch may ask for.
pub(super) const MAX_DYNAMIC_SHARED: c_int = 8;
/// Streams and events: a stream does not wait for the default one; events are not timed.
pub(super) const STREAM_NON_BLOCKING: c_uint = 1;
/// Other threads may call what they like during a capture.
pub(super) const CAPTURE_THREAD_LOCAL: c_int = 1;

macro_rules! functions {
    ($($field:ident = $symbol:literal ($($ty:ty),*);)*) => {
        /// A pointer to each function; the library stays open as long as they exist.
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "system" fn($($ty),*) -> c_int,)*
            _library: Library,
        }

        impl Functions {
            /// The functions of the library at `path`, or of that name where the system looks for libraries.
            pub(super) fn open(path: &std::path::Path) -> Result<Self, CudaError> {
                // SAFETY: initialisers of the driver's library are as trustworthy as the driver.
                let library = unsafe { Library::new(path) }.map_err(|why| CudaError::NoDriver {
                    library: path.display().to_string(),
                    why: why.to_string(),
                })?;
                Ok(Self {
                    $($field: {
                        // SAFETY: NVIDIA's `cuda.h` declares the function with these types.
                        let found = unsafe { library.get(concat!($symbol, "\0").as_bytes()) };
                        *found.map_err(|_| CudaError::MissingFunction { name: $symbol })?
                    },)*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    init = "cuInit" (c_uint);
    driver_version = "cuDriverGetVersion" (*mut c_int);
    error_name = "cuGetErrorName" (c_int, *mut *const c_char);
    device_count = "cuDeviceGetCount" (*mut c_int);
    device_get = "cuDeviceGet" (*mut c_int, c_int);
    device_name = "cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2" (*mut usize, c_int);
    context_retain = "cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
    context_release = "cuDevicePrimaryCtxRelease_v2" (c_int);
    context_push = "cuCtxPushCurrent_v2" (Handle);
    context_pop = "cuCtxPopCurrent_v2" (*mut Handle);
    context_wait = "cuCtxSynchronize" ();
    memory_info = "cuMemGetInfo_v2" (*mut usize, *mut usize);
    memory_alloc = "cuMemAlloc_v2" (*mut Address, usize);
    memory_free = "cuMemFree_v2" (Address);
    host_alloc = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost" (*mut c_void);
    upload = "cuMemcpyHtoDAsync_v2" (Address, *const c_void, usize, Handle);
    download = "cuMemcpyDtoHAsync_v2" (*mut c_void, Address, usize, Handle);
    copy = "cuMemcpyDtoDAsync_v2" (Address, Address, usize, Handle);
    fill = "cuMemsetD8Async" (Address, u8, usize, Handle);
    stream_create = "cuStreamCreate" (*mut Handle, c_uint);
    stream_destroy = "cuStreamDestroy_v2" (Handle);
    stream_wait = "cuStreamSynchronize" (Handle);
    stream_after = "cuStreamWaitEvent" (Handle, Handle, c_uint);
    event_create = "cuEventCreate" (*mut Handle, c_uint);
    event_destroy = "cuEventDestroy_v2" (Handle);
    event_record = "cuEventRecord" (Handle, Handle);
    event_query = "cuEventQuery" (Handle);
    event_wait = "cuEventSynchronize" (Handle);
    event_elapsed = "cuEventElapsedTime" (*mut f32, Handle, Handle);
    module_load = "cuModuleLoadData" (*mut Handle, *const c_void);
    module_unload = "cuModuleUnload" (Handle);
    module_function = "cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
    function_set = "cuFuncSetAttribute" (Handle, c_int, c_int);
    launch = "cuLaunchKernel" (
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    capture_begin = "cuStreamBeginCapture_v2" (Handle, c_int);
    capture_end = "cuStreamEndCapture" (Handle, *mut Handle);
    graph_instantiate = "cuGraphInstantiateWithFlags" (*mut Handle, Handle, u64);
    graph_launch = "cuGraphLaunch" (Handle, Handle);
    graph_exec_destroy = "cuGraphExecDestroy" (Handle);
    graph_destroy = "cuGraphDestroy" (Handle);
}

impl Functions {
    /// A result code and its name.
    pub(super) fn code(&self, code: c_int) -> DriverCode {
        let mut name = null();
        // SAFETY: the driver sets `name` to a string of its own that stays, or to null.
        let name = unsafe {
            (self.error_name)(code, &mut name);
            if name.is_null() {
                "an unknown error".into()
            } else {
                CStr::from_ptr(name).to_string_lossy().into_owned()
            }
        };
        DriverCode { code, name }
    }

    /// `Ok` if the call named `call` returned success.
    pub(super) fn check(&self, call: &'static str, code: c_int) -> Result<(), CudaError> {
        match code {
            SUCCESS => Ok(()),
            _ => Err(CudaError::Driver { call, why: self.code(code) }),
        }
    }
}
