//! The forms in which keys and values are cached, how they lie in a block, and how they are multiplied.

use core::marker::PhantomData;

use super::tile::{product, Out, Product};
use super::{KvHead, KV_BLOCK};
use crate::arrays::from_fn;
use crate::element::{f16, Element, ElementType};
use crate::isa::transpose::transpose;
use crate::quant::bytes::Widen;
use crate::vector::Prim;

/// Elements of a head whose keys, or values, at a position have a scale in common.
pub(super) const SCALE_GROUP: usize = 32;

/// Elements from one position's values to the next one's: whole vectors.
pub(super) const fn width(dim: usize) -> usize {
    dim.next_multiple_of(KV_BLOCK)
}

/// Places in a block with scales, in bytes: codes of keys, dimension by dimension with the positions side by side; codes of
/// values, position by position; scales of keys, then of values, in f16, group by group with the positions side by side.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub(crate) dim: usize,
    /// Elements of a value that lies behind the keys.
    pub(crate) values: usize,
}

impl From<KvHead> for Places {
    fn from(head: KvHead) -> Self {
        Self { dim: head.dim, values: head.stored() }
    }
}

impl Places {
    /// Groups of a key.
    pub(super) const fn key_groups(self) -> usize {
        self.dim.div_ceil(SCALE_GROUP)
    }
    /// Groups of a value.
    pub(super) const fn value_groups(self) -> usize {
        self.values.div_ceil(SCALE_GROUP)
    }
    /// The codes of the values.
    pub(super) const fn value_codes(self) -> usize {
        KV_BLOCK * self.dim
    }
    /// The scales of a group of keys.
    pub(super) const fn key_scales(self, group: usize) -> usize {
        self.value_codes() + KV_BLOCK * width(self.values) + group * KV_BLOCK * size_of::<f16>()
    }
    /// The scales of a group of values.
    pub(super) const fn value_scales(self, group: usize) -> usize {
        self.key_scales(self.key_groups() + group)
    }
    /// Groups with scales: those of keys, and of values.
    const fn all_groups(self) -> usize {
        self.key_groups() + self.value_groups()
    }
    /// Where the block ends.
    pub(crate) const fn end(self) -> usize {
        self.key_scales(self.all_groups())
    }
}

/// The strips of a block: where each begins, and how many cells of it each of its [`KV_BLOCK`] places has, which lie side by side.
pub(crate) fn strips(head: KvHead) -> impl Iterator<Item = (usize, usize)> {
    let values = (KV_BLOCK * head.dim, width(head.stored()));
    (0..head.dim).map(|i| (i * KV_BLOCK, 1)).chain([values])
}

/// [`strips`] of a block with scales.
pub(crate) fn strips_q8_0(head: KvHead) -> impl Iterator<Item = (usize, usize)> {
    let places = Places::from(head);
    strips(head)
        .chain((0..places.all_groups()).map(move |group| (places.key_scales(group), size_of::<f16>())))
}

/// Copies what place `from` has of each strip to place `to`, in blocks of `len` cells one behind the other.
pub(crate) fn copy<C: Copy>(
    blocks: &mut [C],
    len: usize,
    [from, to]: [usize; 2],
    strips: impl Iterator<Item = (usize, usize)>,
) {
    for (first, cells) in strips {
        let at = |place: usize| place / KV_BLOCK * len + first + place % KV_BLOCK * cells;
        for i in 0..cells {
            if let Some(&cell) = blocks.get(at(from) + i) {
                blocks.get_mut(at(to) + i).into_iter().for_each(|to| *to = cell);
            }
        }
    }
}

/// A form in which keys and values are cached, and the two products that attention needs of it.
pub(super) trait CacheForm<P: Prim<f32>> {
    /// The elements of a block.
    type Cell;
    /// [`Product::CONVERTS`].
    const CONVERTS: bool;

