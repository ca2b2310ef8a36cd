//! Loops of independent multiply-adds: the arithmetic limit of an instruction set.

use std::sync::OnceLock;

use gllm_kernels_core::{bf16, f16, Caps, Features};

/// What is multiplied. Sums are f32, those of int8 i32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// f32.
    F32,
    /// f16.
    F16,
    /// bf16.
    Bf16,
    /// int8.
    Int8,
    /// f16 with sums in f16: what instructions offer, and no operator uses.
    F16Sums,
}

impl Arithmetic {
    /// Those that operators use.
    pub const OF_PRODUCTS: [Self; 4] = [Self::F32, Self::F16, Self::Bf16, Self::Int8];

    /// What is multiplied, as reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 | Self::F16Sums => "f16",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        }
    }

    /// `GFLOP/s`, of integers `Gop/s`.
    pub fn unit(self) -> &'static str {
        if self == Self::Int8 {
            "Gop/s"
        } else {
            "GFLOP/s"
        }
    }
}

/// One arithmetic limit.
#[derive(Clone, Copy, Debug)]
pub struct Peak {
    /// What it is called in reports.
    pub name: &'static str,
    /// The instruction that is counted.
    pub instruction: &'static str,
    /// What it multiplies.
    pub multiplies: Arithmetic,
    /// What the CPU must have.
    requires: Features,
    /// Operations (a multiply-add is two) per round.
    pub ops: f64,
    /// Runs so many rounds on these operands.
    rounds: unsafe fn(u64, &Operands),
}

/// Rounds after which accumulators begin anew: sums of f16 stay finite, and those of f32 are not yet so large that
/// adding a product changes nothing.
const FRESH: u64 = 1 << 14;

impl Peak {
    /// Every peak this machine reaches.
    pub fn available(caps: Caps) -> impl Iterator<Item = &'static Self> {
        arch::PEAKS.iter().filter(move |p| caps.features().contains(p.requires))
    }

    /// Those that products of a type may reach: its own, and those of f32, which it can be converted to.
    pub fn of_products(of: Arithmetic, caps: Caps) -> impl Iterator<Item = &'static Self> {
        Self::available(caps).filter(move |p| [of, Arithmetic::F32].contains(&p.multiplies))
    }

    /// Runs so many rounds.
    ///
    /// # Safety
    /// The CPU has what the peak requires: it is one of [`Self::available`].
    pub unsafe fn run(&self, rounds: u64) {
        let operands = Operands::of(self.multiplies);
        let mut left = rounds;
        while left > 0 {
            let now = left.min(FRESH);
            // SAFETY: the caller's contract.
            unsafe { (self.rounds)(now, operands) };
            left -= now;
        }
    }
}

/// Random numbers, four tiles of them. The data decides how much power an instruction takes and with that the clock:
/// zeros are multiplied up to 1.25 times as fast as random numbers (AMX on Granite Rapids).
#[repr(C, align(64))]
struct Operands([u8; 4096]);

impl Operands {
    /// Numbers from -1 to 1, of int8 all that there are.
    fn of(arithmetic: Arithmetic) -> &'static Self {
        static ALL: [OnceLock<Operands>; 4] = [const { OnceLock::new() }; 4];
        let (kept, bytes): (_, fn(i32) -> [u8; 4]) = match arithmetic {
            Arithmetic::F32 => (&ALL[0], |x| (x as f32 / 2f32.powi(31)).to_ne_bytes()),
            Arithmetic::F16 | Arithmetic::F16Sums => (&ALL[1], |x| {
                let half = |x: i16| f16::from_f32(f32::from(x) / 32768.0).to_ne_bytes();
                pair(half(x as i16), half((x >> 16) as i16))
            }),
            Arithmetic::Bf16 => (&ALL[2], |x| {
                let half = |x: i16| bf16::from_f32(f32::from(x) / 32768.0).to_ne_bytes();
                pair(half(x as i16), half((x >> 16) as i16))
            }),
            Arithmetic::Int8 => (&ALL[3], i32::to_ne_bytes),
        };
        kept.get_or_init(|| {
            let mut state = 1u64;
            let mut all = Self([0; 4096]);
            for four in all.0.chunks_exact_mut(4) {
                // Knuth's MMIX generator; the upper bits are the good ones.
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                four.copy_from_slice(&bytes((state >> 32) as i32));
            }
            all
        })
    }
}

