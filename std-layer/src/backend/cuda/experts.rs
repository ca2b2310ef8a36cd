//! Mixtures of experts on a GPU.
//!
//! The GPU chooses the experts of each row and sorts pairs of a row and one of its experts by expert; products with experts find their rows in tables
//! that it makes then. As the host knows of none of this, products are launched for as many segments as there could be.

use super::arena::{Memory, Place, Wanted};
use super::layout::{Access, Layout};
use super::product::Spread;
use super::step::{Biases, Lowering, Waiting};
use super::weights::{half_type, ExpertWeights};
use crate::backend::BackendError;
use crate::cuda::decoder::Take;
use crate::cuda::experts::{segments, Given, Routes};
use crate::cuda::segments::SEGMENT;
use crate::cuda::{Buffer, CudaError, View};
use crate::model::Experts;

/// Rows that an expert has, about, if there are `m`: half of the experts may have none.
fn each(experts: Experts, m: usize) -> usize {
    m.min((2 * m * experts.used).div_ceil(experts.count))
}

/// Pairs that steps of up to `rows` rows multiply as integers, at most: those where experts have few rows.
pub(super) fn most_pairs(experts: Experts, rows: usize) -> usize {
    use super::weights::MAX_GEMV_ROWS;
    // As many rows as have `each` at most `MAX_GEMV_ROWS`.
    let most = MAX_GEMV_ROWS.max(MAX_GEMV_ROWS * experts.count / (2 * experts.used));
    rows.min(most) * experts.used
}

/// Where numbers are in [`Place::Routes`], in the order of [`Routes`]: arrays of a number for each pair, and then tables.
fn array(index: usize, pairs: usize) -> usize {
    index * pairs
}
const CHOSEN: usize = 0;
const FACTORS: usize = 1;
const PLACES: usize = 2;
const ROWS: usize = 3;
const EXPERTS: usize = 4;
const SCALES: usize = 5;
const ARRAYS: usize = 6;

/// The expert of each place, where experts have biases.
pub(super) fn experts_of_places<'a>(
    memory: &Memory<'a>,
    layout: &Layout<Place>,
    pairs: usize,
) -> Result<View<'a, u32>, CudaError> {
    Ok(memory.part(layout, Place::Routes, array(EXPERTS, pairs), pairs)?.into_view())
}

impl<'a> Lowering<'a> {
    /// Which experts the rows that wait go through, or those that were kept for them.
    pub(super) fn routes(&mut self, layer: usize) -> Result<(), BackendError> {
        let (experts, of) = self.mixture_of(layer)?;
        let (m, single) = (self.m, self.takes_row_itself(experts));
        let mut wanted = self.wanted(&of.router, m);
        if !experts.normed {
            // The experts take the same rows.
            if self.weights.config.between(layer) > 0 {
                self.waiting = Waiting::Kept;
            }
            wanted.rows = Some(Place::Normed);
            if single {
                let others = self.wanted(&of.gate_up, each(experts, m));
                wanted.integer |= others.integer;
                wanted.exact |= others.exact;
            }
        }
        self.produce(wanted)?;
        self.size(Place::Scores, m * experts.count, 4);
        self.multiply(&of.router, Some(Place::Scores), None)?;
        self.spread = Some(self.sort(experts, each(experts, m), of)?);
        Ok(())
    }

    /// Whether products with matrices of experts take the only row as it is, and no copy for each of its experts.
    fn takes_row_itself(&self, experts: Experts) -> bool {
        self.m == 1 && !experts.scaled_inputs
    }

    fn mixture_of(&self, layer: usize) -> Result<(Experts, &'a ExpertWeights), BackendError> {
        let missing = || BackendError::Unsupported(format!("layer {layer} has no experts"));
        let weights = self.weights;
        weights.config.experts.zip(weights.tensors.experts(layer)).ok_or_else(missing)
    }

    /// What a layer's experts give the rows for which they were chosen, and which wait if these have norms of their own.
    pub(super) fn mixture(&mut self, layer: usize) -> Result<(), BackendError> {
        let (experts, of) = self.mixture_of(layer)?;
        let (m, config) = (self.m, &self.weights.config);
        let (hidden, pairs, single) = (config.hidden, m * experts.used, self.takes_row_itself(experts));
        let each = each(experts, m);
        let missing =
            || BackendError::Unsupported(format!("experts of layer {layer} that nobody has chosen"));
        let spread = self.spread.take().ok_or_else(missing)?;
        if experts.normed {
            let mut wanted = Wanted::plain(hidden, Place::Normed);
            if single {
                let others = self.wanted(&of.gate_up, each);
                (wanted.integer, wanted.exact) = (others.integer, others.exact);
            }
            self.produce(wanted)?;
        }
        let to = if experts.normed { Place::Given } else { Place::Delta };
        let adds = experts.shared.is_some() && !experts.normed;
        // From here on a pair is a row.
        self.m = pairs;
        if !single {
            self.waiting = Waiting::Pairs;
            self.produce(self.wanted(&of.gate_up, each))?;
        }
        self.size(Place::Gates, pairs * 2 * experts.intermediate, 4);
        self.multiply(&of.gate_up, Some(Place::Gates), Some(&spread))?;
        let biases = match &of.biases {
            Some([gate, up, _]) => Biases::Experts([gate, up]),
            None => Biases::Gates(None),
        };
        self.waiting = Waiting::Gate(layer, &of.gate_up, biases);
        self.produce(self.wanted(&of.down, each))?;
        self.size(Place::Results, pairs * hidden, 4);
        self.multiply(&of.down, Some(Place::Results), Some(&Spread { single: false, ..spread }))?;
        self.m = m;
        self.size(to, m * hidden, 4);
        let mut uses = vec![
            (Place::Results, Access::Read),
            (Place::Routes, Access::Read),
            (Place::Normed, Access::Read),
            (to, Access::Write),
        ];
        if adds {
            uses.push((to, Access::Read));
        }
        self.launch(&uses, |memory, layout, gpu| {
            let x = memory.floats(layout, Place::Normed, 0, m * hidden)?.into_view();
            let given = Given {
                results: memory.floats(layout, Place::Results, 0, pairs * hidden)?.into_view(),
                places: memory.part(layout, Place::Routes, array(PLACES, pairs), pairs)?.into_view(),
                factors: memory.part(layout, Place::Routes, array(FACTORS, pairs), pairs)?.into_view(),
                bias: match &of.biases {
                    Some([.., down]) => {
                        let chosen = memory.part(layout, Place::Routes, array(CHOSEN, pairs), pairs)?;
                        Some((chosen.into_view(), down.view()))
                    }
                    None => None,
                },
                adds,
                gate: of.shared_gate.as_ref().map(|gate| [x, gate.view()]),
            };
            let y = memory.floats(layout, to, 0, m * hidden)?;
            gpu.ops.experts_combine(&gpu.stream, given, (y, hidden))
        })
    }

