//! Latent attention in a step. Products of heads with matrices of their own are those with experts: each row goes through all of them.

use wgpu::Buffer;

use super::shaders::{Shader, MAX_GEMV_ROWS};
use super::shapes::Sight;
use super::step::{no_room, temperature_constants, Dispatch, Place, Recorder, NO_LOGITS};
use super::weights::{OfExperts, PART};
use crate::backend::tensors::Latent;
use crate::backend::{BackendError, Linear, NormWeight, Slot};
use crate::model::LatentAttention;

impl<'a> Recorder<'a> {
    /// What a layer has for latent attention, if it has that.
    pub(super) fn latent_of(&self, layer: usize) -> Option<(LatentAttention, &'a Latent<Buffer, OfExperts>)> {
        let of = self.weights.config.latent_attention?;
        self.weights.tensors.latent(layer).map(|tensors| (of, tensors))
    }

    /// The norm of the row that the second product of queries takes, in place.
    pub(super) fn norm_query_row(&mut self, layer: usize) -> Result<(), BackendError> {
        let (heads, stride) = self.slot(Slot::Heads)?;
        let config = &self.weights.config;
        let rank = Slot::QueryRow.width(config) as u32;
        let weight = self.weights.tensors.norm(NormWeight::Queries(layer))?;
        self.run(Dispatch {
            shader: Shader::NormHeads,
            place: Place::Layer(layer),
            part: 0,
            logits: NO_LOGITS,
            buffers: &[(0, &heads), (1, weight)],
            constants: (2, &[stride, config.state_eps.to_bits(), rank, 0]),
            groups: [1, self.rows, 1],
        })
    }

    /// The cached rows of a layer, and its queries as they attend to them.
    pub(super) fn latent_heads(
        &mut self,
        layer: usize,
        (of, tensors): (LatentAttention, &Latent<Buffer, OfExperts>),
    ) -> Result<(), BackendError> {
        let config = &self.weights.config;
        let queries = if of.query_rank.is_some() { Slot::Queries } else { Slot::Heads };
        let [(products, stride), (queries, queries_stride)] = [self.slot(Slot::Heads)?, self.slot(queries)?];
        let [(absorbed, _), (plain, _)] = [self.slot(Slot::Absorbed)?, self.slot(Slot::Weighed)?];
        let (rope, group) = (config.layer[layer].rope, self.kv.group_of[layer]);
        let [temperature, stretch] = temperature_constants(config);
        let arena = self.arena()?;
        let constants = [
            stride,
            (Slot::Heads.width(config) - config.head_dim) as u32,
            queries_stride,
            config.state_eps.to_bits(),
            arena.runs_at() as u32,
            arena.table_at(group) as u32,
            arena.table_len as u32,
            temperature,
            stretch,
            arena.sight_at() as u32,
        ];
        let (memory, table) = (self.kv.memory[layer].clone(), arena.table.buffer.clone());
        let angles = self.kv.angles[rope].0.clone();
        let buffers = [&products, &queries, &memory, &table, &angles, &tensors.norm, &plain, &absorbed];
        let buffers: Vec<_> = (0..).zip(buffers).collect();
        self.run(Dispatch {
            shader: Shader::Latent {
                shape: self.kv.shapes[group],
                plain: of.plain as u32,
                pairing: config.ropes[rope].pairing,
                drafts: self.sight == Sight::Path,
            },
            place: Place::Layer(layer),
            part: 0,
            logits: NO_LOGITS,
            buffers: &buffers,
            constants: (8, &constants),
            groups: [config.heads + 1, self.rows, 1],
        })?;
        if layer == 0 && self.rows > MAX_GEMV_ROWS {
            let routes = self.arena()?.latent.clone().ok_or_else(no_room)?;
            // All layers take the same order.
            self.sort(&routes, Place::Linear(Linear::Queries(layer)))?;
        }
        let step = of.plain.next_multiple_of(PART) as u32;
        let ends = ((&plain, step), (&absorbed, config.head_dim as u32));
        self.products_of_heads(&tensors.keys, Linear::Queries(layer), ends)
    }

    /// Of each row and head sums of the values of cached rows, times the head's matrix of values.
    pub(super) fn latent_values(
        &mut self,
        layer: usize,
        (of, tensors): (LatentAttention, &Latent<Buffer, OfExperts>),
    ) -> Result<(), BackendError> {
        let [(weighed, _), (mixed, _)] = [self.slot(Slot::Weighed)?, self.slot(Slot::Mixed)?];
        let step = of.rank.next_multiple_of(PART) as u32;
        let ends = ((&weighed, step), (&mixed, of.values as u32));
        self.products_of_heads(&tensors.values, Linear::AttentionOutput(layer), ends)
    }

    /// Products of the numbers of heads, so far apart, with a matrix for each head. What is told by `linear` belongs to no other product with experts.
    fn products_of_heads(
        &mut self,
        matrices: &OfExperts,
        linear: Linear,
        (x, y): ((&Buffer, u32), (&Buffer, u32)),
    ) -> Result<(), BackendError> {
        let routes = self.arena()?.latent.clone().ok_or_else(no_room)?;
        let place = Place::Linear(linear);
        let rounded = self.rounded((place, 1), [&matrices.matrix].into_iter(), (x.0, x.1, routes.used))?;
        let with = (rounded.as_ref(), None);
        let ends = ((x.0, x.1, 1), y);
        self.products_of_experts(std::slice::from_ref(matrices), &routes, (place, 0), ends, with)?;
        Ok(())
    }
}
