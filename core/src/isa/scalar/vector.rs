//! Layer 1 in portable Rust: registers of one f32.

use half::{bf16, f16};

use crate::element::Element;
use crate::isa::Scalar;

/// Through f64, where the product is exact: the compensated steps of the activations need that, and a
/// software `fmaf` costs ten times as much. Rounded once, but for denormal results.
#[inline(always)]
fn fma(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    // Halfway between two f32, perhaps only because it was rounded.
    if sum.to_bits() & 0x1fff_ffff == 0x1000_0000 {
        return tie(product, c, sum);
    }
    sum as f32
}

/// `sum`, halfway between two f32, after a step towards what it lacks of `a + b` (Knuth's TwoSum).
#[cold]
fn tie(a: f64, b: f64, sum: f64) -> f32 {
    let virtual_b = sum - a;
    let error = (a - (sum - virtual_b)) + (b - virtual_b);
    let bits = sum.to_bits();
    f64::from_bits(if error == 0.0 {
        bits
    } else if (error > 0.0) == (sum > 0.0) {
        bits.wrapping_add(1)
    } else {
        bits.wrapping_sub(1)
    }) as f32
}

/// `a * 2^n` in two exact-until-the-last steps, so that denormal results round once.
#[inline(always)]
fn scale2(a: f32, power: f32) -> f32 {
    let both = power.to_bits();
    let half = both >> 1;
    a * f32::from_bits(half << 23) * f32::from_bits((both - half) << 23)
}

simd_primitive! {
    isa: Scalar,
    vector: f32,
    lanes: 1,
    streams: false,
    registers: {
        splat(x) => x,
        add(a, b) => a + b,
        sub(a, b) => a - b,
        mul(a, b) => a * b,
        div(a, b) => a / b,
        fma(a, b, c) => fma(a, b, c),
        fnma(a, b, c) => fma(-a, b, c),
        min(a, b) => if a < b { a } else { b },
        max(a, b) => if a > b { a } else { b },
        copysign(m, s) => m.copysign(s),
        round(a) => (a + 12_582_912.0) - 12_582_912.0,
        scale2(a, power) => scale2(a, power),
        select_lt(a, b, x, y) => if a < b { x } else { y },
        reduce_sum(a) => a,
        reduce_max(a) => a,
        unzip(a, b) => (a, b),
        zip(a, b) => (a, b),
    },
    memory: {
        f32 {
            load(p) => *p,
            load_n(p, n) => if n == 0 { 0.0 } else { *p },
            store(p, v) => *p = v,
            store_n(p, v, n) => if n != 0 { *p = v },
            stream(p, v) => *p = v,
        }
        f16 {
            load(p) => (*p).to_f32(),
            load_n(p, n) => if n == 0 { 0.0 } else { (*p).to_f32() },
            store(p, v) => *p = <f16 as Element>::from_f32(v),
            store_n(p, v, n) => if n != 0 { *p = <f16 as Element>::from_f32(v) },
            stream(p, v) => *p = <f16 as Element>::from_f32(v),
        }
        bf16 {
            load(p) => (*p).to_f32(),
            load_n(p, n) => if n == 0 { 0.0 } else { (*p).to_f32() },
            store(p, v) => *p = <bf16 as Element>::from_f32(v),
            store_n(p, v, n) => if n != 0 { *p = <bf16 as Element>::from_f32(v) },
            stream(p, v) => *p = <bf16 as Element>::from_f32(v),
        }
    }
}
