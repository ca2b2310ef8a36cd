//! Packing of int8 matrices; see [`Panel`](crate::args::micro::Panel).
//!
//! The `kr` steps of a row of `A` (column of `B`) are one word of `kr` bytes, and packing moves such words. Panels whose
//! elements have another type than i8 are converted in place afterwards.

use crate::args::micro::{Panel, PanelType};
use crate::isa::machine::{zip_high, zip_low, Bytes16};
use crate::ops::pack::lines;
use crate::ops::pack::{self, PackArgs};

/// Packs cells of four bytes, at any address. Not used by portable code, whose words are of one byte.
type Cells = unsafe fn(&PackArgs);

/// Packs, with `cells` for cells of four bytes. That is compiled by itself: what is inlined here more than once
/// may lose the instruction set.
///
/// # Safety
/// Every element that `len`, `k` and the strides address is valid; `dst` has room for all panels; the
/// panel is of a kind that some microkernel for int8 has; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn pack(g: &PackArgs, cells: Cells) {
    // SAFETY: the caller's contract.
    unsafe {
        match g.panel.kr {
            1 => panels::<1>(g, cells),
            2 => panels::<2>(g, cells),
            4 => panels::<4>(g, cells),
            8 => panels::<8>(g, cells),
            16 => panels::<16>(g, cells),
            _ if lines::pack(g, 1) => {}
            _ => panels::<64>(g, cells),
        }
    }
}

#[inline(always)]
unsafe fn panels<const KR: usize>(g: &PackArgs, cells: Cells) {
    let Panel { element, width, .. } = g.panel;
    let (pitch, all) = (g.panel.bytes(width, g.depth), width * g.depth);
    let rows = g.across == 1 && KR <= AT_ONCE;
    // SAFETY: the caller's contract; the panels lie one behind the other.
    unsafe {
        if rows {
            interleaved::<KR>(g);
        }
        let (mut at, mut dst) = (0, g.dst);
        while at < g.len {
            // Without steps a stride may lead anywhere, too.
            let src = g.src.wrapping_add(at.wrapping_mul(g.across));
            let one = PackArgs { len: width.min(g.len - at), src, dst: bytes(g, dst), ..*g };
            let done = if rows { g.k / KR * KR } else { quads::<KR>(&one, cells) };
            words::<KR>(&one, done);
            match element {
                PanelType::I16 => widen(one.dst.cast(), dst.cast(), all),
                PanelType::U8 => (0..all).for_each(|i| *dst.add(i) ^= 0x80),
                PanelType::I8Offset => offsets(&one),
                _ => {}
            }
            dst = dst.wrapping_add(pitch);
            at += width;
        }
    }
}

/// Where the bytes of the panel at `dst` are: what will be widened is at the end of its place.
#[inline(always)]
fn bytes(g: &PackArgs, dst: *mut u8) -> *mut u8 {
    match g.panel.element {
        PanelType::I16 => dst.wrapping_add(g.panel.width * g.depth),
        _ => dst,
    }
}

/// A panel from step `from` on, word by word.
#[inline(always)]
unsafe fn words<const KR: usize>(g: &PackArgs, from: usize) {
    let mut p = from;
    while p < g.depth {
        for lane in 0..g.panel.width {
            // Beyond the matrix a stride may lead anywhere.
            let src = g.src.wrapping_add(lane.wrapping_mul(g.across)).wrapping_add(p.wrapping_mul(g.along));
            let there = if lane < g.len { KR.min(g.k.saturating_sub(p)) } else { 0 };
            // SAFETY: the caller's contract; only elements that exist are read.
            unsafe {
                let word = word::<KR>(src, g.along, there);
                g.dst.add(p * g.panel.width).cast::<[u8; KR]>().add(lane).write(word);
            }
        }
        p += KR;
    }
}

/// The next `there` steps, and zeros.
#[inline(always)]
unsafe fn word<const KR: usize>(src: *const u8, along: usize, there: usize) -> [u8; KR] {
    // SAFETY: the caller vouches for so many steps.
    unsafe {
        if there == KR && along == 1 {
            return src.cast::<[u8; KR]>().read();
        }
        let mut word = [0; KR];
        for (s, byte) in word.iter_mut().enumerate().take(there) {
            *byte = *src.add(s * along);
        }
        word
    }
}

/// Whole words of all panels, where rows of `B` (columns of `A`) are contiguous.
#[inline(always)]
unsafe fn interleaved<const KR: usize>(g: &PackArgs) {
    let width = g.panel.width;
    // SAFETY: the caller's contract; only elements that exist are read.
    unsafe {
        pack::pieces::<u8>(&PackArgs { k: g.k / KR * KR, ..*g }, KR, |at, there, p, src| {
            let row = bytes(g, g.dst.add(g.panel.bytes(at, g.depth))).add(p * width);
            let mut lane = 0;
            // A register may hold more than the panel's words: those of the next one, which it brings to where
            // the next steps' will be, if there are any.
            let room = (g.depth - p) * width;
            while lane < there && at + lane + AT_ONCE <= g.len && (lane + AT_ONCE) * KR <= room {
                interleave::<KR>(src.add(lane), g.along, row.add(lane * KR).cast());
                lane += AT_ONCE;
            }
            while lane < width {
                let word = word::<KR>(src.wrapping_add(lane), g.along, if lane < there { KR } else { 0 });
                row.cast::<[u8; KR]>().add(lane).write(word);
                lane += 1;
            }
        });
    }
}

