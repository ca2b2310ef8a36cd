//! The gated delta rule, which is the recurrence of layers with linear attention, and the same without the correction of values.
//!
//! The rows of a state do not depend on each other. A few of them, which stay in L1, go through all tokens of a call before the next
//! rows begin, so a call moves the state through the outer caches once, whatever the number of tokens. Each token passes over these rows once: it updates
//! them, and multiplies the new rows by its query and, for the correction, by the key of the next token, if there is one. The sums for one row need the lanes of a
//! register added up, which takes longer than the multiplications; several rows at a time fill this gap.

use crate::isa::machine::{prefetch, LINE};
use crate::ops::rows::load;
use crate::vector::Prim;

/// What a token keeps of a state, and what it writes: its value, or the difference between that and what the state recalls for its key.
#[derive(Clone, Copy, Debug)]
pub struct DeltaGates<'a> {
    /// For each token the factor `g` of the state.
    pub decay: &'a [f32],
    /// For each token the factor `beta` of what it writes.
    pub beta: &'a [f32],
    /// Whether that is the difference.
    pub corrected: bool,
}

/// The arguments of [`gated_delta_rule`].
pub struct GatedDeltaArgs<'a> {
    pub(crate) tokens: usize,
    pub(crate) key_dim: usize,
    pub(crate) value_dim: usize,
    /// Rows of `key_dim` elements, and the elements from one to the next.
    pub(crate) state: (*mut f32, usize),
    /// Queries, and the elements from one token's to the next one's.
    pub(crate) q: (*const f32, usize),
    /// Keys, in the same way.
    pub(crate) k: (*const f32, usize),
    /// Values, and their row and column strides.
    pub(crate) v: (*const f32, [usize; 2]),
    pub(crate) gates: DeltaGates<'a>,
    /// Outputs, and their row and column strides.
    pub(crate) y: (*mut f32, [usize; 2]),
}

/// `R` rows of a state.
#[derive(Clone, Copy)]
struct Rows<const R: usize> {
    first: *mut f32,
    stride: usize,
    len: usize,
}

impl<const R: usize> Rows<R> {
    /// The products of the rows with `key`.
    ///
    /// # Safety
    /// The rows and the key exist; the instruction set.
    #[inline(always)]
    unsafe fn products<P: Prim<f32>>(self, key: *const f32) -> [f32; R] {
        let whole = self.len - self.len % P::LANES;
        // SAFETY: the elements are below the length.
        unsafe {
            let mut sums = [P::splat(0.0); R];
            for i in (0..whole).step_by(P::LANES) {
                self.multiply::<P, true>(key, i, &mut sums);
            }
            if whole < self.len {
                self.multiply::<P, false>(key, whole, &mut sums);
            }
            total::<P, R>(sums)
        }
    }

    /// Adds the products of the elements from `i` on.
    ///
    /// # Safety
    /// The contract of [`products`](Self::products), and `i` is below the length, by `LANES` if `FULL`.
    #[inline(always)]
    unsafe fn multiply<P: Prim<f32>, const FULL: bool>(
        self,
        key: *const f32,
        i: usize,
        sums: &mut [P::V; R],
    ) {
        let n = self.len - i;
        // SAFETY: the caller's contract.
        unsafe {
            let key = load::<f32, P, FULL>(key.add(i), n);
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = P::fma(load::<f32, P, FULL>(self.first.add(r * self.stride + i), n), key, *sum);
            }
        }
    }

    /// Every row becomes `decay * row + change * key`. Yields the products of the new rows with `query`, and with `next` if `NEXT`. Behind the last token
    /// (`LAST`) the next rows are prefetched.
    ///
    /// # Safety
    /// The rows and the three vectors exist; the instruction set.
    #[inline(always)]
    unsafe fn update<P: Prim<f32>, const NEXT: bool, const LAST: bool>(
        self,
        decay: f32,
        changes: [f32; R],
        [key, query, next]: [*const f32; 3],
    ) -> [[f32; R]; 2] {
        let whole = self.len - self.len % P::LANES;
        // SAFETY: the elements are below the length, and there is a change for each row.
        unsafe {
            let zero = P::splat(0.0);
            let (decay, mut of, mut sums) = (P::splat(decay), [zero; R], [[zero; R]; 2]);
            for (r, of) in of.iter_mut().enumerate() {
                *of = P::splat(*changes.get_unchecked(r));
            }
            for i in (0..whole).step_by(P::LANES) {
                self.change::<P, NEXT, LAST, true>(decay, &of, [key, query, next], i, &mut sums);
            }
            if whole < self.len {
                self.change::<P, NEXT, LAST, false>(decay, &of, [key, query, next], whole, &mut sums);
            }
            let [by_query, by_next] = sums;
            [total::<P, R>(by_query), total::<P, R>(by_next)]
        }
    }

    /// [`update`](Self::update) of the elements from `i` on, whose products are added to the sums.
    ///
    /// # Safety
    /// The contract of [`update`](Self::update), and `i` is below the length, by `LANES` if `FULL`.
    #[inline(always)]
    unsafe fn change<P: Prim<f32>, const NEXT: bool, const LAST: bool, const FULL: bool>(
        self,
        decay: P::V,
        changes: &[P::V; R],
        vectors: [*const f32; 3],
        i: usize,
        [by_query, by_next]: &mut [[P::V; R]; 2],
    ) {
        let n = self.len - i;
        // SAFETY: the caller's contract; there are as many sums as changes.
        unsafe {
            let [key, query, next] = vectors;
            let key = load::<f32, P, FULL>(key.add(i), n);
            let query = load::<f32, P, FULL>(query.add(i), n);
            let next = if NEXT { load::<f32, P, FULL>(next.add(i), n) } else { key };
            for (r, &change) in changes.iter().enumerate() {
                let at = self.first.add(r * self.stride + i);
                // Behind the last token the same elements of the next rows are needed.
                if LAST && (i * size_of::<f32>()).is_multiple_of(LINE) {
                    prefetch(at.wrapping_add(R * self.stride).cast_const());
                }
                let row = P::fma(change, key, P::mul(load::<f32, P, FULL>(at, n), decay));
                if FULL {
                    P::store(at, row);
                } else {
                    P::store_n(at, row, n);
                }
                let by_query = by_query.get_unchecked_mut(r);
                *by_query = P::fma(row, query, *by_query);
                if NEXT {
                    let by_next = by_next.get_unchecked_mut(r);
                    *by_next = P::fma(row, next, *by_next);
                }
            }
        }
    }
}

