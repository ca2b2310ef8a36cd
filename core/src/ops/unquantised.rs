//! The formats F16 and BF16, whose weights are plain floating-point numbers: decode, encode and products. Such weights have
//! no blocks to unpack. They are loaded from any address and widened to f32. E4M3 has blocks, and loops of its own:
//! [`e4m3`](crate::ops::e4m3).

use core::marker::PhantomData;

use crate::arrays::from_fn;
use crate::element::{bf16, f16, Element, ElementType};
use crate::isa::machine::LINE;
use crate::ops::ahead::{prefetch_rows, Ahead, Order, FAR, NEAR, ROWS_SIDE_BY_SIDE};
use crate::ops::e4m3;
use crate::ops::engine::{stream, sweep, Access, Sweep};
use crate::ops::qgemv::QgemvArgs;
use crate::quant::lanes::Lanes;
use crate::quant::QuantFormat;
use crate::vector::Prim;

/// Bytes of a weight.
pub(crate) const SIZE: usize = 2;

/// Activations that are multiplied at a time, of all rows together: as f32 they take 16 KiB of L1.
const ACTIVATIONS_AT_ONCE: usize = 4096;

/// Sums of a product, which consecutive vectors are added to alternately. A single sum would be limited by the latency of
/// its additions, not by memory.
const CHAINS: usize = 2;

/// The arguments of [`decode`].
pub struct UnquantisedDecodeArgs<E> {
    /// A format of floating point.
    pub(crate) of: QuantFormat,
    pub(crate) n: usize,
    pub(crate) w: *const u8,
    pub(crate) y: *mut E,
    pub(crate) access: Access,
}

/// The arguments of [`encode`].
pub struct UnquantisedEncodeArgs<E> {
    /// [`F16`](ElementType::F16) or [`Bf16`](ElementType::Bf16).
    pub(crate) to: ElementType,
    pub(crate) n: usize,
    pub(crate) x: *const E,
    pub(crate) w: *mut u8,
}

/// Weights of a product.
pub struct Unquantised {
    /// A format of floating point.
    pub(crate) of: QuantFormat,
    /// Whether a row of activations is multiplied with one row of weights at a time: the fastest order where the hardware
    /// prefetcher follows consecutive addresses.
    pub(crate) alone: bool,
}

/// The arguments of [`qgemv`].
pub type UnquantisedGemvArgs<E> = QgemvArgs<E, Unquantised>;

/// Turns numbers in memory to the order of bytes that this CPU has, or back: weights are little-endian.
///
/// # Safety
/// `N` numbers at `bytes`.
#[inline(always)]
unsafe fn in_order<const N: usize>(bytes: *mut u8) {
    if cfg!(target_endian = "big") {
        // SAFETY: the caller's contract.
        unsafe { &mut *bytes.cast::<[[u8; SIZE]; N]>() }.iter_mut().for_each(|number| number.reverse());
    }
}

/// The first `n <= LANES` weights, which are little-endian, and zeros.
///
/// # Safety
/// `n` weights at `w`; the instruction set.
#[inline(always)]
unsafe fn load<W: Element, P: Prim<W>>(w: *const u8, n: usize) -> P::V {
    // SAFETY: the caller's contract. An array as long as a vector becomes an unaligned load; a longer one would be filled
    // in memory.
    unsafe {
        match (n == P::LANES, P::LANES) {
            (true, 4) => load_from::<W, P, 4>(w, 4),
            (true, 8) => load_from::<W, P, 8>(w, 8),
            _ => load_from::<W, P, 16>(w, n),
        }
    }
}

/// # Safety
/// The contract of [`load`], with `n <= N` and `LANES <= N`.
#[inline(always)]
unsafe fn load_from<W: Element, P: Prim<W>, const N: usize>(w: *const u8, n: usize) -> P::V {
    let mut numbers = [W::ZERO; N];
    let bytes = numbers.as_mut_ptr().cast::<u8>();
    // SAFETY: the caller's contract; any two bytes are a weight.
    unsafe {
        core::ptr::copy_nonoverlapping(w, bytes, n * SIZE);
        in_order::<N>(bytes);
        P::load(numbers.as_ptr())
    }
}

