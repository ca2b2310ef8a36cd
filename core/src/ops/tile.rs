//! The generic microkernel of matrix products, and the two things that are done to its results: merging a tile from a buffer
//! into `C`, and adding the bias.

use crate::args::micro::MicroArgs;
use crate::isa::machine::prefetch;
use crate::isa::InstructionSet;
use crate::vector::Prim;

/// The baseline: panels of f32, whole tiles.
///
/// # Safety
/// The contract of [`Micro::call`](crate::args::micro::Micro::call).
#[inline(always)]
pub(crate) unsafe fn tile<P: InstructionSet>(t: &MicroArgs) {
    let form = const {
        let tile = P::TILE;
        let form = (tile.rows, tile.cols / P::LANES);
        assert!(matches!(form, (8, 2) | (4, 3) | (4, 4)));
        form
    };
    // SAFETY: the caller's contract; these are the only tiles.
    unsafe {
        match form {
            (8, 2) => product::<P, 8, 2>(t),
            (4, 3) => product::<P, 4, 3>(t),
            _ => product::<P, 4, 4>(t),
        }
    }
}

#[inline(always)]
unsafe fn product<P: Prim<f32>, const ROWS: usize, const VECTORS: usize>(t: &MicroArgs) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut acc = [[P::splat(0.0); VECTORS]; ROWS];
        let (mut a, mut b): (*const f32, *const f32) = (t.a.cast(), t.b.cast());
        // By the time the product is there, so is C.
        for r in 0..ROWS {
            let row: *const f32 = t.c.wrapping_add(t.ldc.wrapping_mul(r)).cast();
            for v in 0..VECTORS {
                prefetch(row.wrapping_add(v * P::LANES));
            }
        }
        for _ in 0..t.steps {
            let mut row = [P::splat(0.0); VECTORS];
            for (v, row) in row.iter_mut().enumerate() {
                *row = P::load(b.add(v * P::LANES));
            }
            for (r, acc) in acc.iter_mut().enumerate() {
                let x = P::splat(*a.add(r));
                for (acc, &row) in acc.iter_mut().zip(&row) {
                    *acc = P::fma(x, row, *acc);
                }
            }
            a = a.add(ROWS);
            b = b.add(VECTORS * P::LANES);
        }
        for (r, acc) in acc.iter().enumerate() {
            for (v, &acc) in acc.iter().enumerate() {
                let p: *mut f32 = t.c.add(r * t.ldc).cast::<f32>().add(v * P::LANES);
                let mut sum = P::mul(P::splat(t.alpha), acc);
                if t.beta != 0.0 {
                    sum = P::fma(P::splat(t.beta), P::load(p), sum);
                }
                P::store(p, sum);
            }
        }
    }
}

/// `C = tile + beta * C`: brings a tile from a buffer to where the microkernel could not write it.
pub(crate) struct MergeArgs {
    /// Its columns are contiguous.
    pub(crate) tile: *const f32,
    /// From one row of the tile to the next.
    pub(crate) width: usize,
    /// The corner of the tile in `C`.
    pub(crate) c: *mut f32,
    pub(crate) row_stride: usize,
    pub(crate) col_stride: usize,
    /// Rows and columns of `C` that exist.
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// 0: `C` is not read.
    pub(crate) beta: f32,
}

/// # Safety
/// `rows x cols` elements at both strides; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn merge<P: Prim<f32>>(m: &MergeArgs) {
    let at_once = if m.col_stride == 1 { P::LANES } else { 1 };
    for r in 0..m.rows {
        let mut j = 0;
        while j < m.cols {
            let len = at_once.min(m.cols - j);
            // SAFETY: the caller's contract.
            unsafe {
                let p = m.c.add(r * m.row_stride + j * m.col_stride);
                let mut sum = P::load_n(m.tile.add(r * m.width + j), len);
                if m.beta != 0.0 {
                    sum = P::fma(P::splat(m.beta), P::load_n(p, len), sum);
                }
                P::store_n(p, sum, len);
            }
            j += len;
        }
    }
}

/// `C = C + bias` in a block of finished sums.
pub(crate) struct FinishArgs {
    pub(crate) c: *mut f32,
    pub(crate) row_stride: usize,
    pub(crate) col_stride: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// One element a row or column.
    pub(crate) bias: *const f32,
    /// From the bias of one row to that of the next, 0 or 1.
    pub(crate) bias_row: usize,
    /// From the bias of one column to that of the next, 1 or 0.
    pub(crate) bias_col: usize,
}

/// # Safety
/// `rows x cols` elements at the strides, as many of the bias as there are rows or columns; the instruction
/// set is present.
#[inline(always)]
pub(crate) unsafe fn finish<P: Prim<f32>>(f: &FinishArgs) {
    let at_once = if f.col_stride == 1 { P::LANES } else { 1 };
    for r in 0..f.rows {
        let mut j = 0;
        while j < f.cols {
            let len = at_once.min(f.cols - j);
            // SAFETY: the caller's contract.
            unsafe {
                let p = f.c.add(r * f.row_stride + j * f.col_stride);
                let bias = f.bias.add(r * f.bias_row + j * f.bias_col);
                let bias = if f.bias_col == 0 { P::splat(*bias) } else { P::load_n(bias, len) };
                let sum = P::add(P::load_n(p, len), bias);
                P::store_n(p, sum, len);
            }
            j += len;
        }
    }
}
