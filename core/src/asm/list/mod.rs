//! The enumeration of kernels in assembly. Each architecture that has any lists them in a file of its own; the empty lists in
//! this file serve all others.

#[allow(unused_macros)] // The list of an architecture takes its place.
/// Calls `$then!` with every microkernel in assembly of this target; every architecture has a file of
/// them here.
///
/// The order is that of preference: of the entries for one storage type and instruction set, the first
/// whose features the CPU has is used; the generic baseline comes last. `tail` is the name behind the
/// operator's, `requires` what the CPU must have beyond `isa`, `a` and `b` the element type and `kr` of
/// the panels (see [`Panel`](crate::args::micro::Panel)), the rest the fields of
/// [`Micro`](crate::args::micro::Micro).
macro_rules! expand_all_micros {
    ($then:ident!) => {
        $then! {}
    };
}

#[allow(unused_macros)] // The list of an architecture takes its place.
/// Calls `$then!` with `$args` and every tier of kernels for quantised products in integers of this target: the end of
/// their names, and what the CPU must have. The first that the CPU can execute is used.
///
/// The fields of an entry:
///
/// - `batch`: there are kernels for packed weights of all formats, for 1 to this many rows of activations.
/// - `single`: the module of the instruction set that rounds activations for programs with one format alone. A tier without
///   this field is not used by such programs.
/// - `in_place`: the [`Dots`](crate::quant::dots::Dots) for weights in place, and the target features for which they are compiled.
///   A tier without this field uses those of its level.
/// - `qgemm`: whether the kernels for many rows take unsigned or signed codes, and whether there are others for narrow codes; how
///   many rows of weights they take; and the numbers of rows of activations for which there are kernels.
/// - `few`, `few_packed`: see [`Tier::few`](crate::table::kernels::Tier::few) and
///   [`Tier::few_packed`](crate::table::kernels::Tier::few_packed).
macro_rules! expand_all_tiers {
    ($then:ident! $args:tt) => {
        $then! { $args }
    };
}

#[allow(unused_macros)] // The list of an architecture may have its own.
/// Declares kernels.
macro_rules! kernels_in_assembly {
    ($($declaration:tt)*) => {
        extern "C" {
            $($declaration)*
        }
    };
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[macro_use]
mod x86_64;

#[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
#[macro_use]
mod aarch64;
