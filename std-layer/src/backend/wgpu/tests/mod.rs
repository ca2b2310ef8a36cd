//! Every operator against an oracle in f64, on the first adapter of this machine, be it software. The cases are those that the CUDA kernels are
//! tested with, as far as there is such an operator, and others where a shader works differently.

mod attention;
mod experts;
mod recurrent;
mod rows;

use std::io::Write;
use std::ops::Range;

use gllm_kernels_core::{bf16, f16, IsaLevel, Kernels, QuantFormat, QuantRef};
use gllm_testkit::data::Source;
use gllm_testkit::quant::vectors;
use wgpu::{Buffer, BufferUsages, Features};

use super::adapter::WgpuAdapter;
use super::device::{Gpu, USEFUL};
use super::formats::Format;
use super::shaders::{Shader, MAX_GEMV_ROWS};
use super::weights;
use crate::model::Matrix as HostMatrix;

fn skipped(why: &str) {
    // Not by a macro, whose output is shown of tests that fail.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// A device; where there is no adapter, that is said.
fn gpu() -> Option<Gpu> {
    let all = WgpuAdapter::all();
    if all.is_empty() {
        skipped("there is no adapter with Vulkan, Metal or DirectX 12");
    }
    all.into_iter().next().map(|adapter| Gpu::new(adapter, u64::MAX, USEFUL).unwrap())
}

/// Devices with what shaders use where an adapter has it, and without.
fn with_and_without() -> Vec<Gpu> {
    let without = |gpu: Gpu| [Gpu::new(gpu.adapter.clone(), u64::MAX, Features::empty()).unwrap(), gpu];
    gpu().into_iter().flat_map(without).collect()
}

/// Whether a device computes in f16; if not, that is said.
fn has_f16(gpu: &Gpu) -> bool {
    if !gpu.has_f16() {
        skipped("the adapter has no arithmetic in f16");
    }
    gpu.has_f16()
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
    gpu.submit(encoder).unwrap();
    read(gpu, result)
}

/// What is in a buffer.
fn read(gpu: &Gpu, buffer: &Buffer) -> Vec<u32> {
    let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
    let mapped = gpu.buffer("test", buffer.size(), usage).unwrap();
    let mut encoder = gpu.encoder().unwrap();
    encoder.copy_buffer_to_buffer(buffer, 0, &mapped, 0, buffer.size());
    gpu.submit(encoder).unwrap();
    gpu.read(&mapped, buffer.size() / 4).unwrap()
}

fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|&word| f32::from_bits(word)).collect()
}

/// A NaN that no shader computes.
const NOT_WRITTEN: u32 = 0xffff_dead;

/// Results that are not computed must be seen.
fn nan(n: usize) -> Vec<u32> {
    vec![NOT_WRITTEN; n]
}

fn formats() -> impl Iterator<Item = QuantFormat> {
    QuantFormat::ALL.iter().copied().filter(|&format| Format::Quant(format).is_supported())
}

/// Rows of a format with what they stand for.
struct Weights {
    bytes: Vec<u8>,
    decoded: Vec<f32>,
    /// Of each weight the magnitudes of `code * scale` and of its offset: what it is off by is a share of both.
    sizes: Vec<f64>,
}

