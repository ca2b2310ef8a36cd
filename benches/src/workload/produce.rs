//! A call, its operands, and how its results are verified.
//!
//! Operands are periodic: a short random pattern, repeated. So the outputs repeat too, and all of
//! them can be verified: the first period against f64, every other against the first, bit for bit.

use gllm_kernels_core::{Element, KernelError};

use crate::arena::{bytes, Plain};

/// Something to time.
pub trait Workload {
    /// Fills the operands.
    fn set_up(&mut self);
    /// One call.
    fn call(&mut self) -> Result<(), KernelError>;
    /// Sets the operands up, calls, and checks every output; the largest error, or what is wrong.
    fn verify(&mut self) -> Result<f64, String>;
    /// Whether a call overwrites what it reads.
    fn changes_input(&self) -> bool;
    /// The kernel that runs, where the operator chooses among several.
    fn kernel(&self) -> Option<&'static str> {
        None
    }
    /// What a call reads, for another library to read too.
    fn inputs(&self) -> Vec<&[u8]>;
    /// What the last call wrote.
    fn output(&self) -> &[u8];
}

/// A number operands and outputs may hold.
pub trait Number: Plain + PartialEq + Send + Sync {
    /// Exact.
    fn wide(self) -> f64;
    /// Rounded; i8 takes -1..1 to all that it has.
    fn narrow(x: f32) -> Self;
    /// What an output holds before it is written.
    const POISON: Self;
    /// Largest relative error of rounding to nearest.
    const ROUNDING: f64;
    /// Smallest normal number: errors of smaller results are taken relative to it.
    const TINY: f64;
}

macro_rules! number {
    ($($t:ty: $rounding:expr, $tiny:expr;)*) => {$(
        impl Number for $t {
            fn wide(self) -> f64 {
                self.to_f32().into()
            }
            fn narrow(x: f32) -> Self {
                <$t as Element>::from_f32(x)
            }
            const POISON: Self = <$t>::NAN;
            const ROUNDING: f64 = $rounding;
            const TINY: f64 = $tiny;
        }
    )*};
}
number! {
    f32: 1.0 / (1u64 << 24) as f64, f32::MIN_POSITIVE as f64;
    gllm_kernels_core::f16: 1.0 / 2048.0, 1.0 / 16384.0;
    gllm_kernels_core::bf16: 1.0 / 256.0, f32::MIN_POSITIVE as f64;
}

macro_rules! integer {
    ($($t:ident: $scale:expr;)*) => {$(
        impl Number for $t {
            fn wide(self) -> f64 {
                self.into()
            }
            fn narrow(x: f32) -> Self {
                (x * $scale).floor() as $t
            }
            const POISON: Self = $t::MIN;
            // Exact or wrong.
            const ROUNDING: f64 = 0.0;
            const TINY: f64 = 1.0;
        }
    )*};
}
integer! { i8: 128.0; i32: 1.0; }

/// An operand and the pattern it repeats.
#[derive(Debug)]
pub struct Operand<'a, T> {
    /// The memory.
    pub data: &'a mut [T],
    /// What it is filled with, again and again.
    pub pattern: Vec<T>,
}

/// Length of the patterns of vectors: a prime, so that repetitions meet every alignment.
pub const PERIOD: usize = 65521;

impl<'a, T: Number> Operand<'a, T> {
    /// Uniform random numbers in `low..high`, repeated every `period` elements.
    pub fn random(data: &'a mut [T], period: usize, seed: u64, low: f32, high: f32) -> Self {
        // SplitMix64 (Steele, Lea, Flood 2014).
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ z >> 31) >> 40) as f32 / (1u64 << 24) as f32
        };
        let pattern = (0..period.min(data.len())).map(|_| T::narrow(low + (high - low) * next())).collect();
        Self { data, pattern }
    }

    fn fill(&mut self) {
        for part in self.data.chunks_mut(self.pattern.len().max(1)) {
            part.copy_from_slice(&self.pattern[..part.len()]);
        }
    }

    fn wide(&self) -> Vec<f64> {
        self.pattern.iter().map(|x| x.wide()).collect()
    }
}

