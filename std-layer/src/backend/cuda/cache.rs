//! The memory of a KV cache on a GPU, and what steps need beside it.

use std::collections::HashMap;
use std::sync::Arc;

use gllm_kernels_core::{Precision, RopePositions};

use super::arena::Place;
use super::experts::most_pairs;
use super::kept::LayerCache;
use super::layout::Layout;
use super::weights::{Stored, MAX_GEMV_ROWS};
use super::Gpu;
use crate::backend::{BackendError, CacheOptions, KvType, Sequences, Slot};
use crate::cuda::decoder::NO_SEQUENCE;
use crate::cuda::geometry::{kv_pieces, KV_PIECE};
use crate::cuda::{
    Activations, Buffer, Context, Copying, CudaError, Graph, KvCache, KvFormat, KvShape, PinnedBuffer,
    Stream, View,
};
use crate::model::{
    CacheError, Config, KvHeads, PageCopy, Pages, PositionCopy, Recurrence, Rope, SequenceId, Temperature,
};

/// Keys and values of several sequences in the memory of a GPU, and the memory that steps need for their intermediate results.
#[derive(Debug)]
pub struct CudaKvCache {
    /// Steps that can be started as they are. They use what is below, so they go first.
    pub(super) recorded: Vec<Recorded>,
    pub(super) options: CacheOptions,
    pub(super) pages: Pages,
    pub(super) group_of: Vec<usize>,
    pub(super) layers: Vec<LayerCache>,
    pub(super) tables: Tables,
    pub(super) angles: Angles,
    pub(super) inputs: Inputs,
    pub(super) arena: Buffer<u8>,
    /// Activations of 8 bits, and of 32.
    pub(super) activations: [Option<Activations>; 2],
    /// Memory of logits; what nobody holds is used again.
    pub(super) logits: Vec<Arc<Buffer<f32>>>,
    /// Tokens that were chosen on the GPU, and that the last step took from there.
    pub(super) ahead: Option<Ahead>,
    /// Where such tokens come to; what is not used just now.
    pub(super) pinned: Option<PinnedBuffer<u32>>,
    windows: Vec<Option<usize>>,
    /// Of each layer the one whose keys and values it attends to, if it has none.
    keys_of: Vec<Option<usize>>,
    /// What recurrent layers have, if there are any, which layers these are, and which have attention.
    recurrent: (Option<Recurrence>, Vec<[bool; 2]>),
    /// The heads of each layer; the elements of a cached key that are its value, too, if values are not apart.
    heads: Vec<KvHeads>,
    latent: Option<usize>,
}

/// The heads of each layer.
fn heads(config: &Config) -> impl Iterator<Item = KvHeads> + '_ {
    (0..config.layers).map(|layer| config.heads_of(layer))
}

/// Whether each layer is recurrent, and whether it has attention.
fn recurrent(config: &Config) -> impl Iterator<Item = [bool; 2]> + '_ {
    (0..config.layers).map(|layer| [config.layer[layer].recurrent, config.attends(layer)])
}

/// A step of single tokens, recorded.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) graph: Graph,
    pub(super) weights: Arc<Stored>,
    /// Rows, pieces of attention, and whether it is exact.
    pub(super) key: (usize, usize, bool),
    pub(super) logits: Arc<Buffer<f32>>,
}

/// Tokens that a step took before the host knew them.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Which step this is.
    pub(super) step: u64,
    pub(super) tokens: Chosen,
    /// The sequence of each token, and tokens that end a text.
    pub(super) sequences: Vec<SequenceId>,
    pub(super) stop: Vec<u32>,
}

/// Tokens on their way to the host, or there.
#[derive(Debug)]
pub(super) enum Chosen {
    Coming(Copying<u32>),
    Here(Vec<u32>),
}

/// Page tables of sequences, for each group: a row for each sequence.
#[derive(Debug)]
pub(super) struct Tables {
    /// What is on the GPU, and there.
    groups: Vec<(Vec<u32>, Buffer<u32>)>,
    rows: usize,
    pub(super) len: usize,
    of: HashMap<SequenceId, usize>,
    free: Vec<usize>,
}

