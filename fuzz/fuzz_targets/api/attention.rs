//! Attention to blocks of any contents, and what is appended to them.

use gllm_kernels_core::{
    Alibi, Attended, Element, KernelError, Kernels, KvHead, KvPiece, KvTree, MatMut, MatRef, Op, Scratch,
    KV_BLOCK,
};
use gllm_testkit::Guarded;

use crate::{Agree, Call, Values};

/// Runs `op` if it is one of these.
pub fn run<E: Element>(call: &Call, op: Op) -> bool {
    let how = Shape::of(call);
    match op {
        Op::Attend => {
            let len = |k: &Kernels<E>| k.kv_block_len(how.head);
            let blocks = how.blocks(call, len, |salt, n| call.vector::<E>(salt, n));
            how.attend::<E, E>(call, &blocks, |k, q, piece, all, scratch| {
                k.attend(how.head, q, piece, all, scratch)
            });
            how.read::<E, E>(call, &blocks, |k, block, keys| k.kv_keys(how.head, block, keys));
            how.append::<E, E>(call, E::ZERO, len, |k, x, v, block| k.kv_append(how.place, x, v, block));
        }
        Op::AttendQ8_0 => {
            let len = |k: &Kernels<E>| k.kv_block_len_q8_0(how.head);
            let bytes = |salt, n| {
                let bytes: Vec<u8> = call.integers::<i8>(salt, n).iter().map(|&b| b as u8).collect();
                Guarded::copy_of(&bytes, call.edge())
            };
            let blocks = how.blocks(call, len, bytes);
            how.attend::<E, u8>(call, &blocks, |k, q, piece, all, scratch| {
                k.attend_q8_0(how.head, q, piece, all, scratch)
            });
            how.read::<E, u8>(call, &blocks, |k, block, keys| k.kv_keys_q8_0(how.head, block, keys));
            how.append::<E, u8>(call, 0, len, |k, x, v, block| k.kv_append_q8_0(how.place, x, v, block));
        }
        _ => return false,
    }
    true
}

/// Heads, queries and blocks: right ones, or absurd ones.
struct Shape {
    head: KvHead,
    rows: usize,
    blocks: usize,
    first: usize,
    place: usize,
    spans: Vec<[usize; 2]>,
}

impl Shape {
    fn of(call: &Call) -> Self {
        let absurd = call.option(7);
        let rows = usize::from(call.dims[1] % 40);
        let dim = if absurd { call.sizes[0].get() } else { usize::from(call.dims[0]) };
        let span =
            |r: usize| [0, 1].map(|i| call.sizes[(r + i) % 4].get() % if absurd { usize::MAX } else { 300 });
        Self {
            head: KvHead { dim, values: if call.option(2) { dim / 2 } else { dim }, latent: call.option(3) },
            rows,
            blocks: usize::from(call.dims[2] % 7),
            first: if call.option(6) {
                call.sizes[1].get()
            } else {
                KV_BLOCK * usize::from(call.dims[3] % 4)
            },
            place: usize::from(call.dims[3]) % (KV_BLOCK + 2),
            spans: (0..call.lengths[1].of(rows)).map(span).collect(),
        }
    }

    /// Blocks of the right length, or nearly so.
    fn blocks<E: Element, C: Copy>(
        &self,
        call: &Call,
        len: impl Fn(&Kernels<E>) -> Result<usize, KernelError>,
        fill: impl Fn(u64, usize) -> Guarded<C>,
    ) -> Vec<Guarded<C>> {
        let right = len(&call.kernels::<E>()[0]).unwrap_or(0).min(1 << 14);
        (0..self.blocks)
            .map(|b| fill(b as u64 + 2, if b == 0 { call.lengths[0].of(right) } else { right }))
            .collect()
    }

