//! Bad arguments are refused with the numbers that explain it, and nothing is written.

use std::fmt::Debug;

use gllm_kernels_core::{
    bf16, f16, AwqRef, ConvFilter, DeltaGates, Element, Features, Fp8Format, Fp8Ref, Fp8Scaling, IsaLevel,
    KernelError, Kernels, MatMut, MatRef, Op, Precision, Prefetcher, QuantFormat, QuantRef, QuantWeights,
    Right, RopeFreqs, RopePairing, RopePositions, RopeShape, ScaleSlice, Scratch, Softmax, StorePolicy,
};
use gllm_testkit::{data, guard, Edge, Guarded};

use KernelError::{
    BadParameter, BadValue, DimMismatch, NotBlockMultiple, NotWhole, OutOfRange, ShortSlice, WrongFormat,
    WrongLength,
};

/// Calls `f` with kernels of every level and a poisoned output of `n` elements: it must return `want`
/// and leave the output alone.
fn refuse<E: Element, T: Copy>(
    want: KernelError,
    n: usize,
    f: impl Fn(&Kernels<E>, &mut [T]) -> Result<(), KernelError>,
) {
    for level in data::levels() {
        let k = Kernels::<E>::forced(level).unwrap();
        let mut y = Guarded::<T>::poisoned(n, Edge::End);
        assert_eq!(f(&k, &mut y), Err(want), "{level}");
        assert!(guard::is_poison(&y) && y.intact(), "{want:?} at {level}: written all the same");
    }
}

/// As [`refuse`], for operators without an output slice.
fn refuse_value<E: Element, R: Debug + PartialEq>(
    want: KernelError,
    f: impl Fn(&Kernels<E>) -> Result<R, KernelError>,
) {
    for level in data::levels() {
        assert_eq!(f(&Kernels::<E>::forced(level).unwrap()), Err(want), "{level}");
    }
}

fn short(arg: &'static str, need: usize, got: usize) -> KernelError {
    ShortSlice { arg, need, got }
}

fn length(arg: &'static str, want: usize, got: usize) -> KernelError {
    WrongLength { arg, want, got }
}

fn vectors<E: Element>() {
    let x = &vec![E::ZERO; 40][..];
    // Too short, too long, empty.
    for n in [39, 41, 0] {
        let z = &vec![E::ZERO; n][..];
        let (y_short, z_short) = (length("y", 40, n), length("z", 40, n));
        refuse_value::<E, _>(y_short, |k| k.vec_dot(x, z));
        refuse::<E, E>(y_short, 40, |k, out| k.vec_add(x, z, out));
        refuse::<E, E>(z_short, n, |k, out| k.vec_add(x, x, out));
        refuse::<E, E>(y_short, n, |k, out| k.vec_add_inplace(x, out));
        refuse::<E, E>(y_short, 40, |k, out| k.vec_mul(x, z, out));
        refuse::<E, E>(z_short, n, |k, out| k.vec_mul(x, x, out));
        refuse::<E, E>(y_short, n, |k, out| k.vec_mul_inplace(x, out));
        refuse::<E, E>(y_short, n, |k, out| k.vec_scale(2.0, x, out));
        refuse::<E, E>(y_short, n, |k, out| k.vec_axpy(2.0, x, out));
        refuse::<E, E>(y_short, n, |k, out| k.relu(x, out));
        refuse::<E, E>(y_short, n, |k, out| k.exp(x, out));
        refuse::<E, E>(y_short, n, |k, out| k.tanh(x, out));
        refuse::<E, E>(y_short, n, |k, out| k.silu(x, out));
        refuse::<E, E>(y_short, n, |k, out| k.gelu(x, out));
        refuse::<E, E>(y_short, n, |k, out| k.gelu_tanh(x, out));
        refuse::<E, E>(length("up", 40, n), 40, |k, out| k.swiglu(x, z, out));
        refuse::<E, E>(y_short, n, |k, out| k.swiglu(x, x, out));
        refuse::<E, E>(length("up", 40, n), 40, |k, out| k.swiglu_inplace(out, z));
    }
}