    /// `out[r][p] = sum_i queries[r][i] * key(p)[i]` for the positions from the first of `cols`, a multiple of 16, to before the
    /// second, counted from the first block's first.
    ///
    /// # Safety
    /// Queries, whole blocks, room for the scores; the instruction set.
    unsafe fn scores(
        blocks: KvBlocks<'_, Self::Cell>,
        queries: *const f32,
        rows: usize,
        cols: [usize; 2],
        out: Out,
    );

    /// `out[r][i] = sum_p weights[r][p] * value(p)[i]` over the positions from the first to before the second.
    ///
    /// # Safety
    /// Weights (in whole blocks), whole blocks, room for `width(dim)` sums a row, and in `room` for as many numbers as there are
    /// weights; the instruction set.
    unsafe fn outputs(
        blocks: KvBlocks<'_, Self::Cell>,
        weights: (*const f32, usize),
        rows: usize,
        positions: [usize; 2],
        out: Out,
        room: *mut f32,
    );

    /// Element `i` of the keys at the `LANES` positions from `place` of a block on.
    ///
    /// # Safety
    /// They exist; the instruction set.
    unsafe fn keys(blocks: KvBlocks<'_, Self::Cell>, block: usize, i: usize, place: usize) -> P::V;
}

/// The blocks of a piece, and the elements of a head.
pub(super) struct KvBlocks<'a, C> {
    pub(super) all: &'a [&'a [C]],
    pub(super) head: KvHead,
    /// The blocks that are attended to next, or `None` if nothing is to be prefetched. Products with keys prefetch the values
    /// of the same blocks, and products with values prefetch the keys of the next ones. So each has the time of one product
    /// to arrive.
    pub(super) next: Option<&'a [&'a [C]]>,
}

impl<C> Clone for KvBlocks<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for KvBlocks<'_, C> {}

impl<C> KvBlocks<'_, C> {
    /// Where block `i` starts.
    ///
    /// # Safety
    /// It exists.
    #[inline(always)]
    unsafe fn at(&self, i: usize) -> *const C {
        // SAFETY: the caller's contract.
        unsafe { self.all.get_unchecked(i).as_ptr() }
    }

    /// Where the values of the positions of each vector of `lanes` lie, for each block `cell(place)` cells behind its beginning,
    /// if something is to be prefetched and there are values.
    #[inline(always)]
    fn values<const W: usize>(
        &self,
        col: usize,
        lanes: usize,
        cell: impl Fn(usize) -> usize,
    ) -> Option<[*const u8; W]> {
        self.next.filter(|_| !self.head.latent)?;
        Some(from_fn(|v| {
            let at = col + v * lanes;
            // SAFETY: columns are positions of the blocks.
            unsafe { self.at(at / KV_BLOCK) }.wrapping_add(cell(at % KV_BLOCK)).cast()
        }))
    }

    /// Where the keys of the next block `i` lie, the dimensions from `col` on, for each vector as many as it has lanes.
    #[inline(always)]
    fn keys<const W: usize>(&self, i: usize, col: usize, lanes: usize) -> Option<[*const u8; W]> {
        let keys = self.next?.get(i)?.as_ptr();
        Some(from_fn(|v| keys.wrapping_add((col + v * lanes) * KV_BLOCK).cast()))
    }
}

/// Runs of positions, from the first to before the second number: those of a block each.
#[inline(always)]
fn runs([first, end]: [usize; 2]) -> usize {
    if first < end {
        end.div_ceil(KV_BLOCK) - first / KV_BLOCK
    } else {
        0
    }
}

/// Of run `i` of positions the block, the first position, and how many there are.
#[inline(always)]
fn run([first, end]: [usize; 2], i: usize) -> (usize, usize, usize) {
    let block = first / KV_BLOCK + i;
    let from = first.max(block * KV_BLOCK);
    (block, from, end.min((block + 1) * KV_BLOCK) - from)
}

