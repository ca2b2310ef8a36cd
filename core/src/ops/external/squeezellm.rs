//! Lookup tables for each output, and sparse outliers: SqueezeLLM.

use super::{area, eight, put, streams, ExternalArgs, UNPACKED};
use crate::arrays::from_fn;
use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::isa::machine::{fence, into_l2};
use crate::isa::transpose::Transpose;
use crate::ops::engine::first;
use crate::quant::lanes::Lanes;
use crate::vector::Prim;

/// Weights that are added to those of the tables, in compressed rows.
#[derive(Clone, Copy, Debug)]
pub struct Outliers<'a> {
    /// Where each output's outliers start, and where the last one's end: `outputs + 1` numbers.
    pub rows: &'a [u32],
    /// The input of each outlier, ascending for an output.
    pub cols: &'a [u32],
    /// The outliers.
    pub vals: &'a [f32],
}

/// The slices that [`SqueezeLlmRef::new`] makes a view of.
#[derive(Clone, Copy, Debug)]
pub struct SqueezeLlmParts<'a> {
    /// Bits of an index: 3 or 4.
    pub bits: u32,
    /// Indices.
    pub qweight: &'a [u32],
    /// Tables.
    pub lookup_table: &'a [f32],
    /// Outliers, if there are any.
    pub outliers: Option<Outliers<'a>>,
}

/// A read-only matrix in the format of SqueezeLLM (Kim et al., 2024, arXiv:2306.07629):
/// `w[n, k] = table[n, q[k, n]] + outlier[n, k]`, rounded to f32 once, most outliers being 0.
///
/// `n` counts outputs (rows of `W`), `k` inputs (its columns). `qweight` is `inputs * bits / 32 x outputs` words,
/// packed like [`GptqRef`](crate::GptqRef)'s; `lookup_table` is `outputs x 2^bits`. Outliers are checkpoints'
/// `rows`, `cols` and `vals`; `full_rows`, a second, dense form of them, is not supported.
///
/// Sizes and indices are checked here, once; any other words are valid.
#[derive(Clone, Copy, Debug)]
pub struct SqueezeLlmRef<'a> {
    p: SqueezeLlmParts<'a>,
    outputs: usize,
    inputs: usize,
    /// Words from one row of them to the next.
    pitch: usize,
}

impl<'a> SqueezeLlmRef<'a> {
    /// Views an `outputs x inputs` matrix.
    ///
    /// # Errors
    /// `BadValue` if there is no such number of bits; `NotBlockMultiple` unless `inputs` is a multiple of 32;
    /// `WrongLength` unless each slice has its length; `BadIndex` if `rows` does not start at 0, descends or leaves
    /// the outliers, or `cols` leaves the inputs or does not ascend for an output; `SizeOverflow`.
    pub fn new(p: SqueezeLlmParts<'a>, outputs: usize, inputs: usize) -> Result<Self, KernelError> {
        if !matches!(p.bits, 3 | 4) {
            return Err(KernelError::BadValue { arg: "bits", got: p.bits as usize, expected: "3 or 4" });
        }
        if !inputs.is_multiple_of(32) {
            return Err(KernelError::NotBlockMultiple { cols: inputs, block: 32 });
        }
        area("weights", outputs, inputs)?;
        let words = area("words of weights", outputs, inputs / 32 * p.bits as usize)?;
        check::len("qweight", p.qweight.len(), words)?;
        check::len("lookup_table", p.lookup_table.len(), area("lookup tables", outputs, 1 << p.bits)?)?;
        if let Some(o) = p.outliers {
            o.check(outputs, inputs)?;
        }
        Ok(Self { p, outputs, inputs, pitch: outputs })
    }

    /// Rows of `W`.
    pub fn outputs(&self) -> usize {
        self.outputs
    }
    /// Columns of `W`.
    pub fn inputs(&self) -> usize {
        self.inputs
    }
    /// Bits of an index.
    pub fn bits(&self) -> u32 {
        self.p.bits
    }
    /// Bytes that a product reads.
    pub fn size(&self) -> usize {
        let dense = self.inputs / 8 * self.p.bits as usize + (4 << self.p.bits);
        let outliers =
            self.p.outliers.and_then(|o| Some(o.rows.get(self.outputs)?.wrapping_sub(*o.rows.first()?)));
        self.outputs
            .saturating_mul(dense)
            .saturating_add(outliers.map_or(0, |n| (n as usize).saturating_mul(8)))
    }

