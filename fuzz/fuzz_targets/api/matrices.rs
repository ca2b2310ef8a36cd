//! Dense matrix products.

use gllm_kernels_core::{
    kernels, Activation, Element, GemmPlan, KernelError, KernelInfo, Kernels, MatMut, MatRef, Op, Operand,
    PackedB, Right, Scratch,
};
use gllm_testkit::Guarded;

use crate::{Agree, Call, Length};

/// Runs `op` if it is one of these.
pub fn run<E: Element>(call: &Call, op: Op) -> bool {
    match op {
        Op::Gemv => gemv::<E>(call),
        Op::Gemm
        | Op::GemmBias
        | Op::GemmBt
        | Op::GemmFused
        | Op::GemmSkinny
        | Op::PackB
        | Op::GemmPrepacked => gemm::<E>(call, op),
        _ => return false,
    }
    true
}

/// Elements of a view that fits memory, or `None`.
fn extent(rows: usize, cols: usize, rs: usize, cs: usize) -> Option<usize> {
    if rows == 0 || cols == 0 {
        return Some(0);
    }
    let last = (rows - 1).checked_mul(rs)?.checked_add((cols - 1).checked_mul(cs)?)?;
    (last < 1 << 20).then(|| last + 1)
}

/// The data of a `rows x cols` matrix, made by `vector`, and its strides: contiguous either way, or any.
fn matrix<T: Copy>(
    call: &Call,
    salt: u64,
    rows: usize,
    cols: usize,
    vector: fn(&Call, u64, usize) -> Guarded<T>,
) -> (Guarded<T>, [usize; 2]) {
    let any = [call.sizes[2].get(), call.sizes[3].get()];
    let strides = match call.options >> (2 * salt) & 3 {
        0 => [cols, 1],
        1 => [1, rows],
        2 => [cols.saturating_add(any[0] % 9), 1],
        _ => any,
    };
    let right = extent(rows, cols, strides[0], strides[1]).unwrap_or(100);
    let n = if call.long % 8 == 0 { call.lengths[3].of(right) } else { right };
    (vector(call, salt, n), strides)
}

fn gemv<E: Element>(call: &Call) {
    let (rows, cols) = (usize::from(call.dims[0]), usize::from(call.dims[1]));
    let (data, [rs, cs]) = matrix(call, 0, rows, cols, Call::vector::<E>);
    let Ok(a) = MatRef::with_strides(&data, rows, cols, rs, cs) else { return };
    let x = call.vector::<E>(1, call.lengths[0].of(cols));
    let y = call.vector::<f32>(2, call.lengths[1].of(rows));
    let [alpha, beta] = call.numbers.map(|n| n.get());
    let tame = call.numbers.iter().all(|n| n.is_tame());
    // Whole numbers times sixteenths are exact, too.
    let agree = if tame { call.sums(cols + 1) } else { Agree::No };
    // With beta 0 the output is not read.
    let before = (beta != 0.0).then_some(&y[..]);
    call.twice::<E, f32>(y.len(), before, agree, |k, y| k.gemv(alpha, a, &x, beta, y));
}

/// A product: its shape, that of its plan, and that of `B` as it is stored.
struct Shape {
    m: usize,
    n: usize,
    k: usize,
    planned: [usize; 3],
    b: [usize; 2],
}

impl Shape {
    fn new(call: &Call, op: Op) -> Self {
        let [m, n, k] = [0, 1, 2].map(|i| usize::from(call.dims[i] % 96));
        let m = if op == Op::GemmSkinny { 2 + m % 31 } else { m };
        // Now and then a plan of another shape, which must be refused (or overflow); not where packed bytes are spoiled, which
        // are not multiplied then.
        let planned = if call.option(6) && !call.option(7) {
            [0, 1, 2].map(|i| call.sizes[i].get())
        } else {
            [m, n, k]
        };
        let b = if op == Op::GemmBt { [n, k] } else { [k, n] };
        Self { m, n, k, planned, b }
    }

    fn plan<E: Operand>(&self, kernels: &Kernels<E>) -> Result<GemmPlan<E>, KernelError> {
        let [m, n, k] = self.planned;
        kernels.gemm_plan(m, n, k).map_err(blur)
    }
}

fn gemm<E: Element>(call: &Call, op: Op) {
    let shape = Shape::new(call, op);
    let Shape { m, n, k, b, .. } = shape;
    let (a_data, [ars, acs]) = matrix(call, 0, m, k, Call::vector::<E>);
    let (b_data, [brs, bcs]) = matrix(call, 1, b[0], b[1], Call::vector::<E>);
    let (c_data, [crs, ccs]) = matrix(call, 2, m, n, Call::vector::<f32>);
    let bias = call.vector::<f32>(3, call.lengths[0].of(n));
    let (Ok(a), Ok(b)) =
        (MatRef::with_strides(&a_data, m, k, ars, acs), MatRef::with_strides(&b_data, b[0], b[1], brs, bcs))
    else {
        return;
    };
    let [alpha, beta] = call.numbers.map(|n| n.get());
    let tame = call.numbers.iter().all(|n| n.is_tame());
    let agree = match call.sums(k + 2) {
        _ if !tame => Agree::No,
        // Two activations of the same number, or of neighbours.
        Agree::Exactly if op == Op::GemmFused => Agree::Within(8),
        Agree::About(e) if op == Op::GemmFused => Agree::About(2.0 * e),
        agree => agree,
    };
    let activation = Activation::ALL[usize::from(call.dims[3]) % Activation::ALL.len()];
    // Gaps between rows of C keep what they hold, so what is there is the output before the call.
    call.twice::<E, f32>(0, Some(&c_data), agree, |kernels, c| {
        let c = MatMut::with_strides(c, m, n, crs, ccs)?;
        let plan = shape.plan(kernels)?.alpha(alpha).beta(beta);
        let plan = if op == Op::GemmFused { plan.activation(activation) } else { plan };
        product(call, op, kernels, plan, c, (a, b), &bias)
    });
}

