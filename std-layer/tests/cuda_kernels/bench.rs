//! What kernels reach on a GPU, as a share of what copying memory there reaches.

use gllm_kernels_std::core::{bf16, f16, ElementType, GptqZeros, Precision, QuantFormat, Softmax};
use gllm_kernels_std::cuda::{
    Activations, Buffer, CudaError, Decode, DecodeRoom, Driver, Event, GroupedLayout, GroupedParts,
    GroupedView, KvCache, KvFormat, KvShape, Mask, Norm, PageTables, Prefill, QuantView, SamplingRoom,
    SamplingTable, Split,
};
use gllm_kernels_std::model::Sampling;
use gllm_testkit::quant::vectors;

use super::{context, source, text, Gpu, Outcome};

/// Bytes that are worked on in turn: several times the largest L2 cache, so that nothing is found there.
const ROUND: usize = 512 << 20;

/// Microseconds of one of `work`'s launches: the median of nine replays of all of them.
fn time(gpu: &Gpu, launches: usize, work: impl FnOnce() -> Result<(), CudaError>) -> Result<f64, String> {
    let mut graph = gpu.stream.capture(work).map_err(text)?;
    let (before, after) = (Event::new(context()).map_err(text)?, Event::new(context()).map_err(text)?);
    let mut times = Vec::new();
    for _ in 0..12 {
        before.record(&gpu.stream).map_err(text)?;
        // SAFETY: the caller's buffers exist until it has the result.
        unsafe { graph.launch(&gpu.stream) }.map_err(text)?;
        after.record(&gpu.stream).map_err(text)?;
        gpu.stream.wait().map_err(text)?;
        times.push(f64::from(after.ms_since(&before).map_err(text)?));
    }
    // The first three warm up.
    let mut times = times.split_off(3);
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2] * 1e3 / launches as f64)
}

/// Prints rows, each with its share of the speed of copying.
struct Table {
    copy: f64,
}

impl Table {
    fn row(&self, name: &str, microseconds: f64, bytes: usize) {
        let speed = bytes as f64 / microseconds / 1e3;
        println!("{name:<44} {microseconds:>10.2} us {speed:>9.1} GB/s {:>6.1} %", 100.0 * speed / self.copy);
    }
}

/// Numbers on the GPU, other ones everywhere.
fn numbers<T: gllm_kernels_std::cuda::Float>(gpu: &Gpu, n: usize) -> Result<Buffer<T>, String> {
    let mut some: Vec<T> = source("bench").normals(n.min(1 << 20));
    while some.len() < n {
        some.extend_from_within(..some.len().min(n - some.len()));
    }
    gpu.put(&some)
}

fn copies(gpu: &Gpu) -> Result<Table, String> {
    let n = 256 << 20;
    let x = gpu.put(&(0..n).map(|i| (i * 7 % 251) as u8).collect::<Vec<_>>())?;
    let mut y = Buffer::<u8>::new(context(), n).map_err(text)?;
    let us = time(gpu, 1, || y.copy_from(&gpu.stream, &x))?;
    let table = Table { copy: 2.0 * n as f64 / us / 1e3 };
    table.row("copy, 256 MiB", us, 2 * n);
    Ok(table)
}

fn elements(gpu: &Gpu, table: &Table) -> Outcome {
    let (n, cols) = (128 << 20, 4096);
    let (x, z) = (numbers::<bf16>(gpu, n)?, numbers::<bf16>(gpu, n)?);
    let mut y = Buffer::<bf16>::new(context(), n).map_err(text)?;
    let (ops, stream) = (gpu.ops, &gpu.stream);
    let mut row =
        |name: &str, streams: usize, work: &mut dyn FnMut(&mut Buffer<bf16>) -> Result<(), CudaError>| {
            let us = time(gpu, 1, || work(&mut y))?;
            table.row(&format!("{name}, bf16, 256 MiB"), us, streams * 2 * n);
            Ok::<(), String>(())
        };
    row("silu", 2, &mut |y| ops.silu(stream, &x, y))?;
    row("gelu", 2, &mut |y| ops.gelu(stream, &x, y))?;
    row("vec_add", 3, &mut |y| ops.vec_add(stream, &x, &z, y))?;
    row("swiglu", 3, &mut |y| ops.swiglu(stream, &x, &z, y))?;
    let norm = Norm { weight: None, bias: None, eps: 1e-5 };
    row("rms_norm, rows of 4096", 2, &mut |y| ops.rms_norm(stream, cols, norm, &x, y))?;
    row("layer_norm, rows of 4096", 2, &mut |y| ops.layer_norm(stream, cols, norm, &x, y))?;
    row("softmax, rows of 4096", 2, &mut |y| ops.softmax(stream, cols, Softmax::default(), &x, y))
}

