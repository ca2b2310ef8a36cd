//! Matrices of codes with scales, as compressed-tensors, ModelOpt, Quark and bitsandbytes write them.

use std::ops::Range;

use gllm_kernels_core::codebooks::{e8m0_half, ue4m3_half, FP4_VALUES};
use gllm_kernels_core::ScaleSlice;

/// A read-only matrix of codes with scales: `w[output, input] = (value(code) - zero) * scale`, in f32.
///
/// | kind | value of a code | scales | zero points |
/// |---|---|---|---|
/// | `int1` to `int8` | a whole number of so many bits, with a sign | f32, f16 or bf16: one of all, of an output, or of a group of inputs | none, or one for each scale |
/// | `nvfp4` | E2M1 | E4M3 for 16 inputs, times one of the matrix | none |
/// | `mxfp4`, `mxfp8` | E2M1, E4M3 | E8M0 for 32 inputs | none |
/// | `nf4`, `fp4` | one of 16 numbers of the file | f32, or codes of 8 bits for numbers of the file, for so many weights in the order of the matrix | none |
///
/// An output's weights lie one behind the other. Lengths are checked when a view is made; any bytes are valid. (Source: compressed-tensors 0.20,
/// `compressors/`; ModelOpt's exports, which vLLM's `modelopt.py` reads; Quark 0.13, `utils/pack.py`; bitsandbytes 0.49, `functional.py`.)
#[derive(Clone, Copy, Debug)]
pub struct CodesRef<'a> {
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    pub(super) codes: Codes<'a>,
    pub(super) zeros: Option<Zeros<'a>>,
    pub(super) scales: Scales<'a>,
    pub(super) sharing: Sharing<'a>,
}