/// [`Product::CONVERTS`] of numbers of type `E`: bf16 become f32 by a shift.
const fn converts<E: Element>() -> bool {
    matches!(E::TYPE, ElementType::F16)
}

/// Numbers of type `E`: keys, dimension by dimension, then values, position by position.
pub(super) struct Plain<E>(PhantomData<E>);

impl<E: Element, P: Prim<E> + Prim<f32>> CacheForm<P> for Plain<E> {
    type Cell = E;
    const CONVERTS: bool = converts::<E>();

    #[inline(always)]
    unsafe fn scores(blocks: KvBlocks<'_, E>, queries: *const f32, rows: usize, cols: [usize; 2], out: Out) {
        // SAFETY: the caller's contract.
        unsafe { product::<P, _>(&PlainKeys(blocks), (queries, blocks.head.dim), rows, cols, out) }
    }
    #[inline(always)]
    unsafe fn outputs(
        blocks: KvBlocks<'_, E>,
        weights: (*const f32, usize),
        rows: usize,
        positions: [usize; 2],
        out: Out,
        _: *mut f32,
    ) {
        let values = PlainValues { blocks, positions };
        // SAFETY: the caller's contract.
        unsafe { product::<P, _>(&values, weights, rows, [0, width(blocks.head.values)], out) }
    }
    #[inline(always)]
    unsafe fn keys(blocks: KvBlocks<'_, E>, block: usize, i: usize, place: usize) -> P::V {
        // SAFETY: the caller's contract.
        unsafe { <P as Prim<E>>::load(blocks.at(block).add(i * KV_BLOCK + place)) }
    }
}

/// Keys: columns are positions.
struct PlainKeys<'a, E>(KvBlocks<'a, E>);

// SAFETY: columns are positions of the blocks, as whoever multiplies vouches for.
unsafe impl<E: Element, P: Prim<E>> Product<P> for PlainKeys<'_, E> {
    type Number = E;
    const CONVERTS: bool = converts::<E>();

    #[inline(always)]
    fn runs(&self) -> usize {
        1
    }
    #[inline(always)]
    fn step(&self) -> usize {
        KV_BLOCK
    }
    #[inline(always)]
    fn run<const W: usize>(&self, _: usize, col: usize) -> (usize, usize, [*const E; W]) {
        let vector = |v: usize| {
            let at = col + v * P::LANES;
            // SAFETY: columns are positions of the blocks.
            unsafe { self.0.at(at / KV_BLOCK).add(at % KV_BLOCK) }
        };
        (0, self.0.head.dim, from_fn(vector))
    }
    #[inline(always)]
    unsafe fn load(p: *const E) -> P::V {
        // SAFETY: the caller's contract.
        unsafe { P::load(p) }
    }
    #[inline(always)]
    unsafe fn factors<const W: usize>(&self, _: usize, _: usize) -> Option<[P::V; W]> {
        None
    }
    #[inline(always)]
    fn ahead<const W: usize>(&self, _: usize, col: usize) -> Option<[*const u8; W]> {
        let KvHead { dim, values, .. } = self.0.head;
        self.0.values(col, P::LANES, |place| KV_BLOCK * dim + place * width(values))
    }
}

/// Values: steps are positions, columns the elements of a head.
struct PlainValues<'a, E> {
    blocks: KvBlocks<'a, E>,
    positions: [usize; 2],
}

