//! Operators on rows (norms, softmax), which have to read a row in full before its first output is known.
//!
//! If a row were finished before the next one is read, the memory bus would idle while outputs are computed from the cache.
//! So operators of two stages form a pipeline: one sweep reads a row from DRAM for the first stage, and writes the outputs of
//! the row before it, which is in L1 or L2. Operators of three stages compute more for each byte, and three rows with their
//! intermediate values would not fit L1. They go row by row, and prefetch the next row while they compute. So do operators of two
//! stages whose operands are [`crowded`].
//!
//! The order in which the elements of a row are added up depends on its length and the CPU alone, not on neighbouring rows, its
//! address or the kind of store.

use crate::arrays::from_fn;
use crate::element::Element;
use crate::isa::machine::{fence, prefetch, PAGE};
use crate::ops::abreast::Abreast;
use crate::ops::engine::{first, walk, Access, Join, Sweep};
use crate::vector::{Arithmetic, Prim};

/// Vectors that are worked on at a time, and pages that are walked side by side.
const K: usize = 4;

/// Rows of this many bytes or more are walked several pages side by side.
const SIDE_BY_SIDE_BYTES: usize = K * PAGE;

/// Bytes of a row that stays in L1 with weights of the same size and the row after it.
const L1_BYTES: usize = 8 << 10;

/// Operands whose places in their pages are nearer than this advance through the same sets of L1.
const NEAR: usize = 256;

/// If a row has no more bytes than this, the whole next row is prefetched: several such rows fit L2.
const WHOLE_PREFETCH_BYTES: usize = 64 << 10;

/// The results of the stages of a row: as scalars, or in every lane of a register.
#[derive(Clone, Copy)]
pub(crate) struct Row<T> {
    /// Before the first stage: from some elements.
    pub shift: T,
    /// After the first stage.
    pub center: T,
    /// After the second stage.
    pub scale: T,
}

impl Row<f32> {
    const UNKNOWN: Self = Self { shift: 0.0, center: 0.0, scale: 0.0 };

    #[inline(always)]
    unsafe fn splat<P: Arithmetic>(self) -> Row<P::V> {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            Row { shift: P::splat(self.shift), center: P::splat(self.center), scale: P::splat(self.scale) }
        }
    }
}

/// An operator in three stages: gather, spread, write.
///
/// # Safety
/// The unsafe methods require `P`'s instruction set.
pub(crate) trait RowOp<E: Element, P: Prim<E> + Prim<f32>>: Copy {
    /// How gathered accumulators unite.
    const GATHER: Join;
    /// Whether there is a second stage.
    const SPREAD: bool;
    /// Whether the second stage's values are kept for the third, which else sees the input again.
    const KEEP: bool;

    /// A number that stage 1 subtracts from the row's `n` elements, from a look at some of them.
    unsafe fn shift(self, x: *const E, n: usize) -> f32;
    /// Stage 1: adds a vector to a pair of accumulators; the second one is always a sum.
    unsafe fn gather(self, shift: P::V, acc: [P::V; 2], x: P::V) -> [P::V; 2];
    /// From the first total of stage 1.
    fn center(self, total: f32) -> f32;
    /// Stage 2: a value to be summed.
    unsafe fn spread<A: Arithmetic>(self, row: &Row<A::V>, x: A::V) -> A::V;
    /// From the total of stage 2, or the totals of stage 1 if that is the only one (else 0).
    fn scale(self, gathered: [f32; 2], total: f32) -> f32;
    /// Stage 3: the output for `LANES` elements (`FULL`) or `len` elements from `i`.
    unsafe fn write<const FULL: bool>(self, row: &Row<P::V>, x: P::V, i: usize, len: usize) -> P::V;
}

/// Where the second stage keeps its values: row `r` at `base + r * stride`.
#[derive(Clone, Copy)]
pub(crate) struct Keep {
    pub base: *mut f32,
    pub stride: usize,
}

impl Keep {
    /// For operators that keep nothing.
    pub(crate) const NONE: Self = Self { base: core::ptr::null_mut(), stride: 0 };

    #[inline(always)]
    fn row(self, r: usize) -> *mut f32 {
        self.base.wrapping_add(r.wrapping_mul(self.stride))
    }
}

