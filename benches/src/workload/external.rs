//! Weights in the layouts of other checkpoints.

use gllm_kernels_core::{
    bf16, f16, AwqRef, Caps, Element, External, Fp8Format, Fp8Ref, Fp8Scaling, GptqParts, GptqRef, GptqZeros,
    Kernels, MatMut, Op, Outliers, ScaleSlice, SqueezeLlmParts, SqueezeLlmRef,
};

use super::matrices::{dot, dot_bound};
use super::produce::{Number, Operand, Produce, Want, Workload};
use super::{Case, Context, Cost, Engine, Entry, Shape, Sizes};
use crate::arena::Carver;
use crate::limits::memory::Traffic;

/// Outputs before they repeat, and inputs too where these are rows.
const PERIOD: usize = 8;

/// Weights of a format.
trait Weights: 'static {
    type View<'a>: External + 'a;
    /// Bytes.
    fn size(outputs: usize, inputs: usize) -> usize;
    /// Random weights, about 1 in size, in memory of `carver`.
    fn make<'a>(carver: &mut Carver<'a>, outputs: usize, inputs: usize) -> Self::View<'a>;
}

/// Random bytes, the same ones every time.
fn random(n: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        // Knuth's MMIX generator; the upper bits are the good ones.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..n).map(|_| next()).collect()
}

/// E4M3 in tiles of 128 x 128.
struct Fp8;
impl Weights for Fp8 {
    type View<'a> = Fp8Ref<'a>;
    fn size(outputs: usize, inputs: usize) -> usize {
        outputs * inputs + 4 * outputs.div_ceil(128) * inputs.div_ceil(128)
    }
    fn make<'a>(carver: &mut Carver<'a>, outputs: usize, inputs: usize) -> Fp8Ref<'a> {
        let bytes = carver.take::<u8>(outputs * inputs);
        // -8 .. 8: without NaN.
        let pattern: Vec<u8> = random(PERIOD * inputs, 1).into_iter().map(|b| b & 0xcf).collect();
        for part in bytes.chunks_mut(pattern.len().max(1)) {
            part.copy_from_slice(&pattern[..part.len()]);
        }
        let across = inputs.div_ceil(128);
        let scales = carver.take::<f32>(outputs.div_ceil(128) * across);
        for (i, s) in scales.iter_mut().enumerate() {
            *s = 0.3 + (i % across) as f32 / across as f32;
        }
        let scaling = Fp8Scaling::Block { rows: 128, cols: 128 };
        Fp8Ref::new(bytes, Fp8Format::E4m3, outputs, inputs, ScaleSlice::F32(scales), scaling)
            .expect("sizes fit each other")
    }
}

/// Fills words: a row has `period` of them, again and again; rows repeat after `rows`.
fn words<'a>(
    carver: &mut Carver<'a>,
    (count, width): (usize, usize),
    (rows, period): (usize, usize),
    seed: u64,
) -> &'a [u32] {
    let pattern = random(4 * rows * period, seed);
    let pattern: Vec<u32> = pattern.chunks(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let words = carver.take::<u32>(count * width);
    for (r, row) in words.chunks_mut(width.max(1)).enumerate() {
        let of_row = &pattern[r % rows * period..][..period];
        row.iter_mut().enumerate().for_each(|(i, w)| *w = of_row[i % period]);
    }
    words
}

/// Scales for each group, the same ones for all.
fn scales<'a>(carver: &mut Carver<'a>, groups: usize, outputs: usize) -> &'a [f16] {
    let scales = carver.take::<f16>(groups * outputs);
    for (i, s) in scales.iter_mut().enumerate() {
        *s = f16::from_f32(0.05 + (i % outputs % PERIOD) as f32 / 50.0);
    }
    scales
}

/// Inputs that share a scale, where there are as many.
const GROUP: usize = 128;

/// Bytes of integers, zero points and scales.
fn grouped(outputs: usize, inputs: usize, bits: usize) -> usize {
    (inputs * bits + inputs.div_ceil(GROUP) * (bits + 16)) * outputs / 8
}

/// AWQ.
struct Awq;
impl Weights for Awq {
    type View<'a> = AwqRef<'a>;
    fn size(outputs: usize, inputs: usize) -> usize {
        grouped(outputs, inputs, 4)
    }
    fn make<'a>(carver: &mut Carver<'a>, outputs: usize, inputs: usize) -> AwqRef<'a> {
        let groups = inputs.div_ceil(GROUP);
        let qweight = words(carver, (inputs, outputs / 8), (PERIOD, 1), 3);
        let qzeros = words(carver, (groups, outputs / 8), (1, 1), 4);
        AwqRef::new(qweight, qzeros, scales(carver, groups, outputs), outputs, inputs, GROUP)
            .expect("sizes fit each other")
    }
}

