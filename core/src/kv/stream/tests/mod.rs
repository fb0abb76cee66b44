mod cases;
mod model;

use super::{Blocks, Read, Settings};
use crate::config::OnGap;

/// What was taken in since the last clear, and what was told.
#[derive(Debug, Default)]
struct Log {
    batches: Vec<Batch>,
    clears: usize,
}

/// A batch as its bytes say it: an epoch, a sequence, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Batch {
    epoch: u8,
    seq: u64,
    kind: u8,
}

const PLAIN: u8 = 0;
const CLEARED: u8 = 1;
const MALFORMED: u8 = 2;

impl Batch {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.epoch, self.kind];
        bytes.extend_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Self {
        Self {
            epoch: bytes[0],
            kind: bytes[1],
            seq: u64::from_be_bytes(bytes[2..].try_into().unwrap()),
        }
    }
}

impl Blocks<Vec<u8>> for Log {
    fn clear(&mut self) {
        self.batches.clear();
        self.clears += 1;
    }

    fn apply(&mut self, batch: &Vec<u8>, known: bool) -> Read {
        let batch = Batch::read(batch);
        match batch.kind {
            MALFORMED => return Read::Malformed,
            CLEARED => {
                self.batches = vec![batch];
                return Read::Cleared;
            }
            _ if known => self.batches.push(batch),
            _ => {}
        }
        Read::Plain
    }
}

fn settings(has_replay: bool, on_gap: OnGap) -> Settings {
    Settings {
        has_replay,
        on_gap,
        stale_millis: 30_000,
    }
}
