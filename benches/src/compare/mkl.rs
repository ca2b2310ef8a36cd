//! Intel's Math Kernel Library. Prototypes are those of oneMKL's reference for 32-bit integers.

use std::ffi::{c_char, c_int, CStr};
use std::path::Path;

use gllm_kernels_core::{bf16, f16, ElementType};
use gllm_kernels_std::AlignedVec;
use libm::{erf, erfc, exp, tanh};

use super::cblas::{gemm, gemv, int, rows, Gemm, NO_TRANSPOSE, ROW_MAJOR, TRANSPOSE};
use super::check::Check;
use super::library::{Known, Library};
use super::{Peer, Product, Routine, Row};
use crate::arena::{numbers, Plain};
use crate::error::Outcome;
use crate::workload::Shape;

static KNOWN: Known = Known {
    name: "mkl",
    files: &["libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so"],
    packages: &[],
    install: "pip install mkl",
    prefixes: &[""],
    has: "cblas_sgemm",
    // Milliseconds that idle threads look for work.
    environment: &[("KMP_BLOCKTIME", "1")],
};

/// MKL.
pub struct Mkl {
    library: &'static Library,
}

impl Peer for Mkl {
    const NAME: &'static str = KNOWN.name;

    const ROWS: &'static [Row<Self>] = rows! {
        "gemm" F32 "cblas_sgemm" gemm::<f32, _>, Check::Product;
        "gemm" F16 "cblas_gemm_f16f16f32" gemm::<f16, _>, Check::Product;
        "gemm" Bf16 "cblas_gemm_bf16bf16f32" gemm::<bf16, _>, Check::Product;
        "gemm" I8 "cblas_gemm_s8u8s32" gemm_s8u8s32, Check::Product;
        "gemm_bt" F32 "cblas_sgemm" gemm::<f32, _>, Check::Product;
        "gemm_bt" F16 "cblas_gemm_f16f16f32" gemm::<f16, _>, Check::Product;
        "gemm_bt" Bf16 "cblas_gemm_bf16bf16f32" gemm::<bf16, _>, Check::Product;
        "gemm_bt" I8 "cblas_gemm_s8u8s32" gemm_s8u8s32, Check::Product;
        "gemm_prepacked" F32 "cblas_sgemm_compute" sgemm_prepacked, Check::Product;
        "gemm_prepacked" F16 "cblas_gemm_f16f16f32_compute" gemm_prepacked::<f16, _>, Check::Product;
        "gemm_prepacked" Bf16 "cblas_gemm_bf16bf16f32_compute" gemm_prepacked::<bf16, _>, Check::Product;
        "gemm_prepacked" I8 "cblas_gemm_s8u8s32_compute" gemm_s8u8s32, Check::Product;
        "gemv" F32 "cblas_sgemv" gemv, Check::Product;
        "exp" F32 "vmsExp" vml, Check::Function(exp);
        "tanh" F32 "vmsTanh" vml, Check::Function(tanh);
        "silu" F32 "vmsExp" vml, Check::Function(exp);
        "silu" F32 "vmsTanh" vml, Check::Function(tanh);
        "gelu" F32 "vmsTanh" vml, Check::Function(tanh);
        "gelu" F32 "vmsErf" vml, Check::Function(erf);
        "gelu" F32 "vmsCdfNorm" vml, Check::Function(cdf_norm);
        "gelu_tanh" F32 "vmsTanh" vml, Check::Function(tanh);
    };

    fn open(library: Option<&Path>) -> Outcome<&'static Self> {
        let library = Library::open(&KNOWN, library)?;
        // SAFETY: the reference's prototype.
        let set_dynamic = unsafe { library.function::<unsafe extern "C" fn(c_int)>("MKL_Set_Dynamic") }?;
        // Otherwise it uses fewer threads than it is told where that looks better to it.
        // SAFETY: there are no preconditions.
        unsafe { set_dynamic(0) };
        Ok(Box::leak(Box::new(Self { library })))
    }

    fn version(&self) -> String {
        type Function = unsafe extern "C" fn(*mut c_char, c_int);
        // SAFETY: the reference's prototype.
        let version = unsafe { self.library.function::<Function>("MKL_Get_Version_String") };
        let mut text = [0u8; 200];
        if let Ok(version) = version {
            // SAFETY: it writes at most so many bytes.
            unsafe { version(text.as_mut_ptr().cast(), text.len() as c_int - 1) };
        }
        self.library.describe(&CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy())
    }

    fn set_threads(&self, threads: usize) -> Outcome {
        self.library.set_threads("MKL_Set_Num_Threads", "MKL_Get_Max_Threads", threads)
    }
}

