//! Detection of this machine's capabilities with the operating system's help, once per process.

use std::any::Any;
use std::sync::OnceLock;

use gllm_kernels_core::{bf16, f16, Caps, ElementType, Kernels, Operand};

/// What kernels may use: all that [`detected`] finds, or what [`restrict`] has left of it.
pub fn caps() -> Caps {
    *USED.get_or_init(detected)
}

/// What [`caps`] yields from its first use on.
static USED: OnceLock<Caps> = OnceLock::new();

/// Makes [`caps`] yield these, and [`kernels`] and everything that uses it choose accordingly: for tests, and to measure what an older CPU would
/// do.
///
/// # Errors
/// The capabilities that are in use already, if these differ: kernels are chosen once per process.
pub fn restrict(to: Caps) -> Result<(), Caps> {
    match *USED.get_or_init(|| to) {
        used if used == to => Ok(()),
        used => Err(used),
    }
}

/// What this machine has, found out once.
///
/// Adds to [`Caps::detect`] what only the operating system knows: on Linux x86-64 the permission to
/// use AMX tiles, which the first call asks for (the kernel grants it to the whole process: threads
/// that exist already and threads that start later); on aarch64 the optional instruction sets, and
/// on Linux the cache sizes.
pub fn detected() -> Caps {
    static CAPS: OnceLock<Caps> = OnceLock::new();
    *CAPS.get_or_init(|| machine::complete(Caps::detect()))
}

