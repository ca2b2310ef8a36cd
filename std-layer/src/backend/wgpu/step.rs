//! A step on the device: operations are encoded as they are named.

use wgpu::{Buffer, CommandEncoder, ComputePass};

use super::cache::{stride, Arena, BindKey, WgpuKvCache, KEPT, KV_PIECE};
use super::device::Gpu;
use super::shaders::{Shader, MAX_GEMV_ROWS, THREADS};
use super::shapes::{HeadNorm, Sight};
use super::weights::{Matrix, WgpuWeights, PART};
use super::LogitsMemory;
use crate::backend::{BackendError, Linear, NormWeight, Slot, Step, StreamOperation};
use crate::model::{Config, Gate, Norm, Pooling, Recurrence, Temperature};

/// Encodes the operations of a step.
pub(super) struct Recorder<'a> {
    gpu: &'a Gpu,
    pub(super) weights: &'a WgpuWeights,
    pub(super) kv: &'a mut WgpuKvCache,
    logits: &'a LogitsMemory,
    pass: ComputePass<'static>,
    pub(super) rows: usize,
    outputs: usize,
    /// How many sequences they are of.
    pub(super) runs: usize,
    /// Whether the layer that is computed is recurrent.
    recurrent: bool,
    /// Whether only rows are left whose logits are asked for.
    last: bool,
    /// The position behind the last one of any row.
    end: usize,
    /// What rows see.
    pub(super) sight: Sight,
    /// Whether activations must not be rounded.
    exact: bool,
    /// What the next norm adds first: nothing, or what a norm may stand in front of.
    add: Option<Option<NormWeight>>,
    /// Factor that it gives the residual stream before.
    scale: f32,
}

/// Where in a model an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// Anywhere: wherever it is, it works with the same memory.
    Anywhere,
    Layer(usize),
    Norm(NormWeight),
    Linear(Linear),
}

/// A dispatch: what tells it from others with the same shader, then buffers, constants, and workgroups.
pub(super) struct Dispatch<'b> {
    pub(super) shader: Shader,
    pub(super) place: Place,
    /// Which part of the weights, or of the rows.
    pub(super) part: usize,
    /// Which memory for logits it is about, or none.
    pub(super) logits: u64,
    pub(super) buffers: &'b [(u32, &'b Buffer)],
    pub(super) constants: (u32, &'b [u32]),
    pub(super) groups: [usize; 3],
}

/// Bind groups that are kept, at most.
const MOST_BIND_GROUPS: usize = 1 << 14;

/// Of an operation that has nothing to do with logits.
pub(super) const NO_LOGITS: u64 = 0;

impl<'a> Recorder<'a> {
    /// A step of `rows` rows; the cache has room for it, and its table says what they are.
    pub(super) fn new(
        gpu: &'a Gpu,
        weights: &'a WgpuWeights,
        (kv, logits): (&'a mut WgpuKvCache, &'a LogitsMemory),
        encoder: &mut CommandEncoder,
        [rows, outputs, runs, end]: [usize; 4],
        (sight, exact): (Sight, bool),
    ) -> Self {
        let descriptor = wgpu::ComputePassDescriptor { label: Some("step"), timestamp_writes: None };
        let pass = encoder.begin_compute_pass(&descriptor).forget_lifetime();
        Self {
            gpu,
            weights,
            kv,
            logits,
            pass,
            rows,
            outputs,
            runs,
            recurrent: false,
            last: false,
            end,
            sight,
            exact,
            add: None,
            scale: 1.0,
        }
    }

    /// Behind a step with a token of each sequence: positions become the next ones, on the device and in the copy of its table.
    pub(super) fn advance(mut self) -> Result<(), BackendError> {
        let arena = self.kv.arena.as_mut().ok_or_else(no_room)?;
        let rows = arena.rows;
        arena.table.words_mut()[..rows].iter_mut().for_each(|position| *position = position.wrapping_add(1));
        let table = arena.table.buffer.clone();
        self.run(Dispatch {
            shader: Shader::Advance,
            place: Place::Anywhere,
            part: 0,
            logits: NO_LOGITS,
            buffers: &[(0, &table)],
            constants: (1, &[rows as u32]),
            groups: [rows.div_ceil(THREADS), 1, 1],
        })
    }

