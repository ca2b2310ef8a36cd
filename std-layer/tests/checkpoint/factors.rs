// Factors that configurations have for matrices.

use gllm_kernels_std::core::{f16, QuantFormat};
use gllm_kernels_std::model::Model;

use super::folder::{config, Dense, Folder};
use super::tiny::Tiny;
use super::{assert_alike, logits};

/// Factors of Falcon-H1, all of which are powers of 2: products with them are what they were, and have 16 bits if matrices have.
#[test]
fn factors() {
    let all = [
        ("attention_in_multiplier", "0.5"),
        ("key_multiplier", "0.5"),
        ("attention_out_multiplier", "0.25"),
        ("ssm_out_multiplier", "0.5"),
        ("lm_head_multiplier", "0.125"),
        ("embedding_multiplier", "4"),
        ("mlp_multipliers", "[0.5,0.125]"),
        ("ssm_multipliers", "[0.5,0.25,2,4,0.125]"),
        ("ssm_in_multiplier", "2"),
    ];
    let by_rows = [(96, 1.0), (96, 0.5), (64, 4.0), (64, 8.0), (6, 0.25)];
    for format in [None, Some(QuantFormat::F16)] {
        let tiny = Tiny { plain: true, ..Tiny::new("falcon-h1", format) };
        let gguf = tiny.open();
        let mut tensors = Dense::of(&tiny, &gguf);
        for tensor in tensors.iter_mut().filter(|tensor| tensor.shape.len() == 2) {
            let factor = |row: usize| {
                let name = |part: &str| tensor.name.contains(part);
                let mut start = 0;
                let part = by_rows.iter().find(|(n, _)| {
                    start += n;
                    row < start
                });
                match () {
                    () if name(".mamba.in_proj.") => part.unwrap().1,
                    () if name(".k_proj.") || name(".o_proj.") => 0.25,
                    () if name(".q_proj.") || name(".v_proj.") => 0.5,
                    () if name(".mamba.out_proj.") || name(".gate_proj.") => 0.5,
                    () if name("lm_head.") || name(".down_proj.") => 0.125,
                    () if name(".embed_tokens.") => 4.0,
                    () => 1.0f32,
                }
            };
            let (size, cols) = (tensor.element(), tensor.shape[1]);
            let scaled = tensor.bytes.chunks(size).enumerate().flat_map(|(i, x)| {
                let by = 1.0 / factor(i / cols);
                match size {
                    4 => (f32::from_le_bytes(x.try_into().unwrap()) * by).to_le_bytes().to_vec(),
                    _ => {
                        let x = f16::from_le_bytes(x.try_into().unwrap());
                        f16::from_f32(x.to_f32() * by).to_le_bytes().to_vec()
                    }
                }
            });
            tensor.bytes = scaled.collect();
        }
        let json = all.iter().fold(config(&tiny), |json, (key, value)| {
            json.replacen('{', &format!(r#"{{"{key}":{value},"#), 1)
        });
        let json = json.replace(r#","ssm_out_multiplier":1.0,"mlp_multipliers":[1,1]"#, "");
        let folder = Folder::new("factors");
        folder.config(&json);
        folder.tensors(&tensors, 1);
        let model = Model::open(folder.path()).unwrap_or_else(|e| panic!("{e}"));
        assert_alike(&logits(&model), &logits(&gguf), "factors");
        // Rows without factors, and wrong lists.
        for (from, to, problem) in [
            ("[0.5,0.125]", "[0.5]", "mlp_multipliers is [0.5]: it must have 2 positive numbers"),
            (
                r#""mamba_d_ssm":96"#,
                r#""mamba_d_ssm":64"#,
                "mamba_d_ssm is 64, but all heads have 96 elements",
            ),
            (
                r#""key_multiplier":0.5"#,
                r#""key_multiplier":-1"#,
                "key_multiplier is missing, or is no positive number",
            ),
        ] {
            folder.config(&json.replace(from, to));
            let error = Model::open(folder.path()).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
