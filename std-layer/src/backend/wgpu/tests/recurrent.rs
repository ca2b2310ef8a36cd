//! Recurrent layers.

use gllm_testkit::data::Source;

use super::{bits, floats, nan, put, read, run, with_and_without, NOT_WRITTEN};
use crate::backend::wgpu::device::Gpu;
use crate::backend::wgpu::shaders::Shader;
use crate::backend::wgpu::shapes::DELTA_ROWS;
use crate::model::{LinearAttention, Recurrence, Rule};

/// Heads of values in either order, numbers of them in either; fewer elements than threads, as many, more, and no multiple of them; convolutions that read
/// one token before, and seven.
#[test]
fn linear_attention() {
    for gpu in with_and_without() {
        for (key_heads, value_heads, size, taps, tiled) in
            [(2, 6, 32, 4, true), (1, 2, 128, 4, false), (3, 3, 5, 2, false), (2, 4, 70, 8, false)]
        {
            for decay_heads in [value_heads, value_heads / key_heads] {
                let (rule, key_size) = (Rule::Delta { decay_heads }, size);
                let of = LinearAttention {
                    rule,
                    key_heads,
                    value_heads,
                    key_size,
                    value_size: size,
                    taps,
                    tiled,
                    normed: true,
                };
                linear_attention_on(&gpu, of);
            }
        }
    }
}

/// Runs in a step: positions before it, tokens in it, and the number of the state.
const RUNS: [(usize, usize, usize); 5] = [(0, 1, 3), (40, 1, 0), (0, 13, 5), (2, 2, 1), (7, 9, 4)];
/// States that there are.
const STATES: usize = 6;

/// Three operations: results and states are those of the formulas in [`LinearAttention`], whatever states of new sequences were before, and states of others stay.
fn linear_attention_on(gpu: &Gpu, of: LinearAttention) {
    let LinearAttention { key_heads, value_heads, key_size: size, taps, .. } = of;
    let (channels, values, state_len) = (of.channels(), of.values(), Recurrence::Linear(of).state());
    let mut source = Source::new(21);
    let eps = 1e-6f32;
    let rows: usize = RUNS.iter().map(|run| run.1).sum();
    let width = channels + values + 2 * value_heads;
    let (stride, mixed_stride) = (width + 5, values.next_multiple_of(32));
    let mut x = source.normals::<f32>(rows * stride);
    // Numbers `b` and `a` of every size, in all heads.
    let edges = [100.0, -100.0, 30.0, -12.0, 0.0];
    let numbers = x.chunks_mut(stride).flat_map(|row| &mut row[channels + values..width]);
    numbers.step_by(3).zip(edges.into_iter().cycle()).for_each(|(x, edge)| *x = edge);
    // Gates, too.
    let gates = x.chunks_mut(stride).flat_map(|row| &mut row[channels..channels + values]);
    gates.step_by(7).zip(edges.into_iter().cycle()).for_each(|(x, edge)| *x = edge);
    let [convolution, decay_bias, norm] =
        [taps * channels, value_heads, size].map(|n| source.normals::<f32>(n));
    let rate: Vec<f32> = source.normals::<f32>(value_heads).iter().map(|x| -0.01 - x.abs()).collect();
    let mut states: Vec<f32> = source.normals::<f32>(STATES * state_len).iter().map(|x| 0.3 * x).collect();
    // What there was before a text is of another one.
    for &(position, _, state) in &RUNS {
        let known = if position == 0 { 0 } else { position.min(taps - 1) };
        let state = &mut states[state * state_len..][..state_len];
        state[..(taps - 1 - known) * channels].fill(0.0);
        if position == 0 {
            state.fill(f32::NAN);
        }
    }
    let mut table: Vec<u32> = Vec::new();
    RUNS.iter()
        .for_each(|&(position, tokens, _)| table.extend((position..position + tokens).map(|p| p as u32)));
    RUNS.iter().enumerate().for_each(|(run, r)| table.extend(std::iter::repeat_n(run as u32, r.1)));
    // Tables of pages have room for longer ones.
    RUNS.iter().for_each(|run| table.extend([run.2 as u32, u32::MAX, u32::MAX]));
    let ends: Vec<usize> = RUNS
        .iter()
        .scan(0, |end, run| {
            *end += run.1;
            Some(*end)
        })
        .collect();
    table.extend(ends.iter().map(|&end| end as u32));
    let [runs_at, table_at, table_len, run_ends_at] =
        [rows, 2 * rows, 3, 2 * rows + 3 * RUNS.len()].map(|n| n as u32);

    let [on_x, on_states] = [&x, &states].map(|x| put(gpu, &bits(x)));
    let on = [&convolution, &decay_bias, &rate, &norm].map(|x| put(gpu, &bits(x)));
    let table = put(gpu, &table);
    let (convolved, mixed) = (put(gpu, &nan(rows * channels)), put(gpu, &nan(rows * mixed_stride)));
    let strides = [stride, mixed_stride].map(|n| n as u32);
    run(
        gpu,
        Shader::Convolve { of: Recurrence::Linear(of), bias: false },
        &[(0, &on_x), (1, &on_states), (2, &table), (3, &on[0]), (4, &convolved)],
        (5, &[strides[0], eps.to_bits(), runs_at, table_at, table_len, run_ends_at, channels as u32]),
        [2 * key_heads + value_heads, rows, 1],
        &convolved,
    );
    run(
        gpu,
        Shader::Delta { of },
        &[(0, &on_x), (1, &on_states), (2, &table), (3, &convolved), (4, &on[1]), (5, &on[2]), (6, &mixed)],
        (7, &[strides[0], strides[1], table_at, table_len, run_ends_at]),
        [value_heads * size.div_ceil(DELTA_ROWS as usize), RUNS.len(), 1],
        &mixed,
    );
    let got = run(
        gpu,
        Shader::DeltaNorm { of },
        &[(0, &on_x), (1, &mixed), (2, &on[3])],
        (3, &[strides[0], strides[1], eps.to_bits()]),
        [value_heads, rows, 1],
        &mixed,
    );
    let states_then = floats(&read(gpu, &on_states));

    let close = |got: f32, want: f64, bound: f64, what: &str| {
        let error = (f64::from(got) - want).abs();
        assert!(error <= bound * want.abs().max(1.0), "{of:?}, {what}: {got} instead of {want}");
    };
    for (r, &(position, tokens, number)) in RUNS.iter().enumerate() {
        let before = &states[number * state_len..][..state_len];
        let then = &states_then[number * state_len..][..state_len];
        let (want, state) = oracle(
            of,
            position,
            &x[(ends[r] - tokens) * stride..],
            (tokens, stride),
            before,
            (&convolution, [&decay_bias, &rate, &norm], eps),
        );
        for (i, (&got, &want)) in then.iter().zip(&state).enumerate() {
            close(got, want, 3e-6, &format!("run {r}, number {i} of its state"));
        }
        let rows = got.chunks(mixed_stride).skip(ends[r] - tokens);
        // The norm makes results that are small, as sums of larger numbers are at times, as large as others.
        for (t, (got, want)) in rows.zip(&want).enumerate() {
            for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
                close(f32::from_bits(got), want, 3e-5, &format!("run {r}, token {t}, element {i}"));
            }
            assert!(got[values..].iter().all(|&word| word == NOT_WRITTEN), "{of:?}, run {r}");
        }
    }
    let others = (0..STATES).filter(|state| RUNS.iter().all(|run| run.2 != *state));
    for state in others {
        let range = state * state_len..(state + 1) * state_len;
        assert_eq!(bits(&states_then[range.clone()]), bits(&states[range]), "{of:?}, state {state}");
    }
}

