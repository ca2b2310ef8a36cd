//! Shaders: an operator each, with all that is decided when it is compiled, and their texts.

use gllm_kernels_core::RopePairing;

use super::composer::Composer;
use super::formats::{Format, PART};
use super::shapes::{CacheShape, HeadNorm, Sight, DELTA_ROWS};
use crate::model::{Gate, LinearAttention, Pooling, Recurrence};

/// A shader: an operator with all that is decided when it is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shader {
    /// Products with up to `n` rows; of pairs of a row and an expert, each with its expert's matrix. Biases may be added.
    LinearFew {
        format: Format,
        n: u32,
        lanes: u32,
        experts: bool,
        bias: bool,
    },
    /// Products with one row, in whole numbers: see [`Round`](Self::Round).
    LinearRounded {
        format: Format,
        lanes: u32,
        experts: bool,
        bias: bool,
    },
    /// Products with many rows, in f16 or f32; of pairs that were [sorted](Self::Sort) by expert, each with its expert's matrix.
    LinearMany {
        format: Format,
        experts: bool,
        f16: bool,
        bias: bool,
    },
    /// The experts of rows, with or without a bias of choosing, and factors of their own; of groups, if there are any, the best expert counts, or the best two.
    Route {
        biased: bool,
        factors: bool,
        best: bool,
    },
    /// Pairs of a row and an expert, sorted by expert.
    Sort,
    /// The row of each pair, times the pair's factor.
    Scale,
    /// What a row's experts give, summed up, with or without a network beside them, which may have a gate; and whether their factors are of what they took.
    Combine {
        shared: bool,
        gated: bool,
        scaled: bool,
    },
    /// Rows of a table. Whether the row of a token type is added to each, and whether what was there before; and whether numbers of rows are places of drafts that form trees.
    Embed {
        format: Format,
        token_type: bool,
        add: bool,
        drafts: bool,
    },
    /// Whether something is added before, and whether that is normed; whether it is a layer norm; and whether its results are the residual stream.
    Norm {
        add: bool,
        post: bool,
        layer: bool,
        stays: bool,
    },
    /// The residual stream itself; whether something is added before, and whether that is normed.
    Pass {
        add: bool,
        post: bool,
    },
    /// Norms of all queries, and of all keys, of a row.
    NormHeads,
    /// Whether there are bounds of numbers, and whether rows may be drafts that form trees, among what else models differ by.
    Heads {
        shape: CacheShape,
        bias: bool,
        bounded: bool,
        norm: Option<HeadNorm>,
        pairing: RopePairing,
        drafts: bool,
    },
    /// What is cached of rows, and their queries, with so many elements that are not rotated, where attention is latent.
    Latent {
        shape: CacheShape,
        plain: u32,
        pairing: RopePairing,
        drafts: bool,
    },
    /// Whether a workgroup has a piece of the positions, or all; whether heads have sinks, and whether they have slopes.
    Attend {
        shape: CacheShape,
        pieces: bool,
        sinks: bool,
        slopes: bool,
        sight: Sight,
    },
    Join {
        shape: CacheShape,
        drafts: bool,
    },
    /// The convolution of a recurrent layer.
    Convolve {
        of: Recurrence,
        bias: bool,
    },
    /// Keeps what the next convolution reads, where nothing follows the convolution.
    Keep {
        of: Recurrence,
    },
    /// The gated delta rule.
    Delta {
        of: LinearAttention,
    },
    /// The norm behind it.
    DeltaNorm {
        of: LinearAttention,
    },
    /// Keys and values of accepted drafts go to other places.
    Move {
        shape: CacheShape,
    },
    Glu {
        gate: Gate,
        gated: bool,
    },
    /// Gates, times numbers that lie elsewhere.
    GateBy {
        gate: Gate,
    },
    /// What is normed, added to rows.
    Sum,
    /// An operation on so many residual streams.
    Streams {
        of: OfStreams,
        count: u32,
    },
    /// Gates, few of which count.
    Sparse,
    Gather,
    /// Numbers in whole numbers of 8 bits.
    Round,
    Cap,
    Advance,
    Argmax,
    Sample,
    LogProbabilities,
    /// Rows of a text, made one.
    Pool {
        pooling: Pooling,
    },
}

/// Operations on several residual streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OfStreams {
    Split,
    Predict,
    AddLowRank,
    Correct,
    AddToOthers,
    Take,
    Merge,
}

impl OfStreams {
    /// Whether it has to do with the first stream, the others, what was predicted of the first, its norm, and what is added.
    pub(super) fn uses(self) -> [bool; 5] {
        match self {
            Self::Split => [true, true, false, false, false],
            Self::Predict => [true, true, true, false, false],
            Self::AddLowRank => [true, false, false, true, true],
            Self::Correct => [true, true, true, true, false],
            Self::AddToOthers => [false, true, false, false, true],
            Self::Take => [false, true, false, true, false],
            Self::Merge => [true, false, true, false, true],
        }
    }
}

