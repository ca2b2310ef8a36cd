//! Attention on the CPU: what a chunk does, and how partial results are joined.

use std::sync::Arc;

use gllm_kernels_core::{
    bf16, f16, Alibi, Attended, KernelError, Kernels, KvHead, KvPiece, KvTree, MatRef, RopeShape, Scratch,
    KV_BLOCK,
};

use super::cache::Blocks;
use super::cached::{Cached, Plain, Q8_0};
use super::expanded::Expanded;
use super::latent::Latent;
use super::rows::Rows;
use super::shares::{BlockTokens, Chunk, Heads, Shares, TokenRun, PIECE_BLOCKS};
use super::team::Memory;
use super::weights::{CpuWeights, Matrix};
use crate::backend::KvType;
use crate::model::Norm;

/// The operands of a step's attention.
#[derive(Debug)]
pub(super) struct Attention {
    pub(super) runs: Vec<TokenRun>,
    /// For each group of layers with the same window.
    pub(super) shares: Vec<Shares>,
    pub(super) blocks: Blocks,
    /// What becomes queries and cached rows, if attention is latent.
    pub(super) latent: Option<Latent>,
    /// Memory for partial results.
    pub(super) partial: *mut f32,
    pub(super) scale: f32,
    pub(super) softcap: Option<f32>,
    /// The slope of linear biases of each query head; empty if there are none.
    pub(super) slopes: Vec<f32>,
}

/// What the attention of a layer works on.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfLayer {
    pub(super) layer: usize,
    /// The layer whose keys and values it attends to: itself if it has some.
    pub(super) keys_of: usize,
    /// Its group of layers with the same window.
    pub(super) group: usize,
    /// The sinks of its heads.
    pub(super) sinks: Option<*const [f32]>,
    /// The matrices that decode keys and values of each head, if latent attention is expanded.
    pub(super) matrices: Option<[*const [Arc<Matrix>]; 2]>,
    /// Queries, keys and values.
    pub(super) from: Rows,
    /// Results.
    pub(super) to: Rows,
}

/// The partial results of attention that are to be joined, row by row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    pub(super) attention: *const Attention,
    pub(super) of: OfLayer,
}

impl Joined {
    /// Joins the pieces of a row.
    ///
    /// # Safety
    /// The attention and the sinks exist, pieces are complete, and nobody else uses the row's partial results.
    pub(super) unsafe fn join(
        &self,
        k: &Kernels<f32>,
        row: usize,
        to: &mut [f32],
    ) -> Result<(), KernelError> {
        // SAFETY: the caller's contract; places are those of the chunks.
        unsafe {
            let a = &*self.attention;
            let shares = &a.shares[self.of.group];
            let Heads { group, head, .. } = shares.heads;
            let dim = head.values;
            let sinks = self.of.sinks.map(|sinks| &*sinks);
            let from = self.of.from.get(row..row + 1);
            let joins = shares.joins[row].iter().zip(to.chunks_exact_mut(group * dim));
            for (head, (join, to)) in joins.enumerate() {
                let part = |i: usize| {
                    let at = a.partial.add(join.first + i * join.step);
                    let sums = at.cast::<[f32; 2]>().add(join.query);
                    let values = at.add(2 * join.queries + join.query * dim);
                    Attended {
                        sums: std::slice::from_raw_parts_mut(sums, group),
                        values: std::slice::from_raw_parts_mut(values, group * dim),
                    }
                };
                let mut all = part(0);
                for i in 1..join.count {
                    k.attend_join(dim, all.reborrow(), part(i))?;
                }
                let sinks = sinks.map(|sinks| &sinks[head * group..][..group]);
                finish(k, &all, sinks, shares.heads.queries_of(from, head), to)?;
            }
        }
        Ok(())
    }
}

/// Divides values by sums, and applies gates: the queries of a token that share a KV head, whose sinks are `sinks`.
fn finish<'a>(
    k: &Kernels<f32>,
    all: &Attended<'_>,
    sinks: Option<&[f32]>,
    queries: impl Iterator<Item = (&'a [f32], &'a [f32])>,
    to: &mut [f32],
) -> Result<(), KernelError> {
    let dim = all.values.len() / all.sums.len();
    let results = all.values.chunks_exact(dim).zip(to.chunks_exact_mut(dim)).zip(all.sums.iter());
    for (query, (((values, to), &[top, sum]), (_, gates))) in results.zip(queries).enumerate() {
        let scale = sinks.map_or(1.0 / sum, |sinks| with_sink(sinks[query], top, sum));
        k.vec_scale(scale, values, to)?;
        gate(k, gates, to)?;
    }
    Ok(())
}

