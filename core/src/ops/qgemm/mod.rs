//! Products of quantised weights with many rows of activations.
//!
//! Panels of 16 rows of weights are unpacked, whatever their format and packing, to what one microkernel takes
//! ([`tile`]); as many as stay in L2. All rows of activations meet them there. So unpacking costs little, and a
//! format needs no microkernel of its own.

mod exact;
pub(crate) mod few;
mod grouped;
mod integer;
mod panels;
mod rounded;
pub(crate) mod tile;

use crate::asm::abi::Micro;
use crate::caps::Features;
use crate::check;
use crate::dispatch::Kernels;
use crate::element::{bf16, Element, ElementType};
use crate::error::KernelError;
use crate::ops::activations::Activations;
use crate::ops::gemm::{Activation, Finish};
use crate::ops::qpack::PackedQ;
use crate::ops::tile::FinishArgs;
use crate::quant::dispatch::Made;
use crate::quant::packed::Scales;
use crate::quant::{QuantFormat, QuantRef, TILE};
use crate::scratch::{Scratch, ScratchReq};
use crate::view::{MatMut, MatRef};
pub use grouped::QgemmGroup;
pub use panels::ActivationPanels;
use tile::{Kind, PANEL};

/// How `qgemm` computes. [`Kernels::qgemm_precision`] chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Precision {
    /// Activations are rounded to 8 bits, by groups of 32 columns as
    /// [`Kernels::quantize_activations`] does; products and sums of a group are exact integers, scales and sums of
    /// groups are f32. Rounding costs up to `sum_c |w[r, c]| * d(c) / 2`, `d(c)` being 1/127 of the largest
    /// magnitude of the group of `x[m, c]`; that is no more than where activations share their scale among 256, or
    /// have one in f16. On top of that the error is at most `(cols / 8 + 16) * 2^-24` times the sum of the
    /// magnitudes of all groups.
    Integer,
    /// Weights are decoded to the storage type of the activations, and the product is that of
    /// [`GemmPlan`](crate::GemmPlan): with f32 the error is that of its sums, about `(cols + 3) * 2^-24` times `sum_c |w[r, c]
    /// x[m, c]|`; with f16 and bf16 weights are rounded, too, which costs 2^-11 or 2^-8 of each at most.
    Exact,
    /// Activations and decoded weights are rounded to bf16, which costs 2^-8 of each at most (on random data half of
    /// what [`Integer`](Self::Integer) costs); for CPUs that multiply those much faster. With activations in bf16 it is
    /// [`Exact`](Self::Exact).
    Bf16,
}

/// Quantised weights as a product takes them.
#[derive(Clone, Copy, Debug)]
pub enum QuantWeights<'a> {
    /// As they lie in a file.
    InPlace(QuantRef<'a>),
    /// From [`Kernels::pack_q`].
    Packed(PackedQ<'a>),
}

impl<'a> From<QuantRef<'a>> for QuantWeights<'a> {
    fn from(w: QuantRef<'a>) -> Self {
        Self::InPlace(w)
    }
}
impl<'a> From<PackedQ<'a>> for QuantWeights<'a> {
    fn from(w: PackedQ<'a>) -> Self {
        Self::Packed(w)
    }
}

impl QuantWeights<'_> {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        match self {
            Self::InPlace(w) => w.rows(),
            Self::Packed(w) => w.rows(),
        }
    }
    /// Number of columns.
    pub fn cols(&self) -> usize {
        match self {
            Self::InPlace(w) => w.cols(),
            Self::Packed(w) => w.cols(),
        }
    }
    /// Their format.
    pub fn format(&self) -> QuantFormat {
        match self {
            Self::InPlace(w) => w.format(),
            Self::Packed(w) => w.format(),
        }
    }
    /// Rows `start .. start + len`.
    ///
    /// # Errors
    /// `OutOfRange` if the range leaves the matrix; `BadValue` if the weights are packed and `start` is neither a
    /// multiple of [`PackedQ::ROW_STEP`] nor the end.
    pub fn row_range(self, start: usize, len: usize) -> Result<Self, KernelError> {
        Ok(match self {
            Self::InPlace(w) => Self::InPlace(w.row_range(start, len)?),
            Self::Packed(w) => Self::Packed(w.row_range(start, len)?),
        })
    }
}

