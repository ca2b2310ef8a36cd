//! f32 by f32: the tile of [`wide`](super::wide).
//!
//! A step reads 32 bytes of `A` and 48 of `B`; its 24 multiply-adds take 12 cycles where there are two pipes for
//! them (Cortex-A76, Neoverse-N1), 6 where there are four (Neoverse-V1); its 5 loads take fewer.

microkernel_8x12! {
    "gemm_f32_f32_f32_8x12__neon", extension: [], type: f32,
    loops: loops_8x12!({
        "fmla" "4s" ("0" "s" "0" "1" "2" "3") ("1" "s" "0" "1" "2" "3")
    })
}
