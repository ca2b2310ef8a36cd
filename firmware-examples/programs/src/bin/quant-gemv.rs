//! Every kernel for products of quantised weights on NEON, chosen automatically and by force, against the scalar one, and
//! what the CPU lacks is refused.
//!
//! Scales of weights are powers of two and activations whole numbers, with 127 among each 32 so that rounding them to 8 bits
//! changes nothing. Then all sums are exact in f32, whatever their order: every kernel, of packed weights or of those in
//! place, of rounded activations or of others, has the same bits.
#![no_std]
#![no_main]

use defmt::info;
use fw_rt::{check, Once};
use gllm_kernels_core::{
    f16, kernels, Caps, ElementType, Features, GemmPlan, IsaLevel, KernelError, KernelInfo, Kernels, MatMut,
    MatRef, Op, PackedQ, Precision, QuantFormat, QuantRef, QuantWeights, Right, Scratch,
};
use programs::vectors::{self, COLS, ROWS};
use programs::{activations, packed, room, same_bits, Random};

fw_rt::program!(run);

/// Rows of activations: two whole rounds of the kernels that take most, and a rest.
const BATCH: usize = 9;
/// Of the products of f16 by f16: whole tiles of every microkernel, and a rest.
const MANY: usize = 50;

/// The formats that most models come in.
const HOT: [QuantFormat; 6] = [
    QuantFormat::Q4_0,
    QuantFormat::Q8_0,
    QuantFormat::Q4K,
    QuantFormat::Q6K,
    QuantFormat::Mxfp4,
    QuantFormat::F16,
];

/// The tiers of products in integers, and what CPUs must have for them.
const TIERS: [(&str, Features); 3] = [
    ("__neon_smull", Features::NONE),
    ("__neon_dotprod", Features::DOTPROD),
    ("__neon_i8mm", Features::I8MM),
];

struct Buffers {
    x: [f32; MANY * COLS],
    halves: [f16; MANY * COLS],
    w: [u8; ROWS * COLS * 2],
    activations: [u8; activations(BATCH, COLS)],
    packed: [u8; packed(&HOT, ROWS, COLS)],
    scratch: [u8; room(GemmPlan::<f16>::scratch_bound(MANY, ROWS, COLS))],
}

static BUFFERS: Once<Buffers> = Once::new(Buffers {
    x: [0.0; _],
    halves: [f16::ZERO; _],
    w: [0; _],
    activations: [0; _],
    packed: [0; _],
    scratch: [0; _],
});

type Y = [f32; BATCH * ROWS];

/// One product by the kernels `k`: of `op`, with the weights `w` in place or packed.
fn product(
    k: &Kernels<f32>,
    op: Op,
    (w, packed): (QuantRef<'_>, PackedQ<'_>),
    (x, buf): (&[f32], &mut [u8]),
) -> Result<Y, KernelError> {
    let mut y = [0.0; BATCH * ROWS];
    let x = MatRef::new(x, BATCH, COLS)?;
    let to = MatMut::new(&mut y, BATCH, ROWS)?;
    let plan = k.qgemm_plan(w.format(), BATCH, ROWS, COLS, Precision::Integer)?.with_kernel(op)?;
    let weights = if op == Op::QgemvPacked { QuantWeights::Packed(packed) } else { w.into() };
    plan.run(to, weights, plan.prepare(x, buf)?, None, Scratch::empty())?;
    Ok(y)
}

/// Makes the scales of blocks 1 (of MXFP4 any power of two), and weights that are f16 whole numbers.
fn simplify(format: QuantFormat, blocks: &mut [u8]) {
    let one = f16::ONE.to_le_bytes();
    for block in blocks.chunks_exact_mut(format.block_bytes()) {
        match format {
            QuantFormat::Q4K => block[..4].as_chunks_mut().0.fill(one),
            QuantFormat::Q6K => block[208..].copy_from_slice(&one),
            QuantFormat::Mxfp4 => block[0] = 128,
            QuantFormat::F16 => {
                block.copy_from_slice(&f16::from_f32(f32::from(block[0] as i8)).to_le_bytes());
            }
            _ => block[..2].copy_from_slice(&one),
        }
    }
}