/// `Y = X W^T (+ bias)`, then an activation, for one shape: `W` is quantised, `n x k`; `X` is `m x k`, of type `E`; `Y`
/// is `m x n`, f32.
///
/// Made by [`Kernels::qgemm_plan`]. See [`Precision`] for errors. Each element is formed in an order that depends on
/// nothing but `k` and, for small ones, `m` and whether the weights are packed; so a part of a product, by a
/// [`resized`](Self::resized) plan, has the bits that it has in the whole. All instruction sets have the same results for
/// [`Precision::Integer`], but for up to 6 rows with weights in place.
///
/// ```
/// # use gllm_kernels_core::{Kernels, MatMut, MatRef, Precision, QuantFormat, QuantRef, Scratch};
/// let k = Kernels::<f32>::detect();
/// // Four rows of 32 weights of Q8_0: a scale of 1 in f16, then bytes.
/// let mut w = vec![2u8; 4 * 34];
/// w.chunks_mut(34).for_each(|block| block[..2].copy_from_slice(&[0, 0x3c]));
/// let w = QuantRef::new(&w, QuantFormat::Q8_0, 4, 32)?;
/// let (x, mut y) = (vec![127.0; 9 * 32], vec![0.0; 9 * 4]);
/// let plan = k.qgemm_plan(w.format(), 9, 4, 32, Precision::Integer)?;
/// let mut memory = vec![0; plan.scratch()?.size_unaligned()];
/// let (x, out) = (MatRef::new(&x, 9, 32)?, MatMut::new(&mut y, 9, 4)?);
/// plan.run(out, w.into(), x, None, Scratch::new(&mut memory))?;
/// assert_eq!(y, [32.0 * 2.0 * 127.0; 36]);
/// # Ok::<(), gllm_kernels_core::KernelError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct QgemmPlan<E: Element> {
    kernels: Kernels<E>,
    format: QuantFormat,
    m: usize,
    n: usize,
    k: usize,
    precision: Precision,
    activation: Option<Activation>,
    /// Rows of the undivided product.
    whole: usize,
}

/// Rows up to which kernels for a few rows are faster: with weights in place, as these are unpacked for them, unless
/// [microkernels](crate::asm::QgemmTier::few) know better; exact ones; and with plain floating point where pairs of bf16 are
/// not multiplied at once.
const FEW: [usize; 3] = [4; 3];
const FEW_EXACT: usize = 8;
const FEW_FLOATS: usize = 12;

/// The same for packed weights: with codes in one plane, and in two, which kernels for a few rows unpack for every four rows
/// of activations again. That these are the same on every CPU gives all of them the same results. (Zen 4: tiles are faster from
/// 18 to 44 rows, and from 9 to 14.)
const FEW_PACKED: [usize; 2] = [16, 8];

/// Rows from which tile registers are faster than integers: for fewer, decoding weights to floats takes longer than what
/// multiplying them saves.
const TILES: usize = 32;

/// Rows of activations that are rounded at a time: whole panels, and many enough that unpacking weights for each
/// such block costs nothing.
const BLOCK: usize = 64 * PANEL;

impl<E: Element> Kernels<E> {
    /// What to choose for `m` rows of activations unless there are reasons: the fastest [`Precision`] of those whose error
    /// is, on random data, no larger than that of rounding activations to 8 bits. For many rows that is `Exact` where AMX
    /// multiplies this storage type and `Bf16` where it multiplies that one; else `Integer`.
    pub fn qgemm_precision(&self, m: usize) -> Precision {
        let by_tiles = |micro: &Micro| micro.requires.intersection(Features::AMX) != Features::NONE;
        if m < TILES {
            Precision::Integer
        } else if by_tiles(self.micro) {
            Precision::Exact
        } else if by_tiles(self.of::<bf16>().micro) {
            Precision::Bf16
        } else {
            Precision::Integer
        }
    }

    /// Whether pairs of bf16 are multiplied at once.
    pub(super) fn by_pairs(&self) -> bool {
        let panel = self.of::<bf16>().micro.b;
        panel.kr > 1 && panel.holds(ElementType::Bf16)
    }

