//! Quantised matrix times vector, with exact activations: the baseline of every format.

use crate::dispatch::Kernels;
use crate::element::Element;
use crate::error::KernelError;
use crate::isa::Prim;
use crate::ops::check;
use crate::quant::{Format, QuantRef, Scales, Unpack, MIN_GROUP, TILE};

/// Rows at a time: each load of activations serves all, and each row is a memory stream of its own.
const ROWS: usize = 4;

/// Adds the products of `n` blocks, at most a tile, of `R` rows to the rows' accumulators. A group is
/// summed before it is scaled, which costs one multiplication a group instead of one a vector.
///
/// # Safety
/// `n` blocks at each of `w`, their number of elements at `x`, the instruction set.
#[inline(always)]
unsafe fn tile<E: Element, F: Format, P: Prim<E> + Unpack<F>, const R: usize>(
    n: usize,
    w: [*const F::Block; R],
    x: *const E,
    acc: &mut [P::V; R],
) {
    let mut scales: [Scales; R] = [[0.0; TILE / MIN_GROUP]; R];
    let groups = F::LEN / F::GROUP;
    // SAFETY: the loops stay within n blocks, their scales and their elements.
    unsafe {
        for (w, scales) in w.iter().zip(&mut scales) {
            P::scales(*w, n, scales.as_mut_ptr());
        }
        // Kept in memory, where an FMA takes its broadcast operand from at no cost: as registers,
        // picking them apart takes two shuffles a group.
        let scales = &*core::hint::black_box(&raw const scales);
        for b in 0..n {
            for g in 0..groups {
                let first = g * F::GROUP;
                let v = P::load(x.add(b * F::LEN + first));
                let mut sum = [v; R];
                for (sum, w) in sum.iter_mut().zip(w) {
                    *sum = P::mul(P::unpack(w.add(b), first), v);
                }
                let mut i = first + P::LANES;
                while i < first + F::GROUP {
                    let v = P::load(x.add(b * F::LEN + i));
                    for (sum, w) in sum.iter_mut().zip(w) {
                        *sum = P::fma(P::unpack(w.add(b), i), v, *sum);
                    }
                    i += P::LANES;
                }
                for ((acc, sum), scales) in acc.iter_mut().zip(sum).zip(scales) {
                    *acc = P::fma(sum, P::splat(*scales.as_ptr().add(b * groups + g)), *acc);
                }
            }
        }
    }
}

/// The products of `R` rows with `x`. A row's result does not depend on its company.
///
/// # Safety
/// `blocks` blocks at each of `w`, their number of elements at `x`, the instruction set.
#[inline(always)]
unsafe fn dots<E: Element, F: Format, P: Prim<E> + Unpack<F>, const R: usize>(
    blocks: usize,
    w: [*const F::Block; R],
    x: *const E,
) -> [f32; R] {
    let per_tile = TILE / F::LEN;
    let mut done = 0;
    // SAFETY: the loops stay within the blocks.
    unsafe {
        let mut acc = [P::splat(0.0); R];
        while blocks - done >= per_tile {
            tile::<E, F, P, R>(per_tile, w.map(|w| w.add(done)), x.add(done * F::LEN), &mut acc);
            done += per_tile;
        }
        while done < blocks {
            tile::<E, F, P, R>(1, w.map(|w| w.add(done)), x.add(done * F::LEN), &mut acc);
            done += 1;
        }
        acc.map(|acc| P::reduce_sum(acc))
    }
}

/// # Safety
/// `rows * blocks` blocks at `w`, their elements per row at `x`, `rows` elements at `y`, which
/// overlaps neither; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn qgemv<E: Element, F: Format, P: Prim<E> + Unpack<F>>(
    rows: usize,
    blocks: usize,
    w: *const u8,
    x: *const E,
    y: *mut f32,
) {
    let w = w.cast::<F::Block>();
    // Rows that are worked on together lie far apart: each stream runs on from row to row.
    let part = rows / ROWS;
    // SAFETY: every row is below `rows`.
    unsafe {
        for r in 0..part {
            let w = [0, 1, 2, 3].map(|k| w.add((r + k * part) * blocks));
            let sums: [f32; ROWS] = dots::<E, F, P, ROWS>(blocks, w, x);
            for (k, sum) in sums.into_iter().enumerate() {
                *y.add(r + k * part) = sum;
            }
        }
        for r in ROWS * part..rows {
            let [sum] = dots::<E, F, P, 1>(blocks, [w.add(r * blocks)], x);
            *y.add(r) = sum;
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
    /// `(cols / 16 + 16) * u * sum_c |w[r, c] * x_c|` with SIMD, `(cols + 16) * u * ..` with scalar code.
    ///
    /// # Errors
    /// `ShortSlice` unless `x` has `cols` and `y` has `rows` elements.
    pub fn qgemv(&self, w: QuantRef<'_>, x: &[E], y: &mut [f32]) -> Result<(), KernelError> {
        check::len("x", x.len(), w.cols())?;
        check::len("y", y.len(), w.rows())?;
        let kernel = self.table.formats.of(w.format()).qgemv;
        let blocks = w.cols() / w.format().block_len();
        // SAFETY: a QuantRef has all its blocks; `x` and `y` were measured, and `y` is exclusive; the
        // table's instruction set is present.
        unsafe { kernel(w.rows(), blocks, w.as_bytes().as_ptr(), x.as_ptr(), y.as_mut_ptr()) };
        Ok(())
    }
}
