//! A small Llama of characters, trained by `train.py` on the project's documentation. Weights are used where they lie in
//! the program's image; everything else is in one static [`State`].
#![cfg_attr(not(feature = "host"), no_std)]

use gllm_kernels_core::{
    KernelError, Kernels, MatMut, MatRef, Precision, QgemmPlan, QuantFormat, QuantRef, RopeFreqs,
    RopePairing, RopePositions, RopeShape, Scratch,
};

const DIM: usize = 64;
const LAYERS: usize = 2;
const HEADS: usize = 4;
const HEAD: usize = DIM / HEADS;
const FFN: usize = 192;
/// One over the square root of a head.
const SCALE: f32 = 0.25;
const _: () = assert!(HEAD == 16);
const EPS: f32 = 1e-5;
const ACTIVATIONS: usize = match QgemmPlan::<f32>::prepared_bound(1, FFN) {
    Ok(req) => req.size_unaligned(),
    Err(_) => panic!("there is no such size"),
};
/// Newline, then the printable characters of ASCII.
const VOCAB: usize = 96;
/// Characters that it sees at most.
pub const CONTEXT: usize = 128;

/// A tensor: rows, columns.
type Shape = [usize; 2];
/// Of a layer: q, k, v, o, gate, up, down.
const TENSORS: [Shape; 7] =
    [[DIM, DIM], [DIM, DIM], [DIM, DIM], [DIM, DIM], [FFN, DIM], [FFN, DIM], [DIM, FFN]];
const NORMS: usize = 2 * LAYERS + 1;
/// Bytes in front of the quantised tensors.
const HEADER: usize = NORMS * DIM * size_of::<f32>();

/// At the start of a cache line, as rows of weights like it.
#[repr(C, align(64))]
struct Aligned<T>(T);

static Q8_0: Aligned<[u8; size(QuantFormat::Q8_0)]> = Aligned(*include_bytes!("../q8_0.bin"));
static Q4_0: Aligned<[u8; size(QuantFormat::Q4_0)]> = Aligned(*include_bytes!("../q4_0.bin"));

/// Bytes of a model.
const fn size(format: QuantFormat) -> usize {
    let mut weights = VOCAB * DIM;
    let mut i = 0;
    while i < TENSORS.len() {
        weights += LAYERS * TENSORS[i][0] * TENSORS[i][1];
        i += 1;
    }
    match format.row_bytes(weights) {
        Ok(bytes) => HEADER + bytes,
        Err(_) => panic!("tensors are whole blocks"),
    }
}

/// What the model says to [`PROMPT`], with weights of either format. `tiny-llm-host --write` makes them.
pub const EXPECTED: [(QuantFormat, &[u8]); 2] =
    [(QuantFormat::Q8_0, include_bytes!("../q8_0.txt")), (QuantFormat::Q4_0, include_bytes!("../q4_0.txt"))];

/// How the text begins.
pub const PROMPT: &[u8] = b"The kernel";

/// The weights.
#[derive(Clone, Copy)]
struct Weights {
    bytes: &'static [u8],
    format: QuantFormat,
}

impl Weights {
    fn of(format: QuantFormat) -> Result<Self, KernelError> {
        let bytes: &'static [u8] = match format {
            QuantFormat::Q8_0 => &Q8_0.0,
            QuantFormat::Q4_0 => &Q4_0.0,
            _ => return Err(KernelError::BadParameter { arg: "format", expected: "q8_0 or q4_0" }),
        };
        Ok(Self { bytes, format })
    }

    /// The tensor of this shape behind so many weights.
    fn tensor(&self, skip: usize, [rows, cols]: Shape) -> Result<QuantRef<'static>, KernelError> {
        let (start, len) = (HEADER + self.format.row_bytes(skip)?, self.format.row_bytes(cols)? * rows);
        let short = KernelError::ShortSlice { arg: "weights", need: start + len, got: self.bytes.len() };
        QuantRef::new(self.bytes.get(start..start + len).ok_or(short)?, self.format, rows, cols)
    }

    fn embedding(&self) -> Result<QuantRef<'static>, KernelError> {
        self.tensor(0, [VOCAB, DIM])
    }

    /// A tensor of a layer.
    fn of_layer(&self, layer: usize, tensor: usize) -> Result<QuantRef<'static>, KernelError> {
        let weights = |tensors: &[Shape]| tensors.iter().map(|[rows, cols]| rows * cols).sum::<usize>();
        let skip = VOCAB * DIM + layer * weights(&TENSORS) + weights(&TENSORS[..tensor]);
        self.tensor(skip, TENSORS[tensor])
    }

    fn norm(&self, i: usize, to: &mut [f32; DIM]) {
        for (to, bytes) in to.iter_mut().zip(self.bytes[i * 4 * DIM..].chunks_exact(4)) {
            *to = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
    }
}

/// All memory that generating takes.
pub struct State {
    x: [f32; DIM],
    h: [f32; DIM],
    norm: [f32; DIM],
    q: [f32; DIM],
    k: [f32; DIM],
    out: [f32; DIM],
    gate: [f32; FFN],
    up: [f32; FFN],
    hidden: [f32; FFN],
    scores: [f32; CONTEXT],
    logits: [f32; VOCAB],
    /// By layer and position.
    keys: [[[f32; DIM]; CONTEXT]; LAYERS],
    values: [[[f32; DIM]; CONTEXT]; LAYERS],
    cos: [f32; CONTEXT * HEAD / 2],
    sin: [f32; CONTEXT * HEAD / 2],
    /// Of as many columns as there are at most.
    activations: [u8; ACTIVATIONS],
}

