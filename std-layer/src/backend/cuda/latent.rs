//! Latent attention of a step on a GPU. Products of heads with matrices of their own are those with experts, of which each has all rows.

use super::arena::{Place, Wanted};
use super::layout::Access;
use super::product::Spread;
use super::step::Lowering;
use super::weights::{half_type, Product};
use crate::backend::{BackendError, Linear, NormWeight, Slot};
use crate::cuda::decoder::{AddNorm, Attend, Forms, Heads, Take};
use crate::cuda::latent::LatentQueries;
use crate::cuda::segments::SEGMENT;
use crate::cuda::{Ops, PageTables};
use crate::model::{LatentAttention, Norm};

/// Elements of heads of the rows that attention takes at a time, about, so that its pieces find room.
const ATTENTION_ELEMENTS: usize = 64 * 4096;

impl<'a> Lowering<'a> {
    /// The normed row that the second product of queries takes.
    pub(super) fn query_row(
        &mut self,
        layer: usize,
        wanted: Wanted,
        [inputs, half]: [(Place, Access); 2],
    ) -> Result<(), BackendError> {
        let (weights, m, cols) = (self.weights, self.m, wanted.cols);
        let (width, eps) = (Slot::Heads.width_in(&weights.config, layer), weights.config.state_eps);
        let weight = weights.tensors.norm(NormWeight::Queries(layer))?.view();
        self.size(Place::NormedHeads, m * cols, 4);
        let uses = [(Place::Heads, Access::Read), (Place::NormedHeads, Access::Write), inputs, half];
        self.launch(&uses, |memory, layout, gpu| {
            let x = memory.floats(layout, Place::Heads, 0, m * width)?.into_view().range(0..m * cols)?;
            // Nobody looks at the rows themselves.
            let y = memory.floats(layout, Place::NormedHeads, 0, m * cols)?;
            let (kind, scale, stays) = (Norm::Rms, 1.0, false);
            let (rows, delta, bias, post, norm_bias) = (None, None, None, None, None);
            let how = AddNorm { x, rows, y, delta, bias, post, kind, weight, norm_bias, eps, scale, stays };
            gpu.ops.decoder_norm(&gpu.stream, how, memory.forms(layout, wanted, m)?)
        })
    }

    /// The cached rows of a layer, and its queries as they attend to them.
    pub(super) fn latent_heads(&mut self, layer: usize, of: &'a LatentAttention) -> Result<(), BackendError> {
        let (weights, m) = (self.weights, self.m);
        let config = &weights.config;
        let missing = || BackendError::Unsupported("latent attention in a layer that has none".to_owned());
        let tensors = weights.tensors.latent(layer).ok_or_else(missing)?;
        let (heads, rope) = (config.heads, &config.ropes[config.layer[layer].rope]);
        let product = weights.tensors.linear(Linear::Qkv(layer));
        let width = Slot::Heads.width_in(config, layer);
        let queries = if of.query_rank.is_some() { Place::Queries } else { Place::Heads };
        let len = m * heads * of.query();
        self.size(Place::Turned, m * heads * of.rotated, 4);
        let mut uses =
            vec![(Place::Heads, Access::Read), (queries, Access::Read), (Place::Turned, Access::Write)];
        uses.extend(config.temperature.map(|_| (Place::Temperatures, Access::Read)));
        self.launch(&uses, |memory, layout, gpu| {
            let all = memory.floats(layout, Place::Heads, 0, m * width)?.into_view();
            let (from, stride) = product.member(1, m);
            let q = memory.floats(layout, queries, 0, len)?.into_view();
            let [cos, sin] = &memory.angles[config.layer[layer].rope];
            let cached = all.range(from..all.len())?;
            let how = Heads {
                x: [(q.range(of.plain..len)?, heads * of.query()), (cached, stride), (cached, stride)],
                keys: true,
                bias: None,
                norm: Some(tensors.norm.view()),
                values: false,
                each: false,
                kind: Norm::Rms,
                behind: false,
                eps: config.state_eps,
                bound: None,
                angles: (cos.view(), sin.view()),
                rot_dim: rope.dims,
                temperatures: memory.temperatures_of_rows(layout, m)?,
                pairing: rope.pairing,
                step: of.query(),
                heads,
                dim: config.head_dim,
                queries: memory.floats(layout, Place::Turned, 0, m * heads * of.rotated)?,
            };
            let tables = PageTables { pages: memory.tables[memory.group_of[layer]], len: memory.table_len };
            let rows = memory.rows;
            gpu.ops.latent_rows(&gpu.stream, (memory.layers[layer].kv_mut()?, tables), rows, how)
        })?;
        self.of_heads(&tensors.keys, (queries, m, of.query()), Place::Absorbed, false)
    }