/// A walk over weights that are decoded.
struct Decode<W, E, P, const STREAM: bool> {
    w: *const u8,
    y: *mut E,
    of: PhantomData<(W, P)>,
}

impl<W: Element, E: Element, P: Prim<W> + Prim<E>, const STREAM: bool> Sweep for Decode<W, E, P, STREAM> {
    #[inline(always)]
    unsafe fn full(&mut self, _lane: usize, i: usize) {
        // SAFETY: the caller vouches for the indices and the instruction set.
        unsafe {
            let (v, y) = (load::<W, P>(self.w.add(i * SIZE), P::LANES), self.y.add(i));
            if STREAM {
                <P as Prim<E>>::stream(y, v);
            } else {
                <P as Prim<E>>::store(y, v);
            }
        }
    }
    #[inline(always)]
    unsafe fn part(&mut self, i: usize, len: usize) {
        // SAFETY: the caller vouches for the indices and the instruction set.
        unsafe { <P as Prim<E>>::store_n(self.y.add(i), load::<W, P>(self.w.add(i * SIZE), len), len) }
    }
}

/// # Safety
/// The contract of [`decode`].
#[inline(always)]
unsafe fn decode_from<W: Element, E: Element, P: Prim<W> + Prim<E>>(d: &UnquantisedDecodeArgs<E>) {
    let UnquantisedDecodeArgs { n, w, y, access, .. } = *d;
    // SAFETY: the caller's contract.
    unsafe {
        if P::STREAMS && access.streamed {
            stream::<E, P, 4>(&mut Decode::<W, E, P, true> { w, y, of: PhantomData }, n, y, access);
        } else {
            sweep::<E, P, 4>(&mut Decode::<W, E, P, false> { w, y, of: PhantomData }, 0, n, access);
        }
    }
}

/// Decodes `n` weights, whole blocks of them.
///
/// # Safety
/// They are at `w`, room for them at `y`, which does not overlap them; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn decode<E: Element, P: Prim<E> + Prim<bf16> + Lanes>(d: &UnquantisedDecodeArgs<E>) {
    // SAFETY: the caller's contract.
    unsafe {
        match d.of {
            QuantFormat::E4m3 => e4m3::decode::<E, P>(d.n, d.w, d.y, d.access.streamed),
            QuantFormat::Bf16 => decode_from::<bf16, E, P>(d),
            _ => decode_from::<f16, E, P>(d),
        }
    }
}

/// The first `n <= LANES` numbers of a vector, as weights.
///
/// # Safety
/// Room for `n` weights at `w`; the instruction set.
#[inline(always)]
unsafe fn store<W: Element, P: Prim<W>>(w: *mut u8, v: P::V, n: usize) {
    let mut numbers = [W::ZERO; 16];
    // SAFETY: LANES <= 16.
    unsafe {
        P::store(numbers.as_mut_ptr(), v);
        let bytes = numbers.as_mut_ptr().cast::<u8>();
        in_order::<16>(bytes);
        core::ptr::copy_nonoverlapping(bytes.cast_const(), w, n * SIZE);
    }
}

/// # Safety
/// The contract of [`encode`].
#[inline(always)]
unsafe fn encode_to<W: Element, E: Element, P: Prim<W> + Prim<E>>(e: &UnquantisedEncodeArgs<E>) {
    let UnquantisedEncodeArgs { n, x, w, .. } = *e;
    let mut i = 0;
    // SAFETY: elements below `n`.
    unsafe {
        while n - i >= P::LANES {
            store::<W, P>(w.add(i * SIZE), <P as Prim<E>>::load(x.add(i)), P::LANES);
            i += P::LANES;
        }
        if i < n {
            store::<W, P>(w.add(i * SIZE), <P as Prim<E>>::load_n(x.add(i), n - i), n - i);
        }
    }
}

/// Rounds `n` numbers to weights, to nearest even.
///
/// # Safety
/// They are at `x`, room for the weights at `w`, which does not overlap them; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn encode<E: Element, P: Prim<E> + Prim<f16> + Prim<bf16>>(e: &UnquantisedEncodeArgs<E>) {
    // SAFETY: the caller's contract.
    unsafe {
        match e.to {
            ElementType::Bf16 => encode_to::<bf16, E, P>(e),
            _ => encode_to::<f16, E, P>(e),
        }
    }
}

