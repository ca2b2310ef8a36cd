//! The memory of a KV cache on the CPU.

use gllm_kernels_core::{KvHead, KV_BLOCK};

use crate::aligned::AlignedVec;
use crate::backend::{BackendError, CacheOptions, KvType, Sequences};
use crate::model::{CacheError, Config, KvHeads, PageCopy, Pages, PositionCopy, Recurrence, SequenceId};

/// Keys and values of several sequences, in pages, and the memory that steps need for their intermediate results.
///
/// A layer's page has, for each KV head, a block of core's layout for each 16 positions.
#[derive(Debug)]
pub struct CpuKvCache {
    pub(super) options: CacheOptions,
    pub(super) pages: Pages,
    /// The window of each group of layers.
    pub(super) windows: Vec<Option<usize>>,
    /// The group of each layer.
    pub(super) group_of: Vec<usize>,
    /// The pages of all layers. They are one piece of memory, as only large ones have huge pages.
    memory: AlignedVec<u8>,
    /// Where the pages of each layer start.
    starts: Vec<usize>,
    /// The window of each layer, and the layer whose keys and values it attends to if it has none: by these a cache is known to fit a model.
    of_layers: Vec<OfLayer>,
    /// The heads of each group, and bytes of a block.
    pub(super) heads: Vec<(KvHeads, usize)>,
    /// The elements of a cached key that are its value, too, if values are not apart.
    latent: Option<usize>,
    /// Linear attention, if layers have it.
    recurrence: Option<Recurrence>,
    /// Bytes of a page of each group.
    page_bytes: Vec<usize>,
    pub(super) workspace: Workspace,
}

/// Memory for intermediate results, as large as the largest step so far needed it.
#[derive(Debug)]
pub(super) struct Workspace {
    pub(super) arena: AlignedVec<f32>,
    pub(super) rounded: AlignedVec<u8>,
    pub(super) partial: AlignedVec<f32>,
    /// Of linear attention: the results of the convolution.
    pub(super) convolved: AlignedVec<f32>,
    /// Of experts: numbers, and prepared rows.
    pub(super) routes: AlignedVec<u32>,
    pub(super) prepared: AlignedVec<u8>,
    pub(super) experts: AlignedVec<f32>,
}

/// Makes room for `len` elements; their contents are lost if the memory grows.
pub(super) fn grow<T: crate::Zeroable>(memory: &mut AlignedVec<T>, len: usize) -> *mut T {
    if memory.len() < len {
        *memory = AlignedVec::zeroed(len);
    }
    memory.as_mut_ptr()
}

/// Where the blocks of a step's sequences are.
#[derive(Debug)]
pub(super) struct Blocks {
    layers: Vec<*mut u8>,
    group_of: Vec<usize>,
    /// For each run of tokens and each group of layers, the numbers of its pages.
    tables: Vec<Vec<Vec<u32>>>,
    pub(super) kind: KvType,
    page_blocks: usize,
    /// The heads of each group, and bytes of a block.
    heads: Vec<(KvHeads, usize)>,
}

impl Blocks {
    /// Where the block with a run's positions from `16 * block` on is.
    pub(super) fn at(&self, layer: usize, run: usize, head: usize, block: usize) -> *mut u8 {
        let group = self.group_of[layer];
        let (heads, bytes) = self.heads[group];
        let page = self.tables[run][group][block / self.page_blocks] as usize;
        let index = (page * heads.count + head) * self.page_blocks + block % self.page_blocks;
        self.layers[layer].wrapping_add(index * bytes)
    }
}

