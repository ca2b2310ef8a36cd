//! Operations on single rows (norms, activation functions, pooling), and the rounding of their results for the products that
//! follow.

use std::ops::Range;

use gllm_kernels_core::{KernelError, Kernels, MatMut, MatRef, Prepared, QgemmPlan};

use super::attention::Joined;
use super::streams::Streams;
use super::team::Memory;
use super::weights::Embedding;
use crate::model::{Gate, Norm, Pooling};

/// Activations that share a scale when they are rounded ([`Prepared`]).
const GROUP: usize = 32;

/// `1 / (1 + exp(-x))`, of single numbers: scores and gates.
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

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
    /// The contract of [`get_mut`](Self::get_mut).
    pub(super) unsafe fn row<'a>(self, row: usize) -> &'a mut [f32] {
        // SAFETY: the caller's contract.
        unsafe { self.get_mut(row..row + 1) }
    }
}

/// The function that an operation computes for each row.
#[derive(Debug)]
pub(super) enum RowWork {
    /// Rows of a table, times a factor, plus a row that is the same for all tokens, and those of positions.
    Embed {
        table: *const Embedding,
        tokens: Vec<u32>,
        scale: f32,
        token_type: Option<*const [f32]>,
        positions: Option<Positions>,
        to: Rows,
    },
    /// A norm, or the row itself, or of its first elements, as many as results have. Something may be added to the row first. If the norm `stays`, it takes the row's place,
    /// too.
    Norm { add: Option<Add>, x: Rows, norm: Option<NormOf>, stays: bool, to: Rows },
    /// RMS norms of parts of rows, each in its place. The weight of a row has as many elements; a part has so many.
    NormParts { x: Rows, weight: *const [f32], part: usize, eps: f32 },
    /// Joins the pieces of attention.
    Join { pieces: Joined, to: Rows },
    /// A gated activation: the gates are the first half of each row. If few of them count, with how many standard deviations above their mean.
    Glu { gate: Gate, sparsity: Option<f32>, x: Rows, to: Rows },
    /// An activation without gates.
    Activate { gate: Gate, x: Rows, to: Rows },
    /// [`Gate::Xielu`] with its two numbers. What `x` holds afterwards says nothing.
    Xielu { numbers: [f32; 2], x: Rows, to: Rows },
    /// The same, times elements of rows of `by`, from `at` on.
    GateBy { gate: Gate, x: Rows, by: Rows, at: usize, to: Rows },
    /// An operation on all residual streams of a token.
    Streams(Streams),
    /// Brings these rows to the front, in one chunk.
    Gather { rows: Vec<usize>, of: Vec<Rows> },
    /// `cap * tanh(x / cap)`.
    Cap { x: Rows, cap: f32 },
    /// Makes one row of several, and its length 1. A row of the operation is one of `runs`.
    Pool { pooling: Pooling, runs: Vec<Range<usize>>, x: Rows, to: Rows },
    /// Two rows for each: the row itself, and what it loses when the plan rounds it to 8 bits. Where both are rounded, their sum has
    /// about 15 bits.
    Split { x: Rows, plan: QgemmPlan<f32>, to: Rows },
    /// Nothing. Rows are only rounded.
    Round,
}

/// A table of positions, and the position of each row.
#[derive(Debug)]
pub(super) struct Positions {
    pub(super) table: *const Embedding,
    pub(super) of: Vec<u32>,
}

/// A norm with its weight, and a bias if it is one with a bias.
#[derive(Clone, Copy, Debug)]
pub(super) struct NormOf {
    pub(super) kind: Norm,
    pub(super) weight: *const [f32],
    pub(super) bias: Option<*const [f32]>,
    pub(super) eps: f32,
}

/// An operand that is added to the residual stream, normed with a weight and what keeps the root from 0, or as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Add {
    pub(super) delta: Rows,
    /// Factor of the residual stream.
    pub(super) scale: f32,
    pub(super) post: Option<(*const [f32], f32)>,
}