impl Tables {
    fn new(context: &Context, groups: usize, rows: usize, len: usize) -> Result<Self, CudaError> {
        let empty = || Ok((vec![Pages::GONE; rows * len], Buffer::new(context, rows * len)?));
        let groups = (0..groups).map(|_| empty()).collect::<Result<Vec<_>, CudaError>>()?;
        Ok(Self { groups, rows, len, of: HashMap::new(), free: (0..rows).rev().collect() })
    }

    pub(super) fn group(&self, group: usize) -> &Buffer<u32> {
        &self.groups[group].1
    }

    /// The row of a sequence that has one.
    pub(super) fn row(&self, sequence: SequenceId) -> Option<usize> {
        self.of.get(&sequence).copied()
    }

    /// Gives up a sequence's row.
    fn remove(&mut self, sequence: SequenceId) {
        self.free.extend(self.of.remove(&sequence));
    }

    /// Whether these sequences fit; if not, rows and numbers of each that do.
    fn larger(&self, sequences: &[SequenceId], longest: usize) -> Option<(usize, usize)> {
        let new = sequences.iter().filter(|id| !self.of.contains_key(id)).count();
        let (rows, len) = (self.of.len() + new, longest.max(self.len));
        (rows > self.rows || len > self.len).then(|| {
            let more = |need: usize, have: usize| if need > have { need.next_power_of_two() } else { have };
            (more(rows, self.rows), more(len, self.len))
        })
    }

    /// Brings the tables of these sequences to the GPU, as far as they have changed.
    fn update(
        &mut self,
        stream: &Stream,
        pages: &Pages,
        sequences: &[SequenceId],
    ) -> Result<(), BackendError> {
        for &sequence in sequences {
            let row = match self.of.get(&sequence) {
                Some(&row) => row,
                None => {
                    let row = self.free.pop().ok_or(CacheError::Unknown(sequence))?;
                    self.of.insert(sequence, row);
                    row
                }
            };
            for (group, (known, buffer)) in self.groups.iter_mut().enumerate() {
                let table = pages.table(sequence, group)?;
                let known = &mut known[row * self.len..][..table.len()];
                let differs = |(a, b): (&u32, &u32)| a != b;
                let Some(first) = known.iter().zip(table).position(differs) else { continue };
                let end = known.iter().zip(table).rposition(differs).map_or(first, |last| last + 1);
                let at = row * self.len + first;
                buffer.range_mut(at..at + end - first)?.upload(stream, &table[first..end])?;
                known[first..end].copy_from_slice(&table[first..end]);
            }
        }
        Ok(())
    }
}

/// Cosines and sines of each rope, for as many positions; and the temperatures of their scores, a number for each stretch of positions that share it.
#[derive(Debug)]
pub(super) struct Angles {
    ropes: Vec<Rope>,
    pub(super) tables: Vec<[Buffer<f32>; 2]>,
    pub(super) temperatures: Option<(Temperature, Buffer<f32>)>,
    positions: usize,
}

impl Angles {
    fn new(
        stream: &Stream,
        (ropes, temperature): (&[Rope], Option<Temperature>),
        positions: usize,
    ) -> Result<Self, BackendError> {
        let numbers: Vec<u32> = (0..positions as u32).collect();
        let mut tables = Vec::with_capacity(ropes.len());
        for rope in ropes {
            let n = positions * (rope.dims / 2);
            let (mut cos, mut sin) = (vec![0.0; n], vec![0.0; n]);
            if n > 0 {
                rope.freqs().table(RopePositions::Each(&numbers), &mut cos, &mut sin)?;
            }
            tables.push([Buffer::from_slice(stream, &cos)?, Buffer::from_slice(stream, &sin)?]);
        }
        let temperatures = match temperature {
            Some(of) => {
                let stretches = 0..positions.div_ceil(of.length);
                let factors: Vec<f32> = stretches.map(|i| of.factor(i * of.length)).collect();
                Some((of, Buffer::from_slice(stream, &factors)?))
            }
            None => None,
        };
        Ok(Self { ropes: ropes.to_vec(), tables, temperatures, positions })
    }
}

