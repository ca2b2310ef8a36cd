//! Rounding of activations to 8 bits, in groups of 32.
//!
//! What belongs to a group (its largest magnitude, the sums of its integers) is a total over the lanes of a register. With long
//! registers such totals take several operations that wait for each other, so they are formed for eight groups at once. NEON
//! has one instruction for them.

use crate::arrays::Each;
use crate::element::Element;
use crate::isa::Scalar;
use crate::ops::engine::Join;
use crate::quant::packed::{STEPS, STEP_COLS};
use crate::quant::steps::Step;
use crate::vector::{Arithmetic, Prim, Vector};

/// Magnitudes below which a group counts as zeros: the reciprocal of its scale would overflow.
const TINY: f32 = 1.0e-36;

/// Numbers of eight groups, and room for a longer register.
pub(crate) type OfGroups = [f32; 2 * STEPS];

/// Whether totals of eight groups are formed together.
const fn together<P: Vector>() -> bool {
    P::LANES >= STEPS
}

/// `join` of every other lane of neighbouring vectors with the lane behind it: half as many vectors, in which lanes keep their order.
///
/// # Safety
/// The instruction set.
#[inline(always)]
unsafe fn halve<P: Vector, const N: usize, const H: usize>(v: [P::V; N], join: Join) -> [P::V; H] {
    // SAFETY: the caller's contract. A loop, as a closure may be compiled by itself, for any CPU.
    unsafe {
        let mut halves = [P::splat(0.0); H];
        for (i, half) in halves.iter_mut().enumerate() {
            let (even, odd) = P::unzip(v[2 * i % N], v[(2 * i + 1) % N]);
            *half = match join {
                Join::Sum => P::add(even, odd),
                Join::Max => P::max(even, odd),
            };
        }
        halves
    }
}

/// The totals of all lanes of each of eight vectors.
///
/// # Safety
/// The instruction set.
#[inline(always)]
pub(crate) unsafe fn totals<P: Prim<f32>>(v: [P::V; STEPS], join: Join) -> OfGroups {
    let mut all = [0f32; 2 * STEPS];
    let to = all.as_mut_ptr();
    // SAFETY: the caller's contract; there is room for every vector.
    unsafe {
        if !together::<P>() {
            for (all, v) in all.iter_mut().zip(v) {
                *all = match join {
                    Join::Sum => P::reduce_sum(v),
                    Join::Max => P::reduce_max(v),
                };
            }
            return all;
        }
        let two: [P::V; 2] = halve::<P, 4, 2>(halve::<P, STEPS, 4>(v, join), join);
        let [mut one] = halve::<P, 2, 1>(two, join);
        if P::LANES == 16 {
            [one] = halve::<P, 2, 1>([one; 2], join);
        }
        P::store(to, one);
    }
    all
}

/// Of 32 numbers the largest magnitudes, and sums that are NaN if a number is NaN or infinite, else 0, in each lane.
///
/// # Safety
/// They exist; the instruction set.
#[inline(always)]
unsafe fn extremes<E: Element, P: Prim<E>>(x: *const E) -> [P::V; 2] {
    // SAFETY: every vector is a whole one of 32 elements.
    unsafe {
        let (zero, mut largest, mut odd) = (P::splat(0.0), P::splat(0.0), P::splat(0.0));
        for i in (0..STEP_COLS).step_by(P::LANES) {
            let x = P::load(x.add(i));
            largest = P::max(largest, P::max(x, P::sub(zero, x)));
            odd = P::fma(x, zero, odd);
        }
        [largest, odd]
    }
}

/// The scale of a group, which is 1/127 of its largest magnitude, and its reciprocal, with which numbers are multiplied before
/// rounding. If a number is not finite these are NaN and 0; if all are tiny, both are 0.
///
/// # Safety
/// The instruction set.
#[inline(always)]
unsafe fn scale<P: Arithmetic>([largest, odd]: [P::V; 2]) -> [P::V; 2] {
    // SAFETY: the caller's contract.
    unsafe {
        let (zero, tiny, most) = (P::splat(0.0), P::splat(TINY), P::splat(127.0));
        let scale = P::select_lt(largest, tiny, zero, P::div(largest, most));
        let by = P::select_lt(largest, tiny, zero, P::div(most, largest));
        [P::add(scale, odd), P::select_lt(odd, P::splat(1.0), by, zero)]
    }
}

