//! Packed quantised weights and quantised activations: decode bit for bit, integers exactly, sums within the bound.

use gllm_kernels_core::{
    Element, Features, IsaLevel, KernelError, KernelInfo, Kernels, MatMut, MatRef, Op, PackedQ, Precision,
    Prefetcher, Prepared, QgemmPlan, QuantFormat, QuantRef, QuantWeights, Scratch,
};

use crate::data::{specials, Source};
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
    let text = |e: KernelError| e.to_string();
    let mut report = Report::BOUND;
    let mut source = Source::new(7);
    let shapes = [(1, 32), (2, 64), (3, 256), (5, 288), (1, 0), (0, 256), (2, 1056), (2, 768)];
    for (batch, cols) in shapes {
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
            let view = MatRef::with_strides(&guarded, batch, cols, stride, 1).map_err(text)?;
            let wide = wide(&x);
            // In blocks that are short, and in long ones if rows have whole blocks.
            for format in [QuantFormat::Q4_0, QuantFormat::Q4K] {
                let long = format.block_len() == 256;
                if cols % format.block_len() != 0 {
                    continue;
                }
                let plan = k.qgemm_plan(format, batch, 1, cols, Precision::Integer).map_err(text)?;
                let plan = plan.with_kernel(Op::QgemvQ8).map_err(text)?;
                let size = plan.prepared_size().map_err(text)?.size_unaligned();
                let mut buf = Guarded::<u8>::poisoned(size, edge);
                let q = call(|| plan.prepare(view, &mut buf)).map_err(text)?;
                report.cases += 1;
                for m in 0..batch {
                    for g in 0..cols.div_ceil(32) {
                        let columns = &wide[m * stride..][..cols][32 * g..cols.min(32 * g + 32)];
                        let group = q.group(m, g).ok_or("a group is missing")?;
                        check_group(columns, group, 1e-36)
                            .map_err(|e| format!("{batch}x{cols}, row {m}, group {g}: {e}"))?;
                    }
                    for b in (0..cols / 256).filter(|_| long) {
                        let columns = &wide[m * stride..][..cols][256 * b..256 * b + 256];
                        let (block, d) = q.block(m, b).ok_or("a block is missing")?;
                        let block: &[i8; 256] =
                            block.as_flattened().try_into().map_err(|_| "not 256 columns")?;
                        check_group(columns, (block, d), 1e-36)
                            .map_err(|e| format!("{batch}x{cols}, row {m}, block {b}: {e}"))?;
                    }
                }
                if q.block(batch, 0).is_some() || q.block(0, cols.div_ceil(256)).is_some() {
                    return Err("a block too many".into());
                }
                if q.group(batch, 0).is_some() || q.group(0, cols.div_ceil(32)).is_some() {
                    return Err("a group too many".into());
                }
                if !long && q.block(0, 0).is_some() {
                    return Err("blocks of a format whose blocks are shorter".into());
                }
                if !buf.intact() {
                    return Err(format!("{batch}x{cols}: writes outside of the buffer"));
                }
            }
        }
    }
    Ok(report)
}

