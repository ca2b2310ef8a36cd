//! GPUs of AMD's: what the runtime tells about them, and which files are for them.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_char, c_void, CStr};
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, OnceLock};

use super::hsa::{number, Functions, Id, Status, OUT_OF_RESOURCES};
use super::queue::check;
use crate::cuda::sys::{Address, Handle};

/// A kernel of a loaded file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kernel {
    pub(super) object: u64,
    pub(super) arguments: u32,
    pub(super) group: u32,
    pub(super) private: u32,
}

/// A GPU.
pub(super) struct Device {
    pub(super) agent: Id,
    pub(super) name: String,
    /// 0x1100 of gfx1100.
    pub(super) gfx: u32,
    pub(super) units: u32,
    pub(super) l2: u32,
    pub(super) shared: usize,
    pub(super) memory: usize,
    pub(super) used: AtomicUsize,
    /// Bytes of each piece that is used.
    pub(super) sizes: Mutex<HashMap<Address, usize>>,
    /// Where each piece of the host's memory begins that the GPU reaches, too, and its bytes.
    pub(super) hosts: Mutex<BTreeMap<usize, usize>>,
    /// Memory of the GPU, and of the host for arguments and for copies.
    pub(super) local: Id,
    pub(super) arguments: Id,
    pub(super) host: Id,
    pub(super) streams: Mutex<Vec<Handle>>,
    /// The kernels that copy and fill.
    pub(super) kernels: OnceLock<[Kernel; 2]>,
}

// SAFETY: handles of streams are only used while the list is locked; everything else is numbers.
unsafe impl Send for Device {}
// SAFETY: handles of streams are only used while the list is locked; everything else is numbers.
unsafe impl Sync for Device {}

/// The files with the kernels that copy and fill.
pub(super) static MEMORY: &[(u32, &[u8])] = &[
    (0x90a, include_bytes!("objects/memory.gfx90a.lzma")),
    (0x942, include_bytes!("objects/memory.gfx942.lzma")),
    (0x1030, include_bytes!("objects/memory.gfx1030.lzma")),
    (0x1100, include_bytes!("objects/memory.gfx1100.lzma")),
    (0x1200, include_bytes!("objects/memory.gfx1200.lzma")),
];

/// A GPU that there are files for.
pub(super) struct Member {
    pub(super) gfx: u32,
    /// What files for it are marked with in the flags of their ELF header (LLVM, "User Guide for AMDGPU Backend", table "AMDGPU
    /// e_flags Values").
    pub(super) mark: u8,
    /// The GPU that its files were compiled for. It has the same instructions, so that they run on this one once they are marked so.
    pub(super) family: u32,
}

const fn member(gfx: u32, mark: u8, family: u32) -> Member {
    Member { gfx, mark, family }
}

/// All of them. LLVM has the same families as the targets gfx10-3-generic, gfx11-generic and gfx12-generic, but marks files for these in a
/// way that older runtimes refuse, and has none for gfx90a and gfx942.
pub(super) static MEMBERS: &[Member] = &[
    member(0x90a, 0x3f, 0x90a),
    member(0x942, 0x4c, 0x942),
    member(0x1030, 0x36, 0x1030),
    member(0x1031, 0x37, 0x1030),
    member(0x1032, 0x38, 0x1030),
    member(0x1033, 0x39, 0x1030),
    member(0x1034, 0x3e, 0x1030),
    member(0x1035, 0x3d, 0x1030),
    member(0x1036, 0x45, 0x1030),
    member(0x1100, 0x41, 0x1100),
    member(0x1101, 0x46, 0x1100),
    member(0x1102, 0x47, 0x1100),
    member(0x1103, 0x44, 0x1100),
    member(0x1200, 0x48, 0x1200),
    member(0x1201, 0x4e, 0x1200),
];

/// The entry of a GPU, if there are kernels for it.
pub(super) fn member_of(gfx: u32) -> Option<&'static Member> {
    MEMBERS.iter().find(|m| m.gfx == gfx)
}

/// Adds the items that a function of the runtime enumerates to a list.
unsafe extern "C" fn collect(id: Id, to: *mut c_void) -> Status {
    // SAFETY: whoever enumerates passes such a list.
    unsafe { &mut *to.cast::<Vec<Id>>() }.push(id);
    0
}

impl Functions {
    /// A fact about an agent or a pool.
    ///
    /// # Safety
    /// The answer has the type `T`.
    unsafe fn ask<T: Default>(
        &self,
        ask: unsafe extern "C" fn(Id, u32, *mut c_void) -> Status,
        id: Id,
        what: u32,
    ) -> Result<T, Status> {
        let mut answer = T::default();
        // SAFETY: writes one `T`.
        check(unsafe { ask(id, what, (&raw mut answer).cast()) })?;
        Ok(answer)
    }

