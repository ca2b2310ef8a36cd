//! Choosing tokens.

use gllm_kernels_std::cuda::{Float, Sampling, SamplingRoom};

use super::{each_type, source, text, Gpu, Outcome, Trials};

const VOCABULARIES: [usize; 5] = [1, 31, 1024, 1025, 5000];

fn argmax<T: Float>() -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("argmax");
    for n in VOCABULARIES {
        let rows = 4;
        let mut x: Vec<T> = source.normals(rows * n);
        x[n..2 * n].fill(T::from_f32(f32::NEG_INFINITY));
        x[2 * n + n / 2] = T::from_f32(f32::NAN);
        x[3 * n + n / 3] = T::from_f32(100.0);
        x[3 * n + n - 1] = T::from_f32(100.0);
        let on_x = gpu.put(&x)?;
        let mut tokens = gpu.put(&[u32::MAX; 4])?;
        gpu.ops.argmax(&gpu.stream, &on_x, &mut tokens).map_err(text)?;
        let largest = |row: &[T]| {
            let best =
                row.iter().map(|x| x.to_f32()).filter(|x| !x.is_nan()).fold(f32::NEG_INFINITY, f32::max);
            row.iter().position(|x| x.to_f32() == best).unwrap_or(0) as u32
        };
        let want: Vec<u32> = x.chunks(n).map(largest).collect();
        let got = tokens.to_vec(&gpu.stream).map_err(text)?;
        if got != want {
            return Err(format!("{n}: {got:?} instead of {want:?}"));
        }
    }
    Ok(())
}

/// The first word of Philox 4x32-10.
fn philox(counter: u64, stream: u64, key: u64) -> u32 {
    let mut c = [counter as u32, (counter >> 32) as u32, stream as u32, (stream >> 32) as u32];
    let mut k = [key as u32, (key >> 32) as u32];
    for _ in 0..10 {
        let (a, b) = (0xd251_1f53 * u64::from(c[0]), 0xcd9e_8d57 * u64::from(c[2]));
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(0x9e37_79b9), k[1].wrapping_add(0xbb67_ae85)];
    }
    c[0]
}

/// `Err` unless a token is the one that `random` in 0 to 1 falls on, up to rounding.
fn judge(scores: &[f32], history: &[u32], s: &Sampling, random: f64, token: u32) -> Outcome {
    let mut x: Vec<f64> = scores.iter().map(|&x| x.into()).collect();
    for &t in history {
        if let Some(&score) = scores.get(t as usize) {
            x[t as usize] = f64::from(if score > 0.0 { score / s.repetition } else { score * s.repetition });
        }
    }
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|&a, &b| x[b].total_cmp(&x[a]).then(a.cmp(&b)));
    if s.temperature == 0.0 {
        return if token as usize == order[0] { Ok(()) } else { Err(format!("{token} is not the largest")) };
    }
    let weight = |i: usize| ((x[i] - x[order[0]]) / f64::from(s.temperature)).exp();
    // Where the borders of top-p and min-p are decided by rounding, either is right.
    let pass = |slack: f64| {
        let mut kept = vec![false; x.len()];
        let k = if s.top_k == 0 { x.len() } else { s.top_k.min(x.len()) };
        let last = x[order[k - 1]];
        let eligible: Vec<usize> = order.iter().copied().filter(|&i| x[i] >= last).collect();
        let goal = eligible.iter().map(|&i| weight(i)).sum::<f64>() * (f64::from(s.top_p) + slack);
        let (mut sum, mut border) = (0.0, f64::NEG_INFINITY);
        for &i in &eligible {
            if s.top_p < 1.0 && sum >= goal && x[i] < border {
                break;
            }
            sum += weight(i);
            border = x[i];
            kept[i] = weight(i) >= f64::from(s.min_p) - slack;
        }
        kept
    };
    for slack in [0.0, 1e-5, -1e-5] {
        let kept = pass(slack);
        let all: f64 = (0..x.len()).filter(|&i| kept[i]).map(weight).sum();
        let before: f64 = (0..token as usize).filter(|&i| kept[i]).map(weight).sum();
        let after = before + weight(token as usize);
        let near = 2e-5 * all;
        if kept[token as usize] && before - near <= random * all && random * all <= after + near {
            return Ok(());
        }
    }
    Err(format!("{token} (of weight {}) for {random}", weight(token as usize)))
}

fn sample<T: Float>() -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("sample");
    // Known answer of the generator (Random123: counter and key of zeros).
    assert_eq!(philox(0, 0, 0), 0x6627_e8d5);
    let plain = Sampling::default();
    let ways = [
        plain,
        Sampling { temperature: 0.0, ..plain },
        Sampling { temperature: 0.5, top_k: 1, ..plain },
        Sampling { temperature: 0.8, top_k: 40, ..plain },
        Sampling { top_p: 0.9, ..plain },
        Sampling { top_p: 0.3, top_k: 20, min_p: 0.05, temperature: 1.3, ..plain },
        Sampling { min_p: 0.2, ..plain },
        Sampling { repetition: 1.3, temperature: 0.7, top_p: 0.95, top_k: 100_000, ..plain },
        Sampling { temperature: 1e-3, ..plain },
    ];
    for n in VOCABULARIES {
        for (number, way) in ways.into_iter().enumerate() {
            let rows = 5;
            let way = Sampling { seed: 0x1234_5678_9abc + number as u64, ..way };
            let x: Vec<T> = source.uniform(rows * n, -6.0, 6.0);
            let history: Vec<u32> = (0..rows * 9).map(|_| source.below(n + 2) as u32).collect();
            let counters: Vec<u64> = (0..rows).map(|_| source.below(1 << 40) as u64).collect();
            let (on_x, on_history, on_counters) = (gpu.put(&x)?, gpu.put(&history)?, gpu.put(&counters)?);
            let mut room = SamplingRoom::new(gpu.ops.context(), rows, n).map_err(text)?;
            let mut draw = || {
                let mut tokens = gpu.put(&[u32::MAX; 5])?;
                let given = (Some(on_history.view()), on_counters.view());
                gpu.ops.sample(&gpu.stream, way, &on_x, given, (&mut room, &mut tokens)).map_err(text)?;
                tokens.to_vec(&gpu.stream).map_err(text)
            };
            let tokens = draw()?;
            if draw()? != tokens {
                return Err(format!("{n}, way {number}: another token for the same number"));
            }
            for (r, &token) in tokens.iter().enumerate() {
                let scores: Vec<f32> = x[r * n..(r + 1) * n].iter().map(|x| x.to_f32()).collect();
                let random = f64::from(philox(counters[r], r as u64, way.seed) >> 8) * 2f64.powi(-24);
                if token as usize >= n {
                    return Err(format!("{n}, way {number}: token {token}"));
                }
                judge(&scores, &history[r * 9..(r + 1) * 9], &way, random, token)
                    .map_err(|e| format!("{n}, way {number}, row {r}: {e}"))?;
            }
        }
    }
    Ok(())
}

pub fn trials(trials: &mut Trials) {
    each_type!(trials, "argmax", argmax());
    each_type!(trials, "sample", sample());
}
