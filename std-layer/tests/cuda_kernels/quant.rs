//! Weights in blocks.

use gllm_kernels_std::core::{IsaLevel, KernelError, Kernels, Precision, QuantFormat, QuantRef};
use gllm_kernels_std::cuda::{Activations, Capability, CudaError, Float, QuantView};
use gllm_testkit::data::Source;
use gllm_testkit::quant::vectors;

use super::{compare, source, text, trial, Gpu, Outcome, Trials};

pub fn formats() -> impl Iterator<Item = QuantFormat> {
    QuantFormat::ALL.iter().copied().filter(|f| f.element().is_none())
}

/// ggml's blocks in any order: weights of ordinary size.
pub fn ordinary(source: &mut Source, format: QuantFormat, n: usize) -> Result<Vec<u8>, String> {
    let from = vectors(format).ok_or("no vectors")?;
    let blocks: Vec<&[u8]> = from.blocks.chunks_exact(format.block_bytes()).collect();
    Ok((0..n).flat_map(|_| blocks[source.below(blocks.len())].iter().copied()).collect())
}

fn scalar<T: Float>() -> Result<Kernels<T>, String> {
    Kernels::forced(IsaLevel::Scalar).map_err(text)
}

/// The same number, or both NaN.
fn same<T: Float>(got: &[T], want: &[T]) -> Outcome {
    let bits = |x: T| if x.to_f32().is_nan() { f32::NAN.to_bits() } else { x.to_f32().to_bits() };
    match got.iter().zip(want).position(|(&g, &w)| bits(g) != bits(w)) {
        _ if got.len() != want.len() => Err(format!("{} instead of {}", got.len(), want.len())),
        Some(i) => Err(format!("{i}: {:e} instead of {:e}", got[i].to_f32(), want[i].to_f32())),
        None => Ok(()),
    }
}

/// Bit for bit what the core decodes, of any bytes; all rows, and some in any order.
fn dequant<T: Float>(format: QuantFormat) -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source(format.name());
    let unit = format.block_len();
    for (rows, blocks) in
        [(1, 1), (3, 2), (2, 1024 / unit), (5, 1024 / unit + 1), (1, 2048 / unit + 3), (0, 1)]
    {
        for random in [true, false] {
            let n = rows * blocks;
            let bytes = if random {
                (0..n * format.block_bytes()).map(|_| source.below(256) as u8).collect()
            } else {
                ordinary(&mut source, format, n)?
            };
            let cols = blocks * unit;
            let what = |e: String| format!("{rows} x {cols}: {e}");
            let mut want = vec![T::from_f32(0.0); rows * cols];
            let w = QuantRef::new(&bytes, format, rows, cols).map_err(text)?;
            scalar::<T>()?.dequant(w, &mut want).map_err(text)?;
            let on_w = gpu.put(&bytes)?;
            let w = QuantView::new(&on_w, format, rows, cols).map_err(text)?;
            let mut y = gpu.room::<T>(rows * cols)?;
            gpu.ops.dequant(&gpu.stream, w, &mut y).map_err(text)?;
            same(&gpu.get(&y)?, &want).map_err(what)?;

            let ids = [rows.saturating_sub(1) as u32, 0, rows as u32, u32::MAX, 0];
            let on_ids = gpu.put(&ids)?;
            let mut y = gpu.room::<T>(ids.len() * cols)?;
            gpu.ops.embed_quant(&gpu.stream, w, on_ids.view(), &mut y).map_err(text)?;
            let nan = vec![T::from_f32(f32::NAN); cols];
            let row = |&id: &u32| want.chunks(cols).nth(id as usize).unwrap_or(&nan).to_vec();
            same(&gpu.get(&y)?, &ids.iter().flat_map(row).collect::<Vec<_>>()).map_err(what)?;
        }
    }
    Ok(())
}

/// Weights, taken apart: `code * scale` and offset of each; or as they are, where codes are no integers.
struct Weights {
    scaled: Vec<f64>,
    offsets: Vec<f64>,
}

impl Weights {
    fn new(w: QuantRef<'_>) -> Result<Self, String> {
        let (n, group) = (w.rows() * w.cols(), w.format().group_len());
        if w.format().is_float() {
            let mut numbers = vec![0f32; n];
            scalar()?.dequant(w, &mut numbers).map_err(text)?;
            return Ok(Self { scaled: numbers.into_iter().map(f64::from).collect(), offsets: vec![0.0; n] });
        }
        let (mut codes, mut scales, mut offsets) = (vec![0; n], vec![0.0; n / group], vec![0.0; n / group]);
        scalar::<f32>()?.unpack(w, &mut codes, &mut scales, &mut offsets).map_err(text)?;
        Ok(Self {
            scaled: (0..n).map(|i| f64::from(codes[i]) * f64::from(scales[i / group])).collect(),
            offsets: (0..n).map(|i| offsets[i / group].into()).collect(),
        })
    }
}

/// Activations as integers times scales, in f64 without another rounding.
fn rounded(x: &[f32]) -> Vec<f64> {
    let group = |x: &[f32]| {
        let top = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let q = |x: f32| if top > 0.0 { (x / top * 127.0).round_ties_even() } else { 0.0 };
        x.iter().map(|&x| f64::from(q(x)) * f64::from(top / 127.0)).collect::<Vec<_>>()
    };
    x.chunks(32).flat_map(group).collect()
}

/// Whether tensor cores multiply several vectors of integers.
fn tiles() -> bool {
    let capability = super::context().device().capability();
    capability >= Capability(80) && !capability.is_gfx()
}

