//! The two recurrent operators of layers with linear attention, state-space layers among them, and of short convolutions.

use crate::check;
use crate::error::KernelError;
use crate::ops::causal_conv::{CausalConvArgs, ConvFilter};
use crate::ops::gated_delta::{DeltaGates, GatedDeltaArgs};
use crate::table::Kernels;
use crate::view::{MatMut, MatRef};

#[cfg(feature = "rows")]
/// # Linear attention
///
/// Layers with linear attention have a state of fixed size in place of a cache that grows with the text. Everything is f32. Both
/// operators take one token or many, and the results have the same bits however the tokens of a text are divided into calls. They
/// also have the same bits whichever rows of a state, or channels, a call has, so that threads can divide these: a column range of a view is the
/// row range of its transpose.
impl Kernels<f32> {
    /// The gated delta rule (Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024) for one
    /// head. `state` is a matrix `S` with a row for each element of a value and a column for each element of a key. `q`, `k`, `v` and `y`
    /// have a row for each token `t`; in order, with `g` the decay:
    ///
    /// `d = beta_t (v_t - g_t S k_t)`, then `S = g_t S + d k_t^T`, then `y_t = S q_t`.
    ///
    /// Unless it is `corrected`, `d = beta_t v_t`: the recurrence of a state-space layer (Dao and Gu, "Transformers are SSMs", 2024), with its `C` for `q`, `B`
    /// for `k`, `x` for `v`, the length of the step for `beta`, and `exp(A beta)` for `g`.
    ///
    /// The caller scales and normalises queries and keys beforehand.
    ///
    /// Sums over a key go to the lanes of a vector, so their relative error is at most about `(key_dim / lanes + lanes) * 2^-24` of the sum
    /// of magnitudes; errors of `S` are multiplied by `g_t (1 - beta_t k_t k_t^T)` from token to token, or by `g_t` without the correction. A NaN or an infinity in a row of `S`, or in a
    /// value, stays in its row; in a key or a query it concerns all rows.
    ///
    /// # Errors
    /// `DimMismatch` unless `q`, `k`, `v` and `y` have the same number of rows, with a decay and a `beta` for each, `q` and `k` as many
    /// columns as `state`, and `v` and `y` as many columns as `state` has rows; `BadValue` if `state` has no columns, or unless the
    /// rows of `state`, `q` and `k` are contiguous.
    pub fn gated_delta_rule(
        &self,
        mut state: MatMut<'_, f32>,
        q: MatRef<'_, f32>,
        k: MatRef<'_, f32>,
        v: MatRef<'_, f32>,
        gates: DeltaGates<'_>,
        mut y: MatMut<'_, f32>,
    ) -> Result<(), KernelError> {
        let (tokens, value_dim, key_dim) = (q.rows(), state.rows(), state.cols());
        check::dim("q.cols() != state.cols()", q.cols(), key_dim)?;
        check::dim("k.rows() != q.rows()", k.rows(), tokens)?;
        check::dim("k.cols() != state.cols()", k.cols(), key_dim)?;
        check::dim("v.rows() != q.rows()", v.rows(), tokens)?;
        check::dim("v.cols() != state.rows()", v.cols(), value_dim)?;
        check::dim("y.rows() != q.rows()", y.rows(), tokens)?;
        check::dim("y.cols() != state.rows()", y.cols(), value_dim)?;
        check::dim("gates.decay.len() != q.rows()", gates.decay.len(), tokens)?;
        check::dim("gates.beta.len() != q.rows()", gates.beta.len(), tokens)?;
        at_least_one("state.cols()", key_dim)?;
        check::contiguous("state.col_stride()", state.col_stride(), key_dim)?;
        check::contiguous("q.col_stride()", q.col_stride(), key_dim)?;
        check::contiguous("k.col_stride()", k.col_stride(), key_dim)?;
        if tokens == 0 || value_dim == 0 {
            return Ok(());
        }
        let args = GatedDeltaArgs {
            tokens,
            key_dim,
            value_dim,
            state: (state.as_mut_ptr(), state.row_stride()),
            q: (q.as_ptr(), q.row_stride()),
            k: (k.as_ptr(), k.row_stride()),
            v: (v.as_ptr(), [v.row_stride(), v.col_stride()]),
            gates,
            y: (y.as_mut_ptr(), [y.row_stride(), y.col_stride()]),
        };
        // SAFETY: the shapes fit each other, and none is empty; `state` and `y` are exclusive; the table's instruction set is present.
        unsafe { (self.table.gated_delta_rule)(&args) };
        Ok(())
    }

