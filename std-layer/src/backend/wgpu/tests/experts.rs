//! What mixtures of experts do in a step, and texts that become rows.

use gllm_kernels_core::{MatRef, QuantFormat, QuantRef};
use gllm_testkit::data::Source;

use super::{
    bits, floats, formats, gpu, has_f16, nan, put, run, some_weights, with_and_without, with_bias, Weights,
    NOT_WRITTEN,
};
use crate::backend::wgpu::device::Gpu;
use crate::backend::wgpu::shaders::{Shader, MAX_GEMV_ROWS, TILE};
use crate::backend::wgpu::weights;
use crate::model::{Matrix as HostMatrix, Pooling};

/// How experts are chosen: how many, by what scores, among how many groups of which so many are taken, whose best one or two count, and what factors are.
#[derive(Clone, Copy, Debug)]
struct How {
    used: usize,
    sigmoid: bool,
    groups: [usize; 2],
    counted: usize,
    normalised: bool,
    scale: f32,
}

/// The places of numbers, the largest first, and of equal ones the first.
fn descending(x: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|&a, &b| x[b].partial_cmp(&x[a]).unwrap());
    order
}

/// The experts of a row of scores and their factors, by the definition.
fn route(scores: &[f32], bias: &[f32], how: How) -> (Vec<u32>, Vec<f64>) {
    let wide: Vec<f64> = scores.iter().map(|&x| x.into()).collect();
    let top = wide.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let unusual = wide.iter().any(|x| x.is_nan()) || top == f64::INFINITY;
    let none = top == f64::NEG_INFINITY && !unusual;
    let all: f64 = wide.iter().map(|x| (x - top).exp()).sum();
    let p = |&x: &f64| match (how.sigmoid, unusual, none) {
        // Beyond it the shader does not go.
        (true, ..) => 1.0 / (1.0 + (-x.clamp(-87.0, 87.0)).exp()),
        (_, true, _) => f64::NAN,
        (_, _, true) => 0.0,
        _ => (x - top).exp() / all,
    };
    let p: Vec<f64> = wide.iter().map(p).collect();
    let merit = |(&p, &bias): (&f64, &f32)| if p.is_nan() { f64::NEG_INFINITY } else { p + f64::from(bias) };
    let merits: Vec<f64> = p.iter().zip(bias).map(merit).collect();
    let [groups, taken] = how.groups;
    let sum = |own: &[f64]| descending(own).iter().take(how.counted).map(|&i| own[i]).sum::<f64>();
    let sums: Vec<f64> = merits.chunks(p.len() / groups).map(sum).collect();
    let closed = descending(&sums).split_off(taken);
    let mut order = descending(&merits);
    order.retain(|expert| !closed.contains(&(expert / (p.len() / groups))));
    order.truncate(how.used);
    let sum = if how.normalised { order.iter().map(|&e| p[e]).sum::<f64>() + 1e-20 } else { 1.0 };
    let factors = order.iter().map(|&e| p[e] / sum * f64::from(how.scale)).collect();
    (order.into_iter().map(|e| e as u32).collect(), factors)
}

/// Scores that are equal, that are far apart, that are infinite, and that are no numbers.
fn scores(source: &mut Source, kind: usize, count: usize) -> Vec<f32> {
    // Multiples of a fraction: what differs at all differs by more than rounding.
    let mut x: Vec<f32> = source.normals::<f32>(count).iter().map(|x| (x * 64.0).round() / 16.0).collect();
    let at = source.below(count);
    match kind {
        1 => x.fill(-2.5),
        2 => x.iter_mut().for_each(|x| *x = x.round()),
        3 => x.iter_mut().for_each(|x| *x = (*x * 4.0).round() * 1e3),
        4 => x[at] = f32::NEG_INFINITY,
        5 => x[at] = f32::INFINITY,
        6 => x[at] = f32::NAN,
        7 => x.fill(f32::NEG_INFINITY),
        8 => x.iter_mut().for_each(|x| *x = -0.0 * x.signum()),
        _ => {}
    }
    x
}