/// The products of `N` rows of weights, from row `r`, with `M` rows of activations, from row `m`: `R` rows at a time.
/// The order of additions does not depend on their number.
///
/// # Safety
/// The contract of [`qgemv`], for these rows.
#[inline(always)]
pub(crate) unsafe fn rows<
    W: Element,
    E: Element,
    P: Prim<W> + Prim<E>,
    const N: usize,
    const R: usize,
    const M: usize,
>(
    g: &UnquantisedGemvArgs<E>,
    [r, m]: [usize; 2],
    ahead: &mut Ahead<W>,
) {
    // SAFETY: the rows are the matrix's, columns are below `cols`; the instruction set.
    unsafe {
        let mut sums = [[[P::splat(0.0); CHAINS]; M]; N];
        let mut start = 0;
        while start < g.cols {
            let end = g.cols.min(start + const { ACTIVATIONS_AT_ONCE / M });
            for (i, sums) in sums.as_chunks_mut::<R>().0.iter_mut().enumerate() {
                *sums = tile::<W, E, P, N, R, M>(g, [r + i * R, m], [start, end], ahead, *sums);
            }
            start = end;
        }
        let [next_m, next_r] = g.y_strides;
        for (i, sums) in sums.iter().enumerate() {
            for (k, &[even, odd]) in sums.iter().enumerate() {
                *g.y.add((m + k) * next_m + (r + i) * next_r) = P::reduce_sum(P::add(even, odd));
            }
        }
    }
}

/// Adds the products of columns `j .. end` of `R` of `N` rows of weights, from row `r`, with `M` rows of activations, from row
/// `m`.
///
/// # Safety
/// They exist; the instruction set.
#[inline(always)]
unsafe fn tile<
    W: Element,
    E: Element,
    P: Prim<W> + Prim<E>,
    const N: usize,
    const R: usize,
    const M: usize,
>(
    g: &UnquantisedGemvArgs<E>,
    [r, m]: [usize; 2],
    [mut j, end]: [usize; 2],
    ahead: &mut Ahead<W>,
    mut sums: [[[P::V; CHAINS]; M]; R],
) -> [[[P::V; CHAINS]; M]; R] {
    // SAFETY: the caller vouches for rows and columns.
    unsafe {
        let w: [*const u8; R] = from_fn(|i| g.w.wrapping_add((r + i) * g.cols * SIZE));
        let x: [*const E; M] = from_fn(|i| g.x.wrapping_add((m + i) * g.x_stride));
        while end - j >= LINE / SIZE {
            prefetch_rows(&w, j * SIZE, if N == 1 { FAR } else { NEAR });
            ahead.prefetch();
            for _ in 0..LINE / SIZE / P::LANES / CHAINS {
                sums = step::<W, E, P, R, M>(&w, &x, [j, P::LANES], 0, sums);
                sums = step::<W, E, P, R, M>(&w, &x, [j + P::LANES, P::LANES], 1, sums);
                j += CHAINS * P::LANES;
            }
        }
        let mut k = 0;
        while j < end {
            let n = P::LANES.min(end - j);
            sums = step::<W, E, P, R, M>(&w, &x, [j, n], k % CHAINS, sums);
            j += n;
            k += 1;
        }
    }
    sums
}

/// Adds the products of `n <= LANES` columns from `j` to this chain of the sums.
///
/// # Safety
/// They exist; the instruction set.
#[inline(always)]
unsafe fn step<W: Element, E: Element, P: Prim<W> + Prim<E>, const R: usize, const M: usize>(
    w: &[*const u8; R],
    x: &[*const E; M],
    [j, n]: [usize; 2],
    chain: usize,
    mut sums: [[[P::V; CHAINS]; M]; R],
) -> [[[P::V; CHAINS]; M]; R] {
    // SAFETY: the caller vouches for the columns.
    unsafe {
        let x: [P::V; M] = from_fn(|i| {
            let x = x[i].add(j);
            if n == P::LANES {
                <P as Prim<E>>::load(x)
            } else {
                <P as Prim<E>>::load_n(x, n)
            }
        });
        // By indices: for AVX2 `zip` is not inlined, and would keep the sums in memory.
        for r in 0..R {
            let w = load::<W, P>(w[r].add(j * SIZE), n);
            for i in 0..M {
                let [even, odd] = &mut sums[r][i];
                let sum = if chain == 0 { even } else { odd };
                *sum = P::fma(w, x[i], *sum);
            }
        }
    }
    sums
}

