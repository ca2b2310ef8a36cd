//! Checkpoints made here: every format is found and viewed; hostile files are refused.

use gllm_kernels_std::core::{bf16, f16, External, Fp8Format, Kernels, MatMut};
use gllm_kernels_std::safetensors::{Checkpoint, Quantisation, SafetensorsError, View};

/// A file in the making.
#[derive(Default)]
struct File {
    header: Vec<String>,
    data: Vec<u8>,
}

impl File {
    fn add(&mut self, name: &str, dtype: &str, shape: &[usize], bytes: &[u8]) -> &mut Self {
        let (from, to) = (self.data.len(), self.data.len() + bytes.len());
        self.header.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{from},{to}]}}"#
        ));
        self.data.extend_from_slice(bytes);
        self
    }

    fn words(&mut self, name: &str, shape: &[usize], word: impl Fn(usize) -> u32) -> &mut Self {
        let bytes: Vec<u8> = (0..shape.iter().product()).flat_map(|i| word(i).to_le_bytes()).collect();
        self.add(name, "I32", shape, &bytes)
    }

    fn halves(&mut self, name: &str, shape: &[usize], of: impl Fn(usize) -> f32) -> &mut Self {
        let bytes: Vec<u8> =
            (0..shape.iter().product()).flat_map(|i| f16::from_f32(of(i)).to_le_bytes()).collect();
        self.add(name, "F16", shape, &bytes)
    }

    fn floats(&mut self, name: &str, shape: &[usize], of: impl Fn(usize) -> f32) -> &mut Self {
        let bytes: Vec<u8> = (0..shape.iter().product()).flat_map(|i| of(i).to_le_bytes()).collect();
        self.add(name, "F32", shape, &bytes)
    }

    /// In words, so that it is aligned.
    fn finish(&self) -> Vec<u64> {
        let mut header = format!("{{{}}}", self.header.join(","));
        header += &" ".repeat(header.len().wrapping_neg() % 8);
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(&self.data);
        bytes
            .chunks(8)
            .map(|c| u64::from_le_bytes(std::array::from_fn(|i| c.get(i).copied().unwrap_or(0))))
            .collect()
    }
}

/// The file's bytes: its length is that of header and data.
fn bytes<'a>(file: &File, words: &'a [u64]) -> &'a [u8] {
    bytes_of(words, 8 + words[0] as usize + file.data.len())
}

fn decoded<W: External>(w: W) -> Vec<f32> {
    let (outputs, inputs) = (w.outputs(), w.inputs());
    let (rows, cols) = if W::BY_OUTPUT { (outputs, inputs) } else { (inputs, outputs) };
    let mut y = vec![f32::NAN; rows * cols];
    w.dequant_with(&Kernels::detect(), MatMut::new(&mut y, rows, cols).unwrap()).unwrap();
    y
}

/// Eight integers of 4 bits: all are `i`.
fn all(i: u32) -> u32 {
    i * 0x1111_1111
}

fn model() -> File {
    let mut f = File::default();
    f.words("a.awq.qweight", &[64, 2], |_| all(9))
        .words("a.awq.qzeros", &[2, 2], |_| all(7))
        .halves("a.awq.scales", &[2, 16], |i| if i < 16 { 0.5 } else { 0.25 })
        .words("b.gptq.qweight", &[8, 16], |_| all(3))
        .words("b.gptq.qzeros", &[2, 2], |_| all(7))
        .halves("b.gptq.scales", &[2, 16], |_| 2.0)
        .words("b.gptq.g_idx", &[64], |i| (i % 2) as u32)
        .words("c.sq.qweight", &[6, 4], |_| 0)
        .floats("c.sq.lookup_table", &[4, 8], |i| i as f32)
        .words("c.sq.rows", &[5], |i| (i > 1) as u32)
        .words("c.sq.cols", &[1], |_| 5)
        .floats("c.sq.vals", &[1], |_| 0.5)
        .add("d.fp.weight", "F8_E4M3", &[3, 200], &[0x40; 600])
        .floats("d.fp.weight_scale_inv", &[1, 2], |i| 1.0 + i as f32)
        .add("e.fp.weight", "F8_E5M2", &[4, 4], &[0x40; 16])
        .add("e.fp.weight_scale", "BF16", &[4, 1], &[bf16::ONE.to_le_bytes(); 4].concat())
        .floats("norm.weight", &[7], |i| i as f32)
        .add("f.weight", "F8_E4M3", &[2, 2], &[0xb8; 4])
        .add("ids", "I64", &[1], &[0; 8]);
    f
}

