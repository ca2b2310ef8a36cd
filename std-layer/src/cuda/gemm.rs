//! Matrix products on tensor cores, with dense weights and with weights in blocks.

use gllm_kernels_core::{bf16, ElementType, KernelError};

use super::check::{aligned, area, bad, same_len, small};
use super::error::{Capability, CudaError};
use super::geometry::{self, Tile, MAX_SMALL_TILE_ROWS};
use super::kernels::{block_formats, type_number, File, Name};
use super::memory::{View, ViewMut};
use super::module::Arguments;
use super::quant::QuantView;
use super::segments::Segments;
use super::stream::Stream;
use super::sys::Address;
use super::{Float, Ops};

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct GemmArgs {
    x: Address,
    w: Address,
    y: Address,
    segments: Address,
    row_bytes: u64,
    pub(super) m: u32,
    n: u32,
    k: u32,
    ty: u32,
}
// SAFETY: as in gemm.cu.
unsafe impl Arguments for GemmArgs {}

#[derive(Clone, Copy)]
#[repr(C)]
struct GemmJoinArgs {
    parts: Address,
    y: Address,
    n: u64,
    count: u32,
    ty: u32,
}
// SAFETY: as in gemm.cu.
unsafe impl Arguments for GemmJoinArgs {}

/// GPUs whose kernels multiply by `wgmma`, too.
pub(super) const WGMMA: Capability = Capability(90);

/// Where the sums of parts of the columns go until they are added.
#[derive(Debug)]
pub struct Split<'a> {
    /// How many parts there are: at least 1.
    pub parts: usize,
    /// Room for as many results, if there is more than one part.
    pub room: ViewMut<'a, f32>,
}

impl Capability {
    /// The tile of products of few rows that kernels for this GPU have, with dense weights or those in blocks. AMD's GPUs have one piece of both operands in shared memory.
    fn few_tile(self, blocks: bool) -> Tile {
        match self {
            gfx if gfx.is_gfx() => Tile::narrow(32, 1),
            WGMMA if blocks => Tile::FEW_BLOCKS,
            WGMMA => Tile::FEW_DENSE,
            capability => Tile::few(capability),
        }
    }

    /// Rows of these tiles, which are as many with either.
    pub(crate) fn small_tile_rows(self) -> usize {
        self.few_tile(true).rows
    }

    /// Rows of bf16 up to which products decode weights in blocks themselves sooner than these are decoded before the product.
    pub(crate) fn decoding_rows(self) -> usize {
        if self == WGMMA {
            128
        } else {
            MAX_SMALL_TILE_ROWS
        }
    }
}

