use super::super::held::{MAX_HELD, MAX_HELD_BYTES};
use super::super::{REPLAY_TIMEOUT_MILLIS, Stream};
use super::{Batch, CLEARED, Log, MALFORMED, PLAIN, settings};
use crate::config::OnGap;
use crate::time::Millis;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// A stream, what it has taken in, and a clock.
struct Case {
    stream: Stream<Vec<u8>>,
    log: Log,
    now: Millis,
}

impl Case {
    fn new(has_replay: bool, on_gap: OnGap) -> Self {
        let mut case = Self {
            stream: Stream::new(settings(has_replay, on_gap)),
            log: Log::default(),
            now: Millis(1_000_000),
        };
        case.connect();
        case
    }

    /// One whose engine has published batches 0 to `count` - 1, all of which are known.
    fn following(count: u64) -> Self {
        let mut case = Self::new(true, OnGap::Clear);
        case.answer(0, 0..count);
        case.end();
        assert!(case.stream.trusted());
        case
    }

    fn connect(&mut self) {
        self.stream.connected(self.now, &mut self.log);
    }

    fn publish(&mut self, epoch: u8, seqs: impl IntoIterator<Item = u64>) {
        for seq in seqs {
            self.publish_one(epoch, seq, PLAIN);
        }
    }

    fn publish_one(&mut self, epoch: u8, seq: u64, kind: u8) {
        let batch = Batch { epoch, seq, kind }.bytes();
        self.stream.published(seq, batch, self.now, &mut self.log);
    }

    fn answer(&mut self, epoch: u8, seqs: impl IntoIterator<Item = u64>) {
        for seq in seqs {
            let kind = PLAIN;
            let batch = Batch { epoch, seq, kind }.bytes();
            self.stream.replayed(seq, &batch, self.now, &mut self.log);
        }
    }

    fn end(&mut self) {
        self.stream.replay_ended(self.now, &mut self.log);
    }

    fn fail(&mut self) {
        self.stream.replay_failed(self.now, &mut self.log);
    }

    fn wait(&mut self, millis: u64) {
        self.now = self.now.plus(millis);
        self.stream.tick(self.now, &mut self.log);
    }

    fn asked(&self) -> Option<u64> {
        self.stream.request().map(|request| request.from)
    }

    fn knows(&self, epoch: u8, seqs: impl IntoIterator<Item = u64>) {
        let known: Vec<_> = self.log.batches.iter().map(|b| (b.epoch, b.seq)).collect();
        let wanted: Vec<_> = seqs.into_iter().map(|seq| (epoch, seq)).collect();
        assert_eq!(known, wanted);
    }
}

#[test]
fn the_history_comes_first_and_what_is_published_meanwhile_after_it() {
    let mut case = Case::new(true, OnGap::Clear);
    assert_eq!(case.asked(), Some(0));
    case.publish(0, 3..6);
    case.answer(0, 0..4);
    assert!(!case.stream.trusted());
    assert_eq!(case.stream.fresh_at(), None);
    case.end();
    assert!(case.stream.trusted());
    assert_eq!(case.stream.fresh_at(), Some(case.now));
    case.knows(0, 0..6);
    case.publish(0, 6..8);
    case.knows(0, 0..8);
}

#[test]
fn an_engine_that_has_published_nothing_is_known() {
    let mut case = Case::new(true, OnGap::Clear);
    case.end();
    assert!(case.stream.trusted());
    case.publish(0, 0..2);
    case.knows(0, 0..2);
}

#[test]
fn without_a_replay_the_first_batch_of_all_is_a_clean_start_and_a_later_one_is_none() {
    let mut case = Case::new(false, OnGap::Clear);
    case.publish(0, 0..3);
    assert!(case.stream.trusted());
    let mut case = Case::new(false, OnGap::Clear);
    case.publish(0, 1..3);
    assert!(!case.stream.trusted());
    case.knows(0, []);
    case.publish_one(0, 3, CLEARED);
    assert!(case.stream.trusted());
    case.publish(0, [4]);
    case.knows(0, 3..5);
}

#[test]
fn a_history_without_its_beginning_is_not_trusted_and_not_asked_for_again() {
    let mut case = Case::new(true, OnGap::Clear);
    case.answer(0, 5..8);
    case.end();
    assert!(!case.stream.trusted());
    case.publish(0, 8..9);
    case.wait(9_000);
    assert_eq!(case.asked(), None);
    case.publish_one(0, 9, CLEARED);
    assert!(case.stream.trusted());
}

