//! The text of a JSON string, decoded as its end is searched for.
//!
//! Prose comes in long runs, which are handed on as they stand. Code and text that is not ASCII
//! come with an escape every few bytes: those are gathered, because handing each on would cost more
//! than decoding it.

use super::json::{Result, Unreadable};
use memchr::memchr2;
use wide::u8x16;

/// How far is looked for a run's end before it counts as long.
const SHORT: usize = 32;

/// Calls `sink` with the decoded text, run by run; no run ends inside a character. Returns what
/// follows the closing quote, or nothing where the text ends without one. Half a surrogate pair
/// becomes U+FFFD, as engines print it.
pub(super) fn unescape(mut text: &[u8], mut sink: impl FnMut(&[u8])) -> Result<Option<&[u8]>> {
    let mut gathered = Gathered::new();
    loop {
        gathered.make_room(&mut sink);
        match gathered.short_run(text) {
            Some(length) => text = text.get(length..).ok_or(Unreadable)?,
            None => {
                gathered.flush(&mut sink);
                let length = memchr2(b'"', b'\\', text).unwrap_or(text.len());
                let (run, rest) = text.split_at_checked(length).ok_or(Unreadable)?;
                sink(run);
                text = rest;
            }
        }
        // Escapes often follow one another.
        while let Some(escape) = text.strip_prefix(b"\\") {
            let (&kind, rest) = escape.split_first().ok_or(Unreadable)?;
            text = rest;
            if kind == b'u' {
                let (character, rest) = unicode(rest)?;
                gathered.push_char(character);
                text = rest;
            } else {
                gathered.push(letter(kind)?);
            }
            gathered.make_room(&mut sink);
        }
        match text.split_first() {
            Some((b'"', rest)) => {
                gathered.flush(&mut sink);
                return Ok(Some(rest));
            }
            // The run was long, or escapes have ended: on with the next.
            Some(_) => {}
            None => {
                gathered.flush(&mut sink);
                return Ok(None);
            }
        }
    }
}

/// Decoded text that has not been handed on.
struct Gathered {
    bytes: [u8; Self::SIZE],
    used: usize,
}

impl Gathered {
    const SIZE: usize = 512;

    fn new() -> Self {
        Self {
            bytes: [0; Self::SIZE],
            used: 0,
        }
    }

    /// Makes sure that a short run or a character fits.
    #[inline]
    fn make_room(&mut self, sink: &mut impl FnMut(&[u8])) {
        if self.used > Self::SIZE - SHORT {
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
        // All four bytes, since so many at once cost no more than a few.
        let mut bytes = [0; 4];
        let length = character.encode_utf8(&mut bytes).len();
        if let Some(place) = self
            .bytes
            .get_mut(self.used..)
            .and_then(<[u8]>::first_chunk_mut)
        {
            *place = bytes;
            self.used += length;
        }
    }

    /// Takes what comes before a quote or backslash and returns its length, where one is near.
    #[inline]
    fn short_run(&mut self, text: &[u8]) -> Option<usize> {
        let block: &[u8; SHORT] = text.first_chunk()?;
        let length = plain_bytes(block)?;
        // All of it, since so many bytes at once cost no more than a few.
        let room = self.bytes.get_mut(self.used..)?.first_chunk_mut()?;
        *room = *block;
        self.used += length;
        Some(length)
    }
}

/// How many bytes come before the first quote or backslash, where there is one.
#[inline]
fn plain_bytes(block: &[u8; SHORT]) -> Option<usize> {
    // All at once: a loop that ends at the first would be guessed wrong at every escape.
    let [low, high] = block.as_chunks().0 else {
        return None;
    };
    let special = |half: &[u8; 16]| {
        let half = u8x16::new(*half);
        (half.simd_eq(u8x16::splat(b'"')) | half.simd_eq(u8x16::splat(b'\\'))).to_bitmask()
    };
    let found = special(low) | special(high) << 16;
    (found != 0).then(|| found.trailing_zeros() as usize)
}

/// The byte that an escape of one letter stands for; by a table, because which letter comes next
/// cannot be guessed.
#[inline]
fn letter(kind: u8) -> Result<u8> {
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
    match BYTES.get(usize::from(kind)) {
        None | Some(0) => Err(Unreadable),
        Some(byte) => Ok(*byte),
    }
}

/// Decodes the digits after a `\u`, and the second half of the pair where they are the first.
#[inline]
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
        fn the_first_quote_or_backslash_of_a_block_is_found(block in any::<[u8; SHORT]>(), special in any::<Option<u8>>()) {
            let mut block = block.map(|byte| if byte % 7 == 0 { byte } else { byte & 0x5F });
            if let Some(at) = special {
                block[usize::from(at) % SHORT] = if at % 2 == 0 { b'"' } else { b'\\' };
            }
            let expected = block.iter().position(|byte| matches!(byte, b'"' | b'\\'));
            prop_assert_eq!(plain_bytes(&block), expected);
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
