//! Choosing tokens.

use gllm_kernels_std::cuda::{CudaError, Float, History, SamplingRoom, SamplingTable};
use gllm_kernels_std::model::{sample as definition, Sampling};

use super::{each_type, source, text, trial, Gpu, Outcome, Trials};

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

/// Ways of choosing: each parameter by itself, and together.
fn ways(n: usize) -> Vec<Sampling> {
    let plain = Sampling::default();
    let last = n as u32 - 1;
    let logit_bias = vec![(last, 0.3), (0, f32::NEG_INFINITY), (last / 2, 2.5), (last, 0.7), (0, -1.0)];
    vec![
        plain.clone(),
        Sampling::greedy(),
        Sampling { temperature: 0.5, top_k: 1, ..plain.clone() },
        Sampling { temperature: 0.8, top_k: 40, ..plain.clone() },
        Sampling { top_p: 0.9, ..plain.clone() },
        Sampling { top_p: 0.3, top_k: 20, min_p: 0.05, temperature: 1.3, ..plain.clone() },
        Sampling { min_p: 0.2, ..plain.clone() },
        Sampling { repetition: 1.3, temperature: 0.7, top_p: 0.95, top_k: usize::MAX, ..plain.clone() },
        Sampling { temperature: 1e-3, ..plain.clone() },
        Sampling { logit_bias: logit_bias.clone(), ..plain.clone() },
        Sampling { logit_bias, repetition: 1.7, frequency: 0.3, presence: -0.2, ..Sampling::greedy() },
        Sampling { frequency: 0.4, presence: 0.6, last_n: 5, ..plain.clone() },
        Sampling { frequency: -0.4, last_n: 0, ..plain.clone() },
        Sampling { repetition: 0.8, frequency: 0.1, last_n: 3, top_p: 0.99, top_k: 3, ..plain },
    ]
}

/// The tokens are those of the definition, whatever chance, parameters and history.
fn sample<T: Float>() -> Outcome {
    const ROOM: usize = 40;
    let gpu = Gpu::new()?;
    let mut source = source("sample");
    for n in VOCABULARIES {
        let mut all = ways(n);
        let rows = all.len();
        for round in 0..6 {
            let mut x: Vec<T> = source.uniform(rows * n, -6.0, 6.0);
            match round {
                // Many equal ones, and what is no number.
                4 => x.iter_mut().for_each(|x| *x = T::from_f32((x.to_f32() / 3.0).round())),
                5 => (0..x.len()).step_by(3).for_each(|i| {
                    x[i] = T::from_f32([f32::NAN, f32::NEG_INFINITY, f32::INFINITY][i % 7 % 3])
                }),
                _ => {}
            }
            for way in &mut all {
                way.seed = source.below(1 << 60) as u64;
            }
            // Few tokens, so that they come again, and some that do not exist.
            let history: Vec<u32> = (0..rows * ROOM).map(|_| source.below(n.min(20) + 2) as u32).collect();
            let lengths: Vec<u32> = (0..rows).map(|_| source.below(ROOM + 1) as u32).collect();
            let counters: Vec<u64> = (0..rows).map(|_| source.below(1 << 40) as u64).collect();
            let (on_x, on_history, on_counters) = (gpu.put(&x)?, gpu.put(&history)?, gpu.put(&counters)?);
            let on_lengths = gpu.put(&lengths)?;
            let mut room = SamplingRoom::new(gpu.ops.context(), rows, n).map_err(text)?;
            let table = SamplingTable::new(&gpu.stream, n, &all, 10).map_err(text)?;
            let mut tokens = gpu.put(&vec![u32::MAX; rows])?;
            let so_far = History { tokens: on_history.view(), lengths: on_lengths.view() };
            let given = (Some(so_far), on_counters.view());
            gpu.ops.sample(&gpu.stream, &table, &on_x, given, (&mut room, &mut tokens)).map_err(text)?;
            let got = tokens.to_vec(&gpu.stream).map_err(text)?;
            for (r, way) in all.iter().enumerate() {
                let mut scores: Vec<f32> = x[r * n..(r + 1) * n].iter().map(|x| x.to_f32()).collect();
                let before = &history[r * ROOM..r * ROOM + lengths[r] as usize];
                let want = definition(&mut scores, before, counters[r], r as u32, way).map_err(text)?;
                if got[r] != want {
                    return Err(format!("{n}, round {round}, {way:?}: {} instead of {want}", got[r]));
                }
            }
        }
    }
    Ok(())
}

/// What tables and launches refuse.
fn refused() -> Outcome {
    let gpu = Gpu::new()?;
    let plain = Sampling::default();
    let biased = |n: u32| Sampling { logit_bias: (0..n).map(|t| (t, 1.0)).collect(), ..plain.clone() };
    let new = |all: &[Sampling]| SamplingTable::new(&gpu.stream, 8, all, 3).map(|_| ());
    let wrong = |arg, need, got| Err(CudaError::WrongSize { arg, need, got });
    assert_eq!(new(&[biased(3), plain.clone()]), Ok(()));
    assert_eq!(new(&[biased(3), biased(1)]), wrong("biases", 4, 3));
    for bad in
        [biased(9), Sampling { top_p: 0.0, ..plain.clone() }, Sampling { temperature: -1.0, ..plain.clone() }]
    {
        assert!(matches!(new(&[plain.clone(), bad]), Err(CudaError::Kernel(_))));
    }
    let mut table = SamplingTable::new(&gpu.stream, 8, &[plain.clone(), plain.clone()], 0).map_err(text)?;
    assert_eq!(table.set(&gpu.stream, &[plain]), wrong("sampling", 2, 1));
    let (x, counters) = (gpu.put(&[0f32; 24])?, gpu.put(&[0u64; 3])?);
    let (mut tokens, mut room) =
        (gpu.put(&[0u32; 3])?, SamplingRoom::new(gpu.ops.context(), 2, 8).map_err(text)?);
    let stream = &gpu.stream;
    let given = (None, counters.view());
    assert_eq!(gpu.ops.sample(stream, &table, &x, given, (&mut room, &mut tokens)), wrong("table", 3, 2));
    let (x, two) = (x.range(0..16).map_err(text)?, counters.range(0..2).map_err(text)?);
    let mut two_tokens = tokens.range_mut(0..2).map_err(text)?;
    assert_eq!(
        gpu.ops.sample(stream, &table, x, given, (&mut room, two_tokens.reborrow())),
        wrong("counters", 2, 3)
    );
    let short = x.range(0..14).map_err(text)?;
    assert_eq!(
        gpu.ops.sample(stream, &table, short, (None, two), (&mut room, two_tokens.reborrow())),
        wrong("vocabulary", 8, 7)
    );
    let mut small = SamplingRoom::new(gpu.ops.context(), 1, 8).map_err(text)?;
    assert_eq!(
        gpu.ops.sample(stream, &table, x, (None, two), (&mut small, two_tokens.reborrow())),
        wrong("room", 16, 8)
    );
    gpu.ops.sample(stream, &table, x, (None, two), (&mut room, two_tokens)).map_err(text)
}

pub fn trials(trials: &mut Trials) {
    each_type!(trials, "argmax", argmax());
    each_type!(trials, "sample", sample());
    trials.push(trial("sampling_refused", refused));
}
