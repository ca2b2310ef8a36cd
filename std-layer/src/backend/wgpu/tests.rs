//! Every operator against an oracle in f64, on the first adapter of this machine, be it software.

use std::io::Write;

use gllm_kernels_core::{bf16, f16, QuantFormat, QuantRef, RopePairing};
use gllm_testkit::data::Source;
use gllm_testkit::quant::vectors;
use wgpu::{Buffer, BufferUsages};

use super::adapter::WgpuAdapter;
use super::device::Gpu;
use super::shaders::{rows_of_thread, CacheShape, Format, Shader};
use super::weights;
use crate::backend::KvType;
use crate::model::{Gate, Matrix as HostMatrix};

/// A device; where there is no adapter, that is said.
fn gpu() -> Option<Gpu> {
    let all = WgpuAdapter::all();
    if all.is_empty() {
        // Not by a macro, whose output is shown of tests that fail.
        let _ = writeln!(std::io::stderr(), "SKIPPED: there is no adapter with Vulkan, Metal or DirectX 12");
    }
    all.into_iter().next().map(|adapter| Gpu::new(adapter, u64::MAX).unwrap())
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

fn put(gpu: &Gpu, words: &[u32]) -> Buffer {
    let buffer = gpu.storage("test", 4 * words.len() as u64).unwrap();
    gpu.write(&buffer, 0, words).unwrap();
    buffer
}

/// Runs a shader; what is in a buffer then.
fn run(
    gpu: &Gpu,
    shader: Shader,
    buffers: &[(u32, &Buffer)],
    constants: (u32, &[u32]),
    groups: [usize; 3],
    result: &Buffer,
) -> Vec<u32> {
    let pipeline = gpu.pipeline(shader).unwrap();
    let bound = gpu.bind(&pipeline, buffers, constants).unwrap();
    let mut encoder = gpu.encoder().unwrap();
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &bound, &[]);
    let [x, y, z] = groups.map(|n| n as u32);
    pass.dispatch_workgroups(x, y, z);
    drop(pass);
    let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
    let mapped = gpu.buffer("test", result.size(), usage).unwrap();
    encoder.copy_buffer_to_buffer(result, 0, &mapped, 0, result.size());
    gpu.submit(encoder).unwrap();
    gpu.read(&mapped, result.size() / 4).unwrap()
}

fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|&word| f32::from_bits(word)).collect()
}

/// Results that are not computed must be seen.
fn nan(n: usize) -> Vec<u32> {
    vec![f32::NAN.to_bits(); n]
}

fn formats() -> impl Iterator<Item = QuantFormat> {
    QuantFormat::ALL.iter().copied().filter(|&format| Format::Quant(format).is_supported())
}

/// Rows of a format, and the numbers that they stand for.
fn some_weights(source: &mut Source, format: QuantFormat, rows: usize, cols: usize) -> (Vec<u8>, Vec<f32>) {
    let n = rows * cols / format.block_len();
    let bytes: Vec<u8> = match format {
        QuantFormat::F16 => source.normals::<f16>(n).iter().flat_map(|x| x.to_bits().to_le_bytes()).collect(),
        QuantFormat::Bf16 => {
            source.normals::<bf16>(n).iter().flat_map(|x| x.to_bits().to_le_bytes()).collect()
        }
        _ => {
            let from = vectors(format).unwrap();
            let blocks: Vec<&[u8]> = from.blocks.chunks_exact(format.block_bytes()).collect();
            (0..n).flat_map(|_| blocks[source.below(blocks.len())].iter().copied()).collect()
        }
    };
    let mut decoded = vec![0f32; rows * cols];
    crate::kernels::<f32>()
        .dequant(QuantRef::new(&bytes, format, rows, cols).unwrap(), &mut decoded)
        .unwrap();
    (bytes, decoded)
}

