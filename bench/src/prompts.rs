//! Prompts: text as people and their tools write it, and many that share a head.

use fastrand::Rng;

/// How many prompts share a head.
pub const PROMPTS: usize = 256;

const WORDS: [&str; 24] = [
    "the", "model", "answers", "with", "care", "and", "cites", "sources", "when", "asked", "about",
    "numbers", "dates", "names", "or", "places", "that", "nobody", "has", "seen", "in", "a",
    "previous", "conversation",
];

/// English of so many bytes.
pub fn prose(rng: &mut Rng, bytes: usize) -> String {
    fill(bytes, || format!("{} ", rng.choice(WORDS).unwrap_or("word")))
}

/// Lines of code of so many bytes: indented, with quotes and backslashes to escape.
pub fn code(rng: &mut Rng, bytes: usize) -> String {
    fill(bytes, || {
        let word = rng.choice(WORDS).unwrap_or("word");
        format!("    println!(\"{word}: {{}}\\n\", {word});\n")
    })
}

/// [`PROMPTS`] prompts of so many bytes, of which the first half is common to all. `series` tells
/// sets with the same head apart.
pub fn sharing_a_head(bytes: usize, series: u64) -> Vec<String> {
    let head = prose(&mut Rng::with_seed(1), bytes / 2);
    (0..PROMPTS as u64)
        .map(|prompt| {
            let rng = &mut Rng::with_seed(series << 32 | prompt | 1 << 16);
            let tail = prose(rng, bytes - head.len());
            head.clone() + &tail
        })
        .collect()
}

fn fill(bytes: usize, mut piece: impl FnMut() -> String) -> String {
    let mut text = String::with_capacity(bytes + 64);
    while text.len() < bytes {
        text.push_str(&piece());
    }
    text.truncate(bytes);
    text
}
