//! AAPCS64: x19-x29, the lower halves of v8-v15 and FPCR belong to the caller.

use std::arch::naked_asm;
use std::ffi::c_void;
use std::mem::offset_of;

use super::Thunk;

/// What the frame saw before and after the call.
#[repr(C)]
#[derive(Default)]
struct Seen {
    /// x19 to x29
    general: [u64; 11],
    /// d8 to d15
    vector: [u64; 8],
    fpcr: [u64; 2],
}

const GENERAL: [&str; 11] = ["x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29"];
const VECTOR: [&str; 8] = ["d8", "d9", "d10", "d11", "d12", "d13", "d14", "d15"];

/// Register `i` of either kind holds this plus `i`.
const CANARY: u16 = 0x1e55;

/// `f(argument)` between canaries.
#[unsafe(naked)]
unsafe extern "C" fn trampoline(f: Thunk, argument: *mut c_void, seen: *mut Seen) {
    naked_asm!(
        "stp x29, x30, [sp, -176]!",
        "stp x19, x20, [sp, 16]", "stp x21, x22, [sp, 32]", "stp x23, x24, [sp, 48]",
        "stp x25, x26, [sp, 64]", "stp x27, x28, [sp, 80]",
        "stp d8, d9, [sp, 96]", "stp d10, d11, [sp, 112]", "stp d12, d13, [sp, 128]",
        "stp d14, d15, [sp, 144]",
        "str x2, [sp, 160]",
        "mrs x9, fpcr", "str x9, [x2, {fpcr}]",
        "mov x9, x0",
        "mov x0, x1",
        "mov x19, {c}", "add x20, x19, 1", "add x21, x19, 2", "add x22, x19, 3", "add x23, x19, 4",
        "add x24, x19, 5", "add x25, x19, 6", "add x26, x19, 7", "add x27, x19, 8", "add x28, x19, 9",
        "add x29, x19, 10",
        "fmov d8, x19", "fmov d9, x20", "fmov d10, x21", "fmov d11, x22",
        "fmov d12, x23", "fmov d13, x24", "fmov d14, x25", "fmov d15, x26",
        "blr x9",
        "ldr x2, [sp, 160]",
        "stp x19, x20, [x2]", "stp x21, x22, [x2, 16]", "stp x23, x24, [x2, 32]",
        "stp x25, x26, [x2, 48]", "stp x27, x28, [x2, 64]", "str x29, [x2, 80]",
        "stp d8, d9, [x2, {vector}]", "stp d10, d11, [x2, {vector} + 16]",
        "stp d12, d13, [x2, {vector} + 32]", "stp d14, d15, [x2, {vector} + 48]",
        "mrs x9, fpcr", "str x9, [x2, {fpcr} + 8]",
        "ldr x9, [x2, {fpcr}]", "msr fpcr, x9",
        "ldp x19, x20, [sp, 16]", "ldp x21, x22, [sp, 32]", "ldp x23, x24, [sp, 48]",
        "ldp x25, x26, [sp, 64]", "ldp x27, x28, [sp, 80]",
        "ldp d8, d9, [sp, 96]", "ldp d10, d11, [sp, 112]", "ldp d12, d13, [sp, 128]",
        "ldp d14, d15, [sp, 144]",
        "ldp x29, x30, [sp], 176",
        "ret",
        c = const CANARY,
        vector = const offset_of!(Seen, vector),
        fpcr = const offset_of!(Seen, fpcr),
    )
}

/// # Safety
/// `f` must accept `argument` and must not unwind.
pub unsafe fn frame(f: Thunk, argument: *mut c_void) -> Option<&'static str> {
    let mut seen = Seen::default();
    // SAFETY: the caller's contract.
    unsafe { trampoline(f, argument, &mut seen) };
    let changed = |now: &[u64], names: &[&'static str]| {
        now.iter().zip(0..).zip(names).find(|((&r, i), _)| r != u64::from(CANARY) + i).map(|(_, name)| *name)
    };
    changed(&seen.general, &GENERAL)
        .or_else(|| changed(&seen.vector, &VECTOR))
        .or_else(|| (seen.fpcr[0] != seen.fpcr[1]).then_some("FPCR"))
}
