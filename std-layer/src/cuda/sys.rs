//! The functions of the CUDA Driver API that are used, found when the program runs.

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::path::Path;
use std::ptr::{from_mut, null, null_mut};

use libloading::Library;

use super::error::{Capability, CudaError, DriverCode};

/// An opaque thing of the driver's.
pub(crate) type Handle = *mut c_void;
/// An address on a GPU.
pub(crate) type Address = u64;

pub(crate) const SUCCESS: c_int = 0;
pub(crate) const OUT_OF_MEMORY: c_int = 2;
pub(crate) const NO_DEVICE: c_int = 100;
pub(crate) const NOT_READY: c_int = 600;

/// Attributes of a device.
pub(crate) mod attribute {
    use std::ffi::c_int;
    pub(crate) const MAX_THREADS: c_int = 1;
    pub(crate) const MAX_GRID: [c_int; 3] = [5, 6, 7];
    pub(crate) const MULTIPROCESSORS: c_int = 16;
    pub(crate) const L2_BYTES: c_int = 38;
    pub(crate) const MAJOR: c_int = 75;
    pub(crate) const MINOR: c_int = 76;
    pub(crate) const SHARED_OPTIN: c_int = 97;
}

/// The attribute of a function: bytes of shared memory that a launch may ask for.
pub(crate) const MAX_DYNAMIC_SHARED: c_int = 8;
/// Streams and events: a stream does not wait for the default one; events are not timed.
pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
/// Other threads may call what they like during a capture.
pub(crate) const CAPTURE_THREAD_LOCAL: c_int = 1;

macro_rules! functions {
    ($($field:ident = $symbol:literal ($($arg:ident: $ty:ty),*);)*) => {
        /// What is asked of a driver, as CUDA's Driver API says it: of CUDA's own, or of another one that does the same.
        pub(crate) trait Api: Send + Sync {
            $(
                #[doc = concat!("`", $symbol, "`.")]
                ///
                /// # Safety
                /// The arguments are what the function of CUDA's takes.
                unsafe fn $field(&self, $($arg: $ty),*) -> c_int;
            )*
            /// `cuModuleLoadData`.
            ///
            /// # Safety
            /// The image is a whole ELF file for the device whose context is current.
            unsafe fn module_load(&self, module: *mut Handle, image: &[u8]) -> c_int;
            /// `cuLaunchKernelEx`, with one argument of that many bytes, and whether the kernel may start before those are done that were queued on the
            /// stream before it.
            ///
            /// # Safety
            /// The kernel takes such an argument.
            unsafe fn launch(
                &self,
                function: Handle,
                blocks: [c_uint; 3],
                threads: c_uint,
                shared: c_uint,
                stream: (Handle, bool),
                argument: (*const c_void, usize),
            ) -> c_int;
            /// The name of a result code.
            fn code_name(&self, code: c_int) -> String;
            /// The GPU that the files for this one were compiled for, where that is not for its capability to say.
            fn family(&self, _: Capability) -> Option<Capability> {
                None
            }
        }

        /// A pointer to each function of CUDA's driver; the library stays open as long as they exist.
        pub(crate) struct Functions {
            $($field: unsafe extern "system" fn($($ty),*) -> c_int,)*
            error_name: ErrorName,
            module_load: ModuleLoad,
            launch: Launch,
            _library: Library,
        }

        impl Functions {
            /// The functions of the library at `path`, or of that name where the system looks for libraries.
            pub(crate) fn open(path: &Path) -> Result<Self, CudaError> {
                let library = open(path)?;
                Ok(Self {
                    // SAFETY: NVIDIA's `cuda.h` declares the functions with these types.
                    $($field: unsafe { find(&library, concat!($symbol, "\0"))? },)*
                    // SAFETY: NVIDIA's `cuda.h` declares the function with this type.
                    error_name: unsafe { find(&library, "cuGetErrorName\0")? },
                    // SAFETY: NVIDIA's `cuda.h` declares the function with this type.
                    module_load: unsafe { find(&library, "cuModuleLoadData\0")? },
                    // SAFETY: NVIDIA's `cuda.h` declares the function with this type.
                    launch: unsafe { find(&library, "cuLaunchKernelEx\0")? },
                    _library: library,
                })
            }
        }

        impl Api for Functions {
            $(unsafe fn $field(&self, $($arg: $ty),*) -> c_int {
                // SAFETY: the caller's contract.
                unsafe { (self.$field)($($arg),*) }
            })*

            unsafe fn module_load(&self, module: *mut Handle, image: &[u8]) -> c_int {
                // SAFETY: the headers of an ELF file say how long it is; writes one handle.
                unsafe { (self.module_load)(module, image.as_ptr().cast()) }
            }

            unsafe fn launch(
                &self,
                function: Handle,
                blocks: [c_uint; 3],
                threads: c_uint,
                shared: c_uint,
                (stream, early): (Handle, bool),
                (argument, _): (*const c_void, usize),
            ) -> c_int {
                let mut arguments = [argument.cast_mut()];
                let mut attribute = LaunchAttribute { id: EARLY_START, pad: 0, value: [1, 0, 0, 0, 0, 0, 0, 0] };
                let (attributes, count) = (from_mut(&mut attribute), early.into());
                let how = LaunchConfig { blocks, threads: [threads, 1, 1], shared, stream, attributes, count };
                // SAFETY: the caller vouches for the argument, which the driver copies, as it does the rest.
                unsafe { (self.launch)(&how, function, arguments.as_mut_ptr(), null_mut()) }
            }

            fn code_name(&self, code: c_int) -> String {
                let mut name = null();
                // SAFETY: the driver sets `name` to a string of its own that stays, or to null.
                unsafe {
                    (self.error_name)(code, &mut name);
                    if name.is_null() {
                        "an unknown error".into()
                    } else {
                        CStr::from_ptr(name).to_string_lossy().into_owned()
                    }
                }
            }
        }
    };
}

