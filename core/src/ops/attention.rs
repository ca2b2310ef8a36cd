//! Attention over a cache of keys and values.
//!
//! The cache of one KV head is made of blocks of [`KV_BLOCK`] positions. In a block keys come first, dimension
//! by dimension with the positions side by side, so that scores of all positions are formed in the lanes of a register,
//! without sums across lanes. Values follow, position by position.
//!
//! Scores and outputs are both products of a few rows of f32 with a matrix of cached numbers: one tile does both. A
//! tile reads each cached vector once for all of its rows, so heads that share keys read them once.

use crate::arrays::from_fn;
use crate::check;
use crate::dispatch::Kernels;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::math;
use crate::scratch::{Scratch, ScratchReq};
use crate::vector::{Prim, Vector};
use crate::view::MatRef;

/// Positions of a block of cached keys and values.
pub const KV_BLOCK: usize = 16;

/// Places of the positions of a block: 0, 1, ..
static PLACES: [f32; KV_BLOCK] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

/// Keys and values of one KV head at consecutive positions, and what queries see of them.
#[derive(Clone, Copy, Debug)]
pub struct KvPiece<'a, E> {
    /// Blocks, each of [`Kernels::kv_block_len`] elements.
    pub blocks: &'a [&'a [E]],
    /// The position of the first block: a multiple of [`KV_BLOCK`].
    pub first: usize,
    /// For each query the positions it sees: from the first number to before the second one. Positions outside of the
    /// blocks are those of other pieces.
    pub spans: &'a [[usize; 2]],
    /// Scores become `softcap * tanh(score / softcap)`.
    pub softcap: Option<f32>,
}

/// What attention has gathered of some pieces: for each query the largest score, the sum of the exponentials relative to it,
/// and the sum of the values weighed with them.
#[derive(Debug)]
pub struct Attended<'a> {
    /// Largest scores and sums; `[-inf, 0]` where there is nothing yet.
    pub sums: &'a mut [[f32; 2]],
    /// Queries times the elements of a head.
    pub values: &'a mut [f32],
}

impl Attended<'_> {
    /// Nothing yet.
    pub fn clear(&mut self) {
        self.sums.fill([f32::NEG_INFINITY, 0.0]);
        self.values.fill(0.0);
    }
    /// The same, borrowed for less long.
    pub fn reborrow(&mut self) -> Attended<'_> {
        Attended { sums: self.sums, values: self.values }
    }
}

/// What [`attend`] works on.
pub struct AttendArgs<'a, E> {
    pub(crate) rows: usize,
    pub(crate) dim: usize,
    pub(crate) queries: *const f32,
    pub(crate) piece: KvPiece<'a, E>,
    /// Room for a score of each row and position.
    pub(crate) scores: *mut f32,
    /// Room for what a piece gives: `rows` largest scores and sums, and the rows of values.
    pub(crate) new: Gathered,
    pub(crate) all: Gathered,
}

/// [`Attended`], as kernels take it.
#[derive(Clone, Copy)]
pub struct Gathered {
    pub(crate) sums: *mut [f32; 2],
    pub(crate) values: *mut f32,
}

/// What [`join`] works on.
pub struct JoinArgs {
    pub(crate) rows: usize,
    pub(crate) dim: usize,
    pub(crate) all: Gathered,
    pub(crate) new: Gathered,
}

/// What [`append`] works on: tokens at consecutive positions of one block.
pub struct AppendArgs<E> {
    pub(crate) tokens: usize,
    pub(crate) dim: usize,
    /// The first token's place in the block.
    pub(crate) place: usize,
    pub(crate) keys: *const f32,
    pub(crate) values: *const f32,
    /// Elements from one token's keys, or values, to the next one's.
    pub(crate) strides: [usize; 2],
    pub(crate) block: *mut E,
}

/// Rows of the highest tile.
const fn height<P: Vector>() -> usize {
    if P::LANES >= 16 {
        12
    } else {
        6
    }
}

/// Vectors side by side in a tile.
const WIDTH: usize = 2;

