//! Products of quantised weights in place with activations of 8 bits: codes go from their registers to the sums.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::arrays::{from_fn, Each};
use crate::check;
use crate::dispatch::Kernels;
use crate::element::Element;
use crate::error::KernelError;
use crate::isa::machine::in_memory;
use crate::ops::activations::{Activations, Slot, Unit};
use crate::ops::ahead::ask_far;
use crate::quant::dispatch::Made;
use crate::quant::dots::{Dots, Factors};
use crate::quant::packed::{Pack, GROUPS};
use crate::quant::{QuantRef, Unpack, TILE};
use crate::vector::{Prim, Vector};
use crate::view::MatMut;

/// Repeats statements for each step of a unit, with its number as a constant. Unrolled, whatever the compiler thinks of it:
/// shifts and places are constants.
macro_rules! for_each_step {
    ($k:ident in $columns:expr => $body:block) => { for_each_step! { @ $k $columns, $body 0 1 2 3 4 5 6 7 } };
    (@ $k:ident $columns:expr, $body:block $($number:literal)*) => {$(
        if const { $number * $columns < TILE } {
            let $k = const { $number };
            $body
        }
    )*};
}

mod coarse;

pub(crate) use coarse::Long;

/// Rows of activations that a row of weights is multiplied with at a time, at most.
const BATCH: usize = 4;

/// Rows of weights that meet each batch in turn: they stay in L2, and what asks for memory sees them in their order.
const NEAR: usize = 16;

/// What [`qgemv_q8`] works on.
pub(crate) struct Q8Args {
    pub(crate) rows: usize,
    /// Blocks of a row.
    pub(crate) blocks: usize,
    pub(crate) w: *const u8,
    pub(crate) batch: usize,
    /// The units of the first row of activations.
    pub(crate) x: *const u8,
    /// Bytes from one row of activations to the next.
    pub(crate) x_stride: usize,
    /// What sums of scaled products and those of offsets are multiplied with.
    pub(crate) units: [f32; 2],
    pub(crate) y: *mut f32,
    /// To the next row of activations, and of weights.
    pub(crate) y_strides: [usize; 2],
}

impl Q8Args {
    /// The units of row `m` of the activations, or of the last one.
    #[inline(always)]
    fn activations(&self, m: usize) -> *const Slot {
        self.x.wrapping_add(m.min(self.batch - 1) * self.x_stride).cast()
    }
}

/// How a row of weights is walked.
///
/// # Safety
/// Methods read the row's blocks and as many columns of activations.
pub(crate) unsafe trait Walk<F: Pack, D: Dots<F>> {
    /// The products of a row of weights with `M` rows of activations, from row `m`; with the last one in place of those
    /// behind it.
    ///
    /// # Safety
    /// The row's blocks at `w`, and what [`qgemv_q8`] asks for.
    unsafe fn row<const M: usize>(g: &Q8Args, w: *const F::Block, m: usize) -> [f32; M];
}

/// In blocks of less than 256.
pub(crate) struct Short;

