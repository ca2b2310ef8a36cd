//! Latent attention, whose rows are keys and values at once, in a cache without values; and attention of wide heads, which the same kernels compute.

use super::attention::{DecodeArgs, KvCache, PageTables, TILE_ROWS};
use super::check::{area, bad, same_len, small};
use super::decoder::{Attend, Heads, SegmentsArgs, StepRows};
use super::error::{Capability, CudaError};
use super::geometry;
use super::kernels::{File, Name};
use super::memory::{View, ViewMut};
use super::module::Arguments;
use super::segments::SEGMENT;
use super::stream::Stream;
use super::sys::Address;
use super::{KvFormat, Ops};

#[derive(Clone, Copy)]
#[repr(C)]
struct WideArgs {
    decode: DecodeArgs,
    turned: Address,
    rank: u32,
    turns: u32,
    next_head: u32,
    next_query: u32,
}

// SAFETY: as in attention.cu.
unsafe impl Arguments for WideArgs {}

/// Queries of a step whose first row is `first` of `all`: of each head the rows of all of them, `rank` elements of each in [`Attend::queries`], which go with values, and
/// `turns` elements here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatentQueries<'a> {
    pub(crate) turned: View<'a, f32>,
    pub(crate) rank: usize,
    pub(crate) turns: usize,
    pub(crate) first: usize,
    pub(crate) all: usize,
}

/// A kernel for tensor cores: columns of its warps together, those behind them that turn, and what its name ends with.
struct WideTiles {
    columns: usize,
    turns: usize,
    suffix: &'static str,
}

const WIDE_TILES: [WideTiles; 2] = [
    WideTiles { columns: 256, turns: 0, suffix: "d256" },
    WideTiles { columns: 512, turns: 64, suffix: "d512" },
];

