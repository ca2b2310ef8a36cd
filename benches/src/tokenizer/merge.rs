//! Merging neighbouring symbols, the best pair first: what both kinds of BPE have in common.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No neighbour.
const NONE: usize = usize::MAX;

/// A piece of the text and its neighbours.
struct Symbol {
    start: usize,
    /// Bytes; 0 once it is part of its left neighbour.
    len: usize,
    left: usize,
    right: usize,
}

/// Merges the characters of `text` until no pair of neighbours can be merged, and calls `emit` with what they became, in order.
///
/// `priority(pair, len)` says how good it is to merge the first `len` bytes of `pair` with the rest, or that they cannot be merged.
/// Larger priorities come first, and of equal ones the leftmost.
pub(super) fn merge<'t, P: Ord>(
    text: &'t str,
    priority: impl Fn(&str, usize) -> Option<P>,
    mut emit: impl FnMut(&'t str),
) {
    let mut symbols: Vec<Symbol> = text
        .char_indices()
        .enumerate()
        .map(|(i, (start, c))| Symbol { start, len: c.len_utf8(), left: i.wrapping_sub(1), right: i + 1 })
        .collect();
    let Some(last) = symbols.last_mut() else { return };
    last.right = NONE;

    // Of each pair: its priority, the index of its left symbol, that of its right symbol, and its length.
    let mut queue = BinaryHeap::new();
    let pair = |symbols: &[Symbol], left: usize, right: usize| {
        let (l, r) = (symbols.get(left)?, symbols.get(right)?);
        let len = l.len + r.len;
        priority(&text[l.start..l.start + len], l.len).map(|p| (p, Reverse(left), right, len))
    };
    queue.extend((1..symbols.len()).filter_map(|i| pair(&symbols, i - 1, i)));
    while let Some((_, Reverse(left), right, len)) = queue.pop() {
        // Pairs of which a symbol has changed since are out of date.
        if symbols[left].len == 0 || symbols[right].len == 0 || symbols[left].len + symbols[right].len != len
        {
            continue;
        }
        symbols[left].len = len;
        symbols[right].len = 0;
        let next = symbols[right].right;
        symbols[left].right = next;
        if let Some(next) = symbols.get_mut(next) {
            next.left = left;
        }
        queue.extend(pair(&symbols, symbols[left].left, left));
        queue.extend(pair(&symbols, left, next));
    }
    for symbol in symbols.iter().filter(|s| s.len > 0) {
        emit(&text[symbol.start..symbol.start + symbol.len]);
    }
}
