//! Activations of 8 bits, for products with quantised weights in integers.

use core::marker::PhantomData;

use crate::arrays::{from_fn, Each};
use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::engine::Join;
use crate::ops::round;
use crate::quant::packed::{Packing, Scales, GROUPS, STEPS, STEP_COLS, UNIT_COLS};
use crate::quant::steps::{starts, UNSIGNED};
pub(crate) use crate::quant::steps::{Coarse, Fine, FineOrCoarse, Step};
use crate::quant::QuantFormat;
use crate::scratch::ScratchReq;
use crate::vector::Prim;
use crate::view::MatRef;

/// Memory for 256 activations: their steps, and a unit in the second part of the memory, behind all steps; or 256 numbers in f32.
union Room {
    _rounded: ([Step; STEPS], FineOrCoarse),
    _kept: [f32; UNIT_COLS],
}

/// Activations in 8 bits: `batch` rows of `cols`, made by [`Kernels::quantize_activations`].
///
/// In groups of 32 columns `x = d * q`, `q` in -127 to 127, `d` in f32: 127 times `d` is the group's largest
/// magnitude. For weights in blocks of 256 the same is kept in groups of 256, too, for products with weights in
/// place. For weights that are plain floating point activations are not rounded, but kept in f32.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Activations<'a> {
    pub(crate) steps: *const u8,
    pub(crate) format: QuantFormat,
    pub(crate) batch: usize,
    pub(crate) cols: usize,
    /// The factor that scales in the steps already contain: [`Packing::unit`](crate::quant::packed::Packing::unit).
    pub(crate) unit: f32,
    /// Whether there are steps alone, for packed weights, and no units for weights in place.
    pub(crate) packed: bool,
    pub(crate) life: PhantomData<&'a [u8]>,
}

// SAFETY: a shared borrow of bytes.
unsafe impl Send for Activations<'_> {}
// SAFETY: a shared borrow of bytes; all access is read-only.
unsafe impl Sync for Activations<'_> {}

impl Activations<'_> {
    /// Memory for `batch` rows of `cols`, of any format: 1024 bytes for each 256 activations begun, on
    /// x86-64 1344.
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub(crate) const fn size(batch: usize, cols: usize) -> Result<ScratchReq, KernelError> {
        match units(cols).checked_mul(batch) {
            Some(n) => ScratchReq::array::<Room>(n),
            None => Err(KernelError::SizeOverflow { what: "quantised activations" }),
        }
    }
    /// Rows.
    pub(crate) fn batch(&self) -> usize {
        self.batch
    }
    /// Columns.
    pub(crate) fn cols(&self) -> usize {
        self.cols
    }
    /// The format of the weights they are meant for.
    pub(crate) fn format(&self) -> QuantFormat {
        self.format
    }
    /// Row `m`, where they are kept in f32.
    pub(crate) fn exact(&self, m: usize) -> Option<&[f32]> {
        if m >= self.batch || !self.format.is_float() {
            return None;
        }
        if self.cols == 0 {
            return Some(&[]);
        }
        // SAFETY: the row has so many columns, at the start of a cache line.
        Some(unsafe { core::slice::from_raw_parts(self.row(m).cast(), self.cols) })
    }
    /// Columns `32 * g .. 32 * g + 32` of row `m`: their integers, zeros where there are no columns, and
    /// their scale. `None` if there are none of them, or they are kept in f32.
    pub(crate) fn group(&self, m: usize, g: usize) -> Option<(&[i8; STEP_COLS], f32)> {
        if m >= self.batch || g >= self.cols.div_ceil(STEP_COLS) || self.format.is_float() {
            return None;
        }
        // SAFETY: the row has this step.
        let step = unsafe { &*self.row(m).cast::<Step>().add(g) };
        Some((&step.q, step.scale / self.unit))
    }
    /// Columns `256 * b .. 256 * b + 256` of row `m` as products with weights in place take them, where blocks of
    /// weights are as long: their integers, zeros where there are no columns, and their scale. `None` if blocks
    /// are shorter, where [`group`](Self::group) holds for all products, or if there are none of these columns.
    pub(crate) fn block(&self, m: usize, b: usize) -> Option<(&[[i8; STEP_COLS]; STEPS], f32)> {
        if self.packed || m >= self.batch || b >= units(self.cols) || self.format.block_len() != UNIT_COLS {
            return None;
        }
        // SAFETY: the row has this unit, which is a coarse one.
        let coarse =
            unsafe { &(*self.units().wrapping_add(m * self.stride()).cast::<FineOrCoarse>().add(b)).coarse };
        Some((&coarse.q, coarse.scale))
    }
    /// Row `m`.
    pub(crate) fn row(&self, m: usize) -> *const u8 {
        self.steps.wrapping_add(m * self.stride())
    }
    /// Bytes from one row to the next.
    pub(crate) fn stride(&self) -> usize {
        units(self.cols) * size_of::<Room>()
    }
    /// The units of the first row, which are behind its steps.
    pub(crate) fn units(&self) -> *const u8 {
        self.steps.wrapping_add(units(self.cols) * size_of::<[Step; STEPS]>())
    }
}

