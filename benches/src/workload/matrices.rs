//! Matrix times vector, dense and quantised, and decoding of quantised weights.

use gllm_kernels_core::{
    Caps, Element, Kernels, MatMut, MatRef, Op, Precision, QuantFormat, QuantRef, Scratch,
};

use super::produce::{Number, Operand, Produce, Want, Workload};
use super::{call, each_element, Context, Cost, Engine, Entry, Sizes};
use crate::limits::memory::Traffic;

/// Rows before they repeat.
const PERIOD: usize = 7;

/// Error of a dot product of `k` terms relative to their magnitudes: core's bound, capped far above
/// what random errors reach and below what one missing term would cause.
pub(crate) fn dot_bound(k: usize) -> f64 {
    ((k as f64 + 16.0) / f64::from(1 << 24)).min(3e-5)
}

pub(super) fn dot(a: &[f64], x: &[f64]) -> Want {
    let terms = || a.iter().zip(x).map(|(a, x)| a * x);
    Want { value: terms().sum(), scale: terms().map(f64::abs).sum() }
}

fn gemv<'a, E: Element + Number>(mut c: Context<'a>) -> Box<dyn Workload + 'a> {
    let (n, k) = (c.case.shape.n, c.case.shape.k);
    let engine = Engine::new(&c);
    let a = Operand::random(c.carver.take::<E>(n * k), PERIOD * k, 1, -1.0, 1.0);
    let x = Operand::random(c.carver.take::<E>(k), k, 2, -1.0, 1.0);
    let output = Operand { data: c.carver.take::<f32>(n), pattern: Vec::new() };
    Box::new(Produce {
        weights: &[],
        inputs: vec![a, x],
        output,
        call: Box::new(move |x, y| {
            let a = MatRef::new(x[0].data, n, k)?;
            call!(&engine, gemv(1.0, a, x[1].data, 0.0, y))
        }),
        exact: Box::new(move |x| x[0].chunks(k).map(|row| dot(row, &x[1])).collect()),
        bound: dot_bound(k),
        kernel: None,
    })
}

/// Random blocks, repeated every [`PERIOD`] rows, and what they decode to. Blocks that decode to
/// something huge or not finite are drawn again: random bytes make such scales.
pub(super) fn weights<'a>(
    data: &'a mut [u8],
    format: QuantFormat,
    rows: usize,
    cols: usize,
) -> (QuantRef<'a>, Vec<f64>) {
    let scalar = Kernels::<f32>::with(Caps::SCALAR);
    let (block, len) = (format.block_bytes(), format.block_len());
    let distinct = PERIOD.min(rows);
    let mut decoded = vec![0f32; distinct * cols];
    let mut state = 1u64;
    let mut pattern = Vec::new();
    for out in decoded.chunks_mut(len) {
        loop {
            let bytes: Vec<u8> = (0..block)
                .map(|_| {
                    // Knuth's MMIX generator; the upper bits are the good ones.
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 56) as u8
                })
                .collect();
            let groups = len / format.group_len();
            let (mut codes, mut scales, mut offsets) = (vec![0; len], vec![0.0; groups], vec![0.0; groups]);
            let decodes = QuantRef::new(&bytes, format, 1, len).and_then(|w| {
                scalar.unpack(w, &mut codes, &mut scales, &mut offsets)?;
                scalar.dequant(w, out)
            });
            // Some CPUs are slow to convert denormal f16, which weights rarely have for scales.
            let usual = |s: &f32| *s == 0.0 || s.abs() > 1e-4;
            if !scales.iter().chain(&offsets).all(usual) {
                continue;
            }
            if decodes.is_ok() && out.iter().all(|v| v.abs() < 100.0) && out.iter().any(|v| v.abs() > 1e-3) {
                pattern.extend_from_slice(&bytes);
                break;
            }
        }
    }
    for part in data.chunks_mut(pattern.len()) {
        part.copy_from_slice(&pattern[..part.len()]);
    }
    let w =
        QuantRef::new(data, format, rows, cols).expect("the shape was checked and the memory carved for it");
    (w, decoded.into_iter().map(f64::from).collect())
}

