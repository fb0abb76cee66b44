//! What it takes to pass a policy of fifty rules over an answer of 16 KB.
//!
//! `cargo bench -p rolter-bench --bench policy` runs it natively; with `--target wasm32-wasip1` it
//! runs where the filter does, in V8 (`make bench` does both).

mod answers;
mod rules;

use rolter_core::config::{Policy as Config, Unchecked};
use rolter_core::policy::{Basis, Context, Delivery, Policy, Ticket};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// What is wanted of an answer in which nothing is found.
const WANTED: f64 = 500.0;

const ROUNDS: usize = 501;

fn main() {
    // Cargo passes arguments for criterion, which this does without.
    let place = if cfg!(target_arch = "wasm32") {
        "in wasm"
    } else {
        "natively"
    };
    let config = config();
    let (policy, took) = timed(|| compile(&config));
    report(place, "compiling the policy, once", took, None);
    for answer in answers::all() {
        let what = format!("{}, {} bytes", answer.what, answer.json.len());
        let fresh = compile(&config);
        let first = timed(|| pass(&fresh, &answer)).1;
        report(place, &format!("{what}, the first"), first, None);
        let wanted = answer.findings.is_empty().then_some(WANTED);
        let (median, slowest) = steady(&policy, &answer);
        report(place, &what, median, wanted);
        report(
            place,
            &format!("{what}, the slowest in a hundred"),
            slowest,
            None,
        );
    }
}

fn report(place: &str, what: &str, took: Duration, wanted: Option<f64>) {
    let micros = took.as_secs_f64() * 1e6;
    let verdict = wanted.map_or_else(String::new, |wanted| {
        let verdict = if micros <= wanted { "met" } else { "missed" };
        format!("; wanted: at most {wanted:.0} µs, {verdict}")
    });
    println!("{place}: {what:<66} {micros:>8.1} µs{verdict}");
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// The median, and what one in a hundred takes, once automata and machine are warm.
fn steady(policy: &Policy, answer: &answers::Answer) -> (Duration, Duration) {
    for _ in 0..ROUNDS {
        pass(policy, answer);
    }
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| timed(|| pass(policy, answer)).1)
        .collect();
    times.sort_unstable();
    let at = |part: usize| times.get(ROUNDS * part / 100).copied().unwrap_or_default();
    (at(50), at(99))
}

fn compile(config: &Config) -> Policy {
    Policy::new(config).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// As the filter does it, from the bytes on.
fn pass(policy: &Policy, answer: &answers::Answer) {
    let context = Context {
        route: "chat".to_owned(),
        dialect: None,
        model: None,
        caller: None,
        basis: Basis::Upstream,
        ticket: Ticket::default(),
    };
    let body = black_box(&answer.json).clone().into_bytes();
    match policy.apply(body, &context) {
        Delivery::Deliver(passed) => {
            assert_eq!(passed.findings, answer.findings, "{}", answer.what);
            black_box(passed.body);
        }
        _ => panic!("{} does not pass", answer.what),
    }
}

fn config() -> Config {
    let guardrails = rules::all();
    assert_eq!(guardrails.len(), 50);
    Config {
        path: "policy".to_owned(),
        guardrails,
        plugins: Vec::new(),
        pii: None,
        on_stream: Unchecked::Refuse,
        on_unread: Unchecked::Refuse,
        max_answer_bytes: 1 << 20,
    }
}
