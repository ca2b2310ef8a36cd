//! Vector operators: BLAS-1 and activation functions.

use gllm_kernels_core::{Element, KernelError, Op};

use super::produce::{Number, Operand, Produce, Want, Workload, PERIOD};
use super::{call, each_element, Case, Context, Cost, Engine, Entry, Sizes};
use crate::limits::memory::Traffic;

/// Cost of a vector operator: operations per element, vectors read and written, vectors there are.
fn cost(case: &Case, flops: f64, moved: f64, there: f64, traffic: Traffic) -> Cost {
    let (n, size) = (case.shape.n as f64, case.size());
    Cost { flops: flops * n, moved: moved * n * size, working_set: there * n * size, traffic }
}

type MapCall<'a, E> = fn(&Engine<'a, E>, &[Operand<'a, E>], &mut [E]) -> Result<(), KernelError>;
type ReduceCall<'a, E> = fn(&Engine<'a, E>, &[Operand<'a, E>]) -> Result<f32, KernelError>;

/// A function of `E` vectors with a vector as its result. In place, the output is the last input too.
fn map<'a, E: Element + Number>(
    mut c: Context<'a>,
    inputs: usize,
    in_place: bool,
    call: MapCall<'a, E>,
    exact: fn(&[f64]) -> Want,
    ulps: f64,
) -> Box<dyn Workload + 'a> {
    let n = c.case.shape.n;
    let engine = Engine::new(&c);
    // In place, calls are repeated on their own results: positive numbers stay away from denormals.
    let low = if in_place { 0.5 } else { -10.0 };
    let mut operand = |seed| Operand::random(c.carver.take(n), PERIOD, seed, low, 10.0);
    let inputs = (0..inputs).map(|i| operand(i as u64)).collect();
    let mut output = operand(77);
    if !in_place {
        output.pattern.clear();
    }
    Box::new(Produce {
        weights: &[],
        inputs,
        output,
        call: Box::new(move |x, y| call(&engine, x, y)),
        exact: Box::new(move |x| {
            let at = |i| x.iter().map(|x| x[i]).collect::<Vec<_>>();
            (0..x[0].len()).map(|i| exact(&at(i))).collect()
        }),
        // Activations that are stored in 16 bits have shorter polynomials; others are exact to an ulp.
        bound: if size_of::<E>() == 2 && ulps > 1.0 { 9e-5 } else { ulps / f64::from(1 << 23) },
        kernel: None,
    })
}

/// A number from `E` vectors. Inputs are positive: nothing cancels, so a missing part shows.
fn reduce<'a, E: Element + Number>(
    mut c: Context<'a>,
    inputs: usize,
    call: ReduceCall<'a, E>,
    term: fn(&[f64]) -> f64,
    join: fn(f64, f64) -> f64,
) -> Box<dyn Workload + 'a> {
    let n = c.case.shape.n;
    let engine = Engine::new(&c);
    let inputs = (0..inputs).map(|i| Operand::random(c.carver.take(n), PERIOD, i as u64, 0.5, 1.5)).collect();
    let output = Operand { data: c.carver.take::<f32>(1), pattern: Vec::new() };
    Box::new(Produce {
        weights: &[],
        inputs,
        output,
        call: Box::new(move |x, y| {
            y[0] = call(&engine, x)?;
            Ok(())
        }),
        exact: Box::new(move |x| {
            let period = x[0].len();
            let total = |count: usize| {
                let terms = (0..count).map(|i| term(&x.iter().map(|x| x[i]).collect::<Vec<_>>()));
                terms.fold(0.0, join)
            };
            let (whole, rest) = (total(period), total(n % period));
            let mut sum = rest;
            for _ in 0..n / period {
                sum = join(sum, whole);
            }
            vec![Want::of(sum)]
        }),
        // Core's bound, far above what random errors reach.
        bound: ((n as f64 / 32.0 + 8.0) / f64::from(1 << 24)).min(1e-4),
        kernel: None,
    })
}

