//! Several workers of one Envoy, which route as one.

use e2e::{CONNECTIONS, Caller, all_know, all_released, setup, start, text};

fn callers(fleet: &fleet::Fleet) -> Vec<Caller> {
    (0..CONNECTIONS).map(|_| Caller::new(fleet)).collect()
}

#[tokio::test]
async fn what_one_worker_learns_all_know() {
    let fleet = start(setup(4, 4)).await;
    for round in 0..5 {
        let prompt = text(&format!("shared {round}"), 40);
        let callers = callers(&fleet);
        let first = callers[round].say(&prompt).await;
        assert_eq!(first.decision, "miss");
        all_know().await;
        for caller in &callers {
            let answer = caller.say(&prompt).await;
            assert_eq!(answer.pick(), (&*first.engine, "affinity"));
        }
    }
    all_released(&fleet).await;
}

#[tokio::test]
async fn no_worker_tells_what_all_know_already() {
    let fleet = start(setup(2, 4)).await;
    let head = || async {
        let stats = fleet.stats().await.unwrap();
        let heads = stats.labelled("rolter_ring_head");
        // A segment's number, and the offset in a segment of 40 KiB.
        let told = heads.map(|(_, head)| (head >> 16) * (40 << 10) + (head & 0xffff));
        told.sum::<u64>()
    };
    let callers = callers(&fleet);
    let prompt = text("again and again", 200);
    callers[0].say(&prompt).await;
    let before = head().await;
    let began = std::time::Instant::now();
    for _ in 0..20 {
        for caller in &callers {
            caller.say(&prompt).await;
        }
    }
    let told = head().await - before;
    // Once a second and worker at most, and each worker may begin a segment.
    let seconds = began.elapsed().as_secs() + 1;
    let most = 4 * seconds * (201 * 64) + 4 * (40 << 10);
    assert!(told <= most, "{told} bytes in {seconds} s for 320 requests");
}