impl Ops {
    /// The arguments of `Y = X W^T` for whatever kind of weights, `n x k`.
    pub(super) fn product<T: Float, U: Float>(
        &self,
        (w, n, row_bytes): (Address, usize, usize),
        (x, k): (View<'_, T>, usize),
        y: &ViewMut<'_, U>,
    ) -> Result<GemmArgs, CudaError> {
        // 16 bytes at a time.
        if !k.is_multiple_of(8) {
            return Err(KernelError::NotBlockMultiple { cols: k, block: 8 }.into());
        }
        let m = super::check::rows(x.len(), k)?;
        same_len("y", y.len(), area("elements of y", &[m, n])?)?;
        self.here(x.context())?;
        self.here(y.context())?;
        aligned("x", x.address())?;
        aligned("y", y.address())?;
        aligned("w", w)?;
        let args = GemmArgs {
            x: x.address(),
            w,
            y: y.address(),
            segments: 0,
            row_bytes: row_bytes as u64,
            m: small("m", m)?,
            n: small("n", n)?,
            k: small("k", k)?,
            ty: type_number(U::TYPE),
        };
        Ok(args)
    }

    /// The arguments of a product whose weights are decoded to the type of `x`.
    pub(super) fn decoded_product<T: Float, U: Float>(
        &self,
        w: (Address, usize, usize),
        x: (View<'_, T>, usize),
        y: &ViewMut<'_, U>,
    ) -> Result<GemmArgs, CudaError> {
        match T::TYPE {
            ElementType::F16 | ElementType::Bf16 => self.product(w, x, y),
            _ => Err(bad("x", "f16 or bf16: weights are decoded for tensor cores")),
        }
    }

    /// `Y = X W^T`: `x` is `m x k`, `w` is `n x k`, `y` is `m x n`, all by rows. Sums are in f32; f16 and bf16 are multiplied by tensor cores, f32 in f32.
    ///
    /// # Errors
    /// `Kernel` unless `x` has whole rows of `k`, a multiple of 8; `WrongSize` unless `w` and `y` have their
    /// sizes; `Misaligned` unless `x`, `w` and `y` start at multiples of 16 bytes; `Geometry` if `n` takes more blocks than there
    /// can be; `OtherContext`, `Launch`.
    pub fn gemm<'a, T: Float, U: Float>(
        &self,
        stream: &Stream,
        (n, k): (usize, usize),
        w: impl Into<View<'a, T>>,
        x: impl Into<View<'a, T>>,
        y: impl Into<ViewMut<'a, U>>,
    ) -> Result<(), CudaError> {
        let (w, x) = (w.into(), x.into());
        same_len("w", w.len(), area("elements of w", &[n, k])?)?;
        self.here(w.context())?;
        let args = self.product((w.address(), n, 0), (x, k), &y.into())?;
        let geometry = geometry::gemm(args.m as usize, n, self.dense_tile(T::TYPE, n), 1);
        let kernel = (File::gemm, Name("gemm", T::TYPE.name(), ""));
        // SAFETY: checked here and by `product`.
        unsafe { self.loader.launch(kernel, stream, geometry, &args) }
    }

    /// Into how many parts the columns of a product are best divided, with `dense` weights of a type for [`gemm_split`](Self::gemm_split), or with weights in blocks for
    /// [`qgemm_split`](Self::qgemm_split): so that all multiprocessors have work.
    pub fn gemm_parts(&self, (m, n, k): (usize, usize, usize), dense: Option<ElementType>) -> usize {
        geometry::gemm_parts((m, n, k), self.split_tile((m, n), dense), self.multiprocessors())
    }

    /// [`gemm`](Self::gemm) whose blocks share the columns, too. Sums of parts are added in their order. Up to 64 rows of `x` in 16 bits blocks have small tiles, which
    /// are made for reading `w` fast.
    ///
    /// # Errors
    /// Those of [`gemm`](Self::gemm); `Kernel` without parts; `WrongSize` unless the room has `parts * m * n` elements, with more than one part.
    pub fn gemm_split<'a, T: Float, U: Float>(
        &self,
        stream: &Stream,
        (n, k): (usize, usize),
        w: impl Into<View<'a, T>>,
        x: impl Into<View<'a, T>>,
        (split, y): (Split<'_>, impl Into<ViewMut<'a, U>>),
    ) -> Result<(), CudaError> {
        let (w, x, y) = (w.into(), x.into(), y.into());
        same_len("w", w.len(), area("elements of w", &[n, k])?)?;
        self.here(w.context())?;
        let args = self.product((w.address(), n, 0), (x, k), &y)?;
        let m = args.m as usize;
        let tile = self.split_tile((m, n), Some(T::TYPE));
        let name = dense_name(T::TYPE, m);
        self.split(stream, (File::gemm, Name(name, T::TYPE.name(), "")), (args, tile), (split, y))
    }

