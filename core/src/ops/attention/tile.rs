//! Products of a few rows of f32 with a matrix of cached numbers, tile by tile.

use crate::arrays::{from_fn, Each};
use crate::isa::machine::{into_l2, LINE};
use crate::vector::{Prim, Vector};

/// Rows of the highest tile, whose numbers are converted when they are loaded or not ([`Product::CONVERTS`]).
const fn height<P: Vector>(converts: bool) -> usize {
    match P::LANES {
        16.. => 8,
        8 if converts => 5,
        _ => 6,
    }
}

/// Rows that are multiplied together, of `rows`: as many as the highest tile has, or fewer if that makes tiles of the same height.
#[inline(always)]
pub(super) fn together<P: Vector>(rows: usize, converts: bool) -> usize {
    let height = height::<P>(converts);
    // Other instruction sets have tiles for fewer heights.
    if P::LANES != 8 || rows <= height {
        return height;
    }
    // The compiler does not see that neither number is 0.
    rows.div_ceil(rows.div_ceil(height).max(1)).max(1)
}

/// Rows of the highest tile of any instruction set.
pub(crate) const HIGHEST: usize = 8;

/// The matrix that rows are multiplied with: how its depth is walked, and how its numbers are read.
///
/// # Safety
/// `run` yields places that exist, with as many steps behind them as it says.
pub(super) unsafe trait Product<P: Vector> {
    /// A number as it is cached.
    type Number;
    /// Vectors side by side in the widest tile: 2 or 4.
    const WIDEST: usize = 4;
    /// Whether numbers are converted by instructions that the compiler starts before the step that needs them. Then 15 of the 16 registers
    /// of AVX2 are too many for sums, rows and vectors: some sums would be in memory.
    const CONVERTS: bool = false;

    /// Runs of steps that follow each other in memory.
    fn runs(&self) -> usize;
    /// Numbers from one step to the next.
    fn step(&self) -> usize;
    /// Of run `i`: the first step's place in the rows, how many steps there are, and where the vectors of the first
    /// start whose columns are `col` and those behind it.
    fn run<const W: usize>(&self, i: usize, col: usize) -> (usize, usize, [*const Self::Number; W]);
    /// A vector of numbers.
    ///
    /// # Safety
    /// They exist; the instruction set.
    unsafe fn load(p: *const Self::Number) -> P::V;
    /// Factors for the sums of run `i`, column by column, with which they are multiplied before they are added to those of
    /// other runs. `None` stands for 1.
    ///
    /// # Safety
    /// The instruction set.
    unsafe fn factors<const W: usize>(&self, i: usize, col: usize) -> Option<[P::V; W]>;
    /// The addresses to prefetch from while run `i` is multiplied with the vectors from column `col` on: one for each vector,
    /// with as many bytes as the vector's steps read. They need not be valid.
    fn ahead<const W: usize>(&self, i: usize, col: usize) -> Option<[*const u8; W]>;
}

/// One step: `sums[r][v] += a[r] * b[v]`. If there are fewer rows than vectors, registers hold the rows, else the vectors. Adaptors such as `zip`
/// would become calls here, and the sums would leave their registers.
///
/// # Safety
/// A number of each row, the vectors; the instruction set.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn step<P: Prim<f32>, B: Product<P>, const R: usize, const W: usize>(
    sums: &mut [[P::V; W]; R],
    (a, a_stride): (*const f32, usize),
    vectors: [*const B::Number; W],
) {
    // SAFETY: the caller's contract.
    unsafe {
        if R < W {
            let x: [P::V; R] = from_fn(|r| P::splat(*a.add(r * a_stride)));
            for v in 0..W {
                let b = B::load(vectors[v]);
                for r in 0..R {
                    sums[r][v] = P::fma(x[r], b, sums[r][v]);
                }
            }
        } else {
            let b: [P::V; W] = from_fn(|v| B::load(vectors[v]));
            for r in 0..R {
                let x = P::splat(*a.add(r * a_stride));
                for v in 0..W {
                    sums[r][v] = P::fma(x, b[v], sums[r][v]);
                }
            }
        }
    }
}

