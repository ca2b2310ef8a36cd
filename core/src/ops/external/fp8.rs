//! Floating point of 8 bits, with scales.

use super::{area, put, streams, ExternalArgs, UNPACKED};
use crate::arrays::from_fn;
use crate::check;
use crate::element::{bf16, f16, Element};
use crate::error::KernelError;
use crate::isa::machine::fence;
use crate::isa::machine::into_l2;
use crate::quant::blocks::BlockE4m3;
use crate::quant::lanes::Lanes;
use crate::quant::QuantFormat;
use crate::vector::Prim;

/// How 8 bits are a number: OCP 8-bit Floating Point Specification (OFP8), 2023.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fp8Format {
    /// Sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinities, NaN is `S.1111.111`, so numbers reach
    /// 448. Checkpoints call it `F8_E4M3` or `float8_e4m3fn`.
    E4m3,
    /// Sign, 5 bits of exponent (bias 15), 2 of mantissa: the upper half of an f16, with infinities and NaNs.
    E5m2,
}

/// The weights that share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fp8Scaling {
    /// The whole matrix.
    Tensor,
    /// Each row, that is each output.
    Row,
    /// Tiles of `rows x cols`, smaller at the edges: `ceil(outputs / rows) x ceil(inputs / cols)` scales, those
    /// of a row of tiles one behind the other.
    Block {
        /// Outputs of a tile.
        rows: usize,
        /// Inputs of a tile.
        cols: usize,
    },
}

/// Scales, as they are stored; they are widened to f32, which is exact.
#[derive(Clone, Copy, Debug)]
pub enum ScaleSlice<'a> {
    /// f32.
    F32(&'a [f32]),
    /// f16.
    F16(&'a [f16]),
    /// bf16.
    Bf16(&'a [bf16]),
}

impl ScaleSlice<'_> {
    /// Number of scales.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(s) => s.len(),
            Self::F16(s) => s.len(),
            Self::Bf16(s) => s.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Scale `i`, which exists.
    #[inline(always)]
    fn at(&self, i: usize) -> f32 {
        let found = match self {
            Self::F32(s) => s.get(i).copied(),
            Self::F16(s) => s.get(i).map(|s| s.to_f32()),
            Self::Bf16(s) => s.get(i).map(|s| s.to_f32()),
        };
        found.unwrap_or(f32::NAN)
    }
}

/// A read-only matrix of 8-bit floats with scales: `w[r, c] = number(r, c) * scale`, the product rounded to f32
/// once.
///
/// Row-major: output `r`'s weights for all inputs `c` lie one behind the other, as `<name>.weight` of a
/// checkpoint does. A scale is what the number is multiplied by (checkpoints' `weight_scale` and, in spite of its
/// name, `weight_scale_inv`). That is what reference implementations compute, in f32, before they narrow. Lengths
/// are checked here, once; any bytes are valid.
#[derive(Clone, Copy, Debug)]
pub struct Fp8Ref<'a> {
    bytes: &'a [u8],
    format: Fp8Format,
    outputs: usize,
    inputs: usize,
    scales: ScaleSlice<'a>,
    /// Outputs and inputs that share a scale, at least 1.
    tile: [usize; 2],
    /// The first output, counted from where the scales start.
    first: usize,
}