#[test]
fn embeddings_of_every_format() {
    let Some(gpu) = gpu() else { return };
    for format in formats() {
        let mut source = Source::new(7);
        let cols = format.block_len().max(32) * 3;
        let (bytes, decoded) = some_weights(&mut source, format, 9, cols);
        let w = HostMatrix::Quantised(QuantRef::new(&bytes, format, 9, cols).unwrap());
        let matrix = weights::matrix(&gpu, &[w]).unwrap();
        let rows = &matrix.rows[0];
        let tokens = [3u32, 0, 8, 3, 9, u32::MAX];
        let y = put(&gpu, &nan(tokens.len() * cols));
        let constants =
            [rows.first as u32, 9, matrix.parts(), rows.tails, cols as u32, cols as u32, 2f32.to_bits()];
        let buffers = [(0, &rows.buffer), (1, &put(&gpu, &tokens)), (2, &y)];
        let groups = [(matrix.parts() as usize).div_ceil(64), tokens.len(), 1];
        let shader = Shader::Embed { format: matrix.format };
        let got = floats(&run(&gpu, shader, &buffers, (3, &constants), groups, &y));
        for (i, (&token, row)) in tokens.iter().zip(got.chunks(cols)).enumerate() {
            for (c, &x) in row.iter().enumerate() {
                // Tokens whose rows are elsewhere are left to those who have them.
                let Some(&want) = decoded.get(token as usize * cols + c).filter(|_| token < 9) else {
                    assert!(x.is_nan(), "{format:?}: {i}, {c}: {x}");
                    continue;
                };
                // Offsets may be added before the product with the scale is rounded.
                let largest = decoded.iter().fold(0f32, |m, x| m.max(x.abs()));
                let error = (x - 2.0 * want).abs();
                assert!(error <= 1e-6 * largest, "{format:?}: {i}, {c}: {x} instead of {}", 2.0 * want);
            }
        }
    }
}

/// Products of `n` rows with a matrix, by the shader for a few rows or the one for many.
fn product(gpu: &Gpu, format: Option<QuantFormat>, [rows, cols, n]: [usize; 3], many: bool) {
    let mut source = Source::new(11);
    let (bytes, decoded) = match format {
        Some(format) => some_weights(&mut source, format, rows, cols),
        None => (Vec::new(), source.normals::<f32>(rows * cols)),
    };
    let w = match format {
        Some(format) => HostMatrix::Quantised(QuantRef::new(&bytes, format, rows, cols).unwrap()),
        None => HostMatrix::F32(gllm_kernels_core::MatRef::new(&decoded, rows, cols).unwrap()),
    };
    let matrix = weights::matrix(gpu, &[w]).unwrap();
    let part = &matrix.rows[0];
    let stride = cols.next_multiple_of(32);
    let (room, y_stride) = (n.next_multiple_of(32), rows + 3);
    let mut x = vec![0f32; room * stride];
    for row in x.chunks_mut(stride).take(n) {
        row[..cols].copy_from_slice(&source.normals::<f32>(cols));
    }
    let y = put(gpu, &nan(room * y_stride));
    let (shader, groups) = if many {
        (Shader::LinearMany { format: matrix.format }, [rows.div_ceil(64), n.div_ceil(32), 1])
    } else {
        let (few, lanes) = (n.next_power_of_two() as u32, 16);
        let together = 64 / 16 * rows_of_thread(few) as usize;
        let shader = Shader::LinearFew { format: matrix.format, n: few, lanes };
        (shader, [rows.div_ceil(together), 1, 1])
    };
    let constants = [rows as u32, matrix.parts(), part.tails, stride as u32 / 4, y_stride as u32, 2, 0, 0];
    let buffers = [(0, &part.buffer), (1, &put(gpu, &bits(&x))), (2, &y)];
    let got = floats(&run(gpu, shader, &buffers, (3, &constants), groups, &y));
    for (i, (x, got)) in x.chunks(stride).zip(got.chunks(y_stride)).enumerate().take(n) {
        assert!(got[0].is_nan() && got[1].is_nan() && got[rows + 2].is_nan());
        for (r, (w, &got)) in decoded.chunks(cols).zip(&got[2..]).enumerate() {
            let terms = || w.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x));
            let (want, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
            // Offsets and codes are multiplied apart: both may be larger than the weight.
            let largest = decoded.iter().fold(0f32, |m, x| m.max(x.abs()));
            let of_x: f64 = x.iter().map(|&x| f64::from(x.abs())).sum();
            let bound = 1e-6 * (size + f64::from(largest) * of_x);
            let what = format!("{format:?}, {rows} x {cols}, {n} rows, many {many}: {i}, {r}");
            assert!((f64::from(got) - want).abs() <= bound, "{what}: {got} instead of {want}");
        }
    }
}

