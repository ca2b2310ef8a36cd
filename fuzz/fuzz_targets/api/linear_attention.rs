//! The gated delta rule and the causal convolution, with views of any strides.

use gllm_kernels_core::{ConvFilter, DeltaGates, Kernels, MatMut, MatRef, Op};

use crate::{Agree, Call};

/// Runs `op` if it is one of these. Both are in f32, whatever the storage type.
pub fn run(call: &Call, op: Op) -> bool {
    match op {
        Op::GatedDeltaRule => delta(call),
        Op::CausalConv1d => conv(call),
        _ => return false,
    }
    true
}

/// Right numbers, or absurd ones.
fn sizes(call: &Call) -> [usize; 3] {
    let absurd = call.option(7);
    [0, 1, 2].map(|i| if absurd { call.sizes[i].get() } else { usize::from(call.dims[i]) % 70 })
}

fn delta(call: &Call) {
    let [tokens, keys, values] = sizes(call);
    let few = tokens % 9;
    let (q, k) = (call.vector::<f32>(1, 9 * 70), call.vector::<f32>(2, 9 * 70));
    let (v, gates) = (call.vector::<f32>(3, 9 * 70), call.vector::<f32>(4, 9));
    let before = call.vector::<f32>(5, 70 * 70);
    let step = call.sizes[3].get();
    // States grow from token to token where keys are long.
    call.twice::<f32, f32>(70 * 70, Some(&before), Agree::No, |kernels: &Kernels<f32>, state| {
        let (decay, beta) = (&gates[..few], &gates[..call.lengths[0].of(few).min(9)]);
        let gates = DeltaGates { decay, beta, corrected: call.option(6) };
        let (q, k) = (MatRef::new(&q, few, keys)?, MatRef::with_strides(&k, few, keys, step, 1)?);
        let mut y = vec![0.0; 9 * 70];
        let y = MatMut::new(&mut y, call.lengths[1].of(few), values)?;
        kernels.gated_delta_rule(
            MatMut::new(state, values, keys)?,
            q,
            k,
            MatRef::new(&v, few, values)?,
            gates,
            y,
        )
    });
}

fn conv(call: &Call) {
    let [tokens, channels, taps] = sizes(call);
    let (few, taps) = (tokens % 9, taps % 10);
    let (x, w) = (call.vector::<f32>(1, 9 * 70), call.vector::<f32>(2, 10 * 70));
    let (before, bias) = (call.vector::<f32>(3, 9 * 70), call.vector::<f32>(4, 70));
    let bias = call.option(6).then(|| &bias[..call.lengths[1].of(channels).min(70)]);
    let rows = call.lengths[0].of(taps.saturating_sub(1));
    // Sums may cancel.
    call.twice::<f32, f32>(9 * 70, None, Agree::No, |kernels: &Kernels<f32>, y| {
        let mut state = before.to_vec();
        let (x, w) = (MatRef::new(&x, few, channels)?, MatRef::new(&w, taps, channels)?);
        let state = MatMut::new(&mut state, rows, channels)?;
        let filter = ConvFilter { w, bias, silu: call.option(5) };
        kernels.causal_conv1d(state, x, filter, MatMut::new(y, call.lengths[1].of(few), channels)?)
    });
}
