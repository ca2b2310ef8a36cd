//! Recurrent layers, and gates of attention.

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
use crate::model::{LinearAttention, Recurrence, Rule};

/// Elements of a head of keys, at most: four threads share a row of its state, with up to 32 numbers each. Of a head of values there may be as many rows.
pub(crate) const MAX_SIZE: usize = 128;
/// Rows of a prompt that a block of the convolution has.
const CONVOLVED_ROWS: usize = 4;
/// Tokens of a prompt that blocks of the rule have in shared memory at a time.
const RULE_TOKENS: usize = 16;

/// Tokens that a convolution reads, at most.
const MAX_TAPS: usize = 8;

#[derive(Clone, Copy)]
#[repr(C)]
struct LayerArgs {
    states: Address,
    tables: Address,
    sequences: Address,
    lengths: Address,
    starts: Address,
    rows: u32,
    table_rows: u32,
    table_len: u32,
    pages: u32,
    channels: u32,
    taps: u32,
    state: u32,
    factor: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct ConvolveArgs {
    layer: LayerArgs,
    x: Address,
    w: Address,
    bias: Address,
    y: Address,
    stride: u32,
    size: u32,
    key_heads: u32,
    activated: u32,
    rows: u32,
    eps: f32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct KeepArgs {
    layer: LayerArgs,
    x: Address,
    stride: u32,
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
    skip: Address,
    y: Address,
    decay_heads: u32,
    tiled: u32,
    key_heads: u32,
    value_heads: u32,
    key_size: u32,
    value_size: u32,
    stride: u32,
    strides: [u32; 2],
    tokens: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct GatesArgs {
    x: Address,
    rows: Address,
    gates: Address,
    norm: Address,
    norm_step: u32,
    kind: u32,
    out: FormsArgs,
    dim: u32,
    room: u32,
    step: u32,
    stride: u32,
    heads: u32,
    eps: f32,
}

// SAFETY: as in linear.cu.
unsafe impl Arguments for ConvolveArgs {}
// SAFETY: as in linear.cu.
unsafe impl Arguments for KeepArgs {}
// SAFETY: as in linear.cu.
unsafe impl Arguments for RuleArgs {}
// SAFETY: as in linear.cu.
unsafe impl Arguments for GatesArgs {}

/// Rows of numbers, and how far one is from the next.
pub(crate) type Strided<'a> = (View<'a, f32>, usize);

/// A recurrent layer, in a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecurrentLayer<'a> {
    pub(crate) of: &'a Recurrence,
    /// Of each sequence the page that is its state.
    pub(crate) tables: PageTables<'a>,
    pub(crate) rows: StepRows<'a>,
    /// Where rows of the same sequence begin, and behind them the number of rows; without, every row is of another sequence.
    pub(crate) starts: Option<View<'a, u32>>,
    /// Channels, as products left them; of a short convolution all that they gave.
    pub(crate) x: Strided<'a>,
}

impl RecurrentLayer<'_> {
    /// Of how many sequences there are rows.
    fn runs(&self) -> usize {
        self.starts.map_or(self.rows.lengths.len(), |starts| starts.len().saturating_sub(1))
    }
}

/// What the rule takes beside the results of the convolution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decays<'a> {
    /// The numbers `b` of each head of values, if there are any, and `a`.
    pub(crate) numbers: (Option<Strided<'a>>, Strided<'a>),
    pub(crate) bias: View<'a, f32>,
    pub(crate) rate: View<'a, f32>,
    /// Of each head the factor of its values in its results, if they have any there.
    pub(crate) skip: Option<View<'a, f32>>,
}

