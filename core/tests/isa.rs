//! The 22 operations against their definitions, for every instruction set of this machine.
//!
//! The operations are private to the library. What is compiled here are their files alone: a test inside the library would
//! compile all kernels again.

#[macro_use]
#[path = "../src/isa/simd_primitive.rs"]
mod simd_primitive;
#[path = "../src/vocabulary/vector.rs"]
#[allow(dead_code)] // How they are used is not tested here.
mod vector;
#[macro_use]
#[path = "../src/isa/list.rs"]
#[allow(dead_code)] // Some of it is not for these operations.
mod isa;

/// What the files use of the library.
mod element {
    pub use gllm_kernels_core::Element;
}

#[cfg(target_arch = "x86_64")]
#[path = "../src/isa/avx2/vector.rs"]
mod avx2_vector;
#[cfg(target_arch = "x86_64")]
#[path = "../src/isa/avx512/vector.rs"]
mod avx512_vector;
#[cfg(target_arch = "aarch64")]
#[path = "../src/isa/neon/vector.rs"]
mod neon_vector;
#[path = "../src/isa/scalar/vector.rs"]
mod scalar_vector;

use core::fmt::Debug;

use gllm_kernels_core::{Caps, Element, IsaLevel};
use gllm_testkit::{Edge, Guarded};
use half::{bf16, f16};

use vector::Prim;

/// xorshift64*: the few random bits these tests need.
struct Bits(u64);
impl Bits {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
    fn any(&mut self) -> f32 {
        f32::from_bits(self.next())
    }
    /// Finite and normal, with a biased exponent in `low ..= high`.
    fn normal(&mut self, low: u32, high: u32) -> f32 {
        let e = low + self.next() % (high - low + 1);
        f32::from_bits(self.next() & 0x807f_ffff | e << 23)
    }
}

const ROUNDS: usize = if cfg!(target_arch = "x86_64") { 20_000 } else { 2_000 };

const SPECIAL: [f32; 20] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.5,
    3.0,
    1e-30,
    -1e30,
    f32::MAX,
    f32::MIN,
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    f32::from_bits(1),
    -f32::from_bits(1),
    f32::from_bits(0x007f_ffff),
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    -f32::NAN,
];

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// A register from a function of the lane.
unsafe fn make<P: Prim<f32>>(f: impl FnMut(usize) -> f32) -> P::V {
    let x: Vec<f32> = (0..P::LANES).map(f).collect();
    // SAFETY: LANES elements; the caller vouches for the instruction set.
    unsafe { P::load(x.as_ptr()) }
}

fn lanes<P: Prim<f32>>(v: P::V) -> Vec<f32> {
    let mut x = vec![f32::NAN; P::LANES];
    // SAFETY: LANES elements; a register exists only where the instruction set does.
    unsafe { P::store(x.as_mut_ptr(), v) };
    x
}

/// Compares `op` with its definition lane by lane: all triples that `inputs` yields.
unsafe fn lanewise<P: Prim<f32>>(
    name: &str,
    inputs: impl IntoIterator<Item = [f32; 3]>,
    op: impl Fn(P::V, P::V, P::V) -> P::V,
    definition: impl Fn(f32, f32, f32) -> f32,
    agree: impl Fn(f32, f32) -> bool,
) {
    let inputs: Vec<_> = inputs.into_iter().collect();
    for chunk in inputs.chunks(P::LANES) {
        let at = |i: usize| chunk[i % chunk.len()];
        // SAFETY: the caller vouches for the instruction set.
        let got = unsafe { op(make::<P>(|i| at(i)[0]), make::<P>(|i| at(i)[1]), make::<P>(|i| at(i)[2])) };
        for (i, got) in lanes::<P>(got).into_iter().enumerate() {
            let [a, b, c] = at(i);
            let want = definition(a, b, c);
            assert!(agree(got, want), "{name}({a:e}, {b:e}, {c:e}), lane {i}: {got:e} instead of {want:e}");
        }
    }
}