/// What a step is told from outside, on the GPU, and what of it is known to be there already.
#[derive(Debug)]
pub(super) struct Inputs {
    rows: usize,
    pub(super) tokens: Buffer<u32>,
    pub(super) sequences: Mirrored,
    /// Tokens of each row's sequence, up to its own; all of them, if rows see tokens behind their own.
    pub(super) lengths: Mirrored,
    /// What each row sees of the tokens up to its own, in steps with trees of drafts.
    pub(super) seen: Buffer<u64>,
    pub(super) outputs: Mirrored,
    /// Where runs begin.
    pub(super) starts: Mirrored,
    /// Tokens that end a text; no recording knows them.
    pub(super) stops: Mirrored,
    /// Where the rows of runs begin that become one; no recording knows them.
    pub(super) pools: Mirrored,
    /// The position of each row, if rows see tokens behind their own; no recording knows them.
    pub(super) positions: Mirrored,
    /// Which keys and values go where; no recording knows them.
    moves: Mirrored,
}

impl Inputs {
    fn new(stream: &Stream, rows: usize) -> Result<Self, CudaError> {
        let mirrored =
            |n| Ok::<_, CudaError>(Mirrored { there: Buffer::new(stream.context(), n)?, known: Vec::new() });
        let mut tokens = Buffer::new(stream.context(), rows)?;
        // What stands behind the tokens of a step is looked up, too.
        tokens.fill_bytes(stream, 0)?;
        let [sequences, lengths, outputs] = [mirrored(rows)?, mirrored(rows)?, mirrored(rows)?];
        let [starts, stops, pools] = [mirrored(rows + 1)?, mirrored(0)?, mirrored(0)?];
        let [positions, moves] = [mirrored(0)?, mirrored(0)?];
        let seen = Buffer::new(stream.context(), rows)?;
        Ok(Self { rows, tokens, sequences, lengths, seen, outputs, starts, stops, pools, positions, moves })
    }

    /// The first `n` rows that have a sequence have a token more.
    pub(super) fn advanced(&mut self, n: usize) {
        self.lengths.known.truncate(n);
        for (length, &sequence) in self.lengths.known.iter_mut().zip(&self.sequences.known) {
            *length += u32::from(sequence != NO_SEQUENCE);
        }
    }

    /// A row has lost its sequence before its last token was counted.
    fn ended(&mut self, row: usize) {
        if let (Some(sequence), Some(length)) =
            (self.sequences.known.get_mut(row), self.lengths.known.get_mut(row))
        {
            *sequence = NO_SEQUENCE;
            *length -= 1;
        }
    }

    /// What rows are there is not known any more.
    pub(super) fn forget(&mut self) {
        self.sequences.known.clear();
        self.lengths.known.clear();
    }
}

/// Numbers on the GPU, and which are known to be there.
#[derive(Debug)]
pub(super) struct Mirrored {
    pub(super) there: Buffer<u32>,
    known: Vec<u32>,
}

impl Mirrored {
    /// Makes the first numbers these, unless they are.
    pub(super) fn set(&mut self, stream: &Stream, numbers: &[u32]) -> Result<(), CudaError> {
        if self.known.len() < numbers.len() || self.known[..numbers.len()] != *numbers {
            // If copying fails, nothing is known.
            self.known.clear();
            self.there.range_mut(0..numbers.len())?.upload(stream, numbers)?;
            self.known = numbers.to_vec();
        }
        Ok(())
    }

    /// The same with room for as many as there are, of which no recording knows the place.
    pub(super) fn set_all(&mut self, stream: &Stream, numbers: &[u32]) -> Result<View<'_, u32>, CudaError> {
        if self.there.len() < numbers.len() {
            self.known.clear();
            self.there = Buffer::new(stream.context(), numbers.len())?;
        }
        self.set(stream, numbers)?;
        self.there.range(0..numbers.len())
    }

    /// Whether the first numbers are these.
    pub(super) fn are(&self, numbers: &[u32]) -> bool {
        self.known.starts_with(numbers)
    }
}

/// What a step needs room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) rows: usize,
    /// Positions of the longest sequence.
    pub(super) positions: usize,
    pub(super) exact: bool,
}

