//! The text of a JSON string, decoded as its end is searched for.
//!
//! Prose comes in long runs, which are handed on as they stand. Code and text that is not ASCII
//! come with an escape every few bytes: those are gathered, because handing each on would cost more
//! than decoding it.

use super::block::{BLOCK, specials};
use super::json::{Result, Unreadable};
use memchr::memchr2;

/// Calls `sink` with the decoded text, run by run; no run ends inside a character. Returns what
/// follows the closing quote, or nothing where the text ends without one. Half a surrogate pair
/// becomes U+FFFD, as engines print it.
pub(super) fn unescape(text: &[u8], mut sink: impl FnMut(&[u8])) -> Result<Option<&[u8]>> {
    let (run, rest) = split_run(text);
    sink(run);
    match rest {
        [] => Ok(None),
        [b'"', rest @ ..] => Ok(Some(rest)),
        // Most strings have no escape: only here is a buffer worth its cost.
        _ => unescape_gathering(rest, sink),
    }
}

fn unescape_gathering(mut text: &[u8], mut sink: impl FnMut(&[u8])) -> Result<Option<&[u8]>> {
    let mut gathered = Gathered::new();
    loop {
        match text {
            [] => {
                gathered.flush(&mut sink);
                return Ok(None);
            }
            [b'"', rest @ ..] => {
                gathered.flush(&mut sink);
                return Ok(Some(rest));
            }
            [b'\\', b'u', ..] => {
                // Where one is, more follow.
                while let Some(digits) = text.strip_prefix(b"\\u") {
                    let (character, rest) = unicode(digits)?;
                    gathered.make_room(&mut sink);
                    gathered.push_char(character);
                    text = rest;
                }
            }
            [b'\\', kind, rest @ ..] => {
                gathered.make_room(&mut sink);
                gathered.push(letter(*kind).ok_or(Unreadable)?);
                text = rest;
            }
            [b'\\'] => return Err(Unreadable),
            _ => match gathered.short_runs(text, &mut sink) {
                0 => {
                    gathered.flush(&mut sink);
                    let (run, rest) = split_run(text);
                    sink(run);
                    text = rest;
                }
                length => text = text.get(length..).ok_or(Unreadable)?,
            },
        }
    }
}

/// Splits before the first quote or backslash.
#[inline]
fn split_run(text: &[u8]) -> (&[u8], &[u8]) {
    let length = memchr2(b'"', b'\\', text).unwrap_or(text.len());
    text.split_at_checked(length).unwrap_or((text, &[]))
}

/// Decoded text that has not been handed on.
struct Gathered {
    bytes: [u8; Self::SIZE],
    used: usize,
}

impl Gathered {
    const SIZE: usize = 1024;

    fn new() -> Self {
        Self {
            bytes: [0; Self::SIZE],
            used: 0,
        }
    }

    /// Makes sure that a character fits, or what `short_runs` takes at a time: less than two blocks
    /// and, because it copies whole ones, up to one more.
    #[inline]
    fn make_room(&mut self, sink: &mut impl FnMut(&[u8])) {
        if self.used > Self::SIZE - 3 * BLOCK {
            self.flush(sink);
        }
    }

    #[inline]
    fn flush(&mut self, sink: &mut impl FnMut(&[u8])) {
        if let Some(run @ [_, ..]) = self.bytes.get(..self.used) {
            sink(run);
        }
        self.used = 0;
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.used) {
            *place = byte;
            self.used += 1;
        }
    }

    #[inline]
    fn push_char(&mut self, character: char) {
        let (bytes, length) = utf8(character);
        let place = self.bytes.get_mut(self.used..);
        if let Some(place) = place.and_then(<[u8]>::first_chunk_mut) {
            // All four, since so many at once cost no more than a few.
            *place = bytes.to_le_bytes();
            self.used += length;
        }
    }

    /// Takes runs and escapes of one letter as long as they are close together, and returns how much
    /// text that was. Nothing of a run is taken where its end is not near.
    ///
    /// Blocks follow one another whatever is found in them. If each began where the last escape
    /// ended, the processor could not look into the next while it decodes this one.
    #[inline]
    fn short_runs(&mut self, text: &[u8], sink: &mut impl FnMut(&[u8])) -> usize {
        let (mut start, mut base) = (0, 0);
        // A block more, because so much is copied from where a run starts.
        while let Some(window) = text
            .get(base..)
            .and_then(<[u8]>::first_chunk::<{ 2 * BLOCK }>)
            && let Some(block) = window.first_chunk()
        {
            let mut specials = specials(block);
            if specials == 0 {
                break;
            }
            if start > base {
                // The block before ended between a backslash and its letter.
                specials &= !1;
            }
            self.make_room(sink);
            // Not in `self`, which is memory: each addition would wait for the one before.
            let mut used = self.used;
            while specials != 0 {
                let at = specials.trailing_zeros() as usize;
                let length = base + at - start;
                self.copy_block(used, text, start);
                if length > BLOCK {
                    self.copy_block(used + BLOCK, text, start + BLOCK);
                }
                start += length;
                used += length;
                if let Some([b'\\', kind]) = text.get(start..).and_then(<[u8]>::first_chunk)
                    && let Some(byte) = letter(*kind)
                    && let Some(place) = self.bytes.get_mut(used)
                {
                    *place = byte;
                    used += 1;
                    start += 2;
                    // The letter may be a quote or a backslash.
                    specials &= !(3 << at);
                } else {
                    self.used = used;
                    return start;
                }
            }
            self.used = used;
            base += BLOCK;
        }
        start
    }

    /// Copies a whole block, since so many bytes at once cost no more than a few.
    #[inline]
    fn copy_block(&mut self, to: usize, text: &[u8], from: usize) {
        let block = text.get(from..).and_then(<[u8]>::first_chunk::<BLOCK>);
        let place = self.bytes.get_mut(to..).and_then(<[u8]>::first_chunk_mut);
        if let (Some(block), Some(place)) = (block, place) {
            *place = *block;
        }
    }
}

