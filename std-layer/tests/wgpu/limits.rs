//! What is refused, what is split, and what happens where memory or the device is lost.

use gllm_kernels_std::backend::{
    Backend, BackendError, CacheOptions, Outputs, Run, Topology, WgpuAdapter, WgpuBackend,
};
use gllm_kernels_std::model::{CacheError, Generator, Options, Sampling};

use super::tiny::Tiny;
use super::{backend, golden, greedy, options, tokens};

#[test]
fn what_does_not_fit_is_refused() {
    let Some(backend) = backend() else { return };
    let model = Tiny::new("llama", None).open();
    let mut g = Generator::new(backend, &model, Options { max_tokens: Some(128), ..options() }).unwrap();
    let a = g.create();
    let run = |tokens| Run { sequence: a, tokens, outputs: Outputs::Last };
    let refused = g.forward(&[1, 97], &Topology { runs: vec![run(2)] });
    assert!(matches!(refused, Err(BackendError::Tokens(_))), "{refused:?}");
    let full = g.extend(a, &tokens(200, 97), Outputs::Last).unwrap_err();
    assert!(matches!(full, BackendError::Cache(CacheError::Full { .. })), "{full:?}");
    // What was on the device before is still there.
    g.remove(a).unwrap();
    let a = g.create();
    assert!(g.extend(a, &tokens(100, 97), Outputs::Last).is_ok());
    // A cache larger than the device's buffers.
    let Some(backend) = super::backend() else { return };
    let huge = backend.alloc_kv_cache(1 << 40, model.config(), &CacheOptions::default()).unwrap_err();
    assert!(matches!(huge, BackendError::Limit { need, allowed, .. } if need > allowed), "{huge:?}");
    // More rows of logits than a buffer has room for a tile of.
    let wide = backend.upload_logits(&[0.0; 9], 1).and_then(|_| backend.upload_logits(&[0.0; 3], 2));
    assert!(matches!(wide, Err(BackendError::Tokens(_))), "{wide:?}");
}

/// States are for so many sequences as the cache was made for. Another one, and a fork that goes on beside what it was made of, is refused until one is dropped; and a
/// fork that has gone on has changed nothing for the other.
#[test]
fn states_run_out() {
    let Some(backend) = backend() else { return };
    let tiny = Tiny::new("qwen35", None);
    let model = tiny.open();
    let text = tokens(30, tiny.vocabulary);
    let cache = CacheOptions { sequences: 2, ..options().cache };
    let mut g = Generator::new(backend, &model, Options { cache, ..options() }).unwrap();
    let want = g.logits(&text).unwrap();
    let last = &want[want.len() - tiny.vocabulary..];
    let [a, b] = [g.create(), g.create()];
    g.extend(a, &text[..20], Outputs::None).unwrap();
    g.extend(b, &text[..3], Outputs::None).unwrap();
    let c = g.fork(a, 20).unwrap();
    for refused in [g.create(), c] {
        let full = g.extend(refused, &text[..2], Outputs::Last).unwrap_err();
        let one = CacheError::Full { group: 1, needed: 1, free: 0 };
        assert!(matches!(&full, BackendError::Cache(e) if *e == one), "{full:?}");
    }
    g.remove(b).unwrap();
    g.extend(c, &text[..9], Outputs::None).unwrap();
    let logits = g.extend(a, &text[20..], Outputs::Last).unwrap();
    for (got, want) in g.backend().read_logits(&logits).unwrap().iter().zip(last) {
        assert!((got - want).abs() <= 3e-4, "{got} instead of {want}");
    }
    // Only all of what a sequence has read can be shared.
    let gone = g.fork(a, 20).unwrap_err();
    let kept = CacheError::Forgotten { group: 1, position: 20 };
    assert!(matches!(&gone, BackendError::Cache(e) if *e == kept), "{gone:?}");
}

/// Where a buffer may be small, matrices and logits are split: products of a few rows that a split leaves over are summed in another
/// order, so results are the same within rounding. What cannot be split is refused with both numbers.
#[test]
fn small_buffers_are_enough() {
    let all = WgpuAdapter::all();
    let Some(adapter) = all.first() else { return drop(backend()) };
    small_buffers(adapter, Tiny { vocabulary: 400, ..Tiny::new("qwen2", None) }, 64 << 10);
    // Gates and up of six experts have 288 KiB, and the gates of 64 rows and their three experts 144 KiB.
    for name in ["qwen2moe", "gpt-oss"] {
        small_buffers(adapter, Tiny { vocabulary: 400, ..Tiny::new(name, None) }, 160 << 10);
    }
}

