//! Formats and views of quantised weights: names, numbers, refusals, and the decode of every scale.

use gllm_kernels_core::{
    bf16, blocks, f16, single, Caps, Element, Features, IsaLevel, KernelError, Kernels, MatMut, MatRef, Op,
    Precision, QuantFormat, QuantRef, Scratch,
};
use gllm_testkit::{
    data::levels,
    numeric::same,
    quant::{e4m3, vectors},
};

#[test]
fn every_format_has_a_name_a_number_and_vectors() {
    for &f in QuantFormat::ALL {
        assert_eq!(QuantFormat::from_gguf(f.gguf_type()), Ok(f));
        assert_eq!(QuantFormat::from_name(f.name()), Some(f));
        assert_eq!(f.to_string(), f.name());
        let vectors = vectors(f).unwrap_or_else(|| panic!("no vectors for {f}"));
        assert_eq!(vectors.blocks.len() / f.block_bytes() * f.block_len(), vectors.decoded.len(), "{f}");
    }
    assert_eq!(QuantFormat::from_gguf(0xffff_ffff), Err(KernelError::UnknownFormat(0xffff_ffff)));
    assert_eq!(QuantFormat::from_gguf(0), Err(KernelError::UnknownFormat(0)), "f32 is not quantised");
    assert_eq!(QuantFormat::from_name("Q4_0"), None);
}

#[test]
fn numbers_and_sizes_are_those_of_gguf() {
    let facts = |f: QuantFormat| (f.gguf_type(), f.block_len(), f.block_bytes());
    assert_eq!(facts(QuantFormat::Q4_0), (2, 32, 18));
    assert_eq!(facts(QuantFormat::Q8_0), (8, 32, 34));
    assert_eq!(facts(QuantFormat::Q6K), (14, 256, 210));
    assert_eq!(facts(QuantFormat::Iq1M), (29, 256, 56));
    assert_eq!(facts(QuantFormat::Nvfp4), (40, 64, 36));
    assert_eq!(facts(QuantFormat::F16), (1, 1, 2));
    assert_eq!(facts(QuantFormat::Bf16), (30, 1, 2));
    assert_eq!(facts(QuantFormat::E4m3), (1000, 128, 132));
}

#[test]
fn views_refuse_what_does_not_fit() {
    for &f in QuantFormat::ALL {
        let (len, size) = (f.block_len(), f.block_bytes());
        let bytes = vec![0u8; 6 * size];
        let new = |n: usize, rows, cols| QuantRef::new(&bytes[..n], f, rows, cols).map(|_| ());
        assert_eq!(new(6 * size, 3, 2 * len), Ok(()));
        assert_eq!(new(6 * size, 2, 2 * len), Ok(()), "more bytes than needed");
        assert_eq!(new(0, 0, len), Ok(()));
        assert_eq!(new(0, 7, 0), Ok(()));
        assert_eq!(
            new(6 * size - 1, 3, 2 * len),
            Err(KernelError::ShortSlice { arg: "bytes", need: 6 * size, got: 6 * size - 1 })
        );
        for cols in [1, len - 1, len + 1, usize::MAX].into_iter().filter(|cols| cols % len > 0) {
            let block = len;
            assert_eq!(new(size, 1, cols), Err(KernelError::NotBlockMultiple { cols, block }));
        }
        let most = usize::MAX / len * len;
        for (rows, cols) in [(usize::MAX, len), (2, most), (len, most / len * len)] {
            assert!(matches!(new(size, rows, cols / len * len), Err(KernelError::SizeOverflow { .. })));
        }

        let w = QuantRef::new(&bytes, f, 3, 2 * len).unwrap();
        assert_eq!((w.rows(), w.cols(), w.row_bytes(), w.format()), (3, 2 * len, 2 * size, f));
        let part = w.row_range(1, 2).unwrap();
        assert_eq!((part.rows(), part.as_bytes()), (2, &bytes[2 * size..]));
        assert_eq!(w.row_range(3, 0).unwrap().as_bytes(), &[0u8; 0]);
        let out = |start, len| w.row_range(start, len).map(|_| ());
        assert_eq!(out(2, 2), Err(KernelError::OutOfRange { what: "rows", end: 4, len: 3 }));
        assert!(matches!(out(usize::MAX, 2), Err(KernelError::SizeOverflow { .. })));
    }
}

