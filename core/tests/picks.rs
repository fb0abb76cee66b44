//! Choosing allocates nothing: for every strategy, over 64 targets, with followers, whether the
//! targets are eligible, refused, or none of them is.

#![cfg(not(target_arch = "wasm32"))]

#[allow(unreachable_pub, reason = "it is public where it comes from")]
mod counting;

use counting::{Allocated, Counting, count};
use fastrand::Rng;
use rolter_core::affinity::Limits;
use rolter_core::balance::{
    Balancer, Exact, Fleet, Guard, MAX_FOLLOWERS, Margins, Pipeline, Request, Scores, Strategy,
    TargetInfo,
};
use rolter_core::kv::MediumWeights;
use rolter_core::memory::{Lesson, Memory};
use rolter_core::prompt::Prompt;
use rolter_core::target::{MAX_TARGETS, TargetId, TargetSet};
use rolter_core::time::Millis;
use std::cell::RefCell;
use std::rc::Rc;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NOW: Millis = Millis(1_000_000);
const SESSION: u64 = 77;
const TEXT: &str = "the beginning that all prompts share, and then something of their own";

const GUARD: Guard = Guard {
    balance_abs: 2,
    balance_rel: 1.5,
};

const STRATEGIES: [Strategy; 10] = [
    Strategy::CacheAware {
        margins: Margins {
            threshold: 0.5,
            miss_weight: 12.0,
            guard: GUARD,
        },
    },
    Strategy::PreciseCacheAware(Exact {
        margins: Margins {
            threshold: 0.1,
            miss_weight: 12.0,
            guard: GUARD,
        },
        weights: MediumWeights {
            gpu: 1.0,
            cpu: 0.8,
            other: 0.5,
        },
    }),
    Strategy::LmcacheAware { guard: GUARD },
    Strategy::LeastLoad,
    Strategy::RoundRobin,
    Strategy::Random,
    Strategy::PowerOfTwo,
    Strategy::Weighted,
    Strategy::ConsistentHash,
    Strategy::Pipeline(Pipeline {
        session: 0.5,
        session_ttl: std::time::Duration::from_mins(10),
        prefix: 1.0,
        load: 2.0,
        weight: 1.0,
        latency: 1.0,
    }),
];

/// 64 targets, whose numbers have gaps.
fn targets() -> Vec<TargetInfo> {
    let info = |number: u16| TargetInfo {
        id: TargetId(number * 4),
        seed: u64::from(number) << 40,
        weight: 1 + u32::from(number),
    };
    (0..64).map(info).collect()
}

/// A memory that knows something of every target.
fn memory(targets: &[TargetInfo]) -> Memory {
    let mut memory = Memory::new(Limits {
        max_nodes: 1_000_000,
        max_memory: 64 << 20,
    });
    for (target, end) in targets.iter().zip(1..) {
        let text = TEXT.as_bytes().get(..end).unwrap();
        let lessons = [
            Lesson::Prompt { model: b"", text },
            Lesson::Session { session: SESSION },
            Lesson::FirstToken {
                tokens: 100,
                micros: 100_000 + 1_000 * target.weight,
            },
        ];
        for lesson in &lessons {
            memory.learn(target.id, NOW, lesson);
        }
    }
    memory
}

#[test]
fn choosing_allocates_nothing() {
    let infos = targets();
    let targets: TargetSet = infos.iter().map(|target| target.id).collect();
    let load: Vec<u32> = (0..).take(MAX_TARGETS).map(|number| number % 5).collect();
    // Of every third nothing is known.
    let score = |number: u8| (!number.is_multiple_of(3)).then_some(f64::from(number) / 255.0);
    let scores: Vec<Option<f64>> = (0..=u8::MAX).map(score).collect();
    let prompt = Prompt::read(b"/", TEXT.as_bytes());
    let mut rng = Rng::with_seed(1);
    for strategy in STRATEGIES {
        let memory = Rc::new(RefCell::new(memory(&infos)));
        let mut balancer = Balancer::new(strategy, &infos, memory, &mut rng);
        let mut choices = 0;
        for eligible in [targets, TargetSet::first(100), TargetSet::EMPTY] {
            let scores = Some(Scores {
                of: &scores,
                grain: 0.1,
            });
            let fleet = Fleet {
                targets,
                eligible,
                load: Some(&load),
                pending: None,
                scores,
            };
            for (prompt, session) in [
                (Some(&prompt), Some(SESSION)),
                (Some(&prompt), None),
                (None, None),
            ] {
                let request = Request {
                    prompt,
                    session,
                    now: NOW,
                };
                for refuse in [0, 3, usize::MAX] {
                    let mut asked = 0;
                    let (choice, allocated) = count(|| {
                        let lookup = balancer.look(&fleet, &request);
                        balancer.choose(&fleet, &lookup, MAX_FOLLOWERS, &mut rng, |_| {
                            asked += 1;
                            asked > refuse
                        })
                    });
                    let followers = choice.map(|choice| choice.followers.as_slice().len());
                    assert_eq!(followers, Some(MAX_FOLLOWERS), "{strategy:?}");
                    assert_eq!(allocated, Allocated::default(), "{strategy:?}");
                    choices += 1;
                }
            }
        }
        assert_eq!(choices, 27);
    }
}

#[test]
fn teaching_what_is_known_already_allocates_nothing_either() {
    let infos = targets();
    let load = [0; MAX_TARGETS];
    let prompt = Prompt::read(b"/", TEXT.as_bytes());
    let fleet = Fleet {
        targets: infos.iter().map(|target| target.id).collect(),
        eligible: TargetSet::first(1),
        load: Some(&load),
        pending: None,
        scores: None,
    };
    let request = Request {
        prompt: Some(&prompt),
        session: Some(SESSION),
        now: NOW,
    };
    let mut rng = Rng::with_seed(1);
    for strategy in STRATEGIES {
        let memory = Rc::new(RefCell::new(memory(&infos)));
        let mut balancer = Balancer::new(strategy, &infos, memory, &mut rng);
        let mut decide = || balancer.decide(&fleet, &request, MAX_FOLLOWERS, &mut rng, |_| true);
        decide();
        let (decision, allocated) = count(decide);
        assert!(decision.is_some());
        assert_eq!(allocated, Allocated::default(), "{strategy:?}");
    }
}

#[test]
fn an_allocation_would_be_noticed() {
    let ((), allocated) = count(|| drop(vec![0_u8; 100]));
    assert_eq!((allocated.left, allocated.peak), (0, 100));
}
