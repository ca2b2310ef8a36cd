//! `embed`: the embeddings of texts.

use std::io::Write;

use clap::{Args, ValueEnum};
use gllm_kernels_std::model::Pooling;
use serde::Serialize;

use crate::error::{Failure, Outcome};
use crate::model::{check, tokenizer, Room, Setup};
use crate::output::{print_json, stdout};
use crate::table::{Column, Table};

/// How the rows of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pool {
    /// Their mean.
    Mean,
    /// That of the first token.
    First,
    /// That of the last token.
    Last,
}

/// Which texts, and how.
#[derive(Args, Debug)]
pub struct Options {
    #[command(flatten)]
    /// Which model, and how it computes.
    pub setup: Setup,
    /// A text; may be given several times.
    #[arg(long, value_name = "TEXT", required = true)]
    pub text: Vec<String>,
    /// How the rows of a text's tokens become one. Default: as the model's file says.
    #[arg(long, value_enum)]
    pub pooling: Option<Pool>,
    /// Threads: a number or `all`.
    #[arg(long, value_name = "T", default_value = "all")]
    pub threads: String,
    /// Print a JSON array with an object for each text: `text`, `tokens` (how many there are) and `embedding`.
    #[arg(long)]
    pub json: bool,
}

/// A text and its row.
#[derive(Serialize)]
struct Embedded<'a> {
    text: &'a str,
    tokens: usize,
    embedding: &'a [f32],
}

/// Positions of a page of the cache: texts share none.
const PAGE: usize = 64;

/// Shows embeddings, or how alike texts are.
pub fn execute(options: &Options) -> Outcome {
    let failed = |e: &dyn std::fmt::Display| Failure::Failed(e.to_string());
    let model = options.setup.open()?;
    let pooling = match options.pooling {
        Some(Pool::Mean) => Some(Pooling::Mean),
        Some(Pool::First) => Some(Pooling::First),
        Some(Pool::Last) => Some(Pooling::Last),
        None => model.config().pooling,
    };
    let missing = || {
        Failure::Usage("the model's file does not say how a text becomes a row: --pooling does".to_owned())
    };
    let pooling = pooling.ok_or_else(missing)?;
    let tokenizer = tokenizer(&model)?;
    let texts = options.text.iter().map(|text| tokenizer.encode(text).map_err(|e| failed(&e)));
    let texts = texts.collect::<Outcome<Vec<_>>>()?;
    for text in &texts {
        check(text, &model)?;
    }
    let positions = texts.iter().map(|text| text.len().next_multiple_of(PAGE)).sum();
    // A text is not cut.
    let longest = texts.iter().map(Vec::len).max().unwrap_or(0).max(512);
    let room = Room { positions, sequences: texts.len(), step: Some(longest) };
    let (mut loaded, _) = options.setup.load(&model, &options.threads, room, options.json)?;
    let all: Vec<&[u32]> = texts.iter().map(|text| &text[..]).collect();
    let rows = loaded.embed(&all, pooling).map_err(|e| failed(&e))?;
    if options.json {
        let each = options.text.iter().zip(&texts).zip(&rows);
        let each = each.map(|((text, ids), row)| Embedded { text, tokens: ids.len(), embedding: row });
        return print_json(&each.collect::<Vec<_>>());
    }
    // Products of rows of length 1: cosines.
    let mut out = stdout();
    let numbers = (0..rows.len()).map(|i| Column::number(format!("to {}", i + 1), 7, Column::ALWAYS));
    let mut columns =
        vec![Column::number("text", 5, Column::ALWAYS), Column::number("tokens", 7, Column::ALWAYS)];
    columns.extend(numbers);
    let table = Table::new(columns);
    table.head(&mut out)?;
    for (i, (row, ids)) in rows.iter().zip(&texts).enumerate() {
        let mut cells = vec![(i + 1).to_string().into(), ids.len().to_string().into()];
        let cosine = |other: &Vec<f32>| row.iter().zip(other).map(|(a, b)| a * b).sum::<f32>();
        cells.extend(rows.iter().map(|other| format!("{:.4}", cosine(other)).into()));
        table.row(&mut out, cells)?;
    }
    writeln!(out, "{} numbers a text; the columns \"to\" are the cosines between texts", rows[0].len())?;
    Ok(())
}
