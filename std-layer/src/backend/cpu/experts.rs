//! A mixture of experts: routing of rows to experts, and the products of each expert with the rows that chose it.
//!
//! The pairs of a row and one of its experts are sorted by expert, so that all rows of an expert are multiplied together. They
//! are called a segment. The number of segments and their lengths are known only when rows have been routed, but operations are
//! recorded before that. So they have chunks for as many segments as there could be, and a chunk without a segment does nothing.

use std::ops::Range;

use gllm_kernels_core::{KernelError, Kernels, MatMut, MatRef, Precision, QgemmPlan};

use super::cache::{grow, Workspace};
use super::product::{chunk_rows, Way};
use super::rows::{activate, glu, sigmoid, Rounded, Rows};
use super::team::{Memory, LINE};
use super::weights::{Expert, ExpertWeights};
use crate::model::{Config, Experts, Gate, Groups, Scoring};

/// If there are no more rows than this, one chunk routes and sorts all of them.
const SORTED_AT_ONCE: usize = 8;

/// Gate and up take prepared rows from the same place, or each from its own if their formats differ; down from the third.
const FORMS: usize = 3;

/// Memory for the experts of a step, the same for all layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Products of the router, then scores: a row for each token.
    pub(super) scores: Rows,
    /// Inputs and results of experts: a row for each pair, sorted by expert.
    inputs: Rows,
    gates: Rows,
    activated: Rows,
    outputs: Rows,
    /// The factor of each pair, and its expert, row by row; then its place among the sorted ones.
    factors: *mut f32,
    chosen: *mut u32,
    places: *mut u32,
    /// The row of each sorted pair.
    row_of: *mut u32,
    /// Where the pairs of each expert begin, and where the last ones end.
    starts: *mut u32,
    /// The experts that have rows, and how many these are.
    active: *mut u32,
    active_len: *mut u32,
    /// Prepared rows, and the bytes that a row has at most.
    prepared: [(*mut u8, usize); FORMS],
}

impl Room {
    /// Room for `rows` rows.
    pub(super) fn new(
        config: &Config,
        experts: Experts,
        rows: usize,
        workspace: &mut Workspace,
    ) -> Result<Self, KernelError> {
        let (count, pairs) = (experts.count, rows * experts.used);
        // Floats: each array from a cache line on.
        let between = if config.gated { 2 } else { 1 } * experts.intermediate;
        let widths = [config.hidden, between, experts.intermediate, config.hidden, 1];
        let size = |rows: usize, width: usize| (rows * width).next_multiple_of(LINE / size_of::<f32>());
        let len = size(rows, count) + widths.iter().map(|&width| size(pairs, width)).sum::<usize>();
        let mut at = grow(&mut workspace.experts, len);
        let mut take = |rows: usize, width: usize| {
            let ptr = at;
            at = at.wrapping_add(size(rows, width));
            Rows { ptr, width }
        };
        let scores = take(rows, count);
        let [inputs, gates, activated, outputs, factors] = widths.map(|width| take(pairs, width));
        let mut at = grow(&mut workspace.routes, 3 * pairs + 2 * count + 2);
        let mut words = |len: usize| {
            let ptr = at;
            at = at.wrapping_add(len);
            ptr
        };
        let [chosen, places, row_of] = [pairs; 3].map(&mut words);
        let [starts, active, active_len] = [count + 1, count, 1].map(words);
        let row = |cols| Ok(QgemmPlan::<f32>::prepared_bound(1, cols)?.size().next_multiple_of(LINE));
        let bytes = [row(config.hidden)?, row(config.hidden)?, row(experts.intermediate)?];
        let mut at = grow(&mut workspace.prepared, pairs * bytes.iter().sum::<usize>());
        let prepared = bytes.map(|bytes| {
            let ptr = at;
            at = at.wrapping_add(pairs * bytes);
            (ptr, bytes)
        });
        let factors = factors.ptr;
        Ok(Self {
            scores,
            inputs,
            gates,
            activated,
            outputs,
            factors,
            chosen,
            places,
            row_of,
            starts,
            active,
            active_len,
            prepared,
        })
    }
}

/// The stages of a layer's experts, in their order. The router's products come before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Chooses experts, row by row.
    Route,
    /// Sorts pairs; of a few rows, it routes them, too.
    Sort,
    /// Brings the rows of each expert together, and prepares them for its products.
    Gather,
    /// Products with gate and up.
    GateUp,
    /// The activation, prepared for the last product.
    Activate,
    /// Products with down.
    Down,
    /// Sums for each row.
    Combine,
}

