//! Decode and products of formats whose rows are inputs: vectors of outputs are worked on for one input after
//! the other.
//!
//! A stripe of outputs is walked at a time, so that its sums, and scales and zero points of its current group stay
//! in the first-level cache while the words are read in the order they lie in. An integer becomes a float by being
//! put below the exponent of 2^23; that and the zero point are subtracted together, exactly.

use super::grouped::{AwqRef, GptqRef, GptqZeros, Grouped};
use super::lanes::Lanes;
use super::{eight, put, streams, ExternalArgs, STEP};
use crate::element::{f16, Element};
use crate::isa::Prim;
use crate::ops::engine::fence;

/// Outputs of a stripe; a whole number of steps of every format.
const STRIPE: usize = 2048;

/// Scales (and zero points) that there is room for: those of a stripe, or of all groups of a narrow one.
const TABLE: usize = 2 * STRIPE;

/// Inputs that are read together.
const DEPTH: usize = 32;

/// Vectors of outputs in a vector of words, at most.
const VECTORS: usize = 8;

/// How integers lie in words.
trait Layout: Copy {
    /// Bits of an integer.
    const BITS: u32;
    /// Vectors of outputs in a vector of words: 1 or 8.
    const VECTORS: usize;

    /// Where integer `t` of the inputs that are read together lies, in vector `v`: the row of words, counted
    /// from the first of these inputs, and the bit, from which on it may reach into the next row.
    fn place(t: usize, v: usize) -> (usize, u32);

    /// Writes 2^23 plus the zero points of group `group`, and its scales, for `range = (from, n)`: `n` outputs, in
    /// vectors ordered as the words' are, `n` rounded up to whole ones.
    ///
    /// # Safety
    /// The group and the outputs exist; `from` is a multiple of 32; there is room; the instruction set.
    unsafe fn group<P: Lanes>(
        self,
        w: &Grouped<'_>,
        group: usize,
        range: (usize, usize),
        to: (*mut f32, *mut f32),
    );
}

/// [`AwqRef`].
#[derive(Clone, Copy)]
struct Awq;

/// Eights of consecutive outputs, an output to a vector, in the order of [`AwqRef`]'s bits.
#[inline(always)]
unsafe fn split<P: Lanes>(c: [P::V; VECTORS]) -> [P::V; VECTORS] {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let halve = |a: [P::V; 2]| P::unzip(a[0], a[1]);
        let pairs = [[c[0], c[1]], [c[2], c[3]], [c[4], c[5]], [c[6], c[7]]].map(halve);
        let quarter = |p: [P::V; 4]| {
            let (a, b) = (halve([p[0], p[1]]), halve([p[2], p[3]]));
            (halve([a.0, b.0]), halve([a.1, b.1]))
        };
        let ((e0, e4), (e2, e6)) = quarter(pairs.map(|p| p.0));
        let ((e1, e5), (e3, e7)) = quarter(pairs.map(|p| p.1));
        [e0, e2, e4, e6, e1, e3, e5, e7]
    }
}

/// The inverse of [`split`].
#[inline(always)]
unsafe fn join<P: Lanes>(v: [P::V; VECTORS]) -> [P::V; VECTORS] {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let [e0, e2, e4, e6, e1, e3, e5, e7] = v;
        let quarter = |e0, e4, e2, e6| {
            let (a, b) = (P::zip(e0, e4), P::zip(e2, e6));
            let (low, high) = (P::zip(a.0, b.0), P::zip(a.1, b.1));
            [low.0, low.1, high.0, high.1]
        };
        let (even, odd) = (quarter(e0, e4, e2, e6), quarter(e1, e5, e3, e7));
        let mut all = [even[0]; VECTORS];
        for i in 0..VECTORS / 2 {
            (all[2 * i], all[2 * i + 1]) = P::zip(even[i], odd[i]);
        }
        all
    }
}

impl Layout for Awq {
    const BITS: u32 = 4;
    const VECTORS: usize = VECTORS;

    #[inline(always)]
    fn place(t: usize, v: usize) -> (usize, u32) {
        (t, 4 * v as u32)
    }