    /// [`qgemm`](Self::qgemm) for rows of bf16, as [`gemm_split`](Self::gemm_split) has it.
    ///
    /// # Errors
    /// Those of [`gemm_split`](Self::gemm_split), without those of `w`.
    pub fn qgemm_split<'a, U: Float>(
        &self,
        stream: &Stream,
        w: QuantView<'_>,
        x: impl Into<View<'a, bf16>>,
        (split, y): (Split<'_>, impl Into<ViewMut<'a, U>>),
    ) -> Result<(), CudaError> {
        let (y, (address, row_bytes)) = (y.into(), w.place(self)?);
        let args = self.product((address, w.rows(), row_bytes), (x.into(), w.cols()), &y)?;
        let name = if args.m as usize <= MAX_SMALL_TILE_ROWS { "qgemm_few" } else { "qgemm" };
        let tile = self.split_tile((args.m as usize, w.rows()), None);
        self.split(stream, (File::gemm, Name(name, "bf16", w.format().name())), (args, tile), (split, y))
    }

    /// A product whose columns are divided, and whose arguments have been checked.
    fn split<U: Float>(
        &self,
        stream: &Stream,
        kernel: (File, Name),
        (args, tile): (GemmArgs, Tile),
        (Split { parts, room }, y): (Split<'_>, ViewMut<'_, U>),
    ) -> Result<(), CudaError> {
        if parts == 0 {
            return Err(bad("parts", "at least 1"));
        }
        let (m, n) = (args.m as usize, args.n as usize);
        let geometry = geometry::gemm(m, n, tile, parts);
        if parts == 1 {
            // SAFETY: whoever made the arguments checked them.
            return unsafe { self.loader.launch(kernel, stream, geometry, &args) };
        }
        same_len("room", room.len(), area("sums of parts", &[parts, m, n])?)?;
        self.here(room.context())?;
        aligned("room", room.address())?;
        let sums = GemmArgs { y: room.address(), ty: type_number(ElementType::F32), ..args };
        let join = GemmJoinArgs {
            parts: room.address(),
            y: y.address(),
            n: y.len() as u64,
            count: small("parts", parts)?,
            ty: type_number(U::TYPE),
        };
        let adding = geometry::gemm_join(y.len(), self.multiprocessors());
        // SAFETY: whoever made the arguments checked them; the room has a result for each part.
        unsafe {
            self.loader.launch(kernel, stream, geometry, &sums)?;
            self.loader.launch((File::gemm, Name("gemm_join", "", "")), stream, adding, &join)
        }
    }

    /// The usual tile. As many pieces of both operands as `gemm.cuh` has: NVIDIA's for one that is multiplied and two that arrive, AMD's for one.
    pub(super) fn tile(&self) -> Tile {
        Tile::narrow(128, if self.capability().is_gfx() { 1 } else { 3 })
    }

    /// The tile of a product with dense weights of a type: kernels for compute capability 9.0 have wide ones, too, half of which should not be empty.
    fn dense_tile(&self, ty: ElementType, n: usize) -> Tile {
        match ty {
            ElementType::F32 => Tile::SINGLE,
            _ if self.capability() == WGMMA && n > 128 => Tile::WIDE,
            _ => self.tile(),
        }
    }

    /// The tile of a product of many rows of this type with weights in blocks.
    fn blocks_tile(&self, ty: ElementType) -> Tile {
        match (self.capability(), ty) {
            (WGMMA, ElementType::Bf16) => Tile::WIDE_BLOCKS,
            _ => self.tile(),
        }
    }

    /// The tile of a product whose columns are divided, with `dense` weights of a type or with weights in blocks.
    fn split_tile(&self, (m, n): (usize, usize), dense: Option<ElementType>) -> Tile {
        match dense {
            Some(ElementType::F32) => Tile::SINGLE,
            _ if m <= MAX_SMALL_TILE_ROWS => self.capability().few_tile(dense.is_none()),
            None => self.blocks_tile(ElementType::Bf16),
            Some(ty) => self.dense_tile(ty, n),
        }
    }

    /// `Y = X W^T` with weights in blocks, which are decoded to the type of `x`, f16 or bf16, on the way to the tensor cores: the
    /// result is that of [`dequant`](Self::dequant) and [`gemm`](Self::gemm).
    ///
    /// # Errors
    /// Those of [`gemm`](Self::gemm), without those of `w`.
    pub fn qgemm<'a, T: Float, U: Float>(
        &self,
        stream: &Stream,
        w: QuantView<'_>,
        x: impl Into<View<'a, T>>,
        y: impl Into<ViewMut<'a, U>>,
    ) -> Result<(), CudaError> {
        let (address, row_bytes) = w.place(self)?;
        let args = self.decoded_product((address, w.rows(), row_bytes), (x.into(), w.cols()), &y.into())?;
        let geometry = geometry::gemm(args.m as usize, w.rows(), self.blocks_tile(T::TYPE), 1);
        let kernel = (File::gemm, Name("qgemm", T::TYPE.name(), w.format().name()));
        // SAFETY: checked by the view and by `product`.
        unsafe { self.loader.launch(kernel, stream, geometry, &args) }
    }

    /// [`gemm`](Self::gemm) with several matrices, each `n x k`. Segments have [as many rows as small tiles](Capability::small_tile_rows) at most, or 128; in f32
    /// [those of its tiles](Tile::SINGLE).
    ///
    /// # Errors
    /// Those of [`gemm`](Self::gemm).
    pub(crate) fn gemm_segments<T: Float>(
        &self,
        stream: &Stream,
        (n, k): (usize, usize),
        (w, segments): (View<'_, T>, Segments<'_>),
        x: View<'_, T>,
        y: ViewMut<'_, f32>,
    ) -> Result<(), CudaError> {
        same_len("w", w.len(), area("elements of w", &[segments.matrices, n, k])?)?;
        self.here(w.context())?;
        let args = self.product((w.address(), n, 0), (x, k), &y)?;
        let name = dense_name(T::TYPE, segments.most);
        self.segments(stream, (Name(name, T::TYPE.name(), ""), T::TYPE), args, segments)
    }

    /// [`qgemm`](Self::qgemm) with several matrices, which `w` has one below the other. Segments have [as many rows as small tiles](Capability::small_tile_rows) at most, with bf16, or
    /// 128.
    ///
    /// # Errors
    /// Those of [`qgemm`](Self::qgemm).
    pub(crate) fn qgemm_segments<T: Float>(
        &self,
        stream: &Stream,
        (w, segments): (QuantView<'_>, Segments<'_>),
        x: View<'_, T>,
        y: ViewMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let ((address, row_bytes), n) = (w.place(self)?, w.rows() / segments.matrices.max(1));
        same_len("w", w.rows(), n * segments.matrices)?;
        let args = self.decoded_product((address, n, row_bytes), (x, w.cols()), &y)?;
        let name = if segments.most <= MAX_SMALL_TILE_ROWS { "qgemm_few" } else { "qgemm" };
        self.segments(stream, (Name(name, T::TYPE.name(), w.format().name()), T::TYPE), args, segments)
    }

    /// A product with several matrices, whose arguments have been checked.
    fn segments(
        &self,
        stream: &Stream,
        (name, ty): (Name, ElementType),
        args: GemmArgs,
        segments: Segments<'_>,
    ) -> Result<(), CudaError> {
        let (m, n) = (args.m as usize, args.n as usize);
        let spread = self.spread(Some(segments), (m, n, m * n))?;
        let blocks = spread.blocks.unwrap_or(0);
        let tile = match name.0 {
            "gemm_few" => self.capability().few_tile(false),
            "qgemm_few" => self.capability().few_tile(true),
            "gemm" => self.dense_tile(ty, n),
            _ => self.blocks_tile(ty),
        };
        let mut geometry = geometry::gemm(m, n, tile, 1);
        geometry.grid[0] = blocks;
        let args = GemmArgs { segments: spread.table, ..args };
        // SAFETY: whoever made the arguments checked them; segments are of rows and matrices that exist.
        unsafe { self.loader.launch((File::gemm, name), stream, geometry, &args) }
    }
}

/// The kernel for so many rows with dense weights.
fn dense_name(ty: ElementType, m: usize) -> &'static str {
    if ty != ElementType::F32 && m <= MAX_SMALL_TILE_ROWS {
        "gemm_few"
    } else {
        "gemm"
    }
}

pub(super) fn list(to: &mut dyn FnMut(File, Name, usize)) {
    to(File::gemm, Name("gemm_join", "", ""), size_of::<GemmJoinArgs>());
    to(File::gemm, Name("gemm", "f32", ""), size_of::<GemmArgs>());
    for format in block_formats() {
        to(File::gemm, Name("qgemm_few", "bf16", format.name()), size_of::<GemmArgs>());
    }
    for ty in ["f16", "bf16"] {
        to(File::gemm, Name("gemm", ty, ""), size_of::<GemmArgs>());
        to(File::gemm, Name("gemm_few", ty, ""), size_of::<GemmArgs>());
        for format in block_formats() {
            to(File::gemm, Name("qgemm", ty, format.name()), size_of::<GemmArgs>());
        }
    }
}
