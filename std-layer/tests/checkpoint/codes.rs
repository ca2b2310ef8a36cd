//! Matrices of compressed-tensors, ModelOpt, Quark and bitsandbytes: every kind of codes with every way to share scales.

use gllm_kernels_std::core::{bf16, f16, QuantFormat};
use gllm_kernels_std::model::Model;
use gllm_kernels_std::safetensors::{Checkpoint, Quantisation, View};

use super::folder::{config, file, Dense, Folder};
use super::quantised::{any, assert_stored, Written};
use super::tiny::Tiny;

/// What codes are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Whole numbers in strings of bits, with zero points if so.
    Packed {
        bits: u32,
        zeros: bool,
    },
    /// Whole numbers in bytes, with zero points if so.
    Bytes {
        zeros: bool,
    },
    /// The same of bitsandbytes.
    Largest,
    /// E2M1: of compressed-tensors and of ModelOpt with E4M3 scales, and of compressed-tensors and of Quark with powers of 2.
    Nvfp4,
    ModelOpt,
    Mxfp4,
    Quark,
    /// E4M3 with powers of 2.
    Mxfp8,
    /// One of 16 numbers; with scales of 8 bits if so.
    Table {
        nested: bool,
    },
}

/// Which weights share a scale.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Share {
    Whole,
    Output,
    Group(usize),
    Index,
}

#[derive(Clone, Copy, Debug)]
struct Way {
    kind: Kind,
    share: Share,
    /// The type of scales.
    dtype: &'static str,
}

/// Every kind, and every way to share scales.
fn ways() -> Vec<Way> {
    let mut all = Vec::new();
    let mut add = |kind, share, dtype| all.push(Way { kind, share, dtype });
    let shares = [Share::Whole, Share::Output, Share::Group(32), Share::Group(128)];
    for bits in 1..=8 {
        for zeros in [false, true] {
            let kind = Kind::Packed { bits, zeros };
            // All ways to share take turns; zero points have outputs.
            let other = shares[bits as usize % 4];
            let other = if zeros && other == Share::Whole { Share::Output } else { other };
            let dtype = ["F16", "BF16", "F32"][bits as usize % 3];
            add(kind, Share::Group(64), dtype);
            add(kind, other, dtype);
            if bits % 4 == 0 {
                add(kind, Share::Group(16), "F16");
                add(kind, Share::Index, "BF16");
            }
        }
    }
    for zeros in [false, true] {
        for (share, dtype) in shares.into_iter().zip(["F32", "BF16", "F16", "F32"]) {
            add(Kind::Bytes { zeros }, share, dtype);
        }
    }
    add(Kind::Largest, Share::Output, "F32");
    add(Kind::Nvfp4, Share::Group(16), "F8_E4M3");
    add(Kind::ModelOpt, Share::Group(16), "F8_E4M3");
    for kind in [Kind::Mxfp4, Kind::Quark, Kind::Mxfp8] {
        add(kind, Share::Group(32), "U8");
    }
    for nested in [false, true] {
        add(Kind::Table { nested }, Share::Group(64), "F32");
    }
    all
}

impl Way {
    /// The format that is expected of matrices with a multiple of 256 inputs.
    fn format(self) -> QuantFormat {
        match self.kind {
            Kind::Nvfp4 | Kind::ModelOpt => QuantFormat::Q6K,
            _ if matches!(self.share, Share::Group(..32) | Share::Index) => QuantFormat::F16,
            Kind::Packed { bits: ..=4, zeros: false } | Kind::Packed { bits: ..=3, .. } => QuantFormat::Q4_0,
            Kind::Packed { bits: 4, .. } => QuantFormat::Q4_1,
            Kind::Packed { bits: 8, zeros: true } | Kind::Bytes { zeros: true } => QuantFormat::F16,
            Kind::Packed { .. } | Kind::Bytes { .. } | Kind::Largest => QuantFormat::Q8_0,
            Kind::Mxfp4 | Kind::Quark => QuantFormat::Mxfp4,
            Kind::Table { .. } | Kind::Mxfp8 => QuantFormat::F16,
        }
    }
}

