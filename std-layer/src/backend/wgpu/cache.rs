//! The memory of a KV cache on the device, and of a step's intermediate results.

use std::collections::HashMap;

use wgpu::{BindGroup, Buffer, BufferUsages, CommandEncoder};

use gllm_kernels_core::RopePositions;

use super::device::Gpu;
use super::drafts::Moves;
use super::experts::{Room, Routes};
use super::mirror::Mirror;
use super::shaders::{Shader, MAX_GEMV_ROWS, TILE};
use super::shapes::CacheShape;
use super::step::Place;
use super::weights::PART;
use crate::backend::{BackendError, CacheOptions, KvType, Sequences, Slot};
use crate::model::{Config, Experts, KvHeads, Layer, PageCopy, Pages, Recurrence, Rope, SequenceId};

/// Positions of a piece of attention.
pub(super) const KV_PIECE: usize = 256;

/// Intermediate results of which some rows are left in the last layer.
pub(super) const KEPT: [Slot; 5] =
    [Slot::Hidden, Slot::Mixed, Slot::PerLayer, Slot::Streams, Slot::Predicted];

/// Numbers from a row to the next one.
pub(super) fn stride(slot: Slot, config: &Config) -> usize {
    match slot {
        Slot::Logits => config.logits(),
        // Heads lie one behind the other.
        Slot::Absorbed => slot.width(config),
        // Heads are inputs of products each: before attention what is not rotated of queries, behind it sums of values.
        Slot::Weighed => config
            .latent_attention
            .map_or(0, |latent| config.heads * latent.rank.max(latent.plain).next_multiple_of(PART)),
        // Inputs of products end with zeros.
        slot => slot.width(config).next_multiple_of(PART),
    }
}

/// What a bind group is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BindKey {
    pub(super) shader: Shader,
    /// Which model.
    pub(super) weights: u64,
    pub(super) place: Place,
    /// Which part of the weights, or of the rows.
    pub(super) part: usize,
    /// Which memory for logits, if it is about logits.
    pub(super) logits: u64,
    /// Whether only rows are left whose logits are asked for.
    pub(super) last: bool,
}

/// What recurrent layers work with, the same for all of them.
#[derive(Debug)]
pub(super) struct RecurrentRoom {
    /// Channels behind the convolution.
    pub(super) convolved: Buffer,
    /// Their rows of `Mixed`: rows of other layers may be wider, and both end with zeros.
    pub(super) mixed: Buffer,
}

/// What a step works with. It grows with the largest step so far.
#[derive(Debug)]
pub(super) struct Arena {
    /// Rows that there is room for.
    pub(super) rows: usize,
    pub(super) slots: HashMap<Slot, Buffer>,
    /// `Hidden` and `Mixed` of rows whose logits are asked for.
    pub(super) kept: HashMap<Slot, Buffer>,
    pub(super) tokens: Buffer,
    /// A row of what is multiplied, or several of what experts multiply for one token, in whole numbers.
    pub(super) rounded: Buffer,
    /// What the experts of a layer work with, if the model has any.
    pub(super) experts: Option<Room>,
    /// What products of heads work with, if attention is latent.
    pub(super) latent: Option<Routes>,
    /// What recurrent layers work with, if there are any.
    pub(super) recurrent: Option<RecurrentRoom>,
    /// For each row its place in its run, and its run; rows whose logits are asked for; for each row what it sees, in two words, where its place does not
    /// say that; for each group of layers and run, numbers of pages; for each run behind which row it ends, and behind which of the rows that are asked for.
    pub(super) table: Mirror,
    pub(super) runs: usize,
    /// Pages of a run.
    pub(super) table_len: usize,
    /// Results of pieces of attention, and for how many each row has room.
    pub(super) partial: Option<(Buffer, usize)>,
    pub(super) bind_groups: HashMap<BindKey, BindGroup>,
}

impl Arena {
    pub(super) fn runs_at(&self) -> usize {
        self.rows
    }

    pub(super) fn outputs_at(&self) -> usize {
        2 * self.rows
    }

    pub(super) fn sight_at(&self) -> usize {
        3 * self.rows
    }

