//! Views of weights in the layouts of other checkpoints: what they refuse.

use gllm_kernels_core::{
    f16, AwqRef, External, Fp8Format, Fp8Ref, Fp8Scaling, GptqParts, GptqRef, GptqZeros, KernelError,
    Kernels, MatMut, Outliers, QuantFormat, QuantRef, ScaleSlice, SqueezeLlmParts, SqueezeLlmRef,
};

use KernelError::{BadValue, DimMismatch, SizeOverflow, WrongLength};

fn length(arg: &'static str, want: usize, got: usize) -> KernelError {
    WrongLength { arg, want, got }
}

/// Ranges outside of a view, and calls with operands of other sizes, are refused.
fn refuses_wrong_calls<W: External>(w: W) {
    let (outputs, inputs) = (w.outputs(), w.inputs());
    let range = |start, len| w.output_range(start, len).map(drop);
    assert_eq!(
        range(0, outputs + 1),
        Err(KernelError::OutOfRange { what: "outputs", end: outputs + 1, len: outputs })
    );
    assert!(matches!(range(usize::MAX, 2), Err(SizeOverflow { .. })));
    assert_eq!(range(outputs, 0), Ok(()));
    if W::OUTPUT_MULTIPLE > 1 {
        assert!(matches!(range(W::OUTPUT_MULTIPLE - 1, 1), Err(KernelError::NotBlockMultiple { .. })));
    }

    let k = Kernels::<f32>::detect();
    let (x, mut y) = (vec![1.0; inputs + 1], vec![7.0; outputs]);
    assert_eq!(w.qgemv_with(&k, &x, &mut y), Err(length("x", inputs, inputs + 1)));
    assert_eq!(w.qgemv_with(&k, &x[1..], &mut y[1..]), Err(length("y", outputs, outputs - 1)));
    assert!(y.iter().all(|&y| y == 7.0), "nothing was written");

    let (rows, cols) = if W::BY_OUTPUT { (outputs, inputs) } else { (inputs, outputs) };
    let mut y = vec![0f32; 2 * rows * cols];
    let mut decode = |rows, cols, across, along| {
        let y = MatMut::with_strides(&mut y, rows, cols, across, along).unwrap();
        w.dequant_with(&k, y)
    };
    let what = "y.rows()";
    assert_eq!(decode(rows - 1, cols, cols, 1), Err(DimMismatch { what, want: rows, got: rows - 1 }));
    let what = "y.cols()";
    assert_eq!(decode(rows, cols - 1, cols, 1), Err(DimMismatch { what, want: cols, got: cols - 1 }));
    assert_eq!(
        decode(rows, cols, 1, rows),
        Err(BadValue { arg: "y.col_stride()", got: rows, expected: "1, that is contiguous rows" })
    );
    assert_eq!(decode(rows, cols, cols, 1), Ok(()));
}

#[test]
fn fp8() {
    let (bytes, scales) = ([0x38u8; 600], [1.0f32; 12]);
    let new = |n: usize, outputs, inputs, s: usize, scaling| {
        Fp8Ref::new(&bytes[..n], Fp8Format::E4m3, outputs, inputs, ScaleSlice::F32(&scales[..s]), scaling)
    };
    let tile = |rows, cols| Fp8Scaling::Block { rows, cols };
    for (s, scaling) in [(1, Fp8Scaling::Tensor), (3, Fp8Scaling::Row), (4, tile(2, 128)), (2, tile(9, 199))]
    {
        let w = new(600, 3, 200, s, scaling).unwrap();
        assert_eq!((w.outputs(), w.inputs(), w.size()), (3, 200, 600 + 4 * s));
        refuses_wrong_calls(w);
        let error = |n, s| new(n, 3, 200, s, scaling).unwrap_err();
        assert_eq!(error(599, s), length("bytes", 600, 599));
        assert_eq!(error(600, s + 1), length("scales", s, s + 1));
        assert_eq!(error(600, s - 1), length("scales", s, s - 1));
    }
    for scaling in [tile(0, 1), tile(1, 0)] {
        assert!(matches!(new(600, 3, 200, 3, scaling), Err(BadValue { arg: "scaling", .. })));
    }
    assert!(matches!(new(0, usize::MAX, 2, 1, Fp8Scaling::Tensor), Err(SizeOverflow { .. })));
    assert!(new(0, 0, 7, 1, Fp8Scaling::Tensor).is_ok() && new(0, 7, 0, 7, Fp8Scaling::Row).is_err());
    assert!(new(0, 7, 0, 0, tile(2, 2)).is_ok());
}

