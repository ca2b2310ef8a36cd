//! The driver layer, on an emulated driver: every error, memory, queues, recordings, counters.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod cuda;
#[path = "cuda_driver/late.rs"]
mod late;

use std::path::Path;
use std::process::Command;

use cuda::Fake;
use gllm_kernels_std::core::{f16, KernelError, Precision, QuantFormat, RopePairing, RopeShape, Softmax};
use gllm_kernels_std::cuda::{
    Activations, Buffer, Capability, Context, CudaError, CudaVersion, Driver, Event, Norm, Ops, PinnedBuffer,
    QuantView, Stream, Transfers,
};

fn context(fake: &Fake) -> Context {
    Driver::open_at(&fake.path).unwrap().device(0).unwrap().context().unwrap()
}

/// Work runs as late as it can, and then at once.
fn in_both_modes(test: impl Fn(&Fake)) {
    for at_once in [0, 1] {
        test(&Fake::new(&[("at_once", at_once)]));
    }
}

fn code(error: &CudaError) -> (i32, &str) {
    match error {
        CudaError::Driver { why, .. } | CudaError::Launch { why, .. } => (why.code, &why.name),
        other => panic!("{other:?} has no code"),
    }
}

#[test]
fn no_driver() {
    let error = Driver::open_at(Path::new("/nonexistent/libcuda.so.1")).unwrap_err();
    assert!(matches!(&error, CudaError::NoDriver { library, .. } if library == "/nonexistent/libcuda.so.1"));
    assert!(error.to_string().contains("install NVIDIA's driver"), "{error}");
}

/// Where there is a driver this opens it, else it says that there is none; it never panics.
#[test]
fn the_systems_driver() {
    match Driver::open().and_then(|d| d.device(0)) {
        Ok(device) => assert!(device.memory() > 0),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

#[test]
fn no_such_function() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, library) = (folder.join("half.c"), folder.join("libhalf.so"));
    std::fs::write(&source, "int cuInit(unsigned f) { return f; }\n").unwrap();
    let gcc = Command::new("gcc").args(["-shared", "-fPIC"]).arg(&source).arg("-o").arg(&library).status();
    assert!(gcc.unwrap().success());
    let error = Driver::open_at(&library).unwrap_err();
    assert_eq!(error, CudaError::MissingFunction { name: "cuDriverGetVersion" });
}

#[test]
fn an_old_driver() {
    let fake = Fake::new(&[("driver_version", 11080)]);
    let error = Driver::open_at(&fake.path).unwrap_err();
    assert_eq!(
        error,
        CudaError::DriverTooOld { have: CudaVersion(11080), need: CudaVersion(12000), driver: 525 }
    );
    assert_eq!(
        error.to_string(),
        "the CUDA driver supports CUDA 11.8, the kernels need 12.0: install NVIDIA's driver 525 or later"
    );
    for version in [12000, 13010] {
        fake.controls.set("driver_version", version.into());
        assert_eq!(Driver::open_at(&fake.path).unwrap().version(), CudaVersion(version));
    }
}

#[test]
fn no_device() {
    let fake = Fake::new(&[("device_count", 0)]);
    let driver = Driver::open_at(&fake.path).unwrap();
    assert_eq!(driver.device_count(), Ok(0));
    assert_eq!(driver.device(0).unwrap_err(), CudaError::NoDevice);
    fake.controls.set("device_count", 2);
    assert_eq!(driver.device(2).unwrap_err(), CudaError::NoSuchDevice { index: 2, count: 2 });
    assert_eq!(
        driver.device(usize::MAX).unwrap_err(),
        CudaError::NoSuchDevice { index: usize::MAX, count: 2 }
    );
    assert_eq!(driver.device(1).unwrap().name(), "emulated GPU");
    fake.controls.set("init", 100);
    assert_eq!(Driver::open_at(&fake.path).unwrap_err(), CudaError::NoDevice);
    fake.controls.set("init", 999);
    assert_eq!(code(&Driver::open_at(&fake.path).unwrap_err()), (999, "CUDA_ERROR_UNKNOWN"));
}

