//! Quantised weights: blocks, packed blocks, and the layouts of other checkpoints.

use gllm_kernels_core::{
    f16, AwqRef, Element, External, Fp8Format, Fp8Ref, Fp8Scaling, GptqParts, GptqRef, GptqZeros,
    KernelError, Kernels, MatMut, MatRef, Op, Outliers, PackedQ, Precision, Prepared, QgemmPlan, QuantFormat,
    QuantRef, ScaleSlice, Scratch, SqueezeLlmParts, SqueezeLlmRef,
};
use gllm_testkit::Guarded;

use crate::{Agree, Call, Values};

/// Runs `op` if it is one of these.
pub fn run<E: Element>(call: &Call, op: Op) -> bool {
    match op {
        Op::Dequant | Op::Qgemv | Op::QgemvQ8 | Op::PackQ | Op::QgemvPacked | Op::Qgemm => {
            blocks::<E>(call, op)
        }
        Op::QuantizeActivations => activations::<E>(call),
        Op::DequantFp8 | Op::QgemvFp8 => fp8::<E>(call, op == Op::DequantFp8),
        Op::DequantAwq | Op::QgemvAwq | Op::DequantGptq | Op::QgemvGptq => grouped::<E>(call, op),
        Op::DequantSqueezellm | Op::QgemvSqueezellm => squeezellm::<E>(call, op == Op::DequantSqueezellm),
        _ => return false,
    }
    true
}

