//! A step of a model on the CPU: its [operations](super::program) are recorded first, and then a [team](super::team) of threads does them.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use gllm_kernels_core::{Features, KernelError, Precision, QgemmPlan, RopePositions, RopeShape};

use super::attention::{Angles, Attention, Joined, OfLayer};
use super::cache::{grow, CpuKvCache};
use super::experts::{Mixture, Room};
use super::head_products::HeadProducts;
use super::latent::{is_expanded, Latent, OfHeads};
use super::product::{How, Product, Way};
use super::program::{Operation, Program};
use super::recurrent::Recurrent;
use super::rows::{Add, NormOf, Positions, Rounded, RowOp, RowWork, Rows};
use super::shares::{BlockTokens, Heads, Shares, Sight, TokenRun};
use super::team::LINE;
use super::weights::{CpuWeights, Matrix};
use crate::backend::{BackendError, ForwardConfig, Linear, NormWeight, Slot, Step, StreamOperation};
use crate::model::{Gate, KvHeads, Norm, Pooling, Recurrence, Rule, Temperature};

/// What a layer with latent attention has.
type LatentMatrices = crate::backend::tensors::Latent<Vec<f32>, Vec<Arc<Matrix>>>;

/// How the last product takes its input, where it would round it to 8 bits. No layer behind it evens out what that loses: it is a third of what the
/// logits of a whole model lose.
enum LogitsBy {
    /// It rounds it: several texts are continued at once, which arithmetic limits.
    Rounded,
    /// It takes each row in two [halves](RowWork::Split), by the plan that rounds one row. For one row, or two, this costs little, as all halves share
    /// the weights that are read.
    Halves(QgemmPlan<f32>),
    /// It takes rows as they are: many rows of a text are judged, on a CPU that multiplies two halves no faster.
    Exact,
}

/// Records the operations of a step.
pub(super) struct Recorder<'a> {
    program: Program,
    pub(super) weights: &'a CpuWeights,
    group_of: Vec<usize>,
    precision: Precision,
    threads: usize,
    /// Number of rows.
    pub(super) rows: usize,
    /// The rows whose logits are requested.
    outputs: Vec<usize>,
    pub(super) tokens: Vec<u32>,
    pub(super) slots: HashMap<Slot, Rows>,
    /// The states of all sequences in each layer that has any.
    states: Vec<Vec<*mut f32>>,
    /// Where the results of convolutions go.
    convolved: Rows,
    /// Two rows for each row of logits, as wide as `Normed`.
    halves: Rows,
    experts: Option<Room>,
    /// The operand that the next norm adds first.
    add: Option<Add>,
    /// Memory for rounded rows, and its length in bytes.
    rounded: *mut u8,
    rounded_len: usize,
}

