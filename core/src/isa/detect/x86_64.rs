//! CPUID and XGETBV (Intel SDM volume 2A, CPUID; volume 1, chapter 13).

use core::arch::x86_64::{__cpuid_count, _xgetbv, CpuidResult};

use spin::mutex::SpinMutex;

use super::amd::zen;
use crate::caps::{CacheSizes, Caps, Features, Prefetcher, Prefetches};

/// CPUID, or zeros if the CPU does not know the leaf.
fn leaf(leaf: u32, sub: u32) -> CpuidResult {
    // CPUID exists on every x86-64 CPU.
    let max = __cpuid_count(leaf & 0x8000_0000, 0).eax;
    if leaf > max {
        return CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
    }
    __cpuid_count(leaf, sub)
}

const fn bit(word: u32, n: u32) -> bool {
    word >> n & 1 == 1
}

/// # Safety
/// CPUID must report OSXSAVE.
#[target_feature(enable = "xsave")]
unsafe fn xcr0() -> u64 {
    // SAFETY: OSXSAVE: the instruction exists, and register 0 always does.
    unsafe { _xgetbv(0) }
}

/// Detection costs microseconds in a virtual machine (CPUID traps), so its result is kept. All cores of an x86-64
/// machine have the same instructions.
static CACHE: SpinMutex<Option<Caps>> = SpinMutex::new(None);

pub(super) fn detect() -> Caps {
    // Whoever finds the lock taken (an interrupt handler, another core) detects for itself:
    // the answer is the same, and nobody ever waits.
    let Some(mut kept) = CACHE.try_lock() else {
        return caps();
    };
    *kept.get_or_insert_with(caps)
}

/// # Safety
/// None is needed.
pub(super) unsafe fn of_this_core() -> Caps {
    detect()
}

/// The capabilities of the CPU.
fn caps() -> Caps {
    Caps { features: features(), caches: caches(), prefetcher: prefetcher() }
}

fn features() -> Features {
    let l1 = leaf(1, 0);
    // OSXSAVE: without it XGETBV does not exist and no wide register is saved.
    if !bit(l1.ecx, 27) {
        return Features::NONE;
    }
    // SAFETY: OSXSAVE was just checked.
    let saved = unsafe { xcr0() };
    const YMM: u64 = 0b110;
    const ZMM: u64 = 0b1110_0110;
    let (l7, l7_1) = (leaf(7, 0), leaf(7, 1));

    let mut f = Features::NONE;
    let (fma, f16c, avx, avx2) = (bit(l1.ecx, 12), bit(l1.ecx, 29), bit(l1.ecx, 28), bit(l7.ebx, 5));
    if saved & YMM != YMM || !(avx && avx2 && fma && f16c) {
        return f;
    }
    f = f | Features::AVX2;
    if bit(l7_1.eax, 4) {
        f = f | Features::AVX_VNNI;
    }
    let (avx512f, dq, bw, vl) = (bit(l7.ebx, 16), bit(l7.ebx, 17), bit(l7.ebx, 30), bit(l7.ebx, 31));
    if saved & ZMM != ZMM || !(avx512f && dq && bw && vl) {
        return f;
    }
    f = f | Features::AVX512;
    if bit(l7.ecx, 11) {
        f = f | Features::AVX512_VNNI;
    }
    if bit(l7_1.eax, 5) {
        f = f | Features::AVX512_BF16;
    }
    if bit(l7.edx, 23) {
        f = f | Features::AVX512_FP16;
    }
    f
}

/// Leaf 4 (Intel) or 0x8000_001d (AMD): one sub-leaf a cache.
fn caches() -> CacheSizes {
    let amd = leaf(0x8000_001d, 0).eax & 31 != 0;
    let number = if amd { 0x8000_001d } else { 4 };
    let mut c = CacheSizes::DEFAULT;
    for sub in 0..8 {
        let r = leaf(number, sub);
        let (kind, level) = (r.eax & 31, r.eax >> 5 & 7);
        if kind == 0 {
            break;
        }
        let (line, parts, ways) = ((r.ebx & 0xfff) + 1, (r.ebx >> 12 & 0x3ff) + 1, (r.ebx >> 22) + 1);
        let size =
            u64::from(line) * u64::from(parts) * u64::from(ways) * (u64::from(r.ecx).saturating_add(1));
        let size = usize::try_from(size).unwrap_or(0);
        const DATA: u32 = 1;
        const UNIFIED: u32 = 3;
        match (kind, level) {
            (DATA | UNIFIED, 1) => {
                c.l1d = size;
                c.line = line as usize;
            }
            (DATA | UNIFIED, 2) => c.l2 = size,
            (DATA | UNIFIED, 3) => c.l3 = size,
            _ => {}
        }
    }
    c
}

/// By vendor: leaf 0 spells its name in ebx, edx, ecx.
fn prefetcher() -> Prefetcher {
    let r = leaf(0, 0);
    let name = [r.ebx, r.edx, r.ecx].map(u32::to_le_bytes);
    match name.as_flattened() {
        b"AuthenticAMD" | b"HygonGenuine" => Prefetcher::Sequential(match zen(leaf(1, 0).eax) {
            4 => Prefetches::Fourth,
            5 => Prefetches::IntoL1,
            _ => Prefetches::IntoL2,
        }),
        _ => Prefetcher::PerPage,
    }
}
