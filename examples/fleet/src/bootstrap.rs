//! Envoy's configuration: the documented one, with the engines and ports of this machine, and the
//! filter in a file of its own.

use crate::envoy::module;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

const DOCUMENTED: &str = include_str!("../../../envoy/envoy.yaml");
const LISTENER: &str = "/static_resources/listeners/0/address/socket_address";
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

/// The bootstrap for engines with these names and addresses, in a folder.
pub(crate) fn bootstrap(
    folder: &Path,
    engines: &[(&str, SocketAddr)],
    listen: SocketAddr,
    configure: impl FnOnce(&mut Value),
) -> io::Result<Bootstrap> {
    let mut document: Value = serde_saphyr::from_str(DOCUMENTED).map_err(io::Error::other)?;
    let names: Vec<&str> = engines.iter().map(|(name, _)| *name).collect();

    *at(&mut document, "/admin/address/socket_address")? = address(([127, 0, 0, 1], 0).into());
    *at(&mut document, LISTENER)? = address(listen);
    let filter = &mut at(&mut document, FILTER_SLOT)?["typed_config"];
    *at(filter, "/config/vm_config/code/local/filename")? = json!(module()?);
    let configuration = configuration(filter)?;
    configuration["providers"] = names
        .iter()
        .map(|name| json!({"name": name, "cluster": name}))
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
    *clusters = engines
        .iter()
        .map(|(name, addr)| cluster(documented.clone(), name, *addr))
        .collect::<io::Result<_>>()?;
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

fn cluster(mut cluster: Value, name: &str, addr: SocketAddr) -> io::Result<Value> {
    cluster["name"] = json!(name);
    cluster["load_assignment"]["cluster_name"] = json!(name);
    let endpoint = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address";
    *at(&mut cluster, endpoint)? = address(addr);
    Ok(cluster)
}

fn address(addr: SocketAddr) -> Value {
    json!({"address": addr.ip().to_string(), "port_value": addr.port()})
}

fn at<'a>(document: &'a mut Value, pointer: &str) -> io::Result<&'a mut Value> {
    document
        .pointer_mut(pointer)
        .ok_or_else(|| io::Error::other(format!("envoy/envoy.yaml has nothing at {pointer}")))
}