/// GPTQ, 4 bits.
struct Gptq;
impl Weights for Gptq {
    type View<'a> = GptqRef<'a>;
    fn size(outputs: usize, inputs: usize) -> usize {
        grouped(outputs, inputs, 4)
    }
    fn make<'a>(carver: &mut Carver<'a>, outputs: usize, inputs: usize) -> GptqRef<'a> {
        let groups = inputs.div_ceil(GROUP);
        let parts = GptqParts {
            bits: 4,
            group: GROUP,
            zeros: GptqZeros::V1,
            qweight: words(carver, (inputs / 8, outputs), (1, PERIOD), 5),
            qzeros: words(carver, (groups, outputs / 8), (1, 1), 6),
            scales: scales(carver, groups, outputs),
            g_idx: None,
        };
        GptqRef::new(parts, outputs, inputs).expect("sizes fit each other")
    }
}

/// SqueezeLLM, 4 bits, with an outlier for each 256 weights.
struct SqueezeLlm;
impl SqueezeLlm {
    /// Inputs for each outlier.
    const SPARSE: usize = 256;
}
impl Weights for SqueezeLlm {
    type View<'a> = SqueezeLlmRef<'a>;
    fn size(outputs: usize, inputs: usize) -> usize {
        outputs * (inputs / 2 + 64 + 4 + 8 * (inputs / Self::SPARSE))
    }
    fn make<'a>(carver: &mut Carver<'a>, outputs: usize, inputs: usize) -> SqueezeLlmRef<'a> {
        let each = inputs / Self::SPARSE;
        let table = carver.take::<f32>(16 * outputs);
        for (i, t) in table.iter_mut().enumerate() {
            *t = (i % 16) as f32 / 8.0 - 1.0 + (i / 16 % PERIOD) as f32 / 64.0;
        }
        let rows = carver.take::<u32>(outputs + 1);
        rows.iter_mut().enumerate().for_each(|(n, row)| *row = (n * each) as u32);
        let (cols, vals) = (carver.take::<u32>(outputs * each), carver.take::<f32>(outputs * each));
        for (i, (col, val)) in cols.iter_mut().zip(vals.iter_mut()).enumerate() {
            let (n, j) = (i / each % PERIOD, i % each);
            (*col, *val) = ((j * Self::SPARSE + 17 * n) as u32, 2.0 + n as f32);
        }
        let parts = SqueezeLlmParts {
            bits: 4,
            qweight: words(carver, (inputs / 8, outputs), (PERIOD, PERIOD), 7),
            lookup_table: table,
            outliers: Some(Outliers { rows, cols, vals }),
        };
        SqueezeLlmRef::new(parts, outputs, inputs).expect("sizes fit each other")
    }
}

/// Outputs and inputs of a product, rounded up to what every format can store.
fn product(s: Shape) -> (usize, usize) {
    (s.n.next_multiple_of(PERIOD), s.k.next_multiple_of(32))
}

/// Outputs and inputs of what decodes to rows of a shape; rounded up likewise.
fn decoded<W: Weights>(s: Shape) -> (usize, usize) {
    if <W::View<'static> as External>::BY_OUTPUT {
        (s.m.next_multiple_of(PERIOD), s.n.next_multiple_of(32))
    } else {
        (s.n.next_multiple_of(PERIOD), s.m.next_multiple_of(32))
    }
}

/// The first outputs and inputs, decoded by portable code: all outputs of a row are one behind the other.
fn plain<W: External>(w: W) -> Vec<f64> {
    let (outputs, inputs) = (w.outputs().min(PERIOD), w.inputs());
    let mut y = vec![0f32; outputs * inputs];
    let first = w.output_range(0, outputs).expect("there are as many");
    let (rows, cols) = if W::BY_OUTPUT { (outputs, inputs) } else { (inputs, outputs) };
    let y_view = MatMut::new(&mut y, rows, cols).expect("there is room");
    first.dequant_with(&Kernels::with(Caps::SCALAR), y_view).expect("it fits");
    let at = |o: usize, i: usize| y[if W::BY_OUTPUT { o * cols + i } else { i * cols + o }];
    (0..outputs * inputs).map(|i| at(i / inputs, i % inputs).into()).collect()
}

