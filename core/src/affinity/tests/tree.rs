use super::{A, B, NO_LIMITS, matched, observe, tree};
use crate::affinity::{Limits, Tree, Usage};
use crate::target::{MAX_TARGETS, TargetId};
use crate::time::Millis;
use proptest::prelude::*;
use std::collections::BTreeSet;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn every_target_has_its_own_matched_length() {
    let mut tree = tree(usize::MAX);
    observe(&mut tree, "the quick brown fox", A);
    observe(&mut tree, "the quick red fox", B);
    let found = tree.find(b"m", b"the quick brown dog");
    assert_eq!(found.len(A), "the quick brown ".len());
    assert_eq!(found.len(B), "the quick ".len());
    assert_eq!(found.len(TargetId(2)), 0);
    assert_eq!(found.len(TargetId(4_000)), 0);
}

#[test]
fn prompts_of_different_models_never_meet() {
    let mut tree = tree(usize::MAX);
    observe(&mut tree, "hello", A);
    assert_eq!(tree.find(b"n", b"hello").len(A), 0);
    assert_eq!(tree.find(b"", b"hello").len(A), 0);
    assert_eq!(tree.find(b"mh", b"ello").len(A), 0);
}

#[test]
fn the_least_recently_inserted_prompt_goes_first() {
    let mut tree = tree(1 + 8);
    observe(&mut tree, "aaaa", A);
    observe(&mut tree, "bbbb", A);
    observe(&mut tree, "aaaa", A);
    observe(&mut tree, "cccc", A);
    assert_eq!(matched(&tree, "aaaa", A), 4);
    assert_eq!(matched(&tree, "bbbb", A), 0);
    assert_eq!(matched(&tree, "cccc", A), 4);
    assert_eq!(tree.usage().evictions, 1);
}

#[test]
fn a_shared_prefix_survives_the_prompt_that_brought_it() {
    let mut tree = tree(1 + 9);
    observe(&mut tree, "systemA", A);
    observe(&mut tree, "systemB", A);
    observe(&mut tree, "systemCD", A);
    assert_eq!(matched(&tree, "systemA", A), "system".len());
    assert_eq!(matched(&tree, "systemB", A), "systemB".len());
    assert_eq!(tree.held(A), 1 + "systemBCD".len());
}

#[test]
fn one_target_at_its_limit_costs_another_nothing() {
    let mut tree = tree(1 + 4);
    observe(&mut tree, "aaaa", A);
    observe(&mut tree, "aaaa", B);
    observe(&mut tree, "bbbb", A);
    assert_eq!(matched(&tree, "aaaa", A), 0);
    assert_eq!(matched(&tree, "aaaa", B), 4);
}

#[test]
fn a_prompt_above_the_limit_is_held_as_far_as_the_limit_goes() {
    let mut tree = tree(1 + 4);
    observe(&mut tree, "abcdefgh", A);
    assert_eq!(matched(&tree, "abcdefgh", A), 4);
    assert_eq!(tree.held(A), 5);
    let long_name = [b'x'; 6];
    let found = tree.find(&long_name, b"abc");
    tree.observe(&long_name, b"abc", A, &found, Millis(0));
    assert_eq!(tree.find(&long_name, b"abc").len(A), 0);
}

#[test]
fn a_forgotten_target_has_nothing_and_learns_anew() {
    let mut tree = tree(usize::MAX);
    for text in ["system one", "system two", "other"] {
        observe(&mut tree, text, A);
        observe(&mut tree, text, B);
    }
    let before = tree.usage();
    tree.forget(A);
    assert_eq!(matched(&tree, "system one", A), 0);
    assert_eq!(matched(&tree, "system one", B), 10);
    assert_eq!(tree.held(A), 0);
    assert_eq!(tree.usage().evictions, before.evictions);
    observe(&mut tree, "system one", A);
    assert_eq!(matched(&tree, "system one", A), 10);
    tree.forget(A);
    tree.forget(B);
    let empty = Usage {
        // Room for what comes next.
        memory: tree.usage().memory,
        ..Usage::default()
    };
    assert_eq!(tree.usage(), empty);
}