fn special_triples() -> Vec<[f32; 3]> {
    let pairs = SPECIAL.iter().flat_map(|&a| SPECIAL.iter().map(move |&b| (a, b)));
    pairs.flat_map(|(a, b)| SPECIAL.iter().map(move |&c| [a, b, c])).collect()
}

fn random_triples() -> Vec<[f32; 3]> {
    let mut bits = Bits(7);
    let mut near = Bits(8);
    let wide = (0..ROUNDS).map(|_| [bits.any(), bits.any(), bits.any()]);
    // Where roundings matter: exponents close together.
    let close = (0..ROUNDS).map(|_| core::array::from_fn(|_| near.normal(110, 140)));
    wide.chain(close).collect()
}

/// # Safety
/// The CPU has the instruction set of `P`.
unsafe fn arithmetic<P: Prim<f32>>() {
    // Products halfway between two f32, and what an f64 of them has no place for.
    let ties = [1e-12, -1e-12, 0.0].map(|c| [4097.0, 4097.0, c]);
    let inputs = || special_triples().into_iter().chain(random_triples()).chain(ties);
    // The scalar fma rounds denormal results twice.
    let fused = |got: f32, want: f32| {
        let twice = P::LANES == 1 && want.abs() <= f32::MIN_POSITIVE;
        same(got, want) || twice && (i64::from(got.to_bits()) - i64::from(want.to_bits())).abs() <= 1
    };
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        for &x in &SPECIAL {
            assert!(lanes::<P>(P::splat(x)).iter().all(|&l| l.to_bits() == x.to_bits()), "splat({x:e})");
        }
        lanewise::<P>("add", inputs(), |a, b, _| P::add(a, b), |a, b, _| a + b, same);
        lanewise::<P>("sub", inputs(), |a, b, _| P::sub(a, b), |a, b, _| a - b, same);
        lanewise::<P>("mul", inputs(), |a, b, _| P::mul(a, b), |a, b, _| a * b, same);
        lanewise::<P>("fma", inputs(), |a, b, c| P::fma(a, b, c), f32::mul_add, fused);
        lanewise::<P>("fnma", inputs(), |a, b, c| P::fnma(a, b, c), |a, b, c| (-a).mul_add(b, c), fused);
    }
}

/// # Safety
/// The CPU has the instruction set of `P`.
unsafe fn division<P: Prim<f32>>() {
    let mut bits = Bits(9);
    // b and 1 / b normal; quotients normal.
    let inputs = (0..4 * ROUNDS).map(|_| {
        let b = bits.normal(2, 251);
        loop {
            let a = bits.normal(1, 254);
            let q = f64::from(a) / f64::from(b);
            if (f64::from(f32::MIN_POSITIVE)..f64::from(f32::MAX)).contains(&q.abs()) {
                return [a, b, 0.0];
            }
        }
    });
    let within_one = |got: f32, want: f32| (i64::from(got.to_bits()) - i64::from(want.to_bits())).abs() <= 1;
    let zeros = [[0.0, 3.0, 0.0], [0.0, 1e-30, 0.0], [0.0, 1e30, 0.0]];
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        lanewise::<P>("div", inputs.chain(zeros), |a, b, _| P::div(a, b), |a, b, _| a / b, within_one);
    }
}

/// # Safety
/// The CPU has the instruction set of `P`.
unsafe fn comparison<P: Prim<f32>>() {
    let inputs = || special_triples().into_iter().chain(random_triples());
    // The operands themselves come out: NaNs and zeros keep their bits.
    let bits = |got: f32, want: f32| got.to_bits() == want.to_bits();
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        lanewise::<P>("min", inputs(), |a, b, _| P::min(a, b), |a, b, _| if a < b { a } else { b }, bits);
        lanewise::<P>("max", inputs(), |a, b, _| P::max(a, b), |a, b, _| if a > b { a } else { b }, bits);
        lanewise::<P>("copysign", inputs(), |m, s, _| P::copysign(m, s), |m, s, _| m.copysign(s), bits);
        let pick = |a: f32, b: f32, x: f32| if a < b { x } else { a };
        lanewise::<P>("select_lt", inputs(), |a, b, x| P::select_lt(a, b, x, a), pick, bits);
    }
}