fn rows<E: Element>() {
    let x = &vec![E::ZERO; 40][..];
    let w = &vec![E::ZERO; 7][..];
    for n in [39, 41, 0] {
        refuse::<E, E>(length("y", 40, n), n, |k, y| k.rms_norm(x, None, 1e-5, y));
        refuse::<E, E>(length("y", 40, n), n, |k, y| k.layer_norm(x, None, None, 1e-5, y));
        refuse::<E, E>(length("y", 40, n), n, |k, y| k.softmax(x, y));
    }
    refuse::<E, E>(length("w", 40, 7), 40, |k, y| k.rms_norm(x, Some(w), 1e-5, y));
    refuse::<E, E>(length("w", 10, 7), 40, |k, y| k.rms_norm_rows(10, x, Some(w), 1e-5, y));
    refuse::<E, E>(length("w", 40, 7), 40, |k, y| k.rms_norm_inplace(Some(w), 1e-5, y));
    refuse::<E, E>(length("w", 10, 7), 40, |k, y| k.layer_norm_rows(10, x, Some(w), None, 1e-5, y));
    refuse::<E, E>(length("b", 10, 7), 40, |k, y| k.layer_norm_rows(10, x, None, Some(w), 1e-5, y));
    refuse::<E, E>(length("b", 40, 7), 40, |k, y| k.layer_norm_inplace(Some(x), Some(w), 1e-5, y));
    for eps in [-1e-9, f32::NAN, f32::INFINITY] {
        let bad = BadParameter { arg: "eps", expected: "a finite number, 0 or above" };
        refuse::<E, E>(bad, 40, |k, y| k.rms_norm(x, None, eps, y));
        refuse::<E, E>(bad, 40, |k, y| k.rms_norm_rows_inplace(10, None, eps, y));
        refuse::<E, E>(bad, 40, |k, y| k.layer_norm(x, None, None, eps, y));
        refuse::<E, E>(bad, 40, |k, y| k.layer_norm_rows_inplace(10, None, None, eps, y));
    }
    for cols in [0, 7, 41, usize::MAX] {
        let is_rows = |e| e == NotWhole { arg: "x", got: 40, unit: "cols", len: cols };
        for level in data::levels() {
            let k = Kernels::<E>::forced(level).unwrap();
            let mut y = Guarded::<E>::poisoned(40, Edge::Start);
            assert!(k.rms_norm_rows(cols, x, None, 0.0, &mut y).is_err_and(is_rows), "{cols}");
            assert!(k.rms_norm_rows_inplace(cols, None, 0.0, &mut y).is_err_and(is_rows), "{cols}");
            assert!(k.layer_norm_rows(cols, x, None, None, 0.0, &mut y).is_err_and(is_rows), "{cols}");
            assert!(k.layer_norm_rows_inplace(cols, None, None, 0.0, &mut y).is_err_and(is_rows), "{cols}");
            let all = Softmax::default();
            assert!(k.softmax_rows(cols, all, x, &mut y).is_err_and(is_rows), "{cols}");
            assert!(k.softmax_rows_inplace(cols, all, &mut y).is_err_and(is_rows), "{cols}");
            assert!(guard::is_poison(&y));
        }
    }
}

fn matrices<E: Element>() {
    let data = vec![E::ZERO; 60];
    let a = MatRef::new(&data, 5, 12).unwrap();
    refuse::<E, f32>(length("x", 12, 11), 5, |k, y| k.gemv(1.0, a, &data[..11], 0.0, y));
    refuse::<E, f32>(length("x", 12, 60), 5, |k, y| k.gemv(1.0, a, &data, 0.0, y));
    refuse::<E, f32>(length("y", 5, 4), 4, |k, y| k.gemv(1.0, a, &data[..12], 0.0, y));
    refuse::<E, f32>(length("y", 12, 5), 5, |k, y| k.gemv(1.0, a.t(), &data[..5], 0.0, y));
}

