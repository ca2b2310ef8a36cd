//! Matrix products of quantised weights.

use gllm_kernels_core::{
    bf16, f16, Caps, Element, KernelError, Kernels, MatMut, MatRef, Op, PackedQ, Precision, QgemmPlan,
    QuantFormat, QuantWeights, Scratch,
};
use gllm_kernels_std::{AlignedVec, QgemmGroup};
use gllm_testkit::packed::rounded;

use super::matrices::{dot, dot_bound, weights};
use super::produce::{Number, Operand, Produce, Want, Workload};
use super::{each_element, Case, Context, Cost, Engine, Entry, Sizes};
use crate::limits::memory::Traffic;

/// Rows of activations before they repeat.
const PERIOD: usize = 3;

/// Matrices of weights of a mixture of experts.
const EXPERTS: usize = 8;

/// Bytes of the packed weights.
fn packed_size(case: &Case) -> usize {
    let format = case.format.expect("quantised entries are made with a format");
    // A size that is refused here is refused by the call, too.
    format.packed_size(case.shape.n, case.shape.k).unwrap_or(0)
}

/// The activations as products of integers see them; of few rows those with weights in place.
fn as_rounded(format: QuantFormat, k: usize, x: &[f64], packed: bool) -> Result<Vec<f64>, KernelError> {
    let kernels = Kernels::<f32>::with(Caps::SCALAR);
    let x: Vec<f32> = x.iter().map(|&x| x as f32).collect();
    let rows = x.len() / k;
    let op = if packed { Op::QgemvPacked } else { Op::QgemvQ8 };
    let plan = kernels.qgemm_plan(format, rows, 0, k, Precision::Integer)?.with_kernel(op)?;
    let mut steps = vec![0; plan.prepared_size()?.size_unaligned()];
    let q = plan.prepare(MatRef::new(&x, rows, k)?, &mut steps)?;
    Ok((0..rows).flat_map(|m| rounded(&q, m)).collect())
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
    let plan = kernels.qgemm_plan(format, m, n, k, precision).expect("the shape was checked");
    let way = Way::of(&plan, of);
    let x = Operand::random(c.carver.take::<E>(m * k), PERIOD * k, 2, -1.0, 1.0);
    let mut scratch = AlignedVec::<u8>::zeroed(0);
    Box::new(Produce {
        weights: w.as_bytes(),
        inputs: vec![x],
        output: Operand { data: c.carver.take::<f32>(m * n), pattern: Vec::new() },
        call: Box::new(move |x, y| {
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
            let x = way.seen(&x[0]);
            let mut out = Vec::with_capacity(x.len() / k * n);
            for x in x.chunks(k) {
                let wanted: Vec<Want> = decoded.chunks(k).map(|row| dot(row, x)).collect();
                out.extend((0..n).map(|r| wanted[r % wanted.len()]));
            }
            out
        }),
        bound: dot_bound(k) + rounding::<E>(plan.precision()),
        kernel: None,
    })
}

/// How a product sees its activations.
struct Way {
    format: QuantFormat,
    cols: usize,
    precision: Precision,
    /// Whether groups of 32 have their own scale.
    fine: bool,
}

impl Way {
    fn of<E: Element>(plan: &QgemmPlan<E>, w: QuantWeights<'_>) -> Self {
        let fine = w.is_packed() || plan.packed(false).prepared_row_step() > 1;
        Self { format: w.format(), cols: w.cols(), precision: plan.precision(), fine }
    }

    fn seen(&self, x: &[f64]) -> Vec<f64> {
        match self.precision {
            Precision::Integer => {
                as_rounded(self.format, self.cols, x, self.fine).expect("the shape was checked")
            }
            Precision::Bf16 => x.iter().map(|&x| bf16::from_f64(x).to_f64()).collect(),
            _ => x.to_vec(),
        }
    }
}

/// What weights are rounded by.
fn rounding<E: Number>(precision: Precision) -> f64 {
    match precision {
        Precision::Integer => 0.0,
        Precision::Bf16 => bf16::ROUNDING,
        _ => E::ROUNDING.max(1.0 / (1 << 24) as f64),
    }
}

/// The first of the rows of activations that expert `e` has of `m` in all: each has more than the one before.
fn first_row(m: usize, e: usize) -> usize {
    m * e * (e + 1) / (EXPERTS * (EXPERTS + 1))
}

