//! `rerank`: which texts answer a query.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use gllm_kernels_std::model::Model;
use serde::Serialize;

use super::generate::speed;
use super::read_text;
use crate::error::{Failure, Outcome};
use crate::model::{check, tokenizer, Room, Setup};
use crate::output::{note, print_json, stdout};
use crate::progress::Progress;
use crate::table::{Column, Table};

/// Which texts, and for what.
#[derive(Args, Debug)]
pub struct Options {
    #[command(flatten)]
    /// Which model, and how it computes.
    pub setup: Setup,
    /// What is looked for.
    #[arg(long, value_name = "TEXT")]
    pub query: String,
    /// A document; may be given several times.
    #[arg(long, value_name = "TEXT")]
    pub text: Vec<String>,
    /// A file with documents, one a line; `-` is standard input. Empty lines are left out. They come behind those of --text.
    #[arg(long, value_name = "FILE")]
    pub documents: Option<PathBuf>,
    /// What the model is asked to judge by, in the form that Qwen3-Reranker was trained with. Default: the model's own form, if its
    /// file has one, else "Given a web search query, retrieve relevant passages that answer the query".
    #[arg(long, value_name = "TEXT")]
    pub instruction: Option<String>,
    /// The documents as they were given, not those with the highest scores first.
    #[arg(long)]
    pub in_order: bool,
    /// Threads: a number or `all`.
    #[arg(long, value_name = "T", default_value = "all")]
    pub threads: String,
    /// Print a JSON array with an object for each document: `index` (0 is the first one given), `score`, `tokens` (of all that the model
    /// reads) and `text`.
    #[arg(long)]
    pub json: bool,
}

/// A document and its score.
#[derive(Serialize)]
struct Ranked<'a> {
    index: usize,
    score: f32,
    tokens: usize,
    text: &'a str,
}

/// Where the form that a model was trained with is in its file.
const TEMPLATE: &str = "tokenizer.chat_template.rerank";
const QUERY: &str = "{query}";
const DOCUMENT: &str = "{document}";
const INSTRUCTION: &str = "Given a web search query, retrieve relevant passages that answer the query";

/// The form that Qwen3-Reranker was trained with.
fn qwen3(instruction: &str) -> [String; 3] {
    let system =
        "Judge whether the Document meets the requirements based on the Query and the Instruct provided. \
                  Note that the answer can only be \"yes\" or \"no\".";
    let before = format!(
        "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n<Instruct>: {instruction}\n<Query>: "
    );
    let behind = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n".to_owned();
    [before, "\n<Document>: ".to_owned(), behind]
}

/// What is before, between and behind query and document. `None`: the file's form is none in which a query and a document, in this order,
/// have only to be put in their places.
fn parts(template: &str) -> Option<[String; 3]> {
    let (before, rest) = template.split_once(QUERY)?;
    let (between, behind) = rest.split_once(DOCUMENT)?;
    let parts = [before, between, behind];
    let once = !parts.iter().any(|part| part.contains(QUERY) || part.contains(DOCUMENT));
    let plain = !template.contains("{{") && !template.contains("{%");
    (once && plain).then(|| parts.map(str::to_owned))
}

/// Around query and document.
fn form(options: &Options, model: &Model<'_>) -> Outcome<[String; 3]> {
    if let Some(instruction) = &options.instruction {
        return Ok(qwen3(instruction));
    }
    let own = model.metadata(TEMPLATE).and_then(|value| value.as_str());
    let unknown = || {
        let what =
            format!("{TEMPLATE} is not a text with {QUERY} and {DOCUMENT} in it: --instruction uses Qwen3's");
        Failure::Failed(what)
    };
    own.map_or_else(|| Ok(qwen3(INSTRUCTION)), |template| parts(template).ok_or_else(unknown))
}

