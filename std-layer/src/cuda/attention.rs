//! Keys and values in pages, and attention of single queries over them.

use super::check::{aligned, area, bad, same_len, small};
use super::driver::Context;
use super::error::{Capability, CudaError};
use super::geometry;
use super::kernels::{type_number, File, Name};
use super::memory::{Buffer, View, ViewMut};
use super::module::Arguments;
use super::stream::Stream;
use super::sys::Address;
use super::{Float, Ops};

#[derive(Clone, Copy)]
#[repr(C)]
struct AppendArgs {
    k: Address,
    v: Address,
    keys: Address,
    values: Address,
    tables: Address,
    sequences: Address,
    positions: Address,
    rows: u32,
    kv_heads: u32,
    dim: u32,
    page_tokens: u32,
    table_len: u32,
    pages: u32,
    ty: u32,
    key_scale: f32,
    value_scale: f32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct MoveArgs {
    keys: Address,
    values: Address,
    moves: Address,
    count: u32,
    kv_heads: u32,
    dim: u32,
    page_tokens: u32,
    pages: u32,
    bytes: u32,
    groups: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct DecodeArgs {
    pub(super) q: Address,
    pub(super) keys: Address,
    pub(super) values: Address,
    pub(super) tables: Address,
    pub(super) sequences: Address,
    pub(super) lengths: Address,
    pub(super) partial: Address,
    pub(super) y: Address,
    pub(super) sinks: Address,
    pub(super) slopes: Address,
    pub(super) positions: Address,
    pub(super) seen: Address,
    pub(super) queries: u32,
    pub(super) rows: u32,
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    pub(super) dim: u32,
    pub(super) page_tokens: u32,
    pub(super) table_len: u32,
    pub(super) pages: u32,
    pub(super) parts: u32,
    pub(super) piece: u32,
    pub(super) window: u32,
    pub(super) ty: u32,
    pub(super) together: u32,
    pub(super) scale: f32,
    pub(super) key_scale: f32,
    pub(super) value_scale: f32,
    pub(super) cap: f32,
}

// SAFETY: as in attention.cu.
unsafe impl Arguments for AppendArgs {}
// SAFETY: as in attention.cu.
unsafe impl Arguments for MoveArgs {}
// SAFETY: as in attention.cu.
unsafe impl Arguments for DecodeArgs {}

/// What keys and values are stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// IEEE 754 binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// FP8 E4M3, times a scale; what is larger than 448 times that is cut off.
    E4m3,
    /// IEEE 754 binary32. Attention of many queries has no kernels for it, as tensor cores multiply no f32.
    F32,
    /// 8 bits, with a scale of 16 for each 32 elements of a head. Whole models write it; attention of many queries has no kernels for it.
    Q8_0,
}

impl KvFormat {
    pub(super) const ALL: [Self; 5] = [Self::F16, Self::Bf16, Self::E4m3, Self::F32, Self::Q8_0];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::E4m3 => "e4m3",
            Self::F32 => "f32",
            Self::Q8_0 => "q8_0",
        }
    }

    /// Whether there are kernels for single queries on tensor cores.
    const fn has_tiles(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::E4m3)
    }

    /// Whether there are kernels for wide heads on tensor cores.
    pub(super) const fn is_wide_tiled(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16)
    }

    /// Whether [`Ops::kv_append`] writes it.
    const fn is_appended(self) -> bool {
        !matches!(self, Self::Q8_0)
    }

    /// Bytes of a number, or of its code.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => size_of::<u16>(),
            Self::E4m3 | Self::Q8_0 => 1,
            Self::F32 => size_of::<f32>(),
        }
    }

    /// Bytes of a page with so many rows of `dim` elements: of keys or of values.
    fn page_bytes(self, rows: usize, dim: usize) -> Result<usize, CudaError> {
        match self {
            // Codes, and scales behind those of all rows.
            Self::Q8_0 => {
                let row = dim + size_of::<u16>() * dim.div_ceil(32);
                Ok(area("bytes of a page", &[rows, row])?.next_multiple_of(16))
            }
            plain => area("bytes of a page", &[rows, dim, plain.bytes()]),
        }
    }
}

/// The shape of a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvShape {
    /// What keys and values are stored as.
    pub format: KvFormat,
    /// Pages.
    pub pages: usize,
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Elements of a head: a multiple of 8, at most 256.
    pub head_dim: usize,
    /// What stored keys and stored values are multiplied with.
    pub scales: [f32; 2],
}