impl CudaKvCache {
    pub(super) fn new(
        gpu: &Gpu,
        max_tokens: usize,
        config: &Config,
        options: &CacheOptions,
    ) -> Result<Self, BackendError> {
        let context = gpu.stream.context();
        let page_tokens = options.page_tokens;
        if page_tokens == 0 || !page_tokens.is_multiple_of(16) {
            let what = format!("pages of {page_tokens} positions: their number must be a multiple of 16");
            return Err(BackendError::Unsupported(what));
        }
        let (groups, group_of) = options.groups(max_tokens, config);
        let format = match options.kind {
            KvType::F16 => KvFormat::F16,
            KvType::Bf16 => KvFormat::Bf16,
            KvType::F32 => KvFormat::F32,
            KvType::Q8_0 => KvFormat::Q8_0,
        };
        let pages = options.pages(&groups, config)?;
        let layer = |(layer, &group): (usize, &usize)| {
            let pages = pages.free(group);
            if let Some(of) = config.recurrence_of(layer) {
                return Ok(LayerCache::States(Buffer::new(context, pages * of.state())?));
            }
            if config.layer[layer].keys_of.is_some() || config.layer[layer].without_attention {
                return Ok(LayerCache::Nothing);
            }
            let KvHeads { count: kv_heads, dim } = config.heads_of(layer);
            let head_dim = head_room(dim);
            let shape = KvShape { format, pages, page_tokens, kv_heads, head_dim, scales: [1.0; 2] };
            let cache = KvCache::wide(context, shape, config.latent_attention.is_none())?;
            Ok::<_, CudaError>(LayerCache::Positions(cache))
        };
        let layers = group_of.iter().enumerate().map(layer).collect::<Result<Vec<_>, _>>()?;
        let all_groups = groups.len() + usize::from(config.recurrence.is_some());
        let rows = options.sequences.max(1).next_power_of_two();
        // More positions than a model was made for are rare: tables grow where they come.
        let positions = max_tokens.min(config.context).max(1);
        let len = positions.div_ceil(page_tokens);
        Ok(Self {
            recorded: Vec::new(),
            options: *options,
            pages,
            group_of,
            layers,
            tables: Tables::new(context, all_groups, rows, len)?,
            angles: Angles::new(&gpu.stream, (&config.ropes, config.temperature), positions)?,
            inputs: Inputs::new(&gpu.stream, rows)?,
            arena: Buffer::new(context, 0)?,
            activations: [None, None],
            logits: Vec::new(),
            ahead: None,
            pinned: None,
            windows: config.layer.iter().map(|layer| layer.window).collect(),
            keys_of: config.layer.iter().map(|layer| layer.keys_of).collect(),
            recurrent: (config.recurrence, recurrent(config).collect()),
            heads: heads(config).collect(),
            latent: config.latent_attention.map(|latent| latent.rank),
        })
    }

    /// Whether it was made for such a model.
    pub(super) fn fits(&self, config: &Config) -> Result<(), BackendError> {
        let windows = config.layer.iter().map(|layer| layer.window);
        let recurrent = recurrent(config);
        let same = windows.eq(self.windows.iter().copied())
            && self.angles.ropes == config.ropes
            && config.recurrence == self.recurrent.0
            && recurrent.eq(self.recurrent.1.iter().copied())
            && config.layer.iter().map(|layer| layer.keys_of).eq(self.keys_of.iter().copied());
        let same = same && config.latent_attention.map(|latent| latent.rank) == self.latent;
        if same && heads(config).eq(self.heads.iter().copied()) {
            return Ok(());
        }
        Err(BackendError::Unsupported("a cache that was made for another model".to_owned()))
    }

    /// Bytes that attention of a token at `position` reads. (Those of states are written, too.)
    pub fn bytes_at(&self, position: usize) -> usize {
        let seen = |window: &Option<usize>| window.map_or(position + 1, |w| w.min(position + 1));
        let state = self.recurrent.0.map_or(0, |of| of.state() * size_of::<f32>());
        let parts = 1 + usize::from(self.latent.is_none());
        let head = |dim: usize| match self.options.kind {
            KvType::F32 => dim * size_of::<f32>(),
            KvType::F16 | KvType::Bf16 => dim * size_of::<u16>(),
            KvType::Q8_0 => dim + dim.div_ceil(32) * size_of::<u16>(),
        };
        let layers = self.windows.iter().zip(&self.recurrent.1).zip(&self.heads);
        let of_layer = |((window, kind), of): ((_, &[bool; 2]), &KvHeads)| match kind {
            [true, _] => state,
            [_, false] => 0,
            _ => seen(window) * parts * of.count * head(of.dim),
        };
        layers.map(of_layer).sum()
    }