/// What becomes of numbers of heads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GateKind<'a> {
    /// Times the sigmoid of gates.
    Sigmoid,
    /// The norm of each head with this weight, times SiLU of gates.
    NormThenSilu(View<'a, f32>),
    /// The norm of what is times SiLU of gates, with a weight for each number of a row.
    SiluThenNorm(View<'a, f32>),
    /// Times gates.
    Times,
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
    pub(crate) kind: GateKind<'a>,
    /// What norms add to the mean of squares.
    pub(crate) eps: f32,
}

fn kernel(name: &'static str) -> (File, Name) {
    (File::linear, Name("linear", name, ""))
}

pub(super) fn list(to: &mut dyn FnMut(File, Name, usize)) {
    let all = [
        ("convolve", size_of::<ConvolveArgs>()),
        ("keep", size_of::<KeepArgs>()),
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

    fn layer_args(&self, states: &Buffer<f32>, layer: &RecurrentLayer<'_>) -> Result<LayerArgs, CudaError> {
        let m = layer.rows.lengths.len();
        same_len("sequences", layer.rows.sequences.len(), m)?;
        let contexts =
            [layer.rows.lengths.context(), layer.rows.sequences.context(), layer.tables.pages.context()];
        let starts = layer.starts.map(|starts| starts.context());
        for context in contexts.into_iter().chain([states.context()]).chain(starts) {
            self.here(context)?;
        }
        let (state, channels) = (layer.of.state(), layer.of.channels());
        let pages = super::check::rows(states.len(), state)?;
        let states = states.address();
        aligned("states", states)?;
        Ok(LayerArgs {
            states,
            tables: layer.tables.pages.address(),
            sequences: layer.rows.sequences.address(),
            lengths: layer.rows.lengths.address(),
            starts: layer.starts.map_or(0, |starts| starts.address()),
            rows: small("rows", m)?,
            table_rows: small("rows of tables", layer.tables.rows()?)?,
            table_len: small("numbers of a table", layer.tables.len)?,
            pages: small("states", pages)?,
            channels: small("channels", channels)?,
            taps: match layer.of.taps() {
                taps @ 2..=MAX_TAPS => small("taps", taps)?,
                _ => return Err(bad("taps", "2 to 8")),
            },
            state: small("numbers of a state", state)?,
            factor: match layer.of {
                Recurrence::Linear(_) => 0,
                Recurrence::Convolution(_) => small("channels", 2 * channels)?,
            },
        })
    }

    /// The channels of rows, and what else is convolved.
    fn channels(&self, layer: &RecurrentLayer<'_>) -> Result<(Address, u32), CudaError> {
        let cols = match layer.of {
            Recurrence::Linear(of) => of.channels(),
            Recurrence::Convolution(_) => layer.of.inputs(),
        };
        let stride = self.strided("x", layer.x, [layer.rows.lengths.len(), cols])?;
        Ok((layer.x.0.address(), stride))
    }

    /// The convolution of a layer's channels; of linear attention also SiLU, and the norms of queries and keys. Rows without a state give zeros.
    pub(crate) fn linear_convolve(
        &self,
        stream: &Stream,
        states: &Buffer<f32>,
        layer: RecurrentLayer<'_>,
        (w, bias, eps): (View<'_, f32>, Option<View<'_, f32>>, f32),
        y: ViewMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let args = self.layer_args(states, &layer)?;
        let (m, channels) = (layer.rows.lengths.len(), layer.of.channels());
        let (x, stride) = self.channels(&layer)?;
        same_len("w", w.len(), layer.of.taps() * channels)?;
        same_len("y", y.len(), area("channels", &[m, channels])?)?;
        self.here(w.context())?;
        self.here(y.context())?;
        if let Some(bias) = bias {
            same_len("bias", bias.len(), channels)?;
            self.here(bias.context())?;
        }
        let (size, key_heads, activated) = match layer.of {
            Recurrence::Linear(of) if of.key_size > MAX_SIZE => return Err(bad("size", "at most 128")),
            Recurrence::Linear(of) if of.normed_heads() > 0 => (of.key_size, of.key_heads, true),
            Recurrence::Linear(_) => (MAX_SIZE, 0, true),
            Recurrence::Convolution(_) => (MAX_SIZE, 0, false),
        };
        // Where every row is of another sequence, none has anything to do with the one before.
        let rows = if layer.starts.is_some() { CONVOLVED_ROWS } else { 1 };
        let args = ConvolveArgs {
            layer: args,
            x,
            w: w.address(),
            bias: bias.map_or(0, |bias| bias.address()),
            y: y.address(),
            stride,
            size: small("size", size)?,
            key_heads: small("heads of keys", key_heads)?,
            activated: activated.into(),
            rows: small("rows", rows)?,
            eps,
        };
        let geometry = geometry::heads(m.div_ceil(rows), channels.div_ceil(size), 0);
        // SAFETY: the arguments were checked; sequences and pages are checked by the kernel.
        unsafe { self.loader.launch(kernel("convolve"), stream, geometry, &args) }
    }

    /// Behind a short convolution: keeps what that of the next token reads, of all sequences that have rows.
    pub(crate) fn linear_keep(
        &self,
        stream: &Stream,
        states: &mut Buffer<f32>,
        layer: RecurrentLayer<'_>,
    ) -> Result<(), CudaError> {
        let args = self.layer_args(states, &layer)?;
        let (x, stride) = self.channels(&layer)?;
        let geometry = geometry::keep(layer.runs(), layer.of.channels());
        let args = KeepArgs { layer: args, x, stride };
        // SAFETY: the arguments were checked, and the states are borrowed alone; sequences and pages are checked by the kernel.
        unsafe { self.loader.launch(kernel("keep"), stream, geometry, &args) }
    }

    /// The rule of a layer, of what the convolution gave: changes the states of all sequences that have rows. Rows without a state give zeros.
    pub(crate) fn linear_rule(
        &self,
        stream: &Stream,
        states: &mut Buffer<f32>,
        layer: RecurrentLayer<'_>,
        (convolved, decays): (View<'_, f32>, Decays<'_>),
        y: ViewMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let args = self.layer_args(states, &layer)?;
        let Recurrence::Linear(of) = layer.of else {
            return Err(bad("layer", "one with linear attention"));
        };
        let LinearAttention { rule, key_heads, value_heads, key_size, value_size, tiled, .. } = *of;
        if key_size > MAX_SIZE || !key_size.is_multiple_of(4) {
            return Err(bad("size of keys", "a multiple of 4, and at most 128"));
        }
        if value_size > MAX_SIZE || !of.values().is_multiple_of(4) {
            return Err(bad("size of values", "at most 128, and that of all heads a multiple of 4"));
        }
        let (m, channels) = (layer.rows.lengths.len(), of.channels());
        same_len("convolved", convolved.len(), area("channels", &[m, channels])?)?;
        same_len("y", y.len(), area("values", &[m, of.values()])?)?;
        let (x, stride) = self.channels(&layer)?;
        let (decay_heads, last) = match rule {
            Rule::Delta { decay_heads } => (decay_heads, of.numbers() - decay_heads),
            Rule::StateSpace => (1, value_heads),
        };
        let (b, a) = decays.numbers;
        let b = match (rule, b) {
            (Rule::Delta { .. }, Some(b)) => (b.0.address(), self.strided("b", b, [m, last])?),
            (Rule::StateSpace, None) => (0, 0),
            _ => return Err(bad("b", "numbers for the delta rule alone")),
        };
        let strides = [b.1, self.strided("a", a, [m, last])?];
        if let Some(skip) = decays.skip {
            same_len("skip", skip.len(), value_heads)?;
            self.here(skip.context())?;
        }
        for (arg, view) in [("bias", decays.bias), ("rate", decays.rate)] {
            same_len(arg, view.len(), value_heads)?;
            self.here(view.context())?;
        }
        self.here(convolved.context())?;
        self.here(y.context())?;
        aligned("convolved", convolved.address())?;
        // Where every row is of another sequence, blocks have one token.
        let (runs, tokens) = (layer.runs(), if layer.starts.is_some() { RULE_TOKENS } else { 1 });
        let args = RuleArgs {
            layer: args,
            x,
            convolved: convolved.address(),
            b: b.0,
            a: a.0.address(),
            bias: decays.bias.address(),
            rate: decays.rate.address(),
            skip: decays.skip.map_or(0, |skip| skip.address()),
            y: y.address(),
            decay_heads: small("decay_heads", decay_heads)?,
            tiled: tiled.into(),
            key_heads: small("heads of keys", key_heads)?,
            value_heads: small("heads of values", value_heads)?,
            key_size: small("size of keys", key_size)?,
            value_size: small("size of values", value_size)?,
            stride,
            strides,
            tokens: small("tokens", tokens)?,
        };
        let geometry = geometry::rule(runs, (value_heads, value_size), tokens);
        // SAFETY: the arguments were checked, and the states are borrowed alone; sequences and pages are checked by the kernel.
        unsafe { self.loader.launch(kernel("rule"), stream, geometry, &args) }
    }

    /// Heads and their gates.
    pub(crate) fn linear_gates(
        &self,
        stream: &Stream,
        how: Gates<'_>,
        to: Forms<'_>,
    ) -> Result<(), CudaError> {
        let Gates { x, dim, room, rows, gates, step, kind, eps } = how;
        if dim == 0 || dim > room || dim > step || !to.cols.is_multiple_of(dim) {
            return Err(bad(
                "dim",
                "what the room and the gates of a head suffice for, and a divisor of the columns",
            ));
        }
        let heads = to.cols / dim;
        let all = super::check::rows(x.len(), area("elements of a row", &[heads, room])?)?;
        let stride = self.strided("gates", gates, [all, (heads - 1) * step + dim])?;
        let (kind, norm, norm_step) = match kind {
            GateKind::Sigmoid => (0, None, 0),
            GateKind::NormThenSilu(norm) => (1, Some(norm), 0),
            GateKind::SiluThenNorm(norm) => (2, Some(norm), dim),
            GateKind::Times => (3, None, 0),
        };
        if let Some(norm) = norm {
            same_len("norm", norm.len(), (heads - 1) * norm_step + dim)?;
            self.here(norm.context())?;
        }
        rows.map_or(Ok(()), |rows| self.here(rows.context()))?;
        self.here(x.context())?;
        let m = rows.map_or(all, |rows| rows.len());
        let together = geometry::heads_together(heads, dim);
        let args = GatesArgs {
            x: x.address(),
            rows: rows.map_or(0, |rows| rows.address()),
            gates: gates.0.address(),
            norm: norm.map_or(0, |norm| norm.address()),
            norm_step: small("dim", norm_step)?,
            kind,
            out: to.args(self, m)?,
            dim: small("dim", dim)?,
            room: small("room", room)?,
            step: small("step", step)?,
            stride,
            heads: small("heads", together)?,
            eps,
        };
        let geometry = geometry::gates(m, (heads, dim), together);
        // SAFETY: the arguments were checked; whoever makes the row numbers vouches that these rows exist.
        unsafe { self.loader.launch(kernel("gates"), stream, geometry, &args) }
    }
}
