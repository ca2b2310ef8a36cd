//! Keys and values in pages, and attention over them.

use std::sync::LazyLock;

use gllm_kernels_std::core::{bf16, f16};
use gllm_kernels_std::cuda::{
    Buffer, Capability, Decode, DecodeRoom, Float, KvCache, KvFormat, KvShape, PageTables,
};
use gllm_testkit::data::Source;

use super::{compare, rounding, source, text, trial, Gpu, Outcome, Trials};

/// The magnitudes of FP8 E4M3 by its definition, in order: of the bits from 0 to 126. 127 is NaN.
static E4M3: LazyLock<[f64; 127]> = LazyLock::new(|| {
    std::array::from_fn(|bits| {
        let (e, m) = (bits as i32 >> 3, (bits & 7) as f64);
        if e == 0 {
            m * 2f64.powi(-9)
        } else {
            (8.0 + m) * 2f64.powi(e - 10)
        }
    })
});

/// What a number is stored as, in units of the scale: the nearest, of two the even one.
fn stored(format: KvFormat, x: f32) -> f64 {
    match format {
        KvFormat::F16 => f16::from_f32(x).to_f32().into(),
        KvFormat::Bf16 => bf16::from_f32(x).to_f32().into(),
        KvFormat::E4m3 => {
            let x = f64::from(x);
            let next = E4M3.partition_point(|&magnitude| magnitude < x.abs());
            let far = |&bits: &usize| ((E4M3[bits] - x.abs()).abs(), bits & 1);
            let both = next.saturating_sub(1)..=next.min(126);
            let nearest = both.min_by(|a, b| far(a).partial_cmp(&far(b)).unwrap());
            E4M3[nearest.unwrap()].copysign(x)
        }
        KvFormat::F32 => x.into(),
        KvFormat::Q8_0 => unreachable!("whole models alone write it"),
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    page_tokens: usize,
    window: Option<usize>,
    lengths: &'static [usize],
}

const CASES: &[Case] = &[
    Case { heads: 1, kv_heads: 1, dim: 64, page_tokens: 16, window: None, lengths: &[1, 0, 33] },
    Case { heads: 4, kv_heads: 4, dim: 72, page_tokens: 1, window: None, lengths: &[7] },
    Case { heads: 8, kv_heads: 2, dim: 96, page_tokens: 16, window: Some(20), lengths: &[19, 20, 21, 150] },
    Case { heads: 6, kv_heads: 2, dim: 128, page_tokens: 32, window: None, lengths: &[300, 600] },
    Case { heads: 5, kv_heads: 1, dim: 256, page_tokens: 8, window: None, lengths: &[40, 1] },
    Case { heads: 2, kv_heads: 1, dim: 16, page_tokens: 4, window: Some(1), lengths: &[9] },
    Case { heads: 8, kv_heads: 1, dim: 128, page_tokens: 16, window: Some(250), lengths: &[700] },
    Case { heads: 3, kv_heads: 3, dim: 8, page_tokens: 4, window: None, lengths: &[400] },
];

/// Keys and values of sequences, in pages of any order.
pub struct Filled {
    pub cache: KvCache,
    pages: Buffer<u32>,
    numbers: Vec<u32>,
    len: usize,
    /// As they were stored.
    pub k: Vec<f64>,
    pub v: Vec<f64>,
}

impl Filled {
    pub fn new<T: Float>(
        gpu: &Gpu,
        source: &mut Source,
        format: KvFormat,
        (kv_heads, head_dim, page_tokens): (usize, usize, usize),
        lengths: &[usize],
    ) -> Result<Self, String> {
        let scales = if format == KvFormat::E4m3 { [0.01, 0.02] } else { [1.0, 1.0] };
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let len = longest.div_ceil(page_tokens) + 1;
        let (sequences, pages) = (lengths.len(), lengths.len() * len + 3);
        // Every page once.
        let mut free: Vec<u32> = (0..pages as u32).collect();
        let numbers: Vec<u32> =
            (0..sequences * len).map(|_| free.swap_remove(source.below(free.len()))).collect();
        let on_gpu = gpu.put(&numbers)?;
        let tables = PageTables { pages: on_gpu.view(), len };
        let shape = KvShape { format, pages, page_tokens, kv_heads, head_dim, scales };
        let mut cache = KvCache::new(gpu.ops.context(), shape).map_err(text)?;

        // Tokens of all sequences in one call; then some that go nowhere.
        let mut places: Vec<(u32, u32)> = lengths
            .iter()
            .enumerate()
            .flat_map(|(s, &n)| (0..n).map(move |t| (s as u32, t as u32)))
            .collect();
        let real = places.len();
        places.extend([(sequences as u32, 0), (0, u32::MAX), (u32::MAX, 3)]);
        let ids: Vec<u32> = places.iter().map(|p| p.0).collect();
        let positions: Vec<u32> = places.iter().map(|p| p.1).collect();
        let token = kv_heads * head_dim;
        let (k, v): (Vec<T>, Vec<T>) =
            (source.normals(places.len() * token), source.normals(places.len() * token));
        let (on_k, on_v, on_ids, on_positions) =
            (gpu.put(&k)?, gpu.put(&v)?, gpu.put(&ids)?, gpu.put(&positions)?);
        let at = (on_ids.view(), on_positions.view());
        gpu.ops.kv_append(&gpu.stream, &mut cache, tables, at, (on_k.view(), on_v.view())).map_err(text)?;
        let as_stored = |x: &[T], scale: f32| -> Vec<f64> {
            x[..real * token].iter().map(|x| stored(format, x.to_f32() / scale) * f64::from(scale)).collect()
        };
        let (k, v) = (as_stored(&k, scales[0]), as_stored(&v, scales[1]));
        Ok(Self { cache, pages: on_gpu, numbers, len, k, v })
    }

    pub fn tables(&self) -> PageTables<'_> {
        PageTables { pages: self.pages.view(), len: self.len }
    }

    /// From now on some pages do not exist.
    fn lose_pages(&mut self, gpu: &Gpu) -> Outcome {
        for (i, number) in self.numbers.iter_mut().enumerate() {
            if !Self::keeps(i % self.len) {
                *number = u32::MAX - i as u32;
            }
        }
        self.pages = gpu.put(&self.numbers)?;
        Ok(())
    }

    /// Whether this page of a sequence is still there then.
    fn keeps(page: usize) -> bool {
        page % 3 != 1
    }

    /// To change it, and the same.
    pub fn change(&mut self) -> (&mut KvCache, PageTables<'_>) {
        (&mut self.cache, PageTables { pages: self.pages.view(), len: self.len })
    }

    /// What a query gives: sums of the values of `tokens`, which count through all sequences, and of their
    /// magnitudes; and the sum of exponentials, of which the largest is 1.
    pub fn attend(
        &self,
        &Query { q, scale, sink, slope }: &Query<'_>,
        tokens: &[usize],
        kv: usize,
    ) -> (Vec<(f64, f64)>, f64) {
        let (dim, heads) = (self.cache.shape().head_dim, self.cache.shape().kv_heads);
        let row = |t: usize| (t * heads + kv) * dim;
        let dot = |k: &[f64]| q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>();
        let far = |t: usize| {
            slope.map_or(0.0, |(slope, at)| f64::from(slope) * (at - t as isize).unsigned_abs() as f64)
        };
        let score = |&t: &usize| dot(&self.k[row(t)..]) * f64::from(scale) - far(t);
        let scores: Vec<f64> = tokens.iter().map(score).collect();
        let sink = sink.map(f64::from);
        let top = scores.iter().copied().chain(sink).fold(f64::MIN, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
        let sum = weights.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - top).exp());
        let of = |i: usize| {
            let terms = tokens.iter().zip(&weights).map(|(&t, w)| w / sum.max(1e-300) * self.v[row(t) + i]);
            (terms.clone().sum(), terms.map(f64::abs).sum())
        };
        ((0..dim).map(of).collect(), sum)
    }
}

