//! Kernels in assembly.
//!
//! A microkernel of a matrix product is an entry of `expand_all_micros!` (in `list/`) and a file in the folder of its
//! architecture; both have the kernel's name. The file calls [`microkernel!`] with the text of the assembly. Tables, registry,
//! tests and benches follow from the entry.
//!
//! Kernels of quantised products have one text for all formats, in which `.if` chooses instructions: a file for each *tier*,
//! which is an entry of `expand_all_tiers!`.

#[macro_use]
mod list;
mod packings;

#[allow(unused_macros)] // Where there are no kernels.
/// A kernel's symbol. Two versions of this crate may meet in one program.
macro_rules! symbol {
    ($name:expr) => {
        concat!(
            "gllm_kernels_",
            env!("CARGO_PKG_VERSION_MAJOR"),
            "_",
            env!("CARGO_PKG_VERSION_MINOR"),
            "_",
            $name
        )
    };
}

#[allow(unused_macros)] // Not every target has kernels of this kind.
/// Defines the symbol of a kernel: a section of its own, seen by this crate alone. Then come lines of
/// assembly, a semicolon, and the operands they name.
macro_rules! microkernel {
    ($name:expr, $($line:expr),* $(,)?; $($operand:tt)*) => {
        #[cfg(not(any(target_vendor = "apple", windows, target_os = "uefi")))]
        core::arch::global_asm!(
            concat!(".pushsection .text.", symbol!($name), ",\"ax\",@progbits"),
            concat!(".globl ", symbol!($name)),
            concat!(".hidden ", symbol!($name)),
            concat!(".type ", symbol!($name), ",@function"),
            ".p2align 6",
            concat!(symbol!($name), ":"),
            $($line,)*
            concat!(".size ", symbol!($name), ", . - ", symbol!($name)),
            ".popsection",
            $($operand)*
        );
        #[cfg(target_vendor = "apple")]
        core::arch::global_asm!(
            concat!(".globl _", symbol!($name)),
            concat!(".private_extern _", symbol!($name)),
            ".p2align 6",
            concat!("_", symbol!($name), ":"),
            $($line,)*
            $($operand)*
        );
        #[cfg(any(windows, target_os = "uefi"))]
        core::arch::global_asm!(
            concat!(".globl ", symbol!($name)),
            ".p2align 6",
            concat!(symbol!($name), ":"),
            $($line,)*
            $($operand)*
        );
    };
}

#[allow(unused_macros)] // Not every target has kernels of this kind.
/// A [`microkernel!`] of dense matrices: the fields of its argument are operands.
macro_rules! gemm_kernel {
    ($name:expr, $($line:expr),* $(,)?; $($operand:tt)*) => {
        microkernel! {
            $name,
            // Rust wants every operand to be named, but not every kernel reads all fields.
            "// {a} {b} {c} {steps} {a_row} {a_step} {b_step} {ldc} {rows} {cols} {alpha} {beta} {next} {start} {tile}",
            $($line,)*;
            a = const core::mem::offset_of!(crate::args::micro::MicroArgs, a),
            b = const core::mem::offset_of!(crate::args::micro::MicroArgs, b),
            c = const core::mem::offset_of!(crate::args::micro::MicroArgs, c),
            steps = const core::mem::offset_of!(crate::args::micro::MicroArgs, steps),
            a_row = const core::mem::offset_of!(crate::args::micro::MicroArgs, a_row),
            a_step = const core::mem::offset_of!(crate::args::micro::MicroArgs, a_step),
            b_step = const core::mem::offset_of!(crate::args::micro::MicroArgs, b_step),
            ldc = const core::mem::offset_of!(crate::args::micro::MicroArgs, ldc),
            rows = const core::mem::offset_of!(crate::args::micro::MicroArgs, rows),
            cols = const core::mem::offset_of!(crate::args::micro::MicroArgs, cols),
            alpha = const core::mem::offset_of!(crate::args::micro::MicroArgs, alpha),
            beta = const core::mem::offset_of!(crate::args::micro::MicroArgs, beta),
            next = const core::mem::offset_of!(crate::args::micro::MicroArgs, next),
            start = const core::mem::offset_of!(crate::args::micro::MicroArgs, start),
            tile = const core::mem::offset_of!(crate::args::micro::MicroArgs, tile),
            $($operand)*
        }
    };
}

