//! Operations row by row, and the rounding of their results for the products that follow.

use std::ops::Range;

use gllm_kernels_core::{bf16, KernelError, Kernels, MatMut, MatRef, QuantFormat};

use super::attention::Joined;
use super::weights::Embedding;
use crate::model::Gate;

/// Rows of f32, one behind the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub(super) ptr: *mut f32,
    pub(super) width: usize,
}

impl Rows {
    /// Some rows.
    ///
    /// # Safety
    /// They exist, and nobody writes them.
    pub(super) unsafe fn get<'a>(self, rows: Range<usize>) -> &'a [f32] {
        // SAFETY: the caller's contract.
        unsafe { std::slice::from_raw_parts(self.ptr.add(rows.start * self.width), rows.len() * self.width) }
    }

    /// Some rows.
    ///
    /// # Safety
    /// They exist, and nobody else uses them.
    pub(super) unsafe fn get_mut<'a>(self, rows: Range<usize>) -> &'a mut [f32] {
        // SAFETY: the caller's contract.
        unsafe {
            std::slice::from_raw_parts_mut(self.ptr.add(rows.start * self.width), rows.len() * self.width)
        }
    }

    /// One row.
    ///
    /// # Safety
    /// As [`get_mut`](Self::get_mut).
    pub(super) unsafe fn row<'a>(self, row: usize) -> &'a mut [f32] {
        // SAFETY: the caller's contract.
        unsafe { self.get_mut(row..row + 1) }
    }
}

/// What is computed of each row.
#[derive(Debug)]
pub(super) enum RowWork {
    /// Rows of a table, times a factor.
    Embed { table: *const Embedding, tokens: Vec<u32>, scale: f32, to: Rows },
    /// The RMS norm, times a weight; before it, perhaps, something is added.
    Norm { add: Option<Add>, x: Rows, weight: *const [f32], eps: f32, to: Rows },
    /// Joins the pieces of attention.
    Join { pieces: Joined, to: Rows },
    /// A gated activation: the gates are the first half of each row.
    Glu { gate: Gate, x: Rows, to: Rows },
    /// Brings these rows to the front, in one chunk.
    Gather { rows: Vec<usize>, of: [Rows; 2] },
    /// `cap * tanh(x / cap)`.
    Cap { x: Rows, cap: f32 },
    /// Nothing: rows are only rounded.
    Round,
}

/// What is added to the residual stream, normed with a weight or as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Add {
    pub(super) delta: Rows,
    pub(super) post: Option<*const [f32]>,
}

/// A form of rounded rows, and where they go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rounded {
    pub(super) form: Form,
    pub(super) to: *mut u8,
}

/// A form of rounded rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    /// For a few rows, by format.
    Rows(QuantFormat),
    /// For many, in panels.
    Panels,
    /// bf16.
    Bf16,
}

impl Form {
    /// Bytes of `rows` rows of `cols`.
    pub(super) fn bytes(self, k: &Kernels<f32>, rows: usize, cols: usize) -> Result<usize, KernelError> {
        Ok(match self {
            Self::Rows(_) => k.activations_size(rows, cols)?.size(),
            Self::Panels => k.activation_panels_size(rows, cols)?.size(),
            Self::Bf16 => rows * cols * size_of::<bf16>(),
        })
    }

    /// What the first row of a part is a multiple of.
    pub(super) fn step(self, k: &Kernels<f32>) -> usize {
        if self == Self::Panels {
            k.activation_panels_row_step()
        } else {
            1
        }
    }
}

