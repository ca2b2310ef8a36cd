//! How far results are from what they should be.

/// The largest error so far.
#[derive(Default)]
pub(super) struct Worst(pub f64);

impl Worst {
    /// Sees another result.
    pub fn see(&mut self, i: usize, got: f64, want: f64, scale: f64, allowed: f64) -> Result<(), String> {
        let difference = (got - want).abs();
        // Written so that NaN fails.
        if difference <= allowed * scale {
            if scale > 0.0 {
                self.0 = self.0.max(difference / scale);
            }
            return Ok(());
        }
        Err(format!("output {i} is {got:e}, should be {want:e}, give or take {:.1e}", allowed * scale))
    }
}
