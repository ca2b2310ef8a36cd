//! The expanded form of latent attention: keys and values of each head, decoded from cached rows.

use gllm_kernels_core::{
    Attended, KernelError, Kernels, KvHead, KvPiece, KvTree, MatMut, MatRef, Precision, Scratch, KV_BLOCK,
};

use super::cached::Cached;
use super::product::Way;
use super::shares::{KV_PIECE, PIECE_BLOCKS, QUERIES};
use super::team::Memory;
use super::weights::Matrix;
use crate::model::LatentAttention;

/// Decodes the keys and values of a head, piece by piece, and attends to them.
pub(super) struct Expanded<'a> {
    of: LatentAttention,
    /// The rows of the cache.
    cached: KvHead,
    /// The head, and numbers of a block of it.
    head: KvHead,
    block: usize,
    /// What decodes keys, `plain x rank`, and values, `values x rank`.
    matrices: [(&'a Matrix, Way); 2],
}

impl<'a> Expanded<'a> {
    pub(super) fn new(
        k: &Kernels<f32>,
        of: LatentAttention,
        cached: KvHead,
        [keys, values]: [&'a Matrix; 2],
    ) -> Result<Self, KernelError> {
        let head = KvHead { dim: of.query(), values: of.values, latent: false };
        let way = |matrix| Ok::<_, KernelError>((matrix, Way::new(k, matrix, KV_PIECE, Precision::Fast)?));
        let matrices = [way(keys)?, way(values)?];
        Ok(Self { of, cached, head, block: k.kv_block_len(head)?, matrices })
    }

    /// Numbers that [`attend`](Self::attend) needs room for: cached rows, keys and values of a piece, and blocks of these.
    pub(super) fn room(&self) -> usize {
        KV_PIECE * (self.cached.dim + self.head.dim + self.head.values) + PIECE_BLOCKS * self.block
    }

    /// Decodes the keys and values of a piece into blocks.
    fn decode<'b, C: Cached>(
        &self,
        k: &Kernels<f32>,
        blocks: &[&[C::Cell]],
        room: &'b mut [f32],
        memory: &mut Memory,
    ) -> Result<[&'b [f32]; PIECE_BLOCKS], KernelError> {
        let LatentAttention { rank, plain, rotated, values: width, .. } = self.of;
        let (row, dim, n) = (self.cached.dim, self.head.dim, blocks.len() * KV_BLOCK);
        let (rows, room) = room.split_at_mut(KV_PIECE * row);
        let (keys, room) = room.split_at_mut(KV_PIECE * dim);
        let (values, room) = room.split_at_mut(KV_PIECE * width);
        for (block, rows) in blocks.iter().zip(rows.chunks_exact_mut(KV_BLOCK * row)) {
            C::read(self.cached, block, MatMut::new(rows, KV_BLOCK, row)?)?;
        }
        let results = [(&mut *keys, plain, dim), (&mut *values, width, width)];
        for ((matrix, way), (to, cols, stride)) in self.matrices.iter().zip(results) {
            let x = MatRef::with_strides(rows, n, rank, row, 1)?;
            let y = MatMut::with_strides(to, n, cols, stride, 1)?;
            // SAFETY: no rows are prepared.
            unsafe { way.multiply(k, (*matrix, 0), (x, None), (y, None), memory)? };
        }
        for (key, row) in keys.chunks_exact_mut(dim).zip(rows.chunks_exact(row)).take(n) {
            key[plain..].copy_from_slice(&row[rank..rank + rotated]);
        }
        let decoded = keys.chunks_exact(KV_BLOCK * dim).zip(values.chunks_exact(KV_BLOCK * width));
        let mut all: [&[f32]; PIECE_BLOCKS] = [&[]; PIECE_BLOCKS];
        let to = all.iter_mut().zip(room.chunks_exact_mut(self.block)).take(blocks.len());
        for ((keys, values), (block, room)) in decoded.zip(to) {
            let keys = MatRef::new(keys, KV_BLOCK, dim)?;
            k.kv_append(0, keys, MatRef::new(values, KV_BLOCK, width)?, room)?;
            *block = room;
        }
        Ok(all)
    }

    /// Attention of queries to a piece of the cache, added to `all`.
    pub(super) fn attend<C: Cached>(
        &self,
        k: &Kernels<f32>,
        queries: &[f32],
        piece: KvPiece<'_, C::Cell>,
        all: Attended<'_>,
        room: &mut [f32],
        memory: &mut Memory,
    ) -> Result<(), KernelError> {
        let KvPiece { first, spans, softcap, alibi, tree, .. } = piece;
        let blocks = self.decode::<C>(k, piece.blocks, room, memory)?;
        let blocks = &blocks[..piece.blocks.len()];
        let need = k.attend_scratch(QUERIES, self.head, PIECE_BLOCKS)?.size_unaligned();
        for from in (0..spans.len()).step_by(QUERIES) {
            let part = from..(from + QUERIES).min(spans.len());
            let of = |n: usize| part.start * n..part.end * n;
            let piece = KvPiece {
                blocks,
                first,
                spans: &spans[part.clone()],
                softcap,
                alibi: alibi.get(part.clone()).unwrap_or(&[]),
                tree: tree.map(|tree| KvTree { paths: &tree.paths[part.clone()], ..tree }),
                next: &[],
            };
            let all =
                Attended { sums: &mut all.sums[part.clone()], values: &mut all.values[of(self.head.values)] };
            let scratch = Scratch::new(memory.bytes(need));
            k.attend(self.head, &queries[of(self.head.dim)], piece, all, scratch)?;
        }
        Ok(())
    }
}