/// Sinks of heads: above scores, below them, far above, none, and about as large.
pub fn sinks(heads: usize) -> Vec<f32> {
    [7.0, -2.0, 45.0, f32::NEG_INFINITY, 3.5].into_iter().cycle().take(heads).collect()
}

/// Slopes of heads: steep, moderate, none, and hardly any.
pub fn slopes(heads: usize) -> Vec<f32> {
    [0.5, 0.0625, 0.0, 0.004].into_iter().cycle().take(heads).collect()
}

/// With sinks or without, with slopes or without.
pub const PARTS: [(bool, bool); 3] = [(false, false), (true, false), (true, true)];

/// A query of a head, which may have a sink, and a slope: then the query's token is this one, counted through all sequences.
pub struct Query<'a> {
    pub q: &'a [f64],
    pub scale: f32,
    pub sink: Option<f32>,
    pub slope: Option<(f32, isize)>,
}

/// What tensor cores multiply a query as.
pub fn rounded<T: Float>(format: KvFormat, q: T) -> f64 {
    match format {
        KvFormat::Bf16 => bf16::from_f32(q.to_f32()).to_f32().into(),
        _ => f16::from_f32(q.to_f32()).to_f32().into(),
    }
}

/// Half the distance of the numbers that tensor cores multiply exponentials as, relative to them, and the smallest one.
pub fn rounding_of(format: KvFormat) -> (f64, f64) {
    if format == KvFormat::Bf16 {
        rounding::<bf16>()
    } else {
        rounding::<f16>()
    }
}

