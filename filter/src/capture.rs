//! An answer is taken down as it passes, and handed to the sidecar once it is complete.
//!
//! Invariant: nothing is delayed for it, and what is taken down has room.

use crate::cache::{Cache, Outcome};
use crate::copied::Copied;
use crate::host;
use crate::lookup::{NoHit, Ticket};
use crate::stores::Store;
use crate::vm::Vm;
use rolter_core::cache::answer::{Refusal, has_form};
use rolter_core::cache::control::Control;
use rolter_core::cache::entry::MAX_CONTENT_TYPE_BYTES;
use rolter_core::cache::headers::{CACHE, KIND};
use std::rc::Rc;

/// A request on a route with a cache, from when it is known that it must be answered by a target.
pub(crate) struct Cached {
    cache: Rc<Cache>,
    outcome: Outcome,
    /// The answer, while it may yet be stored.
    capture: Option<Capture>,
}

struct Capture {
    /// The cluster of the sidecar.
    cluster: Rc<str>,
    ticket: Ticket,
    content_type: String,
    body: Copied,
}

impl Cached {
    /// For a request that goes to a target of a route with this cache.
    pub(crate) fn new(cache: &Rc<Cache>, cluster: Option<&Rc<str>>, no_hit: NoHit) -> Self {
        let (outcome, ticket) = match no_hit {
            NoHit::Miss(ticket) => (Outcome::Miss, ticket),
            NoHit::Bypass => (Outcome::Bypass, None),
        };
        // An answer of one route is none of another's.
        let ticket = ticket.filter(|ticket| Rc::ptr_eq(&ticket.cache, cache));
        let capture = cluster.zip(ticket).map(|(cluster, ticket)| Capture {
            cluster: Rc::clone(cluster),
            ticket,
            content_type: String::new(),
            body: Copied::new(),
        });
        Self {
            cache: Rc::clone(cache),
            outcome,
            capture,
        }
    }

    /// Takes in the response headers, and tells the client of the cache.
    pub(crate) fn on_headers(&mut self, status: u16, end_of_stream: bool) {
        host::set_response_header(CACHE, self.outcome.told());
        // Some engine's own, which is of no kind that is known here.
        host::remove_response_header(KIND);
        let max = self.cache.config.max_entry_bytes;
        let Some(capture) = &mut self.capture else {
            return;
        };
        if let Err(refusal) = capture.read_headers(status, max) {
            return self.give_up(refusal);
        }
        if end_of_stream {
            self.give_up(Refusal::Incomplete);
        }
    }

    /// Takes down a part of the body, in its phase.
    pub(crate) fn on_body(&mut self, size: usize, end_of_stream: bool) {
        let max = self.cache.config.max_entry_bytes;
        let Some(capture) = &mut self.capture else {
            return;
        };
        if size > 0
            && let Err(refusal) = capture.body.add(size, max)
        {
            return self.give_up(refusal);
        }
        if end_of_stream {
            self.on_complete();
        }
    }

    /// Hands the answer to the sidecar.
    pub(crate) fn on_complete(&mut self) {
        if let Some(capture) = self.capture.take() {
            let Capture {
                cluster,
                ticket,
                content_type,
                body: Copied { bytes: body, room },
            } = capture;
            Vm::get().stores.add(Store {
                cache: ticket.cache,
                cluster,
                ticket: ticket.text,
                content_type,
                body,
                room,
            });
        }
    }

    /// The request is over. A client that has read the last event of a stream does not wait for the
    /// end of it; whether that was the last one, the sidecar judges.
    pub(crate) fn on_end(&mut self) {
        match &self.capture {
            Some(capture) if has_form(true, &capture.content_type) => self.on_complete(),
            Some(_) => self.give_up(Refusal::Incomplete),
            None => {}
        }
    }

    fn give_up(&mut self, refusal: Refusal) {
        self.capture = None;
        self.cache.captured(refusal.as_str());
    }
}

impl Capture {
    /// Takes note of what the headers tell, and refuses what will not be stored anyway.
    fn read_headers(&mut self, status: u16, max: usize) -> Result<(), Refusal> {
        let header = host::response_header;
        if status != 200 {
            return Err(Refusal::Status);
        }
        let is_plain = |encoding: &[u8]| encoding.eq_ignore_ascii_case(b"identity");
        if header("content-encoding").is_some_and(|encoding| !is_plain(&encoding)) {
            return Err(Refusal::Encoded);
        }
        let control = header("cache-control").map(|value| Control::of(&value));
        if control == Some(Control::NoStore) {
            return Err(Refusal::NoStore);
        }
        let length = header("content-length");
        let length = length.and_then(|digits| str::from_utf8(&digits).ok()?.parse().ok());
        if length.is_some_and(|length: usize| length > max) {
            return Err(Refusal::TooLarge);
        }
        let content_type = header("content-type").unwrap_or_default();
        let content_type = String::from_utf8(content_type).ok();
        let content_type = content_type.filter(|text| text.len() <= MAX_CONTENT_TYPE_BYTES);
        self.content_type = content_type.ok_or(Refusal::ContentType)?;
        Ok(())
    }
}
