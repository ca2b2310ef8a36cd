//! Packing copies a matrix to panels, in which elements lie in the order in which a microkernel reads them:
//! [`Panel`](crate::args::micro::Panel) describes it. Elements stay as they are or are widened to f32.
//!
//! There are three ways, by the direction in which the matrix is contiguous in memory:
//!
//! - Along rows of `B` (columns of `A`): rows are copied piece by piece, several panels side by side. So 1 KiB of a page, or
//!   all of it, is read before the next page.
//! - Along columns of `B` (rows of `A`): squares of numbers of 32 bits are transposed in registers. A pair of 16-bit elements
//!   is one such number, and so is, until it is in place, a single one.
//! - Along neither: elements are copied one by one.

use crate::args::micro::{Panel, PanelType};
use crate::caps::Prefetcher;
use crate::element::Element;
use crate::isa::machine::{into_l2, prefetch, LINE, PAGE};
use crate::isa::transpose::transpose;
use crate::ops::gemv::gather;
use crate::ops::pack::lines;
use crate::vector::Prim;

/// All panels of a matrix, or of a block of it. The packer knows the matrix's type.
#[derive(Clone, Copy)]
pub(crate) struct PackArgs {
    /// Rows of `A` (columns of `B`).
    pub(crate) len: usize,
    /// Steps of the inner dimension.
    pub(crate) k: usize,
    /// Steps of a panel: `k` filled up.
    pub(crate) depth: usize,
    pub(crate) src: *const u8,
    /// From one row of `A` (column of `B`) to the next, in bytes.
    pub(crate) across: usize,
    /// From one step to the next, in bytes.
    pub(crate) along: usize,
    pub(crate) panel: Panel,
    pub(crate) dst: *mut u8,
    /// How rows are read that lie one after the other in memory.
    pub(crate) reading: Reading,
}

/// How rows are read that are contiguous: one piece of each row, then the next piece of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Bytes of a piece.
    piece: usize,
    /// How many rows ahead pieces are prefetched: to the first-level cache, where pieces of more rows would displace each
    /// other, and to the second-level cache.
    near: usize,
    far: usize,
}

impl Reading {
    /// The best way for a hardware prefetcher. If it stops at the end of each page, each piece starts it anew, so pieces are whole
    /// pages. (Measured on Granite Rapids: 14.5 instead of 12.1 GB/s; the other numbers on Zen 4.)
    pub(crate) const fn of(prefetcher: Prefetcher) -> Self {
        match prefetcher {
            Prefetcher::Sequential(_) => Self { piece: 1024, near: 4, far: 16 },
            Prefetcher::PerPage => Self { piece: PAGE, near: 2, far: 8 },
        }
    }
}

/// # Safety
/// Every element that `len`, `k` and the strides address is valid; `dst` has room for all panels; the
/// panel is of a kind that some microkernel for `E` has; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn pack<E: Element, P: Prim<E> + Prim<f32>>(g: &PackArgs) {
    // SAFETY: the caller's contract. Halves and pairs are of types with two bytes.
    unsafe {
        match g.panel {
            Panel { kr: 1, element: PanelType::F32, .. } => wide::<E, P>(g),
            Panel { kr: 1, .. } => panels_of_16_bits::<E, P>(g),
            Panel { kr: 2, .. } => pairs::<E, P>(g),
            _ if lines::pack(g, size_of::<E>()) => {}
            _ => groups::<E>(g, 0),
        }
    }
}

/// One register's share of a panel.
#[derive(Clone, Copy)]
struct Strip {
    /// Where the panel starts.
    at: usize,
    /// Where the strip starts in it.
    lane: usize,
    /// Lanes that belong to the panel.
    lanes: usize,
    /// Lanes that exist in the matrix.
    there: usize,
}

