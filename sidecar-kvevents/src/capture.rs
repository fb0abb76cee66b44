//! A recorded run of an engine, fed through the index: does it predict what the engine had cached?

use rolter_core::kv::feed::{Change, Cursor};
use rolter_core::kv::identity::{Chain, Seed};
use rolter_core::kv::index::Index;
use rolter_core::kv::payload;
use rolter_core::kv::residents::Residents;
use serde::Deserialize;
use std::fmt;
use std::io::{self, BufRead};

const MAX_BLOCKS: usize = 10_000_000;
const PAGE_BYTES: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line {
    Frame {
        payload: String,
    },
    Request {
        token_ids: Vec<u32>,
        cache_salt: Option<String>,
        lora_name: Option<String>,
        cached_tokens: u64,
    },
}

/// A request of which the engine had another number of tokens than was predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The line of the capture.
    pub line: usize,
    /// Tokens that were predicted.
    pub predicted: u64,
    /// Tokens that the engine had.
    pub cached: u64,
}

/// How well a run is predicted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Requests of the run.
    pub requests: usize,
    /// Those that were not predicted exactly.
    pub differences: Vec<Difference>,
}

impl Outcome {
    /// Whether there was nothing to complain of, and something to see.
    pub fn is_exact(&self) -> bool {
        self.differences.is_empty() && self.requests > 0
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Difference {
            line,
            predicted,
            cached,
        } in &self.differences
        {
            writeln!(
                f,
                "line {line}: {predicted} tokens predicted, {cached} in the engine's cache"
            )?;
        }
        let exact = self.requests - self.differences.len();
        write!(f, "exact {exact} of {} requests", self.requests)
    }
}

/// Runs a capture, a JSON object a line.
///
/// # Errors
/// Where it cannot be read, with the line.
pub fn replay(capture: impl BufRead) -> io::Result<Outcome> {
    let mut index = Index::new(Seed(fastrand::u64(..)), fastrand::u64(..));
    let replica = index
        .add(MAX_BLOCKS)
        .ok_or_else(|| io::Error::other("no room for an engine"))?;
    let (mut residents, mut cursor) = (Residents::new(MAX_BLOCKS), None);
    let mut outcome = Outcome::default();
    for (number, text) in (1..).zip(capture.lines()) {
        let text = text?;
        if text.trim().is_empty() {
            continue;
        }
        let wrong = |what: &dyn fmt::Display| {
            io::Error::new(io::ErrorKind::InvalidData, format!("line {number}: {what}"))
        };
        match serde_json::from_str(&text).map_err(|error| wrong(&error))? {
            Line::Frame { payload } => {
                let payload = bytes(&payload).ok_or_else(|| wrong(&"`payload` is not hex"))?;
                let batch = payload::decode(&payload)
                    .map_err(|_| wrong(&"`payload` is no batch of KV events"))?;
                index.apply(replica, &batch);
            }
            Line::Request {
                token_ids,
                cache_salt,
                lora_name,
                cached_tokens,
            } => {
                catch_up(&index, &mut cursor, &mut residents);
                let tokens: Vec<u8> = token_ids.into_iter().flat_map(u32::to_le_bytes).collect();
                let size = index.block_size(replica);
                let (lora, salt) = (lora_name.as_deref(), cache_salt.as_deref());
                let chain = Chain::new(index.seed(), lora, salt, &tokens, size);
                let known = chain.take_while(|&block| residents.get(replica, block).is_some());
                let blocks = known.count();
                let predicted = blocks as u64 * u64::from(size);
                outcome.requests += 1;
                if predicted != cached_tokens {
                    outcome.differences.push(Difference {
                        line: number,
                        predicted,
                        cached: cached_tokens,
                    });
                }
            }
        }
    }
    Ok(outcome)
}

/// Reads what has changed as the filter does.
fn catch_up(index: &Index, cursor: &mut Option<Cursor>, residents: &mut Residents) {
    loop {
        let changes = index.changes(*cursor, PAGE_BYTES);
        *cursor = Some(changes.cursor);
        let mut bytes = &*changes.bytes;
        while let Some(change) = Change::read(&mut bytes) {
            match change {
                Change::Clear(replica) => residents.clear(replica),
                Change::Put(replica, block, media) => {
                    residents.put(replica, block, media);
                }
            }
        }
        if !changes.more {
            return;
        }
    }
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let (pairs, []) = hex.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |&[high, low]: &[u8; 2]| u8::try_from(digit(high)? << 4 | digit(low)?).ok();
    pairs.iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = include_str!("../../core/fixtures/vllm-0.32.0-int-hashes.jsonl");

    #[test]
    fn a_run_of_a_real_engine_is_predicted_exactly() {
        let outcome = replay(RUN.as_bytes()).unwrap();
        assert!(outcome.is_exact(), "{outcome}");
        assert_eq!(outcome.to_string(), "exact 108 of 108 requests");
    }

    #[test]
    fn a_run_with_a_hole_is_not() {
        let holey: Vec<_> = RUN
            .lines()
            .filter({
                let mut frames = 0;
                move |line| {
                    frames += usize::from(line.contains("\"frame\""));
                    frames % 10 != 5 || line.contains("\"request\"")
                }
            })
            .collect();
        let outcome = replay(holey.join("\n").as_bytes()).unwrap();
        assert!(!outcome.is_exact());
        assert!(outcome.to_string().starts_with("line "));
    }

    #[test]
    fn what_is_no_capture_is_refused_with_its_line() {
        for text in [
            "\n{}",
            "\nnonsense",
            "\n{\"kind\":\"frame\",\"payload\":\"zz\"}",
        ] {
            let error = replay(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("line 2: "), "{error}");
        }
        assert!(!replay(&b""[..]).unwrap().is_exact());
    }
}
