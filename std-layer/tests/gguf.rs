//! The GGUF reader and writer: against the `gguf` package, and against files that lie.

use gllm_kernels_std::core::{bf16, KernelError, QuantFormat};
use gllm_kernels_std::gguf::{GgmlType, Gguf, GgufError, Problem, Value, ValueType, WriteError, Writer};
use gllm_kernels_std::AlignedVec;

const SMALL: &[u8] = include_bytes!("data/small.gguf");
const ALL_FORMATS: &[u8] = include_bytes!("data/all-formats.gguf");

/// Every tensor as `tests/data/make.py` prints it.
fn listing(file: &Gguf<'_>) -> String {
    let mut text = String::new();
    for t in file.tensors() {
        let dims: Vec<_> = t.dims().iter().map(u64::to_string).collect();
        let size = t.size().unwrap();
        text += &format!("{} {} {} {} {size}\n", t.name(), t.ggml_type().0, dims.join(","), t.file_offset());
    }
    text
}

#[test]
fn agrees_with_the_gguf_package() {
    assert_eq!(listing(&Gguf::from_bytes(SMALL).unwrap()), include_str!("data/small.txt"));
    assert_eq!(listing(&Gguf::from_bytes(ALL_FORMATS).unwrap()), include_str!("data/all-formats.txt"));
}

#[test]
fn metadata_of_every_type() {
    let file = Gguf::from_bytes(SMALL).unwrap();
    assert_eq!((file.version(), file.alignment()), (3, 64));
    let expected = [
        ("general.architecture", Value::String("llama")),
        ("general.alignment", Value::U32(64)),
        ("t.u8", Value::U8(200)),
        ("t.i8", Value::I8(-100)),
        ("t.u16", Value::U16(60000)),
        ("t.i16", Value::I16(-30000)),
        ("t.u32", Value::U32(4_000_000_000)),
        ("t.i32", Value::I32(-2_000_000_000)),
        ("t.f32", Value::F32(0.5)),
        ("t.bool", Value::Bool(true)),
        ("t.string", Value::String("größe")),
        ("t.u64", Value::U64(1 << 63)),
        ("t.i64", Value::I64(-(1 << 62))),
        ("t.f64", Value::F64(-0.1)),
    ];
    for (key, value) in expected {
        assert_eq!(file.get(key), Some(value), "{key}");
    }
    assert_eq!(file.metadata_len(), expected.len() + 4);
    assert_eq!(file.metadata().count(), expected.len() + 4);
    assert_eq!(file.get("t.none"), None);

    let array = |key| file.get(key).unwrap().as_array().unwrap();
    let numbers: Vec<_> = array("t.numbers").iter().map(|v| v.as_i64().unwrap()).collect();
    assert_eq!(numbers, [1, -2, 3]);
    let strings: Vec<_> = array("t.strings").iter().map(|v| v.as_str().unwrap()).collect();
    assert_eq!(strings, ["a", "", "bc"]);
    let bools: Vec<_> = array("t.bools").iter().map(|v| v.as_bool().unwrap()).collect();
    assert_eq!(bools, [true, false]);
    let nested = array("t.nested");
    let sums = nested.iter().map(|row| row.as_array().unwrap().iter().filter_map(|v| v.as_i64()).sum());
    assert_eq!(sums.collect::<Vec<i64>>(), [3, 7]);
    assert_eq!((nested.len(), nested.is_empty()), (2, false));

    assert_eq!(file.get("t.i8").unwrap().as_u64(), None);
    assert_eq!(file.get("t.u64").unwrap().as_i64(), None);
    assert_eq!(file.get("t.i64").unwrap().as_i64(), Some(-(1 << 62)));
    assert_eq!(file.get("t.f32").unwrap().as_f64(), Some(0.5));
}

