//! Attention of a token's queries to the cache of its sequence.

use gllm_kernels_core::{
    f16, Attended, Element, KernelError, Kernels, KvHead, KvPiece, MatRef, Op, Scratch, KV_BLOCK,
};

use super::produce::{Number, Operand, Produce, Want, Workload};
use super::{each_element, Case, Context, Cost, Engine, Entry, Sizes};
use crate::limits::memory::Traffic;

/// Query heads that share keys.
const GROUP: usize = 4;

/// The same of latent attention.
const LATENT_GROUP: usize = 16;

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

/// A row of latent attention: a ninth of its elements are no elements of the value. DeepSeek's have 576.
fn latent(n: usize) -> KvHead {
    let dim = n.next_multiple_of(KV_BLOCK);
    KvHead { dim, values: dim - dim / 9, latent: true }
}

/// Queries: the same for every KV head.
fn queries(group: usize, dim: usize) -> Vec<f32> {
    (0..group * dim).map(|i| ((i * 37 % 101) as f32 / 50.0 - 1.0) / (dim as f32).sqrt()).collect()
}

/// What attention reads: heads and their elements, positions.
#[derive(Clone, Copy)]
struct Shape {
    heads: usize,
    /// Query heads that share keys.
    group: usize,
    head: KvHead,
    positions: usize,
}

impl Shape {
    fn of(c: &Context<'_>) -> Self {
        let [heads, dim] = heads(c.case.shape.n);
        Self { heads, group: GROUP, head: dim.into(), positions: c.case.shape.m }
    }

    /// Of latent attention.
    fn latent(c: &Context<'_>) -> Self {
        let head = latent(c.case.shape.n);
        Self { heads: 1, group: LATENT_GROUP, head, positions: c.case.shape.m }
    }

    /// Elements of all results.
    fn results(self) -> usize {
        self.heads * self.group * self.head.values
    }

    /// Blocks of a head.
    fn blocks(self) -> usize {
        self.positions.div_ceil(KV_BLOCK)
    }

    /// Blocks of all heads before they repeat.
    fn period(self) -> usize {
        PERIOD.min(self.heads * self.blocks())
    }

    /// Calls `attend` for all pieces of all heads, whose blocks have `len` cells.
    fn call<C>(
        self,
        (cache, len): (&[C], usize),
        y: &mut [f32],
        mut attend: impl FnMut(KvPiece<'_, C>, Attended<'_>) -> Result<(), KernelError>,
    ) -> Result<(), KernelError> {
        let all: Vec<&[C]> = cache.chunks_exact(len).collect();
        let (group, width) = (self.group, self.head.values);
        for (blocks, y) in all.chunks_exact(self.blocks()).zip(y.chunks_exact_mut(group * width)) {
            let mut sums = [[0.0; 2]; LATENT_GROUP];
            let sums = &mut sums[..group];
            let mut all = Attended { sums, values: y };
            all.clear();
            for (i, piece) in blocks.chunks(PIECE).enumerate() {
                let (first, spans) = (i * PIECE * KV_BLOCK, &[[0, self.positions]; LATENT_GROUP][..group]);
                let next = blocks.chunks(PIECE).nth(i + 1).unwrap_or(&[]);
                attend(
                    KvPiece { blocks: piece, first, spans, softcap: None, alibi: &[], tree: None, next },
                    all.reborrow(),
                )?;
            }
            for (y, [_, sum]) in y.chunks_exact_mut(width).zip(sums) {
                y.iter_mut().for_each(|y| *y /= *sum);
            }
        }
        Ok(())
    }