/// `R` rows times `W` vectors: `c[r][v] = sum_s a[r][s] * b(s)[v]`, over `blocks` runs of steps. `run` gives for each the
/// first of its steps' elements in the rows, how many there are, and where the vectors of the first are.
///
/// # Safety
/// All of that exists; the instruction set.
#[inline(always)]
unsafe fn tile<E: Element, P: Prim<E> + Prim<f32>, const R: usize, const W: usize>(
    a: *const f32,
    a_stride: usize,
    b_step: usize,
    runs: usize,
    run: impl Fn(usize) -> (usize, usize, [*const E; W]),
) -> [[P::V; W]; R] {
    // SAFETY: the caller's contract.
    unsafe {
        let mut c: [[P::V; W]; R] = from_fn(|_| from_fn(|_| P::splat(0.0)));
        for i in 0..runs {
            let (from, steps, b) = run(i);
            let a = a.add(from);
            for s in 0..steps {
                let b: [P::V; W] = from_fn(|v| <P as Prim<E>>::load(b[v].add(s * b_step)));
                for (r, c) in c.iter_mut().enumerate() {
                    let x = P::splat(*a.add(r * a_stride + s));
                    for (c, b) in c.iter_mut().zip(&b) {
                        *c = P::fma(x, *b, *c);
                    }
                }
            }
        }
        c
    }
}

/// Where a tile's results go: element `[0][0]`, elements from row to row.
#[derive(Clone, Copy)]
struct Out {
    to: *mut f32,
    stride: usize,
}

/// What both products are: rows, the columns of `b`, and how the depth is walked.
trait Product<E> {
    /// Vectors that start at column `col`, for run `i`.
    fn run<const W: usize>(&self, i: usize, col: usize, lanes: usize) -> (usize, usize, [*const E; W]);
    /// Runs.
    fn runs(&self) -> usize;
    /// Elements from one step of `b` to the next.
    fn step(&self) -> usize;
}

/// Columns `cols`, a multiple of the lanes, of `rows` rows.
///
/// # Safety
/// The operands, room for the results, the instruction set.
#[inline(always)]
unsafe fn product<E: Element, P: Prim<E> + Prim<f32>, B: Product<E>>(
    b: &B,
    (a, a_stride): (*const f32, usize),
    rows: usize,
    cols: [usize; 2],
    out: Out,
) {
    let mut row = 0;
    while row < rows {
        let left = rows - row;
        // SAFETY: the caller's contract: rows from `row` on.
        unsafe {
            let (a, out) = (a.add(row * a_stride), Out { to: out.to.add(row * out.stride), ..out });
            row += if left >= height::<P>() {
                if P::LANES >= 16 {
                    strip::<E, P, B, 12>(b, a, a_stride, cols, out)
                } else {
                    strip::<E, P, B, 6>(b, a, a_stride, cols, out)
                }
            } else {
                match left {
                    1 => strip::<E, P, B, 1>(b, a, a_stride, cols, out),
                    2 => strip::<E, P, B, 2>(b, a, a_stride, cols, out),
                    3 => strip::<E, P, B, 3>(b, a, a_stride, cols, out),
                    _ => strip::<E, P, B, 4>(b, a, a_stride, cols, out),
                }
            };
        }
    }
}

/// `R` rows of a product; yields `R`.
///
/// # Safety
/// As [`product`].
#[inline(always)]
unsafe fn strip<E: Element, P: Prim<E> + Prim<f32>, B: Product<E>, const R: usize>(
    b: &B,
    a: *const f32,
    a_stride: usize,
    [mut col, end]: [usize; 2],
    out: Out,
) -> usize {
    // SAFETY: the caller's contract; columns are below `end`.
    unsafe {
        while end - col >= WIDTH * P::LANES {
            let run = |i| b.run::<WIDTH>(i, col, P::LANES);
            let c = tile::<E, P, R, WIDTH>(a, a_stride, b.step(), b.runs(), run);
            for (r, c) in c.iter().enumerate() {
                for (v, &c) in c.iter().enumerate() {
                    <P as Prim<f32>>::store(out.to.add(r * out.stride + col + v * P::LANES), c);
                }
            }
            col += WIDTH * P::LANES;
        }
        while col < end {
            let c = tile::<E, P, R, 1>(a, a_stride, b.step(), b.runs(), |i| b.run::<1>(i, col, P::LANES));
            for (r, [c]) in c.iter().enumerate() {
                <P as Prim<f32>>::store(out.to.add(r * out.stride + col), *c);
            }
            col += P::LANES;
        }
    }
    R
}

