//! Row by row.

use gllm_kernels_std::core::{RopePairing, RopeShape, Softmax};
use gllm_kernels_std::cuda::{Float, Norm};

use super::{compare, each_type, source, text, Gpu, Outcome, Trials};

/// Columns: fewer than a pack, not whole packs, one warp, many threads, more than shared memory keeps.
const COLS: [usize; 8] = [1, 3, 8, 33, 256, 1000, 4096, 26_000];

fn wide<T: Float>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.to_f32().into()).collect()
}

fn norm<T: Float>(centred: bool) -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("norm");
    for cols in COLS {
        for (rows, weighted, mean) in [(1, true, 0.0), (3, false, 0.0), (2, true, 40.0)] {
            let x: Vec<T> = source.uniform(rows * cols, mean - 2.0, mean + 2.0);
            let (w, b): (Vec<T>, Vec<T>) = (source.normals(cols), source.normals(cols));
            let (on_x, on_w, on_b) = (gpu.put(&x)?, gpu.put(&w)?, gpu.put(&b)?);
            let mut y = gpu.room::<T>(rows * cols)?;
            let eps = 1e-3;
            let norm = Norm {
                weight: weighted.then(|| on_w.view()),
                bias: (weighted && centred).then(|| on_b.view()),
                eps,
            };
            if centred {
                gpu.ops.layer_norm(&gpu.stream, cols, norm, &on_x, &mut y).map_err(text)?;
            } else {
                gpu.ops.rms_norm(&gpu.stream, cols, norm, &on_x, &mut y).map_err(text)?;
            }
            let (w, b) = (wide(&w), wide(&b));
            let (mut want, mut error) = (Vec::new(), Vec::new());
            for row in wide(&x).chunks(cols) {
                let n = cols as f64;
                let mean = if centred { row.iter().sum::<f64>() / n } else { 0.0 };
                let square = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
                let most = row.iter().fold(0.0f64, |m, x| m.max(x.abs()));
                let r = 1.0 / (square + f64::from(eps)).sqrt();
                for (i, x) in row.iter().enumerate() {
                    let (w, b) = if weighted { (w[i], if centred { b[i] } else { 0.0 }) } else { (1.0, 0.0) };
                    want.push((x - mean) * r * w + b);
                    // Sums of up to 100 terms a thread; the mean is off by the rounding of the largest.
                    error.push(
                        ((x - mean).abs() * 1e-5 + if centred { most * 3e-7 } else { 0.0 }) * r * w.abs()
                            + b.abs() * 1e-7,
                    );
                }
            }
            compare(&gpu.get(&y)?, &want, |i| error[i]).map_err(|e| format!("{rows} x {cols}: {e}"))?;
        }
    }
    Ok(())
}

fn softmax<T: Float>() -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("softmax");
    for cols in COLS {
        for valid in [None, Some(cols / 2), Some(0), Some(cols)] {
            let softmax = Softmax { scale: 0.7, valid };
            let rows = 5;
            let mut x: Vec<T> = source.uniform(rows * cols, -20.0, 20.0);
            let n = valid.unwrap_or(cols);
            // Row 1 is masked entirely, 2 in part, 3 has a NaN, 4 an infinity.
            x[cols..2 * cols].fill(T::from_f32(f32::NEG_INFINITY));
            x[2 * cols] = T::from_f32(f32::NEG_INFINITY);
            x[3 * cols + n / 2] = T::from_f32(f32::NAN);
            x[4 * cols + n.saturating_sub(1)] = T::from_f32(f32::INFINITY);
            let on_x = gpu.put(&x)?;
            let mut y = gpu.room::<T>(rows * cols)?;
            gpu.ops.softmax(&gpu.stream, cols, softmax, &on_x, &mut y).map_err(text)?;
            let mut want = Vec::new();
            for row in wide(&x).chunks(cols) {
                let top = row[..n].iter().copied().fold(f64::MIN, f64::max);
                let bad = row[..n].iter().any(|x| x.is_nan() || *x == f64::INFINITY);
                let exp = |x: f64| (f64::from(softmax.scale) * (x - top)).exp();
                let sum: f64 = row[..n].iter().map(|&x| exp(x)).sum();
                let of = |x: f64| {
                    if bad {
                        f64::NAN
                    } else if sum > 0.0 {
                        exp(x) / sum
                    } else {
                        0.0
                    }
                };
                want.extend((0..cols).map(|i| if i < n { of(row[i]) } else { 0.0 }));
            }
            // The argument is at most 28 * log2(e).
            let near = |i: usize| want[i].abs() * 2e-5 + 1e-37;
            compare(&gpu.get(&y)?, &want, near).map_err(|e| format!("{cols}, {valid:?}: {e}"))?;
        }
    }
    Ok(())
}

