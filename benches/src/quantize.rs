//! Quantising a GGUF file: what each tensor becomes, and bringing it there.

use std::fmt;
use std::path::Path;
use std::time::Instant;

use gllm_kernels_core::{KernelError, QuantFormat, QuantRef};
use gllm_kernels_std::gguf::{GgmlType, Gguf, Tensor, Value, Writer};
use gllm_kernels_std::{AlignedVec, Parallel, Runtime};
use serde::Serialize;

use crate::error::{unknown, Failure, Outcome};

/// Elements converted at a time: whole blocks of every format. More memory than for these is not needed.
const SLAB: usize = 4 << 20;

/// A multiple of every block's length.
const BLOCKS: usize = 256;

/// What matrices can be brought to.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The type.
    of: GgmlType,
    /// llama.cpp's number for files that are mostly of this type.
    file_type: u32,
    /// What takes rows that are not whole blocks, if they are whole blocks of this.
    fallback: GgmlType,
}

/// `TYPE = general.file_type, fallback`: as in llama.cpp, which has none for NVFP4 and Q1_0.
macro_rules! targets {
    ($($of:ident = $file_type:literal, $fallback:ident;)*) => {
        const TARGETS: &[Target] = &[
            Target { of: GgmlType::F32, file_type: 0, fallback: GgmlType::F32 },
            $(Target {
                of: GgmlType(QuantFormat::$of.gguf_type()),
                file_type: $file_type,
                fallback: GgmlType(QuantFormat::$fallback.gguf_type()),
            },)*
        ];
    };
}
targets! {
    F16 = 1, F16;
    Bf16 = 32, Bf16;
    Q4_0 = 2, F16;
    Q4_1 = 3, F16;
    Q5_0 = 8, F16;
    Q5_1 = 9, F16;
    Q8_0 = 7, F16;
    Q2K = 21, Q4_0;
    Q3K = 11, Q4_0;
    Q4K = 14, Q5_0;
    Q5K = 16, Q5_1;
    Q6K = 18, Q8_0;
    Iq4Nl = 25, F16;
    Iq4Xs = 30, Iq4Nl;
    Tq1_0 = 36, Q4_0;
    Tq2_0 = 37, Q4_0;
    Mxfp4 = 38, F16;
    Nvfp4 = 39, Q4_0;
    Q1_0 = 40, Q4_0;
    Q2_0 = 41, Q4_0;
}

impl Target {
    /// The target of this name.
    pub fn find(name: &str) -> Outcome<&'static Self> {
        let known: Vec<String> = TARGETS.iter().map(|t| t.of.to_string().to_lowercase()).collect();
        let lower = name.to_lowercase();
        if let Some(at) = known.iter().position(|k| *k == lower) {
            return Ok(&TARGETS[at]);
        }
        if QuantFormat::from_name(&lower).is_some() {
            let known = known.join(", ");
            return Err(Failure::Usage(format!(
                "format `{name}`: weights cannot be encoded in it, but in {known}"
            )));
        }
        Err(unknown("format", name, known.iter().map(String::as_str)))
    }
}

/// Matrices that llama.cpp keeps as they are, by a part of their names: small or sensitive ones.
const KEPT: &[&str] = &[
    "_norm.weight",
    "ffn_gate_inp.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "position_embd",
    "token_types",
    "ssm_conv1d",
    "shortconv.conv",
    "time_mix_first",
    "time_mix_w",
    "time_mix_v0",
    "time_mix_v1",
    "time_mix_v2",
    "time_mix_a",
    "time_mix_g1",
    "time_mix_g2",
    "time_mix_decay",
    "time_mix_lerp",
    "attn_rel_b",
    "patch_embd",
];

/// How a type's numbers are read and written.
#[derive(Clone, Copy)]
enum Numbers {
    F32,
    Stored(QuantFormat),
}

impl Numbers {
    fn of(of: GgmlType) -> Option<Self> {
        Some(match of {
            GgmlType::F32 => Self::F32,
            GgmlType(number) => Self::Stored(QuantFormat::from_gguf(number).ok()?),
        })
    }
}

/// A finished file.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The file read.
    pub input: String,
    /// The file written.
    pub output: String,
    /// What was asked for.
    pub format: String,
    /// Threads that encoded.
    pub threads: usize,
    /// Time it took.
    pub seconds: f64,
    /// Bytes of the file read.
    pub bytes_from: u64,
    /// Bytes of the file written.
    pub bytes_to: u64,
    /// Tensors that were quantised already, and had to be decoded first.
    pub decoded: usize,
    /// Numbers that were infinite or NaN before they were encoded.
    pub not_finite: usize,
    /// All tensors.
    pub tensors: Vec<Row>,
}