impl<'a> Fp8Ref<'a> {
    /// Views an `outputs x inputs` matrix.
    ///
    /// # Errors
    /// `WrongLength` unless `bytes` has `outputs * inputs` bytes and `scales` as many scales as `scaling` says,
    /// `BadValue` if a tile is empty, `SizeOverflow`.
    pub fn new(
        bytes: &'a [u8],
        format: Fp8Format,
        outputs: usize,
        inputs: usize,
        scales: ScaleSlice<'a>,
        scaling: Fp8Scaling,
    ) -> Result<Self, KernelError> {
        check::len("bytes", bytes.len(), area("elements of an FP8 matrix", outputs, inputs)?)?;
        let tile = match scaling {
            Fp8Scaling::Tensor => [outputs.max(1), inputs.max(1)],
            Fp8Scaling::Row => [1, inputs.max(1)],
            Fp8Scaling::Block { rows, cols } if rows > 0 && cols > 0 => [rows, cols],
            Fp8Scaling::Block { .. } => {
                return Err(KernelError::BadValue {
                    arg: "scaling",
                    got: 0,
                    expected: "tiles of at least 1 row and 1 column",
                });
            }
        };
        let tiles = |n: usize, tile: usize| n.div_ceil(tile.max(1));
        let need = match scaling {
            Fp8Scaling::Tensor => 1,
            _ => area("scales of an FP8 matrix", tiles(outputs, tile[0]), tiles(inputs, tile[1]))?,
        };
        check::len("scales", scales.len(), need)?;
        Ok(Self { bytes, format, outputs, inputs, scales, tile, first: 0 })
    }

    /// Rows of `W`.
    pub fn outputs(&self) -> usize {
        self.outputs
    }
    /// Columns of `W`.
    pub fn inputs(&self) -> usize {
        self.inputs
    }
    /// The format of the numbers.
    pub fn format(&self) -> Fp8Format {
        self.format
    }
    /// Bytes of numbers and scales that a product reads.
    pub fn size(&self) -> usize {
        let scale = if matches!(self.scales, ScaleSlice::F32(_)) { 4 } else { 2 };
        self.bytes.len().saturating_add(self.scales.len().saturating_mul(scale))
    }

    /// Outputs `start .. start + len`.
    ///
    /// # Errors
    /// `OutOfRange` if the range leaves the matrix, `SizeOverflow`.
    pub fn output_range(self, start: usize, len: usize) -> Result<Self, KernelError> {
        let need = check::range("outputs", start, len, self.outputs)?;
        // Neither product exceeds the size checked at construction.
        let bytes = self.bytes.get(start * self.inputs..need * self.inputs).unwrap_or(&[]);
        Ok(Self { bytes, outputs: len, first: self.first + start, ..self })
    }

    /// Writes the weights as blocks of [`E4m3`](crate::QuantFormat::E4m3), bit for bit the same. `false`, after which `to` may hold
    /// anything, if there are none: numbers are E5M2 or a NaN, an output has no multiple of 128 inputs, 128 of them do not
    /// share a scale, or 256 times a scale is not finite.
    ///
    /// # Errors
    /// `WrongLength` unless `to` has the bytes of these blocks.
    pub fn to_blocks(&self, to: &mut [u8]) -> Result<bool, KernelError> {
        let [_, cols] = self.tile;
        let shared = cols.is_multiple_of(BlockE4m3::LEN) || cols >= self.inputs;
        let (Ok(row), true, Fp8Format::E4m3) =
            (QuantFormat::E4m3.row_bytes(self.inputs), shared, self.format)
        else {
            return Ok(false);
        };
        check::len("to", to.len(), area("bytes of a matrix in blocks", self.outputs, row)?)?;
        let (blocks, _) = to.as_chunks_mut::<{ size_of::<BlockE4m3>() }>();
        let (numbers, _) = self.bytes.as_chunks::<{ BlockE4m3::LEN }>();
        let of_row = self.inputs / BlockE4m3::LEN;
        let mut usable = true;
        for (at, (block, from)) in blocks.iter_mut().zip(numbers).enumerate() {
            let output = at.checked_div(of_row).unwrap_or(0);
            let input = (at - output * of_row) * BlockE4m3::LEN;
            let d = self.scale(output, input.checked_div(cols).unwrap_or(0)) * factor::<false>();
            usable &= d.is_finite() && from.iter().all(|q| q & 0x7f != 0x7f);
            let (before, q) = block.split_at_mut(BlockE4m3::BEFORE);
            before.copy_from_slice(&d.to_le_bytes());
            q.copy_from_slice(from);
        }
        Ok(usable)
    }

