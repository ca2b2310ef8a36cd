//! The encoding of instructions of AMX and AVX-VNNI (Intel SDM volume 2, the instructions' own pages and sections 2.1, 2.3).

/// What a tile instruction reads or writes in memory: rows, from `start` on.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub(super) start: usize,
    /// From one row to the next.
    pub(super) stride: usize,
}

/// Types of a product of tiles.
#[derive(Clone, Copy)]
pub(super) enum Product {
    Bf16,
    F16,
    /// Signed by signed.
    I8,
}

/// An instruction on vector registers of 256 bits. All but the first two are instructions of every CPU with AVX2 that come between
/// those: stopping a thread takes longer than executing them here.
#[derive(Clone, Copy)]
pub(super) enum Vector {
    /// `vpdpbusd`
    Bytes { c: usize, a: usize, b: Operand },
    /// `vpdpwssd`
    Words { c: usize, a: usize, b: Operand },
    /// `vbroadcastss` or `vpbroadcastd`
    Broadcast { c: usize, at: usize },
    /// `vmovdqu`, `vmovups`
    Load { c: usize, at: usize },
    /// `vpand`
    And { c: usize, a: usize, b: Operand },
    /// `vpor`
    Or { c: usize, a: usize, b: Operand },
    /// `vpshufb`
    Shuffle { c: usize, a: usize, b: Operand },
    /// `vpsrld` by a constant
    Right { c: usize, a: usize, by: u32 },
    /// `vpslld` by a constant
    Left { c: usize, a: usize, by: u32 },
}

/// The second operand.
#[derive(Clone, Copy)]
pub(super) enum Operand {
    Register(usize),
    Memory(usize),
}

/// An instruction, and what it works on. Numbers are those of tile registers.
#[derive(Clone, Copy)]
pub(super) enum Instruction {
    LoadConfig(usize),
    StoreConfig(usize),
    Release,
    Zero(usize),
    Load(usize, Memory),
    Store(usize, Memory),
    Multiply { product: Product, c: usize, a: usize, b: usize },
    Vector(Vector),
}

/// Bytes of code, one by one: what is behind the instruction may not be there.
struct Code(*const u8);

impl Code {
    unsafe fn byte(&mut self) -> u8 {
        // SAFETY: the caller only asks for what belongs to the instruction.
        let byte = unsafe { *self.0 };
        self.0 = self.0.wrapping_add(1);
        byte
    }

    unsafe fn word(&mut self) -> i32 {
        // SAFETY: the caller only asks for what belongs to the instruction.
        i32::from_le_bytes(std::array::from_fn(|_| unsafe { self.byte() }))
    }
}