/// Whether a product is some number, and the same as another one.
fn right(got: &[f32], want: &[f32]) -> bool {
    same_bits(got, want) && want.iter().all(|w| w.is_finite()) && want.iter().any(|&w| w != 0.0)
}

fn run() -> Result<usize, KernelError> {
    let (caps, b) = (fw_rt::caps(), BUFFERS.take());
    let mut random = Random(1);
    for (i, x) in b.x.iter_mut().enumerate() {
        *x = if i % 32 == 0 { 127.0 } else { (random.bits() % 7) as f32 - 3.0 };
    }

    let mut wrong = 0;
    for &(format, blocks, _) in vectors::ALL.iter().filter(|(format, ..)| HOT.contains(format)) {
        let bytes = &mut b.w[..blocks.len()];
        bytes.copy_from_slice(blocks);
        simplify(format, bytes);
        let w = QuantRef::new(bytes, format, ROWS, COLS)?;
        wrong += judge(caps, w, &mut b.packed, (&b.x, &mut b.activations))?;
    }
    Ok(wrong + halves(caps, b)? + refusals(caps))
}

/// Every kernel of a format; how many are wrong.
fn judge(
    caps: Caps,
    w: QuantRef<'_>,
    packed: &mut [u8],
    (x, buf): (&[f32], &mut [u8]),
) -> Result<usize, KernelError> {
    let (scalar, neon) = (Kernels::<f32>::with(Caps::SCALAR), fw_rt::kernels::<f32>());
    let (format, packed) = (w.format(), neon.pack_q(w, packed)?);
    let want = product(&scalar, Op::Qgemv, (w, packed), (x, buf))?;
    let rows = |row: &&KernelInfo| {
        (row.format, row.level) == (Some(format), IsaLevel::Neon)
            && matches!(row.op, Op::QgemvPacked | Op::QgemvQ8 | Op::Qgemv)
            && row.element == ElementType::F32
    };
    let (mut wrong, mut ran, mut refused) = (0, 0, 0);
    for row in kernels().filter(rows) {
        let forced = if row.op == Op::Qgemv { Ok(neon) } else { neon.with_qgemv(row) };
        if !caps.features().contains(row.requires) {
            refused += 1;
            wrong += check(row.name, forced.err() == Some(lacking(caps, row)));
            continue;
        }
        ran += 1;
        wrong += check(row.name, right(&product(&forced?, row.op, (w, packed), (x, buf))?, &want));
    }
    // Automatically.
    let best = fw_rt::kernels::<f32>();
    for op in [Op::QgemvPacked, Op::QgemvQ8, Op::Qgemv] {
        wrong += check(op.name(), right(&product(&best, op, (w, packed), (x, buf))?, &want));
    }
    let chosen = best.kernel(Op::QgemvPacked, Some(format)).map_or("none", |row| row.name);
    info!("{}: {} kernels right, {} refused, chosen {=str}", format, ran, refused, chosen);
    // Every tier is there, and runs or is refused as the CPU has it.
    if !format.is_float() {
        let packed = |tier: &str| {
            kernels().filter(rows).find(|row| row.op == Op::QgemvPacked && row.name.ends_with(tier))
        };
        for (tier, features) in TIERS {
            let there = packed(tier).is_some_and(|row| row.requires == Features::NEON | features);
            wrong += check(tier, there);
        }
        let lacks = TIERS.iter().any(|(_, features)| !caps.features().contains(*features));
        wrong += check("refusals", (refused > 0) == lacks);
    }
    wrong += check("kernels without features", ran >= 3);
    Ok(wrong)
}

