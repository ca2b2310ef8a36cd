//! AWQ and GPTQ.

use gllm_kernels_core::{f16, AwqRef, Element, GptqParts, GptqRef, GptqZeros, KernelInfo};

use super::{check_decode, check_product, Layout, Truth};
use crate::data::Source;
use crate::report::{Outcome, Report};
use crate::{effort, Edge, Guarded};

/// Integers, zero points and scales before they are packed.
struct Plain {
    outputs: usize,
    inputs: usize,
    bits: u32,
    /// `[input][output]`.
    integers: Vec<u32>,
    /// `[group][output]`.
    zeros: Vec<u32>,
    scales: Vec<f16>,
    /// The group of each input.
    order: Vec<u32>,
}

/// What scales are.
#[derive(Clone, Copy, PartialEq)]
enum Scales {
    /// Any f16, infinities and NaNs included.
    Any,
    Ordinary,
    One,
}

impl Plain {
    fn random(
        source: &mut Source,
        (outputs, inputs): (usize, usize),
        (bits, group): (u32, usize),
        scales: Scales,
    ) -> Self {
        let groups = inputs.div_ceil(group);
        let mut integer = |_| source.below(1 << bits) as u32;
        let integers = (0..inputs * outputs).map(&mut integer).collect();
        let zeros = (0..groups * outputs).map(&mut integer).collect();
        let mut scale = |_| match scales {
            Scales::Any => source.pattern::<f16>(),
            Scales::Ordinary => f16::from_f32(0.1 * source.normal()),
            Scales::One => f16::ONE,
        };
        let scales = (0..groups * outputs).map(&mut scale).collect();
        let order = (0..inputs).map(|k| (k / group) as u32).collect();
        Self { outputs, inputs, bits, integers, zeros, scales, order }
    }

    fn truth(&self) -> Truth {
        let n = self.outputs;
        Truth::new(n, self.inputs, |o, i| {
            let g = self.order[i] as usize;
            let integer = f64::from(self.integers[i * n + o]) - f64::from(self.zeros[g * n + o]);
            // At most 9 and 11 bits: exact in f32, too.
            let exact = integer * f64::from(self.scales[g * n + o]);
            (exact, exact as f32)
        })
    }

    /// Words of AWQ.
    fn awq(&self, integers: &[u32]) -> Vec<u32> {
        let order = [0, 2, 4, 6, 1, 3, 5, 7];
        let word = |eight: &[u32]| (0..8).map(|i| eight[order[i]] << (4 * i)).sum();
        integers.chunks(8).map(word).collect()
    }

    fn gptq(&self, zeros: GptqZeros) -> (Vec<u32>, Vec<u32>) {
        let (n, rows) = (self.outputs, self.inputs * self.bits as usize / 32);
        let mut weights = vec![0; rows * n];
        for o in 0..n {
            let column = string(self.bits, (0..self.inputs).map(|i| self.integers[i * n + o]));
            column.iter().enumerate().for_each(|(row, &word)| weights[row * n + o] = word);
        }
        let stored = |z: u32| if zeros == GptqZeros::V1 { z.wrapping_sub(1) % (1 << self.bits) } else { z };
        let rows = self.zeros.chunks(n.max(1));
        (weights, rows.flat_map(|row| string(self.bits, row.iter().map(|&z| stored(z)))).collect())
    }
}

/// Integers as a string of bits, in words.
pub(super) fn string(width: u32, integers: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut bits = vec![];
    for q in integers {
        bits.extend((0..width).map(|b| q >> b & 1));
    }
    bits.chunks(32).map(|word| word.iter().enumerate().map(|(i, b)| b << i).sum()).collect()
}

/// The cases of AWQ: sizes, inputs of a group.
fn awq_cases() -> Vec<((usize, usize), usize)> {
    vec![
        ((0, 8), 32),
        ((8, 0), 32),
        ((8, 1), 1),
        ((8, 5), 5),
        ((16, 33), 32),
        ((64, 64), 32),
        ((120, 100), 100),
        ((128, 128), 128),
        ((136, 70), 64),
        ((264, 257), 64),
        ((2048, 40), 32),
        ((2056, 24), 7),
    ]
}

/// Calls `check` with weights of every case.
fn each_awq(
    source: &mut Source,
    scales: Scales,
    mut check: impl FnMut(AwqRef<'_>, Truth, usize) -> Result<(), String>,
) -> Result<(), String> {
    for (i, ((outputs, inputs), group)) in awq_cases().into_iter().enumerate() {
        let plain = Plain::random(source, (outputs, inputs), (4, group), scales);
        let edge = Edge::BOTH[i % 2];
        let weights = Guarded::copy_of(&plain.awq(&plain.integers), edge);
        let zeros = Guarded::copy_of(&plain.awq(&plain.zeros), edge);
        let s = Guarded::copy_of(&plain.scales, edge);
        let w = AwqRef::new(&weights, &zeros, &s, outputs, inputs, group).map_err(|e| e.to_string())?;
        // Chains of 8 inputs, ends of groups one by one.
        let steps = inputs / 8 + 8 * inputs.div_ceil(group) + 8;
        check(w, plain.truth(), steps)?;
    }
    Ok(())
}

const AWQ: Layout = Layout { by_output: false, step: 8 };

/// `dequant_awq`: every integer less every zero point, scales of every kind.
pub fn dequant_awq<E: Element>(row: &KernelInfo) -> Outcome {
    let mut report = Report::ULP;
    let mut source = Source::new(21);
    each_awq(&mut source, Scales::Any, |w, truth, _| {
        let what = format!("{}x{}", w.outputs(), w.inputs());
        check_decode::<E>(row.level, &truth, &AWQ, &what, &mut report, &|k, range, y| {
            k.dequant_awq(w.output_range(range.start, range.len())?, y)
        })
    })?;
    Ok(report)
}

/// `qgemv_awq`: whole numbers exactly, others within the bound.
pub fn qgemv_awq<E: Element>(row: &KernelInfo) -> Outcome {
    let mut report = Report::BOUND;
    let mut source = Source::new(22);
    let mut xs = Source::new(23);
    for scales in [Scales::Ordinary, Scales::One, Scales::Any] {
        each_awq(&mut source, scales, |w, truth, steps| {
            let whole = scales == Scales::One;
            let x = if whole { xs.whole::<E>(w.inputs(), 3) } else { xs.normals(w.inputs()) };
            let steps = if whole { 0 } else { steps };
            check_product::<E>(row.level, &truth, &AWQ, (&x, steps), &mut report, &|k, range, x, y| {
                k.qgemv_awq(w.output_range(range.start, range.len())?, x, y)
            })
        })?;
    }
    Ok(report)
}

/// How inputs are assigned to groups.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Runs,
    /// `g_idx` that says the same.
    Told,
    Any,
}