#[test]
fn kernels_for_the_capability() {
    let fake = Fake::new(&[]);
    for (device, kernels) in
        [(80, 80), (86, 86), (87, 87), (88, 86), (89, 86), (90, 90), (100, 100), (103, 100), (121, 120)]
    {
        fake.controls.set("capability", device);
        assert_eq!(Ops::new(&context(&fake)).unwrap().capability(), Capability(kernels), "{device}");
    }
    for device in [35, 70, 72, 91, 130] {
        fake.controls.set("capability", device);
        let error = Ops::new(&context(&fake)).unwrap_err();
        let CudaError::NoKernels { capability, embedded } = &error else { panic!("{error:?}") };
        assert_eq!(*capability, Capability(device as u32));
        assert!(embedded.contains(&Capability(90)));
        assert!(error.to_string().contains("8.0, 8.6"), "{error}");
    }
}

/// The emulator is strict about asynchronous products: fences, barriers, waiting, where operands lie.
#[test]
fn mistakes_with_wgmma() {
    assert_eq!(Fake::new(&[]).controls.wgmma_mistakes(), 13);
}

/// Kernels that may start before those before them are done wait for these before they read what these write, and before they write; every thread does.
#[test]
fn mistakes_with_an_early_start() {
    for (mistake, code) in [(0, 0), (1, 719), (2, 719), (3, 719)] {
        assert_eq!(Fake::new(&[("strict", 1)]).controls.early(mistake), code, "{mistake}");
    }
}

#[test]
fn out_of_memory() {
    let fake = Fake::new(&[("memory", 1 << 20), ("host_memory", 1 << 16)]);
    let context = context(&fake);
    let kept = Buffer::<f32>::new(&context, 1 << 17).unwrap();
    let error = Buffer::<f32>::new(&context, 1 << 18).unwrap_err();
    assert_eq!(error, CudaError::OutOfMemory { asked: 1 << 20, free: Some(1 << 19) });
    assert_eq!(context.memory(), Ok((1 << 19, 1 << 20)));
    drop(kept);
    Buffer::<f32>::new(&context, 1 << 18).unwrap();
    let error = PinnedBuffer::<u8>::zeroed(&context, 1 << 17).unwrap_err();
    assert_eq!(error, CudaError::OutOfMemory { asked: 1 << 17, free: None });
    let error = Buffer::<u64>::new(&context, usize::MAX / 4).unwrap_err();
    assert_eq!(error, CudaError::Kernel(KernelError::SizeOverflow { what: "bytes of a buffer" }));
}

