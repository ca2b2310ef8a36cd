//! ggml, the library under llama.cpp: products of quantised weights on its CPU backend, in the version
//! of `Cargo.lock`.

use std::cell::Cell;
use std::ffi::{c_char, c_void, CStr};
use std::path::Path;
use std::ptr::{null_mut, NonNull};

use gllm_kernels_core::{Caps, ElementType, Features, IsaLevel};
use gllm_kernels_std::AlignedVec;
use llama_cpp_sys_2 as sys;

use super::check::Check;
use super::{Peer, Routine, Row};
use crate::error::{Failure, Outcome};
use crate::workload::Case;

/// ggml's CPU backend and its threads, which stay from one product to the next.
pub struct Ggml {
    backend: sys::ggml_backend_t,
    /// How many, and the pool.
    pool: Cell<(usize, *mut sys::ggml_threadpool)>,
}

/// Where ggml has its weights.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Buffer {
    /// As they lie in a file.
    Default,
    /// Rearranged when they are loaded.
    Packed,
}

const fn row(op: &'static str, buffer: Buffer) -> Row<Ggml> {
    let (function, make): (_, fn(&'static Ggml, &Row<Ggml>, &Case) -> _) = match buffer {
        Buffer::Default => (DEFAULT, |peer, _, case| peer.mul_mat(Buffer::Default, case)),
        Buffer::Packed => (PACKED, |peer, _, case| peer.mul_mat(Buffer::Packed, case)),
    };
    Row { op, element: ElementType::F32, function, make, check: Check::Quantised }
}

const DEFAULT: &str = "mul_mat, default buffer";
const PACKED: &str = "mul_mat, packed buffer";

impl Peer for Ggml {
    const NAME: &'static str = "ggml";

    const ROWS: &'static [Row<Self>] = &[
        row("qgemv_packed", Buffer::Default),
        row("qgemv_packed", Buffer::Packed),
        row("qgemv_q8", Buffer::Default),
        row("qgemv_q8", Buffer::Packed),
        row("qgemv", Buffer::Default),
        row("qgemv", Buffer::Packed),
        row("qgemm", Buffer::Default),
        row("qgemm", Buffer::Packed),
        row("qgemm_packed", Buffer::Default),
        row("qgemm_packed", Buffer::Packed),
        row("qgemm_exact", Buffer::Default),
    ];

    const OPS: &'static [&'static str] = &["qgemv_packed", "qgemv_q8"];

    fn takes(row: &Row<Self>, case: &Case) -> bool {
        let Some(graph) = Graph::new(case) else { return false };
        match row.function {
            PACKED => graph.packed_buffer().is_some(),
            _ => true,
        }
    }

    fn open(library: Option<&Path>) -> Outcome<&'static Self> {
        if library.is_some() {
            return Err(Failure::Usage("--library: ggml is compiled in".to_owned()));
        }
        unsafe extern "C" fn silent(_: sys::ggml_log_level, _: *const c_char, _: *mut c_void) {}
        // SAFETY: there are no preconditions.
        let backend = unsafe {
            sys::ggml_log_set(Some(silent), null_mut());
            sys::ggml_backend_cpu_init()
        };
        if backend.is_null() {
            return Err(Failure::Failed("ggml: its CPU backend cannot be set up".to_owned()));
        }
        Ok(Box::leak(Box::new(Self { backend, pool: Cell::new((0, null_mut())) })))
    }

    fn version(&self) -> String {
        // SAFETY: it returns a string for ever.
        let version = unsafe { CStr::from_ptr(sys::ggml_version()) }.to_string_lossy();
        let kinds: Vec<String> = packed_buffers().map(name).collect();
        let kinds = if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
        format!("version {version}, built for {}; packed buffers: {kinds}", features().join(" "))
    }

    fn warning(&self, caps: Caps) -> Option<String> {
        warning(caps)
    }

    fn set_threads(&self, threads: usize) -> Outcome {
        let (now, old) = self.pool.get();
        if now == threads {
            return Ok(());
        }
        // SAFETY: the backend leaves the old pool before that goes; it was made here.
        let pool = unsafe {
            let mut params = sys::ggml_threadpool_params_default(threads as i32);
            let pool = sys::ggml_threadpool_new(&mut params);
            sys::ggml_backend_cpu_set_threadpool(self.backend, pool);
            sys::ggml_backend_cpu_set_n_threads(self.backend, threads as i32);
            if !old.is_null() {
                sys::ggml_threadpool_free(old);
            }
            pool
        };
        self.pool.set((threads, pool));
        Ok(())
    }

    /// Its idle threads look for work during a tenth of a second.
    fn rest(&self) {
        // SAFETY: the pool is ours, and nothing runs on it.
        unsafe { sys::ggml_threadpool_pause(self.pool.get().1) }
    }
}

