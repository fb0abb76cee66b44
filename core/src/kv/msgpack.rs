//! Reading msgpack value by value, without a tree of them and without recursion: a container is its
//! head, and what is in it follows.

use rmp::Marker;
use rmp::decode::{RmpRead, read_marker};
use std::fmt;

/// What is wrong with a payload. It shows nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub(super) &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

const TRUNCATED: Malformed = Malformed("cut short");

/// Elements that room is made for before the first has been read.
const FIRST_ROOM: u32 = 1024;

/// A value, or the head of a container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Negative(i64),
    /// By its bits, as 64 of them.
    Float(u64),
    Text(&'a str),
    Bytes(&'a [u8]),
    /// So many values follow.
    Array(u32),
    /// So many keys, each with its value, follow.
    Map(u32),
    /// Of a type that the peers agree on.
    Extension(&'a [u8]),
}

impl Value<'_> {
    /// Writes it so that equal sequences of values are equal bytes, and no two different ones are.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let (kind, number, bytes): (u8, u64, &[u8]) = match *self {
            Self::Nil => (0, 0, &[]),
            Self::Bool(value) => (1, value.into(), &[]),
            Self::Unsigned(number) => (2, number, &[]),
            Self::Negative(number) => (3, number.cast_unsigned(), &[]),
            Self::Float(bits) => (4, bits, &[]),
            Self::Text(text) => (5, text.len() as u64, text.as_bytes()),
            Self::Bytes(bytes) => (6, bytes.len() as u64, bytes),
            Self::Array(count) => (7, count.into(), &[]),
            Self::Map(count) => (8, count.into(), &[]),
            Self::Extension(bytes) => (9, bytes.len() as u64, bytes),
        };
        to.push(kind);
        to.extend_from_slice(&number.to_le_bytes());
        to.extend_from_slice(bytes);
    }
}

