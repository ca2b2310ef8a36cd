//! Matrix times vector.

use gllm_kernels_core::{Element, KernelError, KernelInfo, Kernels, Op};

use crate::data::{long, Source};
use crate::gemm::{check, Case, Sample};
use crate::matrix::{Layout, Matrix};
use crate::numeric::{gamma, same, sum as exact_sum, Number};
use crate::report::{Outcome, Report};
use crate::{call, effort, Edge, Guarded};

/// Scalars of one call.
#[derive(Clone, Copy, Debug)]
struct Factors {
    alpha: f32,
    beta: f32,
}

const FACTORS: [Factors; 5] = [
    Factors { alpha: 1.0, beta: 0.0 },
    Factors { alpha: -1.5, beta: 1.0 },
    Factors { alpha: 1.0, beta: -0.5 },
    Factors { alpha: 0.0, beta: -0.5 },
    Factors { alpha: 0.0, beta: 0.0 },
];

/// `y = alpha A x + beta y` on guarded memory, with `y` as it was before and after.
fn run<E: Element + Number>(
    k: &Kernels<E>,
    a: &Matrix<E>,
    x: &[E],
    f: Factors,
    y0: &[f32],
    edge: Edge,
) -> Result<Vec<f32>, String> {
    let x = Guarded::copy_of(x, edge);
    let mut y = Guarded::copy_of(y0, edge);
    if f.beta == 0.0 {
        y.fill(f32::NAN);
    }
    call(|| k.gemv(f.alpha, a.view()?, &x, f.beta, &mut y)).map_err(|e: KernelError| e.to_string())?;
    if !y.intact() {
        return Err("writes outside of y".into());
    }
    Ok(y.to_vec())
}

/// `gemv`: whole numbers come out exactly, others within the bound of a plain sum.
pub fn gemv<E: Element + Sample>(row: &KernelInfo) -> Outcome {
    let k = Kernels::<E>::forced(row.level).map_err(|e| e.to_string())?;
    let lanes = row.level.lanes();
    let mut source = Source::new(7);
    let mut report = Report::BOUND;
    let mut sizes = if effort() > 0 { vec![(67, long::<E>() / 64), (long::<E>() / 64, 19)] } else { vec![] };
    let short = [0, 1, 2, 7, 8, 9, 17];
    let mut across = vec![0, 1, lanes - 1, lanes, lanes + 1, 2 * lanes + 1, 4 * lanes - 1, 127];
    if effort() > 1 {
        across.extend([4 * lanes + 1, 8 * lanes, 509]);
    }
    for s in short {
        sizes.extend(across.iter().flat_map(|&a| [(s, a), (a, s)]));
    }
    for (rows, cols) in sizes {
        for layout in Layout::ALL {
            let f = FACTORS[report.cases % FACTORS.len()];
            let edge = Edge::BOTH[report.cases / 2 % 2];
            let whole = !report.cases.is_multiple_of(3);
            let mut values = |n| if whole { source.whole::<E>(n, 3) } else { source.normals(n) };
            let (x, data) = (values(cols), values(rows * cols));
            let a = Matrix::new(rows, cols, layout, edge, |i, j| data[i * cols + j]);
            let y0: Vec<f32> = if whole { source.whole(rows, 3) } else { source.normals(rows) };
            let what = || format!("{rows}x{cols} {layout:?} {f:?}");
            let y = run(&k, &a, &x, f, &y0, edge).map_err(|e| format!("{}: {e}", what()))?;
            report.cases += 1;
            for (i, &got) in y.iter().enumerate() {
                let terms = (0..cols).map(|j| a.get(i, j) * f64::from(x[j].to_f32()));
                let (dot, magnitudes) = exact_sum(terms);
                let (alpha, before) = (f64::from(f.alpha), f64::from(f.beta) * f64::from(y0[i]));
                let exact = alpha * dot + before;
                let bound = gamma(cols + 4, alpha.abs() * magnitudes + before.abs());
                let bound = if whole { 0.0 } else { bound };
                let err = (f64::from(got) - exact).abs();
                let err = if err == 0.0 { 0.0 } else { err / bound };
                report.see(err, 1.0, || format!("{}, row {i}: {got} instead of {exact}", what()))?;
            }
        }
    }
    specials(&k, lanes, &mut report)?;
    vectors(&k, lanes, &mut source, &mut report)?;
    Ok(report)
}

/// Products whose `C` is a row or a column, wherever its elements and those of the other vector lie.
fn vectors<E: Element + Sample>(
    k: &Kernels<E>,
    lanes: usize,
    source: &mut Source,
    report: &mut Report,
) -> Result<(), String> {
    let forms = [Op::Gemm, Op::GemmBias, Op::GemmBt, Op::GemmFused];
    let shapes = [(1, 70), (2, 1), (31, 1), (32, 1), (33, 1), (70, 1)];
    let mut turn = 0;
    for (m, n) in shapes {
        if n == 1 && m > 32 {
            let plan = k.gemm_plan(m, n, 9).map_err(|e| e.to_string())?;
            if Some(plan.kernel_name()) != k.kernel(Op::Gemv, None).map(|row| row.name) {
                return Err(format!("the plan of {m}x{n} names {}", plan.kernel_name()));
            }
        }
        for depth in [1, 7, 2 * lanes + 1, 67] {
            for (a, b) in Layout::ALL.into_iter().flat_map(|a| Layout::ALL.map(|b| (a, b))) {
                // Offsets that are coprime to the numbers of layouts and factors.
                turn += 1;
                let c = Layout::DISTINCT[turn % Layout::DISTINCT.len()];
                let (alpha, beta) = E::FACTORS[turn / 2 % E::FACTORS.len()];
                let (whole, edge) = (turn % 5 != 0, Edge::BOTH[turn / 3 % 2]);
                let case = Case { m, n, k: depth, a, b, c, alpha, beta, whole, edge };
                check(forms[turn / 7 % forms.len()], k, &case, source, report)?;
            }
        }
    }
    Ok(())
}

/// NaN and infinities reach exactly the rows they belong to.
fn specials<E: Element + Number>(k: &Kernels<E>, lanes: usize, report: &mut Report) -> Result<(), String> {
    let (rows, cols) = (19, 4 * lanes + 3);
    for layout in Layout::DISTINCT {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for (r, c) in [(0, 0), (7, cols - 1), (16, 1), (rows - 1, cols / 2)] {
                let special = |i, j| E::from_f32(if (i, j) == (r, c) { value } else { 1.0 });
                let a = Matrix::new(rows, cols, layout, Edge::End, special);
                let x = vec![E::from_f32(-1.0); cols];
                let f = Factors { alpha: 1.0, beta: 0.0 };
                let y = run(k, &a, &x, f, &[0.0; 19], Edge::End)?;
                report.cases += 1;
                for (i, &got) in y.iter().enumerate() {
                    let want = if i == r { -value } else { -(cols as f32) };
                    if !same(got, want) {
                        return Err(format!("{layout:?}: {value} at {r},{c}: y[{i}] = {got}, not {want}"));
                    }
                }
                // With alpha = 0, nothing of A is read.
                let f = Factors { alpha: 0.0, beta: 1.0 };
                if run(k, &a, &x, f, &[2.0; 19], Edge::End)?.iter().any(|&y| y != 2.0) {
                    return Err(format!("{layout:?}: alpha = 0, beta = 1 changes y"));
                }
            }
        }
    }
    Ok(())
}