/// The best kernels for this machine, chosen once per storage type.
pub fn kernels<E: Operand>() -> Kernels<E> {
    macro_rules! once {
        ($t:ty) => {{
            static KERNELS: OnceLock<Kernels<$t>> = OnceLock::new();
            KERNELS.get_or_init(|| Kernels::with(caps())) as &dyn Any
        }};
    }
    let kept = match E::TYPE {
        ElementType::F32 => once!(f32),
        ElementType::F16 => once!(f16),
        ElementType::Bf16 => once!(bf16),
        ElementType::I8 => once!(i8),
        _ => return Kernels::with(caps()),
    };
    // The type is E's: the downcast is a comparison of constants.
    kept.downcast_ref().copied().unwrap_or_else(|| Kernels::with(caps()))
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod machine {
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    use gllm_kernels_core::{Caps, Features};

    pub(super) fn complete(caps: Caps) -> Caps {
        let amx = amx_of_cpu();
        if amx == Features::NONE || !ask_for_tiles() {
            return caps;
        }
        // SAFETY: CPUID reports them, and the kernel saves tile registers for every thread of the
        // process from now on.
        unsafe { caps.with_features(amx) }
    }

    /// Intel SDM volume 2A, CPUID leaf 7. Tiles alone compute nothing: without `amx-tile` there is no AMX.
    fn amx_of_cpu() -> Features {
        let mut amx = Features::NONE;
        if __cpuid(0).eax < 7 {
            return amx;
        }
        let leaf7 = __cpuid_count(7, 0);
        let has = |word: u32, bit: u32| word >> bit & 1 == 1;
        if !has(leaf7.edx, 24) {
            return amx;
        }
        let fp16 = leaf7.eax >= 1 && has(__cpuid_count(7, 1).eax, 21);
        let table = [
            (has(leaf7.edx, 22), Features::AMX_BF16),
            (has(leaf7.edx, 25), Features::AMX_INT8),
            (fp16, Features::AMX_FP16),
        ];
        for (there, feature) in table {
            if there {
                amx = amx | feature;
            }
        }
        amx
    }

    /// Asks Linux (5.16 and later) to save tile data for this process (Documentation/arch/x86/xstate.rst).
    fn ask_for_tiles() -> bool {
        const ARCH_GET_XCOMP_PERM: libc::c_long = 0x1022;
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_long = 18;
        let mut granted = 0u64;
        // SAFETY: the first call takes a number and changes only this process's permissions; the
        // second writes one u64. Kernels that know neither return an error.
        unsafe {
            libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0
                && libc::syscall(libc::SYS_arch_prctl, ARCH_GET_XCOMP_PERM, &raw mut granted) == 0
                && granted >> XFEATURE_XTILEDATA & 1 == 1
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    use std::arch::is_aarch64_feature_detected as has;

    use gllm_kernels_core::{Caps, Features};

    pub(super) fn complete(caps: Caps) -> Caps {
        let table = [
            (has!("neon"), Features::NEON),
            (has!("dotprod"), Features::DOTPROD),
            (has!("i8mm"), Features::I8MM),
            (has!("fp16"), Features::FP16),
            (has!("bf16"), Features::BF16),
            (has!("fhm"), Features::FHM),
        ];
        let mut features = Features::NONE;
        for (there, feature) in table {
            if there {
                features = features | feature;
            }
        }
        // SAFETY: the operating system says so, for every core that it schedules threads on.
        let caps = unsafe { caps.with_features(features) };
        #[cfg(target_os = "linux")]
        let caps = match super::sysfs::caches("/sys/devices/system/cpu/cpu0/cache") {
            Some(caches) => caps.with_caches(caches),
            None => caps,
        };
        caps
    }
}

#[cfg(not(any(all(target_arch = "x86_64", target_os = "linux"), target_arch = "aarch64")))]
mod machine {
    pub(super) fn complete(caps: gllm_kernels_core::Caps) -> gllm_kernels_core::Caps {
        caps
    }
}

/// Cache sizes as Linux tells them. x86-64 has CPUID; there this serves the tests.
#[cfg(all(target_os = "linux", any(target_arch = "aarch64", test)))]
mod sysfs {
    use std::fs;
    use std::path::Path;

    use gllm_kernels_core::CacheSizes;

    /// Reads `index*/{level,type,size,coherency_line_size}`; `None` if the kernel tells no data cache.
    pub(super) fn caches(dir: impl AsRef<Path>) -> Option<CacheSizes> {
        let mut found = CacheSizes { l1d: 0, l2: 0, l3: 0, line: 0 };
        for entry in fs::read_dir(dir).ok()?.flatten() {
            let text = |name| {
                let text: Option<String> = fs::read_to_string(entry.path().join(name)).ok();
                text.map(|t| t.trim().to_owned())
            };
            let (Some(level), Some(kind), Some(size)) = (text("level"), text("type"), text("size")) else {
                continue;
            };
            let Some(size) = bytes(&size).filter(|_| kind != "Instruction") else {
                continue;
            };
            match level.as_str() {
                "1" => found.l1d = size,
                "2" => found.l2 = size,
                "3" => found.l3 = size,
                _ => continue,
            }
            if let Some(line) = text("coherency_line_size").and_then(|l| l.parse().ok()) {
                found.line = line;
            }
        }
        (found.l1d != 0).then_some(found)
    }

    /// `48K`, `2M` or plain bytes.
    fn bytes(text: &str) -> Option<usize> {
        let (number, unit) = match text.strip_suffix(['K', 'M', 'G']) {
            Some(number) if text.ends_with('K') => (number, 1 << 10),
            Some(number) if text.ends_with('M') => (number, 1 << 20),
            Some(number) => (number, 1 << 30),
            None => (text, 1),
        };
        number.parse::<usize>().ok()?.checked_mul(unit)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn sizes_with_units() {
            assert_eq!(bytes("48K"), Some(48 << 10));
            assert_eq!(bytes("2M"), Some(2 << 20));
            assert_eq!(bytes("640"), Some(640));
            assert_eq!(bytes("x"), None);
            assert_eq!(bytes("99999999999999999999G"), None);
        }

        #[test]
        fn a_tree_of_files() {
            let dir = std::env::temp_dir().join(format!("gllm-caches-{}", std::process::id()));
            let caches_of = [("1", "Data", "64K"), ("1", "Instruction", "32K"), ("2", "Unified", "1M")];
            for (i, (level, kind, size)) in caches_of.iter().enumerate() {
                let index = dir.join(format!("index{i}"));
                fs::create_dir_all(&index).unwrap();
                for (name, text) in
                    [("level", level), ("type", kind), ("size", size), ("coherency_line_size", &"64")]
                {
                    fs::write(index.join(name), format!("{text}\n")).unwrap();
                }
            }
            let found = caches(&dir);
            fs::remove_dir_all(&dir).unwrap();
            assert_eq!(found, Some(CacheSizes { l1d: 64 << 10, l2: 1 << 20, l3: 0, line: 64 }));
            assert_eq!(caches(&dir), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost() {
        assert!(caps().features().contains(Caps::detect().features()));
        assert_eq!(caps(), caps());
    }

    #[test]
    fn what_is_in_use_stays() {
        let used = caps();
        assert_eq!(used, detected());
        assert_eq!(restrict(used), Ok(()));
        if let Ok(less) = used.restricted_to(gllm_kernels_core::IsaLevel::Scalar) {
            assert_eq!(restrict(less), if less == used { Ok(()) } else { Err(used) });
        }
        assert_eq!((caps(), kernels::<f32>().caps()), (used, used));
    }

    #[test]
    fn one_table_a_type() {
        assert_eq!(kernels::<f32>().level(), caps().level());
        assert_eq!(kernels::<f16>().level(), caps().level());
        assert_eq!(kernels::<bf16>().caps(), caps());
    }

    /// `ldtilecfg` and `tilezero` fault without the permission; here on a thread that existed before
    /// the request and on one that did not.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    #[test]
    fn tiles_work_on_every_thread() {
        use gllm_kernels_core::Features;
        use std::sync::mpsc::channel;

        fn use_tiles() {
            let mut config = [0u8; 64];
            config[0] = 1; // palette
            config[16] = 64; // bytes a row of tile 0
            config[48] = 16; // rows of tile 0
                             // SAFETY: only called with AMX features present; the configuration is valid for palette
                             // 1, and the tiles are released again.
            unsafe {
                std::arch::asm!("ldtilecfg [{0}]", "tilezero tmm0", "tilerelease",
                    in(reg) config.as_ptr(), options(nostack));
            }
        }
        let (go, wait) = channel::<bool>();
        let early = std::thread::spawn(move || {
            if wait.recv() == Ok(true) {
                use_tiles();
            }
        });
        let amx = Features::AMX_INT8.union(Features::AMX_BF16);
        let there = caps().features().intersection(amx) != Features::NONE;
        go.send(there).unwrap();
        early.join().unwrap();
        if there {
            std::thread::spawn(use_tiles).join().unwrap();
        }
    }
}
