//! The command, as tests run it.

use std::process::{Command, Output};

use serde_json::Value;

/// The command, run by the emulator that runs this test, if one does.
pub fn command() -> Command {
    let binary = env!("CARGO_BIN_EXE_gllm-bench");
    let runner = std::env::var("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER");
    let runner = runner.ok().filter(|_| cfg!(target_arch = "aarch64"));
    let mut words = runner.iter().flat_map(|r| r.split_whitespace()).chain([binary]);
    let mut command = Command::new(words.next().unwrap_or(binary));
    command.args(words);
    command
}

/// What the command prints, and its exit code.
pub fn gllm_bench(args: &[&str]) -> Output {
    command().args(args).output().expect("the binary was built")
}

/// What the command prints as JSON.
pub fn json(args: &[&str]) -> Value {
    let output = gllm_bench(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("output is JSON")
}
