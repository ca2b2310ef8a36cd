//! Quantised weights: formats, views, and layer 3.
//!
//! A format stores a row as blocks of a fixed number of weights. Each block consists of groups; the weights of a group have a
//! scale in common and, in some formats, an offset: `w = code * scale + offset`, where `code` is a signed byte. Layer 3
//! unpacks blocks into codes, scales and offsets. Decoding and products are written once for all formats, on top of it.

// On targets without vectors, items that only SIMD rows use are unused.
#![cfg_attr(
    not(any(
        all(target_arch = "x86_64", target_feature = "sse2"),
        all(target_arch = "aarch64", target_feature = "neon")
    )),
    allow(dead_code, unused_imports)
)]

#[macro_use]
mod quant_primitive;
#[macro_use]
pub mod blocks;

pub(crate) mod bytes;
pub mod codebooks;
pub(crate) mod dots;
pub(crate) mod e4m3;
pub(crate) mod encode;
mod format;
pub(crate) mod iq;
pub(crate) mod k;
pub(crate) mod lanes;
pub(crate) mod legacy;
pub(crate) mod mx;
pub(crate) mod packed;
// Common code fills these arguments in; only x86-64 has kernels that read them.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(crate) mod pairs;
pub(crate) mod steps;
pub(crate) mod ternary;
mod view;
pub(crate) mod wide;

pub use crate::format::QuantFormat;
pub use view::QuantRef;

use blocks::Block;
use dots::CodeRegister;
use packed::GROUPS;

/// Elements of the longest blocks. The length of every block divides it.
pub(crate) const SUPER_BLOCK: usize = 256;

/// Codes that a SIMD row unpacks at a time; every block has a multiple of them.
pub(crate) const PART: usize = 32;

/// A byte times this number is a word of four such bytes.
pub(crate) const EVERY_BYTE: u32 = 0x0101_0101;

/// The smallest group of elements with a scale of its own; no vector is longer.
pub(crate) const MIN_GROUP: usize = 16;

/// A block format: the specification of its decode. Element `i` of a block is
/// `code(i) * scale(i / GROUP)`, rounded once, plus `offset(i / GROUP)` if the format has offsets,
/// rounded once more.
pub(crate) trait Format: 'static {
    /// The layout.
    type Block: Block;
    /// Elements per block; divides [`SUPER_BLOCK`].
    const LEN: usize;
    /// Consecutive elements that share a scale: 16 or 32. Where the format shares one among
    /// more, it is repeated.
    const GROUP: usize;
    /// Whether there are offsets.
    const OFFSETS: bool;
    /// Scale of group `g < LEN / GROUP`.
    fn scale(b: &Self::Block, g: usize) -> f32;
    /// Offset of group `g`.
    fn offset(b: &Self::Block, g: usize) -> f32;
    /// Element `i < LEN` before scaling.
    fn code(b: &Self::Block, i: usize) -> i8;
}

/// How an instruction set unpacks a format. Results have the bits of [`Format`].
///
/// # Safety
/// Methods require that the CPU has the instruction set, that the blocks they are given exist, and
/// room for what they write; nothing else is touched.
pub(crate) unsafe trait Unpack<F: Format>: CodeRegister {
    /// Writes the `n * LEN / GROUP` scales of `n` consecutive blocks.
    unsafe fn scales(first: *const F::Block, n: usize, out: *mut f32);
    /// Writes the `n * LEN / GROUP` offsets of `n` consecutive blocks, of a format that has any.
    #[inline(always)]
    unsafe fn offsets(_first: *const F::Block, _n: usize, _out: *mut f32) {}
    /// For blocks of 256: the factor that all scales of the block have in common, and the integers that are multiplied with it,
    /// by group. Zeros for shorter blocks.
    #[inline(always)]
    unsafe fn factors(_b: *const F::Block) -> (f32, [i8; GROUPS]) {
        (0.0, [0; GROUPS])
    }
    /// The same for the offsets, of a format that has any.
    #[inline(always)]
    unsafe fn minima(_b: *const F::Block) -> (f32, [i8; GROUPS]) {
        (0.0, [0; GROUPS])
    }
    /// The parts of a block that are unpacked once for the whole block, because that takes fewer instructions.
    type Ready: Copy;
    /// Unpacks these parts to memory, from where [`codes`](Self::codes) reads them.
    unsafe fn ready(b: *const F::Block, out: *mut Self::Ready);
    /// Codes `i .. i + PART` of a block; `i` is a multiple of `PART`, `ready` the block's.
    unsafe fn codes(b: *const F::Block, i: usize, ready: &Self::Ready) -> Self::Codes;
}

macro_rules! define_formats {
    ({} floats $floats:tt $($(#[$on:meta])* $field:ident = $name:ident: $module:ident, gguf $gguf:literal, $what:literal;)*) => {
        /// The marker types of all formats.
        pub(crate) mod formats {
            $($(#[$on])* pub(crate) use super::$module::$name;)*
        }
    };
}
expand_all_formats! { define_formats! {} }
