//! Matrix products of int8: `C` is i32. Sums are exact modulo 2^32.

mod pack;

use crate::args::micro::MicroArgs;
use crate::isa::InstructionSet;
use crate::ops::tile::{FinishArgs, MergeArgs};
pub(crate) use pack::pack;

/// The baseline: panels of i8, one step at a time, whole tiles.
///
/// # Safety
/// The contract of [`Micro::call`](crate::args::micro::Micro::call).
#[inline(always)]
pub(crate) unsafe fn tile<P: InstructionSet>(t: &MicroArgs) {
    // SAFETY: the caller's contract; these are the only tiles.
    unsafe {
        match (P::TILE.rows, P::TILE.cols) {
            (8, 32) => product::<8, 32>(t),
            (4, 24) => product::<4, 24>(t),
            (8, 8) => product::<8, 8>(t),
            _ => product::<4, 4>(t),
        }
    }
}

#[inline(always)]
unsafe fn product<const ROWS: usize, const COLS: usize>(t: &MicroArgs) {
    let mut acc = [[0i32; COLS]; ROWS];
    let (mut a, mut b): (*const i8, *const [i8; COLS]) = (t.a.cast(), t.b.cast());
    // SAFETY: the caller's contract: `steps` steps of both panels, a whole tile of `C`, which need not
    // be aligned.
    unsafe {
        for _ in 0..t.steps {
            let row = (*b).map(i32::from);
            for (r, acc) in acc.iter_mut().enumerate() {
                let x = i32::from(*a.add(r));
                for (acc, &b) in acc.iter_mut().zip(&row) {
                    *acc = acc.wrapping_add(x * b);
                }
            }
            a = a.add(ROWS);
            b = b.add(1);
        }
        for (r, acc) in acc.iter().enumerate() {
            let c: *mut [i32; COLS] = t.c.add(r * t.ldc).cast();
            if t.beta == 0.0 {
                c.write_unaligned(*acc);
            } else {
                let mut sum = c.read_unaligned();
                for (c, &acc) in sum.iter_mut().zip(acc) {
                    *c = c.wrapping_add(acc);
                }
                c.write_unaligned(sum);
            }
        }
    }
}

/// `C = tile + beta * C` for a beta of 0 or 1.
///
/// # Safety
/// `rows x cols` elements, i32, at both strides; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn merge(m: &MergeArgs) {
    let (tile, c): (*const i32, *mut i32) = (m.tile.cast(), m.c.cast());
    for r in 0..m.rows {
        for j in 0..m.cols {
            // SAFETY: the caller's contract.
            unsafe {
                let p = c.add(r * m.row_stride + j * m.col_stride);
                let old = if m.beta == 0.0 { 0 } else { *p };
                *p = old.wrapping_add(*tile.add(r * m.width + j));
            }
        }
    }
}

/// `C = C + bias`.
///
/// # Safety
/// `rows x cols` elements, i32, at the strides, as many of the bias as there are rows or columns; the
/// instruction set is present.
#[inline(always)]
pub(crate) unsafe fn finish(f: &FinishArgs) {
    let (c, bias): (*mut i32, *const i32) = (f.c.cast(), f.bias.cast());
    for r in 0..f.rows {
        for j in 0..f.cols {
            // SAFETY: the caller's contract.
            unsafe {
                let p = c.add(r * f.row_stride + j * f.col_stride);
                *p = (*p).wrapping_add(*bias.add(r * f.bias_row + j * f.bias_col));
            }
        }
    }
}