    /// The rows of a slot, and how far apart they are.
    pub(super) fn slot(&self, slot: Slot) -> Result<(Buffer, u32), BackendError> {
        // It is normed where products left it.
        let slot = if slot == Slot::QueryRow { Slot::Heads } else { slot };
        let arena = self.kv.arena.as_ref().ok_or_else(no_room)?;
        let kept = if self.last { arena.kept.get(&slot) } else { None };
        let own = arena.recurrent.as_ref().filter(|_| self.recurrent && slot == Slot::Mixed);
        let buffer = kept.or(own.map(|room| &room.mixed)).or_else(|| arena.slots.get(&slot));
        let buffer = buffer.ok_or_else(no_room)?;
        Ok((buffer.clone(), stride(slot, &self.weights.config) as u32))
    }

    pub(super) fn arena(&self) -> Result<&Arena, BackendError> {
        self.kv.arena.as_ref().ok_or_else(no_room)
    }

    /// Encodes a dispatch. Bind groups are made once.
    pub(super) fn run(&mut self, dispatch: Dispatch<'_>) -> Result<(), BackendError> {
        let Dispatch { shader, place, part, logits, buffers, constants, groups } = dispatch;
        let allowed = self.gpu.groups();
        if let Some(&n) = groups.iter().find(|&&n| n > allowed as usize) {
            let what = format!("workgroups of {shader:?}");
            return Err(BackendError::Limit { what, need: n as u64, allowed: allowed.into() });
        }
        let pipeline = self.gpu.pipeline(shader)?;
        let arena = self.kv.arena.as_mut().ok_or_else(no_room)?;
        let key = BindKey { shader, weights: self.weights.id, place, part, logits, last: self.last };
        if !arena.bind_groups.contains_key(&key) {
            // Some may be about logits that are gone.
            if arena.bind_groups.len() >= MOST_BIND_GROUPS {
                arena.bind_groups.clear();
            }
            arena.bind_groups.insert(key, self.gpu.bind(&pipeline, buffers, constants)?);
        }
        self.pass.set_pipeline(&pipeline);
        self.pass.set_bind_group(0, &arena.bind_groups[&key], &[]);
        let [x, y, z] = groups.map(|n| n as u32);
        self.pass.dispatch_workgroups(x, y, z);
        Ok(())
    }

    /// Products of rows of X, from a row on, with matrices; they go to rows of Y, those of one matrix behind those of another. X may be rounded,
    /// and there may be a bias for each number in a row of Y.
    pub(super) fn products(
        &mut self,
        matrices: &[Matrix],
        place: Place,
        (x, y): ((&Buffer, u32, usize), (&Buffer, u32)),
        (rows, logits): (usize, u64),
        (rounded, bias): (Option<&Buffer>, Option<&Buffer>),
    ) -> Result<(), BackendError> {
        let (mut y_first, mut number) = (0, 0);
        for matrix in matrices {
            let rounded = rounded.filter(|_| matrix.format.has_codes());
            for part in &matrix.rows {
                let kind = (matrix.format, matrix.parts());
                let how = [rounded.is_some(), self.f16(), bias.is_some()];
                let (shader, groups) = Shader::product(kind, [part.rows, rows], how, None);
                let first = (y_first + part.first) as u32;
                let constants =
                    [part.rows as u32, matrix.parts(), part.tails, x.1 / 4, y.1, first, x.2 as u32, 0];
                let mut buffers = vec![(0, &part.buffer), (1, rounded.unwrap_or(x.0)), (2, y.0)];
                buffers.extend(bias.map(|bias| (6, bias)));
                self.run(Dispatch {
                    shader,
                    place,
                    part: number,
                    logits,
                    buffers: &buffers,
                    constants: (3, &constants),
                    groups,
                })?;
                number += 1;
            }
            y_first += matrix.height();
        }
        Ok(())
    }

