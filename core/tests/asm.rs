//! Hand-written microkernels are what their names say: disassembled as linked, they contain the instructions of
//! their instruction set alone, leave the stack and the caller's registers alone, call nothing and end once.
//!
//! Needs `objdump` (GNU binutils; `OBJDUMP` names another one).
#![cfg(all(
    target_os = "linux",
    target_endian = "little",
    any(all(target_arch = "x86_64", target_feature = "sse2"), target_arch = "aarch64")
))]

use std::process::Command;

use gllm_kernels_core::{kernels, Features, KernelInfo, Kernels, Op};

/// The instructions that come with any one of some features; those of no feature have no vector operands on x86-64.
/// A kernel that wants others brings them here.
type Set = (&'static [Features], &'static str);

#[cfg(target_arch = "x86_64")]
mod arch {
    use super::{Features, Instruction, Set};

    pub const FOLDER: &str = "src/asm/x86_64";
    pub const TOOLS: [&str; 2] = ["objdump", "x86_64-linux-gnu-objdump"];
    /// How a kernel ends.
    pub const END: &[&str] = &["vzeroupper", "ret"];
    /// Registers that belong to the caller: all but the argument and eight others.
    pub const KEPT: &str =
        "rsp esp sp spl rbp ebp bp bpl rbx ebx bx bl bh r12 r13 r14 r15 r12d r13d r14d r15d";

    pub const SETS: &[Set] = &[
        (
            &[],
            "add and cmp dec inc ja jae jb jbe je jmp jne lea mov nop or prefetcht0 prefetcht1 ret shl shr sub test \
             xchg xor",
        ),
        (
            &[Features::AVX2],
            "vaddps vbroadcasti128 vbroadcastss vcvtdq2ps vcvtph2ps vfmadd213ps vfmadd231ps vmovd vmovdqa vmovdqu vmovups vmulps \
             vpabsb vpaddb vpaddd vpaddw vpand vpbroadcastd vpmaddubsw vpmaddwd vpmovsxbd vpmovsxbw vpmovzxbd vpmovzxbw \
             vpmovzxwd vpmulld vpor vpshufb vpsignb vpslld vpsllw vpsrld vpsubb vpxor vxorps vzeroupper",
        ),
        (
            &[Features::AVX512],
            "kandw kmovq kmovw vbroadcasti32x4 vmovdqa64 vmovdqu32 vmovdqu8 vpandd vpternlogd vptestmd vpxord",
        ),
        (&[Features::AVX_VNNI, Features::AVX512_VNNI], "vpdpbusd"),
        (&[Features::AVX512_BF16], "vdpbf16ps"),
        (
            &[Features::AMX_INT8, Features::AMX_BF16, Features::AMX_FP16],
            "tileloadd tileloaddt1 tilestored tilezero",
        ),
        (&[Features::AMX_INT8], "tdpbssd"),
        (&[Features::AMX_BF16], "tdpbf16ps"),
        (&[Features::AMX_FP16], "tdpfp16ps"),
    ];