#[test]
fn failing_kernels_are_named() {
    let fake = Fake::new(&[]);
    let context = context(&fake);
    let (ops, stream) = (Ops::new(&context).unwrap(), Stream::new(&context).unwrap());
    let x = Buffer::from_slice(&stream, &[1.0f32; 100]).unwrap();
    let mut y = Buffer::<f32>::new(&context, 100).unwrap();

    fake.controls.set("load", 200);
    assert_eq!(code(&ops.silu(&stream, &x, &mut y).unwrap_err()), (200, "CUDA_ERROR_INVALID_IMAGE"));
    fake.controls.set("load", 2);
    assert!(matches!(ops.silu(&stream, &x, &mut y), Err(CudaError::OutOfMemory { .. })));
    fake.controls.set("load", 0);

    fake.controls.set("launch", 701);
    let error = ops.silu(&stream, &x, &mut y).unwrap_err();
    assert_eq!(error.to_string(), "kernel silu_f32 failed: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)");
    fake.controls.set("launch", 0);

    ops.silu(&stream, &x, &mut y).unwrap();
    fake.controls.set("wait", 700);
    let error = stream.wait().unwrap_err();
    assert_eq!(error.to_string(), "kernel silu_f32 failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    assert_eq!(code(&context.wait().unwrap_err()).0, 700);
    let error = y.to_vec(&stream).unwrap_err();
    assert!(matches!(error, CudaError::Launch { .. }), "{error:?}");
    // Not an error of kernels.
    fake.controls.set("wait", 999);
    assert!(matches!(stream.wait(), Err(CudaError::Driver { call: "cuStreamSynchronize", .. })));
    fake.controls.set("wait", 0);
    assert_eq!(
        code(&CudaError::Driver {
            call: "",
            why: gllm_kernels_std::cuda::DriverCode { code: 1, name: String::new() }
        })
        .0,
        1
    );
    stream.wait().unwrap();
}

#[test]
fn memory_and_counters() {
    in_both_modes(counted_memory);
}

fn counted_memory(fake: &Fake) {
    let context = context(fake);
    let stream = Stream::new(&context).unwrap();
    let data: Vec<u32> = (0..1000).collect();
    let mut pinned = PinnedBuffer::<u32>::zeroed(&context, 1000).unwrap();
    assert!(pinned.iter().all(|&x| x == 0));
    pinned.copy_from_slice(&data);

    let a = Buffer::from_slice(&stream, &pinned).unwrap();
    let mut b = Buffer::<u32>::new(&context, 500).unwrap();
    b.copy_from(&stream, a.range(250..750).unwrap()).unwrap();
    assert_eq!(b.to_vec(&stream).unwrap(), data[250..750]);
    assert_eq!(context.transfers(), Transfers { uploaded: 4000, downloaded: 2000 });
    a.download(&stream, &mut pinned).unwrap();
    assert_eq!(context.transfers().downloaded, 6000);
    b.fill_bytes(&stream, 1).unwrap();
    assert_eq!(b.to_vec(&stream).unwrap(), [0x0101_0101; 500]);

    assert_eq!(b.upload(&stream, &data), Err(CudaError::WrongSize { arg: "data", need: 500, got: 1000 }));
    assert_eq!(
        b.download(&stream, &mut [0; 3]),
        Err(CudaError::WrongSize { arg: "data", need: 500, got: 3 })
    );
    assert_eq!(b.copy_from(&stream, &a), Err(CudaError::WrongSize { arg: "from", need: 500, got: 1000 }));
    assert_eq!(a.range(0..1001).unwrap_err(), CudaError::WrongSize { arg: "buffer", need: 1001, got: 1000 });
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = a.range(7..3);
    assert!(matches!(reversed, Err(CudaError::WrongSize { .. })));

    let empty = Buffer::<f32>::from_slice(&stream, &[]).unwrap();
    assert!(empty.is_empty() && empty.view().is_empty() && empty.to_vec(&stream).unwrap().is_empty());
    drop((a, b, empty));
    assert_eq!(fake.controls.allocations(), 0);
}

/// Copies that go on while the host does: nobody has the memory before they have ended.
#[test]
fn copies_under_way() {
    in_both_modes(|fake| {
        let context = context(fake);
        let (ops, stream) = (Ops::new(&context).unwrap(), Stream::new(&context).unwrap());
        let mut pinned = PinnedBuffer::<f32>::zeroed(&context, 3).unwrap();
        pinned.copy_from_slice(&[1.0, -2.0, 3.0]);
        let mut x = Buffer::<f32>::new(&context, 3).unwrap();
        let mut y = Buffer::<f32>::new(&context, 3).unwrap();
        // Three pieces of work, and nobody has waited.
        let up = pinned.upload(&stream, &mut x.view_mut()).unwrap();
        ops.relu(&stream, &x, &mut y).unwrap();
        let down = PinnedBuffer::zeroed(&context, 3).unwrap().download(&stream, y.view()).unwrap();
        // What is copied to the GPU is read when its turn comes, so the buffer is there until then even if nobody has it.
        drop(up);
        x.fill_bytes(&stream, 0).unwrap();
        assert_eq!(*down.wait().unwrap(), [1.0, 0.0, 3.0]);
        assert_eq!(context.transfers(), Transfers { uploaded: 12, downloaded: 12 });
        assert_eq!(x.to_vec(&stream).unwrap(), [0.0; 3]);
        // Whether one has ended can be asked: work goes on between questions.
        let more = PinnedBuffer::zeroed(&context, 3).unwrap().download(&stream, y.view()).unwrap();
        while !more.ended().unwrap() {}
        drop(more);

        let short = PinnedBuffer::zeroed(&context, 2).unwrap().download(&stream, y.view());
        assert_eq!(short.unwrap_err(), CudaError::WrongSize { arg: "pinned", need: 3, got: 2 });
        let (spare, mut kept) = (PinnedBuffer::zeroed(&context, 3).unwrap(), None);
        let recorded = stream.capture(|| {
            kept = Some(spare.download(&stream, y.view()).unwrap_err());
            Ok(())
        });
        assert!(recorded.is_ok());
        assert_eq!(kept, Some(CudaError::Recording));
        let (other, empty) = (self::context(&Fake::new(&[])), Buffer::<f32>::new(&context, 0).unwrap());
        let foreign = PinnedBuffer::zeroed(&other, 3).unwrap().download(&stream, y.view());
        assert_eq!(foreign.unwrap_err(), CudaError::OtherContext);
        let nothing = PinnedBuffer::zeroed(&context, 0).unwrap().download(&stream, empty.view()).unwrap();
        assert!(nothing.wait().unwrap().is_empty());
        // A device that is lost: whoever waits is told, and the memory that something may still write stays.
        let lost = PinnedBuffer::zeroed(&context, 3).unwrap().download(&stream, y.view()).unwrap();
        fake.controls.set("wait", 719);
        assert_eq!(code(&lost.wait().unwrap_err()).0, 719);
    });
}

#[test]
fn contexts_do_not_mix() {
    let (one, two) = (Fake::new(&[]), Fake::new(&[]));
    let (one, two) = (context(&one), context(&two));
    let (s1, s2) = (Stream::new(&one).unwrap(), Stream::new(&two).unwrap());
    let x = Buffer::from_slice(&s1, &[1.0f32; 8]).unwrap();
    let mut y = Buffer::<f32>::new(&two, 8).unwrap();
    let other = Err(CudaError::OtherContext);
    assert_eq!(y.copy_from(&s2, &x), other);
    assert_eq!(y.upload(&s1, &[0.0; 8]), other);
    assert_eq!(y.download(&s1, &mut [0.0; 8]), other);
    assert_eq!(y.fill_bytes(&s1, 0), other);
    assert_eq!(s1.wait_for(&Event::new(&two).unwrap()), other);
    let ops = Ops::new(&two).unwrap();
    assert_eq!(ops.silu(&s2, &x, &mut y), other);
    let z = Buffer::<f32>::new(&two, 8).unwrap();
    assert_eq!(ops.silu(&s1, &z, &mut y), other);
}

#[test]
fn recordings() {
    in_both_modes(recorded_work);
}

fn recorded_work(fake: &Fake) {
    let context = context(fake);
    let (ops, stream) = (Ops::new(&context).unwrap(), Stream::new(&context).unwrap());
    let mut x = Buffer::from_slice(&stream, &[1.0f32, -2.0, 3.0]).unwrap();
    let mut y = Buffer::from_slice(&stream, &[0.0f32; 3]).unwrap();
    let mut z = Buffer::from_slice(&stream, &[0.0f32; 3]).unwrap();
    // The first launch of a kernel would load it.
    let error = stream.capture(|| ops.relu(&stream, &x, &mut z)).unwrap_err();
    assert_eq!(code(&error).0, 900);
    ops.load().unwrap();
    let graph = stream.capture(|| {
        ops.vec_scale(&stream, 2.0, &x, &mut y)?;
        z.copy_from(&stream, &y)?;
        ops.relu(&stream, &z, &mut y)
    });
    let mut graph = graph.unwrap();
    assert_eq!(y.to_vec(&stream).unwrap(), [0.0; 3], "nothing ran while it was recorded");
    // SAFETY: the buffers exist.
    unsafe { graph.launch(&stream) }.unwrap();
    assert_eq!(y.to_vec(&stream).unwrap(), [2.0, 0.0, 6.0]);
    x.upload(&stream, &[5.0, 6.0, -7.0]).unwrap();
    // SAFETY: the buffers exist.
    unsafe { graph.launch(&stream) }.unwrap();
    assert_eq!(y.to_vec(&stream).unwrap(), [10.0, 12.0, 0.0]);

    // What waits cannot be recorded, and a recording that fails ends.
    let error = stream.capture(|| stream.wait()).unwrap_err();
    assert_eq!(code(&error).0, 900);
    stream.wait().unwrap();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = stream.capture(|| panic!("of its own"));
    }));
    assert!(panic.is_err());
    stream.wait().unwrap();

    let (a, b) = (Event::new(&context).unwrap(), Event::new(&context).unwrap());
    a.record(&stream).unwrap();
    b.record(&stream).unwrap();
    stream.wait_for(&b).unwrap();
    b.wait().unwrap();
    assert!(b.reached().unwrap() && b.ms_since(&a).unwrap() >= 0.0);
}