/// The products of [`ROWS_SIDE_BY_SIDE`] rows of weights from row `r`: of `R1`, `R2` or `R4` rows at a time, with one, two or four rows
/// of activations.
///
/// # Safety
/// The contract of [`qgemv`], for these rows.
#[inline(always)]
unsafe fn side<
    W: Element,
    E: Element,
    P: Prim<W> + Prim<E>,
    const R1: usize,
    const R2: usize,
    const R4: usize,
>(
    g: &UnquantisedGemvArgs<E>,
    r: usize,
    ahead: &mut Ahead<W>,
) {
    let mut m = 0;
    // SAFETY: the caller's contract.
    unsafe {
        while g.batch - m >= 4 {
            rows::<W, E, P, ROWS_SIDE_BY_SIDE, R4, 4>(g, [r, m], ahead);
            m += 4;
        }
        if g.batch - m >= 2 {
            rows::<W, E, P, ROWS_SIDE_BY_SIDE, R2, 2>(g, [r, m], ahead);
            m += 2;
        }
        if m < g.batch {
            rows::<W, E, P, ROWS_SIDE_BY_SIDE, R1, 1>(g, [r, m], ahead);
        }
    }
}

/// # Safety
/// The contract of [`qgemv`].
#[inline(always)]
unsafe fn products<W: Element, E: Element, P: Prim<W> + Prim<E>>(g: &UnquantisedGemvArgs<E>) {
    let whole =
        if g.weights.alone && g.batch == 1 { 0 } else { g.rows / ROWS_SIDE_BY_SIDE * ROWS_SIDE_BY_SIDE };
    // How often the loop over eight rows calls for prefetches of the next eight: each time that some of them meet the first
    // rows of activations.
    let passes = match g.batch {
        0 | 1 => 1,
        2 | 3 => 2,
        _ => 4,
    };
    // AVX2 has half as many registers as others.
    let turns = (passes << const { (P::LANES == 8) as usize }) * (g.cols / (LINE / SIZE));
    // SAFETY: rows are below `rows` and `batch`.
    unsafe {
        for r in (0..whole).step_by(ROWS_SIDE_BY_SIDE) {
            let rows = [r, ROWS_SIDE_BY_SIDE, g.rows];
            let mut ahead = Ahead::behind(g.order, g.w.cast(), rows, [g.cols, g.cols], turns);
            if const { P::LANES == 8 } {
                side::<W, E, P, 4, 2, 1>(g, r, &mut ahead);
            } else {
                side::<W, E, P, 8, 4, 2>(g, r, &mut ahead);
            }
        }
        let mut ahead = Ahead::new(Order::Off, core::ptr::null(), 0, 0, 0, 0);
        for r in whole..g.rows {
            for m in 0..g.batch {
                rows::<W, E, P, 1, 1, 1>(g, [r, m], &mut ahead);
            }
        }
    }
}

/// Weights times activations, in f32.
///
/// # Safety
/// `rows` of `cols` weights at `w`, `batch` rows of `cols` elements at `x`, `batch * rows` elements at `y`, which overlaps
/// neither; the instruction set is present.
#[inline(always)]
pub(crate) unsafe fn qgemv<E: Element, P: Prim<E> + Prim<bf16> + Lanes>(g: &UnquantisedGemvArgs<E>) {
    // SAFETY: the caller's contract.
    unsafe {
        match g.weights.of {
            QuantFormat::E4m3 => e4m3::products::<E, _, P>(g),
            QuantFormat::Bf16 => products::<bf16, E, P>(g),
            _ => products::<f16, E, P>(g),
        }
    }
}
