//! Products with quantised weights.

use super::*;

/// A vector as three rows.
pub fn thrice<E: Element>(x: &[E]) -> MatRef<'_, E> {
    MatRef::with_strides(x, 3, x.len(), 0, 1).unwrap()
}

/// A product by the kernels of `op`, with activations as they are and prepared.
pub fn check_kernel<E: Element>(op: Op, w: QuantWeights<'_>, x: MatRef<'_, E>) {
    let (m, n, cols) = (x.rows(), w.rows(), w.cols());
    let plan = kernels::<E>().qgemm_plan(w.format(), m, n, cols, Precision::Integer).unwrap();
    let plan = plan.with_kernel(op).unwrap();
    let (mut want, mut memory) = (vec![f32::NAN; m * n], vec![0; plan.scratch().unwrap().size_unaligned()]);
    plan.run(MatMut::new(&mut want, m, n).unwrap(), w, x, None, Scratch::new(&mut memory)).unwrap();
    for runtime in runtimes() {
        let p = Parallel::<E>::new(runtime);
        let mut room = vec![0; plan.prepared_size().unwrap().size_unaligned()];
        let prepared = p.prepare(&plan, x, &mut room).unwrap();
        for x in [x.into(), prepared] {
            let mut y = vec![f32::NAN; m * n];
            p.qgemm(&plan, MatMut::new(&mut y, m, n).unwrap(), w, x, None).unwrap();
            let same = y.iter().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{op:?} {} {m}x{n}x{cols} {runtime:?}", w.format());
        }
        let mut other = vec![0.0; m * n + m];
        let wrong = p.qgemm(&plan, MatMut::new(&mut other, m, n + 1).unwrap(), w, x, None);
        assert!(matches!(wrong, Err(KernelError::DimMismatch { .. })), "{wrong:?}");
    }
}

pub fn check_packed<E: Element>(w: QuantRef<'_>, x: &[E]) {
    let (format, rows, cols) = (w.format(), w.rows(), w.cols());
    let core = kernels::<E>();
    let size = format.packed_size(rows, cols).unwrap();
    let (mut one, mut many) = (vec![0; size + 64], vec![0; size + 64]);
    // Equally aligned, so that contents start at the same place.
    let same = (one.as_ptr() as usize).wrapping_sub(many.as_ptr() as usize) % 64;
    let (one, many) = (&mut one[..size], &mut many[same..][..size]);
    core.pack_q(w, one).unwrap();
    for runtime in runtimes() {
        let packed = Parallel::<E>::new(runtime).pack_q(w, many).unwrap();
        check_kernel(Op::QgemvPacked, packed.into(), thrice(x));
    }
    assert_eq!(one, many, "{format} {rows}x{cols}");
}

/// Quantised matrix products: the same bits on every runtime, alone and in groups, in place and packed.
fn check_qgemm<E: Element>(core: Kernels<E>, format: QuantFormat, [m, n, cols]: [usize; 3]) {
    // To quantise them takes longer than to multiply them: rows come again, at a distance at which no part begins.
    let some = n.min(61);
    let mut bytes = vec![0; format.row_bytes(cols).unwrap() * some];
    kernels::<f32>().quantize(format, &numbers::<f32>(some * cols, 1), None, &mut bytes).unwrap();
    let bytes: Vec<u8> = bytes.iter().copied().cycle().take(bytes.len() / some * n).collect();
    let w = QuantRef::new(&bytes, format, n, cols).unwrap();
    let mut buf = vec![0; format.packed_size(n, cols).unwrap()];
    let p = core.pack_q(w, &mut buf).unwrap();
    let (x, bias) = (numbers::<E>(m * cols, 2), numbers::<f32>(n, 3));
    let view = |m| MatRef::new(&x[..m * cols], m, cols).unwrap();
    let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
    let ways = [
        (Precision::Integer, QuantWeights::from(w)),
        (Precision::Integer, p.into()),
        (Precision::Exact, p.into()),
        (Precision::Exact, w.into()),
        (Precision::Bf16, w.into()),
        (Precision::Bf16, p.into()),
    ];
    // Under emulation every other one, from the first or from the second on: each precision in place or packed.
    let (skip, step) = if is_emulated() { (cols / 64 % 2, 2) } else { (0, 1) };
    for (precision, w) in ways.into_iter().skip(skip).step_by(step) {
        let run = |m, bias, activation| {
            let plan = core.qgemm_plan(format, m, n, cols, precision).unwrap();
            let plan = if activation { plan.activation(Activation::Silu) } else { plan };
            let mut memory = vec![0; plan.scratch().unwrap().size_unaligned()];
            let mut y = vec![f32::NAN; m * n];
            let out = MatMut::new(&mut y, m, n).unwrap();
            plan.run(out, w, view(m), bias, Scratch::new(&mut memory)).unwrap();
            (plan, y)
        };
        let (plan, want) = run(m, Some(&bias[..]), true);
        let counts = [m, 0, 1, m / 2];
        let alone = counts.map(|m| run(m, None, false).1);
        for runtime in runtimes() {
            let ops = Parallel::with_kernels(runtime, core);
            let mut y = vec![f32::NAN; m * n];
            ops.qgemm(&plan, MatMut::new(&mut y, m, n).unwrap(), w, view(m), Some(&bias)).unwrap();
            assert!(same(&y, &want), "{format} {m}x{n}x{cols}");
            let plan_of = |m| core.qgemm_plan(format, m, n, cols, precision).unwrap().packed(w.is_packed());
            let mut rooms = counts.map(|m| vec![0; plan_of(m).prepared_size().unwrap().size_unaligned()]);
            for prepared in [false, true] {
                let mut outs = counts.map(|m| vec![f32::NAN; m * n]);
                let groups = counts.into_iter().zip(&mut outs).zip(&mut rooms).map(|((m, y), room)| {
                    let (plan, y) = (plan_of(m), MatMut::new(y, m, n).unwrap());
                    let x =
                        if prepared { ops.prepare(&plan, view(m), room).unwrap() } else { view(m).into() };
                    QgemmGroup { plan, y, w, x, bias: None }
                });
                ops.qgemm_grouped(&mut groups.collect::<Vec<_>>()).unwrap();
                assert!(
                    outs.iter().zip(&alone).all(|(a, b)| same(a, b)),
                    "{format} {m}x{n}x{cols} in groups"
                );
            }
            let wrong = ops.qgemm(&plan, MatMut::new(&mut y, n, m).unwrap(), w, view(m), None);
            assert!(matches!(wrong, Err(KernelError::DimMismatch { .. })));
        }
    }
}

