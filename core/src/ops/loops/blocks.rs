//! Block sizes, from the caches of this CPU and the microkernel's tile.

use super::operands::{Source, Strided};
use crate::args::micro::{Micro, Panel, ROUND};
use crate::caps::{CacheSizes, Caps, Prefetcher};
use crate::error::KernelError;
use crate::isa::machine::{LINE, PAGE};
use crate::ops::pack::Reading;
use crate::scratch::ScratchReq;

/// Steps of `B` that are in L1 at a time, because they have been prefetched.
const PREFETCHED_STEPS: usize = 9;

/// Panels of `A` up to which packing `B` costs more than reading it, once for each of them, at strides that suit no cache: 64 rows and
/// more with tiles of 14 rows.
const MAX_PANELS_IN_PLACE: usize = 5;

/// With tile registers, rows of `A` for which `B` is packed once, at most.
const MAX_ROWS_OF_SUMS: usize = 2048;

/// Block sizes of the outer loops. `mc` and `nc` are whole panels, `kc` is whole steps of the microkernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockSizes {
    pub(crate) mc: usize,
    pub(crate) nc: usize,
    pub(crate) kc: usize,
    /// Bytes of `A`, and of `B`, that may be read where they are.
    near: [usize; 2],
    /// Whether `A` has no more than [`MAX_PANELS_IN_PLACE`].
    few_rows: bool,
    /// Bytes of L2.
    l2: usize,
    /// Ways of L1: lines whose addresses differ by multiples of [`PAGE`] and that it holds at the same time.
    ways: usize,
    /// How blocks are packed.
    pub(crate) reading: Reading,
    /// Bytes of a block of `A`; for microkernels with tile registers, of all blocks of some rows.
    pub(crate) a: ScratchReq,
    /// Bytes of a block of `B`.
    pub(crate) b: ScratchReq,
    /// Bytes of the sums that microkernels with tile registers keep between blocks of the depth.
    pub(crate) sums: ScratchReq,
}

const OVERFLOW: KernelError = KernelError::SizeOverflow { what: "block size" };

/// Parts of `total` in units of `unit`, none larger than `limit` (but at least one unit), all about equal.
fn equal_parts(total: usize, limit: usize, unit: usize) -> Result<usize, KernelError> {
    let parts = total.div_ceil(limit.max(unit).max(1)).max(1);
    let part = total.div_ceil(parts).max(1);
    part.checked_next_multiple_of(unit).ok_or(OVERFLOW)
}

impl BlockSizes {
    /// For a product of this shape, which may be a part of one with `whole` rows. `kc` depends on `k` alone: it decides the
    /// order of sums, which must not change with the part of `C` that is computed.
    pub(crate) fn new(
        micro: &Micro,
        caps: Caps,
        [m, n, k]: [usize; 3],
        whole: usize,
    ) -> Result<Self, KernelError> {
        let caches = caps.caches();
        let kc = Self::depth(micro, caches, k, 1)?;
        let [mc, nc] = Self::sides(micro, caches, [m, n, k], kc)?;
        let few_rows = whole.div_ceil(micro.a.width.max(1)) <= MAX_PANELS_IN_PLACE;
        let near = match caps.prefetcher() {
            Prefetcher::Sequential(_) => [caches.share(); 2],
            // This hardware prefetcher does not fetch lines of `B` from beyond L2, as each row of `B` is in another page. `A`
            // is read along its rows.
            Prefetcher::PerPage if few_rows => [usize::MAX; 2],
            Prefetcher::PerPage => [usize::MAX, caches.l2 / 2],
        };
        let (ways, reading) = (caches.l1d / PAGE, Reading::of(caps.prefetcher()));
        let (l2, a, b, sums) = (caches.l2, ScratchReq::EMPTY, ScratchReq::EMPTY, ScratchReq::EMPTY);
        Self { mc, nc, kc, near, few_rows, l2, ways, reading, a, b, sums }.with_room(micro, k)
    }

    /// The blocks for a `B` that is made block by block, when each is needed, and whose blocks stay in L2 until all of
    /// `A` has met them. They have whole groups of `unit` steps, a power of two, and of `columns` columns.
    pub(crate) fn made(
        self,
        micro: &Micro,
        caches: CacheSizes,
        [n, k]: [usize; 2],
        [columns, unit]: [usize; 2],
    ) -> Result<Self, KernelError> {
        let kc = Self::depth(micro, caches, k, unit)?;
        let both = (1..=columns).map(|i| i.saturating_mul(micro.b.width)).find(|w| w.is_multiple_of(columns));
        let step = both.unwrap_or(columns).max(1);
        let most = if micro.around.is_some() { self.nc } else { caches.l2 / 2 / micro.b.bytes(1, kc).max(1) };
        let nc = (most - most % step).max(step);
        let nc = equal_parts(n, nc, step)?;
        Self { nc, kc, ..self }.with_room(micro, k)
    }