impl Rounded {
    /// The rounded rows of `rows` rows.
    ///
    /// # Safety
    /// All of them have been rounded.
    pub(super) unsafe fn bytes<'a>(
        self,
        k: &Kernels<f32>,
        rows: usize,
        cols: usize,
    ) -> Result<&'a [u8], KernelError> {
        let len = self.form.bytes(k, rows, cols)?;
        // SAFETY: the caller's contract.
        Ok(unsafe { std::slice::from_raw_parts(self.to, len) })
    }

    /// Rounds some rows, whose first is a multiple of the form's [`step`](Form::step).
    ///
    /// # Safety
    /// The rows, room for all; nobody else uses these rows' part of it.
    unsafe fn round(self, k: &Kernels<f32>, x: Rows, rows: Range<usize>) -> Result<(), KernelError> {
        let (first, n) = (rows.start, rows.len());
        let at = self.form.bytes(k, first, x.width)?;
        let len = self.form.bytes(k, n, x.width)?;
        // SAFETY: the caller's contract. Rows are equally long, and so are panels.
        unsafe {
            let x = MatRef::new(x.get(rows), n, x.width)?;
            let part = std::slice::from_raw_parts_mut(self.to.add(at), len);
            match self.form {
                Form::Rows(format) => k.activations_rows(format, x, part),
                Form::Panels => k.activation_panels_rows(x, part),
                Form::Bf16 => {
                    let part = std::slice::from_raw_parts_mut(part.as_mut_ptr().cast::<bf16>(), n * x.cols());
                    k.round_bf16(x, part)
                }
            }
        }
    }
}

/// An operation on rows, `step` of them in a chunk.
#[derive(Debug)]
pub(super) struct RowOp {
    pub(super) rows: usize,
    pub(super) step: usize,
    pub(super) work: RowWork,
    /// The results, which are rounded so.
    pub(super) out: Rows,
    pub(super) rounded: Vec<Rounded>,
}

impl RowOp {
    /// Does some rows.
    ///
    /// # Safety
    /// What the operation names exists, and nobody else uses these rows.
    pub(super) unsafe fn run(&self, k: &Kernels<f32>, rows: Range<usize>) -> Result<(), KernelError> {
        // SAFETY: the caller's contract.
        unsafe {
            match &self.work {
                RowWork::Gather { rows, of } => {
                    for (to, &from) in rows.iter().enumerate().filter(|(to, &from)| *to != from) {
                        for of in of {
                            std::ptr::copy(of.row(from).as_ptr(), of.row(to).as_mut_ptr(), of.width);
                        }
                    }
                }
                RowWork::Embed { table, tokens, scale, to } => {
                    let y = to.get_mut(rows.clone());
                    (**table).look_up(k, &tokens[rows.clone()], MatMut::new(y, rows.len(), to.width)?)?;
                    if *scale != 1.0 {
                        k.vec_scale_inplace(*scale, y)?;
                    }
                }
                RowWork::Round => {}
                work => {
                    for row in rows.clone() {
                        one(k, work, row)?;
                    }
                }
            }
            for form in &self.rounded {
                form.round(k, self.out, rows.clone())?;
            }
        }
        Ok(())
    }
}

/// Does a row.
///
/// # Safety
/// As [`RowOp::run`].
unsafe fn one(k: &Kernels<f32>, work: &RowWork, row: usize) -> Result<(), KernelError> {
    // SAFETY: the caller's contract.
    unsafe {
        match work {
            RowWork::Norm { add, x, weight, eps, to } => {
                let x = x.row(row);
                if let Some(add) = add {
                    let delta = add.delta.row(row);
                    if let Some(post) = add.post {
                        k.rms_norm_inplace(Some(&*post), *eps, delta)?;
                    }
                    k.vec_add_inplace(delta, x)?;
                }
                k.rms_norm(x, Some(&**weight), *eps, to.row(row))?;
            }
            RowWork::Join { pieces, to } => pieces.join(k, row, to.row(row))?,
            RowWork::Glu { gate, x, to } => {
                let (gates, up) = x.row(row).split_at(x.width / 2);
                match gate {
                    Gate::Silu => k.swiglu(gates, up, to.row(row))?,
                    Gate::GeluTanh => k.geglu(gates, up, to.row(row))?,
                }
            }
            RowWork::Cap { x, cap } => {
                let x = x.row(row);
                k.vec_scale_inplace(1.0 / cap, x)?;
                k.tanh_inplace(x)?;
                k.vec_scale_inplace(*cap, x)?;
            }
            // Those are not done row by row.
            RowWork::Embed { .. } | RowWork::Gather { .. } | RowWork::Round => {}
        }
    }
    Ok(())
}
