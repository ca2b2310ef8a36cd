//! What the model says on this computer, with every instruction set that it has, against the committed text. `--write`
//! commits what the best one says.

use std::path::Path;
use std::process::ExitCode;

use gllm_kernels_core::{IsaLevel, KernelError, Kernels};
use tiny_llm::{State, CONTEXT, EXPECTED, PROMPT};

fn main() -> Result<ExitCode, KernelError> {
    let write = std::env::args().any(|arg| arg == "--write");
    let mut failed = false;
    for (format, expected) in EXPECTED {
        for level in IsaLevel::ALL {
            let Ok(k) = Kernels::<f32>::forced(level) else { continue };
            let mut text = [0; CONTEXT];
            State::new().generate(&k, format, PROMPT, &mut text)?;
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{format}.txt"));
            if write && k.level() == Kernels::<f32>::detect().level() {
                println!("{format}: {}", String::from_utf8_lossy(&text));
                failed |= std::fs::write(path, text).is_err();
            } else if !write {
                println!(
                    "{format}, {level}: {}",
                    if text == *expected { "the same text" } else { "another text" }
                );
                failed |= text != *expected;
            }
        }
    }
    Ok(ExitCode::from(u8::from(failed)))
}
