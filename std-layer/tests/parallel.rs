//! Every parallel operator gives the same bits on any number of threads, and the result of core's.

#[path = "parallel/qgemm.rs"]
mod qgemm;

use qgemm::{check_kernel, check_packed, thrice};
use std::sync::OnceLock;

use gllm_kernels_std::core::{
    bf16, f16, Activation, AwqRef, Element, ElementType, External, Fp8Format, Fp8Ref, Fp8Scaling, GemmPlan,
    GptqParts, GptqRef, GptqZeros, IsaLevel, KernelError, Kernels, MatMut, MatRef, Op, Outliers, Precision,
    QuantFormat, QuantRef, QuantWeights, Right, RopePairing, RopeShape, ScaleSlice, Scratch, Softmax,
    SqueezeLlmParts, SqueezeLlmRef, StorePolicy,
};
use gllm_kernels_std::{kernels, Parallel, QgemmGroup, Runtime};
use gllm_testkit::effort;

fn runtimes() -> &'static [Runtime] {
    static RUNTIMES: OnceLock<Vec<Runtime>> = OnceLock::new();
    RUNTIMES.get_or_init(|| [1, 2, 5].map(|n| Runtime::new(n).unwrap()).into())
}

/// Whether all runs on an emulator, which is slow.
fn is_emulated() -> bool {
    effort() == 1
}

/// Whether `turn` is tried with storage type `E`. Under emulation each is with one of them: how work is split does not depend on it.
fn takes<E: Element>(turn: usize) -> bool {
    let all = ElementType::ALL.iter().filter(|&&e| e != ElementType::I8);
    !is_emulated() || all.cycle().nth(turn) == Some(&E::TYPE)
}

/// Numbers in -1 .. 1 that differ from place to place.
fn numbers<E: Element>(n: usize, seed: usize) -> Vec<E> {
    let value = |i: usize| {
        let hash = (i ^ seed << 24).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize);
        E::from_f32((hash >> (usize::BITS - 16)) as f32 / 32768.0 - 1.0)
    };
    (0..n).map(value).collect()
}

/// Lengths around chunk boundaries.
const LENGTHS: [usize; 4] = [0, 1, (32 << 10) + 1, 100_003];