#[test]
fn contexts_of_one_device_are_equal() {
    let fake = Fake::new(&[("device_count", 2)]);
    let (driver, again) = (Driver::open_at(&fake.path).unwrap(), Driver::open_at(&fake.path).unwrap());
    let one = driver.device(0).unwrap().context().unwrap();
    let same = again.device(0).unwrap().context().unwrap();
    let other = driver.device(1).unwrap().context().unwrap();
    assert_eq!(one, same);
    assert_ne!(one, other);
    // What was made in one can be used in the other.
    let (ops, stream) = (Ops::new(&one).unwrap(), Stream::new(&same).unwrap());
    let x = Buffer::from_slice(&stream, &[1.0f32, -2.0]).unwrap();
    let mut y = Buffer::new(&one, 2).unwrap();
    ops.relu(&stream, &x, &mut y).unwrap();
    assert_eq!(y.to_vec(&stream).unwrap(), [1.0, 0.0]);
    assert_eq!((same.transfers().uploaded, one.transfers().downloaded), (8, 8));
}

/// A library that has a context of its own on this thread finds it there afterwards.
#[test]
fn the_callers_context_stays() {
    let fake = Fake::new(&[("device_count", 2)]);
    let nobodys = fake.controls.current_context();
    assert!(nobodys.is_null());
    let context = context(&fake);
    let (ops, stream) = (Ops::new(&context).unwrap(), Stream::new(&context).unwrap());
    let x = Buffer::from_slice(&stream, &[1.0f32, -2.0]).unwrap();
    assert_eq!(fake.controls.current_context(), nobodys);

    fake.controls.push_context(1);
    let callers = fake.controls.current_context();
    assert!(!callers.is_null());
    let mut y = Buffer::new(&context, 2).unwrap();
    ops.relu(&stream, &x, &mut y).unwrap();
    let graph = stream.capture(|| ops.relu(&stream, &x, &mut y)).unwrap();
    assert!(Buffer::<f32>::new(&context, 1 << 40).is_err());
    assert_eq!(y.to_vec(&stream).unwrap(), [1.0, 0.0]);
    drop((graph, x, y, ops, stream));
    assert_eq!(fake.controls.current_context(), callers);
}