#[test]
fn every_format_is_found() {
    let file = model();
    let words = file.finish();
    let checkpoint = Checkpoint::from_bytes(bytes(&file, &words), Quantisation::default()).unwrap();
    let weights = checkpoint.weights();
    let kinds: Vec<_> = weights.iter().map(|w| (&*w.name, &*w.kind, &w.shape[..])).collect();
    assert_eq!(
        kinds,
        [
            ("a.awq", "awq", &[16, 64][..]),
            ("b.gptq", "gptq-4", &[16, 64]),
            ("c.sq", "squeezellm-3", &[4, 64]),
            ("d.fp.weight", "f8_e4m3", &[3, 200]),
            ("e.fp.weight", "f8_e5m2", &[4, 4]),
            ("norm.weight", "f32", &[7]),
            ("f.weight", "f8_e4m3", &[2, 2]),
            ("ids", "i64", &[1]),
        ]
    );
    assert_eq!(weights[0].bytes, (128 + 4) * 4 + 32 * 2);
    let view = |i: usize| weights[i].view.as_ref().unwrap();
    match view(0) {
        View::Awq(w) => {
            assert!(decoded(*w).iter().enumerate().all(|(i, &w)| w == if i < 512 { 1.0 } else { 0.5 }))
        }
        other => panic!("{other:?}"),
    }
    match view(1) {
        // 3 - (7 + 1), times 2.
        View::Gptq(w) => assert!(decoded(*w).iter().all(|&w| w == -10.0)),
        other => panic!("{other:?}"),
    }
    match view(2) {
        View::SqueezeLlm(w) => {
            let want = |i: usize| (i / 64 * 8) as f32 + if i == 64 + 5 { 0.5 } else { 0.0 };
            assert!(decoded(*w).iter().enumerate().all(|(i, &w)| w == want(i)));
        }
        other => panic!("{other:?}"),
    }
    match view(3) {
        View::Fp8(w) => {
            assert_eq!(w.format(), Fp8Format::E4m3);
            let want = |i: usize| if i % 200 < 128 { 2.0 } else { 4.0 };
            assert!(decoded(*w).iter().enumerate().all(|(i, &w)| w == want(i)));
        }
        other => panic!("{other:?}"),
    }
    match view(4) {
        View::Fp8(w) => assert!(decoded(*w).iter().all(|&w| w == 2.0)),
        other => panic!("{other:?}"),
    }
    match view(5) {
        View::Plain(t) => assert_eq!(t.numbers::<f32>().unwrap()[6], 6.0),
        other => panic!("{other:?}"),
    }
    match view(6) {
        View::Fp8(w) => assert!(decoded(*w).iter().all(|&w| w == -1.0)),
        other => panic!("{other:?}"),
    }
    assert!(weights[7].view.as_ref().unwrap_err().contains("I64"));
}

