//! What answers must not say: patterns, words and lengths, over each text of an answer.
//!
//! Invariant: what a rule finds depends on the upstream's own words alone, not on other rules and
//! not on their order. A rule that blocks wins over all that do not.

use super::patterns::{Budget, Costly, Finder, Patterns};
use super::texts::{self, Leg};
use super::words::Words;
use super::{Invalid, config, escapes};
use config::{Action, LooksFor};
use std::ops::Range;

/// The rules of a policy, compiled.
pub(super) struct Guardrails {
    rules: Vec<Rule>,
    /// Those that are patterns, and which rules these are.
    patterns: Patterns,
    of_patterns: Vec<usize>,
    /// All words of all rules, by their rules.
    words: Words,
    /// How many characters each of these rules allows.
    lengths: Vec<(usize, usize)>,
}

struct Rule {
    action: Action,
    /// Of a pattern that is redacted: for the others it is enough that it is there.
    finder: Option<Finder>,
}

/// What is to become of an answer. Rules are told by their places in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// It may pass, in a new form where something was redacted.
    Passed {
        body: Option<String>,
        /// In order.
        findings: Vec<usize>,
    },
    /// It may not. Of several rules that say so this is the first.
    Blocked { rule: usize },
    /// To know would take too long.
    Costly,
    /// What stands for what was redacted makes it too long.
    TooLarge,
}

impl Guardrails {
    /// # Errors
    /// All that cannot be.
    pub(super) fn new(rules: &[config::Rule]) -> Result<Self, Vec<Invalid>> {
        let mut problems = Vec::new();
        let (mut compiled, mut words, mut lengths) = (Vec::new(), Words::new(), Vec::new());
        let (mut patterns, mut of_patterns) = (Vec::new(), Vec::new());
        for (place, rule) in rules.iter().enumerate() {
            let mut finder = None;
            match &rule.looks_for {
                LooksFor::Pattern(pattern) => {
                    let made = match rule.action {
                        Action::Redact(_) => Finder::new(pattern).map(|made| finder = Some(made)),
                        Action::Block | Action::Report => Patterns::check(pattern),
                    };
                    if let Err(what) = made {
                        let path = format!("guardrails[{place}].pattern");
                        problems.push(Invalid { path, what });
                    }
                    patterns.push(pattern.as_str());
                    of_patterns.push(place);
                }
                LooksFor::Keywords(keywords) => {
                    for word in keywords {
                        words.add(word, place);
                    }
                }
                &LooksFor::Length(chars) => lengths.push((chars, place)),
            }
            compiled.push(Rule {
                action: rule.action.clone(),
                finder,
            });
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            rules: compiled,
            patterns: Patterns::new(patterns.iter().copied())
                .map_err(|what| too_large(&what, &patterns, &of_patterns))?,
            of_patterns,
            words,
            lengths,
        })
    }

    /// Looks at a body that [`texts::json`] returned.
    pub(super) fn check(&self, body: &str, max: usize) -> Checked {
        if self.rules.is_empty() {
            return Checked::Passed {
                body: None,
                findings: Vec::new(),
            };
        }
        let mut budget = Budget::for_bytes(body.len());
        let findings = match self.findings(body, &mut budget) {
            Ok(findings) => findings,
            Err(problem) => return problem.into(),
        };
        let action = |rule: &usize| self.rules.get(*rule).map(|rule| &rule.action);
        let blocks = |rule: &&usize| action(rule) == Some(&Action::Block);
        if let Some(&rule) = findings.iter().find(blocks) {
            return Checked::Blocked { rule };
        }
        let redacts = |rule: &usize| matches!(action(rule), Some(Action::Redact(_)));
        let body = if findings.iter().any(redacts) {
            match self.redact(body, &findings, max, &mut budget) {
                Ok(body) => body.map(|body| texts::forget_tokens(&body).unwrap_or(body)),
                Err(problem) => return problem.into(),
            }
        } else {
            None
        };
        Checked::Passed { body, findings }
    }

    /// The rules that find something, in order.
    fn findings(&self, body: &str, budget: &mut Budget) -> Result<Vec<usize>, Problem> {
        let mut patterns = self.patterns.none();
        let mut has = vec![false; self.rules.len()];
        let mut mark = |rule: usize| {
            if let Some(has) = has.get_mut(rule) {
                *has = true;
            }
        };
        let mut chars = 0;
        texts::edit(body, Leg::Completion, usize::MAX, |text| {
            let masked = escapes::masked(text);
            for text in [Some(text), masked.as_deref()].into_iter().flatten() {
                self.patterns.in_text(text, &mut patterns, budget)?;
                self.words.find(text, budget, |_, rule| mark(rule))?;
            }
            if !self.lengths.is_empty() {
                chars += text.chars().count();
            }
            Ok(None)
        })?;
        for &(most, rule) in &self.lengths {
            if chars > most {
                mark(rule);
            }
        }
        for pattern in patterns.iter() {
            if let Some(&rule) = self.of_patterns.get(pattern) {
                mark(rule);
            }
        }
        let numbered = has.into_iter().enumerate();
        Ok(numbered
            .filter_map(|(rule, has)| has.then_some(rule))
            .collect())
    }

    /// The body with what stands for the findings of those rules that redact.
    fn redact(
        &self,
        body: &str,
        rules: &[usize],
        max: usize,
        budget: &mut Budget,
    ) -> Result<Option<String>, Problem> {
        // The shortest length that is cut off at: beyond it there is nothing left for others.
        let cuts = self
            .lengths
            .iter()
            .filter(|(_, rule)| self.with(*rule).is_some());
        let cut = cuts.min().copied();
        let mut chars = 0;
        let mut spans = Spans::default();
        Ok(texts::edit(body, Leg::Completion, max, |text| {
            spans.all.clear();
            let masked = escapes::masked(text);
            for text in [Some(text), masked.as_deref()].into_iter().flatten() {
                self.find_words(text, &mut spans, budget)?;
                self.find_patterns(text, rules, &mut spans, budget)?;
            }
            spans.merge();
            let before = chars;
            if let Some((most, rule)) = cut {
                chars += text.chars().count();
                if before > most {
                    // It was cut off in a text before this one.
                    return Ok((!text.is_empty()).then(String::new));
                }
                if chars > most {
                    let start = text.char_indices().nth(most - before);
                    spans.add(start.map_or(text.len(), |(at, _)| at)..text.len(), rule);
                    spans.merge();
                }
            }
            if spans.all.is_empty() {
                return Ok(None);
            }
            self.replace(text, &spans, max).map(Some)
        })?)
    }

    fn find_words(
        &self,
        text: &str,
        spans: &mut Spans,
        budget: &mut Budget,
    ) -> Result<(), Problem> {
        self.words.find(text, budget, |range, rule| {
            if self.with(rule).is_some() {
                spans.add(range, rule);
            }
        })?;
        Ok(())
    }

    fn find_patterns(
        &self,
        text: &str,
        rules: &[usize],
        spans: &mut Spans,
        budget: &mut Budget,
    ) -> Result<(), Problem> {
        for &rule in rules {
            let Some(finder) = self.rules.get(rule).and_then(|rule| rule.finder.as_ref()) else {
                continue;
            };
            let mut from = 0;
            while let Some(range) = finder.find(text, from, budget)? {
                from = range.end;
                spans.add(range, rule);
            }
            // Rule by rule, so that there are never more than the text has room for.
            spans.merge();
        }
        Ok(())
    }

    fn replace(&self, text: &str, spans: &Spans, max: usize) -> Result<String, Problem> {
        let mut redacted = String::new();
        let mut copied = 0;
        for span in &spans.all {
            redacted.push_str(text.get(copied..span.start).unwrap_or_default());
            redacted.push_str(self.with(span.rule).unwrap_or_default());
            if redacted.len() > max {
                return Err(Problem::TooLarge);
            }
            copied = span.end;
        }
        redacted.push_str(text.get(copied..).unwrap_or_default());
        Ok(redacted)
    }

    /// What a rule that redacts puts in the place of its findings.
    fn with(&self, rule: usize) -> Option<&str> {
        match &self.rules.get(rule)?.action {
            Action::Redact(with) => Some(with),
            Action::Block | Action::Report => None,
        }
    }
}

