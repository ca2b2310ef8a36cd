//! `pack_b`: layout, headers, column ranges.

use gllm_kernels_core::{
    bf16, f16, kernels, ElementType, IsaLevel, KernelError, KernelInfo, Kernels, Op, Operand, Scratch,
};

use crate::data::Source;
use crate::gemm::{kernels_of, Sample};
use crate::matrix::{Layout, Matrix};
use crate::report::{Outcome, Report};
use crate::{call, Edge, Guarded};

/// The microkernels that this machine has for storage type `E` on `level`.
fn microkernels<E: Operand>(level: IsaLevel) -> impl Iterator<Item = Kernels<E>> {
    let fits = move |r: &&KernelInfo| (r.op, r.element, r.level) == (Op::Gemm, E::TYPE, level);
    kernels().filter(fits).filter_map(|row| kernels_of(row).ok()).map(|[own, _]| own)
}

/// `pack_b`, for every microkernel: the documented layout, at every alignment; damaged, moved and foreign
/// buffers; column ranges.
pub fn pack_b<E: Sample>(row: &KernelInfo) -> Outcome {
    let mut source = Source::new(13);
    let mut report = Report::BOUND;
    for k in microkernels::<E>(row.level) {
        let name = k.kernel(Op::Gemm, None).map_or("", |r| r.name);
        packing(&k, &mut source, &mut report).map_err(|e| format!("for {name}: {e}"))?;
    }
    if report.cases == 0 {
        return Err("no microkernel".into());
    }
    Ok(report)
}

fn packing<E: Sample>(k: &Kernels<E>, source: &mut Source, report: &mut Report) -> Result<(), String> {
    let lanes = k.level().lanes();
    for (depth, n) in [(0, 5), (5, 0), (1, 1), (3, lanes), (lanes + 1, 2 * lanes + 3), (19, 67), (64, 31)] {
        for layout in Layout::ALL {
            let values: Vec<E> = (0..depth * n).map(|_| E::any(source)).collect();
            let b = Matrix::new(depth, n, layout, Edge::End, |i, j| values[i * n + j]);
            let shift = source.below(64);
            panels(k, &b, shift).map_err(|e| format!("{depth}x{n} {layout:?} at {shift}: {e}"))?;
            report.cases += 1;
        }
    }
    for shift in 0..64 {
        let b = Matrix::new(9, 2 * lanes + 1, Layout::Rows, Edge::End, |_, _| E::narrow(1.0));
        panels(k, &b, shift).map_err(|e| format!("at {shift}: {e}"))?;
        report.cases += 1;
    }
    headers(k)?;
    foreign(k)?;
    ranges(k).map_err(|e| format!("column ranges: {e}"))
}

/// Packs `b` into a buffer that starts `shift` bytes from an aligned address; compares byte for byte.
fn panels<E: Sample>(k: &Kernels<E>, b: &Matrix<E>, shift: usize) -> Result<(), String> {
    let (depth, n) = (b.rows, b.cols);
    let size = k.packed_b_size(depth, n).map_err(|e| e.to_string())?;
    let mut memory = Guarded::<u8>::poisoned(shift + size, Edge::Start);
    let width = {
        let packed = call(|| k.pack_b(b.view()?, &mut memory[shift..])).map_err(|e| e.to_string())?;
        if (packed.k(), packed.n()) != (depth, n) {
            return Err(format!("says {}x{}", packed.k(), packed.n()));
        }
        packed.col_step()
    };
    if !memory.intact() || !crate::guard::is_poison(&memory[..shift]) {
        return Err("writes outside of the buffer".into());
    }
    let start = shift + u64::from_le_bytes(memory[shift + 32..shift + 40].try_into().unwrap()) as usize;
    if !start.is_multiple_of(64) {
        return Err(format!("panels start {start} bytes from an aligned address"));
    }
    // Version, storage, element, padding, group, width: see SPEC/03.
    let word = u64::from_le_bytes(memory[shift + 8..shift + 16].try_into().unwrap());
    let part = |low: u32, bits: u32| (word >> low & ((1 << bits) - 1)) as usize;
    let (storage, element, pad, kr) = (part(40, 8), part(32, 8), part(24, 8), part(16, 8));
    let own = 1 + ElementType::ALL.iter().position(|&e| e == E::TYPE).unwrap();
    let (wide, offset) = (element == 1, element == 7);
    let known = wide || element == own || offset && own == 4;
    if (part(48, 16), storage, part(0, 16)) != (2, own, width) || !known || pad % kr != 0 {
        return Err(format!("layout {word:#x}"));
    }
    let (size, padded) = (if wide { 4 } else { size_of::<E>() }, depth.next_multiple_of(pad));
    let pitch = width * (padded * size + if offset { 4 } else { 0 });
    for (panel, memory) in memory[start..].chunks(pitch.max(1)).take(n.div_ceil(width)).enumerate() {
        let (steps, tail) = memory.split_at(width * padded * size);
        // Groups of columns of `kr` elements.
        for (at, got) in steps.chunks_exact(size).enumerate() {
            let (j, p) = (panel * width + at / kr % width, at / (width * kr) * kr + at % kr);
            let exact = if j < n && p < depth { b.get(p, j) as f32 } else { 0.0 };
            let want = if wide { exact.to_bits() } else { exact_bits::<E>(exact) };
            let got = got.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte));
            if got != want {
                return Err(format!("element {p},{j} is {got:#x} instead of {want:#x}"));
            }
        }
        if offset {
            for (j, got) in (panel * width..).zip(tail[..4 * width].chunks_exact(4)) {
                let sum: f64 = (0..if j < n { depth } else { 0 }).map(|p| b.get(p, j)).sum();
                let got = i32::from_le_bytes(got.try_into().unwrap());
                if f64::from(got) != -128.0 * sum {
                    return Err(format!("column {j}, whose sum is {sum}, starts with {got}"));
                }
            }
        }
    }
    Ok(())
}

