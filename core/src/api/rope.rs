//! RoPE: rotary position embedding.

use crate::check;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::rope::RopeShape;
use crate::table::Kernels;

#[cfg(feature = "rows")]
/// # Rotary position embedding
///
/// Elements are widened to f32, computed, and narrowed once. `x` holds tokens, each of `heads` heads
/// of `head_dim` elements; `cos`, `sin` hold `rot_dim / 2` values for each token, see [`RopeFreqs`](crate::RopeFreqs).
impl<E: Element> Kernels<E> {
    /// Every pair `(a, b)` becomes `(a cos - b sin, a sin + b cos)`; elements from `rot_dim` on are
    /// copied. (Su et al., "RoFormer", 2021.)
    ///
    /// # Errors
    /// `WrongLength` unless `x` and `y` have the same length and `cos` and `sin` have `rot_dim / 2`
    /// values for every token; `NotWhole` if `x` holds no whole number of tokens; `BadValue`
    /// if `rot_dim` is odd or above `head_dim`; `SizeOverflow`.
    pub fn rope(
        &self,
        shape: RopeShape,
        cos: &[f32],
        sin: &[f32],
        x: &[E],
        y: &mut [E],
    ) -> Result<(), KernelError> {
        let tokens = shape.check(x.len(), cos.len(), sin.len())?;
        check::len("y", y.len(), x.len())?;
        let (angles, access) = ([cos.as_ptr(), sin.as_ptr()], self.access(x.len()));
        // SAFETY: the shape and the lengths were checked; `y` is exclusive; the table's instruction set is present.
        unsafe { (self.table.rope)(shape, tokens, angles, x.as_ptr(), y.as_mut_ptr(), access) };
        Ok(())
    }

    /// [`rope`](Self::rope) in place.
    ///
    /// # Errors
    /// Those of [`rope`](Self::rope).
    pub fn rope_inplace(
        &self,
        shape: RopeShape,
        cos: &[f32],
        sin: &[f32],
        x: &mut [E],
    ) -> Result<(), KernelError> {
        let tokens = shape.check(x.len(), cos.len(), sin.len())?;
        let (angles, p) = ([cos.as_ptr(), sin.as_ptr()], x.as_mut_ptr());
        // SAFETY: the shape and the lengths were checked; the input is the output; the table's instruction set is present.
        unsafe { (self.table.rope)(shape, tokens, angles, p, p, self.access_inplace()) };
        Ok(())
    }
}
