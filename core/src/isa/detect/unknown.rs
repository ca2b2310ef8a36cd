//! Detection on architectures that have no way to ask a CPU for its features: nothing beyond the baseline is assumed.

use crate::caps::Caps;

pub(super) fn detect() -> Caps {
    Caps::BASELINE
}

/// # Safety
/// None is needed.
pub(super) unsafe fn of_this_core() -> Caps {
    Caps::BASELINE
}
