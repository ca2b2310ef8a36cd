//! Products of quantised weights with many rows of activations.
//!
//! Panels of 16 rows of weights of any format and packing are unpacked to one layout ([`tile`]), as many at a time as
//! stay in L2. All rows of activations are multiplied with them there. So the cost of unpacking is spread over many
//! rows, and no format needs a separate microkernel.

mod exact;
pub(crate) mod few;
mod integer;
mod panels;
mod prepare;
mod rounded;
pub(crate) mod weights;

use crate::api::gemm::{Activation, Finish};
use crate::args::micro::Micro;
use crate::args::unpacker::Made;
use crate::caps::Features;
use crate::check;
use crate::element::{bf16, Element, ElementType};
use crate::error::KernelError;
use crate::ops::activations::Activations;
use crate::ops::qgemm::tile::{PanelKind, ACTIVATION_ROWS};
use crate::ops::tile::FinishArgs;
use crate::quant::packed::Scales;
use crate::quant::{QuantFormat, SUPER_BLOCK};
use crate::scratch::{Scratch, ScratchReq};
use crate::table::registry::Op;
use crate::table::Kernels;
use crate::view::{MatMut, MatRef};
pub use prepare::Prepared;
use prepare::{Form, Input};
pub use weights::QuantWeights;

/// How exactly a product with quantised weights is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Precision {
    /// The fastest of the other precisions whose error is, on random data, no larger than that of
    /// [`Integer`](Self::Integer). A plan says which one it has taken ([`QgemmPlan::precision`]). For 32 rows of
    /// activations and more it is [`Exact`](Self::Exact) where AMX multiplies the type of the activations, and
    /// [`Bf16`](Self::Bf16) where AMX multiplies bf16; else it is `Integer`.
    Fast,
    /// Activations are rounded to 8 bits, by groups of 32 columns as [`Prepared`] says; products and sums of a group are
    /// exact integers, scales and sums of groups are f32. Rounding costs up to `sum_c |w[r, c]| * d(c) / 2`, `d(c)` being 1/127 of the largest
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

/// `Y = X W^T (+ bias)`, then an activation, for one shape: `W` is quantised, `n x k`; `X` is `m x k`, of type `E`; `Y`
/// is `m x n`, f32.
///
/// Made by [`Kernels::qgemm_plan`]. See [`Precision`] for errors. Each element is formed in an order that depends on
/// nothing but `k` and, for small ones, `m` and whether the weights are packed; so a part of a product, by a
/// [`resized`](Self::resized) plan, has the bits that it has in the whole. All instruction sets have the same results for
/// [`Precision::Integer`], but for up to 6 rows with weights in place, and for 7 to 24 rows with packed weights, which AVX2 alone
/// unpacks for tiles.
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
/// plan.run(out, w, x, None, Scratch::new(&mut memory))?;
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
    /// Whether activations are prepared for packed weights.
    packed: bool,
    /// Whose kernels are used, if that is not left to the plan.
    op: Option<Op>,
}

/// Rows of activations up to which the kernels for a few rows are faster than tiles, for which weights must be unpacked: with
/// weights in place, and packed. Where there are microkernels, their numbers count instead: [`Tier::few`](crate::table::kernels::Tier::few),
/// [`Tier::few_packed`](crate::table::kernels::Tier::few_packed).
/// `EXACT` counts for products of activations as they are, and `UNQUANTISED` for such products with weights that are
/// plain floating point, where pairs of bf16 are not multiplied at once.
const MAX_GEMV_ROWS: [usize; 3] = [4; 3];
const MAX_GEMV_ROWS_PACKED: [usize; 2] = [24, 16];
const MAX_GEMV_ROWS_EXACT: usize = 8;
const MAX_GEMV_ROWS_UNQUANTISED: usize = 12;

/// Rows from which tile registers are faster than integers: for fewer, decoding weights to floats takes longer than
/// what is saved in multiplying them.
const MIN_TILE_ROWS: usize = 32;

/// Rows of activations that are rounded at a time: whole panels, and many enough that unpacking weights for each
/// such block costs nothing.
const ROUNDED_ROWS: usize = 64 * ACTIVATION_ROWS;