    /// Attention on both levels; values and sums that are no numbers may differ.
    fn attend<E: Element, C: Copy>(
        &self,
        call: &Call,
        blocks: &[Guarded<C>],
        run: impl Fn(&Kernels<E>, &[f32], KvPiece<'_, C>, Attended<'_>, Scratch<'_>) -> Result<(), KernelError>,
    ) {
        let queries =
            call.vector::<f32>(1, call.lengths[3].of(self.rows.saturating_mul(self.head.dim).min(1 << 16)));
        let blocks: Vec<&[C]> = blocks.iter().map(|block| &block[..]).collect();
        let softcap = call.option(5).then(|| call.numbers[0].get());
        let (slope, position) = (call.numbers[1].get(), self.first);
        let alibi = vec![Alibi { slope, position }; if call.option(6) { self.rows } else { 0 }];
        let paths =
            vec![
                self.spans.iter().fold(0, |path, span| path ^ (span[1] as u64) << 32 ^ span[0] as u64);
                self.rows
            ];
        let tree = call.option(4).then_some(KvTree { first: call.sizes[2].get(), paths: &paths });
        let n = self.rows.saturating_mul(self.head.values).min(1 << 16);
        // Exponentials of scores that differ in their last bits, of any size.
        call.twice::<E, f32>(n, Some(&vec![0.0; n]), Agree::No, |k, values| {
            let need =
                k.attend_scratch(self.rows, self.head, blocks.len()).map_or(0, |need| need.size_unaligned());
            let mut memory = Guarded::<u8>::poisoned(call.lengths[2].of(need.min(1 << 22)), call.edge());
            let mut sums = vec![[f32::NEG_INFINITY, 0.0]; self.rows];
            let piece = KvPiece {
                blocks: &blocks,
                first: self.first,
                spans: &self.spans,
                softcap,
                alibi: &alibi,
                tree,
                next: &blocks,
            };
            run(k, &queries, piece, Attended { sums: &mut sums, values }, Scratch::new(&mut memory))
        });
    }

    /// The keys of a block on both levels, some or all of their elements.
    fn read<E: Element, C: Copy>(
        &self,
        call: &Call,
        blocks: &[Guarded<C>],
        run: impl Fn(&Kernels<E>, &[C], MatMut<'_, f32>) -> Result<(), KernelError>,
    ) {
        let n = self.head.dim.min(1 << 10) >> (self.first / KV_BLOCK % 2);
        let Some(block) = blocks.first() else { return };
        let len = call.lengths[2].of(KV_BLOCK * n);
        call.twice::<E, f32>(len, Some(&vec![0.0; len]), Agree::Exactly, |k, keys| {
            run(k, block, MatMut::new(keys, KV_BLOCK, n)?)
        });
    }

    /// Tokens on both levels, which give the same bits, unless they are no numbers.
    fn append<E: Element, C: Copy + std::fmt::Debug + PartialEq>(
        &self,
        call: &Call,
        zero: C,
        len: impl Fn(&Kernels<E>) -> Result<usize, KernelError>,
        run: impl Fn(&Kernels<E>, MatRef<'_, f32>, MatRef<'_, f32>, &mut [C]) -> Result<(), KernelError>,
    ) {
        let (tokens, dim) = (usize::from(call.dims[2]) % (KV_BLOCK + 1), self.head.dim.min(1 << 10));
        if dim != self.head.dim {
            return;
        }
        let x = call.vector::<f32>(1, tokens * dim);
        // Blocks of keys alone take values without columns.
        let values = if self.head.latent { 0 } else { self.head.values };
        let (Ok(x), Ok(v)) = (MatRef::new(&x, tokens, dim), MatRef::new(&x, tokens, values)) else { return };
        let len = call.lengths[0].of(len(&call.kernels::<E>()[0]).unwrap_or(0));
        let before = vec![zero; len];
        let wild = matches!(call.values, Values::Wild);
        call.compare(
            call.kernels::<E>(),
            len,
            Some(&before),
            |a, b| a == b,
            |a, b| wild || a == b,
            |k, block| run(k, x, v, block),
        );
    }
}