#[test]
fn qgemm() {
    // What this machine has, and what can be emulated, if that is more.
    let (real, emulated) = (gllm_kernels_std::caps(), gllm_testkit::caps());
    for caps in [real].into_iter().chain((emulated != real).then_some(emulated)) {
        let k = Kernels::<f32>::with(caps);
        check_qgemm(k, QuantFormat::Q4K, [37, 500, 512]);
        // A matrix of a small model that generates a token.
        check_qgemm(k, QuantFormat::Q4_1, [1, 1536, 576]);
        check_qgemm(Kernels::<bf16>::with(caps), QuantFormat::Q8_0, [5, 900, 1024]);
        check_qgemm(Kernels::<f16>::with(caps), QuantFormat::Q6K, [800, 70, 256]);
        check_qgemm(k, QuantFormat::F16, [30, 333, 320]);
    }
}

/// Plans bring their own kernels: panels of the threads' kernels may have another layout.
#[test]
fn plans_of_other_kernels() {
    let best = kernels::<f32>();
    let format = QuantFormat::Q8_0;
    let [m, n, k] = [200, 100, 256];
    let (a, b, x) = (numbers::<f32>(m * k, 1), numbers::<f32>(k * n, 2), numbers::<f32>(n * k, 3));
    let mut blocks = vec![0; format.row_bytes(n * k).unwrap()];
    best.quantize(format, &x, None, &mut blocks).unwrap();
    let (a, b) = (MatRef::new(&a, m, k).unwrap(), MatRef::new(&b, k, n).unwrap());
    let w = QuantWeights::from(QuantRef::new(&blocks, format, n, k).unwrap());
    let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
    let new = || [vec![f32::NAN; m * n], vec![f32::NAN; m * n]];
    fn view(y: &mut [f32], m: usize) -> MatMut<'_, f32> {
        let n = y.len() / m;
        MatMut::new(y, m, n).unwrap()
    }
    for level in IsaLevel::ALL {
        let Ok(other) = Kernels::<f32>::forced(level) else { continue };
        for runtime in runtimes() {
            let ops = Parallel::with_kernels(runtime, best);
            let plan = other.gemm_plan(m, n, k).unwrap();
            let [mut want, mut got] = new();
            let mut memory = vec![0; plan.scratch().unwrap().size_unaligned()];
            plan.run(view(&mut want, m), a, b, None, Scratch::new(&mut memory)).unwrap();
            assert_eq!(ops.gemm(&plan, view(&mut got, m), a, b, None), Ok(()), "{level} {runtime:?}");
            assert!(same(&got, &want), "{level} {runtime:?}");
            for precision in [Precision::Integer, Precision::Exact, Precision::Bf16] {
                let plan = other.qgemm_plan(format, m, n, k, precision).unwrap();
                let [mut want, mut got] = new();
                let mut memory = vec![0; plan.scratch().unwrap().size_unaligned()];
                plan.run(view(&mut want, m), w, a, None, Scratch::new(&mut memory)).unwrap();
                assert_eq!(ops.qgemm(&plan, view(&mut got, m), w, a, None), Ok(()), "{level} {precision:?}");
                assert!(same(&got, &want), "{level} {precision:?} {runtime:?}");
            }
        }
    }
}