/// # Safety
/// The CPU has the instruction set of `P`.
unsafe fn rounding<P: Prim<f32>>() {
    let mut bits = Bits(10);
    let ties = (-50..50).map(|i| i as f32 * 0.5).chain([4_194_303.5, -4_194_303.5, 4_194_304.0, 4_194_302.5]);
    let random = (0..ROUNDS).map(|_| bits.normal(100, 127 + 21));
    let inputs = ties.chain(random).map(|a| [a, 0.0, 0.0]).collect::<Vec<_>>();
    // The sign of a zero is open.
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        lanewise::<P>("round", inputs, |a, _, _| P::round(a), |a, _, _| a.round_ties_even(), |g, w| g == w);
    }
    // a * 2^n is exact in f64.
    let scaled = |a: f32, n: f32, _| (f64::from(a) * f64::from(n).exp2()) as f32;
    let every_n = (-252..=252).flat_map(|n| [1.0, -1.0, 1.5, 0.71, -1.999_999_9].map(|a| [a, n as f32, 0.0]));
    let random = (0..4 * ROUNDS).map(|_| {
        // From 2^-100 up to the largest finite values.
        let a = bits.normal(27, 254);
        [a, (bits.next() % 505) as f32 - 252.0, 0.0]
    });
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        lanewise::<P>(
            "scale2",
            every_n.chain(random),
            |a, n, _| P::scale2(a, P::add(n, P::splat(vector::POWER_OF_ZERO))),
            scaled,
            same,
        )
    };
}

/// # Safety
/// The CPU has the instruction set of `P`.
unsafe fn across_lanes<P: Prim<f32>>() {
    let n = P::LANES;
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        // Powers of two: a lane left out or counted twice shows.
        let powers = make::<P>(|i| (1u32 << i) as f32);
        assert_eq!(P::reduce_sum(powers), ((1u32 << n) - 1) as f32, "reduce_sum");
        for top in 0..n {
            let v = make::<P>(|i| if i == top { -1.0 } else { -2.0 - i as f32 });
            assert_eq!(P::reduce_max(v), -1.0, "reduce_max, lane {top}");
        }
        assert_eq!(P::reduce_max(P::splat(f32::NEG_INFINITY)), f32::NEG_INFINITY);

        let (a, b) = (make::<P>(|i| i as f32), make::<P>(|i| (n + i) as f32));
        let (even, odd) = P::unzip(a, b);
        for i in 0..n {
            assert_eq!(lanes::<P>(even)[i], (2 * i) as f32, "unzip, even, lane {i}");
            assert_eq!(lanes::<P>(odd)[i], (2 * i + 1) as f32, "unzip, odd, lane {i}");
        }
        let (low, high) = P::zip(even, odd);
        assert_eq!(lanes::<P>(low), lanes::<P>(a), "zip, low half");
        assert_eq!(lanes::<P>(high), lanes::<P>(b), "zip, high half");
    }
}

fn pattern<E: Element>(e: E) -> u32 {
    match size_of::<E>() {
        // SAFETY: `Element` is sealed; its types of two bytes are plain numbers.
        2 => u32::from(unsafe { core::mem::transmute_copy::<E, u16>(&e) }),
        _ => e.to_f32().to_bits(),
    }
}

fn from_pattern<E: Element>(bits: u32) -> E {
    match size_of::<E>() {
        // SAFETY: `Element` is sealed; its types of two bytes are plain numbers, for which any bits are valid.
        2 => unsafe { core::mem::transmute_copy(&(bits as u16)) },
        _ => E::from_f32(f32::from_bits(bits)),
    }
}

