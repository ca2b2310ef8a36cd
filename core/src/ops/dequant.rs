//! Dequantisation: blocks to f32, f16 or bf16.

use core::mem::MaybeUninit;

use crate::args::unpacker::Unpacked;
use crate::args::unpacker::Unpacker;
use crate::element::Element;
use crate::isa::machine::fence;
use crate::ops::engine::Access;
use crate::quant::bytes::Widen;
use crate::quant::MIN_GROUP;
use crate::vector::{Prim, Vector};

/// Elements that are unpacked at a time, small enough to stay in the first-level cache; whole blocks of every
/// format.
pub(crate) const CHUNK: usize = 1024;

/// Chunks that are decoded side by side, so that neither the blocks nor the outputs of two of them
/// share a page.
const PARTS_SIDE_BY_SIDE: usize = 2;

/// Memory for the codes, scales and offsets of a chunk.
#[repr(C, align(64))]
pub(crate) struct Chunk {
    codes: [i8; CHUNK],
    scales: [f32; CHUNK / MIN_GROUP],
    offsets: [f32; CHUNK / MIN_GROUP],
}

impl Chunk {
    /// Where the parts of a chunk lie.
    #[inline(always)]
    pub(crate) fn parts(chunk: &mut MaybeUninit<Self>) -> Unpacked {
        let chunk = chunk.as_mut_ptr();
        // SAFETY: places within the chunk; nothing is read.
        unsafe {
            Unpacked {
                codes: (&raw mut (*chunk).codes).cast(),
                scales: (&raw mut (*chunk).scales).cast(),
                offsets: (&raw mut (*chunk).offsets).cast(),
            }
        }
    }
}

impl Unpacker {
    /// Blocks of a chunk, at least one.
    #[inline(always)]
    pub(crate) fn chunk(&self) -> usize {
        (CHUNK / self.len.max(1)).max(1)
    }
}

/// The arguments of [`decode`].
pub struct DecodeArgs<E> {
    pub(crate) format: Unpacker,
    pub(crate) blocks: usize,
    pub(crate) w: *const u8,
    pub(crate) y: *mut E,
    pub(crate) access: Access,
}

/// How the elements of an output are stored.
trait Put<E, P: Vector> {
    /// Stores `LANES` elements.
    ///
    /// # Safety
    /// The contract of [`Prim::store`].
    unsafe fn put(p: *mut E, v: P::V);
}
struct Through;
impl<E: Element, P: Prim<E>> Put<E, P> for Through {
    #[inline(always)]
    unsafe fn put(p: *mut E, v: P::V) {
        // SAFETY: the caller's contract.
        unsafe { P::store(p, v) }
    }
}
struct Past;
impl<E: Element, P: Prim<E>> Put<E, P> for Past {
    #[inline(always)]
    unsafe fn put(p: *mut E, v: P::V) {
        // SAFETY: the caller's contract, which here includes the alignment.
        unsafe { P::stream(p, v) }
    }
}

/// Scales `n` codes, whole groups.
///
/// # Safety
/// `n` codes and their scales and offsets at `from`, room for `n` elements at `y`, the instruction set.
#[inline(always)]
unsafe fn expand<E, P: Widen, S: Put<E, P>, const GROUP: usize, const OFFSETS: bool>(
    n: usize,
    from: Unpacked,
    y: *mut E,
) {
    // SAFETY: every group is below n / GROUP.
    unsafe {
        for g in 0..n / GROUP {
            let scale = P::splat(*from.scales.add(g));
            let offset = if OFFSETS { P::splat(*from.offsets.add(g)) } else { scale };
            for i in (g * GROUP..(g + 1) * GROUP).step_by(P::LANES) {
                let v = P::mul(P::widen(from.codes.add(i)), scale);
                S::put(y.add(i), if OFFSETS { P::add(v, offset) } else { v });
            }
        }
    }
}

