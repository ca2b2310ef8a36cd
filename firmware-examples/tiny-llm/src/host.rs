//! What the model says on this computer, with every instruction set that it has, against the committed text. `--write`
//! commits what the best one says. Likewise the packed weights of the program `one-format`.

use std::path::Path;
use std::process::ExitCode;

use gllm_kernels_core::{IsaLevel, KernelError, Kernels, QuantFormat, QuantRef};
use tiny_llm::{State, CONTEXT, EXPECTED, PROMPT};

/// Weights that ggml has quantised, 8 rows of 512, in packed form.
fn packed() -> Result<Vec<u8>, KernelError> {
    static Q4_0: &[u8] = include_bytes!("../../../core/testkit/vectors/q4_0.q");
    #[repr(align(64))]
    struct Aligned([u8; 16 << 10]);

    let (k, mut buf) = (Kernels::<f32>::detect(), Aligned([0; 16 << 10]));
    let bytes = k.pack_q(QuantRef::new(Q4_0, QuantFormat::Q4_0, 8, 512)?, &mut buf.0)?.bytes();
    // Behind a header of 64 bytes.
    Ok(buf.0[..64 + bytes].to_vec())
}

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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../programs/q4_0.packed");
    let packed = packed()?;
    if write {
        failed |= std::fs::write(path, packed).is_err();
    } else {
        let same = std::fs::read(path).is_ok_and(|bytes| bytes == packed);
        println!("packed weights: {}", if same { "the same bytes" } else { "other bytes" });
        failed |= !same;
    }
    Ok(ExitCode::from(u8::from(failed)))
}
