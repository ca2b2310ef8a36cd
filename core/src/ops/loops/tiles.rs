//! The inner loops of a product for microkernels with tile registers (AMX), which keep the sums of a tile until the next call.
//!
//! There are three loops. The outermost goes over chunks of `B`: panels that stay in L2 together. The next one goes over the
//! panels of `A`, one of which stays in L1. The innermost goes over the panels of the chunk. So the microkernel streams `B`
//! from L2, which is fast enough for tile registers, and writes `C` row by row. Every call also prefetches a part of the next
//! panel of `A` or of the next chunk of `B`, alternately.

use core::mem::MaybeUninit;

use super::drive::{Buffer, Drive, GemmBlock};
use crate::args::micro::{MicroArgs, MAX_TILE};
use crate::ops::tile::MergeArgs;

/// A tile whose sums are in registers.
#[derive(Clone, Copy)]
struct Begun {
    /// Its corner in `C`.
    row: usize,
    col: usize,
    rows: usize,
    cols: usize,
    /// The first of the columns of its chunk if it is the last tile of them, in its rows.
    done: Option<usize>,
}

/// The tile that is begun: its panels, the steps of these, and the address from which the call prefetches.
struct NextTile {
    a: *const u8,
    b: *const u8,
    steps: usize,
    next: *const u8,
}

impl Drive<'_> {
    /// One block of `A` times one of `B`.
    ///
    /// # Safety
    /// The contract of [`Drive::run`]; the block is as its fields say, and both its operands are panels.
    pub(crate) unsafe fn tiles(&self, block: &GemmBlock) {
        let micro = self.micro;
        let (mr, nr) = (micro.a.width.max(1), micro.b.width.max(1));
        let steps = block.depth.checked_div(micro.depth).unwrap_or(0);
        // Panels of both operands are equally long, and a tile prefetches an eighth of one.
        let share = micro.prefetched_bytes(steps);
        let parts = micro.b.steps(nr, block.depth).checked_div(share).unwrap_or(1).max(1);
        let mut buffer = Buffer([MaybeUninit::uninit(); MAX_TILE]);
        let (mut before, mut first, mut chunk) = (None, 0, block.b.ptr);
        while first < block.cols {
            let cols = self.blocks.chunk.min(block.cols - first);
            // Panels are whole in all chunks but the last one.
            let behind = chunk.wrapping_add((cols / nr).wrapping_mul(block.b.pitch));
            let next_cols = self.blocks.chunk.min(block.cols - first - cols);
            let (mut done_of_b, parts_of_b) = (0, next_cols.div_ceil(nr) * parts);
            let (mut i, mut a) = (0, block.a.ptr);
            while i < block.rows {
                let rows = mr.min(block.rows - i);
                let below = a.wrapping_add(block.a.pitch);
                let parts_of_a = if i + mr < block.rows { parts } else { 0 };
                let (mut j, mut b, mut done_of_a, mut odd) = (0, chunk, 0, false);
                while j < cols {
                    let next = if odd && done_of_b < parts_of_b {
                        done_of_b += 1;
                        let panel = (done_of_b - 1) / parts * block.b.pitch;
                        behind.wrapping_add(panel + (done_of_b - 1) % parts * share)
                    } else if done_of_a < parts_of_a {
                        done_of_a += 1;
                        below.wrapping_add((done_of_a - 1) * share)
                    } else {
                        // Prefetching lines that are being read costs nothing.
                        a
                    };
                    let tile = Begun {
                        row: block.row + i,
                        col: block.col + first + j,
                        rows,
                        cols: nr.min(cols - j),
                        done: (j + nr >= cols).then_some(block.col + first),
                    };
                    // SAFETY: rows and columns are bounded by the loops, and panels are those of the block.
                    unsafe { self.begin(block, before, &NextTile { a, b, steps, next }, &mut buffer) };
                    (before, j, odd) = (Some(tile), j + nr, !odd);
                    b = b.wrapping_add(block.b.pitch);
                }
                (i, a) = (i + mr, below);
            }
            (first, chunk) = (first + cols, behind);
        }
        let (a, b) = (block.a.ptr, block.b.ptr);
        // SAFETY: no steps, so nothing is read.
        unsafe { self.begin(block, before, &NextTile { a, b, steps: 0, next: a }, &mut buffer) };
    }

    /// Begins a tile, and brings the one `before` to `C`.
    ///
    /// # Safety
    /// The panels of `work` have as many steps as it says. The tile before is one of `C`, and its sums are in tile registers.
    unsafe fn begin(&self, block: &GemmBlock, before: Option<Begun>, work: &NextTile, buffer: &mut Buffer) {
        let (micro, room) = (self.micro, buffer.0.as_mut_ptr().cast::<u8>());
        let beta = if block.first { self.beta } else { 1.0 };
        let mut args = MicroArgs {
            a: work.a,
            b: work.b,
            c: room,
            steps: work.steps,
            a_row: block.a.across,
            a_step: block.a.along,
            b_step: block.b.along,
            ldc: micro.b.width * size_of::<f32>(),
            rows: 0,
            cols: 0,
            alpha: self.alpha,
            beta: 0.0,
            next: work.next,
            start: core::ptr::null(),
            tile: room,
        };
        // SAFETY: the tile's elements of `C` are there. A tile goes straight to `C` where its columns are contiguous, and to the
        // buffer otherwise, which is large enough.
        unsafe {
            let Some(Begun { row, col, rows, cols, done }) = before else { return micro.call(&args) };
            let c = self.c.add(row * self.c_row + col * self.c_col);
            (args.rows, args.cols) = (rows, cols);
            if self.c_col == 1 {
                (args.c, args.ldc, args.beta) = (c.cast(), self.c_row.wrapping_mul(size_of::<f32>()), beta);
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
                    beta,
                });
            }
            if let (Some(first), true) = (done, block.last) {
                self.finish([row, rows], [first, col + cols - first]);
            }
        }
    }
}
