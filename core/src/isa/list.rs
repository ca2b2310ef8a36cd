//! The enumeration of instruction sets.

macro_rules! instruction_sets {
    ($($(#[$attr:meta])* $name:ident;)*) => {$(
        $(#[$attr])*
        #[derive(Clone, Copy)]
        pub struct $name;
    )*};
}
instruction_sets! {
    /// Portable Rust.
    Scalar;
    /// aarch64 Advanced SIMD.
    #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
    Neon;
    /// [`Neon`] with `sdot`: products with weights in place alone.
    #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
    Dotprod;
    /// AVX2 + FMA + F16C.
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    Avx2;
    /// [`Avx2`] with AVX-VNNI: products with weights in place alone.
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    AvxVnni;
    /// AVX-512 F + BW + VL + DQ.
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    Avx512;
    /// [`Avx512`] with VNNI: products with weights in place alone.
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    Vnni;
}

/// Calls `$then!` with `$args` for every instruction set of this target, best first.
/// `tile` is the generic GEMM microkernel's, `skinny` that of products with few rows.
macro_rules! expand_all_isas {
    ($then:ident! $args:tt) => {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        $then! { $args isa: Avx512, module: avx512, tile: "8x32", skinny: "4x6",
        attribute: target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c") }
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        $then! { $args isa: Avx2, module: avx2, tile: "4x24", skinny: "4x3",
        attribute: target_feature(enable = "avx2,fma,f16c") }
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        $then! { $args isa: Neon, module: neon, tile: "8x8", skinny: "4x6",
        attribute: target_feature(enable = "neon") }
        $then! { $args isa: Scalar, module: scalar, tile: "4x4", skinny: "4x2", attribute: inline(never) }
    };
}