    /// The scale of inputs `tile * self.tile[1] ..` of an output.
    #[inline(always)]
    fn scale(&self, output: usize, tile: usize) -> f32 {
        let [rows, cols] = self.tile;
        let row = (self.first + output).checked_div(rows).unwrap_or(0);
        self.scales.at(row * self.inputs.div_ceil(cols.max(1)) + tile)
    }
}

/// The factor with which E4M3 numbers are multiplied after [`Lanes::fp8`].
const fn factor<const E5M2: bool>() -> f32 {
    if E5M2 {
        1.0
    } else {
        256.0
    }
}

/// Numbers that are looked at together for NaNs, whole vectors of every instruction set: what is said of a NaN of E4M3
/// elsewhere costs as much as the rest of the conversion.
const LOOK: usize = 64;

/// [`Lanes::peak`] of the `LOOK` numbers at `p`.
///
/// # Safety
/// The numbers exist; the instruction set.
#[inline(always)]
unsafe fn look<P: Lanes>(before: P::I, p: *const u8) -> P::I {
    let mut peak = before;
    for i in (0..LOOK).step_by(4 * P::LANES) {
        // SAFETY: the caller's contract.
        peak = unsafe { P::peak(peak, P::words(p.add(i).cast())) };
    }
    peak
}

/// How many bytes ahead a row is prefetched.
const PREFETCH_BYTES: usize = 1024;

/// Outputs at a time: each load of activations serves all, and each is a memory stream of its own.
const OUTPUTS: usize = 4;

/// The first `n <= UNPACKED` numbers at `p`, and zeros.
///
/// # Safety
/// `n` bytes at `p`, the instruction set.
#[inline(always)]
unsafe fn some<P: Lanes, const E5M2: bool>(p: *const u8, n: usize) -> [P::V; UNPACKED] {
    let mut bytes = [0u8; UNPACKED];
    for (i, b) in bytes.iter_mut().enumerate().take(n) {
        // SAFETY: i < n.
        *b = unsafe { *p.add(i) };
    }
    // SAFETY: 16 bytes.
    unsafe { P::fp8::<E5M2, true>(bytes.as_ptr()) }
}

/// Adds the products of `UNPACKED` inputs of `R` outputs.
///
/// # Safety
/// The inputs exist at each pointer; the instruction set.
#[inline(always)]
unsafe fn add<E: Element, P: Prim<E> + Lanes, const E5M2: bool, const NAN: bool, const R: usize>(
    sums: &mut [[P::V; UNPACKED]; R],
    rows: &[*const u8; R],
    (x, at): (*const E, usize),
) {
    // SAFETY: the caller's contract.
    unsafe {
        let numbers: [_; R] = from_fn(|r| P::fp8::<E5M2, NAN>(rows[r].add(at)));
        for v in 0..UNPACKED / P::LANES {
            let x = <P as Prim<E>>::load(x.add(at + v * P::LANES));
            for r in 0..R {
                sums[r][v] = P::fma(numbers[r][v], x, sums[r][v]);
            }
        }
    }
}

