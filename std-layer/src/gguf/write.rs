//! Writing of files. Metadata and tensors are declared first; then the data of the tensors is written, one after the other.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::error::{Problem, Quoted};
use super::parse::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT};
use super::types::GgmlType;
use super::value::{Value, ValueType, MAX_DEPTH};
use super::{Gguf, MAX_DIMS};

/// Why a file was not written.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// The operating system refused: no space is left, no permission, ...
    Io {
        /// Which file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The file exists, and overwriting was not requested.
    Exists(PathBuf),
    /// The path is taken by something other than a regular file.
    NotAFile(PathBuf),
    /// A field that no reader would accept.
    Invalid {
        /// The field, e.g. `tensor "output.weight": type`.
        field: String,
        /// What is wrong with it.
        problem: Problem,
    },
    /// A second tensor of this name.
    DuplicateTensor(String),
    /// An item of an array is not of the array's type.
    MixedArray {
        /// The array's key.
        key: String,
        /// Its type.
        of: ValueType,
        /// The item's.
        item: ValueType,
    },
    /// More bytes than a tensor has, or than all of them have.
    TooMuchData {
        /// Bytes given.
        given: u64,
        /// Bytes that were left to be written of the tensor.
        left: u64,
    },
    /// Not all tensors were written.
    DataMissing {
        /// Bytes that are left.
        left: u64,
    },
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Exists(path) => write!(f, "{}: exists already", path.display()),
            Self::NotAFile(path) => write!(f, "{}: not a regular file", path.display()),
            Self::Invalid { field, problem } => write!(f, "{field} {problem}"),
            Self::DuplicateTensor(name) => write!(f, "tensor {} occurs twice", Quoted(name)),
            Self::MixedArray { key, of, item } => {
                write!(f, "metadata {}: a {} in an array of {}", Quoted(key), item.name(), of.name())
            }
            Self::TooMuchData { given, left } => {
                write!(f, "{given} bytes of data, but the tensor has only {left} left")
            }
            Self::DataMissing { left } => write!(f, "{left} bytes of tensors were not written"),
        }
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// A GGUF file to be: metadata and a table of tensors.
///
/// [`create`](Self::create) begins the file. What it accepts, [`Gguf`] reads: version 3, little-endian.
/// Only metadata and table are in memory.
///
/// ```no_run
/// use gllm_kernels_std::gguf::{GgmlType, Value, Writer};
///
/// let mut writer = Writer::new();
/// writer.set("general.architecture", Value::String("llama"))?;
/// writer.add_tensor("output_norm.weight", &[2], GgmlType::F32)?;
/// let mut file = writer.create("model.gguf", false)?;
/// file.write(&[1.0f32, 2.0].map(f32::to_le_bytes).concat())?;
/// file.finish()?;
/// # Ok::<(), gllm_kernels_std::gguf::WriteError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Writer {
    alignment: u64,
    /// Key, and type and value as they stand in the file.
    entries: Vec<(String, Vec<u8>)>,
    /// Where in `entries` a key is.
    keys: HashMap<String, usize>,
    tensors: Vec<Planned>,
    names: HashSet<String>,
}

#[derive(Clone, Debug)]
struct Planned {
    name: String,
    dims: Vec<u64>,
    of: GgmlType,
    size: u64,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

fn invalid<T>(field: String, problem: Problem) -> Result<T, WriteError> {
    Err(WriteError::Invalid { field, problem })
}

impl Writer {
    /// Nothing yet; tensors will start at multiples of 32 bytes.
    pub fn new() -> Self {
        Self {
            alignment: DEFAULT_ALIGNMENT,
            entries: Vec::new(),
            keys: HashMap::new(),
            tensors: Vec::new(),
            names: HashSet::new(),
        }
    }

    /// Takes over all metadata of a file, in its order, and with it the alignment.
    ///
    /// # Errors
    /// None that [`Gguf`] would have let pass.
    pub fn copy_metadata(&mut self, from: &Gguf<'_>) -> Result<(), WriteError> {
        from.metadata().try_for_each(|(key, value)| self.set(key, value))
    }

