//! Block sizes, from the caches of this CPU and the microkernel's tile.

use crate::asm::abi::{Micro, Panel, ROUND};
use crate::caps::CacheSizes;
use crate::error::KernelError;
use crate::scratch::ScratchReq;

/// Block sizes of the three outer loops. `mc` and `nc` are whole panels, `kc` is whole steps of the
/// microkernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    pub(super) mc: usize,
    pub(super) nc: usize,
    pub(super) kc: usize,
    /// Bytes of a matrix that is read where it is.
    pub(super) near: usize,
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
        let near = caches.l2 / 4;
        let limit = near / micro.a.bytes(1, kc).max(1);
        let mc = equal_parts(m, limit, micro.a.width)?;
        let share = if caches.l3 == 0 { caches.l2 / 2 } else { (caches.l3 / 8).max(caches.l2) };
        let nc = equal_parts(n, share / micro.b.bytes(1, kc).max(1), micro.b.width)?;
        let room = |panel: Panel, width: usize| {
            let each = kc.saturating_mul(panel.element.size()).saturating_add(panel.tail());
            ScratchReq::array::<u8>(width.saturating_mul(each))
        };
        let (a, b) = (room(micro.a, mc)?, room(micro.b, nc)?);
        Ok(Self { mc, nc, kc, near, a, b })
    }
}
