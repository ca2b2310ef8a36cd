//! Products with packed weights of one format, without the kernel table.
//!
//! A table refers to every kernel of its instruction set, so a program that uses [`Kernels`](crate::Kernels) contains
//! them all. What is here refers to the kernels of one format alone: firmware that has one format, and little flash,
//! pays for that one. Each format has a module of its name. Weights are packed where there is more room, at build time
//! perhaps, by [`pack_q`](crate::Kernels::pack_q); results have the bits of a [`QgemmPlan`](crate::QgemmPlan) for one
//! row of activations, with [`Precision::Integer`](crate::Precision::Integer).

use crate::caps::{Caps, Features, IsaLevel};
use crate::check;
use crate::error::KernelError;
use crate::ops::activations::{self, ActivationArgs, Activations};
use crate::ops::qgemv_packed;
use crate::ops::qpack::{self, PackedQ};
use crate::quant::packed::{Pack, Packing};
use crate::quant::QuantFormat;
use crate::scratch::{Scratch, ScratchReq};
#[allow(unused_imports)] // Not every target has tiers.
use crate::table::kernels::{PanelFn, Tier, TierId, TIERS};
use crate::view::{MatMut, MatRef};

/// Scratch memory of a product with `batch` rows of `cols` activations, of any format.
///
/// # Errors
/// `SizeOverflow`.
pub const fn scratch(batch: usize, cols: usize) -> Result<ScratchReq, KernelError> {
    match Activations::size(batch, cols) {
        Ok(req) => ScratchReq::array::<u8>(req.size_unaligned()),
        Err(e) => Err(e),
    }
}

/// The type of each format's `open`.
pub type Open = fn(usize, usize, &[u8]) -> Result<PackedQ<'_>, KernelError>;
/// The type of each format's `run`.
pub type Run =
    fn(Caps, MatMut<'_, f32>, PackedQ<'_>, MatRef<'_, f32>, Scratch<'_>) -> Result<(), KernelError>;

macro_rules! wrap {
    ({} isa: $isa:ident, module: $module:ident, tile: $tile:literal, skinny: $skinny:literal, attribute: $attr:meta) => {
        #[allow(dead_code)] // Scalar code where NEON is always there.
        mod $module {
            use super::*;

            pub(super) const LEVEL: IsaLevel = IsaLevel::$isa;

            #[$attr]
            pub(super) unsafe fn quantize(a: &ActivationArgs<f32>) {
                if let Some(packing) = a.packing {
                    // SAFETY: the caller keeps the body's contract and vouches for the CPU.
                    unsafe { activations::rounded::<f32, crate::isa::$isa, false>(a, packing) }
                }
            }
        }
    };
}
expand_all_isas! { wrap! {} }

/// Kernels of one format, and the features that they require.
struct Choice {
    requires: Features,
    quantize: unsafe fn(&ActivationArgs<f32>),
    /// The kernel for `n` rows of activations is at `n - 1`. Where there are none, the baseline is used.
    kernels: &'static [PanelFn],
}

/// The data that `open` and `run` of a format use.
struct Single {
    format: QuantFormat,
    packing: &'static Packing,
    /// The best first.
    choices: &'static [Choice],
}

/// Whether there are CPUs of this target for which no tier has kernels. Elsewhere portable code is left out.
const PORTABLE: bool = {
    let (mut portable, mut i) = (true, 0);
    while i < TIERS.len() {
        portable &= !Caps::BASELINE.features.contains(TIERS[i].requires);
        i += 1;
    }
    portable
};

/// The baseline.
static BASELINE: Choice = Choice { requires: Features::NONE, quantize: scalar::quantize, kernels: &[] };