    #[inline(always)]
    unsafe fn group<P: Lanes>(
        self,
        w: &Grouped<'_>,
        group: usize,
        (from, n): (usize, usize),
        (zeros, scales): (*mut f32, *mut f32),
    ) {
        // SAFETY: outputs and words are bounded by n.
        unsafe {
            let (words, halves) = (w.zeros(group).add(from / 8), w.scales(group).add(from));
            let mut at = 0;
            while at < n {
                let z = some_words::<P>(words.add(at / 8), (n - at).div_ceil(8));
                let mut s = [P::splat(0.0); VECTORS];
                for (v, s) in s.iter_mut().enumerate() {
                    let left = (n - at).saturating_sub(v * P::LANES).min(P::LANES);
                    *s = <P as Prim<f16>>::load_n(halves.add(at).wrapping_add(v * P::LANES), left);
                }
                for (v, &s) in split::<P>(s).iter().enumerate() {
                    let to = at + v * P::LANES;
                    <P as Prim<f32>>::store(zeros.add(to), P::whole(P::shr(z, 4 * v as u32), 15));
                    <P as Prim<f32>>::store(scales.add(to), s);
                }
                at += VECTORS * P::LANES;
            }
        }
    }
}

/// [`GptqRef`].
#[derive(Clone, Copy)]
struct Gptq<const BITS: u32>(GptqZeros);

impl<const BITS: u32> Gptq<BITS> {
    /// Lowest bits of the integers in eight of them.
    const ONES: u32 = {
        let (mut ones, mut i) = (0, 0);
        while i < 32 / BITS && i < 8 {
            ones |= 1 << (BITS * i);
            i += 1;
        }
        ones
    };

    /// Adds 1 to each integer, the largest becoming 0.
    #[inline(always)]
    fn plus_one(eight: u32) -> u32 {
        let top = Self::ONES << (BITS - 1);
        ((eight & !top).wrapping_add(Self::ONES)) ^ (eight & top)
    }
}

impl<const BITS: u32> Layout for Gptq<BITS> {
    const BITS: u32 = BITS;
    const VECTORS: usize = 1;

    #[inline(always)]
    fn place(t: usize, _: usize) -> (usize, u32) {
        let bit = t as u32 * BITS;
        ((bit / 32) as usize, bit % 32)
    }

    #[inline(always)]
    unsafe fn group<P: Lanes>(
        self,
        w: &Grouped<'_>,
        group: usize,
        (from, n): (usize, usize),
        (zeros, scales): (*mut f32, *mut f32),
    ) {
        let per_word = if BITS == 8 { 4 } else { 8 };
        // SAFETY: outputs and words are bounded by n.
        unsafe {
            let (words, halves) = (w.zeros(group).add(from / 32 * BITS as usize), w.scales(group).add(from));
            let mut at = 0;
            while at < n {
                // 16 outputs, in eights or fours.
                let mut codes = [0u32; 4];
                for (i, codes) in codes.iter_mut().enumerate().take(STEP / per_word) {
                    if at + i * per_word < n {
                        *codes = eight::<BITS>(at / per_word + i, |word| *words.add(word));
                        if self.0 == GptqZeros::V1 {
                            *codes = Self::plus_one(*codes);
                        }
                    }
                }
                let codes = P::codes::<BITS>(codes);
                for (v, &code) in codes.iter().enumerate().take(STEP / P::LANES) {
                    let to = at + v * P::LANES;
                    let left = n.saturating_sub(to).min(P::LANES);
                    <P as Prim<f32>>::store(zeros.add(to), P::whole(code, (1 << BITS) - 1));
                    let s = <P as Prim<f16>>::load_n(halves.wrapping_add(to), left);
                    <P as Prim<f32>>::store(scales.add(to), s);
                }
                at += STEP;
            }
        }
    }
}

/// The first `n` of `LANES` words, and zeros.
///
/// # Safety
/// They exist; the instruction set.
#[inline(always)]
unsafe fn some_words<P: Lanes>(p: *const u32, n: usize) -> P::I {
    // SAFETY: the caller's contract; 16 words are enough for every instruction set.
    unsafe {
        if n >= P::LANES {
            return P::words(p);
        }
        let mut words = [0u32; STEP];
        for (i, w) in words.iter_mut().enumerate().take(n) {
            *w = *p.add(i);
        }
        P::words(words.as_ptr())
    }
}

