//! Experts in a step: which ones rows go through is known to the device alone.
//!
//! Pairs of a row and one of its experts are numbered row by row, and every intermediate result has a row for each. Of few rows, a workgroup of a
//! product has a pair, and looks up whose matrix it takes. Of many rows, pairs are sorted by expert and cut into tiles; a workgroup has a tile,
//! and there are workgroups for as many tiles as there could be.

use wgpu::{Buffer, BufferUsages};

use super::device::Gpu;
use super::shaders::{Shader, MAX_GEMV_ROWS, THREADS, TILE};
use super::step::{no_room, Dispatch, Place, Recorder, NO_LOGITS};
use super::weights::{ExpertWeights, OfExperts, PART};
use crate::backend::{BackendError, Slot};
use crate::model::{Config, Experts, Groups, Scoring};

/// What the experts of a layer work with, the same for all layers.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// Of each row the scores of experts, then of the gate of the network beside them.
    scores: Buffer,
    routes: Routes,
    /// Of each pair its factor.
    factors: Buffer,
    /// Of each pair what its expert takes, if that is multiplied by the factor.
    scaled: Option<Buffer>,
    /// Of each pair gates and the numbers they are for; gated numbers; results.
    gates: Buffer,
    activated: Buffer,
    outputs: Buffer,
}

/// Which matrices rows go through.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    /// Of each pair its expert.
    chosen: Buffer,
    /// Sorted pairs, and what sorting needs.
    order: Buffer,
    cursors: Buffer,
    tiles: Buffer,
    /// How many experts there are, and how many a row goes through.
    count: usize,
    pub(super) used: usize,
}

impl Routes {
    /// What products of heads with matrices of their own work with: the same for all layers and all steps.
    pub(super) fn of_heads(gpu: &Gpu, heads: usize, rows: usize) -> Result<Self, BackendError> {
        let words: Vec<u32> = (0..rows).flat_map(|_| 0..heads as u32).collect();
        let chosen = gpu.constant("heads of rows", &words, BufferUsages::STORAGE)?;
        Self::new(gpu, chosen, [heads, heads], rows)
    }

    /// Room for so many rows, whose experts are in `chosen`.
    pub(super) fn new(
        gpu: &Gpu,
        chosen: Buffer,
        [count, used]: [usize; 2],
        rows: usize,
    ) -> Result<Self, BackendError> {
        let room = |words: usize| gpu.storage("rows of experts", 4 * words as u64);
        let [order, cursors, tiles] =
            [rows * used, count, 4 * Self::most_tiles([count, used], rows)].map(room);
        Ok(Self { chosen, order: order?, cursors: cursors?, tiles: tiles?, count, used })
    }

    /// Tiles that so many rows make at most: experts have one that is not full.
    fn most_tiles([count, used]: [usize; 2], rows: usize) -> usize {
        let pairs = rows * used;
        pairs / TILE + count.min(pairs)
    }

    fn tiles_of(&self, rows: usize) -> usize {
        Self::most_tiles([self.count, self.used], rows)
    }
}

impl Room {
    pub(super) fn new(
        gpu: &Gpu,
        config: &Config,
        experts: Experts,
        rows: usize,
    ) -> Result<Self, BackendError> {
        let pairs = rows * experts.used;
        let room = |words: usize| gpu.storage("intermediate results of experts", 4 * words as u64);
        Ok(Self {
            scores: room(rows * width_of_scores(&experts))?,
            routes: Routes::new(gpu, room(pairs)?, [experts.count, experts.used], rows)?,
            factors: room(pairs)?,
            scaled: match experts.scaled_inputs {
                true => Some(room(pairs * config.hidden.next_multiple_of(PART))?),
                false => None,
            },
            gates: room(pairs * 2 * experts.intermediate)?,
            // Inputs of products end with zeros.
            activated: room(pairs * experts.intermediate.next_multiple_of(PART))?,
            outputs: room(pairs * config.hidden)?,
        })
    }
}

fn width_of_scores(experts: &Experts) -> usize {
    experts.count + usize::from(experts.shared.is_some_and(|shared| shared.gated))
}

/// An operation that has the same memory in every layer.
fn anywhere<'b>(
    shader: Shader,
    part: usize,
    buffers: &'b [(u32, &'b Buffer)],
    constants: (u32, &'b [u32]),
    groups: [usize; 3],
) -> Dispatch<'b> {
    Dispatch { shader, place: Place::Anywhere, part, logits: NO_LOGITS, buffers, constants, groups }
}

