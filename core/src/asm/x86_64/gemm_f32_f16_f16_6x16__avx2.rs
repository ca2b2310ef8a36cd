//! f16 by f16, AVX2 and F16C: the tile of [`avx2`](super::avx2) with a `B` that stays f16 in memory.
//!
//! `B` is widened as it is loaded, `A` when it is packed.

microkernel_6x16! { "gemm_f32_f16_f16_6x16__avx2", load: f16 }