// SAFETY: steps are positions of the blocks, as whoever multiplies vouches for.
unsafe impl<E: Element, P: Prim<E>> Product<P> for PlainValues<'_, E> {
    type Number = E;
    const CONVERTS: bool = converts::<E>();

    #[inline(always)]
    fn runs(&self) -> usize {
        runs(self.positions)
    }
    #[inline(always)]
    fn step(&self) -> usize {
        width(self.blocks.head.values)
    }
    #[inline(always)]
    fn run<const W: usize>(&self, i: usize, col: usize) -> (usize, usize, [*const E; W]) {
        let (block, from, steps) = run(self.positions, i);
        let KvHead { dim, values, .. } = self.blocks.head;
        let first = KV_BLOCK * dim + from % KV_BLOCK * width(values) + col;
        // SAFETY: positions are those of the blocks; values are behind the keys.
        (from, steps, from_fn(|v| unsafe { self.blocks.at(block).add(first + v * P::LANES) }))
    }
    #[inline(always)]
    unsafe fn load(p: *const E) -> P::V {
        // SAFETY: the caller's contract.
        unsafe { P::load(p) }
    }
    #[inline(always)]
    unsafe fn factors<const W: usize>(&self, _: usize, _: usize) -> Option<[P::V; W]> {
        None
    }
    #[inline(always)]
    fn ahead<const W: usize>(&self, i: usize, col: usize) -> Option<[*const u8; W]> {
        self.blocks.keys(i, col, P::LANES)
    }
}

/// Codes of 8 bits and scales in f16, laid out as [`Places`] says.
pub(super) struct CodesWithScales;

/// `LANES` scales, at any address.
///
/// # Safety
/// They exist; the instruction set.
#[inline(always)]
unsafe fn scales<P: Prim<f16>>(p: *const u8) -> P::V {
    let mut scales = [f16::ZERO; KV_BLOCK];
    // SAFETY: the caller's contract; no vector is longer than a block.
    unsafe {
        core::ptr::copy_nonoverlapping(p, scales.as_mut_ptr().cast(), P::LANES * size_of::<f16>());
        P::load(scales.as_ptr())
    }
}

impl<P: Widen + Prim<f16> + Prim<f32>> CacheForm<P> for CodesWithScales {
    type Cell = u8;
    const CONVERTS: bool = true;

    #[inline(always)]
    unsafe fn scores(blocks: KvBlocks<'_, u8>, queries: *const f32, rows: usize, cols: [usize; 2], out: Out) {
        // SAFETY: the caller's contract.
        unsafe { product::<P, _>(&ScaledKeys(blocks), (queries, blocks.head.dim), rows, cols, out) }
    }

    /// Weights are multiplied with the scales of a group first: so these are applied once, not for each element.
    #[inline(always)]
    unsafe fn outputs(
        blocks: KvBlocks<'_, u8>,
        (weights, stride): (*const f32, usize),
        rows: usize,
        positions: [usize; 2],
        out: Out,
        room: *mut f32,
    ) {
        let places = Places::from(blocks.head);
        for group in 0..places.value_groups() {
            // SAFETY: the caller's contract: weights and scales are there for whole blocks.
            unsafe {
                for i in 0..runs(positions) {
                    let (block, ..) = run(positions, i);
                    let from = blocks.at(block).add(places.value_scales(group));
                    for place in (0..KV_BLOCK).step_by(P::LANES) {
                        let scales = scales::<P>(from.add(place * size_of::<f16>()));
                        for r in 0..rows {
                            let at = r * stride + block * KV_BLOCK + place;
                            let weight = <P as Prim<f32>>::load(weights.add(at));
                            <P as Prim<f32>>::store(room.add(at), P::mul(weight, scales));
                        }
                    }
                }
                let end = width(blocks.head.values).min((group + 1) * SCALE_GROUP);
                let values = ScaledValues { blocks, positions };
                product::<P, _>(&values, (room, stride), rows, [group * SCALE_GROUP, end], out);
            }
        }
    }

    #[inline(always)]
    unsafe fn keys(blocks: KvBlocks<'_, u8>, block: usize, i: usize, place: usize) -> P::V {
        let scale = Places::from(blocks.head).key_scales(i / SCALE_GROUP) + place * size_of::<f16>();
        // SAFETY: the caller's contract.
        unsafe {
            let block = blocks.at(block);
            P::mul(P::widen(block.add(i * KV_BLOCK + place).cast()), scales::<P>(block.add(scale)))
        }
    }
}

