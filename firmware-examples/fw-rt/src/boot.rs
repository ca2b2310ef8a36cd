//! What runs before and instead of a program: memory map, exceptions, panics, the counter.

use core::arch::asm;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use aarch64_rt::{
    exception_handlers, initial_pagetable, ExceptionHandlers, InitialPagetable, RegisterStateRef,
};

use crate::exit;

// The MMU goes on first: with it off, unaligned accesses and exclusives may fault on real cores.
// Two 1 GiB blocks, identity mapped: devices (nGnRE, never executable), then normal memory
// (write-back, inner shareable). Then the same memory once more, for EL0 (never executable at EL1).
initial_pagetable!({
    let mut map = [0; 512];
    map[0] = 1 | 1 << 10 | 3 << 53;
    map[1] = 0x4000_0000 | 1 | 1 << 2 | 3 << 8 | 1 << 10;
    map[2] = map[1] | 1 << 6 | 1 << 53;
    InitialPagetable(map)
});

exception_handlers!(Exceptions);

struct Exceptions;

impl ExceptionHandlers for Exceptions {
    /// The end of [`at_el0`](crate::at_el0), early or not.
    extern "C" fn sync_lower(state: RegisterStateRef) {
        crate::el0::leave(state);
    }

    /// Also an instruction that the CPU does not have: class 0.
    extern "C" fn sync_current(_: RegisterStateRef) {
        let (esr, elr): (u64, u64);
        // SAFETY: reads the syndrome and the address of the exception being handled.
        unsafe {
            asm!("mrs {}, esr_el1", "mrs {}, elr_el1", out(reg) esr, out(reg) elr, options(nomem, nostack));
        }
        if first() {
            defmt::error!("exception class {=u64:#x} at {=u64:#x}", esr >> 26, elr);
        }
        exit(102)
    }
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    if first() {
        defmt::error!("{}", defmt::Display2Format(info));
    }
    exit(101)
}

/// Panics of `defmt` itself.
#[defmt::panic_handler]
fn defmt_panic() -> ! {
    exit(101)
}

/// Whether nothing has gone wrong before: what goes wrong while that is logged is not.
fn first() -> bool {
    static GONE_WRONG: AtomicBool = AtomicBool::new(false);
    !GONE_WRONG.swap(true, Ordering::Relaxed)
}

/// Starts the cycle counter, undivided, for EL1.
pub(crate) fn start_counter() {
    // SAFETY: PMCR.E and .LC with .D off, the counter unfiltered and on.
    unsafe {
        asm!(
            "msr pmccfiltr_el0, xzr",
            "msr pmcntenset_el0, {on}",
            "msr pmcr_el0, {enable}",
            "isb",
            on = in(reg) 1u64 << 31,
            enable = in(reg) 1u64 | 1 << 6,
            options(nomem, nostack, preserves_flags),
        );
    }
}
