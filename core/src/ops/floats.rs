//! Weights that are plain floating point, as formats: decode and products. They are widened as they are loaded, at
//! any address; there is nothing to take apart.

use core::marker::PhantomData;

use crate::arrays::from_fn;
use crate::dispatch::{Kernels, Table};
use crate::element::{bf16, f16, Element, ElementType};
use crate::isa::Prim;
use crate::ops::ahead::{Ahead, Order};
use crate::ops::engine::{prefetch, stream, sweep, Access, Sweep, LINE};
use crate::quant::QuantRef;
use crate::view::MatMut;

/// Bytes of a weight.
pub(crate) const SIZE: usize = 2;

/// Rows of weights that are asked for at a time: while they are multiplied, the next ones are.
const SIDE: usize = 8;

/// Activations that are multiplied at a time, of all rows together: f32 take 16 KiB of L1.
const CHUNK: usize = 4096;

/// How far ahead a row asks for itself, in bytes.
const AHEAD: usize = 4 * LINE;

/// What [`decode`] works on.
pub struct FloatDecodeArgs<E> {
    /// [`F16`](ElementType::F16) or [`Bf16`](ElementType::Bf16).
    pub(crate) of: ElementType,
    pub(crate) n: usize,
    pub(crate) w: *const u8,
    pub(crate) y: *mut E,
    pub(crate) access: Access,
}

/// What [`qgemv`] works on.
pub struct FloatGemvArgs<E> {
    /// [`F16`](ElementType::F16) or [`Bf16`](ElementType::Bf16).
    pub(crate) of: ElementType,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) w: *const u8,
    pub(crate) order: Order,
    pub(crate) batch: usize,
    pub(crate) x: *const E,
    pub(crate) x_stride: usize,
    pub(crate) y: *mut f32,
    /// To the next row of activations, and of weights.
    pub(crate) y_strides: [usize; 2],
}

/// The first `n <= LANES` weights, which are little-endian, and zeros.
///
/// # Safety
/// `n` weights at `w`; the instruction set.
#[inline(always)]
unsafe fn load<W: Element, P: Prim<W>>(w: *const u8, n: usize) -> P::V {
    let mut numbers = [W::ZERO; 16];
    let bytes = numbers.as_mut_ptr().cast::<u8>();
    // SAFETY: LANES <= 16; any two bytes are a weight.
    unsafe {
        core::ptr::copy_nonoverlapping(w, bytes, n * SIZE);
        if cfg!(target_endian = "big") {
            for number in &mut *bytes.cast::<[[u8; SIZE]; 16]>() {
                number.reverse();
            }
        }
        P::load(numbers.as_ptr())
    }
}

/// A walk over weights that are decoded.
struct Decode<W, E, P, const STREAM: bool> {
    w: *const u8,
    y: *mut E,
    of: PhantomData<(W, P)>,
}

impl<W: Element, E: Element, P: Prim<W> + Prim<E>, const STREAM: bool> Sweep for Decode<W, E, P, STREAM> {
    #[inline(always)]
    unsafe fn full(&mut self, _lane: usize, i: usize) {
        // SAFETY: the caller vouches for the indices and the instruction set.
        unsafe {
            let (v, y) = (load::<W, P>(self.w.add(i * SIZE), P::LANES), self.y.add(i));
            if STREAM {
                <P as Prim<E>>::stream(y, v);
            } else {
                <P as Prim<E>>::store(y, v);
            }
        }
    }
    #[inline(always)]
    unsafe fn part(&mut self, i: usize, len: usize) {
        // SAFETY: as above.
        unsafe { <P as Prim<E>>::store_n(self.y.add(i), load::<W, P>(self.w.add(i * SIZE), len), len) }
    }
}

