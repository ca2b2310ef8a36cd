//! Weights packed for the GEMM microkernel: a checked header, then panels.

pub(crate) mod lines;
mod panels;

use crate::args::micro::{Micro, Panel};
use crate::check;
use crate::element::ElementType;
use crate::error::KernelError;
use crate::header::{same, Header};
use crate::scratch::ScratchReq;
pub(crate) use panels::{pack, pieces, PackArgs, Reading};

/// First word of the header.
const MAGIC: u64 = u64::from_le_bytes(*b"gllmpkB\0");
/// Version of the layout.
const VERSION: u64 = 2;

/// A matrix `B` in the panel order of one microkernel, behind a checked header.
///
/// The buffer holds: at byte 0 a header of 64 bytes (eight little-endian words: magic, layout, `k`, `n`,
/// where the panels start, three zeros); then, from the next address that is a multiple of 64, the panels.
/// The layout word names its version, the storage type `B` had, and the type, grouping, padding and width
/// of the panels. Packed bytes may be copied or stored and used elsewhere: by kernels that read the same
/// panels, at any address that is a multiple of 4 away from the first one (modulo 64 for full speed).
#[derive(Clone, Copy, Debug)]
pub struct PackedB<'a> {
    pub(crate) panels: &'a [u8],
    pub(crate) kind: PanelLayout,
    pub(crate) k: usize,
    pub(crate) n: usize,
}

/// The layout of the panels in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PanelLayout {
    pub(crate) storage: ElementType,
    pub(crate) panel: Panel,
    /// See [`Micro::depth`].
    pub(crate) depth: usize,
}

impl PanelLayout {
    /// Panels of `B` for a microkernel.
    pub(crate) const fn of(micro: &Micro) -> Self {
        Self { storage: micro.storage, panel: micro.b, depth: micro.depth }
    }

    /// The layout word.
    pub(crate) const fn word(self) -> u64 {
        let storage = match self.storage {
            ElementType::F32 => 1,
            ElementType::F16 => 2,
            ElementType::Bf16 => 3,
            ElementType::I8 => 4,
        };
        let Panel { element, width, kr } = self.panel;
        VERSION << 48
            | storage << 40
            | (element as u64) << 32
            | (self.depth as u64) << 24
            | (kr as u64) << 16
            | width as u64
    }

    /// Bytes of all panels of a `k x n` matrix.
    pub(crate) fn bytes(self, k: usize, n: usize) -> Result<usize, KernelError> {
        let overflow = KernelError::SizeOverflow { what: "packed size" };
        let (n, k) = (n.checked_next_multiple_of(self.panel.width), k.checked_next_multiple_of(self.depth));
        let column = k.and_then(|k| k.checked_mul(self.panel.element.size())?.checked_add(self.panel.tail()));
        let len = n.and_then(|n| n.checked_mul(column?));
        Ok(ScratchReq::array::<u8>(len.ok_or(overflow)?)?.size())
    }

    /// The header of a `k x n` matrix.
    pub(crate) fn header(self, k: usize, n: usize) -> Result<Header, KernelError> {
        Ok(Header {
            magic: MAGIC,
            layout: self.word(),
            names: ["packed k", "packed n"],
            dims: [k, n],
            bytes: self.bytes(k, n)?,
        })
    }
}

impl<'a> PackedB<'a> {
    /// Rows of `B`.
    pub fn k(&self) -> usize {
        self.k
    }
    /// Columns of `B`.
    pub fn n(&self) -> usize {
        self.n
    }
    /// Columns of a panel: [`col_range`](Self::col_range) starts at multiples of this.
    pub fn col_step(&self) -> usize {
        self.panel().width
    }

    /// Columns `start .. start + len`, for computing these columns of `C` on their own.
    ///
    /// # Errors
    /// `OutOfRange` if the range leaves the matrix; `BadValue` if `start` is neither a multiple of
    /// [`col_step`](Self::col_step) nor the end.
    pub fn col_range(self, start: usize, len: usize) -> Result<Self, KernelError> {
        check::range("columns", start, len, self.n)?;
        if !start.is_multiple_of(self.panel().width) && start != self.n {
            let expected = "a multiple of col_step(), or the number of columns";
            return Err(KernelError::BadValue { arg: "start", got: start, expected });
        }
        // Whole panels before `start`. What has been packed has a size that does not overflow.
        let skip = self.kind.bytes(self.k, start)?;
        let panels = self.panels.get(skip..).unwrap_or(&[]);
        Ok(Self { panels, n: len, ..self })
    }

    fn panel(&self) -> Panel {
        self.kind.panel
    }

    /// The panels, if they have the layout and the shape that a kernel with these panels reads.
    pub(crate) fn panels_for(&self, kind: PanelLayout, k: usize, n: usize) -> Result<*const u8, KernelError> {
        same("the layout", kind.word(), self.kind.word())?;
        check::dim("b.k() != k", self.k, k)?;
        check::dim("b.n() != n", self.n, n)?;
        Ok(self.panels.as_ptr())
    }

    /// Checks a header and everything it says.
    pub(crate) fn open(buf: &'a [u8], kind: PanelLayout, k: usize, n: usize) -> Result<Self, KernelError> {
        Ok(Self { panels: kind.header(k, n)?.open(buf)?, kind, k, n })
    }
}
