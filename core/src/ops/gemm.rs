//! BLAS-3: `gemm` and its kin, as plans.
//!
//! Five loops around a microkernel (Goto and van de Geijn, Anatomy of High-Performance Matrix
//! Multiplication, 2008; Van Zee and van de Geijn, BLIS, 2015). From the outside in: `nc` columns of `C`,
//! whose part of `B` is packed to stay in L3; `kc` of the depth; `mc` rows, whose part of `A` is packed to
//! stay in L2; the panels of `B`, one of which stays in L1; the panels of `A`. Block sizes follow from the
//! caches of this CPU and the tile of the selected microkernel.

use crate::caps::CacheSizes;
use crate::dispatch::Kernels;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::check;
use crate::ops::gemv::GemvArgs;
use crate::ops::pack::{self, PackArgs, PackedB};
use crate::ops::tile::{Tile, TileArgs};
use crate::registry::{kernels, Op};
use crate::scratch::{Scratch, ScratchReq};
use crate::view::{MatMut, MatRef};

/// Block sizes of the three outer loops. `mc` and `nc` are whole panels.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    mc: usize,
    nc: usize,
    kc: usize,
}

/// The least depth of a block: below, updating `C` costs more than computing.
const MIN_DEPTH: usize = 8;

/// Parts of `total` in units of `unit`, none larger than `limit` (but at least one unit), all about equal.
fn equal_parts(total: usize, limit: usize, unit: usize) -> Result<usize, KernelError> {
    let overflow = KernelError::SizeOverflow { what: "block size" };
    let parts = total.div_ceil(limit.max(1)).max(1);
    let part = total.div_ceil(parts).max(1);
    part.checked_next_multiple_of(unit).ok_or(overflow)
}

impl Blocks {
    fn new(tile: Tile, caches: CacheSizes, m: usize, n: usize, k: usize) -> Result<Self, KernelError> {
        let floats = |bytes: usize| bytes / size_of::<f32>();
        // A panel of B, the panel of A that meets it, and C pass through L1.
        let l1 = floats(caches.l1d / 4 * 3);
        let kc = equal_parts(k, (l1 / (tile.rows + tile.cols).max(1)).max(MIN_DEPTH), 1)?;
        // Half of L2 for A; a core's share of L3 (an eighth, as for streaming) for B.
        let mc = equal_parts(m, floats(caches.l2 / 2) / kc.max(1), tile.rows)?;
        let share = if caches.l3 == 0 { caches.l2 / 2 } else { (caches.l3 / 8).max(caches.l2) };
        let nc = equal_parts(n, floats(share) / kc.max(1), tile.cols)?;
        Ok(Self { mc, nc, kc })
    }

    fn a(self) -> Result<ScratchReq, KernelError> {
        ScratchReq::array::<f32>(self.mc.saturating_mul(self.kc))
    }

    fn b(self) -> Result<ScratchReq, KernelError> {
        ScratchReq::array::<f32>(self.nc.saturating_mul(self.kc))
    }
}

/// Where panels of `B` come from.
#[derive(Clone, Copy)]
enum Right<'a, E> {
    /// A matrix to be packed block by block.
    View(MatRef<'a, E>),
    /// All are there.
    Panels(*const f32),
}

/// `C = alpha * A B + beta * C (+ bias)` for one shape: `A` is `m x k`, `B` is `k x n`, `C` is `m x n`.
///
/// `A` and `B` are of type `E` at any strides; they are widened to f32 and multiplied and summed in f32
/// with fused multiply-adds; `C` is f32, at any strides that keep its elements apart. As in BLAS,
/// `beta = 0` overwrites `C` without reading it, and `alpha = 0` (or `k = 0`) reads neither `A` nor `B`;
/// everything else follows IEEE rules. The error of an element is at most about
/// `(k + 3) * 2^-24 * |alpha| * sum |a_ip b_pj|`, plus that of the additions of `beta * c` and the bias.
///
/// Fastest where the rows of `C` are contiguous; for a column-major `C` compute `C^T = B^T A^T`, which is
/// a matter of three transposed views.
///
/// Several threads: split `C` into tiles (rows with [`split_rows`](MatMut::split_rows), columns with
/// `c.t().split_rows(..)`), and give each thread a plan for its tile's shape, the rows of `A` and columns
/// of `B` that meet there, and scratch of its own. A [`PackedB`] can be shared: its layout does not
/// depend on `m`, and [`PackedB::col_range`] cuts columns.
///
/// ```
/// # use gllm_kernels_core::{Kernels, MatMut, MatRef, Scratch};
/// let (a, b) = ([1.0f32, 2.0, 3.0, 4.0], [1.0, 0.0, 0.0, 1.0]);
/// let mut c = [0.0; 4];
/// let plan = Kernels::<f32>::detect().gemm_plan(2, 2, 2)?;
/// let mut memory = vec![0; plan.scratch()?.size_unaligned()];
/// let (a, b) = (MatRef::new(&a, 2, 2)?, MatRef::new(&b, 2, 2)?);
/// plan.run(MatMut::new(&mut c, 2, 2)?, a, b, Scratch::new(&mut memory))?;
/// assert_eq!(c, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), gllm_kernels_core::KernelError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GemmPlan<E: Element> {
    kernels: Kernels<E>,
    m: usize,
    n: usize,
    k: usize,
    alpha: f32,
    beta: f32,
    blocks: Blocks,
}

