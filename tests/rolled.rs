//! A fleet as the chart would roll it out: the sidecar reads the rendered `ConfigMap`, and Envoy gets
//! the rendered configuration, or what Istio makes of it. Only what is a place on a machine is another:
//! addresses, ports, and paths of files.

use crate::chart::{Rendered, over, project, render};
use crate::mesh::{Mesh, merge};
use crate::pods::Pods;
use crate::{Answer, CHAT, Caller, answer, say, text};
use fleet::{Fleet, Reach, Setup, module};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// Where the chart has the sidecar's socket, and the module.
const SOCKET: &str = "/run/rolter/sidecar.sock";
const MODULE: &str = "/etc/rolter-filter/plugin.wasm";

/// A setup from the chart, and the folder with what Envoy fetches, which must outlive the fleet.
pub struct Rolled {
    /// What to start.
    pub setup: Setup,
    /// The files.
    pub folder: TempDir,
}

/// The setup, rolled out with these values, which need not name the engines: the document that the
/// chart gets is the setup's own.
///
/// # Panics
/// On the start, where the chart refuses the values, or Istio would refuse what it renders.
pub fn rolled(setup: Setup, values: Value) -> Rolled {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let extensions = folder.path().to_owned();
    let reach = setup.reach;
    let rendered = Arc::new(Mutex::new(None));
    let given = Arc::clone(&rendered);
    let mode = values["mode"].as_str().unwrap_or_default().to_owned();
    let setup = setup
        .configure(move |config| {
            let listen = config["sidecar"]["listen"].take();
            let socket = listen
                .as_str()
                .and_then(|listen| listen.strip_prefix("unix://"));
            let socket = socket.unwrap_or_default().to_owned();
            let mut all = json!({"rolter": config, "clusters": {}});
            let dns = config["sidecar"]["dns"].clone();
            let server = dns["servers"][0].as_str().map(str::to_owned);
            all["rolter"]["sidecar"] = if dns.is_null() {
                json!({})
            } else {
                json!({"dns": dns})
            };
            if reach == Reach::Cluster {
                all["clusters"] = addresses(config);
            }
            over(&mut all, &values);
            let rendered = render(&all).unwrap_or_else(|error| panic!("{error}"));
            let text = rendered.entry("rolter.yaml").replace(SOCKET, &socket);
            *config = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error}"));
            config["sidecar"]["metrics_listen"] = json!("127.0.0.1:0");
            *given.lock().unwrap_or_else(|error| panic!("{error}")) =
                Some((rendered, socket, server));
        })
        .finish(move |document| {
            let rendered = rendered
                .lock()
                .ok()
                .and_then(|mut rendered| rendered.take());
            let (rendered, socket, server) =
                rendered.unwrap_or_else(|| panic!("nothing was rendered"));
            let module = module().unwrap_or_else(|error| panic!("{error}"));
            let mut envoy = match &*mode {
                "envoy" => {
                    let text = rendered.entry("envoy.yaml");
                    let text = text.replace(MODULE, &module.display().to_string());
                    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error}"))
                }
                mode => {
                    let mut mesh = meshed(&rendered, mode).unwrap_or_else(|why| panic!("{why}"));
                    mesh.fetch(&extensions, &module)
                        .unwrap_or_else(|why| panic!("{why}"));
                    started(mesh.bootstrap, &rendered)
                }
            };
            on_loopback(&mut envoy);
            let text = envoy.to_string().replace(SOCKET, &socket);
            envoy = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}"));
            if let Some(server) = server {
                envoy["typed_dns_resolver_config"] = resolver(&server);
            }
            envoy["node"] = document["node"].take();
            *document = envoy;
        });
    Rolled { setup, folder }
}

/// What the Envoy of a gateway or beside a client gets from Istio once the release is there.
///
/// # Errors
/// Where a patch has no effect.
///
/// # Panics
/// Where the base is no YAML.
pub fn meshed(rendered: &Rendered, mode: &str) -> Result<Mesh, String> {
    let (base, context) = match mode {
        "istio-gateway" => ("gateway", "GATEWAY"),
        _ => ("sidecar", "SIDECAR_OUTBOUND"),
    };
    let base = project().join(format!("tests/istio/{base}.yaml"));
    let base = fs::read_to_string(base).unwrap_or_else(|error| panic!("{error}"));
    let base = serde_saphyr::from_str(&base).unwrap_or_else(|error| panic!("{error}"));
    let filters = rendered.of_kind("EnvoyFilter");
    let [filter] = filters.as_slice() else {
        return Err(format!("{} objects of EnvoyFilter", filters.len()));
    };
    Mesh::of(base, filter, context)
}

/// A bootstrap as Istio's Envoys start with it: with what the annotation `bootstrapOverride` names.
///
/// # Panics
/// Where that is no JSON.
pub fn started(mut bootstrap: Value, rendered: &Rendered) -> Value {
    let more = rendered.entry("custom_bootstrap.json");
    let more = serde_json::from_str(more).unwrap_or_else(|error| panic!("{error}"));
    merge(&mut bootstrap, &more);
    bootstrap
}

/// The addresses of the providers' clusters.
fn addresses(config: &Value) -> Value {
    let providers = config["providers"].as_array().into_iter().flatten();
    let addresses = providers.filter_map(|provider| {
        let address = provider["api_base"].as_str()?.strip_prefix("http://")?;
        Some((provider["cluster"].as_str()?.to_owned(), json!(address)))
    });
    addresses.collect::<serde_json::Map<_, _>>().into()
}

/// Listens on free ports of loopback, but for an admin interface that has a port already.
fn on_loopback(envoy: &mut Value) {
    let any = json!({"address": "127.0.0.1", "port_value": 0});
    envoy["admin"]["address"]["socket_address"] = any.clone();
    let listeners = envoy["static_resources"]["listeners"].as_array_mut();
    for listener in listeners.into_iter().flatten() {
        listener["address"]["socket_address"] = any.clone();
    }
}

/// A chat for the engines' Service, over a connection of its own.
pub async fn ask(fleet: &Fleet, content: &str) -> Answer {
    let request = Caller::new(fleet).request(CHAT).json(&say(content));
    answer(request.header("host", "vllm.llm:8000")).await
}

/// Waits until these pods get requests and no others do.
///
/// # Panics
/// Where they never do, or a request fails meanwhile.
pub async fn until_asked(fleet: &Fleet, pods: &Pods, numbers: &[u8]) {
    let wanted: BTreeSet<String> = numbers.iter().map(|&number| pods.target(number)).collect();
    let mut asked = BTreeSet::new();
    for round in 0..100 {
        asked.clear();
        for number in 0..8 {
            let prompt = text(&format!("{numbers:?} {round} {number}"), 16);
            let got = ask(fleet, &prompt).await;
            assert_eq!(got.status, 200, "{got:?}");
            asked.insert(got.target);
        }
        if asked == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("{asked:?} get requests, not {wanted:?}");
}

/// Asks this name server.
fn resolver(server: &str) -> Value {
    let (ip, port) = server.rsplit_once(':').unwrap_or_default();
    let port = port.parse::<u16>().unwrap_or_default();
    json!({
        "name": "envoy.network.dns_resolver.cares",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
            "resolvers": [{"socket_address": {"address": ip, "port_value": port}}],
            "dns_resolver_options": {"no_default_search_domain": true},
        },
    })
}