/// Decodes `n` blocks, at most a chunk.
///
/// # Safety
/// `n` blocks at `w`, room for their elements at `y`, the instruction set.
#[inline(always)]
unsafe fn some<E, P: Widen, S: Put<E, P>>(format: Unpacker, n: usize, w: *const u8, y: *mut E) {
    let mut chunk = MaybeUninit::uninit();
    let parts = Chunk::parts(&mut chunk);
    // SAFETY: a chunk has room for n blocks; what is read of it was written.
    unsafe {
        (format.unpack)(n, w, &parts);
        let n = n * format.len;
        match (format.group, format.offsets) {
            (16, false) => expand::<E, P, S, 16, false>(n, parts, y),
            (16, true) => expand::<E, P, S, 16, true>(n, parts, y),
            (_, false) => expand::<E, P, S, 32, false>(n, parts, y),
            (_, true) => expand::<E, P, S, 32, true>(n, parts, y),
        }
    }
}

/// Decodes `blocks` blocks.
///
/// # Safety
/// `blocks` blocks at `w`, room for their elements at `y`, the instruction set.
#[inline(always)]
unsafe fn run<E, P: Widen, S: Put<E, P>>(format: Unpacker, blocks: usize, w: *const u8, y: *mut E) {
    let step = format.chunk();
    let mut done = 0;
    while done < blocks {
        let n = (blocks - done).min(step);
        // SAFETY: done + n <= blocks.
        unsafe { some::<E, P, S>(format, n, w.add(done * format.bytes), y.add(done * format.len)) };
        done += n;
    }
}

/// Streams to an output that no vector boundary coincides with: blocks are decoded behind what was
/// left over from the last ones, and whole vectors leave.
///
/// # Safety
/// The contract of [`decode`].
#[inline(always)]
unsafe fn realign<E: Element, P: Prim<E> + Prim<f32> + Widen>(d: &DecodeArgs<E>) {
    let mut buffer = [0f32; CHUNK + MIN_GROUP];
    let buffer = buffer.as_mut_ptr();
    let format = d.format;
    let chunk = format.chunk();
    // SAFETY: fewer than LANES <= MIN_GROUP elements are left over when others join them, and what is
    // written is what was decoded: y never moves past the end.
    unsafe {
        let (mut y, mut left, mut done) = (d.y, 0, 0);
        // The first vector stops at the boundary.
        let step = P::LANES * size_of::<E>();
        let mut head = (y as usize).wrapping_neg() % step / size_of::<E>();
        while done < d.blocks {
            let n = (d.blocks - done).min(chunk);
            some::<f32, P, Through>(format, n, d.w.add(done * format.bytes), buffer.add(left));
            done += n;
            let end = left + n * format.len;
            P::store_n(y, <P as Prim<f32>>::load(buffer), head);
            let mut i = head;
            while i + P::LANES <= end {
                <P as Prim<E>>::stream(y.add(i), <P as Prim<f32>>::load(buffer.add(i)));
                i += P::LANES;
            }
            y = y.add(i);
            left = end - i;
            <P as Prim<f32>>::store(buffer, <P as Prim<f32>>::load(buffer.add(i)));
            head = 0;
        }
        <P as Prim<E>>::store_n(y, <P as Prim<f32>>::load(buffer), left);
    }
}

/// # Safety
/// `blocks` blocks at `w`, room for their elements at `y`, which does not overlap them; the
/// instruction set is present.
#[inline(always)]
pub(crate) unsafe fn decode<E: Element, P: Prim<E> + Prim<f32> + Widen>(d: &DecodeArgs<E>) {
    let DecodeArgs { format, blocks, w, y, access } = *d;
    // SAFETY: the loops stay within the blocks.
    unsafe {
        if !P::STREAMS || !access.streamed {
            return run::<E, P, Through>(format, blocks, w, y);
        }
        if (y as usize).is_multiple_of(P::LANES * size_of::<E>()) {
            let chunk = format.chunk();
            let parts = if access.side_by_side { PARTS_SIDE_BY_SIDE } else { 1 };
            let chunks = blocks / chunk / parts;
            for t in 0..chunks {
                for part in 0..parts {
                    let b = (part * chunks + t) * chunk;
                    some::<E, P, Past>(format, chunk, w.add(b * format.bytes), y.add(b * format.len));
                }
            }
            let done = parts * chunks * chunk;
            run::<E, P, Past>(format, blocks - done, w.add(done * format.bytes), y.add(done * format.len));
        } else {
            realign::<E, P>(d);
        }
        fence();
    }
}
