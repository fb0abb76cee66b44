//! An automaton, and its way through a text byte by byte.
//!
//! Invariant: it never takes more memory than it was given, and what it has to forget for that is
//! taken from the [`Budget`]. States that are nothing special are gone through without a look at
//! anything else.

use super::{Budget, Costly};
use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, Config, DFA};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::primitives::PatternID;
use regex_automata::{Input, MatchKind};
use regex_syntax::hir::Hir;
use std::cell::{RefCell, RefMut};

/// An automaton that finds its states out as it comes to them, and what it has found out so far.
#[derive(Debug)]
pub(super) struct Automaton {
    dfa: DFA,
    cache: RefCell<Option<Cache>>,
    forgets: usize,
}

impl Automaton {
    pub(super) fn new(
        patterns: &[Hir],
        reverse: bool,
        kind: MatchKind,
        max_bytes: usize,
        cache_bytes: usize,
    ) -> Result<Self, String> {
        let nfa = compile(patterns, reverse, max_bytes)?;
        let dfa = DFA::builder()
            .configure(
                Config::new()
                    .match_kind(kind)
                    .cache_capacity(cache_bytes)
                    // What is large takes what it needs at least; how large is bounded above.
                    .skip_cache_capacity_check(true),
            )
            .build_from_nfa(nfa)
            .map_err(|error| format!("no automaton can have this: {error}"))?;
        Ok(Self {
            dfa,
            cache: RefCell::new(None),
            forgets: cache_bytes.saturating_mul(Budget::STEPS_A_BYTE_FORGOTTEN),
        })
    }

    /// What it has found out so far.
    pub(super) fn cache(&self) -> RefMut<'_, Cache> {
        RefMut::map(self.cache.borrow_mut(), |cache| {
            cache.get_or_insert_with(|| self.dfa.create_cache())
        })
    }

    /// From a state that is something special, or to one that is, or that has to be found out.
    #[inline(never)]
    fn step_anew(
        &self,
        cache: &mut Cache,
        state: LazyStateID,
        byte: u8,
        budget: &mut Budget,
    ) -> Result<LazyStateID, Costly> {
        let cleared = cache.clear_count();
        let next = self
            .dfa
            .next_state(cache, state, byte)
            .map_err(|_| Costly)?;
        if cache.clear_count() != cleared {
            budget.take(self.forgets)?;
        }
        Ok(next)
    }
}

/// An automaton on its way through a text.
pub(super) struct Run<'a> {
    automaton: &'a Automaton,
    cache: &'a mut Cache,
    state: LazyStateID,
}

impl<'a> Run<'a> {
    pub(super) fn forward(
        automaton: &'a Automaton,
        cache: &'a mut Cache,
        input: &Input<'_>,
    ) -> Result<Self, Costly> {
        let state = automaton.dfa.start_state_forward(cache, input);
        Ok(Self {
            automaton,
            state: state.map_err(|_| Costly)?,
            cache,
        })
    }

    pub(super) fn backward(
        automaton: &'a Automaton,
        cache: &'a mut Cache,
        input: &Input<'_>,
    ) -> Result<Self, Costly> {
        let state = automaton.dfa.start_state_reverse(cache, input);
        Ok(Self {
            automaton,
            state: state.map_err(|_| Costly)?,
            cache,
        })
    }

    /// Whether the state that the byte leads to is something special.
    #[inline]
    pub(super) fn step(&mut self, byte: u8, budget: &mut Budget) -> Result<bool, Costly> {
        if !self.state.is_tagged() {
            let dfa = &self.automaton.dfa;
            let next = dfa.next_state_untagged(self.cache, self.state, byte);
            if !next.is_tagged() {
                self.state = next;
                return Ok(false);
            }
        }
        self.state = self
            .automaton
            .step_anew(self.cache, self.state, byte, budget)?;
        Ok(self.state.is_tagged())
    }

    /// What is not followed by anything.
    pub(super) fn end(&mut self) -> Result<(), Costly> {
        let last = self.automaton.dfa.next_eoi_state(self.cache, self.state);
        self.state = last.map_err(|_| Costly)?;
        Ok(())
    }

    /// Whether a finding ended before the last byte, or began after it.
    pub(super) fn is_match(&self) -> bool {
        self.state.is_match()
    }

    /// Whether nothing more can be found.
    pub(super) fn is_dead(&self) -> bool {
        self.state.is_dead()
    }

    /// Of which patterns there is a finding.
    pub(super) fn matches(&self) -> impl Iterator<Item = PatternID> {
        let dfa = &self.automaton.dfa;
        let all = 0..dfa.match_len(self.cache, self.state);
        all.map(|index| dfa.match_pattern(self.cache, self.state, index))
    }
}

/// What an automaton is made from, within so many bytes.
fn compile(patterns: &[Hir], reverse: bool, max_bytes: usize) -> Result<NFA, String> {
    let built = thompson::Compiler::new()
        .configure(
            thompson::Config::new()
                // Matters for empty findings alone, which there are none of.
                .utf8(false)
                .reverse(reverse)
                .which_captures(WhichCaptures::None)
                .nfa_size_limit(Some(max_bytes)),
        )
        .build_many_from_hir(patterns);
    built.map_err(|_| {
        "too large as an automaton; write shorter repetitions than {1000}, fewer alternatives, and \
         [0-9A-Za-z_] for \\w where that is enough"
            .to_owned()
    })
}
