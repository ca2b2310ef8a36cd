//! Several residual streams on the device. [`Streams`](crate::model::Streams) has the formulas.

use super::shaders::{OfStreams, Shader};
use super::step::{Dispatch, Place, Recorder, NO_LOGITS};
use crate::backend::{BackendError, NormWeight, Slot, StreamOperation};

impl Recorder<'_> {
    /// What [`Step::streams`](crate::backend::Step::streams) is.
    pub(super) fn on_streams(&mut self, operation: StreamOperation) -> Result<(), BackendError> {
        let (config, tensors) = (&self.weights.config, &self.weights.tensors);
        let slots = [Slot::Hidden, Slot::Streams, Slot::Predicted, Slot::Normed, Slot::Delta];
        let all = slots.map(|slot| self.slot(slot).map(|(buffer, _)| buffer));
        let all = all.into_iter().collect::<Result<Vec<_>, _>>()?;
        // Where it is, a stream's number, and weights: of a norm or a scale, or of a router and what makes factors.
        let (shader, place, other, weight, router) = match operation {
            StreamOperation::Split => (OfStreams::Split, Place::Anywhere, 0, None, None),
            StreamOperation::Predict(l) => {
                let of = tensors.streams(l)?;
                (OfStreams::Predict, Place::Layer(l), 0, None, Some([&of.router, &of.predict]))
            }
            StreamOperation::AddLowRank(l) => {
                let weight = tensors.norm(NormWeight::PostLowRank(l))?;
                (OfStreams::AddLowRank, Place::Layer(l), 0, Some(weight), None)
            }
            StreamOperation::Correct(l) => {
                let of = tensors.streams(l)?;
                let router = Some([&of.router, &of.correct]);
                (OfStreams::Correct, Place::Layer(l), 0, Some(&of.scale), router)
            }
            StreamOperation::AddToOthers(l) => {
                let weight = tensors.norm(NormWeight::PostPerLayer(l))?;
                (OfStreams::AddToOthers, Place::Layer(l), 0, Some(weight), None)
            }
            StreamOperation::Take(other) => (OfStreams::Take, Place::Anywhere, other, None, None),
            StreamOperation::Merge(other) => (OfStreams::Merge, Place::Anywhere, other, None, None),
        };
        let count = config.streams.map_or(0, |streams| streams.count);
        let constants = [config.hidden as u32, count as u32, config.norm_eps.to_bits(), other as u32];
        // Bindings as the shader numbers them.
        let used = shader.uses();
        let mut buffers: Vec<_> =
            (1..).zip(&all).zip(used).filter(|(_, used)| *used).map(|(b, _)| b).collect();
        buffers.extend(weight.map(|weight| (6, weight)));
        buffers.extend(router.into_iter().flat_map(|of| [(7, of[0]), (8, of[1])]));
        self.run(Dispatch {
            shader: Shader::Streams { of: shader, count: count as u32 },
            place,
            part: other,
            logits: NO_LOGITS,
            buffers: &buffers,
            constants: (0, &constants),
            groups: [self.rows, 1, 1],
        })
    }

    /// Of a layer's gates those that count remain, if few do.
    pub(super) fn sparsify(&mut self, layer: usize) -> Result<(), BackendError> {
        let config = &self.weights.config;
        let Some(deviations) = config.layer[layer].sparsity else { return Ok(()) };
        let (gates, stride) = self.slot(Slot::Gates)?;
        self.run(Dispatch {
            shader: Shader::Sparse,
            place: Place::Layer(layer),
            part: 0,
            logits: NO_LOGITS,
            buffers: &[(0, &gates)],
            constants: (1, &[config.between(layer) as u32, stride, deviations.to_bits()]),
            groups: [self.rows, 1, 1],
        })
    }
}