    pub(super) fn table_at(&self, group: usize) -> usize {
        5 * self.rows + group * self.runs * self.table_len
    }

    pub(super) fn run_ends_at(&self) -> usize {
        self.table.words().len() - 2 * self.runs
    }

    pub(super) fn ends_at(&self) -> usize {
        self.table.words().len() - self.runs
    }
}

/// Keys and values of several sequences on a GPU, in pages, and the memory that steps need for their intermediate results. Recurrent layers have states
/// instead.
#[derive(Debug)]
pub struct WgpuKvCache {
    pub(super) pages: Pages,
    /// The group of each layer.
    pub(super) group_of: Vec<usize>,
    /// Pages of each group.
    pub(super) group_pages: Vec<usize>,
    /// For each group the bytes of a page in each part of a layer's memory, and how many parts that has: keys and values, or states alone.
    page_bytes: Vec<(u64, u64)>,
    /// For each layer its keys and values, or its states.
    pub(super) memory: Vec<Buffer>,
    /// Of each group of layers with keys and values.
    pub(super) shapes: Vec<CacheShape>,
    /// What they all hold, and positions of a page.
    of_pages: (KvType, u32),
    /// Of each layer whether it is recurrent, its window, and the layer whose keys and values it attends to if it has none.
    pub(super) layers: Vec<LayerKind>,
    recurrence: Option<Recurrence>,
    /// Widths of a step's intermediate results, and the model's experts: room is made for these.
    widths: [usize; Slot::ALL.len()],
    experts: Option<Experts>,
    pub(super) arena: Option<Arena>,
    /// For each rope cosines and sines, and of how many positions.
    pub(super) angles: Vec<(Buffer, usize)>,
    /// Room for a page that is copied.
    copy: Option<Buffer>,
    /// What moves keys and values of drafts, once some were accepted.
    pub(super) moves: Option<Moves>,
}

impl WgpuKvCache {
    pub(super) fn new(
        gpu: &Gpu,
        max_tokens: usize,
        config: &Config,
        options: &CacheOptions,
    ) -> Result<Self, BackendError> {
        let size = options.page_tokens;
        if size == 0 || !size.is_multiple_of(16) {
            let what = format!("pages of {size} positions: their number must be a multiple of 16");
            return Err(BackendError::Unsupported(what));
        }
        if !matches!(options.kind, KvType::F16 | KvType::Bf16 | KvType::F32) {
            let what = format!("a cache of {:?} with WebGPU: choose F16, BF16 or F32", options.kind);
            return Err(BackendError::Unsupported(what));
        }
        let (groups, group_of) = options.groups(max_tokens, config);
        let shapes = shapes(config, (options.kind, size as u32))?;
        for shape in &shapes {
            // Queries of a workgroup, in pairs; scores of 64 positions; 64 sums of pairs.
            let (together, _) = shape.chunks();
            let need = together * (8 * shape.pairs + 4 * 64) + 8 * 64;
            if need > gpu.shared_bytes() {
                let what = format!("bytes of memory of a workgroup, for heads of {}", 2 * shape.pairs);
                let allowed = gpu.shared_bytes().into();
                return Err(BackendError::Limit { what, need: need.into(), allowed });
            }
        }
        let parts = if config.latent_attention.is_some() { 1 } else { 2 };
        let mut page_bytes: Vec<_> =
            shapes.iter().map(|shape| (4 * page_words(shape) as u64, parts)).collect();
        let mut group_pages: Vec<_> = groups.iter().map(|group| group.pages).collect();
        if let Some(of) = &config.recurrence {
            page_bytes.push((4 * of.state() as u64, 1));
            group_pages.push(options.sequences.max(1));
        }
        let mut memory = Vec::new();
        for (&group, layer) in group_of.iter().zip(&config.layer) {
            let what = if layer.recurrent { "states of a layer" } else { "keys and values of a layer" };
            let nothing = layer.keys_of.is_some() || layer.without_attention;
            let (page, parts) = if nothing { (0, 0) } else { page_bytes[group] };
            memory.push(gpu.storage(what, page * parts * group_pages[group] as u64)?);
        }
        Ok(Self {
            pages: options.pages(&groups, config)?,
            group_pages,
            page_bytes,
            group_of,
            memory,
            shapes,
            of_pages: (options.kind, size as u32),
            layers: layers(config).collect(),
            recurrence: config.recurrence,
            widths: Slot::ALL.map(|slot| slot.width(config)),
            experts: config.experts,
            arena: None,
            angles: Vec::new(),
            copy: None,
            moves: None,
        })
    }