impl Ops {
    /// Norms and rotates what is cached of rows, `how.x[1]`, and rotates the last elements of each head of `how.x[0]`, which go to `how.queries`: of each head those of all
    /// rows. Rows of sequences or pages that do not exist are not appended.
    pub(crate) fn latent_rows(
        &self,
        stream: &Stream,
        cache: (&mut KvCache, PageTables<'_>),
        rows: StepRows<'_>,
        how: Heads<'_>,
    ) -> Result<(), CudaError> {
        let (m, heads, turns) = (rows.lengths.len(), how.heads, how.rot_dim);
        let Some(rank) = how.dim.checked_sub(turns).filter(|&rank| rank > 0 && how.step >= turns) else {
            return Err(bad("rot_dim", "below head_dim, and no more than queries have"));
        };
        let norm = how.norm.map(|norm| (norm.len(), norm.address()));
        let Some((_, weight)) = norm.filter(|norm| norm.0 == rank) else {
            return Err(bad("norm", "as many elements as are not rotated"));
        };
        same_len("queries", how.queries.len(), area("elements of queries", &[m, heads, turns])?)?;
        let widths = [(heads - 1) * how.step + turns, how.dim, 0];
        let args = self.heads_args(cache, rows, &how, (widths, [0; 3], [0, weight, 0]))?;
        let geometry = geometry::latent_rows(m, heads, args.room as usize);
        // SAFETY: the arguments were checked; sequences, positions and pages are checked by the kernel.
        unsafe { self.loader.launch((File::decoder, Name("decoder", "latent", "")), stream, geometry, &args) }
    }

    /// What each piece of the tokens gives the heads of each row, to be joined by [`decoder_join`](Self::decoder_join).
    pub(crate) fn latent_attend(
        &self,
        stream: &Stream,
        cache: (&KvCache, PageTables<'_>),
        how: &Attend<'_>,
        of: LatentQueries<'_>,
        partial: ViewMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let (shape, queries) = (cache.0.shape(), how.rows.lengths.len());
        let LatentQueries { turned, rank, turns, first, all } = of;
        if cache.0.has_values() || rank + turns > shape.head_dim || first + queries > all {
            return Err(bad("rank, turned", "what a cache without values has, of rows that are there"));
        }
        same_len("queries", how.queries.len(), area("elements of queries", &[how.heads, all, rank])?)?;
        same_len("turned", turned.len(), area("elements that are rotated", &[how.heads, all, turns])?)?;
        same_len("partial", partial.len(), Self::partial_len(queries, how.heads, how.pieces, rank)?)?;
        self.here(turned.context())?;
        self.here(partial.context())?;
        let mut decode = self.attend_args(cache, how, (partial.address(), shape.head_dim))?;
        let row = |elements: usize| (first * elements * size_of::<f32>()) as Address;
        decode.q += row(rank);
        let args = WideArgs {
            decode,
            turned: turned.address() + row(turns),
            rank: small("rank", rank)?,
            turns: small("turns", turns)?,
            next_head: small("rows", all)?,
            next_query: 1,
        };
        // SAFETY: the arguments were checked; lengths, sequences and pages are checked by the kernel.
        unsafe { self.wide(stream, (shape.format, how.halves), args) }
    }

    /// Attention of heads with more than 256 elements; no caps of scores, and no linear biases.
    ///
    /// # Safety
    /// The arguments have been checked: they are those of kernels for narrow heads.
    pub(super) unsafe fn wide_attend(
        &self,
        stream: &Stream,
        format: (KvFormat, bool),
        decode: DecodeArgs,
    ) -> Result<(), CudaError> {
        if decode.cap != 0.0 || decode.slopes != 0 {
            return Err(bad("cap, slopes", "none for heads of more than 256 elements"));
        }
        let DecodeArgs { heads, dim: rank, .. } = decode;
        let args = WideArgs { decode, turned: 0, rank, turns: 0, next_head: 1, next_query: heads };
        // SAFETY: the caller's contract; lengths, sequences and pages are checked by the kernel.
        unsafe { self.wide(stream, format, args) }
    }

    /// With `halves` on tensor cores, if there is a kernel for that.
    ///
    /// # Safety
    /// The arguments are those of the kernel.
    unsafe fn wide(
        &self,
        stream: &Stream,
        (format, halves): (KvFormat, bool),
        mut args: WideArgs,
    ) -> Result<(), CudaError> {
        if format == KvFormat::E4m3 {
            return Err(bad("cache", "one of 16 or 32 bits, or of codes of 8, for wide heads"));
        }
        let DecodeArgs { queries, parts, heads, kv_heads, .. } = args.decode;
        let [blocks, of_heads] = [(queries, parts), (heads, kv_heads)].map(|(m, n)| (m as usize, n as usize));
        let elements = (args.rank as usize, args.turns as usize);
        let (suffix, geometry) = match self.wide_tiles(format, elements).filter(|_| halves) {
            Some((columns, suffix)) => {
                args.decode.together = (TILE_ROWS as u32 / (heads / kv_heads)).max(1);
                (suffix, geometry::wide_tiles(blocks, of_heads, columns))
            }
            None => ("", geometry::wide(blocks, of_heads, KvCache::WIDE)),
        };
        let kernel = (File::attention, Name("attention_wide", format.name(), suffix));
        // SAFETY: the caller's contract.
        unsafe { self.loader.launch(kernel, stream, geometry, &args) }
    }

    /// The columns and the name of the kernel that attends on tensor cores with so many elements of a head, and so many behind them that turn, if there is one.
    pub(super) fn wide_tiles(
        &self,
        format: KvFormat,
        (rank, turns): (usize, usize),
    ) -> Option<(usize, &'static str)> {
        let there = self.capability().multiplies_tiles() && format.is_wide_tiled();
        let whole = there && rank.is_multiple_of(8) && turns.is_multiple_of(8);
        let fits = |of: &&WideTiles| of.columns >= rank && of.turns >= turns;
        WIDE_TILES.iter().filter(|_| whole).find(fits).map(|of| (of.columns, of.suffix))
    }

    /// The segments of products with `matrices` matrices, each of which has `rows` rows: `most` in a segment at most.
    pub(crate) fn segments_of_heads(
        &self,
        stream: &Stream,
        (matrices, rows, most): (usize, usize, usize),
        table: ViewMut<'_, u32>,
    ) -> Result<(), CudaError> {
        self.here(table.context())?;
        same_len("segments", table.len(), area("segments", &[matrices, rows.div_ceil(most), SEGMENT])?)?;
        let args = SegmentsArgs {
            table: table.address(),
            matrices: small("matrices", matrices)?,
            rows: small("rows", rows)?,
            most: small("rows of a segment", most)?,
        };
        let geometry = geometry::Geometry { grid: [matrices, 1, 1], threads: 32, shared: 0 };
        // SAFETY: the arguments were checked.
        unsafe {
            self.loader.launch((File::decoder, Name("decoder", "segments", "")), stream, geometry, &args)
        }
    }
}

pub(super) fn list(capability: Capability, to: &mut dyn FnMut(File, Name, usize)) {
    for format in KvFormat::ALL.into_iter().filter(|&format| format != KvFormat::E4m3) {
        to(File::attention, Name("attention_wide", format.name(), ""), size_of::<WideArgs>());
        for of in WIDE_TILES.iter().filter(|_| capability.multiplies_tiles() && format.is_wide_tiled()) {
            to(File::attention, Name("attention_wide", format.name(), of.suffix), size_of::<WideArgs>());
        }
    }
}
