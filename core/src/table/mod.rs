//! Dispatch: tables of function pointers, one for each instruction set and storage type, and the selection of one for a CPU.

use core::fmt;
use core::hint::unreachable_unchecked;
use core::ops::Deref;

use crate::args::micro::{Edges, Micro, MicroArgs, MicroFn, Panel, PanelType};
use crate::caps::{Caps, Features, IsaLevel, Prefetcher, Prefetches};
use crate::element::{bf16, f16, Element, ElementType, Operand};
use crate::error::KernelError;
use crate::ops::activations::ActivationArgs;
use crate::ops::attention::{AppendArgs, AttendArgs, JoinArgs, KeysArgs};
use crate::ops::causal_conv::CausalConvArgs;
use crate::ops::dequant::DecodeArgs;
use crate::ops::engine::Access;
use crate::ops::external::{AwqRef, ColumnsArgs, ExternalArgs, Fp8Ref, GptqRef, SqueezeLlmRef};
use crate::ops::gated_delta::GatedDeltaArgs;
use crate::ops::gemv::GemvArgs;
use crate::ops::loops::drive::Helpers;
use crate::ops::pack::PackArgs;
use crate::ops::qgemm::few::FewArgs;
use crate::ops::qgemm::packed::PanelQArgs;
use crate::ops::qgemm::tile::{DecodePanelArgs, PanelKind, PanelWArgs, PanelXArgs, QTileArgs};
use crate::ops::qgemv::QgemvArgs;
use crate::ops::qgemv_packed::PanelArgs;
use crate::ops::qpack::PackQArgs;
use crate::ops::rope::RopeShape;
use crate::ops::skinny::SkinnyArgs;
use crate::ops::softmax::Softmax;
use crate::ops::tile::{FinishArgs, MergeArgs};
use crate::ops::unquantised::{UnquantisedDecodeArgs, UnquantisedEncodeArgs, UnquantisedGemvArgs};
use crate::quant::packed::Packing;
use crate::quant::QuantFormat;
use crate::tile::Tile;
use formats::Formats;
use kernels::{Tier, MICROS, TIERS};

#[macro_use]
mod define_ops;
#[macro_use]
mod expand_all;
mod formats;
pub(crate) mod kernels;
pub mod registry;

pub use registry::{KernelInfo, Op};

expand_all_ops! { define_table! {} }

macro_rules! wrap {
    ({} isa: $isa:ident, module: $module:ident, tile: $tile:literal, skinny: $skinny:literal, attribute: $attr:meta) => {
        const _: () = {
            use crate::isa::{$isa, InstructionSet};
            assert!(IsaLevel::$isa.lanes() == <$isa as crate::vector::Vector>::LANES);
            assert!(IsaLevel::$isa as usize == $isa::LEVEL as usize);
            assert!($isa::TILE.is_in(concat!("_", $tile, "__")));
            assert!($isa::SKINNY_TILE.is_in(concat!("_", $skinny, "__")));
        };
        expand_all_ops! { define_ops! { isa: $isa, module: $module, tile: $tile, skinny: $skinny, attribute: $attr } }
    };
}
expand_all_isas! { wrap! {} }

/// The part of a table that matrix products use. int8 has no other part.
#[derive(Clone, Copy)]
pub struct Products {
    pub(crate) level: IsaLevel,
    /// The generic microkernel.
    pub(crate) baseline: &'static Micro,
    pub(crate) helpers: Helpers,
}

/// int8: the microkernel and its helpers, for every instruction set.
mod int8 {
    use super::*;
    expand_all_isas! { define_int8! {} }
}

/// The kernels of one instruction set for a storage type that is an [`Element`]; for others there are only [`Products`].
pub(crate) struct TableOf<E: 'static>(Option<&'static Table<E>>);

impl<E> Clone for TableOf<E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E> Copy for TableOf<E> {}

impl<E> TableOf<E> {
    /// The table, if there is one.
    pub(crate) fn get(self) -> Option<&'static Table<E>> {
        self.0
    }
}

impl<E: Element> TableOf<E> {
    /// The table.
    #[inline(always)]
    pub(crate) fn of_element(self) -> &'static Table<E> {
        // SAFETY: `find` is all that makes one, and does it with a table for every `Element`.
        unsafe { self.0.unwrap_unchecked() }
    }
}

impl<E: Element> Deref for TableOf<E> {
    type Target = Table<E>;
    #[inline(always)]
    fn deref(&self) -> &Table<E> {
        self.of_element()
    }
}

macro_rules! find {
    (
        { $level:ident $e:ident }
        isa: $isa:ident, module: $module:ident, tile: $tile:literal, skinny: $skinny:literal, attribute: $attr:meta
    ) => {
        if $level == IsaLevel::$isa {
            return Some(const { &$module::table::<$e>() });
        }
    };
}
macro_rules! tables {
    ($($e:ident)*) => {$(
        /// The table of `level` for a storage type, if this build has kernels for it.
        // Inlined elsewhere, it would compile every kernel again.
        #[inline(never)]
        fn $e(level: IsaLevel) -> Option<&'static Table<$e>> {
            expand_all_isas! { find! { level $e } }
            None
        }
    )*};
}
tables! { f32 f16 bf16 }

