//! Row by row: norms, softmax, rotation, lookup.

use gllm_kernels_core::{RopePairing, RopeShape, Softmax};

use super::check::{area, bad, rows, same_len, small};
use super::error::CudaError;
use super::geometry::{self, Geometry};
use super::kernels::{File, Name, TYPES};
use super::memory::{View, ViewMut};
use super::module::Arguments;
use super::stream::Stream;
use super::sys::Address;
use super::{Float, Ops};

#[derive(Clone, Copy)]
#[repr(C)]
struct NormArgs {
    x: Address,
    w: Address,
    b: Address,
    y: Address,
    cols: u32,
    eps: f32,
    aligned: u32,
    held: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct SoftmaxArgs {
    row: NormArgs,
    valid: u32,
    scale: f32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct RopeArgs {
    x: Address,
    y: Address,
    cos: Address,
    sin: Address,
    positions: Address,
    heads: u32,
    dim: u32,
    half: u32,
    adjacent: u32,
    table_rows: u32,
    tokens: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct EmbedArgs {
    table: Address,
    ids: Address,
    y: Address,
    rows: u32,
    cols: u32,
    aligned: u32,
}

// SAFETY: as in rows.cu.
unsafe impl Arguments for NormArgs {}
// SAFETY: as in rows.cu.
unsafe impl Arguments for SoftmaxArgs {}
// SAFETY: as in rows.cu.
unsafe impl Arguments for RopeArgs {}
// SAFETY: as in rows.cu.
unsafe impl Arguments for EmbedArgs {}

/// The weights of a norm, and what keeps its root from 0.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a, T: Float> {
    /// Factor of each column; all ones without.
    pub weight: Option<View<'a, T>>,
    /// Term of each column, of a layer norm; all zeros without.
    pub bias: Option<View<'a, T>>,
    /// Not negative.
    pub eps: f32,
}

impl Ops {
    /// The arguments of an operator on rows, and its geometry.
    fn by_row<T: Float>(
        &self,
        cols: usize,
        x: View<'_, T>,
        y: &ViewMut<'_, T>,
        extra: [(&'static str, Option<View<'_, T>>); 2],
    ) -> Result<(NormArgs, Geometry), CudaError> {
        same_len("x", x.len(), y.len())?;
        let n = rows(x.len(), cols)?;
        self.here(x.context())?;
        self.here(y.context())?;
        for (arg, view) in extra {
            if let Some(view) = view {
                same_len(arg, view.len(), cols)?;
                self.here(view.context())?;
            }
        }
        let bytes = cols * size_of::<T>();
        let [w, b] = extra.map(|(_, view)| view.map_or(0, |v| v.address()));
        let aligned = bytes.is_multiple_of(16) && (x.address() | y.address() | w | b).is_multiple_of(16);
        let (held, geometry) = geometry::by_row(n, bytes, aligned);
        let args = NormArgs {
            x: x.address(),
            w,
            b,
            y: y.address(),
            cols: small("cols", cols)?,
            eps: 0.0,
            aligned: aligned.into(),
            held: held.into(),
        };
        Ok((args, geometry))
    }

    fn norm<T: Float>(
        &self,
        name: &'static str,
        stream: &Stream,
        (cols, norm): (usize, Norm<'_, T>),
        x: View<'_, T>,
        y: ViewMut<'_, T>,
    ) -> Result<(), CudaError> {
        if !(norm.eps >= 0.0 && norm.eps.is_finite()) {
            return Err(bad("eps", "not negative, and finite"));
        }
        let (args, geometry) = self.by_row(cols, x, &y, [("weight", norm.weight), ("bias", norm.bias)])?;
        let kernel = (File::rows, Name(name, T::TYPE.name(), ""));
        // SAFETY: checked by `by_row`; views and buffers have their elements.
        unsafe { self.loader.launch(kernel, stream, geometry, &NormArgs { eps: norm.eps, ..args }) }
    }

    /// Of every row of `cols`: `y_i = x_i / sqrt(mean(x^2) + eps) * w_i`. In f32, narrowed once.
    ///
    /// # Errors
    /// `WrongSize` unless `x` and `y` have the same number of elements and the weight `cols`; `Kernel` if there are no
    /// whole rows, `eps` is no such number or there is a bias; `OtherContext`, `Launch`.
    pub fn rms_norm<'a, T: Float>(
        &self,
        stream: &Stream,
        cols: usize,
        norm: Norm<'_, T>,
        x: impl Into<View<'a, T>>,
        y: impl Into<ViewMut<'a, T>>,
    ) -> Result<(), CudaError> {
        if norm.bias.is_some() {
            return Err(bad("bias", "none in an RMS norm"));
        }
        self.norm("rms_norm", stream, (cols, norm), x.into(), y.into())
    }

    /// Of every row of `cols`: `y_i = (x_i - mean(x)) / sqrt(var(x) + eps) * w_i + b_i`. In f32, narrowed once.
    ///
    /// # Errors
    /// Those of [`rms_norm`](Self::rms_norm), with a bias of `cols`.
    pub fn layer_norm<'a, T: Float>(
        &self,
        stream: &Stream,
        cols: usize,
        norm: Norm<'_, T>,
        x: impl Into<View<'a, T>>,
        y: impl Into<ViewMut<'a, T>>,
    ) -> Result<(), CudaError> {
        self.norm("layer_norm", stream, (cols, norm), x.into(), y.into())
    }

    /// Softmax of the first `valid` elements, times `scale`, of every row of `cols`; zeros behind them. As the core's: -inf
    /// gives 0, a row of -inf alone zeros, a NaN or +inf makes the valid elements of its row NaN.
    ///
    /// # Errors
    /// `WrongSize` unless `x` and `y` have the same number of elements; `Kernel` if there are no whole rows, `valid > cols`
    /// or `scale` is not positive and finite; `OtherContext`, `Launch`.
    pub fn softmax<'a, T: Float>(
        &self,
        stream: &Stream,
        cols: usize,
        softmax: Softmax,
        x: impl Into<View<'a, T>>,
        y: impl Into<ViewMut<'a, T>>,
    ) -> Result<(), CudaError> {
        let valid = softmax.valid.unwrap_or(cols);
        if valid > cols {
            return Err(bad("valid", "at most cols"));
        }
        if !(softmax.scale > 0.0 && softmax.scale.is_finite()) {
            return Err(bad("scale", "positive and finite"));
        }
        let (row, geometry) = self.by_row(cols, x.into(), &y.into(), [("", None), ("", None)])?;
        let args = SoftmaxArgs { row, valid: small("valid", valid)?, scale: softmax.scale };
        let kernel = (File::rows, Name("softmax", T::TYPE.name(), ""));
        // SAFETY: checked by `by_row`; views and buffers have their elements.
        unsafe { self.loader.launch(kernel, stream, geometry, &args) }
    }

