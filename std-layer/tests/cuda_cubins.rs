//! The embedded cubins are for the GPUs they are said to be for, and have every kernel with the arguments that it is
//! launched with; registers that they take are those of the page on compiling kernels.
#![cfg(feature = "cuda")]

use std::collections::{BTreeMap, BTreeSet};

use gllm_kernels_std::cuda::{catalogue, embedded_cubins, Cubin};

fn number(bytes: &[u8], at: usize, size: usize) -> usize {
    bytes[at..at + size].iter().rev().fold(0, |n, &b| n << 8 | usize::from(b))
}

/// Sections of an ELF file of 64 bits: names and contents.
fn sections(elf: &[u8]) -> BTreeMap<String, &[u8]> {
    assert_eq!(elf[..6], *b"\x7fELF\x02\x01", "ELF, 64 bits, little-endian");
    let (first, count, names) = (number(elf, 40, 8), number(elf, 60, 2), number(elf, 62, 2));
    let field = |section: usize, at: usize, size: usize| number(elf, first + section * 64 + at, size);
    let contents = |section: usize| {
        let (kind, at, size) = (field(section, 4, 4), field(section, 24, 8), field(section, 32, 8));
        // Those of kind 8 have no bytes in the file.
        if kind == 8 {
            &[]
        } else {
            &elf[at..at + size]
        }
    };
    let names = contents(names);
    let name = |section| {
        let text = &names[field(section, 0, 4)..];
        let end = text.iter().position(|&b| b == 0).unwrap();
        String::from_utf8(text[..end].to_vec()).unwrap()
    };
    (0..count).map(|s| (name(s), contents(s))).collect()
}

/// Bytes of a kernel's arguments: attribute 0x19 of its `.nv.info`.
fn arguments(info: &[u8]) -> usize {
    let mut at = 0;
    while at < info.len() {
        let (form, attribute, value) = (info[at], info[at + 1], number(info, at + 2, 2));
        if attribute == 0x19 {
            return value;
        }
        // Form 4 is followed by as many bytes as its value says.
        at += if form == 4 { 4 + value } else { 4 };
    }
    panic!("an info section without the size of arguments");
}

/// What the kernels of a file take: registers of a thread at most, and bytes of memory for what registers do not hold.
#[derive(Default)]
struct Taken {
    kernels: usize,
    registers: usize,
    spill: usize,
    frame: usize,
}

impl Taken {
    fn cell(&self) -> String {
        match self.spill {
            0 => self.registers.to_string(),
            n => format!("{}; {n} of {} up to {} bytes", self.registers, self.kernels, self.frame),
        }
    }

    /// Notes registers, attribute 0x2f of `.nv.info`, and the frame, attribute 0x11, of the kernels of a file.
    fn note(&mut self, sections: &BTreeMap<String, &[u8]>, kernels: &BTreeSet<&str>) {
        let (symbols, names, info) = (sections[".symtab"], sections[".strtab"], sections[".nv.info"]);
        let is_kernel = |symbol: usize| {
            let text = &names[number(symbols, symbol * 24, 4)..];
            let end = text.iter().position(|&b| b == 0).unwrap();
            kernels.contains(std::str::from_utf8(&text[..end]).unwrap())
        };
        let mut at = 0;
        while at < info.len() {
            let (form, attribute, bytes) = (info[at], info[at + 1], number(info, at + 2, 2));
            if form == 4 && [0x11, 0x2f].contains(&attribute) && is_kernel(number(info, at + 4, 4)) {
                let value = number(info, at + 8, 4);
                if attribute == 0x2f {
                    self.kernels += 1;
                    self.registers = self.registers.max(value);
                } else {
                    self.spill += usize::from(value > 0);
                    self.frame = self.frame.max(value);
                }
            }
            at += if form == 4 { 4 + bytes } else { 4 };
        }
    }
}

#[test]
fn every_kernel_for_every_gpu() {
    let cubins: Vec<Cubin> =
        embedded_cubins().unwrap().into_iter().filter(|c| !c.capability.is_gfx()).collect();
    assert!(!cubins.is_empty());
    let mut taken: BTreeMap<u32, BTreeMap<&str, Taken>> = BTreeMap::new();
    for Cubin { file, capability, bytes: elf } in cubins {
        let all = catalogue(capability);
        assert_eq!(
            all.len(),
            all.iter().map(|k| &k.name).collect::<BTreeSet<_>>().len(),
            "a kernel listed twice"
        );
        assert_eq!(number(&elf, 18, 2), 190, "{file}: a machine other than CUDA");
        // Version 8 of the binary interface, since Blackwell, has it one byte further.
        let at = match elf[8] {
            7 => 48,
            8 => 49,
            version => panic!("{file}: version {version} of the binary interface"),
        };
        assert_eq!(number(&elf, at, 1), capability.0 as usize, "{file}: for another GPU");
        let sections = sections(&elf);
        let have: BTreeSet<&str> = sections.keys().filter_map(|s| s.strip_prefix(".text.")).collect();
        let want: BTreeSet<&str> = all.iter().filter(|k| k.file == file).map(|k| &*k.name).collect();
        assert_eq!(have, want, "{file} for {capability}");
        let of_file = taken.entry(capability.0).or_default().entry(file).or_default();
        of_file.note(&sections, &want);
        assert_eq!(of_file.kernels, want.len(), "{file} for {capability}");
        for kernel in all.iter().filter(|k| k.file == file) {
            let info = sections[&format!(".nv.info.{}", kernel.name)];
            assert_eq!(arguments(info), kernel.arguments, "arguments of {} for {capability}", kernel.name);
        }
    }
    let page = include_str!("../../SPEC/05-COMPILING-KERNELS.md");
    let row = |(capability, of): (&u32, &BTreeMap<&str, Taken>)| {
        let cells: Vec<String> = of.values().map(Taken::cell).collect();
        format!("| {}.{} | {} |", capability / 10, capability % 10, cells.join(" | "))
    };
    let rows: Vec<String> = taken.iter().map(row).collect();
    let missing: Vec<&String> = rows.iter().filter(|row| !page.contains(&***row)).collect();
    assert!(missing.is_empty(), "SPEC/05-COMPILING-KERNELS.md should say\n{}", rows.join("\n"));
}
