//! Builds the emulated driver: the kernels, compiled by a C++ compiler, behind the functions of the Driver API.

// Each of the test programs uses a part.
#![allow(dead_code)]

use std::ffi::{c_char, c_int, c_long, c_void, CString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::OnceLock;

use libloading::Library;

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda");
const KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cuda/kernels");
const TEMPORARY: &str = env!("CARGO_TARGET_TMPDIR");

/// Every order of operations as written, so that results do not depend on the compiler.
const FLAGS: &[&str] = &[
    "-std=c++17",
    "-O1",
    "-fPIC",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-pragmas",
];

fn run(command: &mut Command) {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&out.stderr));
}

fn files(folder: &str, kinds: &[&str]) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).expect(folder).map(|f| f.expect(folder).path());
    let mut found: Vec<_> =
        all.filter(|p| p.extension().is_some_and(|e| kinds.iter().any(|k| e == *k))).collect();
    found.sort();
    found
}

/// Path of the emulated driver; builds it if it is not there.
pub fn emulator() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut hash = DefaultHasher::new();
        FLAGS.hash(&mut hash);
        for file in [files(TESTS, &["cpp", "h"]), files(KERNELS, &["cu", "cuh"])].concat() {
            std::fs::read(file).expect("a source").hash(&mut hash);
        }
        let library = Path::new(TEMPORARY).join(format!("libcuda-emulated-{:016x}.so", hash.finish()));
        if library.exists() {
            return library;
        }
        let work = Path::new(TEMPORARY).join(format!("emulator-{}", std::process::id()));
        std::fs::create_dir_all(&work).expect("a folder for objects");
        let sources = [files(TESTS, &["cpp"]), files(KERNELS, &["cu"])].concat();
        let next = AtomicUsize::new(0);
        let object = |i: usize| work.join(format!("{i}.o"));
        std::thread::scope(|s| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                s.spawn(|| loop {
                    let i = next.fetch_add(1, Relaxed);
                    let Some(source) = sources.get(i) else { return };
                    let mut gcc = Command::new("g++");
                    gcc.args(FLAGS).args(["-I", TESTS, "-I", KERNELS, "-x", "c++", "-c"]);
                    run(gcc.arg(source).arg("-o").arg(object(i)));
                });
            }
        });
        let linked = work.join("linked.so");
        run(Command::new("g++").arg("-shared").args((0..sources.len()).map(object)).arg("-o").arg(&linked));
        std::fs::rename(&linked, &library).expect("the library to move");
        std::fs::remove_dir_all(&work).expect("the objects to go");
        library
    })
}

/// What the emulated driver has beside the Driver API.
pub struct Controls(Library);

impl Controls {
    pub fn of(path: &Path) -> Self {
        // SAFETY: the library was built from this repository.
        Self(unsafe { Library::new(path) }.expect("the emulated driver"))
    }

    /// Changes a setting.
    pub fn set(&self, key: &str, value: i64) {
        let key = CString::new(key).expect("a key");
        // SAFETY: the function has this type.
        unsafe {
            let set = self.0.get::<unsafe extern "C" fn(*const c_char, c_long) -> c_int>(b"emu_set\0");
            set.expect("emu_set")(key.as_ptr(), value as c_long);
        }
    }

    fn ask(&self, function: &str, name: &str) -> i32 {
        let name = CString::new(name).expect("a name");
        // SAFETY: the functions that take a name have this type.
        unsafe {
            let ask = self.0.get::<unsafe extern "C" fn(*const c_char) -> c_int>(function.as_bytes());
            ask.expect(function)(name.as_ptr())
        }
    }

    /// Bytes of a kernel's arguments, or -1.
    pub fn arguments(&self, kernel: &str) -> i32 {
        self.ask("emu_args", kernel)
    }

    /// Whether a kernel has run since the last question.
    pub fn launched(&self, kernel: &str) -> bool {
        self.ask("emu_launched", kernel) == 1
    }

    /// Allocations that exist.
    pub fn allocations(&self) -> i32 {
        self.ask("emu_allocations", "")
    }

    /// Files of kernels that are loaded.
    pub fn modules(&self) -> i32 {
        self.ask("emu_modules", "")
    }

    /// Makes the context of a device current on this thread, as another library does.
    pub fn push_context(&self, device: c_int) {
        let mut handle = null_mut();
        // SAFETY: the functions have these types, those of NVIDIA's `cuda.h`.
        let codes = unsafe {
            let retain = self
                .0
                .get::<unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int>(b"cuDevicePrimaryCtxRetain\0");
            let push = self.0.get::<unsafe extern "C" fn(*mut c_void) -> c_int>(b"cuCtxPushCurrent_v2\0");
            [
                retain.expect("cuDevicePrimaryCtxRetain")(&mut handle, device),
                push.expect("cuCtxPushCurrent_v2")(handle),
            ]
        };
        assert_eq!(codes, [0, 0]);
    }

    /// The context that is current on this thread, or null.
    pub fn current_context(&self) -> *mut c_void {
        let mut handle = null_mut();
        // SAFETY: the function has this type.
        let code = unsafe {
            let current = self.0.get::<unsafe extern "C" fn(*mut *mut c_void) -> c_int>(b"cuCtxGetCurrent\0");
            current.expect("cuCtxGetCurrent")(&mut handle)
        };
        assert_eq!(code, 0);
        handle
    }
}

/// A copy of the emulated driver, with settings of its own.
pub struct Fake {
    pub path: PathBuf,
    pub controls: Controls,
}

impl Fake {
    pub fn new(settings: &[(&str, i64)]) -> Self {
        static COPIES: AtomicUsize = AtomicUsize::new(0);
        let name = format!("fake-{}-{}.so", std::process::id(), COPIES.fetch_add(1, Relaxed));
        let path = Path::new(TEMPORARY).join(name);
        std::fs::copy(emulator(), &path).expect("a copy of the emulated driver");
        let controls = Controls::of(&path);
        for &(key, value) in settings {
            controls.set(key, value);
        }
        Self { path, controls }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
