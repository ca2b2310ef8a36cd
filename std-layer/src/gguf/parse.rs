//! Parsing of a file's header, metadata and table of tensors, all of which are checked.

use super::cursor::Cursor;
use super::error::{Fault, GgufError, Problem, Quoted};
use super::types::GgmlType;
use super::value::{Value, ValueType};
use super::MAX_DIMS;

/// Everything in front of the tensors' data.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) alignment: u64,
    /// Where the data section starts; the file's end if it has none.
    pub(super) data: usize,
    pub(super) entries: Vec<Entry>,
    pub(super) tensors: Vec<TensorInfo>,
    /// Indices sorted by name.
    entry_order: Vec<usize>,
    tensor_order: Vec<usize>,
}

/// A metadata pair.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Box<str>,
    pub(super) of: ValueType,
    /// Where the value starts.
    pub(super) value: usize,
    /// Where the pair starts.
    at: usize,
}

/// A row of the tensor table.
#[derive(Debug)]
pub(super) struct TensorInfo {
    pub(super) name: Box<str>,
    pub(super) dims: [u64; MAX_DIMS],
    pub(super) n_dims: usize,
    pub(super) of: GgmlType,
    pub(super) elements: u64,
    /// First byte in the file.
    pub(super) start: usize,
    /// Bytes; unknown if the type is.
    pub(super) size: Option<usize>,
    /// Where the row starts.
    at: usize,
}

/// The least bytes of a metadata pair: an empty key, a type, one byte.
const MIN_ENTRY: u64 = 8 + 4 + 1;
/// The least bytes of a table row: an empty name, no dimensions, type and offset.
const MIN_TENSOR: u64 = 8 + 4 + 4 + 8;

pub(super) const ALIGNMENT_KEY: &str = "general.alignment";
pub(super) const DEFAULT_ALIGNMENT: u64 = 32;

impl Header {
    /// Of a file of `len` bytes, which begins with these.
    pub(super) fn parse(bytes: &[u8], len: usize) -> Result<Self, GgufError> {
        let mut cursor = Cursor::new(bytes, 0);
        let version = version(&mut cursor)?;
        let tensor_count = cursor.count(MIN_TENSOR).map_err(|f| f.of("tensor count"))?;
        let entry_count = cursor.count(MIN_ENTRY).map_err(|f| f.of("metadata count"))?;

        // Vectors grow with what is read, not with what is announced.
        let mut entries = Vec::new();
        let mut alignment = DEFAULT_ALIGNMENT;
        for i in 0..entry_count {
            let (entry, value) = Entry::parse(&mut cursor, i)?;
            if &*entry.key == ALIGNMENT_KEY {
                alignment = match value {
                    Value::U32(a) if a.is_power_of_two() => a.into(),
                    _ => {
                        let fault = Fault { offset: entry.value, problem: Problem::Alignment };
                        return Err(fault.of(format_args!("metadata {i} {}: value", Quoted(ALIGNMENT_KEY))));
                    }
                };
            }
            entries.push(entry);
        }
        let entry_order = sorted(&entries, "metadata", |e| (&e.key, e.at))?;

        let mut tensors = Vec::new();
        let mut offsets = Vec::new();
        for i in 0..tensor_count {
            let (tensor, offset) = TensorInfo::parse(&mut cursor, i)?;
            tensors.push(tensor);
            offsets.push(offset);
        }
        let tensor_order = sorted(&tensors, "tensor", |t| (&t.name, t.at))?;

        // The padding behind the table may be missing in a file without data.
        let data = (cursor.pos() as u64).checked_next_multiple_of(alignment);
        let data = data.and_then(|d| usize::try_from(d).ok()).map_or(len, |d| d.min(len));
        for (i, (tensor, (offset, at))) in tensors.iter_mut().zip(offsets).enumerate() {
            let placed = place(offset, tensor.size, alignment, len - data);
            let start = placed.map_err(|problem| {
                Fault { offset: at, problem }.of(format_args!("tensor {i} {}: offset", Quoted(&tensor.name)))
            })?;
            tensor.start = data + start;
        }
        Ok(Self { version, alignment, data, entries, tensors, entry_order, tensor_order })
    }

    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        let found = self.entry_order.binary_search_by(|&i| (*self.entries[i].key).cmp(key));
        found.ok().map(|at| &self.entries[self.entry_order[at]])
    }

    /// The number of a tensor in the table.
    pub(super) fn tensor(&self, name: &str) -> Option<usize> {
        let found = self.tensor_order.binary_search_by(|&i| (*self.tensors[i].name).cmp(name));
        found.ok().map(|at| self.tensor_order[at])
    }
}

