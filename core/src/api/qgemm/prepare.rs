//! Activations as a quantised product takes them: as they are, or prepared once for several products or threads.

use super::panels::ActivationPanels;
use super::{Precision, QgemmPlan};
use crate::check;
use crate::element::{bf16, Element};
use crate::error::KernelError;
use crate::ops::activations::{check_room, Activations};
use crate::ops::qgemm::tile::ACTIVATION_ROWS;
use crate::quant::packed::{STEPS, STEP_COLS};
use crate::scratch::ScratchReq;
use crate::view::MatRef;

/// What a product does to activations before it multiplies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// They are multiplied as they are.
    AsTheyAre,
    /// They are rounded to 8 bits, row by row, for weights of one format.
    Rows,
    /// They are rounded to 8 bits, in panels that tiles take.
    Panels,
    /// They are rounded to bf16.
    Bf16,
}

/// Activations in one of these forms.
#[derive(Clone, Copy, Debug)]
pub(super) enum Input<'a, E> {
    AsTheyAre(MatRef<'a, E>),
    Rows(Activations<'a>),
    Panels(ActivationPanels<'a>),
    Bf16(MatRef<'a, bf16>),
}

/// Activations as [`QgemmPlan::run`] takes them: a matrix as it is (any [`MatRef`] becomes one), or what
/// [`QgemmPlan::prepare`] has made of it.
///
/// A plan with [`Precision::Integer`] rounds activations to 8 bits. In groups of 32 columns `x = d * q` with
/// `d = max |x| / 127` in f32 and `q = x * (1 / d)`, rounded to nearest even; so `|x - d * q| <= 0.501 * d`. A group with a
/// NaN or an infinity is NaN as a whole; one of magnitudes below 1e-36 is zero. For a few rows times weights in place whose
/// blocks have 256 columns, `d` is that of 256 columns. [`Precision::Bf16`] rounds to bf16, to nearest even;
/// [`Precision::Exact`] leaves activations as they are.
#[derive(Clone, Copy, Debug)]
pub struct Prepared<'a, E> {
    input: Input<'a, E>,
    /// Whether they are for packed weights.
    packed: bool,
}

impl<'a, E> From<MatRef<'a, E>> for Prepared<'a, E> {
    fn from(x: MatRef<'a, E>) -> Self {
        Self { input: Input::AsTheyAre(x), packed: false }
    }
}

impl<'a, E: Element> Prepared<'a, E> {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        match &self.input {
            Input::AsTheyAre(x) => x.rows(),
            Input::Rows(x) => x.batch(),
            Input::Panels(x) => x.rows(),
            Input::Bf16(x) => x.rows(),
        }
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        match &self.input {
            Input::AsTheyAre(x) => x.cols(),
            Input::Rows(x) => x.cols(),
            Input::Panels(x) => x.cols(),
            Input::Bf16(x) => x.cols(),
        }
    }

    /// The matrix, if activations are taken as they are.
    pub fn as_matrix(&self) -> Option<MatRef<'a, E>> {
        match self.input {
            Input::AsTheyAre(x) => Some(x),
            _ => None,
        }
    }

    /// The integers and the scale of columns `32 * g .. 32 * g + 32` of row `m`, if activations are rounded to 8 bits
    /// row by row, as they are for a few rows. Beyond the last column there are zeros. Tests see by this how
    /// activations were rounded.
    pub fn group(&self, m: usize, g: usize) -> Option<(&[i8; STEP_COLS], f32)> {
        self.few()?.group(m, g)
    }

    /// The integers and the common scale of columns `256 * b .. 256 * b + 256` of row `m`, if activations are rounded
    /// for weights in place whose blocks are as long.
    pub fn block(&self, m: usize, b: usize) -> Option<(&[[i8; STEP_COLS]; STEPS], f32)> {
        self.few()?.block(m, b)
    }

    /// Row `m` in f32, if activations are for kernels that multiply such rows with weights that are plain floating
    /// point.
    pub fn exact(&self, m: usize) -> Option<&[f32]> {
        self.few()?.exact(m)
    }

    fn few(&self) -> Option<&Activations<'a>> {
        match &self.input {
            Input::Rows(x) => Some(x),
            _ => None,
        }
    }
}

