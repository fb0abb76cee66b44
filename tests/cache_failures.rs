//! Answers that must not be kept: what is cut, failed, encoded or too long, wherever it breaks.

use e2e::cached::{ALICE, Cached, PATIENCE, cached, each_api, fetch, reply, with};
use e2e::{CHAT, Caller, all_released, say};
use engine_sim::expected_answer;
use futures_util::StreamExt;
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Answers that were not kept for this reason, whether the filter saw it or the sidecar.
async fn refused(cached: &Cached, reason: &str) -> u64 {
    let stats = cached.fleet.stats().await.unwrap();
    let by_filter = stats.filter("rolter_cache_captures", &[("outcome", reason)]);
    by_filter + cached.counted("refusals", &[("reason", reason)]).await
}

/// Does something after which one more answer is not kept for this reason, and waits until that is
/// counted.
async fn refusing<T>(cached: &Cached, reason: &str, what: impl Future<Output = T>) -> T {
    let before = refused(cached, reason).await;
    let done = what.await;
    let start = Instant::now();
    while refused(cached, reason).await == before {
        assert!(
            start.elapsed() < PATIENCE,
            "nothing was refused for {reason}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(refused(cached, reason).await, before + 1, "{reason}");
    done
}

/// Asserts that nothing is there for a request, and that its next answer is right and is kept.
async fn is_untouched(cached: &Cached, path: &str, body: &Value) {
    let whole = cached.store(cached.request(path, body), "exact").await;
    if whole.content_type == "application/json"
        && let Some(expected) = expected_answer(path, body)
    {
        assert!(whole.text().contains(&expected), "{}", whole.text());
    }
    let again = cached.ask(path, body).await;
    assert_eq!(again.told(), (200, "hit", "exact"), "{path} {body}");
    assert_eq!(again.body, whole.body);
}

#[tokio::test]
async fn what_breaks_or_fails_is_not_kept_whatever_the_api() {
    let cached = Cached::start(cached(1, 1)).await;
    let mut number = 0;
    for (path, body) in each_api() {
        for (fault, status, reason) in [
            ("cut=2", Some(200), "incomplete"),
            ("cut=0", Some(200), "incomplete"),
            ("error=2", Some(200), "error"),
            ("reset=2", None, "incomplete"),
            ("gzip", Some(200), "encoded"),
            ("500", Some(500), "status"),
        ] {
            number += 1;
            let body = with(&body, "/number", json!(number));
            let request = cached.request(path, &body).header("x-sim-fault", fault);
            let broken = refusing(&cached, reason, fetch(request)).await.ok();
            // A reset is no answer; all the others are one to HTTP.
            let told = broken.as_ref().map(|reply| reply.status);
            assert_eq!(told, status, "{path} {fault} {broken:?}");
            is_untouched(&cached, path, &body).await;
        }
    }
    all_released(&cached.fleet).await;
    assert!(!cached.fleet.panicked());
}

#[tokio::test]
async fn what_is_over_the_limit_passes_and_is_not_kept() {
    let setup = cached(1, 1).with("/routes/0/cache/max_entry_bytes", 4096);
    let cached = Cached::start(setup).await;
    for stream in [false, true] {
        let mut body = say("hello");
        body["stream"] = json!(stream);
        is_untouched(&cached, CHAT, &body).await;
        // Four bytes a token, and in a stream an event.
        body["max_tokens"] = json!(2000);
        for _ in 0..2 {
            let request = cached.request(CHAT, &body);
            let long = refusing(&cached, "too_large", reply(request)).await;
            assert_eq!(long.told(), (200, "miss", ""));
            assert_eq!(long.said().len(), 8000);
        }
    }
    assert!(!cached.fleet.panicked());
}

/// Sends a request on a connection of its own, leaves once so much of the answer has come, and
/// returns that.
async fn leave(request: RequestBuilder, enough: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    if let Ok(response) = request.send().await {
        let mut pieces = response.bytes_stream();
        while !enough(&text)
            && let Some(Ok(piece)) = pieces.next().await
        {
            text += &String::from_utf8_lossy(&piece);
        }
    }
    text
}

#[tokio::test]
async fn clients_that_leave_in_the_middle_leave_nothing_behind() {
    let cached = Cached::start(cached(1, 1)).await;
    let mut number = 0;
    for (path, body) in each_api() {
        for fault in ["stall=2", "hang"] {
            number += 1;
            let body = with(&body, "/number", json!(number));
            let caller = Caller::new(&cached.fleet);
            let request = caller
                .request(path)
                .bearer_auth(ALICE)
                .json(&body)
                .header("x-sim-fault", fault);
            let left = async {
                if fault == "hang" {
                    let served = cached.served();
                    let hung = tokio::spawn(request.send());
                    while cached.served() == served {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    hung.abort();
                } else {
                    let begun = leave(request, |text| !text.is_empty()).await;
                    assert!(!begun.is_empty());
                }
                drop(caller);
            };
            refusing(&cached, "incomplete", left).await;
            is_untouched(&cached, path, &body).await;
        }
    }
    all_released(&cached.fleet).await;
    assert!(!cached.fleet.panicked());
}

/// Clients of streams know the last event, and do not wait for the end of the body.
#[tokio::test]
async fn clients_that_leave_after_the_last_byte_have_their_answer_kept() {
    let cached = Cached::start(cached(1, 1)).await;
    for (number, (path, body)) in each_api().into_iter().enumerate() {
        let is_stream = body["stream"] == true;
        // In one of these the end of the body never comes.
        for fault in ["slow=1", "stall=999"] {
            if fault == "stall=999" && !is_stream {
                continue;
            }
            let body = with(&body, "/number", json!(format!("{number} {fault}")));
            let before = cached.counted("stores", &[("cache", "exact")]).await;
            let caller = Caller::new(&cached.fleet);
            let request = caller
                .request(path)
                .bearer_auth(ALICE)
                .json(&body)
                .header("x-sim-fault", fault);
            let first = leave(request, |text| {
                let ends = ["data: [DONE]\n\n", "message_stop", "response.completed"];
                let has_ended = ends.iter().any(|end| text.contains(end));
                let is_json = || serde_json::from_str::<Value>(text).is_ok();
                (is_stream && has_ended && text.ends_with("\n\n")) || (!is_stream && is_json())
            });
            let first = first.await;
            drop(caller);
            cached
                .until_counted("stores", &[("cache", "exact")], before + 1)
                .await;
            let again = cached.ask(path, &body).await;
            assert_eq!(again.told(), (200, "hit", "exact"), "{path} {fault}");
            assert_eq!(again.text(), first);
        }
    }
    all_released(&cached.fleet).await;
}