/// Keys: columns are positions, runs groups.
struct ScaledKeys<'a>(KvBlocks<'a, u8>);

// SAFETY: columns are positions of the blocks, as whoever multiplies vouches for.
unsafe impl<P: Widen + Prim<f16>> Product<P> for ScaledKeys<'_> {
    type Number = i8;
    const CONVERTS: bool = true;

    #[inline(always)]
    fn runs(&self) -> usize {
        Places::from(self.0.head).key_groups()
    }
    #[inline(always)]
    fn step(&self) -> usize {
        KV_BLOCK
    }
    #[inline(always)]
    fn run<const W: usize>(&self, i: usize, col: usize) -> (usize, usize, [*const i8; W]) {
        let from = i * SCALE_GROUP;
        let vector = |v: usize| {
            let at = col + v * P::LANES;
            // SAFETY: columns are positions of the blocks.
            unsafe { self.0.at(at / KV_BLOCK).add(from * KV_BLOCK + at % KV_BLOCK).cast() }
        };
        (from, SCALE_GROUP.min(self.0.head.dim - from), from_fn(vector))
    }
    #[inline(always)]
    unsafe fn load(p: *const i8) -> P::V {
        // SAFETY: the caller's contract.
        unsafe { P::widen(p) }
    }
    #[inline(always)]
    unsafe fn factors<const W: usize>(&self, i: usize, col: usize) -> Option<[P::V; W]> {
        let from = Places::from(self.0.head).key_scales(i);
        // SAFETY: the caller's contract; scales are as many as positions.
        Some(from_fn(|v| unsafe {
            let at = col + v * P::LANES;
            scales::<P>(self.0.at(at / KV_BLOCK).add(from + at % KV_BLOCK * size_of::<f16>()))
        }))
    }
    #[inline(always)]
    fn ahead<const W: usize>(&self, i: usize, col: usize) -> Option<[*const u8; W]> {
        // Each group prefetches its share.
        let (places, width) = (Places::from(self.0.head), width(self.0.head.values));
        self.0
            .values(col, P::LANES, |place| places.value_codes() + place * width + i * SCALE_GROUP * P::LANES)
    }
}

/// Values, whose scales the rows have been multiplied with.
struct ScaledValues<'a> {
    blocks: KvBlocks<'a, u8>,
    positions: [usize; 2],
}

// SAFETY: steps are positions of the blocks, as whoever multiplies vouches for.
unsafe impl<P: Widen> Product<P> for ScaledValues<'_> {
    type Number = i8;
    const CONVERTS: bool = true;
    // No wider than a group.
    const WIDEST: usize = if 4 * P::LANES <= SCALE_GROUP { 4 } else { 2 };

    #[inline(always)]
    fn runs(&self) -> usize {
        runs(self.positions)
    }
    #[inline(always)]
    fn step(&self) -> usize {
        width(self.blocks.head.values)
    }
    #[inline(always)]
    fn run<const W: usize>(&self, i: usize, col: usize) -> (usize, usize, [*const i8; W]) {
        let (block, from, steps) = run(self.positions, i);
        let KvHead { values, .. } = self.blocks.head;
        let first = Places::from(self.blocks.head).value_codes() + from % KV_BLOCK * width(values) + col;
        // SAFETY: positions are those of the blocks.
        (from, steps, from_fn(|v| unsafe { self.blocks.at(block).add(first + v * P::LANES).cast() }))
    }
    #[inline(always)]
    unsafe fn load(p: *const i8) -> P::V {
        // SAFETY: the caller's contract.
        unsafe { P::widen(p) }
    }
    #[inline(always)]
    unsafe fn factors<const W: usize>(&self, _: usize, _: usize) -> Option<[P::V; W]> {
        None
    }
    #[inline(always)]
    fn ahead<const W: usize>(&self, i: usize, col: usize) -> Option<[*const u8; W]> {
        self.blocks.keys(i, col, P::LANES)
    }
}

