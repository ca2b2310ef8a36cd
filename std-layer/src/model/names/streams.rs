//! Tensors of models with several residual streams.

use super::*;

fn others(c: &Config) -> usize {
    c.streams.map_or(0, |streams| streams.others())
}
fn count(c: &Config) -> usize {
    c.streams.map_or(0, |streams| streams.count)
}
fn rank(c: &Config) -> usize {
    c.streams.map_or(0, |streams| streams.rank)
}

/// What a tensor of a model with several streams is called.
const fn of_streams(gguf: &'static str, hf: &'static str, dims: fn(&Config) -> Vec<usize>) -> Name {
    name(gguf, hf, dims).if_so(|c| c.streams.is_some())
}

/// What makes the streams but the first, and what joins them.
pub(in crate::model) const SPLIT: Name =
    of_streams("altup_proj.weight", "model.altup_projections.*.weight", |c| {
        vec![c.hidden, c.hidden, others(c)]
    });
pub(in crate::model) const MERGE: Name =
    of_streams("altup_unembd_proj.weight", "model.altup_unembed_projections.*.weight", |c| {
        vec![c.hidden, c.hidden, others(c)]
    });
pub(in crate::model) const STREAM_ROUTER: Name =
    of_streams("blk.{}.altup_router.weight", "model.layers.{}.altup.modality_router.weight", |c| {
        vec![c.hidden, count(c)]
    });
pub(in crate::model) const STREAM_ROUTER_NORM: Name =
    of_streams("blk.{}.altup_router_norm.weight", "model.layers.{}.altup.router_norm.weight", |c| {
        vec![c.hidden]
    });
pub(in crate::model) const PREDICT: Name =
    of_streams("blk.{}.altup_predict_coef.weight", "model.layers.{}.altup.prediction_coefs.weight", |c| {
        vec![count(c), count(c) * count(c)]
    });
pub(in crate::model) const CORRECT: Name =
    of_streams("blk.{}.altup_correct_coef.weight", "model.layers.{}.altup.correction_coefs.weight", |c| {
        vec![count(c), count(c)]
    });
pub(in crate::model) const CORRECT_SCALE: Name =
    of_streams("blk.{}.altup_correct_scale.weight", "model.layers.{}.altup.correct_output_scale", |c| {
        vec![c.hidden]
    });
/// The two matrices of low rank beside attention, and the norm behind them.
pub(in crate::model) const LOW_RANK: [Name; 2] = [
    of_streams("blk.{}.laurel_l.weight", "model.layers.{}.laurel.linear_left.weight", |c| {
        vec![c.hidden, rank(c)]
    }),
    of_streams("blk.{}.laurel_r.weight", "model.layers.{}.laurel.linear_right.weight", |c| {
        vec![rank(c), c.hidden]
    }),
];
pub(in crate::model) const LOW_RANK_NORM: Name =
    of_streams("blk.{}.laurel_post_norm.weight", "model.layers.{}.laurel.post_laurel_norm.weight", |c| {
        vec![c.hidden]
    });
