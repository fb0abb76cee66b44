//! A headless service for tests, as Envoy and the filter know it.

use crate::setup;
use engine_sim::{Engine, EngineConfig};
use fleet::{DnsAnswer, Setup};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The name of the service.
pub const SERVICE: &str = fleet::Pods::NAME;

/// The pods of a service that run, and those that its name has.
pub struct Pods {
    service: fleet::Pods,
    engine: EngineConfig,
    running: BTreeMap<u8, Engine>,
    named: Vec<u8>,
}

impl Pods {
    /// A service without pods.
    ///
    /// # Panics
    /// Where there are no free ports.
    #[expect(clippy::new_without_default, reason = "it takes ports")]
    pub fn new() -> Self {
        Self {
            service: fleet::Pods::new().unwrap(),
            engine: setup(1, 1).engines.remove(0),
            running: BTreeMap::new(),
            named: Vec::new(),
        }
    }

    /// With pods of this kind.
    #[must_use]
    pub fn of(self, engine: EngineConfig) -> Self {
        Self { engine, ..self }
    }

    /// With so many pods, from number 1 on, that are ready.
    #[must_use]
    pub fn ready(mut self, count: u8) -> Self {
        for number in 1..=count {
            self.start(number);
            self.admit(number);
        }
        self
    }

    /// Starts a pod, which is not ready yet: nobody finds it. What it is called as a target.
    ///
    /// # Panics
    /// Where its ports are taken.
    pub fn start(&mut self, number: u8) -> String {
        let target = self.target(number);
        let engine = self.service.start(number.into(), self.engine.clone());
        let engine = engine.unwrap_or_else(|error| panic!("{target}: {error}"));
        self.running.insert(number, engine);
        target
    }

    /// Ends a pod at once.
    pub fn kill(&mut self, number: u8) {
        self.running.remove(&number);
    }

    /// Lets the name have a pod's address.
    pub fn admit(&mut self, number: u8) {
        self.named.push(number);
        self.tell();
    }

    /// Takes a pod's address out of the name.
    pub fn withdraw(&mut self, number: u8) {
        self.named.retain(|&named| named != number);
        self.tell();
    }

    /// What a pod is called as a target.
    pub fn target(&self, number: u8) -> String {
        self.service.target(number.into())
    }

    /// Has the name server fail until pods change.
    pub fn fail_names(&self) {
        self.service.dns.set(SERVICE, DnsAnswer::Failure);
    }

    fn tell(&self) {
        self.service.has(self.named.iter().copied().map(u16::from));
    }

    /// A setup whose one provider is the service, by its name.
    #[must_use]
    pub fn setup(&self, workers: usize) -> Setup {
        let (server, provider) = (self.service.dns.addr(), self.service.provider());
        let port = self.service.address(0).port();
        let mut setup = setup(0, workers).pool();
        setup.sidecar = true;
        setup
            .configure(move |config| {
                config["sidecar"]["dns"] = json!({"servers": [server], "refresh_secs": 1});
                config["providers"] = json!([provider]);
                for route in config["routes"].as_array_mut().into_iter().flatten() {
                    route["targets"] = json!(["vllm"]);
                }
            })
            .finish(move |document| by_name(document, port, server))
    }
}

/// Has Envoy look for the engines by their name.
fn by_name(document: &mut Value, port: u16, server: SocketAddr) {
    let clusters = document["static_resources"]["clusters"].as_array_mut();
    let mut clusters = clusters.into_iter().flatten();
    let Some(engines) = clusters.find(|cluster| cluster["name"] == "engines") else {
        panic!("no cluster of engines in envoy/pool.yaml");
    };
    let socket =
        |host: &str, port| json!({"socket_address": {"address": host, "port_value": port}});
    engines["type"] = json!("STRICT_DNS");
    engines["dns_lookup_family"] = json!("V4_PREFERRED");
    engines["dns_refresh_rate"] = json!("1s");
    engines["respect_dns_ttl"] = json!(false);
    engines["load_assignment"]["endpoints"] =
        json!([{"lb_endpoints": [{"endpoint": {"address": socket(SERVICE, port)}}]}]);
    engines["typed_dns_resolver_config"] = json!({
        "name": "envoy.network.dns_resolver.cares",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
            "resolvers": [socket(&server.ip().to_string(), server.port())],
            "dns_resolver_options": {"no_default_search_domain": true},
        },
    });
}