/// E2M1 numbers.
const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The E4M3 number of a byte without a sign.
fn e4m3(code: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(code >> 3), f32::from(code & 7) / 8.0);
    if exponent == 0 {
        mantissa * 2f32.powi(-6)
    } else {
        (1.0 + mantissa) * 2f32.powi(exponent - 7)
    }
}

/// Numbers of so many bits in words, the lowest bits first.
fn string(bits: u32, numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut words: Vec<u32> = Vec::new();
    let each = numbers.flat_map(|n| (0..bits).map(move |bit| n >> bit & 1));
    for (i, bit) in each.enumerate() {
        if i % 32 == 0 {
            words.push(0);
        }
        words[i / 32] |= bit << (i % 32);
    }
    words
}

/// A matrix.
fn written(way: Way, name: &str, outputs: usize, inputs: usize) -> Written {
    let at = |end: &str| format!("{name}.{end}");
    let bytes = |name: String, dtype, shape: &[usize], bytes: Vec<u8>| {
        assert_eq!(bytes.len(), shape.iter().product::<usize>());
        Dense { name, dtype, shape: shape.to_vec(), bytes }
    };
    let count = outputs * inputs;
    // Scales of the matrix in its order, or of each output.
    let groups = match way.share {
        Share::Whole | Share::Output => 1,
        Share::Group(n) => inputs.div_ceil(n),
        Share::Index => inputs / 32,
    };
    let table = matches!(way.kind, Kind::Table { .. });
    let index = |input: usize| (7 * input + input / 5 + 3) % groups;
    let shared = |i: usize| match way.share {
        Share::Whole => 0,
        Share::Output => i / inputs,
        Share::Group(n) if table => i / n,
        Share::Group(n) => i / inputs * groups + i % inputs / n,
        Share::Index => i / inputs * groups + index(i % inputs),
    };
    let scales = shared(count - 1) / groups * groups + groups;
    let scales = if table {
        count.div_ceil(64)
    } else if way.share == Share::Whole {
        1
    } else {
        scales
    };
    let floats: Vec<f32> = (0..scales).map(|i| 0.02 + 0.01 * (any(i) % 97) as f32 / 97.0).collect();
    let rounded = |x: f32| match way.dtype {
        "F16" => f16::from_f32(x).to_f32(),
        "BF16" => bf16::from_f32(x).to_f32(),
        _ => x,
    };
    let stored = |end: &str, shape: &[usize]| match way.dtype {
        "F16" => Dense::halves(&at(end), shape, &floats),
        "BF16" => Dense::stored(&at(end), Some(QuantFormat::Q8_0), shape, &floats),
        _ => Dense::floats(&at(end), shape, &floats),
    };
    let shape = match way.share {
        Share::Whole => vec![1],
        _ => vec![outputs, groups],
    };
    // Codes; those of 4 bits two in a byte.
    let code = |i: usize| any(3 * i + outputs);
    let nibbles = |first: u32| -> Vec<u8> {
        let each = (0..count.div_ceil(2)).map(|i| [2 * i, 2 * i + 1].map(|i| code(i) & 15));
        each.map(|[a, b]| (a << first | b << (4 - first)) as u8).collect()
    };
    let e2m1 = |i: usize| {
        let (code, sign) = (code(i) & 15, if code(i) & 8 == 0 { 1.0 } else { -1.0 });
        sign * E2M1[code as usize & 7]
    };
    // Scales of E4M3: mostly within three powers of 2, some far below, some 0.
    let small = |i: usize| match any(i) % 64 {
        0 => 0,
        1 => 8,
        n => 0x50 + (n % 32) as u8,
    };
    let (tensors, values, scale): (Vec<Dense>, Vec<f32>, Vec<f32>) = match way.kind {
        Kind::Packed { bits, zeros } => {
            let number = |i: usize| code(i) % (1 << bits);
            let zero = |i: usize| any(11 * i + 5) % (1 << bits);
            let rows = (0..outputs)
                .flat_map(|output| string(bits, (0..inputs).map(|input| number(output * inputs + input))));
            let rows: Vec<u32> = rows.collect();
            let sizes: Vec<u8> = [outputs, inputs].iter().flat_map(|&n| (n as u64).to_le_bytes()).collect();
            let mut all = vec![
                Dense::words(&at("weight_packed"), &[outputs, rows.len() / outputs], &rows),
                stored("weight_scale", &shape),
                Dense { name: at("weight_shape"), dtype: "I64", shape: vec![2], bytes: sizes },
            ];
            if zeros {
                let of_group =
                    |group: usize| string(bits, (0..outputs).map(|output| zero(output * groups + group)));
                let columns: Vec<Vec<u32>> = (0..groups).map(of_group).collect();
                let words = columns[0].len();
                let all_words: Vec<u32> =
                    (0..words * groups).map(|i| columns[i % groups][i / groups]).collect();
                all.push(Dense::words(&at("weight_zero_point"), &[words, groups], &all_words));
            }
            if way.share == Share::Index {
                let of: Vec<u32> = (0..inputs).map(|input| index(input) as u32).collect();
                all.push(Dense::words(&at("weight_g_idx"), &[inputs], &of));
            }
            let value = |i: usize| match zeros {
                true => number(i) as f32 - zero(shared(i)) as f32,
                false => number(i) as f32 - (1u32 << (bits - 1)) as f32,
            };
            (all, (0..count).map(value).collect(), (0..count).map(|i| rounded(floats[shared(i)])).collect())
        }
        Kind::Bytes { zeros } => {
            let zero = |i: usize| (any(11 * i + 5) % 256) as u8 as i8;
            let numbers: Vec<u8> = (0..count).map(|i| code(i) as u8).collect();
            let mut all =
                vec![bytes(at("weight"), "I8", &[outputs, inputs], numbers), stored("weight_scale", &shape)];
            if zeros {
                let points = (0..scales).map(|i| zero(i) as u8).collect();
                all.push(bytes(at("weight_zero_point"), "I8", &shape, points));
            }
            let value = |i: usize| {
                f32::from(code(i) as u8 as i8) - if zeros { f32::from(zero(shared(i))) } else { 0.0 }
            };
            (all, (0..count).map(value).collect(), (0..count).map(|i| rounded(floats[shared(i)])).collect())
        }
        Kind::Largest => {
            let numbers = (0..count).map(|i| code(i) as u8).collect();
            let all = vec![
                bytes(at("weight"), "I8", &[outputs, inputs], numbers),
                Dense::floats(&at("SCB"), &[outputs], &floats),
                bytes(at("weight_format"), "U8", &[1], vec![0]),
            ];
            let value = |i: usize| f32::from(code(i) as u8 as i8);
            (all, (0..count).map(value).collect(), (0..count).map(|i| floats[shared(i)] / 127.0).collect())
        }
        Kind::Nvfp4 | Kind::ModelOpt => {
            let all = (0..scales).map(small).collect();
            let (packed, factor) = (way.kind == Kind::Nvfp4, 3.7e-4);
            let (codes, of_matrix, number) = match packed {
                true => ("weight_packed", "weight_global_scale", 1.0 / factor),
                false => ("weight", "weight_scale_2", factor),
            };
            let all = vec![
                bytes(at(codes), "U8", &[outputs, inputs / 2], nibbles(0)),
                bytes(at("weight_scale"), "F8_E4M3", &shape, all),
                Dense::floats(&at(of_matrix), if packed { &[1] } else { &[] }, &[number]),
                Dense::floats(&at("input_scale"), &[], &[0.5]),
            ];
            let scale = |i: usize| e4m3(small(shared(i))) * factor;
            (all, (0..count).map(e2m1).collect(), (0..count).map(scale).collect())
        }
        Kind::Mxfp4 | Kind::Quark | Kind::Mxfp8 => {
            let power = |i: usize| 110 + (any(i) % 16) as u8;
            let number = |i: usize| (code(i) % 0x7f) as u8 | ((code(i) >> 8) as u8 & 0x80);
            let codes = match way.kind {
                Kind::Mxfp4 => bytes(at("weight_packed"), "U8", &[outputs, inputs / 2], nibbles(0)),
                Kind::Quark => bytes(at("weight"), "U8", &[outputs, inputs / 2], nibbles(0)),
                _ => bytes(at("weight"), "F8_E4M3", &[outputs, inputs], (0..count).map(number).collect()),
            };
            let all = vec![codes, bytes(at("weight_scale"), "U8", &shape, (0..scales).map(power).collect())];
            let scale = |i: usize| 2f32.powi(i32::from(power(shared(i))) - 127);
            let value = |i: usize| match way.kind {
                Kind::Mxfp8 if number(i) < 0x80 => e4m3(number(i)),
                Kind::Mxfp8 => -e4m3(number(i) & 0x7f),
                _ => e2m1(i),
            };
            (all, (0..count).map(value).collect(), (0..count).map(scale).collect())
        }
        Kind::Table { nested } => {
            let numbers: Vec<f32> = (0..16).map(|i| (any(i) % 2000) as f32 / 1000.0 - 1.0).collect();
            let map: Vec<f32> = (0..256).map(|i| (any(i + 16) % 2000) as f32 / 1000.0 - 1.0).collect();
            let outer: Vec<f32> =
                (0..scales.div_ceil(256)).map(|i| 0.01 + (any(i) % 100) as f32 / 5000.0).collect();
            let of = |end: &str| at(&format!("weight.{end}"));
            let state = format!(
                r#"{{"quant_type":"nf4","blocksize":64,"dtype":"bfloat16","shape":[{outputs},{inputs}]{}}}"#,
                if nested {
                    r#","nested_blocksize":256,"nested_dtype":"float32","nested_offset":0.045"#
                } else {
                    ""
                }
            );
            let mut all = vec![
                bytes(at("weight"), "U8", &[count.div_ceil(2), 1], nibbles(4)),
                Dense::floats(&of("quant_map"), &[16], &numbers),
                bytes(of("quant_state.bitsandbytes__nf4"), "U8", &[state.len()], state.into_bytes()),
            ];
            let largest = |i: usize| (any(i) >> 3) as u8;
            if nested {
                all.push(bytes(of("absmax"), "U8", &[scales], (0..scales).map(largest).collect()));
                all.push(Dense::floats(&of("nested_absmax"), &[outer.len()], &outer));
                all.push(Dense::floats(&of("nested_quant_map"), &[256], &map));
            } else {
                all.push(Dense::floats(&of("absmax"), &[scales], &floats));
            }
            let scale = |i: usize| match shared(i) {
                at if nested => map[usize::from(largest(at))] * outer[at / 256] + 0.045,
                at => floats[at],
            };
            let value = |i: usize| numbers[code(i) as usize & 15];
            (all, (0..count).map(value).collect(), (0..count).map(scale).collect())
        }
    };
    let weights: Vec<f32> = values.iter().zip(&scale).map(|(value, scale)| value * scale).collect();
    Written { off: off(way, &weights, &scale), tensors, weights }
}

