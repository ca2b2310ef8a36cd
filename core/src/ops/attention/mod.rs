//! Attention over a cache of keys and values.
//!
//! The cache of one KV head is made of blocks of [`KV_BLOCK`] positions. In a block keys come first, dimension
//! by dimension with the positions side by side, so that scores of all positions are formed in the lanes of a register,
//! without sums across lanes. Values follow, position by position.
//!
//! Scores and outputs are both products of a few rows of f32 with a matrix of cached numbers: one tile does both ([`tile`]). A
//! tile reads each cached vector once for all of its rows, so heads that share keys read them once. Cached numbers are of a
//! storage type, or codes of 8 bits with scales ([`forms`]).

mod body;
pub(crate) mod forms;
pub(crate) mod tile;
mod tree;

/// Positions of a block of cached keys and values.
pub const KV_BLOCK: usize = 16;

pub(crate) use body::{append, append_q8_0, attend, attend_q8_0, join, keys, keys_q8_0};

/// The elements of a KV head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvHead {
    /// Elements of a key, and of a query.
    pub dim: usize,
    /// Elements of a value.
    pub values: usize,
    /// Whether a value is the beginning of its key, as in multi-head latent attention: blocks hold keys alone.
    pub latent: bool,
}

impl KvHead {
    /// Elements of a value that blocks hold behind the keys.
    pub(crate) fn stored(self) -> usize {
        if self.latent {
            0
        } else {
            self.values
        }
    }
}

/// A head whose values have as many elements as its keys, and are stored.
impl From<usize> for KvHead {
    fn from(dim: usize) -> Self {
        Self { dim, values: dim, latent: false }
    }
}

/// Keys and values of one KV head at consecutive positions, and which of them each query sees.
#[derive(Clone, Copy, Debug)]
pub struct KvPiece<'a, E> {
    /// Blocks, each of [`kv_block_len`](crate::Kernels::kv_block_len) elements, or of [`kv_block_len_q8_0`](crate::Kernels::kv_block_len_q8_0) bytes.
    pub blocks: &'a [&'a [E]],
    /// The position of the first block: a multiple of [`KV_BLOCK`].
    pub first: usize,
    /// For each query the positions it sees: from the first number to before the second one. Positions outside of the
    /// blocks are those of other pieces.
    pub spans: &'a [[usize; 2]],
    /// Scores become `softcap * tanh(score / softcap)`.
    pub softcap: Option<f32>,
    /// For each query by how much its scores are lowered with the distance, behind the cap; empty: not at all.
    pub alibi: &'a [Alibi],
    /// Drafts among these positions that form a tree, if there are any.
    pub tree: Option<KvTree<'a>>,
    /// Blocks that are attended to next, if that is known. They are prefetched meanwhile, and change no result.
    pub next: &'a [&'a [E]],
}

/// Drafts of a sequence as a tree: up to 64 tokens, of which each query sees those on one path from the root. Draft `i` is cached in
/// place `first + i`, where position `first + i` of a sequence without a tree would be; what is cached before `first` is the sequence
/// that all drafts continue. The position of draft `i` is `first` plus the number of drafts on the path before it, and it is positions that
/// [spans](KvPiece::spans) and [biases](KvPiece::alibi) count. Parents come before their children.
///
/// A query has the bits that it has where the drafts of its path alone follow each other in the cache, as long as a piece has all of
/// the tree's places up to the query's own.
#[derive(Clone, Copy, Debug)]
pub struct KvTree<'a> {
    /// The place of the first draft.
    pub first: usize,
    /// For each query the drafts on its path: bit `i` is draft `i`.
    pub paths: &'a [u64],
}

/// Attention with linear biases: a query at `position` has `score(p) - slope * |position - p|` in place of its score of position `p`.
/// (Press, Smith and Lewis, "Train Short, Test Long", 2022.)
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alibi {
    /// What a step of distance takes from a score.
    pub slope: f32,
    /// The query's position.
    pub position: usize,
}

/// The partial result of attention to some pieces: for each query the largest score, the sum of the exponentials relative to it,
/// and the sum of the values weighed with them.
#[derive(Debug)]
pub struct Attended<'a> {
    /// Largest scores and sums; `[-inf, 0]` where there is nothing yet.
    pub sums: &'a mut [[f32; 2]],
    /// Queries times the elements of a value.
    pub values: &'a mut [f32],
}

impl Attended<'_> {
    /// Nothing yet.
    pub fn clear(&mut self) {
        self.sums.fill([f32::NEG_INFINITY, 0.0]);
        self.values.fill(0.0);
    }
    /// A shorter borrow of the same memory.
    pub fn reborrow(&mut self) -> Attended<'_> {
        Attended { sums: self.sums, values: self.values }
    }
}

/// The arguments of [`attend`].
pub struct AttendArgs<'a, E> {
    pub(crate) rows: usize,
    pub(crate) head: KvHead,
    pub(crate) queries: *const f32,
    pub(crate) piece: KvPiece<'a, E>,
    /// Room for a score of each row and position.
    pub(crate) scores: *mut f32,
    /// Room for as many numbers as there are positions, for each row of the highest tile.
    pub(crate) room: *mut f32,
    /// Room for a value of each position, in whole vectors, if blocks hold keys alone.
    pub(crate) decoded: *mut f32,
    /// Room for the partial result of a piece: `rows` largest scores and sums, and the rows of values, in whole vectors.
    pub(crate) new: Gathered,
    pub(crate) all: Gathered,
}

/// [`Attended`], as kernels take it.
#[derive(Clone, Copy)]
pub struct Gathered {
    pub(crate) sums: *mut [f32; 2],
    pub(crate) values: *mut f32,
}

/// The arguments of [`join`].
pub struct JoinArgs {
    pub(crate) rows: usize,
    /// Elements of a value.
    pub(crate) dim: usize,
    pub(crate) all: Gathered,
    pub(crate) new: Gathered,
    /// Elements from one new row of values to the next.
    pub(crate) stride: usize,
}

/// The arguments of [`append`]: tokens at consecutive positions of one block.
pub struct AppendArgs<E> {
    pub(crate) tokens: usize,
    pub(crate) head: KvHead,
    /// The first token's place in the block.
    pub(crate) place: usize,
    pub(crate) keys: *const f32,
    /// Nothing is read if blocks hold keys alone.
    pub(crate) values: *const f32,
    /// Elements from one token's keys, or values, to the next one's.
    pub(crate) strides: [usize; 2],
    pub(crate) block: *mut E,
}

/// The arguments of [`keys`]: the keys of a block.
pub struct KeysArgs<'a, E> {
    pub(crate) head: KvHead,
    pub(crate) block: &'a [E],
    /// How many elements of each key are read.
    pub(crate) n: usize,
    /// Where those of the first position go, and how far those of each position are behind those of the one before.
    pub(crate) keys: *mut f32,
    pub(crate) stride: usize,
}
