//! Comparisons in a process of their own: what another library does there, a crash among it, ends that process
//! and not this one. The process tells what it does in lines of JSON.

use std::env;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use serde::{Deserialize, Serialize};

use super::{compare, Measured, Pair, Request};
use crate::error::{Failure, Outcome};

/// What the process tells.
#[derive(Debug, Serialize, Deserialize)]
pub enum Event {
    /// Nothing can be compared.
    Refused {
        /// Whether the command line is to blame.
        usage: bool,
        /// Why.
        text: String,
    },
    /// The library is open.
    Opened(Opened),
    /// A pair is begun, by its number.
    Begun(usize),
    /// It is measured.
    Measured(Box<Measured>),
    /// It cannot be measured, or its result is wrong.
    Failed(String),
}

/// An opened library, and what is to be measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Opened {
    /// What the library says about itself.
    pub version: String,
    /// Why the comparison may mean little.
    pub warning: Option<String>,
    /// Why a part of what was asked for is left out.
    pub left_out: Vec<String>,
    /// The pairs, in the order in which they are measured.
    pub pairs: Vec<Pair>,
}

/// Measures the pairs from number `from` on, and tells so on standard output.
pub fn serve(peer: &str, request: Request<'_>, from: usize) -> Outcome {
    let mut plan = match compare(peer, request) {
        Ok(plan) => plan,
        Err(failure) => {
            let usage = matches!(failure, Failure::Usage(_));
            return tell(&Event::Refused { usage, text: failure.to_string() });
        }
    };
    let pairs = plan.opened.pairs.len();
    tell(&Event::Opened(plan.opened))?;
    for pair in from..pairs {
        tell(&Event::Begun(pair))?;
        tell(&match (plan.measure)(pair) {
            Ok(measured) => Event::Measured(Box::new(measured)),
            Err(failure) => Event::Failed(failure.to_string()),
        })?;
    }
    Ok(())
}

fn tell(event: &Event) -> Outcome {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, event)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// The process, as the one that started it sees it.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// What is heard from it.
#[derive(Debug)]
pub enum Heard {
    /// It goes on.
    Event(Event),
    /// It has ended.
    Ended(ExitStatus),
}

impl Worker {
    /// Starts this program again, with its own command line, to measure the pairs from number `from` on.
    pub fn start(from: usize) -> Outcome<Self> {
        let failed = |e: io::Error| Failure::Failed(format!("cannot start a process to compare in: {e}"));
        let program = env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(env::args_os().skip(1)).arg("--worker").arg(from.to_string());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let out = child.stdout.take().expect("its output is a pipe");
        Ok(Self { child, lines: BufReader::new(out).lines() })
    }

    /// Waits for what it tells next.
    pub fn hear(&mut self) -> Outcome<Heard> {
        for line in self.lines.by_ref() {
            let line = line?;
            match serde_json::from_str(&line) {
                Ok(event) => return Ok(Heard::Event(event)),
                // Libraries print what they like.
                Err(_) => writeln!(io::stderr(), "{line}")?,
            }
        }
        Ok(Heard::Ended(self.child.wait()?))
    }
}

/// How a process ended that should not have.
pub fn ending(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let names =
            [(4, "SIGILL"), (6, "SIGABRT"), (7, "SIGBUS"), (8, "SIGFPE"), (9, "SIGKILL"), (11, "SIGSEGV")];
        let name = names.iter().find(|(number, _)| *number == signal).map_or("", |(_, name)| name);
        return format!("signal {signal} {name}").trim_end().to_owned();
    }
    status.to_string()
}
