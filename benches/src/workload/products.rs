//! Matrix products and the packing of their right-hand sides.

use gllm_kernels_core::{
    Activation, Element, ElementType, GemmPlan, KernelError, MatMut, MatRef, Op, Operand as Storage, Right,
    Scratch,
};
use gllm_kernels_std::AlignedVec;

use super::produce::{Number, Operand, Produce, Want, Workload};
use super::{each_element, each_operand, Case, Context, Cost, Engine, Entry, Sizes};
use crate::arena::bytes;
use crate::limits::memory::Traffic;

/// Rows of A before they repeat: C repeats with them.
const PERIOD: usize = 3;

/// Rows of a transposed B before they repeat.
const COLS: usize = 61;

/// The forms of a product.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Plain,
    Bias,
    /// With SiLU, the activation of most models.
    Fused,
    Transposed,
    Prepacked,
}

impl Form {
    fn op(self) -> Op {
        match self {
            Self::Plain => Op::Gemm,
            Self::Bias => Op::GemmBias,
            Self::Fused => Op::GemmFused,
            Self::Transposed => Op::GemmBt,
            Self::Prepacked => Op::GemmPrepacked,
        }
    }
}

/// A storage type of products.
trait Factor: Storage<Sum: Number> + Number {
    /// Error of a sum of `k` products, relative to their magnitudes.
    fn bound(k: usize) -> f64 {
        if Self::Sum::ROUNDING == 0.0 {
            0.0
        } else {
            super::matrices::dot_bound(k)
        }
    }
}
impl<E: Storage<Sum: Number> + Number> Factor for E {}

/// What makes of a plan what the form is about.
type Finish<E> = fn(GemmPlan<E>) -> GemmPlan<E>;

/// `C = A B`, in one of the forms: the bias is one row, the transposed `B` is `n x k`.
fn product<'a, E: Factor>(c: Context<'a>, form: Form) -> Box<dyn Workload + 'a> {
    finished::<E>(c, form, |plan| plan)
}

fn finished<'a, E: Factor>(mut c: Context<'a>, form: Form, finish: Finish<E>) -> Box<dyn Workload + 'a> {
    let super::Shape { m, n, k } = c.case.shape;
    let engine = Engine::<E>::new(&c);
    let random = |data, period, seed| Operand::random(data, period, seed, -1.0, 1.0);
    let a = random(c.carver.take::<E>(m * k), PERIOD * k, 1);
    let distinct = if form == Form::Transposed { COLS.min(n) } else { n };
    let b = random(c.carver.take::<E>(k * n), k * distinct, 2);
    let bias: Vec<E::Sum> = random_bias(n).into_iter().map(Number::narrow).collect();
    let bias_exact: Vec<f64> = bias
        .iter()
        .map(|&b| if form == Form::Bias || form == Form::Fused { b.wide() } else { 0.0 })
        .collect();
    // One row or column is a GEMV and few rows have a kernel of their own, except with packed weights and of int8.
    let op = match m {
        _ if form == Form::Prepacked || E::TYPE == ElementType::I8 => form.op(),
        1 => Op::Gemv,
        2..=32 => Op::GemmSkinny,
        _ if n == 1 => Op::Gemv,
        _ => form.op(),
    };
    let kernel = engine.kernels().kernel(op, None).map(|row| row.name);
    let mut run =
        Runner { engine, form, finish, bias, packed: AlignedVec::zeroed(0), scratch: AlignedVec::zeroed(0) };
    Box::new(Produce {
        weights: &[],
        inputs: vec![a, b],
        output: Operand { data: c.carver.take::<E::Sum>(m * n), pattern: Vec::new() },
        call: Box::new(move |x, y| run.call((m, n, k), x[0].data, x[1].data, y)),
        exact: Box::new(move |x| {
            let (a, b) = (&x[0], &x[1]);
            let mut out = Vec::with_capacity(a.len() / k * n);
            for row in a.chunks(k) {
                let start = out.len();
                for j in 0..distinct {
                    let mut want = Want { value: bias_exact[j], scale: bias_exact[j].abs() };
                    for (i, a) in row.iter().enumerate() {
                        let term = a * if form == Form::Transposed { b[j * k + i] } else { b[i * n + j] };
                        want.value += term;
                        want.scale += term.abs();
                    }
                    if form == Form::Fused {
                        // A little steeper than 1 at most, which the bound has room for.
                        want.value /= 1.0 + (-want.value).exp();
                    }
                    out.push(want);
                }
                for j in distinct..n {
                    out.push(out[start + j % distinct]);
                }
            }
            out
        }),
        bound: E::bound(k),
        kernel,
    })
}