fn small_buffers(adapter: &WgpuAdapter, tiny: Tiny, bytes: u64) {
    let model = tiny.open();
    let tokens = tokens(70, tiny.vocabulary);
    let cache = CacheOptions { page_tokens: 16, ..options().cache };
    let options = Options { max_tokens: Some(80), chunk: Some(40), cache, ..options() };
    let logits = |bytes: u64| {
        let backend = WgpuBackend::with_largest(adapter, bytes)?;
        let mut g = Generator::new(backend, &model, options).map_err(|e| match e {
            gllm_kernels_std::model::GeneratorError::Backend(e) => e,
            e => panic!("{e}"),
        })?;
        g.logits(&tokens)
    };
    // What a step has room for without experts: 64 rows of 256 numbers of heads. The largest matrices have 100 KiB, and 40 rows of logits 64,000
    // bytes, but products fill tiles of 32 rows.
    let want = logits(u64::MAX).unwrap();
    let got = logits(bytes).unwrap();
    assert_eq!(got.len(), want.len());
    let largest = want.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    let off = got.iter().zip(&want).fold(0.0, |most: f32, (a, b)| most.max((a - b).abs()));
    assert!(off <= 4e-6 * largest, "with buffers of {bytes} bytes: off by {off} of {largest}");
    let refused = logits(4 << 10).unwrap_err();
    assert!(matches!(refused, BackendError::Limit { need, allowed: 4096, .. } if need > 4096), "{refused:?}");
}

/// A device that is lost gives errors, whatever is done; a new backend works.
#[test]
fn a_lost_device_is_an_error() {
    let Some(backend) = backend() else { return };
    let model = Tiny::new("llama", None).open();
    let mut g = Generator::new(backend, &model, options()).unwrap();
    let a = g.create();
    let logits = g.extend(a, &[1, 2, 3], Outputs::Last).unwrap();
    g.backend().destroy();
    let read = g.backend().read_logits(&logits).unwrap_err();
    assert!(matches!(read, BackendError::Lost(_)), "{read:?}");
    let step = g.extend(a, &[4], Outputs::Last).unwrap_err();
    assert!(matches!(step, BackendError::Lost(_)), "{step:?}");
    let cache = g.backend().alloc_kv_cache(64, model.config(), &CacheOptions::default()).unwrap_err();
    assert!(matches!(cache, BackendError::Lost(_)), "{cache:?}");
    let Some(backend) = super::backend() else { return };
    assert_eq!(greedy(backend, &model, &[1, 2, 3], 4).len(), 4);
}

/// Memory that runs out is an error with its numbers; what was had until then is free again, the backend goes on, and a new one can be made.
/// A limit on the memory of a process stands in for that of a GPU, as long as the adapter is software: it has a process of its own.
#[cfg(target_os = "linux")]
#[test]
fn memory_runs_out() {
    let Some(backend) = backend() else { return };
    if !backend.adapter().is_software() {
        return golden::say(format_args!("SKIPPED: memory of {} cannot be limited", backend.adapter()));
    }
    let test = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["limits::in_little_memory", "--exact", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = [test.stdout, test.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(test.status.success() && said.contains("1 passed"), "{}: {said}", test.status);
}

/// The most memory that this process may have, from now on: so much more than it has.
#[cfg(target_os = "linux")]
fn limit_memory(more: u64) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    // SAFETY: it takes a number and gives a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let has = pages.split(' ').next().unwrap().parse::<u64>().unwrap() * page;
    let limit = libc::rlimit { rlim_cur: has + more, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: it reads a structure that is there.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "it limits the memory of its process: `memory_runs_out` makes one for it"]
fn in_little_memory() {
    const MIB: usize = 1 << 20;
    let Some(backend) = backend() else { return };
    let model = Tiny { layers: 8, ..Tiny::new("llama", None) }.open();
    let mut g = Generator::new(backend, &model, options()).unwrap();
    let text = |g: &mut Generator<WgpuBackend>| -> Vec<u32> {
        g.generate(&[1, 2, 3], Sampling::greedy()).unwrap().take(8).map(Result::unwrap).collect()
    };
    let want = text(&mut g);
    // A token has 2 heads of 32 keys and values in f32: 512 bytes a layer. All caches together would take more than there is.
    limit_memory(512 << 20);
    let cache = |mib: usize| g.backend().alloc_kv_cache(mib * MIB / 512, model.config(), &options().cache);
    for _ in 0..4 {
        let error = cache(120).map(drop).unwrap_err();
        let BackendError::OutOfMemory { what, bytes } = &error else { panic!("{error:?}") };
        assert!(what.contains("keys and values") && *bytes >= 120 << 20, "{error}");
        assert!(error.to_string().contains(&bytes.to_string()), "{error}");
        drop(cache(40).unwrap());
    }
    assert_eq!(text(&mut g), want);
    drop(g);
    let mut g = Generator::new(super::backend().unwrap(), &model, options()).unwrap();
    assert_eq!(text(&mut g), want);
}
