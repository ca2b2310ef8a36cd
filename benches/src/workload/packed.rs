//! Products of quantised weights with quantised activations, and packing for them.

use gllm_kernels_core::{
    Element, KernelError, MatMut, MatRef, Op, PackedQ, Precision, QgemmPlan, QuantFormat, QuantRef,
    QuantWeights, Scratch,
};
use gllm_kernels_std::AlignedVec;
use gllm_testkit::packed::rounded;

use super::matrices::{dot, dot_bound, weights};
use super::produce::{Number, Operand, Workload};
use super::{call, each_element, Case, Context, Cost, Engine, Entry, Sizes};
use crate::arena::bytes;
use crate::limits::memory::Traffic;

/// Rows of weights before they repeat: whole panels of rows that repeat themselves.
const PERIOD: usize = 7 * PackedQ::ROW_STEP;

/// What is timed.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// The product with packed weights, activations being quantised in each call.
    Product,
    /// The same with weights in place.
    InPlace,
    /// Packing the weights.
    Pack,
}

/// Weights, as they are stored and packed, and operands of a product.
struct Packed<'a, E: Element> {
    engine: Engine<'a, E>,
    form: Form,
    format: QuantFormat,
    rows: usize,
    x: Operand<'a, E>,
    stored: &'a [u8],
    decoded: Vec<f64>,
    packed: &'a mut [u8],
    scratch: AlignedVec<u8>,
    y: Vec<f32>,
}

/// Bytes of a packed matrix.
fn packed_size(case: &Case) -> usize {
    let format = case.format.expect("quantised entries are made with a format");
    // A size that is refused here is refused by the call, too.
    format.packed_size(case.shape.n, case.shape.k).unwrap_or(0)
}

fn build<'a, E: Element + Number>(mut c: Context<'a>, form: Form) -> Box<dyn Workload + 'a> {
    let (rows, cols) = (c.case.shape.n, c.case.shape.k);
    let format = c.case.format.expect("quantised entries are made with a format");
    let engine = Engine::new(&c);
    let packed = c.carver.take(if form == Form::InPlace { 0 } else { packed_size(&c.case) });
    // Products of packed weights read them alone: a period of stored ones is enough to make them from.
    let stored = if form == Form::Product { rows.min(PERIOD) } else { rows };
    let (w, decoded) = weights(
        c.carver.take(stored * cols / format.block_len() * format.block_bytes()),
        format,
        stored,
        cols,
    );
    let x = Operand::random(c.carver.take::<E>(cols), cols, 2, -1.0, 1.0);
    let (scratch, y) = (AlignedVec::zeroed(0), vec![0.0; rows]);
    Box::new(Packed { engine, form, format, rows, x, stored: w.as_bytes(), decoded, packed, scratch, y })
}

impl<E: Element + Number> Packed<'_, E> {
    fn cols(&self) -> usize {
        self.x.data.len()
    }

    fn pack(&mut self) -> Result<(), KernelError> {
        let kernels = self.engine.kernels();
        match self.form {
            Form::InPlace => return Ok(()),
            Form::Pack => {
                let w = QuantRef::new(self.stored, self.format, self.rows, self.cols())?;
                return call!(&self.engine, pack_q(w, self.packed)).map(drop);
            }
            Form::Product => {}
        }
        let w = QuantRef::new(self.stored, self.format, self.rows.min(PERIOD), self.cols())?;
        let room = kernels.packed_q_room(self.format, self.rows, w.cols(), self.packed)?;
        let part = (room.len() / self.rows.div_ceil(PackedQ::ROW_STEP).max(1)).max(1);
        for (i, part) in room.chunks_mut(part).enumerate() {
            let first = i * PackedQ::ROW_STEP;
            let rows = (self.rows - first).min(PackedQ::ROW_STEP);
            kernels.pack_q_rows(w.row_range(first % PERIOD, rows)?, part)?;
        }
        Ok(())
    }

    /// A plan for the kernels of this form.
    fn plan(&self) -> Result<QgemmPlan<E>, KernelError> {
        let op = if self.form == Form::InPlace { Op::QgemvQ8 } else { Op::QgemvPacked };
        let (kernels, cols) = (self.engine.kernels(), self.cols());
        kernels.qgemm_plan(self.format, 1, self.rows, cols, Precision::Integer)?.with_kernel(op)
    }

    fn product(&mut self) -> Result<(), KernelError> {
        let (cols, plan) = (self.cols(), self.plan()?);
        let w = if self.form == Form::InPlace {
            QuantWeights::from(QuantRef::new(self.stored, self.format, self.rows, cols)?)
        } else {
            self.engine.kernels().packed_q(self.format, self.rows, cols, self.packed)?.into()
        };
        let (x, y) = (MatRef::new(&*self.x.data, 1, cols)?, MatMut::new(&mut self.y, 1, self.rows)?);
        match &self.engine {
            Engine::One(_) => {
                let need = plan.scratch()?.size_unaligned();
                if self.scratch.len() < need {
                    self.scratch = AlignedVec::zeroed(need);
                }
                plan.run(y, w, x, None, Scratch::new(&mut self.scratch))
            }
            Engine::Many(p) => p.qgemm(&plan, y, w, x, None),
        }
    }
}

