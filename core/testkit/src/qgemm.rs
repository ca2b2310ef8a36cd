//! Quantised matrix products: exact where sums are whole, else within the bound; the same bits on every instruction set,
//! in place and packed, in one go and in parts.

use gllm_kernels_core::{
    bf16, f16, Activation, Caps, Element, Features, IsaLevel, KernelError, KernelInfo, Kernels, MatMut,
    MatRef, Op, Precision, QgemmPlan, QuantFormat, QuantRef, QuantWeights, Scratch,
};

use crate::data::Source;
use crate::numeric::{gamma, same, sum as exact_sum, wide};
use crate::packed::{packed, rounded};
use crate::quant::{halves, magnitudes, shuffled_blocks, specified, subject, unpacked, vectors};
use crate::report::{Outcome, Report};
use crate::vectors::{MATRIX_COLS, MATRIX_ROWS};
use crate::{call, caps, effort, Edge, Guarded};

/// One product: operands, and what they are multiplied with.
struct Case<'a, E: Element> {
    k: &'a Kernels<E>,
    w: QuantRef<'a>,
    x: &'a [E],
    m: usize,
    precision: Precision,
}

impl<E: Element> Case<'_, E> {
    fn text(&self, what: impl std::fmt::Display) -> String {
        let (n, cols) = (self.w.rows(), self.w.cols());
        format!("{:?} {} {}x{n}x{cols}: {what}", self.precision, E::TYPE, self.m)
    }

    fn plan(&self) -> Result<QgemmPlan<E>, KernelError> {
        self.k.qgemm_plan(self.w.format(), self.m, self.w.rows(), self.w.cols(), self.precision)
    }

    /// Computes in memory of exactly the size asked for. `stride` is that of the output's rows.
    fn run(
        &self,
        plan: &QgemmPlan<E>,
        w: QuantWeights<'_>,
        bias: Option<&[f32]>,
        [stride, step]: [usize; 2],
        edge: Edge,
    ) -> Result<Vec<f32>, String> {
        let [m, n, k] = plan.shape();
        let text = |e: KernelError| self.text(e);
        let size = plan.scratch().map_err(text)?.size_unaligned();
        let mut memory = Guarded::<u8>::poisoned(size, edge);
        let len = if m * n == 0 { 0 } else { (m - 1) * stride + (n - 1) * step + 1 };
        let mut y = Guarded::<f32>::poisoned(len, edge);
        let x = MatRef::new(&self.x[..m * k], m, k).map_err(text)?;
        call(|| {
            plan.run(MatMut::with_strides(&mut y, m, n, stride, step)?, w, x, bias, Scratch::new(&mut memory))
        })
        .map_err(text)?;
        if !y.intact() || !memory.intact() {
            return Err(self.text("writes outside of its memory"));
        }
        if size > 0 {
            let short = plan.run(
                MatMut::with_strides(&mut y.to_vec(), m, n, stride, step).map_err(text)?,
                w,
                x,
                bias,
                Scratch::new(&mut memory[..size / 2]),
            );
            let refused =
                matches!(short, Err(KernelError::ScratchTooSmall { .. } | KernelError::ShortSlice { .. }));
            // A query is for the larger of two ways.
            if !refused && in_panels(plan, w.is_packed()) && m > 16 {
                return Err(self.text("half the memory was enough"));
            }
        }
        Ok((0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| y[i * stride + j * step]).collect())
    }

    /// Two results that must have the same bits.
    fn equal(&self, what: &str, got: &[f32], want: &[f32]) -> Result<(), String> {
        match differ(got, want) {
            Some(i) => Err(self.text(format!("{what}, element {i}: {:?} and {:?}", got.get(i), want.get(i)))),
            None => Ok(()),
        }
    }

    /// The sums of weights in place or packed ones.
    fn sums(&self, in_place: bool) -> Result<Sums, String> {
        let (n, cols) = (self.w.rows(), self.w.cols());
        let integer = self.precision == Precision::Integer;
        // Groups are rounded in one way, by rows for packed weights and in panels.
        let op = if self.coarse(in_place) { Op::QgemvQ8 } else { Op::QgemvPacked };
        let plan = self.k.qgemm_plan(self.w.format(), self.m, n, cols, Precision::Integer);
        let plan = plan.and_then(|plan| plan.with_kernel(op)).map_err(|e| self.text(e))?;
        let mut steps = vec![0; plan.prepared_size().map_err(|e| self.text(e))?.size_unaligned()];
        let view = MatRef::new(self.x, self.m, cols).map_err(|e| self.text(e))?;
        let a = plan.prepare(view, &mut steps).map_err(|e| self.text(e))?;
        // What the product sees of the weights.
        let mut weights = wide(&specified(self.w)?);
        if !self.sees_weights() {
            weights = match self.precision {
                Precision::Bf16 => self.stored::<bf16>(),
                _ => self.stored::<E>(),
            }
            .map_err(|e| self.text(e))?;
        }
        let sizes = if integer { Some(wide(&magnitudes(self.w)?)) } else { None };
        let mut sums = Sums { want: Vec::new(), size: Vec::new() };
        for m in 0..self.m {
            let x = &self.x[m * cols..][..cols];
            let x = match self.precision {
                Precision::Integer => rounded(&a, m),
                Precision::Bf16 => x.iter().map(|x| bf16::from_f32(x.to_f32()).to_f64()).collect(),
                _ => wide(x),
            };
            for r in 0..n {
                let columns = r * cols..(r + 1) * cols;
                let (want, mut size) = exact_sum(weights[columns.clone()].iter().zip(&x).map(|(w, x)| w * x));
                if let Some(sizes) = &sizes {
                    size = sizes[columns].iter().zip(&x).map(|(w, x)| (w * x).abs()).sum();
                }
                sums.want.push(want);
                sums.size.push(size);
            }
        }
        Ok(sums)
    }

    /// The weights as they are stored in this type.
    fn stored<T: Element>(&self) -> Result<Vec<f64>, KernelError> {
        let mut stored = vec![T::from_f32(0.0); self.w.rows() * self.w.cols()];
        Kernels::<T>::with(self.k.caps()).dequant(self.w, &mut stored)?;
        Ok(wide(&stored))
    }

    /// Whether activations are rounded by 256, as for `qgemv_q8`: few rows in place.
    fn coarse(&self, in_place: bool) -> bool {
        in_place && self.few() && self.w.format().block_len() == 256
    }

    /// Whether weights in place are not unpacked.
    fn few(&self) -> bool {
        !self.unpacks(false)
    }

    /// Whether weights, packed ones or in place, are unpacked for tiles.
    fn unpacks(&self, packed: bool) -> bool {
        self.plan().is_ok_and(|plan| in_panels(&plan, packed))
    }

    /// Whether weights are multiplied as they are, not as rounded to the type of the activations.
    fn sees_weights(&self) -> bool {
        self.plan().is_ok_and(|plan| !plan.rounds_weights())
    }

    /// Compares what came from weights in place or packed ones; `exact` if whatever is small must have no error at all.
    fn compare(
        &self,
        y: &[f32],
        bias: &[f32],
        sums: &Sums,
        [in_place, exact]: [bool; 2],
        report: &mut Report,
    ) -> Result<(), String> {
        let (n, cols) = (self.w.rows(), self.w.cols());
        // Products of pairs of bf16 are rounded twice, and denormals may be lost.
        let roundings = match self.precision {
            Precision::Integer if self.unpacks(!in_place) => cols / 10 + 4,
            Precision::Integer => cols / 8 + 16,
            _ => 2 * cols + 8,
        };
        for (i, (&want, &size)) in sums.want.iter().zip(&sums.size).enumerate() {
            let (m, r) = (i / n, i % n);
            let bias = bias.get(r).copied().map_or(0.0, f64::from);
            let (want, size, got) = (want + bias, size + bias.abs(), y[i]);
            let err = (f64::from(got) - want).abs();
            let whole = exact && size < f64::from(1 << 21);
            let bound = if whole { 0.0 } else { gamma(roundings, size) + 1e-30 };
            let err = if err == 0.0 { 0.0 } else { err / bound };
            report.see(err, 1.0, || self.text(format!("row {m}, column {r}: {got} instead of {want}")))?;
        }
        Ok(())
    }
}

