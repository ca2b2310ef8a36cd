//! Row-wise operators: softmax and the norms.

use gllm_kernels_core::{Element, KernelError, KernelInfo, Kernels, Softmax, StorePolicy};

use crate::data::{both_walks, lengths, long, Source};
use crate::numeric::{gamma, same, sum, ulp, wide};
use crate::report::{Outcome, Report};
use crate::{call, effort, Edge, Guarded};

/// Half the distance from 1 to its neighbour in f32: the relative error of a rounding.
const U: f64 = f32::EPSILON as f64 / 2.0;

/// Rows of so many bytes are walked several pages side by side, where prefetchers allow it.
const SIDE_BY_SIDE_BYTES: usize = 16 << 10;

/// An exact output and the error that f32 arithmetic may add before it is narrowed.
type Want = (f64, f64);

/// A row-wise operator: kernels, columns, input, output.
type Run<'a, E> = &'a dyn Fn(&Kernels<E>, usize, &[E], &mut [E]) -> Result<(), KernelError>;

/// In place: kernels, columns, rows.
type InPlace<'a, E> = &'a dyn Fn(&Kernels<E>, usize, &mut [E]) -> Result<(), KernelError>;

/// Roundings that one term of a row's sum may go through: its chain, up to four vectors and a
/// remainder beyond the unrolled ones, the join of four chains, the lanes, its own.
fn steps(row: &KernelInfo, n: usize) -> usize {
    n.div_ceil(4 * row.level.lanes()) + 12
}

/// Column counts: the usual lengths, whole pages (walked side by side), more than any buffer.
fn columns(row: &KernelInfo) -> impl Iterator<Item = usize> {
    let large = [2048, 9001, 4096, 8192].into_iter().take(2 + 2 * effort());
    lengths(row.level).into_iter().chain(large)
}

/// Whether the longest rows are tried with the parameters of this turn.
fn is_long(turn: usize) -> bool {
    effort() > 1 || effort() == 1 && turn == 0
}

struct RowWise<'a, E: Element> {
    run: Run<'a, E>,
    in_place: InPlace<'a, E>,
    /// The outputs of one row.
    want: &'a dyn Fn(&[E]) -> Vec<Want>,
}

