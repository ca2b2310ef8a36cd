//! Weights of AWQ, GPTQ, SqueezeLLM and FP8, stored anew in formats that products of whole models have; other codes with scales are in [`codes`](super::codes).
//!
//! A weight of AWQ or GPTQ is `n * s`, a whole number `n = q - z` times the scale of its group. So 32 inputs of an output are a block:
//!
//! | numbers `n` of the matrix | format | error |
//! |---|---|---|
//! | -8 to 7, as with 2 and 3 bits, and with 4 bits whose zero points are 8 | `Q4_0`: `s * n` | none |
//! | within 16 of each other in each block, as with 4 bits | `Q4_1`: `s * (n - m) + s * m`, `m` the least of the block | `s * m` is rounded to f16: by at most 15 * 2^-11 `s`, 0.0074 `s` |
//! | -128 to 127, as with 8 bits whose zero points are 128 | `Q8_0`: `s * n` | none |
//!
//! FP8 becomes `E4M3`, without an error, where numbers are E4M3 without NaN and 128 inputs of an output share a scale.
//!
//! Everything else becomes f16, which rounds as the reference does: other numbers, groups that are no multiples of 32 inputs or that have inputs from
//! anywhere (`desc_act`), SqueezeLLM. Whether a matrix is of the first kind is not concluded from what files say: each weight is compared with `n * s`.

use gllm_kernels_core::{
    f16, AwqRef, External, Fp8Ref, GptqRef, KernelError, Kernels, MatMut, QuantFormat, SqueezeLlmRef,
};
use rayon::prelude::*;

use crate::aligned::AlignedVec;
use crate::detect::kernels;

/// Inputs of a block.
pub(super) const BLOCK: usize = 32;
/// Outputs that are decoded at a time: a multiple of 32, as views are cut there.
const STRIPE: usize = 128;

/// A matrix in a format of whole models.
pub(super) struct Stored {
    /// The format; `None` is f16.
    pub(super) format: Option<QuantFormat>,
    pub(super) bytes: AlignedVec<u8>,
}

/// Matrices of which some outputs can be decoded alone.
pub(super) trait Outputs: External + Copy + Sync {
    fn outputs_from(self, start: usize, len: usize) -> Result<Self, KernelError>;
}
macro_rules! outputs {
    ($($name:ident),*) => {$(
        impl Outputs for $name<'_> {
            fn outputs_from(self, start: usize, len: usize) -> Result<Self, KernelError> {
                self.output_range(start, len)
            }
        }
    )*};
}
outputs!(AwqRef, GptqRef, SqueezeLlmRef, Fp8Ref);

/// The weights of a view in f16, an output behind the other.
///
/// # Errors
/// A reason: the view does not have the sizes that it says.
pub(super) fn halves<W: Outputs>(w: W) -> Result<Stored, String> {
    let inputs = w.inputs();
    let mut bytes = AlignedVec::zeroed(2 * w.outputs() * inputs);
    bytes.par_chunks_mut((2 * STRIPE * inputs).max(1)).enumerate().try_for_each(|(i, to)| {
        let len = to.len() / (2 * inputs);
        let part = w.outputs_from(i * STRIPE, len).map_err(|e| e.to_string())?;
        let shape = if W::BY_OUTPUT { [len, inputs] } else { [inputs, len] };
        let mut decoded = vec![f16::ZERO; len * inputs];
        decode(part, &kernels::<f16>(), &mut decoded, shape)?;
        for (at, to) in to.chunks_exact_mut(2).enumerate() {
            let from = if W::BY_OUTPUT { at } else { at % inputs * len + at / inputs };
            to.copy_from_slice(&decoded[from].to_le_bytes());
        }
        Ok::<_, String>(())
    })?;
    Ok(Stored { format: None, bytes })
}

