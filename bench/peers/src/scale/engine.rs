//! One engine in virtual time, with engine-sim's rules and its prefix cache.
//!
//! Requests wait in a queue, first come, first served. One is admitted when the batch has a place,
//! no other is in its prefill and the cache has room for its prompt and its answer. Prefills go in
//! steps, after each of which blocks can be found; decodes go on beside them, each at a fixed pace.
//!
//! Invariant: the engine is asked at every time at which it [has something to do](Engine::next), in
//! their order.

use super::asked::Asked;
use crate::workload::Settings;
use engine_sim::{BlockCache, BlockHash, CacheEvent, Lease};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Tokens that one step of a prefill computes.
const STEP_TOKENS: usize = 512;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// Its answer begins.
    FirstToken(usize),
    /// Its answer is over.
    Finished(usize),
}

/// What has happened to the blocks of an engine.
pub(crate) type Change = CacheEvent<BlockHash>;

pub(crate) struct Engine {
    settings: Settings,
    cache: BlockCache<BlockHash>,
    waiting: VecDeque<Waiting>,
    prefill: Option<Prefill>,
    /// Answers under way, by when they end.
    ends: BinaryHeap<Reverse<(Duration, usize)>>,
    leases: HashMap<usize, (Lease, Rc<[BlockHash]>)>,
    running: usize,
    /// When the accelerator is done with the last step that it began.
    free_at: Duration,
    pub(crate) counts: Counts,
}

/// Tokens of prompts, from some request on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) queried: u64,
    pub(crate) hit: u64,
}

struct Waiting {
    number: usize,
    asked: Asked,
    /// Tokens that it will have to compute, as far as could be told when it came.
    owed: usize,
}

struct Prefill {
    number: usize,
    asked: Asked,
    lease: Lease,
    /// Tokens that are there when the step is over that is under way.
    done: usize,
    /// When that is.
    clock: Duration,
}

