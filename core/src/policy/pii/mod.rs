//! Personal data gives way to placeholders in requests, and comes back in their answers.
//!
//! Invariant: after sanitising, all that looks like a placeholder is one, since what looked like one
//! before has got one itself. So restoring what was sanitised is the identity, whatever the text.
//! The same values have the same placeholders from turn to turn of a conversation, on which what
//! engines keep of its beginning depends.

mod kinds;
mod placeholder;
mod ticket;

pub use ticket::{Ticket, TooLarge};

use super::patterns::{Budget, Costly, Finder, Found, Patterns};
use super::texts::{self, Leg};
use super::{Invalid, escapes};
use crate::config::{self, PiiKind};
use placeholder::placeholders;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Different values of one request at most.
const MAX_VALUES: usize = 10_000;

/// Finds personal data.
pub struct Sanitizer {
    /// Which kinds a text has at all.
    patterns: Patterns,
    finders: Vec<(Finder, Option<PiiKind>)>,
    kinds: Vec<String>,
    /// The same in placeholders, and last that of what looks like one.
    names: Rc<[String]>,
}

/// Why a request is not without personal data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsanitized {
    /// Its prompt is in a form that cannot be read.
    Unread,
    /// It has more different values than are remembered.
    TooMany,
    /// It would be longer than it may be.
    TooLarge,
    /// The search takes more than it may.
    Costly,
}

impl Sanitizer {
    /// # Errors
    /// The patterns that cannot be.
    pub(super) fn new(pii: &config::Pii) -> Result<Self, Vec<Invalid>> {
        let mut invalid = Vec::new();
        let mut finders = Vec::new();
        for &kind in &pii.kinds {
            match Finder::new(kinds::pattern(kind)) {
                Ok(finder) => finders.push((finder, Some(kind))),
                Err(what) => invalid.push(Invalid {
                    path: "pii.kinds".to_owned(),
                    what,
                }),
            }
        }
        for (index, pattern) in pii.patterns.iter().enumerate() {
            match Finder::new(&pattern.pattern) {
                Ok(finder) => finders.push((finder, None)),
                Err(what) => invalid.push(Invalid {
                    path: format!("pii.patterns[{index}].pattern"),
                    what,
                }),
            }
        }
        if !invalid.is_empty() {
            return Err(invalid);
        }
        let own = pii.patterns.iter().map(|pattern| pattern.pattern.as_str());
        let all = pii.kinds.iter().map(|&kind| kinds::pattern(kind));
        let patterns = Patterns::new(all.chain(own)).map_err(|what| {
            let path = "pii.patterns".to_owned();
            let what = format!("the patterns are, all together, {what}");
            vec![Invalid { path, what }]
        })?;
        let known = pii.kinds.iter().map(|kind| kind.as_str().to_owned());
        let own = pii.patterns.iter().map(|pattern| pattern.name.clone());
        let kinds: Vec<String> = known.chain(own).collect();
        let names = kinds.iter().map(|kind| kind.to_ascii_uppercase());
        Ok(Self {
            patterns,
            finders,
            names: names.chain(["TEXT".to_owned()]).collect(),
            kinds,
        })
    }

    /// The names of the kinds, by their places.
    pub fn kinds(&self) -> &[String] {
        &self.kinds
    }

    /// A request without personal data, in `max` bytes at most, and what brings that back. No body
    /// where there was none.
    ///
    /// `body` is a JSON object.
    pub fn sanitize(
        &self,
        body: &str,
        max: usize,
    ) -> Result<(Option<String>, Ticket), Unsanitized> {
        let mut request = Request {
            sanitizer: self,
            found: self.patterns.none(),
            budget: Budget::for_bytes(body.len()),
            numbers: vec![BTreeMap::new(); self.names.len()],
            ticket: Ticket {
                names: Rc::clone(&self.names),
                values: vec![Vec::new(); self.names.len()],
                bytes: 0,
            },
            max,
        };
        // Instructions come before the conversation, but many clients write them behind it, where
        // each turn would give their values other numbers.
        texts::edit(body, Leg::Instructions, max, |text| {
            request.sanitize(text).map(|_| None)
        })?;
        let body = texts::edit(body, Leg::Request, max, |text| request.sanitize(text))?;
        Ok((body, request.ticket))
    }
}

/// A request of which some texts are sanitised.
struct Request<'s> {
    sanitizer: &'s Sanitizer,
    found: Found,
    budget: Budget,
    /// Of each kind, which value has which number.
    numbers: Vec<BTreeMap<Rc<str>, usize>>,
    ticket: Ticket,
    max: usize,
}

