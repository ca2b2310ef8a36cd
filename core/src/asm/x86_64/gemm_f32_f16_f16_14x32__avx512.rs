//! f16 by f16, AVX-512: the tile of [`avx512`](super::avx512) with a `B` that stays f16 in memory.
//!
//! `B` is widened as it is loaded, `A` when it is packed: two conversions more per 28 multiply-adds than f32,
//! half its bytes.

microkernel_14x32! {
    "gemm_f32_f16_f16_14x32__avx512", sums: F32, start: ZERO, bytes: 32,
    r"
        .macro load_b to, at
            vcvtph2ps zmm\to, [rcx + \at]
        .endm

        .macro multiply_add sum, a, b, spare
            vfmadd231ps zmm\sum, zmm\a, zmm\b
        .endm
    "
}
