//! Workloads that are made up: arrivals are Poisson's, lengths are even over a range.

use super::{Kind, Message, Play, Request, Workload};
use fastrand::Rng;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Tokens of answers.
const ANSWER: RangeInclusive<usize> = 16..=64;

/// A generated workload. There is nothing in one of a trace.
pub(crate) fn generate(kind: Kind, play: &Play) -> Workload {
    let rng = &mut Rng::with_seed(play.seed);
    let mut requests = match kind {
        Kind::SharedPrefix => shared_prefix(play, rng),
        Kind::MultiTurn => multi_turn(play, rng),
        Kind::HotPrefix => hot_prefix(play, rng),
        Kind::Trace => Vec::new(),
    };
    requests.sort_by_key(|request| request.at);
    let name = kind.name();
    Workload { name, requests }
}

/// Sixteen groups for each engine. The most popular of 64 is asked seven times as often as the
/// average one.
fn shared_prefix(play: &Play, rng: &mut Rng) -> Vec<Request> {
    const GROUPS: usize = 16;
    const PREFIX: usize = 2_000;
    const QUESTION: RangeInclusive<usize> = 100..=300;
    let groups: Vec<u64> = (0..play.engines * GROUPS).map(|_| rng.u64(..)).collect();
    let popularity = Skew::new(groups.len(), 0.8);
    let of_group = |at, rng: &mut Rng| {
        let prefix = groups.get(popularity.draw(rng)).copied().unwrap_or(0);
        let messages = vec![
            Message::new("system", prefix, PREFIX),
            Message::new("user", rng.u64(..), rng.usize(QUESTION)),
        ];
        alone(at, messages, rng)
    };
    arrivals(play.requests_per_sec, play.duration, rng, of_group)
}

/// Four to eight turns each. Conversations are under way when the play begins, and when it ends.
fn multi_turn(play: &Play, rng: &mut Rng) -> Vec<Request> {
    const SYSTEMS: usize = 4;
    const SYSTEM: usize = 500;
    const QUESTION: RangeInclusive<usize> = 150..=450;
    const TURNS: RangeInclusive<u32> = 4..=8;
    const AVERAGE_TURNS: f64 = 6.0;
    const THINK_SECS: f64 = 3.0;
    let systems: Vec<u64> = (0..SYSTEMS).map(|_| rng.u64(..)).collect();
    let before = Duration::from_secs_f64(THINK_SECS * 2.0 * AVERAGE_TURNS);
    let rate = play.requests_per_sec / AVERAGE_TURNS;
    let conversation = |start: Duration, rng: &mut Rng| {
        let system = rng.choice(&systems).copied().unwrap_or(0);
        let session = rng.u64(..);
        let mut messages = vec![Message::new("system", system, SYSTEM)];
        let mut at = start;
        let mut turns = Vec::new();
        for _ in 0..rng.u32(TURNS) {
            messages.push(Message::new("user", rng.u64(..), rng.usize(QUESTION)));
            let turn = alone(at, messages.clone(), rng);
            messages.push(Message::new("assistant", rng.u64(..), turn.answer_tokens));
            at += Duration::from_secs_f64(exponential(THINK_SECS, rng));
            turns.push(Request {
                session: Some(session),
                ..turn
            });
        }
        turns
    };
    let conversations = arrivals(rate, before + play.duration, rng, conversation);
    let turns = conversations.into_iter().flatten();
    let during = turns.filter_map(|turn| {
        let at = turn.at.checked_sub(before)?;
        (at < play.duration).then_some(Request { at, ..turn })
    });
    during.collect()
}

/// Nine in ten have the same head.
fn hot_prefix(play: &Play, rng: &mut Rng) -> Vec<Request> {
    const PREFIX: usize = 4_000;
    const QUESTION: RangeInclusive<usize> = 200..=600;
    const OTHER: RangeInclusive<usize> = 500..=2_500;
    let hot = rng.u64(..);
    let ask = |at, rng: &mut Rng| {
        let messages = if rng.u32(..10) > 0 {
            vec![
                Message::new("system", hot, PREFIX),
                Message::new("user", rng.u64(..), rng.usize(QUESTION)),
            ]
        } else {
            vec![Message::new("user", rng.u64(..), rng.usize(OTHER))]
        };
        alone(at, messages, rng)
    };
    arrivals(play.requests_per_sec, play.duration, rng, ask)
}

fn alone(at: Duration, messages: Vec<Message>, rng: &mut Rng) -> Request {
    Request {
        at,
        messages,
        session: None,
        answer_tokens: rng.usize(ANSWER),
    }
}

/// One of something for each arrival.
fn arrivals<T>(
    rate: f64,
    duration: Duration,
    rng: &mut Rng,
    mut one: impl FnMut(Duration, &mut Rng) -> T,
) -> Vec<T> {
    let mut all = Vec::new();
    let mut at = exponential(rate.recip(), rng);
    while at < duration.as_secs_f64() {
        all.push(one(Duration::from_secs_f64(at), rng));
        at += exponential(rate.recip(), rng);
    }
    all
}

/// A time that is this on average, and forgets how long it has been.
fn exponential(mean: f64, rng: &mut Rng) -> f64 {
    -mean * (1.0 - rng.f64()).ln()
}

/// Zipf's distribution: the n-th is drawn in proportion to one over n to a power.
struct Skew(Vec<f64>);

impl Skew {
    fn new(count: usize, power: f64) -> Self {
        let ranks = std::iter::successors(Some(1.0_f64), |rank| Some(rank + 1.0));
        let sums = ranks.take(count).scan(0.0, |sum, rank| {
            *sum += rank.powf(-power);
            Some(*sum)
        });
        Self(sums.collect())
    }

    fn draw(&self, rng: &mut Rng) -> usize {
        let all = self.0.last().copied().unwrap_or(0.0);
        let point = rng.f64() * all;
        self.0.partition_point(|&sum| sum <= point)
    }
}