/// Calls `f` for each strip of `full` lanes or less.
#[inline(always)]
fn strips(g: &PackArgs, full: usize, mut f: impl FnMut(Strip)) {
    let mut at = 0;
    while at < g.len {
        let mut lane = 0;
        while lane < g.panel.width {
            let lanes = full.min(g.panel.width - lane);
            f(Strip { at, lane, lanes, there: lanes.min((g.len - at).saturating_sub(lane)) });
            lane += lanes;
        }
        at += g.panel.width;
    }
}

/// Writes step `p` of a strip of cells of 32 bits. Steps must come in their order.
#[inline(always)]
unsafe fn put<P: Prim<f32>>(g: &PackArgs, s: Strip, p: usize, v: P::V) {
    let (width, depth) = (g.panel.width, g.depth);
    // Elements beyond the step's end are overwritten by the next step, if there is one.
    let room = p + 1 < depth && width <= P::LANES && P::LANES <= 2 * width;
    // SAFETY: the caller vouches for the panel.
    unsafe {
        let dst = g.dst.cast::<f32>().add(s.at * depth + p * width + s.lane);
        if s.lanes == P::LANES || room {
            P::store(dst, v);
        } else {
            P::store_n(dst, v, s.lanes);
        }
    }
}

/// Writes `len` steps of a strip from step `p` on.
#[inline(always)]
unsafe fn put_square<P: Prim<f32>>(g: &PackArgs, s: Strip, p: usize, v: &[P::V; 16], len: usize) {
    let (width, depth) = (g.panel.width, g.depth);
    let room = p + P::LANES < depth && width <= P::LANES && P::LANES <= 2 * width;
    // SAFETY: the caller vouches for the panel; as in `put`, but for a whole square it is decided once.
    unsafe {
        if len == P::LANES && (s.lanes == P::LANES || room) {
            let dst = g.dst.cast::<f32>().add(s.at * depth + p * width + s.lane);
            for (i, &v) in v.iter().enumerate().take(P::LANES) {
                P::store(dst.add(i * width), v);
            }
        } else {
            for (i, &v) in v.iter().enumerate().take(len) {
                put::<P>(g, s, p + i, v);
            }
        }
    }
}

/// How many elements ahead rows are prefetched.
const PREFETCH_ELEMENTS: usize = 32;

/// Transposes the matrix, whose steps are contiguous: `f` gets squares of each strip, in order: as many steps
/// as it is told, from which one on.
#[inline(always)]
unsafe fn transposed<E: Element, P: Prim<E> + Prim<f32>>(
    g: &PackArgs,
    mut f: impl FnMut(Strip, usize, &[P::V; 16], usize),
) {
    strips(g, P::LANES, |s| {
        // Beyond the matrix nothing is read, and the pointer means nothing.
        let src = g.src.wrapping_add((s.at + s.lane).wrapping_mul(g.across)).cast::<E>();
        let mut p = 0;
        while p < g.k {
            let len = P::LANES.min(g.k - p);
            // SAFETY: the caller vouches for the matrix; only elements that exist are read.
            let v = unsafe {
                let mut v = [P::splat(0.0); 16];
                // Behind the end of the strip comes the next one's start.
                let (ahead, down) = if p + PREFETCH_ELEMENTS < g.k {
                    (p + PREFETCH_ELEMENTS, 0)
                } else {
                    (p + PREFETCH_ELEMENTS - g.k, g.panel.width)
                };
                for (i, v) in v.iter_mut().enumerate().take(P::LANES) {
                    prefetch(src.wrapping_byte_add((i + down).wrapping_mul(g.across)).wrapping_add(ahead));
                    if i < s.there {
                        let src = src.byte_add(i * g.across).add(p);
                        let whole = len == P::LANES;
                        *v = if whole { <P as Prim<E>>::load(src) } else { <P as Prim<E>>::load_n(src, len) };
                    }
                }
                transpose::<P>(v)
            };
            f(s, p, &v, len);
            p += len;
        }
    });
}

