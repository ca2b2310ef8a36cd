//! The objects behind the handles of [`driver`](super::driver): modules, streams, recordings and events; and how work is added to
//! streams.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void, CStr};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::device::{member_of, Device, Kernel, MEMORY};
use super::hsa::{number, Functions, Id, Status, OUT_OF_RESOURCES};
use super::queue::{check, Arguments, Dispatch, Packets, DISPATCH};
use crate::cuda::module::inflate;
use crate::cuda::sys::{self, Address, Handle};
use crate::cuda::{Capability, CudaError};

/// Codes of CUDA's beside those of `sys`; larger ones are HSA's.
pub(super) const INVALID: c_int = 1;
pub(super) const RECORDING: c_int = 900;
pub(super) const FAILED: c_int = 719;
pub(super) const HSA: c_int = 0x1000;

/// The runtime, and its GPUs.
pub(super) struct Hsa {
    pub(super) f: Functions,
    pub(super) devices: OnceLock<Vec<Device>>,
}

pub(super) struct Module {
    pub(super) executable: Id,
    /// Kernels that have been looked up. Their addresses are handles.
    #[allow(clippy::vec_box)]
    pub(super) kernels: Mutex<Vec<Box<Kernel>>>,
    pub(super) device: *const Device,
}

pub(super) struct Stream {
    pub(super) device: *const Device,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    pub(super) packets: Packets,
    pub(super) arguments: Arguments,
    pub(super) recording: Option<Vec<(Dispatch, Vec<u8>)>>,
}

/// Packets, and the memory in which their arguments are.
pub(super) struct Graph {
    pub(super) device: *const Device,
    pub(super) packets: Vec<Dispatch>,
    pub(super) arguments: Arguments,
}

/// A signal that is 0 once a point of a stream has been reached.
pub(super) struct Event {
    pub(super) device: *const Device,
    pub(super) signal: Id,
    pub(super) stream: Mutex<Handle>,
}

/// The arguments of the kernels in `memory.cu`.
#[repr(C)]
pub(super) struct MemoryArguments {
    pub(super) to: Address,
    pub(super) from: Address,
    pub(super) bytes: u64,
    pub(super) byte: u32,
    pub(super) unused: u32,
}

