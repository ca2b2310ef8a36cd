//! `B` contiguous along `k`: every element of `C` is a dot product of a row of `A` and a row of weights.
//!
//! A tile of [`MR`] rows of `A` and `R` rows of weights is summed in registers: one vector of partial sums for each element.
//! Rows of weights are divided into pieces of [`DEPTH`] elements. A piece is multiplied with one block of `MR` rows of `A`
//! after the other. The first block also stores it widened, in a cache from where the other blocks read it. Between one piece
//! and the next, the sums of a block are in scratch memory.

use super::{before, pitch, widen, SkinnyArgs, MAX_ROWS};
use crate::element::Element;
use crate::isa::machine::LINE;
use crate::isa::InstructionSet;
use crate::ops::ahead::{prefetch_rows, Ahead, NEAR};
use crate::vector::Prim;

/// Rows of `A` in a tile.
const MR: usize = 4;

/// Most rows of weights in a tile.
const MAX_TILE_ROWS: usize = 6;

/// Elements of a piece of a row of weights: six pieces are in the second-level cache while all rows of `A` meet them.
/// Shorter ones that stay in the first-level cache are slower, as each begins and ends with all sums in memory.
const DEPTH: usize = 4096;

/// Elements of scratch memory besides the widened `A`: waiting sums and widened weights.
pub(super) const fn scratch(m: usize, k: usize) -> usize {
    let piece = if pitch(k) < DEPTH { pitch(k) } else { DEPTH };
    m * MAX_TILE_ROWS * super::FLOATS_PER_LINE + MAX_TILE_ROWS * piece
}

/// One block of rows of `A` against one piece of the weights.
struct PieceProduct<E, const R: usize> {
    w: [*const E; R],
    /// Elements from one vector of a row to the next.
    along: usize,
    /// Elements of the piece.
    depth: usize,
    /// The block of `A`, widened.
    a: *const f32,
    /// Where widened weights go.
    kept: *mut f32,
}

/// Adds vector `s` of every row. The last may have only `len` elements.
#[inline(always)]
unsafe fn step<
    E: Element,
    P: Prim<E> + Prim<f32>,
    const M: usize,
    const R: usize,
    const KEEP: bool,
    const WHOLE: bool,
>(
    pass: &PieceProduct<E, R>,
    s: usize,
    len: usize,
    acc: &mut [[P::V; R]; M],
) {
    // SAFETY: the caller vouches for the vector.
    unsafe {
        let mut x = [P::splat(0.0); M];
        for (i, x) in x.iter_mut().enumerate() {
            *x = <P as Prim<f32>>::load(pass.a.add((s * M + i) * P::LANES));
        }
        for (r, w) in pass.w.iter().enumerate() {
            let w = w.add(s * pass.along);
            let w = if WHOLE { <P as Prim<E>>::load(w) } else { <P as Prim<E>>::load_n(w, len) };
            if KEEP {
                <P as Prim<f32>>::store(pass.kept.add((s * R + r) * P::LANES), w);
            }
            // `zip` would become a call here, and the sums would leave their registers.
            for (i, acc) in acc.iter_mut().enumerate() {
                acc[r] = P::fma(w, x[i], acc[r]);
            }
        }
    }
}

/// The products of one piece, added to the sums `from` and left in `to`. `FIRST`: the weights come from
/// memory; `KEEP`: they are kept widened.
///
/// The sums are registers from the first to the last line: an array that is passed on, or indexed in a
/// loop too large to be unrolled, would live on the stack. Volatile, so that moving them does not become
/// a call of `memcpy`.
#[inline(always)]
unsafe fn run<
    E: Element,
    P: Prim<E> + Prim<f32>,
    A,
    const M: usize,
    const R: usize,
    const FIRST: bool,
    const KEEP: bool,
>(
    pass: &PieceProduct<E, R>,
    ahead: &mut Ahead<A>,
    from: *const P::V,
    to: *mut P::V,
) {
    // SAFETY: the caller vouches for the piece and the sums; the loops stay within them.
    unsafe {
        let mut acc = [[P::splat(0.0); R]; M];
        for (i, acc) in acc.iter_mut().enumerate() {
            for (r, acc) in acc.iter_mut().enumerate() {
                *acc = from.add(i * R + r).read_volatile();
            }
        }
        let line = LINE / size_of::<E>();
        let (mut p, mut s) = (0, 0);
        while pass.depth - p >= line {
            if FIRST {
                // Twice as far as with one row of `A`: the distance of `gemv` costs up to 6 %.
                prefetch_rows(&pass.w, p, 2 * NEAR);
            }
            ahead.prefetch();
            for _ in 0..line / P::LANES {
                step::<E, P, M, R, KEEP, true>(pass, s, P::LANES, &mut acc);
                s += 1;
            }
            p += line;
        }
        while pass.depth - p >= P::LANES {
            step::<E, P, M, R, KEEP, true>(pass, s, P::LANES, &mut acc);
            p += P::LANES;
            s += 1;
        }
        if p < pass.depth {
            step::<E, P, M, R, KEEP, false>(pass, s, pass.depth - p, &mut acc);
        }
        for (i, acc) in acc.iter().enumerate() {
            for (r, &acc) in acc.iter().enumerate() {
                to.add(i * R + r).write_volatile(acc);
            }
        }
    }
}

/// The position of a piece of the weights and of a block of `A`.
struct PiecePosition {
    /// Rows of `A`, columns of `C`, and how many of these there are.
    i: usize,
    j: usize,
    live: usize,
    /// Elements of the rows before this piece and in it.
    p: usize,
    depth: usize,
}