const B_MATRIX: c_int = 162;
const PACKED: c_int = 151;
const FIXED_OFFSET: c_int = 173;

/// MKL's own packed `B`.
struct Packed<E> {
    pack: Box<dyn Fn(*const E, *mut E)>,
    memory: AlignedVec<u8>,
    done: bool,
}

impl<E: Plain> Packed<E> {
    /// `pack` packs from the first to the second pointer.
    fn with<P>(
        library: &'static Library,
        row: &Row<P>,
        p: Product,
        pack: Box<dyn Fn(*const E, *mut E)>,
    ) -> Outcome<Self> {
        type Size = unsafe extern "C" fn(c_int, c_int, c_int, c_int) -> usize;
        // SAFETY: the reference's prototype.
        let size = unsafe { library.function::<Size>(&row.function.replace("compute", "pack_get_size")) }?;
        let (m, n, k) = (int(p.m)?, int(p.n)?, int(p.k)?);
        // SAFETY: sizes that are not negative.
        let memory = AlignedVec::zeroed(unsafe { size(B_MATRIX, m, n, k) });
        Ok(Self { pack, memory, done: false })
    }

    /// For all types but f32, which gives packing a factor.
    fn new<P>(library: &'static Library, row: &Row<P>, p: Product) -> Outcome<Self> {
        /// Layout, which matrix, transposition, m, n, k, source, its row length, destination.
        type Pack<E> =
            unsafe extern "C" fn(c_int, c_int, c_int, c_int, c_int, c_int, *const E, c_int, *mut E);
        // SAFETY: the reference's prototype.
        let pack = unsafe { library.function::<Pack<E>>(&row.function.replace("compute", "pack")) }?;
        let (m, n, k) = (int(p.m)?, int(p.n)?, int(p.k)?);
        // SAFETY: a matrix of this size, and as much memory as the library asked for.
        let pack = move |b, to| unsafe { pack(ROW_MAJOR, B_MATRIX, NO_TRANSPOSE, m, n, k, b, n, to) };
        Self::with(library, row, p, Box::new(pack))
    }

    /// Packs at the first call, which is not timed.
    fn get(&mut self, b: *const E) -> *const E {
        if !self.done {
            (self.pack)(b, self.memory.as_mut_ptr().cast());
            self.done = true;
        }
        self.memory.as_ptr().cast()
    }
}

/// `C = A B` with MKL's packed `B`, f32: `alpha` goes into packing.
fn sgemm_prepacked<P>(library: &'static Library, row: &Row<P>, shape: Shape) -> Outcome<Routine> {
    /// Layout, which matrix, transposition, m, n, k, alpha, source, its row length, destination.
    type Pack =
        unsafe extern "C" fn(c_int, c_int, c_int, c_int, c_int, c_int, f32, *const f32, c_int, *mut f32);
    /// Layout, transposition or [`PACKED`] of A and B, m, n, k, A, lda, B, ldb, beta, C, ldc.
    type Compute = unsafe extern "C" fn(
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        *const f32,
        c_int,
        *const f32,
        c_int,
        f32,
        *mut f32,
        c_int,
    );
    // SAFETY: the reference's prototypes.
    let (pack, compute) = unsafe {
        (
            library.function::<Pack>(&row.function.replace("compute", "pack"))?,
            library.function::<Compute>(row.function)?,
        )
    };
    let p = Product::new(row, shape);
    let (m, n, k) = (int(p.m)?, int(p.n)?, int(p.k)?);
    // SAFETY: a matrix of this size, and as much memory as the library asked for.
    let pack = move |b, to| unsafe { pack(ROW_MAJOR, B_MATRIX, NO_TRANSPOSE, m, n, k, 1.0, b, n, to) };
    let mut packed = Packed::with(library, row, p, Box::new(pack))?;
    Ok(Box::new(move |inputs, output| {
        let (a, b, c) = p.operands(inputs, output);
        let b = packed.get(b);
        // SAFETY: matrices of these sizes; B was packed for them.
        unsafe { compute(ROW_MAJOR, NO_TRANSPOSE, PACKED, m, n, k, a, k, b, n, 0.0, c, n) }
    }))
}

