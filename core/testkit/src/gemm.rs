//! Matrix products: plain, with bias, with `B` transposed, with `B` packed beforehand.

use gllm_kernels_core::{
    bf16, f16, kernels, CacheSizes, Element, ElementType, GemmPlan, IsaLevel, KernelError, KernelInfo,
    Kernels, Op, Operand, PackedB, Scratch,
};

use crate::data::{lanes, Source};
use crate::matrix::{Layout, Matrix};
use crate::numeric::{gamma, sum as exact_sum, Number};
use crate::report::{Outcome, Report};
use crate::{call, caps, Edge, Guarded, EFFORT};

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
                // More rows than skinny products have, where these have a kernel of their own.
                specials(op, if op == Op::GemmPrepacked { 19 } else { 59 }, k, report)
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
    let req = if op == Op::GemmPrepacked { plan.scratch_prepacked()? } else { plan.scratch()? };
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
        Op::GemmBias => call(|| plan.run_bias(c, a, b, &o.bias, s)),
        Op::GemmBt => call(|| plan.run_bt(c, a, b.t(), s)),
        Op::GemmPrepacked => {
            let mut packed = Guarded::poisoned(k.packed_b_size(case.k, case.n)?, case.edge);
            let packed: PackedB = call(|| k.pack_b(b, &mut packed))?;
            call(|| plan.run_prepacked(c, a, packed, s))
        }
        _ => call(|| plan.run(c, a, b, s)),
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
    for i in 0..case.m {
        for j in 0..case.n {
            let (dot, magnitudes) = exact_sum((0..case.k).map(|p| o.a.get(i, p) * o.b.get(p, j)));
            let before = beta * o.c.get(i, j);
            let bias = if op == Op::GemmBias { o.bias[j].wide() } else { 0.0 };
            let exact = alpha * dot + before + bias;
            let got = c.get(i, j);
            let bound = gamma(case.k + 4, alpha.abs() * magnitudes + before.abs() + bias.abs());
            let bound = if case.whole { 0.0 } else { bound };
            let err = (got - exact).abs();
            let err = if err == 0.0 { 0.0 } else { err / bound };
            report.see(err, 1.0, || format!("{case:?}: c[{i},{j}] = {got} instead of {exact}"))?;
        }
    }
    Ok(())
}

/// The kernels of a row of `gemm` or its kin, and the same with caches so small that modest shapes take
/// several blocks in every loop.
fn kernels_of<E: Operand>(row: &KernelInfo) -> Result<[Kernels<E>; 2], String> {
    let make = || {
        let caps = caps().restricted_to(row.level)?;
        let caches = CacheSizes { l1d: 1 << 11, l2: 1 << 11, l3: 0, line: 64 };
        let [own, tiny] = [caps, caps.with_caches(caches)].map(|caps| Kernels::with(caps).with_gemm(row));
        Ok([own?, tiny?])
    };
    make().map_err(|e: KernelError| e.to_string())
}

