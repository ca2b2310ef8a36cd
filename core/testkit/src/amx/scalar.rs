//! What loops count and advance with (Intel SDM volume 2): executed here between emulated instructions, as stopping a thread takes
//! longer than many of them.

use super::machine::REGISTERS;

/// Bits of the flags.
const CARRY: u64 = 1;
const PARITY: u64 = 1 << 2;
const ADJUST: u64 = 1 << 4;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const OVERFLOW: u64 = 1 << 11;

/// The flags that follow from `result` alone, which has `bits`.
fn flags_of(result: u64, bits: u32) -> u64 {
    let mut flags = 0;
    if result == 0 {
        flags |= ZERO;
    }
    if result >> (bits - 1) & 1 == 1 {
        flags |= SIGN;
    }
    if (result as u8).count_ones().is_multiple_of(2) {
        flags |= PARITY;
    }
    flags
}

/// Adds, and sets the flags.
fn add(flags: &mut u64, a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    *flags &= !(CARRY | PARITY | ADJUST | ZERO | SIGN | OVERFLOW);
    *flags |= flags_of(sum, u64::BITS) | ((a ^ b ^ sum) & ADJUST);
    if carry {
        *flags |= CARRY;
    }
    if (a as i64).checked_add(b as i64).is_none() {
        *flags |= OVERFLOW;
    }
    sum
}

/// Subtracts one, and sets the flags but for the carry, in so many bits.
fn decrement(flags: &mut u64, a: u64, bits: u32) -> u64 {
    let mask = u64::MAX >> (u64::BITS - bits);
    let result = a.wrapping_sub(1) & mask;
    *flags &= !(PARITY | ADJUST | ZERO | SIGN | OVERFLOW);
    *flags |= flags_of(result, bits) | ((a ^ 1 ^ result) & ADJUST);
    if result == mask >> 1 {
        *flags |= OVERFLOW;
    }
    result
}

/// Executes the instruction at `code` and returns where the thread goes on; `None`, and nothing happens, unless it is an addition to a
/// register, `dec` of one, `jnz`, or a prefetch, which does nothing. `registers` are the thread's, as the system keeps them.
///
/// # Safety
/// There is an instruction.
pub(super) unsafe fn execute(code: *const u8, registers: &mut [i64]) -> Option<*const u8> {
    let byte = |i: usize| {
        // SAFETY: the bytes before it say that it belongs to the instruction.
        unsafe { *code.add(i) }
    };
    let word = |i: usize| i32::from_le_bytes([0, 1, 2, 3].map(|k| byte(i + k)));
    let mut flags = registers[libc::REG_EFL as usize] as u64;
    let jump = |length: usize, by: i32| {
        let by = if flags & ZERO == 0 { by as isize } else { 0 };
        Some(code.wrapping_add(length).wrapping_offset(by))
    };
    // A prefix that extends numbers of registers, and says whether they have 64 bits.
    let (rex, at) = match byte(0) {
        0x75 => return jump(2, i32::from(byte(1) as i8)),
        0x0f if byte(1) == 0x85 => return jump(6, word(2)),
        prefix @ 0x40..=0x4f => (prefix, 1),
        _ => (0, 0),
    };
    let (wide, opcode, modrm) = (rex & 8 != 0, byte(at), byte(at + 1));
    if opcode == 0x0f && modrm == 0x18 && byte(at + 2) >> 6 != 3 {
        let (mode, rm) = (byte(at + 2) >> 6, byte(at + 2) & 7);
        let (sib, base) = if rm == 4 { (1, byte(at + 3) & 7) } else { (0, rm) };
        let offset = [if base == 5 { 4 } else { 0 }, 1, 4][usize::from(mode)];
        return Some(code.wrapping_add(at + 3 + sib + offset));
    }
    if !matches!(opcode, 0x01 | 0x03 | 0x81 | 0x83 | 0xff) || modrm >> 6 != 3 {
        return None;
    }
    let more = modrm >> 3 & 7;
    let (reg, rm) = (more | (rex & 4) << 1, modrm & 7 | (rex & 1) << 3);
    let value = |number: u8| registers[REGISTERS[usize::from(number)] as usize] as u64;
    let (to, result, length) = match (opcode, wide, more) {
        (0x01, true, _) => (rm, add(&mut flags, value(rm), value(reg)), 2),
        (0x03, true, _) => (reg, add(&mut flags, value(reg), value(rm)), 2),
        (0x83, true, 0) => (rm, add(&mut flags, value(rm), i64::from(byte(at + 2) as i8) as u64), 3),
        (0x81, true, 0) => (rm, add(&mut flags, value(rm), i64::from(word(at + 2)) as u64), 6),
        (0xff, true, 1) => (rm, decrement(&mut flags, value(rm), u64::BITS), 2),
        (0xff, false, 1) => (rm, decrement(&mut flags, u64::from(value(rm) as u32), u32::BITS), 2),
        _ => return None,
    };
    registers[REGISTERS[usize::from(to)] as usize] = result as i64;
    registers[libc::REG_EFL as usize] = flags as i64;
    Some(code.wrapping_add(at + length))
}
