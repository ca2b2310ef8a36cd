//! A language model on a bare CPU: the weights in flash, all memory static. What it says must be what it says elsewhere.
#![no_std]
#![no_main]

use defmt::info;
use fw_rt::{check, Once};
use gllm_kernels_core::KernelError;
use tiny_llm::{State, CONTEXT, EXPECTED, PROMPT};

fw_rt::program!(run);

static STATE: Once<State> = Once::new(State::new());

fn run() -> Result<usize, KernelError> {
    let (state, k) = (STATE.take(), fw_rt::kernels::<f32>());
    let mut wrong = 0;
    for (format, expected) in EXPECTED {
        let mut text = [0; CONTEXT];
        state.generate(&k, format, PROMPT, &mut text)?;
        let said = core::str::from_utf8(&text).unwrap_or("not text");
        info!("{}: {=str}", format, said);
        wrong += check(format.name(), text == *expected);
    }
    Ok(wrong)
}