    /// Sets a metadata value; one that is there already keeps its place. `general.alignment` sets
    /// the alignment of tensors.
    ///
    /// # Errors
    /// `Invalid` if an alignment is no u32 or no power of two, or if arrays are too deep in each other.
    pub fn set(&mut self, key: &str, value: Value<'_>) -> Result<(), WriteError> {
        if key == ALIGNMENT_KEY {
            self.alignment = match value {
                Value::U32(a) if a.is_power_of_two() => a.into(),
                _ => return invalid(format!("metadata {}: value", Quoted(key)), Problem::Alignment),
            };
        }
        let mut bytes = (value.value_type() as u32).to_le_bytes().to_vec();
        self.encoded(key, &value, 0, &mut bytes)?;
        self.put(key, bytes);
        Ok(())
    }

    /// Sets a metadata array of items of type `of`.
    ///
    /// # Errors
    /// `MixedArray`; `Invalid` if arrays are too deep in each other, or for the key `general.alignment`.
    pub fn set_array<'v>(
        &mut self,
        key: &str,
        of: ValueType,
        items: impl IntoIterator<Item = Value<'v>>,
    ) -> Result<(), WriteError> {
        if key == ALIGNMENT_KEY {
            return invalid(format!("metadata {}: value", Quoted(key)), Problem::Alignment);
        }
        let mut bytes = [ValueType::Array as u32, of as u32, 0, 0].map(u32::to_le_bytes).concat();
        let mut len = 0u64;
        for item in items {
            if item.value_type() != of {
                return Err(WriteError::MixedArray { key: key.into(), of, item: item.value_type() });
            }
            self.encoded(key, &item, 1, &mut bytes)?;
            len += 1;
        }
        bytes[8..16].copy_from_slice(&len.to_le_bytes());
        self.put(key, bytes);
        Ok(())
    }

    fn put(&mut self, key: &str, bytes: Vec<u8>) {
        match self.keys.get(key) {
            Some(&at) => self.entries[at].1 = bytes,
            None => {
                self.keys.insert(key.into(), self.entries.len());
                self.entries.push((key.into(), bytes));
            }
        }
    }

    /// Appends a value that lies in `depth` arrays.
    fn encoded(&self, key: &str, value: &Value<'_>, depth: u32, out: &mut Vec<u8>) -> Result<(), WriteError> {
        match *value {
            Value::U8(v) => out.push(v),
            Value::I8(v) => out.extend(v.to_le_bytes()),
            Value::U16(v) => out.extend(v.to_le_bytes()),
            Value::I16(v) => out.extend(v.to_le_bytes()),
            Value::U32(v) => out.extend(v.to_le_bytes()),
            Value::I32(v) => out.extend(v.to_le_bytes()),
            Value::F32(v) => out.extend(v.to_le_bytes()),
            Value::Bool(v) => out.push(v.into()),
            Value::String(v) => string(v, out),
            Value::U64(v) => out.extend(v.to_le_bytes()),
            Value::I64(v) => out.extend(v.to_le_bytes()),
            Value::F64(v) => out.extend(v.to_le_bytes()),
            Value::Array(array) => {
                if depth == MAX_DEPTH {
                    return invalid(format!("metadata {}: value", Quoted(key)), Problem::TooDeep);
                }
                out.extend((array.element_type() as u32).to_le_bytes());
                out.extend((array.len() as u64).to_le_bytes());
                for item in array.iter() {
                    self.encoded(key, &item, depth + 1, out)?;
                }
            }
        }
        Ok(())
    }

