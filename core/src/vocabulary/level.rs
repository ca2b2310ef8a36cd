//! Features of CPUs, and the levels that kernels are written for.

use core::fmt;
use core::ops::BitOr;

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
    /// The features that are in both sets.
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

    /// The features that a CPU must have to be at this level.
    pub const fn requires(self) -> Features {
        match self {
            Self::Scalar => Features::NONE,
            Self::Neon => Features::NEON,
            Self::Avx2 => Features::AVX2,
            Self::Avx512 => Features::AVX2.union(Features::AVX512),
        }
    }

    /// Numbers of type f32 in a vector register.
    pub const fn lanes(self) -> usize {
        match self {
            Self::Scalar => 1,
            Self::Neon => 4,
            Self::Avx2 => 8,
            Self::Avx512 => 16,
        }
    }

    /// Every feature that code at this level may use.
    pub(super) const fn allows(self) -> Features {
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
