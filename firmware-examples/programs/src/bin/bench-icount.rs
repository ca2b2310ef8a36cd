//! Instructions per weight and row of activations of every NEON kernel for quantised weights, and per multiply-add of
//! every GEMM microkernel, to the file `icount.json` on the host. QEMU must count: `-icount shift=0`.
//!
//! It is a budget, not a speed: what CPUs start in a cycle differs by instruction. Calls are counted as a whole, with
//! argument checks and what is done once for a row.
#![no_std]
#![no_main]

use defmt::{error, info};
use fw_rt::{instructions, Once};
use gllm_kernels_core::{
    bf16, f16, kernels, Caps, Element, ElementType, IsaLevel, KernelError, KernelInfo, Kernels, MatMut,
    MatRef, Op, Operand, Precision, QuantFormat, QuantRef, Scratch,
};
use programs::{activations, packed, Random};
use semihosting::fs::File;
use semihosting::io::Write;

fw_rt::program!(run);

const ROWS: usize = 32;
const COLS: usize = 1024;
/// Rows of activations of `qgemm`: two rounds of its largest microkernel on any instruction set.
const MANY: usize = 24;
/// Of GEMM: whole tiles of every microkernel.
const MN: usize = 48;
const K: usize = 256;

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

    let k = Kernels::<f32>::forced(IsaLevel::Neon)?;
    for row in
        kernels().filter(|row| row.level == IsaLevel::Neon && k.caps().features().contains(row.requires))
    {
        match (row.op, row.element) {
            (Op::Gemm, ElementType::F32) => gemm::<f32>(row, b, &mut report)?,
            (Op::Gemm, ElementType::F16) => gemm::<f16>(row, b, &mut report)?,
            (Op::Gemm, ElementType::Bf16) => gemm::<bf16>(row, b, &mut report)?,
            (_, ElementType::F32) if row.format.is_some() => quantised(row, k, b, &mut report)?,
            _ => {}
        }
    }
    if writeln!(report.file, "\n}}").is_err() {
        return Ok(1);
    }
    info!("{} figures", report.lines);
    Ok(usize::from(report.lines == 0))
}

/// The kernels of a format.
fn quantised(
    row: &KernelInfo,
    k: Kernels<f32>,
    b: &mut Buffers,
    report: &mut Report,
) -> Result<(), KernelError> {
    let Some(format) = row.format else { return Ok(()) };
    let w = QuantRef::new(&b.weights[..format.row_bytes(COLS)? * ROWS], format, ROWS, COLS)?;
    let weights = ROWS * COLS;
    match row.op {
        Op::Dequant => {
            let n = count(|| k.dequant(w, &mut b.y))?;
            report.add(row.name, None, n, weights);
        }
        Op::PackQ => {
            let n = count(|| k.pack_q(w, &mut b.packed).map(|_| ()))?;
            report.add(row.name, None, n, weights);
        }
        Op::Qgemv => {
            let n = count(|| k.qgemv(w, &b.x[..COLS], &mut b.y[..ROWS]))?;
            report.add(row.name, Some(1), n, weights);
        }
        Op::QgemvQ8 | Op::QgemvPacked => {
            let k = k.with_qgemv(row)?;
            let packed = k.pack_q(w, &mut b.packed)?;
            for m in [1, 2, 4] {
                let x = MatRef::new(&b.x[..m * COLS], m, COLS)?;
                let x = k.quantize_activations(format, x, &mut b.activations)?;
                let y = MatMut::new(&mut b.y[..m * ROWS], m, ROWS)?;
                let n = match row.op {
                    Op::QgemvQ8 => count(|| k.qgemv_q8(w, x, y))?,
                    _ => count(|| k.qgemv_packed(packed, x, y))?,
                };
                report.add(row.name, Some(m), n, m * weights);
            }
        }
        Op::Qgemm => {
            let k = k.with_qgemv(row)?;
            let plan = k.qgemm_plan(format, MANY, ROWS, COLS, Precision::Integer)?;
            let x = MatRef::new(&b.x, MANY, COLS)?;
            let y = MatMut::new(&mut b.y[..MANY * ROWS], MANY, ROWS)?;
            let n = count(|| plan.run(y, w.into(), x, None, Scratch::new(&mut b.scratch)))?;
            report.add(row.name, Some(MANY), n, MANY * weights);
        }
        _ => {}
    }
    Ok(())
}

/// A GEMM microkernel.
fn gemm<E: Element + Operand<Sum = f32>>(
    row: &KernelInfo,
    b: &mut Buffers,
    report: &mut Report,
) -> Result<(), KernelError> {
    let plan = Kernels::<E>::with(Caps::detect()).with_gemm(row)?.gemm_plan(MN, MN, K)?;
    let operand = [E::from_f32(0.5); MN * K];
    let (x, y) = (MatRef::new(&operand, MN, K)?, MatRef::new(&operand, K, MN)?);
    let c = MatMut::new(&mut b.y[..MN * MN], MN, MN)?;
    let n = count(|| plan.run(c, x, y, Scratch::new(&mut b.scratch)))?;
    report.add(row.name, None, n, MN * MN * K);
    Ok(())
}