/// What every element should be, and the sum of the magnitudes of its terms, in f64.
struct Sums {
    want: Vec<f64>,
    size: Vec<f64>,
}

/// The first place where two results differ.
fn differ(a: &[f32], b: &[f32]) -> Option<usize> {
    (0..a.len().max(b.len())).find(|&i| !matches!((a.get(i), b.get(i)), (Some(&a), Some(&b)) if same(a, b)))
}

/// What is checked beside the product itself. None of it depends on the format or on the microkernel.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Beside {
    /// Parts have the bits of the whole.
    Parts,
    /// Bias and activation are what the operators of these names do.
    Finish,
}

impl Beside {
    const ALL: [Self; 2] = [Self::Finish, Self::Parts];
}

/// One product, in place and packed, and what of `beside` is to be checked with it. `exact`: whatever is small must have no
/// error at all.
fn check<E: Element>(
    case: &Case<'_, E>,
    exact: bool,
    beside: &[Beside],
    edge: Edge,
    report: &mut Report,
) -> Result<(), String> {
    let (m, n, cols) = (case.m, case.w.rows(), case.w.cols());
    let text = |e: KernelError| case.text(e);
    let plan = case.plan().map_err(text)?;
    // At any address.
    let mut moved = vec![0];
    moved.extend(case.w.as_bytes());
    let bytes = Guarded::copy_of(&moved, edge);
    let w = QuantRef::new(&bytes[1..], case.w.format(), n, cols).map_err(text)?;
    let y = case.run(&plan, w.into(), None, [n + 3, 1], edge)?;
    let sums = case.sums(true)?;
    case.compare(&y, &[], &sums, [true, exact], report)?;
    report.cases += 1;
    let plain = Kernels::<f32>::with(Caps::SCALAR);
    let buf = packed(&plain, w, edge)?;
    let p = plain.packed_q(w.format(), n, cols, &buf).map_err(text)?;
    let columns = case.run(&plan, p.into(), None, [1, m + 1], edge)?;
    // Plain floating point stays in place.
    let in_place = case.w.format().is_float();
    if case.coarse(in_place) == case.coarse(true) {
        case.compare(&columns, &[], &sums, [in_place, exact], report)?;
    } else {
        case.compare(&columns, &[], &case.sums(in_place)?, [in_place, exact], report)?;
    }
    if plan.precision() == Precision::Integer {
        // Where weights are unpacked, all results are the same: on every instruction set, packed and in place. So are those
        // of kernels for packed weights.
        let scalar = Kernels::<E>::with(Caps::SCALAR);
        let scalar = Case { k: &scalar, ..*case };
        let of_scalar = |w| scalar.run(&scalar.plan().map_err(text)?, w, None, [n, 1], edge);
        if case.unpacks(true) == scalar.unpacks(true) {
            case.equal("packed, this and scalar code", &columns, &of_scalar(p.into())?)?;
        }
        if !case.few() && !scalar.few() {
            case.equal("this and scalar code", &y, &of_scalar(w.into())?)?;
        }
        if case.unpacks(true) && case.unpacks(false) {
            case.equal("packed and in place", &columns, &y)?;
        }
    }
    prepared(case, &plan, w.into(), &y, edge)?;
    prepared(case, &plan, p.into(), &columns, edge)?;
    for beside in beside {
        match beside {
            Beside::Parts => {
                parts(case, w.into(), &y, edge)?;
                parts(case, p.into(), &columns, edge)?;
            }
            Beside::Finish => finished(case, w, (&sums, exact), edge, report)?,
        }
    }
    Ok(())
}

