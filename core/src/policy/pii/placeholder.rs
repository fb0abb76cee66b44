//! What stands for personal data: `[EMAIL-1]`.
//!
//! Nothing in it is escaped in JSON, HTML or Markdown, and it has no other bracket inside, so no two
//! overlap and none comes into being where others are put into a text.

use memchr::memchr;
use std::ops::Range;

/// What looks like a placeholder.
pub(super) struct Placeholder<'t> {
    /// Where it is, with its brackets.
    pub(super) span: Range<usize>,
    pub(super) name: &'t str,
    /// Nothing where it is not written as numbers are.
    pub(super) number: Option<usize>,
}

const MAX_NAME: usize = 32;
const MAX_DIGITS: usize = 9;

/// All that looks like one, in order.
pub(super) fn placeholders(text: &str) -> impl Iterator<Item = Placeholder<'_>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let start = from + memchr(b'[', text.as_bytes().get(from..)?)?;
            from = start + 1;
            if let Some(placeholder) = at(text, start) {
                from = placeholder.span.end;
                return Some(placeholder);
            }
        }
    })
}

/// The one whose bracket is there.
fn at(text: &str, start: usize) -> Option<Placeholder<'_>> {
    let inside = text.get(start + 1..)?;
    let name = leading(inside, MAX_NAME, |byte| {
        byte.is_ascii_uppercase() || byte.is_ascii_digit()
    });
    if !name.starts_with(|first: char| first.is_ascii_uppercase()) {
        return None;
    }
    let rest = inside.get(name.len()..)?.strip_prefix('-')?;
    let digits = leading(rest, MAX_DIGITS, |byte| byte.is_ascii_digit());
    if digits.is_empty() || !rest.get(digits.len()..)?.starts_with(']') {
        return None;
    }
    let is_canonical = !digits.starts_with('0');
    Some(Placeholder {
        span: start..start + name.len() + digits.len() + 3,
        name,
        number: digits.parse().ok().filter(|_| is_canonical),
    })
}

/// So much of the beginning as fits, up to `max` bytes.
fn leading(text: &str, max: usize, fits: impl Fn(u8) -> bool) -> &str {
    let bytes = text.bytes().take(max);
    let length = bytes.take_while(|&byte| fits(byte)).count();
    text.get(..length).unwrap_or_default()
}
