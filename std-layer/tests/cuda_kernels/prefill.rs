//! Attention of many queries.

use gllm_kernels_std::core::{bf16, f16};
use gllm_kernels_std::cuda::{Buffer, CudaError, Float, KvFormat, Mask, PageTables, Prefill};

use super::attention::{rounded, rounding_of, sinks, slopes, Filled, Query, PARTS};
use super::{brief, compare, each_type, source, text, trial, Gpu, Outcome, Trials, KIND};

struct Case {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    page_tokens: usize,
    mask: Mask,
    /// Queries and tokens of each sequence.
    sequences: &'static [(usize, usize)],
    longest: usize,
}

/// Heads of every size that has a kernel, and of others; one KV head for one, some and all heads; queries from none to more than a
/// block has, alone and behind other tokens; windows within a tile and across some; work for one block that is told of less.
const CASES: &[Case] = &[
    Case {
        heads: 1,
        kv_heads: 1,
        dim: 64,
        page_tokens: 16,
        mask: Mask::Causal,
        sequences: &[(1, 1), (0, 5), (70, 70)],
        longest: 70,
    },
    Case {
        heads: 2,
        kv_heads: 2,
        dim: 80,
        page_tokens: 1,
        mask: Mask::Full,
        sequences: &[(5, 65), (3, 3)],
        longest: 5,
    },
    Case {
        heads: 4,
        kv_heads: 2,
        dim: 96,
        page_tokens: 16,
        mask: Mask::Window(20),
        sequences: &[(33, 150)],
        longest: 33,
    },
    Case {
        heads: 2,
        kv_heads: 1,
        dim: 128,
        page_tokens: 48,
        mask: Mask::Causal,
        sequences: &[(129, 140), (2, 64)],
        longest: 129,
    },
    Case {
        heads: 3,
        kv_heads: 1,
        dim: 256,
        page_tokens: 8,
        mask: Mask::Causal,
        sequences: &[(65, 65)],
        longest: 1,
    },
    Case {
        heads: 1,
        kv_heads: 1,
        dim: 192,
        page_tokens: 32,
        mask: Mask::Window(1),
        sequences: &[(20, 40), (4, 4)],
        longest: 20,
    },
    Case {
        heads: 1,
        kv_heads: 1,
        dim: 16,
        page_tokens: 4,
        mask: Mask::Window(70),
        sequences: &[(9, 130)],
        longest: 9,
    },
    Case {
        heads: 1,
        kv_heads: 1,
        dim: 112,
        page_tokens: 4,
        mask: Mask::Full,
        sequences: &[(2, 0), (4, 3)],
        longest: 4,
    },
    // More queries than 64, which `wgmma` multiplies where there is one: of several blocks, behind other tokens, across some steps.
    Case {
        heads: 4,
        kv_heads: 2,
        dim: 128,
        page_tokens: 16,
        mask: Mask::Window(150),
        sequences: &[(200, 420), (65, 65), (1, 130)],
        longest: 200,
    },
    Case {
        heads: 2,
        kv_heads: 1,
        dim: 256,
        page_tokens: 5,
        mask: Mask::Causal,
        sequences: &[(140, 200), (3, 3)],
        longest: 140,
    },
    Case {
        heads: 1,
        kv_heads: 1,
        dim: 48,
        page_tokens: 1,
        mask: Mask::Full,
        sequences: &[(66, 300), (0, 4), (66, 0)],
        longest: 66,
    },
    // Windows on both sides: within a tile, across some, and with `wgmma`.
    Case {
        heads: 2,
        kv_heads: 1,
        dim: 64,
        page_tokens: 16,
        mask: Mask::Around(9),
        sequences: &[(70, 70), (3, 3)],
        longest: 70,
    },
    Case {
        heads: 2,
        kv_heads: 2,
        dim: 128,
        page_tokens: 8,
        mask: Mask::Around(65),
        sequences: &[(200, 200), (40, 90)],
        longest: 200,
    },
    Case {
        heads: 1,
        kv_heads: 1,
        dim: 256,
        page_tokens: 4,
        mask: Mask::Around(257),
        sequences: &[(66, 300)],
        longest: 66,
    },
    // Queries before the first token.
    Case {
        heads: 1,
        kv_heads: 1,
        dim: 64,
        page_tokens: 4,
        mask: Mask::Causal,
        sequences: &[(6, 4)],
        longest: 6,
    },
];

