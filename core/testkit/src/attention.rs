//! Attention over cached blocks.

mod trees;

use gllm_kernels_core::{
    f16, Alibi, Attended, Element, KernelError, KernelInfo, Kernels, KvHead, KvPiece, KvTree, MatMut, MatRef,
    Scratch, KV_BLOCK,
};

use crate::data::Source;
use crate::numeric::{gamma, sum, wide};
use crate::report::{Outcome, Report};
use crate::{call, effort, Edge, Guarded};

/// How keys and values are cached, by kernels for `E`.
trait Cached<E: Element> {
    /// What blocks consist of.
    type Cell: Copy;
    /// Cells of a block.
    fn len(k: &Kernels<E>, head: KvHead) -> Result<usize, KernelError>;
    fn append(
        k: &Kernels<E>,
        place: usize,
        keys: MatRef<'_, f32>,
        values: MatRef<'_, f32>,
        block: &mut [Self::Cell],
    ) -> Result<(), KernelError>;
    fn attend(
        k: &Kernels<E>,
        head: KvHead,
        queries: &[f32],
        piece: KvPiece<'_, Self::Cell>,
        all: Attended<'_>,
        scratch: Scratch<'_>,
    ) -> Result<(), KernelError>;
    fn relocate(
        k: &Kernels<E>,
        head: KvHead,
        blocks: &mut [Self::Cell],
        from: usize,
        to: usize,
    ) -> Result<(), KernelError>;
    fn read(
        k: &Kernels<E>,
        head: KvHead,
        block: &[Self::Cell],
        keys: MatMut<'_, f32>,
    ) -> Result<(), KernelError>;
    /// What is kept of a row of `dim` numbers.
    fn kept(x: &[f32]) -> Vec<f64>;
    /// Roundings of a score beside those of its multiply-adds.
    const ROUNDINGS: usize;
}

/// `Cached` by these methods of core.
macro_rules! cached {
    ($by:ident, $cell:ty: $len:ident $append:ident $attend:ident $relocate:ident $read:ident, roundings $roundings:literal, $kept:expr) => {
        impl<E: Element> Cached<E> for $by {
            type Cell = $cell;
            fn len(k: &Kernels<E>, head: KvHead) -> Result<usize, KernelError> {
                k.$len(head)
            }
            fn append(
                k: &Kernels<E>,
                place: usize,
                keys: MatRef<'_, f32>,
                values: MatRef<'_, f32>,
                block: &mut [$cell],
            ) -> Result<(), KernelError> {
                k.$append(place, keys, values, block)
            }
            fn attend(
                k: &Kernels<E>,
                head: KvHead,
                queries: &[f32],
                piece: KvPiece<'_, $cell>,
                all: Attended<'_>,
                scratch: Scratch<'_>,
            ) -> Result<(), KernelError> {
                k.$attend(head, queries, piece, all, scratch)
            }
            fn relocate(
                k: &Kernels<E>,
                head: KvHead,
                blocks: &mut [$cell],
                from: usize,
                to: usize,
            ) -> Result<(), KernelError> {
                k.$relocate(head, blocks, from, to)
            }
            fn read(
                k: &Kernels<E>,
                head: KvHead,
                block: &[$cell],
                keys: MatMut<'_, f32>,
            ) -> Result<(), KernelError> {
                k.$read(head, block, keys)
            }
            fn kept(x: &[f32]) -> Vec<f64> {
                $kept(x)
            }
            const ROUNDINGS: usize = $roundings;
        }
    };
}

/// Numbers of type `E`.
struct Plain;

cached!(Plain, E: kv_block_len kv_append attend kv_move kv_keys, roundings 0, narrowed::<E>);

/// Numbers rounded to the type of the cache.
fn narrowed<E: Element>(x: &[f32]) -> Vec<f64> {
    wide(&x.iter().map(|&x| E::from_f32(x)).collect::<Vec<_>>())
}

/// 8 bits, with a scale in f16 for each 32.
struct Scaled;

// A score has a multiplication with the scale for each group, or each weight.
cached!(
    Scaled, u8: kv_block_len_q8_0 kv_append_q8_0 attend_q8_0 kv_move_q8_0 kv_keys_q8_0, roundings 10, rounded
);

