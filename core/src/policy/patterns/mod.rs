//! Which of many patterns a text has, and where: lazy automata, driven byte by byte.
//!
//! Invariant: a text is looked at once, for all patterns together, and once more for each pattern
//! that has been found. What is looked at more often than that, and what an automaton has to forget for
//! want of room and to find out again, is taken from a [`Budget`]. So the work is linear in the
//! text whatever the patterns and whatever the text, and so is the memory.
//!
//! The syntax is that of the crate `regex`, with two exceptions. `\b` and its kin are of ASCII's
//! letters, digits and underscore: automata cannot have those of all languages. And there are no
//! classes by property (`\p{…}`), whose tables are large.

mod automaton;
mod syntax;

use automaton::{Automaton, Run};
use regex_automata::util::primitives::PatternID;
use regex_automata::{Anchored, Input, MatchKind};
use regex_syntax::hir::Hir;
use std::ops::Range;
use syntax::parse;

/// The automaton of one pattern at most, before it is run.
const MAX_PATTERN_BYTES: usize = 1 << 20;
/// And that of many.
const MAX_PATTERNS_BYTES: usize = 8 << 20;
/// What each direction of a [`Finder`] remembers at most.
const FINDER_CACHE_BYTES: usize = 128 << 10;
/// What [`Patterns`] remember at most.
const PATTERNS_CACHE_BYTES: usize = 2 << 20;

/// The search has taken more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Costly;

/// What searches over some texts may take beyond looking at each byte once.
#[derive(Debug)]
pub(super) struct Budget {
    steps: usize,
}

impl Budget {
    /// Bytes that may be looked at once more, for each byte. A finding costs its length twice, so
    /// this is room for many patterns that each find most of a text.
    const STEPS_A_BYTE: usize = 64;
    /// For the shortest of texts.
    const STEPS: usize = 16 << 20;
    /// To find out again what fits a byte of an automaton's memory takes about as long as so many
    /// steps.
    const STEPS_A_BYTE_FORGOTTEN: usize = 4;

    /// For texts of so many bytes, all together.
    pub(super) fn for_bytes(bytes: usize) -> Self {
        let steps = bytes.saturating_mul(Self::STEPS_A_BYTE);
        Self {
            steps: steps.saturating_add(Self::STEPS),
        }
    }

    pub(super) fn take(&mut self, steps: usize) -> Result<(), Costly> {
        self.steps = self.steps.checked_sub(steps).ok_or(Costly)?;
        Ok(())
    }
}

/// One pattern, which finds what the crate `regex` finds: of what begins leftmost, what the pattern
/// prefers.
#[derive(Debug)]
pub(super) struct Finder {
    forward: Automaton,
    /// From the end of a finding to its start.
    backward: Automaton,
}

impl Finder {
    /// # Errors
    /// What is wrong with the pattern, and what to write instead.
    pub(super) fn new(pattern: &str) -> Result<Self, String> {
        let pattern = [parse(pattern)?];
        let new = |reverse, kind| {
            Automaton::new(
                &pattern,
                reverse,
                kind,
                MAX_PATTERN_BYTES,
                FINDER_CACHE_BYTES,
            )
        };
        Ok(Self {
            forward: new(false, MatchKind::LeftmostFirst)?,
            backward: new(true, MatchKind::All)?,
        })
    }

    /// The first finding at or after a place in a text. Never empty, and on character boundaries,
    /// as the place has to be.
    pub(super) fn find(
        &self,
        text: &str,
        from: usize,
        budget: &mut Budget,
    ) -> Result<Option<Range<usize>>, Costly> {
        let Some(after) = text.as_bytes().get(from..) else {
            return Ok(None);
        };
        let input = Input::new(text);
        let mut cache = self.forward.cache();
        let mut run = Run::forward(&self.forward, &mut cache, &input.clone().range(from..))?;
        let (mut end, mut seen) = (None, text.len());
        for (at, &byte) in (from..).zip(after) {
            if !run.step(byte, budget)? {
                continue;
            }
            if run.is_match() {
                // Known once the byte after it has been seen.
                end = Some(at);
            } else if run.is_dead() {
                seen = at;
                break;
            }
        }
        if !run.is_dead() {
            run.end()?;
            if run.is_match() {
                end = Some(text.len());
            }
        }
        let Some(end) = end else {
            return Ok(None);
        };

        let mut start = end;
        let input = input.range(from..end).anchored(Anchored::Yes);
        let mut cache = self.backward.cache();
        let mut run = Run::backward(&self.backward, &mut cache, &input)?;
        let before = text.as_bytes().get(from..end).unwrap_or_default();
        for (at, &byte) in (from..end).zip(before).rev() {
            if !run.step(byte, budget)? {
                continue;
            }
            if run.is_match() {
                start = at + 1;
            } else if run.is_dead() {
                break;
            }
        }
        if !run.is_dead() {
            match text.as_bytes().get(..from).and_then(<[u8]>::last) {
                Some(&byte) => {
                    run.step(byte, budget)?;
                }
                None => run.end()?,
            }
            if run.is_match() {
                start = from;
            }
        }
        // What is before the finding is not looked at again.
        budget.take(seen.saturating_sub(start))?;
        Ok(Some(start..end))
    }
}

/// Many patterns, of which one look at a text tells which ones it has.
#[derive(Debug)]
pub(super) struct Patterns {
    automaton: Automaton,
    count: usize,
}

/// Which of [`Patterns`] some texts have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    has: Vec<bool>,
    missing: usize,
}

impl Patterns {
    /// # Errors
    /// What is wrong with one of them, or with all together.
    pub(super) fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let parsed: Result<Vec<Hir>, String> = patterns.into_iter().map(parse).collect();
        let parsed = parsed?;
        Ok(Self {
            count: parsed.len(),
            automaton: Automaton::new(
                &parsed,
                false,
                MatchKind::All,
                MAX_PATTERNS_BYTES,
                PATTERNS_CACHE_BYTES,
            )?,
        })
    }

    /// Reads a pattern without making anything of it.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub(super) fn check(pattern: &str) -> Result<(), String> {
        parse(pattern).map(|_| ())
    }

    /// None of them, for [`Patterns::in_text`] to add to.
    pub(super) fn none(&self) -> Found {
        Found {
            has: vec![false; self.count],
            missing: self.count,
        }
    }

    /// Adds those that a text has.
    pub(super) fn in_text(
        &self,
        text: &str,
        found: &mut Found,
        budget: &mut Budget,
    ) -> Result<(), Costly> {
        if found.missing == 0 {
            return Ok(());
        }
        let mut cache = self.automaton.cache();
        let mut run = Run::forward(&self.automaton, &mut cache, &Input::new(text))?;
        for &byte in text.as_bytes() {
            if !run.step(byte, budget)? {
                continue;
            }
            if run.is_match() {
                run.matches().for_each(|pattern| found.add(pattern));
            }
            if run.is_dead() || found.missing == 0 {
                return Ok(());
            }
        }
        run.end()?;
        if run.is_match() {
            run.matches().for_each(|pattern| found.add(pattern));
        }
        Ok(())
    }
}

impl Found {
    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let numbered = self.has.iter().enumerate();
        numbered.filter_map(|(pattern, &has)| has.then_some(pattern))
    }

    /// Back to none.
    pub(super) fn clear(&mut self) {
        self.has.fill(false);
        self.missing = self.has.len();
    }

    fn add(&mut self, pattern: PatternID) {
        if let Some(has) = self.has.get_mut(pattern.as_usize())
            && !*has
        {
            *has = true;
            self.missing -= 1;
        }
    }
}