/// `gemm`, `gemm_bias`, `gemm_bt`, `gemm_prepacked`: whole numbers come out exactly, others within the
/// bound of a plain sum.
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
    // Every shape around the tile; layouts in turn.
    let (mut la, mut lb, mut lc) =
        (Layout::ALL.iter().cycle(), Layout::ALL.iter().cycle(), Layout::DISTINCT.iter().cycle());
    // More rows than skinny products have, where these have a kernel of their own.
    let more = if op == Op::GemmPrepacked || !E::GEMV { 0 } else { 32usize.next_multiple_of(mr) };
    let mut factors = 0;
    for m in [0, 1, 2, mr - 1, mr, mr + 1, 2 * mr + 3] {
        let m = if m == 0 { 0 } else { more + m };
        for n in [0, 1, 2, nr - 1, nr, nr + 1, 2 * nr + 5] {
            // Every depth with all factors in turn.
            factors += 1;
            for (at, k) in [0, 1, 2, 7, 19, 64].into_iter().enumerate() {
                // Offsets that are coprime to the numbers of layouts, so that all combinations come.
                let layouts = (*la.nth(2).unwrap(), *lb.nth(4).unwrap(), *lc.next().unwrap());
                case((m, n, k), layouts, factors + at)?;
            }
        }
    }
    // Every combination of layouts.
    for a in Layout::ALL {
        for b in Layout::ALL {
            for c in Layout::DISTINCT {
                factors += 1;
                case((more + mr + 2, nr + 3, 11), (a, b, c), factors)?;
            }
        }
    }
    // Primes, and several blocks in every loop with every factor.
    for factors in 0..E::FACTORS.len() {
        case((37, 61, 31), (Layout::Rows, Layout::Rows, Layout::Rows), factors)?;
        case((61, 127, 41), (Layout::PaddedRows, Layout::Cols, Layout::PaddedRows), factors)?;
    }
    if EFFORT > 1 {
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
    E::specials(op, &tiny, &mut report)?;
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
                        let want = if hit { f64::from(value) } else { depth as f64 };
                        let got = c.get(r, s);
                        if got != want && !(got.is_nan() && want.is_nan()) {
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

/// Sums of the largest products: as long as they stay exact, and longer, where they wrap.
fn extremes(op: Op, k: &Kernels<i8>, report: &mut Report) -> Result<(), String> {
    let rows = Layout::Rows;
    for depth in [1, 3, 4, 63, 1000, 1 << 16, (1 << 17) - 1, 1 << 17, (1 << 17) + 3] {
        for (x, y) in [(-128, -128), (-128, 127), (127, -128), (127, 127), (-1, -128), (0, -128)] {
            let (m, n, edge) = (2, 3, Edge::End);
            let o = Operands {
                a: Matrix::new(m, depth, rows, edge, |_, _| x),
                b: Matrix::new(depth, n, rows, edge, |_, _| y),
                c: Matrix::poisoned(m, n, rows, edge),
                bias: Guarded::copy_of(&[0; 3], edge),
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
            Err(
                KernelError::DimMismatch { .. }
                | KernelError::ShortSlice { .. }
                | KernelError::WrongPacking { .. },
            ) => {}
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
            Op::GemmBias => plan.run_bias(c, a, b, &o.bias, s),
            Op::GemmBt => plan.run_bt(c, a, b.t(), s),
            Op::GemmPrepacked => plan.run_prepacked(c, a, packed, s),
            _ => plan.run(c, a, b, s),
        })
    };
    match (run(0).map_err(|e| e.to_string())?, run(1).map_err(|e| e.to_string())?) {
        (Ok(()), Err(KernelError::ScratchTooSmall { .. })) => Ok(()),
        (full, short) => Err(format!("with enough scratch {full:?}, with a byte less {short:?}")),
    }
}

/// The microkernels that this machine has for storage type `E` on `level`.
fn microkernels<E: Operand>(level: IsaLevel) -> impl Iterator<Item = Kernels<E>> {
    let fits = move |r: &&KernelInfo| (r.op, r.element, r.level) == (Op::Gemm, E::TYPE, level);
    kernels().filter(fits).filter_map(|row| kernels_of(row).ok()).map(|[own, _]| own)
}

/// `pack_b`, for every microkernel: the documented layout, at every alignment; damaged, moved and foreign
/// buffers; column ranges.
pub fn pack_b<E: Sample>(row: &KernelInfo) -> Outcome {
    let mut source = Source::new(13);
    let mut report = Report::BOUND;
    for k in microkernels::<E>(row.level) {
        let name = k.kernel(Op::Gemm, None).map_or("", |r| r.name);
        packing(&k, &mut source, &mut report).map_err(|e| format!("for {name}: {e}"))?;
    }
    if report.cases == 0 {
        return Err("no microkernel".into());
    }
    Ok(report)
}

fn packing<E: Sample>(k: &Kernels<E>, source: &mut Source, report: &mut Report) -> Result<(), String> {
    let lanes = lanes(k.level());
    for (depth, n) in [(0, 5), (5, 0), (1, 1), (3, lanes), (lanes + 1, 2 * lanes + 3), (19, 67), (64, 31)] {
        for layout in Layout::ALL {
            let values: Vec<E> = (0..depth * n).map(|_| E::any(source)).collect();
            let b = Matrix::new(depth, n, layout, Edge::End, |i, j| values[i * n + j]);
            let shift = source.below(64);
            panels(k, &b, shift).map_err(|e| format!("{depth}x{n} {layout:?} at {shift}: {e}"))?;
            report.cases += 1;
        }
    }
    for shift in 0..64 {
        let b = Matrix::new(9, 2 * lanes + 1, Layout::Rows, Edge::End, |_, _| E::narrow(1.0));
        panels(k, &b, shift).map_err(|e| format!("at {shift}: {e}"))?;
        report.cases += 1;
    }
    headers(k)?;
    foreign(k)?;
    ranges(k).map_err(|e| format!("column ranges: {e}"))
}

/// Packs `b` into a buffer that starts `shift` bytes from an aligned address; compares byte for byte.
fn panels<E: Sample>(k: &Kernels<E>, b: &Matrix<E>, shift: usize) -> Result<(), String> {
    let (depth, n) = (b.rows, b.cols);
    let size = k.packed_b_size(depth, n).map_err(|e| e.to_string())?;
    let mut memory = Guarded::<u8>::poisoned(shift + size, Edge::Start);
    let width = {
        let packed = call(|| k.pack_b(b.view()?, &mut memory[shift..])).map_err(|e| e.to_string())?;
        if (packed.k(), packed.n()) != (depth, n) {
            return Err(format!("says {}x{}", packed.k(), packed.n()));
        }
        packed.col_step()
    };
    if !memory.intact() || !crate::guard::is_poison(&memory[..shift]) {
        return Err("writes outside of the buffer".into());
    }
    let start = shift + u64::from_le_bytes(memory[shift + 32..shift + 40].try_into().unwrap()) as usize;
    if !start.is_multiple_of(64) {
        return Err(format!("panels start {start} bytes from an aligned address"));
    }
    // Version, storage, element, padding, group, width: see SPEC/03.
    let word = u64::from_le_bytes(memory[shift + 8..shift + 16].try_into().unwrap());
    let part = |low: u32, bits: u32| (word >> low & ((1 << bits) - 1)) as usize;
    let (storage, element, pad, kr) = (part(40, 8), part(32, 8), part(24, 8), part(16, 8));
    let own = 1 + ElementType::ALL.iter().position(|&e| e == E::TYPE).unwrap();
    let (wide, offset) = (element == 1, element == 7);
    let known = wide || element == own || offset && own == 4;
    if (part(48, 16), storage, part(0, 16)) != (2, own, width) || !known || pad % kr != 0 {
        return Err(format!("layout {word:#x}"));
    }
    let (size, padded) = (if wide { 4 } else { size_of::<E>() }, depth.next_multiple_of(pad));
    let pitch = width * (padded * size + if offset { 4 } else { 0 });
    for (panel, memory) in memory[start..].chunks(pitch.max(1)).take(n.div_ceil(width)).enumerate() {
        let (steps, tail) = memory.split_at(width * padded * size);
        // Groups of columns of `kr` elements.
        for (at, got) in steps.chunks_exact(size).enumerate() {
            let (j, p) = (panel * width + at / kr % width, at / (width * kr) * kr + at % kr);
            let exact = if j < n && p < depth { b.get(p, j) as f32 } else { 0.0 };
            let want = if wide { exact.to_bits() } else { exact_bits::<E>(exact) };
            let got = got.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte));
            if got != want {
                return Err(format!("element {p},{j} is {got:#x} instead of {want:#x}"));
            }
        }
        if offset {
            for (j, got) in (panel * width..).zip(tail[..4 * width].chunks_exact(4)) {
                let sum: f64 = (0..if j < n { depth } else { 0 }).map(|p| b.get(p, j)).sum();
                let got = i32::from_le_bytes(got.try_into().unwrap());
                if f64::from(got) != -128.0 * sum {
                    return Err(format!("column {j}, whose sum is {sum}, starts with {got}"));
                }
            }
        }
    }
    Ok(())
}