fn products(gpu: &Gpu, table: &Table) -> Outcome {
    for format in super::quant::formats() {
        let blocks = vectors(format).ok_or("no vectors")?.blocks;
        for (rows, cols) in [(8192, 28672), (4096, 14336)] {
            let size = rows * format.row_bytes(cols).map_err(text)?;
            let bytes: Vec<u8> = blocks.iter().copied().cycle().take(size).collect();
            let turns = ROUND.div_ceil(size);
            let weights = (0..turns).map(|_| gpu.put(&bytes)).collect::<Result<Vec<_>, _>>()?;
            let ways: &[_] = match format.is_float() {
                true => &[(Precision::Exact, 1), (Precision::Exact, 8)],
                false => &[(Precision::Integer, 1), (Precision::Integer, 8), (Precision::Exact, 1)],
            };
            for &(precision, batch) in ways {
                let x = numbers::<f16>(gpu, batch * cols)?;
                let mut room = Activations::new(context(), precision, batch, cols).map_err(text)?;
                gpu.ops.prepare(&gpu.stream, &x, cols, &mut room).map_err(text)?;
                let mut y = Buffer::<f32>::new(context(), batch * rows).map_err(text)?;
                let view = |w| QuantView::new(w, format, rows, cols);
                let us = time(gpu, turns, || {
                    weights.iter().try_for_each(|w| gpu.ops.qgemv(&gpu.stream, view(w)?, &room, &mut y))
                })?;
                table.row(&format!("qgemv {format} {rows}x{cols} {precision:?} n{batch}"), us, size);
            }
        }
    }
    Ok(())
}

/// Matrix products, in operations a second.
fn matrices(gpu: &Gpu) -> Outcome {
    let (ops, stream) = (gpu.ops, &gpu.stream);
    let row = |name: String, us: f64, (m, n, k): (usize, usize, usize)| {
        println!("{name:<44} {us:>10.2} us {:>9.1} TFLOP/s", 2.0 * (m * n * k) as f64 / us / 1e6);
    };
    for d in [4096, 8192] {
        let (x, w) = (numbers::<bf16>(gpu, d * d)?, numbers::<bf16>(gpu, d * d)?);
        let mut y = Buffer::<bf16>::new(context(), d * d).map_err(text)?;
        let us = time(gpu, 1, || ops.gemm(stream, (d, d), &w, &x, &mut y))?;
        row(format!("gemm bf16 {d}x{d}x{d}"), us, (d, d, d));
    }
    let (m, n, k) = (512, 8192, 8192);
    let x = numbers::<bf16>(gpu, m * k)?;
    let mut y = Buffer::<bf16>::new(context(), m * n).map_err(text)?;
    for format in super::quant::formats() {
        let blocks = vectors(format).ok_or("no vectors")?.blocks;
        let size = n * format.row_bytes(k).map_err(text)?;
        let w = gpu.put(&blocks.iter().copied().cycle().take(size).collect::<Vec<_>>())?;
        let w = QuantView::new(&w, format, n, k).map_err(text)?;
        let us = time(gpu, 1, || ops.qgemm(stream, w, &x, &mut y))?;
        row(format!("qgemm {format} bf16 {m}x{n}x{k}"), us, (m, n, k));
    }
    Ok(())
}

/// Rows of activations that steps of models have.
const ROWS: [usize; 6] = [16, 32, 64, 128, 512, 2048];

