//! int8, dotprod: the tile of [`wide`](super::wide), four steps of the inner dimension at once.
//!
//! `sdot` multiplies four neighbouring elements of `B` in every lane by four of `A` and adds the products up:
//! four times the multiply-adds of f32, exact.

microkernel_8x12! {
    "gemm_i32_i8_i8_8x12__neon_dotprod", extension: ["dotprod"], sums: I32, macros: [multiply block step products],
    r"
        .macro multiply sum, b, a, lane
            sdot v\sum\().4s, v\b\().16b, v\a\().4b[\lane]
        .endm
    ",
    four_by_four!()
}
