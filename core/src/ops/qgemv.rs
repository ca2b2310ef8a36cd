//! Products of quantised weights in place with activations in floating point. Rows of weights are unpacked piece by piece into
//! the first-level cache, and multiplied from there with every row of activations.

use core::mem::MaybeUninit;

use crate::args::unpacker::Unpacked;
use crate::args::unpacker::Unpacker;
use crate::arrays::from_fn;
use crate::element::Element;
use crate::ops::ahead::{Ahead, Order};
use crate::ops::dequant::Chunk;
use crate::quant::bytes::Widen;
use crate::vector::Prim;

/// Rows of weights that are multiplied at a time: a vector of activations is loaded once for all of them.
const ROWS_AT_A_TIME: usize = 4;

/// Rows of activations that one pass over the weights serves.
pub(crate) const BATCH: usize = 8;

/// A product of weights in place, which are known as `W`: [`qgemv`] takes any format's [`Unpacker`].
pub struct QgemvArgs<E, W = Unpacker> {
    pub(crate) weights: W,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) w: *const u8,
    pub(crate) order: Order,
    /// Rows of activations: of [`qgemv`] at most [`BATCH`].
    pub(crate) batch: usize,
    pub(crate) x: *const E,
    pub(crate) x_stride: usize,
    pub(crate) y: *mut f32,
    /// To the next row of activations, and of weights.
    pub(crate) y_strides: [usize; 2],
}

/// Adds the products of `n` columns of `R` rows to their sums. A group is summed before it is scaled, which costs
/// one multiplication a group instead of one a vector.
///
/// # Safety
/// `n` codes and their scales and offsets at each of `w`, `n` elements at `x`, the instruction set.
#[inline(always)]
unsafe fn groups<E: Element, P: Prim<E> + Widen, const R: usize, const GROUP: usize, const OFFSETS: bool>(
    n: usize,
    w: &[Unpacked; R],
    x: *const E,
    mut sums: [P::V; R],
) -> [P::V; R] {
    // SAFETY: every group is below n / GROUP.
    unsafe {
        for g in 0..n / GROUP {
            let (mut of_group, mut all) = ([P::splat(0.0); R], P::splat(0.0));
            let mut i = g * GROUP;
            while i < (g + 1) * GROUP {
                let v = P::load(x.add(i));
                if OFFSETS {
                    all = P::add(all, v);
                }
                for r in 0..R {
                    of_group[r] = P::fma(P::widen(w[r].codes.add(i)), v, of_group[r]);
                }
                i += P::LANES;
            }
            for r in 0..R {
                sums[r] = P::fma(of_group[r], P::splat(*w[r].scales.add(g)), sums[r]);
                if OFFSETS {
                    sums[r] = P::fma(all, P::splat(*w[r].offsets.add(g)), sums[r]);
                }
            }
        }
    }
    sums
}

/// The products of `R` rows, from row `first`, with all rows of activations. A row's result does not depend on its
/// company.
///
/// # Safety
/// The contract of [`qgemv`], for these rows.
#[inline(always)]
pub(crate) unsafe fn rows<E: Element, P: Prim<E> + Widen, const R: usize>(g: &QgemvArgs<E>, first: usize) {
    let format = g.weights;
    // No block is empty, which the compiler does not know.
    let blocks = g.cols / format.len.max(1);
    let (chunk, row_bytes) = (format.chunk(), blocks * format.bytes);
    let mut chunks = [const { MaybeUninit::<Chunk>::uninit() }; R];
    let parts = from_fn(|r| Chunk::parts(&mut chunks[r]));
    // SAFETY: the loops stay within the blocks; a chunk has room for what it is given, and what is read
    // of it was written.
    unsafe {
        let w = g.w.add(first * row_bytes);
        let turns = R * blocks.div_ceil(chunk);
        let mut ahead = Ahead::behind(g.order, g.w, [first, R, g.rows], [row_bytes, row_bytes], turns);
        let mut sums = [[P::splat(0.0); R]; BATCH];
        let mut done = 0;
        while done < blocks {
            let blocks = (blocks - done).min(chunk);
            for (r, parts) in parts.iter().enumerate() {
                ahead.prefetch();
                (format.unpack)(blocks, w.add(r * row_bytes + done * format.bytes), parts);
            }
            let n = blocks * format.len;
            for (m, sums) in sums.iter_mut().enumerate().take(g.batch) {
                let x = g.x.add(m * g.x_stride + done * format.len);
                *sums = match (format.group, format.offsets) {
                    (16, false) => groups::<E, P, R, 16, false>(n, &parts, x, *sums),
                    (16, true) => groups::<E, P, R, 16, true>(n, &parts, x, *sums),
                    (_, false) => groups::<E, P, R, 32, false>(n, &parts, x, *sums),
                    (_, true) => groups::<E, P, R, 32, true>(n, &parts, x, *sums),
                };
            }
            done += blocks;
        }
        let [next_m, next_r] = g.y_strides;
        for (m, sums) in sums.iter().enumerate().take(g.batch) {
            for (r, &sums) in sums.iter().enumerate() {
                *g.y.add(m * next_m + (first + r) * next_r) = P::reduce_sum(sums);
            }
        }
    }
}

/// # Safety
/// `rows` rows of `cols` weights in blocks at `w`, `batch` rows of their elements at `x`, `batch * rows` elements at `y`, which
/// overlaps neither; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn qgemv<E: Element, P: Prim<E> + Widen>(g: &QgemvArgs<E>) {
    let fours = g.rows / ROWS_AT_A_TIME;
    // SAFETY: every row is below `rows`.
    unsafe {
        for r in 0..fours {
            rows::<E, P, ROWS_AT_A_TIME>(g, r * ROWS_AT_A_TIME);
        }
        for r in ROWS_AT_A_TIME * fours..g.rows {
            rows::<E, P, 1>(g, r);
        }
    }
}
