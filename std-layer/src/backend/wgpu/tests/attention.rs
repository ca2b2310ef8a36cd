//! Heads and attention.

use gllm_kernels_core::RopePairing;
use gllm_testkit::data::Source;

use super::{bits, floats, gpu, nan, put, run, with_and_without};
use crate::backend::wgpu::device::Gpu;
use crate::backend::wgpu::shaders::Shader;
use crate::backend::wgpu::shapes::{CacheShape, HeadNorm, Sight};
use crate::backend::KvType;
use crate::model::{Temperature, Tree};

struct Case {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    /// Elements of a head that are rotated.
    rotated: usize,
    adjacent: bool,
    page: usize,
    window: usize,
    softcap: f32,
    positions: usize,
}

const PLAIN: Case = Case {
    heads: 4,
    kv_heads: 2,
    dim: 32,
    rotated: 16,
    adjacent: false,
    page: 16,
    window: 0,
    softcap: 0.0,
    positions: 300,
};

/// Heads of one pair and of many, some of no power of two; one KV head for one, some and all heads; heads that are rotated in part, entirely,
/// or not at all; windows within a tile and across some; pages as small as there are, and larger than a tile.
const CASES: &[Case] = &[
    PLAIN,
    Case { heads: 9, kv_heads: 3, dim: 64, window: 100, adjacent: true, page: 64, ..PLAIN },
    Case { heads: 5, kv_heads: 1, dim: 128, softcap: 20.0, page: 48, rotated: 64, ..PLAIN },
    Case { kv_heads: 1, dim: 256, rotated: 128, window: 70, adjacent: true, ..PLAIN },
    Case { heads: 3, kv_heads: 3, dim: 80, rotated: 20, window: 1, softcap: 5.0, page: 64, ..PLAIN },
    Case { heads: 1, kv_heads: 1, dim: 64, rotated: 64, positions: 33, ..PLAIN },
    Case { kv_heads: 4, dim: 80, adjacent: true, positions: 7, ..PLAIN },
    Case { heads: 8, dim: 96, rotated: 96, window: 20, positions: 150, ..PLAIN },
    Case { heads: 6, dim: 128, rotated: 128, page: 32, positions: 600, ..PLAIN },
    Case { heads: 5, kv_heads: 1, dim: 256, positions: 40, ..PLAIN },
    Case { heads: 2, kv_heads: 1, dim: 16, window: 1, positions: 9, ..PLAIN },
    Case { heads: 1, kv_heads: 1, dim: 192, page: 32, window: 1, positions: 40, ..PLAIN },
    Case { heads: 1, kv_heads: 1, dim: 16, window: 70, positions: 130, ..PLAIN },
    Case { heads: 1, kv_heads: 1, dim: 112, positions: 64, ..PLAIN },
    Case { heads: 1, kv_heads: 1, dim: 2, rotated: 2, positions: 65, ..PLAIN },
    Case { heads: 5, kv_heads: 5, dim: 6, rotated: 0, positions: 17, ..PLAIN },
    Case { heads: 40, kv_heads: 8, dim: 128, rotated: 128, adjacent: true, positions: 129, ..PLAIN },
];

/// What models have, or lack.
#[derive(Clone, Copy, Debug)]
struct With {
    /// Biases and norms in front of attention.
    norm: bool,
    /// Gates behind the queries of each head.
    gates: bool,
    sinks: bool,
    slopes: bool,
    sight: Sight,
}

/// Rotation, norms and biases in front of attention, and attention over pages in any order, to sinks, with linear biases, to whole texts and along trees of
/// drafts: of a run with some positions, with every type of cache; by pieces and at once.
#[test]
fn attention_over_pages() {
    let gpus = with_and_without();
    let kinds = [(KvType::F16, 2e-3), (KvType::F32, 2e-5), (KvType::Bf16, 2e-2)];
    if let Some(gpu) = gpus.last() {
        for (number, case) in CASES.iter().enumerate() {
            // Compiling shaders takes most of the time: the first `all` cases take each of some choices, the others one in turn.
            let takes = |choice: usize, of: usize, all: usize| number < all || number % of == choice;
            for (_, (kind, bound)) in kinds.into_iter().enumerate().filter(|&(i, _)| takes(i, 3, 2)) {
                for norm in [true, false].into_iter().filter(|&norm| takes(usize::from(!norm), 2, 2)) {
                    // Sinks have nothing to do with the type of the cache.
                    let sinks = norm && kind == KvType::F16 && number % 2 == 0;
                    // Nor have gates.
                    let gates = norm && kind == KvType::F16 && number % 3 == 0;
                    let with = With { norm, gates, sinks, slopes: false, sight: Sight::Before };
                    attention(gpu, case, kind, with, bound, &format!("case {number}, {kind:?}, {with:?}"));
                }
            }
            // Nor has what is seen, or linear biases. Windows are for what sees no later positions.
            let whole = if case.window == 0 { Sight::Whole } else { Sight::Before };
            let sights = [(whole, number % 2 == 0 || case.window > 0), (Sight::Path, number % 3 == 0)];
            for (_, (sight, slopes)) in sights.into_iter().enumerate().filter(|&(i, _)| takes(i, 2, 4)) {
                let with = With { norm: false, gates: false, sinks: number % 4 == 1, slopes, sight };
                attention(gpu, case, KvType::F32, with, 2e-5, &format!("case {number}, {with:?}"));
            }
        }
    }
    // Norms are what subgroups are used for.
    if let Some(gpu) = gpus.first() {
        let with = With { norm: true, gates: false, sinks: true, slopes: false, sight: Sight::Before };
        attention(gpu, &PLAIN, KvType::F16, with, 2e-3, "without subgroups");
    }
}

