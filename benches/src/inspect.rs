//! What is in a GGUF or safetensors file, and how fast its tensors decode and multiply.

use std::path::Path;
use std::time::Duration;

use gllm_kernels_core::{
    bf16, f16, Caps, Element, ElementType, External, KernelError, Kernels, MatMut, MatRef, Precision,
    QuantRef,
};
use gllm_kernels_std::gguf::{Gguf, Tensor};
use gllm_kernels_std::safetensors::{Checkpoint, Dtype, View};
use gllm_kernels_std::{AlignedVec, Parallel, Runtime};
use serde::Serialize;

use crate::error::{Failure, Outcome};
use crate::measure::{interleave, median};

/// Elements decoded at a time: more memory than this is not needed for a tensor of any size.
const SLAB: usize = 16 << 20;

/// Least time per measurement and samples of it.
const QUICK: (Duration, usize) = (Duration::from_millis(6), 3);

/// A file.
#[derive(Debug, Serialize)]
pub struct File {
    /// As given.
    pub file: String,
    /// `GGUF` or `safetensors`.
    pub format: &'static str,
    /// GGUF version.
    pub version: Option<u32>,
    /// Bytes of the file.
    pub bytes: u64,
    /// Metadata pairs.
    pub metadata: usize,
    /// Threads that decode and multiply.
    pub threads: usize,
    /// Its tensors.
    pub tensors: Vec<Entry>,
}

/// A tensor.
#[derive(Debug, Serialize)]
pub struct Entry {
    /// Name in the file.
    pub name: String,
    /// ggml's name of its type; in safetensors that of the format.
    #[serde(rename = "type")]
    pub of: String,
    /// Dimensions, in GGUF the contiguous one first, in safetensors that of outputs.
    pub shape: Vec<u64>,
    /// Bytes of data; absent if the type's size is unknown.
    pub bytes: Option<u64>,
    /// Whether kernels work on it.
    pub supported: bool,
    /// What they do, or why they do not.
    #[serde(flatten)]
    pub result: Result,
}

/// What came of it.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Result {
    /// Kernels ran.
    Timed {
        /// Bytes read and written per second while decoding to f32, 10^9; absent for numbers that
        /// need no decoding.
        decode_gbs: Option<f64>,
        /// Largest difference from the scalar decode; 0 is bit for bit.
        decode_err: Option<f64>,
        /// Weight bytes per second in a matrix-vector product, 10^9.
        gemv_gbs: f64,
        /// Largest error of a product relative to the magnitudes of its terms.
        gemv_err: f64,
    },
    /// They did not.
    Untouched {
        /// Why.
        reason: String,
    },
}

/// Largest `gemv_err` that is right: terms are rounded and summed in f32.
const GEMV_BOUND: f64 = 1e-4;

impl Result {
    /// Whether kernels were wrong: the decode is exact, products nearly so.
    pub fn is_wrong(&self) -> bool {
        match self {
            Self::Timed { decode_err, gemv_err, .. } => {
                decode_err.is_some_and(|e| e != 0.0) || *gemv_err > GEMV_BOUND
            }
            Self::Untouched { .. } => false,
        }
    }
}

/// Opens `path`, and tries every tensor.
pub fn inspect(path: &Path, rt: &Runtime, mut tick: impl FnMut(usize, &str)) -> Outcome<File> {
    if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("safetensors")) {
        return checkpoint(path, rt, tick);
    }
    // SAFETY: as `--help` says, the file must not be changed while it is inspected.
    let gguf = unsafe { Gguf::map(path) }.map_err(|e| {
        let text = e.to_string();
        let name = path.display().to_string();
        Failure::Failed(if text.starts_with(&name) { text } else { format!("{name}: {text}") })
    })?;
    let mut slab = AlignedVec::zeroed(0);
    let mut tensors = Vec::new();
    for t in gguf.tensors() {
        tick(gguf.tensors_len(), t.name());
        let result = tensor(&t, rt, &mut slab)?;
        tensors.push(Entry {
            name: t.name().to_owned(),
            of: t.ggml_type().to_string(),
            shape: t.dims().to_vec(),
            bytes: t.size(),
            supported: matches!(result, Result::Timed { .. }),
            result,
        });
    }
    Ok(File {
        file: path.display().to_string(),
        format: "GGUF",
        version: Some(gguf.version()),
        bytes: gguf.file_size(),
        metadata: gguf.metadata_len(),
        threads: rt.threads(),
        tensors,
    })
}

