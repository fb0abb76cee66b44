//! Where the texts of requests and answers are, and changing them in place.
//!
//! Invariant: nothing is written anew but the strings that change, each as a whole and escaped, so a
//! body stays JSON whatever stands in their place, and every other byte stays the sender's own. All
//! work is linear in the body.

mod fields;

use crate::prompt::json::{Cursor, Json, Str, Unreadable};
use fields::{Field, Within, field, is_opaque};
use serde::de::IgnoredAny;
use std::mem;
use std::ops::Range;

/// Which texts are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leg {
    /// What the model reads of a request.
    Request,
    /// What it reads first, where that has a place of its own in the request.
    Instructions,
    /// What a client reads of an answer.
    Answer,
    /// What of that the model has said: Responses repeats the instructions.
    Completion,
}

/// How often a body may be passed over to see what its objects are. That takes as many objects
/// around each other that have data of their own, and nobody has those.
const MAX_LOOKUPS: usize = 8;
/// How many levels of texts that are JSON are read as that: a tool's result with a result in it, and one
/// more. Each may nest as deep as a body, and all of it is on the stack, so their number has a bound.
const MAX_LEVELS: usize = 3;

/// Why texts are not edited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Error<E> {
    /// The prompt is in a form in which there are no texts, such as token ids; or what there is
    /// cannot be told in linear time.
    Unread,
    /// The result is longer than it may be.
    TooLarge,
    /// What the caller says of a text.
    Edit(E),
}

/// The body as text if it is a JSON object, and not nested deeper than others read it.
pub(super) fn json(body: &[u8]) -> Option<&str> {
    let body = str::from_utf8(body).ok()?;
    matches!(parsed(body)?, Json::Object(_)).then_some(body)
}

/// The value that the whole text is.
fn parsed(text: &str) -> Option<Json<'_>> {
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    // What is passed over may nest as deep as it likes there.
    Cursor::new(text.as_bytes()).value().ok()
}

/// Calls `edit` with each text, decoded, in the order of the document; where it returns a text, that
/// stands in its place. Nothing where none does.
///
/// `body` is what [`json`] returned. The result has `max` bytes at most.
pub(super) fn edit<E>(
    body: &str,
    leg: Leg,
    max: usize,
    mut edit: impl FnMut(&str) -> Result<Option<String>, E>,
) -> Result<Option<String>, Error<E>> {
    let mut failed = None;
    let (within, levels) = match leg {
        Leg::Request => (Within::Request, MAX_LEVELS),
        Leg::Instructions => (Within::Beginning, MAX_LEVELS),
        Leg::Answer => (Within::Answer, MAX_LEVELS),
        // Rules see what is written.
        Leg::Completion => (Within::Completion, 0),
    };
    // The walk is compiled once, not for each kind of error.
    walk(body, within, max, levels, &mut |text| {
        edit(text).map_err(|error| {
            failed = Some(error);
            Stop::Edit
        })
    })
    .map_err(|stop| match (stop, failed) {
        (Stop::TooLarge, _) => Error::TooLarge,
        (Stop::Edit, Some(error)) => Error::Edit(error),
        (Stop::Edit | Stop::Unread, _) => Error::Unread,
    })
}

/// Takes out of an answer what tells its texts again, after those were changed: tokens, and what was
/// said aloud. Nothing where there is none.
pub(super) fn forget_tokens(body: &str) -> Option<String> {
    // What stands in the place of a list may be longer by some bytes.
    walk(body, Within::Tokens, usize::MAX, 0, &mut |_| Ok(None))
        .ok()
        .flatten()
}

/// Why a walk ends early.
enum Stop {
    Unread,
    TooLarge,
    Edit,
}

impl From<Unreadable> for Stop {
    fn from(_: Unreadable) -> Self {
        Self::Unread
    }
}

type Edit<'e> = dyn FnMut(&str) -> Result<Option<String>, Stop> + 'e;

fn walk(
    body: &str,
    within: Within,
    max: usize,
    levels: usize,
    edit: &mut Edit<'_>,
) -> Result<Option<String>, Stop> {
    let mut walk = Walk {
        body,
        edit,
        levels,
        lookups: body.len().saturating_mul(MAX_LOOKUPS),
        decoded: Vec::new(),
        edited: Edited {
            body,
            text: String::new(),
            copied: 0,
            max,
        },
    };
    walk.value(&mut Cursor::new(body.as_bytes()), within)?;
    walk.edited.finish()
}

