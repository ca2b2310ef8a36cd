//! Products of quantised weights in place with activations of 8 bits: codes go from their registers to the sums.

use core::mem::MaybeUninit;

use crate::arrays::{from_fn, Each};
use crate::dispatch::Kernels;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::activations::{Activations, Unit};
use crate::ops::check;
use crate::quant::bytes::in_memory;
use crate::quant::dispatch::Made;
use crate::quant::dots::Dots;
use crate::quant::packed::{Pack, GROUPS, STEP};
use crate::quant::{QuantRef, Unpack, TILE};
use crate::view::MatMut;

/// Rows of activations that a row of weights is multiplied with at a time.
const BATCH: usize = 4;

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

/// The products of a row of weights with `M` rows of activations, from row `m`.
///
/// # Safety
/// The row's blocks at `w`, and what [`qgemv_q8`] asks for.
#[inline(always)]
unsafe fn row<F: Pack, D: Dots<Isa: Unpack<F>>, const M: usize>(
    g: &Q8Args,
    w: *const F::Block,
    m: usize,
) -> [f32; M] {
    let tile = const { TILE / F::LEN };
    // Only of large blocks there is something to be made ready.
    const { assert!(F::LEN == TILE || size_of::<<D::Isa as Unpack<F>>::Ready>() == 0) };
    const { assert!(F::LEN == TILE || TILE / F::LEN * size_of::<F::Block>() <= 2 * TILE) };
    let mut last = [0u8; 2 * TILE];
    let mut factors = [const { MaybeUninit::<[Line<[f32; GROUPS]>; 2]>::uninit() }; M];
    let factors: [*mut Line<[f32; GROUPS]>; M] = from_fn(|m| factors[m].as_mut_ptr().cast());
    let mut ready = MaybeUninit::<[Line<<D::Isa as Unpack<F>>::Ready>; 2]>::uninit();
    let ready: *mut Line<<D::Isa as Unpack<F>>::Ready> = ready.as_mut_ptr().cast();
    let x: [*const Unit; M] = from_fn(|i| g.x.wrapping_add((m + i) * g.x_stride).cast());
    let units = g.blocks.div_ceil(tile);
    // SAFETY: blocks are bounded by the number of units; activations have whole ones, of zeros at the end.
    unsafe {
        let mut sums = Sums::<D, M> { products: [D::zeros(); M], offsets: [[0.0; GROUPS]; M] };
        let mut now = w;
        // While the products of a unit are summed, the next is prepared, which takes long.
        for u in 0..=units {
            let (mut next, rest) = (w.wrapping_add(u * tile), g.blocks.wrapping_sub(u * tile));
            if u < units {
                if rest < tile {
                    // Zeros are blocks, too, and finite ones.
                    let bytes = rest * size_of::<F::Block>();
                    core::ptr::copy_nonoverlapping(next.cast::<u8>(), last.as_mut_ptr(), bytes);
                    next = last.as_ptr().cast();
                }
                let factors = factors.each(|f| f.add(u % 2).cast());
                scale::<F, D, M>(next, x.each(|x| &*x.add(u)), factors, &mut sums);
                D::Isa::ready(next, ready.add(u % 2).cast());
                in_memory(ready);
            }
            if u > 0 {
                let factors = factors.each(|f| f.add((u - 1) % 2).cast::<f32>().cast_const());
                let ready = ready.add((u - 1) % 2).cast();
                multiply::<F, D, M>(now, ready, x.each(|x| &*x.add(u - 1)), factors, &mut sums);
            }
            now = next;
        }
        let [unit, offset_unit] = g.units;
        from_fn(|m| {
            D::total(sums.products[m]) * unit + sums.offsets[m].into_iter().sum::<f32>() * offset_unit
        })
    }
}

/// At the start of a cache line: what is written as a vector is read back at once.
#[repr(C, align(64))]
struct Line<T>(T);

/// Sums of `M` rows of activations: of products, and by group of offsets.
struct Sums<D: Dots, const M: usize> {
    products: [D::Sums; M],
    offsets: [[f32; GROUPS]; M],
}

/// Writes the factors of the groups of 256 columns, and adds what their offsets give.
///
/// # Safety
/// Their blocks at `w`, room at `factors`; the instruction set.
#[inline(always)]
unsafe fn scale<F: Pack, D: Dots<Isa: Unpack<F>>, const M: usize>(
    w: *const F::Block,
    x: [&Unit; M],
    factors: [*mut f32; M],
    sums: &mut Sums<D, M>,
) {
    let (blocks, groups) = const { (TILE / F::LEN, TILE / F::GROUP) };
    let mut scales = [const { MaybeUninit::<f32>::uninit() }; GROUPS];
    let scales: *mut f32 = scales.as_mut_ptr().cast();
    // SAFETY: there is room for a unit's scales or offsets, and what is read was written.
    unsafe {
        if F::OFFSETS {
            D::Isa::offsets(w, blocks, scales);
            for (sums, x) in sums.offsets.iter_mut().zip(x) {
                for (k, sum) in sums.iter_mut().enumerate().take(groups) {
                    *sum += *scales.add(k) * x.offsets[k];
                }
            }
        }
        D::Isa::scales(w, blocks, scales);
        for (factors, x) in factors.into_iter().zip(x) {
            let mut all = [0f32; GROUPS];
            for (k, factor) in all.iter_mut().enumerate().take(groups) {
                *factor = *scales.add(k) * x.scales[k];
            }
            core::ptr::copy_nonoverlapping(all.as_ptr(), factors, groups);
            in_memory(factors);
        }
    }
}

