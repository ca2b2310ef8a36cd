//! Arrays element by element, inlined whatever their length.
//!
//! `array::map` and `array::from_fn` may stay out of line, where code is compiled without the target features
//! of its caller.

use core::mem::MaybeUninit;

/// `[f(0), f(1), ..]`
#[inline(always)]
pub(crate) fn from_fn<T, const N: usize>(mut f: impl FnMut(usize) -> T) -> [T; N] {
    let mut all = [const { MaybeUninit::uninit() }; N];
    let mut i = 0;
    while i < N {
        all[i] = MaybeUninit::new(f(i));
        i += 1;
    }
    // SAFETY: every element was written.
    unsafe { (&raw const all).cast::<[T; N]>().read() }
}

/// What `array::map` does.
pub(crate) trait Each<T, const N: usize> {
    /// `f` of every element.
    fn each<U>(self, f: impl FnMut(T) -> U) -> [U; N];
}
impl<T: Copy, const N: usize> Each<T, N> for [T; N] {
    #[inline(always)]
    fn each<U>(self, mut f: impl FnMut(T) -> U) -> [U; N] {
        from_fn(|i| f(self[i]))
    }
}
