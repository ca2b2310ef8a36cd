//! Loops of independent multiply-adds: the arithmetic limit of an instruction set.

use gllm_kernels_core::{Caps, Features, IsaLevel};

/// One arithmetic limit.
#[derive(Clone, Copy, Debug)]
pub struct Peak {
    /// What it is called in reports.
    pub name: &'static str,
    /// The instruction that is counted.
    pub instruction: &'static str,
    /// The level of kernels that may use it.
    pub level: IsaLevel,
    /// What the CPU must have.
    pub requires: Features,
    /// Operations (a multiply-add is two) per round.
    pub ops: f64,
    /// Whether integers are counted: the unit is then Gop/s, not GFLOP/s.
    pub integer: bool,
    /// Runs so many rounds.
    pub rounds: unsafe fn(u64),
}

impl Peak {
    /// Every peak this machine reaches.
    pub fn available(caps: Caps) -> impl Iterator<Item = &'static Self> {
        arch::PEAKS.iter().filter(move |p| caps.features().contains(p.requires))
    }

    /// The f32 peak that binds kernels of `level`.
    pub fn f32(level: IsaLevel) -> &'static Self {
        arch::PEAKS.iter().find(|p| p.level == level).unwrap_or(&arch::PEAKS[0])
    }

    /// The int8 peak that binds the kernels of `caps`: of those a level has, the last is the highest. Portable
    /// code is measured by its f32.
    pub fn int8(caps: Caps) -> &'static Self {
        let own = |p: &&Self| p.integer && p.level == caps.level();
        Self::available(caps).filter(own).last().unwrap_or(Self::f32(caps.level()))
    }
}

/// Accumulators per round: enough to cover latency times throughput everywhere.
const CHAINS: f64 = 12.0;

#[cfg(target_arch = "x86_64")]
mod arch {
    use super::*;
    use std::arch::asm;

    /// `op acc, a, b` on twelve accumulators.
    macro_rules! twelve {
        ($op:literal, $r:literal) => {
            concat!(
                twelve!(@ $op, $r, "0"), twelve!(@ $op, $r, "1"), twelve!(@ $op, $r, "2"), twelve!(@ $op, $r, "3"),
                twelve!(@ $op, $r, "4"), twelve!(@ $op, $r, "5"), twelve!(@ $op, $r, "6"), twelve!(@ $op, $r, "7"),
                twelve!(@ $op, $r, "8"), twelve!(@ $op, $r, "9"), twelve!(@ $op, $r, "10"), twelve!(@ $op, $r, "11"),
            )
        };
        (@ $op:literal, $r:literal, $n:literal) => {
            concat!($op, " ", $r, $n, ", ", $r, "14, ", $r, "15\n")
        };
    }

    /// Six multiplications of 16-bit pairs, six additions.
    macro_rules! six {
        ($r:literal) => {
            concat!(
                six!(@$r, "0", "6"), six!(@$r, "1", "7"), six!(@$r, "2", "8"),
                six!(@$r, "3", "9"), six!(@$r, "4", "10"), six!(@$r, "5", "11"),
            )
        };
        (@$r:literal, $n:literal, $t:literal) => {
            concat!(
                "vpmaddwd ", $r, $t, ", ", $r, "14, ", $r, "15\n",
                "vpaddd ", $r, $n, ", ", $r, $n, ", ", $r, $t, "\n",
            )
        };
    }

    macro_rules! vector_peaks {
        ($($name:ident: $round:expr;)*) => {$(
            /// # Safety
            /// The CPU has the instruction.
            unsafe fn $name(rounds: u64) {
                // SAFETY: registers only, all declared; zero operands, so nothing is slow or traps.
                unsafe {
                    asm!(
                        "vzeroall", "2:", $round, "dec {n}", "jnz 2b", "vzeroupper",
                        n = inout(reg) rounds.max(1) => _,
                        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                        out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                        out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                        options(nostack, nomem),
                    );
                }
            }
        )*};
    }
    vector_peaks! {
        fma_zmm: twelve!("vfmadd231ps", "zmm");
        fma_ymm: twelve!("vfmadd231ps", "ymm");
        half_zmm: twelve!("vfmadd231ph", "zmm");
        bf16_zmm: twelve!("vdpbf16ps", "zmm");
        widened_zmm: six!("zmm");
        widened_ymm: six!("ymm");
        vnni_zmm: twelve!("vpdpbusd", "zmm");
        vnni_ymm: twelve!("{{vex}} vpdpbusd", "ymm");
    }