#[test]
fn tensor_data_in_place() {
    let aligned = AlignedVec::from_slice(SMALL);
    let file = Gguf::from_bytes(&aligned).unwrap();
    let ramp: Vec<f32> = (0..64u8).map(f32::from).collect();
    let tensor = file.tensor("f32").unwrap();
    assert_eq!(tensor.as_slice::<f32>(), Some(&ramp[..]));
    assert_eq!(tensor.as_slice::<bf16>(), None);
    assert_eq!((tensor.cols(), tensor.rows(), tensor.elements()), (8, Some(8), 64));
    let rounded: Vec<_> = ramp.iter().map(|&x| bf16::from_f32(x)).collect();
    assert_eq!(file.tensor("bf16").unwrap().as_slice::<bf16>(), Some(&rounded[..]));
    let bytes = file.tensor("i8").unwrap().data().unwrap();
    assert!(bytes.iter().copied().eq(0..64));
    assert!(file.tensor("none").is_none());

    // One byte off, the same file still reads; its numbers are only copied.
    let mut shifted = AlignedVec::<u8>::zeroed(SMALL.len() + 1);
    shifted[1..].copy_from_slice(SMALL);
    let file = Gguf::from_bytes(&shifted[1..]).unwrap();
    assert_eq!(file.tensor("f32").unwrap().as_slice::<f32>(), None);
    assert_eq!(file.tensor("f32").unwrap().data().unwrap().len(), 256);
}

#[test]
fn quantised_weights_in_place() {
    let file = Gguf::from_bytes(ALL_FORMATS).unwrap();
    for tensor in file.tensors() {
        match tensor.as_quant_ref() {
            Ok(w) => {
                assert_eq!((w.rows(), w.cols()), (8, 512));
                assert_eq!(w.format().gguf_type(), tensor.ggml_type().0);
                assert_eq!(w.as_bytes(), tensor.data().unwrap());
            }
            Err(e) => assert_eq!(e, KernelError::UnknownFormat(tensor.ggml_type().0)),
        }
    }
    assert!(file.tensor("q8_0").unwrap().as_quant_ref().is_ok());
}

/// The reader knows the sizes and names of plain numbers, and the core's formats.
#[test]
fn sizes_and_names_of_types() {
    let known = |n: u32| GgmlType(n).layout().map(|l| (l.block as usize, l.bytes as usize));
    for format in QuantFormat::ALL {
        let of = GgmlType(format.gguf_type());
        assert_eq!(known(of.0), Some((format.block_len(), format.block_bytes())), "{of}");
        assert_eq!(of.to_string().to_lowercase(), format.name());
    }
    for (of, name, bytes) in [
        (GgmlType::F32, "F32", 4),
        (GgmlType::F64, "F64", 8),
        (GgmlType::I8, "I8", 1),
        (GgmlType::I16, "I16", 2),
        (GgmlType::I32, "I32", 4),
        (GgmlType::I64, "I64", 8),
    ] {
        assert_eq!((of.to_string(), known(of.0)), (name.into(), Some((1, bytes))));
    }
    // ggml gave these up.
    for n in [4, 5, 31, 32, 33, 36, 37, 38] {
        assert_eq!((GgmlType(n).to_string(), known(n)), (format!("type {n}"), None));
    }
    assert_eq!((GgmlType::IQ2_XXS.to_string(), GgmlType::IQ2_XXS.0), ("IQ2_XXS".into(), 16));
    assert_eq!((0..=1000).filter(|&n| known(n).is_some()).count(), QuantFormat::ALL.len() + 6);
}

#[test]
fn from_the_file_system() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small.gguf");
    // SAFETY: nobody changes the file.
    let mapped = unsafe { Gguf::map(path) }.unwrap();
    assert_eq!(listing(&mapped), include_str!("data/small.txt"));
    assert_eq!(listing(&Gguf::read(path).unwrap()), include_str!("data/small.txt"));
    assert_eq!(mapped.file_size(), SMALL.len() as u64);

    for path in ["/no/such/file.gguf", env!("CARGO_MANIFEST_DIR")] {
        let error = Gguf::read(path).unwrap_err();
        assert!(matches!(error, GgufError::Io { .. }));
        assert!(error.to_string().starts_with(path), "{error}");
    }
}

/// A file in pieces that tests bend.
#[derive(Clone)]
struct Builder {
    head: Vec<u8>,
    entries: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: usize,
}

