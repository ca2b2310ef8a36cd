//! The functions of the HSA runtime that are used, found when the program runs, and its structures.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::path::Path;
use std::ptr::null;

use libloading::Library;

use crate::cuda::sys;
use crate::cuda::CudaError;

/// `hsa_status_t`.
pub(super) type Status = c_int;
/// Agents, signals, memory pools, executables and symbols: structures of one number.
pub(super) type Id = u64;

pub(super) const SUCCESS: Status = 0;
pub(super) const OUT_OF_RESOURCES: Status = 0x1008;

/// Numbers of `hsa.h` and `hsa_ext_amd.h`.
pub(super) mod number {
    pub(in super::super) const TICKS: u32 = 3;
    pub(in super::super) const AGENT_NAME: u32 = 0;
    pub(in super::super) const AGENT_DEVICE: u32 = 17;
    pub(in super::super) const AGENT_CACHES: u32 = 18;
    pub(in super::super) const AGENT_COMPUTE_UNITS: u32 = 0xa002;
    pub(in super::super) const AGENT_PRODUCT: u32 = 0xa009;
    pub(in super::super) const DEVICE_GPU: u32 = 1;
    pub(in super::super) const POOL_SEGMENT: u32 = 0;
    pub(in super::super) const POOL_FLAGS: u32 = 1;
    pub(in super::super) const POOL_SIZE: u32 = 2;
    pub(in super::super) const SEGMENT_GLOBAL: u32 = 0;
    pub(in super::super) const SEGMENT_GROUP: u32 = 3;
    pub(in super::super) const FLAG_KERNARG: u32 = 1;
    pub(in super::super) const FLAG_FINE: u32 = 2;
    pub(in super::super) const FLAG_COARSE: u32 = 4;
    pub(in super::super) const SYMBOL_ARGUMENTS: u32 = 11;
    pub(in super::super) const SYMBOL_GROUP: u32 = 13;
    pub(in super::super) const SYMBOL_PRIVATE: u32 = 14;
    pub(in super::super) const SYMBOL_OBJECT: u32 = 22;
    pub(in super::super) const QUEUE_MULTI: u32 = 0;
    pub(in super::super) const PROFILE_FULL: u32 = 1;
    pub(in super::super) const LESS: u32 = 2;
    pub(in super::super) const BLOCKED: u32 = 0;
}

/// `hsa_queue_t`.
#[repr(C)]
pub(super) struct Queue {
    pub(super) kind: u32,
    pub(super) features: u32,
    pub(super) packets: *mut c_void,
    pub(super) doorbell: Id,
    pub(super) size: u32,
    reserved: u32,
    id: u64,
}

pub(super) type OnAgent = unsafe extern "C" fn(Id, *mut c_void) -> Status;
pub(super) type OnPool = unsafe extern "C" fn(Id, *mut c_void) -> Status;
pub(super) type OnError = unsafe extern "C" fn(Status, *mut Queue, *mut c_void);

macro_rules! functions {
    ($($field:ident = $symbol:literal ($($ty:ty),*) -> $out:ty;)*) => {
        /// A pointer to each function; the library stays open as long as they exist.
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($ty),*) -> $out,)*
            _library: Library,
        }

        impl Functions {
            pub(super) fn open(path: &Path) -> Result<Self, CudaError> {
                let library = sys::open(path).map_err(|error| match error {
                    CudaError::NoDriver { library, why } => CudaError::NoRuntime { library, why },
                    other => other,
                })?;
                Ok(Self {
                    // SAFETY: `hsa.h` and `hsa_ext_amd.h` declare the functions with these types.
                    $($field: unsafe { sys::find(&library, concat!($symbol, "\0"))? },)*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    init = "hsa_init" () -> Status;
    status_string = "hsa_status_string" (Status, *mut *const c_char) -> Status;
    system_info = "hsa_system_get_info" (u32, *mut c_void) -> Status;
    agents = "hsa_iterate_agents" (OnAgent, *mut c_void) -> Status;
    agent_info = "hsa_agent_get_info" (Id, u32, *mut c_void) -> Status;
    pools = "hsa_amd_agent_iterate_memory_pools" (Id, OnPool, *mut c_void) -> Status;
    pool_info = "hsa_amd_memory_pool_get_info" (Id, u32, *mut c_void) -> Status;
    allocate = "hsa_amd_memory_pool_allocate" (Id, usize, u32, *mut *mut c_void) -> Status;
    free = "hsa_amd_memory_pool_free" (*mut c_void) -> Status;
    allow = "hsa_amd_agents_allow_access" (u32, *const Id, *const u32, *const c_void) -> Status;
    copy = "hsa_memory_copy" (*mut c_void, *const c_void, usize) -> Status;
    queue_create = "hsa_queue_create" (Id, u32, u32, OnError, *mut c_void, u32, u32, *mut *mut Queue) -> Status;
    queue_destroy = "hsa_queue_destroy" (*mut Queue) -> Status;
    queue_times = "hsa_amd_profiling_set_profiler_enabled" (*mut Queue, c_int) -> Status;
    times = "hsa_amd_profiling_get_dispatch_time" (Id, Id, *mut [u64; 2]) -> Status;
    queue_reserve = "hsa_queue_add_write_index_relaxed" (*const Queue, u64) -> u64;
    queue_read = "hsa_queue_load_read_index_scacquire" (*const Queue) -> u64;
    signal_create = "hsa_signal_create" (i64, u32, *const Id, *mut Id) -> Status;
    signal_destroy = "hsa_signal_destroy" (Id) -> Status;
    signal_store = "hsa_signal_store_screlease" (Id, i64) -> ();
    signal_load = "hsa_signal_load_scacquire" (Id) -> i64;
    signal_wait = "hsa_signal_wait_scacquire" (Id, u32, i64, u64, u32) -> i64;
    reader_create = "hsa_code_object_reader_create_from_memory" (*const c_void, usize, *mut Id) -> Status;
    reader_destroy = "hsa_code_object_reader_destroy" (Id) -> Status;
    executable_create = "hsa_executable_create_alt" (u32, u32, *const c_char, *mut Id) -> Status;
    executable_load = "hsa_executable_load_agent_code_object" (Id, Id, Id, *const c_char, *mut Id) -> Status;
    executable_freeze = "hsa_executable_freeze" (Id, *const c_char) -> Status;
    executable_destroy = "hsa_executable_destroy" (Id) -> Status;
    executable_symbol = "hsa_executable_get_symbol_by_name" (Id, *const c_char, *const Id, *mut Id) -> Status;
    symbol_info = "hsa_executable_symbol_get_info" (Id, u32, *mut c_void) -> Status;
}

impl Functions {
    /// What the runtime says about a status.
    pub(super) fn name(&self, status: Status) -> String {
        let mut text = null();
        // SAFETY: the runtime sets `text` to a string of its own that stays, or does not touch it.
        unsafe {
            (self.status_string)(status, &mut text);
            if text.is_null() {
                "an unknown error".into()
            } else {
                CStr::from_ptr(text).to_string_lossy().into_owned()
            }
        }
    }
}
