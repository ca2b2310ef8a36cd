//! What crosses the bus in a step of one token: 8 bytes, and one submission.

use gllm_kernels_std::backend::{Backend, CacheOptions, Outputs, SampleRow};
use gllm_kernels_std::model::{sample, Generator, Options, Sampling};

use super::tiny::Tiny;
use super::{backend, options, tokens, with_sinks};

/// A step of one token takes 8 bytes and a submission; where a page begins, its number goes across, too.
fn takes_eight_bytes(tiny: Tiny, page_tokens: usize, positions: std::ops::Range<usize>) {
    let Some(backend) = backend() else { return };
    let model = tiny.open();
    let cache = CacheOptions { page_tokens, ..options().cache };
    let mut g = Generator::new(backend, &model, Options { cache, ..options() }).unwrap();
    let sequence = g.create();
    let mut logits = g.extend(sequence, &tokens(positions.start, 97), Outputs::Last).unwrap();
    let sampling = Sampling::greedy();
    for position in positions.clone() {
        let how = SampleRow { sampling: &sampling, history: &[], counter: 0 };
        let token = g.backend().sample_from_tensor(&logits, &[how]).unwrap();
        let before = g.backend().traffic();
        logits = g.extend(sequence, &token, Outputs::Last).unwrap();
        g.backend().sample_from_tensor(&logits, &[how]).unwrap();
        let after = g.backend().traffic();
        let page = if position % page_tokens == 0 { 4 } else { 0 };
        // The first step of one token has a table of its own.
        if position > positions.start {
            assert_eq!(after.to_device - before.to_device, 4 + page, "{tiny:?}, position {position}");
        }
        assert_eq!(after.from_device - before.from_device, 4);
        assert_eq!(after.submissions - before.submissions, 1);
    }
}

#[test]
fn eight_bytes_a_step() {
    takes_eight_bytes(Tiny::new("llama", None), 16, 9..60);
    // States are where they were.
    takes_eight_bytes(Tiny::new("qwen35", None), 16, 9..20);
}

/// With experts, whose choice the host never learns, it is the same.
#[test]
fn eight_bytes_a_step_with_experts() {
    for tiny in Tiny::mixtures().chain(with_sinks().take(1)) {
        takes_eight_bytes(tiny, 64, 9..15);
    }
}

/// The same with chance and penalties: random numbers and histories go on by themselves.
#[test]
fn eight_bytes_a_step_with_chance() {
    let Some(backend) = backend() else { return };
    let model = Tiny::new("llama", None).open();
    let mut g = Generator::new(backend, &model, options()).unwrap();
    let sequence = g.create();
    let prompt = tokens(9, 97);
    let mut logits = g.extend(sequence, &prompt, Outputs::Last).unwrap();
    let sampling = Sampling { seed: 5, repetition: 1.2, top_k: 20, top_p: 0.9, ..Sampling::default() };
    let mut history = prompt;
    // Room for 32 tokens is made at first.
    for counter in 0..20 {
        let before = g.backend().traffic();
        let how = SampleRow { sampling: &sampling, history: &history, counter };
        let token = g.backend().sample_from_tensor(&logits, &[how]).unwrap()[0];
        let after = g.backend().traffic();
        let mut row = g.backend().read_logits(&logits).unwrap();
        assert_eq!(token, sample(&mut row, &history, counter, 0, &sampling).unwrap());
        if counter > 0 && history.len() != 16 {
            assert_eq!(after.to_device, before.to_device, "token {counter}");
        }
        assert_eq!(after.from_device - before.from_device, 4);
        assert_eq!(after.submissions - before.submissions, 1);
        history.push(token);
        logits = g.extend(sequence, &[token], Outputs::Last).unwrap();
    }
}
