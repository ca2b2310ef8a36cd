//! The loops of a product for microkernels with tile registers (AMX), which keep the sums of a tile until the next call.
//!
//! | loop, from the outside in | over | what stays in a cache meanwhile |
//! |---|---|---|
//! | 5 | `mc` rows of `C` at a time | |
//! | 4 | `nc` columns of `C` at a time | sums of these rows and columns |
//! | 3 | `kc` steps of the depth at a time | the packed part of `B`, in L2 |
//! | 2 | panels of `A` | the panel, in L1 |
//! | 1 | panels of `B` | |
//!
//! So the microkernel streams `B` from L2, which is fast enough for tile registers. `B` is packed when it is needed, always to the same
//! memory, which therefore is in L2; all of the `mc` rows of `A` are packed as the first columns need them. Between two blocks
//! of the depth sums are kept as the tile registers have them, one tile behind the other in the order in which they are computed. `C` is
//! written once. Each call prefetches the sums of the next tile, and a part of the next panel of `A` unless it is busy with `C`.

use core::mem::MaybeUninit;

use super::drive::{Buffer, Drive, GemmBlock, PanelWalk};
use super::operands::Source;
use crate::args::micro::{MicroArgs, MAX_TILE};
use crate::ops::tile::MergeArgs;

/// Bytes of the next panel of `A` that a step prefetches. So 16 tiles prefetch it all.
const PREFETCHED: usize = 128;

/// A tile whose sums are in registers.
#[derive(Clone, Copy)]
struct Begun {
    /// Its corner in `C`.
    row: usize,
    col: usize,
    rows: usize,
    cols: usize,
    /// Where sums are kept until the next block of the depth.
    sums: *mut u8,
    /// Whether it is the last one in its rows.
    ends: bool,
}

/// The tile that is begun: its panels, the steps of these, where its sums are kept, and what is prefetched meanwhile of the next panel of
/// `A`.
struct NextTile {
    a: *const u8,
    b: *const u8,
    steps: usize,
    sums: *mut u8,
    ahead: *const u8,
}

