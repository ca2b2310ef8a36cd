//! What a decoder computes between its products, fused: rows are in f32, and whoever computes the rows of a product writes them in the forms that the
//! product takes.

mod args;
mod embed;
mod gate;
mod pool;
mod rows;

use std::ops::Range;

use gllm_kernels_core::{ElementType, RopePairing};

pub(super) use args::{list, FormsArgs, SegmentsArgs};
use args::{AddNormArgs, AdvanceArgs, CapArgs, HeadsArgs, JoinRowsArgs, NAMES};
pub(crate) use gate::Gated;
pub(crate) use rows::Take;

use super::attention::{DecodeArgs, KvCache, PageTables};
use super::check::{aligned, area, bad, same_len, small};
use super::error::CudaError;
use super::geometry;
use super::kernels::{type_number, File, Name};
use super::memory::{View, ViewMut};
use super::quant::{ActivationPlaces, Activations};
use super::stream::Stream;
use super::sys::Address;
use super::{KvFormat, Ops};
use crate::aligned::Zeroable;
use crate::model::Norm;

/// Where rows of `cols` columns go, in each form that somebody takes.
#[derive(Debug)]
pub(crate) struct Forms<'a> {
    pub(crate) cols: usize,
    /// In f32, as they are.
    pub(crate) rows: Option<ViewMut<'a, f32>>,
    /// In 16 bits, of this type.
    pub(crate) half: Option<(ElementType, ViewMut<'a, u16>)>,
    /// For products with weights in blocks.
    pub(crate) integer: Option<&'a mut Activations>,
    pub(crate) exact: Option<&'a mut Activations>,
}

impl Forms<'_> {
    /// For kernels that write `m` rows.
    pub(super) fn args(self, ops: &Ops, m: usize) -> Result<FormsArgs, CudaError> {
        let elements = area("elements of rows", &[m, self.cols])?;
        if !self.cols.is_multiple_of(4) {
            return Err(bad("cols", "a multiple of 4"));
        }
        let (mut rows, mut half, mut half_type) = (0, 0, 0);
        if let Some(view) = self.rows {
            ops.here(view.context())?;
            same_len("rows", view.len(), elements)?;
            rows = view.address();
        }
        if let Some((ty, view)) = self.half {
            ops.here(view.context())?;
            same_len("half", view.len(), elements)?;
            (half, half_type) = (view.address(), type_number(ty));
        }
        aligned("rows", rows | half)?;
        let places = |activations: Option<&mut Activations>| match activations {
            Some(to) => {
                ops.here(to.context())?;
                to.set_shape(m, self.cols).map(|()| to.places())
            }
            None => Ok(ActivationPlaces::default()),
        };
        let (integer, exact) = (places(self.integer)?, places(self.exact)?);
        Ok(FormsArgs {
            rows,
            half,
            codes: integer.codes,
            groups: integer.groups,
            exact: exact.exact,
            sums: exact.sums,
            half_type,
            cols: small("cols", self.cols)?,
        })
    }
}

/// The residual stream, what is added to it, and the norm behind that.
#[derive(Debug)]
pub(crate) struct AddNorm<'a> {
    /// The residual stream, which of its rows go on (all of them, without), and where to.
    pub(crate) x: View<'a, f32>,
    pub(crate) rows: Option<View<'a, u32>>,
    pub(crate) y: ViewMut<'a, f32>,
    /// What is added: a row for each that goes on.
    pub(crate) delta: Option<View<'a, f32>>,
    /// What is added as well, to all of them.
    pub(crate) bias: Option<View<'a, f32>>,
    /// The weight of the RMS norm of what is added, if that is normed before.
    pub(crate) post: Option<View<'a, f32>>,
    pub(crate) kind: Norm,
    /// The norm's weight.
    pub(crate) weight: View<'a, f32>,
    /// What is added behind the norm.
    pub(crate) norm_bias: Option<View<'a, f32>>,
    pub(crate) eps: f32,
    /// Factor of the residual stream.
    pub(crate) scale: f32,
    /// Whether the norm's results become the residual stream.
    pub(crate) stays: bool,
}

