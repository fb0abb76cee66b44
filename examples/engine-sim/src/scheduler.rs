//! Who runs: a batch of bounded size, a first-come-first-served queue before it, one accelerator.
//!
//! A request is admitted when it is at the head of the queue, the batch has a place, no other
//! request is in its prefill and the cache has room for its prompt and longest answer. Its prefix
//! is looked up at that moment. Whatever way a request ends, dropping its [`Ticket`] or
//! [`Running`] gives all of this back at once.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::blocks::{Block, BlockChain, BlockHash};
use crate::config::EngineConfig;
use crate::counts::Counts;
use crate::kv_events::Publisher;
use crate::prefix_cache::{CacheEvent, Lease, PrefixCache};
use crate::question::{Question, findable_blocks};
use crate::tokens::TokenId;

/// Tokens that one step of a prefill computes; their blocks can be found after it.
const STEP_TOKENS: usize = 512;

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    Stop,
    Length,
}

/// The queue holds as many requests as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// What a request needs.
#[derive(Debug)]
pub(crate) struct Job {
    prompt_blocks: Vec<Arc<Block>>,
    prompt_tokens: usize,
    answer_tokens: usize,
    /// Goes on where the prompt's whole blocks end.
    chain: BlockChain,
}

impl Job {
    /// A request with this prompt for an answer of `answer_tokens`.
    pub(crate) fn new(prompt: &[TokenId], mut chain: BlockChain, answer_tokens: usize) -> Self {
        Self {
            prompt_blocks: prompt
                .iter()
                .filter_map(|token| chain.push(*token))
                .collect(),
            prompt_tokens: prompt.len(),
            answer_tokens,
            chain,
        }
    }
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    job: Job,
    admit: oneshot::Sender<Running>,
}

#[derive(Debug)]
struct Inner {
    cache: PrefixCache,
    waiting: VecDeque<Waiter>,
    prefilling: bool,
    /// When the accelerator is done with the last step that it began.
    free_at: Instant,
    next_id: u64,
    counts: Counts,
}

/// Decides which requests run.
#[derive(Debug)]
pub(crate) struct Scheduler {
    block_tokens: usize,
    max_batch: usize,
    max_waiting: usize,
    seconds_per_token: f64,
    /// Told what happens to the cache, while `inner` is locked: so in the order in which it did.
    publisher: Option<Arc<Publisher>>,
    inner: Mutex<Inner>,
}

impl Scheduler {
    /// A scheduler with an empty queue and an empty cache.
    pub(crate) fn new(config: &EngineConfig, publisher: Option<Arc<Publisher>>) -> Self {
        let events = config.kv_events.as_ref();
        let full_report = events.is_some_and(|events| events.full_report);
        Self {
            publisher,
            block_tokens: config.block_tokens,
            max_batch: config.max_batch,
            max_waiting: config.max_waiting,
            seconds_per_token: config.prefill_tokens_per_sec.recip(),
            inner: Mutex::new(Inner {
                cache: PrefixCache::new(config.kv_blocks, full_report),
                waiting: VecDeque::new(),
                prefilling: false,
                free_at: Instant::now(),
                next_id: 0,
                counts: Counts::default(),
            }),
        }
    }

    /// Puts a request into the queue.
    pub(crate) fn enqueue(self: &Arc<Self>, job: Job) -> Result<Ticket, QueueFull> {
        let (admit, admitted) = oneshot::channel();
        let id = {
            let mut inner = self.lock();
            if inner.waiting.len() >= self.max_waiting {
                return Err(QueueFull);
            }
            inner.next_id += 1;
            let id = inner.next_id;
            inner.waiting.push_back(Waiter { id, job, admit });
            id
        };
        self.admit_all(Instant::now());
        Ok(Ticket {
            scheduler: Arc::clone(self),
            id,
            admitted,
        })
    }

    /// What has been counted.
    pub(crate) fn counts(&self) -> Counts {
        let inner = self.lock();
        Counts {
            waiting: inner.waiting.len(),
            blocks_used: inner.cache.used(),
            blocks_kept: inner.cache.kept(),
            ..inner.counts
        }
    }

    /// Prompt tokens that each of these would have computed, if they came now one after another: what
    /// is in the cache, or one before it has computed, is found.
    pub(crate) fn would_compute(&self, questions: &[&Question]) -> Vec<usize> {
        let inner = self.lock();
        let mut coming: HashSet<BlockHash> = HashSet::new();
        let compute = |question: &&Question| {
            let found = question.blocks[..question.findable]
                .iter()
                .take_while(|block| inner.cache.contains(**block) || coming.contains(*block))
                .count();
            coming.extend(&question.blocks[found..]);
            question.prompt_tokens - found * self.block_tokens
        };
        questions.iter().map(compute).collect()
    }

    /// Sets all counters to zero and empties the cache, but for the blocks of running requests.
    pub(crate) fn reset(&self) {
        self.clear_cache();
        let mut inner = self.lock();
        let running = inner.counts.running;
        inner.counts = Counts {
            running,
            peak_running: running,
            ..Counts::default()
        };
    }

    /// Empties the cache, but for the blocks of running requests.
    pub(crate) fn clear_cache(&self) {
        let mut inner = self.lock();
        inner.cache.clear();
        self.announce(&mut inner);
    }

    /// Announces every block in the cache as stored once more.
    pub(crate) fn announce_again(&self) {
        let mut inner = self.lock();
        self.announce(&mut inner);
        let blocks = inner.cache.blocks();
        let events: Vec<_> = blocks.into_iter().map(CacheEvent::Stored).collect();
        self.publish(&events);
    }

