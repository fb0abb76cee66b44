//! Envoy's configuration: the documented one, with the engines and ports of this machine.

use crate::envoy::module;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;

const DOCUMENTED: &str = include_str!("../../../envoy/envoy.yaml");
const LISTENER: &str = "/static_resources/listeners/0/address/socket_address";
const FILTER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config\
                      /http_filters/0/typed_config/config";

/// The bootstrap as JSON, for engines with these names and addresses.
pub(crate) fn bootstrap(
    engines: &[(&str, SocketAddr)],
    listen: SocketAddr,
    configure: impl FnOnce(&mut Value),
) -> io::Result<String> {
    let mut document: Value = serde_saphyr::from_str(DOCUMENTED).map_err(io::Error::other)?;
    let names: Vec<&str> = engines.iter().map(|(name, _)| *name).collect();

    *at(&mut document, "/admin/address/socket_address")? = address(([127, 0, 0, 1], 0).into());
    *at(&mut document, LISTENER)? = address(listen);
    let filter = at(&mut document, FILTER)?;
    *at(filter, "/vm_config/code/local/filename")? = json!(module()?);
    let configuration = at(filter, "/configuration/value")?;
    configuration["providers"] = names
        .iter()
        .map(|name| json!({"name": name, "cluster": name}))
        .collect();
    let routes = at(configuration, "/routes")?.as_array_mut();
    for route in routes.into_iter().flatten() {
        route["targets"] = json!(names);
    }
    configure(configuration);

    let clusters = at(&mut document, "/static_resources/clusters")?;
    let documented = clusters[0].take();
    *clusters = engines
        .iter()
        .map(|(name, addr)| cluster(documented.clone(), name, *addr))
        .collect::<io::Result<_>>()?;
    Ok(document.to_string())
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
