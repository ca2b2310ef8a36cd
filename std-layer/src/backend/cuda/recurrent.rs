//! Recurrent layers of a step on a GPU.

use super::arena::{Place, Wanted};
use super::layout::Access;
use super::step::Lowering;
use crate::backend::{BackendError, Linear, Slot};
use crate::cuda::linear::{Decays, GateKind, Gates, RecurrentLayer, Strided};
use crate::cuda::{Buffer, CudaError, PageTables};
use crate::model::{Recurrence, Rule};

/// Which members of a layer's product are the gates of linear attention, behind which come the numbers `b`, if there are any, and `a`, apart or together; and those of a short
/// convolution that are applied to its results.
const GATES: usize = 3;
const LATE_GATES: usize = 1;

impl<'a> Lowering<'a> {
    /// What a recurrent layer computes up to its gates, which goes to `Mixed`.
    pub(super) fn recurrence(&mut self, layer: usize, of: &'a Recurrence) -> Result<(), BackendError> {
        let (weights, m) = (self.weights, self.m);
        let vectors = weights.tensors.recurrent(layer)?;
        let product = weights.tensors.linear(Linear::Qkv(layer));
        let width = Slot::Heads.width_in(&weights.config, layer);
        let [channels, outputs] = [of.channels(), of.outputs()].map(|n| m * n);
        let linear = match of {
            Recurrence::Linear(of) => Some((of, weights.tensors.linear_attention(layer)?)),
            Recurrence::Convolution(_) => None,
        };
        // Behind a short convolution there is nothing but gates.
        let convolved = if linear.is_some() { Place::Queries } else { Place::Mixed };
        self.size(convolved, channels, 4);
        self.size(Place::Mixed, outputs, 4);
        let uses = [(Place::Heads, Access::Read), (convolved, Access::Write), (Place::Mixed, Access::Write)];
        // None in a recorded step, where every run has one row.
        let runs = self.rows.runs.len();
        self.launch(&uses, |memory, layout, gpu| {
            let all = memory.floats(layout, Place::Heads, 0, m * width)?.into_view();
            let part = |member: usize| {
                let (from, stride) = product.member(member, m);
                Ok::<Strided<'_>, CudaError>((all.range(from..all.len())?, stride))
            };
            let group = memory.group_of[layer];
            let tables = PageTables { pages: memory.tables[group], len: memory.table_len };
            let starts = (runs > 0).then(|| memory.starts.range(0..runs + 1)).transpose()?;
            let how = RecurrentLayer { of, tables, rows: memory.rows, starts, x: part(0)? };
            let floats = |place, n| memory.floats(layout, place, 0, n);
            let (to, from) = (floats(convolved, channels)?, floats(convolved, channels)?.into_view());
            let y = floats(Place::Mixed, outputs)?;
            let bias = vectors.convolution_bias.as_ref().map(Buffer::view);
            let convolution = (vectors.convolution.view(), bias, weights.config.state_eps);
            let states = memory.layers[layer].states_mut()?;
            gpu.ops.linear_convolve(&gpu.stream, states, how, convolution, to)?;
            let Some((of, vectors)) = linear else { return gpu.ops.linear_keep(&gpu.stream, states, how) };
            let first = part(GATES + 1)?;
            let numbers = match of.rule {
                // Of heads of values that belong to the same head of keys these numbers follow each other.
                Rule::Delta { decay_heads } if product.members.len() == GATES + 2 => {
                    (Some(first), (first.0.range(decay_heads..first.0.len())?, first.1))
                }
                Rule::Delta { .. } => (Some(first), part(GATES + 2)?),
                Rule::StateSpace => (None, first),
            };
            let (bias, rate) = (vectors.decay_bias.view(), vectors.rate.view());
            let decays = Decays { numbers, bias, rate, skip: vectors.skip.as_ref().map(Buffer::view) };
            gpu.ops.linear_rule(&gpu.stream, states, how, (from, decays), y)
        })
    }

    /// What [`recurrence`](Self::recurrence) has left in `Mixed`, with its gates.
    pub(super) fn recurrent_gates(
        &mut self,
        (layer, of): (usize, &'a Recurrence),
        wanted: Wanted,
        [inputs, half]: [(Place, Access); 2],
    ) -> Result<(), BackendError> {
        let (weights, all) = (self.weights, self.rows.rows);
        let some = self.m < all;
        let (member, dim, kind) = match of {
            Recurrence::Linear(of) => {
                let norm = weights.tensors.linear_attention(layer)?.norm.view();
                let kind = match of.rule {
                    Rule::Delta { .. } => GateKind::NormThenSilu(norm),
                    Rule::StateSpace => GateKind::SiluThenNorm(norm),
                };
                (GATES, of.normed_together(), kind)
            }
            Recurrence::Convolution(of) => (LATE_GATES, of.channels, GateKind::Times),
        };
        let width = Slot::Heads.width_in(&weights.config, layer);
        let (first, stride) = weights.tensors.linear(Linear::Qkv(layer)).member(member, all);
        let m = self.m;
        let uses = [(Place::Heads, Access::Read), (Place::Mixed, Access::Read), inputs, half];
        self.launch(&uses, |memory, layout, gpu| {
            let heads = memory.floats(layout, Place::Heads, 0, all * width)?.into_view();
            let how = Gates {
                x: memory.floats(layout, Place::Mixed, 0, all * of.outputs())?.into_view(),
                dim,
                room: dim,
                rows: some.then_some(memory.outputs),
                gates: (heads.range(first..heads.len())?, stride),
                step: dim,
                kind,
                eps: weights.config.state_eps,
            };
            let forms = memory.forms(layout, wanted, m)?;
            gpu.ops.linear_gates(&gpu.stream, how, forms)
        })
    }
}
