//! Instructions of every NEON kernel: per weight and row of activations of those for quantised weights, per multiply-add of
//! matrix products, per element of all others; to the file `icount.json` on the host. QEMU must count: `-icount shift=0`.
//!
//! It is a budget, not a speed: what CPUs start in a cycle differs by instruction. Calls are counted as a whole, with
//! argument checks and what is done once for a row.
#![no_std]
#![no_main]

use defmt::{error, info};
use fw_rt::{instructions, Once};
use gllm_kernels_core::{
    bf16, f16, kernels, Element, ElementType, IsaLevel, KernelError, KernelInfo, MatMut, MatRef, Op, Operand,
    Precision, QuantFormat, QuantRef, QuantWeights, RopePairing, RopeShape, Scratch,
};
use programs::{activations, ops, packed, Random};
use semihosting::fs::File;
use semihosting::io::Write;

fw_rt::program!(run);

const ROWS: usize = 32;
const COLS: usize = 1024;
/// Rows of activations of `qgemm`: two rounds of its largest microkernel on any instruction set.
const MANY: usize = 24;
/// Rows of weights that are decoded: results are larger than they are.
const SOME: usize = 8;
/// Of GEMM: whole tiles of every microkernel.
const MN: usize = 48;
const K: usize = 256;
/// Rows of a skinny product.
const FEW: usize = 6;

struct Buffers {
    weights: [u8; ROWS * COLS * 2],
    packed: [u8; packed(QuantFormat::ALL, ROWS, COLS)],
    x: [f32; MANY * COLS],
    activations: [u8; activations(MANY, COLS)],
    y: [f32; ROWS * COLS],
    scratch: [u8; 512 << 10],
}

static BUFFERS: Once<Buffers> = Once::new(Buffers {
    weights: [0; _],
    packed: [0; _],
    x: [0.0; _],
    activations: [0; _],
    y: [0.0; _],
    scratch: [0; _],
});

static F32: Once<ops::Buffers<f32>> = Once::new(ops::Buffers::zeroed());
static F16: Once<ops::Buffers<f16>> = Once::new(ops::Buffers::zeroed());
static BF16: Once<ops::Buffers<bf16>> = Once::new(ops::Buffers::zeroed());

/// Where results go: one line each, and how many were written.
struct Report {
    file: File,
    lines: usize,
}

impl Report {
    /// `count` instructions for `work` products or weights.
    fn add(&mut self, name: &str, rows: Option<usize>, count: u64, work: usize) {
        let thousandths = count * 1000 / work as u64;
        let (whole, part) = (thousandths / 1000, thousandths % 1000);
        let comma = if self.lines == 0 { "{\n" } else { ",\n" };
        let written = match rows {
            Some(m) => write!(self.file, "{comma}\"{name} m={m}\": {whole}.{part:03}"),
            None => write!(self.file, "{comma}\"{name}\": {whole}.{part:03}"),
        };
        if written.is_err() {
            error!("the host does not take the report");
            fw_rt::exit(1);
        }
        self.lines += 1;
    }
}

/// Instructions of a call.
fn count(call: impl FnOnce() -> Result<(), KernelError>) -> Result<u64, KernelError> {
    let before = instructions();
    call()?;
    Ok(instructions() - before)
}

fn run() -> Result<usize, KernelError> {
    let Ok(file) = File::create(c"icount.json") else {
        error!("the host does not give a file");
        return Ok(1);
    };
    let mut report = Report { file, lines: 0 };
    let b = BUFFERS.take();
    let mut random = Random(5);
    // Any bytes are blocks, and no kernel asks what they say.
    b.weights.fill_with(|| random.bits() as u8);
    random.fill(&mut b.x);

    let (f32s, f16s, bf16s) = (F32.take(), F16.take(), BF16.take());
    f32s.fill();
    f16s.fill();
    bf16s.fill();
    let (have, mut wrong) = (fw_rt::caps().features(), 0);
    for row in kernels().filter(|row| row.level == IsaLevel::Neon && have.contains(row.requires)) {
        let whole = match row.element {
            ElementType::F32 => any(row, b, f32s, &mut report)?,
            ElementType::F16 => any(row, b, f16s, &mut report)?,
            ElementType::Bf16 => any(row, b, bf16s, &mut report)?,
            _ => int8(row, b, &mut report)?,
        };
        if !whole {
            error!("{=str}: not counted", row.name);
            wrong += 1;
        }
    }
    if writeln!(report.file, "\n}}").is_err() {
        return Ok(1);
    }
    info!("{} figures", report.lines);
    Ok(wrong + usize::from(report.lines == 0))
}