/// Norms the first `dim` of each `step` elements. There are weights for one of these parts, or for all of them; without any nothing is done.
fn norm_heads(
    k: &Kernels<f32>,
    (norm, eps): (Norm, f32),
    (weights, dim): (&[f32], usize),
    (x, step): (&mut [f32], usize),
) -> Result<(), KernelError> {
    let weights = weights.chunks_exact(dim.max(1)).cycle();
    x.chunks_exact_mut(step.max(1)).zip(weights).try_for_each(|(x, weight)| match norm {
        Norm::Rms => k.rms_norm_inplace(Some(weight), eps, &mut x[..dim]),
        Norm::Layer => k.layer_norm_inplace(Some(weight), None, eps, &mut x[..dim]),
    })
}

/// Multiplies numbers by the sigmoid of their gates, if they have any.
fn gate(k: &Kernels<f32>, gates: &[f32], to: &mut [f32]) -> Result<(), KernelError> {
    const PART: usize = 64;
    let mut room = [0.0; PART];
    for (gates, to) in gates.chunks(PART).zip(to.chunks_mut(PART)) {
        // The sigmoid of `x` is `(1 + tanh(x / 2)) / 2`.
        let half = &mut room[..gates.len()];
        k.vec_scale(0.5, gates, half)?;
        k.tanh_inplace(half)?;
        to.iter_mut().zip(&*half).for_each(|(x, t)| *x *= 0.5 * t + 0.5);
    }
    Ok(())
}

/// The factor of values whose exponentials have the sum `sum` relative to `top`, where a sink takes its part of them:
/// `1 / (sum + exp(sink - top))`. Both exponentials are relative to the larger one, so that neither overflows.
fn with_sink(sink: f32, top: f32, sum: f32) -> f32 {
    let largest = top.max(sink);
    let own = (top - largest).exp();
    own / (sum * own + (sink - largest).exp())
}

impl Attention {
    /// Does a chunk of a layer's group.
    ///
    /// # Safety
    /// What the fields name exists, and what those of the layer name; the caches have the runs' tokens; nobody else uses the chunk's results.
    pub(super) unsafe fn run(
        &self,
        of: &OfLayer,
        chunk: usize,
        memory: &mut Memory,
    ) -> Result<(), KernelError> {
        // SAFETY: the caller's contract.
        unsafe {
            match self.blocks.kind {
                KvType::F16 => self.attend::<Plain<f16>>(of, chunk, memory),
                KvType::Bf16 => self.attend::<Plain<bf16>>(of, chunk, memory),
                KvType::F32 => self.attend::<Plain<f32>>(of, chunk, memory),
                KvType::Q8_0 => self.attend::<Q8_0>(of, chunk, memory),
            }
        }
    }

    /// The first block of a piece that the tokens of a chunk see, how many there are, and where they are.
    ///
    /// # Safety
    /// The contract of [`run`](Self::run); blocks have `len` cells of this type.
    unsafe fn blocks_of<C: Cached>(
        &self,
        layer: usize,
        shares: &Shares,
        work: &Chunk,
        piece: usize,
        len: usize,
    ) -> (usize, usize, [&[C::Cell]; PIECE_BLOCKS]) {
        let head = shares.heads.cached_at(work.head);
        let [from, end] = shares.sight.of_all(&self.runs[work.run], &work.tokens);
        let first = (piece * PIECE_BLOCKS).max(from / KV_BLOCK);
        let end = ((piece + 1) * PIECE_BLOCKS).min(end.div_ceil(KV_BLOCK));
        let mut blocks: [&[C::Cell]; PIECE_BLOCKS] = [&[]; PIECE_BLOCKS];
        for (i, block) in blocks.iter_mut().enumerate().take(end - first) {
            let at = self.blocks.at(layer, work.run, head, first + i);
            // SAFETY: a block of the cache, in which nobody writes now.
            *block = unsafe { std::slice::from_raw_parts(at.cast::<C::Cell>(), len) };
        }
        (first, end - first, blocks)
    }

