//! Choosing tokens, and how probable they are.

use gllm_kernels_std::cuda::{CudaError, Float, History, SamplingRoom, SamplingTable};
use gllm_kernels_std::model::{sample as definition, Sampling};
use gllm_testkit::data::Source;

use super::{compare, each_type, source, text, trial, Gpu, Outcome, Trials};

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
        let mut room = SamplingRoom::new(gpu.ops.context(), rows, n).map_err(text)?;
        gpu.ops.argmax(&gpu.stream, &on_x, (&mut room, &mut tokens)).map_err(text)?;
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

/// The tokens are those of the definition.
fn chosen<T: Float>(
    gpu: &Gpu,
    all: &[Sampling],
    x: &[T],
    (history, lengths): (&[u32], &[u32]),
    counters: &[u64],
) -> Outcome {
    let (rows, n, each) = (all.len(), x.len() / all.len(), history.len() / all.len());
    let (on_x, on_history, on_counters) = (gpu.put(x)?, gpu.put(history)?, gpu.put(counters)?);
    let on_lengths = gpu.put(lengths)?;
    let mut room = SamplingRoom::new(gpu.ops.context(), rows, n).map_err(text)?;
    let table = SamplingTable::new(&gpu.stream, n, all, 10 * rows).map_err(text)?;
    let mut tokens = gpu.put(&vec![u32::MAX; rows])?;
    let so_far = History { tokens: on_history.view(), lengths: on_lengths.view() };
    let given = (Some(so_far), on_counters.view());
    gpu.ops.sample(&gpu.stream, &table, &on_x, given, (&mut room, &mut tokens)).map_err(text)?;
    let got = tokens.to_vec(&gpu.stream).map_err(text)?;
    for (r, way) in all.iter().enumerate() {
        let mut scores: Vec<f32> = x[r * n..(r + 1) * n].iter().map(|x| x.to_f32()).collect();
        let before = &history[r * each..r * each + lengths[r] as usize];
        let want = definition(&mut scores, before, counters[r], r as u32, way).map_err(text)?;
        if got[r] != want {
            return Err(format!("row {r}, {way:?}: {} instead of {want}", got[r]));
        }
    }
    Ok(())
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
            chosen(&gpu, &all, &x, (&history, &lengths), &counters)
                .map_err(|e| format!("{n}, round {round}, {e}"))?;
        }
    }
    Ok(())
}

/// Scores of `n` tokens that several blocks share: something at their borders, in one of them alone, or the same in all.
fn kinds(source: &mut Source, n: usize) -> Vec<Vec<f32>> {
    let spread: Vec<f32> = source.uniform(n, -9.0, 9.0);
    let at_borders: Vec<usize> =
        (0..n).filter(|i| matches!(i % PART, 0 | 127 | 128 | 4095) || i + 1 == n).collect();
    let changed = |tokens: &[usize], to: f32| {
        let mut x = spread.clone();
        tokens.iter().filter(|&&t| t < n).for_each(|&t| x[t] = to);
        x
    };
    let steep =
        |i: usize| if at_borders.contains(&i) { 20.0 + (i % 7) as f32 / 7.0 } else { -(i as f32) / n as f32 };
    vec![
        spread.clone(),
        source.normals(n),
        // The first of equal ones is in the first part, or not.
        changed(&[4095, 4096, n - 1], 30.0),
        changed(&[n / 2, n - 1, n - 2], 11.0),
        changed(&at_borders, f32::INFINITY),
        changed(&at_borders, f32::NAN),
        vec![f32::NEG_INFINITY; n],
        vec![f32::NAN; n],
        vec![1.5; n],
        // All different, and none far from the others.
        (0..n).map(|i| (i * 7919 % n) as f32 / n as f32).collect(),
        (0..n).map(steep).collect(),
        // A part and nothing else.
        (0..n).map(|i| if i / PART == n / PART / 2 { spread[i] } else { f32::NEG_INFINITY }).collect(),
    ]
}

/// Tokens of a block that prepares a row.
const PART: usize = 4096;