    /// Announces what happened to the cache, as one step.
    fn announce(&self, inner: &mut Inner) {
        self.publish(&inner.cache.take_events());
    }

    fn publish(&self, events: &[CacheEvent]) {
        if let Some(publisher) = &self.publisher
            && !events.is_empty()
        {
            publisher.publish(events);
        }
    }

    /// Admits from the head of the queue while that is possible. `now` may lie a little in the
    /// past: a prefill that waited for another starts when that one ended, not when its timer fired.
    fn admit_all(self: &Arc<Self>, now: Instant) {
        loop {
            // The lock must be free when a request that nobody awaits any more is dropped.
            let Some((running, admit)) = self.admit_one(now) else {
                return;
            };
            drop(admit.send(running));
        }
    }

    fn admit_one(self: &Arc<Self>, now: Instant) -> Option<(Running, oneshot::Sender<Running>)> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        if inner.counts.running >= self.max_batch || inner.prefilling {
            return None;
        }
        let job = &inner.waiting.front()?.job;
        let findable = findable_blocks(job.prompt_tokens, self.block_tokens);
        let prefix = &job.prompt_blocks[..findable.min(job.prompt_blocks.len())];
        let total = (job.prompt_tokens + job.answer_tokens).div_ceil(self.block_tokens);
        let lease = inner.cache.lease(prefix, total)?;
        let Waiter { job, admit, .. } = inner.waiting.pop_front()?;

        let cached_tokens = lease.named() * self.block_tokens;
        inner.prefilling = true;
        let counts = &mut inner.counts;
        counts.running += 1;
        counts.peak_running = counts.peak_running.max(counts.running);
        counts.queried_tokens += as_u64(job.prompt_tokens);
        counts.hit_tokens += as_u64(cached_tokens);
        counts.prompt_tokens += as_u64(job.prompt_tokens);
        let running = Running {
            scheduler: Arc::clone(self),
            job,
            lease,
            cached_tokens,
            clock: now.max(inner.free_at),
            prefilling: true,
            finish: None,
        };
        Some((running, admit))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue.
#[derive(Debug)]
pub(crate) struct Ticket {
    scheduler: Arc<Scheduler>,
    id: u64,
    admitted: oneshot::Receiver<Running>,
}

impl Ticket {
    /// Waits until the request runs. `None` if the scheduler is gone.
    pub(crate) async fn admitted(mut self) -> Option<Running> {
        (&mut self.admitted).await.ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let left = {
            let mut inner = self.scheduler.lock();
            let place = inner.waiting.iter().position(|waiter| waiter.id == self.id);
            if place.is_some() {
                inner.counts.finished.abort += 1;
            }
            place.and_then(|place| inner.waiting.remove(place))
        };
        if left.is_some() {
            self.scheduler.admit_all(Instant::now());
        }
    }
}

/// A running request.
#[derive(Debug)]
pub(crate) struct Running {
    scheduler: Arc<Scheduler>,
    job: Job,
    lease: Lease,
    cached_tokens: usize,
    /// When the step that is under way began, or the last one ended.
    clock: Instant,
    prefilling: bool,
    finish: Option<Finish>,
}

impl Running {
    /// Prompt tokens that were found in the cache.
    pub(crate) fn cached_tokens(&self) -> usize {
        self.cached_tokens
    }

    /// Computes the prompt. The answer's first token is there when this returns.
    pub(crate) async fn prefill(&mut self) {
        let mut done = self.cached_tokens;
        while done < self.job.prompt_tokens {
            let step = STEP_TOKENS.min(self.job.prompt_tokens - done);
            done += step;
            self.clock += seconds(as_f64(step) * self.scheduler.seconds_per_token);
            self.scheduler.lock().free_at = self.clock;
            sleep_until(self.clock).await;

            let computed = done / self.scheduler.block_tokens;
            let mut inner = self.scheduler.lock();
            let computed = computed.min(self.job.prompt_blocks.len());
            for block in &self.job.prompt_blocks[self.lease.named().min(computed)..computed] {
                inner.cache.publish(&mut self.lease, block);
            }
            self.scheduler.announce(&mut inner);
        }
        self.prefilling = false;
        self.scheduler.lock().prefilling = false;
        self.scheduler.admit_all(self.clock);
    }

    /// Computes the answer's next token, after `pace`. `before` is the token before it, which this
    /// step reads and which may fill a block.
    pub(crate) async fn decode(&mut self, before: TokenId, pace: Duration) {
        self.clock += pace;
        sleep_until(self.clock).await;
        if let Some(block) = self.job.chain.push(before) {
            let mut inner = self.scheduler.lock();
            inner.cache.publish(&mut self.lease, &block);
            self.scheduler.announce(&mut inner);
        }
    }

    /// Counts a token that goes to the client.
    pub(crate) fn generated(&self) {
        self.scheduler.lock().counts.generation_tokens += 1;
    }

    /// Ends the request as one that was answered in full.
    pub(crate) fn finish(mut self, finish: Finish) {
        self.finish = Some(finish);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        {
            let mut inner = self.scheduler.lock();
            inner.cache.release(&mut self.lease);
            // What was evicted for a request that leaves before its first step.
            self.scheduler.announce(&mut inner);
            inner.prefilling &= !self.prefilling;
            inner.counts.running -= 1;
            let finished = &mut inner.counts.finished;
            match self.finish {
                Some(Finish::Stop) => finished.stop += 1,
                Some(Finish::Length) => finished.length += 1,
                None => finished.abort += 1,
            }
        }
        self.scheduler.admit_all(Instant::now());
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn as_f64(tokens: usize) -> f64 {
    f64::from(u32::try_from(tokens).unwrap_or(u32::MAX))
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