    /// Products of the heads of rows, of `step` elements each, with a matrix for each head: of each head those of all rows. `some` are the rows whose logits are asked for.
    fn of_heads(
        &mut self,
        product: &'a Product,
        (from, rows, step): (Place, usize, usize),
        to: Place,
        some: bool,
    ) -> Result<(), BackendError> {
        let (m, exact, matrix) = (self.m, self.rows.exact, &product.matrices[0]);
        let (heads, half) = (matrix.count, half_type(product));
        let most = matrix.block_rows(exact, m, half);
        let len = heads * m.div_ceil(most) * SEGMENT;
        self.size(Place::Routes, len, size_of::<u32>());
        let wanted = self.wanted(product, m);
        self.inputs = wanted.rows.unwrap_or(Place::Inputs);
        self.size(self.inputs, if wanted.rows.is_some() { heads * m * wanted.cols } else { 0 }, 4);
        self.size(Place::Half, if wanted.half.is_some() { heads * m * wanted.cols } else { 0 }, 2);
        let mut uses = vec![
            (from, Access::Read),
            (Place::Routes, Access::Write),
            (self.inputs, Access::Write),
            (Place::Half, Access::Write),
        ];
        // Queries have the temperatures of their scores.
        let tempered = to == Place::Absorbed && self.weights.config.temperature.is_some();
        uses.extend(tempered.then_some((Place::Temperatures, Access::Read)));
        self.launch(&uses, |memory, layout, gpu| {
            let table = memory.part(layout, Place::Routes, 0, len)?;
            gpu.ops.segments_of_heads(&gpu.stream, (heads, m, most), table)?;
            let x = memory.floats(layout, from, 0, rows * heads * step)?.into_view();
            let which = some.then_some(memory.outputs);
            let factors = if tempered { memory.temperatures_of_rows(layout, m)? } else { None };
            let forms = memory.forms(layout, wanted, heads * m)?;
            gpu.ops.decoder_rows(&gpu.stream, (x, which, factors), Take::ToHeads { heads, step }, forms)
        })?;
        self.size(to, heads * m * matrix.rows, 4);
        let spread = Spread { each: m, matrices: heads, single: false, cuts: vec![(most, 0..len)] };
        self.m = heads * m;
        let done = self.multiply(product, Some(to), Some(&spread));
        self.m = m;
        done
    }

    /// What a layer's attention gives, in the forms that its output matrix takes.
    pub(super) fn latent_attention(
        &mut self,
        layer: usize,
        wanted: Wanted,
        [inputs, half]: [(Place, Access); 2],
    ) -> Result<(), BackendError> {
        let (weights, rows, m) = (self.weights, self.rows, self.m);
        let config = &weights.config;
        let missing = || BackendError::Unsupported("latent attention in a layer that has none".to_owned());
        let of = config.latent_attention.as_ref().ok_or_else(missing)?;
        let tensors = weights.tensors.latent(layer).ok_or_else(missing)?;
        let (heads, all) = (config.heads, rows.rows);
        let width = heads * of.rank;
        let (pieces, piece) = rows.wide_pieces();
        let part = (ATTENTION_ELEMENTS * rows.pieces / pieces / width).clamp(1, all);
        self.size(Place::Partial, Ops::partial_len(part, heads, pieces, of.rank)?, 4);
        self.size(Place::Mixed, all * width, 4);
        let uses = [
            (Place::Absorbed, Access::Read),
            (Place::Turned, Access::Read),
            (Place::Partial, Access::Write),
            (Place::Mixed, Access::Write),
        ];
        self.launch(&uses, |memory, layout, gpu| {
            let tables = PageTables { pages: memory.tables[memory.group_of[layer]], len: memory.table_len };
            let queries = memory.floats(layout, Place::Absorbed, 0, all * width)?.into_view();
            let turned = memory.floats(layout, Place::Turned, 0, all * heads * of.rotated)?.into_view();
            for first in (0..all).step_by(part) {
                let some = first..all.min(first + part);
                let how = Attend {
                    rows: memory.rows.range(some.clone())?,
                    heads,
                    scale: config.attention_scale,
                    window: None,
                    cap: None,
                    sinks: None,
                    slopes: None,
                    pieces,
                    piece,
                    halves: !rows.exact,
                    queries,
                };
                let of_queries = LatentQueries { turned, rank: of.rank, turns: of.rotated, first, all };
                let len = Ops::partial_len(some.len(), heads, pieces, of.rank)?;
                let mut room = memory.floats(layout, Place::Partial, 0, len)?;
                let cache = (memory.layers[layer].kv()?, tables);
                gpu.ops.latent_attend(&gpu.stream, cache, &how, of_queries, room.reborrow())?;
                let mixed = memory.floats(layout, Place::Mixed, first * width, some.len() * width)?;
                let forms = Forms { cols: width, rows: Some(mixed), half: None, integer: None, exact: None };
                gpu.ops.decoder_join(&gpu.stream, cache, &how, (room.into_view(), of.rank, None), forms)?;
            }
            Ok(())
        })?;
        self.of_heads(&tensors.values, (Place::Mixed, all, of.rank), Place::HeadResults, m < all)?;
        self.inputs = wanted.rows.unwrap_or(Place::Inputs);
        let len = m * heads * of.values;
        self.launch(&[(Place::HeadResults, Access::Read), inputs, half], |memory, layout, gpu| {
            let x = memory.floats(layout, Place::HeadResults, 0, len)?.into_view();
            let forms = memory.forms(layout, wanted, m)?;
            gpu.ops.decoder_rows(&gpu.stream, (x, None, None), Take::FromHeads { dim: of.values }, forms)
        })
    }
}
