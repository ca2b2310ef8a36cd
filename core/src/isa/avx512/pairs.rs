//! Decoding of weights to pairs of 16-bit elements, the operands of tile registers and of `vdpbf16ps`.
//!
//! The codes of four columns of 16 rows are in one register of 64 bytes, those of a row in one lane. Two shifts move the code of
//! one column to the highest byte of its lane and back with its sign. The codes are then converted to f32, multiplied with
//! scales, and offsets are added, as `dequant` does it. Two columns are rounded together, and one permutation puts the two
//! elements of each row side by side. That makes 64 bytes of a panel.
//!
//! Packed weights are decoded without codes of 8 bits in between. Their indices lie in registers in the same way. Up to five bits
//! select a number from a table of f32 in one or two registers: the permutation ignores what is above them.

use core::arch::x86_64::*;
use core::mem::transmute;

use crate::arrays::from_fn;
use crate::quant::packed::{Packing, PlaneVector, Unit, Values, STEPS};
use crate::quant::pairs::{PackedPairsArgs, PairsArgs};

/// # Safety
/// The operands that the arguments name exist; the CPU has the instruction set. Numbers that are denormal in f32 become zeros.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(crate) unsafe fn bf16(a: &PairsArgs) {
    // SAFETY: the caller's contract.
    unsafe {
        if a.offsets.is_some() {
            pairs::<true, true>(a);
        } else {
            pairs::<true, false>(a);
        }
    }
}

/// # Safety
/// The operands that the arguments name exist; the CPU has the instruction set.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(crate) unsafe fn f16(a: &PairsArgs) {
    // SAFETY: the caller's contract.
    unsafe {
        if a.offsets.is_some() {
            pairs::<false, true>(a);
        } else {
            pairs::<false, false>(a);
        }
    }
}

/// To bf16 or f16, with offsets or without.
///
/// # Safety
/// The contracts of [`bf16`] and [`f16`].
#[inline(always)]
unsafe fn pairs<const BF16: bool, const OFFSETS: bool>(a: &PairsArgs) {
    let PairsArgs { mut codes, scales, offsets, groups, cells, mut dst, row } = *a;
    let offsets = offsets.unwrap_or(scales);
    // SAFETY: groups and the cells of each are there, and room for as many pairs of columns.
    unsafe {
        let in_pairs = in_pairs();
        for g in 0..groups {
            let (scale, offset) = (_mm512_loadu_ps(scales.add(16 * g)), _mm512_loadu_ps(offsets.add(16 * g)));
            let number = |code: __m512i| {
                let v = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(code)), scale);
                if OFFSETS {
                    _mm512_add_ps(v, offset)
                } else {
                    v
                }
            };
            let both = |even, odd| rounded::<BF16>(number(even), number(odd), in_pairs);
            for _ in 0..cells {
                let words = _mm512_loadu_si512(codes.cast());
                let first = both(_mm512_slli_epi32::<24>(words), _mm512_slli_epi32::<16>(words));
                let second = both(_mm512_slli_epi32::<8>(words), words);
                _mm512_storeu_si512(dst.cast(), first);
                _mm512_storeu_si512(dst.add(row).cast(), second);
                (codes, dst) = (codes.add(64), dst.add(2 * row));
            }
        }
    }
}

/// Two columns of 16 rows in pairs: those of 16 bits next to each other that are of one row.
///
/// # Safety
/// AVX-512, and AVX512-BF16 for bf16; `in_pairs` is [`in_pairs`].
#[inline(always)]
unsafe fn rounded<const BF16: bool>(even: __m512, odd: __m512, in_pairs: __m512i) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe {
        let halves = if BF16 {
            transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(odd, even))
        } else {
            const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
            let even = _mm512_castsi256_si512(_mm512_cvtps_ph::<NEAREST>(even));
            _mm512_inserti64x4::<1>(even, _mm512_cvtps_ph::<NEAREST>(odd))
        };
        _mm512_permutexvar_epi16(in_pairs, halves)
    }
}

/// From packed weights.
///
/// # Safety
/// The contract of [`bf16`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(crate) unsafe fn packed_bf16(a: &PackedPairsArgs) {
    // SAFETY: the caller's contract.
    unsafe { packed::<true>(a) }
}

/// From packed weights.
///
/// # Safety
/// The contract of [`f16`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(crate) unsafe fn packed_f16(a: &PackedPairsArgs) {
    // SAFETY: the caller's contract.
    unsafe { packed::<false>(a) }
}

