//! Packed quantised weights and quantised activations: decode bit for bit, integers exactly, sums within the bound.

use gllm_kernels_core::{
    Activations, Element, IsaLevel, KernelError, KernelInfo, Kernels, MatMut, MatRef, Op, PackedQ,
    QuantFormat, QuantRef,
};

use crate::data::{lanes, specials, Source};
use crate::numeric::{gamma, same, sum as exact_sum, wide};
use crate::quant::{halves, magnitudes, random_blocks, shuffled_blocks, specified, subject};
use crate::report::{Outcome, Report};
use crate::{call, caps, Edge, Guarded};

/// Columns: parts of a unit of 256, whole ones, and both.
fn shapes(format: QuantFormat) -> Vec<usize> {
    let len = format.block_len();
    let mut cols: Vec<usize> = [len, 2 * len, 256 - len, 256, 256 + len, 512, 3 * 256 + len]
        .into_iter()
        .filter(|&c| c > 0)
        .collect();
    cols.sort_unstable();
    cols.dedup();
    cols
}

/// What the documentation of `quantize_activations` says of 32 activations, and of 256.
fn check_group<const N: usize>(x: &[f64], (q, d): (&[i8; N], f32), tiny: f64) -> Result<(), String> {
    if x.iter().any(|x| !x.is_finite()) {
        return if d.is_nan() { Ok(()) } else { Err(format!("scale {d} where NaN belongs")) };
    }
    let largest = x.iter().fold(0f64, |m, x| m.max(x.abs()));
    let want = if largest < tiny { 0.0 } else { largest / 127.0 };
    if (f64::from(d) - want).abs() > want * f64::from(f32::EPSILON) {
        return Err(format!("scale {d} instead of {want}"));
    }
    for (c, &q) in q.iter().enumerate() {
        let x = x.get(c).copied().unwrap_or(0.0);
        let off = if d == 0.0 { f64::from(q) } else { x / f64::from(d) - f64::from(q) };
        if off.abs() > 0.501 || (d != 0.0 && q == -128) {
            return Err(format!("column {c}: {x} became {q} times {d}"));
        }
    }
    Ok(())
}

/// `quantize_activations`: every group as documented; groups of other rows and strides, and what lies around, left alone.
pub fn quantize_activations<E: Element>(row: &KernelInfo) -> Outcome {
    let k = Kernels::<E>::forced(row.level).map_err(|e| e.to_string())?;
    let mut report = Report::BOUND;
    let mut source = Source::new(7);
    for (batch, cols) in
        [(1, 1), (1, 31), (2, 32), (3, 33), (1, 255), (2, 256), (5, 257), (1, 0), (0, 8), (2, 1056)]
    {
        let stride = cols + 3 * (batch % 2);
        for kind in 0..4 {
            let n = if batch == 0 || cols == 0 { 0 } else { (batch - 1) * stride + cols };
            let x: Vec<E> = match kind {
                0 => source.normals(n),
                1 => source.wide(n),
                2 => source.whole(n, 127),
                _ => (0..n).map(|i| specials::<E>()[i % 38 * usize::from(i % 5 == 0)]).collect(),
            };
            let edge = Edge::BOTH[kind % 2];
            let guarded = Guarded::copy_of(&x, edge);
            let view = MatRef::with_strides(&guarded, batch, cols, stride, 1).map_err(|e| e.to_string())?;
            let size = k.activations_size(batch, cols).map_err(|e| e.to_string())?.size_unaligned();
            let mut buf = Guarded::<u8>::poisoned(size, edge);
            let q = call(|| k.quantize_activations(QuantFormat::Q4K, view, &mut buf))
                .map_err(|e| e.to_string())?;
            report.cases += 1;
            let wide = wide(&x);
            for m in 0..batch {
                for g in 0..cols.div_ceil(32) {
                    let columns = &wide[m * stride..][..cols][32 * g..cols.min(32 * g + 32)];
                    let group = q.group(m, g).ok_or("a group is missing")?;
                    check_group(columns, group, 1e-36)
                        .map_err(|e| format!("{batch}x{cols}, row {m}, group {g}: {e}"))?;
                }
            }
            for (m, b) in (0..batch).flat_map(|m| (0..cols.div_ceil(256)).map(move |b| (m, b))) {
                let columns = &wide[m * stride..][..cols][256 * b..cols.min(256 * b + 256)];
                let (block, d) = q.block(m, b).ok_or("a block is missing")?;
                let block: &[i8; 256] = block.as_flattened().try_into().map_err(|_| "not 256 columns")?;
                check_group(columns, (block, d), 1e-36)
                    .map_err(|e| format!("{batch}x{cols}, row {m}, block {b}: {e}"))?;
            }
            if q.block(batch, 0).is_some() || q.block(0, cols.div_ceil(256)).is_some() {
                return Err("a block too many".into());
            }
            if q.group(batch, 0).is_some() || q.group(0, cols.div_ceil(32)).is_some() {
                return Err("a group too many".into());
            }
            let short = call(|| k.quantize_activations(QuantFormat::Q4_0, view, &mut buf));
            if short.map_err(|e| e.to_string())?.block(0, 0).is_some() {
                return Err("blocks of a format whose blocks are shorter".into());
            }
            if !buf.intact() {
                return Err(format!("{batch}x{cols}: writes outside of the buffer"));
            }
        }
    }
    Ok(report)
}