/// By how much each weight may be off.
fn off(way: Way, weights: &[f32], scales: &[f32]) -> Vec<f32> {
    const HALF: f32 = 1.0 / 2048.0;
    let in_blocks = |i: usize| {
        let (weight, scale) = (weights[i].abs(), scales[i]);
        match way.kind {
            Kind::Mxfp4 | Kind::Quark => 0.0,
            Kind::Nvfp4 | Kind::ModelOpt => {
                let block = &scales[i / 256 * 256..][..256];
                let largest = block.iter().fold(0f32, |most, &scale| most.max(scale));
                // Of a small scale, 6 is the largest number.
                weight * 1.01 * HALF + if scale < largest / 8.0 { 6.0 * largest / 128.0 } else { 0.0 }
            }
            Kind::Packed { bits: 4, zeros: true } => weight * HALF + 15.0 * HALF * scale,
            _ if way.dtype == "F32" => weight * 1.01 * HALF,
            _ => 0.0,
        }
    };
    let in_halves = |i: usize| weights[i].abs() * 1.01 * HALF + 1e-7;
    let blocks = way.format() != QuantFormat::F16;
    (0..weights.len()).map(|i| if blocks { in_blocks(i) } else { in_halves(i) }).collect()
}

fn wide() -> Tiny {
    Tiny { hidden: 256, heads: 8, intermediate: 512, layers: 2, ..Tiny::new("llama", None) }
}