    /// Of a step of one row, `n` rows of X in whole numbers, if that is allowed and worth while: matrices have codes.
    pub(super) fn rounded<'m>(
        &mut self,
        (place, part): (Place, usize),
        mut matrices: impl Iterator<Item = &'m Matrix>,
        (x, x_stride, n): (&Buffer, u32, usize),
    ) -> Result<Option<Buffer>, BackendError> {
        let coded = matrices.find(|matrix| matrix.format.has_codes());
        let Some(matrix) = coded.filter(|_| self.rows == 1 && !self.exact) else { return Ok(None) };
        let (parts, to) = (matrix.parts(), self.arena()?.rounded.clone());
        self.run(Dispatch {
            shader: Shader::Round,
            place,
            part,
            logits: NO_LOGITS,
            buffers: &[(0, x), (1, &to)],
            constants: (2, &[parts, x_stride / 4, 0]),
            groups: [(parts as usize).div_ceil(THREADS), n, 1],
        })?;
        Ok(Some(to))
    }

    /// Whether products of many rows may be in f16.
    pub(super) fn f16(&self) -> bool {
        !self.exact && self.gpu.has_f16()
    }

    /// `Normed`, and `Hidden` too if it `stays`, is the norm of `Hidden`, to which what waits is added before; or `Hidden` itself.
    fn norm_rows(&mut self, norm: Option<NormWeight>, stays: bool) -> Result<(), BackendError> {
        let (config, tensors) = (&self.weights.config, &self.weights.tensors);
        let [(hidden, stride), (normed, _), (delta, _)] =
            [self.slot(Slot::Hidden)?, self.slot(Slot::Normed)?, self.slot(Slot::Delta)?];
        let add = self.add.take();
        let mut buffers = vec![(0, &hidden), (2, &normed)];
        buffers.extend(add.is_some().then_some((4, &delta)));
        let post_norm = add.flatten();
        let post = post_norm.map(|norm| tensors.norm(norm)).transpose()?;
        buffers.extend(post.map(|post| (5, post)));
        let (add, post, layer) = (add.is_some(), post.is_some(), config.norm == Norm::Layer);
        if let Some(norm) = norm {
            buffers.push((1, tensors.norm(norm)?));
            if layer {
                let missing = || BackendError::Unsupported(format!("the model has no bias for {norm:?}"));
                buffers.push((6, tensors.norm_bias(norm).ok_or_else(missing)?));
            }
        }
        let constants = [config.hidden as u32, stride, config.norm_eps.to_bits(), self.scale.to_bits()];
        self.run(Dispatch {
            shader: match norm {
                Some(_) => Shader::Norm { add, post, layer, stays },
                None => Shader::Pass { add, post },
            },
            // What is passed on differs by the weight of what is added.
            place: norm.or(post_norm).map_or(Place::Anywhere, Place::Norm),
            part: 0,
            logits: NO_LOGITS,
            buffers: &buffers,
            constants: (3, &constants),
            groups: [self.rows, 1, 1],
        })
    }
}

/// How much temperatures of scores grow, none, and the positions that share one.
pub(super) fn temperature_constants(config: &Config) -> [u32; 2] {
    let of = config.temperature.unwrap_or(Temperature { scale: 0.0, length: usize::MAX });
    [of.scale.to_bits(), of.length.min(u32::MAX as usize) as u32]
}

/// A step without the memory that is made for it before.
pub(super) fn no_room() -> BackendError {
    BackendError::Unsupported("a step without room for its results".to_owned())
}

