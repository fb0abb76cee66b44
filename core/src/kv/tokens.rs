//! The token ids of a prompt as clients write them into a header.

use super::identity::TOKEN_BYTES;

/// The header that has them.
pub const TOKEN_IDS_HEADER: &str = "x-rolter-vllm-token-ids";

/// Token ids from a list of decimal numbers with commas between them, each as its four bytes,
/// little-endian. Nothing where it is anything else.
pub fn read_token_ids(list: &[u8]) -> Option<Vec<u8>> {
    let mut ids = Vec::with_capacity(list.len() / 2 * TOKEN_BYTES);
    for id in list.split(|&byte| byte == b',') {
        let id: u32 = std::str::from_utf8(id.trim_ascii()).ok()?.parse().ok()?;
        ids.extend_from_slice(&id.to_le_bytes());
    }
    Some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_list_of_numbers_is_read_and_nothing_else() {
        assert_eq!(
            read_token_ids(b"1, 258,4294967295"),
            Some(vec![1, 0, 0, 0, 2, 1, 0, 0, 255, 255, 255, 255])
        );
        for list in [
            "",
            ",",
            "1,",
            "1,,2",
            "-1",
            "1.0",
            "4294967296",
            "0x1",
            "a",
            "[1,2]",
            "1 2",
        ] {
            assert_eq!(read_token_ids(list.as_bytes()), None, "{list}");
        }
        assert_eq!(read_token_ids(b"\xff"), None);
    }
}