/// Products of 5x7 by 7x6, each with one thing wrong.
fn products<E: Element>() {
    let data = vec![E::ZERO; 60];
    let (a, b) = (MatRef::new(&data, 5, 7).unwrap(), MatRef::new(&data, 7, 6).unwrap());
    let dim = |what, want, got| DimMismatch { what, want, got };
    let run = |want, (m, n, k): (usize, usize, usize), a, b| {
        refuse::<E, f32>(want, 30, |kernels, c| {
            let plan = kernels.gemm_plan(m, n, k)?;
            let mut memory = vec![0; plan.scratch()?.size_unaligned()];
            plan.run(MatMut::new(c, 5, 6)?, a, b, None, Scratch::new(&mut memory))
        });
    };
    run(dim("b.rows != k", 8, 7), (5, 6, 8), a, b);
    run(dim("b.cols != n", 5, 6), (5, 5, 7), a, b);
    run(dim("c.rows != m", 4, 5), (4, 6, 7), a, b);
    run(dim("c.cols != n", 5, 6), (5, 5, 7), a, MatRef::new(&data, 7, 5).unwrap());
    run(dim("a.rows != m", 5, 4), (5, 6, 7), a.row_range(0, 4).unwrap(), b);
    run(dim("a.cols != k", 7, 5), (5, 6, 7), MatRef::new(&data, 5, 5).unwrap(), b);

    for level in data::levels() {
        let kernels = Kernels::<E>::forced(level).unwrap();
        let plan = kernels.gemm_plan(5, 6, 7).unwrap();
        let mut c = Guarded::<f32>::poisoned(30, Edge::End);
        fn view(c: &mut [f32]) -> MatMut<'_, f32> {
            MatMut::new(c, 5, 6).unwrap()
        }
        let short_bias = plan.run(view(&mut c), a, b, Some(&[0.0; 5]), Scratch::empty());
        assert_eq!(short_bias, Err(length("bias", 6, 5)));
        let transposed = plan.run(view(&mut c), a, Right::Transposed(b), None, Scratch::empty());
        assert_eq!(transposed, Err(dim("bt.rows != n", 6, 7)));
        match plan.run(view(&mut c), a, b, None, Scratch::empty()) {
            Err(KernelError::ScratchTooSmall { need, got: 0 }) => {
                // Its parts are taken one by one; the first is asked for first.
                assert!(need > 0 && need <= plan.scratch().unwrap().size_unaligned(), "{need}");
            }
            r => panic!("{r:?}"),
        }

        let size = kernels.packed_b_size(7, 6).unwrap();
        let mut packed = vec![0u8; size];
        let too_short = kernels.pack_b(b, &mut packed[1..]).map(|_| ()).unwrap_err();
        assert_eq!(too_short, short("buf", size, size - 1));
        let unpacked = kernels.packed_b(&packed, 7, 6).map(|_| ()).unwrap_err();
        assert!(
            matches!(unpacked, KernelError::WrongPacking { want, got: 0, .. } if want != 0),
            "{unpacked}"
        );
        kernels.pack_b(b, &mut packed).unwrap();
        let shape = kernels.packed_b(&packed, 7, 5).map(|_| ()).unwrap_err();
        assert_eq!(shape, dim("packed n", 5, 6));
        let other = kernels.gemm_plan(5, 6, 8).unwrap();
        let wrong =
            other.run(view(&mut c), a, kernels.packed_b(&packed, 7, 6).unwrap(), None, Scratch::empty());
        assert_eq!(wrong, Err(dim("b.k() != k", 8, 7)));
        assert!(guard::is_poison(&c));
        for (m, n, k) in [(usize::MAX, 6, 7), (5, usize::MAX, 7)] {
            let planned = kernels.gemm_plan(m, n, k).and_then(|p| p.scratch());
            assert!(!matches!(planned, Err(e) if !matches!(e, KernelError::SizeOverflow { .. })));
        }
        let size = kernels.packed_b_size(1 << 40, 1 << 40).unwrap_err();
        assert!(matches!(size, KernelError::SizeOverflow { .. }));
    }
}