impl<E: Element> RowWise<'_, E> {
    /// Runs `x` in rows of `cols` through every form; all must agree bit for bit, and with the oracle.
    fn case(
        &self,
        k: &Kernels<E>,
        cols: usize,
        x: &[E],
        what: &str,
        report: &mut Report,
    ) -> Result<(), String> {
        let rows = x.len().checked_div(cols).unwrap_or(0);
        let fail = |e: &dyn std::fmt::Display| format!("{what}, {rows} rows of {cols}: {e}");
        let mut first: Option<Vec<E>> = None;
        for (stores, from, to) in [
            (StorePolicy::Cached, Edge::Start, Edge::Start),
            (StorePolicy::Cached, Edge::End, Edge::End),
            (StorePolicy::Streamed, Edge::End, Edge::Start),
            (StorePolicy::Streamed, Edge::Start, Edge::End),
        ] {
            let (gx, mut y) = (Guarded::copy_of(x, from), Guarded::<E>::poisoned(x.len(), to));
            let k = k.with_stores(stores);
            call(|| (self.run)(&k, cols, &gx, &mut y)).map_err(|e| fail(&e))?;
            if !y.intact() || !gx.iter().zip(x).all(|(&a, &b)| same(a, b)) {
                return Err(fail(&"writes outside of the output"));
            }
            if first.as_ref().is_some_and(|f| !f.iter().zip(&y[..]).all(|(&a, &b)| same(a, b))) {
                return Err(fail(&format_args!("{stores:?} or alignment changes the result")));
            }
            first.get_or_insert_with(|| y.to_vec());
            let mut y = Guarded::copy_of(x, from);
            call(|| (self.in_place)(&k, cols, &mut y)).map_err(|e| fail(&e))?;
            if !first.iter().flatten().zip(&y[..]).all(|(&a, &b)| same(a, b)) || !y.intact() {
                return Err(fail(&"in place differs"));
            }
            report.cases += 2;
        }
        let y = first.unwrap_or_default();
        // So far operands began where pages do. Rows of whole pages are walked in another way then than elsewhere.
        let apart = 1024 / size_of::<E>();
        let mut shifted = Guarded::<E>::poisoned(apart + x.len(), Edge::Start);
        shifted[apart..].copy_from_slice(x);
        for stores in [StorePolicy::Cached, StorePolicy::Streamed] {
            let mut other = Guarded::<E>::poisoned(x.len(), Edge::Start);
            let k = k.with_stores(stores);
            call(|| (self.run)(&k, cols, &shifted[apart..], &mut other)).map_err(|e| fail(&e))?;
            if !other.iter().zip(&y).all(|(&a, &b)| same(a, b)) {
                return Err(fail(&format_args!("{stores:?}: the place in a page changes the result")));
            }
            report.cases += 1;
        }
        for (r, (x, y)) in x.chunks(cols.max(1)).zip(y.chunks(cols.max(1))).enumerate() {
            let mut alone = vec![E::ZERO; cols];
            call(|| (self.run)(k, cols, x, &mut alone)).map_err(|e| fail(&e))?;
            if !alone.iter().zip(y).all(|(&a, &b)| same(a, b)) {
                return Err(fail(&format_args!("row {r} alone differs")));
            }
            for (i, (&got, (exact, bound))) in y.iter().zip((self.want)(x)).enumerate() {
                let (got, nan) = (f64::from(got.to_f32()), exact.is_nan());
                let err = if nan && got.is_nan() { 0.0 } else { (got - exact).abs() };
                let allowed = if nan { 1.0 } else { bound + 0.502 * ulp::<E>(exact) };
                let at = || fail(&format_args!("row {r}, column {i}: {got:e} instead of {exact:e}"));
                report.see(err / allowed, 1.0, at)?;
            }
        }
        Ok(())
    }

    /// Every column count, some row counts, on rows from `make`; then one NaN in the middle row.
    fn check(
        &self,
        k: &Kernels<E>,
        row: &KernelInfo,
        what: &str,
        make: &dyn Fn(&mut Source, usize) -> Vec<E>,
        report: &mut Report,
    ) -> Result<(), String> {
        let mut source = Source::new(7);
        for cols in columns(row) {
            for rows in if cols < 64 { vec![1, 2, 3, 4] } else { vec![3] } {
                let x: Vec<E> = (0..rows).flat_map(|_| make(&mut source, cols)).collect();
                if cols * size_of::<E>() < SIDE_BY_SIDE_BYTES {
                    self.case(k, cols, &x, what, report)?;
                    continue;
                }
                for k in both_walks(k) {
                    self.case(&k, cols, &x, what, report)?;
                }
            }
            let mut x: Vec<E> = (0..3).flat_map(|_| make(&mut source, cols)).collect();
            let at = cols + source.below(cols);
            if let Some(x) = x.get_mut(at) {
                *x = E::from_f32(f32::NAN);
            }
            self.case(k, cols, &x, "a NaN", report)?;
        }
        Ok(())
    }
}

/// Whether `result` is an error; `what` names the call that should have been refused.
fn refused(what: &str, result: Result<(), KernelError>) -> Result<(), String> {
    match result {
        Ok(()) => Err(format!("{what} was accepted")),
        Err(_) => Ok(()),
    }
}

/// Rows whose mean is far from 0, and rows that begin with an outlier: the deviation is all that counts.
fn hard_rows<E: Element>(source: &mut Source, n: usize) -> Vec<E> {
    let mean = if size_of::<E>() == 4 { 10_000.0 } else { 64.0 };
    let mut x: Vec<E> = (0..n).map(|_| E::from_f32(mean + source.normal())).collect();
    if source.below(2) == 0 {
        x.iter_mut().take(1).for_each(|x| *x = E::from_f32(-30.0 * mean));
    }
    x
}