/// A layer's experts in a step.
#[derive(Debug)]
pub(super) struct Mixture {
    pub(super) experts: Experts,
    pub(super) gate: Gate,
    /// Whether they have gates.
    pub(super) gated: bool,
    pub(super) weights: *const ExpertWeights,
    pub(super) room: Room,
    /// The rows, and where results go.
    pub(super) x: Rows,
    pub(super) delta: Rows,
    pub(super) rows: usize,
    pub(super) precision: Precision,
    pub(super) threads: usize,
    /// How many rows of weights a chunk of a product has, and how many chunks a segment: for gate and up together, and for down. Threads that come
    /// late ask for the number of chunks when the weights may be gone.
    pub(super) cuts: [(usize, usize); 2],
}

/// The rows of one expert.
struct Segment {
    expert: usize,
    rows: Range<usize>,
}

/// In place of the score of an expert that cannot be taken any more. Scores are finite, or no numbers.
const TAKEN: f32 = f32::NEG_INFINITY;

/// How near the largest product others are that are scored with it, of the larger one of both magnitudes.
const NEAR: f32 = 0.02;

/// The share of an expert with the largest product among those that are near it and left: see [`Scoring::SparseMixer`].
fn share_of_near(products: &[f32], expert: usize) -> f32 {
    let most = products[expert];
    let near = products.iter().filter(|&&x| x != TAKEN && most - x <= NEAR * x.abs().max(most));
    1.0 / near.map(|x| (x - most).exp()).sum::<f32>()
}

/// What decides whether an expert is taken. Negative infinity is below all numbers.
fn merit(scores: &[f32], bias: Option<&[f32]>, expert: usize) -> f32 {
    match scores[expert] + bias.map_or(0.0, |bias| bias[expert]) {
        x if x.is_nan() => f32::NEG_INFINITY,
        x => x,
    }
}

/// The first of those whose merit is the largest.
fn largest(of: impl Iterator<Item = usize>, merit: impl Fn(usize) -> f32) -> Option<usize> {
    of.map(|i| (i, merit(i)))
        .reduce(|best, other| if other.1 > best.1 { other } else { best })
        .map(|best| best.0)
}

/// Leaves the experts of the best groups alone.
fn keep_groups(scores: &mut [f32], bias: Option<&[f32]>, Groups { count, used, counted }: Groups) {
    let size = scores.len() / count;
    let sum_of_best = |group: usize| {
        let own = || group * size..(group + 1) * size;
        let merit = |expert| merit(scores, bias, expert);
        let first = largest(own(), merit);
        let second = largest(own().filter(|&expert| Some(expert) != first), merit);
        [first, second].into_iter().take(counted).flatten().map(merit).sum::<f32>()
    };
    let sums: Vec<f32> = (0..count).map(sum_of_best).collect();
    let mut left: Vec<usize> = (0..count).collect();
    for _ in 0..used {
        let best = largest(left.iter().copied(), |group| sums[group]);
        left.retain(|&group| Some(group) != best);
    }
    left.into_iter().for_each(|group| scores[group * size..(group + 1) * size].fill(TAKEN));
}