impl<E: Element> Kernels<E> {
    /// A plan for products of this shape, with `alpha = 1` and `beta = 0`.
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub fn gemm_plan(&self, m: usize, n: usize, k: usize) -> Result<GemmPlan<E>, KernelError> {
        let blocks = Blocks::new(self.table.tile, self.caps().caches(), m, n, k)?;
        Ok(GemmPlan { kernels: *self, m, n, k, alpha: 1.0, beta: 0.0, blocks })
    }
}

impl<E: Element> GemmPlan<E> {
    /// With this factor of `A B`.
    pub fn alpha(self, alpha: f32) -> Self {
        Self { alpha, ..self }
    }

    /// With this factor of `C`.
    pub fn beta(self, beta: f32) -> Self {
        Self { beta, ..self }
    }

    /// Name of the kernel that computes: the GEMV kernel for `m = 1` (but for prepacked `B`), the GEMM
    /// microkernel otherwise.
    pub fn kernel_name(&self) -> &'static str {
        let op = if self.m == 1 { Op::Gemv } else { Op::Gemm };
        let level = self.kernels.level();
        let mut rows = kernels();
        rows.find(|r| r.op == op && r.level == level && r.element == E::TYPE).map_or("", |r| r.name)
    }

    /// Scratch memory for [`run`](Self::run), [`run_bias`](Self::run_bias) and [`run_bt`](Self::run_bt).
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub fn scratch(&self) -> Result<ScratchReq, KernelError> {
        if self.m == 1 {
            return Ok(ScratchReq::EMPTY);
        }
        self.blocks.b()?.and(self.blocks.a()?)
    }

    /// Scratch memory for [`run_prepacked`](Self::run_prepacked).
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub fn scratch_prepacked(&self) -> Result<ScratchReq, KernelError> {
        self.blocks.a()
    }

    /// An upper bound of [`scratch`](Self::scratch) for this shape on every CPU, for sizing static
    /// memory at compile time.
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub const fn scratch_bound(m: usize, n: usize, k: usize) -> Result<ScratchReq, KernelError> {
        /// No tile is wider or higher.
        const TILE: usize = 64;
        let overflow = Err(KernelError::SizeOverflow { what: "scratch size" });
        let (Some(m), Some(n)) = (m.checked_next_multiple_of(TILE), n.checked_next_multiple_of(TILE)) else {
            return overflow;
        };
        let (Some(a), Some(b)) = (m.checked_mul(k), n.checked_mul(k)) else {
            return overflow;
        };
        match (ScratchReq::array::<f32>(a), ScratchReq::array::<f32>(b)) {
            (Ok(a), Ok(b)) => a.and(b),
            _ => overflow,
        }
    }

    /// `C = alpha * A B + beta * C` (BLAS `gemm`).
    ///
    /// # Errors
    /// `DimMismatch` unless the views have the plan's shape; `ScratchTooSmall`.
    pub fn run(
        &self,
        c: MatMut<'_, f32>,
        a: MatRef<'_, E>,
        b: MatRef<'_, E>,
        scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        self.check_b(b)?;
        self.drive(c, a, Right::View(b), None, scratch)
    }

    /// `C = alpha * A B + beta * C + bias`: `bias` has one element for each column of `C`.
    ///
    /// # Errors
    /// As [`run`](Self::run); `ShortSlice` unless `bias` has `n` elements.
    pub fn run_bias(
        &self,
        c: MatMut<'_, f32>,
        a: MatRef<'_, E>,
        b: MatRef<'_, E>,
        bias: &[f32],
        scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        check::len("bias", bias.len(), self.n)?;
        self.check_b(b)?;
        self.drive(c, a, Right::View(b), Some(bias), scratch)
    }

    /// `C = alpha * A Bt^T + beta * C`: `bt` is `n x k`, as weights are stored.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_bt(
        &self,
        c: MatMut<'_, f32>,
        a: MatRef<'_, E>,
        bt: MatRef<'_, E>,
        scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        check::dim("bt.rows != n", bt.rows(), self.n)?;
        check::dim("bt.cols != k", bt.cols(), self.k)?;
        self.drive(c, a, Right::View(bt.t()), None, scratch)
    }

    /// `C = alpha * A B + beta * C` with `B` from [`Kernels::pack_b`]. Always the GEMM microkernel.
    ///
    /// # Errors
    /// `DimMismatch` unless `c` and `a` have the plan's shape; `WrongPacking` if `b` has another shape or
    /// was packed by other kernels; `ScratchTooSmall` (see [`scratch_prepacked`](Self::scratch_prepacked)).
    pub fn run_prepacked(
        &self,
        c: MatMut<'_, f32>,
        a: MatRef<'_, E>,
        b: PackedB<'_>,
        scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        let layout = pack::layout::<E>(self.kernels.table.tile.cols);
        let panels = b.panels_for(layout, self.k, self.n)?;
        self.drive(c, a, Right::Panels(panels), None, scratch)
    }

    /// [`run_prepacked`](Self::run_prepacked) with a bias, as in [`run_bias`](Self::run_bias).
    ///
    /// # Errors
    /// As there.
    pub fn run_prepacked_bias(
        &self,
        c: MatMut<'_, f32>,
        a: MatRef<'_, E>,
        b: PackedB<'_>,
        bias: &[f32],
        scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        check::len("bias", bias.len(), self.n)?;
        let layout = pack::layout::<E>(self.kernels.table.tile.cols);
        let panels = b.panels_for(layout, self.k, self.n)?;
        self.drive(c, a, Right::Panels(panels), Some(bias), scratch)
    }

    fn check_b(&self, b: MatRef<'_, E>) -> Result<(), KernelError> {
        check::dim("b.rows != k", b.rows(), self.k)?;
        check::dim("b.cols != n", b.cols(), self.n)
    }

    /// Checks what is left to check, and takes the shortest way.
    fn drive(
        &self,
        mut c: MatMut<'_, f32>,
        a: MatRef<'_, E>,
        b: Right<'_, E>,
        bias: Option<&[f32]>,
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        check::dim("c.rows != m", c.rows(), self.m)?;
        check::dim("c.cols != n", c.cols(), self.n)?;
        check::dim("a.rows != m", a.rows(), self.m)?;
        check::dim("a.cols != k", a.cols(), self.k)?;
        if self.m == 0 || self.n == 0 {
            return Ok(());
        }
        if self.k == 0 || self.alpha == 0.0 {
            scale_c(&mut c, self.beta, bias);
            return Ok(());
        }
        let Blocks { mc, nc, kc } = self.blocks;
        let pb = match b {
            Right::View(b) if self.m == 1 => {
                self.one_row(c, a, b, bias);
                return Ok(());
            }
            Right::View(_) => scratch.take::<f32>(nc.saturating_mul(kc))?,
            Right::Panels(_) => &mut [],
        };
        let pa = scratch.take::<f32>(mc.saturating_mul(kc))?;
        // SAFETY: shapes are checked and not empty; the buffers hold a block each; prepacked panels are
        // those of a `k x n` matrix for this tile.
        unsafe { self.blocked(c, a, b, bias, pa.as_mut_ptr(), pb.as_mut_ptr()) };
        Ok(())
    }

    /// One row of `C` is `B^T` times one row of `A`: memory-bound, nothing to pack.
    fn one_row(&self, mut c: MatMut<'_, f32>, a: MatRef<'_, E>, b: MatRef<'_, E>, bias: Option<&[f32]>) {
        let mut beta = self.beta;
        if bias.is_some() {
            scale_c(&mut c, beta, bias);
            beta = 1.0;
        }
        let args = GemvArgs {
            rows: self.n,
            cols: self.k,
            a: b.as_ptr(),
            row_stride: b.col_stride(),
            col_stride: b.row_stride(),
            x: a.as_ptr(),
            x_stride: a.col_stride(),
            y: c.as_mut_ptr(),
            y_stride: c.col_stride(),
            alpha: self.alpha,
            beta,
        };
        // SAFETY: the views have the plan's shape and `c` is exclusive; the instruction set is present.
        unsafe { (self.kernels.table.gemv)(&args) };
    }

    /// The three outer loops.
    ///
    /// # Safety
    /// The views (or prepacked panels) have the plan's shape, none of `m`, `n`, `k` is 0, and `pa` (and
    /// `pb` unless `b` is prepacked) have room for a block.
    unsafe fn blocked(
        &self,
        mut c: MatMut<'_, f32>,
        a: MatRef<'_, E>,
        b: Right<'_, E>,
        bias: Option<&[f32]>,
        pa: *mut f32,
        pb: *mut f32,
    ) {
        let Self { m, n, k, blocks, .. } = *self;
        let table = self.kernels.table;
        let tile = table.tile;
        let (c_rs, c_cs) = (c.row_stride(), c.col_stride());
        let c = c.as_mut_ptr();
        let mut jc = 0;
        // SAFETY: rows, columns and depths are bounded by the loops, so offsets stay inside the views.
        // Blocks consist of whole panels, and the panels before row or column `x` of a block of depth
        // `d` have `x * d` elements. The buffers have room for a block. The instruction set is present.
        unsafe {
            while jc < n {
                let cols = blocks.nc.min(n - jc);
                let mut pc = 0;
                while pc < k {
                    let depth = blocks.kc.min(k - pc);
                    let first = pc == 0;
                    let (panels, length) = match b {
                        Right::Panels(p) => (p.add(jc * k + pc * tile.cols), k),
                        Right::View(b) => {
                            let args = PackArgs {
                                len: cols,
                                k: depth,
                                src: b.as_ptr().add(pc * b.row_stride() + jc * b.col_stride()),
                                across: b.col_stride(),
                                along: b.row_stride(),
                                width: tile.cols,
                                dst: pb,
                            };
                            (table.pack_b)(&args);
                            (pb.cast_const(), depth)
                        }
                    };
                    let mut ic = 0;
                    while ic < m {
                        let rows = blocks.mc.min(m - ic);
                        let args = PackArgs {
                            len: rows,
                            k: depth,
                            src: a.as_ptr().add(ic * a.row_stride() + pc * a.col_stride()),
                            across: a.row_stride(),
                            along: a.col_stride(),
                            width: tile.rows,
                            dst: pa,
                        };
                        (table.pack_b)(&args);
                        let block = Block {
                            rows,
                            cols,
                            depth,
                            length,
                            a: pa,
                            b: panels,
                            c: c.add(ic * c_rs + jc * c_cs),
                            row_stride: c_rs,
                            col_stride: c_cs,
                            beta: if first { self.beta } else { 1.0 },
                            bias: bias.filter(|_| first).map_or(core::ptr::null(), |b| b.as_ptr().add(jc)),
                        };
                        self.block(&block);
                        ic += rows;
                    }
                    pc += depth;
                }
                jc += cols;
            }
        }
    }

    /// The two inner loops: one packed block of `A` times one of `B`.
    ///
    /// # Safety
    /// The block is as its fields say.
    unsafe fn block(&self, block: &Block) {
        let table = self.kernels.table;
        let tile = table.tile;
        let mut j = 0;
        while j < block.cols {
            let mut i = 0;
            while i < block.rows {
                // SAFETY: the caller's contract; rows and columns are bounded by the loops; `x * length`
                // as above.
                unsafe {
                    let args = TileArgs {
                        k: block.depth,
                        a: block.a.add(i * block.depth),
                        b: block.b.add(j * block.length),
                        c: block.c.add(i * block.row_stride + j * block.col_stride),
                        row_stride: block.row_stride,
                        col_stride: block.col_stride,
                        rows: tile.rows.min(block.rows - i),
                        cols: tile.cols.min(block.cols - j),
                        alpha: self.alpha,
                        beta: block.beta,
                        bias: if block.bias.is_null() { block.bias } else { block.bias.add(j) },
                    };
                    (table.gemm)(&args);
                }
                i += tile.rows;
            }
            j += tile.cols;
        }
    }
}

/// `C = A B + beta C + bias` for packed `A` and `B`, the unit of the two inner loops.
struct Block {
    rows: usize,
    cols: usize,
    depth: usize,
    /// Length of the panels of `B`; `b` may point into their middle.
    length: usize,
    a: *const f32,
    b: *const f32,
    c: *mut f32,
    row_stride: usize,
    col_stride: usize,
    beta: f32,
    /// Or null.
    bias: *const f32,
}

/// `C = beta * C + bias`.
fn scale_c(c: &mut MatMut<'_, f32>, beta: f32, bias: Option<&[f32]>) {
    let (rs, cs) = (c.row_stride(), c.col_stride());
    for i in 0..c.rows() {
        for j in 0..c.cols() {
            // SAFETY: an element of the view.
            unsafe {
                let p = c.as_mut_ptr().add(i * rs + j * cs);
                let kept = if beta == 0.0 { 0.0 } else { beta * *p };
                *p = kept + bias.and_then(|b| b.get(j).copied()).unwrap_or(0.0);
            }
        }
    }
}
