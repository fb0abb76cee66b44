//! Texts in which something is written as in JSON or code: a line break as `\n`.
//!
//! The letter of such an escape is none of the word that follows. A tool's result is often JSON, and a
//! number at the beginning of a line there would be part of a word.

use memchr::memchr_iter;

/// The same text with spaces in place of the letters of escapes, byte by byte at the same place.
/// Nothing where it has none.
pub(super) fn masked(text: &str) -> Option<String> {
    let mut masked = None;
    for at in memchr_iter(b'\\', text.as_bytes()) {
        let rest = text.as_bytes().get(at + 1..).unwrap_or_default();
        let length = match rest {
            [b'n' | b'r' | b't' | b'b' | b'f', ..] => 1,
            [b'u', digits @ ..]
                if digits
                    .get(..4)
                    .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) =>
            {
                5
            }
            _ => continue,
        };
        let masked = masked.get_or_insert_with(|| text.as_bytes().to_vec());
        if let Some(letters) = masked.get_mut(at + 1..at + 1 + length) {
            letters.fill(b' ');
        }
    }
    // Nothing but ASCII has given way to ASCII.
    String::from_utf8(masked?).ok()
}
