//! Quantised weights: decode bit for bit, products within the bound.

use std::sync::OnceLock;

use gllm_kernels_core::{
    f16, Element, IsaLevel, KernelError, KernelInfo, Kernels, MatMut, MatRef, Op, Precision, QuantFormat,
    QuantRef, Scratch, StorePolicy,
};

use crate::data::{both_walks, Source};
use crate::numeric::{gamma, same, sum as exact_sum, wide};
use crate::report::{Outcome, Report};
use crate::vectors::{floats, vector, MATRIX_COLS, MATRIX_ROWS};
use crate::{call, effort, Edge, Guarded};

/// Weights in blocks, and what they decode to: 8 rows of 512.
pub struct Vectors {
    /// The blocks.
    pub blocks: Vec<u8>,
    /// The weights.
    pub decoded: Vec<f32>,
}

/// ggml's weights in `format`. For activations there are none: those of [`QuantFormat::Q8_0`], put into their
/// blocks. Those of [`QuantFormat::E4m3`], which ggml does not have, are made of the same bytes. A format without vectors fails
/// its tests.
pub fn vectors(format: QuantFormat) -> Option<Vectors> {
    let ggml = |f: QuantFormat| {
        let (blocks, decoded) = vector(f)?;
        Some(Vectors { blocks: blocks.to_vec(), decoded: floats(decoded) })
    };
    let q8_0 = |vectors: Vectors, n: usize| -> Vec<Vec<u8>> {
        let integers: Vec<u8> =
            vectors.blocks.chunks_exact(34).flat_map(|b| b[2..].iter().copied()).collect();
        integers.chunks_exact(n).map(<[u8]>::to_vec).collect()
    };
    let scale = 0.7;
    match format {
        QuantFormat::Q8_1 => ggml(QuantFormat::Q8_0).map(|v| Vectors {
            decoded: v.decoded.clone(),
            blocks: v.blocks.chunks_exact(34).flat_map(|b| [&b[..2], &[1, 2], &b[2..]].concat()).collect(),
        }),
        QuantFormat::Q8K => ggml(QuantFormat::Q8_0).map(|v| q8_0(v, 256)).map(|integers| Vectors {
            decoded: integers.iter().flatten().map(|&q| f32::from(q as i8) * scale).collect(),
            blocks: integers.iter().flat_map(|q| [&scale.to_le_bytes()[..], q, &[3; 32]].concat()).collect(),
        }),
        QuantFormat::E4m3 => ggml(QuantFormat::Q8_0).map(|v| {
            let numbers = q8_0(v, 128);
            let factors = || (0..numbers.len()).map(|i| 0.3 * 2f32.powi(i as i32 % 7));
            let block = |(d, q): (f32, &Vec<u8>)| [&d.to_le_bytes()[..], q].concat();
            let decoded = |(d, q): (f32, &Vec<u8>)| q.iter().map(|&q| e4m3(q) * d).collect::<Vec<_>>();
            Vectors {
                blocks: factors().zip(&numbers).flat_map(block).collect(),
                decoded: factors().zip(&numbers).flat_map(decoded).collect(),
            }
        }),
        _ => ggml(format),
    }
}

/// A number of [`QuantFormat::E4m3`], by its fields.
pub fn e4m3(bits: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 0xf), f32::from(bits & 7) / 8.0);
    // OFP8's bias is 7; numbers are 2^-8 of those.
    let magnitude =
        if exponent == 0 { mantissa * 2f32.powi(-14) } else { (1.0 + mantissa) * 2f32.powi(exponent - 15) };
    if bits < 0x80 {
        magnitude
    } else {
        -magnitude
    }
}

/// Offsets of the f16 scales and minima in a block. Of some formats there are none: then all bytes are random.
pub fn halves(format: QuantFormat) -> &'static [usize] {
    static FOUND: OnceLock<Vec<Vec<usize>>> = OnceLock::new();
    let found = FOUND.get_or_init(|| QuantFormat::ALL.iter().map(|&f| find_halves(f)).collect());
    QuantFormat::ALL.iter().position(|&f| f == format).map_or(&[], |at| &found[at])
}

