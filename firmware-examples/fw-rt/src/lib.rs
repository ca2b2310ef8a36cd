//! What every program here needs around its work: page table, exception handlers, log, instruction
//! counter, other cores, exit code.
//!
//! A program is `fw_rt::program!(run)` and a `fn run() -> Result<usize, KernelError>` that returns how many of its
//! checks failed. Exit codes: 0 if none did, 1 if some did or a call was refused, 101 after a panic, 102 after a CPU
//! exception.
#![no_std]

mod boot;
mod cell;
mod el0;
mod section;

// The log's way to the host.
use defmt_semihosting as _;

pub use aarch64_rt::{entry, start_core, Stack};
pub use cell::Once;
pub use el0::at_el0;
pub use semihosting::process::exit;
pub use smccc::Hvc;

use core::arch::asm;

use gllm_kernels_core::{Caps, KernelError, Kernels, Operand};

/// Instructions executed so far, if QEMU runs with `-icount shift=0`: its clock then ticks once an instruction, and so
/// does the cycle counter.
pub fn instructions() -> u64 {
    let count: u64;
    // SAFETY: reads the counter that `boot` has started; the barrier keeps it behind what came before.
    unsafe { asm!("isb", "mrs {}, pmccntr_el0", out(reg) count, options(nostack, preserves_flags)) };
    count
}

/// What the core has that calls this.
///
/// What it says holds for all cores, as those of QEMU's board are alike. On a board where they differ, let each core
/// detect for itself, and keep what was chosen by the result on that core.
pub fn caps() -> Caps {
    // SAFETY: programs are started at EL1; all cores are alike.
    unsafe { Caps::of_this_core() }
}

/// The best kernels for this core.
pub fn kernels<E: Operand>() -> Kernels<E> {
    Kernels::with(caps())
}

/// Which core this is.
pub fn core_index() -> u64 {
    let mpidr: u64;
    // SAFETY: reads an ID register.
    unsafe { asm!("mrs {}, mpidr_el1", out(reg) mpidr, options(nomem, nostack, preserves_flags)) };
    mpidr & 0xff
}

/// Waits until another core signals an event (or has done so since the last wait).
pub fn wait_for_event() {
    // SAFETY: waits.
    unsafe { asm!("wfe", options(nostack, preserves_flags)) };
}

/// Makes what this core has written visible, then wakes every core that waits.
pub fn signal_event() {
    // SAFETY: a barrier and a signal.
    unsafe { asm!("dsb ish", "sev", options(nostack, preserves_flags)) };
}

/// One check: logs a failure by its name. How many failed, 0 or 1.
pub fn check(name: &str, right: bool) -> usize {
    if !right {
        defmt::error!("{=str} FAILED", name);
    }
    usize::from(!right)
}

/// Runs a program and leaves with its exit code.
pub fn run(name: &str, program: fn() -> Result<usize, KernelError>) -> ! {
    boot::start_counter();
    defmt::info!("{=str}: {}", name, caps());
    match program() {
        Ok(0) => {
            defmt::info!("{=str}: passed", name);
            exit(0)
        }
        Ok(n) => defmt::error!("{=str}: {} checks failed", name, n),
        Err(e) => defmt::error!("{=str}: refused: {}", name, e),
    }
    exit(1)
}

/// The entry of a program.
#[macro_export]
macro_rules! program {
    ($run:path) => {
        fn boot(_: u64, _: u64, _: u64, _: u64) -> ! {
            $crate::run(env!("CARGO_BIN_NAME"), $run)
        }
        // It calls itself by this name.
        use $crate::entry;
        entry!(boot);
    };
}
