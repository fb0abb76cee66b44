//! Where a text has which of many words, as whole words, in upper or lower case.
//!
//! Invariant: a word is found wherever it is, also inside of others that are found, as long as no
//! letter or digit of any language is right before it or after it. Words may consist of several, and
//! of signs. They are a tree, character by character, so a text is looked at from the start of each
//! of its words until it is none of these; what that takes in all is taken from a [`Budget`].

use super::patterns::{Budget, Costly};
use std::ops::Range;

/// Words, each with a number that several may have.
#[derive(Debug)]
pub(super) struct Words {
    /// The first is where all words begin.
    nodes: Vec<Node>,
}

/// The words that begin in one way.
#[derive(Debug, Default)]
struct Node {
    /// How they go on, in order.
    next: Vec<(char, usize)>,
    /// The numbers of those that go on no further.
    numbers: Vec<usize>,
}

impl Words {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![Node::default()],
        }
    }

    /// Adds a word, without white space around it.
    pub(super) fn add(&mut self, word: &str, number: usize) {
        let mut at = 0;
        for char in word.trim().chars().map(fold) {
            let new = self.nodes.len();
            let Some(node) = self.nodes.get_mut(at) else {
                return;
            };
            match node.next.binary_search_by_key(&char, |&(char, _)| char) {
                Ok(place) => at = node.next.get(place).map_or(0, |&(_, next)| next),
                Err(place) => {
                    node.next.insert(place, (char, new));
                    self.nodes.push(Node::default());
                    at = new;
                }
            }
        }
        // The empty word is in no text.
        if at != 0
            && let Some(node) = self.nodes.get_mut(at)
            && !node.numbers.contains(&number)
        {
            node.numbers.push(number);
        }
    }

    /// Calls `found` with each word in a text, and with its number: in the order of where they
    /// begin, the shorter ones first.
    pub(super) fn find(
        &self,
        text: &str,
        budget: &mut Budget,
        mut found: impl FnMut(Range<usize>, usize),
    ) -> Result<(), Costly> {
        let Some(root) = self.nodes.first().filter(|root| !root.next.is_empty()) else {
            return Ok(());
        };
        let mut is_inside = false;
        for (start, char) in text.char_indices() {
            let starts = !is_inside;
            is_inside = is_letter_or_digit(char);
            if starts && let Some(node) = self.step(root, char) {
                self.find_at(
                    node,
                    text,
                    start..start + char.len_utf8(),
                    budget,
                    &mut found,
                )?;
            }
        }
        Ok(())
    }

    /// Finds the words that begin with the characters of a range, which lead to a node.
    fn find_at<'w>(
        &'w self,
        mut node: &'w Node,
        text: &str,
        mut range: Range<usize>,
        budget: &mut Budget,
        found: &mut impl FnMut(Range<usize>, usize),
    ) -> Result<(), Costly> {
        let mut rest = text.get(range.end..).unwrap_or_default().chars();
        loop {
            let next = rest.next();
            if !next.is_some_and(is_letter_or_digit) {
                for &number in &node.numbers {
                    found(range.clone(), number);
                }
            }
            budget.take(1 + node.numbers.len())?;
            let Some((char, next)) = next.and_then(|char| Some((char, self.step(node, char)?)))
            else {
                return Ok(());
            };
            node = next;
            range.end += char.len_utf8();
        }
    }

    fn step<'w>(&'w self, node: &Node, char: char) -> Option<&'w Node> {
        let char = fold(char);
        let place = node.next.binary_search_by_key(&char, |&(char, _)| char);
        self.nodes.get(node.next.get(place.ok()?)?.1)
    }
}

/// What [`char::is_alphanumeric`] says, without a search in tables for what most texts consist of.
fn is_letter_or_digit(char: char) -> bool {
    match char {
        '\u{C0}'..='\u{D6}'
        | '\u{D8}'..='\u{F6}'
        | '\u{F8}'..='\u{2C1}'
        | '\u{400}'..='\u{481}'
        | '\u{3041}'..='\u{3096}'
        | '\u{30A1}'..='\u{30FA}'
        | '\u{4E00}'..='\u{9FFF}'
        | '\u{AC00}'..='\u{D7A3}' => true,
        _ => char.is_alphanumeric(),
    }
}

/// One character for all that differ in being upper or lower case alone, where each is one.
fn fold(char: char) -> char {
    if char.is_ascii() {
        return char.to_ascii_lowercase();
    }
    // By way of the upper case, since some have several lower ones.
    let upper = only(char.to_uppercase()).unwrap_or(char);
    only(upper.to_lowercase()).unwrap_or(upper)
}

fn only(mut chars: impl Iterator<Item = char>) -> Option<char> {
    let first = chars.next();
    first.filter(|_| chars.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::is_letter_or_digit;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn letters_and_digits_are_those_of_the_standard_library() {
        for char in '\0'..=char::MAX {
            assert_eq!(is_letter_or_digit(char), char.is_alphanumeric(), "{char:?}");
        }
    }
}
