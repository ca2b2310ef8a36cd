//! BLAS-2: `gemv`.
//!
//! A matrix is read once, so the speed depends on the order in which it is read. Many cores read DRAM fastest from several
//! pages of 4 KiB at once (see the [engine](crate::ops::engine)), and neighbouring rows of a row-major matrix, or columns of a
//! column-major one, lie in different pages. So eight of them are multiplied side by side. That also makes enough independent
//! sums to keep the multiply-add units busy when the matrix is in a cache.
//!
//! Each row is prefetched a few lines ahead, and while eight rows are multiplied the next eight are prefetched into L2:
//! [`ahead`](crate::ops::ahead) says why.

use crate::element::Element;
use crate::isa::machine::LINE;
use crate::ops::ahead::{prefetch_rows, Ahead, Order, NEAR, ROWS_SIDE_BY_SIDE};
use crate::vector::Prim;

/// `y = alpha * A x + beta * y` with strides (in elements) for everything.
pub(crate) struct GemvArgs<E> {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) a: *const E,
    pub(crate) row_stride: usize,
    pub(crate) col_stride: usize,
    pub(crate) x: *const E,
    pub(crate) x_stride: usize,
    pub(crate) y: *mut f32,
    pub(crate) y_stride: usize,
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
    pub(crate) order: Order,
}

/// `LANES` elements at a stride, or the first `len` of them and zeros.
///
/// # Safety
/// `len` elements at that stride from `p`; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn gather<E: Element, P: Prim<E>>(p: *const E, stride: usize, len: usize) -> P::V {
    let mut buf = [E::ZERO; 16];
    for (i, b) in buf.iter_mut().enumerate().take(len) {
        // SAFETY: i < len.
        *b = unsafe { *p.add(i * stride) };
    }
    // SAFETY: LANES <= 16.
    unsafe { P::load(buf.as_ptr()) }
}

/// `beta * y + v`, without reading `y` where beta is 0.
#[inline(always)]
unsafe fn put<E>(g: &GemvArgs<E>, row: usize, dot: f32) {
    // SAFETY: the caller vouches for the row.
    unsafe {
        let y = g.y.add(row * g.y_stride);
        *y = if g.beta == 0.0 { g.alpha * dot } else { g.beta * *y + g.alpha * dot };
    }
}

/// Adds `LANES` columns from `j` to `R` dot products.
#[inline(always)]
unsafe fn dots<E: Element, P: Prim<E>, const R: usize>(
    a: &[*const E; R],
    x: *const E,
    j: usize,
    mut acc: [P::V; R],
) -> [P::V; R] {
    // SAFETY: the caller vouches for the columns.
    unsafe {
        let x = P::load(x.add(j));
        for r in 0..R {
            acc[r] = P::fma(P::load(a[r].add(j)), x, acc[r]);
        }
    }
    acc
}

/// Rows `i .. i + R` of a matrix with contiguous rows.
#[inline(always)]
pub(crate) unsafe fn rows<E: Element, P: Prim<E> + Prim<f32>, const R: usize>(g: &GemvArgs<E>, i: usize) {
    // SAFETY: the caller vouches for the rows; columns are bounded by the loop.
    unsafe {
        let turns = g.cols / (LINE / size_of::<E>());
        let mut ahead = Ahead::behind(g.order, g.a, [i, R, g.rows], [g.cols, g.row_stride], turns);
        let mut a = [g.a; R];
        for (r, a) in a.iter_mut().enumerate() {
            *a = g.a.add((i + r) * g.row_stride);
        }
        let mut acc = [P::splat(0.0); R];
        let line = LINE / size_of::<E>();
        let mut j = 0;
        while g.cols - j >= line {
            if P::LANES < line {
                prefetch_rows(&a, j, NEAR);
            }
            ahead.prefetch();
            for _ in 0..line / P::LANES {
                acc = dots::<E, P, R>(&a, g.x, j, acc);
                j += P::LANES;
            }
        }
        while g.cols - j >= P::LANES {
            acc = dots::<E, P, R>(&a, g.x, j, acc);
            j += P::LANES;
        }
        if j < g.cols {
            let len = g.cols - j;
            let x = <P as Prim<E>>::load_n(g.x.add(j), len);
            for r in 0..R {
                acc[r] = P::fma(<P as Prim<E>>::load_n(a[r].add(j), len), x, acc[r]);
            }
        }
        for (r, &acc) in acc.iter().enumerate() {
            put(g, i + r, P::reduce_sum(acc));
        }
    }
}

/// `y = beta * y`, for contiguous or strided `y`.
#[inline(always)]
unsafe fn scale_y<E>(g: &GemvArgs<E>) {
    if g.beta == 1.0 {
        return;
    }
    for i in 0..g.rows {
        // SAFETY: the caller vouches for `y`.
        unsafe {
            let y = g.y.add(i * g.y_stride);
            *y = if g.beta == 0.0 { 0.0 } else { g.beta * *y };
        }
    }
}

