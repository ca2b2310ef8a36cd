//! The kernel table by enumeration, on the target: every NEON kernel that the CPU can execute against the scalar one, and
//! what ggml has decoded.
#![no_std]
#![no_main]

use fw_rt::{at_el0, entry, Once};
use gllm_kernels_core::{
    bf16, f16, kernels, Activation, Caps, Element, ElementType, IsaLevel, KernelError, KernelInfo, Kernels,
    MatMut, MatRef, Op, Precision, QuantFormat, QuantRef, Right, Scratch,
};
use programs::vectors::{self, COLS, ROWS};
use programs::{packed, same_bits, Random};

extern "C" {
    /// The tests.
    fn main() -> !;
}

fn start(_: u64, _: u64, _: u64, _: u64) -> ! {
    // SAFETY: `defmt_test::tests` defines it.
    unsafe { main() }
}
entry!(start);

/// Rows of activations: whole rounds of the kernels that take most, and a rest.
const BATCH: usize = 17;
/// Of GEMM: whole tiles and edges, and a skinny one.
const M: usize = 40;
const SKINNY: usize = 7;
const N: usize = 29;
const K: usize = 37;

struct State {
    x: [f32; BATCH * COLS],
    decoded: [[f32; ROWS * COLS]; 2],
    packed: [u8; packed(QuantFormat::ALL, ROWS, COLS)],
    scratch: [u8; 512 << 10],
}

static STATE: Once<State> =
    Once::new(State { x: [0.0; _], decoded: [[0.0; _]; 2], packed: [0; _], scratch: [0; _] });

/// The kernels of this CPU.
fn rows() -> impl Iterator<Item = &'static KernelInfo> {
    let have = fw_rt::caps().features();
    kernels().filter(move |row| row.level == IsaLevel::Neon && have.contains(row.requires))
}

/// Whether `a` and `b` differ by at most `tolerance` of the largest `b`.
fn close(a: &[f32], b: &[f32], tolerance: f32) -> bool {
    let largest = b.iter().fold(0f32, |m, v| m.max(v.abs()));
    largest > 0.0 && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance * largest)
}

/// One product with quantised weights, by the kernels `k`.
fn product(
    k: &Kernels<f32>,
    op: Op,
    w: QuantRef<'_>,
    s: &mut State,
) -> Result<[f32; BATCH * ROWS], KernelError> {
    let mut y = [0.0; BATCH * ROWS];
    let (x, to) = (MatRef::new(&s.x, BATCH, COLS)?, MatMut::new(&mut y, BATCH, ROWS)?);
    let plan = k.qgemm_plan(w.format(), BATCH, ROWS, COLS, Precision::Integer)?.with_kernel(op)?;
    let scratch = Scratch::new(&mut s.scratch);
    if op == Op::QgemvPacked {
        plan.run(to, k.pack_q(w, &mut s.packed)?, x, None, scratch)?;
    } else {
        plan.run(to, w, x, None, scratch)?;
    }
    Ok(y)
}

/// One dense product, by the kernels `k`, as `op` does it.
fn dense<E: Element>(k: &Kernels<E>, op: Op, s: &mut State) -> Result<[f32; M * N], KernelError> {
    let (mut a, mut b, mut c) = ([E::ZERO; M * K], [E::ZERO; K * N], [0.0; M * N]);
    let mut random = Random(11);
    a.iter_mut().chain(&mut b).for_each(|v| *v = E::from_f32(random.number()));
    let m = if op == Op::GemmSkinny { SKINNY } else { M };
    let (a, right) = (MatRef::new(&a[..m * K], m, K)?, MatRef::new(&b, K, N)?);
    let plan = k.gemm_plan(m, N, K)?;
    let (to, scratch) = (MatMut::new(&mut c[..m * N], m, N)?, Scratch::new(&mut s.scratch));
    match op {
        Op::GemmBias => plan.run(to, a, right, Some(&s.x[..N]), scratch)?,
        Op::GemmBt => plan.run(to, a, Right::Transposed(MatRef::new(&b, N, K)?), None, scratch)?,
        Op::GemmFused => plan.activation(Activation::Silu).run(to, a, right, Some(&s.x[..N]), scratch)?,
        Op::GemmPrepacked => plan.run(to, a, k.pack_b(right, &mut s.packed)?, None, scratch)?,
        _ => plan.run(to, a, right, None, scratch)?,
    }
    Ok(c)
}

/// A kernel of a dense product against the generic scalar one.
fn judge_dense<E: Element>(row: &KernelInfo, s: &mut State) -> Result<bool, KernelError> {
    let best = fw_rt::kernels::<E>();
    let k = if matches!(row.op, Op::GemmSkinny | Op::PackB) { best } else { best.with_gemm(row)? };
    let op = if row.op == Op::PackB { Op::GemmPrepacked } else { row.op };
    let want = dense(&Kernels::<E>::with(Caps::SCALAR), op, s)?;
    // `bfmmla` rounds twice a pair.
    Ok(close(&dense(&k, op, s)?, &want, 1e-5))
}

