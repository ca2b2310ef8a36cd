//! The C interface to BLAS, with 32-bit integers, on row-major matrices.

use std::ffi::c_int;

use super::library::Library;
use super::{Product, Routine, Row};
use crate::arena::Plain;
use crate::error::{Failure, Outcome};
use crate::workload::Shape;

pub const ROW_MAJOR: c_int = 101;
pub const NO_TRANSPOSE: c_int = 111;
pub const TRANSPOSE: c_int = 112;

/// Rows of a peer that has a `library`: our operator, storage type, their function, what makes the
/// routine, and what the result is compared with.
macro_rules! rows {
    ($($op:literal $element:ident $function:literal $make:expr, $check:expr;)*) => {
        &[$(Row {
            op: $op,
            element: ElementType::$element,
            function: $function,
            make: |peer, row, case| $make(peer.library, row, case.shape),
            check: $check,
        }),*]
    };
}
pub(super) use rows;

/// `cblas_sgemm`, and its kin for other storage types: layout, transposition of A and B, m, n, k,
/// alpha, A, lda, B, ldb, beta, C, ldc.
pub type Gemm<E> = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    f32,
    *const E,
    c_int,
    *const E,
    c_int,
    f32,
    *mut f32,
    c_int,
);

/// `cblas_sgemv`: layout, transposition, rows, columns, alpha, A, lda, x, its step, beta, y, its step.
type Gemv = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    f32,
    *const f32,
    c_int,
    *const f32,
    c_int,
    f32,
    *mut f32,
    c_int,
);

/// A size as BLAS takes it.
pub fn int(size: usize) -> Outcome<c_int> {
    let most = c_int::MAX;
    size.try_into().map_err(|_| Failure::Usage(format!("impossible size {size}: the peer's limit is {most}")))
}

/// `C = A B`.
pub fn gemm<E: Plain, P>(library: &'static Library, row: &Row<P>, shape: Shape) -> Outcome<Routine> {
    // SAFETY: the standard's prototype.
    let function = unsafe { library.function::<Gemm<E>>(row.function) }?;
    let p = Product::new(row, shape);
    let (m, n, k, ldb) = (int(p.m)?, int(p.n)?, int(p.k)?, int(p.ldb())?);
    let transposed = if p.transposed { TRANSPOSE } else { NO_TRANSPOSE };
    Ok(Box::new(move |inputs, output| {
        let (a, b, c) = p.operands(inputs, output);
        // SAFETY: matrices of these sizes.
        unsafe { function(ROW_MAJOR, NO_TRANSPOSE, transposed, m, n, k, 1.0, a, k, b, ldb, 0.0, c, n) }
    }))
}

/// `y = A x`.
pub fn gemv<P>(library: &'static Library, row: &Row<P>, shape: Shape) -> Outcome<Routine> {
    // SAFETY: the standard's prototype.
    let function = unsafe { library.function::<Gemv>(row.function) }?;
    let p = Product::new(row, shape);
    let (m, k) = (int(p.m)?, int(p.k)?);
    Ok(Box::new(move |inputs, output| {
        let (a, x, y) = p.operands(inputs, output);
        // SAFETY: a matrix and vectors of these sizes.
        unsafe { function(ROW_MAJOR, NO_TRANSPOSE, m, k, 1.0, a, k, x, 1, 0.0, y, 1) }
    }))
}
