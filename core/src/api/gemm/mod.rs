//! BLAS-3: products of two matrices, as plans ([`GemmPlan`]).
//!
//! The algorithm is that of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication, 2008) and of BLIS (Van
//! Zee and van de Geijn, 2015): a microkernel computes a tile of `C`, and five loops around it bring its operands near.
//!
//! | loop, from the outside in | over | what stays in a cache meanwhile |
//! |---|---|---|
//! | 5 | `nc` columns of `C` at a time | the packed part of `B`, in L3 |
//! | 4 | `kc` steps of the depth at a time | |
//! | 3 | `mc` rows of `C` at a time | the packed part of `A`, in L2 |
//! | 2 | panels of `B` | the panel, in L1 |
//! | 1 | panels of `A` | |
//!
//! Block sizes follow from the caches of this CPU and from the tile of the selected microkernel.

mod panels;
mod scratch;

use crate::args::micro::{Micro, MAX_SIDE};
use crate::check;
use crate::element::{Element, Operand};
use crate::error::KernelError;
use crate::ops::gemv::GemvArgs;
use crate::ops::loops::blocks::BlockSizes;
use crate::ops::loops::drive::Drive;
pub(crate) use crate::ops::loops::drive::{Activate, Finish};
use crate::ops::loops::operands::Strided;
pub(crate) use crate::ops::loops::operands::{Source, Wanted};
use crate::ops::pack::{PackedB, PanelLayout};
use crate::ops::skinny::{self, Panels, SkinnyArgs};
use crate::ops::tile::{FinishArgs, MergeArgs};
use crate::scratch::{Scratch, ScratchReq};
use crate::table::registry::Op;
use crate::table::{Kernels, Table};
use crate::view::{MatMut, MatRef};

/// `B`, the right operand of a product, in the forms in which [`GemmPlan::run`] takes it.
#[derive(Clone, Copy, Debug)]
pub enum Right<'a, E> {
    /// A `k x n` matrix at any strides.
    RowMajor(MatRef<'a, E>),
    /// The transpose of `B`: an `n x k` matrix at any strides, as models store their weights.
    Transposed(MatRef<'a, E>),
    /// `B` from [`Kernels::pack_b`], for a matrix that is used often.
    Packed(PackedB<'a>),
}

impl<'a, E> From<MatRef<'a, E>> for Right<'a, E> {
    fn from(b: MatRef<'a, E>) -> Self {
        Self::RowMajor(b)
    }
}
impl<'a, E> From<PackedB<'a>> for Right<'a, E> {
    fn from(b: PackedB<'a>) -> Self {
        Self::Packed(b)
    }
}

/// A right operand that fits the plan.
#[derive(Clone, Copy, Debug)]
pub enum CheckedRight<'a, E> {
    /// A `k x n` matrix to be packed block by block.
    View(MatRef<'a, E>),
    /// All of `B`, in panels for the plan's microkernel.
    Panels(*const u8),
}

/// A function of each element of `C`, which is computed last: by the operator of this name, and as exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// [`Kernels::relu`].
    Relu,
    /// [`Kernels::gelu`].
    Gelu,
    /// [`Kernels::gelu_tanh`].
    GeluTanh,
    /// [`Kernels::silu`].
    Silu,
}

impl Activation {
    /// Every activation.
    pub const ALL: [Self; 4] = [Self::Relu, Self::Gelu, Self::GeluTanh, Self::Silu];

    pub(crate) fn slot(self, table: &Table<f32>) -> Activate {
        match self {
            Self::Relu => table.relu,
            Self::Gelu => table.gelu,
            Self::GeluTanh => table.gelu_tanh,
            Self::Silu => table.silu,
        }
    }
}