#[allow(unused_macros)] // Not every target has kernels of this kind.
/// A [`microkernel!`] on packed weights of a format, for `$rows` rows of activations. Its operands are the fields of its argument,
/// the sizes of a unit, and the format's [`Packing`](crate::quant::packed::Packing), by which `.if` chooses instructions.
macro_rules! panel_kernel {
    ($name:expr, $format:ident, $rows:literal, $($line:expr),* $(,)?; $($operand:tt)*) => {
        microkernel! {
            $name,
            // Rust wants every operand to be named, but not every kernel reads all of them.
            "// {rows} {low_bits} {high_bits} {by_row} {table_of_values} {group} {offsets} {scales}",
            "// {halves} {whole} {factors} {e8m0} {ue4m3} {prefetches} {fourth}",
            $($line,)*;
            w = const core::mem::offset_of!(crate::ops::qgemv_packed::PanelArgs, w),
            x = const core::mem::offset_of!(crate::ops::qgemv_packed::PanelArgs, x),
            stride = const core::mem::offset_of!(crate::ops::qgemv_packed::PanelArgs, stride),
            units = const core::mem::offset_of!(crate::ops::qgemv_packed::PanelArgs, units),
            last_steps = const core::mem::offset_of!(crate::ops::qgemv_packed::PanelArgs, last_steps),
            last_head = const core::mem::offset_of!(crate::ops::qgemv_packed::PanelArgs, last_head),
            y = const core::mem::offset_of!(crate::ops::qgemv_packed::PanelArgs, y),
            table = const core::mem::offset_of!(crate::ops::qgemv_packed::PanelArgs, table),
            prefetches = const core::mem::offset_of!(crate::ops::qgemv_packed::PanelArgs, prefetches),
            fourth = const crate::caps::Prefetches::Fourth as usize,
            head = const packing!($format).head(crate::quant::packed::STEPS),
            step = const packing!($format).step(),
            rows = const $rows,
            low_bits = const packing!($format).bits[0],
            high_bits = const packing!($format).bits[1],
            by_row = const packing!($format).by_row as u8,
            table_of_values = const matches!(packing!($format).values, crate::quant::packed::Values::Table(_)) as u8,
            group = const packing!($format).group,
            offsets = const packing!($format).offsets as u8,
            scales = const packing!($format).scales as u8,
            halves = const crate::quant::packed::Scales::Halves as u8,
            whole = const crate::quant::packed::Scales::Whole as u8,
            factors = const crate::quant::packed::Scales::Factors as u8,
            e8m0 = const crate::quant::packed::Scales::E8m0 as u8,
            ue4m3 = const crate::quant::packed::Scales::Ue4m3 as u8,
            $($operand)*
        }
    };
}

#[allow(unused_macros)] // Not every target has kernels of this kind.
/// Calls `$kernels!` with the name and the type of every format, each in a module of its own.
macro_rules! kernels_of_formats {
    ($kernels:ident!) => {
        expand_all_formats! { kernels_of_formats! { $kernels } }
    };
    (
        { $kernels:ident }
        floats $floats:tt
        $($(#[$on:meta])* $field:ident = $format:ident: $module:ident, gguf $gguf:literal, $what:literal;)*
    ) => {$(
        $(#[$on])*
        mod $field {
            use super::*;
            $kernels! { $field $format }
        }
    )*};
}

#[allow(unused_macros)] // Not every target has kernels of this kind.
/// The [`Packing`](crate::quant::packed::Packing) of a format.
macro_rules! packing {
    ($format:ident) => {
        <crate::quant::formats::$format as crate::quant::packed::Pack>::PACKING
    };
}

#[allow(unused_macros)] // Not every target has kernels of this kind.
/// A [`microkernel!`] of `qgemm`: the fields of its argument are operands.
macro_rules! qgemm_kernel {
    ($name:expr, $($line:expr),* $(,)?; $($operand:tt)*) => {
        microkernel! {
            $name,
            $($line,)*;
            codes = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, codes),
            scales = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, scales),
            offsets = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, offsets),
            x = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, x),
            steps = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, steps),
            y = const core::mem::offset_of!(crate::ops::qgemm::tile::QTileArgs, y),
            $($operand)*
        }
    };
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
pub(crate) mod x86_64;

#[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
mod aarch64;
