//! The steps that an answer takes on its way to the client, in their order: guardrails, plugins one
//! after the other, and last what the sanitizer had taken out of the request.
//!
//! Invariant: there is no other way. Whoever has a whole answer calls [`Policy::apply`], and gets
//! what the client may have, or why it may have nothing.

use super::guardrails::Checked;
use super::plugin::{self, Verdict};
use super::{Policy, Refusal, Ticket, Usage, texts};
use crate::config::Unchecked;
use crate::prompt::Dialect;

/// What is known of the request that an answer is for.
pub struct Context {
    /// The name of its route.
    pub route: String,
    /// How it was read; nothing where it was not.
    pub dialect: Option<Dialect>,
    /// The model that it names.
    pub model: Option<String>,
    /// SHA-256 of the caller's key.
    pub caller: Option<[u8; 32]>,
    /// Where the answer comes from.
    pub basis: Basis,
    /// What brings back what was taken out of it.
    pub ticket: Ticket,
}

/// Where an answer comes from, and so who has paid for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// A target has made it for this request.
    Upstream,
    /// It was in the cache, for the same request.
    Exact,
    /// It was in the cache, for a request in other words.
    Semantic,
}

impl Basis {
    /// For metrics and the access log: what the cost of an answer is based on.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Exact | Self::Semantic => "cache",
        }
    }

    pub(super) fn source(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Exact => "exact",
            Self::Semantic => "semantic",
        }
    }

    /// What an answer with this usage has cost, delivered or not: nothing where it was there.
    pub fn billed(self, usage: Usage) -> Usage {
        match self {
            Self::Upstream => usage,
            Self::Exact | Self::Semantic => Usage::default(),
        }
    }
}

/// What becomes of an answer.
pub enum Delivery {
    /// The client gets it.
    Deliver(Answer),
    /// The client gets it as it came: it cannot be read, and the policy lets such answers go.
    Pass,
    /// The client gets this instead. With the guardrails that have found something, by their places.
    Refuse(Refusal, Vec<usize>),
    /// Somebody is to be asked first, about the answer as it is by now.
    Ask(Asking, Answer),
}

/// An answer for the client.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The body.
    pub body: String,
    /// Whether it is another than the one that came, or was resumed with.
    pub is_changed: bool,
    /// The guardrails that have found something, by their places.
    pub findings: Vec<usize>,
}

/// That somebody is asked about an answer. Of the answer itself nothing is kept meanwhile.
pub struct Asking {
    plugin: usize,
    findings: Vec<usize>,
}

impl Asking {
    /// Who is to be asked: a place in [`config::Policy::plugins`](crate::config::Policy::plugins).
    pub fn plugin(&self) -> usize {
        self.plugin
    }

    /// The answer, which was kept elsewhere.
    pub fn resume(&mut self, body: Vec<u8>) -> Option<Answer> {
        Some(Answer {
            body: String::from_utf8(body).ok()?,
            is_changed: false,
            findings: std::mem::take(&mut self.findings),
        })
    }
}

impl Policy {
    /// Begins to pass over a whole answer.
    pub fn apply(&self, body: Vec<u8>, context: &Context) -> Delivery {
        let max = self.config.max_answer_bytes;
        if body.len() > max {
            return Delivery::Refuse(Refusal::TooLarge, Vec::new());
        }
        let body = match String::from_utf8(body) {
            Ok(body) if texts::json(body.as_bytes()).is_some() => body,
            _ if self.config.on_unread == Unchecked::Skip => return Delivery::Pass,
            _ => return Delivery::Refuse(Refusal::UnreadAnswer, Vec::new()),
        };
        let mut answer = Answer::unchanged(body);
        match self.guardrails.check(&answer.body, max) {
            Checked::Passed { body, findings } => {
                answer.findings = findings;
                answer.change(body);
            }
            Checked::Blocked { rule } => {
                let name = self.config.guardrails.get(rule);
                let name = name.map_or_else(String::new, |rule| rule.name.clone());
                return Delivery::Refuse(Refusal::Guardrail(name), vec![rule]);
            }
            Checked::Costly => return Delivery::Refuse(Refusal::Costly, Vec::new()),
            Checked::TooLarge => return Delivery::Refuse(Refusal::TooLarge, Vec::new()),
        }
        self.ask_or_end(answer, 0, context)
    }

    /// What to ask about an answer, as JSON.
    pub fn question(&self, answer: &Answer, context: &Context) -> String {
        plugin::question(context, &answer.body)
    }

    /// What somebody has said about an answer; nothing where that is no reply to the question.
    pub fn verdict(&self, reply: &[u8]) -> Option<Verdict> {
        plugin::verdict(reply, self.config.max_answer_bytes)
    }

    /// Goes on with what somebody has said about an answer; nothing where they could not be asked or
    /// have not answered.
    pub fn answered(
        &self,
        asking: &Asking,
        mut answer: Answer,
        verdict: Option<Verdict>,
        context: &Context,
    ) -> Delivery {
        let Some(asked) = self.config.plugins.get(asking.plugin) else {
            return Delivery::Refuse(Refusal::PluginFailed(String::new()), answer.findings);
        };
        match verdict {
            Some(Verdict::Allow) => {}
            Some(Verdict::Replace(body)) => answer.change(Some(body)),
            Some(Verdict::Block(reason)) => {
                let refusal = Refusal::Plugin(asked.name.clone(), reason);
                return Delivery::Refuse(refusal, answer.findings);
            }
            None if asked.fails_open => {}
            None => {
                let refusal = Refusal::PluginFailed(asked.name.clone());
                return Delivery::Refuse(refusal, answer.findings);
            }
        }
        self.ask_or_end(answer, asking.plugin + 1, context)
    }

    fn ask_or_end(&self, mut answer: Answer, plugin: usize, context: &Context) -> Delivery {
        if plugin < self.config.plugins.len() {
            let findings = answer.findings.clone();
            return Delivery::Ask(Asking { plugin, findings }, answer);
        }
        let restored = context
            .ticket
            .restore(&answer.body, self.config.max_answer_bytes);
        match restored {
            Ok(body) => {
                answer.change(body);
                Delivery::Deliver(answer)
            }
            Err(_) => Delivery::Refuse(Refusal::TooLarge, answer.findings),
        }
    }
}

impl Answer {
    fn unchanged(body: String) -> Self {
        Self {
            body,
            is_changed: false,
            findings: Vec::new(),
        }
    }

    fn change(&mut self, body: Option<String>) {
        if let Some(body) = body {
            self.body = body;
            self.is_changed = true;
        }
    }
}