/// `C = alpha * A B + beta * C (+ bias)` for one shape: `A` is `m x k`, `B` is `k x n`, `C` is `m x n`.
///
/// `A` and `B` are of type `E` at any strides; they are widened to f32 and multiplied and summed in f32
/// with fused multiply-adds; `C` is f32, at any strides that keep its elements apart. As in BLAS,
/// `beta = 0` overwrites `C` without reading it, and `alpha = 0` (or `k = 0`) reads neither `A` nor `B`;
/// everything else follows IEEE rules, except that on CPUs with instructions for products of bf16, or with tiles,
/// denormals may count as zeros (see SPEC/02, section 8). The error of an element is at most about
/// `(k + 3) * 2^-24 * |alpha| * sum |a_ip b_pj|`, plus that of the additions of `beta * c` and the bias.
///
/// Fast where the rows of `C` are contiguous, or its columns (then `C^T = B^T A^T` is computed, unless `B`
/// is prepacked); other strides cost a copy.
///
/// Several threads: split `C` into tiles (rows with [`split_rows`](MatMut::split_rows), columns with
/// `c.t().split_rows(..)`), and give each thread the plan [`resized`](Self::resized) to its tile, the rows of `A`
/// and columns of `B` that meet there, and scratch of its own. A [`PackedB`] can be shared: its layout does not
/// depend on `m`, and [`PackedB::col_range`] cuts columns.
///
/// ```
/// # use gllm_kernels_core::{Kernels, MatMut, MatRef, Scratch};
/// let (a, b) = ([1.0f32, 2.0, 3.0, 4.0], [1.0, 0.0, 0.0, 1.0]);
/// let mut c = [0.0; 4];
/// let plan = Kernels::<f32>::detect().gemm_plan(2, 2, 2)?;
/// let mut memory = vec![0; plan.scratch()?.size_unaligned()];
/// let (a, b) = (MatRef::new(&a, 2, 2)?, MatRef::new(&b, 2, 2)?);
/// plan.run(MatMut::new(&mut c, 2, 2)?, a, b, None, Scratch::new(&mut memory))?;
/// assert_eq!(c, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), gllm_kernels_core::KernelError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GemmPlan<E: Operand> {
    kernels: Kernels<E>,
    m: usize,
    n: usize,
    k: usize,
    alpha: f32,
    beta: f32,
    activation: Option<Activation>,
    /// Rows and columns of the undivided product, which decide the way it takes: a part has the bits that it has
    /// in the whole.
    whole: [usize; 2],
    blocks: BlockSizes,
    /// Blocks for the transposed product, `C^T = B^T A^T`.
    turned: BlockSizes,
}

impl<E: Operand> Kernels<E> {
    /// A plan for products of this shape, with `alpha = 1` and `beta = 0`.
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub fn gemm_plan(&self, m: usize, n: usize, k: usize) -> Result<GemmPlan<E>, KernelError> {
        self.gemm_part([m, n, k], [m, n])
    }

    /// A plan for a part of a product that has `whole` rows and columns altogether.
    fn gemm_part(&self, [m, n, k]: [usize; 3], whole: [usize; 2]) -> Result<GemmPlan<E>, KernelError> {
        let blocks = |m, n, rows| BlockSizes::new(self.micro, self.caps(), [m, n, k], rows);
        let (blocks, turned) = (blocks(m, n, whole[0])?, blocks(n, m, whole[1])?);
        let (alpha, beta, activation) = (1.0, 0.0, None);
        Ok(GemmPlan { kernels: *self, m, n, k, alpha, beta, activation, whole, blocks, turned })
    }
}

impl<E: Element> GemmPlan<E> {
    /// The plan with `alpha`, the factor of `A B`.
    pub fn alpha(self, alpha: f32) -> Self {
        Self { alpha, ..self }
    }

    /// The plan with `beta`, the factor of `C`.
    pub fn beta(self, beta: f32) -> Self {
        Self { beta, ..self }
    }

    /// The plan with an activation: `C = f(alpha * A B + beta * C + bias)`. It is computed block by block, while these
    /// are in cache.
    pub fn activation(self, activation: Activation) -> Self {
        Self { activation: Some(activation), ..self }
    }
}

/// Products of int8.
impl GemmPlan<i8> {
    /// The plan that adds the product to `C`: `C = A B + C`.
    pub fn accumulate(self) -> Self {
        Self { beta: 1.0, ..self }
    }
}

impl<E: Operand> GemmPlan<E> {
    /// Most rows of `C` for which [`run`](Self::run) reads a `B` of floats where it is, if that is contiguous in one direction.
    pub const MAX_SKINNY_ROWS: usize = skinny::MAX_ROWS;

