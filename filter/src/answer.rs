//! An answer that is under way to the client, as the filter of the policy sees and changes it.

use crate::copied::Copied;
use crate::host;
use rolter_core::cache::answer::has_form;
use rolter_core::policy::{Basis, Refusal, StreamUsage, Usage};
use rolter_core::prompt::Dialect;

/// What an answer is, as its headers tell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// An event stream.
    Events,
    /// Compressed, or encoded otherwise.
    Encoded,
    /// Sounds, pictures or other bytes that are no text.
    Media,
    /// What it is shows once it is whole.
    Whole,
}

/// An answer that passes by, for the tokens that it tells of.
pub(crate) enum Passing {
    Events(StreamUsage),
    Whole(Copied),
    /// It tells none, or more than is copied.
    Unread,
}

/// An answer that is dropped as it comes; the client gets an error instead.
pub(crate) struct Dropped {
    pub(crate) refusal: Refusal,
    pub(crate) dialect: Option<Dialect>,
    /// Whether some of its body has come. Without one, nothing can be put in the place of that.
    pub(crate) has_body: bool,
}

impl Form {
    /// In the phase of the response headers.
    pub(crate) fn read() -> Self {
        let encoding = host::response_header("content-encoding");
        if encoding.is_some_and(|encoding| !encoding.eq_ignore_ascii_case(b"identity")) {
            return Self::Encoded;
        }
        let kind = host::response_header("content-type").unwrap_or_default();
        if has_form(true, &String::from_utf8_lossy(&kind)) {
            return Self::Events;
        }
        let is_media = |media: &str| {
            let start = kind.get(..media.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(media.as_bytes()))
        };
        let media = ["audio/", "image/", "video/", "application/octet-stream"];
        if media.into_iter().any(is_media) {
            return Self::Media;
        }
        Self::Whole
    }
}

impl Passing {
    pub(crate) fn of(form: Form) -> Self {
        match form {
            Form::Events => Self::Events(StreamUsage::default()),
            Form::Whole => Self::Whole(Copied::new()),
            Form::Encoded | Form::Media => Self::Unread,
        }
    }

    /// Takes in what passes, in the phase of the response body.
    pub(crate) fn add(&mut self, size: usize, max: usize) {
        match self {
            _ if size == 0 => {}
            Self::Events(usage) => {
                if let Some(bytes) = host::response_body(size) {
                    usage.add(&bytes);
                }
            }
            Self::Whole(copied) => {
                if copied.add(size, max).is_err() {
                    *self = Self::Unread;
                }
            }
            Self::Unread => {}
        }
    }

    pub(crate) fn usage(&self) -> Option<Usage> {
        match self {
            Self::Events(usage) => usage.usage(),
            Self::Whole(copied) => usage(&copied.bytes),
            Self::Unread => None,
        }
    }
}

/// The tokens that a whole answer tells of.
pub(crate) fn usage(body: &[u8]) -> Option<Usage> {
    Usage::of_answer(str::from_utf8(body).ok()?)
}

impl Dropped {
    /// Puts the error in its place, once it has come to its end.
    pub(crate) fn end(&self) {
        withhold_head(&self.refusal);
        if self.has_body {
            lay_down(&self.refusal.body(self.dialect));
        }
    }
}

/// Puts an error in the place of an answer that is held, whole.
pub(crate) fn withhold(refusal: &Refusal, dialect: Option<Dialect>) {
    withhold_head(refusal);
    lay_down(&refusal.body(dialect));
}

/// Puts another body in the place of the one that is held, whose headers are held as well.
pub(crate) fn lay_down(body: &str) {
    host::replace_response_body(body.as_bytes());
    host::set_response_header("content-length", &body.len().to_string());
}

/// Puts the headers of an error in the place of those that are held.
fn withhold_head(refusal: &Refusal) {
    host::set_response_header(":status", &refusal.status().to_string());
    host::set_response_header("content-type", "application/json");
    host::remove_response_header("content-encoding");
    host::remove_response_header("content-length");
}

/// Where the answer comes from, as the filter below has noted.
pub(crate) fn basis() -> Basis {
    if host::field("rolter_cache").as_deref() != Some("hit") {
        return Basis::Upstream;
    }
    match host::field("rolter_cache_detail").as_deref() {
        Some("semantic") => Basis::Semantic,
        _ => Basis::Exact,
    }
}
