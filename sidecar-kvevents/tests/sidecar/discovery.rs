//! Targets that come and go, each a pod with a real engine.

use super::pods::{self, NAME, Reader, pass, presence, prompt, targets_are};
use super::support::{PATIENCE, Running, eventually, sidecar_of};
use fleet::DnsAnswer;
use reqwest::{Client, StatusCode};
use rolter_core::kv::members::Member;
use rolter_sidecar::discover::LINGER;
use serde_json::json;
use std::time::Duration;

async fn get(address: std::net::SocketAddr, path: &str) -> (StatusCode, String) {
    let client = Client::builder().no_proxy().build().unwrap();
    let request = client.get(format!("http://{address}{path}"));
    let answer = request.timeout(PATIENCE).send().await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

async fn metrics(sidecar: &Running) -> String {
    get(sidecar.metrics, "/metrics").await.1
}

/// Waits until a target says that it is well.
async fn is_well(sidecar: &Running, target: &str) {
    let seen = || {
        let targets = sidecar.state.targets();
        let found = targets.iter().find(|found| found.name == target);
        found.and_then(|found| found.seen().healthy)
    };
    eventually(seen, |healthy| *healthy == Some(true), "a healthy target").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_address_is_a_target_that_is_followed_by_itself() {
    let service = pods::service();
    let pods = [pods::started(&service, 1), pods::started(&service, 2)];
    service.has([1, 2]);
    let sidecar = pods::sidecar(&service).await;
    targets_are(&sidecar, &[1, 2].map(|pod| (service.target(pod), true))).await;
    prompt(&pods[0], "one two three ").await;
    prompt(&pods[1], "four five six ").await;
    let mut reader = Reader::default();
    let first = reader.blocks_of(&sidecar, &service.target(1)).await;
    let second = reader.blocks_of(&sidecar, &service.target(2)).await;
    assert!(first.is_disjoint(&second));
    is_well(&sidecar, &service.target(1)).await;
    is_well(&sidecar, &service.target(2)).await;

    // One more comes, and the others keep what they have.
    let third = pods::started(&service, 3);
    service.has([3, 1, 2]);
    targets_are(&sidecar, &[1, 2, 3].map(|pod| (service.target(pod), true))).await;
    prompt(&third, "seven eight nine ").await;
    let page = {
        reader.blocks_of(&sidecar, &service.target(3)).await;
        reader.page.clone()
    };
    assert!(first.is_subset(&reader.blocks()) && second.is_subset(&reader.blocks()));
    let member = |pod| Member {
        address: service.address(pod),
        present: true,
    };
    assert_eq!(page.members.len(), 1);
    assert_eq!(page.members[0].provider, "vllm");
    assert_eq!(page.members[0].members, Some([1, 2, 3].map(member).into()));
    let names = page.targets.iter().map(|target| target.target.clone());
    let expected = [1, 2, 3].map(|pod| service.target(pod));
    assert_eq!(names.collect::<Vec<_>>(), expected);
    let names = page.replicas.iter().map(|replica| replica.target.clone());
    assert_eq!(names.collect::<Vec<_>>(), expected);

    let (status, text) = get(sidecar.metrics, "/readyz").await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains("; targets of vllm: 3, gone: 0\n"), "{text}");
    let metrics = metrics(&sidecar).await;
    for line in [
        r#"rolter_sidecar_members{provider="vllm",what="present"} 3"#,
        r#"rolter_sidecar_members{provider="vllm",what="gone"} 0"#,
        r#"rolter_sidecar_passed_over_addresses{provider="vllm"} 0"#,
        r#"rolter_sidecar_lookup_age_seconds{provider="vllm"}"#,
        &format!(
            r#"rolter_sidecar_kv_blocks{{provider="{}",rank="0"}}"#,
            service.target(1)
        ),
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    sidecar.stop().await;
}

#[tokio::test]
async fn one_that_is_gone_keeps_what_it_has_for_a_minute_and_then_nothing_is_left_of_it() {
    let service = pods::service();
    let pods = [pods::started(&service, 1), pods::started(&service, 2)];
    service.has([1, 2]);
    let sidecar = pods::sidecar(&service).await;
    let both = |is_second_present| {
        [
            (service.target(1), true),
            (service.target(2), is_second_present),
        ]
    };
    targets_are(&sidecar, &both(true)).await;
    prompt(&pods[1], "one two three ").await;
    let mut reader = Reader::default();
    let known = reader.blocks_of(&sidecar, &service.target(2)).await;

    // It is not ready for a while, in which its events go on.
    service.has([1]);
    targets_are(&sidecar, &both(false)).await;
    pass(LINGER / 2).await;
    prompt(&pods[1], "four five six ").await;
    let more = |reader: &Reader| known.is_subset(&reader.blocks()) && reader.blocks() != known;
    let began = std::time::Instant::now();
    while !more(&reader) {
        assert!(began.elapsed() < PATIENCE, "it is followed");
        reader.read(&sidecar).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let gone = &reader.page.members[0].members.as_ref().unwrap()[1];
    assert_eq!((gone.address, gone.present), (service.address(2), false));
    let (status, text) = get(sidecar.metrics, "/readyz").await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains("; targets of vllm: 1, gone: 1\n"), "{text}");
    let all = reader.blocks();
    service.has([1, 2]);
    targets_are(&sidecar, &both(true)).await;
    pass(LINGER).await;
    reader.read(&sidecar).await;
    assert_eq!(reader.blocks(), all);

    // It is gone for good.
    service.has([1]);
    targets_are(&sidecar, &both(false)).await;
    let numbers = sidecar.state.index().numbers();
    pass(LINGER).await;
    targets_are(&sidecar, &both(true)[..1]).await;
    reader.read(&sidecar).await;
    assert!(reader.blocks().is_empty());
    let names = reader.page.replicas.iter().map(|replica| &replica.target);
    assert!(!names.clone().any(|name| *name == service.target(2)));
    assert_eq!(reader.page.members[0].members.as_ref().unwrap().len(), 1);
    assert_eq!(reader.page.targets.len(), 1);
    let text = metrics(&sidecar).await;
    assert!(!text.contains(&service.target(2)), "{text}");

    // Another one gets its number, and nothing else of it.
    let third = pods::started(&service, 3);
    service.has([1, 3]);
    let expected = [(service.target(1), true), (service.target(3), true)];
    targets_are(&sidecar, &expected).await;
    assert_eq!(sidecar.state.index().numbers(), numbers);
    reader.read(&sidecar).await;
    assert!(reader.blocks().is_empty());
    prompt(&third, "seven eight nine ").await;
    let new = reader.blocks_of(&sidecar, &service.target(3)).await;
    assert!(new.is_disjoint(&all));
    sidecar.stop().await;
}

#[tokio::test]
async fn another_pod_at_the_same_address_has_nothing_of_the_last_one() {
    let service = pods::service();
    let pod = pods::started(&service, 1);
    service.has([1]);
    let sidecar = pods::sidecar(&service).await;
    let (here, gone) = ((service.target(1), true), (service.target(1), false));
    targets_are(&sidecar, std::slice::from_ref(&here)).await;
    prompt(&pod, "one two three ").await;
    let mut reader = Reader::default();
    let old = reader.blocks_of(&sidecar, &service.target(1)).await;

    // Within the minute it is a restart of the same target.
    let other = pods::started(&service, 2);
    service.has([2]);
    targets_are(&sidecar, &[gone.clone(), (service.target(2), true)]).await;
    drop(pod);
    let pod = pods::started(&service, 1);
    service.has([1, 2]);
    targets_are(&sidecar, &[here.clone(), (service.target(2), true)]).await;
    prompt(&pod, "four five six ").await;
    let began = std::time::Instant::now();
    let new = loop {
        let blocks = reader.blocks_of(&sidecar, &service.target(1)).await;
        if blocks.is_disjoint(&old) {
            break blocks;
        }
        assert!(began.elapsed() < PATIENCE, "the old ones are forgotten");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };

    // After it, it is a new target.
    service.has([2]);
    targets_are(&sidecar, &[gone, (service.target(2), true)]).await;
    pass(LINGER).await;
    targets_are(&sidecar, &[(service.target(2), true)]).await;
    drop(pod);
    let pod = pods::started(&service, 1);
    service.has([1, 2]);
    targets_are(&sidecar, &[here, (service.target(2), true)]).await;
    prompt(&pod, "seven eight nine ").await;
    let blocks = reader.blocks_of(&sidecar, &service.target(1)).await;
    assert!(blocks.is_disjoint(&new) && blocks.is_disjoint(&old));
    sidecar.stop().await;
    drop(other);
}

#[tokio::test]
async fn token_ids_are_asked_of_a_pod_that_the_name_has() {
    let service = pods::service();
    let pods = [pods::started(&service, 1), pods::started(&service, 2)];
    service.has([1, 2]);
    let sidecar = pods::sidecar(&service).await;
    targets_are(&sidecar, &[1, 2].map(|pod| (service.target(pod), true))).await;
    service.has([2]);
    let one = [(service.target(1), false), (service.target(2), true)];
    targets_are(&sidecar, &one).await;
    // Whoever asks the one that is gone gets nothing.
    let [gone, pod] = pods;
    drop(gone);
    for _ in 0..20 {
        let client = Client::builder().no_proxy().build().unwrap();
        let url = sidecar.url("/v1/tokenize?route=chat&timeout_ms=30000");
        let request = client.post(url).header("x-rolter-path", "/v1/completions");
        let body = json!({"model": "m", "prompt": "one two three"});
        let answer = request.body(body.to_string()).timeout(PATIENCE).send();
        assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
    }
    drop(pod);
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pod_is_asked_with_the_key_of_the_provider() {
    /// Is there wherever cargo runs tests.
    const VARIABLE: &str = "CARGO_MANIFEST_DIR";
    use axum::{Router, http::HeaderMap, routing};
    let service = pods::service();
    let (keys, mut seen) = tokio::sync::mpsc::unbounded_channel();
    for pod in [1, 2] {
        let keys = keys.clone();
        let health = move |headers: HeaderMap| async move {
            let key = headers.get("authorization").cloned();
            drop(keys.send((pod, key.map(|key| key.to_str().unwrap().to_owned()))));
        };
        let listener = tokio::net::TcpListener::bind(service.address(pod)).await;
        let (listener, router) = (listener.unwrap(), Router::new());
        let router = router.route("/health", routing::get(health));
        tokio::spawn(async move { axum::serve(listener, router).await });
    }
    service.has([1, 2]);
    let mut document = pods::document(&service);
    document["providers"][0]["api_key_env"] = json!(VARIABLE);
    document["providers"][0]["kv_events"] = json!(null);
    let sidecar = sidecar_of(&document).await;
    let expected = format!("Bearer {}", std::env::var(VARIABLE).unwrap());
    let mut pods = std::collections::BTreeSet::new();
    while pods.len() < 2 {
        let (pod, key) = super::support::within_patience("a question", seen.recv())
            .await
            .unwrap();
        assert_eq!(key.as_ref(), Some(&expected));
        pods.insert(pod);
    }
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_waits_is_told_at_once_who_has_come() {
    let service = pods::service();
    service.dns.set(NAME, DnsAnswer::NoSuchName);
    let sidecar = pods::sidecar(&service).await;
    let answered = || sidecar.state.names()[0].counts.is_answered();
    eventually(answered, |is_answered| *is_answered, "a look-up").await;
    let mut reader = Reader::default();
    assert_eq!(reader.read(&sidecar).await.members[0].members, None);
    let cursor = reader.page.cursor.clone();
    let url = sidecar.url(&format!("/v1/feed?wait_ms=30000&cursor={cursor}"));
    let waiting = async {
        let client = Client::builder().no_proxy().build().unwrap();
        let answer = client.get(url).timeout(PATIENCE).send().await.unwrap();
        rolter_core::kv::feed::Page::from_bytes(&answer.bytes().await.unwrap()).unwrap()
    };
    let coming = async {
        let readers = || {
            let readers = &sidecar.app.counts.feed_readers;
            readers.load(std::sync::atomic::Ordering::Relaxed)
        };
        eventually(readers, |readers| *readers > 0, "a reader").await;
        service.has([1]);
    };
    let (page, ()) = tokio::join!(waiting, coming);
    assert_eq!(page.members[0].members.as_ref().unwrap().len(), 1);
    assert_eq!(presence(&sidecar).len(), 1);
    sidecar.stop().await;
}