/// Bytes of a block that are an f16: where it becomes 2 instead of 1 codes stay, and the scales or the offsets of all groups
/// double, or both do.
fn find_halves(format: QuantFormat) -> Vec<usize> {
    if format.is_float() {
        return if format == QuantFormat::F16 { vec![0] } else { vec![] };
    }
    // No field of it is zero, infinite or NaN, whatever its place and type.
    let block: Vec<u8> = (0..format.block_bytes()).map(|i| 0x21 + (5 * i % 23) as u8).collect();
    let with = |at: usize, number: f32| {
        let mut block = block.clone();
        block[at..at + 2].copy_from_slice(&f16::from_f32(number).to_le_bytes());
        unpacked(QuantRef::new(&block, format, 1, format.block_len()).ok()?).ok()
    };
    let half = |&at: &usize| {
        let (Some(one), Some(two)) = (with(at, 1.0), with(at, 2.0)) else { return false };
        let twice = |a: &[f32], b: &[f32]| a != b && a.iter().zip(b).all(|(a, b)| 2.0 * a == *b);
        let (scales, offsets) = (twice(&one.1, &two.1), twice(&one.2, &two.2));
        one.0 == two.0 && (scales || one.1 == two.1) && (offsets || one.2 == two.2) && (scales || offsets)
    };
    (0..block.len() - 1).filter(half).collect()
}

/// f16 scales that go wrong first: zeros, denormals, the extremes, infinities, NaNs (one signalling).
const SCALES: [u16; 14] = [
    0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00,
    0xfd01,
];

/// The format of a row and its vectors.
pub(crate) fn subject(row: &KernelInfo) -> Result<(QuantFormat, Vectors), String> {
    let format = row.format.ok_or("a kernel of quantised weights without a format")?;
    Ok((format, vectors(format).ok_or_else(|| format!("no vectors for {format}"))?))
}

/// Decodes by the specification: the portable kernel, which the vectors prove right.
pub(crate) fn specified(w: QuantRef<'_>) -> Result<Vec<f32>, String> {
    let k = Kernels::<f32>::forced(IsaLevel::Scalar).map_err(|e| e.to_string())?;
    let mut y = vec![f32::NAN; w.rows() * w.cols()];
    k.dequant(w, &mut y).map_err(|e| e.to_string())?;
    Ok(y)
}

/// Codes, scales and offsets.
type Unpacked = (Vec<i8>, Vec<f32>, Vec<f32>);

/// What weights unpack to, by the portable kernel.
pub(crate) fn unpacked(w: QuantRef<'_>) -> Result<Unpacked, String> {
    let k = Kernels::<f32>::forced(IsaLevel::Scalar).map_err(|e| e.to_string())?;
    let n = w.rows() * w.cols();
    let groups = n / w.format().group_len();
    let (mut codes, mut scales, mut offsets) = (vec![0; n], vec![0.0; groups], vec![0.0; groups]);
    k.unpack(w, &mut codes, &mut scales, &mut offsets).map_err(|e| e.to_string())?;
    Ok((codes, scales, offsets))
}

/// `|code * scale| + |offset|` of every weight: what rounding errors are relative to.
pub(crate) fn magnitudes(w: QuantRef<'_>) -> Result<Vec<f32>, String> {
    let group = w.format().group_len();
    let (codes, scales, offsets) = unpacked(w)?;
    let of =
        |(i, &code): (usize, &i8)| (f32::from(code) * scales[i / group]).abs() + offsets[i / group].abs();
    Ok(codes.iter().enumerate().map(of).collect())
}

