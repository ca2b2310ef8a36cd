//! How the attention of a step is divided into chunks.
//!
//! The positions of a sequence are cut into pieces of [`KV_PIECE`] positions, whatever steps they come from. The partial result
//! of a query and a piece depends on that piece alone, and partial results are joined in the order of their pieces. So no bit
//! of the result depends on the number of threads, the size of pages, or the number of tokens in a step. (Which form latent
//! attention takes does depend on the tokens of a step, unless it is to be exact.)

use std::ops::Range;

use gllm_kernels_core::{KvHead, KV_BLOCK};

use crate::model::{Config, KvHeads, LatentAttention};

/// Positions of a piece.
pub(super) const KV_PIECE: usize = 256;
pub(super) const PIECE_BLOCKS: usize = KV_PIECE / KV_BLOCK;

/// About how many queries attend together. Their scores and the keys of a piece stay in L2.
pub(super) const QUERIES: usize = 48;

/// If there are fewer chunks of attention than this for each thread, each piece becomes a chunk of its own.
const CHUNKS_PER_THREAD: usize = 4;

/// Fewest and most tokens of a chunk of expanded latent attention. Each chunk decodes keys and values anew, and has room for the results of all of its tokens.
const EXPANDED_TOKENS: [usize; 2] = [256, 4096];

/// Consecutive tokens of a sequence, or drafts that form a tree.
#[derive(Clone, Debug)]
pub(super) struct TokenRun {
    /// The first token's row.
    pub(super) row: usize,
    pub(super) tokens: usize,
    /// Where in the sequence the first token is cached, and its position.
    pub(super) first: usize,
    /// Of each draft those on the path to it; empty if the tokens are consecutive.
    pub(super) paths: Vec<u64>,
}

impl TokenRun {
    /// A token's position.
    pub(super) fn position(&self, token: usize) -> usize {
        self.first + self.paths.get(token).map_or(token, |path| path.count_ones() as usize - 1)
    }

    /// The positions of all tokens of some runs.
    pub(super) fn positions(runs: &[Self]) -> Vec<u32> {
        runs.iter().flat_map(|run| (0..run.tokens).map(|token| run.position(token) as u32)).collect()
    }
}

/// A chunk of attention: some tokens of a run, for the queries of a KV head.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) run: usize,
    pub(super) head: usize,
    /// Tokens, counted in the run.
    pub(super) tokens: Range<usize>,
    pub(super) pieces: Range<usize>,
    /// Where in the memory for partial results its results go, unless they are complete.
    pub(super) partial: Option<usize>,
}

/// What tokens see.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    /// How many positions up to a token's own, and as many from it on unless `causal`; `None`: all.
    pub(super) window: Option<usize>,
    /// Whether a token's own position is the last one that it sees. Otherwise that is the last one of the step, or of the window.
    pub(super) causal: bool,
}

impl Sight {
    /// The positions that a token of a run sees.
    pub(super) fn of(self, run: &TokenRun, token: usize) -> [usize; 2] {
        let position = run.position(token);
        let from = self.window.map_or(0, |w| (position + 1).saturating_sub(w));
        let behind = if self.causal { 1 } else { self.window.unwrap_or(usize::MAX) };
        [from, position.saturating_add(behind).min(run.first + run.tokens)]
    }

    /// Where in the sequence what some tokens of a run see is cached. No draft is cached before its position.
    pub(super) fn of_all(self, run: &TokenRun, tokens: &Range<usize>) -> [usize; 2] {
        let from = tokens.clone().map(|token| self.of(run, token)[0]).min().unwrap_or(0);
        let behind = if self.causal { 1 } else { self.window.unwrap_or(usize::MAX) };
        [from, run.first + (tokens.end - 1).saturating_add(behind).min(run.tokens)]
    }
}

/// The chunks of attention, for layers with the same window.
#[derive(Debug)]
pub(super) struct Shares {
    pub(super) sight: Sight,
    pub(super) heads: Heads,
    pub(super) chunks: Vec<Chunk>,
    /// For each row, the partial results of each of its KV heads. Empty if the results of chunks are complete.
    pub(super) joins: Vec<Vec<Join>>,
    /// Elements of memory for partial results.
    pub(super) partial_len: usize,
    /// Which chunk behind the one that a thread does is probably its next one.
    pub(super) next: usize,
}

/// The partial results of a row and a KV head, each `step` elements behind the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Join {
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) step: usize,
    /// Queries of each partial result.
    pub(super) queries: usize,
    /// The row's first one among them.
    pub(super) query: usize,
}

/// Numbers and sizes of heads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub(super) kv_heads: usize,
    /// Queries of a token that share a KV head.
    pub(super) group: usize,
    /// A KV head, as it is attended to.
    pub(super) head: KvHead,
    /// How many heads the cache has, and what they are like: other ones if keys and values of each head are decoded from the rows of latent attention.
    pub(super) cached: (usize, KvHead),
    /// How far a head's queries are behind those of the head before. Gates lie between them, if there are any.
    pub(super) step: usize,
}

