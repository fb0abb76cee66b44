//! The parts of the comparison on the real Envoy, shortened where that is enough.

use demo::{Failure, Outcome, Shape, Strategy, Traffic, engine, play, repeat};
use engine_sim::EngineConfig;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn affinity_finds_what_turns_scatter() {
    let traffic = Arc::new(Traffic::new(Shape::SHORT, 1));
    // Less cache for less traffic, and less time for all of it.
    let engine = EngineConfig {
        kv_blocks: 640,
        prefill_tokens_per_sec: 20_000.0,
        decode_time_per_token: Duration::from_millis(2),
        ..engine()
    };
    let mut outcomes = Vec::new();
    for strategy in Strategy::ALL {
        let outcome = play(strategy, 1, &traffic, &engine, |_| ()).await.unwrap();
        assert!(outcome.is_right(), "{:?}", outcome.failures);
        assert_all_accounted_for(&outcome);
        outcomes.push(outcome);
    }
    let (scattered, kept) = outcomes.split_first().unwrap();
    assert_eq!(
        scattered.decisions.keys().collect::<Vec<_>>(),
        ["round_robin"]
    );
    for kept in kept {
        let (before, after) = (scattered.hit_rate(), kept.hit_rate());
        assert!(
            after >= 1.5 * before,
            "hit rates {before:.3} and {after:.3} of {}",
            kept.strategy.as_str()
        );
    }
}

/// With caches that evict much, who is told of that finds more than who has to guess. Hit rates of
/// single plays scatter by some points either way, so means are compared here too.
#[tokio::test(flavor = "multi_thread")]
async fn what_engines_tell_of_evictions_is_worth_knowing() {
    const PLAYS: u8 = 10;
    let traffic = Arc::new(Traffic::new(Shape::FULL, 1));
    let engine = EngineConfig {
        kv_blocks: 768,
        ..engine()
    };
    let (mut means, mut lead) = ([0.0, 0.0], f64::NAN);
    for number in 1..=PLAYS {
        let strategies = [Strategy::CacheAware, Strategy::PreciseCacheAware];
        for (mean, strategy) in means.iter_mut().zip(strategies) {
            let outcome = play(strategy, 1, &traffic, &engine, |_| ()).await.unwrap();
            assert!(outcome.is_right(), "{:?}", outcome.failures);
            assert_all_accounted_for(&outcome);
            *mean += (100.0 * outcome.hit_rate() - *mean) / f64::from(number);
        }
        let [guessed, told] = means;
        lead = told - guessed;
        eprintln!(
            "hit rate, mean of {number}: {guessed:.1} % with cache_aware, {told:.1} % with \
             precise_cache_aware"
        );
        if number >= 3 && lead > 2.0 {
            break;
        }
    }
    assert!(lead > 1.0, "{means:?}");
}

/// What one worker learns, the others must know: no prompt misses a second time because it comes to
/// another worker. Hit rates of single plays scatter by some points either way, so their means are
/// compared, over as many plays as it takes to be sure.
#[tokio::test(flavor = "multi_thread")]
async fn four_workers_find_what_one_finds() {
    const PLAYS: u8 = 8;
    let traffic = Arc::new(Traffic::new(Shape::FULL, 1));
    let (mut means, mut lag) = ([0.0, 0.0], f64::NAN);
    for number in 1..=PLAYS {
        let mut misses = [0, 0];
        for ((mean, misses), workers) in means.iter_mut().zip(&mut misses).zip([1, 4]) {
            let outcome = play(Strategy::CacheAware, workers, &traffic, &engine(), |_| ())
                .await
                .unwrap();
            assert!(outcome.is_right(), "{:?}", outcome.failures);
            *mean += (100.0 * outcome.hit_rate() - *mean) / f64::from(number);
            *misses = outcome.decisions["miss"];
        }
        let [one, four] = means;
        lag = one - four;
        eprintln!("hit rate, mean of {number}: {one:.1} % with one worker, {four:.1} % with four");
        // Two that come at once may each be the first.
        assert!(misses[1] <= misses[0] + 3, "{misses:?}");
        if lag < 1.0 {
            break;
        }
    }
    assert!(lag < 2.0, "{means:?}");
}

/// Every request was decided on once, and reached one engine once.
fn assert_all_accounted_for(outcome: &Outcome) {
    let requests = outcome.requests as u64;
    let decided: u64 = outcome.decisions.values().sum();
    let served: u64 = outcome.engines.iter().map(|work| work.requests).sum();
    assert_eq!((decided, served), (requests, requests));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_twice_is_answered_from_the_cache() {
    let traffic = Traffic::new(Shape::SHORT, 1);
    let repeated = repeat(&traffic, &engine()).await.unwrap();
    assert!(repeated.failures.is_empty(), "{:?}", repeated.failures);
    assert!(repeated.requests > 0);
    assert_eq!(repeated.from_cache, repeated.requests);
    assert_eq!(repeated.engines.len(), repeated.requests);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_fail_are_part_of_the_outcome() {
    let shape = Shape {
        clients: 4,
        conversations: 2,
        groups: 1,
        questions: 2,
    };
    let traffic = Arc::new(Traffic::new(shape, 1));
    // Every engine refuses every request.
    let engine = EngineConfig {
        max_waiting: 0,
        ..engine()
    };
    let outcome = play(Strategy::CacheAware, 1, &traffic, &engine, |_| ())
        .await
        .unwrap();
    assert!(!outcome.is_right());
    assert_eq!(outcome.failures.len(), traffic.requests());
    let refused = |failure: &Failure| matches!(failure, Failure::Status(503, _));
    assert!(outcome.failures.iter().all(refused));
}
