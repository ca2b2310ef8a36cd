//! Products with quantised weights as they lie in memory: rows are taken apart chunk by chunk, into the first-level
//! cache, and multiplied from there with every row of activations.

use core::marker::PhantomData;
use core::mem::MaybeUninit;

use crate::arrays::from_fn;
use crate::dispatch::Kernels;
use crate::element::Element;
use crate::error::KernelError;
use crate::isa::Prim;
use crate::ops::activations::{Activations, Step};
use crate::ops::ahead::{Ahead, Order};
use crate::ops::check;
use crate::ops::dequant::Chunk;
use crate::quant::bytes::Widen;
use crate::quant::dispatch::Unpacker;
use crate::quant::dots::Dots;
use crate::quant::packed::STEP;
use crate::quant::{QuantRef, Unpacked};
use crate::view::{MatMut, MatRef};

/// Rows of weights at a time: what is loaded of the activations serves all.
const ROWS: usize = 4;

/// Rows of activations that one pass over the weights serves.
const BATCH: usize = 8;

/// What [`qgemv`] and [`qgemv_q8`] work on.
pub struct QgemvArgs<X> {
    pub(crate) format: Unpacker,
    pub(crate) rows: usize,
    /// Blocks of a row.
    pub(crate) blocks: usize,
    pub(crate) w: *const u8,
    pub(crate) order: Order,
    /// Rows of activations, at most [`BATCH`].
    pub(crate) batch: usize,
    pub(crate) x: *const X,
    pub(crate) x_stride: usize,
    /// What sums of scaled products and those of offsets are multiplied with.
    pub(crate) units: [f32; 2],
    pub(crate) y: *mut f32,
    /// To the next row of activations, and of weights.
    pub(crate) y_strides: [usize; 2],
}

/// How weights that were taken apart are multiplied.
trait Way {
    /// Activations come in these.
    type X;
    /// Columns of an `X`.
    const COLS: usize;
    /// The sums of a row.
    type Sums: Copy;
    /// No sums.
    ///
    /// # Safety
    /// The instruction set; so below.
    unsafe fn zeros() -> Self::Sums;
    /// Adds the products of `n` columns of `R` rows to their sums.
    ///
    /// # Safety
    /// `n` codes and their scales and offsets at each of `w`, `n` columns at `x`.
    unsafe fn add<const R: usize, const GROUP: usize, const OFFSETS: bool>(
        n: usize,
        w: &[Unpacked; R],
        x: *const Self::X,
        sums: [Self::Sums; R],
    ) -> [Self::Sums; R];
    /// The result.
    unsafe fn total(sums: Self::Sums, units: [f32; 2]) -> f32;
}

/// In f32. A group is summed before it is scaled, which costs one multiplication a group instead of one a vector.
struct Exact<E, P>(PhantomData<(E, P)>);

impl<E: Element, P: Prim<E> + Widen> Way for Exact<E, P> {
    type X = E;
    const COLS: usize = 1;
    type Sums = P::V;

    #[inline(always)]
    unsafe fn zeros() -> P::V {
        // SAFETY: registers only.
        unsafe { P::splat(0.0) }
    }
    #[inline(always)]
    unsafe fn add<const R: usize, const GROUP: usize, const OFFSETS: bool>(
        n: usize,
        w: &[Unpacked; R],
        x: *const E,
        mut sums: [P::V; R],
    ) -> [P::V; R] {
        // SAFETY: every group is below n / GROUP.
        unsafe {
            for g in 0..n / GROUP {
                let (mut of_group, mut all) = ([P::splat(0.0); R], P::splat(0.0));
                let mut i = g * GROUP;
                while i < (g + 1) * GROUP {
                    let v = P::load(x.add(i));
                    if OFFSETS {
                        all = P::add(all, v);
                    }
                    for r in 0..R {
                        of_group[r] = P::fma(P::widen(w[r].codes.add(i)), v, of_group[r]);
                    }
                    i += P::LANES;
                }
                for r in 0..R {
                    sums[r] = P::fma(of_group[r], P::splat(*w[r].scales.add(g)), sums[r]);
                    if OFFSETS {
                        sums[r] = P::fma(all, P::splat(*w[r].offsets.add(g)), sums[r]);
                    }
                }
            }
        }
        sums
    }
    #[inline(always)]
    unsafe fn total(sums: P::V, _: [f32; 2]) -> f32 {
        // SAFETY: registers only.
        unsafe { P::reduce_sum(sums) }
    }
}

