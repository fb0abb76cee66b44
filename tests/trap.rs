//! A worker whose VM dies, and what becomes of it and of the others.

use e2e::{
    Answer, CHAT, CONNECTIONS, Caller, all_in_flight, all_released, answer, say, setup, start, text,
};
use fleet::{Setup, trap_module};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Longer than a VM has to be silent until others count it as dead and have made up for it.
const REPAIR: Duration = Duration::from_secs(20);

fn fragile(workers: usize) -> Setup {
    Setup {
        module: Some(trap_module().expect("the filter with a trap")),
        ..setup(4, workers)
    }
}

/// Brings down the VM of the worker that has this connection.
async fn trap(caller: &Caller) -> Answer {
    // Envoy makes a new VM at once only where the old one has lived for a second.
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    let request = caller.request(CHAT).header("x-rolter-trap", "now");
    answer(request.json(&say("Hi"))).await
}

#[tokio::test]
async fn a_worker_whose_vm_dies_comes_back_and_knows_what_it_knew() {
    let fleet = start(fragile(4)).await;
    let callers: Vec<_> = (0..CONNECTIONS).map(|_| Caller::new(&fleet)).collect();
    let prompts: Vec<String> = (0..24).map(|n| text(&format!("prompt {n}"), 24)).collect();
    let mut homes = Vec::new();
    for (prompt, caller) in prompts.iter().zip(callers.iter().cycle()) {
        homes.push(caller.say(prompt).await.engine);
    }
    assert_eq!(trap(&callers[0]).await.status, 503);
    // Nobody notices: neither on this worker, whose next request has a new VM, nor on the others.
    for (number, caller) in callers.iter().enumerate() {
        for (prompt, home) in prompts.iter().zip(&homes) {
            let answer = caller.say(prompt).await;
            assert_eq!(answer.status, 200, "{number}: {answer:?}");
            assert_eq!(answer.pick(), (home.as_str(), "affinity"), "{number}");
        }
    }
    all_released(&fleet).await;
    let reloads = fleet
        .stats()
        .await
        .unwrap()
        .envoy("wasm.rolter.vm_reload_success");
    assert_eq!(reloads, 1, "a VM did die");
}

#[tokio::test]
async fn what_a_dead_vm_had_in_flight_is_taken_back() {
    for workers in [1, 4] {
        let fleet = start(fragile(workers)).await;
        let callers: Vec<_> = (0..CONNECTIONS)
            .map(|_| Caller::concurrent(&fleet))
            .collect();
        let mut hung = JoinSet::new();
        for caller in &callers {
            let request = caller.request(CHAT).json(&say("Hang"));
            let request = request.header("x-sim-fault", "hang");
            hung.spawn(async move {
                let _ = request.send().await;
            });
        }
        let all = CONNECTIONS as u64;
        let stats = fleet
            .stats_when(|stats| all_in_flight(stats) == all)
            .await
            .unwrap();
        assert_eq!(all_in_flight(&stats), all);
        assert_eq!(trap(&callers[0]).await.status, 503);
        // The requests of the dead VM are on their own now, and no longer counted; those of the
        // others still are.
        let reaped = |stats: &fleet::Stats| stats.filter("rolter_reaped_workers", &[]);
        // Of one target after the other: all is taken back once the living have the rest.
        let is_right = |stats: &fleet::Stats| {
            all_in_flight(stats) == stats.filter("rolter_in_flight_share", &[])
        };
        let stats = fleet
            .stats_within(REPAIR, |stats| reaped(stats) > 0 && is_right(stats))
            .await
            .unwrap();
        let left = all_in_flight(&stats);
        assert!(left < all && is_right(&stats), "{left} of {all}");
        assert_eq!(reaped(&stats), 1);
        if workers == 1 {
            assert_eq!(left, 0);
        } else {
            assert!(left > 0, "the others' requests are under way");
        }
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(
            all_in_flight(&fleet.stats().await.unwrap()),
            left,
            "it stays so"
        );
        drop(hung);
        all_released(&fleet).await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        all_released(&fleet).await;
        // And counts on as ever.
        for _ in &callers {
            assert_eq!(Caller::new(&fleet).say("Hi").await.status, 200);
        }
        all_released(&fleet).await;
    }
}

#[tokio::test]
async fn traffic_goes_on_while_workers_die_again_and_again() {
    // Of each client, and in all, however long a busy machine takes for them.
    const ANSWERS: u32 = 64;
    const TRAPS: u32 = 5;
    let fleet = start(fragile(4)).await;
    let end = Instant::now() + Duration::from_secs(12);
    let clients = (0..8_usize).map(|client| {
        let fleet = &fleet;
        async move {
            let mut failures = 0;
            let mut answers = 0;
            while Instant::now() < end || answers < ANSWERS {
                // Its connection may be at the worker whose VM just died.
                let caller = Caller::new(fleet);
                let answer = caller.say(&text(&format!("client {client}"), 16)).await;
                failures += u32::from(answer.status != 200);
                answers += 1;
            }
            (failures, answers)
        }
    });
    let traps = async {
        let mut traps = 0;
        while Instant::now() < end || traps <= TRAPS {
            trap(&Caller::new(&fleet)).await;
            traps += 1;
        }
        traps
    };
    let (clients, traps) = tokio::join!(futures_util::future::join_all(clients), traps);
    let failures: u32 = clients.iter().map(|(failures, _)| failures).sum();
    let answers: u32 = clients.iter().map(|(_, answers)| answers).sum();
    // What was under way at a dying VM, at most one request of each client each time.
    assert!(failures <= 8 * traps, "{failures} of {answers}");
    let stats = fleet
        .stats_within(REPAIR, |stats| all_in_flight(stats) == 0)
        .await
        .unwrap();
    assert_eq!(all_in_flight(&stats), 0);
}