/// Scores: columns are positions, counted from the first block's first.
struct Keys<'a, E> {
    blocks: &'a [&'a [E]],
    dim: usize,
}

impl<E> Product<E> for Keys<'_, E> {
    #[inline(always)]
    fn run<const W: usize>(&self, _: usize, col: usize, lanes: usize) -> (usize, usize, [*const E; W]) {
        let vector = |v: usize| {
            let at = col + v * lanes;
            // SAFETY: columns are positions of the blocks.
            unsafe { self.blocks.get_unchecked(at / KV_BLOCK).as_ptr().add(at % KV_BLOCK) }
        };
        (0, self.dim, from_fn(vector))
    }
    #[inline(always)]
    fn runs(&self) -> usize {
        1
    }
    #[inline(always)]
    fn step(&self) -> usize {
        KV_BLOCK
    }
}

/// Outputs: steps are the positions from the first to before the second number, columns the elements of a head.
struct Values<'a, E> {
    blocks: &'a [&'a [E]],
    dim: usize,
    positions: [usize; 2],
}

impl<E> Product<E> for Values<'_, E> {
    #[inline(always)]
    fn run<const W: usize>(&self, i: usize, col: usize, lanes: usize) -> (usize, usize, [*const E; W]) {
        let [first, end] = self.positions;
        let block = first / KV_BLOCK + i;
        let from = first.max(block * KV_BLOCK);
        let steps = end.min((block + 1) * KV_BLOCK) - from;
        let row = KV_BLOCK + from % KV_BLOCK;
        let vector = |v: usize| {
            // SAFETY: positions are those of the blocks; values are behind the keys.
            unsafe { self.blocks.get_unchecked(block).as_ptr().add(row * self.dim + col + v * lanes) }
        };
        (from, steps, from_fn(vector))
    }
    #[inline(always)]
    fn runs(&self) -> usize {
        let [first, end] = self.positions;
        if first < end {
            end.div_ceil(KV_BLOCK) - first / KV_BLOCK
        } else {
            0
        }
    }
    #[inline(always)]
    fn step(&self) -> usize {
        self.dim
    }
}

/// Turns the scores of columns `cols` into exponentials relative to the largest that is seen, zeros where `span` does not
/// reach. Yields the largest, and the sum.
///
/// # Safety
/// The scores, whose columns are whole blocks; the instruction set.
#[inline(always)]
unsafe fn exponentials<P: Prim<f32>>(
    scores: *mut f32,
    [from, end]: [usize; 2],
    span: [usize; 2],
    softcap: Option<f32>,
) -> [f32; 2] {
    // SAFETY: the caller's contract.
    unsafe {
        let none = P::splat(f32::NEG_INFINITY);
        let mut largest = none;
        for col in (from..end).step_by(P::LANES) {
            let mut s = P::load(scores.add(col));
            if let Some(cap) = softcap {
                s = P::mul(math::tanh::<P>(P::div(s, P::splat(cap))), P::splat(cap));
            }
            // Where all are seen, there is nothing to hide.
            if span[0] > col || span[1] < col + P::LANES {
                let base = (col - col % KV_BLOCK) as f32;
                let place = P::add(P::load(PLACES.as_ptr().add(col % KV_BLOCK)), P::splat(base));
                s = P::select_lt(place, P::splat(span[0] as f32), none, s);
                s = P::select_lt(place, P::splat(span[1] as f32), s, none);
            }
            // A NaN stays in the scores, and so in the sum.
            largest = P::max(s, largest);
            P::store(scores.add(col), s);
        }
        let largest = P::reduce_max(largest);
        let center = P::splat(if largest == f32::NEG_INFINITY { 0.0 } else { largest });
        let mut sum = P::splat(0.0);
        for col in (from..end).step_by(P::LANES) {
            let e = math::exp::<P>(P::sub(P::load(scores.add(col)), center));
            sum = P::add(sum, e);
            P::store(scores.add(col), e);
        }
        [largest, P::reduce_sum(sum)]
    }
}

