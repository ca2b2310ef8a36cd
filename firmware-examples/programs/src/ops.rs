//! Operators on small vectors and matrices, each against its scalar kernel.

use defmt::info;
use fw_rt::{check, Once};
use gllm_kernels_core::{
    bf16, f16, Attended, Caps, ConvFilter, DeltaGates, Element, Fp8Format, GemmPlan, KernelError, Kernels,
    KvPiece, KvTree, MatMut, MatRef, Precision, QuantFormat, QuantRef, RopeFreqs, RopePairing, RopePositions,
    RopeShape, Scratch,
};

use crate::external::{awq, fp8, gptq, squeezellm, DEEP, SIDE};
use crate::vectors::{Q4_0, Q8_0};
use crate::{room, Random};

/// Vector length, 19 x 59: no multiple of any register, so that every tail runs too.
pub const N: usize = ROWS * COLS;
const ROWS: usize = 19;
const COLS: usize = 59;

/// A matrix product with whole tiles of every microkernel and with tiles at the edges: C is M x 13.
const M: usize = 34;
const K: usize = 29;
/// Results of a product.
pub const SUMS: usize = M * 13;

/// Everything one storage type needs, in static memory.
pub struct Buffers<E> {
    /// What operators read.
    pub x: [E; N],
    y: [E; N],
    /// What they write.
    pub got: [E; N],
    want: [E; N],
}

impl<E: Element> Buffers<E> {
    /// Zeros.
    pub const fn zeroed() -> Self {
        Self { x: [E::ZERO; N], y: [E::ZERO; N], got: [E::ZERO; N], want: [E::ZERO; N] }
    }
    /// Random operands.
    pub fn fill(&mut self) {
        let mut random = Random(1);
        for v in self.x.iter_mut().chain(&mut self.y) {
            *v = E::from_f32(random.number());
        }
    }
}

static F32: Once<Buffers<f32>> = Once::new(Buffers::zeroed());
static F16: Once<Buffers<f16>> = Once::new(Buffers::zeroed());
static BF16: Once<Buffers<bf16>> = Once::new(Buffers::zeroed());

/// Scratch memory of the matrix product: its size is known before anything runs, that of f32 suffices for all.
static SCRATCH: Once<[u8; room(GemmPlan::<f32>::scratch_bound(M, 13, K))]> = Once::new([0; _]);

/// Writes as many elements as it reads.
pub type Map<E> = fn(&Kernels<E>, &[E], &[E], &mut [E]) -> Result<(), KernelError>;
/// Writes f32, no more than that.
pub type Product<E> = fn(&Kernels<E>, &[E], &[E], &mut [f32; SUMS], &mut [u8]) -> Result<(), KernelError>;

/// Runs everything for every storage type; how many operators differ from their scalar kernels.
pub fn run() -> Result<usize, KernelError> {
    let scratch = SCRATCH.take();
    // One unit in the last place, and for f32 the few that the functions may be off.
    Ok(suite(F32.take(), scratch, 2e-6)?
        + suite(F16.take(), scratch, 1e-3)?
        + suite(BF16.take(), scratch, 8e-3)?)
}

/// Whether [`run`] runs the operator of this name.
pub fn runs(name: &str) -> bool {
    find::<f32>(name).is_some()
}

/// A call that [`run`] does: of some kernels, with some buffers.
pub enum Call<E: Element> {
    /// Writes elements.
    Map(Map<E>),
    /// Writes f32.
    Product(Product<E>),
}

