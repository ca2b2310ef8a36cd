//! The core for C. Every function returns a [`GllmStatus`] and writes nothing unless that is `GLLM_STATUS_OK`; none
//! allocates, panics or keeps a pointer. Matrices are row by row. Lengths are in elements of the type. Memory for results
//! and scratch memory need not be initialised.
#![no_std]

use core::arch::asm;
use core::mem::{align_of, size_of, MaybeUninit};
use core::panic::PanicInfo;

use gllm_kernels_core::{
    Caps, KernelError, Kernels, MatMut, MatRef, Precision, QgemmPlan, QuantFormat, QuantRef, RopeFreqs,
    RopePairing, RopePositions, RopeShape, Scratch,
};

/// The core cannot panic; what is here links without this.
#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    loop {}
}

/// How a call ended.
#[repr(C)]
pub enum GllmStatus {
    /// Done.
    Ok,
    /// A pointer is null.
    Null,
    /// A buffer is shorter than the call needs.
    Short,
    /// Dimensions do not fit each other, or rows are not whole blocks.
    Dimension,
    /// The number is no format's.
    Format,
    /// Packed weights are damaged, or of another format or shape.
    Packing,
    /// A parameter is outside its domain.
    Parameter,
    /// The CPU lacks an instruction set.
    Unavailable,
    /// A size does not fit `size_t`.
    Overflow,
}

impl From<KernelError> for GllmStatus {
    fn from(e: KernelError) -> Self {
        match e {
            KernelError::ShortSlice { .. } | KernelError::ScratchTooSmall { .. } => Self::Short,
            KernelError::DimMismatch { .. }
            | KernelError::WrongLength { .. }
            | KernelError::NotWhole { .. }
            | KernelError::OutOfRange { .. }
            | KernelError::NotBlockMultiple { .. } => Self::Dimension,
            KernelError::UnknownFormat(_) | KernelError::NoEncoder(_) => Self::Format,
            KernelError::WrongPacking { .. } | KernelError::WrongFormat { .. } => Self::Packing,
            KernelError::IsaUnavailable { .. } => Self::Unavailable,
            KernelError::SizeOverflow { .. } => Self::Overflow,
            _ => Self::Parameter,
        }
    }
}

/// The kernels for a CPU. It may be copied, and used by all cores that have the same instructions.
#[repr(C)]
pub struct GllmKernels {
    /// Not for use.
    words: [u64; 12],
}

const _: () = {
    assert!(size_of::<Kernels<f32>>() <= size_of::<GllmKernels>());
    assert!(align_of::<Kernels<f32>>() <= align_of::<GllmKernels>());
};

/// Runs `f`, whose errors become a status.
fn status(f: impl FnOnce() -> Result<(), GllmStatus>) -> GllmStatus {
    match f() {
        Ok(()) => GllmStatus::Ok,
        Err(status) => status,
    }
}

/// Whether there can be a slice of `len` elements at `p`.
fn check<T>(p: *const T, len: usize) -> Result<(), GllmStatus> {
    if p.is_null() {
        return Err(GllmStatus::Null);
    }
    if len > isize::MAX as usize / size_of::<T>() {
        return Err(GllmStatus::Overflow);
    }
    Ok(())
}

/// The slice that C means.
///
/// # Safety
/// `len` elements at `p`, which have been written, for as long as `'a`, unless it is null.
unsafe fn slice<'a, T>(p: *const T, len: usize) -> Result<&'a [T], GllmStatus> {
    check(p, len)?;
    // SAFETY: not null, not too long; the caller's contract.
    Ok(unsafe { core::slice::from_raw_parts(p, len) })
}

/// The same, writable: C need not have written to it yet.
///
/// # Safety
/// Room for `len` elements at `p` for as long as `'a`, unless it is null; nothing else uses it; every bit pattern is a `T`.
unsafe fn slice_mut<'a, T>(p: *mut T, len: usize) -> Result<&'a mut [T], GllmStatus> {
    check(p, len)?;
    // A slice holds values, and memory that nobody has written to has none. As far as the compiler knows, this writes
    // to all of it what happens to be there.
    // SAFETY: there is no instruction.
    unsafe { asm!("/* {0} */", in(reg) p, options(nostack, preserves_flags)) };
    // SAFETY: not null, not too long; the caller's contract.
    Ok(unsafe { core::slice::from_raw_parts_mut(p, len) })
}