#[test]
fn configurations_are_read() {
    let awq = Quantisation::from_json(
        r#"{"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": -1, "version": "gemm"}}"#,
    );
    let awq = awq.unwrap();
    assert_eq!((awq.method.as_deref(), awq.bits, awq.group), (Some("awq"), Some(4), Some(0)));
    let gptq = Quantisation::from_json(r#"{"bits": 8, "group_size": 64, "checkpoint_format": "gptq_v2"}"#);
    let gptq = gptq.unwrap();
    assert_eq!((gptq.bits, gptq.group, gptq.gptq_v2), (Some(8), Some(64), true));
    let fp8 = r#"{"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 32]}}"#;
    assert_eq!(Quantisation::from_json(fp8).unwrap().tile, Some([64, 32]));
    for nothing in ["", "{}", "[]", "7", r#"{"bits": "four"}"#, r#"{"quantization_config": null}"#] {
        assert_eq!(Quantisation::from_json(nothing), None, "{nothing}");
    }

    // What it says is used: zero points as they are.
    let file = model();
    let words = file.finish();
    let v2 = Quantisation { gptq_v2: true, ..Default::default() };
    let checkpoint = Checkpoint::from_bytes(bytes(&file, &words), v2).unwrap();
    match checkpoint.weights()[1].view.as_ref().unwrap() {
        View::Gptq(w) => assert!(decoded(*w).iter().all(|&w| w == -8.0)),
        other => panic!("{other:?}"),
    }
    // What contradicts the shapes is no reason to panic.
    for bits in [0, 1, 3, 5, 8, 99, u32::MAX] {
        let wrong =
            Quantisation { bits: Some(bits), group: Some(3), tile: Some([0, 9]), ..Default::default() };
        let checkpoint = Checkpoint::from_bytes(bytes(&file, &words), wrong).unwrap();
        assert!(checkpoint.weights()[1].view.is_err() || bits == 0 || bits > 8, "{bits}");
    }
}

#[test]
fn a_file_beside_its_configuration() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("safetensors-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = model();
    let words = file.finish();
    std::fs::write(folder.join("model.safetensors"), bytes(&file, &words)).unwrap();
    std::fs::write(
        folder.join("config.json"),
        r#"{"quantization_config": {"checkpoint_format": "gptq_v2"}}"#,
    )
    .unwrap();
    // SAFETY: the file is this test's own.
    let checkpoint = unsafe { Checkpoint::map(folder.join("model.safetensors")) }.unwrap();
    assert!(checkpoint.quantisation().gptq_v2);
    assert!(checkpoint.weights().iter().filter(|w| w.view.is_ok()).count() == 7);
    drop(checkpoint);
    // SAFETY: the folder is this test's own, and has no such file.
    let missing = unsafe { Checkpoint::map(folder.join("none.safetensors")) };
    assert!(matches!(missing, Err(SafetensorsError::Io { .. })));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn hostile_files_are_refused() {
    let open =
        |bytes: &[u8]| Checkpoint::from_bytes(bytes, Quantisation::default()).map(|c| c.weights().len());
    let with = |header: &str, data: usize| {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.resize(file.len() + data, 0);
        open(&file)
    };
    assert!(matches!(open(&[0xff; 9]), Err(SafetensorsError::Invalid(_))));
    assert_eq!(with("{}", 0).unwrap(), 0);
    let most = usize::MAX / 8;
    for (header, data) in [
        ("", 0),
        ("[]", 0),
        ("{}", 1),
        (r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#, 3),
        (r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}"#, 3),
        (r#"{"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}}"#, 2),
        (r#"{"a":{"dtype":"U7","shape":[2],"data_offsets":[0,2]}}"#, 2),
        (r#"{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#, 0),
    ] {
        assert!(matches!(with(header, data), Err(SafetensorsError::Invalid(_))), "{header}");
    }
    // Tensors that together have more bytes than there are addresses.
    let huge: Vec<String> = (0..9)
        .map(|i: usize| {
            let (from, to) = (i.saturating_mul(most), (i + 1).saturating_mul(most));
            format!(r#""t{i}":{{"dtype":"U8","shape":[{}],"data_offsets":[{from},{to}]}}"#, to - from)
        })
        .collect();
    assert!(with(&format!("{{{}}}", huge.join(",")), 0).is_err());

    // Every beginning of a good file: the error says how long it should be, once its header is whole.
    let file = model();
    let words = file.finish();
    let good = bytes(&file, &words);
    let header = good.len() - file.data.len();
    for len in 0..good.len() {
        let e = open(&good[..len]).unwrap_err();
        let want = if len < 8 {
            8
        } else if len < header {
            header
        } else {
            good.len()
        };
        let SafetensorsError::Truncated { need, got } = e else { panic!("{len} bytes: {e}") };
        assert_eq!((need, got), (want as u64, len as u64));
        let text = e.to_string();
        assert!(
            text.contains("cut short") && text.contains(&format!("{got} bytes of at least {need}")),
            "{text}"
        );
    }

    // Every byte of a good file changed: an error, or weights; never more.
    for at in 0..header {
        for bit in [0, 3, 6] {
            let mut words = words.clone();
            words[at / 8] ^= 1 << (at % 8 * 8 + bit);
            let _ = open(bytes_of(&words, good.len()));
        }
    }
    // Weights whose parts do not fit each other have a reason instead of a view.
    let refused = |change: &dyn Fn(&mut File)| {
        let mut file = File::default();
        change(&mut file);
        let words = file.finish();
        let checkpoint = Checkpoint::from_bytes(bytes(&file, &words), Quantisation::default()).unwrap();
        let weights = checkpoint.weights();
        weights[0].view.as_ref().map(|_| ()).unwrap_err().clone()
    };
    let alone = refused(&|f| {
        f.words("a.qweight", &[8, 16], |_| 0);
    });
    assert!(alone.contains("qzeros"), "{alone}");
    let bad_index = refused(&|f| {
        f.words("a.qweight", &[4, 8], |_| 0).words("a.qzeros", &[1, 1], |_| 0);
        f.halves("a.scales", &[1, 8], |_| 1.0).words("a.g_idx", &[32], |i| u32::from(i == 9));
    });
    assert!(bad_index.contains("g_idx") && bad_index.contains('9'), "{bad_index}");
    let bad_col = refused(&|f| {
        f.words("a.qweight", &[4, 1], |_| 0).floats("a.lookup_table", &[1, 16], |_| 0.0);
        f.words("a.rows", &[2], |i| i as u32).words("a.cols", &[1], |_| 32).floats("a.vals", &[1], |_| 0.0);
    });
    assert!(bad_col.contains("cols") && bad_col.contains("32"), "{bad_col}");
    let tiles = refused(&|f| {
        f.add("a.weight", "F8_E4M3", &[8, 9], &[0; 72]).floats("a.weight_scale", &[4, 40], |_| 1.0);
    });
    assert!(tiles.contains("tiles"), "{tiles}");
}

fn bytes_of(words: &[u64], n: usize) -> &[u8] {
    // SAFETY: words are bytes.
    let all = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), 8 * words.len()) };
    &all[..n]
}