impl<'a> Recorder<'a> {
    /// A step of these tokens, which continue `runs`: sequences in the order of their tokens, whose earlier positions
    /// are in `kv`. Logits go to `logits`.
    pub(super) fn new(
        weights: &'a CpuWeights,
        kv: &mut CpuKvCache,
        (tokens, runs, outputs): (&[u32], Vec<(crate::model::SequenceId, TokenRun)>, Vec<usize>),
        (config, threads): (&ForwardConfig, usize),
        logits: *mut f32,
    ) -> Result<Self, BackendError> {
        let (model, kernels) = (&weights.config, crate::kernels::<f32>());
        let rows = tokens.len();
        let (sequences, runs): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
        let precision = match config.precision {
            Precision::Exact => Precision::Exact,
            _ => Precision::Fast,
        };
        let expanded = model.latent_attention.filter(|of| is_expanded(of, &runs, precision));
        let share = |(&window, &(heads, _)): (&Option<usize>, &(KvHeads, usize))| {
            let sight = Sight { window, causal: model.causal };
            let heads = Heads::of(model, heads);
            let heads = expanded.map_or(heads, |of| heads.expanded(model.heads, &of));
            Shares::new(sight, &runs, heads, threads)
        };
        let shares: Vec<_> = kv.windows.iter().zip(&kv.heads).map(share).collect();
        let blocks = kv.blocks(&sequences)?;
        let state = |layer: usize| match model.layer[layer].recurrent {
            true => kv.states(layer, &sequences),
            false => Ok(Vec::new()),
        };
        let states = (0..model.layers).map(state).collect::<Result<Vec<_>, _>>()?;
        let channels = model.recurrence.map_or(0, |of| of.channels());
        let convolved = Rows { ptr: grow(&mut kv.workspace.convolved, rows * channels), width: channels };
        // The arena: all slots but the logits, each from a cache line on.
        let width = |slot: Slot| slot.width(model);
        let size = |slot: Slot| (rows * width(slot)).next_multiple_of(LINE / size_of::<f32>());
        let inner: Vec<_> = Slot::ALL.into_iter().filter(|&slot| slot != Slot::Logits).collect();
        let hidden = width(Slot::Normed);
        let len = inner.iter().map(|&slot| size(slot)).sum::<usize>() + 2 * outputs.len() * hidden;
        let mut at = grow(&mut kv.workspace.arena, len);
        let mut slots = HashMap::from([(Slot::Logits, Rows { ptr: logits, width: width(Slot::Logits) })]);
        for slot in inner {
            slots.insert(slot, Rows { ptr: at, width: width(slot) });
            at = at.wrapping_add(size(slot));
        }
        let partial = shares.iter().map(|shares| shares.partial_len).max().unwrap_or(0);
        // Prepared rows take most for the widest input, in as many forms as a product has matrices.
        let inputs = [Slot::Normed, Slot::QueryRow, Slot::Mixed, Slot::Activated];
        let inputs = inputs.into_iter().chain([Slot::PerLayerActivated, Slot::LowRank]);
        let widest = inputs.map(width).max().unwrap_or(0);
        let form = QgemmPlan::<f32>::prepared_bound(rows, widest)?.size();
        let rounded_len = 3 * form.next_multiple_of(LINE);
        let latent = model.latent_attention.map(|of| {
            let queries = if of.query_rank.is_some() { Slot::Queries } else { Slot::Heads };
            let (queries, products) = (slots[&queries], slots[&Slot::Heads]);
            let absorbed = OfHeads { rows: slots[&Slot::Absorbed], step: model.head_dim };
            Latent {
                of,
                heads: model.heads,
                queries,
                cached: (products, products.width - of.cached()),
                absorbed: expanded.is_none().then_some(absorbed),
            }
        });
        let attention = Box::new(Attention {
            blocks,
            latent,
            partial: grow(&mut kv.workspace.partial, partial),
            scale: model.attention_scale,
            softcap: model.attention_softcap,
            slopes: (0..model.heads).filter_map(|head| model.alibi_slope(head)).collect(),
            shares,
            runs,
        });
        let positions = TokenRun::positions(&attention.runs);
        let temperature = model.temperature.as_ref();
        let of_rows =
            |of: &Temperature| positions.iter().map(|&at| of.factor(at as usize)).collect::<Vec<_>>();
        let mut angles = Vec::with_capacity(model.ropes.len());
        for rope in &model.ropes {
            let n = rows * (rope.dims / 2);
            let (mut cos, mut sin) = (vec![0.0; n], vec![0.0; n]);
            if n > 0 {
                rope.freqs().table(RopePositions::Each(&positions), &mut cos, &mut sin)?;
            }
            angles.push(Angles { cos, sin, temperatures: temperature.map_or(Vec::new(), of_rows) });
        }
        let room = |experts| Room::new(model, experts, rows, &mut kv.workspace);
        let experts = model.experts.map(room).transpose()?;
        let program = Program {
            kernels,
            operations: Vec::with_capacity(12 * model.layers + 8),
            weights,
            blocks: BlockTokens::of(&attention.runs),
            attention,
            angles,
            mixtures: Vec::new(),
            recurrent: Vec::new(),
            failed: OnceLock::new(),
        };
        Ok(Self {
            program,
            weights,
            group_of: kv.group_of.clone(),
            precision,
            threads,
            rows,
            outputs,
            tokens: tokens.to_vec(),
            slots,
            states,
            convolved,
            halves: Rows { ptr: at, width: hidden },
            experts,
            add: None,
            rounded: grow(&mut kv.workspace.rounded, rounded_len),
            rounded_len,
        })
    }

    pub(super) fn finish(self) -> Program {
        self.program
    }

    /// Rows of a chunk of an operation on rows: a multiple of `multiple`.
    pub(super) fn step(&self, multiple: usize) -> usize {
        self.rows.div_ceil(4 * self.threads).max(1).next_multiple_of(multiple)
    }

    pub(super) fn push(&mut self, name: &'static str, operation: Operation) {
        self.program.operations.push((name, operation));
    }

    pub(super) fn push_rows(&mut self, name: &'static str, work: RowWork, out: Slot) {
        let (rows, step, out) = (self.rows, self.step(1), self.slots[&out]);
        self.push(name, Operation::Rows(RowOp { rows, step, work, out, rounded: Vec::new() }));
    }