fn string(s: &[u8]) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes()[..], s].concat()
}

fn entry(key: &str, of: u32, value: &[u8]) -> Vec<u8> {
    [&string(key.as_bytes())[..], &of.to_le_bytes(), value].concat()
}

fn tensor(name: &str, dims: &[u64], of: u32, offset: u64) -> Vec<u8> {
    let dims_bytes: Vec<u8> = dims.iter().flat_map(|d| d.to_le_bytes()).collect();
    let n = (dims.len() as u32).to_le_bytes();
    [&string(name.as_bytes())[..], &n, &dims_bytes, &of.to_le_bytes(), &offset.to_le_bytes()].concat()
}

impl Builder {
    fn new() -> Self {
        Self { head: b"GGUF\x03\0\0\0".to_vec(), entries: vec![], tensors: vec![], data: 0 }
    }
    fn entry(mut self, bytes: Vec<u8>) -> Self {
        self.entries.push(bytes);
        self
    }
    fn tensor(mut self, bytes: Vec<u8>) -> Self {
        self.tensors.push(bytes);
        self
    }
    fn data(self, data: usize) -> Self {
        Self { data, ..self }
    }
    fn bytes(&self) -> Vec<u8> {
        let mut all = self.head.clone();
        all.extend((self.tensors.len() as u64).to_le_bytes());
        all.extend((self.entries.len() as u64).to_le_bytes());
        all.extend(self.entries.iter().chain(&self.tensors).flatten());
        all.resize(all.len().next_multiple_of(32) + self.data, 0);
        all
    }
    /// The error, which must name `field` at `offset`.
    #[track_caller]
    fn refused(&self, offset: u64, field: &str, problem: Problem) {
        refused(&self.bytes(), offset, field, problem);
    }
}

