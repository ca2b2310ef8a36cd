//! The GEMM microkernel: one tile of `C`, held in registers, from one panel of `A` and one of `B`.

use crate::element::Element;
use crate::isa::Prim;
use crate::ops::engine::prefetch;

/// Size of the tile of `C` that a microkernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    /// Rows: the width of a packed panel of `A`.
    pub(crate) rows: usize,
    /// Columns: the width of a packed panel of `B`.
    pub(crate) cols: usize,
}

impl Tile {
    /// The generic microkernel's, for registers of `lanes` f32. Accumulators plus one row of `B` and an
    /// element of `A` fill the register file as far as whole rows allow; loads stay well below one a
    /// multiply-add.
    pub(crate) const fn of(lanes: usize) -> Self {
        match lanes {
            16 => Self { rows: 8, cols: 32 },
            8 => Self { rows: 6, cols: 16 },
            4 => Self { rows: 8, cols: 8 },
            _ => Self { rows: 4, cols: 4 },
        }
    }

    /// Whether `text` is this tile in the form `<rows>x<cols>` that kernel names have.
    pub(crate) const fn is_named(self, text: &str) -> bool {
        let text = text.as_bytes();
        let (mut numbers, mut which, mut i) = ([0, 0], 0, 0);
        while i < text.len() {
            if text[i] == b'x' {
                which += 1;
            } else {
                numbers[which] = numbers[which] * 10 + (text[i] - b'0') as usize;
            }
            i += 1;
        }
        numbers[0] == self.rows && numbers[1] == self.cols
    }
}

/// `C = alpha * A B + beta * C + bias` for one tile.
#[repr(C)]
pub(crate) struct TileArgs {
    /// Length of the panels.
    pub(crate) k: usize,
    /// `k` columns of `A`, [`Tile::rows`] elements each.
    pub(crate) a: *const f32,
    /// `k` rows of `B`, [`Tile::cols`] elements each.
    pub(crate) b: *const f32,
    /// The corner of the tile.
    pub(crate) c: *mut f32,
    pub(crate) row_stride: usize,
    pub(crate) col_stride: usize,
    /// Rows and columns of `C` that exist, at least 1 each.
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) alpha: f32,
    /// 0: `C` is not read.
    pub(crate) beta: f32,
    /// One element a column, or null.
    pub(crate) bias: *const f32,
}

/// # Safety
/// The panels are whole, `C` has `rows x cols` elements at its strides and `bias` `cols`; the instruction
/// set is present.
#[inline(always)]
pub(crate) unsafe fn tile<E: Element, P: Prim<E> + Prim<f32>>(t: &TileArgs) {
    let form = const {
        let tile = Tile::of(P::LANES);
        let form = (tile.rows, tile.cols / P::LANES);
        assert!(matches!(form, (8, 2) | (6, 2) | (4, 4)));
        form
    };
    // SAFETY: the caller's contract; these are the only tiles.
    unsafe {
        match form {
            (8, 2) => product::<P, 8, 2>(t),
            (6, 2) => product::<P, 6, 2>(t),
            _ => product::<P, 4, 4>(t),
        }
    }
}

#[inline(always)]
unsafe fn product<P: Prim<f32>, const ROWS: usize, const VECTORS: usize>(t: &TileArgs) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut acc = [[P::splat(0.0); VECTORS]; ROWS];
        let (mut a, mut b) = (t.a, t.b);
        // By the time the product is there, so is C.
        for r in 0..ROWS {
            let row = t.c.wrapping_add(t.row_stride.wrapping_mul(r));
            for v in 0..VECTORS {
                prefetch(row.wrapping_add(v * P::LANES));
            }
        }
        for _ in 0..t.k {
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
        if t.rows == ROWS && t.cols == VECTORS * P::LANES && t.col_stride == 1 {
            for (r, acc) in acc.iter().enumerate() {
                for (v, &acc) in acc.iter().enumerate() {
                    let j = v * P::LANES;
                    let p = t.c.add(r * t.row_stride + j);
                    let mut sum = P::mul(P::splat(t.alpha), acc);
                    if t.beta != 0.0 {
                        sum = P::fma(P::splat(t.beta), P::load(p), sum);
                    }
                    if !t.bias.is_null() {
                        sum = P::add(sum, P::load(t.bias.add(j)));
                    }
                    P::store(p, sum);
                }
            }
        } else {
            // A copy: `acc` itself is never indexed at run time and stays in registers.
            let tile = acc;
            edge::<P>(t, tile.as_ptr().cast(), VECTORS * P::LANES);
        }
    }
}

/// Brings the part of a tile that exists, or one whose columns are apart, from `tile` to `C`.
#[inline(always)]
unsafe fn edge<P: Prim<f32>>(t: &TileArgs, tile: *const f32, width: usize) {
    let at_once = if t.col_stride == 1 { P::LANES } else { 1 };
    for r in 0..t.rows {
        let mut j = 0;
        while j < t.cols {
            let len = at_once.min(t.cols - j);
            // SAFETY: the caller vouches for rows x cols elements; the tile has at least as many.
            unsafe {
                let p = t.c.add(r * t.row_stride + j * t.col_stride);
                let mut sum = P::mul(P::splat(t.alpha), P::load_n(tile.add(r * width + j), len));
                if t.beta != 0.0 {
                    sum = P::fma(P::splat(t.beta), P::load_n(p, len), sum);
                }
                if !t.bias.is_null() {
                    sum = P::add(sum, P::load_n(t.bias.add(j), len));
                }
                P::store_n(p, sum, len);
            }
            j += len;
        }
    }
}
