//! System V: rbx, rbp, r12-r15, the control bits of MXCSR, the x87 control word and its empty stack,
//! and a clear DF belong to the caller. Dirty upper halves of vector registers (no `vzeroupper`) break
//! no law but slow down the caller's SSE code, and tiles in use cost every context switch: both count.

use std::arch::{naked_asm, x86_64::__cpuid_count};
use std::ffi::c_void;
use std::mem::offset_of;
use std::sync::OnceLock;

use gllm_kernels_core::{Caps, Features};

use super::Thunk;

/// What the frame saw before and after the call.
#[repr(C)]
#[derive(Default)]
struct Seen {
    /// rbx, rbp, r12, r13, r14, r15
    registers: [u64; 6],
    flags: u64,
    mxcsr: [u32; 2],
    /// x87 control word before; then `fnstenv` after: control, status and tag word come first.
    control: u32,
    x87: [u32; 7],
    /// XINUSE after.
    in_use: u32,
    /// Whether XINUSE can be read.
    ask: u32,
}

const NAMES: [&str; 6] = ["rbx", "rbp", "r12", "r13", "r14", "r15"];

/// A different pattern for every register.
const fn canary(i: usize) -> i64 {
    0x5ca1_ab1e_0dd5_1e55 ^ (i as i64 + 1) << 4
}

/// `f(argument)` between canaries.
#[unsafe(naked)]
unsafe extern "sysv64" fn trampoline(f: Thunk, argument: *mut c_void, seen: *mut Seen) {
    naked_asm!(
        "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
        // Keeps `seen`, and the stack aligned to 16.
        "push rdx",
        "stmxcsr [rdx + {mxcsr}]",
        "fnstcw [rdx + {control}]",
        "cmp dword ptr [rdx + {ask}], 0",
        "je 2f",
        "vzeroupper",
        "2:",
        "mov rax, rdi",
        "mov rdi, rsi",
        "movabs rbx, {c0}", "movabs rbp, {c1}", "movabs r12, {c2}",
        "movabs r13, {c3}", "movabs r14, {c4}", "movabs r15, {c5}",
        "call rax",
        "mov rdx, [rsp]",
        "mov [rdx], rbx", "mov [rdx + 8], rbp", "mov [rdx + 16], r12",
        "mov [rdx + 24], r13", "mov [rdx + 32], r14", "mov [rdx + 40], r15",
        "pushfq", "pop rax", "mov [rdx + {flags}], rax",
        "cld",
        "stmxcsr [rdx + {mxcsr} + 4]",
        "ldmxcsr [rdx + {mxcsr}]",
        "fnstenv [rdx + {x87}]",
        "fninit",
        "fldcw [rdx + {control}]",
        "cmp dword ptr [rdx + {ask}], 0",
        "je 3f",
        "mov r8, rdx",
        "mov ecx, 1",
        "xgetbv",
        "mov [r8 + {in_use}], eax",
        "3:",
        "pop rdx", "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp",
        "ret",
        c0 = const canary(0), c1 = const canary(1), c2 = const canary(2),
        c3 = const canary(3), c4 = const canary(4), c5 = const canary(5),
        flags = const offset_of!(Seen, flags),
        mxcsr = const offset_of!(Seen, mxcsr),
        control = const offset_of!(Seen, control),
        x87 = const offset_of!(Seen, x87),
        in_use = const offset_of!(Seen, in_use),
        ask = const offset_of!(Seen, ask),
    )
}

const UPPER_HALVES: u32 = 1 << 2 | 1 << 6;
const TILES: u32 = 1 << 17 | 1 << 18;

#[unsafe(naked)]
unsafe extern "sysv64" fn leaves_clean(_: *mut c_void) {
    naked_asm!("vpcmpeqd ymm0, ymm0, ymm0", "vzeroupper", "ret")
}

#[unsafe(naked)]
unsafe extern "sysv64" fn leaves_dirty(_: *mut c_void) {
    naked_asm!("vpcmpeqd ymm0, ymm0, ymm0", "ret")
}

/// Whether XINUSE exists and tells clean from dirty: CPUs are free to report more than is in use.
fn in_use_is_exact() -> bool {
    static EXACT: OnceLock<bool> = OnceLock::new();
    *EXACT.get_or_init(|| {
        let xgetbv1 = || __cpuid_count(0xd, 1).eax & 4 != 0;
        if !Caps::detect().features().contains(Features::AVX2) || !xgetbv1() {
            return false;
        }
        let upper = |f: Thunk| {
            let mut seen = Seen { ask: 1, ..Seen::default() };
            // SAFETY: both functions ignore their argument, and AVX2 is there.
            unsafe { trampoline(f, std::ptr::null_mut(), &mut seen) };
            seen.in_use & UPPER_HALVES != 0
        };
        !upper(leaves_clean) && upper(leaves_dirty)
    })
}

/// # Safety
/// `f` must accept `argument` and must not unwind.
pub unsafe fn frame(f: Thunk, argument: *mut c_void) -> Option<&'static str> {
    let mut seen = Seen { ask: u32::from(in_use_is_exact()), ..Seen::default() };
    // SAFETY: the caller's contract.
    unsafe { trampoline(f, argument, &mut seen) };
    for (i, name) in NAMES.into_iter().enumerate() {
        if seen.registers[i] != canary(i) as u64 {
            return Some(name);
        }
    }
    const DF: u64 = 1 << 10;
    // Bits 0-5 are sticky exception flags, which any arithmetic sets.
    let control = |mxcsr: u32| mxcsr & !0x3f;
    if seen.flags & DF != 0 {
        Some("a clear direction flag")
    } else if control(seen.mxcsr[0]) != control(seen.mxcsr[1]) {
        Some("the control bits of MXCSR")
    } else if seen.x87[0] & 0xffff != seen.control & 0xffff {
        Some("the x87 control word")
    } else if seen.x87[2] & 0xffff != 0xffff {
        Some("an empty x87 stack (EMMS is missing)")
    } else if seen.in_use & UPPER_HALVES != 0 {
        Some("clean upper halves of vector registers (VZEROUPPER is missing)")
    } else if seen.in_use & TILES != 0 || crate::amx::in_use() {
        Some("released tiles (TILERELEASE is missing)")
    } else {
        None
    }
}
