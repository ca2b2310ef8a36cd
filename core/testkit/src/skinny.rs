//! Products with a few rows.

use gllm_kernels_core::{kernels, Element, KernelError, KernelInfo, Kernels, MatMut, MatRef, Op, Scratch};

use crate::data::Source;
use crate::gemm::{check, specials, Case, Sample};
use crate::matrix::{Layout, Matrix};
use crate::report::{Outcome, Report};
use crate::{effort, Edge};

/// The forms that take this way.
const FORMS: [Op; 4] = [Op::Gemm, Op::GemmBias, Op::GemmBt, Op::GemmPrepacked];

/// Rows: around every block and the largest number.
const HEIGHTS: [usize; 12] = [2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32];

/// Layouts of `B` that are read as they are; then one that is packed.
const LAYOUTS: [Layout; 7] = [
    Layout::Rows,
    Layout::Cols,
    Layout::PaddedRows,
    Layout::PaddedCols,
    Layout::OneRow,
    Layout::OneCol,
    Layout::Spread,
];

/// `gemm_skinny`: whole numbers come out exactly, others within the bound of a plain sum; a row's bits do
/// not depend on the other rows, nor on the columns that are computed with it.
pub fn skinny<E: Element + Sample>(row: &KernelInfo) -> Outcome {
    let k = Kernels::<E>::forced(row.level).map_err(|e| e.to_string())?;
    let lanes = row.level.lanes();
    let mut source = Source::new(13);
    let mut report = Report::BOUND;
    let mut turn = 0;
    let mut case = |(m, n, depth), (a, b, c): (Layout, Layout, Layout)| {
        turn += 1;
        let (alpha, beta) = E::FACTORS[turn % E::FACTORS.len()];
        let edge = Edge::BOTH[turn / 2 % 2];
        let case = Case { m, n, k: depth, a, b, c, alpha, beta, whole: turn % 5 != 0, edge };
        check(FORMS[turn / 7 % FORMS.len()], &k, &case, &mut source, &mut report)
    };
    let mut left = Layout::ALL.iter().cycle();
    let mut out = Layout::DISTINCT.iter().cycle();
    let some = if effort() > 0 { 1 } else { 2 };
    for m in HEIGHTS.into_iter().step_by(some) {
        let plan = k.gemm_plan(m, 40, 50).map_err(|e| e.to_string())?;
        if plan.kernel_name() != row.name {
            return Err(format!("the plan names {} instead", plan.kernel_name()));
        }
        for b in LAYOUTS {
            for n in [5, 1, 6, 7, 2 * lanes - 1, 2 * lanes, 2 * lanes + 1, 37].into_iter().step_by(some) {
                for depth in [lanes, 1, lanes - 1, 11, 12, 13, 4 * lanes + 3].into_iter().step_by(some) {
                    case((m, n, depth), (*left.nth(2).unwrap(), b, *out.next().unwrap()))?;
                }
            }
            // Several pieces of a row of weights, with and without rest.
            for depth in [512, 513, 1024 + lanes, 1151].into_iter().take(if effort() > 1 { 4 } else { 2 }) {
                case((m, 13, depth), (Layout::Rows, b, *out.next().unwrap()))?;
            }
        }
    }
    if effort() > 1 {
        // Several stripes of columns.
        for (m, n) in [(32, 2048), (32, 2049), (31, 4211)] {
            case((m, n, 14), (Layout::Rows, Layout::Rows, Layout::PaddedRows))?;
            case((m, n, 3), (Layout::Cols, Layout::PaddedRows, Layout::Cols))?;
        }
    }
    for op in FORMS {
        for m in [3, 8, 17] {
            specials(op, m, &k, &mut report)?;
        }
    }
    for b in [Layout::Rows, Layout::Cols] {
        companions(&k, b, &mut source, &mut report).map_err(|e| format!("{b:?}: {e}"))?;
    }
    // Every kind of panels that kernels of this level have.
    for row in kernels().filter(|r| (r.op, r.element, r.level) == (Op::GemmPrepacked, E::TYPE, row.level)) {
        if let Ok(k) = k.with_gemm(row) {
            panels(&k, &mut source, &mut report).map_err(|e| format!("{}: {e}", row.name))?;
        }
    }
    Ok(report)
}