#[test]
fn calls_refuse_wrong_lengths() {
    for &f in QuantFormat::ALL {
        let cols = 2 * f.block_len();
        let bytes = vec![0u8; 6 * f.block_bytes()];
        let w = QuantRef::new(&bytes, f, 3, cols).unwrap();
        let k = Kernels::<f16>::detect();
        let length = |arg, want, got| Err(KernelError::WrongLength { arg, want, got });
        let mut y = vec![f16::ONE; 3 * cols];
        assert_eq!(k.dequant(w, &mut y[1..]), length("y", 3 * cols, 3 * cols - 1));
        let (mut codes, mut scales, mut offsets) =
            (vec![1; 3 * cols], vec![1.0; 3 * cols], vec![1.0; 3 * cols]);
        let groups = 3 * cols / f.group_len();
        let (scales, offsets) = (&mut scales[..groups], &mut offsets[..groups]);
        assert_eq!(k.unpack(w, &mut codes[1..], scales, offsets), length("codes", 3 * cols, 3 * cols - 1));
        assert_eq!(k.unpack(w, &mut codes, &mut scales[1..], offsets), length("scales", groups, groups - 1));
        let without = k.unpack(w, &mut codes, scales, &mut offsets[1..]);
        if f.has_offsets() {
            assert_eq!(without, length("offsets", groups, groups - 1));
            assert!(codes.iter().all(|&c| c == 1) && scales.iter().all(|&s| s == 1.0), "nothing was written");
        } else {
            assert_eq!(without, Ok(()));
        }
        assert!(y.iter().all(|&y| y == f16::ONE), "nothing was written");
    }
}

/// All 65536 weights, at both kinds of address.
#[test]
fn every_number_of_plain_floating_point() {
    fn decoded<E: Element>(level: IsaLevel, w: QuantRef<'_>) -> Vec<E> {
        let mut y = vec![E::ZERO; w.cols()];
        Kernels::<E>::forced(level).unwrap().dequant(w, &mut y).unwrap();
        y
    }
    let bytes: Vec<u8> = [0].into_iter().chain((0..=u16::MAX).flat_map(u16::to_le_bytes)).collect();
    for f in [QuantFormat::F16, QuantFormat::Bf16] {
        let number = |bits: u16| match f {
            QuantFormat::F16 => f16::from_bits(bits).to_f32(),
            _ => f32::from_bits(u32::from(bits) << 16),
        };
        for level in levels() {
            let moved = bytes[1..].to_vec();
            for bytes in [&bytes[1..], &moved] {
                let w = QuantRef::new(bytes, f, 1, 1 << 16).unwrap();
                let (single, half, brain) = (decoded(level, w), decoded(level, w), decoded(level, w));
                for bits in 0..=u16::MAX {
                    let (at, want) = (usize::from(bits), number(bits));
                    assert!(same::<f32>(single[at], want), "{f} {level}: {bits:#06x}: {}", single[at]);
                    assert!(same(half[at], f16::from_f32(want)), "{f} {level}: {bits:#06x}: {}", half[at]);
                    assert!(same(brain[at], bf16::from_f32(want)), "{f} {level}: {bits:#06x}: {}", brain[at]);
                }
                let mut back = vec![0; 2 << 16];
                Kernels::<f32>::forced(level).unwrap().quantize(f, &single, None, &mut back).unwrap();
                for (bits, back) in (0..=u16::MAX).zip(back.chunks_exact(2)) {
                    let back = number(u16::from_le_bytes([back[0], back[1]]));
                    assert!(same(back, number(bits)), "{f} {level}: {bits:#06x} came back as {back}");
                }
            }
        }
    }
}

/// All 256 numbers, with factors of every kind.
#[test]
fn every_number_of_e4m3() {
    let (least, large) = (f32::from_bits(1), f32::MAX / 1.5);
    let factors = [0.0, -0.0, 1.0, -0.3, 1e-7, least, large, f32::INFINITY, f32::NAN];
    // OFP8, section 5: the least number, the least normal one and the largest, times 2^-8.
    let known =
        [(0x01, 2f32.powi(-17)), (0x08, 2f32.powi(-14)), (0x7e, 1.75), (0xfe, -1.75), (0x38, 2f32.powi(-8))];
    for (bits, number) in known {
        assert_eq!(e4m3(bits), number);
    }
    let numbers: Vec<u8> = (0..=255).collect();
    for (d, level) in factors.into_iter().flat_map(|d| levels().into_iter().map(move |level| (d, level))) {
        let bytes: Vec<u8> = numbers.chunks(128).flat_map(|q| [&d.to_le_bytes()[..], q].concat()).collect();
        let w = QuantRef::new(&bytes, QuantFormat::E4m3, 2, 128).expect("a view");
        let (mut single, mut half, mut brain) = ([0.0f32; 256], [f16::ZERO; 256], [bf16::ZERO; 256]);
        Kernels::forced(level).expect("a level").dequant(w, &mut single).expect("decoded");
        Kernels::forced(level).expect("a level").dequant(w, &mut half).expect("decoded");
        Kernels::forced(level).expect("a level").dequant(w, &mut brain).expect("decoded");
        for (at, &bits) in numbers.iter().enumerate() {
            let want = e4m3(bits) * d;
            assert!(same(single[at], want), "{level}, factor {d}: {bits:#04x}: {}", single[at]);
            assert!(same(half[at], f16::from_f32(want)), "{level}, factor {d}: {bits:#04x}: {}", half[at]);
            assert!(same(brain[at], bf16::from_f32(want)), "{level}, factor {d}: {bits:#04x}: {}", brain[at]);
        }
    }
}