/// Rows that are few: their products are computed without tiles, and their attention in pieces.
pub(super) const MAX_GEMV_ROWS: usize = 8;

/// Rows of a tile: of products of more rows than these.
pub(super) const TILE: usize = 32;

/// Threads of a workgroup that go along a row.
pub(super) const THREADS: usize = 64;

/// Rows of weights of a thread of [`Shader::LinearFew`]. The more there are, the fewer numbers are read; but more than a compiler keeps in
/// registers cost far more than that.
const fn rows_of_thread(n: u32) -> u32 {
    match n {
        1 | 2 => 2,
        _ => 4,
    }
}

/// Rows of weights of a thread of [`Shader::LinearRounded`].
const ROUNDED_ROWS: u32 = 4;

/// Threads that share a row of so many parts: as many as can be of which an eighth, at most, has nothing to do in the last turn. Neighbours read
/// neighbouring parts.
fn lanes(parts: u32) -> u32 {
    let idle = |lanes: &u32| 8 * (parts.next_multiple_of(*lanes) - parts) <= parts.next_multiple_of(*lanes);
    [32, 16, 8].into_iter().find(idle).unwrap_or(4)
}

impl Shader {
    /// The shader that multiplies `n` rows, rounded or not, with `rows` rows of weights, which have so many parts, and may add biases; and how
    /// many workgroups do. With experts it multiplies pairs, of which there are so many, or tiles of them if `n` rows are more than a few. Of so
    /// many rows products may be in f16, if weights are not f32, which have digits that f16 has not.
    pub(super) fn product(
        (format, parts): (Format, u32),
        [rows, n]: [usize; 2],
        [rounded, f16, bias]: [bool; 3],
        pairs: Option<usize>,
    ) -> (Self, [usize; 3]) {
        let experts = pairs.is_some();
        if n > MAX_GEMV_ROWS {
            let tiles = pairs.unwrap_or(n.div_ceil(TILE));
            let f16 = f16 && format != Format::F32;
            return (Self::LinearMany { format, experts, f16, bias }, [rows.div_ceil(64), tiles, 1]);
        }
        let (n, lanes) = (if experts { 1 } else { n.next_power_of_two() as u32 }, lanes(parts));
        let (shader, each) = if rounded {
            (Self::LinearRounded { format, lanes, experts, bias }, ROUNDED_ROWS)
        } else {
            (Self::LinearFew { format, n, lanes, experts, bias }, rows_of_thread(n))
        };
        let groups = rows.div_ceil(THREADS / lanes as usize * each as usize);
        (shader, [groups, pairs.unwrap_or(1), 1])
    }

