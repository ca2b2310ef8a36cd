//! Several residual streams, of which layers compute one.

/// Several residual streams (AltUp: Baykal et al., "Alternating Updates for Efficient Transformers", 2023), and two matrices of low rank beside attention (LAuReL:
/// Menghani et al., "Learned Augmented Residual Layer", 2024), as Gemma 3n has them.
///
/// In front of the first layer, with `x[0]` being what [`Config`](super::Config) has there, `|y| = sqrt(mean(y^2))`, of divisors at least `sqrt(1e-5)`,
/// ```text
/// y       = split[i](x[0])
/// x[i]    = y * |x[0]| / |y|                                           for each other stream i
/// ```
/// A layer predicts all streams, computes the first of them, and corrects the others by what its prediction lacked. Attention `a` and network `f` are those of
/// [`Config`](super::Config), with the norms behind them:
/// ```text
/// m       = tanh(router(norm(x[0])) / hidden)                          as many numbers as streams
/// p[i]    = x[i] + sum over j of predict[i, j](m) x[j]                 predict gives a number for each pair of streams
/// h       = norm(p[0])                                                 the norm in front of attention
/// x       = (p[0] + a + h + norm(up(down(h)))) / sqrt(2)               down gives rank numbers
/// x       = x + f
/// m       = tanh(router(norm(x)) / hidden)                             the same router
/// x[i]    = p[i] + (1 + correct[i](m)) (x - p[0])
/// x[i]    = x[i] + norm(output(gated(gate(scale * x[0]), e)))          for each i but 0, e being the layer's embedding of the token
/// ```
/// Behind the last layer
/// ```text
/// y[i]    = merge[i](x[i])                                             for each i but 0
/// x       = mean of x[0] and of all y[i] * |x[0]| / |y[i]|
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Streams {
    /// How many there are: 2 to [`MOST`](Self::MOST).
    pub count: usize,
    /// Numbers between the two matrices beside attention.
    pub rank: usize,
}

impl Streams {
    /// The most streams that a model may have.
    pub const MOST: usize = 8;

    /// Streams but the first.
    pub fn others(&self) -> usize {
        self.count - 1
    }
}
