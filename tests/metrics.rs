//! What operators see.

use e2e::cached::{PATIENCE, with};
use e2e::guarded::plugin;
use e2e::pods::SERVICE;
use e2e::server::{Reply, Server};
use e2e::{CHAT, Caller, all_released, answer, say, setup, start, text};
use fleet::{Dns, Fleet, Stats};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

fn file(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// The words of a text that may be names of metrics.
fn words(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_part(c))
        .filter(|word| word.starts_with("rolter_"))
        .collect()
}

/// What there is to see where everything has happened that is documented: in a pool, and under a policy.
#[derive(Default)]
struct Seen {
    /// What Prometheus gets of the filter, and of the sidecar.
    filter: String,
    sidecar: String,
    /// The fields of the access log.
    fields: BTreeSet<String>,
}

impl Seen {
    async fn of(fleet: &Fleet, filter: String) -> Self {
        let log = fleet.access_log(1).await;
        let lines = log.iter().filter_map(Value::as_object);
        Self {
            filter,
            sidecar: fleet.ask_sidecar("/metrics").await.unwrap_or_default(),
            fields: lines.flat_map(|line| line.keys().cloned()).collect(),
        }
    }
}

/// See [`Seen`].
async fn eventful() -> Seen {
    let (pool, policy) = (eventful_pool().await, eventful_policy().await);
    Seen {
        filter: pool.filter + &policy.filter,
        sidecar: pool.sidecar,
        fields: &pool.fields | &policy.fields,
    }
}

async fn eventful_policy() -> Seen {
    let judge = Server::start(|_| Reply::never()).await;
    let rule = json!({"name": "any", "pattern": ".", "action": "report"});
    let plugin = plugin("judge", &json!({"timeout_ms": 100}));
    let policy = json!({"guardrails": [rule], "pii": {"kinds": ["email"]}, "plugins": [plugin]});
    let setup = setup(1, 1).guarded(policy).cluster("judge", judge.addr());
    let fleet = start(setup).await;
    let caller = Caller::new(&fleet);
    assert_eq!(caller.say("I am ann@example.com.").await.status, 503);
    let stream = with(&say("hello"), "/stream", json!(true));
    assert_eq!(caller.send(CHAT, &stream).await.status, 400);
    let filter = once_all_are_there(&fleet, Of::Policies).await;
    Seen::of(&fleet, filter).await
}

async fn eventful_pool() -> Seen {
    let dns = Dns::start().unwrap();
    dns.set_addresses(SERVICE, [IpAddr::from([127, 0, 0, 9])]);
    let server = dns.addr().to_string();
    let setup = setup(2, 2).watched().pool().configure(move |config| {
        config["sidecar"]["dns"] = json!({"servers": [server]});
        let named = json!({"name": "named", "endpoint": format!("{SERVICE}:1")});
        config["providers"].as_array_mut().unwrap().push(named);
        let nobody = "0".repeat(64);
        config["providers"][0]["allowed_keys"] = Value::Null;
        let mut private = config["providers"][0].clone();
        private["name"] = "private".into();
        private["endpoint"] = "127.0.0.1:1".into();
        private["allowed_keys"] = vec![nobody].into();
        private["kv_events"] = Value::Null;
        config["providers"].as_array_mut().unwrap().push(private);
        let mut route = config["routes"][1].clone();
        route["name"] = "private".into();
        route["match"] = json!({"path_prefix": "/private/"});
        route["targets"] = vec!["private"].into();
        config["routes"][0]["cache"] = json!({"scope": "route"});
        let mut moving = route.clone();
        moving["name"] = "moving".into();
        moving["match"] = json!({"path_prefix": "/moving/"});
        moving["targets"] = vec!["named"].into();
        let routes = config["routes"].as_array_mut().unwrap();
        routes.splice(0..0, [route, moving]);
    });
    let fleet = start(setup).await;
    let caller = Caller::new(&fleet);
    let prompt = text("metrics", 16);
    let home = caller.say(&prompt).await.engine;
    let engine = |name: &str| fleet.engines().iter().find(|engine| engine.name() == name);
    engine(&home)
        .unwrap()
        .set_fault(Some("503".parse().unwrap()));
    assert_eq!(caller.say(&prompt).await.status, 200);
    caller.request(CHAT).body("garbage").send().await.unwrap();
    let long = say(&text("long", 20_000));
    caller.send(CHAT, &long).await;
    assert_eq!(answer(caller.bodiless("/private/")).await.status, 403);
    assert_eq!(answer(caller.bodiless("/v1/models")).await.status, 200);
    all_released(&fleet).await;
    // Some are written with the next beat, and those that nobody has documented are waited for too.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let filter = once_all_are_there(&fleet, Of::Pools).await;
    Seen::of(&fleet, filter).await
}