fn dequant<'a, E: Element + Number, W: Weights>(mut c: Context<'a>) -> Box<dyn Workload + 'a> {
    let (outputs, inputs) = decoded::<W>(c.case.shape);
    let engine = Engine::<E>::new(&c);
    let w = W::make(&mut c.carver, outputs, inputs);
    let first = plain(w);
    let by_output = <W::View<'static> as External>::BY_OUTPUT;
    let (rows, cols) = if by_output { (outputs, inputs) } else { (inputs, outputs) };
    Box::new(Produce {
        weights: &[],
        inputs: Vec::<Operand<'a, E>>::new(),
        output: Operand { data: c.carver.take::<E>(rows * cols), pattern: Vec::new() },
        call: Box::new(move |_, y| {
            let y = MatMut::new(y, rows, cols)?;
            match &engine {
                Engine::One(k) => w.dequant_with(k, y),
                Engine::Many(p) => p.dequant_external(w, y),
            }
        }),
        exact: Box::new(move |_| {
            let of = |i: usize| {
                let (row, col) = (i / cols, i % cols);
                let (output, input) = if by_output { (row, col) } else { (col % PERIOD, row) };
                Want::of(first[output * inputs + input])
            };
            (0..PERIOD.min(rows) * cols).map(of).collect()
        }),
        bound: 0.0,
        kernel: None,
    })
}

fn qgemv<'a, E: Element + Number, W: Weights>(mut c: Context<'a>) -> Box<dyn Workload + 'a> {
    let (outputs, inputs) = product(c.case.shape);
    let engine = Engine::<E>::new(&c);
    let w = W::make(&mut c.carver, outputs, inputs);
    let first = plain(w);
    let x = Operand::random(c.carver.take::<E>(inputs), inputs, 2, -1.0, 1.0);
    Box::new(Produce {
        weights: &[],
        inputs: vec![x],
        output: Operand { data: c.carver.take::<f32>(outputs), pattern: Vec::new() },
        call: Box::new(move |x, y| match &engine {
            Engine::One(k) => w.qgemv_with(k, x[0].data, y),
            Engine::Many(p) => p.qgemv_external(w, x[0].data, y),
        }),
        exact: Box::new(move |x| first.chunks(inputs).map(|row| dot(row, &x[0])).collect()),
        bound: dot_bound(inputs),
        kernel: None,
    })
}

fn decode_cost<W: Weights>(case: &Case) -> Cost {
    let (outputs, inputs) = decoded::<W>(case.shape);
    let n = (outputs * inputs) as f64;
    let bytes = W::size(outputs, inputs) as f64 + case.size() * n;
    Cost { flops: n, moved: bytes, working_set: bytes, traffic: Traffic::Expand }
}

fn product_cost<W: Weights>(case: &Case) -> Cost {
    let (outputs, inputs) = product(case.shape);
    let bytes = W::size(outputs, inputs) as f64 + inputs as f64 * case.size() + 4.0 * outputs as f64;
    Cost { flops: 2.0 * (outputs * inputs) as f64, moved: bytes, working_set: bytes, traffic: Traffic::Read }
}

macro_rules! entries {
    ($($weights:ident: $dequant:literal $Dequant:ident, $qgemv:literal $Qgemv:ident;)*) => {
        pub(super) static ENTRIES: &[Entry] = &[$(
            Entry {
                name: $dequant,
                op: Op::$Dequant,
                sizes: Sizes::Rows,
                quantised: false,
                cost: decode_cost::<$weights>,
                build: [
                    Some(dequant::<f32, $weights>),
                    Some(dequant::<f16, $weights>),
                    Some(dequant::<bf16, $weights>),
                    None,
                ],
                halves: true,
            },
            Entry {
                name: $qgemv,
                op: Op::$Qgemv,
                sizes: Sizes::MatVec,
                quantised: false,
                cost: product_cost::<$weights>,
                build: [
                    Some(qgemv::<f32, $weights>),
                    Some(qgemv::<f16, $weights>),
                    Some(qgemv::<bf16, $weights>),
                    None,
                ],
                halves: false,
            },
        )*];
    };
}
entries! {
    Fp8: "dequant_fp8" DequantFp8, "qgemv_fp8" QgemvFp8;
    Awq: "dequant_awq" DequantAwq, "qgemv_awq" QgemvAwq;
    Gptq: "dequant_gptq" DequantGptq, "qgemv_gptq" QgemvGptq;
    SqueezeLlm: "dequant_squeezellm" DequantSqueezellm, "qgemv_squeezellm" QgemvSqueezellm;
}
