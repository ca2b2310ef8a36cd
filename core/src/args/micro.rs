//! Microkernels of matrix products: what the loops around them know of each ([`Micro`]), and the arguments of a call
//! ([`MicroArgs`]).

use core::fmt;

use crate::caps::{Features, IsaLevel};
use crate::element::ElementType;
use crate::isa::machine::Assembly;

/// One tile of `C`, from one panel of `A` and one of `B`: `C = alpha * A B + beta * C`.
///
/// A microkernel with [`Micro::around`] keeps the sums of the tile in tile registers until its next call, which stores them at `tile`
/// and brings them to `C` from there. For those all that concerns `C` (`c`, `ldc`, `rows`, `cols`, `alpha`, `beta`), and `tile`, is
/// about the tile of the call before; `rows` is 0 where there was none or its sums are not complete, and `steps` is 0 where no
/// tile follows.
#[repr(C)]
pub(crate) struct MicroArgs {
    /// The panel of `A`: for each of `steps`, [`Panel::width`] times [`Panel::kr`] elements.
    pub(crate) a: *const u8,
    /// The panel of `B`.
    pub(crate) b: *const u8,
    /// The corner of the tile. Its columns are contiguous. For kernels with [`Micro::around`], where `rows` is 0, the address from
    /// which two lines a step are prefetched to L2.
    pub(crate) c: *mut u8,
    /// Steps of [`Micro::depth`], at least 1; 0 if no tile follows, which is so for kernels with [`Micro::around`] only.
    pub(crate) steps: usize,
    /// For kernels with [`Micro::strides`], in bytes: from one row of `A` to the next, from one step (of `kr`) to the
    /// next, and from one step of `B` to the next.
    pub(crate) a_row: usize,
    pub(crate) a_step: usize,
    pub(crate) b_step: usize,
    /// From one row of `C` to the next, in bytes.
    pub(crate) ldc: usize,
    /// Rows of `C` that exist, `1..=mr`. Other rows are neither read nor written.
    pub(crate) rows: usize,
    /// Columns of `C` that exist, `1..=nr`.
    pub(crate) cols: usize,
    pub(crate) alpha: f32,
    /// 0: `C` is not read. Integer kernels know 0 and 1 alone, and no other `alpha` than 1.
    pub(crate) beta: f32,
    /// The address from which the microkernel prefetches what will be read after this tile. It need not be valid. To L2 as many bytes
    /// as [`Micro::prefetched_bytes`] says; kernels with [`Micro::around`] four lines a step to L1.
    pub(crate) next: *const u8,
    /// The start values of the sums: of each column, where the panels of `B` are [`PanelType::I8Offset`]; of all elements, as they are
    /// stored at `tile`, for kernels with [`Micro::around`], null being zeros.
    pub(crate) start: *const i32,
    /// Room for a whole tile, aligned to 64 bytes, for kernels that need memory: their own between two calls, too. It may be
    /// where `c` is.
    pub(crate) tile: *mut u8,
}

/// Steps that one round of a microkernel's loop takes. Blocks are whole rounds deep.
pub(crate) const ROUND: usize = 4;

/// No tile has more elements.
pub(crate) const MAX_TILE: usize = 1024;

/// No tile has more rows or columns, and no panel is filled up to more elements of four bytes along the depth.
pub(crate) const MAX_SIDE: usize = 64;

/// How to call a microkernel.
#[derive(Clone, Copy)]
pub(crate) enum MicroFn {
    /// In assembly.
    #[allow(dead_code)] // Not every target has one.
    Asm(Assembly<MicroArgs>),
    /// Compiled: the generic baseline of an instruction set.
    Compiled(unsafe fn(&MicroArgs)),
}

/// Type of the elements of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code)] // Not every target has kernels for each.
pub(crate) enum PanelType {
    F32 = 1,
    F16 = 2,
    Bf16 = 3,
    I8 = 4,
    /// i8, widened.
    I16 = 5,
    /// i8 plus 128.
    U8 = 6,
    /// i8. Behind each panel there is an i32 for each column, -128 times its sum. Sums of products start with it, which
    /// compensates the 128 that an `A` of [`U8`](Self::U8) has been increased by.
    I8Offset = 7,
}

impl PanelType {
    /// Bytes per element.
    pub(crate) const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 => 2,
            Self::I8 | Self::U8 | Self::I8Offset => 1,
        }
    }
}

/// How a packed panel lies in memory: for each group of `kr` steps, for each of its `width` rows of `A`
/// (columns of `B`), `kr` consecutive elements. Missing rows, columns and steps are zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panel {
    pub(crate) element: PanelType,
    pub(crate) width: usize,
    pub(crate) kr: usize,
}

impl Panel {
    /// Bytes of `depth` steps of a panel, or of as many panels as `width` is a multiple.
    pub(crate) const fn steps(self, width: usize, depth: usize) -> usize {
        width.wrapping_mul(depth).wrapping_mul(self.element.size())
    }

    /// Bytes of whole panels: [`steps`](Self::steps), and the [`tail`](Self::tail) of each.
    pub(crate) const fn bytes(self, width: usize, depth: usize) -> usize {
        self.steps(width, depth).wrapping_add(width.wrapping_mul(self.tail()))
    }

