//! Addresses in Envoy's file, and those that configurations have for the same. Invariant: each is in
//! the one spelling in which Rust prints it, so that what is the same looks the same.

use crate::document::value::number;
use axum::http::Uri;
use rolter_core::config::Provider;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};

/// The addresses below a value, as `host:port` or `unix://path`.
pub(super) fn addresses(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(list) => list.iter().for_each(|value| addresses(value, found)),
        Value::Object(fields) => {
            if let Some(path) = value.pointer("/pipe/path").and_then(Value::as_str) {
                found.push(format!("unix://{path}"));
            }
            if let Some(socket) = fields.get("socket_address")
                && let Some(host) = socket["address"].as_str()
                && let Some(port) = number(&socket["port_value"])
                && let Ok(port) = u16::try_from(port)
            {
                let ip = host.parse::<IpAddr>();
                found.push(match ip {
                    Ok(ip) => SocketAddr::new(ip, port).to_string(),
                    Err(_) => format!("{host}:{port}"),
                });
            }
            fields.values().for_each(|value| addresses(value, found));
        }
        _ => {}
    }
}

/// The address in `host:port`, if it is one and no name.
pub(super) fn host_ip(endpoint: &str) -> Option<IpAddr> {
    let (host, _) = endpoint.rsplit_once(':')?;
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

/// Where a server is that is asked by HTTP, as a cluster's endpoint would be written.
pub(super) fn asked(provider: &Provider) -> Option<String> {
    let uri: Uri = provider.api_base.as_ref()?.parse().ok()?;
    let is_tls = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let asked = format!("{}:{port}", uri.host()?);
    let address = asked.parse::<SocketAddr>();
    Some(address.map_or(asked, |address| address.to_string()))
}

/// Whether what listens here is what one reaches there: by any address of the machine, where this is
/// all of them or that is a name.
pub(super) fn may_be_same(listens: SocketAddr, reached: &str) -> bool {
    match reached.parse::<SocketAddr>() {
        Ok(reached) if !listens.ip().is_unspecified() => listens == reached,
        Ok(reached) => listens.port() == reached.port(),
        Err(_) => reached.ends_with(&format!(":{}", listens.port())),
    }
}