/// Which tokens the rows of a step are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepRows<'a> {
    /// Row of the page tables of each row's sequence.
    pub(crate) sequences: View<'a, u32>,
    /// Tokens of each row's sequence that it sees, up to its own or to the last one; a window may hide the first of them.
    pub(crate) lengths: View<'a, u32>,
    /// The position of each row in its sequence, where rows see tokens behind their own.
    pub(crate) positions: Option<View<'a, u32>>,
    /// Which of them each row sees, if drafts form trees: bit 0 is its own token, bit `i` the one `i` before it. All that are 64 and more before it are
    /// seen. A row's position is the number of tokens before it that it would see without a window.
    pub(crate) seen: Option<View<'a, u64>>,
}

impl<'a> StepRows<'a> {
    /// Some of the rows.
    pub(crate) fn range(&self, rows: Range<usize>) -> Result<Self, CudaError> {
        Ok(Self {
            sequences: self.sequences.range(rows.clone())?,
            lengths: self.lengths.range(rows.clone())?,
            positions: self.positions.map(|positions| positions.range(rows.clone())).transpose()?,
            seen: self.seen.map(|seen| seen.range(rows)).transpose()?,
        })
    }

    /// Where the numbers are that rows may have, one each; 0 if they have none.
    fn of_rows<T: Zeroable>(
        &self,
        ops: &Ops,
        arg: &'static str,
        numbers: Option<View<'_, T>>,
    ) -> Result<Address, CudaError> {
        let Some(numbers) = numbers else { return Ok(0) };
        same_len(arg, numbers.len(), self.lengths.len())?;
        ops.here(numbers.context())?;
        Ok(numbers.address())
    }
}

/// Queries, keys and values as products left them.
#[derive(Debug)]
pub(crate) struct Heads<'a> {
    /// Rows of each, and how far one is from the next.
    pub(crate) x: [(View<'a, f32>, usize); 3],
    /// Whether there are keys and values; those of `x` are not looked at otherwise.
    pub(crate) keys: bool,
    /// How far the queries of a head are behind those of the head before.
    pub(crate) step: usize,
    /// Biases of queries, keys and values, one behind the other.
    pub(crate) bias: Option<View<'a, f32>>,
    /// Weights of the norms of queries, then of keys, then of `values` if they are normed: of one head, or with `each` of all of them.
    pub(crate) norm: Option<View<'a, f32>>,
    pub(crate) values: bool,
    pub(crate) each: bool,
    /// Whether the norm is the layer norm, and whether its weights multiply what is rotated.
    pub(crate) kind: Norm,
    pub(crate) behind: bool,
    pub(crate) eps: f32,
    /// What numbers with their biases are at most, and its negative at least.
    pub(crate) bound: Option<f32>,
    /// Cosines and sines, a row for each position, and which elements form pairs.
    pub(crate) angles: (View<'a, f32>, View<'a, f32>),
    pub(crate) rot_dim: usize,
    /// Factors of the queries of each row.
    pub(crate) temperatures: Option<View<'a, f32>>,
    pub(crate) pairing: RopePairing,
    pub(crate) heads: usize,
    /// Elements of a head; the cache has as many, or zeros behind them.
    pub(crate) dim: usize,
    /// Where queries go, one behind the other, in as many elements as the cache has.
    pub(crate) queries: ViewMut<'a, f32>,
}

/// Attention of rows to the tokens that they see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attend<'a> {
    pub(crate) rows: StepRows<'a>,
    pub(crate) heads: usize,
    pub(crate) scale: f32,
    pub(crate) window: Option<usize>,
    pub(crate) cap: Option<f32>,
    /// The score of each head that no token has.
    pub(crate) sinks: Option<View<'a, f32>>,
    /// ALiBi: how much the score of each head falls for each token between a key and the row, whichever comes first; behind the cap.
    pub(crate) slopes: Option<View<'a, f32>>,
    /// Pieces that the longest sequence has, at least, and tokens of each.
    pub(crate) pieces: usize,
    pub(crate) piece: usize,
    /// Whether queries and exponentials are rounded to 16 bits, for tensor cores, if there is a kernel for the cache. Rows of a sequence that stand side
    /// by side then share keys and values.
    pub(crate) halves: bool,
    pub(crate) queries: View<'a, f32>,
}

/// The number of the type of a cache of codes of 8 bits, in decoder.cu.
const TYPE_Q8_0: u32 = 3;

/// The number of the sequence of a row that has none.
pub(crate) const NO_SEQUENCE: u32 = u32::MAX;

