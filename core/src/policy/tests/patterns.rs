//! Which patterns are in a text, and where.

use super::super::patterns::{Budget, Costly, Finder, Patterns};
use proptest::prelude::*;
use std::fmt::Write;
use std::ops::Range;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn finder(pattern: &str) -> Finder {
    Finder::new(pattern).unwrap_or_else(|problem| panic!("{pattern}: {problem}"))
}

fn patterns(patterns: &[&str]) -> Patterns {
    Patterns::new(patterns.iter().copied()).unwrap()
}

/// All findings, each searched for from the end of the one before.
fn all(finder: &Finder, text: &str, budget: &mut Budget) -> Result<Vec<Range<usize>>, Costly> {
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(range) = finder.find(text, from, budget)? {
        from = range.end;
        found.push(range);
    }
    Ok(found)
}

fn found<'a>(pattern: &str, text: &'a str) -> Vec<&'a str> {
    let budget = &mut Budget::for_bytes(text.len());
    let found = all(&finder(pattern), text, budget).unwrap();
    found.into_iter().map(|range| &text[range]).collect()
}

fn which(patterns: &Patterns, text: &str) -> Vec<usize> {
    let mut found = patterns.none();
    let budget = &mut Budget::for_bytes(text.len());
    patterns.in_text(text, &mut found, budget).unwrap();
    found.iter().collect()
}

#[test]
fn a_pattern_is_found_wherever_it_is() {
    for (pattern, text, expected) in [
        ("abc", "abcabc abc", &["abc", "abc", "abc"][..]),
        ("sam|samwise", "samwise", &["sam"]),
        ("samwise|sam", "samwise", &["samwise"]),
        ("a+?", "aa", &["a", "a"]),
        (
            "(?i)straße|ärger",
            "STRAßE, Ärger, ÄRGER",
            &["STRAßE", "Ärger", "ÄRGER"],
        ),
        (r"\d{2,3}", "1 12 1234 ١٢٣", &["12", "123", "١٢٣"]),
        (r"\w+", "né à 😀 東京", &["né", "à", "東京"]),
        (".", "né😀\n", &["n", "é", "😀"]),
        ("(?s).", "a\n", &["a", "\n"]),
        ("^a", "a\na", &["a"]),
        ("(?m)^a$", "a\nab\na", &["a", "a"]),
        (r"\Aa|b\z", "aab b", &["a", "b"]),
        ("[^a]", "a東a", &["東"]),
        (r"(?x) a \s b # spaced", "a b", &["a b"]),
        (r"(?P<name>a)(?:b)", "ab", &["ab"]),
        ("a.*z|a", "aaaz a", &["aaaz", "a"]),
    ] {
        assert_eq!(found(pattern, text), expected, "{pattern}");
    }
}

#[test]
fn boundaries_of_words_are_those_of_ascii() {
    for (pattern, text, expected) in [
        (
            r"\bcat\b",
            "cat concat cats cat_ -cat-",
            &["cat", "cat"][..],
        ),
        (r"\bcat\b", "écaté", &["cat"]),
        (r"\Bcat", "cat concat", &["cat"]),
        (r"\b{start}cat\b{end}", "cats cat", &["cat"]),
        (r"\b{start-half}cat", "concat cat", &["cat"]),
        (r"cat\b{end-half}", "cats cat", &["cat"]),
        (r"\<cat\>", "cats cat", &["cat"]),
        (r"(\b(?:cat|dog)\b ?)+", "concat cat dog", &["cat dog"]),
    ] {
        assert_eq!(found(pattern, text), expected, "{pattern} in {text}");
    }
}

/// What is before the place where a search begins is seen by `^`, `\b` and the like.
#[test]
fn a_search_from_a_place_knows_what_is_before_it() {
    let budget = &mut Budget::for_bytes(10);
    for (pattern, from, expected) in [
        (r"\bb", 1, Some(3..4)),
        (r"\Bb", 1, Some(1..2)),
        ("^b", 1, None),
        ("(?m)^b", 3, Some(3..4)),
        ("b", 4, None),
        ("b", 5, None),
    ] {
        let found = finder(pattern).find("ab\nb", from, budget);
        assert_eq!(found, Ok(expected), "{pattern}");
    }
}

#[test]
fn one_look_tells_all_patterns_that_a_text_has() {
    let patterns = patterns(&["ab", "b", "b+c", r"\bzz\b", "^q", "b$", r"(?i)ÄB"]);
    assert_eq!(which(&patterns, "abbc"), [0, 1, 2]);
    assert_eq!(which(&patterns, "xzz zz zzx"), [3]);
    assert_eq!(which(&patterns, "qb"), [1, 4, 5]);
    assert_eq!(which(&patterns, "äb"), [1, 5, 6]);
    assert_eq!(which(&patterns, ""), [] as [usize; 0]);
    // One inside the other, and one that only the end of the text decides.
    assert_eq!(which(&patterns, "abb"), [0, 1, 5]);
}

