//! Why a command failed, and what the process returns.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// A failed command.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for something that does not exist or makes no sense: exit code 2.
    Usage(String),
    /// The command could not be carried out: exit code 1.
    Failed(String),
    /// Output could not be written.
    Output(io::Error),
}

/// What commands return.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// The process's exit code. A reader that has seen enough (`| head`) is no failure.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Self::Failed(_) | Self::Output(_) => ExitCode::FAILURE,
        }
    }

    /// Whether there is something to tell.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Output(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Failed(text) => f.write_str(text),
            Self::Output(e) => write!(f, "cannot write output: {e}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        Self::Output(e)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(e: serde_json::Error) -> Self {
        Self::Output(e.into())
    }
}

/// `unknown <what> <name>`, with the known names that come close.
pub fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Failure {
    let known: Vec<&str> = known.collect();
    let mut near: Vec<(usize, &str)> =
        known.iter().map(|k| (distance(name, k), *k)).filter(|(d, k)| *d <= 2 || k.contains(name)).collect();
    near.sort();
    let hint = match near.as_slice() {
        [] if known.len() <= 12 => format!("; known: {}", known.join(", ")),
        [] => "; `gllm-bench list` shows all".to_owned(),
        _ => {
            let names: Vec<&str> = near.iter().take(4).map(|(_, k)| *k).collect();
            format!("; did you mean {}?", names.join(", "))
        }
    };
    Failure::Usage(format!("unknown {what} `{name}`{hint}"))
}

/// Edit distance (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("gemm", "gemv"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn near_names_come_first() {
        let Failure::Usage(text) = unknown("operator", "vec_dto", ["vec_dot", "gemm"].into_iter()) else {
            panic!("not a usage error")
        };
        assert!(text.contains("did you mean vec_dot?"), "{text}");
    }
}
