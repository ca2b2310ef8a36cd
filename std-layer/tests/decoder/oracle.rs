// What models compute, in f64.

use gllm_kernels_std::core::{Kernels, RopePairing};
use gllm_kernels_std::model::{Config, Gate, HostWeights, Matrix, Network, Norm, Pooling, Scoring};

#[path = "latent.rs"]
mod latent;
#[path = "recurrent.rs"]
mod recurrent;
#[path = "streams.rs"]
mod streams;

fn rows(matrix: &Matrix<'_>) -> Vec<Vec<f64>> {
    let (n, cols) = (matrix.rows(), matrix.cols());
    (0..n)
        .map(|r| match matrix {
            Matrix::Quantised(w) => {
                let mut row = vec![0f32; cols];
                Kernels::<f32>::detect().dequant(w.row_range(r, 1).unwrap(), &mut row).unwrap();
                row.into_iter().map(f64::from).collect()
            }
            Matrix::F32(w) => {
                // SAFETY: elements of the view.
                (0..cols).map(|c| unsafe { *w.as_ptr().add(r * w.row_stride() + c) }.into()).collect()
            }
        })
        .collect()
}

fn times(w: &[Vec<f64>], x: &[f64]) -> Vec<f64> {
    w.iter().map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

fn norm(x: &[f64], w: &[f32], eps: f32) -> Vec<f64> {
    let scale = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + f64::from(eps)).sqrt();
    x.iter().zip(w).map(|(x, &w)| x * scale * f64::from(w)).collect()
}

/// A norm of the residual stream, or that itself.
fn normed(config: &Config, x: &[f64], weight: &Option<Vec<f32>>, bias: &Option<Vec<f32>>) -> Vec<f64> {
    let Some(weight) = weight else { return x.to_vec() };
    if config.norm == Norm::Rms {
        return norm(x, weight, config.norm_eps);
    }
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let centred: Vec<f64> = x.iter().map(|x| x - mean).collect();
    let biases = bias.as_ref().unwrap();
    norm(&centred, weight, config.norm_eps).iter().zip(biases).map(|(x, &b)| x + f64::from(b)).collect()
}

