//! Operators that treat every row alike.

use gllm_kernels_core::{Element, KernelError, Softmax};

use super::{chunks_mut, Cuts, Parallel};

/// One method a line: `name(cols, scalars; inputs; parameters => output)`. Wrong shapes are core's to
/// refuse.
macro_rules! rows {
    ($($name:ident($($scalar:ident: $sty:ty),*; $($x:ident)?; $($param:ident: $pty:ty),* => $out:ident);)*) => {
        /// # Row by row
        impl<E: Element> Parallel<'_, E> {
            $(
                #[doc = concat!("[`Kernels::", stringify!($name), "`](gllm_kernels_core::Kernels::", stringify!($name), ") on all threads.")]
                ///
                /// # Errors
                /// As there.
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
                    if cols == 0 || n % cols != 0 $(|| $x.len() != n)? {
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