struct Walk<'a, 'e> {
    body: &'a str,
    edit: &'e mut Edit<'e>,
    /// How many levels of texts that are JSON are read as that.
    levels: usize,
    /// So many bytes may yet be passed over to see what objects are.
    lookups: usize,
    /// The room for strings that have escapes.
    decoded: Vec<u8>,
    edited: Edited<'a>,
}

impl<'a> Walk<'a, '_> {
    fn value(&mut self, cursor: &mut Cursor<'a>, within: Within) -> Result<(), Stop> {
        match cursor.peek() {
            Some(b'{') => self.object(cursor, within),
            Some(b'[') => {
                cursor.expect(b'[')?;
                let mut first = true;
                while cursor.has_next(b']', first)? {
                    first = false;
                    self.value(cursor, within)?;
                }
                Ok(())
            }
            Some(b'"') => {
                let (string, span) = self.string(cursor)?;
                match within {
                    Within::Request | Within::Tokens | Within::Recording => Ok(()),
                    _ => self.text(string, span),
                }
            }
            _ => {
                let start = self.at(cursor);
                match cursor.value()? {
                    Json::Scalar(_) if within == Within::Prompt => Err(Stop::Unread),
                    Json::Scalar([b'-' | b'0'..=b'9', ..]) if within == Within::Call => {
                        self.number(start..self.at(cursor))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    fn object(&mut self, cursor: &mut Cursor<'a>, within: Within) -> Result<(), Stop> {
        let start = self.at(cursor);
        let mut kind = None;
        cursor.expect(b'{')?;
        let mut first = true;
        while cursor.has_next(b'}', first)? {
            first = false;
            let (key, span) = self.string(cursor)?;
            if within == Within::Call {
                self.text(key, span)?;
            }
            cursor.expect(b':')?;
            let mut buffer = [0; 32];
            let name = key.name(&mut buffer);
            let next = cursor.peek();
            match field(name, within) {
                Field::Input(_) if next == Some(b'{') => self.value(cursor, Within::Call)?,
                Field::Texts(within) | Field::Input(within) => self.value(cursor, within)?,
                Field::Label(within) if next != Some(b'"') => self.value(cursor, within)?,
                Field::ByType(within) => {
                    let is_opaque = next == Some(b'"') && {
                        let kind = match kind {
                            Some(kind) => kind,
                            None => *kind.insert(self.kind(start)?),
                        };
                        let mut buffer = [0; 32];
                        let kind = kind.map_or(&b""[..], |kind| kind.name(&mut buffer));
                        is_opaque(name, kind, within)
                    };
                    if is_opaque {
                        cursor.value()?;
                    } else {
                        self.value(cursor, within)?;
                    }
                }
                Field::Arguments if next == Some(b'"') => self.arguments(cursor)?,
                Field::Arguments => self.value(cursor, Within::Call)?,
                Field::Skip | Field::Label(_) => {
                    cursor.value()?;
                }
                Field::Unread => {
                    if !cursor.value()?.is_null() {
                        return Err(Stop::Unread);
                    }
                }
                Field::Forget => {
                    let start = self.at(cursor);
                    let with = match cursor.value()? {
                        // A list there is always one, with nothing in it where there is nothing.
                        Json::Array(_) if name == b"logprobs" => "[]",
                        Json::Array(_) | Json::Object(_) | Json::String(_) => "null",
                        Json::Null | Json::Scalar(_) => continue,
                    };
                    let span = start..self.at(cursor);
                    self.edited.replace(span, with)?;
                }
            }
        }
        Ok(())
    }

    /// What is JSON text in a string is edited inside, and escaped twice.
    fn arguments(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Stop> {
        let (string, span) = self.string(cursor)?;
        let mut room = Vec::new();
        let decoded = self.decode(string, &span, &mut room)?;
        // A number alone is no arguments, and there is no way to change it inside.
        let with = match parsed(decoded) {
            Some(Json::Object(_) | Json::Array(_) | Json::String(_)) => self.inside(decoded),
            _ => (self.edit)(decoded),
        };
        self.replace(span, with?)
    }

    fn inside(&mut self, json: &str) -> Result<Option<String>, Stop> {
        let (max, levels) = (self.edited.max, self.levels.saturating_sub(1));
        walk(json, Within::Call, max, levels, &mut |text| {
            (self.edit)(text)
        })
    }

    fn replace(&mut self, span: Range<usize>, with: Option<String>) -> Result<(), Stop> {
        match with {
            Some(with) => self.edited.replace_string(span, &with),
            None => Ok(()),
        }
    }

    /// A number that a tool is called with may be a card's as well. What stands in its place is a
    /// string, and where that gives way to the number again, it is one still.
    fn number(&mut self, span: Range<usize>) -> Result<(), Stop> {
        let digits = self.body.get(span.clone()).ok_or(Stop::Unread)?;
        let with = (self.edit)(digits)?;
        self.replace(span, with)
    }

    fn text(&mut self, string: Str<'a>, span: Range<usize>) -> Result<(), Stop> {
        let mut room = mem::take(&mut self.decoded);
        let decoded = self.decode(string, &span, &mut room)?;
        let may_be_json = self.levels > 0 && decoded.trim_start().starts_with(['{', '[']);
        let with = if may_be_json && parsed(decoded).is_some() {
            self.inside(decoded)
        } else {
            (self.edit)(decoded)
        };
        self.replace(span, with?)?;
        self.decoded = room;
        Ok(())
    }

    fn decode<'r>(
        &self,
        string: Str<'a>,
        span: &Range<usize>,
        room: &'r mut Vec<u8>,
    ) -> Result<&'r str, Stop>
    where
        'a: 'r,
    {
        if string.plain().is_some() {
            return self
                .body
                .get(span.start + 1..span.end - 1)
                .ok_or(Stop::Unread);
        }
        room.clear();
        string.decode(|run| room.extend_from_slice(run))?;
        str::from_utf8(room).map_err(|_| Stop::Unread)
    }

    /// The next string, and where it is.
    fn string(&self, cursor: &mut Cursor<'a>) -> Result<(Str<'a>, Range<usize>), Stop> {
        cursor.peek();
        let start = self.at(cursor);
        let string = cursor.value()?.string().ok_or(Stop::Unread)?;
        Ok((string, start..self.at(cursor)))
    }

    fn at(&self, cursor: &Cursor<'a>) -> usize {
        self.body.len() - cursor.left()
    }

    /// What the object that begins there says that it is. It is looked for once an object, in all of
    /// it, so what is deep inside would be passed over once for each object around it.
    fn kind(&mut self, start: usize) -> Result<Option<Str<'a>>, Stop> {
        let mut kind = None;
        let object = self.body.as_bytes().get(start..).unwrap_or_default();
        // What is cut off before its end cannot be read.
        let object = object.get(..self.lookups).unwrap_or(object);
        let mut cursor = Cursor::new(object);
        cursor.object(|name, cursor| {
            let value = cursor.value()?;
            if name == b"type" {
                kind = value.string();
            }
            Ok(())
        })?;
        self.lookups -= object.len() - cursor.left();
        Ok(kind)
    }
}

/// A body, and what of it is written anew.
struct Edited<'a> {
    body: &'a str,
    text: String,
    /// So much of the body is in the text.
    copied: usize,
    max: usize,
}

impl Edited<'_> {
    fn replace_string(&mut self, span: Range<usize>, with: &str) -> Result<(), Stop> {
        if with.len() > self.max {
            return Err(Stop::TooLarge);
        }
        let escaped = serde_json::to_string(with).map_err(|_| Stop::Unread)?;
        self.replace(span, &escaped)
    }

    fn replace(&mut self, span: Range<usize>, with: &str) -> Result<(), Stop> {
        if self.copied == 0 {
            self.text.reserve(self.body.len().min(self.max));
        }
        self.push(self.body.get(self.copied..span.start))?;
        self.push(Some(with))?;
        self.copied = span.end;
        Ok(())
    }

    fn push(&mut self, more: Option<&str>) -> Result<(), Stop> {
        let more = more.ok_or(Stop::Unread)?;
        if more.len() > self.max.saturating_sub(self.text.len()) {
            return Err(Stop::TooLarge);
        }
        self.text.push_str(more);
        Ok(())
    }

    fn finish(mut self) -> Result<Option<String>, Stop> {
        if self.copied == 0 {
            return Ok(None);
        }
        self.push(self.body.get(self.copied..))?;
        Ok(Some(self.text))
    }
}