impl<'a> Recorder<'a> {
    /// What [`Step::route`](crate::backend::Step::route) is.
    pub(super) fn routes(&mut self, layer: usize) -> Result<(), BackendError> {
        let (experts, own) = self.mixture_of(layer)?;
        let Experts { count, used, scoring, groups, normalised, scale, .. } = experts;
        let room = self.arena()?.experts.clone().ok_or_else(no_room)?;
        let (x, x_stride) = self.slot(Slot::Normed)?;
        let (rows, place, of_scores) = (self.rows, Place::Layer(layer), width_of_scores(&experts));
        let rounded = self.rounded((place, 0), own.router.iter(), (&x, x_stride, 1))?;
        let ends = ((&x, x_stride, 0), (&room.scores, of_scores as u32));
        let with = (rounded.as_ref(), own.router_bias.as_ref());
        self.products(&own.router, place, ends, (rows, NO_LOGITS), with)?;
        let groups = groups.unwrap_or(Groups { count: 1, used: 1, counted: 2 });
        let [normalised, sigmoid] = [normalised, scoring == Scoring::Sigmoid].map(usize::from);
        let constants = [count, of_scores, used, normalised, sigmoid, groups.count, groups.used];
        let constants = [&constants.map(|n| n as u32)[..], &[scale.to_bits()]].concat();
        let mut buffers = vec![(0, &room.scores), (1, &room.routes.chosen), (2, &room.factors)];
        buffers.extend(own.selection_bias.as_ref().map(|bias| (4, bias)));
        buffers.extend(own.factors.as_ref().map(|factors| (5, factors)));
        let (biased, factors) = (own.selection_bias.is_some(), own.factors.is_some());
        self.run(Dispatch {
            shader: Shader::Route { biased, factors, best: groups.counted == 1 },
            place,
            part: 0,
            logits: NO_LOGITS,
            buffers: &buffers,
            constants: (3, &constants),
            groups: [rows, 1, 1],
        })?;
        if rows > MAX_GEMV_ROWS {
            self.sort(&room.routes, Place::Anywhere)?;
        }
        Ok(())
    }

    fn mixture_of(&self, layer: usize) -> Result<(Experts, &'a ExpertWeights), BackendError> {
        let missing = || BackendError::Unsupported("experts in a model that has none".to_owned());
        let weights = self.weights;
        weights.config.experts.zip(weights.tensors.experts(layer)).ok_or_else(missing)
    }

    /// What [`Step::experts`](crate::backend::Step::experts) is.
    pub(super) fn mixture(&mut self, layer: usize) -> Result<(), BackendError> {
        let config = &self.weights.config;
        let (experts, own) = self.mixture_of(layer)?;
        let Experts { count, used, intermediate, shared, normed, .. } = experts;
        let room = self.arena()?.experts.clone().ok_or_else(no_room)?;
        let to = if normed { Slot::Given } else { Slot::Delta };
        let [(x, x_stride), (delta, delta_stride)] = [self.slot(Slot::Normed)?, self.slot(to)?];
        let (rows, place, of_scores) = (self.rows, Place::Layer(layer), width_of_scores(&experts));
        let pairs = rows * used;
        let hidden = config.hidden as u32;
        if let Some(scaled) = &room.scaled {
            let buffers = [(0, &x), (1, scaled), (2, &room.factors)];
            let groups = [(x_stride as usize).div_ceil(THREADS), pairs, 1];
            self.run(anywhere(Shader::Scale, 0, &buffers, (3, &[hidden, x_stride, used as u32]), groups))?;
        }
        // How many pairs share a row.
        let (x, share) = room.scaled.as_ref().map_or((&x, used), |scaled| (scaled, 1));
        let matrices = own.gate_up.iter().map(|of| &of.matrix);
        let rounded = self.rounded((place, 0), matrices, (x, x_stride, used / share))?;
        let between = if config.gated { 2 } else { 1 } * intermediate as u32;
        let ends = ((x, x_stride, share), (&room.gates, between));
        let with = (rounded.as_ref(), own.gate_up_bias.as_ref());
        let number = self.products_of_experts(&own.gate_up, &room.routes, (place, 0), ends, with)?;
        let width = intermediate.next_multiple_of(PART) as u32;
        let buffers = [(0, &room.gates), (1, &room.activated)];
        let constants = [intermediate as u32, between, width];
        let groups = [(width as usize).div_ceil(THREADS), pairs, 1];
        // Other parts are the networks that every token goes through.
        self.run(anywhere(
            Shader::Glu { gate: config.gate, gated: config.gated },
            0,
            &buffers,
            (2, &constants),
            groups,
        ))?;
        let matrices = own.down.iter().map(|of| &of.matrix);
        let rounded = self.rounded((place, 1), matrices, (&room.activated, width, used))?;
        let ends = ((&room.activated, width, 1), (&room.outputs, config.hidden as u32));
        let with = (rounded.as_ref(), own.down_bias.as_ref());
        self.products_of_experts(&own.down, &room.routes, (place, number), ends, with)?;
        let scaled = room.scaled.is_some();
        let mut buffers = vec![(0, &delta), (1, &room.outputs)];
        buffers.extend((!scaled).then_some((2, &room.factors)));
        let (shared, gated) = (shared.is_some() && !normed, of_scores > count);
        if gated {
            buffers.push((4, &room.scores));
        }
        let constants = [hidden, delta_stride, hidden, used as u32, of_scores as u32];
        let groups = [config.hidden.div_ceil(THREADS), rows, 1];
        self.run(anywhere(Shader::Combine { shared, gated, scaled }, 0, &buffers, (3, &constants), groups))
    }