/// What is noted of the tokens that were chosen.
#[derive(Debug, Default)]
pub(crate) struct Record<'a> {
    /// Histories, in room for as many tokens each, and how many each has: the token joins them, as long as there is room.
    pub(crate) histories: Option<(ViewMut<'a, u32>, ViewMut<'a, u32>)>,
    /// Counters of random numbers, which go on.
    pub(crate) counters: Option<ViewMut<'a, u64>>,
    /// Tokens that end a text, and the sequence of each row: a row with such a token has none from then on.
    pub(crate) ends: Option<(View<'a, u32>, ViewMut<'a, u32>)>,
}

impl Ops {
    fn decoder(&self, name: &'static str) -> (File, Name) {
        debug_assert!(NAMES.iter().any(|n| n.0 == name));
        (File::decoder, Name("decoder", name, ""))
    }

    /// Where each of several vectors of these lengths begins, which are one behind the other; 0 if there are none.
    fn parts<const N: usize>(
        &self,
        arg: &'static str,
        all: Option<View<'_, f32>>,
        lengths: [usize; N],
    ) -> Result<[Address; N], CudaError> {
        let Some(all) = all else { return Ok([0; N]) };
        same_len(arg, all.len(), lengths.iter().sum())?;
        self.here(all.context())?;
        let mut next = all.address();
        Ok(lengths.map(|len| {
            let here = next;
            next += (len * size_of::<f32>()) as Address;
            here
        }))
    }

    /// `x = scale x + d`, or with the norm of `d`, which is `delta + bias`; then the norm of that, in the forms of `to`, and as `x` if it stays.
    pub(crate) fn decoder_norm(
        &self,
        stream: &Stream,
        how: AddNorm<'_>,
        to: Forms<'_>,
    ) -> Result<(), CudaError> {
        let AddNorm { x, rows, y, delta, bias, post, kind, weight, norm_bias, eps, scale, stays } = how;
        let cols = to.cols;
        let all = super::check::rows(x.len(), cols)?;
        let m = rows.map_or(all, |rows| rows.len());
        same_len("y", y.len(), area("elements that go on", &[m, cols])?)?;
        rows.map_or(Ok(()), |rows| self.here(rows.context()))?;
        self.here(x.context())?;
        self.here(y.context())?;
        let [delta] = self.parts("delta", delta, [m * cols])?;
        let [bias] = self.parts("bias", bias, [cols])?;
        let [post] = self.parts("post", post, [cols])?;
        let [w] = self.parts("weight", Some(weight), [cols])?;
        let [b] = self.parts("norm_bias", norm_bias, [cols])?;
        let (x, rows, y) = (x.address(), rows.map_or(0, |rows| rows.address()), y.address());
        aligned("x", x | y | delta | bias | post | w | b)?;
        let (out, centred, stays) = (to.args(self, m)?, (kind == Norm::Layer).into(), stays.into());
        let args = AddNormArgs { x, rows, y, delta, bias, post, w, b, out, eps, scale, centred, stays };
        let geometry = geometry::norm(m, cols, self.multiprocessors());
        // SAFETY: the arguments were checked, and `y` is borrowed alone; whoever makes the row numbers vouches that these rows exist.
        unsafe { self.loader.launch(self.decoder("norm"), stream, geometry, &args) }
    }