/// The bits of `x` as an `E`, which holds it exactly.
fn exact_bits<E: Operand>(x: f32) -> u32 {
    match E::TYPE {
        ElementType::F16 => u32::from(f16::from_f32(x).to_bits()),
        ElementType::Bf16 => u32::from(bf16::from_f32(x).to_bits()),
        ElementType::I8 => u32::from(x as i8 as u8),
        _ => x.to_bits(),
    }
}

/// Damaged, cut and moved buffers.
fn headers<E: Sample>(k: &Kernels<E>) -> Result<(), String> {
    let (depth, n) = (5, 7);
    let b = Matrix::new(depth, n, Layout::Rows, Edge::End, |i, j| E::narrow((i * n + j) as f32));
    let size = k.packed_b_size(depth, n).map_err(|e| e.to_string())?;
    let mut buf = Guarded::<u8>::poisoned(size, Edge::Start);
    k.pack_b(b.view().map_err(|e| e.to_string())?, &mut buf).map_err(|e| e.to_string())?;
    for byte in 0..40 {
        for bit in 0..8 {
            buf[byte] ^= 1 << bit;
            // A start that is off but possible is refused unless it is a multiple of 4 and all fits.
            let moved = byte == 32 && (buf[32] as usize) < 128 && buf[32] >= 64;
            match k.packed_b(&buf, depth, n) {
                Err(KernelError::WrongPacking { .. }) if !(16..32).contains(&byte) => {}
                Err(KernelError::DimMismatch { .. }) if (16..32).contains(&byte) => {}
                Ok(_) | Err(KernelError::BadParameter { .. } | KernelError::ShortSlice { .. }) if moved => {}
                r => return Err(format!("header with bit {bit} of byte {byte} flipped: {r:?}")),
            }
            buf[byte] ^= 1 << bit;
        }
    }
    for (depth, n) in [(4, 7), (6, 7), (5, 6), (5, 8), (7, 5), (0, 0), (usize::MAX, 7), (5, usize::MAX)] {
        match k.packed_b(&buf, depth, n) {
            Err(KernelError::DimMismatch { .. }) => {}
            Err(KernelError::SizeOverflow { .. }) if depth.max(n) == usize::MAX => {}
            r => return Err(format!("5x7 opened as {depth}x{n}: {r:?}")),
        }
    }
    // An aligned buffer's panels end before its padding.
    let whole = size - 63;
    for len in 0..whole {
        let cut = Guarded::copy_of(&buf[..len], Edge::End);
        match k.packed_b(&cut, depth, n) {
            Err(KernelError::ShortSlice { .. } | KernelError::BadParameter { .. }) => {}
            r => return Err(format!("{len} of {whole} bytes: {r:?}")),
        }
    }
    for by in 0..9 {
        let mut memory = Guarded::<u8>::poisoned(by + whole, Edge::Start);
        memory[by..].copy_from_slice(&buf[..whole]);
        match k.packed_b(&memory[by..], depth, n) {
            Ok(_) if by % 4 == 0 => {}
            Err(KernelError::BadParameter { .. }) if by % 4 != 0 => {}
            r => return Err(format!("moved by {by} bytes: {r:?}")),
        }
    }
    let mut short = vec![0; size - 1];
    let view = b.view().map_err(|e| e.to_string())?;
    match (k.pack_b(view, &mut short), k.packed_b_size(usize::MAX, 2), k.packed_b_size(2, usize::MAX)) {
        (
            Err(KernelError::ShortSlice { .. }),
            Err(KernelError::SizeOverflow { .. }),
            Err(KernelError::SizeOverflow { .. }),
        ) => Ok(()),
        r => Err(format!("impossible sizes: {r:?}")),
    }
}

