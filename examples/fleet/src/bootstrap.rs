//! Envoy's configuration: a documented one, with the engines and ports of this machine, and the
//! filter in a file of its own.

use crate::Reach;
use crate::envoy::Version;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

const BY_CLUSTER: &str = include_str!("../../../envoy/envoy.yaml");
const IN_POOL: &str = include_str!("../../../envoy/pool.yaml");
const LISTENER: &str = "/static_resources/listeners/0";
const FILTER_SLOT: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config\
                           /http_filters/0";
const FILTER_NAME: &str = "rolter";

/// What Envoy is told.
pub(crate) struct Bootstrap {
    /// The whole document.
    pub(crate) document: Value,
    /// The filter's part of it, which Envoy takes from a file of its own, so that it can change.
    pub(crate) filter: Value,
}

/// Where Envoy finds the filter's part: a name in the folder of the bootstrap.
pub(crate) const FILTER_FILE: &str = "filter.json";

/// Below this, Envoy holds a body within the listener's limit, whatever the route says. Then the
/// limit has to be as long as the longest body in chunks, as `envoy/envoy.yaml` says; this is what
/// the tests send.
const ROUTE_LIMITS_BODIES: Version = Version(1, 37);
const LONGEST_BODY: usize = 5 << 20;

/// What there is to be configured.
pub(crate) struct Parts<'a> {
    /// The names and addresses of the engines.
    pub(crate) engines: &'a [(&'a str, SocketAddr)],
    pub(crate) reach: Reach,
    /// The socket of the sidecar, where there is one.
    pub(crate) sidecar: Option<&'a Path>,
    pub(crate) listen: SocketAddr,
    pub(crate) envoy: Version,
    pub(crate) module: &'a Path,
}

/// The bootstrap for these, in a folder.
pub(crate) fn bootstrap(
    folder: &Path,
    parts: &Parts<'_>,
    configure: impl FnOnce(&mut Value),
) -> io::Result<Bootstrap> {
    let &Parts {
        engines,
        reach,
        sidecar,
        listen,
        envoy,
        module,
    } = parts;
    let documented = match reach {
        Reach::Cluster => BY_CLUSTER,
        Reach::Pool => IN_POOL,
    };
    let mut document: Value = serde_saphyr::from_str(documented).map_err(io::Error::other)?;
    let names: Vec<&str> = engines.iter().map(|(name, _)| *name).collect();

    *at(&mut document, "/admin/address/socket_address")? = address(([127, 0, 0, 1], 0).into());
    let listener = at(&mut document, LISTENER)?;
    *at(listener, "/address/socket_address")? = address(listen);
    if envoy < ROUTE_LIMITS_BODIES {
        *at(listener, "/per_connection_buffer_limit_bytes")? = json!(LONGEST_BODY);
    }
    let filter = &mut at(&mut document, FILTER_SLOT)?["typed_config"];
    *at(filter, "/config/vm_config/code/local/filename")? = json!(module);
    let configuration = configuration(filter)?;
    configuration["providers"] = engines
        .iter()
        .map(|(name, addr)| match reach {
            Reach::Cluster => json!({"name": name, "cluster": name}),
            Reach::Pool => json!({"name": name, "endpoint": addr.to_string()}),
        })
        .collect();
    let routes = at(configuration, "/routes")?.as_array_mut();
    for route in routes.into_iter().flatten() {
        route["targets"] = json!(names);
    }
    configure(configuration);
    let slot = at(&mut document, FILTER_SLOT)?;
    let filter = slot["typed_config"].take();
    *slot = json!({
        "name": FILTER_NAME,
        "config_discovery": {
            "config_source": {
                "path_config_source": {
                    "path": folder.join(FILTER_FILE),
                    "watched_directory": {"path": folder},
                },
            },
            "type_urls": [filter["@type"]],
        },
    });
    document["node"] = json!({"id": "fleet", "cluster": "fleet"});

    let clusters = at(&mut document, "/static_resources/clusters")?;
    let documented = clusters[0].take();
    let watcher = clusters.as_array().and_then(|all| all.last()).cloned();
    *clusters = match reach {
        Reach::Cluster => engines
            .iter()
            .map(|(name, addr)| cluster(documented.clone(), name, &[*addr]))
            .collect::<io::Result<_>>()?,
        Reach::Pool => {
            let addrs: Vec<SocketAddr> = engines.iter().map(|(_, addr)| *addr).collect();
            json!([cluster(documented, "engines", &addrs)?])
        }
    };
    if let (Some(socket), Some(mut watcher)) = (sidecar, watcher) {
        *at(
            &mut watcher,
            "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/pipe/path",
        )? = json!(socket);
        if let Value::Array(clusters) = at(&mut document, "/static_resources/clusters")? {
            clusters.push(watcher);
        }
    }
    Ok(Bootstrap { document, filter })
}

/// The filter's part as Envoy expects it in its file.
pub(crate) fn discovery(filter: &Value, version: usize) -> Value {
    json!({
        "version_info": version.to_string(),
        "resources": [{
            "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            "name": FILTER_NAME,
            "typed_config": filter,
        }],
    })
}

/// The filter's own configuration inside its part.
pub(crate) fn configuration(filter: &mut Value) -> io::Result<&mut Value> {
    at(filter, "/config/configuration/value")
}

/// The documented cluster under this name, with these endpoints.
fn cluster(mut cluster: Value, name: &str, addrs: &[SocketAddr]) -> io::Result<Value> {
    cluster["name"] = json!(name);
    cluster["load_assignment"]["cluster_name"] = json!(name);
    let endpoints = at(&mut cluster, "/load_assignment/endpoints/0/lb_endpoints")?;
    *endpoints = addrs
        .iter()
        .map(|addr| json!({"endpoint": {"address": {"socket_address": address(*addr)}}}))
        .collect();
    Ok(cluster)
}

fn address(addr: SocketAddr) -> Value {
    json!({"address": addr.ip().to_string(), "port_value": addr.port()})
}

fn at<'a>(document: &'a mut Value, pointer: &str) -> io::Result<&'a mut Value> {
    document.pointer_mut(pointer).ok_or_else(|| {
        io::Error::other(format!(
            "the configuration in envoy/ has nothing at {pointer}"
        ))
    })
}