/// Packs into guarded memory.
pub(crate) fn packed(k: &Kernels<f32>, w: QuantRef<'_>, edge: Edge) -> Result<Guarded<u8>, String> {
    let size = k.packed_q_size(w.format(), w.rows(), w.cols()).map_err(|e| e.to_string())?;
    let mut buf = Guarded::<u8>::poisoned(size, edge);
    call(|| k.pack_q(w, &mut buf).map(|_| ())).map_err(|e| e.to_string())?;
    if buf.intact() {
        Ok(buf)
    } else {
        Err(format!("{}x{}: writes outside of the buffer", w.rows(), w.cols()))
    }
}

/// `pack_q`: every weight decodes to the bits it had, for random blocks with every kind of scale and ggml's; in one
/// go and in parts; headers are checked.
pub fn pack_q(row: &KernelInfo) -> Outcome {
    let (format, vectors) = subject(row)?;
    let k = Kernels::<f32>::forced(row.level).map_err(|e| e.to_string())?;
    let mut report = Report::ULP;
    let mut source = Source::new(row.name.len() as u64);
    for cols in shapes(format) {
        for rows in [0, 1, 15, 16, 17, 35] {
            let blocks = rows * cols / format.block_len();
            let bytes = if rows % 2 == 1 {
                random_blocks(&mut source, format, blocks)
            } else {
                shuffled_blocks(&mut source, format, &vectors, blocks)
            };
            let edge = Edge::BOTH[rows % 2];
            let guarded = Guarded::copy_of(&bytes, edge);
            let w = QuantRef::new(&guarded, format, rows, cols).map_err(|e| e.to_string())?;
            let buf = packed(&k, w, edge)?;
            let p = k.packed_q(format, rows, cols, &buf).map_err(|e| e.to_string())?;
            report.cases += 1;
            let want = specified(w)?;
            let mut y = vec![f32::NAN; cols];
            for r in 0..rows {
                // Rows are reached alone, too.
                let part = p.row_range(r / 16 * 16, rows - r / 16 * 16).map_err(|e| e.to_string())?;
                part.decode_row(r % 16, &mut y).map_err(|e| e.to_string())?;
                for (c, (&got, &want)) in y.iter().zip(&want[r * cols..]).enumerate() {
                    if !same(got, want) {
                        return Err(format!(
                            "{rows}x{cols}, row {r}, column {c}: {got:?} instead of {want:?}"
                        ));
                    }
                }
            }
            in_parts(&k, w, &buf)?;
            refusals(&k, p, &buf)?;
        }
    }
    Ok(report)
}

/// Packing by parts gives the same bytes.
fn in_parts(k: &Kernels<f32>, w: QuantRef<'_>, whole: &[u8]) -> Result<(), String> {
    let (format, rows, cols) = (w.format(), w.rows(), w.cols());
    let mut buf = vec![0; whole.len() + 64];
    // The same alignment, so that the contents start at the same place.
    let skip = (whole.as_ptr() as usize).wrapping_sub(buf.as_ptr() as usize) % 64;
    let buf = &mut buf[skip..][..whole.len()];
    let room = k.packed_q_room(format, rows, cols, buf).map_err(|e| e.to_string())?;
    let part = room.len() / rows.div_ceil(16).max(1);
    for (i, part) in room.chunks_mut(part.max(1)).enumerate() {
        let some = w.row_range(16 * i, (rows - 16 * i).min(16)).map_err(|e| e.to_string())?;
        k.pack_q_rows(some, part).map_err(|e| e.to_string())?;
    }
    let same = k.packed_q(format, rows, cols, buf).is_ok_and(|p| p.bytes() <= buf.len());
    let contents = |b: &[u8]| b[32..40].iter().rev().fold(0, |n, &b| n << 8 | usize::from(b));
    if same
        && buf[contents(buf)..][..part * rows.div_ceil(16)]
            == whole[contents(whole)..][..part * rows.div_ceil(16)]
    {
        Ok(())
    } else {
        Err(format!("{rows}x{cols}: packed in parts is not packed at once"))
    }
}

