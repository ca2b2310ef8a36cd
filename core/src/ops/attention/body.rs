//! Attention: the algorithms.

use super::forms::{
    rows_of_keys, width, CacheForm, CodesWithScales, Decoded, KvBlocks, Places, Plain, SCALE_GROUP,
};
use super::tile::{product, together, Out, HIGHEST};
use super::tree::Branch;
use super::{Alibi, AppendArgs, AttendArgs, Gathered, JoinArgs, KeysArgs, KvPiece, KV_BLOCK};
use crate::arrays::from_fn;
use crate::element::{f16, Element};
use crate::ops::abreast::{Abreast, CHAINS};
use crate::ops::math;
use crate::ops::round::{nearest, scale_of};
use crate::quant::bytes::Widen;
use crate::vector::Prim;

/// Places of the positions of a block: 0, 1, ..
static PLACES: [f32; KV_BLOCK] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

/// The places of columns from `col` on, in the piece.
///
/// # Safety
/// The columns are those of a block; the instruction set.
#[inline(always)]
unsafe fn places<P: Prim<f32>>(col: usize) -> P::V {
    // SAFETY: a vector within the places of a block; the caller's contract.
    unsafe {
        let base = (col - col % KV_BLOCK) as f32;
        P::add(P::load(PLACES.as_ptr().add(col % KV_BLOCK)), P::splat(base))
    }
}

/// Caps the scores of columns `cols` of a query, and lowers them with the distance. The piece begins at position `first`.
///
/// # Safety
/// The scores, whose columns are whole blocks; the instruction set.
#[inline(always)]
unsafe fn lower<P: Prim<f32>>(
    scores: *mut f32,
    [from, end]: [usize; 2],
    first: usize,
    Alibi { slope, position }: Alibi,
    softcap: Option<f32>,
) {
    // Exact within 2^24 positions.
    let own = match position.checked_sub(first) {
        Some(place) => place as f32,
        None => -((first - position) as f32),
    };
    // SAFETY: the caller's contract.
    unsafe {
        for col in (from..end).step_by(P::LANES) {
            let mut s = P::load(scores.add(col));
            if let Some(cap) = softcap {
                s = P::mul(math::tanh::<P>(P::div(s, P::splat(cap))), P::splat(cap));
            }
            let ahead = P::sub(places::<P>(col), P::splat(own));
            let distance = P::max(ahead, P::sub(P::splat(0.0), ahead));
            P::store(scores.add(col), P::fma(P::splat(-slope), distance, s));
        }
    }
}

/// Turns `N` vectors of scores into exponentials relative to `center`, and adds them to `sum`.
///
/// # Safety
/// The scores; the instruction set.
#[inline(always)]
unsafe fn exponential<P: Prim<f32>, const N: usize>(scores: *mut f32, center: P::V, sum: P::V) -> P::V {
    // SAFETY: the caller's contract.
    unsafe {
        let x: [P::V; N] = from_fn(|v| P::sub(P::load(scores.add(v * P::LANES)), center));
        let all = math::exp::<Abreast<P, N>>(x);
        for (v, &e) in all.iter().enumerate() {
            P::store(scores.add(v * P::LANES), e);
        }
        all.into_iter().fold(sum, |sum, e| P::add(sum, e))
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
                let place = places::<P>(col);
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
        let mut col = from;
        while end - col >= CHAINS * P::LANES {
            sum = exponential::<P, CHAINS>(scores.add(col), center, sum);
            col += CHAINS * P::LANES;
        }
        while col < end {
            sum = exponential::<P, 1>(scores.add(col), center, sum);
            col += P::LANES;
        }
        [largest, P::reduce_sum(sum)]
    }
}