/// The same of 16-bit types.
fn gemm_prepacked<E: Plain, P>(library: &'static Library, row: &Row<P>, shape: Shape) -> Outcome<Routine> {
    // SAFETY: the reference's prototype.
    let compute = unsafe { library.function::<Gemm<E>>(row.function) }?;
    let p = Product::new(row, shape);
    let (m, n, k) = (int(p.m)?, int(p.n)?, int(p.k)?);
    let mut packed = Packed::new(library, row, p)?;
    Ok(Box::new(move |inputs, output| {
        let (a, b, c) = p.operands(inputs, output);
        let b = packed.get(b);
        // SAFETY: matrices of these sizes; B was packed for them.
        unsafe { compute(ROW_MAJOR, NO_TRANSPOSE, PACKED, m, n, k, 1.0, a, k, b, n, 0.0, c, n) }
    }))
}

/// `C = A B` of int8, in each form. MKL's A is u8: it gets ours + 128, and is told to subtract 128.
fn gemm_s8u8s32<P>(library: &'static Library, row: &Row<P>, shape: Shape) -> Outcome<Routine> {
    /// Layout, transposition or [`PACKED`] of A and B, kind of offset, m, n, k, alpha, A, lda, its
    /// offset, B, ldb, its offset, beta, C, ldc, its offset.
    type Function = unsafe extern "C" fn(
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        f32,
        *const u8,
        c_int,
        i8,
        *const i8,
        c_int,
        i8,
        f32,
        *mut i32,
        c_int,
        *const i32,
    );
    // SAFETY: the reference's prototype, of the plain and the packed product.
    let function = unsafe { library.function::<Function>(row.function) }?;
    let p = Product::new(row, shape);
    let (m, n, k, ldb) = (int(p.m)?, int(p.n)?, int(p.k)?, int(p.ldb())?);
    let mut packed = match row.op {
        "gemm_prepacked" => Some(Packed::new(library, row, p)?),
        _ => None,
    };
    let form = match packed {
        Some(_) => PACKED,
        None if p.transposed => TRANSPOSE,
        None => NO_TRANSPOSE,
    };
    let mut unsigned = Vec::new();
    Ok(Box::new(move |inputs, output| {
        let (_, b, c) = p.operands::<i8, i32>(inputs, output);
        if unsigned.is_empty() {
            unsigned = inputs[0].iter().map(|a| a ^ 0x80).collect();
        }
        let a = unsigned.as_ptr();
        let b = packed.as_mut().map_or(b, |packed| packed.get(b));
        let none = 0;
        // SAFETY: matrices of these sizes; B was packed for them.
        unsafe {
            function(
                ROW_MAJOR,
                NO_TRANSPOSE,
                form,
                FIXED_OFFSET,
                m,
                n,
                k,
                1.0,
                a,
                k,
                -128,
                b,
                ldb,
                0,
                0.0,
                c,
                n,
                &none,
            )
        }
    }))
}

/// `vms<Function>(n, x, y, mode)` in high-accuracy mode.
fn vml<P>(library: &'static Library, row: &Row<P>, shape: Shape) -> Outcome<Routine> {
    type Function = unsafe extern "C" fn(c_int, *const f32, *mut f32, i64);
    const HIGH_ACCURACY: i64 = 2;
    // SAFETY: the reference's prototype.
    let function = unsafe { library.function::<Function>(row.function) }?;
    let n = int(shape.n)?;
    Ok(Box::new(move |inputs, output| {
        let x = numbers::<f32>(inputs[0]);
        assert_eq!((x.len(), numbers::<f32>(output).len()), (shape.n, shape.n));
        // SAFETY: n elements each.
        unsafe { function(n, x.as_ptr(), output.as_mut_ptr().cast(), HIGH_ACCURACY) };
    }))
}

/// Distribution function of the standard normal distribution.
fn cdf_norm(x: f64) -> f64 {
    0.5 * erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}