/// In integers, within groups.
struct Integer<P>(PhantomData<P>);

impl<P: Dots> Way for Integer<P> {
    type X = Step;
    const COLS: usize = STEP;
    /// Of products, and of offsets.
    type Sums = (P::Sums, f32);

    #[inline(always)]
    unsafe fn zeros() -> Self::Sums {
        // SAFETY: registers only.
        unsafe { (P::zeros(), 0.0) }
    }
    #[inline(always)]
    unsafe fn add<const R: usize, const GROUP: usize, const OFFSETS: bool>(
        n: usize,
        w: &[Unpacked; R],
        x: *const Step,
        mut sums: [Self::Sums; R],
    ) -> [Self::Sums; R] {
        // SAFETY: every step is below n / STEP.
        unsafe {
            for s in 0..n / STEP {
                let (x, g) = (&*x.add(s), s * (STEP / GROUP));
                let [first, second, all] = x.offsets;
                for r in 0..R {
                    let (codes, scales) = (w[r].codes.add(s * STEP), w[r].scales.add(g));
                    let (sum, offset) = &mut sums[r];
                    if GROUP == STEP {
                        *sum = P::dot::<false>(codes, x.q.as_ptr(), x.scale, scales, *sum);
                    } else {
                        *sum = P::dot::<true>(codes, x.q.as_ptr(), x.scale, scales, *sum);
                    }
                    if OFFSETS && GROUP == STEP {
                        *offset += *w[r].offsets.add(g) * all;
                    } else if OFFSETS {
                        *offset += *w[r].offsets.add(g) * first + *w[r].offsets.add(g + 1) * second;
                    }
                }
            }
        }
        sums
    }
    #[inline(always)]
    unsafe fn total((sum, offset): Self::Sums, [unit, offset_unit]: [f32; 2]) -> f32 {
        // SAFETY: registers only.
        unsafe { P::total(sum) * unit + offset * offset_unit }
    }
}

/// The products of `R` rows, from row `first`, with all rows of activations. A row's result does not depend on its company.
///
/// # Safety
/// That of [`qgemv`], for these rows.
#[inline(always)]
unsafe fn rows<W: Way, const R: usize>(g: &QgemvArgs<W::X>, first: usize) {
    let format = g.format;
    let (chunk, row_bytes) = (format.chunk(), g.blocks * format.bytes);
    let mut chunks = [const { MaybeUninit::<Chunk>::uninit() }; R];
    let parts = from_fn(|r| Chunk::parts(&mut chunks[r]));
    // SAFETY: the loops stay within the blocks; a chunk has room for what it is given, and what is read
    // of it was written.
    unsafe {
        let w = g.w.add(first * row_bytes);
        let next = w.wrapping_add(R * row_bytes);
        let left = R.min(g.rows - first - R);
        let turns = R * g.blocks.div_ceil(chunk);
        let mut ahead = Ahead::new(g.order, next, left, row_bytes, row_bytes, turns);
        let mut sums = [[W::zeros(); R]; BATCH];
        let mut done = 0;
        while done < g.blocks {
            let blocks = (g.blocks - done).min(chunk);
            for (r, parts) in parts.iter().enumerate() {
                ahead.ask();
                (format.unpack)(blocks, w.add(r * row_bytes + done * format.bytes), parts);
            }
            let n = blocks * format.len;
            for (m, sums) in sums.iter_mut().enumerate().take(g.batch) {
                let x = g.x.add(m * g.x_stride + done * format.len / W::COLS);
                *sums = match (format.group, format.offsets) {
                    (16, false) => W::add::<R, 16, false>(n, &parts, x, *sums),
                    (16, true) => W::add::<R, 16, true>(n, &parts, x, *sums),
                    (_, false) => W::add::<R, 32, false>(n, &parts, x, *sums),
                    (_, true) => W::add::<R, 32, true>(n, &parts, x, *sums),
                };
            }
            done += blocks;
        }
        let [next_m, next_r] = g.y_strides;
        for (m, sums) in sums.iter().enumerate().take(g.batch) {
            for (r, &sums) in sums.iter().enumerate() {
                *g.y.add(m * next_m + (first + r) * next_r) = W::total(sums, g.units);
            }
        }
    }
}