/// The sums before the first piece.
#[repr(align(64))]
struct Zeros([f32; MR * MAX_TILE_ROWS * super::FLOATS_PER_LINE]);
static ZEROS: Zeros = Zeros([0.0; MR * MAX_TILE_ROWS * super::FLOATS_PER_LINE]);

/// One block of `M` rows against one piece of `R` rows of weights.
#[inline(always)]
unsafe fn block<E: Element, P: Prim<E> + Prim<f32>, const M: usize, const R: usize>(
    g: &SkinnyArgs<E>,
    at: &PiecePosition,
    memory: &Memory,
    ahead: &mut Ahead<E>,
) {
    // SAFETY: the caller vouches for the place; rows of weights that do not exist stand for the last one,
    // and their sums are dropped. Scratch memory is aligned for every register.
    unsafe {
        let sums = memory.sums.cast::<P::V>().add(at.i * R);
        let from = if at.p > 0 { sums } else { ZEROS.0.as_ptr().cast() };
        // A block before this one has M = MR rows, so `i` times the length of a row is where this begins.
        let a = memory.a.add(at.i * memory.row + at.p * M);
        let mut w = [g.b; R];
        for (r, w) in w.iter_mut().enumerate() {
            *w = g.b.add((at.j + r.min(at.live - 1)) * g.b_col + at.p);
        }
        let (depth, kept) = (at.depth, memory.kept);
        let pass = PieceProduct { w, along: P::LANES, depth, a, kept };
        let wide = size_of::<E>() == size_of::<f32>();
        if at.i > 0 && wide {
            run::<E, P, E, M, R, false, false>(&pass, ahead, from, sums);
        } else if at.i > 0 {
            let mut w = [kept.cast_const(); R];
            for (r, w) in w.iter_mut().enumerate() {
                *w = kept.add(r * P::LANES);
            }
            let depth = depth.next_multiple_of(P::LANES);
            let pass = PieceProduct { w, along: R * P::LANES, depth, a, kept };
            run::<f32, P, E, M, R, false, false>(&pass, ahead, from, sums);
        } else if M == MR && !wide && g.m > MR {
            run::<E, P, E, M, R, true, true>(&pass, ahead, from, sums);
        } else {
            run::<E, P, E, M, R, true, false>(&pass, ahead, from, sums);
        }
        if at.p + at.depth < g.k {
            return;
        }
        for i in 0..M {
            for r in 0..at.live {
                let product = g.alpha * P::reduce_sum(*sums.add(i * R + r));
                let (i, j) = (at.i + i, at.j + r);
                let plain = g.beta == 0.0 && g.bias.is_null();
                *g.c.add(i * g.c_row + j * g.c_col) = if plain { product } else { before(g, i, j) + product };
            }
        }
    }
}

/// Scratch memory.
struct Memory {
    a: *const f32,
    /// Elements of a row of it.
    row: usize,
    sums: *mut f32,
    kept: *mut f32,
}

/// # Safety
/// The contract of [`skinny`](super::skinny), with rows of weights contiguous.
#[inline(always)]
pub(super) unsafe fn dot<E: Element, P: InstructionSet + Prim<E>>(g: &SkinnyArgs<E>) {
    // SAFETY: the caller's contract.
    unsafe {
        const { assert!(P::SKINNY_TILE.rows == MR && P::SKINNY_TILE.cols <= MAX_TILE_ROWS) };
        match P::SKINNY_TILE.cols {
            6 => tiles::<E, P, 6>(g),
            3 => tiles::<E, P, 3>(g),
            _ => tiles::<E, P, 2>(g),
        }
    }
}

#[inline(always)]
unsafe fn tiles<E: Element, P: Prim<E> + Prim<f32>, const R: usize>(g: &SkinnyArgs<E>) {
    // SAFETY: rows, columns and depths are bounded by the loops; scratch memory has a place for each part.
    unsafe {
        let row = g.k.next_multiple_of(P::LANES);
        let a = g.scratch;
        let mut i = 0;
        while i < g.m {
            let rows = MR.min(g.m - i);
            widen::<E, P>(g, (i, rows), 1.0, a.add(i * row), (rows * P::LANES, P::LANES));
            i += rows;
        }
        let sums = a.add(g.m * pitch(g.k));
        let memory = Memory {
            a,
            row,
            sums,
            kept: sums.add(MAX_ROWS.min(g.m) * MAX_TILE_ROWS * super::FLOATS_PER_LINE),
        };
        let blocks = g.m.div_ceil(MR);
        let lines = g.k.saturating_mul(size_of::<E>()) / LINE;
        // Equal pieces of whole lines.
        let piece = g.k.div_ceil(g.k.div_ceil(DEPTH).max(1)).next_multiple_of(LINE / size_of::<E>());
        let mut j = 0;
        while j < g.n {
            let live = R.min(g.n - j);
            let turns = lines.saturating_mul(blocks);
            let mut ahead = Ahead::behind(g.order, g.b, [j, live, g.n], [g.k, g.b_col], turns);
            let mut p = 0;
            while p < g.k {
                let depth = piece.min(g.k - p);
                let mut i = 0;
                while i < g.m {
                    let rows = MR.min(g.m - i);
                    let at = PiecePosition { i, j, live, p, depth };
                    match rows {
                        4 => block::<E, P, 4, R>(g, &at, &memory, &mut ahead),
                        3 => block::<E, P, 3, R>(g, &at, &memory, &mut ahead),
                        2 => block::<E, P, 2, R>(g, &at, &memory, &mut ahead),
                        _ => block::<E, P, 1, R>(g, &at, &memory, &mut ahead),
                    }
                    i += rows;
                }
                p += depth;
            }
            j += live;
        }
    }
}
