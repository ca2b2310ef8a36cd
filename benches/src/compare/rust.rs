//! Libraries that are Rust crates, in the versions of `Cargo.lock`. None has packed matrices:
//! `gemm_prepacked` is compared with their plain product.

use std::cell::Cell;
use std::env;
use std::marker::PhantomData;
use std::path::Path;

use ::gemm::Parallelism;
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use gllm_kernels_core::ElementType;

use super::check::Check;
use super::{one_and_all, Peer, Product, Routine, Row};
use crate::error::{Failure, Outcome};
use crate::workload::Case;

/// A crate that multiplies f32 matrices with any strides.
pub trait Crate: 'static {
    /// Its name.
    const NAME: &'static str;
    /// Its function.
    const FUNCTION: &'static str;
    /// See [`Peer::threads`].
    fn threads(named: &[usize]) -> Outcome<Vec<usize>> {
        let most = rayon::current_num_threads();
        match named.iter().find(|&&t| t > most) {
            Some(t) => {
                Err(Failure::Usage(format!("{} runs on at most {most} threads, not on {t}", Self::NAME)))
            }
            None if named.is_empty() => Ok(one_and_all()),
            None => Ok(named.to_vec()),
        }
    }
    /// Called once, before the first product.
    fn prepare(_threads: usize) {}
    /// `C = A B`. The strides of `B` are those from row to row and from column to column.
    ///
    /// # Safety
    /// The pointers must be valid for the product's operands.
    unsafe fn multiply(
        threads: usize,
        p: &Product,
        a: *const f32,
        b: *const f32,
        strides: [isize; 2],
        c: *mut f32,
    );
}

/// A peer that is compiled in.
pub struct Rust<C> {
    threads: Cell<usize>,
    of: PhantomData<C>,
}

pub type Faer = Rust<FaerCrate>;
pub type Gemm = Rust<GemmCrate>;
pub type MatrixMultiply = Rust<MatrixMultiplyCrate>;

impl<C: Crate> Rust<C> {
    const fn row(op: &'static str) -> Row<Self> {
        let (element, check) = (ElementType::F32, Check::Product);
        Row { op, element, function: C::FUNCTION, make: Self::make, check }
    }

    fn make(&'static self, row: &Row<Self>, case: &Case) -> Outcome<Routine> {
        let p = Product::new(row, case.shape);
        let strides = if p.transposed { [1, p.k as isize] } else { [p.n as isize, 1] };
        Ok(Box::new(move |inputs, output| {
            let (a, b, c) = p.operands(inputs, output);
            // SAFETY: the operands have the product's sizes.
            unsafe { C::multiply(self.threads.get(), &p, a, b, strides, c) };
        }))
    }
}

impl<C: Crate> Peer for Rust<C> {
    const NAME: &'static str = C::NAME;

    const ROWS: &'static [Row<Self>] =
        &[Self::row("gemm"), Self::row("gemm_bt"), Self::row("gemm_prepacked"), Self::row("gemv")];

    fn open(library: Option<&Path>) -> Outcome<&'static Self> {
        if library.is_some() {
            return Err(Failure::Usage(format!("--library: {} is compiled in", C::NAME)));
        }
        Ok(Box::leak(Box::new(Self { threads: Cell::new(0), of: PhantomData })))
    }

    fn version(&self) -> String {
        let lock = include_str!("../../../Cargo.lock");
        let after = lock.split_once(&format!("name = \"{}\"\nversion = \"", C::NAME));
        let version = after.and_then(|(_, rest)| rest.split('"').next());
        format!("crate {}", version.unwrap_or("of unknown version"))
    }

    fn threads(named: &[usize]) -> Outcome<Vec<usize>> {
        C::threads(named)
    }

    fn set_threads(&self, threads: usize) -> Outcome {
        if self.threads.replace(threads) == 0 {
            C::prepare(threads);
        }
        Ok(())
    }
}

/// <https://crates.io/crates/faer>
pub struct FaerCrate;

impl Crate for FaerCrate {
    const NAME: &'static str = "faer";
    const FUNCTION: &'static str = "matmul";

    unsafe fn multiply(
        threads: usize,
        p: &Product,
        a: *const f32,
        b: *const f32,
        strides: [isize; 2],
        c: *mut f32,
    ) {
        let &Product { m, n, k, .. } = p;
        let par = if threads == 1 { Par::Seq } else { Par::rayon(threads) };
        // SAFETY: as the caller promises; C is exclusive.
        let (a, b, c) = unsafe {
            (
                MatRef::from_raw_parts(a, m, k, k as isize, 1),
                MatRef::from_raw_parts(b, k, n, strides[0], strides[1]),
                MatMut::from_raw_parts_mut(c, m, n, n as isize, 1),
            )
        };
        matmul(c, Accum::Replace, a, b, 1.0, par);
    }
}

/// <https://crates.io/crates/gemm>
pub struct GemmCrate;

impl Crate for GemmCrate {
    const NAME: &'static str = "gemm";
    const FUNCTION: &'static str = "gemm";

    unsafe fn multiply(
        threads: usize,
        p: &Product,
        a: *const f32,
        b: *const f32,
        [rs, cs]: [isize; 2],
        c: *mut f32,
    ) {
        let &Product { m, n, k, .. } = p;
        let (lda, ldc) = (k as isize, n as isize);
        let par = if threads == 1 { Parallelism::None } else { Parallelism::Rayon(threads) };
        // SAFETY: as the caller promises. C is not read; strides go column first.
        unsafe {
            ::gemm::gemm(
                m, n, k, c, 1, ldc, false, a, 1, lda, b, cs, rs, 0.0f32, 1.0, false, false, false, par,
            )
        }
    }
}

/// <https://crates.io/crates/matrixmultiply>
pub struct MatrixMultiplyCrate;

impl Crate for MatrixMultiplyCrate {
    const NAME: &'static str = "matrixmultiply";
    const FUNCTION: &'static str = "sgemm";

    /// It reads its thread count from the environment, once.
    fn threads(named: &[usize]) -> Outcome<Vec<usize>> {
        match named {
            [] => Ok(vec![1]),
            [1 | 2 | 4] => Ok(named.to_vec()),
            _ => Err(Failure::Usage(
                "matrixmultiply runs on 1, 2 or 4 threads, the same in all of a process: name one with --threads"
                    .to_owned(),
            )),
        }
    }

    fn prepare(threads: usize) {
        env::set_var("MATMUL_NUM_THREADS", threads.to_string());
    }

    unsafe fn multiply(
        _: usize,
        p: &Product,
        a: *const f32,
        b: *const f32,
        [rs, cs]: [isize; 2],
        c: *mut f32,
    ) {
        let &Product { m, n, k, .. } = p;
        let (lda, ldc) = (k as isize, n as isize);
        // SAFETY: as the caller promises.
        unsafe { matrixmultiply::sgemm(m, k, n, 1.0, a, lda, 1, b, rs, cs, 0.0, c, ldc, 1) }
    }
}
