//! bf16 by bf16 without the BF16 instructions: the tile of [`tall`](super::tall) with a `B` that stays bf16 in
//! memory.
//!
//! `B` is widened as it is loaded, by a shift, `A` when it is packed; the products are those of f32: exact.

microkernel_24x4! {
    "gemm_f32_bf16_bf16_24x4__neon",
    r"
        .macro widen_low to, from
            shll v\to\().4s, v\from\().4h, #16
        .endm
        .macro widen_high to, from
            shll2 v\to\().4s, v\from\().8h, #16
        .endm
    "
}
