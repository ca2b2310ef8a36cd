//! Recurrent layers of a step: the convolution; of linear attention the gated delta rule, and the norm behind it.

use wgpu::Buffer;

use super::shaders::{Shader, THREADS};
use super::shapes::{DELTA_ROWS, PIECE};
use super::step::{no_room, Dispatch, Place, Recorder, NO_LOGITS};
use crate::backend::tensors::{LinearVectors, RecurrentVectors};
use crate::backend::{BackendError, Slot};
use crate::model::{LinearAttention, Recurrence};

impl<'a> Recorder<'a> {
    /// A layer's states, the table of the step, and the results of convolutions; where in the table numbers of states are, and how far apart; and where ends of
    /// runs are.
    fn recurrent_room(&self, layer: usize) -> Result<([Buffer; 3], [u32; 3]), BackendError> {
        let arena = self.arena()?;
        let room = arena.recurrent.as_ref().ok_or_else(no_room)?;
        let buffers = [&self.kv.memory[layer], &arena.table.buffer, &room.convolved].map(Buffer::clone);
        let places = [arena.table_at(self.kv.group_of[layer]), arena.table_len, arena.run_ends_at()];
        Ok((buffers, places.map(|n| n as u32)))
    }

    /// An operation of a layer, whose buffers are numbered one after the other, then its constants, and then a buffer that not every layer has.
    fn run_in(
        &mut self,
        layer: usize,
        shader: Shader,
        (buffers, behind, constants): (&[&Buffer], Option<&Buffer>, &[u32]),
        [x, y]: [usize; 2],
    ) -> Result<(), BackendError> {
        let mut numbered: Vec<_> = (0..).zip(buffers.iter().copied()).collect();
        numbered.extend(behind.map(|buffer| (buffers.len() as u32 + 1, buffer)));
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

    /// The convolution of a layer. The inputs that it reads of tokens before the step are kept until [`delta_rule`](Self::delta_rule), if that follows.
    pub(super) fn convolve(&mut self, layer: usize, of: Recurrence) -> Result<(), BackendError> {
        let RecurrentVectors { convolution, convolution_bias, .. } = self.weights.tensors.recurrent(layer)?;
        let [(inputs, stride), (mixed, mixed_stride)] = [self.slot(Slot::Heads)?, self.slot(Slot::Mixed)?];
        let ([states, table, convolved], [table_at, table_len, run_ends_at]) = self.recurrent_room(layer)?;
        let (eps, runs_at) = (self.weights.config.state_eps.to_bits(), self.arena()?.runs_at() as u32);
        let (to, to_stride, heads) = match of {
            Recurrence::Linear(of) if of.normed_heads() > 0 => {
                (&convolved, of.channels() as u32, of.channels() / of.key_size)
            }
            Recurrence::Linear(of) => {
                (&convolved, of.channels() as u32, of.channels().div_ceil(PIECE as usize))
            }
            Recurrence::Convolution(of) => (&mixed, mixed_stride, of.channels.div_ceil(PIECE as usize)),
        };
        let buffers = [&inputs, &states, &table, convolution, to];
        let constants = [stride, eps, runs_at, table_at, table_len, run_ends_at, to_stride];
        let shader = Shader::Convolve { of, bias: convolution_bias.is_some() };
        let operands = (&buffers[..], convolution_bias.as_ref(), &constants[..]);
        self.run_in(layer, shader, operands, [heads, self.rows])?;
        let Recurrence::Convolution(conv) = of else { return Ok(()) };
        let (buffers, constants) = ([&inputs, &states, &table], [stride, table_at, table_len, run_ends_at]);
        let groups = [conv.channels.div_ceil(THREADS), self.runs];
        self.run_in(layer, Shader::Keep { of }, (&buffers, None, &constants), groups)
    }

    /// The gated delta rule of a layer, which changes the states of all sequences of the step; and the norm of what it gives.
    pub(super) fn delta_rule(&mut self, layer: usize, of: LinearAttention) -> Result<(), BackendError> {
        let LinearVectors { decay_bias, rate, norm, skip } = self.weights.tensors.linear_attention(layer)?;
        let [(inputs, stride), (mixed, mixed_stride)] = [self.slot(Slot::Heads)?, self.slot(Slot::Mixed)?];
        let ([states, table, convolved], [table_at, table_len, run_ends_at]) = self.recurrent_room(layer)?;
        let buffers = [&inputs, &states, &table, &convolved, decay_bias, rate, &mixed];
        let constants = [stride, mixed_stride, table_at, table_len, run_ends_at];
        let blocks = of.value_heads * of.value_size.div_ceil(DELTA_ROWS as usize);
        let operands = (&buffers[..], skip.as_ref(), &constants[..]);
        self.run_in(layer, Shader::Delta { of }, operands, [blocks, self.runs])?;
        let constants = [stride, mixed_stride, self.weights.config.state_eps.to_bits()];
        let buffers = [&inputs, &mixed, norm];
        let groups = [of.values() / of.normed_together(), self.rows];
        self.run_in(layer, Shader::DeltaNorm { of }, (&buffers, None, &constants), groups)
    }
}