/// Weights in FP8, in blocks if they may be and if [`Fp8Ref::to_blocks`] makes some.
///
/// # Errors
/// A reason: the view does not have the sizes that it says.
pub(super) fn e4m3(w: Fp8Ref<'_>, in_blocks: bool) -> Result<Stored, String> {
    let format = QuantFormat::E4m3;
    let Some(row) = format.row_bytes(w.inputs()).ok().filter(|&row| in_blocks && row > 0) else {
        return halves(w);
    };
    let mut bytes = AlignedVec::zeroed(w.outputs() * row);
    let stripes = bytes.par_chunks_mut(STRIPE * row).enumerate();
    let made = stripes.map(|(i, to)| w.output_range(i * STRIPE, to.len() / row)?.to_blocks(to));
    match made.try_reduce(|| true, |a, b| Ok(a && b)).map_err(|e| e.to_string())? {
        true => Ok(Stored { format: Some(format), bytes }),
        false => halves(w),
    }
}

fn decode<W: External, E: gllm_kernels_core::Element>(
    w: W,
    kernels: &Kernels<E>,
    to: &mut [E],
    [rows, cols]: [usize; 2],
) -> Result<(), String> {
    let y = MatMut::new(to, rows, cols).map_err(|e| e.to_string())?;
    w.dequant_with(kernels, y).map_err(|e| e.to_string())
}

/// What the whole numbers of a matrix are like.
#[derive(Clone, Copy)]
struct Numbers {
    least: i32,
    most: i32,
    /// The largest difference within a block.
    spread: i32,
    /// Whether they are the weights, times the scale.
    exact: bool,
}

/// Weights of AWQ or GPTQ as blocks if a format has them, and in f16 if none does. `scales` has those of the groups, `groups x outputs`, if groups are runs of inputs.
///
/// # Errors
/// A reason: a weight is not finite, or the view does not have the sizes that it says.
pub(super) fn stored<W: Outputs>(w: W, scales: Option<&[f16]>) -> Result<Stored, String> {
    grouped(w, scales)?.map_or_else(|| halves(w), Ok)
}

/// Weights of AWQ or GPTQ as blocks; `None` if no format of blocks has them.
fn grouped<W: Outputs>(w: W, scales: Option<&[f16]>) -> Result<Option<Stored>, String> {
    let (outputs, inputs) = (w.outputs(), w.inputs());
    let Some(scales) = scales.filter(|_| outputs > 0 && inputs > 0) else { return Ok(None) };
    let group = inputs.div_ceil(scales.len() / outputs);
    if !inputs.is_multiple_of(BLOCK) || !group.is_multiple_of(BLOCK) {
        return Ok(None);
    }
    let stripes: Vec<usize> = (0..outputs).step_by(STRIPE).collect();
    let stripe = |start: usize| Stripe::decoded(w, scales, [start, STRIPE.min(outputs - start), group]);
    let all = |a: Numbers, b: Numbers| Numbers {
        least: a.least.min(b.least),
        most: a.most.max(b.most),
        spread: a.spread.max(b.spread),
        exact: a.exact && b.exact,
    };
    let none = Numbers { least: 0, most: 0, spread: 0, exact: true };
    let numbers = stripes
        .par_iter()
        .map(|&start| {
            Ok::<_, String>(stripe(start)?.blocks().map(|(b, exact)| b.numbers(exact)).fold(none, all))
        })
        .try_reduce(|| none, |a, b| Ok(all(a, b)))?;
    let (format, bytes_of) = match numbers {
        Numbers { exact: false, .. } => return Ok(None),
        Numbers { least: -8.., most: ..=7, .. } => (QuantFormat::Q4_0, 18),
        Numbers { spread: ..=15, .. } => (QuantFormat::Q4_1, 20),
        Numbers { least: -128.., most: ..=127, .. } => (QuantFormat::Q8_0, 34),
        _ => return Ok(None),
    };
    let mut bytes = AlignedVec::zeroed(outputs * inputs / BLOCK * bytes_of);
    let rows = STRIPE * inputs / BLOCK * bytes_of;
    bytes.par_chunks_mut(rows).zip(&stripes).try_for_each(|(to, &start)| {
        for ((block, _), to) in stripe(start)?.blocks().zip(to.chunks_exact_mut(bytes_of)) {
            block.store(format, to);
        }
        Ok::<_, String>(())
    })?;
    Ok(Some(Stored { format: Some(format), bytes }))
}

