//! Checks that two libraries computed the same results. Wrong ones are not timed.

use gllm_kernels_core::{bf16, f16, ElementType, Op};

use super::worst::Worst;
use crate::arena::numbers;
use crate::workload::{dot_bound, Case, Number, Shape};

/// What the peer's result is compared with.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// With ours: a product.
    Product,
    /// Both with the decoded weights times the activations as they were before they became 8 bits
    /// wide: a product of quantised weights.
    #[cfg(feature = "peer-ggml")]
    Quantised,
    /// With a function of the input; ours has been compared with its own. This is for functions that
    /// are only a part of our operator.
    Function(fn(f64) -> f64),
}

impl Check {
    /// The largest error, or what is wrong.
    pub fn run(
        &self,
        op: Op,
        case: &Case,
        inputs: &[&[u8]],
        ours: &[u8],
        theirs: &[u8],
    ) -> Result<f64, String> {
        if case.element == ElementType::I8 {
            return integers(numbers(ours), numbers(theirs));
        }
        let (ours, theirs) = (numbers::<f32>(ours), numbers::<f32>(theirs));
        match (self, case.element) {
            #[cfg(feature = "peer-ggml")]
            (Self::Quantised, _) => super::quantised::check(case, inputs, ours, theirs),
            (Self::Function(exact), _) => function(*exact, numbers(inputs[0]), theirs),
            (Self::Product, ElementType::F16) => product::<f16>(op, case.shape, inputs, ours, theirs),
            (Self::Product, ElementType::Bf16) => product::<bf16>(op, case.shape, inputs, ours, theirs),
            (Self::Product, _) => product::<f32>(op, case.shape, inputs, ours, theirs),
        }
    }
}

/// Largest error allowed in a function of f32, relative to the result.
const FUNCTION: f64 = 4.0 / (1u64 << 24) as f64;

fn function(exact: fn(f64) -> f64, x: &[f32], theirs: &[f32]) -> Result<f64, String> {
    let mut worst = Worst::default();
    for (i, (&x, &y)) in x.iter().zip(theirs).enumerate() {
        let want = exact(x.into());
        worst.see(i, y.into(), want, want.abs().max(f32::MIN_POSITIVE.into()), FUNCTION)?;
    }
    Ok(worst.0)
}

/// Sums of integers are exact.
fn integers(ours: &[i32], theirs: &[i32]) -> Result<f64, String> {
    match ours.iter().zip(theirs).enumerate().find(|(_, (ours, theirs))| ours != theirs) {
        Some((i, (ours, theirs))) => Err(format!("output {i} is {theirs}, should be {ours}")),
        None => Ok(0.0),
    }
}

/// Each side may err by the bound of a dot product, relative to the magnitudes of its terms. Their sum
/// is at most the product of the norms (Cauchy-Schwarz), which are cheap to find.
fn product<E: Number>(
    op: Op,
    shape: Shape,
    inputs: &[&[u8]],
    ours: &[f32],
    theirs: &[f32],
) -> Result<f64, String> {
    let Shape { n, k, .. } = shape;
    // The weights stand first.
    let n = if op == Op::Gemv { 1 } else { n };
    let rows = |data: &[E]| data.chunks(k).map(|row| norm(row.iter())).collect::<Vec<f64>>();
    let (a, b) = (numbers::<E>(inputs[0]), numbers::<E>(inputs[1]));
    let b = match op {
        Op::GemmBt => rows(b),
        _ => columns(b, n),
    };
    let allowed = 2.0 * dot_bound(k);
    let mut worst = Worst::default();
    for (i, a) in rows(a).into_iter().enumerate() {
        for (j, b) in b.iter().enumerate() {
            let at = i * n + j;
            worst.see(at, theirs[at].into(), ours[at].into(), a * b, allowed)?;
        }
    }
    Ok(worst.0)
}

fn norm<'a, E: Number>(x: impl Iterator<Item = &'a E>) -> f64 {
    x.map(|x| x.wide() * x.wide()).sum::<f64>().sqrt()
}

fn columns<E: Number>(data: &[E], n: usize) -> Vec<f64> {
    let mut squares = vec![0.0; n];
    for row in data.chunks(n) {
        for (sum, x) in squares.iter_mut().zip(row) {
            *sum += x.wide() * x.wide();
        }
    }
    squares.into_iter().map(f64::sqrt).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::bytes;

    fn check(op: Op, ours: &[f32], theirs: &[f32]) -> Result<f64, String> {
        // A = (1 2), B or its transpose = (3 4; 5 6).
        let (a, b) = ([1.0f32, 2.0], [3.0f32, 4.0, 5.0, 6.0]);
        let case = Case { element: ElementType::F32, format: None, shape: Shape { m: 1, n: 2, k: 2 } };
        Check::Product.run(op, &case, &[bytes(&a), bytes(&b)], bytes(ours), bytes(theirs))
    }

    #[test]
    fn products_have_to_agree() {
        let right = [13.0, 16.0];
        assert_eq!(check(Op::Gemm, &right, &right), Ok(0.0));
        assert!(check(Op::GemmBt, &right, &[13.0, 16.000002]).is_ok_and(|e| e > 0.0));
        for wrong in [[13.0, 16.001], [0.0, 16.0], [f32::NAN, 16.0], [13.0, f32::INFINITY]] {
            let text = check(Op::Gemm, &right, &wrong).unwrap_err();
            assert!(text.starts_with("output "), "{text}");
        }
    }

    #[test]
    fn integers_have_to_be_equal() {
        assert_eq!(integers(&[1, -2], &[1, -2]), Ok(0.0));
        assert!(integers(&[1, -2], &[1, 2]).is_err_and(|e| e.contains("output 1")));
    }

    #[test]
    fn functions_have_to_be_exact() {
        let x = [0.0f32, 1.0, -3.0];
        let y = x.map(f32::exp);
        assert!(function(f64::exp, &x, &y).is_ok_and(|e| e < 1e-7));
        assert!(function(f64::exp, &x, &x).is_err());
        assert!(function(f64::exp, &x, &[1.0, f32::NAN, y[2]]).is_err());
    }
}
