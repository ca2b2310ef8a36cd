//! Experts of gpt-oss, of which checkpoints have those of a layer in one tensor.

use gllm_kernels_std::core::QuantFormat;
use gllm_kernels_std::model::{ExpertWeights, Matrix, Model, Network};

use super::folder::{config, Dense, Folder};
use super::numbers;
use super::tiny::Tiny;

/// The matrix that an output belongs to, and its row there.
type Output = for<'a> fn(&Network<'a>, usize) -> (Matrix<'a>, usize);
/// Gate and up take turns.
fn gate_up<'a>(of: &Network<'a>, output: usize) -> (Matrix<'a>, usize) {
    (if output.is_multiple_of(2) { of.gate.unwrap() } else { of.up }, output / 2)
}
fn down<'a>(of: &Network<'a>, output: usize) -> (Matrix<'a>, usize) {
    (of.down, output)
}
const TENSORS: [(&str, Output); 2] = [("gate_up_proj", gate_up), ("down_proj", down)];

/// The tensors of a layer's network.
pub fn experts(of: &ExpertWeights<'_>, at: &str) -> Vec<Dense> {
    let count = of.each.len();
    let (intermediate, hidden) = (of.each[0].up.rows(), of.each[0].down.rows());
    let router = of.router;
    let name = |end: &str| format!("{at}.{end}");
    let mut all = vec![
        Dense::stored(&name("router.weight"), router.format(), &[count, hidden], &numbers(router)),
        Dense::floats(&name("router.bias"), &[count], of.router_bias.as_ref().unwrap()),
    ];
    let [gate, up, down] = of.biases.as_ref().unwrap();
    let gate_up: Vec<f32> = gate.iter().zip(up).flat_map(|(&gate, &up)| [gate, up]).collect();
    all.push(Dense::floats(&name("experts.gate_up_proj_bias"), &[count, 2 * intermediate], &gate_up));
    all.push(Dense::floats(&name("experts.down_proj_bias"), &[count, hidden], down));
    for ((end, output), [outputs, inputs]) in
        TENSORS.into_iter().zip([[2 * intermediate, hidden], [hidden, intermediate]])
    {
        let name = name(&format!("experts.{end}"));
        let format = output(&of.each[0], 0).0.format();
        let rows = of.each.iter().flat_map(|expert| (0..outputs).map(move |o| output(expert, o)));
        if format == Some(QuantFormat::Mxfp4) {
            let rows = rows.map(|(matrix, row)| matrix.row_range(row, 1).unwrap());
            let (blocks, scales) = blocks(rows);
            all.push(bytes(&format!("{name}_blocks"), &[count, outputs, inputs / 32, 16], blocks));
            all.push(bytes(&format!("{name}_scales"), &[count, outputs, inputs / 32], scales));
            continue;
        }
        let rows: Vec<_> = rows.map(|(matrix, row)| numbers(matrix.row_range(row, 1).unwrap())).collect();
        let of_expert = |rows: &[Vec<f32>]| -> Vec<f32> {
            (0..inputs).flat_map(|i| rows.iter().map(move |row| row[i])).collect()
        };
        let transposed: Vec<f32> = rows.chunks(outputs).flat_map(of_expert).collect();
        all.push(Dense::stored(&name, format, &[count, inputs, outputs], &transposed));
    }
    all
}

/// Codes and scales of rows in MXFP4. A block of GGUF files has a scale, and codes `i` and `i + 16` in byte `i`; a checkpoint's has codes `2 i` and
/// `2 i + 1` there.
fn blocks<'a>(rows: impl Iterator<Item = Matrix<'a>>) -> (Vec<u8>, Vec<u8>) {
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for row in rows {
        let Matrix::Quantised(row) = row else { panic!("not quantised") };
        for block in row.as_bytes().chunks_exact(17) {
            let code = |i: usize| block[1 + i % 16] >> (i / 16 * 4) & 15;
            scales.push(block[0]);
            codes.extend((0..16).map(|i| code(2 * i) | code(2 * i + 1) << 4));
        }
    }
    (codes, scales)
}

fn bytes(name: &str, shape: &[usize], bytes: Vec<u8>) -> Dense {
    Dense { name: name.to_owned(), dtype: "U8", shape: shape.to_vec(), bytes }
}

fn tiny(format: Option<QuantFormat>) -> Tiny {
    Tiny { experts_scale: 1.0, ..Tiny::new("gpt-oss", format) }
}

