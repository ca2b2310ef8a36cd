//! Tiles and `vpdpbusd` do what the SDM says: emulated ones here, those of the CPU where it has them.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::arch::{asm, naked_asm};
use std::ffi::c_void;
use std::io::Write;
use std::ptr::null_mut;

use gllm_kernels_core::{bf16, f16, Features};
use gllm_testkit::data::Source;
use gllm_testkit::{amx, canary, caps, Edge, Guarded};

/// `bytes` a row, `rows`; of eight tiles.
fn config(shapes: [(u8, u8); 8]) -> [u8; 64] {
    let mut config = [0; 64];
    config[0] = 1;
    for (tile, (bytes, rows)) in shapes.into_iter().enumerate() {
        config[16 + 2 * tile] = bytes;
        config[48 + tile] = rows;
    }
    config
}

/// Whether this machine has the instructions. Says, past the test harness, whose.
fn there(feature: Features) -> bool {
    let there = caps().features().contains(feature);
    let how = match (there, amx::emulated().contains(feature)) {
        (false, _) => "not there, not tested",
        (_, true) => "emulated",
        (_, false) => "the CPU's",
    };
    // Nothing depends on the message.
    let _ = writeln!(std::io::stderr(), "{feature}: {how}");
    there
}

/// `C += A B` with tiles of `m x n`, `m x k` and `k x n` words of four bytes. Rows are flush against inaccessible
/// pages, in turns of `stride`.
macro_rules! multiply {
    ($name:ident, $instruction:literal) => {
        fn $name([m, n, k]: [usize; 3], c: &mut [u32], a: &[u32], b: &[u32]) {
            let shape = |rows: usize, words: usize| (4 * words as u8, rows as u8);
            let mut shapes = [(0, 0); 8];
            (shapes[1], shapes[6], shapes[3]) = (shape(m, n), shape(m, k), shape(k, n));
            let config = Guarded::copy_of(&config(shapes), Edge::End);
            let (a, b) = (Guarded::copy_of(a, Edge::End), Guarded::copy_of(b, Edge::Start));
            let mut to = Guarded::copy_of(c, Edge::End);
            let mut seen = Guarded::<u8>::poisoned(64, Edge::Start);
            // SAFETY: the machine has tiles; these are as large as the memory.
            unsafe {
                asm!(
                    "ldtilecfg [{config}]",
                    "sttilecfg [{seen}]",
                    "tileloadd tmm6, [{a} + 2*{k}]",
                    "tileloaddt1 tmm3, [{b} + {n}]",
                    "tileloadd tmm1, [{c} + {n}]",
                    concat!($instruction, " tmm1, tmm6, tmm3"),
                    // The start may be an offset from a register, and that one of the higher ones.
                    "lea r13, [{c} - 1000]",
                    "tilestored [r13 + {n} + 1000], tmm1",
                    "tilerelease",
                    config = in(reg) config.as_ptr(),
                    seen = in(reg) seen.as_mut_ptr(),
                    a = in(reg) a.as_ptr(),
                    b = in(reg) b.as_ptr(),
                    c = in(reg) to.as_mut_ptr(),
                    k = in(reg) 2 * k,
                    n = in(reg) 4 * n,
                    out("r13") _,
                    options(nostack),
                );
            }
            assert_eq!(seen[..], config[..]);
            assert!(to.intact());
            c.copy_from_slice(&to);
        }
    };
}
multiply! { tdpbf16ps, "tdpbf16ps" }
multiply! { tdpfp16ps, "tdpfp16ps" }
multiply! { tdpbssd, "tdpbssd" }

/// Rows, columns, words along the inner dimension.
const SHAPES: [[usize; 3]; 6] = [[16, 16, 16], [1, 1, 1], [16, 3, 7], [5, 16, 2], [3, 7, 16], [11, 13, 15]];

/// What is denormal is zero.
fn flush(x: f32) -> f32 {
    if x.is_subnormal() {
        0f32.copysign(x)
    } else {
        x
    }
}

/// Fused, to nearest, with denormals flushed before and after. Results at the border are avoided by the tests.
fn fma(x: f32, y: f32, z: f32) -> f32 {
    flush(flush(x).mul_add(flush(y), flush(z)))
}