fn tensor(t: &Tensor<'_>, rt: &Runtime, slab: &mut AlignedVec<f32>) -> Outcome<Result> {
    let untouched = |reason: String| Ok(Result::Untouched { reason });
    if t.elements() == 0 {
        return untouched("empty".to_owned());
    }
    let of = t.element_type();
    let done = match of {
        Some(ElementType::F32) => of_gguf::<f32>(t, rt),
        Some(ElementType::F16) => of_gguf::<f16>(t, rt),
        Some(ElementType::Bf16) => of_gguf::<bf16>(t, rt),
        _ => match t.as_quant_ref() {
            Ok(w) => Some(quantised(w, rt, slab)),
            Err(KernelError::UnknownFormat(_)) => {
                return untouched(format!("type {} is not supported yet", t.ggml_type()));
            }
            Err(e) => return untouched(e.to_string()),
        },
    };
    match done {
        Some(Ok(result)) => Ok(result),
        Some(Err(e)) => Err(Failure::Failed(format!("{}: {e}", t.name()))),
        None => untouched("its data is not aligned for its type".to_owned()),
    }
}

/// Activations for products: of either sign, none tiny.
fn activations(n: usize) -> AlignedVec<f32> {
    let mut x = AlignedVec::zeroed(n);
    for (i, x) in x.iter_mut().enumerate() {
        *x = ((i * 2_654_435_761 % 1000) as f32 - 499.5) / 500.0;
    }
    x
}

fn seconds(
    mut work: impl FnMut() -> core::result::Result<(), KernelError>,
) -> core::result::Result<f64, KernelError> {
    let mut refusal = None;
    let mut calls = |rounds| {
        crate::measure::seconds(|| {
            for _ in 0..rounds {
                refusal = work().err();
            }
        })
    };
    let times = interleave(&mut [&mut calls], QUICK.0, QUICK.1);
    refusal.map_or(Ok(median(&times[0])), Err)
}

/// Error of `got` against the exact product of one row, relative to its terms.
fn row_error(got: f32, terms: impl Iterator<Item = f64> + Clone) -> f64 {
    let scale: f64 = terms.clone().map(f64::abs).sum();
    let error = (f64::from(got) - terms.sum::<f64>()).abs();
    // A NaN counts as an error whatever it is compared with.
    if error == 0.0 {
        0.0
    } else {
        error / scale.max(f64::from(f32::MIN_POSITIVE))
    }
}

fn of_gguf<E: Element>(t: &Tensor<'_>, rt: &Runtime) -> Option<core::result::Result<Result, KernelError>> {
    let (rows, cols) = (usize::try_from(t.rows()?).ok()?, usize::try_from(t.cols()).ok()?);
    Some(dense(t.as_slice::<E>()?, (rows, cols), rt))
}

fn dense<E: Element>(
    data: &[E],
    (rows, cols): (usize, usize),
    rt: &Runtime,
) -> core::result::Result<Result, KernelError> {
    let ops = Parallel::<E>::new(rt);
    let wide = activations(cols);
    let x: Vec<E> = wide.iter().map(|&x| E::from_f32(x)).collect();
    let mut y = vec![0.0; rows];
    let run = |y: &mut [f32]| ops.gemv(1.0, MatRef::new(data, rows, cols)?, &x, 0.0, y);
    run(&mut y).and_then(|()| {
        let product = |(w, x): (&E, &E)| f64::from(w.to_f32()) * f64::from(x.to_f32());
        let errors = data.chunks(cols).zip(&y).map(|(row, &y)| row_error(y, row.iter().zip(&x).map(product)));
        let gemv_err = errors.fold(0.0, largest);
        let time = seconds(|| run(&mut y))?;
        let gemv_gbs = size_of_val(data) as f64 / time / 1e9;
        Ok(Result::Timed { decode_gbs: None, decode_err: None, gemv_gbs, gemv_err })
    })
}

