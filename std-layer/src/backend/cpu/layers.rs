//! Embeddings for each layer, sums of networks that have norms of their own, and several residual streams on the CPU.

use super::program::Operation;
use super::rows::{Add, NormOf, RowOp, RowWork, Rows};
use super::step::Recorder;
use super::streams::{Delta, Mixer, Streams, Work};
use crate::backend::tensors::StreamVectors;
use crate::backend::{BackendError, NormWeight, Slot, StreamOperation};
use crate::model::Norm;

type Vectors = StreamVectors<Vec<f32>>;

impl Recorder<'_> {
    /// What [`Step::embed_per_layer`](crate::backend::Step::embed_per_layer) is.
    pub(super) fn embed_layers(&mut self) -> Result<(), BackendError> {
        let config = &self.weights.config;
        let (Some(n), Some(table), Some(weight)) =
            (config.per_layer, &self.weights.per_layer, self.weights.tensors.per_layer_norm())
        else {
            return Err(BackendError::Unsupported("embeddings for each layer in a model without".to_owned()));
        };
        let [to, delta] = [Slot::PerLayer, Slot::PerLayerProducts].map(|slot| self.slots[&slot]);
        // Tokens without embeddings of their own have those of the first one.
        let own = |&token: &u32| if (token as usize) < config.per_layer_vocabulary { token } else { 0 };
        let work = RowWork::Embed {
            table,
            tokens: self.tokens.iter().map(own).collect(),
            scale: (n as f32 / 2.0).sqrt(),
            token_type: None,
            positions: None,
            to,
        };
        self.push_rows("embed", work, Slot::PerLayer);
        // The norm is of products that are divided by the square root of the width.
        let post = Some((&raw const **weight, config.norm_eps * config.hidden as f32));
        let [x, delta] = [to, delta].map(|rows| Rows { width: n, ..rows });
        let add = Some(Add { delta, scale: 1.0, post });
        let work = RowWork::Norm { add, x, norm: None, stays: false, to: delta };
        let (rows, step) = (self.rows * config.layers, self.step(1) * config.layers);
        self.push("norm", Operation::Rows(RowOp { rows, step, work, out: delta, rounded: Vec::new() }));
        Ok(())
    }

    /// What [`Step::gate_per_layer`](crate::backend::Step::gate_per_layer) is.
    pub(super) fn gate_layer(&mut self, layer: usize) {
        let config = &self.weights.config;
        let [x, by, to] =
            [Slot::PerLayerGates, Slot::PerLayer, Slot::PerLayerActivated].map(|slot| self.slots[&slot]);
        let at = layer * x.width;
        let work = RowWork::GateBy { gate: config.gate, x, by, at, to };
        self.push_rows("activation", work, Slot::PerLayerActivated);
    }

    /// What [`Step::put_aside`](crate::backend::Step::put_aside) is.
    pub(super) fn set_aside(&mut self, norm: NormWeight) -> Result<(), BackendError> {
        let (weight, bias, eps) = (self.norm_weight(norm)?, None, self.weights.config.norm_eps);
        let norm = Some(NormOf { kind: Norm::Rms, weight, bias, eps });
        let [x, to] = [Slot::Delta, Slot::Aside].map(|slot| self.slots[&slot]);
        self.push_rows("norm", RowWork::Norm { add: None, x, norm, stays: false, to }, Slot::Aside);
        Ok(())
    }

    /// What [`Step::join`](crate::backend::Step::join) is.
    pub(super) fn join_given(&mut self, norm: NormWeight) -> Result<(), BackendError> {
        let post = Some((self.norm_weight(norm)?, self.weights.config.norm_eps));
        let [delta, x, to] = [Slot::Given, Slot::Aside, Slot::Delta].map(|slot| self.slots[&slot]);
        let add = Some(Add { delta, scale: 1.0, post });
        self.push_rows("norm", RowWork::Norm { add, x, norm: None, stays: false, to }, Slot::Delta);
        Ok(())
    }

    fn delta(&self, norm: NormWeight) -> Result<Delta, BackendError> {
        let (rows, eps) = (self.slots[&Slot::Delta], self.weights.config.norm_eps);
        Ok(Delta { rows, weight: self.norm_weight(norm)?, eps })
    }

    fn mixer(&self, layer: usize, matrix: fn(&Vectors) -> &Vec<f32>) -> Result<Mixer, BackendError> {
        let (of, eps) = (self.weights.tensors.streams(layer)?, self.weights.config.norm_eps);
        Ok(Mixer { router: &raw const *of.router, matrix: &raw const **matrix(of), eps })
    }

    /// What [`Step::streams`](crate::backend::Step::streams) is.
    pub(super) fn on_streams(&mut self, operation: StreamOperation) -> Result<(), BackendError> {
        let [normed, predicted, products] =
            [Slot::Normed, Slot::Predicted, Slot::Delta].map(|slot| self.slots[&slot]);
        let (work, out) = match operation {
            StreamOperation::Split => (Work::Match, Slot::Streams),
            StreamOperation::Predict(layer) => {
                (Work::Predict { mixer: self.mixer(layer, |of| &of.predict)?, predicted }, Slot::Hidden)
            }
            StreamOperation::AddLowRank(layer) => {
                let delta = self.delta(NormWeight::PostLowRank(layer))?;
                (Work::AddLowRank { normed, delta }, Slot::Hidden)
            }
            StreamOperation::Correct(layer) => {
                let mixer = self.mixer(layer, |of| &of.correct)?;
                let scale = &raw const *self.weights.tensors.streams(layer)?.scale;
                (Work::Correct { mixer, predicted, scale, to: normed }, Slot::Normed)
            }
            StreamOperation::AddToOthers(layer) => {
                (Work::AddToOthers(self.delta(NormWeight::PostPerLayer(layer))?), Slot::Streams)
            }
            StreamOperation::Take(other) => (Work::Take { other, to: normed }, Slot::Normed),
            StreamOperation::Merge(other) => (Work::Merge { other, products, sum: predicted }, Slot::Hidden),
        };
        let [first, others] = [Slot::Hidden, Slot::Streams].map(|slot| self.slots[&slot]);
        self.push_rows("streams", RowWork::Streams(Streams { first, others, work }), out);
        Ok(())
    }
}