impl CpuKvCache {
    pub(super) fn new(
        max_tokens: usize,
        config: &Config,
        options: &CacheOptions,
    ) -> Result<Self, BackendError> {
        let size = options.page_tokens;
        if size == 0 || !size.is_multiple_of(KV_BLOCK) {
            let what = format!("pages of {size} positions: their number must be a multiple of {KV_BLOCK}");
            return Err(BackendError::Unsupported(what));
        }
        let (groups, group_of) = options.groups(max_tokens, config);
        let too_large =
            || BackendError::Unsupported(format!("a cache for {max_tokens} positions: too large"));
        let heads_of = |(_, heads): (Option<usize>, KvHeads)| {
            Ok::<_, BackendError>((heads, options.kind.block_bytes(config.kv_head(heads.dim))?))
        };
        let heads = config.kinds().into_iter().map(heads_of).collect::<Result<Vec<_>, _>>()?;
        let page = |&(heads, block): &(KvHeads, usize)| {
            let sizes = [heads.count, size / KV_BLOCK, block];
            sizes.into_iter().try_fold(1usize, usize::checked_mul).ok_or_else(too_large)
        };
        let mut page_bytes = heads.iter().map(page).collect::<Result<Vec<_>, _>>()?;
        let pages = options.pages(&groups, config)?;
        page_bytes.extend(config.recurrence.map(|of| {
            // Each state starts on a cache line.
            (of.state() * size_of::<f32>()).next_multiple_of(AlignedVec::<u8>::ALIGN)
        }));
        let mut starts = Vec::with_capacity(group_of.len());
        let mut end = 0usize;
        for (&group, layer) in group_of.iter().zip(&config.layer) {
            if let Some(other) = layer.keys_of {
                starts.push(starts[other]);
                continue;
            }
            starts.push(end);
            if layer.without_attention {
                continue;
            }
            let pages = pages.free(group).checked_mul(page_bytes[group]);
            // Each layer starts on a cache line.
            let next =
                pages.and_then(|n| n.checked_next_multiple_of(AlignedVec::<u8>::ALIGN)?.checked_add(end));
            end = next.filter(|&n| n < 1 << 46).ok_or_else(too_large)?;
        }
        Ok(Self {
            options: *options,
            pages,
            windows: groups.iter().map(|group| group.window).collect(),
            group_of,
            memory: AlignedVec::zeroed(end),
            starts,
            of_layers: of_layers(config).collect(),
            heads,
            latent: config.latent_attention.map(|latent| latent.rank),
            recurrence: config.recurrence,
            page_bytes,
            workspace: Workspace {
                arena: AlignedVec::zeroed(0),
                rounded: AlignedVec::zeroed(0),
                partial: AlignedVec::zeroed(0),
                convolved: AlignedVec::zeroed(0),
                routes: AlignedVec::zeroed(0),
                prepared: AlignedVec::zeroed(0),
                experts: AlignedVec::zeroed(0),
            },
        })
    }

    /// Checks that the cache was made for such a model.
    pub(super) fn fits(&self, config: &Config) -> Result<(), BackendError> {
        let recurrent = config.layer.iter().map(|layer| layer.recurrent);
        let same = of_layers(config).eq(self.of_layers.iter().copied())
            && recurrent.eq(self.group_of.iter().map(|&group| group == self.windows.len()))
            && config.recurrence == self.recurrence
            && config.latent_attention.map(|latent| latent.rank) == self.latent;
        let heads = config.kinds().into_iter().map(|(_, heads)| heads);
        if same && heads.eq(self.heads.iter().map(|of| of.0)) {
            return Ok(());
        }
        Err(BackendError::Unsupported("a cache that was made for another model".to_owned()))
    }

    /// Bytes that attention of a token at `position` reads. (Those of states are written, too.)
    pub fn bytes_at(&self, position: usize) -> usize {
        let of = |(&group, of_layer): (&usize, &OfLayer)| match self.windows.get(group) {
            _ if of_layer.2 => 0,
            Some(window) => {
                let (heads, block) = self.heads[group];
                window.map_or(position + 1, |w| w.min(position + 1)) * heads.count * block / KV_BLOCK
            }
            None => self.page_bytes[group],
        };
        self.group_of.iter().zip(&self.of_layers).map(of).sum()
    }