/// What Prometheus gets once all that is documented of these is there, if it ever is.
async fn once_all_are_there(fleet: &Fleet, of: Of) -> String {
    let began = Instant::now();
    let page = file(PAGE);
    let wanted = documented(&page, "rolter_");
    let wanted: BTreeSet<&str> = wanted
        .into_iter()
        .filter(|name| Of::metric(name) == of)
        .collect();
    loop {
        let metrics = prometheus(fleet).await;
        if wanted.is_subset(&names(&metrics, "rolter_")) || began.elapsed() > PATIENCE {
            return metrics;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Where all of it is documented.
const PAGE: &str = "docs/metrics.md";
/// What the sidecar's begin with.
const SIDECAR: &str = "rolter_sidecar_";

/// What a metric of the filter is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Pools,
    Policies,
}

impl Of {
    fn metric(name: &str) -> Self {
        if name.starts_with("rolter_policy_") || name == "rolter_tokens" {
            Self::Policies
        } else {
            Self::Pools
        }
    }
}

/// The labels that a query groups by.
fn grouped_by(query: &str) -> impl Iterator<Item = &str> {
    let lists = query.split("by (").skip(1);
    let lists = lists.filter_map(|rest| rest.split(')').next());
    lists.flat_map(|list| list.split(", "))
}

/// The names in the tables of a page that begin so: those of the sidecar, or those that are not.
fn documented<'a>(page: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    let rows = page.lines().filter(|line| line.starts_with("| `rolter_"));
    let names = rows.filter_map(|row| row.split('|').nth(1)).flat_map(words);
    names.filter(|name| is_of(name, prefix)).collect()
}

fn is_of(name: &str, prefix: &str) -> bool {
    name.starts_with(prefix) && (prefix == SIDECAR) == name.starts_with(SIDECAR)
}

async fn prometheus(fleet: &Fleet) -> String {
    fleet.ask_admin("/stats/prometheus").await.unwrap()
}

/// The metrics that begin so by their names, without the suffixes of histograms.
fn names<'a>(metrics: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    let types = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .filter_map(|line| line.split(' ').next())
        .filter(|name| is_of(name, prefix))
        .collect()
}

#[tokio::test]
async fn everything_to_be_seen_is_documented_and_everything_documented_is_to_be_seen() {
    let (seen, page) = (eventful().await, file(PAGE));
    assert_eq!(documented(&page, "rolter_"), names(&seen.filter, "rolter_"));
    // Those of the cache have a test beside them, where Redis can fail. A counter's name has a suffix
    // that its type has not.
    let of_engines = |names: BTreeSet<&str>| -> BTreeSet<String> {
        let names = names
            .into_iter()
            .map(|name| name.trim_end_matches("_total").to_owned());
        names
            .filter(|name| !name.starts_with("rolter_sidecar_cache_"))
            .collect()
    };
    assert_eq!(
        of_engines(documented(&page, SIDECAR)),
        of_engines(names(&seen.sidecar, SIDECAR))
    );
    let (_, table) = page.split_once("\n| field | of | what |\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let fields = rows.filter_map(|row| row.split('|').nth(1));
    let fields = fields.flat_map(|names| names.split('`').skip(1).step_by(2));
    assert_eq!(
        fields.map(str::to_owned).collect::<BTreeSet<_>>(),
        seen.fields
    );
}

#[tokio::test]
async fn every_query_of_the_dashboard_names_metrics_and_labels_that_exist() {
    let metrics = eventful().await.filter;
    let dashboard: Value = serde_json::from_str(&file("envoy/grafana/rolter.json")).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push(target["expr"].as_str().unwrap());
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        queries.extend(variable["definition"].as_str());
    }
    assert!(queries.len() > 15, "{queries:?}");
    for query in queries {
        let asked = words(query);
        assert!(!asked.is_empty(), "{query}");
        for name in asked {
            let lines: Vec<_> = metrics
                .lines()
                .filter(|line| {
                    line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} "))
                })
                .collect();
            assert!(!lines.is_empty(), "{name} of {query}");
            for label in [
                "route", "target", "reason", "outcome", "rule", "plugin", "kind", "basis",
            ] {
                let asks =
                    query.contains(&format!("{label}=")) || grouped_by(query).any(|by| by == label);
                let has = lines
                    .iter()
                    .any(|line| line.contains(&format!("{label}=\"")));
                assert!(!asks || has, "{name} has no {label}, in {query}");
            }
        }
    }
}