/// A tensor.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Name.
    pub name: String,
    /// Dimensions, the contiguous one first.
    pub shape: Vec<u64>,
    /// ggml's name of the type it had.
    pub from: String,
    /// And of the one it has.
    pub to: String,
    /// Bytes it had.
    pub bytes_from: u64,
    /// Bytes it has.
    pub bytes_to: u64,
    /// Why it became something else than what was asked for.
    pub note: Option<String>,
}

/// What a tensor becomes, and why, if it is not the target. `tied`: the embeddings are the output, too.
fn choose(t: &Tensor<'_>, target: &Target, tied: bool) -> (GgmlType, Option<String>) {
    let (from, name) = (t.ggml_type(), t.name());
    let kept = |why: &str| (from, (from != target.of).then(|| format!("kept: {why}")));
    if Numbers::of(from).is_none() {
        return kept("not weights");
    }
    if t.rows().is_none_or(|rows| rows < 2) {
        return kept("a vector");
    }
    if !name.ends_with("weight") || KEPT.iter().any(|part| name.contains(part)) {
        return kept("small or sensitive");
    }
    let quantised = !matches!(target.of, GgmlType::F32 | GgmlType::F16 | GgmlType::BF16);
    let embeddings = name == "token_embd.weight";
    let ternary = matches!(target.of, GgmlType::TQ1_0 | GgmlType::TQ2_0 | GgmlType::Q2_0);
    let (wanted, why) = match target.of {
        GgmlType::MXFP4 if name == "output.weight" || embeddings && tied => (GgmlType::Q8_0, Some("output")),
        GgmlType::Q8_0 => (target.of, None),
        _ if quantised && (name == "output.weight" || embeddings && tied) => (GgmlType::Q6_K, Some("output")),
        _ if ternary && embeddings => (GgmlType::Q4_K, Some("embeddings")),
        _ => (target.of, None),
    };
    let fits = |of: GgmlType| of.layout().is_some_and(|l| t.cols().is_multiple_of(l.block.into()));
    let fallback = TARGETS.iter().find(|t| t.of == wanted).map_or(GgmlType::F16, |t| t.fallback);
    match [wanted, fallback].into_iter().find(|&of| fits(of)) {
        Some(of) if of == wanted => (of, why.map(str::to_owned)),
        other => {
            let note = format!("rows of {} are not whole blocks of {wanted}", t.cols());
            (other.unwrap_or(GgmlType::F16), Some(note))
        }
    }
}

fn failed(e: impl fmt::Display) -> Failure {
    Failure::Failed(e.to_string())
}

/// Writes `output`, with the weights of `input` in another format. `tick` hears the number of steps and
/// the tensor of each; `began` the temporary file.
pub fn quantize(
    input: &Path,
    output: &Path,
    target: &Target,
    force: bool,
    rt: &Runtime,
    began: impl FnOnce(&Path),
    mut tick: impl FnMut(usize, &str),
) -> Outcome<Report> {
    let start = Instant::now();
    if same_file(input, output) {
        return Err(failed(format_args!("{}: input and output are the same file", output.display())));
    }
    // SAFETY: as `--help` says, the file must not be changed meanwhile.
    let gguf = unsafe { Gguf::map(input) }.map_err(|e| {
        let (text, name) = (e.to_string(), input.display().to_string());
        Failure::Failed(if text.starts_with(&name) { text } else { format!("{name}: {text}") })
    })?;
    let tied = gguf.tensor("output.weight").is_none();
    let plan: Vec<_> = gguf.tensors().map(|t| (t, choose(&t, target, tied))).collect();

    let mut writer = Writer::new();
    writer.copy_metadata(&gguf).map_err(failed)?;
    writer.set("general.file_type", Value::U32(target.file_type)).map_err(failed)?;
    // The only version of block formats that is in use.
    writer.set("general.quantization_version", Value::U32(2)).map_err(failed)?;
    for (t, (to, _)) in &plan {
        writer.add_tensor(t.name(), t.dims(), *to).map_err(failed)?;
    }
    let mut out = writer.create(output, force).map_err(|e| match e {
        gllm_kernels_std::gguf::WriteError::Exists(_) => failed(format_args!("{e}; --force overwrites it")),
        e => failed(e),
    })?;
    began(out.temporary());

    let chunks = |t: &Tensor<'_>| t.elements().div_ceil(SLAB as u64).max(1) as usize;
    let steps = plan.iter().map(|(t, _)| chunks(t)).sum();
    let mut converter =
        Converter { ops: Parallel::new(rt), numbers: AlignedVec::zeroed(SLAB), not_finite: 0 };
    let mut bytes = AlignedVec::zeroed(size_of::<f32>() * SLAB);
    let mut decoded = 0;
    for (t, (to, _)) in &plan {
        let kinds = (Numbers::of(t.ggml_type()), Numbers::of(*to));
        match (t.data(), kinds) {
            (Some(data), (Some(from), Some(kind))) if t.ggml_type() != *to => {
                decoded += usize::from(matches!(from, Numbers::Stored(f) if f.element().is_none()));
                let elements = usize::try_from(t.elements()).map_err(failed)?;
                for first in (0..elements).step_by(SLAB) {
                    tick(steps, t.name());
                    let n = SLAB.min(elements - first);
                    let done = converter.convert(data, from, first, n, kind, &mut bytes);
                    let len = done.map_err(|e| failed(format_args!("{}: {e}", t.name())))?;
                    out.write(&bytes[..len]).map_err(failed)?;
                }
            }
            (data, _) => {
                (0..chunks(t)).for_each(|_| tick(steps, t.name()));
                out.write(data.unwrap_or_default()).map_err(failed)?;
            }
        }
    }
    out.finish().map_err(failed)?;
    let size = |of: GgmlType, elements: u64| {
        of.layout().map_or(0, |l| elements / u64::from(l.block) * u64::from(l.bytes))
    };
    let tensors = plan.iter().map(|(t, (to, note))| Row {
        name: t.name().to_owned(),
        shape: t.dims().to_vec(),
        from: t.ggml_type().to_string(),
        to: to.to_string(),
        bytes_from: t.size().unwrap_or(0),
        bytes_to: size(*to, t.elements()),
        note: note.clone(),
    });
    Ok(Report {
        input: input.display().to_string(),
        output: output.display().to_string(),
        format: target.of.to_string(),
        threads: rt.threads(),
        bytes_from: gguf.file_size(),
        bytes_to: output.metadata().map_err(failed)?.len(),
        decoded,
        not_finite: converter.not_finite,
        tensors: tensors.collect(),
        seconds: start.elapsed().as_secs_f64(),
    })
}