thread_local! {
    /// Devices that this thread has entered, the innermost last.
    pub(super) static ENTERED: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A result as a code of CUDA's.
pub(super) fn code(result: Result<(), Status>) -> c_int {
    match result {
        Ok(()) => sys::SUCCESS,
        Err(OUT_OF_RESOURCES) => sys::OUT_OF_MEMORY,
        Err(status) => status,
    }
}

/// The result of work on a queue as a code of CUDA's. A queue that has failed does nothing any more.
pub(super) fn work(result: Result<(), Status>) -> c_int {
    match result {
        Err(status) if status >= HSA => FAILED,
        other => code(other),
    }
}

impl Hsa {
    pub(super) fn open(path: &Path) -> Result<Self, CudaError> {
        Ok(Self { f: Functions::open(path)?, devices: OnceLock::new() })
    }

    pub(super) fn devices(&self) -> &[Device] {
        self.devices.get().map_or(&[], Vec::as_slice)
    }

    pub(super) fn device(&self, index: c_int) -> Option<&Device> {
        self.devices().get(usize::try_from(index).ok()?)
    }

    /// The device that this thread has entered.
    pub(super) fn here(&self) -> Option<&Device> {
        let raw = ENTERED.with_borrow(|all| all.last().copied())?;
        self.devices().iter().find(|d| std::ptr::from_ref(*d).cast() == raw.cast_const())
    }

    /// Everything that has been queued on a device is done.
    pub(super) fn settle(&self, device: &Device) -> Result<(), Status> {
        for &stream in lock(&device.streams).iter() {
            // SAFETY: streams leave the list before they are destroyed.
            lock(&unsafe { &*stream.cast::<Stream>() }.state).packets.wait(&self.f)?;
        }
        Ok(())
    }

    pub(super) fn load(&self, device: &Device, image: &[u8]) -> Result<Module, Status> {
        let mut image = image.to_vec();
        if let (Some(flags), Some(member)) = (image.get_mut(48), member_of(device.gfx)) {
            *flags = member.mark;
        }
        let f = &self.f;
        let (mut reader, mut executable) = (0, 0);
        // SAFETY: the image lives until the reader is destroyed; handles are written and used once they are.
        unsafe {
            check((f.reader_create)(image.as_ptr().cast(), image.len(), &mut reader))?;
            let mut done = (f.executable_create)(number::PROFILE_FULL, 0, std::ptr::null(), &mut executable);
            if done == 0 {
                let (agent, none) = (device.agent, std::ptr::null());
                done = (f.executable_load)(executable, agent, reader, none, std::ptr::null_mut());
                if done == 0 {
                    done = (f.executable_freeze)(executable, none);
                }
                if done != 0 {
                    (f.executable_destroy)(executable);
                }
            }
            (f.reader_destroy)(reader);
            check(done)?;
        }
        Ok(Module { executable, kernels: Mutex::default(), device })
    }

    pub(super) fn kernel(&self, device: &Device, executable: Id, name: &CStr) -> Result<Kernel, Status> {
        let symbol_name = [name.to_bytes(), b".kd\0"].concat();
        let f = &self.f;
        let mut symbol = 0;
        // SAFETY: the executable exists, and the name ends with a 0; each question writes one number of its type.
        unsafe {
            let name = symbol_name.as_ptr().cast();
            check((f.executable_symbol)(executable, name, &device.agent, &mut symbol))?;
            let mut kernel = Kernel::default();
            let object = (&raw mut kernel.object).cast();
            check((f.symbol_info)(symbol, number::SYMBOL_OBJECT, object))?;
            for (what, to) in [
                (number::SYMBOL_ARGUMENTS, &raw mut kernel.arguments),
                (number::SYMBOL_GROUP, &raw mut kernel.group),
                (number::SYMBOL_PRIVATE, &raw mut kernel.private),
            ] {
                check((f.symbol_info)(symbol, what, to.cast()))?;
            }
            Ok(kernel)
        }
    }

    /// The kernels that copy and fill.
    fn memory_kernels(&self, device: &Device) -> Result<[Kernel; 2], c_int> {
        if let Some(&kernels) = device.kernels.get() {
            return Ok(kernels);
        }
        let family = member_of(device.gfx).ok_or(INVALID)?.family;
        let packed = MEMORY.iter().find(|m| m.0 == family).ok_or(INVALID)?.1;
        let image = inflate(packed, 0, Capability(family)).map_err(|_| INVALID)?;
        let module = self.load(device, &image).map_err(|e| code(Err(e)))?;
        let kernel = |name| self.kernel(device, module.executable, name).map_err(|e| code(Err(e)));
        let both = [kernel(c"memory_copy")?, kernel(c"memory_fill")?];
        // They stay loaded as long as the process runs.
        Ok(*device.kernels.get_or_init(|| both))
    }

    /// Queues or records a kernel.
    ///
    /// # Safety
    /// The stream exists, and the kernel takes the argument.
    pub(super) unsafe fn start(
        &self,
        kernel: Kernel,
        blocks: [c_uint; 3],
        threads: c_uint,
        shared: c_uint,
        stream: Handle,
        (argument, bytes): (*const c_void, usize),
    ) -> c_int {
        let Some(x) = blocks[0].checked_mul(threads) else { return INVALID };
        if bytes > kernel.arguments as usize {
            return INVALID;
        }
        let mut packet = Dispatch {
            header: DISPATCH,
            setup: 3,
            threads: [threads as u16, 1, 1],
            grid: [x, blocks[1], blocks[2]],
            private_bytes: kernel.private,
            group_bytes: kernel.group + shared,
            object: kernel.object,
            ..Dispatch::default()
        };
        // SAFETY: the caller's contract.
        let (state, argument) = unsafe {
            (
                &mut *lock(&(*stream.cast::<Stream>()).state),
                std::slice::from_raw_parts(argument.cast(), bytes),
            )
        };
        if let Some(recording) = &mut state.recording {
            recording.push((packet, argument.to_vec()));
            return sys::SUCCESS;
        }
        let f = &self.f;
        // SAFETY: the bytes are there.
        let mut place = unsafe { state.arguments.put(argument.as_ptr(), bytes) };
        if place.is_none() {
            if let Err(e) = state.packets.wait(f) {
                return work(Err(e));
            }
            state.arguments.clear();
            // SAFETY: the bytes are there.
            place = unsafe { state.arguments.put(argument.as_ptr(), bytes) };
        }
        let Some(place) = place else { return INVALID };
        packet.arguments = place;
        // SAFETY: the caller vouches for the kernel; its argument stays until the stream has been waited for.
        work(unsafe { state.packets.dispatch(f, &[packet]) })
    }

    /// Copies or fills in the order of the stream.
    ///
    /// # Safety
    /// The stream exists, and so do the bytes.
    pub(super) unsafe fn memory(&self, which: usize, arguments: MemoryArguments, stream: Handle) -> c_int {
        // SAFETY: streams keep the device that they were made on, which stays.
        let device = unsafe { &*(*stream.cast::<Stream>()).device };
        let kernels = match self.memory_kernels(device) {
            Ok(kernels) => kernels,
            Err(code) => return code,
        };
        let blocks = arguments.bytes.div_ceil(4096).clamp(1, 4096) as c_uint;
        let argument = (std::ptr::from_ref(&arguments).cast(), size_of::<MemoryArguments>());
        // SAFETY: the caller's contract; the kernels take this argument.
        unsafe { self.start(kernels[which], [blocks, 1, 1], 256, 0, stream, argument) }
    }

    /// Copies between host and GPU, behind what the stream has: by a kernel where the GPU reaches `host`, and otherwise at once, when the
    /// stream has been waited for.
    ///
    /// # Safety
    /// The stream exists, and so do the bytes, until the copy has ended.
    pub(super) unsafe fn transfer(
        &self,
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        (host, stream): (usize, Handle),
    ) -> c_int {
        // SAFETY: the caller's contract.
        let whole = unsafe { &*stream.cast::<Stream>() };
        let mut state = lock(&whole.state);
        if state.recording.is_some() {
            return RECORDING;
        }
        // SAFETY: streams keep the device that they were made on, which stays.
        let hosts = lock(unsafe { &(*whole.device).hosts });
        let before = hosts.range(..=host).next_back();
        if before.is_some_and(|(&start, &len)| host - start < len && bytes <= len - (host - start)) {
            drop((hosts, state));
            let (to, from) = (to as Address, from as Address);
            let arguments = MemoryArguments { to, from, bytes: bytes as u64, byte: 0, unused: 0 };
            // SAFETY: the caller's contract.
            return unsafe { self.memory(0, arguments, stream) };
        }
        drop(hosts);
        let waited = state.packets.wait(&self.f);
        if waited.is_err() {
            return work(waited);
        }
        state.arguments.clear();
        // SAFETY: the caller's contract.
        code(check(unsafe { (self.f.copy)(to, from, bytes) }))
    }
}

/// A thing of ours as a handle.
pub(super) fn handle<T>(thing: T) -> Handle {
    Box::into_raw(Box::new(thing)).cast()
}
