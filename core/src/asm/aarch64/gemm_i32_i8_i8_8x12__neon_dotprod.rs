//! int8, dotprod: the tile of [`wide`](super::wide), four steps of the inner dimension at once.
//!
//! `sdot` multiplies four neighbouring elements of `B` in every lane by four of `A` and adds the products up:
//! four times the multiply-adds of f32, exact.

microkernel_8x12! {
    "gemm_i32_i8_i8_8x12__neon_dotprod", extension: ["dotprod"], type: i32,
    loops: loops_8x12!({ "sdot" "16b" ("0" "4b" "0" "1" "2" "3") ("1" "4b" "0" "1" "2" "3") })
}