/// A full vector, or the first `len` lanes of one.
///
/// # Safety
/// The contract of [`Prim::load`] or [`Prim::load_n`].
#[inline(always)]
pub(crate) unsafe fn load<E: Element, P: Prim<E>, const FULL: bool>(p: *const E, len: usize) -> P::V {
    // SAFETY: the caller's contract.
    unsafe {
        if FULL {
            P::load(p)
        } else {
            P::load_n(p, len)
        }
    }
}

/// One row in one stage.
#[derive(Clone, Copy)]
struct Stage<E> {
    x: *const E,
    y: *mut E,
    keep: *mut f32,
    row: Row<f32>,
}

/// One sweep that gathers (`G`) from the newest row, spreads (`S`) or writes (`W`) the other one.
struct RowSweep<E, P: Prim<E> + Prim<f32>, O, const G: bool, const S: bool, const W: bool, const STREAM: bool>
where
    E: Element,
{
    op: O,
    n: usize,
    /// Elements before the first aligned output.
    head: usize,
    newest: Stage<E>,
    other: Stage<E>,
    shift: P::V,
    row: Row<P::V>,
    /// Whether to prefetch the newest row, without gathering from it.
    prefetches: bool,
    gathered: [[P::V; 2]; K],
    summed: [P::V; K],
}

impl<
        E: Element,
        P: Prim<E> + Prim<f32>,
        O,
        const G: bool,
        const S: bool,
        const W: bool,
        const STREAM: bool,
    > RowSweep<E, P, O, G, S, W, STREAM>
where
    O: RowOp<E, P>,
{
    /// The third stage's input.
    #[inline(always)]
    unsafe fn kept<const FULL: bool>(&self, i: usize, len: usize) -> P::V {
        // SAFETY: the caller vouches for the indices and the instruction set.
        unsafe {
            if O::KEEP {
                load::<f32, P, FULL>(self.other.keep.add(i), len)
            } else {
                load::<E, P, FULL>(self.other.x.add(i), len)
            }
        }
    }

    #[inline(always)]
    unsafe fn write_part(&self, i: usize, len: usize) {
        // SAFETY: the caller vouches for the indices and the instruction set.
        unsafe {
            let z = self.kept::<false>(i, len);
            let y = self.op.write::<false>(&self.row, z, i, len);
            <P as Prim<E>>::store_n(self.other.y.add(i), y, len);
        }
    }

    #[inline(always)]
    unsafe fn run(op: O, shape: &Rows<E>, newest: Stage<E>, other: Stage<E>) -> [f32; 3] {
        let Rows { n, access, crowded, .. } = *shape;
        // SAFETY: the caller vouches for the rows and the instruction set.
        unsafe {
            let step = P::LANES * size_of::<E>();
            let head = (other.y as usize).wrapping_neg() % step / size_of::<E>();
            let none = match O::GATHER {
                Join::Sum => P::splat(0.0),
                Join::Max => P::splat(f32::NEG_INFINITY),
            };
            let mut pass = Self {
                op,
                n,
                head: if W && STREAM { head.min(n) } else { 0 },
                newest,
                other,
                shift: P::splat(newest.row.shift),
                row: other.row.splat::<P>(),
                prefetches: n.saturating_mul(size_of::<E>()) <= WHOLE_PREFETCH_BYTES,
                gathered: [[none, P::splat(0.0)]; K],
                summed: [P::splat(0.0); K],
            };
            // Sums keep their order if operands are crowded.
            let wanted =
                if O::SPREAD { access.side_by_side } else { access.norm_side_by_side && (G || !crowded) };
            let side_by_side = wanted && n.saturating_mul(size_of::<E>()) >= SIDE_BY_SIDE_BYTES;
            walk::<E, P, K>(&mut pass, 0, n, side_by_side);
            if W {
                if pass.head > 0 {
                    pass.write_part(0, pass.head);
                }
                let rest = (n - pass.head) % P::LANES;
                if rest > 0 {
                    pass.write_part(n - rest, rest);
                }
            }
            let sum = |[a, b, c, d]: [P::V; K]| P::reduce_sum(P::add(P::add(a, b), P::add(c, d)));
            let [a, b, c, d] = pass.gathered;
            let first = match O::GATHER {
                Join::Sum => sum([a[0], b[0], c[0], d[0]]),
                Join::Max => P::reduce_max(P::max(P::max(a[0], b[0]), P::max(c[0], d[0]))),
            };
            [first, sum([a[1], b[1], c[1], d[1]]), sum(pass.summed)]
        }
    }
}

