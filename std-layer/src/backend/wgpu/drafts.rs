//! Trees of drafts: what their tokens see, and where keys and values of those that are accepted go.

use std::iter::{repeat, repeat_n};

use wgpu::{BindGroup, Buffer};

use super::cache::{Kind, LayerKind, WgpuKvCache};
use super::device::Gpu;
use super::mirror::Mirror;
use super::shaders::{Shader, THREADS};
use super::shapes::Sight;
use crate::backend::{BackendError, Topology};
use crate::model::{PositionCopy, SequenceId, Tree};

/// What rows of a step see, and the words that tell it for each: none, the number of its text's tokens, or what a [tree](Tree::seen) says, the low
/// word first.
pub(super) fn sight(topology: &Topology, trees: &[Tree], causal: bool) -> (Sight, Vec<u32>) {
    let runs = &topology.runs;
    if trees.iter().any(|tree| !tree.is_empty()) {
        let of_run = |i: usize| {
            let seen = trees.get(i).map_or(Vec::new(), Tree::seen);
            seen.into_iter().chain(repeat(u64::MAX)).take(runs[i].tokens)
        };
        let words = (0..runs.len()).flat_map(of_run).flat_map(|seen| [seen as u32, (seen >> 32) as u32]);
        return (Sight::Path, words.collect());
    }
    if causal {
        return (Sight::Before, Vec::new());
    }
    (Sight::Whole, runs.iter().flat_map(|run| repeat_n(run.tokens as u32, run.tokens)).collect())
}

/// What moves keys and values of accepted drafts.
#[derive(Debug)]
pub(super) struct Moves {
    /// For each group of layers how many there are, and each: see `wgsl/move.wgsl`.
    of_group: Vec<Mirror>,
    /// For each layer its cache, with these.
    of_layer: Vec<BindGroup>,
}

impl Moves {
    fn new(gpu: &Gpu, kv: &WgpuKvCache) -> Result<Self, BackendError> {
        let room = |_: &usize| Mirror::new(gpu, "moves of accepted drafts", 4 + 4 * Tree::MOST);
        let of_group = kv.group_pages.iter().map(room).collect::<Result<Vec<_>, _>>()?;
        let layer = |(memory, &group): (&Buffer, &usize)| {
            let buffers = [(0, memory), (1, &of_group[group].buffer)];
            let pipeline = gpu.pipeline(Shader::Move { shape: kv.shapes[group] })?;
            gpu.bind(&pipeline, &buffers, (2, &[kv.group_pages[group] as u32]))
        };
        let of_layer = kv.memory.iter().zip(&kv.group_of).map(layer).collect::<Result<_, _>>()?;
        Ok(Self { of_group, of_layer })
    }
}

impl WgpuKvCache {
    /// Continues a sequence by a path of its drafts, whose keys and values move to consecutive places.
    pub(super) fn accept(&mut self, gpu: &Gpu, id: SequenceId, path: &[usize]) -> Result<(), BackendError> {
        let copies = self.pages.accept(id, path)?;
        if copies.is_empty() {
            return Ok(());
        }
        let mut moves = match self.moves.take() {
            Some(moves) => moves,
            None => Moves::new(gpu, self)?,
        };
        // Each group has as many.
        for group in copies.chunk_by(|a, b| a.group == b.group) {
            let of = |place: (u32, usize)| [place.0, place.1 as u32];
            let each = |copy: &PositionCopy| [of(copy.from), of(copy.to)].concat();
            let words = [group.len() as u32, 0, 0, 0].into_iter().chain(group.iter().flat_map(each));
            moves.of_group[group[0].group].set(gpu, &words.collect::<Vec<_>>())?;
        }
        let mut encoder = gpu.encoder()?;
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        let layers = moves.of_layer.iter().zip(&self.group_of).zip(&self.layers);
        let keeps = |kind: &LayerKind| kind.0 != Kind::Nothing && kind.2.is_none();
        for ((layer, &group), _) in layers.filter(|(_, kind)| keeps(kind)) {
            let shape = self.shapes[group];
            let pipeline = gpu.pipeline(Shader::Move { shape })?;
            pass.set_pipeline(&pipeline);
            let pairs = shape.kv_heads * shape.pairs;
            pass.set_bind_group(0, layer, &[]);
            pass.dispatch_workgroups(pairs.div_ceil(THREADS as u32), 1, 1);
        }
        drop(pass);
        self.moves = Some(moves);
        gpu.submit(encoder)
    }
}
