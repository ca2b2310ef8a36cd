//! What stands for CUDA's driver on GPUs of AMD's, on an emulated HSA runtime: what it refuses, what it keeps in order, and models.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod cuda;
// What these models compute in f64 is the business of the CPU's tests.
#[allow(dead_code)]
#[path = "decoder/tiny.rs"]
mod tiny;

use std::path::Path;

use cuda::{rocm_emulator, Fake};
use gllm_kernels_std::backend::{BackendError, CacheOptions, CpuBackend, ForwardConfig, KvType, RocmBackend};
use gllm_kernels_std::core::{Precision, QuantFormat};
use gllm_kernels_std::cuda::{Buffer, Capability, Context, CudaError, Event, Ops, PinnedBuffer, Stream};
use gllm_kernels_std::model::{Generator, Model, Options, Sampling};
use gllm_kernels_std::rocm;
use tiny::Tiny;

fn fake(settings: &[(&str, i64)]) -> Fake {
    Fake::of(rocm_emulator(0x1100), settings)
}

fn context(fake: &Fake) -> Context {
    rocm::open_at(&fake.path).and_then(|driver| driver.device(0)?.context()).unwrap()
}

/// Both ways in which the emulated runtime does its work: when somebody waits, and at once.
fn in_both_modes(test: impl Fn(&Fake)) {
    for at_once in [0, 1] {
        test(&fake(&[("at_once", at_once)]));
    }
}

#[test]
fn without_a_runtime_or_a_gpu() {
    let error = rocm::open_at(Path::new("libnot-there.so")).unwrap_err();
    assert!(
        matches!(&error, CudaError::NoRuntime { library, .. } if library == "libnot-there.so"),
        "{error:?}"
    );
    // This machine's own, if there is one.
    let own = rocm::open();
    let told = matches!(&own, Ok(_) | Err(CudaError::NoRuntime { .. } | CudaError::NoDevice));
    assert!(told, "{own:?}");
    // A library that is something else.
    let error = rocm::open_at(cuda::emulator()).unwrap_err();
    assert_eq!(error, CudaError::MissingFunction { name: "hsa_init" });
    assert_eq!(rocm::open_at(&fake(&[("device_count", 0)]).path).unwrap_err(), CudaError::NoDevice);
}

/// Members of a family take the family's files; others have none.
#[test]
fn families() {
    let families: [(u32, &[i64]); 5] = [
        (0x90a, &[0x90a]),
        (0x942, &[0x942]),
        (0x1030, &[0x1030, 0x1031, 0x1032, 0x1033, 0x1034, 0x1035, 0x1036]),
        (0x1100, &[0x1100, 0x1101, 0x1102, 0x1103]),
        (0x1200, &[0x1200, 0x1201]),
    ];
    for (kernels, gfx) in
        families.iter().flat_map(|&(kernels, all)| all.iter().map(move |&gfx| (kernels, gfx)))
    {
        let fake = fake(&[("gfx", gfx)]);
        let context = context(&fake);
        assert_eq!(context.device().capability(), Capability(gfx as u32));
        let ops = Ops::new(&context).unwrap();
        assert_eq!(ops.capability(), Capability(kernels));
        ops.load().unwrap();
    }
    for gfx in [0x906, 0x90c, 0x940, 0x1010, 0x1037, 0x1150] {
        let fake = fake(&[("gfx", gfx)]);
        let error = Ops::new(&context(&fake)).unwrap_err();
        let all = families.map(|(kernels, _)| Capability(kernels)).to_vec();
        assert_eq!(error, CudaError::NoKernels { capability: Capability(gfx as u32), embedded: all });
    }
}

/// More kernels than the queue has room for, and more arguments than a stream has memory for.
#[test]
fn work_is_in_order() {
    in_both_modes(|fake| {
        let context = context(fake);
        let (ops, stream) = (Ops::new(&context).unwrap(), Stream::new(&context).unwrap());
        let mut x = Buffer::from_slice(&stream, &[1.0f32; 100]).unwrap();
        let one = Buffer::from_slice(&stream, &[1.0f32; 100]).unwrap();
        let mut y = Buffer::new(&context, 100).unwrap();
        for _ in 0..9000 {
            ops.vec_add(&stream, &x, &one, &mut y).unwrap();
            x.copy_from(&stream, &y).unwrap();
        }
        assert_eq!(x.to_vec(&stream).unwrap(), [9001.0; 100]);
        // Parts at odd addresses.
        let mut bytes = Buffer::<u8>::from_slice(&stream, &[7; 50]).unwrap();
        bytes.range_mut(3..40).unwrap().fill_bytes(&stream, 1).unwrap();
        let want: Vec<u8> = (0..50).map(|i| if (3..40).contains(&i) { 1 } else { 7 }).collect();
        assert_eq!(bytes.to_vec(&stream).unwrap(), want);
        // Copies that take their turn while the host goes on.
        let mut pinned = PinnedBuffer::zeroed(&context, 100).unwrap();
        pinned.fill(2.0f32);
        let up = pinned.upload(&stream, &mut x.view_mut()).unwrap();
        ops.vec_add(&stream, &x, &one, &mut y).unwrap();
        let down = PinnedBuffer::zeroed(&context, 100).unwrap().download(&stream, y.view()).unwrap();
        x.fill_bytes(&stream, 0).unwrap();
        drop(up);
        assert_eq!(*down.wait().unwrap(), [3.0; 100]);
        assert_eq!(x.to_vec(&stream).unwrap(), [0.0; 100]);
    });
}

