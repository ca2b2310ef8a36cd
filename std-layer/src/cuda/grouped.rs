//! Weights of AWQ and GPTQ: integers with a scale and a zero point for each group of inputs.

use gllm_kernels_core::{f16, GptqZeros, KernelError};

use super::check::{area, bad, same_len, small};
use super::error::CudaError;
use super::gemm::GemmArgs;
use super::geometry;
use super::kernels::{type_number, File, Name};
use super::memory::{View, ViewMut};
use super::module::Arguments;
use super::stream::Stream;
use super::sys::Address;
use super::{Float, Ops};

#[derive(Clone, Copy)]
#[repr(C)]
struct GroupedArgs {
    words: Address,
    zeros: Address,
    scales: Address,
    order: Address,
    x: Address,
    y: Address,
    outputs: u32,
    inputs: u32,
    group: u32,
    batch: u32,
    ty: u32,
    plus: u32,
    groups: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct GroupedGemmArgs {
    product: GemmArgs,
    weights: GroupedArgs,
}

// SAFETY: as in grouped.cu.
unsafe impl Arguments for GroupedArgs {}
// SAFETY: as in grouped.cu.
unsafe impl Arguments for GroupedGemmArgs {}

/// How integers and zero points lie in words. The core's `AwqRef` and `GptqRef` have the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupedLayout {
    /// AWQ's GEMM packing, 4 bits.
    Awq,
    /// GPTQ's, of 1, 2, 3, 4 or 8 bits.
    Gptq {
        /// Bits of an integer.
        bits: u32,
        /// What zero points are stored as.
        zeros: GptqZeros,
    },
}

impl GroupedLayout {
    /// The name of kernels; bits; what outputs are a multiple of.
    fn parts(self) -> Result<(&'static str, usize, usize), CudaError> {
        Ok(match self {
            Self::Awq => ("awq", 4, 8),
            Self::Gptq { bits: 1, .. } => ("gptq1", 1, 32),
            Self::Gptq { bits: 2, .. } => ("gptq2", 2, 16),
            Self::Gptq { bits: 3, .. } => ("gptq3", 3, 32),
            Self::Gptq { bits: 4, .. } => ("gptq4", 4, 8),
            Self::Gptq { bits: 8, .. } => ("gptq8", 8, 4),
            Self::Gptq { .. } => return Err(bad("bits", "1, 2, 3, 4 or 8")),
        })
    }
}

/// What [`GroupedView::new`] views.
#[derive(Clone, Copy, Debug)]
pub struct GroupedParts<'a> {
    /// How integers lie.
    pub layout: GroupedLayout,
    /// Inputs of a group; all of them where the file has one group.
    pub group: usize,
    /// Integers.
    pub qweight: View<'a, u32>,
    /// Zero points.
    pub qzeros: View<'a, u32>,
    /// Scales: for each group those of all outputs.
    pub scales: View<'a, f16>,
    /// The group of each input (GPTQ's `g_idx`), unless they are runs. Larger numbers are taken as the last group.
    pub g_idx: Option<View<'a, u32>>,
}

/// An `outputs x inputs` matrix of weights as AWQ or GPTQ packs it, on the GPU; the file has inputs as rows.
#[derive(Clone, Copy, Debug)]
pub struct GroupedView<'a> {
    parts: GroupedParts<'a>,
    name: &'static str,
    outputs: usize,
    inputs: usize,
    groups: usize,
}

impl<'a> GroupedView<'a> {
    /// Views a matrix.
    ///
    /// # Errors
    /// `Kernel` if there is no such number of bits, `group` is 0, or the outputs' zero points or (GPTQ) the inputs do
    /// not fill whole words; `WrongSize` unless each part has its length.
    pub fn new(parts: GroupedParts<'a>, outputs: usize, inputs: usize) -> Result<Self, CudaError> {
        let (name, bits, block) = parts.layout.parts()?;
        if parts.group == 0 {
            return Err(bad("group", "at least 1 input"));
        }
        let whole = |n: usize, block: usize| {
            let whole = n.is_multiple_of(block);
            whole.then_some(()).ok_or(CudaError::Kernel(KernelError::NotBlockMultiple { cols: n, block }))
        };
        whole(outputs, block)?;
        if parts.layout != GroupedLayout::Awq {
            whole(inputs, 32)?;
        }
        let groups = inputs.div_ceil(parts.group);
        let words = |what, rows| Ok::<_, CudaError>(area(what, &[rows, outputs, bits])? / 32);
        same_len("qweight", parts.qweight.len(), words("bits of weights", inputs)?)?;
        same_len("qzeros", parts.qzeros.len(), words("bits of zero points", groups)?)?;
        same_len("scales", parts.scales.len(), area("scales", &[groups, outputs])?)?;
        parts.g_idx.map_or(Ok(()), |g| same_len("g_idx", g.len(), inputs))?;
        small("outputs", outputs)?;
        small("inputs", inputs)?;
        Ok(Self { parts, name, outputs, inputs, groups })
    }