/// Units of a row.
const fn units(cols: usize) -> usize {
    cols.div_ceil(UNIT_COLS)
}

/// What [`quantize_activations`] works on.
pub struct ActivationArgs<E> {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) x: *const E,
    /// Elements from one row to the next.
    pub(crate) stride: usize,
    /// How the weights are packed; for plain floating point activations are not rounded.
    pub(crate) packing: Option<&'static Packing>,
    pub(crate) dst: *mut u8,
}

/// Keeps rows in f32.
///
/// # Safety
/// The contract of [`quantize_activations`].
#[inline(always)]
unsafe fn keep<E: Element, P: Prim<E> + Prim<f32>>(a: &ActivationArgs<E>) {
    for r in 0..a.rows {
        // SAFETY: the columns are below `cols`; a unit has room for more than its numbers.
        unsafe {
            let to = a.dst.add(r * units(a.cols) * size_of::<Room>()).cast::<f32>();
            let from = a.x.wrapping_add(r * a.stride);
            for c in (0..a.cols).step_by(P::LANES) {
                let n = P::LANES.min(a.cols - c);
                <P as Prim<f32>>::store_n(to.add(c), <P as Prim<E>>::load_n(from.add(c), n), n);
            }
        }
    }
}

/// Quantises rows; the columns that are missing in the last unit are zeros.
///
/// # Safety
/// The rows at `x`, room for their steps at `dst`, aligned; the instruction set.
#[inline(always)]
pub(crate) unsafe fn quantize_activations<E: Element, P: Prim<E> + Prim<f32>>(a: &ActivationArgs<E>) {
    // SAFETY: the caller's contract.
    unsafe {
        match a.packing {
            Some(packing) => rounded::<E, P, true>(a, packing),
            None => keep::<E, P>(a),
        }
    }
}

/// [`quantize_activations`], for packed weights alone.
///
/// # Safety
/// The contract of [`quantize_activations`].
#[inline(always)]
pub(crate) unsafe fn quantize_for_packed<E: Element, P: Prim<E> + Prim<f32>>(a: &ActivationArgs<E>) {
    // SAFETY: the caller's contract.
    unsafe {
        match a.packing {
            Some(packing) => rounded::<E, P, false>(a, packing),
            None => keep::<E, P>(a),
        }
    }
}

/// Quantises rows of whole steps. Units, which only products with weights in place need, are written if `UNITS`.
///
/// # Safety
/// The contract of [`quantize_activations`].
#[inline(always)]
pub(crate) unsafe fn rounded<E: Element, P: Prim<E> + Prim<f32>, const UNITS: bool>(
    a: &ActivationArgs<E>,
    packing: &Packing,
) {
    let (units, factors) = (units(a.cols), [packing.unit, packing.offset_unit]);
    for r in 0..a.rows {
        // SAFETY: the columns are below `cols`, the steps and units those of the rows.
        unsafe {
            let to = a.dst.add(r * units * size_of::<Room>());
            let (to, to_units) =
                (to.cast::<[Step; STEPS]>(), to.cast::<[Step; STEPS]>().add(units).cast::<FineOrCoarse>());
            for u in 0..units {
                let steps = &mut *to.add(u);
                // Blocks of weights are whole steps, and so are rows.
                let zeros = [E::ZERO; STEP_COLS];
                let columns = |s: usize| {
                    let first = u * UNIT_COLS + s * STEP_COLS;
                    let there = a.x.wrapping_add(r * a.stride + first);
                    if first < a.cols {
                        there
                    } else {
                        zeros.as_ptr()
                    }
                };
                let out = steps.as_mut_ptr();
                round::steps::<E, P>(STEPS, columns, factors, |s| out.wrapping_add(s));
                if UNITS && packing.block == UNIT_COLS {
                    coarse::<E, P>(steps, packing, columns, &mut (*to_units.add(u)).coarse);
                } else if UNITS {
                    (*to_units.add(u)).fine = Fine::of(steps, packing);
                }
            }
        }
    }
}