#[test]
fn a_gap_is_closed_by_the_replay_and_nothing_is_lost() {
    let mut case = Case::following(3);
    case.publish(0, [5]);
    assert_eq!(case.asked(), Some(2));
    case.publish(0, [6]);
    case.answer(0, 2..6);
    case.end();
    case.knows(0, 0..7);
    assert!(case.stream.trusted());
    assert_eq!(case.log.clears, 1, "none but the first");
}

#[test]
fn while_a_gap_is_open_the_stream_is_trusted_but_gets_no_fresher() {
    let mut case = Case::following(3);
    let fresh_at = case.stream.fresh_at();
    case.wait(100);
    case.publish(0, 5..7);
    assert!(case.stream.trusted());
    assert_eq!(case.stream.fresh_at(), fresh_at);
}

#[test]
fn a_gap_that_cannot_be_closed_clears_the_index() {
    for (on_gap, trusted, known) in [(OnGap::Clear, false, 0..0), (OnGap::Rebuild, true, 9..11)] {
        let mut case = Case::new(false, on_gap);
        case.publish(0, 0..3);
        case.publish(0, 9..11);
        assert_eq!(case.stream.trusted(), trusted, "{on_gap:?}");
        case.knows(0, known);
        let mut case = Case::new(true, on_gap);
        case.answer(0, 0..3);
        case.end();
        case.publish(0, [9]);
        case.answer(0, 7..10);
        assert_eq!(case.stream.connections_wanted(), 1);
        case.connect();
        case.answer(0, 7..10);
        case.end();
        assert_eq!(case.stream.trusted(), trusted, "{on_gap:?}");
        case.knows(0, if trusted { 7..10 } else { 0..0 });
        let mut case = Case::new(true, on_gap);
        case.answer(0, 0..3);
        case.end();
        case.publish(0, [9]);
        case.wait(REPLAY_TIMEOUT_MILLIS);
        assert_eq!(case.stream.trusted(), trusted, "{on_gap:?}");
    }
}

#[test]
fn a_replay_that_failed_is_asked_again_after_a_pause_and_brings_trust_back() {
    let mut case = Case::following(3);
    case.publish(0, [5]);
    case.fail();
    assert!(!case.stream.trusted());
    case.publish(0, [7]);
    assert_eq!(case.asked(), None, "not at once");
    case.wait(1_000);
    assert_eq!(case.stream.connections_wanted(), 1);
    case.connect();
    assert_eq!(case.asked(), Some(0));
    case.fail();
    case.wait(3_000);
    assert_eq!(case.stream.connections_wanted(), 1, "the pause has grown");
    case.wait(5_000);
    assert_eq!(case.stream.connections_wanted(), 2);
    case.connect();
    case.answer(0, 0..8);
    case.end();
    assert!(case.stream.trusted());
    case.knows(0, 0..8);
}

#[test]
fn a_replay_that_loses_its_middle_is_asked_for_the_rest() {
    let mut case = Case::new(true, OnGap::Clear);
    case.answer(0, 0..100);
    case.answer(0, 200..300);
    case.end();
    assert_eq!(case.asked(), Some(99));
    case.answer(0, 99..300);
    // The end is lost, too.
    case.wait(REPLAY_TIMEOUT_MILLIS);
    assert_eq!(case.asked(), Some(299));
    assert!(!case.stream.trusted());
    case.answer(0, [299]);
    case.end();
    assert!(case.stream.trusted());
    case.knows(0, 0..300);
}

#[test]
fn what_was_lost_between_two_connections_is_asked_for() {
    let mut case = Case::following(3);
    case.connect();
    assert_eq!(case.asked(), Some(2));
    case.answer(0, 2..6);
    case.end();
    case.knows(0, 0..6);
}

#[test]
fn without_a_replay_another_connection_loses_the_index() {
    let mut case = Case::new(false, OnGap::Clear);
    case.publish(0, 0..3);
    case.connect();
    assert!(!case.stream.trusted());
    case.knows(0, []);
    case.publish(0, [3]);
    assert!(!case.stream.trusted());
    case.connect();
    case.publish(1, 0..2);
    assert!(case.stream.trusted());
    case.knows(1, 0..2);
}