#[test]
fn routes() {
    let mut source = Source::new(21);
    let none = [1, 1];
    let softmax =
        [(1, 1), (2, 1), (3, 3), (8, 2), (60, 4), (64, 64), (65, 8), (128, 8), (300, 10), (300, 300)];
    let softmax = softmax.map(|(count, used)| (count, used, false, none));
    let others = [
        (8, 2, false, [4, 2]),
        (128, 8, false, [8, 4]),
        (1, 1, true, none),
        (3, 3, true, none),
        (65, 8, true, none),
        (300, 300, true, none),
        (8, 2, true, [4, 1]),
        (60, 4, true, [5, 2]),
        (64, 32, true, [32, 16]),
        (256, 8, true, [8, 4]),
    ];
    for gpu in with_and_without() {
        for (count, used, sigmoid, groups) in softmax.into_iter().chain(others) {
            let both = [(0, true, 1.0, false, 2), (1, false, 2.5, sigmoid, 2), (0, false, 1.0, sigmoid, 1)];
            for (shared, normalised, scale, biased, counted) in both {
                let how = How { used, sigmoid, groups, counted, normalised, scale };
                let (kinds, stride) = (9, count + shared);
                // Sigmoids of what is far from 0 differ by less than rounding.
                let near = if sigmoid { 0.25 } else { 1.0 };
                let of_kind = |kind| scores(&mut source, kind, count).into_iter().map(|x| near * x).collect();
                let rows: Vec<Vec<f32>> = (0..kinds).map(of_kind).collect();
                let numbers = source.normals::<f32>(count).into_iter().map(|x| (4.0 * x).round() / 8.0);
                let bias: Vec<f32> = if biased { numbers.collect() } else { vec![0.0; count] };
                let on_rows: Vec<f32> =
                    rows.iter().flat_map(|row| [&row[..], &[9.0][..shared]].concat()).collect();
                let on = put(&gpu, &bits(&on_rows));
                let on_bias = put(&gpu, &bits(&bias));
                let [chosen, factors] = [(); 2].map(|()| put(&gpu, &nan(kinds * used + 1)));
                let [flag, other] = [normalised, sigmoid].map(usize::from);
                let constants = [count, stride, used, flag, other, groups[0], groups[1]].map(|n| n as u32);
                let constants = [&constants[..], &[f32::to_bits(scale)]].concat();
                let mut buffers = vec![(0, &on), (1, &chosen), (2, &factors)];
                buffers.extend(biased.then_some((4, &on_bias)));
                let shader = Shader::Route { biased, factors: false, best: counted == 1 };
                let get = |result| {
                    // Scores are used up.
                    gpu.write(&on, 0, &bits(&on_rows)).unwrap();
                    run(&gpu, shader, &buffers, (3, &constants), [kinds, 1, 1], result)
                };
                let (chosen, factors) = (get(&chosen), floats(&get(&factors)));
                // Numbers as small as the smallest are not all digits of what they stand for.
                let small = if sigmoid { 1e-17 } else { 1e-35 };
                for (kind, row) in rows.iter().enumerate() {
                    let what = format!("{how:?} of {count}, biased {biased}, kind {kind}");
                    let (experts, want) = route(row, &bias, how);
                    assert_eq!(chosen[kind * used..][..used], experts, "{what}");
                    for (want, &got) in want.iter().zip(&factors[kind * used..]) {
                        let off = (f64::from(got) - want).abs();
                        let same = off <= 1e-5 * want + small || (got.is_nan() && want.is_nan());
                        assert!(same, "{what}: {got} instead of {want}");
                    }
                }
                assert_eq!(chosen[kinds * used], NOT_WRITTEN);
            }
        }
    }
}

