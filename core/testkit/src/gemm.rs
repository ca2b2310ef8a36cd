//! Matrix products: plain, with bias, with `B` transposed, with `B` packed beforehand.

use gllm_kernels_core::{
    bf16, f16, Activation, CacheSizes, Element, ElementType, GemmPlan, KernelError, KernelInfo, Kernels, Op,
    Operand, PackedB, Right, Scratch,
};

use crate::data::Source;
use crate::elementwise::activation;
use crate::matrix::{Layout, Matrix};
use crate::numeric::{gamma, sum as exact_sum, ulp, Number};
use crate::report::{Outcome, Report};
use crate::{call, caps, effort, Edge, Guarded};

/// One product: everything but the data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Layout,
    pub(crate) b: Layout,
    pub(crate) c: Layout,
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
    pub(crate) whole: bool,
    pub(crate) edge: Edge,
}

impl Case {
    /// What `gemm_fused` ends with: each in turn.
    fn activation(&self) -> Activation {
        Activation::ALL[(self.m + self.n / 2 + self.k) % Activation::ALL.len()]
    }

    /// The same in f64, and its error in ulp.
    fn function(&self, op: Op) -> (fn(f64) -> f64, f64) {
        let op = match (op, self.activation()) {
            (Op::GemmFused, Activation::Gelu) => Op::Gelu,
            (Op::GemmFused, Activation::GeluTanh) => Op::GeluTanh,
            (Op::GemmFused, Activation::Silu) => Op::Silu,
            // A NaN gives 0.
            (Op::GemmFused, Activation::Relu) => return (|x| x.max(0.0), 0.0),
            _ => return (|x| x, 0.0),
        };
        activation::<f32>(op).map_or((|x| x, 0.0), |a| (a.exact, a.ulps))
    }
}

/// What is multiplied.
pub trait Sample: Operand<Sum: Number> + Number {
    /// Factors of the cases, in turn.
    const FACTORS: &'static [(f32, f32)];
    /// Whether every sum is exact.
    const EXACT: bool;
    /// A plan with a case's factors.
    ///
    /// # Errors
    /// The plan's.
    fn plan(k: &Kernels<Self>, m: usize, n: usize, depth: usize, factors: (f32, f32)) -> Plan<Self>;
    /// The plan with an activation, where there are any.
    fn with_activation(plan: GemmPlan<Self>, activation: Activation) -> GemmPlan<Self>;
    /// A number; `whole`: one whose products and sums are exact.
    fn draw(source: &mut Source, whole: bool) -> Self;
    /// The same for `C` and the bias.
    fn draw_sum(source: &mut Source, whole: bool) -> Self::Sum;
    /// Any finite number there is.
    fn any(source: &mut Source) -> Self;
    /// Products of numbers that are special.
    ///
    /// # Errors
    /// What is wrong.
    fn specials(op: Op, k: &Kernels<Self>, report: &mut Report) -> Result<(), String>;
}

type Plan<E> = Result<GemmPlan<E>, KernelError>;

macro_rules! floats {
    ($($t:ty)*) => {$(
        impl Sample for $t {
            const FACTORS: &'static [(f32, f32)] =
                &[(1.0, 0.0), (-1.5, 1.0), (1.0, -0.5), (1.0, 1.0), (0.0, -0.5), (0.0, 0.0)];
            const EXACT: bool = false;
            fn plan(k: &Kernels<Self>, m: usize, n: usize, depth: usize, (alpha, beta): (f32, f32)) -> Plan<Self> {
                Ok(k.gemm_plan(m, n, depth)?.alpha(alpha).beta(beta))
            }
            fn with_activation(plan: GemmPlan<Self>, activation: Activation) -> GemmPlan<Self> {
                plan.activation(activation)
            }
            fn draw(source: &mut Source, whole: bool) -> Self {
                if whole { source.whole(1, 3)[0] } else { source.normals(1)[0] }
            }
            fn draw_sum(source: &mut Source, whole: bool) -> f32 {
                Sample::draw(source, whole)
            }
            fn any(source: &mut Source) -> Self {
                source.wide(1)[0]
            }
            fn specials(op: Op, k: &Kernels<Self>, report: &mut Report) -> Result<(), String> {
                // More rows than skinny products have, which have kernels of their own.
                specials(op, 59, k, report)
            }
        }
    )*};
}
floats! { f32 f16 bf16 }