/// The definition, written out once more: every scale there is, every integer there is.
#[test]
fn every_scale_times_every_integer() {
    for level in levels() {
        let k = Kernels::<f32>::forced(level).unwrap();
        let every = if level == IsaLevel::Scalar { 7 } else { 1 };
        for bits in (0..=u16::MAX).step_by(every) {
            let d = blocks::Half(bits.to_le_bytes());
            let scale = f32::from(d.get());
            let check = |f: QuantFormat, bytes: &[u8], want: &dyn Fn(usize) -> i32| {
                let n = bytes.len() / f.block_bytes() * f.block_len();
                let mut y = [f32::NAN; 256];
                k.dequant(QuantRef::new(bytes, f, 1, n).unwrap(), &mut y[..n]).unwrap();
                for (i, &y) in y[..n].iter().enumerate() {
                    let want = want(i) as f32 * scale;
                    assert!(same(y, want), "{f} {level}: scale {bits:#06x}, element {i}: {y} is not {want}");
                }
            };
            let mut q8 = [0u8; 8 * 34];
            for (b, block) in q8.chunks_exact_mut(34).enumerate() {
                block[..2].copy_from_slice(&d.0);
                block[2..].iter_mut().enumerate().for_each(|(i, q)| *q = (b * 32 + i) as u8);
            }
            check(QuantFormat::Q8_0, &q8, &|i| i32::from(i as u8 as i8));
            let mut q4 = [0u8; 18];
            q4[..2].copy_from_slice(&d.0);
            q4[2..].iter_mut().enumerate().for_each(|(i, q)| *q = (i | (15 - i) << 4) as u8);
            check(QuantFormat::Q4_0, &q4, &|i| if i < 16 { i as i32 - 8 } else { 31 - i as i32 - 8 });
        }
    }
}

#[test]
fn single_formats_have_the_bits_of_the_table() {
    let (rows, batch, all) = (5, 7, Caps::detect());
    let levels = IsaLevel::ALL.into_iter().filter_map(|level| all.restricted_to(level).ok());
    let plain = all.without(Features::DOTPROD | Features::AVX512_VNNI);
    assert_eq!(single::ALL.len(), QuantFormat::ALL.iter().filter(|f| !f.is_float()).count());
    for (i, &(f, open, product)) in single::ALL.iter().enumerate() {
        let blocks = vectors(f).expect("vectors").blocks;
        let cols = blocks.len() / f.block_bytes() * f.block_len() / rows / 256 * 256;
        let w = QuantRef::new(&blocks, f, rows, cols).expect("a view");
        let k = Kernels::<f32>::with(all);
        let mut packed = vec![0; f.packed_size(rows, cols).expect("a size")];
        k.pack_q(w, &mut packed).expect("packed");
        let w = open(rows, cols, &packed).expect("packed");
        assert_eq!(open(rows + 1, cols, &packed).err(), k.packed_q(f, rows + 1, cols, &packed).err(), "{f}");

        let x: Vec<f32> = (0..batch * cols).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
        let x = MatRef::new(&x, batch, cols).expect("a view");
        let need = single::scratch(batch, cols).expect("a size");
        let mut buf = vec![0; need.size_unaligned()];
        let mut run = |caps: Caps, product: single::Run, n: usize| {
            let mut y = vec![f32::NAN; batch * rows];
            let to = MatMut::new(&mut y, batch, rows).expect("a view");
            product(caps, to, w, x, Scratch::new(&mut buf[..n])).map(|()| y)
        };
        for caps in levels.clone().chain([plain]) {
            let got = run(caps, product, need.size_unaligned());
            if cfg!(target_arch = "aarch64") && caps.level() == IsaLevel::Scalar {
                let (want, have) = (IsaLevel::Neon, IsaLevel::Scalar);
                assert_eq!(
                    got,
                    Err(KernelError::IsaUnavailable { want, have, missing: Features::NEON }),
                    "{f}"
                );
                continue;
            }
            let (k, mut buf) = (Kernels::<f32>::with(caps), vec![0; need.size_unaligned()]);
            let mut want = vec![f32::NAN; batch * rows];
            let plan = k.qgemm_plan(f, batch, rows, cols, Precision::Integer).expect("a plan");
            let plan = plan.with_kernel(Op::QgemvPacked).expect("a product");
            let to = MatMut::new(&mut want, batch, rows).expect("a view");
            plan.run(to, w, x, None, Scratch::new(&mut buf)).expect("a product");
            let bits = |y: &[f32]| y.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&got.expect("a product")), bits(&want), "{f}, {caps:?}");
        }
        // The function of another format, and too little scratch memory.
        let (_, _, other) = single::ALL[(i + 1) % single::ALL.len()];
        let refused = run(all, other, need.size_unaligned());
        assert!(matches!(refused, Err(KernelError::WrongFormat { arg: "w", .. })), "{f}: {refused:?}");
        let refused = run(all, product, need.size() - 1);
        assert!(matches!(refused, Err(KernelError::ScratchTooSmall { .. })), "{f}: {refused:?}");
    }
}
