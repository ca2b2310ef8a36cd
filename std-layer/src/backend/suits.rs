//! Which models the kinds of backends can run, by their configurations alone. All errors are `Unsupported`.

use super::BackendError;
use crate::model::{Config, KvHeads, Norm, Recurrence, Scoring};

/// Refuses with the first of these reasons that applies.
fn refuse<const N: usize>(reasons: [(bool, String); N]) -> Result<(), BackendError> {
    match reasons.into_iter().find(|(applies, _)| *applies) {
        Some((_, why)) => Err(BackendError::Unsupported(why)),
        None => Ok(()),
    }
}

/// Refuses models with parts that kernels for GPUs do not have.
fn check_for_gpus(config: &Config) -> Result<(), BackendError> {
    let groups = config.experts.and_then(|experts| experts.groups).map_or(0, |groups| groups.count);
    // Norms of all heads together come first there.
    let bounded = config.attention_clamp.is_some() && config.qk_norm_whole;
    let mixed = config.experts.is_some_and(|experts| experts.scoring == Scoring::SparseMixer);
    refuse([
        (mixed, "experts that are scored one after the other (Phi 3.5) on a GPU".to_owned()),
        (groups > 32, format!("{groups} groups of experts on a GPU: there may be 32")),
        (bounded, "bounds of queries and keys that are normed as a whole on a GPU".to_owned()),
    ])
}

/// Refuses models with parts or sizes that the kernels of CUDA and ROCm do not have.
pub(super) fn check_for_cuda(config: &Config) -> Result<(), BackendError> {
    check_for_gpus(config)?;
    let latent = config.latent_attention;
    let most = latent.map_or(512, |_| 576);
    let of_eight = |what: &str, n: usize| {
        let why = format!("{what} of {n} elements on a GPU: they must be a multiple of 8");
        (!n.is_multiple_of(8), why)
    };
    let of_heads = |(_, KvHeads { count, dim })| {
        let (keys, wide) = (count * dim, latent.is_none() && dim > 256);
        refuse([
            (
                dim > most || !dim.is_multiple_of(2),
                format!("heads of {dim} elements on a GPU: they must be even, at most {most}"),
            ),
            (
                wide && (config.attention_softcap.is_some() || config.alibi_slope(0).is_some()),
                format!("caps of scores, or linear biases, with heads of {dim} elements on a GPU: with 256 at most"),
            ),
            (
                !keys.is_multiple_of(4),
                format!("keys of {keys} elements on a GPU: they must be a multiple of 4"),
            ),
            of_eight("the queries of a token", config.heads * dim),
        ])
    };
    let (keys_of_states, values, all_values) = match config.recurrence {
        Some(Recurrence::Linear(of)) => (of.key_size, of.value_size, of.values()),
        _ => (0, 0, 0),
    };
    let states =
        format!("linear attention with heads of {keys_of_states} and {values} elements on a GPU: at most 128, the first and all of the second a multiple of 4");
    let taps = config.recurrence.as_ref().map_or(2, Recurrence::taps);
    refuse([(config.streams.is_some(), "several residual streams through CUDA or ROCm".to_owned())])?;
    let odd_network =
        config.layer.iter().filter_map(|layer| layer.intermediate).find(|n| !n.is_multiple_of(8));
    let expert = config.experts.map_or(0, |experts| experts.intermediate);
    let shared = config.experts.and_then(|experts| experts.shared);
    refuse([
        (
            keys_of_states.max(values) > 128
                || !(keys_of_states.is_multiple_of(4) && all_values.is_multiple_of(8)),
            states,
        ),
        (!(2..=8).contains(&taps), format!("convolutions of {taps} tokens on a GPU: of 2 to 8")),
        of_eight("the residual stream", config.hidden),
        of_eight("the feed-forward network", odd_network.unwrap_or(config.intermediate)),
        of_eight("the network beside experts", shared.map_or(0, |shared| shared.intermediate)),
        of_eight("an expert's feed-forward network", expert),
        of_eight("embeddings for a layer", config.per_layer.unwrap_or(0)),
        of_eight("what is not rotated of a query", latent.map_or(0, |latent| latent.plain)),
        of_eight("latent rows", latent.map_or(0, |latent| latent.rank)),
        of_eight("what a head of latent attention gives", latent.map_or(0, |latent| latent.values)),
        of_eight("the latent row of queries", latent.and_then(|latent| latent.query_rank).unwrap_or(0)),
    ])?;
    config.kinds().into_iter().try_for_each(of_heads)
}

/// Refuses models with parts that the shaders of wgpu do not have.
pub(super) fn check_for_wgpu(config: &Config) -> Result<(), BackendError> {
    check_for_gpus(config)?;
    let others = config.norm == Norm::Layer && config.post_norms;
    let n = config.per_layer.unwrap_or(0);
    let per_layer =
        format!("embeddings for a layer of {n} elements through wgpu: they must be a multiple of 32");
    let given = if config.latent_attention.is_some() { config.mixed() } else { 0 };
    let (hidden, rank) = config.streams.map_or((0, 0), |of| (config.hidden, of.rank));
    let streams = format!("several residual streams of {hidden} elements, with matrices of rank {rank} beside attention, through wgpu: both must be a multiple of 32");
    let latent = format!("{given} numbers of latent attention through wgpu: they must be a multiple of 32");
    refuse([
        (others, "layer norms of what is added to the residual stream through wgpu".to_owned()),
        (!n.is_multiple_of(32), per_layer),
        (!given.is_multiple_of(32), latent),
        (!(hidden.is_multiple_of(32) && rank.is_multiple_of(32)), streams),
    ])
}