fn check<T: Float>(format: KvFormat) -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("prefill");
    for (number, case) in CASES.iter().enumerate() {
        let &Case { heads, kv_heads, dim, page_tokens, mask, sequences, longest } = case;
        let lengths: Vec<usize> = sequences.iter().map(|s| s.1).collect();
        let filled = Filled::new::<T>(&gpu, &mut source, format, (kv_heads, dim, page_tokens), &lengths)?;
        let mut starts = vec![0u32];
        for (queries, _) in sequences {
            starts.push(starts[starts.len() - 1] + *queries as u32);
        }
        let q: Vec<T> = source.normals(starts[sequences.len()] as usize * heads * dim);
        let (on_q, on_starts) = (gpu.put(&q)?, gpu.put(&starts)?);
        let on_lengths = gpu.put(&lengths.iter().map(|&n| n as u32).collect::<Vec<_>>())?;
        let (sinks, slopes) = (sinks(heads), slopes(heads));
        let (on_sinks, on_slopes) = (gpu.put(&sinks)?, gpu.put(&slopes)?);
        for (with_sinks, with_slopes) in PARTS {
            let mut y = gpu.room::<T>(q.len())?;
            let how = Prefill {
                heads,
                scale: 0.2,
                mask,
                longest,
                sinks: with_sinks.then(|| on_sinks.view()),
                slopes: with_slopes.then(|| on_slopes.view()),
            };
            let at = (on_starts.view(), on_lengths.view());
            gpu.ops
                .attention_prefill(
                    &gpu.stream,
                    (&filled.cache, filled.tables()),
                    at,
                    how,
                    on_q.view(),
                    &mut y,
                )
                .map_err(text)?;

            // Exponentials are rounded to 16 bits, and those of f16 may be too small for it.
            let (relative, least) = rounding_of(format);
            let (mut want, mut error, mut before, mut next) = (Vec::new(), Vec::new(), 0, 0);
            for &(queries, n) in sequences {
                for i in 0..queries {
                    let position = (n + i) as isize - queries as isize;
                    let seen = |&t: &usize| match mask {
                        Mask::Full => true,
                        Mask::Causal => t as isize <= position,
                        Mask::Window(w) => t as isize <= position && t as isize > position - w as isize,
                        Mask::Around(w) => (t as isize - position).unsigned_abs() < w,
                    };
                    let tokens: Vec<usize> = (0..n).filter(seen).map(|t| before + t).collect();
                    for h in 0..heads {
                        let q: Vec<f64> = q[(next * heads + h) * dim..][..dim]
                            .iter()
                            .map(|&q| rounded(format, q))
                            .collect();
                        let query = Query {
                            q: &q,
                            scale: 0.2,
                            sink: with_sinks.then(|| sinks[h]),
                            slope: with_slopes.then(|| (slopes[h], before as isize + position)),
                        };
                        let (sums, sum) = filled.attend(&query, &tokens, h / (heads / kv_heads));
                        want.extend(sums.iter().map(|s| s.0));
                        let lost = least * tokens.len() as f64 * 5.0 / sum.max(1.0);
                        error.extend(sums.iter().map(|s| s.1 * (relative * 1.01 + 4e-5) + lost));
                    }
                    next += 1;
                }
                before += n;
            }
            compare(&gpu.get(&y)?, &want, |i| error[i])
                .map_err(|e| format!("case {number}, sinks {with_sinks}, slopes {with_slopes}: {e}"))?;
        }
    }
    Ok(())
}

/// Numbers on the GPU that fit nothing touch no memory they should not, and what is not a number stays so.
fn foreign() -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("foreign");
    for format in [KvFormat::F16, KvFormat::E4m3] {
        let mut filled = Filled::new::<f16>(&gpu, &mut source, format, (1, 64, 8), &[20, 20])?;
        let mut q: Vec<f16> = source.normals(4 * 64);
        q[3 * 64] = f16::from_f32(f32::NAN);
        let on_q = gpu.put(&q)?;
        // Of pages that do not exist; beyond all queries, and backwards.
        let nowhere = gpu.put(&[u32::MAX; 2])?;
        let run = |filled: &Filled,
                   tables: PageTables<'_>,
                   starts: [u32; 3],
                   lengths: [u32; 2]|
         -> Result<Vec<f16>, String> {
            let (starts, lengths) = (gpu.put(&starts)?, gpu.put(&lengths)?);
            let (at, mut y) = ((starts.view(), lengths.view()), gpu.put(&[f16::from_f32(7.0); 4 * 64])?);
            let how =
                Prefill { heads: 1, scale: 0.2, mask: Mask::Causal, longest: 4, sinks: None, slopes: None };
            gpu.ops
                .attention_prefill(&gpu.stream, (&filled.cache, tables), at, how, on_q.view(), &mut y)
                .map_err(text)?;
            gpu.get(&y)
        };
        let far = run(&filled, filled.tables(), [3, 90, u32::MAX], [u32::MAX, u32::MAX])?;
        let one =
            |row: usize, y: &[f16], ok: fn(f32) -> bool| y[row * 64..][..64].iter().all(|y| ok(y.to_f32()));
        if !(0..3).all(|row| one(row, &far, |y| y == 7.0)) || !one(3, &far, f32::is_nan) {
            return Err("starts that do not exist".into());
        }
        let back = run(&filled, filled.tables(), [2, 1, 3], [20, 20])?;
        if ![0, 3].iter().all(|&row| one(row, &back, |y| y == 7.0)) || one(1, &back, |y| y == 7.0) {
            return Err("starts that go backwards".into());
        }
        // A key that is none, wherever in a word, spoils the queries that see it.
        for i in 0..4 {
            let (mut k, v) = (vec![f16::ONE; 64], gpu.put(&[f16::ONE; 64])?);
            k[i] = f16::NAN;
            let (k, ids, positions) = (gpu.put(&k)?, gpu.put(&[0u32])?, gpu.put(&[2u32])?);
            let at = (ids.view(), positions.view());
            let (cache, tables) = filled.change();
            gpu.ops.kv_append(&gpu.stream, cache, tables, at, (k.view(), v.view())).map_err(text)?;
            let y = run(&filled, filled.tables(), [0, 3, 3], [3, 0])?;
            if [0, 1, 2].iter().any(|&row| one(row, &y, f32::is_nan) != (row == 2)) {
                return Err(format!("a key whose number {i} is none"));
            }
        }
        let tables = PageTables { pages: nowhere.view(), len: 1 };
        if !one(0, &run(&filled, tables, [0, 2, 3], [20, 20])?, |y| y == 0.0) {
            return Err("pages that do not exist".into());
        }
    }
    Ok(())
}

