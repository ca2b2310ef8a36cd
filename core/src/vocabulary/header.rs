//! The header at the beginning of packed weights, which says what follows it, and is checked before that is used.
//!
//! The header is at byte 0 and has eight little-endian words of 64 bits: a magic number, the layout, two dimensions,
//! the byte at which the contents start, and three zeros. The contents start at the next address that is a multiple of
//! 64. Packed bytes may be copied or stored and used elsewhere, at any address that is a multiple of 4 away from the
//! first one (modulo 64 for full speed).

use crate::check;
use crate::error::KernelError;
use crate::scratch::ScratchReq;

/// Bytes of a header.
const HEADER: usize = 64;

/// The contents of a header.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub(crate) magic: u64,
    pub(crate) layout: u64,
    pub(crate) dims: [usize; 2],
    /// The names of the dimensions in errors.
    pub(crate) names: [&'static str; 2],
    /// Bytes of the contents.
    pub(crate) bytes: usize,
}

/// Checks that a word of a header has the value that it must have.
pub(crate) fn same(what: &'static str, want: u64, got: u64) -> Result<(), KernelError> {
    if want == got {
        Ok(())
    } else {
        Err(KernelError::WrongPacking { what, want, got })
    }
}

/// Word `i` of a header.
fn word(header: &[u8; HEADER], i: usize) -> u64 {
    let mut bytes = [0; 8];
    for (to, &from) in bytes.iter_mut().zip(header.iter().skip(8 * i)) {
        *to = from;
    }
    u64::from_le_bytes(bytes)
}

impl Header {
    /// Bytes that a buffer needs, wherever it starts.
    pub(crate) const fn size(&self) -> Result<usize, KernelError> {
        match self.bytes.checked_add(HEADER + ScratchReq::PANEL_ALIGN - 1) {
            Some(size) => Ok(size),
            None => Err(KernelError::SizeOverflow { what: "packed size" }),
        }
    }

    /// Writes the header, and yields room for the contents.
    pub(crate) fn write<'a>(&self, buf: &'a mut [u8]) -> Result<&'a mut [u8], KernelError> {
        let (need, got) = (self.size()?, buf.len());
        let short = KernelError::ShortSlice { arg: "buf", need, got };
        if got < need {
            return Err(short);
        }
        let start = HEADER + ((buf.as_ptr() as usize).wrapping_neg() & (ScratchReq::PANEL_ALIGN - 1));
        let [a, b] = self.dims;
        let words = [self.magic, self.layout, a as u64, b as u64, start as u64];
        let bytes = words.into_iter().flat_map(u64::to_le_bytes).chain(core::iter::repeat(0));
        for (to, from) in buf.iter_mut().zip(bytes.take(HEADER)) {
            *to = from;
        }
        buf.get_mut(start..start + self.bytes).ok_or(short)
    }

    /// Checks a header and everything it says, and yields the contents.
    pub(crate) fn open<'a>(&self, buf: &'a [u8]) -> Result<&'a [u8], KernelError> {
        let too_short = |need| KernelError::ShortSlice { arg: "packed", need, got: buf.len() };
        let header = buf.first_chunk::<HEADER>().ok_or(too_short(HEADER))?;
        same("the magic number", self.magic, word(header, 0))?;
        same("the layout", self.layout, word(header, 1))?;
        for ((i, what), want) in self.names.into_iter().enumerate().zip(self.dims) {
            check::dim(what, usize::try_from(word(header, 2 + i)).unwrap_or(usize::MAX), want)?;
        }
        let start = usize::try_from(word(header, 4)).unwrap_or(usize::MAX);
        if !(HEADER..HEADER + ScratchReq::PANEL_ALIGN).contains(&start) {
            return Err(KernelError::WrongPacking {
                what: "the start",
                want: HEADER as u64,
                got: word(header, 4),
            });
        }
        let need = self.bytes.checked_add(start).ok_or(KernelError::SizeOverflow { what: "packed size" })?;
        let contents = buf.get(start..need).ok_or(too_short(need))?;
        if !contents.as_ptr().cast::<f32>().is_aligned() {
            return Err(KernelError::BadParameter {
                arg: "packed",
                expected: "bytes moved by a multiple of 4 since they were packed",
            });
        }
        Ok(contents)
    }
}