#[test]
fn products_of_every_format() {
    let Some(gpu) = gpu() else { return };
    for format in formats() {
        let unit = format.block_len().max(32);
        for (rows, blocks, n) in [(1, 1, 1), (67, 3, 1), (130, 1, 3), (33, 5, 8)] {
            product(&gpu, Some(format), [rows, blocks * unit, n], false);
        }
        for (rows, blocks, n) in [(1, 1, 9), (67, 2, 33), (128, 1, 64)] {
            product(&gpu, Some(format), [rows, blocks * unit, n], true);
        }
    }
    // Rows that are no whole parts.
    for format in [None, Some(QuantFormat::F16), Some(QuantFormat::Bf16)] {
        for cols in [1, 31, 33, 100] {
            product(&gpu, format, [5, cols, 2], false);
            product(&gpu, format, [70, cols, 40], true);
        }
    }
}

#[test]
fn norms() {
    let Some(gpu) = gpu() else { return };
    let mut source = Source::new(5);
    let eps = 1e-5f32;
    for (rows, cols) in [(1usize, 1usize), (2, 33), (3, 576), (2, 4100)] {
        for (add, post) in [(false, false), (true, false), (true, true)] {
            let stride = cols.next_multiple_of(32);
            let [hidden, delta] = [(); 2].map(|()| source.normals::<f32>(rows * stride));
            let [weight, of_post] = [(); 2].map(|()| source.normals::<f32>(cols));
            let norm = |x: &[f64], w: &[f32]| -> Vec<f64> {
                let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
                let by = 1.0 / (mean + f64::from(eps)).sqrt();
                x.iter().zip(w).map(|(x, &w)| x * by * f64::from(w)).collect()
            };
            let wide = |x: &[f32]| x[..cols].iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
            let y = put(&gpu, &nan(rows * stride));
            let on = [&hidden, &delta, &weight, &of_post].map(|x| put(&gpu, &bits(x)));
            let mut buffers = vec![(0, &on[0]), (1, &on[2]), (2, &y)];
            if add {
                buffers.push((4, &on[1]));
            }
            if post {
                buffers.push((5, &on[3]));
            }
            let constants = [cols as u32, stride as u32, eps.to_bits()];
            let shader = Shader::Norm { add, post };
            let got = floats(&run(&gpu, shader, &buffers, (3, &constants), [rows, 1, 1], &y));
            for row in 0..rows {
                let mut x = wide(&hidden[row * stride..]);
                let mut d = wide(&delta[row * stride..]);
                if post {
                    d = norm(&d, &of_post);
                }
                if add {
                    x.iter_mut().zip(&d).for_each(|(x, d)| *x += d);
                }
                for (c, (want, &got)) in norm(&x, &weight).iter().zip(&got[row * stride..]).enumerate() {
                    let error = (f64::from(got) - want).abs();
                    assert!(
                        error <= 3e-6 * want.abs().max(1.0),
                        "{rows} x {cols}, {add}, {post}: {row}, {c}"
                    );
                }
            }
        }
    }
}

#[test]
fn gates_and_caps() {
    let Some(gpu) = gpu() else { return };
    let mut source = Source::new(6);
    let cols = 100;
    let mut x: Vec<f32> = source.normals::<f32>(2 * 2 * cols).iter().map(|x| 3.0 * x).collect();
    // Where exponentials overflow, or are 0.
    x[..6].copy_from_slice(&[0.0, -0.0, 90.0, -90.0, 3e4, -3e4]);
    for gate in [Gate::Silu, Gate::GeluTanh] {
        let y = put(&gpu, &nan(2 * 128));
        let constants = [cols as u32, 2 * cols as u32, 128];
        let buffers = [(0, &put(&gpu, &bits(&x))), (1, &y)];
        let got = floats(&run(&gpu, Shader::Glu { gate }, &buffers, (2, &constants), [2, 2, 1], &y));
        for (x, got) in x.chunks(2 * cols).zip(got.chunks(128)) {
            for c in 0..cols {
                let (g, up) = (f64::from(x[c]), f64::from(x[cols + c]));
                let want = up
                    * match gate {
                        Gate::Silu => g / (1.0 + (-g).exp()),
                        Gate::GeluTanh => {
                            let u = (2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g * g * g);
                            0.5 * g * (1.0 + u.tanh())
                        }
                    };
                let error = (f64::from(got[c]) - want).abs();
                assert!(
                    error <= 1e-5 * want.abs().max(1e-2),
                    "{gate:?}({g}) * {up}: {} instead of {want}",
                    got[c]
                );
            }
        }
    }
    let on = put(&gpu, &bits(&x));
    let constants = [2 * cols as u32, 2 * cols as u32, 30f32.to_bits()];
    let got = floats(&run(&gpu, Shader::Cap, &[(0, &on)], (1, &constants), [4, 2, 1], &on));
    for (&x, got) in x.iter().zip(got) {
        let want = 30.0 * (f64::from(x) / 30.0).tanh();
        assert!((f64::from(got) - want).abs() <= 1e-4, "{x}: {got} instead of {want}");
    }
}