/// Weights are those that the tensors mean, in the format that holds them.
#[test]
fn codes_with_scales() {
    for way in ways() {
        assert_stored(&wide(), &format!("{way:?}"), "{}", way.format(), |name, outputs, inputs| {
            written(way, name, outputs, inputs)
        });
    }
    // Blocks of bitsandbytes that begin and end within rows of 96 inputs.
    for nested in [false, true] {
        let way = Way { kind: Kind::Table { nested }, share: Share::Group(64), dtype: "F32" };
        let tiny = Tiny::new("llama", None);
        assert_stored(&tiny, &format!("narrow {way:?}"), "{}", QuantFormat::F16, |name, outputs, inputs| {
            written(way, name, outputs, inputs)
        });
    }
}

/// What a file with one matrix says of it, and the rows of its view.
fn of_file(tensors: &[Dense]) -> Vec<(String, Result<Vec<f32>, String>)> {
    let bytes = file(tensors);
    // In words, so that it is aligned.
    let words: Vec<u64> = bytes
        .chunks(8)
        .map(|c| u64::from_le_bytes(std::array::from_fn(|i| c.get(i).copied().unwrap_or(0))))
        .collect();
    // SAFETY: the words have these bytes, and lie still.
    let aligned = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), bytes.len()) };
    let checkpoint = Checkpoint::from_bytes(aligned, Quantisation::default()).unwrap();
    let of = |view: &View<'_>| match view {
        View::Codes(w) => {
            let mut rows = vec![f32::NAN; w.outputs() * w.inputs()];
            for (i, row) in rows.chunks_exact_mut(w.inputs().max(1)).enumerate() {
                w.row(i, row)?;
            }
            assert!(w.row(w.outputs(), &mut vec![0.0; w.inputs()]).is_err());
            Ok(rows)
        }
        other => Err(format!("{other:?}")),
    };
    let weights = checkpoint.weights();
    weights.iter().map(|w| (w.kind.clone(), w.view.as_ref().map_err(Clone::clone).and_then(of))).collect()
}