/// Keys and values of tokens, in pages: of a page the tokens of one head lie together.
#[derive(Debug)]
pub struct KvCache {
    shape: KvShape,
    keys: Buffer<u8>,
    values: Buffer<u8>,
}

impl KvCache {
    /// A cache with arbitrary contents.
    ///
    /// # Errors
    /// `Kernel` if the shape is none; `OutOfMemory`, `Driver`.
    pub fn new(context: &Context, shape: KvShape) -> Result<Self, CudaError> {
        if shape.head_dim > geometry::NARROW {
            return Err(bad("head_dim", "at most 256"));
        }
        Self::with(context, shape, true)
    }

    /// The same with heads of at most [`WIDE`](Self::WIDE) elements, which the operations of whole models alone know; without `values`, those of the only head are
    /// values, too.
    pub(crate) fn wide(context: &Context, shape: KvShape, values: bool) -> Result<Self, CudaError> {
        if shape.head_dim > Self::WIDE || !(values || shape.kv_heads == 1) {
            return Err(bad(
                "head_dim, kv_heads",
                "heads of at most 576 elements, without values one of them",
            ));
        }
        Self::with(context, shape, values)
    }

    /// Elements of a head, or of a row of latent attention, for which there are kernels.
    pub(crate) const WIDE: usize = 576;

    fn with(context: &Context, shape: KvShape, values: bool) -> Result<Self, CudaError> {
        let KvShape { format, pages, page_tokens, kv_heads, head_dim, scales } = shape;
        if head_dim == 0 || !head_dim.is_multiple_of(8) {
            return Err(bad("head_dim", "a multiple of 8"));
        }
        if page_tokens == 0 || kv_heads == 0 {
            return Err(bad("page_tokens, kv_heads", "at least 1"));
        }
        if !scales.iter().all(|s| *s > 0.0 && s.is_finite()) {
            return Err(bad("scales", "positive and finite"));
        }
        for (what, n) in [("pages", pages), ("page_tokens", page_tokens), ("kv_heads", kv_heads)] {
            small(what, n)?;
        }
        small("kv_heads * head_dim", area("kv_heads * head_dim", &[kv_heads, head_dim])?)?;
        small("rows of the cache", area("rows of the cache", &[pages, page_tokens, kv_heads])?)?;
        let page = format.page_bytes(page_tokens * kv_heads, head_dim)?;
        let bytes = area("bytes of the cache", &[pages, page])?;
        let of_values = if values { bytes } else { 0 };
        Ok(Self { shape, keys: Buffer::new(context, bytes)?, values: Buffer::new(context, of_values)? })
    }

    /// The shape.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Whether it has values beside keys.
    pub(crate) fn has_values(&self) -> bool {
        !self.values.is_empty() || self.keys.is_empty()
    }

    /// Copies the keys and values of page `from` to page `to`. Does not wait.
    ///
    /// # Errors
    /// `WrongSize` if there are no such pages; `OtherContext`, `Driver`.
    pub(crate) fn copy_page(&mut self, stream: &Stream, from: u32, to: u32) -> Result<(), CudaError> {
        let bytes = self.keys.len() / self.shape.pages.max(1);
        let (from, to) = (from as usize * bytes, to as usize * bytes);
        if from == to {
            return Ok(());
        }
        for all in [&self.keys, &self.values].into_iter().filter(|all| !all.is_empty()) {
            // SAFETY: the cache is borrowed exclusively, and two pages do not overlap.
            let mut page = unsafe { all.place::<u8>(to, bytes)? };
            page.copy_from(stream, all.range(from..from + bytes)?)?;
        }
        Ok(())
    }

    /// Where keys and values are.
    pub(super) fn places(&self) -> (Address, Address) {
        (self.keys.address(), self.values.address())
    }
}

/// The numbers of the pages of each sequence: a row of `len` for each. Numbers of pages that do not exist stand for none.
#[derive(Clone, Copy, Debug)]
pub struct PageTables<'a> {
    /// All rows.
    pub pages: View<'a, u32>,
    /// Numbers in a row.
    pub len: usize,
}

impl PageTables<'_> {
    pub(super) fn rows(&self) -> Result<usize, CudaError> {
        super::check::rows(self.pages.len(), self.len)
    }
}