#[test]
fn recordings_and_events() {
    in_both_modes(|fake| {
        let context = context(fake);
        let (ops, first) = (Ops::new(&context).unwrap(), Stream::new(&context).unwrap());
        let second = Stream::new(&context).unwrap();
        ops.load().unwrap();
        let mut x = Buffer::from_slice(&first, &[1.0f32; 64]).unwrap();
        let one = Buffer::from_slice(&first, &[1.0f32; 64]).unwrap();
        let mut y = Buffer::new(&context, 64).unwrap();
        let mut graph = first
            .capture(|| {
                ops.vec_add(&first, &x, &one, &mut y)?;
                x.copy_from(&first, &y)
            })
            .unwrap();
        let refused = first.capture(|| first.wait()).unwrap_err();
        assert!(matches!(&refused, CudaError::Driver { why, .. } if why.code == 900), "{refused:?}");
        assert_eq!(x.to_vec(&first).unwrap(), [1.0; 64]);
        for _ in 0..3 {
            // SAFETY: the buffers live until the streams are waited for.
            unsafe { graph.launch(&first) }.unwrap();
        }
        // The second stream waits for the first one.
        let event = Event::new(&context).unwrap();
        assert!(event.reached().unwrap());
        event.record(&first).unwrap();
        second.wait_for(&event).unwrap();
        assert_eq!(x.to_vec(&second).unwrap(), [4.0; 64]);
        event.wait().unwrap();
        assert!(event.reached().unwrap());
        let later = Event::new(&context).unwrap();
        let never = later.ms_since(&event).unwrap_err();
        assert!(matches!(&never, CudaError::Driver { .. }), "{never:?}");
        let begin = std::time::Instant::now();
        later.record(&first).unwrap();
        later.wait().unwrap();
        let between = later.ms_since(&event).unwrap();
        assert!(between > 0.0 && event.ms_since(&later).unwrap() == -between, "{between}");
        event.record(&first).unwrap();
        event.wait().unwrap();
        let most = begin.elapsed().as_secs_f32() * 1e3;
        assert!((0.0..=most).contains(&event.ms_since(&later).unwrap()));
        // What was started is done, also if its recording is dropped.
        // SAFETY: the buffers live until the stream has been waited for.
        unsafe { graph.launch(&first) }.unwrap();
        drop(graph);
        assert_eq!(x.to_vec(&first).unwrap(), [5.0; 64]);
        drop((x, one, y, event, later, first, second, ops));
        assert_eq!(
            (fake.controls.allocations(), fake.controls.modules()),
            (0, 1),
            "but for copies and fills"
        );
    });
}

#[test]
fn too_little_memory() {
    let fake = fake(&[("memory", 1 << 16)]);
    let context = context(&fake);
    let kept = Buffer::<u8>::new(&context, 1 << 15).unwrap();
    let error = Buffer::<u8>::new(&context, 1 << 16).unwrap_err();
    assert_eq!(error, CudaError::OutOfMemory { asked: 1 << 16, free: Some(1 << 15) });
    drop(kept);
    Buffer::<u8>::new(&context, 1 << 16).unwrap();
}

fn exact() -> Options {
    let forward = ForwardConfig { precision: Precision::Exact, ..ForwardConfig::default() };
    let cache = CacheOptions { kind: KvType::F32, sequences: 8, ..CacheOptions::default() };
    Options { forward, cache, max_tokens: Some(256), ..Options::default() }
}

fn tokens(n: usize, vocabulary: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * i + 7 * i + i / 11) % vocabulary) as u32).collect()
}

fn on_gpu(fake: &Fake, model: &Model<'_>) -> Generator<RocmBackend> {
    Generator::new(RocmBackend::with_context(&context(fake)).unwrap(), model, exact()).unwrap()
}

/// A model says what it says on the CPU, step by step from recordings, and a step moves 4 bytes.
#[test]
fn a_model() {
    in_both_modes(|fake| {
        let tiny = Tiny::new("llama", Some(QuantFormat::Q4_1));
        let model = tiny.open();
        let prompt = tokens(20, tiny.vocabulary);
        let mut cpu = Generator::new(CpuBackend::new(1).unwrap(), &model, exact()).unwrap();
        let take =
            |all: Vec<Result<u32, BackendError>>| all.into_iter().map(Result::unwrap).collect::<Vec<_>>();
        let want = take(cpu.generate(&prompt, Sampling::greedy()).unwrap().take(12).collect());
        let mut gpu = on_gpu(fake, &model);
        let context = gpu.backend().context().clone();
        let mut text = gpu.generate(&prompt, Sampling::greedy()).unwrap();
        let first = take(text.by_ref().take(4).collect());
        let (before, allocations) = (context.transfers(), fake.controls.allocations());
        let rest = take(text.by_ref().take(8).collect());
        let after = context.transfers();
        assert_eq!([first, rest].concat(), want);
        // Steps take their tokens from where they were chosen.
        assert_eq!(after.uploaded, before.uploaded);
        assert_eq!(after.downloaded - before.downloaded, 4 * 8);
        assert_eq!(fake.controls.allocations(), allocations);
    });
}

/// A device that is lost in the middle of a text: an error that says so, from then on.
#[test]
fn a_lost_device() {
    let fake = fake(&[]);
    let tiny = Tiny::new("llama", Some(QuantFormat::Q8_0));
    let model = tiny.open();
    let mut gpu = on_gpu(&fake, &model);
    let mut text = gpu.generate(&tokens(10, tiny.vocabulary), Sampling::greedy()).unwrap();
    for _ in 0..3 {
        text.next().unwrap().unwrap();
    }
    fake.controls.set("wait", 719);
    let lost = text.next().unwrap().unwrap_err();
    assert!(matches!(&lost, BackendError::Lost(why) if why.contains("the queue has failed")), "{lost:?}");
    assert!(text.next().is_none());
    drop(text);
    drop(gpu);
    assert_eq!(fake.controls.allocations(), 0);
}