#[test]
fn a_long_lived_prefix_does_not_fall_to_pieces() {
    let mut tree = tree(1 + 200);
    let system = "s".repeat(100);
    // Each prompt leaves the prefix at another depth, and is evicted again.
    for round in 0..50 {
        for depth in 0..100 {
            let (head, _) = system.split_at(depth);
            observe(&mut tree, &format!("{head}{round}"), A);
        }
        observe(&mut tree, &system, A);
    }
    let usage = tree.usage();
    assert!(usage.nodes <= 2 * usage.prompts + 1, "{usage:?}");
    assert_eq!(matched(&tree, &system, A), 100);
}

#[test]
fn very_many_very_short_prompts_stay_within_the_memory() {
    let max_memory = 1 << 20;
    let limits = Limits {
        max_nodes: 1_000_000,
        max_memory,
    };
    let mut tree = Tree::new(limits);
    for number in 0..100_000_u32 {
        let target = TargetId((number % 3 == 0).into());
        observe(&mut tree, &format!("{number:x}"), target);
    }
    let usage = tree.usage();
    assert!(usage.memory <= max_memory, "{usage:?}");
    assert!(usage.memory > max_memory / 2, "{usage:?}");
    assert!(usage.evictions > 0);
    assert_eq!(matched(&tree, "1869f", TargetId(1)), 5, "the newest stays");
}

#[test]
fn who_was_given_many_short_prompts_pays_for_their_memory() {
    let limits = Limits {
        max_nodes: 1_000_000,
        max_memory: 1 << 20,
    };
    let mut tree = Tree::new(limits);
    let long = "x".repeat(100_000);
    observe(&mut tree, &long, A);
    for number in 0..20_000_u32 {
        observe(&mut tree, &format!("{number:x}"), B);
    }
    assert!(tree.usage().evictions > 0);
    assert_eq!(matched(&tree, &long, A), long.len());
}

#[test]
fn lower_limits_hold_at_once() {
    let mut tree = tree(usize::MAX);
    for number in 0..100 {
        let prompt = format!("{number:02}").repeat(2_000);
        observe(&mut tree, &prompt, A);
        observe(&mut tree, &prompt, B);
    }
    let max_memory = tree.usage().memory / 4;
    tree.set_limits(Limits {
        max_nodes: 200_000,
        max_memory,
    });
    assert!(tree.held(A) <= 200_000 && tree.held(B) <= 200_000);
    assert!(tree.usage().memory <= max_memory);
    assert!(tree.usage().prompts > 10);
}

#[test]
fn models_with_names_beyond_belief_are_not_learnt() {
    let mut tree = tree(usize::MAX);
    for (length, learnt) in [(256, 5), (257, 0)] {
        let model = vec![b'm'; length];
        let found = tree.find(&model, b"hello");
        tree.observe(&model, b"hello", A, &found, Millis(0));
        assert_eq!(tree.find(&model, b"hello").len(A), learnt);
    }
}

#[test]
fn an_outdated_match_is_not_trusted() {
    let mut tree = tree(usize::MAX);
    observe(&mut tree, "abcdef", A);
    let before_split = tree.find(b"m", b"abcdef");
    observe(&mut tree, "abcxyz", B);
    tree.forget(A);
    tree.observe(b"m", b"abcdef", A, &before_split, Millis(0));
    assert_eq!(matched(&tree, "abcdef", A), 6);
    assert_eq!(tree.held(A), 7);
}

#[test]
fn long_texts_are_compared_to_the_byte() {
    let text: String = (0..2_000_u32)
        .map(|i| char::from(b'a' + (i * 7 % 26) as u8))
        .collect();
    let mut tree = tree(usize::MAX);
    observe(&mut tree, &text, A);
    for at in [0, 1, 31, 32, 33, 63, 64, 100, 1_023, 1_024, 1_999] {
        let mut other = text.clone().into_bytes();
        other[at] = b'!';
        assert_eq!(tree.find(b"m", &other).len(A), at);
    }
    assert_eq!(matched(&tree, &text, A), text.len());
    assert_eq!(matched(&tree, &text[..777], A), 777);
}