    /// Sorts the pairs of a step by expert.
    pub(super) fn sort(&mut self, routes: &Routes, place: Place) -> Result<(), BackendError> {
        let rows = self.rows;
        self.run(Dispatch {
            shader: Shader::Sort,
            place,
            // Steps of so many rows have these constants.
            part: rows,
            logits: NO_LOGITS,
            buffers: &[(0, &routes.chosen), (1, &routes.cursors), (2, &routes.order), (3, &routes.tiles)],
            constants: (4, &[routes.count, rows * routes.used, routes.tiles_of(rows)].map(|n| n as u32)),
            groups: [1, 1, 1],
        })
    }

    /// Products of pairs with the matrices of their experts, `share` pairs with the same row of X; they go to rows of Y. X may be rounded, and
    /// each expert may have a bias for each number in a row of Y. Numbers tell parts of weights from others of the place; the next one is the
    /// result.
    pub(super) fn products_of_experts(
        &mut self,
        matrices: &[OfExperts],
        routes: &Routes,
        (place, mut number): (Place, usize),
        ((x, x_stride, share), (y, y_stride)): ((&Buffer, u32, usize), (&Buffer, u32)),
        (rounded, bias): (Option<&Buffer>, Option<&Buffer>),
    ) -> Result<usize, BackendError> {
        let rows = self.rows;
        let few = rows <= MAX_GEMV_ROWS;
        let side_by_side = if few { rows * routes.used } else { routes.tiles_of(rows) };
        let mut y_first = 0;
        for OfExperts { matrix, rows: each } in matrices {
            let rounded = rounded.filter(|_| matrix.format.has_codes());
            for part in &matrix.rows {
                let of_product = (*each).min(part.rows);
                let kind = (matrix.format, matrix.parts());
                let how = [rounded.is_some(), self.f16(), bias.is_some()];
                let (shader, groups) = Shader::product(kind, [of_product, rows], how, Some(side_by_side));
                let constants = [
                    part.rows as u32,
                    matrix.parts(),
                    part.tails,
                    x_stride / 4,
                    y_stride,
                    y_first as u32,
                    *each as u32,
                    part.first as u32,
                    share as u32,
                ];
                let mut buffers = vec![(0, &part.buffer), (1, rounded.unwrap_or(x)), (2, y)];
                buffers.extend(bias.map(|bias| (6, bias)));
                if few {
                    buffers.push((4, &routes.chosen));
                } else {
                    buffers.extend([(4, &routes.tiles), (5, &routes.order)]);
                }
                self.run(Dispatch {
                    shader,
                    place,
                    part: number,
                    logits: NO_LOGITS,
                    buffers: &buffers,
                    constants: (3, &constants),
                    groups,
                })?;
                number += 1;
            }
            y_first += each;
        }
        Ok(number)
    }
}
