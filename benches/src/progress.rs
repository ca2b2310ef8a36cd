//! A progress bar where somebody watches, and a terminal left as it was found.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error; nothing unless that is a terminal.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// Steps that have begun.
    begun: Cell<u64>,
}

/// How often the clock is drawn: so rarely that measurements do not notice it.
const TICK: Duration = Duration::from_secs(1);

impl Progress {
    /// For so many steps. `quiet` shows nothing.
    pub fn new(steps: usize, quiet: bool) -> Self {
        let seen = !quiet && io::stderr().is_terminal();
        let target = if seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Self::on(target, steps)
    }

    fn on(target: ProgressDrawTarget, steps: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Self { bar, begun: Cell::new(0) }
    }

    /// Begins the next step: those before it are done.
    pub fn step(&self, what: &str) {
        self.bar.set_position(self.begun.replace(self.begun.get() + 1));
        self.bar.set_message(what.to_owned());
    }

    /// So many steps are done.
    pub fn reach(&self, done: usize) {
        self.bar.set_position(done as u64);
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

/// Whether an interrupt only sets [`INTERRUPTED`].
static ENDS_ITSELF: AtomicBool = AtomicBool::new(false);

/// Whether there was an interrupt.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From here on the first Ctrl-C or termination only makes [`is_interrupted`] true: the command ends by itself, soon. A second
/// one ends the process.
pub fn end_on_interrupt() {
    ENDS_ITSELF.store(true, Ordering::Relaxed);
}

/// Whether the command should end.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Ctrl-C and termination clear the bar's line, show the cursor and reset colours.
pub fn restore_terminal_on_interrupt() {
    let restore = || {
        if !INTERRUPTED.swap(true, Ordering::Relaxed) && ENDS_ITSELF.load(Ordering::Relaxed) {
            return;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::InMemoryTerm;

    fn on(term: &InMemoryTerm, steps: usize) -> Progress {
        Progress::on(ProgressDrawTarget::term_like(Box::new(term.clone())), steps)
    }

    #[test]
    fn a_step_counts_when_it_is_done() {
        let term = InMemoryTerm::new(4, 100);
        let progress = on(&term, 2);
        progress.step("gemm");
        progress.bar.tick();
        assert!(term.contents().contains(" 0/2 ") && term.contents().contains("gemm"), "{}", term.contents());
        progress.step("gemv");
        progress.bar.tick();
        assert!(term.contents().contains(" 1/2 ") && term.contents().contains("gemv"), "{}", term.contents());
        drop(progress);
        assert_eq!(term.contents(), "");
    }

    #[test]
    fn the_clock_goes_on_during_a_step() {
        let term = InMemoryTerm::new(4, 100);
        let progress = on(&term, 1);
        progress.step("gemm");
        progress.bar.tick();
        assert!(term.contents().contains(" 0s "), "{}", term.contents());
        // Nothing is done with the bar meanwhile.
        let waited = std::time::Instant::now();
        while term.contents().contains(" 0s ") {
            assert!(waited.elapsed() < 30 * TICK, "{}", term.contents());
            std::thread::sleep(TICK / 10);
        }
    }
}
