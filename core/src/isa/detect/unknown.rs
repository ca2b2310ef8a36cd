//! Where the architecture, or its operating system, tells nothing to whoever asks.

use crate::caps::Caps;

pub(super) fn detect() -> Caps {
    Caps::BASELINE
}

/// # Safety
/// None is needed.
pub(super) unsafe fn of_this_core() -> Caps {
    Caps::BASELINE
}
