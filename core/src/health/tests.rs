//! Cooldown, breaker, probe and forgetting, as several workers see them.

use super::*;
use crate::shared::simulated::{SimulatedHost, World};
use proptest::prelude::*;
use std::cell::Cell;
use std::sync::Arc;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const NOW: Millis = Millis(1_800_000_000_000);

/// One worker's view of one target.
struct Worker {
    host: SimulatedHost,
    changes: Changes<SimulatedHost>,
    health: Health<SimulatedHost>,
    /// Whether other requests are under way at the target.
    others: Cell<bool>,
}

impl Worker {
    fn new(world: &Arc<World>) -> Self {
        let host = SimulatedHost::new(world);
        Self {
            changes: Changes::new(&host),
            health: Health::new(&host, "a"),
            others: Cell::new(false),
            host,
        }
    }

    fn state(&self, now: Millis) -> State {
        if self.changes.any(&self.host) {
            self.health.refresh(&self.host);
        }
        self.health.state(now)
    }

    fn learn(&self, outcome: Outcome, now: Millis) {
        let others = self.others.get();
        self.health
            .learn(&self.host, outcome, others, now, &self.changes);
    }

    fn admit(&self, now: Millis) -> bool {
        self.state(now);
        let admission = self.health.admit(&self.host, now, &self.changes);
        admission != Admission::Refused
    }

    fn give_up_probe(&self, now: Millis) {
        self.health.give_up_probe(&self.host, now, &self.changes);
    }

    fn forgotten(&self, now: Millis) -> Millis {
        self.state(now);
        self.health.forgotten()
    }
}

fn workers() -> [Worker; 2] {
    let world = World::new(0, false);
    [Worker::new(&world), Worker::new(&world)]
}

#[test]
fn a_target_is_ready_until_something_is_known_of_it() {
    let [worker, _] = workers();
    assert_eq!(worker.state(NOW), State::Ready);
    assert!(worker.admit(NOW));
    worker.learn(Outcome::Answered, NOW);
    assert!(!worker.changes.any(&worker.host), "an answer is no news");
}

#[test]
fn a_pause_that_a_target_asked_for_is_seen_by_all_workers_and_ends() {
    let [one, other] = workers();
    one.learn(Outcome::Busy(Some(3_000)), NOW);
    for worker in [&one, &other] {
        assert_eq!(worker.state(NOW.plus(2_999)), State::Cooling);
        assert!(!worker.admit(NOW.plus(2_999)));
        assert_eq!(worker.state(NOW.plus(3_000)), State::Ready);
    }
}

#[test]
fn another_target_in_the_place_of_one_begins_anew_for_all_workers() {
    let [one, other] = workers();
    one.learn(Outcome::Unreachable, NOW);
    assert_eq!(other.state(NOW), State::Open);
    let later = NOW.plus(500);
    one.health.begin_anew(&one.host, later, &one.changes);
    for worker in [&one, &other] {
        assert_eq!(worker.state(later), State::Ready);
        assert_eq!(worker.forgotten(later), later);
    }
    // Nor is it left alone for longer than any other when it fails.
    other.learn(Outcome::Unreachable, later);
    assert_eq!(one.state(later.plus(OPEN_MILLIS - 1)), State::Open);
    assert_eq!(one.state(later.plus(OPEN_MILLIS)), State::HalfOpen);
}

#[test]
fn a_pause_has_bounds_and_a_default() {
    for (asked, given) in [
        (Some(86_400_000), MAX_COOLDOWN_MILLIS),
        (Some(u64::MAX), MAX_COOLDOWN_MILLIS),
        (None, COOLDOWN_MILLIS),
        (Some(0), COOLDOWN_MILLIS),
    ] {
        let [worker, _] = workers();
        worker.learn(Outcome::Busy(asked), NOW);
        assert_eq!(worker.state(NOW.plus(given - 1)), State::Cooling);
        assert_eq!(worker.state(NOW.plus(given)), State::Ready);
    }
}

#[test]
fn a_shorter_pause_does_not_end_a_longer_one_nor_does_an_answer() {
    let [one, other] = workers();
    one.learn(Outcome::Busy(Some(10_000)), NOW);
    other.learn(Outcome::Busy(Some(1_000)), NOW);
    other.learn(Outcome::Answered, NOW);
    assert_eq!(one.state(NOW.plus(9_000)), State::Cooling);
}