/// Some outputs of a matrix, decoded: `inputs x outputs`, and the scales of all groups.
struct Stripe<'s> {
    weights: Vec<f32>,
    scales: &'s [f16],
    /// The first output, how many there are here and in the matrix.
    start: usize,
    len: usize,
    outputs: usize,
    inputs: usize,
    group: usize,
}

impl<'s> Stripe<'s> {
    fn decoded<W: Outputs>(w: W, scales: &'s [f16], [start, len, group]: [usize; 3]) -> Result<Self, String> {
        let (outputs, inputs) = (w.outputs(), w.inputs());
        let part = w.outputs_from(start, len).map_err(|e| e.to_string())?;
        let mut weights = vec![0.0; inputs * len];
        decode(part, &kernels::<f32>(), &mut weights, [inputs, len])?;
        match weights.iter().position(|w| !w.is_finite()) {
            Some(at) => {
                Err(format!("the weight of output {}, input {} is not finite", start + at % len, at / len))
            }
            None => Ok(Self { weights, scales, start, len, outputs, inputs, group }),
        }
    }

    /// The blocks, output by output, and whether their numbers are the weights, times the scale.
    fn blocks(&self) -> impl Iterator<Item = (Block, bool)> + '_ {
        let of_output =
            move |output: usize| (0..self.inputs).step_by(BLOCK).map(move |input| (output, input));
        (0..self.len).flat_map(of_output).map(|(output, input)| {
            let scale = self.scales[input / self.group * self.outputs + self.start + output];
            let weight = |i: usize| self.weights[(input + i) * self.len + output];
            // `n * s` is exact, and so is what it is divided by `s`; of a scale of 0 any number gives 0.
            let number =
                |i: usize| if scale.to_f32() == 0.0 { 0 } else { (weight(i) / scale.to_f32()) as i32 };
            let numbers = std::array::from_fn(number);
            let exact = (0..BLOCK).all(|i| weight(i) == numbers[i] as f32 * scale.to_f32());
            (Block { scale, numbers }, exact)
        })
    }
}

/// Whole numbers with a scale.
pub(super) struct Block {
    pub(super) scale: f16,
    pub(super) numbers: [i32; BLOCK],
}

impl Block {
    fn numbers(&self, exact: bool) -> Numbers {
        let (least, most) = self.bounds();
        Numbers { least, most, spread: most.saturating_sub(least), exact }
    }

    fn bounds(&self) -> (i32, i32) {
        self.numbers.iter().fold((i32::MAX, i32::MIN), |(a, b), &n| (a.min(n), b.max(n)))
    }

    /// Writes the block: in formats of 4 bits number `i` is in the low half of byte `i`, and 16 further in the high half.
    pub(super) fn store(&self, format: QuantFormat, to: &mut [u8]) {
        let (d, rest) = to.split_at_mut(2);
        d.copy_from_slice(&self.scale.to_le_bytes());
        let (codes, least) = match format {
            QuantFormat::Q8_0 => {
                rest.iter_mut().zip(self.numbers).for_each(|(to, n)| *to = n as u8);
                return;
            }
            QuantFormat::Q4_0 => (rest, -8),
            _ => {
                let (m, codes) = rest.split_at_mut(2);
                let (least, _) = self.bounds();
                m.copy_from_slice(&f16::from_f32(self.scale.to_f32() * least as f32).to_le_bytes());
                (codes, least)
            }
        };
        let code = |i: usize| (self.numbers[i] - least) as u8;
        codes.iter_mut().enumerate().for_each(|(i, to)| *to = code(i) | code(i + BLOCK / 2) << 4);
    }
}