/// Calls `check` with weights of every number of bits, size, order and convention.
fn each_gptq(
    source: &mut Source,
    scales: Scales,
    mut check: impl FnMut(GptqRef<'_>, Truth, usize) -> Result<(), String>,
) -> Result<(), String> {
    let mut case = 0;
    for bits in [2, 3, 4, 8] {
        let sizes = [
            ((0, 32), 32, Order::Runs),
            ((32, 0), 32, Order::Told),
            ((32, 32), 32, Order::Runs),
            ((32, 64), 64, Order::Any),
            ((64, 96), 96, Order::Told),
            ((96, 160), 32, Order::Any),
            ((160, 128), 128, Order::Runs),
            // A group ends within a word; more groups than there is room for.
            ((64, 96), 40, Order::Runs),
            ((32, 288), 2, Order::Any),
            ((2080, 64), 32, Order::Runs),
            ((2080, 64), 16, Order::Any),
        ];
        // As few outputs as words of zero points allow.
        let least = match bits {
            2 => 16,
            3 => 32,
            4 => 8,
            _ => 4,
        };
        let sizes =
            sizes.into_iter().chain([((least, 64), 32, Order::Runs), ((3 * least, 64), 32, Order::Any)]);
        for ((outputs, inputs), group, order) in sizes {
            if outputs > 2000 && effort() == 0 {
                continue;
            }
            let mut plain = Plain::random(source, (outputs, inputs), (bits, group), scales);
            if order == Order::Any {
                let groups = inputs.div_ceil(group);
                plain.order.iter_mut().for_each(|g| *g = source.below(groups) as u32);
            }
            for zeros in [GptqZeros::V1, GptqZeros::V2] {
                let (weights, z) = plain.gptq(zeros);
                let edge = Edge::BOTH[case % 2];
                let (weights, z) = (Guarded::copy_of(&weights, edge), Guarded::copy_of(&z, edge));
                let s = Guarded::copy_of(&plain.scales, edge);
                let parts = GptqParts {
                    bits,
                    group,
                    zeros,
                    qweight: &weights,
                    qzeros: &z,
                    scales: &s,
                    g_idx: (order != Order::Runs).then_some(&plain.order),
                };
                let w = GptqRef::new(parts, outputs, inputs)
                    .map_err(|e| format!("{bits} bits, {outputs}x{inputs} by {group}: {e}"))?;
                let steps = if inputs.div_ceil(group) > 128 { inputs + 2 } else { inputs / 32 + 16 };
                check(w, plain.truth(), steps)
                    .map_err(|e| format!("{bits} bits by {group}, {order:?}: {e}"))?;
                case += 1;
            }
        }
    }
    Ok(())
}

const GPTQ: Layout = Layout { by_output: false, step: 32 };

/// `dequant_gptq`: as AWQ's; every number of bits, order of groups, and convention of zero points.
pub fn dequant_gptq<E: Element>(row: &KernelInfo) -> Outcome {
    let mut report = Report::ULP;
    let mut source = Source::new(24);
    each_gptq(&mut source, Scales::Any, |w, truth, _| {
        let what = format!("{}x{}", w.outputs(), w.inputs());
        check_decode::<E>(row.level, &truth, &GPTQ, &what, &mut report, &|k, range, y| {
            k.dequant_gptq(w.output_range(range.start, range.len())?, y)
        })
    })?;
    Ok(report)
}

/// `qgemv_gptq`: whole numbers exactly, others within the bound.
pub fn qgemv_gptq<E: Element>(row: &KernelInfo) -> Outcome {
    let mut report = Report::BOUND;
    let mut source = Source::new(25);
    let mut xs = Source::new(26);
    for scales in [Scales::Ordinary, Scales::One, Scales::Any] {
        each_gptq(&mut source, scales, |w, truth, steps| {
            let whole = scales == Scales::One;
            let x = if whole { xs.whole::<E>(w.inputs(), 3) } else { xs.normals(w.inputs()) };
            let steps = if whole { 0 } else { steps };
            check_product::<E>(row.level, &truth, &GPTQ, (&x, steps), &mut report, &|k, range, x, y| {
                k.qgemv_gptq(w.output_range(range.start, range.len())?, x, y)
            })
        })?;
    }
    Ok(report)
}