#[track_caller]
fn refused(bytes: &[u8], at: u64, name: &str, what: Problem) {
    match Gguf::from_bytes(bytes) {
        Err(GgufError::Invalid { offset, field, problem }) => {
            assert_eq!((offset, &*field, problem), (at, name, what));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn headers_that_lie() {
    refused(b"", 0, "magic", Problem::Truncated { need: 4, left: 0 });
    refused(b"GGML\x03\0\0\0", 0, "magic", Problem::NotGguf(*b"GGML"));
    refused(b"GGUF\x03", 4, "version", Problem::Truncated { need: 4, left: 1 });
    refused(b"GGUF\x01\0\0\0", 4, "version", Problem::Version(1));
    refused(b"GGUF\x04\0\0\0", 4, "version", Problem::Version(4));
    refused(b"GGUF\0\0\0\x03", 4, "version", Problem::BigEndian);

    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(u64::MAX.to_le_bytes());
    bytes.extend([0; 8]);
    refused(&bytes, 8, "tensor count", Problem::TooMany { count: u64::MAX, each: 24, left: 8 });
    bytes[8..16].fill(0);
    bytes[16..24].fill(0x11);
    let count = 0x1111_1111_1111_1111;
    refused(&bytes, 16, "metadata count", Problem::TooMany { count, each: 13, left: 0 });
    bytes[16..24].fill(0);
    assert_eq!(Gguf::from_bytes(&bytes).unwrap().tensors_len(), 0);
    bytes[4] = 2;
    assert_eq!(Gguf::from_bytes(&bytes).unwrap().version(), 2);
}

#[test]
fn metadata_that_lies() {
    let with = |e| Builder::new().entry(e);
    with(entry("k", 13, &[0; 8])).refused(33, "metadata 0 \"k\": type", Problem::ValueType(13));
    with(entry("k", 7, &[2])).refused(37, "metadata 0 \"k\": value", Problem::Bool(2));
    let not_utf8 = string(b"\xff");
    with(entry("k", 8, &not_utf8)).refused(37, "metadata 0 \"k\": value", Problem::Utf8);
    let bad_key = [&not_utf8[..], &[0; 8]].concat();
    with(bad_key).refused(24, "metadata 0: key", Problem::Utf8);
    let long = with(entry("k", 8, &(u64::MAX / 2).to_le_bytes()));
    let left = long.bytes().len() as u64 - 45;
    long.refused(45, "metadata 0 \"k\": value", Problem::Truncated { need: u64::MAX / 2, left });

    let same = || entry("same", 0, &[1]);
    with(same()).entry(same()).refused(41, "metadata 1 \"same\": name", Problem::Duplicate { first: 24 });

    for (of, value) in [(4, &[3, 0, 0, 0][..]), (4, &[0; 4]), (0, &[32])] {
        let field = "metadata 0 \"general.alignment\": value";
        with(entry("general.alignment", of, value)).refused(53, field, Problem::Alignment);
    }

    // Arrays: too many items, of an unknown type, in each other without end.
    let array = |of: u32, len: u64| [&of.to_le_bytes()[..], &len.to_le_bytes()].concat();
    let many = with(entry("k", 9, &array(8, 1 << 60)));
    let left = many.bytes().len() as u64 - 49;
    let problem = Problem::TooMany { count: 1 << 60, each: 8, left };
    many.refused(41, "metadata 0 \"k\": value", problem);
    with(entry("k", 9, &array(99, 0))).refused(37, "metadata 0 \"k\": value", Problem::ValueType(99));
    let deep = |levels: usize| entry("k", 9, &[array(9, 1).repeat(levels - 1), array(0, 0)].concat());
    assert!(Gguf::from_bytes(&with(deep(8)).bytes()).is_ok());
    with(deep(9)).refused(37 + 8 * 12, "metadata 0 \"k\": value", Problem::TooDeep);
}

#[test]
fn tensors_that_lie() {
    let with = |t| Builder::new().tensor(t).data(64);
    assert!(Gguf::from_bytes(&with(tensor("t", &[16], 0, 0)).bytes()).is_ok());
    assert!(Gguf::from_bytes(&with(tensor("t", &[], 0, 32)).bytes()).is_ok());
    let far = Problem::OutsideFile { offset: 0, size: 68, data: 64 };
    with(tensor("t", &[17], 0, 0)).refused(49, "tensor 0 \"t\": offset", far);
    let far = Problem::OutsideFile { offset: 64, size: 4, data: 64 };
    with(tensor("t", &[1], 0, 64)).refused(49, "tensor 0 \"t\": offset", far);
    let far = Problem::OutsideFile { offset: u64::MAX - 31, size: 4, data: 64 };
    with(tensor("t", &[1], 0, u64::MAX - 31)).refused(49, "tensor 0 \"t\": offset", far);
    let odd = Problem::Misaligned { offset: 8, alignment: 32 };
    with(tensor("t", &[1], 0, 8)).refused(49, "tensor 0 \"t\": offset", odd);
    with(tensor("t", &[1; 5], 0, 0)).refused(
        33,
        "tensor 0 \"t\": number of dimensions",
        Problem::Dimensions(5),
    );
    let huge = [1 << 32, 1 << 32];
    with(tensor("t", &huge, 0, 0)).refused(37, "tensor 0 \"t\": number of elements", Problem::Overflow);
    with(tensor("t", &[1 << 62], 0, 0)).refused(45, "tensor 0 \"t\": number of bytes", Problem::Overflow);
    let partial = Problem::PartialBlock { row: 48, block: 32 };
    with(tensor("t", &[48, 2], 2, 0)).refused(53, "tensor 0 \"t\": type:", partial);
    let twice = with(tensor("t", &[1], 0, 0)).tensor(tensor("t", &[1], 0, 32));
    twice.refused(57, "tensor 1 \"t\": name", Problem::Duplicate { first: 24 });

    // An unknown type is not an error: its size is unknown, its place is not.
    let bytes = with(tensor("t", &[5], 77, 32)).bytes();
    let file = Gguf::from_bytes(&bytes).unwrap();
    let unknown = file.tensor("t").unwrap();
    assert_eq!((unknown.ggml_type(), unknown.size(), unknown.data()), (GgmlType(77), None, None));
    assert_eq!(unknown.ggml_type().to_string(), "type 77");
}

#[test]
fn messages_say_where_and_what() {
    let bytes = Builder::new().tensor(tensor("blk.0.w", &[1], 0, 123)).data(256).bytes();
    let error = Gguf::from_bytes(&bytes).unwrap_err().to_string();
    assert_eq!(error, "at byte 55: tensor 0 \"blk.0.w\": offset 123 is not a multiple of the alignment 32");
    // Names come from the file: control characters do not reach the terminal, length does not flood it.
    let name = format!("\x1b[31m{}", "x".repeat(1000));
    let bytes = Builder::new().tensor(tensor(&name, &[1], 0, 123)).data(256).bytes();
    let error = Gguf::from_bytes(&bytes).unwrap_err().to_string();
    assert!(error.contains("\\u{1b}[31mxxx") && error.len() < 200, "{error}");
}

/// Uses everything a parsed file offers.
fn touch(file: &Gguf<'_>) -> usize {
    fn weigh(value: Value<'_>) -> usize {
        match value {
            Value::Array(array) => array.iter().map(weigh).sum::<usize>() + array.len(),
            Value::String(s) => s.len(),
            other => other.as_u64().is_some() as usize + other.as_f64().is_some() as usize,
        }
    }
    let mut sum = 0;
    for (key, value) in file.metadata() {
        assert!(file.get(key).is_some());
        sum += weigh(value);
    }
    for tensor in file.tensors() {
        assert!(file.tensor(tensor.name()).is_some());
        sum += tensor.data().map_or(0, |d| d.iter().map(|&b| usize::from(b)).sum());
        sum += tensor.as_slice::<f32>().map_or(0, <[f32]>::len);
        sum += format!("{tensor:?} {:?} {:?}", tensor.rows(), tensor.size()).len();
    }
    sum
}

#[test]
fn every_truncation_is_refused() {
    for len in 0..SMALL.len() {
        // The last tensor's padding may be missing, nothing else.
        let result = Gguf::from_bytes(&SMALL[..len]);
        let Err(e @ GgufError::Invalid { offset, .. }) = &result else { panic!("{len}: {result:?}") };
        assert!(*offset <= len as u64);
        let text = e.to_string();
        assert!(text.contains("file ends") && text.contains("cut short"), "{len} bytes: {text}");
    }
}

#[test]
fn no_changed_byte_causes_a_panic() {
    let header = Gguf::from_bytes(SMALL).unwrap().data_offset() as usize;
    let mut bytes = AlignedVec::from_slice(SMALL);
    let (mut good, mut bad) = (0, 0);
    for i in 0..header {
        let original = bytes[i];
        let flips = (0..8).map(|bit| original ^ 1 << bit);
        for value in flips.chain([0, 0x7f, 0xff, original.wrapping_add(1), original.wrapping_sub(1)]) {
            bytes[i] = value;
            match Gguf::from_bytes(&bytes) {
                Ok(file) => {
                    good += usize::from(touch(&file) > 0);
                }
                Err(GgufError::Invalid { offset, field, problem }) => {
                    assert!(offset <= SMALL.len() as u64 && !field.is_empty(), "{problem}");
                    bad += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        bytes[i] = original;
    }
    // Both ways were taken: values and names may change, counts and lengths may not.
    assert!(good > 1000 && bad > 1000, "{good} accepted, {bad} refused");
}

/// Runs of random bytes over random places, always the same ones.
#[test]
fn no_random_damage_causes_a_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for _ in 0..20_000 {
        let mut bytes = SMALL.to_vec();
        for _ in 0..1 + random() % 4 {
            let at = random() % bytes.len();
            let len = (1 + random() % 12).min(bytes.len() - at);
            match random() % 3 {
                0 => bytes[at..at + len].iter_mut().for_each(|b| *b = random() as u8),
                1 => drop(bytes.drain(at..at + len)),
                _ => drop(bytes.splice(at..at, std::iter::repeat_n(random() as u8, len))),
            }
        }
        if let Ok(file) = Gguf::from_bytes(&bytes) {
            touch(&file);
        }
    }
}

/// A path for a file of this test.
fn temporary(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.gguf", std::process::id()))
}

/// All that `file` holds, in a new one.
fn copy(file: &Gguf<'_>, path: &std::path::Path) -> Result<(), WriteError> {
    let mut writer = Writer::new();
    writer.copy_metadata(file)?;
    for t in file.tensors() {
        writer.add_tensor(t.name(), t.dims(), t.ggml_type())?;
    }
    let mut out = writer.create(path, false)?;
    for t in file.tensors() {
        // In pieces of odd sizes.
        t.data().unwrap().chunks(1000).try_for_each(|piece| out.write(piece))?;
    }
    out.finish()
}

#[test]
fn written_files_are_as_the_gguf_package_writes_them() {
    let path = temporary("copy");
    for original in [SMALL, ALL_FORMATS] {
        copy(&Gguf::from_bytes(original).unwrap(), &path).unwrap();
        let written = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(written == original, "{} bytes, {} in the original", written.len(), original.len());
    }
}

#[test]
fn values_and_arrays_are_written() {
    let path = temporary("values");
    let mut writer = Writer::new();
    writer.set("a", Value::String("first")).unwrap();
    writer.set("general.alignment", Value::U32(128)).unwrap();
    writer.set_array("list", ValueType::String, ["x", "größe"].map(Value::String)).unwrap();
    writer.set_array("none", ValueType::U8, []).unwrap();
    // Keeps its place, and may change its type.
    writer.set("a", Value::F64(0.1)).unwrap();
    writer.add_tensor("scalar", &[], GgmlType::F32).unwrap();
    writer.add_tensor("empty", &[32, 0], GgmlType::Q8_0).unwrap();
    writer.add_tensor("bytes", &[3], GgmlType::I8).unwrap();
    let mut file = writer.create(&path, false).unwrap();
    file.write(&1.5f32.to_le_bytes()).unwrap();
    file.write(&[1, 2, 3]).unwrap();
    file.finish().unwrap();

    let read = Gguf::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        read.metadata().map(|(k, _)| k).collect::<Vec<_>>(),
        ["a", "general.alignment", "list", "none"]
    );
    assert_eq!(read.get("a"), Some(Value::F64(0.1)));
    let list = read.get("list").unwrap().as_array().unwrap();
    assert_eq!(list.iter().filter_map(|v| v.as_str()).collect::<Vec<_>>(), ["x", "größe"]);
    assert!(read.get("none").unwrap().as_array().unwrap().is_empty());
    assert_eq!((read.version(), read.alignment(), read.data_offset() % 128), (3, 128, 0));
    assert_eq!(read.tensor("scalar").unwrap().as_slice::<f32>(), Some(&[1.5][..]));
    assert_eq!(read.tensor("empty").unwrap().data(), Some(&[][..]));
    let bytes = read.tensor("bytes").unwrap();
    assert_eq!((bytes.data(), bytes.file_offset() % 128), (Some(&[1, 2, 3][..]), 0));
}

#[test]
fn what_no_reader_would_accept_is_not_written() {
    let invalid = |result: Result<(), WriteError>, name: &str, what: Problem| match result {
        Err(WriteError::Invalid { field, problem }) => assert_eq!((&*field, problem), (name, what)),
        other => panic!("{other:?}"),
    };
    let mut writer = Writer::new();
    for value in [Value::U64(32), Value::U32(0), Value::U32(48)] {
        let field = "metadata \"general.alignment\": value";
        invalid(writer.set("general.alignment", value), field, Problem::Alignment);
    }
    let mixed = writer.set_array("k", ValueType::U8, [Value::U8(1), Value::U16(2)]);
    assert_eq!(mixed.unwrap_err().to_string(), "metadata \"k\": a u16 in an array of u8");
    // An array that is as deep as may be, in one more.
    let array = |of: u32, len: u64| [&of.to_le_bytes()[..], &len.to_le_bytes()].concat();
    let deep = entry("k", 9, &[array(9, 1).repeat(7), array(0, 0)].concat());
    let bytes = Builder::new().entry(deep).bytes();
    let deepest = Gguf::from_bytes(&bytes).unwrap();
    writer.copy_metadata(&deepest).unwrap();
    let deeper = writer.set_array("k", ValueType::Array, [deepest.get("k").unwrap()]);
    invalid(deeper, "metadata \"k\": value", Problem::TooDeep);

    let mut add = |dims: &[u64], of| writer.add_tensor("t", dims, of);
    invalid(add(&[1; 5], GgmlType::F32), "tensor \"t\": number of dimensions", Problem::Dimensions(5));
    let partial = Problem::PartialBlock { row: 48, block: 32 };
    invalid(add(&[48, 2], GgmlType::Q4_0), "tensor \"t\": type:", partial);
    invalid(add(&[1 << 32, 1 << 32], GgmlType::I8), "tensor \"t\": number of bytes", Problem::Overflow);
    invalid(add(&[1 << 62], GgmlType::F32), "tensor \"t\": number of bytes", Problem::Overflow);
    invalid(add(&[1], GgmlType(77)), "tensor \"t\": type", Problem::UnknownType(77));
    add(&[1 << 60], GgmlType::F32).unwrap();
    assert!(matches!(add(&[1], GgmlType::F32), Err(WriteError::DuplicateTensor(name)) if name == "t"));
    // Each tensor's size fits 64 bits, their sum does not.
    for name in ["t1", "t2", "t3", "t4"] {
        writer.add_tensor(name, &[1 << 60], GgmlType::F32).unwrap();
    }
    let path = temporary("large");
    invalid(writer.create(&path, false).map(drop), "number of bytes", Problem::Overflow);
    assert!(!path.exists());
}

#[test]
fn a_file_is_there_when_it_is_complete() {
    let path = temporary("complete");
    let begin = |overwrite| {
        let mut writer = Writer::new();
        writer.add_tensor("a", &[4], GgmlType::I8).unwrap();
        writer.add_tensor("b", &[2], GgmlType::I8).unwrap();
        writer.create(&path, overwrite)
    };
    let mut file = begin(false).unwrap();
    let temporary = file.temporary().to_owned();
    assert!(temporary.exists());
    // Only one at a time.
    assert!(matches!(begin(false), Err(WriteError::Io { path, .. }) if path == temporary));
    file.write(&[1, 2, 3]).unwrap();
    assert!(matches!(file.write(&[4, 5]), Err(WriteError::TooMuchData { given: 2, left: 1 })));
    assert!(matches!(file.finish(), Err(WriteError::DataMissing { left: 3 })));
    assert!(!path.exists() && !temporary.exists());

    let write = |overwrite, last| {
        let mut file = begin(overwrite)?;
        file.write(&[1, 2, 3])?;
        file.write(&[last])?;
        file.write(&[5, 6])?;
        assert!(matches!(file.write(&[7]), Err(WriteError::TooMuchData { given: 1, left: 0 })));
        file.finish()
    };
    write(false, 4).unwrap();
    assert!(matches!(write(false, 5), Err(WriteError::Exists(p)) if p == path));
    write(true, 7).unwrap();
    assert_eq!(Gguf::read(&path).unwrap().tensor("a").unwrap().data(), Some(&[1, 2, 3, 7][..]));

    // Somebody else was faster.
    std::fs::remove_file(&path).unwrap();
    let mut file = begin(false).unwrap();
    file.write(&[0; 4]).unwrap();
    file.write(&[0; 2]).unwrap();
    std::fs::write(&path, b"theirs").unwrap();
    assert!(matches!(file.finish(), Err(WriteError::Exists(_))));
    assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
    std::fs::remove_file(&path).unwrap();
    assert!(!temporary.exists());

    let folder = path.parent().unwrap();
    assert!(matches!(Writer::new().create(folder, true), Err(WriteError::NotAFile(_))));
    let nowhere = folder.join("no such folder").join("file.gguf");
    assert!(matches!(Writer::new().create(nowhere, false), Err(WriteError::Io { .. })));
}
