//! A progress bar where somebody watches, and a terminal left as it was found.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error; nothing unless that is a terminal.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// For so many steps. `quiet` shows nothing.
    pub fn new(steps: usize, quiet: bool) -> Self {
        if quiet || !io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let bar = ProgressBar::new(steps as u64);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar }
    }

    /// Begins the next step.
    pub fn step(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.bar.inc(1);
    }

    /// Prints to standard output without tearing the bar apart.
    pub fn print(&self, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.bar.suspend(write)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The file that an interrupt removes.
static TEMPORARY: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Ctrl-C and termination remove this file, too. It must not be anybody else's later: to be called once.
pub fn remove_on_interrupt(path: &Path) {
    *TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner) = Some(path.to_owned());
}

/// Ctrl-C and termination clear the bar's line, show the cursor and reset colours.
pub fn restore_terminal_on_interrupt() {
    let restore = || {
        let mut err = io::stderr();
        if err.is_terminal() {
            // Nothing can be done about an error here.
            let _ = err.write_all(b"\r\x1b[2K\x1b[0m\x1b[?25h");
            let _ = err.flush();
        }
        if let Some(path) = &*TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = std::fs::remove_file(path);
        }
        // 128 + SIGINT, as shells expect.
        std::process::exit(130);
    };
    // A second handler is refused; the first does the same.
    let _ = ctrlc::set_handler(restore);
}