impl Engine {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            settings: *settings,
            cache: BlockCache::new(settings.kv_blocks, false),
            waiting: VecDeque::new(),
            prefill: None,
            ends: BinaryHeap::new(),
            leases: HashMap::new(),
            running: 0,
            free_at: Duration::ZERO,
            counts: Counts::default(),
        }
    }

    /// Takes a request.
    pub(crate) fn enqueue(&mut self, number: usize, asked: &Asked, now: Duration) {
        self.waiting.push_back(Waiting {
            number,
            asked: asked.clone(),
            owed: asked.prompt_tokens - self.promised(asked),
        });
        self.admit(now);
    }

    /// When there is something to do next.
    pub(crate) fn next(&self) -> Option<Duration> {
        let step = self.prefill.as_ref().map(|prefill| prefill.clock);
        let end = self.ends.peek().map(|Reverse((at, _))| *at);
        step.into_iter().chain(end).min()
    }

    /// Does what there is to do at that time.
    pub(crate) fn advance(&mut self, now: Duration, happened: &mut Vec<Happened>) {
        while let Some(&Reverse((at, number))) = self.ends.peek()
            && at <= now
        {
            self.ends.pop();
            self.finish(number);
            happened.push(Happened::Finished(number));
            self.admit(now);
        }
        if self.prefill.as_ref().is_some_and(|step| step.clock <= now) {
            happened.extend(self.end_step());
        }
    }

    /// What has happened to the blocks since this was asked the last time.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        self.cache.take_events()
    }

    /// How long it takes until all that is there is computed.
    pub(crate) fn backlog(&self, now: Duration) -> Duration {
        let prefill = self.prefill.as_ref().map_or(Duration::ZERO, |prefill| {
            let left = prefill.asked.prompt_tokens - prefill.done;
            prefill.clock.saturating_sub(now) + self.compute(left)
        });
        let owed = self.waiting.iter().map(|waiting| waiting.owed).sum();
        prefill + self.compute(owed)
    }

    /// Tokens of a prompt that will be there when its turn comes, as far as can be told now: those
    /// of blocks that are there, or that a request before it has.
    pub(crate) fn promised(&self, asked: &Asked) -> usize {
        let prefix = asked.prefix();
        let cached = prefix.partition_point(|&block| self.cache.contains(block));
        let before = self.waiting.iter().map(|waiting| &waiting.asked);
        let before = before.chain(self.prefill.as_ref().map(|prefill| &prefill.asked));
        let shared = before.map(|other| {
            let pairs = prefix.iter().zip(other.blocks.iter());
            // Equal blocks have equal blocks before them.
            let count = pairs.len();
            let equal = |place: usize| prefix.get(place) == other.blocks.get(place);
            let (mut low, mut high) = (0, count);
            while low < high {
                let middle = low.midpoint(high);
                if equal(middle) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            low
        });
        shared.fold(cached, usize::max) * self.settings.block_tokens
    }

    /// Requests that it has begun with and requests that wait.
    pub(crate) fn load(&self) -> usize {
        self.running + self.waiting.len()
    }

    /// How long so many tokens take.
    pub(crate) fn compute(&self, tokens: usize) -> Duration {
        let tokens = u32::try_from(tokens).map_or(f64::MAX, f64::from);
        Duration::from_secs_f64(tokens / self.settings.prefill_tokens_per_sec)
    }

    fn admit(&mut self, now: Duration) {
        if self.prefill.is_some() || self.running >= self.settings.max_batch {
            return;
        }
        let Some(Waiting { asked, .. }) = self.waiting.front() else {
            return;
        };
        let tokens = asked.prompt_tokens + asked.answer_tokens;
        let total = tokens.div_ceil(self.settings.block_tokens);
        let Some(lease) = self.cache.lease(asked.prefix(), total) else {
            assert!(
                self.running > 0,
                "a request of {tokens} tokens is larger than a cache"
            );
            return;
        };
        let Some(Waiting { number, asked, .. }) = self.waiting.pop_front() else {
            return;
        };
        let cached = lease.named() * self.settings.block_tokens;
        self.counts.queried += asked.prompt_tokens as u64;
        self.counts.hit += cached as u64;
        self.running += 1;
        let mut prefill = Prefill {
            number,
            asked,
            lease,
            done: cached,
            clock: now.max(self.free_at),
        };
        self.begin_step(&mut prefill);
        self.prefill = Some(prefill);
    }

    fn begin_step(&mut self, prefill: &mut Prefill) {
        let step = STEP_TOKENS.min(prefill.asked.prompt_tokens - prefill.done);
        prefill.done += step;
        prefill.clock += self.compute(step);
        self.free_at = prefill.clock;
    }

    fn end_step(&mut self) -> Option<Happened> {
        let mut prefill = self.prefill.take()?;
        let computed = prefill.done / self.settings.block_tokens;
        let from = prefill.lease.named().min(computed);
        let computed = prefill.asked.blocks.get(from..computed);
        for block in computed.into_iter().flatten() {
            self.cache.publish(&mut prefill.lease, block);
        }
        if prefill.done < prefill.asked.prompt_tokens {
            self.begin_step(&mut prefill);
            self.prefill = Some(prefill);
            return None;
        }
        let Prefill {
            number,
            asked,
            lease,
            clock,
            ..
        } = prefill;
        // The first token is there with the end of the prefill.
        let steps = u32::try_from(asked.answer_tokens - 1).unwrap_or(u32::MAX);
        let end = clock + self.settings.decode_time_per_token * steps;
        self.ends.push(Reverse((end, number)));
        self.leases
            .insert(number, (lease, self.answer(number, &asked)));
        self.admit(clock);
        Some(Happened::FirstToken(number))
    }

    /// The blocks that an answer fills. Nobody asks for them again: later turns of a conversation
    /// have a scripted answer.
    fn answer(&self, number: usize, asked: &Asked) -> Rc<[BlockHash]> {
        let tokens = asked.prompt_tokens + asked.answer_tokens - 1;
        let blocks = asked.blocks.len()..tokens / self.settings.block_tokens;
        let name = |block| {
            let name = (number as u64) << 20 | block as u64;
            BlockHash(name.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        };
        blocks.map(name).collect()
    }

    fn finish(&mut self, number: usize) {
        if let Some((mut lease, answer)) = self.leases.remove(&number) {
            for block in answer.iter() {
                self.cache.publish(&mut lease, block);
            }
            self.cache.release(&mut lease);
            self.running -= 1;
        }
    }
}