/// Prepacked products of few rows: right, and any rows and columns of one have the bits that they have in the whole.
fn panels<E: Element + Sample>(
    k: &Kernels<E>,
    source: &mut Source,
    report: &mut Report,
) -> Result<(), String> {
    for m in HEIGHTS.into_iter().chain([1]) {
        for (turn, (n, depth)) in
            [(1, 1), (3, 12), (31, 25), (33, 24), (64, 7), (75, 301)].into_iter().enumerate()
        {
            let (alpha, beta) = E::FACTORS[(turn + m) % E::FACTORS.len()];
            let (a, c) =
                (Layout::ALL[m % Layout::ALL.len()], Layout::DISTINCT[turn % Layout::DISTINCT.len()]);
            let (edge, whole) = (Edge::BOTH[m / 2 % 2], turn % 3 != 0);
            let case = Case { m, n, k: depth, a, b: Layout::Rows, c, alpha, beta, whole, edge };
            check(Op::GemmPrepacked, k, &case, source, report)?;
        }
    }
    let (m, n, depth) = (32, 150, 61);
    let (a, b): (Vec<E>, Vec<E>) = (source.normals(m * depth), source.normals(depth * n));
    let mut go = || -> Result<bool, KernelError> {
        let (a, b) = (MatRef::new(&a, m, depth)?, MatRef::new(&b, depth, n)?);
        let mut buffer = vec![0; k.packed_b_size(depth, n)?];
        let packed = k.pack_b(b, &mut buffer)?;
        let product = |whole: usize, i: usize, rows: usize, j: usize, cols: usize| {
            let plan = k.gemm_plan(whole, n, depth)?.resized(rows, cols)?;
            let mut memory = vec![0; plan.scratch_packed()?.size_unaligned()];
            let mut c = vec![f32::NAN; rows * cols];
            let (view, a) = (MatMut::new(&mut c, rows, cols)?, a.row_range(i, rows)?);
            plan.run(view, a, packed.col_range(j, cols)?, None, Scratch::new(&mut memory))?;
            Ok::<_, KernelError>(c)
        };
        let step = packed.col_step();
        let mut same = true;
        for whole in [2, 32, 100] {
            let all = product(whole, 0, m.min(whole), 0, n)?;
            let parts = [(0, 1), (1, 1), (31, 1), (5, 2), (1, 16), (0, 31)];
            for (i, rows) in parts.into_iter().filter(|(i, rows)| i + rows <= whole) {
                for (j, cols) in [(0, 1), (0, n), (step, 1), (step, n - step), (n / step * step, n % step)] {
                    let part = product(whole, i, rows, j, cols)?;
                    report.cases += 1;
                    same &= part
                        .iter()
                        .enumerate()
                        .all(|(at, x)| x.to_bits() == all[(i + at / cols) * n + j + at % cols].to_bits());
                }
            }
        }
        Ok(same)
    };
    match go() {
        Ok(true) => Ok(()),
        Ok(false) => Err("a part has other bits than the whole".into()),
        Err(e) => Err(e.to_string()),
    }
}

/// Any rows and columns of a product have the bits that they have in the whole, `gemv`'s bits included.
fn companions<E: Element>(
    k: &Kernels<E>,
    layout: Layout,
    source: &mut Source,
    report: &mut Report,
) -> Result<(), String> {
    let (m, n, depth) = (32, 61, 1000 / (9 - effort()));
    let (a, b): (Vec<E>, Vec<E>) = (source.normals(m * depth), source.normals(depth * n));
    let b = Matrix::new(depth, n, layout, Edge::End, |p, j| b[p * n + j]);
    let bias: Vec<f32> = source.normals(n);
    let start: Vec<f32> = source.normals(m * n);
    let product = |biased: bool, (i, rows): (usize, usize), (j, cols): (usize, usize)| {
        let plan = k.gemm_plan(rows, cols, depth)?.alpha(-1.5).beta(0.7);
        let a = MatRef::new(&a, m, depth)?.row_range(i, rows)?;
        let b = b.view()?.t().row_range(j, cols)?.t();
        let old = |r: usize, c: usize| start[(i + r) * n + j + c];
        let mut c = Matrix::new(rows, cols, Layout::PaddedRows, Edge::End, old);
        let mut memory = vec![0; plan.scratch()?.size_unaligned()];
        let scratch = Scratch::new(&mut memory);
        if biased {
            plan.run(c.view_mut()?, a, b, Some(&bias[j..j + cols]), scratch)?;
        } else {
            plan.run(c.view_mut()?, a, b, None, scratch)?;
        }
        Ok::<_, KernelError>(c)
    };
    for biased in [false, true] {
        let whole = product(biased, (0, m), (0, n)).map_err(|e| e.to_string())?;
        for rows in [(0, 1), (31, 1), (5, 2), (9, 7), (1, 16), (0, 31)] {
            for cols in [(0, n), (0, 1), (7, 13), (60, 1), (20, 41)] {
                let part = product(biased, rows, cols).map_err(|e| e.to_string())?;
                report.cases += 1;
                for i in 0..rows.1 {
                    for j in 0..cols.1 {
                        let (got, want) = (part.get(i, j), whole.get(rows.0 + i, cols.0 + j));
                        if got.to_bits() != want.to_bits() {
                            return Err(format!("rows {rows:?}, columns {cols:?}: {got} instead of {want}"));
                        }
                    }
                }
            }
        }
    }
    Ok(())
}