    /// The rows of a slot in a layer.
    fn rows_in(&self, slot: Slot, layer: usize) -> Rows {
        Rows { width: slot.width_in(&self.weights.config, layer), ..self.slots[&slot] }
    }

    /// What the attention of a layer works on.
    fn of_layer(&self, layer: usize) -> OfLayer {
        let sinks = self.weights.tensors.sinks(layer).map(|sinks| &raw const **sinks);
        let (slots, expanded) = match self.program.attention.latent {
            Some(Latent { absorbed: Some(_), .. }) => ([Slot::Absorbed, Slot::Weighed], false),
            Some(Latent { of, .. }) if of.query_rank.is_some() => ([Slot::Queries, Slot::Mixed], true),
            Some(_) => ([Slot::Heads, Slot::Mixed], true),
            None => ([Slot::Heads, Slot::Mixed], false),
        };
        let [from, to] = slots.map(|slot| self.rows_in(slot, layer));
        let values = self.weights.tensors.latent(layer).filter(|_| expanded).map(|of| &raw const *of.values);
        let matrices = values.map(|values| [&raw const *self.weights.key_matrices[layer], values]);
        let keys_of = self.weights.config.layer[layer].keys_of.unwrap_or(layer);
        OfLayer { layer, keys_of, group: self.group_of[layer], sinks, matrices, from, to }
    }

    /// The weight of a norm that the model has.
    pub(super) fn norm_weight(&self, norm: NormWeight) -> Result<*const [f32], BackendError> {
        Ok(&raw const **self.weights.tensors.norm(norm)?)
    }

    /// A norm of the residual stream, which may take its place; or the stream itself.
    fn push_norm(&mut self, norm: Option<NormWeight>, stays: bool) -> Result<(), BackendError> {
        let config = &self.weights.config;
        let of = |norm| {
            let bias = self.weights.tensors.norm_bias(norm).map(|bias| &raw const **bias);
            let (kind, eps) = (config.norm, config.norm_eps);
            Ok::<_, BackendError>(NormOf { kind, weight: self.norm_weight(norm)?, bias, eps })
        };
        let norm = norm.map(of).transpose()?;
        let (add, x, to) = (self.add.take(), self.slots[&Slot::Hidden], self.slots[&Slot::Normed]);
        self.push_rows("norm", RowWork::Norm { add, x, norm, stays, to }, Slot::Normed);
        Ok(())
    }

    /// How products are computed.
    fn how(&self) -> How {
        How { rows: self.rows, precision: self.precision, threads: self.threads, split: false }
    }

    /// How a product with these matrices takes its input: see [`LogitsBy`].
    fn logits_by(&self, linear: Linear, matrices: &[Arc<Matrix>]) -> Result<LogitsBy, KernelError> {
        /// Instructions that multiply bytes and add up the products, at several times the speed of f32.
        const BYTES: [Features; 4] =
            [Features::AVX512_VNNI, Features::AVX_VNNI, Features::DOTPROD, Features::I8MM];
        // Of a step that continues texts each has a row, and of one that judges them several.
        let judges = self.outputs.len() > self.program.attention.runs.len();
        let ([matrix], Linear::Output, Precision::Fast) = (matrices, linear, self.precision) else {
            return Ok(LogitsBy::Rounded);
        };
        let k = &self.program.kernels;
        let features = k.caps().features();
        // Rows whose halves share the weights that are read at no more than a few per cent of a step.
        let few = if features.contains(Features::AVX512_VNNI) { 2 } else { 1 };
        Ok(match Way::new(k, matrix, 1, Precision::Integer)?.rounds() {
            Some(plan) if self.rows <= few => LogitsBy::Halves(plan),
            Some(plan) if judges && BYTES.iter().any(|&bytes| features.contains(bytes)) => {
                LogitsBy::Halves(plan)
            }
            Some(_) if judges => LogitsBy::Exact,
            _ => LogitsBy::Rounded,
        })
    }