/// The tokens are those of the definition where blocks share rows.
fn sample_parts() -> Outcome {
    const ROOM: usize = 300;
    let gpu = Gpu::new()?;
    let mut source = source("sample_parts");
    for (n, repeat) in [(129, 10), (PART - 1, 1), (PART, 1), (PART + 1, 1), (2 * PART + 129, 1), (70_000, 1)]
    {
        let plain = Sampling::default();
        let last = n as u32 - 1;
        let logit_bias =
            [(last, 40.0), (0, 38.0), (4095, 37.0), (4096, 39.5), (127, f32::NEG_INFINITY), (128, 39.0)];
        let logit_bias: Vec<(u32, f32)> = logit_bias.into_iter().filter(|b| b.0 <= last).collect();
        let penalties = Sampling { repetition: 1.4, frequency: 0.5, presence: 3.0, ..plain.clone() };
        let mut ways = vec![
            plain.clone(),
            Sampling { logit_bias: logit_bias.clone(), ..Sampling::greedy() },
            Sampling { logit_bias: logit_bias.clone(), frequency: 1.5, top_p: 0.9, ..plain.clone() },
            Sampling { top_k: 5, ..plain.clone() },
            // As many as there are tiles, and more.
            Sampling { top_k: n.div_ceil(128), temperature: 3.0, ..plain.clone() },
            Sampling {
                top_k: n.div_ceil(128) + 1,
                temperature: 3.0,
                top_p: 0.8,
                min_p: 0.1,
                ..plain.clone()
            },
            Sampling { top_k: n - 1, temperature: 10.0, ..penalties.clone() },
            Sampling { top_p: 0.95, min_p: 0.02, ..plain.clone() },
            Sampling { top_p: 1e-9, temperature: 0.3, ..plain.clone() },
            Sampling { top_p: 0.999_999_9, temperature: 50.0, ..plain.clone() },
            Sampling { top_p: 0.4, temperature: 1e4, ..penalties.clone() },
            Sampling { min_p: 0.3, temperature: 2.0, ..penalties },
        ];
        ways = (0..repeat).flat_map(|_| ways.clone()).collect();
        let kinds = kinds(&mut source, n);
        // Each row of another kind, in turn all; fewer turns where there is more to do, as emulators are slow.
        for turn in (0..kinds.len()).step_by(if n > 3 * PART || repeat > 1 { 5 } else { 1 }) {
            ways.iter_mut().for_each(|way| way.seed = source.below(1 << 60) as u64);
            let x: Vec<f32> =
                (0..ways.len()).flat_map(|r| &kinds[(r + turn) % kinds.len()]).copied().collect();
            let near = |source: &mut Source| [0, 100, 4090, 4096, n - 5][source.below(5)] + source.below(9);
            let history: Vec<u32> = (0..ways.len() * ROOM).map(|_| near(&mut source) as u32).collect();
            let lengths: Vec<u32> = ways.iter().map(|_| source.below(ROOM + 1) as u32).collect();
            let counters: Vec<u64> = ways.iter().map(|_| source.below(1 << 40) as u64).collect();
            chosen(&gpu, &ways, &x, (&history, &lengths), &counters)
                .map_err(|e| format!("{n}, turn {turn}, {e}"))?;
        }
        let room = &mut SamplingRoom::new(gpu.ops.context(), kinds.len(), n).map_err(text)?;
        let (on_x, mut tokens) = (gpu.put(&kinds.concat())?, gpu.put(&vec![u32::MAX; kinds.len()])?);
        gpu.ops.argmax(&gpu.stream, &on_x, (room, &mut tokens)).map_err(text)?;
        let best = |x: &Vec<f32>| definition(&mut x.clone(), &[], 0, 0, &Sampling::greedy()).map_err(text);
        let want = kinds.iter().map(best).collect::<Result<Vec<u32>, String>>()?;
        let got = tokens.to_vec(&gpu.stream).map_err(text)?;
        if got != want {
            return Err(format!("{n}: {got:?} instead of {want:?}"));
        }
    }
    Ok(())
}

/// `x[token] - ln(sum of exp(x))` in f64; NaN where the sum has no logarithm, or there is no such token.
fn log_probability(x: &[f32], token: u32) -> f64 {
    let top = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = x.iter().map(|&x| (f64::from(x) - f64::from(top)).exp()).sum();
    x.get(token as usize).map_or(f64::NAN, |&x| f64::from(x) - f64::from(top) - sum.ln())
}