impl<E: Element + Number> Workload for Packed<'_, E> {
    fn set_up(&mut self) {
        self.x.data.copy_from_slice(&self.x.pattern);
        self.pack().expect("the case was checked");
    }

    fn call(&mut self) -> Result<(), KernelError> {
        match self.form {
            Form::Product | Form::InPlace => self.product(),
            Form::Pack => self.pack(),
        }
    }

    fn verify(&mut self) -> Result<f64, String> {
        self.set_up();
        self.call().and_then(|()| self.product()).map_err(|e| e.to_string())?;
        let cols = self.cols();
        // As the kernels see them: rounded to 8 bits, unless weights are plain floating point.
        let view = MatRef::new(&*self.x.data, 1, cols).map_err(|e| e.to_string())?;
        let plan = self.plan().map_err(|e| e.to_string())?;
        let mut steps = vec![0; plan.prepared_size().map_err(|e| e.to_string())?.size_unaligned()];
        let x = rounded(&plan.prepare(view, &mut steps).map_err(|e| e.to_string())?, 0);
        let wanted: Vec<_> = self.decoded.chunks(cols).map(|row| dot(row, &x[..cols])).collect();
        let mut worst = 0.0;
        for (r, &got) in self.y.iter().enumerate() {
            let want = wanted[r % wanted.len()];
            let error = (f64::from(got) - want.value).abs() / want.scale.max(f64::from(f32::MIN_POSITIVE));
            // Written so that NaN fails.
            if error <= dot_bound(cols) {
                worst = f64::max(worst, error);
            } else {
                return Err(format!("output {r} is {got:e}, should be {:e}: error {error:.2e}", want.value));
            }
        }
        Ok(worst)
    }

    fn changes_input(&self) -> bool {
        false
    }

    fn inputs(&self) -> Vec<&[u8]> {
        vec![self.stored, bytes(self.x.data)]
    }

    fn output(&self) -> &[u8] {
        match self.form {
            Form::Product | Form::InPlace => bytes(&self.y),
            Form::Pack => self.packed,
        }
    }
}

fn qgemv_packed<'a, E: Element + Number>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    build::<E>(c, Form::Product)
}
fn qgemv_q8<'a, E: Element + Number>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    build::<E>(c, Form::InPlace)
}
fn pack_q<'a, E: Element + Number>(c: Context<'a>) -> Box<dyn Workload + 'a> {
    build::<E>(c, Form::Pack)
}

/// Rows of activations, quantised.
struct Quantize<'a, E: Element> {
    engine: Engine<'a, E>,
    x: Operand<'a, E>,
    cols: usize,
    steps: &'a mut [u8],
}

fn quantize_activations<'a, E: Element + Number>(mut c: Context<'a>) -> Box<dyn Workload + 'a> {
    let (rows, cols) = (c.case.shape.m, c.case.shape.n);
    let engine = Engine::<E>::new(&c);
    let size = QgemmPlan::<E>::prepared_bound(rows, cols).map_or(0, |req| req.size_unaligned());
    let x = Operand::random(c.carver.take::<E>(rows * cols), super::produce::PERIOD, 1, -1.0, 1.0);
    Box::new(Quantize { engine, x, cols, steps: c.carver.take(size) })
}

impl<E: Element> Quantize<'_, E> {
    /// A plan that rounds activations for weights in place.
    fn plan(&self, rows: usize) -> Result<QgemmPlan<E>, KernelError> {
        let plan =
            self.engine.kernels().qgemm_plan(QuantFormat::Q8_0, rows, 0, self.cols, Precision::Integer)?;
        plan.with_kernel(Op::QgemvQ8)
    }
}

