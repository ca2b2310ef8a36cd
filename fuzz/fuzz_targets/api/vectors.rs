//! BLAS-1 and activations.

use gllm_kernels_core::{Element, KernelError, Kernels, Op};

use crate::{Agree, Call};

type Unary<E> = fn(&Kernels<E>, &[E], &mut [E]) -> Result<(), KernelError>;
type UnaryInPlace<E> = fn(&Kernels<E>, &mut [E]) -> Result<(), KernelError>;

/// `y = f(x)` and its in-place form.
fn unary<E: Element>(call: &Call, agree: Agree, f: Unary<E>, in_place: UnaryInPlace<E>) {
    let n = call.len();
    let x = call.vector::<E>(0, n);
    if call.in_place {
        call.twice(n, Some(&x), agree, in_place);
    } else {
        call.twice(call.lengths[0].of(n), None, agree, |k, y| f(k, &x, y));
    }
}

/// Runs `op` if it is one of these.
pub fn run<E: Element>(call: &Call, op: Op) -> bool {
    let n = call.len();
    let other = call.lengths[1].of(n);
    let (x, y) = (|| call.vector::<E>(0, n), || call.vector::<E>(1, other));
    let alpha = call.numbers[0].get();
    let out = call.lengths[0].of(n);
    match op {
        Op::VecDot => call.twice_value::<E>(call.sums(n), |k| k.vec_dot(&x(), &y())),
        Op::VecSum => call.twice_value::<E>(call.sums(n), |k| k.vec_sum(&x())),
        Op::VecMax => call.twice_value::<E>(Agree::Exactly, |k| k.vec_max(&x())),
        Op::VecAdd if call.in_place => {
            call.twice::<E, E>(0, Some(&y()), Agree::Exactly, |k, z| k.vec_add_inplace(&x(), z));
        }
        Op::VecAdd => call.twice::<E, E>(out, None, Agree::Exactly, |k, z| k.vec_add(&x(), &y(), z)),
        Op::VecMul if call.in_place => {
            call.twice::<E, E>(0, Some(&y()), Agree::Exactly, |k, z| k.vec_mul_inplace(&x(), z));
        }
        Op::VecMul => call.twice::<E, E>(out, None, Agree::Exactly, |k, z| k.vec_mul(&x(), &y(), z)),
        Op::VecScale if call.in_place => {
            call.twice::<E, E>(0, Some(&x()), Agree::Exactly, |k, z| k.vec_scale_inplace(alpha, z));
        }
        Op::VecScale => call.twice::<E, E>(out, None, Agree::Exactly, |k, z| k.vec_scale(alpha, &x(), z)),
        Op::VecAxpy => {
            call.twice::<E, E>(0, Some(&y()), Agree::Within(1), |k, z| k.vec_axpy(alpha, &x(), z));
        }
        Op::Relu => unary::<E>(call, Agree::Exactly, Kernels::relu, Kernels::relu_inplace),
        Op::Exp => unary::<E>(call, Agree::Within(4), Kernels::exp, Kernels::exp_inplace),
        Op::Tanh => unary::<E>(call, Agree::Within(8), Kernels::tanh, Kernels::tanh_inplace),
        Op::Silu => unary::<E>(call, Agree::Within(8), Kernels::silu, Kernels::silu_inplace),
        Op::Gelu => unary::<E>(call, Agree::Within(8), Kernels::gelu, Kernels::gelu_inplace),
        Op::GeluTanh => unary::<E>(call, Agree::Within(8), Kernels::gelu_tanh, Kernels::gelu_tanh_inplace),
        Op::Swiglu if call.in_place => {
            call.twice::<E, E>(0, Some(&x()), Agree::Within(10), |k, z| k.swiglu_inplace(z, &y()));
        }
        Op::Swiglu => call.twice::<E, E>(out, None, Agree::Within(10), |k, z| k.swiglu(&x(), &y(), z)),
        Op::Geglu if call.in_place => {
            call.twice::<E, E>(0, Some(&x()), Agree::Within(10), |k, z| k.geglu_inplace(z, &y()));
        }
        Op::Geglu => call.twice::<E, E>(out, None, Agree::Within(10), |k, z| k.geglu(&x(), &y(), z)),
        _ => return false,
    }
    true
}