/// Walks a matrix whose rows (the steps) are contiguous, `rows` at a time: `f` gets the start of a panel,
/// how much of it exists, the step, and where that is in memory.
#[inline(always)]
pub(crate) unsafe fn pieces<E>(g: &PackArgs, rows: usize, mut f: impl FnMut(usize, usize, usize, *const E)) {
    let (width, Reading { piece, near: soon, far: later }) = (g.panel.width, g.reading);
    let piece = (piece / size_of::<E>()).checked_next_multiple_of(width).unwrap_or(width);
    let mut first = 0;
    while first < g.len {
        let end = g.len.min(first + piece);
        let mut p = 0;
        while p < g.k {
            let row = g.src.wrapping_add(p * g.along).cast::<E>();
            for row in 0..rows {
                let row =
                    |ahead: usize| g.src.wrapping_add((p + row + ahead).wrapping_mul(g.along)).cast::<E>();
                let (near, far) = (row(soon), row(later));
                let mut i = first;
                while i < end {
                    prefetch(near.wrapping_add(i));
                    into_l2(far.wrapping_add(i).cast());
                    i += LINE / size_of::<E>();
                }
            }
            let mut at = first;
            while at < end {
                f(at, width.min(g.len - at), p, row.wrapping_add(at));
                at += width;
            }
            p += rows;
        }
        first += piece;
    }
}

/// Panels of f32, one step a group.
#[inline(always)]
unsafe fn wide<E: Element, P: Prim<E> + Prim<f32>>(g: &PackArgs) {
    let size = size_of::<E>();
    // SAFETY: the caller's contract; only elements that exist are read.
    unsafe {
        if g.across == size {
            pieces::<E>(g, 1, |at, there, p, src| {
                let mut lane = 0;
                while lane < g.panel.width {
                    let lanes = P::LANES.min(g.panel.width - lane);
                    let there = lanes.min(there.saturating_sub(lane));
                    let src = src.wrapping_add(lane);
                    let v = if there == P::LANES {
                        <P as Prim<E>>::load(src)
                    } else {
                        <P as Prim<E>>::load_n(src, there)
                    };
                    put::<P>(g, Strip { at, lane, lanes, there }, p, v);
                    lane += lanes;
                }
            });
        } else if g.along == size {
            transposed::<E, P>(g, |s, p, v, len| put_square::<P>(g, s, p, v, len));
        } else {
            strips(g, P::LANES, |s| {
                for p in 0..g.k {
                    let src =
                        g.src.wrapping_add((s.at + s.lane).wrapping_mul(g.across).wrapping_add(p * g.along));
                    put::<P>(g, s, p, gather::<E, P>(src.cast(), g.across / size, s.there));
                }
            });
        }
        strips(g, P::LANES, |s| (g.k..g.depth).for_each(|p| put::<P>(g, s, p, P::splat(0.0))));
    }
}

/// Panels of 16-bit elements, one step a group.
#[inline(always)]
unsafe fn panels_of_16_bits<E: Element, P: Prim<f32>>(g: &PackArgs) {
    // SAFETY: the caller's contract; only elements that exist are read.
    unsafe {
        if g.across == 2 {
            pieces::<E>(g, 1, |at, there, p, src| {
                let dst = g.dst.cast::<E>().add(at * g.depth + p * g.panel.width);
                copy::<E>(src, there, dst, g.panel.width);
            });
            groups::<E>(g, g.k);
        } else if g.along == 2 {
            let cells = PackArgs { k: g.k / 2, ..*g };
            transposed::<f32, P>(&cells, |s, p, v, len| {
                for (i, &v) in v.iter().enumerate().take(len) {
                    let mut both = [0u32; 16];
                    P::store(both.as_mut_ptr().cast(), v);
                    let dst = g.dst.cast::<u16>().add(s.at * g.depth + 2 * (p + i) * g.panel.width + s.lane);
                    let (even, odd) = (dst, dst.add(g.panel.width));
                    if s.lanes == P::LANES {
                        for (i, &both) in both.iter().enumerate().take(P::LANES) {
                            *even.add(i) = both as u16;
                            *odd.add(i) = (both >> 16) as u16;
                        }
                    } else {
                        for (i, &both) in both.iter().enumerate().take(s.lanes) {
                            *even.add(i) = both as u16;
                            *odd.add(i) = (both >> 16) as u16;
                        }
                    }
                }
            });
            groups::<E>(g, g.k / 2 * 2);
        } else {
            groups::<E>(g, 0);
        }
    }
}