/// A case, with or without what models may lack.
fn attention(gpu: &Gpu, case: &Case, kind: KvType, with: With, bound: f64, what: &str) {
    let With { norm, gates, sinks: has_sinks, slopes: has_slopes, sight } = with;
    // With biases come bounds, which some numbers are beyond, and temperatures.
    let (bias, bounded, drafts) = (norm, norm, sight == Sight::Path);
    const BOUND: f32 = 1.5;
    let temperature = Temperature { scale: if norm { 0.3 } else { 0.0 }, length: 5 };
    let &Case { heads, kv_heads, dim, rotated, adjacent, page, window, softcap, positions } = case;
    let shape = CacheShape {
        kind,
        heads: heads as u32,
        kv_heads: kv_heads as u32,
        pairs: dim as u32 / 2,
        page_tokens: page as u32,
        latent: None,
        gates,
    };
    let mut source = Source::new(9);
    let eps = 1e-5f32;
    // Where a head of queries, keys or values is.
    let step = if gates { 2 * dim } else { dim };
    let at = |head: usize| head.min(heads) * step + head.saturating_sub(heads) * dim;
    let width = at(heads + 2 * kv_heads);
    let stride = width.next_multiple_of(32);
    let half = rotated / 2;
    let mut x = source.normals::<f32>(positions * stride);
    // What is not a number spoils the head of a query, and, as a key, every query that sees it, which shall not be all. Caps are limits: they may make a
    // number of it.
    if softcap == 0.0 && sight != Sight::Whole {
        x[positions / 2 * stride] = f32::NAN;
        x[(positions - 2) * stride + at(heads + kv_heads - 1)] = f32::NAN;
    }
    let biases = source.normals::<f32>(width);
    let weights: Vec<f32> = source.normals::<f32>(2 * dim).iter().map(|x| 1.0 + 0.2 * x).collect();
    // About as large as scores; then one that leaves nothing to what is seen, and one that takes nothing.
    let mut sinks: Vec<f32> = source.normals::<f32>(heads).iter().map(|x| 2.0 * x).collect();
    sinks.iter_mut().skip(1).zip([300.0, f32::NEG_INFINITY]).for_each(|(sink, edge)| *sink = edge);
    let slopes: Vec<f32> = (0..heads).map(|h| 0.5f32.powi(h as i32 % 8 + 1)).collect();
    // The last rows are drafts, each behind any of those before it or behind none.
    let count = if drafts { positions.min(64) } else { 0 };
    let first = positions - count;
    let parents: Vec<_> = (0..count).map(|draft| source.below(draft + 1).checked_sub(1)).collect();
    let tree = Tree::new(&parents).unwrap();
    // What each row sees, from the first position to its own; and which position that is.
    let path = |row: usize| -> Vec<usize> {
        let Some(draft) = row.checked_sub(first).filter(|_| drafts) else { return (0..=row).collect() };
        let on_path = |other: &usize| tree.paths()[draft] >> other & 1 == 1;
        (0..first).chain((0..=draft).filter(on_path).map(|other| first + other)).collect()
    };
    let places: Vec<usize> = (0..positions).map(|row| path(row).len() - 1).collect();
    let words = match sight {
        Sight::Before => Vec::new(),
        Sight::Whole => vec![positions as u32; positions],
        Sight::Path => {
            let all = std::iter::repeat_n(u64::MAX, first).chain(tree.seen());
            all.flat_map(|seen| [seen as u32, (seen >> 32) as u32]).collect()
        }
    };
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
    let mut table: Vec<u32> = (0..positions as u32).collect();
    table.extend(std::iter::repeat_n(1, positions));
    table.extend(std::iter::repeat_n(u32::MAX, table_len));
    table.extend(&numbers);
    let sight_at = table.len() as u32;
    table.extend(words);
    let words = if shape.kind == KvType::F32 { 2 } else { 1 };
    let cache = put(gpu, &vec![u32::MAX; 2 * table_len * kv_heads * page * dim / 2 * words]);
    let (on_x, on_step) = (put(gpu, &bits(&x)), put(gpu, &table));
    let [runs_at, table_at] = [positions as u32, 2 * positions as u32];
    let pages_at = [runs_at, table_at, table_len as u32, table_len as u32];
    let pairing = if adjacent { RopePairing::Adjacent } else { RopePairing::HalfSplit };
    let on = [&angles, &biases, &weights].map(|x| put(gpu, &bits(x)));
    let mut buffers = vec![(0, &on_x), (1, &cache), (2, &on_step), (3, &on[0])];
    buffers.extend(bias.then_some((5, &on[1])));
    buffers.extend(norm.then_some((6, &on[2])));
    let constants = [&[stride as u32, eps.to_bits(), half as u32][..], &pages_at];
    let behind = [BOUND.to_bits(), temperature.scale.to_bits(), temperature.length as u32, sight_at];
    let constants = [&constants.concat()[..], &behind].concat();
    let norms = norm.then(HeadNorm::default);
    let shader = Shader::Heads { shape, bias, bounded, norm: norms, pairing, drafts };
    let groups = [heads + 2 * kv_heads, positions, 1];
    run(gpu, shader, &buffers, (4, &constants), groups, &on_x);

    // The oracle's queries, keys and values.
    let head = |row: usize, head: usize| -> Vec<f64> {
        let at = at(head);
        let mut v: Vec<f64> = (0..dim)
            .map(|i| f64::from(x[row * stride + at + i]) + if bias { f64::from(biases[at + i]) } else { 0.0 })
            .collect();
        if bounded {
            v.iter_mut().for_each(|v| *v = v.clamp(-f64::from(BOUND), f64::from(BOUND)));
        }
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
            let [c, s] = [0, 1].map(|k| f64::from(angles[2 * (places[row] * half + i) + k]));
            (v[p], v[q]) = (v[p] * c - v[q] * s, v[p] * s + v[q] * c);
        }
        if head < heads {
            v.iter_mut().for_each(|v| *v *= f64::from(temperature.factor(places[row])));
        }
        v
    };
    let all: Vec<Vec<Vec<f64>>> =
        (0..positions).map(|row| (0..heads + 2 * kv_heads).map(|h| head(row, h)).collect()).collect();
    let scale = 1.0 / (dim as f32).sqrt();
    let want = |row: usize, h: usize| -> Vec<f64> {
        let kv = h / (heads / kv_heads);
        let q = &all[row][h];
        let mut seen = if sight == Sight::Whole { (0..positions).collect() } else { path(row) };
        seen.drain(..if window == 0 { 0 } else { seen.len().saturating_sub(window) });
        let dot = |p: usize| all[p][heads + kv].iter().zip(q).map(|(k, q)| k * q).sum::<f64>();
        let cap = |s: f64| {
            let cap = f64::from(softcap);
            if cap == 0.0 {
                s
            } else {
                cap * (s / cap).tanh()
            }
        };
        let slope = if has_slopes { f64::from(slopes[h]) } else { 0.0 };
        let bias = |p: usize| slope * places[row].abs_diff(places[p]) as f64;
        let scores: Vec<f64> = seen.iter().map(|&p| cap(dot(p) * f64::from(scale)) - bias(p)).collect();
        let sink = has_sinks.then_some(f64::from(sinks[h]));
        let top = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().copied().chain(sink).map(|s| (s - top).exp()).sum();
        let mut mixed = vec![0.0; dim];
        for (&p, s) in seen.iter().zip(&scores) {
            let weight = (s - top).exp() / sum;
            mixed.iter_mut().zip(&all[p][heads + kv_heads + kv]).for_each(|(a, v)| *a += weight * v);
        }
        if gates {
            let of_head = &x[row * stride + h * step + dim..];
            mixed.iter_mut().zip(of_head).for_each(|(a, &gate)| *a /= 1.0 + (-f64::from(gate)).exp());
        }
        mixed
    };
    let mixed_stride = (heads * dim).next_multiple_of(32);
    let (_, chunks) = shape.chunks();
    let (piece, pieces) = (128, positions.div_ceil(128));
    let [on_sinks, on_slopes] = [&sinks, &slopes].map(|x| put(gpu, &bits(x)));
    // Texts that are seen as a whole are never in pieces.
    for in_pieces in [false, true].into_iter().take(if sight == Sight::Whole { 1 } else { 2 }) {
        let mixed = put(gpu, &nan(positions * mixed_stride));
        let partial = put(gpu, &nan(if in_pieces { positions * heads * pieces * (dim + 2) } else { 4 }));
        let constants = [
            &[stride as u32, mixed_stride as u32, scale.to_bits(), softcap.to_bits(), window as u32][..],
            &pages_at,
            &[piece, pieces as u32, sight_at],
        ]
        .concat();
        let results = if in_pieces { &partial } else { &mixed };
        let mut buffers = vec![(0, &on_x), (1, &cache), (2, &on_step), (3, results)];
        buffers.extend(has_sinks.then_some((5, &on_sinks)));
        buffers.extend(has_slopes.then_some((6, &on_slopes)));
        let groups = [if in_pieces { pieces } else { 1 }, kv_heads * chunks as usize, positions];
        let (sinks, slopes) = (has_sinks, has_slopes);
        let shader = Shader::Attend { shape, pieces: in_pieces, sinks, slopes, sight };
        let mut got = run(gpu, shader, &buffers, (4, &constants), groups, results);
        if in_pieces {
            let constants =
                [mixed_stride as u32, window as u32, piece, pieces as u32, stride as u32, sight_at];
            let mut buffers = vec![(0, &partial), (1, &on_step), (2, &mixed)];
            buffers.extend(gates.then_some((4, &on_x)));
            let shader = Shader::Join { shape, drafts };
            got = run(gpu, shader, &buffers, (3, &constants), [heads, positions, 1], &mixed);
        }
        let got = floats(&got);
        let edges = [0, 1, 15, 16, 63, 64, 127, 128, 255, 256, positions / 2, positions - 2, positions - 1];
        for row in edges.into_iter().filter(|&row| row < positions).chain((first..positions).step_by(5)) {
            for h in 0..heads {
                for (i, (want, &got)) in
                    want(row, h).iter().zip(&got[row * mixed_stride + h * dim..]).enumerate()
                {
                    let error = (f64::from(got) - want).abs();
                    let what = format!("{what}, pieces {in_pieces}: row {row}, head {h}, element {i}");
                    let same = got.is_nan() && want.is_nan();
                    assert!(same || error <= bound * want.abs().max(1.0), "{what}: {got} instead of {want}");
                }
            }
        }
    }
}