/// Parts have the bits of the whole.
fn parts<E: Element>(
    case: &Case<'_, E>,
    w: QuantWeights<'_>,
    whole: &[f32],
    edge: Edge,
) -> Result<(), String> {
    let (rows, n) = (case.m.div_ceil(2), w.rows());
    let plan = case.plan().map_err(|e| case.text(e))?;
    let start = (n / 2).next_multiple_of(16).min(n);
    for (start, len) in [(0, start), (start, n - start)] {
        let part = w.row_range(start, len).map_err(|e| case.text(e))?;
        let got = case.run(&plan.resized(rows, len), part, None, [len, 1], edge)?;
        let want: Vec<f32> = (0..rows).flat_map(|i| whole[i * n + start..][..len].to_vec()).collect();
        case.equal("a part and the whole", &got, &want)?;
    }
    Ok(())
}

/// Bias and activation are what the operators of these names do.
fn finished<E: Element>(
    case: &Case<'_, E>,
    w: QuantRef<'_>,
    (sums, exact): (&Sums, bool),
    edge: Edge,
    report: &mut Report,
) -> Result<(), String> {
    let (m, n) = (case.m, w.rows());
    let plan = case.plan().map_err(|e| case.text(e))?;
    let bias: Vec<f32> = (0..n).map(|j| j as f32 - 1.5).collect();
    let biased = case.run(&plan, w.into(), Some(&bias), [n, 1], edge)?;
    case.compare(&biased, &bias, sums, [true, exact], report)?;
    for activation in Activation::ALL {
        let got = case.run(&plan.activation(activation), w.into(), Some(&bias), [n, 1], edge)?;
        let mut want = vec![f32::NAN; m * n];
        let k = Kernels::<f32>::forced(case.k.level()).map_err(|e| case.text(e))?;
        match activation {
            Activation::Relu => k.relu(&biased, &mut want),
            Activation::Gelu => k.gelu(&biased, &mut want),
            Activation::GeluTanh => k.gelu_tanh(&biased, &mut want),
            _ => k.silu(&biased, &mut want),
        }
        .map_err(|e| case.text(e))?;
        case.equal("bias and activation", &got, &want)?;
    }
    Ok(())
}