#[test]
fn what_texts_have_adds_up_until_it_is_cleared() {
    let patterns = patterns(&["a", "b"]);
    let budget = &mut Budget::for_bytes(10);
    let mut found = patterns.none();
    assert_eq!(found.iter().count(), 0);
    patterns.in_text("a", &mut found, budget).unwrap();
    patterns.in_text("b", &mut found, budget).unwrap();
    patterns.in_text("c", &mut found, budget).unwrap();
    assert_eq!(found.iter().collect::<Vec<usize>>(), [0, 1]);
    found.clear();
    assert_eq!(found, patterns.none());
}

#[test]
fn no_patterns_are_in_no_text() {
    assert_eq!(which(&patterns(&[]), "a"), [] as [usize; 0]);
}

#[test]
fn a_pattern_that_cannot_be_says_what_to_write_instead() {
    for (pattern, expected) in [
        ("", "empty; write what is looked for"),
        ("a*", "matches the empty text"),
        (r"\b", "matches the empty text"),
        ("^$", "matches the empty text"),
        ("a|", "matches the empty text"),
        (r"[^\s\S]", "matches nothing at all"),
        (
            "ab(c",
            "unclosed group, at character 3; write its other half",
        ),
        ("a)", "unopened group, at character 2"),
        (
            "*a",
            r"repetition operator missing expression, at character 1; write \ before it",
        ),
        (
            "(?=a)b",
            "look-around, including look-ahead and look-behind, is not supported",
        ),
        (
            r"(a)\1",
            "backreferences are not supported, at character 4; write the group",
        ),
        (r"\p{Greek}", r"a class by property; write \w, \d, \s"),
        (
            r"(?-u:\xFF)",
            "pattern can match invalid UTF-8, at character 6",
        ),
        (
            r"\w{1000}",
            "too large as an automaton; write shorter repetitions",
        ),
        (r"(?:(?:a{1000}){1000}){1000}", "too large as an automaton"),
        (&"(?:".repeat(300), "at character"),
        (
            &("(".repeat(100) + "a" + &")".repeat(100)),
            "write fewer groups in groups",
        ),
    ] {
        let problem = Finder::new(pattern).unwrap_err();
        assert!(problem.contains(expected), "{pattern}: {problem}");
        let is_large = problem.starts_with("too large");
        assert_eq!(Patterns::check(pattern).is_err(), !is_large, "{pattern}");
    }
}

#[test]
fn many_large_patterns_are_too_large_together() {
    let one = r"\w{10}";
    Finder::new(one).unwrap();
    let problem = Patterns::new([one; 256]).unwrap_err();
    assert!(problem.contains("too large"), "{problem}");
}

const MANY: usize = if cfg!(target_arch = "wasm32") {
    200_000
} else {
    1_000_000
};

/// This would take hours if each search went on to the end of the text.
#[test]
fn what_would_be_looked_at_over_and_over_is_too_costly() {
    let text = "a".repeat(MANY);
    let budget = &mut Budget::for_bytes(text.len());
    let found = all(&finder("a[^b]*b|a"), &text, budget);
    assert_eq!(found, Err(Costly));
}

#[test]
fn many_findings_are_not_too_costly() {
    for (pattern, text) in [
        ("a", "a".repeat(MANY)),
        ("a+", "aaaaaaa ".repeat(MANY / 8)),
        (r"\w+@\w+\.com", "someone@example.com ".repeat(MANY / 20)),
        ("(?s).+", "a".repeat(MANY)),
        // Near misses.
        (r"\w+@\w+\.com", "someone@example.org ".repeat(MANY / 20)),
    ] {
        let budget = &mut Budget::for_bytes(text.len());
        assert!(all(&finder(pattern), &text, budget).is_ok(), "{pattern}");
    }
}

/// An automaton for this has more states than fit, so that each byte of a random text leads to one
/// that has to be found out.
#[test]
fn what_is_found_out_over_and_over_is_bounded() {
    let pattern = "[ab]*a[ab]{18}c";
    let mut random = fastrand::Rng::with_seed(7);
    let text: String = (0..MANY)
        .map(|_| random.choice(['a', 'b']).unwrap())
        .collect();
    let finder = finder(pattern);
    let many = patterns(&[pattern; 20]);
    for _ in 0..3 {
        let budget = &mut Budget::for_bytes(1 << 10);
        assert_eq!(finder.find(&text, 0, budget), Err(Costly));
        let budget = &mut Budget::for_bytes(1 << 10);
        assert_eq!(many.in_text(&text, &mut many.none(), budget), Err(Costly));
        // What has been forgotten changes nothing in what is found.
        let budget = &mut Budget::for_bytes(text.len());
        let short = format!("a{}c", "ab".repeat(9));
        assert_eq!(finder.find(&short, 0, budget), Ok(Some(0..short.len())));
    }
}