/// The larger; a NaN wins.
fn largest(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() {
        b
    } else {
        a
    }
}

fn quantised(
    w: QuantRef<'_>,
    rt: &Runtime,
    slab: &mut AlignedVec<f32>,
) -> core::result::Result<Result, KernelError> {
    let (rows, cols) = (w.rows(), w.cols());
    let step = (SLAB / cols).clamp(1, rows);
    if slab.len() < 2 * step * cols {
        *slab = AlignedVec::zeroed(2 * step * cols);
    }
    let (got, want) = slab.split_at_mut(step * cols);
    let ops = Parallel::<f32>::new(rt);
    let scalar = Parallel::with_kernels(rt, Kernels::<f32>::with(Caps::SCALAR));
    let x = activations(cols);
    let mut y = vec![0.0; rows];
    let plan = ops.kernels().qgemm_plan(w.format(), 1, rows, cols, Precision::Exact)?;
    let product =
        |y: &mut [f32]| ops.qgemm(&plan, MatMut::new(y, 1, rows)?, w, MatRef::new(&x, 1, cols)?, None);
    product(&mut y)?;

    let (mut decode_err, mut gemv_err) = (0.0, 0.0);
    for first in (0..rows).step_by(step) {
        let part = w.row_range(first, step.min(rows - first))?;
        let len = part.rows() * cols;
        ops.dequant(part, &mut got[..len])?;
        scalar.dequant(part, &mut want[..len])?;
        for (g, w) in got[..len].iter().zip(&want[..len]) {
            if g.to_bits() != w.to_bits() {
                decode_err = largest(decode_err, f64::from((g - w).abs()).max(f64::from(f32::MIN_POSITIVE)));
            }
        }
        for (row, &y) in want[..len].chunks(cols).zip(&y[first..]) {
            let terms = row.iter().zip(&*x).map(|(w, x)| f64::from(*w) * f64::from(*x));
            gemv_err = largest(gemv_err, row_error(y, terms));
        }
    }

    let decode = seconds(|| {
        for first in (0..rows).step_by(step) {
            let part = w.row_range(first, step.min(rows - first))?;
            ops.dequant(part, &mut got[..part.rows() * cols])?;
        }
        Ok(())
    })?;
    let gemv = seconds(|| product(&mut y))?;
    let bytes = w.as_bytes().len() as f64;
    Ok(Result::Timed {
        decode_gbs: Some((bytes + 4.0 * rows as f64 * cols as f64) / decode / 1e9),
        decode_err: Some(decode_err),
        gemv_gbs: bytes / gemv / 1e9,
        gemv_err,
    })
}

/// The same for a checkpoint.
fn checkpoint(path: &Path, rt: &Runtime, mut tick: impl FnMut(usize, &str)) -> Outcome<File> {
    // SAFETY: as `--help` says, the file must not be changed while it is inspected.
    let file = unsafe { Checkpoint::map(path) }.map_err(|e| {
        let text = e.to_string();
        let name = path.display().to_string();
        Failure::Failed(if text.starts_with(&name) { text } else { format!("{name}: {text}") })
    })?;
    let weights = file.weights();
    let mut slab = AlignedVec::zeroed(0);
    let mut tensors = Vec::new();
    for w in &weights {
        tick(weights.len(), &w.name);
        let done = match &w.view {
            _ if w.shape.contains(&0) => Err("empty".to_owned()),
            Err(reason) => Err(reason.clone()),
            Ok(view) => weight(view, rt, &mut slab),
        };
        let result = done.unwrap_or_else(|reason| Result::Untouched { reason });
        tensors.push(Entry {
            name: w.name.clone(),
            of: w.kind.clone(),
            shape: w.shape.iter().map(|&n| n as u64).collect(),
            bytes: Some(w.bytes),
            supported: matches!(result, Result::Timed { .. }),
            result,
        });
    }
    Ok(File {
        file: path.display().to_string(),
        format: "safetensors",
        version: None,
        bytes: file.file_size(),
        metadata: file.metadata_len(),
        threads: rt.threads(),
        tensors,
    })
}