/// The normal distribution function.
fn normal(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..300 {
        term *= x * x / f64::from(2 * n + 1);
        sum += term;
    }
    0.5 + sum * (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

fn plus(x: &[f64], y: &[f64]) -> Vec<f64> {
    x.iter().zip(y).map(|(x, y)| x + y).collect()
}

/// The logits behind each token, in f64, from the formulas in the documentation of [`Config`].
pub fn oracle(config: &Config, weights: &HostWeights<'_>, tokens: &[u32]) -> Vec<Vec<f64>> {
    let output = rows(&weights.output);
    let cap = |x: f64| config.logit_softcap.map(f64::from).map_or(x, |cap| cap * (x / cap).tanh());
    let biases = weights.output_bias.clone().unwrap_or(vec![0.0; output.len()]);
    let biased = |x: &Vec<f64>| {
        times(&output, x).into_iter().zip(&biases).map(|(y, &b)| cap(y + f64::from(b))).collect()
    };
    hidden(config, weights, tokens).iter().map(biased).collect()
}

/// The row of a text, of length 1.
pub fn embedding(config: &Config, weights: &HostWeights<'_>, tokens: &[u32], pooling: Pooling) -> Vec<f64> {
    let all = hidden(config, weights, tokens);
    let own = match pooling {
        Pooling::First => &all[..1],
        Pooling::Last => &all[all.len() - 1..],
        _ => &all[..],
    };
    let sum = (0..config.hidden).map(|i| own.iter().map(|x| x[i]).sum()).collect();
    let row: Vec<f64> = weights.dense.iter().fold(sum, |row: Vec<f64>, matrix| times(&rows(matrix), &row));
    let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
    row.into_iter().map(|x| x / length).collect()
}

/// The embeddings of tokens for each layer, those of all layers one behind the other, if there are any.
fn of_layers(config: &Config, weights: &HostWeights<'_>, tokens: &[u32], xs: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let (Some(n), Some(of)) = (config.per_layer, &weights.per_layer) else { return Vec::new() };
    let (table, projection) = (rows(&of.table), rows(&of.projection));
    let embeddings = tokens.iter().zip(xs).map(|(&token, x)| {
        let products: Vec<f64> =
            times(&projection, x).iter().map(|y| y / (config.hidden as f64).sqrt()).collect();
        let normed = products.chunks(n).flat_map(|part| norm(part, &of.norm, config.norm_eps));
        // The weights of the norm contain the factor of the sum.
        // Tokens without embeddings of their own have those of the first one.
        let own = &table[if (token as usize) < config.per_layer_vocabulary { token as usize } else { 0 }];
        normed.zip(own).map(|(y, e)| y + (n as f64 / 2.0).sqrt() * e).collect()
    });
    embeddings.collect()
}

/// What the output matrix multiplies.
pub fn hidden(config: &Config, weights: &HostWeights<'_>, tokens: &[u32]) -> Vec<Vec<f64>> {
    let eps = config.norm_eps;
    let embedding = rows(&weights.embedding);
    let scale = f64::from(config.embedding_scale);
    let mut xs: Vec<Vec<f64>> =
        tokens.iter().map(|&t| embedding[t as usize].iter().map(|x| x * scale).collect()).collect();
    if let Some(positions) = weights.positions.as_ref().map(rows) {
        xs.iter_mut().zip(&positions).for_each(|(x, of)| *x = plus(x, of));
    }
    if let Some(of) = &weights.embedding_norm {
        let [weight, bias] = [&of.weight, &of.bias].map(|x| Some(x.clone()));
        xs.iter_mut().for_each(|x| *x = normed(config, x, &weight, &bias));
    }
    let per_layer = of_layers(config, weights, tokens, &xs);
    let mut kept: Vec<[Vec<Vec<f64>>; 2]> = Vec::new();
    // What a layer adds behind the next one's attention.
    let mut waiting: Vec<Vec<f64>> = Vec::new();
    let mut streams = streams::Others::of(config, weights, &xs);
    for (l, (w, layer)) in weights.layers.iter().zip(&config.layer).enumerate() {
        if let (Some(streams), Some(of)) = (&mut streams, &w.streams) {
            streams.predict(of, &mut xs);
        }
        let heads = config.heads_of(l);
        let (dim, group) = (heads.dim, config.heads / heads.count);
        let rope = &config.ropes[layer.rope];
        let rotate = |x: &mut [f64], p: usize| {
            let half = rope.dims / 2;
            let factor = rope.attention_factor.unwrap_or(1.0);
            for i in 0..half {
                let divisor = rope.factors.as_ref().map_or(1.0, |factors| f64::from(factors[i]));
                let angle = p as f64 * rope.theta.powf(-2.0 * i as f64 / rope.dims as f64) / divisor;
                let (a, b) = match rope.pairing {
                    RopePairing::Adjacent => (2 * i, 2 * i + 1),
                    RopePairing::HalfSplit => (i, i + half),
                };
                let (c, s) = (factor * angle.cos(), factor * angle.sin());
                (x[a], x[b]) = (x[a] * c - x[b] * s, x[a] * s + x[b] * c);
            }
        };
        let mut recurrent = recurrent::Recurrent::of(config, w);
        let mut latent = latent::Latent::of(config, w);
        let (wq, wk, wv, wo) = (rows(&w.q), rows(&w.k), rows(&w.v), rows(&w.output));
        let network = |w: &Network<'_>| (w.gate.map(|m| rows(&m)), [w.up, w.down].map(|m| rows(&m)));
        let (dense, experts) = (
            w.feed_forward.as_ref().map(network),
            w.experts.as_ref().map(|w| w.each.iter().map(network).collect::<Vec<_>>()),
        );
        let router = w.experts.as_ref().map(|w| rows(&w.router));
        let [mut keys, mut values] = layer.keys_of.map_or_else(Default::default, |of| kept[of].clone());
        let mut inputs = Vec::new();
        for (p, x) in xs.iter().enumerate() {
            let h = normed(config, x, &w.attention_norm, &w.attention_norm_bias);
            let biased = |m: &[Vec<f64>], b: &Option<Vec<f32>>| {
                let y = times(m, &h);
                b.as_ref().map_or(y.clone(), |b| y.iter().zip(b).map(|(y, &b)| y + f64::from(b)).collect())
            };
            let (mut q, mut k, mut v) =
                (biased(&wq, &w.q_bias), biased(&wk, &w.k_bias), biased(&wv, &w.v_bias));
            let mut gates = Vec::new();
            if config.attention_gates && recurrent.is_none() {
                let both: Vec<Vec<f64>> = q.chunks(dim).map(<[f64]>::to_vec).collect();
                (q, gates) = (
                    both.iter().step_by(2).flatten().copied().collect(),
                    both.iter().skip(1).step_by(2).flatten().copied().collect(),
                );
            }
            for x in [&mut q, &mut k, &mut v] {
                let most = config.attention_clamp.map_or(f64::INFINITY, f64::from);
                x.iter_mut().for_each(|x| *x = x.clamp(-most, most));
            }
            for (x, of) in [(&mut q, &w.q_norm), (&mut k, &w.k_norm)] {
                if config.qk_norm_behind {
                    x.chunks_mut(dim).for_each(|head| rotate(head, p));
                }
                if let Some(of) = of {
                    // One head, or all, which may have weights of their own.
                    let one = if config.qk_norm_whole { of.len() } else { dim };
                    for (part, of) in x.chunks_mut(one).zip(of.chunks(one).cycle()) {
                        let of = [Some(of.to_vec()), Some(vec![0.0; one])];
                        part.copy_from_slice(&normed(config, part, &of[0], &of[1]));
                    }
                }
                if !config.qk_norm_behind && latent.is_none() {
                    x.chunks_mut(dim).for_each(|head| rotate(head, p));
                }
            }
            if let Some(of) = config.temperature {
                let by = 1.0 + f64::from(of.scale) * ((p / of.length) as f64 + 1.0).ln();
                q.iter_mut().for_each(|q| *q *= by);
            }
            if let Some(of) = &w.v_norm {
                v.chunks_mut(dim).for_each(|part| part.copy_from_slice(&norm(part, of, eps)));
            }
            if layer.keys_of.is_none() {
                keys.push(k);
                values.push(v);
            }
            inputs.push((h, q, gates));
        }
        for (p, (x, (h, q, gates))) in xs.iter_mut().zip(inputs).enumerate() {
            let from = layer.window.map_or(0, |window| (p + 1).saturating_sub(window));
            let behind = if config.causal { 1 } else { layer.window.unwrap_or(keys.len()) };
            let end = keys.len().min(p + behind);
            let mut mixed = Vec::new();
            for (head, q) in q.chunks(dim).enumerate().filter(|_| recurrent.is_none() && latent.is_none()) {
                let at = head / group * dim;
                let dot = |k: &[f64]| q.iter().zip(&k[at..at + dim]).map(|(q, k)| q * k).sum::<f64>();
                let mut scores: Vec<f64> =
                    keys[from..end].iter().map(|k| dot(k) * f64::from(config.attention_scale)).collect();
                if let Some(cap) = config.attention_softcap.map(f64::from) {
                    scores.iter_mut().for_each(|s| *s = cap * (*s / cap).tanh());
                }
                // A sink is a score without a value.
                let sink = w.sinks.as_ref().map(|sinks| f64::from(sinks[head]));
                let top = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().copied().chain(sink).map(|s| (s - top).exp()).sum();
                let weigh = |i: usize| {
                    let one = scores.iter().zip(&values[from..end]).map(|(s, v)| (s - top).exp() * v[at + i]);
                    one.sum::<f64>() / sum
                };
                mixed.extend((0..dim).map(weigh));
            }
            mixed.iter_mut().zip(&gates).for_each(|(x, gate): (_, &f64)| *x /= 1.0 + (-gate).exp());
            let mixed = recurrent.as_mut().map_or(mixed, |of| of.next(&h));
            let mixed = latent.as_mut().map_or(mixed, |latent| latent.next(&h, |x| rotate(x, p)));
            let mut a = if layer.without_attention { vec![0.0; x.len()] } else { times(&wo, &mixed) };
            if let Some(bias) = &w.output_bias {
                a.iter_mut().zip(bias).for_each(|(a, &b)| *a += f64::from(b));
            }
            if let Some(post) = &w.post_attention_norm {
                a = norm(&a, post, eps);
            }
            let beside = w.streams.as_ref().map(|of| streams::beside(of, x, &h, eps));
            if layer.joined {
                waiting.push(a);
                continue;
            }
            if let Some(other) = waiting.get(p) {
                a = plus(&a, other);
            }
            let attended = plus(beside.as_ref().unwrap_or(x), &a);
            // What the network takes.
            let from = if config.parallel { x.clone() } else { attended.clone() };
            let h = match config.shared_norm {
                true => normed(config, &from, &w.attention_norm, &w.attention_norm_bias),
                false => normed(config, &from, &w.ffn_norm, &w.ffn_norm_bias),
            };
            *x = attended;
            if layer.without_network {
                continue;
            }
            let gated = |g: f64, u: f64| match config.gate {
                Gate::Silu => u * g / (1.0 + (-g).exp()),
                Gate::GeluTanh => {
                    let t = (2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g * g * g);
                    u * 0.5 * g * (1.0 + t.tanh())
                }
                Gate::ClampedSwiglu => {
                    let g = g.min(7.0);
                    (u.clamp(-7.0, 7.0) + 1.0) * g / (1.0 + (-1.702 * g).exp())
                }
                Gate::Gelu => u * g * normal(g),
                Gate::ReluSquared => u * g.max(0.0).powi(2),
                Gate::Xielu => {
                    let [positive, negative] = layer.xielu.unwrap().map(f64::from);
                    let curved =
                        if g > 0.0 { positive * g * g } else { negative * (g.min(-1e-6).exp_m1() - g) };
                    u * (curved + 0.5 * g)
                }
                _ => unreachable!("an activation that the oracle does not know"),
            };
            let with = |y: Vec<f64>, bias: Option<&[f32]>| match bias {
                Some(bias) => y.iter().zip(bias).map(|(y, &b)| y + f64::from(b)).collect(),
                None => y,
            };
            let network = |h: &[f64],
                           gate: Option<&[Vec<f64>]>,
                           [up, down]: [&[Vec<f64>]; 2],
                           biases: [Option<&[f32]>; 3]| {
                let u = with(times(up, h), biases[1]);
                let gated: Vec<f64> = match gate.map(|gate| with(times(gate, h), biases[0])) {
                    Some(g) => streams::sparse(layer, g).iter().zip(u).map(|(&g, u)| gated(g, u)).collect(),
                    None => u.into_iter().map(|u| gated(u, 1.0)).collect(),
                };
                with(times(down, &gated), biases[2])
            };
            let mut f = vec![0.0; h.len()];
            if let Some((gate, [up, down])) = &dense {
                let biases = [None, w.up_bias.as_deref(), w.down_bias.as_deref()];
                f = network(&h, gate.as_deref(), [up, down], biases);
            }
            if let (Some(e), Some(experts), Some(router)) = (&config.experts, &experts, &router) {
                if let Some(gate) = w.experts.as_ref().and_then(|w| w.shared_gate.as_ref()) {
                    let score: f64 = gate.iter().zip(&h).map(|(&g, x)| f64::from(g) * x).sum();
                    f.iter_mut().for_each(|f| *f /= 1.0 + (-score).exp());
                }
                let of_layer = w.experts.as_ref();
                let norms = of_layer.and_then(|of| of.norms.as_ref());
                // What the router takes, and what the experts take.
                let own = |of: &[f32]| norm(&from, of, eps);
                let routed = norms.map_or(h.clone(), |norms| own(&norms.router));
                let h = norms.map_or(h, |norms| own(&norms.experts));
                let beside = norms.map(|norms| norm(&f, &norms.post_shared, eps));
                f = if norms.is_some() { vec![0.0; f.len()] } else { f };
                let routed = with(times(router, &routed), of_layer.and_then(|w| w.router_bias.as_deref()));
                let all: f64 = routed.iter().map(|x| x.exp()).sum();
                let products = routed.clone();
                let score = |x: f64| match e.scoring {
                    Scoring::Softmax | Scoring::SparseMixer => x.exp() / all,
                    _ => 1.0 / (1.0 + (-x).exp()),
                };
                let scores: Vec<f64> = routed.into_iter().map(score).collect();
                let merits = with(scores.clone(), of_layer.and_then(|w| w.selection_bias.as_deref()));
                let mut order: Vec<usize> = (0..e.count).collect();
                order.sort_by(|&a, &b| merits[b].total_cmp(&merits[a]));
                if let Some(groups) = e.groups {
                    // Sorted, so that the first ones of a group are the best.
                    let group = |i: usize| i / (e.count / groups.count);
                    let own = |g: usize, i: &usize| group(*i) == g;
                    let best = |g: usize| {
                        order.iter().filter(|i| own(g, i)).take(groups.counted).map(|&i| merits[i]).sum()
                    };
                    let mut open: Vec<usize> = (0..groups.count).collect();
                    let sums: Vec<f64> = open.iter().map(|&g| best(g)).collect();
                    open.sort_by(|&a, &b| sums[b].total_cmp(&sums[a]));
                    order.retain(|&i| open[..groups.used].contains(&group(i)));
                }
                order.truncate(e.used);
                let of: f64 = if e.normalised { order.iter().map(|&i| scores[i]).sum() } else { 1.0 };
                let mut left = products.clone();
                for i in order {
                    let (n, out) = (e.intermediate, config.hidden);
                    let biases = of_layer.and_then(|w| w.biases.as_ref());
                    let part = |at: usize, n: usize| biases.map(|all| &all[at][i * n..(i + 1) * n]);
                    let (gate, [up, down]) = &experts[i];
                    let own = of_layer.and_then(|of| of.factors.as_ref()).map_or(1.0, |own| own[i]);
                    let score = match e.scoring {
                        Scoring::SparseMixer => {
                            let most = products[i];
                            let near = left.iter().filter(|x| (most - **x) / x.abs().max(most) <= 0.02);
                            let share = 1.0 / near.map(|x| (x - most).exp()).sum::<f64>();
                            left[i] = f64::NEG_INFINITY;
                            share
                        }
                        _ => scores[i],
                    };
                    let factor = score / of * f64::from(e.scale) * f64::from(own);
                    // It multiplies what the expert takes, or what it gives.
                    let [before, factor] = if e.scaled_inputs { [factor, 1.0] } else { [1.0, factor] };
                    let h: Vec<f64> = h.iter().map(|x| before * x).collect();
                    let y = network(&h, gate.as_deref(), [up, down], [part(0, n), part(1, n), part(2, out)]);
                    f.iter_mut().zip(y).for_each(|(f, y)| *f += factor * y);
                }
                if let (Some(norms), Some(beside)) = (norms, &beside) {
                    f = plus(beside, &norm(&f, &norms.post_experts, eps));
                }
            }
            if let Some(post) = &w.post_ffn_norm {
                f = norm(&f, post, eps);
            }
            let scale = f64::from(layer.scale.unwrap_or(1.0));
            if let Some(own) = &w.per_layer {
                *x = plus(x, &f);
                let n = config.per_layer.unwrap();
                let scaled = match (&mut streams, &w.streams) {
                    (Some(streams), Some(of)) => streams.correct(of, p, x),
                    _ => x.clone(),
                };
                let gates = times(&rows(&own.gate), &scaled);
                let by = &per_layer[p][l * n..][..n];
                let y: Vec<f64> = gates.iter().zip(by).map(|(&g, &by)| gated(g, by)).collect();
                f = norm(&times(&rows(&own.output), &y), &own.post_norm, eps);
            }
            match &mut streams {
                Some(streams) => streams.add(p, &f),
                None => x.iter_mut().zip(&f).for_each(|(x, f)| *x = scale * *x + f),
            }
        }
        if !layer.joined {
            waiting.clear();
        }
        kept.push([keys, values]);
    }
    if let Some(streams) = streams {
        streams.merge(weights, &mut xs);
    }
    xs.iter().map(|x| normed(config, x, &weights.output_norm, &weights.output_norm_bias)).collect()
}