#[test]
fn failures_in_a_row_open_the_breaker_whichever_workers_see_them() {
    let [one, other] = workers();
    for _ in 1..MAX_FAILURES {
        one.learn(Outcome::Failed, NOW);
        assert_eq!(other.state(NOW), State::Ready);
    }
    other.learn(Outcome::Failed, NOW);
    assert_eq!(one.state(NOW), State::Open);
    assert_eq!(other.state(NOW.plus(OPEN_MILLIS)), State::HalfOpen);
}

#[test]
fn an_answer_between_failures_begins_the_count_anew() {
    let [one, other] = workers();
    for _ in 0..10 {
        for _ in 1..MAX_FAILURES {
            one.learn(Outcome::Failed, NOW);
        }
        other.state(NOW);
        other.learn(Outcome::Answered, NOW);
    }
    assert_eq!(one.state(NOW), State::Ready);
}

#[test]
fn a_target_that_cannot_be_reached_is_left_alone_at_once() {
    let [one, other] = workers();
    one.learn(Outcome::Unreachable, NOW);
    assert_eq!(other.state(NOW), State::Open);
}

#[test]
fn one_probe_finds_out_for_all() {
    let [one, other] = workers();
    one.learn(Outcome::Unreachable, NOW);
    let later = NOW.plus(OPEN_MILLIS);
    assert!(other.admit(later));
    assert!(!one.admit(later));
    assert!(!other.admit(later), "one, not one a worker");
    other.learn(Outcome::Answered, later.plus(50));
    for worker in [&one, &other] {
        assert_eq!(worker.state(later.plus(50)), State::Ready);
        assert!(worker.admit(later.plus(50)));
    }
}

#[test]
fn a_worker_that_has_not_heard_of_the_probe_yet_does_not_send_another() {
    let [one, other] = workers();
    one.learn(Outcome::Unreachable, NOW);
    let later = NOW.plus(OPEN_MILLIS);
    assert_eq!(other.state(later), State::HalfOpen);
    assert!(one.admit(later));
    // What it knows is older than the probe.
    let admission = other.health.admit(&other.host, later, &other.changes);
    assert_eq!(admission, Admission::Refused);
}

#[test]
fn a_probe_that_nobody_hears_of_again_is_followed_by_another() {
    let [one, other] = workers();
    one.learn(Outcome::Unreachable, NOW);
    let later = NOW.plus(OPEN_MILLIS);
    assert!(one.admit(later));
    assert!(!other.admit(later.plus(PROBE_MILLIS - 1)));
    assert!(other.admit(later.plus(PROBE_MILLIS)));
    assert!(!one.admit(later.plus(PROBE_MILLIS)));
}

#[test]
fn a_probe_whose_client_leaves_makes_room_for_another_at_once() {
    let [one, other] = workers();
    one.learn(Outcome::Unreachable, NOW);
    let mut now = NOW.plus(OPEN_MILLIS);
    for round in 0..20 {
        assert!(one.admit(now), "{round}");
        assert!(!other.admit(now), "{round}");
        one.give_up_probe(now);
        // Within the same millisecond, and later.
        assert!(!other.admit(now), "{round}");
        now = now.plus(1);
    }
    assert!(other.admit(now));
    other.learn(Outcome::Answered, now);
    one.give_up_probe(now);
    assert_eq!(other.state(now), State::Ready, "what is known stands");
}

#[test]
fn each_probe_that_fails_doubles_the_wait_up_to_a_bound() {
    let [one, other] = workers();
    one.learn(Outcome::Unreachable, NOW);
    let mut now = NOW;
    let mut open = OPEN_MILLIS;
    for _ in 0..70 {
        assert_eq!(other.state(now.plus(open - 1)), State::Open, "{open}");
        now = now.plus(open);
        assert!(other.admit(now), "after {open}");
        other.learn(Outcome::Failed, now);
        open = (2 * open).min(MAX_OPEN_MILLIS);
    }
    other.learn(Outcome::Answered, now);
    one.learn(Outcome::Unreachable, now);
    assert_eq!(
        other.state(now.plus(OPEN_MILLIS)),
        State::HalfOpen,
        "an answer begins the doubling anew"
    );
}

