//! What a DNS server may answer, and what becomes of the targets then.

use super::pods::{self, NAME, Reader, pass, presence, targets_are};
use super::support::{Running, eventually, sidecar_of};
use engine_sim::{Engine, EngineConfig};
use fleet::DnsAnswer;
use reqwest::{Client, StatusCode};
use rolter_sidecar::discover::{LINGER, MAX_MEMBERS};
use rolter_sidecar::http::{App, NAMES_PATIENCE};
use serde_json::json;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// Look-ups that ended so, as the metrics tell.
fn lookups(app: &Arc<App>, what: &str) -> u64 {
    let text = rolter_sidecar::metrics::render(&app.state, &app.counts, None);
    let line = format!(r#"rolter_sidecar_lookups_total{{provider="vllm",what="{what}"}} "#);
    let count = text.lines().find_map(|found| found.strip_prefix(&line));
    count.unwrap().parse().unwrap()
}

/// Waits for some more look-ups that end so.
async fn ended_so(sidecar: &Running, what: &str) {
    let before = lookups(&sidecar.app, what);
    let look = || lookups(&sidecar.app, what);
    eventually(look, |count| *count > before + 1, &format!("{what}, twice")).await;
}

async fn status(sidecar: &Running, path: &str) -> StatusCode {
    let client = Client::builder().no_proxy().build().unwrap();
    client.get(sidecar.url(path)).send().await.unwrap().status()
}

#[tokio::test]
async fn an_answer_that_fails_or_is_empty_changes_nothing() {
    let service = pods::service();
    service.has([1, 2]);
    let sidecar = pods::sidecar(&service).await;
    let both = [1, 2].map(|pod| (service.target(pod), true));
    targets_are(&sidecar, &both).await;
    for (answer, what) in [
        (DnsAnswer::NoSuchName, "empty"),
        (DnsAnswer::Addresses(Vec::new()), "empty"),
        (DnsAnswer::Failure, "failed"),
        // None that anybody could be at.
        (
            DnsAnswer::Addresses(vec!["0.0.0.0".parse().unwrap()]),
            "empty",
        ),
    ] {
        service.dns.set(NAME, answer);
        ended_so(&sidecar, what).await;
        pass(LINGER).await;
        assert_eq!(presence(&sidecar), both.clone().into());
    }
    service.has([2, 3]);
    let expected = [
        (service.target(1), false),
        (service.target(2), true),
        (service.target(3), true),
    ];
    targets_are(&sidecar, &expected).await;
    ended_so(&sidecar, "found").await;
    // Whoever is gone is forgotten in its time all the same.
    service.dns.set(NAME, DnsAnswer::Failure);
    ended_so(&sidecar, "failed").await;
    pass(LINGER).await;
    targets_are(&sidecar, &expected[1..]).await;
    sidecar.stop().await;
}

#[tokio::test]
async fn a_server_that_says_nothing_stops_nothing_else() {
    let service = pods::service();
    let engine = Engine::start(EngineConfig::default(), "127.0.0.1:0".parse().unwrap()).unwrap();
    service.dns.set(NAME, DnsAnswer::Silence);
    let mut document = pods::document(&service);
    let base = format!("http://{}", engine.addr());
    let other = json!({"name": "other", "endpoint": engine.addr().to_string(), "api_base": base});
    document["providers"].as_array_mut().unwrap().push(other);
    document["routes"][0]["targets"] = json!(["vllm", "other"]);
    let sidecar = sidecar_of(&document).await;
    let asked = || service.dns.asked();
    eventually(asked, |asked| *asked > 0, "a question").await;
    // Not ready, but there; and the other target is asked how it is.
    assert_eq!(
        status(&sidecar, "/readyz").await,
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(status(&sidecar, "/healthz").await, StatusCode::OK);
    let healthy = || sidecar.state.targets()[0].seen().healthy;
    eventually(
        healthy,
        |healthy| *healthy == Some(true),
        "a healthy engine",
    )
    .await;
    let mut reader = Reader::default();
    assert_eq!(reader.read(&sidecar).await.members[0].members, None);
    // That nobody answers is no answer, but is not waited for for ever.
    let failed = || lookups(&sidecar.app, "failed");
    eventually(failed, |failed| *failed > 0, "a failure").await;
    assert_eq!(
        status(&sidecar, "/readyz").await,
        StatusCode::SERVICE_UNAVAILABLE
    );
    pass(NAMES_PATIENCE).await;
    assert_eq!(status(&sidecar, "/readyz").await, StatusCode::OK);
    service.has([1, 2]);
    let target = |name: &str| (name.to_owned(), true);
    let mut all = vec![
        target("other"),
        target(&service.target(1)),
        target(&service.target(2)),
    ];
    targets_are(&sidecar, &all).await;
    // While it is silent again, who is gone is forgotten.
    service.has([2]);
    all[1].1 = false;
    targets_are(&sidecar, &all).await;
    service.dns.set(NAME, DnsAnswer::Silence);
    let before = service.dns.asked();
    eventually(asked, |asked| *asked > before, "another question").await;
    pass(LINGER).await;
    all.remove(1);
    targets_are(&sidecar, &all).await;
    // And it can be ended while it waits.
    sidecar.stop().await;
}

#[tokio::test]
async fn who_is_ready_has_an_answer_for_each_name() {
    let service = pods::service();
    service.dns.set(NAME, DnsAnswer::Failure);
    let sidecar = pods::sidecar(&service).await;
    ended_so(&sidecar, "failed").await;
    let waiting = StatusCode::SERVICE_UNAVAILABLE;
    assert_eq!(status(&sidecar, "/readyz").await, waiting);
    // That it has no address is one.
    service.dns.set(NAME, DnsAnswer::NoSuchName);
    ended_so(&sidecar, "empty").await;
    assert_eq!(status(&sidecar, "/readyz").await, StatusCode::OK);
    // What fails later takes nothing back.
    service.dns.set(NAME, DnsAnswer::Failure);
    ended_so(&sidecar, "failed").await;
    assert_eq!(status(&sidecar, "/readyz").await, StatusCode::OK);
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_cut_off_is_had_over_tcp() {
    let service = pods::service();
    service.has(1..=100);
    let sidecar = pods::sidecar(&service).await;
    let count = || presence(&sidecar).len();
    eventually(count, |count| *count == 100, "all of them").await;
    // Again and again.
    ended_so(&sidecar, "found").await;
    assert!(service.dns.asked_over_tcp() > 1);
    assert_eq!(lookups(&sidecar.app, "failed"), 0);
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_beyond_the_bound_are_passed_over_and_counted() {
    let service = pods::service();
    service.has(101..=656);
    let sidecar = pods::sidecar(&service).await;
    let passed_over = || sidecar.state.names()[0].counts.passed_over();
    eventually(passed_over, |count| *count == 44, "44 passed over").await;
    let first = presence(&sidecar);
    assert_eq!(first.len(), MAX_MEMBERS);
    // Others do not take their places.
    service.has(1..=656);
    eventually(passed_over, |count| *count == 144, "144 passed over").await;
    assert_eq!(presence(&sidecar), first);
    service.has(101..=200);
    eventually(passed_over, |count| *count == 0, "none passed over").await;
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_of_ipv6_count_where_there_are_none_of_ipv4() {
    let service = pods::service();
    let v6: IpAddr = "::1".parse().unwrap();
    service.dns.set_addresses(NAME, [v6]);
    let sidecar = pods::sidecar(&service).await;
    let name = format!("vllm/[::1]:{}", service.address(1).port());
    targets_are(&sidecar, &[(name.clone(), true)]).await;
    assert_eq!(
        sidecar.state.targets()[0].api_base,
        Some(format!("http://[::1]:{}", service.address(1).port()))
    );
    service.dns.set_addresses(NAME, [v6, service.ip(1)]);
    targets_are(&sidecar, &[(name, false), (service.target(1), true)]).await;
    sidecar.stop().await;
}

#[tokio::test]
async fn two_providers_at_one_address_are_warned_of_once() {
    let service = pods::service();
    service.has([1, 2]);
    let mut document = pods::document(&service);
    let alias = "alias.test";
    service
        .dns
        .set_addresses(alias, [service.ip(1), service.ip(2)]);
    let port = service.address(1).port();
    let providers = document["providers"].as_array_mut().unwrap();
    providers.push(json!({"name": "alias", "endpoint": format!("{alias}:{port}")}));
    providers.push(json!({"name": "fixed", "endpoint": service.address(3).to_string()}));
    document["routes"][0]["targets"] = json!(["vllm", "alias", "fixed"]);
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false);
    let subscriber = subscriber.with_writer(move || writer.clone()).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let sidecar = sidecar_of(&document).await;
    let warned = || log.text().matches("two targets at one address").count();
    eventually(warned, |count| *count > 0, "a warning").await;
    // Others that come to both are not told of again, but whoever is at a fixed address is.
    service.has([1, 2, 3, 4]);
    let all = [1, 2, 3, 4].map(|pod| service.ip(pod));
    service.dns.set_addresses(alias, all);
    let count = || presence(&sidecar).len();
    eventually(count, |count| *count == 9, "nine targets").await;
    ended_so(&sidecar, "found").await;
    let text = log.text();
    let lines = text.lines().filter(|line| line.contains("at one address"));
    let fixed = lines
        .clone()
        .filter(|line| line.contains(r#"other="fixed""#));
    assert_eq!(fixed.count(), 2, "{text}");
    assert!(lines.count() <= 4, "{text}");
    drop(guard);
    sidecar.stop().await;
}

/// What is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
