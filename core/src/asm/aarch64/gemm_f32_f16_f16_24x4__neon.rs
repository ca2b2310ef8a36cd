//! f16 by f16 without FHM: the tile of [`tall`](super::tall) with a `B` that stays f16 in memory.
//!
//! `B` is widened as it is loaded, `A` when it is packed; the products are those of f32: exact.

microkernel_24x4! {
    "gemm_f32_f16_f16_24x4__neon",
    r"
        .macro widen_low to, from
            fcvtl v\to\().4s, v\from\().4h
        .endm
        .macro widen_high to, from
            fcvtl2 v\to\().4s, v\from\().8h
        .endm
    "
}