/// Times `run` with each of some matrices of `size` bytes, whose type is said if they are dense when they are multiplied, and prints what that is of copying, and operations a second.
fn step(
    gpu: &Gpu,
    table: &Table,
    (name, size, dense): (&str, usize, Option<ElementType>),
    (m, n, k): (usize, usize, usize),
    mut run: impl FnMut(usize, Split<'_>, &mut Buffer<f32>) -> Result<(), CudaError>,
) -> Outcome {
    let mut y = Buffer::<f32>::new(context(), m * n).map_err(text)?;
    let parts = gpu.ops.gemm_parts((m, n, k), dense);
    let mut room = Buffer::<f32>::new(context(), parts * m * n).map_err(text)?;
    let turns = ROUND.div_ceil(size);
    let all = || (0..turns).try_for_each(|i| run(i, Split { parts, room: room.view_mut() }, &mut y));
    let us = time(gpu, turns, all)?;
    let speed = 2.0 * (m * n * k) as f64 / us / 1e6;
    table.row(&format!("{name} {m}x{n}x{k}, {speed:.0} TFLOP/s"), us, size);
    Ok(())
}

/// Matrix products as steps of models have them: of few rows; and of many, for which weights in blocks are decoded first.
fn steps(gpu: &Gpu, table: &Table) -> Outcome {
    let (ops, stream) = (gpu.ops, &gpu.stream);
    for (n, k) in [(28672, 4096), (4096, 14336), (6144, 4096), (4096, 4096)] {
        let mut decoded = Buffer::<bf16>::new(context(), n * k).map_err(text)?;
        for format in [QuantFormat::Q4K, QuantFormat::Q6K] {
            let blocks = vectors(format).ok_or("no vectors")?.blocks;
            let size = n * format.row_bytes(k).map_err(text)?;
            let bytes: Vec<u8> = blocks.iter().copied().cycle().take(size).collect();
            let weights =
                (0..ROUND.div_ceil(size)).map(|_| gpu.put(&bytes)).collect::<Result<Vec<_>, _>>()?;
            for m in ROWS {
                let x = numbers::<bf16>(gpu, m * k)?;
                let dense = (m > 64).then_some(ElementType::Bf16);
                step(gpu, table, (format.name(), size, dense), (m, n, k), |i, split, y| {
                    let w = QuantView::new(&weights[i], format, n, k)?;
                    if m <= 64 {
                        return ops.qgemm_split(stream, w, &x, (split, y));
                    }
                    ops.dequant(stream, w, &mut decoded)?;
                    ops.gemm_split(stream, (n, k), &decoded, &x, (split, y))
                })?;
            }
        }
        let size = 2 * n * k;
        let weights =
            (0..ROUND.div_ceil(size)).map(|_| numbers::<bf16>(gpu, n * k)).collect::<Result<Vec<_>, _>>()?;
        for m in ROWS {
            let x = numbers::<bf16>(gpu, m * k)?;
            step(gpu, table, ("bf16", size, Some(ElementType::Bf16)), (m, n, k), |i, split, y| {
                ops.gemm_split(stream, (n, k), &weights[i], &x, (split, y))
            })?;
        }
    }
    // Routers of mixtures, by their kernel for many rows and by that for few.
    for (n, k) in [(32, 2880), (128, 2048), (256, 2048)] {
        let (w, size) = (numbers::<f32>(gpu, n * k)?, 4 * n * k);
        for m in [16, 64, 512, 4096] {
            let x = numbers::<f32>(gpu, m * k)?;
            step(gpu, table, ("f32", size, Some(ElementType::F32)), (m, n, k), |_, split, y| {
                ops.gemm_split(stream, (n, k), &w, &x, (split, y))
            })?;
            step(gpu, table, ("f32 by gemv", size, Some(ElementType::F32)), (m, n, k), |_, _, y| {
                ops.gemv(stream, (n, k), &w, x.view(), y)
            })?;
        }
    }
    Ok(())
}

fn attention(gpu: &Gpu, table: &Table) -> Outcome {
    let (kv_heads, head_dim, page_tokens) = (8, 128, 16);
    let kinds = [
        (KvFormat::F16, 32, false),
        (KvFormat::F16, 32, true),
        (KvFormat::F16, 64, true),
        (KvFormat::E4m3, 32, true),
    ];
    for (format, heads, halves) in kinds {
        for (sequences, tokens) in [(1, 8192), (1, 32768), (16, 8192)] {
            let len = tokens / page_tokens;
            let per_token = 2 * kv_heads * head_dim * if format == KvFormat::E4m3 { 1 } else { 2 };
            let size = sequences * tokens * per_token;
            let turns = ROUND.div_ceil(size);
            let pages = sequences * len;
            let shape = KvShape { format, pages, page_tokens, kv_heads, head_dim, scales: [0.02; 2] };
            let numbers_of_pages = gpu.put(&(0..pages as u32).rev().collect::<Vec<_>>())?;
            let tables = PageTables { pages: numbers_of_pages.view(), len };
            let n = sequences * tokens;
            let ids = gpu.put(&(0..n).map(|i| (i / tokens) as u32).collect::<Vec<_>>())?;
            let positions = gpu.put(&(0..n).map(|i| (i % tokens) as u32).collect::<Vec<_>>())?;
            let k = numbers::<f16>(gpu, n * kv_heads * head_dim)?;
            let mut caches = Vec::new();
            for _ in 0..turns {
                let mut cache = KvCache::new(context(), shape).map_err(text)?;
                let at = (ids.view(), positions.view());
                gpu.ops.kv_append(&gpu.stream, &mut cache, tables, at, (k.view(), k.view())).map_err(text)?;
                caches.push(cache);
            }
            let q = numbers::<f16>(gpu, sequences * heads * head_dim)?;
            let lengths = gpu.put(&vec![tokens as u32; sequences])?;
            let mut room = DecodeRoom::new(context(), sequences * heads, head_dim, tokens).map_err(text)?;
            let mut y = Buffer::<f16>::new(context(), q.len()).map_err(text)?;
            let mut run = |cache: &KvCache| {
                let how = Decode { heads, scale: 0.088, window: None, sinks: None, slopes: None, halves };
                let to = (&mut room, &mut y);
                gpu.ops.attention_decode(&gpu.stream, (cache, tables), lengths.view(), how, q.view(), to)
            };
            let us = time(gpu, turns, || caches.iter().try_for_each(&mut run))?;
            let unit = if halves { "tiles" } else { "f32" };
            table.row(
                &format!("attention_decode {format:?} {unit} {heads} heads {sequences} x {tokens}"),
                us,
                size,
            );
        }
    }
    Ok(())
}

/// Attention of whole prompts, in operations a second: half of all pairs of tokens, two products each.
fn prompts(gpu: &Gpu) -> Outcome {
    let (heads, kv_heads, page_tokens) = (32, 8, 16);
    for (format, head_dim) in
        [(KvFormat::Bf16, 64), (KvFormat::Bf16, 128), (KvFormat::Bf16, 256), (KvFormat::E4m3, 128)]
    {
        for tokens in [4096, 16384] {
            let len = tokens / page_tokens;
            let shape = KvShape { format, pages: len, page_tokens, kv_heads, head_dim, scales: [0.02; 2] };
            let pages = gpu.put(&(0..len as u32).rev().collect::<Vec<_>>())?;
            let tables = PageTables { pages: pages.view(), len };
            let ids = gpu.put(&vec![0u32; tokens])?;
            let positions = gpu.put(&(0..tokens as u32).collect::<Vec<_>>())?;
            let k = numbers::<bf16>(gpu, tokens * kv_heads * head_dim)?;
            let mut cache = KvCache::new(context(), shape).map_err(text)?;
            let at = (ids.view(), positions.view());
            gpu.ops.kv_append(&gpu.stream, &mut cache, tables, at, (k.view(), k.view())).map_err(text)?;
            let q = numbers::<bf16>(gpu, tokens * heads * head_dim)?;
            let (starts, lengths) = (gpu.put(&[0, tokens as u32])?, gpu.put(&[tokens as u32])?);
            let mut y = Buffer::<bf16>::new(context(), q.len()).map_err(text)?;
            let run = || {
                let how = Prefill {
                    heads,
                    scale: 0.088,
                    mask: Mask::Causal,
                    longest: tokens,
                    sinks: None,
                    slopes: None,
                };
                let at = (starts.view(), lengths.view());
                gpu.ops.attention_prefill(&gpu.stream, (&cache, tables), at, how, q.view(), &mut y)
            };
            let us = time(gpu, 1, run)?;
            let operations = 2.0 * (heads * head_dim) as f64 * (tokens as f64).powi(2);
            let name = format!("attention_prefill {format:?} {heads} / {kv_heads} x {head_dim}, {tokens}");
            println!("{name:<44} {us:>10.2} us {:>9.1} TFLOP/s", operations / us / 1e6);
        }
    }
    Ok(())
}

/// Dense weights times few vectors of f32.
fn dense_products(gpu: &Gpu, table: &Table) -> Outcome {
    for (rows, cols) in [(8192, 28672), (4096, 14336), (4096, 4096)] {
        let size = 2 * rows * cols;
        let turns = ROUND.div_ceil(size);
        let weights = (0..turns).map(|_| numbers::<f16>(gpu, rows * cols)).collect::<Result<Vec<_>, _>>()?;
        for batch in [1, 8] {
            let x = numbers::<f32>(gpu, batch * cols)?;
            let mut y = Buffer::<f32>::new(context(), batch * rows).map_err(text)?;
            let shape = (rows, cols);
            let us = time(gpu, turns, || {
                weights.iter().try_for_each(|w| gpu.ops.gemv(&gpu.stream, shape, w, x.view(), &mut y))
            })?;
            table.row(&format!("gemv F16 {rows}x{cols} n{batch}"), us, size);
        }
    }
    Ok(())
}

/// GPTQ with 4 bits, and the choice of a token.
fn integers_and_tokens(gpu: &Gpu, table: &Table) -> Outcome {
    let (ops, stream) = (gpu.ops, &gpu.stream);
    let (outputs, inputs, group, m) = (14336, 4096, 128, 512);
    let words = |n: usize| gpu.put(&(0..n as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect::<Vec<_>>());
    let (qweight, qzeros) = (words(outputs * inputs / 8)?, words(outputs * inputs / group / 8)?);
    let scales = numbers::<f16>(gpu, outputs * inputs / group)?;
    let parts = GroupedParts {
        layout: GroupedLayout::Gptq { bits: 4, zeros: GptqZeros::V2 },
        group,
        qweight: qweight.view(),
        qzeros: qzeros.view(),
        scales: scales.view(),
        g_idx: None,
    };
    let w = GroupedView::new(parts, outputs, inputs).map_err(text)?;
    let x = numbers::<bf16>(gpu, m * inputs)?;
    let mut y = Buffer::<f32>::new(context(), outputs).map_err(text)?;
    let one = x.range(0..inputs).map_err(text)?;
    let us = time(gpu, 1, || ops.gemv_grouped(stream, w, one, &mut y))?;
    table.row(&format!("gemv gptq4 {outputs}x{inputs} (found in L2)"), us, outputs * inputs / 2);
    let mut y = Buffer::<bf16>::new(context(), m * outputs).map_err(text)?;
    let us = time(gpu, 1, || ops.gemm_grouped(stream, w, &x, &mut y))?;
    let speed = 2.0 * (m * outputs * inputs) as f64 / us / 1e6;
    println!("{:<44} {us:>10.2} us {speed:>9.1} TFLOP/s", format!("gemm gptq4 bf16 {m}x{outputs}x{inputs}"));

    let n = 128_256;
    let (scores, counters) = (numbers::<bf16>(gpu, n)?, gpu.put(&[7u64])?);
    let mut room = SamplingRoom::new(context(), 1, n).map_err(text)?;
    let mut token = Buffer::<u32>::new(context(), 1).map_err(text)?;
    let way = Sampling { top_k: 40, top_p: 0.9, temperature: 0.8, ..Sampling::default() };
    let chosen = SamplingTable::new(&gpu.stream, n, &[way], 0).map_err(text)?;
    let to = (&mut room, &mut token);
    let us = time(gpu, 1, || ops.sample(stream, &chosen, &scores, (None, counters.view()), to))?;
    table.row(&format!("sample one of {n}, top-k, top-p"), us, 2 * n);
    Ok(())
}

/// Measures one part.
type Part = fn(&Gpu, &Table) -> Outcome;
/// The parts of `bench`, by name.
const PARTS: [(&str, Part); 9] = [
    ("elements", elements),
    ("qgemv", products),
    ("gemv", dense_products),
    ("gemm", |gpu, _| matrices(gpu)),
    ("steps", steps),
    ("decode", attention),
    ("prefill", |gpu, _| prompts(gpu)),
    ("others", integers_and_tokens),
    ("models", |_, table| super::model_bench::main(table.copy)),
];

/// Those parts, or all of them, as a table.
pub fn main(parts: &[String]) -> Outcome {
    if let Some(part) = parts.iter().find(|part| PARTS.iter().all(|(name, _)| name != part)) {
        let names: Vec<_> = PARTS.iter().map(|(name, _)| *name).collect();
        return Err(format!("`bench` has no part {part}: {}", names.join(", ")));
    }
    if !super::on_a_gpu() {
        return Err("GLLM_TEST_CUDA=gpu is not set: there is nothing to measure on an emulated driver".into());
    }
    Driver::open().and_then(|d| d.device(0)).map_err(text)?;
    let gpu = Gpu::new()?;
    let device = context().device();
    println!(
        "{}, compute capability {}, kernels for {}",
        device.name(),
        device.capability(),
        gpu.ops.capability()
    );
    let table = copies(&gpu)?;
    // Which recordings cannot.
    gpu.ops.load().map_err(text)?;
    let wanted = |name: &str| parts.is_empty() || parts.iter().any(|part| part == name);
    PARTS.iter().filter(|(name, _)| wanted(name)).try_for_each(|(_, part)| part(&gpu, &table))
}