struct Converter<'r> {
    ops: Parallel<'r, f32>,
    numbers: AlignedVec<f32>,
    not_finite: usize,
}

impl Converter<'_> {
    /// Elements `first .. first + n` of a tensor, from one type to another; the number of bytes in `out`.
    fn convert(
        &mut self,
        data: &[u8],
        from: Numbers,
        first: usize,
        n: usize,
        to: Numbers,
        out: &mut [u8],
    ) -> Result<usize, KernelError> {
        let numbers = &mut self.numbers[..n];
        match from {
            Numbers::F32 => {
                for (x, bytes) in numbers.iter_mut().zip(data[4 * first..].as_chunks().0) {
                    *x = f32::from_le_bytes(*bytes);
                }
            }
            Numbers::Stored(format) => {
                // Rows end with blocks: where, does not matter here.
                let cols = if n.is_multiple_of(BLOCKS) { BLOCKS } else { format.block_len() };
                let data = &data[format.row_bytes(first)?..];
                self.ops.dequant(QuantRef::new(data, format, n / cols, cols)?, numbers)?;
            }
        }
        self.not_finite += numbers.iter().filter(|x| !x.is_finite()).count();
        match to {
            Numbers::F32 => {
                for (x, out) in numbers.iter().zip(out.as_chunks_mut().0) {
                    *out = x.to_le_bytes();
                }
                Ok(size_of_val(numbers))
            }
            Numbers::Stored(format) => {
                self.ops.quantize(format, numbers, None, out)?;
                format.row_bytes(n)
            }
        }
    }
}

/// Whether both are there, and are one file.
fn same_file(a: &Path, b: &Path) -> bool {
    #[cfg(unix)]
    let id = |path: &Path| {
        use std::os::unix::fs::MetadataExt;
        path.metadata().map(|m| (m.dev(), m.ino()))
    };
    #[cfg(not(unix))]
    let id = |path: &Path| path.canonicalize();
    matches!((id(a), id(b)), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gllm_kernels_core::Kernels;

    /// Every format with an encoder, but those of activations.
    #[test]
    fn targets_are_the_formats_with_encoders() {
        for &format in QuantFormat::ALL {
            let encoder = Kernels::<f32>::detect().quantize(format, &[], None, &mut []).is_ok();
            let activations = matches!(format, QuantFormat::Q8_1 | QuantFormat::Q8K);
            let found = Target::find(format.name());
            assert_eq!(found.is_ok(), encoder && !activations, "{format}");
            assert!(found.is_err() || BLOCKS.is_multiple_of(format.block_len()));
        }
        assert_eq!(SLAB % BLOCKS, 0);
        for t in TARGETS {
            // Fallbacks have the smaller blocks, or take every row.
            let block = |of: GgmlType| of.layout().unwrap().block;
            assert!(block(t.fallback) < block(t.of) || block(t.of) == 1, "{}", t.of);
        }
    }
}
