//! What users call: the methods of [`Kernels`](crate::Kernels), which check their arguments and choose.

pub(crate) mod external;

mod blas1;
mod dequant;
mod elementwise;
mod floats;
mod gemv;
mod norm;
mod quantize;
mod rope;