/// A product of tiles: `m`, `n` and `k` in words; `C`, `A`, `B`.
type Multiply = fn([usize; 3], &mut [u32], &[u32], &[u32]);

/// Three loops: first and second elements of the pairs, each summed in order; then together; then with `C`.
fn floats(
    wide: fn(u16) -> f32,
    multiply: Multiply,
    mut draw: impl FnMut() -> u16,
    mut draw_sum: impl FnMut() -> f32,
) {
    for [m, n, k] in SHAPES {
        let mut words = |count: usize| -> Vec<u32> {
            (0..count).map(|_| u32::from(draw()) | u32::from(draw()) << 16).collect()
        };
        let (a, b) = (words(m * k), words(k * n));
        let before: Vec<f32> = (0..m * n).map(|_| draw_sum()).collect();
        let mut c: Vec<u32> = before.iter().map(|x| x.to_bits()).collect();
        multiply([m, n, k], &mut c, &a, &b);
        for i in 0..m {
            for j in 0..n {
                let mut sums = [0f32; 2];
                for p in 0..k {
                    for (half, sum) in sums.iter_mut().enumerate() {
                        let element = |word: u32| wide((word >> (16 * half)) as u16);
                        *sum = fma(element(a[i * k + p]), element(b[p * n + j]), *sum);
                    }
                }
                let want = flush(flush(before[i * n + j]) + flush(sums[0] + sums[1]));
                let got = f32::from_bits(c[i * n + j]);
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                assert!(same, "{m}x{n}x{k}: c[{i},{j}] = {got:e} instead of {want:e}");
            }
        }
    }
}

#[test]
fn bf16_tiles() {
    if !there(Features::AMX_BF16) {
        return;
    }
    let wide = |x| bf16::from_bits(x).to_f32();
    let (mut source, mut sums) = (Source::new(1), Source::new(2));
    floats(wide, tdpbf16ps, || bf16::from_f32(source.normal()).to_bits(), || sums.normal());
    // Denormal inputs are zeros, denormal sums become zeros: 2^-70 times 2^-70 is one.
    let values = [1e-39, -1e-39, 2f32.powi(-70), -(2f32.powi(-70)), 1.0, -3.0, 0.0];
    let mut draw = || bf16::from_f32(values[source.below(values.len())]).to_bits();
    floats(wide, tdpbf16ps, &mut draw, || [1e-40, 0.0, -1e-44, 1.0][sums.below(4)]);
    // One product, so that no sum hides it.
    let mut c = [1u32];
    tdpbf16ps([1, 1, 1], &mut c, &[0x3f80], &[0x0001]);
    assert_eq!(c, [0]);
    // Infinities and NaN.
    let values = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, 1.0, -2.0];
    let mut draw =
        || bf16::from_f32(values[if source.below(20) == 0 { source.below(6) } else { 5 }]).to_bits();
    floats(wide, tdpbf16ps, &mut draw, || sums.normal());
}

#[test]
fn f16_tiles() {
    if !there(Features::AMX_FP16) {
        return;
    }
    let wide = |x| f16::from_bits(x).to_f32();
    let (mut source, mut sums) = (Source::new(3), Source::new(4));
    floats(wide, tdpfp16ps, || f16::from_f32(source.normal()).to_bits(), || sums.normal());
    // Every finite f16, denormals among them, which count.
    let mut draw = || loop {
        let x = f16::from_bits(source.below(1 << 16) as u16);
        if x.is_finite() {
            return x.to_bits();
        }
    };
    floats(wide, tdpfp16ps, &mut draw, || sums.normal());
    let mut c = [0u32];
    tdpfp16ps([1, 1, 1], &mut c, &[0x3c00], &[0x0001]);
    assert_eq!(f32::from_bits(c[0]), 2f32.powi(-24));
}

