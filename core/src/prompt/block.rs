//! Quotes and backslashes of 64 bytes at once, one bit a byte.
//!
//! A loop that looks for the first of them is guessed wrong at every escape; what is done here
//! takes the same time whatever the bytes are.

use wide::u8x16;

pub(super) const BLOCK: usize = 64;

/// Where quotes and backslashes are.
#[inline]
pub(super) fn specials(block: &[u8; BLOCK]) -> u64 {
    // One mask for both is half the work of one for each.
    bits(block, |bytes| equal(bytes, b'"') | equal(bytes, b'\\'))
}

/// Where quotes are that no backslash escapes. `escaped` says whether the first byte is escaped, and
/// afterwards whether the one that follows the block is.
#[inline]
pub(super) fn closing_quotes(block: &[u8; BLOCK], escaped: &mut bool) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let first = u64::from(*escaped);
    let backslashes = bits(block, |bytes| equal(bytes, b'\\')) & !first;
    let after_backslash = backslashes << 1 | first;
    // Of backslashes in a row, every other one escapes. The carry of a sum runs through a row: it
    // tells rows that start at odd bits from those at even ones, as in simdjson.
    let odd_starts = backslashes & !EVEN & !after_backslash;
    let (sum, carry) = odd_starts.overflowing_add(backslashes);
    *escaped = carry;
    bits(block, |bytes| equal(bytes, b'"')) & !((EVEN ^ sum << 1) & after_backslash)
}

#[inline]
fn equal(bytes: u8x16, byte: u8) -> u8x16 {
    bytes.simd_eq(u8x16::splat(byte))
}

#[inline]
fn bits(block: &[u8; BLOCK], test: impl Fn(u8x16) -> u8x16) -> u64 {
    let (quarters, _) = block.as_chunks::<16>();
    quarters.iter().rev().fold(0, |bits, quarter| {
        bits << 16 | u64::from(test(u8x16::new(*quarter)).to_bitmask())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn block() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(b'"'), Just(b'\\'), Just(b'\\'), any::<u8>()];
        prop::collection::vec(byte, BLOCK)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn bits_are_those_of_a_byte_by_byte_look(block in block(), mut escaped in any::<bool>()) {
            let (mut both, mut closing, mut is_escaped) = (0, 0, escaped);
            for (at, byte) in block.iter().enumerate() {
                both |= u64::from(matches!(byte, b'"' | b'\\')) << at;
                closing |= u64::from(*byte == b'"' && !is_escaped) << at;
                is_escaped = *byte == b'\\' && !is_escaped;
            }
            let block = block.first_chunk().unwrap();
            prop_assert_eq!(specials(block), both);
            prop_assert_eq!(closing_quotes(block, &mut escaped), closing);
            prop_assert_eq!(escaped, is_escaped);
        }
    }
}