#[test]
fn as_many_targets_as_a_set_holds_are_told_apart() {
    let mut tree = Tree::new(NO_LIMITS);
    let texts: Vec<String> = (0..MAX_TARGETS).map(|id| "x".repeat(id)).collect();
    for (id, text) in (0..).zip(&texts) {
        observe(&mut tree, text, TargetId(id));
    }
    observe(&mut tree, "x", TargetId(512));
    let found = tree.find(b"m", "x".repeat(MAX_TARGETS).as_bytes());
    for id in 0..512 {
        assert_eq!(found.len(TargetId(id)), usize::from(id));
    }
}

/// The dumbest correct model: for each target its prompts, oldest first, and the trie of single
/// bytes that they make, as the set of all their prefixes.
#[derive(Default)]
struct ByteTrie {
    prompts: Vec<(String, String)>,
    evictions: u64,
}

impl ByteTrie {
    fn bytes(&self) -> usize {
        let models: BTreeSet<&str> = self.prompts.iter().map(|(model, _)| &**model).collect();
        models.iter().map(|model| model.len()).sum::<usize>() + self.prefixes().len()
    }

    fn prefixes(&self) -> BTreeSet<(&str, &str)> {
        self.prompts
            .iter()
            .flat_map(|(model, text)| (1..=text.len()).map(move |end| (&**model, &text[..end])))
            .collect()
    }

    fn observe(&mut self, model: &str, text: &str, max: usize) {
        if model.len() >= max {
            return;
        }
        let room = max - model.len();
        let prompt = (model.to_owned(), text[..text.len().min(room)].to_owned());
        self.prompts.retain(|held| *held != prompt);
        self.prompts.push(prompt);
        while self.bytes() > max {
            self.prompts.remove(0);
            self.evictions += 1;
        }
    }