    /// Six multiplies and six adds, the most that code without FMA gets from 128-bit registers.
    unsafe fn mul_add_xmm(rounds: u64) {
        // SAFETY: registers only, all declared.
        unsafe {
            asm!(
                "xorps xmm0, xmm0", "xorps xmm1, xmm1", "xorps xmm2, xmm2", "xorps xmm3, xmm3",
                "xorps xmm4, xmm4", "xorps xmm5, xmm5", "xorps xmm6, xmm6", "xorps xmm7, xmm7",
                "xorps xmm8, xmm8", "xorps xmm9, xmm9", "xorps xmm10, xmm10", "xorps xmm11, xmm11",
                "xorps xmm15, xmm15",
                "2:",
                "mulps xmm0, xmm15", "addps xmm6, xmm15", "mulps xmm1, xmm15", "addps xmm7, xmm15",
                "mulps xmm2, xmm15", "addps xmm8, xmm15", "mulps xmm3, xmm15", "addps xmm9, xmm15",
                "mulps xmm4, xmm15", "addps xmm10, xmm15", "mulps xmm5, xmm15", "addps xmm11, xmm15",
                "dec {n}", "jnz 2b",
                n = inout(reg) rounds.max(1) => _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm15") _,
                options(nostack, nomem),
            );
        }
    }

    /// `TILECFG` for eight full tiles: palette 1, 64 bytes a row, 16 rows.
    #[repr(C, align(64))]
    struct TileConfig([u8; 64]);
    const FULL_TILES: TileConfig = {
        let mut c = [0; 64];
        c[0] = 1;
        let mut t = 0;
        while t < 8 {
            c[16 + 2 * t] = 64;
            c[48 + t] = 16;
            t += 1;
        }
        TileConfig(c)
    };

    macro_rules! tile_peaks {
        ($($name:ident: $op:literal;)*) => {$(
            /// # Safety
            /// The CPU has the instruction and the operating system has granted tiles.
            unsafe fn $name(rounds: u64) {
                // SAFETY: reads the configuration; the tiles are declared and released again.
                unsafe {
                    asm!(
                        "ldtilecfg [{config}]",
                        "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                        "tilezero tmm4", "tilezero tmm5", "tilezero tmm6", "tilezero tmm7",
                        "2:",
                        concat!($op, " tmm0, tmm4, tmm6"), concat!($op, " tmm1, tmm4, tmm7"),
                        concat!($op, " tmm2, tmm5, tmm6"), concat!($op, " tmm3, tmm5, tmm7"),
                        "dec {n}", "jnz 2b",
                        "tilerelease",
                        config = in(reg) &FULL_TILES,
                        n = inout(reg) rounds.max(1) => _,
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                        out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                        options(nostack, readonly),
                    );
                }
            }
        )*};
    }
    tile_peaks! {
        tile_int8: "tdpbssd";
        tile_bf16: "tdpbf16ps";
    }

    /// The first row of a level is its f32 peak.
    pub(super) static PEAKS: &[Peak] = &[
        Peak {
            name: "f32, SSE2",
            instruction: "mulps + addps",
            level: IsaLevel::Scalar,
            requires: Features::NONE,
            ops: CHAINS * 4.0,
            integer: false,
            rounds: mul_add_xmm,
        },
        Peak {
            name: "f32, AVX2",
            instruction: "vfmadd231ps ymm",
            level: IsaLevel::Avx2,
            requires: Features::AVX2,
            ops: CHAINS * 16.0,
            integer: false,
            rounds: fma_ymm,
        },
        Peak {
            name: "f32, AVX-512",
            instruction: "vfmadd231ps zmm",
            level: IsaLevel::Avx512,
            requires: Features::AVX512,
            ops: CHAINS * 32.0,
            integer: false,
            rounds: fma_zmm,
        },
        Peak {
            name: "f16, AVX-512 FP16",
            instruction: "vfmadd231ph zmm",
            level: IsaLevel::Avx512,
            requires: Features::AVX512_FP16,
            ops: CHAINS * 64.0,
            integer: false,
            rounds: half_zmm,
        },
        Peak {
            name: "bf16, AVX-512 BF16",
            instruction: "vdpbf16ps zmm",
            level: IsaLevel::Avx512,
            requires: Features::AVX512_BF16,
            ops: CHAINS * 64.0,
            integer: false,
            rounds: bf16_zmm,
        },
        Peak {
            name: "int8, AVX2",
            instruction: "vpmaddwd + vpaddd ymm",
            level: IsaLevel::Avx2,
            requires: Features::AVX2,
            ops: CHAINS * 16.0,
            integer: true,
            rounds: widened_ymm,
        },
        Peak {
            name: "int8, AVX-512",
            instruction: "vpmaddwd + vpaddd zmm",
            level: IsaLevel::Avx512,
            requires: Features::AVX512,
            ops: CHAINS * 32.0,
            integer: true,
            rounds: widened_zmm,
        },
        Peak {
            name: "int8, AVX-VNNI",
            instruction: "vpdpbusd ymm",
            level: IsaLevel::Avx2,
            requires: Features::AVX_VNNI,
            ops: CHAINS * 64.0,
            integer: true,
            rounds: vnni_ymm,
        },
        Peak {
            name: "int8, AVX-512 VNNI",
            instruction: "vpdpbusd zmm",
            level: IsaLevel::Avx512,
            requires: Features::AVX512_VNNI,
            ops: CHAINS * 128.0,
            integer: true,
            rounds: vnni_zmm,
        },
        Peak {
            name: "bf16, AMX",
            instruction: "tdpbf16ps",
            level: IsaLevel::Avx512,
            requires: Features::AMX_BF16,
            ops: 4.0 * 2.0 * 16.0 * 16.0 * 32.0,
            integer: false,
            rounds: tile_bf16,
        },
        Peak {
            name: "int8, AMX",
            instruction: "tdpbssd",
            level: IsaLevel::Avx512,
            requires: Features::AMX_INT8,
            ops: 4.0 * 2.0 * 16.0 * 16.0 * 64.0,
            integer: true,
            rounds: tile_int8,
        },
    ];
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use super::*;
    use std::arch::asm;