/// Runs `op` on an output of `n` elements, at two alignments and with both kinds of stores, on every
/// runtime: all must agree with `single`, core's operator.
#[track_caller]
fn same<E: Element, O: Element>(
    what: &str,
    n: usize,
    op: impl Fn(Parallel<'_, E>, &mut [O]) -> Result<(), KernelError>,
    single: impl Fn(Kernels<E>, &mut [O]) -> Result<(), KernelError>,
) {
    let start = numbers::<O>(n + 3, 9);
    let bits = |v: &[O]| v.iter().map(|x| x.to_f32().to_bits()).collect::<Vec<_>>();
    for (offset, stores) in [(0, StorePolicy::Auto), (3, StorePolicy::Streamed)] {
        let mut expected = start[offset..offset + n].to_vec();
        single(kernels(), &mut expected).unwrap();
        let expected = bits(&expected);
        for runtime in runtimes() {
            let mut out = start[..offset + n].to_vec();
            op(Parallel::new(runtime).with_stores(stores), &mut out[offset..]).unwrap();
            assert!(bits(&out[offset..]) == expected, "{what} {n} {runtime:?} {stores:?}");
            assert_eq!(bits(&out[..offset]), bits(&start[..offset]));
        }
    }
}

/// `same!(n: name(args.., inputs => output))` for an operator that is a method of both.
macro_rules! same {
    ($n:expr, $e:ty, $o:ty, $name:ident($($arg:expr),*)) => {
        same::<$e, $o>(
            concat!(stringify!($name), " ", stringify!($e)),
            $n,
            |p, out| p.$name($($arg,)* out),
            |k, out| k.$name($($arg,)* out),
        )
    };
}

macro_rules! for_each_element {
    ($($name:ident => $generic:ident;)*) => {$(
        #[test]
        fn $name() {
            $generic::<f32>();
            $generic::<f16>();
            $generic::<bf16>();
        }
    )*};
}
for_each_element! {
    elementwise => check_elementwise;
    reductions => check_reductions;
    rows => check_rows;
    rope => check_rope;
    gemv => check_gemv;
    gemm => check_gemm;
    gemm_refusals => check_gemm_refusals;
    quantised => check_quantised;
    quantize => check_quantize;
    external => check_external;
    wrong_shapes => check_wrong_shapes;
}

fn check_elementwise<E: Element>() {
    for n in LENGTHS {
        let (x, y) = (&numbers::<E>(n, 1), &numbers::<E>(n, 2));
        same!(n, E, E, vec_add(x, y));
        same!(n, E, E, vec_add_inplace(x));
        same!(n, E, E, vec_mul(x, y));
        same!(n, E, E, vec_mul_inplace(x));
        same!(n, E, E, vec_scale(0.7, x));
        same!(n, E, E, vec_scale_inplace(0.7));
        same!(n, E, E, vec_axpy(-0.3, x));
        same!(n, E, E, relu(x));
        same!(n, E, E, relu_inplace());
        same!(n, E, E, exp(x));
        same!(n, E, E, exp_inplace());
        same!(n, E, E, tanh(x));
        same!(n, E, E, tanh_inplace());
        same!(n, E, E, silu(x));
        same!(n, E, E, silu_inplace());
        same!(n, E, E, gelu(x));
        same!(n, E, E, gelu_inplace());
        same!(n, E, E, gelu_tanh(x));
        same!(n, E, E, gelu_tanh_inplace());
        same!(n, E, E, swiglu(x, y));
        same!(n, E, E, geglu(x, y));
        same::<E, E>("swiglu_inplace", n, |p, z| p.swiglu_inplace(z, x), |k, z| k.swiglu_inplace(z, x));
        same::<E, E>("geglu_inplace", n, |p, z| p.geglu_inplace(z, x), |k, z| k.geglu_inplace(z, x));
    }
}

fn check_reductions<E: Element>() {
    for n in LENGTHS {
        let (x, y) = (&numbers::<E>(n, 1), &numbers::<E>(n, 2));
        let exact: f64 = x.iter().zip(y).map(|(x, y)| f64::from(x.to_f32()) * f64::from(y.to_f32())).sum();
        let sum: f64 = x.iter().map(|x| f64::from(x.to_f32())).sum();
        let first = Parallel::<E>::new(&runtimes()[0]);
        assert!((f64::from(first.vec_dot(x, y).unwrap()) - exact).abs() <= 1e-6 * n as f64);
        assert!((f64::from(first.vec_sum(x).unwrap()) - sum).abs() <= 1e-6 * n as f64);
        for runtime in runtimes() {
            let p = Parallel::<E>::new(runtime);
            assert_eq!(p.vec_dot(x, y).unwrap().to_bits(), first.vec_dot(x, y).unwrap().to_bits());
            assert_eq!(p.vec_sum(x).unwrap().to_bits(), first.vec_sum(x).unwrap().to_bits());
            assert_eq!(p.vec_max(x), kernels::<E>().vec_max(x));
        }
    }
}

fn check_rows<E: Element>() {
    for (rows, cols) in [(0, 5), (1, 1), (3, 1000), (700, 129), (25, 4096)] {
        let n = rows * cols;
        let (x, w, b) = (&numbers::<E>(n, 1), &numbers::<E>(cols, 2), &numbers::<E>(cols, 3));
        let softmax = Softmax { scale: 0.5, valid: Some(cols - cols / 3) };
        same!(n, E, E, softmax_rows(cols, softmax, x));
        same!(n, E, E, softmax_rows_inplace(cols, softmax));
        same!(n, E, E, rms_norm_rows(cols, x, Some(w), 1e-5));
        same!(n, E, E, rms_norm_rows_inplace(cols, None, 1e-5));
        same!(n, E, E, layer_norm_rows(cols, x, Some(w), Some(b), 1e-5));
        same!(n, E, E, layer_norm_rows_inplace(cols, None, Some(b), 1e-5));
    }
    let (x, w) = (&numbers::<E>(5000, 1), &numbers::<E>(5000, 2));
    same!(5000, E, E, softmax(x));
    same!(5000, E, E, softmax_inplace());
    same!(5000, E, E, rms_norm(x, Some(w), 0.0));
    same!(5000, E, E, rms_norm_inplace(None, 0.0));
    same!(5000, E, E, layer_norm(x, Some(w), None, 0.0));
    same!(5000, E, E, layer_norm_inplace(None, Some(w), 0.0));
}

fn check_rope<E: Element>() {
    for (tokens, heads, head_dim, rot_dim) in
        [(0, 2, 8, 8), (1, 3, 10, 4), (300, 8, 64, 64), (700, 3, 80, 32)]
    {
        for pairing in [RopePairing::Adjacent, RopePairing::HalfSplit] {
            let shape = RopeShape { heads, head_dim, rot_dim, pairing };
            let n = tokens * heads * head_dim;
            let x = &numbers::<E>(n, 1);
            let cos = &numbers::<f32>(tokens * rot_dim / 2, 2);
            let sin = &numbers::<f32>(tokens * rot_dim / 2, 3);
            same!(n, E, E, rope(shape, cos, sin, x));
            same!(n, E, E, rope_inplace(shape, cos, sin));
        }
    }
}

fn check_gemv<E: Element>() {
    for (rows, cols) in [(0, 7), (5, 0), (1, 1), (9, 300), (2000, 257), (100, 8192)] {
        let (a, x) = (&numbers::<E>(rows * cols, 1), &numbers::<E>(cols, 2));
        let a = MatRef::new(a, rows, cols).unwrap();
        let xt = &numbers::<E>(rows, 3);
        // Whichever rows core walks together may change its sums' order, so only the number of threads
        // is free here.
        for (a, x, n) in [(a, x, rows), (a.t(), xt, cols)] {
            let run = |runtime| {
                let mut y = numbers::<f32>(n, 4);
                Parallel::<E>::new(runtime).gemv(0.5, a, x, 2.0, &mut y).unwrap();
                y
            };
            let expected = run(&runtimes()[0]);
            for runtime in runtimes() {
                assert!(run(runtime) == expected, "{rows}x{cols} {runtime:?}");
            }
            let mut core = numbers::<f32>(n, 4);
            kernels::<E>().gemv(0.5, a, x, 2.0, &mut core).unwrap();
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6 * (x.len() + 4) as f32;
            assert!(expected.iter().zip(&core).all(close));
        }
    }
}

/// A product on a runtime, or core's own with scratch memory.
type GemmCall<'a, E> = dyn Fn(Option<Parallel<'_, E>>, MatMut<'_, f32>, Scratch<'_>) + 'a;

