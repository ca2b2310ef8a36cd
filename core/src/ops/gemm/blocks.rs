//! Block sizes, from the caches of this CPU and the microkernel's tile.

use super::drive::{Source, Strided};
use crate::asm::abi::{Micro, Panel, ROUND};
use crate::caps::CacheSizes;
use crate::error::KernelError;
use crate::isa::machine::LINE;
use crate::scratch::ScratchReq;

/// What one way of L1 holds, as far as CPUs with such microkernels go.
const PAGE: usize = 4096;

/// Steps of `B` that are in L1 at a time, as they are asked for ahead.
const SOON: usize = 9;

/// Block sizes of the three outer loops. `mc` and `nc` are whole panels, `kc` is whole steps of the
/// microkernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    pub(super) mc: usize,
    pub(super) nc: usize,
    pub(super) kc: usize,
    /// Bytes of a matrix that may be read where it is.
    near: usize,
    /// Lines of L1 that hold what is a multiple of 4 KiB apart.
    ways: usize,
    /// Bytes of a block of `A`.
    pub(super) a: ScratchReq,
    /// Bytes of a block of `B`.
    pub(super) b: ScratchReq,
}

/// Parts of `total` in units of `unit`, none larger than `limit` (but at least one unit), all about equal.
fn equal_parts(total: usize, limit: usize, unit: usize) -> Result<usize, KernelError> {
    let overflow = KernelError::SizeOverflow { what: "block size" };
    let parts = total.div_ceil(limit.max(unit).max(1)).max(1);
    let part = total.div_ceil(parts).max(1);
    part.checked_next_multiple_of(unit).ok_or(overflow)
}

impl Blocks {
    /// For a product of this shape. `kc` depends on `k` alone: it decides the order of sums, which must
    /// not change with the part of `C` that is computed.
    pub(crate) fn new(
        micro: &Micro,
        caches: CacheSizes,
        m: usize,
        n: usize,
        k: usize,
    ) -> Result<Self, KernelError> {
        let per_step = (micro.a.steps(micro.a.width, 1) + micro.b.steps(micro.b.width, 1)).max(1);
        // C is read and written once a block, so deep blocks pay: as deep as six times L1 holds of both
        // panels. These stream from L2 then, which tiles of this size allow.
        // Tile registers take both at the rate of L1: there the panel of B has to stay in it.
        let halves = if micro.around.is_some() { 3 } else { 12 };
        let limit = caches.l1d.saturating_mul(halves) / 2 / per_step;
        let kc = equal_parts(k, limit, micro.depth.saturating_mul(ROUND))?;
        // A quarter of L2 for A: B's panels and C pass through it, too. A core's share of L3 (an eighth, as
        // for streaming) for B.
        let limit = caches.l2 / 4 / micro.a.bytes(1, kc).max(1);
        let mc = equal_parts(m, limit, micro.a.width)?;
        let share = if caches.l3 == 0 { caches.l2 / 2 } else { (caches.l3 / 8).max(caches.l2) };
        let nc = equal_parts(n, share / micro.b.bytes(1, kc).max(1), micro.b.width)?;
        let room = |panel: Panel, width: usize| {
            let each = kc.saturating_mul(panel.element.size()).saturating_add(panel.tail());
            ScratchReq::array::<u8>(width.saturating_mul(each))
        };
        let (a, b) = (room(micro.a, mc)?, room(micro.b, nc)?);
        Ok(Self { mc, nc, kc, near: share, ways: caches.l1d / PAGE, a, b })
    }

    /// Where tiles find `m` rows of `A`: where they are, if the microkernel can read them there and that costs less than
    /// packing; else in blocks that are packed at `room`.
    pub(super) fn left(&self, micro: &Micro, rows: [usize; 2], a: Strided, room: *mut u8) -> Source {
        if self.a_in_place(micro, rows, a) {
            Source::InPlace(a)
        } else {
            Source::Pack(a, room)
        }
    }

    /// The same for `n` columns of `B`.
    pub(super) fn right(&self, micro: &Micro, columns: [usize; 2], b: Strided, room: *mut u8) -> Source {
        if self.b_in_place(micro, columns, b) {
            Source::InPlace(b)
        } else {
            Source::Pack(b, room)
        }
    }

    fn a_in_place(&self, micro: &Micro, [m, k]: [usize; 2], a: Strided) -> bool {
        let Strided { across, along, .. } = a;
        let Panel { width, kr, element } = micro.a;
        let steps = kr == 1 || along == element.size() && k.is_multiple_of(kr);
        let extent = m.saturating_mul(across).max(k.saturating_mul(along));
        let fits = if across < along { self.fits(along, SOON) } else { self.fits(across, width) };
        micro.strides && micro.a.holds(micro.storage) && steps && extent <= self.near && fits
    }

    /// Whether tiles are to read `n` columns of `B` where they are. A register is loaded at once, and whole tiles: beside the
    /// matrix there is nothing to read.
    pub(super) fn b_in_place(&self, micro: &Micro, [n, k]: [usize; 2], b: Strided) -> bool {
        let Strided { across, along, .. } = b;
        let Panel { width, kr, element } = micro.b;
        let whole = kr == 1 && across == element.size() && n.is_multiple_of(width);
        let extent = k.saturating_mul(along);
        micro.strides
            && micro.b.holds(micro.storage)
            && whole
            && extent <= self.near
            && self.fits(along, SOON)
    }

    /// Whether so many lines at a stride leave room in L1 for others: all that fall into one set.
    fn fits(&self, stride: usize, lines: usize) -> bool {
        let mut sets = [0; PAGE / LINE];
        (0..lines).all(|i| {
            let set = i.wrapping_mul(stride) / LINE % sets.len();
            sets.get_mut(set).is_some_and(|count| {
                *count += 1;
                *count < self.ways
            })
        })
    }
}