/// Pairs sorted by expert, and tiles of them.
fn sorted(chosen: &[u32], count: usize) -> (Vec<u32>, Vec<[u32; 4]>) {
    let (mut order, mut tiles) = (Vec::new(), Vec::new());
    for expert in 0..count as u32 {
        let own = (0..chosen.len() as u32).filter(|&pair| chosen[pair as usize] == expert);
        for pairs in own.collect::<Vec<_>>().chunks(TILE) {
            tiles.push([expert, order.len() as u32, pairs.len() as u32, 0]);
            order.extend(pairs);
        }
    }
    (order, tiles)
}

/// Which experts pairs go to: each somewhere, all to one, the first or the last, and so many experts that some get none.
fn choices(source: &mut Source, pairs: usize, count: usize) -> Vec<Vec<u32>> {
    let any = (0..pairs).map(|_| source.below(count) as u32).collect();
    let some = (0..pairs).map(|_| (source.below(count.div_ceil(3)) * 3 % count) as u32).collect();
    vec![any, some, vec![0; pairs], vec![count as u32 - 1; pairs], vec![count as u32 / 2; pairs]]
}

#[test]
fn sorted_pairs() {
    let Some(gpu) = gpu() else { return };
    let mut source = Source::new(22);
    for (pairs, count) in
        [(1, 1), (9, 1), (18, 3), (31, 8), (33, 8), (64, 60), (300, 128), (700, 300), (4096, 600)]
    {
        for chosen in choices(&mut source, pairs, count) {
            let (want, tiles) = sorted(&chosen, count);
            let room = tiles.len() + 3;
            let [order, on_tiles, cursors] =
                [pairs + 1, 4 * room + 4, count].map(|words| put(&gpu, &nan(words)));
            let buffers = [(0, &put(&gpu, &chosen)), (1, &cursors), (2, &order), (3, &on_tiles)];
            let constants = [count, pairs, room].map(|n| n as u32);
            let get = |result| run(&gpu, Shader::Sort, &buffers, (4, &constants), [1, 1, 1], result);
            let (mut order, got) = (get(&order), get(&on_tiles));
            let what = format!("{pairs} pairs, {count} experts");
            assert_eq!(order[pairs], NOT_WRITTEN);
            order.truncate(pairs);
            // Those of an expert may be in any order.
            tiles.chunk_by(|a, b| a[0] == b[0]).for_each(|of_expert| {
                let n: u32 = of_expert.iter().map(|tile| tile[2]).sum();
                order[of_expert[0][1] as usize..][..n as usize].sort_unstable();
            });
            assert_eq!(order, want, "{what}");
            assert_eq!(got[..4 * tiles.len()], tiles.concat(), "{what}");
            // What is left over is empty.
            assert_eq!(got[4 * tiles.len()..4 * room], [0; 12], "{what}");
            assert_eq!(got[4 * room], NOT_WRITTEN, "{what}");
        }
    }
}

/// Whether rows are rounded to 8 bits, and whether products of many rows are in f16.
const EXACT: [bool; 2] = [false, false];
const ROUNDED: [bool; 2] = [true, false];
const F16: [bool; 2] = [false, true];

/// Experts with matrices of `each` rows, and rows that go through `used` of them.
#[derive(Clone, Copy)]
struct Shape {
    count: usize,
    each: usize,
    cols: usize,
    rows: usize,
    used: usize,
    /// Rows of weights in a buffer.
    part: usize,
}