    /// Rotary position embedding: every pair `(a, b)` becomes `(a cos - b sin, a sin + b cos)`, elements from `rot_dim` on are
    /// copied. `cos` and `sin` are tables with `rot_dim / 2` columns; a token takes row `positions[t]`, or `t` without
    /// positions. A row that does not exist gives NaN.
    ///
    /// # Errors
    /// `WrongSize` unless `x` and `y` have the same number of elements, `cos` and `sin` too, and there is a position for
    /// each token, or a row; `Kernel` if there are no whole tokens or rows, or `rot_dim` is odd or above `head_dim`;
    /// `OtherContext`, `Launch`.
    pub fn rope<'a, T: Float>(
        &self,
        stream: &Stream,
        shape: RopeShape,
        (cos, sin): (View<'_, f32>, View<'_, f32>),
        positions: Option<View<'_, u32>>,
        x: impl Into<View<'a, T>>,
        y: impl Into<ViewMut<'a, T>>,
    ) -> Result<(), CudaError> {
        let (x, y) = (x.into(), y.into());
        let RopeShape { heads, head_dim, rot_dim, .. } = shape;
        if !rot_dim.is_multiple_of(2) || rot_dim > head_dim {
            return Err(bad("rot_dim", "even and at most head_dim"));
        }
        same_len("x", x.len(), y.len())?;
        let tokens = rows(x.len(), area("heads * head_dim", &[heads, head_dim])?)?;
        same_len("sin", sin.len(), cos.len())?;
        let table_rows = rows(cos.len(), rot_dim / 2)?;
        match positions {
            Some(p) => same_len("positions", p.len(), tokens)?,
            None if rot_dim > 0 && table_rows < tokens => {
                return Err(CudaError::WrongSize { arg: "cos", need: tokens * rot_dim / 2, got: cos.len() })
            }
            None => {}
        }
        self.here(x.context())?;
        self.here(y.context())?;
        self.here(cos.context())?;
        self.here(sin.context())?;
        positions.map_or(Ok(()), |p| self.here(p.context()))?;
        small("heads * head_dim", heads * head_dim)?;
        let args = RopeArgs {
            x: x.address(),
            y: y.address(),
            cos: cos.address(),
            sin: sin.address(),
            positions: positions.map_or(0, |p| p.address()),
            heads: small("heads", heads)?,
            dim: small("head_dim", head_dim)?,
            half: small("rot_dim", rot_dim)? / 2,
            adjacent: (shape.pairing == RopePairing::Adjacent).into(),
            table_rows: small("rows of cos", table_rows)?,
            tokens: tokens as u64,
        };
        let geometry = geometry::rope(heads, (head_dim, rot_dim), tokens);
        let kernel = (File::rows, Name("rope", T::TYPE.name(), ""));
        // SAFETY: the arguments were checked; views and buffers have their elements.
        unsafe { self.loader.launch(kernel, stream, geometry, &args) }
    }

    /// Row `ids[t]` of a table with `cols` columns, for each `t`. A row that does not exist gives NaN.
    ///
    /// # Errors
    /// `WrongSize` unless `y` has `cols` elements for each of `ids`; `Kernel` if the table has no whole rows;
    /// `OtherContext`, `Launch`.
    pub fn embed<'a, T: Float>(
        &self,
        stream: &Stream,
        (table, cols): (impl Into<View<'a, T>>, usize),
        ids: View<'_, u32>,
        y: impl Into<ViewMut<'a, T>>,
    ) -> Result<(), CudaError> {
        let (table, y) = (table.into(), y.into());
        let n = rows(table.len(), cols)?;
        same_len("y", y.len(), area("elements of y", &[ids.len(), cols])?)?;
        self.here(table.context())?;
        self.here(ids.context())?;
        self.here(y.context())?;
        let aligned =
            (cols * size_of::<T>()).is_multiple_of(16) && (table.address() | y.address()).is_multiple_of(16);
        let args = EmbedArgs {
            table: table.address(),
            ids: ids.address(),
            y: y.address(),
            rows: small("rows", n)?,
            cols: small("cols", cols)?,
            aligned: aligned.into(),
        };
        let kernel = (File::rows, Name("embed", T::TYPE.name(), ""));
        let geometry = geometry::embed(ids.len(), cols);
        // SAFETY: the arguments were checked; ids are checked by the kernel.
        unsafe { self.loader.launch(kernel, stream, geometry, &args) }
    }
}

pub(super) fn list(to: &mut dyn FnMut(File, Name, usize)) {
    for ty in TYPES {
        to(File::rows, Name("rms_norm", ty, ""), size_of::<NormArgs>());
        to(File::rows, Name("layer_norm", ty, ""), size_of::<NormArgs>());
        to(File::rows, Name("softmax", ty, ""), size_of::<SoftmaxArgs>());
        to(File::rows, Name("rope", ty, ""), size_of::<RopeArgs>());
        to(File::rows, Name("embed", ty, ""), size_of::<EmbedArgs>());
    }
}
