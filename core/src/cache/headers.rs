//! The names of the headers in which filter and sidecar talk of the cache.

/// Whether there is an answer: `hit`, `miss` or `bypass`. Clients see it as well.
pub const CACHE: &str = "x-rolter-cache";
/// Which kind of hit it is: `exact` or `semantic`. Clients see it as well.
pub const KIND: &str = "x-rolter-cache-kind";
/// Why it is a bypass.
pub const REASON: &str = "x-rolter-reason";
/// What the sidecar hands out with a miss, and wants to have with the answer.
pub const TICKET: &str = "x-rolter-ticket";
/// SHA-256 of the caller's key, in hexadecimal digits.
pub const CALLER: &str = "x-rolter-caller";
/// The path of the request, with its query.
pub const PATH: &str = "x-rolter-path";