    /// When the packet with this signal ended, which is done.
    pub(super) fn time(&self, device: &Device, signal: Id) -> Result<u64, Status> {
        let mut times = [0; 2];
        // SAFETY: the signal exists; writes two numbers.
        check(unsafe { (self.times)(device.agent, signal, &mut times) })?;
        Ok(times[1])
    }

    /// Ticks of these times in a second.
    pub(super) fn ticks(&self) -> Result<u64, Status> {
        let mut ticks = 0u64;
        // SAFETY: writes one number of this type.
        check(unsafe { (self.system_info)(number::TICKS, (&raw mut ticks).cast()) })?;
        Ok(ticks.max(1))
    }

    fn text(&self, agent: Id, what: u32) -> String {
        let mut text = [0 as c_char; 65];
        // SAFETY: names have up to 64 bytes.
        unsafe { (self.agent_info)(agent, what, text.as_mut_ptr().cast()) };
        // SAFETY: ends with a 0 at the latest at its last byte.
        unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
    }

    fn pools_of(&self, agent: Id) -> Result<Vec<Pool>, Status> {
        let mut ids = Vec::<Id>::new();
        // SAFETY: the callback gets this list.
        check(unsafe { (self.pools)(agent, collect, (&raw mut ids).cast()) })?;
        let mut all = Vec::new();
        for id in ids {
            // SAFETY: numbers of these types.
            let (segment, bytes) = unsafe {
                (
                    self.ask(self.pool_info, id, number::POOL_SEGMENT)?,
                    self.ask(self.pool_info, id, number::POOL_SIZE)?,
                )
            };
            let flags = match segment {
                // SAFETY: a number of this type.
                number::SEGMENT_GLOBAL => unsafe { self.ask(self.pool_info, id, number::POOL_FLAGS)? },
                _ => 0,
            };
            all.push(Pool { id, segment, flags, bytes });
        }
        Ok(all)
    }

    /// The GPUs.
    pub(super) fn gpus(&self) -> Result<Vec<Device>, Status> {
        let mut agents = Vec::<Id>::new();
        // SAFETY: the callback gets this list.
        check(unsafe { (self.agents)(collect, (&raw mut agents).cast()) })?;
        let (mut gpus, mut hosts) = (Vec::new(), Vec::new());
        for agent in agents {
            // SAFETY: a number of this type.
            match unsafe { self.ask::<u32>(self.agent_info, agent, number::AGENT_DEVICE)? } {
                number::DEVICE_GPU => gpus.push(agent),
                _ => hosts.extend(self.pools_of(agent)?),
            }
        }
        let host = |flags| {
            let fits = |p: &&Pool| p.segment == number::SEGMENT_GLOBAL && p.flags & flags == flags;
            hosts.iter().find(fits).map(|p| p.id).ok_or(OUT_OF_RESOURCES)
        };
        let mut all = Vec::new();
        for agent in gpus {
            let pools = self.pools_of(agent)?;
            let local = |p: &&Pool| p.segment == number::SEGMENT_GLOBAL && p.flags & number::FLAG_COARSE != 0;
            let Some(local) = pools.iter().find(local) else { continue };
            let shared = pools.iter().find(|p| p.segment == number::SEGMENT_GROUP).map_or(0, |p| p.bytes);
            // SAFETY: numbers of these types.
            let (units, caches) = unsafe {
                let units = self.ask(self.agent_info, agent, number::AGENT_COMPUTE_UNITS)?;
                (units, self.ask::<[u32; 4]>(self.agent_info, agent, number::AGENT_CACHES)?)
            };
            let gfx = self.text(agent, number::AGENT_NAME);
            let gfx = gfx.strip_prefix("gfx").and_then(|n| u32::from_str_radix(n, 16).ok()).unwrap_or(0);
            all.push(Device {
                agent,
                name: self.text(agent, number::AGENT_PRODUCT),
                gfx,
                units,
                l2: caches[1],
                shared,
                memory: local.bytes,
                used: AtomicUsize::new(0),
                sizes: Mutex::default(),
                hosts: Mutex::default(),
                local: local.id,
                arguments: host(number::FLAG_FINE | number::FLAG_KERNARG)?,
                host: host(number::FLAG_FINE)?,
                streams: Mutex::default(),
                kernels: OnceLock::new(),
            });
        }
        Ok(all)
    }
}

/// A pool of memory.
struct Pool {
    id: Id,
    segment: u32,
    flags: u32,
    bytes: usize,
}