    /// What comes out. `key` and `value` give element `i` at a place of a block of the first period.
    fn exact(
        self,
        key: impl Fn(usize, usize, usize) -> f64,
        value: impl Fn(usize, usize, usize) -> f64,
    ) -> Vec<Want> {
        let (q, mut out) = (queries(self.group, self.head.dim), Vec::new());
        for (head, q) in
            (0..self.heads).flat_map(|head| q.chunks_exact(self.head.dim).map(move |q| (head, q)))
        {
            let block = |p: usize| (head * self.blocks() + p / KV_BLOCK) % self.period();
            let score = |p: usize| {
                q.iter().enumerate().map(|(i, &q)| f64::from(q) * key(block(p), i, p % KV_BLOCK)).sum::<f64>()
            };
            let scores: Vec<f64> = (0..self.positions).map(|p| score(p).exp()).collect();
            let sum: f64 = scores.iter().sum();
            for i in 0..self.head.values {
                let weighed = |(p, s): (usize, &f64)| s / sum * value(block(p), i, p % KV_BLOCK);
                let terms = || scores.iter().enumerate().map(weighed);
                out.push(Want { value: terms().sum(), scale: terms().map(f64::abs).sum() });
            }
        }
        out
    }
}

/// Far above what random errors reach.
const BOUND: f64 = 3e-5;

/// `m` positions of `n` elements of keys, and as many of values.
fn build<'a, E: Element + Number>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    let shape = Shape::of(&c);
    build_of::<E>(c, shape)
}

/// `m` positions of `n` elements, of which the first ones are the value, too.
fn build_latent<'a, E: Element + Number>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    let shape = Shape::latent(&c);
    build_of::<E>(c, shape)
}

fn build_of<'a, E: Element + Number>(mut c: Context<'a>, shape: Shape) -> Box<dyn Workload + 'a> {
    let Shape { heads, group, head, .. } = shape;
    let dim = head.dim;
    let k: Kernels<E> = Engine::<E>::new(&c).kernels();
    let len = k.kv_block_len(head).expect("heads are small");
    let memory = c.carver.take::<E>(heads * shape.blocks() * len);
    let cache = Operand::random(memory, shape.period() * len, 1, -1.0, 1.0);
    let output = Operand { data: c.carver.take::<f32>(shape.results()), pattern: Vec::new() };
    let q = queries(group, dim);
    let mut memory = vec![0; k.attend_scratch(group, head, PIECE).map_or(0, |need| need.size_unaligned())];
    Box::new(Produce {
        weights: &[],
        inputs: vec![cache],
        output,
        call: Box::new(move |x, y| {
            shape.call((&*x[0].data, len), y, |piece, all| {
                k.attend(head, &q, piece, all, Scratch::new(&mut memory))
            })
        }),
        exact: Box::new(move |x| {
            let key = |block: usize, i: usize, place: usize| x[0][block * len + i * KV_BLOCK + place];
            let value =
                |block: usize, i: usize, place: usize| x[0][block * len + (KV_BLOCK + place) * dim + i];
            match head.latent {
                true => shape.exact(key, key),
                false => shape.exact(key, value),
            }
        }),
        bound: BOUND,
        kernel: None,
    })
}

