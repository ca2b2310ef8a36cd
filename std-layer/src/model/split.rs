//! Models that are split into several GGUF files.

use std::path::{Path, PathBuf};

use super::ModelError;
use crate::gguf::Gguf;

/// Maps a file.
pub(super) fn map(path: &Path) -> Result<Gguf<'static>, ModelError> {
    // SAFETY: nothing that is relied on is left in the mapping: names, sizes and places of tensors are copied while the file is
    // checked, metadata are checked again whenever they are read, and the bytes of weights may be any. That nobody changes the file is
    // asked of whoever opens a model, so that numbers stay what they are.
    let file = unsafe { Gguf::map(path) };
    file.map_err(|source| ModelError::Gguf { path: path.to_owned(), source })
}

/// A file's place among those that a model is split into.
pub(super) struct Split {
    number: u64,
    count: u64,
}

impl Split {
    const NUMBER: &'static str = "split.no";
    const COUNT: &'static str = "split.count";
    const TENSORS: &'static str = "split.tensors.count";

    /// `None` if the file stands alone.
    pub(super) fn of(path: &Path, file: &Gguf<'_>) -> Result<Option<Self>, ModelError> {
        let key = |key| file.get(key).map(|v| v.as_u64());
        match (key(Self::NUMBER), key(Self::COUNT)) {
            (None | Some(Some(0)), None | Some(Some(0 | 1))) => Ok(None),
            (Some(Some(number)), Some(Some(count))) if number < count && count <= 99_999 => {
                Ok(Some(Self { number, count }))
            }
            _ => Err(Self::problem(path, "split.no and split.count do not number the parts of a file")),
        }
    }

    pub(super) fn problem(path: &Path, problem: impl Into<String>) -> ModelError {
        ModelError::Split { path: path.to_owned(), problem: problem.into() }
    }

    /// All parts, of which `file` is one.
    pub(super) fn open(
        self,
        path: &Path,
        file: Gguf<'static>,
    ) -> Result<Vec<(PathBuf, Gguf<'static>)>, ModelError> {
        let end = |number| format!("-{:05}-of-{:05}.gguf", number + 1, self.count);
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let Some(stem) = name.strip_suffix(&end(self.number)) else {
            let end = end(self.number);
            return Err(Self::problem(
                path,
                format!("the name must end in {end}, so that the other parts are found"),
            ));
        };
        let (mut own, mut parts) = (Some(file), Vec::new());
        for number in 0..self.count {
            if let Some(file) = own.take_if(|_| number == self.number) {
                parts.push((path.to_owned(), file));
                continue;
            }
            let path = path.with_file_name(format!("{stem}{}", end(number)));
            let file = map(&path)?;
            match Self::of(&path, &file)? {
                Some(other) if other.number == number && other.count == self.count => {}
                _ => {
                    return Err(Self::problem(&path, format!("is not part {} of {}", number + 1, self.count)))
                }
            }
            parts.push((path, file));
        }
        let found: usize = parts.iter().map(|(_, file)| file.tensors_len()).sum();
        let told = parts[0].1.get(Self::TENSORS);
        if let Some(told) = told.filter(|t| t.as_u64() != Some(found as u64)) {
            let problem = format!("{} is {told:?}, but the parts have {found} tensors", Self::TENSORS);
            return Err(Self::problem(&parts[0].0, problem));
        }
        Ok(parts)
    }
}