/// Whether the plan brings activations into panels for these weights.
fn in_panels<E: Element>(plan: &QgemmPlan<E>, packed: bool) -> bool {
    plan.packed(packed).prepared_row_step() > 1
}

/// Activations that were prepared before have the same results, in one go and in parts.
fn prepared<E: Element>(
    case: &Case<'_, E>,
    plan: &QgemmPlan<E>,
    w: QuantWeights<'_>,
    want: &[f32],
    edge: Edge,
) -> Result<(), String> {
    let ([m, n, cols], text) = (plan.shape(), |e: KernelError| case.text(e));
    let plan = plan.packed(w.is_packed());
    let size = plan.prepared_size().map_err(text)?;
    let mut buf = Guarded::<u8>::poisoned(size.size_unaligned(), edge);
    let x = MatRef::new(case.x, m, cols).map_err(text)?;
    let mut memory = Guarded::<u8>::poisoned(plan.scratch_prepared().map_err(text)?.size_unaligned(), edge);
    let mut y = Guarded::<f32>::poisoned(m * n, edge);
    let done = call(|| {
        let x = plan.prepare(x, &mut buf)?;
        plan.run(MatMut::new(&mut y, m, n)?, w, x, None, Scratch::new(&mut memory))?;
        if !plan.prepares_as(&plan.resized(m, n + 1)) || plan.prepares_as(&plan.packed(!w.is_packed())) {
            return Err(KernelError::BadParameter { arg: "plan", expected: "the same preparation" });
        }
        Ok(())
    });
    done.map_err(text)?;
    match differ(&y, want) {
        Some(i) => return Err(case.text(format!("prepared, element {i}: {} and {}", y[i], want[i]))),
        None if y.intact() && buf.intact() && memory.intact() => {}
        None => return Err(case.text("writes outside of its memory")),
    }
    // Part by part.
    let mut memory = vec![0xff; size.size_unaligned()];
    let skip = if memory.is_empty() { 0 } else { memory.as_ptr().align_offset(size.align()) };
    let room = &mut memory[skip..skip + size.size()];
    let (step, mut first, mut at) = (plan.prepared_row_step(), 0, 0);
    while first < m {
        let rows = step.min(m - first);
        let len = plan.resized(rows, n).prepared_size().map_err(text)?.size();
        let part = x.row_range(first, rows).map_err(text)?;
        plan.prepare_rows(part, &mut room[at..at + len]).map_err(text)?;
        (first, at) = (first + rows, at + len);
    }
    if at != room.len() {
        return Err(case.text(format!("parts have {at} bytes, all rows {}", room.len())));
    }
    let x = plan.prepared(x, room).map_err(text)?;
    let mut scratch = vec![0; plan.scratch_prepared().map_err(text)?.size_unaligned()];
    let mut y = vec![f32::NAN; m * n];
    let out = MatMut::new(&mut y, m, n).map_err(text)?;
    plan.run(out, w, x, None, Scratch::new(&mut scratch)).map_err(text)?;
    case.equal("prepared in parts", &y, want)
}

