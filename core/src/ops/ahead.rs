//! Asking for memory long before it is needed.
//!
//! A product spends more instructions on a cache line than the window of instructions in flight can hold
//! for as many lines as memory has under way, and rows that are multiplied side by side are not the order
//! in which memory answers fastest. So while one block of rows is multiplied, the next one is asked for,
//! in the order of this CPU's prefetcher, into the second-level cache.

use core::marker::PhantomData;

use crate::isa::machine::{into_l2, later, prefetch, LINE};

/// Rows (or columns) of a dense matrix that are walked side by side: enough pages at once for memory, and enough independent sums for
/// the multiply-add units.
pub(crate) const ROWS_SIDE_BY_SIDE: usize = 8;

/// The order in which a CPU reads memory fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// What is asked for is in a cache anyway.
    Off,
    /// One address after the other.
    Sequential,
    /// Several rows side by side.
    SideBySide,
}

/// Asks for every line of a block of rows, a few at a time.
pub(crate) struct Ahead<E> {
    at: *const u8,
    /// Lines to ask for at a time.
    share: usize,
    /// Distance to the next line, and how often it is gone before the distance is `then`.
    step: usize,
    count: usize,
    then: usize,
    left: usize,
    /// Always 0, but known only some cycles after the last time: see [`later`].
    zero: usize,
    of: PhantomData<E>,
}

impl<E> Ahead<E> {
    /// Asks for nothing.
    const OFF: Self = Self {
        at: core::ptr::null(),
        share: 0,
        step: 0,
        count: 0,
        then: 0,
        left: 0,
        zero: 0,
        of: PhantomData,
    };

    /// Will ask for `rows` rows of `cols` elements at `stride`, which need not exist, in `turns` turns.
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

    /// Will ask, while `block` rows of a matrix are multiplied from row `first` on, for as many behind them as there are.
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

    /// Will ask for as many lines as these elements have, one after the other, in so many turns: from wherever
    /// [`Self::from`] says.
    #[inline(always)]
    pub(crate) fn along(order: Order, elements: usize, turns: usize) -> Self {
        let share = (elements * size_of::<E>()).div_ceil(LINE).div_ceil(turns.max(1));
        Self { share: if order == Order::Off { 0 } else { share }, ..Self::OFF }
    }

    /// Goes on from here.
    #[inline(always)]
    pub(crate) fn from(&mut self, at: *const E) {
        self.at = at.cast();
    }

    /// Two multiplications let one line go every seven cycles, the rate of a fast memory. Narrow elements take more
    /// instructions a line, so one multiplication is enough.
    #[inline(always)]
    fn wait(&mut self) {
        self.zero = later(self.zero);
        if size_of::<E>() == size_of::<f32>() {
            self.zero = later(self.zero);
        }
    }

    /// One turn of those that go [`Self::along`].
    #[inline(always)]
    pub(crate) fn ask_along(&mut self) {
        for _ in 0..self.share {
            into_l2(self.at.wrapping_add(self.zero));
            self.at = self.at.wrapping_add(LINE);
            self.wait();
        }
    }

    /// One turn.
    #[inline(always)]
    pub(crate) fn ask(&mut self) {
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

/// How far ahead rows that are multiplied side by side ask for their own lines, in bytes. Elements narrower than f32 take several
/// instructions each, so fewer lines fit the window of instructions in flight than memory can deliver.
pub(crate) const NEAR: usize = 4 * LINE;

/// Asks for what lies so many bytes behind element `i` of each row.
#[inline(always)]
pub(crate) fn ask_near<E, const R: usize>(rows: &[*const E; R], i: usize, bytes: usize) {
    for row in rows {
        prefetch(row.wrapping_add(i + bytes / size_of::<E>()));
    }
}

/// How far ahead weights in place ask for the ones behind them, in bytes: twice what is under way at 40 GB/s if memory takes 100 ns. What
/// fetches lines by itself falls behind at the instructions between them, above all where blocks are no multiples of
/// lines.
pub(crate) const FAR: usize = 8192;

/// Asks for what lies [`FAR`] behind so many bytes.
#[inline(always)]
pub(crate) fn ask_far(p: *const u8, bytes: usize) {
    ask(p.wrapping_add(FAR), bytes);
}

/// Asks for so many bytes.
#[inline(always)]
pub(crate) fn ask(p: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(LINE) {
        into_l2(p.wrapping_add(line));
    }
}
