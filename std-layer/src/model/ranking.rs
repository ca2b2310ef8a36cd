//! How well texts answer what they are asked.

use super::{Generator, SequenceId};
use crate::backend::{Backend, BackendError, Outputs, Run, Topology};

/// The share of the first logit in the softmax of all. A single logit stands against 0.
fn share(mut logits: impl Iterator<Item = f32>) -> f32 {
    let first = f64::from(logits.next().unwrap_or(f32::NAN));
    let mut others = logits.map(f64::from).peekable();
    let alone = others.peek().is_none().then_some(0.0);
    let sum: f64 = others.chain(alone).map(|other| (other - first).exp()).sum();
    (1.0 / (1.0 + sum)) as f32
}

/// How many tokens all texts begin with, without the last token of any.
fn shared_beginning(texts: &[&[u32]]) -> usize {
    let Some((first, others)) = texts.split_first() else { return 0 };
    let alike = |text: &&[u32]| first.iter().zip(*text).take_while(|(a, b)| a == b).count();
    let shortest = texts.iter().map(|text| text.len()).min().unwrap_or(0);
    others.iter().map(alike).min().unwrap_or(0).min(shortest.saturating_sub(1))
}

impl<B: Backend> Generator<B> {
    /// Of each text the probability, 0 to 1, that it is what was asked for. A text is all that the model reads, as it was trained: instruction, query and document.
    ///
    /// With `answers` being `None`, it is the probability of the first label of the model's [`Classifier`](super::Classifier); of a model with a
    /// single label, `1 / (1 + exp(-logit))`. Otherwise it is the probability of the token `answers[0]`, "yes", against `answers[1]`, "no", behind the text.
    ///
    /// What all texts begin with is computed once, and the texts share its pages of the cache. This takes one of [`cache.sequences`](super::Options::cache); with
    /// the others, as many texts make a step together as [`Options::chunk`](super::Options::chunk) and the cache have room for. `progress` is told how many texts are done.
    ///
    /// # Errors
    /// The backend's; `Tokens` if a text is empty, has more tokens than the model was trained for or than the cache has room for, or if the model has no such answers.
    pub fn rank(
        &mut self,
        texts: &[&[u32]],
        answers: Option<[u32; 2]>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<f32>, BackendError> {
        let (size, free) = (self.pages().page_tokens(), self.pages().free(0));
        let refuse = |what: String| Err(BackendError::Tokens(what));
        match (answers, &self.classifier) {
            (None, None) => {
                return refuse("the model has no classifier, and no answers were named".to_owned())
            }
            (Some(answers), _) => {
                if let Some(answer) = answers.iter().find(|&&answer| answer as usize >= self.width) {
                    return refuse(format!("the answer {answer}, but a text has {} logits", self.width));
                }
            }
            (None, Some(_)) => {}
        }
        for (i, text) in texts.iter().enumerate() {
            let (n, of) = (text.len(), i + 1);
            if n == 0 {
                return refuse(format!("text {of} is without tokens"));
            }
            if n > self.context {
                return refuse(format!("text {of} has {n} tokens; the model was made for {}", self.context));
            }
            if n.div_ceil(size) > free {
                let room = free * size;
                return refuse(format!("text {of} has {n} tokens; the cache has room for {room}"));
            }
        }
        // Whoever goes on behind a page that is not full has a copy of it.
        let longest = texts.iter().map(|text| text.len().div_ceil(size)).max().unwrap_or(0);
        let shared = shared_beginning(texts);
        let fits =
            self.options.cache.sequences > 1 && longest + usize::from(!shared.is_multiple_of(size)) <= free;
        let mut living = Vec::new();
        let scores = self.scores(texts, (if fits { shared } else { 0 }, &mut living), answers, progress);
        for sequence in living {
            self.remove(sequence)?;
        }
        scores
    }

    /// Scores of texts that fit. Sequences that are left are in `living`.
    fn scores(
        &mut self,
        texts: &[&[u32]],
        (shared, living): (usize, &mut Vec<SequenceId>),
        answers: Option<[u32; 2]>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<f32>, BackendError> {
        let (size, chunk) = (self.pages().page_tokens(), self.chunk);
        let mut base = None;
        if shared > 0 {
            let sequence = self.create();
            living.push(sequence);
            self.extend(sequence, &texts[0][..shared], Outputs::None)?;
            base = Some(sequence);
        }
        let side_by_side = self.options.cache.sequences.saturating_sub(living.len()).max(1);
        let mut scores = Vec::with_capacity(texts.len());
        // A text that a step has ended in, and how many of its tokens are done.
        let mut open: Option<(SequenceId, usize)> = None;
        while scores.len() < texts.len() {
            let (mut tokens, mut runs, mut free) = (Vec::new(), Vec::new(), self.pages().free(0));
            for text in &texts[scores.len()..] {
                if tokens.len() == chunk || runs.len() == side_by_side {
                    break;
                }
                let done = open.map_or(shared, |(_, done)| done);
                let copied = usize::from(open.is_none() && !done.is_multiple_of(size));
                let needed = text.len().div_ceil(size) - done.div_ceil(size) + copied;
                if needed > free && !runs.is_empty() {
                    break;
                }
                free = free.saturating_sub(needed);
                let sequence = match (open.take(), base) {
                    (Some((sequence, _)), _) => sequence,
                    (None, Some(base)) => self.fork(base, shared)?,
                    (None, None) => self.create(),
                };
                if !living.contains(&sequence) {
                    living.push(sequence);
                }
                let end = text.len().min(done + chunk - tokens.len());
                let is_last = end == text.len();
                let outputs = if is_last { Outputs::Last } else { Outputs::None };
                tokens.extend(&text[done..end]);
                runs.push(Run { sequence, tokens: end - done, outputs });
                if !is_last {
                    open = Some((sequence, end));
                }
            }
            let topology = Topology { runs };
            let logits = self.forward(&tokens, &topology)?;
            let logits = if topology.outputs() > 0 { self.backend.read_logits(&logits)? } else { Vec::new() };
            for row in logits.chunks_exact(self.width) {
                scores.push(match (answers, self.classifier.as_ref().and_then(|c| c.bias.as_ref())) {
                    (Some(answers), _) => share(answers.into_iter().map(|answer| row[answer as usize])),
                    (None, Some(bias)) => share(row.iter().zip(bias).map(|(x, b)| x + b)),
                    (None, None) => share(row.iter().copied()),
                });
            }
            for run in topology.runs.iter().filter(|run| run.outputs == Outputs::Last) {
                living.retain(|&sequence| sequence != run.sequence);
                self.remove(run.sequence)?;
            }
            progress(scores.len());
        }
        Ok(scores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_softmax() {
        let of = |logits: &[f32]| share(logits.iter().copied());
        assert_eq!((of(&[1.0, 1.0]), of(&[0.0]), of(&[5.0, 5.0, 5.0, 5.0])), (0.5, 0.5, 0.25));
        assert_eq!((of(&[1000.0, -1000.0]), of(&[-1000.0, 1000.0])), (1.0, 0.0));
        assert!((f64::from(of(&[2.0, 1.0])) - 1.0 / (1.0 + (-1.0f64).exp())).abs() < 1e-7);
        assert!((of(&[2.0]) - of(&[2.0, 0.0])).abs() < 1e-7 && of(&[f32::NAN, 0.0]).is_nan());
    }

    #[test]
    fn beginnings_end_before_the_last_token() {
        assert_eq!(shared_beginning(&[]), 0);
        assert_eq!(shared_beginning(&[&[1, 2, 3]]), 0);
        assert_eq!(shared_beginning(&[&[1, 2, 3], &[1, 2, 4]]), 2);
        assert_eq!(shared_beginning(&[&[1, 2, 3], &[1, 2, 3]]), 2);
        assert_eq!(shared_beginning(&[&[1, 2, 3, 4], &[1, 2], &[1, 2, 3]]), 1);
        assert_eq!(shared_beginning(&[&[7, 2], &[1, 2]]), 0);
    }
}
