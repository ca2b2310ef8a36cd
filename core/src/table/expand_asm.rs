//! Layer 4, continued: the kernels in assembly.

/// Calls `$then!` with `{ <calling convention> }` and every microkernel in assembly of this target.
///
/// The order is that of preference: of the entries for one storage type and instruction set, the first
/// whose features the CPU has is used; the generic baseline comes last. `tail` is the name behind the
/// operator's, `requires` what the CPU must have beyond `isa`, `a` and `b` the element type and `kr` of
/// the panels (see [`Panel`](crate::args::micro::Panel)), the rest the fields of
/// [`Micro`](crate::args::micro::Micro).
macro_rules! expand_all_micros {
    ($then:ident!) => {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        $then! {
            { "sysv64" }
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
                micro: { tile: 32 x 32, a: F16 / 32, b: F16 / 2, depth: 32, edges: Kernel, strides: false, around: Some(crate::asm::x86_64::TILES) },
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
                micro: { tile: 32 x 32, a: Bf16 / 32, b: Bf16 / 2, depth: 32, edges: Kernel, strides: false, around: Some(crate::asm::x86_64::TILES) },
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
                micro: { tile: 6 x 16, a: F32 / 1, b: F32 / 1, depth: 1, edges: Rows, strides: false, around: None },
            }
            gemm_f32_f16_f16_6x16__avx2 {
                tail: "_f32_f16_f16_6x16__avx2",
                storage: F16,
                isa: Avx2,
                requires: [],
                micro: { tile: 6 x 16, a: F32 / 1, b: F16 / 1, depth: 1, edges: Rows, strides: false, around: None },
            }
            gemm_f32_bf16_bf16_6x16__avx2 {
                tail: "_f32_bf16_bf16_6x16__avx2",
                storage: Bf16,
                isa: Avx2,
                requires: [],
                micro: { tile: 6 x 16, a: F32 / 1, b: Bf16 / 1, depth: 1, edges: Rows, strides: false, around: None },
            }
            gemm_i32_i8_i8_32x32__avx512_amx_int8 {
                tail: "_i32_i8_i8_32x32__avx512_amx_int8",
                storage: I8,
                isa: Avx512,
                requires: [AMX_INT8],
                micro: { tile: 32 x 32, a: I8 / 64, b: I8 / 4, depth: 64, edges: Kernel, strides: false, around: Some(crate::asm::x86_64::TILES) },
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
        #[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
        $then! {
            { "C" }
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
        #[cfg(not(any(
            all(target_arch = "x86_64", target_feature = "sse2"),
            all(target_arch = "aarch64", target_feature = "neon", target_endian = "little")
        )))]
        $then! { { "C" } }
    };
}

/// Calls `$then!` with `{ <calling convention> }` and every tier of kernels for quantised products in integers: the end of
/// their names, and what the CPU must have. Each has kernels in assembly for packed weights of all formats; `in_place` names
/// the [`Dots`](crate::quant::dots::Dots) for weights in place, and what they are compiled for, unless those of the level
/// do it. The first that the CPU can execute is used.
macro_rules! expand_all_tiers {
    ($then:ident!) => {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        $then! {
            { "sysv64" }
            avx512_vnni {
                isa: Avx512,
                requires: [AVX512_VNNI],
                batch: 4,
                in_place: [Vnni: "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,avx512vnni"]
            }
            avx2_vnni { isa: Avx2, requires: [AVX_VNNI], batch: 2, in_place: [] }
            avx2_maddubs { isa: Avx2, requires: [], batch: 2, in_place: [] }
        }
        #[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
        $then! {
            { "C" }
            neon_dotprod { isa: Neon, requires: [DOTPROD], batch: 4, in_place: [Dotprod: "neon,dotprod"] }
            neon_i8mm { isa: Neon, requires: [I8MM], batch: 2, in_place: [] }
            neon_smull { isa: Neon, requires: [], batch: 2, in_place: [] }
        }
        #[cfg(not(any(
            all(target_arch = "x86_64", target_feature = "sse2"),
            all(target_arch = "aarch64", target_feature = "neon", target_endian = "little")
        )))]
        $then! { { "C" } }
    };
}

/// Calls `$then!` with `{ <calling convention> }` and every set of microkernels of `qgemm`: the end of their names, what the
/// CPU must have, and the fields of [`QgemmTier`](crate::table::kernels::QgemmTier). `kernels` says whether they take unsigned codes, or
/// signed ones, perhaps with others for narrow ones, how many rows of weights, and for how many rows of
/// activations there are some. The first that the CPU can execute is used.
macro_rules! expand_all_qgemms {
    ($then:ident!) => {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        $then! {
            { "sysv64" }
            avx512_vnni {
                isa: Avx512,
                requires: [AVX512_VNNI],
                kernels: [unsigned x32 6 5 4 3 2 1],
                few: [2, 3, 4]
            }
            avx2_vnni {
                isa: Avx2,
                requires: [AVX_VNNI],
                kernels: [unsigned x16 4 3 2 1],
                few: [4, 6, 6]
            }
            avx2_maddubs {
                isa: Avx2,
                requires: [],
                kernels: [narrow x16 4 3 2 1],
                few: [4, 6, 6]
            }
        }
        #[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
        $then! {
            { "C" }
            neon_dotprod {
                isa: Neon,
                requires: [DOTPROD],
                kernels: [signed x16 4 3 2 1],
                few: [4, 4, 4]
            }
            neon_i8mm {
                isa: Neon,
                requires: [I8MM],
                kernels: [signed x16 4 2 1],
                few: [4, 4, 4]
            }
            neon_smull {
                isa: Neon,
                requires: [],
                kernels: [signed x16 2 1],
                few: [4, 4, 4]
            }
        }
        #[cfg(not(any(
            all(target_arch = "x86_64", target_feature = "sse2"),
            all(target_arch = "aarch64", target_feature = "neon", target_endian = "little")
        )))]
        $then! { { "C" } }
    };
}
