//! Quantised matrices of checkpoints: which format they are stored in, and how near to the weights that the file means.

use gllm_kernels_std::core::{f16, QuantFormat};
use gllm_kernels_std::model::{LayerWeights, Matrix, Model};

use super::folder::{config, Dense, Folder};
use super::tiny::Tiny;
use super::{assert_alike, logits, numbers};

/// How a matrix is quantised.
#[derive(Clone, Copy, Debug)]
struct Way {
    method: &'static str,
    bits: u32,
    /// Inputs of a group.
    group: usize,
    /// The zero point of all groups, or any.
    zero: Option<u32>,
    /// Whether groups have inputs from anywhere.
    by_index: bool,
}

const AWQ: Way = Way { method: "awq", bits: 4, group: 32, zero: None, by_index: false };
const GPTQ: Way = Way { method: "gptq", zero: Some(8), ..AWQ };

/// What is expected: the format, and by how many scales a weight may be off.
const CASES: &[(Way, QuantFormat, f32)] = &[
    (AWQ, QuantFormat::Q4_1, 0.0074),
    (Way { zero: Some(8), ..AWQ }, QuantFormat::Q4_0, 0.0),
    (GPTQ, QuantFormat::Q4_0, 0.0),
    (Way { zero: None, ..GPTQ }, QuantFormat::Q4_1, 0.0074),
    (Way { bits: 2, zero: None, ..GPTQ }, QuantFormat::Q4_0, 0.0),
    (Way { bits: 3, zero: None, ..GPTQ }, QuantFormat::Q4_0, 0.0),
    (Way { bits: 8, zero: Some(128), ..GPTQ }, QuantFormat::Q8_0, 0.0),
    // Numbers beyond 8 bits, groups that blocks cross, groups by an index: in f16, half a unit of the last of 11 digits off.
    (Way { bits: 8, zero: None, ..GPTQ }, QuantFormat::F16, 0.125),
    (Way { group: 16, ..GPTQ }, QuantFormat::F16, 0.004),
    (Way { by_index: true, ..GPTQ }, QuantFormat::F16, 0.004),
];