    /// [`run`](Self::run), for a type of cached numbers.
    ///
    /// # Safety
    /// The contract of [`run`](Self::run); the cache has numbers of this type.
    unsafe fn attend<C: Cached>(
        &self,
        of: &OfLayer,
        chunk: usize,
        memory: &mut Memory,
    ) -> Result<(), KernelError> {
        let k = crate::kernels::<f32>();
        let shares = &self.shares[of.group];
        let work = &shares.chunks[chunk];
        let (run, Heads { group, head, cached: (_, cached), .. }) = (&self.runs[work.run], shares.heads);
        let KvHead { dim, values: width, .. } = head;
        // SAFETY: the caller's contract.
        let sinks = of.sinks.map(|sinks| unsafe { &*sinks });
        let queries = work.tokens.len() * group;
        let len = C::len(cached)?;
        // SAFETY: the caller's contract.
        let matrices = of.matrices.map(|both| both.map(|of| unsafe { &*(&(*of))[work.head] }));
        let of_latent = self.latent.as_ref().map(|latent| latent.of);
        let expanded = matrices.zip(of_latent).map(|(matrices, of)| Expanded::new(&k, of, cached, matrices));
        let expanded = expanded.transpose()?;
        let more = expanded.as_ref().map_or(0, Expanded::room);
        // What is read most often begins on a cache line.
        let mut own = memory.take_numbers(more + queries * (dim + width + 2));
        let (room, rest) = own.split_at_mut(more);
        let (q, rest) = rest.split_at_mut(queries * dim);
        let (values, rest) = rest.split_at_mut(queries * width);
        let sums = &mut rest[..2 * queries];
        let mut spans = Vec::with_capacity(queries);
        for (t, token) in work.tokens.clone().enumerate() {
            spans.resize(spans.len() + group, shares.sight.of(run, token));
            // SAFETY: the token's row, whose queries of this head lie side by side.
            let row = unsafe { of.from.get(run.row + token..run.row + token + 1) };
            let to = q[t * group * dim..][..group * dim].chunks_exact_mut(dim);
            for ((from, _), to) in shares.heads.queries_of(row, work.head).zip(to) {
                k.vec_scale(self.scale, from, to)?;
            }
        }
        let slopes = self.slopes.get(work.head * group..(work.head + 1) * group).unwrap_or(&[]);
        let biases = |token| slopes.iter().map(move |&slope| Alibi { slope, position: run.position(token) });
        let alibi: Vec<Alibi> = work.tokens.clone().flat_map(biases).collect();
        let of_drafts = run.paths.get(work.tokens.clone()).unwrap_or(&[]);
        let paths: Vec<u64> = of_drafts.iter().flat_map(|&path| std::iter::repeat_n(path, group)).collect();
        let tree = (!paths.is_empty()).then_some(KvTree { first: run.first, paths: &paths });
        let mut all = match work.partial {
            // SAFETY: the chunk's own part of the memory for partial results.
            Some(at) => unsafe {
                let at = self.partial.add(at);
                Attended {
                    sums: std::slice::from_raw_parts_mut(at.cast::<[f32; 2]>(), queries),
                    values: std::slice::from_raw_parts_mut(at.add(2 * queries), queries * width),
                }
            },
            // SAFETY: pairs of numbers have the alignment of one.
            None => Attended { sums: unsafe { sums.align_to_mut::<[f32; 2]>().1 }, values },
        };
        all.clear();
        // SAFETY: the caller's contract.
        let blocks_of = |work, piece| unsafe { self.blocks_of::<C>(of.keys_of, shares, work, piece, len) };
        let (mut first, mut n, mut blocks) = blocks_of(work, work.pieces.start);
        for piece in work.pieces.clone() {
            // What is attended to next is asked for meanwhile.
            let next = match shares.chunks.get(chunk + shares.next) {
                _ if piece + 1 < work.pieces.end => blocks_of(work, piece + 1),
                Some(work) => blocks_of(work, work.pieces.start),
                None => (0, 0, [&[][..]; PIECE_BLOCKS]),
            };
            let piece = KvPiece {
                blocks: &blocks[..n],
                first: first * KV_BLOCK,
                spans: &spans,
                softcap: self.softcap,
                alibi: &alibi,
                tree,
                next: &next.2[..next.1],
            };
            match &expanded {
                Some(expanded) => expanded.attend::<C>(&k, q, piece, all.reborrow(), room, memory)?,
                None => {
                    let need = k.attend_scratch(queries, head, PIECE_BLOCKS)?.size_unaligned();
                    C::attend(head, q, piece, all.reborrow(), Scratch::new(memory.bytes(need)))?;
                }
            }
            (first, n, blocks) = next;
        }
        if work.partial.is_none() {
            for (t, token) in work.tokens.clone().enumerate() {
                let part = t * group..(t + 1) * group;
                let values = &mut all.values[part.start * width..part.end * width];
                let part = Attended { sums: &mut all.sums[part], values };
                // SAFETY: the row's elements of this head, which are the chunk's own.
                let to = unsafe {
                    let to = of.to.ptr.add((run.row + token) * of.to.width + work.head * group * width);
                    std::slice::from_raw_parts_mut(to, group * width)
                };
                // SAFETY: the token's row, of which nobody writes anything now.
                let row = unsafe { of.from.get(run.row + token..run.row + token + 1) };
                let sinks = sinks.map(|sinks| &sinks[work.head * group..][..group]);
                finish(&k, &part, sinks, shares.heads.queries_of(row, work.head), to)?;
            }
        }
        memory.keep_numbers(own);
        Ok(())
    }
}