/// Integer `t` of vector `v`, with other bits above it.
#[inline(always)]
unsafe fn code<P: Lanes, L: Layout>(t: usize, v: usize, row: impl Fn(usize) -> P::I) -> P::I {
    let (at, bit) = L::place(t, v);
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let low = P::shr(row(at), bit);
        if bit + L::BITS > 32 {
            P::or(low, P::shl(row(at + 1), 32 - bit))
        } else {
            low
        }
    }
}

/// Zero points and scales of groups, and sums.
struct Tables {
    zeros: [f32; TABLE],
    scales: [f32; TABLE],
    sums: [f32; STRIPE],
}

/// Adds the products of `T` inputs with the outputs of a vector of words to their sums. Zero points and scales of
/// input `t` start at `slots[t]`, the same for all unless `ORDERED`.
///
/// # Safety
/// `words` words and what belongs to them at each pointer; the instruction set.
#[inline(always)]
unsafe fn step<P: Lanes, L: Layout, const T: usize, const ORDERED: bool>(
    (w, pitch, words): (*const u32, usize, usize),
    x: &[f32; DEPTH],
    slots: &[usize; DEPTH],
    (zeros, scales, sums): (*const f32, *const f32, *mut f32),
) {
    // SAFETY: the caller's contract.
    unsafe {
        // Where the last input lies, and one row more.
        let rows = L::place(T - 1, 0).0 + 1;
        let first = some_words::<P>(w, words);
        let mut read = [first; VECTORS];
        for (r, read) in read.iter_mut().enumerate().take(rows).skip(1) {
            *read = some_words::<P>(w.add(r * pitch), words);
        }
        for v in 0..L::VECTORS {
            let at = v * P::LANES;
            let mut parts = [P::splat(0.0); 4];
            for t in 0..T {
                let q = code::<P, L>(t, v, |r| read[r % VECTORS]);
                let slot = at + if ORDERED { slots[t] } else { 0 };
                let zero = <P as Prim<f32>>::load(zeros.add(slot));
                let mut q = P::sub(P::whole(q, (1 << L::BITS) - 1), zero);
                if ORDERED {
                    q = P::mul(q, <P as Prim<f32>>::load(scales.add(slot)));
                }
                parts[t % 4] = P::fma(q, P::splat(x[t]), parts[t % 4]);
            }
            let sum = P::add(P::add(parts[0], parts[1]), P::add(parts[2], parts[3]));
            let before = <P as Prim<f32>>::load(sums.add(at));
            let after = if ORDERED {
                P::add(sum, before)
            } else {
                P::fma(sum, <P as Prim<f32>>::load(scales.add(at)), before)
            };
            <P as Prim<f32>>::store(sums.add(at), after);
        }
    }
}

/// `n <= DEPTH` activations, widened.
///
/// # Safety
/// They exist; the instruction set.
#[inline(always)]
unsafe fn widen<E: Element, P: Prim<E> + Lanes>(x: *const E, n: usize) -> [f32; DEPTH] {
    let mut wide = [0.0; DEPTH];
    let mut at = 0;
    while at < n {
        let some = P::LANES.min(n - at);
        // SAFETY: at + some <= n <= DEPTH.
        unsafe {
            <P as Prim<f32>>::store_n(
                wide.as_mut_ptr().add(at),
                <P as Prim<E>>::load_n(x.add(at), some),
                some,
            )
        };
        at += some;
    }
    wide
}

/// Multiplies all inputs with `n` outputs from `from` on: groups of consecutive inputs.
#[inline(always)]
unsafe fn in_runs<E: Element, P: Prim<E> + Lanes, L: Layout, const T: usize>(
    layout: L,
    (w, x): (&Grouped<'_>, *const E),
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
                let x = widen::<E, P>(x.add(k), depth);
                let (row, pitch) = w.row(if per == 1 { k / DEPTH * L::BITS as usize } else { k });
                let words = n.div_ceil(per);
                let mut at = 0;
                while at < words {
                    let here = (row.add(from / per + at), pitch, words - at);
                    let of = at * per;
                    let tables = (zeros.cast_const().add(of), scales.cast_const().add(of), sums.add(of));
                    if deep {
                        step::<P, L, T, false>(here, &x, &[0; DEPTH], tables);
                    } else {
                        step::<P, L, 1, false>(here, &x, &[0; DEPTH], tables);
                    }
                    at += P::LANES;
                }
                k += depth;
            }
            group += 1;
        }
    }
}

