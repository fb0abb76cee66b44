//! What brings personal data back into the answer to the request that it was taken from.
//!
//! Invariant: it lives with that request and nowhere else. There is no way to copy it or to write it
//! down, and what it shows of itself is counts.

use super::super::texts::{self, Leg};
use super::placeholder::placeholders;
use std::fmt;
use std::mem;
use std::rc::Rc;

/// What the placeholders of one request stand for.
#[derive(Default)]
pub struct Ticket {
    /// As the kinds are named in placeholders; the last is of what looked like one.
    pub(super) names: Rc<[String]>,
    /// Of each kind, in the order of their numbers.
    pub(super) values: Vec<Vec<Rc<str>>>,
    pub(super) bytes: usize,
}

/// The answer is longer than it may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLarge;

impl Ticket {
    /// Whether nothing was taken out.
    pub fn is_empty(&self) -> bool {
        self.values.iter().all(Vec::is_empty)
    }

    /// How many different values of which kind were found, where there were any.
    pub fn found(&self) -> impl Iterator<Item = (usize, u64)> {
        let kinds = self.names.len().saturating_sub(1);
        let counts = self.values.iter().map(|values| values.len() as u64);
        counts
            .take(kinds)
            .enumerate()
            .filter(|&(_, count)| count > 0)
    }

    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// An answer with what its placeholders stand for, in `max` bytes at most. Nothing where it has
    /// none that are known. What came back is not looked at again.
    ///
    /// `body` is a JSON object.
    pub fn restore(&self, body: &str, max: usize) -> Result<Option<String>, TooLarge> {
        if self.is_empty() {
            return Ok(None);
        }
        match texts::edit(body, Leg::Answer, max, |text| self.restore_text(text, max)) {
            Ok(restored) => Ok(restored),
            Err(texts::Error::TooLarge | texts::Error::Edit(TooLarge)) => Err(TooLarge),
            // Of a body that is something else there is nothing to restore.
            Err(texts::Error::Unread) => Ok(None),
        }
    }

    fn restore_text(&self, text: &str, max: usize) -> Result<Option<String>, TooLarge> {
        let mut restored = String::new();
        let mut copied = 0;
        for placeholder in placeholders(text) {
            let Some(value) = self.value(placeholder.name, placeholder.number) else {
                continue;
            };
            let before = text.get(copied..placeholder.span.start).unwrap_or_default();
            if before.len() + value.len() > max.saturating_sub(restored.len()) {
                return Err(TooLarge);
            }
            restored.push_str(before);
            restored.push_str(value);
            copied = placeholder.span.end;
        }
        if copied == 0 {
            return Ok(None);
        }
        restored.push_str(text.get(copied..).unwrap_or_default());
        Ok(Some(restored))
    }

    fn value(&self, name: &str, number: Option<usize>) -> Option<&str> {
        let kind = self.names.iter().position(|other| other == name)?;
        let values = self.values.get(kind)?;
        values.get(number?.checked_sub(1)?).map(AsRef::as_ref)
    }

    /// What one more value takes.
    pub(super) fn bytes_of(value: &str) -> usize {
        // Its two counts, and its place in the list.
        value.len() + 4 * mem::size_of::<usize>()
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.values.iter().map(Vec::len);
        formatter.debug_list().entries(counts).finish()
    }
}