/// Numbers rounded to 8 bits.
fn rounded(x: &[f32]) -> Vec<f64> {
    let group = |x: &[f32]| {
        let largest = x.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        let scale = f64::from(f16::from_f32(largest / 127.0));
        let by = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        x.iter().map(|x| f64::from((x * by).round_ties_even()) * scale).collect::<Vec<_>>()
    };
    x.chunks(32).flat_map(group).collect()
}

/// Elements of values that are not those of keys.
fn apart(head: KvHead) -> usize {
    head.values * usize::from(!head.latent)
}

/// A head's cache, and the numbers in it.
struct Cache<E: Element, C: Cached<E>> {
    head: KvHead,
    blocks: Vec<Guarded<C::Cell>>,
    keys: Vec<f64>,
    values: Vec<f64>,
}

impl<E: Element, C: Cached<E>> Cache<E, C> {
    /// Random keys and values at `positions` positions.
    fn new(k: &Kernels<E>, head: KvHead, positions: usize, source: &mut Source) -> Result<Self, String> {
        let mut random = |n: usize, scale: f32| source.uniform::<f32>(positions * n, -scale, scale);
        Self::of(k, head, [&random(head.dim, 1.0), &random(apart(head), 2.0)])
    }

    /// These keys, and these values if they are not elements of keys, appended in groups of several sizes. What is behind them is NaN.
    fn of(k: &Kernels<E>, head: KvHead, rows: [&[f32]; 2]) -> Result<Self, String> {
        let KvHead { dim, values: width, latent } = head;
        let positions = rows[0].len() / dim;
        // What is appended last ends at an inaccessible page.
        let [keys, values] = rows.map(|rows| Guarded::copy_of(rows, Edge::End));
        let len = C::len(k, head).map_err(|e| e.to_string())?;
        let edge = |i: usize| Edge::BOTH[i % 2];
        let mut blocks: Vec<_> =
            (0..positions.div_ceil(KV_BLOCK)).map(|i| Guarded::poisoned(len, edge(i))).collect();
        let (mut at, mut step) = (0, 1);
        while at < positions {
            let place = at % KV_BLOCK;
            let n = step.min(KV_BLOCK - place).min(positions - at);
            let rows = |x, cols| MatRef::with_strides(x, n, cols, cols, 1);
            let (key, value) = (&keys[at * dim..], &values[at * apart(head)..]);
            let block = &mut blocks[at / KV_BLOCK];
            call(|| C::append(k, place, rows(key, dim)?, rows(value, apart(head))?, block))
                .map_err(|e| e.to_string())?;
            (at, step) = (at + n, step % 7 + 2);
        }
        if blocks.iter().any(|block| !block.intact()) {
            return Err("tokens were appended outside of the block".into());
        }
        let kept = |x: &[f32], n| -> Vec<f64> { x.chunks_exact(n).flat_map(C::kept).collect() };
        let keys = kept(&keys, dim);
        let values = match latent {
            true => keys.chunks_exact(dim).flat_map(|key| key[..width].to_vec()).collect(),
            false => kept(&values, width),
        };
        Ok(Self { head, blocks, keys, values })
    }