/// A product of int8, by any microkernel of the level: exact, also where sums wrap.
pub fn int8(call: &Call) {
    const FORMS: [Op; 4] = [Op::Gemm, Op::GemmBias, Op::GemmBt, Op::GemmPrepacked];
    let op = FORMS[usize::from(call.op) % FORMS.len()];
    let shape = Shape::new(call, op);
    let Shape { m, n, k, b, .. } = shape;
    let (a_data, [ars, acs]) = matrix(call, 0, m, k, Call::integers::<i8>);
    let (b_data, [brs, bcs]) = matrix(call, 1, b[0], b[1], Call::integers::<i8>);
    let (c_data, [crs, ccs]) = matrix(call, 2, m, n, Call::integers::<i32>);
    let bias = call.integers::<i32>(3, call.lengths[0].of(n));
    let (Ok(a), Ok(b)) =
        (MatRef::with_strides(&a_data, m, k, ars, acs), MatRef::with_strides(&b_data, b[0], b[1], brs, bcs))
    else {
        return;
    };
    let [own, scalar] = call.kernels::<i8>();
    let of_row = |row: &KernelInfo| if row.op == op { own.with_gemm(row).ok() } else { None };
    let choice: Vec<_> = kernels().filter_map(of_row).collect();
    let own = choice[usize::from(call.dims[3]) % choice.len()];
    let equal = |x, y| x == y;
    call.compare([own, scalar], 0, Some(&c_data), equal, equal, |kernels, c| {
        let c = MatMut::with_strides(c, m, n, crs, ccs)?;
        let plan = shape.plan(kernels)?;
        let plan = if call.in_place { plan.accumulate() } else { plan };
        product(call, op, kernels, plan, c, (a, b), &bias)
    });
}

/// Runs a plan by the form of `op`.
fn product<E: Operand>(
    call: &Call,
    op: Op,
    kernels: &Kernels<E>,
    plan: GemmPlan<E>,
    c: MatMut<'_, E::Sum>,
    (a, b): (MatRef<'_, E>, MatRef<'_, E>),
    bias: &[E::Sum],
) -> Result<(), KernelError> {
    let packs = matches!(op, Op::GemmPrepacked | Op::PackB);
    let need = if packs { plan.scratch_packed() } else { plan.scratch() };
    // A plan for something absurd needs an absurd amount.
    let bytes = need.map_err(blur)?.size_unaligned().min(1 << 18);
    let bytes = if matches!(call.lengths[1], Length::Off(_)) { 0 } else { bytes };
    let mut memory = Guarded::<u8>::poisoned(bytes, call.edge());
    let scratch = Scratch::new(&mut memory);
    let result = match op {
        Op::Gemm | Op::GemmSkinny => plan.run(c, a, b, None, scratch),
        Op::GemmBias | Op::GemmFused => plan.run(c, a, b, Some(bias), scratch),
        Op::GemmBt => plan.run(c, a, Right::Transposed(b), None, scratch),
        _ => prepacked(call, kernels, b, |packed| plan.run(c, a, packed, None, scratch)),
    };
    result.map_err(blur)
}

/// Which sizes overflow, how much memory a plan needs, and what a header says depend on the tile.
fn blur(e: KernelError) -> KernelError {
    match e {
        KernelError::ShortSlice { .. } | KernelError::WrongLength { .. } | KernelError::Overlap { .. } => e,
        _ => KernelError::UnknownFormat(0),
    }
}

/// Packs `b`, spoils the packed bytes now and then, opens them again and uses them.
fn prepacked<E: Operand>(
    call: &Call,
    kernels: &Kernels<E>,
    b: MatRef<'_, E>,
    f: impl FnOnce(PackedB<'_>) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let size = kernels.packed_b_size(b.rows(), b.cols())?;
    let mut memory = Guarded::<u8>::poisoned(size, call.edge());
    kernels.pack_b(b, &mut memory)?;
    if call.option(7) {
        let at = call.sizes[3].get() % size;
        memory[at] ^= 1 << (call.dims[3] % 8);
        // Spoiled numbers are still numbers, a spoiled header is refused: which one it is depends on
        // the tile.
        let _ = kernels.packed_b(&memory, b.rows(), b.cols());
        return Ok(());
    }
    f(kernels.packed_b(&memory, b.rows(), b.cols())?)
}
