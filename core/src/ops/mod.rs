//! Layer 2: the algorithms, generic over instruction set and storage, and the public methods.

pub(crate) mod activation;
pub(crate) mod activations;
pub(crate) mod ahead;
pub(crate) mod attention;
pub(crate) mod blas1;
pub(crate) mod dequant;
pub(crate) mod engine;
pub(crate) mod finite;
pub(crate) mod floats;
pub(crate) mod gather;
pub(crate) mod gemm;
pub(crate) mod gemv;
pub(crate) mod int8;
pub(crate) mod lines;
pub(crate) mod math;
pub(crate) mod norm;
pub(crate) mod pack;
pub(crate) mod qgemm;
pub(crate) mod qgemv;
pub(crate) mod qgemv_packed;
pub(crate) mod qgemv_q8;
pub(crate) mod qpack;
pub(crate) mod rope;
pub(crate) mod rows;
pub(crate) mod skinny;
pub(crate) mod softmax;
pub(crate) mod tile;

pub(crate) use crate::quant::external;