fn rope<T: Float>() -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("rope");
    for pairing in [RopePairing::Adjacent, RopePairing::HalfSplit] {
        for (heads, head_dim, rot_dim) in [(1, 2, 2), (3, 64, 64), (2, 80, 20), (5, 6, 0), (40, 128, 128)] {
            for tokens in [0, 1, 7] {
                let shape = RopeShape { heads, head_dim, rot_dim, pairing };
                let half = rot_dim / 2;
                let rows = 9;
                let x: Vec<T> = source.normals(tokens * heads * head_dim);
                let (cos, sin): (Vec<f32>, Vec<f32>) =
                    (source.normals(rows * half), source.normals(rows * half));
                let mut positions: Vec<u32> = (0..tokens).map(|_| source.below(rows) as u32).collect();
                if tokens > 3 && half > 0 {
                    positions[2] = 9; // does not exist
                }
                let (on_x, on_cos, on_sin, on_p) =
                    (gpu.put(&x)?, gpu.put(&cos)?, gpu.put(&sin)?, gpu.put(&positions)?);
                for explicit in [false, true] {
                    let mut y = gpu.room::<T>(x.len())?;
                    let given = explicit.then(|| on_p.view());
                    let angles = (on_cos.view(), on_sin.view());
                    gpu.ops.rope(&gpu.stream, shape, angles, given, &on_x, &mut y).map_err(text)?;
                    let mut want = wide(&x);
                    for (t, token) in want.chunks_mut((heads * head_dim).max(1)).enumerate() {
                        let row = if explicit { positions[t] as usize } else { t };
                        for head in token.chunks_mut(head_dim) {
                            for k in 0..half {
                                let (p, q) = match pairing {
                                    RopePairing::Adjacent => (2 * k, 2 * k + 1),
                                    RopePairing::HalfSplit => (k, k + half),
                                };
                                let at =
                                    |table: &[f32]| table.get(row * half + k).map_or(f64::NAN, |&x| x.into());
                                let (c, s, a, b) = (at(&cos), at(&sin), head[p], head[q]);
                                (head[p], head[q]) = (a * c - b * s, a * s + b * c);
                            }
                        }
                    }
                    // Two products of at most 36.
                    compare(&gpu.get(&y)?, &want, |_| 36.0 * 1.2e-7)
                        .map_err(|e| format!("{shape:?}, {tokens}: {e}"))?;
                }
            }
        }
    }
    Ok(())
}

fn embed<T: Float>() -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("embed");
    for cols in [1, 7, 64, 1000] {
        let table: Vec<T> = source.normals(10 * cols);
        let ids = [3, 0, 9, 10, 3, u32::MAX];
        let (on_table, on_ids) = (gpu.put(&table)?, gpu.put(&ids)?);
        let mut y = gpu.room::<T>(ids.len() * cols)?;
        gpu.ops.embed(&gpu.stream, (&on_table, cols), on_ids.view(), &mut y).map_err(text)?;
        let table = wide(&table);
        let row = |id: u32| (0..cols).map(move |c| (id as usize, c));
        let want: Vec<f64> = ids
            .iter()
            .flat_map(|&id| row(id))
            .map(|(r, c)| if r < 10 { table[r * cols + c] } else { f64::NAN })
            .collect();
        compare(&gpu.get(&y)?, &want, |_| 0.0).map_err(|e| format!("{cols}: {e}"))?;
    }
    Ok(())
}

pub fn trials(trials: &mut Trials) {
    each_type!(trials, "rms_norm", norm(false));
    each_type!(trials, "layer_norm", norm(true));
    each_type!(trials, "softmax", softmax());
    each_type!(trials, "rope", rope());
    each_type!(trials, "embed", embed());
}
