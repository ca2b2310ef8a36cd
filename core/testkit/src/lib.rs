//! The test kit: a checker for every operator, and the parts of which checkers are made.
//!
//! [`check`] runs one row of the registry against an f64 oracle. To add an operator: a function
//! `fn name<E: Element>(row: &KernelInfo) -> Outcome` in the module of its area, and an arm in
//! [`check`]'s `checker` table. An operator without one fails the test `every_kernel`.

use std::cell::Cell;
use std::sync::OnceLock;

use gllm_kernels_core::{bf16, f16, Element, ElementType, Features, IsaLevel, KernelInfo, Op};

pub mod alloc;
pub mod amx;
mod attention;
mod blas1;
pub mod canary;
pub mod data;
pub mod elementwise;
mod external;
mod gemm;
mod gemv;
pub mod guard;
pub mod imports;
mod linear_attention;
pub mod map;
pub mod matrix;
mod norm;
pub mod numeric;
mod pack;
pub mod packed;
mod qgemm;
pub mod quant;
mod report;
pub mod rope;
mod skinny;
pub mod vectors;

pub use alloc::Counting;
pub use amx::caps;
pub use canary::call;
pub use guard::{Edge, Guarded};
pub use report::{timed, Outcome, Report};

thread_local! {
    /// What [`effort`] says while a row is checked.
    static EFFORT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// How much is tried: 8 natively, 1 in an emulator, which is that much slower or more. 0 is for what is tried in full
/// elsewhere, with fewer sizes and values: in an emulator the portable kernels, which are the same on every machine, and with
/// `GLLM_TEST_BRIEF` in the environment all kernels, for the other CPUs of an emulator, once one has done everything.
pub fn effort() -> usize {
    EFFORT.get().unwrap_or_else(|| effort_for(None))
}

fn effort_for(row: Option<&KernelInfo>) -> usize {
    static BRIEF: OnceLock<bool> = OnceLock::new();
    let brief = *BRIEF.get_or_init(|| std::env::var_os("GLLM_TEST_BRIEF").is_some());
    match row {
        _ if brief => 0,
        // An instruction that is emulated stops the thread, for much longer than it takes; one for tiles is worth it, as it does thousands of multiplications.
        Some(row)
            if row.requires.contains(Features::AVX_VNNI) && amx::emulated().contains(Features::AVX_VNNI) =>
        {
            1
        }
        _ if cfg!(target_arch = "x86_64") => 8,
        Some(row) if row.level == IsaLevel::Scalar => 0,
        _ => 1,
    }
}

/// A checker: runs every case of one kernel.
pub type Checker = fn(&KernelInfo) -> Outcome;

/// The checker for `op` on storage type `E`.
fn checker<E: Element + gemm::Sample>(op: Op) -> Option<Checker> {
    Some(match op {
        Op::VecDot => blas1::dot::<E>,
        Op::VecSum => blas1::sum::<E>,
        Op::VecMax => blas1::max::<E>,
        Op::VecAdd => blas1::add::<E>,
        Op::VecMul => blas1::mul::<E>,
        Op::VecScale => blas1::scale::<E>,
        Op::VecAxpy => blas1::axpy::<E>,
        Op::Relu => blas1::relu::<E>,
        Op::Exp | Op::Tanh | Op::Silu | Op::Gelu | Op::GeluTanh => elementwise::unary::<E>,
        Op::Swiglu | Op::Geglu => elementwise::gated::<E>,
        Op::Gemv => gemv::gemv::<E>,
        Op::Dequant => quant::dequant::<E>,
        Op::Qgemv => quant::qgemv::<E>,
        Op::DequantFp8 => external::dequant_fp8::<E>,
        Op::QgemvFp8 => external::qgemv_fp8::<E>,
        Op::DequantAwq => external::dequant_awq::<E>,
        Op::QgemvAwq => external::qgemv_awq::<E>,
        Op::DequantGptq => external::dequant_gptq::<E>,
        Op::QgemvGptq => external::qgemv_gptq::<E>,
        Op::DequantSqueezellm => external::dequant_squeezellm::<E>,
        Op::QgemvSqueezellm => external::qgemv_squeezellm::<E>,
        Op::QuantizeActivations => packed::quantize_activations::<E>,
        Op::PackQ => packed::pack_q,
        Op::QgemvPacked | Op::QgemvQ8 => packed::products,
        Op::Qgemm => qgemm::qgemm,
        Op::Gemm | Op::GemmBias | Op::GemmBt | Op::GemmFused | Op::GemmPrepacked => gemm::gemm::<E>,
        Op::GemmSkinny => skinny::skinny::<E>,
        Op::PackB => pack::pack_b::<E>,
        Op::Softmax => norm::softmax::<E>,
        Op::RmsNorm => norm::rms_norm::<E>,
        Op::LayerNorm => norm::layer_norm::<E>,
        Op::Rope => rope::rope::<E>,
        Op::Attend => attention::attention::<E>,
        Op::AttendQ8_0 => attention::attention_q8_0::<E>,
        Op::GatedDeltaRule => linear_attention::gated_delta_rule,
        Op::CausalConv1d => linear_attention::causal_conv1d,
        _ => return None,
    })
}

/// The checker of a registry row, if there is one.
pub fn checker_of(row: &KernelInfo) -> Option<Checker> {
    match row.element {
        ElementType::F32 => checker::<f32>(row.op),
        ElementType::F16 => checker::<f16>(row.op),
        ElementType::Bf16 => checker::<bf16>(row.op),
        ElementType::I8 => match row.op {
            Op::Gemm | Op::GemmBias | Op::GemmBt | Op::GemmPrepacked => Some(gemm::gemm::<i8>),
            Op::PackB => Some(pack::pack_b::<i8>),
            _ => None,
        },
        _ => None,
    }
}

/// Runs one kernel against its oracle.
///
/// # Errors
/// One line: the first deviation, or what is missing (a checker, the instruction set).
pub fn check(row: &KernelInfo) -> Outcome {
    let checker = checker_of(row).ok_or_else(|| format!("no checker for {}", row.op.name()))?;
    EFFORT.set(Some(effort_for(Some(row))));
    let outcome = checker(row);
    EFFORT.set(None);
    match canary::violation() {
        Some(v) => Err(format!("{}: {v}", row.name)),
        None => outcome.map_err(|e| format!("{}: {e}", row.name)),
    }
}