/// The products of `R` outputs with `x`. An output's result does not depend on its company.
///
/// # Safety
/// The outputs exist; all inputs at `g.x`; the instruction set.
#[inline(always)]
unsafe fn dots<E: Element, P: Prim<E> + Lanes, const E5M2: bool, const R: usize>(
    g: &ExternalArgs<E, Fp8Ref<'_>>,
    outputs: [usize; R],
) -> [f32; R] {
    let (inputs, cols) = (g.w.inputs, g.w.tile[1]);
    // SAFETY: inputs are bounded by the loops.
    unsafe {
        let rows: [_; R] = from_fn(|r| g.w.bytes.as_ptr().add(outputs[r] * inputs));
        let mut totals = [P::splat(0.0); R];
        let mut peaks = [P::none(); R];
        let (mut at, mut tile) = (0, 0);
        while at < inputs {
            let end = at + cols.min(inputs - at);
            let mut sums = [[P::splat(0.0); UNPACKED]; R];
            while end - at >= LOOK {
                for r in 0..R {
                    into_l2(rows[r].wrapping_add(at + PREFETCH_BYTES));
                    if !E5M2 {
                        peaks[r] = look::<P>(peaks[r], rows[r].add(at));
                    }
                }
                for step in 0..LOOK / UNPACKED {
                    add::<E, P, E5M2, false, R>(&mut sums, &rows, (g.x, at + step * UNPACKED));
                }
                at += LOOK;
            }
            while end - at >= UNPACKED {
                add::<E, P, E5M2, true, R>(&mut sums, &rows, (g.x, at));
                at += UNPACKED;
            }
            if at < end {
                let rest: [_; R] = from_fn(|r| some::<P, E5M2>(rows[r].add(at), end - at));
                for v in 0..UNPACKED / P::LANES {
                    let n = (end - at).saturating_sub(v * P::LANES).min(P::LANES);
                    let x = <P as Prim<E>>::load_n(g.x.add(at).wrapping_add(v * P::LANES), n);
                    for r in 0..R {
                        sums[r][v] = P::fma(rest[r][v], x, sums[r][v]);
                    }
                }
                at = end;
            }
            for r in 0..R {
                let mut sum = sums[r][0];
                for &more in sums[r].iter().take(UNPACKED / P::LANES).skip(1) {
                    sum = P::add(sum, more);
                }
                let sum = P::mul(sum, P::splat(factor::<E5M2>()));
                totals[r] = P::fma(sum, P::splat(g.w.scale(outputs[r], tile)), totals[r]);
            }
            tile += 1;
        }
        from_fn(|r| if P::saw_nan(peaks[r]) { f32::NAN } else { P::reduce_sum(totals[r]) })
    }
}

#[inline(always)]
unsafe fn products<E: Element, P: Prim<E> + Lanes, const E5M2: bool>(g: &ExternalArgs<E, Fp8Ref<'_>>) {
    // Outputs that are worked on together lie far apart: each stream runs on from one to the next.
    let part = g.w.outputs / OUTPUTS;
    // SAFETY: every output exists.
    unsafe {
        for r in 0..part {
            let outputs = [0, 1, 2, 3].map(|k| r + k * part);
            for (&r, sum) in outputs.iter().zip(dots::<E, P, E5M2, OUTPUTS>(g, outputs)) {
                *g.y.add(r) = sum;
            }
        }
        for r in OUTPUTS * part..g.w.outputs {
            let [sum] = dots::<E, P, E5M2, 1>(g, [r]);
            *g.y.add(r) = sum;
        }
    }
}

/// # Safety
/// `g.w.inputs` elements at `g.x`, `g.w.outputs` at `g.y`, which overlaps nothing; the instruction set is
/// present.
#[inline(always)]
pub(crate) unsafe fn qgemv<E: Element, P: Prim<E> + Lanes>(g: &ExternalArgs<E, Fp8Ref<'_>>) {
    // SAFETY: the caller's contract.
    unsafe {
        match g.w.format {
            Fp8Format::E4m3 => products::<E, P, false>(g),
            Fp8Format::E5m2 => products::<E, P, true>(g),
        }
    }
}

/// Decodes `n <= UNPACKED` numbers at `p`. With `ONCE`, `scale` includes the [`factor`].
///
/// # Safety
/// The numbers exist, and room for them at `to`; the instruction set.
#[inline(always)]
unsafe fn scaled<
    E: Element,
    P: Prim<E> + Lanes,
    const E5M2: bool,
    const PAST: bool,
    const ONCE: bool,
    const NAN: bool,