impl<
        E: Element,
        P: Prim<E> + Prim<f32>,
        O,
        const G: bool,
        const S: bool,
        const W: bool,
        const STREAM: bool,
    > Sweep for RowSweep<E, P, O, G, S, W, STREAM>
where
    O: RowOp<E, P>,
{
    #[inline(always)]
    unsafe fn full(&mut self, lane: usize, i: usize) {
        // SAFETY: the caller vouches for the indices and the instruction set; lane < K. The older
        // row comes first: its neighbours may lie in the same cache lines.
        unsafe {
            let j = i + self.head;
            if !G && S == O::SPREAD && self.prefetches {
                prefetch(self.newest.x.wrapping_add(i));
            }
            if W && (!STREAM || j + P::LANES <= self.n) {
                let z = self.kept::<true>(j, 0);
                let y = self.op.write::<true>(&self.row, z, j, 0);
                if STREAM {
                    <P as Prim<E>>::stream(self.other.y.add(j), y);
                } else {
                    <P as Prim<E>>::store(self.other.y.add(j), y);
                }
            }
            if S {
                let v = self.op.spread::<P>(&self.row, <P as Prim<E>>::load(self.other.x.add(i)));
                let acc = self.summed.get_unchecked_mut(lane);
                *acc = P::add(*acc, v);
                if O::KEEP {
                    <P as Prim<f32>>::store(self.other.keep.add(i), v);
                }
            }
            if G {
                // Where a later stage of the row before has prefetched all of this one, nothing is left to do.
                if !O::SPREAD || !self.prefetches {
                    // The next page, which the hardware prefetcher does not reach.
                    prefetch(self.newest.x.wrapping_add(i + PAGE / size_of::<E>()));
                }
                let x = <P as Prim<E>>::load(self.newest.x.add(i));
                let acc = self.gathered.get_unchecked_mut(lane);
                *acc = self.op.gather(self.shift, *acc, x);
            }
        }
    }

    /// A second stage by itself does `N` vectors abreast: it may be a long chain of operations.
    #[inline(always)]
    unsafe fn block<const N: usize>(&mut self, i: usize, lanes: usize) {
        // SAFETY: the caller vouches for the indices and the instruction set; `N` is [`K`].
        unsafe {
            if W || G || !S {
                for lane in 0..N {
                    self.full(lane, i + lane * lanes);
                }
                return;
            }
            let x: [P::V; N] = from_fn(|lane| <P as Prim<E>>::load(self.other.x.add(i + lane * lanes)));
            let v = self.op.spread::<Abreast<P, N>>(&self.other.row.splat::<Abreast<P, N>>(), x);
            for (lane, v) in v.into_iter().enumerate() {
                if self.prefetches {
                    prefetch(self.newest.x.wrapping_add(i + lane * lanes));
                }
                let acc = self.summed.get_unchecked_mut(lane);
                *acc = P::add(*acc, v);
                if O::KEEP {
                    <P as Prim<f32>>::store(self.other.keep.add(i + lane * lanes), v);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn part(&mut self, i: usize, len: usize) {
        // SAFETY: the caller vouches for the indices and the instruction set. Outputs are written separately.
        unsafe {
            if S {
                let v = self.op.spread::<P>(&self.row, <P as Prim<E>>::load_n(self.other.x.add(i), len));
                self.summed[0] = first::<P>(len, P::add(self.summed[0], v), self.summed[0]);
                if O::KEEP {
                    <P as Prim<f32>>::store_n(self.other.keep.add(i), v, len);
                }
            }
            if G {
                let x = <P as Prim<E>>::load_n(self.newest.x.add(i), len);
                let old = self.gathered[0];
                let [a, b] = self.op.gather(self.shift, old, x);
                self.gathered[0] = [first::<P>(len, a, old[0]), first::<P>(len, b, old[1])];
            }
        }
    }
}

/// The arguments of every sweep over rows.
#[derive(Clone, Copy)]
pub(crate) struct Rows<E> {
    /// Number of rows.
    pub rows: usize,
    /// Distance between rows.
    pub stride: usize,
    /// Elements of a row that take part.
    pub n: usize,
    pub x: *const E,
    pub y: *mut E,
    pub access: Access,
    /// Whether operands are [`crowded`].
    pub crowded: bool,
}

/// Whether rows of `stride` elements from `x` on lie like one of `others` (outputs, parameters, or null) in their pages. Then four
/// pages of each, side by side, need more lines of a set of L1 than a core may have: 8 on many.
pub(crate) fn crowded<E>(stride: usize, x: *const E, others: [*const E; 2]) -> bool {
    let near = |other: *const E| {
        let ahead = (other as usize).wrapping_sub(x as usize).wrapping_add(NEAR) % PAGE;
        ahead < 2 * NEAR && other != x && !other.is_null()
    };
    stride.wrapping_mul(size_of::<E>()).is_multiple_of(PAGE) && (near(others[0]) || near(others[1]))
}

/// Applies `op` to every row.
///
/// # Safety
/// `rows * stride` elements at `x` and `y`, equal or apart; `n <= stride`; `keep` has `n` elements for
/// every row if the operator keeps anything, and may be the output; the instruction set
/// is present.
#[inline(always)]
pub(crate) unsafe fn rows<E: Element, P: Prim<E> + Prim<f32>, O: RowOp<E, P>>(
    op: O,
    keep: Keep,
    shape: Rows<E>,
) {
    // SAFETY: the caller's contract.
    unsafe {
        pipeline::<E, P, O>(op, keep, shape);
        if P::STREAMS && shape.access.streamed {
            fence();
        }
    }
}

/// # Safety
/// The contract of [`rows`].
#[inline(always)]
unsafe fn pipeline<E: Element, P: Prim<E> + Prim<f32>, O: RowOp<E, P>>(op: O, keep: Keep, shape: Rows<E>) {
    let Rows { rows, stride, n, x, y, access, crowded } = shape;
    if n == 0 {
        return;
    }
    // Where there is no such row, the stage is not accessed.
    let stage = |r: usize, row| {
        let at = r.wrapping_mul(stride);
        Stage { x: x.wrapping_add(at), y: y.wrapping_add(at), keep: keep.row(r), row }
    };
    let small = n.saturating_mul(size_of::<E>()) <= L1_BYTES;
    let serial = O::SPREAD || crowded || (small && !access.side_by_side);
    let mut older = Row::UNKNOWN;
    for r in 0..rows {
        // SAFETY: `r` is a row, and so is the one before it once `r > 0`.
        unsafe {
            let shift = op.shift(x.add(r * stride), n);
            let newest = stage(r, Row { shift, ..Row::UNKNOWN });
            let before = stage(r.wrapping_sub(1), older);
            let [a, b, _] = if !O::SPREAD && r > 0 && !serial {
                if P::STREAMS && access.streamed {
                    RowSweep::<E, P, O, true, false, true, true>::run(op, &shape, newest, before)
                } else {
                    RowSweep::<E, P, O, true, false, true, false>::run(op, &shape, newest, before)
                }
            } else {
                RowSweep::<E, P, O, true, false, false, false>::run(op, &shape, newest, before)
            };
            let row = Row { shift, center: op.center(a), scale: 0.0 };
            let next = stage(r + 1, Row::UNKNOWN);
            let sum = if O::SPREAD {
                RowSweep::<E, P, O, false, true, false, false>::run(op, &shape, next, stage(r, row))[2]
            } else {
                0.0
            };
            older = Row { scale: op.scale([a, b], sum), ..row };
            if serial || r + 1 == rows {
                let done = stage(r, older);
                if P::STREAMS && access.streamed {
                    RowSweep::<E, P, O, false, false, true, true>::run(op, &shape, next, done);
                } else {
                    RowSweep::<E, P, O, false, false, true, false>::run(op, &shape, next, done);
                }
            }
        }
    }
}
