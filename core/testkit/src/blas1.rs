//! BLAS-1 and ReLU.

use gllm_kernels_core::{Element, KernelInfo, Kernels};

use crate::data::{both_walks, lengths, long, specials, Source};
use crate::map::{Map, Want};
use crate::numeric::{gamma, sum as exact_sum, wide};
use crate::report::{Outcome, Report};
use crate::{call, Edge, Guarded};

/// Every pair of two special values.
pub(crate) fn special_pairs<E: Element>() -> [Vec<E>; 2] {
    let s = specials::<E>();
    let pairs = || s.iter().flat_map(|&a| s.iter().map(move |&b| (a, b)));
    [pairs().map(|p| p.0).collect(), pairs().map(|p| p.1).collect()]
}

/// Runs a fold over `x` (and `y`) on guarded copies.
type Fold<'a, E> = &'a dyn Fn(&Kernels<E>, &[E], &[E]) -> f32;

/// Sums: whole numbers must come out exactly, others within the bound of `accumulators` partial sums.
fn check_sum<E: Element>(
    row: &KernelInfo,
    accumulators: usize,
    run: Fold<'_, E>,
    term: fn(f64, f64) -> f64,
) -> Outcome {
    let k = Kernels::<E>::forced(row.level).map_err(|e| e.to_string())?;
    let mut source = Source::new(2);
    let mut report = Report::BOUND;
    let chains = accumulators * row.level.lanes();
    for n in lengths(row.level).into_iter().chain([long::<E>()]) {
        for (i, (what, x, y)) in [
            ("whole numbers", source.whole::<E>(n, 3), source.whole::<E>(n, 3)),
            ("normal", source.normals(n), source.normals(n)),
            ("positive", source.uniform(n, 0.5, 1.5), source.uniform(n, 0.5, 1.5)),
        ]
        .into_iter()
        .enumerate()
        {
            let edge = Edge::BOTH[i % 2];
            let (gx, gy) = (Guarded::copy_of(&x, edge), Guarded::copy_of(&y, edge));
            let (exact, magnitudes) = exact_sum(wide(&x).iter().zip(wide(&y)).map(|(&x, y)| term(x, y)));
            // The chain, the remainder of up to `accumulators` vectors, joining, the lanes.
            let steps = n.div_ceil(chains) + accumulators + accumulators + 4;
            let bound = if what == "whole numbers" { 0.0 } else { gamma(steps, magnitudes) };
            for k in both_walks(&k) {
                let got = f64::from(call(|| run(&k, &gx, &gy)));
                let err = (got - exact).abs();
                let err = if err == 0.0 { 0.0 } else { err / bound };
                report.cases += 1;
                report.see(err, 1.0, || format!("n={n}, {what}: {got} instead of {exact}"))?;
            }
        }
    }
    Ok(report)
}

/// `vec_dot`
pub fn dot<E: Element>(row: &KernelInfo) -> Outcome {
    check_sum::<E>(row, 4, &|k, x, y| k.vec_dot(x, y).unwrap_or(f32::NAN), |x, y| x * y)
}

/// `vec_sum`
pub fn sum<E: Element>(row: &KernelInfo) -> Outcome {
    check_sum::<E>(row, 8, &|k, x, _| k.vec_sum(x).unwrap_or(f32::NAN), |x, _| x)
}

/// `vec_max`: the maximum at every place of a vector, NaN everywhere else or not.
pub fn max<E: Element>(row: &KernelInfo) -> Outcome {
    let k = Kernels::<E>::forced(row.level).map_err(|e| e.to_string())?;
    let mut source = Source::new(3);
    let mut report = Report::ULP;
    let nan = E::from_f32(f32::NAN);
    let mut case = |x: &[E], want: f32| {
        // Each case is run in both ways: of these, one starts at an edge and the other ends at one.
        for (k, edge) in both_walks(&k).into_iter().zip(Edge::BOTH) {
            let x = Guarded::copy_of(x, edge);
            let got = call(|| k.vec_max(&x)).map_err(|e| e.to_string())?;
            report.cases += 1;
            let err = if got == want { 0.0 } else { f64::INFINITY };
            report.see(err, 0.0, || format!("n={}: {got} instead of {want}", x.len()))?;
        }
        Ok::<_, String>(())
    };
    for n in lengths(row.level) {
        case(&vec![nan; n], f32::NEG_INFINITY)?;
        case(&vec![E::from_f32(f32::NEG_INFINITY); n], f32::NEG_INFINITY)?;
        let mut x: Vec<E> = source.wide(n);
        // In long vectors only around the ends.
        for at in (0..n).filter(|&i| n < 200 || i < 40 || i + 40 > n) {
            let kept = std::mem::replace(&mut x[at], E::from_f32(f32::INFINITY));
            case(&x, f32::INFINITY)?;
            x[at] = kept;
            let mut lonely = vec![nan; n];
            lonely[at] = E::from_f32(-2.5);
            case(&lonely, -2.5)?;
        }
        let want = x.iter().fold(f32::NEG_INFINITY, |m, v| m.max(v.to_f32()));
        case(&x, want)?;
    }
    let mut x: Vec<E> = source.uniform(long::<E>(), -2.0, -1.0);
    for at in [0, 1, 4095, x.len() / 2, x.len() - 2, x.len() - 1] {
        let kept = std::mem::replace(&mut x[at], E::from_f32(-0.5));
        case(&x, -0.5)?;
        x[at] = kept;
    }
    Ok(report)
}

