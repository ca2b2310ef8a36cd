//! The loop in which encoders spend their time, compiled for each instruction set. Each lane of a vector tries another scale
//! on the same weights. So no sum is formed across lanes, and all instruction sets give the same blocks.

use crate::caps::IsaLevel;
use crate::isa::Scalar;
use crate::quant::encode::grid::Grid;
use crate::quant::encode::group::{Fit, Group, Trials};
use crate::quant::encode::Search;
use crate::vector::Prim;

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
            // Three loops, each of which computes only the sums that it needs.
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
}

impl Search for Isa {
    fn look<G: Grid, const N: usize>(
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
    fn nearest<G: Grid>(self, t: f32) -> f32 {
        // SAFETY: every CPU has the portable instruction set.
        unsafe { G::nearest::<Scalar>(t) }
    }
    fn bytes<const N: usize>(self, x: &[f32; N]) -> (f32, [i8; N]) {
        super::bytes::bytes(self.0, x)
    }
}