    /// A plan for products of this shape with weights of `format`. With weights that are plain floating point (F16,
    /// BF16) it is [`Precision::Exact`] instead of `Integer`; with BF16, for more than 8 rows, `Bf16` on CPUs that multiply pairs of
    /// those.
    ///
    /// # Errors
    /// `NotBlockMultiple` if `k` is not a multiple of the format's block length, `SizeOverflow`.
    pub fn qgemm_plan(
        &self,
        format: QuantFormat,
        m: usize,
        n: usize,
        k: usize,
        precision: Precision,
    ) -> Result<QgemmPlan<E>, KernelError> {
        format.row_bytes(k)?;
        let precision = match precision {
            Precision::Integer if format == QuantFormat::Bf16 && m > FEW_EXACT && self.by_pairs() => {
                Precision::Bf16
            }
            Precision::Integer if format.element().is_some() => Precision::Exact,
            precision => precision,
        };
        let precision = match precision {
            // Nothing is left to round.
            Precision::Bf16 if E::TYPE == ElementType::Bf16 => Precision::Exact,
            precision => precision,
        };
        Ok(QgemmPlan { kernels: *self, format, m, n, k, precision, activation: None, whole: m })
    }
}

impl<E: Element> QgemmPlan<E> {
    /// With an activation.
    pub fn activation(self, activation: Activation) -> Self {
        Self { activation: Some(activation), ..self }
    }

    /// The same for other numbers of rows of activations and of weights: for a part of the product, which gets the bits
    /// that it has in the whole.
    pub fn resized(self, m: usize, n: usize) -> Self {
        Self { m, n, whole: self.whole.max(m), ..self }
    }

    /// The kernels that it was made with.
    pub fn kernels(&self) -> Kernels<E> {
        self.kernels
    }

    /// `m`, `n` and `k`.
    pub fn shape(&self) -> [usize; 3] {
        [self.m, self.n, self.k]
    }

    /// How it computes.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Whether [`run`](Self::run) brings activations into panels for such weights, which
    /// [`run_panels`](Self::run_panels) takes: not unless it computes with integers, nor for a few rows.
    pub fn takes_panels(&self, w: &QuantWeights<'_>) -> bool {
        let few = match w {
            QuantWeights::InPlace(_) => self.few(),
            QuantWeights::Packed(_) => self.few_packed_rows(),
        };
        self.precision == Precision::Integer && self.whole > few
    }

    /// Rows up to which weights in place are not unpacked.
    fn few(&self) -> usize {
        let [short, long, fast] = self.kernels.qgemm.map_or(FEW, |qgemm| qgemm.few);
        match self.kernels.table.formats.of(self.format) {
            Made::Blocks(format) if Kind::of(format).halves || format.packing.scales == Scales::Whole => fast,
            Made::Blocks(format) if format.len < TILE => short,
            _ => long,
        }
    }

    /// Rows up to which packed weights are not unpacked for tiles.
    fn few_packed_rows(&self) -> usize {
        match self.kernels.table.formats.of(self.format) {
            Made::Blocks(format) => FEW_PACKED[usize::from(format.packing.bits[1] > 0)],
            Made::Floats(_) => FEW_PACKED[0],
        }
    }

    fn kind(&self) -> Kind {
        match self.kernels.table.formats.of(self.format) {
            Made::Blocks(format) => Kind::of(format),
            // Such weights have no panels.
            Made::Floats(_) => Kind { halves: false, offsets: false },
        }
    }

    /// Scratch memory for [`run`](Self::run).
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub fn scratch(&self) -> Result<ScratchReq, KernelError> {
        match self.precision {
            Precision::Exact => return self.scratch_exact(),
            Precision::Bf16 => return self.scratch_bf16(),
            Precision::Integer => {}
        }
        let few = if self.whole > self.few_packed_rows() { 0 } else { self.m };
        let few = self.kernels.activations_size(few, self.k)?;
        let few = ScratchReq::array::<u8>(few.size_unaligned())?;
        if self.whole <= self.few() {
            return Ok(few);
        }
        let x = self.kernels.activation_panels_size(self.m.min(BLOCK), self.k)?;
        let many = ScratchReq::array::<u8>(x.size_unaligned())?.and(self.scratch_panels()?)?;
        Ok(if few.size() > many.size() { few } else { many })
    }

    /// Checks what both forms have.
    fn check(
        &self,
        y: &MatMut<'_, f32>,
        w: QuantWeights<'_>,
        bias: Option<&[f32]>,
    ) -> Result<(), KernelError> {
        check::dim("y.rows() != m", y.rows(), self.m)?;
        check::dim("y.cols() != n", y.cols(), self.n)?;
        check::dim("w.rows() != n", w.rows(), self.n)?;
        check::dim("w.cols() != k", w.cols(), self.k)?;
        check::format("w", w.format(), self.format)?;
        bias.map_or(Ok(()), |bias| check::len("bias", bias.len(), self.n))
    }

