//! Embeddings for each layer, and sums of networks that have norms of their own, on the device.

use super::shaders::{Shader, THREADS};
use super::step::{Dispatch, Place, Recorder, NO_LOGITS};
use super::weights::PART;
use crate::backend::{BackendError, Linear, NormWeight, Slot};

impl Recorder<'_> {
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
        self.look_up((table, place, Slot::PerLayer), (&tokens, scale), (None, false))?;
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