/// Linear attention, for 3 tokens, keys of 5 and values of 4, and for 3 tokens of 5 channels and 4 taps; each with one thing wrong.
#[test]
fn linear_attention_of_wrong_shapes() {
    let data = vec![0.0f32; 64];
    let dim = |what, want, got| DimMismatch { what, want, got };
    let of = |rows, cols| MatRef::new(&data, rows, cols).unwrap();
    let spread = MatRef::with_strides(&data, 3, 5, 20, 2).unwrap();
    let wrong_stride = |arg| BadValue { arg, got: 2, expected: "1, that is contiguous rows" };
    type Inputs<'a> = ([usize; 2], [MatRef<'a, f32>; 3], [usize; 2]);
    let right: Inputs<'_> = ([4, 5], [of(3, 5), of(3, 5), of(3, 4)], [3, 3]);
    let run = |want, (state, [q, k, v], [decay, beta]): Inputs<'_>, y: [usize; 2]| {
        refuse::<f32, f32>(want, 64, |kernels, out| {
            let (before, out) = out.split_at_mut(32);
            let gates = DeltaGates { decay: &data[..decay], beta: &data[..beta], corrected: true };
            let (state, y) = (MatMut::new(before, state[0], state[1])?, MatMut::new(out, y[0], y[1])?);
            kernels.gated_delta_rule(state, q, k, v, gates, y)
        });
    };
    let (state, [q, k, v], gates) = right;
    run(dim("q.cols() != state.cols()", 6, 5), ([4, 6], [q, k, v], gates), [3, 4]);
    run(dim("k.rows() != q.rows()", 3, 2), (state, [q, of(2, 5), v], gates), [3, 4]);
    run(dim("k.cols() != state.cols()", 5, 6), (state, [q, of(3, 6), v], gates), [3, 4]);
    run(dim("v.rows() != q.rows()", 3, 4), (state, [q, k, of(4, 4)], gates), [3, 4]);
    run(dim("v.cols() != state.rows()", 4, 5), (state, [q, k, of(3, 5)], gates), [3, 4]);
    run(dim("y.rows() != q.rows()", 3, 2), right, [2, 4]);
    run(dim("y.cols() != state.rows()", 4, 3), right, [3, 3]);
    run(dim("gates.decay.len() != q.rows()", 3, 2), (state, [q, k, v], [2, 3]), [3, 4]);
    run(dim("gates.beta.len() != q.rows()", 3, 4), (state, [q, k, v], [3, 4]), [3, 4]);
    run(wrong_stride("q.col_stride()"), (state, [spread, k, v], gates), [3, 4]);
    run(wrong_stride("k.col_stride()"), (state, [q, spread, v], gates), [3, 4]);
    let none = BadValue { arg: "state.cols()", got: 0, expected: "at least 1" };
    run(none, ([4, 0], [of(3, 0), of(3, 0), v], gates), [3, 4]);

    let run = |want, state: [usize; 2], x: MatRef<'_, f32>, w: MatRef<'_, f32>, y: [usize; 2]| {
        refuse::<f32, f32>(want, 64, |kernels, out| {
            let (before, out) = out.split_at_mut(32);
            let (state, y) = (MatMut::new(before, state[0], state[1])?, MatMut::new(out, y[0], y[1])?);
            kernels.causal_conv1d(state, x, ConvFilter { w, bias: None, silu: true }, y)
        });
    };
    let (x, w) = (of(3, 5), of(4, 5));
    run(BadValue { arg: "w.rows()", got: 0, expected: "at least 1" }, [0, 5], x, of(0, 5), [3, 5]);
    run(dim("w.cols() != x.cols()", 5, 6), [3, 5], x, of(4, 6), [3, 5]);
    run(dim("state.rows() != w.rows() - 1", 3, 4), [4, 5], x, w, [3, 5]);
    run(dim("state.cols() != x.cols()", 5, 4), [3, 4], x, w, [3, 5]);
    refuse::<f32, f32>(dim("bias.len() != x.cols()", 5, 4), 64, |kernels, out| {
        let (before, out) = out.split_at_mut(32);
        let filter = ConvFilter { w, bias: Some(&data[..4]), silu: false };
        kernels.causal_conv1d(MatMut::new(before, 3, 5)?, x, filter, MatMut::new(out, 3, 5)?)
    });
    run(dim("y.rows() != x.rows()", 3, 4), [3, 5], x, w, [4, 5]);
    run(dim("y.cols() != x.cols()", 5, 4), [3, 5], x, w, [3, 4]);
    run(wrong_stride("x.col_stride()"), [3, 5], spread, w, [3, 5]);
}