/// Reports how long decisions take; how long they may, no test can say. Of very many in a second one in
/// eight is timed.
#[tokio::test]
async fn the_time_of_a_decision_over_eight_targets_is_reported() {
    let fleet = start(setup(8, 2)).await;
    let caller = Caller::new(&fleet);
    for number in 0..2_000 {
        caller.say(&text(&format!("{}", number % 50), 16)).await;
    }
    let all = timed_decisions(&fleet, 2_000 / 16).await;
    assert!((2_000 / 16..=2_000).contains(&all), "{all}");
    let buckets = decision_buckets(&prometheus(&fleet).await);
    for percent in [50, 90, 99] {
        let mut reached = buckets
            .iter()
            .filter(|(_, count)| count * 100 >= all * percent);
        let (bound, _) = reached.next().unwrap();
        eprintln!(
            "{percent} % of the decisions on 1 KiB prompts over 8 targets took at most {bound} µs"
        );
    }
}

/// Where there are more than one in a millisecond, what they count is told together, and one in eight
/// is timed.
#[tokio::test]
async fn what_very_many_requests_count_adds_up() {
    const CALLERS: u64 = 16;
    const EACH: u64 = 500;
    let fleet = start(setup(4, 1)).await;
    let asking = (0..CALLERS).map(|number| {
        let caller = Caller::new(&fleet);
        let prompt = text(&number.to_string(), 16);
        async move {
            for _ in 0..EACH {
                caller.say(&prompt).await;
            }
        }
    });
    join_all(asking).await;
    let counted = |stats: &Stats| {
        let answered = [("outcome", "answered")];
        let decisions = stats.filter("rolter_decisions", &[]);
        [decisions, stats.filter("rolter_outcomes", &answered)]
    };
    let all = [CALLERS * EACH; 2];
    let stats = fleet.stats_when(|stats| counted(stats) == all).await;
    assert_eq!(counted(&stats.unwrap()), all);
    all_released(&fleet).await;
    let shares = |stats: &Stats| {
        let shares = ["rolter_in_flight_share", "rolter_pending_tokens_share"];
        let shares = shares.map(|name| stats.labelled(name)).into_iter();
        shares.flatten().map(|(_, share)| share).sum::<u64>()
    };
    let stats = fleet.stats_when(|stats| shares(stats) == 0).await;
    assert_eq!(shares(&stats.unwrap()), 0);
    let timed = timed_decisions(&fleet, CALLERS * EACH / 16).await;
    assert!(timed < CALLERS * EACH, "there were never many at once");
}

/// How many decisions were timed, once it is so many at least.
async fn timed_decisions(fleet: &Fleet, wanted: u64) -> u64 {
    let mut timed = 0;
    // Envoy brings histograms up to date every five seconds.
    for _ in 0..100 {
        let buckets = decision_buckets(&prometheus(fleet).await);
        timed = buckets.last().map_or(0, |(_, all)| *all);
        if timed >= wanted {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    timed
}

/// How many decisions took at most so many microseconds.
fn decision_buckets(metrics: &str) -> Vec<(String, u64)> {
    let buckets = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix("rolter_decision_microseconds_bucket{le=\"")?;
        let (bound, count) = rest.split_once("\"} ")?;
        Some((bound.to_owned(), count.parse().ok()?))
    });
    buckets.collect()
}
