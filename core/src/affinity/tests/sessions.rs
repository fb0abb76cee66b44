use super::{A, B};
use crate::affinity::Sessions;
use crate::affinity::sessions::MAX_SESSIONS;
use crate::target::TargetId;
use crate::time::Millis;
use proptest::prelude::*;
use std::time::Duration;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// Sessions that live for 400 ms, so that they are news every 100.
fn sessions(max: usize) -> Sessions {
    let mut sessions = Sessions::new(max);
    sessions.set_ttl(Duration::from_millis(400));
    sessions
}

#[test]
fn a_session_lives_from_its_last_request() {
    let mut sessions = sessions(10);
    sessions.remember(1, A, Millis(1_000));
    assert_eq!(sessions.find(1, Millis(1_399)), Some(A));
    assert_eq!(sessions.find(1, Millis(1_400)), None);
    sessions.remember(1, A, Millis(1_399));
    assert_eq!(sessions.find(1, Millis(1_798)), Some(A));
    assert_eq!(sessions.find(2, Millis(1_798)), None);
}

#[test]
fn a_session_is_news_when_it_is_new_moves_or_has_aged() {
    let mut sessions = sessions(10);
    assert!(sessions.remember(1, A, Millis(1_000)));
    assert!(!sessions.remember(1, A, Millis(1_050)));
    assert!(!sessions.remember(1, A, Millis(1_099)));
    assert!(sessions.remember(1, A, Millis(1_100)));
    assert!(sessions.remember(1, B, Millis(1_101)));
    assert!(!sessions.remember(1, B, Millis(1_102)));
}

#[test]
fn what_another_worker_told_counts_unless_something_later_is_known() {
    let mut sessions = sessions(10);
    sessions.learn(1, A, Millis(1_000));
    assert_eq!(sessions.find(1, Millis(1_000)), Some(A));
    assert!(!sessions.remember(1, A, Millis(1_050)));
    sessions.learn(1, B, Millis(1_040));
    assert_eq!(sessions.find(1, Millis(1_050)), Some(A));
    sessions.learn(1, B, Millis(1_060));
    assert_eq!(sessions.find(1, Millis(1_060)), Some(B));
}

#[test]
fn a_clock_that_steps_back_neither_silences_news_nor_keeps_sessions_for_good() {
    let mut sessions = sessions(10);
    sessions.remember(1, A, Millis(900_000));
    assert!(sessions.remember(1, A, Millis(1_000)));
    assert_eq!(sessions.find(1, Millis(1_400)), None);
}

#[test]
fn the_least_recently_used_session_goes_first() {
    let mut sessions = sessions(2);
    sessions.remember(1, A, Millis(0));
    sessions.remember(2, A, Millis(0));
    sessions.remember(1, A, Millis(0));
    sessions.remember(3, A, Millis(0));
    let known = [1, 2, 3].map(|session| sessions.find(session, Millis(0)).is_some());
    assert_eq!(known, [true, false, true]);
}

#[test]
fn a_forgotten_target_has_no_sessions() {
    let mut sessions = sessions(10);
    sessions.remember(1, A, Millis(0));
    sessions.remember(2, B, Millis(0));
    sessions.forget(A);
    assert_eq!(sessions.find(1, Millis(0)), None);
    assert_eq!(sessions.find(2, Millis(0)), Some(B));
    assert_eq!(sessions.len(), 1);
}

#[test]
fn any_number_of_sessions_takes_bounded_memory() {
    let mut sessions = Sessions::default();
    for session in 0..3 * MAX_SESSIONS as u64 {
        sessions.remember(session, A, Millis(session / 1_000));
    }
    assert_eq!(sessions.len(), MAX_SESSIONS);
    assert!(
        sessions.memory() < 200 * MAX_SESSIONS,
        "{}",
        sessions.memory()
    );
    // Long after, all of them have expired, and the next one notices.
    sessions.remember(0, A, Millis(1 << 40));
    assert_eq!(sessions.len(), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Remember(u64, u16, u64),
    Learn(u64, u16, u64),
    Forget(u16),
    Find(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let what = || (0_u64..8, 0_u16..3, 0_u64..900);
    prop::collection::vec(
        prop_oneof![
            6 => what().prop_map(|(session, id, at)| Step::Remember(session, id, at)),
            3 => what().prop_map(|(session, id, at)| Step::Learn(session, id, at)),
            1 => (0_u16..3).prop_map(Step::Forget),
            4 => what().prop_map(|(session, _, at)| Step::Find(session, at)),
        ],
        1..80,
    )
}

/// The dumbest correct model of one session in a list, least recently used first.
#[derive(Clone, Copy)]
struct Known {
    session: u64,
    target: u16,
    used: u64,
    seen: u64,
}

const TTL: u64 = 400;
const MAX: usize = 4;

fn insert(known: &mut Vec<Known>, new: Known) {
    while !known.is_empty() && (known.len() >= MAX || new.used.saturating_sub(known[0].used) >= TTL)
    {
        known.remove(0);
    }
    known.push(new);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sessions_are_kept_as_a_list_keeps_them(steps in steps()) {
        let mut sessions = sessions(MAX);
        let mut model: Vec<Known> = Vec::new();
        for step in steps {
            match step {
                Step::Remember(session, target, at) => {
                    let ours = sessions.remember(session, TargetId(target), Millis(at));
                    let place = model.iter().position(|known| known.session == session);
                    let old = place.map(|place| model.remove(place));
                    let fresh = Known { session, target, used: at, seen: at };
                    let news = old.is_none_or(|old| old.target != target || old.seen.abs_diff(at) >= TTL / 4);
                    prop_assert_eq!(ours, news);
                    match old {
                        Some(old) if !news => model.push(Known { seen: old.seen, ..fresh }),
                        Some(_) => model.push(fresh),
                        None => insert(&mut model, fresh),
                    }
                }
                Step::Learn(session, target, at) => {
                    sessions.learn(session, TargetId(target), Millis(at));
                    let place = model.iter().position(|known| known.session == session);
                    match place.map(|place| model[place]) {
                        Some(old) if old.used > at => {}
                        Some(old) => {
                            model.remove(place.unwrap());
                            model.push(Known { session, target, used: at, seen: old.seen.max(at) });
                        }
                        None => insert(&mut model, Known { session, target, used: at, seen: at }),
                    }
                }
                Step::Forget(target) => {
                    sessions.forget(TargetId(target));
                    model.retain(|known| known.target != target);
                }
                Step::Find(session, now) => {
                    let known = model.iter().find(|known| known.session == session);
                    let alive = known.filter(|known| now.saturating_sub(known.used) < TTL);
                    let expected = alive.map(|known| TargetId(known.target));
                    prop_assert_eq!(sessions.find(session, Millis(now)), expected);
                }
            }
            prop_assert_eq!(sessions.len(), model.len());
        }
    }
}