macro_rules! find_int8 {
    (
        { $level:ident }
        isa: $isa:ident, module: $module:ident, tile: $tile:literal, skinny: $skinny:literal, attribute: $attr:meta
    ) => {
        if $level == IsaLevel::$isa {
            return Some(&int8::$module::TABLE);
        }
    };
}
fn i8(level: IsaLevel) -> Option<&'static Products> {
    expand_all_isas! { find_int8! { level } }
    None
}

/// The kernels of `level` for a storage type, if this build has any.
fn find<E: Operand>(level: IsaLevel) -> Option<(&'static Products, TableOf<E>)> {
    fn of<T: Element, E: Operand>(table: &'static Table<T>) -> (&'static Products, TableOf<E>) {
        // SAFETY: the caller compares the types: no two have the same value, as the trait is sealed.
        (&table.products, TableOf(Some(unsafe { &*(&raw const *table).cast() })))
    }
    match E::TYPE {
        ElementType::F32 => f32(level).map(of),
        ElementType::F16 => f16(level).map(of),
        ElementType::Bf16 => bf16(level).map(of),
        ElementType::I8 => i8(level).map(|products| (products, TableOf(None))),
    }
}

/// The best that every CPU with these features has; the portable kernels are in every build.
fn best<E: Operand>(features: Features) -> (&'static Products, TableOf<E>) {
    let there = |l: &IsaLevel| features.contains(l.requires());
    let found = IsaLevel::ALL.into_iter().filter(there).find_map(find);
    match found.or_else(|| find(IsaLevel::Scalar)) {
        Some(found) => found,
        // SAFETY: `expand_all_isas!` ends with the portable instruction set on every target.
        None => unsafe { unreachable_unchecked() },
    }
}

/// The kernels for storage type `E` on one instruction set: every operator is a method.
///
/// Of an [`Element`] there is everything; of [`i8`] matrix products: see [`GemmPlan`](crate::GemmPlan).
///
/// Copying is free. A call costs argument checks and one indirect jump.
///
/// ```
/// # use gllm_kernels_core::Kernels;
/// let k = Kernels::<f32>::detect();
/// let mut y = [0.0; 3];
/// k.relu(&[-1.0, 0.5, 2.0], &mut y)?;
/// assert_eq!(y, [0.0, 0.5, 2.0]);
/// # Ok::<(), gllm_kernels_core::KernelError>(())
/// ```
pub struct Kernels<E: Operand> {
    pub(crate) products: &'static Products,
    pub(crate) table: TableOf<E>,
    pub(crate) micro: &'static Micro,
    /// Kernels in assembly for products in integers, of this level or a lower one; without, the baseline does it.
    pub(crate) tier: Option<&'static Tier>,
    caps: Caps,
    policy: StorePolicy,
}

impl<E: Operand> Clone for Kernels<E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E: Operand> Copy for Kernels<E> {}

impl<E: Operand> fmt::Debug for Kernels<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernels")
            .field("level", &self.products.level)
            .field("micro", &self.micro)
            .field("tier", &self.tier)
            .field("caps", &self.caps)
            .field("policy", &self.policy)
            .finish()
    }
}

/// When outputs bypass the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorePolicy {
    /// Outputs larger than a core's share of the last-level cache do.
    Auto,
    /// Never: the next operator reads the output soon.
    Cached,
    /// Always: for one part of an output that is large as a whole.
    Streamed,
}

/// The best kernels for products in integers that need no other features, of this level or of a lower one: a CPU with
/// AVX-512 but without VNNI has the kernels for AVX2.
fn in_integers(level: IsaLevel, features: Features) -> Option<&'static Tier> {
    TIERS.iter().find(|tier| tier.level <= level && features.contains(tier.requires))
}

impl<E: Operand> Kernels<E> {
    /// The best kernels for the capabilities that [`Caps::detect`] finds. That leaves out AMX on x86-64, and all that aarch64 has
    /// beside NEON (dotprod, I8MM, BF16, FHM).
    ///
    /// With an operating system use `gllm_kernels_std::kernels()`, which leaves out nothing. On bare metal at EL1 use
    /// [`with`](Self::with) and [`Caps::of_this_core`].
    pub fn detect() -> Self {
        Self::with(Caps::detect())
    }

    /// The best kernels for `caps`.
    ///
    /// Levels without kernels in this build (a soft-float target, say) fall back to the next one.
    pub fn with(caps: Caps) -> Self {
        let (products, table) = best(caps.features());
        let Products { level, baseline, .. } = *products;
        let fits = |micro: &&Micro| {
            (micro.storage, micro.level) == (E::TYPE, level) && caps.features().contains(micro.requires)
        };
        let micro = MICROS.iter().find(fits).unwrap_or(baseline);
        let tier = in_integers(level, caps.features());
        Self { products, table, micro, tier, caps, policy: StorePolicy::Auto }
    }