fn grouped<'a, E: Element + Number>(mut c: Context<'a>) -> Box<dyn Workload + 'a> {
    let super::Shape { m, n, k } = c.case.shape;
    let format = c.case.format.expect("quantised entries are made with a format");
    let engine = Engine::<E>::new(&c);
    let kernels = engine.kernels();
    let stored = c.carver.take(EXPERTS * n * k / format.block_len() * format.block_bytes());
    let (w, decoded) = weights(stored, format, EXPERTS * n, k);
    let plan =
        move |m| kernels.qgemm_plan(format, m, n, k, Precision::Integer).expect("the shape was checked");
    let bound = dot_bound(k) + rounding::<E>(plan(m).precision());
    let rows = |e| first_row(m, e + 1) - first_row(m, e);
    let ways: Vec<Way> = (0..EXPERTS).map(|e| Way::of(&plan(rows(e)), w.into())).collect();
    let x = Operand::random(c.carver.take::<E>(m * k), PERIOD * k, 2, -1.0, 1.0);
    let mut scratch = AlignedVec::<u8>::zeroed(0);
    Box::new(Produce {
        weights: w.as_bytes(),
        inputs: vec![x],
        output: Operand { data: c.carver.take::<f32>(m * n), pattern: Vec::new() },
        call: Box::new(move |x, y| {
            let (mut groups, mut rest) = (Vec::with_capacity(EXPERTS), MatMut::new(y, m, n)?);
            for e in 0..EXPERTS {
                let (first, end) = (first_row(m, e), first_row(m, e + 1));
                let (y, below) = rest.split_rows(end - first)?;
                rest = below;
                let x = MatRef::new(&x[0].data[first * k..end * k], end - first, k)?;
                let (plan, w) = (plan(end - first), w.row_range(e * n, n)?);
                groups.push(QgemmGroup { plan, y, w: w.into(), x: x.into(), bias: None });
            }
            match &engine {
                Engine::One(_) => groups.into_iter().try_for_each(|QgemmGroup { plan, y, w, x, bias }| {
                    let need = plan.scratch()?.size_unaligned();
                    if scratch.len() < need {
                        scratch = AlignedVec::zeroed(need);
                    }
                    plan.run(y, w, x, bias, Scratch::new(&mut scratch))
                }),
                Engine::Many(p) => p.qgemm_grouped(&mut groups),
            }
        }),
        exact: Box::new(move |x| {
            let mut out = Vec::with_capacity(m * n);
            for e in 0..EXPERTS {
                let (first, end) = (first_row(m, e), first_row(m, e + 1));
                let x = ways[e].seen(&x[0]);
                let distinct = decoded.len() / k;
                let wanted: Vec<Want> =
                    x.chunks(k).flat_map(|x| decoded.chunks(k).map(|row| dot(row, x))).collect();
                for i in first..end {
                    let of_row = &wanted[i % (x.len() / k) * distinct..][..distinct];
                    out.extend((0..n).map(|r| of_row[(e * n + r) % distinct]));
                }
            }
            out
        }),
        bound,
        kernel: None,
    })
}

fn in_place<'a, E: Element + Number>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    product::<E>(c, false, Precision::Integer)
}
fn packed<'a, E: Element + Number>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    product::<E>(c, true, Precision::Integer)
}
fn in_bf16<'a, E: Element + Number>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    product::<E>(c, false, Precision::Bf16)
}
fn exact<'a, E: Element + Number>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    product::<E>(c, false, Precision::Exact)
}

fn cost(case: &Case) -> Cost {
    let (m, n, k) = (case.shape.m as f64, case.shape.n as f64, case.shape.k as f64);
    let moved = case.weights(n * k) + m * k * case.size() + 4.0 * m * n;
    Cost { flops: 2.0 * m * n * k, moved, working_set: moved, traffic: Traffic::Read }
}

/// `m` rows of activations in all, each for one of the experts, which have `n x k` weights each.
fn cost_grouped(case: &Case) -> Cost {
    let (m, n, k) = (case.shape.m as f64, case.shape.n as f64, case.shape.k as f64);
    let moved = case.weights(EXPERTS as f64 * n * k) + m * k * case.size() + 4.0 * m * n;
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
        name: "qgemm_bf16",
        op: Op::Qgemm,
        sizes: Sizes::Product,
        quantised: true,
        cost,
        build: [Some(in_bf16::<f32>), Some(in_bf16::<f16>), None, None],
        halves: false,
    },
    Entry {
        name: "qgemm_grouped",
        op: Op::Qgemm,
        sizes: Sizes::Product,
        quantised: true,
        cost: cost_grouped,
        build: [Some(grouped::<f32>), None, None, None],
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
