//! The result of a checker, and how long it took.

use std::io::Write;
use std::time::Instant;

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

/// Runs a test. Its seconds and its name are appended to the file that `GLLM_TEST_TIMES` names, if it names one.
pub fn timed<T>(name: &str, test: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = test();
    if let Some(file) = std::env::var_os("GLLM_TEST_TIMES") {
        let line = format!("{:.3} {name}\n", start.elapsed().as_secs_f64());
        let file = std::fs::OpenOptions::new().append(true).create(true).open(file);
        // One call, so that lines of several threads do not mix.
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file for times can be written");
    }
    result
}
