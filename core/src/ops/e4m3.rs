//! The format E4M3: decode and products. Numbers of 8 bits are widened to f32 a pair of vectors at a time, and blocks have a factor,
//! which is applied to their sums.

use crate::arrays::from_fn;
use crate::element::Element;
use crate::isa::machine::fence;
use crate::ops::ahead::{Ahead, ROWS_SIDE_BY_SIDE};
use crate::ops::qgemv::QgemvArgs;
use crate::quant::blocks::BlockE4m3;
use crate::quant::lanes::Lanes;
use crate::vector::Prim;

/// Vectors that are widened at a time, each of which has sums of its own.
const PAIR: usize = 2;

/// Bytes of a block.
const BYTES: usize = size_of::<BlockE4m3>();

/// # Safety
/// The contract of [`decode`]; with `PAST`, `y` is aligned to a vector.
#[inline(always)]
unsafe fn decode_to<E: Element, P: Prim<E> + Lanes, const PAST: bool>(n: usize, w: *const u8, y: *mut E) {
    for block in 0..n / const { BlockE4m3::LEN } {
        let (w, y) = (w.wrapping_add(block * BYTES), y.wrapping_add(block * BlockE4m3::LEN));
        // SAFETY: the caller vouches for the block, and for room for its weights.
        unsafe {
            let factor = P::splat(BlockE4m3::factor(w));
            for i in (0..BlockE4m3::LEN).step_by(const { PAIR * P::LANES }) {
                let numbers = P::e4m3(BlockE4m3::numbers(w).add(i));
                for (v, &number) in numbers.iter().enumerate() {
                    let (to, weights) = (y.add(i + v * P::LANES), P::mul(number, factor));
                    if PAST {
                        <P as Prim<E>>::stream(to, weights);
                    } else {
                        <P as Prim<E>>::store(to, weights);
                    }
                }
            }
        }
    }
}

/// Decodes `n` weights, whole blocks of them; past the cache, if `streamed`.
///
/// # Safety
/// They are at `w`, room for them at `y`, which does not overlap them; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn decode<E: Element, P: Prim<E> + Lanes>(
    n: usize,
    w: *const u8,
    y: *mut E,
    streamed: bool,
) {
    let aligned = (y as usize).is_multiple_of(const { P::LANES * size_of::<E>() });
    // SAFETY: the caller's contract. Blocks have whole vectors.
    unsafe {
        if P::STREAMS && streamed && aligned {
            decode_to::<E, P, true>(n, w, y);
            fence();
        } else {
            decode_to::<E, P, false>(n, w, y);
        }
    }
}

/// Writes the products of `R` rows of weights, from row `r`, with `M` rows of activations, from row `m`. The order of additions does
/// not depend on their number.
///
/// # Safety
/// They exist; the instruction set.
#[inline(always)]
unsafe fn rows<E: Element, W, P: Prim<E> + Lanes, const R: usize, const M: usize>(
    g: &QgemvArgs<E, W>,
    [r, m]: [usize; 2],
    ahead: &mut Ahead<u8>,
) {
    let blocks = g.cols / const { BlockE4m3::LEN };
    let mut w: [*const u8; R] = from_fn(|i| g.w.wrapping_add((r + i) * blocks * BYTES));
    let mut x: [*const E; M] = from_fn(|i| g.x.wrapping_add((m + i) * g.x_stride));
    // SAFETY: the caller vouches for the rows, which have so many blocks.
    unsafe {
        let mut totals = [[P::splat(0.0); M]; R];
        for _ in 0..blocks {
            ahead.prefetch();
            let mut sums = [[[P::splat(0.0); PAIR]; M]; R];
            for i in (0..BlockE4m3::LEN).step_by(const { PAIR * P::LANES }) {
                sums = step::<E, P, R, M>(&w, &x, i, sums);
            }
            for r in 0..R {
                let factor = P::splat(BlockE4m3::factor(w[r]));
                for m in 0..M {
                    let [even, odd] = sums[r][m];
                    totals[r][m] = P::fma(P::add(even, odd), factor, totals[r][m]);
                }
                w[r] = w[r].wrapping_add(BYTES);
            }
            for x in &mut x {
                *x = x.wrapping_add(BlockE4m3::LEN);
            }
        }
        let [next_m, next_r] = g.y_strides;
        for (i, totals) in totals.iter().enumerate() {
            for (k, &total) in totals.iter().enumerate() {
                *g.y.add((m + k) * next_m + (r + i) * next_r) = P::reduce_sum(total);
            }
        }
    }
}

