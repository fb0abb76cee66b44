//! A thousand targets that come and go leave nothing behind.

use super::pods::{self, Reader, pass, presence, targets_are};
use super::support::eventually;
use rolter_sidecar::discover::{LINGER, MAX_MEMBERS};
use serde_json::json;

const RANKS: u16 = 2;
const AT_ONCE: u16 = 100;

#[tokio::test]
async fn a_thousand_targets_that_come_and_go_leave_nothing_behind() {
    let service = pods::service();
    let mut document = pods::document(&service);
    document["providers"][0]["kv_events"]["ranks"] = json!(RANKS);
    // Nobody is at any of the addresses, so each stream tries again and again.
    service.has([1]);
    let sidecar = super::support::sidecar_of(&document).await;
    let alone = [(service.target(1), true)];
    targets_are(&sidecar, &alone).await;
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    let mut reader = Reader::default();
    for round in 1..=10 {
        let pods = (AT_ONCE * round..AT_ONCE * (round + 1)).chain([1]);
        service.has(pods.clone());
        let wanted: Vec<String> = pods.map(|pod| service.target(pod)).collect();
        let present = || {
            let all = presence(&sidecar);
            let present = all.iter().filter(|(_, present)| **present);
            present.map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        let all_of = |present: &Vec<String>| {
            present.len() == wanted.len() && wanted.iter().all(|name| present.contains(name))
        };
        eventually(present, all_of, "the next hundred").await;
        assert!(presence(&sidecar).len() <= MAX_MEMBERS);
        reader.read(&sidecar).await;
        // Some are forgotten in their time, others as their places are needed.
        if round % 3 == 0 {
            pass(LINGER).await;
        }
    }
    let most = MAX_MEMBERS * usize::from(RANKS);
    assert!(sidecar.state.index().numbers() <= most);
    assert!(reader.read(&sidecar).await.replicas.len() <= most);
    service.has([1]);
    let gone = |present: &usize| *present == 1;
    let count = || {
        presence(&sidecar)
            .values()
            .filter(|present| **present)
            .count()
    };
    eventually(count, gone, "one that is present").await;
    pass(LINGER).await;
    targets_are(&sidecar, &alone).await;
    let named = reader.read(&sidecar).await.replicas.iter();
    assert_eq!(
        named.filter(|replica| !replica.target.is_empty()).count(),
        2
    );
    // What is left of the tasks are the ones that were there before, and connections of readers.
    let few = |tasks: &usize| *tasks <= before + 8;
    eventually(tasks, few, &format!("about {before} tasks")).await;
    sidecar.stop().await;
}