    /// What is wrong with the encoding.
    pub fn encoding(i: &Instruction, requires: Features) -> Option<&'static str> {
        let vector = i.operands().any(|o| {
            let (kind, number) = o.split_at(o.len().min(3));
            ["xmm", "ymm", "zmm"].contains(&kind) && number.parse::<u8>().is_ok()
        });
        let has = |feature| requires.contains(feature);
        match i.bytes.split(' ').next() {
            Some("62") if !has(Features::AVX512) => Some("EVEX without AVX-512"),
            Some("62") if i.name == "vpdpbusd" && !has(Features::AVX512_VNNI) => {
                Some("EVEX without AVX512-VNNI")
            }
            Some("c4" | "c5") if i.name == "vpdpbusd" && !has(Features::AVX_VNNI) => {
                Some("VEX without AVX-VNNI")
            }
            Some("62" | "c4" | "c5") => None,
            _ if vector => Some("SSE: it is slow next to AVX"),
            _ => None,
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use super::{Features, Instruction, Set};

    pub const FOLDER: &str = "src/asm/aarch64";
    /// The first where an emulator runs this on another machine.
    pub const TOOLS: [&str; 2] = ["aarch64-linux-gnu-objdump", "objdump"];
    /// How a kernel ends.
    pub const END: &[&str] = &["ret"];
    /// Registers that belong to the caller or the system. The canaries see what becomes of `d8`..`d15`.
    pub const KEPT: &str =
        "sp x18 x19 x20 x21 x22 x23 x24 x25 x26 x27 x28 x29 x30 w18 w19 w20 w21 w22 w23 w24 w25 \
                            w26 w27 w28 w29 w30";

    pub const SETS: &[Set] = &[
        (
            &[],
            "add addp and ands b b.eq b.hi b.ls b.ne bit cbnz cbz cmp csel dup eor fadd fcmp fcvtl fcvtl2 fmla \
             fmov fmul fsub ldp ldr ldur lsl lsr mov movi msub neg nop orr prfm prfum ret sadalp saddlp scvtf shl shll \
             shll2 sli smlal smlal2 smull smull2 str sub subs tbl ushll ushr uzp1 uzp2 zip1 zip2",
        ),
        (&[Features::DOTPROD], "sdot"),
        (&[Features::I8MM], "smmla usmmla"),
        (&[Features::BF16], "bfmmla"),
        (&[Features::FHM], "fmlal fmlal2"),
    ];

    /// What is wrong with the operands: instructions of the same name have SVE's registers.
    pub fn encoding(i: &Instruction, _: Features) -> Option<&'static str> {
        let of_sve = |o: &str| o.strip_prefix(['z', 'p']).is_some_and(|number| number.parse::<u8>().is_ok());
        i.operands().any(of_sve).then_some("SVE")
    }
}

/// A line of a listing.
struct Instruction<'a> {
    bytes: &'a str,
    /// Without prefixes that say how it is encoded.
    name: &'a str,
    rest: &'a str,
}

impl<'a> Instruction<'a> {
    /// `None` for lines that are not about instructions.
    fn parse(line: &'a str) -> Option<Self> {
        let mut columns = line.splitn(3, '\t');
        let (address, bytes, text) = (columns.next()?, columns.next()?, columns.next()?);
        address.trim().strip_suffix(':').filter(|a| a.bytes().all(|b| b.is_ascii_hexdigit()))?;
        let mut text = text.trim().split_once("//").map_or(text.trim(), |(code, _)| code.trim());
        loop {
            let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
            if !["{vex}", "cs", "data16"].contains(&name) {
                return Some(Self { bytes: bytes.trim(), name, rest: rest.trim() });
            }
            text = rest.trim();
        }
    }

    /// Registers, numbers and the like.
    fn operands(&self) -> impl Iterator<Item = &'a str> {
        // What is in angle brackets repeats an address.
        let code = self.rest.split('<').next().unwrap_or("");
        code.split(|c: char| !c.is_ascii_alphanumeric()).filter(|o| !o.is_empty())
    }

    /// Whether it goes elsewhere.
    fn jumps(&self) -> bool {
        if cfg!(target_arch = "x86_64") {
            self.name.starts_with('j')
        } else {
            self.name == "b"
                || self.name.starts_with("b.")
                || ["cbz", "cbnz", "tbz", "tbnz"].contains(&self.name)
        }
    }
}

