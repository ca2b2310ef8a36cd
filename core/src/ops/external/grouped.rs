//! Integers with a scale and a zero point for each group of inputs: AWQ and GPTQ.

use super::area;
use crate::check;
use crate::element::f16;
use crate::error::KernelError;

/// The data that both formats have: for each input, the integers of all outputs; for each group of inputs, their scales
/// and zero points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grouped<'a> {
    words: &'a [u32],
    zeros: &'a [u32],
    scales: &'a [f16],
    /// The group of each input, unless it is `input / group`.
    order: Option<&'a [u32]>,
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
    /// Inputs of a group, at least 1.
    group: usize,
    /// From one row of the file to the next: words, words of zero points, scales.
    pitch: [usize; 3],
}

impl<'a> Grouped<'a> {
    /// Groups of all inputs.
    pub(crate) fn groups(&self) -> usize {
        self.inputs.div_ceil(self.group.max(1))
    }

    /// The group of an input, which exists.
    #[inline(always)]
    pub(crate) fn group_of(&self, input: usize) -> usize {
        match self.order {
            Some(order) => order.get(input).map_or(0, |&g| g as usize),
            None => input.checked_div(self.group).unwrap_or(0),
        }
    }

    /// Inputs of a group, if groups are runs of inputs.
    pub(crate) fn run(&self) -> Option<usize> {
        self.order.is_none().then_some(self.group)
    }

    /// Row `row` of the words, and how far the next one is.
    ///
    /// # Safety
    /// The row exists.
    #[inline(always)]
    pub(crate) unsafe fn row(&self, row: usize) -> (*const u32, usize) {
        // SAFETY: the caller vouches for the row.
        (unsafe { self.words.as_ptr().add(row * self.pitch[0]) }, self.pitch[0])
    }

    /// The zero points of a group.
    ///
    /// # Safety
    /// The group exists.
    #[inline(always)]
    pub(crate) unsafe fn zeros(&self, group: usize) -> *const u32 {
        // SAFETY: the caller vouches for the group.
        unsafe { self.zeros.as_ptr().add(group * self.pitch[1]) }
    }

    /// The scales of a group.
    ///
    /// # Safety
    /// The group exists.
    #[inline(always)]
    pub(crate) unsafe fn scales(&self, group: usize) -> *const f16 {
        // SAFETY: the caller vouches for the group.
        unsafe { self.scales.as_ptr().add(group * self.pitch[2]) }
    }

    /// Outputs `start .. start + len`. `step` outputs, which `start` is a multiple of, take `words` words, and
    /// their zero points `zeros`.
    fn output_range(
        self,
        start: usize,
        len: usize,
        [step, words, zeros]: [usize; 3],
    ) -> Result<Self, KernelError> {
        check::range("outputs", start, len, self.outputs)?;
        whole(start, step)?;
        let steps = start.checked_div(step).unwrap_or(0);
        Ok(Self {
            words: self.words.get(steps * words..).unwrap_or(&[]),
            zeros: self.zeros.get(steps * zeros..).unwrap_or(&[]),
            scales: self.scales.get(start..).unwrap_or(&[]),
            outputs: len,
            ..self
        })
    }

    /// Bytes of weights, zero points and scales that products with these outputs read.
    fn size(&self, bits: usize) -> usize {
        // Weights are there, so that neither product overflows by much.
        let of = |bits: usize, n: usize| n.saturating_mul(self.outputs).saturating_mul(bits) / 8;
        of(bits, self.inputs).saturating_add(of(bits + 16, self.groups()))
    }
}

fn whole(n: usize, block: usize) -> Result<(), KernelError> {
    if n.is_multiple_of(block) {
        Ok(())
    } else {
        Err(KernelError::NotBlockMultiple { cols: n, block })
    }
}