/// Patterns as the model knows them.
#[derive(Clone, Debug)]
enum Part {
    Char(char),
    NotChar(char),
    Boundary,
    Sequence(Vec<Part>),
    OneOf(Vec<Part>),
    Times(Box<Part>, usize, usize, bool),
}

impl Part {
    fn write(&self, to: &mut String) {
        match self {
            Self::Char(char) => to.push(*char),
            Self::NotChar(char) => write!(to, "[^{char}]").unwrap(),
            Self::Boundary => to.push_str(r"\b"),
            Self::Sequence(parts) => parts.iter().for_each(|part| part.write(to)),
            Self::OneOf(parts) => {
                to.push_str("(?:");
                for (index, part) in parts.iter().enumerate() {
                    to.push_str(if index == 0 { "" } else { "|" });
                    part.write(to);
                }
                to.push(')');
            }
            Self::Times(part, least, most, greedy) => {
                to.push_str("(?:");
                part.write(to);
                let lazy = if *greedy { "" } else { "?" };
                write!(to, "){{{least},{most}}}{lazy}").unwrap();
            }
        }
    }

    /// Where it may end, the most preferred first.
    fn ends(&self, text: &str, at: usize) -> Vec<usize> {
        let next = text[at..].chars().next();
        let is_word = |char: Option<char>| char.is_some_and(|char| char.is_ascii_alphanumeric());
        match self {
            Self::Char(char) if next == Some(*char) => vec![at + char.len_utf8()],
            Self::NotChar(char) if next.is_some_and(|next| next != *char) => {
                vec![at + next.unwrap().len_utf8()]
            }
            Self::Boundary if is_word(text[..at].chars().next_back()) != is_word(next) => vec![at],
            Self::Char(_) | Self::NotChar(_) | Self::Boundary => Vec::new(),
            Self::Sequence(parts) => parts.iter().fold(vec![at], |ends, part| {
                unique(ends.iter().flat_map(|&end| part.ends(text, end)))
            }),
            Self::OneOf(parts) => unique(parts.iter().flat_map(|part| part.ends(text, at))),
            Self::Times(part, least, most, greedy) => {
                Self::times(part, *least, *most, *greedy, text, at)
            }
        }
    }

    fn times(
        part: &Self,
        least: usize,
        most: usize,
        greedy: bool,
        text: &str,
        at: usize,
    ) -> Vec<usize> {
        if most == 0 {
            return vec![at];
        }
        let once_more = part.ends(text, at).into_iter().flat_map(|end| {
            Self::times(part, least.saturating_sub(1), most - 1, greedy, text, end)
        });
        match (least, greedy) {
            (0, true) => unique(once_more.chain([at])),
            (0, false) => unique([at].into_iter().chain(once_more)),
            _ => unique(once_more),
        }
    }

    fn find(&self, text: &str, from: usize) -> Option<Range<usize>> {
        (from..=text.len())
            .filter(|&start| text.is_char_boundary(start))
            .find_map(|start| Some(start..*self.ends(text, start).first()?))
    }
}

/// Without what was there before, since what is preferred less adds nothing.
fn unique(ends: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut all = Vec::new();
    for end in ends {
        if !all.contains(&end) {
            all.push(end);
        }
    }
    all
}

const ALPHABET: &str = "[abé東 ]";

fn part() -> impl Strategy<Value = Part> {
    let char = proptest::sample::select(
        ALPHABET
            .trim_matches(['[', ']'])
            .chars()
            .collect::<Vec<_>>(),
    );
    let leaf = prop_oneof![
        6 => char.clone().prop_map(Part::Char),
        1 => char.prop_map(Part::NotChar),
        1 => Just(Part::Boundary),
    ];
    leaf.prop_recursive(3, 12, 3, |part| {
        prop_oneof![
            proptest::collection::vec(part.clone(), 1..4).prop_map(Part::Sequence),
            proptest::collection::vec(part.clone(), 1..4).prop_map(Part::OneOf),
            (part, 0..3usize, 0..3usize, any::<bool>()).prop_map(|(part, least, more, greedy)| {
                Part::Times(Box::new(part), least, least + more, greedy)
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_found_is_what_trying_every_way_finds(part in part(), text in "[abé東 ]{0,12}") {
        let mut pattern = String::new();
        part.write(&mut pattern);
        let Ok(finder) = Finder::new(&pattern) else {
            return Ok(());
        };
        let budget = &mut Budget::for_bytes(text.len());
        for from in (0..=text.len()).filter(|&from| text.is_char_boundary(from)) {
            let found = finder.find(&text, from, budget);
            prop_assert_eq!(found, Ok(part.find(&text, from)), "{} from {}", pattern, from);
        }
        let patterns = patterns(&["東b", &pattern]);
        let is_there = which(&patterns, &text).contains(&1);
        prop_assert_eq!(is_there, part.find(&text, 0).is_some(), "{}", pattern);
    }
}
