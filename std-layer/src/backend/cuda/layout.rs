//! The arena: one piece of memory for all intermediate results of a step. Results that are never needed at the same time share
//! the same place.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

/// How an operation uses an intermediate result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// It reads the result.
    Read,
    /// It overwrites everything that is read later, without reading it.
    Write,
}

/// The operations of a step, each with the intermediate results that it uses, and how.
#[derive(Clone, Debug)]
pub(super) struct Plan<K> {
    sizes: HashMap<K, usize>,
    operations: Vec<Vec<(K, Access)>>,
}

/// A place for each intermediate result.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout<K> {
    places: HashMap<K, (usize, usize)>,
    bytes: usize,
}

/// Results begin at multiples of this many bytes.
const ALIGN: usize = 256;

impl<K: Copy + Eq + Hash + Ord + Debug> Plan<K> {
    pub(super) fn new() -> Self {
        Self { sizes: HashMap::new(), operations: Vec::new() }
    }

    /// A result has `bytes` bytes, or more if an earlier operation says so.
    pub(super) fn size(&mut self, key: K, bytes: usize) {
        let size = self.sizes.entry(key).or_insert(0);
        *size = bytes.max(*size);
    }

    /// The next operation.
    pub(super) fn operation(&mut self, uses: &[(K, Access)]) {
        self.operations.push(uses.to_vec());
    }

    /// Pairs of results that are needed at the same time.
    fn conflicts(&self) -> Vec<(K, K)> {
        let (mut pairs, mut live): (Vec<(K, K)>, Vec<K>) = (Vec::new(), Vec::new());
        for uses in self.operations.iter().rev() {
            // What an operation touches, and what is needed behind it.
            let mut here = live.clone();
            here.extend(uses.iter().map(|u| u.0));
            here.sort();
            here.dedup();
            for (i, &a) in here.iter().enumerate() {
                pairs.extend(here[i + 1..].iter().map(|&b| (a, b)));
            }
            let read = |key: K| uses.contains(&(key, Access::Read));
            live =
                here.into_iter().filter(|&key| read(key) || !uses.contains(&(key, Access::Write))).collect();
        }
        pairs.sort();
        pairs.dedup();
        pairs
    }

    /// Places: the largest results first, each at the lowest address where no other is that is needed with it.
    pub(super) fn layout(&self) -> Layout<K> {
        let conflicts = self.conflicts();
        let conflict = |a: K, b: K| conflicts.binary_search(&(a.min(b), a.max(b))).is_ok();
        let mut order: Vec<(K, usize)> = self.sizes.iter().map(|(&key, &size)| (key, size)).collect();
        order.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut placed: Vec<(K, usize, usize)> = Vec::new();
        for (key, size) in order {
            let mut taken: Vec<_> = placed
                .iter()
                .filter(|p| conflict(key, p.0))
                .map(|&(_, from, size)| (from, from + size))
                .collect();
            taken.sort_unstable();
            let mut from = 0;
            for (begin, end) in taken {
                if from + size > begin {
                    from = from.max(end.next_multiple_of(ALIGN));
                }
            }
            placed.push((key, from, size));
        }
        let bytes = placed.iter().map(|&(_, from, size)| from + size).max().unwrap_or(0);
        Layout { places: placed.into_iter().map(|(key, from, size)| (key, (from, size))).collect(), bytes }
    }
}

impl<K: Copy + Eq + Hash> Layout<K> {
    /// Bytes of all results together.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where a result begins, and its bytes. One that no operation has is empty.
    pub(super) fn place(&self, key: K) -> (usize, usize) {
        self.places.get(&key).copied().unwrap_or((0, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::Access::{Read, Write};
    use super::*;

    /// Results of a chain share two places; one that is needed all the time has its own.
    #[test]
    fn results_share_memory() {
        let mut plan = Plan::new();
        for (key, bytes) in [('h', 1000), ('a', 300), ('b', 5000), ('c', 300), ('d', 4000)] {
            plan.size(key, bytes);
        }
        plan.operation(&[('h', Write)]);
        for _ in 0..2 {
            plan.operation(&[('h', Read), ('a', Write)]);
            plan.operation(&[('a', Read), ('b', Write)]);
            plan.operation(&[('b', Read), ('c', Write)]);
            plan.operation(&[('c', Read), ('d', Write)]);
            plan.operation(&[('d', Read), ('h', Read), ('h', Write)]);
        }
        let layout = plan.layout();
        let overlap = |a, b| {
            let ((a, n), (b, m)) = (layout.place(a), layout.place(b));
            a < b + m && b < a + n
        };
        assert!(overlap('b', 'd') && overlap('a', 'c'));
        for (a, b) in [('a', 'b'), ('b', 'c'), ('c', 'd'), ('h', 'a'), ('h', 'b'), ('h', 'c'), ('h', 'd')] {
            assert!(!overlap(a, b), "{a} and {b}: {layout:?}");
        }
        assert!(layout.bytes() < 1000 + 5000 + 300 + 3 * ALIGN, "{layout:?}");
        assert!("habcd".chars().all(|key| layout.place(key).0.is_multiple_of(ALIGN)));
        assert_eq!(layout.place('x'), (0, 0));
    }

    /// What is read before it is written is needed from the beginning.
    #[test]
    fn what_was_there_before_stays() {
        let mut plan = Plan::new();
        plan.size('a', 10);
        plan.size('b', 10);
        plan.operation(&[('a', Write)]);
        plan.operation(&[('a', Read), ('b', Read)]);
        let layout = plan.layout();
        assert_ne!(layout.place('a').0, layout.place('b').0);
    }
}
