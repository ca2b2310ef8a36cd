//! Products of quantised weights in place with activations of 8 bits. Codes are unpacked in registers and multiplied there,
//! without a detour through memory.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::args::unpacker::Q8Args;
use crate::arrays::{from_fn, Each};
use crate::caps::Prefetches;
use crate::isa::machine::{in_memory, ROOM_FOR_CODE};
use crate::ops::activations::{Fine, FineOrCoarse};
use crate::ops::ahead::prefetch_far;
use crate::quant::dots::{Dots, Factors};
use crate::quant::packed::{Pack, GROUPS};
use crate::quant::{Unpack, SUPER_BLOCK};
use crate::vector::{Arithmetic, Prim, Vector};

/// Repeats statements for each step of a unit, with the step's number as a constant: an unrolled loop, in which shifts and
/// offsets are constants.
macro_rules! for_each_step {
    ($k:ident in $columns:expr => $body:block) => { for_each_step! { @ $k $columns, $body 0 1 2 3 4 5 6 7 } };
    (@ $k:ident $columns:expr, $body:block $($number:literal)*) => {$(
        if const { $number * $columns < SUPER_BLOCK } {
            let $k = const { $number };
            $body
        }
    )*};
}

mod coarse;

pub(crate) use coarse::SuperBlocks;

/// Rows of activations that a row of weights is multiplied with at a time, at most.
const BATCH: usize = 4;

/// Rows of weights that are multiplied with one batch of activations before the next batch. They stay in L2 meanwhile, and the
/// first batch reads and prefetches them in the order of memory.
const L2_ROWS: usize = 16;

/// Prefetches weights far behind the `bytes` bytes at `w`, while these are multiplied with `M` rows of activations. A hardware
/// prefetcher that fetches the lines between others keeps up with one row, and software prefetches would hinder it.
#[inline(always)]
fn ahead<const M: usize>(g: &Q8Args, w: *const u8, bytes: usize) {
    if M > 1 || g.prefetches != Prefetches::Fourth {
        prefetch_far(w, bytes);
    }
}

/// How one row of weights is multiplied, which depends on the length of the format's blocks.
///
/// # Safety
/// Methods read the row's blocks and as many columns of activations.
pub(crate) unsafe trait BlockProducts<F: Pack, D: Dots<F>> {
    /// The products of a row of weights with the `M` rows of activations from row `m` on. The last row stands in for rows
    /// that do not exist.
    ///
    /// # Safety
    /// The row's blocks at `w`; the contract of [`qgemv_q8`].
    unsafe fn row<const M: usize>(g: &Q8Args, w: *const F::Block, m: usize) -> [f32; M];
}

/// Rows of blocks with fewer than 256 weights.
pub(crate) struct SmallBlocks;

// SAFETY: accesses only the operands that the contract of the trait names.
unsafe impl<F: Pack, D: Dots<F>> BlockProducts<F, D> for SmallBlocks {
    #[inline(always)]
    unsafe fn row<const M: usize>(g: &Q8Args, w: *const F::Block, m: usize) -> [f32; M] {
        let tile = const { SUPER_BLOCK / F::LEN };
        const { assert!(size_of::<<D::Isa as Unpack<F>>::Ready>() == 0) };
        const { assert!(SUPER_BLOCK / F::LEN * size_of::<F::Block>() <= 2 * SUPER_BLOCK) };
        let mut last = MaybeUninit::<[u8; 2 * SUPER_BLOCK]>::uninit();
        let mut prepared = [const { MaybeUninit::<[Factors; M]>::uninit() }; 2];
        let [to, from] = &mut prepared;
        let (mut to, mut from) = (to.as_mut_ptr(), from.as_mut_ptr());
        let mut x: [*const FineOrCoarse; M] = from_fn(|i| g.activations(m + i));
        let mut left = g.blocks.div_ceil(tile);
        // SAFETY: blocks are bounded by the number of units; activations have whole ones, of zeros at the end.
        unsafe {
            let mut sums = Sums::<D::Sums, M> { products: [D::zeros(); M], offsets: [[0.0; GROUPS]; M] };
            let (mut next, mut now) = (w, core::ptr::null::<F::Block>());
            // While the products of a unit are summed, the next is prepared, which takes long.
            loop {
                if left > 0 {
                    if left == 1 && !g.blocks.is_multiple_of(tile) {
                        // Zeros are blocks, too, and finite ones.
                        let bytes = g.blocks % tile * size_of::<F::Block>();
                        let last = last.write([0; 2 * SUPER_BLOCK]);
                        core::ptr::copy_nonoverlapping(next.cast::<u8>(), last.as_mut_ptr(), bytes);
                        next = last.as_ptr().cast();
                    }
                    prepare::<F, D, M>(next, x.each(|x| &(*x).fine), to, &mut sums.offsets);
                    in_memory(to);
                    ahead::<M>(g, next.cast(), tile * size_of::<F::Block>());
                }
                if !now.is_null() {
                    multiply::<F, D, M>(now, &*from, x.each(|x| &(*x.sub(1)).fine), &mut sums.products);
                }
                if left == 0 {
                    break;
                }
                left -= 1;
                (now, next) = (next, next.wrapping_add(tile));
                (to, from) = (from, to);
                x = x.each(|x| x.wrapping_add(1));
            }
            let [unit, offset_unit] = g.units;
            let offsets = |m: usize| {
                let at = |k: usize| <D::Isa as Prim<f32>>::load(sums.offsets[m].as_ptr().add(k));
                let all = (0..GROUPS)
                    .step_by(D::Isa::LANES)
                    .fold(D::Isa::splat(0.0), |sum, k| D::Isa::add(sum, at(k)));
                if F::OFFSETS {
                    D::Isa::reduce_sum(all) * offset_unit
                } else {
                    0.0
                }
            };
            from_fn(|m| D::total(sums.products[m]) * unit + offsets(m))
        }
    }
}

