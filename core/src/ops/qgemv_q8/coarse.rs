//! Weights in blocks of 256, whose groups have small integers as scales. Products are multiplied with these and summed over a
//! whole block in integers; only the block's sum becomes a floating-point number.

use core::mem::MaybeUninit;

use super::{ahead, BlockProducts, Q8Args};
use crate::arrays::{from_fn, Each};
use crate::isa::machine::in_memory;
use crate::ops::activations::{Coarse, FineOrCoarse};
use crate::quant::dots::Dots;
use crate::quant::packed::Pack;
use crate::quant::{Unpack, SUPER_BLOCK};

/// Scales and offsets of a block, unpacked before its products. They are in memory, from where a load can broadcast one
/// number to all lanes.
struct PreparedBlock<F: Pack, D: Dots<F>> {
    factors: LineAligned<D::Integers>,
    minima: LineAligned<D::Minima>,
    ready: LineAligned<<D::Isa as Unpack<F>>::Ready>,
    /// The factor that all scales have in common.
    scale: f32,
    /// The factor that all offsets have in common.
    minimum: f32,
}

/// A value at the start of a cache line, so that it can be read back at once after it has been written as a vector.
#[repr(C, align(64))]
struct LineAligned<T>(T);

/// Rows of blocks with 256 weights.
pub(crate) struct SuperBlocks;

// SAFETY: accesses only the operands that the contract of the trait names.
unsafe impl<F: Pack, D: Dots<F>> BlockProducts<F, D> for SuperBlocks {
    #[inline(always)]
    unsafe fn row<const M: usize>(g: &Q8Args, w: *const F::Block, m: usize) -> [f32; M] {
        let mut prepared = [const { MaybeUninit::<PreparedBlock<F, D>>::uninit() }; 2];
        let [to, from] = &mut prepared;
        let (mut to, mut from) = (to.as_mut_ptr(), from.as_mut_ptr());
        let mut x: [*const FineOrCoarse; M] = from_fn(|i| g.activations(m + i));
        let mut w = w;
        // SAFETY: blocks are bounded by their number, and activations have as many units.
        unsafe {
            let mut sums = [D::zeros(); M];
            if g.blocks > 0 {
                prepare::<F, D>(w, from);
                in_memory(from);
            }
            for left in (0..g.blocks).rev() {
                // While the products of a block are summed, the next is prepared, which takes long; behind the last one, it
                // itself.
                let next = w.add(usize::from(left > 0));
                prepare::<F, D>(next, to);
                in_memory(to);
                ahead::<M>(g, next.cast(), size_of::<F::Block>());
                multiply::<F, D, M>(w, &*from, x.each(|x| &(*x).coarse), &mut sums);
                (w, to, from) = (next, from, to);
                x = x.each(|x| x.wrapping_add(1));
            }
            sums.each(|sums| D::total(sums))
        }
    }
}

/// Prepares a block.
///
/// # Safety
/// The block at `w`, room at `to`; the instruction set.
#[inline(always)]
unsafe fn prepare<F: Pack, D: Dots<F>>(w: *const F::Block, to: *mut PreparedBlock<F, D>) {
    // SAFETY: the caller's contract.
    unsafe {
        (*to).scale = D::factors(w, (&raw mut (*to).factors).cast());
        if F::OFFSETS {
            (*to).minimum = D::minima(w, (&raw mut (*to).minima).cast());
        }
        D::Isa::ready(w, (&raw mut (*to).ready).cast());
    }
}

/// Adds the products of a block.
///
/// # Safety
/// The block at `w`, and its prepared data; the instruction set.
#[inline(always)]
unsafe fn multiply<F: Pack, D: Dots<F>, const M: usize>(
    w: *const F::Block,
    prepared: &PreparedBlock<F, D>,
    x: [&Coarse; M],
    sums: &mut [D::Sums; M],
) {
    // SAFETY: the caller's contract.
    unsafe {
        let (factors, ready) = (&prepared.factors.0, &prepared.ready.0);
        let mut two = x.each(|x| D::start(x));
        for_each_step! { k in D::COLUMNS => {
            let codes = D::codes(w, k * D::COLUMNS, ready);
            for m in 0..M {
                let sum = D::dot_coarse(codes, x[m], k * D::COLUMNS, factors, two[m][k % 2]);
                two[m][k % 2] = if const { size_of::<<D::Isa as Unpack<F>>::Ready>() > 0 } {
                    D::settled(sum)
                } else {
                    sum
                };
            }
        }}
        for m in 0..M {
            let mut all = D::times(D::joined(two[m], x[m]), prepared.scale);
            if F::OFFSETS {
                all = D::fma(D::dot_sums(x[m], &prepared.minima.0), prepared.minimum, all);
            }
            sums[m] = D::fma(all, x[m].scale, sums[m]);
        }
    }
}