    /// The text in WGSL, with or without operations of subgroups. `None` for a format that shaders cannot decode.
    pub(super) fn text(self, subgroups: bool) -> Option<String> {
        let mut all = Composer::default();
        all.options(&[("SUBGROUPS", subgroups)]);
        match self {
            Self::LinearFew { format, n, lanes, experts, bias } => {
                all.options(&[("EXPERTS", experts), ("BIAS", bias)]);
                all.constants(&[("N", n), ("LANES", lanes), ("ROWS", rows_of_thread(n))]);
                all.format(format)?;
                all.push(include_str!("wgsl/linear.wgsl"));
                all.push(include_str!("wgsl/linear_join.wgsl"));
                all.push(include_str!("wgsl/linear_few.wgsl"));
            }
            Self::LinearRounded { format, lanes, experts, bias } => {
                all.options(&[("ROUNDED", true), ("EXPERTS", experts), ("BIAS", bias)]);
                all.constants(&[("N", 1), ("LANES", lanes), ("ROWS", ROUNDED_ROWS)]);
                all.format(format)?;
                all.push(include_str!("wgsl/linear.wgsl"));
                all.push(include_str!("wgsl/linear_join.wgsl"));
                all.push(include_str!("wgsl/linear_rounded.wgsl"));
            }
            Self::LinearMany { format, experts, f16, bias } => {
                // Extensions stand in front of everything else.
                all.push(if f16 { "enable f16;" } else { "" });
                all.options(&[("EXPERTS", experts), ("F16", f16), ("BIAS", bias)]);
                all.format(format)?;
                all.push(include_str!("wgsl/linear.wgsl"));
                all.push(include_str!("wgsl/linear_many.wgsl"));
            }
            Self::Embed { format, token_type, add, drafts } => {
                all.options(&[("TYPE", token_type), ("ADD", add)]);
                all.format(format)?;
                all.drafts(drafts);
                all.push(include_str!("wgsl/embed.wgsl"));
            }
            Self::Norm { add, post, layer, stays } => {
                all.options(&[
                    ("ADD", add),
                    ("POST", post),
                    ("PASS", false),
                    ("SUM", false),
                    ("LAYER", layer),
                    ("STAYS", stays),
                ]);
                all.push(include_str!("wgsl/norm.wgsl"));
                all.push(include_str!("wgsl/reduce.wgsl"));
            }
            Self::Pass { add, post } => {
                all.options(&[
                    ("ADD", add),
                    ("POST", post),
                    ("PASS", true),
                    ("LAYER", false),
                    ("SUM", false),
                ]);
                all.push(include_str!("wgsl/norm.wgsl"));
                all.push(include_str!("wgsl/reduce.wgsl"));
            }
            Self::Sum => {
                all.options(&[
                    ("ADD", true),
                    ("POST", true),
                    ("PASS", true),
                    ("LAYER", false),
                    ("SUM", true),
                ]);
                all.push(include_str!("wgsl/norm.wgsl"));
                all.push(include_str!("wgsl/reduce.wgsl"));
            }
            Self::Streams { of, count } => {
                let is = |kinds: &[OfStreams]| kinds.contains(&of);
                let [hidden, others, predicted, normed, delta] = of.uses();
                let (predict, correct) = (is(&[OfStreams::Predict]), is(&[OfStreams::Correct]));
                let (low_rank, add) = (is(&[OfStreams::AddLowRank]), is(&[OfStreams::AddToOthers]));
                all.options(&[("HIDDEN", hidden), ("OTHERS", others), ("PREDICTED", predicted)]);
                all.options(&[("NORMED", normed), ("DELTA", delta), ("WEIGHT", low_rank || correct || add)]);
                all.options(&[("PREDICT", predict), ("CORRECT", correct), ("ROUTER", predict || correct)]);
                all.options(&[("LOW_RANK", low_rank), ("ADD", add), ("SPLIT", is(&[OfStreams::Split]))]);
                all.options(&[("TAKE", is(&[OfStreams::Take])), ("MERGE", is(&[OfStreams::Merge]))]);
                all.options(&[("LENGTH", hidden && !low_rank)]);
                all.constants(&[("FACTORS", if predict { count * count } else { count })]);
                all.push(include_str!("wgsl/streams.wgsl"));
                if of != OfStreams::Take {
                    all.push(include_str!("wgsl/reduce.wgsl"));
                }
            }
            Self::Sparse => {
                all.push(include_str!("wgsl/sparse.wgsl"));
                all.push(include_str!("wgsl/reduce.wgsl"));
            }
            Self::NormHeads => {
                all.push(include_str!("wgsl/norm_heads.wgsl"));
                all.push(include_str!("wgsl/reduce.wgsl"));
            }
            Self::Heads { shape, bias, bounded, norm, pairing, drafts } => {
                let of = norm.unwrap_or_default();
                all.options(&[
                    ("CENTRED", of.centred),
                    ("EACH", of.each),
                    ("BEHIND", of.behind),
                    ("VALUES", of.values),
                ]);
                let norm = norm.is_some();
                all.options(&[
                    ("BIAS", bias),
                    ("BOUNDED", bounded),
                    ("NORM", norm),
                    ("ADJACENT", pairing == RopePairing::Adjacent),
                ]);
                all.cache(shape);
                all.push(include_str!("wgsl/pages.wgsl"));
                all.push(include_str!("wgsl/cache_write.wgsl"));
                all.drafts(drafts);
                if norm {
                    all.push(include_str!("wgsl/reduce.wgsl"));
                }
                all.push(include_str!("wgsl/heads.wgsl"));
            }
            Self::Latent { shape, plain, pairing, drafts } => {
                all.options(&[("ADJACENT", pairing == RopePairing::Adjacent)]);
                all.constants(&[("PLAIN", plain), ("PLAIN_STEP", plain.next_multiple_of(PART as u32))]);
                all.cache(shape);
                all.push(include_str!("wgsl/pages.wgsl"));
                all.push(include_str!("wgsl/cache_write.wgsl"));
                all.drafts(drafts);
                all.push(include_str!("wgsl/reduce.wgsl"));
                all.push(include_str!("wgsl/latent.wgsl"));
            }
            Self::Attend { shape, pieces, sinks, slopes, sight } => {
                let (together, _) = shape.chunks();
                // So many threads have the pairs of a position.
                let split = (64 / shape.value_pairs().next_power_of_two()).max(1);
                all.constants(&[("H", together), ("SPLIT", split)]);
                all.options(&[("PARTS", pieces), ("SINKS", sinks), ("SLOPES", slopes)]);
                all.options(&[("SIGHT", sight != Sight::Before), ("WHOLE", sight == Sight::Whole)]);
                all.cache(shape);
                all.push(include_str!("wgsl/pages.wgsl"));
                all.drafts(sight == Sight::Path);
                all.push(include_str!("wgsl/cache_read.wgsl"));
                if shape.gates {
                    all.push(include_str!("wgsl/silu.wgsl"));
                }
                all.push(include_str!("wgsl/attend.wgsl"));
            }
            Self::Join { shape, drafts } => {
                all.shape(shape);
                all.drafts(drafts);
                if shape.gates {
                    all.push(include_str!("wgsl/silu.wgsl"));
                }
                all.push(include_str!("wgsl/join.wgsl"));
            }
            Self::Convolve { of, bias } => {
                all.recurrence(of);
                all.options(&[("BIAS", bias)]);
                all.push(include_str!("wgsl/silu.wgsl"));
                all.push(include_str!("wgsl/states.wgsl"));
                all.push(include_str!("wgsl/convolve.wgsl"));
                all.push(include_str!("wgsl/reduce.wgsl"));
            }
            Self::Keep { of } => {
                all.recurrence(of);
                all.push(include_str!("wgsl/states.wgsl"));
                all.push(include_str!("wgsl/keep.wgsl"));
                all.push(include_str!("wgsl/keep_alone.wgsl"));
            }
            Self::Delta { of } => {
                all.linear(of);
                all.constants(&[("SIDE", DELTA_ROWS)]);
                all.push(include_str!("wgsl/states.wgsl"));
                all.push(include_str!("wgsl/keep.wgsl"));
                all.push(include_str!("wgsl/delta.wgsl"));
            }
            Self::DeltaNorm { of } => {
                all.linear(of);
                all.push(include_str!("wgsl/delta_norm.wgsl"));
                all.push(include_str!("wgsl/reduce.wgsl"));
            }
            Self::Move { shape } => {
                all.cache(shape);
                all.push(include_str!("wgsl/move.wgsl"));
            }
            Self::Glu { gate, .. } | Self::GateBy { gate } => {
                let gated = matches!(self, Self::Glu { gated: true, .. });
                let is = |of| gate == of;
                all.options(&[("BY", matches!(self, Self::GateBy { .. }))]);
                all.options(&[("TANH", is(Gate::GeluTanh)), ("ERF", is(Gate::Gelu)), ("GATED", gated)]);
                all.options(&[("CLAMPED", is(Gate::ClampedSwiglu)), ("SQUARED", is(Gate::ReluSquared))]);
                all.options(&[("XIELU", is(Gate::Xielu))]);
                all.push(include_str!("wgsl/glu.wgsl"));
            }
            Self::Round => all.push(include_str!("wgsl/round.wgsl")),
            Self::Gather => all.push(include_str!("wgsl/gather.wgsl")),
            Self::Cap => all.push(include_str!("wgsl/cap.wgsl")),
            Self::Advance => all.push(include_str!("wgsl/advance.wgsl")),
            Self::Route { biased, factors, best } => {
                all.options(&[("BIASED", biased), ("FACTORS", factors), ("BEST", best)]);
                all.push(include_str!("wgsl/rank.wgsl"));
                all.push(include_str!("wgsl/route.wgsl"));
                all.push(include_str!("wgsl/reduce.wgsl"));
            }
            Self::Sort => all.push(include_str!("wgsl/sort.wgsl")),
            Self::Scale => all.push(include_str!("wgsl/scale.wgsl")),
            Self::Combine { shared, gated, scaled } => {
                all.options(&[("SHARED", shared), ("GATED", gated), ("SCALED", scaled)]);
                all.push(include_str!("wgsl/combine.wgsl"));
            }
            Self::Pool { pooling } => {
                let is = |of| pooling == of;
                all.options(&[("FIRST", is(Pooling::First)), ("LAST", is(Pooling::Last))]);
                all.push(include_str!("wgsl/pool.wgsl"));
                all.push(include_str!("wgsl/reduce.wgsl"));
            }
            Self::Argmax => {
                all.push(include_str!("wgsl/rank.wgsl"));
                all.push(include_str!("wgsl/largest.wgsl"));
                all.push(include_str!("wgsl/argmax.wgsl"));
            }
            Self::LogProbabilities => {
                all.push(include_str!("wgsl/rank.wgsl"));
                all.push(include_str!("wgsl/largest.wgsl"));
                all.push(include_str!("wgsl/log_probabilities.wgsl"));
                all.push(include_str!("wgsl/reduce.wgsl"));
            }
            Self::Sample => {
                all.push(include_str!("wgsl/rank.wgsl"));
                all.push(include_str!("wgsl/largest.wgsl"));
                all.push(include_str!("wgsl/sample.wgsl"));
            }
        }
        Some(all.text)
    }
}

#[cfg(test)]
#[path = "shaders_tests.rs"]
mod tests;
