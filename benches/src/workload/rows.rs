//! Operators that treat every row alike: softmax and norms.

use gllm_kernels_core::{Element, KernelError, Op, RopePairing, RopeShape, Softmax};

use super::produce::{Number, Operand, Produce, Want, Workload};
use super::{call, each_element, Case, Context, Cost, Engine, Entry, Sizes};
use crate::limits::memory::Traffic;

/// Rows before they repeat.
const PERIOD: usize = 7;

/// The operand that every row shares, such as the weights of a norm.
const EPS: f32 = 1e-5;

type Call<'a, E> = fn(&Engine<'a, E>, usize, &[Operand<'a, E>], &mut [E]) -> Result<(), KernelError>;

/// Inputs: the rows (unless in place), then `shared` vectors of one row's length.
fn rows<'a, E: Element + Number>(
    mut c: Context<'a>,
    in_place: bool,
    shared: usize,
    call: Call<'a, E>,
    exact: fn(row: &[f64], shared: &[Vec<f64>]) -> Vec<Want>,
) -> Box<dyn Workload + 'a> {
    let (m, n) = (c.case.shape.m, c.case.shape.n);
    let engine = Engine::new(&c);
    let period = PERIOD * n;
    let mut inputs = Vec::new();
    if !in_place {
        inputs.push(Operand::random(c.carver.take(m * n), period, 1, -4.0, 4.0));
    }
    for i in 0..shared {
        inputs.push(Operand::random(c.carver.take(n), n, 10 + i as u64, 0.5, 1.5));
    }
    let mut output = Operand::random(c.carver.take(m * n), period, 1, -4.0, 4.0);
    if !in_place {
        output.pattern.clear();
    }
    Box::new(Produce {
        weights: &[],
        inputs,
        output,
        call: Box::new(move |x, y| call(&engine, n, x, y)),
        exact: Box::new(move |x| {
            // In place, the rows come last.
            let (rows, shared) = match (in_place, x) {
                (true, [shared @ .., rows]) | (false, [rows, shared @ ..]) => (rows, shared),
                (_, []) => return Vec::new(),
            };
            rows.chunks(n).flat_map(|row| exact(row, shared)).collect()
        }),
        // Sums of squares or exponentials in f32, and what follows them.
        bound: (n as f64 / 32.0 + 40.0) / f64::from(1 << 24),
        kernel: None,
    })
}

fn softmax_exact(row: &[f64], _: &[Vec<f64>]) -> Vec<Want> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
    row.iter().map(|x| Want::of((x - max).exp() / sum)).collect()
}

fn rms_norm_exact(row: &[f64], shared: &[Vec<f64>]) -> Vec<Want> {
    let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
    let scale = 1.0 / (mean + f64::from(EPS)).sqrt();
    row.iter().zip(&shared[0]).map(|(x, w)| Want::of(x * scale * w)).collect()
}

/// Relative to the parts of the sum: `x - mean` and the bias may cancel.
fn layer_norm_exact(row: &[f64], shared: &[Vec<f64>]) -> Vec<Want> {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    let scale = 1.0 / (variance + f64::from(EPS)).sqrt();
    let params = shared[0].iter().zip(&shared[1]);
    let one = |(x, (w, b)): (&f64, (&f64, &f64))| Want {
        value: (x - mean) * scale * w + b,
        scale: (x.abs() + mean.abs()) * scale * w.abs() + b.abs(),
    };
    row.iter().zip(params).map(one).collect()
}

/// Elements of a head, if a row is made of such; otherwise a row is one head.
const HEAD: usize = 128;

/// Rotates rows of heads; every row is a token, and has angles of its own.
fn rotate<'a, E: Element + Number>(
    mut c: Context<'a>,
    in_place: bool,
    pairing: RopePairing,
) -> Box<dyn Workload + 'a> {
    let (m, n) = (c.case.shape.m, c.case.shape.n);
    let engine = Engine::<E>::new(&c);
    let head_dim = if n.is_multiple_of(HEAD) { HEAD } else { n };
    let shape = RopeShape { heads: n / head_dim, head_dim, rot_dim: head_dim, pairing };
    let half = head_dim / 2;
    let (cos, sin) = (c.carver.take::<f32>(m * half), c.carver.take::<f32>(m * half));
    for (i, (cos, sin)) in cos.iter_mut().zip(&mut *sin).enumerate() {
        let angle = (i % (PERIOD * half)) as f32;
        (*cos, *sin) = (angle.cos(), angle.sin());
    }
    let (cos, sin) = (&*cos, &*sin);
    let wide = |x: &[f32]| x.iter().take(PERIOD * half).map(|&x| f64::from(x)).collect::<Vec<_>>();
    let (cos_exact, sin_exact) = (wide(cos), wide(sin));
    let mut operand = || Operand::random(c.carver.take(m * n), PERIOD * n, 1, -4.0, 4.0);
    let (mut inputs, mut output) = (Vec::new(), operand());
    if !in_place {
        output.pattern.clear();
        inputs.push(operand());
    }
    Box::new(Produce {
        weights: &[],
        inputs,
        output,
        call: Box::new(move |x, y| match x {
            [] => call!(&engine, rope_inplace(shape, cos, sin, y)),
            [x, ..] => call!(&engine, rope(shape, cos, sin, x.data, y)),
        }),
        exact: Box::new(move |x| {
            let mut out = vec![Want::of(0.0); x[0].len()];
            for (h, (x, out)) in x[0].chunks(head_dim).zip(out.chunks_mut(head_dim)).enumerate() {
                let angles = h / shape.heads * half;
                for i in 0..half {
                    let (first, second) = match pairing {
                        RopePairing::Adjacent => (2 * i, 2 * i + 1),
                        RopePairing::HalfSplit => (i, i + half),
                    };
                    let (a, b) = (x[first], x[second]);
                    let (cos, sin) = (cos_exact[angles + i], sin_exact[angles + i]);
                    let scale = a.abs() + b.abs();
                    out[first] = Want { value: a * cos - b * sin, scale };
                    out[second] = Want { value: a * sin + b * cos, scale };
                }
            }
            out
        }),
        bound: 1.0 / f64::from(1 << 23),
        kernel: None,
    })
}