>(
    (p, to): (*const u8, *mut E),
    n: usize,
    scale: P::V,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let numbers = if n == UNPACKED { P::fp8::<E5M2, NAN>(p) } else { some::<P, E5M2>(p, n) };
        for (v, &number) in numbers.iter().enumerate().take(UNPACKED / P::LANES) {
            let number = if ONCE { number } else { P::mul(number, P::splat(factor::<E5M2>())) };
            let n = n.saturating_sub(v * P::LANES).min(P::LANES);
            put::<E, P, PAST>(to.wrapping_add(v * P::LANES), P::mul(number, scale), n);
        }
    }
}

/// Decodes `n` numbers that share a scale.
///
/// # Safety
/// The contract of [`scaled`].
#[inline(always)]
unsafe fn run<E: Element, P: Prim<E> + Lanes, const E5M2: bool, const PAST: bool, const ONCE: bool>(
    (p, to): (*const u8, *mut E),
    n: usize,
    scale: f32,
) {
    // SAFETY: the loops stay below n.
    unsafe {
        let scale = P::splat(if ONCE { scale * factor::<E5M2>() } else { scale });
        let mut at = 0;
        while n - at >= LOOK {
            if !E5M2 && P::saw_nan(look::<P>(P::none(), p.add(at))) {
                for i in (at..at + LOOK).step_by(UNPACKED) {
                    scaled::<E, P, E5M2, PAST, ONCE, true>((p.add(i), to.add(i)), UNPACKED, scale);
                }
            } else {
                for i in (at..at + LOOK).step_by(UNPACKED) {
                    scaled::<E, P, E5M2, PAST, ONCE, false>((p.add(i), to.add(i)), UNPACKED, scale);
                }
            }
            at += LOOK;
        }
        while at < n {
            let some = UNPACKED.min(n - at);
            scaled::<E, P, E5M2, PAST, ONCE, true>((p.add(at), to.add(at)), some, scale);
            at += some;
        }
    }
}

#[inline(always)]
unsafe fn rows<E: Element, P: Prim<E> + Lanes, const E5M2: bool, const PAST: bool>(
    g: &ExternalArgs<E, Fp8Ref<'_>>,
) {
    let (inputs, cols) = (g.w.inputs, g.w.tile[1]);
    // SAFETY: outputs and inputs are bounded by the loops.
    unsafe {
        for r in 0..g.w.outputs {
            let (row, out) = (g.w.bytes.as_ptr().add(r * inputs), g.out.add(r * g.row_stride));
            let (mut at, mut tile) = (0, 0);
            while at < inputs {
                let (n, scale) = (cols.min(inputs - at), g.w.scale(r, tile));
                // The scale times the factor is exact unless it is too large.
                if (scale * factor::<E5M2>()).is_finite() {
                    run::<E, P, E5M2, PAST, true>((row.add(at), out.add(at)), n, scale);
                } else {
                    run::<E, P, E5M2, PAST, false>((row.add(at), out.add(at)), n, scale);
                }
                at += n;
                tile += 1;
            }
        }
    }
}

/// # Safety
/// Room for all weights at `g.out`, rows `g.row_stride` apart, which overlap nothing; the instruction set is
/// present.
#[inline(always)]
pub(crate) unsafe fn dequant<E: Element, P: Prim<E> + Lanes>(g: &ExternalArgs<E, Fp8Ref<'_>>) {
    // Whole vectors of tiles that start anywhere else would not be aligned.
    let past = g.access.streamed
        && streams::<E, P>(g.out, g.row_stride)
        && (g.w.tile[1].is_multiple_of(UNPACKED) || g.w.tile[1] >= g.w.inputs);
    // SAFETY: the caller's contract.
    unsafe {
        match (g.w.format, past) {
            (Fp8Format::E4m3, false) => rows::<E, P, false, false>(g),
            (Fp8Format::E4m3, true) => rows::<E, P, false, true>(g),
            (Fp8Format::E5m2, false) => rows::<E, P, true, false>(g),
            (Fp8Format::E5m2, true) => rows::<E, P, true, true>(g),
        }
    }
    if past {
        fence();
    }
}