/// The bits of `x` as an `E`, which holds it exactly.
fn exact_bits<E: Operand>(x: f32) -> u32 {
    match E::TYPE {
        ElementType::F16 => u32::from(f16::from_f32(x).to_bits()),
        ElementType::Bf16 => u32::from(bf16::from_f32(x).to_bits()),
        ElementType::I8 => u32::from(x as i8 as u8),
        _ => x.to_bits(),
    }
}

/// Damaged, cut and moved buffers.
fn headers<E: Sample>(k: &Kernels<E>) -> Result<(), String> {
    let (depth, n) = (5, 7);
    let b = Matrix::new(depth, n, Layout::Rows, Edge::End, |i, j| E::narrow((i * n + j) as f32));
    let size = k.packed_b_size(depth, n).map_err(|e| e.to_string())?;
    let mut buf = Guarded::<u8>::poisoned(size, Edge::Start);
    k.pack_b(b.view().map_err(|e| e.to_string())?, &mut buf).map_err(|e| e.to_string())?;
    for byte in 0..40 {
        for bit in 0..8 {
            buf[byte] ^= 1 << bit;
            // A start that is off but possible is refused unless it is a multiple of 4 and all fits.
            let moved = byte == 32 && (buf[32] as usize) < 128 && buf[32] >= 64;
            match k.packed_b(&buf, depth, n) {
                Err(KernelError::WrongPacking { .. }) => {}
                Ok(_) | Err(KernelError::BadParameter { .. } | KernelError::ShortSlice { .. }) if moved => {}
                r => return Err(format!("header with bit {bit} of byte {byte} flipped: {r:?}")),
            }
            buf[byte] ^= 1 << bit;
        }
    }
    for (depth, n) in [(4, 7), (6, 7), (5, 6), (5, 8), (7, 5), (0, 0), (usize::MAX, 7), (5, usize::MAX)] {
        match k.packed_b(&buf, depth, n) {
            Err(KernelError::WrongPacking { .. }) => {}
            r => return Err(format!("5x7 opened as {depth}x{n}: {r:?}")),
        }
    }
    // An aligned buffer's panels end before its padding.
    let whole = size - 63;
    for len in 0..whole {
        let cut = Guarded::copy_of(&buf[..len], Edge::End);
        match k.packed_b(&cut, depth, n) {
            Err(KernelError::ShortSlice { .. } | KernelError::BadParameter { .. }) => {}
            r => return Err(format!("{len} of {whole} bytes: {r:?}")),
        }
    }
    for by in 0..9 {
        let mut memory = Guarded::<u8>::poisoned(by + whole, Edge::Start);
        memory[by..].copy_from_slice(&buf[..whole]);
        match k.packed_b(&memory[by..], depth, n) {
            Ok(_) if by % 4 == 0 => {}
            Err(KernelError::BadParameter { .. }) if by % 4 != 0 => {}
            r => return Err(format!("moved by {by} bytes: {r:?}")),
        }
    }
    let mut short = vec![0; size - 1];
    let view = b.view().map_err(|e| e.to_string())?;
    match (k.pack_b(view, &mut short), k.packed_b_size(usize::MAX, 2), k.packed_b_size(2, usize::MAX)) {
        (
            Err(KernelError::ShortSlice { .. }),
            Err(KernelError::SizeOverflow { .. }),
            Err(KernelError::SizeOverflow { .. }),
        ) => Ok(()),
        r => Err(format!("impossible sizes: {r:?}")),
    }
}