/// Sums of `M` rows of activations: of products, and by group of offsets.
struct Sums<S, const M: usize> {
    products: [S; M],
    offsets: [[f32; GROUPS]; M],
}

/// Prepares a unit: writes the factors of its groups, and adds the products of offsets to `sums`.
///
/// # Safety
/// The unit at `w`, room at `to`; the instruction set.
#[inline(always)]
unsafe fn prepare<F: Pack, D: Dots<F>, const M: usize>(
    w: *const F::Block,
    x: [&Fine; M],
    to: *mut [Factors; M],
    sums: &mut [[f32; GROUPS]; M],
) {
    let groups = const { SUPER_BLOCK / F::GROUP };
    let mut all = [0f32; GROUPS];
    // SAFETY: there is room for a unit's factors.
    unsafe {
        if F::OFFSETS {
            D::Isa::offsets(w, SUPER_BLOCK / F::LEN, all.as_mut_ptr());
            for (sums, x) in sums.iter_mut().zip(x) {
                for k in (0..groups).step_by(D::Isa::LANES) {
                    let at = |p: *const f32| <D::Isa as Prim<f32>>::load(p.add(k));
                    let sum = D::Isa::fma(at(all.as_ptr()), at(x.offsets.as_ptr()), at(sums.as_ptr()));
                    <D::Isa as Prim<f32>>::store(sums.as_mut_ptr().add(k), sum);
                }
            }
        }
        D::Isa::scales(w, SUPER_BLOCK / F::LEN, all.as_mut_ptr());
        for (m, x) in x.into_iter().enumerate() {
            let mut factors = [0f32; GROUPS];
            for (k, factor) in factors.iter_mut().enumerate().take(groups) {
                *factor = all[k] * x.scales[k];
            }
            (&raw mut (*to)[m]).write(Factors(factors));
        }
    }
}

/// Adds the products of a unit.
///
/// # Safety
/// The unit at `w`, and its prepared data; the instruction set.
#[inline(always)]
unsafe fn multiply<F: Pack, D: Dots<F>, const M: usize>(
    w: *const F::Block,
    factors: &[Factors; M],
    x: [&Fine; M],
    sums: &mut [D::Sums; M],
) {
    // Two sums at a time: additions wait for each other.
    // SAFETY: the caller's contract; nothing is made ready of short blocks, and a reference to nothing may dangle.
    unsafe {
        let ready = NonNull::dangling().as_ref();
        let mut two = [[D::zeros(); 2]; M];
        for_each_step! { k in D::COLUMNS => {
            let codes = D::codes(w, k * D::COLUMNS, ready);
            for m in 0..M {
                two[m][k % 2] = D::dot(codes, x[m], k * D::COLUMNS, &factors[m], two[m][k % 2]);
            }
        }}
        for (sum, [even, odd]) in sums.iter_mut().zip(two) {
            *sum = D::plus(*sum, D::plus(even, odd));
        }
    }
}

/// The products of row `r` of weights with up to `M` rows of activations, from row `m`.
///
/// # Safety
/// The contract of [`qgemv_q8`]; the rows exist.
#[inline(always)]
unsafe fn products<F: Pack, D: Dots<F>, W: BlockProducts<F, D>, const M: usize>(
    g: &Q8Args,
    r: usize,
    m: usize,
) {
    let [next_m, next_r] = g.y_strides;
    // SAFETY: rows are below `rows` and `batch`.
    unsafe {
        let values = W::row::<M>(g, g.w.cast::<F::Block>().add(r * g.blocks), m);
        for (m, value) in (m..g.batch).zip(values) {
            *g.y.add(m * next_m + r * next_r) = value;
        }
    }
}

/// # Safety
/// `rows * blocks` blocks at `w`, `batch` rows of units for their columns at `x`, `batch * rows` elements at `y`, which
/// overlaps neither; the instructions are present.
#[inline(always)]
pub(crate) unsafe fn qgemv_q8<F: Pack, D: Dots<F>, W: BlockProducts<F, D>>(g: &Q8Args) {
    for first in (0..g.rows).step_by(L2_ROWS) {
        for m in (0..g.batch).step_by(BATCH) {
            for r in first..g.rows.min(first + L2_ROWS) {
                // SAFETY: rows are below `rows` and `batch`.
                unsafe {
                    match g.batch - m {
                        1 => products::<F, D, W, 1>(g, r, m),
                        2 => products::<F, D, W, 2>(g, r, m),
                        3 if ROOM_FOR_CODE => products::<F, D, W, 3>(g, r, m),
                        _ => products::<F, D, W, BATCH>(g, r, m),
                    }
                }
            }
        }
    }
}