    /// Makes room for a step's tokens; the copies that sharing asks for are queued.
    pub(super) fn append(&mut self, gpu: &Gpu, wanted: &[(SequenceId, usize)]) -> Result<(), BackendError> {
        for PageCopy { group, from, to, .. } in self.pages.append(wanted)? {
            for (layer, _) in self.layers.iter_mut().zip(&self.group_of).filter(|(_, &g)| g == group) {
                layer.copy_page(&gpu.stream, [from, to], self.options.sequences.max(1))?;
            }
        }
        Ok(())
    }

    /// Continues a sequence by a path of its drafts, whose keys and values move to consecutive places.
    pub(super) fn accept(&mut self, gpu: &Gpu, id: SequenceId, path: &[usize]) -> Result<(), BackendError> {
        let copies = self.pages.accept(id, path)?;
        for group in copies.chunk_by(|a, b| a.group == b.group) {
            let of = |place: (u32, usize)| [place.0, place.1 as u32];
            let words = |copy: &PositionCopy| [of(copy.from), of(copy.to)].concat();
            let moves: Vec<u32> = group.iter().flat_map(words).collect();
            let moves = self.inputs.moves.set_all(&gpu.stream, &moves)?;
            let layers = self.layers.iter_mut().zip(&self.group_of);
            for (layer, _) in layers.filter(|(_, &g)| g == group[0].group) {
                if let LayerCache::Positions(cache) = layer {
                    gpu.ops.kv_move(&gpu.stream, cache, moves)?;
                }
            }
        }
        Ok(())
    }

    /// Waits until the host has the tokens that the last step took from the GPU. Those that end a text have not continued their sequences: what
    /// was counted of them is taken back. Which tokens these are, if they had not been known.
    pub(super) fn settle(&mut self) -> Result<Option<(u64, &[u32])>, BackendError> {
        let Some(mut ahead) = self.ahead.take() else { return Ok(None) };
        let Chosen::Coming(copying) = ahead.tokens else {
            self.ahead = Some(ahead);
            return Ok(None);
        };
        let pinned = copying.wait()?;
        let tokens = pinned[..ahead.sequences.len()].to_vec();
        self.pinned = Some(pinned);
        for (row, (&sequence, token)) in ahead.sequences.iter().zip(&tokens).enumerate() {
            if !ahead.stop.contains(token) {
                continue;
            }
            self.inputs.ended(row);
            // It may have been removed in the meantime.
            if self.pages.positions(sequence).is_ok() {
                self.pages.retract(sequence)?;
            }
        }
        ahead.tokens = Chosen::Here(tokens);
        let ahead = self.ahead.insert(ahead);
        Ok(match &ahead.tokens {
            Chosen::Here(tokens) => Some((ahead.step, tokens)),
            Chosen::Coming(_) => None,
        })
    }

