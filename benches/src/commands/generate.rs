//! `generate`: continues a text with a model.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use clap::Args;
use gllm_kernels_std::model::Sampling;

use crate::error::{Failure, Outcome};
use crate::model::{check, tokenizer, Room, Setup};
use crate::output::{note, print_json};
use crate::progress::{end_on_interrupt, is_interrupted};
use crate::tokenizer::TextStream;

/// What to continue, and how.
#[derive(Args, Debug)]
pub struct Options {
    #[command(flatten)]
    /// Which model, and how it computes.
    pub setup: Setup,
    /// The text to continue. Marks such as <|im_start|> may be spelled out.
    #[arg(long, value_name = "TEXT", required_unless_present = "tokens", conflicts_with = "tokens")]
    pub prompt: Option<String>,
    /// Token ids to continue, comma-separated; nothing is put before them.
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub tokens: Vec<u32>,
    /// Tokens to generate, at most.
    #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 128)]
    pub count: usize,
    /// Go on behind tokens that end a text.
    #[arg(long)]
    pub ignore_end: bool,
    /// Always the most probable token.
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "min_p", "seed"])]
    pub greedy: bool,
    /// Divides logits before their exponentials are taken; 0 is --greedy.
    #[arg(long, value_name = "T", default_value_t = 0.8)]
    pub temperature: f32,
    /// Only so many of the most probable tokens; 0 is all.
    #[arg(long, value_name = "K", default_value_t = 40)]
    pub top_k: usize,
    /// Of these, only the most probable ones whose probabilities add up to this; 1 is all.
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    pub top_p: f32,
    /// Only tokens at least this times as probable as the most probable one; 0 is all.
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    pub min_p: f32,
    /// Divides positive logits of tokens that occurred before, multiplies negative ones; 1 changes nothing.
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub repetition_penalty: f32,
    /// Subtracted from a token's logit, as often as it occurred before.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    pub frequency_penalty: f32,
    /// Subtracted once from the logit of a token that occurred before.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    pub presence_penalty: f32,
    /// How many of the last tokens the penalties look at. Default: all.
    #[arg(long, value_name = "N")]
    pub penalty_last: Option<usize>,
    /// The same seed gives the same text. Default: from the clock.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Threads: a number or `all`.
    #[arg(long, value_name = "T", default_value = "all")]
    pub threads: String,
    /// Print a JSON array of the new token ids instead of text.
    #[arg(long)]
    pub json: bool,
}

impl Options {
    fn sampling(&self) -> Sampling {
        let penalties = Sampling {
            last_n: self.penalty_last.unwrap_or(usize::MAX),
            repetition: self.repetition_penalty,
            frequency: self.frequency_penalty,
            presence: self.presence_penalty,
            ..Sampling::greedy()
        };
        if self.greedy {
            return penalties;
        }
        let now = || std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_nanos() as u64);
        Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            seed: self.seed.unwrap_or_else(now),
            ..penalties
        }
    }
}

/// Tokens a second, as text.
pub(super) fn speed(tokens: usize, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    format!("{tokens} tokens in {seconds:.2} s, {:.1} tokens/s", tokens as f64 / seconds.max(1e-9))
}

/// Generates.
pub fn execute(options: &Options) -> Outcome {
    let failed = |e: &dyn std::fmt::Display| Failure::Failed(e.to_string());
    let model = options.setup.open()?;
    let sampling = options.sampling();
    sampling.check(model.config().vocabulary).map_err(|e| Failure::Usage(e.to_string()))?;
    // Token ids need no tokenizer if they come back as ids.
    let tokenizer = if options.json && options.prompt.is_none() { None } else { Some(tokenizer(&model)?) };
    let prompt = match (&options.prompt, &tokenizer) {
        (Some(text), Some(tokenizer)) => tokenizer.encode(text).map_err(|e| failed(&e))?,
        _ => options.tokens.clone(),
    };
    if prompt.is_empty() {
        return Err(Failure::Usage("the prompt is empty: there is nothing to continue".to_owned()));
    }
    check(&prompt, &model)?;
    let mut ends = model.config().stop_tokens.clone();
    ends.extend(tokenizer.iter().flat_map(|t| t.ends()));

    let room = prompt.len().saturating_add(options.count);
    let trained = model.config().context;
    if room > trained {
        note(&format!("{room} tokens are more than the {trained} that the model was made for"))?;
    }
    let (mut loaded, load_time) =
        options.setup.load(&model, &options.threads, Room::one(room), options.json)?;
    end_on_interrupt();

    let started = Instant::now();
    let mut first = None;
    let mut new = Vec::new();
    let mut text = TextStream::default();
    let mut out = io::stdout().lock();
    if let (Some(prompt), false) = (&options.prompt, options.json) {
        out.write_all(prompt.as_bytes())?;
        out.flush()?;
    }
    let mut tokens = loaded.generate(&prompt, sampling).map_err(|e| failed(&e))?;
    if options.ignore_end {
        tokens = tokens.ignore_end();
        ends.clear();
    }
    for token in tokens.take(options.count) {
        let token = token.map_err(|e| failed(&e))?;
        first.get_or_insert_with(|| started.elapsed());
        new.push(token);
        if let (Some(tokenizer), false) = (&tokenizer, options.json) {
            out.write_all(text.push(&tokenizer.bytes(token)).as_bytes())?;
            out.flush()?;
        }
        if is_interrupted() || ends.contains(&token) {
            break;
        }
    }
    let all = started.elapsed();
    if options.json {
        drop(out);
        print_json(&new)?;
    } else {
        writeln!(out, "{}", text.finish())?;
    }
    // The first new token is what reading the prompt gives.
    let first = first.unwrap_or(all);
    note(&format!("load {:.2} s", load_time.as_secs_f64()))?;
    note(&format!("prompt {}", speed(prompt.len(), first)))?;
    if new.len() > 1 {
        note(&format!("generate {}", speed(new.len() - 1, all - first)))?;
    }
    if is_interrupted() {
        note("interrupted")?;
    }
    Ok(())
}
