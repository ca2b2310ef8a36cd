//! FP8.

use gllm_kernels_core::{bf16, f16, Element, Fp8Format, Fp8Ref, Fp8Scaling, KernelInfo, ScaleSlice};

use super::{check_decode, check_product, Layout, Truth};
use crate::data::Source;
use crate::report::{Outcome, Report};
use crate::{Edge, Guarded};

const LAYOUT: Layout = Layout { by_output: true, step: 1 };

/// The number, by the formula of the specification.
fn number(format: Fp8Format, byte: u8) -> f64 {
    let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
    let (bits, bias) = if format == Fp8Format::E4m3 { (3, 7) } else { (2, 15) };
    let exponent = i32::from((byte & 0x7f) >> bits);
    let mantissa = f64::from(byte & ((1 << bits) - 1)) / f64::from(1 << bits);
    match (format, byte & 0x7f) {
        (Fp8Format::E4m3, 0x7f) | (Fp8Format::E5m2, 0x7d..) => f64::NAN,
        (Fp8Format::E5m2, 0x7c) => sign * f64::INFINITY,
        _ if exponent == 0 => sign * mantissa * f64::powi(2.0, 1 - bias),
        _ => sign * (1.0 + mantissa) * f64::powi(2.0, exponent - bias),
    }
}

/// The types of scales.
enum Scales {
    F32(Guarded<f32>),
    F16(Guarded<f16>),
    Bf16(Guarded<bf16>),
}

impl Scales {
    fn new(which: usize, values: &[f32], edge: Edge) -> Self {
        match which % 3 {
            0 => Self::F32(Guarded::copy_of(values, edge)),
            1 => Self::F16(Guarded::copy_of(
                &values.iter().map(|&v| f16::from_f32(v)).collect::<Vec<_>>(),
                edge,
            )),
            _ => Self::Bf16(Guarded::copy_of(
                &values.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<_>>(),
                edge,
            )),
        }
    }
    fn slice(&self) -> ScaleSlice<'_> {
        match self {
            Self::F32(s) => ScaleSlice::F32(s),
            Self::F16(s) => ScaleSlice::F16(s),
            Self::Bf16(s) => ScaleSlice::Bf16(s),
        }
    }
    fn at(&self, i: usize) -> f64 {
        match self {
            Self::F32(s) => s[i].into(),
            Self::F16(s) => s[i].into(),
            Self::Bf16(s) => s[i].into(),
        }
    }
}

const SCALINGS: [Fp8Scaling; 5] = [
    Fp8Scaling::Tensor,
    Fp8Scaling::Row,
    Fp8Scaling::Block { rows: 128, cols: 128 },
    Fp8Scaling::Block { rows: 3, cols: 32 },
    Fp8Scaling::Block { rows: 2, cols: 5 },
];

/// Shapes whose inputs leave every remainder of a vector, besides `shapes`.
fn with_remainders(shapes: &[(usize, usize)]) -> Vec<(usize, usize)> {
    shapes.iter().copied().chain((2..15).map(|rest| (1, 16 + rest))).collect()
}

