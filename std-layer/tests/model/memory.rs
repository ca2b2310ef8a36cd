//! What opening a file allocates is bounded by the file's size, whatever the file says of itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use gllm_kernels_std::gguf::Value;
use gllm_kernels_std::model::Model;
use gllm_kernels_std::AlignedVec;

use super::draft::{architectures, Draft};

/// Counts the bytes that each thread has allocated, and remembers the most.
struct Peak;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn add(bytes: isize) {
    // A thread that ends may allocate after its locals are gone.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(now.get())));
    });
}

// SAFETY: passes everything on to the system's allocator. `realloc` is the default: an allocation and a copy.
unsafe impl GlobalAlloc for Peak {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: the caller's contract.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static PEAK: Peak = Peak;

/// Bytes that opening and listing may take for each byte of a file, and at all: names and places of tensors, vectors widened to
/// f32, the text of an error.
const FACTOR: usize = 8;
const BASE: usize = 64 << 10;

/// Opens a file that lies in memory, looks at all of it, and returns the most that this thread had allocated meanwhile.
fn open(bytes: &[u8]) -> usize {
    let aligned = AlignedVec::from_slice(bytes);
    let before = NOW.get();
    MOST.set(before);
    match Model::from_bytes(&aligned) {
        Ok(model) => {
            let _ = model.verify();
            let _ = model.weights().map(|w| w.layers.len());
            assert!(model.unused().len() <= bytes.len());
        }
        Err(error) => assert!(error.to_string().len() < 4096),
    }
    (MOST.get() - before).unsigned_abs()
}

#[test]
fn files_that_lie_about_sizes() {
    let check = |bytes: &[u8], what: &dyn std::fmt::Display| {
        let (most, allowed) = (open(bytes), FACTOR * bytes.len() + BASE);
        assert!(most <= allowed, "{what}: {most} bytes for a file of {}, allowed are {allowed}", bytes.len());
    };
    let keys = [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "expert_count",
        "expert_used_count",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "rope.dimension_count",
        "rope.scaling.original_context_length",
        "vocab_size",
    ];
    for name in architectures() {
        for key in keys {
            for size in [0, 1, 2, 7, 1 << 20, i32::MAX as u64, u32::MAX.into(), 1 << 40, u64::MAX] {
                let mut draft = Draft::of(name);
                draft.set(&format!("{name}.{key}"), Value::U64(size));
                check(&draft.bytes(), &format_args!("{name}.{key} = {size}"));
            }
        }
    }
    // Lengths of strings and arrays, numbers of tensors and of keys, dimensions, offsets: each eight bytes of the header at a time.
    let draft = Draft::of("llama");
    let [header, _] = draft.data();
    let bytes = draft.bytes();
    let mut changed = bytes.to_vec();
    for at in 4..header - 8 {
        for number in [1u64 << 20, 1 << 31, 1 << 40, 1 << 62, u64::MAX] {
            changed[at..at + 8].copy_from_slice(&number.to_le_bytes());
            check(&changed, &format_args!("{number} at byte {at}"));
        }
        changed[at..at + 8].copy_from_slice(&bytes[at..at + 8]);
    }
}