/// By the bits of both planes, which are all that there are (`asm/packings.rs`).
///
/// # Safety
/// The contracts of [`bf16`] and [`f16`].
#[inline(always)]
unsafe fn packed<const BF16: bool>(a: &PackedPairsArgs) {
    // SAFETY: the caller's contract.
    unsafe {
        match a.packing.bits {
            [4, 0] => Planes::<BF16, 4, 0>::all(a),
            [4, 1] => Planes::<BF16, 4, 1>::all(a),
            [4, 2] => Planes::<BF16, 4, 2>::all(a),
            [2, 0] => Planes::<BF16, 2, 0>::all(a),
            [2, 1] => Planes::<BF16, 2, 1>::all(a),
            [1, 0] => Planes::<BF16, 1, 0>::all(a),
            _ => Planes::<BF16, 8, 0>::all(a),
        }
    }
}

/// The numbers that the lowest four bits of an index stand for, and those with a fifth bit before them. Where indices have fewer
/// bits, the others make no difference.
///
/// # Safety
/// AVX-512.
#[inline(always)]
unsafe fn numbers(packing: &Packing) -> [__m512; 2] {
    let last = (1u32 << (packing.bits[0] + packing.bits[1])) - 1;
    from_fn(|half| {
        let index: [u32; 16] = from_fn(|i| (16 * half as u32 + i as u32) & last);
        // SAFETY: the caller's contract; arrays have as many bytes as registers, all of which may be anything.
        unsafe {
            let index = transmute::<[u32; 16], __m512i>(index);
            let codes = match packing.values {
                Values::Linear(bias) => _mm512_sub_epi32(index, _mm512_set1_epi32(bias.into())),
                Values::Table(table) => {
                    let table = transmute::<[i8; 16], __m128i>(table);
                    _mm512_permutexvar_epi32(index, _mm512_cvtepi8_epi32(table))
                }
            };
            _mm512_cvtepi32_ps(codes)
        }
    })
}

/// The way from planes of `LOW` and `HIGH` bits to pairs. Indices of up to five bits select a number from a table. Longer ones exceed
/// their codes by half of what they can count: with the highest bit inverted they are a signed number.
///
/// The product of a scale and a code is exact in f32 wherever an offset follows, so that a fused addition has the bits of two
/// operations; where none follows, -0 is added, which changes no product.
struct Planes<const BF16: bool, const LOW: usize, const HIGH: usize> {
    in_pairs: __m512i,
    table: [__m512; 2],
    dst: *mut u8,
    row: usize,
}

impl<const BF16: bool, const LOW: usize, const HIGH: usize> Planes<BF16, LOW, HIGH> {
    const BITS: usize = LOW + HIGH;
    /// Where indices begin in their bytes: at the top if they become signed numbers.
    const AT: usize = if Self::BITS > 5 { 8 - Self::BITS } else { 0 };

    /// The weights of column `t` of four.
    ///
    /// # Safety
    /// AVX-512.
    #[inline(always)]
    unsafe fn column(&self, words: __m512i, t: usize, [scale, offset]: [__m512; 2]) -> __m512 {
        let [table, upper] = self.table;
        // SAFETY: the caller's contract.
        unsafe {
            let number = match Self::BITS {
                ..5 => _mm512_permutexvar_ps(moved(words, 8 * t as i32), table),
                5 => _mm512_permutex2var_ps(table, moved(words, 8 * t as i32), upper),
                _ => {
                    let first = moved(words, 8 * t as i32 - 24);
                    _mm512_cvtepi32_ps(_mm512_srav_epi32(first, _mm512_set1_epi32(24 + Self::AT as i32)))
                }
            };
            _mm512_fmadd_ps(number, scale, offset)
        }
    }

