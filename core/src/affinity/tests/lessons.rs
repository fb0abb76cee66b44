use super::{A, B, matched, observe, observe_at, tree};
use crate::affinity::{Moved, PromptRef, Tree};
use crate::target::TargetId;
use crate::time::Millis;
use proptest::prelude::*;
use std::collections::BTreeMap;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const NEWS_AFTER: u64 = 1_000;

fn learn(tree: &mut Tree, text: &str, target: TargetId, at: u64) {
    tree.learn(b"m", text.as_bytes(), target, Millis(at));
}

fn withdraw(tree: &mut Tree, text: &str, target: TargetId, at: u64) {
    tree.withdraw(b"m", text.as_bytes(), target, Millis(at));
}

#[test]
fn an_observation_is_news_once_a_second() {
    let mut tree = tree(usize::MAX);
    let mut news = |target, at| observe_at(&mut tree, "hello", target, at).news;
    assert!(news(A, 5_000));
    assert!(!news(A, 5_999));
    assert!(news(B, 5_999));
    assert!(news(A, 6_000));
    assert!(!news(A, 6_001));
}

#[test]
fn a_prompt_within_one_that_is_held_is_news() {
    let mut tree = tree(usize::MAX);
    observe(&mut tree, "hello world", A);
    assert!(observe_at(&mut tree, "hello", A, 0).news);
}

#[test]
fn what_another_worker_told_is_no_news_for_a_second() {
    let mut tree = tree(usize::MAX);
    learn(&mut tree, "hello", A, 5_000);
    assert_eq!(matched(&tree, "hello", A), 5);
    assert!(!observe_at(&mut tree, "hello", A, 5_500).news);
    learn(&mut tree, "hello", A, 5_800);
    learn(&mut tree, "hello", A, 5_100);
    assert!(!observe_at(&mut tree, "hello", A, 6_700).news);
    assert!(observe_at(&mut tree, "hello", A, 6_800).news);
}

#[test]
fn a_clock_that_steps_back_does_not_silence_news() {
    let mut tree = tree(usize::MAX);
    observe_at(&mut tree, "hello", A, 900_000);
    assert!(observe_at(&mut tree, "hello", A, 1_000).news);
    assert!(!observe_at(&mut tree, "hello", A, 1_500).news);
    assert!(observe_at(&mut tree, "hello", A, 2_000).news);
}

#[test]
fn a_prompt_that_no_tree_can_hold_is_neither_news_nor_referred_to() {
    let mut tree = tree(1);
    let observed = observe_at(&mut tree, "hello", A, 0);
    assert_eq!((observed.prompt, observed.news), (None, false));
}

#[test]
fn a_withdrawal_takes_back_one_prompt_of_one_target() {
    let mut tree = tree(usize::MAX);
    for text in ["hello", "hello world", "help"] {
        observe_at(&mut tree, text, A, 7);
        observe_at(&mut tree, text, B, 7);
    }
    withdraw(&mut tree, "hello world", A, 7);
    assert_eq!(matched(&tree, "hello world", A), 5);
    assert_eq!(matched(&tree, "hello world", B), 11);
    // Nobody was given exactly these.
    withdraw(&mut tree, "hel", A, 7);
    withdraw(&mut tree, "hello wonder", A, 7);
    withdraw(&mut tree, "hello w", B, 7);
    assert_eq!(matched(&tree, "hello", A), 5);
    assert_eq!(matched(&tree, "hello world", B), 11);
}

#[test]
fn a_withdrawal_does_not_undo_a_later_observation() {
    let mut tree = tree(usize::MAX);
    observe_at(&mut tree, "hello", A, 5_000);
    withdraw(&mut tree, "hello", A, 4_999);
    assert_eq!(matched(&tree, "hello", A), 5);
    // This one is no news, and yet the target was given the prompt.
    assert!(!observe_at(&mut tree, "hello", A, 5_400).news);
    withdraw(&mut tree, "hello", A, 5_000);
    assert_eq!(matched(&tree, "hello", A), 5);
    withdraw(&mut tree, "hello", A, 5_400);
    assert_eq!(matched(&tree, "hello", A), 0);
}

