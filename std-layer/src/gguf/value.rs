//! Metadata values.

use super::cursor::Cursor;
use super::error::{Fault, Problem};

/// Arrays in arrays, at most.
pub(super) const MAX_DEPTH: u32 = 8;

/// The type of a metadata value; the numbers are the file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ValueType {
    /// 8 bits, unsigned.
    U8 = 0,
    /// 8 bits, signed.
    I8 = 1,
    /// 16 bits, unsigned.
    U16 = 2,
    /// 16 bits, signed.
    I16 = 3,
    /// 32 bits, unsigned.
    U32 = 4,
    /// 32 bits, signed.
    I32 = 5,
    /// IEEE 754 binary32.
    F32 = 6,
    /// One byte, 0 or 1.
    Bool = 7,
    /// UTF-8.
    String = 8,
    /// Values of one type.
    Array = 9,
    /// 64 bits, unsigned.
    U64 = 10,
    /// 64 bits, signed.
    I64 = 11,
    /// IEEE 754 binary64.
    F64 = 12,
}

impl ValueType {
    /// Every type, by its number.
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// Lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }

    /// The least bytes a value has; exact for numbers.
    const fn min_size(self) -> u64 {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::String => 8,
            Self::Array => 12,
        }
    }

    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self, Fault> {
        let start = *cursor;
        let number = cursor.u32()?;
        match Self::ALL.get(number as usize) {
            Some(&known) => Ok(known),
            None => start.fault(Problem::ValueType(number)),
        }
    }
}

/// A metadata value; strings and arrays lie in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // The types say it.
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(&'a str),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'a> Value<'a> {
    /// The type.
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// The value of any integer type, if it is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::U64(v) => Some(v),
            Self::I8(_) | Self::I16(_) | Self::I32(_) | Self::I64(_) => self.as_i64()?.try_into().ok(),
            _ => None,
        }
    }

    /// The value of any integer type, if it fits.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Self::I8(v) => Some(v.into()),
            Self::I16(v) => Some(v.into()),
            Self::I32(v) => Some(v.into()),
            Self::I64(v) => Some(v),
            Self::U8(_) | Self::U16(_) | Self::U32(_) | Self::U64(_) => self.as_u64()?.try_into().ok(),
            _ => None,
        }
    }

    /// The value of either floating-point type.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::F32(v) => Some(v.into()),
            Self::F64(v) => Some(v),
            _ => None,
        }
    }

    /// A bool.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(v) => Some(v),
            _ => None,
        }
    }

    /// A string.
    pub fn as_str(&self) -> Option<&'a str> {
        match *self {
            Self::String(v) => Some(v),
            _ => None,
        }
    }

    /// An array.
    pub fn as_array(&self) -> Option<Array<'a>> {
        match *self {
            Self::Array(v) => Some(v),
            _ => None,
        }
    }

    /// Reads a value and checks all of it: what is in an array, too.
    pub(super) fn read(cursor: &mut Cursor<'a>, of: ValueType) -> Result<Self, Fault> {
        Self::read_nested(cursor, of, 0)
    }

    fn read_nested(cursor: &mut Cursor<'a>, of: ValueType, depth: u32) -> Result<Self, Fault> {
        Ok(match of {
            ValueType::U8 => Self::U8(u8::from_le_bytes(cursor.array()?)),
            ValueType::I8 => Self::I8(i8::from_le_bytes(cursor.array()?)),
            ValueType::U16 => Self::U16(u16::from_le_bytes(cursor.array()?)),
            ValueType::I16 => Self::I16(i16::from_le_bytes(cursor.array()?)),
            ValueType::U32 => Self::U32(cursor.u32()?),
            ValueType::I32 => Self::I32(i32::from_le_bytes(cursor.array()?)),
            ValueType::F32 => Self::F32(f32::from_le_bytes(cursor.array()?)),
            ValueType::U64 => Self::U64(cursor.u64()?),
            ValueType::I64 => Self::I64(i64::from_le_bytes(cursor.array()?)),
            ValueType::F64 => Self::F64(f64::from_le_bytes(cursor.array()?)),
            ValueType::String => Self::String(cursor.str()?),
            ValueType::Bool => {
                let start = *cursor;
                match cursor.array()? {
                    [b @ (0 | 1)] => Self::Bool(b == 1),
                    [other] => return start.fault(Problem::Bool(other)),
                }
            }
            ValueType::Array => {
                if depth == MAX_DEPTH {
                    return cursor.fault(Problem::TooDeep);
                }
                let array = Array::open(cursor)?;
                match array.of {
                    ValueType::Bool | ValueType::String | ValueType::Array => {
                        for _ in 0..array.len {
                            Self::read_nested(cursor, array.of, depth + 1)?;
                        }
                    }
                    // Any bits are a number.
                    number => drop(cursor.take(array.len as u64 * number.min_size())?),
                }
                Self::Array(array)
            }
        })
    }
}

/// Values of one type, decoded as they are read.
#[derive(Clone, Copy, Debug)]
pub struct Array<'a> {
    of: ValueType,
    len: usize,
    /// At the first element.
    cursor: Cursor<'a>,
}

impl<'a> Array<'a> {
    /// Reads type and length; the elements follow.
    pub(super) fn open(cursor: &mut Cursor<'a>) -> Result<Self, Fault> {
        let of = ValueType::read(cursor)?;
        let len = cursor.count(of.min_size())?;
        // At most the file's length.
        Ok(Self { of, len: len as usize, cursor: *cursor })
    }

    /// Type of the elements.
    pub fn element_type(&self) -> ValueType {
        self.of
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, in order.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> {
        let Self { of, len, mut cursor } = *self;
        (0..len).map_while(move |_| Value::read(&mut cursor, of).ok())
    }
}

impl PartialEq for Array<'_> {
    /// Element for element.
    fn eq(&self, other: &Self) -> bool {
        self.of == other.of && self.len == other.len && self.iter().eq(other.iter())
    }
}