#[test]
fn a_restart_is_a_clean_start() {
    // The new engine has published less than the old one, or more.
    for published in [0_u64, 2, 9] {
        let mut case = Case::following(5);
        case.connect();
        case.answer(1, 4..published.max(4));
        if published <= 4 {
            case.end();
        }
        assert_eq!(case.stream.connections_wanted(), 1, "{published}");
        assert!(!case.stream.trusted());
        case.connect();
        assert_eq!(case.asked(), Some(0));
        case.answer(1, 0..published);
        case.end();
        assert!(case.stream.trusted());
        case.knows(1, 0..published);
    }
}

#[test]
fn a_lower_sequence_is_a_restart_and_one_that_has_come_before_is_not() {
    let mut case = Case::following(5);
    case.publish(0, [3, 4, 1]);
    case.publish(0, [5]);
    case.knows(0, 0..6);
    assert_eq!(case.stream.counts().restarts, 0);
    case.publish(1, 0..2);
    assert!(case.stream.trusted());
    case.knows(1, 0..2);
    assert_eq!(case.stream.counts().restarts, 1);
}

#[test]
fn silence_is_broken_by_a_proof_of_life() {
    let mut case = Case::following(3);
    let fresh_at = case.now;
    case.wait(9_999);
    assert_eq!(case.asked(), None);
    case.wait(1);
    assert_eq!(case.asked(), Some(2));
    assert_eq!(case.stream.fresh_at(), Some(fresh_at));
    case.answer(0, [2]);
    case.end();
    assert_eq!(case.stream.fresh_at(), Some(case.now));
    assert_eq!(case.stream.due_at(), Some(case.now.plus(10_000)));
}

#[test]
fn without_proof_of_life_the_stream_gets_stale_and_keeps_what_it_has() {
    let mut case = Case::following(3);
    let fresh_at = case.now;
    for _ in 0..100 {
        case.wait(1_000);
    }
    assert_eq!(case.stream.fresh_at(), Some(fresh_at));
    assert!(case.stream.trusted());
    case.knows(0, 0..3);
}

#[test]
fn a_connection_over_which_nothing_came_though_there_was_something_is_given_up() {
    let mut case = Case::following(3);
    case.wait(10_000);
    case.answer(0, 2..5);
    case.end();
    case.knows(0, 0..5);
    assert_eq!(case.stream.connections_wanted(), 1);
}

#[test]
fn an_idle_engine_that_has_restarted_is_found() {
    let mut case = Case::following(3);
    case.wait(10_000);
    case.end();
    assert!(!case.stream.trusted());
    case.knows(0, []);
    assert_eq!(case.stream.counts().restarts, 1);
}

#[test]
fn a_batch_that_cannot_be_read_is_asked_for_once() {
    let mut case = Case::following(3);
    case.publish_one(0, 3, MALFORMED);
    assert_eq!(case.asked(), Some(2));
    case.answer(0, 2..4);
    case.end();
    assert!(case.stream.trusted());
    case.knows(0, 0..4);

    case.publish_one(0, 4, MALFORMED);
    let batch = Batch {
        epoch: 0,
        seq: 4,
        kind: MALFORMED,
    };
    case.answer(0, [3]);
    case.stream
        .replayed(4, &batch.bytes(), case.now, &mut case.log);
    case.end();
    assert!(!case.stream.trusted());
    assert_eq!(case.asked(), None);
    case.publish(0, [5]);
    case.knows(0, []);
}

#[test]
fn what_finds_no_room_while_a_replay_runs_is_asked_for_again() {
    let mut case = Case::new(true, OnGap::Clear);
    let count = MAX_HELD as u64;
    case.publish(0, 0..count + 5);
    assert_eq!(case.stream.counts().overflows, 5);
    case.answer(0, 0..3);
    case.end();
    assert_eq!(case.asked(), Some(count - 1));
    case.answer(0, count - 1..count + 5);
    case.end();
    assert!(case.stream.trusted());
    case.knows(0, 0..count + 5);
}

#[test]
fn held_publications_are_bounded_in_bytes() {
    let mut case = Case::new(true, OnGap::Clear);
    let half = vec![0; MAX_HELD_BYTES / 2];
    for seq in 0..2 {
        case.stream
            .published(seq, half.clone(), case.now, &mut case.log);
    }
    assert_eq!(case.stream.counts().overflows, 0);
    case.publish(0, [2]);
    assert_eq!(case.stream.counts().overflows, 1);
}

#[test]
fn an_answer_that_nobody_waits_for_changes_nothing() {
    let mut case = Case::following(3);
    case.answer(1, 0..9);
    case.end();
    case.fail();
    assert!(case.stream.trusted());
    case.knows(0, 0..3);
}