/// Bytes of a register.
const AT_ONCE: usize = size_of::<Bytes16>();

/// Interleaves `KR` rows, byte by byte.
#[inline(always)]
unsafe fn interleave<const KR: usize>(src: *const u8, along: usize, dst: *mut Bytes16) {
    // SAFETY: the caller vouches for a register of each row, and for as many behind `dst`. SSE2 and NEON are
    // a part of their targets.
    unsafe {
        let mut v = [src.cast::<Bytes16>().read_unaligned(); KR];
        for (s, v) in v.iter_mut().enumerate() {
            *v = src.add(s * along).cast::<Bytes16>().read_unaligned();
        }
        // As `transpose` of f32: each round moves one bit of the row's number into the lane's.
        for _ in 0..KR.trailing_zeros() {
            let from = v;
            for i in 0..KR / 2 {
                let (a, b) = (from[i], from[i + KR / 2]);
                (v[2 * i], v[2 * i + 1]) = (zip_low(a, b), zip_high(a, b));
            }
        }
        for (s, &v) in v.iter().enumerate() {
            dst.add(s).write_unaligned(v);
        }
    }
}

/// Packs whole groups of four steps, if steps are contiguous: four bytes are an f32 to the vector registers,
/// which transpose squares of them. Returns the steps that are done.
#[inline(always)]
unsafe fn quads<const KR: usize>(g: &PackArgs, cells: Cells) -> usize {
    if !matches!(KR, 2 | 4) || g.along != 1 || g.k < 4 {
        return 0;
    }
    let (width, steps) = (g.panel.width, g.k / 4);
    let panel = Panel { element: PanelType::F32, width, kr: 1 };
    // SAFETY: the caller's contract: `4 * steps` bytes of each row, at any address.
    unsafe { cells(&PackArgs { k: steps, depth: steps, along: 4, panel, ..*g }) };
    if KR == 2 {
        for step in 0..steps {
            // SAFETY: a row of words of four bytes becomes two rows of words of two.
            unsafe { halve(g.dst.add(4 * step * width), width) };
        }
    }
    4 * steps
}

/// Brings the first halves of `n <= 64` words before their second halves.
///
/// # Safety
/// The words exist, at any alignment, and nobody else uses them.
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
        // SAFETY: the `n` words have room for `2 * n` halves.
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

/// Writes the sums of columns behind the steps of a panel that has words of four bytes, and a width that is a multiple of 16.
#[inline(always)]
unsafe fn offsets(g: &PackArgs) {
    /// Columns at a time: a long register.
    const COLS_AT_ONCE: usize = 16;
    /// The even bytes.
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    /// Rows of words whose bytes, plus 128, add up to less than 2^16 by twos.
    const ROWS_AT_ONCE: usize = 128;
    let (width, rows) = (g.panel.width, g.depth / 4);
    let words: *const u32 = g.dst.cast();
    let tail: *mut i32 = words.wrapping_add(rows * width).cast_mut().cast();
    for lane in (0..width).step_by(COLS_AT_ONCE) {
        let (mut sums, mut row) = ([[0i32; 2]; COLS_AT_ONCE / 2], 0);
        while row < rows {
            let end = rows.min(row + ROWS_AT_ONCE);
            let mut twos = [0u64; COLS_AT_ONCE / 2];
            let biased = 128 * 4 * (end - row) as i32;
            while row < end {
                // SAFETY: the caller's contract: a packed panel.
                let words = unsafe {
                    words.add(row * width + lane).cast::<[u64; COLS_AT_ONCE / 2]>().read_unaligned()
                };
                for (twos, word) in twos.iter_mut().zip(words) {
                    let word = word ^ 0x8080_8080_8080_8080;
                    *twos = twos.wrapping_add((word & EVEN) + (word >> 8 & EVEN));
                }
                row += 1;
            }
            for (sums, twos) in sums.iter_mut().zip(twos) {
                for (i, sum) in sums.iter_mut().enumerate() {
                    let [low, high] =
                        [twos >> (32 * i), twos >> (32 * i + 16)].map(|half| i32::from(half as u16));
                    *sum = sum.wrapping_add(low + high - biased);
                }
            }
        }
        // SAFETY: the place behind the steps, which need not be aligned.
        unsafe {
            tail.add(lane)
                .cast::<[[i32; 2]; COLS_AT_ONCE / 2]>()
                .write_unaligned(sums.map(|s| s.map(|s| s.wrapping_mul(-128))));
        }
    }
}
