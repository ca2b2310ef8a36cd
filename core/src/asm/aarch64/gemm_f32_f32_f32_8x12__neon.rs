//! f32 by f32: the tile of [`wide`](super::wide).
//!
//! A step reads 32 bytes of `A` and 48 of `B`; its 24 multiply-adds take 12 cycles where there are two pipes for
//! them (Cortex-A76, Neoverse-N1), 6 where there are four (Neoverse-V1); its 5 loads take fewer.

microkernel_8x12! {
    "gemm_f32_f32_f32_8x12__neon", extension: [], sums: F32, macros: [multiply block step products],
    r"
        .macro multiply sum, b, a, lane
            fmla v\sum\().4s, v\b\().4s, v\a\().s[\lane]
        .endm
    ",
    four_by_four!()
}
