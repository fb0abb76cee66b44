//! The sequence of one rank's publications, and the last of them for replays.
//!
//! Invariant: publications are numbered, kept and handed to the socket in the order in which they
//! were made, under one lock that is never held across a wait.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::mpsc;
use zeromq::ZmqMessage;

use super::payload::{self, Form};
use super::{KvEvents, KvFault, KvReplayForm};
use crate::prefix_cache::CacheEvent;

/// Publications that a replay can have, as vLLM keeps them by default.
const KEPT: usize = 10_000;
/// Publications that wait for the socket's task; more are dropped, as a socket drops them.
const QUEUED: usize = 10_000;
/// What stands for the sequence at the end of a replay.
const END_OF_REPLAY: [u8; 8] = [0xff; 8];

/// What the task of the publishing socket does next.
#[derive(Debug)]
pub(crate) enum Command {
    Publish(ZmqMessage),
    Down,
    Up,
}

/// One rank's publications.
#[derive(Debug)]
pub(crate) struct Publisher {
    config: KvEvents,
    rank: usize,
    commands: mpsc::Sender<Command>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    kept: VecDeque<Publication>,
    to_drop: u64,
    to_lose: u64,
    replay_silent: bool,
}

#[derive(Debug, Clone)]
struct Publication {
    sequence: u64,
    payload: Bytes,
}

impl Publisher {
    /// A publisher that has published nothing, and what its socket is to do.
    pub(crate) fn new(config: KvEvents, rank: usize) -> (Self, mpsc::Receiver<Command>) {
        let (commands, received) = mpsc::channel(QUEUED);
        let publisher = Self {
            config,
            rank,
            commands,
            state: Mutex::default(),
        };
        (publisher, received)
    }

    /// Publishes what happened in one step.
    pub(crate) fn publish(&self, events: &[CacheEvent]) {
        let form = Form {
            encoding: self.config.encoding,
            hashes: self.config.hashes,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let timestamp = now.unwrap_or_default().as_secs_f64();
        // Numbers, text and lists of them: nothing here that cannot be written.
        let Ok(payload) = payload::payload(form, timestamp, events, self.rank) else {
            return;
        };
        let mut state = self.lock();
        let publication = Publication {
            sequence: state.next,
            payload: payload.into(),
        };
        state.next += 1;
        if state.to_lose > 0 {
            state.to_lose -= 1;
            return;
        }
        if state.kept.len() >= KEPT {
            state.kept.pop_front();
        }
        state.kept.push_back(publication.clone());
        if state.to_drop > 0 {
            state.to_drop -= 1;
            return;
        }
        let mut message = ZmqMessage::from(self.topic());
        message.push_back(sequence_frame(publication.sequence));
        message.push_back(publication.payload);
        // With nobody to take it, it is lost to subscribers and kept for replays.
        drop(self.commands.try_send(Command::Publish(message)));
    }

    /// The answers to a request for a replay, without the asker's identity. None if the request
    /// cannot be read, or for a silent socket.
    pub(crate) fn replay(&self, request: &[Bytes]) -> Vec<ZmqMessage> {
        let [delimiter, start] = request else {
            return Vec::new();
        };
        let Ok(start) = <[u8; 8]>::try_from(start.as_ref()) else {
            return Vec::new();
        };
        let state = self.lock();
        if !delimiter.is_empty() || state.replay_silent {
            return Vec::new();
        }
        let start = u64::from_be_bytes(start);
        let kept = state.kept.iter().filter(|kept| kept.sequence >= start);
        let answers = kept.map(|kept| {
            let sequence = sequence_frame(kept.sequence);
            self.answer(self.topic(), sequence, kept.payload.clone())
        });
        let end = self.answer(
            Bytes::new(),
            Bytes::from_static(&END_OF_REPLAY),
            Bytes::new(),
        );
        answers.chain([end]).collect()
    }

    /// Does what a fault says. [`KvFault::PublishAgain`] is the scheduler's, who knows the cache.
    pub(crate) fn strike(&self, fault: KvFault) {
        let mut state = self.lock();
        match fault {
            KvFault::Drop(n) => state.to_drop = n,
            KvFault::Lose(n) => state.to_lose = n,
            KvFault::ReplaySilent => state.replay_silent = true,
            KvFault::ReplayAnswers => state.replay_silent = false,
            KvFault::Down => drop(self.commands.try_send(Command::Down)),
            KvFault::Up => drop(self.commands.try_send(Command::Up)),
            KvFault::PublishAgain => {}
        }
    }

    fn answer(&self, topic: Bytes, sequence: Bytes, payload: Bytes) -> ZmqMessage {
        let mut message = ZmqMessage::from(Bytes::new());
        if self.config.replay_form == KvReplayForm::Topic {
            message.push_back(topic);
        }
        message.push_back(sequence);
        message.push_back(payload);
        message
    }

    fn topic(&self) -> Bytes {
        Bytes::copy_from_slice(self.config.topic.as_bytes())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sequence_frame(sequence: u64) -> Bytes {
    Bytes::copy_from_slice(&sequence.to_be_bytes())
}
