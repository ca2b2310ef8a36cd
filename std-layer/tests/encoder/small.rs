//! Small encoders with random weights.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use gllm_kernels_std::core::{Kernels, QuantFormat};
use gllm_kernels_std::gguf::{GgmlType, Value, Writer};
use gllm_kernels_std::model::Model;

pub const HIDDEN: usize = 96;
const INTERMEDIATE: usize = 128;
const VOCABULARY: usize = 97;
pub const CONTEXT: usize = 600;

/// A model to write.
#[derive(Clone, Copy, Debug)]
pub struct Small {
    pub architecture: &'static str,
    /// `None` is F32.
    pub format: Option<QuantFormat>,
    pub heads: usize,
    /// Whether matrices that multiply the same are one in the file.
    pub fused: bool,
}

impl Small {
    pub const BERT: Self = Self { architecture: "bert", format: None, heads: 4, fused: false };
    pub const NOMIC: Self = Self { architecture: "nomic-bert", fused: true, ..Self::BERT };
    /// Heads that are no power of two.
    pub const JINA: Self = Self { architecture: "jina-bert-v2", heads: 6, ..Self::NOMIC };

    /// All that tests take: every architecture in every format, and other heads and matrices.
    pub fn all() -> impl Iterator<Item = Self> {
        let formats = [None, Some(QuantFormat::Q8_0), Some(QuantFormat::F16)];
        let of = |format| [Self::BERT, Self::NOMIC, Self::JINA].map(|small| Self { format, ..small });
        let others = [
            Self { fused: true, ..Self::BERT },
            Self { fused: false, ..Self::NOMIC },
            Self { fused: false, heads: 3, ..Self::JINA },
            Self { heads: 1, ..Self::JINA },
            Self { heads: 8, ..Self::JINA },
        ];
        formats.into_iter().flat_map(of).chain(others)
    }

    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (bert, jina) = (self.architecture == "bert", self.architecture == "jina-bert-v2");
        let mut all = Vec::new();
        let mut add = |name: String, dims: &[usize]| all.push((name, dims.to_vec()));
        add("token_embd.weight".into(), &[HIDDEN, VOCABULARY]);
        add("token_types.weight".into(), &[HIDDEN, 2]);
        if bert {
            add("position_embd.weight".into(), &[HIDDEN, CONTEXT]);
        }
        let norm = |name: &str, add: &mut dyn FnMut(String, &[usize])| {
            add(format!("{name}.weight"), &[HIDDEN]);
            add(format!("{name}.bias"), &[HIDDEN]);
        };
        norm("token_embd_norm", &mut add);
        for layer in 0..3 {
            let mut linear = |name: &str, cols: usize, rows: usize, bias: bool| {
                add(format!("blk.{layer}.{name}.weight"), &[cols, rows]);
                if bias {
                    add(format!("blk.{layer}.{name}.bias"), &[rows]);
                }
            };
            match self.fused && !jina {
                true => linear("attn_qkv", HIDDEN, 3 * HIDDEN, bert),
                false => ["attn_q", "attn_k", "attn_v"]
                    .iter()
                    .for_each(|name| linear(name, HIDDEN, HIDDEN, bert || jina)),
            }
            linear("attn_output", HIDDEN, HIDDEN, bert || jina);
            if jina && self.fused {
                linear("ffn_up", HIDDEN, 2 * INTERMEDIATE, false);
            } else {
                if !bert {
                    linear("ffn_gate", HIDDEN, INTERMEDIATE, false);
                }
                linear("ffn_up", HIDDEN, INTERMEDIATE, bert);
            }
            linear("ffn_down", INTERMEDIATE, HIDDEN, bert || jina);
            norm(&format!("blk.{layer}.attn_output_norm"), &mut add);
            norm(&format!("blk.{layer}.layer_output_norm"), &mut add);
        }
        all
    }

    /// Writes the file, and opens it.
    pub fn open(&self) -> Model<'static> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let mut writer = Writer::new();
        let name = self.architecture;
        let mut set = |key: &str, value: Value<'_>| writer.set(key, value).unwrap();
        set("general.architecture", Value::String(name));
        for (key, value) in [
            ("block_count", 3),
            ("embedding_length", HIDDEN),
            ("attention.head_count", self.heads),
            ("feed_forward_length", INTERMEDIATE),
            ("context_length", CONTEXT),
            ("pooling_type", 1),
        ] {
            set(&format!("{name}.{key}"), Value::U32(value as u32));
        }
        set(&format!("{name}.attention.layer_norm_epsilon"), Value::F32(1e-5));
        set(&format!("{name}.attention.causal"), Value::Bool(false));
        set(&format!("{name}.rope.freq_base"), Value::F32(1000.0));
        set("tokenizer.ggml.token_type_count", Value::U32(2));
        let mut data = Vec::new();
        for (i, (name, dims)) in self.tensors().into_iter().enumerate() {
            let n = dims.iter().product::<usize>();
            let (scale, base) = match (dims.len(), name.ends_with("bias")) {
                // Large enough that attention is not flat.
                (2, _) if name.contains("attn_") => (3.0 / (dims[0] as f32).sqrt(), 0.0),
                (2, _) => (2.0 / (dims[0] as f32).sqrt(), 0.0),
                (_, true) => (0.3, 0.0),
                (_, false) => (0.3, 1.0),
            };
            let mut state = i as u64 + 1;
            let mut random = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                base + scale * ((state >> 40) as f32 / (1 << 23) as f32 - 1.0)
            };
            let numbers: Vec<f32> = (0..n).map(|_| random()).collect();
            let quantised = self.format.filter(|_| dims.len() == 2 && !name.starts_with("token_types"));
            let (ty, bytes) = match quantised {
                None => (GgmlType::F32, numbers.iter().flat_map(|x| x.to_le_bytes()).collect()),
                Some(format) => {
                    let mut bytes = vec![0; format.row_bytes(dims[0]).unwrap() * (n / dims[0])];
                    Kernels::<f32>::detect().quantize(format, &numbers, None, &mut bytes).unwrap();
                    (if format == QuantFormat::F16 { GgmlType::F16 } else { GgmlType::Q8_0 }, bytes)
                }
            };
            let dims: Vec<u64> = dims.iter().map(|&d| d as u64).collect();
            writer.add_tensor(&name, &dims, ty).unwrap();
            data.push(bytes);
        }
        let folder = option_env!("CARGO_TARGET_TMPDIR").map(PathBuf::from).filter(|folder| folder.is_dir());
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let file = format!("encoder-{}-{count}.gguf", std::process::id());
        let path = folder.unwrap_or_else(std::env::temp_dir).join(file);
        let mut file = writer.create(&path, true).unwrap();
        data.iter().for_each(|bytes: &Vec<u8>| file.write(bytes).unwrap());
        file.finish().unwrap();
        let model = Model::open(&path).unwrap();
        // The mapping stays.
        #[cfg(unix)]
        std::fs::remove_file(&path).unwrap();
        model
    }
}

/// Any tokens, no two stretches alike.
pub fn tokens(n: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * i + 7 * i + i / 11) % VOCABULARY) as u32).collect()
}