fn rotations<E: Element>() {
    let shape = RopeShape { heads: 2, head_dim: 10, rot_dim: 8, pairing: RopePairing::Adjacent };
    let (x, angles) = (vec![E::ZERO; 60], [0.0f32; 12]);
    refuse::<E, E>(length("y", 60, 40), 40, |k, y| k.rope(shape, &angles, &angles, &x, y));
    refuse::<E, E>(length("cos", 12, 11), 60, |k, y| k.rope(shape, &angles[1..], &angles, &x, y));
    refuse::<E, E>(length("sin", 12, 8), 60, |k, y| k.rope_inplace(shape, &angles, &angles[4..], y));
    for rot_dim in [7, 12, usize::MAX - 1] {
        let bad = BadValue { arg: "rot_dim", got: rot_dim, expected: "an even number, at most head_dim" };
        refuse::<E, E>(bad, 60, |k, y| k.rope(RopeShape { rot_dim, ..shape }, &angles, &angles, &x, y));
    }
    for heads in [0, 4, usize::MAX] {
        let shape = RopeShape { heads, ..shape };
        for level in data::levels() {
            let mut y = Guarded::<E>::poisoned(60, Edge::End);
            let k = Kernels::<E>::forced(level).unwrap();
            let want = match heads.checked_mul(shape.head_dim) {
                Some(len) => NotWhole { arg: "x", got: 60, unit: "heads * head_dim", len },
                None => KernelError::SizeOverflow { what: "heads * head_dim" },
            };
            assert_eq!(k.rope_inplace(shape, &angles, &angles, &mut y), Err(want));
            assert!(guard::is_poison(&y));
        }
    }
    // Nothing to rotate, in heads of any size.
    for (heads, head_dim, rot_dim) in [(1, usize::MAX, 8), (usize::MAX, 1, 0), (usize::MAX / 2, 2, 2)] {
        let huge = RopeShape { heads, head_dim, rot_dim, ..shape };
        for level in data::levels() {
            for stores in [StorePolicy::Streamed, StorePolicy::Cached] {
                for prefetcher in Prefetcher::ALL {
                    let caps = Kernels::<E>::forced(level).unwrap().caps().with_prefetcher(prefetcher);
                    let k = Kernels::<E>::with(caps).with_stores(stores);
                    assert_eq!(k.rope(huge, &[], &[], &[], &mut []), Ok(()));
                }
            }
        }
    }
    // The defaults' 64 pairs in a table for two tokens of two.
    let (mut cos, mut sin) = ([0.0; 4], [0.0; 4]);
    let defaults = RopeFreqs::default().table(RopePositions::From(0), &mut cos, &mut sin);
    assert_eq!(defaults, Err(NotWhole { arg: "cos", got: 4, unit: "rot_dim / 2", len: 64 }));
    let freqs = RopeFreqs { rot_dim: usize::MAX - 1, ..RopeFreqs::default() };
    assert_eq!(freqs.table(RopePositions::From(0), &mut [], &mut []), Ok(()));
}

fn quantised<E: Element>() {
    for &format in QuantFormat::ALL {
        let (block, size) = (format.block_len(), format.block_bytes());
        let bytes = vec![0u8; 6 * size];
        let of = |rows, cols| QuantRef::new(&bytes, format, rows, cols).map(|_| ()).unwrap_err();
        if block > 1 {
            assert_eq!(of(1, block + 1), NotBlockMultiple { cols: block + 1, block });
        }
        assert_eq!(of(7, block), short("bytes", 7 * size, 6 * size));
        assert!(matches!(of(usize::MAX, block), KernelError::SizeOverflow { .. }));
        assert!(matches!(of(1 << 32, block << 32), KernelError::SizeOverflow { .. }));
        assert_eq!(QuantFormat::from_gguf(format.gguf_type()), Ok(format));
        assert_eq!(QuantFormat::from_name(format.name()), Some(format));

        let w = QuantRef::new(&bytes, format, 3, 2 * block).unwrap();
        assert_eq!(w.row_range(2, 2).map(|_| ()).unwrap_err(), OutOfRange { what: "rows", end: 4, len: 3 });
        assert!(matches!(w.row_range(1, usize::MAX).unwrap_err(), KernelError::SizeOverflow { .. }));
        let x = vec![E::ZERO; 2 * block];
        for n in [6 * block - 1, 6 * block + 1, 0] {
            refuse::<E, E>(length("y", 6 * block, n), n, |k, y| k.dequant(w, y));
        }
        let dim = |what, want, got| DimMismatch { what, want, got };
        let short =
            [(dim("x.cols() != k", 2 * block, block), 3, block), (dim("y.cols() != n", 3, 4), 4, 2 * block)];
        for (wrong, n, cols) in short {
            refuse::<E, f32>(wrong, n, |k, y| {
                let plan = k.qgemm_plan(format, 1, 3, 2 * block, Precision::Exact)?;
                let (y, x) = (MatMut::new(y, 1, n)?, MatRef::new(&x[..cols], 1, cols)?);
                plan.run(y, w, x, None, Scratch::empty())
            });
        }
    }
    for number in [u32::MAX, 1 << 31, 4, 5] {
        assert_eq!(QuantFormat::from_gguf(number), Err(KernelError::UnknownFormat(number)));
    }
}

