//! Softmax over rows.

use crate::element::{Element, ElementType};
use crate::isa::machine::STREAMS;
use crate::ops::engine::{map, Access, Function, Join};
use crate::ops::math;
use crate::ops::rows::{rows, Keep, Row, RowOp, Rows};
use crate::vector::{Arithmetic, Prim};

/// Scale and mask of a softmax.
///
/// ```
/// # use gllm_kernels_core::{Kernels, Softmax};
/// let mut scores = [2.0, 2.0, 7.0];
/// let masked = Softmax { scale: 0.125, valid: Some(2) };
/// Kernels::<f32>::detect().softmax_rows_inplace(3, masked, &mut scores)?;
/// assert_eq!(scores, [0.5, 0.5, 0.0]);
/// # Ok::<(), gllm_kernels_core::KernelError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Softmax {
    /// Factor of every input: attention's `1 / sqrt(head_dim)`, or an inverse temperature.
    pub scale: f32,
    /// Mask length: only this many elements of a row take part, the others give 0. `None`: all.
    pub valid: Option<usize>,
}

impl Default for Softmax {
    /// Scale 1, no mask.
    fn default() -> Self {
        Self { scale: 1.0, valid: None }
    }
}

/// Exponentials that fit a kernel's buffer for one row. Only where stores can bypass the cache is
/// a large one worth its stack.
const BUFFER: usize = if STREAMS { 4096 } else { 512 };

/// `KEEP`: the exponentials are kept between the stages; else they are computed twice.
#[derive(Clone, Copy)]
struct SoftmaxRows<const KEEP: bool> {
    scale: f32,
}

impl<const KEEP: bool> SoftmaxRows<KEEP> {
    /// # Safety
    /// The instruction set must be present.
    #[inline(always)]
    unsafe fn exp<P: Arithmetic>(self, max: P::V, x: P::V) -> P::V {
        // SAFETY: the caller's contract. The difference comes first: it cannot exceed 0.
        unsafe { math::exp::<P>(P::mul(P::sub(x, max), P::splat(self.scale))) }
    }
}

impl<E: Element, P: Prim<E> + Prim<f32>, const KEEP: bool> RowOp<E, P> for SoftmaxRows<KEEP> {
    const GATHER: Join = Join::Max;
    const SPREAD: bool = true;
    const KEEP: bool = KEEP;

    #[inline(always)]
    unsafe fn shift(self, _x: *const E, _n: usize) -> f32 {
        0.0
    }
    #[inline(always)]
    unsafe fn gather(self, _shift: P::V, [max, none]: [P::V; 2], x: P::V) -> [P::V; 2] {
        // SAFETY: the caller vouches for the instruction set. A NaN leaves `max`.
        unsafe { [P::max(x, max), none] }
    }
    /// Of -inf alone the maximum is taken as 0, so that all exponentials are 0.
    #[inline(always)]
    fn center(self, total: f32) -> f32 {
        if total == f32::NEG_INFINITY {
            0.0
        } else {
            total
        }
    }
    #[inline(always)]
    unsafe fn spread<A: Arithmetic>(self, row: &Row<A::V>, x: A::V) -> A::V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { self.exp::<A>(row.center, x) }
    }
    #[inline(always)]
    fn scale(self, _gathered: [f32; 2], total: f32) -> f32 {
        if total == 0.0 {
            0.0
        } else {
            1.0 / total
        }
    }
    #[inline(always)]
    unsafe fn write<const FULL: bool>(self, row: &Row<P::V>, x: P::V, _i: usize, _len: usize) -> P::V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let e = if KEEP { x } else { self.exp::<P>(row.center, x) };
            P::mul(e, row.scale)
        }
    }
}

#[derive(Clone, Copy)]
struct Zero;
impl Function<0> for Zero {
    #[inline(always)]
    unsafe fn eval<P: Arithmetic>(self, []: [P::V; 0]) -> P::V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { P::splat(0.0) }
    }
}

/// # Safety
/// `rows * cols` elements at `x` and `y`, equal or apart; `valid <= cols`; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn softmax<E: Element, P: Prim<E> + Prim<f32>>(
    n_rows: usize,
    cols: usize,
    Softmax { scale, valid }: Softmax,
    x: *const E,
    y: *mut E,
    access: Access,
) {
    let n = valid.unwrap_or(cols);
    let shape = Rows { rows: n_rows, stride: cols, n, x, y, access, crowded: false };
    // SAFETY: the caller's contract; the kept rows fit the buffer, or are the output rows, which
    // hold f32 and are not streamed past the cache that they are read back from.
    unsafe {
        let in_output = E::TYPE == ElementType::F32 && !(P::STREAMS && access.streamed);
        if in_output {
            let keep = Keep { base: y.cast(), stride: cols };
            rows::<E, P, _>(SoftmaxRows::<true> { scale }, keep, shape);
        } else if n <= BUFFER {
            let mut buffer = [core::mem::MaybeUninit::<f32>::uninit(); BUFFER];
            let keep = Keep { base: buffer.as_mut_ptr().cast(), stride: 0 };
            rows::<E, P, _>(SoftmaxRows::<true> { scale }, keep, shape);
        } else {
            rows::<E, P, _>(SoftmaxRows::<false> { scale }, Keep::NONE, shape);
        }
        if n < cols {
            for r in 0..n_rows {
                map::<E, P, _, 0, 4>(Zero, cols - n, [], y.add(r * cols + n), access);
            }
        }
    }
}