/// The format of a quantised case.
fn format(c: &Context<'_>) -> QuantFormat {
    c.case.format.expect("quantised entries are made with a format")
}

fn dequant<'a, E: Element + Number>(mut c: Context<'a>) -> Box<dyn Workload + 'a> {
    let (m, n, format) = (c.case.shape.m, c.case.shape.n, format(&c));
    let engine = Engine::<E>::new(&c);
    let (w, decoded) =
        weights(c.carver.take(m * n / format.block_len() * format.block_bytes()), format, m, n);
    Box::new(Produce {
        weights: &[],
        inputs: Vec::<Operand<'a, E>>::new(),
        output: Operand { data: c.carver.take::<E>(m * n), pattern: Vec::new() },
        call: Box::new(move |_, y| call!(&engine, dequant(w, y))),
        exact: Box::new(move |_| decoded.iter().copied().map(Want::of).collect()),
        bound: 0.0,
        kernel: None,
    })
}

fn qgemv<'a, E: Element + Number>(mut c: Context<'a>) -> Box<dyn Workload + 'a> {
    let (n, k, format) = (c.case.shape.n, c.case.shape.k, format(&c));
    let engine = Engine::new(&c);
    let (w, decoded) =
        weights(c.carver.take(n * k / format.block_len() * format.block_bytes()), format, n, k);
    let x = Operand::random(c.carver.take::<E>(k), k, 2, -1.0, 1.0);
    Box::new(Produce {
        weights: w.as_bytes(),
        inputs: vec![x],
        output: Operand { data: c.carver.take::<f32>(n), pattern: Vec::new() },
        call: Box::new(move |x, y| {
            let plan =
                engine.kernels().qgemm_plan(format, 1, n, k, Precision::Exact)?.with_kernel(Op::Qgemv)?;
            let (x, y) = (MatRef::new(&*x[0].data, 1, k)?, MatMut::new(y, 1, n)?);
            match &engine {
                Engine::One(_) => plan.run(y, w, x, None, Scratch::empty()),
                Engine::Many(p) => p.qgemm(&plan, y, w, x, None),
            }
        }),
        exact: Box::new(move |x| decoded.chunks(k).map(|row| dot(row, &x[0])).collect()),
        bound: dot_bound(k),
        kernel: None,
    })
}

pub(super) static ENTRIES: &[Entry] = &[
    Entry {
        name: "gemv",
        op: Op::Gemv,
        sizes: Sizes::MatVec,
        quantised: false,
        cost: |case| {
            let (n, k) = (case.shape.n as f64, case.shape.k as f64);
            let bytes = (n * k + k) * case.size() + 4.0 * n;
            Cost { flops: 2.0 * n * k, moved: bytes, working_set: bytes, traffic: Traffic::Read }
        },
        build: each_element!(gemv),
        halves: true,
    },
    Entry {
        name: "dequant",
        op: Op::Dequant,
        sizes: Sizes::Rows,
        quantised: true,
        cost: |case| {
            let n = (case.shape.m * case.shape.n) as f64;
            let bytes = case.weights(n) + case.size() * n;
            Cost { flops: n, moved: bytes, working_set: bytes, traffic: Traffic::Expand }
        },
        build: each_element!(dequant),
        halves: true,
    },
    Entry {
        name: "qgemv",
        op: Op::Qgemv,
        sizes: Sizes::MatVec,
        quantised: true,
        cost: |case| {
            let (n, k) = (case.shape.n as f64, case.shape.k as f64);
            let bytes = case.weights(n * k) + k * case.size() + 4.0 * n;
            Cost { flops: 2.0 * n * k, moved: bytes, working_set: bytes, traffic: Traffic::Read }
        },
        build: each_element!(qgemv),
        halves: false,
    },
];
