//! The loop that encoding spends its time in, per instruction set: each lane of a vector tries another
//! scale on the same weights. So nothing is summed up across lanes, and all instruction sets give the
//! same blocks.

use super::grid::Grid;
use crate::caps::IsaLevel;
use crate::vector::Prim;

/// A scale `s` and a minimum `m`: weights are near `s * v - m`.
pub(super) type Line = (f32, f32);

/// A group of weights and their importances.
#[derive(Clone, Copy)]
pub(super) struct Group<const N: usize> {
    pub x: [f32; N],
    pub w: [f32; N],
    /// The sums of `w` and of `w * x`.
    pub sum_w: f32,
    pub sum_x: f32,
}

impl<const N: usize> Group<N> {
    /// Zeros that are all as important.
    pub const EVEN: Self = Self { x: [0.0; N], w: [1.0; N], sum_w: 0.0, sum_x: 0.0 };

    /// Computes the sums from the rest.
    pub(super) fn sum_up(&mut self) {
        let (mut w, mut x) = ([0.0; 8], [0.0; 8]);
        for (from_x, from_w) in self.x.as_chunks::<8>().0.iter().zip(self.w.as_chunks::<8>().0) {
            for (((w, x), from_w), from_x) in w.iter_mut().zip(&mut x).zip(from_w).zip(from_x) {
                *w += from_w;
                *x += from_w * from_x;
            }
        }
        (self.sum_w, self.sum_x) = (w.iter().sum(), x.iter().sum());
    }
}

/// How lines change between two looks at a group: by least squares for the values nearest to the weights.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Fit {
    /// Scales without minima.
    Scale,
    /// Scales and minima, which do not go below this. The mean of the weights is 0.
    Line(f32),
}

/// Lines that are tried side by side, and what the nearest values `v` leave of a group for each.
pub(super) struct Trials {
    n: usize,
    s: [f32; Self::MOST],
    m: [f32; Self::MOST],
    err: [f32; Self::MOST],
    vv: [f32; Self::MOST],
    xv: [f32; Self::MOST],
    v: [f32; Self::MOST],
}

/// One of the [`Trials`].
#[derive(Clone, Copy)]
pub(super) struct Trial {
    pub line: Line,
    /// The weighted squared error; after a fit, how much it is above the sum of `w * x * x`.
    pub err: f32,
    /// The sums of `w * v * v`, `w * x * v` and `w * v`.
    pub vv: f32,
    pub xv: f32,
    pub v: f32,
}

impl Trials {
    /// A multiple of the lanes of every instruction set.
    const MOST: usize = 32;

    /// The first [`MOST`](Self::MOST) of `lines`.
    pub(super) fn new(lines: impl IntoIterator<Item = Line>) -> Self {
        let none = [0.0; Self::MOST];
        let mut trials = Self { n: 0, s: none, m: none, err: none, vv: none, xv: none, v: none };
        for ((s, m), line) in trials.s.iter_mut().zip(&mut trials.m).zip(lines) {
            (*s, *m) = line;
            trials.n += 1;
        }
        trials
    }

    /// The lines with their sums.
    pub(super) fn iter(&self) -> impl Iterator<Item = Trial> + '_ {
        let lines = self.s.iter().zip(&self.m).zip(&self.err);
        let sums = self.vv.iter().zip(&self.xv).zip(&self.v);
        lines.zip(sums).take(self.n).map(|(((&s, &m), &err), ((&vv, &xv), &v))| Trial {
            line: (s, m),
            err,
            vv,
            xv,
            v,
        })
    }

    /// The first of those with the least error.
    pub(super) fn best(&self) -> Trial {
        let none = Trial { line: (0.0, 0.0), err: f32::INFINITY, vv: 0.0, xv: 0.0, v: 0.0 };
        self.iter().fold(none, |a, b| if b.err < a.err { b } else { a })
    }
}

