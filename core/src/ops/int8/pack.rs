//! Packing of int8 matrices; see [`Panel`](crate::asm::abi::Panel).

use crate::ops::pack::PackArgs;

/// # Safety
/// Every element that `len`, `k` and the strides address is valid; `dst` has room for all panels; the
/// panel is of a kind that some microkernel for int8 has; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn pack(g: &PackArgs) {
    let mut dst: *mut i8 = g.dst.cast();
    let mut at = 0;
    while at < g.len {
        let mut p = 0;
        while p < g.depth {
            for lane in at..at + g.panel.width {
                for step in p..p + g.panel.kr {
                    // SAFETY: the caller's contract; only what exists is read.
                    unsafe {
                        let there = lane < g.len && step < g.k;
                        let src = g.src.wrapping_add(lane * g.across + step * g.along).cast::<i8>();
                        *dst = if there { *src } else { 0 };
                        dst = dst.add(1);
                    }
                }
            }
            p += g.panel.kr;
        }
        at += g.panel.width;
    }
}