    /// `op acc, a, b` on twelve accumulators.
    macro_rules! twelve {
        ($op:literal, $d:literal, $s:literal) => {
            concat!(
                twelve!(@ $op, $d, $s, "0"), twelve!(@ $op, $d, $s, "1"), twelve!(@ $op, $d, $s, "2"),
                twelve!(@ $op, $d, $s, "3"), twelve!(@ $op, $d, $s, "4"), twelve!(@ $op, $d, $s, "5"),
                twelve!(@ $op, $d, $s, "6"), twelve!(@ $op, $d, $s, "7"), twelve!(@ $op, $d, $s, "16"),
                twelve!(@ $op, $d, $s, "17"), twelve!(@ $op, $d, $s, "18"), twelve!(@ $op, $d, $s, "19"),
            )
        };
        (@ $op:literal, $d:literal, $s:literal, $n:literal) => {
            concat!($op, " v", $n, $d, ", v30", $s, ", v31", $s, "\n")
        };
    }

    macro_rules! peaks {
        ($($name:ident: $feature:literal, $op:literal $d:literal $s:literal;)*) => {$(
            /// # Safety
            /// The CPU has the instruction.
            #[target_feature(enable = $feature)]
            unsafe fn $name(rounds: u64) {
                // SAFETY: registers only, all declared. Zero operands keep the accumulators finite.
                unsafe {
                    asm!(
                        "movi v30.2d, #0", "movi v31.2d, #0",
                        "2:", twelve!($op, $d, $s), "subs {n}, {n}, #1", "b.ne 2b",
                        n = inout(reg) rounds.max(1) => _,
                        out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _,
                        out("v6") _, out("v7") _, out("v16") _, out("v17") _, out("v18") _, out("v19") _,
                        out("v30") _, out("v31") _,
                        options(nostack, nomem),
                    );
                }
            }
        )*};
    }
    peaks! {
        fmla: "neon", "fmla" ".4s" ".4s";
        half: "fp16", "fmla" ".8h" ".8h";
        bfdot: "bf16", "bfdot" ".4s" ".8h";
        bfmmla: "bf16", "bfmmla" ".4s" ".8h";
        sdot: "dotprod", "sdot" ".4s" ".16b";
        smmla: "i8mm", "smmla" ".4s" ".16b";
    }

    macro_rules! table {
        ($($text:literal $instruction:literal $level:ident $feature:ident $ops:literal $integer:literal $f:ident;)*) => {
            &[$(Peak {
                name: $text,
                instruction: $instruction,
                level: IsaLevel::$level,
                requires: Features::$feature,
                ops: CHAINS * $ops,
                integer: $integer,
                rounds: $f,
            }),*]
        };
    }

    /// The first row of a level is its f32 peak. Portable code is compiled for NEON too.
    pub(super) static PEAKS: &[Peak] = table! {
        "f32, portable" "fmla 4s" Scalar NEON 8.0 false fmla;
        "f32, NEON" "fmla 4s" Neon NEON 8.0 false fmla;
        "f16, NEON FP16" "fmla 8h" Neon FP16 16.0 false half;
        "bf16, NEON BF16" "bfdot" Neon BF16 16.0 false bfdot;
        "bf16, NEON BF16 matrix" "bfmmla" Neon BF16 32.0 false bfmmla;
        "int8, NEON DotProd" "sdot" Neon DOTPROD 32.0 true sdot;
        "int8, NEON I8MM" "smmla" Neon I8MM 64.0 true smmla;
    };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod arch {
    use super::*;

    fn portable(rounds: u64) {
        let mut acc = [0f32; CHAINS as usize];
        for _ in 0..rounds {
            for a in &mut acc {
                *a = *a * std::hint::black_box(0.5) + 1.0;
            }
        }
        std::hint::black_box(acc);
    }

    pub(super) static PEAKS: &[Peak] = &[Peak {
        name: "f32, portable",
        instruction: "multiply, add",
        level: IsaLevel::Scalar,
        requires: Features::NONE,
        ops: CHAINS * 2.0,
        integer: false,
        rounds: portable,
    }];
}