fn log_probabilities() -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("log_probabilities");
    for n in [1, 2, 33, 1000, 1025, 128_256] {
        let infinite = f32::INFINITY;
        let spread: Vec<f32> = source.uniform(n, -8.0, 8.0);
        let changed = |at: usize, to: f32| {
            let mut row = spread.clone();
            row[at] = to;
            row
        };
        let each =
            |to: &dyn Fn(usize, f32) -> f32| spread.iter().enumerate().map(|(i, &x)| to(i, x)).collect();
        let all: Vec<Vec<f32>> = vec![
            source.normals(n),
            vec![-2.5; n],
            each(&|_, x| x.round()),
            each(&|i, x| if i % 3 == 0 { x } else { -infinite }),
            each(&|i, x| if i % 2 == 0 { 3e38 * x.signum() } else { x }),
            each(&|_, x| 1e4 + x),
            each(&|_, x| x - 1e4),
            changed(n / 2, 40.0),
            changed(n - 1, 19.0),
            changed(n / 3, f32::NAN),
            changed(n / 2, infinite),
            changed(0, -infinite),
            vec![-infinite; n],
            spread.clone(),
        ];
        let count = all.len() as u32;
        // In no order, more than once, and some that do not exist.
        let mut chosen: Vec<(u32, u32)> = (0..count * 5)
            .map(|i| (i * 3 % count, [0, n / 2, n - 1, n / 3, source.below(n)][i as usize % 5] as u32))
            .collect();
        chosen.extend([(count, 0), (0, n as u32), (count - 1, u32::MAX), (u32::MAX, 0)]);
        let on_x = gpu.put(&all.concat())?;
        let rows = gpu.put(&chosen.iter().map(|c| c.0).collect::<Vec<_>>())?;
        let tokens = gpu.put(&chosen.iter().map(|c| c.1).collect::<Vec<_>>())?;
        let mut y = gpu.room::<f32>(chosen.len())?;
        let pairs = (rows.view(), tokens.view());
        gpu.ops.log_probabilities(&gpu.stream, (&on_x, n), pairs, &mut y).map_err(text)?;
        let want: Vec<f64> = chosen
            .iter()
            .map(|&(row, token)| all.get(row as usize).map_or(f64::NAN, |x| log_probability(x, token)))
            .collect();
        // The sum's relative error, and that of the distance from the largest score.
        compare(&gpu.get(&y)?, &want, |i| 2e-6 + 2e-7 * want[i].abs()).map_err(|e| format!("{n}: {e}"))?;
    }
    Ok(())
}

/// What [`log_probabilities`] cannot be asked.
fn log_probabilities_refused() -> Outcome {
    let gpu = Gpu::new()?;
    let (x, indices, mut y) = (gpu.put(&[0f32; 24])?, gpu.put(&[0u32; 3])?, gpu.room::<f32>(2)?);
    let two = indices.range(0..2).map_err(text)?;
    let mut run = |vocabulary, rows, tokens| {
        gpu.ops.log_probabilities(&gpu.stream, (&x, vocabulary), (rows, tokens), &mut y)
    };
    let wrong = |arg| Err(CudaError::WrongSize { arg, need: 2, got: 3 });
    assert_eq!(run(8, indices.view(), two), wrong("rows"));
    assert_eq!(run(8, two, indices.view()), wrong("tokens"));
    for vocabulary in [0, 7] {
        assert!(matches!(run(vocabulary, two, two), Err(CudaError::Kernel(_))));
    }
    assert_eq!(run(8, two, two), Ok(()));
    let none = indices.range(0..0).map_err(text)?;
    let mut nothing = gpu.room::<f32>(0)?;
    gpu.ops.log_probabilities(&gpu.stream, (&x, 8), (none, none), &mut nothing).map_err(text)
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
    assert_eq!(gpu.ops.argmax(stream, x, (&mut small, two_tokens.reborrow())), wrong("room", 16, 8));
    // As many scores, but more rows: each has a part.
    let mut long = SamplingRoom::new(gpu.ops.context(), 1, 16).map_err(text)?;
    assert_eq!(gpu.ops.argmax(stream, x, (&mut long, two_tokens.reborrow())), wrong("room", 4, 2));
    gpu.ops.sample(stream, &table, x, (None, two), (&mut room, two_tokens)).map_err(text)
}

pub fn trials(trials: &mut Trials) {
    each_type!(trials, "argmax", argmax());
    each_type!(trials, "sample", sample());
    trials.push(trial("sample_parts", sample_parts));
    trials.push(trial("sampling_refused", refused));
    trials.push(trial("log_probabilities", log_probabilities));
    trials.push(trial("log_probabilities_refused", log_probabilities_refused));
}