/// Attention of some queries to a piece. The partial result is joined to those of earlier pieces.
///
/// # Safety
/// The operands that the arguments name exist; the CPU has the instruction set.
#[inline(always)]
unsafe fn gather<P: Prim<f32>, F: CacheForm<P>>(a: &AttendArgs<'_, F::Cell>) {
    let AttendArgs { rows, head, queries, ref piece, scores, room, decoded, new, all } = *a;
    let KvPiece { blocks, first, spans, softcap: cap, alibi, tree, next } = *piece;
    // What is lowered has been capped.
    let softcap = if alibi.is_empty() { cap } else { None };
    let (there, width, dim) = (blocks.len() * KV_BLOCK, width(head.values), head.dim);
    // Rows that are multiplied together: neighbours, which see almost the same positions.
    let step = together::<P>(rows, F::CONVERTS);
    let keys = KvBlocks { all: blocks, head, next: None };
    let values = Decoded { values: decoded, width, positions: [0, there] };
    if head.latent {
        // SAFETY: the caller's contract: there is room for these values.
        unsafe { values.decode::<P, F>(keys, head.values) };
    }
    for row in (0..rows).step_by(step) {
        let n = step.min(rows - row);
        // A few rows are limited by memory, and the first of them brings everything into the cache. Many rows, those of a
        // prompt, are limited by arithmetic, and prefetches would only take instruction slots from it.
        let blocks = KvBlocks { next: (row == 0 && rows <= HIGHEST).then_some(next), ..keys };
        // SAFETY: the caller's contract: rows are within the queries, columns within the blocks.
        unsafe {
            let branch = |r: usize| Branch::of(tree, row + r, first, there);
            let span = |r: usize| *spans.get_unchecked(row + r);
            let (mut low, mut high) = (there, 0);
            for r in 0..n {
                let branch = branch(r);
                let seen = branch.seen(span(r));
                if seen[0] < seen[1] {
                    low = low.min(span(r)[0].saturating_sub(first));
                    high = high.max(branch.reach(seen[1]));
                }
            }
            if low >= high {
                continue;
            }
            let cols = [low - low % KV_BLOCK, high.next_multiple_of(KV_BLOCK)];
            let scores_of = scores.add(row * there);
            let out = Out { to: scores_of, stride: there };
            F::scores(blocks, queries.add(row * dim), n, cols, out);
            for r in 0..n {
                let (branch, scores) = (branch(r), scores_of.add(r * there));
                let seen = branch.seen(span(r));
                branch.gather(scores);
                if let Some(&alibi) = alibi.get(row + r) {
                    lower::<P>(scores, cols, branch.first, alibi, cap);
                }
                *new.sums.add(row + r) = exponentials::<P>(scores, cols, seen, softcap);
                branch.scatter(scores, seen[0]);
            }
            let out = Out { to: new.values.add(row * width), stride: width };
            if head.latent {
                let values = Decoded { positions: [low, high], ..values };
                product::<P, _>(&values, (scores_of, there), n, [0, width], out);
            } else {
                F::outputs(blocks, (scores_of, there), n, [low, high], out, room);
            }
            let all = Gathered { sums: all.sums.add(row), values: all.values.add(row * head.values) };
            let new = Gathered { sums: new.sums.add(row), values: new.values.add(row * width) };
            join::<P>(&JoinArgs { rows: n, dim: head.values, all, new, stride: width });
        }
    }
}

/// Attention to numbers of type `E`.
///
/// # Safety
/// The operands that the arguments name exist; the CPU has the instruction set.
#[inline(always)]
pub(crate) unsafe fn attend<E: Element, P: Prim<E> + Prim<f32>>(a: &AttendArgs<'_, E>) {
    // SAFETY: the caller's contract.
    unsafe { gather::<P, Plain<E>>(a) }
}

/// Attention to codes of 8 bits.
///
/// # Safety
/// The contract of [`attend`].
#[inline(always)]
pub(crate) unsafe fn attend_q8_0<P: Widen + Prim<f16> + Prim<f32>>(a: &AttendArgs<'_, u8>) {
    // SAFETY: the caller's contract.
    unsafe { gather::<P, CodesWithScales>(a) }
}

/// Joins partial results of further pieces.
///
/// # Safety
/// The operands that the arguments name exist; the CPU has the instruction set.
#[inline(always)]
pub(crate) unsafe fn join<P: Prim<f32>>(a: &JoinArgs) {
    let JoinArgs { rows, dim, all, new, stride } = *a;
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
            let (values, more) = (all.values.add(r * dim), new.values.add(r * stride));
            let whole = dim - dim % P::LANES;
            for i in (0..whole).step_by(P::LANES) {
                let v = P::mul(P::load(more.add(i)), new_factor);
                P::store(values.add(i), P::fma(P::load(values.add(i)), old, v));
            }
            if whole < dim {
                let n = dim - whole;
                let v = P::mul(P::load_n(more.add(whole), n), new_factor);
                P::store_n(values.add(whole), P::fma(P::load_n(values.add(whole), n), old, v), n);
            }
        }
    }
}