/// Spoils a tensor, by its number.
type Change = fn(&mut Vec<Dense>, usize);

/// A file with a matrix of each kind lists it as one weight; tensors that are missing, of another type or of another size are errors, not panics.
#[test]
fn codes_that_do_not_fit() {
    for way in ways() {
        let Written { tensors, weights, .. } = written(way, "m", 32, 64);
        let sorted = |mut tensors: Vec<Dense>| {
            tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.element()));
            of_file(&tensors)
        };
        let found = sorted(tensors.clone());
        let kind = match way.kind {
            Kind::Packed { bits, .. } => format!("int{bits}"),
            Kind::Bytes { .. } | Kind::Largest => "int8".to_owned(),
            Kind::Nvfp4 | Kind::ModelOpt => "nvfp4".to_owned(),
            Kind::Mxfp4 | Kind::Quark => "mxfp4".to_owned(),
            Kind::Mxfp8 => "mxfp8".to_owned(),
            Kind::Table { .. } => "nf4".to_owned(),
        };
        assert_eq!(found.len(), 1, "{way:?}: {found:?}");
        assert_eq!(found[0].0, kind, "{way:?}");
        let rows = found[0].1.as_ref().unwrap_or_else(|e| panic!("{way:?}: {e}"));
        for (i, (got, want)) in rows.iter().zip(&weights).enumerate() {
            assert!(
                (got - want).abs() <= 1e-6 * want.abs(),
                "{way:?}: weight {i} is {got} instead of {want}"
            );
        }
        let changes: [(&str, Change); 4] = [
            ("missing", |all, i| _ = all.remove(i)),
            ("shorter", |all, i| {
                let tensor = &mut all[i];
                if let Some(n) = tensor.shape.first_mut().filter(|n| **n > 0) {
                    let row = tensor.bytes.len() / *n;
                    *n -= 1;
                    tensor.bytes.truncate(row * *n);
                }
            }),
            ("of another type", |all, i| {
                all[i].dtype = match all[i].dtype {
                    "F16" => "BF16",
                    "BF16" => "F16",
                    "F32" => "I32",
                    "I32" => "F32",
                    "I64" => "F64",
                    "U8" => "I8",
                    _ => "U8",
                }
            }),
            ("of one dimension", |all, i| all[i].shape = vec![all[i].shape.iter().product()]),
        ];
        for i in 0..tensors.len() {
            for (what, change) in changes {
                let (name, mut changed) = (tensors[i].name.clone(), tensors.clone());
                change(&mut changed, i);
                let found = sorted(changed);
                // What is not used, what means something else or the same then, and a matrix of another size.
                let optional = ["input_scale", "weight_format", "weight_zero_point", "weight_g_idx"];
                let harmless = optional.iter().any(|end| name.ends_with(end))
                    || what == "of another type"
                        && (name.ends_with("weight_scale") || name.contains("quant_state"))
                    || what == "of one dimension"
                    || tensors[i].shape.is_empty() && what == "shorter"
                    || what == "shorter" && name == "m.weight" && way.share == Share::Whole;
                let refused = found.iter().any(|(_, rows)| rows.is_err()) || found.is_empty();
                assert!(refused || harmless, "{way:?}, {name} is {what}");
            }
        }
    }
}