/// Whether single queries attend to heads of this size on tensor cores, if they may.
fn has_tiles(format: KvFormat, dim: usize) -> bool {
    let capability = super::context().device().capability();
    let whole = match format {
        KvFormat::F16 | KvFormat::Bf16 => true,
        KvFormat::E4m3 => dim.is_multiple_of(16),
        KvFormat::F32 | KvFormat::Q8_0 => false,
    };
    whole && dim <= 128 && capability >= Capability(80) && !capability.is_gfx()
}

/// A case, with queries and exponentials of 16 bits or not.
fn check_case<T: Float>(
    gpu: &Gpu,
    source: &mut Source,
    (case, format, halves): (&Case, KvFormat, bool),
) -> Outcome {
    let &Case { heads, kv_heads, dim, page_tokens, window, lengths } = case;
    let tiles = halves && has_tiles(format, dim);
    let mut filled = Filled::new::<T>(gpu, source, format, (kv_heads, dim, page_tokens), lengths)?;
    let (sequences, longest) = (lengths.len(), lengths.iter().copied().max().unwrap_or(0));
    let q: Vec<T> = source.normals(sequences * heads * dim);
    let on_q = gpu.put(&q)?;
    let on_lengths = gpu.put(&lengths.iter().map(|&n| n as u32).collect::<Vec<_>>())?;
    let mut room = DecodeRoom::new(gpu.ops.context(), sequences * heads, dim, longest).map_err(text)?;
    let (sinks, slopes) = (sinks(heads), slopes(heads));
    let (on_sinks, on_slopes) = (gpu.put(&sinks)?, gpu.put(&slopes)?);
    // At last without some of the pages.
    for (turn, (with_sinks, with_slopes)) in PARTS.into_iter().chain([(false, true)]).enumerate() {
        let lost = turn == PARTS.len();
        if lost {
            filled.lose_pages(gpu)?;
        }
        let mut y = gpu.room::<T>(q.len())?;
        let how = Decode {
            heads,
            scale: 0.2,
            window,
            sinks: with_sinks.then(|| on_sinks.view()),
            slopes: with_slopes.then(|| on_slopes.view()),
            halves,
        };
        let (from, to) = ((&filled.cache, filled.tables()), (&mut room, &mut y));
        gpu.ops.attention_decode(&gpu.stream, from, on_lengths.view(), how, on_q.view(), to).map_err(text)?;

        let (relative, least) = if tiles { rounding_of(format) } else { (0.0, 0.0) };
        let (mut want, mut error, mut before) = (Vec::new(), Vec::new(), 0);
        for (s, &n) in lengths.iter().enumerate() {
            let start = n - window.map_or(n, |w| w.min(n));
            let there = |&t: &usize| !lost || Filled::keeps(t / page_tokens);
            let tokens: Vec<usize> = (start..n).filter(there).map(|t| before + t).collect();
            for h in 0..heads {
                let number = |&q: &T| if tiles { rounded(format, q) } else { q.to_f32().into() };
                let q: Vec<f64> = q[(s * heads + h) * dim..][..dim].iter().map(number).collect();
                let query = Query {
                    q: &q,
                    scale: 0.2,
                    sink: with_sinks.then(|| sinks[h]),
                    slope: with_slopes.then(|| (slopes[h], (before + n) as isize - 1)),
                };
                let (sums, sum) = filled.attend(&query, &tokens, h / (heads / kv_heads));
                want.extend(sums.iter().map(|s| s.0));
                // Scores of up to 30 are off by their rounding, and so are exponentials.
                let lost = least * tokens.len() as f64 * 5.0 / sum.max(1.0);
                error.extend(sums.iter().map(|s| s.1 * (relative * 1.01 + 4e-5) + lost));
            }
            before += n;
        }
        compare(&gpu.get(&y)?, &want, |i| error[i]).map_err(|e| {
            format!(
                "{case:?}, halves {halves}, sinks {with_sinks}, slopes {with_slopes}, pages lost {lost}: {e}"
            )
        })?;
    }
    Ok(())
}

fn check<T: Float>(format: KvFormat) -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("attention");
    CASES.iter().try_for_each(|case| check_case::<T>(&gpu, &mut source, (case, format, false)))
}

