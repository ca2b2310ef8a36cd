//! A static library that calls every public function of the core, for every storage type, with
//! arguments that the compiler knows nothing about.
//!
//! `ci/audit` links each exported function by itself and drops what it cannot reach. If the panic
//! handler survives, its undefined symbol does, and the linker names the function it is called from.
#![no_std]

use core::ffi::c_int;
use core::panic::PanicInfo;

mod args;
mod entries;

extern "C" {
    fn gllm_audit_reachable_panic() -> !;
}

#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    // SAFETY: defined nowhere: nothing that gets here links.
    unsafe { gllm_audit_reachable_panic() }
}

/// Panics for some arguments: shows that the audit finds what it looks for.
#[no_mangle]
extern "C" fn canary(table: &[c_int; 4], i: usize) -> c_int {
    table[i]
}