/// # Safety
/// Null, or what `gllm_detect` or its like has written.
unsafe fn kernels(k: *const GllmKernels) -> Result<Kernels<f32>, GllmStatus> {
    if k.is_null() {
        return Err(GllmStatus::Null);
    }
    // SAFETY: it was written as such, size and alignment are asserted above.
    Ok(unsafe { *k.cast() })
}

/// # Safety
/// Room at `to`, unless it is null.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), GllmStatus> {
    if to.is_null() {
        return Err(GllmStatus::Null);
    }
    // SAFETY: the caller's contract.
    unsafe { to.write(value) };
    Ok(())
}

/// `a * b`.
fn times(a: usize, b: usize) -> Result<usize, GllmStatus> {
    a.checked_mul(b).ok_or(GllmStatus::Overflow)
}

/// # Safety
/// Room for the kernels, unless it is null.
unsafe fn put_kernels(to: *mut GllmKernels, k: Kernels<f32>) -> Result<(), GllmStatus> {
    let mut words = MaybeUninit::<GllmKernels>::zeroed();
    // SAFETY: it fits, as is asserted above; all other words are zeros.
    let made = unsafe {
        words.as_mut_ptr().cast::<Kernels<f32>>().write(k);
        words.assume_init()
    };
    // SAFETY: the caller's contract.
    unsafe { put(to, made) }
}

/// The best kernels for the core that calls this, at EL1 or above, with NEON switched on. Cores that differ (big.LITTLE)
/// call this each for itself; at EL0 there is `gllm_baseline`.
///
/// # Safety
/// `k` is null or writable. On aarch64 without an operating system the core is at EL1 or above, and the kernels are used
/// by this core and such that have the same instructions.
#[no_mangle]
pub unsafe extern "C" fn gllm_detect(k: *mut GllmKernels) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe { put_kernels(k, Kernels::with(Caps::of_this_core())) })
}

/// The best kernels for every CPU that runs this library: on aarch64 those for plain NEON, which must be switched on.
/// It works at EL0, too.
///
/// # Safety
/// `k` is null or writable.
#[no_mangle]
pub unsafe extern "C" fn gllm_baseline(k: *mut GllmKernels) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe { put_kernels(k, Kernels::with(Caps::BASELINE)) })
}

/// The portable kernels.
///
/// # Safety
/// `k` is null or writable.
#[no_mangle]
pub unsafe extern "C" fn gllm_portable(k: *mut GllmKernels) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe { put_kernels(k, Kernels::with(Caps::SCALAR)) })
}

/// Bytes of scratch memory that `gllm_gemm` needs for `m x n`, depth `depth`.
///
/// # Safety
/// Pointers are null or what their types say.
#[no_mangle]
pub unsafe extern "C" fn gllm_gemm_scratch(
    k: *const GllmKernels,
    m: usize,
    n: usize,
    depth: usize,
    bytes: *mut usize,
) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe { put(bytes, kernels(k)?.gemm_plan(m, n, depth)?.scratch()?.size_unaligned()) })
}

/// `c = alpha a b + beta c`: `a` is `m x depth`, `b` is `depth x n`, `c` is `m x n`.
///
/// # Safety
/// Pointers are null or to so many elements; `c` and `scratch` overlap nothing.
#[no_mangle]
pub unsafe extern "C" fn gllm_gemm(
    k: *const GllmKernels,
    m: usize,
    n: usize,
    depth: usize,
    alpha: f32,
    a: *const f32,
    b: *const f32,
    beta: f32,
    c: *mut f32,
    scratch: *mut u8,
    scratch_bytes: usize,
) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe {
        let a = MatRef::new(slice(a, times(m, depth)?)?, m, depth)?;
        let b = MatRef::new(slice(b, times(depth, n)?)?, depth, n)?;
        let c = MatMut::new(slice_mut(c, times(m, n)?)?, m, n)?;
        let plan = kernels(k)?.gemm_plan(m, n, depth)?.alpha(alpha).beta(beta);
        Ok(plan.run(c, a, b, None, Scratch::new(slice_mut(scratch, scratch_bytes)?))?)
    })
}

/// Bytes of a row of `cols` quantised weights; `format` is GGUF's number (2: Q4_0, 8: Q8_0, 12: Q4_K ...).
///
/// # Safety
/// `bytes` is null or writable.
#[no_mangle]
pub unsafe extern "C" fn gllm_row_bytes(format: u32, cols: usize, bytes: *mut usize) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe { put(bytes, QuantFormat::from_gguf(format)?.row_bytes(cols)?) })
}

