//! Matrix products.

use gllm_kernels_std::core::{bf16, f16, ElementType, IsaLevel, Kernels, QuantFormat, QuantRef};
use gllm_kernels_std::cuda::{Buffer, Float, QuantView, Split};
use gllm_testkit::data::Source;

use super::{compare, quant, source, text, trial, Gpu, Outcome, Trials};

/// `Y`, and bounds: products of 16 bits are exact, sums are in f32, whose lowest bits tensor cores cut off. In f32 each product is rounded with its sum.
pub fn want<T: Float>(x: &[T], w: &[T], n: usize, k: usize) -> (Vec<f64>, Vec<f64>) {
    let wide = |x: &[T]| x.iter().map(|x| f64::from(x.to_f32())).collect::<Vec<_>>();
    let roundings = if T::TYPE == ElementType::F32 { k / 2 + 1 } else { k / 16 + 8 };
    let (x, w) = (wide(x), wide(w));
    let (mut y, mut error) = (Vec::new(), Vec::new());
    for x in x.chunks(k) {
        for w in w.chunks(k).take(n) {
            y.push(x.iter().zip(w).map(|(a, b)| a * b).sum());
            let magnitude: f64 = x.iter().zip(w).map(|(a, b)| (a * b).abs()).sum();
            error.push(magnitude * roundings as f64 * 2f64.powi(-23));
        }
    }
    (y, error)
}

fn dense<T: Float, U: Float>() -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("gemm");
    // Within a tile, one beyond it, several, wide ones; depths of less than a piece, of some, with a rest.
    for (m, n, k) in [
        (1, 1, 8),
        (3, 64, 64),
        (129, 65, 72),
        (258, 128, 136),
        (0, 5, 8),
        (5, 0, 8),
        (17, 130, 256),
        (5, 257, 8),
        (130, 300, 72),
        (256, 383, 456),
    ] {
        let (x, w): (Vec<T>, Vec<T>) = (source.normals(m * k), source.normals(n * k));
        let (on_x, on_w) = (gpu.put(&x)?, gpu.put(&w)?);
        let mut y = gpu.room::<U>(m * n)?;
        gpu.ops.gemm(&gpu.stream, (n, k), &on_w, &on_x, &mut y).map_err(text)?;
        let (want, error) = want(&x, &w, n, k);
        compare(&gpu.get(&y)?, &want, |i| error[i]).map_err(|e| format!("{m} x {n} x {k}: {e}"))?;
    }
    Ok(())
}

/// Weights in blocks as numbers, rows of X, and both on the GPU.
type Operands<T> = (Vec<T>, Vec<T>, Buffer<u8>, Buffer<T>);
fn operands<T: Float>(
    gpu: &Gpu,
    source: &mut Source,
    format: QuantFormat,
    (m, n, k): (usize, usize, usize),
) -> Result<Operands<T>, String> {
    let bytes = quant::ordinary(source, format, n * k / format.block_len())?;
    let w = QuantRef::new(&bytes, format, n, k).map_err(text)?;
    let mut decoded = vec![T::from_f32(0.0); n * k];
    Kernels::<T>::forced(IsaLevel::Scalar).and_then(|s| s.dequant(w, &mut decoded)).map_err(text)?;
    let x: Vec<T> = source.normals(m * k);
    let (on_w, on_x) = (gpu.put(&bytes)?, gpu.put(&x)?);
    Ok((decoded, x, on_w, on_x))
}

fn quantised<T: Float, U: Float>(format: QuantFormat) -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source(format.name());
    let unit = format.block_len();
    let several = 96usize.div_ceil(unit);
    // Within a step and a tile, beyond them; several pieces and a rest, and blocks that start anywhere.
    for (m, n, blocks) in [(5, 70, 1), (130, 3, several), (130, 257, several), (70, 5, (1280 + unit) / unit)]
    {
        let k = blocks * unit;
        let (decoded, x, on_w, on_x) = operands::<T>(&gpu, &mut source, format, (m, n, k))?;
        let w = QuantView::new(&on_w, format, n, k).map_err(text)?;
        let mut y = gpu.room::<U>(m * n)?;
        gpu.ops.qgemm(&gpu.stream, w, &on_x, &mut y).map_err(text)?;
        let (want, error) = want(&x, &decoded, n, k);
        compare(&gpu.get(&y)?, &want, |i| error[i]).map_err(|e| format!("{m} x {n} x {k}: {e}"))?;
    }
    Ok(())
}

