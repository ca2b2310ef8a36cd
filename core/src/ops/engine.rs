//! The loops over vectors that all element-wise operators and reductions share: unrolling, several memory streams, streaming
//! stores, and edges.
//!
//! Two facts shape this file; SPEC/04, "How memory is walked", has the measurements. First, some cores read DRAM about 1.4
//! times faster from several pages of 4 KiB at once than from one, and others are slower by as much: see
//! [`Prefetcher`](crate::Prefetcher). Second, a store that bypasses the cache saves reading the line that it overwrites, which
//! is a third of the memory traffic of a copy.

use crate::arrays::from_fn;
use crate::element::Element;
use crate::isa::machine::{fence, LINE, PAGE};
use crate::ops::abreast::{Abreast, CHAINS};
use crate::vector::{Arithmetic, Prim, Vector};

/// How operands are walked and stored.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    /// The output bypasses the caches: it is larger than they are.
    pub(crate) streamed: bool,
    /// Several pages are read at once where there are enough.
    pub(crate) side_by_side: bool,
    /// The same of a row whose norm is computed.
    pub(crate) norm_side_by_side: bool,
}

/// Operands of this many bytes or more are walked several pages side by side. Smaller ones are in L2.
const SIDE_BY_SIDE_BYTES: usize = 1 << 20;

/// One operation on consecutive elements, told where it stands.
pub(crate) trait Sweep {
    /// Handles `LANES` elements from `i`. `lane < K` is a compile-time constant after unrolling: it
    /// picks an accumulator.
    ///
    /// # Safety
    /// `i + LANES <= n`.
    unsafe fn full(&mut self, lane: usize, i: usize);
    /// Handles `K` times `lanes` elements from `i`; `lanes` are those of a vector.
    ///
    /// # Safety
    /// `i + K * lanes <= n`.
    #[inline(always)]
    unsafe fn block<const K: usize>(&mut self, i: usize, lanes: usize) {
        for lane in 0..K {
            // SAFETY: the caller's contract.
            unsafe { self.full(lane, i + lane * lanes) };
        }
    }
    /// Handles `len <= LANES` elements from `i`.
    ///
    /// # Safety
    /// `i + len <= n`.
    unsafe fn part(&mut self, i: usize, len: usize);
}

/// Walks elements `start..n`, `K` vectors at a time, large operands as `access` says.
///
/// # Safety
/// The contract of [`walk`].
#[inline(always)]
pub(crate) unsafe fn sweep<E: Element, P: Vector, const K: usize>(
    s: &mut impl Sweep,
    start: usize,
    n: usize,
    access: Access,
) {
    let large = n.saturating_mul(size_of::<E>()) >= SIDE_BY_SIDE_BYTES;
    // SAFETY: the caller's contract.
    unsafe { walk::<E, P, K>(s, start, n, large && access.side_by_side) }
}

/// Walks elements `start..n`, `K` vectors at a time: neighbours, or from `K` pages `side_by_side`.
///
/// # Safety
/// `s` must accept every index below `n`; `P`'s instruction set must be present.
#[inline(always)]
pub(crate) unsafe fn walk<E: Element, P: Vector, const K: usize>(
    s: &mut impl Sweep,
    start: usize,
    n: usize,
    side_by_side: bool,
) {
    let mut i = start;
    // SAFETY: every index below is bounded by the loop conditions.
    unsafe {
        let page = PAGE / size_of::<E>();
        // Scalar code is bound by its instructions, not by memory.
        if P::LANES > 1 && side_by_side {
            // Whole lines in each page: a line that streaming stores fill in several turns may leave the core in parts.
            const { assert!((PAGE / size_of::<E>()).is_multiple_of(K * P::LANES)) };
            while n - i >= K * page {
                let end = i + page;
                while i < end {
                    for lane in 0..K {
                        s.block::<K>(i + lane * page, P::LANES);
                    }
                    i += K * P::LANES;
                }
                i += (K - 1) * page;
            }
        }
        while n - i >= K * P::LANES {
            s.block::<K>(i, P::LANES);
            i += K * P::LANES;
        }
        while n - i >= P::LANES {
            s.full(0, i);
            i += P::LANES;
        }
        if i < n {
            s.part(i, n - i);
        }
    }
}

