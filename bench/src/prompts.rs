//! Prompts: text as people and their tools write it, and many that share a head.

use fastrand::Rng;

const WORDS: [&str; 24] = [
    "the",
    "model",
    "answers",
    "with",
    "care",
    "and",
    "cites",
    "sources",
    "when",
    "asked",
    "about",
    "numbers",
    "dates",
    "names",
    "or",
    "places",
    "that",
    "nobody",
    "has",
    "seen",
    "in",
    "a",
    "previous",
    "conversation",
];

/// English of so many bytes.
pub fn prose(rng: &mut Rng, bytes: usize) -> String {
    fill(bytes, || {
        format!("{} ", rng.choice(WORDS).unwrap_or("word"))
    })
}

/// Code of so many bytes. One character in 19 is to be escaped in JSON; in real code it is one in
/// 15 to 28.
pub fn code(rng: &mut Rng, bytes: usize) -> String {
    fill(bytes, || {
        let [a, b] = [(); 2].map(|()| rng.choice(WORDS).unwrap_or("word"));
        format!(
            "def {a}_{b}(self, {a}: str, {b}: int = 0) -> dict[str, int]:\n    \
             \"\"\"Counts every {a} in {b}, and the places where it was seen.\"\"\"\n    \
             if not {a} or {b} < 0:\n        \
             raise ValueError(f\"no {a} in {{{b}!r}}\\n\")\n    \
             found = {{name: len(value) for name, value in self.{a}.items()}}\n    \
             return found | {{\"{a}\": {b} + 1}}\n\n"
        )
    })
}

/// Prompts of so many bytes, of which the first half is common to all: a system prompt.
pub fn sharing_a_head(count: usize, bytes: usize) -> Vec<String> {
    let rng = &mut Rng::with_seed(1);
    let head = prose(rng, bytes / 2);
    (0..count)
        .map(|_| head.clone() + &prose(rng, bytes - head.len()))
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