/// Buffers packed for another storage type or tile.
fn foreign<E: Sample>(k: &Kernels<E>) -> Result<(), String> {
    fn pack<F: Sample>(k: &Kernels<F>) -> Result<Vec<u8>, KernelError> {
        let b = Matrix::new(5, 7, Layout::Rows, Edge::End, |_, _| F::narrow(1.0));
        let mut buf = vec![0; k.packed_b_size(5, 7)?];
        k.pack_b(b.view()?, &mut buf)?;
        Ok(buf)
    }
    fn all<F: Sample>(level: IsaLevel, others: &mut Vec<Vec<u8>>) -> Result<(), KernelError> {
        for k in microkernels::<F>(level) {
            others.push(pack(&k)?);
        }
        Ok(())
    }
    let go = || {
        let (own, mut others) = (pack(k)?, vec![]);
        for level in crate::data::levels() {
            all::<f32>(level, &mut others)?;
            all::<f16>(level, &mut others)?;
            all::<bf16>(level, &mut others)?;
            all::<i8>(level, &mut others)?;
        }
        Ok((own, others))
    };
    let (own, mut others) = go().map_err(|e: KernelError| e.to_string())?;
    others.push(vec![0; own.len()]);
    let layout = |buf: &[u8]| buf[..16].to_vec();
    let mut refused = 0;
    for other in others {
        match (layout(&other) == layout(&own), k.packed_b(&other, 5, 7)) {
            (true, Ok(_)) => {}
            (false, Err(KernelError::WrongPacking { .. })) => refused += 1,
            (same, r) => {
                return Err(format!(
                    "a buffer with {} layout: {r:?}",
                    if same { "this" } else { "a foreign" }
                ))
            }
        }
    }
    if refused < 3 {
        return Err("kernels for different storage types share a layout".into());
    }
    Ok(())
}

/// A product by tiles of rows and columns is the product.
fn ranges<E: Sample>(k: &Kernels<E>) -> Result<(), String> {
    let (m, n, depth) = (13, 75, 29);
    let mut source = Source::new(17);
    let mut make = |r, c| Matrix::<E>::new(r, c, Layout::Rows, Edge::End, |_, _| E::draw(&mut source, true));
    let (a, b) = (make(m, depth), make(depth, n));
    let go = || -> Result<bool, KernelError> {
        let mut buf = vec![0; k.packed_b_size(depth, n)?];
        let packed = k.pack_b(b.view()?, &mut buf)?;
        let mut memory = vec![0; k.gemm_plan(m, n, depth)?.scratch_packed()?.size_unaligned()];
        let mut c = Matrix::<E::Sum>::poisoned(m, n, Layout::PaddedRows, Edge::End);
        let (left, right) = c.view_mut()?.t().split_rows(packed.col_step())?;
        let (top, bottom) = left.t().split_rows(5)?;
        for (c, i, j) in [(top, 0, 0), (bottom, 5, 0), (right.t(), 0, packed.col_step())] {
            let (rows, cols) = (c.rows(), c.cols());
            let plan = k.gemm_plan(rows, cols, depth)?;
            let part = packed.col_range(j, cols)?;
            plan.run(c, a.view()?.row_range(i, rows)?, part, None, Scratch::new(&mut memory))?;
        }
        let exact = |i, j| (0..depth).map(|p| a.get(i, p) * b.get(p, j)).sum::<f64>();
        let right = (0..m).all(|i| (0..n).all(|j| c.get(i, j) == exact(i, j)));
        Ok(right
            && packed.col_range(n, 0)?.n() == 0
            && packed.col_range(1, 1).is_err()
            && packed.col_range(0, n + 1).is_err())
    };
    match go() {
        Ok(true) => Ok(()),
        Ok(false) => Err("wrong result".into()),
        Err(e) => Err(e.to_string()),
    }
}
