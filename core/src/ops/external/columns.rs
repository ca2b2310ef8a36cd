//! Decode and products of formats that store a row for each input: `w[input][output]`. Registers hold neighbouring outputs,
//! and one input is worked on after the other.
//!
//! Outputs are divided into stripes, which are done one after the other. So the sums of a stripe, and the scales and zero
//! points of its current group, stay in the nearest caches, while words are read in the order in which they lie in memory.

use core::mem::MaybeUninit;

use super::grouped::{AwqRef, GptqRef, Grouped};
use super::layout::{centred, from_bit, integer, join, some_words, Awq, Gptq, Layout, VECTORS};
use super::{put, streams, ExternalArgs, UNPACKED};
use crate::element::Element;
use crate::isa::machine::fence;
use crate::isa::machine::into_l2;
use crate::quant::lanes::Lanes;
use crate::vector::Prim;

/// Outputs of a stripe; a whole number of steps of every format.
const STRIPE: usize = 4096;

/// Scales (and zero points) that there is room for: those of a stripe, or of all groups of a narrow one.
const TABLE: usize = STRIPE;

/// Inputs that are read together.
const DEPTH: usize = 32;

/// Sums that consecutive products are added to alternately, at most. A single sum would be limited by the latency of its
/// additions.
const CHAINS: usize = 4;

/// Zero points and scales of groups, and sums.
#[repr(C, align(64))]
struct Tables {
    zeros: [f32; TABLE],
    scales: [f32; TABLE],
    sums: [f32; STRIPE],
}

/// The body for each number below `DEPTH`, a constant in it: a loop that the compiler may leave as it is would
/// compute places of integers while it runs.
macro_rules! each_input {
    (|$t:ident| $body:block) => {
        each_input! { @$t $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 }
    };
    (@$t:ident $body:block $($i:literal)*) => {$(
        {
            #[allow(non_upper_case_globals)]
            const $t: usize = $i;
            $body
        }
    )*};
}

/// Adds the products of `T` inputs with the outputs of vector `V` of a vector of words to their sums. Zero points
/// and scales of input `t` start at `slots[t]`, the same for all unless `ORDERED`.
///
/// # Safety
/// A vector of words in each of their rows, what belongs to them at each pointer; the instruction set.
#[inline(always)]
unsafe fn add_products<P: Lanes, L: Layout, const T: usize, const ORDERED: bool, const V: usize>(
    (w, pitch): (*const u32, usize),
    x: &[f32; DEPTH],
    slots: &[usize; DEPTH],
    (zeros, scales, sums): (*const f32, *const f32, *mut f32),
) {
    let (at, chains) = (V * P::LANES, CHAINS.min(T.div_ceil(4)));
    // SAFETY: the caller's contract.
    unsafe {
        let last = L::place(T - 1, V).0;
        let zero = <P as Prim<f32>>::load(zeros.add(at));
        let mut parts = [P::splat(0.0); CHAINS];
        each_input!(|t| {
            if t < T {
                let (row, bit) = L::place(t, V);
                let (low, high) = (P::words(w.add(row * pitch)), P::words(w.add(last.min(row + 1) * pitch)));
                let (part, x) = (&mut parts[t % chains], P::splat(x[t]));
                if ORDERED {
                    let zero = <P as Prim<f32>>::load(zeros.add(at + slots[t]));
                    let q = centred::<P, L>(low, high, bit, zero);
                    let q = P::mul(q, <P as Prim<f32>>::load(scales.add(at + slots[t])));
                    *part = P::fma(q, x, *part);
                } else {
                    *part = P::fma(centred::<P, L>(low, high, bit, zero), x, *part);
                }
            }
        });
        let mut sum = parts[0];
        for &part in parts.iter().take(chains).skip(1) {
            sum = P::add(sum, part);
        }
        let before = <P as Prim<f32>>::load(sums.add(at));
        let after = if ORDERED {
            P::add(sum, before)
        } else {
            P::fma(sum, <P as Prim<f32>>::load(scales.add(at)), before)
        };
        <P as Prim<f32>>::store(sums.add(at), after);
    }
}

