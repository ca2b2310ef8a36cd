//! What this CPU has: instruction sets, features, caches.
//!
//! [`Caps`] values are proof: safe code obtains one only from detection or by taking things away,
//! so a kernel table chosen by a `Caps` never executes an instruction the CPU lacks.

use core::fmt;
use core::ops::BitOr;

#[cfg(target_arch = "x86_64")]
use spin::mutex::SpinMutex;

use crate::error::KernelError;

#[cfg(all(target_arch = "aarch64", target_os = "none"))]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

/// A set of CPU features beyond plain scalar code.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Features(u32);

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
        impl Features {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)*
            /// Every feature with its lower-case name, in bit order.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$name, $text)),*];
        }

        #[cfg(feature = "defmt")]
        impl defmt::Format for Features {
            fn format(&self, f: defmt::Formatter<'_>) {
                defmt::write!(f, "features");
                $(if self.contains(Self::$name) {
                    defmt::write!(f, " {=istr}", defmt::intern!($text));
                })*
            }
        }
    };
}

features! {
    /// x86-64: AVX2 with FMA and F16C.
    AVX2 = 0, "avx2";
    /// x86-64: AVX-512 F, BW, VL and DQ.
    AVX512 = 1, "avx512";
    /// x86-64: `vpdpbusd` on 512-bit registers.
    AVX512_VNNI = 2, "avx512_vnni";
    /// x86-64: `vdpbf16ps`.
    AVX512_BF16 = 3, "avx512_bf16";
    /// x86-64: half-precision arithmetic.
    AVX512_FP16 = 4, "avx512_fp16";
    /// x86-64: `vpdpbusd` on 256-bit registers without AVX-512.
    AVX_VNNI = 5, "avx_vnni";
    /// x86-64: int8 tiles, with the operating system's permission.
    AMX_INT8 = 6, "amx_int8";
    /// x86-64: bf16 tiles, with the operating system's permission.
    AMX_BF16 = 7, "amx_bf16";
    /// x86-64: f16 tiles, with the operating system's permission.
    AMX_FP16 = 8, "amx_fp16";
    /// aarch64: Advanced SIMD.
    NEON = 16, "neon";
    /// aarch64: `sdot`, `udot`.
    DOTPROD = 17, "dotprod";
    /// aarch64: `smmla`.
    I8MM = 18, "i8mm";
    /// aarch64: half-precision arithmetic.
    FP16 = 19, "fp16";
    /// aarch64: `bfdot`, `bfmmla`.
    BF16 = 20, "bf16";
    /// aarch64: `fmlal`.
    FHM = 21, "fhm";
}

impl Features {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The features that only count once the operating system has granted them.
    pub const AMX: Self = Self(Self::AMX_INT8.0 | Self::AMX_BF16.0 | Self::AMX_FP16.0);

    /// Whether every feature of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    /// Both sets together.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    /// What both sets have.
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
    /// This set without `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Features {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for &(bit, name) in Self::ALL {
            if self.contains(bit) {
                f.write_str(if first { "" } else { " " })?;
                f.write_str(name)?;
                first = false;
            }
        }
        f.write_str(if first { "none" } else { "" })
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Features({self})")
    }
}

/// The instruction-set levels that kernels are written for, worst first within an architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum IsaLevel {
    /// Portable Rust, on every target.
    Scalar,
    /// aarch64 Advanced SIMD.
    Neon,
    /// AVX2 + FMA + F16C.
    Avx2,
    /// AVX-512 F + BW + VL + DQ.
    Avx512,
}

impl IsaLevel {
    /// Every level, best first.
    pub const ALL: [Self; 4] = [Self::Avx512, Self::Avx2, Self::Neon, Self::Scalar];

    /// Lower-case name, as in kernel names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// The level with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|l| l.name() == name)
    }

    /// What a CPU must have to be at this level.
    pub const fn requires(self) -> Features {
        match self {
            Self::Scalar => Features::NONE,
            Self::Neon => Features::NEON,
            Self::Avx2 => Features::AVX2,
            Self::Avx512 => Features::AVX2.union(Features::AVX512),
        }
    }

    /// Elements of f32 that a register of its vectors holds.
    pub(crate) const fn lanes(self) -> usize {
        match self {
            Self::Scalar => 1,
            Self::Neon => 4,
            Self::Avx2 => 8,
            Self::Avx512 => 16,
        }
    }

    /// Every feature that code at this level may use.
    const fn allows(self) -> Features {
        match self {
            Self::Scalar => Features::NONE,
            Self::Neon => Features(0xffff_0000),
            Self::Avx2 => Features::AVX2.union(Features::AVX_VNNI),
            Self::Avx512 => Features(0x0000_ffff),
        }
    }
}

impl fmt::Display for IsaLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Data cache sizes in bytes, as one core sees them; 0 where a level does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CacheSizes {
    /// First level, data.
    pub l1d: usize,
    /// Second level.
    pub l2: usize,
    /// Third level, shared by all cores that share it.
    pub l3: usize,
    /// Line size.
    pub line: usize,
}

impl CacheSizes {
    /// Used where nothing can be found out: small enough to be right almost everywhere.
    pub const DEFAULT: Self = Self { l1d: 32 << 10, l2: 256 << 10, l3: 0, line: 64 };

    /// The last level's size.
    pub const fn last_level(self) -> usize {
        if self.l3 != 0 {
            self.l3
        } else {
            self.l2
        }
    }
}

/// How a core reads DRAM fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Prefetcher {
    /// In several 4 KiB pages at once: a stream ends with its page. Intel (Sapphire Rapids reads 4 to 8 pages
    /// side by side 1.4 times as fast as one after the other), and wherever nothing is known.
    PerPage,
    /// From the beginning to the end: streams cross pages, and several disturb each other. AMD (Zen 4 reads
    /// one page after the other 1.4 times as fast as 8 side by side).
    Sequential,
}

