//! Critical sections for any number of cores: interrupts masked, and a spinlock. The log is written in them.

use core::arch::asm;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::core_index;

struct Section;
critical_section::set_impl!(Section);

/// The core inside, plus 1; 0 if there is none.
static OWNER: AtomicU64 = AtomicU64::new(0);

/// In the state to restore, beside the bits of DAIF: this core was inside already.
const NESTED: u64 = 1;

// SAFETY: one core at a time, and no interrupts on it. Compare-and-swap needs the MMU, which is on before `main`.
unsafe impl critical_section::Impl for Section {
    unsafe fn acquire() -> u64 {
        let daif: u64;
        // SAFETY: saves the interrupt masks, then sets them.
        unsafe {
            asm!("mrs {}, daif", "msr daifset, #0xf", out(reg) daif, options(nostack, preserves_flags))
        };
        let own = core_index() + 1;
        if OWNER.load(Ordering::Relaxed) == own {
            return daif | NESTED;
        }
        while OWNER.compare_exchange_weak(0, own, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spin_loop();
        }
        daif
    }

    unsafe fn release(state: u64) {
        if state & NESTED == 0 {
            OWNER.store(0, Ordering::Release);
        }
        // SAFETY: restores the masks that `acquire` has found.
        unsafe { asm!("msr daif, {}", in(reg) state & !NESTED, options(nostack, preserves_flags)) };
    }
}