/// Adds the products of a pair of vectors of each row, from column `i` of a block.
///
/// # Safety
/// The block of each row of weights and its columns of activations are there; the instruction set.
#[inline(always)]
unsafe fn step<E: Element, P: Prim<E> + Lanes, const R: usize, const M: usize>(
    w: &[*const u8; R],
    x: &[*const E; M],
    i: usize,
    mut sums: [[[P::V; PAIR]; M]; R],
) -> [[[P::V; PAIR]; M]; R] {
    // SAFETY: the caller's contract.
    unsafe {
        let x: [[P::V; PAIR]; M] = from_fn(|m| from_fn(|v| <P as Prim<E>>::load(x[m].add(i + v * P::LANES))));
        for r in 0..R {
            let numbers = P::e4m3(BlockE4m3::numbers(w[r]).add(i));
            for m in 0..M {
                for v in 0..PAIR {
                    sums[r][m][v] = P::fma(numbers[v], x[m][v], sums[r][m][v]);
                }
            }
        }
    }
    sums
}

/// The products of [`ROWS_SIDE_BY_SIDE`] rows of weights from row `r` with `M` rows of activations from row `m`, `R` rows of weights at
/// a time.
///
/// # Safety
/// The contract of [`products`], for these rows.
#[inline(always)]
unsafe fn eight<E: Element, W, P: Prim<E> + Lanes, const R: usize, const M: usize>(
    g: &QgemvArgs<E, W>,
    [r, m]: [usize; 2],
    ahead: &mut Ahead<u8>,
) {
    for i in (0..ROWS_SIDE_BY_SIDE).step_by(R) {
        // SAFETY: the caller's contract.
        unsafe { rows::<E, W, P, R, M>(g, [r + i, m], ahead) };
    }
}

/// The products of [`ROWS_SIDE_BY_SIDE`] rows of weights from row `r`: of `R1`, `R2` or `R4` rows at a time, with one, two or four rows
/// of activations.
///
/// # Safety
/// The contract of [`products`], for these rows.
#[inline(always)]
unsafe fn side<E: Element, W, P: Prim<E> + Lanes, const R1: usize, const R2: usize, const R4: usize>(
    g: &QgemvArgs<E, W>,
    r: usize,
    blocks: usize,
) {
    // How often the rows call for prefetches of the next eight: for each block of those that meet the first rows of activations
    // together.
    let passes = match g.batch {
        0 | 1 => ROWS_SIDE_BY_SIDE / R1,
        2 | 3 => ROWS_SIDE_BY_SIDE / R2,
        _ => ROWS_SIDE_BY_SIDE / R4,
    };
    let bytes = blocks * BYTES;
    let mut ahead =
        Ahead::behind(g.order, g.w, [r, ROWS_SIDE_BY_SIDE, g.rows], [bytes, bytes], passes * blocks);
    let mut m = 0;
    // SAFETY: the caller's contract.
    unsafe {
        while g.batch - m >= 4 {
            eight::<E, W, P, R4, 4>(g, [r, m], &mut ahead);
            m += 4;
        }
        if g.batch - m >= 2 {
            eight::<E, W, P, R2, 2>(g, [r, m], &mut ahead);
            m += 2;
        }
        if m < g.batch {
            eight::<E, W, P, R1, 1>(g, [r, m], &mut ahead);
        }
    }
}

/// Weights times activations, in f32.
///
/// # Safety
/// `rows` of `cols` weights at `w`, whole blocks of them, `batch` rows of `cols` elements at `x`, `batch * rows` elements at `y`, which
/// overlaps neither; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn products<E: Element, W, P: Prim<E> + Lanes>(g: &QgemvArgs<E, W>) {
    let blocks = g.cols / const { BlockE4m3::LEN };
    let whole = g.rows / ROWS_SIDE_BY_SIDE * ROWS_SIDE_BY_SIDE;
    // SAFETY: rows are below `rows` and `batch`.
    unsafe {
        for r in (0..whole).step_by(ROWS_SIDE_BY_SIDE) {
            // AVX2 has half as many registers as others.
            if const { P::LANES == 8 } {
                side::<E, W, P, 4, 2, 1>(g, r, blocks);
            } else {
                side::<E, W, P, 8, 4, 2>(g, r, blocks);
            }
        }
        let mut ahead = Ahead::OFF;
        for r in whole..g.rows {
            for m in 0..g.batch {
                rows::<E, W, P, 1, 1>(g, [r, m], &mut ahead);
            }
        }
    }
}
