//! Builds the emulated drivers: the kernels, compiled by a C++ compiler, behind the functions of CUDA's Driver API or of the HSA runtime.

// Each of the test programs uses a part.
#![allow(dead_code)]

use std::ffi::{c_char, c_int, c_long, c_void, CString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use libloading::Library;

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda");
const ROCM_TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda/rocm");
const HOPPER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda/hopper");
const GFX9: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda/rocm/gfx9");
const GFX10: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda/rocm/gfx10");
const GFX11: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda/rocm/gfx11");
const GFX12: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda/rocm/gfx12");
const KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cuda/kernels");
const ROCM_KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/rocm/kernels");
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
/// And what makes `fmaf` an instruction where there is one: its result is the library's.
fn flags() -> impl Iterator<Item = &'static str> {
    FLAGS.iter().copied().chain(std::arch::is_x86_feature_detected!("fma").then_some("-mfma"))
}

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

/// A driver that is emulated: folders of files, of which the first counts that has one of a name.
struct Emulated {
    name: &'static str,
    folders: &'static [&'static str],
}

const CUDA: Emulated = Emulated { name: "libcuda", folders: &[TESTS, HOPPER, KERNELS] };
/// Families of AMD's GPUs, by the number of one of their members, and folders with what their lanes hold.
const FAMILIES: [(i64, Emulated); 4] = [
    (0x90a, Emulated { name: "libhsa-gfx9", folders: &[TESTS, GFX9, ROCM_TESTS, ROCM_KERNELS, KERNELS] }),
    (0x1030, Emulated { name: "libhsa-gfx10", folders: &[TESTS, GFX10, ROCM_TESTS, ROCM_KERNELS, KERNELS] }),
    (0x1100, Emulated { name: "libhsa-gfx11", folders: &[TESTS, GFX11, ROCM_TESTS, ROCM_KERNELS, KERNELS] }),
    (0x1200, Emulated { name: "libhsa-gfx12", folders: &[TESTS, GFX12, ROCM_TESTS, ROCM_KERNELS, KERNELS] }),
];

impl Emulated {
    /// The sources that are compiled.
    fn sources(&self) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = Vec::new();
        for source in self.folders.iter().flat_map(|folder| files(folder, &["cpp", "cu"])) {
            if all.iter().all(|other| other.file_name() != source.file_name()) {
                all.push(source);
            }
        }
        all
    }

    /// What a source is compiled from: itself, and what it includes.
    fn hash_source(&self, source: &Path, seen: &mut Vec<PathBuf>, hash: &mut DefaultHasher) {
        if seen.iter().any(|path| path == source) {
            return;
        }
        seen.push(source.to_path_buf());
        let text = std::fs::read_to_string(source).expect("a source");
        text.hash(hash);
        for line in text.lines() {
            let Some(name) = line.trim().strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"'))
            else {
                continue;
            };
            let found = self.folders.iter().map(|folder| Path::new(folder).join(name)).find(|p| p.exists());
            self.hash_source(&found.expect(name), seen, hash);
        }
    }

    /// Path of the library; builds what of it is not there. Objects are kept, by what they are compiled from.
    fn build(&self) -> PathBuf {
        // One library after the other: they share objects.
        static BUILDING: Mutex<()> = Mutex::new(());
        let _one = BUILDING.lock();
        let sources = self.sources();
        let object = |source: &PathBuf| {
            let mut hash = DefaultHasher::new();
            flags().collect::<Vec<_>>().hash(&mut hash);
            self.hash_source(source, &mut Vec::new(), &mut hash);
            let name = source.file_stem().expect("a name").to_string_lossy().into_owned();
            Path::new(TEMPORARY).join(format!("emulated-{name}-{:016x}.o", hash.finish()))
        };
        let objects: Vec<PathBuf> = sources.iter().map(object).collect();
        let mut hash = DefaultHasher::new();
        objects.hash(&mut hash);
        let library = Path::new(TEMPORARY).join(format!("{}-emulated-{:016x}.so", self.name, hash.finish()));
        if library.exists() {
            return library;
        }
        let next = AtomicUsize::new(0);
        // Nobody sees a file before it is complete.
        let unfinished = |path: &Path| path.with_extension(format!("{}.unfinished", std::process::id()));
        std::thread::scope(|s| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                s.spawn(|| loop {
                    let i = next.fetch_add(1, Relaxed);
                    let Some((source, object)) = sources.get(i).zip(objects.get(i)) else { return };
                    if object.exists() {
                        continue;
                    }
                    let mut gcc = Command::new("g++");
                    gcc.args(flags()).args(self.folders.iter().flat_map(|folder| ["-I", folder]));
                    // From standard input: what it includes is looked for in the first folder first.
                    let text = std::fs::File::open(source).expect("a source");
                    run(gcc.args(["-x", "c++", "-c", "-"]).stdin(text).arg("-o").arg(unfinished(object)));
                    std::fs::rename(unfinished(object), object).expect("the object to move");
                });
            }
        });
        run(Command::new("g++").arg("-shared").args(&objects).arg("-o").arg(unfinished(&library)));
        std::fs::rename(unfinished(&library), &library).expect("the library to move");
        library
    }
}

/// Path of the emulated driver of CUDA's.
pub fn emulator() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| CUDA.build())
}

/// GPUs of AMD's for which there is an emulated runtime: the numbers of their names.
pub const GFX: [i64; 4] = [FAMILIES[0].0, FAMILIES[1].0, FAMILIES[2].0, FAMILIES[3].0];

/// Path of the emulated HSA runtime with this GPU.
pub fn rocm_emulator(gfx: i64) -> &'static Path {
    static BUILT: [OnceLock<PathBuf>; 4] = [const { OnceLock::new() }; 4];
    let of = GFX.iter().position(|&g| g == gfx).expect("a GPU that is emulated");
    BUILT[of].get_or_init(|| FAMILIES[of].1.build())
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

    /// How many `kernels` or `graphs`, which are recordings, have been started so far, recordings without their kernels; how many of the kernels may
    /// start before those before them are done (`early kernels`); or how many `graphs_done` have been done.
    pub fn count(&self, what: &str) -> i32 {
        self.ask("emu_count", what)
    }

    /// Files of kernels that are loaded.
    pub fn modules(&self) -> i32 {
        self.ask("emu_modules", "")
    }

    /// How many mistakes with `wgmma` the emulator has noticed, which a kernel makes one after the other; less than 0 if one was not noticed.
    pub fn wgmma_mistakes(&self) -> i32 {
        self.ask("emu_mistakes", "")
    }

    /// The result code of a kernel that starts before the one before it is done, and makes this mistake. With the setting `strict` each is noticed.
    pub fn early(&self, mistake: u32) -> i32 {
        self.ask("emu_early", &mistake.to_string())
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
        Self::of(emulator(), settings)
    }

    /// A copy of one of them.
    pub fn of(emulator: &Path, settings: &[(&str, i64)]) -> Self {
        static COPIES: AtomicUsize = AtomicUsize::new(0);
        let name = format!("fake-{}-{}.so", std::process::id(), COPIES.fetch_add(1, Relaxed));
        let path = Path::new(TEMPORARY).join(name);
        std::fs::copy(emulator, &path).expect("a copy of the emulated driver");
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
