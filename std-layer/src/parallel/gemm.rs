//! Matrix times matrix: threads compute tiles of `C`. If several tiles share a part of `B`, all threads pack it first.

use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use gllm_kernels_core::{
    GemmPlan, KernelError, MatMut, MatRef, Operand, PackedB, Right, Scratch, ScratchReq,
};

use super::{chunks_mut, Cuts, Parallel};

/// Multiply-adds below which a product runs on the calling thread: some ten microseconds.
const MIN_PARALLEL_WORK: usize = 1 << 20;

/// Tiles for each thread, so that a thread that stalls delays little; fewer where tiles would have less than
/// [`CHUNK_WORK`].
const CHUNKS_PER_THREAD: usize = 4;

/// About how many multiply-adds a tile has: half a millisecond of work, as each tile packs its part of `A` anew.
const CHUNK_WORK: usize = 1 << 25;

/// About the least and the largest number of rows of a tile. Many are better, as each tile packs its part of `B` or reads it
/// from L3.
const TILE_ROWS: Range<usize> = 48..240;

/// About the least and the largest number of columns of a tile. Many are better, as each tile packs its part of `A`.
const TILE_COLS: Range<usize> = 64..1024;

/// About how many bytes of each row of `B` a tile takes, if a product of few rows reads `B` in place. Long pieces of rows come
/// from memory up to 1.5 times as fast as short ones.
const SKINNY_TILE_BYTES: usize = 32 << 10;

/// Tiles of such a product for each thread.
const SKINNY_CHUNKS_PER_THREAD: usize = 2;

/// Bytes of `B` that are packed before tiles use them.
const PACKED: usize = 32 << 20;

/// Columns `cols` of the right operand.
fn columns<'a, E>(b: Right<'a, E>, cols: &Range<usize>) -> Result<Right<'a, E>, KernelError> {
    Ok(match b {
        Right::RowMajor(b) => Right::RowMajor(b.t().row_range(cols.start, cols.len())?.t()),
        Right::Transposed(b) => Right::Transposed(b.row_range(cols.start, cols.len())?),
        Right::Packed(b) => Right::Packed(b.col_range(cols.start, cols.len())?),
    })
}

/// A product whose operands fit each other.
#[derive(Clone, Copy)]
struct Product<'a, E: Operand> {
    plan: GemmPlan<E>,
    a: MatRef<'a, E>,
    bias: Option<&'a [E::Sum]>,
}