/// [`add_products`] of every vector.
///
/// # Safety
/// The contract of [`add_products`], for each vector.
#[inline(always)]
unsafe fn step<P: Lanes, L: Layout, const T: usize, const ORDERED: bool>(
    w: (*const u32, usize),
    x: &[f32; DEPTH],
    slots: &[usize; DEPTH],
    tables: (*const f32, *const f32, *mut f32),
) {
    // SAFETY: the caller's contract.
    unsafe {
        // Prefetches as many rows as are read here.
        let rows = L::place(T - 1, 0).0 + 1;
        for r in rows..2 * rows {
            into_l2(w.0.wrapping_add(r * w.1).cast());
        }
        add_products::<P, L, T, ORDERED, 0>(w, x, slots, tables);
        if L::VECTORS == VECTORS {
            add_products::<P, L, T, ORDERED, 1>(w, x, slots, tables);
            add_products::<P, L, T, ORDERED, 2>(w, x, slots, tables);
            add_products::<P, L, T, ORDERED, 3>(w, x, slots, tables);
            add_products::<P, L, T, ORDERED, 4>(w, x, slots, tables);
            add_products::<P, L, T, ORDERED, 5>(w, x, slots, tables);
            add_products::<P, L, T, ORDERED, 6>(w, x, slots, tables);
            add_products::<P, L, T, ORDERED, 7>(w, x, slots, tables);
        }
    }
}

/// [`step`] for `words` vectors' worth of words, the last of them in part.
///
/// # Safety
/// `words` words in each row, room for whole vectors at the pointers; the instruction set.
#[inline(always)]
unsafe fn steps<P: Lanes, L: Layout, const T: usize, const ORDERED: bool>(
    (w, pitch, words): (*const u32, usize, usize),
    x: &[f32; DEPTH],
    slots: &[usize; DEPTH],
    (zeros, scales, sums): (*const f32, *const f32, *mut f32),
) {
    // SAFETY: the caller's contract; what is missing of the last vector is made up.
    unsafe {
        let mut rest = MaybeUninit::<[[u32; UNPACKED]; DEPTH / 2]>::uninit();
        for at in (0..words).step_by(P::LANES) {
            let mut here = (w.add(at), pitch);
            if words - at < P::LANES {
                let rest = rest.write([[0; UNPACKED]; DEPTH / 2]);
                for (r, rest) in rest.iter_mut().enumerate().take(L::place(T - 1, 0).0 + 1) {
                    for (i, word) in rest.iter_mut().enumerate().take(words - at) {
                        *word = *w.add(r * pitch + at + i);
                    }
                }
                here = (rest.as_ptr().cast(), UNPACKED);
            }
            let of = at * L::VECTORS;
            let tables = (zeros.add(of), scales.add(of), sums.add(of));
            step::<P, L, T, ORDERED>(here, x, slots, tables);
        }
    }
}

/// Activations of any type. The code of products does not depend on the type: a function widens some activations at a time.
#[derive(Clone, Copy)]
pub(crate) struct Inputs {
    pub(crate) x: *const u8,
    /// Bytes of one.
    pub(crate) size: usize,
    /// [`widen`] for their type.
    pub(crate) widen: unsafe fn(*const u8, usize, *mut f32),
}

impl Inputs {
    /// `n <= DEPTH` activations from the `k`-th, widened.
    ///
    /// # Safety
    /// They exist; the instruction set of `widen`.
    #[inline(always)]
    unsafe fn at(self, k: usize, n: usize) -> [f32; DEPTH] {
        let mut wide = [0.0; DEPTH];
        // SAFETY: the caller's contract; there is room for `DEPTH`.
        unsafe { (self.widen)(self.x.add(k * self.size), n, wide.as_mut_ptr()) };
        wide
    }
}

/// Widens `n` elements.
///
/// # Safety
/// They exist, as elements of type `E`, and there is room for as many at `to`; the instruction set.
#[inline(always)]
pub(crate) unsafe fn widen<E: Element, P: Prim<E> + Prim<f32>>(x: *const u8, n: usize, to: *mut f32) {
    let x = x.cast::<E>();
    for at in (0..n).step_by(P::LANES) {
        let some = P::LANES.min(n - at);
        // SAFETY: at + some <= n.
        unsafe { <P as Prim<f32>>::store_n(to.add(at), <P as Prim<E>>::load_n(x.add(at), some), some) };
    }
}