impl Sample for i8 {
    const FACTORS: &'static [(f32, f32)] = &[(1.0, 0.0), (1.0, 1.0)];
    const EXACT: bool = true;
    fn plan(k: &Kernels<Self>, m: usize, n: usize, depth: usize, (_, beta): (f32, f32)) -> Plan<Self> {
        let plan = k.gemm_plan(m, n, depth)?;
        Ok(if beta == 0.0 { plan } else { plan.accumulate() })
    }
    fn with_activation(plan: GemmPlan<Self>, _: Activation) -> GemmPlan<Self> {
        plan
    }
    fn draw(source: &mut Source, _: bool) -> Self {
        // Extremes are where instructions saturate.
        match source.below(4) {
            0 => Self::MIN,
            1 => Self::MAX,
            _ => Self::any(source),
        }
    }
    fn draw_sum(source: &mut Source, _: bool) -> i32 {
        source.below(1 << 25) as i32 - (1 << 24)
    }
    fn any(source: &mut Source) -> Self {
        source.below(256) as u8 as i8
    }
    fn specials(op: Op, k: &Kernels<Self>, report: &mut Report) -> Result<(), String> {
        extremes(op, k, report)
    }
}

/// Operands of a case.
struct Operands<E: Operand> {
    a: Matrix<E>,
    b: Matrix<E>,
    c: Matrix<E::Sum>,
    bias: Guarded<E::Sum>,
}

impl<E: Sample> Operands<E> {
    fn new(case: &Case, source: &mut Source) -> Self {
        let Case { m, n, k, edge, whole, .. } = *case;
        let bias: Vec<E::Sum> = (0..n).map(|_| E::draw_sum(source, whole)).collect();
        Self {
            a: Matrix::new(m, k, case.a, edge, |_, _| E::draw(source, whole)),
            b: Matrix::new(k, n, case.b, edge, |_, _| E::draw(source, whole)),
            c: Matrix::new(m, n, case.c, edge, |_, _| E::draw_sum(source, whole)),
            bias: Guarded::copy_of(&bias, edge),
        }
    }
}

/// Memory of exactly the size asked for: aligned, or flush against the page behind.
fn scratch(plan: &GemmPlan<impl Operand>, op: Op, edge: Edge) -> Result<Guarded<u8>, KernelError> {
    let req = if op == Op::GemmPrepacked { plan.scratch_packed()? } else { plan.scratch()? };
    let size = if edge == Edge::Start { req.size() } else { req.size_unaligned() };
    Ok(Guarded::poisoned(size, edge))
}

/// Computes `c` by the form of `op`.
fn product<E: Sample>(
    op: Op,
    k: &Kernels<E>,
    case: &Case,
    o: &Operands<E>,
    c: &mut Matrix<E::Sum>,
) -> Result<(), KernelError> {
    let plan = E::plan(k, case.m, case.n, case.k, (case.alpha, case.beta))?;
    let mut memory = scratch(&plan, op, case.edge)?;
    let (a, b, c) = (o.a.view()?, o.b.view()?, c.view_mut()?);
    let s = Scratch::new(&mut memory);
    match op {
        Op::GemmBias => call(|| plan.run(c, a, b, Some(&o.bias), s)),
        Op::GemmFused => {
            let plan = E::with_activation(plan, case.activation());
            call(|| plan.run(c, a, b, Some(&o.bias), s))
        }
        Op::GemmBt => call(|| plan.run(c, a, Right::Transposed(b.t()), None, s)),
        Op::GemmPrepacked => {
            let mut packed = Guarded::poisoned(k.packed_b_size(b.rows(), b.cols())?, case.edge);
            let packed: PackedB = call(|| k.pack_b(b, &mut packed))?;
            call(|| plan.run(c, a, packed, None, s))
        }
        _ => call(|| plan.run(c, a, b, None, s)),
    }
}