/// Products of pairs with the matrices of their experts, with rows that are rounded, or in f16, for every way of choosing; of pairs that share a row, and of pairs with rows of their own.
fn products(gpu: &Gpu, format: Option<QuantFormat>, shape: Shape, how: [bool; 2]) {
    let [rounded, f16] = how;
    if f16 && !has_f16(gpu) {
        return;
    }
    let Shape { count, each, cols, rows, used, part } = shape;
    let mut source = Source::new(23);
    let height = count * each;
    let weights = match format {
        Some(format) => some_weights(&mut source, format, height, cols, false),
        None => Weights::dense(source.normals::<f32>(height * cols)),
    };
    let w = match format {
        Some(format) => HostMatrix::Quantised(QuantRef::new(&weights.bytes, format, height, cols).unwrap()),
        None => HostMatrix::F32(MatRef::new(&weights.decoded, height, cols).unwrap()),
    };
    let mut matrix = weights::matrix(gpu, &[w]).unwrap();
    if part < height {
        let piece = |first: usize| {
            let piece = w.row_range(first, part.min(height - first)).unwrap();
            let rows = weights::matrix(gpu, &[piece]).unwrap().rows.remove(0);
            weights::Rows { first, ..rows }
        };
        matrix.rows = (0..height).step_by(part).map(piece).collect();
    }
    let (pairs, stride, y_stride) = (rows * used, cols.next_multiple_of(32), each + 3);
    let few = rows <= MAX_GEMV_ROWS;
    // Of each expert as many as a row of Y has.
    let biases: Vec<Vec<f32>> = (0..count).map(|_| source.normals::<f32>(y_stride)).collect();
    let on_biases = put(gpu, &bits(&biases.concat()));
    for share in [used, 1] {
        let mut x = vec![0f32; pairs / share * stride];
        for row in x.chunks_mut(stride) {
            row[..cols].copy_from_slice(&source.normals::<f32>(cols));
        }
        let mut on_x = put(gpu, &bits(&x));
        let mut x: Vec<f64> = x.iter().map(|&x| x.into()).collect();
        if rounded {
            let to = put(gpu, &nan(pairs / share * stride / 32 * 12));
            let constants = [matrix.parts(), stride as u32 / 4, 0];
            let groups = [(matrix.parts() as usize).div_ceil(64), pairs / share, 1];
            let words = run(gpu, Shader::Round, &[(0, &on_x), (1, &to)], (2, &constants), groups, &to);
            let narrow: Vec<f32> = x.iter().map(|&x| x as f32).collect();
            (x, on_x) = (super::rounded(&narrow, &words), to);
        }
        for chosen in choices(&mut source, pairs, count) {
            let (order, mut tiles) = sorted(&chosen, count);
            tiles.push([0; 4]);
            let [on_chosen, on_order, on_tiles] =
                [&chosen[..], &order, &tiles.concat()].map(|words| put(gpu, words));
            for biased in with_bias(format) {
                let y = put(gpu, &nan(pairs * y_stride));
                let (mut got, mut names) = (Vec::new(), Vec::new());
                for part in &matrix.rows {
                    let side_by_side = if few { pairs } else { tiles.len() };
                    let (kind, of_product) = ((matrix.format, matrix.parts()), [each.min(part.rows), rows]);
                    let how = [rounded, f16, biased];
                    let (shader, groups) = Shader::product(kind, of_product, how, Some(side_by_side));
                    let constants =
                        [part.rows, matrix.parts() as usize, part.tails as usize, stride / 4, y_stride, 2]
                            .into_iter()
                            .chain([each, part.first, share])
                            .map(|n| n as u32)
                            .collect::<Vec<_>>();
                    let mut buffers = vec![(0, &part.buffer), (1, &on_x), (2, &y)];
                    if few {
                        buffers.push((4, &on_chosen));
                    } else {
                        buffers.extend([(4, &on_tiles), (5, &on_order)]);
                    }
                    buffers.extend(biased.then_some((6, &on_biases)));
                    got = floats(&run(gpu, shader, &buffers, (3, &constants), groups, &y));
                    names.push(shader);
                }
                for (pair, got) in got.chunks(y_stride).enumerate() {
                    let expert = chosen[pair] as usize;
                    let own = weights.rows(expert * each..(expert + 1) * each, cols);
                    let x = &x[pair / share * stride..][..stride];
                    let what = format!("{:?}, {count} x {each} x {cols}, pair {pair} of {pairs}", names[0]);
                    own.compare(cols, x, biased.then_some(&biases[expert]), (got, f16), &what);
                }
            }
        }
    }
}

