//! The records that workers put into their rings for each other.
//!
//! Routes and targets go by hashes of their names, which stay the same over changes of the
//! configuration, while positions do not. Numbers are little-endian.

use crate::memory::Lesson;
use crate::time::Millis;
use xxhash_rust::xxh3::xxh3_64;

/// What one worker tells the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Whose memory it is about.
    pub memory: NameHash,
    /// The target that it is about.
    pub target: NameHash,
    /// When it was learnt.
    pub at: Millis,
    /// What was learnt.
    pub lesson: Lesson<'a>,
}

const PROMPT: u8 = 1;
const WITHDRAWN: u8 = 2;
const SESSION: u8 = 3;
const FIRST_TOKEN: u8 = 4;

/// The number that stands for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameHash(pub u64);

impl NameHash {
    /// Of this name.
    pub fn of(name: &str) -> Self {
        Self(xxh3_64(name.as_bytes()))
    }
}

impl<'a> Message<'a> {
    /// Writes the message in place of what the buffer has.
    pub fn write(&self, into: &mut Vec<u8>) {
        into.clear();
        for number in [self.memory.0, self.target.0, self.at.0] {
            into.extend_from_slice(&number.to_le_bytes());
        }
        match self.lesson {
            Lesson::Prompt { model, text } => write_prompt(PROMPT, model, text, into),
            Lesson::Withdrawn { model, text } => write_prompt(WITHDRAWN, model, text, into),
            Lesson::Session { session } => {
                into.push(SESSION);
                into.extend_from_slice(&session.to_le_bytes());
            }
            Lesson::FirstToken { tokens, micros } => {
                into.push(FIRST_TOKEN);
                into.extend_from_slice(&tokens.to_le_bytes());
                into.extend_from_slice(&micros.to_le_bytes());
            }
        }
    }

    /// Reads a message. Nothing where it is none, as one of another version of this filter.
    pub fn read(mut bytes: &'a [u8]) -> Option<Self> {
        let memory = NameHash(u64::from_le_bytes(take(&mut bytes)?));
        let target = NameHash(u64::from_le_bytes(take(&mut bytes)?));
        let at = Millis(u64::from_le_bytes(take(&mut bytes)?));
        let [kind] = take(&mut bytes)?;
        let lesson = match kind {
            PROMPT | WITHDRAWN => {
                let length = u32::from_le_bytes(take(&mut bytes)?);
                let (model, text) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
                bytes = &[];
                if kind == PROMPT {
                    Lesson::Prompt { model, text }
                } else {
                    Lesson::Withdrawn { model, text }
                }
            }
            SESSION => Lesson::Session {
                session: u64::from_le_bytes(take(&mut bytes)?),
            },
            FIRST_TOKEN => Lesson::FirstToken {
                tokens: u32::from_le_bytes(take(&mut bytes)?),
                micros: u32::from_le_bytes(take(&mut bytes)?),
            },
            _ => return None,
        };
        bytes.is_empty().then_some(Self {
            memory,
            target,
            at,
            lesson,
        })
    }
}

/// The model is as long as a tree takes it, so its length fits.
fn write_prompt(kind: u8, model: &[u8], text: &[u8], into: &mut Vec<u8>) {
    into.push(kind);
    into.extend_from_slice(&u32::try_from(model.len()).unwrap_or(u32::MAX).to_le_bytes());
    into.extend_from_slice(model);
    into.extend_from_slice(text);
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (&taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    proptest! {
        #[test]
        fn what_is_written_can_be_read(
            numbers: [u64; 4],
            short: [u32; 2],
            model in prop::collection::vec(any::<u8>(), 0..300),
            text in prop::collection::vec(any::<u8>(), 0..2_000),
        ) {
            let [memory, target, at, session] = numbers;
            let (memory, target) = (NameHash(memory), NameHash(target));
            let [tokens, micros] = short;
            let (model, text) = (&*model, &*text);
            let mut bytes = vec![1, 2, 3];
            for lesson in [
                Lesson::Prompt { model, text },
                Lesson::Withdrawn { model, text },
                Lesson::Session { session },
                Lesson::FirstToken { tokens, micros },
            ] {
                let message = Message { memory, target, at: Millis(at), lesson };
                message.write(&mut bytes);
                prop_assert_eq!(Message::read(&bytes), Some(message));
                let cut = match lesson {
                    Lesson::Prompt { .. } | Lesson::Withdrawn { .. } => 28 + model.len(),
                    _ => bytes.len() - 1,
                };
                prop_assert_eq!(Message::read(&bytes[..cut]), None, "{:?}", lesson);
            }
        }

        #[test]
        fn any_bytes_can_be_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(message) = Message::read(&bytes) {
                let mut again = Vec::new();
                message.write(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