/// Blocks of another implementation's, or of any bytes: then scales are infinite, subnormal, or not numbers at times.
fn some_weights(source: &mut Source, format: QuantFormat, rows: usize, cols: usize, random: bool) -> Weights {
    let n = rows * cols / format.block_len();
    let bytes: Vec<u8> = match format {
        _ if random => (0..n * format.block_bytes()).map(|_| source.below(256) as u8).collect(),
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
    let w = QuantRef::new(&bytes, format, rows, cols).unwrap();
    let scalar = Kernels::<f32>::forced(IsaLevel::Scalar).unwrap();
    let mut decoded = vec![0f32; rows * cols];
    scalar.dequant(w, &mut decoded).unwrap();
    let sizes = if format.is_float() {
        decoded.iter().map(|&w| f64::from(w).abs()).collect()
    } else {
        let (n, group) = (rows * cols, format.group_len());
        let (mut codes, mut scales, mut offsets) = (vec![0; n], vec![0.0; n / group], vec![0.0; n / group]);
        scalar.unpack(w, &mut codes, &mut scales, &mut offsets).unwrap();
        let size = |i: usize| {
            let [scale, offset] = [scales[i / group], offsets[i / group]].map(|x| f64::from(x).abs());
            f64::from(codes[i]).abs() * scale + offset
        };
        (0..n).map(size).collect()
    };
    Weights { bytes, decoded, sizes }
}

#[test]
fn embeddings_of_every_format() {
    let Some(gpu) = gpu() else { return };
    for format in formats() {
        let mut source = Source::new(7);
        let unit = format.block_len().max(32);
        for (height, blocks, random) in
            [(1, 1, false), (9, 3, false), (5, 1024 / unit + 1, true), (3, 1, true)]
        {
            let cols = unit * blocks;
            let weights = some_weights(&mut source, format, height, cols, random);
            let w = HostMatrix::Quantised(QuantRef::new(&weights.bytes, format, height, cols).unwrap());
            let matrix = weights::matrix(&gpu, &[w]).unwrap();
            let rows = &matrix.rows[0];
            let tokens = [height as u32 / 2, 0, height as u32 - 1, 0, height as u32, u32::MAX];
            // Some tables lack rows of the last tokens.
            let last = if height == 5 { 2 } else { u32::MAX };
            let constants = [
                rows.first as u32,
                rows.rows as u32,
                matrix.parts(),
                rows.tails,
                cols as u32,
                cols as u32,
                2f32.to_bits(),
                last,
            ];
            let groups = [(matrix.parts() as usize).div_ceil(64), tokens.len(), 1];
            let (kind, before) = (source.normals::<f32>(cols), source.normals::<f32>(tokens.len() * cols));
            let [on_tokens, on_kind] = [&tokens[..], &bits(&kind)].map(|words| put(&gpu, words));
            for (token_type, add) in with_additions(format) {
                let before = if add { bits(&before) } else { nan(tokens.len() * cols) };
                let y = put(&gpu, &before);
                let mut buffers = vec![(0, &rows.buffer), (1, &on_tokens), (2, &y)];
                buffers.extend(token_type.then_some((4, &on_kind)));
                let shader = Shader::Embed { format: matrix.format, token_type, add, drafts: false };
                let got = run(&gpu, shader, &buffers, (3, &constants), groups, &y);
                for (i, (&token, row)) in tokens.iter().zip(got.chunks(cols)).enumerate() {
                    let token = if token > last { 0 } else { token };
                    for (c, &x) in row.iter().enumerate() {
                        let (at, before) = (token as usize * cols + c, before[i * cols + c]);
                        // Tokens whose rows are elsewhere are left to those who have them.
                        let Some(&want) = weights.decoded.get(at).filter(|_| (token as usize) < height)
                        else {
                            assert_eq!(x, before, "{format:?}: {i}, {c}");
                            continue;
                        };
                        let more = [(token_type, kind[c]), (add, f32::from_bits(before))];
                        let more = more.map(|(is, x)| if is { x } else { 0.0 });
                        let (x, want) = (f32::from_bits(x), 2.0 * want + more[0] + more[1]);
                        // Offsets may be added before the product with the scale is rounded, and subnormal results may be 0.
                        let sizes = 2.0 * weights.sizes[at] + f64::from(more[0].abs() + more[1].abs());
                        let bound = 2.5e-7 * sizes + 16.0 * f64::from(f32::MIN_POSITIVE);
                        let near = (f64::from(x) - f64::from(want)).abs() <= bound;
                        let same = x == want || (x.is_nan() && want.is_nan());
                        assert!(near || same, "{shader:?}, random {random}: {i}, {c}: {x:e}, not {want:e}");
                    }
                }
            }
        }
    }
}

/// Whether a token type's row is added to embeddings, and what was there before: nothing, and either in one case, as they have nothing to do with formats.
fn with_additions(format: QuantFormat) -> impl Iterator<Item = (bool, bool)> {
    let all = [(false, false), (true, false), (false, true)];
    all.into_iter().take(if format == QuantFormat::F16 { 3 } else { 1 })
}

/// Without biases, and with them in some cases: they have nothing to do with formats.
fn with_bias(format: Option<QuantFormat>) -> impl Iterator<Item = bool> {
    let both = matches!(format, None | Some(QuantFormat::Q4K));
    [false, true].into_iter().take(if both { 2 } else { 1 })
}

/// Products of rows, as many as `numbers` says, with a matrix: of many rows in f16, too, where the device has it.
fn products(gpu: &Gpu, format: Option<QuantFormat>, [rows, cols]: [usize; 2], numbers: &[usize]) {
    let mut source = Source::new(11);
    let weights = match format {
        Some(format) => some_weights(&mut source, format, rows, cols, false),
        None => Weights::dense(source.normals::<f32>(rows * cols)),
    };
    let w = match format {
        Some(format) => HostMatrix::Quantised(QuantRef::new(&weights.bytes, format, rows, cols).unwrap()),
        None => HostMatrix::F32(gllm_kernels_core::MatRef::new(&weights.decoded, rows, cols).unwrap()),
    };
    let matrix = weights::matrix(gpu, &[w]).unwrap();
    let part = &matrix.rows[0];
    let stride = cols.next_multiple_of(32);
    for &n in numbers {
        let (room, y_stride) = (n.next_multiple_of(32), rows + 3);
        let mut x = vec![0f32; room * stride];
        for row in x.chunks_mut(stride).take(n) {
            row[..cols].copy_from_slice(&source.normals::<f32>(cols));
            row[..if cols > 32 { 32 } else { 0 }].fill(0.0);
        }
        // Rows that are larger than what f16 can hold, or smaller.
        for (row, by) in x.chunks_mut(stride).zip([1.0, 1e6, 1e30, 1e-20].into_iter().cycle()) {
            row.iter_mut().for_each(|x| *x *= by);
        }
        let on_x = put(gpu, &bits(&x));
        let bias = source.normals::<f32>(y_stride);
        let on_bias = put(gpu, &bits(&bias));
        let check = |[rounded, f16]: [bool; 2], x: &[f64], on_x: &Buffer| {
            for biased in with_bias(format) {
                let y = put(gpu, &nan(room * y_stride));
                let how = [rounded, f16, biased];
                let (shader, groups) = Shader::product((matrix.format, matrix.parts()), [rows, n], how, None);
                let constants =
                    [rows as u32, matrix.parts(), part.tails, stride as u32 / 4, y_stride as u32, 2, 0, 0];
                let mut buffers = vec![(0, &part.buffer), (1, on_x), (2, &y)];
                buffers.extend(biased.then_some((6, &on_bias)));
                let got = floats(&run(gpu, shader, &buffers, (3, &constants), groups, &y));
                let what = format!("{shader:?}, {rows} x {cols}, {n} rows");
                for (x, got) in x.chunks(stride).zip(got.chunks(y_stride)).take(n) {
                    weights.compare(cols, x, biased.then_some(&bias), (got, f16), &what);
                }
            }
        };
        let wide: Vec<f64> = x.iter().map(|&x| x.into()).collect();
        check([false, false], &wide, &on_x);
        if n > MAX_GEMV_ROWS && gpu.has_f16() {
            check([false, true], &wide, &on_x);
        }
        if n == 1 && matrix.format.has_codes() {
            let to = put(gpu, &nan(stride / 32 * 12));
            let constants = [matrix.parts(), 0, 0];
            let groups = [(matrix.parts() as usize).div_ceil(64), 1, 1];
            let words = run(gpu, Shader::Round, &[(0, &on_x), (1, &to)], (2, &constants), groups, &to);
            check([true, false], &rounded(&x[..stride], &words), &to);
        }
    }
}

/// What numbers were rounded to, if it is what they had to be rounded to.
fn rounded(x: &[f32], words: &[u32]) -> Vec<f64> {
    let part = |(x, words): (&[f32], &[u32])| {
        let top = x.iter().fold(0f32, |m, x| m.max(x.abs()));
        let [scale, sums @ ..] = [8, 9, 10].map(|i| f32::from_bits(words[i]));
        assert!((scale - top / 127.0).abs() <= 1e-7 * scale, "{scale} for {top}");
        let codes: Vec<i8> = words[..8].iter().flat_map(|w| w.to_le_bytes()).map(|b| b as i8).collect();
        for (half, sum) in codes.chunks(16).zip(sums) {
            assert_eq!(half.iter().map(|&c| f32::from(c)).sum::<f32>(), sum);
        }
        for (&x, &code) in x.iter().zip(&codes) {
            let off = f64::from(x) - f64::from(code) * f64::from(scale);
            assert!(off.abs() <= 0.50001 * f64::from(scale), "{x} is {code} times {scale}");
        }
        codes.into_iter().map(move |code| f64::from(code) * f64::from(scale))
    };
    x.chunks(32).zip(words.chunks(12)).flat_map(part).collect()
}

impl Weights {
    /// Floating point.
    fn dense(decoded: Vec<f32>) -> Self {
        let sizes = decoded.iter().map(|&w| f64::from(w).abs()).collect();
        Self { bytes: Vec::new(), decoded, sizes }
    }

    /// What some of their rows stand for.
    fn rows(&self, rows: Range<usize>, cols: usize) -> Self {
        let own = rows.start * cols..rows.end * cols;
        Self {
            bytes: Vec::new(),
            decoded: self.decoded[own.clone()].to_vec(),
            sizes: self.sizes[own].to_vec(),
        }
    }

    /// A row of products with a row of activations, plus biases that lie like these products, if there are any: from the third on, with nothing
    /// written around them.
    fn compare(
        &self,
        cols: usize,
        x: &[f64],
        bias: Option<&Vec<f32>>,
        (got, f16): (&[f32], bool),
        what: &str,
    ) {
        let rows = self.decoded.len() / cols;
        assert!([0, 1, rows + 2].iter().all(|&i| got[i].to_bits() == NOT_WRITTEN), "{what}");
        for (r, &got) in got[2..rows + 2].iter().enumerate() {
            let of_row = r * cols..(r + 1) * cols;
            let product: f64 =
                self.decoded[of_row.clone()].iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum();
            let sizes = &self.sizes[of_row];
            let bias = bias.map_or(0.0, |bias| f64::from(bias[r + 2]));
            let want = product + bias;
            let size = sizes.iter().zip(x).map(|(w, x)| w * x.abs()).sum::<f64>() + bias.abs();
            // A thread's sums over 32 columns, over its parts, then those of threads.
            let mut bound = size * (48 + cols / 128) as f64 * 2f64.powi(-24);
            if f16 {
                let top = |all: &[f64]| all.iter().fold(0f64, |m, x| m.max(x.abs()));
                let tops = sizes.chunks(32).zip(x.chunks(32)).map(|(w, x)| top(w) * top(x));
                // Operands, a product, and eight sums are rounded. Where subnormal numbers are 0, what is lost of an operand is 2^-18 of the
                // largest, which is 16 at least.
                bound += 11.1 * 2f64.powi(-11) * size + 33.0 * 2f64.powi(-17) * tops.sum::<f64>();
            }
            assert!((f64::from(got) - want).abs() <= bound, "{what}: {r}: {got} instead of {want}");
        }
    }
}

#[test]
fn products_of_every_format() {
    let Some(gpu) = gpu() else { return };
    has_f16(&gpu);
    // Compiling shaders takes most of the time: every format with some numbers of rows, and some formats with all of them.
    for format in formats() {
        let unit = format.block_len().max(32);
        let shapes = [
            (1, 1, 1),
            (3, 1024 / unit, 3),
            (9, 1024 / unit + 1, 3),
            (5, 5 * 1024 / unit + 3, 1),
            (67, 2, 33),
        ];
        for (rows, blocks, n) in shapes {
            products(&gpu, Some(format), [rows, blocks * unit], &[n]);
        }
    }
    for format in [QuantFormat::Q4K, QuantFormat::Q6K, QuantFormat::Q8_0] {
        let unit = format.block_len().max(32);
        for (rows, blocks) in [(1, 1), (3, 1024 / unit), (9, 1024 / unit + 1), (130, 1)] {
            products(&gpu, Some(format), [rows, blocks * unit], &[1, 2, 3, 4, 5, 6, 7, 8]);
        }
        for (rows, blocks, n) in [(1, 1, 9), (128, 1, 64), (3, 96usize.div_ceil(unit), 130)] {
            products(&gpu, Some(format), [rows, blocks * unit], &[n]);
        }
    }
    // Rows that are no whole parts, too.
    for format in [None, Some(QuantFormat::F16), Some(QuantFormat::Bf16)] {
        for cols in [1, 31, 33, 100] {
            products(&gpu, format, [5, cols], &[2]);
            products(&gpu, format, [70, cols], &[40]);
        }
        for (n, rows, cols) in
            [(1, 1, 8), (1, 37, 512), (2, 9, 264), (3, 33, 1032), (5, 20, 72), (8, 67, 2048)]
        {
            products(&gpu, format, [rows, cols], &[n]);
        }
    }
}
