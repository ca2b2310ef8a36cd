//! Searches for the scales and minima that leave the least squared error.
//!
//! All of them alternate between two steps: to find the values that are nearest to the weights, for given scales; and to find
//! the scales by least squares, for given values. Neither step can increase the error, but the search ends in the nearest
//! local minimum, of which there are many. So each search is started from several scales.

use super::grid::Grid;
use super::group::{Fit, Group, Line};
use super::{half, inverse, round, Search};
use crate::quant::blocks::Half;

/// The largest magnitude.
pub(crate) fn largest<const N: usize>(x: &[f32; N]) -> f32 {
    x.iter().fold(0.0, |a, x| x.abs().max(a))
}

/// The scale of a group on its own, not rounded.
pub(crate) fn scale<G: Grid, const N: usize>(isa: impl Search, group: &Group<N>) -> f32 {
    let most = largest(&group.x);
    let signs: &[f32] = if G::SYMMETRIC { &[1.0] } else { &[1.0, -1.0] };
    let starts = signs.iter().flat_map(|sign| G::REACH.iter().map(move |reach| (sign * most / reach, 0.0)));
    isa.fit::<G, N>(group, starts, Fit::Scale).0
}

/// Scale and minimum of a group on its own, not rounded, for values from 0 to `top`. `positive`: the minimum
/// is not below zero.
pub(crate) fn affine<G: Grid, const N: usize>(
    isa: impl Search,
    group: &Group<N>,
    top: f32,
    positive: bool,
) -> Line {
    // Weights may all be close to each other and far from zero: the fit sees how they differ.
    let mean = group.sum_x * inverse(group.sum_w);
    let centred = Group { x: group.x.map(|x| x - mean), ..*group };
    let (floor, ceiling) = if positive { (mean, -mean) } else { (f32::NEG_INFINITY, f32::INFINITY) };
    let low = centred.x.iter().fold(ceiling, |a, &x| a.min(x));
    let range = centred.x.iter().fold(f32::NEG_INFINITY, |a, &x| a.max(x)) - low;
    // The difference between the lengths of the grid and the range lies at the upper end, the lower end, or half at both.
    let placed = G::REACH.iter().flat_map(|reach| [0.0, 0.5, 1.0].map(|below| (range / reach, below)));
    let starts = placed.map(|(s, below)| (s, (below * (top * s - range) - low).max(floor)));
    let (s, m) = isa.fit::<G, N>(&centred, starts, Fit::Line(floor));
    (s, m - mean)
}

/// A scale of a block, and the integer scales of its groups.
pub(crate) struct Scaled<const M: usize> {
    pub d: Half,
    pub k: [f32; M],
    err: f32,
}

impl<const M: usize> Scaled<M> {
    /// Scales of the groups, as they will be decoded.
    pub(crate) fn lines(&self) -> [Line; M] {
        let d = self.d.get().to_f32();
        self.k.map(|k| (d * k, 0.0))
    }
}

/// Scales of a block and of its groups: `x` against `d * k * v` with `lo <= k <= hi`.
pub(crate) fn scales<G: Grid, const N: usize, const M: usize>(
    isa: impl Search,
    groups: &[Group<N>; M],
    lo: f32,
    hi: f32,
) -> Scaled<M> {
    /// What the largest scale of a group becomes, in parts of the longer side: it decides about the scale
    /// of the block, or is cut off for the sake of the others.
    const CUTS: [f32; 8] = [1.0, -1.0, 1.04, 1.1, 1.25, 1.5, 2.0, 3.0];

    let ideal = groups.map(|group| scale::<G, N>(isa, &group));
    let most = ideal.iter().fold(0.0_f32, |a, s| if s.abs() > a.abs() { *s } else { a });
    let integer = |s: f32, per_unit: f32| round(s * per_unit).max(lo).min(hi);
    let starts = CUTS.map(|cut| half(most / (cut * if cut > 0.0 { lo } else { hi })));
    let mut errors = [0.0; CUTS.len()];
    for (group, s) in groups.iter().zip(ideal) {
        let lines = starts.map(|d| d.get().to_f32()).map(|d| (d * integer(s, inverse(d)), 0.0));
        let trials = isa.measure::<G, N>(group, lines);
        errors.iter_mut().zip(trials.iter()).for_each(|(error, trial)| *error += trial.err);
    }
    let mut d = least(half(0.0), starts, errors);
    let mut best = Scaled { d, k: [0.0; M], err: f32::INFINITY };
    for _ in 0..3 {
        let real = d.get().to_f32();
        let per_unit = inverse(real);
        let mut next = Scaled { d, k: [0.0; M], err: 0.0 };
        let (mut xv, mut vv) = (0.0, 0.0);
        for ((k, group), s) in next.k.iter_mut().zip(groups).zip(ideal) {
            let near = [0.0, -1.0, 1.0].map(|step| (real * integer(s + step * real, per_unit), 0.0));
            let trial = isa.measure::<G, N>(group, near).best();
            *k = round(trial.line.0 * per_unit);
            next.err += trial.err;
            xv += *k * trial.xv;
            vv += *k * *k * trial.vv;
        }
        if next.err >= best.err {
            break;
        }
        best = next;
        if vv > 0.0 {
            d = half(xv / vv);
        }
    }
    best
}