impl<E: Element> Kernels<E> {
    /// What [`Precision::Fast`] is for `m` rows of activations.
    fn fast(&self, m: usize) -> Precision {
        let by_tiles = |micro: &Micro| micro.requires.intersection(Features::AMX) != Features::NONE;
        if m < MIN_TILE_ROWS {
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

    /// A plan for products of `m` rows of activations with `n` rows of `k` weights of `format`.
    ///
    /// Weights that are plain floating point (F16, BF16) have no integers to multiply: for them the plan is
    /// [`Precision::Exact`] instead of `Integer`; with BF16, for more than 8 rows, `Bf16` on CPUs that multiply pairs of
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
        let precision = if precision == Precision::Fast { self.fast(m) } else { precision };
        let precision = match precision {
            Precision::Integer
                if format == QuantFormat::Bf16 && m > MAX_GEMV_ROWS_EXACT && self.by_pairs() =>
            {
                Precision::Bf16
            }
            Precision::Integer if format.is_float() => Precision::Exact,
            precision => precision,
        };
        let precision = match precision {
            // Activations in bf16 need no rounding.
            Precision::Bf16 if E::TYPE == ElementType::Bf16 => Precision::Exact,
            precision => precision,
        };
        let (activation, packed, op) = (None, false, None);
        Ok(QgemmPlan { kernels: *self, format, m, n, k, precision, activation, whole: m, packed, op })
    }
}

impl<E: Element> QgemmPlan<E> {
    /// The plan with an activation, which is computed after product and bias.
    pub fn activation(self, activation: Activation) -> Self {
        Self { activation: Some(activation), ..self }
    }

    /// The plan for packed weights, or for weights in place; a new plan is for weights in place. Only
    /// [prepared](Self::prepare) activations depend on this: [`run`](Self::run) itself detects which weights it is
    /// given.
    pub fn packed(self, packed: bool) -> Self {
        Self { packed, ..self }
    }

    /// The plan for a part of the product: the same with other numbers of rows of activations and of weights. The part
    /// gets the bits that it has in the whole.
    pub fn resized(self, m: usize, n: usize) -> Self {
        Self { m, n, whole: self.whole.max(m), ..self }
    }

    /// The plan that uses the kernels of `op`, whether they are the fastest for this number of rows or not. Tests and
    /// benchmarks reach every kernel this way; a plan on its own chooses the best.
    ///
    /// - [`Op::Qgemv`]: weights in place times activations as they are.
    /// - [`Op::QgemvQ8`]: weights in place times activations in 8 bits; weights that are plain floating point times
    ///   activations in f32.
    /// - [`Op::QgemvPacked`]: packed weights times activations in 8 bits.
    /// - [`Op::Qgemm`]: weights that are unpacked for tiles, by the plan's [`precision`](Self::precision).
    ///
    /// # Errors
    /// `BadParameter` if `op` is another operator.
    pub fn with_kernel(self, op: Op) -> Result<Self, KernelError> {
        let (precision, packed) = match op {
            Op::Qgemv => (Precision::Exact, false),
            Op::QgemvQ8 => (Precision::Integer, false),
            Op::QgemvPacked => (Precision::Integer, true),
            Op::Qgemm => (self.precision, self.packed),
            _ => {
                let expected =
                    "an operator of a product with quantised weights: Qgemv, QgemvQ8, QgemvPacked or Qgemm";
                return Err(KernelError::BadParameter { arg: "op", expected });
            }
        };
        Ok(Self { precision, packed, op: Some(op), ..self })
    }

    /// The kernels that the plan was made with.
    pub fn kernels(&self) -> Kernels<E> {
        self.kernels
    }

    /// `m`, `n` and `k`.
    pub fn shape(&self) -> [usize; 3] {
        [self.m, self.n, self.k]
    }

    /// How the plan computes. This is never [`Precision::Fast`]: the plan has chosen one of the others instead.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Whether decoded weights are rounded to the type of the activations, or to bf16: where neither integers nor a few rows of
    /// activations are multiplied.
    pub fn rounds_weights(&self) -> bool {
        self.precision != Precision::Integer && !self.few_rows(false)
    }