    /// Rows of `W`.
    pub fn outputs(&self) -> usize {
        self.outputs
    }
    /// Columns of `W`.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    fn arguments(&self, ops: &Ops) -> Result<GroupedArgs, CudaError> {
        let GroupedParts { layout, group, qweight, qzeros, scales, g_idx } = self.parts;
        ops.here(qweight.context())?;
        ops.here(qzeros.context())?;
        ops.here(scales.context())?;
        g_idx.map_or(Ok(()), |g| ops.here(g.context()))?;
        Ok(GroupedArgs {
            words: qweight.address(),
            zeros: qzeros.address(),
            scales: scales.address(),
            order: g_idx.map_or(0, |g| g.address()),
            x: 0,
            y: 0,
            outputs: small("outputs", self.outputs)?,
            inputs: small("inputs", self.inputs)?,
            group: small("group", group.min(self.inputs.max(1)))?,
            batch: 0,
            ty: 0,
            plus: matches!(layout, GroupedLayout::Gptq { zeros: GptqZeros::V1, .. }).into(),
            groups: small("groups", self.groups)?,
        })
    }
}

impl Ops {
    /// Decodes weights: `y[k, n] = w[n, k]`, `inputs x outputs`, as in the file. Exact in f32, else narrowed once.
    ///
    /// # Errors
    /// `WrongSize` unless `y` has `inputs * outputs` elements; `OtherContext`, `Launch`.
    pub fn dequant_grouped<'a, T: Float>(
        &self,
        stream: &Stream,
        w: GroupedView<'_>,
        y: impl Into<ViewMut<'a, T>>,
    ) -> Result<(), CudaError> {
        let y = y.into();
        same_len("y", y.len(), area("elements of y", &[w.inputs, w.outputs])?)?;
        self.here(y.context())?;
        let args = GroupedArgs { y: y.address(), ty: type_number(T::TYPE), ..w.arguments(self)? };
        let geometry = geometry::grouped_dequant(w.outputs, w.inputs);
        let kernel = (File::grouped, Name("dequant", w.name, ""));
        // SAFETY: checked here and by the view; `g_idx` is bounded by the kernel.
        unsafe { self.loader.launch(kernel, stream, geometry, &args) }
    }

    /// `Y = X W^T` for one to eight vectors of activations, which lie one behind the other, as do the results. All in
    /// f32.
    ///
    /// # Errors
    /// `Kernel` unless `x` has 1 to 8 whole vectors of `inputs`; `WrongSize` unless `y` has `outputs` for each;
    /// `OtherContext`, `Launch`.
    pub fn gemv_grouped<'a, T: Float>(
        &self,
        stream: &Stream,
        w: GroupedView<'_>,
        x: impl Into<View<'a, T>>,
        y: impl Into<ViewMut<'a, f32>>,
    ) -> Result<(), CudaError> {
        let (x, y) = (x.into(), y.into());
        let batch = super::check::rows(x.len(), w.inputs)?;
        if !(1..=8).contains(&batch) {
            return Err(bad("x", "1 to 8 vectors"));
        }
        same_len("y", y.len(), area("elements of y", &[batch, w.outputs])?)?;
        self.here(x.context())?;
        self.here(y.context())?;
        let args = GroupedArgs {
            x: x.address(),
            y: y.address(),
            batch: small("batch", batch)?,
            ty: type_number(T::TYPE),
            ..w.arguments(self)?
        };
        let (width, suffix) = if batch == 1 { (1, "n1") } else { (8, "n8") };
        let geometry = geometry::grouped_gemv(w.outputs, width);
        let kernel = (File::grouped, Name("gemv", w.name, suffix));
        // SAFETY: checked here and by the view; `g_idx` is bounded by the kernel.
        unsafe { self.loader.launch(kernel, stream, geometry, &args) }
    }

    /// `Y = X W^T` for any number of rows of activations, f16 or bf16, by tensor cores: weights are decoded to the type of `x` on
    /// the way to these. The result is that of [`dequant_grouped`](Self::dequant_grouped), turned, and [`gemm`](Self::gemm).
    ///
    /// # Errors
    /// Those of [`gemm`](Self::gemm), without those of `w`.
    pub fn gemm_grouped<'a, T: Float, U: Float>(
        &self,
        stream: &Stream,
        w: GroupedView<'_>,
        x: impl Into<View<'a, T>>,
        y: impl Into<ViewMut<'a, U>>,
    ) -> Result<(), CudaError> {
        let product = self.decoded_product((0, w.outputs, 0), (x.into(), w.inputs), &y.into())?;
        let geometry = geometry::gemm(product.m as usize, w.outputs, self.tile(), 1);
        let args = GroupedGemmArgs { product, weights: w.arguments(self)? };
        let kernel = (File::grouped, Name("gemm", w.name, T::TYPE.name()));
        // SAFETY: checked by the view and by `product`; `g_idx` is bounded by the kernel.
        unsafe { self.loader.launch(kernel, stream, geometry, &args) }
    }
}

pub(super) fn list(to: &mut dyn FnMut(File, Name, usize)) {
    for name in ["awq", "gptq1", "gptq2", "gptq3", "gptq4", "gptq8"] {
        for (op, n) in [("dequant", ""), ("gemv", "n1"), ("gemv", "n8")] {
            to(File::grouped, Name(op, name, n), size_of::<GroupedArgs>());
        }
        for ty in ["f16", "bf16"] {
            to(File::grouped, Name("gemm", name, ty), size_of::<GroupedGemmArgs>());
        }
    }
}