/// Buffers packed for another storage type or tile.
fn foreign<E: Sample>(k: &Kernels<E>) -> Result<(), String> {
    fn pack<F: Sample>(k: &Kernels<F>) -> Result<Vec<u8>, KernelError> {
        let b = Matrix::new(5, 7, Layout::Rows, Edge::End, |_, _| F::narrow(1.0));
        let mut buf = vec![0; k.packed_b_size(5, 7)?];
        k.pack_b(b.view()?, &mut buf)?;
        Ok(buf)
    }
    fn all<F: Sample>(level: IsaLevel, others: &mut Vec<Vec<u8>>) -> Result<(), KernelError> {
        for k in microkernels::<F>(level) {
            others.push(pack(&k)?);
        }
        Ok(())
    }
    let go = || {
        let (own, mut others) = (pack(k)?, vec![]);
        for level in crate::data::levels() {
            all::<f32>(level, &mut others)?;
            all::<f16>(level, &mut others)?;
            all::<bf16>(level, &mut others)?;
            all::<i8>(level, &mut others)?;
        }
        Ok((own, others))
    };
    let (own, mut others) = go().map_err(|e: KernelError| e.to_string())?;
    others.push(vec![0; own.len()]);
    let layout = |buf: &[u8]| buf[..16].to_vec();
    let mut refused = 0;
    for other in others {
        match (layout(&other) == layout(&own), k.packed_b(&other, 5, 7)) {
            (true, Ok(_)) => {}
            (false, Err(KernelError::WrongPacking { .. })) => refused += 1,
            (same, r) => {
                return Err(format!(
                    "a buffer with {} layout: {r:?}",
                    if same { "this" } else { "a foreign" }
                ))
            }
        }
    }
    if refused < 3 {
        return Err("kernels for different storage types share a layout".into());
    }
    Ok(())
}

