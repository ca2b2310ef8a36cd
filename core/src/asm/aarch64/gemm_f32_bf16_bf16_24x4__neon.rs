//! bf16 by bf16 without the BF16 instructions: the tile of [`tall`](super::tall) with a `B` that stays bf16 in
//! memory.
//!
//! `B` is widened as it is loaded, by a shift, `A` when it is packed; the products are those of f32: exact.

microkernel_24x4! { "gemm_f32_bf16_bf16_24x4__neon", widen: bf16 }