    /// `Y = X W^T (+ bias)`, then the activation.
    ///
    /// # Errors
    /// `DimMismatch` unless the operands have the plan's shape; `WrongFormat` if `w` has another format;
    /// `WrongLength` unless the bias has `n` elements; `BadValue` if the columns of `x` are not contiguous;
    /// `ScratchTooSmall`.
    pub fn run(
        &self,
        mut y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: MatRef<'_, E>,
        bias: Option<&[f32]>,
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        self.check(&y, w, bias)?;
        check::dim("x.rows() != m", x.rows(), self.m)?;
        check::dim("x.cols() != k", x.cols(), self.k)?;
        check::contiguous("x.col_stride()", x.col_stride(), x.cols())?;
        if y.is_empty() {
            return Ok(());
        }
        match self.precision {
            Precision::Exact => return self.exact(y, w, x, bias, scratch),
            Precision::Bf16 => return self.rounded(y, w, x, bias, scratch),
            Precision::Integer => {}
        }
        if !self.takes_panels(&w) {
            let room = scratch.take::<u8>(self.kernels.activations_size(self.m, self.k)?.size_unaligned())?;
            let x = self.kernels.quantize_activations(self.format, x, room)?;
            return self.run_rounded(y, w, x, bias);
        }
        let size = self.kernels.activation_panels_size(self.m.min(BLOCK), self.k)?.size_unaligned();
        let room = scratch.take::<u8>(size)?;
        let rest = scratch.take::<u8>(self.scratch_panels()?.size())?;
        let mut first = 0;
        while first < self.m {
            let rows = (self.m - first).min(BLOCK);
            let x = self.kernels.activation_panels(x.row_range(first, rows)?, room)?;
            let (part, below) = y.split_rows(rows)?;
            y = below;
            self.resized(rows, self.n).run_panels(part, w, x, bias, Scratch::new(rest))?;
            first += rows;
        }
        Ok(())
    }

    /// [`run`](Self::run) with activations from [`Kernels::quantize_activations`], for weights of this format: for several
    /// products with the same. Where that does not [take panels](Self::takes_panels), the results are the same.
    ///
    /// # Errors
    /// As there; `BadParameter` unless the plan is for integers.
    pub fn run_rounded(
        &self,
        mut y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: Activations<'_>,
        bias: Option<&[f32]>,
    ) -> Result<(), KernelError> {
        self.check(&y, w, bias)?;
        check::dim("x.rows() != m", x.batch(), self.m)?;
        if self.precision != Precision::Integer {
            return Err(KernelError::BadParameter { arg: "plan", expected: "products of integers" });
        }
        let (strides, p) = ([y.row_stride(), y.col_stride()], y.as_mut_ptr());
        match w {
            QuantWeights::InPlace(w) => self.kernels.qgemv_q8(w, x, y)?,
            QuantWeights::Packed(w) => self.kernels.qgemv_packed(w, x, y)?,
        }
        // SAFETY: the elements of the view, which is exclusive; the bias has one for each column.
        unsafe { self.finish(p, strides, [self.m, self.n], bias.map(<[f32]>::as_ptr)) };
        Ok(())
    }

    /// Bias and activation for some rows and columns of `Y`.
    ///
    /// # Safety
    /// They are there, and exclusive; as many elements of the bias as columns.
    unsafe fn finish(
        &self,
        y: *mut f32,
        [row_stride, col_stride]: [usize; 2],
        [rows, cols]: [usize; 2],
        bias: Option<*const f32>,
    ) {
        // SAFETY: the caller's contract; the instruction set is present.
        unsafe {
            if let Some(bias) = bias {
                let (bias_row, bias_col, c) = (0, 1, y);
                let args = FinishArgs { c, row_stride, col_stride, rows, cols, bias, bias_row, bias_col };
                (self.kernels.helpers().finish)(&args);
            }
            let activate = self.activation.map(|f| f.slot(self.kernels.plain()));
            let access = self.kernels.access_inplace();
            Finish { c: y, row_stride, col_stride, rows, cols, activate, access }.run();
        }
    }
}
