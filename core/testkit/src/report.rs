//! What a checker found.

/// The result of running every case of one kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Calls made.
    pub cases: usize,
    /// Largest error seen, in `unit`.
    pub max_err: f64,
    /// `"ulp"` of the storage type, or `"bound"`: the fraction used of the permitted error.
    pub unit: &'static str,
}

/// A report, or one line that names the first deviation.
pub type Outcome = Result<Report, String>;

impl Report {
    /// Errors in units in the last place of the storage type.
    pub const ULP: Self = Self { cases: 0, max_err: 0.0, unit: "ulp" };
    /// Errors as fractions of a permitted error.
    pub const BOUND: Self = Self { cases: 0, max_err: 0.0, unit: "bound" };

    /// Takes an error into account; `Err` with `what()` if it exceeds `limit` (or is NaN).
    pub fn see(&mut self, err: f64, limit: f64, what: impl FnOnce() -> String) -> Result<(), String> {
        if err > self.max_err {
            self.max_err = err;
        }
        // Written so that NaN fails.
        if err <= limit {
            Ok(())
        } else {
            Err(format!("{}: error {err:.4} {}, allowed {limit:.4}", what(), self.unit))
        }
    }

    /// Unites the reports of two parts of one check; both must have the same unit.
    pub fn and(self, other: Self) -> Self {
        Self { cases: self.cases + other.cases, max_err: self.max_err.max(other.max_err), ..self }
    }
}