    /// Outputs `start .. start + len`.
    ///
    /// # Errors
    /// `OutOfRange` if the range leaves the matrix, `SizeOverflow`.
    pub fn output_range(self, start: usize, len: usize) -> Result<Self, KernelError> {
        check::range("outputs", start, len, self.outputs)?;
        let outliers = self.p.outliers.map(|o| Outliers { rows: o.rows.get(start..).unwrap_or(&[]), ..o });
        let qweight = self.p.qweight.get(start..).unwrap_or(&[]);
        let lookup_table = self.p.lookup_table.get(start << self.p.bits..).unwrap_or(&[]);
        Ok(Self { p: SqueezeLlmParts { qweight, lookup_table, outliers, ..self.p }, outputs: len, ..self })
    }

    /// The outliers of an output: inputs and values.
    #[inline(always)]
    fn outliers(&self, output: usize) -> impl Iterator<Item = (usize, f32)> + 'a {
        let none: (&[u32], &[f32]) = (&[], &[]);
        let found = self.p.outliers.and_then(|o| {
            let (&from, &to) = (o.rows.get(output)?, o.rows.get(output.checked_add(1)?)?);
            let range = from as usize..to as usize;
            Some((o.cols.get(range.clone())?, o.vals.get(range)?))
        });
        let (cols, vals) = found.unwrap_or(none);
        cols.iter().map(|&c| c as usize).zip(vals.iter().copied())
    }

    /// The table's weight of an output and an input, which exist.
    fn dense(&self, output: usize, input: usize) -> f32 {
        let (bits, mask) = (self.p.bits as usize, (1u32 << self.p.bits) - 1);
        let (row, shift) = (input * bits / 32, (input * bits % 32) as u32);
        let word =
            |row: usize| u64::from(self.p.qweight.get(row * self.pitch + output).copied().unwrap_or(0));
        let index = ((word(row) | word(row + 1) << 32) >> shift) as u32 & mask;
        self.p.lookup_table.get((output << bits) + index as usize).copied().unwrap_or(f32::NAN)
    }
}

impl Outliers<'_> {
    fn check(&self, outputs: usize, inputs: usize) -> Result<(), KernelError> {
        let need = outputs.checked_add(1).ok_or(KernelError::SizeOverflow { what: "rows" })?;
        check::len("rows", self.rows.len(), need)?;
        check::len("vals", self.vals.len(), self.cols.len())?;
        let last = self.cols.len();
        let mut before = 0;
        for (at, &value) in self.rows.iter().enumerate() {
            let value = value as usize;
            // From none to all of the outliers, ascending.
            let from = if at == outputs { last } else { before };
            let below = if at == 0 { 1 } else { last + 1 };
            if !(from..below).contains(&value) {
                return Err(KernelError::BadIndex { arg: "rows", at, value, from, below });
            }
            before = value;
        }
        for output in self.rows.windows(2) {
            let &[from, to] = output else { continue };
            let mut next = 0;
            for (at, &col) in self.cols.iter().enumerate().take(to as usize).skip(from as usize) {
                let value = col as usize;
                if !(next..inputs).contains(&value) {
                    return Err(KernelError::BadIndex { arg: "cols", at, value, from: next, below: inputs });
                }
                next = value + 1;
            }
        }
        Ok(())
    }
}

/// Inputs of a block: their words are transposed first, so that each line is read once though outputs are worked on one by one.
const DEPTH: usize = 512;

/// Outputs of a block.
const WIDTH: usize = 32;

/// Rows of words of a block, at most.
const ROWS: usize = DEPTH / 8;

/// The words of a block, for each output one after the other: words whose integers begin at the same bits are neighbours.
type Words = [[u32; ROWS]; WIDTH];

/// How many words begin at different bits of integers, and how many integers so many words have: 8 in one, or 32 in three.
const fn period(bits: u32) -> (usize, usize) {
    if bits == 3 {
        (3, 32)
    } else {
        (1, 8)
    }
}

/// Where a row's word is among those of its output.
fn place<const BITS: u32>(row: usize) -> usize {
    let (words, integers) = const { period(BITS) };
    (row % words * (DEPTH / integers) + row / words) % ROWS
}

