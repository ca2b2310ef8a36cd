//! Operators on rows (norms, softmax, RoPE, lookup): threads take groups of rows.

use gllm_kernels_core::{Element, KernelError, RopeShape, Softmax};

use super::{chunks_mut, Cuts, Parallel};

/// One method a line: `name(cols, scalars; inputs; parameters => output)`. Wrong shapes are handed on to core, which
/// refuses them.
macro_rules! rows {
    ($($name:ident($($scalar:ident: $sty:ty),*; $($x:ident)?; $($param:ident: $pty:ty),* => $out:ident);)*) => {
        /// # Row by row
        impl<E: Element> Parallel<'_, E> {
            $(
                #[doc = concat!("[`Kernels::", stringify!($name), "`](gllm_kernels_core::Kernels::", stringify!($name), ") on all threads.")]
                ///
                /// # Errors
                /// Those of the method of [`Kernels`](gllm_kernels_core::Kernels).
                #[allow(clippy::too_many_arguments)] // Core's.
                pub fn $name(
                    &self,
                    cols: usize,
                    $($scalar: $sty,)*
                    $($x: &[E],)?
                    $($param: $pty,)*
                    $out: &mut [E],
                ) -> Result<(), KernelError> {
                    let n = $out.len();
                    if !n.is_multiple_of(cols) || cols == 0 $(|| $x.len() != n)? {
                        return self.kernels.$name(cols, $($scalar,)* $($x,)? $($param,)* $out);
                    }
                    let k = self.kernels_for(size_of_val($out));
                    let cuts = Cuts::rows(size_of_val($out), n / cols, self.runtime.threads()).times(cols);
                    chunks_mut(self.runtime, $out, cuts, |_range, $out| {
                        k.$name(cols, $($scalar,)* $(&$x[_range],)? $($param,)* $out)
                    })
                }
            )*
        }
    };
}

rows! {
    softmax_rows(softmax: Softmax; x; => y);
    softmax_rows_inplace(softmax: Softmax; ; => x);
    rms_norm_rows(; x; w: Option<&[E]>, eps: f32 => y);
    rms_norm_rows_inplace(; ; w: Option<&[E]>, eps: f32 => x);
    layer_norm_rows(; x; w: Option<&[E]>, b: Option<&[E]>, eps: f32 => y);
    layer_norm_rows_inplace(; ; w: Option<&[E]>, b: Option<&[E]>, eps: f32 => x);
}

/// # One row
///
/// These run on the calling thread, because the parts of a row wait for each other.
impl<E: Element> Parallel<'_, E> {
    /// [`Kernels::softmax`](gllm_kernels_core::Kernels::softmax).
    ///
    /// # Errors
    /// Those of [`Kernels::softmax`](gllm_kernels_core::Kernels::softmax).
    pub fn softmax(&self, x: &[E], y: &mut [E]) -> Result<(), KernelError> {
        self.kernels.softmax(x, y)
    }

    /// [`Kernels::softmax_inplace`](gllm_kernels_core::Kernels::softmax_inplace).
    ///
    /// # Errors
    /// Those of [`Kernels::softmax_inplace`](gllm_kernels_core::Kernels::softmax_inplace).
    pub fn softmax_inplace(&self, x: &mut [E]) -> Result<(), KernelError> {
        self.kernels.softmax_inplace(x)
    }

    /// [`Kernels::rms_norm`](gllm_kernels_core::Kernels::rms_norm).
    ///
    /// # Errors
    /// Those of [`Kernels::rms_norm`](gllm_kernels_core::Kernels::rms_norm).
    pub fn rms_norm(&self, x: &[E], w: Option<&[E]>, eps: f32, y: &mut [E]) -> Result<(), KernelError> {
        self.kernels.rms_norm(x, w, eps, y)
    }

    /// [`Kernels::rms_norm_inplace`](gllm_kernels_core::Kernels::rms_norm_inplace).
    ///
    /// # Errors
    /// Those of [`Kernels::rms_norm_inplace`](gllm_kernels_core::Kernels::rms_norm_inplace).
    pub fn rms_norm_inplace(&self, w: Option<&[E]>, eps: f32, x: &mut [E]) -> Result<(), KernelError> {
        self.kernels.rms_norm_inplace(w, eps, x)
    }

    /// [`Kernels::layer_norm`](gllm_kernels_core::Kernels::layer_norm).
    ///
    /// # Errors
    /// Those of [`Kernels::layer_norm`](gllm_kernels_core::Kernels::layer_norm).
    pub fn layer_norm(
        &self,
        x: &[E],
        w: Option<&[E]>,
        b: Option<&[E]>,
        eps: f32,
        y: &mut [E],
    ) -> Result<(), KernelError> {
        self.kernels.layer_norm(x, w, b, eps, y)
    }

    /// [`Kernels::layer_norm_inplace`](gllm_kernels_core::Kernels::layer_norm_inplace).
    ///
    /// # Errors
    /// Those of [`Kernels::layer_norm_inplace`](gllm_kernels_core::Kernels::layer_norm_inplace).
    pub fn layer_norm_inplace(
        &self,
        w: Option<&[E]>,
        b: Option<&[E]>,
        eps: f32,
        x: &mut [E],
    ) -> Result<(), KernelError> {
        self.kernels.layer_norm_inplace(w, b, eps, x)
    }
}

