//! The cluster of the sidecar, and those of plugins: whether they are there, and lead to who answers.
//! Invariant: clusters that the file does not have may come from elsewhere.

use super::address::may_be_same;
use super::envoy::{Cluster, Envoy};
use crate::document::configuration::{Ours, with_policy};
use rolter_core::config::{Listen, Problem, Sidecar};
use std::collections::BTreeSet;

/// The sidecars of the configurations, with the clusters that the file has for them.
fn sidecars<'a, 'b>(
    envoy: &'a Envoy<'b>,
) -> impl Iterator<Item = (&'a Ours, &'a Sidecar, Option<&'a Cluster<'b>>)> {
    let configs = envoy.configs();
    configs.filter_map(|(ours, config)| {
        let sidecar = config.sidecar.as_ref()?;
        Some((ours, sidecar, envoy.cluster(&sidecar.cluster)))
    })
}

pub(super) fn unknown(envoy: &Envoy<'_>) -> Vec<Problem> {
    if !envoy.is_whole() {
        return Vec::new();
    }
    let unknown = sidecars(envoy).filter(|(_, _, cluster)| cluster.is_none());
    let told = unknown.map(|(ours, sidecar, _)| {
        let what = format!(
            "no cluster {:?} in this file; nothing reaches the sidecar, unless Envoy gets it from \
             elsewhere; write that cluster, with {} as its endpoint",
            sidecar.cluster, sidecar.listen
        );
        ours.problem("sidecar.cluster", what)
    });
    told.collect()
}

pub(super) fn elsewhere(envoy: &Envoy<'_>) -> Vec<Problem> {
    let told = sidecars(envoy).filter_map(|(ours, sidecar, cluster)| {
        let (cluster, listen) = (cluster?, sidecar.listen.to_string());
        let leads_to = cluster.endpoints();
        let is_there = |endpoint: &String| match &sidecar.listen {
            Listen::Unix(_) => *endpoint == listen,
            Listen::Tcp(address) => may_be_same(*address, endpoint),
        };
        if leads_to.is_empty() || leads_to.iter().any(is_there) {
            return None;
        }
        let what = format!(
            "{listen}, but the cluster {:?} leads to {}, so that nothing reaches the sidecar, \
             unless both are the same; write the same in both",
            cluster.name,
            leads_to.join(", ")
        );
        Some(ours.problem("sidecar.listen", what))
    });
    told.collect()
}

/// It speaks HTTP/1.1 without TLS.
pub(super) fn protocol(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = Vec::new();
    for cluster in sidecars(envoy).filter_map(|(_, _, cluster)| cluster) {
        if let Some(field) = cluster.speaks_http2() {
            let what = "HTTP/2, but the sidecar speaks HTTP/1.1, so that no call to it succeeds; \
                        write explicit_http_config: { http_protocol_options: {} }";
            told.push(cluster.problem(field, what));
        }
        let is_tls = cluster.value.pointer("/transport_socket/name");
        if is_tls.is_some_and(|name| name == "envoy.transport_sockets.tls") {
            let what = "TLS, but the sidecar speaks plain HTTP, so that no call to it succeeds; \
                        remove it";
            told.push(cluster.problem("transport_socket", what));
        }
    }
    // Several configurations may have the same one.
    told.dedup();
    told
}

/// Plugins of which the file has no cluster.
pub(super) fn plugins(envoy: &Envoy<'_>) -> Vec<Problem> {
    if !envoy.is_whole() {
        return Vec::new();
    }
    let mut told = Vec::new();
    for (ours, config) in envoy.configs() {
        let plugins = with_policy(config).into_iter().flat_map(|policy| {
            let plugins = policy.plugins.iter();
            plugins.map(|plugin| (&policy.path, &plugin.name, &plugin.cluster))
        });
        let unknown: BTreeSet<_> = plugins
            .filter(|(.., cluster)| envoy.cluster(cluster).is_none())
            .collect();
        for (path, plugin, cluster) in unknown {
            let what = format!(
                "{plugin}: no cluster {cluster:?} in this file; nothing reaches the plugin, unless \
                 Envoy gets it from elsewhere; write that cluster"
            );
            told.push(ours.problem(&format!("{path}.plugins"), what));
        }
    }
    told
}
