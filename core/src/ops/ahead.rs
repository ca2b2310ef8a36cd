//! Software prefetches of matrices that are read once, from memory.
//!
//! A CPU that executes out of order starts loads early, but only as far ahead as its window of instructions reaches. A
//! product spends many instructions on each cache line, so the window holds fewer lines than memory could deliver at the
//! same time. Moreover, several rows are multiplied side by side, which is not the order in which memory is fastest.
//!
//! So while one block of rows is multiplied, the next block is prefetched into the second-level cache, in the order that
//! suits this CPU's hardware prefetcher.

use core::marker::PhantomData;

use crate::isa::machine::{into_l2, later, prefetch, LINE};

/// Rows (or columns) of a dense matrix that are walked side by side: enough pages at once for memory, and enough independent sums for
/// the multiply-add units.
pub(crate) const ROWS_SIDE_BY_SIDE: usize = 8;

/// The order in which a CPU reads memory fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// No prefetches: the matrix is in a cache.
    Off,
    /// One address after the other.
    Sequential,
    /// Several rows side by side.
    SideBySide,
}

/// Prefetches every line of a block of rows, a few at a time.
pub(crate) struct Ahead<E> {
    at: *const u8,
    /// Lines that one call prefetches.
    share: usize,
    /// Bytes from a line to the next, for `count` lines; then `then` bytes, once.
    step: usize,
    count: usize,
    then: usize,
    /// Lines until `then`.
    left: usize,
    /// Always 0, but the CPU knows that only some cycles after the last prefetch: see [`later`].
    zero: usize,
    of: PhantomData<E>,
}

impl<E> Ahead<E> {
    /// Prefetches nothing.
    pub(crate) const OFF: Self = Self {
        at: core::ptr::null(),
        share: 0,
        step: 0,
        count: 0,
        then: 0,
        left: 0,
        zero: 0,
        of: PhantomData,
    };

    /// For `rows` rows of `cols` elements, `stride` elements apart, by `turns` calls of [`prefetch`](Self::prefetch). The rows
    /// need not exist.
    #[inline(always)]
    pub(crate) fn new(
        order: Order,
        at: *const E,
        rows: usize,
        cols: usize,
        stride: usize,
        turns: usize,
    ) -> Self {
        let lines = cols.saturating_mul(size_of::<E>()).div_ceil(LINE);
        let stride = stride.wrapping_mul(size_of::<E>());
        let (step, count, next) = match order {
            Order::Off => return Self::OFF,
            Order::Sequential => (LINE, lines, stride),
            Order::SideBySide => (stride, rows, LINE),
        };
        let then = next.wrapping_sub(step.wrapping_mul(count.wrapping_sub(1)));
        let share = rows.saturating_mul(lines).div_ceil(turns.max(1));
        Self { at: at.cast(), share, step, count, then, left: count, ..Self::OFF }
    }

    /// For the rows that follow the rows `first .. first + block` of a matrix with `rows` rows: as many as that block has, or
    /// as are left.
    #[inline(always)]
    pub(crate) fn behind(
        order: Order,
        matrix: *const E,
        [first, block, rows]: [usize; 3],
        [cols, stride]: [usize; 2],
        turns: usize,
    ) -> Self {
        let end = first + block;
        let next = matrix.wrapping_add(end.wrapping_mul(stride));
        Self::new(order, next, block.min(rows - end), cols, stride, turns)
    }

    /// For as many consecutive lines as `elements` elements have, by `turns` calls of
    /// [`prefetch_along`](Self::prefetch_along). [`from`](Self::from) says where they begin.
    #[inline(always)]
    pub(crate) fn along(order: Order, elements: usize, turns: usize) -> Self {
        let share = (elements * size_of::<E>()).div_ceil(LINE).div_ceil(turns.max(1));
        Self { share: if order == Order::Off { 0 } else { share }, ..Self::OFF }
    }

    /// Continues at this address.
    #[inline(always)]
    pub(crate) fn from(&mut self, at: *const E) {
        self.at = at.cast();
    }

    /// Delays the next prefetch. Two multiplications allow one line in seven cycles, the rate of a fast memory. Elements of 16
    /// bits take more instructions for each line, so that one multiplication is enough.
    #[inline(always)]
    fn wait(&mut self) {
        self.zero = later(self.zero);
        if size_of::<E>() == size_of::<f32>() {
            self.zero = later(self.zero);
        }
    }

    /// Prefetches the next lines of [`along`](Self::along).
    #[inline(always)]
    pub(crate) fn prefetch_along(&mut self) {
        for _ in 0..self.share {
            into_l2(self.at.wrapping_add(self.zero));
            self.at = self.at.wrapping_add(LINE);
            self.wait();
        }
    }

    /// Prefetches the next lines.
    #[inline(always)]
    pub(crate) fn prefetch(&mut self) {
        for _ in 0..self.share {
            into_l2(self.at.wrapping_add(self.zero));
            self.left = self.left.wrapping_sub(1);
            let distance = if self.left == 0 { self.then } else { self.step };
            self.left = if self.left == 0 { self.count } else { self.left };
            self.at = self.at.wrapping_add(distance);
            self.wait();
        }
    }
}

/// How far ahead of themselves rows that are multiplied side by side are prefetched, in bytes. Elements narrower than f32 take
/// several instructions each, so that the CPU's window of instructions holds fewer lines than memory can deliver.
pub(crate) const NEAR: usize = 4 * LINE;

/// Prefetches, of each row, the line that is `bytes` bytes behind element `i`.
#[inline(always)]
pub(crate) fn prefetch_rows<E, const R: usize>(rows: &[*const E; R], i: usize, bytes: usize) {
    for row in rows {
        prefetch(row.wrapping_add(i + bytes / size_of::<E>()));
    }
}

/// How far ahead of themselves weights in place are prefetched, in bytes: twice what is outstanding at 40 GB/s if memory takes
/// 100 ns. The hardware prefetcher alone falls behind, because there are many instructions between one line and the next,
/// above all where blocks are no multiples of lines.
pub(crate) const FAR: usize = 8192;

/// Prefetches the `bytes` bytes that are [`FAR`] behind `p`.
#[inline(always)]
pub(crate) fn prefetch_far(p: *const u8, bytes: usize) {
    prefetch_lines(p.wrapping_add(FAR), bytes);
}

/// Prefetches the lines of the `bytes` bytes at `p`.
#[inline(always)]
pub(crate) fn prefetch_lines(p: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(LINE) {
        into_l2(p.wrapping_add(line));
    }
}
