//! Attention of many queries over keys and values in pages.

use super::attention::{KvCache, KvFormat, PageTables};
use super::check::{aligned, area, bad, rows, same_len, small};
use super::error::{Capability, CudaError};
use super::gemm::WGMMA;
use super::geometry;
use super::kernels::{type_number, File, Name};
use super::memory::{View, ViewMut};
use super::module::Arguments;
use super::stream::Stream;
use super::sys::Address;
use super::{Float, Ops};

#[derive(Clone, Copy)]
#[repr(C)]
struct PrefillArgs {
    q: Address,
    keys: Address,
    values: Address,
    tables: Address,
    starts: Address,
    lengths: Address,
    y: Address,
    sinks: Address,
    slopes: Address,
    tokens: u32,
    heads: u32,
    kv_heads: u32,
    dim: u32,
    page_tokens: u32,
    table_len: u32,
    pages: u32,
    causal: u32,
    window: u32,
    ty: u32,
    scale: f32,
    key_scale: f32,
    value_scale: f32,
}
// SAFETY: as in prefill.cu.
unsafe impl Arguments for PrefillArgs {}

/// Which tokens a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All of its sequence.
    Full,
    /// Those up to its own.
    Causal,
    /// The last so many of those up to its own: a sliding window.
    Window(usize),
    /// Those that are fewer than so many tokens away, before it and behind it.
    Around(usize),
}

/// How queries attend.
#[derive(Clone, Copy, Debug)]
pub struct Prefill<'a> {
    /// Heads of queries.
    pub heads: usize,
    /// What products of queries and keys are multiplied with: positive.
    pub scale: f32,
    /// Which tokens they see.
    pub mask: Mask,
    /// Queries of the sequence that has most: how the work is divided, no limit.
    pub longest: usize,
    /// A score for each head that no token has: it takes its part of the softmax, and adds no value.
    pub sinks: Option<View<'a, f32>>,
    /// ALiBi: how much the score of each head falls for each token between its query and its key, whichever comes first.
    pub slopes: Option<View<'a, f32>>,
}

/// The sizes of heads that kernels are compiled for; others take the next larger one.
const DIMS: [(usize, &str); 5] = [(64, "d64"), (80, "d80"), (96, "d96"), (128, "d128"), (256, "d256")];

/// Whether there are kernels for a cache of this format.
const fn has_kernels(format: KvFormat) -> bool {
    matches!(format, KvFormat::F16 | KvFormat::Bf16 | KvFormat::E4m3)
}

/// The sizes of heads for which compute capability 9.0 has kernels by `wgmma`: those of a cache of E4M3 have no registers for 256.
const WIDE_DIMS: [(usize, &str); 3] = [(64, "w64"), (128, "w128"), (256, "w256")];

/// Queries of a sequence from which on these are worth it.
const MIN_WIDE: usize = 65;

/// The kernel of these for heads that have a kernel for `dim`, if there is one.
fn wide(capability: Capability, format: KvFormat, dim: usize) -> Option<&'static str> {
    let there = capability == WGMMA && has_kernels(format) && (dim < 256 || format != KvFormat::E4m3);
    WIDE_DIMS.into_iter().find(|d| there && d.0 == dim).map(|d| d.1)
}

impl Prefill<'_> {
    /// Elements that heads may have.
    pub(crate) const MOST: usize = DIMS[DIMS.len() - 1].0;
}