fn weight(view: &View<'_>, rt: &Runtime, slab: &mut AlignedVec<f32>) -> core::result::Result<Result, String> {
    match view {
        View::Plain(t) => {
            let cols = t.shape.last().copied().unwrap_or(1);
            let rows = t.shape.iter().rev().skip(1).product();
            let done = match t.dtype {
                Dtype::F32 => dense(t.numbers::<f32>()?, (rows, cols), rt),
                Dtype::F16 => dense(t.numbers::<f16>()?, (rows, cols), rt),
                _ => dense(t.numbers::<bf16>()?, (rows, cols), rt),
            };
            return done.map_err(|e| e.to_string());
        }
        View::Awq(w) => external(*w, rt, slab),
        View::Gptq(w) => external(*w, rt, slab),
        View::SqueezeLlm(w) => external(*w, rt, slab),
        View::Fp8(w) => external(*w, rt, slab),
        View::Codes(_) => {
            return Err("is stored anew, in blocks or in f16, when a model is opened".to_owned())
        }
        _ => return Err("no kernels yet".to_owned()),
    }
    .map_err(|e| e.to_string())
}

/// As [`quantised`].
fn external<W: External>(
    w: W,
    rt: &Runtime,
    slab: &mut AlignedVec<f32>,
) -> core::result::Result<Result, KernelError> {
    let (outputs, inputs) = (w.outputs(), w.inputs());
    let step = (SLAB / inputs).next_multiple_of(64).min(outputs);
    if slab.len() < 2 * step * inputs {
        *slab = AlignedVec::zeroed(2 * step * inputs);
    }
    let (got, want) = slab.split_at_mut(step * inputs);
    let ops = Parallel::<f32>::new(rt);
    let scalar = Parallel::with_kernels(rt, Kernels::<f32>::with(Caps::SCALAR));
    let x = activations(inputs);
    let mut y = vec![0.0; outputs];
    ops.qgemv_external(w, &x, &mut y)?;
    let decode = |ops: &Parallel<'_, f32>, first: usize, to: &mut [f32]| {
        let n = step.min(outputs - first);
        let (rows, cols) = if W::BY_OUTPUT { (n, inputs) } else { (inputs, n) };
        ops.dequant_external(w.output_range(first, n)?, MatMut::new(&mut to[..rows * cols], rows, cols)?)
    };

    let (mut decode_err, mut gemv_err) = (0.0, 0.0);
    for first in (0..outputs).step_by(step) {
        decode(&ops, first, got)?;
        decode(&scalar, first, want)?;
        let n = step.min(outputs - first);
        for (g, w) in got[..n * inputs].iter().zip(&want[..n * inputs]) {
            if g.to_bits() != w.to_bits() && !(g.is_nan() && w.is_nan()) {
                decode_err = largest(decode_err, f64::from((g - w).abs()).max(f64::from(f32::MIN_POSITIVE)));
            }
        }
        for (output, &y) in y[first..first + n].iter().enumerate() {
            let at =
                |input: usize| want[if W::BY_OUTPUT { output * inputs + input } else { input * n + output }];
            let terms = x.iter().enumerate().map(|(i, x)| f64::from(at(i)) * f64::from(*x));
            gemv_err = largest(gemv_err, row_error(y, terms));
        }
    }

    let time = seconds(|| (0..outputs).step_by(step).try_for_each(|first| decode(&ops, first, got)))?;
    let gemv = seconds(|| ops.qgemv_external(w, &x, &mut y))?;
    let bytes = w.size() as f64;
    Ok(Result::Timed {
        decode_gbs: Some((bytes + 4.0 * outputs as f64 * inputs as f64) / time / 1e9),
        decode_err: Some(decode_err),
        gemv_gbs: bytes / gemv / 1e9,
        gemv_err,
    })
}