/// `vec_add`: one f32 addition, narrowed once.
pub fn add<E: Element>(row: &KernelInfo) -> Outcome {
    let map = Map::<E, 2> {
        run: Some(&|k, [x, y], z| k.vec_add(x, y, z)),
        in_place: Some(&|k, x, y| k.vec_add_inplace(x[0], y)),
        want: &|[x, y]| Want::Bits(E::from_f32(x.to_f32() + y.to_f32())),
    };
    Ok(map.check(row, &|s, n| s.normals(n))?.and(map.check_values(row, &special_pairs())?))
}

/// `vec_mul`: one f32 multiplication, narrowed once.
pub fn mul<E: Element>(row: &KernelInfo) -> Outcome {
    let map = Map::<E, 2> {
        run: Some(&|k, [x, y], z| k.vec_mul(x, y, z)),
        in_place: Some(&|k, x, y| k.vec_mul_inplace(x[0], y)),
        want: &|[x, y]| Want::Bits(E::from_f32(x.to_f32() * y.to_f32())),
    };
    Ok(map.check(row, &|s, n| s.wide(n))?.and(map.check_values(row, &special_pairs())?))
}

/// `vec_scale`: one f32 multiplication, narrowed once.
pub fn scale<E: Element>(row: &KernelInfo) -> Outcome {
    let mut report = Report::ULP;
    for alpha in [-1.7, 0.0, 1e-30, f32::INFINITY, f32::NAN] {
        let map = Map::<E, 1> {
            run: Some(&|k, [x], y| k.vec_scale(alpha, x, y)),
            in_place: Some(&|k, _, x| k.vec_scale_inplace(alpha, x)),
            want: &|[x]| Want::Bits(E::from_f32(alpha * x.to_f32())),
        };
        if report.cases == 0 {
            report = report.and(map.check(row, &|s, n| s.wide(n))?);
        }
        report = report.and(map.check_values(row, &[specials()])?);
    }
    Ok(report)
}

/// `vec_axpy`: one fused multiply-add, narrowed once. (Scalar code goes through f64 and so rounds
/// twice in rare cases; an f32 is then still within 0.5 ulp and a hair.)
pub fn axpy<E: Element>(row: &KernelInfo) -> Outcome {
    let mut report = Report::ULP;
    for alpha in [0.37, -1.0, 0.0, 3e30] {
        let map = Map::<E, 2> {
            run: None,
            in_place: Some(&|k, x, y| k.vec_axpy(alpha, x[0], y)),
            want: &|[x, y]| {
                let exact = f64::from(alpha) * f64::from(x.to_f32()) + f64::from(y.to_f32());
                Want::Near(exact, crate::numeric::narrowed::<E>(0.500_001))
            },
        };
        if report.cases == 0 {
            report = report.and(map.check(row, &|s, n| s.normals(n))?);
        }
        report = report.and(map.check_values(row, &special_pairs())?);
    }
    Ok(report)
}

/// `relu`: NaN and -0 give +0.
pub fn relu<E: Element>(row: &KernelInfo) -> Outcome {
    let map = Map::<E, 1> {
        run: Some(&|k, [x], y| k.relu(x, y)),
        in_place: Some(&|k, _, x| k.relu_inplace(x)),
        want: &|[x]| Want::Bits(if x.to_f32() > 0.0 { x } else { E::ZERO }),
    };
    Ok(map.check(row, &|s, n| s.normals(n))?.and(map.check_values(row, &[specials()])?))
}
