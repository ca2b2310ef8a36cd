//! Panels of weights and activations that the microkernels of `qgemm` read, and the baseline microkernel.
//!
//! A panel of weights is 16 rows, whatever their format: for each four columns 64 bytes, byte `4 * r + t` being the
//! code of row `r`, column `t`; apart from them, for each group 16 f32 scales, and 16 offsets if there are any. A
//! panel of activations is up to 12 rows: for each 32 columns one [`Step`] of each row.

use crate::args::micro::{Panel, PanelType};
use crate::args::unpacker::Unpacked;
use crate::args::unpacker::Unpacker;
use crate::arrays::{from_fn, Each};
use crate::element::Element;
use crate::isa::transpose::Transpose;
use crate::ops::activations::Step;
use crate::ops::ahead::prefetch_lines;
use crate::ops::dequant::CHUNK;
use crate::ops::round;
use crate::quant::bytes::Widen;
use crate::quant::packed::{PANEL_ROWS, STEPS, STEP_COLS};
use crate::quant::MIN_GROUP;
use crate::vector::Prim;

/// Rows of activations in a panel, at most.
pub(crate) const ACTIVATION_ROWS: usize = 12;

/// The bias that makes codes unsigned, for microkernels that multiply unsigned codes. To cancel it, their accumulators start with the
/// negative sum of the activations times the bias.
pub(crate) const BIAS: u8 = 0x80;

/// The bias of [narrow](crate::quant::packed::Packing::narrow) codes, for microkernels that sum products in 16 bits. With a larger bias
/// the sum of two products could overflow 16 bits.
pub(crate) const NARROW_BIAS: u8 = 0x40;

/// Four columns of a panel of weights.
pub(super) type Cell = [u32; PANEL_ROWS];

/// The properties of a format on which the choice of a microkernel depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PanelKind {
    /// Groups have 16 columns, not 32, so that a step has two.
    pub(crate) two_groups: bool,
    pub(crate) offsets: bool,
}

impl PanelKind {
    /// The kind of panels of weights in this format.
    pub(crate) fn of(format: &Unpacker) -> Self {
        Self { two_groups: format.group == MIN_GROUP, offsets: format.offsets }
    }
    /// Its place in lists of kernels.
    pub(crate) fn index(self) -> usize {
        usize::from(self.two_groups) + 2 * usize::from(self.offsets)
    }
    /// The place of kernels that sum half a group of 32 columns, in the list for narrow codes.
    pub(crate) fn index_of_halves(self) -> usize {
        4 + usize::from(self.offsets)
    }
    /// Groups of a step.
    pub(crate) fn groups(self) -> usize {
        1 + usize::from(self.two_groups)
    }
}

/// Some rows of activations times a panel of weights.
#[repr(C)]
pub struct QTileArgs {
    /// The panel: codes, scales, offsets.
    pub(crate) codes: *const u8,
    pub(crate) scales: *const f32,
    pub(crate) offsets: *const f32,
    /// Bytes from each of them to that of the second panel, for microkernels that take two.
    pub(crate) beside: usize,
    /// The first row's first [`Step`]; those of other rows follow.
    pub(crate) x: *const u8,
    /// Bytes to the next step.
    pub(crate) x_step: usize,
    /// At least 1.
    pub(crate) steps: usize,
    /// For each row of activations 16 results of each panel: zeros at first, for microkernels that add to them.
    pub(crate) y: *mut f32,
}

