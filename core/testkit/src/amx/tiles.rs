//! Tile registers, and what instructions do with them (Intel SDM volume 2: the operation sections).

use std::arch::asm;

use gllm_kernels_core::{bf16, f16};

use super::decode::{Instruction, Memory, Product};

const TILE_ROWS: usize = 16;
const ROW_BYTES: usize = 64;
type TileRegister = [[u8; ROW_BYTES]; TILE_ROWS];

/// The tile registers of a thread. What lies outside of a tile's rows and columns is zero.
#[derive(Clone, Copy)]
pub(super) struct State {
    /// As in memory; all zeros when nothing is configured.
    config: [u8; 64],
    tiles: [TileRegister; 8],
}

impl State {
    pub(super) const INIT: Self = Self { config: [0; 64], tiles: [[[0; ROW_BYTES]; TILE_ROWS]; 8] };

    /// Whether tiles are configured.
    pub(super) fn in_use(&self) -> bool {
        self.config[0] != 0
    }

    /// Rows of a tile, and bytes of each.
    fn shape(&self, tile: usize) -> Option<(usize, usize)> {
        let bytes = u16::from_le_bytes([self.config[16 + 2 * tile], self.config[17 + 2 * tile]]);
        let (rows, bytes) = (usize::from(self.config[48 + tile]), usize::from(bytes));
        (rows != 0 && bytes != 0).then_some((rows, bytes))
    }

    /// Executes an instruction, or does nothing and returns `None` where the CPU would raise an exception.
    ///
    /// # Safety
    /// Memory is what the instruction needs.
    pub(super) unsafe fn execute(&mut self, instruction: Instruction) -> Option<()> {
        // SAFETY: the caller's contract; tiles have 16 rows of 64 bytes.
        unsafe {
            match instruction {
                Instruction::LoadConfig(at) => {
                    let config = *(at as *const [u8; 64]);
                    let new = Self { config, ..Self::INIT };
                    *self = if new.is_valid()? { new } else { Self::INIT };
                }
                Instruction::StoreConfig(at) => *(at as *mut [u8; 64]) = self.config,
                Instruction::Release => *self = Self::INIT,
                Instruction::Zero(tile) => {
                    self.shape(tile)?;
                    self.tiles[tile] = Self::INIT.tiles[0];
                }
                Instruction::Load(tile, Memory { start, stride }) => {
                    let (rows, bytes) = self.shape(tile)?;
                    self.tiles[tile] = Self::INIT.tiles[0];
                    for (i, row) in self.tiles[tile].iter_mut().enumerate().take(rows) {
                        let from = start.wrapping_add(i.wrapping_mul(stride)) as *const u8;
                        row.as_mut_ptr().copy_from_nonoverlapping(from, bytes);
                    }
                }
                Instruction::Store(tile, Memory { start, stride }) => {
                    let (rows, bytes) = self.shape(tile)?;
                    for (i, row) in self.tiles[tile].iter().enumerate().take(rows) {
                        let to = start.wrapping_add(i.wrapping_mul(stride)) as *mut u8;
                        to.copy_from_nonoverlapping(row.as_ptr(), bytes);
                    }
                }
                Instruction::Multiply { product, c, a, b } => {
                    let ((rows, wide), (of_a, deep), (of_b, of_wide)) =
                        (self.shape(c)?, self.shape(a)?, self.shape(b)?);
                    let distinct = c != a && c != b && a != b;
                    let fits = rows == of_a && wide == of_wide && deep == 4 * of_b && wide % 4 == 0;
                    if !(distinct && fits) {
                        return None;
                    }
                    let (a, b) = (self.tiles[a], self.tiles[b]);
                    match product {
                        Product::Bf16 => {
                            pairs(&mut self.tiles[c], &a, &b, rows, of_b, |x| bf16::from_le_bytes(x).to_f32())
                        }
                        Product::F16 => {
                            pairs(&mut self.tiles[c], &a, &b, rows, of_b, |x| f16::from_le_bytes(x).to_f32())
                        }
                        Product::I8 => fours(&mut self.tiles[c], &a, &b, rows, of_b),
                    }
                }
                Instruction::Vector(_) => return None,
            }
        }
        Some(())
    }