    /// Whether it was made for such a model.
    pub(super) fn fits(&self, config: &Config) -> Result<(), BackendError> {
        if layers(config).eq(self.layers.iter().copied())
            && shapes(config, self.of_pages)? == self.shapes
            && config.recurrence == self.recurrence
            && (self.widths, self.experts) == (Slot::ALL.map(|slot| slot.width(config)), config.experts)
        {
            return Ok(());
        }
        Err(BackendError::Unsupported("a cache that was made for another model".to_owned()))
    }

    /// Bytes that attention of a token at `position` reads. (Those of states are written, too.)
    pub fn bytes_at(&self, position: usize) -> usize {
        let of = |(&(kind, window, _), &group): (&LayerKind, &usize)| {
            if kind == Kind::Nothing {
                return 0;
            }
            let Some(shape) = self.shapes.get(group).filter(|_| kind == Kind::Attention) else {
                return self.recurrence.map_or(0, |of| 4 * of.state());
            };
            let parts = if shape.latent.is_some() { 1 } else { 2 };
            let of_position = parts * 4 * page_words(shape) / shape.page_tokens as usize;
            window.map_or(position + 1, |w| w.min(position + 1)) * of_position
        };
        self.layers.iter().zip(&self.group_of).map(of).sum()
    }

    /// Makes copies of pages that sequences shared.
    pub(super) fn copy_pages(
        &mut self,
        gpu: &Gpu,
        encoder: &mut CommandEncoder,
        copies: &[PageCopy],
    ) -> Result<(), BackendError> {
        if copies.is_empty() {
            return Ok(());
        }
        if self.copy.is_none() {
            let usage = BufferUsages::COPY_DST | BufferUsages::COPY_SRC;
            let largest = self.page_bytes.iter().map(|&(page, _)| page).max();
            self.copy = Some(gpu.buffer("a page", largest.unwrap_or(0), usage)?);
        }
        let Some(between) = &self.copy else { return Ok(()) };
        for &PageCopy { group, from, to, .. } in copies {
            let (page, parts) = self.page_bytes[group];
            let of_group = self.memory.iter().zip(&self.group_of).zip(&self.layers);
            let keeps = |layer: &LayerKind| layer.0 != Kind::Nothing && layer.2.is_none();
            let own = of_group.filter(|((_, &of), layer)| of == group && keeps(layer));
            for ((memory, _), _) in own {
                for part in 0..parts {
                    let at = |number: u32| page * (part * self.group_pages[group] as u64 + u64::from(number));
                    // Within a buffer nothing can be copied.
                    encoder.copy_buffer_to_buffer(memory, at(from), between, 0, page);
                    encoder.copy_buffer_to_buffer(between, 0, memory, at(to), page);
                }
            }
        }
        Ok(())
    }