/// Numbers are those that the format's definition gives: `FP4[code] * 2^(scale - 127)`. Blocks and scales are any, and may be in different files.
#[test]
fn numbers_of_blocks() {
    const FP4: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let tiny = tiny(Some(QuantFormat::Mxfp4));
    let gguf = tiny.open();
    let mut tensors = Dense::of(&tiny, &gguf);
    let mut state = 1u32;
    let mut any = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    for tensor in tensors.iter_mut().filter(|tensor| tensor.dtype == "U8") {
        let scales = tensor.name.ends_with("_scales");
        tensor.bytes.iter_mut().for_each(|b| *b = if scales { 100 + any() % 50 } else { any() });
    }
    for shards in 1..=tensors.len() {
        // All cuts between files, and few models.
        if shards > 4 && shards < tensors.len() {
            continue;
        }
        let folder = Folder::new(&format!("blocks {shards}"));
        folder.config(&config(&tiny));
        folder.tensors(&tensors, shards);
        let model = Model::open(folder.path()).unwrap();
        assert_eq!(model.unused(), [""; 0]);
        model.verify().unwrap();
        for (l, layer) in model.weights().unwrap().layers.iter().enumerate() {
            for (name, output) in TENSORS {
                let of = |end: &str| {
                    let name = format!("model.layers.{l}.mlp.experts.{name}_{end}");
                    tensors.iter().find(|tensor| tensor.name == name).unwrap()
                };
                let (blocks, scales) = (of("blocks"), of("scales"));
                let (outputs, inputs) = (scales.shape[1], 32 * scales.shape[2]);
                for (e, expert) in layer.experts.as_ref().unwrap().each.iter().enumerate() {
                    for o in 0..outputs {
                        let (matrix, row) = output(expert, o);
                        assert_eq!(matrix.format(), Some(QuantFormat::Mxfp4));
                        let first = (e * outputs + o) * inputs;
                        let want = (first..first + inputs).map(|i| {
                            let code = blocks.bytes[i / 2] >> (i % 2 * 4) & 15;
                            let sign = if code < 8 { 1.0 } else { -1.0 };
                            let scale = f32::from(scales.bytes[i / 32]) - 127.0;
                            sign * FP4[usize::from(code % 8)] * scale.exp2()
                        });
                        let got = numbers(matrix.row_range(row, 1).unwrap());
                        assert_eq!(
                            got,
                            want.collect::<Vec<_>>(),
                            "layer {l}, {name}, expert {e}, output {o}"
                        );
                    }
                }
            }
        }
    }
}