fn pair([a, b]: [u8; 2], [c, d]: [u8; 2]) -> [u8; 4] {
    [a, b, c, d]
}

const fn peak(
    name: &'static str,
    instruction: &'static str,
    multiplies: Arithmetic,
    requires: Features,
    ops: f64,
    rounds: unsafe fn(u64, &Operands),
) -> Peak {
    Peak { name, instruction, multiplies, requires, ops, rounds }
}

/// Accumulators per round: enough to cover latency times throughput everywhere.
const CHAINS: f64 = 12.0;

#[cfg(target_arch = "x86_64")]
mod arch {
    use super::Arithmetic::{Bf16, F16Sums, Int8, F16, F32};
    use super::*;
    use std::arch::asm;

    /// `op acc, a, b` on twelve accumulators. Neighbours have other operands: so their bits change.
    macro_rules! twelve {
        ($op:literal, $r:literal) => {
            concat!(
                twelve!(@ $op, $r, "0", "12", "14"), twelve!(@ $op, $r, "1", "13", "15"),
                twelve!(@ $op, $r, "2", "12", "15"), twelve!(@ $op, $r, "3", "13", "14"),
                twelve!(@ $op, $r, "4", "12", "14"), twelve!(@ $op, $r, "5", "13", "15"),
                twelve!(@ $op, $r, "6", "12", "15"), twelve!(@ $op, $r, "7", "13", "14"),
                twelve!(@ $op, $r, "8", "12", "14"), twelve!(@ $op, $r, "9", "13", "15"),
                twelve!(@ $op, $r, "10", "12", "15"), twelve!(@ $op, $r, "11", "13", "14"),
            )
        };
        (@ $op:literal, $r:literal, $n:literal, $a:literal, $b:literal) => {
            concat!($op, " ", $r, $n, ", ", $r, $a, ", ", $r, $b, "\n")
        };
    }

    /// Six multiplications of 16-bit pairs, six additions.
    macro_rules! six {
        ($r:literal) => {
            concat!(
                six!(@$r, "0", "6", "12", "14"), six!(@$r, "1", "7", "13", "15"), six!(@$r, "2", "8", "12", "15"),
                six!(@$r, "3", "9", "13", "14"), six!(@$r, "4", "10", "12", "14"), six!(@$r, "5", "11", "13", "15"),
            )
        };
        (@$r:literal, $n:literal, $t:literal, $a:literal, $b:literal) => {
            concat!(
                "vpmaddwd ", $r, $t, ", ", $r, $a, ", ", $r, $b, "\n",
                "vpaddd ", $r, $n, ", ", $r, $n, ", ", $r, $t, "\n",
            )
        };
    }

    /// Four registers of operands.
    macro_rules! load {
        ($op:literal, $r:literal) => {
            concat!(
                $op,
                " ",
                $r,
                "12, [{data}]\n",
                $op,
                " ",
                $r,
                "13, [{data} + 64]\n",
                $op,
                " ",
                $r,
                "14, [{data} + 128]\n",
                $op,
                " ",
                $r,
                "15, [{data} + 192]\n",
            )
        };
    }

    macro_rules! vector_peaks {
        ($($name:ident: $load:expr, $round:expr;)*) => {$(
            /// # Safety
            /// The CPU has the instruction.
            unsafe fn $name(rounds: u64, data: &Operands) {
                // SAFETY: reads the operands; registers are all declared.
                unsafe {
                    asm!(
                        "vzeroall", $load, "2:", $round, "dec {n}", "jnz 2b", "vzeroupper",
                        n = inout(reg) rounds.max(1) => _,
                        data = in(reg) data,
                        out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                        out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                        out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                        options(nostack, readonly),
                    );
                }
            }
        )*};
    }
    vector_peaks! {
        fma_zmm: load!("vmovups", "zmm"), twelve!("vfmadd231ps", "zmm");
        fma_ymm: load!("vmovups", "ymm"), twelve!("vfmadd231ps", "ymm");
        half_zmm: load!("vmovups", "zmm"), twelve!("vfmadd231ph", "zmm");
        bf16_zmm: load!("vmovups", "zmm"), twelve!("vdpbf16ps", "zmm");
        widened_zmm: load!("vpmovsxbw", "zmm"), six!("zmm");
        widened_ymm: load!("vpmovsxbw", "ymm"), six!("ymm");
        vnni_zmm: load!("vmovups", "zmm"), twelve!("vpdpbusd", "zmm");
        vnni_ymm: load!("vmovups", "ymm"), twelve!("{{vex}} vpdpbusd", "ymm");
    }