/// Every row has a table of angles: a cosine and a sine for each pair of one head.
fn rope_cost(case: &Case, buffers: f64, traffic: Traffic) -> Cost {
    let (m, n) = (case.shape.m, case.shape.n);
    let angles = 4.0 * (m * if n.is_multiple_of(HEAD) { HEAD } else { n }) as f64;
    let data = (m * n) as f64 * case.size();
    Cost {
        flops: 3.0 * (m * n) as f64,
        moved: 2.0 * data + angles,
        working_set: buffers * data + angles,
        traffic,
    }
}

fn cost(case: &Case, flops: f64, buffers: f64, traffic: Traffic) -> Cost {
    let n = (case.shape.m * case.shape.n) as f64;
    // The shared vectors stay in cache, but they are there.
    let shared = 2.0 * case.shape.n as f64 * case.size();
    Cost {
        flops: flops * n,
        moved: 2.0 * n * case.size(),
        working_set: buffers * n * case.size() + shared,
        traffic,
    }
}

macro_rules! entries {
    ($($name:ident $op:ident: $cost:expr, $halves:literal, |$c:ident| $build:expr;)*) => {
        $(fn $name<'a, E: Element + Number>($c: Context<'a>) -> Box<dyn Workload + 'a> {
            $build
        })*
        pub(super) static ENTRIES: &[Entry] = &[$(Entry {
            name: stringify!($name),
            op: Op::$op,
            sizes: Sizes::Rows,
            quantised: false,
            cost: $cost,
            build: each_element!($name),
            halves: $halves,
        }),*];
    };
}

// Operations per element: softmax finds the maximum, subtracts, exponentiates (17), sums, scales;
// rms_norm squares and sums, scales, weighs; layer_norm sums, subtracts, squares and sums, scales, weighs, adds.
entries! {
    softmax Softmax: |c| cost(c, 21.0, 2.0, Traffic::Copy), true, |c| rows::<E>(c, false, 0,
        |k, n, x, y| call!(k, softmax_rows(n, Softmax::default(), x[0].data, y)), softmax_exact);
    softmax_inplace Softmax: |c| cost(c, 21.0, 1.0, Traffic::Update), false, |c| rows::<E>(c, true, 0,
        |k, n, _, y| call!(k, softmax_rows_inplace(n, Softmax::default(), y)), softmax_exact);
    rms_norm RmsNorm: |c| cost(c, 4.0, 2.0, Traffic::Copy), true, |c| rows::<E>(c, false, 1,
        |k, n, x, y| call!(k, rms_norm_rows(n, x[0].data, Some(&*x[1].data), EPS, y)), rms_norm_exact);
    rms_norm_inplace RmsNorm: |c| cost(c, 4.0, 1.0, Traffic::Update), false, |c| rows::<E>(c, true, 1,
        |k, n, x, y| call!(k, rms_norm_rows_inplace(n, Some(&*x[0].data), EPS, y)), rms_norm_exact);
    layer_norm LayerNorm: |c| cost(c, 8.0, 2.0, Traffic::Copy), false, |c| rows::<E>(c, false, 2,
        |k, n, x, y| call!(k, layer_norm_rows(n, x[0].data, Some(&*x[1].data), Some(&*x[2].data), EPS, y)),
        layer_norm_exact);
    layer_norm_inplace LayerNorm: |c| cost(c, 8.0, 1.0, Traffic::Update), false, |c| rows::<E>(c, true, 2,
        |k, n, x, y| call!(k, layer_norm_rows_inplace(n, Some(&*x[0].data), Some(&*x[1].data), EPS, y)),
        layer_norm_exact);
    rope Rope: |c| rope_cost(c, 2.0, Traffic::Copy), true,
        |c| rotate::<E>(c, false, RopePairing::Adjacent);
    rope_half_split Rope: |c| rope_cost(c, 2.0, Traffic::Copy), false,
        |c| rotate::<E>(c, false, RopePairing::HalfSplit);
    rope_inplace Rope: |c| rope_cost(c, 1.0, Traffic::Update), false,
        |c| rotate::<E>(c, true, RopePairing::Adjacent);
}