    /// Who goes where, and in which segments products with the matrices of experts have rows.
    fn sort(&mut self, experts: Experts, each: usize, of: &'a ExpertWeights) -> Result<Spread, BackendError> {
        let (m, pairs, exact) = (self.m, self.m * experts.used, self.rows.exact);
        let mut spread = Spread {
            each,
            matrices: experts.count,
            single: self.takes_row_itself(experts),
            cuts: Vec::with_capacity(3),
        };
        let mut end = array(ARRAYS, pairs);
        for product in [&of.gate_up, &of.down] {
            let half = half_type(product);
            for matrix in &product.matrices {
                let most = matrix.block_rows(exact, each, half);
                if spread.cuts.iter().all(|cut| cut.0 != most) {
                    let len = segments(m, (experts.count, experts.used), most) * SEGMENT;
                    spread.cuts.push((most, end..end + len));
                    end += len;
                }
            }
        }
        self.size(Place::Routes, end, size_of::<u32>());
        let cuts = &spread.cuts;
        self.launch(
            &[(Place::Scores, Access::Read), (Place::Routes, Access::Write)],
            |memory, layout, gpu| {
                let numbers = |index| memory.part(layout, Place::Routes, array(index, pairs), pairs);
                let table = |(most, table): &(usize, std::ops::Range<usize>)| {
                    Ok::<_, CudaError>((*most, memory.part(layout, Place::Routes, table.start, table.len())?))
                };
                let to = Routes {
                    chosen: numbers(CHOSEN)?,
                    factors: memory.part(layout, Place::Routes, array(FACTORS, pairs), pairs)?,
                    places: numbers(PLACES)?,
                    rows: numbers(ROWS)?,
                    experts: of.biases.is_some().then(|| numbers(EXPERTS)).transpose()?,
                    scales: match experts.scaled_inputs {
                        true => Some(memory.part(layout, Place::Routes, array(SCALES, pairs), pairs)?),
                        false => None,
                    },
                    cuts: cuts.iter().map(table).collect::<Result<_, _>>()?,
                };
                let scores = memory.floats(layout, Place::Scores, 0, m * experts.count)?.into_view();
                let biases = [&of.router_bias, &of.selection_bias, &of.factors]
                    .map(|bias| bias.as_ref().map(Buffer::view));
                gpu.ops.experts_sort(&gpu.stream, experts, (scores, biases), to)
            },
        )?;
        Ok(spread)
    }

    /// Rows that were kept in f32, in the other forms.
    pub(super) fn kept(&mut self, wanted: Wanted, half: (Place, Access)) -> Result<(), BackendError> {
        let wanted = Wanted { rows: None, ..wanted };
        if wanted.half.is_none() && !wanted.integer && !wanted.exact {
            return Ok(());
        }
        let (m, cols) = (self.m, wanted.cols);
        self.launch(&[(Place::Normed, Access::Read), half], |memory, layout, gpu| {
            let x = memory.floats(layout, Place::Normed, 0, m * cols)?.into_view();
            let forms = memory.forms(layout, wanted, m)?;
            gpu.ops.decoder_rows(&gpu.stream, (x, None, None), Take::All, forms)
        })
    }

    /// The row of each pair, sorted by expert, and times its factor where that is of what experts take.
    pub(super) fn pairs(
        &mut self,
        wanted: Wanted,
        [inputs, half]: [(Place, Access); 2],
    ) -> Result<(), BackendError> {
        let (pairs, cols) = (self.m, wanted.cols);
        let uses = [(Place::Normed, Access::Read), (Place::Routes, Access::Read), inputs, half];
        let experts = self.weights.config.experts;
        let all = pairs / experts.map_or(1, |experts| experts.used);
        let scaled = experts.is_some_and(|experts| experts.scaled_inputs);
        self.launch(&uses, |memory, layout, gpu| {
            let x = memory.floats(layout, Place::Normed, 0, all * cols)?.into_view();
            let rows = memory.part(layout, Place::Routes, array(ROWS, pairs), pairs)?.into_view();
            let factors = match scaled {
                true => Some(memory.part(layout, Place::Routes, array(SCALES, pairs), pairs)?.into_view()),
                false => None,
            };
            let forms = memory.forms(layout, wanted, pairs)?;
            gpu.ops.decoder_rows(&gpu.stream, (x, Some(rows), factors), Take::All, forms)
        })
    }
}
