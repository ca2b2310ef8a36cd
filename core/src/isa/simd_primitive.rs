//! Layer 1: one table for each instruction set, with 22 operations for each storage type.

/// Implements [`Arithmetic`](crate::vector::Arithmetic) (13 operations that treat every lane alike), [`Vector`](crate::vector::Vector)
/// (4 operations across lanes) and, for each storage type, [`Prim`](crate::vector::Prim) (5 operations on memory). None of these
/// traits has default methods, so a table with a missing row does not compile.
macro_rules! simd_primitive {
    (
        isa: $isa:ident,
        vector: $v:ty,
        lanes: $lanes:literal,
        streams: $streams:literal,
        registers: {
            splat($splat_x:ident) => $splat:expr,
            add($add_a:ident, $add_b:ident) => $add:expr,
            sub($sub_a:ident, $sub_b:ident) => $sub:expr,
            mul($mul_a:ident, $mul_b:ident) => $mul:expr,
            div($div_a:ident, $div_b:ident) => $div:expr,
            fma($fma_a:ident, $fma_b:ident, $fma_c:ident) => $fma:expr,
            fnma($fnma_a:ident, $fnma_b:ident, $fnma_c:ident) => $fnma:expr,
            min($min_a:ident, $min_b:ident) => $min:expr,
            max($max_a:ident, $max_b:ident) => $max:expr,
            copysign($cs_m:ident, $cs_s:ident) => $copysign:expr,
            round($round_a:ident) => $round:expr,
            scale2($sc_a:ident, $sc_p:ident) => $scale2:expr,
            select_lt($sl_a:ident, $sl_b:ident, $sl_x:ident, $sl_y:ident) => $select_lt:expr,
            reduce_sum($rs_a:ident) => $reduce_sum:expr,
            reduce_max($rm_a:ident) => $reduce_max:expr,
            unzip($uz_a:ident, $uz_b:ident) => $unzip:expr,
            zip($z_a:ident, $z_b:ident) => $zip:expr,
        },
        memory: {$(
            $e:ty {
                load($load_p:ident) => $load:expr,
                load_n($ln_p:ident, $ln_n:ident) => $load_n:expr,
                store($store_p:ident, $store_v:ident) => $store:expr,
                store_n($sn_p:ident, $sn_v:ident, $sn_n:ident) => $store_n:expr,
                stream($stream_p:ident, $stream_v:ident) => $stream:expr,
            }
        )*}
    ) => {
        // SAFETY of every body below: the trait's contract says that the CPU has the instruction
        // set, and for memory operations that the addressed elements are valid.
        // Portable rows need no `unsafe` block.
        #[allow(unused_unsafe, clippy::undocumented_unsafe_blocks)]
        const _: () = {
            unsafe impl crate::vector::Arithmetic for $isa {
                type V = $v;
                #[inline(always)]
                unsafe fn splat($splat_x: f32) -> $v { unsafe { $splat } }
                #[inline(always)]
                unsafe fn add($add_a: $v, $add_b: $v) -> $v { unsafe { $add } }
                #[inline(always)]
                unsafe fn sub($sub_a: $v, $sub_b: $v) -> $v { unsafe { $sub } }
                #[inline(always)]
                unsafe fn mul($mul_a: $v, $mul_b: $v) -> $v { unsafe { $mul } }
                #[inline(always)]
                unsafe fn div($div_a: $v, $div_b: $v) -> $v { unsafe { $div } }
                #[inline(always)]
                unsafe fn fma($fma_a: $v, $fma_b: $v, $fma_c: $v) -> $v { unsafe { $fma } }
                #[inline(always)]
                unsafe fn fnma($fnma_a: $v, $fnma_b: $v, $fnma_c: $v) -> $v { unsafe { $fnma } }
                #[inline(always)]
                unsafe fn min($min_a: $v, $min_b: $v) -> $v { unsafe { $min } }
                #[inline(always)]
                unsafe fn max($max_a: $v, $max_b: $v) -> $v { unsafe { $max } }
                #[inline(always)]
                unsafe fn copysign($cs_m: $v, $cs_s: $v) -> $v { unsafe { $copysign } }
                #[inline(always)]
                unsafe fn round($round_a: $v) -> $v { unsafe { $round } }
                #[inline(always)]
                unsafe fn scale2($sc_a: $v, $sc_p: $v) -> $v { unsafe { $scale2 } }
                #[inline(always)]
                unsafe fn select_lt($sl_a: $v, $sl_b: $v, $sl_x: $v, $sl_y: $v) -> $v {
                    unsafe { $select_lt }
                }
            }
            unsafe impl crate::vector::Vector for $isa {
                const LANES: usize = $lanes;
                const STREAMS: bool = $streams;
                #[inline(always)]
                unsafe fn reduce_sum($rs_a: $v) -> f32 { unsafe { $reduce_sum } }
                #[inline(always)]
                unsafe fn reduce_max($rm_a: $v) -> f32 { unsafe { $reduce_max } }
                #[inline(always)]
                unsafe fn unzip($uz_a: $v, $uz_b: $v) -> ($v, $v) { unsafe { $unzip } }
                #[inline(always)]
                unsafe fn zip($z_a: $v, $z_b: $v) -> ($v, $v) { unsafe { $zip } }
            }
            $(unsafe impl crate::vector::Prim<$e> for $isa {
                #[inline(always)]
                unsafe fn load($load_p: *const $e) -> $v { unsafe { $load } }
                #[inline(always)]
                unsafe fn load_n($ln_p: *const $e, $ln_n: usize) -> $v { unsafe { $load_n } }
                #[inline(always)]
                unsafe fn store($store_p: *mut $e, $store_v: $v) { unsafe { $store } }
                #[inline(always)]
                unsafe fn store_n($sn_p: *mut $e, $sn_v: $v, $sn_n: usize) { unsafe { $store_n } }
                #[inline(always)]
                unsafe fn stream($stream_p: *mut $e, $stream_v: $v) { unsafe { $stream } }
            })*
        };
    };
}
