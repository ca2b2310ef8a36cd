//! Packing of int8 matrices; see [`Panel`](crate::asm::abi::Panel).
//!
//! The `kr` steps of a row of `A` (column of `B`) are a word of `kr` bytes, and words are what is moved. What
//! else a panel's type asks for is done in place afterwards: the panel is in the first-level cache.

use core::ops::{BitOr, Shl};

use crate::asm::abi::{Panel, PanelType};
use crate::isa::Prim;
use crate::ops::lines;
use crate::ops::pack::{self, PackArgs};

/// # Safety
/// Every element that `len`, `k` and the strides address is valid; `dst` has room for all panels; the
/// panel is of a kind that some microkernel for int8 has; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn pack<P: Prim<f32>>(g: &PackArgs) {
    let Panel { element, width, kr } = g.panel;
    let pitch = g.panel.bytes(width, g.depth);
    let all = width * g.depth;
    let (mut at, mut dst) = (0, g.dst);
    while at < g.len {
        let src = g.src.wrapping_add(at * g.across);
        // What will be widened starts at the end of its place.
        let to = if element == PanelType::I16 { dst.wrapping_add(all) } else { dst };
        let one = PackArgs { len: width.min(g.len - at), src, dst: to, ..*g };
        // SAFETY: the caller's contract, for one panel.
        unsafe {
            match kr {
                1 => words::<u8>(&one, 0),
                2 => words::<u16>(&one, quads::<P>(&one)),
                4 => words::<u32>(&one, quads::<P>(&one)),
                8 => words::<u64>(&one, 0),
                16 => words::<u128>(&one, 0),
                _ if lines::pack(&one, 1) => {}
                _ => long_words(&one),
            }
            match element {
                PanelType::I16 => widen(to.cast(), dst.cast(), all),
                PanelType::U8 => (0..all).for_each(|i| *dst.add(i) ^= 0x80),
                PanelType::I8Offset => offsets(&one),
                _ => {}
            }
        }
        dst = dst.wrapping_add(pitch);
        at += width;
    }
}

/// The `kr` steps of a row or column.
trait Word: Copy + From<u8> + BitOr<Output = Self> + Shl<usize, Output = Self> {}
impl<T: Copy + From<u8> + BitOr<Output = T> + Shl<usize, Output = T>> Word for T {}

/// A panel from step `from` on, which is a multiple of the word's.
#[inline(always)]
unsafe fn words<W: Word>(g: &PackArgs, from: usize) {
    let kr = size_of::<W>();
    let mut p = from;
    while p < g.depth {
        let row: *mut W = g.dst.wrapping_add(p * g.panel.width).cast();
        let src = g.src.wrapping_add(p * g.along);
        let there = kr.min(g.k.saturating_sub(p));
        for lane in 0..g.panel.width {
            // SAFETY: the caller's contract; only what exists is read.
            unsafe {
                let mut word = W::from(0);
                if lane < g.len && there == kr && g.along == 1 {
                    word = src.add(lane * g.across).cast::<W>().read_unaligned();
                } else if lane < g.len {
                    for s in 0..there {
                        word = word | W::from(*src.add(lane * g.across + s * g.along)) << (8 * s);
                    }
                }
                row.add(lane).write_unaligned(word);
            }
        }
        p += kr;
    }
}

/// Panels with words longer than a register of integers.
#[inline(always)]
unsafe fn long_words(g: &PackArgs) {
    let (mut p, mut dst) = (0, g.dst);
    while p < g.depth {
        for lane in 0..g.panel.width {
            for s in p..p + g.panel.kr {
                // SAFETY: the caller's contract; only what exists is read.
                unsafe {
                    let there = lane < g.len && s < g.k;
                    *dst = if there { *g.src.add(lane * g.across + s * g.along) } else { 0 };
                    dst = dst.add(1);
                }
            }
        }
        p += g.panel.kr;
    }
}

/// Packs whole groups of four steps, if steps are contiguous: four bytes are an f32 to the vector registers,
/// which transpose squares of them. Returns the steps that are done.
#[inline(always)]
unsafe fn quads<P: Prim<f32>>(g: &PackArgs) -> usize {
    if P::LANES == 1 || g.along != 1 || g.k < 4 {
        return 0;
    }
    let (width, steps) = (g.panel.width, g.k / 4);
    let panel = Panel { element: PanelType::F32, width, kr: 1 };
    // SAFETY: the caller's contract: `4 * steps` bytes of each row, at any address.
    unsafe { pack::pack::<f32, P>(&PackArgs { k: steps, depth: steps, along: 4, panel, ..*g }) };
    if g.panel.kr == 2 {
        for step in 0..steps {
            // SAFETY: a row of words of four bytes becomes two rows of words of two.
            unsafe { halve(g.dst.add(4 * step * width), width) };
        }
    }
    4 * steps
}

/// Brings the first halves of `n` words before their second halves.
#[inline(always)]
unsafe fn halve(words: *mut u8, n: usize) {
    let mut high = [0u16; 64];
    let (words, halves): (*const u32, *mut u16) = (words.cast(), words.cast());
    for (lane, high) in high.iter_mut().enumerate().take(n) {
        // SAFETY: the caller's contract. Halves are written behind what has been read.
        unsafe {
            let word = words.add(lane).read_unaligned();
            *high = (word >> 16) as u16;
            halves.add(lane).write_unaligned(word as u16);
        }
    }
    for (lane, &high) in high.iter().enumerate().take(n) {
        // SAFETY: as above.
        unsafe { halves.add(n + lane).write_unaligned(high) };
    }
}

/// Widens `n` numbers to where they end.
#[inline(always)]
unsafe fn widen(src: *const i8, dst: *mut i16, n: usize) {
    const AT_ONCE: usize = 32;
    let mut i = 0;
    // SAFETY: the caller's contract. Nothing is written before it has been read: `src` is `dst + n` bytes.
    unsafe {
        while n - i >= AT_ONCE {
            let x: [i8; AT_ONCE] = src.add(i).cast::<[i8; AT_ONCE]>().read();
            dst.add(i).cast::<[i16; AT_ONCE]>().write_unaligned(x.map(i16::from));
            i += AT_ONCE;
        }
        while i < n {
            dst.add(i).write_unaligned((*src.add(i)).into());
            i += 1;
        }
    }
}

/// Writes what is behind the steps of a panel with groups of four.
#[inline(always)]
unsafe fn offsets(g: &PackArgs) {
    let width = g.panel.width;
    // No panel is wider.
    let mut sums = [0i32; 64];
    let mut row: *const [i8; 4] = g.dst.cast();
    for _ in 0..g.depth / 4 {
        for (lane, sum) in sums.iter_mut().enumerate().take(width) {
            // SAFETY: the caller's contract: a packed panel.
            let word = unsafe { *row.add(lane) };
            *sum = word.into_iter().fold(*sum, |sum, b| sum.wrapping_add(b.into()));
        }
        row = row.wrapping_add(width);
    }
    let tail: *mut i32 = row.cast_mut().cast();
    for (lane, sum) in sums.into_iter().enumerate().take(width) {
        // SAFETY: the place behind the steps, which need not be aligned.
        unsafe { tail.add(lane).write_unaligned(sum.wrapping_mul(-128)) };
    }
}