/// Attention of some queries to a piece, joined to what was gathered before.
///
/// # Safety
/// What the arguments name exists, `dim` is a multiple of 16; the instruction set.
#[inline(always)]
pub(crate) unsafe fn attend<E: Element, P: Prim<E> + Prim<f32>>(a: &AttendArgs<'_, E>) {
    let AttendArgs { rows, dim, queries, piece, scores, new, all } = *a;
    let KvPiece { blocks, first, spans, softcap } = piece;
    let there = blocks.len() * KV_BLOCK;
    let place = |p: usize| p.saturating_sub(first).min(there);
    // Rows that are multiplied together: so many that what they see is much the same.
    let step = height::<P>();
    for row in (0..rows).step_by(step) {
        let n = step.min(rows - row);
        // SAFETY: the caller's contract: rows are within the queries, columns within the blocks.
        unsafe {
            let seen = |r: usize| {
                let [from, end] = *spans.get_unchecked(row + r);
                [place(from), place(end)]
            };
            let (mut low, mut high) = (there, 0);
            for r in 0..n {
                let [from, end] = seen(r);
                if from < end {
                    (low, high) = (low.min(from), high.max(end));
                }
            }
            if low >= high {
                continue;
            }
            let cols = [low - low % KV_BLOCK, high.next_multiple_of(KV_BLOCK)];
            let scores_of = scores.add(row * there);
            let keys = Keys { blocks, dim };
            let out = Out { to: scores_of, stride: there };
            product::<E, P, _>(&keys, (queries.add(row * dim), dim), n, cols, out);
            for r in 0..n {
                *new.sums.add(row + r) = exponentials::<P>(scores_of.add(r * there), cols, seen(r), softcap);
            }
            let values = Values { blocks, dim, positions: [cols[0].max(low), high] };
            let out = Out { to: new.values.add(row * dim), stride: dim };
            product::<E, P, _>(&values, (scores_of, there), n, [0, dim], out);
            let part = |g: Gathered| Gathered { sums: g.sums.add(row), values: g.values.add(row * dim) };
            joined::<P>(&JoinArgs { rows: n, dim, all: part(all), new: part(new) });
        }
    }
}

/// Adds what was gathered of further pieces.
///
/// # Safety
/// What the arguments name exists, `dim` is a multiple of 16; the instruction set.
#[inline(always)]
pub(crate) unsafe fn join<E: Element, P: Prim<E> + Prim<f32>>(a: &JoinArgs) {
    // SAFETY: the caller's contract.
    unsafe { joined::<P>(a) }
}

/// [`join`]
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn joined<P: Prim<f32>>(a: &JoinArgs) {
    let JoinArgs { rows, dim, all, new } = *a;
    for r in 0..rows {
        // SAFETY: the caller's contract.
        unsafe {
            let ([before, sum], [largest, more]) = (*all.sums.add(r), *new.sums.add(r));
            if largest == f32::NEG_INFINITY && more == 0.0 {
                continue;
            }
            let to = if largest > before { largest } else { before };
            // A NaN stays in the sum.
            let center = P::splat(if to == f32::NEG_INFINITY { 0.0 } else { to });
            let factor = |x: f32| math::exp::<P>(P::sub(P::splat(x), center));
            let (old, new_factor) = (factor(before), factor(largest));
            let sum = P::fma(P::splat(sum), old, P::mul(P::splat(more), new_factor));
            let mut first = [0f32; KV_BLOCK];
            P::store(first.as_mut_ptr(), sum);
            *all.sums.add(r) = [to, first[0]];
            let (values, more) = (all.values.add(r * dim), new.values.add(r * dim));
            for i in (0..dim).step_by(P::LANES) {
                let v = P::mul(P::load(more.add(i)), new_factor);
                P::store(values.add(i), P::fma(P::load(values.add(i)), old, v));
            }
        }
    }
}

