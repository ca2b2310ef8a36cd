//! What this CPU has: instruction sets, features, caches.
//!
//! A [`Caps`] is a proof that its instructions may be executed. Safe code obtains one only from detection, or by taking
//! features away from another. So a kernel that was chosen by a `Caps` never executes an instruction that the CPU lacks.

use crate::error::KernelError;
pub use crate::level::{Features, IsaLevel};

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
    /// The sizes that are used where none can be found out: small enough to be right almost everywhere.
    pub const DEFAULT: Self = Self { l1d: 32 << 10, l2: 256 << 10, l3: 0, line: 64 };

    /// The last level's size.
    pub const fn last_level(self) -> usize {
        if self.l3 != 0 {
            self.l3
        } else {
            self.l2
        }
    }

    /// The bytes that one core can count on to find again in caches: four times L2, but no more than L3; L2 if there is no third
    /// level. The reported size of L3 alone is no measure: it is shared, and virtual machines report that of a whole processor
    /// (480 MiB for two cores).
    pub const fn share(self) -> usize {
        let share = self.l2.saturating_mul(4);
        if self.l3 > share {
            share
        } else if self.l3 > self.l2 {
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
    /// By reading several pages of 4 KiB at once, because the prefetcher's streams end with their page. This is so on
    /// Intel (Sapphire Rapids reads 4 to 8 pages side by side 1.4 times as fast as one after the other), and assumed
    /// where nothing is known.
    PerPage,
    /// By reading from the beginning to the end, because the prefetcher's streams cross pages, and several disturb each
    /// other. This is so on AMD (Zen 4 reads one page after the other 1.4 times as fast as 8 side by side).
    Sequential(Prefetches),
}

/// The software prefetches that suit a hardware prefetcher whose streams cross pages.
//
// Kernels in assembly compare these by their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Prefetches {
    /// Of all lines, into the second-level cache. On Zen 3 other caches make no difference; of older processors nothing is known.
    IntoL2,
    /// Of every fourth line, into the second-level cache: the hardware fetches those between them, and is hindered by more. Kernels for
    /// packed weights then prefetch no others, where a step of theirs takes few instructions for its bytes; those for weights in place
    /// prefetch nothing with one row of activations. This is so on Zen 4, which multiplies packed weights of 4 bits and more from memory
    /// with one row of activations up to 1.4 times as fast so, and up to 2.4 times with kernels of AVX2, and weights in place up to 1.6
    /// and 2.1 times. A Zen 5 takes up to 1.9 times as long so.
    Fourth,
    /// Of all lines, into the first-level cache, and one stream alone: norms, which other processors read faster by several pages of a row
    /// side by side, do not do so. This is so on Zen 5, which multiplies packed weights of 4 bits 1.2 times as fast from memory with
    /// such prefetches, and 1.4 times from L3, and which computes norms of rows of 16 KiB and more 1.5 to 2.2 times as fast.
    IntoL1,
}

impl Prefetcher {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::PerPage,
        Self::Sequential(Prefetches::IntoL2),
        Self::Sequential(Prefetches::Fourth),
        Self::Sequential(Prefetches::IntoL1),
    ];

    /// The software prefetches that suit it.
    pub(crate) fn prefetches(self) -> Prefetches {
        match self {
            Self::PerPage => Prefetches::IntoL2,
            Self::Sequential(prefetches) => prefetches,
        }
    }
}

/// The capabilities of a CPU: the features that kernels may use, and facts by which they choose sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Caps {
    pub(crate) features: Features,
    pub(crate) caches: CacheSizes,
    pub(crate) prefetcher: Prefetcher,
}

impl Caps {
    /// Portable code only, default cache sizes.
    pub const SCALAR: Self =
        Self { features: Features::NONE, caches: CacheSizes::DEFAULT, prefetcher: Prefetcher::PerPage };

    /// The capabilities that every CPU has on which this binary runs.
    pub const BASELINE: Self = Self {
        features: if cfg!(target_feature = "neon") { Features::NEON } else { Features::NONE },
        ..Self::SCALAR
    };

    /// The capabilities that this core and another one have in common, so that kernels chosen by them run on both. Cache sizes
    /// are those of `self`.
    pub fn common(self, other: Self) -> Self {
        Self { features: self.features.intersection(other.features), ..self }
    }

    /// Without everything that kernels of `level` may not use.
    ///
    /// # Errors
    /// `IsaUnavailable` if the CPU is not at that level.
    pub fn restricted_to(self, level: IsaLevel) -> Result<Self, KernelError> {
        if !self.features.contains(level.requires()) {
            return Err(self.lacks(level, level.requires()));
        }
        Ok(Self { features: self.features.intersection(level.allows()), ..self })
    }

    /// The error that says which of the features that kernels of a level require are missing.
    pub(crate) fn lacks(self, want: IsaLevel, requires: Features) -> KernelError {
        let missing = requires.without(self.features);
        KernelError::IsaUnavailable { want, have: self.level(), missing }
    }

    /// Without some features, and so without the levels that need them.
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
