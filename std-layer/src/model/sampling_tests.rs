//! Sampling against its definition, carried out literally; and against chance.

use gllm_testkit::data::Source;

use super::*;

/// The definition, by sorting.
fn literally(logits: &[f32], history: &[u32], random: u32, s: &Sampling) -> u32 {
    let mut l = logits.to_vec();
    for &(t, b) in &s.logit_bias {
        l[t as usize] += b;
    }
    let recent = &history[history.len() - s.last_n.min(history.len())..];
    for (t, x) in l.iter_mut().enumerate() {
        let count = recent.iter().filter(|&&h| h as usize == t).count();
        if count > 0 {
            *x = if *x > 0.0 { *x / s.repetition } else { *x * s.repetition };
            *x -= count as f32 * s.frequency + s.presence;
        }
    }
    let rank = |x: f32| if x.is_nan() { None } else { Some(x) };
    let order = |a: f32, b: f32| match (rank(a), rank(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    };
    let mut sorted: Vec<usize> = (0..l.len()).collect();
    sorted.sort_by(|&a, &b| order(l[b], l[a]));
    let best = sorted[0];
    if s.temperature == 0.0 {
        return best as u32;
    }
    let least = l[sorted[if s.top_k == 0 { l.len() } else { s.top_k.min(l.len()) } - 1]];
    let by = std::f32::consts::LOG2_E / s.temperature;
    let weights: Vec<f32> = l
        .iter()
        .map(|&x| match (x - l[best]) * by {
            _ if order(x, least).is_lt() || x.is_nan() => 0.0,
            _ if x == l[best] => 1.0,
            d if d >= -40.0 => exp2(d),
            _ => 0.0,
        })
        .collect();
    let mut floor = s.min_p;
    if s.top_p < 1.0 {
        let all: u64 = weights.iter().map(|&w| units(w)).sum();
        let goal = ((u128::from(all) * ((s.top_p * 16_777_216.0) as u128)) >> 24).max(1);
        let mut falling = weights.clone();
        falling.sort_by(|a, b| b.total_cmp(a));
        let mut sum = 0;
        let border = falling.iter().find(|&&w| {
            sum += u128::from(units(w));
            sum >= goal
        });
        floor = floor.max(border.copied().unwrap_or(0.0));
    }
    let kept = |t: usize| if weights[t] >= floor { u128::from(units(weights[t])) } else { 0 };
    let all: u128 = (0..l.len()).map(kept).sum();
    let goal = (all * u128::from(random >> 8)) >> 24;
    let mut sum = 0;
    let found = (0..l.len()).find(|&t| {
        sum += kept(t);
        sum > goal
    });
    found.unwrap_or(best) as u32
}

/// Every combination of parameters, on logits of every kind.
#[test]
fn is_its_definition() {
    let mut source = Source::new(3);
    let mut cases = 0;
    for n in [1, 2, 31, 255, 256, 257, 1000, 5000] {
        for kind in 0..6 {
            let mut logits: Vec<f32> = source.normals::<f32>(n).iter().map(|x| x * 5.0).collect();
            match kind {
                1 => logits.iter_mut().for_each(|x| *x = x.round()),
                2 => logits.iter_mut().step_by(3).for_each(|x| *x = f32::NAN),
                3 => logits.iter_mut().step_by(2).for_each(|x| *x = f32::NEG_INFINITY),
                4 => logits.fill([f32::NAN, f32::NEG_INFINITY, 0.0, -0.0][n % 4]),
                5 => logits[n / 2] = f32::INFINITY,
                _ => {}
            }
            let history: Vec<u32> = (0..40).map(|_| source.below(n.min(20) + 2) as u32).collect();
            for _ in 0..60 {
                let pick = |of: &[f32], source: &mut Source| of[source.below(of.len())];
                let token = source.below(n) as u32;
                let s = Sampling {
                    logit_bias: [vec![], vec![(token, 8.0)], vec![(token, f32::NEG_INFINITY), (0, 1.5)]]
                        [source.below(3)]
                    .clone(),
                    last_n: [0, 7, usize::MAX][source.below(3)],
                    repetition: pick(&[1.0, 1.3, 0.5], &mut source),
                    frequency: pick(&[0.0, 0.4, -0.7], &mut source),
                    presence: pick(&[0.0, 1.1, -2.0], &mut source),
                    temperature: pick(&[0.0, 1e-30, 0.1, 0.8, 1.0, 3.0, 1e30], &mut source),
                    top_k: [0, 1, 2, 40, n, n + 5, 300][source.below(7)],
                    top_p: pick(&[1.0, 2.0, 0.95, 0.5, 1e-9], &mut source),
                    min_p: pick(&[0.0, 0.05, 0.3, 1.0], &mut source),
                    seed: source.below(1 << 50) as u64,
                };
                let (counter, row) = (source.below(1 << 40) as u64, source.below(100) as u32);
                let want = literally(&logits, &history, philox(counter, row, s.seed), &s);
                let got = sample(&mut logits.clone(), &history, counter, row, &s);
                assert_eq!(got, Ok(want), "{n} logits of kind {kind}: {s:?}");
                cases += 1;
            }
        }
    }
    assert_eq!(cases, 8 * 6 * 60);
}

/// Tokens come as often as their probabilities say: chi-squared below its 99.99 % quantile.
#[test]
fn chance_is_fair() {
    const DRAWS: u64 = 200_000;
    let logits = [1.0, 0.0, -1.0, 2.5, 0.5, -3.0, 1.5, 1.75];
    let temperature = 0.9;
    let s = Sampling { temperature, seed: 99, ..Sampling::default() };
    let weights: Vec<f64> = logits.iter().map(|&l| f64::from(l / temperature).exp()).collect();
    let all: f64 = weights.iter().sum();
    for by_row in [false, true] {
        let mut counts = [0u32; 8];
        for i in 0..DRAWS {
            let (counter, row) = if by_row { (5, i as u32) } else { (i, 0) };
            counts[sample(&mut logits.clone(), &[], counter, row, &s).unwrap() as usize] += 1;
        }
        let chi: f64 = (counts.iter().zip(&weights))
            .map(|(&c, w)| {
                let expected = DRAWS as f64 * w / all;
                (f64::from(c) - expected).powi(2) / expected
            })
            .sum();
        // Seven degrees of freedom.
        assert!(chi < 29.9, "chi squared {chi}: {counts:?}");
    }
}

/// Known answers of Random123's reference, for zeros and for ones.
#[test]
fn philox_is_philox() {
    assert_eq!(philox(0, 0, 0), 0x6627_e8d5);
    // Counter (0, 0, 1, 0), key (0, 0), by an implementation in 128-bit arithmetic.
    let wide = |counter: u128, key: u64| {
        let mut c: [u128; 4] = std::array::from_fn(|i| counter >> (32 * i) & 0xffff_ffff);
        for round in 0..10u128 {
            let k0 = (u128::from(key as u32) + round * 0x9e37_79b9) & 0xffff_ffff;
            let k1 = (u128::from(key >> 32) + round * 0xbb67_ae85) & 0xffff_ffff;
            let (a, b) = (c[0] * 0xd251_1f53, c[2] * 0xcd9e_8d57);
            c = [(b >> 32) ^ c[1] ^ k0, b & 0xffff_ffff, (a >> 32) ^ c[3] ^ k1, a & 0xffff_ffff];
        }
        c[0] as u32
    };
    for (counter, row, key) in
        [(0, 1, 0), (u64::MAX, 0, u64::MAX), (0x0123_4567_89ab_cdef, 7, 0xfedc_ba98_7654_3210)]
    {
        assert_eq!(philox(counter, row, key), wide(u128::from(counter) | u128::from(row) << 64, key));
    }
}

#[test]
fn exp2_is_within_an_ulp() {
    let mut x = -40.0f32;
    while x <= 0.0 {
        let exact = f64::from(x).exp2();
        let error = (f64::from(exp2(x)) - exact).abs() / exact;
        assert!(error < 1.2e-7, "2^{x}: {error}");
        x += 1.37e-4;
    }
    assert_eq!((exp2(0.0), exp2(-40.0), exp2(-1.0)), (1.0, 2f32.powi(-40), 0.5));
}

#[test]
fn what_cannot_be_is_an_error() {
    let plain = Sampling::default();
    let bad = |s: Sampling| match sample(&mut [0.0; 4], &[], 0, 0, &s) {
        Err(SamplingError::BadParameter { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    for x in [f32::NAN, f32::INFINITY, -1.0] {
        assert_eq!(bad(Sampling { temperature: x, ..plain.clone() }), "temperature");
        assert_eq!(bad(Sampling { repetition: x, ..plain.clone() }), "repetition");
        assert_eq!(bad(Sampling { min_p: x, ..plain.clone() }), "min_p");
    }
    for x in [f32::NAN, f32::INFINITY] {
        assert_eq!(bad(Sampling { frequency: x, ..plain.clone() }), "frequency");
        assert_eq!(bad(Sampling { presence: x, ..plain.clone() }), "presence");
    }
    assert_eq!(bad(Sampling { top_p: 0.0, ..plain.clone() }), "top_p");
    assert_eq!(bad(Sampling { logit_bias: vec![(0, f32::NAN)], ..plain.clone() }), "logit_bias");
    let beyond = Sampling { logit_bias: vec![(4, 0.0)], ..plain.clone() };
    let error = SamplingError::BadBias { token: 4, vocabulary: 4 };
    assert_eq!(sample(&mut [0.0; 4], &[], 0, 0, &beyond), Err(error));
    assert_eq!(sample(&mut [], &[], 0, 0, &plain), Err(SamplingError::BadVocabulary(0)));
}