// SAFETY: as the trait says.
unsafe impl<F: Pack, D: Dots<F>> Walk<F, D> for Short {
    #[inline(always)]
    unsafe fn row<const M: usize>(g: &Q8Args, w: *const F::Block, m: usize) -> [f32; M] {
        let tile = const { TILE / F::LEN };
        const { assert!(size_of::<<D::Isa as Unpack<F>>::Ready>() == 0) };
        const { assert!(TILE / F::LEN * size_of::<F::Block>() <= 2 * TILE) };
        let mut last = MaybeUninit::<[u8; 2 * TILE]>::uninit();
        let mut prepared = [const { MaybeUninit::<[Factors; M]>::uninit() }; 2];
        let [to, from] = &mut prepared;
        let (mut to, mut from) = (to.as_mut_ptr(), from.as_mut_ptr());
        let mut x: [*const Slot; M] = from_fn(|i| g.activations(m + i));
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
                        let last = last.write([0; 2 * TILE]);
                        core::ptr::copy_nonoverlapping(next.cast::<u8>(), last.as_mut_ptr(), bytes);
                        next = last.as_ptr().cast();
                    }
                    prepare::<F, D, M>(next, x.each(|x| &(*x).short), to, &mut sums.offsets);
                    in_memory(to);
                    ask_far(next.cast(), tile * size_of::<F::Block>());
                }
                if !now.is_null() {
                    multiply::<F, D, M>(now, &*from, x.each(|x| &(*x.sub(1)).short), &mut sums.products);
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

/// Prepares a unit: writes the factors of its groups and adds what offsets give to `sums`.
///
/// # Safety
/// The unit at `w`, room at `to`; the instruction set.
#[inline(always)]
unsafe fn prepare<F: Pack, D: Dots<F>, const M: usize>(
    w: *const F::Block,
    x: [&Unit; M],
    to: *mut [Factors; M],
    sums: &mut [[f32; GROUPS]; M],
) {
    let groups = const { TILE / F::GROUP };
    let mut all = [0f32; GROUPS];
    // SAFETY: there is room for a unit's factors.
    unsafe {
        if F::OFFSETS {
            D::Isa::offsets(w, TILE / F::LEN, all.as_mut_ptr());
            for (sums, x) in sums.iter_mut().zip(x) {
                for k in (0..groups).step_by(D::Isa::LANES) {
                    let at = |p: *const f32| <D::Isa as Prim<f32>>::load(p.add(k));
                    let sum = D::Isa::fma(at(all.as_ptr()), at(x.offsets.as_ptr()), at(sums.as_ptr()));
                    <D::Isa as Prim<f32>>::store(sums.as_mut_ptr().add(k), sum);
                }
            }
        }
        D::Isa::scales(w, TILE / F::LEN, all.as_mut_ptr());
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
/// The unit at `w`, and what was prepared of it; the instruction set.
#[inline(always)]
unsafe fn multiply<F: Pack, D: Dots<F>, const M: usize>(
    w: *const F::Block,
    factors: &[Factors; M],
    x: [&Unit; M],
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
/// As for [`qgemv_q8`]; the rows exist.
#[inline(always)]
unsafe fn products<F: Pack, D: Dots<F>, W: Walk<F, D>, const M: usize>(g: &Q8Args, r: usize, m: usize) {
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
pub(crate) unsafe fn qgemv_q8<F: Pack, D: Dots<F>, W: Walk<F, D>>(g: &Q8Args) {
    for first in (0..g.rows).step_by(NEAR) {
        for m in (0..g.batch).step_by(BATCH) {
            for r in first..g.rows.min(first + NEAR) {
                // SAFETY: rows are below `rows` and `batch`.
                unsafe {
                    match g.batch - m {
                        1 => products::<F, D, W, 1>(g, r, m),
                        2 => products::<F, D, W, 2>(g, r, m),
                        // Elsewhere code is kept small.
                        3 if cfg!(target_arch = "x86_64") => products::<F, D, W, 3>(g, r, m),
                        _ => products::<F, D, W, BATCH>(g, r, m),
                    }
                }
            }
        }
    }
}

impl<E: Element> Kernels<E> {
    /// Quantised weights times quantised activations, with the weights as they lie in memory: what
    /// [`qgemv`](Self::qgemv) computes, with the activations as
    /// [`quantize_activations`](Self::quantize_activations) has rounded them for weights in place.
    ///
    /// Within a group of 16 or 32 columns the sum is formed in integers, exactly; sums of groups are f32, and scales,
    /// but those of weights in blocks of 256 are integers times a number of the block's. Against the rounded
    /// activations, the error of an element is at most `(cols / 16 + 16) * 2^-24` times the sum of the magnitudes of
    /// all groups, with scalar code `(cols / 8 + 16) * 2^-24` times. Rounding the activations costs up to
    /// `sum_c |w[r, c]| * d(c) / 2`, `d(c)` being 1/127 of the largest magnitude of 32 columns, or of 256 where blocks
    /// of weights are as long. Weights that are plain floating point have activations that are not rounded, and the
    /// bits of [`qgemv`](Self::qgemv) of f32. Splitting the rows or the batch changes no bit. Weights that
    /// are used often are multiplied faster by [`qgemv_packed`](Self::qgemv_packed).
    ///
    /// # Errors
    /// `DimMismatch` unless `y` is `x.batch() x w.rows()` and `x` has the columns of `w`.
    pub(crate) fn qgemv_q8(
        &self,
        mut y: MatMut<'_, f32>,
        w: QuantRef<'_>,
        x: Activations<'_>,
    ) -> Result<(), KernelError> {
        check::product([w.rows(), w.cols()], [x.batch(), x.cols()], [y.rows(), y.cols()])?;
        if y.is_empty() {
            return Ok(());
        }
        let format = match self.table.formats.of(w.format()) {
            Made::Blocks(format) => *format,
            Made::Floats(of) => {
                let x = (x.row(0).cast(), x.stride() / size_of::<f32>(), x.batch());
                // SAFETY: activations have all their rows, and the shapes fit.
                unsafe { self.float_products(self.plain(), of, w, x, y) };
                return Ok(());
            }
        };
        let args = Q8Args {
            rows: w.rows(),
            blocks: w.cols() / w.format().block_len(),
            w: w.as_bytes().as_ptr(),
            batch: x.batch(),
            x: x.units(),
            x_stride: x.stride(),
            // Reciprocals of powers of two.
            units: [
                1.0 / format.packing.unit,
                if format.offsets { 1.0 / format.packing.offset_unit } else { 0.0 },
            ],
            y_strides: [y.row_stride(), y.col_stride()],
            y: y.as_mut_ptr(),
        };
        let of_tier = self.tier.and_then(|tier| tier.in_place).and_then(|all| all.get(w.format() as usize));
        let run = of_tier.unwrap_or(&format.qgemv_q8);
        // SAFETY: a QuantRef has all its blocks, activations all their rows; the shapes fit, and `y` is exclusive; the
        // table's and the tier's instructions are present.
        unsafe { run(&args) };
        Ok(())
    }
}
