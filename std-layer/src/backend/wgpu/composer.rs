//! Shaders as text: one source for each operator, into which constants, options and the decoding of a format are put.
//!
//! A line `//#if NAME` begins lines that are kept if the option is given, `//#else` those that are kept otherwise, `//#endif` ends them.

use std::fmt::Write;

use super::formats::Format;
use super::shapes::{CacheShape, PIECE};
use crate::backend::KvType;
use crate::model::{LinearAttention, Recurrence, Rule};

/// Puts a shader together.
#[derive(Default)]
pub(super) struct Composer {
    pub(super) text: String,
    pub(super) options: Vec<&'static str>,
}

impl Composer {
    pub(super) fn constants(&mut self, all: &[(&str, u32)]) {
        for (name, value) in all {
            // Writing to a string does not fail.
            let _ = writeln!(self.text, "const {name}: u32 = {value}u;");
        }
    }

    pub(super) fn options(&mut self, all: &[(&'static str, bool)]) {
        self.options.extend(all.iter().filter(|option| option.1).map(|option| option.0));
    }

    pub(super) fn format(&mut self, format: Format) -> Option<()> {
        let own = format.source()?;
        self.options(&[("OFFSETS", format.has_offsets()), ("CODES", format.has_codes())]);
        self.push(include_str!("wgsl/formats/common.wgsl"));
        self.push(own);
        self.push(if format.has_blocks() {
            include_str!("wgsl/formats/blocks.wgsl")
        } else {
            include_str!("wgsl/formats/dense.wgsl")
        });
        Some(())
    }

    pub(super) fn shape(&mut self, shape: CacheShape) {
        self.constants(&[
            ("HEADS", shape.heads),
            ("KV_HEADS", shape.kv_heads),
            ("PAIRS", shape.pairs),
            ("VALUE_PAIRS", shape.value_pairs()),
            ("MIXED_STEP", shape.mixed_step()),
            ("PAGE", shape.page_tokens),
            // From the queries of a head to those of the next.
            ("STEP", 2 * shape.pairs * if shape.gates { 2 } else { 1 }),
        ]);
        self.options(&[("GATES", shape.gates), ("LATENT", shape.latent.is_some())]);
    }

    /// What says how a recurrent layer convolves, and what it keeps.
    pub(super) fn recurrence(&mut self, of: Recurrence) {
        let (size, normed) = match of {
            Recurrence::Linear(of) if of.normed_heads() > 0 => (of.key_size as u32, of.key_heads as u32),
            // Channels may be divided anyhow.
            _ => (PIECE, 0),
        };
        let constants = [("TAPS", of.taps()), ("CHANNELS", of.channels()), ("STATE", of.state())];
        self.constants(&constants.map(|(name, n)| (name, n as u32)));
        self.constants(&[("HEAD", size), ("NORMED", normed)]);
        self.options(&[
            ("LINEAR", matches!(of, Recurrence::Linear(_))),
            ("GATED", matches!(of, Recurrence::Convolution(_))),
        ]);
    }

    pub(super) fn linear(&mut self, of: LinearAttention) {
        self.recurrence(Recurrence::Linear(of));
        let decay_heads = match of.rule {
            Rule::Delta { decay_heads } => decay_heads,
            Rule::StateSpace => 0,
        };
        let constants = [
            ("KEY_HEADS", of.key_heads),
            ("VALUE_HEADS", of.value_heads),
            ("SIZE", of.key_size),
            ("ROWS", of.value_size),
            ("NORMED_TOGETHER", of.normed_together()),
            ("DECAY_HEADS", decay_heads),
        ];
        self.constants(&constants.map(|(name, n)| (name, n as u32)));
        self.options(&[("TILED", of.tiled), ("SPACE", of.rule == Rule::StateSpace)]);
        self.push(include_str!("wgsl/silu.wgsl"));
    }

    pub(super) fn cache(&mut self, shape: CacheShape) {
        self.shape(shape);
        let kind = |of| shape.kind == of;
        self.options(&[("F16", kind(KvType::F16)), ("BF16", kind(KvType::Bf16)), ("F32", kind(KvType::F32))]);
        self.push(include_str!("wgsl/cache.wgsl"));
    }

    /// What drafts that form trees see, if rows may be such drafts.
    pub(super) fn drafts(&mut self, drafts: bool) {
        self.options(&[("PATH", drafts)]);
        if drafts {
            self.push(include_str!("wgsl/path.wgsl"));
        }
    }

    /// Adds lines, without those whose option is not given.
    pub(super) fn push(&mut self, source: &str) {
        let mut kept = vec![true];
        for line in source.lines() {
            let last = *kept.last().unwrap_or(&true);
            if let Some(name) = line.strip_prefix("//#if ") {
                kept.push(self.options.contains(&name));
            } else if line == "//#else" {
                kept.pop();
                kept.push(!last);
            } else if line == "//#endif" {
                kept.pop();
            } else if kept.iter().all(|&k| k) {
                self.text.push_str(line);
                self.text.push('\n');
            }
        }
    }
}
