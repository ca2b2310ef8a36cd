//! Rows of tables: those that are asked for, in order, or an error.

use gllm_kernels_core::{
    bf16, f16, Element, KernelError, Kernels, MatMut, MatRef, PackedQ, QuantFormat, QuantRef,
};

/// Any row, some twice, the last one too.
const IDS: [u32; 6] = [3, 0, 17, 3, 40, 16];
const ROWS: usize = 41;
const COLS: usize = 512;

fn dense<E: Element + std::fmt::Debug>() {
    let k = Kernels::<E>::detect();
    let table: Vec<E> = (0..ROWS * 7).map(|i| E::from_f32(i as f32)).collect();
    // Rows of 5 of 7, to rows of 5 of 9.
    let from = MatRef::with_strides(&table, ROWS, 5, 7, 1).unwrap();
    let mut y = vec![E::ZERO; IDS.len() * 9];
    k.gather(from, &IDS, MatMut::with_strides(&mut y, IDS.len(), 5, 9, 1).unwrap()).unwrap();
    for (i, (row, &id)) in y.chunks(9).zip(&IDS).enumerate() {
        assert_eq!(row[..5], table[id as usize * 7..][..5], "{i}");
        assert!(row[5..].iter().all(|&x| x == E::ZERO));
    }
    let mut y = [E::ZERO; 15];
    let bad = k.gather(from, &[1, 41, 2], MatMut::new(&mut y, 3, 5).unwrap());
    assert_eq!(bad, Err(KernelError::BadIndex { arg: "ids", at: 1, value: 41, from: 0, below: 41 }));
    assert!(k.gather(from, &[1, 2], MatMut::new(&mut y, 3, 5).unwrap()).is_err());
    assert!(k.gather(from, &[1, 2, 3], MatMut::new(&mut y[..12], 3, 4).unwrap()).is_err());
    assert!(k.gather(from, &[1, 2, 3], MatMut::with_strides(&mut y, 3, 5, 1, 3).unwrap()).is_err());
    assert!(y.iter().all(|&x| x == E::ZERO));
    k.gather(from, &[], MatMut::new(&mut [], 0, 5).unwrap()).unwrap();
}

#[test]
fn rows_of_a_dense_table() {
    dense::<f32>();
    dense::<f16>();
    dense::<bf16>();
}

#[test]
fn rows_of_every_format_in_place_and_packed() {
    let k = Kernels::<f32>::detect();
    for &format in QuantFormat::ALL {
        let bytes: Vec<u8> =
            (0..ROWS * format.row_bytes(COLS).unwrap()).map(|i| (i * 131 % 97) as u8).collect();
        let table = QuantRef::new(&bytes, format, ROWS, COLS).unwrap();
        let mut want = vec![0f32; ROWS * COLS];
        k.dequant(table, &mut want).unwrap();
        let mut buf = vec![0; format.packed_size(ROWS, COLS).unwrap() + 64];
        let packed: PackedQ<'_> = k.pack_q(table, &mut buf).unwrap();
        let bits = |y: &[f32]| y.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for in_place in [true, false] {
            let mut y = vec![f32::NAN; IDS.len() * COLS];
            let out = MatMut::new(&mut y, IDS.len(), COLS).unwrap();
            if in_place { k.gather_q(table, &IDS, out) } else { k.gather_q(packed, &IDS, out) }.unwrap();
            for (row, &id) in y.chunks(COLS).zip(&IDS) {
                assert_eq!(bits(row), bits(&want[id as usize * COLS..][..COLS]), "{format}, row {id}");
            }
            let mut y = vec![7.0; 2 * COLS];
            let out = MatMut::new(&mut y, 2, COLS).unwrap();
            let bad =
                if in_place { k.gather_q(table, &[0, 99], out) } else { k.gather_q(packed, &[0, 99], out) };
            assert_eq!(bad, Err(KernelError::BadIndex { arg: "ids", at: 1, value: 99, from: 0, below: 41 }));
            assert!(y.iter().all(|&x| x == 7.0));
        }
    }
}
