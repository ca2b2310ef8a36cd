//! Encoders: from weights to blocks. A format has an encoder if its table has a row `encode`. That row makes a block of groups
//! of weights, and is written with the functions of this module: searches for scales ([`fit`]), grids of values ([`grid`]),
//! and packing of codes into bits.

pub(crate) mod fit;
pub(crate) mod grid;
pub(crate) mod group;

use super::blocks::Half;
use super::Format;
use crate::element::{f16, Element};
pub(crate) use fit::{largest, lines, scale, scales};
use grid::Grid;
pub(crate) use group::Group;
use group::{Fit, Line, Trials};

/// The largest finite f16.
pub(crate) const MAX_HALF: f32 = 65504.0;

/// The limit of formats whose scales reach as far as f32. Decoded weights are then still finite.
pub(crate) const MAX_SINGLE: f32 = 1e38;

/// Smaller magnitudes count as zero: their reciprocals and squares might not be finite and normal.
const SMALLEST: f32 = 1e-18;

/// The operations of encoders that are compiled for each instruction set.
pub(crate) trait Search: Copy {
    /// Looks at a group with all lines, `rounds` times; with a `fit`, lines change after each.
    fn look<G: Grid, const N: usize>(
        self,
        group: &Group<N>,
        trials: &mut Trials,
        rounds: usize,
        fit: Option<Fit>,
    );
    /// The value of the grid that is nearest to `t`.
    fn nearest<G: Grid>(self, t: f32) -> f32;
    /// Integers of 8 bits: the scale such that the largest magnitude is 127, and `x / scale`, for weights that
    /// are finite.
    fn bytes<const N: usize>(self, x: &[f32; N]) -> (f32, [i8; N]);

    /// The errors that several lines leave of a group.
    fn measure<G: Grid, const N: usize>(
        self,
        group: &Group<N>,
        lines: impl IntoIterator<Item = Line>,
    ) -> Trials {
        let mut trials = Trials::new(lines);
        self.look::<G, N>(group, &mut trials, 1, None);
        trials
    }
    /// The best of several lines once all are fitted to the group.
    fn fit<G: Grid, const N: usize>(
        self,
        group: &Group<N>,
        starts: impl IntoIterator<Item = Line>,
        fit: Fit,
    ) -> Line {
        let mut trials = Trials::new(starts);
        self.look::<G, N>(group, &mut trials, 3, Some(fit));
        trials.best().line
    }
}

/// Encodes whole blocks; importance, whole blocks as well, starts over at its end.
pub(crate) type Encoder<S, E> = fn(S, &[E], Option<&[f32]>, &mut [u8]);

/// A format that may have an encoder.
pub(crate) trait Encode: Format {
    /// The encoder. The default is none.
    fn encoder<S: Search, E: Element>() -> Option<Encoder<S, E>> {
        None
    }
}

/// How `M` groups of `N` weights become a block.
pub(crate) trait EncodeGroups<const N: usize, const M: usize>: Format {
    /// Larger magnitudes are replaced by it.
    const LIMIT: f32 = MAX_HALF;
    /// The block that leaves the least error. Importances are from 0 to 1, and not 0 for all weights.
    fn encode<S: Search>(isa: S, groups: &[Group<N>; M]) -> Self::Block;
}

/// Encodes whole blocks; `importance`, whole blocks as well, starts over at its end.
pub(crate) fn blocks<S: Search, E: Element, F: EncodeGroups<N, M>, const N: usize, const M: usize>(
    isa: S,
    x: &[E],
    importance: Option<&[f32]>,
    out: &mut [u8],
) {
    let mut importance = importance.unwrap_or_default().chunks_exact(N * M).cycle();
    let mut groups = [Group::<N>::EVEN; M];
    let of_blocks = x.as_chunks::<N>().0.as_chunks::<M>().0;
    for (x, out) in of_blocks.iter().zip(&mut out.chunks_exact_mut(size_of::<F::Block>())) {
        for (group, x) in groups.iter_mut().zip(x) {
            for (to, from) in group.x.iter_mut().zip(x) {
                let x = from.to_f32();
                // A NaN is not at least anything.
                *to = if x.abs() >= SMALLEST { x.max(-F::LIMIT).min(F::LIMIT) } else { 0.0 };
            }
        }
        if let Some(importance) = importance.next() {
            // Relative to the largest, so that no sum overflows. NaN and negative numbers count as 0.
            let valid = |w: &f32| if *w > 0.0 { w.min(f32::MAX) } else { 0.0 };
            let most = importance.iter().map(valid).fold(0.0, f32::max);
            for (group, importance) in groups.iter_mut().zip(importance.as_chunks::<N>().0) {
                for (w, importance) in group.w.iter_mut().zip(importance) {
                    *w = if most > 0.0 { valid(importance) / most } else { 1.0 };
                }
            }
        }
        groups.iter_mut().for_each(Group::sum_up);
        let block = encode::<S, F, N, M>(isa, &groups);
        // SAFETY: a chunk has the size of a block, which has alignment 1 and is made of bytes.
        unsafe { *out.as_mut_ptr().cast::<F::Block>() = block };
    }
}

