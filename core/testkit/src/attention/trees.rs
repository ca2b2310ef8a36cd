//! Attention to trees of drafts, and the moves that accept a path of one.

use gllm_kernels_core::{Alibi, Element, Kernels, KvHead, KvTree, KV_BLOCK};

use super::{apart, attend, Cache, Cached, How, State};
use crate::call;
use crate::data::Source;
use crate::report::Report;
use crate::{Edge, Guarded};

/// The paths of trees of `drafts` drafts: chains, many children of one root, several roots, any.
fn paths_of(drafts: usize, shape: usize, source: &mut Source) -> Vec<u64> {
    let mut paths: Vec<u64> = Vec::new();
    for draft in 0..drafts {
        let parent = match shape {
            0 => draft.checked_sub(1),
            1 => (draft > 0).then_some(0),
            2 => draft.checked_sub(3),
            _ => source.below(draft + 1).checked_sub(1),
        };
        paths.push(parent.map_or(0, |parent: usize| paths[parent]) | 1 << draft);
    }
    paths
}

/// A draft of a tree has the bits that it has as the last token of a sequence that consists of what is before the tree and its path; and piece
/// by piece it is as close to the exact result as that is.
pub(super) fn trees<E: Element, C: Cached<E>>(
    k: &Kernels<E>,
    source: &mut Source,
    report: &mut Report,
) -> Result<(), String> {
    let shapes = [(0, 5), (3, 20), (16, 16), (27, 64), (40, 1), (45, 37)];
    for (at, (before, drafts)) in shapes.into_iter().enumerate() {
        for shape in 0..4 {
            let (dim, group) = ([16, 35, 64][(at + shape) % 3], 1 + (at + shape) % 3);
            let head = match (at + shape) % 4 {
                3 => KvHead { dim, values: dim - 4, latent: true },
                2 => KvHead { dim, values: dim + 8, latent: false },
                _ => dim.into(),
            };
            let width = head.values;
            let mut random = |n: usize, dim: usize, scale: f32| source.uniform::<f32>(n * dim, -scale, scale);
            let (keys, values) =
                (random(before + drafts, dim, 1.0), random(before + drafts, apart(head), 2.0));
            let queries = random(drafts * group, dim, 2.0);
            let each = paths_of(drafts, shape, source);
            let of_query = |query: usize| each[query / group];
            let cache = Cache::<E, C>::of(k, head, [&keys, &values])?;
            let rows = drafts * group;
            let paths: Vec<u64> = (0..rows).map(of_query).collect();
            let position = |path: u64| before + path.count_ones() as usize - 1;
            let window = [usize::MAX, 1, 4, 20][(at + 2 * shape) % 4];
            let span = |&path: &u64| [(position(path) + 1).saturating_sub(window), position(path) + 1];
            let spans: Vec<[usize; 2]> = paths.iter().map(span).collect();
            let alibi = |&path: &u64| Alibi { slope: 0.25, position: position(path) };
            let alibi: Vec<Alibi> = paths.iter().filter(|_| shape % 2 == at % 2).map(alibi).collect();
            let softcap = (at % 3 == 1).then_some(5.0);
            let tree = Some(KvTree { first: before, paths: &paths });
            let how = How { spans: &spans, softcap, alibi: &alibi, tree };
            let fail = |e: &dyn std::fmt::Display| {
                format!("tree {shape} of {drafts} drafts behind {before} positions, {head:?}: {e}")
            };
            let end = cache.blocks.len();
            let (mut whole, mut pieces) = (State::new(rows, width), State::new(rows, width));
            attend(k, &cache, &queries, how, [0, end], whole.borrow()).map_err(|e| fail(&e))?;
            for block in 0..end {
                attend(k, &cache, &queries, how, [block, block + 1], pieces.borrow())
                    .map_err(|e| fail(&e))?;
            }
            for (r, &path) in paths.iter().enumerate() {
                let chosen =
                    (0..before).chain((0..drafts).filter(|i| path >> i & 1 != 0).map(|i| before + i));
                let rows_of = |x: &[f32], n: usize| -> Vec<f32> {
                    chosen.clone().flat_map(|p| x[p * n..(p + 1) * n].to_vec()).collect()
                };
                let alone = [&rows_of(&keys, dim)[..], &rows_of(&values, apart(head))];
                let alone = Cache::<E, C>::of(k, head, alone)?;
                let (query, mut state) = (&queries[r * dim..(r + 1) * dim], State::new(1, width));
                let own = alibi.get(r..=r).unwrap_or(&[]);
                let how = How { spans: &spans[r..=r], softcap, alibi: own, tree: None };
                attend(k, &alone, query, how, [0, alone.blocks.len()], state.borrow())
                    .map_err(|e| fail(&e))?;
                let of_row = State {
                    sums: whole.sums[r..=r].to_vec(),
                    values: whole.values[r * width..(r + 1) * width].to_vec(),
                };
                if of_row.bits() != state.bits() {
                    return Err(fail(&format_args!("query {r} has other bits than behind its path alone")));
                }
                for (i, (want, allowed)) in
                    alone.want(query, spans[r], softcap, own.first()).into_iter().enumerate()
                {
                    let got = f64::from(pieces.values[r * width + i]) / f64::from(pieces.sums[r][1]);
                    let what = || fail(&format_args!("query {r}, element {i}: {got} instead of {want}"));
                    report.see((got - want).abs() / (allowed + 1e-30), 1.0, what)?;
                }
                report.cases += 1;
            }
            moved::<E, C>(k, &cache, before)?;
        }
    }
    Ok(())
}

/// What is moved to another place is all of it, and nothing else changes.
fn moved<E: Element, C: Cached<E>>(k: &Kernels<E>, cache: &Cache<E, C>, to: usize) -> Result<(), String> {
    let KvHead { dim, .. } = cache.head;
    let from = cache.keys.len() / dim - 1;
    let mut cells: Vec<C::Cell> = cache.blocks.iter().flat_map(|block| block.to_vec()).collect();
    call(|| C::relocate(k, cache.head, &mut cells, from, to)).map_err(|e| e.to_string())?;
    let len = C::len(k, cache.head).map_err(|e| e.to_string())?;
    let blocks = cells.chunks_exact(len).map(|block| Guarded::copy_of(block, Edge::End)).collect();
    let after = Cache::<E, C> { head: cache.head, blocks, keys: vec![], values: vec![] };
    let query: Vec<f32> = (0..dim).map(|i| 1.0 / (1 + i) as f32).collect();
    for place in 0..=from {
        let was = if place == to { from } else { place };
        let [mut before, mut now] = [(); 2].map(|()| State::new(1, cache.head.values));
        for (cache, place, state) in [(cache, was, &mut before), (&after, place, &mut now)] {
            let block = [place / KV_BLOCK, place / KV_BLOCK + 1];
            let spans = [[place, place + 1]];
            attend(k, cache, &query, How::plain(&spans), block, state.borrow()).map_err(|e| e.to_string())?;
        }
        if before.bits() != now.bits() {
            return Err(format!("place {place} has other bits when {from} has been moved to {to}"));
        }
    }
    Ok(())
}
