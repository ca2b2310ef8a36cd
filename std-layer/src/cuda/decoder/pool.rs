//! Rows of texts.

use super::args::PoolArgs;
use crate::cuda::check::{area, same_len, small};
use crate::cuda::error::CudaError;
use crate::cuda::geometry;
use crate::cuda::memory::{View, ViewMut};
use crate::cuda::stream::Stream;
use crate::cuda::Ops;
use crate::model::Pooling;

impl Ops {
    /// A row of each run, of length 1: `starts` says where its rows of `x` begin, and where those of the last run end.
    pub(crate) fn decoder_pool(
        &self,
        stream: &Stream,
        pooling: Pooling,
        (x, cols): (View<'_, f32>, usize),
        starts: View<'_, u32>,
        y: ViewMut<'_, f32>,
    ) -> Result<(), CudaError> {
        let runs = starts.len().saturating_sub(1);
        crate::cuda::check::rows(x.len(), cols)?;
        same_len("y", y.len(), area("elements of y", &[runs, cols])?)?;
        for context in [x.context(), starts.context(), y.context()] {
            self.here(context)?;
        }
        let args = PoolArgs {
            x: x.address(),
            starts: starts.address(),
            y: y.address(),
            cols: small("cols", cols)?,
            how: match pooling {
                Pooling::Mean => 0,
                Pooling::First => 1,
                Pooling::Last => 2,
            },
        };
        let geometry = geometry::by_fours(runs, cols);
        // SAFETY: the arguments were checked; whoever makes `starts` vouches that these rows exist.
        unsafe { self.loader.launch(self.decoder("pool"), stream, geometry, &args) }
    }
}
