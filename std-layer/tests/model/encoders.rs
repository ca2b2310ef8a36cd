//! Encoders in the making.

use gllm_kernels_std::gguf::{GgmlType, Value};

use super::draft::Draft;

impl Draft {
    /// All that an encoder has beside its table of tokens.
    pub(super) fn encoder(&mut self, architecture: &str, layers: u32) {
        use GgmlType as T;
        let (bert, nomic) = (architecture == "bert", architecture == "nomic-bert");
        self.set(&format!("{architecture}.attention.causal"), Value::Bool(false));
        self.set("tokenizer.ggml.token_type_count", Value::U32(2));
        self.tensor("token_types.weight", &[32, 2], T::F32);
        if bert {
            self.tensor("position_embd.weight", &[32, 128], T::F16);
        }
        self.tensor("token_embd_norm.weight", &[32], T::F32);
        self.tensor("token_embd_norm.bias", &[32], T::F32);
        for i in 0..layers {
            let mut own = |name: &str, dims: &[u64], of| {
                self.tensor(&format!("blk.{i}.{name}"), dims, of);
            };
            if nomic {
                own("attn_qkv.weight", &[32, 128], T::Q8_0);
            } else {
                for (name, n, of) in [("q", 64, T::F32), ("k", 32, T::F16), ("v", 32, T::BF16)] {
                    own(&format!("attn_{name}.weight"), &[32, n], of);
                    own(&format!("attn_{name}.bias"), &[n], T::F32);
                }
                own("attn_output.bias", &[32], T::F16);
                own("ffn_down.bias", &[32], T::F32);
            }
            own("attn_output.weight", &[64, 32], T::Q4_0);
            if nomic {
                own("ffn_gate.weight", &[32, 64], T::Q5_0);
            }
            own("ffn_up.weight", &[32, if bert || nomic { 64 } else { 128 }], T::Q4_1);
            if bert {
                own("ffn_up.bias", &[64], T::BF16);
            }
            own("ffn_down.weight", &[64, 32], T::Q8_0);
            for norm in ["attn_output_norm", "layer_output_norm"] {
                own(&format!("{norm}.weight"), &[32], T::F32);
                own(&format!("{norm}.bias"), &[32], T::F32);
            }
        }
    }
}