impl State {
    /// Nothing said yet.
    pub const fn new() -> Self {
        Self {
            x: [0.0; _],
            h: [0.0; _],
            norm: [0.0; _],
            q: [0.0; _],
            k: [0.0; _],
            out: [0.0; _],
            gate: [0.0; _],
            up: [0.0; _],
            hidden: [0.0; _],
            scores: [0.0; _],
            logits: [0.0; _],
            keys: [[[0.0; _]; _]; _],
            values: [[[0.0; _]; _]; _],
            cos: [0.0; _],
            sin: [0.0; _],
            activations: [0; _],
        }
    }

    /// Writes to `text`, which begins with the prompt: the likeliest character each time.
    ///
    /// # Errors
    /// `BadValue` if `text` is longer than [`CONTEXT`]; what kernels refuse.
    pub fn generate(
        &mut self,
        k: &Kernels<f32>,
        format: QuantFormat,
        prompt: &[u8],
        text: &mut [u8],
    ) -> Result<(), KernelError> {
        if text.len() > CONTEXT || prompt.len() > text.len() || prompt.is_empty() {
            return Err(KernelError::BadValue {
                arg: "text.len()",
                got: text.len(),
                expected: "at most CONTEXT",
            });
        }
        let w = Weights::of(format)?;
        let freqs = RopeFreqs { rot_dim: HEAD, ..RopeFreqs::default() };
        freqs.table(RopePositions::From(0), &mut self.cos, &mut self.sin)?;
        text[..prompt.len()].copy_from_slice(prompt);
        for position in 0..text.len() - 1 {
            self.step(k, w, position, token(text[position]))?;
            if position + 1 >= prompt.len() {
                let best = (0..VOCAB).max_by(|&a, &b| self.logits[a].total_cmp(&self.logits[b]));
                text[position + 1] = character(best.unwrap_or(0));
            }
        }
        Ok(())
    }

    /// The logits of what follows `token` at `position`.
    fn step(
        &mut self,
        kernels: &Kernels<f32>,
        w: Weights,
        position: usize,
        token: usize,
    ) -> Result<(), KernelError> {
        let Self {
            x,
            h,
            norm,
            q,
            k,
            out,
            gate,
            up,
            hidden,
            scores,
            logits,
            keys,
            values,
            cos,
            sin,
            activations,
        } = self;
        let table = position * HEAD / 2..(position + 1) * HEAD / 2;
        let (cos, sin) = (&cos[table.clone()], &sin[table]);
        let rotated =
            RopeShape { heads: HEADS, head_dim: HEAD, rot_dim: HEAD, pairing: RopePairing::Adjacent };
        let scores = &mut scores[..=position];

        kernels.dequant(w.embedding()?.row_range(token, 1)?, x)?;
        for (layer, (keys, values)) in keys.iter_mut().zip(values).enumerate() {
            w.norm(2 * layer, norm);
            kernels.rms_norm(x, Some(norm), EPS, h)?;
            products(
                kernels,
                h,
                activations,
                [
                    (w.of_layer(layer, 0)?, q),
                    (w.of_layer(layer, 1)?, k),
                    (w.of_layer(layer, 2)?, &mut values[position]),
                ],
            )?;
            kernels.rope_inplace(rotated, cos, sin, q)?;
            kernels.rope(rotated, cos, sin, k, &mut keys[position])?;
            for head in 0..HEADS {
                let own = head * HEAD..(head + 1) * HEAD;
                let keys =
                    MatRef::with_strides(&keys.as_flattened()[own.start..], position + 1, HEAD, DIM, 1)?;
                kernels.gemv(SCALE, keys, &q[own.clone()], 0.0, scores)?;
                kernels.softmax_inplace(scores)?;
                let values =
                    MatRef::with_strides(&values.as_flattened()[own.start..], position + 1, HEAD, DIM, 1)?;
                kernels.gemv(1.0, values.t(), scores, 0.0, &mut out[own])?;
            }
            products(kernels, out, activations, [(w.of_layer(layer, 3)?, h)])?;
            kernels.vec_add_inplace(h, x)?;

            w.norm(2 * layer + 1, norm);
            kernels.rms_norm(x, Some(norm), EPS, h)?;
            products(kernels, h, activations, [(w.of_layer(layer, 4)?, gate), (w.of_layer(layer, 5)?, up)])?;
            kernels.swiglu(gate, up, hidden)?;
            products(kernels, hidden, activations, [(w.of_layer(layer, 6)?, h)])?;
            kernels.vec_add_inplace(h, x)?;
        }
        w.norm(2 * LAYERS, norm);
        kernels.rms_norm(x, Some(norm), EPS, h)?;
        products(kernels, h, activations, [(w.embedding()?, logits)])
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

/// Products of some weights of one format with the same activations, which are rounded to 8 bits once.
fn products<const N: usize, const C: usize, const R: usize>(
    k: &Kernels<f32>,
    x: &[f32; C],
    buf: &mut [u8],
    all: [(QuantRef<'_>, &mut [f32; R]); N],
) -> Result<(), KernelError> {
    let Some((first, _)) = all.first() else { return Ok(()) };
    let plan = k.qgemm_plan(first.format(), 1, R, C, Precision::Integer)?;
    let x = plan.prepare(MatRef::new(x, 1, C)?, buf)?;
    for (w, y) in all {
        plan.run(MatMut::new(y, 1, R)?, w, x, None, Scratch::empty())?;
    }
    Ok(())
}

/// The token of a character; what the model does not know is a space.
fn token(c: u8) -> usize {
    match c {
        b'\n' => 0,
        b' '..=b'~' => usize::from(c - b' ') + 1,
        _ => 1,
    }
}

/// The character of a token.
fn character(token: usize) -> u8 {
    match token {
        0 => b'\n',
        _ => b' ' + (token - 1) as u8,
    }
}