    /// A product, plus a bias if there is one, and the rounding of its input.
    fn product(
        &mut self,
        name: &'static str,
        (matrices, bias): (&[Arc<Matrix>], Option<&Vec<f32>>),
        (from, to): (Rows, Rows),
        how: How,
    ) -> Result<(), BackendError> {
        let (mut forms, mut used): (Vec<Rounded>, usize) = (Vec::new(), 0);
        let k = self.program.kernels;
        let (rounded, rounded_len) = (self.rounded, self.rounded_len);
        let room = |plan: QgemmPlan<f32>| {
            if let Some(&there) = forms.iter().find(|there| there.plan.prepares_as(&plan)) {
                return Ok(there);
            }
            let len = plan.prepared_size()?.size().next_multiple_of(LINE);
            if used + len > rounded_len {
                return Err(KernelError::ScratchTooSmall { need: used + len, got: rounded_len });
            }
            let new = Rounded { plan, to: rounded.wrapping_add(used) };
            used += len;
            forms.push(new);
            Ok(new)
        };
        let bias = bias.map(|bias| &raw const **bias);
        let product = Product::new(&k, (matrices, bias), how, (from, to), room)?;
        if !forms.is_empty() {
            let multiple = forms.iter().map(|form| form.plan.prepared_row_step()).max().unwrap_or(1);
            let step = self.step(multiple);
            match self.program.operations.last_mut() {
                // The operation that computes the rows rounds them, too.
                Some((_, Operation::Rows(op)))
                    if op.out.ptr == from.ptr && !matches!(op.work, RowWork::Gather { .. }) =>
                {
                    (op.step, op.rounded) = (step, forms);
                }
                _ => {
                    let op = RowOp { rows: how.rows, step, work: RowWork::Round, out: from, rounded: forms };
                    self.push("round", Operation::Rows(op));
                }
            }
        }
        self.push(name, Operation::Product(product));
        Ok(())
    }

    /// A product of each head with its own matrix, which `which` chooses of those of a layer.
    fn head_products(
        &mut self,
        name: &'static str,
        layer: usize,
        which: impl Fn(&'a LatentMatrices) -> &'a Vec<Arc<Matrix>>,
        rows: [OfHeads; 2],
    ) -> Result<(), BackendError> {
        let missing = || BackendError::Unsupported("latent attention in a layer that has none".to_owned());
        let of: &'a LatentMatrices = self.weights.tensors.latent(layer).ok_or_else(missing)?;
        let products = HeadProducts::new(&self.program.kernels, which(of), self.how(), rows)?;
        self.push(name, Operation::HeadProducts(products));
        Ok(())
    }
}

impl Step for Recorder<'_> {
    type Error = BackendError;

    fn outputs(&self) -> usize {
        self.outputs.len()
    }

    fn embed(&mut self) -> Result<(), BackendError> {
        let positions = TokenRun::positions(&self.program.attention.runs);
        let work = RowWork::Embed {
            table: &self.weights.embedding,
            tokens: self.tokens.clone(),
            scale: self.weights.config.embedding_scale,
            token_type: self.weights.token_type.as_ref().map(|row| &raw const **row),
            positions: self.weights.positions.as_ref().map(|table| Positions { table, of: positions }),
            to: self.slots[&Slot::Hidden],
        };
        self.push_rows("embed", work, Slot::Hidden);
        Ok(())
    }

    fn add(&mut self, post: Option<NormWeight>, scale: f32) -> Result<(), BackendError> {
        let post = post.map(|norm| self.norm_weight(norm)).transpose()?;
        let post = post.map(|weight| (weight, self.weights.config.norm_eps));
        self.add = Some(Add { delta: self.slots[&Slot::Delta], scale, post });
        Ok(())
    }

    fn norm(&mut self, weight: NormWeight) -> Result<(), BackendError> {
        self.push_norm(Some(weight), false)
    }

    fn pass(&mut self) -> Result<(), BackendError> {
        self.push_norm(None, false)
    }

    fn renorm(&mut self, weight: NormWeight) -> Result<(), BackendError> {
        self.push_norm(Some(weight), true)
    }

    fn linear(&mut self, linear: Linear) -> Result<(), BackendError> {
        let name = match linear {
            Linear::Qkv(_) => "qkv",
            Linear::Queries(_) => "queries",
            Linear::AttentionOutput(_) => "attention output",
            Linear::GateUp(_) => "gate, up",
            Linear::Down(_) => "down",
            Linear::PerLayer | Linear::PerLayerGate(_) | Linear::PerLayerOutput(_) => "embeddings of layers",
            Linear::Streams | Linear::Merge(_) => "streams",
            Linear::LowRankDown(_) | Linear::LowRankUp(_) => "low rank",
            Linear::Output => "logits",
        };
        let weights = self.weights;
        let rows = |slot| linear.layer().map_or(self.slots[&slot], |layer| self.rows_in(slot, layer));
        let [from, to] = linear.slots().map(rows);
        let of = (&weights.tensors.linear(linear)[..], weights.tensors.linear_bias(linear));
        match self.logits_by(linear, of.0)? {
            LogitsBy::Rounded => self.product(name, of, (from, to), self.how()),
            LogitsBy::Exact => {
                self.product(name, of, (from, to), How { precision: Precision::Exact, ..self.how() })
            }
            LogitsBy::Halves(plan) => {
                let (rows, halves) = (2 * self.rows, self.halves);
                let work = RowWork::Split { x: from, plan, to: halves };
                let op = RowOp { rows, step: self.step(1), work, out: halves, rounded: Vec::new() };
                self.push("split", Operation::Rows(op));
                let how = How { rows, precision: Precision::Integer, split: true, ..self.how() };
                self.product(name, of, (halves, to), how)
            }
        }
    }

