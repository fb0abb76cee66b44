//! What passes over every answer, whichever way it came: live, or from the cache.
//!
//! | module | idea |
//! |---|---|
//! | `admission` | what becomes of a request before anybody is asked for an answer |
//! | `delivery` | the steps of an answer in their order, which end with a body or a refusal |
//! | `escapes` | texts in which something is written as in JSON |
//! | `guardrails` | what answers must not say |
//! | `patterns` | which of many patterns a text has, and where, in linear time |
//! | `pii` | personal data gives way to placeholders, and comes back |
//! | `plugin` | what others are asked about an answer, and what they say |
//! | `refusal` | why something is withheld, and what the client reads instead |
//! | `texts` | where the texts of requests and answers are, and changing them in place |
//! | `usage` | how many tokens an answer tells of |
//! | `words` | where a text has which of many words, as whole words |
//!
//! Invariant: what cannot be passed over is withheld, unless the configuration says otherwise.

mod admission;
mod delivery;
mod escapes;
mod guardrails;
mod patterns;
mod pii;
mod plugin;
mod refusal;
#[cfg(test)]
mod tests;
mod texts;
mod usage;
mod words;

pub use admission::{Admitted, Body, Request};
pub use delivery::{Answer, Asking, Basis, Context, Delivery};
pub use pii::{Sanitizer, Ticket, TooLarge, Unsanitized};
pub use plugin::Verdict;
pub use refusal::Refusal;
pub use usage::{StreamUsage, Usage};

use crate::config::{self, Errors, Problem};
use guardrails::Guardrails;

/// Compiles the policies of a configuration, in their order. This takes long where there are many
/// patterns, so it is left to those who use them.
///
/// # Errors
/// All that cannot be compiled.
pub fn compile(policies: &[config::Policy]) -> Result<Vec<Policy>, Errors> {
    let (mut compiled, mut problems) = (Vec::new(), Vec::new());
    for policy in policies {
        match Policy::new(policy) {
            Ok(policy) => compiled.push(policy),
            Err(invalid) => problems.extend(invalid.into_iter().map(|invalid| Problem {
                path: format!("{}.{}", policy.path, invalid.path),
                what: invalid.what,
            })),
        }
    }
    if problems.is_empty() {
        Ok(compiled)
    } else {
        Err(Errors(problems))
    }
}

/// What is wrong with a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Where in the policy, as in `guardrails[0].pattern`.
    pub path: String,
    /// What, and what to write instead.
    pub what: String,
}

/// A policy at work.
pub struct Policy {
    config: config::Policy,
    guardrails: Guardrails,
    sanitizer: Option<Sanitizer>,
}

impl Policy {
    /// Compiles what there is to compile.
    ///
    /// # Errors
    /// All that cannot be.
    pub fn new(policy: &config::Policy) -> Result<Self, Vec<Invalid>> {
        let guardrails = Guardrails::new(&policy.guardrails);
        let sanitizer = policy.pii.as_ref().map(Sanitizer::new).transpose();
        match (guardrails, sanitizer) {
            (Ok(guardrails), Ok(sanitizer)) => Ok(Self {
                config: policy.clone(),
                guardrails,
                sanitizer,
            }),
            (guardrails, sanitizer) => {
                let problems = [guardrails.err(), sanitizer.err()];
                Err(problems.into_iter().flatten().flatten().collect())
            }
        }
    }

    /// As it was written.
    pub fn config(&self) -> &config::Policy {
        &self.config
    }

    /// The kinds of personal data that it looks for, if it looks for any.
    pub fn kinds(&self) -> &[String] {
        self.sanitizer.as_ref().map_or(&[], Sanitizer::kinds)
    }
}