/// Packs into guarded memory.
pub(crate) fn packed(k: &Kernels<f32>, w: QuantRef<'_>, edge: Edge) -> Result<Guarded<u8>, String> {
    let size = w.format().packed_size(w.rows(), w.cols()).map_err(|e| e.to_string())?;
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

/// Row `m` of activations as they were rounded for a few rows.
pub fn rounded<E: Element>(x: &Prepared<'_, E>, m: usize) -> Vec<f64> {
    if let Some(x) = x.exact(m) {
        return wide(x);
    }
    let scaled = |(q, d): (&[i8; 32], f32)| q.map(|q| f64::from(q) * f64::from(d));
    let blocks = (0..x.cols().div_ceil(256)).filter_map(|b| x.block(m, b));
    let mut all: Vec<f64> = blocks.flat_map(|(q, d)| q.iter().flat_map(move |q| scaled((q, d)))).collect();
    if all.is_empty() {
        all = (0..x.cols().div_ceil(32)).filter_map(|g| x.group(m, g)).flat_map(scaled).collect();
    }
    all.truncate(x.cols());
    all
}

/// Rows of weights that ranges start at multiples of.
fn step(w: QuantWeights<'_>) -> usize {
    match w {
        QuantWeights::Packed(_) => PackedQ::ROW_STEP,
        QuantWeights::InPlace(_) => 3,
    }
}

/// Roundings on the way of a term, as documented.
fn roundings(w: QuantWeights<'_>, level: IsaLevel) -> usize {
    let cols = w.cols();
    match w {
        _ if w.format().is_float() => cols / level.lanes() + 16,
        QuantWeights::Packed(_) => cols / 16 + 4,
        QuantWeights::InPlace(_) if level == IsaLevel::Scalar => cols / 8 + 16,
        QuantWeights::InPlace(_) => cols / 16 + 16,
    }
}

/// A plan that uses the kernels of `qgemv_q8` or `qgemv_packed`, as the weights are.
pub(crate) fn plan_of<E: Element>(
    k: &Kernels<E>,
    w: QuantWeights<'_>,
    batch: usize,
) -> Result<QgemmPlan<E>, KernelError> {
    let op = if w.is_packed() { Op::QgemvPacked } else { Op::QgemvQ8 };
    k.qgemm_plan(w.format(), batch, w.rows(), w.cols(), Precision::Integer)?.with_kernel(op)
}

/// The product by these kernels.
fn multiply(k: &Kernels<f32>, w: QuantWeights<'_>, x: MatRef<'_, f32>) -> Result<Vec<f32>, KernelError> {
    let plan = plan_of(k, w, x.rows())?;
    let mut memory = vec![0; plan.scratch()?.size_unaligned()];
    let mut y = vec![f32::NAN; x.rows() * w.rows()];
    plan.run(MatMut::new(&mut y, x.rows(), w.rows())?, w, x, None, Scratch::new(&mut memory))?;
    Ok(y)
}

/// Calls `f` with the weights as `op` takes them.
fn prepared(
    op: Op,
    k: &Kernels<f32>,
    w: QuantRef<'_>,
    edge: Edge,
    f: &mut dyn FnMut(QuantWeights<'_>) -> Result<(), String>,
) -> Result<(), String> {
    if op == Op::QgemvPacked {
        let buf = packed(k, w, edge)?;
        f(k.packed_q(w.format(), w.rows(), w.cols(), &buf).map_err(|e| e.to_string())?.into())
    } else {
        // At any address.
        let mut moved = vec![0];
        moved.extend(w.as_bytes());
        let bytes = Guarded::copy_of(&moved, edge);
        let w = QuantRef::new(&bytes[1..], w.format(), w.rows(), w.cols()).map_err(|e| e.to_string())?;
        f(w.into())
    }
}

/// One product of `p`, which is `w`; `exact` if everything is whole, so that small sums must have no error at all.
fn check_product(
    k: &Kernels<f32>,
    p: QuantWeights<'_>,
    w: QuantRef<'_>,
    (x, exact): (&[f32], bool),
    edge: Edge,
    report: &mut Report,
) -> Result<(), String> {
    let (rows, cols) = (w.rows(), w.cols());
    let batch = x.len() / cols;
    let case = || format!("{rows}x{cols}, batch {batch}");
    let text = |e: KernelError| format!("{}: {e}", case());
    let plan = plan_of(k, p, batch).map_err(text)?;
    let size = plan.prepared_size().map_err(text)?.size_unaligned();
    let mut steps = Guarded::<u8>::poisoned(size, edge);
    let guarded = Guarded::copy_of(x, edge);
    let view = MatRef::new(&guarded, batch, cols).map_err(text)?;
    let a = plan.prepare(view, &mut steps).map_err(text)?;
    let mut y = Guarded::<f32>::poisoned(batch * rows, edge);
    call(|| plan.run(MatMut::new(&mut y, batch, rows)?, p, a, None, Scratch::empty())).map_err(text)?;
    if !y.intact() {
        return Err(format!("{}: writes outside of the output", case()));
    }
    report.cases += 1;
    let same_as = |what: &str, other: &[f32]| match (0..y.len()).find(|&i| !same(y[i], other[i])) {
        Some(i) => Err(format!("{}: {:?}, but {:?} {what}", case(), y[i], other[i])),
        None => Ok(()),
    };
    same_as("with activations that were not prepared", &multiply(k, p, view).map_err(text)?)?;
    if p.is_packed() {
        if w.format().is_float() {
            same_as("with weights in place", &multiply(k, w.into(), view).map_err(text)?)?;
        } else {
            let plain = Kernels::<f32>::forced(IsaLevel::Scalar).map_err(text)?;
            same_as("by scalar code", &multiply(&plain, p, view).map_err(text)?)?;
        }
    } else if k.level() == IsaLevel::Avx2 {
        // The same integers are summed in each lane.
        let plain = Kernels::<f32>::with(k.caps().without(Features::AVX_VNNI));
        same_as("without VNNI", &multiply(&plain, p, view).map_err(text)?)?;
    }
    // Weights that the plan's kernel does not take are refused.
    let turned = if p.is_packed() { Op::QgemvQ8 } else { Op::QgemvPacked };
    let turned = plan.with_kernel(turned).map_err(text)?;
    let mut out = vec![f32::NAN; batch * rows];
    let out = MatMut::new(&mut out, batch, rows).map_err(text)?;
    match turned.run(out, p, view, None, Scratch::empty()) {
        Err(KernelError::BadParameter { arg: "w", .. }) => {}
        other => return Err(format!("{}: weights of another kernel: {other:?}", case())),
    }
    let (weights, sizes) = (specified(w)?, magnitudes(w)?);
    for m in 0..batch {
        let x = rounded(&a, m);
        for r in 0..rows {
            let terms = |w: &[f32]| -> Vec<f64> {
                w[r * cols..][..cols].iter().zip(&x).map(|(&w, &x)| f64::from(w) * x).collect()
            };
            let (want, _) = exact_sum(terms(&weights).into_iter());
            let (_, size) = exact_sum(terms(&sizes).into_iter());
            let got = y[m * rows + r];
            let err = (f64::from(got) - want).abs();
            let bound =
                if exact && size < f64::from(1 << 21) { 0.0 } else { gamma(roundings(p, k.level()), size) };
            let err = if err == 0.0 { 0.0 } else { err / bound };
            report.see(err, 1.0, || {
                format!("{}, row {r} of activations {m}: {got} instead of {want}", case())
            })?;
        }
    }
    // Rows are independent of each other, and so is the batch.
    for start in (0..rows).step_by(step(p)) {
        let len = (rows - start).min(step(p));
        let part = p.row_range(start, len).map_err(text)?;
        for m in 0..batch {
            let out = multiply(k, part, view.row_range(m, 1).map_err(text)?).map_err(text)?;
            if out != y[m * rows + start..][..out.len()] {
                return Err(format!("{}: rows from {start} of activations {m} alone differ", case()));
            }
        }
    }
    Ok(())
}

/// `qgemv_packed` and `qgemv_q8`: whole numbers exactly, else within the bound, against the rounded activations; with
/// packed weights the same bits as without SIMD (plain floating point: as in place); the same bits with AVX-VNNI as with AVX2 alone; the
/// same bits however rows and batch are split; NaN where activations are, and in no other row.
pub fn products(row: &KernelInfo) -> Outcome {
    let (format, vectors) = subject(row)?;
    let caps = caps().restricted_to(row.level).map_err(|e| e.to_string())?;
    let mut by_prefetcher = Vec::new();
    // Kernels prefetch for `PerPage` as for the first of the others. Three shapes are the fewest, so each batch meets each of these.
    for prefetcher in Prefetcher::ALL.into_iter().filter(|&p| p != Prefetcher::PerPage) {
        let k = Kernels::<f32>::with(caps.with_prefetcher(prefetcher));
        by_prefetcher.push(k.with_qgemv(row).map_err(|e| e.to_string())?);
    }
    let mut report = Report::BOUND;
    let mut source = Source::new(row.name.len() as u64);
    let batches = [(1, 1), (16, 1), (17, 2), (5, 3), (33, 4), (3, 5), (16, 8), (2, 9)];
    for (i, cols) in shapes(format).into_iter().enumerate() {
        for (rows, batch) in batches {
            let edge = Edge::BOTH[(i + rows) % 2];
            let k = &by_prefetcher[(i + batch) % by_prefetcher.len()];
            let n = rows * cols / format.block_len();
            let mut bytes = shuffled_blocks(&mut source, format, &vectors, n);
            let w = QuantRef::new(&bytes, format, rows, cols).map_err(|e| e.to_string())?;
            let x = source.normals(batch * cols);
            prepared(row.op, k, w, edge, &mut |p| check_product(k, p, w, (&x, false), edge, &mut report))?;

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
                prepared(row.op, k, w, edge, &mut |p| check_product(k, p, w, (&x, true), edge, &mut report))?;
            }
        }
    }
    let w = QuantRef::new(&vectors.blocks, format, 2, 512).map_err(|e| e.to_string())?;
    prepared(row.op, &by_prefetcher[0], w, Edge::End, &mut |p| not_finite(&by_prefetcher[0], p))?;
    Ok(report)
}

/// A NaN among the activations of one row is NaN in its products alone.
fn not_finite(k: &Kernels<f32>, p: QuantWeights<'_>) -> Result<(), String> {
    let cols = 512;
    let mut x = vec![0.5f32; 3 * cols];
    x[cols + 77] = f32::NAN;
    let y = MatRef::new(&x, 3, cols).and_then(|x| multiply(k, p, x)).map_err(|e| e.to_string())?;
    let nan: Vec<bool> = y.iter().map(|y| y.is_nan()).collect();
    if nan == [false, false, true, true, false, false] {
        Ok(())
    } else {
        Err(format!("a NaN in the second of three rows gave {y:?}"))
    }
}