/// The right value of one output, and what its error is relative to.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// In f64.
    pub value: f64,
    /// The value's magnitude, or for sums that of all terms together.
    pub scale: f64,
}

impl Want {
    /// A value that is no sum.
    pub fn of(value: f64) -> Self {
        Self { value, scale: value.abs() }
    }
}

/// One call: inputs, memory, output.
pub type Call<'a, E, T> = Box<dyn FnMut(&[Operand<'a, E>], &mut [T]) -> Result<(), KernelError> + 'a>;

/// The first period of outputs, from the inputs' patterns (and, in place, the output's old pattern).
pub type Exact = Box<dyn Fn(&[Vec<f64>]) -> Vec<Want>>;

/// The one kind of workload: inputs of `E`, an output of `T`.
pub struct Produce<'a, E, T> {
    /// Quantised weights, if it has any.
    pub weights: &'a [u8],
    /// Inputs.
    pub inputs: Vec<Operand<'a, E>>,
    /// Output. In place, its pattern is the old contents; otherwise empty.
    pub output: Operand<'a, T>,
    /// The call.
    pub call: Call<'a, E, T>,
    /// The oracle.
    pub exact: Exact,
    /// Largest error allowed before rounding to `T`.
    pub bound: f64,
    /// See [`Workload::kernel`].
    pub kernel: Option<&'static str>,
}

impl<E: Number, T: Number> Workload for Produce<'_, E, T> {
    fn set_up(&mut self) {
        for input in &mut self.inputs {
            input.fill();
        }
        if self.changes_input() {
            self.output.fill();
        } else {
            self.output.data.fill(T::POISON);
        }
    }

    fn changes_input(&self) -> bool {
        !self.output.pattern.is_empty()
    }

    fn call(&mut self) -> Result<(), KernelError> {
        (self.call)(&self.inputs, self.output.data)
    }

    fn verify(&mut self) -> Result<f64, String> {
        self.set_up();
        self.call().map_err(|e| e.to_string())?;

        let mut patterns: Vec<Vec<f64>> = self.inputs.iter().map(Operand::wide).collect();
        if self.changes_input() {
            patterns.push(self.output.wide());
        }
        let want = (self.exact)(&patterns);
        let allowed = self.bound + T::ROUNDING * 1.01;
        let mut worst = 0.0f64;
        let (first, rest) = self.output.data.split_at(want.len().min(self.output.data.len()));
        let mut check = |i: usize, got: T, want: Want| {
            let error = (got.wide() - want.value).abs() / want.scale.max(T::TINY);
            worst = worst.max(error);
            // Written so that NaN fails.
            if error <= allowed {
                return Ok(());
            }
            let (got, value) = (got.wide(), want.value);
            Err(format!(
                "output {i} is {got:e}, should be {value:e}: error {error:.2e}, allowed {allowed:.2e}"
            ))
        };
        for (i, (&got, &want)) in first.iter().zip(&want).enumerate() {
            check(i, got, want)?;
        }
        for (p, part) in rest.chunks(want.len().max(1)).enumerate() {
            if *part != first[..part.len()] {
                for (i, (&got, &want)) in part.iter().zip(&want).enumerate() {
                    check((p + 1) * first.len() + i, got, want)?;
                }
            }
        }
        Ok(worst)
    }

    fn kernel(&self) -> Option<&'static str> {
        self.kernel
    }

    fn inputs(&self) -> Vec<&[u8]> {
        let weights = (!self.weights.is_empty()).then_some(self.weights);
        weights.into_iter().chain(self.inputs.iter().map(|x| bytes(x.data))).collect()
    }

    fn output(&self) -> &[u8] {
        bytes(self.output.data)
    }
}
