//! Bytes as hexadecimal digits.

/// Two lower-case digits a byte.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(digit.into(), 16));
        }
    }
    text
}

/// So many bytes from twice as many digits, of either case.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let mut bytes = [0; N];
    if pairs.len() != N {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is() {
        assert_eq!(to_hex(&[0, 0x1f, 0xa0, 0xff]), "001fa0ff");
        assert_eq!(from_hex("001FA0ff"), Some([0, 0x1f, 0xa0, 0xff]));
        for wrong in ["", "00", "001fa0f", "001fa0fg", "001fa0ff00", "001fa0é"] {
            assert_eq!(from_hex::<4>(wrong), None, "{wrong:?}");
        }
    }
}
