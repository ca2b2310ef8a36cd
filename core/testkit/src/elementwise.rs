//! Activation functions: the oracles, inputs that reach every exponent and every threshold, the bounds.

use gllm_kernels_core::{Element, KernelError, KernelInfo, Kernels, Op};

use crate::blas1::special_pairs;
use crate::data::{every_pattern, specials, Source};
use crate::effort;
use crate::map::{Map, Want};
use crate::numeric::{narrowed, ulp};
use crate::report::Outcome;

/// An element-wise method of [`Kernels`].
pub type Method<E> = fn(&Kernels<E>, &[E], &mut [E]) -> Result<(), KernelError>;

/// An activation of one input: how to call it, what it computes, how exactly.
pub struct Activation<E: Element> {
    /// Out of place.
    pub run: Method<E>,
    /// In place.
    pub in_place: fn(&Kernels<E>, &mut [E]) -> Result<(), KernelError>,
    /// The function in f64, exact to far below half an ulp of f32.
    pub exact: fn(f64) -> f64,
    /// The largest error before the result is rounded to `E`, in ulp of f32: what the documentation promises.
    pub ulps: f64,
}

/// `x / (1 + e^-w)`, of which `x = w = -inf` is the limit -0.
fn times_sigmoid(x: f64, w: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        -0.0
    } else {
        x / (1.0 + libm::exp(-w))
    }
}

fn silu(x: f64) -> f64 {
    times_sigmoid(x, x)
}

fn gelu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        -0.0
    } else {
        0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
    }
}

fn gelu_tanh(x: f64) -> f64 {
    times_sigmoid(x, (8.0 / std::f64::consts::PI).sqrt() * x * (1.0 + 0.044_715 * x * x))
}

/// What a relative error of 9e-5 is in ulp of f32: what results that are stored in 16 bits may be off by before.
const SHORT: f64 = 9e-5 * (1 << 24) as f64;

/// What is known about `op`, if it is an activation of one input with a bound.
pub fn activation<E: Element>(op: Op) -> Option<Activation<E>> {
    let of_f32 = of_f32(op)?;
    Some(Activation { ulps: if size_of::<E>() == 2 { SHORT } else { of_f32.ulps }, ..of_f32 })
}

/// [`activation`], as exact as in f32.
fn of_f32<E: Element>(op: Op) -> Option<Activation<E>> {
    Some(match op {
        Op::Exp => {
            Activation { run: Kernels::exp, in_place: Kernels::exp_inplace, exact: libm::exp, ulps: 1.02 }
        }
        Op::Tanh => {
            Activation { run: Kernels::tanh, in_place: Kernels::tanh_inplace, exact: libm::tanh, ulps: 2.6 }
        }
        Op::Silu => {
            Activation { run: Kernels::silu, in_place: Kernels::silu_inplace, exact: silu, ulps: 2.4 }
        }
        Op::Gelu => {
            Activation { run: Kernels::gelu, in_place: Kernels::gelu_inplace, exact: gelu, ulps: 3.7 }
        }
        Op::GeluTanh => Activation {
            run: Kernels::gelu_tanh,
            in_place: Kernels::gelu_tanh_inplace,
            exact: gelu_tanh,
            ulps: 2.4,
        },
        _ => return None,
    })
}

/// Zeros, infinities and NaN must come out exactly, signs included; the rest within `ulps` of f32 (a
/// result that narrows to zero, within an ulp of the denormals, has no sign to look at).
fn want<E: Element>(exact: f64, ulps: f64) -> Want<E> {
    if exact == 0.0 || !exact.is_finite() {
        Want::Bits(E::from_f32(exact as f32))
    } else {
        Want::Near(exact, narrowed::<E>(ulps))
    }
}

/// Inputs at which the functions change their ways: overflow, underflow, saturation, clamps, and the
/// halves at which range reductions step.
fn thresholds() -> Vec<f32> {
    let mut at = vec![
        88.722_84,
        87.336_54,
        103.278_93,
        103.972_08,
        90.0,
        106.0,
        115.0,
        30.0,
        14.4,
        13.2,
        14.2,
        11.0,
        10.7,
        6.0,
        5.5,
        10.0,
        9.01,
        0.173_286_8,
        0.346_573_6,
        std::f32::consts::LN_2,
        107.5,
        108.6,
    ];
    at.extend((1..40).map(|i| (i as f32 - 0.5) * std::f32::consts::LN_2));
    at.extend((1..40).map(|i| ((2.0 * i as f32 - 1.0) * std::f32::consts::LN_2).sqrt()));
    at
}