/// Bits at random, the same for the same call and salt.
fn random<T: Copy + Default>(call: &Call, salt: u64, n: usize, of: impl Fn(u64) -> T) -> Guarded<T> {
    let mut state = (call.seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
    let mut numbers = vec![T::default(); n];
    for x in &mut numbers {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        *x = of(state >> 32);
    }
    Guarded::copy_of(&numbers, call.edge())
}

/// Random bytes are scales of any size: sums of what they scale need not agree, nor are whole numbers times those whole.
fn sums(call: &Call, cols: usize) -> Agree {
    if call.values == Values::Wild || call.seed != 0 {
        Agree::No
    } else {
        Agree::About(1e-5 * (cols as f32).max(1.0))
    }
}

fn blocks<E: Element>(call: &Call, op: Op) {
    let format = QuantFormat::ALL[usize::from(call.dims[2]) % QuantFormat::ALL.len()];
    let blocks = usize::from(call.dims[1] % 8);
    let (rows, cols) = if call.option(0) {
        (call.sizes[0].get(), call.sizes[1].get())
    } else {
        // Of plain floating point some vectors and a part of one.
        let len = if format.is_float() { 37 } else { format.block_len() };
        (usize::from(call.dims[0] % 40), call.lengths[2].of(blocks * len))
    };
    let right = format.row_bytes(cols).ok().and_then(|b| b.checked_mul(rows)).filter(|&b| b < 1 << 20);
    let bytes = random(call, 0, call.lengths[3].of(right.unwrap_or(100)), |x| x as u8);
    let Ok(w) = QuantRef::new(&bytes, format, rows, cols) else { return };
    let (start, len) = (usize::from(call.dims[3]), call.sizes[2].get());
    let w = if call.option(1) { w.row_range(start, len).unwrap_or(w) } else { w };
    // Rows of no columns may be as many as they like, and no rows as long, but not the outputs here.
    if w.rows().max(w.cols()) >= 1 << 20 {
        return;
    }
    let batch = usize::from(call.long % if op == Op::Qgemm { 30 } else { 10 });
    let outputs = call.lengths[1].of(w.rows() * batch);
    match op {
        Op::Dequant if call.option(2) => encode::<E>(call, format),
        Op::Dequant => {
            let n = call.lengths[0].of(w.rows() * w.cols());
            call.twice::<E, E>(n, None, Agree::Exactly, |k, y| k.dequant(w, y));
        }
        Op::Qgemv => {
            let x = call.vector::<E>(1, call.lengths[0].of(cols * batch));
            call.twice::<E, f32>(outputs, None, sums(call, cols), |k, y| {
                let plan = k.qgemm_plan(format, batch, w.rows(), cols, Precision::Exact)?.with_kernel(op)?;
                let (y, x) = (MatMut::new(y, batch, w.rows())?, MatRef::new(&x, batch, cols)?);
                plan.run(y, w, x, None, Scratch::empty())
            });
        }
        Op::QgemvQ8 => call.twice::<E, f32>(outputs, None, sums(call, cols), |k, y| {
            with_activations(call, k, format, (op, [batch, w.rows(), cols]), |plan, x| {
                plan.run(MatMut::new(y, batch, w.rows())?, w, x, None, Scratch::empty())
            })
        }),
        Op::Qgemm => {
            let precision = match [call.option(5), call.option(6)] {
                // What integers become where there are none depends on the CPU.
                [false, _] if !format.is_float() => Precision::Integer,
                [_, false] => Precision::Exact,
                [_, true] => Precision::Bf16,
            };
            let integers = precision == Precision::Integer && batch > 8;
            let agree = if integers { Agree::Exactly } else { sums(call, cols) };
            let x = call.vector::<E>(1, call.lengths[0].of(cols * batch));
            call.twice::<E, f32>(outputs, None, agree, |k, y| {
                let plan = k.qgemm_plan(format, batch, w.rows(), cols, precision)?;
                let mut memory = Guarded::<u8>::poisoned(plan.scratch()?.size_unaligned(), call.edge());
                let (y, x) = (MatMut::new(y, batch, w.rows())?, MatRef::new(&x, batch, cols)?);
                plan.run(y, w, x, None, Scratch::new(&mut memory))
            });
        }
        Op::QgemvPacked => {
            // Every instruction set has the same results, whatever the panels contain: unless they are sums in f32.
            let agree = if format.is_float() { sums(call, cols) } else { Agree::Exactly };
            call.twice::<E, f32>(outputs, None, agree, |k, y| {
                with_packed(call, k, w, |p| {
                    with_activations(call, k, format, (op, [batch, p.rows(), cols]), |plan, x| {
                        plan.run(MatMut::new(y, batch, p.rows())?, p, x, None, Scratch::empty())
                    })
                })
            })
        }
        _ => {
            let n = call.lengths[1].of(cols);
            call.twice::<E, f32>(n, None, Agree::Exactly, |k, y| {
                with_packed(call, k, w, |p| p.decode_row(usize::from(call.dims[3] % 40), y))
            });
        }
    }
}

/// Calls `f` with packed weights, some of which may have been spoiled since.
fn with_packed<E: Element>(
    call: &Call,
    k: &Kernels<E>,
    w: QuantRef<'_>,
    f: impl FnOnce(PackedQ<'_>) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let size = w.format().packed_size(w.rows(), w.cols())?;
    let mut buf = Guarded::<u8>::poisoned(size, call.edge());
    k.pack_q(w, &mut buf)?;
    if call.option(3) && size > 0 {
        buf[call.sizes[3].get() % size] ^= 1 << (call.options >> 5);
    }
    let p = k.packed_q(w.format(), w.rows(), w.cols(), &buf)?;
    f(if call.option(4) { p.row_range(16, w.rows().saturating_sub(16)).unwrap_or(p) } else { p })
}

/// Calls `f` with a plan of this shape for the kernels of `op`, and activations that it has prepared.
fn with_activations<E: Element>(
    call: &Call,
    k: &Kernels<E>,
    format: QuantFormat,
    (op, [batch, rows, cols]): (Op, [usize; 3]),
    f: impl FnOnce(QgemmPlan<E>, Prepared<'_, E>) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let x = call.vector::<E>(1, call.lengths[0].of(cols * batch));
    let plan = k.qgemm_plan(format, batch, rows, cols, Precision::Integer)?.with_kernel(op)?;
    let mut buf = Guarded::<u8>::poisoned(plan.prepared_size()?.size_unaligned(), call.edge());
    f(plan, plan.prepare(MatRef::new(&x, batch, cols)?, &mut buf)?)
}

fn activations<E: Element>(call: &Call) {
    let (batch, cols) = (usize::from(call.dims[0] % 8), usize::from(call.dims[1] % 24) * 32);
    let groups = cols.div_ceil(32);
    let n = call.lengths[1].of(batch * groups * 33);
    call.twice::<E, f32>(n, None, Agree::Exactly, |k, y| {
        with_activations(call, k, QuantFormat::Q8_0, (Op::QgemvQ8, [batch, 0, cols]), |_, x| {
            if y.len() != batch * groups * 33 {
                return Err(KernelError::WrongLength { arg: "y", want: batch * groups * 33, got: y.len() });
            }
            for (i, y) in y.chunks_exact_mut(33).enumerate() {
                let (q, scale) = x.group(i / groups, i % groups).expect("the group is there");
                y[32] = scale;
                y.iter_mut().zip(q).for_each(|(y, &q)| *y = f32::from(q));
            }
            Ok(())
        })
    });
}

fn encode<E: Element>(call: &Call, format: QuantFormat) {
    let (rows, blocks) = (usize::from(call.dims[0] % 4), usize::from(call.dims[1] % 4));
    let cols = blocks * format.block_len();
    let x = call.vector::<E>(1, call.lengths[0].of(rows * cols));
    let importance = call.option(5).then(|| call.vector::<f32>(2, call.lengths[2].of(cols)));
    let n = call.lengths[1].of(rows * blocks * format.block_bytes());
    let same = |_: u8, _: u8| true;
    call.compare::<E, u8>(call.kernels(), n, None, same, same, |k, out| {
        k.quantize(format, &x, importance.as_deref(), out)
    });
}

/// Both operators of a layout.
fn external<E: Element, W: External>(call: &Call, w: W, dequant: bool) {
    let (outputs, inputs) = (w.outputs(), w.inputs());
    if dequant {
        let (rows, cols) = if W::BY_OUTPUT { (outputs, inputs) } else { (inputs, outputs) };
        let n = call.lengths[3].of(rows * cols);
        call.twice::<E, E>(n, None, Agree::Exactly, |k, y| w.dequant_with(k, MatMut::new(y, rows, cols)?));
    } else {
        let x = call.vector::<E>(9, call.lengths[3].of(inputs));
        let n = if call.option(4) { outputs } else { call.lengths[2].of(outputs) };
        call.twice::<E, f32>(n, None, Agree::No, |k, y| w.qgemv_with(k, &x, y));
    }
}

fn fp8<E: Element>(call: &Call, dequant: bool) {
    let (outputs, inputs) = (usize::from(call.dims[0] % 40), usize::from(call.dims[1]));
    let format = if call.option(0) { Fp8Format::E4m3 } else { Fp8Format::E5m2 };
    let tile = [1 + usize::from(call.dims[2] % 20), 1 + usize::from(call.dims[3])];
    let (scaling, scales) = match call.options >> 1 & 3 {
        0 => (Fp8Scaling::Tensor, 1),
        1 => (Fp8Scaling::Row, outputs),
        2 => (Fp8Scaling::Block { rows: call.sizes[0].get(), cols: call.sizes[1].get() }, 1),
        _ => {
            let scales = outputs.div_ceil(tile[0]) * inputs.div_ceil(tile[1]);
            (Fp8Scaling::Block { rows: tile[0], cols: tile[1] }, scales)
        }
    };
    let bytes = random(call, 0, call.lengths[0].of(outputs * inputs), |x| x as u8);
    let scales = call.vector::<f32>(1, call.lengths[1].of(scales));
    let w = Fp8Ref::new(&bytes, format, outputs, inputs, ScaleSlice::F32(&scales), scaling);
    if let Ok(w) = w.and_then(|w| if call.option(5) { w.output_range(3, 2) } else { Ok(w) }) {
        external::<E, _>(call, w, dequant);
    }
}

fn grouped<E: Element>(call: &Call, op: Op) {
    let awq = matches!(op, Op::DequantAwq | Op::QgemvAwq);
    let dequant = matches!(op, Op::DequantAwq | Op::DequantGptq);
    let bits = if awq { 4 } else { [2, 3, 4, 8][usize::from(call.options & 3)] };
    let (outputs, inputs) = (32 * usize::from(call.dims[0] % 5), 32 * usize::from(call.dims[1] % 9));
    let group = if call.option(3) { call.sizes[0].get() } else { 32 << (call.dims[2] % 3) };
    let groups = inputs.div_ceil(group.max(1));
    let qweight = random(call, 0, call.lengths[0].of(outputs * inputs / 32 * bits), |x| x as u32);
    let qzeros = random(call, 1, call.lengths[1].of(outputs * groups / 32 * bits), |x| x as u32);
    let scales = call.vector::<f16>(2, call.lengths[2].of(outputs * groups));
    let refs = (&*qweight, &*qzeros, &*scales);
    let (start, len) = (32 * usize::from(call.dims[3] % 3), 32);
    if awq {
        let w = AwqRef::new(refs.0, refs.1, refs.2, outputs, inputs, group);
        if let Ok(w) = w.and_then(|w| if call.option(5) { w.output_range(start, len) } else { Ok(w) }) {
            external::<E, _>(call, w, dequant);
        }
        return;
    }
    // In any order, now and then with a group that is not there.
    let order = random(call, 3, inputs, |x| {
        let any = x as u32 % 4096;
        if any == 0 {
            u32::MAX
        } else {
            any % (groups.max(1) as u32)
        }
    });
    let parts = GptqParts {
        bits: bits as u32,
        group,
        zeros: if call.option(4) { GptqZeros::V1 } else { GptqZeros::V2 },
        qweight: refs.0,
        qzeros: refs.1,
        scales: refs.2,
        g_idx: call.option(6).then_some(&order),
    };
    let w = GptqRef::new(parts, outputs, inputs);
    if let Ok(w) = w.and_then(|w| if call.option(5) { w.output_range(start, len) } else { Ok(w) }) {
        external::<E, _>(call, w, dequant);
    }
}

fn squeezellm<E: Element>(call: &Call, dequant: bool) {
    let bits = 3 + u32::from(call.option(0));
    let (outputs, inputs) = (usize::from(call.dims[0] % 40), 32 * usize::from(call.dims[1] % 9));
    let qweight = random(call, 0, call.lengths[0].of(outputs * inputs / 32 * bits as usize), |x| x as u32);
    let lookup_table = call.vector::<f32>(1, call.lengths[1].of(outputs << bits));
    // Some outliers for each output; now and then an input or a number of them that is not there.
    let each = usize::from(call.dims[2] % 4);
    let mut rows: Vec<u32> = (0..=outputs).map(|r| (r * each) as u32).collect();
    if call.option(2) {
        let at = call.sizes[0].get() % rows.len();
        rows[at] = call.sizes[1].get() as u32;
    }
    let cols = random(call, 2, call.lengths[2].of(outputs * each), |x| {
        x as u32 % (inputs as u32 + u32::from(call.option(3))).max(1)
    });
    let vals = call.vector::<f32>(3, cols.len());
    let outliers = call.option(1).then_some(Outliers { rows: &rows, cols: &cols, vals: &vals });
    let parts = SqueezeLlmParts { bits, qweight: &qweight, lookup_table: &lookup_table, outliers };
    let w = SqueezeLlmRef::new(parts, outputs, inputs);
    if let Ok(w) = w.and_then(|w| if call.option(5) { w.output_range(3, 2) } else { Ok(w) }) {
        external::<E, _>(call, w, dequant);
    }
}
