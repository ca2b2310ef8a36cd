//! Views address what they say, or are refused; scratch memory is aligned, or refused.

use std::collections::HashSet;

use gllm_kernels_core::{
    bf16, f16, kernels, KernelError, Kernels, MatMut, MatRef, Operand, Scratch, ScratchReq,
};
use gllm_testkit::data;

const HUGE: [usize; 8] = [0, 1, 2, 3, usize::MAX / 2, usize::MAX / 2 + 1, usize::MAX - 1, usize::MAX];

/// Every combination of four.
fn quads(values: &[usize]) -> impl Iterator<Item = [usize; 4]> + '_ {
    let n = values.len();
    (0..n.pow(4)).map(move |i| [i % n, i / n % n, i / n / n % n, i / n / n / n].map(|i| values[i]))
}

/// Elements that a view needs, in numbers that do not overflow.
fn extent([rows, cols, rs, cs]: [usize; 4]) -> u128 {
    if rows == 0 || cols == 0 {
        return 0;
    }
    ((rows as u128 - 1) * rs as u128).saturating_add((cols as u128 - 1) * cs as u128).saturating_add(1)
}

#[test]
fn extents_never_wrap() {
    for len in [0, 1, 5] {
        for quad in quads(&HUGE) {
            let [rows, cols, rs, cs] = quad;
            let mut data = vec![0f32; len];
            let need = extent(quad);
            let shared = MatRef::with_strides(&data, rows, cols, rs, cs).map(|_| ());
            let want = match usize::try_from(need) {
                Ok(need) if need <= len => Ok(()),
                Ok(need) => Err(KernelError::ShortSlice { arg: "matrix", need, got: len }),
                Err(_) => Err(KernelError::SizeOverflow { what: "matrix extent" }),
            };
            assert_eq!(shared, want, "{quad:?} of {len}");
            match MatMut::with_strides(&mut data, rows, cols, rs, cs).map(|_| ()) {
                Err(KernelError::Overlap { .. }) => assert_eq!(want, Ok(()), "{quad:?} of {len}"),
                exclusive => assert_eq!(exclusive, want, "{quad:?} of {len}"),
            }
        }
    }
}

#[test]
fn mutable_views_have_no_element_twice() {
    let small = [0, 1, 2, 3, 4, 7];
    let mut accepted = 0;
    for quad in quads(&small) {
        let [rows, cols, rs, cs] = quad;
        let mut data = vec![0f32; 100];
        let apart = {
            let mut seen = HashSet::new();
            (0..rows).all(|i| (0..cols).all(|j| seen.insert(i * rs + j * cs)))
        };
        match MatMut::with_strides(&mut data, rows, cols, rs, cs) {
            // What interleaves without meeting may be refused, what meets may not be accepted.
            Ok(_) => {
                assert!(apart, "{quad:?} accepted");
                accepted += 1;
            }
            Err(KernelError::Overlap { rows: r, cols: c, row_stride, col_stride }) => {
                assert_eq!([r, c, row_stride, col_stride], quad);
                assert!(!apart || rs > 0 && cs > 0, "{quad:?} refused");
            }
            Err(e) => panic!("{quad:?}: {e}"),
        }
        // Row-major, column-major and padded must be accepted.
        if rs >= cols && cs == 1 || cs >= rows && rs == 1 {
            assert!(MatMut::with_strides(&mut data, rows, cols, rs, cs).is_ok(), "{quad:?}");
        }
    }
    assert!(accepted > 300, "{accepted}");
}

/// Element (0, 0) of a view, by its place in `data`.
fn place(data: &[f32], view: MatRef<'_, f32>) -> usize {
    (view.as_ptr() as usize - data.as_ptr() as usize) / size_of::<f32>()
}

#[test]
fn row_ranges_stay_inside() {
    let data = [0f32; 100];
    let a = MatRef::with_strides(&data, 5, 3, 20, 2).unwrap();
    for start in 0..8 {
        for len in 0..8 {
            match a.row_range(start, len) {
                Ok(r) => {
                    assert!(start + len <= 5);
                    assert_eq!((r.rows(), r.cols(), r.row_stride(), r.col_stride()), (len, 3, 20, 2));
                    assert!(len == 0 || place(&data, r) == 20 * start);
                    assert!(place(&data, r) < data.len());
                }
                Err(e) => {
                    assert!(start + len > 5);
                    assert_eq!(e, KernelError::OutOfRange { what: "rows", end: start + len, len: 5 });
                }
            }
        }
    }
    assert_eq!(
        a.row_range(1, usize::MAX).unwrap_err(),
        KernelError::SizeOverflow { what: "the end of a range" }
    );
    // A view of no columns has rows that lie nowhere.
    let none = MatRef::<f32>::with_strides(&[], 9, 0, usize::MAX, 1).unwrap();
    assert_eq!(none.row_range(7, 2).unwrap().rows(), 2);
}