/// Kernels read the whole piece that the last byte lies in: it belongs to the buffer.
#[test]
fn buffers_end_on_whole_pieces() {
    let fake = Fake::new(&[("memory", 64)]);
    let context = context(&fake);
    let left = || context.memory().unwrap().0;
    for (bytes, whole) in [(1, 16), (15, 16), (16, 16), (17, 32), (48, 48), (63, 64)] {
        let buffer = Buffer::<u8>::new(&context, bytes).unwrap();
        assert_eq!((buffer.len(), 64 - left()), (bytes, whole));
    }
    let error = Buffer::<u8>::new(&context, 65).unwrap_err();
    assert_eq!(error, CudaError::OutOfMemory { asked: 65, free: Some(64) });
    // A row of 34 bytes is read in three pieces, and in words that begin before it.
    fake.controls.set("memory", 1 << 20);
    let (ops, stream) = (Ops::new(&context).unwrap(), Stream::new(&context).unwrap());
    let row = Buffer::from_slice(&stream, &[[0u8, 60].as_slice(), &[2; 32]].concat()).unwrap();
    let w = QuantView::new(&row, QuantFormat::Q8_0, 1, 32).unwrap();
    let mut room = Activations::new(&context, Precision::Exact, 1, 32).unwrap();
    ops.prepare(&stream, &Buffer::from_slice(&stream, &[1.0f32; 32]).unwrap(), 32, &mut room).unwrap();
    let mut y = Buffer::<f32>::new(&context, 1).unwrap();
    ops.qgemv(&stream, w, &room, &mut y).unwrap();
    assert_eq!(y.to_vec(&stream).unwrap(), [64.0]);
    let mut z = Buffer::<f32>::new(&context, 32).unwrap();
    ops.dequant(&stream, w, &mut z).unwrap();
    assert_eq!(z.to_vec(&stream).unwrap(), [2.0; 32]);
}