    /// A causal convolution along the tokens, of each channel by itself (depthwise). `x` and `y` have a row for each token
    /// and a column for each channel, `w` a row for each of its `K` taps:
    ///
    /// `y[t][c] = f(bias[c] + sum_j w[j][c] x[t - (K - 1) + j][c])`, with `j` from 0 to `K - 1`; `f` is SiLU or nothing, and `bias` is 0 where there is none.
    ///
    /// `state` holds the `K - 1` inputs before the first token, oldest first; afterwards those before the next token. Layers that
    /// begin a text start with zeros.
    ///
    /// Sums begin with the bias, and are formed in the order of taps by fused multiply-adds, so the error of a sum is at most `K * 2^-24` of the sum of magnitudes;
    /// [`silu`](Self::silu) adds its own.
    ///
    /// # Errors
    /// `DimMismatch` unless `x` and `y` have the same shape, `w` and `state` as many columns, `bias` as many elements, and `state` one row fewer than
    /// `w`; `BadValue` if `w` has no rows, or unless all rows are contiguous.
    pub fn causal_conv1d(
        &self,
        mut state: MatMut<'_, f32>,
        x: MatRef<'_, f32>,
        filter: ConvFilter<'_>,
        mut y: MatMut<'_, f32>,
    ) -> Result<(), KernelError> {
        let ConvFilter { w, bias, silu } = filter;
        let (tokens, channels, taps) = (x.rows(), x.cols(), w.rows());
        at_least_one("w.rows()", taps)?;
        check::dim("w.cols() != x.cols()", w.cols(), channels)?;
        check::dim("state.rows() != w.rows() - 1", state.rows(), taps - 1)?;
        check::dim("state.cols() != x.cols()", state.cols(), channels)?;
        bias.map_or(Ok(()), |bias| check::dim("bias.len() != x.cols()", bias.len(), channels))?;
        check::dim("y.rows() != x.rows()", y.rows(), tokens)?;
        check::dim("y.cols() != x.cols()", y.cols(), channels)?;
        check::contiguous("state.col_stride()", state.col_stride(), channels)?;
        check::contiguous("x.col_stride()", x.col_stride(), channels)?;
        check::contiguous("w.col_stride()", w.col_stride(), channels)?;
        check::contiguous("y.col_stride()", y.col_stride(), channels)?;
        if x.is_empty() {
            return Ok(());
        }
        let args = CausalConvArgs {
            tokens,
            channels,
            taps,
            state: (state.as_mut_ptr(), state.row_stride()),
            x: (x.as_ptr(), x.row_stride()),
            w: (w.as_ptr(), w.row_stride()),
            bias: bias.map_or(core::ptr::null(), <[f32]>::as_ptr),
            silu,
            y: (y.as_mut_ptr(), y.row_stride()),
        };
        // SAFETY: the shapes fit each other, and none is empty but a state without rows; `state` and `y` are exclusive; the table's
        // instruction set is present.
        unsafe { (self.table.causal_conv1d)(&args) };
        Ok(())
    }
}

/// Checks that a dimension is not 0.
fn at_least_one(arg: &'static str, got: usize) -> Result<(), KernelError> {
    match got {
        0 => Err(KernelError::BadValue { arg, got, expected: "at least 1" }),
        _ => Ok(()),
    }
}
