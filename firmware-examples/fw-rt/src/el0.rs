//! Calls at EL0: where a program without privileges runs, under firmware or a small kernel.

use core::arch::asm;

use aarch64_rt::{RegisterStateRef, Stack};

/// Where EL0 has the memory, relative to EL1: the page table in `boot` maps it twice.
const ALIAS: usize = 1 << 30;

/// Exception class of `svc`.
const SVC: u64 = 0x15;

/// PSTATE: interrupts are masked; EL1 with its own stack pointer.
const EL1H: u64 = 0x3c5;

static mut STACK: Stack<4> = Stack::new();

/// Calls `f` at EL0, on the first core. `None`: it caused an exception, by an instruction that traps there, say.
///
/// # Safety
/// `f` uses no addresses that are stored somewhere, as they are those of EL1, but only what it reaches from where it
/// runs. Only one core calls this at a time.
pub unsafe fn at_el0(f: extern "C" fn() -> u64) -> Option<u64> {
    let entry = f as usize + ALIAS;
    let stack = (&raw mut STACK).wrapping_add(1) as usize + ALIAS;
    let (value, called): (u64, u64);
    // SAFETY: `f` runs on a stack of its own and returns to the `svc`, in the memory's alias; `leave` goes on behind
    // it, or does so early, with all registers as `f` left them: those that the compiler keeps to itself are restored,
    // all others are named.
    unsafe {
        asm!(
            "stp x19, x29, [sp, #-16]!",
            "msr elr_el1, {entry}",
            "msr sp_el0, {stack}",
            "mov x9, #0x3c0",
            "msr spsr_el1, x9",
            "adr x9, 3f",
            "msr tpidr_el1, x9",
            "adr x30, 2f",
            "mov x9, #0x40000000",
            "add x30, x30, x9",
            "eret",
            "2: svc #0",
            "3: ldp x19, x29, [sp], #16",
            entry = in(reg) entry,
            stack = in(reg) stack,
            lateout("x0") value,
            lateout("x1") called,
            lateout("x20") _,
            lateout("x21") _,
            lateout("x22") _,
            lateout("x23") _,
            lateout("x24") _,
            lateout("x25") _,
            lateout("x26") _,
            lateout("x27") _,
            lateout("x28") _,
            clobber_abi("C"),
        );
    }
    (called == 1).then_some(value)
}

/// Goes on at EL1 behind the call.
pub(crate) fn leave(mut state: RegisterStateRef) {
    let (esr, back): (u64, usize);
    // SAFETY: reads the syndrome of the exception being handled, and where `at_el0` goes on.
    unsafe {
        asm!("mrs {}, esr_el1", "mrs {}, tpidr_el1", out(reg) esr, out(reg) back, options(nomem, nostack))
    };
    // SAFETY: `at_el0` expects to go on there, at EL1, whatever registers are.
    let state = unsafe { state.get_mut() };
    state.registers[1] = u64::from(esr >> 26 == SVC);
    (state.elr, state.spsr) = (back, EL1H);
}