#[test]
fn products_of_experts() {
    let Some(gpu) = gpu() else { return };
    for format in formats().map(Some).chain([None]) {
        let unit = format.map_or(32, |format| format.block_len().max(32));
        let has_codes = format.is_some_and(|format| !format.is_float());
        let shape = Shape { count: 5, each: 7, cols: unit, rows: 1, used: 3, part: 35 };
        products(&gpu, format, shape, EXACT);
        if has_codes {
            products(&gpu, format, shape, ROUNDED);
        }
        products(&gpu, format, Shape { rows: 12, used: 2, ..shape }, EXACT);
        if format.is_some() {
            products(&gpu, format, Shape { rows: 12, used: 2, ..shape }, F16);
        }
    }
    // Experts that are as many as are used, or one; more rows of weights, and of pairs, than a tile has; rows of several threads, and of no
    // whole part.
    let base = Shape { count: 4, each: 70, cols: 256, rows: 8, used: 4, part: usize::MAX };
    let shapes = [
        base,
        Shape { rows: 40, ..base },
        Shape { count: 1, used: 1, rows: 33, ..base },
        Shape { count: 1, used: 1, rows: 2, each: 1, ..base },
        Shape { count: 9, used: 2, rows: 70, each: 129, cols: 1024, ..base },
        Shape { count: 9, used: 2, rows: 7, each: 129, cols: 2048, ..base },
    ];
    for shape in shapes {
        for format in [QuantFormat::Q4K, QuantFormat::Q8_0] {
            products(&gpu, Some(format), shape, EXACT);
        }
        products(&gpu, None, Shape { cols: shape.cols + 5, ..shape }, EXACT);
        let shape = Shape { cols: shape.cols + 33, ..shape };
        for how in [EXACT, F16] {
            products(&gpu, Some(QuantFormat::F16), shape, how);
        }
    }
    for used in [1, 4] {
        products(&gpu, Some(QuantFormat::Q4K), Shape { rows: 1, used, ..base }, ROUNDED);
    }
}

/// Matrices that are split somewhere within an expert, at its end, or so that an expert is in several parts.
#[test]
fn products_of_experts_in_parts() {
    let Some(gpu) = gpu() else { return };
    for part in [5, 12, 17, 36, 59] {
        let shape = Shape { count: 5, each: 12, cols: 256, rows: 3, used: 2, part };
        for format in [None, Some(QuantFormat::Q4K)] {
            products(&gpu, format, shape, EXACT);
            products(&gpu, format, Shape { rows: 20, ..shape }, EXACT);
        }
        products(&gpu, Some(QuantFormat::Q4K), Shape { rows: 1, ..shape }, ROUNDED);
        products(&gpu, Some(QuantFormat::Q4K), Shape { rows: 20, ..shape }, F16);
    }
}