/// Where codes are, and what they mean.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Codes<'a> {
    /// Whole numbers of so many bits plus `2^(bits - 1)`: those of an output are a string of bits, the lowest first, in words of its own.
    Strings { words: &'a [u32], bits: u32 },
    /// Whole numbers of 8 bits in two's complement.
    Signed(&'a [u8]),
    /// E2M1 numbers, two in a byte, the first in the low half.
    Fp4(&'a [u8]),
    /// E4M3 numbers.
    Fp8(&'a [u8]),
    /// Numbers of a table, two in a byte, the first in the high half.
    Table { bytes: &'a [u8], values: &'a [f32] },
}

/// Zero points of whole numbers, one for each scale.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Zeros<'a> {
    /// As codes are, but strings are those of a group, of all outputs, and groups take turns: `words x groups`.
    Strings { words: &'a [u32], bits: u32, groups: usize },
    /// In two's complement, `outputs x groups`.
    Signed(&'a [u8]),
}

/// Scales as they are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scales<'a> {
    /// Numbers times a factor.
    Floats(ScaleSlice<'a>, f32),
    /// E4M3 numbers times a factor.
    E4m3(&'a [u8], f32),
    /// Powers of 2 plus 127.
    E8m0(&'a [u8]),
    /// `map[code] * outer + offset`: so many share a number of `outer`.
    Nested { codes: &'a [u8], map: &'a [f32], outer: &'a [f32], len: usize, offset: f32 },
}

/// Which weights share a scale.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sharing<'a> {
    /// All.
    Whole,
    /// So many inputs of an output that follow each other; `groups` of them make a row.
    Runs { len: usize, groups: usize },
    /// The inputs of an output that have the same number here.
    Index { of: &'a [u32], groups: usize },
    /// So many weights of the matrix that follow each other.
    Flat(usize),
}

/// A number of so many bits of a string of bits.
fn bits_at(words: impl Fn(usize) -> u32, bits: u32, i: usize) -> u32 {
    let at = i * bits as usize;
    let (word, shift) = (at / 32, (at % 32) as u32);
    let low = words(word) >> shift;
    let high = if shift + bits > 32 { words(word + 1) << (32 - shift) } else { 0 };
    (low | high) & ((1 << bits) - 1)
}

impl Scales<'_> {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Floats(numbers, _) => numbers.len(),
            Self::E4m3(codes, _) | Self::E8m0(codes) | Self::Nested { codes, .. } => codes.len(),
        }
    }

    fn at(&self, i: usize) -> f32 {
        match *self {
            Self::Floats(numbers, factor) => {
                let number = match numbers {
                    ScaleSlice::F32(s) => s[i],
                    ScaleSlice::F16(s) => s[i].to_f32(),
                    ScaleSlice::Bf16(s) => s[i].to_f32(),
                };
                number * factor
            }
            Self::E4m3(codes, factor) => e4m3(codes[i]) * factor,
            Self::E8m0(codes) if codes[i] == 255 => f32::NAN,
            Self::E8m0(codes) => 2.0 * e8m0_half(codes[i]),
            Self::Nested { codes, map, outer, len, offset } => {
                map[usize::from(codes[i])] * outer[i / len] + offset
            }
        }
    }
}

/// The E4M3 number of a byte.
fn e4m3(code: u8) -> f32 {
    match code & 0x7f {
        0x7f => f32::NAN,
        magnitude if code < 0x80 => 2.0 * ue4m3_half(magnitude),
        magnitude => -2.0 * ue4m3_half(magnitude),
    }
}

impl<'a> CodesRef<'a> {
    /// Rows of the matrix.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns of the matrix.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// What the codes are.
    pub(crate) fn codes(&self) -> Codes<'a> {
        self.codes
    }

    /// Whether whole numbers have zero points.
    pub(crate) fn has_zeros(&self) -> bool {
        self.zeros.is_some()
    }

    /// Whether scales are powers of 2.
    pub(crate) fn has_powers_of_two(&self) -> bool {
        matches!(self.scales, Scales::E8m0(_))
    }

    /// How many inputs, from the first of each output on, share a scale at least; `None` if they do not follow each other.
    pub(crate) fn run(&self) -> Option<usize> {
        match self.sharing {
            Sharing::Whole => Some(self.inputs),
            Sharing::Runs { len, .. } => Some(len.min(self.inputs)),
            Sharing::Flat(len) if self.inputs.is_multiple_of(len) => Some(len),
            Sharing::Flat(_) | Sharing::Index { .. } => None,
        }
    }

    /// The number of the scale of a weight.
    fn shared(&self, output: usize, input: usize) -> usize {
        match self.sharing {
            Sharing::Whole => 0,
            Sharing::Runs { len, groups } => output * groups + input / len,
            Sharing::Index { of, groups } => output * groups + of[input] as usize,
            Sharing::Flat(len) => (output * self.inputs + input) / len,
        }
    }

    /// The scale of a weight.
    pub(crate) fn scale(&self, output: usize, input: usize) -> f32 {
        self.scales.at(self.shared(output, input))
    }

    /// The scale of a weight but for the factor of the matrix, which scales of E4M3 have.
    pub(crate) fn e4m3_scale(&self, output: usize, input: usize) -> f32 {
        match self.scales {
            Scales::E4m3(codes, _) => e4m3(codes[self.shared(output, input)]),
            _ => self.scale(output, input),
        }
    }

    /// The factor of the matrix; 1 if it has none.
    pub(crate) fn factor(&self) -> f32 {
        match self.scales {
            Scales::E4m3(_, factor) => factor,
            _ => 1.0,
        }
    }

    /// The byte of a scale that is a power of 2.
    pub(crate) fn e8m0_scale(&self, output: usize, input: usize) -> Option<u8> {
        match self.scales {
            Scales::E8m0(codes) => Some(codes[self.shared(output, input)]),
            _ => None,
        }
    }

    /// Some inputs of an output that follow each other, and have one scale: from `input` on.
    fn alike(&self, output: usize, input: usize) -> Range<usize> {
        let len = match self.sharing {
            Sharing::Whole => self.inputs,
            Sharing::Runs { len, .. } => len - input % len,
            Sharing::Flat(len) => len - (output * self.inputs + input) % len,
            Sharing::Index { .. } => 1,
        };
        input..input.saturating_add(len).min(self.inputs)
    }

    /// The code of a weight that has 4 bits, two in a byte.
    pub(crate) fn nibble(&self, output: usize, input: usize) -> u8 {
        let at = output * self.inputs + input;
        match self.codes {
            Codes::Fp4(bytes) => bytes[at / 2] >> (at % 2 * 4) & 15,
            Codes::Table { bytes, .. } => bytes[at / 2] >> ((at + 1) % 2 * 4) & 15,
            Codes::Strings { .. } | Codes::Signed(_) | Codes::Fp8(_) => 0,
        }
    }

    /// What the codes of an output mean, less their zero points, without scales: a number for each input. Whole numbers are exact.
    pub(crate) fn values(&self, output: usize, to: &mut [f32]) {
        let to = &mut to[..self.inputs];
        match self.codes {
            Codes::Strings { words, bits } => {
                let row = (self.inputs * bits as usize).div_ceil(32);
                let words = &words[output * row..][..row];
                let less = 1 << (bits - 1);
                let value = |code: u32| (code as i32 - less) as f32;
                if 32 % bits == 0 {
                    for (to, &word) in to.chunks_mut(32 / bits as usize).zip(words) {
                        for (i, to) in (0..).zip(to) {
                            *to = value(word >> (i * bits) & ((1 << bits) - 1));
                        }
                    }
                } else {
                    for (i, to) in to.iter_mut().enumerate() {
                        *to = value(bits_at(|w| words[w], bits, i));
                    }
                }
            }
            Codes::Signed(bytes) => {
                let row = &bytes[output * self.inputs..];
                to.iter_mut().zip(row).for_each(|(to, &q)| *to = f32::from(q as i8));
            }
            Codes::Fp4(_) => {
                for (input, to) in to.iter_mut().enumerate() {
                    *to = 0.5 * f32::from(FP4_VALUES[usize::from(self.nibble(output, input))]);
                }
            }
            Codes::Fp8(bytes) => {
                let row = &bytes[output * self.inputs..];
                to.iter_mut().zip(row).for_each(|(to, &code)| *to = e4m3(code));
            }
            Codes::Table { values, .. } => {
                for (input, to) in to.iter_mut().enumerate() {
                    *to = values[usize::from(self.nibble(output, input))];
                }
            }
        }
        let Some(zeros) = self.zeros else { return };
        let mut input = 0;
        while input < self.inputs {
            let run = self.alike(output, input);
            let zero = self.zero(zeros, output, input) as f32;
            input = run.end;
            to[run].iter_mut().for_each(|to| *to -= zero);
        }
    }

    fn zero(&self, zeros: Zeros<'_>, output: usize, input: usize) -> i32 {
        let shared = self.shared(output, input);
        match zeros {
            Zeros::Strings { words, bits, groups } => {
                let group = shared % groups;
                bits_at(|word| words[word * groups + group], bits, output) as i32 - (1 << (bits - 1))
            }
            Zeros::Signed(bytes) => i32::from(bytes[shared] as i8),
        }
    }

    /// The weights of an output, one for each input.
    ///
    /// # Errors
    /// A reason: there is no such output, or `to` has another length.
    pub fn row(&self, output: usize, to: &mut [f32]) -> Result<(), String> {
        if output >= self.outputs || to.len() != self.inputs {
            return Err(format!(
                "output {output} of {}, {} numbers of {}",
                self.outputs,
                to.len(),
                self.inputs
            ));
        }
        self.values(output, to);
        let mut input = 0;
        while input < self.inputs {
            let (run, scale) = (self.alike(output, input), self.scale(output, input));
            input = run.end;
            to[run].iter_mut().for_each(|w| *w *= scale);
        }
        Ok(())
    }
}