/// Transposes the words of a block, from output `n` on. Returns how many outputs it has.
///
/// # Safety
/// The output, and the `depth` inputs from `from` on; the instruction set.
#[inline(always)]
unsafe fn block<P: Transpose, const BITS: u32>(
    w: &SqueezeLlmRef<'_>,
    (from, depth): (usize, usize),
    n: usize,
    words: &mut Words,
) -> usize {
    let step = const { period(BITS).0 };
    let rows = depth / 32 * BITS as usize;
    let whole_rows = rows - rows % (step * P::LANES);
    let width = WIDTH.min(w.outputs - n);
    let whole = width - width % P::LANES;
    let row = w.p.qweight.as_ptr().wrapping_add(from / 32 * BITS as usize * w.pitch + n);
    // SAFETY: the rows exist, and `width` outputs of each; `place` is below ROWS, and so it is for the LANES rows that are
    // `step` apart, as ROWS is a multiple of LANES.
    unsafe {
        for first in (0..whole_rows).step_by(step * P::LANES) {
            for r in first..first + step {
                for c in (0..whole).step_by(P::LANES) {
                    // The next block, in whose rows no hardware prefetcher sees a pattern.
                    for i in 0..P::LANES {
                        into_l2(row.wrapping_add((r + i * step) * w.pitch + c + WIDTH).cast());
                    }
                    let v = P::transposed(row.add(r * w.pitch + c).cast(), step * w.pitch * size_of::<u32>());
                    for (i, &v) in v.iter().enumerate().take(P::LANES) {
                        P::store(words.get_unchecked_mut(c + i).as_mut_ptr().add(place::<BITS>(r)).cast(), v);
                    }
                }
            }
        }
        for (c, words) in words.iter_mut().enumerate().take(width) {
            for r in if c < whole { whole_rows } else { 0 }..rows {
                *words.get_unchecked_mut(place::<BITS>(r)) = *row.add(r * w.pitch + c);
            }
        }
    }
    width
}

/// 16 indices of an output of a block, from the `s`-th 16 inputs.
#[inline(always)]
unsafe fn indices<P: Lanes, const BITS: u32>(words: &[u32; ROWS], s: usize) -> [P::I; UNPACKED] {
    let word = |row: usize| words[place::<BITS>(row)];
    // SAFETY: the caller vouches for the instruction set.
    unsafe { P::codes::<BITS>([eight::<BITS>(2 * s, word), eight::<BITS>(2 * s + 1, word), 0, 0]) }
}

/// Adds the products of the integers of `LANES` words from word `at` on of an output, and of the words that belong to them. `x` has the inputs of
/// integers that lie alike side by side.
///
/// # Safety
/// The words, and as many inputs as they have integers; the instruction set.
#[inline(always)]
unsafe fn add<P: Lanes, const BITS: u32>(
    (words, at): (&[u32; ROWS], usize),
    table: P::Table,
    x: *const f32,
    mut sums: [P::V; 4],
) -> [P::V; 4] {
    let (step, integers) = const { period(BITS) };
    // SAFETY: the caller's contract.
    unsafe {
        let w: [_; 3] = from_fn(|s| P::words(words.as_ptr().add(s % step * (DEPTH / integers) + at)));
        for i in 0..integers {
            let (word, bit) = (i * BITS as usize / 32, i as u32 * BITS % 32);
            let mut q = P::shr(w[word], bit);
            if bit + BITS > 32 {
                q = P::or(q, P::shl(w[(word + 1) % 3], 32 - bit));
            }
            let x = <P as Prim<f32>>::load(x.add(i * P::LANES));
            sums[i % 4] = P::fma(P::lookup::<BITS>(table, q), x, sums[i % 4]);
        }
    }
    sums
}

