//! A step on a GPU: operations become launches, once those behind them say in which form they take their results.

use std::ops::Range;

use super::arena::{Memory, Numbers, Place, Wanted};
use super::cache::head_room;
use super::experts::experts_of_places;
use super::layout::{Access, Layout, Plan};
use super::product::Spread;
use super::rows::{Rows, Way, ATTENTION_ROWS};
use super::weights::{Product, Stored};
use super::Gpu;
use crate::backend::{BackendError, Linear, NormWeight, Slot, Step, StreamOperation};
use crate::cuda::decoder::{AddNorm, Attend, Forms, Gated, Heads, Take};
use crate::cuda::geometry::KV_PIECE;
use crate::cuda::linear::{GateKind, Gates};
use crate::cuda::{self, Buffer, CudaError, Mask, Ops, PageTables, Prefill};
use crate::model::{KvHeads, Norm, Pooling, Recurrence};

/// What has been asked for, but waits for whoever takes it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiting<'a> {
    Nothing,
    /// A norm, and whether its results become the residual stream.
    Norm(NormWeight, bool),
    /// The residual stream itself.
    Hidden,
    Attention(usize),
    /// What a layer makes of its embeddings of tokens.
    PerLayer(usize),
    /// Gates behind what a recurrent layer has in place of attention.
    RecurrentGates(usize, &'a Recurrence),
    /// A layer's gates and what they are for, as this product gave them; with their biases, if they have any.
    Gate(usize, &'a Product, Biases<'a>),
    /// The row of a layer that the second product of its queries takes.
    QueryRow(usize),
    /// Rows that were kept in f32: all of them, or the row of each pair of a row and an expert, sorted by expert.
    Kept,
    Pairs,
}

