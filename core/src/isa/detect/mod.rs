//! Detection, at run time, of the capabilities of this CPU.

use crate::caps::Caps;

#[cfg(all(target_arch = "aarch64", target_os = "none"))]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod amd;
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_os = "none"))))]
mod unknown;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(all(target_arch = "aarch64", target_os = "none"))]
use aarch64 as this;
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_os = "none"))))]
use unknown as this;
#[cfg(target_arch = "x86_64")]
use x86_64 as this;

impl Caps {
    /// The capabilities that every core of this machine has, as far as they can be found out at any privilege level.
    ///
    /// - x86-64: CPUID and XGETBV; the result is kept, later calls only copy it. AMX is left out, as it needs the
    ///   operating system's permission.
    /// - aarch64: [`Caps::BASELINE`], that is NEON without dotprod and the like. Under an operating system that system
    ///   knows the rest; without one each core does, see [`Caps::of_this_core`].
    /// - Others: [`Caps::BASELINE`].
    ///
    /// With an operating system use `gllm_kernels_std::caps()`, which also finds what only the operating system knows.
    pub fn detect() -> Self {
        this::detect()
    }

    /// The capabilities of this core, detected anew at each call. On aarch64 without an operating system they are
    /// read from the ID registers; everywhere else they are those of [`Caps::detect`].
    ///
    /// # Safety
    /// On aarch64 without an operating system:
    ///
    /// - The core is at EL1 or above. At EL0 the registers trap; use [`Caps::BASELINE`] there, with what is known
    ///   about the machine by [`Caps::with_features`].
    /// - Kernels chosen by the result run on this core only, or on others that have the same features. Where cores
    ///   differ (big.LITTLE), call this on each, and choose kernels for each or by what all have:
    ///   [`Caps::common`].
    pub unsafe fn of_this_core() -> Self {
        // SAFETY: the caller's contract.
        unsafe { this::of_this_core() }
    }
}
