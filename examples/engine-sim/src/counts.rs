//! What a scheduler counts, and the sum of that over ranks.

use std::iter::Sum;

use serde::Serialize;

/// How many requests ended in which way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Finished {
    /// Answers of the engine's own length.
    pub stop: u64,
    /// Answers that reached the length that the request asked for, or the end of the context.
    pub length: u64,
    /// Requests whose client left before the end, waiting or running.
    pub abort: u64,
}

/// What the scheduler counts. Gauges are as of now; the rest counts since the last reset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) peak_running: usize,
    pub(crate) queried_tokens: u64,
    pub(crate) hit_tokens: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) generation_tokens: u64,
    pub(crate) blocks_used: usize,
    pub(crate) blocks_kept: usize,
    pub(crate) finished: Finished,
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, next| Self {
            running: sum.running + next.running,
            waiting: sum.waiting + next.waiting,
            peak_running: sum.peak_running + next.peak_running,
            queried_tokens: sum.queried_tokens + next.queried_tokens,
            hit_tokens: sum.hit_tokens + next.hit_tokens,
            prompt_tokens: sum.prompt_tokens + next.prompt_tokens,
            generation_tokens: sum.generation_tokens + next.generation_tokens,
            blocks_used: sum.blocks_used + next.blocks_used,
            blocks_kept: sum.blocks_kept + next.blocks_kept,
            finished: Finished {
                stop: sum.finished.stop + next.finished.stop,
                length: sum.finished.length + next.finished.length,
                abort: sum.finished.abort + next.finished.abort,
            },
        })
    }
}
