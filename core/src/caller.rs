//! Who sends a request, as far as a header tells. Only hashes leave this module: neither a key nor
//! a session's name is kept anywhere.

use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_64;

/// SHA-256 of the key that a header's value has: of all of it but a leading `Bearer` and the space
/// around. `printf %s "$KEY" | sha256sum` is the same. Nothing where that leaves nothing.
pub fn key_hash(value: &[u8]) -> Option<[u8; 32]> {
    const SCHEME: &[u8] = b"bearer ";
    let value = value.trim_ascii();
    let key = match value.split_at_checked(SCHEME.len()) {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case(SCHEME) => key.trim_ascii(),
        _ => value,
    };
    (!key.is_empty() && !key.eq_ignore_ascii_case(b"bearer")).then(|| Sha256::digest(key).into())
}

/// SHA-256 of nothing, which is what a variable that was not set leads to.
pub fn is_hash_of_nothing(hash: &[u8; 32]) -> bool {
    *hash == <[u8; 32]>::from(Sha256::digest(b""))
}

/// A number for the session that a header's value names.
pub fn session_hash(value: &[u8]) -> u64 {
    xxh3_64(value.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_key_is_what_follows_the_scheme() {
        // printf %s sk-123 | sha256sum
        let hash = key_hash(b"sk-123").unwrap();
        let hex = hash
            .iter()
            .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        assert_eq!(
            hex,
            "acb42a4fa3d3621a7eeccc0cc79a3727e1c37572145ac3d1e7f773dde84de728"
        );
        for same in [
            "Bearer sk-123",
            "bearer  sk-123 ",
            " BEARER sk-123",
            "sk-123 ",
        ] {
            assert_eq!(key_hash(same.as_bytes()), Some(hash), "{same:?}");
        }
        for other in ["Bearersk-123", "Basic sk-123", "sk-1234", "", "Bearer "] {
            assert_ne!(key_hash(other.as_bytes()), Some(hash), "{other:?}");
        }
    }

    #[test]
    fn nothing_is_no_key() {
        for value in ["", "  ", "Bearer", "bearer ", " Bearer  "] {
            assert_eq!(key_hash(value.as_bytes()), None, "{value:?}");
        }
        assert!(is_hash_of_nothing(&Sha256::digest(b"").into()));
        assert!(!is_hash_of_nothing(&Sha256::digest(b" ").into()));
    }

    #[test]
    fn space_around_a_session_does_not_count() {
        assert_eq!(session_hash(b" abc "), session_hash(b"abc"));
        assert_ne!(session_hash(b"abc"), session_hash(b"abd"));
    }
}
