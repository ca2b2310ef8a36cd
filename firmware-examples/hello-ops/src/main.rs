//! The core on a bare Arm CPU: no operating system, no heap.
//!
//! Finds out what the CPU has, runs operators on static buffers, and compares each with its scalar
//! kernel. Exits with 0 if all agree, with 1 if one does not, with 101 on a panic and with 102 on a
//! CPU exception.
#![no_std]
#![no_main]

use core::arch::asm;

use aarch64_rt::{
    entry, exception_handlers, initial_pagetable, ExceptionHandlers, InitialPagetable, RegisterStateRef,
};
use semihosting::{print, println, process};

mod ops;

// The MMU goes on first: with it off, unaligned accesses and exclusives may fault on real cores.
// Two 1 GiB blocks, identity mapped: devices (nGnRE, never executable), then normal memory
// (write-back, inner shareable).
initial_pagetable!({
    let mut map = [0; 512];
    map[0] = 1 | 1 << 10 | 3 << 53;
    map[1] = 0x4000_0000 | 1 | 1 << 2 | 3 << 8 | 1 << 10;
    InitialPagetable(map)
});

exception_handlers!(Exceptions);
entry!(main);

struct Exceptions;

impl ExceptionHandlers for Exceptions {
    extern "C" fn sync_current(_: RegisterStateRef) {
        let (esr, elr): (u64, u64);
        // SAFETY: reads the syndrome and the address of the exception being handled.
        unsafe {
            asm!("mrs {}, esr_el1", "mrs {}, elr_el1", out(reg) esr, out(reg) elr, options(nomem, nostack));
        }
        println!("exception class {:#x} at {elr:#x}", esr >> 26);
        process::exit(102);
    }
}

fn main(_: u64, _: u64, _: u64, _: u64) -> ! {
    match ops::run() {
        Ok(0) => process::exit(0),
        Ok(n) => println!("{n} operators differ from their scalar kernels"),
        Err(e) => println!("refused: {e}"),
    }
    process::exit(1)
}
