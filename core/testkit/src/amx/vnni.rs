//! `vpdpbusd` and its company on the vector registers of an interrupted thread (Intel SDM volume 2; volume 1, section 13.4: where
//! XSAVE, whose format Linux uses, has them).

use super::decode::Vector;

/// Bytes of half a register.
const HALF: usize = 16;
/// Low and high halves of the sixteen registers: where they are, and the bit of the header that says so.
const PARTS: [(usize, u64); 2] = [(160, 2), (576, 4)];
/// Where the header is.
const HEADER: usize = 512;

/// `c += a0 b0 + .. + a3 b3` in each of eight words, unsigned by signed, or a word in all of them. Sums wrap. What is
/// above 256 bits stays: code in this encoding does not have it.
///
/// # Safety
/// `area` has been saved with the parts of AVX; numbers are below 16, and memory is what the instruction needs.
pub(super) unsafe fn execute(area: *mut u8, instruction: Vector) -> Option<()> {
    // SAFETY: the caller's contract; the area is aligned to 64 bytes.
    unsafe {
        let there = area.add(HEADER).cast::<u64>();
        for (at, bit) in PARTS {
            let registers: *mut [u8; HALF] = area.add(at).cast();
            // What is not there is zero, and has not been written.
            if *there & bit == 0 {
                registers.write_bytes(0, 16);
                *there |= bit;
            }
            match instruction {
                Vector::Broadcast { c, at } => {
                    let c = &mut *registers.add(c);
                    c.as_chunks_mut::<4>().0.fill(*(at as *const [u8; 4]));
                }
                Vector::Dot { c, a, b } => dot(&mut *registers.add(c), *registers.add(a), *registers.add(b)),
            }
        }
    }
    Some(())
}

fn dot(c: &mut [u8; HALF], a: [u8; HALF], b: [u8; HALF]) {
    let factors = a.as_chunks::<4>().0.iter().zip(b.as_chunks::<4>().0);
    for (c, (a, b)) in c.as_chunks_mut::<4>().0.iter_mut().zip(factors) {
        let products = a.iter().zip(b).map(|(&a, &b)| i32::from(a) * i32::from(b as i8));
        *c = products.fold(i32::from_le_bytes(*c), i32::wrapping_add).to_le_bytes();
    }
}