/// Which patterns are too large, or that all together are.
fn too_large(what: &str, patterns: &[&str], of_patterns: &[usize]) -> Vec<Invalid> {
    let each = patterns.iter().zip(of_patterns);
    let mut problems: Vec<Invalid> = each
        .filter_map(|(&pattern, place)| {
            let what = Patterns::new([pattern]).err()?;
            let path = format!("guardrails[{place}].pattern");
            Some(Invalid { path, what })
        })
        .collect();
    if problems.is_empty() {
        problems.push(Invalid {
            path: "guardrails".to_owned(),
            what: format!("the patterns are, all together, {what}"),
        });
    }
    problems
}

/// What stands for what in a text.
#[derive(Default)]
struct Spans {
    all: Vec<Span>,
}

#[derive(Clone, Copy)]
struct Span {
    start: usize,
    end: usize,
    rule: usize,
}

impl Span {
    /// Takes in another one that begins no earlier, if it overlaps. The rule that comes first in
    /// the configuration says what stands there.
    fn absorb(&mut self, other: Self) -> bool {
        let overlaps = other.start < self.end;
        if overlaps {
            self.end = self.end.max(other.end);
            self.rule = self.rule.min(other.rule);
        }
        overlaps
    }
}

impl Spans {
    fn add(&mut self, range: Range<usize>, rule: usize) {
        let span = Span {
            start: range.start,
            end: range.end,
            rule,
        };
        if let Some(last) = self.all.last_mut()
            && last.start <= span.start
            && last.absorb(span)
        {
            return;
        }
        self.all.push(span);
    }

    /// Brings them in order, and makes one of those that overlap.
    fn merge(&mut self) {
        // Two runs that are in order already, which takes as long as they are.
        self.all.sort_by_key(|span| span.start);
        self.all.dedup_by(|next, span| span.absorb(*next));
    }
}

/// Why an answer is not looked at to the end.
enum Problem {
    Costly,
    TooLarge,
}

impl From<Costly> for Problem {
    fn from(_: Costly) -> Self {
        Self::Costly
    }
}

impl From<texts::Error<Self>> for Problem {
    fn from(error: texts::Error<Self>) -> Self {
        match error {
            texts::Error::Edit(problem) => problem,
            texts::Error::TooLarge => Self::TooLarge,
            // Answers can always be read; if one could not, it must not pass.
            texts::Error::Unread => Self::Costly,
        }
    }
}

impl From<Problem> for Checked {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Costly => Self::Costly,
            Problem::TooLarge => Self::TooLarge,
        }
    }
}