fn random_bias(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect()
}

/// A product and its memory. Scratch and packed weights are made in the first call, which is the one
/// that verifies.
struct Runner<'a, E: Factor> {
    engine: Engine<'a, E>,
    form: Form,
    finish: Finish<E>,
    bias: Vec<E::Sum>,
    packed: AlignedVec<u8>,
    scratch: AlignedVec<u8>,
}

impl<E: Factor> Runner<'_, E> {
    fn call(
        &mut self,
        (m, n, k): (usize, usize, usize),
        a: &[E],
        b: &[E],
        c: &mut [E::Sum],
    ) -> Result<(), KernelError> {
        let a = MatRef::new(a, m, k)?;
        let c = MatMut::new(c, m, n)?;
        let b = if self.form == Form::Transposed { MatRef::new(b, n, k)? } else { MatRef::new(b, k, n)? };
        let kernels = self.engine.kernels();
        if self.form == Form::Prepacked && self.packed.is_empty() {
            self.packed = AlignedVec::zeroed(kernels.packed_b_size(k, n)?);
            kernels.pack_b(b, &mut self.packed)?;
        }
        let plan = (self.finish)(kernels.gemm_plan(m, n, k)?);
        let right = match self.form {
            Form::Transposed => Right::Transposed(b),
            Form::Prepacked => Right::Packed(kernels.packed_b(&self.packed, k, n)?),
            Form::Plain | Form::Bias | Form::Fused => Right::RowMajor(b),
        };
        let bias = matches!(self.form, Form::Bias | Form::Fused).then_some(&self.bias[..]);
        match &self.engine {
            Engine::One(_) => {
                let prepacked = self.form == Form::Prepacked;
                let need = if prepacked { plan.scratch_packed()? } else { plan.scratch()? };
                if self.scratch.len() < need.size_unaligned() {
                    self.scratch = AlignedVec::zeroed(need.size_unaligned());
                }
                plan.run(c, a, right, bias, Scratch::new(&mut self.scratch))
            }
            Engine::Many(p) => p.gemm(&plan, c, a, right, bias),
        }
    }
}

/// Packing moves numbers to where a product finds them; so a product verifies it. `M` does not matter.
struct Packing<'a, E: Factor> {
    engine: Engine<'a, E>,
    b: &'a mut [E],
    packed: &'a mut [u8],
    k: usize,
    n: usize,
}

fn pack_b<'a, E: Factor>(mut c: Context<'a>) -> Box<dyn Workload + 'a> {
    let super::Shape { n, k, .. } = c.case.shape;
    let engine = Engine::<E>::new(&c);
    let b = Operand::random(c.carver.take::<E>(k * n), super::produce::PERIOD, 1, -1.0, 1.0);
    // A size that is refused here is refused by the call, too.
    let packed = c.carver.take(engine.kernels().packed_b_size(k, n).unwrap_or(0));
    let packing = Packing { engine, b: b.data, packed, k, n };
    for part in packing.b.chunks_mut(b.pattern.len()) {
        part.copy_from_slice(&b.pattern[..part.len()]);
    }
    Box::new(packing)
}

impl<E: Factor> Packing<'_, E> {
    /// One row times the packed matrix.
    fn row_product(&self, a: &[E]) -> Result<Vec<E::Sum>, KernelError> {
        let kernels = self.engine.kernels();
        let plan = kernels.gemm_plan(1, self.n, self.k)?;
        let mut scratch = vec![0; plan.scratch_packed()?.size_unaligned()];
        let mut y = vec![E::Sum::default(); self.n];
        let b = kernels.packed_b(self.packed, self.k, self.n)?;
        let (a, c) = (MatRef::new(a, 1, self.k)?, MatMut::new(&mut y, 1, self.n)?);
        plan.run(c, a, b, None, Scratch::new(&mut scratch))?;
        Ok(y)
    }
}

