//! Rotary position embedding: the rotation and its tables.

use gllm_kernels_core::{
    Element, KernelError, KernelInfo, Kernels, RopeFreqs, RopePairing, RopePositions, RopeScaling, RopeShape,
    StorePolicy,
};

use crate::data::{both_walks, Source};
use crate::numeric::{same, ulp, wide};
use crate::report::{Outcome, Report};
use crate::{call, Edge, Guarded};

/// What element `i` of a head must be, and the error that f32 arithmetic may add.
fn exact(shape: RopeShape, head: &[f64], cos: &[f64], sin: &[f64], i: usize) -> (f64, f64) {
    if i >= shape.rot_dim {
        return (head[i], 0.0);
    }
    let half = shape.rot_dim / 2;
    let (pair, first, second) = match shape.pairing {
        RopePairing::Adjacent => (i / 2, i & !1, i | 1),
        RopePairing::HalfSplit => (i % half, i % half, i % half + half),
    };
    let (a, b, c, s) = (head[first], head[second], cos[pair], sin[pair]);
    let (p, q) = if i == first { (a * c, -b * s) } else { (a * s, b * c) };
    // One product is rounded, then the sum.
    (p + q, f64::from(f32::EPSILON) / 2.0 * (p.abs().max(q.abs()) + (p + q).abs()))
}

fn case<E: Element>(
    k: &Kernels<E>,
    shape: RopeShape,
    tokens: usize,
    source: &mut Source,
    report: &mut Report,
) -> Result<(), String> {
    let fail = |e: &dyn std::fmt::Display| format!("{tokens} tokens, {shape:?}: {e}");
    let RopeShape { heads, head_dim, rot_dim, .. } = shape;
    let half = rot_dim / 2;
    let x: Vec<E> = source.normals(tokens * heads * head_dim);
    // Any factors will do; no two are alike.
    let (cos, sin) =
        (source.uniform::<f32>(tokens * half, -1.0, 1.0), source.uniform(tokens * half, -1.0, 1.0));
    let mut first: Option<Vec<E>> = None;
    for (stores, from, to) in [
        (StorePolicy::Cached, Edge::Start, Edge::Start),
        (StorePolicy::Cached, Edge::End, Edge::End),
        (StorePolicy::Streamed, Edge::End, Edge::Start),
        (StorePolicy::Streamed, Edge::Start, Edge::End),
    ] {
        let k = k.with_stores(stores);
        let (gx, mut y) = (Guarded::copy_of(&x, from), Guarded::<E>::poisoned(x.len(), to));
        let (c, s) = (Guarded::copy_of(&cos, from), Guarded::copy_of(&sin, to));
        call(|| k.rope(shape, &c, &s, &gx, &mut y)).map_err(|e| fail(&e))?;
        let mut z = Guarded::copy_of(&x, to);
        call(|| k.rope_inplace(shape, &c, &s, &mut z)).map_err(|e| fail(&e))?;
        if !y.intact() || !z.intact() || gx[..] != x[..] {
            return Err(fail(&"writes outside of the output"));
        }
        let first = first.get_or_insert_with(|| y.to_vec());
        for (got, how) in [(&y, "store or alignment"), (&z, "in place")] {
            if !first.iter().zip(&got[..]).all(|(&a, &b)| same(a, b)) {
                return Err(fail(&format_args!("{how} changes the result")));
            }
        }
        report.cases += 2;
    }
    let (x, y, cos, sin) = (wide(&x), first.unwrap_or_default(), wide(&cos), wide(&sin));
    for (i, &got) in y.iter().enumerate() {
        let (row, column) = (i / head_dim, i % head_dim);
        let at = row / heads * half;
        let head = &x[row * head_dim..][..head_dim];
        let (want, bound) = exact(shape, head, &cos[at..][..half], &sin[at..][..half], column);
        let err = (f64::from(got.to_f32()) - want).abs();
        let allowed = if column < rot_dim { bound + 0.502 * ulp::<E>(want) } else { 0.0 };
        let err = if err == 0.0 { 0.0 } else { err / allowed };
        report.see(err, 1.0, || fail(&format_args!("element {i}: {got:?} instead of {want}")))?;
    }
    Ok(())
}