/// The instruction at `code` and where the next one starts; `None` unless it is one of these. `value` gives the content
/// of a general register.
///
/// # Safety
/// There is an instruction.
pub(super) unsafe fn decode(
    code: *const u8,
    value: impl Fn(u8) -> usize,
) -> Option<(Instruction, *const u8)> {
    let mut code = Code(code);
    // SAFETY: what has been read so far says that there is more.
    unsafe {
        // VEX: the short form, whose opcodes are behind 0F, or the long one with those behind 0F or 0F 38, and W = 0. Bits of
        // numbers are stored inverted.
        let (map, [r, x, b], second) = match code.byte() {
            0xc5 => {
                let second = code.byte();
                (1, [!second >> 7 & 1, 0, 0], second & 0x7f)
            }
            0xc4 => {
                let first = code.byte();
                (first & 0x1f, [7, 6, 5].map(|bit| !first >> bit & 1), code.byte())
            }
            _ => return None,
        };
        if !matches!(map, 1 | 2) || second & 0x80 != 0 {
            return None;
        }
        let long = second & 4 != 0;
        let (prefix, third) = (second & 3, usize::from(!second >> 3 & 15));
        let (opcode, modrm) = (code.byte(), code.byte());
        let (in_register, reg, rm) = (modrm >> 6 == 3, modrm >> 3 & 7, modrm & 7);
        let (tile, plain) = (usize::from(reg), third == 0 && r == 0);
        if long {
            let (c, register) = (usize::from(reg | r << 3), usize::from(rm | b << 3));
            let mut at = || {
                let Memory { start, stride } = memory(&mut code, modrm, x, b, &value);
                start.wrapping_add(stride)
            };
            let mut operand =
                || if in_register { Operand::Register(register) } else { Operand::Memory(at()) };
            let instruction = match (map, opcode, prefix, in_register) {
                (2, 0x50, 1, _) => Vector::Bytes { c, a: third, b: operand() },
                (2, 0x52, 1, _) => Vector::Words { c, a: third, b: operand() },
                (1, 0xdb, 1, _) => Vector::And { c, a: third, b: operand() },
                (2, 0x18 | 0x58, 1, false) if third == 0 => Vector::Broadcast { c, at: at() },
                (1, 0xeb, 1, _) => Vector::Or { c, a: third, b: operand() },
                (2, 0x00, 1, _) => Vector::Shuffle { c, a: third, b: operand() },
                (1, 0x6f, 2, false) | (1, 0x10, 0, false) if third == 0 => Vector::Load { c, at: at() },
                (1, 0x72, 1, true) if reg == 2 => {
                    Vector::Right { c: third, a: register, by: u32::from(code.byte()) }
                }
                (1, 0x72, 1, true) if reg == 6 => {
                    Vector::Left { c: third, a: register, by: u32::from(code.byte()) }
                }
                _ => return None,
            };
            return Some((Instruction::Vector(instruction), code.0));
        }
        if map != 2 {
            return None;
        }
        let instruction = match (opcode, prefix, in_register) {
            (0x49, 0, true) if plain && modrm == 0xc0 => Instruction::Release,
            (0x49, 3, true) if plain && rm == 0 => Instruction::Zero(tile),
            (0x49, 0 | 1, false) if plain && reg == 0 => {
                let m = memory(&mut code, modrm, x, b, value);
                let at = m.start.wrapping_add(m.stride);
                if prefix == 0 {
                    Instruction::LoadConfig(at)
                } else {
                    Instruction::StoreConfig(at)
                }
            }
            // 1 is a hint for the caches.
            (0x4b, 1 | 3, false) if plain && rm == 4 => {
                Instruction::Load(tile, memory(&mut code, modrm, x, b, value))
            }
            (0x4b, 2, false) if plain && rm == 4 => {
                Instruction::Store(tile, memory(&mut code, modrm, x, b, value))
            }
            (0x5c | 0x5e, 2 | 3, true) if third < 8 && r == 0 && b == 0 => {
                let product = match (opcode, prefix) {
                    (0x5c, 2) => Product::Bf16,
                    (0x5c, _) => Product::F16,
                    (_, 3) => Product::I8,
                    _ => return None,
                };
                Instruction::Multiply { product, c: tile, a: usize::from(rm), b: third }
            }
            _ => return None,
        };
        Some((instruction, code.0))
    }
}

/// The operand in memory: `start` without the index, `stride` the scaled index.
unsafe fn memory(code: &mut Code, modrm: u8, x: u8, b: u8, value: impl Fn(u8) -> usize) -> Memory {
    let (mode, rm) = (modrm >> 6, modrm & 7);
    // SAFETY: the caller's contract.
    unsafe {
        let (mut base, mut stride) = (rm, 0);
        if rm == 4 {
            let sib = code.byte();
            let index = sib >> 3 & 7 | x << 3;
            // The stack pointer's number means that there is none.
            if index != 4 {
                stride = value(index) << (sib >> 6);
            }
            base = sib & 7;
        }
        let none = mode == 0 && base == 5;
        let offset = match mode {
            0 if none => code.word(),
            0 => 0,
            1 => i32::from(code.byte() as i8),
            _ => code.word(),
        };
        let start = match (none, rm == 4) {
            (true, true) => 0,
            // Relative to the next instruction.
            (true, false) => code.0 as usize,
            _ => value(base | b << 3),
        };
        Memory { start: start.wrapping_add_signed(offset as isize), stride }
    }
}