/// How a kernel is refused.
fn lacking(caps: Caps, row: &KernelInfo) -> KernelError {
    let missing = row.requires.without(caps.features());
    KernelError::IsaUnavailable { want: row.level, have: caps.level(), missing }
}

/// Weights of f16 times activations of f16, every microkernel: with products of halves (`fmlal`), and by widening.
fn halves(caps: Caps, b: &mut Buffers) -> Result<usize, KernelError> {
    let (mut w, mut random) = ([f16::ZERO; ROWS * COLS], Random(2));
    w.fill_with(|| f16::from_f32((random.bits() % 15) as f32 - 7.0));
    for (half, x) in b.halves.iter_mut().zip(&b.x) {
        *half = f16::from_f32(*x);
    }
    let mut product = |k: &Kernels<f16>| -> Result<([f32; MANY * ROWS], &'static str), KernelError> {
        let (mut y, plan) = ([0.0; MANY * ROWS], k.gemm_plan(MANY, ROWS, COLS)?);
        let (x, w) = (MatRef::new(&b.halves, MANY, COLS)?, MatRef::new(&w, ROWS, COLS)?);
        plan.run(
            MatMut::new(&mut y, MANY, ROWS)?,
            x,
            Right::Transposed(w),
            None,
            Scratch::new(&mut b.scratch),
        )?;
        Ok((y, plan.kernel_name()))
    };
    let (scalar, neon) = (Kernels::<f16>::with(Caps::SCALAR), fw_rt::kernels::<f16>());
    let (want, _) = product(&scalar)?;
    let (mut wrong, mut widening, mut fused) = (0, 0, 0);
    let rows = |row: &&KernelInfo| {
        (row.op, row.element, row.level) == (Op::GemmBt, ElementType::F16, IsaLevel::Neon)
    };
    for row in kernels().filter(rows) {
        let forced = neon.with_gemm(row);
        *if row.requires.contains(Features::FHM) { &mut fused } else { &mut widening } += 1;
        if !caps.features().contains(row.requires) {
            wrong += check(row.name, forced.err() == Some(lacking(caps, row)));
            continue;
        }
        wrong += check(row.name, right(&product(&forced?)?.0, &want));
    }
    let (y, chosen) = product(&fw_rt::kernels())?;
    wrong += check(chosen, right(&y, &want));
    wrong += check(chosen, chosen.ends_with("fhm") == caps.features().contains(Features::FHM));
    info!("f16 by f16: {} kernels that widen, {} that do not, chosen {=str}", widening, fused, chosen);
    Ok(wrong + check("kernels of f16", widening > 0 && fused > 0))
}

/// What the CPU, or whoever has restricted its capabilities, does not have is refused; how often it was not.
fn refusals(caps: Caps) -> usize {
    let mut wrong = 0;
    // Levels of other architectures.
    for level in [IsaLevel::Avx2, IsaLevel::Avx512] {
        let (refused, missing) = (Kernels::<f32>::forced(level).err(), level.requires());
        let want = KernelError::IsaUnavailable { want: level, have: caps.level(), missing };
        wrong += check(level.name(), refused == Some(want));
    }
    // Every kernel that needs `sdot`, without it.
    let plain = Kernels::<f32>::with(caps.without(Features::DOTPROD));
    let mut n = 0;
    for row in kernels().filter(|row| row.requires.contains(Features::DOTPROD) && row.format.is_some()) {
        n += 1;
        wrong += check(row.name, plain.with_qgemv(row).err() == Some(lacking(plain.caps(), row)));
    }
    // Without NEON there is scalar code only.
    let (none, missing) = (caps.without(Features::NEON), Features::NEON);
    let want = KernelError::IsaUnavailable { want: IsaLevel::Neon, have: IsaLevel::Scalar, missing };
    wrong += check("neon", none.restricted_to(IsaLevel::Neon).err() == Some(want));
    info!("{} kernels with sdot refused without it", n);
    wrong + check("kernels with sdot", n > 0)
}