/// Checks that are the same for both formats; `rows` rows of words.
fn sizes(w: Grouped<'_>, rows: usize) -> Result<(), KernelError> {
    if w.group == 0 {
        return Err(KernelError::BadValue { arg: "group", got: 0, expected: "at least 1 input" });
    }
    area("weights", w.outputs, w.inputs)?;
    let [words, zeros, scales] = w.pitch;
    check::len("qweight", w.words.len(), area("words of weights", words, rows)?)?;
    check::len("qzeros", w.zeros.len(), area("words of zero points", zeros, w.groups())?)?;
    check::len("scales", w.scales.len(), area("scales", scales, w.groups())?)
}

/// A read-only matrix in AWQ's GEMM packing (AutoAWQ, `version = "gemm"`), 4 bits:
/// `w[n, k] = (q[k, n] - z[k / group, n]) * s[k / group, n]`.
///
/// `n` counts outputs (rows of `W`), `k` inputs (its columns); the file has inputs as rows. `qweight` is
/// `inputs x outputs / 8` words: bits `4 i ..` of word `(k, j)` are `q` of input `k`, output
/// `8 j + [0, 2, 4, 6, 1, 3, 5, 7][i]`. `qzeros` is `groups x outputs / 8` words, packed alike, `scales`
/// `groups x outputs`, where `groups = ceil(inputs / group)`.
///
/// The difference is a whole number of at most 5 bits, so the product is exact in f32; narrowed to f16 it is what the
/// reference computes in f16. Sizes are checked here, once; any words are valid.
#[derive(Clone, Copy, Debug)]
pub struct AwqRef<'a>(pub(crate) Grouped<'a>);

impl<'a> AwqRef<'a> {
    /// Views an `outputs x inputs` matrix; `group` is `inputs` where the file has one group (`group_size` -1).
    ///
    /// # Errors
    /// `NotBlockMultiple` unless `outputs` is a multiple of 8, `WrongLength` unless each slice has the length
    /// above, `BadValue` if `group` is 0, `SizeOverflow`.
    pub fn new(
        qweight: &'a [u32],
        qzeros: &'a [u32],
        scales: &'a [f16],
        outputs: usize,
        inputs: usize,
        group: usize,
    ) -> Result<Self, KernelError> {
        whole(outputs, 8)?;
        let w = Grouped {
            words: qweight,
            zeros: qzeros,
            scales,
            order: None,
            outputs,
            inputs,
            group,
            pitch: [outputs / 8, outputs / 8, outputs],
        };
        sizes(w, inputs)?;
        Ok(Self(w))
    }

    /// Rows of `W`.
    pub fn outputs(&self) -> usize {
        self.0.outputs
    }
    /// Columns of `W`.
    pub fn inputs(&self) -> usize {
        self.0.inputs
    }
    /// Bytes that a product reads.
    pub fn size(&self) -> usize {
        self.0.size(4)
    }
    /// Outputs `start .. start + len`; `start` is a multiple of 8.
    ///
    /// # Errors
    /// `OutOfRange` if the range leaves the matrix, `NotBlockMultiple`, `SizeOverflow`.
    pub fn output_range(self, start: usize, len: usize) -> Result<Self, KernelError> {
        self.0.output_range(start, len, [8, 1, 1]).map(Self)
    }
}

/// How a zero point of GPTQ is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GptqZeros {
    /// Minus one (`checkpoint_format` "gptq", and every file without one): `z = (stored + 1) mod 2^bits`.
    V1,
    /// As it is ("gptq_v2").
    V2,
}

/// A read-only matrix as GPTQ packs it, 2, 3, 4 or 8 bits: `w[n, k] = (q[k, n] - z[g(k), n]) * s[g(k), n]`.
///
/// `n` counts outputs (rows of `W`), `k` inputs (its columns); the file has inputs as rows. `qweight` is
/// `inputs * bits / 32 x outputs` words: each column of words is a string of bits, the lowest first, in which bits
/// `bits * k ..` are `q[k, n]`; with 3 bits some lie across two words. `qzeros` is `groups x outputs * bits / 32`
/// words: each row is such a string, of the outputs' zero points (see [`GptqZeros`]). `scales` is
/// `groups x outputs`, `groups = ceil(inputs / group)`. `g(k)` is `g_idx[k]`, or else `k / group`.
///
/// The difference is a whole number of at most 9 bits, so the product is exact in f32; narrowed to f16 it is what the
/// reference computes in f16. Sizes and `g_idx` are checked here, once; any other words are valid.
#[derive(Clone, Copy, Debug)]
pub struct GptqRef<'a> {
    pub(crate) grouped: Grouped<'a>,
    pub(crate) bits: u32,
    pub(crate) zeros: GptqZeros,
}