    /// The kernels that the plan was made with.
    pub fn kernels(&self) -> Kernels<E> {
        self.kernels
    }

    /// `m`, `n` and `k`.
    pub fn shape(&self) -> [usize; 3] {
        [self.m, self.n, self.k]
    }

    /// Rows and columns of the microkernel's tile: where `C` is split for threads, best at multiples of these.
    pub fn tile(&self) -> [usize; 2] {
        [self.kernels.micro.a.width, self.kernels.micro.b.width]
    }

    /// The plan for a part of the product: the same with other numbers of rows and columns of `C`. The part gets the
    /// bits that it has in the whole.
    ///
    /// # Errors
    /// `SizeOverflow`.
    pub fn resized(&self, m: usize, n: usize) -> Result<Self, KernelError> {
        let Self { alpha, beta, activation, whole: [rows, cols], .. } = *self;
        let whole = [rows.max(m), cols.max(n)];
        Ok(Self { alpha, beta, activation, ..self.kernels.gemm_part([m, n, self.k], whole)? })
    }

    /// Whether [`run`](Self::run) reads this `B` where it is when it uses the microkernel. Then nothing is gained by
    /// packing it once for several parts of `C`.
    pub fn in_place(&self, b: MatRef<'_, E>) -> bool {
        self.blocks.b_in_place(self.kernels.micro, [b.cols(), b.rows()], Strided::of(b.t()))
    }

