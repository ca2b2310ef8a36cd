// Recurrent layers in f64, token by token, from the formulas in the documentation of `Recurrence`.

use gllm_kernels_std::model::{Config, LayerWeights, LinearAttention, Recurrence, RecurrentWeights, Rule};

use super::{norm, rows, times};

/// The last inputs of a convolution, and its weights.
struct Convolution {
    weights: Vec<f32>,
    bias: Vec<f32>,
    /// The last one last.
    before: Vec<Vec<f64>>,
}

impl Convolution {
    fn new(of: Recurrence, weights: &RecurrentWeights<'_>) -> Self {
        let before = vec![vec![0.0; of.channels()]; of.taps() - 1];
        let bias = weights.convolution_bias.clone().unwrap_or(vec![0.0; of.channels()]);
        Self { weights: weights.convolution.clone(), bias, before }
    }

    /// The sums of the next token.
    fn next(&mut self, x: Vec<f64>) -> Vec<f64> {
        let channels = x.len();
        self.before.push(x);
        let convolve = |c: usize| {
            let taps = self.before.iter().zip(self.weights.iter().skip(c).step_by(channels));
            taps.map(|(x, &w)| x[c] * f64::from(w)).sum::<f64>() + f64::from(self.bias[c])
        };
        let sums = (0..channels).map(convolve).collect();
        self.before.remove(0);
        sums
    }
}

/// A recurrent layer, and what it keeps of a sequence.
pub enum Recurrent {
    Linear(Linear),
    Convolution(ShortConvolution),
}

impl Recurrent {
    /// What a layer has in front of a text, if it is recurrent.
    pub fn of(config: &Config, weights: &LayerWeights<'_>) -> Option<Self> {
        let (of, w) = (config.recurrence?, weights.recurrent.as_ref()?);
        let convolution = Convolution::new(of, w);
        Some(match of {
            Recurrence::Linear(of) => Self::Linear(Linear::new((config, of), (weights, w), convolution)),
            Recurrence::Convolution(_) => Self::Convolution(ShortConvolution {
                inputs: [weights.q, weights.k, weights.v].map(|matrix| rows(&matrix)),
                convolution,
            }),
            _ => unreachable!("a recurrence that the oracle does not know"),
        })
    }

    /// What the output matrix multiplies, of the next token.
    pub fn next(&mut self, x: &[f64]) -> Vec<f64> {
        match self {
            Self::Linear(of) => of.next(x),
            Self::Convolution(of) => of.next(x),
        }
    }
}

pub struct ShortConvolution {
    inputs: [Vec<Vec<f64>>; 3],
    convolution: Convolution,
}

impl ShortConvolution {
    fn next(&mut self, x: &[f64]) -> Vec<f64> {
        let [b, c, u] = self.inputs.each_ref().map(|w| times(w, x));
        let sums = self.convolution.next(b.iter().zip(&u).map(|(b, u)| b * u).collect());
        sums.iter().zip(c).map(|(y, c)| y * c).collect()
    }
}

pub struct Linear {
    of: LinearAttention,
    eps: f32,
    /// Queries, keys and values; gates; then the numbers `b` and `a`.
    inputs: Vec<Vec<f64>>,
    convolution: Convolution,
    heads: Vec<[f64; 2]>,
    norm: Vec<f32>,
    skip: Option<Vec<f32>>,
    /// `S` of each head of values, row by row: a row for each element of values.
    states: Vec<Vec<Vec<f64>>>,
}

impl Linear {
    fn new(
        (config, of): (&Config, LinearAttention),
        (weights, recurrent): (&LayerWeights<'_>, &RecurrentWeights<'_>),
        convolution: Convolution,
    ) -> Self {
        let w = recurrent.linear.as_ref().unwrap();
        let matrices = [weights.q, weights.k, weights.v, w.gates].into_iter().chain(w.decays.clone());
        let both = w.rate.iter().zip(&w.decay_bias);
        Self {
            of,
            eps: config.state_eps,
            inputs: matrices.flat_map(|matrix| rows(&matrix)).collect(),
            convolution,
            heads: both.map(|(&rate, &bias)| [rate.into(), bias.into()]).collect(),
            norm: w.norm.clone(),
            skip: w.skip.clone(),
            states: vec![vec![vec![0.0; of.key_size]; of.value_size]; of.value_heads],
        }
    }

    fn next(&mut self, x: &[f64]) -> Vec<f64> {
        let LinearAttention { rule, key_heads, value_heads, key_size, value_size, .. } = self.of;
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let mut all = times(&self.inputs, x);
        let mut gates = all.split_off(self.of.channels());
        let numbers = gates.split_off(self.of.values());
        let convolved: Vec<f64> =
            self.convolution.next(all).into_iter().map(|sum| sum * sigmoid(sum)).collect();
        let (of_keys, values) = convolved.split_at(2 * key_heads * key_size);
        let heads: Vec<&[f64]> = of_keys.chunks(key_size).collect();
        let unit = |x: &[f64]| {
            let length = (x.iter().map(|x| x * x).sum::<f64>() + f64::from(self.eps)).sqrt();
            x.iter().map(|x| x / length).collect::<Vec<_>>()
        };
        let mut y = Vec::new();
        for (head, state) in self.states.iter_mut().enumerate() {
            let of_key = self.of.key_head(head);
            let v = &values[head * value_size..][..value_size];
            let (b, a) = self.of.numbers_of(head);
            let [rate, bias] = self.heads[head];
            let length = (numbers[a] + bias).exp().ln_1p();
            let decay = (rate * length).exp();
            if rule == Rule::StateSpace {
                let (q, k) = (heads[of_key], heads[key_heads + of_key]);
                let skip = f64::from(self.skip.as_ref().unwrap()[head]);
                for (row, v) in state.iter_mut().zip(v) {
                    row.iter_mut().zip(k).for_each(|(s, k)| *s = decay * *s + length * v * k);
                    y.push(row.iter().zip(q).map(|(s, q)| s * q).sum::<f64>() + skip * v);
                }
                continue;
            }
            let (q, k) = (unit(heads[of_key]), unit(heads[key_heads + of_key]));
            let beta = numbers[b.unwrap()];
            let dot = |row: &[f64], of: &[f64]| row.iter().zip(of).map(|(s, x)| s * x).sum::<f64>();
            let of_head: Vec<f64> = state
                .iter_mut()
                .zip(v)
                .map(|(row, v)| {
                    row.iter_mut().for_each(|s| *s *= decay);
                    let d = sigmoid(beta) * (v - dot(row, &k));
                    row.iter_mut().zip(&k).for_each(|(s, k)| *s += d * k);
                    dot(row, &q) / (key_size as f64).sqrt()
                })
                .collect();
            y.extend(norm(&of_head, &self.norm, self.eps));
        }
        assert_eq!(y.len(), value_heads * value_size);
        let y: Vec<f64> = y.iter().zip(gates).map(|(y, z)| y * z * sigmoid(z)).collect();
        if rule != Rule::StateSpace {
            return y;
        }
        let part = self.of.normed_together();
        y.chunks(part).zip(self.norm.chunks(part)).flat_map(|(y, w)| norm(y, w, self.eps)).collect()
    }
}