/// The same in 8 bits.
fn build_q8_0<'a, E: Element + Number>(mut c: Context<'a>) -> Box<dyn Workload + 'a> {
    let shape = Shape::of(&c);
    let Shape { heads, group, head, .. } = shape;
    let dim = head.dim;
    let k: Kernels<E> = Engine::<E>::new(&c).kernels();
    let len = k.kv_block_len_q8_0(dim).expect("heads are small");
    // Rounded numbers are multiples of a 127th: what is kept of them is what they are, but for the scale.
    let number = move |block: usize, i: usize| ((block * 31 + i * 37) % 255) as f32 / 127.0 - 1.0;
    let mut first = vec![0u8; shape.period() * len];
    for (b, block) in first.chunks_exact_mut(len).enumerate() {
        let [keys, values] =
            [0, 17].map(|of| (0..KV_BLOCK * dim).map(|i| number(b + of, i)).collect::<Vec<f32>>());
        let rows = |x| MatRef::new(x, KV_BLOCK, dim);
        rows(&keys)
            .and_then(|keys| k.kv_append_q8_0(0, keys, rows(&values)?, block))
            .expect("a block of whole heads");
    }
    let cache = c.carver.take::<u8>(heads * shape.blocks() * len);
    for part in cache.chunks_mut(first.len().max(1)) {
        part.copy_from_slice(&first[..part.len()]);
    }
    let cache: &'a [u8] = cache;
    let output = Operand { data: c.carver.take::<f32>(shape.results()), pattern: Vec::new() };
    let q = queries(group, dim);
    let mut memory = vec![0; k.attend_scratch(group, head, PIECE).map_or(0, |need| need.size_unaligned())];
    Box::new(Produce::<f32, f32> {
        weights: cache,
        inputs: Vec::new(),
        output,
        call: Box::new(move |_, y| {
            shape.call((cache, len), y, |piece, all| {
                k.attend_q8_0(head, &q, piece, all, Scratch::new(&mut memory))
            })
        }),
        exact: Box::new(move |_| {
            let (values, groups) = (KV_BLOCK * dim, dim.div_ceil(32));
            let number = |block: usize, code: usize, group: usize, place: usize| {
                let block = &first[block * len..(block + 1) * len];
                let scale = 2 * values + 2 * (group * KV_BLOCK + place);
                let scale = f16::from_le_bytes([block[scale], block[scale + 1]]);
                f64::from(block[code] as i8) * f64::from(scale.to_f32())
            };
            let key = |block, i: usize, place| number(block, i * KV_BLOCK + place, i / 32, place);
            let value =
                |block, i: usize, place| number(block, values + place * dim + i, groups + i / 32, place);
            shape.exact(key, value)
        }),
        bound: BOUND,
        kernel: None,
    })
}

fn cost(case: &Case) -> Cost {
    of(case, case.size())
}

/// Cost of reading rows of latent attention, each of which serves scores and sums.
fn cost_latent(case: &Case) -> Cost {
    let head = latent(case.shape.n);
    let rows = case.shape.m.next_multiple_of(KV_BLOCK) as f64;
    let moved = rows * head.dim as f64 * case.size();
    let outputs = (LATENT_GROUP * head.values * size_of::<f32>()) as f64;
    let flops = 2.0 * LATENT_GROUP as f64 * rows * (head.dim + head.values) as f64;
    Cost { flops, moved, working_set: moved + outputs, traffic: Traffic::Read }
}

/// Codes of a byte, and two bytes for each 32.
fn cost_q8_0(case: &Case) -> Cost {
    of(case, 34.0 / 32.0)
}

/// Cost of reading a cache whose numbers take so many bytes. Outputs are small beside it unless there are few positions.
fn of(case: &Case, number: f64) -> Cost {
    let [heads, dim] = heads(case.shape.n);
    let numbers = (2 * heads * dim * case.shape.m.next_multiple_of(KV_BLOCK)) as f64;
    let outputs = (GROUP * heads * dim * size_of::<f32>()) as f64;
    let moved = numbers * number;
    Cost { flops: 2.0 * GROUP as f64 * numbers, moved, working_set: moved + outputs, traffic: Traffic::Read }
}

pub(super) static ENTRIES: &[Entry] = &[
    Entry {
        name: "attend",
        op: Op::Attend,
        sizes: Sizes::Rows,
        quantised: false,
        cost,
        build: each_element!(build),
        halves: true,
    },
    Entry {
        name: "attend_latent",
        op: Op::Attend,
        sizes: Sizes::Rows,
        quantised: false,
        cost: cost_latent,
        build: each_element!(build_latent),
        halves: true,
    },
    Entry {
        name: "attend_q8_0",
        op: Op::AttendQ8_0,
        sizes: Sizes::Rows,
        quantised: false,
        cost: cost_q8_0,
        build: each_element!(build_q8_0),
        halves: false,
    },
];
