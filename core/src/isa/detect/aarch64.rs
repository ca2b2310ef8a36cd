//! ID and cache registers (Arm ARM, D19), readable at EL1 and above.

use crate::caps::{CacheSizes, Caps, Features};

macro_rules! read {
    ($reg:literal) => {{
        let value: u64;
        // SAFETY: reads an ID register; EL1 is the caller's contract.
        unsafe {
            core::arch::asm!(concat!("mrs {}, ", $reg), out(reg) value, options(nomem, nostack, preserves_flags));
        }
        value
    }};
}

pub(super) fn detect() -> Caps {
    Caps::BASELINE
}

/// # Safety
/// EL1 or above.
pub(super) unsafe fn of_this_core() -> Caps {
    // SAFETY: the caller's contract.
    unsafe { Caps { features: features(), caches: caches(), ..Caps::BASELINE } }
}

/// # Safety
/// EL1 or above.
unsafe fn features() -> Features {
    if !cfg!(target_feature = "neon") {
        return Features::NONE;
    }
    let field = |reg: u64, low: u32| reg >> low & 0xf;
    let (isar0, isar1, pfr0) =
        (read!("ID_AA64ISAR0_EL1"), read!("ID_AA64ISAR1_EL1"), read!("ID_AA64PFR0_EL1"));
    let mut f = Features::NEON;
    let table = [
        (field(isar0, 44) >= 1, Features::DOTPROD),
        (field(isar0, 48) >= 1, Features::FHM),
        (field(isar1, 52) >= 1, Features::I8MM),
        (field(isar1, 44) >= 1, Features::BF16),
        (field(pfr0, 20) == 1, Features::FP16),
    ];
    for (there, feature) in table {
        if there {
            f = f | feature;
        }
    }
    f
}

/// CCSIDR_EL1 of each data or unified cache that CLIDR_EL1 names.
///
/// # Safety
/// EL1 or above.
unsafe fn caches() -> CacheSizes {
    let mut c = CacheSizes::DEFAULT;
    let (clidr, wide) = (read!("CLIDR_EL1"), read!("ID_AA64MMFR2_EL1") >> 20 & 0xf == 1);
    for level in 0..3u64 {
        let kind = clidr >> (3 * level) & 7;
        if kind < 2 {
            continue;
        }
        // SAFETY: selects a data cache that CLIDR says exists; EL1 is the caller's contract.
        unsafe {
            core::arch::asm!("msr CSSELR_EL1, {}", "isb", in(reg) level << 1, options(nostack, preserves_flags));
        }
        let r = read!("CCSIDR_EL1");
        // FEAT_CCIDX widens both counts.
        let (ways, sets) = if wide {
            ((r >> 3 & 0x1f_ffff) + 1, (r >> 32 & 0xff_ffff) + 1)
        } else {
            ((r >> 3 & 0x3ff) + 1, (r >> 13 & 0x7fff) + 1)
        };
        let line = 1usize << ((r & 7) + 4);
        let size = ways as usize * sets as usize * line;
        match level {
            0 => {
                c.l1d = size;
                c.line = line;
            }
            1 => c.l2 = size,
            _ => c.l3 = size,
        }
    }
    c
}