/// A form in which a plan prepares rows, and where the prepared rows go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounded {
    pub(super) plan: QgemmPlan<f32>,
    pub(super) to: *mut u8,
}

impl Rounded {
    /// Bytes of the first `rows` rows.
    fn len(self, rows: usize) -> Result<usize, KernelError> {
        let [_, n, _] = self.plan.shape();
        Ok(self.plan.resized(rows, n).prepared_size()?.size())
    }

    /// The rows `x`, prepared.
    ///
    /// # Safety
    /// All of them have been rounded.
    pub(super) unsafe fn get<'a>(self, x: MatRef<'a, f32>) -> Result<Prepared<'a, f32>, KernelError> {
        let len = self.len(x.rows())?;
        // SAFETY: the caller's contract.
        self.plan.prepared(x, unsafe { std::slice::from_raw_parts(self.to, len) })
    }

    /// Rounds some rows, whose first is a multiple of the plan's [step](QgemmPlan::prepared_row_step).
    ///
    /// # Safety
    /// The rows exist. There is room for all rows at `to`, and nobody else uses these rows' part of it.
    pub(super) unsafe fn round(self, x: Rows, rows: Range<usize>) -> Result<(), KernelError> {
        let (at, n) = (self.len(rows.start)?, rows.len());
        let len = self.len(n)?;
        // SAFETY: the caller's contract. Prepared rows are equally long, and so are panels of them: the rows before
        // these take `at` bytes.
        unsafe {
            let x = MatRef::new(x.get(rows), n, x.width)?;
            self.plan.prepare_rows(x, std::slice::from_raw_parts_mut(self.to.add(at), len))
        }
    }
}

/// An operation on rows, `step` of them in a chunk.
#[derive(Debug)]
pub(super) struct RowOp {
    pub(super) rows: usize,
    pub(super) step: usize,
    pub(super) work: RowWork,
    /// The results.
    pub(super) out: Rows,
    /// The forms to which results are rounded.
    pub(super) rounded: Vec<Rounded>,
}

impl RowOp {
    /// Does some rows.
    ///
    /// # Safety
    /// What the operation names exists, and nobody else uses these rows.
    pub(super) unsafe fn run(
        &self,
        k: &Kernels<f32>,
        rows: Range<usize>,
        memory: &mut Memory,
    ) -> Result<(), KernelError> {
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
                RowWork::Embed { table, tokens, scale, token_type, positions, to } => {
                    let y = to.get_mut(rows.clone());
                    (**table).look_up(k, &tokens[rows.clone()], MatMut::new(y, rows.len(), to.width)?)?;
                    if *scale != 1.0 {
                        k.vec_scale_inplace(*scale, y)?;
                    }
                    if let Some(row) = token_type {
                        y.chunks_exact_mut(to.width).try_for_each(|y| k.vec_add_inplace(&**row, y))?;
                    }
                    if let Some(Positions { table, of }) = positions {
                        let mut more = memory.take_numbers(y.len());
                        let (more_rows, of) = (&mut more[..y.len()], &of[rows.clone()]);
                        (**table).look_up(k, of, MatMut::new(more_rows, rows.len(), to.width)?)?;
                        k.vec_add_inplace(&more[..y.len()], y)?;
                        memory.keep_numbers(more);
                    }
                }
                RowWork::Round => {}
                work => {
                    for row in rows.clone() {
                        one(k, work, row, memory)?;
                    }
                }
            }
            for form in &self.rounded {
                form.round(self.out, rows.clone())?;
            }
        }
        Ok(())
    }
}

