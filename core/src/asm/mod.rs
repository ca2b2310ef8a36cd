//! Hand-written microkernels: one file a kernel, named like it.
//!
//! A kernel is an entry of `expand_all_micros!` and a file in the folder of its architecture. The file
//! calls [`microkernel!`] with the assembly text; everything around it (tables, registry, tests, benches)
//! follows from the entry.

pub(crate) mod abi;

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

#[allow(unused_macros)] // As above.
/// Defines the symbol of a kernel: a section of its own, seen by this crate alone. Then come lines of
/// assembly, a semicolon, and the operands they name.
macro_rules! microkernel {
    ($name:literal, $($line:expr),* $(,)?; $($operand:tt)*) => {
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

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod x86_64;

#[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
mod aarch64;

macro_rules! micros {
    ({ $abi:literal } $($name:ident {
        tail: $tail:literal,
        storage: $storage:ident,
        isa: $isa:ident,
        requires: [$($feature:ident),*],
        micro: {
            tile: $mr:literal x $nr:literal,
            a: $a:ident / $a_kr:literal,
            b: $b:ident / $b_kr:literal,
            depth: $depth:literal,
            edges: $edges:ident,
            around: $around:expr
        },
    })*) => {
        extern $abi {
            $(
                #[link_name = symbol!(stringify!($name))]
                fn $name(args: *const abi::MicroArgs);
            )*
        }

        /// Every microkernel in assembly; of those for one storage type and level, the best first.
        pub(crate) static MICROS: &[abi::Micro] = &[$(abi::Micro {
            name: concat!("gemm", $tail),
            storage: crate::element::ElementType::$storage,
            level: crate::caps::IsaLevel::$isa,
            requires: crate::caps::IsaLevel::$isa.requires()$(.union(crate::caps::Features::$feature))*,
            a: abi::Panel { element: abi::PanelType::$a, width: $mr, kr: $a_kr },
            b: abi::Panel { element: abi::PanelType::$b, width: $nr, kr: $b_kr },
            depth: $depth,
            edges: abi::Edges::$edges,
            run: abi::Run::Asm($name),
            around: $around,
        }),*];

        // The entry agrees with itself.
        $(const _: () = assert!(
            same(stringify!($name), concat!("gemm", $tail))
                && crate::ops::tile::Tile { rows: $mr, cols: $nr }.is_in($tail)
                && usize::is_multiple_of($depth, $a_kr)
                && usize::is_multiple_of($depth, $b_kr)
        );)*
    };
}
expand_all_micros! { micros! }

/// `a == b`, at compile time.
#[allow(dead_code)] // Where there are no kernels.
const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}