#[derive(Clone)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Makes sure that nothing follows.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed("something follows the batch"))
        }
    }

    pub(super) fn value(&mut self) -> Result<Value<'a>, Malformed> {
        let marker = read_marker(&mut self.rest).map_err(|_| TRUNCATED)?;
        Ok(match marker {
            Marker::Null => Value::Nil,
            Marker::True => Value::Bool(true),
            Marker::False => Value::Bool(false),
            Marker::FixPos(number) => Value::Unsigned(number.into()),
            Marker::U8 => Value::Unsigned(self.u8()?.into()),
            Marker::U16 => Value::Unsigned(self.u16()?.into()),
            Marker::U32 => Value::Unsigned(self.u32()?.into()),
            Marker::U64 => Value::Unsigned(self.u64()?),
            Marker::FixNeg(number) => signed(number.into()),
            Marker::I8 => signed(self.u8()?.cast_signed().into()),
            Marker::I16 => signed(self.u16()?.cast_signed().into()),
            Marker::I32 => signed(self.u32()?.cast_signed().into()),
            Marker::I64 => signed(self.u64()?.cast_signed()),
            Marker::F32 => Value::Float(f64::from(f32::from_bits(self.u32()?)).to_bits()),
            Marker::F64 => Value::Float(self.u64()?),
            Marker::FixStr(len) => self.str(len.into())?,
            Marker::Str8 => self.u8().and_then(|len| self.str(len.into()))?,
            Marker::Str16 => self.u16().and_then(|len| self.str(len.into()))?,
            Marker::Str32 => self.u32().and_then(|len| self.str(len))?,
            Marker::Bin8 => Value::Bytes(self.u8().and_then(|len| self.bytes(len.into()))?),
            Marker::Bin16 => Value::Bytes(self.u16().and_then(|len| self.bytes(len.into()))?),
            Marker::Bin32 => Value::Bytes(self.u32().and_then(|len| self.bytes(len))?),
            Marker::FixArray(count) => Value::Array(count.into()),
            Marker::Array16 => Value::Array(self.u16()?.into()),
            Marker::Array32 => Value::Array(self.u32()?),
            Marker::FixMap(count) => Value::Map(count.into()),
            Marker::Map16 => Value::Map(self.u16()?.into()),
            Marker::Map32 => Value::Map(self.u32()?),
            Marker::FixExt1 => self.extension(1)?,
            Marker::FixExt2 => self.extension(2)?,
            Marker::FixExt4 => self.extension(4)?,
            Marker::FixExt8 => self.extension(8)?,
            Marker::FixExt16 => self.extension(16)?,
            Marker::Ext8 => self.u8().and_then(|len| self.extension(len.into()))?,
            Marker::Ext16 => self.u16().and_then(|len| self.extension(len.into()))?,
            Marker::Ext32 => self.u32().and_then(|len| self.extension(len))?,
            Marker::Reserved => return Err(Malformed("no msgpack")),
        })
    }

    /// Calls `each` with so many values and all that is in them.
    pub(super) fn values(
        &mut self,
        count: u32,
        mut each: impl FnMut(Value<'a>),
    ) -> Result<(), Malformed> {
        self.walk(count.into(), &mut each)
    }

    /// Passes over so many values.
    pub(super) fn skip(&mut self, count: u64) -> Result<(), Malformed> {
        self.walk(count, &mut |_| ())
    }

    /// Each value takes a byte at least, so this ends where the bytes do, whatever they claim.
    fn walk(&mut self, count: u64, each: &mut impl FnMut(Value<'a>)) -> Result<(), Malformed> {
        let mut left = count;
        while left > 0 {
            let value = self.value()?;
            left -= 1;
            left = left.saturating_add(match value {
                Value::Array(count) => count.into(),
                Value::Map(count) => 2 * u64::from(count),
                _ => 0,
            });
            each(value);
        }
        Ok(())
    }

    /// The head of an array; `otherwise` says what is wrong where it is none.
    pub(super) fn array(&mut self, otherwise: &'static str) -> Result<u32, Malformed> {
        match self.value()? {
            Value::Array(count) => Ok(count),
            _ => Err(Malformed(otherwise)),
        }
    }

    /// An array of what `read` reads.
    pub(super) fn list<T>(
        &mut self,
        otherwise: &'static str,
        read: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let list = self.optional_list(otherwise, read)?;
        list.ok_or(Malformed(otherwise))
    }

    /// An array of what `read` reads, or nil.
    pub(super) fn optional_list<T>(
        &mut self,
        otherwise: &'static str,
        mut read: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<Vec<T>>, Malformed> {
        let count = match self.value()? {
            Value::Nil => return Ok(None),
            Value::Array(count) => count,
            _ => return Err(Malformed(otherwise)),
        };
        let mut list = Vec::with_capacity(count.min(FIRST_ROOM) as usize);
        for _ in 0..count {
            list.push(read(self)?);
        }
        Ok(Some(list))
    }

    /// A number that is not negative and fits, or nil.
    pub(super) fn number<T: TryFrom<u64>>(
        &mut self,
        otherwise: &'static str,
    ) -> Result<Option<T>, Malformed> {
        match self.value()? {
            Value::Nil => Ok(None),
            Value::Unsigned(number) => number
                .try_into()
                .map(Some)
                .map_err(|_| Malformed(otherwise)),
            _ => Err(Malformed(otherwise)),
        }
    }

    /// A text, or nil.
    pub(super) fn text(&mut self, otherwise: &'static str) -> Result<Option<&'a str>, Malformed> {
        match self.value()? {
            Value::Nil => Ok(None),
            Value::Text(text) => Ok(Some(text)),
            _ => Err(Malformed(otherwise)),
        }
    }

    fn extension(&mut self, len: u32) -> Result<Value<'a>, Malformed> {
        // Its type is a byte before it.
        self.bytes(len.saturating_add(1)).map(Value::Extension)
    }

    fn str(&mut self, len: u32) -> Result<Value<'a>, Malformed> {
        let text = std::str::from_utf8(self.bytes(len)?);
        text.map(Value::Text)
            .map_err(|_| Malformed("a text that is not UTF-8"))
    }

    fn bytes(&mut self, len: u32) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(len as usize).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.rest.read_data_u8().map_err(|_| TRUNCATED)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.rest.read_data_u16().map_err(|_| TRUNCATED)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.rest.read_data_u32().map_err(|_| TRUNCATED)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.rest.read_data_u64().map_err(|_| TRUNCATED)
    }
}

fn signed<'a>(number: i64) -> Value<'a> {
    u64::try_from(number).map_or(Value::Negative(number), Value::Unsigned)
}
