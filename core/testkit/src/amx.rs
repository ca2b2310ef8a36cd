//! AMX and AVX-VNNI for the tests: the CPU's own, or emulated.
//!
//! On Linux, a CPU that has AVX-512 but no tiles gets them from a handler for SIGILL: it
//! executes what the kernels contain, by the operation sections of Intel's SDM, on registers that each thread
//! has for itself. So the kernels are tested bit by bit wherever the rest of their instructions exists; how fast they
//! are needs the CPU. The same for AVX2 without `vpdpbusd` in its VEX encoding.

use std::sync::OnceLock;

use gllm_kernels_core::{Caps, Features};

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod decode;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod scalar;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod tiles;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod vnni;

/// What kernels may use in tests: what this machine has, and what is emulated.
pub fn caps() -> Caps {
    // SAFETY: every thread has what is emulated.
    unsafe { gllm_kernels_std::caps().with_features(emulated()) }
}

/// What [`caps`] have and the CPU has not.
pub fn emulated() -> Features {
    static EMULATED: OnceLock<Features> = OnceLock::new();
    *EMULATED.get_or_init(machine::emulate)
}

/// Whether this thread has left emulated tiles in use.
pub fn in_use() -> bool {
    machine::in_use()
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod machine {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    use std::cell::UnsafeCell;
    use std::ffi::{c_int, c_void};

    use gllm_kernels_core::{Caps, Features};

    use super::{decode, scalar, tiles, vnni};

    thread_local! {
        static STATE: UnsafeCell<tiles::State> = const { UnsafeCell::new(tiles::State::INIT) };
    }

    /// Installs the handler where the CPU has the other instructions, but none of these. Returns what there is now.
    pub(super) fn emulate() -> Features {
        let there = Caps::detect().features();
        let tiles = __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx >> 24 & 1 == 1;
        let mut missing = Features::NONE;
        if !tiles && there.contains(Features::AVX512) {
            missing = missing | Features::AMX;
        }
        if there.contains(Features::AVX2) && !there.contains(Features::AVX_VNNI) {
            missing = missing | Features::AVX_VNNI;
        }
        if missing != Features::NONE && install() {
            missing
        } else {
            Features::NONE
        }
    }

    fn install() -> bool {
        // SAFETY: an all-zero `sigaction` is a valid one; the handler has the type that SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut()) == 0
        }
    }

    /// Where `ucontext` has the general registers, in the order of their numbers.
    pub(super) const REGISTERS: [c_int; 16] = [
        libc::REG_RAX,
        libc::REG_RCX,
        libc::REG_RDX,
        libc::REG_RBX,
        libc::REG_RSP,
        libc::REG_RBP,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
        libc::REG_R12,
        libc::REG_R13,
        libc::REG_R14,
        libc::REG_R15,
    ];

    /// Executes the instruction at which the thread has stopped and moves it on. What is not known, or would fault, ends
    /// the process as it would have without this handler: the thread stops there again.
    extern "C" fn handler(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the system passes the context of the interrupted thread, which stopped at an instruction. Memory is
        // accessed as this instruction does. Nobody else refers to this thread's state: instructions of the
        // handler itself do not bring it here.
        unsafe {
            let machine = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
            let (registers, vectors) = (&mut machine.gregs, machine.fpregs);
            let code = registers[libc::REG_RIP as usize] as *const u8;
            let run = |state: &UnsafeCell<tiles::State>| {
                let mut at = code;
                // Those that follow, too: stopping the thread takes longer than many instructions.
                loop {
                    let value = |number: u8| registers[REGISTERS[usize::from(number)] as usize] as usize;
                    let behind = match decode::decode(at, value) {
                        Some((instruction, behind)) => {
                            let done = match instruction {
                                decode::Instruction::Vector(it) => vnni::execute(vectors.cast(), it),
                                of_tiles => (*state.get()).execute(of_tiles),
                            };
                            done.map(|()| behind)
                        }
                        None if at != code => scalar::execute(at, registers),
                        None => None,
                    };
                    let Some(behind) = behind else { return at };
                    at = behind;
                }
            };
            match STATE.try_with(run) {
                Ok(behind) if behind != code => registers[libc::REG_RIP as usize] = behind as i64,
                _ => {
                    libc::signal(libc::SIGILL, libc::SIG_DFL);
                }
            }
        }
    }

    pub(super) fn in_use() -> bool {
        // SAFETY: the handler, which alone changes the state, does not run now.
        STATE.with(|state| unsafe { (*state.get()).in_use() })
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod machine {
    pub(super) fn emulate() -> gllm_kernels_core::Features {
        gllm_kernels_core::Features::NONE
    }
    pub(super) fn in_use() -> bool {
        false
    }
}
