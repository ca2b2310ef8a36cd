//! Linear attention by the gated delta rule, and gates of attention.

use super::attention::PageTables;
use super::check::{aligned, area, bad, same_len, small};
use super::decoder::{Forms, FormsArgs, StepRows};
use super::error::CudaError;
use super::geometry;
use super::kernels::{File, Name};
use super::memory::{Buffer, View, ViewMut};
use super::module::Arguments;
use super::stream::Stream;
use super::sys::Address;
use super::Ops;
use crate::model::LinearAttention;

/// Elements of a head, at most: four threads share a row of its state, with up to 32 numbers each.
pub(crate) const MAX_SIZE: usize = 128;

#[derive(Clone, Copy)]
#[repr(C)]
struct LayerArgs {
    states: Address,
    tables: Address,
    sequences: Address,
    lengths: Address,
    rows: u32,
    table_rows: u32,
    table_len: u32,
    pages: u32,
    key_heads: u32,
    value_heads: u32,
    size: u32,
    taps: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct ConvolveArgs {
    layer: LayerArgs,
    x: Address,
    w: Address,
    y: Address,
    stride: u32,
    eps: f32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct RuleArgs {
    layer: LayerArgs,
    x: Address,
    convolved: Address,
    b: Address,
    a: Address,
    bias: Address,
    rate: Address,
    y: Address,
    decay_heads: u32,
    tiled: u32,
    stride: u32,
    strides: [u32; 2],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct GatesArgs {
    x: Address,
    rows: Address,
    gates: Address,
    norm: Address,
    out: FormsArgs,
    dim: u32,
    room: u32,
    step: u32,
    stride: u32,
    eps: f32,
}

// SAFETY: as in linear.cu.
unsafe impl Arguments for ConvolveArgs {}
// SAFETY: as in linear.cu.
unsafe impl Arguments for RuleArgs {}
// SAFETY: as in linear.cu.
unsafe impl Arguments for GatesArgs {}

/// Rows of numbers, and how far one is from the next.
pub(crate) type Strided<'a> = (View<'a, f32>, usize);

/// A layer with linear attention, in a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinearLayer<'a> {
    pub(crate) of: &'a LinearAttention,
    /// Of each sequence the page that is its state.
    pub(crate) tables: PageTables<'a>,
    pub(crate) rows: StepRows<'a>,
    /// Channels, as products left them.
    pub(crate) x: Strided<'a>,
}

/// What the rule takes beside the results of the convolution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decays<'a> {
    /// The numbers `b` of each head of values, and `a`.
    pub(crate) numbers: [Strided<'a>; 2],
    pub(crate) bias: View<'a, f32>,
    pub(crate) rate: View<'a, f32>,
}

/// Heads whose numbers are multiplied by gates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gates<'a> {
    /// Heads of rows, in room for `room` elements each, of which `dim` go on.
    pub(crate) x: View<'a, f32>,
    pub(crate) dim: usize,
    pub(crate) room: usize,
    /// Which rows go on; without, all.
    pub(crate) rows: Option<View<'a, u32>>,
    /// Gates of the same rows, and how far those of a head are behind those of the head before.
    pub(crate) gates: Strided<'a>,
    pub(crate) step: usize,
    /// The weight of the norm of each head, if it is normed, and what that adds to the mean of squares.
    pub(crate) norm: Option<View<'a, f32>>,
    pub(crate) eps: f32,
}

fn kernel(name: &'static str) -> (File, Name) {
    (File::linear, Name("linear", name, ""))
}

pub(super) fn list(to: &mut dyn FnMut(File, Name, usize)) {
    let all = [
        ("convolve", size_of::<ConvolveArgs>()),
        ("rule", size_of::<RuleArgs>()),
        ("gates", size_of::<GatesArgs>()),
    ];
    for (name, bytes) in all {
        let (file, name) = kernel(name);
        to(file, name, bytes);
    }
}

impl Ops {
    /// Checks that there are `m` rows of `cols` numbers.
    fn strided(
        &self,
        arg: &'static str,
        (x, stride): Strided<'_>,
        [m, cols]: [usize; 2],
    ) -> Result<u32, CudaError> {
        let need = m.saturating_sub(1) * stride + cols;
        if stride < cols || (m > 0 && x.len() < need) {
            return Err(CudaError::WrongSize { arg, need, got: x.len() });
        }
        self.here(x.context())?;
        small("stride", stride)
    }

    fn layer_args(&self, states: &Buffer<f32>, layer: &LinearLayer<'_>) -> Result<LayerArgs, CudaError> {
        let LinearAttention { key_heads, value_heads, size, taps, .. } = *layer.of;
        if size > MAX_SIZE || !size.is_multiple_of(4) {
            return Err(bad("size", "a multiple of 4, and at most 128"));
        }
        let m = layer.rows.lengths.len();
        same_len("sequences", layer.rows.sequences.len(), m)?;
        let contexts =
            [layer.rows.lengths.context(), layer.rows.sequences.context(), layer.tables.pages.context()];
        for context in contexts.into_iter().chain([states.context()]) {
            self.here(context)?;
        }
        let pages = super::check::rows(states.len(), layer.of.state())?;
        let states = states.address();
        aligned("states", states)?;
        Ok(LayerArgs {
            states,
            tables: layer.tables.pages.address(),
            sequences: layer.rows.sequences.address(),
            lengths: layer.rows.lengths.address(),
            rows: small("rows", m)?,
            table_rows: small("rows of tables", layer.tables.rows()?)?,
            table_len: small("numbers of a table", layer.tables.len)?,
            pages: small("states", pages)?,
            key_heads: small("heads of keys", key_heads)?,
            value_heads: small("heads of values", value_heads)?,
            size: small("size", size)?,
            taps: small("taps", taps)?,
        })
    }

