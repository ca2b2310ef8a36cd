//! The command `gllm-bench`.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use gllm_bench::cli::Cli;

fn main() -> ExitCode {
    gllm_bench::progress::restore_terminal_on_interrupt();
    let cli = Cli::parse();
    match gllm_bench::commands::execute(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_silent() {
                // If even standard error is gone, the exit code still tells.
                let _ = writeln!(std::io::stderr(), "gllm-bench: {failure}");
            }
            failure.exit_code()
        }
    }
}