/// Of int8: exact.
fn judge_int8(row: &KernelInfo, s: &mut State) -> Result<bool, KernelError> {
    let (mut a, mut b, mut random) = ([0i8; M * K], [0i8; K * N], Random(13));
    a.iter_mut().chain(&mut b).for_each(|v| *v = random.bits() as u8 as i8);
    let mut run = |k: Kernels<i8>| -> Result<[i32; M * N], KernelError> {
        let mut c = [0; M * N];
        let (left, right) = (MatRef::new(&a, M, K)?, MatRef::new(&b, K, N)?);
        let (plan, to) = (k.gemm_plan(M, N, K)?, MatMut::new(&mut c, M, N)?);
        let scratch = Scratch::new(&mut s.scratch);
        match row.op {
            Op::GemmBias => plan.run(to, left, right, Some(&[-7; N]), scratch)?,
            Op::GemmBt => plan.run(to, left, Right::Transposed(MatRef::new(&b, N, K)?), None, scratch)?,
            Op::GemmPrepacked | Op::PackB => {
                plan.run(to, left, k.pack_b(right, &mut s.packed)?, None, scratch)?
            }
            _ => plan.run(to, left, right, None, scratch)?,
        }
        Ok(c)
    };
    let best = fw_rt::kernels::<i8>();
    let k = if row.op == Op::PackB { best } else { best.with_gemm(row)? };
    Ok(run(k)? == run(Kernels::<i8>::with(Caps::SCALAR))?)
}

#[defmt_test::tests]
mod tests {
    use super::*;

    #[init]
    fn init() -> &'static mut State {
        let state = STATE.take();
        let mut random = Random(7);
        // Whole numbers, with 127 among each 32: rounding to 8 bits changes nothing.
        for (i, x) in state.x.iter_mut().enumerate() {
            *x = if i % 32 == 0 { 127.0 } else { (random.bits() % 255) as f32 - 127.0 };
        }
        state
    }

    #[test]
    fn every_format_is_decoded_as_ggml_does(s: &mut &'static mut State) -> Result<(), KernelError> {
        let (neon, scalar) = (fw_rt::kernels::<f32>(), Kernels::<f32>::with(Caps::SCALAR));
        for &(format, blocks, decoded) in vectors::ALL {
            let w = QuantRef::new(blocks, format, ROWS, COLS)?;
            for (k, to) in [neon, scalar].iter().zip(&mut s.decoded) {
                k.dequant(w, to)?;
                let bits = to.iter().map(|v| v.to_bits().to_le_bytes());
                defmt::assert!(bits.eq(decoded.chunks_exact(4)), "{} on {}", format, k.level());
            }
        }
        Ok(())
    }

    #[test]
    fn every_product_with_quantised_weights(s: &mut &'static mut State) -> Result<(), KernelError> {
        let (neon, scalar) = (fw_rt::kernels::<f32>(), Kernels::<f32>::with(Caps::SCALAR));
        let mut n = 0;
        for row in
            rows().filter(|row| matches!(row.op, Op::Qgemv | Op::QgemvQ8 | Op::QgemvPacked | Op::Qgemm))
        {
            let vector = vectors::ALL.iter().find(|(format, ..)| Some(*format) == row.format);
            let (Some(&(format, blocks, _)), ElementType::F32) = (vector, row.element) else { continue };
            let w = QuantRef::new(blocks, format, ROWS, COLS)?;
            let tiers = row.op != Op::Qgemv && !format.is_float();
            let k = if tiers { neon.with_qgemv(row)? } else { neon };
            let (got, want) = (product(&k, row.op, w, s)?, product(&scalar, row.op, w, s)?);
            let exact = row.op == Op::QgemvPacked && !format.is_float();
            let right = if exact { same_bits(&got, &want) } else { close(&got, &want, 1e-5) };
            defmt::assert!(right, "{=str}", row.name);
            n += 1;
        }
        defmt::info!("{} kernels", n);
        // Four operators, 27 formats, and one tier at least.
        defmt::assert!(n >= 4 * vectors::ALL.len());
        Ok(())
    }

    #[test]
    fn every_dense_product(s: &mut &'static mut State) -> Result<(), KernelError> {
        let mut n = 0;
        let dense =
            [Op::Gemm, Op::GemmBias, Op::GemmBt, Op::GemmFused, Op::GemmPrepacked, Op::GemmSkinny, Op::PackB];
        for row in rows().filter(|row| dense.contains(&row.op)) {
            let right = match row.element {
                ElementType::F32 => judge_dense::<f32>(row, s)?,
                ElementType::F16 => judge_dense::<f16>(row, s)?,
                ElementType::Bf16 => judge_dense::<bf16>(row, s)?,
                _ => judge_int8(row, s)?,
            };
            defmt::assert!(right, "{=str}", row.name);
            n += 1;
        }
        defmt::info!("{} kernels", n);
        defmt::assert!(n > dense.len());
        Ok(())
    }

    #[test]
    fn every_other_operator() -> Result<(), KernelError> {
        defmt::assert_eq!(programs::ops::run()?, 0);
        Ok(())
    }

    /// Safe functions must not trap where the ID registers do.
    #[test]
    fn detection_at_el0() {
        extern "C" fn register() -> u64 {
            let value;
            // SAFETY: reads an ID register.
            unsafe { core::arch::asm!("mrs {}, id_aa64isar0_el1", out(reg) value) };
            value
        }
        extern "C" fn detects() -> u64 {
            u64::from(Caps::detect() == Caps::BASELINE)
        }
        // SAFETY: one core runs; neither function uses addresses from memory.
        let (trapped, detected) = unsafe { (at_el0(register), at_el0(detects)) };
        defmt::assert_eq!(trapped, None);
        defmt::assert_eq!(detected, Some(1));
    }

    /// An operator that is new has to be named somewhere.
    #[test]
    fn every_row_is_judged() {
        for row in rows() {
            let name = row.op.name();
            let here = ["gemm", "pack_"].iter().any(|start| name.starts_with(start));
            let quantised = matches!(row.op, Op::Qgemv | Op::QgemvQ8 | Op::QgemvPacked | Op::Qgemm);
            // Reached by products with 8-bit activations.
            let activations = row.op == Op::QuantizeActivations;
            let judged = here || quantised || activations || programs::ops::runs(name);
            defmt::assert!(judged, "{=str}", row.name);
        }
    }
}