/// Headers of something else, and ranges that do not exist.
fn refusals(k: &Kernels<f32>, p: PackedQ<'_>, buf: &[u8]) -> Result<(), String> {
    let (format, rows, cols) = (p.format(), p.rows(), p.cols());
    let shape = |r: Result<PackedQ<'_>, KernelError>| matches!(r, Err(KernelError::DimMismatch { .. }));
    let foreign = |f| KernelError::WrongFormat { arg: "packed", want: f, got: format };
    let other = QuantFormat::ALL.iter().copied().find(|&f| f != format && cols % f.block_len() == 0);
    let mut damaged = buf.to_vec();
    damaged[3] ^= 1;
    let ok = shape(k.packed_q(format, rows + 1, cols, buf))
        && shape(k.packed_q(format, rows, cols + format.block_len(), buf))
        && other.is_none_or(|f| k.packed_q(f, rows, cols, buf).is_err_and(|e| e == foreign(f)))
        && matches!(k.packed_q(format, rows, cols, &damaged), Err(KernelError::WrongPacking { .. }))
        && matches!(k.packed_q(format, rows, cols, &buf[..63]), Err(KernelError::ShortSlice { .. }))
        && matches!(p.row_range(rows, 1), Err(KernelError::OutOfRange { .. }))
        && matches!(p.row_range(usize::MAX, 2), Err(KernelError::SizeOverflow { .. }))
        && (rows < 2 || matches!(p.row_range(1, 1), Err(KernelError::BadValue { got: 1, .. })))
        && matches!(p.decode_row(rows, &mut vec![0.0; cols]), Err(KernelError::OutOfRange { .. }));
    if ok {
        Ok(())
    } else {
        Err(format!("{rows}x{cols}: something wrong was not refused"))
    }
}

/// Row `m` of activations as they were rounded, for products with weights in place (`qgemv_q8`) or with others.
pub fn rounded(x: Activations<'_>, m: usize, in_place: bool) -> Vec<f64> {
    if let Some(x) = x.exact(m) {
        return wide(x);
    }
    let scaled = |(q, d): (&[i8; 32], f32)| q.map(|q| f64::from(q) * f64::from(d));
    let blocks = (0..x.cols().div_ceil(256)).filter_map(|b| x.block(m, b).filter(|_| in_place));
    let mut all: Vec<f64> = blocks.flat_map(|(q, d)| q.iter().flat_map(move |q| scaled((q, d)))).collect();
    if all.is_empty() {
        all = (0..x.cols().div_ceil(32)).filter_map(|g| x.group(m, g)).flat_map(scaled).collect();
    }
    all.truncate(x.cols());
    all
}

/// Weights as a product takes them.
#[derive(Clone, Copy)]
enum Weights<'a> {
    Packed(PackedQ<'a>),
    InPlace(QuantRef<'a>),
}
impl Weights<'_> {
    /// Rows that ranges start at multiples of.
    fn step(self) -> usize {
        match self {
            Self::Packed(_) => PackedQ::ROW_STEP,
            Self::InPlace(_) => 3,
        }
    }
    /// Roundings on the way of a term, as documented.
    fn roundings(self, level: IsaLevel, cols: usize) -> usize {
        let format = match self {
            Self::Packed(w) => w.format(),
            Self::InPlace(w) => w.format(),
        };
        if format.element().is_some() {
            return cols / lanes(level) + 16;
        }
        match self {
            Self::Packed(_) => cols / 16 + 4,
            Self::InPlace(_) if level == IsaLevel::Scalar => cols / 8 + 16,
            Self::InPlace(_) => cols / 16 + 16,
        }
    }
    fn row_range(self, start: usize, len: usize) -> Result<Self, KernelError> {
        match self {
            Self::Packed(w) => w.row_range(start, len).map(Self::Packed),
            Self::InPlace(w) => w.row_range(start, len).map(Self::InPlace),
        }
    }
    fn multiply(self, k: &Kernels<f32>, x: Activations<'_>, y: MatMut<'_, f32>) -> Result<(), KernelError> {
        match self {
            Self::Packed(w) => k.qgemv_packed(w, x, y),
            Self::InPlace(w) => k.qgemv_q8(w, x, y),
        }
    }
}

