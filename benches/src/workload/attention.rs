//! Attention of a token's queries to the cache of its sequence.

use gllm_kernels_core::{Attended, Element, Kernels, KvPiece, Op, Scratch, KV_BLOCK};

use super::produce::{Number, Operand, Produce, Want, Workload};
use super::{each_element, Case, Context, Cost, Engine, Entry, Sizes};
use crate::limits::memory::Traffic;

/// Query heads that share keys.
const GROUP: usize = 4;

/// Elements of a head, if a row is made of such; otherwise a row is one head.
const HEAD: usize = 128;

/// Blocks before they repeat.
const PERIOD: usize = 7;

/// Blocks that are attended to at a time.
const PIECE: usize = 16;

/// Heads, and their elements: whole vectors.
fn heads(n: usize) -> [usize; 2] {
    if n.is_multiple_of(HEAD) {
        [n / HEAD, HEAD]
    } else {
        [1, n.next_multiple_of(KV_BLOCK)]
    }
}

/// Queries: the same for every KV head.
fn queries(dim: usize) -> Vec<f32> {
    (0..GROUP * dim).map(|i| ((i * 37 % 101) as f32 / 50.0 - 1.0) / (dim as f32).sqrt()).collect()
}

/// `m` positions of `n` elements of keys, and as many of values.
fn build<'a, E: Element + Number>(mut c: Context<'a>) -> Box<dyn Workload + 'a> {
    let positions = c.case.shape.m;
    let [heads, dim] = heads(c.case.shape.n);
    let k: Kernels<E> = Engine::<E>::new(&c).kernels();
    let (len, blocks) = (2 * KV_BLOCK * dim, positions.div_ceil(KV_BLOCK));
    let period = PERIOD.min(heads * blocks);
    let cache = Operand::random(c.carver.take::<E>(heads * blocks * len), period * len, 1, -1.0, 1.0);
    let output = Operand { data: c.carver.take::<f32>(heads * GROUP * dim), pattern: Vec::new() };
    let q = queries(dim);
    let mut memory = vec![0; k.attend_scratch(GROUP, dim, PIECE).map_or(0, |need| need.size_unaligned())];
    Box::new(Produce {
        weights: &[],
        inputs: vec![cache],
        output,
        call: Box::new(move |x, y| {
            let all: Vec<&[E]> = x[0].data.chunks_exact(len).collect();
            for (blocks, y) in all.chunks_exact(blocks).zip(y.chunks_exact_mut(GROUP * dim)) {
                let mut sums = [[0.0; 2]; GROUP];
                let mut all = Attended { sums: &mut sums, values: y };
                all.clear();
                for (i, blocks) in blocks.chunks(PIECE).enumerate() {
                    let (first, spans) = (i * PIECE * KV_BLOCK, &[[0, positions]; GROUP]);
                    let piece = KvPiece { blocks, first, spans, softcap: None };
                    k.attend(dim, &q, piece, all.reborrow(), Scratch::new(&mut memory))?;
                }
                for (y, [_, sum]) in y.chunks_exact_mut(dim).zip(sums) {
                    y.iter_mut().for_each(|y| *y /= sum);
                }
            }
            Ok(())
        }),
        exact: Box::new(move |x| {
            let (q, mut out) = (queries(dim), Vec::new());
            let at = |block: usize, i: usize| x[0][(block * len + i) % x[0].len()];
            for (head, q) in (0..heads).flat_map(|head| q.chunks_exact(dim).map(move |q| (head, q))) {
                let block = |p: usize| head * blocks + p / KV_BLOCK;
                let score = |p: usize| {
                    let key = |i: usize| at(block(p), i * KV_BLOCK + p % KV_BLOCK);
                    q.iter().enumerate().map(|(i, &q)| f64::from(q) * key(i)).sum::<f64>()
                };
                let scores: Vec<f64> = (0..positions).map(|p| score(p).exp()).collect();
                let sum: f64 = scores.iter().sum();
                for i in 0..dim {
                    let value = |p: usize| at(block(p), (KV_BLOCK + p % KV_BLOCK) * dim + i);
                    let terms = || scores.iter().enumerate().map(|(p, s)| s / sum * value(p));
                    out.push(Want { value: terms().sum(), scale: terms().map(f64::abs).sum() });
                }
            }
            out
        }),
        // Far above what random errors reach.
        bound: 3e-5,
        kernel: None,
    })
}

fn cost(case: &Case) -> Cost {
    let [heads, dim] = heads(case.shape.n);
    let numbers = (2 * heads * dim * case.shape.m.next_multiple_of(KV_BLOCK)) as f64;
    let moved = numbers * case.size();
    Cost { flops: 2.0 * GROUP as f64 * numbers, moved, working_set: moved, traffic: Traffic::Read }
}

pub(super) static ENTRIES: &[Entry] = &[Entry {
    name: "attend",
    op: Op::Attend,
    sizes: Sizes::Rows,
    quantised: false,
    cost,
    build: each_element!(build),
    halves: true,
}];