/// Copies the elements of a row of a panel that exist, and fills the row up with zeros.
#[inline(always)]
unsafe fn copy<E: Element>(src: *const E, there: usize, dst: *mut E, width: usize) {
    // SAFETY: the caller vouches for both.
    unsafe {
        let mut i = 0;
        while i + 16 <= there {
            dst.add(i).cast::<[E; 16]>().write_unaligned(src.add(i).cast::<[E; 16]>().read_unaligned());
            i += 16;
        }
        while i < width {
            *dst.add(i) = if i < there { *src.add(i) } else { E::ZERO };
            i += 1;
        }
    }
}

/// Interleaves the elements of two rows that exist, and fills up with zeros.
#[inline(always)]
unsafe fn interleave(first: *const u16, second: *const u16, there: usize, dst: *mut u32, width: usize) {
    let pair = |a: u16, b: u16| u32::from(a) | u32::from(b) << 16;
    // SAFETY: the caller vouches for all three.
    unsafe {
        let mut i = 0;
        while i + 16 <= there {
            let a = first.add(i).cast::<[u16; 16]>().read_unaligned();
            let b = second.add(i).cast::<[u16; 16]>().read_unaligned();
            let mut both = [0; 16];
            for ((both, a), b) in both.iter_mut().zip(a).zip(b) {
                *both = pair(a, b);
            }
            dst.add(i).cast::<[u32; 16]>().write_unaligned(both);
            i += 16;
        }
        while i < width {
            *dst.add(i) = if i < there { pair(*first.add(i), *second.add(i)) } else { 0 };
            i += 1;
        }
    }
}

/// Panels of 16-bit elements in pairs of steps.
#[inline(always)]
unsafe fn pairs<E: Element, P: Prim<f32>>(g: &PackArgs) {
    let even = g.k / 2 * 2;
    // SAFETY: the caller's contract; only elements that exist are read.
    unsafe {
        if g.along == 2 {
            let cells = PackArgs { k: g.k / 2, depth: g.depth / 2, ..*g };
            transposed::<f32, P>(&cells, |s, p, v, len| put_square::<P>(&cells, s, p, v, len));
            groups::<E>(g, even);
        } else if g.across == 2 {
            pieces::<E>(&PackArgs { k: even, ..*g }, 2, |at, there, p, src| {
                let dst = g.dst.cast::<u32>().add((at * g.depth + p * g.panel.width) / 2);
                interleave(src.cast(), src.byte_add(g.along).cast(), there, dst, g.panel.width);
            });
            groups::<E>(g, even);
        } else {
            groups::<E>(g, 0);
        }
    }
}

/// Steps `from..` of panels with any `kr`, of the matrix's own type, one by one. `from` is a multiple of `kr`,
/// or what is behind `k`.
#[inline(always)]
unsafe fn groups<E: Element>(g: &PackArgs, from: usize) {
    let Panel { width, kr, .. } = g.panel;
    let mut at = 0;
    while at < g.len {
        let mut p = from;
        while p < g.depth {
            let mut dst = g.dst.cast::<E>().wrapping_add(at * g.depth + p * width);
            for lane in at..at + width {
                for step in p..p + kr {
                    // SAFETY: the caller's contract; only elements that exist are read.
                    unsafe {
                        let there = lane < g.len && step < g.k;
                        let src = g.src.wrapping_add(
                            lane.wrapping_mul(g.across).wrapping_add(step.wrapping_mul(g.along)),
                        );
                        *dst = if there { *src.cast::<E>() } else { E::ZERO };
                        dst = dst.add(1);
                    }
                }
            }
            p += kr;
        }
        at += width;
    }
}
