//! The headers of a request, read where Envoy has put them: the SDK would make two strings of each.

use crate::host::remove_request_header;
use proxy_wasm::types::MapType;

/// The request headers, read at once: to ask for one costs half as much as to read them all.
pub(crate) struct RequestHeaders {
    bytes: Vec<u8>,
    /// Whether these are all. If Envoy has not told them, there may be any.
    is_whole: bool,
}

#[expect(unsafe_code, reason = "the SDK has nothing that returns the bytes")]
mod raw {
    use proxy_wasm::types::MapType;

    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    }

    /// All headers of a map as Envoy writes them down. Empty where it does not.
    pub(super) fn pairs(map: MapType) -> Vec<u8> {
        let (mut data, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: The host writes to these two places alone, and what it has them point at it has got
        // from the SDK's `proxy_on_memory_allocate`, which makes a boxed slice of so many bytes.
        unsafe {
            let refused = proxy_get_header_map_pairs(map as u32, &raw mut data, &raw mut size) != 0;
            if refused || data.is_null() {
                return Vec::new();
            }
            Box::from_raw(std::ptr::slice_from_raw_parts_mut(data, size)).into_vec()
        }
    }
}

impl RequestHeaders {
    /// As they are, in the phase of the request headers.
    pub(crate) fn read() -> Self {
        let mut headers = Self {
            bytes: raw::pairs(MapType::HttpRequestHeaders),
            is_whole: false,
        };
        let count = number(&headers.bytes).map(|(count, _)| count);
        headers.is_whole = count == Some(headers.pairs().count());
        headers
    }

    /// The first of a name, as Envoy itself would tell.
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        let mut named = self.pairs().filter(|(known, _)| *known == name.as_bytes());
        named.next().map(|(_, value)| value)
    }

    /// Removes what only this filter may set, all copies. They are not to be asked for afterwards.
    pub(crate) fn remove(&self, names: &[&str]) {
        if !self.is_whole {
            for name in names {
                remove_request_header(name);
            }
            return;
        }
        for (known, _) in self.pairs() {
            let mut names = names.iter();
            // Of a name that comes twice the second call finds nothing left.
            if let Some(name) = names.find(|name| name.as_bytes() == known) {
                remove_request_header(name);
            }
        }
    }

    /// The length that the request announces, or zero.
    pub(crate) fn content_length(&self) -> usize {
        self.get("content-length")
            .and_then(|digits| str::from_utf8(digits).ok()?.parse().ok())
            .unwrap_or(0)
    }

    /// Whether the request opens a tunnel, whose body ends with the connection.
    pub(crate) fn is_tunnel(&self) -> bool {
        self.get("upgrade").is_some() || self.get(":method") == Some(b"CONNECT")
    }

    /// Names and values: their number, the lengths of each pair, then the bytes, with a zero behind
    /// each.
    fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (count, rest) = number(&self.bytes).unwrap_or_default();
        let (lengths, mut rest) = rest
            .split_at_checked(count.saturating_mul(8))
            .unwrap_or_default();
        let mut take = move |length| {
            let (bytes, after) = rest.split_at_checked(length)?;
            rest = after.get(1..)?;
            Some(bytes)
        };
        lengths.chunks_exact(8).map_while(move |lengths| {
            let (name, lengths) = number(lengths)?;
            let (value, _) = number(lengths)?;
            Some((take(name)?, take(value)?))
        })
    }
}

/// A number, and what follows it.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&number, rest) = bytes.split_first_chunk()?;
    Some((usize::try_from(u32::from_le_bytes(number)).ok()?, rest))
}
