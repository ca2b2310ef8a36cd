//! The metadata of a file, each value checked as it is read.

use super::ModelError;
use crate::gguf::{Array, Gguf, Value};

/// No size in a model comes near: products of two fit 64 bits.
pub(super) const LARGEST: u64 = i32::MAX as u64;

/// A value as messages show it: short, whatever it is.
fn text(value: Value<'_>) -> String {
    match value {
        Value::Array(a) => format!("an array of {} {}", a.len(), a.element_type().name()),
        Value::String(s) if s.chars().count() > 64 => {
            format!("{:?}..", s.chars().take(64).collect::<String>())
        }
        Value::String(s) => format!("{s:?}"),
        Value::Bool(b) => b.to_string(),
        Value::F32(x) => x.to_string(),
        Value::F64(x) => x.to_string(),
        other => match (other.as_u64(), other.as_i64()) {
            (Some(n), _) => n.to_string(),
            (_, n) => n.unwrap_or(0).to_string(),
        },
    }
}

/// The metadata, each value checked as it is read.
pub(super) struct Metadata<'a> {
    pub(super) file: &'a Gguf<'a>,
    /// What keys of the architecture begin with.
    pub(super) prefix: &'static str,
}

impl<'a> Metadata<'a> {
    /// Keys that begin with a point are the architecture's.
    pub(super) fn key(&self, key: &str) -> String {
        if key.starts_with('.') {
            format!("{}{key}", self.prefix)
        } else {
            key.to_owned()
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<Value<'a>> {
        self.file.get(&self.key(key))
    }

    pub(super) fn bad(&self, key: &str, value: Value<'_>, expected: impl Into<String>) -> ModelError {
        ModelError::BadValue { key: self.key(key), value: text(value), expected: expected.into() }
    }

    /// The value, if there is one, as `read` understands it.
    pub(super) fn read<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(Value<'a>) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.bad(key, value, expected))
    }

    pub(super) fn needed<T>(&self, key: &str, value: Option<T>) -> Result<T, ModelError> {
        value.ok_or_else(|| ModelError::MissingKey { key: self.key(key) })
    }

    /// A size that may be missing. Where files have one for each layer, it must be one number.
    pub(super) fn size(&self, key: &str) -> Result<Option<usize>, ModelError> {
        let fits = |v: Value<'_>| v.as_u64().filter(|n| (1..=LARGEST).contains(n)).map(|n| n as usize);
        self.read(key, "one integer from 1 to 2147483647, the same for all layers", fits)
    }

    /// A size that some of the layers have, and whether each has it. Files have one number for all layers, or one for each, of which 0 means that it has none.
    pub(super) fn size_of_some(
        &self,
        key: &str,
        layers: usize,
    ) -> Result<Option<(usize, Vec<bool>)>, ModelError> {
        let Some(Value::Array(each)) = self.get(key) else {
            return Ok(self.size(key)?.map(|size| (size, vec![true; layers])));
        };
        let sizes: Option<Vec<u64>> = each.iter().map(|v| v.as_u64()).collect();
        let sizes = sizes.filter(|sizes| sizes.len() == layers);
        let size = sizes.iter().flatten().copied().find(|&n| n > 0).filter(|&n| n <= LARGEST);
        let alike = |sizes: &Vec<u64>| sizes.iter().all(|&n| n == 0 || Some(n) == size);
        match (sizes.filter(alike), size) {
            (Some(sizes), Some(size)) => {
                Ok(Some((size as usize, sizes.into_iter().map(|n| n > 0).collect())))
            }
            _ => Err(self.bad(
                key,
                Value::Array(each),
                format!(
                    "a number for each of the {layers} layers, 0 or that of all others, at most {LARGEST}"
                ),
            )),
        }
    }

    /// A size of which 0 means that there is none.
    pub(super) fn size_or_none(&self, key: &str) -> Result<Option<usize>, ModelError> {
        match self.get(key).and_then(|v| v.as_u64()) {
            Some(0) => Ok(None),
            _ => self.size(key),
        }
    }

    pub(super) fn needed_size(&self, key: &str) -> Result<usize, ModelError> {
        let size = self.size(key)?;
        self.needed(key, size)
    }

    /// A number that may be missing: positive and finite as f32, too.
    pub(super) fn positive(&self, key: &str) -> Result<Option<f64>, ModelError> {
        let fits = |v: Value<'_>| v.as_f64().filter(|&x| (x as f32) > 0.0 && (x as f32).is_finite());
        self.read(key, "a positive, finite number", fits)
    }

    /// A number of which 0 means that there is none.
    pub(super) fn positive_or_none(&self, key: &str) -> Result<Option<f64>, ModelError> {
        match self.get(key).and_then(|v| v.as_f64()) {
            Some(0.0) => Ok(None),
            _ => self.positive(key),
        }
    }

    pub(super) fn bool(&self, key: &str) -> Result<Option<bool>, ModelError> {
        self.read(key, "true or false", |v| v.as_bool())
    }

    pub(super) fn str(&self, key: &str) -> Result<Option<&'a str>, ModelError> {
        self.read(key, "a string", |v| v.as_str())
    }

    pub(super) fn array(&self, key: &str) -> Result<Option<Array<'a>>, ModelError> {
        self.read(key, "an array", |v| v.as_array())
    }

    pub(super) fn token(&self, key: &str, vocabulary: usize) -> Result<Option<u32>, ModelError> {
        let fits = |v: Value<'_>| v.as_u64().filter(|&t| t < vocabulary as u64).map(|t| t as u32);
        self.read(key, &format!("a token below the vocabulary's {vocabulary}"), fits)
    }

    /// Refuses a value that asks for what this project does not compute.
    pub(super) fn refuse(
        &self,
        key: &str,
        expected: &str,
        wanted: impl FnOnce(Value<'a>) -> bool,
    ) -> Result<(), ModelError> {
        match self.get(key) {
            Some(value) if wanted(value) => Err(self.bad(key, value, expected)),
            _ => Ok(()),
        }
    }

    /// A number above 1, such as the base of frequencies.
    pub(super) fn above_one(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.read(key, "above 1 and finite", |v| v.as_f64().filter(|&x| x > 1.0 && x.is_finite()))
    }

    /// Refuses a size.
    pub(super) fn unfit<T>(&self, key: &str, value: usize, expected: String) -> Result<T, ModelError> {
        Err(ModelError::BadValue { key: self.key(key), value: value.to_string(), expected })
    }
}
