//! The enumeration of kernels in assembly for aarch64.

/// Calls `$then!` with every microkernel in assembly of this architecture: see the one in `mod.rs`.
macro_rules! expand_all_micros {
    ($then:ident!) => {
        $then! {
            gemm_f32_f32_f32_8x12__neon {
                tail: "_f32_f32_f32_8x12__neon",
                storage: F32,
                isa: Neon,
                requires: [],
                micro: { tile: 8 x 12, a: F32 / 1, b: F32 / 1, depth: 1, edges: Rows, strides: false, around: None },
            }
            gemm_f32_f16_f16_8x12__neon_fhm {
                tail: "_f32_f16_f16_8x12__neon_fhm",
                storage: F16,
                isa: Neon,
                requires: [FHM],
                micro: { tile: 8 x 12, a: F16 / 1, b: F16 / 1, depth: 2, edges: Rows, strides: false, around: None },
            }
            gemm_f32_f16_f16_24x4__neon {
                tail: "_f32_f16_f16_24x4__neon",
                storage: F16,
                isa: Neon,
                requires: [],
                micro: { tile: 24 x 4, a: F32 / 1, b: F16 / 1, depth: 2, edges: Rows, strides: false, around: None },
            }
            gemm_f32_bf16_bf16_8x12__neon_bf16 {
                tail: "_f32_bf16_bf16_8x12__neon_bf16",
                storage: Bf16,
                isa: Neon,
                requires: [BF16],
                micro: { tile: 8 x 12, a: Bf16 / 4, b: Bf16 / 4, depth: 4, edges: Rows, strides: false, around: None },
            }
            gemm_f32_bf16_bf16_24x4__neon {
                tail: "_f32_bf16_bf16_24x4__neon",
                storage: Bf16,
                isa: Neon,
                requires: [],
                micro: { tile: 24 x 4, a: F32 / 1, b: Bf16 / 1, depth: 2, edges: Rows, strides: false, around: None },
            }
            gemm_i32_i8_i8_8x12__neon_i8mm {
                tail: "_i32_i8_i8_8x12__neon_i8mm",
                storage: I8,
                isa: Neon,
                requires: [I8MM],
                micro: { tile: 8 x 12, a: I8 / 8, b: I8 / 8, depth: 8, edges: Rows, strides: false, around: None },
            }
            gemm_i32_i8_i8_8x12__neon_dotprod {
                tail: "_i32_i8_i8_8x12__neon_dotprod",
                storage: I8,
                isa: Neon,
                requires: [DOTPROD],
                micro: { tile: 8 x 12, a: I8 / 4, b: I8 / 4, depth: 4, edges: Rows, strides: false, around: None },
            }
            gemm_i32_i8_i8_4x4__neon {
                tail: "_i32_i8_i8_4x4__neon",
                storage: I8,
                isa: Neon,
                requires: [],
                micro: { tile: 4 x 4, a: I8 / 16, b: I8 / 16, depth: 16, edges: Rows, strides: false, around: None },
            }
        }
    };
}

/// Calls `$then!` with `$args` and every tier of this architecture: see the one in `mod.rs`.
macro_rules! expand_all_tiers {
    ($then:ident! $args:tt) => {
        $then! {
            $args
            neon_dotprod {
                isa: Neon,
                requires: [DOTPROD],
                batch: 4,
                single: [neon],
                in_place: [Dotprod: "neon,dotprod"],
                qgemm: [signed x16 4 3 2 1],
                few: [4, 4, 4],
                few_packed: [24, 16],
            }
            neon_i8mm {
                isa: Neon,
                requires: [I8MM],
                batch: 2,
                single: [],
                in_place: [],
                qgemm: [signed x16 4 2 1],
                few: [4, 4, 4],
                few_packed: [24, 16],
            }
            neon_smull {
                isa: Neon,
                requires: [],
                batch: 2,
                single: [neon],
                in_place: [],
                qgemm: [signed x16 2 1],
                few: [4, 4, 4],
                few_packed: [24, 16],
            }
        }
    };
}