/// `R` rows times `W` vectors from column `col` on: `c[r][v] = sum over runs of factors[v] * sum_s a[r][s] * b(s)[v]`.
///
/// # Safety
/// The rows have all steps, `b` has the columns; the instruction set.
#[inline(always)]
unsafe fn tile<P: Prim<f32>, B: Product<P>, const R: usize, const W: usize>(
    b: &B,
    (a, a_stride): (*const f32, usize),
    col: usize,
) -> [[P::V; W]; R] {
    let (b_step, step_bytes) = (b.step(), P::LANES * size_of::<B::Number>());
    let line = LINE / step_bytes;
    // SAFETY: the caller's contract.
    unsafe {
        let zeros = || -> [[P::V; W]; R] { from_fn(|_| from_fn(|_| P::splat(0.0))) };
        let mut c = zeros();
        for i in 0..b.runs() {
            let (from, steps, vectors) = b.run::<W>(i, col);
            let factors = b.factors::<W>(i, col);
            let ahead = b.ahead::<W>(i, col);
            let mut sums = if factors.is_some() { zeros() } else { c };
            let a = a.add(from);
            let mut done = 0;
            // Whole lines: one request for each vector, then the steps that read as many bytes. More requests at once than memory has
            // under way would be dropped.
            while steps - done >= line {
                if let Some(ahead) = ahead {
                    for place in ahead {
                        into_l2(place.wrapping_add(done * step_bytes));
                    }
                }
                for s in 0..line {
                    step::<P, B, R, W>(
                        &mut sums,
                        (a.add(done + s), a_stride),
                        vectors.each(|v| v.add((done + s) * b_step)),
                    );
                }
                done += line;
            }
            for s in done..steps {
                step::<P, B, R, W>(&mut sums, (a.add(s), a_stride), vectors.each(|v| v.add(s * b_step)));
            }
            c = match factors {
                None => sums,
                Some(factors) => from_fn(|r| from_fn(|v| P::fma(sums[r][v], factors[v], c[r][v]))),
            };
        }
        c
    }
}

/// Where results go: element `[0][0]`, elements from row to row.
#[derive(Clone, Copy)]
pub(super) struct Out {
    pub(super) to: *mut f32,
    pub(super) stride: usize,
}

/// Columns from the first of `cols` to before the second, multiples of the lanes, of `rows` rows of `a`, `a_stride` elements apart.
///
/// # Safety
/// The operands, room for the results, the instruction set.
#[inline(always)]
pub(super) unsafe fn product<P: Prim<f32>, B: Product<P>>(
    b: &B,
    (a, a_stride): (*const f32, usize),
    rows: usize,
    cols: [usize; 2],
    out: Out,
) {
    let mut row = 0;
    while row < rows {
        let left = rows - row;
        // SAFETY: the caller's contract: rows from `row` on.
        unsafe {
            let a = (a.add(row * a_stride), a_stride);
            let out = Out { to: out.to.add(row * out.stride), ..out };
            row += if left >= height::<P>(B::CONVERTS) {
                match height::<P>(B::CONVERTS) {
                    8 => strip::<P, B, 8, 2>(b, a, cols, out),
                    5 => strip::<P, B, 5, 2>(b, a, cols, out),
                    _ => strip::<P, B, 6, 2>(b, a, cols, out),
                }
            } else {
                match left {
                    1 => strip::<P, B, 1, 4>(b, a, cols, out),
                    2 => strip::<P, B, 2, 4>(b, a, cols, out),
                    3 if P::LANES == 8 && B::CONVERTS => strip::<P, B, 3, 2>(b, a, cols, out),
                    3 => strip::<P, B, 3, 4>(b, a, cols, out),
                    5 if P::LANES == 8 => strip::<P, B, 5, 2>(b, a, cols, out),
                    _ if P::LANES >= 16 => strip::<P, B, 4, 4>(b, a, cols, out),
                    _ => strip::<P, B, 4, 2>(b, a, cols, out),
                }
            };
        }
    }
}

/// `R` rows of a product, `W` vectors at a time (2 or 4) as far as there are as many. That makes enough sums to hide the latency of the
/// operations that form them, and stay in registers. Yields `R`.
///
/// # Safety
/// The contract of [`product`].
#[inline(always)]
unsafe fn strip<P: Prim<f32>, B: Product<P>, const R: usize, const W: usize>(
    b: &B,
    a: (*const f32, usize),
    [col, end]: [usize; 2],
    out: Out,
) -> usize {
    // SAFETY: the caller's contract.
    unsafe {
        let col = if W.min(B::WIDEST) == 4 {
            tiles::<P, B, R, 4>(b, a, [col, end], out)
        } else {
            tiles::<P, B, R, 2>(b, a, [col, end], out)
        };
        tiles::<P, B, R, 1>(b, a, [col, end], out);
    }
    R
}

/// As many tiles as there are whole ones in these columns; yields the first column behind them.
///
/// # Safety
/// The contract of [`product`].
#[inline(always)]
unsafe fn tiles<P: Prim<f32>, B: Product<P>, const R: usize, const W: usize>(
    b: &B,
    a: (*const f32, usize),
    [mut col, end]: [usize; 2],
    out: Out,
) -> usize {
    while end - col >= W * P::LANES {
        // SAFETY: the caller's contract; columns are below `end`.
        unsafe {
            let c = tile::<P, B, R, W>(b, a, col);
            for (r, c) in c.iter().enumerate() {
                for (v, &c) in c.iter().enumerate() {
                    P::store(out.to.add(r * out.stride + col + v * P::LANES), c);
                }
            }
        }
        col += W * P::LANES;
    }
    col
}