/// Bytes at random, so any integers; every other block has one of [`SCALES`].
pub(crate) fn random_blocks(source: &mut Source, format: QuantFormat, n: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..n * format.block_bytes()).map(|_| source.below(256) as u8).collect();
    for block in bytes.chunks_exact_mut(format.block_bytes()).step_by(2) {
        for &at in halves(format) {
            let scale = SCALES[source.below(SCALES.len())];
            block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
        }
    }
    bytes
}

/// Blocks of ggml's, in any order: weights of ordinary size.
pub(crate) fn shuffled_blocks(source: &mut Source, format: QuantFormat, from: &Vectors, n: usize) -> Vec<u8> {
    let blocks: Vec<&[u8]> = from.blocks.chunks_exact(format.block_bytes()).collect();
    (0..n).flat_map(|_| blocks[source.below(blocks.len())].iter().copied()).collect()
}

/// One call of `dequant`: the output starts `offset` elements after a page or ends at one.
fn check_decode<E: Element>(
    k: &Kernels<E>,
    w: QuantRef<'_>,
    want: &[f32],
    (edge, offset): (Edge, usize),
    report: &mut Report,
) -> Result<(), String> {
    let mut y = Guarded::<E>::poisoned(want.len() + offset, edge);
    let case = || format!("{}x{}, output at {edge:?} + {offset}", w.rows(), w.cols());
    call(|| k.dequant(w, &mut y[offset..])).map_err(|e| format!("{}: {e}", case()))?;
    if !y.intact() || !crate::guard::is_poison(&y[..offset]) {
        return Err(format!("{}: writes outside of the output", case()));
    }
    report.cases += 1;
    for (i, (&got, &want)) in y[offset..].iter().zip(want).enumerate() {
        let want = E::from_f32(want);
        let err = if same(got, want) { 0.0 } else { f64::INFINITY };
        report.see(err, 0.0, || format!("{}, element {i}: {got:?} instead of {want:?}", case()))?;
    }
    Ok(())
}

/// `surely_finite` says yes exactly if no scale or offset is large, and no number of plain floating point is infinite or NaN.
fn check_finite<E: Element>(k: &Kernels<E>, w: QuantRef<'_>, decoded: &[f32]) -> Result<(), String> {
    let finite = decoded.iter().all(|x| x.is_finite());
    let want = match w.format() {
        QuantFormat::F16 | QuantFormat::Bf16 => finite,
        format @ QuantFormat::E4m3 => {
            let factors = w.as_bytes().chunks_exact(format.block_bytes());
            factors.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).all(|d| d.abs() < 2f32.powi(120))
        }
        _ => {
            let (_, scales, offsets) = unpacked(w)?;
            let offsets = if w.format().has_offsets() { &offsets[..] } else { &[] };
            scales.iter().chain(offsets).all(|x| x.abs() < 2f32.powi(120))
        }
    };
    match k.surely_finite(w) {
        true if !finite => Err("weights that are not finite are said to be".into()),
        got if got != want => Err(format!("surely_finite says {got} instead of {want}")),
        _ => Ok(()),
    }
}