/// The [`scale`]s of eight groups.
///
/// # Safety
/// The 32 numbers of each exist; the instruction set.
#[inline(always)]
unsafe fn scales<E: Element, P: Prim<E> + Prim<f32>>(columns: impl Fn(usize) -> *const E) -> [OfGroups; 2] {
    // SAFETY: the caller's contract; vectors are within the numbers of groups or the room behind them.
    unsafe {
        let (mut largest, mut odd) = ([P::splat(0.0); STEPS], [P::splat(0.0); STEPS]);
        for (s, (largest, odd)) in largest.iter_mut().zip(&mut odd).enumerate() {
            [*largest, *odd] = extremes::<E, P>(columns(s));
        }
        let (largest, odd) = (totals::<P>(largest, Join::Max), totals::<P>(odd, Join::Sum));
        let mut scales = [[0f32; 2 * STEPS]; 2];
        for i in (0..STEPS).step_by(P::LANES) {
            let largest = <P as Prim<f32>>::load(largest.as_ptr().add(i));
            let odd = <P as Prim<f32>>::load(odd.as_ptr().add(i));
            let [scale, by] = scale::<P>([largest, odd]);
            <P as Prim<f32>>::store(scales[0].as_mut_ptr().add(i), scale);
            <P as Prim<f32>>::store(scales[1].as_mut_ptr().add(i), by);
        }
        scales
    }
}

/// The [`scale`] of one group.
///
/// # Safety
/// Its 32 numbers exist; the instruction set.
#[inline(always)]
pub(crate) unsafe fn scale_of<E: Element, P: Prim<E>>(x: *const E) -> [f32; 2] {
    // SAFETY: the caller's contract.
    unsafe {
        let [largest, odd] = extremes::<E, P>(x);
        scale::<Scalar>([P::reduce_max(largest), P::reduce_sum(odd)])
    }
}

/// 32 activations times `by`, rounded to integers of at most 127 in magnitude, and the sums of both halves, in the lanes of a register
/// each.
///
/// # Safety
/// They exist; products are at most 127, or `by` is 0; the instruction set.
#[inline(always)]
pub(crate) unsafe fn nearest<E: Element, P: Prim<E> + Prim<f32>>(
    x: *const E,
    by: f32,
) -> ([i8; STEP_COLS], [P::V; 2]) {
    // SAFETY: every vector is a whole one of 32 elements.
    unsafe {
        let (zero, by, mut rounded) = (P::splat(0.0), P::splat(by), [0f32; STEP_COLS]);
        let mut sums = [zero; 2];
        for i in (0..STEP_COLS).step_by(P::LANES) {
            // Numbers that are not finite become 0, too.
            let v = P::round(P::mul(<P as Prim<E>>::load(x.add(i)), by));
            let v = P::select_lt(zero, by, v, zero);
            let sum = &mut sums[usize::from(i >= STEP_COLS / 2)];
            *sum = P::add(*sum, v);
            <P as Prim<f32>>::store(rounded.as_mut_ptr().add(i), v);
        }
        (rounded.each(|x| x.to_int_unchecked::<i32>() as i8), sums)
    }
}

/// Rounds up to eight groups of activations.
///
/// # Safety
/// Those of eight groups exist, and `n` steps; the instruction set.
#[inline(always)]
pub(crate) unsafe fn steps<E: Element, P: Prim<E> + Prim<f32>>(
    n: usize,
    columns: impl Fn(usize) -> *const E,
    units: [f32; 2],
    out: impl Fn(usize) -> *mut Step,
) {
    // SAFETY: the caller's contract.
    unsafe {
        if !together::<P>() {
            for s in 0..n {
                let (x, out) = (columns(s), &mut *out(s));
                let [scale, by] = scale_of::<E, P>(x);
                let (q, [first, second]) = nearest::<E, P>(x, by);
                out.q = q;
                fill(out, scale, units, [P::reduce_sum(first), P::reduce_sum(second)]);
            }
            return;
        }
        let [scales, by] = scales::<E, P>(&columns);
        let mut halves = [[P::splat(0.0); STEPS]; 2];
        for (s, &by) in by.iter().enumerate().take(n.min(STEPS)) {
            let (q, sums) = nearest::<E, P>(columns(s), by);
            (*out(s)).q = q;
            for (half, sum) in halves.iter_mut().zip(sums) {
                half[s % STEPS] = sum;
            }
        }
        let [first, second] = [totals::<P>(halves[0], Join::Sum), totals::<P>(halves[1], Join::Sum)];
        for s in 0..n.min(STEPS) {
            let i = s % STEPS;
            fill(&mut *out(s), scales[i], units, [first[i], second[i]]);
        }
    }
}

/// Completes a step from its integers' scale and the sums of both halves of them.
///
/// # Safety
/// The sums are whole, of at most 16 integers of 8 bits.
#[inline(always)]
unsafe fn fill(step: &mut Step, scale: f32, [unit, offset_unit]: [f32; 2], [first, second]: [f32; 2]) {
    let all = [first, second, first + second];
    // SAFETY: the caller's contract.
    step.sums = all.each(|n| -unsafe { n.to_int_unchecked::<i32>() });
    step.scale = scale * unit;
    step.offsets = all.each(|n| n * scale * offset_unit);
    step._pad = 0.0;
}