/// Adds the products of 256 columns.
///
/// # Safety
/// Their blocks at `w`, what is ready of them, their factors; the instruction set.
#[inline(always)]
unsafe fn multiply<F: Pack, D: Dots<Isa: Unpack<F>>, const M: usize>(
    w: *const F::Block,
    ready: *const <D::Isa as Unpack<F>>::Ready,
    x: [&Unit; M],
    factors: [*const f32; M],
    sums: &mut Sums<D, M>,
) {
    // SAFETY: the caller's contract.
    unsafe {
        // Two sums at a time: additions wait for each other.
        let mut two = [[D::zeros(); 2]; M];
        macro_rules! steps {
            ($($k:literal)*) => { $(step::<F, D, M, $k>(w, ready, x, &factors, &mut two);)* };
        }
        // Unrolled, whatever the compiler thinks of it: shifts and places are constants.
        steps! { 0 1 2 3 4 5 6 7 }
        for (sum, [even, odd]) in sums.products.iter_mut().zip(two) {
            *sum = D::plus(*sum, D::plus(even, odd));
        }
    }
}

/// Adds what step `K` of 256 columns gives.
///
/// # Safety
/// That of [`multiply`].
#[inline(always)]
unsafe fn step<F: Pack, D: Dots<Isa: Unpack<F>>, const M: usize, const K: usize>(
    w: *const F::Block,
    ready: *const <D::Isa as Unpack<F>>::Ready,
    x: [&Unit; M],
    factors: &[*const f32; M],
    sums: &mut [[D::Sums; 2]; M],
) {
    let (block, column) = const { (K * STEP / F::LEN, K * STEP % F::LEN) };
    // SAFETY: the caller's contract.
    unsafe {
        let codes = D::Isa::codes(w.add(block), column, &*ready);
        for m in 0..M {
            let sum = &mut sums[m][K % 2];
            *sum = D::dot::<F>(codes, x[m], K, factors[m].add(K * STEP / F::GROUP), *sum);
        }
    }
}

/// # Safety
/// `rows * blocks` blocks at `w`, `batch` rows of units for their columns at `x`, `batch * rows` elements at `y`, which
/// overlaps neither; the instructions are present.
#[inline(always)]
pub(crate) unsafe fn qgemv_q8<F: Pack, D: Dots<Isa: Unpack<F>>>(g: &Q8Args) {
    let [next_m, next_r] = g.y_strides;
    let fours = g.batch / BATCH * BATCH;
    for r in 0..g.rows {
        // SAFETY: rows are below `rows` and `batch`.
        unsafe {
            let w = g.w.cast::<F::Block>().add(r * g.blocks);
            let put = |m: usize, value: f32| *g.y.add(m * next_m + r * next_r) = value;
            for m in (0..fours).step_by(BATCH) {
                let values = row::<F, D, BATCH>(g, w, m);
                for (i, value) in values.into_iter().enumerate() {
                    put(m + i, value);
                }
            }
            for m in fours..g.batch {
                let [value] = row::<F, D, 1>(g, w, m);
                put(m, value);
            }
        }
    }
}

impl<E: Element> Kernels<E> {
    /// Quantised weights times quantised activations, with the weights as they lie in memory: what
    /// [`qgemv_rows`](Self::qgemv_rows) computes, with the activations as
    /// [`quantize_activations`](Self::quantize_activations) has rounded them.
    ///
    /// Within a group of 16 or 32 columns the sum is formed in integers, exactly; scales and sums of groups
    /// are f32. Against the rounded activations, the error of an element is at most `(cols / 16 + 16) * 2^-24` times
    /// the sum of the magnitudes of all groups, with scalar code `(cols / 8 + 16) * 2^-24` times. Rounding the
    /// activations costs up to `sum_c |w[r, c]| * d(c) / 2`, `d(c)` being 1/127 of the largest magnitude of their
    /// group. Weights that are plain floating point have activations that are not rounded, and the bits of
    /// [`qgemv_rows`](Self::qgemv_rows) of f32. Splitting the rows or the batch changes no bit. Weights that are used often are multiplied faster by
    /// [`qgemv_packed`](Self::qgemv_packed).
    ///
    /// # Errors
    /// `DimMismatch` unless `y` is `x.batch() x w.rows()` and `x` has the columns of `w`; `WrongPacking` if `x` is
    /// meant for another format (numbers are GGUF's).
    pub fn qgemv_q8(
        &self,
        w: QuantRef<'_>,
        x: Activations<'_>,
        mut y: MatMut<'_, f32>,
    ) -> Result<(), KernelError> {
        check::product([w.rows(), w.cols()], [x.batch(), x.cols()], &y)?;
        x.check_format(w.format())?;
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
