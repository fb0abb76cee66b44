//! The stream against the dumbest engine: a list of batches, of which links lose what they like.

use super::super::{Request, Stream};
use super::{Batch, CLEARED, Log, MALFORMED, PLAIN, settings};
use crate::config::OnGap;
use crate::time::Millis;
use proptest::prelude::*;
use std::collections::VecDeque;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[derive(Clone, Copy, Debug)]
enum Op {
    Publish(u8),
    /// The old engine's last words are still under way.
    Restart,
    Connect,
    Cut,
    /// Nothing comes any more, and nobody notices.
    Deafen,
    Deliver,
    DeliverTwice,
    Lose,
    Corrupt,
    /// The replay socket answers what it was asked, all but some in the middle.
    Serve {
        skip_at: usize,
        skip: usize,
        ends: bool,
    },
    Receive(usize),
    BreakReplay,
    Wait(u64),
}

enum Answer {
    Batch(Batch),
    End,
}

struct World {
    stream: Stream<Vec<u8>>,
    log: Log,
    has_replay: bool,
    on_gap: OnGap,
    now: Millis,
    epoch: u8,
    engine: Vec<Batch>,
    depth: usize,
    link: Option<VecDeque<Batch>>,
    link_lives: bool,
    served: Option<(Request, VecDeque<Answer>)>,
    connections_wanted: u64,
}

impl World {
    fn new(has_replay: bool, on_gap: OnGap, depth: usize) -> Self {
        Self {
            stream: Stream::new(settings(has_replay, on_gap)),
            log: Log::default(),
            has_replay,
            on_gap,
            now: Millis(1_000_000),
            epoch: 0,
            engine: Vec::new(),
            depth,
            link: None,
            link_lives: false,
            served: None,
            connections_wanted: 0,
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Publish(kind) => {
                let batch = Batch {
                    epoch: self.epoch,
                    seq: self.engine.len() as u64,
                    kind,
                };
                self.engine.push(batch.clone());
                if let Some(link) = self.link.as_mut().filter(|_| self.link_lives) {
                    link.push_back(batch);
                }
            }
            Op::Restart => {
                self.epoch += 1;
                self.engine.clear();
                self.link_lives = false;
                self.step(Op::BreakReplay);
            }
            Op::Connect => {
                if self.link.is_none() {
                    self.link = Some(VecDeque::new());
                    self.link_lives = true;
                    self.stream.connected(self.now, &mut self.log);
                }
            }
            Op::Cut => self.link = None,
            Op::Deafen => self.link_lives = false,
            Op::Deliver => self.deliver(false, false),
            Op::DeliverTwice => self.deliver(true, false),
            Op::Corrupt => self.deliver(false, true),
            Op::Lose => {
                self.link.as_mut().and_then(VecDeque::pop_front);
            }
            Op::Serve {
                skip_at,
                skip,
                ends,
            } => self.serve(skip_at, skip, ends),
            Op::Receive(count) => (0..count).for_each(|_| self.receive()),
            Op::BreakReplay => {
                self.served = None;
                if self.stream.request().is_some() {
                    self.stream.replay_failed(self.now, &mut self.log);
                }
            }
            Op::Wait(millis) => {
                self.now = self.now.plus(millis);
                self.stream.tick(self.now, &mut self.log);
            }
        }
        // What whoever holds the sockets has to do.
        if self.stream.connections_wanted() != self.connections_wanted {
            self.connections_wanted = self.stream.connections_wanted();
            self.link = None;
        }
        let request = self.stream.request();
        self.served.take_if(|(served, _)| Some(*served) != request);
    }

    fn deliver(&mut self, twice: bool, corrupt: bool) {
        let Some(batch) = self.link.as_mut().and_then(VecDeque::pop_front) else {
            return;
        };
        let mut sent = batch.clone();
        if corrupt {
            sent.kind = MALFORMED;
        }
        self.stream
            .published(sent.seq, sent.bytes(), self.now, &mut self.log);
        let lives = self.stream.connections_wanted() == self.connections_wanted;
        if let Some(link) = self.link.as_mut().filter(|_| twice && lives) {
            link.push_front(batch);
        }
    }

