//! The five loops around a microkernel (`api/gemm/mod.rs` describes them), for operands of any type. Only the microkernel and
//! the [`Helpers`] know the types.

use core::mem::MaybeUninit;

use super::blocks::BlockSizes;
use super::operands::{Source, Strided, Wanted};
use crate::args::micro::{Edges, Micro, MicroArgs, Panel, MAX_SIDE, MAX_TILE};
use crate::ops::engine::Access;
use crate::ops::pack::PackArgs;
use crate::ops::tile::{FinishArgs, MergeArgs};

/// The parts of a product that are not microkernels, compiled for the types of its operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Helpers {
    /// Packs a block of `A`.
    pub(crate) pack_a: unsafe fn(&PackArgs),
    /// Packs a block of `B`.
    pub(crate) pack_b: unsafe fn(&PackArgs),
    /// Brings a tile from a buffer to `C`.
    pub(crate) merge: unsafe fn(&MergeArgs),
    /// Works on a block of `C` that is otherwise finished.
    pub(crate) finish: unsafe fn(&FinishArgs),
}

/// An element-wise operator on f32: length, input, output (the same here).
pub(crate) type Activate = unsafe fn(usize, *const f32, *mut f32, Access);

/// A part of `C` that is finished but for its activation.
pub(crate) struct Finish {
    pub(crate) c: *mut f32,
    pub(crate) row_stride: usize,
    pub(crate) col_stride: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) activate: Option<Activate>,
    pub(crate) access: Access,
}

impl Finish {
    /// # Safety
    /// `rows x cols` elements at the strides; the activation's instruction set is present.
    pub(crate) unsafe fn run(&self) {
        let Some(activate) = self.activate else { return };
        let Self { rows, cols, row_stride, col_stride, .. } = *self;
        // Along the contiguous dimension, or else element by element.
        let (outer, inner, step, len) = match (row_stride, col_stride) {
            (_, 1) => (rows, 1, row_stride, cols),
            (1, _) => (cols, 1, col_stride, rows),
            _ => (rows, cols, row_stride, 1),
        };
        for i in 0..outer {
            for j in 0..inner {
                // SAFETY: the caller's contract.
                unsafe {
                    let p = self.c.add(i * step + j * col_stride);
                    activate(len, p, p, self.access);
                }
            }
        }
    }
}

/// Columns that are finished at once: their block of `C` is in L2, and the calls are long enough.
const FINISH: usize = 256;

/// `C = alpha * A B + beta * C`, then a bias and an activation. The elements of `C` have four bytes; they are f32, or i32 for the
/// helpers of int8.
#[derive(Clone, Copy)]
pub(crate) struct Drive<'a> {
    pub(crate) micro: &'a Micro,
    pub(crate) helpers: Helpers,
    pub(crate) blocks: BlockSizes,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Source<'a>,
    pub(crate) b: Source<'a>,
    /// For microkernels with tile registers: room for the sums of a block, if there are several along the depth.
    pub(crate) sums: *mut u8,
    pub(crate) c: *mut f32,
    /// In elements.
    pub(crate) c_row: usize,
    pub(crate) c_col: usize,
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
    /// Or null. One element a column, or a row if `bias_of_rows`.
    pub(crate) bias: *const f32,
    pub(crate) bias_of_rows: bool,
    pub(crate) activate: Option<Activate>,
    pub(crate) access: Access,
}

/// Memory for a tile that a microkernel cannot write to `C` itself, because `C` has other strides or ends within the tile.
#[repr(C, align(64))]
pub(crate) struct Buffer(pub(crate) [MaybeUninit<f32>; MAX_TILE]);

/// Where the tiles of a block find their parts of `A` or `B`. Distances are in bytes.
#[derive(Clone, Copy)]
pub(crate) struct PanelWalk {
    pub(crate) ptr: *const u8,
    /// From one row of `A` (column of `B`) to the next.
    pub(crate) across: usize,
    /// From one step of the microkernel to the next.
    pub(crate) along: usize,
    /// From the rows (columns) of one tile to those of the next.
    pub(crate) pitch: usize,
}

impl PanelWalk {
    /// Over panels that are `pitch` apart.
    pub(super) fn panels(ptr: *const u8, panel: Panel, pitch: usize) -> Self {
        Self { ptr, across: panel.steps(1, panel.kr), along: panel.steps(panel.width, panel.kr), pitch }
    }
}

/// A product `C = A B + beta C` of one block of `A` and one of `B`, which the inner loops compute.
pub(crate) struct GemmBlock {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Steps, rounded up to whole steps of the microkernel.
    pub(crate) depth: usize,
    pub(crate) a: PanelWalk,
    pub(crate) b: PanelWalk,
    /// Bytes from the beginning of a panel of `B` to what follows its steps, if something does that the sums need.
    pub(crate) tail: Option<usize>,
    /// The upper left corner in `C`.
    pub(crate) row: usize,
    pub(crate) col: usize,
    /// Whether this is the first block along the depth, or the last.
    pub(crate) first: bool,
    pub(crate) last: bool,
}

