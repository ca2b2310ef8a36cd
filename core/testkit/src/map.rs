//! Checks operators that compute each output from the inputs at the same place.

use gllm_kernels_core::{Element, KernelError, KernelInfo, Kernels, StorePolicy};

use crate::data::{both_walks, lengths, long, Source};
use crate::guard::{Edge, Guarded};
use crate::numeric::{same, ulp_error};
use crate::report::{Outcome, Report};
use crate::{call, effort};

/// What one output element must be.
#[derive(Clone, Copy, Debug)]
pub enum Want<E> {
    /// Exactly this (any NaN for a NaN).
    Bits(E),
    /// The exact value, and the ulp of `E` by which the result may differ.
    Near(f64, f64),
}

/// An out-of-place form: inputs, output.
pub type Run<'a, E, const A: usize> = &'a dyn Fn(&Kernels<E>, [&[E]; A], &mut [E]) -> Result<(), KernelError>;
/// An in-place form: all inputs but the last, then the last, which is the output.
pub type InPlace<'a, E> = &'a dyn Fn(&Kernels<E>, &[&[E]], &mut [E]) -> Result<(), KernelError>;

/// An element-wise operator with `A` inputs.
pub struct Map<'a, E: Element, const A: usize> {
    /// `y = f(x..)`; `None` if the operator has only an in-place form.
    pub run: Option<Run<'a, E, A>>,
    /// The in-place form.
    pub in_place: Option<InPlace<'a, E>>,
    /// The oracle.
    pub want: &'a dyn Fn([E; A]) -> Want<E>,
}

impl<E: Element, const A: usize> Map<'_, E, A> {
    /// Every length, both edges, in place and not, cached and streamed, on data from `make`.
    pub fn check(&self, row: &KernelInfo, make: &dyn Fn(&mut Source, usize) -> Vec<E>) -> Outcome {
        let k = Kernels::<E>::forced(row.level).map_err(|e| e.to_string())?;
        let mut source = Source::new(row.name.len() as u64);
        let mut report = Report::ULP;
        for n in lengths(row.level) {
            let inputs: [Vec<E>; A] = std::array::from_fn(|_| make(&mut source, n));
            let wants = self.wants(&inputs);
            for edge in Edge::BOTH {
                for stores in [StorePolicy::Cached, StorePolicy::Streamed] {
                    self.case(&k.with_stores(stores), &inputs, &wants, edge, &mut report)?;
                }
            }
        }
        let n = long::<E>();
        // Every element of the long vectors counts, but the oracle is slow: repeat a short stretch.
        let periods: [Vec<E>; A] = std::array::from_fn(|_| make(&mut source, 509 * effort().max(1)));
        let wants: Vec<_> = self.wants(&periods).into_iter().cycle().take(n).collect();
        let inputs = periods.map(|period| period.into_iter().cycle().take(n).collect());
        for k in both_walks(&k) {
            for (stores, edge) in [(StorePolicy::Cached, Edge::Start), (StorePolicy::Streamed, Edge::End)] {
                self.case(&k.with_stores(stores), &inputs, &wants, edge, &mut report)?;
            }
        }
        Ok(report)
    }

    /// The operator on given values: special ones, or all there are.
    pub fn check_values(&self, row: &KernelInfo, inputs: &[Vec<E>; A]) -> Outcome {
        let k = Kernels::<E>::forced(row.level).map_err(|e| e.to_string())?;
        let mut report = Report::ULP;
        self.case(&k, inputs, &self.wants(inputs), Edge::End, &mut report)?;
        Ok(report)
    }

    fn wants(&self, inputs: &[Vec<E>; A]) -> Vec<Want<E>> {
        let n = inputs.first().map_or(0, Vec::len);
        (0..n).map(|i| (self.want)(std::array::from_fn(|a| inputs[a][i]))).collect()
    }

    fn case(
        &self,
        k: &Kernels<E>,
        inputs: &[Vec<E>; A],
        wants: &[Want<E>],
        edge: Edge,
        report: &mut Report,
    ) -> Result<(), String> {
        let x: [Guarded<E>; A] = std::array::from_fn(|i| Guarded::copy_of(&inputs[i], edge));
        let n = inputs.first().map_or(0, Vec::len);
        if let Some(run) = self.run {
            let mut y = Guarded::<E>::poisoned(n, edge);
            let r = call(|| run(k, std::array::from_fn(|i| &x[i][..]), &mut y));
            r.map_err(|e| format!("n={n}: {e}"))?;
            compare(inputs, wants, &y, report)?;
            if !y.intact() {
                return Err(format!("n={n}: writes outside of the output"));
            }
        }
        if let (Some(in_place), [read @ .., last]) = (self.in_place, &x[..]) {
            let mut y = Guarded::copy_of(last, edge);
            let read: Vec<&[E]> = read.iter().map(|x| &x[..]).collect();
            call(|| in_place(k, &read, &mut y)).map_err(|e| format!("n={n}, in place: {e}"))?;
            compare(inputs, wants, &y, report).map_err(|e| format!("in place: {e}"))?;
            if !y.intact() {
                return Err(format!("n={n}: writes outside of the vector"));
            }
        }
        for (x, before) in x.iter().zip(inputs) {
            if !x.iter().zip(before).all(|(&a, &b)| same(a, b)) {
                return Err(format!("n={n}: an input was changed"));
            }
        }
        Ok(())
    }
}

/// Outputs against what they must be.
fn compare<E: Element, const A: usize>(
    inputs: &[Vec<E>; A],
    wants: &[Want<E>],
    y: &[E],
    report: &mut Report,
) -> Result<(), String> {
    report.cases += 1;
    assert_eq!(y.len(), wants.len());
    for (i, (&got, want)) in y.iter().zip(wants).enumerate() {
        let (err, limit) = match *want {
            Want::Bits(want) if same(got, want) => (0.0, 0.0),
            Want::Bits(want) => (ulp_error(got, f64::from(want.to_f32())).max(f64::MIN_POSITIVE), 0.0),
            Want::Near(exact, ulps) => (ulp_error(got, exact), ulps),
        };
        report.see(err, limit, || {
            let at: [E; A] = std::array::from_fn(|a| inputs[a][i]);
            format!("n={}, element {i}: f{at:?} = {got:?}", y.len())
        })?;
    }
    Ok(())
}