/// The sum of each register.
///
/// # Safety
/// The instruction set.
#[inline(always)]
unsafe fn total<P: Prim<f32>, const R: usize>(sums: [P::V; R]) -> [f32; R] {
    let mut totals = [0.0; R];
    for (r, total) in totals.iter_mut().enumerate() {
        // SAFETY: there are as many sums; the caller's contract.
        *total = unsafe { P::reduce_sum(*sums.get_unchecked(r)) };
    }
    totals
}

/// All tokens, for `R` rows of the state from `row` on. Without the correction nothing is recalled.
///
/// # Safety
/// The contract of [`gated_delta_rule`], and these rows exist.
#[inline(always)]
unsafe fn rows<P: Prim<f32>, const R: usize>(a: &GatedDeltaArgs<'_>, row: usize) {
    let last = a.tokens - 1;
    // SAFETY: rows are below `value_dim`, and tokens up to the last one.
    unsafe {
        let rows = Rows::<R> { first: a.state.0.add(row * a.state.1), stride: a.state.1, len: a.key_dim };
        if a.gates.corrected {
            let mut recalled = rows.products::<P>(a.k.0);
            for t in 0..last {
                recalled = token::<P, R, true, false>(a, rows, row, t, recalled);
            }
            token::<P, R, false, true>(a, rows, row, last, recalled);
        } else {
            for t in 0..last {
                token::<P, R, false, false>(a, rows, row, t, [0.0; R]);
            }
            token::<P, R, false, true>(a, rows, row, last, [0.0; R]);
        }
    }
}

/// Token `t`, for the rows from `row` on, whose products with its key are `recalled`. Yields those with the next key, if `NEXT`.
///
/// # Safety
/// The contract of [`rows`], and this token exists, with another one behind it if `NEXT`.
#[inline(always)]
unsafe fn token<P: Prim<f32>, const R: usize, const NEXT: bool, const LAST: bool>(
    a: &GatedDeltaArgs<'_>,
    rows: Rows<R>,
    row: usize,
    t: usize,
    recalled: [f32; R],
) -> [f32; R] {
    // SAFETY: the caller's contract; there is a decay and a `beta` for each token.
    unsafe {
        let (decay, beta) = (*a.gates.decay.get_unchecked(t), *a.gates.beta.get_unchecked(t));
        let (mut changes, [row_stride, col_stride]) = (recalled, a.v.1);
        for (r, change) in changes.iter_mut().enumerate() {
            *change = beta * (*a.v.0.add(t * row_stride + (row + r) * col_stride) - decay * *change);
        }
        let key = a.k.0.add(t * a.k.1);
        let next = if NEXT { key.add(a.k.1) } else { key };
        let [outputs, recalled] =
            rows.update::<P, NEXT, LAST>(decay, changes, [key, a.q.0.add(t * a.q.1), next]);
        let [row_stride, col_stride] = a.y.1;
        for (r, output) in outputs.iter().enumerate() {
            *a.y.0.add(t * row_stride + (row + r) * col_stride) = *output;
        }
        recalled
    }
}

/// The gated delta rule for all rows of a state.
///
/// # Safety
/// The operands that the arguments name exist, with a decay and a `beta` for each token, and no output is an input; there is a
/// token; the CPU has the instruction set.
#[inline(always)]
pub(crate) unsafe fn gated_delta_rule<P: Prim<f32>>(a: &GatedDeltaArgs<'_>) {
    let mut row = 0;
    // SAFETY: the caller's contract; rows are below `value_dim`.
    unsafe {
        // With 32 registers the sums of eight rows stay in them.
        if P::LANES >= 16 {
            while a.value_dim - row >= 8 {
                rows::<P, 8>(a, row);
                row += 8;
            }
        }
        while a.value_dim - row >= 4 {
            rows::<P, 4>(a, row);
            row += 4;
        }
        while row < a.value_dim {
            rows::<P, 1>(a, row);
            row += 1;
        }
    }
}