/// Cosines and sines of each row of a step, and the temperature of its scores; no temperatures, if they are all 1.
#[derive(Debug)]
pub(super) struct Angles {
    pub(super) cos: Vec<f32>,
    pub(super) sin: Vec<f32>,
    pub(super) temperatures: Vec<f32>,
}

impl Attention {
    /// Prepares the tokens of a block for attention: adds biases, norms heads, rotates them, and writes
    /// keys and values to the cache.
    ///
    /// # Safety
    /// What the fields name exists; nobody else uses these tokens' rows or blocks.
    pub(super) unsafe fn prepare(
        &self,
        layer: &OfLayer,
        of: BlockTokens,
        weights: &CpuWeights,
        (shape, angles, eps): (RopeShape, &Angles, f32),
    ) -> Result<(), KernelError> {
        let k = crate::kernels::<f32>();
        let Heads { kv_heads, group, head: KvHead { dim, .. }, step, .. } = self.shares[layer.group].heads;
        if let (Some(latent), Some(of_layer)) = (&self.latent, weights.tensors.latent(layer.layer)) {
            let (rows, at) = latent.cached;
            // SAFETY: the caller's contract.
            return unsafe {
                latent.prepare(&k, of.row..of.row + of.tokens, &of_layer.norm, (shape, angles, eps))?;
                self.append_any(layer, of, (rows, at, None))
            };
        }
        let own_keys = layer.keys_of == layer.layer;
        let (q, kv) = (kv_heads * group * step, if own_keys { kv_heads * dim } else { 0 });
        let (half, config) = (shape.rot_dim / 2, &weights.config);
        for row in of.row..of.row + of.tokens {
            // SAFETY: the caller's contract.
            let x = unsafe { layer.from.row(row) };
            if let Some(bias) = weights.tensors.bias(layer.layer) {
                k.vec_add_inplace(bias, x)?;
            }
            if let Some(most) = config.attention_clamp {
                x.iter_mut().for_each(|x| *x = x.clamp(-most, most));
            }
            let [cos, sin] = [&angles.cos, &angles.sin].map(|a| &a[row * half..(row + 1) * half]);
            let rotate = |x: &mut [f32]| {
                if half > 0 {
                    let of_keys = RopeShape { heads: kv_heads, head_dim: dim, ..shape };
                    k.rope_inplace(shape, cos, sin, &mut x[..q])?;
                    if own_keys {
                        k.rope_inplace(of_keys, cos, sin, &mut x[q..q + kv])?;
                    }
                }
                Ok::<_, KernelError>(())
            };
            if config.qk_norm_behind {
                rotate(x)?;
            }
            if let Some(all) = weights.tensors.head_norms(layer.layer) {
                let each = |len: usize| if config.qk_norm_whole || config.qk_norm_each { len } else { dim };
                let (of_q, rest) = all.split_at(each(kv_heads * group * dim));
                let together = |len: usize, step: usize| match config.qk_norm_whole {
                    true => (len, len),
                    false => (dim, step),
                };
                let (one, step) = together(q, step);
                norm_heads(&k, (config.norm, eps), (of_q, one), (&mut x[..q], step))?;
                // A layer without keys has no weights for them.
                let (of_k, of_v) = rest.split_at(if own_keys { each(kv) } else { 0 });
                let (one, step) = together(kv, dim);
                norm_heads(&k, (config.norm, eps), (of_k, one), (&mut x[q..q + kv], step))?;
                norm_heads(&k, (config.norm, eps), (of_v, dim), (&mut x[q + kv..], dim))?;
            }
            if !config.qk_norm_behind {
                rotate(x)?;
            }
            if let Some(&temperature) = angles.temperatures.get(row) {
                k.vec_scale_inplace(temperature, &mut x[..q])?;
            }
        }
        if !own_keys {
            return Ok(());
        }
        // SAFETY: the caller's contract.
        unsafe { self.append_any(layer, of, (layer.from, q, Some(q + kv))) }
    }