impl<E: Element + Number> Workload for Quantize<'_, E> {
    fn set_up(&mut self) {
        for part in self.x.data.chunks_mut(self.x.pattern.len().max(1)) {
            part.copy_from_slice(&self.x.pattern[..part.len()]);
        }
    }

    fn call(&mut self) -> Result<(), KernelError> {
        let x = MatRef::new(&*self.x.data, self.x.data.len() / self.cols, self.cols)?;
        let plan = self.plan(x.rows())?;
        match &self.engine {
            Engine::One(_) => plan.prepare(x, self.steps),
            Engine::Many(p) => p.prepare(&plan, x, self.steps),
        }
        .map(drop)
    }

    fn verify(&mut self) -> Result<f64, String> {
        self.set_up();
        let rows = self.x.data.len() / self.cols;
        let x = MatRef::new(&*self.x.data, rows, self.cols).map_err(|e| e.to_string())?;
        let plan = self.plan(rows).map_err(|e| e.to_string())?;
        let q = plan.prepare(x, self.steps).map_err(|e| e.to_string())?;
        let mut worst = 0.0;
        for (m, row) in self.x.data.chunks(self.cols).enumerate() {
            for (g, x) in row.chunks(32).enumerate() {
                let (q, d) = q.group(m, g).ok_or("a group is missing")?;
                for (x, &q) in x.iter().zip(q) {
                    let off = (x.wide() / f64::from(d) - f64::from(q)).abs();
                    // Written so that NaN fails.
                    if off <= 0.501 {
                        worst = f64::max(worst, off);
                    } else {
                        return Err(format!("row {m}, group {g}: {} became {q} times {d}", x.wide()));
                    }
                }
            }
        }
        Ok(worst)
    }

    fn changes_input(&self) -> bool {
        false
    }

    fn inputs(&self) -> Vec<&[u8]> {
        vec![bytes(self.x.data)]
    }

    fn output(&self) -> &[u8] {
        self.steps
    }
}

pub(super) static ENTRIES: &[Entry] = &[
    Entry {
        name: "qgemv_q8",
        op: Op::QgemvQ8,
        sizes: Sizes::MatVec,
        quantised: true,
        cost: |case| {
            let (n, k) = (case.shape.n as f64, case.shape.k as f64);
            let moved = case.weights(n * k) + k * case.size() + 4.0 * n;
            Cost { flops: 2.0 * n * k, moved, working_set: moved, traffic: Traffic::Read }
        },
        build: [Some(qgemv_q8::<f32>), None, None, None],
        halves: false,
    },
    Entry {
        name: "qgemv_packed",
        op: Op::QgemvPacked,
        sizes: Sizes::MatVec,
        quantised: true,
        cost: |case| {
            let (n, k) = (case.shape.n as f64, case.shape.k as f64);
            // The format's own size counts, whatever the packed weights take.
            let moved = case.weights(n * k) + k * case.size() + 4.0 * n;
            let room = packed_size(case) as f64 + case.weights(PERIOD as f64 * k) + k * case.size();
            Cost { flops: 2.0 * n * k, moved, working_set: room, traffic: Traffic::Read }
        },
        build: [Some(qgemv_packed::<f32>), None, None, None],
        halves: false,
    },
    Entry {
        name: "pack_q",
        op: Op::PackQ,
        sizes: Sizes::MatVec,
        quantised: true,
        cost: |case| {
            let (n, k) = (case.shape.n as f64, case.shape.k as f64);
            let packed = packed_size(case) as f64;
            let moved = case.weights(n * k) + packed;
            Cost { flops: 0.0, moved, working_set: moved + k * case.size(), traffic: Traffic::Copy }
        },
        build: [Some(pack_q::<f32>), None, None, None],
        halves: false,
    },
    Entry {
        name: "quantize_activations",
        op: Op::QuantizeActivations,
        sizes: Sizes::Rows,
        quantised: false,
        cost: |case| {
            let (m, n) = (case.shape.m as f64, case.shape.n as f64);
            // A size that is refused here is refused by the call, too.
            let steps = QgemmPlan::<f32>::prepared_bound(case.shape.m, case.shape.n);
            let steps = steps.map_or(0.0, |req| req.size_unaligned() as f64);
            let moved = m * n * case.size() + steps;
            Cost { flops: 0.0, moved, working_set: moved, traffic: Traffic::Copy }
        },
        build: each_element!(quantize_activations),
        halves: false,
    },
];