/// The baseline. Every microkernel computes the same integers, and in f32, for each element and step of 32 columns, in
/// their order:
///
/// - `u`: the first group's integer times its scale; then, fused, plus the second's times its;
/// - `y += u * d`, fused, `d` being the activations' scale;
/// - for each group that has an offset, fused, `y +=` the offset times the sum of what the activations stand for.
///
/// # Safety
/// What the arguments name exists, with signed codes; the instruction set.
#[inline(always)]
pub(crate) unsafe fn tile<P: Prim<f32>>(t: &QTileArgs, rows: usize, kind: PanelKind) {
    let groups = kind.groups();
    // SAFETY: the caller's contract; steps and groups are within the panels.
    unsafe {
        for m in 0..rows {
            let mut y = [0f32; PANEL_ROWS];
            for s in 0..t.steps {
                let x = &*t.x.add(s * t.x_step).cast::<Step>().add(m);
                let cells = &*t.codes.cast::<[[i8; 4 * PANEL_ROWS]; STEP_COLS / 4]>().add(s);
                let mut dots = [[0i32; PANEL_ROWS]; 2];
                for (i, (codes, x)) in cells.iter().zip(x.q.as_chunks::<4>().0).enumerate() {
                    let dots = &mut dots[usize::from(kind.two_groups && i >= STEP_COLS / 8)];
                    for (dot, codes) in dots.iter_mut().zip(codes.as_chunks::<4>().0) {
                        *dot += codes.iter().zip(x).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum::<i32>();
                    }
                }
                let sums = dots.each(|dots| dots.each(|dot| dot as f32));
                let scales = t.scales.add(s * groups * PANEL_ROWS);
                let offsets = t.offsets.wrapping_add(s * groups * PANEL_ROWS);
                for i in (0..PANEL_ROWS).step_by(P::LANES) {
                    let at = |p: *const f32, g: usize| <P as Prim<f32>>::load(p.add(g * PANEL_ROWS + i));
                    let sum = |g: usize| {
                        <P as Prim<f32>>::load(sums.as_ptr().cast::<f32>().add(g * PANEL_ROWS + i))
                    };
                    let mut u = P::mul(sum(0), at(scales, 0));
                    if kind.two_groups {
                        u = P::fma(sum(1), at(scales, 1), u);
                    }
                    let to = y.as_mut_ptr().add(i);
                    let mut y = P::fma(u, P::splat(x.scale), <P as Prim<f32>>::load(to));
                    if kind.offsets {
                        for g in 0..groups {
                            let x = x.offsets[if kind.two_groups { g % 2 } else { 2 }];
                            y = P::fma(at(offsets, g), P::splat(x), y);
                        }
                    }
                    <P as Prim<f32>>::store(to, y);
                }
            }
            *t.y.cast::<[f32; PANEL_ROWS]>().add(m) = y;
        }
    }
}

/// What [`panel_x`] works on: a panel of activations.
pub struct PanelXArgs<E> {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) x: *const E,
    /// Elements from one row to the next.
    pub(crate) stride: usize,
    /// Room for a step of each row of the panel for each 32 columns, aligned.
    pub(crate) dst: *mut u8,
    /// Whether microkernels sum products in 16 bits, so that [`Step::sums`] has initial values of 16 bits.
    pub(crate) in_words: bool,
}

/// Initial values of accumulators of 16 bits, in place of [`Step::sums`]: for the first half of the columns, for the second, for both.
/// The lower half of a number is for the first two of each four columns, the upper half for the other two.
#[inline(always)]
fn starts_in_words(q: &[i8; STEP_COLS]) -> [i32; 3] {
    // The remainders change nothing: they show the compiler that no index is out of bounds.
    let number = |i: usize| i16::from(q[i % STEP_COLS]);
    let pairs: [i16; STEP_COLS / 2] = from_fn(|i| number(2 * i) + number(2 * i + 1));
    let [first, second] = [0, STEP_COLS / 4].each(|from| {
        let pair = |k: usize| pairs[(from + k) % (STEP_COLS / 2)];
        let words: [i16; 2] = from_fn(|i| (0..STEP_COLS / 8).fold(0, |sum, k| sum + pair(2 * k + i)));
        words.each(|sum| sum.wrapping_mul(-i16::from(NARROW_BIAS)))
    });
    let both = from_fn(|i| first[i % 2].wrapping_add(second[i % 2]));
    [first, second, both].each(|[low, high]: [i16; 2]| i32::from(low as u16) | i32::from(high) << 16)
}

/// Rounds activations to 8 bits.
///
/// # Safety
/// The rows at `x`, whose columns are whole steps, the room at `dst`; the instruction set.
#[inline(always)]
pub(crate) unsafe fn panel_x<E: Element, P: Prim<E> + Prim<f32>>(a: &PanelXArgs<E>) {
    for r in 0..a.rows {
        // SAFETY: the caller's contract.
        let to = |s: usize| unsafe { &mut *a.dst.cast::<Step>().add(s * a.rows + r) };
        let zeros = [E::ZERO; STEP_COLS];
        for first in (0..a.cols / STEP_COLS).step_by(STEPS) {
            let n = STEPS.min(a.cols / STEP_COLS - first);
            let there = a.x.wrapping_add(r * a.stride + first * STEP_COLS);
            let columns = |s: usize| if s < n { there.wrapping_add(s * STEP_COLS) } else { zeros.as_ptr() };
            // SAFETY: the caller's contract.
            unsafe { round::steps::<E, P>(n, columns, [1.0; 2], |s| to(first + s)) };
            for s in first..first + n {
                let step = to(s);
                step.sums = step.sums.each(|sum| sum * i32::from(BIAS));
            }
        }
        // Afterwards, from memory: where the compiler sees the numbers still in registers, it takes these apart to add them.
        if a.in_words {
            for s in 0..a.cols / STEP_COLS {
                let step = to(s);
                step.sums = starts_in_words(&step.q);
            }
        }
    }
}