#[test]
fn a_prompt_over_the_limit_is_withdrawn_as_far_as_it_is_held() {
    let mut tree = tree(1 + 3);
    observe(&mut tree, "hello", A);
    assert_eq!(matched(&tree, "hello", A), 3);
    withdraw(&mut tree, "hello", A, 0);
    assert_eq!(matched(&tree, "hello", A), 0);
}

#[test]
fn the_target_that_served_a_prompt_has_it_and_the_other_one_has_not() {
    let mut tree = tree(usize::MAX);
    observe(&mut tree, "hello", A);
    let prompt = observe_at(&mut tree, "hello world", A, 3).prompt.unwrap();
    let moved = tree.moved(prompt, B, Millis(9));
    let expected = Moved {
        model: b"m".into(),
        text: b"hello world".into(),
        news: true,
        withdrawn: Some(Millis(3)),
    };
    assert_eq!(moved, Some(expected));
    assert_eq!(matched(&tree, "hello world", A), 5);
    assert_eq!(matched(&tree, "hello world", B), 11);
    assert_eq!(tree.moved(prompt, B, Millis(9)), None, "it is gone");
}

#[test]
fn a_prompt_that_was_given_again_stays_with_the_first_target_too() {
    let mut tree = tree(usize::MAX);
    let first = observe_at(&mut tree, "hello", A, 0).prompt.unwrap();
    let again = observe_at(&mut tree, "hello", A, 0).prompt.unwrap();
    let later = observe_at(&mut tree, "hello", A, 60_000).prompt.unwrap();
    for prompt in [first, again, later] {
        let moved = tree.moved(prompt, B, Millis(70_000)).unwrap();
        assert_eq!(moved.withdrawn, None);
    }
    let foreign = observe_at(&mut tree, "other", A, 0).prompt.unwrap();
    learn(&mut tree, "other", A, 0);
    let moved = tree.moved(foreign, B, Millis(1)).unwrap();
    assert_eq!(moved.withdrawn, None);
    assert_eq!(matched(&tree, "hello", A), 5);
    assert_eq!(matched(&tree, "other", A), 5);
}

#[test]
fn a_prompt_does_not_move_to_where_it_is() {
    let mut tree = tree(usize::MAX);
    let prompt = observe_at(&mut tree, "hello", A, 0).prompt.unwrap();
    assert_eq!(tree.moved(prompt, A, Millis(0)), None);
    assert_eq!(matched(&tree, "hello", A), 5);
}

#[test]
fn a_reference_is_not_mistaken_for_one_to_a_prompt_that_has_its_place() {
    let mut tree = tree(usize::MAX);
    let gone = observe_at(&mut tree, "hello", A, 0).prompt.unwrap();
    tree.forget(A);
    observe(&mut tree, "other", A);
    assert_eq!(tree.moved(gone, B, Millis(0)), None);
}

#[derive(Clone, Debug)]
enum Step {
    Observe(u16, String, u64),
    Learn(u16, String, u64),
    Withdraw(u16, String, u64),
    /// What one of the observations so far was about is served by this target.
    Moved(prop::sample::Index, u16, u64),
    Forget(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few texts, targets and times, so that they meet.
    let what = || (0_u16..3, "[ab]{0,3}", (0_u64..12).prop_map(|at| at * 300));
    prop::collection::vec(
        prop_oneof![
            6 => what().prop_map(|(id, text, at)| Step::Observe(id, text, at)),
            3 => what().prop_map(|(id, text, at)| Step::Learn(id, text, at)),
            3 => what().prop_map(|(id, text, at)| Step::Withdraw(id, text, at)),
            3 => (any::<prop::sample::Index>(), what())
                .prop_map(|(which, (id, _, at))| Step::Moved(which, id, at)),
            1 => (0_u16..3).prop_map(Step::Forget),
        ],
        1..60,
    )
}

/// The dumbest correct model: for each target and text, all observations since it came to be held,
/// each with its own number.
#[derive(Default)]
struct Model {
    held: BTreeMap<(u16, String), Vec<Seen>>,
    observations: usize,
}

#[derive(Clone, Copy)]
struct Seen {
    number: usize,
    at: u64,
    /// Whether all workers know.
    public: bool,
}

impl Model {
    fn public(seen: &[Seen]) -> u64 {
        // The last local news, and what others told since, if that was later.
        seen.iter()
            .filter(|seen| seen.public)
            .map(|seen| seen.at)
            .max()
            .unwrap()
    }