/// On tensor cores: groups of all sizes up to a tile, and more, with heads of sizes that have a kernel, others, and those that have none; parts, windows and
/// sequences that end at any place of a batch and of a warp's turn.
fn check_tiles<T: Float>(format: KvFormat) -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("tiles");
    let dims = [64, 128, 80, 96, 8, 40, 120, 256];
    let lengths: [&'static [usize]; 6] =
        [&[15, 64, 1, 0], &[300], &[65, 16, 17], &[128, 31], &[512, 33], &[63, 257]];
    let windows = [None, Some(1), Some(17), None, Some(64), Some(250)];
    for group in (1..=17).chain([33]) {
        let case = Case {
            heads: group * (1 + group % 2),
            kv_heads: 1 + group % 2,
            dim: dims[group % dims.len()],
            page_tokens: [16, 1, 32, 5][group % 4],
            window: windows[group / 2 % windows.len()],
            lengths: lengths[group % lengths.len()],
        };
        check_case::<T>(&gpu, &mut source, (&case, format, true))?;
    }
    CASES.iter().try_for_each(|case| check_case::<T>(&gpu, &mut source, (case, format, true)))
}

/// What is not a number does not become one, and does not spread to other heads.
fn not_numbers() -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source("not numbers");
    let filled = Filled::new::<f16>(&gpu, &mut source, KvFormat::F16, (1, 32, 8), &[300])?;
    let mut q: Vec<f16> = source.normals(5 * 32);
    q[2 * 32 + 5] = f16::NAN;
    let (on_q, lengths) = (gpu.put(&q)?, gpu.put(&[300u32])?);
    let mut room = DecodeRoom::new(gpu.ops.context(), 5, 32, 300).map_err(text)?;
    let on_sinks = gpu.put(&[0.5f32; 5])?;
    for (sinks, halves) in [None, Some(on_sinks.view())].into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let mut y = gpu.room::<f16>(q.len())?;
        let from = (&filled.cache, filled.tables());
        let to = (&mut room, &mut y);
        let (how, stream) =
            (Decode { heads: 5, scale: 0.2, window: None, sinks, slopes: None, halves }, &gpu.stream);
        gpu.ops.attention_decode(stream, from, lengths.view(), how, on_q.view(), to).map_err(text)?;
        let y = gpu.get(&y)?;
        let wrong = y.chunks(32).enumerate().find(|(h, y)| y.iter().any(|y| y.is_nan() != (*h == 2)));
        if let Some((h, y)) = wrong {
            return Err(format!("head {h}: {y:?}"));
        }
    }
    Ok(())
}

/// As many sinks and slopes as heads.
fn refusals() -> Outcome {
    let gpu = Gpu::new()?;
    let filled = Filled::new::<f16>(&gpu, &mut source("refusals"), KvFormat::F16, (1, 32, 8), &[3])?;
    let (q, lengths, four) = (gpu.put(&[f16::ONE; 5 * 32])?, gpu.put(&[3u32])?, gpu.put(&[0f32; 4])?);
    let mut room = DecodeRoom::new(gpu.ops.context(), 5, 32, 3).map_err(text)?;
    let mut y = gpu.room::<f16>(q.len())?;
    let good = Decode { heads: 5, scale: 0.2, window: None, sinks: None, slopes: None, halves: false };
    let wrong = [
        (Decode { sinks: Some(four.view()), ..good }, "`sinks`"),
        (Decode { slopes: Some(four.view()), ..good }, "`slopes`"),
    ];
    for (how, part) in wrong {
        let (from, to) = ((&filled.cache, filled.tables()), (&mut room, &mut y));
        match gpu.ops.attention_decode(&gpu.stream, from, lengths.view(), how, q.view(), to) {
            Err(e) if e.to_string().contains(part) => {}
            other => return Err(format!("4 {part} of 5 heads: {other:?}")),
        }
    }
    Ok(())
}

pub fn trials(trials: &mut Trials) {
    trials.push(trial("attention_decode_not_numbers", not_numbers));
    trials.push(trial("attention_decode_refusals", refusals));
    for format in [KvFormat::F16, KvFormat::Bf16, KvFormat::E4m3, KvFormat::F32] {
        super::each_type!(trials, format!("attention_decode_{format:?}"), check(format));
    }
    for format in [KvFormat::F16, KvFormat::Bf16, KvFormat::E4m3] {
        super::each_type!(trials, format!("attention_decode_tiles_{format:?}"), check_tiles(format));
    }
}