impl Drive<'_> {
    /// The three outer loops.
    ///
    /// # Safety
    /// The contract of [`Drive::run`]; `padded` is `k` filled up to whole steps of the microkernel, which has tile registers.
    pub(super) unsafe fn run_tiles(&self, padded: usize) {
        let Self { m, n, k, blocks, .. } = *self;
        // They take no strides, and nobody else packs `A` for them.
        let Source::Pack(matrix, room) = self.a else { return };
        let panel = self.micro.a;
        let mut row = 0;
        while row < m {
            let rows = blocks.mc.min(m - row);
            let mut col = 0;
            while col < n {
                let cols = blocks.nc.min(n - col);
                let mut p = 0;
                while p < k {
                    let (steps, depth) = (blocks.kc.min(k - p), blocks.kc.min(padded - p));
                    // Behind the panels of all blocks before. There is room for as many bytes.
                    let to = room.wrapping_add(panel.steps(rows.next_multiple_of(panel.width.max(1)), p));
                    // SAFETY: rows, columns and steps are bounded by the loops. What has been packed of `A` for the first columns is
                    // there for the others.
                    unsafe {
                        let (b, tail) = self.block_b([col, cols], [p, steps, depth], padded);
                        if col == 0 {
                            self.pack_a(matrix, [row, rows], [p, steps, depth], to);
                        }
                        let a = PanelWalk::panels(to, panel, panel.bytes(panel.width, depth));
                        let (first, last) = (p == 0, k - p == steps);
                        self.tiles(&GemmBlock { rows, cols, depth, a, b, tail, row, col, first, last });
                    }
                    p += steps;
                }
                col += cols;
            }
            row += rows;
        }
    }

    /// One block of `A` times one of `B`.
    ///
    /// # Safety
    /// The contract of [`Drive::run`]; the block is as its fields say, and both its operands are panels.
    unsafe fn tiles(&self, block: &GemmBlock) {
        let (mr, nr) = (self.micro.a.width.max(1), self.micro.b.width.max(1));
        let steps = block.depth.checked_div(self.micro.depth).unwrap_or(0);
        let mut buffer = Buffer([MaybeUninit::uninit(); MAX_TILE]);
        let (mut before, mut sums) = (None, self.sums);
        let (mut i, mut a) = (0, block.a.ptr);
        while i < block.rows {
            let rows = mr.min(block.rows - i);
            let (mut j, mut b, mut ahead) = (0, block.b.ptr, a.wrapping_add(block.a.pitch));
            while j < block.cols {
                let cols = nr.min(block.cols - j);
                let ends = j + nr >= block.cols;
                // SAFETY: rows and columns are bounded by the loops, and panels are those of the block.
                unsafe { self.begin(block, before, &NextTile { a, b, steps, sums, ahead }, &mut buffer) };
                ahead = ahead.wrapping_add(PREFETCHED * steps);
                before = Some(Begun { row: block.row + i, col: block.col + j, rows, cols, sums, ends });
                (j, b) = (j + nr, b.wrapping_add(block.b.pitch));
                sums = sums.wrapping_add(mr * nr * size_of::<f32>());
            }
            (i, a) = (i + mr, a.wrapping_add(block.a.pitch));
        }
        let (a, b) = (block.a.ptr, block.b.ptr);
        // SAFETY: no steps, so nothing is read.
        unsafe { self.begin(block, before, &NextTile { a, b, steps: 0, sums, ahead: a }, &mut buffer) };
    }

    /// Begins a tile, and brings the one `before` to `C`, or to where its sums are kept.
    ///
    /// # Safety
    /// The panels of `work` have as many steps as it says. The tile before is one of `C`, and its sums are in tile registers.
    unsafe fn begin(&self, block: &GemmBlock, before: Option<Begun>, work: &NextTile, buffer: &mut Buffer) {
        let (micro, room) = (self.micro, buffer.0.as_mut_ptr().cast::<u8>());
        let bytes = micro.a.width * micro.b.width * size_of::<f32>();
        let kept = !(block.first && block.last);
        let mut args = MicroArgs {
            a: work.a,
            b: work.b,
            c: work.ahead.cast_mut(),
            steps: work.steps,
            a_row: block.a.across,
            a_step: block.a.along,
            b_step: block.b.along,
            ldc: micro.b.width * size_of::<f32>(),
            rows: 0,
            cols: 0,
            alpha: self.alpha,
            beta: 0.0,
            // Prefetching lines that are being read costs nothing.
            next: if kept { work.sums.wrapping_add(bytes) } else { work.a },
            start: if block.first { core::ptr::null() } else { work.sums.cast() },
            tile: room,
        };
        // SAFETY: the tile's elements of `C` are there. A tile goes straight to `C` where its columns are contiguous, and to the
        // buffer otherwise, which is large enough. There is room for sums wherever there are several blocks.
        unsafe {
            let Some(Begun { row, col, rows, cols, sums, ends }) = before else { return micro.call(&args) };
            if !block.last {
                args.tile = sums;
                return micro.call(&args);
            }
            let c = self.c.add(row * self.c_row + col * self.c_col);
            (args.rows, args.cols, args.c) = (rows, cols, room);
            if self.c_col == 1 {
                (args.c, args.ldc, args.beta) =
                    (c.cast(), self.c_row.wrapping_mul(size_of::<f32>()), self.beta);
            }
            micro.call(&args);
            if self.c_col != 1 {
                (self.helpers.merge)(&MergeArgs {
                    tile: room.cast(),
                    width: micro.b.width,
                    c,
                    row_stride: self.c_row,
                    col_stride: self.c_col,
                    rows,
                    cols,
                    beta: self.beta,
                });
            }
            if ends {
                self.finish([row, rows], [block.col, col + cols - block.col]);
            }
        }
    }
}
