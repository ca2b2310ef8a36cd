//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  gllm-bench                                     machine, limits and every operator
  gllm-bench --html report.html                  the same, with charts for a browser
  gllm-bench run --op vec_dot --element bf16 --shape 1048576
  gllm-bench run --op gemm --shape 512x512x512 --threads 1 --isa avx2 --json
  gllm-bench run --op gemm,gemm_prepacked --element i8 --shape 1024x1024x1024
  gllm-bench run --op rms_norm,softmax --threads all --shape 1024x4096
  gllm-bench compare --peer openblas
  gllm-bench compare --peer mkl --op gemm,gemm_prepacked --element bf16 --shape 2048x2048x2048 --threads 1
  gllm-bench inspect model.gguf
  gllm-bench quantize model-f16.gguf model-q4_k.gguf --format q4_k
  gllm-bench verify --isa scalar

Units:
  ns        nanoseconds per call, median of the samples
  GFLOP/s   10^9 floating-point operations per second, of i8 integer ones; a multiply-add counts as two,
            a function such as exp as the operations of its shortest algorithm of the same accuracy
            (exp 17, tanh 24)
  GB/s      10^9 bytes per second; every operand counts once when read and once when written
  %         of the limit that binds: the lower of arithmetic peak and bandwidth for this operator

Limits are measured, never taken from data sheets:
  compute   multiply-adds on registers, of the instruction set that the kernel uses, on the same
            number of threads
  memory    the fastest of several loops (pages one by one or side by side, stores through the caches
            or past them, rep movsb) with the operator's mix of reads and writes, on as many bytes and
            threads: read, copy (1 read, 1 write), triad (2 reads, 1 write), update (in place),
            accumulate (1 read, 1 update), expand (1 byte read for 4 written)
The limit is measured again next to each operator, in turn with it.

Errors (max_err): the largest |result - exact| / |exact| over the outputs checked; for sums, over the
sum of the terms' magnitudes. Exact means computed in f64 from the stored inputs. A result outside the
operator's bound is an error, and nothing is timed.

Exit codes: 0 success, 1 failure (wrong results, missing files or instruction sets), 2 wrong usage.";

/// One line a paragraph: they are wrapped when they are shown.
const COMPARE: &str = "\
Both sides run in one process, on the same data and as many threads, in turn. Ours is verified, and theirs has to agree \
with it within the rounding errors of sums of K terms; what does not is not timed. The ratio is the median of their time \
over ours in neighbouring samples: above 1, ours is faster.

mkl and openblas are opened at run time, from the loader's path or where pip, conda, Debian and Intel's installer put them:
  pip install mkl
  pip install scipy-openblas32        (or apt-get install libopenblas0-pthread)
faer, gemm and matrixmultiply are compiled in with:
  cargo build --release -p gllm-bench --features peers
ggml, too; it needs cmake, a C++ compiler and libclang (on Debian and Ubuntu, apt-get install cmake libclang-dev), and is built \
for this processor with:
  CMAKE_C_FLAGS=-march=native CMAKE_CXX_FLAGS=-march=native cargo build --release -p gllm-bench --features peer-ggml
To compare with ggml on AVX2, FMA and F16C, build it without these flags, in a folder of its own, and restrict our side, too:
  cargo build --release -p gllm-bench --features peer-ggml --target-dir target/ggml-avx2
  target/ggml-avx2/release/gllm-bench compare --peer ggml --isa avx2

OpenBLAS chooses its kernels when it is loaded; the line below the table says for which processor. If it is the wrong one, \
OPENBLAS_CORETYPE=SkylakeX (Haswell, Zen, SapphireRapids, ...) names another.

Peers without packed matrices multiply plain ones where ours are prepacked. MKL's exp, tanh, erf and cdfnorm (VML, high \
accuracy) stand beside the operators that are built on them, too: silu, gelu, gelu_tanh; there the peer does a part of the work.

ggml multiplies the same blocks with the same f32 activations, which it quantises in each call, as qgemv_packed and qgemv_q8 \
do and qgemv does not. Its default buffer has weights as they lie in a file, like qgemv_q8; a packed buffer (CPU_REPACK, AMX) \
has them rearranged, like qgemv_packed, where ggml can do that for the format. Its threads wait for work as in llama.cpp, and \
rest while ours run.";