#[test]
fn transposition_swaps_and_is_its_own_inverse() {
    let mut data = [0f32; 100];
    let p = data.as_ptr();
    let a = MatRef::with_strides(&data, 5, 3, 20, 2).unwrap();
    let t = a.t();
    assert_eq!((t.rows(), t.cols(), t.row_stride(), t.col_stride(), t.as_ptr()), (3, 5, 2, 20, p));
    let b = t.t();
    assert_eq!((b.rows(), b.cols(), b.row_stride(), b.col_stride(), b.as_ptr()), (5, 3, 20, 2, p));
    let t = MatMut::with_strides(&mut data, 5, 3, 20, 2).unwrap().t();
    assert_eq!((t.rows(), t.cols(), t.row_stride(), t.col_stride()), (3, 5, 2, 20));
}

#[test]
fn splits_share_nothing() {
    let mut data = [0f32; 60];
    let base = data.as_ptr() as usize;
    for at in 0..=5 {
        let (mut top, mut bottom) = MatMut::new(&mut data, 5, 12).unwrap().split_rows(at).unwrap();
        assert_eq!((top.rows(), bottom.rows(), top.cols(), bottom.cols()), (at, 5 - at, 12, 12));
        assert_eq!(top.as_mut_ptr() as usize, base);
        if at < 5 {
            assert_eq!(bottom.as_mut_ptr() as usize, base + at * 12 * 4);
        }
        assert_eq!(top.reborrow().rows(), at);
    }
    let e = MatMut::new(&mut data, 5, 12).unwrap().split_rows(6).unwrap_err();
    assert_eq!(e, KernelError::OutOfRange { what: "rows", end: 6, len: 5 });
}

#[test]
fn scratch_requirements_add_up_or_overflow() {
    const FIXED: ScratchReq = match ScratchReq::array::<f32>(100) {
        Ok(r) => r,
        Err(_) => ScratchReq::EMPTY,
    };
    assert_eq!((FIXED.size(), FIXED.align(), FIXED.size_unaligned()), (400, 64, 463));
    assert_eq!(ScratchReq::EMPTY.size_unaligned(), 0);
    let both = FIXED.and(ScratchReq::array::<u8>(3).unwrap()).unwrap();
    assert_eq!((both.size(), both.align()), (448 + 3, 64));
    assert_eq!(FIXED.and(ScratchReq::EMPTY).unwrap(), FIXED);

    let overflow = Err(KernelError::SizeOverflow { what: "scratch size" });
    for n in [usize::MAX, usize::MAX / 4 + 1, isize::MAX as usize / 4 + 1, isize::MAX as usize / 4] {
        assert_eq!(ScratchReq::array::<f32>(n), overflow, "{n}");
    }
    let half = ScratchReq::array::<u8>(isize::MAX as usize - 64).unwrap();
    assert_eq!(half.and(FIXED), overflow);
    assert_eq!(half.and(half), overflow);
    assert!(half.size_unaligned() <= isize::MAX as usize);
}

#[test]
fn scratch_takes_any_buffer() {
    let mut bytes = [0u8; 3];
    let _ = Scratch::new(&mut bytes[1..]);
    let _ = Scratch::empty();
}

/// Products of a single row with a single column, by every kernel there is for the type: plain and packed.
fn strides_of_single_rows<E: Operand>(one: E) {
    const K: usize = 21;
    let ones = [one; K];
    let product = |k: &Kernels<E>, stride: usize| {
        let a = MatRef::with_strides(&ones, 1, K, stride, 1).unwrap();
        let b = MatRef::with_strides(&ones, K, 1, 1, stride).unwrap();
        let mut memory = vec![0; 1 << 18];
        let mut packed = vec![0; k.packed_b_size(K, 1).unwrap()];
        let packed = k.pack_b(b, &mut packed).unwrap();
        let mut c = [E::Sum::default(); 2];
        let [plain, prepacked] = &mut c;
        let plan = k.gemm_plan(1, 1, K).unwrap();
        let one = |c| MatMut::new(std::slice::from_mut(c), 1, 1).unwrap();
        plan.run(one(plain), a, b, None, Scratch::new(&mut memory)).unwrap();
        plan.run(one(prepacked), a, packed, None, Scratch::new(&mut memory)).unwrap();
        c
    };
    for level in data::levels() {
        let own = Kernels::<E>::forced(level).unwrap();
        for k in kernels().filter_map(|row| own.with_gemm(row).ok()) {
            let want = product(&k, K);
            assert_ne!(want[1], E::Sum::default());
            for stride in HUGE {
                assert_eq!(product(&k, stride), want, "{level} {stride}");
            }
        }
    }
}

#[test]
fn strides_of_single_rows_may_lead_anywhere() {
    strides_of_single_rows(1f32);
    strides_of_single_rows(f16::from_f32(1.0));
    strides_of_single_rows(bf16::from_f32(1.0));
    strides_of_single_rows(1i8);
}
