//! What rules find in answers, and what becomes of these.

use super::super::guardrails::{Checked, Guardrails};
use crate::config::{Action, LooksFor, Rule};
use proptest::prelude::*;
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const MAX: usize = 64 << 20;

fn rule(looks_for: LooksFor, action: Action) -> Rule {
    Rule {
        name: "rule".to_owned(),
        looks_for,
        action,
    }
}

fn pattern(pattern: &str, action: Action) -> Rule {
    rule(LooksFor::Pattern(pattern.to_owned()), action)
}

fn words(words: &[&str], action: Action) -> Rule {
    let words = words.iter().map(|&word| word.to_owned()).collect();
    rule(LooksFor::Keywords(words), action)
}

fn length(chars: usize, action: Action) -> Rule {
    rule(LooksFor::Length(chars), action)
}

fn redact(with: &str) -> Action {
    Action::Redact(with.to_owned())
}

fn guardrails(rules: &[Rule]) -> Guardrails {
    let made = Guardrails::new(rules);
    made.unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn chat(contents: &[&str]) -> String {
    let choices: Vec<Value> = contents
        .iter()
        .map(|content| json!({ "message": { "role": "assistant", "content": content } }))
        .collect();
    json!({ "id": "secret", "choices": choices }).to_string()
}

fn check(rules: &[Rule], body: &str) -> Checked {
    guardrails(rules).check(body, MAX)
}

/// What is left of one text.
fn left(rules: &[Rule], text: &str) -> String {
    let left = left_of(rules, &[text]);
    left.into_iter().next().unwrap()
}

fn left_of(rules: &[Rule], texts: &[&str]) -> Vec<String> {
    let body = chat(texts);
    let Checked::Passed { body: changed, .. } = check(rules, &body) else {
        panic!("{body} does not pass");
    };
    let body: Value = serde_json::from_str(&changed.unwrap_or(body)).unwrap();
    let content = |choice: &Value| choice["message"]["content"].as_str().unwrap().to_owned();
    body["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(content)
        .collect()
}

fn findings(rules: &[Rule], text: &str) -> Vec<usize> {
    match check(rules, &chat(&[text])) {
        Checked::Passed { findings, .. } => findings,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_in_which_nothing_is_found_passes_as_it_is() {
    let rules = [
        pattern("secret", Action::Block),
        words(&["assistant"], redact("x")),
        length(10, Action::Block),
    ];
    let passed = Checked::Passed {
        body: None,
        findings: Vec::new(),
    };
    // What is found is no text.
    assert_eq!(check(&rules, &chat(&["0123456789"])), passed);
    assert_eq!(check(&[], &chat(&["secret"])), passed);
}

#[test]
fn a_rule_that_blocks_wins_over_all_others_whatever_their_order() {
    let mut rules = [
        pattern("a", redact("b")),
        pattern("a", Action::Report),
        words(&["a"], Action::Block),
        pattern("a", Action::Block),
    ];
    assert_eq!(
        check(&rules, &chat(&["x", "a"])),
        Checked::Blocked { rule: 2 }
    );
    rules.reverse();
    assert_eq!(
        check(&rules, &chat(&["x", "a"])),
        Checked::Blocked { rule: 0 }
    );
    // Also over one that makes the answer too long.
    let long = [
        pattern("a", redact(&"b".repeat(1_000))),
        words(&["c"], Action::Block),
    ];
    let checked = guardrails(&long).check(&chat(&["a", "c"]), 100);
    assert_eq!(checked, Checked::Blocked { rule: 1 });
}

#[test]
fn what_an_answer_repeats_of_the_request_is_nobodys_fault() {
    let rules = [words(&["secret"], Action::Block)];
    let answer = |words: &str| {
        json!({
            "instructions": "Keep the secret.",
            "metadata": {"note": "secret"},
            "output": [{"content": [{"type": "output_text", "text": words}]}],
        })
        .to_string()
    };
    let passed = check(&rules, &answer("I do."));
    assert!(matches!(passed, Checked::Passed { body: None, .. }));
    let blocked = check(&rules, &answer("The secret is out."));
    assert_eq!(blocked, Checked::Blocked { rule: 0 });
}

#[test]
fn the_letter_of_an_escape_is_none_of_the_word_behind_it() {
    let text = r#"{"a": "x\nbluebird", "b": "\u00e9EMP-1"}"#;
    let blocks = [
        words(&["bluebird"], Action::Block),
        pattern(r"\bEMP-[0-9]", Action::Block),
        // What goes beyond a string inside is found, too.
        pattern(r#""b": ""#, Action::Block),
    ];
    for rule in blocks {
        let blocked = check(std::slice::from_ref(&rule), &chat(&[text]));
        assert_eq!(blocked, Checked::Blocked { rule: 0 }, "{rule:?}");
    }
    let redacts = [
        words(&["bluebird"], redact("***")),
        pattern(r"\bEMP-[0-9]", redact("***")),
    ];
    assert_eq!(left(&redacts, text), r#"{"a": "x\n***", "b": "\u00e9***"}"#);
    // A path is no escape.
    let rule = [words(&["bluebird"], Action::Block)];
    let blocked = check(&rule, &chat(&[r"C:\bluebird"]));
    assert_eq!(blocked, Checked::Blocked { rule: 0 });
}

#[test]
fn what_is_reported_passes_as_it_is() {
    let rules = [
        pattern("b", Action::Report),
        words(&["c"], Action::Report),
        pattern("a", Action::Report),
        length(2, Action::Report),
    ];
    let passed = Checked::Passed {
        body: None,
        findings: vec![2, 3],
    };
    assert_eq!(check(&rules, &chat(&["aa", "a"])), passed);
}

#[test]
fn what_is_redacted_gives_way_wherever_it_is() {
    let rules = [pattern("sk-[a-z]+", redact("[key]"))];
    let body = json!({
        "choices": [
            { "message": {
                "content": "it is sk-a, sk-b.",
                "reasoning_content": "sk-c",
                "tool_calls": [{ "function": { "name": "f", "arguments": "{\"key\":\"sk-d\\n\"}" } }],
            } },
            { "message": { "content": [{ "type": "text", "text": "sk-e\"" }] }, "logprobs": { "content": [{ "token": "sk" }] } },
        ],
    });
    let Checked::Passed {
        body: Some(body),
        findings,
    } = check(&rules, &body.to_string())
    else {
        panic!("it passes, changed");
    };
    assert_eq!(findings, [0]);
    let expected = json!({
        "choices": [
            { "message": {
                "content": "it is [key], [key].",
                "reasoning_content": "[key]",
                "tool_calls": [{ "function": { "name": "f", "arguments": "{\"key\":\"[key]\\n\"}" } }],
            } },
            // What tells the tokens is gone.
            { "message": { "content": [{ "type": "text", "text": "[key]\"" }] }, "logprobs": null },
        ],
    });
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expected);
}

#[test]
fn what_one_rule_puts_in_is_nothing_to_another() {
    let rules = [
        pattern("a", redact("b")),
        pattern("b", redact("c")),
        words(&["c"], redact("a")),
    ];
    assert_eq!(left(&rules, "a b c"), "b c a");
}

#[test]
fn of_findings_that_overlap_the_first_rule_says_what_stands_there() {
    let rules = [
        pattern("cde", redact("1")),
        pattern("abc", redact("2")),
        pattern("e f", redact("3")),
        words(&["xyz"], redact("4")),
    ];
    assert_eq!(left(&rules, "abcde f"), "1");
    assert_eq!(left(&rules, "abc"), "2");
    // Side by side is not over each other.
    assert_eq!(left(&rules, "cdeabc"), "12");
    assert_eq!(left(&rules, "xyz abc e f xyz"), "4 2 3 4");
    let words = [words(&["one two", "two three", "two"], redact("_"))];
    assert_eq!(left(&words, "one two three, two, one"), "_, _, one");
}

#[test]
fn keywords_are_whole_words_in_upper_or_lower_case() {
    let list = [words(
        &[
            "foo",
            "foo bar",
            "c++",
            "Straße",
            "ärger",
            " spaced ",
            "東京",
            "λόγος",
            "#tag",
        ],
        redact("*"),
    )];
    for (text, expected) in [
        ("foo", "*"),
        ("FOO Bar", "*"),
        ("foo bars", "* bars"),
        ("foo b", "* b"),
        (
            "food, afoo, foo1, 1foo, éfoo, fooé",
            "food, afoo, foo1, 1foo, éfoo, fooé",
        ),
        (
            "_foo_ foo. (foo) foo's \u{1F600}foo",
            "_*_ *. (*) *'s \u{1F600}*",
        ),
        ("C++ c++, c++11 c+++", "* *, c++11 *+"),
        ("STRAßE STRAẞE straßen", "* * straßen"),
        ("Ärger ÄRGER Verärgert", "* * Verärgert"),
        ("spaced", "*"),
        ("東京 東京都", "* 東京都"),
        ("ΛΌΓΟΣ λόγος λόγοσ", "* * *"),
        ("#tag ##tag a#tag", "* #* a#tag"),
        ("", ""),
    ] {
        assert_eq!(left(&list, text), expected, "{text}");
    }
}

#[test]
fn a_length_is_of_characters_and_of_all_texts_together() {
    let rules = |action| [length(5, action)];
    assert_eq!(
        check(&rules(Action::Block), &chat(&["äöü", "東京x"])),
        Checked::Blocked { rule: 0 }
    );
    let body = chat(&["äöü", "東京"]);
    assert!(matches!(
        check(&rules(Action::Block), &body),
        Checked::Passed { body: None, .. }
    ));
}

#[test]
fn what_is_too_long_is_cut_off_there_once() {
    let cut = [length(5, redact("…"))];
    assert_eq!(
        left_of(&cut, &["äöü", "東京xyz", "more", ""]),
        ["äöü", "東京…", "", ""]
    );
    assert_eq!(left_of(&cut, &["12345", "6", "7"]), ["12345", "…", ""]);
    assert_eq!(left_of(&cut, &["12345", "", ""]), ["12345", "", ""]);
    // Of two the shorter one cuts, and both have found it.
    let two = [
        length(5, redact("A")),
        length(3, redact("B")),
        pattern("b", redact("-")),
    ];
    assert_eq!(left_of(&two, &["abcdefgh", "b"]), ["a-cB", ""]);
    assert_eq!(findings(&two, "abcdefgh"), [0, 1, 2]);
    // What begins before the cut and ends after it is as one with it.
    let over = [pattern("c.*e", redact("X")), length(3, redact("Y"))];
    assert_eq!(left(&over, "abcdef"), "abX");
}

#[test]
fn what_stands_for_findings_has_bounds() {
    let rules = [pattern("a", redact(&"b".repeat(1_000)))];
    let body = chat(&[&"a".repeat(1_000_000)]);
    assert_eq!(guardrails(&rules).check(&body, 1 << 20), Checked::TooLarge);
    let body = chat(&vec!["a"; 2_000]);
    assert_eq!(guardrails(&rules).check(&body, 1 << 20), Checked::TooLarge);
}

/// All of these would take hours if they were looked at over and over.
#[test]
fn long_answers_end() {
    let times = if cfg!(target_arch = "wasm32") {
        100_000
    } else {
        500_000
    };
    let rules = [
        pattern(r"\w+@\w+\.\w+", redact("[mail]")),
        pattern("(?i)select.*from", redact("[sql]")),
        words(&["a a a b", "foo"], redact("-")),
        pattern("(?s)x.*y", Action::Report),
    ];
    let guardrails = guardrails(&rules);
    for text in [
        "a ", "a@", "a@a.a ", "select ", "foo ", "x", "ab", "\u{e4}", "\n",
    ] {
        let body = chat(&[&text.repeat(times / text.len())]);
        let checked = guardrails.check(&body, MAX);
        assert!(matches!(checked, Checked::Passed { .. }), "{text}");
    }
    let body = chat(&vec!["foo"; times / 10]);
    assert!(matches!(
        guardrails.check(&body, MAX),
        Checked::Passed { .. }
    ));
}

#[test]
fn what_would_take_too_long_is_said_to() {
    let rules = [pattern("a[^b]*b|a", redact("-"))];
    let body = chat(&[&"a".repeat(1_000_000)]);
    assert_eq!(check(&rules, &body), Checked::Costly);
    // Words of which each begins like all that follow.
    let word = "a ".repeat(500) + "b";
    let body = chat(&[&"a ".repeat(500_000)]);
    assert_eq!(
        check(&[words(&[&word], Action::Block)], &body),
        Checked::Costly
    );
}

#[test]
fn all_that_is_wrong_with_rules_is_told_with_its_place() {
    let rules = [
        pattern("ok", Action::Block),
        pattern("(", Action::Block),
        words(&["("], Action::Block),
        pattern("a*", redact("")),
        pattern("", Action::Report),
    ];
    let Err(problems) = Guardrails::new(&rules) else {
        panic!("they cannot be");
    };
    let paths: Vec<&str> = problems
        .iter()
        .map(|problem| problem.path.as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "guardrails[1].pattern",
            "guardrails[3].pattern",
            "guardrails[4].pattern"
        ]
    );
    let large = [
        pattern(r"\w{1000}", Action::Report),
        pattern("a", redact("")),
    ];
    let problems = Guardrails::new(&large).err().unwrap();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].path, "guardrails[0].pattern");
    let many = vec![pattern(r"\w{10}", Action::Report); 256];
    let Err(problems) = Guardrails::new(&many) else {
        panic!("they are too large");
    };
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].path, "guardrails");
    assert!(
        problems[0]
            .what
            .starts_with("the patterns are, all together, too large")
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Marks, character by character, what any word is at; then what stands for each run.
    #[test]
    fn words_are_found_where_trying_all_places_finds_them(
        text in "[aAbB ä.]{0,16}",
        list in proptest::collection::vec("[ab]{1,3}|[ab] [ab]|\\.[ab]|ä", 1..4),
    ) {
        let listed: Vec<&str> = list.iter().map(String::as_str).collect();
        let chars: Vec<char> = text.to_lowercase().chars().collect();
        let mut spans: Vec<(usize, usize)> = Vec::new();
        for word in &list {
            let word: Vec<char> = word.chars().collect();
            for start in 0..chars.len() {
                let end = start + word.len();
                let is_edge = |at: Option<usize>| at.is_none_or(|at| chars.get(at).is_none_or(|char| !char.is_alphanumeric()));
                if chars.get(start..end) == Some(&word) && is_edge(start.checked_sub(1)) && is_edge(Some(end)) {
                    spans.push((start, end));
                }
            }
        }
        spans.sort_unstable();
        let mut expected = String::new();
        let mut at = 0;
        let originals: Vec<char> = text.chars().collect();
        while at < originals.len() {
            let mut end = at;
            for &(start, until) in &spans {
                if start == at || (start > at && start < end) {
                    end = end.max(until);
                }
            }
            if end > at {
                expected.push('*');
                at = end;
            } else {
                expected.push(originals[at]);
                at += 1;
            }
        }
        let left = left(&[words(&listed, redact("*"))], &text);
        prop_assert_eq!(left, expected);
    }
}

#[test]
fn numbers_that_tools_are_called_with_are_judged() {
    let called = |card: Value| {
        let arguments = json!({"card": card, "n": 1}).to_string();
        let openai = json!({"message": {"tool_calls": [{"function": {"arguments": arguments}}]}});
        let anthropic = json!({"type": "tool_use", "input": {"card": card, "n": 1}});
        json!({"choices": [openai], "content": [anthropic]}).to_string()
    };
    let number = called(json!(4_111_111_111_111_111_u64));
    let rules = |action| [pattern(r"\b[0-9]{16}\b", action)];
    let blocked = check(&rules(Action::Block), &number);
    assert_eq!(blocked, Checked::Blocked { rule: 0 });
    let Checked::Passed { body, .. } = check(&rules(redact("[card]")), &number) else {
        panic!("it does not pass");
    };
    assert_eq!(body, Some(called(json!("[card]"))));
}
