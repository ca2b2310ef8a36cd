//! `B` contiguous along `n`: rows of `B`, scaled by elements of `A`, are added up in rows of `C`.
//!
//! `U` rows of `B` are walked side by side. A tile of them, `V` vectors wide, is loaded into registers once and then multiplied
//! with every row of `A`. The products are added to sums in scratch memory. Columns are divided into stripes whose sums fit
//! the second-level cache, and the sums lie in the order in which tiles use them.
//!
//! Packed panels are walked in the same way, one after the other; each panel is a stripe. Every element of `C` is summed in the
//! same order as without panels, so that it has the same bits.

use super::{before, pitch, widen, Panels, SkinnyArgs, FLOATS_PER_LINE};
use crate::caps::IsaLevel;
use crate::element::{Element, ElementType};
use crate::ops::ahead::{Ahead, FAR};
use crate::vector::Prim;

/// Values of the parameter `B`: a matrix; panels; or panels in which two rows are interleaved, element by element.
const MATRIX: usize = 0;
const PANELS: usize = 1;
const PAIRS: usize = 2;

/// Widest tile in elements.
const WIDEST: usize = 2 * FLOATS_PER_LINE;

/// Whether there are tiles for panels of this width: as wide as a tile, or several.
pub(super) const fn width(level: IsaLevel, width: usize) -> bool {
    matches!((level, width), (IsaLevel::Avx512, 32) | (IsaLevel::Avx2, 16) | (IsaLevel::Neon, 4 | 8 | 12))
}

/// Most sums of a stripe: 256 KiB.
const SUMS: usize = 1 << 16;

/// Columns of a stripe.
const fn stripe(m: usize) -> usize {
    match SUMS.checked_div(m) {
        Some(columns) => columns / WIDEST * WIDEST,
        None => 0,
    }
}

/// Elements of scratch memory besides the widened `A`.
pub(super) const fn scratch(m: usize, n: usize) -> usize {
    let whole = n.saturating_add(WIDEST - 1) / WIDEST * WIDEST;
    m.saturating_mul(if whole < stripe(m) { whole } else { stripe(m) })
}

/// The columns `j .. j + len` of `C`, as sums, and of `B`.
struct Stripe<E> {
    j: usize,
    len: usize,
    sums: *mut f32,
    b: *const E,
    /// Columns of `B` that may be read.
    there: usize,
}

/// Moves a stripe from `C` (`IN`), times beta and with the bias, or to it.
#[inline(always)]
unsafe fn carry<E: Element, P: Prim<E> + Prim<f32>, const V: usize, const IN: bool>(
    g: &SkinnyArgs<E>,
    s: &Stripe<E>,
) {
    let width = V * P::LANES;
    for i in 0..g.m {
        let mut at = 0;
        while at < s.len {
            let len = P::LANES.min(s.len - at);
            let j = s.j + at;
            // SAFETY: the caller vouches for the stripe; at + len <= its length.
            unsafe {
                let sums = s.sums.add((at / width * g.m + i) * width + at % width);
                let c = g.c.add(i * g.c_row + j * g.c_col);
                if IN && g.c_col == 1 {
                    let mut v = P::splat(0.0);
                    if g.beta != 0.0 {
                        v = P::mul(P::splat(g.beta), <P as Prim<f32>>::load_n(c, len));
                    }
                    if !g.bias.is_null() {
                        v = P::add(v, <P as Prim<f32>>::load_n(g.bias.add(j), len));
                    }
                    <P as Prim<f32>>::store(sums, v);
                } else if IN {
                    <P as Prim<f32>>::store(sums, P::splat(0.0));
                    for l in 0..len {
                        *sums.add(l) = before(g, i, j + l);
                    }
                } else if g.c_col == 1 {
                    <P as Prim<f32>>::store_n(c, <P as Prim<f32>>::load(sums), len);
                } else {
                    for l in 0..len {
                        *c.add(l * g.c_col) = *sums.add(l);
                    }
                }
            }
            at += len;
        }
    }
}

/// `rows <= U` rows of `B`, from depth `p` on.
struct RowsOfB {
    p: usize,
    rows: usize,
}

/// Adds the products of a tile, `cols` columns from `at` of a stripe on, to its sums. `WHOLE`: it has `U`
/// rows and `V` vectors.
#[inline(always)]
unsafe fn tile<
    E: Element,
    P: Prim<E> + Prim<f32>,
    const V: usize,
    const U: usize,
    const B: usize,
    const WHOLE: bool,
