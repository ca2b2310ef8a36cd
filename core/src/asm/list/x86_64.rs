//! The enumeration of kernels in assembly for x86-64.

/// Calls `$then!` with every microkernel in assembly of this architecture: see the one in `mod.rs`.
macro_rules! expand_all_micros {
    ($then:ident!) => {
        $then! {
            gemm_f32_f32_f32_14x32__avx512 {
                tail: "_f32_f32_f32_14x32__avx512",
                storage: F32,
                isa: Avx512,
                requires: [],
                micro: { tile: 14 x 32, a: F32 / 1, b: F32 / 1, depth: 1, edges: Kernel, strides: true, around: None },
            }
            gemm_f32_f16_f16_32x32__avx512_amx_fp16 {
                tail: "_f32_f16_f16_32x32__avx512_amx_fp16",
                storage: F16,
                isa: Avx512,
                requires: [AMX_FP16],
                micro: { tile: 32 x 32, a: F16 / 32, b: F16 / 2, depth: 32, edges: Kernel, strides: false, around: Some(crate::asm::x86_64::AMX_ENTER_AND_LEAVE) },
            }
            gemm_f32_f16_f16_14x32__avx512 {
                tail: "_f32_f16_f16_14x32__avx512",
                storage: F16,
                isa: Avx512,
                requires: [],
                micro: { tile: 14 x 32, a: F32 / 1, b: F16 / 1, depth: 1, edges: Kernel, strides: true, around: None },
            }
            gemm_f32_bf16_bf16_32x32__avx512_amx_bf16 {
                tail: "_f32_bf16_bf16_32x32__avx512_amx_bf16",
                storage: Bf16,
                isa: Avx512,
                requires: [AMX_BF16],
                micro: { tile: 32 x 32, a: Bf16 / 32, b: Bf16 / 2, depth: 32, edges: Kernel, strides: false, around: Some(crate::asm::x86_64::AMX_ENTER_AND_LEAVE) },
            }
            gemm_f32_bf16_bf16_14x32__avx512_bf16 {
                tail: "_f32_bf16_bf16_14x32__avx512_bf16",
                storage: Bf16,
                isa: Avx512,
                requires: [AVX512_BF16],
                micro: { tile: 14 x 32, a: Bf16 / 2, b: Bf16 / 2, depth: 2, edges: Kernel, strides: true, around: None },
            }
            gemm_f32_bf16_bf16_14x32__avx512 {
                tail: "_f32_bf16_bf16_14x32__avx512",
                storage: Bf16,
                isa: Avx512,
                requires: [],
                micro: { tile: 14 x 32, a: F32 / 1, b: Bf16 / 1, depth: 1, edges: Kernel, strides: true, around: None },
            }
            gemm_f32_f32_f32_6x16__avx2 {
                tail: "_f32_f32_f32_6x16__avx2",
                storage: F32,
                isa: Avx2,
                requires: [],
                micro: { tile: 6 x 16, a: F32 / 1, b: F32 / 1, depth: 1, edges: Rows, strides: true, around: None },
            }
            gemm_f32_f16_f16_6x16__avx2 {
                tail: "_f32_f16_f16_6x16__avx2",
                storage: F16,
                isa: Avx2,
                requires: [],
                micro: { tile: 6 x 16, a: F32 / 1, b: F16 / 1, depth: 1, edges: Rows, strides: true, around: None },
            }
            gemm_f32_bf16_bf16_6x16__avx2 {
                tail: "_f32_bf16_bf16_6x16__avx2",
                storage: Bf16,
                isa: Avx2,
                requires: [],
                micro: { tile: 6 x 16, a: F32 / 1, b: Bf16 / 1, depth: 1, edges: Rows, strides: true, around: None },
            }
            gemm_i32_i8_i8_32x32__avx512_amx_int8 {
                tail: "_i32_i8_i8_32x32__avx512_amx_int8",
                storage: I8,
                isa: Avx512,
                requires: [AMX_INT8],
                micro: { tile: 32 x 32, a: I8 / 64, b: I8 / 4, depth: 64, edges: Kernel, strides: false, around: Some(crate::asm::x86_64::AMX_ENTER_AND_LEAVE) },
            }
            gemm_i32_i8_i8_14x32__avx512_vnni {
                tail: "_i32_i8_i8_14x32__avx512_vnni",
                storage: I8,
                isa: Avx512,
                requires: [AVX512_VNNI],
                micro: { tile: 14 x 32, a: U8 / 4, b: I8Offset / 4, depth: 4, edges: Kernel, strides: true, around: None },
            }
            gemm_i32_i8_i8_14x32__avx512 {
                tail: "_i32_i8_i8_14x32__avx512",
                storage: I8,
                isa: Avx512,
                requires: [],
                micro: { tile: 14 x 32, a: I16 / 2, b: I8 / 2, depth: 2, edges: Kernel, strides: true, around: None },
            }
            gemm_i32_i8_i8_6x16__avx2_vnni {
                tail: "_i32_i8_i8_6x16__avx2_vnni",
                storage: I8,
                isa: Avx2,
                requires: [AVX_VNNI],
                micro: { tile: 6 x 16, a: U8 / 4, b: I8Offset / 4, depth: 4, edges: Rows, strides: false, around: None },
            }
            gemm_i32_i8_i8_6x16__avx2 {
                tail: "_i32_i8_i8_6x16__avx2",
                storage: I8,
                isa: Avx2,
                requires: [],
                micro: { tile: 6 x 16, a: I16 / 2, b: I8 / 2, depth: 2, edges: Rows, strides: false, around: None },
            }
        }
    };
}

/// Calls `$then!` with `$args` and every tier of this architecture: see the one in `mod.rs`.
macro_rules! expand_all_tiers {
    ($then:ident! $args:tt) => {
        $then! {
            $args
            avx512_vnni {
                isa: Avx512,
                requires: [AVX512_VNNI],
                batch: 4,
                single: [avx512],
                in_place: [Vnni: "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,avx512vnni"],
                qgemm: [unsigned x32 6 5 4 3 2 1],
                few: [2, 3, 4],
                few_packed: [24, 16],
            }
            avx2_vnni {
                isa: Avx2,
                requires: [AVX_VNNI],
                batch: 2,
                single: [],
                in_place: [AvxVnni: "avx2,fma,f16c,avxvnni"],
                qgemm: [unsigned x16 4 3 2 1],
                few: [4, 6, 6],
                few_packed: [24, 16],
            }
            avx2_maddubs {
                isa: Avx2,
                requires: [],
                batch: 2,
                single: [avx2],
                in_place: [],
                qgemm: [narrow x16 4 3 2 1],
                few: [4, 6, 6],
                few_packed: [6, 6],
            }
        }
    };
}

/// Declares kernels. They have one calling convention on every system, so that one text serves them all.
macro_rules! kernels_in_assembly {
    ($($declaration:tt)*) => {
        extern "sysv64" {
            $($declaration)*
        }
    };
}