/// Rotation, norms and biases in front of attention, and attention over pages in any order: of a run with some positions, with windows, caps and
/// every type of cache; by pieces and at once.
#[test]
fn attention_over_pages() {
    let Some(gpu) = gpu() else { return };
    let kinds = [(KvType::F32, 2e-5), (KvType::F16, 2e-3), (KvType::Bf16, 2e-2)];
    for (case, (heads, kv_heads, dim, window, softcap, adjacent)) in [
        (4, 2, 32, 0, 0.0, false),
        (9, 3, 64, 100, 0.0, true),
        (5, 1, 128, 0, 20.0, false),
        (4, 1, 256, 70, 0.0, true),
        (3, 3, 80, 1, 5.0, false),
    ]
    .into_iter()
    .enumerate()
    {
        for (kind, bound) in kinds {
            for (bias, norm) in [(false, false), (true, true)] {
                let page = [16, 64, 48][case % 3];
                let shape = CacheShape {
                    kind,
                    heads: heads as u32,
                    kv_heads: kv_heads as u32,
                    pairs: dim as u32 / 2,
                    page_tokens: page as u32,
                };
                let what = format!("case {case}, {kind:?}, bias {bias}, norm {norm}");
                attention(&gpu, shape, (window, softcap, adjacent), (bias, norm), bound, &what);
            }
        }
    }
}