/// One product against the oracle.
pub(crate) fn check<E: Sample>(
    op: Op,
    k: &Kernels<E>,
    case: &Case,
    source: &mut Source,
    report: &mut Report,
) -> Result<(), String> {
    let o = Operands::<E>::new(case, source);
    let mut c = Matrix::poisoned(case.m, case.n, case.c, case.edge);
    if case.beta != 0.0 {
        for i in 0..case.m {
            for j in 0..case.n {
                let at = c.at(i, j);
                c.data[at] = o.c.data[at];
            }
        }
    }
    product(op, k, case, &o, &mut c).map_err(|e| format!("{case:?}: {e}"))?;
    report.cases += 1;
    if !c.gaps_intact() {
        return Err(format!("{case:?}: writes outside of C"));
    }
    let (alpha, beta) = (f64::from(case.alpha), f64::from(case.beta));
    let (function, ulps) = case.function(op);
    // Each is widened once.
    let cols: Vec<f64> =
        (0..case.n).flat_map(|j| (0..case.k).map(move |p| (p, j))).map(|(p, j)| o.b.get(p, j)).collect();
    for i in 0..case.m {
        let row: Vec<f64> = (0..case.k).map(|p| o.a.get(i, p)).collect();
        for j in 0..case.n {
            let col = &cols[j * case.k..][..case.k];
            let (dot, magnitudes) = exact_sum(row.iter().zip(col).map(|(a, b)| a * b));
            let before = beta * o.c.get(i, j);
            let bias = if matches!(op, Op::GemmBias | Op::GemmFused) { o.bias[j].wide() } else { 0.0 };
            let exact = function(alpha * dot + before + bias);
            let got = c.get(i, j);
            let bound = gamma(case.k + 4, alpha.abs() * magnitudes + before.abs() + bias.abs());
            // No activation is steeper than 1.13.
            let bound = if case.whole { 0.0 } else { 1.13 * bound } + ulps * ulp::<f32>(exact);
            let err = (got - exact).abs();
            let err = if err == 0.0 { 0.0 } else { err / bound };
            report.see(err, 1.0, || format!("{case:?}: c[{i},{j}] = {got} instead of {exact}"))?;
        }
    }
    Ok(())
}

/// The kernels of a row of `gemm` or its kin, and the same with caches so small that modest shapes take
/// several blocks in every loop.
pub(crate) fn kernels_of<E: Operand>(row: &KernelInfo) -> Result<[Kernels<E>; 2], String> {
    let make = || {
        let caps = caps().restricted_to(row.level)?;
        let caches = CacheSizes { l1d: 1 << 11, l2: 1 << 11, l3: 0, line: 64 };
        let [own, tiny] = [caps, caps.with_caches(caches)].map(|caps| Kernels::with(caps).with_gemm(row));
        Ok([own?, tiny?])
    };
    make().map_err(|e: KernelError| e.to_string())
}

/// Shapes and layouts of the products of a microkernel.
struct Sweep {
    rows: Vec<usize>,
    cols: Vec<usize>,
    depths: &'static [usize],
    /// Of all combinations of layouts, one in so many.
    layouts: usize,
}

impl Sweep {
    /// Every shape around the tile, and every combination of layouts.
    fn of_microkernel(mr: usize, nr: usize) -> Self {
        Self {
            rows: vec![0, 1, 2, mr - 1, mr, mr + 1, 2 * mr + 3],
            cols: vec![0, 1, 2, nr - 1, nr, nr + 1, 2 * nr, 2 * nr + 5],
            depths: if effort() > 0 { &[0, 1, 2, 7, 19, 64] } else { &[0, 7, 19] },
            layouts: if effort() > 0 { 1 } else { 3 },
        }
    }

