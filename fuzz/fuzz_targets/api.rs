//! The public operators of the core with arguments of all kinds: every storage type and instruction
//! set, right and wrong lengths, any strides and parameters, buffers flush against inaccessible pages.
//!
//! Nothing may crash, panic, write outside of its output, or write at all when it refuses. What it
//! refuses must not depend on the instruction set, and what it computes only within rounding: scalar
//! code is the reference.
#![no_main]

use std::fmt::Debug;

use arbitrary::Arbitrary;
use gllm_kernels_core::{bf16, f16, Element, IsaLevel, KernelError, Kernels, Op, Operand, StorePolicy};
use gllm_testkit::{
    data::Source,
    guard::is_poison,
    numeric::{same, ulp_error},
    Edge, Guarded,
};
use libfuzzer_sys::fuzz_target;

#[path = "api/attention.rs"]
mod attention;
#[path = "api/linear_attention.rs"]
mod linear_attention;
#[path = "api/matrices.rs"]
mod matrices;
#[path = "api/quantised.rs"]
mod quantised;
#[path = "api/rows.rs"]
mod rows;
#[path = "api/vectors.rs"]
mod vectors;

/// A length, relative to the right one.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Length {
    Right,
    AlsoRight,
    AsWell,
    Off(i8),
    Any(u16),
}

impl Length {
    fn of(self, right: usize) -> usize {
        match self {
            Self::Right | Self::AlsoRight | Self::AsWell => right,
            Self::Off(by) => right.saturating_add_signed(isize::from(by)),
            Self::Any(n) => usize::from(n),
        }
    }
}

/// What vectors contain.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
enum Values {
    /// As in practice; sums agree.
    Normal,
    /// Whole numbers: sums are exact.
    Whole,
    /// Every bit pattern.
    Wild,
}

/// A parameter of type f32.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Number {
    Zero,
    One,
    Small(i8),
    Bits(u32),
}

impl Number {
    fn get(self) -> f32 {
        match self {
            Self::Zero => 0.0,
            Self::One => 1.0,
            Self::Small(n) => f32::from(n) / 16.0,
            Self::Bits(b) => f32::from_bits(b),
        }
    }
    /// One that is small enough for results to be compared.
    fn is_tame(self) -> bool {
        !matches!(self, Self::Bits(_))
    }
}

/// Random numbers in a vector, after which they repeat: making them costs more than the call.
const PERIOD: usize = 509;

/// One call.
#[derive(Arbitrary, Debug)]
struct Call {
    op: u8,
    element: u8,
    level: u8,
    streamed: bool,
    in_place: bool,
    at_start: bool,
    values: Values,
    seed: u64,
    /// Right lengths follow from these.
    dims: [u8; 4],
    /// Multiplies the first dimension now and then: long vectors take other paths.
    long: u8,
    lengths: [Length; 4],
    numbers: [Number; 2],
    /// Strides, mask lengths, block counts.
    sizes: [Size; 4],
    options: u8,
}

/// A size that may be absurd.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Size {
    Small(u8),
    Any(usize),
    Max(u8),
}

impl Size {
    fn get(self) -> usize {
        match self {
            Self::Small(n) => usize::from(n),
            Self::Any(n) => n,
            Self::Max(n) => usize::MAX - usize::from(n),
        }
    }
}

/// How outputs of two instruction sets may differ.
#[derive(Clone, Copy)]
enum Agree {
    /// Not at all.
    Exactly,
    /// By so many units in the last place of the storage type.
    Within(u32),
    /// By this much, relative to the larger one and absolute.
    About(f32),
    /// As they like: sums of numbers that cancel or overflow.
    No,
}

impl Call {
    fn edge(&self) -> Edge {
        if self.at_start {
            Edge::Start
        } else {
            Edge::End
        }
    }

    fn option(&self, bit: u32) -> bool {
        self.options >> bit & 1 == 1
    }

    /// A vector with the values of this call, a different one for every `salt`.
    fn vector<E: Element>(&self, salt: u64, n: usize) -> Guarded<E> {
        let mut source = Source::new(self.seed.wrapping_add(salt));
        let values = match self.values {
            Values::Normal => source.normals(n.min(PERIOD)),
            Values::Whole => source.whole(n.min(PERIOD), 8),
            Values::Wild => (0..n.min(PERIOD)).map(|_| source.pattern()).collect(),
        };
        let values: Vec<E> = values.into_iter().cycle().take(n).collect();
        Guarded::copy_of(&values, self.edge())
    }

    /// Length of the vectors of element-wise operators and folds.
    fn len(&self) -> usize {
        usize::from(self.dims[0]) * if self.long > 250 { 1 + usize::from(self.dims[1]) * 16 } else { 1 }
    }

