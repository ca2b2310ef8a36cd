//! Embeddings, those for each layer too, and sums of networks that have norms of their own, on the device.

use wgpu::Buffer;

use super::shaders::{Shader, THREADS};
use super::shapes::Sight;
use super::step::{Dispatch, Place, Recorder, NO_LOGITS};
use super::weights::{Matrix, PART};
use crate::backend::{BackendError, Linear, NormWeight, Slot};

/// What rows of a table are looked up by: numbers, a factor of the rows, and the last number that has a row of its own: those behind it have the first one.
#[derive(Clone, Copy)]
enum Numbers<'b> {
    Tokens(&'b Buffer, f32, u32),
    /// Positions of rows, with which a step's table begins: what they give is added to what is there. Of drafts that form trees they are places.
    Positions(&'b Buffer),
}

impl Recorder<'_> {
    /// Rows of a table in a slot; to each is added the row of a token type, if there is one.
    fn look_up(
        &mut self,
        (table, place, slot): (&[Matrix], Place, Slot),
        numbers: Numbers<'_>,
        token_type: Option<&Buffer>,
    ) -> Result<(), BackendError> {
        let (to, y_stride) = self.slot(slot)?;
        let (numbers, scale, last, add) = match numbers {
            Numbers::Tokens(tokens, scale, last) => (tokens, scale, last, false),
            Numbers::Positions(positions) => (positions, 1.0, u32::MAX, true),
        };
        let (drafts, sight_at) = (add && self.sight == Sight::Path, self.arena()?.sight_at() as u32);
        for matrix in table {
            for (part, rows) in matrix.rows.iter().enumerate() {
                let constants = [
                    rows.first as u32,
                    rows.rows as u32,
                    matrix.parts(),
                    rows.tails,
                    y_stride,
                    matrix.cols as u32,
                    scale.to_bits(),
                    last,
                    sight_at,
                ];
                let mut buffers = vec![(0, &rows.buffer), (1, numbers), (2, &to)];
                buffers.extend(token_type.map(|row| (4, row)));
                let (format, token_type) = (matrix.format, token_type.is_some());
                self.run(Dispatch {
                    shader: Shader::Embed { format, token_type, add, drafts },
                    place,
                    part,
                    logits: NO_LOGITS,
                    buffers: &buffers,
                    constants: (3, &constants),
                    groups: [(matrix.parts() as usize).div_ceil(THREADS), self.rows, 1],
                })?;
            }
        }
        Ok(())
    }

    /// What [`Step::embed`](crate::backend::Step::embed) is.
    pub(super) fn embed_tokens(&mut self) -> Result<(), BackendError> {
        let (weights, arena) = (self.weights, self.arena()?);
        let (tokens, positions) = (arena.tokens.clone(), arena.table.buffer.clone());
        let (place, slot) = (Place::Anywhere, Slot::Hidden);
        let numbers = Numbers::Tokens(&tokens, weights.config.embedding_scale, u32::MAX);
        self.look_up((weights.embedding(), place, slot), numbers, weights.token_type.as_ref())?;
        match &weights.positions {
            Some(table) => self.look_up((table, place, slot), Numbers::Positions(&positions), None),
            None => Ok(()),
        }
    }

    /// What [`Step::embed_per_layer`](crate::backend::Step::embed_per_layer) is.
    pub(super) fn embed_layers(&mut self) -> Result<(), BackendError> {
        let (weights, config) = (self.weights, &self.weights.config);
        let (Some(n), Some(table), Some(norm)) =
            (config.per_layer, &weights.per_layer, weights.tensors.per_layer_norm())
        else {
            return Err(BackendError::Unsupported("embeddings for each layer in a model without".to_owned()));
        };
        let (tokens, place) = (self.arena()?.tokens.clone(), Place::Linear(Linear::PerLayer));
        let scale = (n as f32 / 2.0).sqrt();
        let numbers = Numbers::Tokens(&tokens, scale, config.per_layer_vocabulary as u32 - 1);
        self.look_up((table, place, Slot::PerLayer), numbers, None)?;
        // Rows of all layers lie one behind the other. The norm is of products that are divided by the square root of the width.
        let [(to, _), (products, _)] = [self.slot(Slot::PerLayer)?, self.slot(Slot::PerLayerProducts)?];
        let eps = config.norm_eps * config.hidden as f32;
        self.run(Dispatch {
            shader: Shader::Sum,
            place,
            part: 0,
            logits: NO_LOGITS,
            buffers: &[(0, &to), (4, &products), (5, norm)],
            constants: (3, &[n as u32, n as u32, eps.to_bits(), 1f32.to_bits()]),
            groups: [config.layers, self.rows, 1],
        })
    }

    /// What [`Step::gate_per_layer`](crate::backend::Step::gate_per_layer) is.
    pub(super) fn gate_layer(&mut self, layer: usize) -> Result<(), BackendError> {
        let config = &self.weights.config;
        let [(gates, from), (by, by_stride), (to, to_stride)] = [
            self.slot(Slot::PerLayerGates)?,
            self.slot(Slot::PerLayer)?,
            self.slot(Slot::PerLayerActivated)?,
        ];
        let n = Slot::PerLayerGates.width(config);
        let constants = [n as u32, from, to_stride, by_stride, (layer * n) as u32];
        self.run(Dispatch {
            shader: Shader::GateBy { gate: config.gate },
            place: Place::Layer(layer),
            part: 0,
            logits: NO_LOGITS,
            buffers: &[(0, &gates), (1, &to), (3, &by)],
            constants: (2, &constants),
            groups: [n.next_multiple_of(PART).div_ceil(THREADS), self.rows, 1],
        })
    }

    /// What [`Step::put_aside`](crate::backend::Step::put_aside) is.
    pub(super) fn set_aside(&mut self, norm: NormWeight) -> Result<(), BackendError> {
        let weight = self.weights.tensors.norm(norm)?;
        let [(delta, stride), (aside, _)] = [self.slot(Slot::Delta)?, self.slot(Slot::Aside)?];
        let config = &self.weights.config;
        let constants = [config.hidden as u32, stride, config.norm_eps.to_bits(), 1f32.to_bits()];
        self.run(Dispatch {
            shader: Shader::Norm { add: false, post: false, layer: false, stays: false },
            place: Place::Norm(norm),
            part: 0,
            logits: NO_LOGITS,
            buffers: &[(0, &delta), (1, weight), (2, &aside)],
            constants: (3, &constants),
            groups: [self.rows, 1, 1],
        })
    }

    /// What [`Step::join`](crate::backend::Step::join) is.
    pub(super) fn join_given(&mut self, norm: NormWeight) -> Result<(), BackendError> {
        let weight = self.weights.tensors.norm(norm)?;
        let [(aside, stride), (given, _), (delta, _)] =
            [self.slot(Slot::Aside)?, self.slot(Slot::Given)?, self.slot(Slot::Delta)?];
        let config = &self.weights.config;
        let constants = [config.hidden as u32, stride, config.norm_eps.to_bits(), 1f32.to_bits()];
        self.run(Dispatch {
            shader: Shader::Pass { add: true, post: true },
            place: Place::Norm(norm),
            part: 0,
            logits: NO_LOGITS,
            buffers: &[(0, &aside), (2, &delta), (4, &given), (5, weight)],
            constants: (3, &constants),
            groups: [self.rows, 1, 1],
        })
    }
}