/// Adds rows `i .. i + LANES` of `C` scaled columns to `y`.
#[inline(always)]
unsafe fn axpys<E: Element, P: Prim<E> + Prim<f32>, const C: usize>(
    a: &[*const E; C],
    x: &[P::V; C],
    y: *mut f32,
    i: usize,
) {
    // SAFETY: the caller vouches for the rows.
    unsafe {
        let mut sum = <P as Prim<f32>>::load(y.add(i));
        for c in 0..C {
            sum = P::fma(<P as Prim<E>>::load(a[c].add(i)), x[c], sum);
        }
        <P as Prim<f32>>::store(y.add(i), sum);
    }
}

/// Adds columns `j .. j + C` of a matrix with contiguous columns to a contiguous `y`.
#[inline(always)]
pub(crate) unsafe fn cols<E: Element, P: Prim<E> + Prim<f32>, const C: usize>(g: &GemvArgs<E>, j: usize) {
    // SAFETY: the caller vouches for the columns; rows are bounded by the loop.
    unsafe {
        let mut a = [g.a; C];
        let mut x = [P::splat(0.0); C];
        for c in 0..C {
            a[c] = g.a.add((j + c) * g.col_stride);
            x[c] = P::splat(g.alpha * (*g.x.add((j + c) * g.x_stride)).to_f32());
        }
        let line = LINE / size_of::<E>();
        let mut ahead = Ahead::behind(g.order, g.a, [j, C, g.cols], [g.rows, g.col_stride], g.rows / line);
        let mut i = 0;
        while g.rows - i >= line {
            if P::LANES < line {
                prefetch_rows(&a, i, NEAR);
            }
            ahead.prefetch();
            for _ in 0..line / P::LANES {
                axpys::<E, P, C>(&a, &x, g.y, i);
                i += P::LANES;
            }
        }
        while g.rows - i >= P::LANES {
            axpys::<E, P, C>(&a, &x, g.y, i);
            i += P::LANES;
        }
        if i < g.rows {
            let len = g.rows - i;
            let mut y = <P as Prim<f32>>::load_n(g.y.add(i), len);
            for c in 0..C {
                y = P::fma(<P as Prim<E>>::load_n(a[c].add(i), len), x[c], y);
            }
            <P as Prim<f32>>::store_n(g.y.add(i), y, len);
        }
    }
}

/// One row at any strides.
#[inline(always)]
unsafe fn row_gathered<E: Element, P: Prim<E> + Prim<f32>>(g: &GemvArgs<E>, i: usize) {
    // SAFETY: the caller vouches for the row; columns are bounded by the loop.
    unsafe {
        let a = g.a.add(i * g.row_stride);
        let mut acc = P::splat(0.0);
        let mut j = 0;
        while j < g.cols {
            let len = P::LANES.min(g.cols - j);
            let x = gather::<E, P>(g.x.add(j * g.x_stride), g.x_stride, len);
            acc = P::fma(gather::<E, P>(a.add(j * g.col_stride), g.col_stride, len), x, acc);
            j += len;
        }
        put(g, i, P::reduce_sum(acc));
    }
}

/// # Safety
/// Every element that the dimensions and strides address is valid, those of `y` for writing and apart
/// from the rest; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn gemv<E: Element, P: Prim<E> + Prim<f32>>(g: &GemvArgs<E>) {
    // SAFETY: the caller's contract; rows and columns are bounded by the loops.
    unsafe {
        if g.alpha == 0.0 || g.cols == 0 {
            return scale_y(g);
        }
        if g.col_stride == 1 && g.x_stride == 1 {
            let mut i = 0;
            while g.rows - i >= ROWS_SIDE_BY_SIDE {
                rows::<E, P, ROWS_SIDE_BY_SIDE>(g, i);
                i += ROWS_SIDE_BY_SIDE;
            }
            while g.rows - i >= 2 {
                rows::<E, P, 2>(g, i);
                i += 2;
            }
            if i < g.rows {
                rows::<E, P, 1>(g, i);
            }
        } else if g.row_stride == 1 && g.y_stride == 1 {
            scale_y(g);
            let mut j = 0;
            while g.cols - j >= ROWS_SIDE_BY_SIDE {
                cols::<E, P, ROWS_SIDE_BY_SIDE>(g, j);
                j += ROWS_SIDE_BY_SIDE;
            }
            while j < g.cols {
                cols::<E, P, 1>(g, j);
                j += 1;
            }
        } else {
            for i in 0..g.rows {
                row_gathered::<E, P>(g, i);
            }
        }
    }
}
