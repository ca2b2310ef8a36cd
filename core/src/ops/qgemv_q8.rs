//! Products of quantised weights in place with activations of 8 bits: codes go from their registers to the sums.

use core::mem::MaybeUninit;

use crate::arrays::from_fn;
use crate::dispatch::Kernels;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::activations::{Activations, Step};
use crate::ops::check;
use crate::quant::packed::{Pack, Values, STEP};
use crate::quant::{QuantRef, Unpack, MIN_GROUP, TILE};
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
    pub(crate) x: *const Step,
    /// Steps from one row of activations to the next.
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
unsafe fn row<F: Pack, P: Unpack<F>, const M: usize>(g: &Q8Args, w: *const F::Block, m: usize) -> [f32; M] {
    let unsigned = const { matches!(F::PACKING.values, Values::Linear(0)) };
    let mut scales = [const { MaybeUninit::<f32>::uninit() }; TILE / MIN_GROUP];
    let mut offsets = scales;
    let (scales, offsets): (*mut f32, *mut f32) = (scales.as_mut_ptr().cast(), offsets.as_mut_ptr().cast());
    // SAFETY: blocks and steps are bounded by the loops; of scales and offsets there is room for a tile's, and what is
    // read of them was written.
    unsafe {
        let x: [*const Step; M] = from_fn(|i| g.x.add((m + i) * g.x_stride));
        let (mut sums, mut of_offsets) = ([P::zeros(); M], [0f32; M]);
        let mut done = 0;
        while done < g.blocks {
            let (w, n) = (w.add(done), (g.blocks - done).min(TILE / F::LEN));
            P::scales(w, n, scales);
            if F::OFFSETS {
                P::offsets(w, n, offsets);
            }
            for b in 0..n {
                let mut i = 0;
                while i < F::LEN {
                    let codes = P::codes(w.add(b), i);
                    let group = (b * F::LEN + i) / F::GROUP;
                    let (scales, offsets) = (scales.add(group), offsets.add(group));
                    for m in 0..M {
                        let x = &*x[m].add(((done + b) * F::LEN + i) / STEP);
                        let (q, by, sum) = (x.q.as_ptr(), x.scale, sums[m]);
                        sums[m] = match (F::GROUP == STEP, unsigned) {
                            (true, true) => P::dot::<false, true>(codes, q, by, scales, sum),
                            (true, false) => P::dot::<false, false>(codes, q, by, scales, sum),
                            (false, true) => P::dot::<true, true>(codes, q, by, scales, sum),
                            (false, false) => P::dot::<true, false>(codes, q, by, scales, sum),
                        };
                        if F::OFFSETS {
                            let [first, second, all] = x.offsets;
                            of_offsets[m] += if F::GROUP == STEP {
                                *offsets * all
                            } else {
                                *offsets * first + *offsets.add(1) * second
                            };
                        }
                    }
                    i += STEP;
                }
            }
            done += n;
        }
        let [unit, offset_unit] = g.units;
        from_fn(|m| P::total(sums[m]) * unit + of_offsets[m] * offset_unit)
    }
}

/// # Safety
/// `rows * blocks` blocks at `w`, `batch` rows of steps for their columns at `x`, `batch * rows` elements at `y`, which
/// overlaps neither; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn qgemv_q8<F: Pack, P: Unpack<F>>(g: &Q8Args) {
    let [next_m, next_r] = g.y_strides;
    let fours = g.batch / BATCH * BATCH;
    for r in 0..g.rows {
        // SAFETY: rows are below `rows` and `batch`.
        unsafe {
            let w = g.w.cast::<F::Block>().add(r * g.blocks);
            let put = |m: usize, value: f32| *g.y.add(m * next_m + r * next_r) = value;
            for m in (0..fours).step_by(BATCH) {
                let values = row::<F, P, BATCH>(g, w, m);
                for (i, value) in values.into_iter().enumerate() {
                    put(m + i, value);
                }
            }
            for m in fours..g.batch {
                let [value] = row::<F, P, 1>(g, w, m);
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
    /// group. Splitting the rows or the batch changes no bit. Weights that are used often are multiplied faster by
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
        let format = *self.table.formats.of(w.format());
        let args = Q8Args {
            rows: w.rows(),
            blocks: w.cols() / w.format().block_len(),
            w: w.as_bytes().as_ptr(),
            batch: x.batch(),
            x: x.row(0).cast::<Step>(),
            x_stride: x.stride() / size_of::<Step>(),
            // Reciprocals of powers of two.
            units: [
                1.0 / format.packing.unit,
                if format.offsets { 1.0 / format.packing.offset_unit } else { 0.0 },
            ],
            y_strides: [y.row_stride(), y.col_stride()],
            y: y.as_mut_ptr(),
        };
        // SAFETY: a QuantRef has all its blocks, activations all their rows; the shapes fit, and `y` is exclusive; the
        // table's instruction set is present.
        unsafe { (format.qgemv_q8)(&args) };
        Ok(())
    }
}