impl Single {
    fn open<'a>(&self, rows: usize, cols: usize, buf: &'a [u8]) -> Result<PackedQ<'a>, KernelError> {
        qpack::open(Some(self.packing), self.format, rows, cols, buf)
    }

    fn run(
        &self,
        caps: Caps,
        y: MatMut<'_, f32>,
        w: PackedQ<'_>,
        x: MatRef<'_, f32>,
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        check::format("w", w.format(), self.format)?;
        check::product([w.rows(), w.cols()], [x.rows(), x.cols()], [y.rows(), y.cols()])?;
        if y.is_empty() {
            return Ok(());
        }
        let has = |choice: &&Choice| caps.features().contains(choice.requires);
        let choice = match self.choices.iter().find(has) {
            Some(choice) => choice,
            None if PORTABLE => &BASELINE,
            None => return Err(caps.lacks(IsaLevel::Neon, Features::NEON)),
        };
        let buf = scratch.take::<u8>(Activations::size(x.rows(), x.cols())?.size_unaligned())?;
        // SAFETY: the instructions are present.
        let x = unsafe {
            activations::quantize(self.format, (Some(self.packing), true), x, buf, choice.quantize)?
        };
        let step = if choice.kernels.is_empty() { qgemv_packed::BATCH } else { choice.kernels.len() };
        let prefetches = caps.prefetcher().prefetches();
        // SAFETY: packed weights have all their panels, activations all their rows; the instructions are present.
        qgemv_packed::products(y, w, self.packing, x, step, prefetches, |args, batch| unsafe {
            match choice.kernels.get(batch - 1) {
                Some(kernel) => kernel(args),
                None if PORTABLE => crate::table::scalar::qgemv_packed(args, batch, self.packing),
                // Every choice has kernels.
                None => {}
            }
        });
        Ok(())
    }
}

/// The kernels of every tier for a format.
macro_rules! choices {
    ({ $field:ident } $($tier:ident {
        isa: $isa:ident,
        requires: $requires:tt,
        batch: $batch:tt,
        single: [$($module:ident)?],
        in_place: $in_place:tt,
        qgemm: $qgemm:tt,
        few: $few:tt,
        few_packed: $few_packed:tt,
    })*) => {
        &[$($(Choice {
            requires: of_level(&TIERS[TierId::$tier as usize], $module::LEVEL).requires,
            quantize: $module::quantize,
            kernels: TIERS[TierId::$tier as usize].packed.$field,
        },)?)*]
    };
}

/// The tier, checked at compile time: it is one of this level, and has the features that the level's code needs.
#[allow(dead_code)] // Not every target has tiers.
const fn of_level(tier: &'static Tier, level: IsaLevel) -> &'static Tier {
    assert!(tier.level as usize == level as usize && tier.requires.contains(level.requires()));
    tier
}

macro_rules! define {
    ({} floats $floats:tt $($(#[$on:meta])* $field:ident = $name:ident: $file:ident, gguf $gguf:literal, $what:literal;)*) => {
        $(
            $(#[$on])*
            #[doc = $what]
            pub mod $field {
                use super::*;

                static SINGLE: Single = Single {
                    format: QuantFormat::$name,
                    packing: &<crate::quant::formats::$name as Pack>::PACKING,
                    choices: expand_all_tiers! { choices! { $field } },
                };

                /// Opens packed weights, as [`packed_q`](crate::Kernels::packed_q) does.
                ///
                /// # Errors
                /// Those of [`packed_q`](crate::Kernels::packed_q).
                pub fn open(rows: usize, cols: usize, buf: &[u8]) -> Result<PackedQ<'_>, KernelError> {
                    SINGLE.open(rows, cols, buf)
                }

                /// `y = x w^T`: `w` is `rows x cols`, `x` is `batch x cols` and is rounded to 8 bits, `y` is
                /// `batch x rows`.
                ///
                /// # Errors
                /// `WrongFormat` if the weights are of another format; `DimMismatch`; `ScratchTooSmall`, see
                /// [`scratch`](super::scratch); `IsaUnavailable` without NEON where that is the baseline.
                pub fn run(
                    caps: Caps,
                    y: MatMut<'_, f32>,
                    w: PackedQ<'_>,
                    x: MatRef<'_, f32>,
                    scratch: Scratch<'_>,
                ) -> Result<(), KernelError> {
                    SINGLE.run(caps, y, w, x, scratch)
                }
            }
        )*

        /// All formats. A program that uses this list contains the code of all of them.
        pub static ALL: &[(QuantFormat, Open, Run)] = &[$($(#[$on])* (QuantFormat::$name, $field::open, $field::run)),*];
    };
}
expand_all_formats! { define! {} }
