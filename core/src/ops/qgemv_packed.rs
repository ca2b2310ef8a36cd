//! Products of packed quantised weights with activations of 8 bits.

use crate::arrays::Each;
use crate::caps::Prefetches;
use crate::ops::activations::{Activations, Step};
use crate::ops::qpack::PackedQ;
use crate::quant::packed::{self, Packing, Scales, Unit, Values, PANEL_ROWS, STEPS, STEP_COLS};
use crate::vector::Prim;
use crate::view::MatMut;

/// Rows of activations that a kernel takes at a time.
pub(crate) const BATCH: usize = 4;

/// The products of one panel of packed weights with some rows of activations.
#[repr(C)]
pub struct PanelArgs {
    /// The panel.
    pub(crate) w: *const u8,
    /// The first row of activations: [`Step`]s.
    pub(crate) x: *const u8,
    /// Bytes from one row of activations to the next.
    pub(crate) stride: usize,
    /// Units, at least 1.
    pub(crate) units: usize,
    /// Of the last unit: its steps, and the bytes of its head.
    pub(crate) last_steps: usize,
    pub(crate) last_head: usize,
    /// For each row of activations 16 results, zeros before.
    pub(crate) y: *mut [f32; PANEL_ROWS],
    /// Of [`Values::Table`].
    pub(crate) table: [i8; 16],
    /// How weights that are far ahead are prefetched: a [`Prefetches`], as kernels compare it.
    pub(crate) prefetches: usize,
}

/// The baseline. Every kernel computes the same integers. The operations in f32 on them are, for each row of
/// weights and in the order of columns:
///
/// - `t` is a group's integer times the scale of the activations;
/// - [`Scales::Factors`]: in a unit, `u` sums `t` times the factor, `o` the factor of the offset times
///   the sum of the activations; then `y += u * d` and `y += o * m`;
/// - [`Scales::Whole`]: in a unit, `u` sums `t`; then `y += u * d`;
/// - else `y += t * d`, and with offsets `y += m *` the sum of the activations.
///
/// All of these are fused multiply-adds but the first, so every kernel has the same results.
///
/// # Safety
/// What the arguments name exists, weights packed this way; the instruction set.
#[inline(always)]
pub(crate) unsafe fn panel<P: Prim<f32>>(p: &PanelArgs, batch: usize, packing: &Packing) {
    // SAFETY: the caller's contract; units and steps are within the panel and the activations.
    unsafe {
        let mut y = [[0f32; PANEL_ROWS]; BATCH];
        let y = y.get_unchecked_mut(..batch);
        for unit in 0..p.units {
            let steps = if unit + 1 < p.units { STEPS } else { p.last_steps };
            let w = Unit { packing, head: p.w.add(unit * packing.unit_bytes(STEPS)), steps };
            one::<P>(w, p.x.add(unit * STEPS * size_of::<Step>()), p.stride, y);
        }
        for (m, y) in y.iter().enumerate() {
            *p.y.add(m) = *y;
        }
    }
}

