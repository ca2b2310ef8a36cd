//! Multiplies the first Q4_K tensor of a GGUF file with 1, 7 and 300 rows of activations on all threads:
//! `cargo run --release -p gllm-kernels-std --example multiply -- MODEL.gguf`

use gllm_kernels_std::core::{MatMut, MatRef, Precision};
use gllm_kernels_std::gguf::{GgmlType, Gguf};
use gllm_kernels_std::Parallel;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("which GGUF file?")?;
    let file = Gguf::read(path)?;
    let tensor = file.tensors().find(|tensor| tensor.ggml_type() == GgmlType::Q4_K);
    let tensor = tensor.ok_or("the file has no tensor in Q4_K")?;
    let w = tensor.as_quant_ref()?;
    let (n, k) = (w.rows(), w.cols());
    let ops = Parallel::<f32>::global();
    for m in [1, 7, 300] {
        let x: Vec<f32> = (0..m * k).map(|i| (i as f32).sin()).collect();
        let mut y = vec![0.0; m * n];
        let plan = ops.kernels().qgemm_plan(w.format(), m, n, k, Precision::Fast)?;
        ops.qgemm(&plan, MatMut::new(&mut y, m, n)?, w, MatRef::new(&x, m, k)?, None)?;
        println!("{}: {m} x {k} times {n} x {k}: {:?} ..", tensor.name(), &y[..n.min(4)]);
    }
    Ok(())
}