    /// Whether the kernels for a few rows of activations do the product, not those that unpack weights for tiles.
    fn few_rows(&self, packed: bool) -> bool {
        match (self.op, self.precision) {
            (Some(op), _) => op != Op::Qgemm,
            (None, Precision::Integer) if packed => self.whole <= self.few_packed_rows(),
            (None, Precision::Integer) => self.whole <= self.few(),
            (None, _) => self.few_exact(),
        }
    }

    /// Rows up to which weights in place are not unpacked for tiles.
    fn few(&self) -> usize {
        let [short, long, fast] = self.kernels.tier.map_or(MAX_GEMV_ROWS, |tier| tier.few);
        match self.kernels.table.formats.of(self.format) {
            Made::Blocks(format)
                if PanelKind::of(format).two_groups || format.packing.scales == Scales::Whole =>
            {
                fast
            }
            Made::Blocks(format) if format.len < SUPER_BLOCK => short,
            _ => long,
        }
    }

    /// Rows up to which packed weights are not unpacked for tiles.
    fn few_packed_rows(&self) -> usize {
        let [one_plane, two_planes] = self.kernels.tier.map_or(MAX_GEMV_ROWS_PACKED, |tier| tier.few_packed);
        match self.kernels.table.formats.of(self.format) {
            Made::Blocks(format) if format.packing.bits[1] > 0 => two_planes,
            _ => one_plane,
        }
    }

    fn kind(&self) -> PanelKind {
        match self.kernels.table.formats.of(self.format) {
            Made::Blocks(format) => PanelKind::of(format),
            // Plain floating point has no such panels, so this is never used.
            Made::Floats(_) => PanelKind { two_groups: false, offsets: false },
        }
    }

    /// Scratch memory for [`run`](Self::run) with activations as they are, whether weights are packed or not.
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub fn scratch(&self) -> Result<ScratchReq, KernelError> {
        match self.precision {
            Precision::Exact => return self.scratch_exact(),
            Precision::Bf16 => return self.scratch_bf16(),
            _ => {}
        }
        let few = if self.few_rows(true) || self.few_rows(false) { self.m } else { 0 };
        let few = ScratchReq::array::<u8>(Activations::size(few, self.k)?.size_unaligned())?;
        if self.few_rows(true) && self.few_rows(false) {
            return Ok(few);
        }
        let x = self.kernels.activation_panels_size(self.m.min(ROUNDED_ROWS), self.k)?;
        let many = ScratchReq::array::<u8>(x.size_unaligned())?.and(self.scratch_panels()?)?;
        Ok(if few.size() > many.size() { few } else { many })
    }

    /// Scratch memory for [`run`](Self::run) with activations that this plan has [prepared](Self::prepare): less than
    /// [`scratch`](Self::scratch).
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub fn scratch_prepared(&self) -> Result<ScratchReq, KernelError> {
        match self.form(self.packed) {
            Form::AsTheyAre => self.scratch_exact(),
            Form::Rows => Ok(ScratchReq::EMPTY),
            Form::Panels => self.scratch_panels(),
            Form::Bf16 => self.in_bf16().scratch_exact(),
        }
    }

    /// `Y = f(X W^T + bias)`: `w` is `n x k`, in place (a [`QuantRef`](crate::QuantRef)) or packed (a
    /// [`PackedQ`](crate::PackedQ)); `x` is `m x k`, as it is (a [`MatRef`]) or [prepared](Self::prepare) for these weights,
    /// with the same results; `y` is `m x n`. `bias`, if there is one, has an element for each column of `Y`; `f` is the
    /// plan's [activation](Self::activation).
    ///
    /// # Errors
    /// `DimMismatch` unless the operands have the plan's shape; `WrongFormat` if `w` has another format, or `x` is
    /// prepared for another one; `WrongLength` unless the bias has `n` elements; `BadValue` if the columns of `x` are not
    /// contiguous; `BadParameter` if `x` is prepared by a plan of another kind; `ScratchTooSmall` (see
    /// [`scratch`](Self::scratch)).
    pub fn run<'w, 'x>(
        &self,
        y: MatMut<'_, f32>,
        w: impl Into<QuantWeights<'w>>,
        x: impl Into<Prepared<'x, E>>,
        bias: Option<&[f32]>,
        scratch: Scratch<'_>,
    ) -> Result<(), KernelError>
    where
        E: 'x,
    {
        self.product(y, w.into(), x.into(), bias, scratch)
    }