/// An entry per line: name, registry operator, operations per element, vectors moved and there,
/// traffic, and how to build it.
macro_rules! entries {
    ($($name:ident $op:ident: $flops:expr, $moved:literal $there:literal $traffic:ident $halves:literal,
       |$c:ident| $build:expr;)*) => {
        $(fn $name<'a, E: Element + Number>($c: Context<'a>) -> Box<dyn Workload + 'a> {
            $build
        })*
        pub(super) static ENTRIES: &[Entry] = &[$(Entry {
            name: stringify!($name),
            op: Op::$op,
            sizes: Sizes::Vector,
            quantised: false,
            cost: |case| cost(case, $flops, $moved, $there, Traffic::$traffic),
            build: each_element!($name),
            halves: $halves,
        }),*];
    };
}

/// -1 and 1 leave values that stay in range however often a call is repeated in place.
const ALPHA: f32 = -1.0;

/// Operations per element of an exponential: scaling, rounding, two-step reduction (2 multiply-adds),
/// a polynomial of degree 5, scaling by a power of two.
const EXP: f64 = 17.0;

/// An exponential, two sums, a quotient (reciprocal and one correction).
const TANH: f64 = 24.0;

/// An exponential, a sum, a quotient.
pub(super) const SILU: f64 = 23.0;

/// A cubic argument, then as `tanh`, then a product and a sum.
const GELU_TANH: f64 = 30.0;

/// An exponential, and a quotient of polynomials of degree 4 to 6.
const GELU: f64 = 41.0;

fn silu_exact(x: f64) -> Want {
    Want::of(x / (1.0 + (-x).exp()))
}

/// By the complementary function: on the left, `1 + erf` would cancel.
fn gelu_exact(x: f64) -> Want {
    Want::of(0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2))
}

/// `(1 + tanh u) / 2 = 1 / (1 + e^(-2u))`.
fn gelu_tanh_exact(x: f64) -> Want {
    let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    Want::of(x / (1.0 + (-2.0 * u).exp()))
}

fn swiglu_exact(gate: f64, up: f64) -> Want {
    Want::of(silu_exact(gate).value * up)
}

fn geglu_exact(gate: f64, up: f64) -> Want {
    Want::of(gelu_tanh_exact(gate).value * up)
}