/// Where an unpacked panel of weights is.
#[derive(Clone, Copy)]
pub(crate) struct PanelRoom {
    pub(crate) codes: *mut u8,
    pub(crate) scales: *mut f32,
    pub(crate) offsets: *mut f32,
    /// The bias that is added to codes: [`BIAS`], [`NARROW_BIAS`] or 0.
    pub(crate) bias: u8,
}

/// Unpacked rows of weights, before they are transposed into a panel. Padding between rows keeps them from mapping to one set of the
/// cache.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Unsorted {
    codes: [[u8; CHUNK + 64]; PANEL_ROWS],
    scales: [[f32; CHUNK / MIN_GROUP + 16]; PANEL_ROWS],
    offsets: [[f32; CHUNK / MIN_GROUP + 16]; PANEL_ROWS],
}

/// What [`panel_w`] works on: up to 16 rows of weights in place.
pub struct PanelWArgs {
    pub(crate) format: Unpacker,
    pub(crate) rows: usize,
    /// Blocks of a row that are wanted, at least one, and blocks from one row to the next.
    pub(crate) blocks: usize,
    pub(crate) pitch: usize,
    pub(crate) w: *const u8,
    pub(crate) room: *mut Unsorted,
    pub(crate) to: PanelRoom,
}

/// Unpacks rows of weights in place into a panel. If there are fewer than 16 rows, the last one is repeated.
///
/// # Safety
/// The rows at `w`, at least one, room for what they unpack to, the instruction set.
#[inline(always)]
pub(crate) unsafe fn panel_w<P: Transpose>(a: &PanelWArgs) {
    let PanelWArgs { format, rows, blocks, pitch, w, room, to } = *a;
    let (step, kind) = (format.chunk(), PanelKind::of(&format));
    let mut first = 0;
    while first < blocks {
        let n = step.min(blocks - first);
        let (cols, column) = (n * format.len, first * format.len);
        let groups = cols / STEP_COLS * kind.groups();
        // SAFETY: blocks are within the rows; a chunk of each row has room, and so has the panel.
        unsafe {
            let codes = (&raw mut (*room).codes).cast::<[u8; CHUNK + 64]>();
            let scales = (&raw mut (*room).scales).cast::<[f32; CHUNK / MIN_GROUP + 16]>();
            let offsets = (&raw mut (*room).offsets).cast::<[f32; CHUNK / MIN_GROUP + 16]>();
            for r in 0..PANEL_ROWS {
                let out = Unpacked {
                    codes: codes.add(r).cast(),
                    scales: scales.add(r).cast(),
                    offsets: offsets.add(r).cast(),
                };
                (format.unpack)(n, w.add((r.min(rows - 1) * pitch + first) * format.bytes), &out);
                // This row's next blocks, or those of the next panel.
                let next = if first + n < blocks { r * pitch + first + n } else { (r + PANEL_ROWS) * pitch };
                prefetch_lines(w.wrapping_add(next * format.bytes), n * format.bytes);
            }
            let to_codes = to.codes.add(column * PANEL_ROWS).cast();
            by_column::<_, P>(codes, cols / 4, to.bias, to_codes);
            let group = column / STEP_COLS * kind.groups();
            by_column::<_, P>(scales, groups, 0, to.scales.add(group * PANEL_ROWS));
            if kind.offsets {
                by_column::<_, P>(offsets, groups, 0, to.offsets.add(group * PANEL_ROWS));
            }
        }
        first += n;
    }
}