    fn matched(&self, model: &str, text: &str) -> usize {
        let prefixes = self.prefixes();
        (1..=text.len())
            .take_while(|&end| prefixes.contains(&(model, &text[..end])))
            .count()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Observe(u16, String, String),
    /// Two observations whose matches were both taken before either.
    Overtaken([(u16, String, String); 2]),
    Forget(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let model = prop_oneof!["", "m", "llama"];
    // Few letters, so that prompts meet; a repeat now and then, so that blocks are compared.
    let text = prop_oneof![
        "[ab]{0,9}",
        "[ab]{0,3}".prop_map(|seed| seed.repeat(20)),
        ("[ab]{0,4}", 30_usize..70).prop_map(|(tail, len)| "a".repeat(len) + &tail),
    ];
    let target = 0_u16..4;
    let observe = (target.clone(), model, text);
    prop::collection::vec(
        prop_oneof![
            8 => observe.clone().prop_map(|(id, model, text)| Step::Observe(id, model, text)),
            2 => (observe.clone(), observe).prop_map(|(first, second)| Step::Overtaken([first, second])),
            1 => target.prop_map(Step::Forget),
        ],
        1..30,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_tree_answers_as_a_byte_trie_per_target(
        steps in steps(),
        max in prop_oneof![4_usize..120, Just(usize::MAX)],
    ) {
        let mut tree = tree(max);
        let mut model: [ByteTrie; 4] = Default::default();
        let mut asked: BTreeSet<(String, String)> = BTreeSet::new();
        for step in steps {
            match &step {
                Step::Observe(id, name, text) => {
                    let found = tree.find(name.as_bytes(), text.as_bytes());
                    tree.observe(name.as_bytes(), text.as_bytes(), TargetId(*id), &found, Millis(0));
                    model[usize::from(*id)].observe(name, text, max);
                    asked.insert((name.clone(), text.clone()));
                }
                Step::Overtaken([first, second]) => {
                    let found = [first, second].map(|(_, name, text)| {
                        tree.find(name.as_bytes(), text.as_bytes())
                    });
                    for ((id, name, text), found) in [first, second].into_iter().zip(found) {
                        tree.observe(name.as_bytes(), text.as_bytes(), TargetId(*id), &found, Millis(0));
                        model[usize::from(*id)].observe(name, text, max);
                        asked.insert((name.clone(), text.clone()));
                    }
                }
                Step::Forget(id) => {
                    tree.forget(TargetId(*id));
                    model[usize::from(*id)].prompts.clear();
                }
            }
            for (name, text) in &asked {
                let found = tree.find(name.as_bytes(), text.as_bytes());
                for (id, trie) in (0..).map(TargetId).zip(&model) {
                    prop_assert_eq!(found.len(id), trie.matched(name, text));
                }
            }
            for (id, trie) in (0..).map(TargetId).zip(&model) {
                prop_assert_eq!(tree.held(id), trie.bytes());
            }
            let usage = tree.usage();
            let distinct: BTreeSet<_> = model.iter().flat_map(ByteTrie::prefixes).collect();
            let models: BTreeSet<&String> =
                model.iter().flat_map(|trie| &trie.prompts).map(|(model, _)| model).collect();
            let names: usize = models.iter().map(|name| name.len()).sum();
            prop_assert_eq!(usage.text, distinct.len() + names);
            prop_assert_eq!(usage.prompts, model.iter().map(|trie| trie.prompts.len()).sum::<usize>());
            prop_assert!(usage.nodes <= 2 * usage.prompts + models.len(), "{:?}", usage);
        }
    }
}

#[test]
fn a_flood_of_short_prompts_and_then_long_ones_takes_no_more_than_either() {
    let max_memory = 4 << 20;
    let mut tree = Tree::new(Limits {
        max_nodes: usize::MAX,
        max_memory,
    });
    let learn = |tree: &mut Tree, text: &[u8], target: u16| {
        let found = tree.find(b"m", text);
        tree.observe(b"m", text, TargetId(target), &found, Millis(1));
    };
    for round in 0..3_u32 {
        for number in 0..40_000_u32 {
            let text = (round * 100_000 + number).to_le_bytes();
            learn(&mut tree, &text, (number % 512) as u16);
            assert!(tree.usage().memory <= max_memory);
        }
        let slots = tree.reserved_bytes();
        assert!(slots <= max_memory, "{slots} bytes for entries");
        for number in 0..300_u32 {
            let text: Vec<u8> = (number + round).to_le_bytes().repeat(8_000);
            learn(&mut tree, &text, 0);
            let usage = tree.usage();
            assert!(usage.memory <= max_memory);
            assert!(
                tree.reserved_bytes() + usage.text <= max_memory,
                "{usage:?}"
            );
        }
        assert!(tree.usage().prompts > 10, "it goes on after that");
    }
}

#[test]
fn what_a_target_was_given_long_ago_goes_a_part_at_a_time() {
    let mut tree = tree(usize::MAX);
    let given = |tree: &mut Tree, name: &str, target, at| {
        tree.learn(b"m", name.as_bytes(), TargetId(target), Millis(at));
    };
    for number in 0..100 {
        given(&mut tree, &format!("old {number}"), 0, 1_000);
    }
    given(&mut tree, "old, and of another", 1, 1_000);
    given(&mut tree, "new", 0, 3_000);
    let mut prompts_after = |now| {
        tree.forget_older(Millis(now), 2_000);
        tree.usage().prompts
    };
    assert_eq!(prompts_after(3_000), 102);
    // It is looked for what is old only so often.
    assert_eq!(prompts_after(3_061), 102);
    assert_eq!(prompts_after(3_062), 102 - 65);
    assert_eq!(prompts_after(3_124), 1);
    // A clock that was set back by much makes all of it old.
    assert_eq!(prompts_after(10), 0);
}
