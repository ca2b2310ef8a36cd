//! Words on the device that are written only where they differ from what is there.

use wgpu::Buffer;

use super::device::Gpu;
use crate::backend::BackendError;

/// Words on the device, and a copy of them here. Shaders may change words in a known way: whoever runs them changes the copy, too.
#[derive(Debug)]
pub(super) struct Mirror {
    what: &'static str,
    pub(super) buffer: Buffer,
    words: Vec<u32>,
}

/// Words that do not differ, between words that do: so many are written with them.
const GAP: usize = 8;

impl Mirror {
    /// Room for so many words, which are 0.
    pub(super) fn new(gpu: &Gpu, what: &'static str, words: usize) -> Result<Self, BackendError> {
        let buffer = gpu.storage(what, 4 * words as u64)?;
        Ok(Self { what, buffer, words: vec![0; words] })
    }

    /// The copy.
    pub(super) fn words(&self) -> &[u32] {
        &self.words
    }

    /// The copy, for changes that the device makes, too.
    pub(super) fn words_mut(&mut self) -> &mut [u32] {
        &mut self.words
    }

    /// Makes the first words these ones.
    pub(super) fn set(&mut self, gpu: &Gpu, words: &[u32]) -> Result<(), BackendError> {
        if words.len() > self.words.len() {
            let (need, allowed) = (words.len() as u64, self.words.len() as u64);
            return Err(BackendError::Limit { what: format!("words of {}", self.what), need, allowed });
        }
        for (start, end) in differences(&self.words[..words.len()], words) {
            gpu.write(&self.buffer, 4 * start as u64, &words[start..end])?;
            self.words[start..end].copy_from_slice(&words[start..end]);
        }
        Ok(())
    }
}

/// Ranges outside which two slices of one length are equal.
fn differences(a: &[u32], b: &[u32]) -> Vec<(usize, usize)> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (i, _) in a.iter().zip(b).enumerate().filter(|(_, (a, b))| a != b) {
        match ranges.last_mut() {
            Some((_, end)) if i - *end < GAP => *end = i + 1,
            _ => ranges.push((i, i + 1)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::differences;

    #[test]
    fn only_what_differs_is_written() {
        let a = [0u32; 40];
        let mut b = a;
        assert!(differences(&a, &b).is_empty());
        (b[3], b[5], b[39]) = (1, 2, 3);
        assert_eq!(differences(&a, &b), [(3, 6), (39, 40)]);
    }
}