/// A NaN among the activations of one row is NaN in its products alone.
fn not_finite(k: &Kernels<f32>, w: QuantRef<'_>, precision: Precision) -> Result<(), String> {
    for m in [3, 14] {
        let mut x = vec![0.5f32; m * w.cols()];
        x[(m - 2) * w.cols() + 77] = f32::NAN;
        let case = Case { k, w, x: &x, m, precision };
        let plan = case.plan().map_err(|e| case.text(e))?;
        let y = case.run(&plan, w.into(), None, [w.rows(), 1], Edge::End)?;
        if (0..m * w.rows()).any(|i| y[i].is_nan() != (i / w.rows() == m - 2)) {
            return Err(case.text(format!("a NaN in row {} gave {y:?}", m - 2)));
        }
    }
    Ok(())
}

/// Whether bf16 are multiplied in pairs.
fn by_pairs(caps: Caps) -> bool {
    Kernels::<bf16>::with(caps).kernel(Op::Gemm, None).is_some_and(|row| row.name.ends_with("_bf16"))
}

/// Products with weights that are plain floating point have no integers.
fn precisions(format: QuantFormat) -> &'static [Precision] {
    let all = &[Precision::Exact, Precision::Bf16, Precision::Integer];
    &all[..if format.is_float() { 2 } else { 3 }]
}

/// What of a format makes a difference beyond how it is unpacked: the lengths of blocks and groups, whether there are offsets,
/// of how many columns kernels for small codes can sum products.
fn class(format: QuantFormat, codes: &[i8]) -> (usize, usize, bool, Option<usize>) {
    let largest = codes.iter().map(|code| code.unsigned_abs()).max().unwrap_or(0);
    let group = format.group_len();
    let fits = |columns: usize| columns / 2 * 127 * usize::from(largest) <= i16::MAX as usize;
    (
        format.block_len(),
        group,
        format.has_offsets(),
        [group, group / 2].into_iter().find(|&columns| fits(columns)),
    )
}