/// A product by tiles of rows and columns is the product.
fn ranges<E: Sample>(k: &Kernels<E>) -> Result<(), String> {
    let (m, n, depth) = (13, 75, 29);
    let mut source = Source::new(17);
    let mut make = |r, c| Matrix::<E>::new(r, c, Layout::Rows, Edge::End, |_, _| E::draw(&mut source, true));
    let (a, b) = (make(m, depth), make(depth, n));
    let go = || -> Result<bool, KernelError> {
        let mut buf = vec![0; k.packed_b_size(depth, n)?];
        let packed = k.pack_b(b.view()?, &mut buf)?;
        let mut memory = vec![0; k.gemm_plan(m, n, depth)?.scratch_prepacked()?.size_unaligned()];
        let mut c = Matrix::<E::Sum>::poisoned(m, n, Layout::PaddedRows, Edge::End);
        let (left, right) = c.view_mut()?.t().split_rows(packed.col_step())?;
        let (top, bottom) = left.t().split_rows(5)?;
        for (c, i, j) in [(top, 0, 0), (bottom, 5, 0), (right.t(), 0, packed.col_step())] {
            let (rows, cols) = (c.rows(), c.cols());
            let plan = k.gemm_plan(rows, cols, depth)?;
            let part = packed.col_range(j, cols)?;
            plan.run_prepacked(c, a.view()?.row_range(i, rows)?, part, Scratch::new(&mut memory))?;
        }
        let exact = |i, j| (0..depth).map(|p| a.get(i, p) * b.get(p, j)).sum::<f64>();
        let right = (0..m).all(|i| (0..n).all(|j| c.get(i, j) == exact(i, j)));
        Ok(right
            && packed.col_range(n, 0)?.n() == 0
            && packed.col_range(1, 1).is_err()
            && packed.col_range(0, n + 1).is_err())
    };
    match go() {
        Ok(true) => Ok(()),
        Ok(false) => Err("wrong result".into()),
        Err(e) => Err(e.to_string()),
    }
}
