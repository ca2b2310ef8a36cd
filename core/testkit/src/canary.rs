//! Register canaries: does a call keep the registers its caller owns?
//!
//! [`call`] goes through a small assembly frame that fills the callee-saved registers with canaries,
//! makes the call, and compares. A kernel in assembly takes one pointer, so [`raw`] can call it
//! directly, with no compiled code between the frame and the kernel.

use std::cell::Cell;
use std::ffi::c_void;

use crate::alloc::allocations;

#[cfg(target_arch = "aarch64")]
#[path = "canary/aarch64.rs"]
mod arch;
#[cfg(all(target_arch = "x86_64", not(windows)))]
#[path = "canary/x86_64.rs"]
mod arch;
#[cfg(not(any(target_arch = "aarch64", all(target_arch = "x86_64", not(windows)))))]
mod arch {
    //! No frame for this architecture: calls are made, registers are not looked at.
    pub use super::Thunk;
    /// # Safety
    /// `f` must accept `argument`.
    pub unsafe fn frame(f: Thunk, argument: *mut std::ffi::c_void) -> Option<&'static str> {
        // SAFETY: the caller's contract.
        unsafe { f(argument) };
        None
    }
}

/// A function the frame can call. On x86-64 hand-written kernels use this convention on every system.
#[cfg(all(target_arch = "x86_64", not(windows)))]
pub type Thunk = unsafe extern "sysv64" fn(*mut c_void);
/// A function the frame can call.
#[cfg(not(all(target_arch = "x86_64", not(windows))))]
pub type Thunk = unsafe extern "C" fn(*mut c_void);

thread_local! {
    static VIOLATION: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Calls `f(argument)` between canaries; says what was not preserved.
///
/// # Safety
/// `f` must accept `argument`, and must not unwind.
pub unsafe fn raw(f: Thunk, argument: *mut c_void) -> Result<(), &'static str> {
    // SAFETY: the caller's contract.
    match unsafe { arch::frame(f, argument) } {
        Some(what) => Err(what),
        None => Ok(()),
    }
}

struct Job<F, R> {
    f: Option<F>,
    result: Option<R>,
}

macro_rules! thunk {
    ($abi:literal) => {
        /// # Safety
        /// `job` points to a `Job<F, R>`.
        #[inline(never)]
        unsafe extern $abi fn run<F: FnOnce() -> R, R>(job: *mut c_void) {
            // SAFETY: the caller's contract.
            let job = unsafe { &mut *job.cast::<Job<F, R>>() };
            job.result = job.f.take().map(|f| f());
        }
    };
}
#[cfg(all(target_arch = "x86_64", not(windows)))]
thunk! { "sysv64" }
#[cfg(not(all(target_arch = "x86_64", not(windows))))]
thunk! { "C" }

/// Calls `f` between canaries and counts its allocations. What it does wrong is kept for [`violation`].
pub fn call<R>(f: impl FnOnce() -> R) -> R {
    fn go<F: FnOnce() -> R, R>(f: F) -> R {
        let mut job = Job { f: Some(f), result: None };
        let before = allocations();
        // SAFETY: `run` gets the job it expects. A panic aborts at the foreign-ABI boundary.
        if let Err(what) = unsafe { raw(run::<F, R>, (&raw mut job).cast()) } {
            VIOLATION.set(Some(what));
        }
        if allocations() != before {
            VIOLATION.set(Some("the heap: it allocates"));
        }
        job.result.expect("the frame has made the call")
    }
    go(f)
}

/// What a [`call`] of this thread has failed to preserve since the last question.
pub fn violation() -> Option<String> {
    VIOLATION.take().map(|what| format!("does not preserve {what}"))
}
