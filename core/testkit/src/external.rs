//! Weights in the layouts of other checkpoints: packed here, decoded bit for bit, products within the bound.

use std::ops::Range;

use gllm_kernels_core::{Element, IsaLevel, KernelError, Kernels, MatMut, StorePolicy};

use crate::data::both_walks;
use crate::guard::is_poison;
use crate::numeric::{gamma, same, sum as exact_sum, wide};
use crate::report::Report;
use crate::{call, Edge, Guarded};

mod fp8;
mod grouped;
mod squeezellm;

pub use fp8::{dequant_fp8, qgemv_fp8};
pub use grouped::{dequant_awq, dequant_gptq, qgemv_awq, qgemv_gptq};
pub use squeezellm::{dequant_squeezellm, qgemv_squeezellm};

/// What weights are: row-major, a row for each output.
struct Truth {
    outputs: usize,
    inputs: usize,
    /// Exactly.
    exact: Vec<f64>,
    /// As the format defines their decode.
    decoded: Vec<f32>,
}

impl Truth {
    fn new(outputs: usize, inputs: usize, mut weight: impl FnMut(usize, usize) -> (f64, f32)) -> Self {
        let all = (0..outputs * inputs).map(|i| weight(i / inputs, i % inputs));
        let (exact, decoded) = all.unzip();
        Self { outputs, inputs, exact, decoded }
    }

    /// Some outputs, in steps of `step`: all, the first and last, some in the middle.
    fn ranges(&self, step: usize) -> Vec<Range<usize>> {
        let n = self.outputs;
        let down = |i: usize| i / step * step;
        let mut ranges = vec![0..n, 0..down(n / 2), down(n / 2)..n, down(n / 3)..down(2 * n / 3)];
        ranges.dedup();
        ranges
    }
}

/// How a format lies in memory, as far as checks need it.
struct Layout {
    /// Whether a decoded row has all inputs of an output, not all outputs of an input.
    by_output: bool,
    /// Multiples of which ranges of outputs start at.
    step: usize,
}

type Decode<'a, E> = dyn Fn(&Kernels<E>, Range<usize>, MatMut<'_, E>) -> Result<(), KernelError> + 'a;
type Product<'a, E> = dyn Fn(&Kernels<E>, Range<usize>, &[E], &mut [f32]) -> Result<(), KernelError> + 'a;

/// Every range of outputs, with and without a gap between rows, cached and streamed.
fn check_decode<E: Element>(
    level: IsaLevel,
    truth: &Truth,
    layout: &Layout,
    what: &str,
    report: &mut Report,
    decode: &Decode<'_, E>,
) -> Result<(), String> {
    let k = Kernels::<E>::forced(level).map_err(|e| e.to_string())?;
    let policies = [StorePolicy::Cached, StorePolicy::Streamed];
    for range in truth.ranges(layout.step) {
        let (rows, cols) =
            if layout.by_output { (range.len(), truth.inputs) } else { (truth.inputs, range.len()) };
        for k in both_walks(&k).map(|k| policies.map(|p| k.with_stores(p))).as_flattened() {
            let gap = [0, 0, 1, 16][report.cases % 4];
            let edge = Edge::BOTH[report.cases / 2 % 2];
            let stride = cols + gap;
            let len = if rows == 0 { 0 } else { (rows - 1) * stride + cols };
            let mut y = Guarded::<E>::poisoned(len, edge);
            let case = || format!("{what}, outputs {range:?}, stride {stride}, {edge:?}");
            let view = MatMut::with_strides(&mut y, rows, cols, stride, 1).map_err(|e| e.to_string())?;
            call(|| decode(k, range.clone(), view)).map_err(|e| format!("{}: {e}", case()))?;
            report.cases += 1;
            for (i, row) in y.chunks(stride.max(1)).enumerate() {
                let (row, gap) = row.split_at(cols);
                if !is_poison(gap) {
                    return Err(format!("{}: writes behind row {i}", case()));
                }
                for (j, &got) in row.iter().enumerate() {
                    let (output, input) = if layout.by_output { (i, j) } else { (j, i) };
                    let want = truth.decoded[(range.start + output) * truth.inputs + input];
                    let want = E::from_f32(want);
                    let err = if same(got, want) { 0.0 } else { f64::INFINITY };
                    report.see(err, 0.0, || format!("{}, {i},{j}: {got:?} instead of {want:?}", case()))?;
                }
            }
            if !y.intact() {
                return Err(format!("{}: writes outside of the output", case()));
            }
        }
    }
    Ok(())
}

/// All outputs against exact sums, `steps` being the roundings that a term may go through, 0 if there is
/// none; and ranges of outputs against all.
fn check_product<E: Element>(
    level: IsaLevel,
    truth: &Truth,
    layout: &Layout,
    (x, steps): (&[E], usize),
    report: &mut Report,
    product: &Product<'_, E>,
) -> Result<(), String> {
    let k = Kernels::<E>::forced(level).map_err(|e| e.to_string())?;
    let xs = Edge::BOTH.map(|edge| (edge, Guarded::copy_of(x, edge)));
    let mut all = vec![];
    for (range, (edge, x)) in
        truth.ranges(layout.step).iter().flat_map(|range| xs.each_ref().map(|x| (range, x)))
    {
        let mut y = Guarded::<f32>::poisoned(range.len(), *edge);
        let case = || format!("{}x{}, outputs {range:?}", truth.outputs, truth.inputs);
        call(|| product(&k, range.clone(), x, &mut y)).map_err(|e| format!("{}: {e}", case()))?;
        if !y.intact() {
            return Err(format!("{}: writes outside of the output", case()));
        }
        report.cases += 1;
        if all.is_empty() {
            all = y.to_vec();
        }
        if all[range.clone()].iter().zip(&*y).any(|(&a, &b)| !same(a, b)) {
            return Err(format!("{}: differ from all outputs together", case()));
        }
    }
    let x = wide(x);
    for (r, &got) in all.iter().enumerate() {
        let row = &truth.exact[r * truth.inputs..][..truth.inputs];
        let (want, magnitudes) = exact_sum(row.iter().zip(&x).map(|(w, x)| w * x));
        if !want.is_finite() {
            let err = if got.is_finite() { 2.0 } else { 0.0 };
            report.see(err, 1.0, || format!("output {r}: {got} instead of {want}"))?;
            continue;
        }
        let err = (f64::from(got) - want).abs();
        let err = if err == 0.0 { 0.0 } else { err / gamma(steps, magnitudes) };
        let case = || format!("{}x{}, output {r}: {got} instead of {want}", truth.outputs, truth.inputs);
        report.see(err, 1.0, case)?;
    }
    Ok(())
}
