//! The activation between the halves of a feed-forward network.

use gllm_kernels_core::KernelError;

use super::args::GateArgs;
use super::Forms;
use crate::cuda::check::{aligned, rows, same_len, small};
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
    /// How many rows.
    pub(crate) rows: usize,
    /// Rows of each, and how far one is from the next.
    pub(crate) x: [(View<'a, f32>, usize); 2],
    /// If experts have biases, the expert of each row, and the biases of all experts, one behind the other: of gates, and of what they are for.
    pub(crate) bias: Option<(View<'a, u32>, [View<'a, f32>; 2])>,
}

impl Ops {
    /// `activation(gate) * up`, or what else [`Gate`] says, of rows whose biases have been added before.
    pub(crate) fn decoder_gate(
        &self,
        stream: &Stream,
        how: Gated<'_>,
        to: Forms<'_>,
    ) -> Result<(), CudaError> {
        let Gated { gate, rows: m, x, bias } = how;
        for (x, stride) in x {
            let need = m.saturating_sub(1) * stride + to.cols;
            if stride < to.cols || !stride.is_multiple_of(4) || (m > 0 && x.len() < need) {
                return Err(CudaError::WrongSize { arg: "x", need, got: x.len() });
            }
            self.here(x.context())?;
            aligned("x", x.address())?;
        }
        let (mut experts, mut of_experts) = (0, [0; 2]);
        if let Some((expert_of, biases)) = bias {
            same_len("experts", expert_of.len(), m)?;
            self.here(expert_of.context())?;
            experts = expert_of.address();
            for (place, bias) in of_experts.iter_mut().zip(biases) {
                rows(bias.len(), to.cols)?;
                self.here(bias.context())?;
                aligned("bias", bias.address())?;
                *place = bias.address();
            }
        }
        let geometry = geometry::by_fours(m, to.cols);
        let args = GateArgs {
            gate: x[0].0.address(),
            up: x[1].0.address(),
            experts,
            bias: of_experts,
            out: to.args(self, m)?,
            strides: [small("stride", x[0].1)?, small("stride", x[1].1)?],
            activation: match gate {
                Gate::Silu => 0,
                Gate::GeluTanh => 1,
                Gate::ClampedSwiglu => 2,
                Gate::Gelu => {
                    let expected = "an activation that kernels of GPUs have";
                    return Err(KernelError::BadParameter { arg: "gate", expected }.into());
                }
            },
        };
        // SAFETY: the arguments were checked; whoever sorted rows by expert gave them experts that exist.
        unsafe { self.loader.launch(self.decoder("gate"), stream, geometry, &args) }
    }
}
