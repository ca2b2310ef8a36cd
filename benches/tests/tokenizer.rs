//! The tokenizers of the two real models, on a text with prose, code, numbers, emoji and many scripts.
//!
//! `data/mixed.json` holds the tokens that llama.cpp makes of `data/mixed.txt`. With the feature `peer-ggml` they are compared with those of the
//! llama.cpp that is compiled in.

use std::path::PathBuf;

use gllm_bench::tokenizer::{TextStream, Tokenizer};
use gllm_kernels_std::gguf::Gguf;

const TEXT: &str = include_str!("data/mixed.txt");

/// The real models, as `ci/setup` leaves them.
const MODELS: [&str; 2] = ["smollm2-135m-instruct-q4_1", "gemma-3-270m-q4_k_m"];

/// The model's file, or a word about why its part of a test is left out.
fn model(name: &str) -> Option<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("../target"), PathBuf::from);
    let path = target.join(format!("ci/models/{name}.gguf"));
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: {name} is not in {} (ci/setup fetches it)", path.display());
    None
}

#[test]
fn tokens_are_those_of_llama_cpp() {
    let golden: serde_json::Value = serde_json::from_str(include_str!("data/mixed.json")).unwrap();
    for name in MODELS {
        let Some(path) = model(name) else { continue };
        let file = Gguf::read(path).unwrap();
        let tokenizer = Tokenizer::new(|key| file.get(key)).unwrap();
        let ids = tokenizer.encode(TEXT).unwrap();
        let want: Vec<u32> =
            golden[name].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect();
        if let Some(at) = (0..want.len()).find(|&i| ids.get(i) != Some(&want[i])) {
            let show = |ids: &[u32]| {
                ids[at..].iter().take(8).map(|&id| tokenizer.text(id).to_owned()).collect::<Vec<_>>()
            };
            panic!("{name}: token {at} differs: {:?}, llama.cpp {:?}", show(&ids), show(&want));
        }
        assert_eq!(ids.len(), want.len(), "{name}");
        // And back: marks are the only thing that is lost.
        let mut stream = TextStream::default();
        let mut text: String = ids.iter().map(|&id| stream.push(&tokenizer.bytes(id))).collect();
        text.push_str(stream.finish());
        let marks =
            ["<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>", "<unused5>", "<s>", "</s>"];
        let without = |text: &str| marks.iter().fold(text.to_owned(), |text, mark| text.replace(mark, ""));
        assert_eq!(without(&text), without(TEXT), "{name}");
    }
}

#[cfg(feature = "peer-ggml")]
mod peer {
    use super::*;
    use llama_cpp_sys_2 as llama;
    use std::ffi::CString;

    /// llama.cpp's vocabulary of a model.
    struct Theirs(*mut llama::llama_model);

    impl Theirs {
        fn load(path: &std::path::Path) -> Self {
            let path = CString::new(path.to_str().unwrap()).unwrap();
            // SAFETY: the path is a C string that outlives the calls, which may be repeated.
            let model = unsafe {
                llama::llama_backend_init();
                let mut params = llama::llama_model_default_params();
                params.vocab_only = true;
                llama::llama_model_load_from_file(path.as_ptr(), params)
            };
            assert!(!model.is_null());
            Self(model)
        }

        fn encode(&self, text: &str) -> Vec<u32> {
            let mut tokens = vec![0; text.len() + 8];
            let (len, room) = (text.len() as i32, tokens.len() as i32);
            // SAFETY: the model is loaded; text and tokens are as long as the call is told.
            let n = unsafe {
                let vocabulary = llama::llama_model_get_vocab(self.0);
                llama::llama_tokenize(
                    vocabulary,
                    text.as_ptr().cast(),
                    len,
                    tokens.as_mut_ptr(),
                    room,
                    true,
                    true,
                )
            };
            assert!(n >= 0);
            tokens[..n as usize].iter().map(|&t| t as u32).collect()
        }
    }

    impl Drop for Theirs {
        fn drop(&mut self) {
            // SAFETY: nothing uses the model any more.
            unsafe { llama::llama_model_free(self.0) }
        }
    }

    #[test]
    fn tokens_are_those_of_the_llama_cpp_compiled_in() {
        for name in MODELS {
            let Some(path) = model(name) else { continue };
            let file = Gguf::read(&path).unwrap();
            let (tokenizer, theirs) = (Tokenizer::new(|key| file.get(key)).unwrap(), Theirs::load(&path));
            let parts = TEXT.lines().chain([TEXT, "", " ", "\n", "  a", "a  ", "\r\n\r\n x", "12345 678"]);
            for part in parts {
                assert_eq!(tokenizer.encode(part).unwrap(), theirs.encode(part), "{name}: {part:?}");
            }
        }
    }
}
