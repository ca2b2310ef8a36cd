//! Softmax, norms, rotary embedding: operators on rows.

use gllm_kernels_core::{
    Element, Op, RopeFreqs, RopePairing, RopePositions, RopeScaling, RopeShape, Softmax,
};

use gllm_testkit::{guard::is_poison, Guarded};

use crate::{Agree, Call, Values};

/// Runs `op` if it is one of these.
pub fn run<E: Element>(call: &Call, op: Op) -> bool {
    match op {
        Op::Softmax => softmax::<E>(call),
        Op::RmsNorm | Op::LayerNorm => norm::<E>(call, op),
        Op::Rope => rope::<E>(call),
        _ => return false,
    }
    true
}

/// Right or absurd columns, and elements.
fn shape(call: &Call) -> (usize, usize) {
    let cols = call.len();
    let n = call.lengths[3].of(cols * usize::from(call.dims[2] % 5));
    (if call.option(7) { call.sizes[0].get() } else { cols }, n)
}

fn agree<E: Element>(call: &Call) -> Agree {
    match call.values {
        Values::Wild => Agree::No,
        _ if size_of::<E>() == 4 => Agree::About(1e-4),
        _ => Agree::About(1.0 / 64.0),
    }
}

fn softmax<E: Element>(call: &Call) {
    let (cols, n) = shape(call);
    let x = call.vector::<E>(0, n);
    let out = call.lengths[0].of(n);
    let scale = call.numbers[0];
    let how = Softmax { scale: scale.get(), valid: call.option(0).then(|| call.sizes[1].get()) };
    let agree = if scale.is_tame() { agree::<E>(call) } else { Agree::No };
    match (call.option(1), call.in_place) {
        (true, true) => call.twice::<E, E>(n, Some(&x), agree, |k, y| k.softmax_rows_inplace(cols, how, y)),
        (true, false) => call.twice::<E, E>(out, None, agree, |k, y| k.softmax_rows(cols, how, &x, y)),
        (false, true) => call.twice::<E, E>(n, Some(&x), agree, |k, y| k.softmax_inplace(y)),
        (false, false) => call.twice::<E, E>(out, None, agree, |k, y| k.softmax(&x, y)),
    }
}

fn norm<E: Element>(call: &Call, op: Op) {
    let (cols, n) = shape(call);
    let rows = call.option(2);
    let x = call.vector::<E>(0, n);
    let out = call.lengths[0].of(n);
    let right = if rows { cols.min(1 << 12) } else { n };
    let w = call.option(0).then(|| call.vector::<E>(1, call.lengths[1].of(right)));
    let b = call.option(1).then(|| call.vector::<E>(2, call.lengths[2].of(right)));
    let (w, b) = (w.as_deref(), b.as_deref());
    let eps = call.numbers[0].get();
    // Rows of equal numbers and no eps divide rounding errors by rounding errors.
    let agree = if eps > 0.01 && call.numbers[0].is_tame() { agree::<E>(call) } else { Agree::No };
    match (op, rows, call.in_place) {
        (Op::RmsNorm, true, false) => {
            call.twice::<E, E>(out, None, agree, |k, y| k.rms_norm_rows(cols, &x, w, eps, y));
        }
        (Op::RmsNorm, true, true) => {
            call.twice::<E, E>(n, Some(&x), agree, |k, y| k.rms_norm_rows_inplace(cols, w, eps, y));
        }
        (Op::RmsNorm, false, false) => {
            call.twice::<E, E>(out, None, agree, |k, y| k.rms_norm(&x, w, eps, y));
        }
        (Op::RmsNorm, false, true) => {
            call.twice::<E, E>(n, Some(&x), agree, |k, y| k.rms_norm_inplace(w, eps, y));
        }
        (_, true, false) => {
            call.twice::<E, E>(out, None, agree, |k, y| k.layer_norm_rows(cols, &x, w, b, eps, y));
        }
        (_, true, true) => {
            call.twice::<E, E>(n, Some(&x), agree, |k, y| k.layer_norm_rows_inplace(cols, w, b, eps, y));
        }
        (_, false, false) => {
            call.twice::<E, E>(out, None, agree, |k, y| k.layer_norm(&x, w, b, eps, y));
        }
        (_, false, true) => {
            call.twice::<E, E>(n, Some(&x), agree, |k, y| k.layer_norm_inplace(w, b, eps, y));
        }
    }
}