/// The second half of `x`, gated by the first. What `x` holds afterwards says nothing.
pub(super) fn glu(k: &Kernels<f32>, gate: Gate, x: &mut [f32], to: &mut [f32]) -> Result<(), KernelError> {
    /// The factor of gates in the sigmoid.
    const SLOPE: f32 = 1.702;
    const LIMIT: f32 = 7.0;
    let (gates, up) = x.split_at_mut(x.len() / 2);
    match gate {
        Gate::Silu => k.swiglu(gates, up, to),
        Gate::GeluTanh => k.geglu(gates, up, to),
        Gate::Gelu => {
            k.gelu_inplace(gates)?;
            k.vec_mul(gates, up, to)
        }
        Gate::ReluSquared | Gate::Xielu => {
            activate(k, gate, gates, to)?;
            k.vec_mul_inplace(up, to)
        }
        Gate::ClampedSwiglu => {
            // `swiglu(c g, (u + 1) / c)` is `g sigmoid(c g) (u + 1)`. What is no number stays none.
            gates.iter_mut().for_each(|g| *g = SLOPE * g.clamp(f32::NEG_INFINITY, LIMIT));
            up.iter_mut().for_each(|u| *u = (u.clamp(-LIMIT, LIMIT) + 1.0) / SLOPE);
            k.swiglu(gates, up, to)
        }
    }
}

/// An activation that gates nothing. (A step does not have the clamped one, and that with numbers of its own is [`xielu`].)
pub(super) fn activate(k: &Kernels<f32>, gate: Gate, x: &[f32], to: &mut [f32]) -> Result<(), KernelError> {
    match gate {
        Gate::Silu | Gate::ClampedSwiglu | Gate::Xielu => k.silu(x, to),
        Gate::GeluTanh => k.gelu_tanh(x, to),
        Gate::Gelu => k.gelu(x, to),
        Gate::ReluSquared => {
            k.relu(x, to)?;
            k.vec_mul_inplace(x, to)
        }
    }
}

/// [`Gate::Xielu`] without gates: `x / 2 + positive max(x, 0)^2 + negative (exp(m) - 1 - min(x, 0))` with `m = min(x, -1e-6)`, but that the last summand is 0
/// above 0. What `x` holds afterwards says nothing.
fn xielu(
    k: &Kernels<f32>,
    [positive, negative]: [f32; 2],
    x: &mut [f32],
    to: &mut [f32],
) -> Result<(), KernelError> {
    const MOST: f32 = -1e-6;
    k.relu(x, to)?;
    k.vec_mul_inplace(x, to)?;
    k.vec_scale_inplace(positive, to)?;
    k.vec_axpy(0.5, x, to)?;
    // The exponential is of what is below 0 alone: above, the summand is `exp(0) - 1 - 0`.
    x.iter_mut().for_each(|x| *x = x.min(0.0));
    k.vec_axpy(-negative, x, to)?;
    x.iter_mut().for_each(|x| *x = if *x < 0.0 { x.min(MOST) } else { 0.0 });
    k.exp_inplace(x)?;
    x.iter_mut().for_each(|x| *x -= 1.0);
    k.vec_axpy(negative, x, to)
}

/// What is above the mean by so many standard deviations remains, less that; the rest is 0.
fn sparsify(k: &Kernels<f32>, deviations: f32, x: &mut [f32]) -> Result<(), KernelError> {
    let n = x.len() as f32;
    let mean = k.vec_sum(x)? / n;
    x.iter_mut().for_each(|x| *x -= mean);
    let least = deviations * (k.vec_dot(x, x)? / n).sqrt();
    // What is no number stays none.
    x.iter_mut().for_each(|x| *x = if *x <= least { 0.0 } else { *x - least });
    Ok(())
}

