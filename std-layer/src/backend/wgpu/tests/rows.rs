//! Row by row.

use gllm_testkit::data::Source;

use super::{bits, floats, gpu, nan, put, read, run, with_and_without, NOT_WRITTEN};
use crate::backend::wgpu::device::Gpu;
use crate::backend::wgpu::shaders::Shader;
use crate::backend::wgpu::weights::PART;
use crate::model::Gate;

#[test]
fn norms() {
    with_and_without().iter().for_each(norms_on);
}

/// What the residual stream is multiplied by before something is added.
const SCALE: f32 = 0.75;

fn norms_on(gpu: &Gpu) {
    let mut source = Source::new(5);
    let eps = 1e-5f32;
    // As few as there can be, fewer than threads, no multiple of them, and many for each.
    for cols in [1usize, 3, 8, 33, 256, 576, 1000, 4096, 26_000] {
        for (rows, mean, [add, post], [layer, stays]) in [
            (1, 0.0, [false, false], [false, false]),
            (3, 0.0, [true, false], [false, true]),
            (2, 0.0, [true, true], [false, false]),
            (2, 40.0, [true, false], [false, false]),
            (2, 0.0, [false, false], [true, true]),
            (3, 40.0, [true, false], [true, true]),
            (2, 40.0, [true, false], [true, false]),
        ] {
            let stride = cols.next_multiple_of(32);
            let [mut hidden, delta] = [(); 2].map(|()| source.normals::<f32>(rows * stride));
            hidden.iter_mut().for_each(|x| *x += mean);
            let [weight, of_post, bias] = [(); 3].map(|()| source.normals::<f32>(cols));
            let norm = |x: &[f64], w: &[f32]| -> Vec<f64> {
                let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
                let by = 1.0 / (mean + f64::from(eps)).sqrt();
                x.iter().zip(w).map(|(x, &w)| x * by * f64::from(w)).collect()
            };
            let layer_norm = |x: &[f64]| -> Vec<f64> {
                let mean = x.iter().sum::<f64>() / x.len() as f64;
                let x: Vec<f64> = x.iter().map(|x| x - mean).collect();
                norm(&x, &weight).iter().zip(&bias).map(|(x, &b)| x + f64::from(b)).collect()
            };
            let wide = |x: &[f32]| x[..cols].iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
            let y = put(gpu, &nan(rows * stride));
            let on = [&hidden, &delta, &weight, &of_post, &bias].map(|x| put(gpu, &bits(x)));
            let mut buffers = vec![(0, &on[0]), (1, &on[2]), (2, &y)];
            if add {
                buffers.push((4, &on[1]));
            }
            if post {
                buffers.push((5, &on[3]));
            }
            if layer {
                buffers.push((6, &on[4]));
            }
            let constants = [cols as u32, stride as u32, eps.to_bits(), SCALE.to_bits()];
            let shader = Shader::Norm { add, post, layer, stays };
            let got = floats(&run(gpu, shader, &buffers, (3, &constants), [rows, 1, 1], &y));
            let stream = floats(&read(gpu, &on[0]));
            for row in 0..rows {
                let mut x = wide(&hidden[row * stride..]);
                let mut d = wide(&delta[row * stride..]);
                if post {
                    d = norm(&d, &of_post);
                }
                if add {
                    x.iter_mut().zip(&d).for_each(|(x, d)| *x = *x * f64::from(SCALE) + d);
                }
                let want = if layer { layer_norm(&x) } else { norm(&x, &weight) };
                let got = &got[row * stride..][..cols];
                for (c, (want, &got)) in want.iter().zip(got).enumerate() {
                    let error = (f64::from(got) - want).abs();
                    // Sums of up to 204 squares a thread; then rounding of what is added, and of a mean that is subtracted.
                    let of_mean = if layer { f64::from(mean) * 1.5e-7 } else { 0.0 };
                    let bound = 1e-5 * want.abs() + (1e-6 + of_mean) * f64::from(weight[c]).abs();
                    assert!(error <= bound, "{shader:?}, {rows} x {cols}: {row}, {c}: {got}, {want}");
                }
                let stream = &stream[row * stride..][..cols];
                if stays {
                    assert_eq!(bits(stream), bits(got), "{shader:?}, {rows} x {cols}");
                } else {
                    let near = |(x, &y): (&f64, &f32)| (x - f64::from(y)).abs() <= 1e-5 * x.abs().max(1.0);
                    assert!(x.iter().zip(stream).all(near), "{shader:?}, {rows} x {cols}");
                }
            }
        }
    }
}