    /// What other forms of the product add: where `B` comes from, and what becomes of `C` at the end. Tiles that are
    /// whole and that are not, one and several, and more columns than are finished at a time.
    fn of_form(mr: usize, nr: usize) -> Self {
        Self {
            rows: vec![0, 1, mr + 1],
            cols: vec![0, 1, nr, 2 * nr + 5, 256 + nr + 1],
            depths: &[0, 1, 19],
            layouts: if effort() > 0 { 7 } else { 21 },
        }
    }
}

/// `gemm`, `gemm_bias`, `gemm_bt`, `gemm_fused`, `gemm_prepacked`: whole numbers come out exactly, others within the
/// bound of a plain sum. The first tries every shape and layout; the others have the same microkernel.
pub fn gemm<E: Sample>(row: &KernelInfo) -> Outcome {
    let op = row.op;
    let [forced, tiny] = kernels_of::<E>(row)?;
    let (mr, nr) = tile(row.name).ok_or("the kernel's name has no tile")?;
    let mut source = Source::new(11);
    let mut report = Report::BOUND;
    let mut turn = 0;
    let mut case = |(m, n, k), (a, b, c): (Layout, Layout, Layout), factors: usize| {
        turn += 1;
        let (alpha, beta) = E::FACTORS[factors % E::FACTORS.len()];
        // Not in step with the sizes below.
        let whole = E::EXACT || turn % 5 != 0;
        let case = Case { m, n, k, a, b, c, alpha, beta, whole, edge: Edge::BOTH[turn / 2 % 2] };
        let kernels = if turn % 11 < 4 { &forced } else { &tiny };
        check::<E>(op, kernels, &case, &mut source, &mut report)
    };
    let sweep = if op == Op::Gemm { Sweep::of_microkernel(mr, nr) } else { Sweep::of_form(mr, nr) };
    // Layouts in turn.
    let (mut la, mut lb, mut lc) =
        (Layout::ALL.iter().cycle(), Layout::ALL.iter().cycle(), Layout::DISTINCT.iter().cycle());
    // More rows than skinny products have, where these have kernels of their own.
    let more = if E::TYPE != ElementType::I8 { 32usize.next_multiple_of(mr) } else { 0 };
    let mut factors = 0;
    for m in sweep.rows {
        let m = if m == 0 { 0 } else { more + m };
        for &n in &sweep.cols {
            // Every depth with all factors in turn.
            factors += 1;
            // Offsets below that are coprime to the numbers of layouts, so that all combinations come.
            for (at, &k) in sweep.depths.iter().enumerate() {
                let layouts = (*la.nth(2).unwrap(), *lb.nth(4).unwrap(), *lc.next().unwrap());
                case((m, n, k), layouts, factors + at)?;
            }
        }
    }
    for a in Layout::ALL {
        for b in Layout::ALL {
            for c in Layout::DISTINCT {
                factors += 1;
                if factors % sweep.layouts == 0 {
                    case((more + mr + 2, nr + 3, 11), (a, b, c), factors)?;
                }
            }
        }
    }
    // Primes, and several blocks in every loop with every factor.
    for factors in 0..E::FACTORS.len() {
        case((37, 61, 31), (Layout::Rows, Layout::Rows, Layout::Rows), factors)?;
        case((61, 127, 41), (Layout::PaddedRows, Layout::Cols, Layout::PaddedRows), factors)?;
    }
    if effort() > 1 && op == Op::Gemm {
        for k in [1021, 1024] {
            for factors in 0..3 {
                case(
                    (more + 2 * mr + 1, 2 * nr + 1, k),
                    (Layout::Rows, Layout::Rows, Layout::Rows),
                    factors,
                )?;
            }
        }
    }
    // Neither a bias nor another view of B makes a difference to these.
    if !matches!(op, Op::GemmBias | Op::GemmBt) {
        E::specials(op, &tiny, &mut report)?;
    }
    refusals::<E>(op, &forced).map_err(|e| format!("refusals: {e}"))?;
    if op == Op::Gemm {
        let plan = forced.gemm_plan(more + mr, nr, 5).map_err(|e| e.to_string())?;
        if plan.kernel_name() != row.name {
            return Err(format!("the plan names {} instead", plan.kernel_name()));
        }
    }
    Ok(report)
}