    /// [`append`](Self::append) to a cache of any type.
    ///
    /// # Safety
    /// The contract of [`prepare`](Self::prepare).
    unsafe fn append_any(
        &self,
        layer: &OfLayer,
        of: BlockTokens,
        from: (Rows, usize, Option<usize>),
    ) -> Result<(), KernelError> {
        // SAFETY: the caller's contract.
        unsafe {
            match self.blocks.kind {
                KvType::F16 => self.append::<Plain<f16>>(layer, of, from),
                KvType::Bf16 => self.append::<Plain<bf16>>(layer, of, from),
                KvType::F32 => self.append::<Plain<f32>>(layer, of, from),
                KvType::Q8_0 => self.append::<Q8_0>(layer, of, from),
            }
        }
    }

    /// Writes the keys and values of tokens, which begin at these columns of rows, to their block; keys alone if these have the values.
    ///
    /// # Safety
    /// The contract of [`prepare`](Self::prepare).
    unsafe fn append<C: Cached>(
        &self,
        layer: &OfLayer,
        of: BlockTokens,
        (rows, keys, values): (Rows, usize, Option<usize>),
    ) -> Result<(), KernelError> {
        let (heads, cached) = self.shares[layer.group].heads.cached;
        let (dim, len) = (cached.dim, C::len(cached)?);
        // SAFETY: the caller's contract.
        let x = unsafe { rows.get(of.row..of.row + of.tokens) };
        for head in 0..heads {
            let part = |at: usize, n| MatRef::with_strides(&x[at..], of.tokens, n, rows.width, 1);
            let at = self.blocks.at(layer.layer, of.run, head, of.first / KV_BLOCK);
            // SAFETY: a block of the cache, which is the caller's.
            let block = unsafe { std::slice::from_raw_parts_mut(at.cast::<C::Cell>(), len) };
            let keys = part(keys + head * dim, dim)?;
            let values = values.map_or_else(|| part(0, 0), |at| part(at + head * dim, dim))?;
            C::append(of.first % KV_BLOCK, keys, values, block)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::with_sink;

    /// A sink takes its part, however far it is from the scores.
    #[test]
    fn sinks_take_their_part() {
        for (sink, top, sum) in
            [(0.5f32, 1.25, 3.0), (2.0, -1.0, 1.5), (-40.0, 3.0, 1.0), (60.0, 30.0, 200.0)]
        {
            let want = 1.0 / (f64::from(sum) + f64::from(sink - top).exp());
            let got = f64::from(with_sink(sink, top, sum));
            assert!((got / want - 1.0).abs() < 1e-6, "{sink}, {top}, {sum}: {got} instead of {want}");
        }
        assert_eq!(with_sink(f32::MAX, -1.0, 2.0), 0.0);
        assert_eq!(with_sink(f32::MIN, -1.0, 2.0), 0.5);
        assert_eq!(with_sink(300.0, -300.0, 2.0), 0.0);
        assert!(with_sink(0.0, f32::NAN, f32::NAN).is_nan());
    }
}
