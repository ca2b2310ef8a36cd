//! What layers have in place of attention that keep a state of fixed size of a sequence.

/// What a recurrent layer computes in place of attention, `x` being its normed row of the residual stream, and `a` what it adds to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Recurrence {
    /// Linear attention.
    Linear(LinearAttention),
    /// A short convolution.
    Convolution(ShortConvolution),
}

impl Recurrence {
    /// Numbers of a token that the layer's matrices give.
    pub fn inputs(&self) -> usize {
        match self {
            Self::Linear(of) => of.channels() + of.values() + of.numbers(),
            Self::Convolution(of) => 3 * of.channels,
        }
    }

    /// Numbers of a token that its output matrix takes.
    pub fn outputs(&self) -> usize {
        match self {
            Self::Linear(of) => of.values(),
            Self::Convolution(of) => of.channels,
        }
    }

    /// Channels that are convolved.
    pub fn channels(&self) -> usize {
        match self {
            Self::Linear(of) => of.channels(),
            Self::Convolution(of) => of.channels,
        }
    }

    /// Tokens that the convolution reads: 2 to 8.
    pub fn taps(&self) -> usize {
        match self {
            Self::Linear(of) => of.taps,
            Self::Convolution(of) => of.taps,
        }
    }

    /// Numbers that a layer keeps of a sequence, in f32: inputs of the convolution, `(taps - 1) x channels`, the oldest first; then, of linear attention, `S`,
    /// transposed: for each head of values `value_size x key_size`.
    pub fn state(&self) -> usize {
        let matrices = match self {
            Self::Linear(of) => of.values() * of.key_size,
            Self::Convolution(_) => 0,
        };
        (self.taps() - 1) * self.channels() + matrices
    }
}

/// A short convolution between two gates (Liquid AI, LFM2):
/// ```text
/// b, c, u  = in(x)                                                    a row of 3 * channels
/// a        = output(c * sum over j of convolution[j] * (b * u)[j])    of this token and the taps - 1 before it, channel by channel
/// ```
/// What the convolution reads in front of the first token is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShortConvolution {
    /// Channels: as many as the residual stream has elements.
    pub channels: usize,
    /// Tokens that the convolution reads: 2 to 8.
    pub taps: usize,
}

/// Linear attention: instead of keys and values of all positions a layer keeps a matrix `S` for each head of values, to which each token adds, and which forgets.
///
/// Of a token:
/// ```text
/// c            = q, k, v = linear(x)                         one row of 2 key_heads * key_size + value_heads * value_size channels
/// c            = silu(bias + sum over j of convolution[j] * c[j])            of this token and the taps - 1 before it, channel by channel
/// length       = ln(1 + exp(a(x) + bias))                                   a number of each head of values, and so is what follows from it:
/// decay        = exp(rate * length)                          with rate < 0
/// ```
/// Then, for each head of values, with the q and k of the head of keys that belongs to it, by the gated [`Delta`](Rule::Delta) rule:
/// ```text
/// q, k         = q / sqrt(|q|^2 + eps), k / sqrt(|k|^2 + eps)
/// S            = decay S;   S = S + sigmoid(b(x)) (v - S k) k^T
/// y            = norm(S q / sqrt(key_size)) * silu(gates(x))                the RMS norm of each head
/// ```
/// Or as a [`StateSpace`](Rule::StateSpace):
/// ```text
/// S            = decay S + length v k^T
/// y            = norm((S q + skip v) * silu(gates(x)))       the RMS norm of heads that belong to the same head of keys together, if it is normed
/// ```
/// And `a = output(y)`. In front of the first token `S` and what the convolution reads are 0. Without a bias that of the convolution is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinearAttention {
    /// What a token adds to `S`.
    pub rule: Rule,
    /// Heads of queries and of keys.
    pub key_heads: usize,
    /// Heads of values; a multiple of `key_heads`.
    pub value_heads: usize,
    /// Elements of each head of queries and of keys.
    pub key_size: usize,
    /// Elements of each head of values: `key_size` by the delta rule.
    pub value_size: usize,
    /// Tokens that the convolution reads: 2 to 8.
    pub taps: usize,
    /// Whether head `h` of values belongs to head `h % key_heads` of keys. Otherwise heads of values that belong to the same follow each other: to head
    /// `h / (value_heads / key_heads)`.
    pub tiled: bool,
    /// Whether what states give is normed. If it is not, weights and epsilon of the norm are so large that it changes nothing.
    pub normed: bool,
}

/// The weight of norms that change nothing: with its square for epsilon, `x / sqrt(mean(x^2) + epsilon) * weight` is `x` as long as the mean is below a millionth of that. Both are powers
/// of 2, which do not round. So backends need no kernels without norms.
pub(super) const UNNORMED: f32 = (1u64 << 48) as f32;

/// What a token adds to the matrices of linear attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The difference between its value and what the state recalls for its key. (Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with
    /// Delta Rule", 2024.)
    Delta {
        /// Numbers `b` of so many heads of values are followed by the numbers `a` of the same: all of them, or those of a head of keys.
        decay_heads: usize,
    },
    /// Its value: a layer of Mamba-2, whose `C`, `B`, `x` and `D` are `q`, `k`, `v` and `skip` here. The convolution has a bias. (Dao and Gu, "Transformers are
    /// SSMs: Generalized Models and Efficient Algorithms Through Structured State Space Duality", 2024.)
    StateSpace,
}

impl LinearAttention {
    /// Channels that are convolved: queries, keys and values.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_size + self.values()
    }

    /// Elements of all heads of values.
    pub fn values(&self) -> usize {
        self.value_heads * self.value_size
    }

    /// The head of keys that a head of values belongs to.
    pub fn key_head(&self, head: usize) -> usize {
        match self.tiled {
            true => head % self.key_heads,
            false => head / (self.value_heads / self.key_heads),
        }
    }

    /// How many numbers `a`, and `b` if there are any, a token has.
    pub fn numbers(&self) -> usize {
        match self.rule {
            Rule::Delta { .. } => 2 * self.value_heads,
            Rule::StateSpace => self.value_heads,
        }
    }

    /// Where the numbers `b`, if there are any, and `a` of a head of values are among these.
    pub fn numbers_of(&self, head: usize) -> (Option<usize>, usize) {
        match self.rule {
            Rule::Delta { decay_heads } => {
                let first = head / decay_heads * 2 * decay_heads + head % decay_heads;
                (Some(first), first + decay_heads)
            }
            Rule::StateSpace => (None, head),
        }
    }

    /// Heads of queries, and as many of keys, that are normed.
    pub(crate) fn normed_heads(&self) -> usize {
        match self.rule {
            Rule::Delta { .. } => self.key_heads,
            Rule::StateSpace => 0,
        }
    }

    /// Elements of values that have a norm together.
    pub fn normed_together(&self) -> usize {
        match self.rule {
            Rule::Delta { .. } => self.value_size,
            Rule::StateSpace => self.values() / self.key_heads,
        }
    }
}
