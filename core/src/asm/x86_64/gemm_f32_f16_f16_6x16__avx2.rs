//! f16 by f16, AVX2 and F16C: the tile of [`avx2`](super::avx2) with a `B` that stays f16 in memory.
//!
//! `B` is widened as it is loaded, `A` when it is packed.

microkernel_6x16! {
    "gemm_f32_f16_f16_6x16__avx2", sums: F32, start: ZERO, bytes: 16,
    r"
        .macro load_b to, at
            vcvtph2ps ymm\to, [rcx + \at]
        .endm

        .macro multiply_add sum, a, b, spare
            vfmadd231ps ymm\sum, ymm\a, ymm\b
        .endm
    "
}