/// What is multiplied, how, and what is added.
type Form<'a, E> = (&'static str, GemmPlan<E>, Right<'a, E>, Option<&'a [f32]>);

fn check_gemm<E: Element>() {
    // Small; one row or column; few rows; a single row of tiles; shared panels of B, a last tile of few rows.
    let shapes = [
        (0, 3, 2),
        (3, 5, 0),
        (7, 9, 11),
        (1, 3000, 400),
        (3000, 1, 400),
        (20, 600, 100),
        (37, 300, 100),
        (400, 200, 20),
        (514, 64, 40),
    ];
    for (m, n, k) in shapes {
        let (a, b) = (&numbers::<E>(m * k, 1), &numbers::<E>(k * n, 2));
        let (a, b) = (MatRef::new(a, m, k).unwrap(), MatRef::new(b, k, n).unwrap());
        let bt = &numbers::<E>(n * k, 3);
        let bt = MatRef::new(bt, n, k).unwrap();
        let bias = &numbers::<f32>(n, 4);
        let plan = kernels::<E>().gemm_plan(m, n, k).unwrap().alpha(0.5).beta(2.0);
        let sizes = [plan.scratch(), plan.scratch_packed()].map(|r| r.unwrap().size_unaligned());
        let mut scratch = vec![0; sizes[0].max(sizes[1])];
        let mut packed = vec![0; kernels::<E>().packed_b_size(k, n).unwrap()];
        let packed = Parallel::<E>::global().pack_b(b, &mut packed).unwrap();

        let mut same = |what: &str, op: &GemmCall<'_, E>| {
            let mut run = |p| {
                // Rows with a gap that must stay.
                let mut c = numbers::<f32>(m * (n + 3), 5);
                op(p, MatMut::with_strides(&mut c, m, n, n + 3, 1).unwrap(), Scratch::new(&mut scratch));
                c
            };
            let expected = run(None);
            for runtime in runtimes() {
                assert!(run(Some(Parallel::new(runtime))) == expected, "{what} {m}x{n}x{k} {runtime:?}");
            }
        };
        let fused = plan.activation(Activation::Silu);
        let forms: [Form<'_, E>; 6] = [
            ("gemm", plan, b.into(), None),
            ("gemm_bias", plan, b.into(), Some(bias)),
            ("gemm_fused", fused, b.into(), Some(bias)),
            ("gemm_bt", plan, Right::Transposed(bt), None),
            ("gemm_prepacked", plan, packed.into(), None),
            ("gemm_prepacked_bias", plan, packed.into(), Some(bias)),
        ];
        for (what, plan, b, bias) in forms {
            same(what, &|p, c, scratch| match p {
                Some(p) => p.gemm(&plan, c, a, b, bias).unwrap(),
                None => plan.run(c, a, b, bias, scratch).unwrap(),
            });
        }
    }
}