/// Loads widen every pattern exactly; partial loads zero the rest and touch nothing behind.
///
/// # Safety
/// The CPU has the instruction set of `P`.
unsafe fn loads<E: Element + Debug, P: Prim<E> + Prim<f32>>() {
    let mut bits = Bits(11);
    let all: Vec<E> = match size_of::<E>() {
        2 => (0..=0xffff).map(from_pattern).collect(),
        _ => (0..ROUNDS).map(|_| from_pattern(bits.next())).collect(),
    };
    // Guarded memory is slow to make: few in it, the rest without.
    for chunk in all.chunks_exact(P::LANES).take(16) {
        for edge in Edge::BOTH {
            let memory = Guarded::copy_of(chunk, edge);
            // SAFETY: LANES elements; the caller vouches for the instruction set.
            let got = lanes::<P>(unsafe { <P as Prim<E>>::load(memory.as_ptr()) });
            for (got, e) in got.into_iter().zip(chunk) {
                assert!(same(got, e.to_f32()), "load {e:?}: {got:e}");
            }
        }
    }
    for chunk in all.chunks_exact(P::LANES) {
        // SAFETY: LANES elements; the caller vouches for the instruction set.
        let got = lanes::<P>(unsafe { <P as Prim<E>>::load(chunk.as_ptr()) });
        for (got, e) in got.into_iter().zip(chunk) {
            assert!(same(got, e.to_f32()), "load {e:?}: {got:e}");
        }
    }
    for n in 0..=P::LANES {
        for edge in Edge::BOTH {
            let values: Vec<E> = (0..n).map(|i| E::from_f32(1.5 + i as f32)).collect();
            let memory = Guarded::copy_of(&values, edge);
            // SAFETY: n elements.
            let got = lanes::<P>(unsafe { <P as Prim<E>>::load_n(memory.as_ptr(), n) });
            for (i, got) in got.into_iter().enumerate() {
                let want = if i < n { 1.5 + i as f32 } else { 0.0 };
                assert_eq!(got.to_bits(), want.to_bits(), "load_n, n={n}, lane {i}");
            }
        }
    }
}

/// f32 values around which narrowing to `E` decides: every value, every midpoint, and their neighbours.
fn edges<E: Element>() -> Vec<f32> {
    let mut bits = Bits(12);
    let mut values: Vec<f32> = SPECIAL.into_iter().chain((0..ROUNDS).map(|_| bits.any())).collect();
    if size_of::<E>() == 2 {
        let step = if cfg!(target_arch = "x86_64") { 1 } else { 7 };
        for p in (0..0xffff).step_by(step) {
            let (a, b) = (from_pattern::<E>(p).to_f32(), from_pattern::<E>(p + 1).to_f32());
            if a.is_nan() || b.is_nan() {
                continue;
            }
            // The midpoint beyond the largest finite value: half a step further.
            let middle = if b.is_infinite() {
                let below = from_pattern::<E>(p - 1).to_f32();
                a + (a - below) / 2.0
            } else {
                a / 2.0 + b / 2.0
            };
            for x in [a, middle] {
                values.extend([x, x.next_up(), x.next_down()]);
            }
        }
    }
    values
}

