//! The embedded code objects are for the GPUs they are said to be for, and have every kernel with the arguments that it is launched with,
//! without memory that the host would have to know of.

use std::collections::BTreeMap;

use gllm_kernels_std::cuda::{catalogue, embedded_cubins, Cubin};

fn number(bytes: &[u8], at: usize, size: usize) -> usize {
    bytes[at..at + size].iter().rev().fold(0, |n, &b| n << 8 | usize::from(b))
}

/// What the metadata of kernels is written in: MessagePack, as far as LLVM uses it.
#[derive(Clone, Debug)]
enum Value {
    Number(usize),
    Text(String),
    List(Vec<Value>),
    Map(BTreeMap<String, Value>),
}

impl Value {
    fn read(bytes: &mut &[u8]) -> Self {
        let first = take(bytes, 1);
        match first {
            0..=0x7f => Self::Number(first),
            0x80..=0x8f => Self::map(bytes, first & 15),
            0x90..=0x9f => Self::list(bytes, first & 15),
            0xa0..=0xbf => Self::text(bytes, first & 31),
            0xc2 | 0xc3 => Self::Number(first & 1),
            0xcc => Self::Number(take(bytes, 1)),
            0xcd => Self::Number(take(bytes, 2)),
            0xce => Self::Number(take(bytes, 4)),
            0xd9 => {
                let n = take(bytes, 1);
                Self::text(bytes, n)
            }
            0xdc => {
                let n = take(bytes, 2);
                Self::list(bytes, n)
            }
            0xde => {
                let n = take(bytes, 2);
                Self::map(bytes, n)
            }
            other => panic!("byte {other:#x} of the metadata"),
        }
    }

    fn map(bytes: &mut &[u8], n: usize) -> Self {
        let mut pair = |_| match Self::read(bytes) {
            Self::Text(key) => (key, Self::read(bytes)),
            other => panic!("{other:?} as a key"),
        };
        Self::Map((0..n).map(&mut pair).collect())
    }

    fn list(bytes: &mut &[u8], n: usize) -> Self {
        Self::List((0..n).map(|_| Self::read(bytes)).collect())
    }

    fn text(bytes: &mut &[u8], n: usize) -> Self {
        let (text, rest) = bytes.split_at(n);
        *bytes = rest;
        Self::Text(String::from_utf8(text.to_vec()).unwrap())
    }

    fn get(&self, key: &str) -> &Self {
        match self {
            Self::Map(map) => map.get(key).unwrap_or_else(|| panic!("no {key} in {map:?}")),
            other => panic!("{other:?} has no {key}"),
        }
    }

    fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            other => panic!("{other:?} is no list"),
        }
    }

    fn number(&self) -> usize {
        match self {
            Self::Number(n) => *n,
            other => panic!("{other:?} is no number"),
        }
    }

    fn str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            other => panic!("{other:?} is no text"),
        }
    }
}

/// A number with its first byte first, as MessagePack has it.
fn take(bytes: &mut &[u8], n: usize) -> usize {
    let (number, rest) = bytes.split_at(n);
    *bytes = rest;
    number.iter().fold(0, |n, &b| n << 8 | usize::from(b))
}

/// The metadata of a code object: the note of type 32 in its segment of notes.
fn metadata(elf: &[u8]) -> Value {
    assert_eq!(elf[..6], *b"\x7fELF\x02\x01", "ELF, 64 bits, little-endian");
    let (first, count) = (number(elf, 32, 8), number(elf, 56, 2));
    let segment =
        (0..count).map(|i| first + i * 56).find(|&at| number(elf, at, 4) == 4).expect("a segment of notes");
    let at = number(elf, segment + 8, 8);
    assert_eq!((number(elf, at, 4), number(elf, at + 8, 4)), (7, 32), "the note that is looked for");
    let (from, bytes) = (at + 12 + 8, number(elf, at + 4, 4));
    Value::read(&mut &elf[from..from + bytes])
}

/// GPUs that files are compiled for, and lanes of their waves.
const TARGETS: [(u32, usize); 5] = [(0x90a, 64), (0x942, 64), (0x1030, 32), (0x1100, 32), (0x1200, 32)];

/// What the kernels of a file take: registers of vectors and scalars at most, and bytes of memory for what registers do not hold.
#[derive(Default)]
struct Taken {
    kernels: usize,
    vectors: usize,
    scalars: usize,
    spill: usize,
    scratch: usize,
}

impl Taken {
    fn cell(&self) -> String {
        let registers = format!("{}, {}", self.vectors, self.scalars);
        match self.spill {
            0 => registers,
            n => format!("{registers}; {n} of {} up to {} bytes", self.kernels, self.scratch),
        }
    }
}

#[test]
fn every_kernel_for_every_family() {
    let objects: Vec<Cubin> =
        embedded_cubins().unwrap().into_iter().filter(|c| c.capability.is_gfx()).collect();
    assert_eq!(objects.len(), TARGETS.len() * 13);
    let mut taken: BTreeMap<&str, [Taken; 5]> = BTreeMap::new();
    for Cubin { file, capability, bytes: elf } in objects {
        assert_eq!(number(&elf, 18, 2), 224, "{file}: a machine other than AMD's GPUs");
        let data = metadata(&elf);
        let target = data.get("amdhsa.target").str();
        assert_eq!(target, format!("amdgcn-amd-amdhsa--{capability}"), "{file}");
        let of_target = TARGETS.iter().position(|t| t.0 == capability.0).expect("a target");
        let taken = &mut taken.entry(file).or_default()[of_target];
        let all = catalogue(capability);
        let mut want: BTreeMap<&str, usize> =
            all.iter().filter(|k| k.file == file).map(|k| (&*k.name, k.arguments)).collect();
        for kernel in data.get("amdhsa.kernels").items() {
            let name = kernel.get(".name").str();
            let arguments =
                want.remove(name).unwrap_or_else(|| panic!("{name} for {capability} is in no catalogue"));
            let of = |what: &str| kernel.get(what).number();
            assert_eq!(kernel.get(".symbol").str(), format!("{name}.kd"));
            let [argument] = kernel.get(".args").items() else { panic!("{name} has hidden arguments") };
            assert_eq!(argument.get(".size").number(), arguments, "arguments of {name} for {capability}");
            assert_eq!(of(".kernarg_segment_size"), arguments, "{name}");
            assert_eq!(of(".group_segment_fixed_size"), 0, "shared memory of {name}");
            assert_eq!(of(".wavefront_size"), TARGETS[of_target].1, "{name}");
            let scratch = of(".private_segment_fixed_size");
            taken.kernels += 1;
            taken.vectors = taken.vectors.max(of(".vgpr_count"));
            taken.scalars = taken.scalars.max(of(".sgpr_count"));
            taken.spill += usize::from(scratch > 0);
            taken.scratch = taken.scratch.max(scratch);
        }
        assert!(want.is_empty(), "{file} for {capability} lacks {want:?}");
    }
    // The page on compiling kernels says it.
    let page = include_str!("../../SPEC/05-COMPILING-KERNELS.md");
    let rows: Vec<String> = taken
        .iter()
        .map(|(file, of)| format!("| `{file}` | {} |", of.each_ref().map(Taken::cell).join(" | ")))
        .collect();
    let missing: Vec<&String> = rows.iter().filter(|row| !page.contains(&***row)).collect();
    assert!(missing.is_empty(), "SPEC/05-COMPILING-KERNELS.md should say\n{}", rows.join("\n"));
}
