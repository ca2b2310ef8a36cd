//! Packing makes no product slower, whatever the number of rows of activations.

use std::time::{Duration, Instant};

use gllm_kernels_core::{
    Caps, IsaLevel, Kernels, MatMut, MatRef, Precision, QgemmPlan, QuantFormat, QuantRef, QuantWeights,
    Scratch,
};
use gllm_testkit::quant::vectors;

/// Rows of weights.
const ROWS: usize = 96;
/// Turns of a comparison. It ends with the first after which packed weights have been as fast as those in place.
const TURNS: usize = 400;
/// Comparisons of what seems slower, with pauses between them: what else a machine does can last longer than one.
const ROUNDS: usize = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// Numbers of rows of activations, on both sides of those where other kernels take over.
const INTEGER: &[usize] = &[1, 2, 4, 7, 8, 9, 16, 24, 32, 33, 48, 64, 65];
const EXACT: &[usize] = &[1, 2, 3, 4, 8, 9, 16];

/// What a product with some rows of activations needs.
struct Product<'a> {
    plan: QgemmPlan<f32>,
    x: MatRef<'a, f32>,
    y: Vec<f32>,
    scratch: Vec<u8>,
}

impl Product<'_> {
    /// The time of a call.
    fn time(&mut self, w: QuantWeights<'_>) -> Duration {
        let y = MatMut::new(&mut self.y, self.x.rows(), ROWS).expect("a view");
        let start = Instant::now();
        self.plan.run(y, w, self.x, None, Scratch::new(&mut self.scratch)).expect("a product");
        start.elapsed()
    }
}

/// What is slower packed than in place.
fn slower(level: IsaLevel, format: QuantFormat) -> Vec<String> {
    let k = Kernels::<f32>::with(Caps::detect().restricted_to(level).expect("a level of this CPU"));
    // Real blocks; not a multiple of 256 columns, if the format has shorter blocks.
    let cols = 576usize.next_multiple_of(format.block_len());
    let len = cols / format.block_len() * ROWS * format.block_bytes();
    let bytes: Vec<u8> = vectors(format).expect("vectors").blocks.into_iter().cycle().take(len).collect();
    let w = QuantRef::new(&bytes, format, ROWS, cols).expect("weights");
    let mut buf = vec![0; format.packed_size(ROWS, cols).expect("a size")];
    let packed = k.pack_q(w, &mut buf).expect("packed");
    let mut found = Vec::new();
    let integer = INTEGER.iter().map(|&m| (Precision::Integer, m));
    for (precision, m) in integer.chain(EXACT.iter().map(|&m| (Precision::Exact, m))) {
        let x: Vec<f32> = (0..m * cols).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
        let plan = k.qgemm_plan(format, m, ROWS, cols, precision).expect("a plan");
        let mut product = Product {
            plan,
            x: MatRef::new(&x, m, cols).expect("a view"),
            y: vec![0.0; m * ROWS],
            scratch: vec![0; plan.scratch().expect("a size").size_unaligned()],
        };
        // A quarter is for what cannot be told apart on a busy machine, and for processors that thresholds were not measured on. One row
        // of exact activations uses a weight once, which does not make up for unpacking it where all of them are in a cache: SPEC/04 has
        // the times.
        let limit = if precision == Precision::Exact && m == 1 { 7 } else { 5 };
        // The least of all turns: what else the machine does makes calls longer, never shorter.
        let mut least = [Duration::MAX; 2];
        for round in 0..ROUNDS {
            if round > 0 {
                std::thread::sleep(PAUSE);
            }
            for _ in 0..TURNS {
                least[0] = least[0].min(product.time(packed.into()));
                least[1] = least[1].min(product.time(w.into()));
                if least[0] <= least[1] {
                    break;
                }
            }
            if least[0] <= least[1] * limit / 4 {
                break;
            }
        }
        if least[0] > least[1] * limit / 4 {
            found.push(format!("{precision:?} {format} {m}x{ROWS}x{cols}, {level}: {least:?}"));
        }
    }
    found
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "under an emulator times say nothing")]
fn packing_makes_no_product_slower() {
    // Portable kernels are what is compiled of a definition: how fast depends on the compiler's options.
    let has = |level| level != IsaLevel::Scalar && Caps::detect().restricted_to(level).is_ok();
    let levels = IsaLevel::ALL.into_iter().filter(|&level| has(level));
    let mut found = Vec::new();
    for level in levels {
        for &format in QuantFormat::ALL.iter().filter(|format| !format.is_float()) {
            found.extend(slower(level, format));
        }
    }
    assert!(found.is_empty(), "slower with packed weights:\n{}", found.join("\n"));
}

#[test]
fn packed_columns_are_filled_up_to_no_more_than_a_step() {
    for &format in QuantFormat::ALL.iter().filter(|format| !format.is_float()) {
        let size =
            |cols| format.packed_size(16, cols).expect("a size") - format.packed_size(16, 0).expect("a size");
        let unit = size(256);
        for blocks in 1..=2 * 256 / format.block_len() {
            let cols = blocks * format.block_len();
            // As many bytes a column as whole units have, and what heads are filled up with.
            let most = (unit * cols).div_ceil(256) + 63;
            assert!(size(cols) <= most, "{format}: {cols} columns take {} bytes, not {most}", size(cols));
        }
    }
}
