//! Queues of AQL packets: kernels that run one after the other, and signals that waiting threads watch.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::hsa::{number, Functions, Id, Queue, Status, OUT_OF_RESOURCES, SUCCESS};

/// A packet of 64 bytes: `hsa_kernel_dispatch_packet_t`.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dispatch {
    pub(super) header: u16,
    /// Dimensions of the grid.
    pub(super) setup: u16,
    pub(super) threads: [u16; 3],
    pub(super) reserved: u16,
    /// Threads of the grid.
    pub(super) grid: [u32; 3],
    pub(super) private_bytes: u32,
    pub(super) group_bytes: u32,
    pub(super) object: u64,
    pub(super) arguments: u64,
    pub(super) reserved2: u64,
    pub(super) completion: Id,
}

/// A packet that waits for signals: `hsa_barrier_and_packet_t`.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Barrier {
    header: u16,
    reserved: [u16; 3],
    signals: [Id; 5],
    reserved2: u64,
    completion: Id,
}

const _: () = assert!(size_of::<Dispatch>() == 64 && size_of::<Barrier>() == 64);

const AGENT_SCOPE: u16 = 1;
const SYSTEM_SCOPE: u16 = 2;

/// The type of a packet, that it waits for those before it, and whose caches it looks behind.
const fn header(kind: u16, scope: u16) -> u16 {
    kind | 1 << 8 | scope << 9 | scope << 11
}

pub(super) const DISPATCH: u16 = header(2, AGENT_SCOPE);
const BARRIER: u16 = header(3, SYSTEM_SCOPE);

/// Packets that a queue has room for.
const PACKETS: u32 = 4096;

/// A queue of a GPU, used by one thread at a time.
pub(super) struct Packets {
    raw: *mut Queue,
    /// 1 while somebody waits for what is queued.
    done: Id,
    /// The status with which the queue failed. The runtime writes here for as long as the queue exists.
    failed: Box<AtomicI32>,
    /// Whether work has been queued since the last wait.
    busy: bool,
}

/// The runtime calls this when a packet cannot be done, or a kernel fails.
unsafe extern "C" fn on_error(status: Status, _: *mut Queue, failed: *mut c_void) {
    // SAFETY: what `Packets::new` gave, which lives as long as the queue.
    unsafe { &*failed.cast::<AtomicI32>() }.store(status, Ordering::Release);
}

impl Packets {
    pub(super) fn new(f: &Functions, agent: Id) -> Result<Self, Status> {
        let failed = Box::new(AtomicI32::new(SUCCESS));
        let (mut done, mut raw) = (0, null_mut());
        let data = std::ptr::from_ref(&*failed).cast_mut().cast::<c_void>();
        // SAFETY: writes one handle; waiters are any agents.
        check(unsafe { (f.signal_create)(0, 0, null_mut(), &mut done) })?;
        // SAFETY: the callback's data lives as long as the queue; writes one pointer.
        let created = unsafe {
            (f.queue_create)(
                agent,
                PACKETS,
                number::QUEUE_MULTI,
                on_error,
                data,
                u32::MAX,
                u32::MAX,
                &mut raw,
            )
        };
        if created != SUCCESS {
            // SAFETY: just created, and used by nobody.
            unsafe { (f.signal_destroy)(done) };
            return Err(created);
        }
        let packets = Self { raw, done, failed, busy: false };
        // Signals are told when their packets ended: those of barriers, as kernels have none.
        // SAFETY: the queue was just created.
        if let Err(status) = check(unsafe { (f.queue_times)(raw, 1) }) {
            packets.destroy(f);
            return Err(status);
        }
        Ok(packets)
    }

    /// Waits, and gives everything back.
    pub(super) fn destroy(mut self, f: &Functions) {
        let _ = self.wait(f);
        // SAFETY: created by `new`, and nothing is under way.
        unsafe {
            (f.queue_destroy)(self.raw);
            (f.signal_destroy)(self.done);
        }
    }

    /// The error of this queue, if it has failed.
    fn status(&self) -> Result<(), Status> {
        check(self.failed.load(Ordering::Acquire))
    }

    /// Queues packets, and tells the GPU.
    ///
    /// # Safety
    /// They are as the runtime takes them, and what they name stays there until they are done.
    unsafe fn push(&mut self, f: &Functions, packets: impl Iterator<Item = [u32; 16]>) -> Result<(), Status> {
        self.status()?;
        self.busy = true;
        // SAFETY: the queue exists, and its doorbell.
        let (base, size, doorbell) =
            unsafe { ((*self.raw).packets.cast::<u32>(), u64::from((*self.raw).size), (*self.raw).doorbell) };
        let mut last = None;
        for packet in packets {
            // SAFETY: the queue exists.
            let index = unsafe { (f.queue_reserve)(self.raw, 1) };
            // SAFETY: the queue exists.
            while index - unsafe { (f.queue_read)(self.raw) } >= size {
                if let Some(last) = last.take() {
                    // SAFETY: the queue's doorbell exists, and packets up to this one are complete.
                    unsafe { (f.signal_store)(doorbell, last) };
                }
                self.status()?;
                std::hint::spin_loop();
            }
            // SAFETY: the packet's place in the ring, which the GPU has read and does not read again before its header says so.
            unsafe {
                let place = base.add((index % size) as usize * 16);
                place.add(1).copy_from_nonoverlapping(packet[1..].as_ptr(), 15);
                AtomicU32::from_ptr(place).store(packet[0], Ordering::Release);
            }
            last = Some(index as i64);
        }
        if let Some(last) = last {
            // SAFETY: the doorbell exists; all packets are complete.
            unsafe { (f.signal_store)(doorbell, last) };
        }
        Ok(())
    }