/// The slices that [`GptqRef::new`] makes a view of.
#[derive(Clone, Copy, Debug)]
pub struct GptqParts<'a> {
    /// Bits of an integer: 2, 3, 4 or 8.
    pub bits: u32,
    /// Inputs of a group; all of them where the file has one group (`group_size` -1).
    pub group: usize,
    /// How zero points are stored.
    pub zeros: GptqZeros,
    /// Integers.
    pub qweight: &'a [u32],
    /// Zero points.
    pub qzeros: &'a [u32],
    /// Scales.
    pub scales: &'a [f16],
    /// The group of each input, if they are not runs.
    pub g_idx: Option<&'a [u32]>,
}

impl<'a> GptqRef<'a> {
    /// Views an `outputs x inputs` matrix.
    ///
    /// # Errors
    /// `BadValue` if there is no such number of bits, or `group` is 0; `NotBlockMultiple` unless `inputs` is a
    /// multiple of 32 and the bits of `outputs` fill whole words; `WrongLength` unless each slice has its length;
    /// `BadIndex` if an entry of `g_idx` is not below the number of groups; `SizeOverflow`.
    pub fn new(p: GptqParts<'a>, outputs: usize, inputs: usize) -> Result<Self, KernelError> {
        // Outputs whose zero points fill whole words.
        let block = match p.bits {
            2 => 16,
            3 => 32,
            4 => 8,
            8 => 4,
            got => {
                return Err(KernelError::BadValue {
                    arg: "bits",
                    got: got as usize,
                    expected: "2, 3, 4 or 8",
                })
            }
        };
        whole(outputs, block)?;
        whole(inputs, 32)?;
        let bits = p.bits as usize;
        let w = Grouped {
            words: p.qweight,
            zeros: p.qzeros,
            scales: p.scales,
            order: None,
            outputs,
            inputs,
            group: p.group,
            pitch: [outputs, area("bits of zero points", outputs, bits)? / 32, outputs],
        };
        sizes(w, inputs / 32 * bits)?;
        let groups = w.groups();
        let mut order = None;
        if let Some(g_idx) = p.g_idx {
            check::len("g_idx", g_idx.len(), inputs)?;
            for (at, &value) in g_idx.iter().enumerate() {
                let value = value as usize;
                if value >= groups {
                    return Err(KernelError::BadIndex { arg: "g_idx", at, value, from: 0, below: groups });
                }
                if value != w.group_of(at) {
                    order = Some(g_idx);
                }
            }
        }
        Ok(Self { grouped: Grouped { order, ..w }, bits: p.bits, zeros: p.zeros })
    }

    /// Rows of `W`.
    pub fn outputs(&self) -> usize {
        self.grouped.outputs
    }
    /// Columns of `W`.
    pub fn inputs(&self) -> usize {
        self.grouped.inputs
    }
    /// Bits of an integer.
    pub fn bits(&self) -> u32 {
        self.bits
    }
    /// Bytes that a product reads.
    pub fn size(&self) -> usize {
        self.grouped.size(self.bits as usize)
    }
    /// Outputs `start .. start + len`; `start` is a multiple of 32.
    ///
    /// # Errors
    /// `OutOfRange` if the range leaves the matrix, `NotBlockMultiple`, `SizeOverflow`.
    pub fn output_range(self, start: usize, len: usize) -> Result<Self, KernelError> {
        Ok(Self { grouped: self.grouped.output_range(start, len, [32, 32, self.bits as usize])?, ..self })
    }
}