    /// Integers of one byte or more: any, or the extremes among them.
    fn integers<T: From<i8> + Copy>(&self, salt: u64, n: usize) -> Guarded<T> {
        let mut source = Source::new(self.seed.wrapping_add(salt));
        let mut next = || match (self.values, source.below(4)) {
            (Values::Wild, 0) => i8::MIN,
            (Values::Wild, 1) => i8::MAX,
            _ => source.below(256) as u8 as i8,
        };
        let values: Vec<T> = (0..n.min(PERIOD)).map(|_| next().into()).collect();
        let values: Vec<T> = values.into_iter().cycle().take(n).collect();
        Guarded::copy_of(&values, self.edge())
    }

    fn kernels<E: Operand>(&self) -> [Kernels<E>; 2] {
        let levels = gllm_testkit::data::levels();
        let level = levels[usize::from(self.level) % levels.len()];
        let stores = if self.streamed { StorePolicy::Streamed } else { StorePolicy::Cached };
        [level, IsaLevel::Scalar].map(|l| Kernels::forced(l).expect("the level is there").with_stores(stores))
    }

    /// Calls `f` on both levels, with an output of `before` if the call is in place or reads it, of `n`
    /// poisoned elements otherwise; compares results and outputs.
    fn twice<E: Element, T: Element>(
        &self,
        n: usize,
        before: Option<&[T]>,
        agree: Agree,
        f: impl Fn(&Kernels<E>, &mut [T]) -> Result<(), KernelError>,
    ) {
        self.compare(self.kernels::<E>(), n, before, same, |y, want| agrees(y, want, agree), f);
    }

    /// The same for given kernels and any output; `same` says whether a number is still what it was.
    fn compare<E: Operand, T: Copy + Debug>(
        &self,
        kernels: [Kernels<E>; 2],
        n: usize,
        before: Option<&[T]>,
        same: fn(T, T) -> bool,
        agrees: impl Fn(T, T) -> bool,
        f: impl Fn(&Kernels<E>, &mut [T]) -> Result<(), KernelError>,
    ) {
        let edge = self.edge();
        let outcome = kernels.map(|k| {
            let mut y = before.map_or_else(|| Guarded::poisoned(n, edge), |b| Guarded::copy_of(b, edge));
            let result = f(&k, &mut y);
            assert!(y.intact(), "writes outside of the output");
            if let Err(e) = result {
                let _ = e.to_string();
                let kept =
                    before.map_or_else(|| is_poison(&y), |b| y.iter().zip(b).all(|(&y, &b)| same(y, b)));
                assert!(kept, "{e}, but it wrote");
            }
            (result, y)
        });
        let [(result, y), (reference, want)] = outcome;
        assert_eq!(result, reference, "another answer than scalar code's");
        if result.is_ok() {
            for (i, (&y, &want)) in y.iter().zip(want.iter()).enumerate() {
                assert!(agrees(y, want), "element {i}: {y:?}, scalar code says {want:?}");
            }
        }
    }

    /// As [`twice`](Self::twice), for operators that return a number.
    fn twice_value<E: Element>(&self, agree: Agree, f: impl Fn(&Kernels<E>) -> Result<f32, KernelError>) {
        let [value, want] = self.kernels::<E>().map(|k| f(&k));
        match (value, want) {
            (Ok(value), Ok(want)) => assert!(agrees(value, want, agree), "{value}, scalar code says {want}"),
            (value, want) => assert_eq!(value, want, "another answer than scalar code's"),
        }
    }

    /// How sums of products of this call's values agree.
    fn sums(&self, terms: usize) -> Agree {
        match self.values {
            Values::Whole if terms < 100_000 => Agree::Exactly,
            Values::Wild => Agree::No,
            _ => Agree::About(1e-5 * (terms as f32).max(1.0)),
        }
    }

    fn run<E: Element>(&self) {
        let op = Op::ALL[usize::from(self.op) % Op::ALL.len()];
        let known = vectors::run::<E>(self, op)
            || rows::run::<E>(self, op)
            || attention::run::<E>(self, op)
            || linear_attention::run(self, op)
            || matrices::run::<E>(self, op)
            || quantised::run::<E>(self, op);
        assert!(known, "{} is not fuzzed", op.name());
    }
}

fn agrees<T: Element>(a: T, b: T, agree: Agree) -> bool {
    let (x, y) = (a.to_f32(), b.to_f32());
    match agree {
        Agree::No => true,
        _ if same(a, b) => true,
        Agree::Exactly => x == y,
        Agree::Within(ulps) => ulp_error(a, f64::from(y)) <= f64::from(ulps),
        // Sums in another order overflow elsewhere.
        Agree::About(_) if !x.is_finite() && !y.is_finite() => true,
        Agree::About(e) => (x - y).abs() <= e * x.abs().max(y.abs()).max(1.0),
    }
}

fuzz_target!(|call: Call| {
    match call.element % 4 {
        0 => call.run::<f32>(),
        1 => call.run::<f16>(),
        2 => call.run::<bf16>(),
        _ => matrices::int8(&call),
    }
});