#[test]
fn int8_tiles() {
    if !there(Features::AMX_INT8) {
        return;
    }
    let mut source = Source::new(5);
    for [m, n, k] in SHAPES {
        let mut words =
            |count: usize| -> Vec<u32> { (0..count).map(|_| source.below(1 << 32) as u32).collect() };
        let (a, b, before) = (words(m * k), words(k * n), words(m * n));
        let mut c = before.clone();
        tdpbssd([m, n, k], &mut c, &a, &b);
        for i in 0..m {
            for j in 0..n {
                let mut want = before[i * n + j] as i32;
                for p in 0..k {
                    for (x, y) in a[i * k + p].to_le_bytes().into_iter().zip(b[p * n + j].to_le_bytes()) {
                        want = want.wrapping_add(i32::from(x as i8) * i32::from(y as i8));
                    }
                }
                assert_eq!(c[i * n + j] as i32, want, "{m}x{n}x{k}: {i},{j}");
            }
        }
    }
}

/// Sets up tiles and leaves them.
#[unsafe(naked)]
unsafe extern "sysv64" fn leaves_tiles(_: *mut c_void) {
    naked_asm!(
        "ldtilecfg [rip + 2f]",
        "tilezero tmm0",
        "ret",
        ".p2align 6",
        "2:",
        ".byte 1",
        ".zero 15",
        ".word 64",
        ".zero 30",
        ".byte 16",
        ".zero 15"
    )
}

#[unsafe(naked)]
unsafe extern "sysv64" fn releases_tiles(_: *mut c_void) {
    naked_asm!("tilerelease", "ret")
}

#[test]
fn canaries_notice_tiles() {
    if !there(Features::AMX_INT8) {
        return;
    }
    // SAFETY: the functions ignore their argument, and there are tiles.
    let (left, released) =
        unsafe { (canary::raw(leaves_tiles, null_mut()), canary::raw(releases_tiles, null_mut())) };
    assert!(left.is_err_and(|what| what.contains("tiles")));
    assert_eq!(released, Ok(()));
    // A configuration with palette 0 releases tiles as well.
    let none = [0u8; 64];
    let mut seen = [1u8; 64];
    // SAFETY: the function ignores its argument, there are tiles, and a configuration has 64 bytes.
    unsafe {
        canary::raw(leaves_tiles, null_mut()).unwrap_err();
        asm!("ldtilecfg [{}]", "sttilecfg [{}]", in(reg) &none, in(reg) &mut seen, options(nostack));
    }
    assert_eq!(seen, none);
    assert!(!amx::in_use());
}

