//! The check whether all quantised weights of a matrix are finite, which looks only at scales and offsets.

use core::mem::MaybeUninit;

use crate::args::unpacker::Made;
use crate::element::Element;
use crate::ops::dequant::Chunk;
use crate::quant::blocks::BlockE4m3;
use crate::quant::{QuantFormat, QuantRef};
use crate::table::Kernels;

/// The bits of 2^120: a scale below that times a code of 8 bits, plus an offset below that, does not overflow.
const LARGE: u32 = (127 + 120) << 23;

/// Whether all magnitudes are below [`LARGE`]; a NaN is not.
fn all_small(numbers: &[f32]) -> bool {
    numbers.iter().fold(0, |most, x| (x.to_bits() & 0x7fff_ffff).max(most)) < LARGE
}

/// # Finite weights
impl<E: Element> Kernels<E> {
    /// Whether scales and offsets alone show that all weights are finite numbers; of formats that are plain floating point, whether
    /// all weights are. `false` means that one may not be, because a scale is a NaN, an infinity or at least 2^120: decoding tells.
    ///
    /// This takes a fraction of the time of [`dequant`](Self::dequant): codes are neither unpacked nor multiplied.
    pub fn surely_finite(&self, w: QuantRef<'_>) -> bool {
        let format = match self.table.formats.of(w.format()) {
            Made::Blocks(format) => format,
            Made::Floats(QuantFormat::E4m3) => {
                let (blocks, _) = w.as_bytes().as_chunks::<{ size_of::<BlockE4m3>() }>();
                // SAFETY: a block.
                return blocks.iter().all(|b| all_small(&[unsafe { BlockE4m3::factor(b.as_ptr()) }]));
            }
            Made::Floats(of) => {
                let exponent = if of == QuantFormat::F16 { 0x7c00 } else { 0x7f80 };
                let (halves, _) = w.as_bytes().as_chunks();
                let magnitude = |&half: &[u8; 2]| u16::from_le_bytes(half) & 0x7fff;
                return halves.iter().fold(0, |most, half| magnitude(half).max(most)) < exponent;
            }
        };
        let mut chunk = MaybeUninit::<Chunk>::uninit();
        let parts = Chunk::parts(&mut chunk);
        let (step, groups) = (format.chunk(), format.len / format.group.max(1));
        let mut done = 0;
        while done < w.blocks() {
            let n = (w.blocks() - done).min(step);
            // SAFETY: the matrix has these blocks, a chunk has room for the scales and offsets of so many, and what is read of
            // it was written; the table's instruction set is present.
            let small = unsafe {
                (format.scales)(n, w.as_bytes().as_ptr().add(done * format.bytes), &parts);
                let numbers = |p: *mut f32| core::slice::from_raw_parts(p, n * groups);
                all_small(numbers(parts.scales)) && (!format.offsets || all_small(numbers(parts.offsets)))
            };
            if !small {
                return false;
            }
            done += n;
        }
        true
    }
}
