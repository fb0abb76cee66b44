//! What becomes of a request before anybody is asked for an answer.

use super::{Policy, Refusal, Ticket, Unsanitized, texts};
use crate::config::Unchecked;
use crate::prompt::Dialect;

/// A request on its way.
pub struct Request<'a> {
    /// How it was read; nothing where it was not.
    pub dialect: Option<Dialect>,
    /// Whether it asks for a stream.
    pub stream: bool,
    /// Its body, as far as it is known.
    pub body: Body<'a>,
}

/// The body of a request.
#[derive(Clone, Copy)]
pub enum Body<'a> {
    /// There is none.
    None,
    /// All of it.
    Whole(&'a [u8]),
    /// It is too long, or does not end before there is an answer.
    Unknown,
}

/// A request that goes on.
pub struct Admitted {
    /// What stands in the place of its body, if anything does.
    pub body: Option<String>,
    /// What brings back what was taken out of it.
    pub ticket: Ticket,
    /// Whether neither it nor its answer may be kept: there may be in it what should have been taken
    /// out.
    pub is_unsanitized: bool,
}

impl Policy {
    /// Decides on a request.
    ///
    /// # Errors
    /// Why it does not go on.
    pub fn admit(&self, request: &Request<'_>) -> Result<Admitted, Refusal> {
        let mut admitted = Admitted {
            body: None,
            ticket: Ticket::default(),
            is_unsanitized: false,
        };
        if request.stream && self.config.judges() {
            if self.config.on_stream == Unchecked::Refuse {
                return Err(Refusal::Stream);
            }
            admitted.is_unsanitized = self.sanitizer.is_some();
            return Ok(admitted);
        }
        let Some(sanitizer) = &self.sanitizer else {
            return Ok(admitted);
        };
        let body = match request.body {
            Body::None => return Ok(admitted),
            Body::Whole(body) => texts::json(body),
            Body::Unknown => None,
        };
        let outcome = match (body, request.dialect) {
            (Some(body), Some(_)) => sanitizer.sanitize(body, max_bytes(body)),
            _ => Err(Unsanitized::Unread),
        };
        match outcome {
            Ok((body, ticket)) => {
                admitted.body = body;
                admitted.ticket = ticket;
            }
            Err(Unsanitized::Unread) if self.config.on_unread == Unchecked::Skip => {
                admitted.is_unsanitized = true;
            }
            Err(Unsanitized::Unread) => return Err(Refusal::UnreadRequest),
            Err(_) => return Err(Refusal::ExcessiveRequest),
        }
        Ok(admitted)
    }
}

/// What a body may have become. Most placeholders are shorter than what they stand for.
fn max_bytes(body: &str) -> usize {
    body.len().saturating_mul(2).saturating_add(1024)
}
