//! A borrowed view of JSON text: values are spans of the body, descended into only where asked.
//!
//! Skipping a value is a jump from quote to quote, so what is not looked at costs next to nothing,
//! and nothing is copied: a string is handed out as runs of decoded bytes. Of what is descended
//! into, commas, colons and names are checked; of what is skipped, quotes and brackets; numbers are
//! not, since an engine will. No recursion, so depth costs no stack.

use super::block::{closing_quotes, specials};
use super::unescape::unescape;
use memchr::memchr;

/// The text is not JSON, or not the JSON that was expected there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

pub(crate) type Result<T> = std::result::Result<T, Unreadable>;

/// How deep a value may nest, about as deep as `serde_json` goes: one bit a level has to fit a
/// word.
const MAX_DEPTH: u32 = 128;

/// One value, as a span of the body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Json<'a> {
    Null,
    /// A number, `true` or `false`.
    Scalar(&'a [u8]),
    String(Str<'a>),
    /// With its brackets.
    Array(&'a [u8]),
    /// With its braces.
    Object(&'a [u8]),
}

impl<'a> Json<'a> {
    pub(crate) fn is_null(self) -> bool {
        matches!(self, Self::Null)
    }

    pub(crate) fn string(self) -> Option<Str<'a>> {
        match self {
            Self::String(string) => Some(string),
            _ => None,
        }
    }

    /// The token id that this number is.
    pub(crate) fn token_id(self) -> Option<u32> {
        match self {
            Self::Scalar(digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// A cursor at this value, to read what is in it.
    pub(crate) fn cursor(self) -> Cursor<'a> {
        Cursor::new(match self {
            Self::Null => b"null",
            Self::String(Str(span))
            | Self::Scalar(span)
            | Self::Array(span)
            | Self::Object(span) => span,
        })
    }

    /// Calls `sink` with the value's text: white space between tokens left out, strings decoded,
    /// so that it does not depend on how a client writes JSON.
    pub(crate) fn compact(self, mut sink: impl FnMut(&[u8])) -> Result<()> {
        let mut cursor = self.cursor();
        while let Some(byte) = cursor.peek() {
            if byte == b'"' {
                sink(b"\"");
                cursor.text(&mut sink)?;
                sink(b"\"");
            } else {
                let mut run = cursor.rest.iter();
                let length = run
                    .position(|&byte| byte == b'"' || is_space(byte))
                    .unwrap_or(cursor.rest.len());
                sink(cursor.take(length)?);
            }
        }
        Ok(())
    }
}

/// A string, with its quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Str<'a>(&'a [u8]);

impl<'a> Str<'a> {
    /// The bytes themselves where they hold no escape.
    pub(crate) fn plain(self) -> Option<&'a [u8]> {
        let inside = self.inside();
        memchr(b'\\', inside).is_none().then_some(inside)
    }

    /// The decoded string in `buffer`, or nothing where it is longer: enough to compare with names.
    pub(crate) fn name<'b>(self, buffer: &'b mut [u8; 32]) -> &'b [u8]
    where
        'a: 'b,
    {
        if let Some(plain) = self.plain() {
            return plain;
        }
        let mut used = 0;
        let fits = self.decode(|run| {
            if let Some(room) = buffer.get_mut(used..used + run.len()) {
                room.copy_from_slice(run);
            }
            used += run.len();
        });
        match fits {
            Ok(()) => buffer.get(..used).unwrap_or_default(),
            Err(Unreadable) => &[],
        }
    }

    /// The bytes between the quotes as they stand.
    pub(crate) fn inside(self) -> &'a [u8] {
        self.0.get(1..self.0.len() - 1).unwrap_or_default()
    }

    /// Calls `sink` with the decoded string, run by run. No run ends inside a character.
    pub(crate) fn decode(self, sink: impl FnMut(&[u8])) -> Result<()> {
        unescape(self.inside(), sink).map(|_| ())
    }
}

/// A place in the text, from which values are read one after the other.
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    /// Reads an array. `element` has to read one value each time it is called.
    pub(crate) fn array(&mut self, mut element: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.expect(b'[')?;
        let mut first = true;
        while self.has_next(b']', first)? {
            first = false;
            element(self)?;
        }
        Ok(())
    }

    /// Reads an object field by field, and returns the whole of it. `field` has to read one value
    /// each time it is called. Names of more than 32 bytes, which nobody asks for, are handed over
    /// as empty if they have escapes.
    pub(crate) fn object(
        &mut self,
        mut field: impl FnMut(&[u8], &mut Self) -> Result<()>,
    ) -> Result<Json<'a>> {
        let mut buffer = [0; 32];
        self.peek();
        let start = self.rest;
        self.expect(b'{')?;
        let mut first = true;
        while self.has_next(b'}', first)? {
            first = false;
            if self.peek() != Some(b'"') {
                return Err(Unreadable);
            }
            let name = self.string()?;
            self.expect(b':')?;
            field(name.name(&mut buffer), self)?;
        }
        let length = start.len() - self.rest.len();
        start.get(..length).map(Json::Object).ok_or(Unreadable)
    }

    /// Moves to the next item of an array or object, or past its end.
    pub(crate) fn has_next(&mut self, close: u8, first: bool) -> Result<bool> {
        if self.peek() == Some(close) {
            self.advance(1);
            return Ok(false);
        }
        if !first {
            self.expect(b',')?;
        }
        Ok(true)
    }

    /// The next byte that is no white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        let spaces = self.rest.iter().take_while(|&&byte| is_space(byte)).count();
        self.advance(spaces);
        self.rest.first().copied()
    }

    /// How many bytes follow.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    fn advance(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    pub(crate) fn expect(&mut self, byte: u8) -> Result<()> {
        if self.peek() != Some(byte) {
            return Err(Unreadable);
        }
        self.advance(1);
        Ok(())
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (span, rest) = self.rest.split_at_checked(count).ok_or(Unreadable)?;
        self.rest = rest;
        Ok(span)
    }

    /// The next value, whatever it is.
    pub(crate) fn value(&mut self) -> Result<Json<'a>> {
        match self.peek().ok_or(Unreadable)? {
            b'"' => self.string().map(Json::String),
            b'[' => self.nested().map(Json::Array),
            b'{' => self.nested().map(Json::Object),
            _ => self.scalar(),
        }
    }

    /// Reads a string and calls `sink` with its decoded text, as [`Str::decode`] does, in one scan.
    pub(crate) fn text(&mut self, sink: impl FnMut(&[u8])) -> Result<()> {
        self.expect(b'"')?;
        self.rest = unescape(self.rest, sink)?.ok_or(Unreadable)?;
        Ok(())
    }

    /// At an opening quote.
    pub(crate) fn string(&mut self) -> Result<Str<'a>> {
        let inside = self.rest.get(1..).unwrap_or_default();
        let (string, _) = split_string(inside).ok_or(Unreadable)?;
        self.take(string.len() + 2).map(Str)
    }

    fn scalar(&mut self) -> Result<Json<'a>> {
        let length = self
            .rest
            .iter()
            .position(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'E' | b'+' | b'-' | b'.'))
            .unwrap_or(self.rest.len());
        match self.take(length)? {
            b"null" => Ok(Json::Null),
            span @ (b"true" | b"false" | [b'-' | b'0'..=b'9', ..]) => Ok(Json::Scalar(span)),
            _ => Err(Unreadable),
        }
    }

    /// At an opening bracket: the span to its closing one.
    fn nested(&mut self) -> Result<&'a [u8]> {
        // One bit a level, set for an object.
        let mut kinds: u128 = 0;
        let mut depth = 0;
        let mut rest = self.rest;
        loop {
            let at = rest
                .iter()
                .position(|byte| matches!(byte, b'"' | b'[' | b']' | b'{' | b'}'))
                .ok_or(Unreadable)?;
            let (byte, tail) = rest
                .get(at..)
                .and_then(<[u8]>::split_first)
                .ok_or(Unreadable)?;
            rest = tail;
            match byte {
                b'"' => rest = split_string(rest).ok_or(Unreadable)?.1,
                b'[' | b'{' => {
                    if depth == MAX_DEPTH {
                        return Err(Unreadable);
                    }
                    kinds = kinds << 1 | u128::from(*byte == b'{');
                    depth += 1;
                }
                _ => {
                    if (kinds & 1 == 1) != (*byte == b'}') {
                        return Err(Unreadable);
                    }
                    kinds >>= 1;
                    depth -= 1;
                    if depth == 0 {
                        return self.take(self.rest.len() - rest.len());
                    }
                }
            }
        }
    }
}

/// Splits the text after an opening quote at its closing one, which is dropped.
fn split_string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut end = 0;
    loop {
        end += memchr(b'"', text.get(end..)?)?;
        let before = text.get(..end)?;
        // An odd number of backslashes escapes the quote. Runs are short and each is looked at
        // once, so this stays linear.
        let backslashes = before
            .iter()
            .rev()
            .take_while(|&&byte| byte == b'\\')
            .count();
        if backslashes % 2 == 0 {
            return Some((before, text.get(end + 1..)?));
        }
        end = skip_escaped_quotes(text, end + 1);
    }
}

/// From behind an escaped quote to the closing one, or as far as quotes and backslashes are dense:
/// code has so many that a search from one to the next would be slow.
#[inline(never)]
fn skip_escaped_quotes(text: &[u8], mut at: usize) -> usize {
    let mut escaped = false;
    while let Some(block) = text.get(at..).and_then(<[u8]>::first_chunk)
        && specials(block) != 0
    {
        let closing = closing_quotes(block, &mut escaped);
        if closing != 0 {
            return at + closing.trailing_zeros() as usize;
        }
        at += block.len();
    }
    at
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}
