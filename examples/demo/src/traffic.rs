//! What clients ask: conversations that grow turn by turn, and groups of single questions under one
//! long system prompt. All of it drawn from a seed.

use fastrand::Rng;
use std::ops::RangeInclusive;
use std::time::Duration;

/// How much there is to ask, and how many ask at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Clients, each with one request at a time.
    pub clients: usize,
    /// Conversations of several turns, each about a document of its own.
    pub conversations: usize,
    /// System prompts that many questions share.
    pub groups: usize,
    /// Questions under each of them.
    pub questions: usize,
}

/// What all clients do together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// How many tasks are under way at once.
    pub clients: usize,
    /// Taken from the front, each by the first client that has nothing to do.
    pub tasks: Vec<Task>,
}

/// A conversation, of one turn or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The system prompt.
    pub system: String,
    /// Asked one after another, each with all that was said before.
    pub turns: Vec<Turn>,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// How long the client thinks before it asks.
    pub think: Duration,
    /// What it asks.
    pub question: String,
    /// The length of the answer that it asks for.
    pub answer_tokens: usize,
}

/// What every conversation about a document begins with.
const ASSISTANT: &str = "You are a careful assistant. Answer from the document alone.";
const TURNS: RangeInclusive<usize> = 4..=8;
const DOCUMENT_BYTES: RangeInclusive<usize> = 4_000..=8_000;
const SYSTEM_BYTES: RangeInclusive<usize> = 7_000..=10_000;
const QUESTION_BYTES: RangeInclusive<usize> = 80..=320;
const ANSWER_TOKENS: RangeInclusive<usize> = 24..=48;
const THINK_MILLIS: RangeInclusive<u64> = 100..=500;

impl Shape {
    /// What the demo shows: about twenty seconds of traffic.
    pub const FULL: Self = Self {
        clients: 20,
        conversations: 32,
        groups: 8,
        questions: 18,
    };

    /// The shortest in which the strategies differ for certain.
    pub const SHORT: Self = Self {
        clients: 16,
        conversations: 16,
        groups: 6,
        questions: 8,
    };
}

impl Traffic {
    /// The traffic of this shape and seed.
    pub fn new(shape: Shape, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut tasks = Vec::new();
        for _ in 0..shape.conversations {
            tasks.push(conversation(&mut rng));
        }
        for _ in 0..shape.groups {
            let bytes = rng.usize(SYSTEM_BYTES);
            let system = prose(bytes, &mut rng);
            for _ in 0..shape.questions {
                tasks.push(Task {
                    system: system.clone(),
                    turns: vec![turn("", &mut rng)],
                });
            }
        }
        rng.shuffle(&mut tasks);
        Self {
            clients: shape.clients,
            tasks,
        }
    }

    /// How many requests it is.
    pub fn requests(&self) -> usize {
        self.tasks.iter().map(|task| task.turns.len()).sum()
    }
}

fn conversation(rng: &mut Rng) -> Task {
    let bytes = rng.usize(DOCUMENT_BYTES);
    let document = prose(bytes, rng);
    let turns = rng.usize(TURNS);
    Task {
        system: ASSISTANT.to_owned(),
        turns: (0..turns)
            .map(|index| turn(if index == 0 { &document } else { "" }, rng))
            .collect(),
    }
}

fn turn(document: &str, rng: &mut Rng) -> Turn {
    let bytes = rng.usize(QUESTION_BYTES);
    Turn {
        think: Duration::from_millis(rng.u64(THINK_MILLIS)),
        question: format!("{document}{}", prose(bytes, rng)),
        answer_tokens: rng.usize(ANSWER_TOKENS),
    }
}

/// At least so many bytes of words in sentences.
fn prose(bytes: usize, rng: &mut Rng) -> String {
    const WORDS: [&str; 32] = [
        "river", "clerk", "seven", "under", "stone", "letter", "because", "winter", "copper",
        "market", "slowly", "garden", "before", "signal", "nobody", "harbour", "paper", "between",
        "forgets", "engine", "carries", "window", "silver", "answers", "people", "always", "north",
        "kitchen", "returns", "second", "meadow", "lantern",
    ];
    let mut text = String::with_capacity(bytes + 32);
    while text.len() < bytes {
        for _ in 0..rng.usize(5..=12) {
            text.push_str(rng.choice(WORDS).unwrap_or_default());
            text.push(' ');
        }
        text.pop();
        text.push_str(". ");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_always_the_same_traffic() {
        let traffic = |seed| Traffic::new(Shape::SHORT, seed);
        assert_eq!(traffic(7), traffic(7));
        assert_ne!(traffic(7), traffic(8));
    }

    #[test]
    fn single_questions_share_their_system_prompts_and_nothing_else() {
        let shape = Shape::SHORT;
        let traffic = Traffic::new(shape, 7);
        let single = || traffic.tasks.iter().filter(|task| task.turns.len() == 1);
        let distinct = |text: fn(&Task) -> &String| {
            let texts: std::collections::BTreeSet<_> = single().map(text).collect();
            texts.len()
        };
        assert_eq!(distinct(|task| &task.system), shape.groups);
        assert_eq!(
            distinct(|task| &task.turns[0].question),
            shape.groups * shape.questions
        );
    }
}