    /// Where the pages of the layers of a group start that have some of their own.
    fn starts_of(&self, group: usize) -> Vec<usize> {
        let layers = self.starts.iter().zip(&self.group_of).zip(&self.of_layers);
        let own = layers.filter(|((_, &of), (_, other, nothing))| of == group && other.is_none() && !nothing);
        own.map(|((&start, _), _)| start).collect()
    }

    /// Makes room for a step's tokens. Pages that are shared, and that tokens go to, are copied.
    pub(super) fn append(&mut self, wanted: &[(SequenceId, usize)]) -> Result<(), CacheError> {
        for PageCopy { group, from, to, .. } in self.pages.append(wanted)? {
            let page = self.page_bytes[group];
            for start in self.starts_of(group) {
                let [from, to] = [from, to].map(|at| start + at as usize * page);
                self.memory.copy_within(from..from + page, to);
            }
        }
        Ok(())
    }

    /// Continues a sequence by a path of its drafts, whose keys and values move to consecutive places.
    pub(super) fn accept(&mut self, id: SequenceId, path: &[usize]) -> Result<(), BackendError> {
        for PositionCopy { group, from, to } in self.pages.accept(id, path)? {
            for start in self.starts_of(group) {
                let (KvHeads { count, dim }, block) = self.heads[group];
                for head in 0..count {
                    // Places, counted from the layer's first block on.
                    let [from, to] = [from, to]
                        .map(|(page, slot)| (page as usize * count + head) * self.options.page_tokens + slot);
                    let end = start + (from.max(to) / KV_BLOCK + 1) * block;
                    let memory = &mut self.memory[start..end];
                    let head =
                        KvHead { dim, values: self.latent.unwrap_or(dim), latent: self.latent.is_some() };
                    self.options.kind.relocate(head, memory, from, to)?;
                }
            }
        }
        Ok(())
    }

    /// Where a recurrent layer has the states of these sequences.
    pub(super) fn states(
        &mut self,
        layer: usize,
        sequences: &[SequenceId],
    ) -> Result<Vec<*mut f32>, CacheError> {
        let (group, start) =
            (self.group_of[layer], self.memory.as_mut_ptr().wrapping_add(self.starts[layer]));
        let state = |&id: &SequenceId| {
            let page = self.pages.table(id, group)?.first().copied().unwrap_or(0) as usize;
            Ok(start.wrapping_add(page * self.page_bytes[group]).cast())
        };
        sequences.iter().map(state).collect()
    }

    /// Where the blocks of these sequences are.
    pub(super) fn blocks(&mut self, sequences: &[SequenceId]) -> Result<Blocks, CacheError> {
        let table = |&id: &SequenceId| {
            let group = |g| self.pages.table(id, g).map(<[u32]>::to_vec);
            (0..self.windows.len()).map(group).collect::<Result<Vec<_>, _>>()
        };
        let tables = sequences.iter().map(table).collect::<Result<Vec<_>, _>>()?;
        Ok(Blocks {
            layers: self.starts.iter().map(|&at| self.memory.as_mut_ptr().wrapping_add(at)).collect(),
            group_of: self.group_of.clone(),
            tables,
            kind: self.options.kind,
            page_blocks: self.options.page_tokens / KV_BLOCK,
            heads: self.heads.clone(),
        })
    }
}

/// The window of a layer, the layer whose keys and values it attends to if it has none, and whether it is without attention.
type OfLayer = (Option<usize>, Option<usize>, bool);

fn of_layers(config: &Config) -> impl Iterator<Item = OfLayer> + '_ {
    config.layer.iter().map(|layer| (layer.window, layer.keys_of, layer.without_attention))
}

impl Sequences for CpuKvCache {
    fn pages(&self) -> &Pages {
        &self.pages
    }

    fn pages_mut(&mut self) -> &mut Pages {
        &mut self.pages
    }
}