/// A kernel for this storage type; whether it is known here.
fn any<E: Element + Operand<Sum = f32>>(
    row: &KernelInfo,
    b: &mut Buffers,
    small: &mut ops::Buffers<E>,
    report: &mut Report,
) -> Result<bool, KernelError> {
    let k = fw_rt::kernels::<E>();
    if let Some(format) = row.format {
        let w = QuantRef::new(&b.weights[..format.row_bytes(COLS)? * ROWS], format, ROWS, COLS)?;
        let n = match row.op {
            Op::Dequant => {
                let mut some = [E::ZERO; SOME * COLS];
                let w = w.row_range(0, SOME)?;
                ROWS as u64 / SOME as u64 * count(|| k.dequant(w, &mut some))?
            }
            Op::Qgemv => {
                let x = [E::from_f32(0.5); COLS];
                let plan = k.qgemm_plan(format, 1, ROWS, COLS, Precision::Exact)?.with_kernel(row.op)?;
                let (x, y) = (MatRef::new(&x, 1, COLS)?, MatMut::new(&mut b.y[..ROWS], 1, ROWS)?);
                count(|| plan.run(y, w, x, None, Scratch::empty()))?
            }
            _ => return quantised(row, b, report),
        };
        report.add(row.name, None, n, ROWS * COLS);
        return Ok(true);
    }
    match row.op {
        Op::Gemm => gemm::<E>(row, b, report)?,
        // The same microkernels, with the same driver.
        Op::GemmBias | Op::GemmBt | Op::GemmFused | Op::GemmPrepacked => {}
        Op::GemmSkinny => {
            let (a, right) = ([E::from_f32(0.5); FEW * K], [E::from_f32(0.5); K * MN]);
            let (a, right) = (MatRef::new(&a, FEW, K)?, MatRef::new(&right, K, MN)?);
            let (plan, to) = (k.gemm_plan(FEW, MN, K)?, MatMut::new(&mut b.y[..FEW * MN], FEW, MN)?);
            let n = count(|| plan.run(to, a, right, None, Scratch::new(&mut b.scratch)))?;
            report.add(row.name, None, n, FEW * MN * K);
        }
        Op::PackB => {
            let right = [E::from_f32(0.5); K * MN];
            let right = MatRef::new(&right, K, MN)?;
            let n = count(|| k.pack_b(right, &mut b.packed).map(|_| ()))?;
            report.add(row.name, None, n, K * MN);
        }
        Op::QuantizeActivations => {
            let x = [E::from_f32(0.5); COLS];
            let x = MatRef::new(&x, 1, COLS)?;
            let plan = k.qgemm_plan(QuantFormat::Q8_0, 1, ROWS, COLS, Precision::Integer)?;
            let n = count(|| plan.prepare(x, &mut b.activations).map(|_| ()))?;
            report.add(row.name, None, n, COLS);
        }
        Op::Rope => {
            // 8 heads of 128, without the tables.
            let shape = RopeShape { heads: 8, head_dim: 128, rot_dim: 128, pairing: RopePairing::HalfSplit };
            let (angles, y) = ([0.5; 64], &mut small.got[..1024]);
            let n = count(|| k.rope(shape, &angles, &angles, &small.x[..1024], y))?;
            report.add(row.name, None, n, 1024);
        }
        op => {
            let Some(call) = ops::find::<E>(op.name()) else { return Ok(false) };
            let n = count(|| call.run(&k, small, &mut b.scratch))?;
            report.add(row.name, None, n, ops::Call::<E>::elements(op.name()));
        }
    }
    Ok(true)
}

