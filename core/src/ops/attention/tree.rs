//! Trees of drafts: the scores of a query's path stand side by side while they become exponentials, as if no other drafts were cached.

use super::KvTree;

/// Drafts of a tree, at most.
const MOST: usize = u64::BITS as usize;

/// How a query sees the columns of a piece.
#[derive(Clone, Copy)]
pub(super) struct Branch {
    /// The position of the first column, when the drafts of the query's path have been gathered.
    pub(super) first: usize,
    /// Columns that are no drafts: those before the tree.
    before: usize,
    /// Columns that are drafts, and which of them are on the path.
    drafts: usize,
    path: u64,
}

/// Words whose lowest `n` bits are set.
fn lowest(n: usize) -> u64 {
    u64::MAX.checked_shr(MOST.saturating_sub(n) as u32).unwrap_or(0)
}

impl Branch {
    /// Of a query to a piece of `columns` that begins in place `first`.
    #[inline(always)]
    pub(super) fn of(tree: Option<KvTree<'_>>, query: usize, first: usize, columns: usize) -> Self {
        let all = Self { first, before: columns, drafts: 0, path: 0 };
        let Some(tree) = tree else { return all };
        let Some(&path) = tree.paths.get(query) else { return all };
        // Drafts in earlier pieces.
        let passed = first.saturating_sub(tree.first);
        let before = tree.first.saturating_sub(first);
        if passed >= MOST || before >= columns {
            return all;
        }
        let drafts = (MOST - passed).min(columns - before);
        let position =
            if passed == 0 { first } else { tree.first + (path & lowest(passed)).count_ones() as usize };
        Self { first: position, before, drafts, path: path >> passed & lowest(drafts) }
    }

    /// The columns that a query with this span sees, when the drafts of its path have been gathered.
    #[inline(always)]
    pub(super) fn seen(&self, span: [usize; 2]) -> [usize; 2] {
        let end = self.before + self.path.count_ones() as usize;
        span.map(|position| position.saturating_sub(self.first).min(end))
    }

    /// Where the columns end that hold what a query sees, if `end` is the end of those that it sees when they have been gathered.
    #[inline(always)]
    pub(super) fn reach(&self, end: usize) -> usize {
        if end <= self.before {
            return end;
        }
        self.before + MOST - self.path.leading_zeros() as usize
    }

    /// Brings the scores of the drafts on the path together, behind those before the tree.
    ///
    /// # Safety
    /// There is a score for each column.
    #[inline(always)]
    pub(super) unsafe fn gather(&self, scores: *mut f32) {
        let (mut left, mut to) = (self.path, self.before);
        while left != 0 {
            // SAFETY: the caller's contract: drafts of the path are columns, and `to` is none behind them.
            unsafe { *scores.add(to) = *scores.add(self.before + left.trailing_zeros() as usize) };
            to += 1;
            left &= left - 1;
        }
    }

    /// Brings what became of these scores back to their columns, from column `start` on; the other drafts get zeros.
    ///
    /// # Safety
    /// The contract of [`gather`](Self::gather).
    #[inline(always)]
    pub(super) unsafe fn scatter(&self, scores: *mut f32, start: usize) {
        let mut from = self.before + self.path.count_ones() as usize;
        for draft in (0..self.drafts).rev() {
            let on_path = self.path >> draft & 1 != 0;
            from -= usize::from(on_path);
            // SAFETY: the caller's contract. What is still to be brought back stands before this column.
            unsafe {
                *scores.add(self.before + draft) =
                    if on_path && from >= start { *scores.add(from) } else { 0.0 };
            }
        }
    }
}