/// Products in parts of their columns, and whole.
fn dense_split<T: Float, U: Float>() -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("gemm_split");
    // Within a tile, beyond it, of many rows; parts of a piece each, of some, more than there are pieces; with several rows and columns behind the last ones.
    for (m, n, k, parts) in [
        (9, 20, 8, 1),
        (33, 130, 136, 1),
        (64, 129, 1160, 1),
        (32, 129, 600, 3),
        (17, 65, 72, 3),
        (40, 3, 40, 5),
        (0, 5, 64, 2),
        (65, 130, 200, 2),
        (129, 70, 72, 3),
    ] {
        let (x, w): (Vec<T>, Vec<T>) = (source.normals(m * k), source.normals(n * k));
        let (on_x, on_w) = (gpu.put(&x)?, gpu.put(&w)?);
        let (mut y, mut room) = (gpu.room::<U>(m * n)?, gpu.room::<f32>(parts * m * n)?);
        let split = Split { parts, room: room.view_mut() };
        gpu.ops.gemm_split(&gpu.stream, (n, k), &on_w, &on_x, (split, &mut y)).map_err(text)?;
        let (want, error) = want(&x, &w, n, k);
        compare(&gpu.get(&y)?, &want, |i| error[i]).map_err(|e| format!("{m} x {n} x {k}: {e}"))?;
    }
    Ok(())
}

fn quantised_few(format: QuantFormat) -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source(format.name());
    let unit = format.block_len();
    // Of a piece a part, of which one has nothing; several pieces and a rest, and blocks that start anywhere.
    for (m, n, blocks, parts) in
        [(34, 37, 128usize.div_ceil(unit), 2), (9, 130, (1280 + unit) / unit, 2), (64, 20, 3, 1)]
    {
        let k = blocks * unit;
        let (decoded, x, on_w, on_x) = operands::<bf16>(&gpu, &mut source, format, (m, n, k))?;
        let w = QuantView::new(&on_w, format, n, k).map_err(text)?;
        let (mut y, mut room) = (gpu.room::<f32>(m * n)?, gpu.room::<f32>(parts * m * n)?);
        let split = Split { parts, room: room.view_mut() };
        gpu.ops.qgemm_split(&gpu.stream, w, &on_x, (split, &mut y)).map_err(text)?;
        let (want, error) = want(&x, &decoded, n, k);
        compare(&gpu.get(&y)?, &want, |i| error[i]).map_err(|e| format!("{m} x {n} x {k}: {e}"))?;
    }
    Ok(())
}

fn refusals() -> Outcome {
    let gpu = Gpu::new()?;
    let (x, w) = (gpu.put(&[f16::ONE; 200])?, gpu.put(&[f16::ONE; 80])?);
    let mut y = gpu.room::<f32>(200)?;
    let (wide, bytes) = (gpu.put(&[1.0f32; 200])?, gpu.put(&[0u8; 18])?);
    let blocks = QuantView::new(&bytes, QuantFormat::Q4_0, 1, 32).map_err(text)?;
    let shifted = x.range(1..81).map_err(text)?;
    let (mut room, mut again) = (gpu.room::<f32>(399)?, gpu.room::<f32>(200)?);
    let none = Split { parts: 0, room: room.range_mut(0..0).map_err(text)? };
    let none =
        gpu.ops.gemm_split(&gpu.stream, (10, 8), &w, x.range(0..160).map_err(text)?, (none, &mut again));
    let small = Split { parts: 2, room: room.view_mut() };
    let small =
        gpu.ops.gemm_split(&gpu.stream, (10, 8), &w, x.range(0..160).map_err(text)?, (small, &mut again));
    let results = [
        (none, "parts"),
        (small, "`room`"),
        (gpu.ops.gemm(&gpu.stream, (10, 8), &w, &x, &mut y), "`y`"),
        (gpu.ops.gemm(&gpu.stream, (9, 8), &w, &x, &mut y), "`w`"),
        (gpu.ops.gemm(&gpu.stream, (8, 10), &w, &x, &mut y), "multiple"),
        (gpu.ops.qgemm(&gpu.stream, blocks, &wide, &mut y), "f16 or bf16"),
        (
            gpu.ops.gemm(&gpu.stream, (20, 8), x.range(0..160).map_err(text)?, shifted, &mut y),
            "`x` must start",
        ),
    ];
    for (i, (result, part)) in results.into_iter().enumerate() {
        match result {
            Err(e) if e.to_string().contains(part) => {}
            other => return Err(format!("case {i}: {other:?} instead of {part}")),
        }
    }
    Ok(())
}

/// Those of products alone, whatever the weights are.
pub fn dense_trials(trials: &mut Trials) {
    trials.push(trial("gemm_f32", dense::<f32, f32>));
    trials.push(trial("gemm_f16", dense::<f16, f32>));
    trials.push(trial("gemm_bf16", dense::<bf16, bf16>));
    trials.push(trial("gemm_split_f32", dense_split::<f32, f32>));
    trials.push(trial("gemm_split_f16", dense_split::<f16, f16>));
    trials.push(trial("gemm_split_bf16", dense_split::<bf16, f32>));
}

/// Those with weights in blocks and rows in bf16.
pub fn block_trials(trials: &mut Trials) {
    for format in quant::formats() {
        trials.push(trial(format!("qgemm_few_{format}"), move || quantised_few(format)));
        trials.push(trial(format!("qgemm_bf16_{format}"), move || quantised::<bf16, f32>(format)));
    }
}

pub fn trials(trials: &mut Trials) {
    dense_trials(trials);
    block_trials(trials);
    trials.push(trial("gemm_refusals", refusals));
    for format in quant::formats() {
        trials.push(trial(format!("qgemm_f16_{format}"), move || quantised::<f16, f16>(format)));
    }
}
