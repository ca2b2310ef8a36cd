//! `perplexity`: how well a model foresees a text.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use super::generate::speed;
use super::read_text;
use crate::error::{Failure, Outcome};
use crate::model::{check, tokenizer, Room, Setup};
use crate::output::{note, print_json, stdout};
use crate::progress::Progress;

/// Of what.
#[derive(Args, Debug)]
pub struct Options {
    #[command(flatten)]
    /// Which model, and how it computes.
    pub setup: Setup,
    /// The text.
    #[arg(long, value_name = "TEXT", required_unless_present = "path", conflicts_with = "path")]
    pub text: Option<String>,
    /// A file with the text; `-` is standard input.
    #[arg(long = "file", value_name = "FILE")]
    pub path: Option<PathBuf>,
    /// Tokens of a piece; a shorter text is one piece. Default: 512, or what the model was made for, if that is less.
    #[arg(long, value_name = "N")]
    pub context: Option<usize>,
    /// Threads: a number or `all`.
    #[arg(long, value_name = "T", default_value = "all")]
    pub threads: String,
    /// Print a JSON object with `perplexity`, its `standard_error`, `log_probability` (the mean of the natural logarithms of probabilities),
    /// `judged` (the number of these), `tokens` (that the model read) and `pieces`.
    #[arg(long)]
    pub json: bool,
}

/// What is shown.
#[derive(Serialize)]
struct Found {
    perplexity: f64,
    standard_error: f64,
    log_probability: f64,
    judged: usize,
    tokens: usize,
    pieces: usize,
}

/// Tokens of a piece, unless told.
const CONTEXT: usize = 512;

/// Mean and its standard error, which is 0 for a single number.
fn mean(x: &[f64]) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let squares = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    (mean, (squares / (n - 1.0).max(1.0) / n).sqrt())
}

/// Tells the perplexity of a text.
pub fn execute(options: &Options) -> Outcome {
    let failed = |e: &dyn std::fmt::Display| Failure::Failed(e.to_string());
    let text = match (&options.text, &options.path) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => read_text(path)?,
        (None, None) => String::new(),
    };
    let model = options.setup.open()?;
    let tokenizer = tokenizer(&model)?;
    // What the model puts in front of a text stands in front of each piece.
    let begin = tokenizer.encode("").map_err(|e| failed(&e))?;
    let tokens = tokenizer.encode_bare(&text).map_err(|e| failed(&e))?;
    check(&tokens, &model)?;
    let trained = model.config().context;
    let context = options.context.unwrap_or(CONTEXT.min(trained));
    let least = (begin.len() + 2).max(3);
    if context < least {
        return Err(Failure::Usage(format!("--context {context}: a piece has {least} tokens at least")));
    }
    if context > trained {
        note(&format!("{context} tokens are more than the {trained} that the model was made for"))?;
    }
    let piece = context - begin.len();
    // The rest behind the last whole piece is left out, unless there is nothing else.
    let parts: Vec<&[u32]> =
        if tokens.len() < piece { vec![&tokens] } else { tokens.chunks_exact(piece).collect() };
    // The model has read too little before the first half of a piece.
    let skipped = if tokens.len() < piece { 0 } else { context / 2 };
    if begin.len() + parts[0].len() < 2 {
        return Err(Failure::Usage("the text is too short: there is nothing to foresee".to_owned()));
    }
    let (mut loaded, load_time) =
        options.setup.load(&model, &options.threads, Room::one(context), options.json)?;

    let progress = Progress::new(parts.len(), options.json);
    let started = Instant::now();
    let (mut all, mut read) = (Vec::new(), 0);
    for (i, part) in parts.iter().enumerate() {
        let text = [&begin, *part].concat();
        let of_piece = loaded.log_probabilities(&text).map_err(|e| failed(&e))?;
        all.extend(of_piece.iter().skip(skipped).copied().map(f64::from));
        read += text.len();
        progress.reach(i + 1);
    }
    let time = started.elapsed();
    drop(progress);

    let (log_probability, error) = mean(&all);
    let perplexity = (-log_probability).exp();
    let (standard_error, judged) = (perplexity * error, all.len());
    let found =
        Found { perplexity, standard_error, log_probability, judged, tokens: read, pieces: parts.len() };
    if options.json {
        print_json(&found)?;
    } else {
        let mut out = stdout();
        writeln!(out, "perplexity {perplexity:.4} +- {standard_error:.4}, of {judged} tokens")?;
        out.flush()?;
    }
    note(&format!("load {:.2} s", load_time.as_secs_f64()))?;
    note(&format!("read {}", speed(read, time)))
}
