//! The commands: a file each, with its options and what it prints.

use std::path::Path;

use crate::cli::{Cli, Command};
use crate::error::{Failure, Outcome};

pub mod compare;
#[cfg(feature = "peer-ggml")]
mod compare_models;
pub mod embed;
pub mod everything;
pub mod generate;
pub mod info;
pub mod inspect;
pub mod list;
pub mod logits;
pub mod model;
pub mod perplexity;
pub mod quantize;
pub mod rerank;
pub mod run;
pub mod tokenize;
pub mod verify;

/// Below the options of `--help`. One line a paragraph: they are wrapped when they are shown.
pub(crate) const EXAMPLES: &str = "\
Examples:
  gllm-bench                                     machine, limits and every operator
  gllm-bench --html report.html                  the same, with charts for a browser
  gllm-bench run --op vec_dot --element bf16 --shape 1048576
  gllm-bench run --op gemm --shape 512x512x512 --threads 1 --isa avx2 --json
  gllm-bench run --op gemm,gemm_prepacked --element i8 --shape 1024x1024x1024
  gllm-bench run --op rms_norm,softmax --threads all --shape 1024x4096
  gllm-bench run --op qgemv_packed --format q4_k --shape 4096x11008 --without amx_int8
  gllm-bench compare --peer openblas
  gllm-bench compare --peer mkl --op gemm,gemm_prepacked --element bf16 --shape 2048x2048x2048 --threads 1
  gllm-bench compare --peer llama.cpp --model model.gguf
  gllm-bench inspect model.gguf
  gllm-bench quantize model-f16.gguf model-q4_k.gguf --format q4_k
  gllm-bench verify --isa scalar
  gllm-bench model model.gguf --prompt 128,512 --threads 1,all
  gllm-bench model model.gguf --sequences 1,4,16 --html model.html
  gllm-bench generate model.gguf --prompt 'The capital of France is' -n 32 --greedy
  gllm-bench embed embedding-model.gguf --text 'a cat' --text 'a kitten' --json
  gllm-bench rerank reranker.gguf --query 'What is red?' --text 'Grass is green.' --text 'Blood is red.'
  gllm-bench rerank reranker.gguf --query 'What is red?' --documents lines.txt --json
  gllm-bench perplexity model.gguf --file text.txt

Units:
  ns        nanoseconds per call, median of the samples
  GFLOP/s   10^9 floating-point operations per second, of i8 integer ones; a multiply-add counts as two, a function such as exp as the operations of its shortest algorithm of the same accuracy (exp 17, tanh 24)
  GB/s      10^9 bytes per second; every operand counts once when read and once when written
  %         of the limit that binds: the lower of arithmetic peak and bandwidth for this operator

Shapes mean the same everywhere:
  MxNxK     a product: M rows of activations, N outputs, K the inner dimension; a matrix of weights has N rows of K
  NxK       the same with M = 1: a matrix of weights times a vector
  MxN       M rows of N numbers
  N         N numbers

Limits are measured, never taken from data sheets:
  compute   multiply-adds on registers, of random numbers, on as many threads: those of f32, or of the type that a product multiplies (f16, bf16, int8) if this machine has faster ones (AVX-512 VNNI, AMX, ...)
  memory    the fastest of several loops (pages one by one or side by side, stores through the caches or past them, rep movsb) with the operator's mix of reads and writes, on as many bytes and threads: read, copy (1 read, 1 write), triad (2 reads, 1 write), update (in place), accumulate (1 read, 1 update), expand (1 byte read for 4 written)
The limit is measured again next to each operator, in turn with it.

Errors (max_err): the largest |result - exact| / |exact| over the outputs checked; for sums, over the sum of the terms' magnitudes. Exact means computed in f64 from the stored inputs. A result outside the operator's bound is an error, and nothing is timed.

Exit codes: 0 success, 1 failure (wrong results, missing files or instruction sets), 2 wrong usage.";

/// The text of a file; `-` is standard input.
fn read_text(path: &Path) -> Outcome<String> {
    let (name, text) = if path == Path::new("-") {
        ("standard input".to_owned(), std::io::read_to_string(std::io::stdin()))
    } else {
        (path.display().to_string(), std::fs::read_to_string(path))
    };
    text.map_err(|e| Failure::Failed(format!("cannot read {name}: {e}")))
}

/// Runs the command line.
pub fn execute(cli: Cli) -> Outcome {
    match cli.command {
        None => everything::execute(&cli.options),
        Some(Command::Info(options)) => info::execute(&options),
        Some(Command::List(options)) => list::execute(&options),
        Some(Command::Run(options)) => run::execute(&options),
        Some(Command::Compare(options)) => compare::execute(&options),
        Some(Command::Inspect(options)) => inspect::execute(&options),
        Some(Command::Quantize(options)) => quantize::execute(&options),
        Some(Command::Verify(options)) => verify::execute(&options),
        Some(Command::Model(options)) => model::execute(&options),
        Some(Command::Generate(options)) => generate::execute(&options),
        Some(Command::Embed(options)) => embed::execute(&options),
        Some(Command::Rerank(options)) => rerank::execute(&options),
        Some(Command::Perplexity(options)) => perplexity::execute(&options),
        Some(Command::Tokenize(options)) => tokenize::execute(&options),
        Some(Command::Logits(options)) => logits::execute(&options),
    }
}
