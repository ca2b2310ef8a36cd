//! Errors of opening a model.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::gguf::GgufError;

/// Why a model was refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum ModelError {
    /// The file could not be listed or opened.
    Io {
        /// Which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file is not a valid GGUF file.
    Gguf {
        /// Which file; empty if it was read from memory.
        path: PathBuf,
        /// What is wrong with it.
        source: GgufError,
    },
    /// An architecture that this project does not run.
    Architecture {
        /// Its name in the file.
        found: String,
    },
    /// A metadata key that the model needs is missing.
    MissingKey {
        /// The key.
        key: String,
    },
    /// A metadata value that cannot be.
    BadValue {
        /// The key.
        key: String,
        /// The value, as text.
        value: String,
        /// What it must be.
        expected: String,
    },
    /// A tensor that the model needs is missing.
    MissingTensor {
        /// Its name.
        name: String,
        /// Its name in Hugging Face's checkpoints.
        hf: String,
        /// The dimensions it must have, the contiguous one first.
        expected: Vec<u64>,
    },
    /// A tensor has other dimensions than the metadata ask for.
    WrongShape {
        /// Its name.
        name: String,
        /// Its dimensions, the contiguous one first.
        found: Vec<u64>,
        /// The dimensions it must have.
        expected: Vec<u64>,
    },
    /// A tensor is there, but cannot be used.
    BadTensor {
        /// Its name.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A file of a checkpoint cannot be used.
    Checkpoint {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Files that do not belong together, or of which one is missing.
    Split {
        /// The file that shows it.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Gguf { path, source } if path.as_os_str().is_empty() => write!(f, "{source}"),
            // The reader's own message names the file.
            Self::Gguf { source: source @ GgufError::Io { .. }, .. } => write!(f, "{source}"),
            Self::Gguf { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Architecture { found } => {
                write!(f, "models of the architecture {found:?} are not supported; supported are: ")?;
                let names: Vec<_> = super::Architecture::ALL.iter().map(|a| a.name()).collect();
                f.write_str(&names.join(", "))
            }
            Self::MissingKey { key } => write!(f, "the metadata lack {key}"),
            Self::BadValue { key, value, expected } => write!(f, "{key} is {value}: it must be {expected}"),
            Self::MissingTensor { name, hf, expected } => {
                write!(f, "the tensor {name:?} (dimensions {expected:?}; Hugging Face's {hf:?}) is missing")
            }
            Self::WrongShape { name, found, expected } => {
                write!(f, "the tensor {name:?} has the dimensions {found:?} instead of {expected:?}")
            }
            Self::BadTensor { name, problem } => write!(f, "the tensor {name:?} {problem}"),
            Self::Split { path, problem } | Self::Checkpoint { path, problem } => {
                write!(f, "{}: {problem}", path.display())
            }
        }
    }
}

impl std::error::Error for ModelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Gguf { source, .. } => Some(source),
            _ => None,
        }
    }
}