/// Several results in one buffer, or one in a part of it.
#[test]
fn results_in_parts_of_buffers() {
    in_both_modes(parts_of_buffers);
}

fn parts_of_buffers(fake: &Fake) {
    let context = context(fake);
    let (ops, stream) = (Ops::new(&context).unwrap(), Stream::new(&context).unwrap());
    let data: Vec<f32> = (0..16).map(|i| if i % 3 == 0 { -2.0 } else { 2.0 }).collect();
    let x = Buffer::from_slice(&stream, &data).unwrap();
    let mut all = Buffer::from_slice(&stream, &[9.0f32; 56]).unwrap();
    // Not at a multiple of 16 bytes.
    let (first, rest) = all.view_mut().split_at(17).unwrap();
    let (mut second, rest) = rest.split_at(16).unwrap();
    let (mut third, mut fourth) = rest.split_at(16).unwrap();
    assert_eq!((first.len(), second.len(), third.len(), fourth.len()), (17, 16, 16, 7));
    ops.relu(&stream, &x, first.range(1..17).unwrap()).unwrap();
    let norm = Norm { weight: None, bias: None, eps: 0.0 };
    ops.rms_norm(&stream, 16, norm, &x, second.reborrow()).unwrap();
    ops.vec_add(&stream, second.view(), &x, third.reborrow()).unwrap();
    fourth.fill_bytes(&stream, 0).unwrap();
    assert_eq!(fourth.view().range(2..7).unwrap().to_vec(&stream).unwrap(), [0.0; 5]);
    fourth.upload(&stream, &data[..7]).unwrap();
    fourth.range(5..7).unwrap().copy_from(&stream, x.range(1..3).unwrap()).unwrap();
    let signs = || data.iter().map(|x| x.signum());
    let want: Vec<f32> = [9.0]
        .into_iter()
        .chain(data.iter().map(|x| x.max(0.0)))
        .chain(signs())
        .chain(signs().map(|s| s * 3.0))
        .chain([-2.0, 2.0, 2.0, -2.0, 2.0, 2.0, 2.0])
        .collect();
    let got = all.to_vec(&stream).unwrap();
    assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 1e-6), "{got:?} instead of {want:?}");

    let beyond = CudaError::WrongSize { arg: "buffer", need: 57, got: 56 };
    assert_eq!(all.view_mut().split_at(57).unwrap_err(), beyond);
    assert_eq!(all.range_mut(50..57).unwrap_err(), beyond);
    assert_eq!(all.view().range(57..57).unwrap_err(), beyond);
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = all.range_mut(7..3);
    assert!(matches!(reversed, Err(CudaError::WrongSize { .. })));
    assert_eq!(
        ops.relu(&stream, &x, all.range_mut(0..15).unwrap()),
        Err(CudaError::WrongSize { arg: "x", need: 15, got: 16 })
    );
    // Tensor cores write two numbers at a time.
    let halves = Buffer::<f16>::new(&context, 64).unwrap();
    let y = all.range_mut(1..17).unwrap();
    let x = halves.range(0..32).unwrap();
    assert_eq!(ops.gemm(&stream, (4, 8), x, x, y), Err(CudaError::Misaligned { arg: "y", align: 16 }));
    let bytes = Buffer::<u8>::new(&context, 18).unwrap();
    let w = QuantView::new(&bytes, QuantFormat::Q4_0, 1, 32).unwrap();
    assert_eq!(
        ops.dequant(&stream, w, all.range_mut(2..34).unwrap()),
        Err(CudaError::Misaligned { arg: "y", align: 16 })
    );
}