/// # Matrix times matrix
///
/// ```
/// # use gllm_kernels_std::{core::{MatMut, MatRef}, Parallel};
/// let ops = Parallel::<i8>::global();
/// let (a, b, mut c) = ([1, 2, 3, -128], [1, 0, 0, -128], [0, 0, 0, 1]);
/// let plan = ops.kernels().gemm_plan(2, 2, 2)?.accumulate();
/// ops.gemm(&plan, MatMut::new(&mut c, 2, 2)?, MatRef::new(&a, 2, 2)?, MatRef::new(&b, 2, 2)?, None)?;
/// assert_eq!(c, [1, -256, 3, 16385]);
/// # Ok::<(), gllm_kernels_std::core::KernelError>(())
/// ```
impl<E: Operand> Parallel<'_, E> {
    /// [`GemmPlan::run`] on all threads, with the kernels of the plan: `C` is cut into tiles, which threads take as they
    /// become free. Small products run on the calling thread. Scratch memory is the runtime's own and kept for the next
    /// call.
    ///
    /// # Errors
    /// Those of [`GemmPlan::run`], but for scratch memory.
    pub fn gemm<'b>(
        &self,
        plan: &GemmPlan<E>,
        c: MatMut<'_, E::Sum>,
        a: MatRef<'_, E>,
        b: impl Into<Right<'b, E>>,
        bias: Option<&[E::Sum]>,
    ) -> Result<(), KernelError>
    where
        E: 'b,
    {
        let b = b.into();
        let [m, n, k] = plan.shape();
        let [b_rows, b_cols] = match b {
            Right::RowMajor(b) => [b.rows(), b.cols()],
            Right::Transposed(b) => [b.cols(), b.rows()],
            Right::Packed(b) => [b.k(), b.n()],
        };
        let shapes = [[c.rows(), c.cols()], [a.rows(), a.cols()], [b_rows, b_cols]];
        if shapes != [[m, n], [m, k], [k, n]] || bias.is_some_and(|bias| bias.len() != n) {
            // The plan says what is wrong.
            return plan.run(c, a, b, bias, Scratch::empty());
        }
        self.product(Product { plan: *plan, a, bias }, b, c)
    }

    /// [`Kernels::pack_b`](gllm_kernels_core::Kernels::pack_b), on the calling thread: it is done once,
    /// when weights are loaded.
    ///
    /// # Errors
    /// Those of [`Kernels::pack_b`](gllm_kernels_core::Kernels::pack_b).
    pub fn pack_b<'b>(&self, b: MatRef<'_, E>, buf: &'b mut [u8]) -> Result<PackedB<'b>, KernelError> {
        self.kernels.pack_b(b, buf)
    }

    fn product(
        &self,
        product: Product<'_, E>,
        b: Right<'_, E>,
        c: MatMut<'_, E::Sum>,
    ) -> Result<(), KernelError> {
        let [m, n, k] = product.plan.shape();
        let threads = self.runtime.threads();
        let work = m.saturating_mul(n).saturating_mul(k);
        if threads == 1 || work < MIN_PARALLEL_WORK {
            return self.tiles(product, vec![(0..m, 0..n, b, c)]);
        }
        // Tiles take a matrix at any strides, so the transpose needs no way of its own.
        let b = if let Right::Transposed(bt) = b { Right::RowMajor(bt.t()) } else { b };
        let (cols, share) = match b {
            Right::RowMajor(b) if m <= GemmPlan::<E>::MAX_SKINNY_ROWS && b.col_stride() == 1 => {
                (SKINNY_TILE_BYTES / size_of::<E>(), SKINNY_CHUNKS_PER_THREAD)
            }
            _ => (TILE_COLS.end, CHUNKS_PER_THREAD),
        };
        let share = (work / threads / CHUNK_WORK).clamp(1, share);
        let mut grid = Grid::new(m, n, [threads, share], product.plan.tile(), cols);
        // If tiles of all rows are still wider than high, packing A for each of them costs less than writing all of
        // packed B to memory.
        if grid.rows < m && matches!(b, Right::RowMajor(_)) && m.saturating_mul(threads * share) <= n {
            grid =
                Grid { rows: m, cols: n.div_ceil(threads * share).next_multiple_of(product.plan.tile()[1]) };
        }
        match b {
            // Several tiles need each column of B: pack it once, all threads together. A single one is not packed.
            Right::RowMajor(view) if grid.rows < m && n > 1 && !product.plan.in_place(view) => {
                let group = (PACKED / size_of::<f32>() / k).max(1).next_multiple_of(grid.cols);
                let mut rest = c;
                for start in (0..n).step_by(group) {
                    let cols = start..n.min(start + group);
                    let (part, right) = rest.t().split_rows(cols.len())?;
                    rest = right.t();
                    self.packed(product, view, grid, cols, part.t())?;
                }
                Ok(())
            }
            b => self.tiles(product, grid.cut(0..n, c, |cols| columns(b, cols))?),
        }
    }

    /// Columns `cols` of the product: packs their part of `B`, then works through the tiles.
    fn packed(
        &self,
        product: Product<'_, E>,
        b: MatRef<'_, E>,
        grid: Grid,
        cols: Range<usize>,
        c: MatMut<'_, E::Sum>,
    ) -> Result<(), KernelError> {
        // The plan's kernels are used, as others may have another layout.
        let (k, kernels) = (product.a.cols(), product.plan.kernels());
        let stripe = |i: usize| {
            let start = cols.start + i * grid.cols;
            start..cols.end.min(start + grid.cols)
        };
        let stripes = cols.len().div_ceil(grid.cols);
        let each = kernels.packed_b_size(k, grid.cols)?.next_multiple_of(ScratchReq::PANEL_ALIGN);
        let size = each.checked_mul(stripes).ok_or(KernelError::SizeOverflow { what: "packed size" })?;

        let mut buffer = self.runtime.buffers().take();
        let memory = &mut buffer.bytes(size)[..size];
        chunks_mut(self.runtime, memory, Cuts { first: each, step: each }, |range, memory| {
            let cols = stripe(range.start / each);
            kernels.pack_b(b.t().row_range(cols.start, cols.len())?.t(), memory).map(drop)
        })?;
        let memory = &*memory;
        let tiles = grid.cut(cols.clone(), c, |of| {
            let at = (of.start - cols.start) / grid.cols * each;
            Ok(Right::Packed(kernels.packed_b(&memory[at..at + each], k, of.len())?))
        })?;
        self.tiles(product, tiles)
    }

    /// Works through tiles in their order.
    fn tiles(&self, product: Product<'_, E>, tiles: Vec<TileTask<'_, E, E::Sum>>) -> Result<(), KernelError> {
        // Each tile is taken once, by the thread that gets its number.
        let tiles: Vec<_> = tiles.into_iter().map(|t| Mutex::new(Some(t))).collect();
        let failed = OnceLock::new();
        self.runtime.for_each_with(
            tiles.len(),
            || self.runtime.buffers().take(),
            |buffer, i| {
                let tile = tiles[i].lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some((rows, cols, b, c)) = tile else { return };
                let run = || {
                    let a = product.a.row_range(rows.start, rows.len())?;
                    let plan = product.plan.resized(rows.len(), cols.len())?;
                    let bias = product.bias.map(|bias| &bias[cols]);
                    let need = match b {
                        Right::Packed(_) => plan.scratch_packed()?,
                        _ => plan.scratch()?,
                    };
                    plan.run(c, a, b, bias, Scratch::new(buffer.bytes(need.size_unaligned())))
                };
                if let Err(e) = run() {
                    failed.get_or_init(|| e);
                }
            },
        );
        failed.into_inner().map_or(Ok(()), Err)
    }
}