/// The documents of a file.
fn lines(path: &Path) -> Outcome<Vec<String>> {
    let all = read_text(path)?;
    Ok(all.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
}

/// The beginning of a document, in one line.
fn beginning(text: &str) -> String {
    const SHOWN: usize = 60;
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let end = if text.chars().nth(SHOWN).is_some() { ".." } else { "" };
    text.chars().take(SHOWN).map(plain).chain(end.chars()).collect()
}

/// Positions of a page of the cache.
const PAGE: usize = 64;
/// Texts side by side, at most.
const SIDE_BY_SIDE: usize = 32;
/// Positions of all texts together, beside those of the longest one, at most.
const POSITIONS: usize = 4096;

/// Shows the documents with their scores.
pub fn execute(options: &Options) -> Outcome {
    let failed = |e: &dyn std::fmt::Display| Failure::Failed(e.to_string());
    let mut documents = options.text.clone();
    if let Some(path) = &options.documents {
        documents.extend(lines(path)?);
    }
    if documents.is_empty() {
        return Err(Failure::Usage("there are no documents: --text and --documents name them".to_owned()));
    }
    let model = options.setup.open()?;
    let tokenizer = tokenizer(&model)?;
    let answers = match (&model.config().classifier, tokenizer.id("yes"), tokenizer.id("no")) {
        (Some(_), ..) => None,
        (None, Some(yes), Some(no)) => {
            note("the file has no classifier: scores are the probabilities of \"yes\" against \"no\"")?;
            Some([yes, no])
        }
        _ => {
            let what = "the model cannot rank texts: its file has no classifier (pooling type 4), and its vocabulary no \
                        tokens \"yes\" and \"no\"";
            return Err(Failure::Failed(what.to_owned()));
        }
    };
    let [before, between, behind] = form(options, &model)?;
    let text = |document: &String| {
        let text = [&before, &options.query, &between, document, &behind].map(String::as_str).concat();
        tokenizer.encode_bare(&text).map_err(|e| failed(&e))
    };
    let texts = documents.iter().map(text).collect::<Outcome<Vec<_>>>()?;
    let trained = model.config().context;
    for (i, text) in texts.iter().enumerate() {
        check(text, &model)?;
        let (of, n) = (i + 1, text.len());
        if n > trained {
            let what = format!("document {of} has {n} tokens with its query, more than the {trained} that the model was made for");
            return Err(Failure::Usage(what));
        }
    }
    let pages = |text: &Vec<u32>| text.len().next_multiple_of(PAGE) + PAGE;
    let most = texts.iter().map(pages).max().unwrap_or(0) + POSITIONS;
    let positions = texts.iter().map(pages).sum::<usize>().min(most);
    let room = Room { positions, sequences: texts.len().min(SIDE_BY_SIDE) + 1, step: None };
    let (mut loaded, load_time) = options.setup.load(&model, &options.threads, room, options.json)?;

    let all: Vec<&[u32]> = texts.iter().map(|text| &text[..]).collect();
    let progress = Progress::new(texts.len(), options.json);
    let started = Instant::now();
    let scores = loaded.rank(&all, answers, &mut |done| progress.reach(done)).map_err(|e| failed(&e))?;
    let time = started.elapsed();
    drop(progress);

    let each = documents.iter().zip(&texts).zip(&scores).enumerate();
    let mut ranked: Vec<Ranked<'_>> =
        each.map(|(index, ((text, ids), &score))| Ranked { index, score, tokens: ids.len(), text }).collect();
    if !options.in_order {
        ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
    }
    if options.json {
        print_json(&ranked)?;
    } else {
        let mut out = stdout();
        let table = Table::new(vec![
            Column::number("score", 7, Column::ALWAYS),
            Column::number("document", 8, Column::ALWAYS),
            Column::number("tokens", 7, 2),
            Column::words("text", Column::ALWAYS),
        ]);
        table.head(&mut out)?;
        for one in &ranked {
            let cells = vec![
                format!("{:.4}", one.score).into(),
                (one.index + 1).to_string().into(),
                one.tokens.to_string().into(),
                beginning(one.text).into(),
            ];
            table.row(&mut out, cells)?;
        }
        out.flush()?;
    }
    note(&format!("load {:.2} s", load_time.as_secs_f64()))?;
    let tokens = texts.iter().map(Vec::len).sum();
    note(&format!("rank {} texts, {}", texts.len(), speed(tokens, time)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_have_three_parts() {
        let of = |template: &str| parts(template).map(|parts| parts.join("|"));
        assert_eq!(of("a {query} b {document} c").as_deref(), Some("a | b | c"));
        for other in [
            "{document} {query}",
            "{query}",
            "{% if query %}{query}{document}",
            "{{query}} {{document}}",
            "{query}{query}{document}",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        // As llama.cpp's converter writes it.
        let own = qwen3(INSTRUCTION).join("|");
        assert_eq!(of(&own.replacen('|', QUERY, 1).replacen('|', DOCUMENT, 1)), Some(own));
    }
}