    /// Adds a tensor behind those that are there; `dims` has the contiguous dimension first.
    ///
    /// # Errors
    /// `DuplicateTensor`; `Invalid` for more than [`MAX_DIMS`] dimensions, rows that are not whole blocks,
    /// sizes beyond 64 bits, and types whose size is unknown.
    pub fn add_tensor(&mut self, name: &str, dims: &[u64], of: GgmlType) -> Result<(), WriteError> {
        let field = |what| format!("tensor {}: {what}", Quoted(name));
        if dims.len() > MAX_DIMS {
            let n = u32::try_from(dims.len()).unwrap_or(u32::MAX);
            return invalid(field("number of dimensions"), Problem::Dimensions(n));
        }
        let Some(layout) = of.layout() else {
            return invalid(field("type"), Problem::UnknownType(of.0));
        };
        let (row, block) = (dims.first().copied().unwrap_or(1), u64::from(layout.block));
        if row % block != 0 {
            return invalid(field("type:"), Problem::PartialBlock { row, block });
        }
        let elements = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let size = elements.and_then(|n| (n / block).checked_mul(layout.bytes.into()));
        let Some(size) = size else { return invalid(field("number of bytes"), Problem::Overflow) };
        if !self.names.insert(name.into()) {
            return Err(WriteError::DuplicateTensor(name.into()));
        }
        self.tensors.push(Planned { name: name.into(), dims: dims.into(), of, size });
        Ok(())
    }

    /// What a file begins with, and where in it tensors are.
    pub(super) fn layout(&self) -> Result<Layout, WriteError> {
        let mut header = b"GGUF\x03\0\0\0".to_vec();
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend((self.entries.len() as u64).to_le_bytes());
        for (key, value) in &self.entries {
            string(key, &mut header);
            header.extend(value);
        }
        let too_large =
            || WriteError::Invalid { field: "number of bytes".into(), problem: Problem::Overflow };
        let mut end = 0u64;
        let mut offsets = Vec::new();
        for t in &self.tensors {
            string(&t.name, &mut header);
            header.extend((t.dims.len() as u32).to_le_bytes());
            header.extend(t.dims.iter().flat_map(|d| d.to_le_bytes()));
            header.extend(t.of.0.to_le_bytes());
            header.extend(end.to_le_bytes());
            offsets.push(end);
            let next = end.checked_add(t.size).and_then(|e| e.checked_next_multiple_of(self.alignment));
            end = next.ok_or_else(too_large)?;
        }
        let data = (header.len() as u64).checked_next_multiple_of(self.alignment).ok_or_else(too_large)?;
        let len = data.checked_add(end).filter(|&l| i64::try_from(l).is_ok()).ok_or_else(too_large)?;
        let parts = self.tensors.iter().zip(&offsets).filter(|(t, _)| t.size > 0);
        let mut parts: Vec<Part> = parts.map(|(t, o)| Part { start: data + o, left: t.size }).collect();
        parts.reverse();
        Ok(Layout { header, parts, len })
    }

    /// Begins the file: under `path` with `.tmp` appended, until [`FileWriter::finish`].
    ///
    /// # Errors
    /// `Exists` unless `overwrite`, `NotAFile`, `Io` (also if the temporary file exists: somebody else
    /// writes it, or was stopped while doing so), `Invalid` if the file would be larger than 2^63 bytes.
    pub fn create(self, path: impl AsRef<Path>, overwrite: bool) -> Result<FileWriter, WriteError> {
        let path = path.as_ref().to_owned();
        free(&path, overwrite)?;
        let Layout { header, parts, len } = self.layout()?;
        let mut name = path.clone().into_os_string();
        name.push(".tmp");
        let temporary = PathBuf::from(name);
        let at = |source| WriteError::Io { path: temporary.clone(), source };
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary).map_err(at)?;
        // From here on it is removed unless all goes well.
        let mut writer = FileWriter { file, path, temporary, overwrite, parts, finished: false };
        // The length first: padding needs no writing, and a file that is too large is refused at once.
        writer.io(|file| file.set_len(len))?;
        writer.io(|file| file.write_all(&header))?;
        writer.seek()?;
        Ok(writer)
    }
}

/// A file that has not been written yet.
pub(super) struct Layout {
    /// Everything in front of the padding that the first tensor's data follows.
    pub(super) header: Vec<u8>,
    /// The tensors that have data, the last one first.
    parts: Vec<Part>,
    /// Bytes of the file.
    pub(super) len: u64,
}

