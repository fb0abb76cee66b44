//! How many tokens an answer tells of, in whichever API's words.
//!
//! Invariant: what does not tell of tokens is passed over, and a stream is never held: no more of it
//! than one line, and no line that is over [`MAX_LINE_BYTES`].

use crate::prompt::json::{Cursor, Json, Result};
use memchr::{memchr2, memmem};

/// The longest line of a stream that is read, and so what a stream takes of memory at most.
///
/// The last event of Responses has all of the response once more, with tools and instructions.
const MAX_LINE_BYTES: usize = 256 << 10;

/// Tokens of a request and its answer.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Usage {
    /// What the engine has read.
    pub prompt: u64,
    /// What it has written.
    pub completion: u64,
    /// How much of what it has read it knew already.
    pub cached: u64,
}

impl Usage {
    /// That of an answer in one piece, of any API.
    pub fn of_answer(body: &str) -> Option<Self> {
        let mut told = Told::default();
        // What was told before the body became unreadable has been told.
        let _ = told.take_in(&mut Cursor::new(body.as_bytes()));
        told.usage()
    }
}

/// That of an event stream as it passes, in pieces that are cut anywhere.
#[derive(Debug, Default)]
pub struct StreamUsage {
    told: Told,
    /// The beginning of a line whose end is to come.
    line: Vec<u8>,
    /// Whether that line is passed over.
    is_too_long: bool,
}

impl StreamUsage {
    /// The next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            if self.is_too_long {
                self.is_too_long = false;
            } else if self.line.is_empty() {
                self.told.take_in_line(line);
            } else {
                self.hold(line);
                self.told.take_in_line(&self.line);
                self.is_too_long = false;
            }
            self.line.clear();
        }
        self.hold(rest);
    }

    /// So far; nothing where nothing has been told.
    pub fn usage(&self) -> Option<Usage> {
        self.told.usage()
    }

    fn hold(&mut self, bytes: &[u8]) {
        if self.is_too_long || self.line.len() + bytes.len() > MAX_LINE_BYTES {
            self.is_too_long = true;
            self.line = Vec::new();
        } else {
            // As a vector grows by itself, but no further than may be needed.
            let length = (self.line.len() + bytes.len()).next_power_of_two();
            self.line.reserve_exact(length - self.line.len());
            self.line.extend_from_slice(bytes);
        }
    }
}

/// The numbers that have been told, the last of each.
#[derive(Debug, Default)]
struct Told {
    /// What was read, all of it or all but what was cached.
    input: Option<u64>,
    output: Option<u64>,
    /// A part of the input.
    cached: Option<u64>,
    /// What Anthropic does not count as input: what came from the cache, and what went there.
    read: Option<u64>,
    created: Option<u64>,
}

impl Told {
    fn usage(&self) -> Option<Usage> {
        if self.input.is_none() && self.output.is_none() {
            return None;
        }
        let [input, output, cached, read, created] = [
            self.input,
            self.output,
            self.cached,
            self.read,
            self.created,
        ]
        .map(Option::unwrap_or_default);
        Some(Usage {
            prompt: input.saturating_add(read).saturating_add(created),
            completion: output,
            cached: cached.saturating_add(read),
        })
    }

    fn take_in_line(&mut self, line: &[u8]) {
        // Most lines do not tell, and are not read.
        if line.len() <= MAX_LINE_BYTES
            && let Some(data) = line.strip_prefix(b"data:")
            && memmem::find(data, b"\"usage\"").is_some()
        {
            let _ = self.take_in(&mut Cursor::new(data));
        }
    }

    /// An answer, or an event with one in it.
    fn take_in(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        cursor.object(|name, cursor| match (name, cursor.peek()) {
            (b"usage", Some(b'{')) => self.take_in_usage(cursor),
            (b"response" | b"message", Some(b'{')) => {
                let inner = |name: &[u8], cursor: &mut Cursor<'_>| match (name, cursor.peek()) {
                    (b"usage", Some(b'{')) => self.take_in_usage(cursor),
                    _ => cursor.value().map(|_| ()),
                };
                cursor.object(inner).map(|_| ())
            }
            _ => cursor.value().map(|_| ()),
        })?;
        Ok(())
    }

    fn take_in_usage(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        cursor.object(|name, cursor| {
            let to = match name {
                b"prompt_tokens" | b"input_tokens" => &mut self.input,
                b"completion_tokens" | b"output_tokens" => &mut self.output,
                b"cache_read_input_tokens" => &mut self.read,
                b"cache_creation_input_tokens" => &mut self.created,
                b"prompt_tokens_details" | b"input_tokens_details"
                    if cursor.peek() == Some(b'{') =>
                {
                    let cached = &mut self.cached;
                    let details = |name: &[u8], cursor: &mut Cursor<'_>| {
                        let number = number(cursor.value()?);
                        if name == b"cached_tokens" && number.is_some() {
                            *cached = number;
                        }
                        Ok(())
                    };
                    return cursor.object(details).map(|_| ());
                }
                _ => return cursor.value().map(|_| ()),
            };
            if let Some(number) = number(cursor.value()?) {
                *to = Some(number);
            }
            Ok(())
        })?;
        Ok(())
    }
}

fn number(value: Json<'_>) -> Option<u64> {
    match value {
        Json::Scalar(digits) => str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}