/// `y += w x`, for one unit. Codes and scales are unpacked once for all rows of activations, of which there are `stride` bytes
/// from one to the next.
///
/// # Safety
/// The unit, for each of `y` its steps of activations, the instruction set.
#[inline(always)]
unsafe fn one<P: Prim<f32>>(w: Unit<'_>, x: *const u8, stride: usize, y: &mut [[f32; PANEL_ROWS]]) {
    let packing = w.packing;
    let groups = packing.groups();
    let common = matches!(packing.scales, Scales::Factors | Scales::Whole);
    let (mut u, mut o) = ([[0f32; PANEL_ROWS]; BATCH], [[0f32; PANEL_ROWS]; BATCH]);
    // SAFETY: the caller's contract; every group is within the unit.
    unsafe {
        for s in 0..w.steps {
            let codes = w.codes(s);
            let scales = [w.of_group(s * groups), w.of_group(s * groups + groups - 1)];
            for (m, ((y, u), o)) in y.iter_mut().zip(&mut u).zip(&mut o).enumerate() {
                let x = &*x.add(m * stride).cast::<Step>().add(s);
                let mut dots = [[0i32; PANEL_ROWS]; 2];
                for (i, (codes, x)) in codes.iter().zip(x.q.as_chunks::<4>().0).enumerate() {
                    let dots = &mut dots[usize::from(groups == 2 && i >= STEP_COLS / 8)];
                    for (dot, codes) in dots.iter_mut().zip(codes.as_chunks::<4>().0) {
                        *dot += codes.iter().zip(x).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum::<i32>();
                    }
                }
                for (h, (dot, [scale, min])) in dots.iter().zip(&scales).enumerate().take(groups) {
                    let offset = [x.offsets[if groups == 1 { 2 } else { h % 2 }]; PANEL_ROWS];
                    let t = dot.each(|dot| dot as f32 * x.scale);
                    each::<P>(&t, scale, if common { &mut *u } else { &mut *y });
                    if packing.offsets {
                        each::<P>(min, &offset, if common { &mut *o } else { &mut *y });
                    }
                }
            }
        }
        if common {
            let [d, min] = w.of_unit();
            for ((y, u), o) in y.iter_mut().zip(&u).zip(&o) {
                each::<P>(u, &d, y);
                if packing.offsets {
                    each::<P>(o, &min, y);
                }
            }
        }
    }
}

/// `c += a * b`, fused.
///
/// # Safety
/// The instruction set.
#[inline(always)]
unsafe fn each<P: Prim<f32>>(a: &[f32; PANEL_ROWS], b: &[f32; PANEL_ROWS], c: &mut [f32; PANEL_ROWS]) {
    for i in (0..PANEL_ROWS).step_by(P::LANES) {
        // SAFETY: whole vectors of 16 elements.
        unsafe {
            let at = |v: &[f32; PANEL_ROWS]| P::load(v.as_ptr().add(i));
            P::store(c.as_mut_ptr().add(i), P::fma(at(a), at(b), at(c)));
        }
    }
}

/// `y = x w^T`, by `kernel`, which takes up to `step` rows of activations, with these prefetches.
pub(crate) fn products(
    mut y: MatMut<'_, f32>,
    w: PackedQ<'_>,
    packing: &Packing,
    x: Activations<'_>,
    step: usize,
    prefetches: Prefetches,
    kernel: impl Fn(&PanelArgs, usize),
) {
    let (units, last_steps) = packed::units(w.cols());
    let bytes = packing.panel_bytes(w.cols()).unwrap_or(0);
    let table = match packing.values {
        Values::Table(table) => table,
        Values::Linear(_) => [0; 16],
    };
    let step = step.clamp(1, BATCH);
    let (rs, cs, y) = (y.row_stride(), y.col_stride(), y.as_mut_ptr());
    for panel in 0..w.rows().div_ceil(PANEL_ROWS) {
        let panel_w = w.as_ptr().wrapping_add(panel * bytes);
        let rows = (w.rows() - panel * PANEL_ROWS).min(PANEL_ROWS);
        for first in (0..x.batch()).step_by(step) {
            let mut out = [[0f32; PANEL_ROWS]; BATCH];
            let batch = (x.batch() - first).min(step);
            let args = PanelArgs {
                w: panel_w,
                x: x.row(first),
                stride: x.stride(),
                units,
                last_steps,
                last_head: packing.head(last_steps),
                y: out.as_mut_ptr(),
                table,
                prefetches: prefetches as usize,
            };
            if units > 0 {
                kernel(&args, batch);
            }
            for (m, out) in out.iter().enumerate().take(batch) {
                let to = y.wrapping_add((first + m) * rs + panel * PANEL_ROWS * cs);
                // SAFETY: rows and columns are in the view.
                unsafe {
                    if (rows, cs) == (PANEL_ROWS, 1) {
                        *to.cast() = *out;
                    } else {
                        for (r, out) in out.iter().enumerate().take(rows) {
                            *to.add(r * cs) = *out;
                        }
                    }
                }
            }
        }
    }
}
