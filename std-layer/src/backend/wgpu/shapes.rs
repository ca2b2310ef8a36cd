//! Sizes and options of models, which shaders are made for.

use super::formats::PART;
use crate::backend::KvType;

/// The sizes that a cache's shaders are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CacheShape {
    pub(super) kind: KvType,
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    /// Pairs of elements of a head.
    pub(super) pairs: u32,
    /// Pairs of elements at the beginning of a key that are the value, if there are no others.
    pub(super) latent: Option<u32>,
    pub(super) page_tokens: u32,
    /// Whether gates of a head follow its queries.
    pub(super) gates: bool,
}

/// How heads are normed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct HeadNorm {
    /// Whether that is the layer norm.
    pub(super) centred: bool,
    /// Whether each head has weights of its own.
    pub(super) each: bool,
    /// Whether weights multiply what is rotated.
    pub(super) behind: bool,
    /// Whether values are normed, too.
    pub(super) values: bool,
}

/// Which positions of its sequence a row attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sight {
    /// Those up to its own.
    Before,
    /// Those of the whole text.
    Whole,
    /// Of those up to its own the ones on its path: some rows are drafts that form trees.
    Path,
}

/// Query heads that a workgroup of attention has at most.
const HEADS_TOGETHER: u32 = 4;

impl CacheShape {
    /// Pairs of elements of a value.
    pub(super) fn value_pairs(&self) -> u32 {
        self.latent.unwrap_or(self.pairs)
    }

    /// How far what attention gives a head is behind that of the head before: where values are latent, products take it, whose inputs end with zeros.
    pub(super) fn mixed_step(&self) -> u32 {
        self.latent.map_or(2 * self.pairs, |pairs| (2 * pairs).next_multiple_of(PART as u32))
    }

    /// Query heads of a workgroup of attention, and how many such workgroups share a KV head.
    pub(super) fn chunks(&self) -> (u32, u32) {
        let group = self.heads / self.kv_heads;
        let together = group.min(HEADS_TOGETHER);
        (together, group.div_ceil(together))
    }
}

/// Rows of the matrix of a head that a workgroup of the shader of the delta rule has.
pub(super) const DELTA_ROWS: u32 = 4;
/// Channels of a workgroup of a convolution whose channels are not divided into heads.
pub(super) const PIECE: u32 = 64;