impl Drive<'_> {
    /// The loops. The three outer ones are here for microkernels without tile registers.
    ///
    /// # Safety
    /// The fields are as they say, none of `m`, `n`, `k` is 0; the operands exist; the CPU has the features that the microkernel
    /// requires.
    pub(crate) unsafe fn run(&self) {
        let Self { micro, m, n, k, blocks, .. } = *self;
        // `k` is not 0, and blocks of this size have been checked to fit the memory.
        let padded = k.checked_next_multiple_of(micro.depth).unwrap_or(k);
        if let Some([enter, leave]) = micro.around {
            // SAFETY: the caller's contract.
            unsafe {
                enter();
                self.run_tiles(padded);
                return leave();
            }
        }
        let mut col = 0;
        while col < n {
            let cols = blocks.nc.min(n - col);
            let mut p = 0;
            while p < k {
                let (steps, depth) = (blocks.kc.min(k - p), blocks.kc.min(padded - p));
                // SAFETY: columns and steps are bounded by the loops.
                let (b, tail) = unsafe { self.block_b([col, cols], [p, steps, depth], padded) };
                let mut row = 0;
                while row < m {
                    let rows = blocks.mc.min(m - row);
                    let panel = micro.a;
                    // SAFETY: rows and steps are bounded by the loops, and blocks are whole panels and whole steps, so the
                    // panels before a row, and the steps before `p`, have as many bytes as `bytes` says.
                    unsafe {
                        let panels = |a: *const u8| {
                            let before = panel.bytes(row, padded) + panel.steps(panel.width, p);
                            PanelWalk::panels(a.add(before), panel, panel.bytes(panel.width, padded))
                        };
                        let a = match self.a {
                            Source::Panels(a) => panels(a),
                            // Only B is made.
                            Source::Made(_, a) => panels(a),
                            Source::InPlace(Strided { ptr, across, along }) => {
                                let src = ptr.add(row * across + p * along);
                                let pitch = panel.width.wrapping_mul(across);
                                PanelWalk { ptr: src, across, along: panel.kr.wrapping_mul(along), pitch }
                            }
                            Source::Pack(matrix, dst) => {
                                self.pack_a(matrix, [row, rows], [p, steps, depth], dst);
                                PanelWalk::panels(dst, panel, panel.bytes(panel.width, depth))
                            }
                        };
                        let (first, last) = (p == 0, k - p == steps);
                        self.block(&GemmBlock { rows, cols, depth, a, b, tail, row, col, first, last });
                    }
                    row += rows;
                }
                p += steps;
            }
            col += cols;
        }
    }

    /// Where tiles find `cols` columns of `B` from `col` on, `steps` steps of them, filled up to `depth`, from `p` on. Packs or makes them,
    /// if need be. Then the bytes that [`GemmBlock::tail`] says.
    ///
    /// # Safety
    /// The contract of [`run`](Self::run); these columns and steps are there, and are whole panels and steps of the microkernel
    /// but for the last ones.
    pub(super) unsafe fn block_b(
        &self,
        [col, cols]: [usize; 2],
        [p, steps, depth]: [usize; 3],
        padded: usize,
    ) -> (PanelWalk, Option<usize>) {
        let panel = self.micro.b;
        let block = |dst| PanelWalk::panels(dst, panel, panel.bytes(panel.width, depth));
        // SAFETY: the caller's contract. Blocks are whole panels and whole steps of the microkernel, so the panels before a column,
        // and the steps before `p`, have as many bytes as `bytes` says.
        unsafe {
            match self.b {
                Source::Panels(b) => {
                    let before = panel.bytes(col, padded) + panel.steps(panel.width, p);
                    // It is about all steps, and counted with the first ones.
                    let tail = (p == 0).then(|| panel.steps(panel.width, padded));
                    (PanelWalk::panels(b.add(before), panel, panel.bytes(panel.width, padded)), tail)
                }
                Source::InPlace(Strided { ptr, across, along }) => {
                    let src = ptr.add(col * across + p * along);
                    let pitch = panel.width.wrapping_mul(across);
                    (PanelWalk { ptr: src, across, along, pitch }, None)
                }
                Source::Pack(Strided { ptr, across, along }, dst) => {
                    let (len, src, reading) = (cols, ptr.add(col * across + p * along), self.blocks.reading);
                    let to = PackArgs { len, k: steps, depth, src, across, along, panel, dst, reading };
                    (self.helpers.pack_b)(&to);
                    (block(dst), Some(panel.steps(panel.width, depth)))
                }
                Source::Made(make, dst) => {
                    make(Wanted { col, cols, step: p, steps }, dst);
                    (block(dst), None)
                }
            }
        }
    }

    /// Packs a block of `A`.
    ///
    /// # Safety
    /// The rows and steps are there, and room for their panels.
    pub(super) unsafe fn pack_a(
        &self,
        Strided { ptr, across, along }: Strided,
        [row, len]: [usize; 2],
        [p, k, depth]: [usize; 3],
        dst: *mut u8,
    ) {
        let (panel, reading) = (self.micro.a, self.blocks.reading);
        // SAFETY: the caller's contract.
        unsafe {
            let src = ptr.add(row * across + p * along);
            (self.helpers.pack_a)(&PackArgs { len, k, depth, src, across, along, panel, dst, reading });
        }
    }

    /// The two inner loops: one block of `A` times one of `B`.
    ///
    /// # Safety
    /// The contract of [`run`](Self::run); the block is as its fields say.
    unsafe fn block(&self, block: &GemmBlock) {
        let micro = self.micro;
        let (mr, nr) = (micro.a.width, micro.b.width);
        // A matrix that is read in place is in a cache, and needs no prefetches.
        let packed = block.b.along == micro.b.steps(nr, micro.b.kr);
        let chunk = if packed { micro.b.steps(nr, block.depth) } else { 0 };
        let steps = block.depth.checked_div(micro.depth).unwrap_or(0);
        let beta = if block.first { self.beta } else { 1.0 };
        let mut buffer = Buffer([MaybeUninit::uninit(); MAX_TILE]);
        static ZEROS: [i32; MAX_SIDE] = [0; MAX_SIDE];
        let (mut j, mut done, mut b) = (0, 0, block.b.ptr);
        while j < block.cols {
            let cols = nr.min(block.cols - j);
            let (mut i, mut a) = (0, block.a.ptr);
            // Each tile prefetches a part of the next panel of B, until all of it has been.
            let mut ahead = if j + nr < block.cols { 0 } else { chunk };
            while i < block.rows {
                let rows = mr.min(block.rows - i);
                // SAFETY: rows and columns are bounded by the loops. A tile goes straight to C where its
                // columns are contiguous and all that the microkernel writes is there, and to the buffer
                // otherwise, which is large enough for a whole tile.
                unsafe {
                    let c = self.c.add((block.row + i) * self.c_row + (block.col + j) * self.c_col);
                    let fits = match micro.edges {
                        Edges::Kernel => true,
                        Edges::Rows => cols == nr,
                        Edges::Driver => rows == mr && cols == nr,
                    };
                    let mut args = MicroArgs {
                        a,
                        b,
                        c: c.cast(),
                        steps,
                        a_row: block.a.across,
                        a_step: block.a.along,
                        b_step: block.b.along,
                        ldc: self.c_row.wrapping_mul(size_of::<f32>()),
                        rows,
                        cols,
                        alpha: self.alpha,
                        beta,
                        // Prefetching what is being read costs nothing.
                        next: if ahead < chunk { b.wrapping_add(block.b.pitch + ahead) } else { a },
                        start: block.tail.map_or(ZEROS.as_ptr(), |tail| b.wrapping_add(tail).cast()),
                        tile: buffer.0.as_mut_ptr().cast(),
                    };
                    if self.c_col == 1 && fits {
                        micro.call(&args);
                    } else {
                        args.c = buffer.0.as_mut_ptr().cast();
                        args.ldc = nr * size_of::<f32>();
                        args.beta = 0.0;
                        micro.call(&args);
                        (self.helpers.merge)(&MergeArgs {
                            tile: buffer.0.as_ptr().cast(),
                            width: nr,
                            c,
                            row_stride: self.c_row,
                            col_stride: self.c_col,
                            rows,
                            cols,
                            beta,
                        });
                    }
                }
                a = a.wrapping_add(block.a.pitch);
                ahead += micro.prefetched_bytes(steps);
                i += mr;
            }
            if block.last && (j + nr >= block.cols || j + nr - done >= FINISH) {
                // SAFETY: the rows and columns of this block are there and done.
                unsafe {
                    let cols = block.cols.min(j + nr) - done;
                    self.finish([block.row, block.rows], [block.col + done, cols]);
                }
                done = j + nr;
            }
            b = b.wrapping_add(block.b.pitch);
            j += nr;
        }
    }

    /// Bias and activation for `rows` rows from `row` on, in `cols` columns from `col` on.
    ///
    /// # Safety
    /// They are there, and sums are complete.
    pub(crate) unsafe fn finish(&self, [row, rows]: [usize; 2], [col, cols]: [usize; 2]) {
        let (row_stride, col_stride) = (self.c_row, self.c_col);
        let (of_row, of_col) = if self.bias_of_rows { (1, 0) } else { (0, 1) };
        // SAFETY: the caller's contract; the bias has one element for each row or column.
        unsafe {
            let c = self.c.add(row * row_stride + col * col_stride);
            if !self.bias.is_null() {
                let bias = self.bias.add(row * of_row + col * of_col);
                let (bias_row, bias_col) = (of_row, of_col);
                (self.helpers.finish)(&FinishArgs {
                    c,
                    row_stride,
                    col_stride,
                    rows,
                    cols,
                    bias,
                    bias_row,
                    bias_col,
                });
            }
            let (activate, access) = (self.activate, self.access);
            Finish { c, row_stride, col_stride, rows, cols, activate, access }.run();
        }
    }
}