#[test]
fn late_failures_of_older_requests_do_not_lengthen_the_wait() {
    let [one, other] = workers();
    one.learn(Outcome::Unreachable, NOW);
    for _ in 0..100 {
        other.learn(Outcome::Failed, NOW.plus(500));
        one.learn(Outcome::Unreachable, NOW.plus(900));
    }
    assert_eq!(one.state(NOW.plus(OPEN_MILLIS)), State::HalfOpen);
}

#[test]
fn a_target_that_asks_for_a_pause_is_there() {
    let [one, other] = workers();
    one.learn(Outcome::Unreachable, NOW);
    other.learn(Outcome::Busy(Some(500)), NOW);
    assert_eq!(one.state(NOW.plus(499)), State::Cooling);
    assert_eq!(one.state(NOW.plus(500)), State::Ready);
}

/// Lets probes fail every few seconds, until so many milliseconds have passed.
fn stay_away(worker: &Worker, from: Millis, millis: u64) -> Millis {
    let mut now = from;
    while now.since(from) < millis {
        now = now.plus(MAX_OPEN_MILLIS.min(millis - now.since(from)));
        worker.state(now);
        worker.learn(Outcome::Failed, now);
    }
    now
}

#[test]
fn a_target_that_keeps_failing_is_forgotten_once_by_all() {
    let [one, other] = workers();
    one.learn(Outcome::Unreachable, NOW);
    let now = stay_away(&one, NOW, FORGET_AFTER_MILLIS - 1);
    assert_eq!(one.forgotten(now), Millis(0));
    let at = stay_away(&one, now, MAX_OPEN_MILLIS);
    assert_eq!(one.forgotten(at), at);
    let later = stay_away(&other, at, 2 * FORGET_AFTER_MILLIS);
    assert_eq!(other.forgotten(later), at, "not anew");
    other.learn(Outcome::Answered, later);
    assert_eq!(one.forgotten(later), at);
}

#[test]
fn a_target_that_nobody_asks_is_not_forgotten() {
    let [one, other] = workers();
    one.learn(Outcome::Unreachable, NOW);
    let morning = NOW.plus(10 * FORGET_AFTER_MILLIS);
    other.state(morning);
    other.learn(Outcome::Answered, morning);
    assert_eq!(one.forgotten(morning), Millis(0));
}

#[test]
fn a_target_at_which_requests_are_under_way_is_not_forgotten() {
    let [one, other] = workers();
    one.others.set(true);
    one.learn(Outcome::Unreachable, NOW);
    let later = stay_away(&one, NOW, 3 * FORGET_AFTER_MILLIS);
    assert_eq!(other.forgotten(later), Millis(0));
}

#[test]
fn a_target_that_was_away_for_a_moment_is_not_forgotten() {
    let [one, other] = workers();
    one.learn(Outcome::Unreachable, NOW);
    let back = stay_away(&one, NOW, FORGET_AFTER_MILLIS - 1);
    other.state(back);
    other.learn(Outcome::Answered, back);
    one.learn(Outcome::Unreachable, back.plus(10));
    assert_eq!(one.forgotten(back.plus(1_000)), Millis(0));
}

#[test]
fn a_clock_that_is_set_back_keeps_no_target_away() {
    for outcome in [Outcome::Busy(Some(60_000)), Outcome::Unreachable] {
        let [one, other] = workers();
        one.learn(outcome, NOW);
        let earlier = Millis(NOW.0 - 3_600_000);
        assert!(other.admit(earlier), "{outcome:?}");
    }
}

#[test]
fn what_a_target_answers_says_how_it_is() {
    use Outcome::{Answered, Busy, Failed};
    for (status, pause, outcome) in [
        (200, None, Answered),
        (400, None, Answered),
        (404, Some(1), Answered),
        (429, None, Busy(None)),
        (429, Some(7), Busy(Some(7))),
        (500, None, Failed),
        (501, None, Answered),
        (502, None, Failed),
        (503, None, Failed),
        (503, Some(7), Busy(Some(7))),
        (504, None, Failed),
        (529, None, Failed),
    ] {
        let response = Response {
            status,
            is_targets_own: true,
            is_request_complete: true,
            flags: 0x8000,
            pause,
        };
        assert_eq!(Outcome::of_response(response), Some(outcome), "{status}");
    }
}