    fn serve(&mut self, skip_at: usize, skip: usize, ends: bool) {
        let Some(request) = self.stream.request() else {
            return;
        };
        let kept = self.engine.len().saturating_sub(self.depth);
        let from = usize::try_from(request.from).unwrap();
        let answers = self.engine.iter().skip(kept.max(from)).enumerate();
        let answers = answers
            .filter(|&(index, _)| index < skip_at || index >= skip_at + skip)
            .map(|(_, batch)| Answer::Batch(batch.clone()))
            .chain(ends.then_some(Answer::End));
        self.served = Some((request, answers.collect()));
    }

    fn receive(&mut self) {
        let Some((request, answers)) = &mut self.served else {
            return;
        };
        if self.stream.request() != Some(*request) {
            return;
        }
        match answers.pop_front() {
            Some(Answer::Batch(batch)) => {
                self.stream
                    .replayed(batch.seq, &batch.bytes(), self.now, &mut self.log);
            }
            Some(Answer::End) => self.stream.replay_ended(self.now, &mut self.log),
            None => {}
        }
    }

    /// What is taken in is one engine's, each batch once and in order, from a clean start on.
    fn check(&self) -> Result<(), TestCaseError> {
        let Some(first) = self.log.batches.first().filter(|_| self.stream.trusted()) else {
            return Ok(());
        };
        for (batch, seq) in self.log.batches.iter().zip(first.seq..) {
            prop_assert_eq!((batch.epoch, batch.seq), (first.epoch, seq));
        }
        let clean = first.seq == 0 || first.kind == CLEARED;
        prop_assert!(clean || self.on_gap == OnGap::Rebuild);
        Ok(())
    }

    /// Nothing goes wrong any more.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        // Room for what is published between two looks at it.
        self.depth = self.depth.max(4);
        self.step(Op::Cut);
        for round in 0..12 {
            self.step(Op::Connect);
            if round == 8 {
                self.step(Op::Publish(CLEARED));
                self.step(Op::Publish(PLAIN));
            }
            (0..1_000).for_each(|_| self.step(Op::Deliver));
            self.step(Op::Serve {
                skip_at: 0,
                skip: 0,
                ends: true,
            });
            self.step(Op::Receive(1_000));
            self.check()?;
            self.step(Op::Wait(31_000));
        }
        self.step(Op::Serve {
            skip_at: 0,
            skip: 0,
            ends: true,
        });
        self.step(Op::Receive(1_000));
        prop_assert!(self.stream.trusted());
        prop_assert_eq!(self.log.batches.last(), self.engine.last());
        if self.has_replay {
            prop_assert_eq!(self.stream.fresh_at(), Some(self.now));
        }
        Ok(())
    }
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => Just(Op::Publish(PLAIN)),
        1 => Just(Op::Publish(CLEARED)),
        1 => Just(Op::Publish(MALFORMED)),
        1 => Just(Op::Restart),
        3 => Just(Op::Connect),
        1 => Just(Op::Cut),
        1 => Just(Op::Deafen),
        12 => Just(Op::Deliver),
        1 => Just(Op::DeliverTwice),
        1 => Just(Op::Lose),
        1 => Just(Op::Corrupt),
        6 => Just(Op::Serve { skip_at: 0, skip: 0, ends: true }),
        1 => (0_usize..9, 1_usize..4, any::<bool>())
            .prop_map(|(skip_at, skip, ends)| Op::Serve { skip_at, skip, ends }),
        8 => (1_usize..20).prop_map(Op::Receive),
        1 => Just(Op::BreakReplay),
        2 => prop_oneof![Just(10_u64), Just(1_000), Just(6_000), Just(31_000)].prop_map(Op::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_trusted_stream_knows_one_engines_whole_history(
        has_replay: bool,
        rebuild: bool,
        depth in prop_oneof![1_usize..12, Just(10_000)],
        ops in prop::collection::vec(op(), 0..200),
    ) {
        let on_gap = if rebuild { OnGap::Rebuild } else { OnGap::Clear };
        let mut world = World::new(has_replay, on_gap, depth);
        for op in ops {
            world.step(op);
            world.check()?;
        }
        world.settle()?;
    }
}
