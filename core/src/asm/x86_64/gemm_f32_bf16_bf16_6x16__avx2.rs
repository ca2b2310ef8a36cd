//! bf16 by bf16, AVX2: the tile of [`avx2`](super::avx2) with a `B` that stays bf16 in memory.
//!
//! `B` is widened as it is loaded, by a shift, `A` when it is packed.

microkernel_6x16! { "gemm_f32_bf16_bf16_6x16__avx2", load: bf16 }