    /// Whether the configuration sets up tiles (`false`: it releases them); `None` if it is not allowed.
    fn is_valid(&self) -> Option<bool> {
        let reserved = self.config[1..16].iter().chain(&self.config[32..48]).chain(&self.config[56..]);
        match self.config[0] {
            0 => return Some(false),
            1 if reserved.into_iter().all(|&byte| byte == 0) => {}
            _ => return None,
        }
        let each = |tile| match self.shape(tile) {
            Some((rows, bytes)) => rows <= TILE_ROWS && bytes <= ROW_BYTES,
            // Both are zero, or neither.
            None => self.config[16 + 2 * tile..18 + 2 * tile] == [0, 0] && self.config[48 + tile] == 0,
        };
        (0..8).all(each).then_some(true)
    }
}

/// Products of two bytes each in f32.
///
/// # Safety
/// AVX-512 is there.
unsafe fn pairs(
    c: &mut TileRegister,
    a: &TileRegister,
    b: &TileRegister,
    rows: usize,
    steps: usize,
    wide: fn([u8; 2]) -> f32,
) {
    // Row `k`: the first elements of each pair, then the second ones.
    let mut right = [[0f32; 32]; TILE_ROWS];
    for (right, b) in right.iter_mut().zip(b) {
        for (i, x) in b.as_chunks::<2>().0.iter().enumerate() {
            right[i % 2 * 16 + i / 2] = wide(*x);
        }
    }
    for (c, a) in c.iter_mut().zip(a).take(rows) {
        let mut left = [0f32; 32];
        for (left, x) in left.iter_mut().zip(a.as_chunks::<2>().0) {
            *left = wide(*x);
        }
        // SAFETY: the caller's contract; there are 16 steps.
        unsafe { row_of_pairs(c, &left, &right, steps) };
    }
}

/// A row of [`pairs`]: sums of the first products and of the second ones, by fused multiply-adds; then both
/// together; then with `c`. Denormals are zeros, before and after each operation: the CPU itself does that.
///
/// # Safety
/// `1 <= steps <= 16`.
#[target_feature(enable = "avx512f")]
unsafe fn row_of_pairs(
    c: &mut [u8; ROW_BYTES],
    left: &[f32; 32],
    right: &[[f32; 32]; TILE_ROWS],
    steps: usize,
) {
    /// No exceptions, to nearest even, denormal operands and results are zeros.
    static FLUSH: u32 = 0x9fc0;
    let mut kept = 0u32;
    // SAFETY: reads `steps` steps of both; MXCSR is as before in the end.
    unsafe {
        asm!(
            "stmxcsr [{kept}]",
            "ldmxcsr [{flush}]",
            "vpxord {even}, {even}, {even}",
            "vpxord {odd}, {odd}, {odd}",
            "2:",
            "vbroadcastss {x}, [{left}]",
            "vfmadd231ps {even}, {x}, [{right}]",
            "vbroadcastss {x}, [{left} + 4]",
            "vfmadd231ps {odd}, {x}, [{right} + 64]",
            "add {left}, 8",
            "add {right}, 128",
            "dec {steps}",
            "jnz 2b",
            "vaddps {even}, {even}, {odd}",
            "vmovups {x}, [{c}]",
            "vaddps {x}, {x}, {even}",
            "vmovups [{c}], {x}",
            "ldmxcsr [{kept}]",
            kept = in(reg) &raw mut kept,
            flush = in(reg) &raw const FLUSH,
            c = in(reg) c.as_mut_ptr(),
            left = inout(reg) left.as_ptr() => _,
            right = inout(reg) right.as_ptr() => _,
            steps = inout(reg) steps => _,
            even = out(zmm_reg) _,
            odd = out(zmm_reg) _,
            x = out(zmm_reg) _,
            options(nostack),
        );
    }
}

/// Products of four bytes each, signed, in i32. Sums wrap.
fn fours(c: &mut TileRegister, a: &TileRegister, b: &TileRegister, rows: usize, steps: usize) {
    for (c, a) in c.iter_mut().zip(a).take(rows) {
        for (left, right) in a.as_chunks::<4>().0.iter().zip(b).take(steps) {
            for (c, right) in c.as_chunks_mut::<4>().0.iter_mut().zip(right.as_chunks::<4>().0) {
                let products = left.iter().zip(right).map(|(&x, &y)| i32::from(x as i8) * i32::from(y as i8));
                *c = products.fold(i32::from_le_bytes(*c), i32::wrapping_add).to_le_bytes();
            }
        }
    }
}