/// Integers that look random.
pub fn any(i: usize) -> u32 {
    ((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

/// The tensors of a matrix, its weights, and the scale of each.
fn quantised(name: &str, outputs: usize, inputs: usize, way: Way) -> (Vec<Dense>, Vec<f32>, Vec<f32>) {
    let (levels, groups) = (1u32 << way.bits, inputs.div_ceil(way.group));
    let code = |k: usize, n: usize| any(k * outputs + n) % levels;
    // The stored zero point of GPTQ is one less, so that 0 means 1.
    let zero = |g: usize, n: usize| way.zero.unwrap_or(1 + any(7 * g + n) % (levels - 1));
    let scale = |g: usize, n: usize| f16::from_f32(0.02 + 0.01 * (any(g * outputs + n) % 97) as f32 / 97.0);
    let group = |k: usize| if way.by_index { k % groups } else { k / way.group };
    let at = |end: &str| format!("{name}.{end}");
    let scales: Vec<f32> = (0..groups * outputs).map(|i| scale(i / outputs, i % outputs).to_f32()).collect();
    let mut all = vec![Dense::halves(&at("scales"), &[groups, outputs], &scales)];
    if way.method == "awq" {
        const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];
        let word = |of: &dyn Fn(usize) -> u32| (0..8).fold(0, |w, i| w | of(ORDER[i]) << (4 * i));
        let words = outputs / 8;
        let q: Vec<u32> =
            (0..inputs * words).map(|i| word(&|o| code(i / words, i % words * 8 + o))).collect();
        let z: Vec<u32> =
            (0..groups * words).map(|i| word(&|o| zero(i / words, i % words * 8 + o))).collect();
        all.push(Dense::words(&at("qweight"), &[inputs, words], &q));
        all.push(Dense::words(&at("qzeros"), &[groups, words], &z));
    } else {
        // Strings of bits, the lowest first.
        let string = |n: usize, of: &dyn Fn(usize) -> u32| -> Vec<u32> {
            let mut words = vec![0u32; n * way.bits as usize / 32];
            for bit in 0..n * way.bits as usize {
                let (i, b) = (bit / way.bits as usize, bit % way.bits as usize);
                words[bit / 32] |= (of(i) >> b & 1) << (bit % 32);
            }
            words
        };
        let columns: Vec<Vec<u32>> = (0..outputs).map(|n| string(inputs, &|k| code(k, n))).collect();
        let rows = columns[0].len();
        let q: Vec<u32> = (0..rows * outputs).map(|i| columns[i % outputs][i / outputs]).collect();
        let z: Vec<u32> = (0..groups).flat_map(|g| string(outputs, &|n| zero(g, n) - 1)).collect();
        let index: Vec<u32> = (0..inputs).map(|k| group(k) as u32).collect();
        all.push(Dense::words(&at("qweight"), &[rows, outputs], &q));
        all.push(Dense::words(&at("qzeros"), &[groups, z.len() / groups], &z));
        all.push(Dense::words(&at("g_idx"), &[inputs], &index));
    }
    let of = |i: usize| (i / inputs, i % inputs);
    let each = (0..outputs * inputs).map(of);
    let scale_of = each.clone().map(|(n, k)| scale(group(k), n).to_f32()).collect();
    let weight =
        |(n, k): (usize, usize)| (code(k, n) as f32 - zero(group(k), n) as f32) * scale(group(k), n).to_f32();
    (all, each.map(weight).collect(), scale_of)
}

/// The matrices of a layer that are quantised, and their names.
pub fn matrices<'a>(layer: &LayerWeights<'a>) -> Vec<(String, Matrix<'a>)> {
    let mut all = vec![
        ("self_attn.q".to_owned(), layer.q),
        ("self_attn.k".to_owned(), layer.k),
        ("self_attn.v".to_owned(), layer.v),
        ("self_attn.o".to_owned(), layer.output),
    ];
    if let Some(network) = &layer.feed_forward {
        let of = [("gate", network.gate.unwrap()), ("up", network.up), ("down", network.down)];
        all.extend(of.map(|(name, matrix)| (format!("mlp.{name}"), matrix)));
    }
    for (e, network) in layer.experts.iter().flat_map(|experts| &experts.each).enumerate() {
        let of = ["gate", "up", "down"].into_iter().zip(network.matrices());
        all.extend(of.map(|(name, matrix)| (format!("mlp.experts.{e}.{name}"), matrix)));
    }
    all
}

#[test]
fn quantised_matrices() {
    for architecture in ["llama", "qwen3moe"] {
        // Networks have more outputs than are decoded at a time.
        let tiny =
            Tiny { hidden: 128, intermediate: 160, experts_scale: 1.0, ..Tiny::new(architecture, None) };
        quantised_matrices_of(&tiny);
    }
}

fn quantised_matrices_of(tiny: &Tiny) {
    for &(way, format, bound) in CASES {
        let config =
            format!(r#"{{"quant_method":"{}","bits":{},"group_size":{}}}"#, way.method, way.bits, way.group);
        assert_stored(tiny, &format!("{way:?}"), &config, format, |name, outputs, inputs| {
            let (tensors, weights, scales) = quantised(name, outputs, inputs, way);
            let off = scales.into_iter().map(|scale| bound * scale).collect();
            Written { tensors, weights, off }
        });
    }
}

/// A matrix of a checkpoint: its tensors, the weights that they mean, and by how much each may be off.
pub struct Written {
    pub tensors: Vec<Dense>,
    pub weights: Vec<f32>,
    pub off: Vec<f32>,
}

/// Writes each matrix of a model's layers by its name without the last part, outputs and inputs; opens it, and compares format and weights, and what is computed where these are exact.
pub fn assert_stored(
    tiny: &Tiny,
    way: &str,
    quantisation: &str,
    format: QuantFormat,
    write: impl Fn(&str, usize, usize) -> Written,
) {
    let dense = Dense::of(tiny, &tiny.open());
    let folder = Folder::new(&format!("{} {way}", tiny.architecture));
    let json = config(tiny);
    folder.config(&format!("{},\"quantization_config\":{quantisation}}}", json.strip_suffix('}').unwrap()));
    // Every matrix of the layers.
    let (mut tensors, mut expected) = (Vec::new(), Vec::new());
    for tensor in &dense {
        match tensor.name.strip_suffix("_proj.weight") {
            Some(_) => {
                let name = tensor.name.strip_suffix(".weight").unwrap();
                let Written { tensors: parts, weights, off } = write(name, tensor.shape[0], tensor.shape[1]);
                tensors.extend(parts);
                // As programs that quantise write them.
                let outputs = tensor.shape[0];
                tensors.push(Dense::halves(&format!("{name}.bias"), &[outputs], &vec![0.0; outputs]));
                expected.push((tensor.name.clone(), weights, off));
            }
            None => tensors.push(tensor.clone()),
        }
    }
    // As files have them: none begins where its numbers would not be aligned.
    tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.element()));
    folder.tensors(&tensors, 1);
    let model = Model::open(folder.path()).unwrap_or_else(|e| panic!("{way}: {e}"));
    let weights = model.weights().unwrap();
    for (name, matrix) in matrices(&weights.layers[1]) {
        let full = format!("model.layers.1.{name}_proj.weight");
        let (_, weights, off) = expected.iter().find(|(name, ..)| *name == full).unwrap();
        assert_eq!(matrix.format(), Some(format), "{way}, {full}");
        for (i, ((got, want), off)) in numbers(matrix).iter().zip(weights).zip(off).enumerate() {
            assert!((got - want).abs() <= *off, "{way}, {full}: weight {i} is {got} instead of {want}");
        }
    }
    // What is computed is what the same numbers in f32 give.
    if expected.iter().all(|(_, _, off)| off.iter().all(|&off| off == 0.0)) {
        let plain: Vec<Dense> = dense
            .iter()
            .map(|tensor| match expected.iter().find(|(name, ..)| *name == tensor.name) {
                Some((name, weights, _)) => Dense::floats(name, &tensor.shape, weights),
                None => tensor.clone(),
            })
            .collect();
        let of_floats = Folder::new(&format!("floats {} {way}", tiny.architecture));
        of_floats.config(&json);
        of_floats.tensors(&plain, 1);
        let floats = Model::open(of_floats.path()).unwrap();
        assert_alike(&logits(&model), &logits(&floats), way);
    }
}