#[test]
fn rows_that_are_passed_on() {
    for gpu in with_and_without() {
        let mut source = Source::new(7);
        for cols in [1usize, 33, 576, 4096] {
            for (rows, add, post) in [(1, false, false), (3, true, false), (2, true, true)] {
                let stride = cols.next_multiple_of(32);
                let [hidden, delta] = [(); 2].map(|()| source.normals::<f32>(rows * stride));
                let weight = source.normals::<f32>(cols);
                let y = put(&gpu, &nan(rows * stride));
                let on = [&hidden, &delta, &weight].map(|x| put(&gpu, &bits(x)));
                let mut buffers = vec![(0, &on[0]), (2, &y)];
                buffers.extend(add.then_some((4, &on[1])));
                buffers.extend(post.then_some((5, &on[2])));
                let constants = [cols as u32, stride as u32, 1e-5f32.to_bits(), SCALE.to_bits()];
                let shader = Shader::Pass { add, post };
                let got = floats(&run(&gpu, shader, &buffers, (3, &constants), [rows, 1, 1], &y));
                let stream = floats(&read(&gpu, &on[0]));
                for row in 0..rows {
                    let of = |x: &[f32]| x[row * stride..][..cols].to_vec();
                    let (x, d) = (of(&hidden), of(&delta));
                    let mean = d.iter().map(|&d| f64::from(d).powi(2)).sum::<f64>() / cols as f64;
                    let by = if post { 1.0 / (mean + 1e-5).sqrt() } else { 1.0 };
                    assert_eq!(bits(&of(&got)), bits(&of(&stream)), "{shader:?}, {rows} x {cols}");
                    for (c, &got) in of(&got).iter().enumerate() {
                        let d = f64::from(d[c]) * by * if post { f64::from(weight[c]) } else { 1.0 };
                        let x = f64::from(x[c]);
                        let want = if add { x * f64::from(SCALE) + d } else { x };
                        let bound = 1e-5 * (x.abs() + d.abs());
                        let near = (f64::from(got) - want).abs() <= bound;
                        assert!(near, "{shader:?}, {rows} x {cols}: {row}, {c}: {got}, {want}");
                    }
                }
            }
        }
    }
}

#[test]
fn norms_of_all_heads() {
    for gpu in with_and_without() {
        let mut source = Source::new(9);
        for (rows, queries, keys) in [(1, 8usize, 4usize), (3, 96, 36), (2, 4096, 1024)] {
            let (values, stride) = (keys, (queries + 2 * keys).next_multiple_of(32));
            let heads = source.normals::<f32>(rows * stride);
            let weight = source.normals::<f32>(queries + keys);
            let on = [&heads, &weight].map(|x| put(&gpu, &bits(x)));
            let constants = [stride as u32, 1e-5f32.to_bits(), queries as u32, keys as u32];
            let buffers = [(0, &on[0]), (1, &on[1])];
            let groups = [2, rows, 1];
            let got = floats(&run(&gpu, Shader::NormHeads, &buffers, (2, &constants), groups, &on[0]));
            for (x, got) in heads.chunks(stride).zip(got.chunks(stride)) {
                for part in [0..queries, queries..queries + keys] {
                    let mean = x[part.clone()].iter().map(|&x| f64::from(x).powi(2)).sum::<f64>()
                        / part.len() as f64;
                    for i in part {
                        let want = f64::from(x[i]) / (mean + 1e-5).sqrt() * f64::from(weight[i]);
                        let near = (f64::from(got[i]) - want).abs() <= 1e-5 * want.abs();
                        assert!(near, "{rows} x {queries}, {keys}: {i}: {}, {want}", got[i]);
                    }
                }
                // Values stay what they are.
                let rest = queries + keys..queries + keys + values;
                assert_eq!(bits(&got[rest.clone()]), bits(&x[rest]));
            }
        }
    }
}

/// Numbers of every size, and where exponentials overflow, are 0, or are no numbers.
fn with_edges(source: &mut Source, n: usize) -> Vec<f32> {
    let mut x: Vec<f32> = source.normals::<f32>(n).iter().map(|x| 3.0 * x).collect();
    let edges = [0.0, -0.0, f32::NAN, 60.0, -60.0, 90.0, -90.0, 3e4, -3e4];
    x.iter_mut().rev().zip(edges).for_each(|(x, edge)| *x = edge);
    x
}