    fn norm_queries(&mut self, layer: usize) -> Result<(), BackendError> {
        let config = &self.weights.config;
        let (weight, eps) = (self.norm_weight(NormWeight::Queries(layer))?, config.state_eps);
        let norm = Some(NormOf { kind: Norm::Rms, weight, bias: None, eps });
        let (x, to) = (self.slots[&Slot::Heads], self.slots[&Slot::QueryRow]);
        self.push_rows("norm", RowWork::Norm { add: None, x, norm, stays: false, to }, Slot::QueryRow);
        Ok(())
    }

    fn heads(&mut self, layer: usize) -> Result<(), BackendError> {
        let config = &self.weights.config;
        if let Some(&of) = config.recurrence_of(layer) {
            let recurrent = Recurrent {
                of,
                vectors: self.weights.tensors.recurrent(layer)?,
                eps: config.state_eps,
                runs: self.program.attention.runs.clone(),
                states: std::mem::take(&mut self.states[layer]),
                from: self.rows_in(Slot::Heads, layer),
                convolved: self.convolved,
                to: self.rows_in(Slot::Mixed, layer),
            };
            self.push("convolution", Operation::Convolve(self.program.recurrent.len()));
            self.program.recurrent.push(recurrent);
            return Ok(());
        }
        if let Some(Latent { of, queries, absorbed: Some(to), .. }) = self.program.attention.latent {
            let from = OfHeads { rows: queries, step: of.query() };
            self.head_products("keys", layer, |of| &of.keys, [from, to])?;
        }
        let angles = config.layer[layer].rope;
        let rope = &config.ropes[angles];
        let shape = RopeShape {
            heads: config.heads,
            head_dim: config.query_step(config.heads_of(layer).dim),
            rot_dim: rope.dims,
            pairing: rope.pairing,
        };
        self.push("heads", Operation::Prepare { of: self.of_layer(layer), shape, angles });
        Ok(())
    }

    fn attend(&mut self, layer: usize) -> Result<(), BackendError> {
        match self.weights.config.recurrence_of(layer) {
            Some(Recurrence::Linear(of)) => {
                self.push("linear attention", Operation::AttendLinear(self.program.recurrent.len() - 1));
                if of.rule == Rule::StateSpace {
                    let weight = &raw const *self.weights.tensors.linear_attention(layer)?.norm;
                    let (x, part) = (self.rows_in(Slot::Mixed, layer), of.normed_together());
                    let work = RowWork::NormParts { x, weight, part, eps: self.weights.config.state_eps };
                    let (rows, step, rounded) = (self.rows, self.step(1), Vec::new());
                    self.push("norm", Operation::Rows(RowOp { rows, step, work, out: x, rounded }));
                }
                return Ok(());
            }
            Some(Recurrence::Convolution(_)) => return Ok(()),
            None => {}
        }
        let of = self.of_layer(layer);
        self.push("attention", Operation::Attend(of));
        if self.program.attention.shares[of.group].is_split() {
            let attention: *const Attention = &*self.program.attention;
            let work = RowWork::Join { pieces: Joined { attention, of }, to: of.to };
            let (rows, step, out) = (self.rows, self.step(1), of.to);
            self.push("join", Operation::Rows(RowOp { rows, step, work, out, rounded: Vec::new() }));
        }
        if let Some(Latent { of: latent, absorbed: Some(_), .. }) = self.program.attention.latent {
            let from = OfHeads { rows: self.of_layer(layer).to, step: latent.rank };
            let to = OfHeads { rows: self.slots[&Slot::Mixed], step: latent.values };
            self.head_products("values", layer, |of| &of.values, [from, to])?;
        }
        Ok(())
    }

