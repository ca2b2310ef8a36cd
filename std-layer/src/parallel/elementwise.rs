//! Element-wise operators: threads take chunks of the elements.

use gllm_kernels_core::{Element, KernelError};

use super::Parallel;

/// One method a line: `name(scalars; inputs => output)`. Wrong lengths are handed on to core, which refuses them.
macro_rules! elementwise {
    ($($name:ident($($scalar:ident: $ty:ty),*; $($x:ident),* => $out:ident);)*) => {
        /// # Element by element
        impl<E: Element> Parallel<'_, E> {
            $(
                #[doc = concat!("[`Kernels::", stringify!($name), "`](gllm_kernels_core::Kernels::", stringify!($name), ") on all threads.")]
                ///
                /// # Errors
                /// Those of the method of [`Kernels`](gllm_kernels_core::Kernels).
                pub fn $name(&self, $($scalar: $ty,)* $($x: &[E],)* $out: &mut [E]) -> Result<(), KernelError> {
                    if false $(|| $x.len() != $out.len())* {
                        return self.kernels.$name($($scalar,)* $($x,)* $out);
                    }
                    self.map($out, |k, _range, $out| k.$name($($scalar,)* $(&$x[_range.clone()],)* $out))
                }
            )*
        }
    };
}

elementwise! {
    vec_add(; x, y => z);
    vec_add_inplace(; x => y);
    vec_mul(; x, y => z);
    vec_mul_inplace(; x => y);
    vec_scale(alpha: f32; x => y);
    vec_scale_inplace(alpha: f32; => x);
    vec_axpy(alpha: f32; x => y);
    relu(; x => y);
    relu_inplace(; => x);
    exp(; x => y);
    exp_inplace(; => x);
    tanh(; x => y);
    tanh_inplace(; => x);
    silu(; x => y);
    silu_inplace(; => x);
    gelu(; x => y);
    gelu_inplace(; => x);
    gelu_tanh(; x => y);
    gelu_tanh_inplace(; => x);
    swiglu(; gate, up => y);
    geglu(; gate, up => y);
}

macro_rules! gated_inplace {
    ($($name:ident)*) => {
        impl<E: Element> Parallel<'_, E> {
            $(
                #[doc = concat!("[`Kernels::", stringify!($name), "`](gllm_kernels_core::Kernels::", stringify!($name), ") on all threads.")]
                ///
                /// # Errors
                /// Those of the method of [`Kernels`](gllm_kernels_core::Kernels).
                pub fn $name(&self, gate: &mut [E], up: &[E]) -> Result<(), KernelError> {
                    if gate.len() != up.len() {
                        return self.kernels.$name(gate, up);
                    }
                    self.map(gate, |k, range, gate| k.$name(gate, &up[range]))
                }
            )*
        }
    };
}
gated_inplace! { swiglu_inplace geglu_inplace }
