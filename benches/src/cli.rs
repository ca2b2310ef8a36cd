//! The command line.

use clap::{Parser, Subcommand};

use crate::commands::{
    compare, embed, everything, generate, info, inspect, list, logits, model, perplexity, quantize, rerank,
    run, tokenize, verify, EXAMPLES,
};
use crate::help::{wrapped, WIDEST};

/// How close this machine comes to its limit in every operator of gllm-kernels.
///
/// Without a command: a summary of the machine, its measured limits, and every operator with GFLOP/s,
/// GB/s and per cent of the limit that binds it.
#[derive(Debug, Parser)]
#[command(
    name = "gllm-bench",
    version,
    after_long_help = wrapped(EXAMPLES),
    max_term_width = WIDEST,
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    /// What to do; everything if absent.
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    /// Where the results go.
    pub options: everything::Options,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Describe the machine: CPU, instruction sets, caches, memory, and its measured limits.
    Info(info::Options),
    /// List every kernel of this build.
    List(list::Options),
    /// Verify and time chosen operators.
    Run(run::Options),
    /// Time operators side by side with another library: MKL, OpenBLAS, faer, gemm, matrixmultiply, ggml; or a
    /// language model with llama.cpp.
    Compare(compare::Options),
    /// List the tensors of a GGUF or safetensors file; decode and multiply those of supported types.
    ///
    /// decode: GB/s read and written while decoding to f32, and the largest difference from the scalar
    /// decode (exact: none, bit for bit). gemv: GB/s of weights in a product with f32 activations (of the
    /// tensor's own type for f32, f16 and bf16), and the largest error relative to the magnitudes of a
    /// row's terms. The file must not be changed meanwhile.
    Inspect(inspect::Options),
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
    Quantize(quantize::Options),
    /// Run every kernel that this machine can run against the f64 oracle; the others are listed.
    Verify(verify::Options),
    /// Time a language model: reading prompts and generating text, against what memory allows.
    ///
    /// Generation goes on from a text of --depth tokens, behind tokens that end a text, too; a step has a token of each of
    /// --sequences texts, which share nothing. "of memory" is the share of the measured bandwidth that the bytes of weights and
    /// cache which a step reads amount to.
    Model(model::Options),
    /// Continue a text with a language model. The text goes to standard output, speeds to standard error.
    ///
    /// Ctrl-C ends the text: what was generated until then has been written, speeds are told, and the exit code is 0. A second
    /// Ctrl-C ends the process at once.
    Generate(generate::Options),
    /// Make embeddings of texts: of each a row of numbers, of length 1. Without --json: how alike the texts are.
    Embed(embed::Options),
    /// Tell which documents answer a query: of each a score from 0 to 1, the highest first.
    ///
    /// This is for models that were trained to say whether a document answers a query, such as Qwen3-Reranker. The score is the
    /// probability of the first label of the classifier in the model's file, or, of files without one, of the token "yes" against "no".
    /// What all documents have in front of them is computed once. Documents are not cut: one that, with its query, is longer than
    /// what the model was made for is an error. Scores go to standard output, speeds to standard error.
    Rerank(rerank::Options),
    /// Tell how well a model foresees a text: its perplexity, exp(-mean of ln(probability of a token behind those before it)).
    ///
    /// The text is cut into pieces of --context tokens, each of which begins anew, and the second half of each is judged, as llama.cpp
    /// does it; of a text that is shorter than a piece all tokens but the first are. The rest behind the last whole piece is left out.
    Perplexity(perplexity::Options),
    /// Show the tokens of a text, as the model's file has them.
    Tokenize(tokenize::Options),
    /// Write the logits behind every token of a sequence: little-endian f32, a row of the vocabulary for each.
    Logits(logits::Options),
}
