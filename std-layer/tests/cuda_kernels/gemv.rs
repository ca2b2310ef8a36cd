//! Dense weights times few vectors.

use gllm_kernels_std::core::f16;
use gllm_kernels_std::cuda::Float;

use super::{compare, source, text, trial, Gpu, Outcome, Trials};

fn check<T: Float>() -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("gemv");
    // Every width of kernel and what lies between; fewer columns than a warp takes, several times as many, with a rest; rows of
    // several blocks, with a rest; vectors of several blocks, with a rest.
    for (m, n, k) in
        [(1, 1, 8), (1, 37, 512), (2, 9, 264), (3, 33, 1032), (5, 20, 72), (8, 67, 2048), (19, 21, 136)]
    {
        let (w, x): (Vec<T>, Vec<f32>) = (source.normals(n * k), source.normals(m * k));
        let (on_w, on_x) = (gpu.put(&w)?, gpu.put(&x)?);
        let (mut want, mut error) = (Vec::new(), Vec::new());
        for x in x.chunks(k) {
            for w in w.chunks(k) {
                let terms = || x.iter().zip(w).map(|(&x, w)| f64::from(x) * f64::from(w.to_f32()));
                want.push(terms().sum());
                error.push(terms().map(f64::abs).sum::<f64>() * (k / 128 + 16) as f64 * 2f64.powi(-24));
            }
        }
        let mut y = gpu.room::<f32>(m * n)?;
        gpu.ops.gemv(&gpu.stream, (n, k), &on_w, on_x.view(), &mut y).map_err(text)?;
        let all = gpu.get(&y)?;
        compare(&all, &want, |i| error[i]).map_err(|e| format!("{m} x {n} x {k}: {e}"))?;
        let mut narrow = gpu.room::<T>(m * n)?;
        gpu.ops.gemv(&gpu.stream, (n, k), &on_w, on_x.view(), &mut narrow).map_err(text)?;
        compare(&gpu.get(&narrow)?, &want, |i| error[i]).map_err(|e| format!("{m} x {n} x {k}: {e}"))?;
        // Each vector has the bits that it has alone.
        for (row, all) in all.chunks(n).enumerate() {
            let one = on_x.range(row * k..(row + 1) * k).map_err(text)?;
            let mut y = gpu.room::<f32>(n)?;
            gpu.ops.gemv(&gpu.stream, (n, k), &on_w, one, &mut y).map_err(text)?;
            if gpu.get(&y)?.iter().zip(all).any(|(a, b)| a.to_bits() != b.to_bits()) {
                return Err(format!("{m} x {n} x {k}: vector {row} depends on the others"));
            }
        }
    }
    Ok(())
}

fn refusals() -> Outcome {
    let gpu = Gpu::new()?;
    let (w, x) = (gpu.put(&[f16::ONE; 80])?, gpu.put(&[1.0f32; 80])?);
    let mut y = gpu.room::<f32>(90)?;
    let mut run = |n: usize, k: usize, from: usize, x_len: usize, y_len: usize| {
        let (x, y) = (x.range(from..from + x_len)?, y.range_mut(0..y_len)?);
        gpu.ops.gemv(&gpu.stream, (n, k), &w, x, y)
    };
    let results = [
        (run(20, 4, 0, 4, 20), "blocks of 8"),
        (run(10, 8, 0, 15, 90), "`x` has length 15"),
        (run(9, 8, 0, 8, 9), "`w`"),
        (run(10, 8, 0, 8, 9), "`y`"),
        (run(10, 8, 1, 8, 10), "`x` must start"),
    ];
    for (i, (result, part)) in results.into_iter().enumerate() {
        match result {
            Err(e) if e.to_string().contains(part) => {}
            other => return Err(format!("case {i}: {other:?} instead of {part}")),
        }
    }
    Ok(())
}

pub fn trials(trials: &mut Trials) {
    super::each_type!(trials, "gemv", check());
    trials.push(trial("gemv_refusals", refusals));
}