/// Weights from C.
///
/// # Safety
/// `rows * cols` weights at `w`, or null.
unsafe fn weights<'a>(
    format: u32,
    rows: usize,
    cols: usize,
    w: *const u8,
) -> Result<QuantRef<'a>, GllmStatus> {
    let format = QuantFormat::from_gguf(format)?;
    // SAFETY: the caller's contract.
    let bytes = unsafe { slice(w, times(format.row_bytes(cols)?, rows)?)? };
    Ok(QuantRef::new(bytes, format, rows, cols)?)
}

/// Decodes `rows x cols` weights to f32.
///
/// # Safety
/// Pointers are null or to so many weights and elements; `y` overlaps nothing.
#[no_mangle]
pub unsafe extern "C" fn gllm_dequant(
    k: *const GllmKernels,
    format: u32,
    rows: usize,
    cols: usize,
    w: *const u8,
    y: *mut f32,
) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe {
        let (w, y) = (weights(format, rows, cols, w)?, slice_mut(y, times(rows, cols)?)?);
        Ok(kernels(k)?.dequant(w, y)?)
    })
}

/// A plan for a product with quantised weights.
///
/// # Safety
/// `k` is null or what its type says.
unsafe fn qgemm_plan(
    k: *const GllmKernels,
    format: u32,
    rows: usize,
    cols: usize,
    batch: usize,
) -> Result<QgemmPlan<f32>, GllmStatus> {
    // SAFETY: the caller's contract.
    let k = unsafe { kernels(k)? };
    Ok(k.qgemm_plan(QuantFormat::from_gguf(format)?, batch, rows, cols, Precision::Fast)?)
}

/// Bytes of scratch memory that a product of `rows x cols` weights with `batch` rows of activations needs, whether the
/// weights are packed or not.
///
/// # Safety
/// Pointers are null or what their types say.
#[no_mangle]
pub unsafe extern "C" fn gllm_qgemm_scratch(
    k: *const GllmKernels,
    format: u32,
    rows: usize,
    cols: usize,
    batch: usize,
    bytes: *mut usize,
) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe { put(bytes, qgemm_plan(k, format, rows, cols, batch)?.scratch()?.size_unaligned()) })
}

/// `y = x w^T`, with the weights where they lie (flash, say): `w` is `rows x cols`, `x` is `batch x cols` and is rounded to
/// 8 bits, `y` is `batch x rows`. For a range of rows pass their first byte and their number.
///
/// # Safety
/// Pointers are null or to so many weights and elements; `y` and `scratch` overlap nothing.
#[no_mangle]
pub unsafe extern "C" fn gllm_qgemm(
    k: *const GllmKernels,
    format: u32,
    rows: usize,
    cols: usize,
    w: *const u8,
    batch: usize,
    x: *const f32,
    y: *mut f32,
    scratch: *mut u8,
    scratch_bytes: usize,
) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe {
        let plan = qgemm_plan(k, format, rows, cols, batch)?;
        let w = weights(format, rows, cols, w)?;
        let x = MatRef::new(slice(x, times(batch, cols)?)?, batch, cols)?;
        let y = MatMut::new(slice_mut(y, times(batch, rows)?)?, batch, rows)?;
        Ok(plan.run(y, w, x, None, Scratch::new(slice_mut(scratch, scratch_bytes)?))?)
    })
}

/// Bytes that `gllm_pack` writes.
///
/// # Safety
/// Pointers are null or what their types say.
#[no_mangle]
pub unsafe extern "C" fn gllm_packed_bytes(
    k: *const GllmKernels,
    format: u32,
    rows: usize,
    cols: usize,
    bytes: *mut usize,
) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe {
        put(bytes, {
            kernels(k)?;
            QuantFormat::from_gguf(format)?.packed_size(rows, cols)?
        })
    })
}

/// Packs weights, for the fastest products. What it writes may be stored (at build time, in flash) and used at any address
/// that is a multiple of 64.
///
/// # Safety
/// Pointers are null or to so many weights and bytes; `packed` overlaps nothing.
#[no_mangle]
pub unsafe extern "C" fn gllm_pack(
    k: *const GllmKernels,
    format: u32,
    rows: usize,
    cols: usize,
    w: *const u8,
    packed: *mut u8,
    packed_bytes: usize,
) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe {
        kernels(k)?.pack_q(weights(format, rows, cols, w)?, slice_mut(packed, packed_bytes)?)?;
        Ok(())
    })
}