/// What is added to gates, and to what they are for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Biases<'a> {
    /// The same to all rows, if anything: to gates alone.
    Gates(Option<&'a Buffer<f32>>),
    /// To each row that of its expert.
    Experts([&'a Buffer<f32>; 2]),
}

/// Turns operations into launches; without memory, into a plan for it.
pub(super) struct Lowering<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) weights: &'a Stored,
    pub(super) rows: &'a Rows,
    pub(super) memory: Option<(Memory<'a>, &'a Layout<Place>)>,
    pub(super) plan: Plan<Place>,
    /// Rows that operations have from here on.
    pub(super) m: usize,
    pub(super) waiting: Waiting<'a>,
    /// Where products find rows in f32.
    pub(super) inputs: Place,
    /// What the next norm adds: nothing, or `Delta`, which is normed before by this weight.
    add: Option<Option<NormWeight>>,
    /// What `Delta` has yet to get.
    delta_bias: Option<&'a Buffer<f32>>,
    /// What the next norm adds to all rows.
    bias: Option<&'a Buffer<f32>>,
    /// Factor that the next norm gives the residual stream before.
    scale: f32,
    /// Where the residual stream is, and whether the next norm leaves rows of it out.
    hidden: Place,
    fewer: bool,
    /// Where embeddings for each layer are.
    pub(super) per_layer: Place,
    /// How rows go through the experts that were chosen for them.
    pub(super) spread: Option<Spread>,
    /// What the last product of gates was, and what is added to these, if anything.
    gates: Option<(&'a Product, Option<&'a Buffer<f32>>)>,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(
        gpu: &'a Gpu,
        weights: &'a Stored,
        rows: &'a Rows,
        memory: Option<(Memory<'a>, &'a Layout<Place>)>,
    ) -> Self {
        Self {
            gpu,
            weights,
            rows,
            memory,
            plan: Plan::new(),
            m: rows.rows,
            waiting: Waiting::Nothing,
            add: None,
            delta_bias: None,
            bias: None,
            scale: weights.config.embedding_scale,
            hidden: Place::Hidden,
            fewer: false,
            per_layer: Place::PerLayer,
            spread: None,
            inputs: Place::Inputs,
            gates: None,
        }
    }

    /// Elements of a place; `bytes` each.
    pub(super) fn size(&mut self, place: Place, elements: usize, bytes: usize) {
        self.plan.size(place, elements * bytes);
    }

    /// The operation's uses of the arena, and what it launches if there is memory.
    pub(super) fn launch(
        &mut self,
        uses: &[(Place, Access)],
        work: impl FnOnce(&mut Memory<'a>, &Layout<Place>, &'a Gpu) -> Result<(), CudaError>,
    ) -> Result<(), BackendError> {
        self.plan.operation(uses);
        match &mut self.memory {
            Some((memory, layout)) => Ok(work(memory, layout, self.gpu)?),
            None => Ok(()),
        }
    }

    /// The width of a slot.
    fn width(&self, slot: Slot) -> usize {
        slot.width(&self.weights.config)
    }

    /// Computes what waits, in the forms that are wanted.
    pub(super) fn produce(&mut self, wanted: Wanted) -> Result<(), BackendError> {
        let (m, weights) = (self.m, self.weights);
        self.inputs = wanted.rows.unwrap_or(Place::Inputs);
        self.size(self.inputs, if wanted.rows.is_some() { m * wanted.cols } else { 0 }, 4);
        self.size(Place::Half, if wanted.half.is_some() { m * wanted.cols } else { 0 }, 2);
        let outputs = [(self.inputs, Access::Write), (Place::Half, Access::Write)];
        match std::mem::replace(&mut self.waiting, Waiting::Nothing) {
            Waiting::Norm(weight, stays) => self.norm_rows((weight, stays), wanted, &outputs),
            Waiting::Hidden => self.hidden_rows(wanted, outputs),
            Waiting::Attention(layer) => match weights.config.latent_attention {
                Some(_) => self.latent_attention(layer, wanted, outputs),
                None => self.attention(layer, wanted, outputs),
            },
            Waiting::QueryRow(layer) => self.query_row(layer, wanted, outputs),
            Waiting::RecurrentGates(layer, of) => self.recurrent_gates((layer, of), wanted, outputs),
            Waiting::Gate(layer, product, biases) => self.gate(layer, (product, biases), wanted, outputs),
            Waiting::PerLayer(layer) => self.per_layer(layer, wanted, outputs),
            Waiting::Kept => self.kept(wanted, outputs[1]),
            Waiting::Pairs => self.pairs(wanted, outputs),
            Waiting::Nothing => {
                Err(BackendError::Unsupported("a product whose input nothing computes".to_owned()))
            }
        }
    }

    /// The residual stream as it is.
    fn hidden_rows(
        &mut self,
        wanted: Wanted,
        [inputs, half]: [(Place, Access); 2],
    ) -> Result<(), BackendError> {
        let (m, from, cols) = (self.m, self.hidden, wanted.cols);
        self.launch(&[(from, Access::Read), inputs, half], |memory, layout, gpu| {
            let x = memory.floats(layout, from, 0, m * cols)?.into_view();
            let forms = memory.forms(layout, wanted, m)?;
            gpu.ops.decoder_rows(&gpu.stream, (x, None, None), Take::All, forms)
        })
    }

    fn norm_rows(
        &mut self,
        (norm, stays): (NormWeight, bool),
        wanted: Wanted,
        outputs: &[(Place, Access)],
    ) -> Result<(), BackendError> {
        let (weights, m, from) = (self.weights, self.m, self.hidden);
        let config = &weights.config;
        // Several blocks of a row read all of it.
        let to = if from == Place::Hidden { Place::Next } else { Place::Hidden };
        self.size(to, m * config.hidden, 4);
        let mut uses = [&[(from, Access::Read), (to, Access::Write)], outputs].concat();
        let (add, fewer) = (self.add.take(), std::mem::take(&mut self.fewer));
        if add.is_some() {
            uses.push((Place::Delta, Access::Read));
        }
        let weight = weights.tensors.norm(norm)?.view();
        let norm_bias = weights.tensors.norm_bias(norm).filter(|_| config.norm == Norm::Layer);
        let norm_bias = norm_bias.map(Buffer::view);
        let bias = self.bias.take().map(Buffer::view);
        let post = add.flatten().map(|post| weights.tensors.norm(post)).transpose()?.map(Buffer::view);
        let (all, hidden, kind, eps) = (self.rows.rows, config.hidden, config.norm, config.norm_eps);
        let scale = std::mem::replace(&mut self.scale, 1.0);
        self.hidden = to;
        self.launch(&uses, |memory, layout, gpu| {
            let (count, rows) = if fewer { (all, Some(memory.outputs)) } else { (m, None) };
            let x = memory.floats(layout, from, 0, count * hidden)?.into_view();
            let y = memory.floats(layout, to, 0, m * hidden)?;
            let delta = match add {
                Some(_) => Some(memory.floats(layout, Place::Delta, 0, m * hidden)?.into_view()),
                None => None,
            };
            let how = AddNorm { x, rows, y, delta, bias, post, kind, weight, norm_bias, eps, scale, stays };
            let forms = memory.forms(layout, wanted, m)?;
            gpu.ops.decoder_norm(&gpu.stream, how, forms)
        })
    }

    fn attention(
        &mut self,
        layer: usize,
        wanted: Wanted,
        [inputs, half]: [(Place, Access); 2],
    ) -> Result<(), BackendError> {
        let config = &self.weights.config;
        let sinks = self.weights.tensors.sinks(layer).map(Buffer::view);
        let slopes = self.weights.slopes.as_ref().map(Buffer::view);
        // Rows of heads as the cache has them; behind the last kernel they are as the model has them.
        let own = config.heads_of(layer).dim;
        let keys_of = config.layer[layer].keys_of.unwrap_or(layer);
        let (rows, m, dim) = (self.rows, self.m, head_room(own));
        let (heads, width, window) = (config.heads, config.heads * dim, config.layer[layer].window);
        let head = (own, dim);
        let (scale, cap) = (config.attention_scale, config.attention_softcap);
        // In pieces, straight to whoever takes it; or row by row first.
        let ways = rows.ways(config, dim);
        let tensor = ways.iter().any(|(_, way)| matches!(way, Way::Run(_)));
        let (pieces, piece) = match dim > Prefill::MOST {
            true => rows.wide_pieces(),
            false => (rows.pieces, KV_PIECE),
        };
        // More find room with fewer pieces.
        let most = ATTENTION_ROWS * rows.pieces / pieces;
        let at_once = rows.rows <= most && !tensor && !config.attention_gates;
        let part = rows.rows.min(most);
        self.size(Place::Partial, Ops::partial_len(part, heads, pieces, dim)?, 4);
        let mut uses = vec![(Place::Queries, Access::Read), (Place::Partial, Access::Write), inputs, half];
        if !at_once {
            self.size(Place::Mixed, rows.rows * width, 4);
            uses.push((Place::Mixed, Access::Write));
        }
        if config.attention_gates {
            uses.push((Place::Heads, Access::Read));
        }
        let products = self.weights.tensors.linear(Linear::Qkv(layer)).member(0, rows.rows);
        let some = m < rows.rows;
        self.launch(&uses, |memory, layout, gpu| {
            let (ops, stream) = (&gpu.ops, &gpu.stream);
            let group = memory.group_of[layer];
            let tables = PageTables { pages: memory.tables[group], len: memory.table_len };
            let which = some.then_some(memory.outputs);
            let attend = |memory: &Memory<'a>, of: Range<usize>, halves: bool| {
                let queries = memory.floats(layout, Place::Queries, of.start * width, of.len() * width)?;
                Ok::<_, CudaError>(Attend {
                    rows: memory.rows.range(of)?,
                    heads,
                    scale,
                    window,
                    cap,
                    sinks,
                    slopes,
                    pieces,
                    piece,
                    halves,
                    queries: queries.into_view(),
                })
            };
            // What pieces give some of the rows that have room for that together.
            let partial = |memory: &Memory<'a>, of: Range<usize>| {
                let [from, len] =
                    [of.start, of.len()].map(|count| Ops::partial_len(count, heads, pieces, dim));
                memory.floats(layout, Place::Partial, from?, len?)
            };
            if at_once {
                for (of, way) in &ways {
                    let how = attend(memory, of.clone(), matches!(way, Way::Tiles))?;
                    let room = partial(memory, of.clone())?;
                    ops.decoder_attend(stream, (memory.layers[keys_of].kv()?, tables), &how, room)?;
                }
                let how = attend(memory, 0..rows.rows, false)?;
                let from = (partial(memory, 0..rows.rows)?.into_view(), dim, which);
                let (cache, forms) = memory.cache_and_forms(layout, keys_of, wanted, m)?;
                return ops.decoder_join(stream, (cache, tables), &how, from, forms);
            }
            for (of, way) in &ways {
                let Way::Run(run) = way else {
                    for from in of.clone().step_by(most) {
                        let some = from..of.end.min(from + most);
                        let how = attend(memory, some.clone(), matches!(way, Way::Tiles))?;
                        let mut room = partial(memory, 0..some.len())?;
                        let cache = (memory.layers[keys_of].kv()?, tables);
                        ops.decoder_attend(stream, cache, &how, room.reborrow())?;
                        let mixed = memory.floats(layout, Place::Mixed, from * width, some.len() * width)?;
                        let forms =
                            Forms { cols: width, rows: Some(mixed), half: None, integer: None, exact: None };
                        ops.decoder_join(stream, cache, &how, (room.into_view(), dim, None), forms)?;
                    }
                    continue;
                };
                let q = memory.floats(layout, Place::Queries, 0, rows.rows * width)?.into_view();
                let y = memory.floats(layout, Place::Mixed, 0, rows.rows * width)?;
                let mask = match (window, config.causal) {
                    (Some(window), true) => Mask::Window(window),
                    (Some(window), false) => Mask::Around(window),
                    (None, true) => Mask::Causal,
                    (None, false) => Mask::Full,
                };
                let how = Prefill { heads, scale, mask, longest: run.tokens, sinks, slopes };
                let table = run.slot * tables.len..(run.slot + 1) * tables.len;
                let own = PageTables { pages: tables.pages.range(table)?, len: tables.len };
                let starts = memory.starts.range(run.index..run.index + 2)?;
                let lengths = memory.rows.lengths.range(of.end - 1..of.end)?;
                let cache = (memory.layers[keys_of].kv()?, own);
                ops.attention_prefill(stream, cache, (starts, lengths), how, q, y)?;
            }
            let x = memory.floats(layout, Place::Mixed, 0, rows.rows * width)?.into_view();
            if config.attention_gates {
                let len = rows.rows * Slot::Heads.width_in(config, layer);
                let (first, stride) = products;
                let gates = memory.floats(layout, Place::Heads, 0, len)?.into_view();
                let gates = (gates.range(first + head.0..len)?, stride);
                let (kind, step) = (GateKind::Sigmoid, config.query_step(own));
                let how = Gates { x, dim: head.0, room: dim, rows: which, gates, step, kind, eps: 0.0 };
                return ops.linear_gates(stream, how, memory.forms(layout, wanted, m)?);
            }
            let forms = memory.forms(layout, wanted, m)?;
            ops.decoder_rows(stream, (x, which, None), Take::Padded { dim: head.0, room: head.1 }, forms)
        })
    }

    fn gate(
        &mut self,
        layer: usize,
        (product, biases): (&'a Product, Biases<'a>),
        wanted: Wanted,
        [inputs, half]: [(Place, Access); 2],
    ) -> Result<(), BackendError> {
        let (m, members, config) = (self.m, product.members.len(), &self.weights.config);
        let (gate, numbers) = (config.gate, config.layer[layer].xielu);
        let mut uses = vec![(Place::Gates, Access::Read), inputs, half];
        if let Biases::Experts(_) = biases {
            uses.push((Place::Routes, Access::Read));
        }
        self.launch(&uses, |memory, layout, gpu| {
            let all = memory.floats(layout, Place::Gates, 0, m * members * wanted.cols)?.into_view();
            let part = |member| {
                let (from, stride) = product.member(member, m);
                Ok::<_, CudaError>((all.range(from..all.len())?, stride))
            };
            let up = if members > 1 { Some(part(1)?) } else { None };
            let (bias, experts) = match biases {
                Biases::Gates(bias) => ([bias.map(Buffer::view), None], None),
                Biases::Experts(biases) => {
                    (biases.map(|bias| Some(bias.view())), Some(experts_of_places(memory, layout, m)?))
                }
            };
            let how = Gated { gate, numbers, rows: m, x: part(0)?, up, bias, experts };
            let forms = memory.forms(layout, wanted, m)?;
            gpu.ops.decoder_gate(&gpu.stream, how, forms)
        })
    }
}