/// # Safety
/// That of [`decode`].
#[inline(always)]
unsafe fn decode_from<W: Element, E: Element, P: Prim<W> + Prim<E>>(d: &FloatDecodeArgs<E>) {
    let FloatDecodeArgs { n, w, y, access, .. } = *d;
    // SAFETY: the caller's contract.
    unsafe {
        if P::STREAMS && access.streamed {
            stream::<E, P, 4>(&mut Decode::<W, E, P, true> { w, y, of: PhantomData }, n, y, access);
        } else {
            sweep::<E, P, 4>(&mut Decode::<W, E, P, false> { w, y, of: PhantomData }, 0, n, access);
        }
    }
}

/// Decodes `n` weights.
///
/// # Safety
/// They are at `w`, room for them at `y`, which does not overlap them; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn decode<E: Element, P: Prim<E> + Prim<f16> + Prim<bf16>>(d: &FloatDecodeArgs<E>) {
    // SAFETY: the caller's contract.
    unsafe {
        match d.of {
            ElementType::Bf16 => decode_from::<bf16, E, P>(d),
            _ => decode_from::<f16, E, P>(d),
        }
    }
}

/// The products of `SIDE` rows of weights, from row `r`, with `M` rows of activations, from row `m`: `R` rows at a time.
/// Each is one chain of sums a lane, so it does not depend on its company.
///
/// # Safety
/// That of [`qgemv`], for these rows.
#[inline(always)]
unsafe fn rows<
    W: Element,
    E: Element,
    P: Prim<W> + Prim<E>,
    const SIDE: usize,
    const R: usize,
    const M: usize,
>(
    g: &FloatGemvArgs<E>,
    [r, m]: [usize; 2],
    ahead: &mut Ahead<W>,
) {
    // SAFETY: the rows are the matrix's, columns are below `cols`; the instruction set.
    unsafe {
        let mut sums = [[P::splat(0.0); M]; SIDE];
        let mut start = 0;
        while start < g.cols {
            let end = g.cols.min(start + const { CHUNK / M });
            for (i, sums) in sums.as_chunks_mut::<R>().0.iter_mut().enumerate() {
                *sums = tile::<W, E, P, R, M>(g, [r + i * R, m], [start, end], ahead, *sums);
            }
            start = end;
        }
        let [next_m, next_r] = g.y_strides;
        for (i, sums) in sums.iter().enumerate() {
            for (k, &sum) in sums.iter().enumerate() {
                *g.y.add((m + k) * next_m + (r + i) * next_r) = P::reduce_sum(sum);
            }
        }
    }
}

/// Adds the products of columns `j .. end` of `R` rows of weights, from row `r`, with `M` rows of activations, from row
/// `m`.
///
/// # Safety
/// They exist; the instruction set.
#[inline(always)]
unsafe fn tile<W: Element, E: Element, P: Prim<W> + Prim<E>, const R: usize, const M: usize>(
    g: &FloatGemvArgs<E>,
    [r, m]: [usize; 2],
    [mut j, end]: [usize; 2],
    ahead: &mut Ahead<W>,
    mut sums: [[P::V; M]; R],
) -> [[P::V; M]; R] {
    // SAFETY: the caller vouches for rows and columns.
    unsafe {
        let w: [*const u8; R] = from_fn(|i| g.w.wrapping_add((r + i) * g.cols * SIZE));
        let x: [*const E; M] = from_fn(|i| g.x.wrapping_add((m + i) * g.x_stride));
        while end - j >= LINE / SIZE {
            for w in w {
                prefetch(w.wrapping_add(j * SIZE + AHEAD));
            }
            ahead.ask();
            for _ in 0..LINE / SIZE / P::LANES {
                sums = step::<W, E, P, R, M>(&w, &x, [j, P::LANES], sums);
                j += P::LANES;
            }
        }
        while j < end {
            let n = P::LANES.min(end - j);
            sums = step::<W, E, P, R, M>(&w, &x, [j, n], sums);
            j += n;
        }
    }
    sums
}