    /// The kernels of exactly this level, with the features that [`Caps::detect`] finds.
    ///
    /// # Errors
    /// `IsaUnavailable` if the CPU lacks it or this build has no kernels for it.
    pub fn forced(level: IsaLevel) -> Result<Self, KernelError> {
        let k = Self::with(Caps::detect().restricted_to(level)?);
        if k.level() != level {
            let missing = Features::NONE;
            return Err(KernelError::IsaUnavailable { want: level, have: k.level(), missing });
        }
        Ok(k)
    }

    /// The same kernels with another store policy. Results do not change, only where they are kept.
    pub fn with_stores(self, policy: StorePolicy) -> Self {
        Self { policy, ..self }
    }

    /// When their outputs bypass the caches.
    pub fn stores(&self) -> StorePolicy {
        self.policy
    }

    /// Kernels for another storage type with everything that was chosen for these and does not depend on the type.
    pub(crate) fn of<T: Operand>(&self) -> Kernels<T> {
        Kernels { tier: self.tier, policy: self.policy, ..Kernels::with(self.caps) }
    }

    /// The same kernels, with the matrix products of `row`: a row of `gemm` or another product of its slot, for this storage
    /// type and level. Tests and benchmarks reach every microkernel this way; [`with`](Self::with) chooses
    /// the best.
    ///
    /// # Errors
    /// `BadParameter` if the row is of another kind, storage type or level; `IsaUnavailable` if
    /// the CPU lacks features that the kernel needs.
    pub fn with_gemm(self, row: &KernelInfo) -> Result<Self, KernelError> {
        let micros = MICROS.iter().chain([self.products.baseline]);
        let mut own = micros.filter(|m| (m.storage, m.level) == (E::TYPE, self.level()));
        let expected = "a row of gemm for this storage type and level";
        let micro =
            own.find(|m| row.is_done_by(m)).ok_or(KernelError::BadParameter { arg: "row", expected })?;
        if !self.caps.features().contains(micro.requires) {
            return Err(self.caps.lacks(micro.level, micro.requires));
        }
        Ok(Self { micro, ..self })
    }

    /// The same kernels, with the products in integers of `row`, a row of `qgemv_packed`, `qgemv_q8` or `qgemm` of this
    /// level; see [`with_gemm`](Self::with_gemm).
    ///
    /// # Errors
    /// `BadParameter` if the row is of another operator or level; `IsaUnavailable` if the CPU lacks features that the kernel needs.
    pub fn with_qgemv(self, row: &KernelInfo) -> Result<Self, KernelError> {
        let expected = "a row of a product in integers of this level";
        if !matches!(row.op, Op::QgemvPacked | Op::QgemvQ8 | Op::Qgemm) || row.level != self.level() {
            return Err(KernelError::BadParameter { arg: "row", expected });
        }
        if !self.caps.features().contains(row.requires) {
            return Err(self.caps.lacks(row.level, row.requires));
        }
        // The best microkernel of the row, or the baseline.
        let tier = in_integers(row.level, row.requires).filter(|tier| row.is_done_by_tier(Some(tier)));
        Ok(Self { tier, ..self })
    }

    /// The registry row of the kernel that does `op`, with weights of this format if it takes any.
    pub fn kernel(&self, op: Op, format: Option<QuantFormat>) -> Option<&'static KernelInfo> {
        let mut rows = registry::kernels().filter(|row| {
            (row.op, row.element, row.format) == (op, E::TYPE, format) && row.level <= self.level()
        });
        let generic = rows.clone().filter(|row| row.level == self.level()).last();
        rows.find(|row| row.is_done_by(self.micro) || row.is_done_by_tier(self.tier)).or(generic)
    }

    /// The table for f32 of this level.
    pub(crate) fn plain(&self) -> &'static Table<f32> {
        best(self.level().requires()).1.of_element()
    }

    /// The compiled functions that matrix products use beside their microkernel.
    pub(crate) fn helpers(&self) -> Helpers {
        self.products.helpers
    }

    /// The instruction set these kernels are written for.
    pub fn level(&self) -> IsaLevel {
        self.products.level
    }

    /// The capabilities they were chosen by.
    pub fn caps(&self) -> Caps {
        self.caps
    }

    /// Output bytes from which [`StorePolicy::Auto`] streams: the last-level cache is shared, and what one core leaves there
    /// beyond its [`share`](crate::CacheSizes::share) is gone before it is read.
    pub fn stream_from(&self) -> usize {
        self.caps.caches().share()
    }

    /// How operands are walked and `n` elements of output are stored.
    pub(crate) fn access(&self, n: usize) -> Access {
        let streamed = match self.policy {
            StorePolicy::Auto => n.saturating_mul(size_of::<E>()) >= self.stream_from(),
            StorePolicy::Cached => false,
            StorePolicy::Streamed => true,
        };
        Access { streamed, ..self.access_inplace() }
    }

    /// How operands are walked where nothing is written, or only over an input.
    pub(crate) fn access_inplace(&self) -> Access {
        let prefetcher = self.caps.prefetcher();
        Access {
            streamed: false,
            side_by_side: prefetcher == Prefetcher::PerPage,
            norm_side_by_side: prefetcher != Prefetcher::Sequential(Prefetches::IntoL1),
        }
    }
}