impl<E: Factor> Workload for Packing<'_, E> {
    fn set_up(&mut self) {}

    fn call(&mut self) -> Result<(), KernelError> {
        let b = MatRef::new(&*self.b, self.k, self.n)?;
        super::call!(&self.engine, pack_b(b, self.packed)).map(|_| ())
    }

    fn verify(&mut self) -> Result<f64, String> {
        self.call().map_err(|e| e.to_string())?;
        let a: Vec<E> = (0..self.k).map(|i| E::narrow((i * 37 % 101) as f32 / 50.0 - 1.0)).collect();
        let y = self.row_product(&a).map_err(|e| e.to_string())?;
        let mut want = vec![Want { value: 0.0, scale: 0.0 }; self.n];
        for (a, row) in a.iter().zip(self.b.chunks(self.n)) {
            for (want, b) in want.iter_mut().zip(row) {
                let term = a.wide() * b.wide();
                want.value += term;
                want.scale += term.abs();
            }
        }
        let errors = y.iter().zip(&want).map(|(y, w)| (y.wide() - w.value).abs() / w.scale.max(f32::TINY));
        // A NaN passes no comparison, so it must win the maximum.
        let worst = errors.fold(0.0, |worst: f64, e| if e <= worst { worst } else { e });
        if worst <= E::bound(self.k) {
            Ok(worst)
        } else {
            Err(format!("a product with the packed matrix is off by {worst:.2e}"))
        }
    }

    fn changes_input(&self) -> bool {
        false
    }

    fn inputs(&self) -> Vec<&[u8]> {
        vec![bytes(self.b)]
    }

    fn output(&self) -> &[u8] {
        self.packed
    }
}

fn gemm<'a, E: Factor>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    product::<E>(c, Form::Plain)
}
fn gemm_bias<'a, E: Factor>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    product::<E>(c, Form::Bias)
}
fn gemm_fused<'a, E: Element + Factor>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    finished::<E>(c, Form::Fused, |plan| plan.activation(Activation::Silu))
}
fn gemm_bt<'a, E: Factor>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    product::<E>(c, Form::Transposed)
}
/// Of few rows, with weights as they are stored.
fn gemm_skinny<'a, E: Factor>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    product::<E>(c, Form::Transposed)
}
fn gemm_prepacked<'a, E: Factor>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    product::<E>(c, Form::Prepacked)
}

fn product_cost(case: &Case) -> Cost {
    let (m, n, k) = (case.shape.m as f64, case.shape.n as f64, case.shape.k as f64);
    let bytes = (m * k + k * n) * case.size() + 4.0 * m * n;
    Cost { flops: 2.0 * m * n * k, moved: bytes, working_set: bytes, traffic: Traffic::Read }
}

/// Reads `B`, writes its panels: of the same size, or of f32.
fn pack_cost(case: &Case) -> Cost {
    let (n, k) = (case.shape.n as f64, case.shape.k as f64);
    let bytes = n * k * 2.0 * case.size();
    // The last panel is filled up.
    let room = n * k * (case.size() + 4.0) + 64.0 * 4.0 * (k + 64.0);
    Cost { flops: 0.0, moved: bytes, working_set: room, traffic: Traffic::Copy }
}

macro_rules! entries {
    ($($name:ident $op:ident $cost:ident $types:ident $halves:literal;)*) => {
        pub(super) static ENTRIES: &[Entry] = &[$(Entry {
            name: stringify!($name),
            op: Op::$op,
            sizes: Sizes::Product,
            quantised: false,
            cost: $cost,
            build: $types!($name),
            halves: $halves,
        }),*];
    };
}

entries! {
    gemm Gemm product_cost each_operand true;
    gemm_bias GemmBias product_cost each_operand false;
    gemm_fused GemmFused product_cost each_element false;
    gemm_bt GemmBt product_cost each_operand false;
    gemm_skinny GemmSkinny product_cost each_element true;
    gemm_prepacked GemmPrepacked product_cost each_operand false;
    pack_b PackB pack_cost each_operand false;
}
