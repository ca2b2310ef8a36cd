//! Element by element.

use gllm_kernels_std::cuda::{Buffer, CudaError, Float, Ops, Stream, View};
use libm::{erfc, tanh};

use super::{compare, each_type, source, text, Gpu, Outcome, Trials};

type Launch<T> = fn(&Ops, &Stream, View<'_, T>, View<'_, T>, &mut Buffer<T>) -> Result<(), CudaError>;

/// Sizes around packs of 16 bytes, blocks, and what a grid takes at once.
const SIZES: [usize; 10] = [0, 1, 7, 8, 9, 255, 256, 4097, 16384, 70_001];

const ALPHA: f32 = -1.7;

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// `error` is relative to the result.
fn check<T: Float>(name: &str, launch: Launch<T>, want: fn(f64, f64) -> f64, error: f64) -> Outcome {
    let gpu = Gpu::new()?;
    let mut source = source(name);
    for n in SIZES {
        // At the start of a buffer, and elements behind it: not aligned.
        for skip in [0, 1] {
            let mut x: Vec<T> = source.uniform(n + skip, -12.0, 12.0);
            let mut z: Vec<T> = source.normals(n + skip);
            for (i, special) in [0.0, -0.0, f32::NAN, 60.0, -60.0].into_iter().enumerate().take(n) {
                x[skip + n - 1 - i] = T::from_f32(special);
                z[skip + n / 2] = T::from_f32(special);
            }
            let (on_x, on_z) = (gpu.put(&x)?, gpu.put(&z)?);
            let mut y = gpu.room::<T>(n)?;
            let (from_x, from_z) = (on_x.range(skip..skip + n), on_z.range(skip..skip + n));
            launch(gpu.ops, &gpu.stream, from_x.map_err(text)?, from_z.map_err(text)?, &mut y)
                .map_err(text)?;
            let pairs = x[skip..].iter().zip(&z[skip..]);
            let want: Vec<f64> = pairs.map(|(x, z)| want(x.to_f32().into(), z.to_f32().into())).collect();
            let got = gpu.get(&y)?;
            compare(&got, &want, |i| error * want[i].abs()).map_err(|e| format!("{n} from {skip}: {e}"))?;
        }
    }
    Ok(())
}

macro_rules! rows {
    ($trials:ident; $($name:ident: $launch:expr, $want:expr, $error:expr;)*) => {$(
        fn $name<T: Float>() -> Outcome {
            check::<T>(stringify!($name), $launch, $want, $error)
        }
        each_type!($trials, stringify!($name), $name());
    )*};
}

pub fn trials(trials: &mut Trials) {
    // Rounding of the argument of an exponential of up to 12 is worth 12 ulp; tanh's argument for GELU is a cube.
    rows! { trials;
        relu: |o, s, x, _, y| o.relu(s, x, y), |x, _| if x < 0.0 { 0.0 } else { x }, 0.0;
        tanh_: |o, s, x, _, y| o.tanh(s, x, y), |x, _| tanh(x), 4e-7;
        silu_: |o, s, x, _, y| o.silu(s, x, y), |x, _| silu(x), 1e-5;
        gelu: |o, s, x, _, y| o.gelu(s, x, y), |x, _| 0.5 * x * erfc(-x * 0.5f64.sqrt()), 2e-5;
        gelu_tanh: |o, s, x, _, y| o.gelu_tanh(s, x, y),
            |x, _| x / (1.0 + (-2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).exp()), 1e-4;
        vec_add: |o, s, x, z, y| o.vec_add(s, x, z, y), |x, z| x + z, 6e-8;
        vec_mul: |o, s, x, z, y| o.vec_mul(s, x, z, y), |x, z| x * z, 6e-8;
        vec_scale: |o, s, x, _, y| o.vec_scale(s, ALPHA, x, y), |x, _| f64::from(ALPHA) * x, 6e-8;
        vec_axpy: |o, s, x, z, y| o.vec_axpy(s, ALPHA, x, z, y), |x, z| f64::from(ALPHA) * x + z, 6e-8;
        swiglu: |o, s, x, z, y| o.swiglu(s, x, z, y), |x, z| silu(x) * z, 1e-5;
    }
}
