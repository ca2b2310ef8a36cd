//! Vector operators: BLAS-1 and activations.

use gllm_kernels_core::{Element, KernelError, Op};

use super::produce::{Number, Operand, Produce, Want, Workload, PERIOD};
use super::{call, Context, Cost, Engine, Entry, Shape, Sizes};
use crate::limits::memory::Traffic;

/// Cost of a vector operator: operations per element, vectors read and written, vectors there are.
fn cost(s: Shape, size: f64, flops: f64, moved: f64, there: f64, traffic: Traffic) -> Cost {
    let n = s.n as f64;
    Cost { flops: flops * n, moved: moved * n * size, working_set: there * n * size, traffic }
}

/// A function of `E` vectors with a vector as its result. In place, the output is the last input too.
fn map<'a, E: Element + Number>(
    mut c: Context<'a>,
    inputs: usize,
    in_place: bool,
    call: fn(&Engine<'a, E>, &[Operand<'a, E>], &mut [E]) -> Result<(), KernelError>,
    exact: fn(&[f64]) -> Want,
    ulps: f64,
) -> Box<dyn Workload + 'a> {
    let n = c.shape.n;
    let engine = Engine::new(&c);
    let mut operand = |seed| Operand::random(c.carver.take(n), PERIOD, seed, -10.0, 10.0);
    let inputs = (0..inputs).map(|i| operand(i as u64)).collect();
    let mut output = operand(77);
    if !in_place {
        output.pattern.clear();
    }
    Box::new(Produce {
        inputs,
        output,
        call: Box::new(move |x, y| call(&engine, x, y)),
        exact: Box::new(move |x| {
            let at = |i| x.iter().map(|x| x[i]).collect::<Vec<_>>();
            (0..x[0].len()).map(|i| exact(&at(i))).collect()
        }),
        bound: ulps / f64::from(1 << 23),
        kernel: None,
    })
}

/// A number from `E` vectors. Inputs are positive: nothing cancels, so a missing part shows.
fn reduce<'a, E: Element + Number>(
    mut c: Context<'a>,
    inputs: usize,
    call: fn(&Engine<'a, E>, &[Operand<'a, E>]) -> Result<f32, KernelError>,
    term: fn(&[f64]) -> f64,
    join: fn(f64, f64) -> f64,
) -> Box<dyn Workload + 'a> {
    let n = c.shape.n;
    let engine = Engine::new(&c);
    let inputs = (0..inputs).map(|i| Operand::random(c.carver.take(n), PERIOD, i as u64, 0.5, 1.5)).collect();
    let output = Operand { data: c.carver.take::<f32>(1), pattern: Vec::new() };
    Box::new(Produce {
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

/// `build: [..]` for the three element types.
macro_rules! each_element {
    ($f:ident) => {
        [$f::<f32>, $f::<gllm_kernels_core::f16>, $f::<gllm_kernels_core::bf16>]
    };
}

/// An entry per line: name, registry operator, operations per element, vectors moved and there,
/// traffic, and how to build it.
macro_rules! entries {
    ($($name:ident $op:ident: $flops:literal $moved:literal $there:literal $traffic:ident $halves:literal,
       |$c:ident| $build:expr;)*) => {
        $(fn $name<'a, E: Element + Number>($c: Context<'a>) -> Box<dyn Workload + 'a> {
            $build
        })*
        pub(super) static ENTRIES: &[Entry] = &[$(Entry {
            name: stringify!($name),
            op: Op::$op,
            sizes: Sizes::Vector,
            cost: |s, size| cost(s, size, $flops, $moved, $there, Traffic::$traffic),
            build: each_element!($name),
            halves: $halves,
        }),*];
    };
}

/// -1 and 1 leave values that stay in range however often a call is repeated in place.
const ALPHA: f32 = -1.0;

entries! {
    vec_dot VecDot: 2.0 2.0 2.0 Read true, |c| reduce::<E>(c, 2,
        |k, x| call!(k, vec_dot(x[0].data, x[1].data)), |x| x[0] * x[1], |a, b| a + b);
    vec_sum VecSum: 1.0 1.0 1.0 Read false, |c| reduce::<E>(c, 1,
        |k, x| call!(k, vec_sum(x[0].data)), |x| x[0], |a, b| a + b);
    vec_max VecMax: 1.0 1.0 1.0 Read false, |c| reduce::<E>(c, 1,
        |k, x| call!(k, vec_max(x[0].data)), |x| x[0], f64::max);
    vec_add VecAdd: 1.0 3.0 3.0 Triad true, |c| map::<E>(c, 2, false,
        |k, x, y| call!(k, vec_add(x[0].data, x[1].data, y)), |x| Want::of(x[0] + x[1]), 0.0);
    vec_add_inplace VecAdd: 1.0 3.0 2.0 Accumulate false, |c| map::<E>(c, 1, true,
        |k, x, y| call!(k, vec_add_inplace(x[0].data, y)), |x| Want::of(x[0] + x[1]), 0.0);
    vec_mul VecMul: 1.0 3.0 3.0 Triad false, |c| map::<E>(c, 2, false,
        |k, x, y| call!(k, vec_mul(x[0].data, x[1].data, y)), |x| Want::of(x[0] * x[1]), 0.0);
    vec_mul_inplace VecMul: 1.0 3.0 2.0 Accumulate false, |c| map::<E>(c, 1, true,
        |k, x, y| call!(k, vec_mul_inplace(x[0].data, y)), |x| Want::of(x[0] * x[1]), 0.0);
    vec_scale VecScale: 1.0 2.0 2.0 Copy true, |c| map::<E>(c, 1, false,
        |k, x, y| call!(k, vec_scale(ALPHA, x[0].data, y)), |x| Want::of(f64::from(ALPHA) * x[0]), 0.0);
    vec_scale_inplace VecScale: 1.0 2.0 1.0 Update false, |c| map::<E>(c, 0, true,
        |k, _, y| call!(k, vec_scale_inplace(ALPHA, y)), |x| Want::of(f64::from(ALPHA) * x[0]), 0.0);
    vec_axpy VecAxpy: 2.0 3.0 2.0 Accumulate true, |c| map::<E>(c, 1, true,
        |k, x, y| call!(k, vec_axpy(ALPHA, x[0].data, y)), |x| Want::of(x[1] + f64::from(ALPHA) * x[0]), 0.0);
    relu Relu: 1.0 2.0 2.0 Copy false, |c| map::<E>(c, 1, false,
        |k, x, y| call!(k, relu(x[0].data, y)), |x| Want::of(x[0].max(0.0)), 0.0);
    relu_inplace Relu: 1.0 2.0 1.0 Update false, |c| map::<E>(c, 0, true,
        |k, _, y| call!(k, relu_inplace(y)), |x| Want::of(x[0].max(0.0)), 0.0);
}
