//! The algorithms, as functions that are generic over the instruction set and the storage type. They work on raw pointers and
//! check nothing; the methods in `api` check arguments and call them through tables.

pub(crate) mod abreast;
pub(crate) mod activations;
pub(crate) mod ahead;
pub(crate) mod attention;
pub(crate) mod blas1;
pub(crate) mod causal_conv;
pub(crate) mod dequant;
pub(crate) mod e4m3;
pub(crate) mod elementwise;
pub(crate) mod encode;
pub(crate) mod engine;
pub(crate) mod external;
pub(crate) mod gated_delta;
pub(crate) mod gemv;
pub(crate) mod int8;
pub(crate) mod loops;
pub(crate) mod math;
pub(crate) mod norm;
pub(crate) mod pack;
pub(crate) mod qgemm;
pub(crate) mod qgemv;
pub(crate) mod qgemv_packed;
pub(crate) mod qgemv_q8;
pub(crate) mod qpack;
pub(crate) mod rope;
pub(crate) mod round;
pub(crate) mod rows;
pub(crate) mod short;
pub(crate) mod skinny;
pub(crate) mod softmax;
pub(crate) mod tile;
pub(crate) mod unpack;
pub(crate) mod unquantised;