    fn product(
        &self,
        y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: Prepared<'_, E>,
        bias: Option<&[f32]>,
        scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        check::dim("y.rows() != m", y.rows(), self.m)?;
        check::dim("y.cols() != n", y.cols(), self.n)?;
        check::dim("w.rows() != n", w.rows(), self.n)?;
        check::dim("w.cols() != k", w.cols(), self.k)?;
        check::format("w", w.format(), self.format)?;
        bias.map_or(Ok(()), |bias| check::len("bias", bias.len(), self.n))?;
        check::dim("x.rows() != m", x.rows(), self.m)?;
        check::dim("x.cols() != k", x.cols(), self.k)?;
        let expected = match (self.op, w.is_packed()) {
            (Some(Op::Qgemv | Op::QgemvQ8), true) => {
                Some("weights in place, as the plan's kernel takes them")
            }
            (Some(Op::QgemvPacked), false) => Some("packed weights, as the plan's kernel takes them"),
            _ => None,
        };
        if let Some(expected) = expected {
            return Err(KernelError::BadParameter { arg: "w", expected });
        }
        let form = self.form(w.is_packed());
        let input = self.input_for(x, form, w.is_packed())?;
        if y.is_empty() {
            return Ok(());
        }
        match (input, form) {
            (Input::Rows(x), _) => self.in_rows(y, w, x, bias),
            (Input::Panels(x), _) => self.in_panels(y, w, x, bias, scratch),
            (Input::Bf16(x), _) => self.in_bf16().exact(y, w, x, bias, scratch),
            (Input::AsTheyAre(x), Form::AsTheyAre) => self.exact(y, w, x, bias, scratch),
            (Input::AsTheyAre(x), Form::Bf16) => self.rounded(y, w, x, bias, scratch),
            (Input::AsTheyAre(x), Form::Rows) => self.round_rows(y, w, x, bias, scratch),
            (Input::AsTheyAre(x), Form::Panels) => self.round_panels(y, w, x, bias, scratch),
        }
    }

    /// A product of integers with a few rows of activations, which are rounded first.
    fn round_rows(
        &self,
        y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: MatRef<'_, E>,
        bias: Option<&[f32]>,
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        let room = scratch.take::<u8>(Activations::size(self.m, self.k)?.size_unaligned())?;
        let x = self.kernels.quantize_activations(self.format, w.is_packed(), x, room)?;
        self.in_rows(y, w, x, bias)
    }

    /// A product of integers with many rows of activations, which are rounded block by block.
    fn round_panels(
        &self,
        mut y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: MatRef<'_, E>,
        bias: Option<&[f32]>,
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        let size = self.kernels.activation_panels_size(self.m.min(ROUNDED_ROWS), self.k)?.size_unaligned();
        let room = scratch.take::<u8>(size)?;
        let rest = scratch.take::<u8>(self.scratch_panels()?.size())?;
        let mut first = 0;
        while first < self.m {
            let rows = (self.m - first).min(ROUNDED_ROWS);
            let x = self.kernels.activation_panels(x.row_range(first, rows)?, room)?;
            let (part, below) = y.split_rows(rows)?;
            y = below;
            self.resized(rows, self.n).in_panels(part, w, x, bias, Scratch::new(rest))?;
            first += rows;
        }
        Ok(())
    }

    /// A product of integers with a few rows of activations that are rounded.
    fn in_rows(
        &self,
        mut y: MatMut<'_, f32>,
        w: QuantWeights<'_>,
        x: Activations<'_>,
        bias: Option<&[f32]>,
    ) -> Result<(), KernelError> {
        let (strides, p) = ([y.row_stride(), y.col_stride()], y.as_mut_ptr());
        match w {
            QuantWeights::InPlace(w) => self.kernels.qgemv_q8(y, w, x)?,
            QuantWeights::Packed(w) => self.kernels.qgemv_packed(y, w, x)?,
        }
        // SAFETY: the elements of the view, which is exclusive; the bias has one for each column.
        unsafe { self.finish(p, strides, [self.m, self.n], bias.map(<[f32]>::as_ptr)) };
        Ok(())
    }

    /// Bias and activation for some rows and columns of `Y`.
    ///
    /// # Safety
    /// The elements exist and are exclusive, and the bias has one for each column.
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
