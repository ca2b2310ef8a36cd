//! The functions of CUDA's Driver API that this crate uses, implemented on the HSA runtime.
//!
//! Kernels, copies on the GPU and fills of a stream are packets of a queue, each of which waits for the one before it. Copies
//! between host and GPU wait for the stream first, unless the GPU can access the host's memory; then they are copies on the GPU.
//! A recording is a list of packets whose arguments keep their addresses; starting it copies the packets into the queue.

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use super::device::{member_of, Kernel};
use super::hsa::OUT_OF_RESOURCES;
use super::queue::{allocate, check, Arguments, Dispatch, Packets};
use super::state::{
    code, handle, lock, work, Event, Graph, Hsa, MemoryArguments, Module, State, Stream, ENTERED, FAILED,
    HSA, INVALID, RECORDING,
};
use crate::cuda::sys::{self, attribute, Address, Api, Handle};
use crate::cuda::Capability;

/// Bytes of arguments that a stream's kernels have before it is waited for.
const ARGUMENTS: usize = 1 << 20;

/// The version of the interface that is offered.
const VERSION: c_int = 12000;

// Handles are those that these functions gave, which the callers' contracts say.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Api for Hsa {
    unsafe fn init(&self, _: c_uint) -> c_int {
        match check(unsafe { (self.f.init)() }).and_then(|()| self.f.gpus()) {
            Ok(gpus) if gpus.is_empty() => sys::NO_DEVICE,
            Ok(gpus) => {
                let _ = self.devices.set(gpus);
                sys::SUCCESS
            }
            // What the runtime says where the kernel's driver is missing.
            Err(OUT_OF_RESOURCES) => sys::NO_DEVICE,
            Err(status) => status,
        }
    }
    unsafe fn driver_version(&self, version: *mut c_int) -> c_int {
        unsafe { *version = VERSION };
        sys::SUCCESS
    }
    unsafe fn device_count(&self, count: *mut c_int) -> c_int {
        unsafe { *count = self.devices().len() as c_int };
        sys::SUCCESS
    }
    unsafe fn device_get(&self, device: *mut c_int, ordinal: c_int) -> c_int {
        unsafe { *device = ordinal };
        sys::SUCCESS
    }
    unsafe fn device_name(&self, value: *mut c_char, len: c_int, device: c_int) -> c_int {
        let Some(device) = self.device(device) else { return INVALID };
        let name = &device.name.as_bytes()[..device.name.len().min(len as usize - 1)];
        unsafe {
            value.cast::<u8>().copy_from_nonoverlapping(name.as_ptr(), name.len());
            *value.add(name.len()) = 0;
        }
        sys::SUCCESS
    }
    unsafe fn device_attribute(&self, value: *mut c_int, what: c_int, device: c_int) -> c_int {
        let Some(device) = self.device(device) else { return INVALID };
        let answer = match what {
            attribute::MAX_THREADS => 1024,
            // Threads of a grid are counted in 32 bits.
            what if what == attribute::MAX_GRID[0] => u32::MAX / 1024,
            what if attribute::MAX_GRID.contains(&what) => 65535,
            attribute::MULTIPROCESSORS => device.units,
            attribute::L2_BYTES => device.l2,
            attribute::MAJOR => device.gfx / 10,
            attribute::MINOR => device.gfx % 10,
            attribute::SHARED_OPTIN => device.shared as u32,
            _ => return INVALID,
        };
        unsafe { *value = answer as c_int };
        sys::SUCCESS
    }
    unsafe fn device_memory(&self, bytes: *mut usize, device: c_int) -> c_int {
        let Some(device) = self.device(device) else { return INVALID };
        unsafe { *bytes = device.memory };
        sys::SUCCESS
    }
    unsafe fn context_retain(&self, context: *mut Handle, device: c_int) -> c_int {
        let Some(device) = self.device(device) else { return INVALID };
        unsafe { *context = std::ptr::from_ref(device).cast_mut().cast() };
        sys::SUCCESS
    }
    unsafe fn context_release(&self, _: c_int) -> c_int {
        sys::SUCCESS
    }
    unsafe fn context_push(&self, context: Handle) -> c_int {
        ENTERED.with_borrow_mut(|all| all.push(context));
        sys::SUCCESS
    }
    unsafe fn context_pop(&self, context: *mut Handle) -> c_int {
        let Some(last) = ENTERED.with_borrow_mut(Vec::pop) else { return INVALID };
        unsafe { *context = last };
        sys::SUCCESS
    }
    unsafe fn context_wait(&self) -> c_int {
        self.here().map_or(INVALID, |device| work(self.settle(device)))
    }
    unsafe fn memory_info(&self, free: *mut usize, total: *mut usize) -> c_int {
        let Some(device) = self.here() else { return INVALID };
        unsafe {
            *total = device.memory;
            *free = device.memory.saturating_sub(device.used.load(Relaxed));
        }
        sys::SUCCESS
    }
    unsafe fn memory_alloc(&self, address: *mut Address, bytes: usize) -> c_int {
        let Some(device) = self.here() else { return INVALID };
        let result = allocate(&self.f, device.local, device.agent, bytes);
        code(result.map(|start| {
            device.used.fetch_add(bytes, Relaxed);
            lock(&device.sizes).insert(start as Address, bytes);
            unsafe { *address = start as Address };
        }))
    }
    unsafe fn memory_free(&self, address: Address) -> c_int {
        let Some(device) = self.here() else { return INVALID };
        let settled = self.settle(device);
        device.used.fetch_sub(lock(&device.sizes).remove(&address).unwrap_or(0), Relaxed);
        let freed = check(unsafe { (self.f.free)(address as *mut c_void) });
        work(settled.and(freed))
    }
    unsafe fn host_alloc(&self, start: *mut *mut c_void, bytes: usize, _: c_uint) -> c_int {
        let Some(device) = self.here() else { return INVALID };
        code(allocate(&self.f, device.host, device.agent, bytes).map(|at| {
            lock(&device.hosts).insert(at as usize, bytes);
            unsafe { *start = at };
        }))
    }
    unsafe fn host_free(&self, start: *mut c_void) -> c_int {
        if let Some(device) = self.here() {
            lock(&device.hosts).remove(&(start as usize));
        }
        code(check(unsafe { (self.f.free)(start) }))
    }
    unsafe fn upload(&self, to: Address, from: *const c_void, bytes: usize, stream: Handle) -> c_int {
        unsafe { self.transfer(to as *mut c_void, from, bytes, (from as usize, stream)) }
    }
    unsafe fn download(&self, to: *mut c_void, from: Address, bytes: usize, stream: Handle) -> c_int {
        unsafe { self.transfer(to, from as *const c_void, bytes, (to as usize, stream)) }
    }
    unsafe fn copy(&self, to: Address, from: Address, bytes: usize, stream: Handle) -> c_int {
        let arguments = MemoryArguments { to, from, bytes: bytes as u64, byte: 0, unused: 0 };
        unsafe { self.memory(0, arguments, stream) }
    }
    unsafe fn fill(&self, to: Address, byte: u8, bytes: usize, stream: Handle) -> c_int {
        let arguments = MemoryArguments { to, from: 0, bytes: bytes as u64, byte: byte.into(), unused: 0 };
        unsafe { self.memory(1, arguments, stream) }
    }
    unsafe fn stream_create(&self, stream: *mut Handle, _: c_uint) -> c_int {
        let Some(device) = self.here() else { return INVALID };
        let made = Packets::new(&self.f, device.agent).and_then(|packets| {
            match Arguments::new(&self.f, device.arguments, device.agent, ARGUMENTS) {
                Ok(arguments) => Ok(State { packets, arguments, recording: None }),
                Err(status) => {
                    packets.destroy(&self.f);
                    Err(status)
                }
            }
        });
        code(made.map(|state| {
            let raw = handle(Stream { device, state: Mutex::new(state) });
            lock(&device.streams).push(raw);
            unsafe { *stream = raw };
        }))
    }
    unsafe fn stream_destroy(&self, stream: Handle) -> c_int {
        let whole = unsafe { &*stream.cast::<Stream>() };
        lock(unsafe { &(*whole.device).streams }).retain(|&s| s != stream);
        let State { packets, arguments, .. } = unsafe { Box::from_raw(stream.cast::<Stream>()) }
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        packets.destroy(&self.f);
        arguments.free(&self.f);
        sys::SUCCESS
    }
    unsafe fn stream_wait(&self, stream: Handle) -> c_int {
        let state = &mut *lock(unsafe { &(*stream.cast::<Stream>()).state });
        if state.recording.is_some() {
            return RECORDING;
        }
        let waited = state.packets.wait(&self.f);
        state.arguments.clear();
        work(waited)
    }
    unsafe fn stream_after(&self, stream: Handle, event: Handle, _: c_uint) -> c_int {
        let state = &mut *lock(unsafe { &(*stream.cast::<Stream>()).state });
        if state.recording.is_some() {
            return RECORDING;
        }
        work(unsafe { state.packets.barrier(&self.f, (*event.cast::<Event>()).signal, 0) })
    }
    unsafe fn event_create(&self, event: *mut Handle, _: c_uint) -> c_int {
        let Some(device) = self.here() else { return INVALID };
        let mut signal = 0;
        let made = check(unsafe { (self.f.signal_create)(0, 0, std::ptr::null(), &mut signal) });
        code(made.map(|()| {
            unsafe { *event = handle(Event { device, signal, stream: Mutex::new(std::ptr::null_mut()) }) };
        }))
    }
    unsafe fn event_destroy(&self, event: Handle) -> c_int {
        let waited = unsafe { self.event_wait(event) };
        let event = unsafe { Box::from_raw(event.cast::<Event>()) };
        unsafe { (self.f.signal_destroy)(event.signal) };
        waited
    }
    unsafe fn event_record(&self, event: Handle, stream: Handle) -> c_int {
        let waited = unsafe { self.event_wait(event) };
        if waited != sys::SUCCESS {
            return waited;
        }
        let event = unsafe { &*event.cast::<Event>() };
        let state = &mut *lock(unsafe { &(*stream.cast::<Stream>()).state });
        if state.recording.is_some() {
            return RECORDING;
        }
        *lock(&event.stream) = stream;
        unsafe { (self.f.signal_store)(event.signal, 1) };
        work(unsafe { state.packets.barrier(&self.f, 0, event.signal) })
    }
    unsafe fn event_query(&self, event: Handle) -> c_int {
        match unsafe { (self.f.signal_load)((*event.cast::<Event>()).signal) } {
            ..1 => sys::SUCCESS,
            _ => sys::NOT_READY,
        }
    }
    unsafe fn event_wait(&self, event: Handle) -> c_int {
        let event = unsafe { &*event.cast::<Event>() };
        let stream = *lock(&event.stream);
        // A stream that has been destroyed was waited for.
        let device = self.here();
        let exists = device.is_some_and(|device| lock(&device.streams).contains(&stream));
        if !exists {
            return sys::SUCCESS;
        }
        let state = lock(unsafe { &(*stream.cast::<Stream>()).state });
        work(state.packets.wait_for(&self.f, event.signal))
    }
    unsafe fn event_elapsed(&self, ms: *mut f32, from: Handle, to: Handle) -> c_int {
        let at = |event: Handle| {
            let event = unsafe { &*event.cast::<Event>() };
            // Recorded, that is, and reached.
            if lock(&event.stream).is_null() {
                return Err(INVALID);
            }
            if unsafe { (self.f.signal_load)(event.signal) } > 0 {
                return Err(sys::NOT_READY);
            }
            self.f.time(unsafe { &*event.device }, event.signal).map_err(|e| code(Err(e)))
        };
        match (at(from), at(to), self.f.ticks()) {
            (Ok(from), Ok(to), Ok(ticks)) => {
                // The later one may be named first.
                let passed = to.wrapping_sub(from).cast_signed();
                unsafe { *ms = (passed as f64 * 1e3 / ticks as f64) as f32 };
                sys::SUCCESS
            }
            (Err(e), ..) | (_, Err(e), _) => e,
            (.., Err(status)) => code(Err(status)),
        }
    }
    unsafe fn module_load(&self, module: *mut Handle, image: &[u8]) -> c_int {
        let Some(device) = self.here() else { return INVALID };
        code(self.load(device, image).map(|loaded| unsafe { *module = handle(loaded) }))
    }
    unsafe fn module_unload(&self, module: Handle) -> c_int {
        let module = unsafe { Box::from_raw(module.cast::<Module>()) };
        code(check(unsafe { (self.f.executable_destroy)(module.executable) }))
    }
    unsafe fn module_function(&self, function: *mut Handle, module: Handle, name: *const c_char) -> c_int {
        let (module, name) = unsafe { (&*module.cast::<Module>(), CStr::from_ptr(name)) };
        code(self.kernel(unsafe { &*module.device }, module.executable, name).map(|kernel| {
            let kernel = Box::new(kernel);
            unsafe { *function = std::ptr::from_ref(&*kernel).cast_mut().cast() };
            lock(&module.kernels).push(kernel);
        }))
    }
    unsafe fn function_set(&self, _: Handle, _: c_int, _: c_int) -> c_int {
        // Every kernel may have all shared memory that there is.
        sys::SUCCESS
    }
    unsafe fn launch(
        &self,
        function: Handle,
        blocks: [c_uint; 3],
        threads: c_uint,
        shared: c_uint,
        (stream, _): (Handle, bool),
        argument: (*const c_void, usize),
    ) -> c_int {
        unsafe { self.start(*function.cast::<Kernel>(), blocks, threads, shared, stream, argument) }
    }
    unsafe fn capture_begin(&self, stream: Handle, _: c_int) -> c_int {
        let state = &mut *lock(unsafe { &(*stream.cast::<Stream>()).state });
        if state.recording.is_some() {
            return RECORDING;
        }
        state.recording = Some(Vec::new());
        sys::SUCCESS
    }
    unsafe fn capture_end(&self, stream: Handle, recording: *mut Handle) -> c_int {
        let state = &mut *lock(unsafe { &(*stream.cast::<Stream>()).state });
        let Some(recorded) = state.recording.take() else { return INVALID };
        unsafe { *recording = handle(recorded) };
        sys::SUCCESS
    }
    unsafe fn graph_instantiate(&self, graph: *mut Handle, recording: Handle, _: u64) -> c_int {
        let Some(device) = self.here() else { return INVALID };
        let recorded = unsafe { &*recording.cast::<Vec<(Dispatch, Vec<u8>)>>() };
        let bytes = recorded.iter().map(|(_, argument)| Arguments::room(argument.len())).sum();
        let made = Arguments::new(&self.f, device.arguments, device.agent, bytes);
        code(made.map(|mut arguments| {
            let packets = recorded.iter().map(|(packet, argument)| Dispatch {
                arguments: unsafe { arguments.put(argument.as_ptr(), argument.len()) }.unwrap_or(0),
                ..*packet
            });
            let packets = packets.collect();
            unsafe { *graph = handle(Graph { device, packets, arguments }) };
        }))
    }
    unsafe fn graph_launch(&self, graph: Handle, stream: Handle) -> c_int {
        let graph = unsafe { &*graph.cast::<Graph>() };
        let state = &mut *lock(unsafe { &(*stream.cast::<Stream>()).state });
        if state.recording.is_some() {
            return RECORDING;
        }
        work(unsafe { state.packets.dispatch(&self.f, &graph.packets) })
    }
    unsafe fn graph_exec_destroy(&self, graph: Handle) -> c_int {
        let graph = unsafe { Box::from_raw(graph.cast::<Graph>()) };
        // What was started is done first.
        let settled = self.settle(unsafe { &*graph.device });
        graph.arguments.free(&self.f);
        work(settled)
    }
    unsafe fn graph_destroy(&self, recording: Handle) -> c_int {
        drop(unsafe { Box::from_raw(recording.cast::<Vec<(Dispatch, Vec<u8>)>>()) });
        sys::SUCCESS
    }
    fn code_name(&self, code: c_int) -> String {
        match code {
            FAILED => "the queue has failed: a kernel did what it may not".into(),
            RECORDING => "not possible during a recording".into(),
            sys::OUT_OF_MEMORY => "out of memory".into(),
            sys::NO_DEVICE => "no GPU".into(),
            code if code >= HSA => self.f.name(code),
            _ => "invalid".into(),
        }
    }
    fn family(&self, gfx: Capability) -> Option<Capability> {
        member_of(gfx.0).map(|member| Capability(member.family))
    }
}
