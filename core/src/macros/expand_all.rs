//! Layer 4: the enumeration. The kernel tables, their wrappers, the registry, the tests, the
//! benches and the kernel table in SPEC/01 all come from the lists below.

/// Calls `$then!` with `$args` and the rows of those families whose Cargo feature is on. All enumerations of formats and
/// operators pass through here, so what is switched off has no kernels, no rows and no names.
macro_rules! keep_families {
    ({ $then:ident $args:tt } [$($kept:tt)*]) => {
        $then! { $args $($kept)* }
    };
    ($call:tt $kept:tt always $rows:tt $($rest:tt)*) => { keep! { $call $kept $rows $($rest)* } };
    ($call:tt $kept:tt legacy $rows:tt $($rest:tt)*) => { keep_legacy! { $call $kept $rows $($rest)* } };
    ($call:tt $kept:tt k $rows:tt $($rest:tt)*) => { keep_k! { $call $kept $rows $($rest)* } };
    ($call:tt $kept:tt iq $rows:tt $($rest:tt)*) => { keep_iq! { $call $kept $rows $($rest)* } };
    ($call:tt $kept:tt ternary $rows:tt $($rest:tt)*) => { keep_ternary! { $call $kept $rows $($rest)* } };
    ($call:tt $kept:tt mx $rows:tt $($rest:tt)*) => { keep_mx! { $call $kept $rows $($rest)* } };
    ($call:tt $kept:tt external $rows:tt $($rest:tt)*) => { keep_external! { $call $kept $rows $($rest)* } };
    ($call:tt $kept:tt rows $rows:tt $($rest:tt)*) => { keep_rows! { $call $kept $rows $($rest)* } };
}
macro_rules! keep {
    ($call:tt [$($kept:tt)*] { $($rows:tt)* } $($rest:tt)*) => {
        keep_families! { $call [$($kept)* $($rows)*] $($rest)* }
    };
}
#[allow(unused_macros)] // If all are on.
macro_rules! drop_family {
    ($call:tt $kept:tt $rows:tt $($rest:tt)*) => { keep_families! { $call $kept $($rest)* } };
}
macro_rules! family {
    ($d:tt $($name:ident = $feature:literal;)*) => {$(
        #[cfg(feature = $feature)]
        macro_rules! $name { ($d($d args:tt)*) => { keep! { $d($d args)* } }; }
        #[cfg(not(feature = $feature))]
        macro_rules! $name { ($d($d args:tt)*) => { drop_family! { $d($d args)* } }; }
    )*};
}
family! { $
    keep_legacy = "legacy";
    keep_k = "k";
    keep_iq = "iq";
    keep_ternary = "ternary";
    keep_mx = "mx";
    keep_external = "external";
    keep_rows = "rows";
}

