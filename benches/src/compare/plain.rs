//! A product as anybody would write it: a peer for tests, which can be wrong and can crash.

use std::path::Path;

use gllm_kernels_core::ElementType;

use super::check::Check;
use super::{Peer, Product, Routine, Row};
use crate::arena::numbers;
use crate::error::Outcome;
use crate::workload::Case;

/// The peer.
pub struct Plain;

/// The inner dimension at which the last element is wrong by a thousandth.
pub const WRONG: usize = 17;

/// The inner dimension at which the process ends.
pub const CRASH: usize = 13;

impl Peer for Plain {
    const NAME: &'static str = "plain";
    const ROWS: &'static [Row<Self>] = &[row("gemm"), row("gemm_bt"), row("gemm_prepacked"), row("gemv")];
    fn open(_: Option<&Path>) -> Outcome<&'static Self> {
        Ok(&Self)
    }
    fn version(&self) -> String {
        "0".to_owned()
    }
    fn set_threads(&self, _: usize) -> Outcome {
        Ok(())
    }
}

const fn row(op: &'static str) -> Row<Plain> {
    Row { op, element: ElementType::F32, function: "naive", make: naive, check: Check::Product }
}

fn naive(_: &'static Plain, row: &Row<Plain>, case: &Case) -> Outcome<Routine> {
    let p = Product::new(row, case.shape);
    Ok(Box::new(move |inputs, output| {
        if p.k == CRASH {
            std::process::abort();
        }
        let (a, b) = (numbers::<f32>(inputs[0]), numbers::<f32>(inputs[1]));
        let (step, next) = if p.transposed { (1, p.k) } else { (p.n, 1) };
        let product = (0..p.m * p.n).map(|at| {
            let (i, j) = (at / p.n, at % p.n);
            let wrong = if p.k == WRONG && at + 1 == p.m * p.n { 0.001 } else { 0.0 };
            wrong + (0..p.k).map(|x| a[i * p.k + x] * b[x * step + j * next]).sum::<f32>()
        });
        for (to, c) in output.chunks_exact_mut(4).zip(product) {
            to.copy_from_slice(&c.to_ne_bytes());
        }
    }))
}