/// # Activations for several products or threads
///
/// [`run`](QgemmPlan::run) prepares activations each time that it is given a matrix. Where several matrices of weights have
/// the same activations, [`prepare`](QgemmPlan::prepare) does it once. Several threads prepare parts of the rows by
/// [`prepare_rows`](QgemmPlan::prepare_rows), into parts of one memory, which [`prepared`](QgemmPlan::prepared) opens.
impl<E: Element> QgemmPlan<E> {
    /// The form in which activations are multiplied with weights that are packed or not.
    pub(super) fn form(&self, packed: bool) -> Form {
        match self.precision {
            Precision::Exact => Form::AsTheyAre,
            Precision::Bf16 => Form::Bf16,
            _ if self.few_rows(packed) => Form::Rows,
            _ => Form::Panels,
        }
    }

    /// Memory for [`prepare`](Self::prepare). Nothing if activations are taken as they are.
    ///
    /// # Errors
    /// `NotBlockMultiple`, `SizeOverflow`.
    pub fn prepared_size(&self) -> Result<ScratchReq, KernelError> {
        match self.form(self.packed) {
            Form::AsTheyAre => Ok(ScratchReq::EMPTY),
            Form::Rows => Activations::size(self.m, self.k),
            Form::Panels => self.kernels.activation_panels_size(self.m, self.k),
            Form::Bf16 => {
                let overflow = KernelError::SizeOverflow { what: "rounded activations" };
                ScratchReq::array::<bf16>(self.m.checked_mul(self.k).ok_or(overflow)?)
            }
        }
    }

    /// An upper bound of [`prepared_size`](Self::prepared_size) for `m x k` activations, weights of any format and every
    /// CPU, for sizing static memory at compile time.
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub const fn prepared_bound(m: usize, k: usize) -> Result<ScratchReq, KernelError> {
        // The form for a few rows takes most memory.
        Activations::size(m, k)
    }

    /// Whether both plans prepare activations in the same way, so that each can take what the other one has prepared.
    pub fn prepares_as(&self, other: &Self) -> bool {
        let (form, formats) = (self.form(self.packed), [self.format, other.format]);
        [self.m, self.k] == [other.m, other.k]
            && (form, self.packed) == (other.form(other.packed), other.packed)
            && (form != Form::Rows || formats[0] == formats[1])
    }

    /// Prepares activations for products with the weights that this plan is for: of its format, and
    /// [packed](Self::packed) or not. `x` is `m x k`.
    ///
    /// # Errors
    /// `DimMismatch` unless `x` has the plan's shape; `ShortSlice` if `buf` is smaller than
    /// [`prepared_size`](Self::prepared_size) says (unaligned); `BadValue` if the columns of `x` are not contiguous;
    /// `NotBlockMultiple`, `SizeOverflow`.
    pub fn prepare<'a>(&self, x: MatRef<'a, E>, buf: &'a mut [u8]) -> Result<Prepared<'a, E>, KernelError> {
        check::dim("x.rows() != m", x.rows(), self.m)?;
        let req = self.prepared_size()?;
        let (need, got) = (req.size_unaligned(), buf.len());
        let skip = if need == 0 { 0 } else { (buf.as_ptr() as usize).wrapping_neg() & (req.align() - 1) };
        let room = buf.get_mut(skip..skip + req.size()).filter(|_| got >= need);
        let room = room.ok_or(KernelError::ShortSlice { arg: "buf", need, got })?;
        self.prepare_rows(x, room)?;
        self.prepared(x, room)
    }

    /// Rows that lie side by side in prepared activations: parts for [`prepare_rows`](Self::prepare_rows) start at multiples
    /// of this.
    pub fn prepared_row_step(&self) -> usize {
        if self.form(self.packed) == Form::Panels {
            ACTIVATION_ROWS
        } else {
            1
        }
    }