    /// Whether its elements are those of a matrix of this type as they are.
    pub(crate) const fn holds(self, storage: ElementType) -> bool {
        matches!(
            (self.element, storage),
            (PanelType::F32, ElementType::F32)
                | (PanelType::F16, ElementType::F16)
                | (PanelType::Bf16, ElementType::Bf16)
        )
    }

    /// Whether [`decode_panel`](crate::ops::qgemm::tile::decode_panel) writes such panels of `B` for a matrix of type
    /// `storage`, with registers of `lanes` f32.
    pub(crate) const fn is_decoded(self, storage: ElementType, lanes: usize) -> bool {
        let order = match (self.element, self.kr) {
            (PanelType::F32, 1) => true,
            (_, 1 | 2 | 4) => self.holds(storage),
            _ => false,
        };
        order && self.width.is_multiple_of(lanes)
    }

    /// Bytes behind the steps, for each of a panel's columns.
    pub(crate) const fn tail(self) -> usize {
        match self.element {
            PanelType::I8Offset => size_of::<i32>(),
            _ => 0,
        }
    }
}

/// Who handles tiles that reach beyond the edges of `C`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edges {
    /// The kernel: it writes `rows x cols` elements.
    #[allow(dead_code)] // Not every target has one.
    Kernel,
    /// The kernel for missing rows, the driver for missing columns: the kernel writes `rows x nr` elements.
    #[allow(dead_code)] // Not every target has one.
    Rows,
    /// The driver: the kernel always writes whole tiles.
    Driver,
}

/// Which microkernel in assembly: its place in their enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MicroId(pub(crate) u16);

/// A microkernel.
#[derive(Clone, Copy)]
pub(crate) struct Micro {
    /// Its registry row for `gemm`, its file, its symbol.
    pub(crate) name: &'static str,
    /// Which one it is, if it is in assembly.
    pub(crate) id: Option<MicroId>,
    /// Storage type of `A` and `B`.
    pub(crate) storage: ElementType,
    pub(crate) level: IsaLevel,
    /// The features that the CPU must have, the level's features included.
    pub(crate) requires: Features,
    /// Panels of `A`: as wide as the tile is high.
    pub(crate) a: Panel,
    /// Panels of `B`: as wide as the tile.
    pub(crate) b: Panel,
    /// Panels are filled up to a multiple of this many steps of the inner dimension. A multiple of both
    /// panels' `kr`.
    pub(crate) depth: usize,
    pub(crate) edges: Edges,
    /// Whether it takes `A` and `B` at strides. Operands that are in a near cache then need no packing.
    pub(crate) strides: bool,
    pub(crate) run: MicroFn,
    /// Called before the first tile of a product, and after its last (AMX: tile registers are set up and released). Such a
    /// microkernel brings a tile to `C` with the next call: see [`MicroArgs`].
    pub(crate) around: Option<[unsafe fn(); 2]>,
}

impl Micro {
    /// The microkernel itself, if what the driver and the packing functions rely on holds. Every microkernel passes
    /// through here in a constant, so that one with a larger tile, or with panels that nothing writes, does not compile.
    pub(crate) const fn checked(self) -> Self {
        let Self { storage, level, a, b, depth, .. } = self;
        assert!(a.width * b.width <= MAX_TILE, "a tile is larger than its buffer");
        assert!(a.width <= MAX_SIDE && b.width <= MAX_SIDE, "a tile is too wide or too high");
        let round = depth * ROUND;
        let bytes = MAX_SIDE * size_of::<f32>();
        assert!(a.bytes(1, round) <= bytes && b.bytes(1, round) <= bytes, "a step is too deep");
        assert!(depth.is_multiple_of(a.kr) && depth.is_multiple_of(b.kr), "a step is a part of a group");
        assert!(
            matches!(storage, ElementType::I8) || b.is_decoded(storage, level.lanes()),
            "nothing decodes weights to such panels"
        );
        self
    }

    /// Bytes that a tile of `steps` steps prefetches from [`MicroArgs::next`] on: one line of 64 bytes for each round.
    pub(crate) const fn prefetched_bytes(&self, steps: usize) -> usize {
        64 * (steps / ROUND)
    }

    /// Computes a tile.
    ///
    /// # Safety
    /// The arguments are as their fields say, for this microkernel; the CPU has the features that it requires.
    #[inline(always)]
    pub(crate) unsafe fn call(&self, args: &MicroArgs) {
        // SAFETY: the caller's contract.
        unsafe {
            match self.run {
                MicroFn::Asm(f) => f(args),
                MicroFn::Compiled(f) => f(args),
            }
        }
    }
}

impl fmt::Debug for Micro {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

// `is_decoded` refuses groups of steps that it does not know, other types, and panels narrower than a register.
const _: () = {
    const fn is_decoded(element: PanelType, width: usize, kr: usize) -> bool {
        Panel { element, width, kr }.is_decoded(ElementType::Bf16, 16)
    }
    assert!(is_decoded(PanelType::Bf16, 32, 2) && is_decoded(PanelType::F32, 16, 1));
    assert!(!is_decoded(PanelType::Bf16, 32, 3) && !is_decoded(PanelType::Bf16, 32, 8));
    assert!(!is_decoded(PanelType::F32, 32, 2) && !is_decoded(PanelType::F16, 32, 2));
    assert!(!is_decoded(PanelType::Bf16, 8, 2));
};