impl Step for Lowering<'_> {
    type Error = BackendError;

    fn outputs(&self) -> usize {
        self.rows.outputs
    }

    fn embed(&mut self) -> Result<(), BackendError> {
        let weights = self.weights;
        let hidden = weights.config.hidden;
        self.look_up((&weights.embedding, hidden), Numbers::Tokens, Place::Hidden)?;
        self.temperatures()?;
        // The first norm adds what else a token's row has.
        self.bias = weights.token_type.as_ref();
        if let Some(table) = &weights.positions {
            self.look_up((table, hidden), Numbers::Positions, Place::Delta)?;
            self.add = Some(None);
        }
        Ok(())
    }

    fn add(&mut self, post: Option<NormWeight>, scale: f32) -> Result<(), BackendError> {
        self.add = Some(post);
        self.scale *= scale;
        self.bias = self.delta_bias.take();
        Ok(())
    }

    fn norm(&mut self, weight: NormWeight) -> Result<(), BackendError> {
        self.waiting = Waiting::Norm(weight, false);
        Ok(())
    }

    fn pass(&mut self) -> Result<(), BackendError> {
        if self.add.is_some() || self.bias.is_some() || self.fewer || self.scale != 1.0 {
            // A norm adds, whose results nobody takes.
            let nothing = Wanted::nothing(self.weights.config.hidden);
            self.norm_rows((NormWeight::Output, false), nothing, &[])?;
        }
        self.waiting = Waiting::Hidden;
        Ok(())
    }

    fn renorm(&mut self, weight: NormWeight) -> Result<(), BackendError> {
        self.waiting = Waiting::Norm(weight, true);
        Ok(())
    }

    fn linear(&mut self, linear: Linear) -> Result<(), BackendError> {
        let product = self.weights.tensors.linear(linear);
        let mut wanted = self.wanted(product, self.m);
        let normed = self.weights.config.experts.is_some_and(|experts| experts.normed);
        if matches!(linear, Linear::GateUp(l) if self.weights.config.layer[l].experts && !normed) {
            // Experts take the same rows.
            wanted.rows = Some(Place::Normed);
        }
        self.produce(wanted)?;
        let [_, slot] = linear.slots();
        let to = match slot {
            Slot::Heads => Some(Place::Heads),
            Slot::Queries => Some(Place::Queries),
            Slot::Gates | Slot::PerLayerGates => Some(Place::Gates),
            Slot::PerLayerProducts => Some(Place::PerLayerProducts),
            Slot::Logits => None,
            _ => Some(Place::Delta),
        };
        if let Some(to) = to {
            let elements = self.m * self.width(slot);
            self.size(to, elements, 4);
        }
        let bias = self.weights.tensors.linear_bias(linear);
        if let Linear::GateUp(_) = linear {
            self.gates = Some((product, bias));
        }
        if to == Some(Place::Delta) {
            self.delta_bias = bias;
        }
        self.multiply(product, to, None)?;
        match bias.filter(|_| linear == Linear::Output) {
            Some(bias) => self.add_to_logits(bias),
            None => Ok(()),
        }
    }

    fn norm_queries(&mut self, layer: usize) -> Result<(), BackendError> {
        self.waiting = Waiting::QueryRow(layer);
        Ok(())
    }

    fn heads(&mut self, layer: usize) -> Result<(), BackendError> {
        let (weights, m) = (self.weights, self.m);
        let config = &weights.config;
        if let Some(of) = config.recurrence_of(layer) {
            return self.recurrence(layer, of);
        }
        if let Some(of) = &config.latent_attention {
            return self.latent_heads(layer, of);
        }
        let rope = &config.ropes[config.layer[layer].rope];
        let product = weights.tensors.linear(Linear::Qkv(layer));
        let KvHeads { count, dim } = config.heads_of(layer);
        let keys_of = config.layer[layer].keys_of.unwrap_or(layer);
        let keys = keys_of == layer;
        let (width, queries) = (Slot::Heads.width_in(config, layer), config.heads * head_room(dim));
        let norms = weights.tensors.head_norms(layer).map(Buffer::view);
        let mut uses = vec![(Place::Heads, Access::Read), (Place::Queries, Access::Write)];
        uses.extend(config.temperature.map(|_| (Place::Temperatures, Access::Read)));
        // Queries and keys that are normed as a whole, which are products of their own.
        let rows = [config.heads, count].map(|heads| heads * dim);
        let (whole, of_heads) = if config.qk_norm_whole { (norms, None) } else { (None, norms) };
        if whole.is_some() {
            self.size(Place::NormedHeads, m * (rows[0] + rows[1]), 4);
            uses.push((Place::NormedHeads, Access::Write));
        }
        self.size(Place::Queries, m * queries, 4);
        self.launch(&uses, |memory, layout, gpu| {
            let all = memory.floats(layout, Place::Heads, 0, m * width)?.into_view();
            let part = |member| {
                let (from, stride) = product.member(member, m);
                let (Some(weights), true) = (whole, member < rows.len()) else {
                    return Ok::<_, CudaError>((all.range(from..all.len())?, stride));
                };
                let (first, cols) = (member * rows[0], rows[member]);
                let weight = Some(weights.range(first..first + cols)?);
                let norm = cuda::Norm { weight, bias: None, eps: config.norm_eps };
                let place = || memory.floats(layout, Place::NormedHeads, m * first, m * cols);
                let x = all.range(from..from + m * cols)?;
                gpu.ops.rms_norm(&gpu.stream, cols, norm, x, place()?)?;
                Ok((place()?.into_view(), cols))
            };
            let [cos, sin] = &memory.angles[config.layer[layer].rope];
            let how = Heads {
                x: if keys { [part(0)?, part(1)?, part(2)?] } else { [part(0)?; 3] },
                keys,
                bias: weights.tensors.bias(layer).map(Buffer::view),
                norm: of_heads,
                values: config.value_norm && keys,
                each: config.qk_norm_each,
                kind: config.norm,
                behind: config.qk_norm_behind,
                eps: config.norm_eps,
                bound: config.attention_clamp,
                angles: (cos.view(), sin.view()),
                rot_dim: rope.dims,
                temperatures: memory.temperatures_of_rows(layout, m)?,
                pairing: rope.pairing,
                step: config.query_step(dim),
                heads: config.heads,
                dim,
                queries: memory.floats(layout, Place::Queries, 0, m * queries)?,
            };
            let tables = PageTables { pages: memory.tables[memory.group_of[layer]], len: memory.table_len };
            let rows = memory.rows;
            gpu.ops.decoder_heads(&gpu.stream, (memory.layers[keys_of].kv_mut()?, tables), rows, how)
        })
    }

    fn attend(&mut self, layer: usize) -> Result<(), BackendError> {
        self.waiting = match self.weights.config.recurrence_of(layer) {
            Some(of) => Waiting::RecurrentGates(layer, of),
            None => Waiting::Attention(layer),
        };
        Ok(())
    }

    fn glu(&mut self, layer: usize) -> Result<(), BackendError> {
        let gate = |(gates, bias)| Waiting::Gate(layer, gates, Biases::Gates(bias));
        self.waiting = self.gates.map_or(Waiting::Nothing, gate);
        Ok(())
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
        self.waiting = Waiting::PerLayer(layer);
        Ok(())
    }

    fn streams(&mut self, _: StreamOperation) -> Result<(), BackendError> {
        Err(BackendError::Unsupported("several residual streams through CUDA or ROCm".to_owned()))
    }

    fn last_rows(&mut self) -> Result<(), BackendError> {
        self.fewer_of_layers()?;
        self.fewer = self.rows.outputs < self.rows.rows;
        self.m = self.rows.outputs;
        Ok(())
    }

    fn pool(&mut self, pooling: Pooling) -> Result<(), BackendError> {
        let (m, cols, runs) = (self.m, self.weights.config.hidden, self.rows.runs.len());
        self.produce(Wanted::plain(cols, Place::Inputs))?;
        self.launch(&[(Place::Inputs, Access::Read)], |memory, layout, gpu| {
            let x = memory.floats(layout, Place::Inputs, 0, m * cols)?.into_view();
            let starts = memory.pools.range(0..runs + 1)?;
            let y = memory.logits_of(0, runs * cols)?;
            gpu.ops.decoder_pool(&gpu.stream, pooling, (x, cols), starts, y)
        })
    }

    fn cap_logits(&mut self) -> Result<(), BackendError> {
        let Some(cap) = self.weights.config.logit_softcap else { return Ok(()) };
        let len = self.m * self.weights.config.logits();
        self.launch(&[], |memory, _, gpu| gpu.ops.decoder_cap(&gpu.stream, cap, memory.logits_of(0, len)?))
    }
}