/// [`sweep`] with streaming stores to `n` elements at `y`. These have to fill whole cache lines, so the elements before the
/// first whole line are written separately.
///
/// # Safety
/// The contract of [`walk`].
#[inline(always)]
pub(crate) unsafe fn stream<E: Element, P: Vector, const K: usize>(
    s: &mut impl Sweep,
    n: usize,
    y: *const E,
    access: Access,
) {
    let head = ((y as usize).wrapping_neg() % LINE / size_of::<E>()).min(n);
    let mut i = 0;
    // SAFETY: head <= n.
    unsafe {
        while i < head {
            let len = P::LANES.min(head - i);
            s.part(i, len);
            i += len;
        }
        sweep::<E, P, K>(s, head, n, access);
    }
    fence();
}

/// A function of one, two or three vectors.
pub(crate) trait Function<const ARITY: usize>: Copy {
    /// The value for one vector of each input.
    ///
    /// # Safety
    /// `P`'s instruction set must be present.
    unsafe fn eval<P: Arithmetic>(self, x: [P::V; ARITY]) -> P::V;
}

struct Map<E, F, P, const ARITY: usize, const STREAM: bool> {
    f: F,
    x: [*const E; ARITY],
    y: *mut E,
    isa: core::marker::PhantomData<P>,
}