/// Slices of a length, all of one number.
/// Blocks are the weights bit for bit, of parts of a matrix, too; where there are none, that is said.
#[test]
fn fp8_in_blocks() {
    const E4M3: QuantFormat = QuantFormat::E4m3;
    let (outputs, inputs) = (5, 384);
    let bytes: Vec<u8> =
        (0..outputs * inputs).map(|i| (i * 37 % 251) as u8).map(|q| q - (q & 0x7f) / 0x7f).collect();
    let scales: Vec<f32> = (0..30).map(|i| 0.3 + i as f32).collect();
    let tile = |rows, cols| Fp8Scaling::Block { rows, cols };
    let (tensor, row) = (Fp8Scaling::Tensor, Fp8Scaling::Row);
    let cases = [
        (tensor, 1, true),
        (row, 5, true),
        (tile(2, 128), 9, true),
        (tile(4, 256), 4, true),
        (tile(3, 500), 2, true),
        (tile(1, 64), 30, false),
        (tile(2, 192), 6, false),
    ];
    let k = Kernels::<f32>::detect();
    let decoded = |w: Fp8Ref<'_>| {
        let mut y = vec![0.0; w.outputs() * inputs];
        k.dequant_fp8(w, MatMut::new(&mut y, w.outputs(), inputs).unwrap()).unwrap();
        y
    };
    fn view<'a>(bytes: &'a [u8], format: Fp8Format, scaling: Fp8Scaling, scales: &'a [f32]) -> Fp8Ref<'a> {
        Fp8Ref::new(bytes, format, 5, 384, ScaleSlice::F32(scales), scaling).unwrap()
    }
    for (scaling, n, blocks) in cases {
        let w = view(&bytes, Fp8Format::E4m3, scaling, &scales[..n]);
        for w in [w, w.output_range(1, 3).unwrap()] {
            let row = E4M3.row_bytes(inputs).unwrap();
            let mut to = vec![0xaa; w.outputs() * row];
            assert_eq!(w.to_blocks(&mut to), Ok(blocks), "{scaling:?}");
            if !blocks {
                continue;
            }
            let mut y = vec![0.0; w.outputs() * inputs];
            k.dequant(QuantRef::new(&to, E4M3, w.outputs(), inputs).unwrap(), &mut y).unwrap();
            assert_eq!(y, decoded(w), "{scaling:?}");
            assert_eq!(
                w.to_blocks(&mut to[1..]),
                Err(length("to", row * w.outputs(), row * w.outputs() - 1))
            );
        }
    }
    let mut to = vec![0; outputs * E4M3.row_bytes(inputs).unwrap()];
    assert_eq!(view(&bytes, Fp8Format::E5m2, tensor, &[1.0]).to_blocks(&mut to), Ok(false));
    for (scale, fits) in
        [(2f32.powi(119), true), (2f32.powi(120), false), (f32::NAN, false), (f32::INFINITY, false)]
    {
        let scales = [scale];
        assert_eq!(view(&bytes, Fp8Format::E4m3, tensor, &scales).to_blocks(&mut to), Ok(fits), "{scale}");
    }
    for nan in [0x7f, 0xff] {
        for at in [0, 127, 128, bytes.len() - 1] {
            let mut bytes = bytes.clone();
            bytes[at] = nan;
            let w = Fp8Ref::new(&bytes, Fp8Format::E4m3, outputs, inputs, ScaleSlice::F32(&[1.0]), tensor);
            assert_eq!(w.unwrap().to_blocks(&mut to), Ok(false), "{nan} at {at}");
        }
    }
    let narrow =
        Fp8Ref::new(&bytes[..200], Fp8Format::E4m3, 1, 200, ScaleSlice::F32(&[1.0]), tensor).unwrap();
    assert_eq!(narrow.to_blocks(&mut []), Ok(false));
}