#[test]
fn gemm_of_int8() {
    fn bytes(n: usize, seed: usize) -> Vec<i8> {
        numbers::<f32>(n, seed).iter().map(|x| (x * 128.0) as i8).collect()
    }
    for (m, n, k) in [(0, 3, 2), (3, 5, 0), (1, 3000, 400), (37, 300, 100), (400, 200, 20), (300, 700, 130)] {
        let (a, b, bias) = (&bytes(m * k, 1), &bytes(k * n, 2), &vec![-7; n]);
        let a = MatRef::new(a, m, k).unwrap();
        let (b, bt) = (MatRef::new(b, k, n).unwrap(), MatRef::new(b, n, k).unwrap());
        let plan = kernels::<i8>().gemm_plan(m, n, k).unwrap().accumulate();
        let sizes = [plan.scratch(), plan.scratch_packed()].map(|r| r.unwrap().size_unaligned());
        let mut scratch = vec![0; sizes[0].max(sizes[1])];
        let mut packed = vec![0; kernels::<i8>().packed_b_size(k, n).unwrap()];
        let packed = Parallel::<i8>::global().pack_b(b, &mut packed).unwrap();
        let forms: [(Right<'_, i8>, Option<&[i32]>); 5] = [
            (b.into(), None),
            (b.into(), Some(bias)),
            (Right::Transposed(bt), None),
            (packed.into(), None),
            (packed.into(), Some(bias)),
        ];
        for (form, (b, bias)) in forms.into_iter().enumerate() {
            let mut run = |p: Option<Parallel<'_, i8>>| {
                let mut memory: Vec<i32> = bytes(m * (n + 3), 5).into_iter().map(i32::from).collect();
                let c = MatMut::with_strides(&mut memory, m, n, n + 3, 1).unwrap();
                match p {
                    Some(p) => p.gemm(&plan, c, a, b, bias),
                    None => plan.run(c, a, b, bias, Scratch::new(&mut scratch)),
                }
                .unwrap();
                memory
            };
            let expected = run(None);
            for runtime in runtimes() {
                assert!(run(Some(Parallel::new(runtime))) == expected, "{form} {m}x{n}x{k} {runtime:?}");
            }
        }
        let (mut memory, other) = (vec![0; (m + 1) * n], plan.resized(m + 1, n).unwrap());
        let c = MatMut::new(&mut memory, m + 1, n).unwrap();
        let refused = Parallel::<i8>::global().gemm(&other, c, a, b, None);
        assert!(matches!(refused, Err(KernelError::DimMismatch { .. })), "{refused:?}");
    }
}

