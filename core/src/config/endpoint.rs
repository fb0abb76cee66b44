//! Where a provider's targets are: one address, or all those that a DNS name has.
//!
//! A name stands for whatever pods are behind it at the moment. Wherever else the provider has the
//! name, in a URL or an endpoint of events, it stands for each of the addresses in turn.

use super::fields::Fields;
use super::{EventEndpoint, Provider};
use crate::kv::members::target_name;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Where a provider's targets are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// It is one target, at this address.
    Address(SocketAddr),
    /// Each address of this name is one.
    Name(DnsName),
}

/// A DNS name whose addresses come and go, as that of a headless service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsName {
    /// In lower case; absolute where it ends in a dot.
    pub name: String,
    /// The port at each address.
    pub port: u16,
}

impl Endpoint {
    /// What stands between `ip:port` and `name:port`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            let scoped = matches!(address, SocketAddr::V6(v6) if v6.scope_id() != 0);
            return (address.port() != 0 && !scoped).then_some(Self::Address(address));
        }
        let (name, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|&port| port != 0)?;
        is_name(name).then(|| {
            let name = name.to_ascii_lowercase();
            Self::Name(DnsName { name, port })
        })
    }
}

impl fmt::Display for Endpoint {
    /// As it is written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => write!(f, "{}:{}", name.name, name.port),
        }
    }
}

/// What RFC 1123 takes for a host's name, and underscores, which some have. What ends in a number is
/// a mistyped address.
fn is_name(name: &str) -> bool {
    let mut labels = name.strip_suffix('.').unwrap_or(name).split('.');
    let is_label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (1..=63).contains(&label.len())
            && label.bytes().all(allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    name.len() <= 253
        && labels.clone().all(is_label)
        && labels.next_back().is_some_and(|last| !is_number(last))
}

impl Provider {
    /// The name whose addresses are its targets, where it has one.
    pub fn dns_name(&self) -> Option<&DnsName> {
        match &self.endpoint {
            Some(Endpoint::Name(name)) => Some(name),
            _ => None,
        }
    }

    /// What the target at this address is called.
    pub fn member_name(&self, address: SocketAddr) -> String {
        target_name(&self.name, address)
    }

    /// The target at one of the addresses of its name, as a provider of its own: the name has given
    /// way to the address wherever it was.
    #[must_use]
    pub fn at(&self, address: SocketAddr) -> Self {
        let Some(DnsName { name, .. }) = self.dns_name() else {
            return self.clone();
        };
        let host = match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let mut member = self.clone();
        member.name = self.member_name(address);
        member.endpoint = Some(Endpoint::Address(address));
        if let Some(base) = &mut member.api_base {
            put_host(base, name, &host);
        }
        if let Some(lmcache) = &mut member.lmcache {
            put_host(&mut lmcache.endpoint, name, &host);
        }
        if let Some(events) = &mut member.kv_events {
            let replay = events.replay_endpoint.as_mut();
            for endpoint in replay.into_iter().chain([&mut events.endpoint]) {
                if let EventEndpoint::Tcp {
                    host: of_events, ..
                } = endpoint
                {
                    of_events.clone_from(&host);
                }
            }
        }
        member
    }
}

/// Puts a host into a URL in the place of this name.
fn put_host(url: &mut String, name: &str, host: &str) {
    if let Some(found) = host_of(url)
        && found.eq_ignore_ascii_case(name)
    {
        let start = url.len() - url.split_once("://").map_or(0, |(_, rest)| rest.len());
        url.replace_range(start..start + found.len(), host);
    }
}

/// The host of a URL, an IPv6 address with its brackets.
fn host_of(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let port = authority.rsplit_once(':');
    let host = match port {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    Some(host.to_owned())
}

/// Reports what cannot stand for each address of the name that the provider has.
pub(super) fn check_name(fields: &Fields<'_>, provider: &Provider) {
    let Some(DnsName { name, .. }) = provider.dns_name() else {
        return;
    };
    let foreign = format!(
        "leads elsewhere than endpoint; write {name} for its host, which stands for each address"
    );
    let urls = [
        ("api_base", provider.api_base.as_deref()),
        (
            "lmcache.endpoint",
            provider.lmcache.as_ref().map(|of| of.endpoint.as_str()),
        ),
    ];
    for (key, url) in urls {
        let Some(url) = url else { continue };
        if url.starts_with("https:") {
            let what =
                "each address is asked by itself, which no certificate is for; write http://";
            fields.add(key, what);
        } else if !host_of(url).is_some_and(|host| host.eq_ignore_ascii_case(name)) {
            fields.add(key, &*foreign);
        }
    }
    let Some(events) = &provider.kv_events else {
        return;
    };
    if events.bind {
        let what =
            "who connects cannot be told from the others; remove it, and have engines listen";
        fields.add("kv_events.bind", what);
    }
    let endpoints = [
        ("kv_events.endpoint", Some(&events.endpoint)),
        ("kv_events.replay_endpoint", events.replay_endpoint.as_ref()),
    ];
    for (key, endpoint) in endpoints {
        let is_same = |endpoint: &EventEndpoint| match endpoint {
            EventEndpoint::Tcp { host, .. } => host.eq_ignore_ascii_case(name),
            EventEndpoint::Ipc(_) => false,
        };
        if endpoint.is_some_and(|endpoint| !is_same(endpoint)) {
            fields.add(key, &*foreign);
        }
    }
}