fn attention(
    gpu: &Gpu,
    shape: CacheShape,
    (window, softcap, adjacent): (usize, f32, bool),
    (bias, norm): (bool, bool),
    bound: f64,
    what: &str,
) {
    let mut source = Source::new(9);
    let [heads, kv_heads, dim] = [shape.heads, shape.kv_heads, 2 * shape.pairs].map(|n| n as usize);
    let (page, positions, eps) = (shape.page_tokens as usize, 300, 1e-5f32);
    let width = (heads + 2 * kv_heads) * dim;
    let stride = width.next_multiple_of(32);
    let half = dim / 4;
    let x = source.normals::<f32>(positions * stride);
    let biases = source.normals::<f32>(width);
    let weights: Vec<f32> = source.normals::<f32>(2 * dim).iter().map(|x| 1.0 + 0.2 * x).collect();
    let angles: Vec<f32> = (0..positions * half)
        .flat_map(|i| {
            let angle = (i / half) as f64 * 0.7f64.powi((i % half) as i32);
            [angle.cos() as f32, angle.sin() as f32]
        })
        .collect();
    // Pages of the second of two runs, in a random order.
    let table_len = positions.div_ceil(page);
    let mut numbers: Vec<u32> = (0..table_len as u32).collect();
    for i in 0..table_len {
        numbers.swap(i, source.below(table_len));
    }
    let mut step: Vec<u32> = (0..positions as u32).collect();
    step.extend(std::iter::repeat_n(1, positions));
    step.extend(std::iter::repeat_n(u32::MAX, table_len));
    step.extend(&numbers);
    let words = if shape.kind == KvType::F32 { 2 } else { 1 };
    let cache = put(gpu, &vec![u32::MAX; 2 * table_len * kv_heads * page * dim / 2 * words]);
    let (on_x, step) = (put(gpu, &bits(&x)), put(gpu, &step));
    let [runs_at, table_at] = [positions as u32, 2 * positions as u32];
    let place = [runs_at, table_at, table_len as u32, table_len as u32];
    let pairing = if adjacent { RopePairing::Adjacent } else { RopePairing::HalfSplit };
    let on = [&angles, &biases, &weights].map(|x| put(gpu, &bits(x)));
    let mut buffers = vec![(0, &on_x), (1, &cache), (2, &step), (3, &on[0])];
    buffers.extend(bias.then_some((5, &on[1])));
    buffers.extend(norm.then_some((6, &on[2])));
    let constants = [&[stride as u32, eps.to_bits(), half as u32][..], &place].concat();
    let shader = Shader::Heads { shape, bias, norm, pairing };
    let groups = [heads + 2 * kv_heads, positions, 1];
    run(gpu, shader, &buffers, (4, &constants), groups, &on_x);

    // The oracle's queries, keys and values.
    let head = |row: usize, head: usize| -> Vec<f64> {
        let at = head * dim;
        let mut v: Vec<f64> = (0..dim)
            .map(|i| f64::from(x[row * stride + at + i]) + if bias { f64::from(biases[at + i]) } else { 0.0 })
            .collect();
        if head >= heads + kv_heads {
            return v;
        }
        if norm {
            let by = 1.0 / (v.iter().map(|x| x * x).sum::<f64>() / dim as f64 + f64::from(eps)).sqrt();
            let first = if head < heads { 0 } else { dim };
            v.iter_mut().zip(&weights[first..]).for_each(|(v, &w)| *v *= by * f64::from(w));
        }
        for i in 0..half {
            let (p, q) = if adjacent { (2 * i, 2 * i + 1) } else { (i, i + half) };
            let [c, s] = [0, 1].map(|k| f64::from(angles[2 * (row * half + i) + k]));
            (v[p], v[q]) = (v[p] * c - v[q] * s, v[p] * s + v[q] * c);
        }
        v
    };
    let all: Vec<Vec<Vec<f64>>> =
        (0..positions).map(|row| (0..heads + 2 * kv_heads).map(|h| head(row, h)).collect()).collect();
    let scale = 1.0 / (dim as f32).sqrt();
    let want = |row: usize, h: usize| -> Vec<f64> {
        let kv = h / (heads / kv_heads);
        let q = &all[row][h];
        let first = if window == 0 { 0 } else { (row + 1).saturating_sub(window) };
        let dot = |p: usize| all[p][heads + kv].iter().zip(q).map(|(k, q)| k * q).sum::<f64>();
        let cap = |s: f64| {
            let cap = f64::from(softcap);
            if cap == 0.0 {
                s
            } else {
                cap * (s / cap).tanh()
            }
        };
        let scores: Vec<f64> = (first..=row).map(|p| cap(dot(p) * f64::from(scale))).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|s| (s - top).exp()).sum();
        let mut mixed = vec![0.0; dim];
        for (p, s) in (first..=row).zip(&scores) {
            let weight = (s - top).exp() / sum;
            mixed.iter_mut().zip(&all[p][heads + kv_heads + kv]).for_each(|(a, v)| *a += weight * v);
        }
        mixed
    };
    let mixed_stride = (heads * dim).next_multiple_of(32);
    let (_, chunks) = shape.chunks();
    let (piece, pieces) = (128, positions.div_ceil(128));
    for in_pieces in [false, true] {
        let mixed = put(gpu, &nan(positions * mixed_stride));
        let partial = put(gpu, &nan(if in_pieces { positions * heads * pieces * (dim + 2) } else { 4 }));
        let constants = [
            &[stride as u32, mixed_stride as u32, scale.to_bits(), softcap.to_bits(), window as u32][..],
            &place,
            &[piece, pieces as u32],
        ]
        .concat();
        let results = if in_pieces { &partial } else { &mixed };
        let buffers = [(0, &on_x), (1, &cache), (2, &step), (3, results)];
        let groups = [if in_pieces { pieces } else { 1 }, kv_heads * chunks as usize, positions];
        let shader = Shader::Attend { shape, pieces: in_pieces };
        let mut got = run(gpu, shader, &buffers, (4, &constants), groups, results);
        if in_pieces {
            let constants = [mixed_stride as u32, window as u32, piece, pieces as u32];
            let buffers = [(0, &partial), (1, &step), (2, &mixed)];
            got = run(gpu, Shader::Join { shape }, &buffers, (3, &constants), [heads, positions, 1], &mixed);
        }
        let got = floats(&got);
        for row in [0, 1, 15, 16, 63, 64, 127, 128, 255, 256, 299] {
            for h in 0..heads {
                for (i, (want, &got)) in
                    want(row, h).iter().zip(&got[row * mixed_stride + h * dim..]).enumerate()
                {
                    let error = (f64::from(got) - want).abs();
                    let what = format!("{what}, pieces {in_pieces}: row {row}, head {h}, element {i}");
                    assert!(error <= bound * want.abs().max(1.0), "{what}: {got} instead of {want}");
                }
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