/// The same where consecutive inputs may be of any groups. Tables of all groups are made if there is room, else
/// that of an input when it is due.
#[inline(always)]
unsafe fn in_order<E: Element, P: Prim<E> + Lanes, L: Layout>(
    layout: L,
    (w, x): (&Grouped<'_>, *const E),
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
            let wide = widen::<E, P>(x.add(k), DEPTH);
            let (row, pitch) = w.row(k / DEPTH * L::BITS as usize);
            let mut slots = [0; DEPTH];
            if all {
                for (i, slot) in slots.iter_mut().enumerate() {
                    *slot = w.group_of(k + i) * width;
                }
            }
            let tables = |at: usize| (zeros.cast_const().add(at), scales.cast_const().add(at), sums.add(at));
            if all {
                for at in (0..n).step_by(P::LANES) {
                    let here = (row.add(from + at), pitch, n - at);
                    step::<P, L, DEPTH, true>(here, &wide, &slots, tables(at));
                }
                continue;
            }
            for (i, &x) in wide.iter().enumerate() {
                layout.group::<P>(w, w.group_of(k + i), (from, n), (zeros, scales));
                for at in (0..n).step_by(P::LANES) {
                    let row = |r: usize| some_words::<P>(row.add(r * pitch + from + at), n - at);
                    let (zeros, scales, sums) = tables(at);
                    let q = P::whole(code::<P, L>(i, 0, row), (1 << L::BITS) - 1);
                    let q = P::sub(q, <P as Prim<f32>>::load(zeros));
                    let q = P::mul(q, <P as Prim<f32>>::load(scales));
                    <P as Prim<f32>>::store(sums, P::fma(q, P::splat(x), <P as Prim<f32>>::load(sums)));
                }
            }
        }
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
unsafe fn multiply<E: Element, P: Prim<E> + Lanes, L: Layout, const T: usize>(
    layout: L,
    w: &Grouped<'_>,
    x: *const E,
    y: *mut f32,
) {
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
                in_runs::<E, P, L, T>(layout, (w, x), run, (from, n), &mut tables);
            } else if L::VECTORS == 1 {
                in_order::<E, P, L>(layout, (w, x), (from, n), width, &mut tables);
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
                    let words = (n - at).div_ceil(L::VECTORS);
                    let row = |r: usize| some_words::<P>(row.add(r * pitch + at / L::VECTORS), words);
                    let mut weights = [P::splat(0.0); VECTORS];
                    for (v, weight) in weights.iter_mut().enumerate().take(L::VECTORS) {
                        let t = if L::VECTORS == 1 { k % DEPTH } else { 0 };
                        let q = P::whole(code::<P, L>(t, v, row), (1 << L::BITS) - 1);
                        let at = at + v * P::LANES;
                        let q = P::sub(q, <P as Prim<f32>>::load(zeros.add(at)));
                        *weight = P::mul(q, <P as Prim<f32>>::load(scales.add(at)));
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

/// # Safety
/// As many elements at `g.x` as there are inputs, at `g.y` as there are outputs, which overlap nothing; the
/// instruction set is present.
#[inline(always)]
pub(crate) unsafe fn qgemv_awq<E: Element, P: Prim<E> + Lanes>(g: &ExternalArgs<E, AwqRef<'_>>) {
    // SAFETY: the caller's contract.
    unsafe { multiply::<E, P, Awq, 8>(Awq, &g.w.0, g.x, g.y) }
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
/// As for [`qgemv_awq`].
#[inline(always)]
pub(crate) unsafe fn qgemv_gptq<E: Element, P: Prim<E> + Lanes>(g: &ExternalArgs<E, GptqRef<'_>>) {
    let (w, zeros) = (&g.w.grouped, g.w.zeros);
    // SAFETY: the caller's contract.
    unsafe {
        match g.w.bits {
            2 => multiply::<E, P, Gptq<2>, DEPTH>(Gptq(zeros), w, g.x, g.y),
            3 => multiply::<E, P, Gptq<3>, DEPTH>(Gptq(zeros), w, g.x, g.y),
            4 => multiply::<E, P, Gptq<4>, DEPTH>(Gptq(zeros), w, g.x, g.y),
            _ => multiply::<E, P, Gptq<8>, DEPTH>(Gptq(zeros), w, g.x, g.y),
        }
    }
}

/// # Safety
/// As for [`dequant_awq`].
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
