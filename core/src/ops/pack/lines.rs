//! Packing for tile registers (AMX): each group of steps of a row is a whole cache line, which is copied as such.

use crate::args::micro::Panel;
use crate::isa::machine::{into_l2, LINE};
use crate::ops::pack::PackArgs;

/// How many lines ahead rows are prefetched.
const LINES_AHEAD: usize = 6;

/// Packs a matrix of elements of `size` bytes if its steps are contiguous and the panel's groups are lines: these
/// are copied, side by side from all rows of a panel: they are written one behind the other then, as prefetchers of stores want it.
/// Returns whether it is done.
///
/// # Safety
/// Every element that `len`, `k` and the strides address is valid; `dst` has room for all panels; the panel has
/// elements of the matrix's type.
#[inline(always)]
pub(crate) unsafe fn pack(g: &PackArgs, size: usize) -> bool {
    let Panel { width, kr, .. } = g.panel;
    if kr * size != LINE || g.along != size {
        return false;
    }
    let bytes = g.k * size;
    let mut dst: *mut [u8; LINE] = g.dst.cast();
    let mut at = 0;
    while at < g.len {
        let mut from = 0;
        while from < g.depth * size {
            for lane in at..at + width {
                let there = if lane < g.len { bytes } else { 0 };
                let src = g.src.wrapping_add(lane.wrapping_mul(g.across)).wrapping_add(from);
                into_l2(src.wrapping_add(LINES_AHEAD * LINE));
                // SAFETY: the caller's contract; only elements that exist are read.
                unsafe {
                    let mut whole = [0; LINE];
                    if from + LINE <= there {
                        whole = src.cast::<[u8; LINE]>().read();
                    } else {
                        for (i, byte) in whole.iter_mut().enumerate().take(there.saturating_sub(from)) {
                            *byte = *src.add(i);
                        }
                    }
                    dst.write(whole);
                }
                dst = dst.wrapping_add(1);
            }
            from += LINE;
        }
        at += width;
    }
    true
}