/// # Safety
/// That of [`qgemv`].
#[inline(always)]
unsafe fn products<W: Way>(g: &QgemvArgs<W::X>) {
    let fours = g.rows / ROWS;
    // SAFETY: every row is below `rows`.
    unsafe {
        for r in 0..fours {
            rows::<W, ROWS>(g, r * ROWS);
        }
        for r in ROWS * fours..g.rows {
            rows::<W, 1>(g, r);
        }
    }
}

/// # Safety
/// `rows * blocks` blocks at `w`, `batch` rows of their elements at `x`, `batch * rows` elements at `y`, which
/// overlaps neither; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn qgemv<E: Element, P: Prim<E> + Widen>(g: &QgemvArgs<E>) {
    // SAFETY: the caller's contract.
    unsafe { products::<Exact<E, P>>(g) }
}

/// # Safety
/// That of [`qgemv`]; there are steps of activations for whole units.
#[inline(always)]
pub(crate) unsafe fn qgemv_q8<E: Element, P: Prim<E> + Dots>(g: &QgemvArgs<Step>) {
    // SAFETY: the caller's contract.
    unsafe { products::<Integer<P>>(g) }
}

/// The rows of `x` and `y` by [`BATCH`].
fn by_batches<X>(mut args: QgemvArgs<X>, kernel: unsafe fn(&QgemvArgs<X>)) {
    let batch = args.batch;
    let (x, y) = (args.x, args.y);
    for first in (0..batch).step_by(BATCH) {
        args.batch = (batch - first).min(BATCH);
        args.x = x.wrapping_add(first * args.x_stride);
        args.y = y.wrapping_add(first * args.y_strides[0]);
        // SAFETY: the caller has checked the operands, and took the kernel from a table whose instruction set is
        // present.
        unsafe { kernel(&args) };
    }
}

impl<E: Element> Kernels<E> {
    /// Quantised matrix times vector: [`qgemv_rows`](Self::qgemv_rows) for one row of activations.
    ///
    /// # Errors
    /// `ShortSlice` unless `x` has `cols` and `y` has `rows` elements.
    pub fn qgemv(&self, w: QuantRef<'_>, x: &[E], y: &mut [f32]) -> Result<(), KernelError> {
        check::len("x", x.len(), w.cols())?;
        check::len("y", y.len(), w.rows())?;
        self.qgemv_rows(w, MatRef::new(x, 1, w.cols())?, MatMut::new(y, 1, w.rows())?)
    }

    /// Quantised weights times activations: `y[m, r] = sum_c w[r, c] * x[m, c]` for each row `m` of `x`, with the
    /// weights decoded exactly, the activations taken as they are, and products and sums in f32.
    ///
    /// The weights are used as they lie in memory, at any alignment, and read once for each eight rows of `x`. Each
    /// element's sum is formed in an order that depends on `cols` only, so splitting the rows (by
    /// [`QuantRef::row_range`], over threads say) or the batch changes no bit. With `u = 2^-24`, the error of
    /// `y[m, r]` is at most `(cols / 16 + 16) * u * sum_c |w[r, c] * x[m, c]|` with SIMD, `(cols + 16) * u * ..` with
    /// scalar code; for formats with offsets `|w|` is `|code * scale| + |offset|`.
    ///
    /// # Errors
    /// `DimMismatch` unless `y` is `x.rows() x w.rows()` and `x` has the columns of `w`; `BadParameter` if the
    /// columns of `x` are not contiguous.
    pub fn qgemv_rows(
        &self,
        w: QuantRef<'_>,
        x: MatRef<'_, E>,
        mut y: MatMut<'_, f32>,
    ) -> Result<(), KernelError> {
        check::product([w.rows(), w.cols()], [x.rows(), x.cols()], &y)?;
        check::contiguous("x", x)?;
        let args = QgemvArgs {
            format: *self.table.formats.of(w.format()),
            rows: w.rows(),
            blocks: w.cols() / w.format().block_len(),
            w: w.as_bytes().as_ptr(),
            order: self.order_of(w.as_bytes().len()),
            batch: x.rows(),
            x: x.as_ptr(),
            x_stride: x.row_stride(),
            units: [1.0; 2],
            y_strides: [y.row_stride(), y.col_stride()],
            y: y.as_mut_ptr(),
        };
        by_batches(args, self.table.qgemv);
        Ok(())
    }

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
        let args = QgemvArgs {
            format,
            rows: w.rows(),
            blocks: w.cols() / w.format().block_len(),
            w: w.as_bytes().as_ptr(),
            order: self.order_of(w.as_bytes().len()),
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
        by_batches(args, self.table.qgemv_q8);
        Ok(())
    }
}