/// `vpdpbusd` and `vpdpwssd` by plain loops: every register, memory, sums that wrap, factors that would saturate 16 bits.
#[test]
fn dots_of_bytes_and_words() {
    if !there(Features::AVX_VNNI) {
        return;
    }
    let mut source = Source::new(7);
    let mut word = |extreme: bool| -> [u8; 4] {
        std::array::from_fn(|_| {
            if extreme {
                [0, 127, 128, 255][source.below(4)]
            } else {
                source.below(256) as u8
            }
        })
    };
    for round in 0..40 {
        let [a, b, before]: [[[u8; 4]; 8]; 3] =
            std::array::from_fn(|_| std::array::from_fn(|_| word(round % 2 == 0)));
        let mut sums = [before; 9];
        let (ten, advanced): (u64, u64);
        let left: u32;
        // SAFETY: the machine has the instruction.
        unsafe {
            asm!(
                "vmovups ymm3, [{a}]",
                "vmovups ymm12, [{b}]",
                "vmovups ymm0, [{sums}]",
                "vmovups ymm9, [{sums} + 32]",
                "vmovups ymm15, [{sums} + 64]",
                "vmovups ymm2, [{sums} + 96]",
                "vmovups ymm5, [{sums} + 128]",
                "vmovups ymm14, [{sums} + 160]",
                "vmovups ymm7, [{sums} + 192]",
                "vmovups ymm6, [{sums} + 224]",
                "vmovups ymm11, [{sums} + 256]",
                "{{vex}} vpdpbusd ymm0, ymm3, ymm12",
                "{{vex}} vpdpbusd ymm9, ymm3, ymm12",
                // What an emulator meets on its way.
                "vbroadcastss ymm8, [{a} + 8]",
                "vbroadcastss ymm1, [r12 + 4*r13 - 12]",
                "{{vex}} vpdpbusd ymm9, ymm8, ymm12",
                "{{vex}} vpdpbusd ymm2, ymm1, ymm12",
                "{{vex}} vpdpbusd ymm15, ymm12, ymm3",
                "vmovdqu ymm10, [{b}]",
                "vpsrld ymm4, ymm10, 4",
                "vpand ymm10, ymm4, [{a}]",
                "vpand ymm4, ymm10, ymm3",
                "{{vex}} vpdpbusd ymm0, ymm4, ymm12",
                "{{vex}} vpdpbusd ymm5, ymm12, [{a}]",
                "{{vex}} vpdpwssd ymm14, ymm3, ymm12",
                "{{vex}} vpdpwssd ymm7, ymm12, [r12 + 4*r13 - 40]",
                "vpslld ymm4, ymm12, 3",
                "vpor ymm4, ymm4, ymm3",
                "vpshufb ymm4, ymm12, ymm4",
                "{{vex}} vpdpbusd ymm6, ymm4, ymm12",
                // A loop of three rounds.
                "mov eax, 3",
                "mov r14, 64",
                "2:",
                "{{vex}} vpdpbusd ymm11, ymm3, ymm12",
                "vmovups ymm4, [{a}]",
                "prefetcht0 [r12 + 8*r13 + 1000]",
                "prefetcht0 [{a}]",
                "add r14, r13",
                "add r13, 1000",
                "add r13, -1000",
                "dec eax",
                "jnz 2b",
                "{{vex}} vpdpbusd ymm11, ymm4, ymm12",
                "vmovups [{sums}], ymm0",
                "vmovups [{sums} + 32], ymm9",
                "vmovups [{sums} + 64], ymm15",
                "vmovups [{sums} + 96], ymm2",
                "vmovups [{sums} + 128], ymm5",
                "vmovups [{sums} + 160], ymm14",
                "vmovups [{sums} + 192], ymm7",
                "vmovups [{sums} + 224], ymm6",
                "vmovups [{sums} + 256], ymm11",
                "vzeroupper",
                a = in(reg) a.as_ptr(),
                b = in(reg) b.as_ptr(),
                sums = in(reg) sums.as_mut_ptr(),
                in("r12") a.as_ptr(),
                inout("r13") 10u64 => ten,
                out("r14") advanced,
                out("eax") left,
                out("ymm0") _,
                out("ymm1") _,
                out("ymm2") _,
                out("ymm3") _,
                out("ymm4") _,
                out("ymm5") _,
                out("ymm6") _,
                out("ymm7") _,
                out("ymm8") _,
                out("ymm9") _,
                out("ymm10") _,
                out("ymm11") _,
                out("ymm12") _,
                out("ymm14") _,
                out("ymm15") _,
                options(nostack),
            );
        }
        assert_eq!((ten, advanced, left), (10, 64 + 30, 0));
        let dot = |unsigned: [u8; 4], signed: [u8; 4]| -> i32 {
            unsigned.iter().zip(signed).map(|(&x, y)| i32::from(x) * i32::from(y as i8)).sum()
        };
        let words = |x: [u8; 4]| [0, 2].map(|i| i32::from(i16::from_le_bytes([x[i], x[i + 1]])));
        for i in 0..8 {
            let (forth, back) = (dot(a[i], b[i]), dot(b[i], a[i]));
            let ([x0, x1], [y0, y1]) = (words(a[i]), words(b[i]));
            let pairs = (x0 * y0).wrapping_add(x1 * y1);
            let shifted = u32::from_le_bytes(b[i]) >> 4 & u32::from_le_bytes(a[i]);
            let shifted = dot(shifted.to_le_bytes(), b[i]);
            let which = (u32::from_le_bytes(b[i]) << 3 | u32::from_le_bytes(a[i])).to_le_bytes();
            // Within a half of the register.
            let table = b[i / 4 * 4..][..4].as_flattened();
            let shuffled = which.map(|at| if at < 0x80 { table[usize::from(at % 16)] } else { 0 });
            let shuffled = dot(shuffled, b[i]);
            let added = [
                forth + shifted,
                forth + dot(a[2], b[i]),
                back,
                dot(a[7], b[i]),
                back,
                pairs,
                pairs,
                shuffled,
                4 * forth,
            ];
            for (sums, added) in sums.iter().zip(added) {
                assert_eq!(i32::from_le_bytes(sums[i]), i32::from_le_bytes(before[i]).wrapping_add(added));
            }
        }
    }
}