    /// Name of the kernel that computes. It is that of GEMV for `m = 1`, and for `n = 1` where `A` is contiguous in one
    /// direction. It is that of skinny products for `m <=` [`MAX_SKINNY_ROWS`](Self::MAX_SKINNY_ROWS), where `B` is contiguous in one direction, or where it is
    /// prepacked and panels wait for memory, not for multiply-adds. Otherwise it is the GEMM microkernel.
    pub fn kernel_name(&self) -> &'static str {
        let op = match self.whole {
            [1, _] | [_, 1] if E::TYPE.is_float() => Op::Gemv,
            [2..=skinny::MAX_ROWS, _] if E::TYPE.is_float() => Op::GemmSkinny,
            _ => Op::Gemm,
        };
        self.kernels.kernel(op, None).map_or("", |row| row.name)
    }

    /// `C = f(alpha * A B + beta * C + bias)` (BLAS `gemm`): `bias`, if there is one, has an element for each column of
    /// `C`; `f` is the plan's [activation](Self::activation).
    ///
    /// # Errors
    /// `DimMismatch` unless `c`, `a` and `b` have the plan's shape; `WrongLength` unless `bias` has `n` elements;
    /// `WrongPacking` if `b` was packed for kernels that take another layout; `ScratchTooSmall` (see
    /// [`scratch`](Self::scratch)).
    pub fn run<'b>(
        &self,
        c: MatMut<'_, E::Sum>,
        a: MatRef<'_, E>,
        b: impl Into<Right<'b, E>>,
        bias: Option<&[E::Sum]>,
        scratch: Scratch<'_>,
    ) -> Result<(), KernelError>
    where
        E: 'b,
    {
        self.checked(c, a, b.into(), bias, scratch)
    }

    /// Checks the operands, and computes the product.
    fn checked(
        &self,
        c: MatMut<'_, E::Sum>,
        a: MatRef<'_, E>,
        b: Right<'_, E>,
        bias: Option<&[E::Sum]>,
        scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        bias.map_or(Ok(()), |bias| check::len("bias", bias.len(), self.n))?;
        let b = match b {
            Right::RowMajor(b) => {
                check::dim("b.rows != k", b.rows(), self.k)?;
                check::dim("b.cols != n", b.cols(), self.n)?;
                CheckedRight::View(b)
            }
            Right::Transposed(bt) => {
                check::dim("bt.rows != n", bt.rows(), self.n)?;
                check::dim("bt.cols != k", bt.cols(), self.k)?;
                CheckedRight::View(bt.t())
            }
            Right::Packed(b) => {
                CheckedRight::Panels(b.panels_for(PanelLayout::of(self.kernels.micro), self.k, self.n)?)
            }
        };
        check::dim("c.rows != m", c.rows(), self.m)?;
        check::dim("c.cols != n", c.cols(), self.n)?;
        check::dim("a.rows != m", a.rows(), self.m)?;
        check::dim("a.cols != k", a.cols(), self.k)?;
        self.drive(c, a, b, bias, scratch)
    }

    /// Does a product that needs no microkernel: one row or column of `C` is a GEMV, a few rows are a skinny product.
    /// `None` if it is neither. Types that are no [`Element`] have no such kernels; the sums of those that are one are
    /// f32.
    fn direct(
        &self,
        c: &mut MatMut<'_, E::Sum>,
        a: MatRef<'_, E>,
        b: CheckedRight<'_, E>,
        bias: Option<&[E::Sum]>,
        scratch: &mut Scratch<'_>,
    ) -> Option<Result<(), KernelError>> {
        let table = self.kernels.table.get()?;
        let CheckedRight::View(view) = b else {
            let serves = skinny::serves_panels(self.kernels.micro, self.whole[0]);
            return serves.then(|| self.few_rows(table, c, a, b, bias, scratch));
        };
        if self.whole[0] == 1 {
            return Some(self.vector(table, c, false, a, view, bias, scratch));
        }
        // Few rows have the bits of a skinny product, of which there may be more columns.
        let few = self.whole[0] <= skinny::MAX_ROWS;
        let contiguous = a.col_stride() == 1 || a.row_stride() == 1 && !few;
        if self.whole[1] == 1 && contiguous && (view.row_stride() == 1 || !few) {
            return Some(self.vector(table, c, true, view.t(), a.t(), bias, scratch));
        }
        skinny::serves(self.whole[0], view.row_stride(), view.col_stride())
            .then(|| self.few_rows(table, c, a, b, bias, scratch))
    }

    /// Computes one row of `C`, or one column if `turned`: `matrix^T` times the row `x`. This waits for memory alone,
    /// so nothing is packed.
    #[allow(clippy::too_many_arguments)]
    fn vector(
        &self,
        table: &Table<E>,
        c: &mut MatMut<'_, E::Sum>,
        turned: bool,
        x: MatRef<'_, E>,
        matrix: MatRef<'_, E>,
        bias: Option<&[E::Sum]>,
        scratch: &mut Scratch<'_>,
    ) -> Result<(), KernelError> {
        let (y, stride, len) = if turned {
            (c.as_mut_ptr().cast::<f32>(), c.row_stride(), self.m)
        } else {
            (c.as_mut_ptr().cast::<f32>(), c.col_stride(), self.n)
        };
        let mut args = GemvArgs {
            rows: len,
            cols: self.k,
            a: matrix.as_ptr(),
            row_stride: matrix.col_stride(),
            col_stride: matrix.row_stride(),
            x: x.as_ptr(),
            x_stride: x.col_stride(),
            y,
            y_stride: stride,
            alpha: self.alpha,
            beta: if bias.is_some() { 1.0 } else { self.beta },
            order: self.kernels.order_for_vector(len, self.k),
        };
        // The kernel needs `x` contiguous if rows of the matrix are, and `y` if its columns are.
        let by_rows = args.col_stride == 1;
        let room = match (by_rows, args.row_stride) {
            (true, _) if args.x_stride != 1 => self.k,
            (false, 1) if args.y_stride != 1 => len,
            _ => 0,
        };
        let room = scratch.take::<f32>(room)?;
        if bias.is_some() {
            self.scale_c(c, bias);
        }
        // SAFETY: the views have the plan's shape and `c` is exclusive; there is room for `x` or `y`, which is
        // not smaller than their elements; the instruction set is present.
        unsafe {
            if !room.is_empty() && by_rows {
                let copy = room.as_mut_ptr().cast::<E>();
                for i in 0..self.k {
                    copy.add(i).write(*args.x.add(i * args.x_stride));
                }
                (args.x, args.x_stride) = (copy, 1);
            } else if !room.is_empty() {
                (args.y, args.y_stride) = (room.as_mut_ptr(), 1);
                for (i, to) in room.iter_mut().enumerate() {
                    *to = if args.beta == 0.0 { 0.0 } else { *y.add(i * stride) };
                }
            }
            (table.gemv)(&args);
            if !room.is_empty() && !by_rows {
                for (i, &from) in room.iter().enumerate() {
                    *y.add(i * stride) = from;
                }
            }
        }
        Ok(())
    }

    /// Computes a few rows of `C`. This waits for memory alone, so nothing of `B` is packed.
    fn few_rows(
        &self,
        table: &Table<E>,
        c: &mut MatMut<'_, E::Sum>,
        a: MatRef<'_, E>,
        b: CheckedRight<'_, E>,
        bias: Option<&[E::Sum]>,
        scratch: &mut Scratch<'_>,
    ) -> Result<(), KernelError> {
        let need = skinny::scratch(self.m, self.n, self.k)?.size() / size_of::<f32>();
        let Micro { b: panel, depth, .. } = *self.kernels.micro;
        let (ptr, b_row, b_col, panels) = match b {
            CheckedRight::View(b) => (b.as_ptr(), b.row_stride(), b.col_stride(), None),
            CheckedRight::Panels(panels) => {
                let depth = self.k.checked_next_multiple_of(depth).unwrap_or(self.k);
                (panels.cast(), panel.width, 1, Some(Panels { depth, pairs: panel.kr == 2 }))
            }
        };
        let args = SkinnyArgs {
            m: self.m,
            n: self.n,
            k: self.k,
            a: a.as_ptr(),
            a_row: a.row_stride(),
            a_col: a.col_stride(),
            b: ptr,
            b_row,
            b_col,
            panels,
            c_row: c.row_stride(),
            c_col: c.col_stride(),
            c: c.as_mut_ptr().cast(),
            alpha: self.alpha,
            beta: self.beta,
            bias: bias.map_or(core::ptr::null(), |bias| bias.as_ptr().cast()),
            scratch: scratch.take::<f32>(need)?.as_mut_ptr(),
            order: self.kernels.order(self.n, self.k),
        };
        // SAFETY: the views have the plan's shape, which is not empty, and `c` is exclusive; `B` is
        // contiguous in one direction, or packed in panels that are known; scratch is as long as asked for;
        // the instruction set is present.
        unsafe { (table.gemm_skinny)(&args) };
        Ok(())
    }

    /// Computes the product of checked operands, in the way that is fastest for its shape.
    fn drive(
        &self,
        mut c: MatMut<'_, E::Sum>,
        a: MatRef<'_, E>,
        b: CheckedRight<'_, E>,
        bias: Option<&[E::Sum]>,
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        if self.m == 0 || self.n == 0 {
            return Ok(());
        }
        let whole = self.finish(&mut c);
        if self.k == 0 || self.alpha == 0.0 {
            self.scale_c(&mut c, bias);
            // SAFETY: the elements of the view, which is exclusive; the instruction set is present.
            unsafe { whole.run() };
            return Ok(());
        }
        if let Some(done) = self.direct(&mut c, a, b, bias, &mut scratch) {
            if done.is_ok() {
                // SAFETY: the elements of the view, which is exclusive; the instruction set is present.
                unsafe { whole.run() };
            }
            return done;
        }
        let need = match b {
            CheckedRight::View(_) => self.scratch()?,
            CheckedRight::Panels(_) => self.scratch_packed()?,
        };
        let memory = scratch.take::<u8>(need.size())?.as_mut_ptr();
        let (micro, k) = (self.kernels.micro, self.k);
        // What is behind another part, aligned as it is.
        let behind = |part: *mut u8, size: ScratchReq| {
            part.wrapping_add(size.size().next_multiple_of(ScratchReq::PANEL_ALIGN))
        };
        // The blocks of `m x n` elements of `C` from two matrices, and their sums.
        let sources = |blocks: BlockSizes, [m, n]: [usize; 2], [a, b]: [MatRef<'_, E>; 2]| {
            let sums = behind(memory, blocks.a);
            let left = blocks.left(micro, [m, k], Strided::of(a), memory);
            (left, blocks.right(micro, [n, k], Strided::of(b), behind(sums, blocks.sums)), sums)
        };
        let drive = match b {
            CheckedRight::Panels(panels) => {
                let left = self.blocks.left(micro, [self.m, k], Strided::of(a), memory);
                self.loops(&mut c, left, Source::Panels(panels), behind(memory, self.blocks.a), bias)
            }
            CheckedRight::View(b) if c.row_stride() == 1 && c.col_stride() != 1 => {
                let (blocks, m, n) = (self.turned, self.n, self.m);
                let (left, right, sums) = sources(blocks, [m, n], [b.t(), a]);
                let drive = self.loops(&mut c, left, right, sums, bias);
                let (c_row, c_col) = (drive.c_col, drive.c_row);
                Drive { blocks, m, n, c_row, c_col, bias_of_rows: true, ..drive }
            }
            CheckedRight::View(b) => {
                let (left, right, sums) = sources(self.blocks, [self.m, self.n], [a, b.t()]);
                self.loops(&mut c, left, right, sums, bias)
            }
        };
        // SAFETY: shapes are checked and not empty; the views vouch for their elements, and `c` is
        // exclusive; the memory holds a block each and the sums, one behind the other; prepacked panels are those of a
        // `k x n` matrix for this microkernel, which was chosen by what the CPU has.
        unsafe { drive.run() };
        Ok(())
    }

    /// The last operation on all of `C`: the activation, if there is one.
    fn finish(&self, c: &mut MatMut<'_, E::Sum>) -> Finish {
        Finish {
            c: c.as_mut_ptr().cast(),
            row_stride: c.row_stride(),
            col_stride: c.col_stride(),
            rows: self.m,
            cols: self.n,
            activate: self.activation.map(|f| f.slot(self.kernels.plain())),
            access: self.kernels.access_inplace(),
        }
    }

    /// The loops around the microkernel for these operands.
    fn loops<'a>(
        &self,
        c: &mut MatMut<'_, E::Sum>,
        a: Source<'a>,
        b: Source<'a>,
        sums: *mut u8,
        bias: Option<&[E::Sum]>,
    ) -> Drive<'a> {
        let Finish { c, row_stride, col_stride, activate, access, .. } = self.finish(c);
        Drive {
            micro: self.kernels.micro,
            helpers: self.kernels.helpers(),
            blocks: self.blocks,
            m: self.m,
            n: self.n,
            k: self.k,
            a,
            b,
            sums,
            c,
            c_row: row_stride,
            c_col: col_stride,
            alpha: self.alpha,
            beta: self.beta,
            bias: bias.map_or(core::ptr::null(), |b| b.as_ptr().cast()),
            bias_of_rows: false,
            activate,
            access,
        }
    }

    /// `C = beta * C + bias`.
    fn scale_c(&self, c: &mut MatMut<'_, E::Sum>, bias: Option<&[E::Sum]>) {
        /// A row of a product that is zero; in i32 it has the same bits.
        static ZEROS: [f32; MAX_SIDE] = [0.0; MAX_SIDE];
        let helpers = self.kernels.helpers();
        let (rows, row_stride, col_stride) = (self.m, c.row_stride(), c.col_stride());
        let mut j = 0;
        while j < self.n {
            let cols = ZEROS.len().min(self.n - j);
            // SAFETY: columns of the view, which is exclusive; every row of the tile is the same.
            unsafe {
                let c = c.as_mut_ptr().add(j * col_stride).cast();
                let (tile, beta) = (ZEROS.as_ptr(), self.beta);
                (helpers.merge)(&MergeArgs { tile, width: 0, c, row_stride, col_stride, rows, cols, beta });
            }
            j += cols;
        }
        if let Some(bias) = bias {
            let (c, bias) = (c.as_mut_ptr().cast(), bias.as_ptr().cast());
            let cols = self.n;
            let args = FinishArgs { c, row_stride, col_stride, rows, cols, bias, bias_row: 0, bias_col: 1 };
            // SAFETY: the elements of the view, which is exclusive, and one of the bias for each column.
            unsafe { (helpers.finish)(&args) };
        }
    }
}