/// What operators refuse, before anything is launched.
#[test]
fn wrong_sizes() {
    let fake = Fake::new(&[]);
    let context = context(&fake);
    let (ops, stream) = (Ops::new(&context).unwrap(), Stream::new(&context).unwrap());
    let buffer = |n: usize| Buffer::<f32>::new(&context, n).unwrap();
    let (x, mut y) = (buffer(64), buffer(63));
    let wrong = |arg, need, got| Err(CudaError::WrongSize { arg, need, got });
    assert_eq!(ops.silu(&stream, &x, &mut y), wrong("x", 63, 64));
    assert_eq!(ops.vec_add(&stream, x.range(0..63).unwrap(), &x, &mut y), wrong("z", 63, 64));
    let mut y = buffer(64);
    let norm = Norm { weight: Some(x.view()), bias: None, eps: 1e-5 };
    assert_eq!(ops.rms_norm(&stream, 32, norm, &x, &mut y), wrong("weight", 32, 64));
    assert!(matches!(
        ops.rms_norm(&stream, 48, norm, &x, &mut y),
        Err(CudaError::Kernel(KernelError::NotWhole { got: 64, len: 48, .. }))
    ));
    for eps in [-1.0, f32::NAN, f32::INFINITY] {
        let result = ops.layer_norm(&stream, 64, Norm { eps, ..norm }, &x, &mut y);
        assert!(matches!(result, Err(CudaError::Kernel(KernelError::BadParameter { arg: "eps", .. }))));
    }
    let biased = Norm { weight: None, bias: Some(x.view()), eps: 0.0 };
    assert!(matches!(ops.rms_norm(&stream, 64, biased, &x, &mut y), Err(CudaError::Kernel(_))));
    for softmax in [Softmax { scale: 0.0, valid: None }, Softmax { scale: 1.0, valid: Some(65) }] {
        assert!(matches!(ops.softmax(&stream, 64, softmax, &x, &mut y), Err(CudaError::Kernel(_))));
    }
    let shape = RopeShape { heads: 2, head_dim: 16, rot_dim: 15, pairing: RopePairing::Adjacent };
    let angles = (x.view(), x.view());
    assert!(matches!(ops.rope(&stream, shape, angles, None, &x, &mut y), Err(CudaError::Kernel(_))));
    let shape = RopeShape { rot_dim: 16, ..shape };
    let few = (x.range(0..8).unwrap(), x.range(0..8).unwrap());
    assert_eq!(ops.rope(&stream, shape, few, None, &x, &mut y), wrong("cos", 16, 8));
    let ids = Buffer::<u32>::new(&context, 3).unwrap();
    assert_eq!(ops.rope(&stream, shape, angles, Some(ids.view()), &x, &mut y), wrong("positions", 2, 3));
    assert_eq!(ops.embed(&stream, (&x, 16), ids.view(), &mut y), wrong("y", 48, 64));

    let bytes = Buffer::<u8>::new(&context, 18 * 8 + 16).unwrap();
    let weights = |n, format, rows, cols| QuantView::new(bytes.range(0..n).unwrap(), format, rows, cols);
    assert_eq!(weights(143, QuantFormat::Q4_0, 2, 128).unwrap_err(), wrong("bytes", 144, 143).unwrap_err());
    assert!(matches!(
        weights(144, QuantFormat::Q4_0, 2, 130),
        Err(CudaError::Kernel(KernelError::NotBlockMultiple { .. }))
    ));
    assert!(matches!(weights(144, QuantFormat::F16, 2, 36), Err(CudaError::Kernel(_))));
    let shifted = QuantView::new(bytes.range(4..148).unwrap(), QuantFormat::Q4_0, 2, 128);
    assert_eq!(shifted.unwrap_err(), CudaError::Misaligned { arg: "bytes", align: 16 });
    let w = weights(144, QuantFormat::Q4_0, 2, 128).unwrap();
    assert_eq!(ops.dequant(&stream, w, &mut y), wrong("y", 256, 64));
    let mut room = Activations::new(&context, Precision::Integer, 2, 64).unwrap();
    assert!(
        matches!(ops.qgemv(&stream, w, &room, &mut y), Err(CudaError::Kernel(_))),
        "nothing was prepared"
    );
    assert_eq!(ops.prepare(&stream, &buffer(192), 64, &mut room), wrong("activations", 192, 128));
    assert!(matches!(ops.prepare(&stream, &x, 63, &mut room), Err(CudaError::Kernel(_))));
    ops.prepare(&stream, &x, 64, &mut room).unwrap();
    assert!(matches!(
        ops.qgemv(&stream, w, &room, &mut y),
        Err(CudaError::Kernel(KernelError::DimMismatch { .. }))
    ));
}