/// The tile in a kernel's name.
fn tile(name: &str) -> Option<(usize, usize)> {
    let part = name.split("__").next()?.rsplit('_').next()?;
    let (rows, cols) = part.split_once('x')?;
    Some((rows.parse().ok()?, cols.parse().ok()?))
}

/// NaN and infinities in `A` reach their row of `C`, those in `B` their column, and nothing else.
pub(crate) fn specials<E: Element + Sample>(
    op: Op,
    m: usize,
    k: &Kernels<E>,
    report: &mut Report,
) -> Result<(), String> {
    let rows = Layout::Rows;
    let (n, depth) = (37, 23);
    let case = Case {
        m,
        n,
        k: depth,
        a: rows,
        b: rows,
        c: rows,
        alpha: 1.0,
        beta: 0.0,
        whole: true,
        edge: Edge::End,
    };
    let (function, ulps) = case.function(op);
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for (i, p, j) in [(0, 0, 0), (m - 1, 22, 36), (m / 2, 9, 32), (m / 3, 17, 31)] {
            for in_a in [true, false] {
                let set = |there: bool| E::from_f32(if there { value } else { 1.0 });
                let o = Operands {
                    a: Matrix::new(m, depth, rows, Edge::End, |r, c| set(in_a && (r, c) == (i, p))),
                    b: Matrix::new(depth, n, rows, Edge::End, |r, c| set(!in_a && (r, c) == (p, j))),
                    c: Matrix::poisoned(m, n, rows, Edge::End),
                    bias: Guarded::copy_of(&vec![0.0; n], Edge::End),
                };
                let mut c = Matrix::poisoned(m, n, rows, Edge::End);
                product(op, k, &case, &o, &mut c).map_err(|e| e.to_string())?;
                report.cases += 1;
                for r in 0..m {
                    for s in 0..n {
                        let hit = if in_a { r == i } else { s == j };
                        let want = function(if hit { f64::from(value) } else { depth as f64 });
                        let got = c.get(r, s);
                        let near = (got - want).abs() <= ulps * ulp::<f32>(want);
                        if !near && got != want && !(got.is_nan() && want.is_nan()) {
                            return Err(format!("{value} at {i},{p},{j}: c[{r},{s}] = {got}, not {want}"));
                        }
                    }
                }
                // With alpha = 0 nothing of A and B is read.
                let nothing = Case { alpha: 0.0, ..case };
                let mut c = Matrix::poisoned(m, n, rows, Edge::End);
                product(op, k, &nothing, &o, &mut c).map_err(|e| e.to_string())?;
                if c.data.iter().any(|&c| c != 0.0) {
                    return Err("alpha = 0 does not give 0".into());
                }
            }
        }
    }
    Ok(())
}

