//! Where commands write.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::error::{Failure, Outcome};

/// Standard output; colours only where they are seen.
pub fn stdout() -> anstream::AutoStream<io::StdoutLock<'static>> {
    anstream::AutoStream::auto(io::stdout().lock())
}

/// Writes `value` to standard output as JSON.
pub fn print_json(value: &impl Serialize) -> Outcome {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

/// One line on standard error, beside the results.
pub fn note(text: &str) -> Outcome {
    Ok(writeln!(io::stderr(), "gllm-bench: {text}")?)
}

/// A file that is opened before anything is measured: a wrong path is told at once.
#[derive(Debug)]
pub struct Page<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Page<'a> {
    /// Opens the file, if one is wanted.
    pub fn create(path: Option<&'a Path>) -> Outcome<Option<Self>> {
        let Some(path) = path else { return Ok(None) };
        match File::create(path) {
            Ok(file) => Ok(Some(Self { path, file })),
            Err(e) => Err(Failure::Failed(format!("cannot write {}: {e}", path.display()))),
        }
    }

    /// Writes it.
    pub fn write(mut self, text: &str) -> Outcome {
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|e| Failure::Failed(format!("cannot write {}: {e}", self.path.display())))
    }
}