/// How single queries attend.
#[derive(Clone, Copy, Debug)]
pub struct Decode<'a> {
    /// Heads of queries.
    pub heads: usize,
    /// What products of queries and keys are multiplied with.
    pub scale: f32,
    /// How many tokens a query sees, its own among them; `None`: all.
    pub window: Option<usize>,
    /// A score for each head that no token has: it takes its part of the softmax, and adds no value.
    pub sinks: Option<View<'a, f32>>,
    /// ALiBi: how much the score of each head falls for each token from a key to its query, which is the last token of its sequence.
    pub slopes: Option<View<'a, f32>>,
    /// Whether queries, and the exponentials that values are multiplied with, are rounded to what keys are stored as (to `F16` where that is `E4m3`), so that
    /// tensor cores multiply them. That is for heads of at most 128, a multiple of 16 in caches of `E4m3`, in caches of `F16`, `Bf16` and `E4m3`, on NVIDIA's GPUs from compute capability 8.0 on; elsewhere it changes nothing.
    pub halves: bool,
}

/// Rows of a tile of tensor cores: heads of queries.
pub(super) const TILE_ROWS: usize = 16;
/// The sizes of heads that kernels for tensor cores are compiled for; others take the next larger one.
const TILE_DIMS: [(usize, &str); 2] = [(64, "d64"), (128, "d128")];

/// Room for what parts of the tokens give.
#[derive(Debug)]
pub struct DecodeRoom {
    partial: Buffer<f32>,
    parts: usize,
    dim: usize,
}

impl DecodeRoom {
    /// Room for so many queries (sequences times heads) over about `tokens` tokens: the more parts of them there is room for, the more blocks share the
    /// work.
    ///
    /// # Errors
    /// `OutOfMemory`, `Kernel(SizeOverflow)`, `Driver`.
    pub fn new(context: &Context, queries: usize, head_dim: usize, tokens: usize) -> Result<Self, CudaError> {
        let parts = geometry::decode_room(queries, tokens, context.device().multiprocessors() as usize);
        let n = area("partial results", &[queries, parts, head_dim + 2])?;
        Ok(Self { partial: Buffer::new(context, n)?, parts, dim: head_dim })
    }
}

impl Ops {
    /// The dimensions and the name of the kernel that attends to such a cache on tensor cores, if there is one: it reads 16 bytes of a row at a time.
    pub(super) fn tile_dim(&self, shape: &KvShape) -> Option<(usize, &'static str)> {
        let there = self.loader.capability().multiplies_tiles() && shape.format.has_tiles();
        let whole = (shape.head_dim * shape.format.bytes()).is_multiple_of(16);
        TILE_DIMS.iter().copied().find(|d| there && whole && d.0 >= shape.head_dim)
    }

    /// The kernel for single queries, with its geometry; with `halves`, on tensor cores if there is one for that. Then `together` is how many queries
    /// of a sequence have room in a tile.
    pub(super) fn decode_kernel(
        &self,
        shape: &KvShape,
        (queries, heads, parts): (usize, usize, usize),
        halves: bool,
    ) -> Result<((File, Name), geometry::Geometry, u32), CudaError> {
        let (group, of_heads) = (heads / shape.kv_heads, (heads, shape.kv_heads));
        let (suffix, geometry, together) = match self.tile_dim(shape).filter(|_| halves) {
            Some((dim, suffix)) => {
                let number = (dim, shape.format.bytes());
                let geometry = geometry::decode_tiles((queries, parts), of_heads, number);
                (suffix, geometry, (TILE_ROWS / group).max(1))
            }
            None => {
                let (width, suffix) = if group > 1 { (4, "h4") } else { (1, "h1") };
                (suffix, geometry::decode((queries, parts), of_heads, (shape.head_dim, width)), 1)
            }
        };
        let kernel = (File::attention, Name("attention_decode", shape.format.name(), suffix));
        Ok((kernel, geometry, small("queries of a tile", together)?))
    }

    pub(super) fn tables(&self, cache: &KvCache, tables: &PageTables<'_>) -> Result<usize, CudaError> {
        self.here(cache.keys.context())?;
        self.here(tables.pages.context())?;
        tables.rows()
    }

    /// Where the numbers that so many heads have one of each are; 0 if there are none.
    pub(super) fn of_heads(
        &self,
        what: &'static str,
        numbers: Option<View<'_, f32>>,
        heads: usize,
    ) -> Result<Address, CudaError> {
        let Some(numbers) = numbers else { return Ok(0) };
        same_len(what, numbers.len(), heads)?;
        self.here(numbers.context())?;
        Ok(numbers.address())
    }