/// Writes tokens' keys and values to a block.
///
/// # Safety
/// They exist, their places are in the block, `dim` is a multiple of 16; the instruction set.
#[inline(always)]
pub(crate) unsafe fn append<E: Element, P: Prim<E> + Prim<f32>>(a: &AppendArgs<E>) {
    let AppendArgs { tokens, dim, place, keys, values, strides, block } = *a;
    for t in 0..tokens {
        // SAFETY: the caller's contract.
        unsafe {
            let (key, value) = (keys.add(t * strides[0]), values.add(t * strides[1]));
            let to = block.add((KV_BLOCK + place + t) * dim);
            for i in (0..dim).step_by(P::LANES) {
                <P as Prim<E>>::store(to.add(i), <P as Prim<f32>>::load(value.add(i)));
                let mut narrow = [E::from_f32(0.0); KV_BLOCK];
                <P as Prim<E>>::store(narrow.as_mut_ptr(), <P as Prim<f32>>::load(key.add(i)));
                for (j, &k) in narrow.iter().enumerate().take(P::LANES) {
                    *block.add((i + j) * KV_BLOCK + place + t) = k;
                }
            }
        }
    }
}

#[cfg(feature = "rows")]
/// # Attention
///
/// Keys and values are of type `E`, queries and outputs f32. A block has [`KV_BLOCK`] positions of one KV head: keys, dimension
/// by dimension with the positions side by side, then values, position by position. What a query gets of a piece
/// depends on that piece, the query and its span alone, so pieces can be shared out among threads; joined in the same order they give the
/// same bits, whoever computed them.
impl<E: Element> Kernels<E> {
    /// Elements of a block.
    ///
    /// # Errors
    /// `BadValue` unless `dim` is a multiple of 16; `SizeOverflow`.
    pub fn kv_block_len(&self, dim: usize) -> Result<usize, KernelError> {
        if !dim.is_multiple_of(KV_BLOCK) {
            return Err(KernelError::BadValue { arg: "dim", got: dim, expected: "a multiple of 16" });
        }
        dim.checked_mul(2 * KV_BLOCK).ok_or(KernelError::SizeOverflow { what: "KV block" })
    }

    /// Writes the keys and values of tokens at consecutive positions, from place `place` on, to a block: a row of each for
    /// each token, narrowed to `E`.
    ///
    /// # Errors
    /// `DimMismatch` unless `keys` and `values` have the same shape; `ShortSlice` if the tokens do not fit the block,
    /// `WrongLength` unless it has [`kv_block_len`](Self::kv_block_len) elements; `BadValue` if rows are not contiguous, or as there.
    pub fn kv_append(
        &self,
        place: usize,
        keys: MatRef<'_, f32>,
        values: MatRef<'_, f32>,
        block: &mut [E],
    ) -> Result<(), KernelError> {
        let (tokens, dim) = (keys.rows(), keys.cols());
        check::len("block", block.len(), self.kv_block_len(dim)?)?;
        check::dim("values.rows() != keys.rows()", values.rows(), tokens)?;
        check::dim("values.cols() != keys.cols()", values.cols(), dim)?;
        check::contiguous("keys.col_stride()", keys.col_stride(), dim)?;
        check::contiguous("values.col_stride()", values.col_stride(), dim)?;
        let need = place.saturating_add(tokens);
        if need > KV_BLOCK {
            return Err(KernelError::ShortSlice { arg: "block", need, got: KV_BLOCK });
        }
        let args = AppendArgs {
            tokens,
            dim,
            place,
            keys: keys.as_ptr(),
            values: values.as_ptr(),
            strides: [keys.row_stride(), values.row_stride()],
            block: block.as_mut_ptr(),
        };
        // SAFETY: checked above: rows of the views, places in the block, which is exclusive; the table's instruction set is
        // present.
        unsafe { (self.table.kv_append)(&args) };
        Ok(())
    }

    /// Scratch memory for [`attend`](Self::attend) with so many queries and blocks.
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub fn attend_scratch(&self, rows: usize, dim: usize, blocks: usize) -> Result<ScratchReq, KernelError> {
        let overflow = KernelError::SizeOverflow { what: "scratch size" };
        let scores = blocks.checked_mul(KV_BLOCK).and_then(|n| n.checked_mul(rows)).ok_or(overflow)?;
        let values = rows.checked_mul(dim).ok_or(overflow)?;
        let scores = ScratchReq::array::<f32>(scores)?;
        scores.and(ScratchReq::array::<f32>(values)?)?.and(ScratchReq::array::<[f32; 2]>(rows)?)
    }