impl Mixture {
    /// The stages behind those that choose, with names for profiles.
    pub(super) const STAGES: [(&'static str, Stage); 5] = [
        ("gather", Stage::Gather),
        ("experts: gate, up", Stage::GateUp),
        ("activation", Stage::Activate),
        ("experts: down", Stage::Down),
        ("combine", Stage::Combine),
    ];

    /// The stages that choose experts.
    pub(super) fn routes(&self) -> impl Iterator<Item = (&'static str, Stage)> {
        let all = [("route", Stage::Route), ("route", Stage::Sort)];
        let few = self.rows <= SORTED_AT_ONCE;
        all.into_iter().filter(move |(_, stage)| !few || *stage != Stage::Route)
    }

    fn pairs(&self) -> usize {
        self.rows * self.experts.used
    }

    /// Segments that there are at most.
    fn segments(&self) -> usize {
        self.experts.count.min(self.pairs())
    }

    /// Rows of a chunk of an operation on rows.
    fn step(&self) -> usize {
        self.rows.div_ceil(4 * self.threads).max(1)
    }

    /// The [cuts](Self::cuts) of these weights in a step of so many rows.
    pub(super) fn cuts_of(
        weights: &ExpertWeights,
        experts: Experts,
        rows: usize,
        threads: usize,
    ) -> [(usize, usize); 2] {
        let Expert { gate_up, down } = &weights.each[0];
        let pairs = rows * experts.used;
        let segments = experts.count.min(pairs);
        [(&gate_up[0], gate_up.len()), (down, 1)].map(|(matrix, of)| {
            let n = matrix.rows();
            let step = chunk_rows(matrix, of * n * segments, pairs.div_ceil(segments), threads);
            (step, of * n.div_ceil(step))
        })
    }

    /// That of a stage of products.
    fn cut(&self, stage: Stage) -> (usize, usize) {
        self.cuts[usize::from(stage == Stage::Down)]
    }

    pub(super) fn chunks(&self, stage: Stage) -> usize {
        match stage {
            Stage::Route | Stage::Combine => self.rows.div_ceil(self.step()),
            Stage::Sort => 1,
            Stage::Gather | Stage::Activate => self.segments(),
            Stage::GateUp | Stage::Down => self.segments() * self.cut(stage).1,
        }
    }

    /// A segment, or nothing if there are fewer.
    ///
    /// # Safety
    /// Pairs have been sorted.
    unsafe fn segment(&self, index: usize) -> Option<Segment> {
        let room = &self.room;
        // SAFETY: the caller's contract.
        unsafe {
            if index >= *room.active_len as usize {
                return None;
            }
            let expert = *room.active.add(index) as usize;
            Some(Segment {
                expert,
                rows: *room.starts.add(expert) as usize..*room.starts.add(expert + 1) as usize,
            })
        }
    }

    /// How an expert's matrices are multiplied with its rows, and where rows are prepared for them: for gate and up, or for down.
    fn ways(
        &self,
        k: &Kernels<f32>,
        segment: &Segment,
        stage: Stage,
    ) -> Result<[(Way, Option<Rounded>); 2], KernelError> {
        // SAFETY: the weights live as long as the step.
        let Expert { gate_up, down } = unsafe { &(&(*self.weights).each)[segment.expert] };
        let n = segment.rows.len();
        let place = |form: usize, plan: QgemmPlan<f32>| {
            let (ptr, bytes) = self.room.prepared[form];
            let (need, got) = (plan.prepared_size()?.size(), n * bytes);
            if need > got {
                return Err(KernelError::ScratchTooSmall { need, got });
            }
            Ok(Rounded { plan, to: ptr.wrapping_add(segment.rows.start * bytes) })
        };
        let way = |matrix, form| {
            let way = Way::new(k, matrix, n, self.precision)?;
            let rounded = way.prepares()?.map(|plan| place(form, plan)).transpose()?;
            Ok::<_, KernelError>((way, rounded))
        };
        if stage == Stage::Down {
            return Ok([way(down, 2)?; 2]);
        }
        let first = way(&gate_up[0], 0)?;
        let Some(up) = gate_up.get(1) else { return Ok([first; 2]) };
        let mut second = way(up, 1)?;
        if let (Some(a), Some(b)) = (first.1, second.1) {
            if a.plan.prepares_as(&b.plan) {
                second.1 = first.1;
            }
        }
        Ok([first, second])
    }

    /// Does a chunk.
    ///
    /// # Safety
    /// Weights, rows and room exist; stages before this one are complete, and nobody else does this chunk.
    pub(super) unsafe fn run(
        &self,
        k: &Kernels<f32>,
        stage: Stage,
        chunk: usize,
        memory: &mut Memory,
    ) -> Result<(), KernelError> {
        let rows = chunk * self.step()..((chunk + 1) * self.step()).min(self.rows);
        // SAFETY: the caller's contract.
        unsafe {
            match stage {
                Stage::Route => rows.into_iter().try_for_each(|row| self.route(k, row)),
                Stage::Sort => {
                    if self.rows <= SORTED_AT_ONCE {
                        (0..self.rows).try_for_each(|row| self.route(k, row))?;
                    }
                    self.sort();
                    Ok(())
                }
                Stage::Gather | Stage::Activate => match self.segment(chunk) {
                    Some(segment) => self.prepare(k, stage, &segment),
                    None => Ok(()),
                },
                Stage::GateUp | Stage::Down => {
                    let (step, pieces) = self.cut(stage);
                    match self.segment(chunk / pieces) {
                        Some(segment) => self.product(k, stage, &segment, (step, chunk % pieces), memory),
                        None => Ok(()),
                    }
                }
                Stage::Combine => rows.into_iter().try_for_each(|row| self.combine(k, row)),
            }
        }
    }

    /// The experts of a row, and their factors.
    ///
    /// # Safety
    /// The contract of [`run`](Self::run).
    unsafe fn route(&self, k: &Kernels<f32>, row: usize) -> Result<(), KernelError> {
        let Experts { used, scoring, groups, normalised, scale, .. } = self.experts;
        // SAFETY: the caller's contract: the row's scores and pairs are its own.
        let (scores, factors, chosen, weights) = unsafe {
            let factors = std::slice::from_raw_parts_mut(self.room.factors.add(row * used), used);
            let chosen = std::slice::from_raw_parts_mut(self.room.chosen.add(row * used), used);
            (self.room.scores.row(row), factors, chosen, &*self.weights)
        };
        let bias = weights.selection_bias.as_deref();
        match scoring {
            Scoring::Softmax => k.softmax_inplace(scores)?,
            Scoring::Sigmoid => scores.iter_mut().for_each(|x| *x = sigmoid(*x)),
            // What is not a number is below all that is, and far from it.
            Scoring::SparseMixer => {
                let number =
                    |x: &mut f32| if x.is_nan() { *x = f32::MIN } else { *x = x.clamp(f32::MIN, f32::MAX) };
                scores.iter_mut().for_each(number);
            }
        }
        if let Some(groups) = groups {
            keep_groups(scores, bias, groups);
        }
        for (factor, chosen) in factors.iter_mut().zip(&mut *chosen) {
            let left = (0..scores.len()).filter(|&expert| scores[expert] != TAKEN);
            // There are at least as many experts as are used.
            let expert = largest(left, |expert| merit(scores, bias, expert)).unwrap_or(0);
            *factor = match scoring {
                Scoring::SparseMixer => share_of_near(scores, expert),
                _ => scores[expert],
            };
            *chosen = expert as u32;
            scores[expert] = TAKEN;
        }
        let sum: f32 = if normalised { factors.iter().sum::<f32>() + 1e-20 } else { 1.0 };
        factors.iter_mut().for_each(|factor| *factor = *factor / sum * scale);
        if let Some(own) = &weights.factors {
            factors.iter_mut().zip(&*chosen).for_each(|(factor, &expert)| *factor *= own[expert as usize]);
        }
        Ok(())
    }

    /// Sorts pairs by expert, and those of an expert by row.
    ///
    /// # Safety
    /// The contract of [`run`](Self::run).
    unsafe fn sort(&self) {
        let (room, pairs, Experts { count, used, .. }) = (&self.room, self.pairs(), self.experts);
        // SAFETY: the caller's contract; every expert that was chosen is below `count`.
        unsafe {
            let chosen = std::slice::from_raw_parts(room.chosen, pairs);
            let starts = std::slice::from_raw_parts_mut(room.starts, count + 1);
            starts.fill(0);
            chosen.iter().for_each(|&expert| starts[expert as usize + 1] += 1);
            let mut active = 0;
            for expert in 0..count {
                if starts[expert + 1] > 0 {
                    *room.active.add(active) = expert as u32;
                    active += 1;
                }
                starts[expert + 1] += starts[expert];
            }
            *room.active_len = active as u32;
            // Each start moves on to where its pairs end, which is where the next ones start.
            for (pair, &expert) in chosen.iter().enumerate() {
                let place = starts[expert as usize];
                *room.places.add(pair) = place;
                *room.row_of.add(place as usize) = (pair / used) as u32;
                starts[expert as usize] += 1;
            }
            starts.copy_within(0..count, 1);
            starts[0] = 0;
        }
    }

    /// The factor of the pair of a row that is sorted to a place.
    ///
    /// # Safety
    /// The contract of [`run`](Self::run).
    unsafe fn factor_at(&self, row: usize, place: usize) -> f32 {
        let pairs = row * self.experts.used..(row + 1) * self.experts.used;
        // SAFETY: the caller's contract: pairs have been sorted, and nobody writes them.
        unsafe {
            let at = |pair: &usize| *self.room.places.add(*pair) as usize == place;
            pairs.into_iter().find(at).map_or(0.0, |pair| *self.room.factors.add(pair))
        }
    }

    /// The input of a product of a segment, as it is and prepared.
    ///
    /// # Safety
    /// The contract of [`run`](Self::run).
    unsafe fn prepare(&self, k: &Kernels<f32>, stage: Stage, segment: &Segment) -> Result<(), KernelError> {
        let (room, gathers) = (&self.room, stage == Stage::Gather);
        let (to, next) = if gathers { (room.inputs, Stage::GateUp) } else { (room.activated, Stage::Down) };
        // SAFETY: the caller's contract: the segment's rows are the chunk's.
        unsafe {
            for place in segment.rows.clone() {
                if gathers {
                    let row = *room.row_of.add(place) as usize;
                    to.row(place).copy_from_slice(self.x.get(row..row + 1));
                    if self.experts.scaled_inputs {
                        k.vec_scale_inplace(self.factor_at(row, place), to.row(place))?;
                    }
                } else if self.gated {
                    glu(k, self.gate, room.gates.row(place), to.row(place))?;
                } else {
                    activate(k, self.gate, room.gates.row(place), to.row(place))?;
                }
            }
            let [first, second] = self.ways(k, segment, next)?.map(|(_, rounded)| rounded);
            let own = second.filter(|b| first.is_none_or(|a| a.to != b.to));
            let rows = Rows { ptr: to.ptr.add(segment.rows.start * to.width), width: to.width };
            [first, own].into_iter().flatten().try_for_each(|form| form.round(rows, 0..segment.rows.len()))
        }
    }

    /// Part of a segment's products: `step` rows of weights, those of the piece.
    ///
    /// # Safety
    /// The contract of [`run`](Self::run).
    unsafe fn product(
        &self,
        k: &Kernels<f32>,
        stage: Stage,
        segment: &Segment,
        (step, piece): (usize, usize),
        memory: &mut Memory,
    ) -> Result<(), KernelError> {
        let room = &self.room;
        // SAFETY: the caller's contract: the piece's columns of the segment's rows are the chunk's.
        unsafe {
            let Expert { gate_up, down } = &(&(*self.weights).each)[segment.expert];
            let ways = self.ways(k, segment, stage)?;
            let (matrix, (way, rounded), piece, column) = match stage {
                Stage::GateUp => {
                    let (n, pieces) = (gate_up[0].rows(), gate_up[0].rows().div_ceil(step));
                    let of = piece / pieces;
                    (&gate_up[of], ways[of], piece % pieces, of * n)
                }
                _ => (down, ways[0], piece, 0),
            };
            let bias = (*self.weights).biases.as_ref().map(|[of_gate, of_up, of_down]| match stage {
                Stage::GateUp if column == 0 => of_gate,
                Stage::GateUp => of_up,
                _ => of_down,
            });
            let (x, y) = if stage == Stage::GateUp {
                (room.inputs, room.gates)
            } else {
                (room.activated, room.outputs)
            };
            let (rows, first) = (segment.rows.len(), piece * step);
            let n = step.min(matrix.rows() - first);
            let to = y.ptr.add(segment.rows.start * y.width + column + first);
            let y = MatMut::from_raw_parts(to, [rows, n], [y.width, 1]);
            let x = MatRef::new(x.get(segment.rows.clone()), rows, matrix.cols())?;
            let bias = bias.map(|all| &all[segment.expert * matrix.rows() + first..][..n]);
            way.multiply(k, (matrix, first), (x, rounded.map(|rounded| rounded.to)), (y, bias), memory)
        }
    }

    /// The sum for a row.
    ///
    /// # Safety
    /// The contract of [`run`](Self::run).
    unsafe fn combine(&self, k: &Kernels<f32>, row: usize) -> Result<(), KernelError> {
        let (room, used) = (&self.room, self.experts.used);
        // SAFETY: the caller's contract: the row of results is the chunk's.
        unsafe {
            let sum = self.delta.row(row);
            match &(*self.weights).shared_gate {
                Some(gate) => {
                    let score = k.vec_dot(gate, self.x.get(row..row + 1))?;
                    k.vec_scale_inplace(sigmoid(score), sum)?;
                }
                None if self.experts.shared.is_some() && !self.experts.normed => {}
                None => sum.fill(0.0),
            }
            for pair in row * used..(row + 1) * used {
                let place = *room.places.add(pair) as usize;
                let factor = if self.experts.scaled_inputs { 1.0 } else { *room.factors.add(pair) };
                k.vec_axpy(factor, room.outputs.get(place..place + 1), sum)?;
            }
        }
        Ok(())
    }
}