    /// Decodes columns `4 V .. 4 V + 4` of a step.
    ///
    /// # Safety
    /// AVX-512, and AVX512-BF16 for bf16; there is room for their pairs.
    #[inline(always)]
    unsafe fn four<const V: usize>(
        &mut self,
        low: &[__m512i; LOW],
        high: &[__m512i; HIGH],
        of_group: [__m512; 2],
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            let mut words = moved(low[V % LOW], (V / LOW * LOW) as i32 - Self::AT as i32);
            if HIGH > 0 {
                let above =
                    moved(high[V % HIGH.max(1)], (V / HIGH.max(1) * HIGH) as i32 - (Self::AT + LOW) as i32);
                // The lower bits of the one, the others of the other.
                const EITHER: i32 = 0xca;
                words = _mm512_ternarylogic_epi32::<EITHER>(
                    bytes(((1 << (LOW & 7)) - 1) << Self::AT),
                    words,
                    above,
                );
            }
            if Self::BITS > 5 {
                const AND_XOR: i32 = 0x6a;
                words = _mm512_ternarylogic_epi32::<AND_XOR>(words, bytes(0xff << Self::AT), bytes(0x80));
            }
            let [a, b, c, d] = [
                self.column(words, 0, of_group),
                self.column(words, 1, of_group),
                self.column(words, 2, of_group),
                self.column(words, 3, of_group),
            ];
            _mm512_storeu_si512(self.dst.cast(), rounded::<BF16>(a, b, self.in_pairs));
            _mm512_storeu_si512(self.dst.add(self.row).cast(), rounded::<BF16>(c, d, self.in_pairs));
            self.dst = self.dst.add(2 * self.row);
        }
    }

    /// Decodes all steps.
    ///
    /// # Safety
    /// The contracts of [`bf16`] and [`f16`]; the weights are packed in planes of so many bits.
    #[inline(always)]
    unsafe fn all(a: &PackedPairsArgs) {
        let PackedPairsArgs { packing, w, steps, scales, offsets, dst, row } = *a;
        let (groups, unit_bytes) = (packing.groups(), packing.unit_bytes(STEPS));
        // SAFETY: units are within the panel, and so are their scales; there is room for the pairs.
        unsafe {
            let mut to = Self { in_pairs: in_pairs(), table: numbers(packing), dst, row };
            for first in (0..steps).step_by(STEPS) {
                let head = w.add(first / STEPS * unit_bytes);
                let unit = Unit { packing, head, steps: (steps - first).min(STEPS) };
                for s in 0..unit.steps {
                    let of = unit.planes(s);
                    let low = from_fn(|v| transmute::<PlaneVector, __m512i>(of.low(v)));
                    let high = from_fn(|v| transmute::<PlaneVector, __m512i>(of.high(v)));
                    let g = (first + s) * groups;
                    let [left, right] =
                        [of_group(scales, offsets, g), of_group(scales, offsets, g + groups - 1)];
                    to.four::<0>(&low, &high, left);
                    to.four::<1>(&low, &high, left);
                    to.four::<2>(&low, &high, left);
                    to.four::<3>(&low, &high, left);
                    to.four::<4>(&low, &high, right);
                    to.four::<5>(&low, &high, right);
                    to.four::<6>(&low, &high, right);
                    to.four::<7>(&low, &high, right);
                }
            }
        }
    }
}

/// The scales of group `g`, and the offsets.
///
/// # Safety
/// AVX-512; there is such a group.
#[inline(always)]
unsafe fn of_group(scales: *const f32, offsets: Option<*const f32>, g: usize) -> [__m512; 2] {
    // SAFETY: the caller's contract.
    unsafe {
        let offsets = match offsets {
            Some(offsets) => _mm512_loadu_ps(offsets.add(16 * g)),
            None => _mm512_set1_ps(-0.0),
        };
        [_mm512_loadu_ps(scales.add(16 * g)), offsets]
    }
}

/// Words shifted to the right by so many bits, or to the left by a negative number of them.
///
/// # Safety
/// AVX-512.
#[inline(always)]
unsafe fn moved(words: __m512i, by: i32) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe {
        if by < 0 {
            _mm512_sllv_epi32(words, _mm512_set1_epi32(-by))
        } else {
            _mm512_srlv_epi32(words, _mm512_set1_epi32(by))
        }
    }
}

/// A register of this byte.
///
/// # Safety
/// AVX-512.
#[inline(always)]
unsafe fn bytes(byte: u8) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe { _mm512_set1_epi32(i32::from_ne_bytes([byte; 4])) }
}

/// The permutation that interleaves 16 elements with the 16 behind them.
///
/// # Safety
/// AVX-512.
#[inline(always)]
unsafe fn in_pairs() -> __m512i {
    let places: [u16; 32] = from_fn(|i| (i / 2 + i % 2 * 16) as u16);
    // SAFETY: as many bytes, all of which may be anything.
    unsafe { transmute::<[u16; 32], __m512i>(places) }
}
