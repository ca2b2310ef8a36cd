//! One-time selection: from capabilities to a table of function pointers.

use crate::asm::abi::{Edges, Micro, MicroArgs, Panel, PanelType, Run};
use crate::asm::MICROS;
use crate::caps::{Caps, IsaLevel, Prefetcher};
use crate::element::{bf16, f16, Element};
use crate::error::KernelError;
use crate::ops::engine::Access;
use crate::ops::gemm::Helpers;
use crate::ops::gemv::GemvArgs;
use crate::ops::pack::PackArgs;
use crate::ops::rope::RopeShape;
use crate::ops::softmax::Softmax;
use crate::ops::tile::{FinishArgs, MergeArgs, Tile};
use crate::quant::QuantFormat;
use crate::registry::{kernels, KernelInfo, Op};

expand_all_ops! { define_table! {} }

macro_rules! wrap {
    ({} isa: $isa:ident, module: $module:ident, tile: $tile:literal, attribute: $attr:meta) => {
        const _: () = assert!(
            Tile::of(<crate::isa::$isa as crate::isa::Vector>::LANES).is_in(concat!("_", $tile, "__"))
        );
        expand_all_ops! { define_ops! { isa: $isa, module: $module, tile: $tile, attribute: $attr } }
    };
}
expand_all_isas! { wrap! {} }

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
}

/// Finds the kernel tables of a storage type. Sealed.
pub trait Tables: sealed::Sealed + Sized {
    /// The table of `level`, if this build has kernels for it.
    #[doc(hidden)]
    fn table(level: IsaLevel) -> Option<&'static Table<Self>>;
    /// The table that every build has.
    #[doc(hidden)]
    fn scalar() -> &'static Table<Self>;
}

macro_rules! find {
    ({ $level:ident $e:ident } isa: $isa:ident, module: $module:ident, tile: $tile:literal, attribute: $attr:meta) => {
        if $level == IsaLevel::$isa {
            return Some(const { &$module::table::<$e>() });
        }
    };
}
macro_rules! tables {
    ($($e:ident)*) => {$(
        impl Tables for $e {
            fn table(level: IsaLevel) -> Option<&'static Table<Self>> {
                expand_all_isas! { find! { level $e } }
                None
            }
            fn scalar() -> &'static Table<Self> {
                const { &scalar::table::<$e>() }
            }
        }
    )*};
}
tables! { f32 f16 bf16 }

/// The kernels for storage type `E` on one instruction set: every operator is a method.
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
#[derive(Debug)]
pub struct Kernels<E: Element> {
    pub(crate) table: &'static Table<E>,
    pub(crate) micro: &'static Micro,
    caps: Caps,
    policy: StorePolicy,
}

impl<E: Element> Clone for Kernels<E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E: Element> Copy for Kernels<E> {}

impl<E> core::fmt::Debug for Table<E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Table({})", self.level)
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

impl<E: Element> Kernels<E> {
    /// The best kernels for this CPU; see [`Caps::detect`].
    pub fn detect() -> Self {
        Self::with(Caps::detect())
    }

    /// The best kernels for `caps`.
    ///
    /// Levels without kernels in this build (a soft-float target, say) fall back to the next one.
    pub fn with(caps: Caps) -> Self {
        let there = |l: &IsaLevel| caps.features().contains(l.requires());
        let table = IsaLevel::ALL.iter().filter(|l| there(l)).find_map(|&l| E::table(l));
        let table = table.unwrap_or_else(E::scalar);
        let fits = |micro: &&Micro| {
            (micro.storage, micro.level) == (E::TYPE, table.level) && caps.features().contains(micro.requires)
        };
        let micro = MICROS.iter().find(fits).unwrap_or(&table.baseline);
        Self { table, micro, caps, policy: StorePolicy::Auto }
    }

    /// The kernels of exactly this level.
    ///
    /// # Errors
    /// `IsaUnavailable` if the CPU lacks it or this build has no kernels for it.
    pub fn forced(level: IsaLevel) -> Result<Self, KernelError> {
        let k = Self::with(Caps::detect().restricted_to(level)?);
        if k.level() != level {
            return Err(KernelError::IsaUnavailable { want: level, have: k.level() });
        }
        Ok(k)
    }

    /// The same kernels with another store policy. Results do not change, only where they are kept.
    pub fn with_stores(self, policy: StorePolicy) -> Self {
        Self { policy, ..self }
    }

    /// The same kernels, with the matrix products of `row`: a row of `gemm` or its kin, for this storage
    /// type and level. Tests and benchmarks reach every microkernel this way; [`with`](Self::with) chooses
    /// the best.
    ///
    /// # Errors
    /// `BadParameter` if the row is of another kind, storage type or level; `FeatureUnavailable` if
    /// the CPU lacks what the kernel needs.
    pub fn with_gemm(self, row: &KernelInfo) -> Result<Self, KernelError> {
        let micros = MICROS.iter().chain([&self.table.baseline]);
        let mut own = micros.filter(|m| (m.storage, m.level) == (E::TYPE, self.level()));
        let (have, expected) = (self.caps.features(), "a row of gemm for this storage type and level");
        let micro =
            own.find(|m| row.is_done_by(m)).ok_or(KernelError::BadParameter { arg: "row", expected })?;
        if !have.contains(micro.requires) {
            return Err(KernelError::FeatureUnavailable { want: micro.requires, have });
        }
        Ok(Self { micro, ..self })
    }

    /// The registry row of the kernel that does `op`, with weights of this format if it takes any.
    pub fn kernel(&self, op: Op, format: Option<QuantFormat>) -> Option<&'static KernelInfo> {
        let mut rows = kernels().filter(|row| {
            (row.op, row.element, row.format, row.level) == (op, E::TYPE, format, self.level())
        });
        let first = rows.clone().next();
        rows.find(|row| row.is_done_by(self.micro)).or(first)
    }

    /// What is compiled for the matrix products of these kernels.
    pub(crate) fn helpers(&self) -> Helpers {
        let table = self.table;
        Helpers { pack_a: table.pack_b, pack_b: table.pack_b, merge: table.merge, finish: table.finish }
    }

    /// The instruction set these kernels are written for.
    pub fn level(&self) -> IsaLevel {
        self.table.level
    }

    /// The capabilities they were chosen by.
    pub fn caps(&self) -> Caps {
        self.caps
    }

    /// Output bytes from which [`StorePolicy::Auto`] streams: the last-level cache is shared, and
    /// what one core leaves there beyond an eighth is gone before it is read.
    pub fn stream_from(&self) -> usize {
        let c = self.caps.caches();
        (c.l3 / 8).max(c.l2)
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

    /// The same where nothing is written, or only over an input.
    pub(crate) fn access_inplace(&self) -> Access {
        Access { streamed: false, side_by_side: self.caps.prefetcher() == Prefetcher::PerPage }
    }
}
