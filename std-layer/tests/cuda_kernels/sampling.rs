//! Choosing tokens.

use gllm_kernels_std::cuda::{Float, SamplingRoom};
use gllm_kernels_std::model::{self, Sampling};

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

fn sample<T: Float>() -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("sample");
    let plain = Sampling::default();
    let ways = [
        plain.clone(),
        Sampling::greedy(),
        Sampling { temperature: 0.5, top_k: 1, ..plain.clone() },
        Sampling { temperature: 0.8, top_k: 40, ..plain.clone() },
        Sampling { top_p: 0.9, ..plain.clone() },
        Sampling { top_p: 0.3, top_k: 20, min_p: 0.05, temperature: 1.3, ..plain.clone() },
        Sampling { min_p: 0.2, ..plain.clone() },
        Sampling { repetition: 1.3, temperature: 0.7, top_p: 0.95, top_k: 100_000, ..plain.clone() },
        Sampling { temperature: 1e-3, ..plain.clone() },
        Sampling { frequency: 0.7, presence: -0.4, repetition: 0.8, top_p: 0.8, ..plain.clone() },
        Sampling { frequency: 2.5, last_n: 3, ..Sampling::greedy() },
        Sampling { logit_bias: vec![(0, 3.5), (0, -0.25)], top_k: 5, ..plain.clone() },
        Sampling { logit_bias: vec![(0, f32::INFINITY)], presence: 1.0, ..plain },
    ];
    for n in VOCABULARIES {
        for (number, way) in ways.iter().enumerate() {
            let rows = 5;
            let way = Sampling { seed: 0x1234_5678_9abc + number as u64, ..way.clone() };
            let mut x: Vec<T> = source.uniform(rows * n, -6.0, 6.0);
            // Ties, and numbers that are none.
            x[n..2 * n].iter_mut().for_each(|x| *x = T::from_f32(x.to_f32().round()));
            x[2 * n..3 * n].iter_mut().step_by(3).for_each(|x| *x = T::from_f32(f32::NAN));
            let history: Vec<u32> = (0..rows * 9).map(|_| source.below((n + 2).min(12)) as u32).collect();
            let counters: Vec<u64> = (0..rows).map(|_| source.below(1 << 40) as u64).collect();
            let (on_x, on_history, on_counters) = (gpu.put(&x)?, gpu.put(&history)?, gpu.put(&counters)?);
            let mut room = SamplingRoom::new(gpu.ops.context(), rows, n).map_err(text)?;
            room.set_bias(&gpu.stream, &way.logit_bias).map_err(text)?;
            let mut tokens = gpu.put(&[u32::MAX; 5])?;
            let given = (Some(on_history.view()), on_counters.view());
            gpu.ops.sample(&gpu.stream, &way, &on_x, given, (&mut room, &mut tokens)).map_err(text)?;
            let got = tokens.to_vec(&gpu.stream).map_err(text)?;
            let choose = |r: usize| {
                let mut scores: Vec<f32> = x[r * n..(r + 1) * n].iter().map(|x| x.to_f32()).collect();
                let history = &history[r * 9..(r + 1) * 9];
                model::sample(&mut scores, history, counters[r], r as u32, &way).map_err(|e| e.to_string())
            };
            let want: Vec<u32> = (0..rows).map(choose).collect::<Result<_, _>>()?;
            if got != want {
                return Err(format!("{n}, way {number}: {got:?} instead of {want:?}"));
            }
        }
    }
    Ok(())
}

pub fn trials(trials: &mut Trials) {
    each_type!(trials, "argmax", argmax());
    each_type!(trials, "sample", sample());
}
