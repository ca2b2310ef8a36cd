//! The activation between the halves of a feed-forward network.

use super::args::GateArgs;
use super::Forms;
use crate::cuda::check::{aligned, bad, rows, same_len, small};
use crate::cuda::error::CudaError;
use crate::cuda::geometry;
use crate::cuda::memory::View;
use crate::cuda::stream::Stream;
use crate::cuda::Ops;
use crate::model::Gate;

/// Gates and what they are for, as products left them.
#[derive(Debug)]
pub(crate) struct Gated<'a> {
    pub(crate) gate: Gate,
    /// The numbers of the activation, if that is [`Gate::Xielu`].
    pub(crate) numbers: Option<[f32; 2]>,
    /// How many rows.
    pub(crate) rows: usize,
    /// Rows of gates, and how far one is from the next.
    pub(crate) x: (View<'a, f32>, usize),
    /// The same of what they are for; without, that is 1.
    pub(crate) up: Option<(View<'a, f32>, usize)>,
    /// What is added to gates, and to what they are for, if anything: one row for all, or with `experts` those of all experts, one behind the other.
    pub(crate) bias: [Option<View<'a, f32>>; 2],
    /// The expert of each row, if rows are those of experts with biases.
    pub(crate) experts: Option<View<'a, u32>>,
}

impl Ops {
    /// `activation(gate) * up`, or what else [`Gate`] says, of rows with their biases.
    pub(crate) fn decoder_gate(
        &self,
        stream: &Stream,
        how: Gated<'_>,
        to: Forms<'_>,
    ) -> Result<(), CudaError> {
        let (m, cols) = (how.rows, to.cols);
        let place = |(x, stride): (View<'_, f32>, usize)| {
            let need = m.saturating_sub(1) * stride + cols;
            if stride < cols || !stride.is_multiple_of(4) || (m > 0 && x.len() < need) {
                return Err(CudaError::WrongSize { arg: "x", need, got: x.len() });
            }
            self.here(x.context())?;
            aligned("x", x.address())?;
            Ok((x.address(), small("stride", stride)?))
        };
        let bias = |bias: Option<View<'_, f32>>| {
            let Some(bias) = bias else { return Ok(0) };
            match how.experts {
                Some(_) => rows(bias.len(), cols).map(drop)?,
                None => same_len("bias", bias.len(), cols)?,
            }
            self.here(bias.context())?;
            aligned("bias", bias.address()).map(|()| bias.address())
        };
        if let Some(experts) = how.experts {
            same_len("experts", experts.len(), m)?;
            self.here(experts.context())?;
        }
        let (gate, stride) = place(how.x)?;
        let (up, up_stride) = how.up.map_or(Ok((0, 0)), place)?;
        let args = GateArgs {
            gate,
            up,
            experts: how.experts.map_or(0, |experts| experts.address()),
            bias: [bias(how.bias[0])?, bias(how.bias[1])?],
            out: to.args(self, m)?,
            strides: [stride, up_stride],
            activation: match how.gate {
                Gate::Silu => 0,
                Gate::GeluTanh => 1,
                Gate::ClampedSwiglu => 2,
                Gate::Gelu => 3,
                Gate::ReluSquared => 4,
                Gate::Xielu if how.numbers.is_some() => 5,
                Gate::Xielu => return Err(bad("numbers", "two, as the activation has them")),
            },
            numbers: how.numbers.unwrap_or_default(),
        };
        let geometry = geometry::fours(m, cols);
        // SAFETY: the arguments were checked; whoever sorted rows by expert gave them experts that exist.
        unsafe { self.loader.launch(self.decoder("gate"), stream, geometry, &args) }
    }
}