impl Ops {
    /// Attention of the last queries of each sequence over its tokens, whose keys and values are in the cache already:
    /// `y = sum_t p_t v_t`, `p` the softmax of `scale * (q . k_t)` over the tokens that `mask` shows. `q` and `y` have
    /// `heads * head_dim` elements a query; those of sequence `s` are `starts[s]` to `starts[s + 1]`, and the last of them is that
    /// of token `lengths[s] - 1`. `heads / kv_heads` consecutive heads share a KV head. A query that sees nothing gives zeros;
    /// tokens whose pages do not exist do not take part; queries of no sequence are left alone. With a sink `z` of the head
    /// `p_t = exp(s_t) / (exp(z) + sum_u exp(s_u))`, `s` being the scores. With a slope `m` of the head the score of the token at position `t` for
    /// the query at position `n` is `scale * (q . k_t) - m |n - t|` (ALiBi, Press et al., 2022).
    ///
    /// Products are made of numbers of 16 bits: queries and exponentials are rounded to what keys are stored as (f16 for E4M3).
    /// Sums are in f32. Heads of 64, 80, 96, 128 and 256 have kernels of their own; others take the next larger one.
    ///
    /// FlashAttention-2 (Dao, 2023); on compute capability 9.0, with heads of 64, 128 and 256, much of FlashAttention-3 (Shah et al., 2024).
    ///
    /// # Errors
    /// `WrongSize` unless there is a start more than there are lengths, a row of tables for each of these, a sink and a slope for each head if there are any,
    /// and `y` is as large as `q`; `Kernel` if the cache is of f32 or `Q8_0`, or of E4M3 with heads that are no multiple of 16, unless heads are a multiple of the KV heads, these are whole queries, `scale` is positive and finite and
    /// a window not empty; `Misaligned` unless `q` and `y` start at a multiple of 16 bytes; `Geometry` with more than 65535 heads or
    /// sequences; `OtherContext`, `Launch`.
    pub fn attention_prefill<'a, T: Float>(
        &self,
        stream: &Stream,
        (cache, tables): (&KvCache, PageTables<'_>),
        (starts, lengths): (View<'_, u32>, View<'_, u32>),
        how: Prefill<'_>,
        q: View<'_, T>,
        y: impl Into<ViewMut<'a, T>>,
    ) -> Result<(), CudaError> {
        let y = y.into();
        let tabled = self.tables(cache, &tables)?;
        let shape = cache.shape();
        let Prefill { heads, scale, mask, longest, sinks, slopes } = how;
        if !has_kernels(shape.format) {
            return Err(bad("cache", "one of f16, bf16 or E4M3"));
        }
        let Some((dim, suffix)) = DIMS.iter().copied().find(|d| d.0 >= shape.head_dim) else {
            return Err(bad("cache", "one whose heads have at most 256 elements"));
        };
        if shape.format == KvFormat::E4m3 && !shape.head_dim.is_multiple_of(16) {
            return Err(bad("cache", "one whose heads are a multiple of 16, if it is of E4M3"));
        }
        if heads == 0 || !heads.is_multiple_of(shape.kv_heads) {
            return Err(bad("heads", "a multiple of the KV heads"));
        }
        if !(scale > 0.0 && scale.is_finite()) {
            return Err(bad("scale", "positive and finite"));
        }
        if let Mask::Window(0) | Mask::Around(0) = mask {
            return Err(bad("window", "at least 1 token"));
        }
        let sequences = lengths.len();
        same_len("starts", starts.len(), sequences + 1)?;
        if tabled < sequences {
            return Err(CudaError::WrongSize {
                arg: "tables",
                need: sequences * tables.len,
                got: tables.pages.len(),
            });
        }
        let tokens = rows(q.len(), area("elements of a query", &[heads, shape.head_dim])?)?;
        same_len("y", y.len(), q.len())?;
        for context in [starts.context(), lengths.context(), q.context(), y.context()] {
            self.here(context)?;
        }
        aligned("q", q.address())?;
        aligned("y", y.address())?;
        let (keys, values) = cache.places();
        let args = PrefillArgs {
            q: q.address(),
            keys,
            values,
            tables: tables.pages.address(),
            starts: starts.address(),
            lengths: lengths.address(),
            y: y.address(),
            sinks: self.of_heads("sinks", sinks, heads)?,
            slopes: self.of_heads("slopes", slopes, heads)?,
            tokens: small("queries", tokens)?,
            heads: small("heads", heads)?,
            kv_heads: small("kv_heads", shape.kv_heads)?,
            dim: small("head_dim", shape.head_dim)?,
            page_tokens: small("page_tokens", shape.page_tokens)?,
            table_len: small("numbers of a table", tables.len)?,
            pages: small("pages", shape.pages)?,
            causal: matches!(mask, Mask::Causal | Mask::Window(_)).into(),
            window: match mask {
                Mask::Window(tokens) | Mask::Around(tokens) => small("window", tokens)?,
                Mask::Full | Mask::Causal => 0,
            },
            ty: type_number(T::TYPE),
            scale,
            key_scale: shape.scales[0],
            value_scale: shape.scales[1],
        };
        // At least a block a sequence, as blocks loop, and no more than there are queries for.
        let queries = longest.max(1).min(tokens);
        let (suffix, geometry) = match wide(self.capability(), shape.format, dim) {
            Some(suffix) if queries >= MIN_WIDE => {
                let number = (dim, shape.format.bytes());
                (suffix, geometry::prefill_wide(number, queries, heads, sequences))
            }
            _ => (suffix, geometry::prefill(dim, queries, heads, sequences)),
        };
        let kernel = (File::prefill, Name("attention_prefill", shape.format.name(), suffix));
        // SAFETY: the arguments were checked; starts, lengths and pages are checked by the kernel.
        unsafe { self.loader.launch(kernel, stream, geometry, &args) }
    }
}

pub(super) fn list(capability: Capability, to: &mut dyn FnMut(File, Name, usize)) {
    for format in KvFormat::ALL.into_iter().filter(|&format| has_kernels(format)) {
        let by_wgmma = WIDE_DIMS.into_iter().filter_map(|(dim, _)| wide(capability, format, dim));
        for dim in DIMS.into_iter().map(|(_, dim)| dim).chain(by_wgmma) {
            to(File::prefill, Name("attention_prefill", format.name(), dim), size_of::<PrefillArgs>());
        }
    }
}