/// Multiplies all inputs with `n` outputs from `from` on: groups of consecutive inputs.
#[inline(always)]
unsafe fn in_runs<P: Lanes, L: Layout, const T: usize>(
    layout: L,
    (w, x): (&Grouped<'_>, Inputs),
    run: usize,
    (from, n): (usize, usize),
    t: &mut Tables,
) {
    let per = L::VECTORS;
    let (zeros, scales, sums) = (t.zeros.as_mut_ptr(), t.scales.as_mut_ptr(), t.sums.as_mut_ptr());
    // SAFETY: inputs and outputs are bounded by the loops; a stripe's tables have room for it.
    unsafe {
        let mut k = 0;
        let mut group = 0;
        while k < w.inputs {
            layout.group::<P>(w, group, (from, n), (zeros, scales));
            let end = k + run.min(w.inputs - k);
            while k < end {
                // Integers that share words are always read together.
                let deep = per == 1 || end - k >= T;
                let depth = if deep { T } else { 1 };
                let x = x.at(k, depth);
                let (row, pitch) = w.row(if per == 1 { k / DEPTH * L::BITS as usize } else { k });
                let here = (row.add(from / per), pitch, n.div_ceil(per));
                if deep {
                    steps::<P, L, T, false>(here, &x, &[0; DEPTH], (zeros, scales, sums));
                } else {
                    steps::<P, L, 1, false>(here, &x, &[0; DEPTH], (zeros, scales, sums));
                }
                k += depth;
            }
            group += 1;
        }
    }
}

/// The products of a piece where consecutive inputs may be of any groups. Tables of all groups are made beforehand if
/// there is room, else that of each input when it is due.
#[inline(always)]
unsafe fn in_order<P: Lanes, L: Layout>(
    layout: L,
    (w, x): (&Grouped<'_>, Inputs),
    (from, n): (usize, usize),
    width: usize,
    t: &mut Tables,
) {
    let (zeros, scales, sums) = (t.zeros.as_mut_ptr(), t.scales.as_mut_ptr(), t.sums.as_mut_ptr());
    let all = w.groups().saturating_mul(width) <= TABLE;
    // SAFETY: inputs and outputs are bounded by the loops; tables that are not all made have one slot.
    unsafe {
        if all {
            for group in 0..w.groups() {
                let to = (zeros.add(group * width), scales.add(group * width));
                layout.group::<P>(w, group, (from, n), to);
            }
        }
        for k in (0..w.inputs).step_by(DEPTH) {
            let wide = x.at(k, DEPTH);
            let (row, pitch) = w.row(k / DEPTH * L::BITS as usize);
            let mut slots = [0; DEPTH];
            if all {
                for (i, slot) in slots.iter_mut().enumerate() {
                    *slot = w.group_of(k + i) * width;
                }
            }
            if all {
                let here = (row.add(from), pitch, n);
                steps::<P, L, DEPTH, true>(here, &wide, &slots, (zeros, scales, sums));
                continue;
            }
            for (i, &x) in wide.iter().enumerate() {
                layout.group::<P>(w, w.group_of(k + i), (from, n), (zeros, scales));
                for at in (0..n).step_by(P::LANES) {
                    let q = weight::<P, L>((row.add(from + at), pitch, n - at), (i, 0), (zeros, scales), at);
                    let sum = P::fma(q, P::splat(x), <P as Prim<f32>>::load(sums.add(at)));
                    <P as Prim<f32>>::store(sums.add(at), sum);
                }
            }
        }
    }
}

/// Weights of input `t` of those that are read together, of vector `v`, of a vector of words.
///
/// # Safety
/// `words` words in each row, at least one; a vector of zero points and scales from `at` on; the instruction set.
#[inline(always)]
unsafe fn weight<P: Lanes, L: Layout>(
    (w, pitch, words): (*const u32, usize, usize),
    (t, v): (usize, usize),
    (zeros, scales): (*const f32, *const f32),
    at: usize,
) -> P::V {
    let (row, bit) = L::place(t, v);
    // SAFETY: the caller's contract; an integer that reaches into the next row has one.
    unsafe {
        let low = some_words::<P>(w.add(row * pitch), words);
        let high = if bit + L::BITS > 32 { some_words::<P>(w.add((row + 1) * pitch), words) } else { low };
        let q = integer::<P>(from_bit::<P, L>(low, high, bit), L::BITS);
        let q = P::sub(q, <P as Prim<f32>>::load(zeros.add(at)));
        P::mul(q, <P as Prim<f32>>::load(scales.add(at)))
    }
}

/// Stores the vectors that belong to a vector of words, at most `n` outputs.
#[inline(always)]
unsafe fn store<E: Element, P: Prim<E> + Lanes, L: Layout, const PAST: bool>(
    vectors: [P::V; VECTORS],
    to: *mut E,
    n: usize,
) {
    // SAFETY: the caller vouches for room for n outputs and the instruction set.
    unsafe {
        let vectors = if L::VECTORS == 1 { vectors } else { join::<P>(vectors) };
        for (v, &vector) in vectors.iter().enumerate().take(L::VECTORS) {
            let left = n.saturating_sub(v * P::LANES).min(P::LANES);
            put::<E, P, PAST>(to.wrapping_add(v * P::LANES), vector, left);
        }
    }
}

#[inline(always)]
unsafe fn multiply<P: Lanes, L: Layout, const T: usize>(layout: L, w: &Grouped<'_>, x: Inputs, y: *mut f32) {
    let mut tables = Tables { zeros: [0.0; TABLE], scales: [0.0; TABLE], sums: [0.0; STRIPE] };
    let run = w.run().filter(|run| L::VECTORS > 1 || run.is_multiple_of(DEPTH) || *run >= w.inputs);
    // In any order, the tables of all groups have room if stripes are narrow.
    let narrow = TABLE.checked_div(w.groups()).unwrap_or(0) / DEPTH * DEPTH;
    let width = if run.is_some() || narrow == 0 { STRIPE } else { narrow.min(STRIPE) };
    let mut from = 0;
    while from < w.outputs {
        let n = width.min(w.outputs - from);
        tables.sums.fill(0.0);
        // SAFETY: the caller vouches for activations and results; the loops stay within the stripe.
        unsafe {
            if let Some(run) = run {
                in_runs::<P, L, T>(layout, (w, x), run, (from, n), &mut tables);
            } else if L::VECTORS == 1 {
                in_order::<P, L>(layout, (w, x), (from, n), width, &mut tables);
            }
            for at in (0..n).step_by(L::VECTORS * P::LANES) {
                let mut sums = [P::splat(0.0); VECTORS];
                for (v, sum) in sums.iter_mut().enumerate().take(L::VECTORS) {
                    *sum = <P as Prim<f32>>::load(tables.sums.as_ptr().add(at + v * P::LANES));
                }
                store::<f32, P, L, false>(sums, y.add(from + at), n - at);
            }
        }
        from += n;
    }
}

#[inline(always)]
unsafe fn decode<E: Element, P: Prim<E> + Lanes, L: Layout, const PAST: bool, W>(
    layout: L,
    w: &Grouped<'_>,
    g: &ExternalArgs<E, W>,
) {
    let mut tables = Tables { zeros: [0.0; TABLE], scales: [0.0; TABLE], sums: [0.0; STRIPE] };
    let (zeros, scales) = (tables.zeros.as_mut_ptr(), tables.scales.as_mut_ptr());
    let mut from = 0;
    while from < w.outputs {
        let n = STRIPE.min(w.outputs - from);
        let mut current = usize::MAX;
        for k in 0..w.inputs {
            let group = w.group_of(k);
            // SAFETY: inputs and outputs are bounded by the loops; the tables have room for a stripe.
            unsafe {
                if group != current {
                    layout.group::<P>(w, group, (from, n), (zeros, scales));
                    current = group;
                }
                let (row, pitch) = w.row(if L::VECTORS == 1 { k / DEPTH * L::BITS as usize } else { k });
                let row = row.add(from / L::VECTORS);
                for at in (0..n).step_by(L::VECTORS * P::LANES) {
                    let here = (row.add(at / L::VECTORS), pitch, (n - at).div_ceil(L::VECTORS));
                    let mut weights = [P::splat(0.0); VECTORS];
                    for (v, weight) in weights.iter_mut().enumerate().take(L::VECTORS) {
                        let t = if L::VECTORS == 1 { k % DEPTH } else { 0 };
                        *weight = self::weight::<P, L>(here, (t, v), (zeros, scales), at + v * P::LANES);
                    }
                    store::<E, P, L, PAST>(weights, g.out.add(k * g.row_stride + from + at), n - at);
                }
            }
        }
        from += n;
    }
}

/// Decodes, streaming where that can be done.
#[inline(always)]
unsafe fn decode_any<E: Element, P: Prim<E> + Lanes, L: Layout, W>(
    layout: L,
    w: &Grouped<'_>,
    g: &ExternalArgs<E, W>,
) {
    // SAFETY: the caller's contract.
    unsafe {
        if g.access.streamed && streams::<E, P>(g.out, g.row_stride) {
            decode::<E, P, L, true, W>(layout, w, g);
            fence();
        } else {
            decode::<E, P, L, false, W>(layout, w, g);
        }
    }
}

/// The arguments of products.
pub struct ColumnsArgs<W> {
    pub(crate) w: W,
    pub(crate) x: Inputs,
    pub(crate) y: *mut f32,
}

/// # Safety
/// As many elements at `g.x` as there are inputs, at `g.y` as there are outputs, which overlap nothing; the
/// instruction set is present.
#[inline(always)]
pub(crate) unsafe fn qgemv_awq<P: Lanes>(g: &ColumnsArgs<AwqRef<'_>>) {
    // SAFETY: the caller's contract.
    unsafe { multiply::<P, Awq, 8>(Awq, &g.w.0, g.x, g.y) }
}

/// # Safety
/// Room for all weights at `g.out`, rows `g.row_stride` apart, which overlap nothing; the instruction set is
/// present.
#[inline(always)]
pub(crate) unsafe fn dequant_awq<E: Element, P: Prim<E> + Lanes>(g: &ExternalArgs<E, AwqRef<'_>>) {
    // SAFETY: the caller's contract.
    unsafe { decode_any::<E, P, Awq, _>(Awq, &g.w.0, g) }
}

/// # Safety
/// The contract of [`qgemv_awq`].
#[inline(always)]
pub(crate) unsafe fn qgemv_gptq<P: Lanes>(g: &ColumnsArgs<GptqRef<'_>>) {
    let (w, zeros) = (&g.w.grouped, g.w.zeros);
    // SAFETY: the caller's contract.
    unsafe {
        match g.w.bits {
            2 => multiply::<P, Gptq<2>, DEPTH>(Gptq(zeros), w, g.x, g.y),
            3 => multiply::<P, Gptq<3>, DEPTH>(Gptq(zeros), w, g.x, g.y),
            4 => multiply::<P, Gptq<4>, DEPTH>(Gptq(zeros), w, g.x, g.y),
            _ => multiply::<P, Gptq<8>, DEPTH>(Gptq(zeros), w, g.x, g.y),
        }
    }
}

/// # Safety
/// The contract of [`dequant_awq`].
#[inline(always)]
pub(crate) unsafe fn dequant_gptq<E: Element, P: Prim<E> + Lanes>(g: &ExternalArgs<E, GptqRef<'_>>) {
    let (w, zeros) = (&g.w.grouped, g.w.zeros);
    // SAFETY: the caller's contract.
    unsafe {
        match g.w.bits {
            2 => decode_any::<E, P, Gptq<2>, _>(Gptq(zeros), w, g),
            3 => decode_any::<E, P, Gptq<3>, _>(Gptq(zeros), w, g),
            4 => decode_any::<E, P, Gptq<4>, _>(Gptq(zeros), w, g),
            _ => decode_any::<E, P, Gptq<8>, _>(Gptq(zeros), w, g),
        }
    }
}
