//! The fenced blocks of the pages, each with its place.

use crate::{file, read};
use std::fmt;
use std::fs;
use std::path::Path;

/// A fenced block.
pub(crate) struct Block {
    /// The page, as a path in the project.
    pub(crate) page: String,
    line: usize,
    /// What the fence says.
    pub(crate) language: String,
    pub(crate) text: String,
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.page, self.line)
    }
}

impl Block {
    /// One that no page has.
    pub(crate) fn planted(language: &str, text: &str) -> Self {
        Self {
            page: "planted".into(),
            line: 1,
            language: language.into(),
            text: format!("{text}\n"),
        }
    }
}

/// The pages, as paths in the project.
pub(crate) fn names() -> Vec<String> {
    let docs = fs::read_dir(file("docs")).unwrap();
    let docs = docs.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let docs = docs.filter(|name| Path::new(name).extension().is_some_and(|of| of == "md"));
    let mut names: Vec<String> = docs.map(|name| format!("docs/{name}")).collect();
    names.push("README.md".into());
    names.sort();
    names
}

/// All blocks of all pages.
pub(crate) fn pages() -> Vec<Block> {
    let pages = names().into_iter();
    pages.flat_map(|page| blocks(&page, &read(&page))).collect()
}

fn blocks(page: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    // The block that is open, with its fence and how far that is indented.
    let mut open: Option<(Block, &str, usize)> = None;
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        match &mut open {
            Some((_, fence, _)) if trimmed.trim_end() == *fence => {
                blocks.extend(open.take().map(|(block, ..)| block));
            }
            Some((block, _, indent)) => {
                let spaces = line.len() - trimmed.len();
                block.text.push_str(&line[spaces.min(*indent)..]);
                block.text.push('\n');
            }
            None if trimmed.starts_with("```") => {
                let ticks = trimmed.bytes().take_while(|&byte| byte == b'`').count();
                let (fence, language) = trimmed.split_at(ticks);
                let block = Block {
                    page: page.to_owned(),
                    line: number + 1,
                    language: language.trim().to_owned(),
                    text: String::new(),
                };
                open = Some((block, fence, indent));
            }
            None => {}
        }
    }
    assert!(open.is_none(), "{page}: a block does not end");
    blocks
}

/// The text of a page without its blocks.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Where the links of a page lead.
pub(crate) fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let links = prose.split("](").skip(1);
    links
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

/// What the headings of a page are called in links.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let title = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|&c| c.is_alphanumeric() || " -_".contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}
