// Latent attention in f64, token by token: keys and values of each head are formed, and queries are not changed.

use gllm_kernels_std::model::{Config, LatentAttention, LayerWeights, Temperature};

use super::{norm, rows, times};

/// What a layer keeps of a sequence.
pub struct Latent {
    of: LatentAttention,
    eps: f32,
    scale: f64,
    temperature: Option<Temperature>,
    query: Vec<Vec<f64>>,
    second: Option<(Vec<f32>, Vec<Vec<f64>>)>,
    cached: Vec<Vec<f64>>,
    norm: Vec<f32>,
    /// Of each head `rank x plain`, and `values x rank`.
    heads: Vec<[Vec<Vec<f64>>; 2]>,
    /// Keys and values of each head, token by token.
    before: Vec<Vec<[Vec<f64>; 2]>>,
}

impl Latent {
    /// What a layer has in front of a text, if attention is latent.
    pub fn of(config: &Config, weights: &LayerWeights<'_>) -> Option<Self> {
        let (of, w) = (config.latent_attention?, weights.latent.as_ref()?);
        let heads: Vec<_> = w.keys.iter().zip(&w.values).map(|(k, v)| [rows(k), rows(v)]).collect();
        Some(Self {
            of,
            eps: config.state_eps,
            scale: config.attention_scale.into(),
            temperature: config.temperature,
            query: rows(&weights.q),
            second: w.query.map(|query| (w.query_norm.clone().unwrap(), rows(&query))),
            cached: rows(&weights.k),
            norm: w.norm.clone(),
            before: heads.iter().map(|_| Vec::new()).collect(),
            heads,
        })
    }

    /// What the output matrix multiplies, of the next token.
    pub fn next(&mut self, x: &[f64], rotate: impl Fn(&mut [f64])) -> Vec<f64> {
        let LatentAttention { rank, plain, rotated, .. } = self.of;
        let mut q = times(&self.query, x);
        if let Some((weight, second)) = &self.second {
            q = times(second, &norm(&q, weight, self.eps));
        }
        let cached = times(&self.cached, x);
        let (row, mut turned) = (norm(&cached[..rank], &self.norm, self.eps), cached[rank..].to_vec());
        rotate(&mut turned);
        let mut y = Vec::new();
        for ((q, [keys, values]), before) in
            q.chunks_mut(plain + rotated).zip(&self.heads).zip(&mut self.before)
        {
            let key = |i: usize| row.iter().zip(keys).map(|(x, of)| x * of[i]).sum::<f64>();
            let key = (0..plain).map(key).chain(turned.iter().copied()).collect();
            before.push([key, times(values, &row)]);
            rotate(&mut q[plain..]);
            let by = self.temperature.map_or(1.0, |of| {
                let stretches = (before.len() - 1) / of.length;
                1.0 + f64::from(of.scale) * (1.0 + stretches as f64).ln()
            });
            let dot = |key: &[f64]| q.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() * self.scale * by;
            let scores: Vec<f64> = before.iter().map(|[key, _]| dot(key)).collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - top).exp()).sum();
            let each = || scores.iter().zip(before.iter());
            let weigh = |i: usize| each().map(|(s, [_, v])| (s - top).exp() * v[i]).sum::<f64>() / sum;
            y.extend((0..values.len()).map(weigh));
        }
        y
    }
}
