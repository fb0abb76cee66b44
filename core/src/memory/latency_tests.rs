//! Predictions of the time to the first token.

use super::Latency;
use crate::target::{TargetId, TargetSet};
use crate::time::Millis;
use proptest::prelude::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const NOW: Millis = Millis(1_000_000);
const A: TargetId = TargetId(0);
const B: TargetId = TargetId(200);
const UNSEEN: TargetId = TargetId(7);
const MINUTE: u64 = 60_000;

fn later(millis: u64) -> Millis {
    Millis(NOW.0 + millis)
}

/// A has taken 200 ms and a tenth of one for each token, B a second more, both many times.
fn known() -> Latency {
    let mut latency = Latency::default();
    for tokens in (0..100).map(|n| n * 100) {
        latency.observe(A, tokens, 200_000 + 100 * tokens, NOW);
        latency.observe(B, tokens, 1_200_000 + 100 * tokens, NOW);
    }
    latency
}

fn predict(latency: &Latency, target: TargetId, tokens: u32, now: Millis) -> f64 {
    latency.predict(target, tokens, now).unwrap()
}

#[track_caller]
fn assert_near(actual: f64, expected: f64) {
    assert!(
        (actual - expected).abs() < 0.1 * expected,
        "{actual} for {expected}"
    );
}

#[test]
fn a_target_is_predicted_by_what_it_took_and_the_length_of_the_prompt() {
    let latency = known();
    assert_near(predict(&latency, A, 1_000, NOW), 300_000.0);
    assert_near(predict(&latency, A, 8_000, NOW), 1_000_000.0);
    assert_near(predict(&latency, B, 1_000, NOW), 1_300_000.0);
}

#[test]
fn a_target_never_seen_is_predicted_as_the_fleet_is() {
    assert_near(predict(&known(), UNSEEN, 1_000, NOW), 800_000.0);
}

#[test]
fn a_target_that_goes_quiet_comes_to_be_predicted_as_the_fleet_is() {
    let mut latency = known();
    let mut before = predict(&latency, B, 1_000, NOW);
    for minute in 1..8 {
        for tokens in (0..100).map(|n| n * 100) {
            latency.observe(A, tokens, 200_000 + 100 * tokens, later(minute * MINUTE));
        }
        let now = predict(&latency, B, 1_000, later(minute * MINUTE));
        assert!(now < before, "{now} after {before}");
        before = now;
    }
    let (quiet, fleet) = (before, predict(&latency, UNSEEN, 1_000, later(7 * MINUTE)));
    assert_near(quiet, fleet);
}

#[test]
fn where_nothing_was_heard_lately_nothing_is_predicted() {
    assert_eq!(Latency::default().predict(A, 10, NOW), None);
    let latency = known();
    assert!(latency.predict(A, 10, later(5 * MINUTE)).is_some());
    assert_eq!(latency.predict(A, 10, later(60 * MINUTE)), None);
}

#[test]
fn one_slow_answer_is_no_reason_to_shun_a_target() {
    let mut latency = Latency::default();
    for _ in 0..50 {
        latency.observe(A, 1_000, 300_000, NOW);
    }
    latency.observe(B, 1_000, 600_000, NOW);
    let once = predict(&latency, B, 1_000, NOW);
    assert!(once < 400_000.0, "{once}");
    for _ in 0..50 {
        latency.observe(B, 1_000, 600_000, NOW);
    }
    let often = predict(&latency, B, 1_000, NOW);
    assert!(often > 550_000.0, "{often}");
}

#[test]
fn what_was_observed_lately_counts_most() {
    let mut latency = Latency::default();
    for _ in 0..50 {
        latency.observe(A, 1_000, 300_000, NOW);
    }
    for _ in 0..50 {
        latency.observe(A, 1_000, 900_000, later(5 * MINUTE));
    }
    assert_near(predict(&latency, A, 1_000, later(5 * MINUTE)), 900_000.0);
}