impl Ggml {
    fn mul_mat(&'static self, buffer: Buffer, case: &Case) -> Outcome<Routine> {
        let graph = Graph::new(case).ok_or_else(|| Failure::Failed("ggml has no such product".to_owned()))?;
        let ([rows, batch], cols) = (sizes(case), case.shape.k);
        let mut weights = Weights::None;
        Ok(Box::new(move |inputs, output| {
            let (w, x) = (inputs[0], inputs[1]);
            assert_eq!((x.len(), output.len()), (4 * cols * batch, 4 * rows * batch));
            if matches!(weights, Weights::None) {
                weights = Weights::load(&graph, buffer, w);
            }
            // SAFETY: ggml reads the vector and writes the product, which have these sizes.
            let status = unsafe {
                (*graph.x).data = x.as_ptr().cast_mut().cast();
                (*graph.y).data = output.as_mut_ptr().cast();
                sys::ggml_backend_graph_compute(self.backend, graph.graph)
            };
            assert_eq!(status, sys::GGML_STATUS_SUCCESS, "ggml gave up");
        }))
    }
}

/// A graph of one product.
struct Graph {
    context: NonNull<sys::ggml_context>,
    graph: *mut sys::ggml_cgraph,
    w: *mut sys::ggml_tensor,
    x: *mut sys::ggml_tensor,
    y: *mut sys::ggml_tensor,
}

/// Rows of weights and of activations.
fn sizes(case: &Case) -> [usize; 2] {
    [case.shape.n, case.shape.m]
}

impl Graph {
    /// Nothing if ggml has no such weights, or none that it multiplies.
    fn new(case: &Case) -> Option<Self> {
        let (format, [rows, batch], cols) = (case.format?, sizes(case), case.shape.k);
        let kind = format.gguf_type() as sys::ggml_type;
        if kind >= sys::GGML_TYPE_COUNT {
            return None;
        }
        // SAFETY: types below that number have traits.
        unsafe { (*sys::ggml_get_type_traits_cpu(kind)).vec_dot }?;
        // SAFETY: tensors live in the context and have no data so far; the product's operands fit
        // each other.
        unsafe {
            let params = sys::ggml_init_params {
                mem_size: 4 * sys::ggml_tensor_overhead() + sys::ggml_graph_overhead(),
                mem_buffer: null_mut(),
                no_alloc: true,
            };
            let context = NonNull::new(sys::ggml_init(params))?;
            let c = context.as_ptr();
            let w = sys::ggml_new_tensor_2d(c, kind, cols as i64, rows as i64);
            let x = sys::ggml_new_tensor_2d(c, sys::GGML_TYPE_F32, cols as i64, batch as i64);
            let y = sys::ggml_mul_mat(c, w, x);
            let graph = sys::ggml_new_graph(c);
            sys::ggml_build_forward_expand(graph, y);
            let whole = Self { context, graph, w, x, y };
            (sys::ggml_nbytes(w) == format.row_bytes(cols).ok()? * rows).then_some(whole)
        }
    }