/// Adds the products of `n <= LANES` columns from `j`.
///
/// # Safety
/// They exist; the instruction set.
#[inline(always)]
unsafe fn step<W: Element, E: Element, P: Prim<W> + Prim<E>, const R: usize, const M: usize>(
    w: &[*const u8; R],
    x: &[*const E; M],
    [j, n]: [usize; 2],
    mut sums: [[P::V; M]; R],
) -> [[P::V; M]; R] {
    // SAFETY: the caller vouches for the columns.
    unsafe {
        let x: [P::V; M] = from_fn(|i| {
            let x = x[i].add(j);
            if n == P::LANES {
                <P as Prim<E>>::load(x)
            } else {
                <P as Prim<E>>::load_n(x, n)
            }
        });
        for (w, sums) in w.iter().zip(&mut sums) {
            let w = load::<W, P>(w.add(j * SIZE), n);
            for (sum, &x) in sums.iter_mut().zip(&x) {
                *sum = P::fma(w, x, *sum);
            }
        }
    }
    sums
}

/// # Safety
/// That of [`qgemv`].
#[inline(always)]
unsafe fn products<W: Element, E: Element, P: Prim<W> + Prim<E>>(g: &FloatGemvArgs<E>) {
    let whole = g.rows / SIDE * SIDE;
    let lines = g.cols / (LINE / SIZE);
    // What the first pass over eight rows goes in.
    let turns = lines
        * match g.batch {
            0 | 1 => 1,
            2 | 3 => 2,
            _ => 4,
        };
    // SAFETY: rows are below `rows` and `batch`.
    unsafe {
        for r in (0..whole).step_by(SIDE) {
            let next = g.w.wrapping_add((r + SIDE) * g.cols * SIZE).cast();
            let left = SIDE.min(g.rows - r - SIDE);
            let mut ahead = Ahead::new(g.order, next, left, g.cols, g.cols, turns);
            let mut m = 0;
            // Eight sums, whatever they are of: the registers of the smallest instruction set.
            while g.batch - m >= 4 {
                rows::<W, E, P, SIDE, 2, 4>(g, [r, m], &mut ahead);
                m += 4;
            }
            if g.batch - m >= 2 {
                rows::<W, E, P, SIDE, 4, 2>(g, [r, m], &mut ahead);
                m += 2;
            }
            if m < g.batch {
                rows::<W, E, P, SIDE, SIDE, 1>(g, [r, m], &mut ahead);
            }
        }
        let mut ahead = Ahead::new(Order::Off, core::ptr::null(), 0, 0, 0, 0);
        for r in whole..g.rows {
            for m in 0..g.batch {
                rows::<W, E, P, 1, 1, 1>(g, [r, m], &mut ahead);
            }
        }
    }
}

/// Weights times activations, in f32.
///
/// # Safety
/// `rows` of `cols` weights at `w`, `batch` rows of `cols` elements at `x`, `batch * rows` elements at `y`, which overlaps
/// neither; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn qgemv<E: Element, P: Prim<E> + Prim<f16> + Prim<bf16>>(g: &FloatGemvArgs<E>) {
    // SAFETY: the caller's contract.
    unsafe {
        match g.of {
            ElementType::Bf16 => products::<bf16, E, P>(g),
            _ => products::<f16, E, P>(g),
        }
    }
}

impl<E: Element> Kernels<E> {
    /// Products with `batch` rows of activations at `x`, `x_stride` apart, by a table of this level.
    ///
    /// # Safety
    /// They have the columns of `w`, and `y` is `batch x rows`.
    pub(crate) unsafe fn float_products<X: Element>(
        &self,
        table: &Table<X>,
        of: ElementType,
        w: QuantRef<'_>,
        (x, x_stride, batch): (*const X, usize, usize),
        mut y: MatMut<'_, f32>,
    ) {
        let args = FloatGemvArgs {
            of,
            rows: w.rows(),
            cols: w.cols(),
            w: w.as_bytes().as_ptr(),
            order: self.order_of(w.as_bytes().len()),
            batch,
            x,
            x_stride,
            y_strides: [y.row_stride(), y.col_stride()],
            y: y.as_mut_ptr(),
        };
        // SAFETY: a QuantRef has all its weights; the caller vouches for the rest; the table's instruction set is present.
        unsafe { (table.float_qgemv)(&args) };
    }
}