/// Whether `path` may be written.
fn free(path: &Path, overwrite: bool) -> Result<(), WriteError> {
    match path.metadata() {
        Ok(meta) if !meta.is_file() => Err(WriteError::NotAFile(path.to_owned())),
        Ok(_) if !overwrite => Err(WriteError::Exists(path.to_owned())),
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(WriteError::Io { path: path.to_owned(), source: e })
        }
        _ => Ok(()),
    }
}

/// Appends the length of some bytes, then the bytes.
fn string(s: &str, out: &mut Vec<u8>) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

/// The rest of a tensor that has not been written yet.
#[derive(Debug)]
struct Part {
    start: u64,
    left: u64,
}

/// A file whose tensors are being written, one behind the other.
///
/// Until [`finish`](Self::finish) it has a temporary name; if it is dropped before, nothing is left of it.
#[derive(Debug)]
pub struct FileWriter {
    file: File,
    path: PathBuf,
    temporary: PathBuf,
    overwrite: bool,
    /// The next one last; none are empty.
    parts: Vec<Part>,
    finished: bool,
}

impl FileWriter {
    /// Where the file is until it is finished.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Writes the next bytes of the tensor that is not yet complete: the first one added to the
    /// [`Writer`], when it is complete the second, and so on. Tensors without elements are skipped.
    ///
    /// # Errors
    /// `TooMuchData`, before anything is written, if the tensor has fewer bytes left. `Io`: drop the writer then.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let given = bytes.len() as u64;
        let left = self.parts.last().map_or(0, |p| p.left);
        if given > left {
            return Err(WriteError::TooMuchData { given, left });
        }
        self.io(|file| file.write_all(bytes))?;
        if let Some(part) = self.parts.last_mut() {
            part.left -= given;
            if part.left == 0 {
                self.parts.pop();
                self.seek()?;
            }
        }
        Ok(())
    }

    /// Brings the file to the disk, and gives it its name.
    ///
    /// # Errors
    /// `DataMissing` if tensors are not complete; `Exists` if somebody else created the file meanwhile; `Io`. In
    /// all cases nothing is left of it.
    pub fn finish(mut self) -> Result<(), WriteError> {
        let left = self.parts.iter().map(|p| p.left).sum();
        if left > 0 {
            return Err(WriteError::DataMissing { left });
        }
        self.io(|file| file.sync_all())?;
        free(&self.path, self.overwrite)?;
        let renamed = std::fs::rename(&self.temporary, &self.path);
        renamed.map_err(|source| WriteError::Io { path: self.path.clone(), source })?;
        self.finished = true;
        Ok(())
    }

    fn io<T>(&mut self, act: impl FnOnce(&mut File) -> io::Result<T>) -> Result<T, WriteError> {
        act(&mut self.file).map_err(|source| WriteError::Io { path: self.temporary.clone(), source })
    }

    /// Moves to the start of the next tensor. Bytes that are skipped stay zero.
    fn seek(&mut self) -> Result<(), WriteError> {
        match self.parts.last() {
            Some(&Part { start, .. }) => self.io(|file| file.seek(SeekFrom::Start(start))).map(drop),
            None => Ok(()),
        }
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if !self.finished {
            // Nothing can be done about an error here.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error while data is written: nothing is left, and the error names file and reason.
    #[test]
    fn a_failing_disk_leaves_nothing() {
        let path = std::env::temp_dir().join(format!("gllm-failing-{}.gguf", std::process::id()));
        let mut writer = Writer::new();
        writer.add_tensor("t", &[16], GgmlType::F32).unwrap();
        let mut file = writer.create(&path, false).unwrap();
        let temporary = file.temporary().to_owned();
        // A handle that cannot write, in place of a disk that is full.
        file.file = File::open(&temporary).unwrap();
        let Err(WriteError::Io { path: named, .. }) = file.write(&[0; 64]) else { panic!("not refused") };
        assert_eq!(named, temporary);
        assert!(temporary.exists());
        drop(file);
        assert!(!temporary.exists() && !path.exists());
    }
}
