//! Reading patterns: what is wrong with them, and what to write instead.
//!
//! Invariant: what is read finds something, never something empty, and is of a form that lazy
//! automata can have.

use regex_syntax::hir::{Hir, HirKind, Look};
use regex_syntax::{ParserBuilder, ast};

/// How deep groups may nest.
const MAX_DEPTH: u32 = 64;

/// Reads a pattern that finds something, and something that is not empty.
pub(super) fn parse(pattern: &str) -> Result<Hir, String> {
    if has_property(pattern) {
        return Err(
            "a class by property; write \\w, \\d, \\s, or the characters as in [a-zà-ÿ] for \\p{…}"
                .to_owned(),
        );
    }
    let parser = ParserBuilder::new().nest_limit(MAX_DEPTH).build();
    let hir = { parser }.parse(pattern).map_err(|error| explain(&error))?;
    match hir.properties().minimum_len() {
        Some(0) if pattern.is_empty() => Err("empty; write what is looked for".to_owned()),
        Some(0) => Err(
            "matches the empty text, which is everywhere; write it so that it \
             matches one character at least, as in a+ for a*"
                .to_owned(),
        ),
        None => Err("matches nothing at all; write a pattern that can match".to_owned()),
        Some(_) => Ok(with_ascii_boundaries(hir)),
    }
}

/// Whether a pattern has `\p` or `\P`. Whether there are tables for these depends on what else is in
/// a program, and one configuration is for several programs.
fn has_property(pattern: &str) -> bool {
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        if char == '\\' && matches!(chars.next(), Some('p' | 'P')) {
            return true;
        }
    }
    false
}

/// What is wrong with a pattern, and what to write instead.
fn explain(error: &regex_syntax::Error) -> String {
    let (what, instead, span) = match error {
        regex_syntax::Error::Parse(error) => {
            let instead = match error.kind() {
                ast::ErrorKind::UnsupportedLookAround => {
                    "write what is around it as a part of the pattern, or use \\b, ^ and $"
                }
                ast::ErrorKind::UnsupportedBackreference => "write the group once more",
                ast::ErrorKind::NestLimitExceeded(_) => "write fewer groups in groups",
                ast::ErrorKind::RepetitionMissing => "write \\ before it if it stands for itself",
                ast::ErrorKind::GroupUnopened | ast::ErrorKind::GroupUnclosed => {
                    "write its other half, or \\ before it if it stands for itself"
                }
                _ => "write it as the regex crate has it, and \\ before what stands for itself",
            };
            (error.kind().to_string(), instead, error.span())
        }
        regex_syntax::Error::Translate(error) => {
            let instead = "write it without (?-u)";
            (error.kind().to_string(), instead, error.span())
        }
        _ => return "no regular expression; write one as the regex crate has it".to_owned(),
    };
    let at = span.start.column;
    format!("{what}, at character {at}; {instead}")
}

/// The same with boundaries of words in ASCII's sense. Groups are no more than their contents.
fn with_ascii_boundaries(pattern: Hir) -> Hir {
    match pattern.into_kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Class(class) => Hir::class(class),
        HirKind::Look(look) => Hir::look(match look {
            Look::WordUnicode => Look::WordAscii,
            Look::WordUnicodeNegate => Look::WordAsciiNegate,
            Look::WordStartUnicode => Look::WordStartAscii,
            Look::WordEndUnicode => Look::WordEndAscii,
            Look::WordStartHalfUnicode => Look::WordStartHalfAscii,
            Look::WordEndHalfUnicode => Look::WordEndHalfAscii,
            look => look,
        }),
        HirKind::Repetition(mut repetition) => {
            repetition.sub = Box::new(with_ascii_boundaries(*repetition.sub));
            Hir::repetition(repetition)
        }
        HirKind::Capture(group) => with_ascii_boundaries(*group.sub),
        HirKind::Concat(parts) => Hir::concat(all_with_ascii_boundaries(parts)),
        HirKind::Alternation(parts) => Hir::alternation(all_with_ascii_boundaries(parts)),
    }
}

fn all_with_ascii_boundaries(parts: Vec<Hir>) -> Vec<Hir> {
    parts.into_iter().map(with_ascii_boundaries).collect()
}