/// Sizes that no memory has, of views without elements or of one row many times: nothing overflows, and nothing is done
/// as often as they say.
fn absurd<E: Element>() {
    const MANY: usize = usize::MAX - 15;
    fn none<'a, T>() -> MatMut<'a, T> {
        MatMut::with_strides(&mut [], MANY, 0, usize::MAX, 1).unwrap()
    }
    #[track_caller]
    fn fine<R: Debug>(r: Result<R, KernelError>) {
        assert!(matches!(r, Ok(_) | Err(KernelError::SizeOverflow { .. })), "{r:?}");
    }
    let row = [E::ZERO; 256];
    let empty = MatRef::<E>::with_strides(&[], MANY, 0, usize::MAX, 1).unwrap();
    for level in data::levels() {
        let k = Kernels::<E>::forced(level).unwrap().with_stores(StorePolicy::Streamed);
        let (mut buf, mut room) = (vec![0; 4096], vec![0; 1 << 16]);
        for format in [QuantFormat::Q8_0, QuantFormat::Q4K, QuantFormat::F16] {
            let (w, nothing) = (
                QuantRef::new(&[], format, MANY, 0).unwrap(),
                QuantRef::new(&[], format, 0, format.block_len()).unwrap(),
            );
            let same = MatRef::with_strides(&row, MANY, format.block_len(), 0, 1).unwrap();
            fine(k.dequant(w, &mut []));
            fine(w.row_range(MANY - 3, 3));
            let no_columns = QuantRef::new(&[], format, 0, 0).unwrap();
            fine(k.pack_q(w, &mut room));
            let packed = k.pack_q(no_columns, &mut room).unwrap();
            let all =
                [Precision::Integer, Precision::Exact, Precision::Bf16].map(|precision| (precision, None));
            let forced = [Op::Qgemv, Op::QgemvQ8, Op::QgemvPacked, Op::Qgemm];
            let forced = forced.map(|op| (Precision::Integer, Some(op)));
            for (precision, op) in all.into_iter().chain(forced) {
                let mut memory = vec![0; 1 << 22];
                let plan = |cols| {
                    let plan = k.qgemm_plan(format, MANY, 0, cols, precision)?;
                    op.map_or(Ok(plan), |op| plan.with_kernel(op))
                };
                let of_block = plan(format.block_len()).unwrap();
                fine(of_block.scratch());
                fine(of_block.prepared_size());
                fine(of_block.prepare(same, &mut buf));
                if op != Some(Op::QgemvPacked) {
                    fine(of_block.run(none(), nothing, same, None, Scratch::new(&mut memory)));
                }
                let plan = plan(0).unwrap();
                let w =
                    if op == Some(Op::QgemvPacked) { packed.into() } else { QuantWeights::from(no_columns) };
                let plan = plan.packed(w.is_packed());
                fine(plan.run(none(), w, empty, None, Scratch::new(&mut memory)));
                let x = plan.prepare(empty, &mut buf).unwrap();
                fine(plan.run(none(), w, x, None, Scratch::new(&mut memory)));
            }
        }
        let same = MatRef::with_strides(&row, MANY, 32, 0, 1).unwrap();
        for b in [empty, empty.t(), same, same.t()] {
            fine(k.pack_b(b, &mut buf).map_err(|e| match e {
                ShortSlice { need, .. } if need > 4096 => KernelError::SizeOverflow { what: "memory" },
                e => e,
            }));
        }
        for [m, n, depth] in [[MANY, 0, 32], [0, MANY, 32], [MANY, 0, 0], [0, MANY, MANY]] {
            let plan = k.gemm_plan(m, n, depth);
            fine(plan.and_then(|plan| plan.scratch()));
        }
        if let Ok(plan) = k.gemm_plan(MANY, 0, 0) {
            let b = MatRef::new(&[], 0, 0).unwrap();
            fine(plan.run(none(), empty, b, None, Scratch::empty()));
        }
        for cols in [MANY, usize::MAX] {
            fine(k.rms_norm_rows(cols, &[], None, 0.0, &mut []));
            fine(k.layer_norm_rows_inplace(cols, None, None, 0.0, &mut []));
            for valid in [None, Some(cols), Some(1)] {
                fine(k.softmax_rows(cols, Softmax { scale: 1.0, valid }, &[], &mut []));
            }
        }
        let zeros = MANY / 8 * 8;
        let awq = AwqRef::new(&[], &[], &[], zeros, 0, 32).unwrap();
        let y = MatMut::with_strides(&mut [], 0, zeros, usize::MAX, 1).unwrap();
        fine(k.dequant_awq(awq, y));
        let fp8 =
            Fp8Ref::new(&[], Fp8Format::E4m3, MANY, 0, ScaleSlice::F32(&[1.0]), Fp8Scaling::Tensor).unwrap();
        fine(k.dequant_fp8(fp8, none()));
    }
}