fn rope<E: Element>(call: &Call) {
    let [heads, head_dim, rot_dim] = match call.option(7) {
        true => [0, 1, 2].map(|i| call.sizes[i].get()),
        false => {
            let head_dim = usize::from(call.dims[0]);
            [usize::from(call.dims[1] % 8), head_dim, 2 * call.lengths[2].of(head_dim / 2)]
        }
    };
    let tokens = usize::from(call.dims[2] % 4);
    let elements = heads.saturating_mul(head_dim).saturating_mul(tokens);
    let n = call.lengths[3].of(if elements > 1 << 20 { 0 } else { elements });
    let angles = call.lengths[1].of(if elements > 1 << 20 { 0 } else { tokens * (rot_dim.min(1 << 16) / 2) });
    let (cos, sin) = (call.vector::<f32>(1, angles), call.vector::<f32>(2, angles));
    let pairing = if call.option(0) { RopePairing::Adjacent } else { RopePairing::HalfSplit };
    let shape = RopeShape { heads, head_dim, rot_dim, pairing };
    let x = call.vector::<E>(0, n);
    // a cos - b sin may cancel.
    let agree = agree::<E>(call);
    if call.in_place {
        call.twice::<E, E>(n, Some(&x), agree, |k, y| k.rope_inplace(shape, &cos, &sin, y));
    } else {
        call.twice::<E, E>(call.lengths[0].of(n), None, agree, |k, y| k.rope(shape, &cos, &sin, &x, y));
    }
    table(call, rot_dim, angles);
}

/// Frequencies of any kind: finite and bounded, or refused without a trace.
fn table(call: &Call, rot_dim: usize, n: usize) {
    let [a, b] = call.numbers.map(|n| f64::from(n.get()));
    let context = call.sizes[3].get() as f64;
    let scaling = match call.dims[3] % 4 {
        0 => RopeScaling::None,
        1 => RopeScaling::Linear { factor: a },
        2 => RopeScaling::Yarn { factor: a, beta_fast: 32.0, beta_slow: b, original_context: context },
        _ => RopeScaling::Llama3 {
            factor: a,
            low_freq_factor: b,
            high_freq_factor: 4.0,
            original_context: context,
        },
    };
    let factors = call.option(1).then(|| call.vector::<f32>(3, call.lengths[2].of(rot_dim.min(1 << 16) / 2)));
    let positions: Vec<u32> = (0..n).map(|i| (i as u32).wrapping_mul(call.seed as u32)).collect();
    let positions = if call.option(2) {
        RopePositions::Each(&positions[..n / (rot_dim / 2).max(1)])
    } else {
        RopePositions::From(call.sizes[1].get())
    };
    let freqs = RopeFreqs {
        theta: if call.option(3) { 10_000.0 } else { b },
        rot_dim,
        scaling,
        factors: factors.as_deref(),
        attention_factor: call.option(4).then_some(a),
    };
    let (mut cos, mut sin) =
        (Guarded::poisoned(n, call.edge()), Guarded::poisoned(call.lengths[0].of(n), call.edge()));
    match freqs.table(positions, &mut cos, &mut sin) {
        Ok(()) => assert!(cos.iter().chain(sin.iter()).all(|v: &f32| !v.is_nan()), "{freqs:?}: NaN"),
        Err(_) => {
            assert!(is_poison(&cos) && is_poison(&sin), "{freqs:?}: refused, but it wrote");
        }
    }
    assert!(cos.intact() && sin.intact());
}
