//! Products with one format, without the kernel table: this program has the code of Q4_0 alone (`ci/firmware` measures it).
//! The result is compared with the blocks' definition.
#![no_std]
#![no_main]

use defmt::info;
use fw_rt::{check, Once};
use gllm_kernels_core::{f16, single, KernelError, MatMut, MatRef, Scratch};
use programs::vectors::{COLS, Q4_0, ROWS};
use programs::{room, Random};

fw_rt::program!(run);

static BUFFER: Once<[u8; room(single::scratch(1, COLS))]> = Once::new([0; _]);

/// Packed on another computer, by `tiny-llm-host --write`; at the start of a cache line, as they were there.
#[repr(align(64))]
struct Aligned<T: ?Sized>(T);
static PACKED: &Aligned<[u8]> = &Aligned(*include_bytes!("../../q4_0.packed"));

/// Weight `i` of the matrix: 18 bytes a block, low nibbles first.
fn weight(i: usize) -> f32 {
    let block = &Q4_0[i / 32 * 18..][..18];
    let d = f16::from_bits(u16::from_le_bytes([block[0], block[1]])).to_f32();
    let code = block[2 + i % 16] >> (i % 32 / 16 * 4) & 15;
    (f32::from(code) - 8.0) * d
}

fn run() -> Result<usize, KernelError> {
    let (mut x, mut y, mut random) = ([0f32; COLS], [0f32; ROWS], Random(9));
    // Whole numbers, with 127 among each 32: rounding to 8 bits changes nothing.
    for (i, x) in x.iter_mut().enumerate() {
        *x = if i % 32 == 0 { 127.0 } else { (random.bits() % 255) as f32 - 127.0 };
    }
    let w = single::q4_0::open(ROWS, COLS, &PACKED.0)?;
    let (activations, to) = (MatRef::new(&x, 1, COLS)?, MatMut::new(&mut y, 1, ROWS)?);
    single::q4_0::run(fw_rt::caps(), to, w, activations, Scratch::new(BUFFER.take()))?;

    let mut wrong = 0;
    for (r, y) in y.iter().enumerate() {
        let terms = || (0..COLS).map(|c| weight(r * COLS + c) * x[c]);
        let (sum, magnitude) = (terms().sum::<f32>(), terms().map(f32::abs).sum::<f32>());
        wrong += check("row", (y - sum).abs() <= 1e-5 * magnitude && magnitude > 0.0);
    }
    info!("{} rows", ROWS);
    Ok(wrong)
}