    fn add(&mut self, id: u16, text: &str, at: u64, foreign: bool) -> (usize, bool) {
        self.observations += 1;
        let number = self.observations;
        let seen = self.held.entry((id, text.to_owned())).or_default();
        let news = !foreign && (seen.is_empty() || Self::public(seen).abs_diff(at) >= NEWS_AFTER);
        if news {
            // The clock is believed, even if it went back: what was later is not so any more.
            for seen in &mut *seen {
                seen.at = seen.at.min(at);
            }
        }
        seen.push(Seen {
            number,
            at,
            public: foreign || news,
        });
        (number, news)
    }

    fn withdraw(&mut self, id: u16, text: &str, at: u64) {
        let key = (id, text.to_owned());
        let later = |seen: &Vec<Seen>| seen.iter().any(|seen| seen.at > at);
        if self.held.get(&key).is_some_and(|seen| !later(seen)) {
            self.held.remove(&key);
        }
    }

    fn matched(&self, id: u16, text: &str) -> usize {
        let common = |held: &str| {
            held.bytes()
                .zip(text.bytes())
                .take_while(|(a, b)| a == b)
                .count()
        };
        let held = self.held.keys().filter(|(holder, _)| *holder == id);
        held.map(|(_, held)| common(held)).max().unwrap_or(0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lessons_are_kept_as_a_list_of_all_observations_keeps_them(steps in steps()) {
        let mut tree = tree(usize::MAX);
        let mut model = Model::default();
        let mut observed: Vec<(PromptRef, usize, u16, String)> = Vec::new();
        for step in steps {
            match step {
                Step::Observe(id, text, at) => {
                    let ours = observe_at(&mut tree, &text, TargetId(id), at);
                    let (number, news) = model.add(id, &text, at, false);
                    prop_assert_eq!(ours.news, news);
                    observed.push((ours.prompt.unwrap(), number, id, text));
                }
                Step::Learn(id, text, at) => {
                    learn(&mut tree, &text, TargetId(id), at);
                    model.add(id, &text, at, true);
                }
                Step::Withdraw(id, text, at) => {
                    withdraw(&mut tree, &text, TargetId(id), at);
                    model.withdraw(id, &text, at);
                }
                Step::Forget(id) => {
                    tree.forget(TargetId(id));
                    model.held.retain(|(holder, _), _| *holder != id);
                }
                Step::Moved(which, to, at) => {
                    if observed.is_empty() {
                        continue;
                    }
                    let (prompt, number, from, text) = which.get(&observed).clone();
                    let ours = tree.moved(prompt, TargetId(to), Millis(at));
                    let key = (from, text.clone());
                    let seen = model.held.get(&key).filter(|seen| {
                        from != to && seen.iter().any(|seen| seen.number == number)
                    });
                    let expected = seen.cloned().map(|seen| {
                        let alone = seen.len() == 1;
                        if alone {
                            model.held.remove(&key);
                        }
                        let (_, news) = model.add(to, &text, at, false);
                        Moved {
                            model: b"m".into(),
                            text: text.into_bytes(),
                            news,
                            withdrawn: alone.then_some(Millis(seen[0].at)),
                        }
                    });
                    prop_assert_eq!(ours, expected);
                }
            }
            for id in 0..3 {
                for text in ["aaa", "aab", "aba", "abb", "baa", "bab", "bba", "bbb"] {
                    prop_assert_eq!(matched(&tree, text, TargetId(id)), model.matched(id, text));
                }
            }
        }
        prop_assert_eq!(tree.usage().prompts, model.held.len());
    }
}