/// The byte that an escape of one letter stands for; by a table, because which letter comes next
/// cannot be guessed.
#[inline]
fn letter(kind: u8) -> Option<u8> {
    #[expect(clippy::indexing_slicing, reason = "evaluated when this is compiled")]
    const BYTES: [u8; 256] = {
        let mut bytes = [0; 256];
        let pairs = b"\"\"\\\\//n\nt\tr\rb\x08f\x0C";
        let mut at = 0;
        while at < pairs.len() {
            bytes[pairs[at] as usize] = pairs[at + 1];
            at += 2;
        }
        bytes
    };
    BYTES
        .get(usize::from(kind))
        .copied()
        .filter(|&byte| byte != 0)
}

/// The UTF-8 bytes of a character, the first lowest, and how many they are. In one register: what
/// `char::encode_utf8` writes byte by byte cannot be read back at once without a stall.
#[inline]
fn utf8(character: char) -> (u32, usize) {
    let code = u32::from(character);
    let tail = |shift: u32| 0x80 | (code >> shift & 0x3F);
    match code {
        0..0x80 => (code, 1),
        0x80..0x800 => (0xC0 | code >> 6 | tail(0) << 8, 2),
        0x800..0x1_0000 => (0xE0 | code >> 12 | tail(6) << 8 | tail(0) << 16, 3),
        _ => (
            0xF0 | code >> 18 | tail(12) << 8 | tail(6) << 16 | tail(0) << 24,
            4,
        ),
    }
}

/// Decodes the digits after a `\u`, and the second half of the pair where they are the first.
#[expect(
    clippy::inline_always,
    reason = "a fifth of the time of text that is all escapes"
)]
#[inline(always)]
fn unicode(text: &[u8]) -> Result<(char, &[u8])> {
    let (unit, rest) = hex4(text)?;
    if let Some(character) = char::from_u32(unit) {
        return Ok((character, rest));
    }
    if unit < 0xDC00
        && let Some(second) = rest.strip_prefix(b"\\u")
    {
        let (low, after) = hex4(second)?;
        if (0xDC00..0xE000).contains(&low) {
            let pair = 0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
            let character = char::from_u32(pair).unwrap_or(char::REPLACEMENT_CHARACTER);
            return Ok((character, after));
        }
    }
    Ok((char::REPLACEMENT_CHARACTER, rest))
}

#[inline]
fn hex4(text: &[u8]) -> Result<(u32, &[u8])> {
    let (digits, rest) = text.split_first_chunk::<4>().ok_or(Unreadable)?;
    let [a, b, c, d] = digits.map(hex_digit);
    if (a | b | c | d) > 15 {
        return Err(Unreadable);
    }
    Ok((a << 12 | b << 8 | c << 4 | d, rest))
}

/// The value of a hex digit, and of what is none more than any digit's.
#[inline]
fn hex_digit(byte: u8) -> u32 {
    // By a table: a branch for letters and one for digits would be guessed wrong half the time.
    #[expect(clippy::indexing_slicing, reason = "evaluated when this is compiled")]
    const VALUES: [u8; 256] = {
        let mut values = [0xFF; 256];
        let mut value: u8 = 0;
        while value < 16 {
            values[b"0123456789abcdef"[value as usize] as usize] = value;
            values[b"0123456789ABCDEF"[value as usize] as usize] = value;
            value += 1;
        }
        values
    };
    let value = VALUES.get(usize::from(byte));
    value.copied().map_or(0xFF, u32::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn characters_are_encoded_as_the_standard_has_it(character in any::<char>()) {
            let (bytes, length) = utf8(character);
            let expected = character.to_string();
            prop_assert_eq!(&bytes.to_le_bytes()[..length], expected.as_bytes());
        }

        #[test]
        fn no_run_ends_inside_a_character(text in "([a-zé語😀]{0,70}[\n\"\\\\é]{0,3}){0,30}") {
            let json = serde_json::to_string(&text).unwrap();
            let mut whole = String::new();
            let rest = unescape(&json.as_bytes()[1..], |run| whole += std::str::from_utf8(run).unwrap());
            prop_assert_eq!(rest, Ok(Some(&[][..])));
            prop_assert_eq!(whole, text);
        }
    }
}