/// Keys and values of all heads go from place to place one after the other, with every type of cache; nothing else changes.
#[test]
fn drafts_move() {
    let Some(gpu) = gpu() else { return };
    let mut source = Source::new(12);
    for (kind, kv_heads, pairs) in [(KvType::F16, 2, 32), (KvType::F32, 3, 18), (KvType::Bf16, 1, 128)] {
        let (pages, page) = (3, 16);
        let shape = CacheShape {
            kind,
            heads: kv_heads,
            kv_heads,
            pairs: pairs as u32,
            page_tokens: page as u32,
            latent: None,
            gates: false,
        };
        let words = if kind == KvType::F32 { 2 } else { 1 };
        let half = pages * kv_heads as usize * page * pairs * words;
        let before: Vec<u32> = (0..2 * half).map(|_| source.below(1 << 30) as u32).collect();
        let mut want = before.clone();
        // What has come to a place may go on from there.
        let moves = [[0, 3, 0, 2], [1, 0, 0, 3], [0, 2, 2, 15], [1, 9, 1, 0], [1, 10, 1, 9]];
        for [from_page, from, to_page, to] in moves {
            for (head, pair, word) in (0..kv_heads as usize)
                .flat_map(|head| (0..pairs).flat_map(move |pair| (0..words).map(move |w| (head, pair, w))))
            {
                let key = |n: usize, slot: usize| {
                    (((n * kv_heads as usize + head) * pairs + pair) * page + slot) * words + word
                };
                let value = |n: usize, slot: usize| {
                    half + (((n * kv_heads as usize + head) * page + slot) * pairs + pair) * words + word
                };
                want[key(to_page, to)] = want[key(from_page, from)];
                want[value(to_page, to)] = want[value(from_page, from)];
            }
        }
        let of_moves = moves.iter().flatten().map(|&n| n as u32);
        let table: Vec<u32> = [moves.len() as u32, 0, 0, 0].into_iter().chain(of_moves).collect();
        let cache = put(&gpu, &before);
        let groups = [(kv_heads as usize * pairs).div_ceil(64), 1, 1];
        let buffers = [(0, &cache), (1, &put(&gpu, &table))];
        let got = run(&gpu, Shader::Move { shape }, &buffers, (2, &[pages as u32]), groups, &cache);
        assert!(got == want, "{shape:?}");
    }
}
