//! What users call: the methods of [`Kernels`](crate::Kernels), which check their arguments and choose.

pub(crate) mod external;

mod activations;
mod attention;
mod blas1;
mod dequant;
mod elementwise;
mod finite;
mod gather;
pub(crate) mod gemm;
mod gemv;
mod linear_attention;
mod norm;
mod order;
mod pack;
pub(crate) mod qgemm;
mod qgemv;
mod qgemv_packed;
mod qgemv_q8;
mod qpack;
mod quantize;
mod rope;
pub mod single;
mod softmax;
mod unquantised;