/// Transposes `n` numbers of 32 bits of each of 16 rows, and adds `bias` to each byte of them.
///
/// # Safety
/// The rows; room for 16 times `n` numbers; the instruction set.
#[inline(always)]
unsafe fn by_column<R, P: Transpose>(rows: *const R, n: usize, bias: u8, to: *mut f32) {
    let whole = n - n % P::LANES;
    // SAFETY: the caller's contract.
    unsafe {
        for r in (0..PANEL_ROWS).step_by(P::LANES) {
            for i in (0..whole).step_by(P::LANES) {
                let v = P::transposed(rows.add(r).cast::<f32>().add(i), size_of::<R>());
                let to = to.add(i * PANEL_ROWS + r);
                // Not in ascending order: the compiler would then copy memory, and store the registers there first.
                let half = P::LANES.div_ceil(2);
                for k in 0..half {
                    P::store(to.add(k * PANEL_ROWS), P::add_to_bytes(v[k], bias));
                    if k + half < P::LANES {
                        P::store(to.add((k + half) * PANEL_ROWS), P::add_to_bytes(v[k + half], bias));
                    }
                }
            }
        }
        for r in 0..PANEL_ROWS {
            for i in whole..n {
                let bytes = *rows.add(r).cast::<[u8; 4]>().add(i);
                *to.cast::<[u8; 4]>().add(i * PANEL_ROWS + r) = bytes.each(|byte| byte.wrapping_add(bias));
            }
        }
    }
}

/// What [`decode_panel`] works on: a panel with signed codes.
pub struct DecodePanelArgs<E> {
    pub(crate) kind: PanelKind,
    pub(crate) steps: usize,
    pub(crate) from: PanelRoom,
    /// How panels of `B` lie in memory.
    pub(crate) panel: Panel,
    /// All of them.
    pub(crate) dst: *mut E,
    /// The first of the 16 columns of `B`.
    pub(crate) column: usize,
}

/// Decodes a panel to columns of `B`: bit for bit what `dequant` makes of the weights.
///
/// # Safety
/// The panel, room for panels with all columns, for which [`Panel::is_decoded`] holds; the instruction set.
#[inline(always)]
pub(crate) unsafe fn decode_panel<E: Element, P: Prim<E> + Prim<f32> + Widen>(a: &DecodePanelArgs<E>) {
    // SAFETY: the caller's contract.
    unsafe {
        match a.panel {
            Panel { element: PanelType::F32, kr: 1, .. } => decode::<E, P, true, 1>(a),
            Panel { kr: 1, .. } => decode::<E, P, false, 1>(a),
            Panel { kr: 2, .. } => decode::<E, P, false, 2>(a),
            Panel { kr: 4, .. } => decode::<E, P, false, 4>(a),
            // No microkernel has others: `Micro::checked` does not let them compile.
            _ => {}
        }
    }
}

/// [`decode_panel`] to panels with `KR` steps side by side, of `E`, or of f32 if `WIDE`.
///
/// # Safety
/// The contract of [`decode_panel`]; the panel has such steps and elements.
#[inline(always)]
unsafe fn decode<E: Element, P: Prim<E> + Prim<f32> + Widen, const WIDE: bool, const KR: usize>(
    a: &DecodePanelArgs<E>,
) {
    let DecodePanelArgs { kind, steps, from, panel, dst, column } = *a;
    for i in (0..PANEL_ROWS).step_by(P::LANES) {
        let lane = (column + i) % panel.width.max(1);
        let before = column + i - lane;
        let dst =
            dst.cast::<u8>().wrapping_add(panel.bytes(before, steps * STEP_COLS) + panel.steps(lane, KR));
        for cell in 0..steps * STEP_COLS / 4 {
            let g = if kind.two_groups { cell / (MIN_GROUP / 4) } else { cell / (STEP_COLS / 4) };
            // SAFETY: cells and groups are within the panel, columns within the room.
            unsafe {
                let codes = P::widen_fours(from.codes.add(4 * (cell * PANEL_ROWS + i)).cast());
                let at = |p: *const f32| <P as Prim<f32>>::load(p.add(g * PANEL_ROWS + i));
                let mut numbers = [[E::from_f32(0.0); PANEL_ROWS]; 4];
                for (numbers, codes) in numbers.iter_mut().zip(codes) {
                    let mut v = P::mul(codes, at(from.scales));
                    if kind.offsets {
                        v = P::add(v, at(from.offsets));
                    }
                    <P as Prim<E>>::store(numbers.as_mut_ptr(), v);
                }
                for (t, numbers) in numbers.chunks_exact(KR).enumerate() {
                    let to = dst.add(panel.steps(panel.width, 4 * cell + t * KR));
                    if WIDE {
                        let v = <P as Prim<E>>::load(numbers[0].as_ptr());
                        <P as Prim<f32>>::store(to.cast(), v);
                        continue;
                    }
                    for lane in 0..P::LANES {
                        for (s, numbers) in numbers.iter().enumerate() {
                            to.cast::<E>().add(lane * KR + s).write(numbers[lane]);
                        }
                    }
                }
            }
        }
    }
}