impl<E: Element, P: Prim<E>, F: Function<ARITY>, const ARITY: usize, const STREAM: bool> Sweep
    for Map<E, F, P, ARITY, STREAM>
{
    #[inline(always)]
    unsafe fn full(&mut self, _lane: usize, i: usize) {
        // SAFETY: the caller vouches for the indices and the instruction set.
        unsafe {
            let mut v = [P::splat(0.0); ARITY];
            for (v, x) in v.iter_mut().zip(self.x) {
                *v = P::load(x.add(i));
            }
            let y = self.f.eval::<P>(v);
            if STREAM {
                P::stream(self.y.add(i), y);
            } else {
                P::store(self.y.add(i), y);
            }
        }
    }
    /// Loads everything, then computes, then stores: the compiler cannot move a load past a store that
    /// might alias it, and chains of dependent operations need each other's company.
    #[inline(always)]
    unsafe fn block<const K: usize>(&mut self, i: usize, lanes: usize) {
        // SAFETY: the caller vouches for the indices and the instruction set.
        unsafe {
            let mut v = [[P::splat(0.0); K]; ARITY];
            for (input, v) in v.iter_mut().enumerate() {
                for (lane, v) in v.iter_mut().enumerate() {
                    *v = P::load(self.x[input].add(i + lane * lanes));
                }
            }
            let mut y = [P::splat(0.0); K];
            let mut first = 0;
            while first < K {
                let some = from_fn(|input| from_fn(|lane| v[input][(first + lane) % K]));
                let done = self.f.eval::<Abreast<P, CHAINS>>(some);
                for (lane, &done) in done.iter().enumerate() {
                    y[(first + lane) % K] = done;
                }
                first += CHAINS;
            }
            for (lane, y) in y.into_iter().enumerate() {
                if STREAM {
                    P::stream(self.y.add(i + lane * lanes), y);
                } else {
                    P::store(self.y.add(i + lane * lanes), y);
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn part(&mut self, i: usize, len: usize) {
        // SAFETY: the caller vouches for the indices and the instruction set.
        unsafe {
            let mut v = [P::splat(0.0); ARITY];
            for (v, x) in v.iter_mut().zip(self.x) {
                *v = P::load_n(x.add(i), len);
            }
            P::store_n(self.y.add(i), self.f.eval::<P>(v), len);
        }
    }
}

/// `y[i] = f(x0[i], ..)` for `i < n`. Inputs may be the output itself, element for element.
///
/// # Safety
/// `n` elements at every pointer; an input either equals `y` or does not overlap it; the
/// instruction set must be present.
#[inline(always)]
pub(crate) unsafe fn map<E: Element, P: Prim<E>, F: Function<ARITY>, const ARITY: usize, const K: usize>(
    f: F,
    n: usize,
    x: [*const E; ARITY],
    y: *mut E,
    access: Access,
) {
    let isa = core::marker::PhantomData;
    // SAFETY: the caller's contract.
    unsafe {
        if P::STREAMS && access.streamed {
            stream::<E, P, K>(&mut Map::<E, F, P, ARITY, true> { f, x, y, isa }, n, y, access);
        } else {
            sweep::<E, P, K>(&mut Map::<E, F, P, ARITY, false> { f, x, y, isa }, 0, n, access);
        }
    }
}

/// How accumulators unite.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    /// By addition; empty folds yield 0.
    Sum,
    /// By maximum; empty folds yield -inf.
    Max,
}

impl Join {
    const fn identity(self) -> f32 {
        match self {
            Self::Sum => 0.0,
            Self::Max => f32::NEG_INFINITY,
        }
    }
}

/// A sum or maximum of something.
pub(crate) trait Fold<const ARITY: usize>: Copy {
    /// How accumulators unite.
    const JOIN: Join;
    /// Adds one vector of each input to an accumulator.
    ///
    /// # Safety
    /// `P`'s instruction set must be present.
    unsafe fn step<P: Vector>(self, acc: P::V, x: [P::V; ARITY]) -> P::V;
}

struct Folding<E, F, P: Vector, const ARITY: usize, const K: usize> {
    f: F,
    x: [*const E; ARITY],
    acc: [P::V; K],
}

impl<E: Element, P: Prim<E> + Prim<f32>, F: Fold<ARITY>, const ARITY: usize, const K: usize> Sweep
    for Folding<E, F, P, ARITY, K>
{
    #[inline(always)]
    unsafe fn full(&mut self, lane: usize, i: usize) {
        // SAFETY: the caller vouches for the indices and the instruction set; lane < K.
        unsafe {
            let mut v = [P::splat(0.0); ARITY];
            for (v, x) in v.iter_mut().zip(self.x) {
                *v = <P as Prim<E>>::load(x.add(i));
            }
            let acc = self.acc.get_unchecked_mut(lane);
            *acc = self.f.step::<P>(*acc, v);
        }
    }
    #[inline(always)]
    unsafe fn part(&mut self, i: usize, len: usize) {
        // SAFETY: the caller vouches for the indices and the instruction set; K is at least 1.
        unsafe {
            let mut v = [P::splat(0.0); ARITY];
            for (v, x) in v.iter_mut().zip(self.x) {
                *v = <P as Prim<E>>::load_n(x.add(i), len);
            }
            let acc = self.acc.get_unchecked_mut(0);
            *acc = first::<P>(len, self.f.step::<P>(*acc, v), *acc);
        }
    }
}

/// The first `len <= LANES` lanes of `a`, the others of `b`.
///
/// # Safety
/// `P`'s instruction set must be present.
#[inline(always)]
pub(crate) unsafe fn first<P: Prim<f32>>(len: usize, a: P::V, b: P::V) -> P::V {
    static ONES: [f32; 16] = [1.0; 16];
    // SAFETY: len <= LANES <= 16.
    unsafe { P::select_lt(P::load_n(ONES.as_ptr(), len), P::splat(0.5), b, a) }
}

/// Folds `n` elements with `K` accumulators.
///
/// # Safety
/// `n` elements at every pointer; the instruction set must be present.
#[inline(always)]
pub(crate) unsafe fn fold<
    E: Element,
    P: Prim<E> + Prim<f32>,
    F: Fold<ARITY>,
    const ARITY: usize,
    const K: usize,
>(
    f: F,
    n: usize,
    x: [*const E; ARITY],
    access: Access,
) -> f32 {
    // SAFETY: the caller's contract.
    unsafe {
        let none = P::splat(F::JOIN.identity());
        let mut folding = Folding::<E, F, P, ARITY, K> { f, x, acc: [none; K] };
        sweep::<E, P, K>(&mut folding, 0, n, access);
        let mut total = folding.acc[0];
        for &acc in &folding.acc[1..] {
            total = match F::JOIN {
                Join::Sum => P::add(total, acc),
                Join::Max => P::max(total, acc),
            };
        }
        match F::JOIN {
            Join::Sum => P::reduce_sum(total),
            Join::Max => P::reduce_max(total),
        }
    }
}
