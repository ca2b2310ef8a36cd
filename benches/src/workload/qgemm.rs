//! Matrix products of quantised weights.

use gllm_kernels_core::{
    Caps, Element, KernelError, Kernels, MatMut, MatRef, Op, PackedQ, Precision, QuantFormat, QuantWeights,
    Scratch,
};
use gllm_kernels_std::AlignedVec;
use gllm_testkit::packed::rounded;

use super::matrices::{dot, dot_bound, weights};
use super::produce::{Number, Operand, Produce, Want, Workload};
use super::{each_element, Case, Context, Cost, Engine, Entry, Sizes};
use crate::limits::memory::Traffic;

/// Rows of activations before they repeat.
const PERIOD: usize = 3;

/// Bytes of the packed weights.
fn packed_size(case: &Case) -> usize {
    let format = case.format.expect("quantised entries are made with a format");
    // A size that is refused here is refused by the call, too.
    Kernels::<f32>::detect().packed_q_size(format, case.shape.n, case.shape.k).unwrap_or(0)
}

/// The activations as products of integers see them; of few rows those with weights in place.
fn as_rounded(format: QuantFormat, k: usize, x: &[f64], packed: bool) -> Result<Vec<f64>, KernelError> {
    let kernels = Kernels::<f32>::with(Caps::SCALAR);
    let x: Vec<f32> = x.iter().map(|&x| x as f32).collect();
    let mut steps = vec![0; kernels.activations_size(x.len() / k, k)?.size_unaligned()];
    let q = kernels.quantize_activations(format, MatRef::new(&x, x.len() / k, k)?, &mut steps)?;
    Ok((0..q.batch()).flat_map(|m| rounded(q, m, !packed)).collect())
}

fn product<'a, E: Element + Number>(
    mut c: Context<'a>,
    packed: bool,
    precision: Precision,
) -> Box<dyn Workload + 'a> {
    let super::Shape { m, n, k } = c.case.shape;
    let format = c.case.format.expect("quantised entries are made with a format");
    let engine = Engine::<E>::new(&c);
    let kernels = engine.kernels();
    let stored = c.carver.take(n * k / format.block_len() * format.block_bytes());
    let (w, decoded) = weights(stored, format, n, k);
    let of: QuantWeights<'a> = if packed {
        let buf: &'a mut [u8] = c.carver.take(packed_size(&c.case));
        let p: PackedQ<'a> =
            kernels.pack_q(w, buf).expect("the shape was checked and the memory carved for it");
        p.into()
    } else {
        w.into()
    };
    let x = Operand::random(c.carver.take::<E>(m * k), PERIOD * k, 2, -1.0, 1.0);
    let mut scratch = AlignedVec::<u8>::zeroed(0);
    Box::new(Produce {
        weights: w.as_bytes(),
        inputs: vec![x],
        output: Operand { data: c.carver.take::<f32>(m * n), pattern: Vec::new() },
        call: Box::new(move |x, y| {
            let plan = kernels.qgemm_plan(format, m, n, k, precision)?;
            let (x, y) = (MatRef::new(&*x[0].data, m, k)?, MatMut::new(y, m, n)?);
            match &engine {
                Engine::One(_) => {
                    let need = plan.scratch()?.size_unaligned();
                    if scratch.len() < need {
                        scratch = AlignedVec::zeroed(need);
                    }
                    plan.run(y, of, x, None, Scratch::new(&mut scratch))
                }
                Engine::Many(p) => p.qgemm(&plan, y, of, x, None),
            }
        }),
        exact: Box::new(move |x| {
            let integers = precision == Precision::Integer && format.element().is_none();
            let x = if integers {
                as_rounded(format, k, &x[0], packed || m > 4).expect("the shape was checked")
            } else {
                x[0].clone()
            };
            let mut out = Vec::with_capacity(x.len() / k * n);
            for x in x.chunks(k) {
                let wanted: Vec<Want> = decoded.chunks(k).map(|row| dot(row, x)).collect();
                out.extend((0..n).map(|r| wanted[r % wanted.len()]));
            }
            out
        }),
        // Weights of 16 bits have been rounded.
        bound: dot_bound(k)
            + if precision == Precision::Exact { E::ROUNDING.max(1.0 / (1 << 24) as f64) } else { 0.0 },
        kernel: None,
    })
}

fn in_place<'a, E: Element + Number>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    product::<E>(c, false, Precision::Integer)
}
fn packed<'a, E: Element + Number>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    product::<E>(c, true, Precision::Integer)
}
fn exact<'a, E: Element + Number>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    product::<E>(c, false, Precision::Exact)
}

fn cost(case: &Case) -> Cost {
    let (m, n, k) = (case.shape.m as f64, case.shape.n as f64, case.shape.k as f64);
    let moved = case.weights(n * k) + m * k * case.size() + 4.0 * m * n;
    Cost { flops: 2.0 * m * n * k, moved, working_set: moved, traffic: Traffic::Read }
}

fn cost_packed(case: &Case) -> Cost {
    let cost = cost(case);
    Cost { working_set: cost.working_set + packed_size(case) as f64, ..cost }
}

pub(super) static ENTRIES: &[Entry] = &[
    Entry {
        name: "qgemm",
        op: Op::Qgemm,
        sizes: Sizes::Product,
        quantised: true,
        cost,
        build: [Some(in_place::<f32>), None, None, None],
        halves: false,
    },
    Entry {
        name: "qgemm_packed",
        op: Op::Qgemm,
        sizes: Sizes::Product,
        quantised: true,
        cost: cost_packed,
        build: [Some(packed::<f32>), None, None, None],
        halves: false,
    },
    Entry {
        name: "qgemm_exact",
        op: Op::Qgemm,
        sizes: Sizes::Product,
        quantised: true,
        cost,
        build: each_element!(exact),
        halves: false,
    },
];