#[test]
fn what_envoy_answers_in_place_of_a_target_is_held_against_it_only_where_it_is_its_fault() {
    use Outcome::{Failed, Unreachable};
    // The flags are as Envoy sets them, by their short names.
    for (name, flags, at_first, at_last) in [
        ("none: a filter answers by itself", 0, None, None),
        ("UH", 0x2, Some(Unreachable), Some(Unreachable)),
        ("UT", 0x4, Some(Failed), None),
        ("UR", 0x10, Some(Failed), Some(Failed)),
        ("UF", 0x20, Some(Unreachable), Some(Unreachable)),
        ("UF, URX", 0x8020, Some(Unreachable), Some(Unreachable)),
        ("UC", 0x40, Some(Failed), Some(Failed)),
        ("UO", 0x80, None, None),
        ("NR", 0x100, None, None),
        ("RL", 0x800, None, None),
        ("DC", 0x4000, None, None),
        ("UT, URX", 0x8004, Some(Failed), None),
        ("SI", 0x1_0000, Some(Failed), None),
        ("DPE", 0x4_0000, None, None),
        ("UPE", 0x80_0000, Some(Failed), Some(Failed)),
        ("NC", 0x100_0000, Some(Unreachable), Some(Unreachable)),
    ] {
        for status in [200, 400, 408, 429, 503] {
            let response = Response {
                status,
                is_targets_own: false,
                is_request_complete: true,
                flags,
                pause: Some(1),
            };
            assert_eq!(Outcome::of_response(response), at_first, "{name}");
            let incomplete = Response {
                is_request_complete: false,
                ..response
            };
            assert_eq!(Outcome::of_response(incomplete), at_last, "{name}");
        }
        assert_eq!(Outcome::of_broken_off(flags), at_last, "{name}");
    }
}

#[test]
fn a_target_that_a_retry_passed_over_rests_for_a_moment_and_is_blamed() {
    let [one, other] = workers();
    let mut now = NOW;
    for _ in 1..MAX_FAILURES {
        one.learn(Outcome::PassedOver, now);
        assert_eq!(other.state(now.plus(COOLDOWN_MILLIS - 1)), State::Cooling);
        now = now.plus(COOLDOWN_MILLIS);
        assert_eq!(other.state(now), State::Ready);
    }
    one.learn(Outcome::PassedOver, now);
    assert_eq!(other.state(now), State::Open);
}

#[test]
fn a_pause_is_told_in_seconds_or_as_a_date() {
    // 2027-01-15 08:00:00 UTC.
    let now = Millis(1_800_000_000_000);
    for (value, pause) in [
        ("0", Some(0)),
        ("120", Some(120_000)),
        (" 7 ", Some(7_000)),
        ("18446744073709551615", Some(u64::MAX)),
        ("Fri, 15 Jan 2027 08:00:30 GMT", Some(30_000)),
        ("Fri, 15 Jan 2027 07:00:00 GMT", Some(0)),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("\u{fffd}", None),
    ] {
        assert_eq!(retry_after(value.as_bytes(), now), pause, "{value:?}");
    }
    assert_eq!(retry_after(b"\xff\xfe", now), None);
}

proptest! {
    /// Whatever happens in whatever order: the workers agree, a target that only answers is ready
    /// in the end, and none is kept away longer than the bounds say.
    #[test]
    fn workers_agree_and_every_wait_ends(
        steps in prop::collection::vec((0..2_usize, 0..8_u8, 0..20_000_u64), 1..80)
    ) {
        let workers = workers();
        let mut now = NOW;
        for (worker, what, later) in steps {
            now = now.plus(later);
            let worker = &workers[worker];
            worker.state(now);
            match what {
                0 => worker.learn(Outcome::Answered, now),
                1 => worker.learn(Outcome::Busy(Some(later)), now),
                2 => worker.learn(Outcome::Failed, now),
                3 => worker.learn(Outcome::Unreachable, now),
                4 => worker.learn(Outcome::PassedOver, now),
                5 => { worker.admit(now); }
                6 => worker.give_up_probe(now),
                _ => { worker.forgotten(now); }
            }
            prop_assert_eq!(workers[0].state(now), workers[1].state(now));
        }
        let longest = MAX_COOLDOWN_MILLIS.max(MAX_OPEN_MILLIS).max(PROBE_MILLIS);
        let end = now.plus(longest);
        let admitted = workers.iter().filter(|worker| worker.admit(end)).count();
        prop_assert!(admitted > 0, "{:?}", workers[0].state(end));
        workers[1].learn(Outcome::Answered, end);
        prop_assert_eq!(workers[0].state(end), State::Ready);
    }
}