fn version(cursor: &mut Cursor<'_>) -> Result<u32, GgufError> {
    let start = *cursor;
    let magic = cursor.array().map_err(|f| f.of("magic"))?;
    if magic != *b"GGUF" {
        return start.fault(Problem::NotGguf(magic)).map_err(|f| f.of("magic"));
    }
    let start = *cursor;
    let version = cursor.u32().map_err(|f| f.of("version"))?;
    let problem = match version {
        2 | 3 => return Ok(version),
        v if (1..=3).contains(&v.swap_bytes()) => Problem::BigEndian,
        v => Problem::Version(v),
    };
    start.fault(problem).map_err(|f| f.of("version"))
}

/// Indices in the order of names, which must differ.
fn sorted<T>(items: &[T], what: &str, name: impl Fn(&T) -> (&str, usize)) -> Result<Vec<usize>, GgufError> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    // Stable: of two equal names the first in the file comes first.
    order.sort_by(|&a, &b| name(&items[a]).0.cmp(name(&items[b]).0));
    for pair in order.windows(2) {
        let ((first, at_first), (second, at)) = (name(&items[pair[0]]), name(&items[pair[1]]));
        if first == second {
            let fault = Fault { offset: at, problem: Problem::Duplicate { first: at_first as u64 } };
            return Err(fault.of(format_args!("{what} {} {}: name", pair[1], Quoted(second))));
        }
    }
    Ok(order)
}

impl Entry {
    fn parse<'a>(cursor: &mut Cursor<'a>, i: u64) -> Result<(Self, Value<'a>), GgufError> {
        let at = cursor.pos();
        let key = cursor.str().map_err(|f| f.of(format_args!("metadata {i}: key")))?;
        let field = |what| move |f: Fault| f.of(format_args!("metadata {i} {}: {what}", Quoted(key)));
        let of = ValueType::read(cursor).map_err(field("type"))?;
        let start = cursor.pos();
        let value = Value::read(cursor, of).map_err(field("value"))?;
        Ok((Self { key: key.into(), of, value: start, at }, value))
    }
}

impl TensorInfo {
    /// The row, not yet placed, and its offset field with where that is.
    fn parse(cursor: &mut Cursor<'_>, i: u64) -> Result<(Self, (u64, usize)), GgufError> {
        let at = cursor.pos();
        let name = cursor.str().map_err(|f| f.of(format_args!("tensor {i}: name")))?;
        let field = |what| move |f: Fault| f.of(format_args!("tensor {i} {}: {what}", Quoted(name)));

        let start = *cursor;
        let n_dims = cursor.u32().map_err(field("number of dimensions"))?;
        if n_dims as usize > MAX_DIMS {
            return start.fault(Problem::Dimensions(n_dims)).map_err(field("number of dimensions"));
        }
        let n_dims = n_dims as usize;
        let start = *cursor;
        let mut dims = [1; MAX_DIMS];
        for d in &mut dims[..n_dims] {
            *d = cursor.u64().map_err(field("dimensions"))?;
        }
        let Some(elements) = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d)) else {
            return start.fault(Problem::Overflow).map_err(field("number of elements"));
        };

        let start = *cursor;
        let of = GgmlType(cursor.u32().map_err(field("type"))?);
        let size = match of.layout() {
            None => None,
            Some(layout) => {
                let (row, block) = (dims[0], u64::from(layout.block));
                if row % block != 0 {
                    return start.fault(Problem::PartialBlock { row, block }).map_err(field("type:"));
                }
                // Whole rows, so whole blocks.
                let size = (elements / block).checked_mul(layout.bytes.into());
                let Some(size) = size.and_then(|s| usize::try_from(s).ok()) else {
                    return start.fault(Problem::Overflow).map_err(field("number of bytes"));
                };
                Some(size)
            }
        };
        let at_offset = cursor.pos();
        let offset = cursor.u64().map_err(field("offset"))?;
        Ok((Self { name: name.into(), dims, n_dims, of, elements, start: 0, size, at }, (offset, at_offset)))
    }
}

/// Checks that a tensor lies in a data section of `data` bytes; its place there.
fn place(offset: u64, size: Option<usize>, alignment: u64, data: usize) -> Result<usize, Problem> {
    if !offset.is_multiple_of(alignment) {
        return Err(Problem::Misaligned { offset, alignment });
    }
    let size = size.unwrap_or(0);
    match usize::try_from(offset) {
        Ok(start) if start.checked_add(size).is_some_and(|end| end <= data) => Ok(start),
        _ => Err(Problem::OutsideFile { offset, size: size as u64, data: data as u64 }),
    }
}
