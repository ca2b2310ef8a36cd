//! The gated delta rule, with its correction and without, and the causal convolution before it.

use gllm_kernels_core::{ConvFilter, DeltaGates, KernelError, KernelInfo, Kernels, MatMut, MatRef};

use crate::data::Source;
use crate::matrix::{Layout, Matrix};
use crate::numeric::{gamma, sum, ulp};
use crate::report::{Outcome, Report};
use crate::{call, effort, Edge};

/// Columns `from .. from + n` of a matrix.
fn cols(m: MatRef<'_, f32>, from: usize, n: usize) -> Result<MatRef<'_, f32>, KernelError> {
    Ok(m.t().row_range(from, n)?.t())
}

/// The same of a matrix that is written.
fn cols_mut(m: MatMut<'_, f32>, from: usize, n: usize) -> Result<MatMut<'_, f32>, KernelError> {
    Ok(rows_mut(m.t(), from, n)?.t())
}

/// Rows `from .. from + n` of a matrix that is written.
fn rows_mut(m: MatMut<'_, f32>, from: usize, n: usize) -> Result<MatMut<'_, f32>, KernelError> {
    Ok(m.split_rows(from)?.1.split_rows(n)?.0)
}

/// Whether two matrices have the same bits.
fn same_bits(a: &Matrix<f32>, b: &Matrix<f32>) -> bool {
    let bits = |m: &Matrix<f32>, i, j| m.data[m.at(i, j)].to_bits();
    (0..a.rows).all(|i| (0..a.cols).all(|j| bits(a, i, j) == bits(b, i, j)))
}

/// How large calls are: parts of so many tokens, and of so many rows of a state or channels.
type Cut = [usize; 2];

/// The parts of `n` things, the first one of `size`, as ranges of a start and a number.
fn parts(n: usize, size: usize) -> Vec<[usize; 2]> {
    let first = size.min(n);
    [[0, first], [first, n - first]].into_iter().filter(|&[_, n]| n > 0).collect()
}

/// Inputs of the gated delta rule.
struct Delta {
    tokens: usize,
    value_dim: usize,
    q: Matrix<f32>,
    k: Matrix<f32>,
    v: Matrix<f32>,
    decay: Vec<f32>,
    beta: Vec<f32>,
    corrected: bool,
}

impl Delta {
    fn new(
        [tokens, key_dim, value_dim]: [usize; 3],
        [layout, of_values]: [Layout; 2],
        (edge, corrected): (Edge, bool),
        source: &mut Source,
    ) -> Self {
        // Keys of length about 1, as in models.
        let length = (key_dim as f32).sqrt();
        let mut normals = |cols, layout, scale: f32| {
            Matrix::new(tokens, cols, layout, edge, |_, _| scale * source.normal())
        };
        let [q, k] = [0; 2].map(|_| normals(key_dim, layout, 1.0 / length));
        let v = normals(value_dim, of_values, 1.0);
        let (decay, beta) = (source.uniform(tokens, 0.5, 1.0), source.uniform(tokens, 0.0, 1.5));
        Self { tokens, value_dim, q, k, v, decay, beta, corrected }
    }

    /// Calls for tokens and rows in parts of these sizes.
    fn run(
        &self,
        kernels: &Kernels<f32>,
        state: &mut Matrix<f32>,
        y: &mut Matrix<f32>,
        [tokens, rows]: Cut,
    ) -> Result<(), KernelError> {
        for [row, rows] in parts(self.value_dim, rows) {
            for [token, tokens] in parts(self.tokens, tokens) {
                let state = rows_mut(state.view_mut()?, row, rows)?;
                let [q, k] = [&self.q, &self.k].map(|m| m.view()?.row_range(token, tokens));
                let v = cols(self.v.view()?.row_range(token, tokens)?, row, rows)?;
                let y = cols_mut(rows_mut(y.view_mut()?, token, tokens)?, row, rows)?;
                let gates = DeltaGates {
                    decay: &self.decay[token..token + tokens],
                    beta: &self.beta[token..token + tokens],
                    corrected: self.corrected,
                };
                call(|| kernels.gated_delta_rule(state, q?, k?, v, gates, y))?;
            }
        }
        Ok(())
    }

    /// Row `j` of the state after all tokens, from `row`, and the outputs for it; each with the error that f32 arithmetic may have made.
    ///
    /// The error of an element of the state is followed from token to token. With `E` the errors of a row before a token, the recalled
    /// value has the error `sum E |k|` and that of a sum of `steps` roundings; the change of the row has that times `|beta g|`, and
    /// three roundings, or without the correction that of one rounding; an element has the error of two products and two roundings; an output that of a sum, again.
    fn want(&self, j: usize, row: &[f64], steps: usize) -> [Vec<(f64, f64)>; 2] {
        let mut row: Vec<(f64, f64)> = row.iter().map(|&s| (s, 0.0)).collect();
        let product = |row: &[(f64, f64)], by: &Matrix<f32>, t: usize| {
            let terms = || row.iter().enumerate().map(|(i, &(s, e))| (by.get(t, i), s, e));
            let (value, _) = sum(terms().map(|(x, s, _)| s * x));
            let (carried, _) = sum(terms().map(|(x, _, e)| e * x.abs()));
            let (magnitudes, _) = sum(terms().map(|(x, s, e)| (s.abs() + e) * x.abs()));
            (value, carried + gamma(steps, magnitudes))
        };
        let mut outputs = Vec::new();
        for t in 0..self.tokens {
            let (g, beta) = (f64::from(self.decay[t]), f64::from(self.beta[t]));
            let v = self.v.get(t, j);
            let (recalled, e) = if self.corrected { product(&row, &self.k, t) } else { (0.0, 0.0) };
            let change = beta * (v - g * recalled);
            let magnitude = (beta * v).abs() + (beta * g * recalled).abs() + (beta * g).abs() * e;
            let e_change = (beta * g).abs() * e + gamma(3, magnitude);
            for (i, (s, e)) in row.iter_mut().enumerate() {
                let k = self.k.get(t, i);
                let carried = g.abs() * *e + e_change * k.abs();
                let magnitude = (g * *s).abs() + (change * k).abs() + carried;
                (*s, *e) = (g * *s + change * k, carried + gamma(2, magnitude));
            }
            outputs.push(product(&row, &self.q, t));
        }
        [row, outputs]
    }
}

/// `gated_delta_rule`
pub fn gated_delta_rule(row: &KernelInfo) -> Outcome {
    let kernels = Kernels::<f32>::forced(row.level).map_err(|e| e.to_string())?;
    let lanes = row.level.lanes();
    let (mut source, mut report) = (Source::new(41), Report::BOUND);
    let dims = [1, 2, 3].into_iter().chain([1, 2, 4].map(|n| n * lanes)).chain([64, 128, 256, 100]);
    let around = |n: usize| [n - 1, n, n + 1];
    for key_dim in dims.flat_map(around).filter(|&n| n > 0) {
        for (turn, value_dim) in [1, 3, 4, 5, 9].into_iter().enumerate() {
            for tokens in [1, 2, 5, 8].into_iter().take(2 + effort()) {
                let layout = [Layout::Rows, Layout::PaddedRows, Layout::OneRow][turn % 3];
                let of_values = Layout::ALL[(turn + tokens) % Layout::ALL.len()];
                let of_outputs = Layout::DISTINCT[(turn + key_dim) % Layout::DISTINCT.len()];
                let edge = Edge::BOTH[(turn + tokens) % 2];
                let shape = [tokens, key_dim, value_dim];
                // Each number of rows, and of tokens, with the correction and without.
                let corrected = (key_dim + turn + tokens) % 2 == 0;
                let x = Delta::new(shape, [layout, of_values], (edge, corrected), &mut source);
                let fail = |e: &dyn std::fmt::Display| {
                    format!("{tokens} tokens, keys of {key_dim}, values of {value_dim}, {corrected}: {e}")
                };
                let before = Matrix::new(value_dim, key_dim, Layout::Rows, edge, |_, _| source.normal());
                let run = |cut: Cut| {
                    let of_state = [Layout::Rows, Layout::PaddedRows][turn % 2];
                    let start = |i, j| before.data[before.at(i, j)];
                    let mut state = Matrix::new(value_dim, key_dim, of_state, edge, start);
                    let mut y = Matrix::poisoned(tokens, value_dim, of_outputs, edge);
                    x.run(&kernels, &mut state, &mut y, cut).map_err(|e| fail(&e))?;
                    match state.gaps_intact() && y.gaps_intact() {
                        true => Ok((state, y)),
                        false => Err(fail(&"writes outside of the output")),
                    }
                };
                let (state, y) = run([tokens, value_dim])?;
                for cut in [[1, value_dim], [tokens, 1], [2, 2], [4, 5]] {
                    let (other, other_y) = run(cut)?;
                    if !same_bits(&state, &other) || !same_bits(&y, &other_y) {
                        return Err(fail(&format_args!("calls of {cut:?} tokens and rows have other bits")));
                    }
                    report.cases += 1;
                }
                // Of the lanes' chains, and of adding the lanes up.
                let steps = key_dim.div_ceil(lanes) + lanes.ilog2() as usize;
                for j in 0..value_dim {
                    let start: Vec<f64> = (0..key_dim).map(|i| before.get(j, i)).collect();
                    let [row, outputs] = x.want(j, &start, steps);
                    let elements = row.iter().enumerate().map(|(i, want)| (state.get(j, i), want, i));
                    let outputs = outputs.iter().enumerate().map(|(t, want)| (y.get(t, j), want, t));
                    for (got, &(want, bound), at) in elements.chain(outputs) {
                        let err = if got == want { 0.0 } else { (got - want).abs() / bound };
                        report.see(err, 1.0, || {
                            fail(&format_args!("row {j}, element or token {at}: {got} instead of {want}"))
                        })?;
                    }
                }
            }
        }
    }
    Ok(report)
}

/// Inputs of the convolution.
struct Conv {
    x: Matrix<f32>,
    w: Matrix<f32>,
    before: Matrix<f32>,
    bias: Option<Vec<f32>>,
    silu: bool,
}

impl Conv {
    /// Calls for tokens and channels in parts of these sizes.
    fn run(
        &self,
        kernels: &Kernels<f32>,
        state: &mut Matrix<f32>,
        y: &mut Matrix<f32>,
        [tokens, channels]: Cut,
    ) -> Result<(), KernelError> {
        for [channel, channels] in parts(self.x.cols, channels) {
            for [token, tokens] in parts(self.x.rows, tokens) {
                let state = cols_mut(state.view_mut()?, channel, channels)?;
                let x = cols(self.x.view()?.row_range(token, tokens)?, channel, channels)?;
                let w = cols(self.w.view()?, channel, channels)?;
                let y = cols_mut(rows_mut(y.view_mut()?, token, tokens)?, channel, channels)?;
                let bias = self.bias.as_ref().map(|bias| &bias[channel..channel + channels]);
                let filter = ConvFilter { w, bias, silu: self.silu };
                call(|| kernels.causal_conv1d(state, x, filter, y))?;
            }
        }
        Ok(())
    }

    /// Element `c` of input `n`, of which the first ones are those before the first token.
    fn input(&self, n: usize, c: usize) -> f64 {
        match n.checked_sub(self.before.rows) {
            Some(t) => self.x.get(t, c),
            None => self.before.get(n, c),
        }
    }
}

/// `causal_conv1d`
pub fn causal_conv1d(row: &KernelInfo) -> Outcome {
    let kernels = Kernels::<f32>::forced(row.level).map_err(|e| e.to_string())?;
    let lanes = row.level.lanes();
    let (mut source, mut report) = (Source::new(43), Report::BOUND);
    let some = [1, 2, 3, 5, 8, 4 * lanes, 5 * lanes, 256, 300, 512 + lanes];
    let sizes = some.into_iter().flat_map(|n| [n - 1, n, n + 1]).filter(|&n| n > 0);
    for (turn, channels) in sizes.enumerate() {
        for taps in [4, 1, 2, 3, 5, 8, 13].into_iter().take(2 + effort()) {
            for tokens in [1, 2, 3, 5, 9].into_iter().take(3 + effort()) {
                let edge = Edge::BOTH[(turn + tokens) % 2];
                let layout = |n| [Layout::Rows, Layout::PaddedRows][(turn + n) % 2];
                let of_inputs = if turn % 5 == 3 { Layout::OneRow } else { layout(1) };
                let mut normals =
                    |rows, layout| Matrix::new(rows, channels, layout, edge, |_, _| source.normal());
                let [x, w, before] = [
                    normals(tokens, of_inputs),
                    normals(taps, layout(taps)),
                    normals(taps - 1, Layout::Rows),
                ];
                let bias = (channels + turn) % 3 == 0;
                let bias = bias.then(|| source.uniform(channels, -2.0, 2.0));
                let x = Conv { x, w, before, bias, silu: (tokens + turn) % 2 == 0 };
                let fail = |e: &dyn std::fmt::Display| {
                    let (bias, silu) = (x.bias.is_some(), x.silu);
                    format!(
                        "{tokens} tokens, {channels} channels, {taps} taps, bias {bias}, silu {silu}: {e}"
                    )
                };
                let run = |cut: Cut| {
                    let start = |i, j| x.before.data[x.before.at(i, j)];
                    let mut state = Matrix::new(taps - 1, channels, layout(0), edge, start);
                    let mut y = Matrix::poisoned(tokens, channels, layout(tokens), edge);
                    x.run(&kernels, &mut state, &mut y, cut).map_err(|e| fail(&e))?;
                    match state.gaps_intact() && y.gaps_intact() {
                        true => Ok((state, y)),
                        false => Err(fail(&"writes outside of the output")),
                    }
                };
                let (state, y) = run([tokens, channels])?;
                for cut in [[1, channels], [tokens, 1], [2, 2 * lanes], [3, 7]] {
                    let (other, other_y) = run(cut)?;
                    if !same_bits(&state, &other) || !same_bits(&y, &other_y) {
                        return Err(fail(&format_args!(
                            "calls of {cut:?} tokens and channels have other bits"
                        )));
                    }
                    report.cases += 1;
                }
                for c in 0..channels {
                    if (0..taps - 1).any(|n| state.get(n, c) != x.input(n + tokens, c)) {
                        return Err(fail(&format_args!("channel {c}: not the inputs before the next token")));
                    }
                    for t in 0..tokens {
                        let bias = x.bias.iter().map(|bias| f64::from(bias[c]));
                        let products = (0..taps).map(|j| x.w.get(j, c) * x.input(t + j, c));
                        let (sum, magnitudes) = sum(bias.chain(products));
                        // The slope of silu is below 1.1; silu has an error of 4 ulp.
                        let silu = || (sum / (1.0 + (-sum).exp()), 1.1, 4.0);
                        let (want, slope, ulps) = if x.silu { silu() } else { (sum, 1.0, 0.5) };
                        let bound = slope * gamma(taps, magnitudes) + ulps * ulp::<f32>(want);
                        let got = y.get(t, c);
                        report.see((got - want).abs() / bound, 1.0, || {
                            fail(&format_args!("token {t}, channel {c}: {got} instead of {want}"))
                        })?;
                    }
                }
            }
        }
    }
    Ok(report)
}