/// Values that are the first elements of keys, position by position in f32: keys lie dimension by dimension.
#[derive(Clone, Copy)]
pub(super) struct Decoded {
    pub(super) values: *mut f32,
    /// Numbers of a position.
    pub(super) width: usize,
    /// The positions that are multiplied, counted from the first block's first.
    pub(super) positions: [usize; 2],
}

/// Numbers between one position's decoded values and the next one's. Widths are powers of two in many models: without a gap the same columns of all
/// positions would compete for few lines of the first-level cache.
pub(crate) const DECODED_GAP: usize = KV_BLOCK;

impl Decoded {
    /// Writes the first `n` elements of all keys of these blocks, and zeros behind them.
    ///
    /// # Safety
    /// Keys of at least as many elements, and room for `width + DECODED_GAP` numbers of each position; the instruction set.
    #[inline(always)]
    pub(super) unsafe fn decode<P: Prim<f32>, F: CacheForm<P>>(self, keys: KvBlocks<'_, F::Cell>, n: usize) {
        let stride = self.width + DECODED_GAP;
        for block in 0..keys.all.len() {
            // SAFETY: the caller's contract.
            unsafe {
                let to = self.values.add(block * KV_BLOCK * stride);
                rows_of_keys::<P, F>(keys, block, [n, self.width], (to, stride));
            }
        }
    }
}

/// Writes the first `n` elements of the keys of a block, key by key and `stride` numbers apart, and zeros behind them until there are `width` numbers.
///
/// # Safety
/// Keys of at least as many elements, and room for the numbers of each position; the instruction set.
#[inline(always)]
pub(super) unsafe fn rows_of_keys<P: Prim<f32>, F: CacheForm<P>>(
    keys: KvBlocks<'_, F::Cell>,
    block: usize,
    [n, width]: [usize; 2],
    (to, stride): (*mut f32, usize),
) {
    for (place, first) in (0..KV_BLOCK)
        .step_by(P::LANES)
        .flat_map(|place| (0..width).step_by(P::LANES).map(move |first| (place, first)))
    {
        // SAFETY: the caller's contract.
        unsafe {
            let mut square = [P::splat(0.0); 16];
            for (j, v) in square.iter_mut().enumerate().take(P::LANES.min(n.saturating_sub(first))) {
                *v = F::keys(keys, block, first + j, place);
            }
            let to = to.add(place * stride + first);
            for (p, &v) in transpose::<P>(square).iter().enumerate().take(P::LANES) {
                if width - first >= P::LANES {
                    P::store(to.add(p * stride), v);
                } else {
                    P::store_n(to.add(p * stride), v, width - first);
                }
            }
        }
    }
}

// SAFETY: positions are those that were decoded, as whoever multiplies vouches for.
unsafe impl<P: Prim<f32>> Product<P> for Decoded {
    type Number = f32;

    #[inline(always)]
    fn runs(&self) -> usize {
        1
    }
    #[inline(always)]
    fn step(&self) -> usize {
        self.width + DECODED_GAP
    }
    #[inline(always)]
    fn run<const W: usize>(&self, _: usize, col: usize) -> (usize, usize, [*const f32; W]) {
        let [from, end] = self.positions;
        // SAFETY: the values of these positions.
        let vector = |v: usize| unsafe {
            self.values.add(from * (self.width + DECODED_GAP) + col + v * P::LANES).cast_const()
        };
        (from, end - from, from_fn(vector))
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> P::V {
        // SAFETY: the caller's contract.
        unsafe { P::load(p) }
    }
    #[inline(always)]
    unsafe fn factors<const W: usize>(&self, _: usize, _: usize) -> Option<[P::V; W]> {
        None
    }
    #[inline(always)]
    fn ahead<const W: usize>(&self, _: usize, _: usize) -> Option<[*const u8; W]> {
        None
    }
}