/// `dequant`: ggml's bits on ggml's weights, the specification's on random blocks with every kind of
/// scale; any start of blocks and output, cached and streamed.
pub fn dequant<E: Element>(row: &KernelInfo) -> Outcome {
    let (format, vectors) = subject(row)?;
    let k = Kernels::<E>::forced(row.level).map_err(|e| e.to_string())?;
    let mut report = Report::ULP;
    let mut source = Source::new(row.name.len() as u64);
    let policies = [StorePolicy::Cached, StorePolicy::Streamed];
    let ways = both_walks(&k).map(|k| policies.map(|p| k.with_stores(p)));

    let (rows, cols) = (MATRIX_ROWS, MATRIX_COLS);
    for edge in Edge::BOTH {
        let bytes = Guarded::copy_of(&vectors.blocks, edge);
        let w = QuantRef::new(&bytes, format, rows, cols).map_err(|e| e.to_string())?;
        for k in ways.as_flattened() {
            check_decode(k, w, &vectors.decoded, (edge, 0), &mut report)?;
        }
        check_finite(&k, w, &vectors.decoded)?;
        if !k.surely_finite(w) {
            return Err("ordinary weights are not surely finite".into());
        }
    }

    let tile = 256 / format.block_len();
    for n in [0, 1, 2, tile - 1, tile, tile + 1, 2 * tile + 1, 9 * tile + 3] {
        let mut blocks = vec![0];
        blocks.extend(random_blocks(&mut source, format, n));
        for edge in Edge::BOTH {
            // Whatever the size of the blocks, one of the two starts is odd.
            let bytes = Guarded::copy_of(&blocks, edge);
            let cols = format.block_len();
            let w = QuantRef::new(&bytes[1..], format, n, cols).map_err(|e| e.to_string())?;
            let want = specified(w)?;
            check_finite(&k, w, &want)?;
            for offset in (0..=row.level.lanes()).step_by(if effort() > 1 { 1 } else { 3 }) {
                for k in ways.as_flattened() {
                    check_decode(k, w, &want, (edge, offset), &mut report)?;
                }
            }
        }
    }
    Ok(report)
}

/// `qgemv` with as many rows of activations as there are results of.
fn multiply<E: Element>(k: &Kernels<E>, w: QuantRef<'_>, x: &[E], y: &mut [f32]) -> Result<(), KernelError> {
    let (n, cols) = (w.rows(), w.cols());
    let batch = y.len().checked_div(n).unwrap_or(1);
    let plan = k.qgemm_plan(w.format(), batch, n, cols, Precision::Exact)?.with_kernel(Op::Qgemv)?;
    plan.run(MatMut::new(y, batch, n)?, w, MatRef::new(x, batch, cols)?, None, Scratch::empty())
}

/// One call of `qgemv`; `exact` if everything is whole, so that small sums must have no error at all.
fn check_product<E: Element>(
    k: &Kernels<E>,
    w: QuantRef<'_>,
    (x, exact): (&[E], bool),
    edge: Edge,
    report: &mut Report,
) -> Result<(), String> {
    let mut y = Guarded::<f32>::poisoned(w.rows(), edge);
    let guarded = Guarded::copy_of(x, edge);
    let case = || format!("{}x{}", w.rows(), w.cols());
    call(|| multiply(k, w, &guarded, &mut y)).map_err(|e| format!("{}: {e}", case()))?;
    if !y.intact() {
        return Err(format!("{}: writes outside of the output", case()));
    }
    report.cases += 1;
    let (weights, magnitudes, x) = (specified(w)?, magnitudes(w)?, wide(x));
    let chain = if w.format().is_float() {
        w.cols() / k.level().lanes()
    } else {
        // A group of at most 32, a chain of groups of at least 16.
        32 / k.level().lanes() + w.cols() / 16
    };
    // One rounding of the decoded weight, one product, the lanes.
    let steps = 2 + chain + k.level().lanes();
    for (r, &got) in y.iter().enumerate() {
        let of_row = |m: &[f32]| -> Vec<f64> {
            m[r * x.len()..][..x.len()].iter().zip(&x).map(|(&w, &x)| f64::from(w) * x).collect()
        };
        let (want, _) = exact_sum(of_row(&weights).into_iter());
        let (_, magnitudes) = exact_sum(of_row(&magnitudes).into_iter());
        let err = (f64::from(got) - want).abs();
        let bound = if exact && magnitudes < f64::from(1 << 24) { 0.0 } else { gamma(steps, magnitudes) };
        let err = if err == 0.0 { 0.0 } else { err / bound };
        report.see(err, 1.0, || format!("{}, row {r}: {got} instead of {want}", case()))?;
    }
    // So are those of activations.
    for batch in [2, 9] {
        let mut xs = vec![E::from_f32(1.0); batch * x.len()];
        xs[(batch - 1) * x.len()..].copy_from_slice(&guarded);
        let mut out = Guarded::<f32>::poisoned(batch * y.len(), edge);
        call(|| multiply(k, w, &xs, &mut out)).map_err(|e| format!("{}: {e}", case()))?;
        if !out.intact() || out[(batch - 1) * y.len()..] != y[..] {
            return Err(format!("{}: the last of {batch} rows of activations differs", case()));
        }
    }
    // Rows are independent of how many there are.
    for start in 0..w.rows() {
        for len in [1, 5].into_iter().filter(|len| start + len <= w.rows()) {
            let mut part = [f32::NAN; 5];
            let range = w.row_range(start, len).map_err(|e| e.to_string())?;
            multiply(k, range, &guarded, &mut part[..len]).map_err(|e| e.to_string())?;
            if part[..len] != y[start..start + len] {
                return Err(format!("{}: rows {start} + {len} alone differ", case()));
            }
        }
    }
    Ok(())
}