/// A few mantissas in every binade of both signs, special values, thresholds and their neighbours; all
/// values of the 16-bit types, or many.
fn inputs<E: Element>() -> Vec<E> {
    if let Some(mut all) = every_pattern::<E>() {
        if effort() == 0 {
            // A prime, so that all exponents and ends of mantissas come.
            all = all.into_iter().step_by(17).chain(specials()).collect();
        }
        return all;
    }
    let mut bits = Vec::new();
    let mut source = Source::new(11);
    for exponent in 0..=255u32 {
        // Where the functions are neither linear nor constant, many more.
        let count = if (110..=135).contains(&exponent) { 400 } else { 8 } * (8 * effort()).max(1) / 8;
        bits.extend((0..count).map(|_| source.below(1 << 23) as u32 | exponent << 23));
        bits.extend([exponent << 23, exponent << 23 | 0x7f_ffff]);
    }
    for t in thresholds() {
        bits.extend(t.to_bits() - 2..=t.to_bits() + 2);
    }
    let both = bits.into_iter().flat_map(|b| [b, b | 1 << 31]);
    both.map(|b| E::from_f32(f32::from_bits(b))).chain(specials()).collect()
}

/// An activation of one input.
pub fn unary<E: Element>(row: &KernelInfo) -> Outcome {
    let a = activation::<E>(row.op).ok_or("not an activation")?;
    let map = Map::<E, 1> {
        run: Some(&|k, [x], y| (a.run)(k, x, y)),
        in_place: Some(&|k, _, x| (a.in_place)(k, x)),
        want: &|[x]| want::<E>((a.exact)(f64::from(x.to_f32())), a.ulps),
    };
    let lengths = map.check(row, &|s, n| s.uniform(n, -12.0, 12.0))?;
    Ok(lengths.and(map.check_values(row, &[inputs::<E>()])?))
}

/// A gated activation: the error of the activation, scaled, and one rounding. An activation among the denormals is only as exact as
/// they are, and a large factor shows it.
pub fn gated<E: Element>(row: &KernelInfo) -> Outcome {
    type Gated<E> = fn(&Kernels<E>, &[E], &[E], &mut [E]) -> Result<(), KernelError>;
    type InPlace<E> = fn(&Kernels<E>, &mut [E], &[E]) -> Result<(), KernelError>;
    let (of, run, in_place): (Op, Gated<E>, InPlace<E>) = match row.op {
        Op::Swiglu => (Op::Silu, Kernels::swiglu, Kernels::swiglu_inplace),
        Op::Geglu => (Op::GeluTanh, Kernels::geglu, Kernels::geglu_inplace),
        _ => return Err("not a gated activation".into()),
    };
    let of = activation::<E>(of).ok_or("no activation")?;
    let map = Map::<E, 2> {
        // In place, the last input is the output.
        run: Some(&|k, [up, gate], y| run(k, gate, up, y)),
        in_place: Some(&|k, up, gate| in_place(k, gate, up[0])),
        want: &|[up, gate]| {
            let (activated, up) = ((of.exact)(f64::from(gate.to_f32())), f64::from(up.to_f32()));
            let exact = activated * up;
            if exact == 0.0 || !exact.is_finite() {
                return Want::Bits(E::from_f32(activated as f32 * up as f32));
            }
            let scaled = of.ulps * ulp::<f32>(activated) * up.abs() / ulp::<f32>(exact);
            Want::Near(exact, narrowed::<E>(scaled + 0.5))
        },
    };
    let lengths = map.check(row, &|s, n| s.uniform(n, -12.0, 12.0))?;
    let gates = inputs::<E>();
    let mut source = Source::new(12);
    let ups = source.uniform(gates.len(), -4.0, 4.0);
    let all = map.check_values(row, &[ups, gates])?;
    Ok(lengths.and(all).and(map.check_values(row, &special_pairs())?))
}
