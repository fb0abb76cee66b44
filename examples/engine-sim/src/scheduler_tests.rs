//! The scheduler on a paused clock, so that times are exact to tokio's millisecond.

use super::*;
use crate::blocks::plain_chain;

const PACE: Duration = Duration::from_millis(10);

/// 1000 prefill tokens a second, blocks of 16.
fn scheduler(max_batch: usize, kv_blocks: usize) -> Arc<Scheduler> {
    let config = EngineConfig {
        kv_blocks,
        max_batch,
        max_waiting: 8,
        prefill_tokens_per_sec: 1000.0,
        ..EngineConfig::default()
    };
    Arc::new(Scheduler::new(&config, None))
}

fn job(start: TokenId, prompt: u32, answer: usize) -> Job {
    let tokens: Vec<TokenId> = (start..start + prompt).collect();
    Job::new(&tokens, plain_chain(16), answer)
}

async fn run(scheduler: &Arc<Scheduler>, job: Job) -> (usize, Duration) {
    let began = Instant::now();
    let answer = job.answer_tokens;
    let mut running = scheduler
        .enqueue(job)
        .expect("room")
        .admitted()
        .await
        .expect("admitted");
    running.prefill().await;
    for token in 1..answer {
        running
            .decode(u32::try_from(token).expect("small"), PACE)
            .await;
    }
    let cached = running.cached_tokens();
    running.finish(Finish::Stop);
    (cached, began.elapsed())
}

fn about(took: Duration, millis: u64) -> bool {
    (millis..millis + 3).contains(&u64::try_from(took.as_millis()).unwrap_or(u64::MAX))
}

#[tokio::test(start_paused = true)]
async fn a_repeated_prompt_hits_all_but_its_last_block() {
    let scheduler = scheduler(4, 64);
    for (prompt, hit) in [(160, 144), (161, 160), (15, 0), (16, 0), (17, 16)] {
        scheduler.reset();
        let (first, took) = run(&scheduler, job(0, prompt, 2)).await;
        assert_eq!(first, 0);
        assert!(about(took, u64::from(prompt) + 10), "{prompt}: {took:?}");
        let (second, took) = run(&scheduler, job(0, prompt, 2)).await;
        assert_eq!(second, hit, "{prompt}");
        assert!(
            about(took, u64::from(prompt) - hit as u64 + 10),
            "{prompt}: {took:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_cached_but_for_its_last_token() {
    let scheduler = scheduler(4, 64);
    // The test's answers are 1, 2, 3, …; the prompt ends before 1, so prompt and answer go on.
    let whole = |tokens: u32| {
        let tokens: Vec<TokenId> = (100..110).chain(1..tokens).collect();
        Job::new(&tokens, plain_chain(16), 7)
    };
    run(&scheduler, whole(1)).await;
    assert_eq!(run(&scheduler, whole(20)).await.0, 16);
    scheduler.reset();
    let short: Vec<TokenId> = (100..110).collect();
    run(&scheduler, Job::new(&short, plain_chain(16), 6)).await;
    assert_eq!(run(&scheduler, whole(20)).await.0, 0);
}

#[tokio::test(start_paused = true)]
async fn prefills_run_one_after_another_and_decodes_beside_them() {
    let scheduler = scheduler(4, 256);
    let (one, two) = tokio::join!(
        run(&scheduler, job(0, 100, 11)),
        run(&scheduler, job(1000, 100, 11)),
    );
    assert!(about(one.1, 200), "{one:?}");
    assert!(about(two.1, 300), "{two:?}");
    assert_eq!(scheduler.counts().peak_running, 2);
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_and_a_full_cache_make_requests_wait() {
    for (max_batch, kv_blocks) in [(1, 256), (4, 8)] {
        let scheduler = scheduler(max_batch, kv_blocks);
        let (one, two) = tokio::join!(
            run(&scheduler, job(0, 64, 11)),
            run(&scheduler, job(1000, 64, 11)),
        );
        assert!(about(one.1, 164), "{one:?}");
        assert!(about(two.1, 328), "{two:?}");
        assert_eq!(scheduler.counts().peak_running, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_gives_all_back_at_once_waiting_or_running() {
    let scheduler = scheduler(1, 256);
    let mut running = scheduler
        .enqueue(job(0, 600, 4))
        .expect("room")
        .admitted()
        .await
        .expect("first");
    let waiting = scheduler.enqueue(job(1000, 64, 4)).expect("room");
    assert_eq!(
        (scheduler.counts().running, scheduler.counts().waiting),
        (1, 1)
    );
    drop(waiting);
    assert_eq!(scheduler.counts().waiting, 0);

    let left = tokio::time::timeout(Duration::from_millis(550), running.prefill()).await;
    assert!(left.is_err());
    drop(running);
    let counts = scheduler.counts();
    assert_eq!((counts.running, counts.blocks_used), (0, 0));
    assert_eq!(counts.finished.abort, 2);
    // The step that was done left its blocks behind.
    assert_eq!(counts.blocks_kept, 32);
    assert_eq!(run(&scheduler, job(0, 600, 1)).await.0, 512);
}

#[tokio::test(start_paused = true)]
async fn an_admission_that_nobody_takes_passes_on() {
    let scheduler = scheduler(1, 256);
    let first = scheduler.enqueue(job(0, 64, 4)).expect("room");
    let second = scheduler.enqueue(job(0, 64, 4)).expect("room");
    drop(first);
    assert!(second.admitted().await.is_some());
    assert_eq!(scheduler.counts().running, 0);
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded() {
    let scheduler = scheduler(1, 256);
    let tickets: Vec<_> = (0..9).map(|_| scheduler.enqueue(job(0, 64, 4))).collect();
    assert!(tickets.iter().all(Result::is_ok));
    assert_eq!(scheduler.enqueue(job(0, 64, 4)).err(), Some(QueueFull));
    drop(tickets);
    assert_eq!(scheduler.counts().running, 0);
}