    /// Queues kernels.
    ///
    /// # Safety
    /// Objects and arguments stay there until the kernels are done.
    pub(super) unsafe fn dispatch(&mut self, f: &Functions, all: &[Dispatch]) -> Result<(), Status> {
        // SAFETY: 64 bytes of numbers without padding; the rest is the caller's contract.
        unsafe { self.push(f, all.iter().map(|packet| std::mem::transmute(*packet))) }
    }

    /// Queues a packet that waits for all before it and for `after`, and then sets `completion` to 0; either may be 0 for none.
    ///
    /// # Safety
    /// The signals exist until then.
    pub(super) unsafe fn barrier(&mut self, f: &Functions, after: Id, completion: Id) -> Result<(), Status> {
        let signals = [after, 0, 0, 0, 0];
        let packet = Barrier { header: BARRIER, signals, completion, ..Barrier::default() };
        // SAFETY: 64 bytes of numbers without padding; the caller vouches for the signals.
        unsafe { self.push(f, std::iter::once(std::mem::transmute::<Barrier, [u32; 16]>(packet))) }
    }

    /// Waits until a signal that this queue sets is 0.
    pub(super) fn wait_for(&self, f: &Functions, signal: Id) -> Result<(), Status> {
        // A queue that has failed sets no signals: the runtime is asked now and then.
        const NOW_AND_THEN: u64 = 10_000_000;
        loop {
            // SAFETY: the signal exists.
            let value = unsafe { (f.signal_wait)(signal, number::LESS, 1, NOW_AND_THEN, number::BLOCKED) };
            self.status()?;
            if value < 1 {
                return Ok(());
            }
        }
    }

    /// Waits until all that was queued is done.
    pub(super) fn wait(&mut self, f: &Functions) -> Result<(), Status> {
        self.status()?;
        if !self.busy {
            return Ok(());
        }
        // SAFETY: the signal exists, and nobody waits for it now.
        unsafe { (f.signal_store)(self.done, 1) };
        // SAFETY: the signal exists as long as the queue.
        unsafe { self.barrier(f, 0, self.done)? };
        self.wait_for(f, self.done)?;
        self.busy = false;
        Ok(())
    }
}

/// A status as a result.
pub(super) fn check(status: Status) -> Result<(), Status> {
    match status {
        SUCCESS => Ok(()),
        _ => Err(status),
    }
}

/// Memory for the arguments of kernels, used from its beginning to its end and then again.
pub(super) struct Arguments {
    start: *mut u8,
    bytes: usize,
    used: usize,
}

/// Arguments begin at multiples of this many bytes.
const ALIGN: usize = 64;

impl Arguments {
    /// `bytes` of memory that the host writes and the GPU reads.
    pub(super) fn new(f: &Functions, pool: Id, agent: Id, bytes: usize) -> Result<Self, Status> {
        let bytes = bytes.next_multiple_of(4096);
        let start = allocate(f, pool, agent, bytes)?.cast();
        Ok(Self { start, bytes, used: 0 })
    }

    /// Bytes that an argument of that size takes.
    pub(super) const fn room(bytes: usize) -> usize {
        bytes.next_multiple_of(ALIGN)
    }

    /// A copy of an argument, or `None` if there is no room left.
    ///
    /// # Safety
    /// There are that many bytes at `from`.
    pub(super) unsafe fn put(&mut self, from: *const u8, bytes: usize) -> Option<u64> {
        if Self::room(bytes) > self.bytes - self.used {
            return None;
        }
        // SAFETY: within the allocation; the caller vouches for the source.
        let to = unsafe {
            let to = self.start.add(self.used);
            to.copy_from_nonoverlapping(from, bytes);
            to
        };
        self.used += Self::room(bytes);
        Some(to as u64)
    }

    /// All of it is free again.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    pub(super) fn free(self, f: &Functions) {
        // SAFETY: allocated by `new`; whoever gives it up knows that no kernel reads it any more.
        unsafe { (f.free)(self.start.cast()) };
    }
}

/// Memory of a pool, which an agent may use that does not own it.
pub(super) fn allocate(f: &Functions, pool: Id, agent: Id, bytes: usize) -> Result<*mut c_void, Status> {
    let mut start = null_mut();
    // SAFETY: writes one address.
    check(unsafe { (f.allocate)(pool, bytes, 0, &mut start) })?;
    // SAFETY: one agent, and memory that was just allocated.
    let allowed = unsafe { (f.allow)(1, &agent, null_mut(), start) };
    if start.is_null() || allowed != SUCCESS {
        // SAFETY: what was just allocated, if anything; nobody uses it.
        unsafe { (f.free)(start) };
        return Err(if allowed == SUCCESS { OUT_OF_RESOURCES } else { allowed });
    }
    Ok(start)
}
