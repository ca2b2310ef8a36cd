// Several residual streams, in f64, from the formulas in the documentation of `Streams`.

use gllm_kernels_std::model::{Config, HostWeights, Layer, LayerStreams};

use super::{norm, plus, rows, times};

/// The streams but the first, of each token.
pub struct Others {
    streams: Vec<Vec<Vec<f64>>>,
    /// What a layer predicted of the first one.
    predicted: Vec<Vec<f64>>,
    eps: f64,
}

/// `y`, made as long as `x`.
fn as_long_as(x: &[f64], y: Vec<f64>) -> Vec<f64> {
    let length = |x: &[f64]| (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64).sqrt();
    let by = length(x) / length(&y).max(1e-5f64.sqrt());
    y.into_iter().map(|y| y * by).collect()
}

/// What the two matrices beside attention make of the first stream `x` and of its norm `h`; weights contain the root of 1/2.
pub fn beside(of: &LayerStreams<'_>, x: &[f64], h: &[f64], eps: f32) -> Vec<f64> {
    let [down, up] = of.low_rank.map(|matrix| rows(&matrix));
    let root = plus(x, h).into_iter().map(|x| x / 2f64.sqrt()).collect::<Vec<_>>();
    plus(&root, &norm(&times(&up, &times(&down, h)), &of.post_norm, eps))
}

/// Gates that count, if few of them do.
pub fn sparse(layer: &Layer, gates: Vec<f64>) -> Vec<f64> {
    let Some(least) = layer.sparsity else { return gates };
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let middle = mean(&gates);
    let squares: Vec<f64> = gates.iter().map(|g| (g - middle).powi(2)).collect();
    let cut = middle + f64::from(least) * mean(&squares).sqrt();
    gates.into_iter().map(|g| (g - cut).max(0.0)).collect()
}

impl Others {
    pub fn of(config: &Config, weights: &HostWeights<'_>, xs: &[Vec<f64>]) -> Option<Self> {
        let matrices: Vec<_> = weights.streams.as_ref()?.split.iter().map(rows).collect();
        let of_token = |x: &Vec<f64>| matrices.iter().map(|w| as_long_as(x, times(w, x))).collect();
        let streams = xs.iter().map(of_token).collect();
        Some(Self { streams, predicted: Vec::new(), eps: f64::from(config.norm_eps) })
    }

    /// The numbers of a token's router, times a matrix.
    fn factors(&self, of: &LayerStreams<'_>, matrix: &[f32], x: &[f64]) -> Vec<f64> {
        let by = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + self.eps).sqrt();
        let dot = |w: &[f32], x: &[f64]| w.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum::<f64>();
        let numbers: Vec<f64> = of.router.chunks(x.len()).map(|row| (by * dot(row, x)).tanh()).collect();
        matrix.chunks(numbers.len()).map(|row| dot(row, &numbers)).collect()
    }

    pub fn predict(&mut self, of: &LayerStreams<'_>, xs: &mut [Vec<f64>]) {
        for (p, x) in xs.iter_mut().enumerate() {
            let factors = self.factors(of, &of.predict, x);
            let old: Vec<_> = [x.clone()].into_iter().chain(self.streams[p].clone()).collect();
            let new = |i: usize| {
                let factors = &factors[i * old.len()..][..old.len()];
                let sum = |d: usize| factors.iter().zip(&old).map(|(f, x)| f * x[d]).sum::<f64>();
                (0..x.len()).map(|d| old[i][d] + sum(d)).collect::<Vec<f64>>()
            };
            let mut all = (0..old.len()).map(new).collect::<Vec<_>>();
            self.streams[p] = all.split_off(1);
            *x = all.remove(0);
        }
        self.predicted = xs.to_vec();
    }

    /// Corrects all streams of a token; gives the first one, scaled.
    pub fn correct(&mut self, of: &LayerStreams<'_>, p: usize, x: &mut Vec<f64>) -> Vec<f64> {
        let factors = self.factors(of, &of.correct, x);
        let lacking: Vec<f64> = x.iter().zip(&self.predicted[p]).map(|(x, p)| x - p).collect();
        let corrected = |x: &[f64], factor: f64| {
            x.iter().zip(&lacking).map(|(x, by)| x + (1.0 + factor) * by).collect::<Vec<_>>()
        };
        *x = corrected(&self.predicted[p], factors[0]);
        for (stream, &factor) in self.streams[p].iter_mut().zip(&factors[1..]) {
            *stream = corrected(stream, factor);
        }
        x.iter().zip(&of.scale).map(|(x, &scale)| x * f64::from(scale)).collect()
    }

    pub fn add(&mut self, p: usize, y: &[f64]) {
        self.streams[p].iter_mut().for_each(|x| *x = plus(x, y));
    }

    /// The mean of all.
    pub fn merge(&self, weights: &HostWeights<'_>, xs: &mut [Vec<f64>]) {
        let matrices: Vec<_> = weights.streams.as_ref().unwrap().merge.iter().map(rows).collect();
        for (x, others) in xs.iter_mut().zip(&self.streams) {
            let all = matrices.iter().zip(others).map(|(w, y)| as_long_as(x, times(w, y)));
            let sum = all.fold(x.clone(), |sum, y| plus(&sum, &y));
            *x = sum.into_iter().map(|x| x / (1 + others.len()) as f64).collect();
        }
    }
}