    /// What the first query of `queries` gets, element by element, and what it may be wrong by.
    fn want(
        &self,
        query: &[f32],
        [from, end]: [usize; 2],
        softcap: Option<f32>,
        alibi: Option<&Alibi>,
    ) -> Vec<(f64, f64)> {
        let (dim, width) = (self.head.dim, self.head.values);
        let mut error: f64 = 0.0;
        let scores: Vec<f64> = (from..end)
            .map(|p| {
                let key = &self.keys[p * dim..(p + 1) * dim];
                let (s, magnitudes) = sum(query.iter().zip(key).map(|(&q, k)| f64::from(q) * k));
                let s = softcap.map_or(s, |cap| f64::from(cap) * (s / f64::from(cap)).tanh());
                let lower = alibi.map_or(0.0, |of| f64::from(of.slope) * of.position.abs_diff(p) as f64);
                // The difference is rounded once.
                let rounding =
                    if alibi.is_some() { f64::from(f32::EPSILON) * (s - lower).abs() } else { 0.0 };
                error = error.max(gamma(dim + 1 + C::ROUNDINGS, magnitudes) + rounding);
                s - lower
            })
            .collect();
        if let Some(cap) = softcap {
            error += 6.0 * f64::from(f32::EPSILON) * f64::from(cap);
        }
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|w| *w /= total);
        // Of exponentials, of the two sums, and of joining pieces.
        let range = scores.iter().map(|s| largest - s).fold(0.0, f64::max);
        let relative = 2.0 * error
            + gamma(2 * (end - from) + 40 + C::ROUNDINGS, 1.0)
            + 4.0 * range * f64::from(f32::EPSILON);
        (0..width)
            .map(|i| {
                let terms = weights.iter().zip(from..end).map(|(w, p)| w * self.values[p * width + i]);
                let (value, magnitudes) = sum(terms);
                (value, relative * magnitudes)
            })
            .collect()
    }
}

/// Sums and values of some queries.
#[derive(Clone, PartialEq)]
struct State {
    sums: Vec<[f32; 2]>,
    values: Vec<f32>,
}

impl State {
    fn new(rows: usize, dim: usize) -> Self {
        let mut state = Self { sums: vec![[1.0; 2]; rows], values: vec![1.0; rows * dim] };
        state.borrow().clear();
        state
    }
    fn borrow(&mut self) -> Attended<'_> {
        Attended { sums: &mut self.sums, values: &mut self.values }
    }
    fn bits(&self) -> Vec<u32> {
        self.sums.iter().flatten().chain(&self.values).map(|x| x.to_bits()).collect()
    }
}

/// What queries see, and how.
#[derive(Clone, Copy)]
struct How<'a> {
    spans: &'a [[usize; 2]],
    softcap: Option<f32>,
    alibi: &'a [Alibi],
    tree: Option<KvTree<'a>>,
}

impl<'a> How<'a> {
    fn plain(spans: &'a [[usize; 2]]) -> Self {
        Self { spans, softcap: None, alibi: &[], tree: None }
    }
}

/// Attention of `queries` to the blocks from `first` to before `end`.
fn attend<E: Element, C: Cached<E>>(
    k: &Kernels<E>,
    cache: &Cache<E, C>,
    queries: &[f32],
    How { spans, softcap, alibi, tree }: How<'_>,
    [first, end]: [usize; 2],
    to: Attended<'_>,
) -> Result<(), KernelError> {
    let all: Vec<&[C::Cell]> = cache.blocks.iter().map(|block| &block[..]).collect();
    let (blocks, next) = (&all[first..end], &all[end..]);
    let need = k.attend_scratch(spans.len(), cache.head, blocks.len())?.size_unaligned();
    let mut memory = vec![0xff; need];
    let piece = KvPiece { blocks, first: first * KV_BLOCK, spans, softcap, alibi, tree, next };
    call(|| C::attend(k, cache.head, queries, piece, to, Scratch::new(&mut memory)))
}

/// `attend`, `attend_join` and `kv_append`.
pub fn attention<E: Element>(row: &KernelInfo) -> Outcome {
    every_shape::<E, Plain>(row)
}

/// `attend_q8_0`, `attend_join` and `kv_append_q8_0`.
pub fn attention_q8_0<E: Element>(row: &KernelInfo) -> Outcome {
    codes::<E>(row)?;
    every_shape::<E, Scaled>(row)
}