    /// Stores the keys and values of tokens, `kv_heads * head_dim` each: of token `t` at position `positions[t]` of sequence
    /// `sequences[t]`. Tokens whose sequence or page does not exist are left out.
    ///
    /// # Errors
    /// `WrongSize` unless there are as many keys, values, sequences and positions; `Kernel` unless tables have whole rows, or for a cache of `Q8_0`;
    /// `OtherContext`, `Launch`.
    pub fn kv_append<T: Float>(
        &self,
        stream: &Stream,
        cache: &mut KvCache,
        tables: PageTables<'_>,
        (sequences, positions): (View<'_, u32>, View<'_, u32>),
        (k, v): (View<'_, T>, View<'_, T>),
    ) -> Result<(), CudaError> {
        let rows = self.tables(cache, &tables)?;
        let shape = cache.shape;
        if !shape.format.is_appended() {
            return Err(bad("cache", "one that is not of codes of 8 bits: whole models write these"));
        }
        let tokens = sequences.len();
        same_len("positions", positions.len(), tokens)?;
        let elements = area("elements of k", &[tokens, shape.kv_heads, shape.head_dim])?;
        same_len("k", k.len(), elements)?;
        same_len("v", v.len(), elements)?;
        for context in [sequences.context(), positions.context(), k.context(), v.context()] {
            self.here(context)?;
        }
        let args = AppendArgs {
            k: k.address(),
            v: v.address(),
            keys: cache.keys.address(),
            values: cache.values.address(),
            tables: tables.pages.address(),
            sequences: sequences.address(),
            positions: positions.address(),
            rows: small("rows of tables", rows)?,
            kv_heads: small("kv_heads", shape.kv_heads)?,
            dim: small("head_dim", shape.head_dim)?,
            page_tokens: small("page_tokens", shape.page_tokens)?,
            table_len: small("numbers of a table", tables.len)?,
            pages: small("pages", shape.pages)?,
            ty: type_number(T::TYPE),
            key_scale: shape.scales[0],
            value_scale: shape.scales[1],
        };
        let kernel = (File::attention, Name("kv_append", shape.format.name(), ""));
        let geometry = geometry::kv_append(tokens);
        // SAFETY: the arguments were checked; sequences, positions and pages are checked by the kernel.
        unsafe { self.loader.launch(kernel, stream, geometry, &args) }
    }

    /// Copies keys and values from one place to another, move after move: `moves` has of each a page and a slot of it, and those that they go to.
    /// Moves from or to pages that do not exist are left out.
    ///
    /// # Errors
    /// `Kernel` unless moves are whole fours; `OtherContext`, `Launch`.
    pub(crate) fn kv_move(
        &self,
        stream: &Stream,
        cache: &mut KvCache,
        moves: View<'_, u32>,
    ) -> Result<(), CudaError> {
        self.here(cache.keys.context())?;
        self.here(moves.context())?;
        let KvShape { format, pages, page_tokens, kv_heads, head_dim: dim, .. } = cache.shape;
        let (keys, values) = cache.places();
        let args = MoveArgs {
            keys,
            values,
            moves: moves.address(),
            count: small("moves", super::check::rows(moves.len(), 4)?)?,
            kv_heads: small("kv_heads", kv_heads)?,
            dim: small("head_dim", dim)?,
            page_tokens: small("page_tokens", page_tokens)?,
            pages: small("pages", pages)?,
            bytes: small("bytes of a row", dim * format.bytes())?,
            groups: if format == KvFormat::Q8_0 { small("scales", dim.div_ceil(32))? } else { 0 },
        };
        let kernel = (File::attention, Name("kv_move", "", ""));
        // SAFETY: the cache has its pages, which are checked by the kernel; whoever makes moves vouches that slots are those of pages.
        unsafe { self.loader.launch(kernel, stream, geometry::kv_move(kv_heads, cache.has_values()), &args) }
    }