impl<E: Element> Call<E> {
    /// Elements that it takes, or multiply-adds.
    pub fn elements(name: &str) -> usize {
        match name {
            "gemm" => M * 13 * K,
            "dequant_fp8" | "dequant_awq" | "dequant_gptq" | "dequant_squeezellm" | "qgemv_awq" => {
                SIDE * SIDE
            }
            "gated_delta_rule" => 3 * 6 * 15,
            "causal_conv1d" => 3 * COLS,
            "qgemv_fp8" => 2 * SIDE * SIDE,
            "qgemv_squeezellm" => 2 * SIDE * DEEP,
            "qgemv_gptq" => 4 * SIDE * SIDE,
            _ => N,
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// Those of the operator.
    pub fn run(&self, k: &Kernels<E>, b: &mut Buffers<E>, scratch: &mut [u8]) -> Result<(), KernelError> {
        match self {
            Self::Map(call) => call(k, &b.x, &b.y, &mut b.got),
            Self::Product(call) => call(k, &b.x, &b.y, &mut [0.0; SUMS], scratch),
        }
    }
}

/// The call of the operator of this name: the first of several.
pub fn find<E: Element>(name: &str) -> Option<Call<E>> {
    let map = maps().into_iter().find(|(n, _)| *n == name).map(|(_, call)| Call::Map(call));
    map.or_else(|| products().into_iter().find(|(n, _)| *n == name).map(|(_, call)| Call::Product(call)))
}

/// Operators whose output has the storage type.
fn maps<E: Element>() -> [(&'static str, Map<E>); 26] {
    [
        ("vec_add", |k, x, y, z| k.vec_add(x, y, z)),
        ("vec_mul", |k, x, y, z| k.vec_mul(x, y, z)),
        ("vec_scale", |k, x, _, z| k.vec_scale(1.5, x, z)),
        ("vec_axpy", |k, x, y, z| {
            k.vec_scale(1.0, y, z)?;
            k.vec_axpy(-0.5, x, z)
        }),
        ("relu", |k, x, _, z| k.relu(x, z)),
        ("exp", |k, x, _, z| k.exp(x, z)),
        ("tanh", |k, x, _, z| k.tanh(x, z)),
        ("silu", |k, x, _, z| k.silu(x, z)),
        ("gelu", |k, x, _, z| k.gelu(x, z)),
        ("gelu_tanh", |k, x, _, z| k.gelu_tanh(x, z)),
        ("swiglu", |k, x, y, z| k.swiglu(x, y, z)),
        ("geglu", |k, x, y, z| k.geglu(x, y, z)),
        ("softmax", |k, x, _, z| k.softmax(x, z)),
        ("rms_norm", |k, x, y, z| k.rms_norm(x, Some(y), 1e-5, z)),
        ("layer_norm", |k, x, y, z| k.layer_norm(x, Some(y), None, 1e-5, z)),
        ("rope", |k, x, _, z| {
            // 19 tokens of one head; its last element is not rotated.
            let shape =
                RopeShape { heads: 1, head_dim: COLS, rot_dim: COLS - 1, pairing: RopePairing::HalfSplit };
            let freqs = RopeFreqs { rot_dim: COLS - 1, ..RopeFreqs::default() };
            let (mut cos, mut sin) = ([0.0; ROWS * (COLS / 2)], [0.0; ROWS * (COLS / 2)]);
            freqs.table(RopePositions::From(100), &mut cos, &mut sin)?;
            k.rope(shape, &cos, &sin, x, z)
        }),
        ("dequant", |k, _, _, z| {
            let (row, rest) = z.split_at_mut(512);
            k.dequant(QuantRef::new(Q8_0, QuantFormat::Q8_0, 1, 512)?, row)?;
            k.dequant(QuantRef::new(Q4_0, QuantFormat::Q4_0, 1, 480)?, &mut rest[..480])
        }),
        ("dequant_fp8", |k, _, _, z| k.dequant_fp8(fp8(Fp8Format::E4m3)?, square(z)?)),
        ("dequant_fp8", |k, _, _, z| k.dequant_fp8(fp8(Fp8Format::E5m2)?, square(z)?)),
        ("dequant_awq", |k, _, _, z| k.dequant_awq(awq()?, square(z)?)),
        ("dequant_gptq", |k, _, _, z| k.dequant_gptq(gptq(4)?, square(z)?)),
        ("dequant_gptq", |k, _, _, z| k.dequant_gptq(gptq(2)?, square(z)?)),
        ("dequant_gptq", |k, _, _, z| k.dequant_gptq(gptq(3)?, square(z)?)),
        ("dequant_gptq", |k, _, _, z| k.dequant_gptq(gptq(8)?, square(z)?)),
        ("dequant_squeezellm", |k, _, _, z| k.dequant_squeezellm(squeezellm(4, SIDE)?, square(z)?)),
        ("dequant_squeezellm", |k, _, _, z| k.dequant_squeezellm(squeezellm(3, SIDE)?, square(z)?)),
    ]
}

/// Operators whose output is f32.
fn products<E: Element>() -> [(&'static str, Product<E>); 14] {
    [
        ("vec_dot", |k, x, y, z, _| k.vec_dot(x, y).map(|v| z[0] = v)),
        ("vec_sum", |k, x, _, z, _| k.vec_sum(x).map(|v| z[0] = v)),
        ("vec_max", |k, x, _, z, _| k.vec_max(x).map(|v| z[0] = v)),
        ("gemv", |k, x, y, z, _| k.gemv(1.0, MatRef::new(x, ROWS, COLS)?, &y[..COLS], 0.0, &mut z[..ROWS])),
        ("gemm", |k, x, y, z, scratch| {
            let (a, b) = (MatRef::new(x, M, K)?, MatRef::new(y, K, 13)?);
            k.gemm_plan(M, 13, K)?.run(MatMut::new(z, M, 13)?, a, b, None, Scratch::new(scratch))
        }),
        ("qgemv", |k, x, _, z, _| {
            let x = MatRef::new(&x[..512], 1, 512)?;
            for ((format, w), y) in
                [(QuantFormat::Q8_0, Q8_0), (QuantFormat::Q4_0, Q4_0)].into_iter().zip(z.chunks_mut(8))
            {
                let (plan, y) = (k.qgemm_plan(format, 1, 8, 512, Precision::Exact)?, MatMut::new(y, 1, 8)?);
                plan.run(y, QuantRef::new(w, format, 8, 512)?, x, None, Scratch::empty())?;
            }
            Ok(())
        }),
        ("attend", |k, x, _, z, scratch| {
            // Two blocks of 16 positions, four queries of 16.
            let (blocks, queries, mut sums) = ([&x[..512], &x[512..1024]], [0.25; 64], [[0.0; 2]; 4]);
            let mut all = Attended { sums: &mut sums, values: &mut z[..64] };
            all.clear();
            let piece = KvPiece {
                blocks: &blocks,
                first: 0,
                spans: &[[0, 32], [0, 31], [3, 32], [16, 17]],
                softcap: None,
                alibi: &[],
                tree: None,
                next: &[],
            };
            k.attend(16, &queries, piece, all, Scratch::new(scratch))
        }),
        ("attend_q8_0", |k, x, y, z, scratch| {
            // A block of 16 positions, written here; four queries of 16.
            let mut kept = [[0f32; 256]; 2];
            for (kept, of) in kept.iter_mut().flatten().zip(x[..256].iter().chain(&y[..256])) {
                *kept = of.to_f32();
            }
            let (queries, mut sums, mut block) = ([0.25; 64], [[0.0; 2]; 4], [0; 576]);
            let [keys, values] = &kept;
            k.kv_append_q8_0(0, MatRef::new(keys, 16, 16)?, MatRef::new(values, 16, 16)?, &mut block)?;
            let mut all = Attended { sums: &mut sums, values: &mut z[..64] };
            all.clear();
            // Drafts in places 12 to 15, of which the last query sees two.
            let (blocks, spans) = ([&block[..]], [[0, 16], [0, 15], [3, 14], [3, 14]]);
            let tree = Some(KvTree { first: 12, paths: &[0xf, 0x7, 0x3, 0x9] });
            let (alibi, next) = (&[][..], &[][..]);
            let piece =
                KvPiece { blocks: &blocks, first: 0, spans: &spans, softcap: None, alibi, tree, next };
            k.attend_q8_0(16, &queries, piece, all, Scratch::new(scratch))
        }),
        ("gated_delta_rule", |k, x, y, z, _| {
            // Three tokens with keys of 15 and values of 6, in f32.
            let (x, y, (state, outputs)) = (widened::<_, 108>(x), widened::<_, 90>(y), z.split_at_mut(90));
            state.copy_from_slice(&y);
            let (q, keys, v) =
                (MatRef::new(&x, 3, 15)?, MatRef::new(&x[45..], 3, 15)?, MatRef::new(&x[90..], 3, 6)?);
            let gates = DeltaGates { decay: &[0.9, 0.5, 0.8], beta: &[0.25, 0.5, 0.125], corrected: true };
            let (state, y) = (MatMut::new(state, 6, 15)?, MatMut::new(outputs, 3, 6)?);
            Kernels::<f32>::with(k.caps()).gated_delta_rule(state, q, keys, v, gates, y)
        }),
        ("causal_conv1d", |k, x, y, z, _| {
            // Three tokens of 59 channels, in f32.
            let (x, mut y, w) = (widened::<_, 177>(x), widened::<_, 177>(y), widened::<_, 236>(x));
            let (x, w) = (MatRef::new(&x, 3, COLS)?, MatRef::new(&w, 4, COLS)?);
            let (state, y) = (MatMut::new(&mut y, 3, COLS)?, MatMut::new(z, 3, COLS)?);
            Kernels::<f32>::with(k.caps()).causal_conv1d(
                state,
                x,
                ConvFilter { w, bias: None, silu: true },
                y,
            )
        }),
        ("qgemv_fp8", |k, x, _, z, _| {
            let (a, b) = z.split_at_mut(SIDE);
            k.qgemv_fp8(fp8(Fp8Format::E4m3)?, &x[..SIDE], a)?;
            k.qgemv_fp8(fp8(Fp8Format::E5m2)?, &x[..SIDE], &mut b[..SIDE])
        }),
        ("qgemv_awq", |k, x, _, z, _| k.qgemv_awq(awq()?, &x[..SIDE], &mut z[..SIDE])),
        ("qgemv_gptq", |k, x, _, z, _| {
            let each = z.chunks_exact_mut(SIDE).zip([2, 3, 4, 8]);
            each.into_iter().try_for_each(|(z, bits)| k.qgemv_gptq(gptq(bits)?, &x[..SIDE], z))
        }),
        ("qgemv_squeezellm", |k, x, _, z, _| {
            let each = z.chunks_exact_mut(SIDE).zip([3, 4]);
            each.into_iter()
                .try_for_each(|(z, bits)| k.qgemv_squeezellm(squeezellm(bits, DEEP)?, &x[..DEEP], z))
        }),
    ]
}

/// The first numbers in f32.
fn widened<E: Element, const LEN: usize>(x: &[E]) -> [f32; LEN] {
    let mut wide = [0.0; LEN];
    wide.iter_mut().zip(x).for_each(|(wide, x)| *wide = x.to_f32());
    wide
}

/// As many elements as matrices of other checkpoints have here.
fn square<E: Element>(z: &mut [E]) -> Result<MatMut<'_, E>, KernelError> {
    MatMut::new(&mut z[..SIDE * SIDE], SIDE, SIDE)
}

fn suite<E: Element>(b: &mut Buffers<E>, scratch: &mut [u8], tolerance: f32) -> Result<usize, KernelError> {
    let (best, scalar) = (fw_rt::kernels::<E>(), Kernels::<E>::with(Caps::SCALAR));
    b.fill();
    info!("{} on {}, gemm by {=str}", E::TYPE, best.level(), best.gemm_plan(M, 13, K)?.kernel_name());

    let mut wrong = 0;
    for (name, op) in maps() {
        b.got.fill(E::ZERO);
        b.want.fill(E::ZERO);
        op(&best, &b.x, &b.y, &mut b.got)?;
        op(&scalar, &b.x, &b.y, &mut b.want)?;
        let some = b.want.iter().any(|w| *w != E::ZERO);
        let same = b.got.iter().zip(&b.want).all(|(g, w)| close(g.to_f32(), w.to_f32(), tolerance));
        wrong += check(name, some && same);
    }
    for (name, op) in products() {
        let (mut got, mut want) = ([0.0; SUMS], [0.0; SUMS]);
        op(&best, &b.x, &b.y, &mut got, scratch)?;
        op(&scalar, &b.x, &b.y, &mut want, scratch)?;
        let some = want.iter().any(|&w| w != 0.0);
        // Sums of up to N terms below 1 in another order.
        wrong += check(name, some && got.iter().zip(&want).all(|(&g, &w)| close(g, w, 1e-4)));
    }
    Ok(wrong)
}

/// Whether `a` and `b` differ by at most `tolerance` of the larger of `|b|` and 1.
fn close(a: f32, b: f32, tolerance: f32) -> bool {
    (a - b).abs() <= tolerance * b.abs().max(1.0)
}