/// What is appended in 8 bits stands for the numbers that it must stand for, bit by bit: a query of one and zeros, which sees one
/// position, gets a value by its scale alone.
fn codes<E: Element>(row: &KernelInfo) -> Result<(), String> {
    let k = Kernels::<E>::forced(row.level).map_err(|e| e.to_string())?;
    for (dim, largest) in [(4, 1.0), (33, 1e-3), (64, 3e4), (100, 1e-30), (32, 0.0)] {
        let x: Vec<f32> = (0..dim).map(|i| largest * (i as f32 - dim as f32 / 2.0) / dim as f32).collect();
        let rows = MatRef::new(&x, 1, dim).map_err(|e| e.to_string())?;
        let mut block = vec![0xff; k.kv_block_len_q8_0(dim).map_err(|e| e.to_string())?];
        k.kv_append_q8_0(5, rows, rows, &mut block).map_err(|e| e.to_string())?;
        let cache = Cache::<E, Scaled> {
            head: dim.into(),
            blocks: vec![Guarded::copy_of(&block, Edge::End)],
            keys: vec![],
            values: vec![],
        };
        let mut state = State::new(1, dim);
        attend(&k, &cache, &vec![0.0; dim], How::plain(&[[5, 6]]), [0, 1], state.borrow())
            .map_err(|e| e.to_string())?;
        let want = <Scaled as Cached<E>>::kept(&x);
        let same = |(&got, &want): (&f32, &f64)| f64::from(got) == want;
        if state.sums != [[0.0, 1.0]] || !state.values.iter().zip(&want).all(same) {
            return Err(format!("{x:?} is kept as {:?} instead of {want:?}", state.values));
        }
    }
    // A group that is not finite is NaN, and the others are not.
    let x: Vec<f32> = (0..64).map(|i| if i == 40 { f32::INFINITY } else { 1.0 }).collect();
    let mut block = vec![0; k.kv_block_len_q8_0(64).map_err(|e| e.to_string())?];
    let rows = MatRef::new(&x, 1, 64).map_err(|e| e.to_string())?;
    k.kv_append_q8_0(0, rows, rows, &mut block).map_err(|e| e.to_string())?;
    let cache = Cache::<E, Scaled> {
        head: 64.into(),
        blocks: vec![Guarded::copy_of(&block, Edge::End)],
        keys: vec![],
        values: vec![],
    };
    let query: Vec<f32> = (0..64).map(|i| if i < 32 { 1.0 } else { 0.0 }).collect();
    let mut state = State::new(1, 64);
    attend(&k, &cache, &query, How::plain(&[[0, 1]]), [0, 1], state.borrow()).map_err(|e| e.to_string())?;
    match state.sums[0][1].is_nan() {
        true => Ok(()),
        false => Err("an infinity among the keys is not to be seen".into()),
    }
}