/// How close this machine comes to its limit in every operator of gllm-kernels.
///
/// Without a command: a summary of the machine, its measured limits, and every operator with GFLOP/s,
/// GB/s and per cent of the limit that binds it.
#[derive(Debug, Parser)]
#[command(name = "gllm-bench", version, after_long_help = EXAMPLES, max_term_width = 110, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do; everything if absent.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Also write a self-contained HTML report with charts.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Print JSON: machine, limits and results.
    #[arg(long)]
    pub json: bool,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Describe the machine: CPU, instruction sets, caches, memory.
    Info {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Measure and print the limits too.
        #[arg(long)]
        limits: bool,
    },
    /// List every kernel of this build.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Verify and time chosen operators.
    #[command(after_long_help = EXAMPLES)]
    Run(RunArgs),
    /// Time operators side by side with another library: MKL, OpenBLAS, faer, gemm, matrixmultiply, ggml.
    Compare(CompareArgs),
    /// List the tensors of a GGUF or safetensors file; decode and multiply those of supported types.
    ///
    /// decode: GB/s read and written while decoding to f32, and the largest difference from the scalar
    /// decode (exact: none, bit for bit). gemv: GB/s of weights in a product with f32 activations (of the
    /// tensor's own type for f32, f16 and bf16), and the largest error relative to the magnitudes of a
    /// row's terms. The file must not be changed meanwhile.
    Inspect {
        /// The file.
        file: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Threads: a number or `all`.
        #[arg(long, value_name = "T", default_value = "all")]
        threads: String,
    },
    /// Write a GGUF file anew, with its matrices in another format.
    ///
    /// Every matrix becomes what --format says, with these exceptions, as in llama.cpp: vectors (norms,
    /// biases), routers and other small or sensitive tensors are kept as they are. The output
    /// (output.weight, or token_embd.weight in models without it) becomes Q6_K, of MXFP4 files Q8_0; of
    /// Q8_0, F16, BF16 and F32 files it is no exception. Embeddings of TQ1_0, TQ2_0 and Q2_0 files become
    /// Q4_K. Rows that are not whole blocks of Q4_K become Q5_0, of Q5_K Q5_1, of Q6_K Q8_0, of IQ4_XS
    /// IQ4_NL, of other formats Q4_0; rows that are not whole blocks of these, either, F16.
    /// Tensors that are quantised already are decoded first, which adds up the errors of both. Metadata
    /// is kept, but for general.file_type and general.quantization_version. The file gets its name when
    /// it is complete. The input must not be changed meanwhile.
    Quantize(QuantizeArgs),
    /// Run every kernel that this machine can run against the f64 oracle.
    Verify {
        /// Only these operators, comma-separated.
        #[arg(long, value_name = "NAME", value_delimiter = ',')]
        op: Vec<String>,
        /// Only this instruction set level: scalar, neon, avx2, avx512.
        #[arg(long, value_name = "LEVEL")]
        isa: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// `run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Operators, comma-separated, as `gllm-bench list` names them; `_inplace` forms too. Default: all.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub op: Vec<String>,
    /// Weight format of the quantised operators, e.g. q8_0, q4_0. Default: all.
    #[arg(long, value_name = "FMT", value_delimiter = ',')]
    pub format: Vec<String>,
    /// Storage type: f32, f16, bf16; of products also i8. Default: f32.
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    pub element: Vec<String>,
    /// Sizes: N elements of a vector, MxN rows and columns, MxNxK of a product. Default: operands of
    /// 256 MiB, products of 1024x1024x1024.
    #[arg(long, value_name = "MxNxK|N")]
    pub shape: Option<String>,
    /// Threads: a number or `all`.
    #[arg(long, value_name = "T", default_value = "1")]
    pub threads: String,
    /// Instruction set level: scalar, neon, avx2, avx512. Default: the best.
    #[arg(long, value_name = "LEVEL")]
    pub isa: Option<String>,
    /// Least time to spend on the samples of an operator, in seconds.
    #[arg(long, value_name = "S", default_value_t = 0.3)]
    pub min_time: f64,
    /// Print a JSON array, one object per result.
    #[arg(long)]
    pub json: bool,
    /// Also write a self-contained HTML report with charts.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `quantize`.
#[derive(Args, Debug)]
pub struct QuantizeArgs {
    /// The file to read: f32, f16, bf16 or quantised.
    pub input: PathBuf,
    /// The file to write.
    pub output: PathBuf,
    /// What matrices become: q4_0, q4_k, iq4_xs, mxfp4, ..., f16, bf16, f32.
    #[arg(long, value_name = "FMT")]
    pub format: String,
    /// Threads: a number or `all`.
    #[arg(long, value_name = "T", default_value = "all")]
    pub threads: String,
    /// Overwrite the output if it exists.
    #[arg(long)]
    pub force: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `compare`.
#[derive(Args, Debug)]
#[command(after_help = COMPARE)]
pub struct CompareArgs {
    /// The other library: mkl, openblas, faer, gemm, matrixmultiply, ggml.
    #[arg(long, value_name = "NAME")]
    pub peer: String,
    /// Our operators, comma-separated: gemm, gemm_bt, gemm_prepacked, gemv; for mkl also exp, tanh, silu,
    /// gelu, gelu_tanh; for ggml qgemv_packed, qgemv_q8, qgemv, qgemm, qgemm_packed, qgemm_exact. Default: gemm; for ggml the first
    /// two.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub op: Vec<String>,
    /// Storage types, comma-separated: f32; for mkl also f16, bf16, i8. Default: f32.
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    pub element: Vec<String>,
    /// Weight formats of quantised operators, comma-separated, e.g. q8_0,iq4_xs. Default: all that the other
    /// library has.
    #[arg(long, value_name = "FMT", value_delimiter = ',')]
    pub format: Vec<String>,
    /// Only those functions of the other library whose name, in the column `peer`, contains this; e.g. `packed`
    /// of ggml.
    #[arg(long, value_name = "TEXT")]
    pub function: Option<String>,
    /// Sizes, comma-separated: MxNxK of a product, MxK of a matrix, N elements. Default: a table.
    #[arg(long, value_name = "MxNxK|MxK|N", value_delimiter = ',')]
    pub shape: Vec<String>,
    /// Threads of each side, comma-separated: numbers or `all`. Default: 1,all; for matrixmultiply, which
    /// cannot change it, 1.
    #[arg(long, value_name = "T", value_delimiter = ',')]
    pub threads: Vec<String>,
    /// Instruction set level of our kernels: scalar, neon, avx2, avx512. Default: the best.
    #[arg(long, value_name = "LEVEL")]
    pub isa: Option<String>,
    /// Least time to spend on each side of a pair, in seconds.
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    pub min_time: f64,
    /// The library's file, if it is none of those that are found without.
    #[arg(long, value_name = "FILE", env = "GLLM_BENCH_LIBRARY")]
    pub library: Option<PathBuf>,
    /// Print a JSON array, one object per pair.
    #[arg(long)]
    pub json: bool,
}