>(
    g: &SkinnyArgs<E>,
    s: &Stripe<E>,
    group: &RowsOfB,
    at: usize,
    ahead: &mut Ahead<E>,
) {
    // SAFETY: the caller vouches for the tile. Rows and columns that do not exist are not read; such rows
    // are not multiplied, and such columns' sums not used. Pairs are in panels, which are whole.
    unsafe {
        let b = s.b.add(group.p * g.b_row);
        let mut w = [[P::splat(0.0); V]; U];
        for (u, w) in w.iter_mut().enumerate() {
            if B != PAIRS && (WHOLE || u < group.rows) {
                for (v, w) in w.iter_mut().enumerate() {
                    let b = b.wrapping_add(u * g.b_row + at + v * P::LANES);
                    let len = P::LANES.min((s.there - at).saturating_sub(v * P::LANES));
                    *w = if WHOLE { <P as Prim<E>>::load(b) } else { <P as Prim<E>>::load_n(b, len) };
                }
            }
        }
        if B == PAIRS {
            for (pair, w) in w.chunks_exact_mut(2).enumerate() {
                if let ([even, odd], true) = (w, WHOLE || 2 * pair < group.rows) {
                    for (v, even) in even.iter_mut().enumerate() {
                        let b = b.add(2 * (pair * g.b_row + at + v * P::LANES));
                        let (x, y) = (<P as Prim<E>>::load(b), <P as Prim<E>>::load(b.add(P::LANES)));
                        (*even, odd[v]) = P::unzip(x, y);
                    }
                }
            }
        }
        let mut a = g.scratch.cast_const().add(group.p);
        let mut sums = s.sums.add(at * g.m);
        for _ in 0..g.m {
            let mut acc = [P::splat(0.0); V];
            for (v, acc) in acc.iter_mut().enumerate() {
                *acc = <P as Prim<f32>>::load(sums.add(v * P::LANES));
            }
            for (u, w) in w.iter().enumerate() {
                if WHOLE || u < group.rows {
                    let x = P::splat(*a.add(u));
                    // `zip` would become a call here, and the sums would leave their registers.
                    for (v, acc) in acc.iter_mut().enumerate() {
                        *acc = P::fma(w[v], x, *acc);
                    }
                }
            }
            for (v, &acc) in acc.iter().enumerate() {
                <P as Prim<f32>>::store(sums.add(v * P::LANES), acc);
            }
            if B == MATRIX {
                ahead.prefetch();
            } else {
                ahead.prefetch_along();
            }
            a = a.wrapping_add(pitch(g.k));
            sums = sums.wrapping_add(V * P::LANES);
        }
    }
}

/// # Safety
/// The contract of [`skinny`](super::skinny), with rows of `B` contiguous.
#[inline(always)]
pub(super) unsafe fn axpy<E: Element, P: Prim<E> + Prim<f32>>(g: &SkinnyArgs<E>) {
    // SAFETY: the caller's contract. A tile fits the register file, and so do V sums and an element of A.
    unsafe {
        match (P::LANES, g.panels) {
            (4, Some(_)) if g.b_row == 4 => stripes::<E, P, 1, 24, PANELS>(g),
            (4, Some(_)) if g.b_row == 12 => stripes::<E, P, 3, 8, PANELS>(g),
            // Microkernels for bf16 alone have them.
            (16, Some(Panels { pairs: true, .. })) if const { matches!(E::TYPE, ElementType::Bf16) } => {
                stripes::<E, P, 2, 12, PAIRS>(g)
            }
            (4 | 16, Some(_)) => stripes::<E, P, 2, 12, PANELS>(g),
            (8, Some(_)) => stripes::<E, P, 2, 6, PANELS>(g),
            (4 | 16, None) => stripes::<E, P, 2, 12, MATRIX>(g),
            (8, None) => stripes::<E, P, 2, 6, MATRIX>(g),
            _ => stripes::<E, P, 2, 4, MATRIX>(g),
        }
    }
}

#[inline(always)]
unsafe fn stripes<E: Element, P: Prim<E> + Prim<f32>, const V: usize, const U: usize, const B: usize>(
    g: &SkinnyArgs<E>,
) {
    // SAFETY: rows and columns are bounded by the loops; scratch memory has room for `A` and a stripe.
    unsafe {
        widen::<E, P>(g, (0, g.m), g.alpha, g.scratch, (P::LANES, pitch(g.k)));
        let sums = g.scratch.add(g.m * pitch(g.k));
        let width = V * P::LANES;
        let mut j = 0;
        while j < g.n {
            // A panel is a stripe that is whole in memory.
            let (widest, down) = match g.panels {
                Some(panels) => (g.b_row, panels.depth),
                None => (stripe(g.m), 1),
            };
            let len = widest.min(g.n - j);
            let there = if g.panels.is_some() { widest } else { len };
            let s = Stripe { j, len, sums, b: g.b.add(j * down), there };
            carry::<E, P, V, true>(g, &s);
            let turns = there.div_ceil(width).saturating_mul(g.m);
            let mut ahead = Ahead::along(g.order, U * widest, turns);
            let mut p = 0;
            while p < g.k {
                let group = RowsOfB { p, rows: U.min(g.k - p) };
                if B == MATRIX {
                    ahead = Ahead::behind(g.order, s.b, [p, group.rows, g.k], [len, g.b_row], turns);
                } else {
                    ahead.from(s.b.wrapping_add(p.wrapping_mul(g.b_row)).wrapping_byte_add(FAR));
                }
                let mut at = 0;
                while at < there {
                    if group.rows == U && there - at >= width {
                        tile::<E, P, V, U, B, true>(g, &s, &group, at, &mut ahead);
                    } else {
                        tile::<E, P, V, U, B, false>(g, &s, &group, at, &mut ahead);
                    }
                    at += width;
                }
                p += group.rows;
            }
            carry::<E, P, V, false>(g, &s);
            j += len;
        }
    }
}
