//! Layer 1 for aarch64's Advanced SIMD as ARMv8.0 has it: registers of 4 f32. `stream` is an ordinary store, because AArch64 has
//! no store that is sure to bypass the cache.

use core::arch::aarch64::*;
use core::arch::asm;

use half::{bf16, f16};

use crate::isa::Neon;

/// `a * 2^n` in two steps, so that denormal results round once.
#[inline(always)]
unsafe fn scale2(a: float32x4_t, power: float32x4_t) -> float32x4_t {
    // SAFETY: the caller vouches for NEON.
    unsafe {
        let both = vreinterpretq_u32_f32(power);
        let half = vshrq_n_u32::<1>(both);
        let pow2 = |exponent| vreinterpretq_f32_u32(vshlq_n_u32::<23>(exponent));
        vmulq_f32(vmulq_f32(a, pow2(half)), pow2(vsubq_u32(both, half)))
    }
}

/// f16 -> f32. The intrinsics for half floats are not stable; the instruction is ARMv8.0.
#[inline(always)]
pub(super) unsafe fn from_f16(h: uint16x4_t) -> float32x4_t {
    let v;
    // SAFETY: registers only; the caller vouches for NEON.
    unsafe {
        asm!("fcvtl {v:v}.4s, {h:v}.4h", v = lateout(vreg) v, h = in(vreg) h,
             options(pure, nomem, nostack, preserves_flags));
    }
    v
}

/// f32 -> f16, rounding as FPCR says (nearest even).
#[inline(always)]
unsafe fn to_f16(v: float32x4_t) -> uint16x4_t {
    let h;
    // SAFETY: registers only; the caller vouches for NEON.
    unsafe {
        asm!("fcvtn {h:v}.4h, {v:v}.4s", h = lateout(vreg) h, v = in(vreg) v,
             options(pure, nomem, nostack, preserves_flags));
    }
    h
}

#[inline(always)]
unsafe fn from_bf16(h: uint16x4_t) -> float32x4_t {
    // SAFETY: the caller vouches for NEON.
    unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(h)) }
}

/// f32 -> bf16, ties to even, NaN kept and made quiet.
#[inline(always)]
unsafe fn to_bf16(v: float32x4_t) -> uint16x4_t {
    // SAFETY: the caller vouches for NEON.
    unsafe {
        let bits = vreinterpretq_u32_f32(v);
        let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
        let up = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
        let quiet = vorrq_u32(bits, vdupq_n_u32(0x40_0000));
        vshrn_n_u32::<16>(vbslq_u32(vceqq_f32(v, v), up, quiet))
    }
}

/// Moves up to 4 elements through a buffer: AArch64 has no masked accesses before SVE.
#[inline(always)]
unsafe fn load_n<T: Copy + Default>(p: *const T, n: usize) -> [T; 4] {
    let mut buf = [T::default(); 4];
    for (i, b) in buf.iter_mut().enumerate().take(n) {
        // SAFETY: the caller vouches for n elements at p.
        *b = unsafe { *p.add(i) };
    }
    buf
}

#[inline(always)]
unsafe fn store_n<T: Copy>(p: *mut T, buf: [T; 4], n: usize) {
    for (i, b) in buf.iter().enumerate().take(n) {
        // SAFETY: the caller vouches for n elements at p.
        unsafe { *p.add(i) = *b };
    }
}

#[inline(always)]
unsafe fn f32s(v: float32x4_t) -> [f32; 4] {
    let mut buf = [0.0; 4];
    // SAFETY: 16 bytes; the caller vouches for NEON.
    unsafe { vst1q_f32(buf.as_mut_ptr(), v) };
    buf
}

#[inline(always)]
unsafe fn u16s(v: uint16x4_t) -> [u16; 4] {
    let mut buf = [0; 4];
    // SAFETY: 8 bytes; the caller vouches for NEON.
    unsafe { vst1_u16(buf.as_mut_ptr(), v) };
    buf
}

simd_primitive! {
    isa: Neon,
    vector: float32x4_t,
    lanes: 4,
    streams: false,
    registers: {
        splat(x) => vdupq_n_f32(x),
        add(a, b) => vaddq_f32(a, b),
        sub(a, b) => vsubq_f32(a, b),
        mul(a, b) => vmulq_f32(a, b),
        div(a, b) => vdivq_f32(a, b),
        fma(a, b, c) => vfmaq_f32(c, a, b),
        fnma(a, b, c) => vfmsq_f32(c, a, b),
        min(a, b) => vbslq_f32(vcltq_f32(a, b), a, b),
        max(a, b) => vbslq_f32(vcgtq_f32(a, b), a, b),
        copysign(m, s) => vbslq_f32(vdupq_n_u32(0x8000_0000), s, m),
        round(a) => vrndnq_f32(a),
        scale2(a, power) => scale2(a, power),
        select_lt(a, b, x, y) => vbslq_f32(vcltq_f32(a, b), x, y),
        reduce_sum(a) => vaddvq_f32(a),
        reduce_max(a) => vmaxvq_f32(a),
        unzip(a, b) => (vuzp1q_f32(a, b), vuzp2q_f32(a, b)),
        zip(a, b) => (vzip1q_f32(a, b), vzip2q_f32(a, b)),
    },
    memory: {
        f32 {
            load(p) => vld1q_f32(p),
            load_n(p, n) => vld1q_f32(load_n(p, n).as_ptr()),
            store(p, v) => vst1q_f32(p, v),
            store_n(p, v, n) => store_n(p, f32s(v), n),
            stream(p, v) => vst1q_f32(p, v),
        }
        f16 {
            load(p) => from_f16(vld1_u16(p.cast())),
            load_n(p, n) => from_f16(vld1_u16(load_n(p.cast(), n).as_ptr())),
            store(p, v) => vst1_u16(p.cast(), to_f16(v)),
            store_n(p, v, n) => store_n(p.cast(), u16s(to_f16(v)), n),
            stream(p, v) => vst1_u16(p.cast(), to_f16(v)),
        }
        bf16 {
            load(p) => from_bf16(vld1_u16(p.cast())),
            load_n(p, n) => from_bf16(vld1_u16(load_n(p.cast(), n).as_ptr())),
            store(p, v) => vst1_u16(p.cast(), to_bf16(v)),
            store_n(p, v, n) => store_n(p.cast(), u16s(to_bf16(v)), n),
            stream(p, v) => vst1_u16(p.cast(), to_bf16(v)),
        }
    }
}