/// `rms_norm`
pub fn rms_norm<E: Element>(row: &KernelInfo) -> Outcome {
    let k = Kernels::<E>::forced(row.level).map_err(|e| e.to_string())?;
    let mut report = Report::BOUND;
    let weights: Vec<E> = Source::new(3).normals(long::<E>());
    let params = [(true, 1e-5), (false, 0.0), (true, 0.0), (false, 3.0e38)];
    for (turn, (weighted, eps)) in params.into_iter().enumerate() {
        let w = |cols: usize| weighted.then(|| &weights[..cols]);
        let want = |x: &[E]| {
            let n = x.len();
            let (squares, _) = sum(wide(x).into_iter().map(|x| x * x));
            let scale = 1.0 / (squares / n as f64 + f64::from(eps)).sqrt();
            let relative = gamma(steps(row, n), 0.5) + 3.0 * U;
            let one = |(i, &x): (usize, &E)| {
                let w = w(n).map_or(1.0, |w| f64::from(w[i].to_f32()));
                let y = f64::from(x.to_f32()) * scale * w;
                // The scaled element may be a denormal before the weight.
                (y, relative * y.abs() + w.abs() * f64::from(f32::from_bits(1)))
            };
            x.iter().enumerate().map(one).collect()
        };
        let rows = RowWise::<E> {
            run: &|k, cols, x, y| k.rms_norm_rows(cols, x, w(cols), eps, y),
            in_place: &|k, cols, x| k.rms_norm_rows_inplace(cols, w(cols), eps, x),
            want: &want,
        };
        rows.check(&k, row, "normal", &|s, n| s.normals(n), &mut report)?;
        if is_long(turn) {
            rows.case(&k, long::<E>(), &Source::new(4).normals(long::<E>()), "long", &mut report)?;
        }
        if eps > 0.0 {
            rows.case(&k, 20, &[E::ZERO; 60], "zeros", &mut report)?;
            rows.case(&k, 20, &[E::from_f32(1e-7); 60], "tiny", &mut report)?;
        }
    }
    let (x, mut y) = ([E::ZERO; 6], [E::ZERO; 6]);
    for eps in [-1e-9, f32::NAN, f32::INFINITY] {
        refused("eps", k.rms_norm_rows(3, &x, None, eps, &mut y))?;
        refused("eps in place", k.rms_norm_rows_inplace(3, None, eps, &mut y))?;
    }
    refused("a broken row", k.rms_norm_rows(4, &x, None, 0.0, &mut y))?;
    refused("no columns", k.rms_norm_rows(0, &x, None, 0.0, &mut y))?;
    refused("few weights", k.rms_norm_rows(3, &x, Some(&x[..2]), 0.0, &mut y))?;
    refused("many weights", k.rms_norm_inplace(Some(&x), 0.0, &mut y[..5]))?;
    refused("a short output", k.rms_norm(&x, None, 0.0, &mut y[..5]))?;
    Ok(report)
}

