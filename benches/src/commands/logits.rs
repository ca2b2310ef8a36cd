//! `logits`: the scores that a model gives every possible next token.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Args;

use crate::error::{Failure, Outcome};
use crate::model::{check, Room, Setup};

/// Of what.
#[derive(Args, Debug)]
pub struct Options {
    #[command(flatten)]
    /// Which model, and how it computes.
    pub setup: Setup,
    /// Token ids, comma-separated.
    #[arg(long, value_name = "ID", value_delimiter = ',', required = true)]
    pub tokens: Vec<u32>,
    /// The file to write: for each token a row of the vocabulary, little-endian f32.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Threads: a number or `all`.
    #[arg(long, value_name = "T", default_value = "all")]
    pub threads: String,
}

/// Writes the logits.
pub fn execute(options: &Options) -> Outcome {
    let model = options.setup.open()?;
    check(&options.tokens, &model)?;
    // Before anything is computed: a wrong path is told at once.
    let failed = |e| Failure::Failed(format!("cannot write {}: {e}", options.out.display()));
    let mut file = BufWriter::new(File::create(&options.out).map_err(failed)?);
    let room = Room::one(options.tokens.len());
    let (mut loaded, _) = options.setup.load(&model, &options.threads, room, false)?;
    let logits = loaded.logits(&options.tokens).map_err(|e| Failure::Failed(e.to_string()))?;
    for logit in logits {
        file.write_all(&logit.to_le_bytes()).map_err(failed)?;
    }
    file.flush().map_err(failed)
}