/// Calls `$then!` with `$args` and every kernel.
///
/// A kernel has a slot in [`Table`](crate::dispatch::Table), serves any number of public operators (none:
/// it is a part of others), and wraps a generic body. `named` says how its registry rows are named: `storage` as
/// `<op>_<storage>__<isa>`, `gemm` and `skinny` as `<op>_<out>_<lhs>_<rhs>_<mr>x<nr>__<isa>`; the
/// operators of `gemm` also have a row for each entry of `expand_all_micros!`. `widened` is as `storage`,
/// and what is `shared` has no rows. The bodies of `gemm`, `widened` and `shared` do not depend on the storage type.
macro_rules! expand_all_ops {
    ($then:ident! $args:tt) => {
        keep_families! {
            { $then $args } []
            always {
                vec_dot {
                    ops: [VecDot = "vec_dot"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *const E, access: Access) -> f32,
                    body: blas1::dot,
                }
                vec_sum {
                    ops: [VecSum = "vec_sum"],
                    named: storage,
                    args: (n: usize, x: *const E, access: Access) -> f32,
                    body: blas1::sum,
                }
                vec_max {
                    ops: [VecMax = "vec_max"],
                    named: storage,
                    args: (n: usize, x: *const E, access: Access) -> f32,
                    body: blas1::max,
                }
                vec_add {
                    ops: [VecAdd = "vec_add"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *const E, z: *mut E, access: Access) -> (),
                    body: blas1::add,
                }
                vec_mul {
                    ops: [VecMul = "vec_mul"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *const E, z: *mut E, access: Access) -> (),
                    body: blas1::mul,
                }
                vec_scale {
                    ops: [VecScale = "vec_scale"],
                    named: storage,
                    args: (n: usize, alpha: f32, x: *const E, y: *mut E, access: Access) -> (),
                    body: blas1::scale,
                }
                vec_axpy {
                    ops: [VecAxpy = "vec_axpy"],
                    named: storage,
                    args: (n: usize, alpha: f32, x: *const E, y: *mut E, access: Access) -> (),
                    body: blas1::axpy,
                }
                gemv {
                    ops: [Gemv = "gemv"],
                    named: storage,
                    args: (g: &GemvArgs<E>) -> (),
                    body: gemv::gemv,
                }
                gemm {
                    ops: [
                        Gemm = "gemm",
                        GemmBias = "gemm_bias",
                        GemmBt = "gemm_bt",
                        GemmFused = "gemm_fused",
                        GemmPrepacked = "gemm_prepacked"
                    ],
                    named: gemm,
                    args: (t: &MicroArgs) -> (),
                    body: tile::tile,
                }
                merge {
                    ops: [],
                    named: shared,
                    args: (m: &MergeArgs) -> (),
                    body: tile::merge,
                }
                finish {
                    ops: [],
                    named: shared,
                    args: (f: &FinishArgs) -> (),
                    body: tile::finish,
                }
                gemm_skinny {
                    ops: [GemmSkinny = "gemm_skinny"],
                    named: skinny,
                    args: (g: &SkinnyArgs<E>) -> (),
                    body: skinny::skinny,
                }
                pack_b {
                    ops: [PackB = "pack_b"],
                    named: storage,
                    args: (g: &PackArgs) -> (),
                    body: pack::pack,
                }
                decode {
                    ops: [],
                    named: storage,
                    args: (d: &DecodeArgs<E>) -> (),
                    body: dequant::decode,
                }
                qgemv {
                    ops: [],
                    named: storage,
                    args: (g: &QgemvArgs<E>) -> (),
                    body: qgemv::qgemv,
                }
                float_decode {
                    ops: [],
                    named: storage,
                    args: (d: &FloatDecodeArgs<E>) -> (),
                    body: floats::decode,
                }
                float_encode {
                    ops: [],
                    named: storage,
                    args: (e: &FloatEncodeArgs<E>) -> (),
                    body: floats::encode,
                }
                float_qgemv {
                    ops: [],
                    named: storage,
                    args: (g: &FloatGemvArgs<E>) -> (),
                    body: floats::qgemv,
                }
            }
            external {
                widen {
                    ops: [],
                    named: storage,
                    args: (x: *const u8, n: usize, to: *mut f32) -> (),
                    body: external::columns::widen,
                }
                dequant_fp8 {
                    ops: [DequantFp8 = "dequant_fp8"],
                    named: storage,
                    args: (g: &ExternalArgs<E, Fp8Ref<'_>>) -> (),
                    body: external::fp8::dequant,
                }
                qgemv_fp8 {
                    ops: [QgemvFp8 = "qgemv_fp8"],
                    named: storage,
                    args: (g: &ExternalArgs<E, Fp8Ref<'_>>) -> (),
                    body: external::fp8::qgemv,
                }
                dequant_awq {
                    ops: [DequantAwq = "dequant_awq"],
                    named: storage,
                    args: (g: &ExternalArgs<E, AwqRef<'_>>) -> (),
                    body: external::columns::dequant_awq,
                }
                qgemv_awq {
                    ops: [QgemvAwq = "qgemv_awq"],
                    named: widened,
                    args: (g: &ColumnsArgs<AwqRef<'_>>) -> (),
                    body: external::columns::qgemv_awq,
                }
                dequant_gptq {
                    ops: [DequantGptq = "dequant_gptq"],
                    named: storage,
                    args: (g: &ExternalArgs<E, GptqRef<'_>>) -> (),
                    body: external::columns::dequant_gptq,
                }
                qgemv_gptq {
                    ops: [QgemvGptq = "qgemv_gptq"],
                    named: widened,
                    args: (g: &ColumnsArgs<GptqRef<'_>>) -> (),
                    body: external::columns::qgemv_gptq,
                }
                dequant_squeezellm {
                    ops: [DequantSqueezellm = "dequant_squeezellm"],
                    named: storage,
                    args: (g: &ExternalArgs<E, SqueezeLlmRef<'_>>) -> (),
                    body: external::squeezellm::dequant,
                }
                qgemv_squeezellm {
                    ops: [QgemvSqueezellm = "qgemv_squeezellm"],
                    named: storage,
                    args: (g: &ExternalArgs<E, SqueezeLlmRef<'_>>) -> (),
                    body: external::squeezellm::qgemv,
                }
            }
            always {
                quantize_activations {
                    ops: [QuantizeActivations = "quantize_activations"],
                    named: storage,
                    args: (a: &ActivationArgs<E>) -> (),
                    body: activations::quantize_activations,
                }
                quantize_for_packed {
                    ops: [],
                    named: storage,
                    args: (a: &ActivationArgs<E>) -> (),
                    body: activations::quantize_for_packed,
                }
                pack_q {
                    ops: [],
                    named: shared,
                    args: (q: &PackQArgs) -> (),
                    body: qpack::pack_q,
                }
                qgemv_packed {
                    ops: [],
                    named: shared,
                    args: (p: &PanelArgs, batch: usize, packing: &Packing) -> (),
                    body: qgemv_packed::panel,
                }
                qgemm {
                    ops: [],
                    named: shared,
                    args: (t: &QTileArgs, rows: usize, kind: Kind) -> (),
                    body: qgemm::tile::tile,
                }
                qgemm_x {
                    ops: [],
                    named: storage,
                    args: (a: &PanelXArgs<E>) -> (),
                    body: qgemm::tile::panel_x,
                }
                qgemm_w {
                    ops: [],
                    named: shared,
                    args: (a: &PanelWArgs) -> (),
                    body: qgemm::tile::panel_w,
                }
                qgemm_q {
                    ops: [],
                    named: shared,
                    args: (a: &PanelQArgs) -> (),
                    body: qgemm::tile::panel_q,
                }
                qgemm_exact {
                    ops: [],
                    named: storage,
                    args: (a: &DecodePanelArgs<E>) -> (),
                    body: qgemm::tile::decode_panel,
                }
                qgemm_few {
                    ops: [],
                    named: storage,
                    args: (a: &FewArgs<E>) -> (),
                    body: qgemm::few::few,
                }
                relu {
                    ops: [Relu = "relu"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *mut E, access: Access) -> (),
                    body: activation::relu,
                }
                exp {
                    ops: [Exp = "exp"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *mut E, access: Access) -> (),
                    body: activation::exp,
                }
                tanh {
                    ops: [Tanh = "tanh"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *mut E, access: Access) -> (),
                    body: activation::tanh,
                }
                silu {
                    ops: [Silu = "silu"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *mut E, access: Access) -> (),
                    body: activation::silu,
                }
                gelu {
                    ops: [Gelu = "gelu"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *mut E, access: Access) -> (),
                    body: activation::gelu,
                }
                gelu_tanh {
                    ops: [GeluTanh = "gelu_tanh"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *mut E, access: Access) -> (),
                    body: activation::gelu_tanh,
                }
                swiglu {
                    ops: [Swiglu = "swiglu"],
                    named: storage,
                    args: (n: usize, gate: *const E, up: *const E, y: *mut E, access: Access) -> (),
                    body: activation::swiglu,
                }
                geglu {
                    ops: [Geglu = "geglu"],
                    named: storage,
                    args: (n: usize, gate: *const E, up: *const E, y: *mut E, access: Access) -> (),
                    body: activation::geglu,
                }
            }
            rows {
                softmax {
                    ops: [Softmax = "softmax"],
                    named: storage,
                    args: (n_rows: usize, cols: usize, softmax: Softmax, x: *const E, y: *mut E, access: Access) -> (),
                    body: softmax::softmax,
                }
                rms_norm {
                    ops: [RmsNorm = "rms_norm"],
                    named: storage,
                    args: (n_rows: usize, cols: usize, x: *const E, w: *const E, eps: f32, y: *mut E, access: Access) -> (),
                    body: norm::rms_norm,
                }
                layer_norm {
                    ops: [LayerNorm = "layer_norm"],
                    named: storage,
                    args: (n_rows: usize, cols: usize, x: *const E, wb: [*const E; 2], eps: f32, y: *mut E, access: Access) -> (),
                    body: norm::layer_norm,
                }
                rope {
                    ops: [Rope = "rope"],
                    named: storage,
                    args: (shape: RopeShape, tokens: usize, cos_sin: [*const f32; 2], x: *const E, y: *mut E, access: Access) -> (),
                    body: rope::rope,
                }
                attend {
                    ops: [Attend = "attend"],
                    named: storage,
                    args: (a: &AttendArgs<'_, E>) -> (),
                    body: attention::attend,
                }
                attend_join {
                    ops: [],
                    named: storage,
                    args: (a: &JoinArgs) -> (),
                    body: attention::join,
                }
                kv_append {
                    ops: [],
                    named: storage,
                    args: (a: &AppendArgs<E>) -> (),
                    body: attention::append,
                }
            }
        }
    };
}

/// Calls `$then!` with `$args` and every format of quantised weights: its name, its marker type, the
/// file in `quant/` that defines it, its GGUF type number, and what it is.
macro_rules! expand_all_formats {
    ($then:ident! $args:tt) => {
        keep_families! {
            { $then $args } []
            legacy {
                q4_0 = Q4_0: legacy, gguf 2, "32 weights of 4 bits, one scale.";
                q4_1 = Q4_1: legacy, gguf 3, "32 weights of 4 bits, one scale and minimum.";
                q5_0 = Q5_0: legacy, gguf 6, "32 weights of 5 bits, one scale.";
                q5_1 = Q5_1: legacy, gguf 7, "32 weights of 5 bits, one scale and minimum.";
                q8_0 = Q8_0: legacy, gguf 8, "32 weights of 8 bits, one scale.";
                q8_1 = Q8_1: legacy, gguf 9, "32 activations of 8 bits, one scale, and their sum.";
            }
            k {
                q2_k = Q2K: k, gguf 10, "256 weights of 2 bits, scales and minima of 4 bits for each 16.";
                q3_k = Q3K: k, gguf 11, "256 weights of 3 bits, scales of 6 bits for each 16.";
                q4_k = Q4K: k, gguf 12, "256 weights of 4 bits, scales and minima of 6 bits for each 32.";
                q5_k = Q5K: k, gguf 13, "256 weights of 5 bits, scales and minima of 6 bits for each 32.";
                q6_k = Q6K: k, gguf 14, "256 weights of 6 bits, scales of 8 bits for each 16.";
                q8_k = Q8K: k, gguf 15, "256 activations of 8 bits, one f32 scale, and sums of 16.";
            }
            iq {
                iq2_xxs = Iq2Xxs: iq, gguf 16, "256 weights in eights of a codebook of 256, scales for each 32.";
                iq2_xs = Iq2Xs: iq, gguf 17, "256 weights in eights of a codebook of 512, scales for each 16.";
                iq3_xxs = Iq3Xxs: iq, gguf 18, "256 weights in fours of a codebook of 256, scales for each 32.";
                iq1_s = Iq1S: iq, gguf 19, "256 weights in eights of a codebook of 2048, scales for each 32.";
                iq4_nl = Iq4Nl: iq, gguf 20, "32 weights of a codebook of 16, one scale.";
                iq3_s = Iq3S: iq, gguf 21, "256 weights in fours of a codebook of 512, scales for each 32.";
                iq2_s = Iq2S: iq, gguf 22, "256 weights in eights of a codebook of 1024, scales for each 16.";
                iq4_xs = Iq4Xs: iq, gguf 23, "256 weights of a codebook of 16, scales of 6 bits for each 32.";
                iq1_m = Iq1M: iq, gguf 29, "256 weights in eights of a codebook of 2048, scales for each 16.";
            }
            ternary {
                tq1_0 = Tq1_0: ternary, gguf 34, "256 weights of -1, 0 or 1, five in a byte, one scale.";
                tq2_0 = Tq2_0: ternary, gguf 35, "256 weights of -1, 0 or 1, four in a byte, one scale.";
            }
            mx {
                mxfp4 = Mxfp4: mx, gguf 39, "32 weights of E2M1, a power of two as scale.";
                nvfp4 = Nvfp4: mx, gguf 40, "64 weights of E2M1, scales of 8 bits for each 16.";
            }
            legacy {
                q1_0 = Q1_0: legacy, gguf 41, "128 weights of 1 or -1, one scale.";
                q2_0 = Q2_0: legacy, gguf 42, "64 weights of 2 bits, one scale.";
            }
        }
    };
}

/// The same for the formats that are plain floating point; markers are those of [`ElementType`](crate::ElementType).
macro_rules! expand_all_float_formats {
    ($then:ident! $args:tt) => {
        $then! {
            $args
            f16 = F16: gguf 1, "IEEE 754 binary16: no blocks.";
            bf16 = Bf16: gguf 30, "bfloat16: no blocks.";
        }
    };
}

/// Calls `$then!` with the list of `expand_all_float_formats!` in braces, then that of `expand_all_formats!`.
macro_rules! expand_blocks_and_floats {
    ($then:ident!) => {
        expand_all_float_formats! { expand_blocks_and_floats! { $then } }
    };
    ({ $then:ident } $($floats:tt)*) => {
        expand_all_formats! { $then! { $($floats)* } }
    };
}

/// Calls `$then!` with `$args` and every operator that has a kernel for each format: those that also have one for
/// each storage type, and those to which the storage type makes no difference. The two strings are the parts of a kernel's name around
/// `<storage>_<format>`, or around `<format>`; behind them those for formats that are plain floating point.
macro_rules! expand_all_format_ops {
    ($then:ident! $args:tt) => {
        $then! {
            $args
            stored: [
                Dequant = "dequant" ("", "") ("", ""),
                Qgemv = "qgemv" ("f32_", "_4x8") ("f32_", "_8x4")
            ],
            any: [
                QgemvQ8 = "qgemv_q8" ("f32_q8_", "_1x4") ("f32_f32_", "_8x4"),
                PackQ = "pack_q" ("", "") ("", ""),
                QgemvPacked = "qgemv_packed" ("f32_q8_", "_16x4") ("f32_f32_", "_8x4"),
                Qgemm = "qgemm" ("f32_q8_", "_12x16") ("f32_f32_", "_12x16")
            ]
        }
    };
}

/// Calls `$then!` with `$args` and the operators of int8: products, and the packing for them. The first ones
/// have a row for each microkernel.
macro_rules! expand_all_int8_ops {
    ($then:ident! $args:tt) => {
        $then! {
            $args
            products: [
                Gemm = "gemm",
                GemmBias = "gemm_bias",
                GemmBt = "gemm_bt",
                GemmPrepacked = "gemm_prepacked"
            ],
            packing: PackB = "pack_b"
        }
    };
}

/// The name of a product's kernel for int8.
macro_rules! int8_name {
    ($op:literal $tile:literal $isa:ident) => {
        concat!($op, "_i32_i8_i8_", $tile, "__", stringify!($isa))
    };
}

/// The name of a kernel of the enumeration.
macro_rules! kernel_name {
    (storage $op:literal $e:literal $tile:literal $skinny:literal $isa:ident) => {
        concat!($op, "_", $e, "__", stringify!($isa))
    };
    (widened $op:literal $e:literal $tile:literal $skinny:literal $isa:ident) => {
        concat!($op, "_", $e, "__", stringify!($isa))
    };
    (gemm $op:literal $e:literal $tile:literal $skinny:literal $isa:ident) => {
        concat!($op, "_f32_", $e, "_", $e, "_", $tile, "__", stringify!($isa))
    };
    (skinny $op:literal $e:literal $tile:literal $skinny:literal $isa:ident) => {
        concat!($op, "_f32_", $e, "_", $e, "_", $skinny, "__", stringify!($isa))
    };
}