/// What kernels may use on this CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Caps {
    features: Features,
    caches: CacheSizes,
    prefetcher: Prefetcher,
}

/// Detection costs microseconds in a virtual machine (CPUID traps), so its result is kept. All cores of an x86-64
/// machine have the same instructions.
#[cfg(target_arch = "x86_64")]
static CACHE: SpinMutex<Option<Caps>> = SpinMutex::new(None);

impl Caps {
    /// Portable code only, default cache sizes.
    pub const SCALAR: Self =
        Self { features: Features::NONE, caches: CacheSizes::DEFAULT, prefetcher: Prefetcher::PerPage };

    /// What the architecture guarantees for every CPU that runs this binary.
    pub const BASELINE: Self = Self {
        features: if cfg!(target_feature = "neon") { Features::NEON } else { Features::NONE },
        ..Self::SCALAR
    };

    /// What every core of this machine has, as far as it can be found out anywhere and at any privilege level.
    ///
    /// - x86-64: CPUID and XGETBV; the result is kept, later calls only copy it. AMX is left out, as it needs the
    ///   operating system's permission.
    /// - aarch64: [`Caps::BASELINE`], that is NEON without dotprod and the like. Under an operating system that system
    ///   knows the rest; without one each core does, see [`Caps::of_this_core`].
    /// - Others: [`Caps::BASELINE`].
    ///
    /// With an operating system use `gllm_kernels_std::caps()`, which asks for what is left out here.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            // Whoever finds the lock taken (an interrupt handler, another core) detects for itself:
            // the answer is the same, and nobody ever waits.
            let Some(mut kept) = CACHE.try_lock() else {
                return x86_64::caps();
            };
            *kept.get_or_insert_with(x86_64::caps)
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self::BASELINE
    }

    /// What this core has; nothing is kept. On aarch64 without an operating system that is read from the ID registers,
    /// everywhere else it is [`Caps::detect`].
    ///
    /// # Safety
    /// On aarch64 without an operating system:
    ///
    /// - The core is at EL1 or above. At EL0 the registers trap; use [`Caps::BASELINE`] there, with what is known
    ///   about the machine by [`Caps::with_features`].
    /// - Kernels chosen by the result run on this core only, or on others that have the same features. Where cores
    ///   differ (big.LITTLE), call this on each, and choose kernels for each or by what all have:
    ///   [`Caps::common`].
    pub unsafe fn of_this_core() -> Self {
        #[cfg(all(target_arch = "aarch64", target_os = "none"))]
        // SAFETY: the caller's contract.
        return unsafe {
            Self { features: aarch64::features(), caches: aarch64::caches(), ..Self::BASELINE }
        };
        #[cfg(not(all(target_arch = "aarch64", target_os = "none")))]
        return Self::detect();
    }

    /// What this core and another one both have: kernels chosen by it run on both. Cache sizes are those of `self`.
    pub fn common(self, other: Self) -> Self {
        Self { features: self.features.intersection(other.features), ..self }
    }

    /// Only what `level` may use.
    ///
    /// # Errors
    /// `IsaUnavailable` if the CPU is not at that level.
    pub fn restricted_to(self, level: IsaLevel) -> Result<Self, KernelError> {
        if !self.features.contains(level.requires()) {
            return Err(self.lacks(level, level.requires()));
        }
        Ok(Self { features: self.features.intersection(level.allows()), ..self })
    }

    /// That something is missing of what kernels of a level require.
    pub(crate) fn lacks(self, want: IsaLevel, requires: Features) -> KernelError {
        let missing = requires.without(self.features);
        KernelError::IsaUnavailable { want, have: self.level(), missing }
    }

    /// Without some features. Levels that need them go too.
    pub fn without(self, features: Features) -> Self {
        Self { features: self.features.without(features), ..self }
    }

    /// With features that core cannot detect itself.
    ///
    /// # Safety
    /// The CPU must execute them on every thread that uses kernels chosen by the result, and the
    /// operating system must save their registers (AMX on Linux: `arch_prctl(ARCH_REQ_XCOMP_PERM)`).
    pub unsafe fn with_features(self, features: Features) -> Self {
        Self { features: self.features.union(features), ..self }
    }

    /// With other cache sizes: blocking follows them. Zero sizes are replaced by the defaults.
    pub fn with_caches(self, c: CacheSizes) -> Self {
        let d = CacheSizes::DEFAULT;
        let or = |v: usize, d: usize| if v == 0 { d } else { v };
        let caches =
            CacheSizes { l1d: or(c.l1d, d.l1d), l2: or(c.l2, d.l2), l3: c.l3, line: or(c.line, d.line) };
        Self { caches, ..self }
    }

    /// With another prefetcher: results may differ in their last bits, as sums are cut differently.
    pub fn with_prefetcher(self, prefetcher: Prefetcher) -> Self {
        Self { prefetcher, ..self }
    }

    /// How a core reads DRAM fastest.
    pub fn prefetcher(self) -> Prefetcher {
        self.prefetcher
    }

    /// The feature set.
    pub fn features(self) -> Features {
        self.features
    }

    /// The cache sizes.
    pub fn caches(self) -> CacheSizes {
        self.caches
    }

    /// The best level this set of features allows.
    pub fn level(self) -> IsaLevel {
        let mut best = IsaLevel::Scalar;
        for level in IsaLevel::ALL {
            if level > best && self.features.contains(level.requires()) {
                best = level;
            }
        }
        best
    }
}