    /// Attention of the rows of `queries` to a piece of the cache of their KV head, added to what `all` has gathered of pieces
    /// before it. With `s(p) = q . key(p)`, for the positions `p` that the query sees, `all` is joined with `m = max s(p)`, `sum exp(s(p) -
    /// m)` and `sum exp(s(p) - m) * value(p)`. Queries are scaled by the caller; values divided by sums are the attention.
    ///
    /// Sums are formed in f32, by fused multiply-adds in the order of dimensions and positions, so the error of a score is at most about `dim *
    /// 2^-24 * sum |q_i key_i|`. A query without any position in the piece leaves its row as it is.
    ///
    /// # Errors
    /// `NotWhole` unless queries are whole heads; `DimMismatch` unless `queries`, spans and `all` have the same number of rows; `WrongLength` unless each block has
    /// [`kv_block_len`](Self::kv_block_len) elements; `BadValue` if `first` is not a multiple of [`KV_BLOCK`], if the piece
    /// has 2^24 positions or more, or unless `dim` is a multiple of 16; `ScratchTooSmall`; `SizeOverflow`.
    pub fn attend(
        &self,
        dim: usize,
        queries: &[f32],
        piece: KvPiece<'_, E>,
        all: Attended<'_>,
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        let (rows, block) = (check::rows("queries", queries.len(), "a head", dim)?, self.kv_block_len(dim)?);
        let KvPiece { blocks, first, spans, .. } = piece;
        check_attended(rows, dim, &all)?;
        check::dim("spans.len() != rows", spans.len(), rows)?;
        if !first.is_multiple_of(KV_BLOCK) {
            return Err(KernelError::BadValue { arg: "first", got: first, expected: "a multiple of 16" });
        }
        if blocks.len() >= (1 << 24) / KV_BLOCK {
            return Err(KernelError::BadValue {
                arg: "blocks.len()",
                got: blocks.len(),
                expected: "fewer than 2^20",
            });
        }
        for of in blocks {
            check::len("block", of.len(), block)?;
        }
        let scores = (blocks.len() * KV_BLOCK)
            .checked_mul(rows)
            .ok_or(KernelError::SizeOverflow { what: "scratch size" })?;
        let args = AttendArgs {
            rows,
            dim,
            queries: queries.as_ptr(),
            piece,
            scores: scratch.take::<f32>(scores)?.as_mut_ptr(),
            new: Gathered {
                values: scratch.take::<f32>(queries.len())?.as_mut_ptr(),
                sums: scratch.take::<[f32; 2]>(rows)?.as_mut_ptr(),
            },
            all: Gathered { sums: all.sums.as_mut_ptr(), values: all.values.as_mut_ptr() },
        };
        // SAFETY: checked above: a span, sums and a row of values for each query, whole blocks; `all` is exclusive; the table's
        // instruction set is present.
        unsafe { (self.table.attend)(&args) };
        Ok(())
    }

    /// Joins what was gathered of further pieces to what was gathered before, as [`attend`](Self::attend) does: with the same bits as if it
    /// had gone on with those pieces, where `new` has gathered one piece.
    ///
    /// # Errors
    /// `DimMismatch` unless both have the same number of rows, of `dim` values each; `BadValue` unless `dim` is a multiple of 16.
    pub fn attend_join(&self, dim: usize, all: Attended<'_>, new: Attended<'_>) -> Result<(), KernelError> {
        self.kv_block_len(dim)?;
        let rows = all.sums.len();
        check_attended(rows, dim, &all)?;
        check_attended(rows, dim, &new)?;
        let gathered =
            |a: Attended<'_>| Gathered { sums: a.sums.as_mut_ptr(), values: a.values.as_mut_ptr() };
        let args = JoinArgs { rows, dim, all: gathered(all), new: gathered(new) };
        // SAFETY: both have so many rows, and are exclusive; the table's instruction set is present.
        unsafe { (self.table.attend_join)(&args) };
        Ok(())
    }
}

/// `rows` sums, and as many rows of values.
fn check_attended(rows: usize, dim: usize, of: &Attended<'_>) -> Result<(), KernelError> {
    check::dim("sums.len() != rows", of.sums.len(), rows)?;
    check::dim("values.len() != rows * dim", of.values.len(), rows.saturating_mul(dim))
}