/// What is not known, or not allowed, still ends the process.
#[test]
fn anything_else_is_illegal() {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    const KEY: &str = "GLLM_ILLEGAL";
    const OF_TILES: usize = 6;
    let Ok(case) = std::env::var(KEY) else {
        let own = std::env::current_exe().unwrap();
        let emulated = |feature, cases| if amx::emulated().contains(feature) { cases } else { 0..0 };
        let cases = emulated(Features::AMX, 0..OF_TILES);
        for case in cases.chain(emulated(Features::AVX_VNNI, OF_TILES..OF_TILES + 2)) {
            let name = "anything_else_is_illegal";
            let mut child = Command::new(&own);
            let status = child.args(["--exact", name]).env(KEY, case.to_string()).output().unwrap().status;
            assert_eq!(status.signal(), Some(libc::SIGILL), "case {case}");
        }
        return;
    };
    // What is emulated is in place.
    caps();
    let all = config([(64, 16); 8]);
    let (mut uneven, mut palette) =
        (config([(64, 16), (32, 16), (64, 16), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)]), all);
    palette[0] = 2;
    uneven[49] = 8;
    // SAFETY: none of these instructions gets executed.
    unsafe {
        match case.as_str() {
            "0" => asm!("ud2"),
            // Unsigned bytes: an instruction of AMX-INT8, but of no kernel.
            "1" => asm!("ldtilecfg [{}]", "tdpbuud tmm0, tmm1, tmm2", in(reg) &all),
            "2" => asm!("tilezero tmm0"),
            // `tdpbf16ps tmm0, tmm1, tmm0`
            "3" => asm!("ldtilecfg [{}]", ".byte 0xc4, 0xe2, 0x7a, 0x5c, 0xc1", in(reg) &all),
            "4" => asm!("ldtilecfg [{}]", "tdpbssd tmm0, tmm1, tmm2", in(reg) &uneven),
            "5" => asm!("ldtilecfg [{}]", in(reg) &palette),
            // They saturate: no kernel's.
            "6" => asm!("{{vex}} vpdpbusds ymm0, ymm1, ymm2", out("ymm0") _),
            _ => asm!("{{vex}} vpdpwssds ymm0, ymm1, [{}]", in(reg) &all, out("ymm0") _),
        }
    }
}

/// Flags behind additions and `dec` between emulated instructions are those of the CPU.
#[test]
fn flags_of_what_loops_count_with() {
    if !there(Features::AVX_VNNI) {
        return;
    }
    let values = [
        0u64,
        1,
        2,
        15,
        16,
        0x7f,
        0x80,
        i64::MAX as u64,
        1 << 63,
        u64::MAX,
        0x7fff_ffff,
        0x8000_0000,
        1 << 32,
    ];
    // What an instruction makes of two numbers, and the flags, which are before what a comparison of them leaves.
    macro_rules! run {
        ($before:literal, $instruction:literal, $a:expr, $b:expr) => {{
            let (result, flags): (u64, u64);
            // SAFETY: the machine has the instructions; the stack is left as it was.
            unsafe {
                asm!(
                    "cmp {a}, {b}",
                    $before,
                    $instruction,
                    "pushfq",
                    "pop {flags}",
                    a = inout(reg) $a => result,
                    b = in(reg) $b,
                    flags = out(reg) flags,
                    out("ymm0") _,
                );
            }
            (result, flags)
        }};
    }
    macro_rules! both {
        ($($instruction:literal)*) => {$(
            for (a, b) in values.iter().flat_map(|&a| values.map(|b| (a, b))) {
                let emulated = run!("{{vex}} vpdpbusd ymm0, ymm0, ymm0", $instruction, a, b);
                assert_eq!(emulated, run!("nop", $instruction, a, b), "{} of {a:#x} and {b:#x}", $instruction);
            }
        )*};
    }
    both! { "add {a}, {b}" "add {a}, 127" "add {a}, -128" "add {a}, 1000" "add {a}, -1000" "dec {a}" "dec {a:e}" }
}
