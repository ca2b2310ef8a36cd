//! Dequantisation: blocks to f32, f16 or bf16.

use crate::dispatch::Kernels;
use crate::element::Element;
use crate::error::KernelError;
use crate::isa::{Prim, Vector};
use crate::ops::check;
use crate::ops::engine::{fence, Access};
use crate::quant::{Format, QuantRef, Scales, Unpack, MIN_GROUP, TILE};

/// Parts of the blocks that are decoded side by side, so that neither the blocks nor the outputs of two of
/// them share a page.
const PARTS: usize = 2;

/// Elements that are decoded into a buffer before they are streamed to an unaligned output.
const REALIGNED: usize = 4 * TILE;

/// How the elements of an output are stored.
trait Put<E, P: Vector> {
    /// Stores `LANES` elements.
    ///
    /// # Safety
    /// As for [`Prim::store`].
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

/// Decodes `n` blocks, at most a tile.
///
/// # Safety
/// `n` blocks at `w`, room for their elements at `y`, the instruction set.
#[inline(always)]
unsafe fn tile<E, F: Format, P: Unpack<F>, S: Put<E, P>>(n: usize, w: *const F::Block, y: *mut E) {
    let mut scales: Scales = [0.0; TILE / MIN_GROUP];
    let groups = F::LEN / F::GROUP;
    // SAFETY: the loops stay within n blocks, their scales and their elements.
    unsafe {
        P::scales(w, n, scales.as_mut_ptr());
        for b in 0..n {
            for g in 0..groups {
                let scale = P::splat(*scales.as_ptr().add(b * groups + g));
                let mut i = g * F::GROUP;
                while i < (g + 1) * F::GROUP {
                    S::put(y.add(b * F::LEN + i), P::mul(P::unpack(w.add(b), i), scale));
                    i += P::LANES;
                }
            }
        }
    }
}

/// Decodes `blocks` blocks.
///
/// # Safety
/// That of [`tile`].
#[inline(always)]
unsafe fn run<E, F: Format, P: Unpack<F>, S: Put<E, P>>(blocks: usize, w: *const F::Block, y: *mut E) {
    let per_tile = TILE / F::LEN;
    let mut done = 0;
    // SAFETY: the loops stay within the blocks.
    unsafe {
        while blocks - done >= per_tile {
            tile::<E, F, P, S>(per_tile, w.add(done), y.add(done * F::LEN));
            done += per_tile;
        }
        while done < blocks {
            tile::<E, F, P, S>(1, w.add(done), y.add(done * F::LEN));
            done += 1;
        }
    }
}

/// Streams to an output that no vector boundary coincides with: blocks are decoded behind what was
/// left over from the last ones, and whole vectors leave. Several tiles at a time: by the time a
/// vector is read back its elements, stored by two instructions, have arrived in the cache.
///
/// # Safety
/// That of [`dequant`].
#[inline(always)]
unsafe fn realign<E: Element, F: Format, P: Prim<E> + Prim<f32> + Unpack<F>>(
    blocks: usize,
    w: *const F::Block,
    y: *mut E,
) {
    let mut buffer = [0f32; REALIGNED + MIN_GROUP];
    let buffer = buffer.as_mut_ptr();
    // SAFETY: fewer than LANES <= MIN_GROUP elements are left over when others join them, and what is
    // written is what was decoded: y never moves past the end.
    unsafe {
        let (mut y, mut left, mut done) = (y, 0, 0);
        // The first vector stops at the boundary.
        let step = P::LANES * size_of::<E>();
        let mut head = (y as usize).wrapping_neg() % step / size_of::<E>();
        while done < blocks {
            let n = (blocks - done).min(REALIGNED / F::LEN);
            run::<f32, F, P, Through>(n, w.add(done), buffer.add(left));
            done += n;
            let end = left + n * F::LEN;
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
pub(crate) unsafe fn dequant<E: Element, F: Format, P: Prim<E> + Prim<f32> + Unpack<F>>(
    blocks: usize,
    w: *const u8,
    y: *mut E,
    access: Access,
) {
    let w = w.cast::<F::Block>();
    // SAFETY: the loops stay within the blocks.
    unsafe {
        if !P::STREAMS || !access.streamed {
            return run::<E, F, P, Through>(blocks, w, y);
        }
        if (y as usize).is_multiple_of(P::LANES * size_of::<E>()) {
            let per_tile = TILE / F::LEN;
            let parts = if access.side_by_side { PARTS } else { 1 };
            let tiles = blocks / per_tile / parts;
            for t in 0..tiles {
                for part in 0..parts {
                    let b = (part * tiles + t) * per_tile;
                    tile::<E, F, P, Past>(per_tile, w.add(b), y.add(b * F::LEN));
                }
            }
            let done = parts * tiles * per_tile;
            run::<E, F, P, Past>(blocks - done, w.add(done), y.add(done * F::LEN));
        } else {
            realign::<E, F, P>(blocks, w, y);
        }
        fence();
    }
}

/// # Quantised weights
///
/// Formats and their decode are those of GGUF (`ggml`).
impl<E: Element> Kernels<E> {
    /// Decodes a quantised matrix: `y[r * cols + c] = w[r, c]`, computed in f32 (bit for bit what the
    /// format defines) and narrowed once. For some of the rows use [`QuantRef::row_range`].
    ///
    /// # Errors
    /// `ShortSlice` unless `y` has `rows * cols` elements.
    pub fn dequant(&self, w: QuantRef<'_>, y: &mut [E]) -> Result<(), KernelError> {
        let n = w.elements();
        check::len("y", y.len(), n)?;
        let kernel = self.table.formats.of(w.format()).dequant;
        // SAFETY: a QuantRef has all its blocks; `y` is exclusive and has room for their elements;
        // the table's instruction set is present.
        unsafe { kernel(w.blocks(), w.as_bytes().as_ptr(), y.as_mut_ptr(), self.access(n)) };
        Ok(())
    }
}