/// What is wrong with a kernel, line by line.
fn faults(symbol: &str, requires: Features, listing: &str) -> Vec<String> {
    let code: Vec<_> = listing.lines().filter_map(Instruction::parse).collect();
    let mut faults = Vec::new();
    for i in &code {
        let mut fault = |what: &str| faults.push(format!("`{} {}` ({}): {what}", i.name, i.rest, i.bytes));
        match arch::SETS.iter().find(|set| set.1.split_whitespace().any(|name| name == i.name)) {
            None => fault("not an instruction of microkernels"),
            Some((any, _)) if !any.is_empty() && !any.iter().any(|&f| requires.contains(f)) => {
                fault("not in the kernel's instruction set");
            }
            _ => {}
        }
        if let Some(what) = arch::encoding(i, requires) {
            fault(what);
        }
        if i.operands().any(|o| arch::KEPT.split_whitespace().any(|kept| kept == o)) {
            fault("the caller's register");
        }
        let inside = i.rest.split_once('<').and_then(|(_, to)| to.strip_prefix(symbol));
        if i.jumps() && !inside.is_some_and(|to| to.starts_with(['+', '>'])) {
            fault("leaves the kernel");
        }
    }
    let returns = code.iter().filter(|i| i.name == "ret").count();
    let end = || code.iter().rev().map(|i| i.name);
    if returns != 1 || !end().take(arch::END.len()).eq(arch::END.iter().rev().copied()) {
        faults.push(format!("it must return once, and end with {:?}", arch::END));
    }
    faults
}

/// What the tool prints.
fn objdump(arguments: &[&str]) -> String {
    let named = std::env::var("OBJDUMP");
    let tools = named.iter().map(String::as_str).chain(arch::TOOLS);
    let tool = tools.into_iter().find(|tool| Command::new(tool).arg("--version").output().is_ok());
    let tool = tool.expect("objdump is missing: install binutils");
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new(tool).args(arguments).arg(program).output().expect("objdump has just run");
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("names are ASCII")
}

/// Before a kernel's name.
const PREFIX: &str =
    concat!("gllm_kernels_", env!("CARGO_PKG_VERSION_MAJOR"), "_", env!("CARGO_PKG_VERSION_MINOR"), "_");

/// The kernels that are linked.
fn symbols() -> Vec<String> {
    // Refers to all of them.
    let _ = Kernels::<f32>::detect();
    let table = objdump(&["-t"]);
    let names = table.lines().filter_map(|line| line.rsplit(' ').next()?.strip_prefix(PREFIX));
    names.map(str::to_owned).collect()
}

/// A row of a kernel. Those for packed weights have several, made for one row of activations, two and so on; those of
/// `qgemm` serve all formats of a kind.
fn row_of(symbol: &str) -> Option<&'static KernelInfo> {
    if let Some((_, tier)) = symbol.split_once("__").filter(|_| symbol.starts_with(QGEMM)) {
        return kernels()
            .find(|row| row.op == Op::Qgemm && row.name.split_once("__").is_some_and(|n| n.1 == tier));
    }
    let parts = |name: &'static str| name.split_once("_16x").map(|(start, end)| (start, &end[1..]));
    let own = symbol.split_once("_16x").filter(|_| symbol.starts_with(PACKED));
    let own = own.map(|(start, end)| (start, &end[1..]));
    kernels().find(|row| row.name == symbol || own.is_some() && own == parts(row.name))
}

/// What names of kernels for packed weights start with: all formats of an instruction set share a file.
const PACKED: &str = "qgemv_packed_";

/// What names of kernels of `qgemm` start with: all kinds share a file.
const QGEMM: &str = "qgemm_";

