//! Layer 4: the enumeration. The kernel tables, their wrappers, the registry, the tests, the
//! benches and the kernel table in SPEC/01 all come from the lists below.

/// Calls `$then!` with `$args` and all operators, in three groups.
///
/// `slots` are kernels that are compiled for each instruction set. A kernel has a slot in [`Table`](crate::table::Table), serves
/// any number of public operators (none: it is a part of others), and wraps a generic body. `when` is what holds of Cargo features
/// where it is built; `all()` always does. `named` says how its registry rows are named: `storage` as `<op>_<storage>__<isa>`,
/// `gemm` and `skinny` as `<op>_<out>_<lhs>_<rhs>_<mr>x<nr>__<isa>`; the operators of `gemm` also have a row for each entry of
/// `expand_all_micros!`. `widened` is as `storage`, `f32` as `storage` for that type alone, and what is `shared` has no rows. The
/// bodies of `gemm`, `widened`, `f32` and `shared` do not depend on the storage type.
///
/// `of_formats` are operators with a row for each format: those that have it for each storage type, too, and those to
/// which the storage type makes no difference. Two pairs of strings are what stands around `<storage>_<format>`, or around
/// `<format>`, in the name of a row: for formats with blocks, and for those that are plain floating point.
///
/// `int8` are matrix products of int8, which also have a row for each microkernel, and the packing for them.
macro_rules! expand_all_ops {
    ($then:ident! $args:tt) => {
        $then! {
            $args
            slots {
                vec_dot {
                    when: all(),
                    ops: [VecDot = "vec_dot"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *const E, access: Access) -> f32,
                    body: blas1::dot,
                }
                vec_sum {
                    when: all(),
                    ops: [VecSum = "vec_sum"],
                    named: storage,
                    args: (n: usize, x: *const E, access: Access) -> f32,
                    body: blas1::sum,
                }
                vec_max {
                    when: all(),
                    ops: [VecMax = "vec_max"],
                    named: storage,
                    args: (n: usize, x: *const E, access: Access) -> f32,
                    body: blas1::max,
                }
                vec_add {
                    when: all(),
                    ops: [VecAdd = "vec_add"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *const E, z: *mut E, access: Access) -> (),
                    body: blas1::add,
                }
                vec_mul {
                    when: all(),
                    ops: [VecMul = "vec_mul"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *const E, z: *mut E, access: Access) -> (),
                    body: blas1::mul,
                }
                vec_scale {
                    when: all(),
                    ops: [VecScale = "vec_scale"],
                    named: storage,
                    args: (n: usize, alpha: f32, x: *const E, y: *mut E, access: Access) -> (),
                    body: blas1::scale,
                }
                vec_axpy {
                    when: all(),
                    ops: [VecAxpy = "vec_axpy"],
                    named: storage,
                    args: (n: usize, alpha: f32, x: *const E, y: *mut E, access: Access) -> (),
                    body: blas1::axpy,
                }
                gemv {
                    when: all(),
                    ops: [Gemv = "gemv"],
                    named: storage,
                    args: (g: &GemvArgs<E>) -> (),
                    body: gemv::gemv,
                }
                gemm {
                    when: all(),
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
                    when: all(),
                    ops: [],
                    named: shared,
                    args: (m: &MergeArgs) -> (),
                    body: tile::merge,
                }
                finish {
                    when: all(),
                    ops: [],
                    named: shared,
                    args: (f: &FinishArgs) -> (),
                    body: tile::finish,
                }
                gemm_skinny {
                    when: all(),
                    ops: [GemmSkinny = "gemm_skinny"],
                    named: skinny,
                    args: (g: &SkinnyArgs<E>) -> (),
                    body: skinny::skinny,
                }
                pack_b {
                    when: all(),
                    ops: [PackB = "pack_b"],
                    named: storage,
                    args: (g: &PackArgs) -> (),
                    body: pack::pack,
                }
                decode {
                    when: all(),
                    ops: [],
                    named: storage,
                    args: (d: &DecodeArgs<E>) -> (),
                    body: dequant::decode,
                }
                qgemv {
                    when: all(),
                    ops: [],
                    named: storage,
                    args: (g: &QgemvArgs<E>) -> (),
                    body: qgemv::qgemv,
                }
                float_decode {
                    when: all(),
                    ops: [],
                    named: storage,
                    args: (d: &UnquantisedDecodeArgs<E>) -> (),
                    body: unquantised::decode,
                }
                float_encode {
                    when: all(),
                    ops: [],
                    named: storage,
                    args: (e: &UnquantisedEncodeArgs<E>) -> (),
                    body: unquantised::encode,
                }
                float_qgemv {
                    when: all(),
                    ops: [],
                    named: storage,
                    args: (g: &UnquantisedGemvArgs<E>) -> (),
                    body: unquantised::qgemv,
                }
                widen {
                    when: feature = "external",
                    ops: [],
                    named: storage,
                    args: (x: *const u8, n: usize, to: *mut f32) -> (),
                    body: external::columns::widen,
                }
                dequant_fp8 {
                    when: feature = "external",
                    ops: [DequantFp8 = "dequant_fp8"],
                    named: storage,
                    args: (g: &ExternalArgs<E, Fp8Ref<'_>>) -> (),
                    body: external::fp8::dequant,
                }
                qgemv_fp8 {
                    when: feature = "external",
                    ops: [QgemvFp8 = "qgemv_fp8"],
                    named: storage,
                    args: (g: &ExternalArgs<E, Fp8Ref<'_>>) -> (),
                    body: external::fp8::qgemv,
                }
                dequant_awq {
                    when: feature = "external",
                    ops: [DequantAwq = "dequant_awq"],
                    named: storage,
                    args: (g: &ExternalArgs<E, AwqRef<'_>>) -> (),
                    body: external::columns::dequant_awq,
                }
                qgemv_awq {
                    when: feature = "external",
                    ops: [QgemvAwq = "qgemv_awq"],
                    named: widened,
                    args: (g: &ColumnsArgs<AwqRef<'_>>) -> (),
                    body: external::columns::qgemv_awq,
                }
                dequant_gptq {
                    when: feature = "external",
                    ops: [DequantGptq = "dequant_gptq"],
                    named: storage,
                    args: (g: &ExternalArgs<E, GptqRef<'_>>) -> (),
                    body: external::columns::dequant_gptq,
                }
                qgemv_gptq {
                    when: feature = "external",
                    ops: [QgemvGptq = "qgemv_gptq"],
                    named: widened,
                    args: (g: &ColumnsArgs<GptqRef<'_>>) -> (),
                    body: external::columns::qgemv_gptq,
                }
                dequant_squeezellm {
                    when: feature = "external",
                    ops: [DequantSqueezellm = "dequant_squeezellm"],
                    named: storage,
                    args: (g: &ExternalArgs<E, SqueezeLlmRef<'_>>) -> (),
                    body: external::squeezellm::dequant,
                }
                qgemv_squeezellm {
                    when: feature = "external",
                    ops: [QgemvSqueezellm = "qgemv_squeezellm"],
                    named: storage,
                    args: (g: &ExternalArgs<E, SqueezeLlmRef<'_>>) -> (),
                    body: external::squeezellm::qgemv,
                }
                quantize_activations {
                    when: all(),
                    ops: [QuantizeActivations = "quantize_activations"],
                    named: storage,
                    args: (a: &ActivationArgs<E>) -> (),
                    body: activations::quantize_activations,
                }
                quantize_for_packed {
                    when: all(),
                    ops: [],
                    named: storage,
                    args: (a: &ActivationArgs<E>) -> (),
                    body: activations::quantize_for_packed,
                }
                pack_q {
                    when: all(),
                    ops: [],
                    named: shared,
                    args: (q: &PackQArgs) -> (),
                    body: qpack::pack_q,
                }
                qgemv_packed {
                    when: all(),
                    ops: [],
                    named: shared,
                    args: (p: &PanelArgs, batch: usize, packing: &Packing) -> (),
                    body: qgemv_packed::panel,
                }
                qgemm {
                    when: all(),
                    ops: [],
                    named: shared,
                    args: (t: &QTileArgs, rows: usize, kind: PanelKind) -> (),
                    body: qgemm::tile::tile,
                }
                qgemm_x {
                    when: all(),
                    ops: [],
                    named: storage,
                    args: (a: &PanelXArgs<E>) -> (),
                    body: qgemm::tile::panel_x,
                }
                qgemm_w {
                    when: all(),
                    ops: [],
                    named: shared,
                    args: (a: &PanelWArgs) -> (),
                    body: qgemm::tile::panel_w,
                }
                qgemm_q {
                    when: all(),
                    ops: [],
                    named: shared,
                    args: (a: &PanelQArgs) -> (),
                    body: qgemm::packed::panel_q,
                }
                qgemm_exact {
                    when: all(),
                    ops: [],
                    named: storage,
                    args: (a: &DecodePanelArgs<E>) -> (),
                    body: qgemm::tile::decode_panel,
                }
                qgemm_few {
                    when: all(),
                    ops: [],
                    named: storage,
                    args: (a: &FewArgs<E>) -> (),
                    body: qgemm::few::few,
                }
                relu {
                    when: all(),
                    ops: [Relu = "relu"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *mut E, access: Access) -> (),
                    body: elementwise::relu,
                }
                exp {
                    when: all(),
                    ops: [Exp = "exp"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *mut E, access: Access) -> (),
                    body: elementwise::exp,
                }
                tanh {
                    when: all(),
                    ops: [Tanh = "tanh"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *mut E, access: Access) -> (),
                    body: elementwise::tanh,
                }
                silu {
                    when: all(),
                    ops: [Silu = "silu"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *mut E, access: Access) -> (),
                    body: elementwise::silu,
                }
                gelu {
                    when: all(),
                    ops: [Gelu = "gelu"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *mut E, access: Access) -> (),
                    body: elementwise::gelu,
                }
                gelu_tanh {
                    when: all(),
                    ops: [GeluTanh = "gelu_tanh"],
                    named: storage,
                    args: (n: usize, x: *const E, y: *mut E, access: Access) -> (),
                    body: elementwise::gelu_tanh,
                }
                swiglu {
                    when: all(),
                    ops: [Swiglu = "swiglu"],
                    named: storage,
                    args: (n: usize, gate: *const E, up: *const E, y: *mut E, access: Access) -> (),
                    body: elementwise::swiglu,
                }
                geglu {
                    when: all(),
                    ops: [Geglu = "geglu"],
                    named: storage,
                    args: (n: usize, gate: *const E, up: *const E, y: *mut E, access: Access) -> (),
                    body: elementwise::geglu,
                }
                softmax {
                    when: feature = "rows",
                    ops: [Softmax = "softmax"],
                    named: storage,
                    args: (n_rows: usize, cols: usize, softmax: Softmax, x: *const E, y: *mut E, access: Access) -> (),
                    body: softmax::softmax,
                }
                rms_norm {
                    when: feature = "rows",
                    ops: [RmsNorm = "rms_norm"],
                    named: storage,
                    args: (n_rows: usize, cols: usize, x: *const E, w: *const E, eps: f32, y: *mut E, access: Access) -> (),
                    body: norm::rms_norm,
                }
                layer_norm {
                    when: feature = "rows",
                    ops: [LayerNorm = "layer_norm"],
                    named: storage,
                    args: (n_rows: usize, cols: usize, x: *const E, wb: [*const E; 2], eps: f32, y: *mut E, access: Access) -> (),
                    body: norm::layer_norm,
                }
                rope {
                    when: feature = "rows",
                    ops: [Rope = "rope"],
                    named: storage,
                    args: (shape: RopeShape, tokens: usize, cos_sin: [*const f32; 2], x: *const E, y: *mut E, access: Access) -> (),
                    body: rope::rope,
                }
                attend {
                    when: feature = "rows",
                    ops: [Attend = "attend"],
                    named: storage,
                    args: (a: &AttendArgs<'_, E>) -> (),
                    body: attention::attend,
                }
                attend_q8_0 {
                    when: feature = "rows",
                    ops: [AttendQ8_0 = "attend_q8_0"],
                    named: widened,
                    args: (a: &AttendArgs<'_, u8>) -> (),
                    body: attention::attend_q8_0,
                }
                attend_join {
                    when: feature = "rows",
                    ops: [],
                    named: shared,
                    args: (a: &JoinArgs) -> (),
                    body: attention::join,
                }
                kv_append {
                    when: feature = "rows",
                    ops: [],
                    named: storage,
                    args: (a: &AppendArgs<E>) -> (),
                    body: attention::append,
                }
                kv_append_q8_0 {
                    when: feature = "rows",
                    ops: [],
                    named: shared,
                    args: (a: &AppendArgs<u8>) -> (),
                    body: attention::append_q8_0,
                }
                kv_keys {
                    when: feature = "rows",
                    ops: [],
                    named: storage,
                    args: (a: &KeysArgs<'_, E>) -> (),
                    body: attention::keys,
                }
                kv_keys_q8_0 {
                    when: feature = "rows",
                    ops: [],
                    named: widened,
                    args: (a: &KeysArgs<'_, u8>) -> (),
                    body: attention::keys_q8_0,
                }
                gated_delta_rule {
                    when: feature = "rows",
                    ops: [GatedDeltaRule = "gated_delta_rule"],
                    named: f32,
                    args: (a: &GatedDeltaArgs<'_>) -> (),
                    body: gated_delta::gated_delta_rule,
                }
                causal_conv1d {
                    when: feature = "rows",
                    ops: [CausalConv1d = "causal_conv1d"],
                    named: f32,
                    args: (a: &CausalConvArgs) -> (),
                    body: causal_conv::causal_conv1d,
                }
            }
            of_formats {
                stored: [
                    Dequant = "dequant" ("", "") ("", ""),
                    Qgemv = "qgemv" ("f32_", "_4x8") ("f32_", "_8x4")
                ],
                any: [
                    QgemvQ8 = "qgemv_q8" ("f32_q8_", "_1x4") ("f32_f32_", "_8x4"),
                    PackQ = "pack_q" ("", "") ("", ""),
                    QgemvPacked = "qgemv_packed" ("f32_q8_", "_16x4") ("f32_f32_", "_8x4"),
                    Qgemm = "qgemm" ("f32_q8_", "_12x16") ("f32_f32_", "_12x16")
                ],
            }
            int8 {
                products: [
                    Gemm = "gemm",
                    GemmBias = "gemm_bias",
                    GemmBt = "gemm_bt",
                    GemmPrepacked = "gemm_prepacked"
                ],
                packing: PackB = "pack_b",
            }
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
    (f32 $op:literal $e:literal $tile:literal $skinny:literal $isa:ident) => {
        concat!($op, "_", $e, "__", stringify!($isa))
    };
    (gemm $op:literal $e:literal $tile:literal $skinny:literal $isa:ident) => {
        concat!($op, "_f32_", $e, "_", $e, "_", $tile, "__", stringify!($isa))
    };
    (skinny $op:literal $e:literal $tile:literal $skinny:literal $isa:ident) => {
        concat!($op, "_f32_", $e, "_", $e, "_", $skinny, "__", stringify!($isa))
    };
}