/// `rope`
pub fn rope<E: Element>(row: &KernelInfo) -> Outcome {
    let k = Kernels::<E>::forced(row.level).map_err(|e| e.to_string())?;
    let mut source = Source::new(5);
    let mut report = Report::BOUND;
    let lanes = row.level.lanes();
    for pairing in [RopePairing::Adjacent, RopePairing::HalfSplit] {
        // Pairs around every multiple of a register, with and without elements that are only copied.
        for pairs in (0..=2 * lanes + 1).chain([40, 64, 128]) {
            for rest in [0, 1, lanes, 2 * lanes + 3] {
                let shape = RopeShape {
                    heads: 1 + pairs % 3,
                    head_dim: 2 * pairs + rest,
                    rot_dim: 2 * pairs,
                    pairing,
                };
                if shape.head_dim > 0 {
                    for k in both_walks(&k) {
                        case(&k, shape, 1 + rest % 3, &mut source, &mut report)?;
                    }
                }
            }
        }
        // Many heads, a head larger than any buffer, nothing at all.
        for (tokens, heads, head_dim, rot_dim) in
            [(3, 40, 128, 128), (2, 2, 9000, 9000), (2, 2, 9000, 64), (0, 4, 64, 64), (5, 0, 64, 0)]
        {
            let shape = RopeShape { heads, head_dim, rot_dim, pairing };
            for k in both_walks(&k) {
                case(&k, shape, tokens, &mut source, &mut report)?;
            }
        }
    }
    let shape = RopeShape { heads: 1, head_dim: 4, rot_dim: 4, pairing: RopePairing::Adjacent };
    let (x, mut y, c) = ([E::ZERO; 8], [E::ZERO; 8], [0.0; 4]);
    let mut refused = |what: &str, shape, cos: &[f32], sin: &[f32], n: usize| {
        let results =
            [k.rope(shape, cos, sin, &x[..n], &mut y), k.rope_inplace(shape, cos, sin, &mut y[..n])];
        match results[usize::from(n == 8)] {
            Err(_) => Ok(()),
            Ok(()) => Err(format!("{what} was accepted")),
        }
    };
    refused("an odd rot_dim", RopeShape { rot_dim: 3, ..shape }, &c[..2], &c[..2], 8)?;
    refused("a large rot_dim", RopeShape { rot_dim: 6, ..shape }, &c, &c, 8)?;
    refused("an overflow", RopeShape { heads: usize::MAX, ..shape }, &c, &c, 8)?;
    refused("a broken token", RopeShape { heads: 3, ..shape }, &c[..0], &c[..0], 8)?;
    refused("a short table", shape, &c, &c[..3], 8)?;
    refused("a long table", shape, &[0.0; 5], &c, 8)?;
    refused("a short input", shape, &c[..2], &c[..2], 4)?;
    Ok(report)
}

/// The frequency of pair `i` of `rot_dim / 2`, straight from the definitions.
fn frequency(freqs: &RopeFreqs<'_>, i: usize) -> f64 {
    let tau = std::f64::consts::TAU;
    let d = freqs.rot_dim as f64;
    let f = 1.0 / freqs.theta.powf(2.0 * i as f64 / d) / freqs.factors.map_or(1.0, |g| f64::from(g[i]));
    match freqs.scaling {
        RopeScaling::Linear { factor } => f / factor,
        RopeScaling::Yarn { factor, beta_fast, beta_slow, original_context } => {
            let dim = |turns: f64| d * (original_context / (turns * tau)).ln() / (2.0 * freqs.theta.ln());
            let low = dim(beta_fast).floor().max(0.0);
            let high = dim(beta_slow).ceil().min(d - 1.0);
            let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
            (f / factor) * ramp + f * (1.0 - ramp)
        }
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
            let wavelength = tau / f;
            if wavelength < original_context / high_freq_factor {
                f
            } else if wavelength > original_context / low_freq_factor {
                f / factor
            } else {
                let smooth =
                    (original_context / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
                (1.0 - smooth) * f / factor + smooth * f
            }
        }
        _ => f,
    }
}