/// `gllm_qgemm` with packed weights.
///
/// # Safety
/// Pointers are null or to so many bytes and elements; `y` and `scratch` overlap nothing.
#[no_mangle]
pub unsafe extern "C" fn gllm_qgemm_packed(
    k: *const GllmKernels,
    format: u32,
    rows: usize,
    cols: usize,
    packed: *const u8,
    packed_bytes: usize,
    batch: usize,
    x: *const f32,
    y: *mut f32,
    scratch: *mut u8,
    scratch_bytes: usize,
) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe {
        let plan = qgemm_plan(k, format, rows, cols, batch)?;
        let (k, format) = (kernels(k)?, QuantFormat::from_gguf(format)?);
        let w = k.packed_q(format, rows, cols, slice(packed, packed_bytes)?)?;
        let x = MatRef::new(slice(x, times(batch, cols)?)?, batch, cols)?;
        let y = MatMut::new(slice_mut(y, times(batch, rows)?)?, batch, rows)?;
        Ok(plan.run(y, w, x, None, Scratch::new(slice_mut(scratch, scratch_bytes)?))?)
    })
}

/// `y = x / sqrt(mean(x^2) + eps) * w`, for `n` elements; `w` may be null.
///
/// # Safety
/// Pointers are null or to `n` elements; `y` overlaps nothing.
#[no_mangle]
pub unsafe extern "C" fn gllm_rms_norm(
    k: *const GllmKernels,
    n: usize,
    x: *const f32,
    w: *const f32,
    eps: f32,
    y: *mut f32,
) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe {
        let w = if w.is_null() { None } else { Some(slice(w, n)?) };
        Ok(kernels(k)?.rms_norm(slice(x, n)?, w, eps, slice_mut(y, n)?)?)
    })
}

/// `x = softmax(x)`, for `n` elements.
///
/// # Safety
/// `x` is null or has `n` elements.
#[no_mangle]
pub unsafe extern "C" fn gllm_softmax(k: *const GllmKernels, n: usize, x: *mut f32) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe { Ok(kernels(k)?.softmax_inplace(slice_mut(x, n)?)?) })
}

/// `y = silu(gate) * up`, for `n` elements.
///
/// # Safety
/// Pointers are null or to `n` elements; `y` overlaps nothing.
#[no_mangle]
pub unsafe extern "C" fn gllm_swiglu(
    k: *const GllmKernels,
    n: usize,
    gate: *const f32,
    up: *const f32,
    y: *mut f32,
) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe { Ok(kernels(k)?.swiglu(slice(gate, n)?, slice(up, n)?, slice_mut(y, n)?)?) })
}

/// `y += x`, for `n` elements.
///
/// # Safety
/// Pointers are null or to `n` elements; `y` does not overlap `x`.
#[no_mangle]
pub unsafe extern "C" fn gllm_add(k: *const GllmKernels, n: usize, x: *const f32, y: *mut f32) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe { Ok(kernels(k)?.vec_add_inplace(slice(x, n)?, slice_mut(y, n)?)?) })
}

/// Cosines and sines for the token at `position`: `head_dim / 2` of each, base `theta`.
///
/// # Safety
/// Pointers are null or to `head_dim / 2` elements, and do not overlap.
#[no_mangle]
pub unsafe extern "C" fn gllm_rope_table(
    position: usize,
    head_dim: usize,
    theta: f64,
    cos: *mut f32,
    sin: *mut f32,
) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe {
        let freqs = RopeFreqs { rot_dim: head_dim, theta, ..RopeFreqs::default() };
        let (cos, sin) = (slice_mut(cos, head_dim / 2)?, slice_mut(sin, head_dim / 2)?);
        Ok(freqs.table(RopePositions::From(position), cos, sin)?)
    })
}

/// Rotates a token's `heads` heads in place; pairs are neighbours, or with `halves` other than 0 half a head apart.
///
/// # Safety
/// `x` is null or has `heads * head_dim` elements, `cos` and `sin` `head_dim / 2` each.
#[no_mangle]
pub unsafe extern "C" fn gllm_rope(
    k: *const GllmKernels,
    heads: usize,
    head_dim: usize,
    halves: i32,
    cos: *const f32,
    sin: *const f32,
    x: *mut f32,
) -> GllmStatus {
    // SAFETY: the caller's contract.
    status(|| unsafe {
        let pairing = if halves == 0 { RopePairing::Adjacent } else { RopePairing::HalfSplit };
        let shape = RopeShape { heads, head_dim, rot_dim: head_dim, pairing };
        let (cos, sin) = (slice(cos, head_dim / 2)?, slice(sin, head_dim / 2)?);
        Ok(kernels(k)?.rope_inplace(shape, cos, sin, slice_mut(x, times(heads, head_dim)?)?)?)
    })
}