/// What a run gives, and its state then.
fn oracle(
    of: LinearAttention,
    position: usize,
    x: &[f32],
    (tokens, stride): (usize, usize),
    state: &[f32],
    (convolution, [decay_bias, rate, norm], eps): (&[f32], [&Vec<f32>; 3], f32),
) -> (Vec<Vec<f64>>, Vec<f64>) {
    let LinearAttention { key_heads, value_heads, key_size: size, taps, .. } = of;
    let (channels, values, eps) = (of.channels(), of.values(), f64::from(eps));
    let state_len = Recurrence::Linear(of).state();
    let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let mut state = if position == 0 { vec![0.0; state_len] } else { wide(state) };
    let mut inputs: Vec<Vec<f64>> =
        state[..(taps - 1) * channels].chunks(channels).map(<[f64]>::to_vec).collect();
    let mut results = Vec::new();
    for row in x.chunks(stride).take(tokens) {
        let row = wide(row);
        inputs.push(row[..channels].to_vec());
        let last = &inputs[inputs.len() - taps..];
        let c: Vec<f64> = (0..channels)
            .map(|c| {
                silu(
                    last.iter()
                        .enumerate()
                        .map(|(j, x)| f64::from(convolution[j * channels + c]) * x[c])
                        .sum(),
                )
            })
            .collect();
        let unit = |head: usize| {
            let head = &c[head * size..][..size];
            let length = (head.iter().map(|x| x * x).sum::<f64>() + eps).sqrt();
            head.iter().map(|x| x / length).collect::<Vec<_>>()
        };
        let mut of_token = Vec::new();
        for head in 0..value_heads {
            let (q, k) = (unit(of.key_head(head)), unit(key_heads + of.key_head(head)));
            let v = &c[(2 * key_heads + head) * size..][..size];
            let (b, a) = of.numbers_of(head);
            let [b, a] = [b.unwrap(), a].map(|at| row[channels + values + at]);
            let beta = 1.0 / (1.0 + (-b).exp());
            let decay = (f64::from(rate[head]) * (a + f64::from(decay_bias[head])).exp().ln_1p()).exp();
            let s = &mut state[(taps - 1) * channels + head * size * size..][..size * size];
            let y: Vec<f64> = s
                .chunks_mut(size)
                .zip(v)
                .map(|(s, v)| {
                    let dot = |s: &[f64], x: &[f64]| s.iter().zip(x).map(|(s, x)| s * x).sum::<f64>();
                    s.iter_mut().for_each(|s| *s *= decay);
                    let d = beta * (v - dot(s, &k));
                    s.iter_mut().zip(&k).for_each(|(s, k)| *s += d * k);
                    dot(s, &q) / (size as f64).sqrt()
                })
                .collect();
            let by = 1.0 / (y.iter().map(|y| y * y).sum::<f64>() / size as f64 + eps).sqrt();
            let gates = &row[channels + head * size..];
            of_token.extend((0..size).map(|i| y[i] * by * f64::from(norm[i]) * silu(gates[i])));
        }
        results.push(of_token);
    }
    let kept = inputs[inputs.len() - (taps - 1)..].concat();
    state[..kept.len()].copy_from_slice(&kept);
    (results, state)
}