/// The normal distribution function, by the series of the error function, or by the continued fraction of its complement.
fn normal(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let z = x.abs() / std::f64::consts::SQRT_2;
    let tail = if z < 2.0 {
        let (mut term, mut sum) = (z, z);
        for n in 1..100 {
            term *= -z * z / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        1.0 - sum * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let fraction = (1..200).rev().fold(z, |rest, n| z + 0.5 * f64::from(n) / rest);
        (-z * z).exp() / (std::f64::consts::PI.sqrt() * fraction)
    };
    if x < 0.0 {
        0.5 * tail
    } else {
        1.0 - 0.5 * tail
    }
}

#[test]
fn gates_and_caps() {
    let Some(gpu) = gpu() else { return };
    let mut source = Source::new(6);
    for cols in [1usize, 7, 8, 9, 255, 256, 4097, 16_384, 70_001] {
        // Zeros follow, up to a whole part.
        let padded = cols.next_multiple_of(PART);
        let stride = padded + 3;
        // Gates and what they are for, of two rows.
        let halves: Vec<Vec<f32>> = (0..4).map(|_| with_edges(&mut source, cols)).collect();
        let x = halves.concat();
        let close = |got: f32, want: f64, relative: f64, what: &str| {
            let near = (f64::from(got) - want).abs() <= relative * want.abs() + 1e-30;
            let same = got.is_nan() && want.is_nan();
            assert!(near || same, "{what}, {cols} columns: {got} instead of {want}");
        };
        let gates = [Gate::Silu, Gate::GeluTanh, Gate::Gelu, Gate::ClampedSwiglu, Gate::ReluSquared];
        let gates = gates.into_iter().flat_map(|gate| [(gate, true), (gate, false)]);
        // The numbers of the activation that has some.
        let [positive, negative] = [0.8f32, 1.3];
        for (gate, gated) in gates.chain([(Gate::Xielu, false)]) {
            let y = put(&gpu, &nan(2 * stride));
            let constants =
                [cols as u32, 2 * cols as u32, stride as u32, positive.to_bits(), negative.to_bits()];
            let buffers = [(0, &put(&gpu, &bits(&x))), (1, &y)];
            let groups = [padded.div_ceil(64), 2, 1];
            let got = floats(&run(&gpu, Shader::Glu { gate, gated }, &buffers, (2, &constants), groups, &y));
            for (halves, got) in halves.chunks(2).zip(got.chunks(stride)) {
                assert!(got[cols..padded].iter().all(|x| x.to_bits() == 0));
                assert!(got[padded..].iter().all(|x| x.to_bits() == NOT_WRITTEN));
                for ((&g, &up), &got) in halves[0].iter().zip(&halves[1]).zip(got) {
                    let (mut x, mut by) = (f64::from(g), if gated { f64::from(up) } else { 1.0 });
                    // For GELU the logistic function is that of twice the hyperbolic tangent's argument.
                    let u = match gate {
                        Gate::Silu => x,
                        Gate::GeluTanh => {
                            2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)
                        }
                        Gate::Gelu => {
                            close(got, by * x * normal(x), 1e-4, &format!("{gate:?}({g}) * {by}"));
                            continue;
                        }
                        Gate::ReluSquared => {
                            close(got, by * x * x.max(0.0), 1e-4, &format!("{gate:?}({g}) * {by}"));
                            continue;
                        }
                        Gate::Xielu => {
                            let curved = match x < 0.0 {
                                true => f64::from(negative) * (x.min(-1e-6).exp_m1() - x),
                                false => f64::from(positive) * x * x,
                            };
                            // The difference of an exponential and 1 has the digits that 1 has.
                            let (want, rounding) = (0.5 * x + curved, 3e-7);
                            let near = (f64::from(got) - want).abs() <= 1e-4 * want.abs() + rounding;
                            let same = got.is_nan() && want.is_nan();
                            assert!(near || same, "{gate:?}({g}): {got} instead of {want}");
                            continue;
                        }
                        Gate::ClampedSwiglu => {
                            // What is no number stays none.
                            (x, by) = (x.clamp(f64::NEG_INFINITY, 7.0), by.clamp(-7.0, 7.0) + 1.0);
                            1.702 * x
                        }
                    };
                    // An argument of up to 87 is rounded before its exponential is taken.
                    let want = by * if u < -87.0 { 0.0 } else { x / (1.0 + (-u).exp()) };
                    close(got, want, 1e-4, &format!("{gate:?}({g}) * {by}"));
                }
            }
        }
        let on = put(&gpu, &bits(&x));
        let constants = [2 * cols as u32, 2 * cols as u32, 30f32.to_bits()];
        let groups = [(2 * cols).div_ceil(64), 2, 1];
        let got = floats(&run(&gpu, Shader::Cap, &[(0, &on)], (1, &constants), groups, &on));
        for (&x, got) in x.iter().zip(got) {
            if x.is_finite() {
                // The definition of a hyperbolic tangent takes the difference of two exponentials.
                let want = 30.0 * (f64::from(x) / 30.0).tanh();
                assert!((f64::from(got) - want).abs() <= 3e-5, "cap, {cols}: {got} instead of {want}");
            }
        }
    }
}

/// Rows are gathered, and positions go on.
#[test]
fn gathered_rows_and_positions() {
    let Some(gpu) = gpu() else { return };
    let x: Vec<u32> = (0..5 * 96).collect();
    let step = put(&gpu, &[7, 8, 9, 4, 0, 2]);
    let kept = put(&gpu, &nan(3 * 96));
    let buffers = [(0, &put(&gpu, &x)), (1, &kept), (2, &step)];
    let got = run(&gpu, Shader::Gather, &buffers, (3, &[90, 96, 3]), [2, 3, 1], &kept);
    for (row, from) in got.chunks(96).zip([4, 0, 2]) {
        let want: Vec<u32> = (0..90).map(|c| from * 96 + c).collect();
        assert_eq!(row[..90], want);
        assert!(f32::from_bits(row[90]).is_nan());
    }
    let got = run(&gpu, Shader::Advance, &[(0, &step)], (1, &[3]), [1, 1, 1], &step);
    assert_eq!(got, [8, 9, 10, 4, 0, 2]);
}
