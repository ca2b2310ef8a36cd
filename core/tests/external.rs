//! Views of weights in the layouts of other checkpoints: what they refuse.

use gllm_kernels_core::{External, Fp8Format, Fp8Ref, Fp8Scaling, KernelError, Kernels, MatMut, ScaleSlice};

use KernelError::{BadParameter, DimMismatch, ShortSlice, SizeOverflow};

fn short(arg: &'static str, need: usize, got: usize) -> KernelError {
    ShortSlice { arg, need, got }
}

/// Ranges outside of a view, and calls with operands of other sizes, are refused.
fn refuses_wrong_calls<W: External>(w: W) {
    let (outputs, inputs) = (w.outputs(), w.inputs());
    let range = |start, len| w.output_range(start, len).map(drop);
    assert_eq!(range(0, outputs + 1), Err(short("outputs", outputs + 1, outputs)));
    assert!(matches!(range(usize::MAX, 2), Err(SizeOverflow { .. })));
    assert_eq!(range(outputs, 0), Ok(()));
    if W::STEP > 1 {
        assert!(matches!(range(W::STEP - 1, 1), Err(KernelError::NotBlockMultiple { .. })));
    }

    let k = Kernels::<f32>::detect();
    let (x, mut y) = (vec![1.0; inputs + 1], vec![7.0; outputs]);
    assert_eq!(w.qgemv_with(&k, &x, &mut y), Err(short("x", inputs, inputs + 1)));
    assert_eq!(w.qgemv_with(&k, &x[1..], &mut y[1..]), Err(short("y", outputs, outputs - 1)));
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
    assert_eq!(decode(rows, cols, 1, rows), Err(BadParameter { arg: "y", expected: "contiguous rows" }));
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
        assert_eq!(error(599, s), short("bytes", 600, 599));
        assert_eq!(error(600, s + 1), short("scales", s, s + 1));
        assert_eq!(error(600, s - 1), short("scales", s, s - 1));
    }
    for scaling in [tile(0, 1), tile(1, 0)] {
        assert!(matches!(new(600, 3, 200, 3, scaling), Err(BadParameter { arg: "scaling", .. })));
    }
    assert!(matches!(new(0, usize::MAX, 2, 1, Fp8Scaling::Tensor), Err(SizeOverflow { .. })));
    assert!(new(0, 0, 7, 1, Fp8Scaling::Tensor).is_ok() && new(0, 7, 0, 7, Fp8Scaling::Row).is_err());
    assert!(new(0, 7, 0, 0, tile(2, 2)).is_ok());
}