/// `layer_norm`
pub fn layer_norm<E: Element>(row: &KernelInfo) -> Outcome {
    let k = Kernels::<E>::forced(row.level).map_err(|e| e.to_string())?;
    let mut report = Report::BOUND;
    let weights: Vec<E> = Source::new(3).normals(long::<E>());
    let biases: Vec<E> = Source::new(4).normals(long::<E>());
    let params = [(true, true, 1e-5), (false, false, 1e-6), (true, false, 1e-12), (false, true, 3.0e38)];
    for (turn, (weighted, biased, eps)) in params.into_iter().enumerate() {
        let w = |cols: usize| weighted.then(|| &weights[..cols]);
        let b = |cols: usize| biased.then(|| &biases[..cols]);
        let want = |x: &[E]| {
            let (n, x) = (x.len(), wide(x));
            let mean = sum(x.iter().copied()).0 / n as f64;
            let square = |x: &f64| (x - mean) * (x - mean);
            let var = sum(x.iter().map(square)).0 / n as f64;
            let scale = 1.0 / (var + f64::from(eps)).sqrt();
            // Elements are taken relative to a sample's mean; the error of their mean is common to all.
            let sample = if n < 64 { &x[..n.min(1)] } else { &x[..64] };
            let shift = sum(sample.iter().copied()).0 / sample.len().max(1) as f64;
            let far = sum(x.iter().map(|x| (x - shift).abs())).0 / n as f64;
            let common = gamma(steps(row, n) + 2, far);
            let deviation = |x: f64| common + U * ((x - shift).abs() + (x - mean).abs());
            // The variance is a mean of squares less a square.
            let around = var + (mean - shift) * (mean - shift);
            let var_err = gamma(steps(row, n) + 4, around) + 2.0 * (mean - shift).abs() * common;
            let relative = 0.5 * var_err / (var + f64::from(eps)) + 3.0 * U;
            let one = |(i, &x): (usize, &f64)| {
                let w = w(n).map_or(1.0, |w| f64::from(w[i].to_f32()));
                let b = b(n).map_or(0.0, |b| f64::from(b[i].to_f32()));
                let y = (x - mean) * scale * w;
                let err = y.abs() * relative + deviation(x) * scale * w.abs() * 1.01;
                (y + b, err + w.abs() * f64::from(f32::from_bits(1)))
            };
            x.iter().enumerate().map(one).collect()
        };
        let rows = RowWise::<E> {
            run: &|k, cols, x, y| k.layer_norm_rows(cols, x, w(cols), b(cols), eps, y),
            in_place: &|k, cols, x| k.layer_norm_rows_inplace(cols, w(cols), b(cols), eps, x),
            want: &want,
        };
        rows.check(&k, row, "normal", &|s, n| s.normals(n), &mut report)?;
        rows.check(&k, row, "far from 0", &hard_rows, &mut report)?;
        if is_long(turn) {
            rows.case(&k, long::<E>(), &Source::new(4).normals(long::<E>()), "long", &mut report)?;
        }
        rows.case(&k, 20, &[E::from_f32(12_345.0); 60], "constant", &mut report)?;
    }
    let (x, mut y) = ([E::ZERO; 6], [E::ZERO; 6]);
    for eps in [-1e-9, f32::NAN, f32::INFINITY] {
        refused("eps", k.layer_norm_rows(3, &x, None, None, eps, &mut y))?;
        refused("eps in place", k.layer_norm_rows_inplace(3, None, None, eps, &mut y))?;
    }
    refused("a broken row", k.layer_norm_rows(4, &x, None, None, 0.0, &mut y))?;
    refused("no columns", k.layer_norm_rows(0, &x, None, None, 0.0, &mut y))?;
    refused("few weights", k.layer_norm_rows(3, &x, Some(&x[..2]), None, 0.0, &mut y))?;
    refused("many biases", k.layer_norm_inplace(None, Some(&x), 0.0, &mut y[..5]))?;
    refused("a short output", k.layer_norm(&x, None, None, 0.0, &mut y[..5]))?;
    Ok(report)
}

/// The softmax of one row, and what the errors of the exponentials' arguments, of the exponentials
/// (2 ulp) and of their sum amount to.
fn exact_softmax<E: Element>(row: &KernelInfo, scale: f32, x: &[E]) -> Vec<Want> {
    let x = wide(x);
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if x.iter().any(|x| x.is_nan()) || max == f64::INFINITY {
        return vec![(f64::NAN, 0.0); x.len()];
    }
    if max == f64::NEG_INFINITY {
        return vec![(0.0, 0.0); x.len()];
    }
    let t: Vec<f64> = x.iter().map(|x| f64::from(scale) * (x - max)).collect();
    let total = sum(t.iter().map(|t| t.exp())).0;
    // Where the exponential is 0 the size of its argument does not matter.
    let relative = |t: f64| if t < -110.0 { 0.0 } else { U * (4.0 + 2.0 * t.abs()) };
    let of_sum = sum(t.iter().map(|&t| t.exp() * relative(t))).0 / total + gamma(steps(row, x.len()), 1.0);
    let one = |&t: &f64| {
        let y = t.exp() / total;
        // Denormal exponentials have an absolute error.
        (y, y * (relative(t) + of_sum + 2.0 * U) + 2.0 * f64::from(f32::from_bits(1)))
    };
    t.iter().map(one).collect()
}

