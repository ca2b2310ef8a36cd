//! Skinny products: `C = alpha * A B + beta * C + bias` for a few rows of `A`. Their time is that of reading `B` from memory.
//! So `B` is not packed. It is read once, in the order in which it lies in memory, and every vector of it is multiplied with
//! all rows of `A` while it is in a register or in a near cache.
//!
//! There are two algorithms, by the direction in which `B` is contiguous: [`dot`] along `k` (weights stored as `n x k`), and
//! [`axpy`] along `n`. Both form the sum of every element of `C` in the order of [`gemv`](super::gemv), which depends on `k`
//! alone. So no result depends on the number of rows, on the values in other rows, or on how columns are divided.

use crate::args::micro::{Micro, Panel};
use crate::caps::IsaLevel;
use crate::element::Element;
use crate::error::KernelError;
use crate::isa::InstructionSet;
use crate::ops::ahead::Order;
use crate::ops::gemv::gather;
use crate::scratch::ScratchReq;
use crate::vector::Prim;

mod axpy;
mod dot;

/// Most rows of a skinny product.
pub(crate) const MAX_ROWS: usize = 32;

/// Most rows of a skinny product with panels of pairs: their microkernels multiply faster than these kernels, which are
/// only for products that wait for memory.
const ROWS_OF_PAIRS: usize = 2;

/// How a packed `B` lies in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panels {
    /// Rows, those that fill it up included.
    pub(crate) depth: usize,
    /// Whether two rows lie in one, element by element.
    pub(crate) pairs: bool,
}

/// One product of up to `MAX_ROWS` rows. Strides are in elements.
pub(crate) struct SkinnyArgs<E> {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: *const E,
    pub(crate) a_row: usize,
    pub(crate) a_col: usize,
    pub(crate) b: *const E,
    /// For panels their width.
    pub(crate) b_row: usize,
    pub(crate) b_col: usize,
    pub(crate) panels: Option<Panels>,
    pub(crate) c: *mut f32,
    pub(crate) c_row: usize,
    pub(crate) c_col: usize,
    pub(crate) alpha: f32,
    /// 0: `C` is not read.
    pub(crate) beta: f32,
    /// One element a column, or null.
    pub(crate) bias: *const f32,
    /// Room for as much as [`scratch`] says.
    pub(crate) scratch: *mut f32,
    pub(crate) order: Order,
}

/// Whether there is a form for a `B` with these strides.
pub(crate) fn serves(m: usize, b_row: usize, b_col: usize) -> bool {
    (2..=MAX_ROWS).contains(&m) && (b_row == 1 || b_col == 1)
}

/// Whether `m` rows of a product go this way where `B` is in this microkernel's panels.
pub(crate) fn serves_panels(micro: &Micro, m: usize) -> bool {
    let Panel { width, kr, .. } = micro.b;
    let rows = match kr {
        1 => MAX_ROWS,
        2 if matches!(micro.level, IsaLevel::Avx512) => ROWS_OF_PAIRS,
        _ => 0,
    };
    micro.b.holds(micro.storage) && axpy::width(micro.level, width) && m <= rows
}

/// Numbers of type f32 in a cache line. No register has more.
const FLOATS_PER_LINE: usize = 16;

/// Scratch memory of either form on any instruction set; nothing for more than [`MAX_ROWS`] rows.
pub(crate) const fn scratch(m: usize, n: usize, k: usize) -> Result<ScratchReq, KernelError> {
    const fn larger(a: usize, b: usize) -> usize {
        if a > b {
            a
        } else {
            b
        }
    }
    if m > MAX_ROWS {
        return Ok(ScratchReq::EMPTY);
    }
    let own = larger(dot::scratch(m, k), axpy::scratch(m, n));
    let rows = m.saturating_mul(pitch(k));
    ScratchReq::array::<f32>(rows.saturating_add(own))
}

/// Elements from one row of the widened `A` to the next: an odd number of cache lines, so that rows do not compete for the
/// same sets of the cache.
const fn pitch(k: usize) -> usize {
    (k.saturating_add(2 * FLOATS_PER_LINE - 1) / FLOATS_PER_LINE * FLOATS_PER_LINE) | FLOATS_PER_LINE
}

/// `C`'s elements before the product is added: `beta * c + bias`.
#[inline(always)]
unsafe fn before<E>(g: &SkinnyArgs<E>, i: usize, j: usize) -> f32 {
    // SAFETY: the caller vouches for the element; `bias` is null or has one for each column.
    unsafe {
        let kept = if g.beta == 0.0 { 0.0 } else { g.beta * *g.c.add(i * g.c_row + j * g.c_col) };
        if g.bias.is_null() {
            kept
        } else {
            kept + *g.bias.add(j)
        }
    }
}

/// Widens rows `at .. at + rows` of `A`, times `factor`: vector `s` of row `i` goes to
/// `dst[s * along + i * across]`. The last vector is filled up with zeros.
#[inline(always)]
unsafe fn widen<E: Element, P: Prim<E> + Prim<f32>>(
    g: &SkinnyArgs<E>,
    (at, rows): (usize, usize),
    factor: f32,
    dst: *mut f32,
    (along, across): (usize, usize),
) {
    for i in 0..rows {
        let (mut p, mut to) = (0, i * across);
        while p < g.k {
            let len = P::LANES.min(g.k - p);
            // SAFETY: the caller vouches for the rows and the room; p + len <= k.
            unsafe {
                let src = g.a.add((at + i) * g.a_row + p * g.a_col);
                let v = if g.a_col != 1 {
                    gather::<E, P>(src, g.a_col, len)
                } else if len == P::LANES {
                    <P as Prim<E>>::load(src)
                } else {
                    <P as Prim<E>>::load_n(src, len)
                };
                <P as Prim<f32>>::store(dst.add(to), P::mul(v, P::splat(factor)));
            }
            p += len;
            to += along;
        }
    }
}

/// # Safety
/// Every element that the dimensions and strides address is valid, those of `C` for writing and apart from
/// the rest; `1 <= m <= MAX_ROWS`; `n`, `k` are not 0; `B` is contiguous in one direction, or panels that
/// [`serves_panels`] knows; `scratch` has the size that
/// [`scratch`] says; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn skinny<E: Element, P: InstructionSet + Prim<E>>(g: &SkinnyArgs<E>) {
    // SAFETY: the caller's contract.
    unsafe {
        if g.b_row == 1 && g.panels.is_none() {
            dot::dot::<E, P>(g);
        } else {
            axpy::axpy::<E, P>(g);
        }
    }
}
