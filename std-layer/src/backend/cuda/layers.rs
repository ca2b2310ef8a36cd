//! Embeddings, those for each layer too, and sums of networks that have norms of their own, on a GPU.

use super::arena::{Numbers, Place, Wanted};
use super::layout::Access;
use super::step::Lowering;
use super::weights::{Matrix, Storage};
use crate::backend::{BackendError, NormWeight};
use crate::cuda::decoder::{AddNorm, Gated, Take};
use crate::cuda::{self, Buffer, ViewMut};
use crate::model::Norm;

impl<'a> Lowering<'a> {
    /// Rows of a table of so many columns, one for each row of the step.
    pub(super) fn look_up(
        &mut self,
        (table, cols): (&'a Matrix, usize),
        numbers: Numbers,
        to: Place,
    ) -> Result<(), BackendError> {
        let m = self.m;
        self.size(to, m * cols, 4);
        let mut uses = vec![(to, Access::Write)];
        if numbers == Numbers::Positions && self.weights.config.causal {
            self.size(Place::Positions, m, size_of::<u32>());
            uses.push((Place::Positions, Access::Write));
        }
        self.launch(&uses, |memory, layout, gpu| {
            let numbers = match (numbers, memory.rows.positions) {
                (Numbers::Tokens, _) => memory.tokens,
                (Numbers::Positions, Some(positions)) => positions,
                (Numbers::Positions, None) => {
                    let place = || memory.part(layout, Place::Positions, 0, m);
                    gpu.ops.decoder_positions(&gpu.stream, memory.rows, Some(place()?), None)?;
                    place()?.into_view()
                }
            };
            let y = memory.floats(layout, to, 0, m * cols)?;
            match table.kind {
                Storage::Dense(ty) => {
                    gpu.ops.decoder_embed(&gpu.stream, (table.bytes(), ty, cols), numbers, y)
                }
                Storage::Blocks(format) => {
                    gpu.ops.embed_quant(&gpu.stream, table.blocks(format)?, numbers, y)
                }
            }
        })
    }

    /// Adds a bias to the logits of each row.
    pub(super) fn add_to_logits(&mut self, bias: &'a Buffer<f32>) -> Result<(), BackendError> {
        let n = bias.len();
        (0..self.m).try_for_each(|row| {
            self.launch(&[], |memory, _, gpu| {
                let (x, y) = (memory.logits_of(row * n, n)?.into_view(), memory.logits_of(row * n, n)?);
                gpu.ops.vec_add(&gpu.stream, x, bias, y)
            })
        })
    }

    /// Embeddings for each layer.
    pub(super) fn embed_layers(&mut self) -> Result<(), BackendError> {
        let (weights, m) = (self.weights, self.m);
        let config = &weights.config;
        let (Some(n), Some(table), Some(norm)) =
            (config.per_layer, &weights.per_layer, weights.tensors.per_layer_norm())
        else {
            return Err(BackendError::Unsupported("embeddings for each layer in a model without".to_owned()));
        };
        let rows = m * config.layers;
        self.look_up((table, n * config.layers), Numbers::Tokens, Place::PerLayerRows)?;
        self.size(Place::PerLayer, rows * n, 4);
        let reads = [Place::PerLayerRows, Place::PerLayerProducts].map(|place| (place, Access::Read));
        let uses = [&reads[..], &[(Place::PerLayer, Access::Write)]].concat();
        // The norm is of products that are divided by the square root of the width; nobody takes that of the sum.
        let (scale, eps) = ((n as f32 / 2.0).sqrt(), config.norm_eps * config.hidden as f32);
        self.launch(&uses, |memory, layout, gpu| {
            let [x, delta] = [Place::PerLayerRows, Place::PerLayerProducts]
                .map(|place| memory.floats(layout, place, 0, rows * n));
            let how = AddNorm {
                x: x?.into_view(),
                rows: None,
                y: memory.floats(layout, Place::PerLayer, 0, rows * n)?,
                delta: Some(delta?.into_view()),
                bias: None,
                post: Some(norm.view()),
                kind: Norm::Rms,
                weight: norm.view(),
                norm_bias: None,
                eps,
                scale,
                stays: false,
            };
            gpu.ops.decoder_norm(&gpu.stream, how, memory.forms(layout, Wanted::nothing(n), rows)?)
        })
    }

    /// The temperatures of the scores of rows, if the model has them.
    pub(super) fn temperatures(&mut self) -> Result<(), BackendError> {
        if self.weights.config.temperature.is_none() {
            return Ok(());
        }
        let m = self.m;
        self.size(Place::Temperatures, m, 4);
        self.launch(&[(Place::Temperatures, Access::Write)], |memory, layout, gpu| {
            let to = memory.floats(layout, Place::Temperatures, 0, m)?;
            let of_rows = memory.temperatures.map(|(table, each)| (table, each, to));
            gpu.ops.decoder_positions(&gpu.stream, memory.rows, None, of_rows)
        })
    }

    /// Leaves those out whose logits nobody asks for.
    pub(super) fn fewer_of_layers(&mut self) -> Result<(), BackendError> {
        if let Some(n) = self.weights.config.per_layer.filter(|_| self.rows.outputs < self.rows.rows) {
            let (cols, rows, m) = (n * self.weights.config.layers, self.rows.rows, self.rows.outputs);
            self.size(Place::PerLayerRows, m * cols, 4);
            let uses = [(Place::PerLayer, Access::Read), (Place::PerLayerRows, Access::Write)];
            self.launch(&uses, |memory, layout, gpu| {
                let x = memory.floats(layout, Place::PerLayer, 0, rows * cols)?.into_view();
                let which = Some(memory.outputs);
                let forms = memory.forms(layout, Wanted::plain(cols, Place::PerLayerRows), m)?;
                gpu.ops.decoder_rows(&gpu.stream, (x, which, None), Take::All, forms)
            })?;
            self.per_layer = Place::PerLayerRows;
        }
        Ok(())
    }

    /// What a layer makes of its embeddings of tokens.
    pub(super) fn per_layer(
        &mut self,
        layer: usize,
        wanted: Wanted,
        [inputs, half]: [(Place, Access); 2],
    ) -> Result<(), BackendError> {
        let (m, from, n, config) = (self.m, self.per_layer, wanted.cols, &self.weights.config);
        let (stride, gate) = (n * config.layers, config.gate);
        let uses = [(Place::Gates, Access::Read), (from, Access::Read), inputs, half];
        self.launch(&uses, |memory, layout, gpu| {
            let x = memory.floats(layout, Place::Gates, 0, m * n)?.into_view();
            let by = memory.floats(layout, from, 0, m * stride)?.into_view();
            let up = Some((by.range(layer * n..m * stride)?, stride));
            let how =
                Gated { gate, numbers: None, rows: m, x: (x, n), up, bias: [None, None], experts: None };
            gpu.ops.decoder_gate(&gpu.stream, how, memory.forms(layout, wanted, m)?)
        })
    }

    /// `Aside`: what the network beside experts gives, normed.
    pub(super) fn set_aside(&mut self, norm: NormWeight) -> Result<(), BackendError> {
        let (weights, m, hidden) = (self.weights, self.m, self.weights.config.hidden);
        let weight = weights.tensors.norm(norm)?.view();
        self.size(Place::Aside, m * hidden, 4);
        let uses = [(Place::Delta, Access::Read), (Place::Aside, Access::Write)];
        self.launch(&uses, |memory, layout, gpu| {
            let x = memory.floats(layout, Place::Delta, 0, m * hidden)?.into_view();
            let y = memory.floats(layout, Place::Aside, 0, m * hidden)?;
            let norm = cuda::Norm { weight: Some(weight), bias: None, eps: weights.config.norm_eps };
            gpu.ops.rms_norm(&gpu.stream, hidden, norm, x, y)
        })
    }

    /// `Delta`: what is aside, and what the experts give, normed.
    pub(super) fn join_given(&mut self, norm: NormWeight) -> Result<(), BackendError> {
        let (weights, m, hidden) = (self.weights, self.m, self.weights.config.hidden);
        let weight = weights.tensors.norm(norm)?.view();
        let uses =
            [(Place::Aside, Access::Read), (Place::Given, Access::Read), (Place::Delta, Access::Write)];
        // Nobody takes the norm of the sum.
        self.launch(&uses, |memory, layout, gpu| {
            let [x, delta] = [Place::Aside, Place::Given]
                .map(|place| memory.floats(layout, place, 0, m * hidden).map(ViewMut::into_view));
            let how = AddNorm {
                x: x?,
                rows: None,
                y: memory.floats(layout, Place::Delta, 0, m * hidden)?,
                delta: Some(delta?),
                bias: None,
                post: Some(weight),
                kind: Norm::Rms,
                weight,
                norm_bias: None,
                eps: weights.config.norm_eps,
                scale: 1.0,
                stays: false,
            };
            gpu.ops.decoder_norm(&gpu.stream, how, memory.forms(layout, Wanted::nothing(hidden), m)?)
        })
    }
}