    /// The convolution of a layer's channels, and the norms of its queries and keys. Rows without a state give zeros.
    pub(crate) fn linear_convolve(
        &self,
        stream: &Stream,
        states: &Buffer<f32>,
        layer: LinearLayer<'_>,
        (w, eps): (View<'_, f32>, f32),
        y: ViewMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let args = self.layer_args(states, &layer)?;
        let (m, channels) = (layer.rows.lengths.len(), layer.of.channels());
        let stride = self.strided("x", layer.x, [m, channels])?;
        same_len("w", w.len(), layer.of.taps * channels)?;
        same_len("y", y.len(), area("channels", &[m, channels])?)?;
        self.here(w.context())?;
        self.here(y.context())?;
        let x = layer.x.0.address();
        let args = ConvolveArgs { layer: args, x, w: w.address(), y: y.address(), stride, eps };
        let geometry = geometry::heads(m, channels / layer.of.size, 0);
        // SAFETY: the arguments were checked; sequences and pages are checked by the kernel.
        unsafe { self.loader.launch(kernel("convolve"), stream, geometry, &args) }
    }

    /// The rule of a layer, of what the convolution gave: changes the states of all sequences that have rows. Rows without a state give zeros.
    pub(crate) fn linear_rule(
        &self,
        stream: &Stream,
        states: &mut Buffer<f32>,
        layer: LinearLayer<'_>,
        (convolved, decays): (View<'_, f32>, Decays<'_>),
        y: ViewMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let args = self.layer_args(states, &layer)?;
        let LinearAttention { value_heads, size, decay_heads, tiled, .. } = *layer.of;
        let (m, channels) = (layer.rows.lengths.len(), layer.of.channels());
        same_len("convolved", convolved.len(), area("channels", &[m, channels])?)?;
        same_len("y", y.len(), area("values", &[m, layer.of.values()])?)?;
        let stride = self.strided("x", layer.x, [m, channels])?;
        // The last numbers that a head looks at.
        let cols = layer.of.decay_of(value_heads - 1)[0] + 1;
        let [b, a] = decays.numbers;
        let strides = [self.strided("b", b, [m, cols])?, self.strided("a", a, [m, cols])?];
        for (arg, view) in [("bias", decays.bias), ("rate", decays.rate)] {
            same_len(arg, view.len(), value_heads)?;
            self.here(view.context())?;
        }
        self.here(convolved.context())?;
        self.here(y.context())?;
        let x = layer.x.0.address();
        aligned("convolved", convolved.address())?;
        let args = RuleArgs {
            layer: args,
            x,
            convolved: convolved.address(),
            b: b.0.address(),
            a: a.0.address(),
            bias: decays.bias.address(),
            rate: decays.rate.address(),
            y: y.address(),
            decay_heads: small("decay_heads", decay_heads)?,
            tiled: tiled.into(),
            stride,
            strides,
        };
        let geometry = geometry::rule(m, value_heads, size);
        // SAFETY: the arguments were checked, and the states are borrowed alone; sequences and pages are checked by the kernel.
        unsafe { self.loader.launch(kernel("rule"), stream, geometry, &args) }
    }

    /// Heads times the sigmoid of their gates; of heads that are normed, times the gates, too.
    pub(crate) fn linear_gates(
        &self,
        stream: &Stream,
        how: Gates<'_>,
        to: Forms<'_>,
    ) -> Result<(), CudaError> {
        let Gates { x, dim, room, rows, gates, step, norm, eps } = how;
        if dim == 0 || dim > room || dim > step || !to.cols.is_multiple_of(dim) {
            return Err(bad(
                "dim",
                "what the room and the gates of a head suffice for, and a divisor of the columns",
            ));
        }
        let heads = to.cols / dim;
        let all = super::check::rows(x.len(), area("elements of a row", &[heads, room])?)?;
        let stride = self.strided("gates", gates, [all, (heads - 1) * step + dim])?;
        if let Some(norm) = norm {
            same_len("norm", norm.len(), dim)?;
            self.here(norm.context())?;
        }
        rows.map_or(Ok(()), |rows| self.here(rows.context()))?;
        self.here(x.context())?;
        let (m, cols) = (rows.map_or(all, |rows| rows.len()), to.cols);
        let args = GatesArgs {
            x: x.address(),
            rows: rows.map_or(0, |rows| rows.address()),
            gates: gates.0.address(),
            norm: norm.map_or(0, |norm| norm.address()),
            out: to.args(self, m)?,
            dim: small("dim", dim)?,
            room: small("room", room)?,
            step: small("step", step)?,
            stride,
            eps,
        };
        let geometry = geometry::gates(m, cols, heads);
        // SAFETY: the arguments were checked; whoever makes the row numbers vouches that these rows exist.
        unsafe { self.loader.launch(kernel("gates"), stream, geometry, &args) }
    }
}