    /// `copy, multiply, add`, six times.
    macro_rules! six_xmm {
        () => {
            concat!(
                six_xmm!(@ "0", "6", "12", "14"), six_xmm!(@ "1", "7", "13", "15"), six_xmm!(@ "2", "8", "12", "15"),
                six_xmm!(@ "3", "9", "13", "14"), six_xmm!(@ "4", "10", "12", "14"), six_xmm!(@ "5", "11", "13", "15"),
            )
        };
        (@ $n:literal, $t:literal, $a:literal, $b:literal) => {
            concat!(
                "movaps xmm", $t, ", xmm", $a, "\n", "mulps xmm", $t, ", xmm", $b, "\n",
                "addps xmm", $n, ", xmm", $t, "\n",
            )
        };
    }

    /// Six multiplies and six adds, the most that code without FMA gets from 128-bit registers.
    ///
    /// # Safety
    /// None of its instructions is missing on any x86-64.
    unsafe fn mul_add_xmm(rounds: u64, data: &Operands) {
        // SAFETY: reads the operands; registers are all declared.
        unsafe {
            asm!(
                "xorps xmm0, xmm0", "xorps xmm1, xmm1", "xorps xmm2, xmm2", "xorps xmm3, xmm3",
                "xorps xmm4, xmm4", "xorps xmm5, xmm5",
                load!("movups", "xmm"), "2:", six_xmm!(), "dec {n}", "jnz 2b",
                n = inout(reg) rounds.max(1) => _,
                data = in(reg) data,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nostack, readonly),
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
            unsafe fn $name(rounds: u64, data: &Operands) {
                // SAFETY: reads the configuration and the operands; the tiles are declared and released again.
                unsafe {
                    asm!(
                        "ldtilecfg [{config}]",
                        "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                        "tileloadd tmm4, [{data} + {row}]", "tileloadd tmm5, [{data} + {row} + 1024]",
                        "tileloadd tmm6, [{data} + {row} + 2048]", "tileloadd tmm7, [{data} + {row} + 3072]",
                        "2:",
                        concat!($op, " tmm0, tmm4, tmm6"), concat!($op, " tmm1, tmm4, tmm7"),
                        concat!($op, " tmm2, tmm5, tmm6"), concat!($op, " tmm3, tmm5, tmm7"),
                        "dec {n}", "jnz 2b",
                        "tilerelease",
                        config = in(reg) &FULL_TILES,
                        data = in(reg) data,
                        row = in(reg) 64usize,
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
        tile_fp16: "tdpfp16ps";
    }

    pub(super) static PEAKS: &[Peak] = &[
        peak("f32, SSE2", "mulps + addps", F32, Features::NONE, 6.0 * 8.0, mul_add_xmm),
        peak("f32, AVX2", "vfmadd231ps ymm", F32, Features::AVX2, CHAINS * 16.0, fma_ymm),
        peak("f32, AVX-512", "vfmadd231ps zmm", F32, Features::AVX512, CHAINS * 32.0, fma_zmm),
        peak(
            "f16 summed in f16, AVX-512 FP16",
            "vfmadd231ph zmm",
            F16Sums,
            Features::AVX512_FP16,
            CHAINS * 64.0,
            half_zmm,
        ),
        peak("f16, AMX", "tdpfp16ps", F16, Features::AMX_FP16, TILES * 32.0, tile_fp16),
        peak("bf16, AVX-512 BF16", "vdpbf16ps zmm", Bf16, Features::AVX512_BF16, CHAINS * 64.0, bf16_zmm),
        peak("bf16, AMX", "tdpbf16ps", Bf16, Features::AMX_BF16, TILES * 32.0, tile_bf16),
        peak("int8, AVX2", "vpmaddwd + vpaddd ymm", Int8, Features::AVX2, CHAINS * 16.0, widened_ymm),
        peak("int8, AVX-512", "vpmaddwd + vpaddd zmm", Int8, Features::AVX512, CHAINS * 32.0, widened_zmm),
        peak("int8, AVX-VNNI", "vpdpbusd ymm", Int8, Features::AVX_VNNI, CHAINS * 64.0, vnni_ymm),
        peak("int8, AVX-512 VNNI", "vpdpbusd zmm", Int8, Features::AVX512_VNNI, CHAINS * 128.0, vnni_zmm),
        peak("int8, AMX", "tdpbssd", Int8, Features::AMX_INT8, TILES * 64.0, tile_int8),
    ];

    /// Operations of four products of tiles for each element of a row of A.
    const TILES: f64 = 4.0 * 2.0 * 16.0 * 16.0;
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use super::Arithmetic::{Bf16, F16Sums, Int8, F32};
    use super::*;
    use std::arch::asm;

    /// `op acc, a, b` on twelve accumulators. Neighbours have other operands: so their bits change.
    macro_rules! twelve {
        ($op:literal, $d:literal, $s:literal) => {
            concat!(
                twelve!(@ $op, $d, $s, "0", "28", "30"), twelve!(@ $op, $d, $s, "1", "29", "31"),
                twelve!(@ $op, $d, $s, "2", "28", "31"), twelve!(@ $op, $d, $s, "3", "29", "30"),
                twelve!(@ $op, $d, $s, "4", "28", "30"), twelve!(@ $op, $d, $s, "5", "29", "31"),
                twelve!(@ $op, $d, $s, "6", "28", "31"), twelve!(@ $op, $d, $s, "7", "29", "30"),
                twelve!(@ $op, $d, $s, "16", "28", "30"), twelve!(@ $op, $d, $s, "17", "29", "31"),
                twelve!(@ $op, $d, $s, "18", "28", "31"), twelve!(@ $op, $d, $s, "19", "29", "30"),
            )
        };
        (@ $op:literal, $d:literal, $s:literal, $n:literal, $a:literal, $b:literal) => {
            concat!($op, " v", $n, $d, ", v", $a, $s, ", v", $b, $s, "\n")
        };
    }

    macro_rules! peaks {
        ($($name:ident: $feature:literal, $op:literal $d:literal $s:literal;)*) => {$(
            /// # Safety
            /// The CPU has the instruction.
            #[target_feature(enable = $feature)]
            unsafe fn $name(rounds: u64, data: &Operands) {
                // SAFETY: reads the operands; registers are all declared.
                unsafe {
                    asm!(
                        "ldp q28, q29, [{data}]", "ldp q30, q31, [{data}, #32]",
                        "movi v0.2d, #0", "movi v1.2d, #0", "movi v2.2d, #0", "movi v3.2d, #0",
                        "movi v4.2d, #0", "movi v5.2d, #0", "movi v6.2d, #0", "movi v7.2d, #0",
                        "movi v16.2d, #0", "movi v17.2d, #0", "movi v18.2d, #0", "movi v19.2d, #0",
                        "2:", twelve!($op, $d, $s), "subs {n}, {n}, #1", "b.ne 2b",
                        n = inout(reg) rounds.max(1) => _,
                        data = in(reg) data,
                        out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _,
                        out("v6") _, out("v7") _, out("v16") _, out("v17") _, out("v18") _, out("v19") _,
                        out("v28") _, out("v29") _, out("v30") _, out("v31") _,
                        options(nostack, readonly),
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

    /// Portable code is compiled for NEON too.
    pub(super) static PEAKS: &[Peak] = &[
        peak("f32, NEON", "fmla 4s", F32, Features::NONE, CHAINS * 8.0, fmla),
        peak("f16 summed in f16, NEON FP16", "fmla 8h", F16Sums, Features::FP16, CHAINS * 16.0, half),
        peak("bf16, NEON BF16", "bfdot", Bf16, Features::BF16, CHAINS * 16.0, bfdot),
        peak("bf16, NEON BF16 matrix", "bfmmla", Bf16, Features::BF16, CHAINS * 32.0, bfmmla),
        peak("int8, NEON DotProd", "sdot", Int8, Features::DOTPROD, CHAINS * 32.0, sdot),
        peak("int8, NEON I8MM", "smmla", Int8, Features::I8MM, CHAINS * 64.0, smmla),
    ];
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod arch {
    use super::*;

    fn portable(rounds: u64, _: &Operands) {
        let mut acc = [0f32; CHAINS as usize];
        for _ in 0..rounds {
            for a in &mut acc {
                *a = *a * std::hint::black_box(0.5) + 1.0;
            }
        }
        std::hint::black_box(acc);
    }

    pub(super) static PEAKS: &[Peak] =
        &[peak("f32, portable", "multiply, add", Arithmetic::F32, Features::NONE, CHAINS * 2.0, portable)];
}