fn of<T: Clone>(x: T, n: usize) -> Vec<T> {
    vec![x; n]
}

#[test]
fn awq() {
    let new = |words: usize, zeros: usize, scales: usize, outputs, inputs, group| {
        let (words, zeros) = (of(0x7654_3210, words), of(0x1111_1111, zeros));
        AwqRef::new(&words, &zeros, &of(f16::ONE, scales), outputs, inputs, group).map(|w| w.size())
    };
    // Two groups of 32 and one of 6 inputs.
    assert_eq!(new(2 * 70, 2 * 3, 16 * 3, 16, 70, 32), Ok(4 * (140 + 6) + 2 * 48));
    assert_eq!(new(2 * 70, 2, 16, 16, 70, 70), Ok(4 * 142 + 32));
    assert_eq!(new(139, 6, 48, 16, 70, 32), Err(length("qweight", 140, 139)));
    assert_eq!(new(140, 5, 48, 16, 70, 32), Err(length("qzeros", 6, 5)));
    assert_eq!(new(140, 6, 49, 16, 70, 32), Err(length("scales", 48, 49)));
    assert_eq!(new(140, 6, 48, 12, 70, 32), Err(KernelError::NotBlockMultiple { cols: 12, block: 8 }));
    assert!(matches!(new(140, 6, 48, 16, 70, 0), Err(BadValue { arg: "group", .. })));
    assert!(matches!(new(0, 0, 0, usize::MAX - 7, 70, 32), Err(SizeOverflow { .. })));
    assert!(new(0, 0, 0, 16, 0, 32).is_ok() && new(0, 0, 0, 0, 70, 32).is_ok());
    let (words, zeros, scales) = (of(0x7654_3210, 140), of(0x1111_1111, 6), of(f16::ONE, 48));
    refuses_wrong_calls(AwqRef::new(&words, &zeros, &scales, 16, 70, 32).unwrap());
}

#[test]
fn gptq() {
    for (bits, block) in [(2, 16), (3, 32), (4, 8), (8, 4)] {
        let (outputs, inputs, n) = (64, 96, bits as usize);
        let (words, zeros) = (of(0x0123_4567, n * 3 * 64 + 1), of(0x2222_2222, n * 2 * 2 + 1));
        let (scales, order) = (of(f16::ONE, 2 * 64 + 1), of(1u32, 97));
        let parts = GptqParts {
            bits,
            group: 64,
            zeros: GptqZeros::V1,
            qweight: &words[1..],
            qzeros: &zeros[1..],
            scales: &scales[1..],
            g_idx: Some(&order[1..]),
        };
        let new = |p| GptqRef::new(p, outputs, inputs).map(drop);
        refuses_wrong_calls(GptqRef::new(parts, outputs, inputs).unwrap());
        let (w, z, s) = (words.len(), zeros.len(), scales.len());
        assert_eq!(new(GptqParts { qweight: &words, ..parts }), Err(length("qweight", w - 1, w)));
        assert_eq!(new(GptqParts { qzeros: &zeros, ..parts }), Err(length("qzeros", z - 1, z)));
        assert_eq!(new(GptqParts { scales: &scales, ..parts }), Err(length("scales", s - 1, s)));
        assert_eq!(new(GptqParts { g_idx: Some(&order), ..parts }), Err(length("g_idx", 96, 97)));
        for value in [2, u32::MAX] {
            let mut bad = order.clone();
            bad[40] = value;
            let (at, value) = (39, value as usize);
            let error = KernelError::BadIndex { arg: "g_idx", at, value, from: 0, below: 2 };
            let wrong = GptqParts { g_idx: Some(&bad[1..]), ..parts };
            assert_eq!(GptqRef::new(wrong, outputs, inputs).map(drop), Err(error));
            assert!(error.to_string().contains("39"));
        }
        for bits in [0, 1, 5, 16, u32::MAX] {
            assert!(matches!(new(GptqParts { bits, ..parts }), Err(BadValue { arg: "bits", .. })));
        }
        assert!(matches!(new(GptqParts { group: 0, ..parts }), Err(BadValue { arg: "group", .. })));
        let block_error = |cols, block| Err(KernelError::NotBlockMultiple { cols, block });
        assert_eq!(GptqRef::new(parts, block - 1, inputs).map(drop), block_error(block - 1, block));
        assert_eq!(GptqRef::new(parts, outputs, 95).map(drop), block_error(95, 32));
        let huge = GptqRef::new(parts, usize::MAX / 64 * 64, inputs);
        assert!(matches!(huge, Err(SizeOverflow { .. })));
    }
}