/// Where something is found that gets a placeholder.
struct Finding {
    span: Range<usize>,
    /// What it is: the place of its name.
    kind: usize,
}

impl Request<'_> {
    fn sanitize(&mut self, text: &str) -> Result<Option<String>, Unsanitized> {
        let findings = self.findings(text)?;
        let mut sanitized = String::new();
        let mut copied = 0;
        for Finding { span, kind } in findings {
            sanitized.push_str(text.get(copied..span.start).unwrap_or_default());
            let value = text.get(span.clone()).unwrap_or_default();
            self.push_placeholder(kind, value, &mut sanitized)?;
            if sanitized.len() > self.max {
                return Err(Unsanitized::TooLarge);
            }
            copied = span.end;
        }
        if copied == 0 {
            return Ok(None);
        }
        sanitized.push_str(text.get(copied..).unwrap_or_default());
        Ok(Some(sanitized))
    }

    /// In order, and none overlaps another.
    fn findings(&mut self, text: &str) -> Result<Vec<Finding>, Unsanitized> {
        let kind = self.sanitizer.finders.len();
        let mut findings: Vec<Finding> = placeholders(text)
            .map(|placeholder| Finding {
                span: placeholder.span,
                kind,
            })
            .collect();
        match escapes::masked(text) {
            None => self.find(text, &mut findings)?,
            Some(masked) => {
                // Where both find something, an escape is none of it.
                self.find(&masked, &mut findings)?;
                merge(&mut findings);
                let mut others = Vec::new();
                self.find(text, &mut others)?;
                others.retain(|other| {
                    let next = findings.partition_point(|it| it.span.end <= other.span.start);
                    let next = findings.get(next);
                    next.is_none_or(|next| next.span.start >= other.span.end)
                });
                findings.append(&mut others);
            }
        }
        merge(&mut findings);
        Ok(findings)
    }

    fn find(&mut self, text: &str, findings: &mut Vec<Finding>) -> Result<(), Unsanitized> {
        let Sanitizer {
            patterns, finders, ..
        } = self.sanitizer;
        self.found.clear();
        patterns.in_text(text, &mut self.found, &mut self.budget)?;
        for kind in self.found.iter() {
            let Some((finder, known)) = finders.get(kind) else {
                continue;
            };
            let mut from = 0;
            while let Some(span) = finder.find(text, from, &mut self.budget)? {
                let examined = match known {
                    Some(known) => kinds::examine(*known, text, span),
                    None => Ok(span),
                };
                match examined {
                    Ok(span) => {
                        from = span.end;
                        findings.push(Finding { span, kind });
                    }
                    Err(next) => from = next,
                }
            }
        }
        Ok(())
    }

    fn push_placeholder(
        &mut self,
        kind: usize,
        value: &str,
        to: &mut String,
    ) -> Result<(), Unsanitized> {
        let (Some(numbers), Some(values), Some(name)) = (
            self.numbers.get_mut(kind),
            self.ticket.values.get_mut(kind),
            self.sanitizer.names.get(kind),
        ) else {
            return Ok(());
        };
        let number = match numbers.get(value) {
            Some(&number) => number,
            None => {
                let value: Rc<str> = value.into();
                self.ticket.bytes += Ticket::bytes_of(&value);
                values.push(Rc::clone(&value));
                let number = values.len();
                numbers.insert(value, number);
                let count: usize = self.ticket.values.iter().map(Vec::len).sum();
                if count > MAX_VALUES {
                    return Err(Unsanitized::TooMany);
                }
                number
            }
        };
        to.push('[');
        to.push_str(name);
        to.push('-');
        to.push_str(&number.to_string());
        to.push(']');
        Ok(())
    }
}

/// Brings findings in order. Those that overlap are one, so that nothing of any stays: of the kind of
/// the earliest, of those the longest, and of those what looks like a placeholder, then the kinds in
/// their order.
fn merge(findings: &mut Vec<Finding>) {
    // Stable, and what looks like a placeholder comes first.
    findings.sort_by_key(|finding| (finding.span.start, Reverse(finding.span.end)));
    findings.dedup_by(|next, finding| {
        let overlaps = next.span.start < finding.span.end;
        if overlaps {
            finding.span.end = finding.span.end.max(next.span.end);
        }
        overlaps
    });
}

impl From<Costly> for Unsanitized {
    fn from(_: Costly) -> Self {
        Self::Costly
    }
}

impl From<texts::Error<Self>> for Unsanitized {
    fn from(error: texts::Error<Self>) -> Self {
        match error {
            texts::Error::Edit(error) => error,
            texts::Error::TooLarge => Self::TooLarge,
            texts::Error::Unread => Self::Unread,
        }
    }
}