/// A scale that is not a number is an error that says where.
#[test]
fn weights_that_are_not_finite() {
    let tiny = Tiny::new("llama", None);
    let gguf = tiny.open();
    let mut tensors: Vec<Dense> = Dense::of(&tiny, &gguf)
        .into_iter()
        .filter(|t| t.name != "model.layers.0.mlp.up_proj.weight")
        .collect();
    let (mut parts, ..) = quantised("model.layers.0.mlp.up_proj", tiny.intermediate, tiny.hidden, AWQ);
    // The scale of output 5 in the second group.
    let at = 2 * (tiny.intermediate + 5);
    parts[0].bytes[at..at + 2].copy_from_slice(&f16::INFINITY.to_le_bytes());
    tensors.extend(parts);
    let folder = Folder::new("infinite");
    folder.config(&config(&tiny));
    folder.tensors(&tensors, 1);
    let error = Model::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("up_proj") && error.contains("output 5, input 32"), "{error}");
}

/// A tensor in FP8, of whose matrices tiles of so many outputs and inputs have scales, and the numbers that this means.
pub fn fp8(tensor: &Dense, [down, across]: [usize; 2]) -> (Vec<Dense>, Vec<f32>) {
    let &[ref stack @ .., outputs, inputs] = &tensor.shape[..] else { panic!("no matrix") };
    let count: usize = stack.iter().product();
    let tiles = [outputs.div_ceil(down), inputs.div_ceil(across)];
    // Powers of 2, so that products have as many bits as numbers.
    let scales: Vec<f32> =
        (0..count * tiles[0] * tiles[1]).map(|i| 0.5f32.powi(3 + (any(i) % 4) as i32)).collect();
    let code = |i: usize| (any(i) % 0x7f) as u8 | ((any(i) >> 8) as u8 & 0x80);
    // Below 2^3: more than f16 has bits for would not be worth a test.
    let codes: Vec<u8> = (0..count * outputs * inputs).map(|i| code(i) & 0xbf).collect();
    let number = |(i, &code): (usize, &u8)| {
        let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7));
        let value = match exponent {
            0 => mantissa / 8.0 * 2f32.powi(-6),
            _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
        };
        let (row, input) = (i / inputs, i % inputs);
        let tile = (row / outputs * tiles[0] + row % outputs / down) * tiles[1] + input / across;
        if code < 0x80 {
            value * scales[tile]
        } else {
            -value * scales[tile]
        }
    };
    let numbers = codes.iter().enumerate().map(number).collect();
    let weight =
        Dense { name: tensor.name.clone(), dtype: "F8_E4M3", shape: tensor.shape.clone(), bytes: codes };
    let shape = [stack, &tiles].concat();
    (vec![weight, Dense::floats(&format!("{}_scale_inv", tensor.name), &shape, &scales)], numbers)
}
