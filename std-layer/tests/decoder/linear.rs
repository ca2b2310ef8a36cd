// Linear attention in f64, token by token, from the formulas in the documentation of `LinearAttention`.

use gllm_kernels_std::model::{Config, LayerWeights, LinearAttention};

use super::{norm, rows, times};

/// What a layer keeps of a sequence.
pub struct Linear {
    of: LinearAttention,
    eps: f32,
    /// Queries, keys and values; gates; then the numbers `b` and `a`.
    inputs: Vec<Vec<f64>>,
    convolution: Vec<f32>,
    heads: Vec<[f64; 2]>,
    norm: Vec<f32>,
    /// Inputs of the convolution, the last one last.
    before: Vec<Vec<f64>>,
    /// `S` of each head of values, row by row: a row for each element of values.
    states: Vec<Vec<Vec<f64>>>,
}

impl Linear {
    /// What a layer has in front of a text, if it has linear attention.
    pub fn of(config: &Config, weights: &LayerWeights<'_>) -> Option<Self> {
        let (of, w) = (config.linear_attention?, weights.linear.as_ref()?);
        let matrices = [weights.q, weights.k, weights.v, w.gates].into_iter().chain(w.decays.clone());
        let both = w.rate.iter().zip(&w.decay_bias);
        Some(Self {
            of,
            eps: config.norm_eps,
            inputs: matrices.flat_map(|matrix| rows(&matrix)).collect(),
            convolution: w.convolution.clone(),
            heads: both.map(|(&rate, &bias)| [rate.into(), bias.into()]).collect(),
            norm: w.norm.clone(),
            before: vec![vec![0.0; of.channels()]; of.taps - 1],
            states: vec![vec![vec![0.0; of.size]; of.size]; of.value_heads],
        })
    }

    /// What the output matrix multiplies, of the next token.
    pub fn next(&mut self, x: &[f64]) -> Vec<f64> {
        let LinearAttention { key_heads, value_heads, size, .. } = self.of;
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let mut all = times(&self.inputs, x);
        let mut gates = all.split_off(self.of.channels());
        let numbers = gates.split_off(self.of.values());
        self.before.push(all);
        let convolve = |c: usize| {
            let taps = self.before.iter().zip(self.convolution.iter().skip(c).step_by(self.of.channels()));
            let sum: f64 = taps.map(|(x, &w)| x[c] * f64::from(w)).sum();
            sum * sigmoid(sum)
        };
        let convolved: Vec<f64> = (0..self.of.channels()).map(convolve).collect();
        self.before.remove(0);
        let heads: Vec<&[f64]> = convolved.chunks(size).collect();
        let unit = |x: &[f64]| {
            let length = (x.iter().map(|x| x * x).sum::<f64>() + f64::from(self.eps)).sqrt();
            x.iter().map(|x| x / length).collect::<Vec<_>>()
        };
        let mut y = Vec::new();
        for (head, state) in self.states.iter_mut().enumerate() {
            let of_key = self.of.key_head(head);
            let (q, k, v) =
                (unit(heads[of_key]), unit(heads[key_heads + of_key]), heads[2 * key_heads + head]);
            let [beta, a] = self.of.decay_of(head).map(|at| numbers[at]);
            let [rate, bias] = self.heads[head];
            let decay = (rate * (a + bias).exp().ln_1p()).exp();
            let dot = |row: &[f64], of: &[f64]| row.iter().zip(of).map(|(s, x)| s * x).sum::<f64>();
            let of_head: Vec<f64> = state
                .iter_mut()
                .zip(v)
                .map(|(row, v)| {
                    row.iter_mut().for_each(|s| *s *= decay);
                    let d = sigmoid(beta) * (v - dot(row, &k));
                    row.iter_mut().zip(&k).for_each(|(s, k)| *s += d * k);
                    dot(row, &q) / (size as f64).sqrt()
                })
                .collect();
            y.extend(norm(&of_head, &self.norm, self.eps));
        }
        assert_eq!(y.len(), value_heads * size);
        y.iter().zip(gates).map(|(y, z)| y * z * sigmoid(z)).collect()
    }
}