/// [`EncodeGroups::encode`], compiled once for all storage types.
#[inline(never)]
fn encode<S: Search, F: EncodeGroups<N, M>, const N: usize, const M: usize>(
    isa: S,
    groups: &[Group<N>; M],
) -> F::Block {
    F::encode(isa, groups)
}

/// `1 / s`, but 0 for 0: everything is nearest to the value for 0 then.
#[inline(always)]
pub(crate) fn inverse(s: f32) -> f32 {
    if s == 0.0 {
        0.0
    } else {
        1.0 / s
    }
}

/// A number to the nearest integer, for magnitudes below 2^22.
pub(crate) fn round(t: f32) -> f32 {
    // Ties to even: between 2^23 and 2^24 the numbers of f32 are the integers.
    (t + 12_582_912.0) - 12_582_912.0
}

/// The nearest f16; never infinite or NaN.
pub(crate) fn half(x: f32) -> Half {
    Half::new(f16::from_f32(if x.is_nan() { 0.0 } else { x.clamp(-MAX_HALF, MAX_HALF) }))
}

/// The codes of a group for a scale `s` and a minimum `m`.
pub(crate) fn codes<G: Grid, const N: usize>(isa: impl Search, group: &Group<N>, s: f32, m: f32) -> [u8; N] {
    let inverse = inverse(s);
    group.x.map(|x| G::code(isa.nearest::<G>((x + m) * inverse)))
}

/// The codes of all groups.
pub(crate) fn group_codes<G: Grid, const N: usize, const M: usize>(
    isa: impl Search,
    groups: &[Group<N>; M],
    lines: &[Line; M],
) -> [[u8; N]; M] {
    let mut q = [[0; N]; M];
    for ((q, group), &(s, m)) in q.iter_mut().zip(groups).zip(lines) {
        *q = codes::<G, N>(isa, group, s, m);
    }
    q
}

/// The low `BITS` of each code. A run of `RUN` bytes has `8 / BITS` runs of codes, the first in the
/// lowest bits of the bytes, one code in each.
pub(crate) fn pack<const BITS: usize, const RUN: usize, const BYTES: usize>(codes: &[u8]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let mut runs = codes.as_chunks::<RUN>().0.iter();
    for bytes in bytes.as_chunks_mut::<RUN>().0 {
        for (e, codes) in runs.by_ref().take(8 / BITS).enumerate() {
            for (byte, code) in bytes.iter_mut().zip(codes) {
                *byte |= (code & ((1 << BITS) - 1)) << (BITS * e);
            }
        }
    }
    bytes
}

/// The block's scale and the codes, of a format that has one scale and nothing else.
pub(crate) fn scaled<G: Grid, const N: usize>(isa: impl Search, [group]: &[Group<N>; 1]) -> (Half, [u8; N]) {
    let d = half(scale::<G, N>(isa, group));
    (d, codes::<G, N>(isa, group, d.get().to_f32(), 0.0))
}

/// The block's scale, its minimum and the codes from 0 to `top`, of a format that has these and nothing else.
pub(crate) fn shifted<G: Grid>(
    isa: impl Search,
    [group]: &[Group<32>; 1],
    top: f32,
) -> (Half, Half, [u8; 32]) {
    let (s, m) = fit::affine::<G, 32>(isa, group, top, false);
    let (d, m) = (half(s), half(-m));
    (d, m, codes::<G, 32>(isa, group, d.get().to_f32(), -m.get().to_f32()))
}
