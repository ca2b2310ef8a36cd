//! The rows of a step, and how attention of them goes: by which kernels, and in which pieces.

use std::ops::Range;

use crate::cuda::geometry::{kv_begin, kv_pieces, KV_PIECE};
use crate::cuda::Prefill;
use crate::model::{Config, Pooling};

/// Rows that attention takes at a time, so that its pieces find room.
pub(super) const ATTENTION_ROWS: usize = 64;
/// Rows of a sequence from which on attention is worth the kernels for many queries.
const MIN_TENSOR_ROWS: usize = 16;

/// A run's rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunRows {
    pub(super) index: usize,
    pub(super) row: usize,
    pub(super) tokens: usize,
    /// The sequence's row of the page tables.
    pub(super) slot: usize,
    /// Whether its tokens are drafts that form a tree.
    pub(super) drafts: bool,
}

/// The rows of a step.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) rows: usize,
    pub(super) outputs: usize,
    /// Pieces of attention that the longest sequence has, or more.
    pub(super) pieces: usize,
    /// Whether activations stay in f32.
    pub(super) exact: bool,
    /// Whether the cache's numbers have 16 bits.
    pub(super) narrow_cache: bool,
    /// Whether the step is recorded, or started as it was.
    pub(super) recorded: bool,
    /// None in a step that is recorded: it is started with other runs, too.
    pub(super) runs: Vec<RunRows>,
    /// How each run becomes one row, if the step gives no logits.
    pub(super) pooling: Option<Pooling>,
}

/// How rows that stand side by side are attended to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way<'a> {
    /// In pieces, in f32.
    Pieces,
    /// In pieces, on tensor cores if there are kernels for single queries there: in numbers of 16 bits.
    Tiles,
    /// A run at once, by the kernels for many queries.
    Run(&'a RunRows),
}

impl Rows {
    /// Rows and columns of what the step gives.
    pub(super) fn results(&self, config: &Config) -> (usize, usize) {
        match self.pooling {
            None => (self.outputs, config.logits()),
            Some(_) => (self.runs.len(), config.hidden),
        }
    }

    /// Pieces of attention of wide heads, and tokens of each. If sums may depend on how many rows there are: pieces of half as many tokens as elsewhere, or of many rows,
    /// which make blocks enough, two.
    pub(super) fn wide_pieces(&self) -> (usize, usize) {
        let tokens = kv_begin(self.pieces, KV_PIECE);
        // The first pieces have a fourth of the others' tokens.
        let piece = match (self.exact, self.rows <= ATTENTION_ROWS) {
            (true, _) => KV_PIECE,
            (false, true) => KV_PIECE / 2,
            (false, false) => 4 * tokens.div_ceil(2),
        };
        (kv_pieces(tokens, piece), piece)
    }

    /// How attention of rows goes, neighbours that go one way together. A run goes its own way, whatever else is in the step: numbers of 16 bits are for fast
    /// paths, whose caches have as many.
    pub(super) fn ways(&self, config: &Config, dim: usize) -> Vec<(Range<usize>, Way<'_>)> {
        let narrow = !self.exact && self.narrow_cache;
        let in_pieces = || if narrow { Way::Tiles } else { Way::Pieces };
        if self.runs.is_empty() {
            return vec![(0..self.rows, in_pieces())];
        }
        let mut ways: Vec<(Range<usize>, Way<'_>)> = Vec::new();
        for run in &self.runs {
            let rows = run.row..run.row + run.tokens;
            // The kernels for many queries know no trees, no caps, and no wide heads.
            let many = run.tokens >= MIN_TENSOR_ROWS && !run.drafts && dim <= Prefill::MOST;
            let way = match many && narrow && config.attention_softcap.is_none() {
                true => Way::Run(run),
                false => in_pieces(),
            };
            match (ways.last_mut(), &way) {
                (Some((before, Way::Tiles)), Way::Tiles) | (Some((before, Way::Pieces)), Way::Pieces) => {
                    before.end = rows.end;
                }
                _ => ways.push((rows, way)),
            }
        }
        ways
    }
}
