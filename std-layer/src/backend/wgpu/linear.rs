//! Linear attention in a step: the convolution, the gated delta rule, and the norm behind it.

use wgpu::Buffer;

use super::shaders::{Shader, DELTA_ROWS};
use super::step::{no_room, Dispatch, Place, Recorder, NO_LOGITS};
use crate::backend::tensors::LinearVectors;
use crate::backend::{BackendError, Slot};
use crate::model::LinearAttention;

impl<'a> Recorder<'a> {
    /// What a layer has for linear attention, if it has that.
    pub(super) fn linear_of(&self, layer: usize) -> Option<(LinearAttention, &'a LinearVectors<Buffer>)> {
        let of = self.weights.config.linear_attention_of(layer)?;
        self.weights.tensors.linear_attention(layer).map(|vectors| (*of, vectors))
    }

    /// A layer's states, the table of the step, and the results of convolutions; where in the table numbers of states are, and how far apart; and where ends of
    /// runs are.
    fn linear_room(&self, layer: usize) -> Result<([Buffer; 3], [u32; 3]), BackendError> {
        let arena = self.arena()?;
        let room = arena.linear.as_ref().ok_or_else(no_room)?;
        let buffers = [&self.kv.memory[layer], &arena.table.buffer, &room.convolved].map(Buffer::clone);
        let places = [arena.table_at(self.kv.group_of[layer]), arena.table_len, arena.run_ends_at()];
        Ok((buffers, places.map(|n| n as u32)))
    }

    /// An operation of a layer, whose buffers are numbered one after the other.
    fn run_in(
        &mut self,
        layer: usize,
        shader: Shader,
        (buffers, constants): (&[&Buffer], &[u32]),
        [x, y]: [usize; 2],
    ) -> Result<(), BackendError> {
        let numbered: Vec<_> = (0..).zip(buffers.iter().copied()).collect();
        self.run(Dispatch {
            shader,
            place: Place::Layer(layer),
            part: 0,
            logits: NO_LOGITS,
            buffers: &numbered,
            constants: (buffers.len() as u32, constants),
            groups: [x, y, 1],
        })
    }

    /// The convolution of a layer. The inputs that it reads of tokens before the step are kept until [`delta_rule`](Self::delta_rule).
    pub(super) fn convolve(
        &mut self,
        layer: usize,
        (of, vectors): (LinearAttention, &LinearVectors<Buffer>),
    ) -> Result<(), BackendError> {
        let (inputs, stride) = self.slot(Slot::Heads)?;
        let ([states, table, convolved], [table_at, table_len, run_ends_at]) = self.linear_room(layer)?;
        let (eps, runs_at) = (self.weights.config.norm_eps.to_bits(), self.arena()?.runs_at() as u32);
        let buffers = [&inputs, &states, &table, &vectors.convolution, &convolved];
        let constants = [stride, eps, runs_at, table_at, table_len, run_ends_at];
        let heads = 2 * of.key_heads + of.value_heads;
        self.run_in(layer, Shader::Convolve { of }, (&buffers, &constants), [heads, self.rows])
    }

    /// The gated delta rule of a layer, which changes the states of all sequences of the step; and the norm of what it gives.
    pub(super) fn delta_rule(
        &mut self,
        layer: usize,
        (of, vectors): (LinearAttention, &LinearVectors<Buffer>),
    ) -> Result<(), BackendError> {
        let [(inputs, stride), (mixed, mixed_stride)] = [self.slot(Slot::Heads)?, self.slot(Slot::Mixed)?];
        let ([states, table, convolved], [table_at, table_len, run_ends_at]) = self.linear_room(layer)?;
        let LinearVectors { decay_bias, rate, norm, .. } = vectors;
        let buffers = [&inputs, &states, &table, &convolved, decay_bias, rate, &mixed];
        let constants = [stride, mixed_stride, table_at, table_len, run_ends_at];
        let blocks = of.value_heads * of.size.div_ceil(DELTA_ROWS as usize);
        self.run_in(layer, Shader::Delta { of }, (&buffers, &constants), [blocks, self.runs])?;
        let constants = [stride, mixed_stride, self.weights.config.norm_eps.to_bits()];
        let buffers = [&inputs, &mixed, norm];
        self.run_in(layer, Shader::DeltaNorm { of }, (&buffers, &constants), [of.value_heads, self.rows])
    }
}
