//! The contenders that are an Envoy. All have the documented `envoy/pool.yaml` without its access log,
//! which no other contender writes, and differ in the filter alone; without any, Envoy takes the
//! upstreams in turn.

use super::{Contender, Strategy, Upstream, installed};
use fleet::{Fleet, Setup};
use serde_json::{Value, json};
use std::io;

/// Starts one.
pub(super) async fn start(
    contender: Contender,
    upstreams: &[Upstream],
    workers: usize,
) -> io::Result<Fleet> {
    let named = upstreams.iter().map(|one| (one.name.clone(), one.addr));
    let setup = Setup::before(named).pool().workers(workers);
    let setup = setup.finish(without_access_log);
    let strategy = match contender {
        Contender::Rolter(strategy) => strategy,
        Contender::Floor => {
            let default = "target/wasm32-wasip1/release/rolter_floor.wasm";
            let module = installed("ROLTER_FLOOR_WASM", default)?;
            let addrs: Vec<String> = upstreams.iter().map(|one| one.addr.to_string()).collect();
            let endpoints = format!("are {}", addrs.join(","));
            let setup = setup.configure(move |config| *config = json!({"endpoints": endpoints}));
            return Fleet::start(setup.module(module)).await;
        }
        _ => return Fleet::start(setup.finish(without_filter)).await,
    };
    let setup = setup.configure(move |config| choose(config, strategy));
    if strategy != Strategy::PreciseCacheAware {
        return Fleet::start(setup).await;
    }
    let told: Vec<Value> = upstreams.iter().map(told).collect();
    let setup = Setup {
        sidecar: true,
        ..setup
    }
    .configure(move |config| {
        config["routes"][0]["precise_cache_aware"] = json!({"tokenize": true});
        let providers = config["providers"].as_array_mut();
        for (provider, told) in providers.into_iter().flatten().zip(&told) {
            provider["api_base"] = told["api_base"].clone();
            provider["kv_events"] = told["kv_events"].clone();
        }
    });
    let fleet = Fleet::start(setup).await?;
    let connected = |stats: &fleet::Stats| stats.filter("rolter_feed_connected", &[]) > 0;
    if connected(&fleet.stats_when(connected).await?) {
        Ok(fleet)
    } else {
        let log = fleet.sidecar_log();
        Err(io::Error::other(format!(
            "the filter does not hear from the sidecar:\n{log}"
        )))
    }
}

/// The route of chats under a strategy with its defaults, and no fields for a log that is not there.
fn choose(config: &mut Value, strategy: Strategy) {
    config["log_fields"] = json!(false);
    let name = match strategy {
        Strategy::RoundRobin => "round_robin",
        Strategy::CacheAware => "cache_aware",
        Strategy::Pipeline => "pipeline",
        Strategy::PreciseCacheAware => "precise_cache_aware",
    };
    let route = &mut config["routes"][0];
    route["strategy"] = json!(name);
    // Those that are documented are the defaults, and the filter refuses options without an effect.
    if let Some(route) = route.as_object_mut() {
        route.remove("cache_aware");
    }
}

/// What the sidecar is told of an engine.
fn told(upstream: &Upstream) -> Value {
    let mut told = json!({"api_base": format!("http://{}", upstream.addr)});
    if let Some(address) = &upstream.kv_events {
        told["kv_events"] = json!({"endpoint": address.endpoint});
        if let Some(replay) = &address.replay {
            told["kv_events"]["replay_endpoint"] = json!(replay);
        }
    }
    told
}

/// The part of the document that takes requests.
fn manager(document: &mut Value) -> &mut Value {
    &mut document["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
}

fn without_access_log(document: &mut Value) {
    if let Some(manager) = manager(document).as_object_mut() {
        manager.remove("access_log");
    }
}

/// Leaves nothing before the router, and nothing that goes by what a filter says.
fn without_filter(document: &mut Value) {
    if let Some(filters) = manager(document)["http_filters"].as_array_mut() {
        filters.retain(|filter| filter["name"] == "envoy.filters.http.router");
    }
    let cluster = document["static_resources"]["clusters"][0].as_object_mut();
    if let Some(cluster) = cluster {
        cluster.remove("load_balancing_policy");
        cluster.remove("typed_extension_protocol_options");
    }
}
