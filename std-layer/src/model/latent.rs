//! Multi-head latent attention: what it computes.

/// Multi-head latent attention: keys and values of all heads are products of one short row of each token, which is all that a cache keeps, so that there is one
/// head of keys. (DeepSeek-AI, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model", 2024, with the matrices of keys and values
/// multiplied with queries and results, as that paper proposes.)
///
/// Of a token, `x` being its normed row of the residual stream:
/// ```text
/// q        = q_b(norm(q_a(x)))             or q(x) without query_rank; of each head plain elements p and rotated elements r
/// c, t     = kv_a(x)                       rank and rotated elements
/// k        = norm(c), rope(t)              the cached row: head_dim elements, of which the first rank are the value
/// q        = keys[h] p, rope(r)            of each head h: head_dim elements
/// a        = output(values[h] (s norm(c))) of each head h, one behind the other, with s as in Config
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LatentAttention {
    /// Elements of the row that queries are products of, if there are two products.
    pub query_rank: Option<usize>,
    /// Elements of the row that keys and values are products of.
    pub rank: usize,
    /// Elements of a head's query that are not rotated.
    pub plain: usize,
    /// Those that are.
    pub rotated: usize,
    /// Elements of a head's result.
    pub values: usize,
}

impl LatentAttention {
    /// Elements of a head's query before it is multiplied by the head's matrix of keys.
    pub fn query(&self) -> usize {
        self.plain + self.rotated
    }

    /// Elements of what a token's cached row is made of.
    pub fn cached(&self) -> usize {
        self.rank + self.rotated
    }
}