    /// Makes room for a step: so many rows, continuing these sequences.
    pub(super) fn make_room(
        &mut self,
        gpu: &Gpu,
        config: &Config,
        (rows, sequences): (usize, &[SequenceId]),
    ) -> Result<(), BackendError> {
        let mut longest = 1;
        for &id in sequences {
            for group in 0..self.page_bytes.len() {
                longest = longest.max(self.pages.table(id, group)?.len());
            }
        }
        let fits =
            |arena: &Arena| arena.rows >= rows && arena.runs >= sequences.len() && arena.table_len >= longest;
        if self.arena.as_ref().is_some_and(fits) {
            return Ok(());
        }
        let old = self.arena.take();
        let old = old.as_ref().map_or([MAX_GEMV_ROWS, 1, 16], |old| [old.rows, old.runs, old.table_len]);
        let rows = old[0].max(if rows <= MAX_GEMV_ROWS {
            MAX_GEMV_ROWS
        } else {
            rows.next_power_of_two().max(TILE)
        });
        let runs = old[1].max(sequences.len().next_power_of_two());
        let table_len = old[2].max(longest.next_power_of_two());
        let room = |slot: Slot| {
            let bytes = 4 * rows as u64 * stride(slot, config) as u64;
            Ok::<_, BackendError>((slot, gpu.storage("intermediate results", bytes)?))
        };
        let inputs = [
            Slot::Normed,
            Slot::QueryRow,
            Slot::Weighed,
            Slot::Mixed,
            Slot::Activated,
            Slot::PerLayerActivated,
            Slot::LowRank,
        ];
        let widest = inputs.map(|slot| stride(slot, config)).into_iter().max().unwrap_or(0);
        // Of one token, experts multiply a row each: of what they take, if that is multiplied by their factors.
        let of_experts = |e: &Experts| {
            let taken = if e.scaled_inputs { config.hidden } else { 0 };
            e.used * e.intermediate.max(taken).next_multiple_of(PART)
        };
        let widest = widest.max(config.experts.as_ref().map_or(0, of_experts));
        // The row that queries are products of stays among `Heads`.
        let there = |slot: &Slot| ![Slot::Logits, Slot::QueryRow].contains(slot) && stride(*slot, config) > 0;
        let inner = Slot::ALL.into_iter().filter(there);
        let recurrent_room = |of: &Recurrence| {
            let room =
                |words: usize| gpu.storage("intermediate results of recurrent layers", 4 * words as u64);
            let [convolved, mixed] =
                [of.channels(), stride(Slot::Mixed, config)].map(|width| room(rows * width));
            Ok::<_, BackendError>(RecurrentRoom { convolved: convolved?, mixed: mixed? })
        };
        self.arena = Some(Arena {
            rows,
            slots: inner.map(room).collect::<Result<_, _>>()?,
            kept: KEPT.into_iter().map(room).collect::<Result<_, _>>()?,
            tokens: gpu.storage("tokens", 4 * rows as u64)?,
            // Twelve words for each part of 32 numbers.
            rounded: gpu.storage("rounded numbers", 48 * (widest / PART) as u64)?,
            experts: config.experts.map(|experts| Room::new(gpu, config, experts, rows)).transpose()?,
            latent: config.latent_attention.map(|_| Routes::of_heads(gpu, config.heads, rows)).transpose()?,
            recurrent: config.recurrence.as_ref().map(recurrent_room).transpose()?,
            table: Mirror::new(
                gpu,
                "the table of a step",
                5 * rows + (self.page_bytes.len() * table_len + 2) * runs,
            )?,
            runs,
            table_len,
            partial: None,
            bind_groups: HashMap::new(),
        });
        Ok(())
    }

    /// Makes room for cosines and sines of so many positions, and for pieces of attention to all of them by a few rows.
    pub(super) fn reach(&mut self, gpu: &Gpu, config: &Config, positions: usize) -> Result<(), BackendError> {
        let known = self.angles.first().map_or(0, |angles| angles.1);
        if known < positions || self.angles.len() != config.ropes.len() {
            let n = positions.next_power_of_two().max(64);
            self.angles = config.ropes.iter().map(|rope| angles(gpu, rope, n)).collect::<Result<_, _>>()?;
            if let Some(arena) = &mut self.arena {
                arena.bind_groups.clear();
            }
        }
        let pieces = positions.div_ceil(KV_PIECE);
        if let Some(arena) = &mut self.arena {
            if pieces > 1 && arena.partial.as_ref().is_none_or(|partial| partial.1 < pieces) {
                let pieces = pieces.next_power_of_two();
                let widest =
                    self.shapes.iter().map(|shape| 2 * shape.value_pairs() as usize).max().unwrap_or(0);
                let words = MAX_GEMV_ROWS * config.heads * pieces * (widest + 2);
                arena.partial = Some((gpu.storage("pieces of attention", 4 * words as u64)?, pieces));
                arena.bind_groups.clear();
            }
        }
        Ok(())
    }
}