/// Every shape of queries, spans and pieces.
fn every_shape<E: Element, C: Cached<E>>(row: &KernelInfo) -> Outcome {
    let k = Kernels::<E>::forced(row.level).map_err(|e| e.to_string())?;
    let (mut source, mut report) = (Source::new(31), Report::BOUND);
    let dims = [16, 35, 64, 100, 80, 256, 1, 120].into_iter().take(2 + 2 * effort()).map(KvHead::from);
    let latent = [(48, 33), (40, 40), (576, 512)].map(|(dim, values)| KvHead { dim, values, latent: true });
    let other = [(40, 33), (24, 70), (192, 128)].map(|(dim, values)| KvHead { dim, values, latent: false });
    let heads = dims
        .chain([latent, other].into_iter().flat_map(|heads| heads.into_iter().take(1 + 2 * effort().min(1))));
    for (head, positions) in heads.flat_map(|head| [1, 16, 31, 33, 100].map(|n| (head, n))) {
        let (dim, width) = (head.dim, head.values);
        let cache = Cache::<E, C>::new(&k, head, positions, &mut source)?;
        read_back(&k, &cache)?;
        for rows in [1, 2, 3, 4, 5, 7, 12, 13, 31] {
            // Such that large scores are some ten apart.
            let queries =
                Guarded::copy_of(&source.uniform::<f32>(rows * dim, -2.0, 2.0), Edge::BOTH[rows % 2]);
            let softcap = (rows % 3 == 2).then_some(5.0);
            let mut span = |row: usize| match row % 4 {
                // All, a causal end, a window, anything.
                0 => [0, positions],
                1 => [0, positions - row.min(positions - 1)],
                2 => [positions.saturating_sub(20), positions],
                _ => {
                    let from = source.below(positions);
                    [from, from + 1 + source.below(positions - from)]
                }
            };
            let spans: Vec<[usize; 2]> = (0..rows).map(&mut span).collect();
            let fail =
                |e: &dyn std::fmt::Display| format!("{rows} queries of {head:?}, {positions} positions: {e}");
            let end = cache.blocks.len();
            // Queries before, among and behind what they see.
            let alibi = |row: usize| Alibi { slope: 0.5f32.powi(row as i32 % 8), position: 13 * row % 117 };
            let alibi: Vec<Alibi> = (0..if rows % 4 < 2 { rows } else { 0 }).map(alibi).collect();
            let how = How { spans: &spans, softcap, alibi: &alibi, tree: None };
            let mut whole = State::new(rows, width);
            attend(&k, &cache, &queries, how, [0, end], whole.borrow()).map_err(|e| fail(&e))?;
            // Piece by piece, and joined: both have the same bits.
            let (mut one_by_one, mut joined) = (State::new(rows, width), State::new(rows, width));
            for block in 0..end {
                let piece = [block, block + 1];
                attend(&k, &cache, &queries, how, piece, one_by_one.borrow()).map_err(|e| fail(&e))?;
                let mut part = State::new(rows, width);
                attend(&k, &cache, &queries, how, piece, part.borrow()).map_err(|e| fail(&e))?;
                call(|| k.attend_join(width, joined.borrow(), part.borrow())).map_err(|e| fail(&e))?;
            }
            if one_by_one.bits() != joined.bits() {
                return Err(fail(&"pieces that are joined have other bits"));
            }
            for (r, &span) in spans.iter().enumerate() {
                let query = &queries[r * dim..(r + 1) * dim];
                let wants = cache.want(query, span, softcap, alibi.get(r));
                for (i, (want, allowed)) in wants.into_iter().enumerate() {
                    for (how, state) in [("at once", &whole), ("piece by piece", &joined)] {
                        let got = f64::from(state.values[r * width + i]) / f64::from(state.sums[r][1]);
                        let what =
                            || fail(&format_args!("{how}, query {r}, element {i}: {got} instead of {want}"));
                        report.see((got - want).abs() / (allowed + 1e-30), 1.0, what)?;
                    }
                }
                // A query alone has the same bits.
                let mut alone = State::new(1, width);
                let how = How { spans: &[span], softcap, alibi: alibi.get(r..=r).unwrap_or(&[]), tree: None };
                attend(&k, &cache, query, how, [0, end], alone.borrow()).map_err(|e| fail(&e))?;
                let of_row = State {
                    sums: whole.sums[r..=r].to_vec(),
                    values: whole.values[r * width..(r + 1) * width].to_vec(),
                };
                if alone.bits() != of_row.bits() {
                    return Err(fail(&format_args!("query {r} has other bits alone")));
                }
                report.cases += 1;
            }
        }
    }
    trees::trees::<E, C>(&k, &mut source, &mut report)?;
    refusals::<E, C>(&k, &mut source)?;
    Ok(report)
}

/// Keys are read as they were kept, all of their elements or the first of them, and nothing is written behind these.
fn read_back<E: Element, C: Cached<E>>(k: &Kernels<E>, cache: &Cache<E, C>) -> Result<(), String> {
    let dim = cache.head.dim;
    for n in [dim, dim / 2, dim - dim / 9] {
        for (block, keys) in cache.blocks.iter().zip(cache.keys.chunks(KV_BLOCK * dim)) {
            // Rows that are three numbers apart, the last of which ends at an inaccessible page.
            let mut got = Guarded::copy_of(&vec![7.0; (KV_BLOCK - 1) * (n + 3) + n], Edge::End);
            let rows = MatMut::with_strides(&mut got, KV_BLOCK, n, n + 3, 1);
            call(|| C::read(k, cache.head, block, rows?)).map_err(|e| e.to_string())?;
            for (place, (got, key)) in got.chunks(n + 3).zip(keys.chunks_exact(dim)).enumerate() {
                let same = |(&got, &want): (&f32, &f64)| f64::from(got) == want;
                let (got, gap) = got.split_at(n);
                if !got.iter().zip(key).all(same) || gap.iter().any(|&x| x != 7.0) {
                    return Err(format!(
                        "{:?}: key {place} is read as {got:?} instead of {key:?}",
                        cache.head
                    ));
                }
            }
        }
    }
    Ok(())
}