/// The configuration: windows in every second layer, positions scaled by YaRN, three tokens that end texts.
#[test]
fn configurations() {
    let tiny = tiny(None);
    let gguf = tiny.open();
    let folder = Folder::new("gpt-oss");
    folder.tensors(&Dense::of(&tiny, &gguf), 1);
    let yarn = r#"{"rope_type":"yarn","factor":32.0,"beta_fast":32.0,"beta_slow":1.0,"original_max_position_embeddings":4096,"truncate":false}"#;
    let json = config(&tiny).replace(r#""rope_scaling":null"#, &format!(r#""rope_scaling":{yarn}"#));
    let kinds = concat!(
        r#""layer_types":["sliding_attention","full_attention","sliding_attention"],"eos_token_id":[7,8,9],"#,
        r#""quantization_config":{"modules_to_not_convert":["model.layers.*.self_attn","lm_head"],"quant_method":"mxfp4"},"#,
        r#""experts_per_token":3,"initial_context_length":4096,"attention_bias":true"#,
    );
    for json in [json.clone(), json.replace(r#""swiglu_limit":7.0"#, kinds)] {
        folder.config(&json);
        let model = Model::open(folder.path()).unwrap();
        let found = model.config();
        let windows: Vec<_> = found.layer.iter().map(|layer| layer.window).collect();
        assert_eq!(windows, [Some(24), None, Some(24)]);
        use gllm_kernels_std::core::RopeScaling;
        let (factor, beta_fast, beta_slow, original_context) = (32.0, 32.0, 1.0, 4096.0);
        let scaling = RopeScaling::Yarn { factor, beta_fast, beta_slow, original_context };
        assert_eq!((found.ropes.len(), found.ropes[0].scaling, found.context), (1, scaling, 131_072));
        let experts = found.experts.unwrap();
        assert_eq!((experts.count, experts.used, experts.intermediate), (6, 3, 96));
        assert!(experts.normalised && experts.biases && experts.scale == 1.0);
    }
}

/// Zeros are biases here, too: what programs that quantise write for nothing is left out in other models.
#[test]
fn biases_of_zeros() {
    let tiny = tiny(None);
    let gguf = tiny.open();
    let folder = Folder::new("zeros");
    folder.config(&config(&tiny));
    let mut tensors = Dense::of(&tiny, &gguf);
    for tensor in tensors.iter_mut().filter(|tensor| tensor.name.ends_with("o_proj.bias")) {
        tensor.bytes.fill(0);
    }
    folder.tensors(&tensors, 1);
    let model = Model::open(folder.path()).unwrap();
    assert_eq!(model.weights().unwrap().layers[0].output_bias, Some(vec![0.0; tiny.hidden]));
}

/// What is refused, in both forms, and what is said of it.
#[test]
fn refused() {
    type Edit = fn(&mut Vec<Dense>);
    fn of<'a>(all: &'a mut [Dense], end: &str) -> &'a mut Dense {
        all.iter_mut().find(|tensor| tensor.name.ends_with(end)).unwrap()
    }
    fn without(all: &mut Vec<Dense>, end: &str) {
        all.retain(|tensor| !tensor.name.ends_with(end));
    }
    let blocks: &[(Edit, &[&str])] = &[
        (
            |all| without(all, "1.mlp.experts.gate_up_proj_scales"),
            &["1.mlp.experts.gate_up_proj_scales is missing"],
        ),
        (
            |all| without(all, "1.mlp.experts.down_proj_blocks"),
            &["1.mlp.experts.down_proj_blocks is missing"],
        ),
        (
            |all| {
                ["blocks", "scales"]
                    .iter()
                    .for_each(|end| without(all, &format!("0.mlp.experts.gate_up_proj_{end}")))
            },
            &["0.mlp.experts.gate_up_proj.gate", "missing", "[64, 96, 6]"],
        ),
        (
            |all| of(all, "0.mlp.experts.gate_up_proj_blocks").shape = vec![6, 192, 1, 32],
            &["gate_up_proj", "[6, 192, 1, 32]", "[6, 192, 2]"],
        ),
        (
            |all| of(all, "0.mlp.experts.gate_up_proj_blocks").shape = vec![6, 192, 32],
            &["gate_up_proj", "[6, 192, 32]", "[6, 192, 2]"],
        ),
        (
            |all| of(all, "0.mlp.experts.down_proj_scales").shape = vec![6, 32, 6],
            &["down_proj", "[6, 64, 3, 16]", "[6, 32, 6]"],
        ),
        (
            |all| of(all, "0.mlp.experts.down_proj_scales").shape = vec![6, 192],
            &["down_proj", "[6, 64, 3, 16]", "[6, 192]"],
        ),
        (|all| of(all, "0.mlp.experts.down_proj_scales").dtype = "I8", &["down_proj_scales", "I8"]),
        (|all| of(all, "0.mlp.experts.gate_up_proj_blocks").dtype = "I8", &["gate_up_proj_blocks", "I8"]),
        // An odd number of outputs, no outputs, and experts and outputs exchanged.
        (
            |all| {
                of(all, "0.mlp.experts.gate_up_proj_blocks").shape = vec![384, 3, 2, 16];
                of(all, "0.mlp.experts.gate_up_proj_scales").shape = vec![384, 3, 2];
            },
            &["gate_up_proj", "[64, 3, 384]", "multiple of 2"],
        ),
        (
            |all| {
                for (end, shape) in [("blocks", vec![6, 0, 2, 16]), ("scales", vec![6, 0, 2])] {
                    let tensor = of(all, &format!("0.mlp.experts.gate_up_proj_{end}"));
                    (tensor.shape, tensor.bytes) = (shape, Vec::new());
                }
            },
            &["gate_up_proj", "[64, 0, 6]"],
        ),
        (
            |all| {
                of(all, "0.mlp.experts.gate_up_proj_blocks").shape = vec![192, 6, 2, 16];
                of(all, "0.mlp.experts.gate_up_proj_scales").shape = vec![192, 6, 2];
            },
            &["gate_up_proj.gate", "[64, 3, 192]", "[64, 96, 6]"],
        ),
    ];
    let floats: &[(Edit, &[&str])] = &[
        (|all| without(all, "2.mlp.experts.gate_up_proj"), &["2.mlp.experts.gate_up_proj.gate", "missing"]),
        (|all| without(all, "2.mlp.experts.down_proj_bias"), &["2.mlp.experts.down_proj_bias", "missing"]),
        (|all| without(all, "0.self_attn.sinks"), &["self_attn.sinks", "missing"]),
        (|all| of(all, "0.mlp.experts.gate_up_proj").shape = vec![6, 12288], &["[6, 12288]", "3 dimensions"]),
        (
            |all| of(all, "0.mlp.experts.gate_up_proj").shape = vec![6, 192, 64],
            &["gate_up_proj.gate", "[192, 32, 6]", "[64, 96, 6]"],
        ),
        (|all| of(all, "0.mlp.experts.down_proj").dtype = "U32", &["down_proj", "U32"]),
        (|all| of(all, "0.mlp.experts.gate_up_proj_bias").shape = vec![1152], &["[1152]", "2 dimensions"]),
        (
            |all| of(all, "0.mlp.experts.gate_up_proj_bias").shape = vec![384, 3],
            &["gate_up_proj_bias", "[3, 384]", "multiple of 2"],
        ),
        (
            |all| {
                all.push(Dense::floats(
                    "model.layers.0.mlp.experts.0.up_proj.weight",
                    &[96, 64],
                    &[0.0; 6144],
                ))
            },
            &["experts.0.up_proj.weight", "6 experts"],
        ),
    ];
    for (format, cases) in [(Some(QuantFormat::Mxfp4), blocks), (None, floats)] {
        let tiny = tiny(format);
        let gguf = tiny.open();
        let tensors = Dense::of(&tiny, &gguf);
        for (i, (edit, says)) in cases.iter().enumerate() {
            let folder = Folder::new(&format!("gpt-oss {format:?} {i}"));
            folder.config(&config(&tiny));
            let mut tensors = tensors.clone();
            edit(&mut tensors);
            folder.tensors(&tensors, 1);
            let said = Model::open(folder.path()).map(|_| ()).expect_err(&format!("{says:?}")).to_string();
            assert!(says.iter().all(|word| said.contains(word)), "{says:?}: {said}");
        }
    }
}