    /// Attention of one query per sequence and head over the tokens of its sequence: `y = sum_t p_t v_t`, `p` the softmax of
    /// `scale * (q . k_t)` over the last `window` (or all) of `lengths[s]` tokens. `q` and `y` have `heads * head_dim` elements
    /// for each sequence; `heads / kv_heads` consecutive ones share a KV head. In f32 unless `halves` says otherwise, narrowed once. A sequence without tokens
    /// gives zeros; tokens whose pages do not exist do not take part. With a sink `z` of the head
    /// `p_t = exp(s_t) / (exp(z) + sum_u exp(s_u))`, `s` being the scores. With a slope `m` of the head the score of token `t` is
    /// `scale * (q . k_t) - m (lengths[s] - 1 - t)`: the query is that of the last token (ALiBi, Press et al., 2022).
    ///
    /// The tokens are split among blocks (Flash-Decoding, Dao et al., 2023), whose results are joined by a second kernel.
    ///
    /// # Errors
    /// `WrongSize` unless `y`, `q`, sinks, slopes, tables and lengths fit together and the room is large enough; `Kernel` unless heads are a
    /// multiple of the KV heads and `scale` is finite; `OtherContext`, `Launch`.
    pub fn attention_decode<'a, T: Float>(
        &self,
        stream: &Stream,
        (cache, tables): (&KvCache, PageTables<'_>),
        lengths: View<'_, u32>,
        how: Decode<'_>,
        q: View<'_, T>,
        (room, y): (&mut DecodeRoom, impl Into<ViewMut<'a, T>>),
    ) -> Result<(), CudaError> {
        let y = y.into();
        let Decode { heads, scale, window, sinks, slopes, halves } = how;
        let rows = self.tables(cache, &tables)?;
        let shape = cache.shape;
        if heads == 0 || !heads.is_multiple_of(shape.kv_heads) {
            return Err(bad("heads", "a multiple of the KV heads"));
        }
        if !scale.is_finite() {
            return Err(bad("scale", "finite"));
        }
        if window == Some(0) {
            return Err(bad("window", "at least 1 token"));
        }
        let sequences = lengths.len();
        if rows < sequences {
            return Err(CudaError::WrongSize {
                arg: "tables",
                need: sequences * tables.len,
                got: tables.pages.len(),
            });
        }
        let elements = area("elements of y", &[sequences, heads, shape.head_dim])?;
        same_len("q", q.len(), elements)?;
        same_len("y", y.len(), elements)?;
        let need = area("partial results", &[sequences, heads, room.parts, shape.head_dim + 2])?;
        if room.partial.len() < need || room.dim != shape.head_dim {
            return Err(CudaError::WrongSize { arg: "room", need, got: room.partial.len() });
        }
        for context in [lengths.context(), q.context(), y.context(), room.partial.context()] {
            self.here(context)?;
        }
        aligned("cache", cache.keys.address() | cache.values.address())?;
        let (kernel, mut geometry, together) = self.decode_kernel(&shape, (sequences, heads, 1), halves)?;
        let [_, heads_of_blocks, queries] = geometry.grid;
        let parts = geometry::decode_parts(heads_of_blocks * queries, self.multiprocessors()).min(room.parts);
        geometry.grid[0] = parts;
        let args = DecodeArgs {
            q: q.address(),
            keys: cache.keys.address(),
            values: cache.values.address(),
            tables: tables.pages.address(),
            sequences: 0,
            lengths: lengths.address(),
            partial: room.partial.address(),
            y: y.address(),
            sinks: self.of_heads("sinks", sinks, heads)?,
            slopes: self.of_heads("slopes", slopes, heads)?,
            positions: 0,
            seen: 0,
            queries: small("sequences", sequences)?,
            rows: small("rows of tables", rows)?,
            heads: small("heads", heads)?,
            kv_heads: small("kv_heads", shape.kv_heads)?,
            dim: small("head_dim", shape.head_dim)?,
            page_tokens: small("page_tokens", shape.page_tokens)?,
            table_len: small("numbers of a table", tables.len)?,
            pages: small("pages", shape.pages)?,
            parts: small("parts", parts)?,
            piece: 0,
            window: small("window", window.unwrap_or(0))?,
            ty: type_number(T::TYPE),
            together,
            scale,
            key_scale: shape.scales[0],
            value_scale: shape.scales[1],
            cap: 0.0,
        };
        let join = (File::attention, Name("attention_join", "", ""));
        // SAFETY: the arguments were checked; lengths and pages are checked by the kernel.
        unsafe {
            self.loader.launch(kernel, stream, geometry, &args)?;
            self.loader.launch(join, stream, geometry::join(sequences * heads, shape.head_dim), &args)
        }
    }
}

pub(super) fn list(capability: Capability, to: &mut dyn FnMut(File, Name, usize)) {
    to(File::attention, Name("attention_join", "", ""), size_of::<DecodeArgs>());
    to(File::attention, Name("kv_move", "", ""), size_of::<MoveArgs>());
    for format in KvFormat::ALL {
        if format.is_appended() {
            to(File::attention, Name("kv_append", format.name(), ""), size_of::<AppendArgs>());
        }
        for width in ["h1", "h4"] {
            to(File::attention, Name("attention_decode", format.name(), width), size_of::<DecodeArgs>());
        }
        for (_, dim) in TILE_DIMS.into_iter().filter(|_| capability.multiplies_tiles() && format.has_tiles())
        {
            to(File::attention, Name("attention_decode", format.name(), dim), size_of::<DecodeArgs>());
        }
    }
}