#[test]
fn squeezellm() {
    for bits in [3, 4] {
        let (outputs, inputs) = (5, 64);
        let words = of(0x0123_4567, 2 * bits as usize * 5 + 1);
        let table = of(1.0f32, (5 << bits) + 1);
        let (rows, cols, vals) = ([0, 1, 1, 4, 4, 6], [63, 0, 5, 63, 1, 2], [1.0; 6]);
        let sparse = Outliers { rows: &rows, cols: &cols, vals: &vals };
        let parts =
            SqueezeLlmParts { bits, qweight: &words[1..], lookup_table: &table[1..], outliers: Some(sparse) };
        let new = |p| SqueezeLlmRef::new(p, outputs, inputs).map(drop);
        let w = SqueezeLlmRef::new(parts, outputs, inputs).unwrap();
        assert_eq!(w.size(), 5 * (8 * bits as usize + (4 << bits)) + 6 * 8);
        refuses_wrong_calls(w);
        refuses_wrong_calls(SqueezeLlmRef::new(SqueezeLlmParts { outliers: None, ..parts }, 5, 64).unwrap());

        let (w, t) = (words.len(), table.len());
        assert_eq!(new(SqueezeLlmParts { qweight: &words, ..parts }), Err(length("qweight", w - 1, w)));
        assert_eq!(
            new(SqueezeLlmParts { lookup_table: &table, ..parts }),
            Err(length("lookup_table", t - 1, t))
        );
        for bits in [0, 2, 5, u32::MAX] {
            assert!(matches!(new(SqueezeLlmParts { bits, ..parts }), Err(BadValue { arg: "bits", .. })));
        }
        assert!(matches!(
            SqueezeLlmRef::new(parts, 5, 63),
            Err(KernelError::NotBlockMultiple { cols: 63, block: 32 })
        ));
        assert!(matches!(SqueezeLlmRef::new(parts, usize::MAX, 64), Err(SizeOverflow { .. })));

        fn sparse_error(p: SqueezeLlmParts<'_>, o: Outliers<'_>) -> KernelError {
            SqueezeLlmRef::new(SqueezeLlmParts { outliers: Some(o), ..p }, 5, 64).unwrap_err()
        }
        assert_eq!(sparse_error(parts, Outliers { rows: &rows[1..], ..sparse }), length("rows", 6, 5));
        assert_eq!(sparse_error(parts, Outliers { vals: &vals[1..], ..sparse }), length("vals", 6, 5));
        let bad_row = |at: usize, value: u32| {
            let mut rows = rows;
            rows[at] = value;
            sparse_error(parts, Outliers { rows: &rows, ..sparse })
        };
        let bad = |arg, at, value, from, below| KernelError::BadIndex { arg, at, value, from, below };
        assert_eq!(bad_row(0, 1), bad("rows", 0, 1, 0, 1));
        assert_eq!(bad_row(2, 5), bad("rows", 3, 4, 5, 7));
        assert_eq!(bad_row(5, 5), bad("rows", 5, 5, 6, 7));
        assert_eq!(bad_row(4, u32::MAX), bad("rows", 4, u32::MAX as usize, 4, 7));
        let bad_col = |at: usize, value: u32| {
            let mut cols = cols;
            cols[at] = value;
            sparse_error(parts, Outliers { cols: &cols, ..sparse })
        };
        assert_eq!(bad_col(0, 64), bad("cols", 0, 64, 0, 64));
        assert_eq!(bad_col(5, u32::MAX), bad("cols", 5, u32::MAX as usize, 2, 64));
        // Twice the same input of an output.
        assert_eq!(bad_col(2, 0), bad("cols", 2, 0, 1, 64));
    }
}
