//! The tables of codebooks against those that ggml publishes, and the minifloats of scales against their formulas.

use gllm_kernels_core::codebooks::*;

/// FNV-1a.
fn hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// Against sums of the tables that ggml publishes.
#[test]
fn grids_are_those_of_ggml() {
    let eights = |grid: &[u64]| hash(grid.iter().flat_map(|w| w.to_le_bytes()));
    let fours = |grid: &[u32]| hash(grid.iter().flat_map(|w| w.to_le_bytes()));
    assert_eq!(eights(&IQ1_GRID), 0x6703_ed86_3501_ae2e);
    assert_eq!(eights(&IQ2_XXS_GRID), 0xbb4e_e025_b5ac_6e8e);
    assert_eq!(eights(&IQ2_XS_GRID), 0xc9b1_ee61_e799_09bd);
    assert_eq!(eights(&IQ2_S_GRID), 0x123e_dd38_a3b6_2b90);
    assert_eq!(fours(&IQ3_XXS_GRID), 0xdfa5_dc83_d6a1_55d5);
    assert_eq!(fours(&IQ3_S_GRID), 0xfa37_020c_25b4_4829);
}

#[test]
fn signs_are_of_even_parity() {
    for pattern in 0..=255 {
        assert_eq!(signs(pattern) & 127, pattern & 127);
        assert_eq!(signs(pattern).count_ones() % 2, 0);
    }
    assert_eq!([signs(0), signs(1), signs(3), signs(127)], [0, 0x81, 3, 255]);
}

#[test]
fn scales_are_powers_and_minifloats() {
    for e in 0..=255 {
        assert_eq!(f64::from(e8m0_half(e)), 2_f64.powi(i32::from(e) - 128));
    }
    for d in 0..=255_u8 {
        let (e, m) = (i32::from(d >> 3 & 15), f64::from(d & 7));
        let want = match (d, e) {
            (0x7f, _) => 0.0,
            (_, 0) => m * 2_f64.powi(-9),
            _ => (1.0 + m / 8.0) * 2_f64.powi(e - 7),
        };
        assert_eq!(f64::from(ue4m3_half(d)), want / 2.0, "{d:#x}");
    }
}