/// A kernel for a format, of whatever storage type; whether it is known here.
fn quantised(row: &KernelInfo, b: &mut Buffers, report: &mut Report) -> Result<bool, KernelError> {
    let Some(format) = row.format else { return Ok(false) };
    let k = fw_rt::kernels::<f32>();
    let w = QuantRef::new(&b.weights[..format.row_bytes(COLS)? * ROWS], format, ROWS, COLS)?;
    let weights = ROWS * COLS;
    match row.op {
        Op::PackQ => {
            let n = count(|| k.pack_q(w, &mut b.packed).map(|_| ()))?;
            report.add(row.name, None, n, weights);
        }
        Op::QgemvQ8 | Op::QgemvPacked => {
            let k = k.with_qgemv(row)?;
            let packed = k.pack_q(w, &mut b.packed)?;
            for m in [1, 2, 4] {
                let x = MatRef::new(&b.x[..m * COLS], m, COLS)?;
                let plan = k.qgemm_plan(format, m, ROWS, COLS, Precision::Integer)?.with_kernel(row.op)?;
                let x = plan.prepare(x, &mut b.activations)?;
                let y = MatMut::new(&mut b.y[..m * ROWS], m, ROWS)?;
                let w = if row.op == Op::QgemvQ8 { QuantWeights::InPlace(w) } else { packed.into() };
                let n = count(|| plan.run(y, w, x, None, Scratch::empty()))?;
                report.add(row.name, Some(m), n, m * weights);
            }
        }
        Op::Qgemm => {
            let k = k.with_qgemv(row)?;
            let plan = k.qgemm_plan(format, MANY, ROWS, COLS, Precision::Integer)?;
            let x = MatRef::new(&b.x, MANY, COLS)?;
            let y = MatMut::new(&mut b.y[..MANY * ROWS], MANY, ROWS)?;
            let n = count(|| plan.run(y, w, x, None, Scratch::new(&mut b.scratch)))?;
            report.add(row.name, Some(MANY), n, MANY * weights);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// A GEMM microkernel.
fn gemm<E: Element + Operand<Sum = f32>>(
    row: &KernelInfo,
    b: &mut Buffers,
    report: &mut Report,
) -> Result<(), KernelError> {
    let plan = fw_rt::kernels::<E>().with_gemm(row)?.gemm_plan(MN, MN, K)?;
    let operand = [E::from_f32(0.5); MN * K];
    let (x, y) = (MatRef::new(&operand, MN, K)?, MatRef::new(&operand, K, MN)?);
    let c = MatMut::new(&mut b.y[..MN * MN], MN, MN)?;
    let n = count(|| plan.run(c, x, y, None, Scratch::new(&mut b.scratch)))?;
    report.add(row.name, None, n, MN * MN * K);
    Ok(())
}

/// The same for int8; whether the kernel is known here.
fn int8(row: &KernelInfo, b: &mut Buffers, report: &mut Report) -> Result<bool, KernelError> {
    let k = fw_rt::kernels::<i8>();
    let (x, y) = ([3i8; MN * K], [-5i8; K * MN]);
    let (x, y) = (MatRef::new(&x, MN, K)?, MatRef::new(&y, K, MN)?);
    match row.op {
        Op::Gemm => {
            let (plan, mut c) = (k.with_gemm(row)?.gemm_plan(MN, MN, K)?, [0; MN * MN]);
            let c = MatMut::new(&mut c, MN, MN)?;
            let n = count(|| plan.run(c, x, y, None, Scratch::new(&mut b.scratch)))?;
            report.add(row.name, None, n, MN * MN * K);
        }
        Op::GemmBias | Op::GemmBt | Op::GemmFused | Op::GemmPrepacked => {}
        Op::PackB => {
            let n = count(|| k.pack_b(y, &mut b.packed).map(|_| ()))?;
            report.add(row.name, None, n, K * MN);
        }
        _ => return Ok(false),
    }
    Ok(true)
}
