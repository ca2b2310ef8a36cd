//! Encoders: as good as ggml's, exact where they can be, and robust against any input.

use gllm_kernels_core::{bf16, f16, Element, IsaLevel, KernelError, Kernels, QuantFormat, QuantRef};
use gllm_testkit::data::{levels, Source};
use gllm_testkit::effort;
use gllm_testkit::vectors::{floats, input, vector, MATRIX_COLS, MATRIX_ROWS};

/// Formats whose codes are indices of large codebooks; decoded only.
const DECODED_ONLY: [&str; 8] = ["e4m3", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"];

/// Formats of activations: what ggml has no decoded vectors of.
const NO_VECTORS: [&str; 2] = ["q8_1", "q8_k"];

/// Formats of activations, which ignore importance. So does plain floating point.
const EVEN: [&str; 3] = ["q8_0", "q8_1", "q8_k"];

fn encoders() -> impl Iterator<Item = QuantFormat> {
    QuantFormat::ALL.iter().copied().filter(|f| !DECODED_ONLY.contains(&f.name()))
}

fn encode<E: Element>(format: QuantFormat, x: &[E], importance: Option<&[f32]>) -> Vec<u8> {
    let mut blocks = vec![0xaa; format.row_bytes(x.len()).unwrap()];
    Kernels::<E>::detect().quantize(format, x, importance, &mut blocks).unwrap();
    blocks
}

fn decode(format: QuantFormat, blocks: &[u8]) -> Vec<f32> {
    let n = blocks.len() / format.block_bytes() * format.block_len();
    let mut y = vec![f32::NAN; n];
    let k = Kernels::<f32>::forced(IsaLevel::Scalar).unwrap();
    k.dequant(QuantRef::new(blocks, format, 1, n).unwrap(), &mut y).unwrap();
    y
}

/// Squared error, each weight counting as often as its column's importance says.
fn error(x: &[f32], y: &[f32], importance: &[f32]) -> f64 {
    let pairs = x.iter().zip(y).zip(importance.iter().cycle());
    pairs.map(|((&x, &y), &w)| f64::from(w) * (f64::from(x) - f64::from(y)).powi(2)).sum()
}

fn importance(cols: usize) -> Vec<f32> {
    Source::new(7).uniform::<f32>(cols, 0.0, 3.0).iter().map(|w| w.powi(4)).collect()
}

#[test]
fn every_format_encodes_or_says_that_it_does_not() {
    for &f in QuantFormat::ALL {
        let mut out = vec![0; f.block_bytes()];
        let x = vec![0.5_f32; f.block_len()];
        let got = Kernels::<f32>::detect().quantize(f, &x, None, &mut out);
        let want = if DECODED_ONLY.contains(&f.name()) { Err(KernelError::NoEncoder(f)) } else { Ok(()) };
        assert_eq!(got, want);
    }
}

#[test]
fn errors_are_no_larger_than_those_of_ggml() {
    let x = input();
    for f in encoders() {
        let ours = decode(f, &encode(f, &x, None));
        let Some((_, theirs)) = vector(f) else {
            assert!(NO_VECTORS.contains(&f.name()), "no vectors of {f}");
            continue;
        };
        let theirs = floats(theirs);
        for row in 0..MATRIX_ROWS {
            let row = row * MATRIX_COLS..(row + 1) * MATRIX_COLS;
            let [ours, theirs] = [&ours, &theirs].map(|y| error(&x[row.clone()], &y[row.clone()], &[1.0]));
            assert!(ours <= 1.005 * theirs, "{f}, weights {row:?}: {ours:e} instead of {theirs:e}");
        }
    }
}

/// On every instruction set, and any number of rows at once.
#[test]
fn every_instruction_set_gives_the_same_blocks() {
    let x = input();
    let importance = importance(MATRIX_COLS);
    for f in encoders() {
        for importance in [None, Some(&importance[..])] {
            let all = encode(f, &x, importance);
            for level in levels() {
                let k = Kernels::<f32>::forced(level).unwrap();
                for (i, x) in x.chunks_exact(MATRIX_COLS).enumerate() {
                    let mut one = vec![0; f.row_bytes(MATRIX_COLS).unwrap()];
                    k.quantize(f, x, importance, &mut one).unwrap();
                    assert!(one == row(f, &all, i), "{f} {level}");
                }
            }
        }
    }
}

/// Activations: half a step of the scale that the largest magnitude needs, and sums that are right.
#[test]
fn activations_are_rounded_to_127_steps() {
    let x = input();
    for f in encoders().filter(|f| EVEN.contains(&f.name())) {
        let bytes = encode(f, &x, None);
        let y = decode(f, &bytes);
        for (x, y) in x.chunks_exact(f.block_len()).zip(y.chunks_exact(f.block_len())) {
            let most = x.iter().fold(0.0_f32, |a, x| a.max(x.abs()));
            // 127 steps of a scale that is rounded to f16.
            let bound = most / 127.0 * (0.5 + 127.0 / 2048.0) + 4e-6;
            x.iter().zip(y).for_each(|(x, y)| assert!((x - y).abs() <= bound, "{f}: {y} for {x}"));
        }
        for block in bytes.chunks_exact(f.block_bytes()) {
            let sum = |q: &[u8]| q.iter().map(|&q| i32::from(q as i8)).sum::<i32>();
            match f {
                QuantFormat::Q8_1 => {
                    let [d, s] = [0, 2].map(|i| f16::from_le_bytes([block[i], block[i + 1]]).to_f32());
                    let want = d * sum(&block[4..]) as f32;
                    // Both are rounded to f16, whose steps are 2^-24 at least.
                    let bound = want.abs() / 1000.0 + 127.0 * 32.0 * 2.0_f32.powi(-24);
                    assert!((s - want).abs() <= bound, "{s} instead of {want}");
                }
                QuantFormat::Q8K => {
                    for (q, s) in block[4..260].chunks_exact(16).zip(block[260..].chunks_exact(2)) {
                        assert_eq!(i32::from(i16::from_le_bytes([s[0], s[1]])), sum(q));
                    }
                }
                _ => {}
            }
        }
    }
}

/// What a format can represent it represents: weights that were decoded from it are found again.
#[test]
fn decoded_weights_lose_nothing() {
    for f in encoders() {
        let Some((_, theirs)) = vector(f) else { continue };
        let x = floats(theirs);
        let energy = error(&x, &[0.0].repeat(x.len()), &[1.0]);
        let lost = error(&x, &decode(f, &encode(f, &x, None)), &[1.0]) / energy;
        // Which minima belong to which scales cannot be seen from the weights alone.
        let bound = if f.block_len() == 256 && f.has_offsets() { 2e-3 } else { 1e-5 };
        assert!(lost <= bound, "{f}: {lost:e} of the energy");
    }
}

#[test]
fn importance_pays() {
    let x = input();
    let importance = importance(MATRIX_COLS);
    for f in encoders() {
        let even = encode(f, &x, None);
        let weighted = encode(f, &x, Some(&importance));
        if EVEN.contains(&f.name()) || f.is_float() {
            assert!(even == weighted, "{f}");
            continue;
        }
        let [even_error, error] = [&even, &weighted].map(|b| error(&x, &decode(f, b), &importance));
        // One scale of many weights of 1 or 2 bits hardly depends on what they are worth.
        let bound = if ["tq1_0", "tq2_0", "q1_0"].contains(&f.name()) { 1.0 } else { 0.92 };
        assert!(error < bound * even_error, "{f}: {error:e} instead of {even_error:e}");
        // Only the ratios matter.
        let scaled: Vec<f32> = importance.iter().map(|w| w * 1024.0).collect();
        assert!(encode(f, &x, Some(&scaled)) == weighted, "{f}");
        // Importances that are none.
        for none in [0.0, -1.0, f32::NAN, f32::NEG_INFINITY] {
            assert!(encode(f, &x, Some(&vec![none; MATRIX_COLS])) == even, "{f}: {none}");
        }
        for large in [1e38, f32::INFINITY, 1e-45] {
            assert!(encode(f, &x, Some(&vec![large; MATRIX_COLS])) == even, "{f}: {large}");
        }
    }
}

fn row(f: QuantFormat, blocks: &[u8], row: usize) -> &[u8] {
    let bytes = f.row_bytes(MATRIX_COLS).unwrap();
    &blocks[row * bytes..(row + 1) * bytes]
}

#[test]
fn any_number_is_encoded() {
    let awkward = [
        f32::NAN,
        -f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        1e-45,
        -1e-45,
        0.0,
        -0.0,
        1e-18,
        1e-30,
        6e-8,
        65504.0,
        65520.0,
        -1e30,
        1.0,
        -1.0,
        1e10,
        3.4e-5,
    ];
    let mut source = Source::new(3);
    // Plain floating point has all numbers.
    for f in encoders().filter(|f| !f.is_float()) {
        let n = f.block_len();
        let limit = match f.name() {
            "q8_0" | "q8_1" => 127.0 * 65504.0,
            "nvfp4" => 2688.0,
            "q8_k" | "mxfp4" => 1e38,
            _ => 65504.0,
        };
        for case in 0..50 * effort().max(1) {
            let few = 1 + case % awkward.len();
            let x: Vec<f32> = (0..n)
                .map(|_| match case % 4 {
                    0 => awkward[case / 4 % awkward.len()],
                    1 => awkward[source.below(few)],
                    2 => source.pattern::<f32>(),
                    _ => source.normal() * 1e-6,
                })
                .collect();
            let importance: Option<Vec<f32>> =
                (case % 3 == 0).then(|| (0..n).map(|_| source.pattern::<f32>()).collect());
            let bytes = encode(f, &x, importance.as_deref());
            // As documented: the same as these numbers.
            let clean = |x: &f32| if x.abs() >= 1e-18 { x.clamp(-limit, limit) } else { 0.0 };
            let clean: Vec<f32> = x.iter().map(clean).collect();
            assert!(bytes == encode(f, &clean, importance.as_deref()), "{f}: {x:?}");
            let y = decode(f, &bytes);
            assert!(y.iter().all(|y| y.is_finite()), "{f}: {x:?} became {y:?}");
        }
        // Constants, zeros, and what is nearly constant.
        for c in [0.0, 1.0, -3.5, limit, -limit] {
            for noise in [0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3] {
                let x: Vec<f32> = (0..n).map(|_| c * (1.0 - noise * source.normal().abs())).collect();
                let y = decode(f, &encode(f, &x, None));
                let close = |(x, y): (&f32, &f32)| (y - x).abs() <= c.abs() * 0.15;
                assert!(x.iter().zip(&y).all(close), "{f}: {x:?} became {y:?}");
            }
        }
    }
}

#[test]
fn other_storage_types_are_widened() {
    let x = input();
    for f in encoders() {
        let half: Vec<f16> = x.iter().map(|&x| f16::from_f32(x)).collect();
        let wide: Vec<f32> = half.iter().map(|x| x.to_f32()).collect();
        assert!(encode(f, &half, None) == encode(f, &wide, None), "{f}");
        let half: Vec<bf16> = x.iter().map(|&x| bf16::from_f32(x)).collect();
        let wide: Vec<f32> = half.iter().map(|x| x.to_f32()).collect();
        assert!(encode(f, &half, None) == encode(f, &wide, None), "{f}");
    }
}

#[test]
fn wrong_lengths_are_refused() {
    let k = Kernels::<f32>::detect();
    for f in encoders() {
        let (n, size) = (f.block_len(), f.block_bytes());
        let (x, w) = (vec![1.0; 6 * n], vec![1.0; 6 * n]);
        let mut out = vec![0xaa; 6 * size + 1];
        let not_blocks = |cols| Err(KernelError::NotBlockMultiple { cols, block: n });
        if n > 1 {
            assert_eq!(k.quantize(f, &x[1..], None, &mut out), not_blocks(6 * n - 1));
            assert_eq!(k.quantize(f, &x, Some(&w[1..]), &mut out), not_blocks(6 * n - 1));
        }
        let short = KernelError::ShortSlice { arg: "out", need: 6 * size, got: 6 * size - 1 };
        assert_eq!(k.quantize(f, &x, None, &mut out[..6 * size - 1]), Err(short));
        for cols in [0, 4 * n] {
            let unit = "importance.len()";
            let mismatch = KernelError::NotWhole { arg: "x", got: 6 * n, unit, len: cols };
            assert_eq!(k.quantize(f, &x, Some(&w[..cols]), &mut out), Err(mismatch));
        }
        assert!(out.iter().all(|&b| b == 0xaa), "{f}: something was written");
        assert_eq!(k.quantize(f, &[], Some(&[]), &mut []), Ok(()));
        k.quantize(f, &x, Some(&w[..2 * n]), &mut out).unwrap();
        assert_eq!(out[6 * size], 0xaa, "{f}: more than the blocks was written");
    }
}

/// Ternary weights come back as they were, whatever their scale.
#[test]
fn ternary_weights_are_exact() {
    let mut source = Source::new(5);
    for f in [QuantFormat::Tq1_0, QuantFormat::Tq2_0, QuantFormat::Q2_0] {
        for scale in [1.0, 0.0625, 3.0 / 1024.0, 1000.0] {
            let x: Vec<f32> = source.whole::<f32>(1024, 1).iter().map(|x| x * scale).collect();
            assert!(decode(f, &encode(f, &x, None)) == x, "{f}");
        }
    }
}
