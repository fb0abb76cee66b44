//! What a route has learnt: who has which prompts and sessions, and how soon each target answers.
//!
//! It outlives the configurations of its route, and every worker has its own. What one of them
//! learns it tells the others as lessons, so that all come to know the same.

mod latency;
#[cfg(test)]
mod latency_tests;

pub use latency::Latency;
pub(crate) use latency::Predictions;

use crate::affinity::{Limits, Moved, PromptRef, Sessions, Tree};
use crate::target::{MAX_TARGETS, TargetId};
use crate::time::Millis;

/// What a route has learnt.
pub struct Memory {
    /// Who has which prompts.
    pub tree: Tree,
    /// Who has which sessions.
    pub sessions: Sessions,
    /// How soon each target answers.
    pub latency: Latency,
}

/// What one worker tells the others about a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lesson<'a> {
    /// It was given this prompt.
    Prompt {
        /// The model, as the request names it.
        model: &'a [u8],
        /// The bounded text.
        text: &'a [u8],
    },
    /// It never got this prompt: another target served it.
    Withdrawn {
        /// The model, as the request names it.
        model: &'a [u8],
        /// The bounded text.
        text: &'a [u8],
    },
    /// It has this session.
    Session {
        /// The hash of what identifies the session.
        session: u64,
    },
    /// It took so long to the first token of a prompt.
    FirstToken {
        /// The length of the prompt.
        tokens: u32,
        /// The time in microseconds.
        micros: u32,
    },
}

impl Memory {
    /// Nothing learnt yet; prompts are bounded by these limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            tree: Tree::new(limits),
            sessions: Sessions::default(),
            latency: Latency::default(),
        }
    }

    /// Takes over what another worker learnt at that time.
    pub fn learn(&mut self, target: TargetId, at: Millis, lesson: &Lesson<'_>) {
        if target.index() >= MAX_TARGETS {
            return;
        }
        match *lesson {
            Lesson::Prompt { model, text } => self.tree.learn(model, text, target, at),
            Lesson::Withdrawn { model, text } => self.tree.withdraw(model, text, target, at),
            Lesson::Session { session } => self.sessions.learn(session, target, at),
            Lesson::FirstToken { tokens, micros } => {
                self.latency.learn(target, tokens, micros, at);
            }
        }
    }

    /// Records that another target served a prompt than the one that it was given to; see
    /// [`Tree::moved`].
    pub fn moved(&mut self, prompt: PromptRef, to: TargetId, at: Millis) -> Option<Moved> {
        self.tree.moved(prompt, to, at)
    }

    /// Drops all that is known of a target, whose engine has lost its cache.
    pub fn forget(&mut self, target: TargetId) {
        self.tree.forget(target);
        self.sessions.forget(target);
        self.latency.forget(target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const NOW: Millis = Millis(1_000_000);
    const A: TargetId = TargetId(3);
    const PROMPT: Lesson<'_> = Lesson::Prompt {
        model: b"m",
        text: b"hello",
    };
    const WITHDRAWN: Lesson<'_> = Lesson::Withdrawn {
        model: b"m",
        text: b"hello",
    };
    const SESSION: Lesson<'_> = Lesson::Session { session: 9 };
    const FIRST_TOKEN: Lesson<'_> = Lesson::FirstToken {
        tokens: 10,
        micros: 200_000,
    };

    fn taught(lessons: &[Lesson<'_>]) -> Memory {
        let mut memory = Memory::new(Limits {
            max_nodes: usize::MAX,
            max_memory: usize::MAX,
        });
        for lesson in lessons {
            memory.learn(A, NOW, lesson);
        }
        memory
    }

    /// The bytes of the prompt that the target has, whether it has the session, and whether it is
    /// known how soon anyone answers.
    fn knows(memory: &Memory) -> (usize, bool, bool) {
        (
            memory.tree.find(b"m", b"hello").len(A),
            memory.sessions.find(9, NOW) == Some(A),
            memory.latency.predict(A, 10, NOW).is_some(),
        )
    }

    #[test]
    fn every_lesson_is_learnt() {
        assert_eq!(knows(&taught(&[])), (0, false, false));
        assert_eq!(knows(&taught(&[PROMPT])), (5, false, false));
        assert_eq!(knows(&taught(&[PROMPT, WITHDRAWN])), (0, false, false));
        assert_eq!(knows(&taught(&[WITHDRAWN, PROMPT])), (5, false, false));
        assert_eq!(knows(&taught(&[SESSION])), (0, true, false));
        assert_eq!(knows(&taught(&[FIRST_TOKEN])), (0, false, true));
    }

    #[test]
    fn nothing_is_left_of_a_forgotten_target() {
        let mut memory = taught(&[PROMPT, SESSION, FIRST_TOKEN]);
        let slow = Lesson::FirstToken {
            tokens: 10,
            micros: 9_000_000,
        };
        for _ in 0..100 {
            memory.learn(A, NOW, &FIRST_TOKEN);
            memory.learn(TargetId(4), NOW, &slow);
        }
        let micros = |memory: &Memory, target| memory.latency.predict(target, 10, NOW).unwrap();
        assert!(micros(&memory, A) < 1_000_000.0);
        memory.forget(A);
        assert_eq!(knows(&memory), (0, false, true));
        let unseen = micros(&memory, TargetId(200));
        assert!((micros(&memory, A) - unseen).abs() < 1.0);
    }

    #[test]
    fn lessons_about_targets_that_cannot_be_change_nothing() {
        let mut memory = taught(&[]);
        for lesson in [PROMPT, SESSION, FIRST_TOKEN, WITHDRAWN] {
            memory.learn(TargetId(512), NOW, &lesson);
            memory.learn(TargetId(u16::MAX), NOW, &lesson);
        }
        assert_eq!(memory.tree.usage().nodes, 0);
        assert_eq!(memory.sessions.len(), 0);
        assert_eq!(memory.latency.predict(A, 10, NOW), None);
    }
}