/// Runs the tests of one area for every storage type.
macro_rules! for_every_element {
    ($($test:ident = $f:ident;)*) => {$(
        #[test]
        fn $test() {
            $f::<f32>();
            $f::<f16>();
            $f::<bf16>();
        }
    )*};
}
for_every_element! {
    vectors_of_unequal_length = vectors;
    rows_and_parameters = rows;
    matrix_dimensions = matrices;
    products_of_wrong_shapes = products;
    rotations_of_wrong_shapes = rotations;
    quantised_weights = quantised;
    absurd_sizes = absurd;
}

/// Weights, packed weights and activations of another format than the call's.
#[test]
fn formats_that_do_not_fit_are_named() {
    let (format, other) = (QuantFormat::Q8_0, QuantFormat::Q4_0);
    let wrong = |arg, want, got| Err(WrongFormat { arg, want, got });
    for level in data::levels() {
        let k = Kernels::<f32>::forced(level).unwrap();
        let (bytes, x, mut y) = (vec![0; 16 * 34], [0.0; 32], Guarded::<f32>::poisoned(16, Edge::End));
        let w = QuantRef::new(&bytes, format, 16, 32).unwrap();
        let mut buf = vec![0; format.packed_size(16, 32).unwrap()];
        k.pack_q(w, &mut buf).unwrap();
        let opened = k.packed_q(other, 16, 32, &buf).map(drop);
        assert_eq!(opened, wrong("packed", other, format));
        let opened = k.packed_q(format, 32, 32, &buf).map(drop);
        assert_eq!(opened, Err(DimMismatch { what: "packed rows", want: 32, got: 16 }));

        let x = MatRef::new(&x, 1, 32).unwrap();
        let packed = k.packed_q(format, 16, 32, &buf).unwrap();
        fn out(y: &mut [f32]) -> MatMut<'_, f32> {
            MatMut::new(y, 1, 16).unwrap()
        }
        let [right, foreign] =
            [format, other].map(|format| k.qgemm_plan(format, 1, 16, 32, Precision::Integer).unwrap());
        let mut room = vec![0; foreign.prepared_size().unwrap().size_unaligned()];
        for w in [QuantWeights::from(w), packed.into()] {
            assert_eq!(foreign.run(out(&mut y), w, x, None, Scratch::empty()), wrong("w", other, format));
            let q = foreign.packed(w.is_packed()).prepare(x, &mut room).unwrap();
            assert_eq!(right.run(out(&mut y), w, q, None, Scratch::empty()), wrong("x", format, other));
            // Prepared for weights that are packed, or not.
            let q = right.packed(!w.is_packed()).prepare(x, &mut room).unwrap();
            let refused = right.run(out(&mut y), w, q, None, Scratch::empty());
            assert!(matches!(refused, Err(BadParameter { arg: "x", .. })), "{refused:?}");
        }
        // Another form, and another operator.
        let q = right.prepare(x, &mut room).unwrap();
        let exact = k.qgemm_plan(format, 1, 16, 32, Precision::Exact).unwrap();
        let refused = exact.run(out(&mut y), w, q, None, Scratch::empty());
        assert!(matches!(refused, Err(BadParameter { arg: "x", .. })), "{refused:?}");
        assert!(matches!(right.with_kernel(Op::Gemm), Err(BadParameter { arg: "op", .. })));
        assert!(guard::is_poison(&y));
    }
}

