//! JSON documents in one form: keys in order, each number and text written in one way.
//!
//! Invariant: two documents have the same form only where all readers take them for the same, numbers
//! of one value included however they are written. What readers may take for different things, a key that is there twice or a number that is beyond what
//! is exact, is no document here.

use super::Bypass;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::io::Write;

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    /// Also for numbers that are written as fractions or with an exponent.
    Integer(i128),
    /// What is no integer, or minus zero.
    Fraction(f64),
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    Object(Object<'a>),
}

/// Fields in the order of their names, each there once.
#[derive(Clone, Debug, Default)]
pub(super) struct Object<'a>(Vec<(Cow<'a, str>, Json<'a>)>);

impl<'a> Object<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Bypass> {
        match serde_json::from_slice(body) {
            Ok(Json::Object(object)) => Ok(object),
            Err(error) if error.is_data() => Err(Bypass::Ambiguous),
            Ok(_) | Err(_) => Err(Bypass::Unreadable),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Json<'a>> {
        let place = self.place(name).ok()?;
        self.0.get(place).map(|(_, value)| value)
    }

    /// Whether there is a value that is not null.
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| !matches!(value, Json::Null))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &Json<'a>)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.fields().map(|(name, _)| name)
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Json<'a>> {
        let place = self.place(name).ok()?;
        Some(self.0.remove(place).1)
    }

    pub(super) fn remove_if(&mut self, name: &str, is_unwanted: impl Fn(&Json<'a>) -> bool) {
        if self.get(name).is_some_and(is_unwanted) {
            self.remove(name);
        }
    }

    pub(super) fn put(&mut self, name: &'static str, value: Json<'a>) {
        match self.place(name) {
            Ok(place) => {
                if let Some((_, old)) = self.0.get_mut(place) {
                    *old = value;
                }
            }
            Err(place) => self.0.insert(place, (Cow::Borrowed(name), value)),
        }
    }

    /// Writes its one form.
    pub(super) fn write(&self, to: &mut impl Write) {
        // What is written to takes everything.
        let _ = serde_json::to_writer(to, self);
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(name))
    }
}

/// Below this, whole numbers are exact also where a reader takes all numbers for floating point.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl<'de: 'a, 'a> Deserialize<'de> for Json<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Self::Value, E> {
        if value.abs() >= EXACT {
            return Err(E::custom("a number that is not exact"));
        }
        if value.fract() != 0.0 || (value == 0.0 && value.is_sign_negative()) {
            return Ok(Json::Fraction(value));
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is whole, and far below the bound"
        )]
        Ok(Json::Integer(value as i128))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Json::Text(Cow::Owned(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(Name(name)) = map.next_key()? {
            fields.push((name, map.next_value()?));
        }
        fields.sort_by(|(one, _): &(Cow<'_, str>, Json<'_>), (other, _)| one.cmp(other));
        let is_twice = |pair: &[(Cow<'_, str>, Json<'_>)]| match pair {
            [(one, _), (other, _)] => one == other,
            _ => false,
        };
        if fields.windows(2).any(is_twice) {
            return Err(A::Error::custom("a key that is there twice"));
        }
        Ok(Json::Object(Object(fields)))
    }
}

/// A field's name, out of the document itself where it has no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Json::deserialize(deserializer)? {
            Json::Text(name) => Ok(Self(name)),
            _ => Err(D::Error::custom("a key that is no text")),
        }
    }
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Integer(value) => serializer.serialize_i128(*value),
            Self::Fraction(value) => serializer.serialize_f64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(list) => {
                let mut sequence = serializer.serialize_seq(Some(list.len()))?;
                for item in list {
                    sequence.serialize_element(item)?;
                }
                sequence.end()
            }
            Self::Object(object) => object.serialize(serializer),
        }
    }
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