/// Every microkernel of the table is a symbol and a file, and there are no others.
#[test]
fn there_are_as_many_as_the_table_says() {
    let symbols = symbols();
    for symbol in &symbols {
        assert!(row_of(symbol).is_some(), "{symbol} is not in the table");
    }
    for row in kernels().filter(|row| row.op == Op::QgemvPacked) {
        // What ends in the name of a level alone is its baseline.
        let compiled = row.name.ends_with(&format!("__{}", row.level));
        let there = symbols.iter().filter(|s| row_of(s).is_some_and(|of| of.name == row.name)).count();
        let most = row.name.split_once("_16x").and_then(|(_, end)| end.get(..1)?.parse().ok());
        assert_eq!(Some(there), if compiled { Some(0) } else { most }, "{}", row.name);
    }
    for row in kernels().filter(|row| row.op == Op::Gemm) {
        // What is not in assembly is the baseline of its type and level.
        let same = kernels().filter(|r| (r.op, r.element, r.level) == (row.op, row.element, row.level));
        let compiled: Vec<_> =
            same.map(|r| r.name).filter(|name| !symbols.iter().any(|s| s == name)).collect();
        assert_eq!(compiled.len(), 1, "one of these is the baseline, others have no symbol: {compiled:?}");
    }
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(arch::FOLDER);
    let files = std::fs::read_dir(folder).expect("the sources are there");
    let files = files
        .filter_map(|file| file.ok()?.file_name().into_string().ok()?.strip_suffix(".rs").map(str::to_owned));
    let mut files: Vec<_> = files.filter(|name| name.contains("__")).collect();
    let mut symbols: Vec<_> =
        symbols.into_iter().filter(|s| !s.starts_with(PACKED) && !s.starts_with(QGEMM)).collect();
    files.sort();
    symbols.sort();
    assert_eq!(files, symbols, "files and symbols");
}