/// Whether a format is the first of its class. The others have the same microkernels and take the same ways.
fn leads(format: QuantFormat) -> Result<bool, String> {
    let class_of = |format: QuantFormat| -> Result<_, String> {
        let vectors = vectors(format).ok_or_else(|| format!("no vectors for {format}"))?;
        let w =
            QuantRef::new(&vectors.blocks, format, MATRIX_ROWS, MATRIX_COLS).map_err(|e| e.to_string())?;
        Ok(class(format, &unpacked(w)?.0))
    };
    let own = class_of(format)?;
    for &other in QuantFormat::ALL.iter().take_while(|&&other| other != format) {
        if class_of(other)? == own {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `qgemm`: shapes around tiles and panels; whole numbers exactly. Microkernels multiply integers and take activations of any
/// type in the same form. So all other precisions and types of activations are checked once for each level, with its
/// kernels in compiled code, and all shapes once for each class of formats.
pub fn qgemm(row: &KernelInfo) -> Outcome {
    let (format, vectors) = subject(row)?;
    let text = |e: KernelError| e.to_string();
    // What takes weights in place by AVX-VNNI, which is slow if it is emulated, has rows of its own.
    let more = Features::AVX_VNNI.without(row.requires);
    let caps = caps().restricted_to(row.level).map_err(text)?.without(more);
    let k = Kernels::<f32>::with(caps).with_qgemv(row).map_err(text)?;
    let tiles = Kernels::<bf16>::with(caps);
    let by_tiles = tiles.kernel(Op::Gemm, None).is_some_and(|row| row.name.contains("_amx_"));
    fn fast<E: Element>(k: &Kernels<E>, m: usize) -> Result<Precision, String> {
        let plan = k.qgemm_plan(QuantFormat::Q8_0, m, 1, 0, Precision::Fast).map_err(|e| e.to_string())?;
        Ok(plan.precision())
    }
    let fastest = [fast(&k, 8)?, fast(&k, 64)?, fast(&tiles, 64)?];
    let [narrowed, exact] =
        if by_tiles { [Precision::Bf16, Precision::Exact] } else { [Precision::Integer; 2] };
    if fastest != [Precision::Integer, narrowed, exact] {
        return Err(format!("chooses {fastest:?}"));
    }
    // Plain floating point has no integers: what is multiplied fastest with no larger errors.
    let [few, many] = match format {
        QuantFormat::Bf16 if by_pairs(caps) => [Precision::Exact, Precision::Bf16],
        _ if format.is_float() => [Precision::Exact; 2],
        _ => [Precision::Integer; 2],
    };
    let chosen = |m| k.qgemm_plan(format, m, 1, 0, Precision::Integer).map(|plan| plan.precision());
    if [chosen(8), chosen(9)] != [Ok(few), Ok(many)] {
        return Err(format!("integers become {:?}", [chosen(8), chosen(9)]));
    }
    let mut report = Report::BOUND;
    let mut source = Source::new(row.name.len() as u64);
    let len = format.block_len();
    let sizes = [(9, 1), (13, 17), (66, 33), (8, 16), (2, 5), (12, 48), (27, 15), (1, 18), (0, 3), (10, 0)];
    let sizes = [&sizes[..], &[(3, 300), (5, 35)]].concat();
    let (of_level, leads) = (row.name.ends_with(&format!("__{}", row.level)), leads(format)?);
    let sizes = &sizes[..match (effort(), leads) {
        (0, _) => 2,
        (1, _) => 3,
        (_, false) => 4,
        (_, true) => sizes.len(),
    }];
    // Parts of a unit of 256 columns, whole ones, more than are unpacked at a time.
    let depths = [len, 256, 256 + len, 1024 + 256 + len];
    for (i, &(m, n)) in sizes.iter().enumerate() {
        let cols = depths[i % depths.len()];
        let edge = Edge::BOTH[i % 2];
        let beside = if leads { &Beside::ALL[..] } else { &Beside::ALL[i % 2..][..1] };
        let mut bytes = shuffled_blocks(&mut source, format, &vectors, n * cols / len);
        let w = QuantRef::new(&bytes, format, n, cols).map_err(text)?;
        let x: Vec<f32> = source.normals(m * cols);
        let all = of_level && (leads || i == 1);
        for &precision in precisions(format) {
            if all || precision == Precision::Integer {
                check(&Case { k: &k, w, x: &x, m, precision }, false, beside, edge, &mut report)?;
            }
        }
        if all {
            of_halves::<f16>(caps, &mut source, w, m, beside, edge, &mut report)?;
            of_halves::<bf16>(caps, &mut source, w, m, beside, edge, &mut report)?;
        }

        // Scales of 1, and activations whose scale is 1: whole numbers, or eighths of them.
        for block in bytes.chunks_exact_mut(format.block_bytes()) {
            for &at in halves(format) {
                block[at..at + 2].copy_from_slice(&0x3c00u16.to_le_bytes());
            }
        }
        let w = QuantRef::new(&bytes, format, n, cols).map_err(text)?;
        if !format.is_float() && specified(w)?.iter().all(|w| (w * 8.0).fract() == 0.0) {
            let mut x: Vec<f32> = source.whole(m * cols, 2);
            x.chunks_mut(32).for_each(|group| group[0] = 127.0);
            let precision = Precision::Integer;
            check(&Case { k: &k, w, x: &x, m, precision }, true, &[], edge, &mut report)?;
        }
    }
    for &precision in precisions(format) {
        of_no_columns(&k, format, precision).map_err(text)?;
    }
    let w = QuantRef::new(&vectors.blocks, format, 2, 512).map_err(text)?;
    for &precision in precisions(format) {
        not_finite(&k, w, precision)?;
    }
    extremes(&k, format)?;
    Ok(report)
}

/// Sums of the largest products have room: codes and activations are all as large as they can be.
fn extremes(k: &Kernels<f32>, format: QuantFormat) -> Result<(), String> {
    let (m, n, cols) = (9, 4, 512);
    let mut bytes = vec![0; n * cols / format.block_len() * format.block_bytes()];
    let rows = bytes.chunks_exact_mut(format.block_bytes() * (cols / format.block_len()));
    for (row, byte) in rows.zip([0x00, 0xff, 0x88, 0x77]) {
        for block in row.chunks_exact_mut(format.block_bytes()) {
            block.fill(byte);
            for &at in halves(format) {
                block[at..at + 2].copy_from_slice(&0x3c00u16.to_le_bytes());
            }
        }
    }
    let w = QuantRef::new(&bytes, format, n, cols).map_err(|e| e.to_string())?;
    let x: Vec<f32> = (0..m * cols).map(|i| if i / cols % 2 == 0 { 1.0 } else { -1.0 }).collect();
    let plain = Kernels::<f32>::with(Caps::SCALAR);
    let [got, want] = [k, &plain].map(|k| {
        let case = Case { k, w, x: &x, m, precision: Precision::Integer };
        case.run(&case.plan().map_err(|e| case.text(e))?, w.into(), None, [n, 1], Edge::End)
    });
    match (format.is_float(), differ(&got?, &want?)) {
        (false, Some(i)) => Err(format!("the largest products, element {i}, are not those of scalar code")),
        _ => Ok(()),
    }
}

/// Sums of nothing are 0, by every way.
fn of_no_columns(k: &Kernels<f32>, format: QuantFormat, precision: Precision) -> Result<(), KernelError> {
    for m in [1, 9] {
        let plan = k.qgemm_plan(format, m, 3, 0, precision)?;
        let mut memory = vec![0; plan.scratch()?.size_unaligned()];
        let mut y = vec![f32::NAN; 3 * m];
        let (x, w) = (MatRef::new(&[], m, 0)?, QuantRef::new(&[], format, 3, 0)?);
        plan.run(MatMut::new(&mut y, m, 3)?, w, x, None, Scratch::new(&mut memory))?;
        assert!(y.iter().all(|&y| y == 0.0), "{y:?} instead of zeros");
    }
    Ok(())
}

/// The same with activations of 16 bits.
fn of_halves<E: Element>(
    caps: Caps,
    source: &mut Source,
    w: QuantRef<'_>,
    m: usize,
    beside: &[Beside],
    edge: Edge,
    report: &mut Report,
) -> Result<(), String> {
    let k = Kernels::<E>::with(caps);
    if k.level() == IsaLevel::Scalar && effort() <= 1 {
        return Ok(());
    }
    let x: Vec<E> = source.normals(m * w.cols());
    for &precision in precisions(w.format()) {
        check(&Case { k: &k, w, x: &x, m, precision }, false, beside, edge, report)?;
    }
    Ok(())
}
