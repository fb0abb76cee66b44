//! What a client says about the cache, in `cache-control`.

/// What a client wants of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// An answer that is kept, if there is one.
    #[default]
    Any,
    /// A new answer, which may be kept.
    NoCache,
    /// That nothing of the request is kept, nor looked for.
    NoStore,
}

impl Control {
    /// What the header's value says: its directives are parted by commas.
    pub fn of(header: &[u8]) -> Self {
        let mut control = Self::Any;
        for directive in header.split(|&byte| byte == b',') {
            let directive = directive.trim_ascii();
            if directive.eq_ignore_ascii_case(b"no-store") {
                return Self::NoStore;
            }
            if directive.eq_ignore_ascii_case(b"no-cache") {
                control = Self::NoCache;
            }
        }
        control
    }
}