    /// Prepares some rows, the first of which is a multiple of [`prepared_row_step`](Self::prepared_row_step), in their
    /// part of the memory of all. The part has the [size](Self::prepared_size) that a plan [`resized`](Self::resized)
    /// to these rows says, and starts where the part of the rows before ends.
    ///
    /// # Errors
    /// `DimMismatch` unless `x` has `k` columns; `WrongLength` unless the part's length is that of the rows, in bytes;
    /// `BadParameter` if it is not aligned to 64 bytes, or to 2 for activations in bf16; `BadValue` if the columns of
    /// `x` are not contiguous.
    pub fn prepare_rows(&self, x: MatRef<'_, E>, part: &mut [u8]) -> Result<(), KernelError> {
        check::dim("x.cols() != k", x.cols(), self.k)?;
        check::contiguous("x.col_stride()", x.col_stride(), x.cols())?;
        match self.form(self.packed) {
            Form::AsTheyAre => check::len("part", part.len(), 0),
            Form::Rows => self.kernels.activations_rows(self.format, self.packed, x, part),
            Form::Panels => self.kernels.activation_panels_rows(x, part),
            Form::Bf16 => {
                let len = x.rows().saturating_mul(self.k);
                check_room(ScratchReq::array::<bf16>(len)?, align_of::<bf16>(), part)?;
                // An empty slice of bytes may lie where a bf16 may not.
                let nothing = core::ptr::NonNull::<bf16>::dangling().as_ptr();
                let to = if part.is_empty() { nothing } else { part.as_mut_ptr().cast() };
                // SAFETY: the part is aligned and has room for so many, and any two bytes are one.
                self.kernels.round_bf16(x, unsafe { core::slice::from_raw_parts_mut(to, len) })
            }
        }
    }

    /// Opens memory that [`prepare_rows`](Self::prepare_rows) has filled with all rows of `x`.
    ///
    /// # Errors
    /// `DimMismatch` unless `x` has the plan's shape; `WrongLength` unless the memory has
    /// [`prepared_size`](Self::prepared_size) bytes; `BadParameter` if it is not aligned to 64 bytes; `SizeOverflow`.
    pub fn prepared<'a>(&self, x: MatRef<'a, E>, room: &'a [u8]) -> Result<Prepared<'a, E>, KernelError> {
        check::dim("x.rows() != m", x.rows(), self.m)?;
        check::dim("x.cols() != k", x.cols(), self.k)?;
        check_room(self.prepared_size()?, ScratchReq::PANEL_ALIGN, room)?;
        let (kernels, packed) = (&self.kernels, self.packed);
        let input = match self.form(packed) {
            Form::AsTheyAre => Input::AsTheyAre(x),
            Form::Rows => {
                Input::Rows(kernels.activations_filled(self.format, packed, [self.m, self.k], room))
            }
            Form::Panels => Input::Panels(kernels.activation_panels_filled([self.m, self.k], room)),
            Form::Bf16 => {
                let nothing = core::ptr::NonNull::<bf16>::dangling().as_ptr();
                let from = if room.is_empty() { nothing } else { room.as_ptr().cast_mut().cast() };
                // SAFETY: the memory is aligned and has so many, and any two bytes are one.
                let rows = unsafe { core::slice::from_raw_parts(from, self.m.saturating_mul(self.k)) };
                Input::Bf16(MatRef::new(rows, self.m, self.k)?)
            }
        };
        Ok(Prepared { input, packed })
    }

    /// Checks that activations fit this plan, in this form, for weights that are packed or not.
    pub(super) fn input_for<'a>(
        &self,
        x: Prepared<'a, E>,
        form: Form,
        packed: bool,
    ) -> Result<Input<'a, E>, KernelError> {
        let fits = match &x.input {
            Input::AsTheyAre(x) => {
                check::contiguous("x.col_stride()", x.col_stride(), x.cols())?;
                return Ok(Input::AsTheyAre(*x));
            }
            Input::Rows(x) => {
                check::format("x", x.format(), self.format)?;
                form == Form::Rows
            }
            Input::Panels(_) => form == Form::Panels,
            Input::Bf16(_) => form == Form::Bf16,
        };
        if fits && x.packed == packed {
            return Ok(x.input);
        }
        let expected = "a matrix, or prepared by this plan for such weights (see QgemmPlan::packed)";
        Err(KernelError::BadParameter { arg: "x", expected })
    }
}