/// Calls `check` with weights of every format and scaling. `draw` gives bytes and scales.
fn each(
    shapes: &[(usize, usize)],
    source: &mut Source,
    draw: impl Fn(&mut Source, Fp8Format) -> (u8, f32),
    mut check: impl FnMut(Fp8Ref<'_>, Truth, usize) -> Result<(), String>,
) -> Result<(), String> {
    let mut case = 0;
    for &(outputs, inputs) in shapes {
        for format in [Fp8Format::E4m3, Fp8Format::E5m2] {
            for scaling in SCALINGS {
                let tile = match scaling {
                    Fp8Scaling::Tensor => (outputs.max(1), inputs.max(1)),
                    Fp8Scaling::Row => (1, inputs.max(1)),
                    Fp8Scaling::Block { rows, cols } => (rows, cols),
                };
                let across = inputs.div_ceil(tile.1);
                let n = if scaling == Fp8Scaling::Tensor { 1 } else { outputs.div_ceil(tile.0) * across };
                let edge = Edge::BOTH[case % 2];
                let bytes: Vec<u8> = (0..outputs * inputs).map(|_| draw(source, format).0).collect();
                let scales: Vec<f32> = (0..n).map(|_| draw(source, format).1).collect();
                let scales = Scales::new(case, &scales, edge);
                let guarded = Guarded::copy_of(&bytes, edge);
                let w = Fp8Ref::new(&guarded, format, outputs, inputs, scales.slice(), scaling);
                let w = w.map_err(|e| e.to_string())?;
                let truth = Truth::new(outputs, inputs, |r, c| {
                    // At most 4 times 24 significant bits: exact in f64.
                    let exact =
                        number(format, bytes[r * inputs + c]) * scales.at(r / tile.0 * across + c / tile.1);
                    (exact, exact as f32)
                });
                let tiles = across.max(1);
                check(w, truth, inputs.div_ceil(16) + tiles)?;
                case += 1;
            }
        }
    }
    Ok(())
}

/// `dequant_fp8`: every byte, by the formula; scales of every type and size, zero, infinite and NaN too.
pub fn dequant_fp8<E: Element>(row: &KernelInfo) -> Outcome {
    let mut report = Report::ULP;
    let mut source = Source::new(11);
    let shapes = [(0, 3), (3, 0), (1, 1), (2, 15), (3, 16), (5, 33), (7, 128), (130, 131), (1, 700)];
    let shapes = with_remainders(&shapes);
    let draw = |s: &mut Source, _| (s.below(256) as u8, s.pattern::<f32>());
    each(&shapes, &mut source, draw, |w, truth, _| {
        let what = format!("{:?} {}x{}", w.format(), w.outputs(), w.inputs());
        check_decode::<E>(row.level, &truth, &LAYOUT, &what, &mut report, &|k, range, y| {
            k.dequant_fp8(w.output_range(range.start, range.len())?, y)
        })
    })?;
    // Nothing is left to chance: all 256, with a scale of 1.
    let all: Vec<u8> = (0..=255).collect();
    for format in [Fp8Format::E4m3, Fp8Format::E5m2] {
        let truth = Truth::new(16, 16, |r, c| {
            let exact = number(format, all[r * 16 + c]);
            (exact, exact as f32)
        });
        let w = Fp8Ref::new(&all, format, 16, 16, ScaleSlice::F32(&[1.0]), Fp8Scaling::Tensor);
        let w = w.map_err(|e| e.to_string())?;
        check_decode::<E>(row.level, &truth, &LAYOUT, "all bytes", &mut report, &|k, range, y| {
            k.dequant_fp8(w.output_range(range.start, range.len())?, y)
        })?;
    }
    Ok(report)
}

/// `qgemv_fp8`: whole numbers exactly, others within the bound of the order of summation; NaN where one is.
pub fn qgemv_fp8<E: Element>(row: &KernelInfo) -> Outcome {
    let mut report = Report::BOUND;
    let mut source = Source::new(12);
    let shapes =
        [(0, 3), (3, 0), (1, 1), (4, 15), (5, 16), (9, 33), (8, 128), (131, 257), (6, 1000), (3, 4099)];
    let shapes = with_remainders(&shapes);
    let mut xs = Source::new(13);
    let mut run = |w: Fp8Ref<'_>, truth: &Truth, x: &[E], steps| {
        check_product::<E>(row.level, truth, &LAYOUT, (x, steps), &mut report, &|k, range, x, y| {
            k.qgemv_fp8(w.output_range(range.start, range.len())?, x, y)
        })
    };
    let finite = |format, byte: u8| number(format, byte).is_finite();
    let any = |s: &mut Source, format| loop {
        let byte = s.below(256) as u8;
        if finite(format, byte) {
            return (byte, s.normal());
        }
    };
    each(&shapes, &mut source, any, |w, truth, steps| {
        // Besides: 15 sums of a tile, 15 lanes, one scaling.
        let x = xs.normals::<E>(w.inputs());
        run(w, &truth, &x, steps + 31)
    })?;
    // 1, 2, 3, 4 and their negatives, times 1 or 2: sums are exact.
    let whole = |s: &mut Source, format| {
        let sign = 0x80 * s.below(2) as u8;
        let one = if format == Fp8Format::E4m3 { [0x38, 0x40, 0x44, 0x48] } else { [0x3c, 0x40, 0x42, 0x44] };
        (sign | one[s.below(4)], [1.0, 2.0][s.below(2)])
    };
    each(&shapes, &mut source, whole, |w, truth, _| {
        let x = xs.whole::<E>(w.inputs(), 3);
        run(w, &truth, &x, 0)
    })?;
    let rarely_nan = |s: &mut Source, format| {
        let byte = if s.below(300) == 0 { 0xff } else { 0x38 };
        (if format == Fp8Format::E4m3 { byte } else { byte | 4 }, 1.0)
    };
    each(&shapes, &mut source, rarely_nan, |w, truth, steps| {
        let x = xs.normals::<E>(w.inputs());
        run(w, &truth, &x, steps + 31)
    })?;
    Ok(report)
}