    /// With the memory for a block of each operand, in a product of this depth.
    fn with_room(self, micro: &Micro, k: usize) -> Result<Self, KernelError> {
        let room = |panel: Panel, width: usize, depth: usize| {
            let each = depth.saturating_mul(panel.element.size()).saturating_add(panel.tail());
            ScratchReq::array::<u8>(width.saturating_mul(each))
        };
        let b = room(micro.b, self.nc, self.kc)?;
        if micro.around.is_none() {
            return Ok(Self { a: room(micro.a, self.mc, self.kc)?, b, ..self });
        }
        let depth = k.checked_next_multiple_of(micro.depth).ok_or(OVERFLOW)?;
        let sums = if k > self.kc { self.mc.saturating_mul(self.nc) } else { 0 };
        Ok(Self { a: room(micro.a, self.mc, depth)?, b, sums: ScratchReq::array::<f32>(sums)?, ..self })
    }

    /// `kc`: whole steps of the microkernel, and a multiple of `unit`, which like them is a power of two.
    fn depth(micro: &Micro, caches: CacheSizes, k: usize, unit: usize) -> Result<usize, KernelError> {
        let (limit, unit) = if micro.around.is_some() {
            // The panel of A takes two thirds of L1. The panels of B pass through the rest and do not displace it.
            (caches.l1d / 3 * 2 / micro.a.steps(micro.a.width, 1).max(1), micro.depth.max(unit))
        } else {
            let per_step = (micro.a.steps(micro.a.width, 1) + micro.b.steps(micro.b.width, 1)).max(1);
            // C is read and written once a block, so deep blocks pay: as deep as six times L1 holds of both
            // panels. These stream from L2 then, which tiles of this size allow.
            (caches.l1d.saturating_mul(6) / per_step, micro.depth.saturating_mul(ROUND).max(unit))
        };
        equal_parts(k, limit - limit % unit.max(1), unit)
    }

    /// `mc` and `nc` for this `kc`.
    fn sides(
        micro: &Micro,
        caches: CacheSizes,
        [m, n, k]: [usize; 3],
        kc: usize,
    ) -> Result<[usize; 2], KernelError> {
        let (of_a, of_b) = (micro.a.bytes(1, kc).max(1), micro.b.bytes(1, kc).max(1));
        if micro.around.is_some() {
            // See `tiles` for the loops: a block of B is a quarter of L2. It is packed for so many rows that this costs little, but where
            // there are sums to keep for no more than the depth: they take no more memory than `GemmPlan::scratch_bound` has, then.
            let nc = caches.l2 / 4 / of_b;
            let most = if k > kc { MAX_ROWS_OF_SUMS.min(k) } else { MAX_ROWS_OF_SUMS };
            let mc = equal_parts(m, most, micro.a.width)?;
            return Ok([mc, equal_parts(n, nc - nc % micro.b.width.max(1), micro.b.width)?]);
        }
        // A quarter of L2 for A: B's panels and C pass through it, too. For B what a core may count on.
        let mc = equal_parts(m, caches.l2 / 4 / of_a, micro.a.width)?;
        let share = if caches.l3 == 0 { caches.l2 / 2 } else { caches.share() };
        Ok([mc, equal_parts(n, share / of_b, micro.b.width)?])
    }

    /// Where tiles find `m` rows of `A`: where they are, if the microkernel can read them there and that costs less than
    /// packing; else in blocks that are packed at `room`.
    pub(crate) fn left(&self, micro: &Micro, rows: [usize; 2], a: Strided, room: *mut u8) -> Source<'static> {
        if self.a_in_place(micro, rows, a) {
            Source::InPlace(a)
        } else {
            Source::Pack(a, room)
        }
    }

    /// Where tiles find `n` columns of `B`: where they are, or in blocks that are packed at `room`, as with
    /// [`left`](Self::left).
    pub(crate) fn right(
        &self,
        micro: &Micro,
        columns: [usize; 2],
        b: Strided,
        room: *mut u8,
    ) -> Source<'static> {
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
        let fits = if across < along { self.fits(along, PREFETCHED_STEPS) } else { self.fits(across, width) };
        micro.strides && micro.a.holds(micro.storage) && steps && extent <= self.near[0] && fits
    }

    /// Whether tiles are to read `n` columns of `B` where they are. A register is loaded at once, and whole tiles: beside the
    /// matrix there is nothing to read.
    pub(crate) fn b_in_place(&self, micro: &Micro, [n, k]: [usize; 2], b: Strided) -> bool {
        let Strided { across, along, .. } = b;
        let Panel { width, kr, element } = micro.b;
        let whole = kr == 1 && across == element.size() && n.is_multiple_of(width);
        let extent = k.saturating_mul(along);
        micro.strides
            && micro.b.holds(micro.storage)
            && whole
            && extent <= self.near[1]
            && self.fits(along, PREFETCHED_STEPS)
            && (self.few_rows || self.panel_stays(along, k))
    }

    /// Whether a panel of `B`, read where it is, stays in L2 for the next rows of `A`: a block of its `k` rows, `stride` bytes apart. If the
    /// stride is a multiple of a power of two, only one of as many bytes of L2 is used. With whole pages too little is left for all else.
    fn panel_stays(&self, stride: usize, k: usize) -> bool {
        let power = stride & stride.wrapping_neg();
        !stride.is_multiple_of(PAGE) && self.kc.min(k).saturating_mul(power.max(LINE)) <= self.l2
    }

    /// Whether `lines` lines, `stride` bytes apart, leave room for other lines in every set of L1.
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