/// Products with one to eight vectors, and with those of several blocks.
fn qgemv<T: Float>(format: QuantFormat, precision: Precision) -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source(format.name());
    let unit = format.block_len();
    for (rows, blocks) in [(1, 1), (3, 1024 / unit), (19, 1024 / unit + 1), (5, 5 * 1024 / unit + 3), (0, 1)]
    {
        let cols = blocks * unit;
        let bytes = ordinary(&mut source, format, rows * blocks)?;
        let w = QuantRef::new(&bytes, format, rows, cols).map_err(text)?;
        let weights = Weights::new(w)?;
        let on_w = gpu.put(&bytes)?;
        let w = QuantView::new(&on_w, format, rows, cols).map_err(text)?;
        let mut room = Activations::new(gpu.ops.context(), precision, 19, cols).map_err(text)?;
        let mut alone = Activations::new(gpu.ops.context(), precision, 2, cols).map_err(text)?;
        for batch in (1..=8).chain((rows == 3).then_some(19)) {
            let mut x: Vec<T> = source.normals(batch * cols);
            x[..32.min(cols)].fill(T::from_f32(0.0));
            let on_x = gpu.put(&x)?;
            gpu.ops.prepare(&gpu.stream, &on_x, cols, &mut room).map_err(text)?;
            let mut y = gpu.room::<T>(batch * rows)?;
            gpu.ops.qgemv(&gpu.stream, w, &room, &mut y).map_err(text)?;
            let all = gpu.get(&y)?;
            // Each vector has the bits that it has in the smallest batch of the same kernel, or of another one that sums in the same order.
            if precision == Precision::Integer {
                let few = if tiles() { batch.min(2) } else { 1 };
                for first in 0..=batch - few {
                    let some = on_x.range(first * cols..(first + few) * cols).map_err(text)?;
                    gpu.ops.prepare(&gpu.stream, some, cols, &mut alone).map_err(text)?;
                    let mut y = gpu.room::<T>(few * rows)?;
                    gpu.ops.qgemv(&gpu.stream, w, &alone, &mut y).map_err(text)?;
                    same(&gpu.get(&y)?, &all[first * rows..(first + few) * rows])
                        .map_err(|e| format!("{rows} x {cols} x {batch}, {few} vectors from {first}: {e}"))?;
                }
            }
            let x: Vec<f32> = x.iter().map(|x| x.to_f32()).collect();
            let x = match precision {
                Precision::Integer => rounded(&x),
                _ => x.iter().map(|&x| x.into()).collect(),
            };
            let (mut want, mut error) = (Vec::new(), Vec::new());
            for x in x.chunks(cols) {
                for r in 0..rows {
                    let terms = (0..cols)
                        .map(|c| (weights.scaled[r * cols + c], weights.offsets[r * cols + c], x[c]));
                    want.push(terms.clone().map(|(s, o, x)| (s + o) * x).sum::<f64>());
                    let magnitude: f64 = terms.map(|(s, o, x)| (s.abs() + o.abs()) * x.abs()).sum();
                    // A lane's sums over 32 columns and over pieces, then those of lanes.
                    error.push(magnitude * (48 + cols / 1024) as f64 * 2f64.powi(-24));
                }
            }
            compare(&all, &want, |i| error[i]).map_err(|e| format!("{rows} x {cols} x {batch}: {e}"))?;
        }
    }
    Ok(())
}

/// Floating point has no products with integers.
fn refused(format: QuantFormat) -> Outcome {
    let gpu = Gpu::new()?;
    let cols = format.block_len();
    let on_w = gpu.put(&vec![0u8; format.block_bytes()])?;
    let w = QuantView::new(&on_w, format, 1, cols).map_err(text)?;
    let mut room = Activations::new(gpu.ops.context(), Precision::Integer, 1, cols).map_err(text)?;
    gpu.ops.prepare(&gpu.stream, &gpu.put(&vec![0f32; cols])?, cols, &mut room).map_err(text)?;
    match gpu.ops.qgemv(&gpu.stream, w, &room, &mut gpu.room::<f32>(1)?) {
        Err(CudaError::Kernel(KernelError::BadParameter { arg: "activations", .. })) => Ok(()),
        other => Err(format!("{other:?} instead of an error")),
    }
}

/// Products of integers, which have kernels of their own where tensor cores multiply these.
pub fn integer_trials(trials: &mut Trials) {
    for format in formats().filter(|format| !format.is_float()) {
        trials.push(trial(format!("qgemv_q8_{format}"), move || qgemv::<f32>(format, Precision::Integer)));
        trials.push(trial(format!("qgemv_q8_f16_{format}"), move || {
            qgemv::<gllm_kernels_std::core::f16>(format, Precision::Integer)
        }));
    }
}

pub fn trials(trials: &mut Trials) {
    use gllm_kernels_std::core::{bf16, f16};
    for format in formats().filter(|format| format.is_float()) {
        trials.push(trial(format!("qgemv_q8_{format}_is_refused"), move || refused(format)));
    }
    for format in formats() {
        let mut add = |name: &str, check: fn(QuantFormat) -> Outcome| {
            trials.push(trial(format!("{name}_{format}"), move || check(format)));
        };
        add("dequant_f32", dequant::<f32>);
        add("dequant_f16", dequant::<f16>);
        add("dequant_bf16", dequant::<bf16>);
        add("qgemv_f32", |f| qgemv::<f32>(f, Precision::Exact));
        add("qgemv_f32_bf16", |f| qgemv::<bf16>(f, Precision::Exact));
    }
}
