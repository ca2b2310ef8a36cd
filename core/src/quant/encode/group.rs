//! The data of encoders: groups of weights with their importances, and lines (a scale and a minimum) that are tried for them.

/// A scale `s` and a minimum `m`: weights are near `s * v - m`.
pub(crate) type Line = (f32, f32);

/// A group of weights and their importances.
#[derive(Clone, Copy)]
pub(crate) struct Group<const N: usize> {
    pub(crate) x: [f32; N],
    pub(crate) w: [f32; N],
    /// The sums of `w` and of `w * x`.
    pub(crate) sum_w: f32,
    pub(crate) sum_x: f32,
}

impl<const N: usize> Group<N> {
    /// Zeros that are all as important.
    pub(crate) const EVEN: Self = Self { x: [0.0; N], w: [1.0; N], sum_w: 0.0, sum_x: 0.0 };

    /// Computes the sums from the rest.
    pub(crate) fn sum_up(&mut self) {
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
pub(crate) enum Fit {
    /// Scales without minima.
    Scale,
    /// Scales and minima, which do not go below this. The mean of the weights is 0.
    Line(f32),
}

/// Lines that are tried side by side, and what the nearest values `v` leave of a group for each.
pub(crate) struct Trials {
    pub(crate) n: usize,
    pub(crate) s: [f32; Self::MOST],
    pub(crate) m: [f32; Self::MOST],
    pub(crate) err: [f32; Self::MOST],
    pub(crate) vv: [f32; Self::MOST],
    pub(crate) xv: [f32; Self::MOST],
    pub(crate) v: [f32; Self::MOST],
}

/// One of the [`Trials`].
#[derive(Clone, Copy)]
pub(crate) struct Trial {
    pub(crate) line: Line,
    /// The weighted squared error; after a fit, how much it is above the sum of `w * x * x`.
    pub(crate) err: f32,
    /// The sums of `w * v * v`, `w * x * v` and `w * v`.
    pub(crate) vv: f32,
    pub(crate) xv: f32,
    pub(crate) v: f32,
}

impl Trials {
    /// A multiple of the lanes of every instruction set.
    pub(crate) const MOST: usize = 32;

    /// The first [`MOST`](Self::MOST) of `lines`.
    pub(crate) fn new(lines: impl IntoIterator<Item = Line>) -> Self {
        let none = [0.0; Self::MOST];
        let mut trials = Self { n: 0, s: none, m: none, err: none, vv: none, xv: none, v: none };
        for ((s, m), line) in trials.s.iter_mut().zip(&mut trials.m).zip(lines) {
            (*s, *m) = line;
            trials.n += 1;
        }
        trials
    }

    /// The lines with their sums.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Trial> + '_ {
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
    pub(crate) fn best(&self) -> Trial {
        let none = Trial { line: (0.0, 0.0), err: f32::INFINITY, vv: 0.0, xv: 0.0, v: 0.0 };
        self.iter().fold(none, |a, b| if b.err < a.err { b } else { a })
    }
}