fn check_gemm_refusals<E: Element>() {
    let x = &numbers::<E>(20_000, 1);
    let (a, b) = (MatRef::new(x, 200, 100).unwrap(), MatRef::new(x, 100, 200).unwrap());
    let bias = &[0.0; 200][..];
    let mut memory = vec![0.0; 40_000];
    let mut packed = vec![0; kernels::<E>().packed_b_size(100, 200).unwrap()];
    for runtime in runtimes() {
        let p = Parallel::<E>::new(runtime);
        let packed = p.pack_b(b, &mut packed).unwrap();
        let mut c = MatMut::new(&mut memory, 200, 200).unwrap();
        let plan = p.kernels().gemm_plan(200, 200, 100).unwrap();
        let wrong_shapes: [(_, Right<'_, E>); 4] =
            [(a, a.into()), (b, b.into()), (a, Right::Transposed(b)), (b, packed.into())];
        for (a, b) in wrong_shapes {
            let refused = p.gemm(&plan, c.reborrow(), a, b, None);
            assert!(matches!(refused, Err(KernelError::DimMismatch { .. })), "{refused:?}");
        }
        for b in [Right::from(b), packed.into()] {
            assert_eq!(
                p.gemm(&plan, c.reborrow(), a, b, Some(&bias[1..])),
                Err(KernelError::WrongLength { arg: "bias", want: 200, got: 199 })
            );
        }
    }
}

fn check_quantised<E: Element>() {
    for (i, format) in QuantFormat::ALL.iter().enumerate() {
        // How rows are split depends on their bytes: the largest matrix is for a few formats.
        let shapes = [(0, 256), (1, 256), (300, 512), (1000, 1024)];
        let shapes = shapes.into_iter().take(if i % 8 == 0 { 4 } else { 3 });
        for (rows, cols) in shapes.filter(|&(rows, _)| rows < 2 || takes::<E>(i)) {
            let bytes: Vec<u8> = numbers::<f32>(format.row_bytes(cols).unwrap() * rows, 5)
                .iter()
                .map(|x| x.to_bits() as u8)
                .collect();
            let w = QuantRef::new(&bytes, *format, rows, cols).unwrap();
            let x = &numbers::<E>(cols, 1);
            for m in [1, 3] {
                check_kernel(Op::Qgemv, w.into(), thrice(x).row_range(0, m).unwrap());
                check_kernel(Op::QgemvQ8, w.into(), thrice(x).row_range(0, m).unwrap());
            }
            same!(rows * cols, E, E, dequant(w));
            check_packed::<E>(w, x);
        }
    }
}

fn check_quantize<E: Element>() {
    let x = numbers::<E>(if is_emulated() { 33 } else { 130 } * 512, 1);
    let importance = numbers::<f32>(512, 2);
    let formats = QuantFormat::ALL.iter().enumerate();
    for (_, &format) in formats.filter(|&(i, _)| takes::<E>(i)) {
        let bytes = format.row_bytes(x.len()).unwrap();
        for (x, importance, bytes) in [
            (&x[..], None, bytes),
            (&x, Some(&importance[..]), bytes),
            (&x, None, bytes - 1),
            (&x, Some(&importance[1..]), bytes),
            (&x[1..], None, bytes),
            (&x, Some(&[]), bytes),
            (&[], Some(&importance), bytes),
        ] {
            let mut expected = vec![0; bytes];
            let outcome = kernels::<E>().quantize(format, x, importance, &mut expected);
            for runtime in runtimes() {
                let mut out = vec![0; bytes];
                assert_eq!(Parallel::new(runtime).quantize(format, x, importance, &mut out), outcome);
                assert!(out == expected, "{format} {runtime:?}");
            }
        }
    }
}

/// Decodes and multiplies on every number of threads.
fn same_external<E: Element, W: External>(w: W) {
    let (outputs, inputs) = (w.outputs(), w.inputs());
    let (rows, cols) = if W::BY_OUTPUT { (outputs, inputs) } else { (inputs, outputs) };
    let x = &numbers::<E>(inputs, 1);
    same::<E, f32>("qgemv", outputs, |p, y| p.qgemv_external(w, x, y), |k, y| w.qgemv_with(&k, x, y));
    same::<E, E>(
        "dequant",
        rows * cols,
        |p, y| p.dequant_external(w, MatMut::new(y, rows, cols)?),
        |k, y| w.dequant_with(&k, MatMut::new(y, rows, cols)?),
    );
}

fn check_external<E: Element>() {
    let shapes = [(1, 32), (300, 512), (1000, 1024)].into_iter().enumerate();
    for (_, (outputs, inputs)) in shapes.filter(|&(i, _)| i == 0 || takes::<E>(i)) {
        let bytes: Vec<u8> =
            numbers::<f32>(outputs * inputs, 5).iter().map(|x| x.to_bits() as u8 & 0xbf).collect();
        let scales = numbers::<f32>(outputs.div_ceil(128) * inputs.div_ceil(128), 6);
        let (scales, scaling) = (ScaleSlice::F32(&scales), Fp8Scaling::Block { rows: 128, cols: 128 });
        same_external::<E, _>(
            Fp8Ref::new(&bytes, Fp8Format::E4m3, outputs, inputs, scales, scaling).unwrap(),
        );

        // More than one part of all outputs, even where inputs are rows.
        let outputs = 2 * outputs.next_multiple_of(16);
        let words: Vec<u32> = numbers::<f32>(inputs * outputs / 8, 7).iter().map(|x| x.to_bits()).collect();
        let groups = inputs / 32;
        let (qzeros, scales) = (&words[..groups * outputs / 8], &numbers::<f16>(groups * outputs, 8));
        same_external::<E, _>(AwqRef::new(&words, qzeros, scales, outputs, inputs, 32).unwrap());
        let any: Vec<u32> = (0..inputs).map(|k| (k * 7 % groups) as u32).collect();
        for g_idx in [None, Some(&any[..])] {
            let (bits, group, zeros) = (4, 32, GptqZeros::V1);
            let parts = GptqParts { bits, group, zeros, qweight: &words, qzeros, scales, g_idx };
            same_external::<E, _>(GptqRef::new(parts, outputs, inputs).unwrap());
        }
        let lookup_table = &numbers::<f32>(16 * outputs, 9);
        let rows: Vec<u32> = (0..=outputs as u32).collect();
        let cols: Vec<u32> = (0..outputs).map(|n| (n % inputs) as u32).collect();
        let outliers = Some(Outliers { rows: &rows, cols: &cols, vals: &numbers::<f32>(outputs, 10) });
        let parts = SqueezeLlmParts { bits: 4, qweight: &words, lookup_table, outliers };
        same_external::<E, _>(SqueezeLlmRef::new(parts, outputs, inputs).unwrap());
    }
}

fn check_wrong_shapes<E: Element>() {
    let length = |arg, want, got| Err(KernelError::WrongLength { arg, want, got });
    let (x, mut y) = (&numbers::<E>(200_000, 1), numbers::<E>(199_999, 2));
    for runtime in runtimes() {
        let p = Parallel::<E>::new(runtime);
        assert_eq!(p.relu(x, &mut y), length("y", 200_000, 199_999));
        assert_eq!(p.vec_dot(x, &y).map(drop), length("y", 200_000, 199_999));
        assert_eq!(p.vec_axpy(1.0, x, &mut y), length("y", 200_000, 199_999));
        let core = kernels::<E>();
        let mut gate = y.clone();
        assert_eq!(p.swiglu_inplace(&mut gate, x), core.swiglu_inplace(&mut gate, x));
        let shape = RopeShape { heads: 7, head_dim: 3, rot_dim: 2, pairing: RopePairing::Adjacent };
        assert_eq!(p.rope(shape, &[], &[], x, &mut y), core.rope(shape, &[], &[], x, &mut gate));
        assert_eq!(p.rope_inplace(shape, &[], &[], &mut y), core.rope_inplace(shape, &[], &[], &mut gate));
        assert_eq!(p.rms_norm_rows(7, x, None, 0.0, &mut y), core.rms_norm_rows(7, x, None, 0.0, &mut y));
        let w = Some(&x[..7]);
        let mut y = numbers::<E>(200_000, 2);
        let before = y.clone();
        assert_eq!(p.rms_norm_rows(8, x, w, 0.0, &mut y), length("w", 8, 7));
        assert!(y == before);
        let a = MatRef::new(x, 100, 2000).unwrap();
        assert_eq!(p.gemv(1.0, a, &x[..1999], 0.0, &mut [0.0; 100]), length("x", 2000, 1999));
    }
}