type ErrorName = unsafe extern "system" fn(c_int, *mut *const c_char) -> c_int;
type ModuleLoad = unsafe extern "system" fn(*mut Handle, *const c_void) -> c_int;
type Launch =
    unsafe extern "system" fn(*const LaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void) -> c_int;

/// `CUlaunchConfig`.
#[repr(C)]
struct LaunchConfig {
    blocks: [c_uint; 3],
    threads: [c_uint; 3],
    shared: c_uint,
    stream: Handle,
    attributes: *mut LaunchAttribute,
    count: c_uint,
}

/// `CUlaunchAttribute`: what it says has room for 64 bytes.
#[repr(C)]
struct LaunchAttribute {
    id: c_int,
    pad: c_int,
    value: [u64; 8],
}

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`: the kernel may start before those before it are done, and waits for them itself. Its value, an
/// `int`, is the first one of the 64 bytes.
const EARLY_START: c_int = 6;

/// Opens a library at a path, or of that name where the system looks for libraries.
pub(crate) fn open(path: &Path) -> Result<Library, CudaError> {
    // SAFETY: initialisers of a driver's library are as trustworthy as the driver.
    unsafe { Library::new(path) }
        .map_err(|why| CudaError::NoDriver { library: path.display().to_string(), why: why.to_string() })
}

/// The function of a library with a name that ends with a 0.
///
/// # Safety
/// It has the type `T`, and is not called after the library has been closed.
pub(crate) unsafe fn find<T: Copy>(library: &Library, name: &'static str) -> Result<T, CudaError> {
    // SAFETY: the caller's contract.
    let found = unsafe { library.get(name.as_bytes()) };
    found.map(|f| *f).map_err(|_| CudaError::MissingFunction { name: name.trim_end_matches('\0') })
}

functions! {
    init = "cuInit" (flags: c_uint);
    driver_version = "cuDriverGetVersion" (version: *mut c_int);
    device_count = "cuDeviceGetCount" (count: *mut c_int);
    device_get = "cuDeviceGet" (device: *mut c_int, ordinal: c_int);
    device_name = "cuDeviceGetName" (name: *mut c_char, len: c_int, device: c_int);
    device_attribute = "cuDeviceGetAttribute" (value: *mut c_int, attribute: c_int, device: c_int);
    device_memory = "cuDeviceTotalMem_v2" (bytes: *mut usize, device: c_int);
    context_retain = "cuDevicePrimaryCtxRetain" (context: *mut Handle, device: c_int);
    context_release = "cuDevicePrimaryCtxRelease_v2" (device: c_int);
    context_push = "cuCtxPushCurrent_v2" (context: Handle);
    context_pop = "cuCtxPopCurrent_v2" (context: *mut Handle);
    context_wait = "cuCtxSynchronize" ();
    memory_info = "cuMemGetInfo_v2" (free: *mut usize, total: *mut usize);
    memory_alloc = "cuMemAlloc_v2" (address: *mut Address, bytes: usize);
    memory_free = "cuMemFree_v2" (address: Address);
    host_alloc = "cuMemHostAlloc" (start: *mut *mut c_void, bytes: usize, flags: c_uint);
    host_free = "cuMemFreeHost" (start: *mut c_void);
    upload = "cuMemcpyHtoDAsync_v2" (to: Address, from: *const c_void, bytes: usize, stream: Handle);
    download = "cuMemcpyDtoHAsync_v2" (to: *mut c_void, from: Address, bytes: usize, stream: Handle);
    copy = "cuMemcpyDtoDAsync_v2" (to: Address, from: Address, bytes: usize, stream: Handle);
    fill = "cuMemsetD8Async" (to: Address, byte: u8, bytes: usize, stream: Handle);
    stream_create = "cuStreamCreate" (stream: *mut Handle, flags: c_uint);
    stream_destroy = "cuStreamDestroy_v2" (stream: Handle);
    stream_wait = "cuStreamSynchronize" (stream: Handle);
    stream_after = "cuStreamWaitEvent" (stream: Handle, event: Handle, flags: c_uint);
    event_create = "cuEventCreate" (event: *mut Handle, flags: c_uint);
    event_destroy = "cuEventDestroy_v2" (event: Handle);
    event_record = "cuEventRecord" (event: Handle, stream: Handle);
    event_query = "cuEventQuery" (event: Handle);
    event_wait = "cuEventSynchronize" (event: Handle);
    event_elapsed = "cuEventElapsedTime" (ms: *mut f32, from: Handle, to: Handle);
    module_unload = "cuModuleUnload" (module: Handle);
    module_function = "cuModuleGetFunction" (function: *mut Handle, module: Handle, name: *const c_char);
    function_set = "cuFuncSetAttribute" (function: Handle, attribute: c_int, value: c_int);
    capture_begin = "cuStreamBeginCapture_v2" (stream: Handle, mode: c_int);
    capture_end = "cuStreamEndCapture" (stream: Handle, recording: *mut Handle);
    graph_instantiate = "cuGraphInstantiateWithFlags" (graph: *mut Handle, recording: Handle, flags: u64);
    graph_launch = "cuGraphLaunch" (graph: Handle, stream: Handle);
    graph_exec_destroy = "cuGraphExecDestroy" (graph: Handle);
    graph_destroy = "cuGraphDestroy" (recording: Handle);
}

impl dyn Api {
    /// A result code and its name.
    pub(crate) fn code(&self, code: c_int) -> DriverCode {
        DriverCode { code, name: self.code_name(code) }
    }

    /// `Ok` if the call named `call` returned success.
    pub(crate) fn check(&self, call: &'static str, code: c_int) -> Result<(), CudaError> {
        match code {
            SUCCESS => Ok(()),
            _ => Err(CudaError::Driver { call, why: self.code(code) }),
        }
    }
}