/// What has to be refused.
fn refusals<E: Element, C: Cached<E>>(k: &Kernels<E>, source: &mut Source) -> Result<(), String> {
    let cache = Cache::<E, C>::new(k, 16.into(), 20, source)?;
    let blocks: Vec<&[C::Cell]> = cache.blocks.iter().map(|block| &block[..]).collect();
    let (short, queries, mut memory) = ([blocks[0], &blocks[1][1..]], [0.0; 32], [0; 4096]);
    let spans = &[[0, 20]; 2];
    let good = KvPiece { blocks: &blocks, first: 0, spans, softcap: None, alibi: &[], tree: None, next: &[] };
    let refused = |what: &str, piece: KvPiece<'_, C::Cell>, head: KvHead, rows: usize, memory: &mut [u8]| {
        let mut state = State::new(rows, 16);
        match C::attend(k, head, &queries, piece, state.borrow(), Scratch::new(memory)) {
            Err(_) if state.bits() == State::new(rows, 16).bits() => Ok(()),
            _ => Err(format!("{what} was accepted, or results were changed")),
        }
    };
    refused("a short block", KvPiece { blocks: &short, ..good }, 16.into(), 2, &mut memory)?;
    refused("few spans", KvPiece { spans: &[[0, 20]], ..good }, 16.into(), 2, &mut memory)?;
    let alibi = &[Alibi { slope: 1.0, position: 0 }];
    refused("few biases", KvPiece { alibi, ..good }, 16.into(), 2, &mut memory)?;
    let tree = Some(KvTree { first: 3, paths: &[1] });
    refused("few paths", KvPiece { tree, ..good }, 16.into(), 2, &mut memory)?;
    refused("an odd position", KvPiece { first: 8, ..good }, 16.into(), 2, &mut memory)?;
    refused("another dimension", good, 8.into(), 2, &mut memory)?;
    refused("few sums", good, 16.into(), 1, &mut memory)?;
    refused("little scratch", good, 16.into(), 2, &mut memory[..64])?;
    let latent = |dim, values| KvHead { dim, values, latent: true };
    let longer = KvHead { dim: 16, values: 17, latent: false };
    refused("blocks with values of another length", good, longer, 2, &mut memory)?;
    refused("blocks with values for keys alone", good, latent(16, 16), 2, &mut memory)?;
    refused("more values than elements of a key", good, latent(16, 17), 2, &mut memory)?;
    let mut block = cache.blocks[0].to_vec();
    let x = [0f32; 64];
    let append = |place, rows, cols, block: &mut [C::Cell]| {
        let x = MatRef::new(&x, rows, cols)?;
        C::append(k, place, x, x, block)
    };
    let mut keys = [0f32; 16 * 20];
    let mut read = |head: KvHead, [rows, cols, stride]: [usize; 3], block: &[C::Cell]| {
        C::read(k, head, block, MatMut::with_strides(&mut keys, rows, cols, stride, 1)?)
    };
    let reads = [
        read(16.into(), [15, 16, 16], &block),
        read(16.into(), [16, 17, 17], &block),
        read(16.into(), [16, 16, 16], &block[1..]),
        read(8.into(), [16, 8, 8], &block),
        read(latent(16, 17), [16, 16, 16], &block),
    ];
    if let Some(i) = reads.iter().position(Result::is_ok) {
        return Err(format!("kv_keys accepted case {i}"));
    }
    let results =
        [append(15, 2, 16, &mut block), append(0, 2, 16, &mut block[1..]), append(0, 2, 24, &mut block)];
    if let Some(i) = results.iter().position(Result::is_ok) {
        return Err(format!("kv_append accepted case {i}"));
    }
    let moves = [
        C::relocate(k, 16.into(), &mut block, 0, 16),
        C::relocate(k, 16.into(), &mut block, 16, 0),
        C::relocate(k, 16.into(), &mut block[1..], 0, 1),
        C::relocate(k, 0.into(), &mut block, 0, 0),
    ];
    match moves.iter().position(Result::is_ok) {
        Some(i) => Err(format!("kv_move accepted case {i}")),
        None => Ok(()),
    }
}