/// Quantises 256 activations with one scale: the largest of the scales of their steps, which are computed before.
///
/// # Safety
/// `columns` gives each step's; the instruction set.
#[inline(always)]
unsafe fn coarse<E: Element, P: Prim<E> + Prim<f32>>(
    steps: &[Step; STEPS],
    packing: &Packing,
    columns: impl Fn(usize) -> *const E,
    out: &mut Coarse,
) {
    let larger = |a: f32, b: f32| if b > a || b.is_nan() { b } else { a };
    let scale = steps.iter().fold(0.0, |scale, step| larger(scale, step.scale)) / packing.unit;
    let by = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    // SAFETY: the instruction set.
    let mut halves = unsafe { [[P::splat(0.0); STEPS]; 2] };
    for (s, q) in out.q.iter_mut().enumerate() {
        // SAFETY: the caller's contract; where one activation is not finite, `by` is 0.
        let (integers, sums) = unsafe { round::nearest::<E, P>(columns(s), by) };
        *q = integers;
        for (half, sum) in halves.iter_mut().zip(sums) {
            half[s % STEPS] = sum;
        }
    }
    // SAFETY: the instruction set.
    let [first, second] =
        unsafe { [round::totals::<P>(halves[0], Join::Sum), round::totals::<P>(halves[1], Join::Sum)] };
    let sums: [f32; GROUPS] = from_fn(|g| match packing.group {
        STEP_COLS if g < STEPS => first[g] + second[g],
        STEP_COLS => 0.0,
        _ => [first, second][g % 2][g / 2 % STEPS],
    });
    // A sum of at most 32 signed bytes fits 16 bits.
    out.sums = sums.each(|sum| sum as i16);
    out.scale = scale;
    if UNSIGNED {
        let bias = -i32::from(packing.bias());
        out.starts = from_fn(|s| starts(&out.q[s], 4, bias << (packing.shifts[s] % 8)));
        // For large codes the values may not fit 16 bits; products with such codes never read them.
        out.pair_starts = from_fn(|s| starts(&out.q[s], 2, bias).each(|start| start as i16));
        if packing.scales == Scales::Whole {
            out.starts = from_fn(|s| from_fn(|i| out.starts[s][i] + out.starts[(s + 4) % STEPS][i]));
            let all = |i: usize| out.pair_starts.iter().fold(0i16, |all, step| all.wrapping_add(step[i]));
            out.pair_starts[0] = from_fn(all);
        }
    }
}

/// [`Kernels::quantize_activations`], by the kernel `run`, for packed weights or others.
///
/// # Safety
/// The kernel's instruction set.
pub(crate) unsafe fn quantize<'a, E: Element>(
    format: QuantFormat,
    (packing, packed): (Option<&'static Packing>, bool),
    x: MatRef<'_, E>,
    buf: &'a mut [u8],
    run: unsafe fn(&ActivationArgs<E>),
) -> Result<Activations<'a>, KernelError> {
    let (batch, cols) = (x.rows(), x.cols());
    let req = Activations::size(batch, cols)?;
    if buf.len() < req.size_unaligned() {
        return Err(KernelError::ShortSlice { arg: "buf", need: req.size_unaligned(), got: buf.len() });
    }
    check::contiguous("x.col_stride()", x.col_stride(), x.cols())?;
    let skip = (buf.as_ptr() as usize).wrapping_neg() & (req.align() - 1);
    let dst = buf.as_mut_ptr().wrapping_add(skip);
    let args = ActivationArgs { rows: batch, cols, x: x.as_ptr(), stride: x.row_stride(), packing, dst };
    if !x.is_empty() {
        // SAFETY: the view covers every element; the buffer has room for the steps from an aligned address;
        // the caller vouches for the instruction set.
        unsafe { run(&args) };
    }
    let unit = packing.map_or(1.0, |packing| packing.unit);
    Ok(Activations { steps: dst, format, batch, cols, unit, packed, life: PhantomData })
}

/// Whether this is the memory that is needed, aligned.
pub(crate) fn check_room(req: ScratchReq, align: usize, room: &[u8]) -> Result<(), KernelError> {
    check::len("room", room.len(), req.size())?;
    if !(room.as_ptr() as usize).is_multiple_of(align) && !room.is_empty() {
        return Err(KernelError::BadParameter { arg: "room", expected: "aligned to 64 bytes" });
    }
    Ok(())
}
