//! Quantised matrix times vector, with exact activations: the baseline of every format.

use core::mem::MaybeUninit;

use crate::arrays::Each;
use crate::dispatch::Kernels;
use crate::element::Element;
use crate::error::KernelError;
use crate::isa::Prim;
use crate::ops::check;
use crate::ops::dequant::Chunk;
use crate::quant::bytes::Widen;
use crate::quant::dispatch::Unpacker;
use crate::quant::{QuantRef, Unpacked};

/// Rows at a time: each load of activations serves all, and each row is a memory stream of its own.
const ROWS: usize = 4;

/// What [`qgemv`] works on.
pub struct QgemvArgs<E> {
    pub(crate) format: Unpacker,
    pub(crate) rows: usize,
    /// Blocks of a row.
    pub(crate) blocks: usize,
    pub(crate) w: *const u8,
    pub(crate) x: *const E,
    pub(crate) y: *mut f32,
}

/// Adds the products of `n` elements of `R` rows to the rows' accumulators. A group is summed before it is
/// scaled, which costs one multiplication a group instead of one a vector.
///
/// # Safety
/// `n` codes and their scales and offsets at each of `w`, `n` elements at `x`, the instruction set.
#[inline(always)]
unsafe fn groups<E: Element, P: Prim<E> + Widen, const R: usize, const GROUP: usize, const OFFSETS: bool>(
    n: usize,
    w: &[Unpacked; R],
    x: *const E,
    acc: &mut [P::V; R],
) {
    // SAFETY: every group is below n / GROUP.
    unsafe {
        for g in 0..n / GROUP {
            let mut sums = [P::splat(0.0); R];
            let mut all = P::splat(0.0);
            for i in (g * GROUP..(g + 1) * GROUP).step_by(P::LANES) {
                let v = P::load(x.add(i));
                if OFFSETS {
                    all = P::add(all, v);
                }
                for (sum, w) in sums.iter_mut().zip(w) {
                    *sum = P::fma(P::widen(w.codes.add(i)), v, *sum);
                }
            }
            for ((acc, sum), w) in acc.iter_mut().zip(sums).zip(w) {
                *acc = P::fma(sum, P::splat(*w.scales.add(g)), *acc);
                if OFFSETS {
                    *acc = P::fma(all, P::splat(*w.offsets.add(g)), *acc);
                }
            }
        }
    }
}

/// The products of `R` rows with `x`. A row's result does not depend on its company.
///
/// # Safety
/// `g.blocks` blocks at each of `w`, their number of elements at `g.x`, the instruction set.
#[inline(always)]
unsafe fn dots<E: Element, P: Prim<E> + Widen, const R: usize>(
    g: &QgemvArgs<E>,
    w: [*const u8; R],
) -> [f32; R] {
    let format = g.format;
    let chunk = format.chunk();
    let mut chunks = [const { MaybeUninit::<Chunk>::uninit() }; R];
    let parts = chunks.each_mut().map(Chunk::parts);
    let mut done = 0;
    // SAFETY: the loop stays within the blocks; a chunk has room for what it is given, and what is read
    // of it was written.
    unsafe {
        let mut acc = [P::splat(0.0); R];
        while done < g.blocks {
            let blocks = (g.blocks - done).min(chunk);
            for (w, parts) in w.iter().zip(&parts) {
                (format.unpack)(blocks, w.add(done * format.bytes), parts);
            }
            let (n, x) = (blocks * format.len, g.x.add(done * format.len));
            match (format.group, format.offsets) {
                (16, false) => groups::<E, P, R, 16, false>(n, &parts, x, &mut acc),
                (16, true) => groups::<E, P, R, 16, true>(n, &parts, x, &mut acc),
                (_, false) => groups::<E, P, R, 32, false>(n, &parts, x, &mut acc),
                (_, true) => groups::<E, P, R, 32, true>(n, &parts, x, &mut acc),
            }
            done += blocks;
        }
        acc.each(|acc| P::reduce_sum(acc))
    }
}

/// # Safety
/// `rows * blocks` blocks at `w`, their elements per row at `x`, `rows` elements at `y`, which
/// overlaps neither; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn qgemv<E: Element, P: Prim<E> + Widen>(g: &QgemvArgs<E>) {
    let row_bytes = g.blocks * g.format.bytes;
    // Rows that are worked on together lie far apart: each stream runs on from row to row.
    let part = g.rows / ROWS;
    // SAFETY: every row is below `rows`.
    unsafe {
        for r in 0..part {
            let w = [0, 1, 2, 3].each(|k| g.w.add((r + k * part) * row_bytes));
            let sums: [f32; ROWS] = dots::<E, P, ROWS>(g, w);
            for (k, sum) in sums.into_iter().enumerate() {
                *g.y.add(r + k * part) = sum;
            }
        }
        for r in ROWS * part..g.rows {
            let [sum] = dots::<E, P, 1>(g, [g.w.add(r * row_bytes)]);
            *g.y.add(r) = sum;
        }
    }
}

impl<E: Element> Kernels<E> {
    /// Quantised matrix times vector: `y_r = sum_c w[r, c] * x_c`, with the weights decoded exactly,
    /// the activations taken as they are, and products and sums in f32.
    ///
    /// The weights are used as they lie in memory, at any alignment. Each row's sum is formed in an
    /// order that depends on `cols` only, so splitting the rows (by [`QuantRef::row_range`], over
    /// threads say) changes no bit. With `u = 2^-24`, the error of `y_r` is at most
    /// `(cols / 16 + 16) * u * sum_c |w[r, c] * x_c|` with SIMD, `(cols + 16) * u * ..` with scalar code;
    /// for formats with offsets `|w|` is `|code * scale| + |offset|`.
    ///
    /// # Errors
    /// `ShortSlice` unless `x` has `cols` and `y` has `rows` elements.
    pub fn qgemv(&self, w: QuantRef<'_>, x: &[E], y: &mut [f32]) -> Result<(), KernelError> {
        check::len("x", x.len(), w.cols())?;
        check::len("y", y.len(), w.rows())?;
        let args = QgemvArgs {
            format: *self.table.formats.of(w.format()),
            rows: w.rows(),
            blocks: w.cols() / w.format().block_len(),
            w: w.as_bytes().as_ptr(),
            x: x.as_ptr(),
            y: y.as_mut_ptr(),
        };
        // SAFETY: a QuantRef has all its blocks; `x` and `y` were measured, and `y` is exclusive; the
        // table's instruction set is present.
        unsafe { (self.table.qgemv)(&args) };
        Ok(())
    }
}