/// # Rotary position embedding
///
/// Threads share out the tokens.
impl<E: Element> Parallel<'_, E> {
    /// [`Kernels::rope`](gllm_kernels_core::Kernels::rope) on all threads.
    ///
    /// # Errors
    /// Those of [`Kernels::rope`](gllm_kernels_core::Kernels::rope).
    pub fn rope(
        &self,
        shape: RopeShape,
        cos: &[f32],
        sin: &[f32],
        x: &[E],
        y: &mut [E],
    ) -> Result<(), KernelError> {
        let tokens = tokens(shape, cos, sin, y.len()).filter(|_| x.len() == y.len());
        let Some((tokens, token)) = tokens else {
            return self.kernels.rope(shape, cos, sin, x, y);
        };
        let k = self.kernels_for(size_of_val(y));
        let half = shape.rot_dim / 2;
        let cuts = Cuts::rows(size_of_val(y), tokens, self.runtime.threads()).times(token);
        chunks_mut(self.runtime, y, cuts, |range, y| {
            let angles = range.start / token * half..range.end / token * half;
            k.rope(shape, &cos[angles.clone()], &sin[angles], &x[range], y)
        })
    }

    /// [`Kernels::rope_inplace`](gllm_kernels_core::Kernels::rope_inplace) on all threads.
    ///
    /// # Errors
    /// Those of [`Kernels::rope_inplace`](gllm_kernels_core::Kernels::rope_inplace).
    pub fn rope_inplace(
        &self,
        shape: RopeShape,
        cos: &[f32],
        sin: &[f32],
        x: &mut [E],
    ) -> Result<(), KernelError> {
        let Some((tokens, token)) = tokens(shape, cos, sin, x.len()) else {
            return self.kernels.rope_inplace(shape, cos, sin, x);
        };
        let half = shape.rot_dim / 2;
        let cuts = Cuts::rows(size_of_val(x), tokens, self.runtime.threads()).times(token);
        chunks_mut(self.runtime, x, cuts, |range, x| {
            let angles = range.start / token * half..range.end / token * half;
            self.kernels.rope_inplace(shape, &cos[angles.clone()], &sin[angles], x)
        })
    }
}

/// Number of tokens and elements of each, if `n` elements and the angles fit together.
fn tokens(shape: RopeShape, cos: &[f32], sin: &[f32], n: usize) -> Option<(usize, usize)> {
    let token = shape.heads.checked_mul(shape.head_dim).filter(|&token| token > 0)?;
    let angles = (n / token).checked_mul(shape.rot_dim / 2)?;
    let fit = n.is_multiple_of(token) && cos.len() == angles && sin.len() == angles;
    fit.then_some((n / token, token))
}