    fn glu(&mut self, layer: usize) -> Result<(), BackendError> {
        let gate = self.weights.config.gate;
        let [x, to] = [Slot::Gates, Slot::Activated].map(|slot| self.rows_in(slot, layer));
        let work = match self.weights.config.gated {
            true if gate == Gate::Xielu => {
                return Err(BackendError::Unsupported(format!("{gate:?} with a gate")));
            }
            true => RowWork::Glu { gate, sparsity: self.weights.config.layer[layer].sparsity, x, to },
            false if gate == Gate::ClampedSwiglu => {
                return Err(BackendError::Unsupported(format!("{gate:?} without a gate")));
            }
            false => match self.weights.config.layer[layer].xielu {
                Some(numbers) => RowWork::Xielu { numbers, x, to },
                None => RowWork::Activate { gate, x, to },
            },
        };
        let (rows, step, rounded) = (self.rows, self.step(1), Vec::new());
        self.push("activation", Operation::Rows(RowOp { rows, step, work, out: to, rounded }));
        Ok(())
    }

    fn route(&mut self, layer: usize) -> Result<(), BackendError> {
        let config = &self.weights.config;
        let weights = self.weights.tensors.experts(layer);
        let (Some(experts), Some(room), Some(weights)) = (config.experts, self.experts, weights) else {
            return Err(BackendError::Unsupported("experts in a model that has none".to_owned()));
        };
        let x = self.slots[&Slot::Normed];
        let of = (&weights.router[..], weights.router_bias.as_ref());
        self.product("router", of, (x, room.scores), self.how())?;
        let mixture = Mixture {
            experts,
            gate: config.gate,
            gated: config.gated,
            weights,
            room,
            x,
            delta: self.slots[if experts.normed { &Slot::Given } else { &Slot::Delta }],
            rows: self.rows,
            precision: self.precision,
            threads: self.threads,
            cuts: Mixture::cuts_of(weights, experts, self.rows, self.threads),
        };
        let index = self.program.mixtures.len();
        for (name, stage) in mixture.routes() {
            self.push(name, Operation::Experts { mixture: index, stage });
        }
        self.program.mixtures.push(mixture);
        Ok(())
    }

    fn experts(&mut self, _layer: usize) -> Result<(), BackendError> {
        // Of the layer whose experts were chosen last.
        let Some(mixture) = self.program.mixtures.len().checked_sub(1) else {
            return Err(BackendError::Unsupported("experts that nobody has chosen".to_owned()));
        };
        for (name, stage) in Mixture::STAGES {
            self.push(name, Operation::Experts { mixture, stage });
        }
        Ok(())
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
        self.gate_layer(layer);
        Ok(())
    }

    fn streams(&mut self, operation: StreamOperation) -> Result<(), BackendError> {
        self.on_streams(operation)
    }

    fn last_rows(&mut self) -> Result<(), BackendError> {
        if self.outputs.len() < self.rows {
            let mixed = self.rows_in(Slot::Mixed, self.weights.config.layers - 1);
            let others = [Slot::Hidden, Slot::PerLayer, Slot::Streams, Slot::Predicted];
            let of = others.into_iter().map(|slot| self.slots[&slot]).chain([mixed]).collect();
            let work = RowWork::Gather { rows: self.outputs.clone(), of };
            self.push_rows("gather", work, Slot::Mixed);
            self.rows = self.outputs.len();
        }
        Ok(())
    }

    fn pool(&mut self, pooling: Pooling) -> Result<(), BackendError> {
        let (mut runs, mut end) = (Vec::new(), 0);
        for run in &self.program.attention.runs {
            let own = run.row..run.row + run.tokens;
            let n = self.outputs.iter().filter(|row| own.contains(row)).count();
            runs.push(end..end + n);
            end += n;
        }
        let (x, step) = (self.slots[&Slot::Normed], self.step(1));
        let out = Rows { ptr: self.slots[&Slot::Logits].ptr, width: x.width };
        let (rows, rounded) = (runs.len(), Vec::new());
        let work = RowWork::Pool { pooling, runs, x, to: out };
        self.push("pool", Operation::Rows(RowOp { rows, step, work, out, rounded }));
        Ok(())
    }

    fn cap_logits(&mut self) -> Result<(), BackendError> {
        if let Some(cap) = self.weights.config.logit_softcap {
            let x = self.slots[&Slot::Logits];
            self.push_rows("cap", RowWork::Cap { x, cap }, Slot::Logits);
        }
        Ok(())
    }
}