/// Sums of the largest products: as long as they stay exact, and longer, where the largest of all wraps: there in every
/// accumulator of a tile, as an instruction that saturates differs in nothing else.
fn extremes(op: Op, k: &Kernels<i8>, report: &mut Report) -> Result<(), String> {
    let rows = Layout::Rows;
    let all: &[(i8, i8)] = &[(-128, -128), (-128, 127), (127, -128), (127, 127), (-1, -128), (0, -128)];
    let short = [1, 3, 4, 63, 1000].map(|depth| (depth, all));
    let long = [((1 << 17) - 1, 1), (1 << 17, 2), ((1 << 17) + 3, 1)].map(|(depth, n)| (depth, &all[..n]));
    let [mr, nr] = k.gemm_plan(1, 1, 1).map_err(|e| e.to_string())?.tile();
    for (depth, factors) in short.into_iter().chain(long) {
        for &(x, y) in factors {
            let (m, n) = if depth > 1 << 17 { (mr, nr) } else { (2, 3) };
            let edge = Edge::End;
            let o = Operands {
                a: Matrix::new(m, depth, rows, edge, |_, _| x),
                b: Matrix::new(depth, n, rows, edge, |_, _| y),
                c: Matrix::poisoned(m, n, rows, edge),
                bias: Guarded::copy_of(&vec![0; n], edge),
            };
            let mut c = Matrix::poisoned(m, n, rows, edge);
            let (a, b) = (rows, rows);
            let case =
                Case { m, n, k: depth, a, b, c: rows, alpha: 1.0, beta: 0.0, whole: true, edge: Edge::Start };
            product(op, k, &case, &o, &mut c).map_err(|e| e.to_string())?;
            report.cases += 1;
            let want = (i64::from(x) * i64::from(y) * depth as i64) as i32;
            if let Some(got) = c.data.iter().find(|&&c| c != want) {
                return Err(format!("{depth} times {x} * {y} is {got} instead of {want}"));
            }
        }
    }
    Ok(())
}

/// Wrong shapes and short scratch are refused, and `C` stays as it was.
fn refusals<E: Sample>(op: Op, k: &Kernels<E>) -> Result<(), String> {
    let layout = Layout::Rows;
    // More than skinny products have: these need less scratch than the plan, which does not know B.
    let m = 37;
    let case = Case {
        m,
        n: 6,
        k: 7,
        a: layout,
        b: layout,
        c: layout,
        alpha: 1.0,
        beta: 0.0,
        whole: true,
        edge: Edge::End,
    };
    let o = Operands::<E>::new(&case, &mut Source::new(1));
    for (rows, n, depth) in [(36, 6, 7), (38, 6, 7), (m, 5, 7), (m, 7, 7), (m, 6, 6), (m, 6, 8)] {
        let mut c = Matrix::poisoned(m, 6, layout, Edge::End);
        let other = Case { m: rows, n, k: depth, ..case };
        match product(op, k, &other, &o, &mut c) {
            Err(KernelError::DimMismatch { .. } | KernelError::WrongLength { .. }) => {}
            r => return Err(format!("a plan for {rows}x{n}x{depth} on {m}x6x7: {r:?}")),
        }
        if !crate::guard::is_poison(&c.data) {
            return Err(format!("a plan for {rows}x{n}x{depth} on {m}x6x7 writes C"));
        }
    }
    let run = |short: usize| -> Result<Result<(), KernelError>, KernelError> {
        let plan = k.gemm_plan(m, 6, 7)?;
        let full = scratch(&plan, op, Edge::Start)?.len();
        let mut memory = Guarded::<u8>::poisoned(full - short, Edge::Start);
        let mut packed = vec![0; k.packed_b_size(7, 6)?];
        let packed = k.pack_b(o.b.view()?, &mut packed)?;
        let mut c = Matrix::poisoned(m, 6, layout, Edge::End);
        let (a, b, s) = (o.a.view()?, o.b.view()?, Scratch::new(&mut memory));
        let c = c.view_mut()?;
        let bound = GemmPlan::<E>::scratch_bound(m, 6, 7)?;
        if bound.size() < plan.scratch()?.size() {
            return Err(KernelError::ScratchTooSmall { need: plan.scratch()?.size(), got: bound.size() });
        }
        Ok(match op {
            Op::GemmBias | Op::GemmFused => plan.run(c, a, b, Some(&o.bias), s),
            Op::GemmBt => plan.run(c, a, Right::Transposed(b.t()), None, s),
            Op::GemmPrepacked => plan.run(c, a, packed, None, s),
            _ => plan.run(c, a, b, None, s),
        })
    };
    match (run(0).map_err(|e| e.to_string())?, run(1).map_err(|e| e.to_string())?) {
        (Ok(()), Err(KernelError::ScratchTooSmall { .. })) => Ok(()),
        (full, short) => Err(format!("with enough scratch {full:?}, with a byte less {short:?}")),
    }
}