/// A tile: its rows and columns of the product, these columns of `B`, and its part of `C`.
type TileTask<'a, E, S> = (Range<usize>, Range<usize>, Right<'a, E>, MatMut<'a, S>);

/// The size of a tile. It changes no bits: the order of an element's sum depends on `k` alone, and the plan of a
/// tile takes the way that the whole product would.
#[derive(Clone, Copy, Debug)]
struct Grid {
    rows: usize,
    cols: usize,
}

impl Grid {
    /// Large tiles of about the same size, but at least `share` for each thread, of at most about `cols` columns, and of
    /// whole tiles of the microkernel (`mr x nr`).
    fn new(m: usize, n: usize, [threads, share]: [usize; 2], [mr, nr]: [usize; 2], cols: usize) -> Self {
        let rows = match (m + TILE_ROWS.end / 2) / TILE_ROWS.end {
            0 | 1 => m,
            parts => m.div_ceil(parts).next_multiple_of(mr),
        };
        let mut grid = Self { rows, cols: cols.next_multiple_of(nr) };
        let least =
            Self { rows: TILE_ROWS.start.next_multiple_of(mr), cols: TILE_COLS.start.next_multiple_of(nr) };
        let few = |grid: Self| m.div_ceil(grid.rows) * n.div_ceil(grid.cols) < threads * share;
        while few(grid) && grid.cols > least.cols {
            grid.cols = (grid.cols / 2).next_multiple_of(nr).max(least.cols);
        }
        while few(grid) && grid.rows > least.rows {
            grid.rows = (grid.rows / 2).next_multiple_of(mr).max(least.rows);
        }
        // If possible, a number of columns that gives every thread the same number of tiles.
        let (blocks, stripes) = (m.div_ceil(grid.rows), n.div_ceil(grid.cols));
        let even = (stripes..stripes + threads).find(|stripes| (blocks * stripes).is_multiple_of(threads));
        let cols = n.div_ceil(even.unwrap_or(stripes).max(1)).next_multiple_of(nr);
        Self { cols: cols.clamp(least.cols, grid.cols), ..grid }
    }

    /// Cuts columns `cols` of `C` into stripes and these into tiles; `b` finds a stripe's part of `B`.
    fn cut<'a, E: Copy, S>(
        self,
        cols: Range<usize>,
        c: MatMut<'a, S>,
        b: impl Fn(&Range<usize>) -> Result<Right<'a, E>, KernelError>,
    ) -> Result<Vec<TileTask<'a, E, S>>, KernelError> {
        let mut tiles = Vec::new();
        let mut rest = c;
        for col in cols.clone().step_by(self.cols) {
            let of = col..cols.end.min(col + self.cols);
            let b = b(&of)?;
            let (stripe, right) = rest.t().split_rows(of.len())?;
            rest = right.t();
            let mut stripe = stripe.t();
            let m = stripe.rows();
            for row in (0..m).step_by(self.rows) {
                let rows = row..m.min(row + self.rows);
                let (tile, below) = stripe.split_rows(rows.len())?;
                stripe = below;
                tiles.push((rows, of.clone(), b, tile));
            }
        }
        Ok(tiles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_have_enough_tiles_of_good_size() {
        for (m, n) in [(1, 4096), (32, 4096), (512, 4096), (4096, 4096), (100, 100), (5000, 64)] {
            for (threads, [mr, nr]) in [(2, [14, 32]), (4, [8, 12]), (64, [6, 16]), (7, [32, 32])] {
                let grid = Grid::new(m, n, [threads, CHUNKS_PER_THREAD], [mr, nr], TILE_COLS.end);
                assert!(grid.cols.is_multiple_of(nr) && grid.cols < TILE_COLS.end + nr, "{grid:?}");
                assert!(
                    grid.rows == m || grid.rows.is_multiple_of(mr) && grid.rows >= TILE_ROWS.start,
                    "{grid:?}"
                );
                let tiles = m.div_ceil(grid.rows) * n.div_ceil(grid.cols);
                let smallest =
                    grid.cols < TILE_COLS.start + nr && grid.rows < (TILE_ROWS.start + mr).max(m + 1);
                assert!(tiles >= threads * CHUNKS_PER_THREAD || smallest, "{m}x{n} {threads}: {grid:?}");
            }
        }
    }
}