fn refusals() -> Outcome {
    let gpu = Gpu::new()?;
    let filled = Filled::new::<f16>(&gpu, &mut source("refusals"), KvFormat::F16, (2, 16, 4), &[5])?;
    let (q, numbers) = (gpu.put(&[f16::ONE; 64])?, gpu.put(&[0u32, 2, 2])?);
    let mut run = |how: Prefill<'_>, (starts, lengths): (usize, usize), at: usize, rows: usize| {
        let mut y: Buffer<f16> = Buffer::new(gpu.ops.context(), rows * 32)?;
        let at = (numbers.range(0..starts)?, numbers.range(0..lengths)?, q.range(at..at + 32)?);
        let from = (&filled.cache, filled.tables());
        gpu.ops.attention_prefill(&gpu.stream, from, (at.0, at.1), how, at.2, &mut y)
    };
    let good = Prefill { heads: 2, scale: 1.0, mask: Mask::Full, longest: 2, sinks: None, slopes: None };
    let one = gpu.put(&[0f32])?;
    type Run<'a> = &'a mut dyn FnMut(Prefill<'_>, (usize, usize), usize, usize) -> Result<(), CudaError>;
    let run: Run<'_> = &mut run;
    // Whatever it is told about the work, it divides what there is.
    for longest in [0, 1, 2, usize::MAX] {
        run(Prefill { longest, ..good }, (2, 1), 0, 1).map_err(text)?;
    }
    let results = [
        (run(Prefill { heads: 3, ..good }, (2, 1), 0, 1), "multiple of the KV heads"),
        (run(Prefill { heads: 4, ..good }, (2, 1), 0, 1), "needs a multiple of 64 (cols)"),
        (run(Prefill { scale: 0.0, ..good }, (2, 1), 0, 1), "`scale`"),
        (run(Prefill { mask: Mask::Window(0), ..good }, (2, 1), 0, 1), "`window`"),
        (run(Prefill { mask: Mask::Around(0), ..good }, (2, 1), 0, 1), "`window`"),
        (run(Prefill { sinks: Some(one.view()), ..good }, (2, 1), 0, 1), "`sinks`"),
        (run(Prefill { slopes: Some(one.view()), ..good }, (2, 1), 0, 1), "`slopes`"),
        (run(good, (1, 1), 0, 1), "`starts`"),
        (run(good, (3, 2), 0, 1), "`tables`"),
        (run(good, (2, 1), 0, 2), "`y`"),
        (run(good, (2, 1), 1, 1), "`q` must start"),
    ];
    for (i, (result, part)) in results.into_iter().enumerate() {
        match result {
            Err(e) if e.to_string().contains(part) => {}
            other => return Err(format!("case {i}: {other:?} instead of {part}")),
        }
    }
    let wide = Filled::new::<f32>(&gpu, &mut source("refusals"), KvFormat::F32, (2, 16, 4), &[5])?;
    let mut y: Buffer<f16> = Buffer::new(gpu.ops.context(), 64).map_err(text)?;
    let at = (numbers.range(0..2).map_err(text)?, numbers.range(0..1).map_err(text)?);
    let from = (&wide.cache, wide.tables());
    match gpu.ops.attention_prefill(&gpu.stream, from, at, good, q.view(), &mut y) {
        Err(e) if e.to_string().contains("f16, bf16 or E4M3") => Ok(()),
        other => Err(format!("a cache of f32: {other:?}")),
    }
}

pub fn trials(trials: &mut Trials) {
    trials.push(trial("attention_prefill_foreign", foreign));
    trials.push(trial("attention_prefill_refusals", refusals));
    for format in [KvFormat::F16, KvFormat::Bf16, KvFormat::E4m3] {
        let name = format!("attention_prefill_{format:?}");
        if !brief() {
            each_type!(trials, name, check(format));
            continue;
        }
        // Kinds of GPUs take turns with types.
        match (format as usize + KIND.get()) % 3 {
            0 => trials.push(trial(name + "_f32", move || check::<f32>(format))),
            1 => trials.push(trial(name + "_f16", move || check::<f16>(format))),
            _ => trials.push(trial(name + "_bf16", move || check::<bf16>(format))),
        }
    }
}