#[test]
fn what_experts_give_is_combined() {
    let Some(gpu) = gpu() else { return };
    let mut source = Source::new(24);
    for (cols, rows, used) in [(1, 1, 1), (33, 3, 2), (64, 9, 4), (1000, 2, 8)] {
        for (shared, gated) in [(false, false), (true, false), (true, true)] {
            let (delta_stride, outputs_stride, of_scores) = (cols + 3, cols + 1, 5);
            let delta = source.normals::<f32>(rows * delta_stride);
            let outputs = source.normals::<f32>(rows * used * outputs_stride);
            let factors = source.normals::<f32>(rows * used);
            let mut scores = source.normals::<f32>(rows * of_scores);
            let edges = [0.0, -100.0, 100.0, -3e38, 3e38];
            scores.chunks_mut(of_scores).zip(edges).for_each(|(row, edge)| row[of_scores - 1] = edge);
            let on = [&delta, &outputs, &factors, &scores].map(|x| put(&gpu, &bits(x)));
            let mut buffers = vec![(0, &on[0]), (1, &on[1]), (2, &on[2])];
            if gated {
                buffers.push((4, &on[3]));
            }
            let constants = [cols, delta_stride, outputs_stride, used, of_scores].map(|n| n as u32);
            let groups = [cols.div_ceil(64), rows, 1];
            let shader = Shader::Combine { shared, gated, scaled: false };
            let got = floats(&run(&gpu, shader, &buffers, (3, &constants), groups, &on[0]));
            for (row, got) in got.chunks(delta_stride).enumerate() {
                let was = &delta[row * delta_stride..][..delta_stride];
                assert_eq!(bits(&got[cols..]), bits(&was[cols..]));
                for c in 0..cols {
                    let gate = 1.0 / (1.0 + (-f64::from(scores[(row + 1) * of_scores - 1])).exp());
                    let by = if gated { gate } else { f64::from(u8::from(shared)) };
                    let first = f64::from(was[c]) * by;
                    let (mut want, mut size) = (first, first.abs());
                    for pair in row * used..(row + 1) * used {
                        let term = f64::from(factors[pair]) * f64::from(outputs[pair * outputs_stride + c]);
                        (want, size) = (want + term, size + term.abs());
                    }
                    let off = (f64::from(got[c]) - want).abs();
                    assert!(off <= 1e-6 * size + 1e-35, "{cols} columns, {row}, {c}: {} and {want}", got[c]);
                }
            }
        }
    }
}

/// Runs of one row and of several, all of it 0, and runs that do not begin with the first.
#[test]
fn pooled_rows() {
    let mut source = Source::new(25);
    for gpu in with_and_without() {
        for cols in [1usize, 7, 128, 129, 1000, 4096] {
            let stride = cols.next_multiple_of(32);
            let ends = [1, 4, 5, 47];
            let mut x = source.normals::<f32>(47 * stride);
            x[4 * stride..5 * stride].fill(0.0);
            let step: Vec<u32> = [9, 9].into_iter().chain(ends).collect();
            let on = [put(&gpu, &bits(&x)), put(&gpu, &step)];
            for (pooling, first) in
                [(Pooling::Mean, 0), (Pooling::First, 1), (Pooling::Last, 0), (Pooling::Mean, 2)]
            {
                let runs = ends.len() - first;
                let y = put(&gpu, &nan(runs * cols + 1));
                let constants = [cols, stride, 2, first].map(|n| n as u32);
                let buffers = [(0, &on[0]), (1, &y), (2, &on[1])];
                let got =
                    floats(&run(&gpu, Shader::Pool { pooling }, &buffers, (3, &constants), [runs, 1, 1], &y));
                for (i, got) in got.chunks_exact(cols).enumerate().take(runs) {
                    let run = first + i;
                    let all = if run == 0 { 0 } else { ends[run - 1] as usize }..ends[run] as usize;
                    let own = match pooling {
                        Pooling::First => all.start..all.start + 1,
                        Pooling::Last => all.end - 1..all.end,
                        _ => all,
                    };
                    let sum = |c: usize| own.clone().map(|row| f64::from(x[row * stride + c])).sum::<f64>();
                    let sums: Vec<f64> = (0..cols).map(sum).collect();
                    let length = sums.iter().map(|x| x * x).sum::<f64>().sqrt();
                    for (c, (sum, &got)) in sums.iter().zip(got).enumerate() {
                        let want = if length == 0.0 { 0.0 } else { sum / length };
                        let off = (f64::from(got) - want).abs();
                        assert!(off <= 3e-6, "{pooling:?}, {cols} columns, run {run}, {c}: {got} and {want}");
                    }
                }
                assert_eq!(got[runs * cols].to_bits(), NOT_WRITTEN);
            }
        }
    }
}