/// Looks at a group with all lines, `rounds` times; with a `fit`, lines change after each.
///
/// # Safety
/// The CPU has the instruction set.
#[inline(always)]
unsafe fn body<P: Prim<f32>, G: Grid, const N: usize>(
    group: &Group<N>,
    trials: &mut Trials,
    rounds: usize,
    fit: Option<Fit>,
) {
    const { assert!(Trials::MOST.is_multiple_of(P::LANES)) };
    let mut first = 0;
    while first < trials.n {
        // SAFETY: `n <= MOST`, so whole vectors from `first` are within the arrays.
        unsafe {
            let (mut s, mut m) =
                (P::load(trials.s.as_ptr().add(first)), P::load(trials.m.as_ptr().add(first)));
            let (zero, w) = (P::splat(0.0), P::splat(group.sum_w));
            let [mut err, mut vv, mut xv, mut sv] = [zero; 4];
            for _ in 0..rounds {
                // Where the scale is 0, everything is nearest to the value for 0.
                let size = P::copysign(s, zero);
                let inverse = P::select_lt(zero, size, P::div(P::splat(1.0), s), zero);
                [err, vv, xv, sv] = [zero; 4];
                for (&x, &w) in group.x.iter().zip(&group.w) {
                    let (x, w) = (P::splat(x), P::splat(w));
                    let shifted = if fit == Some(Fit::Scale) { x } else { P::add(x, m) };
                    let v = G::nearest::<P>(P::mul(shifted, inverse));
                    let weighted = P::mul(w, v);
                    if fit.is_none() {
                        let rest = P::sub(shifted, P::mul(s, v));
                        err = P::add(err, P::mul(P::mul(w, rest), rest));
                    }
                    vv = P::add(vv, P::mul(weighted, v));
                    xv = P::add(xv, P::mul(weighted, x));
                    sv = P::add(sv, weighted);
                }
                if let Some(fit) = fit {
                    if let Fit::Line(floor) = fit {
                        let det = P::sub(P::mul(vv, w), P::mul(sv, sv));
                        // Smaller ones are rounding: all values are one, or might as well be.
                        let noise = P::mul(P::splat(1e-6), P::mul(vv, w));
                        m = P::select_lt(noise, det, P::div(P::mul(sv, xv), det), zero);
                        m = P::max(m, P::splat(floor));
                        xv = P::add(xv, P::mul(m, sv));
                    }
                    // Of the weights plus the minimum. Where all values are 0, any scale will do.
                    s = P::select_lt(zero, vv, P::div(xv, vv), s);
                    err = P::sub(P::mul(w, P::mul(m, m)), P::mul(s, xv));
                }
            }
            for (sums, to) in [
                (s, &mut trials.s),
                (m, &mut trials.m),
                (err, &mut trials.err),
                (vv, &mut trials.vv),
                (xv, &mut trials.xv),
                (sv, &mut trials.v),
            ] {
                P::store(to.as_mut_ptr().add(first), sums);
            }
        }
        first += P::LANES;
    }
}

macro_rules! wrap {
    ({} isa: $isa:ident, module: $module:ident, tile: $tile:literal, skinny: $skinny:literal, attribute: $attr:meta) => {
        #[$attr]
        unsafe fn $module<G: Grid, const N: usize>(
            group: &Group<N>,
            trials: &mut Trials,
            rounds: usize,
            fit: Option<Fit>,
        ) {
            // Three loops, each without what it does not need.
            // SAFETY: the caller vouches for the CPU.
            unsafe {
                match fit {
                    None => body::<crate::isa::$isa, G, N>(group, trials, rounds, None),
                    Some(fit) if G::OFFSET => {
                        body::<crate::isa::$isa, G, N>(group, trials, rounds, Some(fit))
                    }
                    Some(_) => body::<crate::isa::$isa, G, N>(group, trials, rounds, Some(Fit::Scale)),
                }
            };
        }
    };
}
expand_all_isas! { wrap! {} }

macro_rules! call {
    (
        { $level:ident, $($arg:ident),* }
        isa: $isa:ident, module: $module:ident, tile: $tile:literal, skinny: $skinny:literal, attribute: $attr:meta
    ) => {
        if $level == IsaLevel::$isa {
            // SAFETY: the CPU has the level, as `Isa` says.
            return unsafe { $module::<G, N>($($arg),*) };
        }
    };
}

/// An instruction set that this CPU has.
#[derive(Clone, Copy)]
pub(crate) struct Isa(IsaLevel);

impl Isa {
    /// # Safety
    /// The CPU has `level`.
    pub(crate) unsafe fn new(level: IsaLevel) -> Self {
        Self(level)
    }

    /// The level that the CPU has.
    pub(super) fn level(self) -> IsaLevel {
        self.0
    }

    fn run<G: Grid, const N: usize>(
        self,
        group: &Group<N>,
        trials: &mut Trials,
        rounds: usize,
        fit: Option<Fit>,
    ) {
        let level = match self.0 {
            // Longer vectors would be half empty.
            IsaLevel::Avx512 if trials.n <= 8 => IsaLevel::Avx2,
            level => level,
        };
        expand_all_isas! { call! { level, group, trials, rounds, fit } }
    }

    /// What is left of a group for each of several lines.
    pub(super) fn measure<G: Grid, const N: usize>(
        self,
        group: &Group<N>,
        lines: impl IntoIterator<Item = Line>,
    ) -> Trials {
        let mut trials = Trials::new(lines);
        self.run::<G, N>(group, &mut trials, 1, None);
        trials
    }

    /// The best of several lines once all are fitted to the group.
    pub(super) fn fit<G: Grid, const N: usize>(
        self,
        group: &Group<N>,
        starts: impl IntoIterator<Item = Line>,
        fit: Fit,
    ) -> Line {
        let mut trials = Trials::new(starts);
        self.run::<G, N>(group, &mut trials, 3, Some(fit));
        trials.best().line
    }
}