/// Where `GLLM_TEST_OVERFLOW` asks for it, sizes that overflow panic: here, and so in the core, whose profile tests share.
#[test]
fn overflow_is_checked() {
    let sum = std::panic::catch_unwind(|| std::hint::black_box(usize::MAX) + std::hint::black_box(1));
    assert!(sum.is_err() || std::env::var_os("GLLM_TEST_OVERFLOW").is_none());
}

#[test]
fn views_refuse() {
    let mut data = [0f32; 10];
    let e = MatMut::with_strides(&mut data, 3, 3, 1, 1).unwrap_err();
    assert_eq!(e, KernelError::Overlap { rows: 3, cols: 3, row_stride: 1, col_stride: 1 });
    assert_eq!(MatMut::new(&mut data, 3, 4).unwrap_err(), short("matrix", 12, 10));
    assert_eq!(MatRef::new(&data, 3, 4).unwrap_err(), short("matrix", 12, 10));
    let e = MatRef::new(&data, usize::MAX, usize::MAX).unwrap_err();
    assert_eq!(e, KernelError::SizeOverflow { what: "matrix extent" });
}

/// One line that contains every number and name.
#[test]
fn texts_name_the_numbers() {
    let overlap = KernelError::Overlap { rows: 31, cols: 32, row_stride: 33, col_stride: 34 };
    let (want, have) = (IsaLevel::Avx512, IsaLevel::Avx2);
    let isa = KernelError::IsaUnavailable { want, have, missing: Features::AMX_INT8 };
    let build = KernelError::IsaUnavailable { want, have, missing: Features::NONE };
    let (want_format, got_format) = (QuantFormat::Q8_0, QuantFormat::Q4K);
    let texts: [(KernelError, &[&str]); 19] = [
        (short("weights", 123, 45), &["weights", "at least 123", "45", "longer"]),
        (length("y", 40, 41), &["y", "exactly 40", "41"]),
        (
            NotWhole { arg: "x", got: 60, unit: "heads * head_dim", len: 80 },
            &["x", "60", "heads * head_dim", "80"],
        ),
        (
            NotWhole { arg: "x", got: 60, unit: "heads * head_dim", len: 0 },
            &["x", "60", "heads * head_dim is 0"],
        ),
        (OutOfRange { what: "rows", end: 50_001, len: 50_000 }, &["rows", "50001", "50000", "range"]),
        (DimMismatch { what: "a.cols != k", want: 71, got: 72 }, &["a.cols != k", "71", "72"]),
        (NotBlockMultiple { cols: 33, block: 32 }, &["33", "32"]),
        (KernelError::ScratchTooSmall { need: 4096, got: 17 }, &["4096", "17"]),
        (
            KernelError::WrongPacking { what: "the layout", want: 0xabcd, got: 0x1234 },
            &["layout", "abcd", "1234"],
        ),
        (WrongFormat { arg: "w", want: want_format, got: got_format }, &["w", "q8_0", "q4_k", "format"]),
        (
            KernelError::BadIndex { arg: "g_idx", at: 5, value: 81, from: 41, below: 42 },
            &["g_idx", "5", "81", "41", "42"],
        ),
        (overlap, &["31", "32", "33", "34"]),
        (BadValue { arg: "bits", got: 5, expected: "3 or 4" }, &["bits", "5", "3 or 4"]),
        (BadParameter { arg: "eps", expected: "a number" }, &["eps", "a number"]),
        (KernelError::UnknownFormat(99), &["99"]),
        (KernelError::NoEncoder(QuantFormat::Iq1S), &["iq1_s"]),
        (isa, &["avx512", "avx2", "amx_int8"]),
        (build, &["avx512", "avx2"]),
        (KernelError::SizeOverflow { what: "scratch size" }, &["scratch size"]),
    ];
    for (error, words) in texts {
        let text = error.to_string();
        for word in words {
            assert!(text.contains(word), "{text:?} does not name {word}");
        }
        assert!(!text.contains('\n') && text.len() < 160 && !text.ends_with('.'), "{text:?}");
        let error: &dyn std::error::Error = &error;
        assert!(error.source().is_none());
    }
}