#[test]
fn none_has_a_fault() {
    let mut all = Vec::new();
    for name in symbols() {
        let row = row_of(&name).expect("checked by the other test");
        let symbol = format!("{PREFIX}{name}");
        let show = format!("--disassemble={symbol}");
        let mut arguments = vec!["-d", "--insn-width=16", &show];
        if cfg!(target_arch = "x86_64") {
            arguments.extend(["-M", "intel"]);
        }
        let mut faults = faults(&symbol, row.requires, &objdump(&arguments));
        faults.dedup();
        all.extend(faults.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// The faults of a kernel `k` with these lines before a proper end.
#[cfg(test)]
fn faults_of(requires: Features, lines: &[(&str, &str)]) -> Vec<String> {
    let end = arch::END.iter().map(|&end| (if end == "ret" { "c3" } else { "c5 f8 77" }, end));
    let all = lines.iter().copied().chain(end);
    let listing: String = all.map(|(bytes, text)| format!("  40ab10:\t{bytes} \t{text}\n")).collect();
    faults("k", requires, &format!("\nk:     file format elf64\n\n000000000040ab10 <k>:\n{listing}"))
}

/// A kernel that is as it should be but for this line has one fault, with these words.
#[cfg(test)]
fn refuses(requires: Features, bytes: &str, text: &str, words: &str) {
    let found = faults_of(requires, &[(bytes, text)]);
    assert!(found.len() == 1 && found[0].contains(words), "{text}: {found:?} instead of {words}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn faults_are_found() {
    let avx2 = Features::AVX2;
    let avx512 = avx2.union(Features::AVX512);
    let vnni = |level: Features, feature| level.union(feature);
    // What is right.
    for (requires, bytes, text) in [
        (avx2, "c5 fc 58 c1", "vaddps ymm0,ymm0,ymm1"),
        (avx2, "74 36", "je     40ab20 <k+0x10>"),
        (avx2, "2e 66 0f 1f 84 00 00 00 00 00", "cs nop WORD PTR [rax+rax*1+0x0]"),
        (avx512, "62 f1 7c 48 58 c1", "vaddps zmm0,zmm0,zmm1"),
        (vnni(avx2, Features::AVX_VNNI), "c4 e2 05 50 c4", "{vex} vpdpbusd ymm0,ymm15,ymm4"),
        (vnni(avx512, Features::AVX512_VNNI), "62 f2 05 40 50 c4", "vpdpbusd zmm0,zmm31,zmm4"),
    ] {
        assert_eq!(faults_of(requires, &[(bytes, text)]), [""; 0], "{text}");
    }
    refuses(avx2, "e8 00 00 00 00", "call   40ab20 <memcpy>", "not an instruction of microkernels");
    refuses(avx2, "50", "push   rax", "not an instruction of microkernels");
    refuses(avx2, "c5 fc 11 44 24 20", "vmovups YMMWORD PTR [rsp+0x20],ymm0", "the caller's register");
    refuses(avx2, "4d 89 e7", "mov    rax,r12", "the caller's register");
    refuses(avx2, "eb 10", "jmp    40ab20 <k2+0x10>", "leaves the kernel");
    refuses(avx2, "ff e0", "jmp    rax", "leaves the kernel");
    assert_eq!(faults_of(avx2, &[("0f 10 00", "movups xmm0,XMMWORD PTR [rax]")]).len(), 2);
    refuses(avx2, "0f 58 c1", "vaddps xmm0,xmm0,xmm1", "SSE");
    refuses(avx2, "62 f1 7c 28 58 c1", "vaddps ymm0,ymm0,ymm17", "EVEX without AVX-512");
    refuses(avx2, "c5 f8 92 c8", "kmovw  k1,eax", "not in the kernel's instruction set");
    let same = "not in the kernel's instruction set";
    refuses(avx512, "62 f2 66 48 52 c4", "vdpbf16ps zmm0,zmm3,zmm4", same);
    refuses(avx512, "c4 e2 7b 49 c0", "tilezero tmm0", same);
    refuses(avx512.union(Features::AMX_BF16), "c4 e2 53 5e c4", "tdpbssd tmm0,tmm4,tmm5", same);
    let (vex, evex) = (Features::AVX_VNNI, Features::AVX512_VNNI);
    let (short, long) = ("{vex} vpdpbusd ymm0,ymm15,ymm4", "vpdpbusd zmm0,zmm31,zmm4");
    refuses(vnni(avx512, evex), "c4 e2 05 50 c4", short, "VEX without AVX-VNNI");
    refuses(vnni(avx512, vex), "62 f2 05 40 50 c4", long, "EVEX without AVX512-VNNI");
    assert_eq!(faults_of(avx2, &[("62 f2 05 40 50 c4", long)]).len(), 2);
    assert_eq!(faults_of(avx2, &[("c4 e2 05 50 c4", short)]).len(), 2);
    refuses(avx2, "c3", "ret", "return once");
    assert_eq!(faults("k", avx2, "  40ab10:\tc3 \tret\n").len(), 1, "no vzeroupper");
    assert_eq!(faults("k", avx2, "").len(), 1, "nothing there");
}

#[cfg(target_arch = "aarch64")]
#[test]
fn faults_are_found() {
    let neon = Features::NEON;
    let add = "fmla\tv8.4s, v4.4s, v0.s[0]";
    assert_eq!(
        faults_of(neon, &[("4f801088", add), ("54ffff01", "b.ne\t40ab00 <k+0x20>  // b.any")]),
        [""; 0]
    );
    assert_eq!(
        faults_of(neon.union(Features::DOTPROD), &[("4f80e088", "sdot\tv8.4s, v4.16b, v0.4b[0]")]),
        [""; 0]
    );
    for (bytes, text) in [
        ("4f80e088", "sdot\tv8.4s, v4.16b, v0.4b[0]"),
        ("4e80a488", "smmla\tv8.4s, v4.16b, v0.16b"),
        ("6e40ec88", "bfmmla\tv8.4s, v4.8h, v0.8h"),
        ("4f800088", "fmlal\tv8.4s, v4.4h, v0.h[0]"),
    ] {
        refuses(neon, bytes, text, "not in the kernel's instruction set");
    }
    refuses(neon, "94000000", "bl\t40ab20 <memcpy>", "not an instruction of microkernels");
    refuses(neon, "04e00000", "mov\tz0.d, z1.d", "SVE");
    refuses(neon, "3c9f0fe8", "str\tq8, [sp, #-16]!", "the caller's register");
    refuses(neon, "aa0003f3", "mov\tx19, x0", "the caller's register");
    refuses(neon, "14000000", "b\t40ab20 <k2>", "leaves the kernel");
    refuses(neon, "d65f03c0", "ret", "return once");
    assert_eq!(faults("k", neon, "").len(), 1, "nothing there");
}