/// Does a row.
///
/// # Safety
/// The contract of [`RowOp::run`].
unsafe fn one(k: &Kernels<f32>, work: &RowWork, row: usize, memory: &mut Memory) -> Result<(), KernelError> {
    // SAFETY: the caller's contract.
    unsafe {
        match work {
            RowWork::Norm { add, x, norm, stays, to } => {
                let x = x.row(row);
                if let Some(add) = add {
                    let delta = add.delta.row(row);
                    if let Some((post, eps)) = add.post {
                        k.rms_norm_inplace(Some(&*post), eps, delta)?;
                    }
                    if add.scale != 1.0 {
                        k.vec_scale_inplace(add.scale, x)?;
                    }
                    k.vec_add_inplace(delta, x)?;
                }
                let to = to.row(row);
                let x = &mut x[..to.len()];
                match norm {
                    None => to.copy_from_slice(x),
                    Some(NormOf { kind: Norm::Rms, weight, eps, .. }) => {
                        k.rms_norm(x, Some(&**weight), *eps, to)?
                    }
                    Some(NormOf { kind: Norm::Layer, weight, bias, eps }) => {
                        k.layer_norm(x, Some(&**weight), bias.map(|bias| &*bias), *eps, to)?
                    }
                }
                if *stays {
                    x.copy_from_slice(to);
                }
            }
            RowWork::NormParts { x, weight, part, eps } => {
                let parts = x.row(row).chunks_exact_mut(*part).zip((**weight).chunks_exact(*part));
                for (x, weight) in parts {
                    k.rms_norm_inplace(Some(weight), *eps, x)?;
                }
            }
            RowWork::Join { pieces, to } => pieces.join(k, row, to.row(row))?,
            RowWork::Glu { gate, sparsity, x, to } => {
                let x = x.row(row);
                if let Some(deviations) = *sparsity {
                    let gates = x.len() / 2;
                    sparsify(k, deviations, &mut x[..gates])?;
                }
                glu(k, *gate, x, to.row(row))?;
            }
            RowWork::Streams(work) => work.run(k, row, memory)?,
            RowWork::Activate { gate, x, to } => activate(k, *gate, x.row(row), to.row(row))?,
            RowWork::Xielu { numbers, x, to } => xielu(k, *numbers, x.row(row), to.row(row))?,
            RowWork::GateBy { gate, x, by, at, to } => {
                let to = to.row(row);
                activate(k, *gate, x.row(row), to)?;
                k.vec_mul_inplace(&by.row(row)[*at..*at + to.len()], to)?;
            }
            RowWork::Split { x, plan, to } => {
                let (x, to) = (x.get(row / 2..row / 2 + 1), to.row(row));
                to.copy_from_slice(x);
                if row % 2 == 1 {
                    let room = memory.bytes(plan.prepared_size()?.size_unaligned());
                    let rounded = plan.prepare(MatRef::new(x, 1, x.len())?, room)?;
                    for (g, to) in to.chunks_mut(GROUP).enumerate() {
                        let (q, d) = rounded.group(0, g).unwrap_or((&[0; GROUP], 0.0));
                        to.iter_mut().zip(q).for_each(|(x, &q)| *x -= f32::from(q) * d);
                    }
                }
            }
            RowWork::Cap { x, cap } => {
                let x = x.row(row);
                k.vec_scale_inplace(1.0 / cap, x)?;
                k.tanh_inplace(x)?;
                k.vec_scale_inplace(*cap, x)?;
            }
            RowWork::Pool { pooling, runs, x, to } => {
                let (rows, to) = (runs[row].clone(), to.row(row));
                match pooling {
                    Pooling::Mean => {
                        to.fill(0.0);
                        for row in rows.clone() {
                            k.vec_add_inplace(x.row(row), to)?;
                        }
                        k.vec_scale_inplace(1.0 / rows.len() as f32, to)?;
                    }
                    Pooling::First => to.copy_from_slice(x.row(rows.start)),
                    Pooling::Last => to.copy_from_slice(x.row(rows.end - 1)),
                }
                let length = k.vec_dot(to, to)?.sqrt();
                if length != 0.0 {
                    k.vec_scale_inplace(1.0 / length, to)?;
                }
            }
            // These are not done row by row.
            RowWork::Embed { .. } | RowWork::Gather { .. } | RowWork::Round => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gllm_kernels_core::{Precision, QuantFormat};

    use super::*;

    /// The activation is its definition but for rounding, on both sides of 0, and what is no number stays none.
    #[test]
    fn xielu_is_what_its_definition_says() {
        let (k, [positive, negative]) = (crate::kernels::<f32>(), [0.7f32, 1.3]);
        let mut x: Vec<f32> = (-60..60).map(|i| (i as f32 / 7.0).powi(3) / 40.0).collect();
        x.extend([0.0, -0.0, 1e-8, -1e-8, -1e-6, -2e-6, -90.0, 50.0]);
        let from = x.clone();
        let mut y = vec![f32::NAN; x.len()];
        xielu(&k, [positive, negative], &mut x, &mut y).unwrap();
        for (x, y) in from.into_iter().map(f64::from).zip(y) {
            let below = f64::from(negative) * (x.min(-1e-6).exp_m1() - x);
            let want = 0.5 * x + if x > 0.0 { f64::from(positive) * x * x } else { below };
            let error = (want - f64::from(y)).abs();
            assert!(error <= 3e-6 * (1.0 + want.abs()), "{x}: {y} instead of {want}");
        }
        let mut y = [0.0; 1];
        xielu(&k, [positive, negative], &mut [f32::NAN], &mut y).unwrap();
        assert!(y[0].is_nan());
    }

    /// A row that is split is the sum of two rows in 8 bits but for 1/250 of what one of them loses; rows in which nothing is lost, or which are no
    /// numbers, stay what they are.
    #[test]
    fn split_rows_have_15_bits() {
        let (k, cols, rows) = (crate::kernels::<f32>(), 96, 4);
        let plan = k.qgemm_plan(QuantFormat::Q8_0, 1, 64, cols, Precision::Integer).unwrap().packed(true);
        let mut x: Vec<f32> = (0..rows * cols).map(|i| ((i * i % 1009) as f32 - 500.0) / 77.0).collect();
        x[cols..2 * cols].fill(0.0);
        x[3 * cols + 7] = f32::NAN;
        let mut halves = vec![0.0; 2 * rows * cols];
        let [from, to] = [&mut x, &mut halves].map(|v| Rows { ptr: v.as_mut_ptr(), width: cols });
        let work = RowWork::Split { x: from, plan, to };
        let op = RowOp { rows: 2 * rows, step: 1, work, out: to, rounded: Vec::new() };
        let mut memory = Memory::new();
        // Odd and even numbers of rows.
        for part in [0..3, 3..4, 4..2 * rows] {
            // SAFETY: all rows exist, and nobody else uses them.
            unsafe { op.run(&k, part, &mut memory).unwrap() };
        }
        let mut room = vec![0; plan.prepared_size().unwrap().size_unaligned()];
        let mut rounded = |row: &[f32]| {
            let row = plan.prepare(MatRef::new(row, 1, cols).unwrap(), &mut room).unwrap();
            let groups = (0..cols / GROUP).map(|g| row.group(0, g).unwrap());
            groups.flat_map(|(q, d)| q.map(|q| (f32::from(q) * d, d))).collect::<Vec<_>>()
        };
        for (x, both) in x.chunks(cols).zip(halves.chunks(2 * cols)) {
            let (whole, rest) = both.split_at(cols);
            let parts = rounded(whole).into_iter().zip(rounded(rest)).zip(rest);
            for (x, (((whole, d), (lost, _)), rest)) in x.iter().zip(parts) {
                assert!(d.is_nan() || (x - whole - rest).abs() <= 1e-6 * x.abs(), "{x}: {whole} and {rest}");
                assert!(d.is_nan() || (x - whole - lost).abs() <= d / 250.0, "{x}: {whole} and {lost}, {d}");
            }
        }
        assert!(halves[7 * cols + 7].is_nan());
        assert_eq!(halves[2 * cols..4 * cols], vec![0.0; 2 * cols]);
    }
}