/// Calls `f` with the weights as `op` takes them.
fn prepared(
    op: Op,
    k: &Kernels<f32>,
    w: QuantRef<'_>,
    edge: Edge,
    f: &mut dyn FnMut(Weights<'_>) -> Result<(), String>,
) -> Result<(), String> {
    if op == Op::QgemvPacked {
        let buf = packed(k, w, edge)?;
        f(Weights::Packed(k.packed_q(w.format(), w.rows(), w.cols(), &buf).map_err(|e| e.to_string())?))
    } else {
        // At any address.
        let mut moved = vec![0];
        moved.extend(w.as_bytes());
        let bytes = Guarded::copy_of(&moved, edge);
        let w = QuantRef::new(&bytes[1..], w.format(), w.rows(), w.cols()).map_err(|e| e.to_string())?;
        f(Weights::InPlace(w))
    }
}

/// One product of `p`, which is `w`; `exact` if everything is whole, so that small sums must have no error at all.
fn check_product(
    k: &Kernels<f32>,
    p: Weights<'_>,
    w: QuantRef<'_>,
    (x, exact): (&[f32], bool),
    edge: Edge,
    report: &mut Report,
) -> Result<(), String> {
    let (rows, cols) = (w.rows(), w.cols());
    let batch = x.len() / cols;
    let case = || format!("{rows}x{cols}, batch {batch}");
    let text = |e: KernelError| format!("{}: {e}", case());
    let size = k.activations_size(batch, cols).map_err(text)?.size_unaligned();
    let mut steps = Guarded::<u8>::poisoned(size, edge);
    let view = MatRef::new(x, batch, cols).map_err(text)?;
    let a = k.quantize_activations(w.format(), view, &mut steps).map_err(text)?;
    let mut y = Guarded::<f32>::poisoned(batch * rows, edge);
    call(|| p.multiply(k, a, MatMut::new(&mut y, batch, rows)?)).map_err(text)?;
    if !y.intact() {
        return Err(format!("{}: writes outside of the output", case()));
    }
    report.cases += 1;
    if let Weights::Packed(p) = p {
        let mut bits = vec![f32::NAN; batch * rows];
        let out = MatMut::new(&mut bits, batch, rows).map_err(text)?;
        if w.format().element().is_some() {
            k.qgemv_q8(w, a, out).map_err(text)?;
        } else {
            let plain = Kernels::<f32>::forced(IsaLevel::Scalar).map_err(text)?;
            plain.qgemv_packed(p, a, out).map_err(text)?;
        }
        if let Some(i) = (0..y.len()).find(|&i| !same(y[i], bits[i])) {
            return Err(format!("{}: {:?} where another kernel has {:?}", case(), y[i], bits[i]));
        }
        // Rounded row by row, for packed weights alone.
        let size = k.activations_size(batch, cols).map_err(text)?;
        let mut memory = vec![0xff; size.size_unaligned()];
        let skip = memory.as_ptr().align_offset(size.align());
        let room = &mut memory[skip..skip + size.size()];
        let each = (room.len() / batch).max(1);
        for (m, part) in room.chunks_exact_mut(each).enumerate() {
            k.activations_rows(w.format(), view.row_range(m, 1).map_err(text)?, part).map_err(text)?;
        }
        let a = k.activations_filled(w.format(), batch, cols, room).map_err(text)?;
        let mut out = vec![f32::NAN; batch * rows];
        k.qgemv_packed(p, a, MatMut::new(&mut out, batch, rows).map_err(text)?).map_err(text)?;
        if let Some(i) = (0..y.len()).find(|&i| !same(y[i], out[i])) {
            return Err(format!("{}: {:?}, but {:?} with rows rounded one by one", case(), y[i], out[i]));
        }
        let out = MatMut::new(&mut out, batch, rows).map_err(text)?;
        if k.qgemv_q8(w, a, out).is_ok() && w.format().element().is_none() {
            return Err(format!("{}: weights in place take what is for packed ones", case()));
        }
    }
    let (weights, sizes) = (specified(w)?, magnitudes(w)?);
    for m in 0..batch {
        let x = rounded(a, m, matches!(p, Weights::InPlace(_)));
        for r in 0..rows {
            let terms = |w: &[f32]| -> Vec<f64> {
                w[r * cols..][..cols].iter().zip(&x).map(|(&w, &x)| f64::from(w) * x).collect()
            };
            let (want, _) = exact_sum(terms(&weights).into_iter());
            let (_, size) = exact_sum(terms(&sizes).into_iter());
            let got = y[m * rows + r];
            let err = (f64::from(got) - want).abs();
            let bound = if exact && size < f64::from(1 << 21) {
                0.0
            } else {
                gamma(p.roundings(k.level(), cols), size)
            };
            let err = if err == 0.0 { 0.0 } else { err / bound };
            report.see(err, 1.0, || {
                format!("{}, row {r} of activations {m}: {got} instead of {want}", case())
            })?;
        }
    }
    // Rows are independent of each other, and so is the batch.
    for start in (0..rows).step_by(p.step()) {
        let len = (rows - start).min(p.step());
        let part = p.row_range(start, len).map_err(text)?;
        for m in 0..batch {
            let one = MatRef::new(&x[m * cols..][..cols], 1, cols).map_err(text)?;
            let mut steps = vec![0; k.activations_size(1, cols).map_err(text)?.size_unaligned()];
            let one = k.quantize_activations(w.format(), one, &mut steps).map_err(text)?;
            let mut out = vec![f32::NAN; len];
            part.multiply(k, one, MatMut::new(&mut out, 1, len).map_err(text)?).map_err(text)?;
            if out != y[m * rows + start..][..out.len()] {
                return Err(format!("{}: rows from {start} of activations {m} alone differ", case()));
            }
        }
    }
    Ok(())
}

/// `qgemv_packed` and `qgemv_q8`: whole numbers exactly, else within the bound, against the rounded activations; with
/// packed weights the same bits as without SIMD (plain floating point: as in place); the same bits however rows and batch are split; NaN where activations
/// are, and in no other row.
pub fn products(row: &KernelInfo) -> Outcome {
    let (format, vectors) = subject(row)?;
    let caps = caps().restricted_to(row.level).map_err(|e| e.to_string())?;
    let k = Kernels::<f32>::with(caps).with_qgemv(row).map_err(|e| e.to_string())?;
    let mut report = Report::BOUND;
    let mut source = Source::new(row.name.len() as u64);
    let batches = [(1, 1), (16, 1), (17, 2), (5, 3), (33, 4), (3, 5), (16, 8), (2, 9)];
    for (i, cols) in shapes(format).into_iter().enumerate() {
        for (rows, batch) in batches {
            let edge = Edge::BOTH[(i + rows) % 2];
            let n = rows * cols / format.block_len();
            let mut bytes = shuffled_blocks(&mut source, format, &vectors, n);
            let w = QuantRef::new(&bytes, format, rows, cols).map_err(|e| e.to_string())?;
            let x = source.normals(batch * cols);
            prepared(row.op, &k, w, edge, &mut |p| check_product(&k, p, w, (&x, false), edge, &mut report))?;

            // Scales of 1, and activations whose scale is 1: whole numbers, or eighths of them.
            for block in bytes.chunks_exact_mut(format.block_bytes()) {
                for &at in halves(format) {
                    block[at..at + 2].copy_from_slice(&0x3c00u16.to_le_bytes());
                }
            }
            let w = QuantRef::new(&bytes, format, rows, cols).map_err(|e| e.to_string())?;
            if specified(w)?.iter().all(|w| (w * 8.0).fract() == 0.0) {
                let mut x: Vec<f32> = source.whole(batch * cols, 2);
                x.chunks_mut(32.min(cols)).for_each(|group| group[0] = 127.0);
                prepared(row.op, &k, w, edge, &mut |p| {
                    check_product(&k, p, w, (&x, true), edge, &mut report)
                })?;
            }
        }
    }
    let w = QuantRef::new(&vectors.blocks, format, 2, 512).map_err(|e| e.to_string())?;
    prepared(row.op, &k, w, Edge::End, &mut |p| not_finite(&k, p, format))?;
    Ok(report)
}

/// A NaN among the activations of one row is NaN in its products alone.
fn not_finite(k: &Kernels<f32>, p: Weights<'_>, format: QuantFormat) -> Result<(), String> {
    let text = |e: KernelError| e.to_string();
    let (rows, cols) = (2, 512);
    let mut x = vec![0.5f32; 3 * cols];
    x[cols + 77] = f32::NAN;
    let mut steps = vec![0; k.activations_size(3, cols).map_err(text)?.size_unaligned()];
    let a =
        k.quantize_activations(format, MatRef::new(&x, 3, cols).map_err(text)?, &mut steps).map_err(text)?;
    let mut y = vec![f32::INFINITY; 3 * rows];
    p.multiply(k, a, MatMut::new(&mut y, 3, rows).map_err(text)?).map_err(text)?;
    let nan: Vec<bool> = y.iter().map(|y| y.is_nan()).collect();
    if nan == [false, false, true, true, false, false] {
        Ok(())
    } else {
        Err(format!("a NaN in the second of three rows gave {y:?}"))
    }
}