impl Step for Recorder<'_> {
    type Error = BackendError;

    fn outputs(&self) -> usize {
        self.outputs
    }

    fn embed(&mut self) -> Result<(), BackendError> {
        self.embed_tokens()
    }

    fn add(&mut self, post: Option<NormWeight>, scale: f32) -> Result<(), BackendError> {
        (self.add, self.scale) = (Some(post), scale);
        Ok(())
    }

    fn norm(&mut self, weight: NormWeight) -> Result<(), BackendError> {
        self.norm_rows(Some(weight), false)
    }

    fn pass(&mut self) -> Result<(), BackendError> {
        self.norm_rows(None, false)
    }

    fn renorm(&mut self, weight: NormWeight) -> Result<(), BackendError> {
        self.norm_rows(Some(weight), true)
    }

    fn linear(&mut self, linear: Linear) -> Result<(), BackendError> {
        let [from, to] = linear.slots();
        let (x, x_stride) = self.slot(from)?;
        let (weights, logits, rows) = (self.weights, self.logits, self.rows);
        // Logits may be in several buffers, some rows in each.
        let results: Vec<(Buffer, u32, usize, usize, u64)> = if to == Slot::Logits {
            let each = logits.rows_of_part;
            let part = |(i, buffer): (usize, &Buffer)| {
                let n = rows.saturating_sub(i * each).min(each);
                (buffer.clone(), weights.config.logits() as u32, i * each, n, logits.id + i as u64)
            };
            logits.parts.iter().enumerate().map(part).filter(|part| part.3 > 0).collect()
        } else {
            let (buffer, stride) = self.slot(to)?;
            vec![(buffer, stride, 0, rows, NO_LOGITS)]
        };
        let (matrices, place) = (weights.tensors.linear(linear), Place::Linear(linear));
        let rounded = self.rounded((place, 0), matrices.iter(), (&x, x_stride, 1))?;
        let with = (rounded.as_ref(), weights.tensors.linear_bias(linear));
        for (y, y_stride, x_row, n, logits) in &results {
            let ends = ((&x, x_stride, *x_row), (y, *y_stride));
            self.products(matrices, place, ends, (*n, *logits), with)?;
        }
        Ok(())
    }

    fn norm_queries(&mut self, layer: usize) -> Result<(), BackendError> {
        self.norm_query_row(layer)
    }

    fn heads(&mut self, layer: usize) -> Result<(), BackendError> {
        if let Some(latent) = self.latent_of(layer) {
            return self.latent_heads(layer, latent);
        }
        let (config, weights) = (&self.weights.config, self.weights);
        let recurrence = config.recurrence_of(layer);
        self.recurrent = recurrence.is_some();
        if let Some(&of) = recurrence {
            return self.convolve(layer, of);
        }
        let (heads, stride) = self.slot(Slot::Heads)?;
        let rope = &config.ropes[config.layer[layer].rope];
        let group = self.kv.group_of[layer];
        let shape = self.kv.shapes[group];
        let (bias, mut norms) = (weights.tensors.bias(layer), weights.tensors.head_norms(layer));
        if let Some(whole) = norms.take_if(|_| config.qk_norm_whole) {
            let [queries, keys] = [shape.heads, shape.kv_heads].map(|n| n * 2 * shape.pairs);
            self.run(Dispatch {
                shader: Shader::NormHeads,
                place: Place::Layer(layer),
                part: 0,
                logits: NO_LOGITS,
                buffers: &[(0, &heads), (1, whole)],
                constants: (2, &[stride, config.norm_eps.to_bits(), queries, keys]),
                groups: [2, self.rows, 1],
            })?;
        }
        let [temperature, stretch] = temperature_constants(config);
        let arena = self.arena()?;
        let constants = [
            stride,
            config.norm_eps.to_bits(),
            rope.dims as u32 / 2,
            arena.runs_at() as u32,
            arena.table_at(group) as u32,
            arena.table_len as u32,
            self.kv.group_pages[group] as u32,
            config.attention_clamp.unwrap_or_default().to_bits(),
            temperature,
            stretch,
            arena.sight_at() as u32,
        ];
        let keys_of = config.layer[layer].keys_of;
        let memory = self.kv.memory[keys_of.unwrap_or(layer)].clone();
        let table = arena.table.buffer.clone();
        let angles = self.kv.angles[config.layer[layer].rope].0.clone();
        let mut buffers = vec![(0, &heads), (1, &memory), (2, &table), (3, &angles)];
        buffers.extend(bias.map(|bias| (5, bias)));
        buffers.extend(norms.map(|norms| (6, norms)));
        let keys = if keys_of.is_some() { 0 } else { 2 * shape.kv_heads };
        self.run(Dispatch {
            shader: Shader::Heads {
                shape,
                bias: bias.is_some(),
                bounded: config.attention_clamp.is_some(),
                norm: norms.map(|_| HeadNorm {
                    centred: config.norm == Norm::Layer,
                    each: config.qk_norm_each,
                    behind: config.qk_norm_behind,
                    values: config.value_norm,
                }),
                pairing: rope.pairing,
                drafts: self.sight == Sight::Path,
            },
            place: Place::Layer(layer),
            part: 0,
            logits: NO_LOGITS,
            buffers: &buffers,
            constants: (4, &constants),
            groups: [(shape.heads + keys) as usize, self.rows, 1],
        })
    }

    fn attend(&mut self, layer: usize) -> Result<(), BackendError> {
        match self.weights.config.recurrence_of(layer) {
            Some(&Recurrence::Linear(of)) => return self.delta_rule(layer, of),
            Some(Recurrence::Convolution(_)) => return Ok(()),
            None => {}
        }
        let (config, sight) = (&self.weights.config, self.sight);
        let (sinks, slopes) = (self.weights.tensors.sinks(layer), self.weights.slopes.as_ref());
        let latent = self.latent_of(layer);
        let [from, to] =
            if latent.is_some() { [Slot::Absorbed, Slot::Weighed] } else { [Slot::Heads, Slot::Mixed] };
        let [(heads, from_stride), (mixed, to_stride)] = [self.slot(from)?, self.slot(to)?];
        let group = self.kv.group_of[layer];
        let shape = self.kv.shapes[group];
        let to_stride = if latent.is_some() { shape.heads * shape.mixed_step() } else { to_stride };
        let window = config.layer[layer].window.map_or(0, |window| window.min(u32::MAX as usize) as u32);
        let arena = self.arena()?;
        let keys_of = config.layer[layer].keys_of.unwrap_or(layer);
        let (memory, table) = (self.kv.memory[keys_of].clone(), arena.table.buffer.clone());
        let pieces = self.end.div_ceil(KV_PIECE);
        let partial = arena.partial.clone().filter(|_| self.rows <= MAX_GEMV_ROWS && pieces > 1);
        let room = partial.as_ref().map_or(1, |partial| partial.1);
        let sight_at = arena.sight_at() as u32;
        let constants = [
            from_stride,
            to_stride,
            config.attention_scale.to_bits(),
            config.attention_softcap.unwrap_or(0.0).to_bits(),
            window,
            arena.runs_at() as u32,
            arena.table_at(group) as u32,
            arena.table_len as u32,
            self.kv.group_pages[group] as u32,
            KV_PIECE as u32,
            room as u32,
            sight_at,
        ];
        let results = partial.as_ref().map_or(&mixed, |partial| &partial.0);
        let (_, chunks) = shape.chunks();
        let groups =
            [if partial.is_some() { pieces } else { 1 }, (shape.kv_heads * chunks) as usize, self.rows];
        let mut buffers = vec![(0, &heads), (1, &memory), (2, &table), (3, results)];
        buffers.extend(sinks.map(|sinks| (5, sinks)));
        buffers.extend(slopes.map(|slopes| (6, slopes)));
        let (pieces, sinks, slopes) = (partial.is_some(), sinks.is_some(), slopes.is_some());
        self.run(Dispatch {
            shader: Shader::Attend { shape, pieces, sinks, slopes, sight },
            place: Place::Layer(layer),
            part: 0,
            logits: NO_LOGITS,
            buffers: &buffers,
            constants: (4, &constants),
            groups,
        })?;
        let Some((partial, _)) = &partial else {
            return latent.map_or(Ok(()), |latent| self.latent_values(layer, latent));
        };
        let mut buffers = vec![(0, partial), (1, &table), (2, &mixed)];
        buffers.extend(shape.gates.then_some((4, &heads)));
        self.run(Dispatch {
            shader: Shader::Join { shape, drafts: sight == Sight::Path },
            place: Place::Layer(layer),
            part: 0,
            logits: NO_LOGITS,
            buffers: &buffers,
            constants: (3, &[to_stride, window, KV_PIECE as u32, room as u32, from_stride, sight_at]),
            groups: [config.heads, self.rows, 1],
        })?;
        latent.map_or(Ok(()), |latent| self.latent_values(layer, latent))
    }

    fn glu(&mut self, layer: usize) -> Result<(), BackendError> {
        self.sparsify(layer)?;
        let config = &self.weights.config;
        let between = config.between(layer);
        let [positive, negative] = config.layer[layer].xielu.unwrap_or_default().map(f32::to_bits);
        let place = if config.gate == Gate::Xielu { Place::Layer(layer) } else { Place::Anywhere };
        let [(gates, from_stride), (activated, to_stride)] =
            [self.slot(Slot::Gates)?, self.slot(Slot::Activated)?];
        self.run(Dispatch {
            shader: Shader::Glu { gate: config.gate, gated: config.gated },
            place,
            // Layers with networks that are as wide have these constants.
            part: between,
            logits: NO_LOGITS,
            buffers: &[(0, &gates), (1, &activated)],
            constants: (2, &[between as u32, from_stride, to_stride, positive, negative]),
            groups: [between.next_multiple_of(PART).div_ceil(THREADS), self.rows, 1],
        })
    }

    fn route(&mut self, layer: usize) -> Result<(), BackendError> {
        self.routes(layer)
    }

    fn experts(&mut self, layer: usize) -> Result<(), BackendError> {
        self.mixture(layer)
    }

    fn put_aside(&mut self, norm: NormWeight) -> Result<(), BackendError> {
        self.set_aside(norm)
    }

    fn join(&mut self, norm: NormWeight) -> Result<(), BackendError> {
        self.join_given(norm)
    }

    fn embed_per_layer(&mut self) -> Result<(), BackendError> {
        self.embed_layers()
    }

    fn gate_per_layer(&mut self, layer: usize) -> Result<(), BackendError> {
        self.gate_layer(layer)
    }

    fn streams(&mut self, operation: StreamOperation) -> Result<(), BackendError> {
        self.on_streams(operation)
    }

    fn last_rows(&mut self) -> Result<(), BackendError> {
        if self.outputs == self.rows {
            return Ok(());
        }
        let config = &self.weights.config;
        let kept: Vec<_> = KEPT.into_iter().filter(|slot| slot.width(config) > 0).collect();
        let all = kept.iter().map(|&slot| self.slot(slot)).collect::<Result<Vec<_>, _>>()?;
        let (table, outputs_at) = {
            let arena = self.arena()?;
            (arena.table.buffer.clone(), arena.outputs_at() as u32)
        };
        self.last = true;
        for (part, (slot, (from, stride))) in kept.into_iter().zip(all).enumerate() {
            let (to, cols) = (self.slot(slot)?.0, slot.width(&self.weights.config));
            self.run(Dispatch {
                shader: Shader::Gather,
                place: Place::Anywhere,
                part,
                logits: NO_LOGITS,
                buffers: &[(0, &from), (1, &to), (2, &table)],
                constants: (3, &[cols as u32, stride, outputs_at]),
                groups: [cols.div_ceil(THREADS), self.outputs, 1],
            })?;
        }
        self.rows = self.outputs;
        Ok(())
    }

    fn pool(&mut self, pooling: Pooling) -> Result<(), BackendError> {
        let (x, stride) = self.slot(Slot::Normed)?;
        let (cols, logits) = (self.weights.config.hidden, self.logits);
        let arena = self.arena()?;
        let (table, ends_at) = (arena.table.buffer.clone(), arena.ends_at() as u32);
        for (i, buffer) in logits.parts.iter().enumerate() {
            let first = i * logits.rows_of_part;
            let runs = self.runs.saturating_sub(first).min(logits.rows_of_part);
            if runs > 0 {
                self.run(Dispatch {
                    shader: Shader::Pool { pooling },
                    place: Place::Anywhere,
                    part: i,
                    logits: logits.id + i as u64,
                    buffers: &[(0, &x), (1, buffer), (2, &table)],
                    constants: (3, &[cols as u32, stride, ends_at, first as u32]),
                    groups: [runs, 1, 1],
                })?;
            }
        }
        Ok(())
    }

    fn cap_logits(&mut self) -> Result<(), BackendError> {
        let Some(cap) = self.weights.config.logit_softcap else { return Ok(()) };
        let (logits, n) = (self.logits, self.weights.config.logits());
        for (i, buffer) in logits.parts.iter().enumerate() {
            let rows = self.rows.saturating_sub(i * logits.rows_of_part).min(logits.rows_of_part);
            if rows > 0 {
                self.run(Dispatch {
                    shader: Shader::Cap,
                    place: Place::Anywhere,
                    part: i,
                    logits: logits.id + i as u64,
                    buffers: &[(0, buffer)],
                    constants: (1, &[n as u32, n as u32, cap.to_bits()]),
                    groups: [n.div_ceil(THREADS), rows, 1],
                })?;
            }
        }
        Ok(())
    }
}
