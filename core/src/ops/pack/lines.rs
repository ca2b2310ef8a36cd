//! Packing for tile registers (AMX): each group of steps of a row is a whole cache line, which is copied as such.

use crate::args::micro::Panel;
use crate::isa::machine::LINE;
use crate::ops::pack::PackArgs;

/// Packs a matrix of elements of `size` bytes if its steps are contiguous and the panel's groups are lines: these
/// are copied, row by row. Returns whether it is done.
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
    let (line, bytes) = (width * LINE, g.k * size);
    let mut at = 0;
    while at < g.len {
        for lane in 0..width {
            let mut dst: *mut [u8; LINE] = g.dst.wrapping_add(at * g.depth * size + lane * LINE).cast();
            let there = if at + lane < g.len { bytes } else { 0 };
            let src = g.src.wrapping_add((at + lane).wrapping_mul(g.across));
            let mut from = 0;
            while from < g.depth * size {
                // SAFETY: the caller's contract; only elements that exist are read.
                unsafe {
                    let mut whole = [0; LINE];
                    if from + LINE <= there {
                        whole = src.add(from).cast::<[u8; LINE]>().read();
                    } else {
                        for (i, byte) in whole.iter_mut().enumerate().take(there.saturating_sub(from)) {
                            *byte = *src.add(from + i);
                        }
                    }
                    dst.write(whole);
                }
                dst = dst.wrapping_byte_add(line);
                from += LINE;
            }
        }
        at += width;
    }
    true
}