/// `qgemv`: exact where sums of whole numbers are, else within the bound of its order of summation;
/// the same bits however the rows are split; not finite where a scale is not.
pub fn qgemv<E: Element>(row: &KernelInfo) -> Outcome {
    let (format, vectors) = subject(row)?;
    let k = Kernels::<E>::forced(row.level).map_err(|e| e.to_string())?;
    let mut report = Report::BOUND;
    let mut source = Source::new(row.name.len() as u64);
    let tile = 256 / format.block_len();
    let shapes: [(usize, usize); 16] = [
        (0, tile),
        (5, 0),
        (1, 1),
        (2, tile - 1),
        (3, tile),
        (4, tile + 1),
        (4, 2 * tile),
        (5, 1),
        (6, 2 * tile + 3),
        (7, tile),
        (8, tile),
        (9, 3 * tile - 1),
        (11, 1),
        (13, 4 * tile + 1),
        (17, tile + 2),
        (6, 4096 / format.block_len()),
    ];
    for (i, (rows, blocks)) in shapes.into_iter().enumerate() {
        let cols = blocks * format.block_len();
        let edge = Edge::BOTH[i % 2];
        let mut bytes = vec![0];
        bytes.extend(shuffled_blocks(&mut source, format, &vectors, rows * blocks));
        let ordinary = Guarded::copy_of(&bytes, edge);
        let w = QuantRef::new(&ordinary[1..], format, rows, cols).map_err(|e| e.to_string())?;
        let x = source.normals::<E>(cols);
        check_product(&k, w, (&x, false), edge, &mut report)?;

        // Scales of 1: whole numbers.
        for block in bytes[1..].chunks_exact_mut(format.block_bytes()) {
            for &at in halves(format) {
                block[at..at + 2].copy_from_slice(&0x3c00u16.to_le_bytes());
            }
        }
        let whole = Guarded::copy_of(&bytes, edge);
        let w = QuantRef::new(&whole[1..], format, rows, cols).map_err(|e| e.to_string())?;
        if specified(w)?.iter().all(|w| w.fract() == 0.0) {
            check_product(&k, w, (&source.whole(cols, 3), true), edge, &mut report)?;
        }
    }

    for scale in SCALES {
        let mut bytes = shuffled_blocks(&mut source, format, &vectors, 2 * tile);
        let at = source.below(tile) * format.block_bytes();
        for &s in halves(format) {
            bytes[at + s..at + s + 2].copy_from_slice(&scale.to_le_bytes());
        }
        let w = QuantRef::new(&bytes, format, 2, tile * format.block_len()).map_err(|e| e.to_string())?;
        let x = source.uniform::<E>(w.cols(), 0.5, 1.5);
        let mut y = [0.0; 2];
        multiply(&k, w, &x, &mut y).map_err(|e| e.to_string())?;
        let finite = specified(w)?[..w.cols()].iter().all(|w| w.is_finite());
        if y[0].is_finite() != finite || !y[1].is_finite() {
            return Err(format!("scale {scale:#06x}: {y:?}"));
        }
    }
    Ok(report)
}
