//! GGUF files with matrices in NVFP4 that have a scale for the whole matrix, or for each expert.

use std::path::Path;

use gllm_kernels_std::core::QuantFormat;
use gllm_kernels_std::gguf::{GgmlType, Gguf, Writer};
use gllm_kernels_std::model::{Model, ModelError};

use super::folder::Folder;
use super::quantised::{any, matrices};
use super::tiny::Tiny;
use super::{assert_alike, logits, numbers};

/// A tensor's name, dimensions, type and bytes.
type Tensor = (String, Vec<u64>, GgmlType, Vec<u8>);

/// The scale of a matrix, of expert `e`.
fn scale(matrix: usize, e: usize) -> f32 {
    0.3 + (any(17 * matrix + e) % 64) as f32 / 32.0
}

/// Writes a small model anew, with a scale beside each matrix in NVFP4, and changed as is asked for.
fn with_scales(tiny: &Tiny, path: &Path, change: impl Fn(&mut Vec<Tensor>)) {
    tiny.write(path);
    let file = Gguf::read(path).unwrap();
    let mut writer = Writer::new();
    writer.copy_metadata(&file).unwrap();
    let mut all: Vec<Tensor> = Vec::new();
    for (i, tensor) in file.tensors().enumerate() {
        let (name, dims) = (tensor.name(), tensor.dims().to_vec());
        if let Some(base) = name.strip_suffix(".weight").filter(|_| tensor.ggml_type() == GgmlType::NVFP4) {
            let experts = dims.get(2).copied().unwrap_or(1);
            let scales = (0..experts as usize).flat_map(|e| scale(i, e).to_le_bytes()).collect();
            all.push((format!("{base}.scale"), vec![experts], GgmlType::F32, scales));
            all.push((format!("{base}.input_scale"), vec![1], GgmlType::F32, 0.5f32.to_le_bytes().to_vec()));
        }
        all.push((name.to_owned(), dims, tensor.ggml_type(), tensor.data().unwrap().to_vec()));
    }
    change(&mut all);
    all.iter().for_each(|(name, dims, of, _)| writer.add_tensor(name, dims, *of).unwrap());
    let mut to = writer.create(path, true).unwrap();
    all.iter().for_each(|(.., bytes)| to.write(bytes).unwrap());
    to.finish().unwrap();
}

/// Weights are those of the blocks times the scale, and what is computed is what they give.
#[test]
fn scales_of_whole_matrices() {
    let small = |architecture| Tiny { layers: 2, ..Tiny::new(architecture, Some(QuantFormat::Nvfp4)) };
    let wide = |tiny| Tiny { hidden: 256, heads: 8, intermediate: 512, ..tiny };
    for (tiny, format) in [
        (wide(small("llama")), QuantFormat::Q6K),
        (Tiny { intermediate: 128, ..small("llama") }, QuantFormat::F16),
        (wide(small("qwen3moe")), QuantFormat::Q6K),
    ] {
        let folder = Folder::new(&format!("scaled {} {}", tiny.architecture, tiny.hidden));
        let path = folder.path().join("model.gguf");
        with_scales(&tiny, &path, |_| ());
        let model = Model::open(&path).unwrap();
        assert!(model.unused().is_empty(), "{:?}", model.unused());
        let plain = folder.path().join("plain.gguf");
        tiny.write(&plain);
        // The place of a matrix in the file says its scale.
        let file = Gguf::read(&plain).unwrap();
        let factor_of = |name: &str| {
            let own = name.split('.').collect::<Vec<_>>();
            let (expert, role) = match own[..] {
                ["mlp", "experts", e, role] => (e.parse().unwrap(), format!("ffn_{role}_exps")),
                ["mlp", role] => (0, format!("ffn_{role}")),
                [_, "o"] => (0, "attn_output".to_owned()),
                [_, role] => (0, format!("attn_{role}")),
                _ => panic!("{name}"),
            };
            let full = format!("blk.1.{role}.weight");
            scale(file.tensors().position(|tensor| tensor.name() == full).unwrap(), expert)
        };
        let unscaled = Model::open(&plain).unwrap();
        let (got, want) = (model.weights().unwrap(), unscaled.weights().unwrap());
        let both = matrices(&got.layers[1]).into_iter().zip(matrices(&want.layers[1]));
        for ((name, got), (_, want)) in both {
            assert_eq!(got.format(), Some(format), "{name}");
            let factor = factor_of(&name);
            let (got, want) = (numbers(got), numbers(want));
            // Scales of 256 weights of one size are near each other: all of them are held.
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let want = factor * want;
                assert!(
                    (got - want).abs() <= want.abs() / 500.0,
                    "{name}: weight {i} is {got} instead of {want}"
                );
            }
        }
        // Scales of 1 change nothing.
        with_scales(&tiny, &path, |all| {
            for (.., bytes) in all.iter_mut().filter(|(name, ..)| name.ends_with(".scale")) {
                bytes.chunks_exact_mut(4).for_each(|number| number.copy_from_slice(&1f32.to_le_bytes()));
            }
        });
        let of_ones = Model::open(&path).unwrap();
        assert_alike(&logits(&of_ones), &logits(&unscaled), tiny.architecture);
    }
}

/// Scales that do not fit their matrix, that are not finite, or that belong to other formats.
#[test]
fn scales_that_do_not_fit() {
    // It has no output matrix of its own.
    let tiny = Tiny { tied: true, intermediate: 128, ..Tiny::new("llama", Some(QuantFormat::Nvfp4)) };
    let folder = Folder::new("scales that do not fit");
    let path = folder.path().join("model.gguf");
    let refused = |change: &dyn Fn(&mut Tensor)| {
        with_scales(&tiny, &path, |all| {
            all.iter_mut().filter(|(name, ..)| name == "blk.1.ffn_up.scale").for_each(change);
        });
        match Model::open(&path) {
            Err(ModelError::BadTensor { name, problem }) => (name, problem),
            other => panic!("{other:?}"),
        }
    };
    let (name, problem) = refused(&|(_, dims, _, bytes)| {
        *dims = vec![2];
        bytes.extend(1f32.to_le_bytes());
    });
    assert!(name == "blk.1.ffn_up.weight" && problem.contains("2 numbers"), "{name}: {problem}");
    let (name, problem) = refused(&|(.., bytes)| bytes.copy_from_slice(&f32::INFINITY.to_le_bytes()));
    assert!(name == "blk.1.ffn_up.scale" && problem.contains("inf at element 0"), "{name}: {problem}");
    // Of a norm, which is not in NVFP4, and of a matrix that is not there.
    let (name, _) = refused(&|(name, ..)| *name = "blk.1.ffn_norm.scale".to_owned());
    assert_eq!(name, "blk.1.ffn_norm.scale");
    let (name, _) = refused(&|(name, ..)| *name = "output.scale".to_owned());
    assert_eq!(name, "output.scale");
}
