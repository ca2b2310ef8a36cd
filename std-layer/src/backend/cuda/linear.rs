//! Linear attention of a step on a GPU, and gates of attention.

use super::arena::{Place, Wanted};
use super::layout::Access;
use super::step::Lowering;
use crate::backend::{BackendError, Linear, Slot};
use crate::cuda::linear::{Decays, Gates, LinearLayer, Strided};
use crate::cuda::{CudaError, PageTables};
use crate::model::LinearAttention;

/// Which members of a layer's product are its gates; behind them come the numbers `b` and `a`, apart or together.
const GATES: usize = 3;

impl<'a> Lowering<'a> {
    /// Linear attention up to the results of its rule, which go to `Mixed`.
    pub(super) fn linear_attention(
        &mut self,
        layer: usize,
        of: &'a LinearAttention,
    ) -> Result<(), BackendError> {
        let (weights, m) = (self.weights, self.m);
        let missing = || BackendError::Unsupported("linear attention in a layer that has none".to_owned());
        let vectors = weights.tensors.linear_attention(layer).ok_or_else(missing)?;
        let product = weights.tensors.linear(Linear::Qkv(layer));
        let width = Slot::Heads.width_in(&weights.config, layer);
        let [channels, values] = [of.channels(), of.values()].map(|n| m * n);
        self.size(Place::Queries, channels, 4);
        self.size(Place::Mixed, values, 4);
        let uses =
            [(Place::Heads, Access::Read), (Place::Queries, Access::Write), (Place::Mixed, Access::Write)];
        self.launch(&uses, |memory, layout, gpu| {
            let all = memory.floats(layout, Place::Heads, 0, m * width)?.into_view();
            let part = |member: usize| {
                let (from, stride) = product.member(member, m);
                Ok::<Strided<'_>, CudaError>((all.range(from..all.len())?, stride))
            };
            let b = part(GATES + 1)?;
            let a = match product.members.len() {
                // Of heads of values that belong to the same head of keys these numbers follow each other.
                5 => (b.0.range(of.decay_heads..b.0.len())?, b.1),
                _ => part(GATES + 2)?,
            };
            let group = memory.group_of[layer];
            let tables = PageTables { pages: memory.tables[group], len: memory.table_len };
            let how = LinearLayer { of, tables, rows: memory.rows, x: part(0)? };
            let convolved = || memory.floats(layout, Place::Queries, 0, channels);
            let (to, y) = (convolved()?, memory.floats(layout, Place::Mixed, 0, values)?);
            let convolution = (vectors.convolution.view(), weights.config.norm_eps);
            let decays =
                Decays { numbers: [b, a], bias: vectors.decay_bias.view(), rate: vectors.rate.view() };
            let from = convolved()?.into_view();
            let states = memory.layers[layer].states_mut()?;
            gpu.ops.linear_convolve(&gpu.stream, states, how, convolution, to)?;
            gpu.ops.linear_rule(&gpu.stream, states, how, (from, decays), y)
        })
    }

    /// What [`linear_attention`](Self::linear_attention) has left in `Mixed`, normed and gated.
    pub(super) fn linear_gates(
        &mut self,
        (layer, of): (usize, &'a LinearAttention),
        wanted: Wanted,
        [inputs, half]: [(Place, Access); 2],
    ) -> Result<(), BackendError> {
        let (weights, all) = (self.weights, self.rows.rows);
        let some = self.m < all;
        let norm = weights.tensors.linear_attention(layer).map(|vectors| vectors.norm.view());
        let width = Slot::Heads.width_in(&weights.config, layer);
        let (first, stride) = weights.tensors.linear(Linear::Qkv(layer)).member(GATES, all);
        let m = self.m;
        let uses = [(Place::Heads, Access::Read), (Place::Mixed, Access::Read), inputs, half];
        self.launch(&uses, |memory, layout, gpu| {
            let heads = memory.floats(layout, Place::Heads, 0, all * width)?.into_view();
            let how = Gates {
                x: memory.floats(layout, Place::Mixed, 0, all * of.values())?.into_view(),
                dim: of.size,
                room: of.size,
                rows: some.then_some(memory.outputs),
                gates: (heads.range(first..heads.len())?, stride),
                step: of.size,
                norm,
                eps: weights.config.norm_eps,
            };
            let forms = memory.forms(layout, wanted, m)?;
            gpu.ops.linear_gates(&gpu.stream, how, forms)
        })
    }
}
