//! `tokenize`: the tokens of a text.

use std::io::{Read, Write};
use std::path::PathBuf;

use clap::Args;

use crate::error::{Failure, Outcome};
use crate::model::{open, tokenizer};
use crate::output::{print_json, stdout};
use crate::table::{Column, Table};

/// Of what.
#[derive(Args, Debug)]
pub struct Options {
    /// The model: a GGUF file, or the folder of a checkpoint.
    pub file: PathBuf,
    /// The text. Default: what comes from standard input.
    #[arg(long)]
    pub text: Option<String>,
    /// Print a JSON array of token ids.
    #[arg(long)]
    pub json: bool,
}

/// Shows the tokens.
pub fn execute(options: &Options) -> Outcome {
    let model = open(&options.file)?;
    let tokenizer = tokenizer(&model)?;
    let text = match &options.text {
        Some(text) => text.clone(),
        None => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|e| Failure::Failed(format!("cannot read standard input: {e}")))?;
            text
        }
    };
    let ids = tokenizer.encode(&text).map_err(|e| Failure::Failed(e.to_string()))?;
    if options.json {
        return print_json(&ids);
    }
    let mut out = stdout();
    let table = Table::new(vec![
        Column::number("token", 7, Column::ALWAYS),
        Column::words("stands for", Column::ALWAYS),
    ]);
    table.head(&mut out)?;
    for id in &ids {
        table.row(&mut out, vec![id.to_string().into(), format!("{:?}", tokenizer.text(*id)).into()])?;
    }
    writeln!(out, "{} tokens", ids.len())?;
    Ok(())
}
