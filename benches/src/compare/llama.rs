//! llama.cpp with a model, on its CPU backend, in the version of `Cargo.lock`.

use std::ffi::{c_char, c_void, CString};
use std::path::Path;
use std::ptr::null_mut;

use llama_cpp_sys_2 as sys;

use crate::error::{Failure, Outcome};

/// How llama.cpp computes: each of these may be the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Weights are rearranged when they are loaded, where llama.cpp can do that.
    pub repack: bool,
    /// Attention is one operation.
    pub flash: bool,
}

impl Variant {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self { repack: true, flash: true },
        Self { repack: true, flash: false },
        Self { repack: false, flash: true },
        Self { repack: false, flash: false },
    ];

    /// In words.
    pub fn name(self) -> String {
        let (buffers, flash) =
            (if self.repack { "packed" } else { "default" }, if self.flash { "on" } else { "off" });
        format!("{buffers} buffers, flash attention {flash}")
    }
}

/// A loaded model.
pub struct LlamaModel(*mut sys::llama_model);

impl LlamaModel {
    /// Loads it, on the CPU alone.
    pub fn load(path: &Path, repack: bool) -> Outcome<Self> {
        unsafe extern "C" fn silent(_: sys::ggml_log_level, _: *const c_char, _: *mut c_void) {}
        let failed = || Failure::Failed(format!("llama.cpp cannot load {}", path.display()));
        let name = path.to_str().and_then(|p| CString::new(p).ok()).ok_or_else(failed)?;
        // SAFETY: the path is a C string that outlives the call; initialisation may be repeated.
        let model = unsafe {
            sys::llama_log_set(Some(silent), null_mut());
            sys::llama_backend_init();
            let mut params = sys::llama_model_default_params();
            params.n_gpu_layers = 0;
            params.use_extra_bufts = repack;
            sys::llama_model_load_from_file(name.as_ptr(), params)
        };
        if model.is_null() {
            return Err(failed());
        }
        Ok(Self(model))
    }
}

impl Drop for LlamaModel {
    fn drop(&mut self) {
        // SAFETY: contexts borrow the model, so none is left.
        unsafe { sys::llama_model_free(self.0) }
    }
}

/// A context: a cache and threads for a model.
pub struct Llama<'m> {
    context: *mut sys::llama_context,
    vocabulary: usize,
    _model: &'m LlamaModel,
}

impl<'m> Llama<'m> {
    /// With room for so many positions, on so many threads.
    pub fn new(model: &'m LlamaModel, flash: bool, positions: usize, threads: usize) -> Outcome<Self> {
        // SAFETY: the model is loaded and outlives the context.
        let (context, vocabulary) = unsafe {
            let mut params = sys::llama_context_default_params();
            params.n_ctx = positions as u32;
            params.n_batch = positions as u32;
            params.n_ubatch = 512;
            params.n_threads = threads as i32;
            params.n_threads_batch = threads as i32;
            params.offload_kqv = false;
            params.flash_attn_type =
                if flash { sys::LLAMA_FLASH_ATTN_TYPE_ENABLED } else { sys::LLAMA_FLASH_ATTN_TYPE_DISABLED };
            let vocabulary = sys::llama_vocab_n_tokens(sys::llama_model_get_vocab(model.0));
            (sys::llama_init_from_model(model.0, params), vocabulary)
        };
        if context.is_null() {
            return Err(Failure::Failed("llama.cpp cannot make a context for the model".to_owned()));
        }
        Ok(Self { context, vocabulary: vocabulary as usize, _model: model })
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        // SAFETY: the context exists.
        unsafe { sys::llama_memory_clear(sys::llama_get_memory(self.context), true) }
    }

    /// Goes back to behind `text`, which is how the context's text begins. States of recurrent layers do not go back: there it reads the text again.
    pub fn rewind(&mut self, text: &[u32]) -> Outcome {
        // SAFETY: the context exists.
        let done = unsafe {
            sys::llama_memory_seq_rm(sys::llama_get_memory(self.context), 0, text.len() as i32, -1)
        };
        if done {
            return Ok(());
        }
        self.clear();
        self.extend(text)
    }

    /// Continues by these tokens; logits are those of the last one.
    pub fn extend(&mut self, tokens: &[u32]) -> Outcome {
        let mut tokens: Vec<sys::llama_token> = tokens.iter().map(|&t| t as i32).collect();
        // SAFETY: the batch borrows the tokens, which outlive the call; the context exists.
        let result = unsafe {
            let batch = sys::llama_batch_get_one(tokens.as_mut_ptr(), tokens.len() as i32);
            let result = sys::llama_decode(self.context, batch);
            sys::llama_synchronize(self.context);
            result
        };
        match result {
            0 => Ok(()),
            code => {
                Err(Failure::Failed(format!("llama.cpp failed to decode {} tokens: {code}", tokens.len())))
            }
        }
    }

    /// The logits behind each of these tokens, which begin a text.
    pub fn logits(&mut self, tokens: &[u32]) -> Outcome<Vec<f32>> {
        self.clear();
        let mut all = Vec::with_capacity(tokens.len() * self.vocabulary);
        // SAFETY: a batch with room for the tokens is filled within its length and freed once; logits of each position
        // were asked for, and have the length of the vocabulary.
        unsafe {
            let mut batch = sys::llama_batch_init(tokens.len() as i32, 0, 1);
            for (i, &token) in tokens.iter().enumerate() {
                *batch.token.add(i) = token as i32;
                *batch.pos.add(i) = i as i32;
                *batch.n_seq_id.add(i) = 1;
                **batch.seq_id.add(i) = 0;
                *batch.logits.add(i) = 1;
            }
            batch.n_tokens = tokens.len() as i32;
            let result = sys::llama_decode(self.context, batch);
            if result == 0 {
                for i in 0..tokens.len() {
                    let row = sys::llama_get_logits_ith(self.context, i as i32);
                    all.extend_from_slice(std::slice::from_raw_parts(row, self.vocabulary));
                }
            }
            sys::llama_batch_free(batch);
            if result != 0 {
                return Err(Failure::Failed(format!(
                    "llama.cpp failed to decode {} tokens: {result}",
                    tokens.len()
                )));
            }
        }
        Ok(all)
    }
}

impl Drop for Llama<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once.
        unsafe { sys::llama_free(self.context) }
    }
}