    /// Biases, bounds, norms and rotations of queries, keys and values; keys and values are appended to the cache. Rows of sequences or pages
    /// that do not exist are not appended.
    pub(crate) fn decoder_heads(
        &self,
        stream: &Stream,
        (cache, tables): (&mut KvCache, PageTables<'_>),
        rows: StepRows<'_>,
        how: Heads<'_>,
    ) -> Result<(), CudaError> {
        let shape = cache.shape();
        let kv_heads = if how.keys { shape.kv_heads } else { 0 };
        let (heads, dim, room) = (how.heads, how.dim, shape.head_dim);
        let m = rows.lengths.len();
        if dim > 2 * geometry::NARROW {
            return Err(bad("dim", "at most 512"));
        }
        same_len("queries", how.queries.len(), area("elements of queries", &[m, heads, room])?)?;
        let widths = [heads, kv_heads, kv_heads].map(|n| n * dim);
        if how.step < dim || (how.step > dim && how.bias.is_some()) {
            return Err(bad("step", "at least head_dim, and no more with biases"));
        }
        let products = [heads * how.step, widths[1], widths[2]];
        let bias = self.parts("bias", how.bias, widths)?;
        let of_norm = |heads: usize| if how.each { heads * dim } else { dim * heads.min(1) };
        let of_values = if how.values { of_norm(kv_heads) } else { 0 };
        let mut norm = self.parts("norm", how.norm, [of_norm(heads), of_norm(kv_heads), of_values])?;
        if !how.values {
            norm[2] = 0;
        }
        let args = self.heads_args((cache, tables), rows, &how, (products, bias, norm))?;
        let geometry = geometry::heads(m, heads + 2 * kv_heads, dim);
        let name = match dim {
            ..=128 => "heads_d128",
            129..=256 => "heads_d256",
            _ => "heads_d512",
        };
        // SAFETY: the arguments were checked; sequences, positions and pages are checked by the kernel.
        unsafe { self.loader.launch(self.decoder(name), stream, geometry, &args) }
    }

    /// What kernels are told of rows of heads, which have so many elements, and of their biases and norms.
    pub(super) fn heads_args(
        &self,
        (cache, tables): (&mut KvCache, PageTables<'_>),
        rows: StepRows<'_>,
        how: &Heads<'_>,
        (widths, bias, norm): ([usize; 3], [Address; 3], [Address; 3]),
    ) -> Result<HeadsArgs, CudaError> {
        let shape = cache.shape();
        let table_rows = self.tables(cache, &tables)?;
        let kv_heads = if how.keys { shape.kv_heads } else { 0 };
        let (heads, dim, room) = (how.heads, how.dim, shape.head_dim);
        let m = rows.lengths.len();
        if dim > room {
            return Err(bad("dim", "at most what the cache has of a head"));
        }
        same_len("sequences", rows.sequences.len(), m)?;
        for ((x, stride), width) in how.x.iter().zip(widths) {
            let need = m.saturating_sub(1) * stride + width;
            if *stride < width || (m > 0 && x.len() < need) {
                return Err(CudaError::WrongSize { arg: "x", need, got: x.len() });
            }
            self.here(x.context())?;
        }
        if !how.rot_dim.is_multiple_of(2) || how.rot_dim > dim {
            return Err(bad("rot_dim", "even and at most head_dim"));
        }
        let (cos, sin) = how.angles;
        same_len("sin", sin.len(), cos.len())?;
        let angles = super::check::rows(cos.len(), how.rot_dim / 2)?;
        for context in [rows.lengths.context(), rows.sequences.context(), cos.context(), sin.context()] {
            self.here(context)?;
        }
        self.here(how.queries.context())?;
        let (keys, values) = cache.places();
        Ok(HeadsArgs {
            x: how.x.map(|x| x.0.address()),
            bias,
            norm,
            cos: cos.address(),
            sin: sin.address(),
            temperatures: rows.of_rows(self, "temperatures", how.temperatures)?,
            queries: how.queries.address(),
            keys,
            values,
            tables: tables.pages.address(),
            sequences: rows.sequences.address(),
            lengths: rows.lengths.address(),
            positions: rows.of_rows(self, "positions", rows.positions)?,
            seen: rows.of_rows(self, "seen", rows.seen)?,
            stride: [
                small("stride", how.x[0].1)?,
                small("stride", how.x[1].1)?,
                small("stride", how.x[2].1)?,
            ],
            step: small("step", how.step)?,
            heads: small("heads", heads)?,
            kv_heads: small("kv_heads", kv_heads)?,
            dim: small("head_dim", dim)?,
            room: small("head_dim", room)?,
            half: small("rot_dim", how.rot_dim)? / 2,
            adjacent: (how.pairing == RopePairing::Adjacent).into(),
            each: if how.each { small("head_dim", dim)? } else { 0 },
            centred: (how.kind == Norm::Layer).into(),
            behind: how.behind.into(),
            angles: small("rows of cos", angles)?,
            table_rows: small("rows of tables", table_rows)?,
            table_len: small("numbers of a table", tables.len)?,
            pages: small("pages", shape.pages)?,
            page_tokens: small("page_tokens", shape.page_tokens)?,
            ty: match shape.format {
                KvFormat::F32 => type_number(ElementType::F32),
                KvFormat::F16 => type_number(ElementType::F16),
                KvFormat::Bf16 => type_number(ElementType::Bf16),
                KvFormat::Q8_0 => TYPE_Q8_0,
                KvFormat::E4m3 => return Err(bad("cache", "one of 16 or 32 bits, or of codes of 8")),
            },
            eps: how.eps,
            bound: how.bound.unwrap_or(f32::INFINITY),
        })
    }

    /// Elements of the partial results of so many rows.
    pub(crate) fn partial_len(
        rows: usize,
        heads: usize,
        pieces: usize,
        head_dim: usize,
    ) -> Result<usize, CudaError> {
        area("partial results", &[rows, heads, pieces, head_dim + 2])
    }

    /// What kernels are told of attention, if rows of the cache, or partial results, have so many elements.
    pub(super) fn attend_args(
        &self,
        (cache, tables): (&KvCache, PageTables<'_>),
        how: &Attend<'_>,
        (partial, dim): (Address, usize),
    ) -> Result<DecodeArgs, CudaError> {
        let table_rows = self.tables(cache, &tables)?;
        let shape = cache.shape();
        if how.heads == 0 || !how.heads.is_multiple_of(shape.kv_heads) {
            return Err(bad("heads", "a multiple of the KV heads"));
        }
        let queries = how.rows.lengths.len();
        same_len("sequences", how.rows.sequences.len(), queries)?;
        for context in [how.rows.lengths.context(), how.rows.sequences.context(), how.queries.context()] {
            self.here(context)?;
        }
        let (keys, values) = cache.places();
        aligned("cache", keys | values)?;
        Ok(DecodeArgs {
            q: how.queries.address(),
            keys,
            values,
            tables: tables.pages.address(),
            sequences: how.rows.sequences.address(),
            lengths: how.rows.lengths.address(),
            partial,
            y: 0,
            sinks: self.of_heads("sinks", how.sinks, how.heads)?,
            slopes: self.of_heads("slopes", how.slopes, how.heads)?,
            positions: how.rows.of_rows(self, "positions", how.rows.positions)?,
            seen: how.rows.of_rows(self, "seen", how.rows.seen)?,
            queries: small("queries", queries)?,
            rows: small("rows of tables", table_rows)?,
            heads: small("heads", how.heads)?,
            kv_heads: small("kv_heads", shape.kv_heads)?,
            dim: small("head_dim", dim)?,
            page_tokens: small("page_tokens", shape.page_tokens)?,
            table_len: small("numbers of a table", tables.len)?,
            pages: small("pages", shape.pages)?,
            parts: small("pieces", how.pieces)?,
            piece: small("tokens of a piece", how.piece)?,
            window: small("window", how.window.unwrap_or(0))?,
            ty: type_number(ElementType::F32),
            together: 1,
            scale: how.scale,
            key_scale: shape.scales[0],
            value_scale: shape.scales[1],
            cap: how.cap.unwrap_or(0.0),
        })
    }

    /// What each piece of the tokens gives the heads of each row, to be joined by [`decoder_join`](Self::decoder_join).
    pub(crate) fn decoder_attend(
        &self,
        stream: &Stream,
        cache: (&KvCache, PageTables<'_>),
        how: &Attend<'_>,
        partial: ViewMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let shape = cache.0.shape();
        let queries = how.rows.lengths.len();
        same_len(
            "partial",
            partial.len(),
            Self::partial_len(queries, how.heads, how.pieces, shape.head_dim)?,
        )?;
        self.here(partial.context())?;
        same_len("queries", how.queries.len(), area("elements", &[queries, how.heads, shape.head_dim])?)?;
        let mut args = self.attend_args(cache, how, (partial.address(), shape.head_dim))?;
        // On tensor cores there are kernels for narrow heads up to some size, and for wide ones.
        let few = self.tile_dim(&shape).is_none() && how.cap.is_none() && how.slopes.is_none();
        let tiled = how.halves && few && self.wide_tiles(shape.format, (shape.head_dim, 0)).is_some();
        if shape.head_dim > geometry::NARROW || tiled {
            // SAFETY: the arguments were checked.
            return unsafe { self.wide_attend(stream, (shape.format, how.halves), args) };
        }
        let sizes = (queries, how.heads, how.pieces);
        let (kernel, geometry, together) = self.decode_kernel(&shape, sizes, how.halves)?;
        args.together = together;
        // SAFETY: the arguments were checked; lengths, sequences and pages are checked by the kernel.
        unsafe { self.loader.launch(kernel, stream, geometry, &args) }
    }

    /// Joins what [`decoder_attend`](Self::decoder_attend), or [`latent_attend`](Self::latent_attend), left of `rows`, or of all: `values` elements of each head, of which as many
    /// go on as `to` has columns for.
    pub(crate) fn decoder_join(
        &self,
        stream: &Stream,
        cache: (&KvCache, PageTables<'_>),
        how: &Attend<'_>,
        (partial, values, rows): (View<'_, f32>, usize, Option<View<'_, u32>>),
        to: Forms<'_>,
    ) -> Result<(), CudaError> {
        let queries = how.rows.lengths.len();
        same_len("partial", partial.len(), Self::partial_len(queries, how.heads, how.pieces, values)?)?;
        // Elements of a head that go on.
        let dim = super::check::rows(to.cols, how.heads)?;
        if dim > values {
            return Err(bad("cols", "at most what pieces have of the heads"));
        }
        self.here(partial.context())?;
        rows.map_or(Ok(()), |rows| self.here(rows.context()))?;
        let m = rows.map_or(queries, |rows| rows.len());
        let geometry = geometry::join_rows(m, to.cols);
        let args = JoinRowsArgs {
            decode: self.attend_args(cache, how, (partial.address(), values))?,
            rows: rows.map_or(0, |rows| rows.address()),
            out: to.args(self, m)?,
            dim: small("head_dim", dim)?,
        };
        // SAFETY: the arguments were checked; whoever makes the row numbers vouches that these rows exist.
        unsafe { self.loader.launch(self.decoder("join"), stream, geometry, &args) }
    }

    /// `x = cap tanh(x / cap)`.
    pub(crate) fn decoder_cap(
        &self,
        stream: &Stream,
        cap: f32,
        x: ViewMut<'_, f32>,
    ) -> Result<(), CudaError> {
        self.here(x.context())?;
        let args = CapArgs { x: x.address(), n: x.len() as u64, cap };
        let geometry = geometry::elementwise(x.len(), size_of::<f32>(), self.multiprocessors());
        // SAFETY: the view has its elements.
        unsafe { self.loader.launch(self.decoder("cap"), stream, geometry, &args) }
    }

    /// Every sequence has a token more: rows whose number of a sequence is [`NO_SEQUENCE`] belong to none.
    pub(crate) fn decoder_advance(
        &self,
        stream: &Stream,
        sequences: View<'_, u32>,
        lengths: ViewMut<'_, u32>,
    ) -> Result<(), CudaError> {
        self.here(lengths.context())?;
        self.here(sequences.context())?;
        same_len("sequences", sequences.len(), lengths.len())?;
        let args = AdvanceArgs {
            sequences: sequences.address(),
            lengths: lengths.address(),
            rows: small("rows", lengths.len())?,
            ..AdvanceArgs::default()
        };
        // SAFETY: the views have their elements; without tokens sequences are read alone.
        unsafe {
            self.loader.launch(self.decoder("advance"), stream, geometry::threads(lengths.len()), &args)
        }
    }

    /// What was chosen for each row is noted. Rows without a sequence are passed over.
    pub(crate) fn decoder_record(
        &self,
        stream: &Stream,
        tokens: View<'_, u32>,
        to: Record<'_>,
    ) -> Result<(), CudaError> {
        let rows = tokens.len();
        self.here(tokens.context())?;
        let mut args =
            AdvanceArgs { tokens: tokens.address(), rows: small("rows", rows)?, ..AdvanceArgs::default() };
        if let Some((history, lengths)) = to.histories {
            same_len("lengths", lengths.len(), rows)?;
            let room = history.len().checked_div(rows).unwrap_or(0);
            same_len("history", history.len(), room * rows)?;
            self.here(history.context())?;
            self.here(lengths.context())?;
            args.history = history.address();
            args.history_lengths = lengths.address();
            args.room = small("room", room)?;
        }
        if let Some(counters) = to.counters {
            same_len("counters", counters.len(), rows)?;
            self.here(counters.context())?;
            args.counters = counters.address();
        }
        if let Some((stops, sequences)) = to.ends {
            same_len("sequences", sequences.len(), rows)?;
            self.here(stops.context())?;
            self.here(sequences.context())?;
            args.stops = stops.address();
            args.stop_count = small("tokens that end a text", stops.len())?;
            args.sequences = sequences.address();
        }
        // SAFETY: the arguments were checked.
        unsafe { self.loader.launch(self.decoder("advance"), stream, geometry::threads(rows), &args) }
    }
}