    /// The first kind of packed buffer that has this product.
    fn packed_buffer(&self) -> Option<sys::ggml_backend_buffer_type_t> {
        packed_buffers().find(|&kind| {
            // SAFETY: an empty buffer tells what buffers of its kind can do; the tensor forgets it
            // before it goes.
            unsafe {
                let empty = sys::ggml_backend_buft_alloc_buffer(kind, 0);
                (*self.w).buffer = empty;
                let can = sys::ggml_backend_dev_supports_op(device(), self.y);
                (*self.w).buffer = null_mut();
                sys::ggml_backend_buffer_free(empty);
                can
            }
        })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: it was made with the graph.
        unsafe { sys::ggml_free(self.context.as_ptr()) }
    }
}

/// What a graph's weights lie in.
enum Weights {
    None,
    Stored(#[expect(dead_code, reason = "it is read by ggml")] AlignedVec<u8>),
    Packed(sys::ggml_backend_buffer_t),
}

impl Weights {
    /// Gives the graph its weights: `period`, again and again.
    fn load(graph: &Graph, buffer: Buffer, period: &[u8]) -> Self {
        let w = graph.w;
        // SAFETY: the tensor lives as long as the graph.
        let mut stored = AlignedVec::<u8>::zeroed(unsafe { sys::ggml_nbytes(w) });
        for part in stored.chunks_mut(period.len().max(1)) {
            part.copy_from_slice(&period[..part.len()]);
        }
        if buffer == Buffer::Default {
            // SAFETY: the tensor lives as long as the graph, and the memory is kept beside that.
            unsafe { (*w).data = stored.as_mut_ptr().cast() };
            return Self::Stored(stored);
        }
        let kind = graph.packed_buffer().expect("the case was taken");
        // SAFETY: the buffer has the size that its kind asks for, and is kept beside the graph.
        let (buffer, status) = unsafe {
            let size = sys::ggml_backend_buft_get_alloc_size(kind, w);
            let buffer = sys::ggml_backend_buft_alloc_buffer(kind, size);
            assert!(!buffer.is_null(), "no memory for ggml's packed weights");
            let base = sys::ggml_backend_buffer_get_base(buffer);
            large_pages(base, size);
            (buffer, sys::ggml_backend_tensor_alloc(buffer, w, base))
        };
        assert_eq!(status, sys::GGML_STATUS_SUCCESS, "ggml cannot pack the weights");
        // SAFETY: as many bytes as the tensor has.
        unsafe { sys::ggml_backend_tensor_set(w, stored.as_ptr().cast(), 0, stored.len()) };
        Self::Packed(buffer)
    }
}

impl Drop for Weights {
    fn drop(&mut self) {
        if let Self::Packed(buffer) = *self {
            // SAFETY: it was made with the weights.
            unsafe { sys::ggml_backend_buffer_free(buffer) }
        }
    }
}

/// Memory like that of the other side.
fn large_pages(base: *mut c_void, size: usize) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let up = base.align_offset(PAGE);
        // SAFETY: whole pages within the buffer; the advice changes nothing but speed.
        unsafe {
            libc::madvise(base.byte_add(up), size.saturating_sub(up) / PAGE * PAGE, libc::MADV_HUGEPAGE);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (base, size);
}

/// The CPU.
fn device() -> sys::ggml_backend_dev_t {
    // SAFETY: this backend is compiled in, and it has one device.
    unsafe { sys::ggml_backend_reg_dev_get(sys::ggml_backend_cpu_reg(), 0) }
}

/// A function of the CPU backend that is found by its name.
///
/// # Safety
/// `F` must be the function's type.
unsafe fn by_name<F: Copy>(name: &CStr) -> Option<F> {
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    // SAFETY: the backend is compiled in.
    let found = unsafe { sys::ggml_backend_reg_get_proc_address(sys::ggml_backend_cpu_reg(), name.as_ptr()) };
    // SAFETY: a function pointer is as large, and the caller vouches for its type.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}

/// The kinds of buffers that rearrange weights, the preferred ones first.
fn packed_buffers() -> impl Iterator<Item = sys::ggml_backend_buffer_type_t> {
    type Function = unsafe extern "C" fn(sys::ggml_backend_dev_t) -> *mut sys::ggml_backend_buffer_type_t;
    // SAFETY: the header's type.
    let all = unsafe { by_name::<Function>(c"ggml_backend_dev_get_extra_bufts") };
    // SAFETY: a list with null at its end, that stays.
    let mut next = all.map_or(null_mut(), |all| unsafe { all(device()) });
    std::iter::from_fn(move || {
        if next.is_null() {
            return None;
        }
        // SAFETY: an entry of the list; the last one is null.
        let kind = unsafe { *next };
        // SAFETY: it was not the last one yet.
        next = if kind.is_null() { next } else { unsafe { next.add(1) } };
        (!kind.is_null()).then_some(kind)
    })
}

fn name(kind: sys::ggml_backend_buffer_type_t) -> String {
    // SAFETY: it returns a string for ever.
    unsafe { CStr::from_ptr(sys::ggml_backend_buft_name(kind)) }.to_string_lossy().into_owned()
}

/// The CPU features that it was built for.
fn features() -> Vec<String> {
    type Function = unsafe extern "C" fn(sys::ggml_backend_reg_t) -> *mut sys::ggml_backend_feature;
    // SAFETY: the header's type.
    let Some(all) = (unsafe { by_name::<Function>(c"ggml_backend_get_features") }) else { return Vec::new() };
    let mut names = Vec::new();
    // SAFETY: a list that stays; its end has no name.
    unsafe {
        let mut next = all(sys::ggml_backend_cpu_reg());
        while !(*next).name.is_null() {
            if CStr::from_ptr((*next).value) != c"0" {
                names.push(CStr::from_ptr((*next).name).to_string_lossy().into_owned());
            }
            next = next.add(1);
        }
    }
    names
}

/// What to say if it was built for another level than that of our kernels for `caps`.
pub fn warning(caps: Caps) -> Option<String> {
    mismatch(caps, &features())
}

/// Why a ggml that was built for these features is no match for our kernels for `caps`.
fn mismatch(caps: Caps, features: &[String]) -> Option<String> {
    let has = |name: &str| features.iter().any(|f| f == name);
    let vnni = caps.features().contains(Features::AVX512_VNNI);
    let level = caps.level();
    let (matches, how) = match level {
        IsaLevel::Avx512 => (
            has("AVX512") && (has("AVX512_VNNI") || !vnni),
            "CMAKE_C_FLAGS=-march=native CMAKE_CXX_FLAGS=-march=native cargo build",
        ),
        IsaLevel::Avx2 => (
            has("AVX2") && !has("AVX512"),
            "without CMAKE_C_FLAGS and CMAKE_CXX_FLAGS, and with a --target-dir of its own: cargo build",
        ),
        _ => return None,
    };
    (!matches).then(|| {
        let features = features.join(" ");
        format!(
            "our kernels are for {level}, this ggml was built for {features}; to build it for {level}: {how} \
             --release -p gllm-bench --features peer-ggml"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_was_built_for_is_told() {
        let all = gllm_kernels_std::caps();
        let vnni = all.features().contains(Features::AVX512_VNNI);
        for (level, features, matches) in [
            (IsaLevel::Avx512, "AVX2 AVX512 AVX512_VNNI", true),
            (IsaLevel::Avx512, "AVX2 AVX512", !vnni),
            (IsaLevel::Avx512, "AVX2 FMA", false),
            (IsaLevel::Avx2, "AVX2 FMA", true),
            (IsaLevel::Avx2, "AVX2 AVX512 AVX512_VNNI", false),
            (IsaLevel::Avx2, "SSE3", false),
        ] {
            let Ok(caps) = all.restricted_to(level) else { continue };
            let words: Vec<String> = features.split(' ').map(str::to_owned).collect();
            let text = mismatch(caps, &words);
            assert_eq!(text.is_none(), matches, "{level} {features}: {text:?}");
            let parts = [level.name(), features, "--features peer-ggml"];
            assert!(text.is_none_or(|t| parts.iter().all(|part| t.contains(part))));
        }
        assert!(features().iter().all(|f| !f.is_empty()));
    }
}