/// Stores round to nearest even as `half` does; partial stores leave the rest alone.
///
/// # Safety
/// The CPU has the instruction set of `P`.
unsafe fn stores<E: Element + Debug, P: Prim<E> + Prim<f32>>() {
    // SAFETY: every pointer below has as many elements as the operation addresses.
    unsafe {
        let mut out = Guarded::<E>::poisoned(P::LANES, Edge::End);
        let mut check = |values: &[f32], stream: bool| {
            let v = make::<P>(|i| values[i % values.len()]);
            if stream {
                // Flush with a page: aligned.
                <P as Prim<E>>::stream(out.as_mut_ptr(), v);
            } else {
                <P as Prim<E>>::store(out.as_mut_ptr(), v);
            }
            for (i, &got) in out.iter().enumerate() {
                let x = values[i % values.len()];
                let want = E::from_f32(x);
                let ok = pattern(got) == pattern(want) || got.to_f32().is_nan() && x.is_nan();
                assert!(ok, "store {x:e} ({:#x}): {got:?} instead of {want:?}", x.to_bits());
            }
        };
        for chunk in edges::<E>().chunks(P::LANES) {
            check(chunk, false);
            check(chunk, true);
        }
        for n in 0..=P::LANES {
            for edge in Edge::BOTH {
                let mut exact = Guarded::<E>::poisoned(n, edge);
                let v = make::<P>(|i| -1.5 - i as f32);
                <P as Prim<E>>::store_n(exact.as_mut_ptr(), v, n);
                assert!(exact.intact(), "store_n, n={n}, writes outside");
                for (i, &e) in exact.iter().enumerate() {
                    assert_eq!(e.to_f32(), -1.5 - i as f32, "store_n, n={n}, element {i}");
                }
                // It rounds like a whole store.
                let v = make::<P>(|i| 1.0 / (3.0 + i as f32));
                <P as Prim<E>>::store_n(exact.as_mut_ptr(), v, n);
                for (i, &e) in exact.iter().enumerate() {
                    let want = E::from_f32(1.0 / (3.0 + i as f32));
                    assert_eq!(pattern(e), pattern(want), "store_n, n={n}, element {i}");
                }
            }
        }
        // Any alignment.
        for skip in 0..P::LANES {
            let mut buf = vec![E::ZERO; 2 * P::LANES];
            <P as Prim<E>>::store(buf.as_mut_ptr().add(skip), P::splat(3.0));
            for (i, e) in buf.iter().enumerate() {
                let want = if (skip..skip + P::LANES).contains(&i) { 3.0 } else { 0.0 };
                assert_eq!(e.to_f32(), want, "store at offset {skip}, element {i}");
            }
            let back = lanes::<P>(<P as Prim<E>>::load(buf.as_ptr().add(skip)));
            assert!(back.iter().all(|&x| x == 3.0), "load at offset {skip}");
        }
    }
}

/// The specification's number, from the traits' own text.
#[test]
fn there_are_twenty_two_operations() {
    let text = include_str!("../src/vocabulary/vector.rs");
    let methods = |name: &str| {
        let body = text.split(&format!("pub unsafe trait {name}")).nth(1).expect("the trait is here");
        body.split("\n}").next().map_or(0, |b| b.matches("unsafe fn ").count())
    };
    assert_eq!((methods("Arithmetic"), methods("Vector"), methods("Prim<E: Element>")), (13, 4, 5));
}

/// One module of tests per instruction set; a machine without it passes them unrun.
macro_rules! suite {
    ({} isa: $isa:ident, module: $module:ident, tile: $tile:literal, skinny: $skinny:literal, attribute: $attr:meta) => {
        mod $module {
            use super::*;
            use crate::isa::$isa;

            fn here() -> bool {
                Caps::detect().features().contains(IsaLevel::$isa.requires())
            }
            suite! { $isa
                arithmetic = super::arithmetic::<$isa>,
                division = super::division::<$isa>,
                comparison = super::comparison::<$isa>,
                rounding = super::rounding::<$isa>,
                across_lanes = super::across_lanes::<$isa>,
                loads_f32 = loads::<f32, $isa>,
                loads_f16 = loads::<f16, $isa>,
                loads_bf16 = loads::<bf16, $isa>,
                stores_f32 = stores::<f32, $isa>,
                stores_f16 = stores::<f16, $isa>,
                stores_bf16 = stores::<bf16, $isa>,
            }
        }
    };
    ($isa:ident $($name:ident = $f:expr,)*) => {$(
        #[test]
        fn $name() {
            if here() {
                // SAFETY: the CPU has the instruction set.
                unsafe { $f() }
            }
        }
    )*};
}
expand_all_isas! { suite! {} }