#[test]
fn a_longer_prompt_is_never_predicted_to_be_answered_sooner() {
    let mut latency = Latency::default();
    for tokens in 1..100 {
        latency.observe(A, tokens, 1_000_000 - 1_000 * tokens, NOW);
    }
    let (short, long) = (
        predict(&latency, A, 1, NOW),
        predict(&latency, A, 10_000, NOW),
    );
    assert!((long - short).abs() < 1e-3, "{short} {long}");
}

#[test]
fn prompts_of_one_length_tell_nothing_of_other_lengths() {
    // Of many lengths, so that rounding has its chance to draw a steep line.
    for tokens in (1..100).map(|n| n * 1_003) {
        let mut latency = Latency::default();
        for n in 0..100 {
            latency.observe(A, tokens, 300_000 + 1_000 * n, later(u64::from(n) * 333));
        }
        let micros = predict(&latency, A, u32::MAX, later(33_000));
        assert!((300_000.0..400_000.0).contains(&micros), "{micros}");
    }
}

#[test]
fn a_forgotten_target_is_predicted_as_the_fleet_is() {
    let mut latency = known();
    latency.forget(B);
    let (forgotten, unseen) = (
        predict(&latency, B, 9, NOW),
        predict(&latency, UNSEEN, 9, NOW),
    );
    assert!((forgotten - unseen).abs() < 1e-3);
}

#[test]
fn a_clock_that_steps_back_does_not_silence_what_is_new() {
    let mut latency = known();
    for _ in 0..200 {
        latency.observe(A, 1_000, 5_000_000, Millis(0));
    }
    // The old ones count until they have faded, the new ones count at once.
    assert!(predict(&latency, A, 1_000, Millis(0)) > 2_000_000.0);
    for _ in 0..50 {
        latency.observe(A, 1_000, 300_000, Millis(5 * MINUTE));
    }
    assert_near(predict(&latency, A, 1_000, Millis(5 * MINUTE)), 300_000.0);
}

#[test]
fn what_another_worker_observed_long_ago_counts_little() {
    let now = later(5 * MINUTE);
    let mut latency = Latency::default();
    for _ in 0..20 {
        latency.observe(A, 1_000, 300_000, now);
    }
    for _ in 0..100 {
        latency.learn(A, 1_000, 900_000, NOW);
    }
    assert_near(predict(&latency, A, 1_000, now), 300_000.0);
    for _ in 0..100 {
        latency.learn(A, 1_000, 900_000, now);
    }
    assert!(predict(&latency, A, 1_000, now) > 700_000.0);
}

fn hostile() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u32::MAX),
        any::<u32>(),
        0_u32..100_000
    ]
}

fn times() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(u64::MAX),
        any::<u64>(),
        (0_u64..100).prop_map(|n| n * 10_000)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_prediction_is_a_positive_number_whatever_was_observed(
        observed in prop::collection::vec((0_u16..260, hostile(), hostile(), times(), any::<bool>()), 0..60),
        asked in prop::collection::vec((0_u16..260, hostile(), times()), 1..20),
    ) {
        let mut latency = Latency::default();
        for (id, tokens, micros, at, own) in observed {
            if own {
                latency.observe(TargetId(id), tokens, micros, Millis(at));
            } else {
                latency.learn(TargetId(id), tokens, micros, Millis(at));
            }
        }
        for (id, tokens, now) in asked {
            let one = latency.predict(TargetId(id), tokens, Millis(now));
            let all = latency.predict_all(TargetSet::first(512), tokens, Millis(now));
            prop_assert_eq!(one.is_some(), all.is_some());
            if let (Some(one), Some(all)) = (one, all) {
                prop_assert!(one.is_finite() && one > 0.0, "{}", one);
                prop_assert!(id >= 512 || all.micros(TargetId(id)).to_bits() == one.to_bits());
            }
        }
    }
}
