//! Every kernel for products of quantised weights on NEON, chosen automatically and by force: all have the bits of the
//! scalar one, and what the CPU lacks is refused.
//!
//! Activations are whole numbers of at most 127 with 127 among each 32, so rounding to 8 bits changes nothing, and the
//! product in f32 must agree, too.
#![no_std]
#![no_main]

use defmt::info;
use fw_rt::{check, Once};
use gllm_kernels_core::{
    kernels, Caps, ElementType, Features, IsaLevel, KernelError, KernelInfo, Kernels, MatMut, MatRef, Op,
    PackedQ, QuantFormat, QuantRef,
};
use programs::vectors::{self, COLS, ROWS};
use programs::{same_bits, Random};

fw_rt::program!(run);

/// Rows of activations: two whole rounds of the kernels that take most, and a rest.
const BATCH: usize = 9;
const Y: usize = BATCH * ROWS;

/// The formats that most models come in.
const HOT: [QuantFormat; 5] =
    [QuantFormat::Q4_0, QuantFormat::Q8_0, QuantFormat::Q4K, QuantFormat::Q6K, QuantFormat::Mxfp4];

struct Buffers {
    x: [f32; BATCH * COLS],
    /// 1152 bytes for 256 activations, and alignment.
    activations: [u8; BATCH * COLS / 256 * 1152 + 64],
    /// At most 9 bits a weight, 16 rows at least, a header, and alignment.
    packed: [u8; 2 * ROWS * COLS * 9 / 8 + 128],
}

static BUFFERS: Once<Buffers> =
    Once::new(Buffers { x: [0.0; BATCH * COLS], activations: [0; _], packed: [0; _] });

/// One product by the kernels `k`: of `op`, with the weights `w` in place or packed.
fn product(
    k: &Kernels<f32>,
    op: Op,
    (w, packed): (QuantRef<'_>, PackedQ<'_>),
    (x, buf): (&[f32], &mut [u8]),
) -> Result<[f32; Y], KernelError> {
    let mut y = [0.0; Y];
    let x = MatRef::new(x, BATCH, COLS)?;
    let to = MatMut::new(&mut y, BATCH, ROWS)?;
    match op {
        Op::QgemvPacked => k.qgemv_packed(packed, k.quantize_activations(w.format(), x, buf)?, to)?,
        Op::QgemvQ8 => k.qgemv_q8(w, k.quantize_activations(w.format(), x, buf)?, to)?,
        _ => k.qgemv_rows(w, x, to)?,
    }
    Ok(y)
}

/// Whether results agree but for the order of sums in f32.
fn close(a: &[f32], b: &[f32]) -> bool {
    let largest = b.iter().fold(0f32, |m, v| m.max(v.abs()));
    largest > 0.0 && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-5 * largest)
}

fn run() -> Result<usize, KernelError> {
    let (caps, buffers) = (Caps::detect(), BUFFERS.take());
    let Buffers { x, activations, packed } = buffers;
    let mut random = Random(1);
    for (i, x) in x.iter_mut().enumerate() {
        *x = if i % 32 == 0 { 127.0 } else { (random.bits() % 255) as f32 - 127.0 };
    }

    let (scalar, neon) = (Kernels::<f32>::with(Caps::SCALAR), Kernels::<f32>::forced(IsaLevel::Neon)?);
    let mut wrong = 0;
    for &(format, bytes, _) in vectors::ALL.iter().filter(|(format, ..)| HOT.contains(format)) {
        let w = QuantRef::new(bytes, format, ROWS, COLS)?;
        let packed = neon.pack_q(w, packed)?;
        let exact = product(&scalar, Op::Qgemv, (w, packed), (x, activations))?;
        let rows = |row: &&KernelInfo| {
            (row.format, row.level) == (Some(format), IsaLevel::Neon)
                && matches!(row.op, Op::QgemvPacked | Op::QgemvQ8 | Op::Qgemv)
                && row.element == ElementType::F32
        };
        // Of weights in place, every kernel has its own order of sums; with packed ones, all have the same.
        let want = product(&scalar, Op::QgemvPacked, (w, packed), (x, activations))?;
        wrong += check(format.name(), close(&want, &exact));
        let (mut ran, mut refused) = (0, 0);
        for row in kernels().filter(rows) {
            let forced = if row.op == Op::Qgemv { Ok(neon) } else { neon.with_qgemv(row) };
            let k = match forced {
                Ok(k) => k,
                Err(KernelError::FeatureUnavailable { want, have }) => {
                    refused += 1;
                    let right = want == row.requires && !have.contains(want) && have == caps.features();
                    wrong += check(row.name, right);
                    continue;
                }
                Err(e) => return Err(e),
            };
            ran += 1;
            wrong += check(row.name, caps.features().contains(row.requires));
            let y = product(&k, row.op, (w, packed), (x, activations))?;
            let right = if row.op == Op::QgemvPacked { same_bits(&y, &want) } else { close(&y, &exact) };
            wrong += check(row.name, right);
        }
        // Automatically.
        let best = Kernels::<f32>::detect();
        let y = product(&best, Op::QgemvPacked, (w, packed), (x, activations))?;
        wrong += check(format.name(), same_bits(&y, &want));
        let chosen = best.kernel(Op::QgemvPacked, Some(format)).map_or("none", |row| row.name);
        info!("{}: {} kernels right, {} refused, chosen {=str}", format, ran, refused, chosen);
        wrong += check("kernels without dotprod", ran >= 4);
        wrong += check("refusals", (refused > 0) != caps.features().contains(Features::DOTPROD));
    }
    Ok(wrong + refusals(caps))
}

/// What the CPU, or whoever has restricted its capabilities, does not have is refused; how often it was not.
fn refusals(caps: Caps) -> usize {
    let mut wrong = 0;
    // Levels of other architectures.
    for level in [IsaLevel::Avx2, IsaLevel::Avx512] {
        let refused = Kernels::<f32>::forced(level).err();
        wrong += check(
            level.name(),
            refused == Some(KernelError::IsaUnavailable { want: level, have: caps.level() }),
        );
    }
    // Every kernel that needs `sdot`, without it.
    let plain = Kernels::<f32>::with(caps.without(Features::DOTPROD));
    let (mut n, have) = (0, plain.caps().features());
    for row in kernels().filter(|row| row.requires.contains(Features::DOTPROD) && row.format.is_some()) {
        n += 1;
        let refused = plain.with_qgemv(row).err();
        wrong +=
            check(row.name, refused == Some(KernelError::FeatureUnavailable { want: row.requires, have }));
    }
    // Without NEON there is scalar code only.
    let none = caps.without(Features::NEON);
    let want = KernelError::IsaUnavailable { want: IsaLevel::Neon, have: IsaLevel::Scalar };
    wrong += check("neon", none.restricted_to(IsaLevel::Neon).err() == Some(want));
    info!("{} kernels with sdot refused without it", n);
    wrong + check("kernels with sdot", n > 0)
}
