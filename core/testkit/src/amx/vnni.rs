//! `vpdpbusd`, `vpdpwssd` and their company on the vector registers of an interrupted thread (Intel SDM volume 2; volume 1,
//! section 13.4: where XSAVE, whose format Linux uses, has them).

use super::decode::{Operand, Vector};

/// Bytes of half a register.
const HALF: usize = 16;
/// Low and high halves of the sixteen registers: where they are, and the bit of the header that says so.
const PARTS: [(usize, u64); 2] = [(160, 2), (576, 4)];
/// Where the header is.
const HEADER: usize = 512;

/// Executes the instruction on both halves of its registers. What is above 256 bits stays: code in this encoding does not have
/// it.
///
/// # Safety
/// `area` has been saved with the parts of AVX; numbers are below 16, and memory is what the instruction needs.
pub(super) unsafe fn execute(area: *mut u8, instruction: Vector) -> Option<()> {
    // SAFETY: the caller's contract; the area is aligned to 64 bytes.
    unsafe {
        let there = area.add(HEADER).cast::<u64>();
        for (half, (place, bit)) in PARTS.into_iter().enumerate() {
            let registers: *mut [u8; HALF] = area.add(place).cast();
            // What is not there is zero, and has not been written.
            if *there & bit == 0 {
                registers.write_bytes(0, 16);
                *there |= bit;
            }
            let load = |at: usize| ((at + half * HALF) as *const [u8; HALF]).read_unaligned();
            let operand = |b: Operand| match b {
                Operand::Register(b) => *registers.add(b),
                Operand::Memory(at) => load(at),
            };
            match instruction {
                Vector::Bytes { c, a, b } => bytes(&mut *registers.add(c), *registers.add(a), operand(b)),
                Vector::Words { c, a, b } => words(&mut *registers.add(c), *registers.add(a), operand(b)),
                Vector::Broadcast { c, at } => {
                    (*registers.add(c)).as_chunks_mut::<4>().0.fill(*(at as *const [u8; 4]));
                }
                Vector::Load { c, at } => *registers.add(c) = load(at),
                Vector::And { c, a, b } => {
                    let (a, b) = (*registers.add(a), operand(b));
                    *registers.add(c) = (u128::from_ne_bytes(a) & u128::from_ne_bytes(b)).to_ne_bytes();
                }
                Vector::Or { c, a, b } => {
                    let (a, b) = (*registers.add(a), operand(b));
                    *registers.add(c) = (u128::from_ne_bytes(a) | u128::from_ne_bytes(b)).to_ne_bytes();
                }
                Vector::Shuffle { c, a, b } => {
                    let (table, which) = (*registers.add(a), operand(b));
                    *registers.add(c) =
                        which.map(|i| if i & 0x80 == 0 { table[usize::from(i % 16)] } else { 0 });
                }
                Vector::Right { c, a, by } => {
                    *registers.add(c) = shifted(*registers.add(a), |word| word.checked_shr(by));
                }
                Vector::Left { c, a, by } => {
                    *registers.add(c) = shifted(*registers.add(a), |word| word.checked_shl(by));
                }
            }
        }
    }
    Some(())
}

/// Each of four words shifted; zero if it is by more bits than there are.
fn shifted(mut words: [u8; HALF], by: impl Fn(u32) -> Option<u32>) -> [u8; HALF] {
    for word in words.as_chunks_mut::<4>().0 {
        *word = by(u32::from_le_bytes(*word)).unwrap_or(0).to_le_bytes();
    }
    words
}

/// `c += a0 b0 + .. + a3 b3` in each of four words, unsigned by signed. Sums wrap.
fn bytes(c: &mut [u8; HALF], a: [u8; HALF], b: [u8; HALF]) {
    let of = |[a, b]: [[u8; 4]; 2]| (0..4).map(|i| i32::from(a[i]) * i32::from(b[i] as i8)).sum();
    add(c, a, b, of);
}

/// `c += a0 b0 + a1 b1` in each of four words, signed words of half the size. Sums wrap.
fn words(c: &mut [u8; HALF], a: [u8; HALF], b: [u8; HALF]) {
    let two = |x: [u8; 4]| [0, 2].map(|i| i32::from(i16::from_le_bytes([x[i], x[i + 1]])));
    let of = |both: [[u8; 4]; 2]| {
        let [[a0, a1], [b0, b1]] = both.map(two);
        (a0 * b0).wrapping_add(a1 * b1)
    };
    add(c, a, b, of);
}

/// Adds what `of` makes of each of four words.
fn add(c: &mut [u8; HALF], a: [u8; HALF], b: [u8; HALF], of: impl Fn([[u8; 4]; 2]) -> i32) {
    let factors = a.as_chunks::<4>().0.iter().zip(b.as_chunks::<4>().0);
    for (c, (&a, &b)) in c.as_chunks_mut::<4>().0.iter_mut().zip(factors) {
        *c = i32::from_le_bytes(*c).wrapping_add(of([a, b])).to_le_bytes();
    }
}