impl WgpuKvCache {
    /// Tells the device what a step's rows are: places in their runs, runs, rows whose logits are asked for, among these ends of runs if they are pooled, what rows
    /// see if their places do not say that, ends of runs, pages, tokens.
    pub(super) fn set_table(
        &mut self,
        gpu: &Gpu,
        [places, runs, outputs, ends, sight, run_ends]: [&[u32]; 6],
        sequences: &[SequenceId],
        tokens: &[u32],
    ) -> Result<(), BackendError> {
        let Some(arena) = &mut self.arena else { return Ok(()) };
        // What nobody looks at stays as it is.
        let mut table = arena.table.words().to_vec();
        table[..places.len()].copy_from_slice(places);
        table[arena.runs_at()..][..runs.len()].copy_from_slice(runs);
        table[arena.outputs_at()..][..outputs.len()].copy_from_slice(outputs);
        table[arena.ends_at()..][..ends.len()].copy_from_slice(ends);
        table[arena.sight_at()..][..sight.len()].copy_from_slice(sight);
        table[arena.run_ends_at()..][..run_ends.len()].copy_from_slice(run_ends);
        for group in 0..self.page_bytes.len() {
            for (run, &id) in sequences.iter().enumerate() {
                let pages = self.pages.table(id, group)?;
                let at = arena.table_at(group) + run * arena.table_len;
                table[at..at + pages.len()].copy_from_slice(pages);
            }
        }
        arena.table.set(gpu, &table)?;
        gpu.write(&arena.tokens, 0, tokens)
    }
}

/// What the shaders of each group of layers are made for.
fn shapes(config: &Config, (kind, page_tokens): (KvType, u32)) -> Result<Vec<CacheShape>, BackendError> {
    let shape = |(_, KvHeads { count, dim })| {
        if !dim.is_multiple_of(2) {
            return Err(BackendError::Unsupported(format!("heads of {dim}: a multiple of 2")));
        }
        let (heads, kv_heads, pairs) = (config.heads as u32, count as u32, dim as u32 / 2);
        let latent = config.latent_attention.map(|latent| latent.rank as u32 / 2);
        Ok(CacheShape { kind, heads, kv_heads, pairs, latent, page_tokens, gates: config.attention_gates })
    };
    config.kinds().into_iter().map(shape).collect()
}

/// What a layer keeps of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Attention,
    Recurrence,
    Nothing,
}

/// What a layer keeps, its window, and the layer whose keys and values it attends to if it has none.
pub(super) type LayerKind = (Kind, Option<usize>, Option<usize>);

/// What each layer is.
fn layers(config: &Config) -> impl Iterator<Item = LayerKind> + '_ {
    let kind = |layer: &Layer| match (layer.recurrent, layer.without_attention) {
        (true, _) => Kind::Recurrence,
        (_, true) => Kind::Nothing,
        _ => Kind::Attention,
    };
    config.layer.iter().map(move |layer| (kind(layer), layer.window, layer.keys_of))
}

/// Words of the keys, or the values, of a page.
fn page_words(shape: &CacheShape) -> usize {
    let words = if shape.kind == KvType::F32 { 2 } else { 1 };
    shape.kv_heads as usize * shape.pairs as usize * shape.page_tokens as usize * words
}

/// Cosines and sines of the first `n` positions.
fn angles(gpu: &Gpu, rope: &Rope, n: usize) -> Result<(Buffer, usize), BackendError> {
    let all = n * (rope.dims / 2);
    let bytes = 8 * all as u64;
    if bytes > gpu.largest() {
        let what = format!("bytes of cosines and sines of {n} positions");
        return Err(BackendError::Limit { what, need: bytes, allowed: gpu.largest() });
    }
    let (mut cos, mut sin) = (vec![0.0; all], vec![0.0; all]);
    if all > 0 {
        rope.freqs().table(RopePositions::From(0), &mut cos, &mut sin)?;
    }
    let words: Vec<u32> = cos.iter().zip(&sin).flat_map(|(c, s)| [c.to_bits(), s.to_bits()]).collect();
    Ok((gpu.constant("cosines and sines", &words, BufferUsages::STORAGE)?, n))
}

impl Sequences for WgpuKvCache {
    fn pages(&self) -> &Pages {
        &self.pages
    }

    fn pages_mut(&mut self) -> &mut Pages {
        &mut self.pages
    }
}
