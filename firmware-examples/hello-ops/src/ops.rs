//! What is run, and how it is compared.

use core::ptr::addr_of_mut;

use gllm_kernels_core::{bf16, f16, Caps, Element, KernelError, Kernels};

use crate::{print, println};

/// Vector length: no multiple of any register, so that every tail runs too.
const N: usize = 1003;

/// Everything one element type needs, in static memory.
struct Buffers<E> {
    x: [E; N],
    y: [E; N],
    got: [E; N],
    want: [E; N],
}

impl<E: Element> Buffers<E> {
    const fn zeroed() -> Self {
        Self { x: [E::ZERO; N], y: [E::ZERO; N], got: [E::ZERO; N], want: [E::ZERO; N] }
    }
}

static mut F32: Buffers<f32> = Buffers::zeroed();
static mut F16: Buffers<f16> = Buffers::zeroed();
static mut BF16: Buffers<bf16> = Buffers::zeroed();

type Map<E> = fn(&Kernels<E>, &[E], &[E], &mut [E]) -> Result<(), KernelError>;
type Fold<E> = fn(&Kernels<E>, &[E], &[E]) -> Result<f32, KernelError>;

/// Runs everything for every element type; how many operators differ from their scalar kernels.
pub fn run() -> Result<usize, KernelError> {
    let caps = Caps::detect();
    let c = caps.caches();
    println!("features {}; L1 {} KiB, L2 {} KiB", caps.features(), c.l1d >> 10, c.l2 >> 10);
    // SAFETY: `run` is called once, and nothing else refers to these statics.
    let (f32s, f16s, bf16s) =
        unsafe { (&mut *addr_of_mut!(F32), &mut *addr_of_mut!(F16), &mut *addr_of_mut!(BF16)) };
    // Half a unit in the last place of the result, in each of the two kernels compared.
    Ok(suite(f32s, 2e-6)? + suite(f16s, 1e-3)? + suite(bf16s, 8e-3)?)
}

fn suite<E: Element>(b: &mut Buffers<E>, tolerance: f32) -> Result<usize, KernelError> {
    let (best, scalar) = (Kernels::<E>::detect(), Kernels::<E>::with(Caps::SCALAR));
    let mut state = 1;
    for v in b.x.iter_mut().chain(&mut b.y) {
        *v = E::from_f32(random(&mut state));
    }
    print!("{} on {}:", E::TYPE, best.level());

    let maps: &[(&str, Map<E>)] = &[
        ("vec_add", |k, x, y, z| k.vec_add(x, y, z)),
        ("vec_mul", |k, x, y, z| k.vec_mul(x, y, z)),
        ("vec_scale", |k, x, _, z| k.vec_scale(1.5, x, z)),
        ("vec_axpy", |k, x, y, z| {
            z.copy_from_slice(y);
            k.vec_axpy(-0.5, x, z)
        }),
        ("relu", |k, x, _, z| k.relu(x, z)),
    ];
    let folds: &[(&str, Fold<E>)] = &[
        ("vec_dot", |k, x, y| k.vec_dot(x, y)),
        ("vec_sum", |k, x, _| k.vec_sum(x)),
        ("vec_max", |k, x, _| k.vec_max(x)),
    ];

    let mut wrong = 0;
    for &(name, op) in maps {
        op(&best, &b.x, &b.y, &mut b.got)?;
        op(&scalar, &b.x, &b.y, &mut b.want)?;
        let same = b.got.iter().zip(&b.want).all(|(g, w)| close(g.to_f32(), w.to_f32(), tolerance, 1.0));
        wrong += report(name, same);
    }
    for &(name, op) in folds {
        let (got, want) = (op(&best, &b.x, &b.y)?, op(&scalar, &b.x, &b.y)?);
        // Sums are taken in another order: the terms' magnitudes bound the difference.
        wrong += report(name, close(got, want, 1e-6, N as f32));
    }
    println!();
    Ok(wrong)
}

fn report(name: &str, same: bool) -> usize {
    print!(" {name}{}", if same { "" } else { " DIFFERS" });
    usize::from(!same)
}

/// Whether `a` and `b` differ by at most `tolerance` of the larger of `|b|` and `scale`.
fn close(a: f32, b: f32, tolerance: f32, scale: f32) -> bool {
    (a - b).abs() <= tolerance * b.abs().max(scale)
}

/// A linear congruential generator; uniform in [-1, 1).
fn random(state: &mut u32) -> f32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (*state >> 8) as f32 / (1 << 23) as f32 - 1.0
}