#[inline(always)]
unsafe fn products<E: Element, P: Prim<E> + Lanes + Transpose, const BITS: u32>(
    g: &ExternalArgs<E, SqueezeLlmRef<'_>>,
) {
    let (w, integers) = (&g.w, const { period(BITS).1 });
    // SAFETY: inputs and outputs are bounded by the loops.
    unsafe {
        for n in 0..w.outputs {
            *g.y.add(n) = 0.0;
        }
        let (mut x, mut words) = ([0f32; DEPTH], [[0; ROWS]; WIDTH]);
        for k in (0..w.inputs).step_by(DEPTH) {
            let depth = DEPTH.min(w.inputs - k);
            for i in 0..depth {
                let (word, integer) = (i / integers, i % integers);
                let at = (word / P::LANES * integers + integer) * P::LANES + word % P::LANES;
                *x.get_unchecked_mut(at) = (*g.x.add(k + i)).to_f32();
            }
            let groups = depth / integers;
            let mut n = 0;
            while n < w.outputs {
                let width = block::<P, BITS>(w, (k, depth), n, &mut words);
                for (c, words) in words.iter().enumerate().take(width) {
                    let table = P::table::<BITS>(w.p.lookup_table.as_ptr().add((n + c) << BITS));
                    let mut sums = [P::splat(0.0); 4];
                    for at in (0..groups).step_by(P::LANES) {
                        let (before, len) = (sums, groups - at);
                        sums = add::<P, BITS>((words, at), table, x.as_ptr().add(at * integers), before);
                        if len < P::LANES {
                            sums = from_fn(|i| first::<P>(len, sums[i], before[i]));
                        }
                    }
                    let sum = P::add(P::add(sums[0], sums[1]), P::add(sums[2], sums[3]));
                    *g.y.add(n + c) += P::reduce_sum(sum);
                }
                n += width;
            }
        }
        for n in 0..w.outputs {
            for (input, value) in w.outliers(n) {
                *g.y.add(n) += value * (*g.x.add(input)).to_f32();
            }
        }
    }
}

/// # Safety
/// As many elements at `g.x` as there are inputs, at `g.y` as there are outputs, which overlap nothing; the
/// instruction set is present.
#[inline(always)]
pub(crate) unsafe fn qgemv<E: Element, P: Prim<E> + Lanes + Transpose>(
    g: &ExternalArgs<E, SqueezeLlmRef<'_>>,
) {
    // SAFETY: the caller's contract.
    unsafe {
        if g.w.p.bits == 3 {
            products::<E, P, 3>(g);
        } else {
            products::<E, P, 4>(g);
        }
    }
}

#[inline(always)]
unsafe fn decode<E: Element, P: Prim<E> + Lanes + Transpose, const BITS: u32, const PAST: bool>(
    g: &ExternalArgs<E, SqueezeLlmRef<'_>>,
) {
    let w = &g.w;
    // SAFETY: inputs and outputs are bounded by the loops.
    unsafe {
        let mut words = [[0; ROWS]; WIDTH];
        for k in (0..w.inputs).step_by(DEPTH) {
            let depth = DEPTH.min(w.inputs - k);
            let mut n = 0;
            while n < w.outputs {
                let width = block::<P, BITS>(w, (k, depth), n, &mut words);
                for (c, words) in words.iter().enumerate().take(width) {
                    let table = P::table::<BITS>(w.p.lookup_table.as_ptr().add((n + c) << BITS));
                    let to = g.out.add((n + c) * g.row_stride + k);
                    for s in 0..depth / UNPACKED {
                        let q = indices::<P, BITS>(words, s);
                        for (v, &q) in q.iter().enumerate().take(UNPACKED / P::LANES) {
                            let to = to.add(s * UNPACKED + v * P::LANES);
                            put::<E, P, PAST>(to, P::lookup::<BITS>(table, q), P::LANES);
                        }
                    }
                }
                n += width;
            }
        }
        if PAST {
            fence();
        }
        for n in 0..w.outputs {
            for (input, value) in w.outliers(n) {
                *g.out.add(n * g.row_stride + input) = E::from_f32(w.dense(n, input) + value);
            }
        }
    }
}

/// # Safety
/// Room for all weights at `g.out`, rows `g.row_stride` apart, which overlap nothing; the instruction set is
/// present.
#[inline(always)]
pub(crate) unsafe fn dequant<E: Element, P: Prim<E> + Lanes + Transpose>(
    g: &ExternalArgs<E, SqueezeLlmRef<'_>>,
) {
    let past = g.access.streamed && streams::<E, P>(g.out, g.row_stride);
    // SAFETY: the caller's contract.
    unsafe {
        match (g.w.p.bits, past) {
            (3, false) => decode::<E, P, 3, false>(g),
            (3, true) => decode::<E, P, 3, true>(g),
            (_, false) => decode::<E, P, 4, false>(g),
            (_, true) => decode::<E, P, 4, true>(g),
        }
    }
}