/// The one with the least error; `none` if no error is finite.
fn least<T: Copy, const L: usize>(none: T, of: [T; L], errors: [f32; L]) -> T {
    of.into_iter().zip(errors).fold((none, f32::INFINITY), |a, b| if b.1 < a.1 { b } else { a }).0
}

/// Scales of a block, and the integer scales and minima of its groups.
pub(crate) struct Lines<const M: usize> {
    pub d: Half,
    pub dmin: Half,
    pub k: [f32; M],
    pub l: [f32; M],
    err: f32,
}

impl<const M: usize> Lines<M> {
    /// Scales and minima of the groups, as they will be decoded.
    pub(crate) fn lines(&self) -> [Line; M] {
        let (d, dmin) = (self.d.get().to_f32(), self.dmin.get().to_f32());
        let mut lines = self.k.map(|k| (d * k, 0.0));
        lines.iter_mut().zip(self.l).for_each(|(line, l)| line.1 = dmin * l);
        lines
    }
}

/// Scales of a block and of its groups: `x` against `d * k * v - dmin * l` for values from 0 to `top` and
/// `0 <= k, l <= most`.
pub(crate) fn lines<G: Grid, const N: usize, const M: usize>(
    isa: impl Search,
    groups: &[Group<N>; M],
    top: f32,
    most: f32,
) -> Lines<M> {
    /// Parts of the largest scale and the largest minimum to start from.
    const CUTS: [(f32, f32); 16] = {
        let (scales, minima) = ([1.0, 0.86, 0.68, 0.4], [1.0, 0.86, 0.68, 0.4]);
        let mut cuts = [(0.0, 0.0); 16];
        let mut i = 0;
        while i < 16 {
            cuts[i] = (scales[i / 4], minima[i % 4]);
            i += 1;
        }
        cuts
    };
    /// Steps from a pair of integers to it and its neighbours.
    const NEIGHBOURS: [(f32, f32); 9] = {
        let (steps, mut near, mut i) = ([0.0, -1.0, 1.0], [(0.0, 0.0); 9], 0);
        while i < 9 {
            near[i] = (steps[i / 3], steps[i % 3]);
            i += 1;
        }
        near
    };

    let ideal = groups.map(|group| affine::<G, N>(isa, &group, top, true));
    let largest = ideal.iter().fold((0.0_f32, 0.0_f32), |a, s| (s.0.max(a.0), s.1.max(a.1)));
    // The line at some steps from the ideal one that can be stored with these scales.
    let stored = |group: &Group<N>, (s, m): Line, (d, dmin): Line, step: (f32, f32)| {
        let k = (round(s * inverse(d)) + step.0).max(0.0).min(most);
        // With another scale, the minimum that keeps the mean value.
        let mean = group.sum_x * inverse(group.sum_w);
        let m = if s > 0.0 { (mean + m) * (d * k / s) - mean } else { m };
        let l = (round(m * inverse(dmin)) + step.1).max(0.0).min(most);
        (d * k, dmin * l)
    };
    let real = |(d, dmin): (Half, Half)| (d.get().to_f32(), dmin.get().to_f32());

    let starts = CUTS.map(|cut| (half(cut.0 * largest.0 / most), half(cut.1 * largest.1 / most)));
    let mut errors = [0.0; CUTS.len()];
    for (group, line) in groups.iter().zip(ideal) {
        let lines = starts.map(|start| stored(group, line, real(start), (0.0, 0.0)));
        let trials = isa.measure::<G, N>(group, lines);
        errors.iter_mut().zip(trials.iter()).for_each(|(error, trial)| *error += trial.err);
    }
    let mut scales = least((half(0.0), half(0.0)), starts, errors);
    let mut best = Lines { d: scales.0, dmin: scales.1, k: [0.0; M], l: [0.0; M], err: f32::INFINITY };
    for _ in 0..3 {
        let (d, dmin) = real(scales);
        let mut next = Lines { d: scales.0, dmin: scales.1, k: [0.0; M], l: [0.0; M], err: 0.0 };
        let [mut a, mut b, mut c, mut p, mut q] = [0.0; 5];
        for (((k, l), group), line) in next.k.iter_mut().zip(&mut next.l).zip(groups).zip(ideal) {
            let near = NEIGHBOURS.map(|step| stored(group, line, (d, dmin), step));
            let trial = isa.measure::<G, N>(group, near).best();
            (*k, *l) = (round(trial.line.0 * inverse(d)), round(trial.line.1 * inverse(dmin)));
            next.err += trial.err;
            a += *k * *k * trial.vv;
            b += *k * *l * trial.v;
            c += *l * *l * group.sum_w;
            p += *k * trial.xv;
            q += *l * group.sum_x;
        }
        if next.err >= best.err {
            break;
        }
        best = next;
        let det = a * c - b * b;
        if det > 0.0 {
            scales = (half((p * c - q * b) / det), half((p * b - q * a) / det));
        } else if a > 0.0 {
            scales.0 = half(p / a);
        }
    }
    best
}