impl Heads {
    pub(super) fn of(config: &Config, KvHeads { count, dim }: KvHeads) -> Self {
        let (head, step) = (config.kv_head(dim), config.query_step(dim));
        Self { kv_heads: count, group: config.heads / count, head, cached: (count, head), step }
    }

    /// These heads, in which latent attention has been expanded to keys and values of each of `heads` heads.
    pub(super) fn expanded(self, heads: usize, of: &LatentAttention) -> Self {
        let head = KvHead { dim: of.query(), values: of.values, latent: false };
        Self { kv_heads: heads, group: 1, head, step: of.query(), ..self }
    }

    /// Whether keys and values are decoded from what the cache has.
    fn are_expanded(&self) -> bool {
        self.head != self.cached.1
    }

    /// The head of the cache that has the keys and values of this one, or what they are decoded from.
    pub(super) fn cached_at(&self, head: usize) -> usize {
        head * self.cached.0 / self.kv_heads
    }

    /// The queries, and their gates, of the heads of a token that share a KV head.
    pub(super) fn queries_of<'a>(
        &self,
        row: &'a [f32],
        head: usize,
    ) -> impl Iterator<Item = (&'a [f32], &'a [f32])> {
        let (dim, len) = (self.head.dim, self.group * self.step);
        row[head * len..][..len].chunks_exact(self.step).map(move |both| both.split_at(dim))
    }
}

impl Shares {
    pub(super) fn new(sight: Sight, runs: &[TokenRun], heads: Heads, threads: usize) -> Self {
        let parts = (threads * CHUNKS_PER_THREAD).div_ceil(heads.kv_heads);
        let [least, most] = EXPANDED_TOKENS;
        let step_of = |run: &TokenRun| match heads.are_expanded() {
            true if threads > 1 => run.tokens.div_ceil(parts).clamp(least, most),
            true => most,
            false => (QUERIES / heads.group).max(1),
        };
        let chunks: usize = runs.iter().map(|run| run.tokens.div_ceil(step_of(run)) * heads.kv_heads).sum();
        let split = chunks < threads * CHUNKS_PER_THREAD && threads > 1 && !heads.are_expanded();
        let (mut chunks, mut partial_len) = (Vec::new(), 0);
        let rows = runs.iter().map(|run| run.row + run.tokens).max().unwrap_or(0);
        let mut joins = vec![Vec::new(); if split { rows } else { 0 }];
        for (run, of) in runs.iter().enumerate() {
            let step = step_of(of);
            for first in (0..of.tokens).step_by(step) {
                let tokens = first..(first + step).min(of.tokens);
                let [from, end] = sight.of_all(of, &tokens);
                let pieces = from / KV_PIECE..end.div_ceil(KV_PIECE);
                for head in 0..heads.kv_heads {
                    let work =
                        Chunk { run, head, tokens: tokens.clone(), pieces: pieces.clone(), partial: None };
                    if !split {
                        chunks.push(work);
                        continue;
                    }
                    let queries = tokens.len() * heads.group;
                    let each = queries * (heads.head.values + 2);
                    for t in tokens.clone() {
                        let query = (t - tokens.start) * heads.group;
                        let join =
                            Join { first: partial_len, count: pieces.len(), step: each, queries, query };
                        joins[of.row + t].push(join);
                    }
                    for piece in pieces.clone() {
                        chunks.push(Chunk {
                            pieces: piece..piece + 1,
                            partial: Some(partial_len),
                            ..work.clone()
                        });
                        partial_len += each;
                    }
                }
            }
        }
        // The longest chunks come first, so that no thread is left with one at the end.
        if !split {
            chunks.sort_by_key(|work| std::cmp::Reverse(work.pieces.len()));
        }
        Self { sight, heads, chunks, joins, partial_len, next: threads }
    }

    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Whether the results of chunks are partial and have to be joined.
    pub(super) fn is_split(&self) -> bool {
        !self.joins.is_empty()
    }
}

/// Tokens of a run that are in the same block of the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockTokens {
    pub(super) run: usize,
    pub(super) row: usize,
    pub(super) tokens: usize,
    /// Where in the sequence the first of them is cached.
    pub(super) first: usize,
}

impl BlockTokens {
    /// The tokens of some runs, block by block.
    pub(super) fn of(runs: &[TokenRun]) -> Vec<Self> {
        let mut all = Vec::new();
        for (run, of) in runs.iter().enumerate() {
            let mut token = 0;
            while token < of.tokens {
                let first = of.first + token;
                let n = (KV_BLOCK - first % KV_BLOCK).min(of.tokens - token);
                all.push(Self { run, row: of.row + token, tokens: n, first });
                token += n;
            }
        }
        all
    }
}