/// Scales that f16 cannot hold to its digits: then weights are in f16 themselves.
#[test]
fn scales_beyond_halves() {
    let tiny = wide();
    for (factor, format) in [(1.0, QuantFormat::Q4_0), (2f32.powi(-14), QuantFormat::F16)] {
        let way = Way { kind: Kind::Packed { bits: 4, zeros: false }, share: Share::Group(32), dtype: "F32" };
        assert_stored(&tiny, &format!("{way:?} times {factor}"), "{}", format, |name, outputs, inputs| {
            let Written { mut tensors, weights, .. } = written(way, name, outputs, inputs);
            let scale = tensors.iter_mut().find(|tensor| tensor.name.ends_with("weight_scale")).unwrap();
            for number in scale.bytes.chunks_exact_mut(4) {
                let x = f32::from_le_bytes([number[0], number[1], number[2], number[3]]) * factor;
                number.copy_from_slice(&x.to_le_bytes());
            }
            let weights: Vec<f32> = weights.iter().map(|w| w * factor).collect();
            // Half a unit of the last place of f16, above and below the least normal number.
            let off = weights.iter().map(|w| w.abs() / 2000.0 + 2f32.powi(-25)).collect();
            Written { tensors, weights, off }
        });
    }
}

/// Scales of caches are not read; rotations of activations are refused; a scale that is not a number is.
#[test]
fn what_else_belongs_to_them() {
    let tiny = wide();
    let way = Way { kind: Kind::Nvfp4, share: Share::Group(16), dtype: "F8_E4M3" };
    let open = |quantisation: &str, change: &dyn Fn(&mut Vec<Dense>)| {
        let folder = Folder::new("what else belongs to codes");
        let json = config(&tiny);
        folder
            .config(&format!("{},\"quantization_config\":{quantisation}}}", json.strip_suffix('}').unwrap()));
        let mut tensors = Vec::new();
        for tensor in Dense::of(&tiny, &tiny.open()) {
            match tensor.name.strip_suffix("_proj.weight") {
                Some(_) => {
                    let name = tensor.name.strip_suffix(".weight").unwrap();
                    tensors.extend(written(way, name, tensor.shape[0], tensor.shape[1]).tensors);
                }
                None => tensors.push(tensor),
            }
        }
        change(&mut tensors);
        tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.element()));
        folder.tensors(&tensors, 1);
        Model::open(folder.path()).map(|_| ()).map_err(|e| e.to_string())
    };
    let caches = |tensors: &mut Vec<Dense>| {
        for name in ["self_attn.k_scale", "self_attn.v_scale", "self_attn.k_proj.k_scale"] {
            tensors.push(Dense::floats(&format!("model.layers.0.{name}"), &[1], &[0.5]));
        }
    };
    open(r#"{"quant_method":"compressed-tensors","transform_config":{}}"#, &caches).unwrap();
    let rotated = r#"{"quant_method":"compressed-tensors","transform_config":{"config_groups":{"u":{}}}}"#;
    let error = open(rotated, &|_| ()).unwrap_err();
    assert!(error.contains("transform_config"), "{error}");
    let infinite = |tensors: &mut Vec<Dense>| {
        let scale = tensors.iter_mut().find(|t| t.name == "model.layers.0.mlp.up_proj.weight_scale").unwrap();
        // Of output 5, its second group.
        scale.bytes[5 * 256 / 16 + 1] = 0x7f;
    };
    let error = open("{}", &infinite).unwrap_err();
    assert!(error.contains("up_proj") && error.contains("output 5, input 16"), "{error}");
}
