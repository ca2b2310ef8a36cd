//! Layer 3: one table per block format.

/// Emits a format's marker type, its [`Format`](crate::quant::Format), which is the scalar decode and thereby the specification,
/// and its [`Unpack`](crate::quant::Unpack) for every instruction set with [`Bytes`](crate::quant::bytes::Bytes). A row is
/// written once for all instruction sets. A table with a missing row does not compile, except for these:
///
/// - `offset`, in both halves of the table, if the format has no offsets.
/// - `ready`, if no part of a block is unpacked for the block as a whole.
/// - `wide`, which unpacks 64 codes at a time for [`Wide`](crate::quant::wide::Wide), with the
///   [`shifts`](crate::quant::packed::Packing::shifts) of the steps.
/// - `encode`, if there is no encoder. It makes a block of the stated number of groups and of weights in a group, which need not
///   be the `group` of the decode. No weight is larger than `up to`.
///
/// `scales(b)` and `offsets(b)` of one block are a common factor and the integers that are multiplied with it; those of `n`
/// blocks are written to memory. `packed` says how the format is packed: its bits, its values, its scales (for `Factors` also
/// the factors that scales and offsets have in common), and `eighths`: see [`Packing`](crate::quant::packed::Packing).
macro_rules! quant_primitive {
    (
        format: $name:ident,
        block: $block:ident,
        len: $len:literal,
        group: $group:literal,
        scalar: {
            scale($scale_b:ident, $scale_g:ident) => $scale:expr,
            $(offset($offset_b:ident, $offset_g:ident) => $offset:expr,)?
            code($code_b:ident, $code_i:ident) => $code:expr,
        },
        packed: {
            bits: $bits:expr,
            $(by_row: $by_row:literal,)?
            values: $values:expr,
            scales: $kind:ident$(($unit:expr, $offset_unit:expr))?,
            $(eighths: $eighths:literal,)?
            parts($parts_b:ident, $parts_g:ident) => $parts:expr,
        },
        $(encode($e_isa:ident, $e_groups:ident: $m:literal x $n:literal $(, up to: $limit:expr)?) => $encode:expr,)?
        simd<$p:ident>: {
            scales($($s:ident),+) => $scales:expr,
            $(offsets($($o:ident),+) => $offsets:expr,)?
            $(ready($r_b:ident, $r_out:ident) => $ready_type:ty $ready:block)?
            codes<$bytes:ident>($b:ident, $i:ident $(, $r:ident)?) => $codes:expr,
            $(wide<$wide:ident>($w_b:ident, $w_i:ident) shifted($at:ident: $shifts:expr) => $wide_codes:expr,)?
        }
    ) => {
        #[doc = concat!("[`QuantFormat::", stringify!($name), "`](crate::QuantFormat).")]
        pub(crate) struct $name;

        impl crate::quant::Format for $name {
            type Block = $block;
            const LEN: usize = $len;
            const GROUP: usize = $group;
            const OFFSETS: bool = quant_primitive!(@there $($offset)?);
            #[inline(always)]
            fn scale($scale_b: &$block, $scale_g: usize) -> f32 { $scale }
            #[inline(always)]
            fn offset(_b: &$block, _g: usize) -> f32 {
                quant_primitive!(@offset _b _g $($offset_b $offset_g $offset)?)
            }
            #[inline(always)]
            fn code($code_b: &$block, $code_i: usize) -> i8 { $code }
        }

        const _: () = {
            #[allow(unused_imports)]
            use crate::quant::packed::{Pack, Packing, Parts, Scales, Values::{Linear, Table}};

            impl Pack for $name {
                const PACKING: Packing = Packing {
                    bits: $bits,
                    by_row: false $(|| $by_row)?,
                    values: $values,
                    group: $group,
                    block: $len,
                    offsets: <$name as crate::quant::Format>::OFFSETS $(|| $eighths)?,
                    eighths: false $(|| $eighths)?,
                    unit: quant_primitive!(@units $kind $($unit)?),
                    offset_unit: quant_primitive!(@units Halves $($offset_unit)?),
                    scales: Scales::$kind,
                    shifts: quant_primitive!(@shifts $($shifts)?),
                };
                #[inline(always)]
                fn parts($parts_b: &$block, $parts_g: usize) -> Parts { $parts }
            }
        };

        const _: () = {
            #[allow(unused_imports)]
            use crate::quant::encode::*;

            $(impl EncodeGroups<$n, $m> for $name {
                $(const LIMIT: f32 = $limit;)?
                fn encode<S: Search>($e_isa: S, $e_groups: &[Group<$n>; $m]) -> $block { $encode }
            })?
            impl Encode for $name {
                $(fn encoder<S: Search, E: crate::element::Element>() -> Option<Encoder<S, E>> {
                    Some(blocks::<S, E, Self, $n, $m>)
                })?
            }
        };

        // Every instruction set that has vectors of bytes unpacks it.
        const _: () = {
            #[allow(unused_imports)]
            use crate::quant::blocks::Half;
            #[allow(unused_imports)]
            use crate::quant::bytes::{converted, factored, halves, sixteen, Bytes, SimdUnpack};
            // SAFETY: every body keeps to the blocks that the trait's contract names.
            unsafe impl<$p: SimdUnpack<Bytes = $bytes>, $bytes: Bytes> crate::quant::Unpack<$name> for $p {
                quant_primitive! { @scales scales factors $block $len $group ($($s),+) $scales }
                $(quant_primitive! { @scales offsets minima $block $len $group ($($o),+) $offsets })?
                type Ready = quant_primitive!(@type $($ready_type)?);
                #[inline(always)]
                unsafe fn ready(_b: *const $block, _out: *mut Self::Ready) {
                    $(
                        // SAFETY: the caller's contract.
                        unsafe {
                            let ($r_b, $r_out) = (&*_b, _out);
                            $ready
                        }
                    )?
                }
                #[inline(always)]
                unsafe fn codes(b: *const $block, $i: usize, _ready: &Self::Ready) -> $bytes {
                    // SAFETY: the caller's contract.
                    unsafe {
                        let $b = &*b;
                        $(let $r = _ready;)?
                        $codes
                    }
                }
            }
        };

        impl crate::quant::wide::Wide for $name {
            $(
                #[inline(always)]
                unsafe fn wide<$wide: crate::quant::wide::WideBytes>($w_b: &$block, $w_i: usize) -> Option<$wide> {
                    let $at = crate::quant::wide::shifts::<$name>($w_i);
                    // SAFETY: the caller's contract.
                    Some(unsafe { $wide_codes })
                }
            )?
        }
    };
    (@scales $all:ident $apart:ident $block:ident $len:literal $group:literal ($b:ident) $parts:expr) => {
        #[inline(always)]
        unsafe fn $all(first: *const $block, n: usize, out: *mut f32) {
            // SAFETY: the caller's contract.
            unsafe { factored::<_, { $len / $group }>(first, n, out, |$b| $parts) }
        }
        #[inline(always)]
        unsafe fn $apart(b: *const $block) -> (f32, [i8; crate::quant::packed::GROUPS]) {
            // SAFETY: the caller's contract.
            unsafe {
                let $b = &*b;
                let (of_all, factors): (f32, [i8; { $len / $group }]) = $parts;
                (of_all, sixteen(factors))
            }
        }
    };
    (@scales $all:ident $apart:ident $block:ident $len:literal $group:literal ($first:ident, $n:ident, $out:ident) $scales:expr) => {
        #[inline(always)]
        unsafe fn $all($first: *const $block, $n: usize, $out: *mut f32) {
            // SAFETY: the caller's contract.
            unsafe { $scales }
        }
    };
    (@shifts) => { [0; crate::quant::packed::STEPS] };
    (@shifts $shifts:expr) => {
        if crate::quant::steps::UNSIGNED { $shifts } else { [0; crate::quant::packed::STEPS] }
    };
    (@units E8m0) => { 0.5 };
    (@units Ue4m3) => { 128.0 };
    (@units $kind:ident) => { 1.0 };
    (@units $kind:ident $unit:expr) => { $unit };
    (@type) => { () };
    (@type $ready:ty) => { $ready };
    (@there) => { false };
    (@there $offset:expr) => { true };
    (@offset $_b:ident $_g:ident) => { 0.0 };
    (@offset $_b:ident $_g:ident $b:ident $g:ident $offset:expr) => {{
        let ($b, $g) = ($_b, $_g);
        $offset
    }};
}