/// Writes tokens' keys and values to a block.
///
/// # Safety
/// They exist, their places are in the block; the instruction set.
#[inline(always)]
pub(crate) unsafe fn append<E: Element, P: Prim<E> + Prim<f32>>(a: &AppendArgs<E>) {
    let AppendArgs { tokens, head, place, keys, values, strides, block } = *a;
    let (dim, stored) = (head.dim, head.stored());
    for t in 0..tokens {
        // SAFETY: the caller's contract.
        unsafe {
            let (key, value) = (keys.add(t * strides[0]), values.wrapping_add(t * strides[1]));
            let to = block.add(KV_BLOCK * dim + (place + t) * width(stored));
            for i in (0..stored).step_by(P::LANES) {
                let n = P::LANES.min(stored - i);
                <P as Prim<E>>::store_n(to.add(i), <P as Prim<f32>>::load_n(value.add(i), n), n);
            }
            for i in (0..dim).step_by(P::LANES) {
                let n = P::LANES.min(dim - i);
                let mut narrow = [E::from_f32(0.0); KV_BLOCK];
                <P as Prim<E>>::store(narrow.as_mut_ptr(), <P as Prim<f32>>::load_n(key.add(i), n));
                for (j, &k) in narrow.iter().enumerate().take(n) {
                    *block.add((i + j) * KV_BLOCK + place + t) = k;
                }
            }
        }
    }
}

/// Rounds the `n <= SCALE_GROUP` numbers at `x` to 8 bits, and writes their scale. The codes are followed by zeros.
///
/// # Safety
/// The numbers, room for a scale; the instruction set.
#[inline(always)]
unsafe fn rounded<P: Prim<f16> + Prim<f32>>(x: *const f32, n: usize, to: *mut u8) -> [i8; SCALE_GROUP] {
    // SAFETY: the caller's contract.
    unsafe {
        let mut whole = [0f32; SCALE_GROUP];
        core::ptr::copy_nonoverlapping(x, whole.as_mut_ptr(), n);
        let [scale, by] = scale_of::<f32, P>(whole.as_ptr());
        let mut narrow = [f16::ZERO; KV_BLOCK];
        <P as Prim<f16>>::store(narrow.as_mut_ptr(), P::splat(scale));
        core::ptr::copy_nonoverlapping(narrow.as_ptr().cast(), to, size_of::<f16>());
        nearest::<f32, P>(whole.as_ptr(), by).0
    }
}

/// Rounds tokens' keys and values to 8 bits, and writes them to a block.
///
/// # Safety
/// The contract of [`append`].
#[inline(always)]
pub(crate) unsafe fn append_q8_0<P: Prim<f16> + Prim<f32>>(a: &AppendArgs<u8>) {
    let AppendArgs { tokens, head, place, keys, values, strides, block } = *a;
    let places = Places::from(head);
    for t in 0..tokens {
        // SAFETY: the caller's contract.
        let scale = |scales: usize| unsafe { block.add(scales + (place + t) * size_of::<f16>()) };
        for first in (0..places.values).step_by(SCALE_GROUP) {
            let n = SCALE_GROUP.min(places.values - first);
            // SAFETY: the caller's contract.
            unsafe {
                let scale = scale(places.value_scales(first / SCALE_GROUP));
                let codes = rounded::<P>(values.add(t * strides[1] + first), n, scale);
                let to = block.add(places.value_codes() + (place + t) * width(places.values) + first);
                core::ptr::copy_nonoverlapping(codes.as_ptr().cast(), to, n);
            }
        }
        for first in (0..places.dim).step_by(SCALE_GROUP) {
            let n = SCALE_GROUP.min(places.dim - first);
            // SAFETY: the caller's contract.
            unsafe {
                let scale = scale(places.key_scales(first / SCALE_GROUP));
                let codes = rounded::<P>(keys.add(t * strides[0] + first), n, scale);
                for (j, &code) in codes.iter().enumerate().take(n) {
                    *block.add((first + j) * KV_BLOCK + place + t) = code as u8;
                }
            }
        }
    }
}

/// Reads the keys of a block back.
///
/// # Safety
/// The operands that the arguments name exist; the CPU has the instruction set.
#[inline(always)]
unsafe fn read<P: Prim<f32>, F: CacheForm<P>>(a: &KeysArgs<'_, F::Cell>) {
    let KeysArgs { head, block, n, keys, stride } = *a;
    let blocks = KvBlocks { all: &[block], head, next: None };
    // SAFETY: the caller's contract.
    unsafe { rows_of_keys::<P, F>(blocks, 0, [n, n], (keys, stride)) }
}

/// [`read`], of numbers of type `E`.
///
/// # Safety
/// The contract of [`read`].
#[inline(always)]
pub(crate) unsafe fn keys<E: Element, P: Prim<E> + Prim<f32>>(a: &KeysArgs<'_, E>) {
    // SAFETY: the caller's contract.
    unsafe { read::<P, Plain<E>>(a) }
}

/// [`read`], of codes of 8 bits.
///
/// # Safety
/// The contract of [`read`].
#[inline(always)]
pub(crate) unsafe fn keys_q8_0<P: Widen + Prim<f16> + Prim<f32>>(a: &KeysArgs<'_, u8>) {
    // SAFETY: the caller's contract.
    unsafe { read::<P, CodesWithScales>(a) }
}