    /// Room for a step with these sequences, whose tables are brought to the GPU. What has grown, recordings know nothing of.
    pub(super) fn prepare(
        &mut self,
        gpu: &Gpu,
        weights: &Stored,
        room: Room,
        sequences: &[SequenceId],
    ) -> Result<(), BackendError> {
        let (context, stream) = (gpu.stream.context(), &gpu.stream);
        let lengths = sequences.iter().map(|&id| self.pages.table(id, 0).map(<[u32]>::len));
        let longest = lengths.collect::<Result<Vec<_>, _>>()?.into_iter().max().unwrap_or(0);
        if let Some((rows, len)) = self.tables.larger(sequences, longest) {
            self.recorded.clear();
            // Sequences that this step does not have come back with their next one.
            self.tables = Tables::new(context, self.tables.groups.len(), rows, len)?;
        }
        self.tables.update(stream, &self.pages, sequences)?;
        if room.positions > self.angles.positions {
            self.recorded.clear();
            let temperature = self.angles.temperatures.as_ref().map(|of| of.0);
            let of = (&self.angles.ropes[..], temperature);
            self.angles = Angles::new(stream, of, room.positions.next_power_of_two())?;
        }
        if room.rows > self.inputs.rows {
            self.recorded.clear();
            self.inputs = Inputs::new(stream, room.rows.next_power_of_two())?;
        }
        let config = &weights.config;
        let of_experts = config.experts.map_or(0, |experts| experts.intermediate);
        let inputs = [Slot::Normed, Slot::QueryRow, Slot::Mixed, Slot::Activated, Slot::PerLayerActivated]
            .map(|slot| slot.width(config));
        let widest = inputs.into_iter().fold(of_experts, usize::max);
        let rows = self.inputs.rows;
        // Products of heads have a row for each head of each row.
        let (widest, heads) = match config.latent_attention {
            Some(latent) => (widest.max(latent.rank).max(latent.plain), config.heads),
            None => (widest, 0),
        };
        let rows = match (room.exact, config.experts) {
            (true, experts) => rows * experts.map_or(1, |experts| experts.used),
            (false, None) => MAX_GEMV_ROWS,
            (false, Some(experts)) => most_pairs(experts, rows).max(MAX_GEMV_ROWS),
        };
        let rows =
            rows.max(heads * if room.exact { self.inputs.rows } else { MAX_GEMV_ROWS.min(self.inputs.rows) });
        let enough = |a: &Activations| a.capacity().0 >= rows && a.capacity().1 >= widest;
        let forms =
            [(Precision::Integer, !room.exact), (Precision::Exact, room.exact || weights.float_blocks)];
        for (activations, (precision, used)) in self.activations.iter_mut().zip(forms) {
            if used && !activations.as_ref().is_some_and(enough) {
                self.recorded.clear();
                *activations = None;
                *activations = Some(Activations::new(context, precision, rows, widest)?);
            }
        }
        Ok(())
    }

    /// Room for intermediate results.
    pub(super) fn reserve(&mut self, gpu: &Gpu, layout: &Layout<Place>) -> Result<(), CudaError> {
        if layout.bytes() > self.arena.len() {
            self.recorded.clear();
            let context = gpu.stream.context();
            // The old one goes first.
            self.arena = Buffer::new(context, 0)?;
            self.arena = Buffer::new(context, layout.bytes())?;
        }
        Ok(())
    }

    /// Room for so many logits that nobody holds.
    pub(super) fn free_logits(&mut self, gpu: &Gpu, len: usize) -> Result<Arc<Buffer<f32>>, CudaError> {
        /// Memory that nobody holds, at most.
        const MAX_IDLE: usize = 4;
        let free = |logits: &&Arc<Buffer<f32>>| Arc::strong_count(logits) == 1;
        if let Some(logits) = self.logits.iter().filter(free).find(|logits| logits.len() >= len) {
            return Ok(Arc::clone(logits));
        }
        let mut kept = 0;
        self.logits.retain(|logits| {
            kept += usize::from(Arc::strong_count(logits) == 1);
            Arc::strong_count(logits) > 1 || kept < MAX_IDLE
        });
        let logits = Arc::new(Buffer::new(gpu.stream.context(), len)?);
        self.logits.push(Arc::clone(&logits));
        Ok(logits)
    }
}

/// Elements that the cache has for each head of `dim`: kernels read eight at a time, so that zeros follow those of a head where it has no multiple of 8.
pub(super) fn head_room(dim: usize) -> usize {
    dim.next_multiple_of(8)
}

/// Pieces of attention that a sequence of so many positions has, rounded up so that few recordings serve all lengths.
pub(super) fn pieces(positions: usize) -> usize {
    kv_pieces(positions, KV_PIECE).max(4).next_power_of_two()
}

impl Sequences for CudaKvCache {
    fn pages(&self) -> &Pages {
        &self.pages
    }

    fn pages_mut(&mut self) -> &mut Pages {
        &mut self.pages
    }

    fn forget(&mut self, sequence: SequenceId) {
        self.tables.remove(sequence);
    }
}
