//! The operators of layers with linear attention.

use gllm_kernels_core::{ConvFilter, DeltaGates, Kernels, MatMut, MatRef, Op};

use super::produce::{Operand, Produce, Want, Workload};
use super::{Case, Context, Cost, Engine, Entry, Shape, Sizes};
use crate::limits::memory::Traffic;

/// Rows of a state before they repeat.
const PERIOD: usize = 7;

/// Decay and `beta` of every token.
const GATES: [f32; 2] = [0.95, 0.5];

/// Taps of the convolution.
const TAPS: usize = 4;

/// A state of `n` rows of `k` elements goes through `m` tokens, which have the same value.
fn gated_delta_rule<'a>(mut c: Context<'a>) -> Box<dyn Workload + 'a> {
    let Shape { m, n, k } = c.case.shape;
    let kernels: Kernels<f32> = Engine::<f32>::new(&c).kernels();
    let length = (k as f32).sqrt();
    let mut vectors = |seed| Operand::random(c.carver.take(m * k), m * k, seed, -1.0 / length, 1.0 / length);
    let [queries, keys] = [2, 3].map(&mut vectors);
    let values = Operand::random(c.carver.take(n), PERIOD, 4, -1.0, 1.0);
    let state = Operand::random(c.carver.take(n * k), PERIOD * k, 1, -1.0, 1.0);
    let (y, gates) = (c.carver.take::<f32>(m * n), GATES.map(|gate| vec![gate; m]));
    Box::new(Produce {
        weights: &[],
        inputs: vec![queries, keys, values],
        output: state,
        call: Box::new(move |x, state| {
            let [queries, keys, values] = [0, 1, 2].map(|i| &*x[i].data);
            let [decay, beta] = &gates;
            kernels.gated_delta_rule(
                MatMut::new(state, n, k)?,
                MatRef::new(queries, m, k)?,
                MatRef::new(keys, m, k)?,
                MatRef::with_strides(values, m, n, 0, 1)?,
                DeltaGates { decay, beta, corrected: true },
                MatMut::new(y, m, n)?,
            )
        }),
        exact: Box::new(move |x| {
            let (keys, values, [g, beta]) = (&x[1], &x[2], GATES.map(f64::from));
            let mut state = x[3].clone();
            for (row, v) in state.chunks_exact_mut(k).zip(values) {
                for key in keys.chunks_exact(k) {
                    let recalled: f64 = row.iter().zip(key).map(|(s, k)| s * k).sum();
                    let change = beta * (v - g * recalled);
                    row.iter_mut().zip(key).for_each(|(s, k)| *s = g * *s + change * k);
                }
            }
            // Elements are sums of what is below 1.
            state.into_iter().map(|value| Want { value, scale: 1.0 }).collect()
        }),
        // Far above what random errors reach.
        bound: 3e-5,
        kernel: None,
    })
}

/// A token reads and writes the state; three products with each element, and the update of each, are six operations.
fn cost_delta(case: &Case) -> Cost {
    let Shape { m, n, k } = case.shape;
    let [state, tokens] = [n * k, m * (2 * k + n)].map(|n| (n * size_of::<f32>()) as f64);
    Cost {
        flops: (6 * m * n * k) as f64,
        moved: 2.0 * state + tokens,
        working_set: state + tokens + (n * size_of::<f32>()) as f64,
        traffic: Traffic::Update,
    }
}

/// `m` tokens of `n` channels, which have the same inputs, before and during the call.
fn causal_conv1d<'a>(mut c: Context<'a>) -> Box<dyn Workload + 'a> {
    let Shape { m, n, .. } = c.case.shape;
    let kernels: Kernels<f32> = Engine::<f32>::new(&c).kernels();
    let inputs = Operand::random(c.carver.take(m * n), n, 1, -4.0, 4.0);
    let weights = Operand::random(c.carver.take(TAPS * n), TAPS * n, 2, -1.0, 1.0);
    let output = Operand { data: c.carver.take(m * n), pattern: Vec::new() };
    let state = c.carver.take::<f32>((TAPS - 1) * n);
    state.chunks_exact_mut(n).for_each(|row| row.copy_from_slice(&inputs.pattern));
    Box::new(Produce {
        weights: &[],
        inputs: vec![inputs, weights],
        output,
        call: Box::new(move |x, y| {
            let (state, w) = (MatMut::new(state, TAPS - 1, n)?, MatRef::new(x[1].data, TAPS, n)?);
            let filter = ConvFilter { w, bias: None, silu: true };
            kernels.causal_conv1d(state, MatRef::new(x[0].data, m, n)?, filter, MatMut::new(y, m, n)?)
        }),
        exact: Box::new(move |x| {
            let of = |c: usize| {
                let terms = || x[1][c..].iter().step_by(n).map(|w| w * x[0][c]);
                let (sum, scale) = (terms().sum::<f64>(), terms().map(f64::abs).sum());
                Want { value: sum / (1.0 + (-sum).exp()), scale }
            };
            (0..n).map(of).collect()
        }),
        // Four multiply-adds, and what silu may be wrong by.
        bound: 12.0 / f64::from(1 << 24),
        kernel: None,
    })
}

/// A multiply-add for each tap, and what silu takes.
fn cost_conv(case: &Case) -> Cost {
    let Shape { m, n, .. } = case.shape;
    let [tokens, taps, state] = [m * n, TAPS * n, (TAPS - 1) * n].map(|n| (n * size_of::<f32>()) as f64);
    Cost {
        flops: (2 * TAPS * m * n) as f64 + super::vectors::SILU * (m * n) as f64,
        moved: 2.0 * tokens + taps + 2.0 * state,
        working_set: 2.0 * tokens + taps + state,
        traffic: Traffic::Copy,
    }
}

pub(super) static ENTRIES: &[Entry] = &[
    Entry {
        name: "gated_delta_rule",
        op: Op::GatedDeltaRule,
        sizes: Sizes::Product,
        quantised: false,
        cost: cost_delta,
        build: [Some(gated_delta_rule), None, None, None],
        halves: false,
    },
    Entry {
        name: "causal_conv1d",
        op: Op::CausalConv1d,
        sizes: Sizes::Rows,
        quantised: false,
        cost: cost_conv,
        build: [Some(causal_conv1d), None, None, None],
        halves: false,
    },
];