/// `softmax`
pub fn softmax<E: Element>(row: &KernelInfo) -> Outcome {
    let k = Kernels::<E>::forced(row.level).map_err(|e| e.to_string())?;
    let mut report = Report::BOUND;
    let inf = E::from_f32(f32::INFINITY);
    let masked = E::from_f32(f32::NEG_INFINITY);
    // The mask leaves everything, nothing, one element, all but one.
    let masks: [fn(usize) -> Option<usize>; 5] =
        [|_| None, |_| Some(0), |n| Some(n.min(1)), |n| Some(n.saturating_sub(1)), |n| Some(n)];
    for (turn, (scale, mask)) in [1.0, 0.125, 3.7, 1.0, 1.0].into_iter().zip(masks).enumerate() {
        let params = |cols| Softmax { scale, valid: mask(cols) };
        let want = |x: &[E]| {
            let valid = mask(x.len()).unwrap_or(x.len());
            let mut y = exact_softmax(row, scale, &x[..valid]);
            y.resize(x.len(), (0.0, 0.0));
            y
        };
        let rows = RowWise::<E> {
            run: &|k, cols, x, y| k.softmax_rows(cols, params(cols), x, y),
            in_place: &|k, cols, x| k.softmax_rows_inplace(cols, params(cols), x),
            want: &want,
        };
        rows.check(&k, row, "normal", &|s, n| s.uniform(n, -8.0, 8.0), &mut report)?;
        for cols in [1, 2, 3, 17, 509] {
            let mut source = Source::new(11);
            rows.case(&k, cols, &source.wide(3 * cols), "of all sizes", &mut report)?;
            rows.case(&k, cols, &source.uniform(3 * cols, -1e-30, 1e-30), "tiny", &mut report)?;
            rows.case(&k, cols, &vec![masked; 3 * cols], "masked", &mut report)?;
            for (what, special) in [("-inf", masked), ("+inf", inf)] {
                let mut x = source.uniform(3 * cols, -100.0, 100.0);
                x[cols] = special;
                x[2 * cols - 1] = special;
                rows.case(&k, cols, &x, what, &mut report)?;
            }
        }
        if is_long(turn) {
            let x = Source::new(12).uniform(long::<E>(), -4.0, 4.0);
            rows.case(&k, long::<E>(), &x, "long", &mut report)?;
        }
    }
    // Rows of different lengths have the bits that each has alone.
    let cols = 41;
    let valid = [cols, 0, 1, 17, 40, 16];
    let x: Vec<E> = Source::new(13).uniform(valid.len() * cols, -8.0, 8.0);
    let (mut want, mut y, mut in_place) = (x.clone(), x.clone(), x.clone());
    for (want, &valid) in want.chunks_mut(cols).zip(&valid) {
        let softmax = Softmax { scale: 0.7, valid: Some(valid) };
        k.softmax_rows_inplace(cols, softmax, want).map_err(|e| e.to_string())?;
    }
    let each = call(|| k.softmax_masked_rows(cols, 0.7, &valid, &x, &mut y));
    each.and_then(|()| call(|| k.softmax_masked_rows_inplace(cols, 0.7, &valid, &mut in_place)))
        .map_err(|e| e.to_string())?;
    if ![&y, &in_place].iter().all(|y| y.iter().zip(&want).all(|(&y, &want)| same(y, want))) {
        return Err("rows of different lengths differ from rows alone".into());
    }
    refused("few lengths", k.softmax_masked_rows(cols, 0.7, &valid[1..], &x, &mut y))?;
    refused("a long length", k.softmax_masked_rows(cols, 0.7, &[0, 1, 2, cols + 1, 4, 5], &x, &mut y))?;
    let (x, mut y) = ([E::ZERO; 6], [E::ZERO; 6]);
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let params = Softmax { scale, valid: None };
        refused("scale", k.softmax_rows(3, params, &x, &mut y))?;
        refused("scale in place", k.softmax_rows_inplace(3, params, &mut y))?;
    }
    refused(
        "a long mask",
        k.softmax_rows_inplace(3, Softmax { valid: Some(4), ..Softmax::default() }, &mut y),
    )?;
    refused("a broken row", k.softmax_rows(4, Softmax::default(), &x, &mut y))?;
    refused("no columns", k.softmax_rows(0, Softmax::default(), &x, &mut y))?;
    refused("a short output", k.softmax(&x, &mut y[..5]))?;
    Ok(report)
}
