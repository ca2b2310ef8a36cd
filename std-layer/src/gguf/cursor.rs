//! Reading little-endian fields from a slice, never beyond its end.

use super::error::{Fault, Problem};

/// A position in a file's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], pos: usize) -> Self {
        Self { bytes, pos }
    }

    pub(super) fn pos(&self) -> usize {
        self.pos
    }

    /// Bytes that follow.
    pub(super) fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.pos)
    }

    /// A problem with the field that begins here.
    pub(super) fn fault<T>(&self, problem: Problem) -> Result<T, Fault> {
        Err(Fault { offset: self.pos, problem })
    }

    pub(super) fn take(&mut self, len: u64) -> Result<&'a [u8], Fault> {
        let end = usize::try_from(len).ok().and_then(|len| self.pos.checked_add(len));
        let Some(taken) = end.and_then(|end| self.bytes.get(self.pos..end)) else {
            return self.fault(Problem::Truncated { need: len, left: self.left() as u64 });
        };
        self.pos += taken.len();
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64)?);
        Ok(out)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_le_bytes)
    }

    /// A count of items that have at least `each` bytes: never more than the rest of the file holds.
    pub(super) fn count(&mut self, each: u64) -> Result<u64, Fault> {
        let start = *self;
        let count = self.u64()?;
        let left = self.left() as u64;
        if count > left / each {
            return start.fault(Problem::TooMany { count, each, left });
        }
        Ok(count)
    }

    /// A length and that many bytes of UTF-8.
    pub(super) fn str(&mut self) -> Result<&'a str, Fault> {
        let start = *self;
        let len = self.u64()?;
        std::str::from_utf8(self.take(len)?).or_else(|_| start.fault(Problem::Utf8))
    }
}