/// [`RopeFreqs::table`] against the definitions, for every scaling.
///
/// # Errors
/// One line: the first deviation, or an impossible request that was accepted.
pub fn table() -> Result<(), String> {
    let yarn = RopeScaling::Yarn { factor: 4.0, beta_fast: 32.0, beta_slow: 1.0, original_context: 32_768.0 };
    let llama3 = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 8192.0,
    };
    let factors: Vec<f32> = (0..64).map(|i| 1.0 + i as f32 / 3.0).collect();
    let ln4 = 4f64.ln();
    for (theta, rot_dim, scaling, factors, attention_factor, magnitude) in [
        (10_000.0, 128, RopeScaling::None, None, None, 1.0),
        (10_000.0, 2, RopeScaling::None, None, None, 1.0),
        (500_000.0, 80, RopeScaling::Linear { factor: 4.0 }, None, None, 1.0),
        (1_000_000.0, 128, yarn, None, None, 0.1 * ln4 + 1.0),
        (1_000_000.0, 64, yarn, None, Some(0.75), 0.75),
        (500_000.0, 128, llama3, None, None, 1.0),
        (10_000.0, 128, RopeScaling::None, Some(&factors[..]), Some(1.19), 1.19),
    ] {
        let freqs = RopeFreqs { theta, rot_dim, scaling, factors, attention_factor };
        let half = rot_dim / 2;
        let each = [0, 1, 7, 8191, 131_071, 1_000_003];
        for (positions, at) in [
            (RopePositions::From(4095), [4095.0, 4096.0, 4097.0, 4098.0, 4099.0, 4100.0]),
            (RopePositions::Each(&each), each.map(f64::from)),
        ] {
            let (mut cos, mut sin) = (vec![f32::NAN; 6 * half], vec![f32::NAN; 6 * half]);
            freqs.table(positions, &mut cos, &mut sin).map_err(|e| e.to_string())?;
            for (j, (&c, &s)) in cos.iter().zip(&sin).enumerate() {
                let angle = at[j / half] * frequency(&freqs, j % half);
                for (got, want) in [(c, angle.cos() * magnitude), (s, angle.sin() * magnitude)] {
                    // An ulp of f32, and what the rounding of the frequency in f64 makes of the angle.
                    let allowed = ulp::<f32>(want) * 0.51 + angle * 1e-14;
                    if (f64::from(got) - want).abs().partial_cmp(&allowed) != Some(std::cmp::Ordering::Less) {
                        return Err(format!("{freqs:?}, value {j}: {got} instead of {want}"));
                    }
                }
            }
        }
    }
    let good = RopeFreqs { rot_dim: 4, ..RopeFreqs::default() };
    let refused = |what: &str, freqs: RopeFreqs<'_>, positions, cos: usize, sin: usize| {
        let (mut c, mut s) = ([0.0; 8], [0.0; 8]);
        match freqs.table(positions, &mut c[..cos], &mut s[..sin]) {
            Ok(()) => Err(format!("{what} was accepted")),
            Err(
                KernelError::BadParameter { .. }
                | KernelError::BadValue { .. }
                | KernelError::WrongLength { .. }
                | KernelError::NotWhole { .. },
            ) => Ok(()),
            Err(e) => Err(format!("{what}: {e}")),
        }
    };
    let start = RopePositions::From(0);
    for bad in [0.0, -4.0, f64::NAN, f64::INFINITY] {
        refused("theta", RopeFreqs { theta: bad, ..good }, start, 4, 4)?;
        let scaled = |scaling| RopeFreqs { scaling, ..good };
        refused("a linear factor", scaled(RopeScaling::Linear { factor: bad }), start, 4, 4)?;
        for which in 0..4 {
            let p = |i| if i == which { bad } else { 1.0 + i as f64 };
            let (factor, original_context) = (p(0), p(3));
            let yarn = RopeScaling::Yarn { factor, beta_fast: p(1), beta_slow: p(2), original_context };
            let llama3 = RopeScaling::Llama3 {
                factor,
                low_freq_factor: p(1),
                high_freq_factor: p(2),
                original_context,
            };
            refused("a YaRN parameter", scaled(yarn), start, 4, 4)?;
            refused("a Llama 3 parameter", scaled(llama3), start, 4, 4)?;
        }
        let bad = [1.0, bad as f32];
        refused("a divisor", RopeFreqs { factors: Some(&bad), ..good }, start, 4, 4)?;
    }
    refused("few divisors", RopeFreqs { factors: Some(&[1.0]), ..good }, start, 4, 4)?;
    refused("attention", RopeFreqs { attention_factor: Some(f64::NAN), ..good }, start, 4, 4)?;
    refused("an odd rot_dim", RopeFreqs { rot_dim: 3, ..good }, start, 4, 4)?;
    refused("no pairs", RopeFreqs { rot_dim: 0, ..good }, start, 4, 4)?;
    refused("a broken token", good, start, 5, 5)?;
    refused("unequal tables", good, start, 4, 2)?;
    refused("few positions", good, RopePositions::Each(&[1]), 4, 4)?;
    Ok(())
}
