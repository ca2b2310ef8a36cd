//! The tables of the codebook formats. [`blocks`](crate::blocks) says how blocks refer
//! to these tables.

mod points;

/// A table of the points of a grid, in ascending order of their numbers (see [`points`]). Byte `j` of an
/// entry, counted from the lowest, is `values[c[j]]`.
macro_rules! grid {
    ($points:ident, $word:ident, $values:expr) => {{
        let values = $values;
        let mut table = [0; _];
        let (mut n, mut entry) = (0, 0);
        while entry < table.len() {
            if points::$points[n / 64] >> (n % 64) & 1 == 1 {
                let (mut bytes, mut rest, mut j) = ([0; size_of::<$word>()], n, 0);
                while j < bytes.len() {
                    bytes[j] = values[rest % values.len()] as u8;
                    rest /= values.len();
                    j += 1;
                }
                table[entry] = $word::from_le_bytes(bytes);
                entry += 1;
            }
            n += 1;
        }
        table
    }};
}

/// IQ1_S and IQ1_M: byte `j` of an entry is the signed byte (-1, 0 or 1) of weight `j` of eight.
pub static IQ1_GRID: [u64; 2048] = grid!(IQ1, u64, [-1_i8, 0, 1]);

/// [`IQ1_GRID`] times 8: the codes of IQ1, but for `delta`.
pub(crate) static IQ1_EIGHTS: [u64; 2048] = grid!(IQ1, u64, [-8_i8, 0, 8]);

/// Magnitudes in the grids of IQ2.
const IQ2_VALUES: [u8; 3] = [8, 25, 43];

/// IQ2_XXS: byte `j` of an entry is the magnitude (8, 25 or 43) of weight `j` of eight.
pub static IQ2_XXS_GRID: [u64; 256] = grid!(IQ2_XXS, u64, IQ2_VALUES);

/// IQ2_XS: as [`IQ2_XXS_GRID`].
pub static IQ2_XS_GRID: [u64; 512] = grid!(IQ2_XS, u64, IQ2_VALUES);

/// IQ2_S: as [`IQ2_XXS_GRID`].
pub static IQ2_S_GRID: [u64; 1024] = grid!(IQ2_S, u64, IQ2_VALUES);

/// IQ3_XXS: byte `j` of an entry is the magnitude (4 to 52 in steps of 8, or 62) of weight `j` of four.
pub static IQ3_XXS_GRID: [u32; 256] = grid!(IQ3_XXS, u32, [4, 12, 20, 28, 36, 44, 52, 62]);

/// IQ3_S: byte `j` of an entry is the magnitude (an odd number, 1 to 15) of weight `j` of four.
pub static IQ3_S_GRID: [u32; 512] = grid!(IQ3_S, u32, [1, 3, 5, 7, 9, 11, 13, 15]);

/// IQ4_NL and IQ4_XS: the values of the 16 codes. They are denser near zero, as weights are.
pub static IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// MXFP4 and NVFP4: twice the E2M1 number that a code is. Bit 3 is the sign; there is no negative zero.
pub static FP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The signs of eight weights, bit `j` set where weight `j` is negative, from the 7 bits that IQ2_XXS,
/// IQ2_XS and IQ3_XXS store: those of the first seven weights. The number of negative weights is even.
/// Bit 7 of `pattern` is ignored.
#[inline(always)]
pub const fn signs(pattern: u8) -> u8 {
    let seven = pattern & 127;
    seven | (seven.count_ones() as u8 & 1) << 7
}

/// Half of the E8M0 number `e`: `2^(e - 128)`; denormal for 0 and 1. The NaN of E8M0 (255) is not one here.
#[inline(always)]
pub const fn e8m0_half(e: u8) -> f32 {
    // Both are computed, so that compilers make one selection of vectors out of it.
    let (denormal, normal) = (1 << 21 << (e & 1), (e as u32).wrapping_sub(1) << 23);
    f32::from_bits(if e < 2 { denormal } else { normal })
}

/// Half of the unsigned E4M3 number in the low 7 bits of `d`: with its upper 4 bits `e` and its lower 3 bits
/// `m`, `(8 + m) * 2^(e - 11)`, or `m * 2^-10` if `e` is 0. 0x7f, the NaN of E4M3, is 0; 0xff is not (240).
#[inline(always)]
pub const fn ue4m3_half(d: u8) -> f32 {
    let (e, m) = (d as u32 >> 3 & 15, d as u32 & 7);
    if d == 0x7f {
        0.0
    } else if e == 0 {
        m as f32 / 1024.0
    } else {
        f32::from_bits((e + 119) << 23 | m << 20)
    }
}