entries! {
    vec_dot VecDot: 2.0, 2.0 2.0 Read true, |c| reduce::<E>(c, 2,
        |k, x| call!(k, vec_dot(x[0].data, x[1].data)), |x| x[0] * x[1], |a, b| a + b);
    vec_sum VecSum: 1.0, 1.0 1.0 Read false, |c| reduce::<E>(c, 1,
        |k, x| call!(k, vec_sum(x[0].data)), |x| x[0], |a, b| a + b);
    vec_max VecMax: 1.0, 1.0 1.0 Read false, |c| reduce::<E>(c, 1,
        |k, x| call!(k, vec_max(x[0].data)), |x| x[0], f64::max);
    vec_add VecAdd: 1.0, 3.0 3.0 Triad true, |c| map::<E>(c, 2, false,
        |k, x, y| call!(k, vec_add(x[0].data, x[1].data, y)), |x| Want::of(x[0] + x[1]), 0.0);
    vec_add_inplace VecAdd: 1.0, 3.0 2.0 Accumulate false, |c| map::<E>(c, 1, true,
        |k, x, y| call!(k, vec_add_inplace(x[0].data, y)), |x| Want::of(x[0] + x[1]), 0.0);
    vec_mul VecMul: 1.0, 3.0 3.0 Triad false, |c| map::<E>(c, 2, false,
        |k, x, y| call!(k, vec_mul(x[0].data, x[1].data, y)), |x| Want::of(x[0] * x[1]), 0.0);
    vec_mul_inplace VecMul: 1.0, 3.0 2.0 Accumulate false, |c| map::<E>(c, 1, true,
        |k, x, y| call!(k, vec_mul_inplace(x[0].data, y)), |x| Want::of(x[0] * x[1]), 0.0);
    vec_scale VecScale: 1.0, 2.0 2.0 Copy true, |c| map::<E>(c, 1, false,
        |k, x, y| call!(k, vec_scale(ALPHA, x[0].data, y)), |x| Want::of(f64::from(ALPHA) * x[0]), 0.0);
    vec_scale_inplace VecScale: 1.0, 2.0 1.0 Update false, |c| map::<E>(c, 0, true,
        |k, _, y| call!(k, vec_scale_inplace(ALPHA, y)), |x| Want::of(f64::from(ALPHA) * x[0]), 0.0);
    vec_axpy VecAxpy: 2.0, 3.0 2.0 Accumulate true, |c| map::<E>(c, 1, true,
        |k, x, y| call!(k, vec_axpy(ALPHA, x[0].data, y)), |x| Want::of(x[1] + f64::from(ALPHA) * x[0]), 0.0);
    relu Relu: 1.0, 2.0 2.0 Copy false, |c| map::<E>(c, 1, false,
        |k, x, y| call!(k, relu(x[0].data, y)), |x| Want::of(x[0].max(0.0)), 0.0);
    relu_inplace Relu: 1.0, 2.0 1.0 Update false, |c| map::<E>(c, 0, true,
        |k, _, y| call!(k, relu_inplace(y)), |x| Want::of(x[0].max(0.0)), 0.0);
    exp Exp: EXP, 2.0 2.0 Copy true, |c| map::<E>(c, 1, false,
        |k, x, y| call!(k, exp(x[0].data, y)), |x| Want::of(x[0].exp()), 2.0);
    exp_inplace Exp: EXP, 2.0 1.0 Update false, |c| map::<E>(c, 0, true,
        |k, _, y| call!(k, exp_inplace(y)), |x| Want::of(x[0].exp()), 2.0);
    tanh Tanh: TANH, 2.0 2.0 Copy false, |c| map::<E>(c, 1, false,
        |k, x, y| call!(k, tanh(x[0].data, y)), |x| Want::of(x[0].tanh()), 4.0);
    tanh_inplace Tanh: TANH, 2.0 1.0 Update false, |c| map::<E>(c, 0, true,
        |k, _, y| call!(k, tanh_inplace(y)), |x| Want::of(x[0].tanh()), 4.0);
    silu Silu: SILU, 2.0 2.0 Copy true, |c| map::<E>(c, 1, false,
        |k, x, y| call!(k, silu(x[0].data, y)), |x| silu_exact(x[0]), 4.0);
    silu_inplace Silu: SILU, 2.0 1.0 Update false, |c| map::<E>(c, 0, true,
        |k, _, y| call!(k, silu_inplace(y)), |x| silu_exact(x[0]), 4.0);
    gelu Gelu: GELU, 2.0 2.0 Copy false, |c| map::<E>(c, 1, false,
        |k, x, y| call!(k, gelu(x[0].data, y)), |x| gelu_exact(x[0]), 4.0);
    gelu_inplace Gelu: GELU, 2.0 1.0 Update false, |c| map::<E>(c, 0, true,
        |k, _, y| call!(k, gelu_inplace(y)), |x| gelu_exact(x[0]), 4.0);
    gelu_tanh GeluTanh: GELU_TANH, 2.0 2.0 Copy false, |c| map::<E>(c, 1, false,
        |k, x, y| call!(k, gelu_tanh(x[0].data, y)), |x| gelu_tanh_exact(x[0]), 4.0);
    gelu_tanh_inplace GeluTanh: GELU_TANH, 2.0 1.0 Update false, |c| map::<E>(c, 0, true,
        |k, _, y| call!(k, gelu_tanh_inplace(y)), |x| gelu_tanh_exact(x[0]), 4.0);
    swiglu Swiglu: SILU + 1.0, 3.0 3.0 Triad true, |c| map::<E>(c, 2, false,
        |k, x, y| call!(k, swiglu(x[0].data, x[1].data, y)), |x| swiglu_exact(x[0], x[1]), 5.0);
    swiglu_inplace Swiglu: SILU + 1.0, 3.0 2.0 Accumulate false, |c| map::<E>(c, 1, true,
        |k, x, y| call!(k, swiglu_inplace(y, x[0].data)), |x| swiglu_exact(x[1], x[0]), 5.0);
    geglu Geglu: GELU_TANH + 1.0, 3.0 3.0 Triad false, |c| map::<E>(c, 2, false,
        |k, x, y| call!(k, geglu(x[0].data, x[1].data, y)), |x| geglu_exact(x[0], x[1]), 5.0);
    geglu_inplace Geglu: GELU_TANH + 1.0, 3.0 2.0 Accumulate false, |c| map::<E>(c, 1, true,
        |k, x, y| call!(k, geglu_inplace(y, x[0].data)), |x| geglu_exact(x[1], x[0]), 5.0);
}
