//! Element by element.

use super::check::same_len;
use super::error::CudaError;
use super::geometry;
use super::kernels::{File, Name, TYPES};
use super::memory::{View, ViewMut};
use super::module::Arguments;
use super::stream::Stream;
use super::sys::Address;
use super::{Float, Ops};

#[derive(Clone, Copy)]
#[repr(C)]
struct ElementwiseArgs {
    x: Address,
    z: Address,
    y: Address,
    n: u64,
    alpha: f32,
}
// SAFETY: as in elementwise.cu.
unsafe impl Arguments for ElementwiseArgs {}

impl Ops {
    fn elementwise<T: Float>(
        &self,
        (name, alpha): (&'static str, f32),
        stream: &Stream,
        x: View<'_, T>,
        z: Option<View<'_, T>>,
        y: ViewMut<'_, T>,
    ) -> Result<(), CudaError> {
        same_len("x", x.len(), y.len())?;
        if let Some(z) = z {
            same_len("z", z.len(), y.len())?;
        }
        self.here(x.context())?;
        z.map_or(Ok(()), |z| self.here(z.context()))?;
        self.here(y.context())?;
        let args = ElementwiseArgs {
            x: x.address(),
            z: z.map_or(0, |z| z.address()),
            y: y.address(),
            n: y.len() as u64,
            alpha,
        };
        let geometry = geometry::elementwise(y.len(), size_of::<T>(), self.multiprocessors());
        let kernel = (File::elementwise, Name(name, T::TYPE.name(), ""));
        // SAFETY: the arguments were checked; views and buffers have their elements.
        unsafe { self.loader.launch(kernel, stream, geometry, &args) }
    }
}

macro_rules! elementwise {
    (
        one: [$($(#[$doc1:meta])* $one:ident;)*]
        two: [$($(#[$doc2:meta])* $two:ident($x:ident, $z:ident);)*]
        scaled: [$($(#[$doc3:meta])* $scaled:ident($($w:ident)?);)*]
    ) => {
        const NAMES: &[&str] = &[$(stringify!($one),)* $(stringify!($two),)* $(stringify!($scaled)),*];

        /// # Element by element
        ///
        /// In f32, narrowed once. Errors of all: `WrongSize` unless all have the same number of elements,
        /// `OtherContext`, `Launch`.
        #[allow(clippy::missing_errors_doc)]
        impl Ops {
            $($(#[$doc1])*
            pub fn $one<'a, T: Float>(
                &self,
                stream: &Stream,
                x: impl Into<View<'a, T>>,
                y: impl Into<ViewMut<'a, T>>,
            ) -> Result<(), CudaError> {
                self.elementwise((stringify!($one), 0.0), stream, x.into(), None, y.into())
            })*
            $($(#[$doc2])*
            pub fn $two<'a, T: Float>(
                &self,
                stream: &Stream,
                $x: impl Into<View<'a, T>>,
                $z: impl Into<View<'a, T>>,
                y: impl Into<ViewMut<'a, T>>,
            ) -> Result<(), CudaError> {
                self.elementwise((stringify!($two), 0.0), stream, $x.into(), Some($z.into()), y.into())
            })*
            $($(#[$doc3])*
            pub fn $scaled<'a, T: Float>(
                &self,
                stream: &Stream,
                alpha: f32,
                x: impl Into<View<'a, T>>,
                $($w: impl Into<View<'a, T>>,)?
                y: impl Into<ViewMut<'a, T>>,
            ) -> Result<(), CudaError> {
                #[allow(unused_mut, unused_assignments)]
                let mut second = None;
                $(second = Some($w.into());)?
                self.elementwise((stringify!($scaled), alpha), stream, x.into(), second, y.into())
            })*
        }
    };
}

elementwise! {
    one: [
        /// `y_i = max(x_i, 0)`; NaN stays NaN.
        relu;
        /// `y_i = tanh(x_i)`.
        tanh;
        /// `y_i = x_i / (1 + exp(-x_i))`.
        silu;
        /// `y_i = x_i / 2 (1 + erf(x_i / sqrt(2)))`.
        gelu;
        /// `y_i = x_i / 2 (1 + tanh(sqrt(2 / pi) (x_i + 0.044715 x_i^3)))`.
        gelu_tanh;
    ]
    two: [
        /// `y_i = x_i + z_i`.
        vec_add(x, z);
        /// `y_i = x_i z_i`.
        vec_mul(x, z);
        /// `y_i = silu(gate_i) up_i`.
        swiglu(gate, up);
    ]
    scaled: [
        /// `y_i = alpha x_i`.
        vec_scale();
        /// `y_i = alpha x_i + z_i`, rounded once in f32.
        vec_axpy(z);
    ]
}

pub(super) fn list(to: &mut dyn FnMut(File, Name, usize)) {
    for &name in NAMES {
        for ty in TYPES {
            to(File::elementwise, Name(name, ty, ""), size_of::<ElementwiseArgs>());
        }
    }
}
